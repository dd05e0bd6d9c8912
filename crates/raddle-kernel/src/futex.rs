//! Futexes in user space: private ones, and those that glibc makes shared without need.
//!
//! The waits themselves are in [`crate::words`]. Here signals are delivered, and calls begin anew
//! or end with EINTR.

pub mod pi;
pub mod vector;

use crate::clocks::deadlines::{absolute_deadline, relative_deadline};
use crate::frame::{Frame, Outcome};
use crate::signal;
use crate::user::{self, USUAL_END};
use crate::words::{ANY, is_word, owners, shared, wait, wake};
use raddle_engine::thread::WaitKind;
use raddle_engine::{PROCESS, events, yields};
use raddle_sched::TaskList;
use raddle_sched::timers::NEVER;
use raddle_sys::{err, errno, nr};

const FUTEX_WAIT: usize = nr::FUTEX_WAIT as usize;
const FUTEX_WAKE: usize = nr::FUTEX_WAKE as usize;
const FUTEX_REQUEUE: usize = nr::FUTEX_REQUEUE as usize;
const FUTEX_CMP_REQUEUE: usize = nr::FUTEX_CMP_REQUEUE as usize;
const FUTEX_WAKE_OP: usize = nr::FUTEX_WAKE_OP as usize;
const FUTEX_LOCK_PI: usize = nr::FUTEX_LOCK_PI as usize;
const FUTEX_UNLOCK_PI: usize = nr::FUTEX_UNLOCK_PI as usize;
const FUTEX_TRYLOCK_PI: usize = nr::FUTEX_TRYLOCK_PI as usize;
const FUTEX_WAIT_BITSET: usize = nr::FUTEX_WAIT_BITSET as usize;
const FUTEX_WAKE_BITSET: usize = nr::FUTEX_WAKE_BITSET as usize;
const FUTEX_WAIT_REQUEUE_PI: usize = nr::FUTEX_WAIT_REQUEUE_PI as usize;
const FUTEX_CMP_REQUEUE_PI: usize = nr::FUTEX_CMP_REQUEUE_PI as usize;
const FUTEX_LOCK_PI2: usize = nr::FUTEX_LOCK_PI2 as usize;
const PRIVATE: usize = 128;
const FUTEX_CLOCK_REALTIME: usize = nr::FUTEX_CLOCK_REALTIME as usize;

/// A wait as the program asked for it.
#[derive(Clone, Copy)]
struct Request {
    address: usize,
    expected: u32,
    bits: u32,
    deadline_ns: u64,
}

impl Request {
    /// The arguments of FUTEX_WAIT and FUTEX_WAIT_BITSET.
    fn of(frame: &Frame) -> Result<Self, isize> {
        let relative = operation(frame) == FUTEX_WAIT;
        let bits = if relative { ANY } else { frame.word(5) };
        let deadline_ns = if relative {
            relative_deadline(frame.user(3))?
        } else {
            absolute_deadline(frame.user(3), flags(frame) & FUTEX_CLOCK_REALTIME != 0)?
        };
        if bits == 0 {
            return Err(err(errno::EINVAL));
        }
        Ok(Self {
            address: frame.arg(0),
            expected: frame.word(2),
            bits,
            deadline_ns,
        })
    }

    /// Waits by `once` until it ends by anything but a signal that lets the call go on: a signal
    /// with an SA_RESTART handler, if there is no time limit, and a signal without a handler.
    fn wait(&self, once: impl Fn(&Self) -> isize) -> isize {
        loop {
            let result = once(self);
            if result != err(errno::EINTR) {
                return result;
            }
            if signal::deliver(self.deadline_ns == NEVER) {
                return result;
            }
        }
    }
}

/// The operation with its flags.
#[inline(always)]
fn flags(frame: &Frame) -> usize {
    frame.word(1) as usize
}

/// The operation without its flags.
fn operation(frame: &Frame) -> usize {
    flags(frame) & 0x7f
}

/// `futex(2)`.
///
/// The calls of locks and conditions without a time limit come first: private, for any bits.
pub extern "C" fn futex(frame: &Frame) -> Outcome {
    const PLAIN_WAIT: usize = FUTEX_WAIT | PRIVATE;
    const ANY_WAIT: usize = FUTEX_WAIT_BITSET | PRIVATE;
    const PLAIN_WAKE: usize = FUTEX_WAKE | PRIVATE;
    let address = frame.arg(0);
    let is_any = frame.word(5) == ANY;
    if address & 3 != 0 || address >= USUAL_END || !PROCESS.is_started() {
        return any_futex(frame);
    }
    match flags(frame) {
        ANY_WAIT if is_any && frame.arg(3) == 0 => Outcome::of(wait_for_ever(frame)),
        PLAIN_WAIT if frame.arg(3) == 0 => Outcome::of(wait_for_ever(frame)),
        PLAIN_WAKE => Outcome::of(wake_any(address, wake_count(frame.arg(2)))),
        _ => any_futex(frame),
    }
}

#[inline(never)]
fn any_futex(frame: &Frame) -> Outcome {
    let operation = operation(frame);
    let private = flags(frame) & PRIVATE != 0;
    let unknown = flags(frame) & !(0x7f | PRIVATE | FUTEX_CLOCK_REALTIME) != 0;
    let timed = matches!(
        operation,
        FUTEX_WAIT_BITSET | FUTEX_WAIT_REQUEUE_PI | FUTEX_LOCK_PI2
    );
    let started = PROCESS.is_started(); // else the kernel has the same id for the thread
    if started
        && operation == FUTEX_UNLOCK_PI
        && !is_word(frame.arg(0))
        && owners::owns(frame.arg(0))
    {
        return Outcome::of(err(errno::EINVAL)); // the kernel looks at the owner first
    }
    if !is_word(frame.arg(0)) || unknown || flags(frame) & FUTEX_CLOCK_REALTIME != 0 && !timed {
        return Outcome::PASS; // the kernel finds the right errno
    }
    if matches!(
        operation,
        FUTEX_LOCK_PI | FUTEX_UNLOCK_PI | FUTEX_TRYLOCK_PI | FUTEX_LOCK_PI2
    ) {
        return pi::lock_call(frame, operation, private);
    }
    if !PROCESS.is_started() {
        return Outcome::PASS;
    }
    match operation {
        FUTEX_WAIT | FUTEX_WAIT_BITSET if private => Outcome::of(wait_call(frame, WaitKind::FUTEX)),
        FUTEX_WAIT | FUTEX_WAIT_BITSET if shared::is_join(frame) => {
            Outcome::of(wait_call(frame, WaitKind::JOIN))
        }
        FUTEX_WAIT | FUTEX_WAIT_BITSET => Outcome::of(wait_shared(frame)),
        FUTEX_WAKE | FUTEX_WAKE_BITSET if private => Outcome::of(wake_call(frame, operation)),
        FUTEX_WAKE | FUTEX_WAKE_BITSET if shared::is_in_block(frame.arg(0)) => {
            Outcome::of(wake_shared_join(frame, operation))
        }
        FUTEX_WAKE | FUTEX_WAKE_BITSET if events::is_on() => Outcome::of(wake_shared(frame)),
        FUTEX_REQUEUE | FUTEX_CMP_REQUEUE if private => Outcome::of(requeue(frame, operation)),
        FUTEX_WAKE_OP if private => Outcome::of(wake_op(frame).unwrap_or_else(|errno| errno)),
        FUTEX_WAIT_REQUEUE_PI | FUTEX_CMP_REQUEUE_PI => pi::requeue_call(frame, operation, private),
        _ => Outcome::PASS, // the waiters of a shared word are in the kernel
    }
}

/// A private wait for any bits, without a time limit.
#[inline(always)]
fn wait_for_ever(frame: &Frame) -> isize {
    let (address, expected) = (frame.arg(0), frame.word(2));
    let result = wait(address, expected, ANY, NEVER, WaitKind::FUTEX);
    if result == err(errno::EINTR) {
        return wait_on(address, expected);
    }
    result
}

/// Goes on with a [`wait_for_ever`] that a signal has interrupted.
#[cold]
fn wait_on(address: usize, expected: u32) -> isize {
    if signal::deliver(true) {
        return err(errno::EINTR);
    }
    let request = Request {
        address,
        expected,
        bits: ANY,
        deadline_ns: NEVER,
    };
    request.wait(|r| {
        wait(
            r.address,
            r.expected,
            r.bits,
            r.deadline_ns,
            WaitKind::FUTEX,
        )
    })
}

#[inline(never)]
fn wait_call(frame: &Frame, kind: WaitKind) -> isize {
    match Request::of(frame) {
        Ok(request) => request.wait(|r| wait(r.address, r.expected, r.bits, r.deadline_ns, kind)),
        Err(errno) => errno,
    }
}

/// FUTEX_WAIT and FUTEX_WAIT_BITSET of a shared word.
fn wait_shared(frame: &Frame) -> isize {
    match Request::of(frame) {
        Ok(request) => request.wait(|r| shared::wait(r.address, r.expected, r.bits, r.deadline_ns)),
        Err(errno) => errno,
    }
}

/// Linux wakes one waiter when it is told to wake none or less.
fn wake_count(argument: usize) -> usize {
    (argument as u32 as i32).max(1) as usize
}

/// Which waiters FUTEX_WAKE and FUTEX_WAKE_BITSET mean.
fn wake_bits(frame: &Frame, operation: usize) -> u32 {
    match operation {
        FUTEX_WAKE => ANY,
        _ => frame.word(5),
    }
}

fn wake_call(frame: &Frame, operation: usize) -> isize {
    let bits = match wake_bits(frame, operation) {
        0 => return err(errno::EINVAL),
        bits => bits,
    };
    let address = frame.arg(0);
    let woken = wake(address, wake_count(frame.arg(2)), bits);
    if woken != 0 {
        perhaps_yield(address);
    }
    woken as isize
}

/// FUTEX_WAKE and FUTEX_WAKE_BITSET, shared, of a word that may be a join's.
#[cold]
fn wake_shared_join(frame: &Frame, operation: usize) -> isize {
    let bits = match wake_bits(frame, operation) {
        0 => return err(errno::EINVAL),
        bits => bits,
    };
    shared::wake_join(frame.arg(0), wake_count(frame.arg(2)), bits)
}

/// FUTEX_WAKE and FUTEX_WAKE_BITSET, shared, while events are recorded.
#[cold]
fn wake_shared(frame: &Frame) -> isize {
    let count = wake_count(frame.arg(2));
    // SAFETY: the program asked for it; the call changes no memory.
    events::wakes_shared(frame.arg(0), count, || unsafe { frame.raw() })
}

/// A private wake for any bits.
#[inline(always)]
fn wake_any(address: usize, count: usize) -> isize {
    let woken = wake(address, count, ANY);
    if woken != 0 {
        perhaps_yield(address);
    }
    woken as isize
}

/// A waker lets the woken thread run at once now and then. A word that is zero now is, as a rule, a
/// lock that was released. Another word may be a condition: its waker may still hold the lock that
/// the woken thread takes next, and the woken thread spins for that lock for microseconds. So such
/// yields are rare enough to cost less than a percent of the time. Quanta end longer runs.
#[inline(always)]
fn perhaps_yield(address: usize) {
    const LOCK: u32 = 16;
    const CONDITION: u32 = 4096;
    yields::perhaps_yield(LOCK, || match user::load(address) {
        Ok(0) => 1,
        _ => CONDITION / LOCK,
    });
}

fn requeue(frame: &Frame, operation: usize) -> isize {
    let expected = frame.word(5);
    let (max_wake, max_move) = (frame.word(2) as i32, frame.word(3) as i32);
    if max_wake < 0 || max_move < 0 || frame.arg(4) & 3 != 0 {
        return err(errno::EINVAL);
    }
    if !is_word(frame.arg(4)) {
        return err(errno::EFAULT);
    }
    let from = frame.arg(0);
    let check = || operation == FUTEX_REQUEUE || user::load(from) == Ok(expected);
    let woken = TaskList::new();
    let (max_wake, max_move) = (max_wake as usize, max_move as usize);
    let done = PROCESS
        .futexes
        .requeue(from, frame.arg(4), max_wake, max_move, check, &woken);
    PROCESS.unpark_all(woken);
    match done {
        Some(done) => (done.woken + done.moved) as isize,
        None => user::load(from).map_or_else(|errno| errno, |_| err(errno::EAGAIN)),
    }
}

/// `FUTEX_WAKE_OP`: an atomic operation on the second word decides whether its waiters wake too.
fn wake_op(frame: &Frame) -> Result<isize, isize> {
    let second = frame.arg(4);
    if second & 3 != 0 {
        return Err(err(errno::EINVAL));
    }
    let code = frame.word(5);
    let signed = |bits: u32| ((bits << 20) as i32) >> 20;
    let mut operand = signed(code >> 12 & 0xfff) as u32;
    if code >> 28 & 8 != 0 {
        operand = 1u32.wrapping_shl(operand & 31);
    }
    let apply = |old: u32| match code >> 28 & 7 {
        0 => Ok(operand),
        1 => Ok(old.wrapping_add(operand)),
        2 => Ok(old | operand),
        3 => Ok(old & !operand),
        4 => Ok(old ^ operand),
        _ => Err(err(errno::ENOSYS)),
    };
    let old = user::update(second, apply)?;
    let (old, against) = (old as i32, signed(code & 0xfff));
    let hit = match code >> 24 & 0xf {
        0 => old == against,
        1 => old != against,
        2 => old < against,
        3 => old <= against,
        4 => old > against,
        5 => old >= against,
        _ => return Err(err(errno::ENOSYS)),
    };
    let mut woken = wake(frame.arg(0), wake_count(frame.arg(2)), ANY);
    if hit {
        woken += wake(second, wake_count(frame.arg(3)), ANY);
    }
    Ok(woken as isize)
}
