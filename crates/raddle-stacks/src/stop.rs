//! Stopping a process for a short time, by ptrace(2): registers of threads that execute code are
//! nowhere else.
//!
//! 1. Each kernel thread is seized and interrupted, until no new one appears.
//! 2. A signal that arrives meanwhile is kept, and given to its thread when that goes on.
//! 3. All go on when the value is dropped, or this process ends.

use std::fs;
use std::io;
use std::ptr::{null_mut, without_provenance_mut};

use crate::kernel::{StoppedThreads, UserRegisters, own_number};

const NT_PRSTATUS: usize = 1;
const NT_PRFPREG: usize = 2;
const NT_X86_XSTATE: usize = 0x202;
/// The most bytes of a thread's floating-point registers.
const FLOATS_MAX: usize = 1 << 14;
/// How often new kernel threads are looked for.
const ROUNDS: u32 = 16;

/// A process with kernel threads that don't run.
pub struct StoppedProcess {
    held: Vec<Held>,
}

struct Held {
    tid: libc::pid_t,
    /// In the process's own namespace.
    own_tid: u32,
    /// The signal that it was about to receive, or 0.
    signal: libc::c_int,
}

impl StoppedProcess {
    /// Stops a process.
    ///
    /// # Errors
    /// If the kernel doesn't permit it, or the process has another tracer.
    pub fn stop(pid: u32) -> io::Result<StoppedProcess> {
        let mut stopped = StoppedProcess { held: Vec::new() };
        for _ in 0..ROUNDS {
            let known = stopped.held.len();
            for entry in fs::read_dir(format!("/proc/{pid}/task"))? {
                let name = entry?.file_name();
                let Some(tid) = name.to_str().and_then(|it| it.parse().ok()) else {
                    continue;
                };
                if stopped.held.iter().all(|held| held.tid != tid) {
                    stopped.hold(pid, tid)?;
                }
            }
            if stopped.held.len() == known {
                return Ok(stopped);
            }
        }
        Err(io::Error::other("it makes kernel threads all the time"))
    }

    /// Stops a thread; one that has ended meanwhile is no error.
    fn hold(&mut self, pid: u32, tid: libc::pid_t) -> io::Result<()> {
        let seized = request(libc::PTRACE_SEIZE, tid, 0, 0)
            .and_then(|()| request(libc::PTRACE_INTERRUPT, tid, 0, 0));
        match seized {
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => return Ok(()),
            other => other?,
        }
        let mut status = 0;
        // SAFETY: the kernel writes to a live word.
        let waited = unsafe { libc::waitpid(tid, &raw mut status, libc::__WALL) };
        if waited != tid || !libc::WIFSTOPPED(status) {
            return Ok(()); // it has ended
        }
        // A stop that isn't the one that was asked for is the delivery of a signal.
        let is_event = status >> 16 != 0;
        self.held.push(Held {
            tid,
            own_tid: own_number(&format!("/proc/{pid}/task/{tid}")).unwrap_or(tid as u32),
            signal: if is_event { 0 } else { libc::WSTOPSIG(status) },
        });
        Ok(())
    }

    /// Returns the registers of all kernel threads.
    pub fn registers(&self) -> StoppedThreads {
        let read = |held: &Held| {
            let mut words: UserRegisters = [0; 27];
            let room = size_of_val(&words);
            let got = regset(held.tid, NT_PRSTATUS, words.as_mut_ptr().cast(), room);
            (got == room).then_some((held.own_tid, words))
        };
        StoppedThreads {
            registers: self.held.iter().filter_map(read).collect(),
            are_green: false,
        }
    }

    /// Returns the floating-point registers of a kernel thread, by its number in the process's own
    /// namespace: as FXSAVE and XSAVE store them.
    pub fn floats(&self, own_tid: u32) -> (Vec<u8>, Vec<u8>) {
        let Some(held) = self.held.iter().find(|held| held.own_tid == own_tid) else {
            return (Vec::new(), Vec::new());
        };
        let read = |kind| {
            let mut bytes = vec![0u8; FLOATS_MAX];
            let got = regset(held.tid, kind, bytes.as_mut_ptr(), FLOATS_MAX);
            bytes.truncate(got);
            bytes
        };
        (read(NT_PRFPREG), read(NT_X86_XSTATE))
    }
}

impl Drop for StoppedProcess {
    fn drop(&mut self) {
        for held in &self.held {
            let _ = request(libc::PTRACE_DETACH, held.tid, 0, held.signal as usize);
        }
    }
}

/// Returns how many bytes of a set of registers were stored at `to`.
fn regset(tid: libc::pid_t, kind: usize, to: *mut u8, room: usize) -> usize {
    let mut part = libc::iovec {
        iov_base: to.cast(),
        iov_len: room,
    };
    let address = (&raw mut part).expose_provenance();
    match request(libc::PTRACE_GETREGSET, tid, kind, address) {
        Ok(()) => part.iov_len,
        Err(_) => 0,
    }
}

fn request(kind: libc::c_uint, tid: libc::pid_t, at: usize, data: usize) -> io::Result<()> {
    let at = match at {
        0 => null_mut(),
        at => without_provenance_mut::<libc::c_void>(at),
    };
    let data = std::ptr::with_exposed_provenance_mut::<libc::c_void>(data);
    // SAFETY: none of the requests here reads or writes memory of this process, but GETREGSET:
    // its caller passes a live iovec and its room.
    match unsafe { libc::ptrace(kind, tid, at, data) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_stopped_and_goes_on() {
        let mut child = std::process::Command::new("sleep")
            .arg("100")
            .spawn()
            .unwrap();
        std::thread::sleep(std::time::Duration::from_millis(200));
        let state = |pid| {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
            stat.rsplit(')')
                .next()
                .unwrap()
                .trim()
                .chars()
                .next()
                .unwrap()
        };
        let stopped = StoppedProcess::stop(child.id()).unwrap();
        assert_eq!(state(child.id()), 't');
        let registers = stopped.registers();
        let sleeps = registers.registers[&child.id()];
        assert!(sleeps[16] != 0 && sleeps[19] != 0);
        assert_eq!(stopped.floats(child.id()).0.len(), 512);
        drop(stopped);
        std::thread::sleep(std::time::Duration::from_millis(50));
        assert_eq!(state(child.id()), 'S');
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn a_process_that_is_gone_is_an_error() {
        assert!(StoppedProcess::stop(u32::MAX >> 1).is_err());
    }
}
