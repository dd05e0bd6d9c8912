//! The stacks of all threads, read while the threads go on.
//!
//! A thread that is off its carrier is read in this order: its slot, its stack, its slot again. If
//! the thread has not run between the looks at the slot ([`Slot::is_unmoved`]), the stack is one
//! that it had. Otherwise all is read once more, a few times.

mod lights;
mod mapped;
mod recorded;

use std::collections::HashMap;
use std::rc::Rc;

use raddle_inspect::{CarrierRecord, Layout, ThreadFlags, ThreadRecord};
use rustc_hash::FxHashMap;

use crate::java::{Java, Monitor};
use crate::kernel::{Doing, KernelThreads, StoppedThreads};
use crate::light::Lights;
use crate::managed::{ManagedAt, ManagedFrame, ManagedFrames, place};
use crate::memory::{Memory, Pages};
use crate::modules::Modules;
use crate::perf_event::Sample;
use crate::perf_map::PerfMap;
use crate::python::Python;
use crate::rules::{RBP, RBX, RIP, RSP, Registers};
use crate::sampler::Sampler;
use crate::table::{Slot, Table};
use crate::unwind::{End, Frame, Unwinder};

/// The most frames of all different stacks; of further stacks some are kept.
const ALL_FRAMES_MAX: usize = 1 << 22;
const FRAMES_LEFT: usize = 8;
/// How often a thread is read that always runs meanwhile.
const TRIES: u32 = 4;

/// What a thread was doing when its stack was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Off its carrier by a call of its own: it waits, or has yielded.
    Parked,
    /// Off its carrier by the runtime's decision, between two instructions of its own.
    Preempted,
    /// It has not run yet.
    New,
    /// On a carrier that is in a system call of this number, or has a page fault or was stopped.
    InKernel(Option<u32>),
    /// On a carrier that waits in the kernel for a child that has borrowed the process's memory,
    /// until the child executes a program or ends: `vfork(2)`, `posix_spawn(3)`.
    LentToChild,
    /// On a carrier that executes the thread's code; the stack is that of one instant.
    Sampled,
    /// On a carrier that doesn't run: the process was stopped, or the kernel has written its core.
    Stopped,
    /// On a carrier that executes the thread's code, without a sample: its stack changes too fast
    /// to be read.
    Running,
    /// On a carrier of which the kernel doesn't tell what it does.
    Hidden,
    /// It ran again and again while it was read.
    Restless,
    /// It has ended meanwhile.
    Ended,
    /// Its stack pointer leads nowhere.
    Unreadable,
}

impl Kind {
    /// Returns the word for it, as the JSON document has it.
    pub fn word(self) -> &'static str {
        match self {
            Kind::Parked => "parked",
            Kind::Preempted => "preempted",
            Kind::New => "new",
            Kind::InKernel(_) | Kind::LentToChild => "kernel",
            Kind::Stopped => "stopped",
            Kind::Sampled | Kind::Running => "running",
            Kind::Hidden => "hidden",
            Kind::Restless => "restless",
            Kind::Ended => "ended",
            Kind::Unreadable => "unreadable",
        }
    }

    /// Returns why there is no stack, for the kinds without one.
    pub fn missing(self) -> Option<&'static str> {
        match self {
            Kind::Running => Some("it executes its code, and no perf event has sampled its stack"),
            Kind::Hidden => Some("the kernel doesn't tell where its carrier is"),
            Kind::Restless => Some("it ran again each time that its stack was read"),
            Kind::Ended => Some("it has ended meanwhile"),
            Kind::Unreadable => Some("its stack pointer leads to no stack"),
            _ => None,
        }
    }
}

/// A stack, which many threads may have.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Stack {
    /// From the inside out.
    pub frames: Box<[Frame]>,
    pub end: End,
    /// The managed frames that native ones execute, from the inside out.
    pub managed: Box<[ManagedAt]>,
    /// The monitor of Java that its thread wants, or 0: so stacks are different by it. In a
    /// recording, the number of the monitor's object, and perhaps [`Stack::NOTICED`].
    pub monitor: u64,
}

impl Stack {
    /// Returns how many frames are guessed.
    pub fn guessed(&self) -> usize {
        self.frames.iter().filter(|frame| frame.is_guessed).count()
    }
}

/// A thread and its stack.
#[derive(Clone, Copy, Debug)]
pub struct Captured {
    pub record: ThreadRecord,
    pub kind: Kind,
    /// The number of its stack in [`Stacks::stacks`].
    pub stack: Option<u32>,
    /// The mutex that goes with the condition variable for which it waits, or 0.
    pub wait_lock: u64,
}

/// The stacks of a process.
pub struct Stacks {
    pub threads: Vec<Captured>,
    /// All different stacks.
    pub stacks: Vec<Stack>,
    /// All different managed frames.
    pub managed: Vec<ManagedFrame>,
    /// The monitors of Java that threads want, by their addresses.
    pub monitors: HashMap<u64, Monitor>,
    /// The number of light threads of the process.
    pub lights: u64,
}

/// The process, and what it has said.
pub struct Target<'a> {
    pub pid: u32,
    pub memory: &'a dyn Memory,
    pub layout: &'a Layout,
    pub carriers: &'a [CarrierRecord],
    pub modules: &'a Modules,
    /// When its engine started: no wait is older.
    pub started_ns: u64,
    /// Its kernel threads, if they don't run.
    pub stopped: Option<&'a StoppedThreads>,
}

impl Stacks {
    /// Returns the green threads: those that are no light ones.
    pub fn green(&self) -> impl Iterator<Item = &Captured> {
        let is_light = |it: &&Captured| it.record.flags.contains(ThreadFlags::LIGHT);
        self.threads.iter().filter(move |it| !is_light(it))
    }
}

/// Reads the threads that `is_wanted` picks, and their stacks; `None` if the layout makes no sense.
pub fn capture(target: &Target<'_>, is_wanted: &dyn Fn(&ThreadRecord) -> bool) -> Option<Stacks> {
    capture_with(target, is_wanted, None)
}

/// As [`capture`], with the Java frames that the virtual machine has said.
pub fn capture_with(
    target: &Target<'_>,
    is_wanted: &dyn Fn(&ThreadRecord) -> bool,
    java: Option<&Java>,
) -> Option<Stacks> {
    let mut camera = Camera {
        java,
        ..Camera::new(target)?
    };
    let mut slots = camera.slots(&|_| true);
    let lights = Lights::find(target, &slots);
    let hosts: Vec<Slot> = slots.iter().filter(|it| it.host != 0).copied().collect();
    slots.retain(|slot| is_wanted(&slot.record));
    let mut threads: Vec<_> = slots.iter().map(|slot| camera.take(slot)).collect();
    let count = camera.take_lights(&lights, &hosts, is_wanted, &mut threads);
    let monitors = camera.monitors();
    Some(Stacks {
        lights: count,
        monitors,
        threads,
        stacks: camera.stacks,
        managed: camera.managed.all,
    })
}

/// What the stacks of a process are read with.
pub(crate) struct Camera<'a> {
    pub(crate) target: &'a Target<'a>,
    pub(crate) table: Table<'a>,
    kernel_threads: KernelThreads<'a>,
    sampler: Sampler,
    pub(crate) unwinder: Unwinder<'a>,
    pub(crate) pages: Pages<'a>,
    numbers: FxHashMap<Stack, u32>,
    stacks: Vec<Stack>,
    /// The frames of all these.
    frames: usize,
    python: Option<Python<'a>>,
    java: Option<&'a Java>,
    map: PerfMap,
    managed: ManagedFrames,
    samples: recorded::Samples,
    /// Room for the bytes of slots.
    slots: Vec<u8>,
    pub(crate) monitors: recorded::Monitors,
}

impl<'a> Camera<'a> {
    /// `None` if the layout makes no sense.
    pub(crate) fn new(target: &'a Target<'a>) -> Option<Camera<'a>> {
        Some(Camera {
            target,
            table: Table::new(target)?,
            sampler: Sampler::default(),
            kernel_threads: KernelThreads::of(target.pid, target.stopped),
            unwinder: Unwinder::new(target.memory, target.modules),
            pages: Pages::new(target.memory),
            numbers: FxHashMap::default(),
            stacks: Vec::new(),
            frames: 0,
            python: Python::find(target.memory, target.modules),
            java: None,
            // A process that stands still may be a core file, of which the number is another's now.
            map: PerfMap::of(target.stopped.map_or(target.pid, |_| 0)),
            managed: ManagedFrames::default(),
            samples: recorded::Samples::default(),
            slots: Vec::new(),
            monitors: recorded::Monitors::default(),
        })
    }

    /// Returns the slots of the threads that `is_wanted` picks.
    pub(crate) fn slots(&mut self, is_wanted: &dyn Fn(&ThreadRecord) -> bool) -> Vec<Slot> {
        let mut slots = Vec::new();
        self.table.for_each(|slot| {
            if is_wanted(&slot.record) {
                slots.push(slot);
            }
        });
        slots
    }

    pub(crate) fn take(&mut self, first: &Slot) -> Captured {
        self.monitors.entered = None;
        let mut slot = *first;
        for _ in 0..TRIES {
            self.pages.clear();
            let (kind, stack) = if slot.is_on_cpu {
                self.on_carrier(&slot)
            } else {
                self.off_carrier(&slot)
            };
            let Some(later) = self
                .table
                .again(&slot)
                .filter(|it| it.record.tid == slot.record.tid)
            else {
                return without_stack(slot.record, Kind::Ended);
            };
            if slot.is_unmoved(&later) {
                return self.captured(&slot, kind, stack);
            }
            slot = later;
        }
        Captured {
            record: slot.record,
            kind: if slot.is_on_cpu {
                Kind::Running
            } else {
                Kind::Restless
            },
            stack: self.managed_alone(&slot),
            wait_lock: 0,
        }
    }

    /// Keeps equal stacks once.
    fn number(&mut self, stack: Stack) -> u32 {
        if let Some(&number) = self.numbers.get(&stack) {
            return number;
        }
        let mut stack = stack;
        self.frames += stack.frames.len();
        if self.frames > ALL_FRAMES_MAX && stack.frames.len() > FRAMES_LEFT {
            stack.frames = stack.frames.iter().take(FRAMES_LEFT).copied().collect();
            stack.managed = Box::default();
            stack.end = End::TooDeep;
            if let Some(&number) = self.numbers.get(&stack) {
                return number;
            }
        }
        let number = self.stacks.len() as u32;
        self.stacks.push(stack.clone());
        self.numbers.insert(stack, number);
        number
    }

    fn off_carrier(&mut self, slot: &Slot) -> (Kind, Option<Stack>) {
        let (kind, registers) = self.registers_off_carrier(slot);
        (
            kind,
            registers.map(|registers| self.stack(&slot.record, registers)),
        )
    }

    /// A thread that has left its carrier by a switch.
    pub(crate) fn registers_off_carrier(&mut self, slot: &Slot) -> (Kind, Option<Registers>) {
        let area = slot.save_area
            ..slot
                .save_area
                .saturating_add(self.target.layout.save_area_bytes);
        let Some((registers, is_new)) = self.switched_off(slot.context) else {
            return (Kind::Unreadable, None);
        };
        let kind = match () {
            () if is_new => Kind::New,
            () if slot.save_area != 0 && area.contains(&slot.context) => Kind::Preempted,
            () => Kind::Parked,
        };
        (kind, Some(registers))
    }

    fn stack(&mut self, record: &ThreadRecord, registers: Registers) -> Stack {
        let (frames, end) = self.unwinder.frames(registers, &mut self.pages);
        let managed = self.managed(record, &frames);
        Stack {
            frames: frames.into(),
            end,
            managed: managed.into(),
            monitor: 0,
        }
    }

    /// Returns the managed frames of a thread with these native ones.
    fn managed(&mut self, record: &ThreadRecord, frames: &[Frame]) -> Vec<ManagedAt> {
        let tid = record.tid;
        let pointers = &self.unwinder.pointers()[..frames.len()];
        let mut placed = Vec::new();
        if let Some(python) = &mut self.python {
            let runs = python.runs(tid, &mut self.managed);
            placed = place(runs, pointers, &python.by_code(frames));
        }
        placed.extend(self.java(record, frames));
        if placed.is_empty() {
            placed = self.mapped(frames);
        }
        self.blocks(frames, &mut placed);
        placed
    }

    /// Returns the Java frames of a thread: those of its memory, with the lines and locks that the
    /// virtual machine has said if it had the same stack then. Where the memory isn't understood,
    /// those that the virtual machine has said.
    fn java(&mut self, record: &ThreadRecord, frames: &[Frame]) -> Vec<ManagedAt> {
        let (tid, active) = (record.tid, record.switches);
        let methods: &[_] = match frames {
            [] => &[],
            _ => self.unwinder.methods(),
        };
        let said = self
            .java
            .and_then(|java| java.with_locks(tid, active, methods));
        let is_lost = |java: &&Java| methods.is_empty() || java.is_of_now(tid, active);
        if let Some(java) = self.java.filter(|java| said.is_none() && is_lost(java)) {
            let modules = self.target.modules;
            let (runs, at) = java.runs(tid, active, frames, modules, &mut self.managed);
            if !runs.is_empty() {
                return place(runs, &self.unwinder.pointers()[..frames.len()], &at);
            }
        }
        let found = methods
            .iter()
            .map(|(_, method)| ManagedFrame::clone(method));
        let found = said.unwrap_or_else(|| found.collect());
        let all = &mut self.managed;
        let pairs = methods.iter().zip(found);
        let number = |((position, _), frame): (&(u32, Rc<ManagedFrame>), ManagedFrame)| {
            Some(ManagedAt {
                frame: *position,
                managed: all.number(frame)?,
            })
        };
        pairs.filter_map(number).collect()
    }

    /// Returns the Java stack of a thread without a readable native one.
    fn managed_alone(&mut self, slot: &Slot) -> Option<u32> {
        let managed = match self.java {
            Some(_) => self.managed(&slot.record, &[]),
            None => Vec::new(),
        };
        if managed.is_empty() {
            return None;
        }
        Some(self.number(Stack {
            frames: Box::default(),
            end: End::Lost,
            managed: managed.into(),
            monitor: 0,
        }))
    }

    /// Returns the registers behind a switch, and whether the thread is new. `raddle_arch::switch`
    /// has a picture of the frame: control words, the address where the thread continues, rbp, rbx.
    /// Two instructions of one byte each pop the last two. r12 to r15 are where the tables say.
    pub(crate) fn switched_off(&mut self, context: u64) -> Option<(Registers, bool)> {
        switched_off(self.target, &mut self.pages, context)
    }

    fn on_carrier(&mut self, slot: &Slot) -> (Kind, Option<Stack>) {
        let Some((kernel_tid, before)) = self.carrier_of(slot) else {
            return (Kind::Running, None);
        };
        if before == Doing::Runs {
            return self.sampled(&slot.record, kernel_tid);
        }
        let (mut kind, registers) = self.registers_on_carrier(before);
        let tid = slot.record.tid;
        if let Some(call) = self.kernel_threads.stopped_call(kernel_tid, tid) {
            kind = Kind::InKernel(Some(call));
        }
        let stack = registers.map(|registers| self.stack(&slot.record, registers));
        match before {
            Doing::Waits(_) if self.kernel_threads.look(kernel_tid, slot.record.tid) != before => {
                self.sampled(&slot.record, kernel_tid)
            }
            _ => (kind, stack),
        }
    }

    /// Returns the kernel thread below a thread, and what that does.
    pub(crate) fn carrier_of(&self, slot: &Slot) -> Option<(u32, Doing)> {
        let own = slot
            .carrier
            .wrapping_add(self.target.layout.carrier_kernel_tid);
        let kernel_tid = self.target.memory.half(own).filter(|&tid| tid != 0)?;
        Some((
            kernel_tid,
            self.kernel_threads.look(kernel_tid, slot.record.tid),
        ))
    }

    /// A thread that is on a carrier: the kernel tells where, if that waits in the kernel.
    pub(crate) fn registers_on_carrier(&mut self, doing: Doing) -> (Kind, Option<Registers>) {
        let wait = match doing {
            Doing::Waits(wait) => wait,
            Doing::Stopped(registers) => return (Kind::Stopped, Some(registers)),
            Doing::Runs => return (Kind::Running, None),
            Doing::Unknown => return (Kind::Hidden, None),
        };
        /// rdi, rsi, rdx, r10, r8, r9 by their DWARF numbers, and their arguments. libc's `vfork`
        /// has its return address in rdi, since the child shares the stack.
        const ARGUMENTS: [(usize, usize); 6] = [(5, 0), (4, 1), (1, 2), (10, 3), (8, 4), (9, 5)];
        let mut registers: Registers = Default::default();
        if wait.call.is_some() {
            for (register, argument) in ARGUMENTS {
                registers[register] = Some(wait.arguments[argument]);
            }
        }
        registers[RSP] = Some(wait.stack_pointer);
        registers[RIP] = Some(wait.instruction_pointer);
        registers[RBP] = self.entry_frame(wait.stack_pointer, wait.instruction_pointer);
        let kind = if wait.is_vfork(self.target.memory) {
            Kind::LentToChild
        } else {
            Kind::InKernel(wait.call)
        };
        let registers = match kind {
            Kind::LentToChild => self.out_of_stub(registers),
            _ => registers,
        };
        (kind, Some(registers))
    }

    /// Returns the registers behind the stub that makes a call which borrows the memory: a stub
    /// leaves all registers as they are, so that libc's function still has its return address.
    fn out_of_stub(&mut self, registers: Registers) -> Registers {
        let code = self.target.layout.code.text_start..self.target.layout.code.text_end;
        if !registers[RIP].is_some_and(|it| code.contains(&it)) {
            return registers;
        }
        match self.unwinder.caller_of_leaf(&registers, &mut self.pages) {
            Some(next) => std::array::from_fn(|register| next[register].or(registers[register])),
            None => registers,
        }
    }

    /// A thread on a carrier that executes. The sample is the thread's, if it is on its carrier
    /// before and after. The runtime's signal handler may be on another stack than the thread's, so
    /// that a sample there ends in the handler: then the next one counts.
    fn sampled(&mut self, record: &ThreadRecord, kernel_tid: u32) -> (Kind, Option<Stack>) {
        let mut found = None;
        for _ in 0..TRIES {
            let Some(sample) = self.sample_of(kernel_tid) else {
                break;
            };
            let stack = found.insert(self.stack_of_sample(record, &sample));
            if !self.ends_in_runtime(stack) {
                break;
            }
        }
        match found {
            Some(stack) => (Kind::Sampled, Some(stack)),
            None => (Kind::Running, None),
        }
    }

    /// Takes a sample of a carrier that executes.
    pub(crate) fn sample_of(&mut self, kernel_tid: u32) -> Option<Sample> {
        self.sampler.take(self.kernel_threads.here(kernel_tid))
    }

    fn ends_in_runtime(&self, stack: &Stack) -> bool {
        let code = self.target.layout.code.text_start..self.target.layout.code.text_end;
        let is_in_runtime = |frame: &Frame| code.contains(&frame.inside());
        stack.end == End::Lost && stack.frames.last().is_some_and(is_in_runtime)
    }

    /// Returns the stack of a sample that a thread's carrier has given.
    fn stack_of_sample(&mut self, record: &ThreadRecord, sample: &Sample) -> Stack {
        let memory = sample.stack.and(self.target.memory);
        let mut pages = Pages::new(&memory);
        let (frames, end) = self.unwinder.frames(sample.registers, &mut pages);
        self.samples.all += 1;
        self.samples.deep += u64::from(memory.is_deep());
        let managed = self.managed(record, &frames);
        Stack {
            frames: frames.into(),
            end,
            managed: managed.into(),
            monitor: 0,
        }
    }

    /// Returns the frame pointer of an entry that passes its call to the kernel: the entry has
    /// pushed seven words below its frame pointer, or twelve if a handler has seen the call, and
    /// may have aligned the stack pointer since.
    fn entry_frame(&mut self, pointer: u64, address: u64) -> Option<u64> {
        if address != self.target.layout.code.pass_end {
            return None;
        }
        let code = self.target.layout.code.text_start..self.target.layout.code.text_end;
        [56, 64, 96, 104].into_iter().find_map(|above| {
            let frame = pointer.checked_add(above)?;
            let returns = self.pages.word(frame.checked_add(8)?)?;
            code.contains(&returns).then_some(frame)
        })
    }
}

/// See [`Camera::switched_off`]; the frame is read through `pages`.
fn switched_off(
    target: &Target<'_>,
    pages: &mut Pages<'_>,
    context: u64,
) -> Option<(Registers, bool)> {
    const POPS: u64 = 2;
    let mut word = |number: u64| pages.word(context.checked_add(number * 8)?);
    let mut registers: Registers = Default::default();
    let at = word(1)?;
    if at == target.layout.code.child_start {
        /// Where `raddle_arch::ChildRegisters` has rbx, rbp, r12 to r15, and the stub.
        const SAVED: [(usize, u64); 7] = [
            (RBX, 6),
            (RBP, 7),
            (12, 8),
            (13, 9),
            (14, 10),
            (15, 11),
            (RIP, 12),
        ];
        for (register, number) in SAVED {
            registers[register] = Some(word(2 + number)?);
        }
        registers[RSP] = context.checked_add((2 + 13) * 8);
        return Some((registers, true));
    }
    registers[RBP] = Some(word(2)?);
    registers[RBX] = Some(word(3)?);
    registers[RSP] = context.checked_add(4 * 8);
    registers[RIP] = at.checked_add(POPS);
    Some((registers, false))
}

fn without_stack(record: ThreadRecord, kind: Kind) -> Captured {
    Captured {
        record,
        kind,
        stack: None,
        wait_lock: 0,
    }
}
