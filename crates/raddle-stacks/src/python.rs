//! The Python frames of threads in a process with CPython 3.9 to 3.15, from its memory.
//!
//! `_PyRuntime` leads to the interpreters, these to their threads, and a thread to its frames. A
//! thread's stack is read while it is off its carrier or waits in the kernel, so that its frames
//! don't change; the sequence check of `capture` holds for them, too.
//!
//! One native frame, of `_PyEval_EvalFrameDefault`, executes one or more Python frames. Which one
//! that is follows from an address: the interpreter keeps a record on the native stack for each of
//! its calls (from 3.10 on; 3.9 is matched by the order of the calls).

mod lines;
mod objects;
mod offsets;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::ops::Range;
use std::time::{Duration, Instant};

use crate::exports::Exports;
use crate::managed::{Language, ManagedFrame, ManagedFrames, Run};
use crate::memory::{Memory, Pages};
use crate::modules::Modules;
use crate::unwind::{FRAMES_MAX, Frame};

use objects::Code;
use offsets::{Entry, Innermost, Offsets, Position, Records};

/// The most interpreters, and threads, that are looked at.
const INTERPRETERS_MAX: usize = 1 << 12;
const THREADS_MAX: usize = 1 << 18;
/// How often the list of threads is read for a thread that isn't in it.
const LISTINGS_MAX: u32 = 4;
/// The most code objects that are kept.
const CODES_MAX: usize = 1 << 18;
/// How long a code object is taken for the same. A frame keeps its own alive; that of a thread that
/// goes on may be another's place soon.
const TRUST: Duration = Duration::from_millis(10);
/// The most frames that are read of one process.
const BUDGET: u32 = 1 << 23;
/// The most bytes of code objects that are read of one process, and that are kept.
const CODE_BYTES: usize = 64 << 20;
/// About how many bytes a place of a code object takes.
const PLACE_BYTES: usize = 48;
/// Where glibc's thread control block has the thread's id, in all versions that raddle supports.
const TCB_TID: u64 = 720;
/// The most bytes of a thread's record that have fields that are read.
const STATE_BYTES_MAX: u64 = 1 << 12;
/// The most places of a code object of which the frames are kept.
const PLACES_MAX: usize = 1 << 10;
/// The most bytes of a frame that have fields that are read.
const FRAME_BYTES_MAX: u64 = 512;

/// CPython in a process.
pub(crate) struct Python<'a> {
    memory: &'a dyn Memory,
    offsets: Offsets,
    runtime: u64,
    /// The code of the function that executes frames.
    interpreter: Option<Range<u64>>,
    /// The interpreters' records of a thread, by its id.
    threads: HashMap<u32, Vec<u64>>,
    listings: u32,
    /// Code objects, and since when each is known to be the one at its address.
    codes: HashMap<u64, (Code, Instant)>,
    /// The pages that the frames of one thread are in.
    pages: Pages<'a>,
    budget: u32,
    /// Bytes of code objects that may still be read.
    code_bytes: usize,
    /// About how many bytes all code objects take that are kept.
    kept_bytes: usize,
}

impl<'a> Python<'a> {
    /// Finds CPython in a process. `None` if there is none of a version that is understood.
    pub(crate) fn find(memory: &'a dyn Memory, modules: &Modules) -> Option<Python<'a>> {
        modules.modules.iter().find_map(|module| {
            let exports = Exports::of(memory, module.start())?;
            let runtime = exports.find("_PyRuntime")?.address;
            let interpreter = exports.find("_PyEval_EvalFrameDefault");
            let offsets = Offsets::of(memory, &exports, runtime)?;
            Some(Python {
                interpreter: interpreter.map(|it| it.address..it.address.saturating_add(it.size)),
                ..Python::with(memory, offsets, runtime)
            })
        })
    }

    fn with(memory: &'a dyn Memory, offsets: Offsets, runtime: u64) -> Python<'a> {
        Python {
            memory,
            offsets,
            runtime,
            interpreter: None,
            threads: HashMap::new(),
            listings: 0,
            codes: HashMap::new(),
            pages: Pages::new(memory),
            budget: BUDGET,
            code_bytes: CODE_BYTES,
            kept_bytes: 0,
        }
    }

    /// Returns the positions of native frames that execute Python frames.
    pub(crate) fn by_code(&self, frames: &[Frame]) -> Vec<usize> {
        let executes = |frame: &Frame| {
            let code = self.interpreter.as_ref();
            code.is_some_and(|code| code.contains(&frame.inside()))
        };
        let all = frames.iter().enumerate();
        all.filter(|(_, frame)| executes(frame))
            .map(|(number, _)| number)
            .collect()
    }

    /// Has the limits of one reading begin anew.
    pub(crate) fn renew(&mut self) {
        self.listings = 0;
        self.budget = BUDGET;
        self.code_bytes = CODE_BYTES;
    }

    /// Returns the Python frames of a thread, the innermost run first.
    pub(crate) fn runs(&mut self, tid: u32, all: &mut ManagedFrames) -> Vec<Run> {
        while !self.threads.contains_key(&tid) && self.listings < LISTINGS_MAX {
            self.list();
        }
        self.pages.clear();
        let mut runs = Vec::new();
        for at in self.threads.get(&tid).cloned().unwrap_or_default() {
            // The record may be another thread's by now.
            let state = self.state(at).filter(|state| self.tid(state) == Some(tid));
            if let Some(state) = state {
                self.walk(&state, all, &mut runs);
            }
        }
        runs
    }

    /// Lists all threads of all interpreters.
    fn list(&mut self) {
        self.listings += 1;
        self.threads.clear();
        let offsets = self.offsets;
        let follow = |address: u64, field: u64| {
            let to = self.memory.word(address.checked_add(field)?)?;
            (to != 0).then_some(to)
        };
        let mut threads: HashMap<u32, Vec<u64>> = HashMap::new();
        let mut count = 0;
        let mut interpreter = follow(self.runtime, offsets.interpreters);
        for _ in 0..INTERPRETERS_MAX {
            let Some(at) = interpreter else { break };
            let mut thread = follow(at, offsets.threads);
            while let Some(at) = thread.filter(|_| count < THREADS_MAX) {
                let Some(state) = self.state(at) else { break };
                if let Some(tid) = self.tid(&state) {
                    threads.entry(tid).or_default().push(at);
                }
                count += 1;
                thread = state.word(offsets.next_thread).filter(|&next| next != 0);
            }
            interpreter = follow(at, offsets.next_interpreter);
        }
        self.threads = threads;
    }

    /// Reads the fields of an interpreter's record of a thread by one call.
    fn state(&self, at: u64) -> Option<Fields> {
        let offsets = &self.offsets;
        let innermost = match offsets.innermost {
            Innermost::Thread(field) => field,
            Innermost::Record { record, .. } => record,
        };
        let fields = [
            offsets.next_thread,
            offsets.thread_id,
            offsets.native_id.unwrap_or(0),
            innermost,
            self.records().map_or(0, |records| records.first),
        ];
        let end = fields.into_iter().max()?.checked_add(8)?;
        let mut bytes = vec![0; usize::try_from(end.min(STATE_BYTES_MAX)).ok()?];
        self.memory.read_all(at, &mut bytes)?;
        Some(Fields(bytes))
    }

    /// Returns the id of a thread.
    fn tid(&self, state: &Fields) -> Option<u32> {
        let tid = match self.offsets.native_id {
            Some(field) => state.word(field)? as u32,
            None => {
                let block = state.word(self.offsets.thread_id)?;
                self.memory.half(block.checked_add(TCB_TID)?)?
            }
        };
        (tid != 0).then_some(tid)
    }

    /// Follows a thread's frames from the inside out.
    fn walk(&mut self, state: &Fields, all: &mut ManagedFrames, runs: &mut Vec<Run>) {
        let mut records = Trail::new(self.memory, self.records(), state);
        let mut frames = Vec::new();
        let mut next = self.innermost(state);
        for _ in 0..FRAMES_MAX {
            let Some(address) = next.filter(|&it| it != 0) else {
                break;
            };
            let Some(rest) = self.budget.checked_sub(1) else {
                break;
            };
            self.budget = rest;
            let Some(bytes) = self.frame(address) else {
                break;
            };
            next = bytes.word(self.offsets.previous);
            let is_end = match self.offsets.entry {
                Entry::Each { .. } => true,
                Entry::Marked { mark, .. } => bytes.byte(mark) != Some(0),
                Entry::Behind { owner } => bytes.byte(owner).is_some_and(Entry::is_behind),
            };
            let is_behind = matches!(self.offsets.entry, Entry::Behind { .. }) && is_end;
            if !is_behind {
                frames.extend(self.number(&bytes, all));
            }
            if is_end {
                let at = if is_behind {
                    Some(address)
                } else {
                    records.next()
                };
                let frames = std::mem::take(&mut frames);
                runs.push(Run { at, frames });
            }
        }
        if !frames.is_empty() {
            runs.push(Run { at: None, frames });
        }
    }

    fn records(&self) -> Option<Records> {
        match self.offsets.entry {
            Entry::Each { records } => records,
            Entry::Marked { records, .. } => Some(records),
            Entry::Behind { .. } => None,
        }
    }

    fn innermost(&self, state: &Fields) -> Option<u64> {
        match self.offsets.innermost {
            Innermost::Thread(field) => state.word(field),
            Innermost::Record { record, frame } => {
                let record = state.word(record)?;
                self.memory.word(record.checked_add(frame)?)
            }
        }
    }

    /// Reads the fields of a frame.
    fn frame(&mut self, address: u64) -> Option<Fields> {
        let position = match self.offsets.position {
            Position::Number { field, .. } => field,
            Position::Address { field, copies, .. } => {
                copies.map_or(field, |copies| field.max(copies.number))
            }
        };
        let owner = match self.offsets.entry {
            Entry::Behind { owner } => owner,
            Entry::Marked { mark, .. } => mark,
            Entry::Each { .. } => 0,
        };
        let fields = [self.offsets.code, self.offsets.previous, position, owner];
        let end = fields.into_iter().max()?.checked_add(8)?;
        let mut bytes = Vec::new();
        for at in (0..end.min(FRAME_BYTES_MAX)).step_by(8) {
            let word = self.pages.word(address.checked_add(at)?)?;
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        Some(Fields(bytes))
    }

    /// Returns the number of a frame, which is named once for each place in its code; `None` if it
    /// is no frame, or there are too many different ones.
    fn number(&mut self, frame: &Fields, all: &mut ManagedFrames) -> Option<u32> {
        /// References to objects may have marks in their lowest bits.
        const MARKS: u64 = 7;
        let address = frame.word(self.offsets.code)? & !MARKS;
        let (memory, offsets) = (self.memory, &self.offsets);
        let now = Instant::now();
        let is_known = |(code, since): &mut (Code, Instant)| {
            let is_it = now < *since + TRUST || code.is_it(memory, offsets, address);
            if now >= *since + TRUST {
                *since = now;
            }
            is_it
        };
        if !self.codes.get_mut(&address).is_some_and(is_known) {
            if self.codes.len() == CODES_MAX || self.kept_bytes > CODE_BYTES {
                self.codes.clear();
                self.kept_bytes = 0;
            }
            self.code_bytes.checked_sub(1)?;
            let code = Code::read(memory, offsets, address)?;
            self.code_bytes = self.code_bytes.saturating_sub(code.bytes_read());
            self.kept_bytes += code.bytes_read();
            self.codes.insert(address, (code, now));
        }
        let position = self.position(frame, address);
        let (code, _) = self.codes.get_mut(&address)?;
        if let Some(&number) = code.numbers.get(&position) {
            return number;
        }
        let number = all.number(ManagedFrame {
            language: Language::Python,
            name: code.name.clone(),
            file: code.file.clone(),
            line: position.and_then(|position| code.line(&self.offsets, position)),
            notes: Vec::new(),
        });
        if code.numbers.len() < PLACES_MAX && self.kept_bytes <= CODE_BYTES {
            code.numbers.insert(position, number);
            self.kept_bytes += PLACE_BYTES;
        }
        number
    }

    /// Returns how many bytes of its code are before the instruction that a frame is at.
    fn position(&self, frame: &Fields, code_object: u64) -> Option<i64> {
        match self.offsets.position {
            Position::Number { field, unit } => {
                Some(i64::from(frame.half(field)? as i32).wrapping_mul(unit))
            }
            Position::Address {
                field,
                code,
                copies,
            } => {
                let own = code_object.checked_add(code)?;
                let copy = copies.and_then(|copies| {
                    let number = frame.half(copies.number)?;
                    if number == 0 {
                        return None;
                    }
                    // The list has its length first, and copy 0 is the code's own.
                    let list = self.memory.word(code_object.checked_add(copies.list)?)?;
                    let place = list.checked_add(8 + u64::from(number) * 8)?;
                    self.memory.word(place).filter(|&copy| copy != 0)
                });
                Some(frame.word(field)?.wrapping_sub(copy.unwrap_or(own)) as i64)
            }
        }
    }
}

/// Bytes of a frame.
struct Fields(Vec<u8>);

impl Fields {
    fn word(&self, at: u64) -> Option<u64> {
        crate::elf::u64_at(&self.0, usize::try_from(at).ok()?)
    }

    fn half(&self, at: u64) -> Option<u32> {
        crate::elf::u32_at(&self.0, usize::try_from(at).ok()?)
    }

    fn byte(&self, at: u64) -> Option<u8> {
        self.0.get(usize::try_from(at).ok()?).copied()
    }
}

/// The records of a thread's calls of the interpreter, from the inside out.
struct Trail<'a> {
    memory: &'a dyn Memory,
    next: Option<u64>,
    field: u64,
}

impl<'a> Trail<'a> {
    fn new(memory: &'a dyn Memory, records: Option<Records>, state: &Fields) -> Trail<'a> {
        let first = records.and_then(|it| state.word(it.first));
        Trail {
            memory,
            next: first,
            field: records.map_or(0, |it| it.next),
        }
    }

    fn next(&mut self) -> Option<u64> {
        let record = self.next.filter(|&record| record != 0)?;
        let following = record.checked_add(self.field);
        self.next = following.and_then(|at| self.memory.word(at));
        Some(record)
    }
}
