//! POSIX timers: their receivers, and their overruns.
//!
//! The kernel can't signal a green thread, so a timer for one (`SIGEV_THREAD_ID`, which glibc also
//! uses for `SIGEV_THREAD`) is made as a timer for the process, and its row names the receiver:
//! routing looks there when the signal arrives. An expiry is an overrun while its predecessor still
//! waits to be taken, as in the kernel, which here believes that the program took it long ago.
//!
//! libc's signal for timers is the one that preempts, which no kernel thread of the runtime blocks.
//! So it comes to helpers, too: see [`Missed`].

use super::bit;
use crate::frame::{Frame, Outcome};
use crate::mode::is_virtual;
use crate::signal::actions;
use crate::user::User;
use crate::{clocks, scheduling};
use core::sync::atomic::{AtomicU32, Ordering};
use raddle_engine::signals::SI_TIMER;
use raddle_engine::{PROCESS, Thread};
use raddle_sched::SpinLock;
use raddle_sys::abi::{SigEvent, SigInfo};
use raddle_sys::{err, errno, is_err, nr, sys};

/// Timers that can exist at once.
const ROWS: usize = 4096;

/// A timer that signals.
#[derive(Clone, Copy)]
struct Row {
    /// The kernel's id + 1; 0 for a free row.
    key: u32,
    /// The receiver; 0 for the process, [`GONE`] for a receiver that is gone.
    tid: u32,
    /// The overruns of the last signal that was taken.
    overrun: u32,
    /// What the signal carries: `sigev_value`.
    value: u64,
}

impl Row {
    const FREE: Self = Self {
        key: 0,
        tid: 0,
        overrun: 0,
        value: 0,
    };
}

/// In the row of a deleted timer for a thread: an expiry may still be on its way, and must not be
/// taken for one for the process. The row is free for another timer, which comes so many timers
/// later that nothing is on its way then.
const GONE: u32 = u32::MAX;

/// The rows. The row of id `n` is the first free one from `n % ROWS` on, which is row `n % ROWS`
/// unless ids have wrapped.
static TABLE: SpinLock<[Row; ROWS]> = SpinLock::new([Row::FREE; ROWS]);
/// 1 once a row was taken: few programs have such timers, and the table is many pages.
static USED: AtomicU32 = AtomicU32::new(0);

/// Runs `action` on the row of the timer with this id, if there is one.
fn with_row<T>(id: u32, action: impl FnOnce(&mut Row) -> T) -> Option<T> {
    let key = id.checked_add(1)?; // no timer has the highest id
    let mut table = TABLE.lock();
    let start = id as usize;
    (0..ROWS)
        .map(|step| start.wrapping_add(step) % ROWS)
        .find(|&at| table[at].key == key)
        .map(|at| action(&mut table[at]))
}

fn add(id: u32, tid: u32, value: u64) -> bool {
    let mut table = TABLE.lock();
    let free = (0..ROWS)
        .map(|step| (id as usize).wrapping_add(step) % ROWS)
        .find(|&at| table[at].key == 0 || table[at].tid == GONE);
    if let Some(at) = free {
        USED.store(1, Ordering::Relaxed);
        table[at] = Row {
            key: id.wrapping_add(1),
            tid,
            overrun: 0,
            value,
        };
    }
    free.is_some()
}

/// An expiry that has come to a helper: the kernel has sent [`LIBC_TIMER`]. The next carrier that
/// routes signals takes it from here. All zero for none.
struct Missed {
    /// The timer's, as in [`Row`].
    key: AtomicU32,
    overrun: AtomicU32,
}

/// The place of id `n` is the first one from `n % ROWS` on that is free or the timer's own.
static MISSED: [Missed; ROWS] = [const {
    Missed {
        key: AtomicU32::new(0),
        overrun: AtomicU32::new(0),
    }
}; ROWS];
/// 1 while there may be some.
static ANY_MISSED: AtomicU32 = AtomicU32::new(0);

/// The signal of libc's timers.
const LIBC_TIMER: u32 = 32;

/// Returns true for the signal of one of libc's timers.
pub fn is_libcs(info: &SigInfo) -> bool {
    info.signo as u32 == LIBC_TIMER && info.code == SI_TIMER
}

/// Keeps an expiry of libc's for [`take_missed`]. With a predecessor that is still there it is an
/// overrun.
///
/// # Signal safety
/// For all handlers; takes no lock.
pub fn miss(info: &SigInfo) {
    let id = info.pid as usize;
    let key = (info.pid as u32).wrapping_add(1);
    let places = (0..ROWS).map(|step| &MISSED[id.wrapping_add(step) % ROWS]);
    for place in places {
        let seq = Ordering::SeqCst;
        let more = match place.key.compare_exchange(0, key, seq, seq) {
            Ok(_) => info.uid,
            Err(there) if there == key => info.uid.wrapping_add(1),
            Err(_) => continue,
        };
        place.overrun.fetch_add(more, Ordering::Relaxed);
        break;
    }
    ANY_MISSED.store(1, Ordering::SeqCst);
}

/// Returns true if an expiry waits for [`take_missed`].
#[inline(always)]
pub fn has_missed() -> bool {
    ANY_MISSED.load(Ordering::Relaxed) != 0
}

/// Takes the expiries that were missed.
#[cold]
pub fn take_missed(mut act: impl FnMut(&SigInfo)) {
    if ANY_MISSED.swap(0, Ordering::SeqCst) == 0 {
        return;
    }
    for place in &MISSED {
        if place.key.load(Ordering::Relaxed) == 0 {
            continue;
        }
        let id = place.key.swap(0, Ordering::SeqCst).wrapping_sub(1);
        let overrun = place.overrun.swap(0, Ordering::Relaxed);
        if let Some(value) = with_row(id, |row| row.value) {
            act(&SigInfo {
                signo: LIBC_TIMER as i32,
                code: SI_TIMER,
                pid: id as i32,
                uid: overrun,
                value,
                ..SigInfo::EMPTY
            });
        }
    }
}

/// `timer_create(2)`.
pub extern "C" fn timer_create(frame: &Frame) -> Outcome {
    const SIGEV_SIGNAL: u32 = nr::SIGEV_SIGNAL;
    const SIGEV_THREAD_ID: u32 = nr::SIGEV_THREAD_ID;
    let event_at = frame.user::<SigEvent>(1);
    let mut event = if event_at.is_null() {
        None
    } else {
        match event_at.read() {
            Ok(event) => Some(event),
            Err(errno) => return Outcome::of(errno),
        }
    };
    let clock = match clock(frame.word(0)) {
        Ok(clock) => clock,
        Err(errno) => return Outcome::of(errno),
    };
    let mut tid = 0;
    if let Some(event) = &mut event
        && event.notify == SIGEV_THREAD_ID
        && PROCESS.find(event.tid).is_some()
    {
        (tid, event.notify) = (event.tid, SIGEV_SIGNAL);
        if is_virtual() && (1..=super::SIGNALS).contains(&event.signal) {
            actions::watch(bit(event.signal));
        }
    }
    const NONE: u32 = u32::MAX; // no timer's id
    let mut id = NONE;
    let event_to = event
        .as_ref()
        .map_or(0, |event| core::ptr::from_ref(event).expose_provenance());
    // SAFETY: the program's own call; the kernel reads and fills live structures.
    let result = unsafe { sys!(frame.number(), clock, event_to, &raw mut id) };
    if is_err(result) {
        // The kernel tells the id before it asks whether the clock has timers.
        let told = if id == NONE {
            Ok(())
        } else {
            frame.user(2).write(&id)
        };
        return Outcome::of(told.err().unwrap_or(result));
    }
    let signals = event.is_none_or(|event| event.notify == SIGEV_SIGNAL);
    let value = event.map_or(u64::from(id), |event| event.value);
    Outcome::of(
        match made(id, signals.then_some((tid, value)), frame.user(2)) {
            Ok(()) => 0,
            Err(errno) => {
                // SAFETY: the timer that was just made.
                unsafe { sys!(nr::__NR_timer_delete, id) };
                errno
            }
        },
    )
}

/// Tells the program the id of a timer that the kernel has made. Notes a timer that signals, with
/// its thread, or 0 for the process, and with what the signal carries.
fn made(id: u32, signalled: Option<(u32, u64)>, id_at: User<u32>) -> Result<(), isize> {
    id_at.write(&id)?;
    match signalled {
        Some((tid, value)) if !add(id, tid, value) => Err(err(errno::EAGAIN)),
        _ => Ok(()),
    }
}

/// Returns the clock to give to the kernel. To time a thread's CPU time, this binds the thread: its
/// kernel thread's time is then its own.
fn clock(clock: u32) -> Result<u32, isize> {
    if let Some(thread) = clocks::owner(clock) {
        scheduling::bind(thread)?;
    }
    Ok(clocks::for_kernel(clock))
}

/// `timer_delete(2)`.
pub extern "C" fn timer_delete(frame: &Frame) -> Outcome {
    let id = frame.word(0);
    // SAFETY: the program's own call.
    let result = unsafe { frame.raw() };
    if result == 0 {
        with_row(id, |row| match row.tid {
            0 => *row = Row::FREE,
            _ => row.tid = GONE,
        });
    }
    Outcome::of(result)
}

/// `timer_getoverrun(2)`: of the last signal that the program took.
pub extern "C" fn timer_getoverrun(frame: &Frame) -> Outcome {
    let id = frame.word(0);
    if !is_virtual() {
        return Outcome::PASS;
    }
    match with_row(id, |row| *row) {
        Some(row) if row.tid != GONE => Outcome::of(row.overrun.min(i32::MAX as u32) as isize),
        _ => Outcome::PASS,
    }
}

/// The receiver of a signal that arrived.
pub enum Target<'a> {
    Process,
    Thread(&'a Thread),
    /// The timer or its thread is gone.
    Nobody,
}

/// Returns the receiver of a signal that the kernel sent to the process.
pub fn target<'a>(info: &SigInfo) -> Target<'a> {
    if info.code != SI_TIMER {
        return Target::Process;
    }
    match with_row(info.pid as u32, |row| row.tid) {
        Some(0) => Target::Process,
        Some(GONE) => Target::Nobody,
        Some(tid) => PROCESS.find(tid).map_or(Target::Nobody, Target::Thread),
        // libc has no handler for its timers: a late signal must not end the process.
        None if info.signo as u32 == LIBC_TIMER => Target::Nobody,
        None => Target::Process,
    }
}

/// Notes that the program took a signal, for `timer_getoverrun`.
pub fn taken(info: &SigInfo) {
    if info.code == SI_TIMER {
        with_row(info.pid as u32, |row| row.overrun = info.uid);
    }
}

/// In the child of a fork: timers aren't inherited.
pub fn in_child() {
    // SAFETY: the child has one thread.
    unsafe { TABLE.break_lock() };
    if USED.load(Ordering::Relaxed) != 0 && USED.swap(0, Ordering::Relaxed) != 0 {
        *TABLE.lock() = [Row::FREE; ROWS];
    }
    if ANY_MISSED.load(Ordering::Relaxed) != 0 {
        take_missed(|_| {}); // without a row
    }
}
