//! Epochs of a recording: in each of them, an address of code means one thing.
//!
//! Code stays known after the process has unmapped it, so an epoch ends only when other code is
//! mapped. That is found in three ways:
//!
//! 1. The perf events of the carriers tell each mapping with its time. Samples before it are read
//!    in the epoch that ends with it, and those after it in the next one.
//! 2. Where the kernel permits none, the runtime tells when ld.so maps code, and of which file.
//!    The file's path, and how long its code is, are those of the mappings then, or from before.
//!    So nothing is known of a library that is mapped once, and only between two looks. Its code
//!    has no names then, and not those of what was there before.
//! 3. `mappings` compares what is mapped now and then, for what no event has told.
//!
//! Rejected: an epoch for each time that something is unmapped. A library that is opened and closed
//! in a loop would make thousands.

use std::collections::VecDeque;
use std::io;

use anyhow::Result;
use raddle_record::clock::Moment;
use raddle_stacks::locks::{ObjectKind, waited_for};
use raddle_stacks::{
    ManagedFrame, MappedCode, Modules, NameReader, ProcessMemory, Stack, Symbols, Target,
};

use super::Recorder;
use crate::failure::Failure;
use crate::record::mappings::Root;
use crate::record::names;

/// The most epochs. Code that is mapped after them has no names.
const EPOCHS_MAX: u32 = 1 << 12;

/// The stacks that a reader has read.
pub(in crate::record) struct Epoch {
    /// Their numbers in the interner.
    pub stacks: Vec<u32>,
    /// What a thread with such a stack waits for on a futex, if that is known.
    pub waits: Vec<Option<ObjectKind>>,
}

/// What a reader has read, and what the names are looked up in.
struct Unnamed {
    memory: ProcessMemory,
    modules: Modules,
    stacks: Vec<Stack>,
    managed: Vec<ManagedFrame>,
}

/// Code that ld.so has mapped: the time by CLOCK_BOOTTIME, the address, and the inode's low half.
pub(super) type Load = (u64, u64, u32);

/// See the module.
pub(in crate::record) struct Epochs {
    root: Root,
    /// Those before the present one, and what is known of them at the end.
    unnamed: Vec<Unnamed>,
    pub named: Vec<Epoch>,
    /// Code that was mapped, in the order of time. What is known is taken away, so that each epoch
    /// begins with the first one.
    mapped: VecDeque<MappedCode>,
    /// Files that were mapped and are not known.
    unknown: u64,
    /// All samples and mappings before this time were taken.
    taken_ns: u64,
}

impl Epochs {
    pub(super) fn of(pid: u32) -> Result<Epochs, Failure> {
        Ok(Epochs {
            root: Root::of(pid)?,
            unnamed: Vec::new(),
            named: Vec::new(),
            mapped: VecDeque::new(),
            unknown: 0,
            taken_ns: 0,
        })
    }

    /// Returns the number of the present epoch.
    pub(super) fn number(&self) -> u32 {
        self.unnamed.len() as u32
    }

    /// Returns the code of the epoch that begins.
    pub(super) fn modules(&mut self, pid: u32) -> io::Result<Modules> {
        let before = self.unnamed.last().map(|it| &it.modules);
        if let (Some(before), Some(code)) = (before, self.mapped.pop_front()) {
            return Ok(before.after(&code, pid, &self.root.path()));
        }
        let mut modules = self.root.modules(pid)?;
        modules.keep(before, pid);
        Ok(modules)
    }

    /// Ends the present epoch.
    pub(super) fn end(
        &mut self,
        memory: ProcessMemory,
        modules: Modules,
        (stacks, managed): (Vec<Stack>, Vec<ManagedFrame>),
    ) {
        self.unnamed.push(Unnamed {
            memory,
            modules,
            stacks,
            managed,
        });
    }

    /// From now on, samples are taken: those that come meanwhile may miss a mapping.
    pub(super) fn begin_to_take(&mut self) {
        self.taken_ns = Moment::now().boot_ns;
    }

    /// Returns the time before which all samples and mappings were taken.
    pub(super) fn taken_ns(&self) -> u64 {
        self.taken_ns
    }

    /// Takes code that was mapped.
    pub(super) fn map(&mut self, mapped: Vec<MappedCode>) {
        self.mapped.extend(mapped);
        let mapped = self.mapped.make_contiguous();
        mapped.sort_by_key(|code| code.boot_ns);
    }

    /// Takes code that ld.so has mapped at times, at addresses, of files with inodes of which these
    /// are the low halves.
    pub(super) fn map_by_loader(&mut self, pid: u32, modules: &Modules, loads: &[Load]) {
        if loads.is_empty() {
            return;
        }
        let now = self.root.modules(pid).ok();
        let mut code = Vec::new();
        for &(boot_ns, address, inode) in loads {
            let in_order = [now.as_ref(), Some(modules)];
            let mut known = in_order.into_iter().flatten();
            match known.find_map(|it| it.again(inode, address, boot_ns)) {
                Some(known) => code.push(known),
                None => {
                    self.unknown += 1;
                    code.extend(modules.unknown(inode, address, boot_ns));
                }
            }
        }
        self.map(code);
    }

    /// Returns what is to be said of files that are not known.
    fn shortcoming(&self) -> Option<String> {
        let files = match self.unknown {
            0 => return None,
            1 => "a library was",
            _ => "libraries were",
        };
        Some(format!(
            "{files} unmapped before the tool could look: the code has no names"
        ))
    }

    /// Returns when the process has mapped code that is not known in this epoch, if it has.
    pub(super) fn other_code_ns(&mut self, modules: &Modules) -> Option<u64> {
        if self.number() >= EPOCHS_MAX {
            self.mapped.clear();
        }
        while self
            .mapped
            .pop_front_if(|code| modules.knows(code))
            .is_some()
        {}
        self.mapped.front().map(|code| code.boot_ns)
    }
}

impl Recorder {
    /// Names all stacks, which may take a while.
    pub(super) fn name_all(&mut self) {
        self.look_at_objects();
        self.objects.seek_rest();
        let layout = self.recording.layout();
        let code = layout.code.text_start..layout.code.text_end;
        let mut names = NameReader::default();
        // All files stay open until all names are read: a name belongs to one file.
        let unnamed = std::mem::take(&mut self.epochs.unnamed);
        for epoch in &unnamed {
            let (memory, modules) = (&epoch.memory, &epoch.modules);
            let target = Target {
                pid: self.pid,
                memory,
                layout: &layout,
                carriers: &[],
                modules,
                started_ns: self.recording.started_ns(),
                stopped: None,
            };
            let mut symbols = Symbols::with(names, memory, modules);
            let (stacks, managed) = (&epoch.stacks, &epoch.managed);
            let code = code.clone();
            let numbers = names::intern(stacks, managed, &mut symbols, code, &mut self.interner);
            let waits = stacks.iter();
            let waits = waits.map(|stack| waited_for(&target, stack, &mut symbols));
            self.epochs.named.push(Epoch {
                stacks: numbers,
                waits: waits.collect(),
            });
            let remark = symbols.shortcoming();
            let is_new = |remark: &String| !self.remarks.contains(remark);
            self.remarks.extend(remark.filter(is_new));
            names = symbols.into_reader();
            self.objects.name_variables(&target);
        }
        self.remarks.extend(self.epochs.shortcoming());
        self.objects.name_others();
    }
}
