//! Waiting for several descriptors: `poll`, `ppoll`, `select`, `pselect6`, `epoll_wait`.
//!
//! Each asks the kernel without waiting; if nothing is ready the thread waits in the pump for any
//! of the descriptors, with sequence numbers read before the question, and asks again. An epoll
//! descriptor of the program's is a descriptor like others to the pump's epoll.

use crate::boundary::{Frame, Outcome};
use crate::is_multiplexed;
use crate::signal::{self, Delivered};
use crate::time::{millisecond_deadline, relative_deadline, sleep_until};
use crate::user;
use crate::waiting::{EINTR, count_call};
use core::mem::MaybeUninit;
use core::sync::atomic::Ordering;
use raddle_engine::clock::now_ns;
use raddle_engine::pump::{FdWait, IN};
use raddle_engine::thread::WaitKind;
use raddle_engine::{Carrier, ENGINE};
use raddle_sched::Wake;
use raddle_sched::timers::NEVER;
use raddle_sys::abi::{PollFd, Timespec};
use raddle_sys::{err, errno, mem, nr, sys, syscall6};

/// ERR and HUP: always of interest.
const ALWAYS: u32 = 0x18;
/// Waits that fit on the stack.
const FEW: usize = 8;
/// For more descriptors the kernel says first whether it takes so many.
const MANY: usize = 1024;

/// A temporary array of waits: on the stack, or mapped if there are many.
struct Waits {
    few: [MaybeUninit<FdWait>; FEW],
    many: *mut FdWait,
    len: usize,
    capacity: usize,
}

impl Waits {
    fn new(capacity: usize) -> Option<Self> {
        let few = [const { MaybeUninit::uninit() }; FEW];
        let mut many = core::ptr::null_mut();
        if capacity > FEW {
            many = mem::map(capacity * size_of::<FdWait>()).ok()?.cast();
        }
        Some(Self {
            few,
            many,
            len: 0,
            capacity,
        })
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

    /// Reads every sequence number: before the kernel is asked.
    fn note_sequences(&mut self) {
        let base = self.base();
        for index in 0..self.len {
            // SAFETY: the first `len` were written.
            let wait = unsafe { &mut *base.add(index) };
            if let Some(entry) = ENGINE.pump.entry(wait.fd) {
                wait.sequence = entry.sequence();
            }
        }
    }

    /// The call succeeded: the next wait on these descriptors is a new one.
    fn progress(&mut self) {
        for wait in self.all() {
            if let Some(entry) = ENGINE.pump.entry(wait.fd) {
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
            unsafe { mem::unmap(self.many.cast(), self.capacity * size_of::<FdWait>()) };
        }
    }
}

/// A signal mask for the duration of a call (`ppoll`, `pselect6`, `epoll_pwait`).
struct TemporaryMask {
    old: Option<u64>,
}

/// Address and size of a mask that the program passes: none.
const NO_MASK: (usize, usize) = (0, 0);

impl TemporaryMask {
    fn set((address, size): (usize, usize)) -> Result<Self, isize> {
        if address == 0 {
            return Ok(Self { old: None });
        }
        if size != size_of::<u64>() {
            return Err(err(errno::EINVAL));
        }
        if !signal::is_virtual() {
            return Ok(Self { old: None });
        }
        let mask = user::read::<u64>(address)? & !signal::UNBLOCKABLE;
        let thread = Carrier::current().thread();
        let signals = &thread.signals;
        let old = signals.mask.swap(mask, Ordering::SeqCst);
        signal::kept::release(!mask);
        signal::routing::pass_on(thread, mask);
        signals.suspended_mask.set(Some(old));
        Ok(Self { old: Some(old) })
    }

    /// Delivers what the temporary mask lets through.
    fn deliver(&self) -> Delivered {
        if let Some(old) = self.old {
            Carrier::current()
                .thread()
                .signals
                .suspended_mask
                .set(Some(old));
        }
        signal::deliver()
    }
}

impl Drop for TemporaryMask {
    fn drop(&mut self) {
        if let Some(old) = self.old {
            let thread = Carrier::current().thread();
            let signals = &thread.signals;
            if signals.suspended_mask.take().is_some() {
                signals.mask.store(old, Ordering::SeqCst);
                signal::routing::pass_on(thread, old);
            }
            if signals.deliverable() != 0 {
                Carrier::current().attention.store(1, Ordering::Relaxed);
            }
        }
    }
}

/// Repeats a question that doesn't wait until it is answered.
///
/// Linux answers EINTR to `poll` and `select`, whatever the timeout, if nothing is ready and a
/// signal is on its way to this kernel thread. That may be one of the runtime's own, or another
/// thread's; one that this thread takes interrupts its wait, or is handled at the end of the call.
fn until_answered(mut ask: impl FnMut() -> isize) -> isize {
    loop {
        let answer = ask();
        if answer != EINTR {
            return answer;
        }
    }
}

/// What `poll` says of one descriptor now: 0 if none of `events` is ready.
pub(crate) fn ask_about(fd: usize, events: i16) -> isize {
    state_of(fd, events) as isize
}

/// The events that `poll` tells of one descriptor now.
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

/// Asks, waits, asks again. `ask` returns the kernel's answer without waiting.
fn wait_loop(
    waits: &mut Waits,
    kind: WaitKind,
    deadline_ns: u64,
    mask: &TemporaryMask,
    mut ask: impl FnMut() -> isize,
) -> Outcome {
    loop {
        waits.note_sequences();
        let ready = until_answered(&mut ask);
        if ready != 0 {
            count_call();
            waits.progress();
            return Outcome::of(ready);
        }
        if mask.old.is_some() && mask.deliver() != Delivered::Nothing {
            return Outcome::of(EINTR);
        }
        if deadline_ns != NEVER && now_ns() >= deadline_ns {
            return Outcome::of(0);
        }
        let thread = Carrier::current().thread();
        let arg = match kind {
            WaitKind::Epoll => waits.all().first().map_or(0, |wait| wait.fd as usize),
            _ => waits.len,
        };
        thread.waits_for(
            kind,
            arg,
            if deadline_ns == NEVER { 0 } else { deadline_ns },
        );
        match ENGINE.pump.wait_any(waits.all(), deadline_ns) {
            Ok(Wake::Signalled) if mask.deliver() != Delivered::Nothing => {
                return Outcome::of(EINTR);
            }
            Ok(Wake::TimedOut) => return Outcome::of(until_answered(ask)),
            Ok(_) => {}
            Err(_) => return Outcome::PASS,
        }
    }
}

/// `poll(2)`.
pub extern "C" fn poll(frame: &Frame) -> Outcome {
    let timeout_ms = frame.rdx as i32;
    if !is_multiplexed() {
        return Outcome::PASS;
    }
    if timeout_ms == 0 {
        // SAFETY: the program's own call.
        return Outcome::of(until_answered(|| unsafe { frame.raw() }));
    }
    answer(poll_until(frame, millisecond_deadline(timeout_ms), NO_MASK))
}

/// `ppoll(2)`.
pub extern "C" fn ppoll(frame: &Frame) -> Outcome {
    if !is_multiplexed() {
        return Outcome::PASS;
    }
    match relative_deadline(frame.arg(2)) {
        Ok(deadline_ns) => {
            let mask = (frame.arg(3), frame.arg(4));
            let outcome = answer(poll_until(frame, deadline_ns, mask));
            write_remaining(frame.arg(2), deadline_ns, outcome)
        }
        Err(errno) => Outcome::of(errno),
    }
}

/// The kernel tells what was left of a timespec (libc's wrappers pass a copy).
fn write_remaining(timeout: usize, deadline_ns: u64, outcome: Outcome) -> Outcome {
    if timeout != 0 && !outcome.is_pass() {
        let left = Timespec::from_ns(deadline_ns.saturating_sub(now_ns()));
        let _ = user::write(timeout, &left); // as in the kernel, a read-only one stays as it is
    }
    outcome
}

/// A call's outcome, or the errno that ended it early.
fn answer(outcome: Result<Outcome, isize>) -> Outcome {
    outcome.unwrap_or_else(Outcome::of)
}

fn poll_until(frame: &Frame, deadline_ns: u64, mask: (usize, usize)) -> Result<Outcome, isize> {
    let (fds, count) = (frame.arg(0), frame.rsi as u32 as usize);
    let mask = TemporaryMask::set(mask)?;
    if count == 0 {
        return Ok(sleep_as_poll(deadline_ns, &mask));
    }
    if count > MANY {
        // SAFETY: the program's array.
        let answer = unsafe { sys!(nr::__NR_poll, fds, count, 0usize) };
        if answer != 0 {
            return Ok(Outcome::of(answer)); // more than the process may have descriptors
        }
    }
    let Some(mut waits) = Waits::new(count) else {
        return Err(err(errno::ENOMEM));
    };
    for index in 0..count {
        let poll = user::read::<PollFd>(fds.wrapping_add(index * size_of::<PollFd>()))?;
        if poll.fd >= 0 {
            waits.push(poll.fd as u32, poll.events as u16 as u32);
        }
    }
    // SAFETY: the program's array.
    let ask = || unsafe { sys!(nr::__NR_poll, fds, count, 0usize) };
    Ok(wait_loop(
        &mut waits,
        WaitKind::Poll,
        deadline_ns,
        &mask,
        ask,
    ))
}

fn sleep_as_poll(deadline_ns: u64, mask: &TemporaryMask) -> Outcome {
    if mask.old.is_some() && mask.deliver() != Delivered::Nothing {
        return Outcome::of(EINTR);
    }
    while sleep_until(deadline_ns) {
        if mask.deliver() != Delivered::Nothing {
            return Outcome::of(EINTR);
        }
    }
    Outcome::of(0)
}

/// Words of a descriptor set that fit on the stack: 1024 descriptors.
const SET_WORDS: usize = 16;

/// `select(2)`: the timeout is a timeval, updated to what is left.
pub extern "C" fn select(frame: &Frame) -> Outcome {
    if !is_multiplexed() {
        return Outcome::PASS;
    }
    let timeout = frame.arg(4);
    let mut deadline_ns = NEVER;
    if timeout != 0 {
        let [sec, usec] = match user::read::<[u64; 2]>(timeout) {
            Ok(parts) => parts.map(|part| part as i64),
            Err(errno) => return Outcome::of(errno),
        };
        if sec < 0 || usec < 0 {
            return Outcome::of(err(errno::EINVAL));
        }
        let left = (sec as u64)
            .saturating_mul(1_000_000_000)
            .saturating_add(usec as u64 * 1000);
        if left == 0 {
            // SAFETY: the program's own call.
            return Outcome::of(until_answered(|| unsafe { frame.raw() }));
        }
        deadline_ns = now_ns().saturating_add(left).min(NEVER - 1);
    }
    let outcome = answer(select_until(frame, deadline_ns, NO_MASK));
    if timeout != 0 && !outcome.is_pass() {
        let left = deadline_ns.saturating_sub(now_ns());
        let left = [left / 1_000_000_000, left % 1_000_000_000 / 1000];
        let _ = user::write(timeout, &left);
    }
    outcome
}

/// `pselect6(2)`: its sixth argument points at the mask's address and size.
pub extern "C" fn pselect6(frame: &Frame) -> Outcome {
    if !is_multiplexed() {
        return Outcome::PASS;
    }
    let mask = match frame.arg(5) {
        0 => NO_MASK,
        at => match user::read::<[u64; 2]>(at) {
            Ok([address, size]) => (address as usize, size as usize),
            Err(errno) => return Outcome::of(errno),
        },
    };
    match relative_deadline(frame.arg(4)) {
        Ok(deadline_ns) => {
            let outcome = answer(select_until(frame, deadline_ns, mask));
            write_remaining(frame.arg(4), deadline_ns, outcome)
        }
        Err(errno) => Outcome::of(errno),
    }
}

fn select_until(frame: &Frame, deadline_ns: u64, mask: (usize, usize)) -> Result<Outcome, isize> {
    let count = frame.rdi as i32;
    if count < 0 {
        return Err(err(errno::EINVAL));
    }
    let words = (count as usize).div_ceil(64);
    if words > SET_WORDS {
        return Ok(crate::helped::on_helper(frame));
    }
    let mask = TemporaryMask::set(mask)?;
    let sets = [frame.arg(1), frame.arg(2), frame.arg(3)];
    if count == 0 || sets == [0; 3] {
        return Ok(sleep_as_poll(deadline_ns, &mask));
    }
    let mut wanted = [[0u64; SET_WORDS]; 3];
    let mut total = 0;
    for (set, wanted) in sets.iter().zip(&mut wanted) {
        for (index, word) in wanted.iter_mut().enumerate().take(words) {
            if *set != 0 {
                *word = user::read(set.wrapping_add(index * 8))?;
                total += word.count_ones() as usize;
            }
        }
    }
    let Some(mut waits) = Waits::new(total) else {
        return Err(err(errno::ENOMEM));
    };
    for (set, events) in wanted.iter().zip([1u32, 4, 2]) {
        for fd in (0..count as u32).filter(|fd| set[*fd as usize / 64] >> (fd % 64) & 1 != 0) {
            waits.push(fd, events);
        }
    }
    let write_wanted = || {
        for (set, wanted) in sets.iter().zip(&wanted) {
            for (index, word) in wanted.iter().enumerate().take(words) {
                if *set != 0 {
                    user::write(set.wrapping_add(index * 8), word)?;
                }
            }
        }
        Ok(())
    };
    let ask = || {
        if let Err(errno) = write_wanted() {
            return errno;
        }
        let now = [0u64; 2];
        // SAFETY: the program's sets and a live timeout.
        unsafe {
            let (r, w, e) = (sets[0], sets[1], sets[2]);
            syscall6(
                nr::__NR_pselect6,
                [
                    count as usize,
                    r,
                    w,
                    e,
                    (&raw const now).expose_provenance(),
                    0,
                ],
            )
        }
    };
    let outcome = wait_loop(&mut waits, WaitKind::Poll, deadline_ns, &mask, ask);
    if outcome.is_value(EINTR) || outcome.is_pass() {
        write_wanted()?; // the last question has cleared them, and they are asked about again
    }
    Ok(outcome)
}

/// `epoll_wait(2)`, `epoll_pwait(2)`.
pub extern "C" fn epoll_wait(frame: &Frame) -> Outcome {
    let timeout_ms = frame.r10 as i32;
    if !is_multiplexed() || timeout_ms == 0 {
        return Outcome::PASS;
    }
    let with_mask = frame.rax == u64::from(nr::__NR_epoll_pwait);
    let mask = match with_mask {
        true => (frame.arg(4), frame.arg(5)),
        false => NO_MASK,
    };
    answer(epoll_until(frame, millisecond_deadline(timeout_ms), mask))
}

/// `epoll_pwait2(2)`.
pub extern "C" fn epoll_pwait2(frame: &Frame) -> Outcome {
    if !is_multiplexed() {
        return Outcome::PASS;
    }
    match relative_deadline(frame.arg(3)) {
        Ok(deadline_ns) => {
            let mask = (frame.arg(4), frame.arg(5));
            answer(epoll_until(frame, deadline_ns, mask))
        }
        Err(errno) => Outcome::of(errno),
    }
}

fn epoll_until(frame: &Frame, deadline_ns: u64, mask: (usize, usize)) -> Result<Outcome, isize> {
    let (epoll, events, max) = (frame.arg(0), frame.arg(1), frame.arg(2));
    let mask = TemporaryMask::set(mask)?;
    let Some(mut waits) = Waits::new(1) else {
        return Err(err(errno::ENOMEM));
    };
    waits.push(epoll as u32, IN);
    // SAFETY: the program's own call, without waiting.
    let ask = || unsafe { sys!(nr::__NR_epoll_wait, epoll, events, max, 0usize) };
    Ok(wait_loop(
        &mut waits,
        WaitKind::Epoll,
        deadline_ns,
        &mask,
        ask,
    ))
}
