//! The wait inside a call on a descriptor: try without blocking, wait in the pump, try again.
//!
//! Nouns: a *try* is the call in a form that doesn't block, and returns EAGAIN where the call would
//! wait; a *wait* is the whole wait of one call, in one or many parks.
//!
//! 1. A try with another result than EAGAIN ends the call.
//! 2. Before the first park the kernel is asked for the descriptor's mode: in non-blocking mode the
//!    call ends.
//! 3. The wait gets its deadline from the socket's time limit ([`raddle_engine::pump`]), once.
//! 4. The thread parks until an event, the deadline or a signal, and tries again.
//!
//! Some calls would not wait although a try returns EAGAIN. Others wait for an event that the pump
//! doesn't know. The kernel makes both kinds, on a helper thread ([`Outcome::KERNEL`]).
//!
//! After a handler with SA_RESTART a call goes on, with two exceptions that end in Linux, too: a
//! call that has moved a part of its data, and a call on a socket with a time limit.

use crate::fd::descriptors::{TerminalRead, is_nonblocking, is_unix, take_error, terminal_read};
use crate::fd::poll::{ask_about, state_of};
use crate::frame::Outcome;
use crate::signal;
use core::sync::atomic::Ordering;
use raddle_arch::timestamp;
use raddle_engine::chaos::{self, Point};
use raddle_engine::clock::now_ns;
use raddle_engine::pump::{Entry, IN, Kind, Limit, OUT, RDHUP};
use raddle_engine::thread::WaitKind;
use raddle_engine::{Carrier, PROCESS, switch, yields};
use raddle_sched::Wake;
use raddle_sched::timers::NEVER;
use raddle_sys::{err, errno};

pub(crate) const EAGAIN: isize = err(errno::EAGAIN);
pub(crate) const EINTR: isize = err(errno::EINTR);
const EBADF: isize = err(errno::EBADF);

/// The number of emulated calls in a row after which the time is read.
const CALLS_BEFORE_LOOK: u32 = 8;
/// How long a thread makes calls in a row before others run. A server's thread serves one client
/// for so long as that client answers at once; other clients wait for the turns of all such
/// threads.
const TURN_NS: u64 = 100_000;

/// The direction of the data.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Way {
    In,
    Out,
}

impl Way {
    const fn events(self) -> u32 {
        match self {
            Way::In => IN | RDHUP,
            Way::Out => OUT,
        }
    }

    /// Returns the events that `poll(2)` is asked for.
    const fn polled(self) -> i16 {
        match self {
            Way::In => IN as i16,
            Way::Out => OUT as i16,
        }
    }

    pub(crate) const fn kind(self) -> WaitKind {
        match self {
            Way::In => WaitKind::FD_READ,
            Way::Out => WaitKind::FD_WRITE,
        }
    }
}

/// In [`Carrier::calls`]: the thread has written to a socket or pipe since the carrier's last
/// switch.
const HAS_WRITTEN: u32 = 1 << 31;
/// Time stamp ticks for which a thread answers clients in a row while others wait (some 40 us).
const BURST_TICKS: u64 = 100_000;
/// Time stamp ticks between two looks at descriptors by threads that answer clients (some 100 us).
const LOOK_TICKS: u64 = 250_000;
/// The same while looks find nothing, because no other client asks: doubled each time up to this.
const VAIN_LOOK_TICKS: u64 = 4 * LOOK_TICKS;

/// Counts a call, and lets others run after a turn of calls: a program with calls that never block
/// can't keep the carrier for ever.
#[inline(always)]
pub fn count_call() {
    let carrier = Carrier::current();
    let calls = carrier.calls.get() + 1;
    carrier.calls.set(calls);
    if calls & !HAS_WRITTEN >= CALLS_BEFORE_LOOK {
        look_at_time(carrier);
    }
}

/// As [`count_call`], for a call that has written.
#[inline(always)]
pub(crate) fn count_write() {
    let carrier = Carrier::current();
    carrier.calls.set(carrier.calls.get() | HAS_WRITTEN);
    count_call();
}

/// Gives queued threads a turn, at the beginning of a call that reads, if the thread has written in
/// this turn. A thread that answers a client and reads the next request serves that client alone
/// while the client is quick, because the kernel runs the client in the middle of the write.
#[inline(always)]
pub(crate) fn begin_read() {
    let carrier = Carrier::current();
    if carrier.calls.get() & HAS_WRITTEN != 0 {
        after_answer(carrier);
    }
}

/// Returns true if the kernel makes a call that reads as it is: the descriptor was in non-blocking
/// mode some calls ago, so that the call most likely doesn't wait. In blocking mode it may hold the
/// carrier, as any call does that the runtime doesn't know to wait.
#[inline(always)]
pub(crate) fn is_read_by_kernel(entry: &Entry, kind: Kind) -> bool {
    let is_known = matches!(
        kind,
        Kind::Stream | Kind::Datagram | Kind::Pipe | Kind::Counter
    );
    if !is_known || !entry.was_nonblocking() {
        return false;
    }
    if kind == Kind::Stream {
        begin_read();
    }
    count_call();
    entry.progress();
    true
}

#[inline(never)]
fn after_answer(carrier: &Carrier) {
    carrier.calls.set(carrier.calls.get() & !HAS_WRITTEN);
    let now = timestamp();
    let switches = carrier.switches.load(Ordering::Relaxed);
    let (seen, since) = carrier.answers_seen.get();
    if seen != switches {
        carrier.answers_seen.set((switches, now));
        return;
    }
    if now.wrapping_sub(since) < BURST_TICKS {
        return;
    }
    carrier.answers_seen.set((switches, now));
    let (looked, gap) = carrier.answers_looked.get();
    let since = now.wrapping_sub(looked);
    if since >= gap || since >= LOOK_TICKS && PROCESS.timers.earliest_ns() <= now_ns() {
        take_turns(carrier, |has_found| {
            let next = if has_found {
                LOOK_TICKS
            } else {
                (2 * gap).clamp(LOOK_TICKS, VAIN_LOOK_TICKS)
            };
            carrier.answers_looked.set((now, next));
        });
        return;
    }
    // A bound thread goes on, as in `take_turns`.
    if !carrier.is_bound() && (!carrier.queue.is_empty() || carrier.engine().has_posted()) {
        yields::yield_now();
    }
}

#[cold]
fn look_at_time(carrier: &Carrier) {
    carrier.calls.set(carrier.calls.get() & HAS_WRITTEN);
    let switches = carrier.switches.load(Ordering::Relaxed);
    let now_ns = now_ns();
    let (seen, since_ns) = carrier.calls_seen.get();
    if seen != switches {
        carrier.calls_seen.set((switches, now_ns));
    } else if now_ns.saturating_sub(since_ns) >= TURN_NS {
        carrier.calls_seen.set((switches, now_ns));
        take_turns(carrier, |_| ());
    }
}

/// Lets others run. `looked` is told whether a look at timers and descriptors has found any.
#[cold]
fn take_turns(carrier: &Carrier, looked: impl FnOnce(bool)) {
    if carrier.attention.load(Ordering::Relaxed) != 0 {
        signal::route(); // a signal that the call raised is for its caller
    }
    if carrier.is_bound() {
        return; // its CPU is the kernel's to share
    }
    switch::look_around(carrier);
    looked(!carrier.queue.is_empty() || carrier.engine().has_posted());
    yields::yield_now();
}

/// The next step after a fruitless try.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    Again,
    /// End the call with this result.
    Done(isize),
    /// Let the kernel make the call, which blocks or fails there.
    Kernel,
}

/// The wait of one call.
pub(crate) struct Wait {
    way: Way,
    /// The deadline; 0 before the first park, [`NEVER`] for none.
    deadline_ns: u64,
    /// The time stamp at the first park, if the wait has no deadline.
    began: u64,
    /// A part of the data has been moved.
    has_part: bool,
    /// A part has been moved since the last park.
    has_moved: bool,
}

impl Wait {
    #[inline(always)]
    pub(crate) const fn new(way: Way) -> Self {
        Self {
            way,
            deadline_ns: 0,
            began: 0,
            has_part: false,
            has_moved: false,
        }
    }

    /// Returns true once the call has parked, or was about to, so that its descriptor is known to
    /// be in blocking mode.
    #[inline(always)]
    pub(crate) const fn has_begun(&self) -> bool {
        self.deadline_ns != 0
    }

    /// Returns true once a part of the call's data has been moved.
    pub(crate) const fn has_part(&self) -> bool {
        self.has_part
    }

    /// Returns true if a part has been moved since the last park.
    pub(crate) const fn has_moved(&self) -> bool {
        self.has_moved
    }

    /// Notes that a part of the call's data has been moved.
    #[inline(always)]
    pub(crate) const fn moved_part(&mut self) {
        self.has_part = true;
        self.has_moved = true;
    }

    /// Waits until `fd` may be ready; `sequence` was read before the try.
    #[inline(never)]
    pub(crate) fn until_event(&mut self, fd: usize, entry: &Entry, sequence: u32) -> Next {
        let pump = &PROCESS.pump;
        let way = self.way as usize;
        if self.deadline_ns == 0 {
            if is_nonblocking(fd) {
                entry.set_nonblocking(true);
                return Next::Done(EAGAIN);
            }
            self.deadline_ns = NEVER;
            if !pump.is_unlimited(entry, way) && !self.set_deadline(fd, entry, 0) {
                return Next::Kernel;
            }
            self.began = timestamp();
        } else if self.deadline_ns == NEVER {
            if pump.has_found_limit(entry, way)
                && !self.set_deadline(fd, entry, pump.elapsed_ns(self.began))
            {
                return Next::Kernel;
            }
        } else if self.has_moved && is_unix(fd) && !self.set_deadline(fd, entry, 0) {
            return Next::Kernel; // each piece that a Unix socket takes has the whole limit
        }
        self.has_moved = false;
        if entry.kind() == Kind::Datagram && self.is_for_kernel(fd, entry) {
            return Next::Kernel;
        }
        self.park(fd, entry, sequence)
    }

    /// Sets the deadline by the socket's time limit, minus `elapsed_ns`. Returns false if the
    /// kernel must decide whether the call waits.
    #[cold]
    fn set_deadline(&mut self, fd: usize, entry: &Entry, elapsed_ns: u64) -> bool {
        self.deadline_ns = match PROCESS.pump.ask_limit(entry, fd, self.way as usize) {
            Limit::None => NEVER,
            Limit::Lasts(limit_ns) => now_ns()
                .saturating_add(limit_ns)
                .saturating_sub(elapsed_ns)
                .min(NEVER - 1),
            Limit::Unclear => return false,
        };
        true
    }

    /// Returns true if a datagram socket is ready although the try returned EAGAIN. A try that
    /// reads returns EAGAIN on a socket that was shut down, where the call itself returns 0. A try
    /// that writes returns EAGAIN if the receiver's queue is full, which the readiness of an
    /// unconnected sender doesn't show.
    fn is_for_kernel(&self, fd: usize, entry: &Entry) -> bool {
        (self.way == Way::Out || entry.has_ended()) && ask_about(fd, self.way.polled()) != 0
    }

    #[inline(always)]
    fn park(&mut self, fd: usize, entry: &Entry, sequence: u32) -> Next {
        let thread = Carrier::current().thread();
        let is_limited = self.deadline_ns != NEVER;
        let shown_ns = if is_limited { self.deadline_ns } else { 0 };
        thread.waits_for(self.way.kind(), fd, shown_ns);
        let events = self.way.events();
        let woken = PROCESS
            .pump
            .wait_one(fd as u32, events, sequence, self.deadline_ns);
        match woken {
            Ok(Wake::Woken | Wake::Retry) if thread.has_closed_file() => Next::Done(EBADF),
            Ok(Wake::Woken | Wake::Retry) if self.way == Way::Out && entry.has_ended() => {
                after_end(fd)
            }
            Ok(Wake::Woken | Wake::Retry) => Next::Again,
            Ok(Wake::TimedOut) => {
                entry.progress();
                Next::Done(EAGAIN)
            }
            Ok(Wake::Signalled) => {
                entry.progress();
                if signal::deliver(!is_limited && !self.has_part) {
                    Next::Done(EINTR)
                } else {
                    Next::Again
                }
            }
            Err(_) => Next::Kernel,
        }
    }
}

/// Returns the next step after a wait to write that the end of the other side has ended. A Unix
/// socket returns its error to a call that waits for room; a call that begins afterwards finds the
/// socket shut down, which raises SIGPIPE. Other sockets return the error to both calls.
#[cold]
fn after_end(fd: usize) -> Next {
    if is_unix(fd) {
        match take_error(fd) {
            0 => Next::Again,
            errno => Next::Done(-errno),
        }
    } else {
        Next::Again
    }
}

/// Returns true if chaos has the call wait without a try; the pump reports the present state. Not
/// for a terminal in the background, where the try itself has an effect: it stops the process.
#[cold]
fn skips_try(fd: usize, entry: &Entry, way: Way) -> bool {
    PROCESS.pump.rearm(fd as u32);
    let is_told = entry.kind() != Kind::Terminal && ask_about(fd, way.polled()) != 0;
    is_told && !is_nonblocking(fd)
}

/// Repeats `attempt` until it returns something else than EAGAIN, and waits in between.
#[inline(always)]
pub(crate) fn until_ready(
    fd: usize,
    entry: &Entry,
    way: Way,
    mut attempt: impl FnMut(u32) -> isize,
) -> Outcome {
    let mut wait = Wait::new(way);
    repeat(fd, entry, &mut wait, |sequence, _| attempt(sequence))
}

/// As [`until_ready`], for calls that go on after a part of their data, or that look at the wait.
#[inline(always)]
pub(crate) fn repeat(
    fd: usize,
    entry: &Entry,
    wait: &mut Wait,
    mut attempt: impl FnMut(u32, &mut Wait) -> isize,
) -> Outcome {
    loop {
        let sequence = entry.sequence();
        let result = if chaos::strikes(Point::Try) && skips_try(fd, entry, wait.way) {
            EAGAIN
        } else {
            attempt(sequence, wait)
        };
        if result != EAGAIN {
            match wait.way {
                Way::In => count_call(),
                Way::Out => count_write(),
            }
            entry.progress();
            return Outcome::of(result);
        }
        match wait.until_event(fd, entry, sequence) {
            Next::Again => {}
            Next::Done(result) => return Outcome::of(result),
            Next::Kernel => return Outcome::KERNEL,
        }
    }
}

/// Polls, then lets the kernel make the call: for calls that have no non-blocking form, and that
/// wait exactly when poll doesn't report readiness.
pub(crate) fn when_ready(fd: usize, entry: &Entry, way: Way) -> Outcome {
    const READY: isize = 1;
    const BY_HELPER: isize = 2;
    const HUNG_UP: i16 = 8 | 0x10; // POLLERR and POLLHUP
    let is_terminal = way == Way::In && entry.kind() == Kind::Terminal;
    let mut has_waited = false;
    let ready = until_ready(fd, entry, way, |_| match state_of(fd, way.polled()) {
        0 if is_nonblocking(fd) => READY,
        0 if is_terminal => match terminal_read(fd) {
            TerminalRead::Waits => {
                has_waited = true;
                EAGAIN
            }
            TerminalRead::WaitsBySettings => BY_HELPER,
            TerminalRead::AtOnce => READY,
        },
        0 => EAGAIN,
        // A read that waits when the other side closes fails; later ones find the end.
        state if has_waited && state & HUNG_UP == HUNG_UP => err(errno::EIO),
        _ => READY,
    });
    match ready.value() {
        Some(READY) => Outcome::PASS,
        Some(BY_HELPER) => Outcome::KERNEL,
        _ => ready,
    }
}

/// A call that poll describes incompletely: made directly if poll reports readiness, else by a
/// helper.
pub(crate) fn perhaps_on_helper(fd: usize, way: Way) -> Outcome {
    if ask_about(fd, way.polled()) != 0 || is_nonblocking(fd) {
        Outcome::PASS
    } else {
        Outcome::KERNEL
    }
}

/// The outcome of a call, or its part if it ended after one.
pub(crate) fn part_or(done: usize, outcome: Outcome) -> Outcome {
    if done > 0 {
        Outcome::of(done as isize)
    } else {
        outcome
    }
}
