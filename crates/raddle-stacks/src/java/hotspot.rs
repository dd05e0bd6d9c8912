//! Java frames from the memory of a process with HotSpot, which neither helps nor stops: so those of
//! a virtual machine that hangs, of one without its attach service, and of a core file, too.
//!
//! HotSpot says by itself where its structures have their fields ([`structs`]). By these,
//! [`HotSpot::step`] finds the caller of a frame in code that HotSpot has made. The unwinder asks it
//! where no unwind table covers the code, so that native and Java frames come in their order.
//!
//! | code | its frame |
//! |---|---|
//! | the interpreter | by rbp: below it are the caller's stack pointer, the method and the byte of its code |
//! | a compiled method, a wrapper around a native one, a stub with a frame | as large as its block of code says; the caller's rbp and the return address are at its end |
//! | the stub by which native code calls Java | by rbp; below it are the registers that native code preserves |
//!
//! A compiled method has others inlined: for each call, it keeps a list of them. A frame that is to
//! be interpreted from now on returns to a handler, and has its own address beside it. The outermost
//! frame of a virtual thread's part of the stack returns to a stub instead of the thread's entry.
//!
//! A caller counts only if it is in a block of code in use. Otherwise the frame is left to the
//! unwinder's guesses. All counts, distances and names have limits.

mod code;
mod compressed;
mod methods;
mod offsets;
mod structs;
#[cfg(test)]
mod tests;

use std::ops::Range;
use std::rc::Rc;

use code::{Blob, CodeHeaps, Position, Scopes};
use methods::Methods;
use offsets::Offsets;
use structs::Structs;

use crate::exports::Exports;
use crate::managed::ManagedFrame;
use crate::memory::{Memory, Pages};
use crate::modules::Modules;
use crate::rules::{RBP, RBX, RIP, RSP, Registers};
use crate::unwind::Frame;

/// The most bytes of a frame.
const FRAME_BYTES_MAX: u64 = 1 << 20;
/// What the interpreter has below rbp, on x86-64 from JDK 9 on.
const SENDER: u64 = 8;
const METHOD: u64 = 24;
const BYTE_CODE: u64 = 64;
/// The register in which the interpreter has the address of its byte code.
const R13: usize = 13;
/// What the stub by which native code calls Java has below rbp, by DWARF numbers.
const PRESERVED: [(usize, u64); 5] = [(RBX, 56), (12, 64), (13, 72), (14, 80), (15, 88)];

/// HotSpot in a process.
pub(crate) struct HotSpot<'a> {
    memory: &'a dyn Memory,
    offsets: Offsets,
    heaps: CodeHeaps,
    interpreter: Range<u64>,
    /// Where calls of Java by native code return to.
    call_stub: u64,
    methods: Methods,
}

/// A frame in code that HotSpot has made.
pub(crate) struct Step {
    pub caller: Registers,
    /// The methods that it executes, the innermost inlined one first.
    pub methods: Vec<Rc<ManagedFrame>>,
}

impl<'a> HotSpot<'a> {
    /// Finds HotSpot in a process. `None` if there is none of a version that is understood.
    pub(crate) fn find(memory: &'a dyn Memory, modules: &Modules) -> Option<HotSpot<'a>> {
        let mut modules = modules.modules.iter();
        let library = modules.find(|module| module.name() == "libjvm.so")?;
        let exports = Exports::of(memory, library.start())?;
        let structs = Structs::of(memory, &exports)?;
        let major = structs.address("Abstract_VM_Version._vm_major_version")?;
        HotSpot::with(memory, Offsets::of(&structs, memory.half(major)?)?)
    }

    fn with(memory: &'a dyn Memory, offsets: Offsets) -> Option<HotSpot<'a>> {
        let queue = memory.word(offsets.interpreter)?;
        let start = memory.word(queue.checked_add(offsets.queue_start)?)?;
        let bytes = memory.half(queue.checked_add(offsets.queue_bytes)?)?;
        Some(HotSpot {
            memory,
            heaps: CodeHeaps::read(memory, &offsets)?,
            interpreter: start..start.checked_add(bytes.into())?,
            call_stub: memory.word(offsets.call_stub_return)?,
            methods: Methods::default(),
            offsets,
        })
    }

    /// Returns the caller of a frame with these registers; `None` if the frame isn't in HotSpot's
    /// code, or makes no sense.
    pub(crate) fn step(
        &mut self,
        frame: &Frame,
        registers: &Registers,
        pages: &mut Pages<'_>,
    ) -> Option<Step> {
        let address = frame.address;
        if address == self.call_stub {
            return self.call_stub(registers, pages);
        }
        if self.interpreter.contains(&frame.inside()) {
            return self.interpreted(frame, registers, pages);
        }
        let blob = self.blob(frame.inside())?;
        self.compiled(&blob, frame, registers, pages)
    }

    fn blob(&mut self, inside: u64) -> Option<Rc<Blob>> {
        self.heaps.find(self.memory, &self.offsets, inside)
    }

    /// Native code has called Java.
    fn call_stub(&self, registers: &Registers, pages: &mut Pages<'_>) -> Option<Step> {
        let mut caller = self.by_frame_pointer(registers, pages)?;
        let pointer = registers[RBP]?;
        for (register, below) in PRESERVED {
            caller[register] = pages.word(pointer.checked_sub(below)?);
        }
        let methods = Vec::new();
        Some(Step { caller, methods })
    }

    fn interpreted(
        &mut self,
        frame: &Frame,
        registers: &Registers,
        pages: &mut Pages<'_>,
    ) -> Option<Step> {
        let mut caller = self.by_frame_pointer(registers, pages)?;
        let pointer = registers[RBP]?;
        let mut field = |below: u64| pages.word(pointer.checked_sub(below)?);
        let (address, at, sender) = (field(METHOD)?, field(BYTE_CODE), field(SENDER)?);
        // A compiled caller's frame ends where the call began; arguments may have moved since.
        let is_near = sender.checked_sub(pointer)? < FRAME_BYTES_MAX;
        caller[RSP] = Some(sender).filter(|_| is_near && sender != pointer);
        caller[RSP]?;
        self.is_made(&mut caller)?;
        let method = self.methods.find(self.memory, &self.offsets, address)?;
        let here = registers[R13].filter(|_| !frame.is_return);
        let mut places = here.into_iter().chain(at);
        let at = places.find(|at| method.code.contains(at) && !method.is_native);
        let byte = at.map(|at| (at - method.code.start) as u32);
        let position = Position {
            method: address,
            byte,
        };
        let methods = vec![self.named(position)?];
        Some(Step { caller, methods })
    }

    fn compiled(
        &mut self,
        blob: &Blob,
        frame: &Frame,
        registers: &Registers,
        pages: &mut Pages<'_>,
    ) -> Option<Step> {
        let complete = blob.frame_complete.and_then(|it| blob.code.checked_add(it));
        let has_frame = frame.is_return || complete.is_some_and(|at| frame.address >= at);
        if !has_frame || blob.frame_bytes < 16 {
            return None;
        }
        let pointer = registers[RSP]?;
        let end = pointer.checked_add(blob.frame_bytes)?;
        let mut caller = Registers::default();
        caller[RSP] = Some(end);
        caller[RIP] = pages.word(end - 8);
        caller[RBP] = pages.word(end - 16);
        self.is_made(&mut caller)?;
        let mut methods = Vec::new();
        if blob.is_method() {
            let scopes = Scopes {
                memory: self.memory,
                offsets: &self.offsets,
            };
            let mut address = frame.address;
            if frame.is_return && scopes.is_handler(blob, address) {
                // The frame is to be interpreted: its own address is beside it.
                let field = blob.start.checked_add(self.offsets.compiled.original?)?;
                let original = u64::from(self.memory.half(field)?);
                address = pages.word(pointer.checked_add(original)?)?;
            }
            for position in scopes.at(blob, address)? {
                methods.push(self.named(position)?);
            }
        }
        Some(Step { caller, methods })
    }

    fn named(&mut self, position: Position) -> Option<Rc<ManagedFrame>> {
        let Position { method, byte } = position;
        self.methods.frame(self.memory, &self.offsets, method, byte)
    }

    /// Returns the registers of the caller of code that has its frame pointer in rbp.
    fn by_frame_pointer(&self, registers: &Registers, pages: &mut Pages<'_>) -> Option<Registers> {
        let pointer = registers[RBP].filter(|at| at.is_multiple_of(8))?;
        let is_near = pointer.checked_sub(registers[RSP]?)? < FRAME_BYTES_MAX;
        let mut caller = Registers::default();
        caller[RBP] = pages.word(pointer);
        caller[RIP] = pages.word(pointer.checked_add(8)?);
        caller[RSP] = pointer.checked_add(16);
        is_near.then_some(caller)
    }

    /// Checks that a caller is in code that HotSpot has made. The entry of a virtual thread takes
    /// the place of the stub that its frames return to.
    fn is_made(&mut self, caller: &mut Registers) -> Option<()> {
        let address = caller[RIP]?;
        if address == self.call_stub || self.interpreter.contains(&address.wrapping_sub(1)) {
            return Some(());
        }
        let blob = self.blob(address.wrapping_sub(1))?;
        if blob.name.contains("ontinuation")
            && let Some(entry) = self.offsets.continuation_return
        {
            caller[RIP] = Some(self.memory.word(entry)?);
        }
        Some(())
    }
}
