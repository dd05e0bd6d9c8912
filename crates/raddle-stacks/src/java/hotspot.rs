//! Java frames from the memory of a process with HotSpot, which neither helps nor stops: so those
//! of a virtual machine that hangs, of one without its attach service, and of a core file, too.
//!
//! HotSpot says by itself where its structures have their fields ([`structs`]). By these,
//! [`HotSpot::step`] finds the caller of a frame in code that HotSpot has made. The unwinder asks
//! it where no unwind table covers the code, so that native and Java frames come in their order.
//!
//! - A frame of the interpreter is found by rbp. Below rbp are the caller's stack pointer, the
//!   method and the byte of its code.
//! - A frame of a compiled method, a wrapper around a native one, or a stub is as large as its
//!   block of code says. The caller's rbp and the return address are at its end.
//! - A frame of the stub by which native code calls Java is found by rbp. Below rbp are the
//!   registers that native code preserves.
//!
//! A compiled method has others inlined: for each call, it keeps a list of them. A frame that is to
//! be interpreted from now on returns to a handler, and has its own address beside it. The
//! outermost frame of a virtual thread's part of the stack returns to a stub instead of the
//! thread's entry.
//!
//! A caller counts only if it is in a block of code in use. Otherwise the frame is left to the
//! unwinder's guesses. All counts, distances and names have limits.

mod code;
mod compressed;
mod flags;
mod methods;
mod monitors;
mod objects;
mod offsets;
mod structs;
mod synchronizers;
#[cfg(test)]
mod tests;
mod watched;

use std::collections::HashMap;
use std::ops::Range;
use std::rc::Rc;

pub(crate) use flags::flag;
pub use monitors::Monitor;
pub(crate) use monitors::WantedMonitor;
pub use objects::MonitorObjects;
pub(crate) use watched::{WatchedLock, WatchedMachine};

use code::{Blob, CodeHeaps, Position, Scopes};
use methods::Methods;
use monitors::{Fields, Monitors, Reader};
use offsets::Offsets;
use structs::Structs;
use synchronizers::Synchronizers;

use crate::exports::Exports;
use crate::managed::ManagedFrame;
use crate::memory::{Memory, Pages};
use crate::modules::{Module, Modules};
use crate::rules::{RBP, RBX, RIP, RSP, Registers};
use crate::unwind::Frame;

/// A note at the outermost frame of a virtual thread that is on a stack.
const CUT: &str = "further frames of the virtual thread may be in the heap";
/// The most places of compiled code that are kept, and methods at all of them.
const PLACES_MAX: usize = 1 << 16;
const PLACED_MAX: usize = 1 << 20;
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
    /// The methods at places of compiled code, by their addresses.
    places: HashMap<u64, Rc<[Rc<ManagedFrame>]>>,
    /// How many methods are at these.
    placed: usize,
    /// The code by which virtual threads are entered, once it was looked for.
    entry: Option<Option<u64>>,
    /// Where monitors are noted; `None` if that is not understood.
    fields: Option<Fields>,
    monitors: Monitors,
    /// Where locks of `java.util.concurrent` are noted; `None` if that is not understood.
    synchronizers: Option<Synchronizers>,
}

/// A frame in code that HotSpot has made.
pub(crate) struct Step {
    pub caller: Registers,
    /// The methods that it executes, the innermost inlined one first.
    pub methods: Rc<[Rc<ManagedFrame>]>,
}

impl Step {
    fn new(caller: Registers, methods: Rc<[Rc<ManagedFrame>]>, is_cut: bool) -> Step {
        let methods = match methods.split_last() {
            Some((last, before)) if is_cut => {
                let mut last = ManagedFrame::clone(last);
                last.notes.push(CUT.into());
                before.iter().cloned().chain([Rc::new(last)]).collect()
            }
            _ => methods,
        };
        Step { caller, methods }
    }
}

fn library(modules: &Modules) -> Option<&Module> {
    let mut modules = modules.modules.iter();
    modules.find(|module| module.name() == "libjvm.so")
}

impl<'a> HotSpot<'a> {
    /// Finds HotSpot in a process. `None` if there is none of a version that is understood.
    pub(crate) fn find(memory: &'a dyn Memory, modules: &Modules) -> Option<HotSpot<'a>> {
        let library = library(modules)?;
        let exports = Exports::of(memory, library.start())?;
        let structs = Structs::of(memory, &exports)?;
        let major = structs.address("Abstract_VM_Version._vm_major_version")?;
        let major = memory.half(major)?;
        // Other collectors move objects while threads execute.
        let collectors = ["UseSerialGC", "UseParallelGC", "UseG1GC"];
        let is_moved_at_stops = flags::is_one_on(memory, &structs, &collectors) == Some(true);
        let has_numbers = flags::is_one_on(memory, &structs, &["UseCompressedOops"]);
        let of = |has_numbers: bool| Synchronizers::of(&structs, has_numbers);
        Some(HotSpot {
            synchronizers: has_numbers.and_then(of),
            fields: Fields::of(&structs, major, is_moved_at_stops),
            ..HotSpot::with(memory, Offsets::of(&structs, major)?)?
        })
    }

    /// Returns true if the process has HotSpot's library.
    pub(crate) fn is_mapped(modules: &Modules) -> bool {
        library(modules).is_some()
    }

    /// Reads where compiled code is again: there is more of it by now, and other code in places of
    /// which methods are known.
    pub(crate) fn renew(&mut self) {
        if let Some(heaps) = CodeHeaps::read(self.memory, &self.offsets) {
            self.heaps = heaps;
        }
        self.forget_places();
        self.entry = None;
        self.monitors.renew();
    }

    /// Returns the monitor that a thread wants.
    pub(crate) fn wanted_monitor(&mut self, tid: u32) -> Option<WantedMonitor> {
        self.with_monitors(|monitors, reader| monitors.wanted(reader, tid))
    }

    /// Returns what is known of the monitor at an address.
    pub(crate) fn monitor(&mut self, address: u64) -> Option<Monitor> {
        self.with_monitors(|monitors, reader| Some(monitors.monitor(reader, address)))
    }

    /// Returns the thread that has entered the monitor at an address.
    pub(crate) fn monitor_owner(&mut self, address: u64) -> Option<u32> {
        self.with_monitors(|monitors, reader| monitors.owner(reader, address))
    }

    /// Returns the number of the object of the monitor at an address, or 0.
    pub(crate) fn object_number(&mut self, objects: &mut MonitorObjects, address: u64) -> u32 {
        let number = self.with_monitors(|monitors, reader| {
            let class = || monitors.class(reader, address);
            Some(objects.number(reader.observed(address)?, class))
        });
        number.unwrap_or(0)
    }

    fn with_monitors<T>(
        &mut self,
        act: impl FnOnce(&mut Monitors, &Reader<'_>) -> Option<T>,
    ) -> Option<T> {
        let reader = Reader {
            memory: self.memory,
            fields: self.fields.as_ref()?,
            offsets: &self.offsets,
        };
        act(&mut self.monitors, &reader)
    }

    fn forget_places(&mut self) {
        self.places.clear();
        self.placed = 0;
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
            places: HashMap::new(),
            placed: 0,
            entry: None,
            fields: None,
            monitors: Monitors::default(),
            synchronizers: None,
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
        if blob.frame_bytes == 0 && !blob.is_method() {
            return self.stub(&blob, frame, registers, pages);
        }
        self.compiled(&blob, frame, registers, pages)
    }

    /// Returns HotSpot's own name for a block of code that is no method: a routine or a stub.
    pub(crate) fn block_name(&mut self, inside: u64) -> Option<String> {
        let blob = self.blob(inside)?;
        (!blob.is_method() && !blob.name.is_empty()).then(|| blob.name.clone())
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
        Some(Step::new(caller, Rc::default(), false))
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
        let is_cut = self.is_made(&mut caller)?;
        let method = self.methods.find(self.memory, &self.offsets, address)?;
        let here = registers[R13].filter(|_| !frame.is_return);
        let mut places = here.into_iter().chain(at);
        let at = places.find(|at| method.code.contains(at) && !method.is_native);
        let byte = at.map(|at| (at - method.code.start) as u32);
        let position = Position {
            method: address,
            byte,
        };
        let methods = Rc::new([self.named(position)?]);
        Some(Step::new(caller, methods, is_cut))
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
        let is_cut = self.is_made(&mut caller)?;
        let mut address = frame.address;
        if frame.is_return && blob.is_handler(address) {
            // The frame's own address is beside it.
            let field = blob.start.checked_add(self.offsets.compiled.original?)?;
            let original = u64::from(self.memory.half(field)?);
            address = pages.word(pointer.checked_add(original)?)?;
        }
        let methods = self.methods_at(blob, address)?;
        Some(Step::new(caller, methods, is_cut))
    }

    /// A routine in a block of several, which says nothing of its frame: the copy of an array, a
    /// sine. Such routines have rbp as their frame pointer behind their first two instructions. The
    /// call before the return address must lead to this block.
    fn stub(
        &mut self,
        blob: &Blob,
        frame: &Frame,
        registers: &Registers,
        pages: &mut Pages<'_>,
    ) -> Option<Step> {
        let pointer = registers[RSP]?;
        let mut candidates = Vec::new();
        if !frame.is_return {
            candidates.push((Some(pointer), registers[RBP]));
            candidates.push((pointer.checked_add(8), pages.word(pointer)));
        }
        let saved = registers[RBP].filter(|at| at.wrapping_sub(pointer) < FRAME_BYTES_MAX);
        if let Some(saved) = saved {
            candidates.push((saved.checked_add(8), pages.word(saved)));
        }
        for (at, saved) in candidates {
            let Some(address) = at.and_then(|at| pages.word(at)) else {
                continue;
            };
            if self.calls(address, blob.code..frame.address) {
                let mut caller = Registers::default();
                caller[RSP] = at?.checked_add(8);
                caller[RIP] = Some(address);
                caller[RBP] = saved;
                let is_cut = self.is_made(&mut caller)?;
                return Some(Step::new(caller, Rc::default(), is_cut));
            }
        }
        None
    }

    /// Returns true if a call that returns to this address leads to code in the range, or to its
    /// end. Compiled code calls routines by a distance, or through r10.
    fn calls(&self, address: u64, range: Range<u64>) -> bool {
        /// `call` with a distance; `mov` of eight bytes to r10, and `call` through r10.
        const NEAR: u8 = 0xe8;
        const MOVE: [u8; 2] = [0x49, 0xba];
        const THROUGH: [u8; 3] = [0x41, 0xff, 0xd2];
        let mut bytes = [0; 13];
        let at = address.wrapping_sub(bytes.len() as u64);
        if self.memory.read_all(at, &mut bytes).is_none() {
            return false;
        }
        let target = match bytes {
            [m, o, a, b, c, d, e, f, g, h, through @ ..]
                if [m, o] == MOVE && through == THROUGH =>
            {
                u64::from_le_bytes([a, b, c, d, e, f, g, h])
            }
            [.., NEAR, a, b, c, d] => {
                let distance = i32::from_le_bytes([a, b, c, d]);
                address.wrapping_add_signed(distance.into())
            }
            _ => return false,
        };
        (range.start..=range.end).contains(&target)
    }

    /// Returns the methods that a block of code executes at an address.
    fn methods_at(&mut self, blob: &Blob, address: u64) -> Option<Rc<[Rc<ManagedFrame>]>> {
        if !blob.is_method() {
            return Some(Rc::default());
        }
        if let Some(methods) = self.places.get(&address) {
            return Some(methods.clone());
        }
        let scopes = Scopes {
            memory: self.memory,
            offsets: &self.offsets,
        };
        let positions = scopes.at(blob, address)?.into_iter();
        let methods: Option<Rc<[_]>> = positions.map(|position| self.named(position)).collect();
        let methods = methods?;
        self.placed += methods.len();
        self.places.insert(address, methods.clone());
        Some(methods)
    }

    fn named(&mut self, position: Position) -> Option<Rc<ManagedFrame>> {
        if self.methods.are_full() || self.places.len() >= PLACES_MAX || self.placed > PLACED_MAX {
            // Places keep methods alive.
            self.forget_places();
            self.methods.clear();
        }
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

    /// Returns where the outermost frame of a virtual thread returns to, if it is the thread's
    /// whole stack. HotSpot says so from JDK 24 on. Before, any address will do behind which the
    /// entry has its frame.
    fn virtual_entry(&mut self) -> Option<u64> {
        const ENTRY: &str = "jdk.internal.vm.Continuation.enterSpecial";
        if let Some(field) = self.offsets.continuation_return {
            return self.memory.word(field);
        }
        if self.entry.is_none() {
            let (memory, offsets) = (self.memory, &self.offsets);
            let methods = &mut self.methods;
            let mut is_it = |blob: &Blob| {
                let field = blob.start.checked_add(offsets.compiled.method);
                let method = field.and_then(|field| memory.word(field));
                let method = method.and_then(|it| methods.find(memory, offsets, it));
                method.is_some_and(|method| method.name == ENTRY)
            };
            let blob = self.heaps.native_method(memory, offsets, &mut is_it);
            let made = blob.and_then(|blob| {
                let behind = blob.frame_complete? + 1;
                blob.code.checked_add(behind)
            });
            self.entry = Some(made);
        }
        self.entry?
    }

    /// Checks that a caller is in code that HotSpot has made. The entry of a virtual thread takes
    /// the place of the stub that its frames return to: then the caller's frames are in the heap,
    /// and this returns true.
    fn is_made(&mut self, caller: &mut Registers) -> Option<bool> {
        let address = caller[RIP]?;
        if address == self.call_stub || self.interpreter.contains(&address.wrapping_sub(1)) {
            return Some(false);
        }
        let blob = self.blob(address.wrapping_sub(1))?;
        if blob.name.contains("ontinuation")
            && let Some(entry) = self.virtual_entry()
        {
            caller[RIP] = Some(entry);
            return Some(true);
        }
        Some(false)
    }
}
