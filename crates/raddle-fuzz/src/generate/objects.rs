//! Objects that several threads use: futex words, locks, condition variables, semaphores.
//!
//! Each stands at a fixed place of the page for words; executors initialize them by libc's
//! functions.

use super::Maker;
use crate::calls;
use crate::case::{Page, Place, Value};

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

fn one(maker: &mut Maker, offsets: &[i32]) -> Value {
    // Two agents meet at an object only if there are few.
    let index = match maker.random.chance(60) {
        true => 0,
        false => maker.random.below(offsets.len() as u64) as usize,
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

/// Locks the mutex of a wait for a condition before it: anything else is undefined.
pub fn lock_before(maker: &mut Maker, arguments: &mut [Value]) {
    let lock = calls::find("pthread_mutex_lock").expect("it stands in a table");
    let call = maker.call(lock, vec![arguments[1]]);
    maker.before(call);
}
