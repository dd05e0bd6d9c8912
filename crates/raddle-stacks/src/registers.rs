//! The registers of all threads, as a debugger or a core file shows them.
//!
//! The registers of a parked thread are those with which it leaves the runtime's innermost
//! functions: its first frame is the function of the runtime that the program has called, or a
//! stub, which returns to the program's system call. Up to there the runtime's frames have
//! restored what the program had in registers. A preempted thread has the registers of the
//! instruction at which it was interrupted.
//!
//! A program that carries its runtime has that mapped without a file that a debugger could open, so
//! that a debugger can't go outwards from there. A thread then has the registers of the first frame
//! outside of the runtime.
//!
//! The stack of a thread that goes on meanwhile is copied between two looks at the thread's slot,
//! with the slot: registers, slot and stack are of one moment.

use std::collections::HashMap;
use std::io;
use std::ops::Range;

use raddle_inspect::ThreadRecord;

use crate::capture::{Camera, Kind, Target};
use crate::kernel::{Doing, UserRegisters};
use crate::light::{LightSlot, Lights};
use crate::rules::{DWARF_OF_USER, RBP, RIP, RSP, Registers};
use crate::table::{Slot, Table};

/// How often a thread is read that always runs meanwhile.
const TRIES: u32 = 4;
/// The most frames of the runtime between a thread's innermost frame and the program.
const RUNTIME_FRAMES_MAX: usize = 128;
/// The part of a stack that is copied if its end isn't known.
const STACK_BYTES: u64 = 256 << 10;
/// The furthest end of a stack.
const STACK_BYTES_MAX: u64 = 64 << 20;
/// Bytes of the C library's thread block behind the FS base.
const BLOCK_BYTES: u64 = 4096;
/// Bytes below the stack pointer that a function may use.
const RED_ZONE: u64 = 128;

/// A thread with its registers.
#[derive(Clone, Copy, Debug)]
pub struct ThreadRegisters {
    pub record: ThreadRecord,
    pub kind: Kind,
    /// None for a thread that executes its code.
    pub registers: Option<UserRegisters>,
    /// MXCSR and the x87 control word, if they are known.
    pub control: Option<(u32, u16)>,
    /// The kernel thread that it is on.
    pub kernel_tid: Option<u32>,
}

/// Takes memory that belongs together with registers: a range, and its bytes if they are not those
/// that it has now.
pub(crate) type Copy<'a> = dyn FnMut(Range<u64>, Option<&[u8]>) -> io::Result<()> + 'a;

/// Reads the registers of all threads; `None` if the layout makes no sense. `copy` is called with
/// memory that belongs together with the registers that are returned. A thread that executes has
/// the registers and the inner part of the stack of a sample.
///
/// # Errors
/// Those of `copy`.
pub fn read_registers(
    target: &Target<'_>,
    copy: &mut Copy<'_>,
) -> io::Result<Option<Vec<ThreadRegisters>>> {
    let Some(mut camera) = Camera::new(target) else {
        return Ok(None);
    };
    let slots = camera.slots(&|_| true);
    let mut threads = Vec::with_capacity(slots.len());
    for slot in &slots {
        threads.extend(read(&mut camera, slot, copy)?);
    }
    let lights = Lights::find(target, &slots);
    let mut light_slots = Vec::new();
    lights.for_each(|slot| light_slots.push(slot));
    let bases: HashMap<u64, u64> = slots.iter().map(|slot| (slot.host, slot.fs)).collect();
    for slot in &light_slots {
        let fs = bases.get(&slot.host).copied().unwrap_or(0);
        threads.extend(read_light(&mut camera, &lights, slot, fs, copy)?);
    }
    Ok(Some(threads))
}

/// Reads a light thread that is on no host; `None` for others. One that is on a host has that
/// host's registers, with which the core has it already.
fn read_light(
    camera: &mut Camera<'_>,
    lights: &Lights<'_>,
    first: &LightSlot,
    fs: u64,
    copy: &mut Copy<'_>,
) -> io::Result<Option<ThreadRegisters>> {
    let mut slot = *first;
    for _ in 0..TRIES {
        if slot.is_on_cpu || slot.host == 0 {
            return Ok(None);
        }
        camera.pages.clear();
        let inner = camera.switched_off(slot.context);
        let control = camera.pages.word(slot.context);
        let from = slot.context.saturating_sub(RED_ZONE);
        let stack = from..slot.end.min(from.saturating_add(STACK_BYTES));
        for at in stack.clone().step_by(8) {
            camera.pages.word(at & !7);
        }
        copy(stack, None)?;
        let is_same = camera.pages.are_unchanged();
        let Some(later) = lights.again(&slot) else {
            return Ok(None);
        };
        if slot.is_unmoved(&later) && is_same {
            return Ok(Some(ThreadRegisters {
                record: slot.record,
                kind: Kind::Parked,
                registers: inner.map(|(registers, _)| general(&registers, fs)),
                control: control.map(|words| (words as u32, (words >> 32) as u16)),
                kernel_tid: None,
            }));
        }
        slot = later;
    }
    Ok(Some(ThreadRegisters {
        record: slot.record,
        kind: Kind::Restless,
        registers: None,
        control: None,
        kernel_tid: None,
    }))
}

/// Returns the threads that are off their carriers, and how often each has been switched to; empty
/// if the layout makes no sense.
pub fn parked(target: &Target<'_>) -> HashMap<u32, u64> {
    let mut counts = HashMap::new();
    if let Some(mut table) = Table::new(target) {
        table.for_each(|slot| {
            if !slot.is_on_cpu {
                counts.insert(slot.record.tid, slot.record.switches);
            }
        });
    }
    counts
}

/// Reads one thread; `None` if it has ended.
fn read(
    camera: &mut Camera<'_>,
    first: &Slot,
    copy: &mut Copy<'_>,
) -> io::Result<Option<ThreadRegisters>> {
    let slot_bytes = camera.target.layout.slot_bytes;
    let mut slot = *first;
    for _ in 0..TRIES {
        camera.pages.clear();
        let carrier = if slot.is_on_cpu {
            camera.carrier_of(&slot)
        } else {
            None
        };
        if let Some((kernel_tid, Doing::Runs)) = carrier
            && let Some(thread) = sampled(camera, &slot, kernel_tid, copy)?
        {
            return Ok(Some(thread));
        }
        let (kind, inner) = match (slot.is_on_cpu, carrier) {
            (false, _) => camera.registers_off_carrier(&slot),
            (true, Some((_, doing))) => camera.registers_on_carrier(doing),
            (true, None) => (Kind::Running, None),
        };
        let shown = inner.map(|inner| match carrier {
            Some((_, Doing::Stopped(..))) if has_runtime_file(camera) => inner,
            _ => outermost_of_runtime(camera, inner),
        });
        for range in [inner, shown].into_iter().flatten() {
            copy(stack_of(&range, slot.fs), None)?;
        }
        copy(slot.address..slot.address.saturating_add(slot_bytes), None)?;
        let Some(later) = camera.table.again(&slot) else {
            return Ok(None);
        };
        let is_same = match carrier {
            Some((_, doing @ Doing::Waits(_))) => {
                camera.carrier_of(&later).is_some_and(|(_, it)| it == doing)
            }
            _ => true,
        };
        if slot.is_unmoved(&later) && is_same {
            return Ok(Some(ThreadRegisters {
                record: slot.record,
                kind,
                registers: shown.map(|shown| user(camera, &slot, carrier, &shown)),
                control: control(camera, &slot),
                kernel_tid: carrier.map(|(tid, _)| tid),
            }));
        }
        if later.record.tid != slot.record.tid {
            return Ok(None);
        }
        slot = later;
    }
    Ok(Some(ThreadRegisters {
        record: slot.record,
        kind: if slot.is_on_cpu {
            Kind::Running
        } else {
            Kind::Restless
        },
        registers: None,
        control: None,
        kernel_tid: None,
    }))
}

/// Reads a thread that executes by a sample of its carrier; `None` without one, or if the thread
/// has left the carrier meanwhile.
fn sampled(
    camera: &mut Camera<'_>,
    slot: &Slot,
    kernel_tid: u32,
    copy: &mut Copy<'_>,
) -> io::Result<Option<ThreadRegisters>> {
    let Some(sample) = camera.sample_of(kernel_tid) else {
        return Ok(None);
    };
    let later = camera.table.again(slot);
    if !later.is_some_and(|later| slot.is_unmoved(&later)) {
        return Ok(None);
    }
    copy(stack_of(&sample.registers, slot.fs), None)?;
    if let Some((address, bytes)) = sample.stack.from(sample.registers[RSP]) {
        copy(address..address + bytes.len() as u64, Some(bytes))?;
    }
    let slot_bytes = camera.target.layout.slot_bytes;
    copy(slot.address..slot.address.saturating_add(slot_bytes), None)?;
    Ok(Some(ThreadRegisters {
        record: slot.record,
        kind: Kind::Sampled,
        registers: Some(general(&sample.registers, slot.fs)),
        control: None,
        kernel_tid: Some(kernel_tid),
    }))
}

/// Returns the part of memory that has the frames of code with these registers.
fn stack_of(registers: &Registers, fs: u64) -> Range<u64> {
    let from = registers[RSP].unwrap_or(0).saturating_sub(RED_ZONE);
    let to = match fs.checked_sub(from) {
        Some(bytes) if bytes < STACK_BYTES_MAX => fs.saturating_add(BLOCK_BYTES),
        _ => from.saturating_add(STACK_BYTES),
    };
    from..to
}

/// Returns true if a debugger finds the file that the runtime's code is in.
fn has_runtime_file(camera: &Camera<'_>) -> bool {
    let target = camera.target;
    let module = target.modules.at(target.layout.code.pass_end);
    module.is_none_or(|module| !module.is_deleted)
}

/// Goes outwards as long as the next frame is the runtime's, too, and out of an interruption; out
/// of the runtime if it has no file.
fn outermost_of_runtime(camera: &mut Camera<'_>, inner: Registers) -> Registers {
    let code = camera.target.layout.code;
    let is_runtime = |address: u64| (code.text_start..code.text_end).contains(&address);
    let has_file = has_runtime_file(camera);
    let mut registers = inner;
    let mut inside = registers[RIP].unwrap_or(0);
    for _ in 0..RUNTIME_FRAMES_MAX {
        if !is_runtime(inside) {
            break;
        }
        let Some((next, is_interrupted)) =
            camera
                .unwinder
                .caller(&registers, inside, &mut camera.pages)
        else {
            break;
        };
        let address = next[RIP].unwrap_or(0);
        inside = address.wrapping_sub(u64::from(!is_interrupted));
        if is_interrupted {
            registers = next;
        } else if is_runtime(inside) || !has_file {
            // What an entry has restored stays so up to the program.
            let known = registers;
            registers = next;
            for (register, value) in registers.iter_mut().enumerate() {
                *value = value.or(known[register].filter(|_| register != RBP));
            }
        } else {
            break;
        }
    }
    registers
}

/// Returns all registers in the kernel's order; those that are not known are zero.
fn user(
    camera: &Camera<'_>,
    slot: &Slot,
    carrier: Option<(u32, Doing)>,
    registers: &Registers,
) -> UserRegisters {
    const ORIG_RAX: usize = 15;
    const INSTRUCTION: usize = 16;
    if let (Some(stopped), Some((tid, Doing::Stopped(..)))) = (camera.target.stopped, carrier)
        && let Some(all) = stopped.of(tid, slot.record.tid)
        && registers[RIP] == Some(all[INSTRUCTION])
    {
        return *all;
    }
    let mut user = general(registers, slot.fs);
    if let Some((_, Doing::Waits(wait))) = carrier {
        user[ORIG_RAX] = wait.call.map_or(u64::MAX, u64::from);
    }
    user
}

/// Returns registers in the kernel's order, outside of a system call.
fn general(registers: &Registers, fs: u64) -> UserRegisters {
    /// The system call, cs, eflags, ss.
    const FIXED: [(usize, u64); 4] = [(15, u64::MAX), (17, 0x33), (18, 0x202), (20, 0x2b)];
    const FS_BASE: usize = 21;
    let mut user = [0; 27];
    for (register, place) in DWARF_OF_USER {
        user[place] = registers[register].unwrap_or(0);
    }
    for (place, value) in FIXED {
        user[place] = value;
    }
    user[FS_BASE] = fs;
    user
}

/// Returns the control words of a thread that is off its carrier.
fn control(camera: &mut Camera<'_>, slot: &Slot) -> Option<(u32, u16)> {
    if slot.is_on_cpu {
        return None;
    }
    let words = camera.pages.word(slot.context)?;
    Some((words as u32, (words >> 32) as u16))
}
