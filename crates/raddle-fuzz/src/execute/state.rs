//! The state of a case at its end: that of every thread, and the process's.

use super::shared::{Line, Slot};
use super::{prepare, system};
use crate::case::{Case, MAIN, Page, Place};
use crate::generate::objects;

const F_GETFD: usize = 1;
const F_GETFL: usize = 3;
const FIRST: usize = 3;
const LAST: usize = 40;
/// Bytes of a full pipe.
const FULL_PIPE: u64 = 0x1_0000;

/// The file for the report of a program that a case has started.
pub(super) const AFTER_EXEC: &str = "after-exec";

/// Describes the calling process, which a case has started, in a file of the current folder.
///
/// # Errors
/// The file can't be written.
pub fn describe() -> std::io::Result<()> {
    // Ids of threads are no part of a state: names need no case.
    let slots = Slot::many(1)?;
    of_thread(&slots[0], MAIN);
    of_process(&slots[0], &Case::default());
    let mut file = std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(AFTER_EXEC)?;
    let lines: String = slots[0]
        .text()
        .lines()
        .map(|line| line.replacen("main ", "exec ", 1) + "\n")
        .collect();
    std::io::Write::write_all(&mut file, lines.as_bytes())
}

/// Writes the state of the calling thread.
pub(super) fn of_thread(slot: &Slot, agent: u8) {
    let mut mask = 0_u64;
    let mut pending = 0_u64;
    let address = |word: &mut u64| std::ptr::from_mut(word).expose_provenance();
    system(
        libc::SYS_rt_sigprocmask,
        [0, 0, address(&mut mask), 8, 0, 0],
    );
    system(
        libc::SYS_rt_sigpending,
        [address(&mut pending), 8, 0, 0, 0, 0],
    );
    let line = Line::new()
        .text("end mask ")
        .hex(mask)
        .text(" pending ")
        .hex(pending);
    line.write(slot, agent);
    let mut attributes = [0_u64; 7];
    let to = attributes.as_mut_ptr().expose_provenance();
    system(libc::SYS_sched_getattr, [0, to, 48, 0, 0, 0]);
    let line = Line::new().text("end scheduling");
    let line = attributes[..4]
        .iter()
        .fold(line, |line, &word| line.text(" ").hex(word));
    line.write(slot, agent);
    let mut stack = [0_u64; 3];
    let to = stack.as_mut_ptr().expose_provenance();
    system(libc::SYS_sigaltstack, [0, to, 0, 0, 0, 0]);
    if agent == MAIN {
        // The alternate stack of another thread is the standard library's, at an address of its
        // own.
        let line = Line::new()
            .text("end stack flags ")
            .hex(stack[1] & 0xffff_ffff);
        line.write(slot, agent);
    }
    let mut name = [0_u64; 2];
    let to = name.as_mut_ptr().expose_provenance();
    system(libc::SYS_prctl, [16, to, 0, 0, 0, 0]);
    let line = Line::new()
        .text("end name ")
        .hex(name[0])
        .text(" ")
        .hex(name[1]);
    line.write(slot, agent);
}

/// Writes the state of libc's objects, as calls tell it. Locks that are free are taken.
pub(super) fn of_objects(slot: &Slot) {
    let at = |offset| prepare::pointer(Place::new(Page::WORDS, offset));
    for (index, &offset) in objects::MUTEXES.iter().enumerate() {
        // SAFETY: a mutex of the case's.
        let result = unsafe { libc::pthread_mutex_trylock(at(offset).cast()) };
        let line = Line::new().text("end mutex ").number(index as i64);
        line.text(" ").number(result.into()).write(slot, MAIN);
    }
    for (index, &offset) in objects::RWLOCKS.iter().enumerate() {
        // SAFETY: a lock of the case's.
        let result = unsafe { libc::pthread_rwlock_trywrlock(at(offset).cast()) };
        let line = Line::new().text("end rwlock ").number(index as i64);
        line.text(" ").number(result.into()).write(slot, MAIN);
    }
    for (index, &offset) in objects::SEMAPHORES.iter().enumerate() {
        let mut value = 0;
        // SAFETY: a semaphore of the case's, and room for a number.
        unsafe { libc::sem_getvalue(at(offset).cast(), &raw mut value) };
        let line = Line::new().text("end semaphore ").number(index as i64);
        line.text(" ").number(value.into()).write(slot, MAIN);
    }
}

/// Writes the state of the process.
pub(super) fn of_process(slot: &Slot, case: &Case) {
    for descriptor in FIRST..=LAST {
        of_descriptor(slot, descriptor);
    }
    for signal in 1..=64 {
        of_action(slot, case, signal);
    }
    let mut ids = [0_u32; 6];
    let to = ids.as_mut_ptr().expose_provenance();
    system(libc::SYS_getresuid, [to, to + 4, to + 8, 0, 0, 0]);
    system(libc::SYS_getresgid, [to + 12, to + 16, to + 20, 0, 0, 0]);
    let line = ids.iter().fold(Line::new().text("end ids"), |line, &id| {
        line.text(" ").number(id.into())
    });
    line.write(slot, MAIN);
    let mask = system(libc::SYS_umask, [0, 0, 0, 0, 0, 0]);
    Line::new()
        .text("end umask ")
        .number(mask as i64)
        .write(slot, MAIN);
}

fn of_descriptor(slot: &Slot, descriptor: usize) {
    let flags = system(libc::SYS_fcntl, [descriptor, F_GETFD, 0, 0, 0, 0]);
    if flags < 0 {
        return;
    }
    let status = system(libc::SYS_fcntl, [descriptor, F_GETFL, 0, 0, 0, 0]);
    let offset = system(libc::SYS_lseek, [descriptor, 0, 1, 0, 0, 0]);
    // All events but those of the descriptor's end are asked for.
    let mut entry = [descriptor as u32, 0x20c7];
    let to = entry.as_mut_ptr().expose_provenance();
    system(libc::SYS_poll, [to, 1, 0, 0, 0, 0]);
    let events = entry[1] >> 16;
    let mut bytes = 0_u64;
    let to = (&raw mut bytes).expose_provenance();
    let readable = system(libc::SYS_ioctl, [descriptor, 0x541b, to, 0, 0, 0]);
    let line = Line::new()
        .text("end descriptor ")
        .number(descriptor as i64);
    let line = line
        .text(" ")
        .number(flags as i64)
        .text(" ")
        .hex(status as u64);
    let line = line
        .text(" at ")
        .number(offset as i64)
        .text(" events ")
        .hex(events.into());
    let line = line.text(" readable ").number(readable as i64).text(" ");
    let line = if bytes > FULL_PIPE && is_tcp(descriptor) {
        line.text("many")
    } else {
        line.hex(bytes)
    };
    line.write(slot, MAIN);
}

/// Returns true for TCP, where the bytes that two full buffers take depend on the time between
/// them.
fn is_tcp(descriptor: usize) -> bool {
    let (level, name) = (libc::SOL_SOCKET as usize, libc::SO_PROTOCOL as usize);
    let (mut protocol, mut bytes) = (0_i32, 4_u32);
    let to = (&raw mut protocol).expose_provenance();
    let length = (&raw mut bytes).expose_provenance();
    let result = system(
        libc::SYS_getsockopt,
        [descriptor, level, name, to, length, 0],
    );
    result == 0 && protocol == libc::IPPROTO_TCP
}

fn of_action(slot: &Slot, case: &Case, signal: usize) {
    let mut action = [0_u64; 4];
    let to = action.as_mut_ptr().expose_provenance();
    let result = system(libc::SYS_rt_sigaction, [signal, 0, to, 8, 0, 0]);
    let was_handled = case
        .handlers
        .iter()
        .any(|handler| usize::from(handler.signal) == signal);
    let is_ours = action[0] == prepare::handler_address() as u64;
    if result == 0 && action[0] == 0 && !was_handled {
        return;
    }
    // The standard library handles these two.
    if !is_ours && [7, 11, 13].contains(&signal) {
        return;
    }
    let line = Line::new().text("end action ").number(signal as i64);
    let line = line.text(" ").number(result as i64).text(" ");
    let line = match (is_ours, action[0]) {
        (true, _) => line.text("handler"),
        (_, 0) => line.text("default"),
        (_, 1) => line.text("ignored"),
        _ => line.text("other"),
    };
    let line = line
        .text(" flags ")
        .hex(action[1])
        .text(" mask ")
        .hex(action[3]);
    line.write(slot, MAIN);
}
