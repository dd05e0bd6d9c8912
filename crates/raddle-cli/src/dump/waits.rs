//! What a thread waits for, and which thread has to act, in words.

use raddle_record::text::quoted;
use raddle_stacks::locks::{Edge, ObjectKind, Owner};

use super::stacks::{Taken, plain};

/// `mutex 0x55d1a43fe140 (lock_a), held by #501 "worker"`; `None` if it says no more than the kind
/// of the wait.
pub(super) fn describe(taken: &Taken, edge: &Edge) -> Option<String> {
    let is_telling = edge.owner != Owner::Unknown
        || edge.object.note.is_some()
        || taken.variables.contains_key(&edge.object.address);
    is_telling.then(|| object(taken, edge) + &owner(taken, edge))
}

/// `mutex 0x55d1a43fe140 (lock_a)`.
pub(super) fn object(taken: &Taken, edge: &Edge) -> String {
    let object = &edge.object;
    let mut text = plain(object.kind.word());
    if object.address != 0 && object.kind != ObjectKind::Thread {
        text += &format!(" {:#x}", object.address);
    }
    if let Some(name) = taken.variables.get(&object.address) {
        text += &format!(" ({})", plain(name));
    }
    if let Some(note) = &object.note {
        text += &format!(": {}", plain(note));
    }
    text
}

/// `, held by #501 "worker"`; empty if it isn't known.
pub(super) fn owner(taken: &Taken, edge: &Edge) -> String {
    let thread = |tid: u32| match taken.threads.get(&tid) {
        Some(captured) => format!("#{tid} {}", quoted(captured.record.name_bytes())),
        None => format!("#{tid}"),
    };
    match edge.owner {
        Owner::Thread(tid) if edge.object.kind == ObjectKind::Thread => {
            format!(" {}", thread(tid))
        }
        Owner::Thread(tid) if tid == edge.waiter => ", held by itself".into(),
        Owner::Thread(tid) => format!(", held by {}", thread(tid)),
        Owner::Ended(tid) => format!(", held by #{tid}, which has ended"),
        Owner::Elsewhere(tid) => format!(", held by thread {tid} of another process"),
        Owner::LastTaker(tid) if tid == edge.waiter => ", taken last by itself".into(),
        Owner::LastTaker(tid) => format!(", taken last by {}", thread(tid)),
        Owner::Unknown => String::new(),
    }
}
