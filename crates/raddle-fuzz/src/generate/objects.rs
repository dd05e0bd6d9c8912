//! Objects that several threads use: futex words, locks, condition variables, semaphores.
//!
//! Each stands at a fixed place of the page for words; executors initialize them by libc's
//! functions.

use super::Maker;
use crate::calls;
use crate::case::{Page, Place, STARTS, Value};

/// Mutexes by kind, 64 bytes each: normal, recursive, checked, adaptive, with priority
/// inheritance, shared, robust.
pub const MUTEXES: [i32; 7] = [0, 0x40, 0x80, 0xc0, 0x100, 0x140, 0x180];
/// Condition variables: of the realtime clock, of the monotonic clock, shared.
pub const CONDITIONS: [i32; 3] = [0x200, 0x240, 0x280];
/// Words of futexes.
const FUTEXES: [i32; 4] = [0x400, 0x404, 0x408, 0x440];
/// Semaphores: empty, of one, shared and empty.
pub const SEMAPHORES: [i32; 3] = [0x500, 0x540, 0x580];
pub const RWLOCKS: [i32; 2] = [0x600, 0x640];
/// A barrier for two threads.
pub const BARRIER: i32 = 0x700;
pub const SPIN_LOCK: i32 = 0x780;

/// Where objects of libc's are, in the page for words.
pub const INSIDES: [std::ops::Range<usize>; 2] = [0..0x400, 0x500..0x800];

fn one(maker: &mut Maker, offsets: &[i32]) -> Value {
    // Two agents meet at an object only if there are few.
    let index = if maker.random.chance(60) {
        0
    } else {
        maker.random.below(offsets.len() as u64) as usize
    };
    Value::Place(Place::new(Page::WORDS, offsets[index]))
}

pub fn word(maker: &mut Maker) -> Value {
    match maker.random.below(20) {
        0 => Value::Place(Place::new(Page::SHARED, 0x40)),
        1 => Value::Place(Place::new(Page::OF_FILE, 0x40)),
        2 => Value::Place(Place::new(Page::CHANGING, 0x80)),
        3 => Value::Place(Place::new(Page::READ_ONLY, 0x40)),
        4 => Value::Place(Place::new(Page::WORDS, 0x402)),
        _ => one(maker, &FUTEXES),
    }
}

pub fn mutex(maker: &mut Maker) -> Value {
    one(maker, &MUTEXES)
}

pub fn condition(maker: &mut Maker) -> Value {
    one(maker, &CONDITIONS)
}

pub fn semaphore(maker: &mut Maker) -> Value {
    one(maker, &SEMAPHORES)
}

pub fn rwlock(maker: &mut Maker) -> Value {
    one(maker, &RWLOCKS)
}

pub fn barrier(_: &mut Maker) -> Value {
    Value::Place(Place::new(Page::WORDS, BARRIER))
}

pub fn spin_lock(_: &mut Maker) -> Value {
    Value::Place(Place::new(Page::WORDS, SPIN_LOCK))
}

/// `pthread_t` of a thread of the case.
pub fn thread(maker: &mut Maker) -> Value {
    Value::Pthread(maker.random.below(u64::from(maker.case.threads) + 1) as u8)
}

/// Where `pthread_create` stores what it made, for as many threads as a case makes.
const THREADS: i32 = 0x820;
const MOST_THREADS: u8 = 4;

/// Room for the next thread; behind the last, that of the last.
pub fn room_for_thread(maker: &mut Maker) -> Value {
    let index = maker.made_threads;
    if index + 1 < MOST_THREADS {
        maker.made_threads += 1;
        maker.joinable.push(index);
    }
    Value::Place(Place::new(Page::WORDS, THREADS + i32::from(index) * 8))
}

pub fn start(maker: &mut Maker) -> Value {
    Value::Start(maker.random.below(STARTS.into()) as u8)
}

/// A thread that nothing has joined or detached yet: anything else is undefined. If there is none,
/// one is made.
pub fn joined(maker: &mut Maker) -> Value {
    let Some(index) = maker.joinable.pop() else {
        return made_thread(maker);
    };
    Value::LoadLong(Place::new(Page::WORDS, THREADS + i32::from(index) * 8))
}

pub fn cancelled(maker: &mut Maker) -> Value {
    let Some(&index) = maker.joinable.last() else {
        return made_thread(maker);
    };
    Value::LoadLong(Place::new(Page::WORDS, THREADS + i32::from(index) * 8))
}

/// Makes a thread before the call, which is the only one to name it.
fn made_thread(maker: &mut Maker) -> Value {
    const ROOM: Place = Place::new(Page::WORDS, THREADS + 8 * MOST_THREADS as i32);
    let create = calls::find("pthread_create").expect("it stands in a table");
    let start = start(maker);
    let arguments = vec![Value::Place(ROOM), Value::Int(0), start, Value::Int(0x77)];
    let call = maker.call(create, arguments);
    maker.before(call);
    Value::LoadLong(ROOM)
}

/// Locks the mutex of a wait for a condition before it: anything else is undefined.
pub fn lock_before(maker: &mut Maker, arguments: &mut [Value]) {
    let lock = calls::find("pthread_mutex_lock").expect("it stands in a table");
    let call = maker.call(lock, vec![arguments[1]]);
    maker.before(call);
}
