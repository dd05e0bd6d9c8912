//! Compiler threads of language runtimes.
//!
//! All threads of a Java or .NET program run slowly until its compiler threads have done their
//! work. In fair shares each of them is one among all that serve requests. Natively they get more:
//! a server's clients on the same machine wait for their CPU as well, and while they do, the
//! server's threads wait for them and leave the CPUs to compilers. Carriers are few kernel threads,
//! and take that time from the clients.
//!
//! So compiler threads, which are known by name, have two thirds of the CPU time together while
//! others want to run ([`JointAccount`](raddle_sched::share::JointAccount)). That holds in the
//! default order only, on timed carriers.

use crate::state::thread::Thread;
use core::sync::atomic::Ordering;
use raddle_sched::policies::Weight;

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

/// The part of a thread's state that says what it has used, its own or the compilers'.
impl Thread {
    fn compiles(&self) -> bool {
        self.compiles.load(Ordering::Relaxed) != 0
    }

    /// Returns the time of the fair clock from which on the thread has not used more than its
    /// share, when the clock says `fair_ns`.
    pub(crate) fn due_ns(&self, fair_ns: u64) -> u64 {
        if self.compiles() {
            let engine = self.engine();
            return engine.compilers.due_ns(fair_ns, engine.fair_clock.load());
        }
        self.account.due_ns(fair_ns)
    }

    /// Returns true if the thread has used more than its share.
    pub(crate) fn is_ahead(&self, fair_ns: u64) -> bool {
        self.due_ns(fair_ns) > fair_ns
    }

    /// Returns true if the thread will have used more than its share after `more_ns` of CPU time.
    pub(crate) fn is_ahead_after(&self, more_ns: u64, fair_ns: u64) -> bool {
        if self.compiles() {
            let engine = self.engine();
            let load = engine.fair_clock.load();
            return engine.compilers.is_ahead_after(more_ns, fair_ns, load);
        }
        self.account.due_ns(fair_ns) + more_ns > fair_ns
    }

    /// The thread begins a turn.
    pub(crate) fn begin_turn(&self, fair_ns: u64) {
        if self.compiles() {
            self.engine().compilers.begin(fair_ns);
        } else {
            self.account.begin(fair_ns);
        }
    }

    /// The thread has run for `ran_ns` up to `now_ns`.
    pub(crate) fn charge(&self, now_ns: u64, fair_ns: u64, ran_ns: u64, quantum_ns: u64) {
        self.account.ran(now_ns, ran_ns);
        self.pay(fair_ns, ran_ns, quantum_ns);
    }

    /// The thread pays for a turn of `ran_ns`, its own or a lent one.
    pub(crate) fn pay(&self, fair_ns: u64, ran_ns: u64, quantum_ns: u64) {
        let engine = self.engine();
        let weight = Weight::of(&self.task.policy.terms);
        let weight = weight.beside(engine.fair_clock.usual(weight));
        if self.compiles() {
            let load = engine.fair_clock.load();
            let joint = &engine.compilers;
            joint.charge(fair_ns, ran_ns, weight, load);
        } else {
            self.account.charge(fair_ns, ran_ns, quantum_ns, weight);
        }
    }
}
