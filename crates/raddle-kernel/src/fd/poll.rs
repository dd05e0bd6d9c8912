//! Waiting for several descriptors: `poll`, `ppoll`, `epoll_wait`, and [`select`].
//!
//! Each call asks the kernel without waiting. If nothing is ready, the thread waits in the pump for
//! any of the descriptors, with sequence numbers read before the question, and asks again. To the
//! pump's epoll, an epoll descriptor of the program's is a descriptor like others.
//!
//! As in the kernel, the program's arrays and sets are copied when the call begins, and written
//! when it ends: changes by other threads meanwhile have no effect.

pub mod select;

use crate::clocks::deadlines::{millisecond_deadline, sleep_until};
use crate::fd::waiting::{EINTR, count_call};
use crate::frame::{Frame, Outcome};
use crate::mode::is_multiplexed;
use crate::mode::is_virtual;
use crate::signal;
use crate::signal::routing::Process;
use crate::user::{User, is_reachable, kernel_accepts};
use core::mem::MaybeUninit;
use core::sync::atomic::Ordering;
use raddle_engine::clock::now_ns;
use raddle_engine::pump::{FdWait, IN, OUT, PRI, RDHUP};
use raddle_engine::thread::WaitKind;
use raddle_engine::{Carrier, PROCESS};
use raddle_sched::Wake;
use raddle_sched::routes::Routes;
use raddle_sched::timers::NEVER;
use raddle_sys::abi::{PollFd, Timespec};
use raddle_sys::{err, errno, mem, nr, sys};

/// ERR and HUP: always of interest.
const ALWAYS: u32 = 0x18;
/// Waits that fit on the stack.
const FEW: usize = 8;

/// A temporary array of waits: on the stack, or mapped if there are many.
struct Waits {
    few: [MaybeUninit<FdWait>; FEW],
    many: *mut FdWait,
    len: usize,
    capacity: usize,
    /// Bytes that are mapped.
    mapped: usize,
}

impl Waits {
    fn new(capacity: usize) -> Option<Self> {
        Self::beside(capacity, 0)
    }

    /// As [`Waits::new`]; mapped waits have room behind them for as many things of `thing` bytes.
    fn beside(capacity: usize, thing: usize) -> Option<Self> {
        let mut waits = Self {
            few: [const { MaybeUninit::uninit() }; FEW],
            many: core::ptr::null_mut(),
            len: 0,
            capacity,
            mapped: 0,
        };
        if capacity > FEW {
            waits.mapped = capacity.checked_mul(size_of::<FdWait>() + thing)?;
            waits.many = mem::map(waits.mapped).ok()?.cast();
        }
        Some(waits)
    }

    /// The room behind mapped waits; null if nothing is mapped.
    fn room(&self) -> *mut u8 {
        if self.many.is_null() {
            core::ptr::null_mut()
        } else {
            self.many.wrapping_add(self.capacity).cast()
        }
    }

    fn base(&mut self) -> *mut FdWait {
        if self.many.is_null() {
            self.few.as_mut_ptr().cast()
        } else {
            self.many
        }
    }

    fn push(&mut self, fd: u32, events: u32) {
        if self.len == self.capacity {
            return;
        }
        // SAFETY: below the capacity, in memory of this array.
        unsafe {
            self.base()
                .add(self.len)
                .write(FdWait::new(fd, events | ALWAYS))
        };
        self.len += 1;
    }

    /// Reads every sequence number. Called before the kernel is asked.
    fn note_sequences(&mut self) {
        let base = self.base();
        for index in 0..self.len {
            // SAFETY: the first `len` were written.
            let wait = unsafe { &mut *base.add(index) };
            if let Some(entry) = PROCESS.pump.entry(wait.fd) {
                wait.sequence = entry.sequence();
            }
        }
    }

    /// Returns true if the only wait is for data of a socket that was seen empty at the sequence
    /// number that was noted: the kernel need not be asked before the wait.
    fn are_drained(&mut self) -> bool {
        match self.all() {
            [wait] if wait.events & !(ALWAYS | IN | PRI | RDHUP) == 0 => PROCESS
                .pump
                .entry(wait.fd)
                .is_some_and(|entry| entry.is_drained(wait.sequence)),
            _ => false,
        }
    }

    /// Returns the events that have ended a wait for one descriptor, if they are known.
    fn told(&mut self) -> Option<u32> {
        match self.all() {
            [wait] => Some(wait.told.get()).filter(|&events| events != 0),
            _ => None,
        }
    }

    /// The call succeeded: the next wait on these descriptors is a new one.
    fn progress(&mut self) {
        for wait in self.all() {
            if let Some(entry) = PROCESS.pump.entry(wait.fd) {
                entry.progress();
            }
        }
    }

    fn all(&mut self) -> &[FdWait] {
        // SAFETY: the first `len` were written.
        unsafe { core::slice::from_raw_parts(self.base(), self.len) }
    }
}

impl Drop for Waits {
    fn drop(&mut self) {
        if !self.many.is_null() {
            // SAFETY: mapped by `new`; every node was unlinked by the pump.
            unsafe { mem::unmap(self.many.cast(), self.mapped) };
        }
    }
}

/// A signal mask for the duration of a call (`ppoll`, `pselect6`, `epoll_pwait`).
pub(crate) struct TemporaryMask {
    old: Option<u64>,
}

impl TemporaryMask {
    /// No mask.
    pub(crate) const NONE: Self = Self { old: None };

    /// The mask at this address, if it isn't null; `bytes` is the program's size of a mask.
    ///
    /// # Errors
    /// EINVAL or EFAULT, negated.
    pub(crate) fn set(at: User<u64>, bytes: usize) -> Result<Self, isize> {
        if at.is_null() || !is_virtual() {
            return Ok(Self::NONE);
        }
        if bytes != signal::MASK_BYTES {
            return Err(err(errno::EINVAL));
        }
        let mask = at.read()? & !signal::UNBLOCKABLE;
        let thread = Carrier::current().thread();
        let old = Process.set_mask(thread, mask);
        thread.signals.suspended_mask.set(Some(old));
        Ok(Self { old: Some(old) })
    }

    /// Returns true if a handler ran for a signal that this mask lets through, and the old one
    /// didn't.
    pub(crate) fn lets_through(&self) -> bool {
        self.old.is_some() && self.deliver()
    }

    /// Delivers what the temporary mask lets through. Returns true if a handler ran.
    pub(crate) fn deliver(&self) -> bool {
        if let Some(old) = self.old {
            Carrier::current()
                .thread()
                .signals
                .suspended_mask
                .set(Some(old));
        }
        signal::deliver(false)
    }
}

impl Drop for TemporaryMask {
    fn drop(&mut self) {
        if let Some(old) = self.old {
            let thread = Carrier::current().thread();
            let signals = &thread.signals;
            if signals.suspended_mask.take().is_some() {
                Process.set_mask(thread, old);
            }
            if signals.deliverable() != 0 {
                Carrier::current().attention.store(1, Ordering::Relaxed);
            }
        }
    }
}

/// Returns true if the calling thread parks for a call with a signal mask at this address, or
/// without one. A thread with a kernel thread of its own parks for a mask, because the kernel
/// doesn't know the thread's mask; but not with descriptors of its own, which the pump can't watch.
fn parks_with_mask(mask: usize) -> bool {
    let parks_if_bound =
        || mask != 0 && PROCESS.is_started() && !Carrier::current().has_own_files();
    is_multiplexed() || parks_if_bound()
}

/// Repeats a question, which doesn't wait, until it is answered.
///
/// Linux answers EINTR to `poll` and `select`, whatever the timeout, if nothing is ready and a
/// signal is on its way to this kernel thread. The signal may be the runtime's or another thread's;
/// a signal for this thread interrupts its wait, or is handled at the end of the call.
fn until_answered(mut ask: impl FnMut() -> isize) -> isize {
    loop {
        let answer = ask();
        if answer != EINTR {
            return answer;
        }
    }
}

/// Returns `poll`'s answer about one descriptor now: 0 if none of `events` is ready.
pub(crate) fn ask_about(fd: usize, events: i16) -> isize {
    state_of(fd, events) as isize
}

/// Returns the events that `poll` finds for one descriptor now.
pub(crate) fn state_of(fd: usize, events: i16) -> i16 {
    let mut poll = PollFd {
        fd: fd as i32,
        events,
        revents: 0,
    };
    // SAFETY: a live structure.
    until_answered(|| unsafe { sys!(nr::__NR_poll, &raw mut poll, 1usize, 0usize) });
    poll.revents
}

/// Asks, waits, asks again. `ask` returns the kernel's answer without waiting. The first question
/// is left out if the answer is known, and so is the last one if `tell` gives an answer for the
/// events that have ended a wait for one descriptor.
fn wait_loop(
    waits: &mut Waits,
    kind: WaitKind,
    deadline_ns: u64,
    mask: &TemporaryMask,
    mut ask: impl FnMut() -> isize,
    mut tell: impl FnMut(u32) -> Option<isize>,
) -> Outcome {
    let mut is_known = mask.old.is_none();
    loop {
        waits.note_sequences();
        is_known = is_known && waits.are_drained();
        let ready = if is_known {
            0
        } else {
            until_answered(&mut ask)
        };
        if ready != 0 {
            count_call();
            waits.progress();
            return Outcome::of(ready);
        }
        if mask.lets_through() {
            return Outcome::of(EINTR);
        }
        if deadline_ns != NEVER && now_ns() >= deadline_ns {
            let answer = if is_known { until_answered(ask) } else { 0 };
            return Outcome::of(answer);
        }
        let thread = Carrier::current().thread();
        let arg = match kind {
            WaitKind::EPOLL => waits.all().first().map_or(0, |wait| wait.fd as usize),
            _ => waits.len,
        };
        thread.waits_for(
            kind,
            arg,
            if deadline_ns == NEVER { 0 } else { deadline_ns },
        );
        match PROCESS.pump.wait_any(waits.all(), deadline_ns) {
            // Data that came before the signal ends the call, though its event was not taken yet.
            Ok(Wake::Signalled) if is_known => is_known = false,
            Ok(Wake::Signalled) if mask.deliver() => {
                return Outcome::of(EINTR);
            }
            Ok(Wake::TimedOut) => return Outcome::of(until_answered(ask)),
            Ok(Wake::Woken) if mask.old.is_none() => {
                if let Some(ready) = waits.told().and_then(&mut tell) {
                    count_call();
                    waits.progress();
                    return Outcome::of(ready);
                }
            }
            Ok(_) => {}
            Err(_) => return Outcome::PASS,
        }
    }
}

/// `poll(2)`.
pub extern "C" fn poll(frame: &Frame) -> Outcome {
    let timeout_ms = frame.word(2) as i32;
    if !is_multiplexed() {
        return Outcome::PASS;
    }
    if timeout_ms == 0 {
        // SAFETY: the program's own call.
        return Outcome::of(until_answered(|| unsafe { frame.raw() }));
    }
    let deadline_ns = millisecond_deadline(timeout_ms);
    answer(poll_until(frame, deadline_ns, &TemporaryMask::NONE))
}

/// `ppoll(2)`.
pub extern "C" fn ppoll(frame: &Frame) -> Outcome {
    if !parks_with_mask(frame.arg(3)) {
        return Outcome::PASS;
    }
    answer(limit_of(frame.user(2)).and_then(|limit| {
        let mask = TemporaryMask::set(frame.user(3), frame.arg(4))?;
        let outcome = answer(poll_until(frame, limit.deadline_ns, &mask));
        Ok(limit.write_remaining(outcome))
    }))
}

/// The longest wait, as a call with a timespec names it.
struct Limit {
    at: User<Timespec>,
    deadline_ns: u64,
    is_zero: bool,
}

fn limit_of(at: User<Timespec>) -> Result<Limit, isize> {
    let mut limit = Limit {
        at,
        deadline_ns: NEVER,
        is_zero: false,
    };
    if !at.is_null() {
        let left_ns = at.read()?.to_ns().ok_or(err(errno::EINVAL))?;
        limit.is_zero = left_ns == 0;
        limit.deadline_ns = now_ns().saturating_add(left_ns).min(NEVER - 1);
    }
    Ok(limit)
}

impl Limit {
    /// Writes the time that was left, as the kernel does (libc's wrappers pass a copy), unless the
    /// limit was zero.
    fn write_remaining(&self, outcome: Outcome) -> Outcome {
        if !self.at.is_null() && !self.is_zero && !outcome.is_pass() {
            let left = Timespec::from_ns(self.deadline_ns.saturating_sub(now_ns()));
            let _ = self.at.write(&left); // as in the kernel, a read-only one stays as it is
        }
        outcome
    }
}

/// A call's outcome, or the errno that ended it early.
fn answer(outcome: Result<Outcome, isize>) -> Outcome {
    outcome.unwrap_or_else(Outcome::of)
}

/// Returns true if `poll` takes so many descriptors.
fn is_within_limit(count: usize) -> bool {
    const RLIMIT_NOFILE: usize = nr::RLIMIT_NOFILE as usize;
    let mut limits = [0u64; 2];
    // SAFETY: the kernel fills a live structure.
    unsafe { sys!(nr::__NR_getrlimit, RLIMIT_NOFILE, limits.as_mut_ptr()) };
    count as u64 <= limits[0]
}

fn poll_until(frame: &Frame, deadline_ns: u64, mask: &TemporaryMask) -> Result<Outcome, isize> {
    let (at, count) = (frame.user::<PollFd>(0), frame.word(1) as usize);
    if count == 0 {
        let outcome = sleep_as_poll(deadline_ns, mask);
        return if is_reachable(at.address(), 0) || kernel_accepts(at.address()) {
            Ok(outcome)
        } else {
            Err(err(errno::EFAULT)) // checked, though nothing is written
        };
    }
    if count > FEW && !is_within_limit(count) {
        return Err(err(errno::EINVAL));
    }
    let mut few = [PollFd::default(); FEW];
    let Some(mut waits) = Waits::beside(count, size_of::<PollFd>()) else {
        return Err(err(errno::ENOMEM));
    };
    let entries = if waits.room().is_null() {
        &mut few[..count]
    } else {
        // SAFETY: the room is zeroed memory for so many, which nothing else uses until the waits
        // are dropped, after the last use of this slice.
        unsafe { core::slice::from_raw_parts_mut(waits.room().cast(), count) }
    };
    at.read_all(entries)?;
    for poll in entries.iter().filter(|poll| poll.fd >= 0) {
        waits.push(poll.fd as u32, announced_by(poll.events as u16 as u32));
    }
    let asked = entries.as_mut_ptr();
    // SAFETY: live entries.
    let ask = || unsafe { sys!(nr::__NR_poll, asked, count, 0usize) };
    let tell = |events| {
        // SAFETY: there is one entry at least.
        (count == 1).then(|| unsafe { told(&mut *asked, events) })?
    };
    let outcome = wait_loop(&mut waits, WaitKind::POLL, deadline_ns, mask, ask, tell);
    match outcome.value() {
        Some(value) if value >= 0 || value == EINTR => {}
        _ => return Ok(outcome),
    }
    for (index, poll) in entries.iter().enumerate() {
        let revents = core::mem::offset_of!(PollFd, revents);
        let to = at.index(index).byte_add(revents).cast::<u16>();
        to.write(&(poll.revents as u16))?;
    }
    Ok(outcome)
}

/// Returns the events of epoll's that announce those that `poll` is asked for. The pump's epoll
/// doesn't ask for the classes of data (POLLRDNORM and others), which come with the plain events.
const fn announced_by(events: u32) -> u32 {
    const NORMAL_READ: u32 = 0x40;
    const BAND_READ: u32 = 0x80;
    const WRITE: u32 = 0x100 | 0x200; // normal and band
    const MESSAGE: u32 = 0x400;
    let mut announced = events & (IN | PRI | OUT | RDHUP);
    if events & (NORMAL_READ | BAND_READ | MESSAGE) != 0 {
        announced |= IN;
    }
    if events & BAND_READ != 0 {
        announced |= PRI;
    }
    if events & WRITE != 0 {
        announced |= OUT;
    }
    announced
}

/// Answers a question about one descriptor from the events that epoll has reported; `None` if epoll
/// doesn't report all that is asked for.
fn told(poll: &mut PollFd, events: u32) -> Option<isize> {
    let wanted = u32::from(poll.events as u16);
    let ready = events & (wanted | ALWAYS);
    if wanted & !(IN | PRI | OUT | RDHUP) != 0 || ready == 0 {
        return None;
    }
    poll.revents = ready as i16;
    Some(1)
}

fn sleep_as_poll(deadline_ns: u64, mask: &TemporaryMask) -> Outcome {
    if mask.lets_through() {
        return Outcome::of(EINTR);
    }
    while sleep_until(deadline_ns) {
        if mask.deliver() {
            return Outcome::of(EINTR);
        }
    }
    Outcome::of(0)
}

/// `epoll_wait(2)`, `epoll_pwait(2)`.
pub extern "C" fn epoll_wait(frame: &Frame) -> Outcome {
    let timeout_ms = frame.word(3) as i32;
    let mask_at = if frame.number() == nr::__NR_epoll_pwait {
        frame.arg(4)
    } else {
        0
    };
    if timeout_ms == 0 || !parks_with_mask(mask_at) {
        return Outcome::PASS;
    }
    let mask = TemporaryMask::set(User::at(mask_at), frame.arg(5));
    let deadline_ns = millisecond_deadline(timeout_ms);
    answer(mask.and_then(|mask| epoll_until(frame, deadline_ns, &mask)))
}

/// `epoll_pwait2(2)`.
pub extern "C" fn epoll_pwait2(frame: &Frame) -> Outcome {
    if !parks_with_mask(frame.arg(4)) {
        return Outcome::PASS;
    }
    answer(limit_of(frame.user(3)).and_then(|limit| {
        let mask = TemporaryMask::set(frame.user(4), frame.arg(5))?;
        epoll_until(frame, limit.deadline_ns, &mask)
    }))
}

fn epoll_until(frame: &Frame, deadline_ns: u64, mask: &TemporaryMask) -> Result<Outcome, isize> {
    let (epoll, events, max) = (frame.arg(0), frame.arg(1), frame.arg(2));
    let Some(mut waits) = Waits::new(1) else {
        return Err(err(errno::ENOMEM));
    };
    waits.push(epoll as u32, IN);
    // SAFETY: the program's own call, without waiting.
    let ask = || unsafe { sys!(nr::__NR_epoll_wait, epoll, events, max, 0usize) };
    Ok(wait_loop(
        &mut waits,
        WaitKind::EPOLL,
        deadline_ns,
        mask,
        ask,
        |_| None,
    ))
}
