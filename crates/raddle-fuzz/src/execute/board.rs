//! The knowledge that a case's threads share, and the names of values that differ from run to run.

use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicI64, AtomicU32, AtomicU64, AtomicUsize};

use super::prepare::{self, slot};
use super::{sites, starts, system};
use crate::case::{CHILDREN, LAST_THREAD, Value};

pub(super) const THREADS: usize = LAST_THREAD as usize + 1;

/// The knowledge that the threads of a case share. Written by the main thread, but for `done`,
/// `gone` and an agent's own ids and results.
pub(super) struct Board {
    /// The number of the post << 8 | the step's index; a futex.
    pub post: AtomicU32,
    /// Agents that have done the posted work; a futex.
    pub done: AtomicU32,
    /// When the step's own call began, 0 before that. Written by its agent, too.
    pub called_ns: AtomicU64,
    pub pid: AtomicI32,
    pub tids: [AtomicI32; THREADS],
    pub threads: [AtomicUsize; THREADS],
    pub stacks: [AtomicUsize; THREADS],
    pub gone: [AtomicBool; THREADS],
    pub results: [AtomicI64; 32],
    /// Ids of threads that the case itself has made, and how many there are.
    pub extra: [AtomicI32; 8],
    pub extras: AtomicUsize,
}

pub(super) static BOARD: Board = Board {
    post: AtomicU32::new(0),
    done: AtomicU32::new(0),
    called_ns: AtomicU64::new(0),
    pid: AtomicI32::new(0),
    tids: [const { AtomicI32::new(0) }; THREADS],
    threads: [const { AtomicUsize::new(0) }; THREADS],
    stacks: [const { AtomicUsize::new(0) }; THREADS],
    gone: [const { AtomicBool::new(false) }; THREADS],
    results: [const { AtomicI64::new(-1) }; 32],
    extra: [const { AtomicI32::new(0) }; 8],
    extras: AtomicUsize::new(0),
};

/// Notes the id of a thread that the case itself has made: the calling one.
pub(super) fn note_extra_thread() {
    let index = BOARD.extras.fetch_add(1, SeqCst);
    if let Some(word) = BOARD.extra.get(index) {
        word.store(system(libc::SYS_gettid, [0; 6]) as i32, SeqCst);
    }
}

/// Names of numbers that differ from run to run.
pub(super) struct Names;

pub(super) const fn names() -> Names {
    Names
}

impl Names {
    /// The name of a process or thread id.
    pub(super) fn of_id(&self, id: u32) -> Option<&'static str> {
        const THREAD_NAMES: [&str; THREADS] = ["pid", "tid:a1", "tid:a2", "tid:a3"];
        const CHILD_NAMES: [&str; CHILDREN as usize] = ["child:0", "child:1", "child:2", "child:3"];
        let id = id.cast_signed();
        if id == 0 {
            return None;
        }
        let is = |word: &AtomicI32| word.load(Relaxed) == id;
        if let Some(index) = slot().pids.iter().position(is) {
            return Some(CHILD_NAMES[index]);
        }
        if BOARD.extra.iter().any(is) {
            return Some("tid:x");
        }
        BOARD
            .tids
            .iter()
            .position(is)
            .map(|index| THREAD_NAMES[index])
    }

    pub(super) fn of_address(&self, address: u64) -> Option<&'static str> {
        if address == prepare::handler_address() as u64 {
            Some("handler")
        } else if address == sites::restorer() as u64 {
            Some("restorer")
        } else {
            None
        }
    }
}

/// The present number of a value.
pub(super) fn resolve(value: Value) -> u64 {
    let id = |word: &AtomicI32| i64::from(word.load(Relaxed)).cast_unsigned();
    match value {
        Value::Int(number) => number,
        Value::Place(place) => place.address(),
        // SAFETY: the pages for data and words are always there.
        Value::Load(place) => unsafe {
            i64::from(prepare::pointer(place).cast::<i32>().read_unaligned()).cast_unsigned()
        },
        // SAFETY: as above.
        Value::LoadLong(place) => unsafe { prepare::pointer(place).cast::<u64>().read_unaligned() },
        Value::Start(index) => starts::function(index) as u64,
        Value::Result(step) => BOARD.results[usize::from(step) % 32]
            .load(Relaxed)
            .cast_unsigned(),
        Value::Pid | Value::Parent => id(&BOARD.pid),
        Value::Tid(agent) => id(&BOARD.tids[usize::from(agent) % THREADS]),
        Value::Child(child) => match id(&slot().pids[usize::from(child)]) {
            0 => 0x7fff_fff0, // it was not made
            pid => pid,
        },
        Value::Stack(agent, offset) => {
            let page = BOARD.stacks[usize::from(agent) % THREADS].load(Relaxed);
            page.wrapping_add_signed(offset as isize) as u64
        }
        Value::Pthread(agent) => BOARD.threads[usize::from(agent) % THREADS].load(Relaxed) as u64,
        Value::Handler => prepare::handler_address() as u64,
        Value::Restorer => sites::restorer() as u64,
        Value::Queue => i64::from(slot().queue.load(Relaxed) - 1).cast_unsigned(),
        Value::Semaphores => i64::from(slot().semaphores.load(Relaxed) - 1).cast_unsigned(),
    }
}

const FUTEX_WAIT_PRIVATE: usize = 128;
const FUTEX_WAKE_PRIVATE: usize = 129;

pub(super) fn wait_while(word: &AtomicU32, value: u32) {
    let address = word.as_ptr().expose_provenance();
    system(
        libc::SYS_futex,
        [address, FUTEX_WAIT_PRIVATE, value as usize, 0, 0, 0],
    );
}

pub(super) fn wake(word: &AtomicU32) {
    let address = word.as_ptr().expose_provenance();
    system(
        libc::SYS_futex,
        [address, FUTEX_WAKE_PRIVATE, i32::MAX as usize, 0, 0, 0],
    );
}

/// Sleeps `ns`; handlers that run meanwhile don't shorten it.
pub(super) fn sleep(ns: i64) {
    let mut time = [ns / 1_000_000_000, ns % 1_000_000_000];
    let address = time.as_mut_ptr().expose_provenance();
    while system(libc::SYS_nanosleep, [address, address, 0, 0, 0, 0]) == -(libc::EINTR as isize) {}
}

pub(super) fn now_ns() -> u64 {
    let time = clock(libc::CLOCK_MONOTONIC);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

pub(super) fn clock(clock: i32) -> libc::timespec {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: room for a time.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    time
}
