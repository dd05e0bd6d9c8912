//! Interpreters of which the memory lies: all is read to an end, in bounded memory, and nothing
//! panics.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use super::*;
use crate::hostile::{Damaged, most_bytes};
use crate::memory::ProcessMemory;

/// The most bytes that a reader may have.
const BYTES_MAX: usize = 384 << 20;

/// Memory in which all words are addresses in itself, or small numbers.
struct Rubbish(u64);

impl Memory for Rubbish {
    fn read(&self, address: u64, to: &mut [u8]) -> usize {
        for (place, byte) in (address..).zip(to.iter_mut()) {
            let word = ((place / 8) ^ self.0).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
            let word = if word & 7 == 0 { word & 63 } else { word & !7 };
            *byte = word.to_le_bytes()[(place % 8) as usize];
        }
        to.len()
    }
}

#[test]
fn rubbish_is_read_to_an_end() {
    for seed in 0..2 {
        let memory = Rubbish(seed);
        for offsets in offsets::TABLES {
            let mut python = Python {
                listings: LISTINGS_MAX - 1,
                budget: 1 << 12,
                code_bytes: 1 << 20,
                ..Python::with(&memory, offsets, 0x1000)
            };
            let mut all = ManagedFrames::default();
            for _ in 0..4 {
                let mut runs = Vec::new();
                let state = python.state(0x2000).unwrap();
                python.walk(&state, &mut all, &mut runs);
                let count: usize = runs.iter().map(|run| run.frames.len()).sum();
                assert!(count <= FRAMES_MAX);
            }
        }
    }
}

/// A Python program that waits; it ends with this value.
struct Program(Child);

impl Program {
    /// `None` if Python isn't installed.
    fn start() -> Option<Program> {
        let source = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../raddle-tests/programs/managed.py"
        );
        let mut command = Command::new("python3");
        command.args([source, "8"]).stdout(Stdio::piped());
        let mut program = Program(command.spawn().ok()?);
        let mut said = String::new();
        let from = program.0.stdout.take()?;
        BufReader::new(from).read_line(&mut said).ok()?;
        (said == "ready\n").then_some(program)
    }

    fn tids(&self) -> Vec<u32> {
        let folder = format!("/proc/{}/task", self.0.id());
        let tasks = std::fs::read_dir(folder).unwrap().flatten();
        let tids = tasks.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        tids.collect()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Reads all threads; returns how many frames they have.
fn frames(python: &mut Python<'_>, tids: &[u32], all: &mut ManagedFrames) -> usize {
    let mut count = 0;
    python.renew();
    for &tid in tids {
        for run in python.runs(tid, all) {
            count += run.frames.len();
        }
    }
    count
}

#[test]
fn memory_that_lies_is_read_to_an_end() {
    let Some(program) = Program::start() else {
        println!("no Python is installed");
        return;
    };
    let (pid, tids) = (program.0.id(), program.tids());
    let modules = Modules::of(pid).unwrap();
    let memory = ProcessMemory::of(pid);
    let mut whole = Python::find(&memory, &modules).unwrap();
    let sound = frames(&mut whole, &tids, &mut ManagedFrames::default());
    assert!(sound > 3 * tids.len(), "{sound} frames of {}", tids.len());
    let started = Instant::now();
    let mut found = 0;
    for seed in 1..2000u64 {
        let damaged = Damaged::of(pid, seed);
        let most = most_bytes(|| {
            // Offsets are damaged in each eighth run only.
            let python = match seed % 8 {
                0 => Python::find(&damaged, &modules),
                _ => Some(Python::with(&damaged, whole.offsets, whole.runtime)),
            };
            let Some(mut python) = python else { return };
            let mut all = ManagedFrames::default();
            for _ in 0..4 {
                found += frames(&mut python, &tids, &mut all);
            }
        });
        assert!(most < BYTES_MAX, "seed {seed}: {most} bytes");
    }
    println!("{found} frames in {:?}", started.elapsed());
    assert!(found > 0 && started.elapsed() < Duration::from_secs(120));
}

/// Memory with chains of frames that never end: all names are as long as can be, each code object
/// is another, and each frame is at another line.
struct Endless;

impl Endless {
    const FRAMES: u64 = 1 << 40;
    const CODES: u64 = 2 << 40;
    const TEXTS: u64 = 3 << 40;
    const TABLES: u64 = 4 << 40;
    const RECORDS: u64 = 5 << 40;
    const FRAME_BYTES: u64 = 0x100;
    /// Frames of one code object.
    const PLACES: u64 = 512;

    fn word(at: u64) -> u64 {
        let (number, field) = ((at & ((1 << 40) - 1)) / 0x100, at % 0x100);
        let code = Endless::CODES + number / Endless::PLACES * 0x100;
        match (at >> 40 << 40, field) {
            (Endless::FRAMES, 0) => code,
            (Endless::FRAMES, 8) => at - 8 + Endless::FRAME_BYTES,
            (Endless::FRAMES, 56) => code + 192 + number % Endless::PLACES * 2,
            (Endless::FRAMES, _) => 0,
            (Endless::CODES, 112) => Endless::TEXTS + number * 0x20000,
            (Endless::CODES, 128) => Endless::TEXTS + number * 0x20000 + 0x10000,
            (Endless::CODES, 136) => Endless::TABLES,
            // The head of a text: its length, and that a character has four bytes.
            (Endless::TEXTS, _) => match at % 0x10000 {
                16 => u64::MAX,
                32 => (4 | 8) << 2,
                rest => 0x1f600 + at / 0x10000 % 512 + ((0x1f600 + rest / 8 % 64) << 32),
            },
            // The line of each instruction is the next one.
            (Endless::TABLES, 16) if number == 0 => u64::MAX,
            (Endless::TABLES, _) => u64::from_le_bytes([0xd8, 1, 1, 0x80, 0, 0xd8, 1, 1]),
            (Endless::RECORDS, _) => Endless::FRAMES + (at - Endless::RECORDS) * 0x10000,
            _ => 1,
        }
    }
}

impl Memory for Endless {
    fn read(&self, address: u64, to: &mut [u8]) -> usize {
        for (at, byte) in (address..).zip(to.iter_mut()) {
            *byte = Endless::word(at & !7).to_le_bytes()[(at % 8) as usize];
        }
        to.len()
    }
}

#[test]
fn frames_without_end_take_bounded_memory() {
    let offsets = offsets::TABLES[3];
    assert_eq!(offsets.minor, 12);
    let mut count = 0;
    let most = most_bytes(|| {
        let mut python = Python::with(&Endless, offsets, 0);
        let mut all = ManagedFrames::default();
        for thread in 0..64u64 {
            let mut state = vec![0; 64];
            let record = Endless::RECORDS + thread * 8;
            state[56..].copy_from_slice(&record.to_le_bytes());
            let mut runs = Vec::new();
            python.renew();
            python.pages.clear();
            python.walk(&Fields(state), &mut all, &mut runs);
            count += runs.iter().map(|run| run.frames.len()).sum::<usize>();
        }
    });
    println!("{count} frames, {most} bytes");
    assert!(count > 1 << 10 && most > 16 << 20, "{count} {most}");
    assert!(most < BYTES_MAX, "{most}");
}
