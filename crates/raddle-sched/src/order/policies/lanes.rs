//! Priority: one queue, a *lane*, for each importance; a lane runs only while all more important
//! ones are empty.
//!
//! Important tasks that never wait would starve the rest, perhaps even a task that they wait for.
//! So at most every [`RELIEF_NS`] the longest waiting task of the less important lanes runs, if it
//! has waited that long. (Linux keeps a twentieth of the time from its real-time classes for the
//! same reason.)

use super::chain::Chain;
use super::{Policy, Reason};
use crate::task::{Class, TaskRef, Terms, of};

/// Lanes: deadlines, priorities 99 to 1, niceness -20 to 19, idle.
pub const LANES: usize = 1 + 99 + 40 + 1;
/// How long more important tasks may keep a task waiting.
pub const RELIEF_NS: u64 = 50_000_000;
const WORDS: usize = LANES.div_ceil(64);

/// Returns the lane of these terms; 0 is the most important.
///
/// `SCHED_DEADLINE` comes first, then the real-time classes by priority, then the others by
/// niceness, and `SCHED_IDLE` last.
pub fn lane(terms: &Terms) -> usize {
    match terms.class() {
        Class::DEADLINE => 0,
        Class::FIFO | Class::ROUND_ROBIN => 100 - terms.priority().clamp(1, 99) as usize,
        Class::IDLE => LANES - 1,
        _ => (120 + terms.nice().clamp(-20, 19)) as usize,
    }
}

/// See the module.
pub struct Lanes {
    lanes: [Chain; LANES],
    /// A bit for each lane that isn't empty.
    filled: [u64; WORDS],
    /// When `pick` last looked for a task that has waited too long.
    relieved_ns: u64,
}

impl Lanes {
    /// No tasks.
    pub const fn new() -> Self {
        Self {
            lanes: [const { Chain::new() }; LANES],
            filled: [0; WORDS],
            relieved_ns: 0,
        }
    }

    /// Returns the most important lane that isn't empty.
    fn first(&self) -> Option<usize> {
        let words = self.filled.iter().enumerate();
        let mut filled = words.filter(|(_, word)| **word != 0);
        filled
            .next()
            .map(|(at, word)| at * 64 + word.trailing_zeros() as usize)
    }
}

impl Lanes {
    /// Returns the lane, behind `first`, with the longest waiting next task, if it waited too long.
    #[cold]
    fn neglected(&mut self, first: usize, now_ns: u64) -> Option<usize> {
        self.relieved_ns = now_ns;
        let since = |lane: usize| self.lanes[lane].first().map(|task| of(task).since_ns.get());
        let heads = (first + 1..LANES).filter_map(|lane| Some((since(lane)?, lane)));
        let waited = heads.filter(|(since_ns, _)| now_ns.saturating_sub(*since_ns) >= RELIEF_NS);
        waited.min().map(|(_, lane)| lane)
    }
}

impl Default for Lanes {
    fn default() -> Self {
        Self::new()
    }
}

impl Policy for Lanes {
    /// A `SCHED_FIFO` task keeps its turn when a more important task preempts it.
    fn enqueue(&mut self, task: TaskRef, reason: Reason, now_ns: u64) {
        of(task).since_ns.set(now_ns);
        let terms = &task.get().policy.terms;
        let lane = lane(terms);
        if reason == Reason::Preempted && terms.class() == Class::FIFO {
            self.lanes[lane].push_front(task);
        } else {
            self.lanes[lane].push_back(task);
        }
        self.filled[lane / 64] |= 1 << (lane % 64);
    }

    fn pick(&mut self, now_ns: u64) -> Option<TaskRef> {
        let mut lane = self.first()?;
        if now_ns.saturating_sub(self.relieved_ns) >= RELIEF_NS {
            lane = self.neglected(lane, now_ns).unwrap_or(lane);
        }
        let task = self.lanes[lane].pop_front();
        if self.lanes[lane].is_empty() {
            self.filled[lane / 64] &= !(1 << (lane % 64));
        }
        task
    }

    fn outranks(&self, running: TaskRef) -> bool {
        self.first()
            .is_some_and(|first| first < lane(&running.get().policy.terms))
    }
}
