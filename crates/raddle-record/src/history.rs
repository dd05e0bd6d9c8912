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

use std::collections::VecDeque;
use std::collections::hash_map::Entry;

use raddle_inspect::{Event, EventKind, ThreadRecord, ThreadState, WaitKind};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::profile::{Activity, Thread};
use crate::rings::Lane;

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
    /// The time for which it stands, in nanoseconds: with all spans of which the stack is not known.
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

/// A thread that lives.
struct Live {
    position: Position,
    activity: Activity,
    object: u64,
    since_ns: u64,
    serial: u64,
    /// It was woken before it was told that it waits.
    is_woken: bool,
    mark: Option<Mark>,
    /// What it has waited for since it ran last.
    waited_for: Option<(WaitKind, u64)>,
    /// What it has waited for, and since when it has that: if it is a lock, it holds it.
    taken: Vec<Taken>,
}

impl Live {
    fn before(&self) -> Before {
        Before {
            position: self.position,
            activity: self.activity,
            object: self.object,
            since_ns: self.since_ns,
            mark: self.mark,
        }
    }
}

/// A span that ends.
struct Before {
    position: Position,
    activity: Activity,
    object: u64,
    since_ns: u64,
    mark: Option<Mark>,
}

/// A lock, or what may be one, and when a thread took it.
type Taken = ((WaitKind, u64), u64);

/// The stack of a span.
#[derive(Clone, Copy)]
struct Mark {
    stack: StackNumber,
    /// How likely it was that it was read.
    chance: f64,
    /// It was read in this span, and not in the one before.
    is_own: bool,
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
    /// How long threads had what they had waited for, until they woke another one from it.
    holds: FxHashMap<(WaitKind, u64), Total>,
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
    pub holds: FxHashMap<(WaitKind, u64), Total>,
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

    /// Counts how long the waker has had what it waited for itself.
    fn release(&mut self, event: &Event, at_ns: u64) {
        let object = (event.wait, object_of(waiting(event.wait), event.arg));
        if let Some(waker) = self.live.get_mut(&event.other)
            && let Some(at) = waker.taken.iter().position(|(taken, _)| *taken == object)
        {
            let (_, since_ns) = waker.taken.swap_remove(at);
            let ns = at_ns.saturating_sub(since_ns);
            let hold = self.holds.entry(object).or_default();
            hold.ns += ns;
            hold.count += 1;
            hold.longest_ns = hold.longest_ns.max(ns);
        }
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
            Activity::Running => thread.running_ns += ns,
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
        self.spans.push(Span {
            doing,
            stack: mark.stack,
            from_ns: live.since_ns,
            ns,
            stands_for_ns: match mark.is_own {
                true => ns.max(self.interval_ns),
                false => ns,
            } as f64
                / mark.chance.max(LEAST_CHANCE),
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

/// Returns the mark of the next span, if the thread has the same stack there: it was woken, and has
/// not run. The chance that a short wait was seen is in proportion to its length.
fn carried(live: &Live, next: Activity, at_ns: u64, interval_ns: u64) -> Option<Mark> {
    let waited = matches!(live.activity, Activity::Waiting(_));
    let mark = live.mark.filter(|_| waited && next == Activity::Runnable)?;
    let ns = at_ns.saturating_sub(live.since_ns).max(1);
    let seen = (ns as f64 / interval_ns.max(1) as f64).min(1.0);
    Some(Mark {
        chance: mark.chance * seen,
        is_own: false,
        ..mark
    })
}

/// Returns what a thread does that has left its carrier.
fn waiting(kind: WaitKind) -> Activity {
    match kind {
        WaitKind::NONE | WaitKind::YIELD => Activity::Runnable,
        kind => Activity::Waiting(kind),
    }
}

/// Returns what a thread waits for if it is a word in memory, as locks are.
fn word_of(kind: WaitKind, object: u64) -> Option<(WaitKind, u64)> {
    (object != 0 && kind.is_address()).then_some((kind, object))
}

/// Returns what a thread waits for, if the argument says it.
fn object_of(activity: Activity, arg: u64) -> u64 {
    let says = |kind: WaitKind| {
        kind.is_address()
            || kind.is_descriptor()
            || matches!(kind, WaitKind::OTHER | WaitKind::CHILD)
    };
    match activity {
        Activity::Waiting(kind) if says(kind) => arg,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEGIN: u64 = 1000;

    fn event(kind: EventKind, thread: u32, other: u32, wait: WaitKind) -> Event {
        Event {
            stamp: 1,
            kind,
            thread,
            other,
            wait,
            arg: 0x40,
        }
    }

    fn told(events: &[(u32, EventKind, u32, u32, WaitKind, u64)]) -> Told {
        let mut history = History::new(BEGIN, 10);
        for &(lane, kind, thread, other, wait, at) in events {
            let lane = Lane::Carrier(lane);
            history.event(lane, &event(kind, thread, other, wait), BEGIN + at);
        }
        history.finish(BEGIN + 100)
    }

    fn total(told: &Told, tid: u32, activity: Activity) -> Total {
        let of = |(doing, _): &(&Doing, &Total)| {
            told.threads[doing.thread as usize].tid == tid && doing.activity == activity
        };
        told.totals
            .iter()
            .find(of)
            .map_or(Total::default(), |it| *it.1)
    }

    use EventKind as E;
    use WaitKind as W;

    #[test]
    fn every_moment_of_a_thread_is_counted_once() {
        let told = told(&[
            (0, E::SWITCH, 0, 7, W::NONE, 10),
            (0, E::SWITCH, 7, 8, W::MUTEX, 30),
            (0, E::WAKE, 7, 8, W::MUTEX, 50),
            (0, E::SWITCH, 8, 7, W::YIELD, 60),
            (0, E::END, 7, 8, W::NONE, 90),
        ]);
        let thread = &told.threads[0];
        assert_eq!((thread.tid, thread.running_ns), (7, 20 + 30));
        assert_eq!((thread.waiting_ns, thread.runnable_ns), (20, 10));
        assert_eq!(
            (thread.turns, thread.wakes, thread.ended_ns),
            (2, 1, Some(90))
        );
        let wait = total(&told, 7, Activity::Waiting(W::MUTEX));
        assert_eq!((wait.ns, wait.count, wait.longest_ns), (20, 1, 20));
        let other = &told.threads[1];
        assert_eq!((other.running_ns, other.runnable_ns), (30 + 10, 30));
        assert_eq!(told.wakers[&(W::MUTEX, 0x40)][&1], 1);
    }

    #[test]
    fn a_wake_up_that_overtakes_the_switch_counts() {
        let told = told(&[
            (0, E::SWITCH, 0, 7, W::NONE, 0),
            (1, E::WAKE, 7, 9, W::FUTEX, 20),
            (0, E::SWITCH, 7, 0, W::FUTEX, 21),
            (1, E::SWITCH, 0, 7, W::NONE, 40),
        ]);
        let thread = &told.threads[0];
        assert_eq!((thread.waiting_ns, thread.runnable_ns), (0, 19));
    }

    #[test]
    fn a_thread_that_takes_its_carrier_into_the_kernel_is_there() {
        let told = told(&[
            (0, E::SWITCH, 0, 7, W::NONE, 0),
            (0, E::BLOCK, 7, 0, W::NONE, 20),
            (0, E::RETURN, 7, 0, W::NONE, 70),
            (0, E::SWITCH, 7, 0, W::YIELD, 80),
        ]);
        let thread = &told.threads[0];
        assert_eq!((thread.running_ns, thread.in_kernel_ns), (30, 50));
        assert_eq!(thread.runnable_ns, 20);
    }

    #[test]
    fn a_span_is_marked_while_it_lasts() {
        let mut history = History::new(BEGIN, 10);
        let lane = Lane::Carrier(0);
        let stack = StackNumber {
            epoch: 0,
            number: 3,
        };
        history.event(lane, &event(E::SWITCH, 7, 0, W::MUTEX), BEGIN);
        let fresh = history.fresh();
        assert_eq!((fresh.len(), fresh[0].tid), (1, 7));
        history.mark(&fresh[0], stack, 0.5);
        history.event(lane, &event(E::SWITCH, 0, 7, W::NONE), BEGIN + 40);
        history.mark(&fresh[0], stack, 0.5);
        assert!(history.fresh().is_empty());
        history.event(lane, &event(E::SWITCH, 7, 0, W::SLEEP), BEGIN + 50);
        let unread = history.fresh()[0];
        history.put_back(unread);
        assert_eq!(history.put_back_before(), Some(unread));
        history.put_back(unread);
        history.event(lane, &event(E::WAKE, 7, 0, W::SLEEP), BEGIN + 60);
        assert_eq!(history.put_back_before(), None);
        let told = history.finish(BEGIN + 70);
        let [span] = told.spans[..] else {
            panic!("one span: {:?}", told.spans);
        };
        let stands_for = (span.ns, span.stands_for_ns, span.stack);
        assert_eq!(stands_for, (40, 80.0, stack));
        assert_eq!(span.doing.object, 0x40);
    }

    #[test]
    fn a_thread_that_was_woken_has_the_stack_of_its_wait() {
        let mut history = History::new(BEGIN, 10);
        let lane = Lane::Carrier(0);
        let stack = StackNumber {
            epoch: 0,
            number: 3,
        };
        history.event(lane, &event(E::SWITCH, 7, 0, W::MUTEX), BEGIN);
        let unread = history.fresh()[0];
        history.mark(&unread, stack, 0.5);
        history.event(lane, &event(E::WAKE, 7, 8, W::MUTEX), BEGIN + 5);
        assert!(history.fresh().is_empty());
        history.event(lane, &event(E::SWITCH, 0, 7, W::NONE), BEGIN + 8);
        let told = history.finish(BEGIN + 9);
        let spans: Vec<_> = told
            .spans
            .iter()
            .map(|it| (it.ns, it.stands_for_ns))
            .collect();
        // The wait stands for an interval of 10 by chance a half; it was seen by chance a half.
        assert_eq!(spans, [(5, 20.0), (3, 12.0)]);
    }

    #[test]
    fn a_hold_lasts_from_the_end_of_a_wait_to_the_next_waiters_wake_up() {
        let told = told(&[
            (0, E::SWITCH, 7, 8, W::FUTEX, 0),
            (0, E::WAKE, 7, 8, W::FUTEX, 10),
            (0, E::SWITCH, 8, 7, W::FUTEX, 20),
            (0, E::SWITCH, 7, 0, W::SLEEP, 30),
            (0, E::SWITCH, 0, 7, W::NONE, 50),
            (0, E::WAKE, 8, 7, W::FUTEX, 60),
            (0, E::WAKE, 8, 7, W::FUTEX, 61),
        ]);
        let hold = told.holds[&(W::FUTEX, 0x40)];
        assert_eq!((hold.ns, hold.count, hold.longest_ns), (40, 1, 40));
    }

    #[test]
    fn a_new_thread_has_the_name_of_its_parent() {
        let mut history = History::new(BEGIN, 10);
        let mut record = ThreadRecord {
            tid: 7,
            carrier: 2,
            ..ThreadRecord::default()
        };
        record.state = ThreadState::RUNNING;
        history.was_there(&record);
        history.name(7, b"pool");
        assert_eq!(history.running(2), Some((7, 0)));
        let made = event(E::CREATE, 8, 7, W::NONE);
        history.event(Lane::Carrier(2), &made, BEGIN + 5);
        let told = history.finish(BEGIN + 10);
        assert_eq!(
            (&*told.threads[1].name, told.threads[1].began_ns),
            ("pool", Some(5))
        );
        assert_eq!(told.threads[0].running_ns, 10);
    }
}
