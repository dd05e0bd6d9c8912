//! Compiler threads of language runtimes.
//!
//! All threads of a Java or .NET program run slowly until its compiler threads have done their
//! work. In fair shares each of them is one among all that serve requests. Natively they get more:
//! a server's clients on the same machine wait for their CPU as well, and while they do, the
//! server's threads wait for them and leave the CPUs to compilers. Carriers are few kernel threads,
//! and take that time from the clients.
//!
//! So compiler threads, which are known by name, have a larger share while many threads want to
//! run: one in [`OTHERS`] of these together have as much as each compiler. The larger share counts
//! in the default order only, on timed carriers.

use crate::state::thread::Thread;
use core::sync::atomic::Ordering;

/// A compiler thread weighs as much as one thread in so many of those that want to run.
const OTHERS: u32 = 2;

/// Beginnings of names: those of OpenJDK's, GraalVM's, OpenJ9's and .NET's.
const NAMES: [&[u8]; 5] = [
    b"C1 CompilerThre",
    b"C2 CompilerThre",
    b"JVMCI-native Co",
    b"JIT Compilation",
    b".NET Tiered Com",
];

/// Notes whether `thread` is one. Its name is `name` from now on.
pub(crate) fn named(thread: &Thread, name: &[u8]) {
    let compiles = NAMES.iter().any(|beginning| name.starts_with(beginning));
    thread
        .compiles
        .store(u32::from(compiles), Ordering::Relaxed);
}

/// What `thread` is charged for `ran_ns` of CPU time.
pub(crate) fn charged_ns(thread: &Thread, ran_ns: u64) -> u64 {
    if thread.compiles.load(Ordering::Relaxed) == 0 {
        return ran_ns;
    }
    let weight = thread.engine().fair_clock.load().runnable / OTHERS;
    ran_ns / u64::from(weight.max(1))
}
