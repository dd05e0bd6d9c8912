//! Blocking records and sites as text: the call that held a carrier in the kernel, and the function
//! and file.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;

use super::mappings::Mappings;
use super::unwind::{self, Stack};
use raddle_inspect::{BlockingRecord, BlockingRecords, BlockingSite};

/// Makes a row of columns for each record.
pub(super) fn rows(
    records: &BlockingRecords,
    mappings: &Mappings,
    now_ns: u64,
) -> Vec<Vec<String>> {
    let row = |record: &BlockingRecord| {
        let ago_ns = now_ns.saturating_sub(record.at_ns);
        vec![
            format!("{:.3}s ago", ago_ns as f64 / 1e9),
            match record.tid {
                0 => "a thread".into(),
                tid => format!("#{tid}"),
            },
            reason(record),
            format!("at {}", site(record, mappings).unwrap_or("unknown".into())),
        ]
    };
    records.latest().iter().map(row).collect()
}

/// Names the cause that held the carrier.
pub(super) fn reason(record: &BlockingRecord) -> String {
    match record.call {
        BlockingRecord::FAULT => "a page fault, or a stop".into(),
        BlockingRecord::UNKNOWN => "unknown".into(),
        call => format!("system call {call}"),
    }
}

/// Names the site in the program.
pub(super) fn site(record: &BlockingRecord, mappings: &Mappings) -> Option<String> {
    (record.address != 0).then(|| mappings.name(record.address))
}

/// A thread that blocks in the kernel now, on a carrier that was replaced.
pub(super) struct BlockedThread {
    pub call: i64,
    /// From the inside out.
    pub frames: Vec<String>,
}

/// Most of a stack that is read, in words.
const STACK_WORDS: usize = 1 << 15;

impl BlockedThread {
    /// Reads the kernel's view of a kernel thread; `None` if it has come back, or may not be read.
    pub(super) fn of(pid: u32, kernel_tid: u32, mappings: &Mappings) -> Option<BlockedThread> {
        let line = || fs::read_to_string(format!("/proc/{pid}/task/{kernel_tid}/syscall")).ok();
        let before = line()?;
        let words: Vec<&str> = before.split_whitespace().collect();
        let hexadecimal =
            |word: &&str| u64::from_str_radix(word.strip_prefix("0x").unwrap_or("?"), 16).ok();
        let [call, .., pointer, address] = words.as_slice() else {
            return None;
        };
        let (call, pointer) = (call.parse().ok()?, hexadecimal(pointer)?);
        let address = hexadecimal(address)?;
        let stack = read_stack(pid, pointer);
        if line()? != before {
            return None;
        }
        let frames = unwind::frames(address, &stack, mappings);
        Some(BlockedThread {
            call,
            frames: unwind::lines(&frames, mappings),
        })
    }

    pub(super) fn reason(&self) -> String {
        reason(&BlockingRecord {
            call: self.call,
            ..BlockingRecord::default()
        })
    }
}

/// Reads the stack from `pointer` on, as far as it is readable.
fn read_stack(pid: u32, pointer: u64) -> Stack {
    let mut bytes = Vec::new();
    let mut piece = [0; 4096];
    if let Ok(memory) = File::open(format!("/proc/{pid}/mem")) {
        while bytes.len() < STACK_WORDS * 8 {
            let at = pointer + bytes.len() as u64;
            let length = piece.len() - (at % 4096) as usize; // whole pages only
            match memory.read_at(&mut piece[..length], at) {
                Ok(got) if got == length => bytes.extend_from_slice(&piece[..length]),
                _ => break,
            }
        }
    }
    let words = bytes.chunks_exact(8);
    let words = words.map(|word| u64::from_le_bytes(word.try_into().unwrap_or_default()));
    Stack {
        pointer,
        words: words.collect(),
    }
}

/// Returns the used sites, the most frequent first.
pub(super) fn by_count(sites: &[BlockingSite]) -> Vec<&BlockingSite> {
    let mut used: Vec<_> = sites.iter().filter(|site| site.count != 0).collect();
    used.sort_by_key(|site| std::cmp::Reverse(site.count));
    used
}

/// Returns the frames at a site, as far as its stack was kept.
pub(super) fn frames(site: &BlockingSite, mappings: &Mappings) -> Vec<String> {
    let stack = Stack {
        pointer: site.stack_pointer,
        words: site.stack().to_vec(),
    };
    unwind::lines(&unwind::frames(site.address, &stack, mappings), mappings)
}

/// `12 times, last 0.5s ago by #7: system call 0`.
pub(super) fn headline(site: &BlockingSite, now_ns: u64) -> String {
    let record = BlockingRecord {
        call: site.call,
        ..BlockingRecord::default()
    };
    let times = if site.count == 1 { "time" } else { "times" };
    let ago_ns = now_ns.saturating_sub(site.at_ns);
    format!(
        "{} {times}, last {:.3}s ago by #{}: {}",
        site.count,
        ago_ns as f64 / 1e9,
        site.tid,
        reason(&record)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPS: &str = "55e000-560000 r-xp 00001000 08:01 12 /usr/bin/program\n";

    #[test]
    fn a_row_says_which_thread_blocked_in_what_and_where() {
        let mut records = BlockingRecords {
            total: 2,
            ..BlockingRecords::NONE
        };
        records.latest[0] = BlockingRecord {
            at_ns: 500_000_000,
            address: 0x55e010,
            call: 0,
            tid: 7,
        };
        records.latest[1] = BlockingRecord {
            call: BlockingRecord::FAULT,
            ..BlockingRecord::default()
        };
        let mappings = Mappings::parse(MAPS, "/nowhere".into());
        let rows = rows(&records, &mappings, 1_000_000_000);
        assert_eq!(
            rows[0].join(" "),
            "0.500s ago #7 system call 0 at program+0x1010"
        );
        assert_eq!(
            rows[1].join(" "),
            "1.000s ago a thread a page fault, or a stop at unknown"
        );
    }
}
