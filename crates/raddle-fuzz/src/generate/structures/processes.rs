//! For calls about processes, and for System V's queues.

use super::robust_head;
use crate::case::{Page, Place, Value, name_index, name_place};
use crate::generate::Maker;

const THREAD: u64 = 0x10000;
const VM: u64 = 0x100;

/// The end of a stack for a thread that ends at once.
const STACK: Place = Place::new(Page::STACK_END, 0);

pub fn clone_stack(maker: &mut Maker) -> Value {
    match maker.random.below(2) {
        0 => Value::Int(0),
        _ => Value::Place(STACK),
    }
}

/// A clone that shares memory has a stack of its own and a thread block of its own: the child of
/// any other would destroy its parent.
pub fn fit_clone(maker: &mut Maker, arguments: &mut [Value]) {
    if let Value::Int(flags) = arguments[0] {
        // A child that ends at once would send its signal at any moment.
        let exit_signal = match flags & VM {
            0 => *maker.random.pick(&[17, 17, 0, 10]),
            _ => 0,
        };
        arguments[0] = Value::Int(flags & !0xff | exit_signal);
        if flags & VM != 0 {
            arguments[1] = Value::Place(STACK);
        }
    }
}

/// Waits for an end, and names a process as such.
pub fn fit_wait(maker: &mut Maker, arguments: &mut [Value]) {
    const EXITED: u64 = 4;
    const A_PROCESS: u64 = 1;
    if let Value::Int(flags) = arguments[3]
        && maker.random.chance(75)
    {
        arguments[3] = Value::Int(flags | EXITED);
    }
    if matches!(arguments[1], Value::Child(_)) && maker.random.chance(75) {
        arguments[0] = Value::Int(A_PROCESS);
    }
}

/// A `clone_args`.
pub fn clone_arguments(maker: &mut Maker) -> Value {
    let at = maker.room(88);
    let Value::Int(mut flags) = maker.flags(crate::calls::CLONE) else {
        return Value::Int(0);
    };
    if maker.random.chance(20) {
        flags |= THREAD | VM | 0x800;
    }
    let (base, bytes) = match flags & VM {
        0 => (Value::Int(0), 0),
        _ => (Value::Place(STACK.plus(-0x2000)), 0x2000),
    };
    let exit_signal = if flags & VM != 0 {
        0
    } else {
        maker.number(&[17, 0, 10])
    };
    let word = maker.room(16);
    let thread_block = robust_head(maker);
    let fields = [
        Value::Int(flags),
        Value::Place(word),
        Value::Place(word.plus(4)),
        Value::Place(word.plus(8)),
        Value::Int(exit_signal),
        base,
        Value::Int(bytes),
        thread_block,
        Value::Int(0),
        Value::Int(0),
        Value::Int(0),
    ];
    for (index, field) in fields.into_iter().enumerate() {
        let field = if maker.random.chance(maker.hostility / 2) && !(5..7).contains(&index) {
            Value::Int(maker.number(&[0, 1, -1]))
        } else {
            field
        };
        let is_safe = index != 0 || flags & VM != 0;
        let field = if is_safe { field } else { Value::Int(flags) };
        maker.put(at.plus(index as i32 * 8), 8, field);
    }
    Value::Place(at)
}

/// A list of one or two strings, or none.
pub fn program_arguments(maker: &mut Maker) -> Value {
    let at = maker.room(24);
    let first = maker.steady_path();
    let second = maker.steady_path();
    let count = maker.random.below(3);
    maker.put(at, 8, if count > 0 { first } else { Value::Int(0) });
    maker.put(
        at.plus(8),
        8,
        if count > 1 { second } else { Value::Int(0) },
    );
    maker.put_int(at.plus(16), 8, 0);
    Value::Place(at)
}

/// Mostly starts the program that describes its surroundings; nothing else here can be executed.
pub fn fit_program(maker: &mut Maker, arguments: &mut [Value]) {
    let index = usize::from(arguments.len() == 5);
    if !matches!(arguments[index], Value::Place(place) if place.page == Page::NAMES) {
        return;
    }
    let name = |name| Value::Place(name_place(name_index(name)));
    if maker.random.chance(60) {
        let at = maker.room(24);
        maker.put(at, 8, name("program"));
        maker.put(at.plus(8), 8, name("after-exec"));
        maker.put_int(at.plus(16), 8, 0);
        arguments[index] = name("program");
        arguments[index + 1] = Value::Place(at);
    } else {
        arguments[index] = name(
            *maker
                .random
                .pick(&["file", "missing", "folder", "file/under"]),
        );
    }
}

/// A command for the shell.
pub fn shell_command(maker: &mut Maker) -> Value {
    let name = *maker.random.pick(&["exit 3", "exit 3", "missing"]);
    Value::Place(name_place(name_index(name)))
}

/// An `rlimit64`, or none.
pub fn limit(maker: &mut Maker) -> Value {
    if maker.random.chance(50) {
        return Value::Int(0);
    }
    let at = maker.room(16);
    let soft = maker.number(&[0, 4096, 1 << 20, -1]);
    let hard = maker.number(&[1 << 20, -1, 0]);
    maker.put_int(at, 8, soft);
    maker.put_int(at.plus(8), 8, hard);
    Value::Place(at)
}

pub fn message_queue(maker: &mut Maker) -> Value {
    match maker.random.below(10) {
        0 => Value::Int(maker.number(&[-1, 1 << 20])),
        _ => Value::Queue,
    }
}

pub fn semaphore_set(maker: &mut Maker) -> Value {
    match maker.random.below(10) {
        0 => Value::Int(maker.number(&[-1, 1 << 20])),
        _ => Value::Semaphores,
    }
}

/// A `msgbuf`.
pub fn queue_message(maker: &mut Maker) -> Value {
    let at = Place::new(Page::BUFFERS, 0x200);
    let kind = maker.number(&[1, 1, 2, 0, -1]);
    maker.put_int(at, 8, kind);
    Value::Place(at)
}

/// Two `sembuf`s.
pub fn semaphore_operations(maker: &mut Maker) -> Value {
    let at = maker.room(16);
    for index in 0..2 {
        let entry = at.plus(index * 6);
        let number = maker.number(&[0, 0, 1, 2]);
        let change = maker.number(&[1, -1, 0, -2, 40_000]);
        let flags = maker.number(&[0, 0, 0, 0o4000, 0o10000]);
        maker.put_int(entry, 2, number);
        maker.put_int(entry.plus(2), 2, change);
        maker.put_int(entry.plus(4), 2, flags);
    }
    Value::Place(at)
}
