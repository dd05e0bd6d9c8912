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

mod ended;
mod live;
mod names;
mod objects;
#[cfg(test)]
mod tests;
mod unread;
mod waits;

use raddle_inspect::{Event, EventKind, ThreadFlags, ThreadRecord, ThreadState, WaitKind};
use rustc_hash::FxHashMap;

use crate::name_parts::NameParts;
use crate::profile::{Activity, Thread};
use crate::rings::Lane;
pub use ended::Ended;
use live::{Live, OWN, carried, object_of, waiting, word_of};
use objects::Objects;
pub use unread::{Look, SpanKey, Unread};

/// The most threads that are told apart; further ones count as one.
const THREADS_MAX: usize = 1 << 18;
/// The most different waits of threads; further ones count without their objects.
const TOTALS_MAX: usize = 1 << 20;
/// The most spans of which the stacks are kept.
const SPANS_MAX: usize = 1 << 21;
/// The most carriers that are told apart.
const LANES_MAX: usize = 1 << 12;

/// A span that was read by a smaller chance stands for no more.
const LEAST_CHANCE: f64 = 1e-6;

/// The most locks of a thread of which the holds are counted.
const TAKEN_MAX: usize = 8;

/// The position of a thread in [`History::threads`].
pub type Position = u32;

/// Where a thread that lives is kept.
type Place = u32;

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
    pub(crate) released_ns: u64,
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

/// See the module.
pub struct History {
    begin_ns: u64,
    /// The last look of the reader.
    look: Look,
    /// A thread has begun since the last call of [`History::has_new_threads`].
    has_new: bool,
    name_parts: NameParts,
    /// The latest event.
    now_ns: u64,
    places: FxHashMap<u32, Place>,
    live: Vec<Live>,
    free: Vec<Place>,
    /// The thread on each carrier, and its place if it has one.
    lanes: Vec<(u32, Place)>,
    threads: Vec<Thread>,
    /// Without what is kept with threads that live.
    totals: FxHashMap<Doing, Total>,
    /// Likewise.
    ended: FxHashMap<Doing, Ended>,
    objects: Objects,
    spans: Vec<Span>,
    /// Threads with spans that began since the reader looked last, and with spans from before.
    fresh: Vec<Place>,
    old: Vec<Place>,
    /// The hazard of all looks at what was put back: see `unread`.
    hazard: f64,
    /// Spans that had no room.
    pub dropped_spans: u64,
    /// Threads beyond those that are told apart.
    pub further_threads: u64,
}

/// What a history comes to.
pub struct Told {
    pub threads: Vec<Thread>,
    pub totals: FxHashMap<Doing, Total>,
    pub ended: FxHashMap<Doing, Ended>,
    pub wakers: FxHashMap<(WaitKind, u64), FxHashMap<Position, u64>>,
    pub holds: FxHashMap<(WaitKind, u64), Hold>,
    pub spans: Vec<Span>,
    pub dropped_spans: u64,
}

impl History {
    /// A history that begins at a time of CLOCK_BOOTTIME.
    pub fn new(begin_ns: u64) -> History {
        History {
            begin_ns,
            look: Look::NONE,
            has_new: false,
            name_parts: NameParts::default(),
            now_ns: begin_ns,
            places: FxHashMap::default(),
            live: Vec::new(),
            free: Vec::new(),
            lanes: Vec::new(),
            threads: Vec::new(),
            totals: FxHashMap::default(),
            ended: FxHashMap::default(),
            objects: Objects::default(),
            spans: Vec::new(),
            fresh: Vec::new(),
            old: Vec::new(),
            hazard: 0.0,
            dropped_spans: 0,
            further_threads: 0,
        }
    }

    /// Takes a thread that was there when recording began; one that an event has told of is left as
    /// it is.
    pub fn was_there(&mut self, record: &ThreadRecord) {
        if self.places.contains_key(&record.tid) {
            return;
        }
        let activity = match record.state {
            ThreadState::RUNNING => Activity::Running,
            ThreadState::WAITING => waiting(record.wait_kind),
            _ => Activity::Runnable,
        };
        let object = object_of(activity, record.wait_arg);
        let place = self.find(record.tid);
        let place = self.begin(record.tid, place, activity, object, self.begin_ns);
        if activity == Activity::Running {
            let lane = if record.flags.contains(ThreadFlags::BOUND) {
                Lane::Bound(record.carrier)
            } else {
                Lane::Carrier(record.carrier)
            };
            let lane = self.lane(lane);
            if lane.0 == 0 {
                *lane = (record.tid, place.unwrap_or_default());
            }
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
            EventKind::WAKE => self.wake(lane, event, at_ns),
            EventKind::CREATE => self.create(event, at_ns),
            EventKind::BLOCK => {
                self.turn(event.thread, Activity::Running, Activity::InKernel, at_ns)
            }
            EventKind::RETURN => {
                self.turn(event.thread, Activity::InKernel, Activity::Running, at_ns);
            }
            EventKind::NAME | EventKind::NAME_REST => self.take_name(event),
            _ => {}
        }
    }

    /// Returns the place of a thread that lives.
    #[inline]
    fn find(&self, tid: u32) -> Option<Place> {
        self.places.get(&tid).copied()
    }

    /// As [`History::find`], of a thread that is likely the one on a carrier.
    #[inline]
    fn find_on(&mut self, lane: Lane, tid: u32) -> Option<Place> {
        let (running, place) = *self.lane(lane);
        let is_it = running == tid
            && self
                .live
                .get(place as usize)
                .is_some_and(|it| it.tid == tid);
        if is_it { Some(place) } else { self.find(tid) }
    }

    /// Returns what is on a carrier.
    #[inline]
    fn lane(&mut self, lane: Lane) -> &mut (u32, Place) {
        let number = lane_number(lane);
        if number >= self.lanes.len() {
            self.lanes.resize(number + 1, (0, 0));
        }
        &mut self.lanes[number]
    }

    fn switch(&mut self, lane: Lane, event: &Event, at_ns: u64) {
        if event.thread != 0 {
            let mut activity = waiting(event.wait);
            let place = self.find_on(lane, event.thread);
            let live = place.and_then(|place| self.live.get_mut(place as usize));
            if live.is_some_and(|live| std::mem::replace(&mut live.is_woken, false)) {
                activity = Activity::Runnable;
            }
            let object = object_of(activity, event.arg);
            self.begin(event.thread, place, activity, object, at_ns);
        }
        self.run(lane, event.other, at_ns);
    }

    /// A carrier comes to a thread; 0 for none.
    fn run(&mut self, lane: Lane, tid: u32, at_ns: u64) {
        if tid == 0 {
            *self.lane(lane) = (0, 0);
            return;
        }
        let place = self.find(tid);
        let place = self.begin(tid, place, Activity::Running, 0, at_ns);
        *self.lane(lane) = (tid, place.unwrap_or_default());
        let Some(live) = place.and_then(|place| self.live.get_mut(place as usize)) else {
            return;
        };
        if let Some(object) = live.take_word() {
            live.taken.retain(|(taken, _)| *taken != object);
            if live.taken.len() == TAKEN_MAX {
                live.taken.remove(0);
            }
            live.taken.push((object, at_ns));
        }
        live.is_woken = false;
        live.turns += 1;
    }

    /// Counts how long the waker has had what it wakes another thread from: since the end of its
    /// own wait for it; without one, since the other began to wait, or the last release. Waits that
    /// end by their time limits, each right after the one before, count as one here.
    fn release(&mut self, event: &Event, woken: Option<Place>, waker: Option<Place>, at_ns: u64) {
        let Some(object) = word_of(event.wait, event.arg) else {
            return;
        };
        let woken = woken.and_then(|place| self.live.get(place as usize));
        let number = woken
            .and_then(|woken| Some(woken.waits[woken.find_wait(object.0, object.1)?].number))
            .unwrap_or_else(|| self.objects.number(object.0, object.1));
        let waits_since_ns = woken
            .filter(|woken| woken.activity == Activity::Waiting(event.wait))
            .map(|woken| woken.wants_since());
        let Some(waker) = waker.and_then(|place| self.live.get_mut(place as usize)) else {
            return;
        };
        let taken = waker.taken.iter().position(|(taken, _)| *taken == object);
        let since_ns = match taken {
            Some(at) => Some(waker.taken.swap_remove(at).1),
            None => waits_since_ns,
        };
        self.objects.release(number, since_ns, at_ns);
    }

    fn wake(&mut self, lane: Lane, event: &Event, at_ns: u64) {
        let place = self.find(event.thread);
        let waker = match event.other {
            0 => None,
            waker => self.find_on(lane, waker),
        };
        self.release(event, place, waker, at_ns);
        let waker = waker.map(|place| self.live[place as usize].position);
        let Some(live) = place.and_then(|place| self.live.get_mut(place as usize)) else {
            self.begin(event.thread, None, Activity::Runnable, 0, at_ns);
            return;
        };
        live.wakes += 1;
        let activity = waiting(event.wait);
        if let (Activity::Waiting(kind), Some(waker)) = (activity, waker) {
            let object = object_of(activity, event.arg);
            live.count_wake(kind, object, waker, &mut self.objects);
        }
        match live.activity {
            Activity::Waiting(_) => {
                live.count_end(event.other, at_ns);
                if event.other == Event::TIMER {
                    live.time_out(at_ns);
                } else {
                    live.has_tries = false;
                }
                self.begin(event.thread, place, Activity::Runnable, 0, at_ns);
            }
            Activity::Running => live.is_woken = true,
            _ => {}
        }
    }

    fn create(&mut self, event: &Event, at_ns: u64) {
        self.end(event.thread, at_ns);
        self.begin(event.thread, None, Activity::Runnable, 0, at_ns);
        // A new thread has its parent's name, until it gets another.
        let (new, parent) = (self.position(event.thread), self.position(event.other));
        let name = parent.map(|parent| self.threads[parent as usize].name.clone());
        if let (Some(new), false) = (new, self.is_full()) {
            let thread = &mut self.threads[new as usize];
            thread.began_ns = Some(at_ns - self.begin_ns);
            thread.name = name.unwrap_or_default();
        }
    }

    fn end(&mut self, tid: u32, at_ns: u64) {
        let Some(place) = self.find(tid) else {
            return;
        };
        let position = self.live[place as usize].position;
        self.threads[position as usize].ended_ns = Some(at_ns - self.begin_ns);
        self.retire(place, at_ns);
    }

    /// Begins another activity if the thread is in a certain one.
    fn turn(&mut self, tid: u32, from: Activity, to: Activity, at_ns: u64) {
        if let Some(place) = self.find(tid)
            && self.live[place as usize].activity == from
        {
            self.begin(tid, Some(place), to, 0, at_ns);
        }
    }

    fn is_full(&self) -> bool {
        self.threads.len() >= THREADS_MAX
    }

    /// Ends what a thread does, and begins something else. Returns the thread's place, which was
    /// `known` before if the thread had one.
    #[inline]
    fn begin(
        &mut self,
        tid: u32,
        known: Option<Place>,
        activity: Activity,
        object: u64,
        at_ns: u64,
    ) -> Option<Place> {
        let place = match known {
            Some(place) => {
                self.close(place, at_ns);
                let live = &mut self.live[place as usize];
                live.set_mark(carried(live, activity, at_ns, self.hazard));
                live.since_ns = at_ns.max(live.since_ns);
                live.serial += 1;
                place
            }
            None => self.add(tid, at_ns),
        };
        let live = &mut self.live[place as usize];
        (live.activity, live.object) = (activity, object);
        let mut before = None;
        if let Activity::Waiting(kind) = activity {
            before = live.begin_wait(kind, object, &mut self.objects);
        }
        if activity != Activity::Running && !std::mem::replace(&mut live.is_fresh, true) {
            self.fresh.push(place);
        }
        if let Some(waited) = before {
            let position = live.position;
            self.keep_wait(position, &waited);
        }
        Some(place)
    }

    /// Gives a thread that begins a place.
    #[cold]
    fn add(&mut self, tid: u32, at_ns: u64) -> Place {
        self.has_new = true;
        let position = self.threads.len().min(THREADS_MAX - 1);
        if position == self.threads.len() {
            self.threads.push(Thread {
                tid,
                ..Thread::default()
            });
        } else {
            // The last place was that of one thread.
            self.further_threads += 1 + u64::from(self.further_threads == 0);
            self.threads[position].name = "[further threads]".into();
        }
        let place = self.free.pop().unwrap_or_else(|| {
            self.live.push(Live::FREE);
            self.live.len() as Place - 1
        });
        let live = &mut self.live[place as usize];
        *live = Live {
            tid,
            position: position as Position,
            since_ns: at_ns,
            serial: live.serial + 1,
            is_fresh: live.is_fresh,
            old: live.old,
            ..Live::FREE
        };
        self.places.insert(tid, place);
        place
    }

    /// Counts the span that ends.
    #[inline]
    fn close(&mut self, place: Place, at_ns: u64) {
        let live = &mut self.live[place as usize];
        let ns = live.count(at_ns);
        let Some(mark) = live.mark() else {
            return;
        };
        if self.spans.len() >= SPANS_MAX {
            self.dropped_spans += 1;
            return;
        }
        let met = if mark.is_own {
            mark.look.chance(ns)
        } else {
            1.0
        };
        let chance = (mark.chance(self.hazard) * met).max(LEAST_CHANCE);
        self.spans.push(Span {
            doing: Doing {
                thread: live.position,
                activity: live.activity,
                object: live.object,
            },
            stack: mark.stack,
            from_ns: live.since_ns,
            ns,
            stands_for_ns: ns.max(1) as f64 / chance,
        });
    }

    /// Ends what a thread does, and frees its place.
    fn retire(&mut self, place: Place, at_ns: u64) {
        self.close(place, at_ns);
        let live = &mut self.live[place as usize];
        let position = live.position;
        self.places.remove(&live.tid);
        (live.tid, live.is_marked) = (0, false);
        let (own, waits) = (live.own, live.all_waits());
        let thread = &mut self.threads[position as usize];
        thread.turns += live.turns;
        thread.wakes += live.wakes;
        thread.running_ns += own[0].ns;
        thread.runnable_ns += own[1].ns;
        thread.longest_runnable_ns = thread.longest_runnable_ns.max(own[1].longest_ns);
        thread.in_kernel_ns += own[2].ns;
        for (activity, total) in OWN.into_iter().zip(own) {
            self.keep(position, activity, 0, &total);
        }
        for waited in waits {
            self.keep_wait(position, &waited);
        }
        self.free.push(place);
    }

    /// Returns what the spans count as, if there are some.
    fn keep(
        &mut self,
        thread: Position,
        activity: Activity,
        object: u64,
        total: &Total,
    ) -> Option<Doing> {
        if total.count == 0 {
            return None;
        }
        let mut doing = Doing {
            thread,
            activity,
            object,
        };
        if self.totals.len() >= TOTALS_MAX && !self.totals.contains_key(&doing) {
            doing.object = 0;
        }
        self.totals.entry(doing).or_default().merge(total);
        Some(doing)
    }

    /// Returns the thread on a carrier after the last event.
    pub fn running(&self, carrier: u32) -> Option<(u32, Position)> {
        let lanes = [Lane::Carrier(carrier), Lane::Bound(carrier)];
        let mut threads = lanes
            .iter()
            .filter_map(|&lane| self.lanes.get(lane_number(lane)));
        let &(tid, _) = threads.find(|&&(tid, _)| tid != 0)?;
        Some((tid, self.position(tid)?))
    }

    /// Returns the thread that a carrier without a bound one runs, after the last event.
    pub fn runs_on(&self, carrier: u32) -> Option<(u32, Position)> {
        let &(tid, _) = self.lanes.get(lane_number(Lane::Carrier(carrier)))?;
        let live = &self.live[self.find(tid)? as usize];
        (live.activity == Activity::Running).then_some((tid, live.position))
    }

    /// Returns what threads have begun to wait for that none had before the last call.
    pub fn new_objects(&mut self) -> Vec<(WaitKind, u64)> {
        self.objects.take_new()
    }
    /// Returns the position of a thread that lives.
    pub fn position(&self, tid: u32) -> Option<Position> {
        Some(self.live[self.find(tid)? as usize].position)
    }

    /// Ends all spans at a time.
    pub fn finish(mut self, at_ns: u64) -> Told {
        let at_ns = at_ns.max(self.now_ns);
        for place in 0..self.live.len() {
            if self.live[place].tid != 0 {
                self.live[place].count_lasting(at_ns);
                self.retire(place as Place, at_ns);
            }
        }
        if self.totals.len() >= TOTALS_MAX {
            let totals = &self.totals;
            let spans = self.spans.iter_mut().map(|span| &mut span.doing);
            spans
                .filter(|doing| !totals.contains_key(doing))
                .for_each(|doing| doing.object = 0);
        }
        let (wakers, holds) = self.objects.finish();
        Told {
            threads: self.threads,
            totals: self.totals,
            ended: self.ended,
            wakers,
            holds,
            spans: self.spans,
            dropped_spans: self.dropped_spans,
        }
    }
}

/// Returns a lane's position in [`History::lanes`]; carriers that are too many share one.
fn lane_number(lane: Lane) -> usize {
    match lane {
        Lane::Other => 0,
        Lane::Carrier(id) => (id as usize).min(LANES_MAX) * 2 + 1,
        Lane::Bound(id) => (id as usize).min(LANES_MAX) * 2 + 2,
    }
}
