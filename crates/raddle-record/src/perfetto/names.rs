//! Names of slices and marks, which are written once and are numbers then.

use raddle_inspect::{Event, WaitKind};
use rustc_hash::FxHashMap;

/// The most names that are kept; then numbers begin anew.
const NAMES_MAX: usize = 1 << 16;

/// What a slice or a mark is named after.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(super) enum Name {
    /// What a thread waits for, and its argument.
    Wait(WaitKind, u64),
    #[default]
    Preempted,
    /// The carrier that the thread came from.
    MovedFrom(u32),
    Signal(u32),
    InKernel,
    /// The process that has ended a wait.
    WokenBy(u32),
    /// On a process's track.
    WakeUp,
    /// A text of the program's, by its place.
    Text(u64, u8),
}

/// The category of a name, by its number.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Category {
    Wait = 1,
    Scheduling = 2,
    Program = 3,
}

impl Category {
    pub(super) const ALL: [(Category, &'static str); 3] = [
        (Category::Wait, "wait"),
        (Category::Scheduling, "scheduling"),
        (Category::Program, "program"),
    ];
}

impl Name {
    pub(super) fn category(self) -> Category {
        match self {
            Name::Wait(..) | Name::InKernel => Category::Wait,
            Name::Text(..) => Category::Program,
            Name::Preempted
            | Name::MovedFrom(_)
            | Name::Signal(_)
            | Name::WokenBy(_)
            | Name::WakeUp => Category::Scheduling,
        }
    }

    /// Returns the name; `text` finds the program's.
    pub(super) fn text<'a>(self, text: impl FnOnce((u64, u8)) -> Option<&'a str>) -> String {
        match self {
            Name::Wait(wait, arg) => wait_name(wait, arg),
            Name::Preempted => "preempted".to_owned(),
            Name::MovedFrom(carrier) => format!("moved from carrier {carrier}"),
            Name::Signal(number) => format!("signal {number}"),
            Name::InKernel => "in the kernel".to_owned(),
            Name::WokenBy(pid) => format!("woken by process {pid}"),
            Name::WakeUp => "wake-up".to_owned(),
            Name::Text(address, length) => match text((address, length)) {
                Some(text) => text.to_owned(),
                None => format!("{address:#x}"),
            },
        }
    }
}

/// Names what a thread waits for: the kind, and the object if there is one.
fn wait_name(wait: WaitKind, arg: u64) -> String {
    let word = wait.word();
    match wait {
        _ if wait.is_address() => format!("{word} {arg:#x}"),
        WaitKind::FD_READ | WaitKind::FD_WRITE | WaitKind::PAGE => format!("{word} {arg}"),
        _ => word.to_owned(),
    }
}

/// The numbers of names.
#[derive(Default)]
pub(super) struct Names {
    numbers: FxHashMap<Name, u64>,
    /// How often numbers have begun anew.
    restarts: u32,
}

/// A name that was looked up, with its number then.
#[derive(Clone, Copy, Default)]
pub(super) struct Known {
    name: Name,
    /// 0 for none.
    number: u64,
    restarts: u32,
}

impl Names {
    /// Returns true if the numbers must begin anew.
    #[inline]
    pub(super) fn are_full(&self) -> bool {
        self.numbers.len() == NAMES_MAX
    }

    /// Begins the numbers anew.
    pub(super) fn restart(&mut self) {
        self.numbers.clear();
        self.restarts = self.restarts.wrapping_add(1);
    }

    /// Returns a name's number, and whether it is new. `known` is likely the same name.
    #[inline]
    pub(super) fn number(&mut self, name: Name, known: &mut Known) -> (u64, bool) {
        let is_it = known.number != 0 && known.name == name && known.restarts == self.restarts;
        if is_it {
            return (known.number, false);
        }
        let next = self.numbers.len() as u64 + 1;
        let number = *self.numbers.entry(name).or_insert(next);
        *known = Known {
            name,
            number,
            restarts: self.restarts,
        };
        (number, number == next)
    }
}

/// The text of an event is at most so long.
const _: () = assert!(Event::TEXT_MAX == u8::MAX as usize);
