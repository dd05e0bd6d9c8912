//! Why a process stays on kernel threads, for its user.

use core::fmt;
use raddle_inspect::policy::Kind;
use raddle_inspect::settings::{self, CARRIERS_MAX, QUANTA_US, THREADS_MAX};
use raddle_patch::Refusal;

/// Why the process stays on kernel threads.
pub(crate) enum Why {
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
    /// The call that a filter refuses.
    Filter(&'static str),
    Patching(Refusal),
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
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
            Self::MaxThreads => return not_number(f, settings::MAX_THREADS, 1, THREADS_MAX),
            Self::MaxRunnable => return not_number(f, settings::MAX_RUNNABLE, 1, THREADS_MAX),
            Self::Quantum => {
                let (name, from, to) = (settings::QUANTUM, QUANTA_US.start(), QUANTA_US.end());
                return write!(
                    f,
                    "{name} is not 0 or a number from {from} to {to}; correct it"
                );
            }
            Self::Chaos => return not_number(f, settings::CHAOS, 0, u32::MAX),
            Self::Policy => {
                write!(f, "{} is not ", settings::POLICY)?;
                for (index, kind) in Kind::BUILT_IN.into_iter().enumerate() {
                    write!(f, "{}{}", if index == 0 { "" } else { ", " }, kind.name())?;
                }
                " or a path; correct it"
            }
            Self::Share => {
                let (share, policy, fair) = (settings::SHARE, settings::POLICY, Kind::Fair.name());
                return write!(
                    f,
                    "{share} is not a list of name:GLOB=PERCENT and lib:GLOB=PERCENT of 100 at \
                     most, or {policy} is not {fair}; correct it"
                );
            }
            Self::Cpus => {
                return write!(
                    f,
                    "{} is neither carriers nor machine; correct it",
                    settings::CPUS
                );
            }
            Self::Carriers => return not_number(f, settings::CARRIERS, 1, CARRIERS_MAX),
            Self::ExtraCarriers => {
                return not_number(f, settings::EXTRA_CARRIERS, 0, CARRIERS_MAX);
            }
            Self::Filter(call) => {
                return write!(
                    f,
                    "a filter of system calls (seccomp) refuses {call}, which green threads need; \
                     allow it"
                );
            }
            Self::Patching(refusal) => return write!(f, "{refusal}"),
        };
        f.write_str(text)
    }
}

fn not_number(f: &mut fmt::Formatter<'_>, name: &str, from: u32, to: u32) -> fmt::Result {
    write!(f, "{name} is not a number from {from} to {to}; correct it")
}
