//! Spans that last, of which the stacks may be read, and how likely it was that one was.
//!
//! A thread is in a list at most once, however many spans it has begun: the last one counts.
//!
//! A span is chosen by lot at the first look after its beginning, and again at each look for as
//! long as it lasts and was not chosen. So a long one is read more likely than a short one, and
//! stands for less than its time over the chance of one look. Its chance over all looks of its life
//! is 1 - exp(-h), where h, the *hazard*, is the sum of -ln(1 - chance) over these looks. A mark
//! counts looks after its own, too: at these the span would have been chosen, had it not been
//! before.
//!
//! Looks come by chance, too ([`Look`]): a program that does things by turns must not be met in
//! some of them more likely than in others. Looks after a fixed time, or after one that depends on
//! what was found, are in step with such a program: with 50 threads that sleep in two functions by
//! turns, and pause, one function had 84 percent of the time and not 47.

use rustc_hash::FxHashMap;

use super::live::{Mark, Old};
use super::{History, Place, Position, StackNumber, Told};
use crate::profile::Activity;

/// Which span it is: the thread, and when the span began.
pub type SpanKey = (Position, u64);

/// No chance counts as a higher one, which keeps the hazard a number.
const MOST_CHANCE: f64 = 1.0 - 1e-12;

/// One span that lasts, of which the stack may be read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Unread {
    pub tid: u32,
    pub position: Position,
    pub activity: Activity,
    pub object: u64,
    /// When the span began, by CLOCK_BOOTTIME.
    pub since_ns: u64,
    /// Which span of the thread it is, and the thread's place.
    serial: u64,
    place: Place,
    /// What the hazard of all looks would have been when it was 0 for this span.
    from_hazard: f64,
    /// The first look at it.
    look: Look,
}

/// How a look came after the one before: by an exponential distribution with this mean, as chosen
/// then, and so much later because the tool had no CPU, or was busy. The look stands for the sum.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Look {
    pub mean_ns: u64,
    pub late_ns: u64,
}

impl Look {
    pub(super) const NONE: Look = Look {
        mean_ns: 0,
        late_ns: 0,
    };

    /// Returns the chance that a span of this length has a look: that what is left of the interval
    /// in which it begins is shorter.
    #[inline]
    pub(super) fn chance(self, ns: u64) -> f64 {
        let (mean, late) = (self.mean_ns as f64, self.late_ns as f64);
        let ns = ns.max(1) as f64;
        if ns >= (mean + late) * 40.0 {
            return 1.0;
        }
        let more = (ns - late).max(0.0);
        let by_chance = if mean > 0.0 {
            -mean * (-more / mean).exp_m1()
        } else {
            0.0
        };
        (ns.min(late) + by_chance) / (mean + late)
    }
}

impl History {
    /// Looks: returns the spans that have begun since the last look, and last.
    pub fn fresh(&mut self, look: Look) -> Vec<Unread> {
        self.look = look;
        let fresh = std::mem::take(&mut self.fresh);
        let unread = fresh.into_iter().filter_map(|place| {
            let live = &mut self.live[place as usize];
            live.is_fresh = false;
            self.unread(place)
        });
        unread.collect()
    }

    /// Notes the chance that each of these fresh spans is read at this look.
    pub fn expect_chance(&self, fresh: &mut [Unread], chance: f64) {
        for unread in fresh {
            unread.from_hazard = self.hazard - hazard(chance);
        }
    }

    /// Returns what a thread does, if that isn't read and can be.
    fn unread(&self, place: Place) -> Option<Unread> {
        let live = &self.live[place as usize];
        let is_unread = live.tid != 0 && !live.is_marked;
        (is_unread && live.activity != Activity::Running).then_some(Unread {
            tid: live.tid,
            position: live.position,
            since_ns: live.since_ns,
            activity: live.activity,
            object: live.object,
            serial: live.serial,
            place,
            from_hazard: self.hazard,
            look: self.look,
        })
    }

    /// Puts a span back that was not read, to be read if there is time.
    pub fn put_back(&mut self, unread: Unread) {
        let live = &mut self.live[unread.place as usize];
        let old = Old {
            serial: unread.serial,
            from_hazard: unread.from_hazard,
            look: unread.look,
        };
        if live.is_in(unread.tid, unread.serial) && live.old.replace(old).is_none() {
            self.old.push(unread.place);
        }
    }

    /// The number of threads with spans that were put back. Some of these spans may be over.
    pub fn count_put_back(&self) -> usize {
        self.old.len()
    }

    /// Takes a thread out of those with spans that were put back: the one at `at` of their number.
    /// Returns its span if that lasts.
    pub fn take_put_back(&mut self, at: usize) -> Option<Unread> {
        let place = self.old.swap_remove(at);
        let old = self.live[place as usize].old.take()?;
        let unread = self.unread(place).filter(|it| it.serial == old.serial)?;
        Some(Unread {
            from_hazard: old.from_hazard,
            look: old.look,
            ..unread
        })
    }

    /// Notes the chance that a span that was put back was taken at this look. It is 1 if all were,
    /// and if there was time for one more.
    pub fn took_put_back(&mut self, chance: f64) {
        self.hazard += hazard(chance);
    }

    /// Notes the stack of a span that lasts.
    pub fn mark(&mut self, unread: &Unread, stack: StackNumber) {
        let live = &mut self.live[unread.place as usize];
        if live.is_in(unread.tid, unread.serial) {
            live.set_mark(Some(Mark {
                stack,
                from_hazard: unread.from_hazard,
                factor: 1.0,
                is_own: true,
                look: unread.look,
            }));
        }
    }
}

impl Told {
    /// Returns the times for which spans stand of which the stack was read.
    pub fn stand_for(&self) -> FxHashMap<SpanKey, f64> {
        let spans = self.spans.iter();
        spans
            .map(|it| ((it.doing.thread, it.from_ns), it.stands_for_ns))
            .collect()
    }
}

/// Returns what a chance adds to a hazard.
fn hazard(chance: f64) -> f64 {
    -(-chance.clamp(0.0, MOST_CHANCE)).ln_1p()
}
