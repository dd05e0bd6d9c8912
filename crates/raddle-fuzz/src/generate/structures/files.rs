//! For calls on descriptors.

use crate::calls;
use crate::case::{Kind, Page, Place, Value};
use crate::generate::Maker;

/// An array of one to three `iovec`s.
pub fn vector(maker: &mut Maker) -> Value {
    let at = maker.room(48);
    for index in 0..3 {
        let base = if maker.random.chance(maker.hostility) {
            maker.bad_address()
        } else {
            maker.buffer()
        };
        let length = if maker.random.chance(maker.hostility) {
            Value::Int(
                *maker
                    .random
                    .pick(&[1 << 60, u64::MAX, 1 << 63, 0x7fff_ffff]),
            )
        } else {
            Value::Int(*maker.random.pick(&[0, 1, 8, 16, 100]))
        };
        maker.put(at.plus(index * 16), 8, base);
        maker.put(at.plus(index * 16 + 8), 8, length);
    }
    Value::Place(at)
}

/// Keeps huge counts of entries, which the kernel sums up first, within the case's memory.
pub fn fit_vector(_: &mut Maker, arguments: &mut [Value]) {
    if let Value::Place(place) = arguments[1]
        && arguments[2] == Value::Int(1024)
        && place.page < Page::READ_ONLY
    {
        arguments[2] = Value::Int(2);
    }
}

/// A `loff_t`, or none.
pub fn offset(maker: &mut Maker) -> Value {
    if maker.random.chance(60) {
        return Value::Int(0);
    }
    let at = maker.room(8);
    let offset = maker.number(&[0, 1, 100, 5000, -1]);
    maker.put_int(at, 8, offset);
    Value::Place(at)
}

/// An argument for some command of `fcntl`: a number, a lock, or an owner.
pub fn fcntl_argument(maker: &mut Maker) -> Value {
    match maker.random.below(6) {
        0 => {
            let number = *maker
                .random
                .pick(&[0, 1, 20, 0x800, 0x401, 100, 5000, 65536]);
            Value::Int(number)
        }
        1 => Value::Tid(0),
        2 => {
            let at = maker.room(8);
            let kind = maker.random.below(4);
            maker.put_int(at, 4, kind);
            let owner = maker.thread();
            maker.put(at.plus(4), 4, owner);
            Value::Place(at)
        }
        3 if maker.random.chance(20) => maker.bad_address(),
        _ => {
            let at = maker.room(32);
            let kind = *maker.random.pick(&[0, 1, 1, 2, 3]);
            let start = maker.number(&[0, 0, 10, -1]);
            let length = maker.number(&[0, 1, 100, -1]);
            maker.put_int(at, 8, kind);
            maker.put_int(at.plus(8), 8, start);
            maker.put_int(at.plus(16), 8, length);
            maker.put_int(at.plus(24), 8, 0);
            Value::Place(at)
        }
    }
}

/// An `int` in memory.
pub fn ioctl_argument(maker: &mut Maker) -> Value {
    match maker.random.below(5) {
        0 => maker.bad_address(),
        _ => {
            let at = maker.room(16);
            let value = maker.random.below(3);
            maker.put_int(at, 8, value);
            Value::Place(at)
        }
    }
}

/// Three `pollfd`s.
pub fn poll_list(maker: &mut Maker) -> Value {
    let at = maker.room(24);
    for index in 0..3 {
        let descriptor = match maker.random.below(8) {
            0 => Value::Int(u64::MAX),
            _ => maker.descriptor(),
        };
        let events = *maker.random.pick(&[1, 1, 4, 5, 0, 0x2000, 2, 0x3f, 0xffff]);
        maker.put(at.plus(index * 8), 4, descriptor);
        maker.put_int(at.plus(index * 8 + 4), 4, events);
    }
    Value::Place(at)
}

/// An `fd_set` of 1024 bits with some descriptors below 64, or none.
pub fn descriptor_set(maker: &mut Maker) -> Value {
    if maker.random.chance(45) {
        return Value::Int(0);
    }
    let at = maker.room(128);
    let mut bits = 0_u64;
    for _ in 0..*maker.random.pick(&[0, 1, 1, 2]) {
        if let Value::Int(number @ 0..64) = maker.descriptor() {
            bits |= 1 << number;
        }
    }
    maker.put_int(at, 8, bits);
    Value::Place(at)
}

/// The sixth argument of `pselect6`: a signal set and its size.
pub fn set_and_size(maker: &mut Maker) -> Value {
    if maker.random.chance(40) {
        return Value::Int(0);
    }
    let set = super::signal_set(maker);
    let at = maker.room(16);
    let size = maker.number(&[8, 8, 8, 4, 0]);
    maker.put(at, 8, set);
    maker.put_int(at.plus(8), 8, size);
    Value::Place(at)
}

pub fn epoll_event(maker: &mut Maker) -> Value {
    let at = maker.room(12);
    let edge = 1_u64 << 31;
    let once = 1_u64 << 30;
    let events = [1, 4, 5, 1 | edge, 4 | edge, 5 | once, 1 | once, 0x2001, 0];
    let events = *maker.random.pick(&events);
    maker.put_int(at, 4, events);
    maker.put_int(at.plus(4), 8, 0x1122_3344_5566);
    Value::Place(at)
}

/// Where `io_setup` stores a context.
const CONTEXT: Place = Place::new(Page::WORDS, 0x810);

pub fn room_for_context(maker: &mut Maker) -> Value {
    maker.has_context = true;
    match maker.random.below(10) {
        0 => maker.bad_address(),
        _ => Value::Place(CONTEXT),
    }
}

/// An AIO context; a step before makes it if there is none.
pub fn aio_context(maker: &mut Maker) -> Value {
    if maker.random.chance(15) {
        return Value::Int(maker.number(&[0, 1, 0x7000_0000]));
    }
    if !maker.has_context {
        let setup = calls::find("io_setup").expect("it stands in a table");
        let call = maker.call(setup, vec![Value::Int(8), Value::Place(CONTEXT)]);
        maker.before(call);
        maker.has_context = true;
    }
    Value::LoadLong(CONTEXT)
}

pub fn descriptor_or_new(maker: &mut Maker) -> Value {
    match maker.random.below(3) {
        0 => maker.descriptor_of(&[Kind::SignalFd]),
        _ => Value::Int(u64::MAX),
    }
}

pub fn small_buffer(maker: &mut Maker) -> Value {
    match maker.random.below(6) {
        0 => Value::Place(Place::new(Page::LAST, 0xffc)),
        _ => Value::Place(maker.room(64)),
    }
}
