//! For calls about credentials, scheduling and other attributes of a thread.

use crate::calls::PRCTL;
use crate::case::Value;
use crate::generate::Maker;

pub fn capability_header(maker: &mut Maker) -> Value {
    const VERSION_3: u64 = 0x2008_0522;
    let at = maker.room(8);
    let version = maker.number(&[VERSION_3 as i64, 0x2007_1026, 0x1998_0330, 0]);
    let thread = maker.thread();
    maker.put_int(at, 4, version);
    maker.put(at.plus(4), 4, thread);
    Value::Place(at)
}

pub fn capabilities(maker: &mut Maker) -> Value {
    let at = maker.room(24);
    for index in 0..6 {
        let bits = maker.number(&[0, 0xffff_ffff, 1 << 5]);
        maker.put_int(at.plus(index * 4), 4, bits);
    }
    Value::Place(at)
}

/// Some bits or numbers.
pub fn small_set(maker: &mut Maker) -> Value {
    let at = maker.room(16);
    let bits = maker.number(&[1, 0, 1000, 3]);
    maker.put_int(at, 8, bits);
    Value::Place(at)
}

/// A filter that allows everything, a bad one, or nothing.
pub fn filter(maker: &mut Maker) -> Value {
    const ALLOW: u64 = 0x7fff_0000_0000_0006;
    if maker.random.chance(30) {
        return Value::Int(0);
    }
    let at = maker.room(16);
    let code = maker.room(8);
    let count = maker.number(&[1, 1, 1, 0, 4097]);
    maker.put_int(code, 8, ALLOW);
    maker.put_int(at, 8, count & 0xffff);
    maker.put(at.plus(8), 8, Value::Place(code));
    Value::Place(at)
}

/// Mostly installs a filter. Strict mode would kill the executor's thread at its next call.
pub fn fit_filter(maker: &mut Maker, arguments: &mut [Value]) {
    if arguments[0] == Value::Int(0) || maker.random.chance(50) {
        arguments[0] = Value::Int(1);
        arguments[1] = Value::Int(*maker.random.pick(&[0, 0, 1]));
    }
}

pub fn personality(maker: &mut Maker) -> Value {
    Value::Int(maker.number(&[0xffff_ffff, 0xffff_ffff, 0, 0x40000]))
}

pub fn prctl_argument(maker: &mut Maker) -> Value {
    match maker.random.below(8) {
        0..4 => Value::Int(*maker.random.pick(&[0, 0, 1, 2, 9, 64, 1000])),
        4 => maker.bad_address(),
        5 => maker.path(),
        _ => Value::Place(maker.room(64)),
    }
}

/// Replaces arguments that would end the case or disturb the executor.
pub fn fit_prctl(maker: &mut Maker, arguments: &mut [Value]) {
    const SET_SECCOMP: u64 = 22;
    const SET_TSC: u64 = 26;
    const TSC_FAULTS: u64 = 2;
    const SET_DEATH_SIGNAL: u64 = 1;
    if let Value::Int(SET_SECCOMP) = arguments[0] {
        arguments[0] = Value::Int(maker.random.pick(PRCTL).1);
    }
    // vDSO functions and the executor read the counter.
    if arguments[..2] == [Value::Int(SET_TSC), Value::Int(TSC_FAULTS)] {
        arguments[1] = Value::Int(1);
    }
    if arguments[0] == Value::Int(SET_DEATH_SIGNAL) && !matches!(arguments[1], Value::Int(_)) {
        arguments[1] = Value::Int(0);
    }
}

/// A CPU mask.
pub fn processor_set(maker: &mut Maker) -> Value {
    let at = maker.room(128);
    let bits = maker.number(&[1, 3, 2, 0, -1, 1 << 20]);
    maker.put_int(at, 8, bits);
    Value::Place(at)
}

pub fn scheduling_parameter(maker: &mut Maker) -> Value {
    if maker.random.chance(10) {
        return Value::Int(0);
    }
    let at = maker.room(4);
    let priority = maker.number(&[0, 0, 1, 50, 99, 100, -1]);
    maker.put_int(at, 4, priority);
    Value::Place(at)
}

/// A `sched_attr`.
pub fn scheduling_attributes(maker: &mut Maker) -> Value {
    let at = maker.room(64);
    let size = maker.number(&[48, 56, 0, 47, 64, 4097]);
    let policy = *maker.random.pick(&[0, 0, 1, 2, 3, 5, 6, 7, 99]);
    let flags = maker.number(&[0, 0, 1, 8, 0x10, 0x20, 0x40, 0x60, 1 << 31]);
    let niceness = maker.number(&[0, 5, -5, 19, 20]);
    let priority = maker.number(&[0, 0, 1, 99, 100]);
    let runtime = maker.number(&[0, 1_000_000, 1000]);
    maker.put_int(at, 4, size);
    maker.put_int(at.plus(4), 4, policy);
    maker.put_int(at.plus(8), 8, flags);
    maker.put_int(at.plus(16), 4, niceness);
    maker.put_int(at.plus(20), 4, priority);
    maker.put_int(at.plus(24), 8, runtime);
    maker.put_int(at.plus(32), 8, 10_000_000);
    maker.put_int(at.plus(40), 8, 10_000_000);
    maker.put_int(at.plus(48), 8, 0);
    maker.put_int(at.plus(56), 8, 0);
    Value::Place(at)
}
