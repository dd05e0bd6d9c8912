//! What ended waits, in fields of Raddle's own.

use raddle_inspect::WaitKind;

use super::messages;
use super::tables::Tables;
use crate::profile::{Activity, Profile, Waker, Waking};

pub(super) fn messages(profile: &Profile, tables: &mut Tables<'_>) -> Vec<messages::Waking> {
    let message = |waking: &Waking| {
        let kind = match waking.activity {
            Activity::Waiting(kind) => kind,
            _ => WaitKind::NONE,
        };
        let (by, waker, stack) = match waking.waker {
            Waker::Thread { thread, stack } => (1, thread, stack),
            Waker::Timer => (2, 0, None),
            Waker::Kernel => (3, 0, None),
            Waker::End => (4, 0, None),
            Waker::None => (5, 0, None),
            Waker::Unknown => (0, 0, None),
        };
        messages::Waking {
            thread: waking.thread,
            kind: kind.0,
            object: waking.object,
            location_id: tables.locations(waking.stack),
            by,
            waker,
            waker_location_id: stack.map_or(Vec::new(), |stack| tables.locations(stack)),
            weight_ns: waking.weight_ns,
        }
    };
    profile.wakings.iter().map(message).collect()
}

/// Returns what a message says, with the positions of its stacks.
pub(super) fn read(message: &messages::Waking, stack: u32, waker_stack: Option<u32>) -> Waking {
    Waking {
        thread: message.thread,
        activity: Activity::Waiting(WaitKind(message.kind)),
        object: message.object,
        stack,
        waker: match message.by {
            1 => Waker::Thread {
                thread: message.waker,
                stack: waker_stack,
            },
            2 => Waker::Timer,
            3 => Waker::Kernel,
            4 => Waker::End,
            5 => Waker::None,
            _ => Waker::Unknown,
        },
        weight_ns: message.weight_ns,
    }
}
