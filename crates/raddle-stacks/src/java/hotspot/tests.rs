//! A true virtual machine of which the memory lies: all is read to an end, and nothing panics.

use std::cell::Cell;
use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::*;
use crate::memory::ProcessMemory;

/// Memory in which one of so many bytes is another one.
struct Damaged {
    memory: ProcessMemory,
    random: Cell<u64>,
    one_in: u64,
}

impl Damaged {
    fn next(&self) -> u64 {
        let mut word = self.random.get();
        word ^= word >> 12;
        word ^= word << 25;
        word ^= word >> 27;
        self.random.set(word);
        word.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
}

impl Memory for Damaged {
    fn read(&self, address: u64, to: &mut [u8]) -> usize {
        let got = self.memory.read(address, to);
        let mut at = self.next() % self.one_in;
        while let Some(byte) = to[..got].get_mut(at as usize) {
            *byte = self.next() as u8;
            at += 1 + self.next() % self.one_in;
        }
        got
    }
}

/// A Java program that waits; it ends with this value.
struct Program(Child);

impl Program {
    /// `None` if no JDK is installed.
    fn start() -> Option<Program> {
        let source = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../raddle-tests/programs/Mixed.java"
        );
        let mut command = Command::new("java");
        command.args([source, "2"]).stdout(Stdio::piped());
        let mut program = Program(command.spawn().ok()?);
        let mut said = [0; 6];
        let mut from = program.0.stdout.take()?;
        from.read_exact(&mut said).ok()?;
        Some(program)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Words of the program's stacks: its writable memory without a file.
fn stacks(pid: u32) -> Vec<u64> {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let ranges = maps
        .lines()
        .filter(|line| line.contains(" rw-p ") && !line.contains('/'));
    let starts = ranges.filter_map(|line| u64::from_str_radix(line.split('-').next()?, 16).ok());
    starts.collect()
}

#[test]
fn memory_that_lies_is_read_to_an_end() {
    let Some(program) = Program::start() else {
        println!("no JDK is installed");
        return;
    };
    let pid = program.0.id();
    let modules = Modules::of(pid).unwrap();
    let memory = ProcessMemory::of(pid);
    let whole = HotSpot::find(&memory, &modules).unwrap();
    let heaps = whole.heaps.ranges();
    let stacks = stacks(pid);
    let started = Instant::now();
    let (mut steps, mut found) = (0, 0);
    for seed in 1..400u64 {
        let damaged = Damaged {
            memory: ProcessMemory::of(pid),
            random: Cell::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1),
            one_in: 1 << (5 + seed % 12),
        };
        // The tables of fields are damaged in each eighth run only: few survive that.
        let java = match seed % 8 {
            0 => HotSpot::find(&damaged, &modules),
            _ => {
                let whole = HotSpot::find(&memory, &modules).unwrap();
                HotSpot::with(&damaged, whole.offsets)
            }
        };
        let Some(mut java) = java else { continue };
        for _ in 0..100 {
            let random = |limit: u64| damaged.next() % limit;
            let heap = &heaps[random(heaps.len() as u64) as usize];
            let stack = stacks[random(stacks.len() as u64) as usize] + random(1 << 14) * 8;
            let code = match random(4) {
                0 => java.call_stub,
                1 => java.interpreter.start.wrapping_add(random(1 << 17)),
                _ => heap.start + random(heap.end - heap.start),
            };
            let frame = Frame {
                address: code,
                is_return: random(2) == 0,
                is_signal: false,
                is_guessed: false,
            };
            let mut registers = Registers::default();
            registers[RSP] = Some(stack);
            registers[RBP] = Some(stack.wrapping_add(random(64) * 8));
            let mut pages = Pages::new(&damaged);
            steps += 1;
            let step = java.step(&frame, &registers, &mut pages);
            found += usize::from(step.is_some());
            if let Some(blob) = java.blob(code) {
                let _ = java.methods_at(&blob, code);
            }
        }
    }
    println!("{found} of {steps} steps in {:?}", started.elapsed());
    assert!(started.elapsed() < Duration::from_secs(60));
}
