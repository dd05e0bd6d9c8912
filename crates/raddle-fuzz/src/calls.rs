//! The tables of calls: each call's arguments, its results, and the source of its number.
//!
//! Every call that the user-mode kernel handles is here; a test compares. Other calls are here if
//! they change the objects of handled ones.

mod descriptors;
mod identity;
mod kinds;
mod locks;
mod memory;
mod names;
mod paths;
mod polling;
mod process;
mod scheduling;
mod signals;
mod sockets;
mod timing;

pub use names::{CLONE, Names, PRCTL, SIGNALS};

use crate::case::{Kind, Value};
use crate::generate::Maker;

/// A call, or a function of libc's that has no call of its own.
#[derive(Debug)]
pub struct Spec {
    pub name: &'static str,
    /// `None` for functions that are libc's alone.
    pub number: Option<u32>,
    /// libc's function that takes the same arguments.
    pub wrapper: Option<Width>,
    pub arguments: &'static [Argument],
    pub answer: Answer,
    /// The call may wait for something that another agent has to do.
    pub waits: bool,
    /// The kinds of resources that its descriptors mostly are; any if there are none.
    pub on: &'static [Kind],
    /// Makes arguments agree with each other after each was made alone.
    pub adjust: Option<fn(&mut Maker, &mut [Value])>,
}

/// How a function of libc's returns the kernel's result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Width {
    /// An `int`; -1 and errno for errors.
    Int,
    /// A `long` or a pointer; -1 and errno for errors.
    Long,
    /// An `int` that is 0 or an error's number.
    Code,
}

/// What the result means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    Number,
    /// An address that the kernel chose, unless it is in the case's memory.
    Address,
    /// A number that differs from run to run; negative ones don't.
    Any,
    /// Like a number; the call is made by a function of the executor's.
    Fork,
    /// The call doesn't return.
    Never,
}

/// What an argument is: how it is made, and how it is printed.
#[derive(Clone, Copy, Debug)]
pub enum Argument {
    /// A descriptor, `int`.
    Descriptor,
    /// A descriptor that mostly is one of these.
    On(&'static [Kind]),
    /// A descriptor of a folder, or AT_FDCWD.
    Folder,
    /// One of these plausible numbers, `int`.
    Int(&'static [i64]),
    /// One of these plausible numbers, 64 bits.
    Long(&'static [i64]),
    /// Some of these bits, `int`.
    Flags(&'static Names),
    /// One of these values, `int`.
    OneOf(&'static Names),
    Signal,
    Process,
    Thread,
    /// Made by a function: no address.
    Made(fn(&mut Maker) -> Value),
    /// An address that a function makes, with what the call reads there.
    In(fn(&mut Maker) -> Value),
    /// An address where the call stores.
    Out(u16),
    /// The same; its content differs from run to run.
    OutAny(u16),
    /// An address that a function makes; this many bytes there differ from run to run.
    Any(u16, fn(&mut Maker) -> Value),
    /// A buffer that the call reads or fills.
    Buffer,
    /// The number of bytes of a buffer.
    Length,
    Path,
}

impl Argument {
    /// The kernel looks at the lower 32 bits alone.
    pub const fn is_int(self) -> bool {
        matches!(
            self,
            Argument::Descriptor
                | Argument::On(_)
                | Argument::Folder
                | Argument::Int(_)
                | Argument::Flags(_)
                | Argument::OneOf(_)
                | Argument::Signal
                | Argument::Process
                | Argument::Thread
        )
    }

    pub const fn is_address(self) -> bool {
        matches!(
            self,
            Argument::In(_)
                | Argument::Out(_)
                | Argument::OutAny(_)
                | Argument::Any(..)
                | Argument::Buffer
                | Argument::Path
        )
    }

    /// Bytes at the address that differ from run to run.
    pub const fn unsteady_bytes(self) -> u16 {
        match self {
            Argument::OutAny(bytes) | Argument::Any(bytes, _) => bytes,
            _ => 0,
        }
    }
}

/// All calls, one table a subject.
pub const TABLES: &[&[Spec]] = &[
    descriptors::CALLS,
    identity::CALLS,
    locks::CALLS,
    memory::CALLS,
    paths::CALLS,
    polling::CALLS,
    process::CALLS,
    scheduling::CALLS,
    signals::CALLS,
    sockets::CALLS,
    timing::CALLS,
];

/// All calls.
pub fn all() -> impl Iterator<Item = &'static Spec> {
    TABLES.iter().copied().flatten()
}

/// The call of that name.
pub fn find(name: &str) -> Option<&'static Spec> {
    all().find(|spec| spec.name == name)
}

impl Spec {
    const fn new(name: &'static str, number: i64, arguments: &'static [Argument]) -> Self {
        Self {
            name,
            number: Some(number as u32),
            wrapper: None,
            arguments,
            answer: Answer::Number,
            waits: false,
            on: &[],
            adjust: None,
        }
    }

    /// A function of libc's without a call of its own.
    const fn function(name: &'static str, width: Width, arguments: &'static [Argument]) -> Self {
        Self {
            name,
            number: None,
            wrapper: Some(width),
            arguments,
            answer: Answer::Number,
            waits: false,
            on: &[],
            adjust: None,
        }
    }

    const fn wrapped(mut self, width: Width) -> Self {
        self.wrapper = Some(width);
        self
    }

    const fn int(self) -> Self {
        self.wrapped(Width::Int)
    }

    const fn long(self) -> Self {
        self.wrapped(Width::Long)
    }

    const fn waits(mut self) -> Self {
        self.waits = true;
        self
    }

    /// A call with descriptors that mostly are of these kinds.
    const fn of(
        on: &'static [Kind],
        name: &'static str,
        number: i64,
        arguments: &'static [Argument],
    ) -> Self {
        let mut spec = Self::new(name, number, arguments);
        spec.on = on;
        spec
    }

    const fn answers(mut self, answer: Answer) -> Self {
        self.answer = answer;
        self
    }

    const fn adjusted(mut self, adjust: fn(&mut Maker, &mut [Value])) -> Self {
        self.adjust = Some(adjust);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_handled_call_has_a_row() {
        let known: BTreeSet<u32> = all().filter_map(|spec| spec.number).collect();
        let wanted = raddle_kernel::table::wanted();
        let handled = (0..wanted.len() as u32 * 64)
            .filter(|number| wanted[*number as usize / 64] & (1 << (number % 64)) != 0);
        let missing: Vec<u32> = handled.filter(|number| !known.contains(number)).collect();
        assert!(
            missing.is_empty(),
            "handled, and nothing makes them: {missing:?}"
        );
    }

    #[test]
    fn names_and_numbers_stand_once() {
        let names: BTreeSet<_> = all().map(|spec| spec.name).collect();
        assert_eq!(names.len(), all().count());
        let numbers: Vec<_> = all().filter_map(|spec| spec.number).collect();
        let once: BTreeSet<_> = numbers.iter().collect();
        assert_eq!(once.len(), numbers.len());
    }
}
