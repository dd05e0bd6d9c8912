//! What the kernel says of a process's kernel threads.

use std::collections::HashMap;
use std::fs;
use std::ops::Range;
use std::thread;
use std::time::Duration;

use crate::memory::Memory;
use crate::rules::{DWARF_OF_USER, REGISTERS, Registers};

/// The registers of a kernel thread, in the order of `user_regs_struct`.
pub type UserRegisters = [u64; 27];

/// Threads that don't run.
#[derive(Clone, Debug, Default)]
pub struct StoppedThreads {
    /// Registers of kernel threads, by their numbers in the process's own namespace.
    pub registers: HashMap<u32, UserRegisters>,
    /// True if a kernel thread has the number of the green thread that it runs.
    pub are_green: bool,
}

impl StoppedThreads {
    /// Returns the registers of the kernel thread that runs a green thread.
    pub(crate) fn of(&self, kernel_tid: u32, tid: u32) -> Option<&UserRegisters> {
        self.registers
            .get(if self.are_green { &tid } else { &kernel_tid })
    }
}

/// The kernel threads of a process.
pub(crate) struct KernelThreads<'a> {
    pid: u32,
    /// All of them, if they are stopped, or the process is a core file.
    stopped: Option<&'a StoppedThreads>,
    /// Their numbers here, by their numbers in the process's own namespace; empty if that is this
    /// process's, too.
    here: HashMap<u32, u32>,
}

/// Where a kernel thread waits in the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wait {
    /// The system call; `None` for a page fault or a stop.
    pub call: Option<u32>,
    /// Its arguments; zeroes without a call.
    pub arguments: [u64; 6],
    pub stack_pointer: u64,
    pub instruction_pointer: u64,
}

impl Wait {
    /// Returns true if the call waits until a child that has borrowed the memory executes a program
    /// or ends: `vfork`, and `clone` with that flag, which `posix_spawn` calls.
    pub(crate) fn is_vfork(&self, memory: &dyn Memory) -> bool {
        let call = self.call.map(libc::c_long::from);
        let flags = match call {
            Some(libc::SYS_vfork) => return true,
            Some(libc::SYS_clone) => Some(self.arguments[0]),
            Some(libc::SYS_clone3) => memory.word(self.arguments[0]),
            _ => None,
        };
        flags.is_some_and(|flags| flags & libc::CLONE_VFORK as u64 != 0)
    }
}

/// What a kernel thread does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Doing {
    Runs,
    Waits(Wait),
    Stopped(Registers),
    /// The kernel doesn't say.
    Unknown,
}

impl<'a> KernelThreads<'a> {
    pub(crate) fn of(pid: u32, stopped: Option<&'a StoppedThreads>) -> KernelThreads<'a> {
        let here = match stopped {
            Some(_) => HashMap::new(),
            None => kernel_numbers(pid),
        };
        KernelThreads { pid, stopped, here }
    }

    /// Reads the numbers of kernel threads again: there are new ones by now.
    pub(crate) fn renew(&mut self) {
        if !self.here.is_empty() {
            *self = KernelThreads::of(self.pid, self.stopped);
        }
    }

    /// Returns the number here of a kernel thread, by its number in the process's own namespace.
    pub(crate) fn here(&self, own_tid: u32) -> u32 {
        self.here.get(&own_tid).copied().unwrap_or(own_tid)
    }

    /// Returns the number of the system call that a stopped kernel thread is in: `orig_rax`, which
    /// is negative outside of calls. The numbers are those of [`KernelThreads::look`].
    pub(crate) fn stopped_call(&self, own_tid: u32, green_tid: u32) -> Option<u32> {
        const ORIG_RAX: usize = 15;
        const CALLS_MAX: u64 = 1 << 12;
        let call = self.stopped?.of(own_tid, green_tid)?[ORIG_RAX];
        (call < CALLS_MAX).then_some(call as u32)
    }

    /// Looks at a kernel thread, by its number in the process's own namespace. `green_tid` is the
    /// thread that it runs.
    pub(crate) fn look(&self, own_tid: u32, green_tid: u32) -> Doing {
        if let Some(stopped) = self.stopped {
            let registers = stopped.of(own_tid, green_tid).map(known);
            return registers.map_or(Doing::Unknown, Doing::Stopped);
        }
        let tid = self.here(own_tid);
        let line = fs::read_to_string(format!("/proc/{}/task/{tid}/syscall", self.pid));
        match line {
            Ok(line) => parse(&line),
            Err(_) => Doing::Unknown,
        }
    }
}

/// Returns the numbers here of a process's kernel threads, by their numbers in the process's own
/// PID namespace; empty if that is this process's, too.
pub fn kernel_numbers(pid: u32) -> HashMap<u32, u32> {
    let folder = format!("/proc/{pid}");
    if own_number(&folder).is_none_or(|own| own == pid) {
        return HashMap::new();
    }
    let tasks = fs::read_dir(format!("{folder}/task"));
    let tids = tasks.into_iter().flatten().filter_map(|task| {
        let tid = task.ok()?.file_name().to_str()?.parse().ok()?;
        Some((own_number(&format!("{folder}/task/{tid}"))?, tid))
    });
    tids.collect()
}

/// Returns true if every kernel thread of a process waits in a system call that `code` has made:
/// none runs, and none executes other code. A thread that runs may stop soon, and is looked at
/// again a few times.
pub(crate) fn tasks_are_within(pid: u32, code: Range<u64>) -> bool {
    const TRIES: u32 = 5;
    const PAUSE: Duration = Duration::from_millis(4);
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return false;
    };
    for task in tasks {
        let Ok(task) = task else {
            return false;
        };
        let path = task.path().join("syscall");
        let is_within = (0..TRIES).any(|number| {
            if number != 0 {
                thread::sleep(PAUSE);
            }
            let doing = fs::read_to_string(&path).map(|line| parse(&line));
            matches!(doing, Ok(Doing::Waits(wait)) if code.contains(&wait.instruction_pointer))
        });
        if !is_within {
            return false;
        }
    }
    true
}

/// Returns registers by their DWARF numbers.
fn known(user: &UserRegisters) -> Registers {
    let mut registers = [None; REGISTERS];
    for (register, place) in DWARF_OF_USER {
        registers[register] = Some(user[place]);
    }
    registers
}

/// Returns the number in the innermost namespace.
pub(crate) fn own_number(folder: &str) -> Option<u32> {
    let status = fs::read_to_string(format!("{folder}/status")).ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("NSpid:"))?;
    line.split_whitespace().last()?.parse().ok()
}

/// Parses a line of `/proc/PID/task/TID/syscall`.
fn parse(line: &str) -> Doing {
    let words: Vec<&str> = line.split_whitespace().collect();
    let hexadecimal = |word: &str| u64::from_str_radix(word.strip_prefix("0x")?, 16).ok();
    match words.as_slice() {
        ["running"] => Doing::Runs,
        [call, rest @ .., pointer, address] => match (hexadecimal(pointer), hexadecimal(address)) {
            (Some(stack_pointer), Some(instruction_pointer)) => Doing::Waits(Wait {
                call: call.parse().ok(),
                arguments: std::array::from_fn(|number| {
                    rest.get(number).and_then(|it| hexadecimal(it)).unwrap_or(0)
                }),
                stack_pointer,
                instruction_pointer,
            }),
            _ => Doing::Unknown,
        },
        _ => Doing::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_kernel_is_parsed() {
        let wait = |call: Option<u32>| {
            Doing::Waits(Wait {
                call,
                arguments: call.map_or([0; 6], |_| [3, 0x7f, 1, 0, 0, 0]),
                stack_pointer: 0x7ffc_0010,
                instruction_pointer: 0x7f_0010,
            })
        };
        assert_eq!(parse("running\n"), Doing::Runs);
        let line = "0 0x3 0x7f 0x1 0x0 0x0 0x0 0x7ffc0010 0x7f0010\n";
        assert_eq!(parse(line), wait(Some(0)));
        assert_eq!(parse("-1 0x7ffc0010 0x7f0010"), wait(None));
        assert_eq!(parse(""), Doing::Unknown);
        assert_eq!(parse("0 1 2"), Doing::Unknown);
    }

    #[test]
    fn this_thread_reads_the_line() {
        // SAFETY: it has no argument and can't fail.
        let tid = unsafe { libc::gettid() }.unsigned_abs();
        let threads = KernelThreads::of(std::process::id(), None);
        let Doing::Waits(wait) = threads.look(tid, tid) else {
            panic!("it is in the call that reads this");
        };
        assert_eq!(wait.call, Some(libc::SYS_read as u32));
        assert_eq!(threads.look(0, 0), Doing::Unknown);
    }
}
