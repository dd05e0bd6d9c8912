//! What is kept of a thread that lives, and what its events mean for it.
//!
//! A thread does the same few things again and again. Their sums are kept here, and are added to
//! those of all threads when the thread ends or does something else: an event then needs no look
//! into a table of all that threads have done.

use raddle_inspect::{By, Event, EventKind, WaitKind};

use super::objects::{Number, Objects};
use super::{Ended, History, Look, Position, StackNumber, Total};
use crate::profile::Activity;

/// A place for a thread that lives. The place of one that has ended is another's later.
///
/// Between two looks of the reader the CPU's caches forget all places. A turn of a thread touches
/// three lines of 64 bytes: the fields up to `own`, the first two of `own`, and one of `waits`.
#[repr(C, align(64))]
pub(super) struct Live {
    /// 0 if the place is free.
    pub tid: u32,
    pub position: Position,
    pub activity: Activity,
    pub object: u64,
    pub since_ns: u64,
    /// Goes on from one thread of the place to the next.
    pub serial: u64,
    /// How often it began to run, and was woken.
    pub turns: u64,
    pub wakes: u64,
    /// Which of `waits` is the wait that lasts, or was the last one.
    pub wait: u8,
    /// The wait that lasts, or else the last one, is or was a further try: see `tries`.
    pub has_tries: bool,
    /// It was woken before it was told that it waits.
    pub is_woken: bool,
    /// It is in the list of threads that have begun a span since the reader looked last.
    pub is_fresh: bool,
    /// The stack of the span is known, as `mark` says.
    pub is_marked: bool,
    /// It has waited for a word in memory since it ran last: that of the last wait.
    pub waited_for_word: bool,
    /// Of [`OWN`], in its order.
    pub own: [Total; OWN.len()],
    pub mark: Mark,
    pub waits: [Waited; WAITS],
    /// What ended these, beside threads and the kernel.
    pub ended: [Ended; WAITS],
    /// The span that was put back, if the thread is in the list of those.
    pub old: Option<Old>,
    /// Waits for one word that ended by their time limits, each right after the one before.
    pub tries: Tries,
    /// What it has waited for, and since when it has that: if it is a lock, it holds it.
    pub taken: Vec<Taken>,
}

const _: () = assert!(std::mem::offset_of!(Live, own) == 64 && size_of::<Waited>() == 64);

/// Activities without an object.
pub(super) const OWN: [Activity; 3] = [Activity::Running, Activity::Runnable, Activity::InKernel];
/// Different waits of a thread of which the sums are kept here.
const WAITS: usize = 4;

/// Waits of one thread for one object, in one line of the CPU's caches.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(super) struct Waited {
    pub kind: WaitKind,
    pub number: Number,
    pub object: u64,
    pub total: Total,
    /// How long those of them took that the kernel has ended.
    pub kernel_ns: u64,
    /// The thread that has ended the last of them, and how many before were ended by the same one.
    pub waker: Position,
    pub wakes: u32,
}

impl Waited {
    const NONE: Waited = Waited {
        kind: WaitKind::NONE,
        object: 0,
        number: Number::NONE,
        total: Total::NONE,
        kernel_ns: 0,
        waker: 0,
        wakes: 0,
    };
}

impl Live {
    pub(super) const FREE: Live = Live {
        tid: 0,
        position: 0,
        activity: Activity::Runnable,
        object: 0,
        since_ns: 0,
        serial: 0,
        turns: 0,
        wakes: 0,
        wait: 0,
        has_tries: false,
        is_woken: false,
        is_fresh: false,
        is_marked: false,
        waited_for_word: false,
        own: [Total::NONE; OWN.len()],
        mark: Mark::NONE,
        waits: [Waited::NONE; WAITS],
        ended: [Ended::NONE; WAITS],
        old: None,
        tries: Tries::NONE,
        taken: Vec::new(),
    };

    /// Has the CPU fetch the lines that a turn needs.
    #[inline]
    pub(super) fn fetch(&self) {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let lines = [
            (&raw const self.tid).cast(),
            (&raw const self.own).cast(),
            (&raw const self.waits).cast(),
        ];
        for line in lines {
            // SAFETY: a hint, which reads nothing that the program sees, at whatever address.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(line) };
        }
    }

    /// Returns true if it is this thread's, in this span.
    pub(super) fn is_in(&self, tid: u32, serial: u64) -> bool {
        self.tid == tid && self.serial == serial
    }

    /// Counts the span that ends. Returns its length.
    #[inline]
    pub(super) fn count(&mut self, at_ns: u64) -> u64 {
        let ns = at_ns.saturating_sub(self.since_ns);
        let total = match self.activity {
            Activity::Running | Activity::WithoutCpu => &mut self.own[0],
            Activity::Runnable => &mut self.own[1],
            Activity::InKernel => &mut self.own[2],
            Activity::Waiting(_) => &mut self.waits[self.wait as usize].total,
        };
        total.add(ns, self.since_ns);
        ns
    }

    /// Returns the thread's waits of this kind for this object, if they are known.
    #[inline]
    pub(super) fn find_wait(&self, kind: WaitKind, object: u64) -> Option<usize> {
        let is_it = |it: &Waited| it.kind == kind && it.object == object;
        let last = self.wait as usize;
        if is_it(&self.waits[last]) {
            return Some(last);
        }
        self.waits.iter().position(is_it)
    }

    /// Counts a wake-up from a wait, by the thread at a position.
    #[inline]
    pub(super) fn count_wake(
        &mut self,
        kind: WaitKind,
        object: u64,
        waker: Position,
        objects: &mut Objects,
    ) {
        let Some(at) = self.find_wait(kind, object) else {
            let number = objects.number(kind, object);
            return objects.count_wakes(number, waker, 1);
        };
        let waited = &mut self.waits[at];
        let is_other = waited.waker != waker && waited.wakes != 0;
        if is_other || waited.wakes == u32::MAX {
            objects.count_wakes(waited.number, waited.waker, waited.wakes.into());
            waited.wakes = 0;
        }
        waited.waker = waker;
        waited.wakes += 1;
    }

    /// Counts the end of the wait that lasts, by what [`Event::other`] says.
    #[inline]
    pub(super) fn count_end(&mut self, other: u32, at_ns: u64) {
        let ns = at_ns.saturating_sub(self.since_ns);
        let last = self.wait as usize;
        match Event::by(other) {
            By::Thread(_) => {}
            By::Kernel => self.waits[last].kernel_ns += ns,
            By::Timer => self.ended[last].timer_ns += ns,
            By::End => self.ended[last].end_ns += ns,
        }
    }

    /// Notes that the wait that lasts ends by its time limit: what the thread waits for is not its.
    pub(super) fn time_out(&mut self, at_ns: u64) {
        let Activity::Waiting(kind) = self.activity else {
            return;
        };
        self.tries = Tries {
            kind,
            object: self.object,
            since_ns: self.wants_since(),
            ended_ns: at_ns,
            last_ns: at_ns.saturating_sub(self.since_ns),
        };
        self.has_tries = word_of(kind, self.object).is_some();
        self.waited_for_word = false;
    }

    /// Returns since when the thread that waits has wanted what it waits for.
    pub(super) fn wants_since(&self) -> u64 {
        if self.has_tries {
            self.tries.since_ns
        } else {
            self.since_ns
        }
    }

    /// Counts the time of the wait that lasts, if there is one.
    pub(super) fn count_lasting(&mut self, at_ns: u64) {
        if matches!(self.activity, Activity::Waiting(_)) {
            self.ended[self.wait as usize].lasting_ns += at_ns.saturating_sub(self.since_ns);
        }
    }

    /// Returns all waits, and what ended them.
    pub(super) fn all_waits(&self) -> [(Waited, Ended); WAITS] {
        std::array::from_fn(|at| self.wait_at(at))
    }

    fn wait_at(&self, at: usize) -> (Waited, Ended) {
        let waited = self.waits[at];
        let kernel_ns = waited.kernel_ns;
        (
            waited,
            Ended {
                kernel_ns,
                ..self.ended[at]
            },
        )
    }

    /// Returns the word for which it has waited since it ran last, once.
    #[inline]
    pub(super) fn take_word(&mut self) -> Option<(WaitKind, u64)> {
        let last = &self.waits[self.wait as usize];
        std::mem::take(&mut self.waited_for_word).then_some((last.kind, last.object))
    }

    /// Returns the stack of the span, if it is known.
    #[inline]
    pub(super) fn mark(&self) -> Option<Mark> {
        self.is_marked.then_some(self.mark)
    }

    #[inline]
    pub(super) fn set_mark(&mut self, mark: Option<Mark>) {
        self.is_marked = mark.is_some();
        if let Some(mark) = mark {
            self.mark = mark;
        }
    }

    /// Begins a wait. Returns the one that had its place before, if there was one.
    #[inline]
    pub(super) fn begin_wait(
        &mut self,
        kind: WaitKind,
        object: u64,
        objects: &mut Objects,
    ) -> Option<(Waited, Ended)> {
        self.waited_for_word = word_of(kind, object).is_some();
        if self.has_tries {
            self.has_tries = self.tries.go_on(kind, object, self.since_ns);
        }
        if let Some(known) = self.find_wait(kind, object) {
            self.wait = known as u8;
            return None;
        }
        let next = (self.wait as usize + 1) % WAITS;
        let waited = Waited {
            kind,
            object,
            number: objects.number(kind, object),
            ..Waited::NONE
        };
        let before = self.wait_at(next);
        (self.wait, self.waits[next], self.ended[next]) = (next as u8, waited, Ended::NONE);
        (before.0.kind != WaitKind::NONE).then_some(before)
    }
}

impl History {
    /// Has the CPU fetch what an event that will be taken soon needs. Between two looks of a reader
    /// its caches forget what is known of threads.
    #[inline]
    pub fn expect(&self, event: &Event) {
        let next = match event.kind {
            EventKind::SWITCH => event.other,
            _ => 0,
        };
        for tid in [event.thread, next] {
            if tid != 0
                && let Some(place) = self.find(tid)
            {
                self.live[place as usize].fetch();
            }
        }
    }
}

impl Mark {
    const NONE: Mark = Mark {
        stack: StackNumber {
            epoch: 0,
            number: 0,
        },
        from_hazard: 0.0,
        factor: 0.0,
        is_own: false,
        look: Look::NONE,
    };

    /// How likely it was that the stack was read, at a hazard of all looks: see `unread`.
    #[inline]
    pub(super) fn chance(&self, hazard: f64) -> f64 {
        self.factor * -(self.from_hazard - hazard).exp_m1()
    }
}

impl Total {
    const NONE: Total = Total {
        ns: 0,
        count: 0,
        longest_ns: 0,
        first_ns: 0,
    };

    #[inline]
    fn add(&mut self, ns: u64, since_ns: u64) {
        if self.count == 0 {
            self.first_ns = since_ns;
        }
        self.ns += ns;
        self.count += 1;
        self.longest_ns = self.longest_ns.max(ns);
    }

    /// Adds other spans.
    pub(super) fn merge(&mut self, other: &Total) {
        if self.count == 0 {
            *self = *other;
        } else if other.count != 0 {
            self.ns += other.ns;
            self.count += other.count;
            self.longest_ns = self.longest_ns.max(other.longest_ns);
            self.first_ns = self.first_ns.min(other.first_ns);
        }
    }
}

/// See [`Live::tries`].
#[derive(Clone, Copy)]
pub(super) struct Tries {
    kind: WaitKind,
    object: u64,
    /// When the first of them began, when the last one ended, and how long that took.
    since_ns: u64,
    ended_ns: u64,
    last_ns: u64,
}

impl Tries {
    /// The next try may begin so late in any case.
    const PAUSE_NS: u64 = 1_000_000;
    const NONE: Tries = Tries {
        kind: WaitKind::NONE,
        object: 0,
        since_ns: 0,
        ended_ns: 0,
        last_ns: 0,
    };

    /// Returns true if a wait that begins is a further try. After a pause that is longer than the
    /// last try, the lock may have been another thread's meanwhile.
    fn go_on(&self, kind: WaitKind, object: u64, at_ns: u64) -> bool {
        let pause_ns = at_ns.saturating_sub(self.ended_ns);
        (self.kind, self.object) == (kind, object) && pause_ns <= self.last_ns.max(Self::PAUSE_NS)
    }
}

/// A lock, or what may be one, and when a thread took it.
pub(super) type Taken = ((WaitKind, u64), u64);

/// The stack of a span.
#[derive(Clone, Copy)]
pub(super) struct Mark {
    pub stack: StackNumber,
    /// What the hazard of all looks would have been when it was 0 for this span, and by what its
    /// chance is multiplied.
    pub from_hazard: f64,
    pub factor: f64,
    /// It was read in this span, and not in the one before.
    pub is_own: bool,
    /// The first look at the span.
    pub look: Look,
}

/// A span that was put back. See [`super::Unread`].
#[derive(Clone, Copy)]
pub(super) struct Old {
    pub serial: u64,
    pub from_hazard: f64,
    pub look: Look,
}

/// Returns the mark of the next span, if the thread has the same stack there: it was woken, and has
/// not run.
#[inline]
pub(super) fn carried(live: &Live, next: Activity, at_ns: u64, hazard: f64) -> Option<Mark> {
    let mark = live.mark()?;
    let waited = matches!(live.activity, Activity::Waiting(_));
    if !waited || next != Activity::Runnable {
        return None;
    }
    let seen = mark.look.chance(at_ns.saturating_sub(live.since_ns));
    Some(Mark {
        from_hazard: f64::NEG_INFINITY,
        factor: mark.chance(hazard) * seen,
        is_own: false,
        ..mark
    })
}

/// Returns what a thread does that has left its carrier.
pub(super) fn waiting(kind: WaitKind) -> Activity {
    match kind {
        WaitKind::NONE | WaitKind::YIELD => Activity::Runnable,
        kind => Activity::Waiting(kind),
    }
}

/// Returns what a thread waits for if it is a word in memory, as locks are.
pub(super) fn word_of(kind: WaitKind, object: u64) -> Option<(WaitKind, u64)> {
    (object != 0 && kind.is_address()).then_some((kind, object))
}

/// Returns what a thread waits for, if the argument says it.
pub(super) fn object_of(activity: Activity, arg: u64) -> u64 {
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
