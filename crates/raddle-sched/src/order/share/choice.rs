//! Which task a timed carrier runs next.

use super::{AheadQueue, CHAIN_NS, LINGER_NS, LONG_TURN_NS, LOOK_NS};
use crate::task::TaskRef;
use core::cell::Cell;

/// Where a timed carrier finds tasks, besides the [`AheadQueue`].
pub trait Sources {
    /// Looks at timers and descriptors, which makes tasks runnable.
    fn look_around(&mut self);

    /// Takes the task that was woken last on this carrier.
    fn take_slot(&mut self) -> Option<TaskRef>;

    /// Takes the first task of this carrier's ring.
    fn take_ring(&mut self) -> Option<TaskRef>;

    /// Takes tasks that were made runnable outside of all carriers: one to run, perhaps others into
    /// the ring.
    fn take_injected(&mut self) -> Option<TaskRef>;

    /// Returns how many tasks wait in this carrier's slot and ring.
    fn queued(&self) -> usize;

    /// Takes a task from the ring of another carrier that has many.
    fn steal(&mut self) -> Option<TaskRef>;
}

/// A timed carrier's record of its choices. Written by that carrier.
#[derive(Default)]
pub struct Chooser {
    /// The end of the last long turn; `u64::MAX` while one lasts.
    long_ns: Cell<u64>,
    /// The last look at timers and descriptors.
    looked_ns: Cell<u64>,
    /// When the chain of tasks from the slot began: at the last task from the ring or the injector,
    /// or after its turn. Tasks that are ahead are part of the chain: one that gives way to each
    /// task that it wakes is queued with them, however little it has used.
    chain_ns: Cell<u64>,
    /// True if that task came from the ring or the injector: the slot is next.
    slot_next: Cell<bool>,
    /// True if that task came from the ring: the injector is next.
    took_ring: Cell<bool>,
    /// True if tasks that were queued first in, first out are next.
    fifo_next: Cell<bool>,
    /// True if the last turn was short and ended by a yield.
    has_yielded: Cell<bool>,
    /// How many such turns there were in a row.
    yields: Cell<usize>,
    /// True if the turn is one of a task that is ahead.
    is_ahead_turn: Cell<bool>,
    /// True if the last such turn was short.
    was_ahead_turn_short: Cell<bool>,
}

impl Chooser {
    /// The carrier becomes timed: a long turn lasts.
    pub fn begin(&self) {
        self.long_ns.set(u64::MAX);
    }

    /// A turn of `turn_ns` has ended at `now_ns`; `ahead_waits` is true if tasks that are ahead
    /// wait. Returns true if no turn has been long for [`LINGER_NS`].
    pub fn turn_ended(&self, now_ns: u64, turn_ns: u64, ahead_waits: bool) -> bool {
        if self.is_ahead_turn.replace(false) {
            self.was_ahead_turn_short.set(turn_ns < LONG_TURN_NS);
        }
        let is_first = self.long_ns.get() == u64::MAX;
        if turn_ns >= LONG_TURN_NS || ahead_waits || is_first {
            self.long_ns.set(now_ns);
        }
        now_ns.saturating_sub(self.long_ns.get()) >= LINGER_NS
    }

    /// Returns true if timers and descriptors were looked at a moment before `now_ns`.
    pub fn has_looked(&self, now_ns: u64) -> bool {
        now_ns.saturating_sub(self.looked_ns.get()) < LOOK_NS
    }

    /// Returns true if timers and descriptors were not looked at within `every_ns`: the caller must
    /// look.
    pub fn looks(&self, now_ns: u64, every_ns: u64) -> bool {
        let looks = now_ns.saturating_sub(self.looked_ns.get()) >= every_ns;
        if looks {
            self.looked_ns.set(now_ns);
        }
        looks
    }

    /// A task has made room for another: the next task is one that is not ahead, if such a task
    /// waits.
    pub fn made_room(&self) {
        self.fifo_next.set(true);
    }

    /// A task that is not ahead yields after a turn of `turn_ns`.
    pub fn yielded(&self, turn_ns: u64) {
        self.has_yielded.set(turn_ns < LONG_TURN_NS);
    }

    /// Returns true if each task of the carrier's queue has yielded since another one ran: none has
    /// anything urgent to do.
    fn all_yield(&self, sources: &impl Sources) -> bool {
        let yields = if self.has_yielded.replace(false) {
            self.yields.get() + 1
        } else {
            0
        };
        self.yields.set(yields);
        yields != 0 && yields >= sources.queued()
    }

    /// Takes the task that runs next, at `now_ns`, when the fair clock says `fair_ns`. `None` if no
    /// task was found.
    pub fn choose(
        &self,
        now_ns: u64,
        fair_ns: u64,
        ahead: &AheadQueue,
        sources: &mut impl Sources,
    ) -> Option<TaskRef> {
        let all_yield = self.all_yield(sources);
        let mut has_looked = false;
        if !self.has_looked(now_ns) {
            self.look_around(now_ns, sources);
            has_looked = true;
        }
        if self.fifo_next.replace(false)
            && let Some(task) = self.take_fifo(now_ns, sources)
        {
            return Some(task);
        }
        // A task that is ahead usually runs for long. Look for the tasks that it keeps waiting,
        // because the fair clock counts them. Tasks that serve requests may be ahead, too: their
        // turns are short.
        has_looked |= self.was_ahead_turn_short.get();
        let fair_ns = if all_yield { u64::MAX } else { fair_ns };
        let is_due = ahead.is_due(fair_ns);
        if is_due && !has_looked {
            self.look_around(now_ns, sources);
        }
        if is_due && let Some(task) = ahead.pop_due(fair_ns) {
            return Some(self.took_ahead(task));
        }
        if let Some(task) = self.take_fifo(now_ns, sources) {
            return Some(task);
        }
        if ahead.is_empty() {
            return None;
        }
        if !is_due && !has_looked {
            self.look_around(now_ns, sources);
        }
        self.take_fifo(now_ns, sources)
            .or_else(|| sources.steal())
            .or_else(|| Some(self.took_ahead(ahead.pop()?)))
    }

    fn look_around(&self, now_ns: u64, sources: &mut impl Sources) {
        self.looked_ns.set(now_ns);
        sources.look_around();
    }

    fn took_ahead(&self, task: TaskRef) -> TaskRef {
        self.fifo_next.set(true);
        self.yields.set(0);
        self.is_ahead_turn.set(true);
        task
    }

    /// Takes a task that was due when it was queued: from the slot for [`CHAIN_NS`], then one from
    /// the ring or the injector in turn. After that task the slot is next, however long the task
    /// runs.
    fn take_fifo(&self, now_ns: u64, sources: &mut impl Sources) -> Option<TaskRef> {
        if self.slot_next.replace(false) {
            self.chain_ns.set(now_ns);
        }
        let chain_lasts = now_ns.saturating_sub(self.chain_ns.get()) < CHAIN_NS;
        if chain_lasts && let Some(task) = sources.take_slot() {
            return Some(task);
        }
        self.chain_ns.set(now_ns);
        self.slot_next.set(true);
        let task = if self.took_ring.get() {
            self.injected(sources).or_else(|| self.ring(sources))
        } else {
            self.ring(sources).or_else(|| self.injected(sources))
        };
        task.or_else(|| sources.take_slot())
    }

    fn ring(&self, sources: &mut impl Sources) -> Option<TaskRef> {
        let task = sources.take_ring()?;
        self.took_ring.set(true);
        Some(task)
    }

    fn injected(&self, sources: &mut impl Sources) -> Option<TaskRef> {
        let task = sources.take_injected()?;
        self.took_ring.set(false);
        Some(task)
    }
}

#[cfg(all(test, not(any(raddle_loom, raddle_shuttle))))]
mod tests {
    use super::*;
    use crate::task::Task;
    use std::collections::VecDeque;
    use std::ptr::NonNull;

    /// A carrier's slot and ring.
    #[derive(Default)]
    struct Queues {
        slot: Option<TaskRef>,
        ring: VecDeque<TaskRef>,
        looks: u32,
    }

    impl Sources for Queues {
        fn look_around(&mut self) {
            self.looks += 1;
        }

        fn take_slot(&mut self) -> Option<TaskRef> {
            self.slot.take()
        }

        fn take_ring(&mut self) -> Option<TaskRef> {
            self.ring.pop_front()
        }

        fn take_injected(&mut self) -> Option<TaskRef> {
            None
        }

        fn queued(&self) -> usize {
            self.ring.len() + usize::from(self.slot.is_some())
        }

        fn steal(&mut self) -> Option<TaskRef> {
            None
        }
    }

    #[test]
    fn long_turns_of_others_keep_no_woken_task_in_the_slot() {
        let tasks = [Task::new(), Task::new(), Task::new()];
        // SAFETY: the tasks outlive the queues.
        let [woken, first, second] =
            [0, 1, 2].map(|at| unsafe { TaskRef::new(NonNull::from(&tasks[at])) });
        let (chooser, ahead) = (Chooser::default(), AheadQueue::new());
        let mut sources = Queues {
            slot: Some(woken),
            ring: VecDeque::from([first, second]),
            looks: 0,
        };
        for turn in 1..=3 {
            let now_ns = turn * 100 * LONG_TURN_NS;
            let task = chooser.choose(now_ns, 0, &ahead, &mut sources);
            let task = task.expect("three tasks are queued");
            if task == woken {
                return;
            }
            sources.ring.push_back(task);
        }
        panic!("the woken task waits for more than two turns");
    }

    /// Returns how many looks precede the choices, of a task that is ahead, in turns of `turn_ns`
    /// of which the first look at the time finds descriptors looked at a moment ago.
    fn looks_before_ahead(turn_ns: u64) -> u32 {
        let task = Task::new();
        // SAFETY: the task outlives the queue.
        let task = unsafe { TaskRef::new(NonNull::from(&task)) };
        let (chooser, ahead) = (Chooser::default(), AheadQueue::new());
        let mut sources = Queues::default();
        let mut now_ns = LOOK_NS;
        for _ in 0..10 {
            chooser.turn_ended(now_ns, turn_ns, true);
            chooser.looked_ns.set(now_ns);
            ahead.push(task, u64::MAX - 1);
            assert_eq!(chooser.choose(now_ns, 0, &ahead, &mut sources), Some(task));
            now_ns += turn_ns;
        }
        sources.looks
    }

    #[test]
    fn looks_precede_long_turns_of_tasks_that_are_ahead() {
        assert_eq!(looks_before_ahead(LONG_TURN_NS), 10);
        assert_eq!(looks_before_ahead(LONG_TURN_NS / 5), 1);
    }
}
