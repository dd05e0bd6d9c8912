//! What is wrong for longer than a moment, in plain words, with the cure.
//!
//! A *finding* is what one look, or the frame that it ends, says. It becomes a *lint* once it has
//! been made at each look for [`LASTS_NS`]. So nothing is reported of a program that is only busy:
//! all limits here are some times what a program in good health reaches.
//!
//! Other processes may take the CPUs away from the carriers. Then threads are late through no fault
//! of the program: waits count less by the part of their time for which carriers waited for a CPU.

mod find;
mod locks;

use std::collections::HashMap;

use super::look::Frame;
use super::source::{Condition, Source};
use locks::Locks;

/// For how long a finding must have been made before it is a lint.
const LASTS_NS: u64 = 900_000_000;

/// The kinds of lints, the worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Kind {
    /// Runnable threads get no turn.
    Starved,
    /// A thread holds its carrier in the kernel.
    HoldsCarrier,
    /// Threads queue for a lock that is passed from one to the next.
    Convoy,
    /// Threads queue for a lock of which the owner does something else.
    HeldLock,
    /// Threads that never wait hold all carriers, while others want to run.
    Hogged,
    /// Woken threads wait long for a carrier.
    WokenLate,
    /// There are many more runnable threads than carriers.
    Crowded,
    /// Threads with kernel threads of their own use most of the CPU time.
    BoundDominate,
}

impl Kind {
    /// Returns the word for it, as the JSON document has it.
    pub(super) fn word(self) -> &'static str {
        match self {
            Kind::Starved => "starved",
            Kind::HoldsCarrier => "holds_carrier",
            Kind::Convoy => "convoy",
            Kind::HeldLock => "held_lock",
            Kind::Hogged => "hogged",
            Kind::WokenLate => "woken_late",
            Kind::Crowded => "crowded",
            Kind::BoundDominate => "bound_dominate",
        }
    }
}

/// Something that is wrong, and the cure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Lint {
    pub kind: Kind,
    /// A carrier, a lock or an engine; findings of one kind differ in it.
    pub subject: u64,
    /// Since when it is so, as far as that is known.
    pub since_ns: u64,
    pub text: String,
    pub cure: String,
    pub tids: Vec<u32>,
    pub carriers: Vec<u32>,
    pub lock: Option<u64>,
}

impl Lint {
    fn new(kind: Kind, subject: u64, since_ns: u64, text: String, cure: String) -> Lint {
        Lint {
            kind,
            subject,
            since_ns,
            text,
            cure,
            tids: Vec::new(),
            carriers: Vec::new(),
            lock: None,
        }
    }
}

/// What is told of the process beside the frame.
pub(super) struct Settings {
    pub pid: u32,
    /// `u64::MAX` for none.
    pub quantum_ns: u64,
    pub cpus: u32,
}

/// Follows findings over looks.
#[derive(Default)]
pub(super) struct Watch {
    since_ns: HashMap<(Kind, u64), u64>,
    locks: Locks,
    late: find::Late,
}

impl Watch {
    /// Returns the lints at a look, the worst first.
    pub(super) fn look(&mut self, source: &Source, frame: &Frame) -> Vec<Lint> {
        if frame.condition != Condition::Runs {
            *self = Watch::default();
            return Vec::new();
        }
        let settings = Settings {
            pid: source.pid,
            quantum_ns: source.header().quantum_ns,
            cpus: source.cpus,
        };
        let mut findings = find::all(&settings, frame, &mut self.late);
        findings.extend(self.locks.look(source, frame));
        self.keep(findings, frame.now_ns)
    }

    /// Returns the findings that have lasted.
    fn keep(&mut self, findings: Vec<Lint>, now_ns: u64) -> Vec<Lint> {
        let before = std::mem::take(&mut self.since_ns);
        let mut lints = Vec::new();
        for finding in findings {
            let key = (finding.kind, finding.subject);
            let since_ns = before
                .get(&key)
                .map_or(finding.since_ns, |it| finding.since_ns.min(*it));
            self.since_ns.insert(key, since_ns);
            if now_ns.saturating_sub(since_ns) >= LASTS_NS {
                lints.push(Lint {
                    since_ns,
                    ..finding
                });
            }
        }
        lints.sort_by_key(|lint| (lint.kind, lint.subject));
        lints
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_is_a_lint_if_it_lasts() {
        let mut watch = Watch::default();
        let at = |since_ns| {
            let (text, cure) = ("slow".into(), "hurry".into());
            vec![Lint::new(Kind::Crowded, 0, since_ns, text, cure)]
        };
        let half = LASTS_NS / 2 + 1;
        assert!(watch.keep(at(1000), 1000).is_empty());
        assert!(watch.keep(at(1000 + half), 1000 + half).is_empty());
        let lints = watch.keep(at(1000 + 2 * half), 1000 + 2 * half);
        assert_eq!(lints.len(), 1);
        assert_eq!(lints[0].since_ns, 1000);
        assert!(watch.keep(Vec::new(), 3000 + 2 * half).is_empty());
        assert!(watch.keep(at(4 * half), 4 * half).is_empty());
    }
}
