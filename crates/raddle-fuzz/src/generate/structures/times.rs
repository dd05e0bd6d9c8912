//! Times, and arguments of futex calls.

use crate::case::{Data, Put, Value};
use crate::generate::{Maker, objects};

const BAD_TIMES: [(u64, u64); 5] = [
    (u64::MAX, 0),
    (0, 1_000_000_000),
    (0, u64::MAX),
    (1 << 63, 0),
    (i64::MAX as u64, 999_999_999),
];

fn time(maker: &mut Maker, seconds: u64, rest: u64) -> Value {
    let at = maker.room(16);
    maker.put_int(at, 8, seconds);
    maker.put_int(at.plus(8), 8, rest);
    Value::Place(at)
}

fn bad_time(maker: &mut Maker) -> Value {
    let (seconds, rest) = *maker.random.pick(&BAD_TIMES);
    time(maker, seconds, rest)
}

/// A relative `timespec`: none, nothing, milliseconds, or nonsense.
pub fn time_limit(maker: &mut Maker) -> Value {
    match maker.random.below(12) {
        0..4 => Value::Int(0),
        4 | 5 => time(maker, 0, 0),
        6..10 => time(maker, 0, 8_000_000),
        10 => time(maker, 1000, 0),
        _ => bad_time(maker),
    }
}

/// The same as a `timeval`.
pub fn time_limit_us(maker: &mut Maker) -> Value {
    match maker.random.below(12) {
        0..4 => Value::Int(0),
        4 | 5 => time(maker, 0, 0),
        6..10 => time(maker, 0, 8000),
        10 => time(maker, 0, 2_000_000),
        _ => bad_time(maker),
    }
}

/// A time to sleep.
pub fn short_time(maker: &mut Maker) -> Value {
    match maker.random.below(12) {
        0 => Value::Int(0),
        1 => time(maker, 0, 0),
        2 => time(maker, 1000, 0),
        3 => bad_time(maker),
        4..6 => time(maker, 0, 40_000_000),
        _ => time(maker, 0, 5_000_000),
    }
}

/// A point in time, on either clock, mostly one that comes soon.
pub fn deadline(maker: &mut Maker) -> Value {
    match maker.random.below(10) {
        0 | 1 if !maker.calm => return Value::Int(0),
        2 => return bad_time(maker),
        3 => return time(maker, 0, 0),
        _ => {}
    }
    let clock = *maker.random.pick(&[0, 1]);
    let ms = *maker.random.pick(&[8, 8, 40, -5, 0]);
    let at = maker.room(16);
    let data = Data::Deadline(clock, ms);
    maker.puts.push(Put { at, data });
    Value::Place(at)
}

/// The fourth argument of `futex`: a time, or a number of threads.
pub fn futex_limit(maker: &mut Maker) -> Value {
    match maker.random.below(6) {
        0 => Value::Int(1),
        1 => Value::Int(i32::MAX as u64),
        2 => deadline(maker),
        _ => time_limit(maker),
    }
}

/// Makes the value that a futex is compared with mostly the right one.
pub fn fit_futex(maker: &mut Maker, arguments: &mut [Value]) {
    const BITSET: u64 = 9;
    const LOCKS: [u64; 4] = [6, 7, 8, 13];
    let Value::Int(operation) = arguments[1] else {
        return;
    };
    let command = operation & 127;
    if [0, BITSET, 11].contains(&command) && maker.random.chance(75) {
        arguments[2] = Value::Int(0);
    }
    if [4, 12].contains(&command) && maker.random.chance(75) {
        arguments[5] = Value::Int(0);
    }
    if [BITSET, 10].contains(&command) && maker.random.chance(60) {
        arguments[5] = Value::Int(u64::from(u32::MAX));
    }
    if let Value::Place(place) = arguments[0]
        && LOCKS.contains(&command)
        && maker.random.chance(50)
    {
        let owner = maker.thread();
        maker.put(place, 4, owner);
    }
}

/// Three entries of `futex_waitv`.
pub fn futex_vector(maker: &mut Maker) -> Value {
    const SIZE_32: u64 = 2;
    const PRIVATE: u64 = 128;
    let at = maker.room(72);
    for index in 0..3 {
        let entry = at.plus(index * 24);
        let value = maker.number(&[0, 0, 0, 1, 1 << 32]);
        let address = objects::word(maker);
        let flags = [
            SIZE_32 | PRIVATE,
            SIZE_32 | PRIVATE,
            SIZE_32,
            0,
            PRIVATE,
            1 << 31,
        ];
        let flags = if maker.random.chance(70) {
            SIZE_32 | PRIVATE
        } else {
            *maker.random.pick(&flags)
        };
        maker.put_int(entry, 8, value);
        maker.put(entry.plus(8), 8, address);
        maker.put_int(entry.plus(16), 8, flags);
    }
    Value::Place(at)
}

/// A robust list without entries.
pub fn robust_head(maker: &mut Maker) -> Value {
    let at = maker.room(24);
    maker.put(at, 8, Value::Place(at));
    maker.put_int(at.plus(8), 8, 0);
    maker.put_int(at.plus(16), 8, 0);
    Value::Place(at)
}

/// An `itimerspec`.
pub fn interval(maker: &mut Maker) -> Value {
    interval_of(maker, 1_000_000)
}

/// An `itimerval`.
pub fn interval_us(maker: &mut Maker) -> Value {
    interval_of(maker, 1000)
}

fn interval_of(maker: &mut Maker, millisecond: u64) -> Value {
    let at = maker.room(32);
    let (again, first) = *maker
        .random
        .pick(&[(0, 0), (0, 5), (3, 5), (0, 500_000), (0, 5)]);
    let bad = maker.random.chance(8);
    let unit = if bad { u64::MAX / 4 } else { millisecond };
    maker.put_int(at, 8, 0);
    maker.put_int(at.plus(8), 8, u64::wrapping_mul(again, unit));
    maker.put_int(at.plus(16), 8, first / 1000);
    maker.put_int(at.plus(24), 8, u64::wrapping_mul(first % 1000, unit));
    Value::Place(at)
}

/// Makes sleeps until a time end soon.
pub fn fit_sleep(maker: &mut Maker, arguments: &mut [Value]) {
    if let (Value::Int(clock @ 0..=1), Value::Int(1)) = (arguments[0], arguments[1])
        && maker.random.chance(70)
    {
        let at = maker.room(16);
        let data = Data::Deadline(clock as u8, *maker.random.pick(&[5, 40, -5]));
        maker.puts.push(Put { at, data });
        arguments[2] = Value::Place(at);
    }
}
