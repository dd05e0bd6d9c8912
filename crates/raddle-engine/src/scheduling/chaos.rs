//! Chaos: rare schedules made common, for finding bugs (`RADDLE_CHAOS=SEED`).
//!
//! A race that needs one carrier to stop for a while between two instructions, or a thread to move
//! at one certain call, shows once in a million runs. With chaos on, carriers stop and threads move
//! at *injection points*, by chances drawn from a generator that each carrier has, seeded by the
//! variable and the carrier's id. The points ([`Point`]) do nothing that couldn't happen without
//! them: whatever breaks is a bug.
//!
//! Off, it costs nothing where it would matter. The hot paths don't ask: they look at a word that
//! they read anyway, which chaos keeps at the value that leads to a slow path.
//!
//! | hot path | the word | the slow path |
//! |---|---|---|
//! | end of a handled call | [`Carrier::attention`] | `signal::on_attention` |
//! | symbol layer | the engine's *started* | `symbols::green` |
//! | pick of the next thread | [`Carrier::picks`] | [`shuffle`] |
//!
//! The seed doesn't fix the schedule: the kernel decides which carrier runs when. The same seed
//! draws the same chances, so a failure comes back in some runs out of many.
//!
//! Rejected: a build option (what is tested is then not what is shipped), and points inside the
//! queues and locks of `raddle-sched` (the model checkers enumerate their interleavings).

use crate::scheduling::{preemption, switch, yields};
use crate::state::carrier::{self, Carrier};
use crate::state::process::PROCESS;
use crate::state::thread::Thread;
use core::sync::atomic::{AtomicU32, Ordering};
use raddle_sched::policy::{FAIR_EVERY, INJECTOR_EVERY};
use raddle_sys::abi::Timespec;
use raddle_sys::{nr, sys};

/// Where chaos comes in.
#[derive(Clone, Copy, Debug)]
pub enum Point {
    /// At the end of a handled call: the thread yields, moves, or its carrier stops.
    Call,
    /// At the entry of a function of the symbol layer: the same.
    Symbol,
    /// A carrier picks its next thread: one goes behind the others or to another carrier first.
    Pick,
    /// At a pick, too: the carrier stops, with the thread that it leaves still on its stack.
    Leave,
    /// A carrier has announced that it sleeps or polls, and hasn't looked again.
    Sleep,
    /// A carrier was chosen to be woken, and isn't yet.
    Wake,
    /// A signal was queued for a thread, and its carrier isn't poked yet.
    Poke,
    /// A thread has left its stack for good, and its joiner hasn't heard of it.
    Exit,
    /// A carrier is being made, and others fork or look.
    Make,
    /// Around a fork, in the parent and in the child.
    Fork,
    /// A helper has its request, or the answer.
    Helper,
    /// A try without blocking isn't made: as if it had said EAGAIN.
    Try,
    /// Sysmon preempts a thread although no thread waits.
    Preempt,
    /// Sysmon replaces a carrier that runs.
    HandOff,
}

impl Point {
    /// Chaos comes in once in so many times.
    const fn period(self) -> u32 {
        match self {
            Self::Call => 16,
            Self::Symbol => 32,
            Self::Pick => 13,
            Self::Leave => 197,
            Self::Sleep => 23,
            Self::Wake => 29,
            Self::Poke => 3,
            Self::Exit => 6,
            Self::Make => 2,
            Self::Fork => 4,
            Self::Helper => 10,
            Self::Try => 7,
            Self::Preempt => 17,
            Self::HandOff => 61,
        }
    }
}

/// The quantum under chaos, unless another is asked for.
pub const QUANTUM_NS: u64 = 100_000;

/// 0 for off. Written at start-up, with one thread.
static SEED: AtomicU32 = AtomicU32::new(0);
/// The generator of kernel threads that are no carriers.
static DICE: AtomicU32 = AtomicU32::new(0);

/// Switches chaos on for this process, with one thread; 0 leaves it off.
pub fn set_seed(seed: u32) {
    SEED.store(seed, Ordering::Relaxed);
    DICE.store(mix(seed), Ordering::Relaxed);
}

/// Returns true with a seed.
#[inline(always)]
pub fn is_on() -> bool {
    SEED.load(Ordering::Relaxed) != 0
}

/// What the generator of the carrier `id` begins with.
pub(crate) fn first_dice(id: u32) -> u32 {
    mix(SEED.load(Ordering::Relaxed) ^ id.wrapping_mul(0x9e37_79b9))
}

/// Murmur3's finalizer: neighbouring seeds give unlike generators.
const fn mix(seed: u32) -> u32 {
    let seed = (seed ^ seed >> 16).wrapping_mul(0x85eb_ca6b);
    let seed = (seed ^ seed >> 13).wrapping_mul(0xc2b2_ae35);
    seed ^ seed >> 16
}

fn draw() -> u32 {
    let carrier = Carrier::current_or_null();
    // SAFETY: non-null carriers live for ever, and this one runs here.
    match unsafe { carrier.as_ref() } {
        Some(carrier) => carrier.draw(),
        None => mix(DICE.fetch_add(0x9e37_79b9, Ordering::Relaxed)) >> 16,
    }
}

/// Returns true if chaos is to come in at `point` this time.
#[inline(always)]
pub fn strikes(point: Point) -> bool {
    is_on() && chance(point.period())
}

#[cold]
fn chance(one_in: u32) -> bool {
    draw().is_multiple_of(one_in)
}

/// Perhaps stops this kernel thread for a moment, in which others get far.
#[inline(always)]
pub fn stop(point: Point) {
    if strikes(point) {
        delay();
    }
}

#[cold]
fn delay() {
    let pause = Timespec::from_ns(u64::from(draw() % 128) * 1000);
    // SAFETY: no memory is involved, or a live timespec.
    unsafe {
        if draw().is_multiple_of(2) {
            sys!(nr::__NR_sched_yield);
        } else {
            sys!(nr::__NR_nanosleep, &raw const pause, 0usize);
        }
    }
}

/// At a safe point of the running thread: perhaps lets others run, moves to another carrier, or
/// stops. Shows itself at the end of the next call again.
#[cold]
pub fn at_safe_point(point: Point) {
    let carrier = Carrier::current();
    if !PROCESS.is_started() || carrier.raw.get() != 0 {
        return;
    }
    if strikes(point) && !carrier.is_bound() {
        match draw() % 4 {
            0 => yields::yield_now(),
            1 => switch::move_away(delay),
            2 => preemption::give_way(),
            _ => delay(),
        }
    }
    ask_again();
}

/// Has the running thread ask at the end of its next call.
pub fn ask_again() {
    let attention = &Carrier::current().attention;
    attention.fetch_or(carrier::ASKS, Ordering::Relaxed);
}

/// At a pick of `carrier`: the next picks ask here too; perhaps what would run next runs later, or
/// elsewhere.
#[cold]
pub(crate) fn shuffle(carrier: &Carrier) {
    // The counts just before the three kinds of look (see `Tick`).
    let before = [FAIR_EVERY - 1, INJECTOR_EVERY, INJECTOR_EVERY + 1];
    carrier
        .picks
        .set(before[carrier.draw() as usize % before.len()]);
    stop(Point::Leave);
    if !strikes(Point::Pick) {
        return;
    }
    let Some(task) = carrier
        .queue
        .take_lifo()
        .or_else(|| carrier.queue.pop_ring())
    else {
        return;
    };
    match carrier.draw() % 4 {
        0 => PROCESS.post(task),
        1 => carrier
            .engine()
            .ahead
            .push(task, Thread::of(task).due_ns(0)),
        _ => carrier.engine().push_ring(carrier, task),
    }
}
