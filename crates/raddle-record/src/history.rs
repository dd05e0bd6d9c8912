//! What each thread does, from event to event.
//!
//! A thread is in one [`Activity`] at a time, which begins and ends with an event:
//!
//! | event | ends | begins |
//! |---|---|---|
//! | a carrier leaves a thread | running | waiting, or runnable if it waits for nothing |
//! | a carrier comes to a thread | whatever it did | running |
//! | a thread is woken | waiting | runnable |
//! | a carrier waits in the kernel | running | in the kernel |
//! | it is back | in the kernel | running |
//!
//! Times are exact as far as no event is lost. A wake-up may be told before the switch that it
//! overtook: the thread is runnable then as soon as it has left its carrier.
//!
//! Where in the code the time was spent is known of some of these spans only, which the reader of
//! stacks has [marked](History::mark).

mod live;
#[cfg(test)]
mod tests;
mod waits;

use std::collections::VecDeque;
use std::collections::hash_map::Entry;

use raddle_inspect::{Event, EventKind, ThreadRecord, ThreadState, WaitKind};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::profile::{Activity, Thread};
use crate::rings::Lane;
use live::{Before, Live, Mark, carried, object_of, waiting, word_of};

/// The most threads that are told apart; further ones count as one.
const THREADS_MAX: usize = 1 << 18;
/// The most different waits of threads; further ones count without their objects.
const TOTALS_MAX: usize = 1 << 20;
/// The most spans of which the stacks are kept.
const SPANS_MAX: usize = 1 << 21;
/// The most spans that wait for a reader of their stacks.
const UNREAD_MAX: usize = 1 << 20;
/// The most objects that are told to the caller, for their names.
const OBJECTS_MAX: usize = 1 << 16;
/// The most threads that are kept as wakers of an object.
const WAKERS_MAX: usize = 1 << 10;

/// A span that was read by a smaller chance stands for no more.
const LEAST_CHANCE: f64 = 1e-6;

/// The most locks of a thread of which the holds are counted.
const TAKEN_MAX: usize = 8;

/// The position of a thread in [`History::threads`].
pub type Position = u32;

/// What a thread did with a part of its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Doing {
    pub thread: Position,
    pub activity: Activity,
    /// What it waited for, or 0.
    pub object: u64,
}

/// All spans of one [`Doing`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Total {
    pub ns: u64,
    pub count: u64,
    pub longest_ns: u64,
    /// When the first one began, by CLOCK_BOOTTIME.
    pub first_ns: u64,
}

/// How long threads had an object while others waited for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hold {
    pub ns: u64,
    pub count: u64,
    pub longest_ns: u64,
    /// When it was released last, by CLOCK_BOOTTIME.
    released_ns: u64,
}

/// A stack of a reader: the epoch in which the reader began, and the number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StackNumber {
    pub epoch: u32,
    pub number: u32,
}

/// A span of which the stack is known.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Span {
    pub doing: Doing,
    pub stack: StackNumber,
    /// When it began, by CLOCK_BOOTTIME.
    pub from_ns: u64,
    pub ns: u64,
    /// The time for which it stands, in nanoseconds: its own, and that of spans without a stack.
    pub stands_for_ns: f64,
}

/// One span that lasts, of which the stack may be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unread {
    pub tid: u32,
    pub activity: Activity,
    pub object: u64,
    /// Which span of the thread it is.
    serial: u64,
}

/// See the module.
pub struct History {
    begin_ns: u64,
    /// The time between two looks of the reader.
    interval_ns: u64,
    /// The latest event.
    now_ns: u64,
    live: FxHashMap<u32, Live>,
    /// Threads with kernel threads of their own, of which there are no events.
    left_out: FxHashSet<u32>,
    /// The thread on each carrier.
    lanes: FxHashMap<Lane, u32>,
    threads: Vec<Thread>,
    totals: FxHashMap<Doing, Total>,
    wakers: FxHashMap<(WaitKind, u64), FxHashMap<Position, u64>>,
    /// How long threads had what others waited for, until they woke another one from it.
    holds: FxHashMap<(WaitKind, u64), Hold>,
    /// What threads have waited for, and what of it is new since the last call.
    objects: FxHashSet<(WaitKind, u64)>,
    new_objects: Vec<(WaitKind, u64)>,
    spans: Vec<Span>,
    /// Spans that began since the reader looked last, and those before.
    fresh: Vec<Unread>,
    old: VecDeque<Unread>,
    /// Spans that had no room.
    pub dropped_spans: u64,
}

/// What a history comes to.
pub struct Told {
    pub threads: Vec<Thread>,
    pub totals: FxHashMap<Doing, Total>,
    pub wakers: FxHashMap<(WaitKind, u64), FxHashMap<Position, u64>>,
    pub holds: FxHashMap<(WaitKind, u64), Hold>,
    pub spans: Vec<Span>,
    pub dropped_spans: u64,
}

impl History {
    /// A history that begins at a time of CLOCK_BOOTTIME. The reader of stacks looks once in each
    /// interval.
    pub fn new(begin_ns: u64, interval_ns: u64) -> History {
        History {
            begin_ns,
            interval_ns,
            now_ns: begin_ns,
            live: FxHashMap::default(),
            left_out: FxHashSet::default(),
            lanes: FxHashMap::default(),
            threads: Vec::new(),
            totals: FxHashMap::default(),
            wakers: FxHashMap::default(),
            holds: FxHashMap::default(),
            objects: FxHashSet::default(),
            new_objects: Vec::new(),
            spans: Vec::new(),
            fresh: Vec::new(),
            old: VecDeque::new(),
            dropped_spans: 0,
        }
    }

    /// Takes a thread that was there when recording began; one that an event has told of is left as
    /// it is.
    pub fn was_there(&mut self, record: &ThreadRecord) {
        if self.live.contains_key(&record.tid) {
            return;
        }
        let activity = match record.state {
            ThreadState::RUNNING => Activity::Running,
            ThreadState::WAITING => waiting(record.wait_kind),
            _ => Activity::Runnable,
        };
        let object = object_of(activity, record.wait_arg);
        self.begin(record.tid, activity, object, self.begin_ns);
        if activity == Activity::Running {
            let lane = Lane::Carrier(record.carrier);
            self.lanes.entry(lane).or_insert(record.tid);
        }
    }

    /// Leaves out a thread that has a kernel thread of its own: it is in no ring.
    pub fn leave_out(&mut self, tid: u32) {
        if self.left_out.insert(tid)
            && let Some(live) = self.live.remove(&tid)
        {
            self.close(&live.before(), self.now_ns);
        }
    }

    /// Returns how many threads were left out.
    pub fn left_out(&self) -> usize {
        self.left_out.len()
    }

    /// Notes the name of a thread that lives.
    pub fn name(&mut self, tid: u32, name: &[u8]) {
        if let Some(live) = self.live.get(&tid)
            && let Some(thread) = self.threads.get_mut(live.position as usize)
            && thread.name.as_bytes() != name
        {
            thread.name = String::from_utf8_lossy(name).into_owned();
        }
    }

    /// Takes the next event.
    pub fn event(&mut self, lane: Lane, event: &Event, boot_ns: u64) {
        let at_ns = boot_ns.max(self.begin_ns);
        self.now_ns = self.now_ns.max(at_ns);
        match event.kind {
            EventKind::SWITCH => self.switch(lane, event, at_ns),
            EventKind::END => {
                self.end(event.thread, at_ns);
                self.run(lane, event.other, at_ns);
            }
            EventKind::WAKE => self.wake(event, at_ns),
            EventKind::CREATE => self.create(event, at_ns),
            EventKind::BLOCK => {
                self.turn(event.thread, Activity::Running, Activity::InKernel, at_ns)
            }
            EventKind::RETURN => {
                self.turn(event.thread, Activity::InKernel, Activity::Running, at_ns);
            }
            _ => {}
        }
    }

    fn switch(&mut self, lane: Lane, event: &Event, at_ns: u64) {
        if event.thread != 0 {
            let mut activity = waiting(event.wait);
            let live = self.live.get_mut(&event.thread);
            if live.is_some_and(|live| std::mem::replace(&mut live.is_woken, false)) {
                activity = Activity::Runnable;
            }
            let object = object_of(activity, event.arg);
            self.begin(event.thread, activity, object, at_ns);
        }
        self.run(lane, event.other, at_ns);
    }

    /// A carrier comes to a thread; 0 for none.
    fn run(&mut self, lane: Lane, tid: u32, at_ns: u64) {
        self.lanes.insert(lane, tid);
        if tid != 0 {
            if let Some(live) = self.live.get_mut(&tid)
                && let Some(object) = live.waited_for.take()
            {
                live.taken.retain(|(taken, _)| *taken != object);
                if live.taken.len() == TAKEN_MAX {
                    live.taken.remove(0);
                }
                live.taken.push((object, at_ns));
            }
            self.begin(tid, Activity::Running, 0, at_ns);
            if let Some(live) = self.live.get_mut(&tid) {
                live.is_woken = false;
                self.threads[live.position as usize].turns += 1;
            }
        }
    }

    /// Counts how long the waker has had what it wakes another thread from: since the end of its
    /// own wait for it; without one, since the other began to wait, or the last release.
    fn release(&mut self, event: &Event, at_ns: u64) {
        let Some(object) = word_of(event.wait, event.arg) else {
            return;
        };
        let woken = self.live.get(&event.thread);
        let waits_since_ns = woken
            .filter(|woken| woken.activity == Activity::Waiting(event.wait))
            .map(|woken| woken.since_ns);
        let Some(waker) = self.live.get_mut(&event.other) else {
            return;
        };
        let taken = waker.taken.iter().position(|(taken, _)| *taken == object);
        let since_ns = match taken {
            Some(at) => Some(waker.taken.swap_remove(at).1),
            None => waits_since_ns,
        };
        let hold = self.holds.entry(object).or_default();
        if let Some(since_ns) = since_ns {
            let ns = at_ns.saturating_sub(since_ns.max(hold.released_ns));
            hold.ns += ns;
            hold.count += 1;
            hold.longest_ns = hold.longest_ns.max(ns);
        }
        hold.released_ns = at_ns;
    }

    fn wake(&mut self, event: &Event, at_ns: u64) {
        self.release(event, at_ns);
        let waker = self.live.get(&event.other).map(|waker| waker.position);
        let Some(live) = self.live.get_mut(&event.thread) else {
            self.begin(event.thread, Activity::Runnable, 0, at_ns);
            return;
        };
        self.threads[live.position as usize].wakes += 1;
        let activity = waiting(event.wait);
        let object = object_of(activity, event.arg);
        match live.activity {
            Activity::Waiting(_) => self.begin(event.thread, Activity::Runnable, 0, at_ns),
            Activity::Running => live.is_woken = true,
            _ => {}
        }
        if let (Activity::Waiting(kind), Some(waker)) = (activity, waker) {
            let wakers = self.wakers.entry((kind, object)).or_default();
            if wakers.len() < WAKERS_MAX || wakers.contains_key(&waker) {
                *wakers.entry(waker).or_default() += 1;
            }
        }
    }

    fn create(&mut self, event: &Event, at_ns: u64) {
        self.left_out.remove(&event.thread);
        self.end(event.thread, at_ns);
        self.begin(event.thread, Activity::Runnable, 0, at_ns);
        let position = |tid| self.live.get(tid).map(|live| live.position as usize);
        let (new, parent) = (position(&event.thread), position(&event.other));
        // A new thread has its parent's name, until it gets another.
        let name = parent.map(|parent| self.threads[parent].name.clone());
        if let (Some(new), false) = (new, self.is_full()) {
            let thread = &mut self.threads[new];
            thread.began_ns = Some(at_ns - self.begin_ns);
            thread.name = name.unwrap_or_default();
        }
    }

    fn end(&mut self, tid: u32, at_ns: u64) {
        let Some(live) = self.live.remove(&tid) else {
            return;
        };
        let thread = &mut self.threads[live.position as usize];
        thread.ended_ns = Some(at_ns - self.begin_ns);
        self.close(&live.before(), at_ns);
    }

    /// Begins another activity if the thread is in a certain one.
    fn turn(&mut self, tid: u32, from: Activity, to: Activity, at_ns: u64) {
        if self
            .live
            .get(&tid)
            .is_some_and(|live| live.activity == from)
        {
            self.begin(tid, to, 0, at_ns);
        }
    }

    fn is_full(&self) -> bool {
        self.threads.len() >= THREADS_MAX
    }

    /// Ends what a thread does, and begins something else.
    fn begin(&mut self, tid: u32, activity: Activity, object: u64, at_ns: u64) {
        if self.left_out.contains(&tid) {
            return;
        }
        let serial = match self.live.entry(tid) {
            Entry::Occupied(mut entry) => {
                let live = entry.get_mut();
                let mark = carried(live, activity, at_ns, self.interval_ns);
                let before = live.before();
                live.activity = activity;
                live.object = object;
                live.since_ns = at_ns.max(before.since_ns);
                live.serial += 1;
                live.mark = mark;
                if let Activity::Waiting(kind) = activity {
                    live.waited_for = word_of(kind, object);
                }
                let serial = live.serial;
                self.close(&before, at_ns);
                serial
            }
            Entry::Vacant(entry) => {
                let position = self.threads.len().min(THREADS_MAX - 1);
                if position == self.threads.len() {
                    self.threads.push(Thread {
                        tid,
                        ..Thread::default()
                    });
                } else {
                    self.threads[position].name = "[further threads]".into();
                }
                entry.insert(Live {
                    position: position as Position,
                    activity,
                    object,
                    since_ns: at_ns,
                    serial: 0,
                    is_woken: false,
                    mark: None,
                    waited_for: match activity {
                        Activity::Waiting(kind) => word_of(kind, object),
                        _ => None,
                    },
                    taken: Vec::new(),
                });
                0
            }
        };
        if let Activity::Waiting(kind) = activity
            && object != 0
            && self.objects.len() < OBJECTS_MAX
            && self.objects.insert((kind, object))
        {
            self.new_objects.push((kind, object));
        }
        if activity != Activity::Running && self.fresh.len() < UNREAD_MAX {
            self.fresh.push(Unread {
                tid,
                activity,
                object,
                serial,
            });
        }
    }

    /// Counts a span.
    fn close(&mut self, live: &Before, at_ns: u64) {
        let ns = at_ns.saturating_sub(live.since_ns);
        let thread = &mut self.threads[live.position as usize];
        match live.activity {
            Activity::Running | Activity::WithoutCpu => thread.running_ns += ns,
            Activity::Runnable => {
                thread.runnable_ns += ns;
                thread.longest_runnable_ns = thread.longest_runnable_ns.max(ns);
            }
            Activity::InKernel => thread.in_kernel_ns += ns,
            Activity::Waiting(_) => thread.waiting_ns += ns,
        }
        let mut doing = Doing {
            thread: live.position,
            activity: live.activity,
            object: live.object,
        };
        if self.totals.len() >= TOTALS_MAX && !self.totals.contains_key(&doing) {
            doing.object = 0;
        }
        let total = self.totals.entry(doing).or_insert(Total {
            first_ns: live.since_ns,
            ..Total::default()
        });
        total.ns += ns;
        total.count += 1;
        total.longest_ns = total.longest_ns.max(ns);
        let Some(mark) = live.mark else {
            return;
        };
        if self.spans.len() >= SPANS_MAX {
            self.dropped_spans += 1;
            return;
        }
        let least_ns = if mark.is_own { self.interval_ns } else { 0 };
        self.spans.push(Span {
            doing,
            stack: mark.stack,
            from_ns: live.since_ns,
            ns,
            stands_for_ns: ns.max(least_ns) as f64 / mark.chance.max(LEAST_CHANCE),
        });
    }

    /// Returns the thread on a carrier after the last event.
    pub fn running(&self, carrier: u32) -> Option<(u32, Position)> {
        let tid = *self.lanes.get(&Lane::Carrier(carrier))?;
        Some((tid, self.live.get(&tid)?.position))
    }

    /// Returns what threads have begun to wait for that none had before the last call.
    pub fn new_objects(&mut self) -> Vec<(WaitKind, u64)> {
        std::mem::take(&mut self.new_objects)
    }

    /// Returns the position of a thread that lives.
    pub fn position(&self, tid: u32) -> Option<Position> {
        self.live.get(&tid).map(|live| live.position)
    }

    /// Returns the spans that have begun since the last call, and last.
    pub fn fresh(&mut self) -> Vec<Unread> {
        let mut fresh = std::mem::take(&mut self.fresh);
        fresh.retain(|unread| self.lasts(unread));
        fresh
    }

    /// Puts a span back that was not read, to be read if there is time.
    pub fn put_back(&mut self, unread: Unread) {
        if self.old.len() < UNREAD_MAX {
            self.old.push_back(unread);
        }
    }

    /// Returns the next one of those that were put back and last.
    pub fn put_back_before(&mut self) -> Option<Unread> {
        while let Some(unread) = self.old.pop_front() {
            if self.lasts(&unread) {
                return Some(unread);
            }
        }
        None
    }

    fn lasts(&self, unread: &Unread) -> bool {
        let live = self.live.get(&unread.tid);
        live.is_some_and(|live| live.serial == unread.serial && live.mark.is_none())
    }

    /// Notes the stack of a span that lasts.
    pub fn mark(&mut self, unread: &Unread, stack: StackNumber, chance: f64) {
        if let Some(live) = self.live.get_mut(&unread.tid)
            && live.serial == unread.serial
        {
            live.mark = Some(Mark {
                stack,
                chance,
                is_own: true,
            });
        }
    }

    /// Ends all spans at a time.
    pub fn finish(mut self, at_ns: u64) -> Told {
        let at_ns = at_ns.max(self.now_ns);
        for live in std::mem::take(&mut self.live).into_values() {
            self.close(&live.before(), at_ns);
        }
        Told {
            threads: self.threads,
            totals: self.totals,
            wakers: self.wakers,
            holds: self.holds,
            spans: self.spans,
            dropped_spans: self.dropped_spans,
        }
    }
}
