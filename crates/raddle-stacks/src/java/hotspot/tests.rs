//! A true virtual machine of which the memory lies: all is read to an end, and nothing panics.

use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::*;
use crate::hostile::{Damaged, most_bytes};
use crate::memory::ProcessMemory;

/// The most bytes that a reader may have.
const BYTES_MAX: usize = 256 << 20;

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
    let (mut steps, mut found, mut monitors) = (0, 0, 0);
    let mut objects = MonitorObjects::default();
    for seed in 1..800u64 {
        let damaged = Damaged::of(pid, seed);
        // The tables of fields are damaged in each eighth run only: few survive that.
        let read = || match seed % 8 {
            0 => HotSpot::find(&damaged, &modules),
            _ => {
                let whole = HotSpot::find(&memory, &modules).unwrap();
                let fields = whole.fields;
                let java = HotSpot::with(&damaged, whole.offsets)?;
                Some(HotSpot { fields, ..java })
            }
        };
        let most = most_bytes(|| {
            let Some(mut java) = read() else { return };
            // The program's main thread, and any word as a monitor.
            let wanted = java.wanted_monitor(pid).map(|it| it.address);
            let any = stacks[damaged.random(stacks.len() as u64) as usize];
            for address in wanted.into_iter().chain([any]) {
                monitors += usize::from(java.monitor(address).is_some());
                let number = java.object_number(&mut objects, address);
                assert_eq!(number != 0, objects.name(number).is_some());
            }
            for _ in 0..100 {
                found += usize::from(step(&mut java, &damaged, &heaps, &stacks));
                steps += 1;
            }
        });
        assert!(most < BYTES_MAX, "seed {seed}: {most} bytes");
    }
    println!("{found} of {steps} steps in {:?}", started.elapsed());
    assert!(monitors > 0);
    assert!(found > 0 && started.elapsed() < Duration::from_secs(120));
}

/// What a watch reads is read to an end, too, and the list of threads has bounds.
#[test]
fn a_watch_of_memory_that_lies_ends() {
    let Some(program) = Program::start() else {
        println!("no JDK is installed");
        return;
    };
    let pid = program.0.id();
    let modules = Modules::of(pid).unwrap();
    let memory = ProcessMemory::of(pid);
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let names = tasks.flatten().map(|task| task.file_name());
    let tids: Vec<u32> = names
        .map(|it| it.to_str().unwrap().parse().unwrap())
        .collect();
    let stacks = stacks(pid);
    let (mut parked, mut owned) = (0, 0);
    for seed in 0..200u64 {
        let mut machine = WatchedMachine::find(&memory, &modules).unwrap();
        let damaged = Damaged::of(pid, seed);
        let most = most_bytes(|| {
            for look in 0..4 {
                // The list is whole in each second run, so that there is more to read behind it.
                let list: &dyn Memory = if seed % 2 == 0 { &memory } else { &damaged };
                machine.renew();
                for &tid in &tids {
                    let _ = machine.wanted(if look == 0 { list } else { &damaged }, tid);
                    parked += usize::from(machine.parked_for(&damaged, tid).is_some());
                    let any = stacks[damaged.random(stacks.len() as u64) as usize];
                    for lock in [WatchedLock::Monitor(any), WatchedLock::Synchronizer(any)] {
                        owned += usize::from(machine.owner(&damaged, lock, &tids).is_some());
                    }
                }
            }
        });
        assert!(most < BYTES_MAX, "seed {seed}: {most} bytes");
    }
    println!("{parked} parked threads were read, {owned} owners");
    assert!(parked > 0);
}

/// Tries a step from a random place. Returns true if there is a caller.
fn step(java: &mut HotSpot<'_>, damaged: &Damaged, heaps: &[Range<u64>], stacks: &[u64]) -> bool {
    let random = |limit: u64| damaged.random(limit);
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
    let mut pages = Pages::new(damaged);
    let step = java.step(&frame, &registers, &mut pages);
    if let Some(blob) = java.blob(code) {
        let _ = java.methods_at(&blob, code);
    }
    step.is_some()
}

/// Memory in which each word from here on is an address there, with no byte of zero: so all
/// methods have long names and tables of lines, and each another.
struct Endless(ProcessMemory);

impl Endless {
    const START: u64 = 0x11 << 56;

    fn word(address: u64) -> u64 {
        let mut bytes = (address / 8)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .to_le_bytes();
        bytes.iter_mut().for_each(|byte| *byte |= 0x41);
        bytes[0] = bytes[0] & !7 | 8;
        bytes[7] = (Endless::START >> 56) as u8;
        u64::from_le_bytes(bytes)
    }
}

impl Memory for Endless {
    fn read(&self, address: u64, to: &mut [u8]) -> usize {
        if address < Endless::START {
            return self.0.read(address, to);
        }
        for (at, byte) in (address..).zip(to.iter_mut()) {
            *byte = Endless::word(at).to_le_bytes()[(at % 8) as usize];
        }
        to.len()
    }
}

#[test]
fn methods_without_end_take_bounded_memory() {
    let Some(program) = Program::start() else {
        println!("no JDK is installed");
        return;
    };
    let modules = Modules::of(program.0.id()).unwrap();
    let memory = Endless(ProcessMemory::of(program.0.id()));
    let mut java = HotSpot::find(&memory, &modules).unwrap();
    let mut named = 0;
    let most = most_bytes(|| {
        for number in 0..6000 {
            let method = Endless::word(Endless::START + number * 8);
            let byte = Some(number as u32);
            named += usize::from(java.named(Position { method, byte }).is_some());
        }
    });
    println!("{named} methods, {most} bytes");
    assert!(
        named == 6000 && most > 1 << 20 && most < BYTES_MAX,
        "{named} {most}"
    );
}
