//! What an imaginary task has used: an account of its own, or one with others.

use raddle_sched::policies::Weight;
use raddle_sched::policy::QUANTUM_NS;
use raddle_sched::share::{Account, FairClock, JointAccount};
use std::rc::Rc;

pub(crate) struct Used {
    pub own: Account,
    pub joint: Option<Rc<JointAccount>>,
    pub weight: Weight,
}

impl Used {
    pub(crate) fn due_ns(&self, clock: &FairClock) -> u64 {
        let fair_ns = clock.read_ns();
        match &self.joint {
            Some(joint) => joint.due_ns(fair_ns, clock.load()),
            None => self.own.due_ns(fair_ns),
        }
    }

    pub(crate) fn is_ahead_after(&self, more_ns: u64, clock: &FairClock) -> bool {
        let fair_ns = clock.read_ns();
        match &self.joint {
            Some(joint) => joint.is_ahead_after(more_ns, fair_ns, clock.load()),
            None => self.own.due_ns(fair_ns) + more_ns > fair_ns,
        }
    }

    pub(crate) fn begin(&self, clock: &FairClock) {
        match &self.joint {
            Some(joint) => joint.begin(clock.read_ns()),
            None => self.own.begin(clock.read_ns()),
        }
    }

    pub(crate) fn ran(&self, now_ns: u64, ran_ns: u64, clock: &FairClock) {
        self.own.ran(now_ns, ran_ns);
        self.pay(ran_ns, clock);
    }

    /// The task has lent a turn of `ran_ns`.
    pub(crate) fn lent(&self, ran_ns: u64, clock: &FairClock) {
        self.begin(clock);
        self.pay(ran_ns, clock);
    }

    fn pay(&self, ran_ns: u64, clock: &FairClock) {
        let fair_ns = clock.read_ns();
        let weight = self.weight.beside(clock.usual(self.weight));
        match &self.joint {
            Some(joint) => joint.charge(fair_ns, ran_ns, weight, clock.load()),
            None => self.own.charge(fair_ns, ran_ns, QUANTUM_NS, weight),
        }
    }
}
