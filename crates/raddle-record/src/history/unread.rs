//! Spans that last, of which the stacks may be read.
//!
//! A thread is in a list at most once, however many spans it has begun: the last one counts.

use super::live::Mark;
use super::{History, Place, StackNumber};
use crate::profile::Activity;

/// One span that lasts, of which the stack may be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unread {
    pub tid: u32,
    pub activity: Activity,
    pub object: u64,
    /// Which span of the thread it is, and the thread's place.
    serial: u64,
    place: Place,
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
        })
    }

    /// Puts a span back that was not read, to be read if there is time.
    pub fn put_back(&mut self, unread: Unread) {
        let live = &mut self.live[unread.place as usize];
        if live.is_in(unread.tid, unread.serial) && live.old.replace(unread.serial).is_none() {
            self.old.push_back(unread.place);
        }
    }

    /// Returns the next one of those that were put back and last.
    pub fn put_back_before(&mut self) -> Option<Unread> {
        while let Some(place) = self.old.pop_front() {
            let serial = self.live[place as usize].old.take();
            let unread = self.unread(place);
            if let Some(unread) = unread.filter(|it| Some(it.serial) == serial) {
                return Some(unread);
            }
        }
        None
    }

    /// Notes the stack of a span that lasts.
    pub fn mark(&mut self, unread: &Unread, stack: StackNumber, chance: f64) {
        let live = &mut self.live[unread.place as usize];
        if live.is_in(unread.tid, unread.serial) {
            live.set_mark(Some(Mark {
                stack,
                chance,
                is_own: true,
                look_ns: self.look_ns,
            }));
        }
    }
}
