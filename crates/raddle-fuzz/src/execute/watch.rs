//! What a step changed in the case's memory.
//!
//! Pages are read by `process_vm_readv`, because a step may have made them unreadable, and are
//! compared with a copy. Words that are ids or addresses of functions are written by name; ranges
//! that differ from run to run only say that they changed.

use super::interpret::Names;
use super::shared::{Line, Slot};
use super::system;
use crate::case::{BASE, MAIN, PAGE_BYTES, Place, READABLE_BYTES};

const BYTES: usize = READABLE_BYTES as usize;
const PAGE: usize = PAGE_BYTES as usize;

/// Bytes that are compared together.
const WORD: usize = 8;

/// Where the program, its libraries, its heap and its stacks are.
const ADDRESSES: std::ops::Range<u64> = 0x5000_0000_0000..0x8000_0000_0000;

/// The readable ranges of a case's memory at its start, in pages: from, to.
const RANGES: [(usize, usize); 4] = [(0, 9), (11, 13), (14, 15), (16, 32)];

/// The case's memory at one time, and which of its pages could be read.
struct Copy {
    bytes: Box<[u8; BYTES]>,
    readable: [bool; BYTES / PAGE],
}

/// The memory before a step, and room for what it is afterwards.
pub struct Watch {
    old: Copy,
    new: Copy,
}

/// A range whose content differs from run to run.
pub type Unsteady = (u64, u64);

impl Copy {
    fn empty() -> Self {
        Self {
            bytes: vec![0; BYTES].try_into().expect("as many bytes"),
            readable: [false; BYTES / PAGE],
        }
    }

    fn read(&mut self) {
        let base = self.bytes.as_mut_ptr().expose_provenance();
        let local = RANGES.map(|(from, to)| [base + from * PAGE, (to - from) * PAGE]);
        let remote = RANGES.map(|(from, to)| [BASE as usize + from * PAGE, (to - from) * PAGE]);
        let total: usize = remote.iter().map(|range| range[1]).sum();
        let pages = RANGES.iter().flat_map(|&(from, to)| from..to);
        if read(&local, &remote) == total as isize {
            self.readable = [false; BYTES / PAGE];
            pages.for_each(|page| self.readable[page] = true);
            return;
        }
        for page in 0..BYTES / PAGE {
            let local = [base + page * PAGE, PAGE];
            let remote = [BASE as usize + page * PAGE, PAGE];
            self.readable[page] = read(&[local], &[remote]) == PAGE as isize;
        }
    }
}

impl Watch {
    /// Remembers the memory as it is.
    pub fn start() -> Self {
        let (mut old, new) = (Copy::empty(), Copy::empty());
        old.read();
        Self { old, new }
    }

    /// Watches nothing: for children, whose memory is no part of a trace.
    pub fn none() -> Self {
        Self {
            old: Copy::empty(),
            new: Copy::empty(),
        }
    }

    /// Takes over what the executor itself stored.
    pub fn note(&mut self, at: Place, bytes: &[u8]) {
        let from = (at.address() - BASE) as usize;
        if let Some(to) = self.old.bytes.get_mut(from..from + bytes.len()) {
            to.copy_from_slice(bytes);
        }
    }

    /// Writes what changed since the last time.
    pub fn compare(&mut self, slot: &Slot, step: usize, unsteady: &[Unsteady], names: &Names) {
        self.new.read();
        for page in 0..BYTES / PAGE {
            match (self.old.readable[page], self.new.readable[page]) {
                (true, false) => page_line(step, page)
                    .text(" can't be read")
                    .write(slot, MAIN),
                (false, true) => page_line(step, page).text(" can be read").write(slot, MAIN),
                _ => {}
            }
            let range = page * PAGE..(page + 1) * PAGE;
            if self.new.readable[page] && self.old.bytes[range.clone()] != self.new.bytes[range] {
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
        let word = |bytes: &[u8; BYTES], at: usize| -> [u8; WORD] {
            bytes[at..at + WORD].try_into().expect("a word")
        };
        let range_of = |at: usize| {
            let address = BASE + at as u64;
            unsteady
                .iter()
                .find(|&&(from, to)| (from & !7..to).contains(&address))
        };
        let mut at = page * PAGE;
        let end = at + PAGE;
        let changed = |at: usize| word(&self.old.bytes, at) != word(&self.new.bytes, at);
        while at < end {
            if !changed(at) {
                at += WORD;
                continue;
            }
            if let Some(&(from, to)) = range_of(at) {
                // How much of it changed is as unsteady as its content.
                let offset = from.saturating_sub(BASE) % PAGE_BYTES;
                let line = page_line(step, page).text("+").hex(offset);
                line.text(": any").write(slot, MAIN);
                at = (to.saturating_sub(BASE) as usize).next_multiple_of(WORD);
                continue;
            }
            let from = at;
            while at < end && changed(at) && range_of(at).is_none() {
                at += WORD;
            }
            let line = page_line(step, page)
                .text("+")
                .hex((from % PAGE) as u64)
                .text(":");
            contents(line, &self.new.bytes[from..at], names).write(slot, MAIN);
        }
    }
}

fn page_line(step: usize, page: usize) -> Line {
    let line = Line::new().number(step as i64).text(" memory P");
    line.number(page as i64)
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
