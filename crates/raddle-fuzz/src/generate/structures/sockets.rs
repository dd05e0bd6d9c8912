//! For calls on sockets.

use super::files;
use crate::case::{Page, Place, Value};
use crate::generate::Maker;

/// Room for a socket's name and for other results of up to 128 bytes.
pub fn room_for_name(maker: &mut Maker) -> Value {
    match maker.random.below(2) {
        0 => Value::Int(0),
        _ => Value::Place(maker.room(128)),
    }
}

/// A `socklen_t`.
pub fn name_length(maker: &mut Maker) -> Value {
    if maker.random.chance(15) {
        return Value::Int(0);
    }
    let at = maker.room(4);
    let length = maker.number(&[128, 128, 128, 16, 4, 0, 3, -1]);
    maker.put_int(at, 4, length);
    Value::Place(at)
}

/// An address: of a family that has no path and no port that another case could have.
pub fn socket_name(maker: &mut Maker) -> Value {
    let at = maker.room(112);
    match maker.random.below(6) {
        0 => return Value::Int(0),
        // Loopback, port 1: nothing listens there.
        1 => maker.put_int(at, 8, 0x0100_007f_0100_0002),
        // The listener's, if there is one: port 7777 and 127.0.0.1.
        2 => maker.put_int(at, 8, 0x0100_007f_611e_0002),
        3 => maker.put_int(at, 8, 0),
        4 => maker.put_int(at, 8, 0xffff),
        // A path: "sock", which a listener of the case has.
        _ => maker.put_int(at, 8, 0x0000_6b63_6f73_0001),
    }
    Value::Place(at)
}

/// A value for `setsockopt`: a `timeval`, or an `int`.
pub fn option_value(maker: &mut Maker) -> Value {
    let at = maker.room(16);
    let seconds = maker.number(&[0, 0, 1, -1, 5]);
    let microseconds = maker.number(&[10_000, 0, 5000, 1_000_000, -1]);
    maker.put_int(at, 8, seconds);
    maker.put_int(at.plus(8), 8, microseconds);
    Value::Place(at)
}

/// Fills a `msghdr` at `at`.
fn message(maker: &mut Maker, at: Place, sends: bool) {
    let name = match (maker.random.below(4), sends) {
        (0, true) => socket_name(maker),
        (0, false) => room_for_name(maker),
        _ => Value::Int(0),
    };
    let name_bytes = match name {
        Value::Int(_) => 0,
        _ => maker.number(&[16, 110, 0, 128, -1]),
    };
    let vector = if maker.random.chance(maker.hostility) {
        maker.bad_address()
    } else {
        files::vector(maker)
    };
    let count = maker.number(&[1, 1, 2, 0, 3]);
    let (control, control_bytes) = control(maker, sends);
    let flags = maker.number(&[0, 0, -1]);
    maker.put(at, 8, name);
    maker.put_int(at.plus(8), 8, name_bytes);
    maker.put(at.plus(16), 8, vector);
    maker.put_int(at.plus(24), 8, count);
    maker.put(at.plus(32), 8, control);
    maker.put_int(at.plus(40), 8, control_bytes);
    maker.put_int(at.plus(48), 8, flags);
}

/// A control message with a descriptor in it, or room for one.
fn control(maker: &mut Maker, sends: bool) -> (Value, u64) {
    const RIGHTS: u64 = 1 << 32 | 1;
    match maker.random.below(4) {
        0 | 1 => (Value::Int(0), 0),
        2 if maker.random.chance(maker.hostility) => (maker.bad_address(), 24),
        _ => {
            let at = maker.room(64);
            if sends {
                let descriptor = maker.descriptor();
                let length = maker.number(&[20, 20, 20, 16, 0, 24]);
                maker.put_int(at, 8, length);
                maker.put_int(at.plus(8), 8, RIGHTS);
                maker.put(at.plus(16), 8, descriptor);
            }
            (Value::Place(at), maker.number(&[24, 24, 20, 16, 8, 0]))
        }
    }
}

pub fn message_in(maker: &mut Maker) -> Value {
    let at = maker.room(56);
    message(maker, at, false);
    Value::Place(at)
}

pub fn message_out(maker: &mut Maker) -> Value {
    let at = maker.room(56);
    message(maker, at, true);
    Value::Place(at)
}

fn messages(maker: &mut Maker, sends: bool) -> Value {
    let at = maker.room(192);
    for index in 0..3 {
        let header = at.plus(index * 64);
        message(maker, header, sends);
        maker.put_int(header.plus(56), 8, 0);
    }
    Value::Place(at)
}

pub fn messages_in(maker: &mut Maker) -> Value {
    messages(maker, false)
}

pub fn messages_out(maker: &mut Maker) -> Value {
    if maker.random.chance(10) {
        return Value::Place(Place::new(Page::LAST, 0xfc0));
    }
    messages(maker, true)
}
