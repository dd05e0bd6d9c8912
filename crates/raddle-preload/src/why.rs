//! Why a process stays on kernel threads, for its user.

use core::fmt;
use raddle_patch::Refusal;

/// Why the process stays on kernel threads.
pub enum Why {
    NoFsgsbase,
    Secure,
    Threads,
    GoProgram,
    Valgrind,
    Sanitizer,
    Tracer,
    NoLinkMap,
    NoGlibc,
    OldGlibc,
    NewGlibc,
    NoMemory,
    Descriptors,
    Carriers,
    ExtraCarriers,
    Cpus,
    Quantum,
    Chaos,
    MaxThreads,
    MaxRunnable,
    Policy,
    Share,
    Patching(Refusal),
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoFsgsbase => {
                "the CPU or the kernel lacks FSGSBASE; use Linux 5.9 or later on x86-64 v2"
            }
            Self::Secure => {
                "the program is setuid or has file capabilities; run it as its own user"
            }
            Self::Threads => {
                "a library made a thread before raddle could start; exclude that library"
            }
            Self::GoProgram => "Go programs have a scheduler of their own; run them without raddle",
            Self::Valgrind => "valgrind simulates threads by itself; run it without raddle",
            Self::Sanitizer => {
                "a sanitizer (ASan, TSan, ...) keeps accounts of kernel threads; build without it"
            }
            Self::Tracer => "the program traces others by ptrace, which is bound to kernel threads",
            Self::NoLinkMap => {
                "ld.so's list of libraries was not found; use the system's dynamic loader"
            }
            Self::NoGlibc => "the program doesn't use glibc; use a glibc build",
            Self::NewGlibc => {
                "this glibc is newer than 2.43, the newest known to work; use a newer raddle"
            }
            Self::OldGlibc => "this glibc is older than 2.34; use a newer system",
            Self::NoMemory => "there is not enough memory or address space; raise the limits",
            Self::Descriptors => {
                "the limit on descriptors leaves raddle too few; raise it (ulimit -n) to 64 or more"
            }
            Self::MaxThreads => "RADDLE_MAX_THREADS is not a number from 1 to 1048576; correct it",
            Self::MaxRunnable => {
                "RADDLE_MAX_RUNNABLE is not a number from 1 to 1048576; correct it"
            }
            Self::Quantum => {
                "RADDLE_QUANTUM_US is not 0 or a number from 50 to 1000000; correct it"
            }
            Self::Chaos => "RADDLE_CHAOS is not a number from 0 to 4294967295; correct it",
            Self::Policy => {
                "RADDLE_POLICY is not fifo, lifo, priority, fair, deadline or a path; correct it"
            }
            Self::Share => {
                "RADDLE_SHARE is not a list of name:GLOB=PERCENT and lib:GLOB=PERCENT of 100 at \
                 most, or RADDLE_POLICY is not fair; correct it"
            }
            Self::Cpus => "RADDLE_CPUS is neither carriers nor machine; correct it",
            Self::Carriers => "RADDLE_CARRIERS is not a number from 1 to 1024; correct it",
            Self::ExtraCarriers => {
                "RADDLE_EXTRA_CARRIERS is not a number from 0 to 1024; correct it"
            }
            Self::Patching(refusal) => return write!(f, "{refusal}"),
        })
    }
}
