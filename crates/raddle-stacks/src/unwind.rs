//! The frames of a stack, from the inside out.
//!
//! Frames that the unwind tables give are exact, if all registers are that the tables use: a
//! register that isn't known stays unknown until a frame restores it. Where no table covers the
//! code, or an unknown register is needed, the next frame is *guessed*: the nearest word on the
//! stack that an executed call can have left there. All frames found through a guess are marked.

use std::collections::HashMap;
use std::rc::Rc;

use crate::java::{HotSpot, Monitor, MonitorObjects, WantedMonitor};
use crate::managed::ManagedFrame;
use crate::memory::{Memory, Pages};
use crate::modules::Modules;
use crate::rules::{RBP, RIP, RSP, Registers, Rules};

/// The most frames of one stack.
pub const FRAMES_MAX: usize = 1024;
/// The most Java methods of one stack.
const METHODS_MAX: usize = 1 << 14;
/// How far a guess looks, in bytes.
const GUESS: u64 = 4096;
/// The most guesses of one stack: a stack of rubbish must not take long.
const GUESSES_MAX: usize = 64;
/// The most bytes of a frame that a guess believes in.
const FRAME_BYTES_MAX: u64 = 1 << 20;
/// The most answers of [`Unwinder::follows_call`] that are kept.
const CALLS_MAX: usize = 1 << 18;

/// One call that hasn't returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Frame {
    /// The address at which it goes on.
    pub address: u64,
    /// True if it waits for a call to return: the call's instruction ends at the address.
    pub is_return: bool,
    /// True if it is the end of a signal handler's call: the next frame was interrupted.
    pub is_signal: bool,
    /// True if this frame, or one further in, was guessed.
    pub is_guessed: bool,
}

impl Frame {
    /// Returns an address inside the instruction that the frame is at, for its line and rules. A
    /// call may be a function's last instruction: it returns to the next function.
    pub fn inside(&self) -> u64 {
        self.address.wrapping_sub(u64::from(self.is_return))
    }
}

/// Why a stack ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum End {
    /// The tables say that the function has no caller.
    Outermost,
    /// No further frame was found.
    Lost,
    /// There are more than [`FRAMES_MAX`].
    TooDeep,
}

/// How often a virtual machine that starts is looked for before the usual time.
const LOOKS: u32 = 50;

/// What a process's stacks are unwound with.
pub(crate) struct Unwinder<'a> {
    memory: &'a dyn Memory,
    modules: &'a Modules,
    rules: Rules,
    calls: HashMap<u64, bool>,
    /// The stack pointers of the frames that were found last.
    pointers: Vec<u64>,
    java: Option<HotSpot<'a>>,
    /// How often HotSpot may still be looked for before the usual time: its library is mapped.
    looks_left: u32,
    /// The Java methods of the frames that were found last, with the frames' positions.
    methods: Vec<(u32, Rc<ManagedFrame>)>,
}

impl<'a> Unwinder<'a> {
    pub(crate) fn new(memory: &'a dyn Memory, modules: &'a Modules) -> Unwinder<'a> {
        Unwinder {
            memory,
            modules,
            rules: Rules::default(),
            calls: HashMap::new(),
            pointers: Vec::new(),
            java: HotSpot::find(memory, modules),
            looks_left: if HotSpot::is_mapped(modules) {
                LOOKS
            } else {
                0
            },
            methods: Vec::new(),
        }
    }

    /// Reads what the virtual machine may have changed again.
    pub(crate) fn renew(&mut self) {
        match &mut self.java {
            Some(java) => java.renew(),
            None => {
                self.java = HotSpot::find(self.memory, self.modules);
                self.looks_left = self.looks_left.saturating_sub(1);
            }
        }
    }

    /// Returns true if there may be a virtual machine that has only begun to start: it makes sense
    /// soon, or never.
    pub(crate) fn expects_java(&self) -> bool {
        self.java.is_none() && self.looks_left != 0
    }

    /// Returns the Java methods of the frames that [`Unwinder::frames`] found last, from the inside
    /// out, with the positions of the frames that execute them.
    pub(crate) fn methods(&self) -> &[(u32, Rc<ManagedFrame>)] {
        &self.methods
    }

    /// Returns the name that HotSpot gives to a block of code that is no method.
    pub(crate) fn block_name(&mut self, inside: u64) -> Option<String> {
        self.java.as_mut()?.block_name(inside)
    }

    /// Returns the monitor of Java that a thread wants. Only a thread of which the last frames had
    /// methods is looked at.
    pub(crate) fn wanted_monitor(&mut self, tid: u32) -> Option<WantedMonitor> {
        if self.methods.is_empty() {
            return None;
        }
        self.java.as_mut()?.wanted_monitor(tid)
    }

    /// Returns what is known of a monitor of Java.
    pub(crate) fn monitor(&mut self, address: u64) -> Option<Monitor> {
        self.java.as_mut()?.monitor(address)
    }

    /// Returns the thread that has entered a monitor of Java.
    pub(crate) fn monitor_owner(&mut self, address: u64) -> Option<u32> {
        self.java.as_mut()?.monitor_owner(address)
    }

    /// Returns the number of the object of a monitor of Java, or 0.
    pub(crate) fn object_number(&mut self, objects: &mut MonitorObjects, address: u64) -> u32 {
        let java = self.java.as_mut();
        java.map_or(0, |java| java.object_number(objects, address))
    }

    /// Returns the stack pointer of each frame that [`Unwinder::frames`] found last: what a frame
    /// keeps on the stack is from its own pointer up to its caller's.
    pub(crate) fn pointers(&self) -> &[u64] {
        &self.pointers
    }

    /// Finds the frames of code with these registers. The stack is read through `pages`.
    pub(crate) fn frames(
        &mut self,
        registers: Registers,
        pages: &mut Pages<'_>,
    ) -> (Vec<Frame>, End) {
        let mut frames = Vec::new();
        let mut registers = registers;
        let mut guesses = 0;
        self.pointers.clear();
        self.methods.clear();
        let Some(address) = registers[RIP] else {
            return (frames, End::Lost);
        };
        let mut frame = Frame {
            address,
            is_return: false,
            is_signal: false,
            is_guessed: false,
        };
        if !self.modules.is_code(address) {
            self.modules.note_stray(address);
        }
        while frames.len() < FRAMES_MAX {
            let row = self.rules.at(frame.inside(), self.modules, self.memory);
            let is_interrupted = row.as_ref().is_some_and(|row| row.is_signal_frame);
            frame.is_signal = is_interrupted;
            frames.push(frame);
            self.pointers.push(registers[RSP].unwrap_or(0));
            if row.as_ref().is_some_and(|row| row.is_outermost) {
                return (frames, End::Outermost);
            }
            let has_rules = row.is_some();
            let known = row.and_then(|row| row.caller(&registers, &mut |at| pages.word(at)));
            let is_leaf = !frame.is_return;
            let known = known.filter(|next| {
                self.goes_on(&registers, next, is_interrupted)
                    || is_leaf && self.goes_on_beside(&registers, next)
            });
            let known = known.or_else(|| self.java_caller(frames.len(), &frame, &registers, pages));
            let (next, is_guess) = match known {
                Some(next) => (next, false),
                None if guesses == GUESSES_MAX => return (frames, End::Lost),
                None => match self.guess(&registers, has_rules, pages) {
                    Some(next) => (next, true),
                    None => return (frames, End::Lost),
                },
            };
            frame = Frame {
                address: next[RIP].unwrap_or(0),
                is_return: is_guess || !is_interrupted,
                is_signal: false,
                is_guessed: frame.is_guessed || is_guess,
            };
            guesses += usize::from(is_guess);
            registers = next;
        }
        (frames, End::TooDeep)
    }

    /// Returns the registers of the caller of code with these registers, if the tables say so, and
    /// whether it was interrupted. `inside` is an address in the instruction that the code is at.
    pub(crate) fn caller(
        &mut self,
        registers: &Registers,
        inside: u64,
        pages: &mut Pages<'_>,
    ) -> Option<(Registers, bool)> {
        let row = self.rules.at(inside, self.modules, self.memory)?;
        if row.is_outermost {
            return None;
        }
        let next = row.caller(registers, &mut |at| pages.word(at))?;
        let is_interrupted = row.is_signal_frame;
        let is_leaf = registers[RIP] == Some(inside);
        let goes_on = self.goes_on(registers, &next, is_interrupted)
            || is_leaf && self.goes_on_beside(registers, &next);
        goes_on.then_some((next, is_interrupted))
    }

    /// As [`Unwinder::caller`], of a frame that has nothing on the stack.
    pub(crate) fn caller_of_leaf(
        &mut self,
        registers: &Registers,
        pages: &mut Pages<'_>,
    ) -> Option<Registers> {
        let row = self.rules.at(registers[RIP]?, self.modules, self.memory)?;
        let next = row.caller(registers, &mut |at| pages.word(at))?;
        self.goes_on_beside(registers, &next).then_some(next)
    }

    /// Returns true if these can be the caller's registers of a frame that has called nothing and
    /// has nothing on the stack: libc's `vfork`, the stub that it jumps to, and a stub in which
    /// handlers find a call.
    fn goes_on_beside(&self, registers: &Registers, next: &Registers) -> bool {
        let is_same = next[RSP].is_some() && next[RSP] == registers[RSP];
        let is_elsewhere = next[RIP] != registers[RIP];
        is_same && is_elsewhere && next[RIP].is_some_and(|at| self.modules.is_code(at))
    }

    /// Returns the caller's registers of the newest of so many frames, if that is in code that
    /// HotSpot has made; and notes its methods.
    fn java_caller(
        &mut self,
        count: usize,
        frame: &Frame,
        registers: &Registers,
        pages: &mut Pages<'_>,
    ) -> Option<Registers> {
        if self.modules.has_file(frame.inside()) {
            return None;
        }
        let step = self.java.as_mut()?.step(frame, registers, pages)?;
        if !self.goes_on(registers, &step.caller, false) {
            return None;
        }
        let position = count as u32 - 1;
        let room = METHODS_MAX.saturating_sub(self.methods.len());
        let methods = step.methods.iter().take(room);
        let methods = methods.map(|method| (position, method.clone()));
        self.methods.extend(methods);
        Some(step.caller)
    }

    /// Returns true if these can be the caller's registers: in code, and further up on the same
    /// stack, unless a signal came in between: its handler may have another stack.
    fn goes_on(&self, registers: &Registers, next: &Registers, is_interrupted: bool) -> bool {
        let (Some(address), Some(to)) = (next[RIP], next[RSP]) else {
            return false;
        };
        let is_above = registers[RSP].is_none_or(|from| to > from);
        let inside = address.wrapping_sub(u64::from(!is_interrupted));
        let is_code = self.modules.is_code(inside);
        if !is_code {
            self.modules.note_stray(inside);
        }
        (is_interrupted || is_above) && is_code
    }

    /// Guesses the caller: by the frame pointer where there are no rules, because most compilers at
    /// run time keep it; or the nearest word on the stack a call can have left. A frame pointer
    /// that was saved before it, and points further up, becomes known, too.
    fn guess(
        &mut self,
        registers: &Registers,
        has_rules: bool,
        pages: &mut Pages<'_>,
    ) -> Option<Registers> {
        let from = registers[RSP]?.checked_next_multiple_of(8)?;
        if !has_rules && let Some(next) = self.by_frame_pointer(registers, from, pages) {
            return Some(next);
        }
        let mut slots = (from..from.saturating_add(GUESS)).step_by(8);
        let (at, address) = slots.find_map(|at| {
            let address = pages.word(at)?;
            self.follows_call(address).then_some((at, address))
        })?;
        let saved = at.checked_sub(8).filter(|&below| below >= from);
        let saved = saved.and_then(|below| pages.word(below));
        let mut next: Registers = Default::default();
        next[RBP] = saved.filter(|&up| up > at && up - at < FRAME_BYTES_MAX);
        next[RSP] = at.checked_add(8);
        next[RIP] = Some(address);
        Some(next)
    }

    /// Returns the caller's registers if the frame pointer is one: behind the saved one is the
    /// address of a return.
    fn by_frame_pointer(
        &mut self,
        registers: &Registers,
        from: u64,
        pages: &mut Pages<'_>,
    ) -> Option<Registers> {
        let pointer = registers[RBP].filter(|at| at.is_multiple_of(8))?;
        let is_near = pointer.checked_sub(from)? < FRAME_BYTES_MAX;
        let address = pages.word(pointer.checked_add(8)?)?;
        // HotSpot's interpreter writes return addresses itself.
        let is_without_file = self.modules.is_code(address) && !self.modules.has_file(address);
        let returns = is_without_file || self.follows_call(address);
        (is_near && returns).then_some(())?;
        let mut next: Registers = Default::default();
        next[RBP] = pages.word(pointer);
        next[RSP] = pointer.checked_add(16);
        next[RIP] = Some(address);
        Some(next)
    }

    /// Returns true if a call can have returned to the address: a call instruction ends before it.
    fn follows_call(&mut self, address: u64) -> bool {
        if !self.modules.is_code(address.wrapping_sub(1)) {
            return false;
        }
        if let Some(&follows) = self.calls.get(&address) {
            return follows;
        }
        if self.calls.len() == CALLS_MAX {
            self.calls.clear();
        }
        let mut bytes = [0; 7];
        let read = self.memory.read_all(address.wrapping_sub(7), &mut bytes);
        let follows = read.is_some() && is_call(&bytes);
        self.calls.insert(address, follows);
        follows
    }
}

/// Returns true if a call ends the bytes: a relative one; or one through a register or memory,
/// `ff /2` in its lengths.
fn is_call(bytes: &[u8; 7]) -> bool {
    let indirect = |length: usize| bytes[7 - length] == 0xff && bytes[8 - length] & 0x38 == 0x10;
    bytes[2] == 0xe8 || [2, 3, 4, 6, 7].into_iter().any(indirect)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_told_from_other_instructions() {
        assert!(is_call(&[0x90, 0x90, 0xe8, 1, 2, 3, 4]));
        assert!(is_call(&[0x90, 0x90, 0x90, 0x90, 0x90, 0xff, 0xd0])); // call rax
        assert!(is_call(&[0x90, 0xff, 0x15, 1, 2, 3, 4])); // call [rip + x]
        assert!(is_call(&[0x90, 0x90, 0x90, 0x90, 0x41, 0xff, 0xd4])); // call r12
        assert!(!is_call(&[0x90; 7]));
        assert!(!is_call(&[0x90, 0x90, 0x90, 0x90, 0x90, 0xff, 0xe0])); // jmp rax
    }
}
