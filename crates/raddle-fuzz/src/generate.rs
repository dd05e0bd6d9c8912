//! Cases from seeds: sequences that get far, with a hostile argument here and there.
//!
//! A [`Maker`] first chooses threads, resources and handlers that fit a *theme* (one or two of the
//! tables of calls), then steps. Descriptors are taken from the resources, addresses from pages
//! with known protections, so that most calls do something; each case has a *hostility*, the part
//! of arguments that are bad on purpose. A call that may wait mostly gets an event that ends it.

mod events;
pub mod objects;
mod resources;
pub mod structures;
mod values;

use crate::calls::{self, Answer, Argument, Spec};
use crate::case::{
    CHILDREN, Call, Case, Data, Event, FIRST_CHILD, Handler, Idle, Kind, MAIN, Page, Place, Put,
    Site, Step, Value,
};
use crate::random::Random;

/// Steps of a case at most.
const STEPS: u64 = 20;

/// A case that is being made.
pub struct Maker {
    pub(crate) random: Random,
    pub(crate) case: Case,
    /// The stores of the step that is being made.
    pub(crate) puts: Vec<Put>,
    /// Steps that have to come before it.
    before: Vec<Call>,
    /// Percent of arguments that are bad on purpose.
    pub(crate) hostility: u64,
    /// The agent that makes the call.
    pub(crate) agent: u8,
    /// Resources that the call is made for.
    on: &'static [Kind],
    /// The place of the next structure.
    next: i32,
    children: u8,
    /// Threads that the case itself makes, and those that nothing has joined.
    made_threads: u8,
    joinable: Vec<u8>,
    /// A timer, a context for asynchronous reads was made.
    has_timer: bool,
    has_context: bool,
    /// True while arguments come out without hostility: for calls that have to work.
    pub(crate) calm: bool,
}

/// The case of a seed.
pub fn case(seed: u64) -> Case {
    about(seed, None)
}

/// The case of a seed; if a call is named, most steps are that call.
pub fn about(seed: u64, focus: Option<&'static Spec>) -> Case {
    let mut random = Random::new(seed);
    let hostility = *random.pick(&[0, 2, 5, 5, 10, 25]);
    let mut maker = Maker {
        random,
        case: Case::default(),
        puts: Vec::new(),
        before: Vec::new(),
        hostility,
        agent: MAIN,
        on: &[],
        next: 0,
        children: 0,
        made_threads: 0,
        joinable: Vec::new(),
        has_timer: false,
        has_context: false,
        calm: false,
    };
    let specs = maker.choose_calls(focus);
    maker.make_header(&specs);
    maker.make_steps(&specs);
    maker.case
}

/// Signals that have handlers in most cases.
pub(crate) const HANDLED: [u8; 6] = [10, 12, 14, 17, 34, 35];

const SA_ONSTACK: u64 = 0x0800_0000;
const SA_RESTART: u64 = 0x1000_0000;
const SA_NODEFER: u64 = 0x4000_0000;
const SA_RESETHAND: u64 = 0x8000_0000;

impl Maker {
    fn make_header(&mut self, specs: &[&'static Spec]) {
        self.case.threads = *self.random.pick(&[0, 1, 1, 1, 2, 2, 3]);
        self.case.idle = match self.random.below(20) {
            0 => Idle::Spin,
            1..4 => Idle::Sleep,
            _ => Idle::Futex,
        };
        for signal in HANDLED {
            if self.random.chance(60) {
                let flags =
                    self.random
                        .pick(&[0, SA_RESTART, SA_RESTART, SA_NODEFER, SA_RESETHAND]);
                let on_stack = if self.random.chance(10) {
                    SA_ONSTACK
                } else {
                    0
                };
                self.case.handlers.push(Handler {
                    signal,
                    flags: flags | on_stack,
                    ignore: self.random.chance(8),
                });
            }
        }
        if self.random.chance(15) {
            let signal = u64::from(*self.random.pick(&HANDLED));
            self.case.blocked = 1 << (signal - 1);
        }
        resources::make(self, specs);
    }

    /// The calls of a case, most of them of its themes.
    fn choose_calls(&mut self, focus: Option<&'static Spec>) -> Vec<&'static Spec> {
        let themes = [(); 2].map(|()| *self.random.pick(calls::TABLES));
        let steps = match self.random.below(3) {
            0 => self.random.between(1, 3),
            1 => self.random.between(2, 8),
            _ => self.random.between(4, STEPS),
        };
        let mut specs = Vec::new();
        for _ in 0..steps {
            let table = match self.random.below(10) {
                0..5 => themes[0],
                5..8 => themes[1],
                _ => *self.random.pick(calls::TABLES),
            };
            specs.push(match focus {
                Some(focus) if self.random.chance(50) => focus,
                _ => self.random.pick(table),
            });
        }
        specs
    }

    fn make_steps(&mut self, specs: &[&'static Spec]) {
        for spec in specs {
            self.make_step(spec);
            if self.case.steps.len() >= STEPS as usize || spec.answer == Answer::Never {
                break;
            }
        }
    }

    fn make_step(&mut self, spec: &'static Spec) {
        self.agent = match self.case.threads {
            0 => MAIN,
            threads if self.random.chance(20) => self.random.between(1, threads.into()) as u8,
            _ => MAIN,
        };
        if self.skips(spec) {
            return;
        }
        let call = self.make_call(spec);
        let before = std::mem::take(&mut self.before);
        let events = self.make_events(&call);
        self.before.clear();
        let steps = before.into_iter().map(|call| (call, Vec::new()));
        for (call, events) in steps.chain([(call, events)]) {
            // All stores, for any of the calls, come before the first.
            let puts = std::mem::take(&mut self.puts);
            self.case.steps.push(Step { puts, call, events });
        }
        if spec.answer == Answer::Fork && self.children < CHILDREN {
            self.make_child();
        }
    }

    /// Returns true for a call that is too slow, or too rarely of interest, to be made as often as
    /// others.
    fn skips(&mut self, spec: &Spec) -> bool {
        let keep = match spec.name {
            "sync" | "syncfs" | "rseq" => 5,
            "exit" | "exit_group" | "execve" | "execveat" | "execv" | "system" | "seccomp" => 30,
            "vfork" | "fork" | "clone" | "clone3" if self.children >= CHILDREN => 0,
            _ => 100,
        };
        !self.random.chance(keep)
    }

    /// Steps of a child that was just made, and mostly the parent's wait for it.
    fn make_child(&mut self) {
        let child = FIRST_CHILD + self.children;
        let parent = self.agent;
        self.children += 1;
        for _ in 0..self.random.below(4) {
            let table = *self.random.pick(calls::TABLES);
            let spec = self.random.pick(table);
            if spec.answer == Answer::Fork || self.skips(spec) {
                continue;
            }
            self.agent = child;
            let call = self.make_call(spec);
            let puts = std::mem::take(&mut self.puts);
            self.before.clear();
            self.case.steps.push(Step {
                puts,
                call,
                events: Vec::new(),
            });
        }
        self.agent = parent;
        if self.random.chance(70) {
            let child = Value::Child(child - FIRST_CHILD);
            let status = Value::Place(self.room(128));
            let none = Value::Int(0);
            let (name, arguments) = if self.random.chance(60) {
                ("wait4", vec![child, status, none, none])
            } else {
                let flags = Value::Int(*self.random.pick(&[4, 4, 0x100_0004, 5]));
                ("waitid", vec![Value::Int(1), child, status, flags, none])
            };
            let spec = calls::find(name).expect("it stands in a table");
            let call = self.call(spec, arguments);
            self.case.steps.push(Step {
                puts: Vec::new(),
                call,
                events: Vec::new(),
            });
        }
    }

    /// A call by the agent, at a site of any kind that the call has.
    pub(crate) fn call(&mut self, spec: &'static Spec, arguments: Vec<Value>) -> Call {
        let sites: &[Site] = match (spec.number, spec.wrapper) {
            (None, _) => &[Site::Libc],
            (_, Some(_)) if self.random.chance(40) => &[Site::Libc],
            // A child that shares its parent's memory can't return from a function of libc's.
            _ if spec.answer == Answer::Fork => &[Site::Register],
            _ => &[Site::Syscall, Site::Inline, Site::Vector, Site::Register],
        };
        Call {
            agent: self.agent,
            site: *self.random.pick(sites),
            spec,
            arguments,
        }
    }

    pub(crate) fn make_call(&mut self, spec: &'static Spec) -> Call {
        self.on = spec.on;
        // A read by libc itself at a bad address is undefined, not an error.
        let calm = self.calm;
        self.calm |= spec.number.is_none();
        let mut arguments: Vec<_> = spec
            .arguments
            .iter()
            .map(|&argument| self.make_argument(argument))
            .collect();
        if let Some(adjust) = spec.adjust {
            adjust(self, &mut arguments);
        }
        keep_to_stack(&mut arguments);
        self.calm = calm;
        let call = self.call(spec, arguments);
        match call.site {
            Site::Libc => call,
            _ => self.with_high_bits(call),
        }
    }

    /// Rarely sets bits that the kernel ignores, because it takes an `int`.
    fn with_high_bits(&mut self, mut call: Call) -> Call {
        if self.calm || !self.random.chance(self.hostility) {
            return call;
        }
        for (value, argument) in call.arguments.iter_mut().zip(call.spec.arguments) {
            if let Value::Int(number) = value
                && argument.is_int()
                && self.random.chance(30)
            {
                *number = (*number & 0xffff_ffff) | 0x5a5a << 32;
            }
        }
        call
    }

    fn make_argument(&mut self, argument: Argument) -> Value {
        if !self.calm && argument.is_address() && self.random.chance(self.hostility) {
            return self.bad_address();
        }
        match argument {
            Argument::Descriptor => self.descriptor(),
            Argument::On(kinds) => self.descriptor_of(kinds),
            Argument::Folder => self.folder(),
            Argument::Int(plausible) | Argument::Long(plausible) => {
                Value::Int(self.number(plausible))
            }
            Argument::Flags(names) => self.flags(names),
            Argument::OneOf(names) => self.one_of(names),
            Argument::Signal => self.signal(),
            Argument::Process => self.process(),
            Argument::Thread => self.thread(),
            Argument::Made(make) | Argument::In(make) | Argument::Any(_, make) => make(self),
            Argument::Out(bytes) | Argument::OutAny(bytes) => self.out(bytes),
            Argument::Buffer => self.buffer(),
            Argument::Length => self.length(),
            Argument::Path => self.path(),
        }
    }

    /// Room for a structure, which may be that of an earlier step.
    pub(crate) fn room(&mut self, bytes: i32) -> Place {
        let bytes = (bytes + 15) & !15;
        let limit = i32::from(Page::DATA_PAGES) * 4096;
        if self.next + bytes > limit {
            self.next = 0;
        }
        let at = Place::new(Page::DATA + (self.next / 4096) as u8, self.next % 4096);
        self.next += bytes;
        at
    }

    pub(crate) fn put(&mut self, at: Place, bytes: u8, value: Value) {
        let data = Data::Number(bytes, value);
        self.puts.push(Put { at, data });
    }

    pub(crate) fn put_int(&mut self, at: Place, bytes: u8, number: u64) {
        self.put(at, bytes, Value::Int(number));
    }

    /// Adds an earlier call by the agent.
    pub(crate) fn before(&mut self, call: Call) {
        self.before.push(call);
    }

    fn event(&self, after_ms: u8, call: Call) -> Event {
        Event { after_ms, call }
    }
}

/// The memory above a thread's stack differs from run to run: a length behind an address in a stack
/// stays within that stack, unless the length is negative.
fn keep_to_stack(arguments: &mut [Value]) {
    const MOST: u64 = 0x1_0000;
    for index in 1..arguments.len() {
        let is_behind = matches!(arguments[index - 1], Value::Stack(..));
        if let (true, Value::Int(length @ MOST..=0x7fff_ffff_ffff_ffff)) =
            (is_behind, arguments[index])
        {
            arguments[index] = Value::Int(length % MOST);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::{parse, to_text};

    #[test]
    fn a_seed_gives_the_same_case_every_time_and_it_can_be_written() {
        for seed in 0..2000 {
            let text = to_text(&case(seed));
            assert_eq!(text, to_text(&case(seed)));
            let read = parse(&text).unwrap_or_else(|error| panic!("{error:#}\n{text}"));
            assert_eq!(to_text(&read), text);
        }
    }

    #[test]
    fn every_call_is_made() {
        use std::collections::BTreeSet;
        let cases: Vec<_> = (0..4000).map(case).collect();
        let made: BTreeSet<_> = cases
            .iter()
            .flat_map(Case::calls)
            .map(|call| call.spec.name)
            .collect();
        let missing: Vec<_> = calls::all()
            .map(|spec| spec.name)
            .filter(|name| !made.contains(name))
            .collect();
        assert!(missing.is_empty(), "{missing:?}");
    }
}
