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

use super::live::{Mark, Old};
use super::{History, Place, StackNumber};
use crate::profile::Activity;

/// No chance counts as a higher one, which keeps the hazard a number.
const MOST_CHANCE: f64 = 1.0 - 1e-12;

/// One span that lasts, of which the stack may be read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Unread {
    pub tid: u32,
    pub activity: Activity,
    pub object: u64,
    /// Which span of the thread it is, and the thread's place.
    serial: u64,
    place: Place,
    /// What the hazard of all looks would have been when it was 0 for this span.
    from_hazard: f64,
    /// The time between the first look at it and the look before.
    look_ns: u64,
}

impl History {
    /// Returns the spans that have begun since the last call, and last. `look_ns` is the time since
    /// the last call: one of these spans that is shorter was met in proportion to its length.
    pub fn fresh(&mut self, look_ns: u64) -> Vec<Unread> {
        self.look_ns = look_ns;
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
            activity: live.activity,
            object: live.object,
            serial: live.serial,
            place,
            from_hazard: self.hazard,
            look_ns: self.look_ns,
        })
    }

    /// Puts a span back that was not read, to be read if there is time.
    pub fn put_back(&mut self, unread: Unread) {
        let live = &mut self.live[unread.place as usize];
        let old = Old {
            serial: unread.serial,
            from_hazard: unread.from_hazard,
            look_ns: unread.look_ns,
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
            look_ns: old.look_ns,
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
                look_ns: unread.look_ns,
            }));
        }
    }
}

/// Returns what a chance adds to a hazard.
fn hazard(chance: f64) -> f64 {
    -(-chance.clamp(0.0, MOST_CHANCE)).ln_1p()
}
