//! The changes that a step makes to the case's memory.
//!
//! Pages are read by `process_vm_readv`, because a step may have made them unreadable, and are
//! compared with a copy. Words that are ids or addresses of functions are written by name; ranges
//! that differ from run to run only say that they changed.

use super::board::Names;
use super::shared::{Line, Slot};
use super::system;
use crate::case::{BASE, MAIN, PAGE_BYTES, Page, Place, READABLE_BYTES, STACK_PAGES, STACK_WINDOW};
use crate::generate::objects;

const PAGE: usize = PAGE_BYTES as usize;

/// Pages of the case's memory; those of stacks come behind.
const PAGES: usize = READABLE_BYTES as usize / PAGE;

/// Bytes that are compared together.
const WORD: usize = 8;

/// The addresses of the program, its libraries, its heap and its stacks.
const ADDRESSES: std::ops::Range<u64> = 0x5000_0000_0000..0x8000_0000_0000;

/// The readable ranges of a case's memory at its start, in pages: from, to.
const RANGES: [(usize, usize); 4] = [(0, 9), (11, 13), (14, 15), (16, 32)];

/// The memory at one time, and which of its pages could be read.
struct Copy {
    bytes: Vec<u8>,
    readable: Vec<bool>,
}

/// The memory before a step, and room for what it is afterwards.
pub(super) struct Watch {
    old: Copy,
    new: Copy,
    /// The beginning of the watched part of each thread's stack.
    stacks: Vec<usize>,
}

/// A range with a content that differs from run to run.
pub(super) type Unsteady = (u64, u64);

impl Copy {
    fn new(pages: usize) -> Self {
        Self {
            bytes: vec![0; pages * PAGE],
            readable: vec![false; pages],
        }
    }

    fn page(&self, page: usize) -> &[u8] {
        &self.bytes[page * PAGE..(page + 1) * PAGE]
    }
}

impl Watch {
    /// Remembers the memory as it is; each thread uses one of these pages of its stack.
    pub(super) fn start(stacks: &[usize]) -> Self {
        let pages = PAGES + stacks.len() * STACK_PAGES as usize;
        let begin = |&page: &usize| page.wrapping_add_signed(STACK_WINDOW as isize);
        let mut watch = Self {
            old: Copy::new(pages),
            new: Copy::new(pages),
            stacks: stacks.iter().map(begin).collect(),
        };
        watch.read();
        std::mem::swap(&mut watch.old, &mut watch.new);
        watch
    }

    /// Watches nothing: for children, because their memory is no part of a trace.
    pub(super) fn none() -> Self {
        Self {
            old: Copy::new(0),
            new: Copy::new(0),
            stacks: Vec::new(),
        }
    }

    /// Takes over the bytes that the executor itself stored.
    pub(super) fn note(&mut self, at: Place, bytes: &[u8]) {
        let from = (at.address() - BASE) as usize;
        if let Some(to) = self.old.bytes.get_mut(from..from + bytes.len()) {
            to.copy_from_slice(bytes);
        }
    }

    fn address(&self, page: usize) -> usize {
        match page.checked_sub(PAGES) {
            None => BASE as usize + page * PAGE,
            Some(page) => {
                let (stack, page) = (page / STACK_PAGES as usize, page % STACK_PAGES as usize);
                self.stacks[stack] + page * PAGE
            }
        }
    }

    fn read(&mut self) {
        let stacks = (0..self.stacks.len()).map(|stack| {
            let from = PAGES + stack * STACK_PAGES as usize;
            (from, from + STACK_PAGES as usize)
        });
        let ranges: Vec<_> = RANGES.into_iter().chain(stacks).collect();
        let base = self.new.bytes.as_mut_ptr().expose_provenance();
        let local = |&(from, to): &(usize, usize)| [base + from * PAGE, (to - from) * PAGE];
        let remote = |&(from, to): &(usize, usize)| [self.address(from), (to - from) * PAGE];
        let local: Vec<_> = ranges.iter().map(local).collect();
        let remote: Vec<_> = ranges.iter().map(remote).collect();
        let total: usize = remote.iter().map(|range| range[1]).sum();
        let all = read(&local, &remote) == total as isize;
        for page in 0..self.new.readable.len() {
            let local = [base + page * PAGE, PAGE];
            let remote = [self.address(page), PAGE];
            let known = all.then(|| ranges.iter().any(|&(from, to)| (from..to).contains(&page)));
            self.new.readable[page] =
                known.unwrap_or_else(|| read(&[local], &[remote]) == PAGE as isize);
        }
    }

    /// Writes the changes since the last time.
    pub(super) fn compare(
        &mut self,
        slot: &Slot,
        step: usize,
        unsteady: &[Unsteady],
        names: &Names,
    ) {
        self.read();
        for page in 0..self.new.readable.len() {
            let line = page_line(step, page);
            match (self.old.readable[page], self.new.readable[page]) {
                (true, false) => line.text(" can't be read").write(slot, MAIN),
                (false, true) => line.text(" can be read").write(slot, MAIN),
                _ => {}
            }
            if self.new.readable[page] && self.old.page(page) != self.new.page(page) {
                self.compare_page(slot, step, page, unsteady, names);
            }
        }
        std::mem::swap(&mut self.old, &mut self.new);
    }

    fn compare_page(
        &self,
        slot: &Slot,
        step: usize,
        page: usize,
        unsteady: &[Unsteady],
        names: &Names,
    ) {
        let (old, new) = (self.old.page(page), self.new.page(page));
        let base = self.address(page) as u64;
        let range_of = |at: usize| {
            let address = base + at as u64;
            let is_in = |&&(from, to): &&Unsteady| (from & !7..to).contains(&address);
            unsteady.iter().find(is_in)
        };
        let changed =
            |at: usize| old[at..at + WORD] != new[at..at + WORD] && !is_inside_object(page, at);
        let mut at = 0;
        while at < PAGE {
            if !changed(at) {
                at += WORD;
                continue;
            }
            if let Some(&(from, to)) = range_of(at) {
                // How much of it changed is as unsteady as its content.
                let line = page_line(step, page)
                    .text("+")
                    .hex(from.saturating_sub(base));
                line.text(": any").write(slot, MAIN);
                at = (to.saturating_sub(base) as usize).next_multiple_of(WORD);
                continue;
            }
            let from = at;
            while at < PAGE && changed(at) && range_of(at).is_none() {
                at += WORD;
            }
            let line = page_line(step, page).text("+").hex(from as u64).text(":");
            contents(line, &new[from..at], names).write(slot, MAIN);
        }
    }
}

/// Returns true for the insides of locks and the like: they are libc's own, and may differ.
fn is_inside_object(page: usize, at: usize) -> bool {
    page == usize::from(Page::WORDS) && objects::INSIDES.iter().any(|range| range.contains(&at))
}

fn page_line(step: usize, page: usize) -> Line {
    let line = Line::new().number(step as i64).text(" memory ");
    match page.checked_sub(PAGES) {
        None => line.text("P").number(page as i64),
        Some(page) => {
            let (stack, page) = (page / STACK_PAGES as usize, page % STACK_PAGES as usize);
            line.text("stack:a")
                .number(stack as i64 + 1)
                .text("+")
                .number(page as i64)
        }
    }
}

/// The words, or a sum if there are many.
fn contents(line: Line, bytes: &[u8], names: &Names) -> Line {
    const SHOWN: usize = 64;
    if bytes.len() > SHOWN {
        let mix = |sum: u64, &byte: &u8| (sum ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        let sum = bytes.iter().fold(0xcbf2_9ce4_8422_2325, mix);
        return line
            .text(" ")
            .number(bytes.len() as i64)
            .text(" bytes, sum ")
            .hex(sum);
    }
    bytes.chunks_exact(WORD).fold(line, |line, word| {
        let word = u64::from_le_bytes(word.try_into().expect("a word"));
        match names.of_address(word) {
            Some(name) => line.text(" ").text(name),
            None if ADDRESSES.contains(&word) => line.text(" address"),
            None => [word as u32, (word >> 32) as u32]
                .into_iter()
                .fold(line, |line, half| match names.of_id(half & 0x3fff_ffff) {
                    Some(name) => line.text(" ").text(name).text("|").hex((half >> 30).into()),
                    None => line.text(" ").hex(half.into()),
                }),
        }
    })
}

fn read(local: &[[usize; 2]], remote: &[[usize; 2]]) -> isize {
    let pid = std::process::id() as usize;
    let (to, from) = (
        local.as_ptr().expose_provenance(),
        remote.as_ptr().expose_provenance(),
    );
    system(
        libc::SYS_process_vm_readv,
        [pid, to, local.len(), from, remote.len(), 0],
    )
}
