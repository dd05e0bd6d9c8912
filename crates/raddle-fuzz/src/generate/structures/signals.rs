//! For calls about signals.

use crate::calls;
use crate::case::{Page, Place, Value};
use crate::generate::{HANDLED, Maker};

/// A set of signals, or none.
pub fn signal_set(maker: &mut Maker) -> Value {
    if !maker.calm && maker.random.chance(15) {
        return Value::Int(0);
    }
    let mut bits = 0_u64;
    for _ in 0..*maker.random.pick(&[0, 1, 1, 2, 3]) {
        bits |= 1 << (maker.random.pick(&HANDLED) - 1);
    }
    if maker.random.chance(maker.hostility) {
        bits = *maker
            .random
            .pick(&[u64::MAX, 1 << 8, 1 << 18, 3 << 31, 1 << 63]);
    }
    let at = maker.room(8);
    maker.put_int(at, 8, bits);
    Value::Place(at)
}

/// A kernel's `sigaction`, or none.
pub fn signal_action(maker: &mut Maker) -> Value {
    const RESTORER: u64 = 0x0400_0000;
    const SIGINFO: u64 = 4;
    if maker.random.chance(25) {
        return Value::Int(0);
    }
    let at = maker.room(32);
    let handler = match maker.random.below(6) {
        0 => Value::Int(0),
        1 => Value::Int(1),
        _ => Value::Handler,
    };
    let extra = [
        0,
        0,
        0x1000_0000,
        0x4000_0000,
        0x8000_0000,
        0x0800_0000,
        2,
        1,
        0x800,
        1 << 40,
    ];
    let flags = RESTORER | SIGINFO | maker.random.pick(&extra);
    let mask = *maker.random.pick(&[0, 0, 1 << 9, 1 << 11, u64::MAX]);
    maker.put(at, 8, handler);
    maker.put_int(at.plus(8), 8, flags);
    maker.put(at.plus(16), 8, Value::Restorer);
    maker.put_int(at.plus(24), 8, mask);
    Value::Place(at)
}

/// A `siginfo_t` as its sender fills it.
pub fn signal_information(maker: &mut Maker) -> Value {
    if maker.random.chance(10) {
        return Value::Int(0);
    }
    let at = maker.room(128);
    let signal = maker.signal();
    let code = [-1_i64, -1, -2, -6, 0, 1, 0x80, -60].map(|code| code as u64);
    let code = *maker.random.pick(&code);
    let error = maker.random.below(3);
    maker.put(at, 4, signal);
    maker.put_int(at.plus(4), 4, error);
    maker.put_int(at.plus(8), 4, code);
    maker.put_int(at.plus(16), 4, 77);
    maker.put_int(at.plus(20), 4, 88);
    maker.put_int(at.plus(24), 8, 0x1234_5678_9abc);
    Value::Place(at)
}

/// A `stack_t`, or none.
pub fn signal_stack(maker: &mut Maker) -> Value {
    const PAGES: i64 = Page::SIGNAL_STACK_PAGES as i64;
    if maker.random.chance(20) {
        return Value::Int(0);
    }
    let at = maker.room(24);
    let base = Value::Place(Place::new(Page::SIGNAL_STACK, 0));
    let flags = maker.number(&[0, 0, 0, 2, 1, 0x8000_0000, 0x8000_0002, 4]);
    let bytes = maker.number(&[PAGES * 4096, 2048, 2047, 0, 8192]);
    maker.put(at, 8, base);
    maker.put_int(at.plus(8), 8, flags & 0xffff_ffff);
    maker.put_int(at.plus(16), 8, bytes);
    Value::Place(at)
}

/// A `sigevent`, or none.
pub fn signal_event(maker: &mut Maker) -> Value {
    if maker.random.chance(15) {
        return Value::Int(0);
    }
    let at = maker.room(64);
    let signal = maker.signal();
    let notify = maker.number(&[0, 0, 1, 4, 4, 2, 5, 8]);
    let thread = maker.thread();
    maker.put_int(at, 8, 0x77);
    maker.put(at.plus(8), 4, signal);
    maker.put_int(at.plus(12), 4, notify);
    maker.put(at.plus(16), 4, thread);
    Value::Place(at)
}

/// Where `timer_create` stores an id, so that later calls find it.
const TIMER: Place = Place::new(Page::WORDS, 0x800);

pub fn room_for_timer(maker: &mut Maker) -> Value {
    maker.has_timer = true;
    match maker.random.below(10) {
        0 => maker.bad_address(),
        _ => Value::Place(TIMER),
    }
}

/// A timer's id: that of the last one, which a step before makes if there is none, or nonsense.
pub fn timer(maker: &mut Maker) -> Value {
    if maker.random.chance(10) {
        return Value::Int(maker.number(&[0, 1, -1, 4096]));
    }
    if !maker.has_timer {
        let create = calls::find("timer_create").expect("it stands in a table");
        let clock = Value::Int(*maker.random.pick(&[0, 1, 1, 7]));
        let event = signal_event(maker);
        let call = maker.call(create, vec![clock, event, Value::Place(TIMER)]);
        maker.before(call);
        maker.has_timer = true;
    }
    Value::Load(TIMER)
}
