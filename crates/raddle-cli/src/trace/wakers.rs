//! Which other processes end the waits of a process that is traced. An event says only that the
//! kernel has woken the thread; the other ends of what it waited for are found from outside, and
//! are looked for when the wait begins, while the other process lives.
//!
//! A descriptor may be another file later: its link is read again now and then, of many descriptors
//! less often. Of what was kept before, only what is there now can be found.
//!
//! Events as they come are only noted; all objects of a reading of the rings are then looked for at
//! once. What is found is told as it changes, for the events of that reading and later ones.

use std::rc::Rc;

use raddle_inspect::{By, Event, EventKind, WaitKind};
use raddle_record::perfetto::WokenBy;
use rustc_hash::FxHashMap;

use crate::peers::{self, Budget, LINK, Object, Others, Peers};

/// For so long a descriptor is taken to be what it was at least, and at most.
const SAME_NS: u64 = 200_000_000;
const SAME_MOST_NS: u64 = 2_000_000_000;
/// The time for each object that is known: no more than one link is read in it, up to the limit.
const LINK_NS: u64 = 4_000_000;
/// For so long the processes that have the other end are taken to be those that had it, twice as
/// long each time that these are found again, up to a limit; and those at the other ends of all
/// that an epoll instance watches.
const HOLDS_NS: u64 = 5_000_000_000;
const HOLDS_MOST_NS: u64 = 40_000_000_000;
const WATCHED_HOLDS_NS: u64 = 1_000_000_000;
/// The most objects that are kept.
const KNOWN_MAX: usize = 1 << 16;
/// How often processes are looked at for events of the past.
const LOOKS_OF_THE_PAST: usize = 32;

/// See the module.
pub(super) struct Wakers {
    peers: Peers,
    known: FxHashMap<Object, Known>,
    /// What was found last: all of a server's clients may be one process.
    last: Option<Rc<WokenBy>>,
    /// Objects to be looked for.
    wanted: Vec<Object>,
    /// Objects of which something else is known than was told.
    changed: Vec<Object>,
    seen: Seen,
    /// For events of the past, how often processes are still looked at.
    looks_left: Option<usize>,
}

/// What is known of an object.
#[derive(Default)]
struct Known {
    link: Option<Box<[u8]>>,
    /// When the link was read, and until when the rest holds, by CLOCK_BOOTTIME.
    linked_ns: u64,
    until_ns: u64,
    /// For how long it was taken to hold.
    holds_ns: u64,
    /// The thread that waited when the link was read: another one may be that of a new connection.
    tid: u32,
    is_wanted: bool,
    woken_by: Option<Rc<WokenBy>>,
}

impl Wakers {
    /// Of events as they come.
    pub(super) fn new(pid: u32) -> Wakers {
        Wakers {
            peers: Peers::new(pid, Budget::USUAL),
            known: FxHashMap::default(),
            last: None,
            wanted: Vec::new(),
            changed: Vec::new(),
            seen: Seen::default(),
            looks_left: None,
        }
    }

    /// Of events that were kept.
    pub(super) fn of_the_past(pid: u32) -> Wakers {
        Wakers {
            looks_left: Some(LOOKS_OF_THE_PAST),
            ..Wakers::new(pid)
        }
    }

    /// Notes an event that has just been read.
    #[inline]
    pub(super) fn note(&mut self, event: &Event, boot_ns: u64) {
        let object = (event.wait, event.arg);
        if has_object(event) && self.seen.is_new(object, event.thread, boot_ns) {
            self.follow(object, event.thread, boot_ns);
        }
    }

    /// Looks for the objects of the events that were noted, unless that costs too much. Calls
    /// `each` with the objects of which something else is known than before.
    pub(super) fn look(&mut self, boot_ns: u64, mut each: impl FnMut(Object, Option<&WokenBy>)) {
        if !self.wanted.is_empty() && self.peers.is_due() {
            self.find(boot_ns);
        }
        for object in self.changed.drain(..) {
            let known = self.known.get(&object);
            each(object, known.and_then(|known| known.woken_by.as_deref()));
        }
    }

    /// Takes an event of the past. Returns the processes that have made this wake-up, if that is
    /// known.
    #[inline]
    pub(super) fn event(&mut self, event: &Event, boot_ns: u64) -> Option<Rc<WokenBy>> {
        let object = (event.wait, event.arg);
        if !has_object(event) {
            return None;
        }
        self.follow(object, event.thread, boot_ns);
        if event.kind != EventKind::WAKE {
            return None;
        }
        if self.known.get(&object)?.until_ns == 0 && self.may_look_back() {
            self.find(boot_ns);
        }
        self.known.get(&object)?.woken_by.clone()
    }

    fn may_look_back(&mut self) -> bool {
        let left = self.looks_left.as_mut();
        left.is_some_and(|left| std::mem::replace(left, left.saturating_sub(1)) != 0)
    }

    /// A thread waits for an object, or has waited for it.
    fn follow(&mut self, object: Object, tid: u32, boot_ns: u64) {
        let count = self.known.len();
        if count >= KNOWN_MAX && !self.known.contains_key(&object) {
            return;
        }
        let known = self.known.entry(object).or_default();
        let same_ns = if known.tid == tid {
            (count as u64 * LINK_NS).clamp(SAME_NS, SAME_MOST_NS)
        } else {
            SAME_NS
        };
        let is_due = known.tid == 0 || boot_ns >= known.linked_ns + same_ns;
        if is_due && self.looks_left.is_none() {
            (known.linked_ns, known.tid) = (boot_ns, tid);
            let mut link = LINK;
            let link = self.peers.link(object, &mut link);
            if known.link.as_deref() != link {
                known.link = link.map(Box::from);
                (known.until_ns, known.holds_ns) = (0, 0);
                if known.woken_by.take().is_some() {
                    self.changed.push(object);
                }
            }
        }
        if known.until_ns <= boot_ns && !known.is_wanted {
            known.is_wanted = true;
            self.wanted.push(object);
        }
    }

    /// Looks for objects that are wanted.
    fn find(&mut self, boot_ns: u64) {
        let count = self.wanted.len().min(peers::OBJECTS_MAX);
        let wanted: Vec<_> = self.wanted.drain(..count).collect();
        for (object, mut others) in wanted.iter().zip(self.peers.find(&wanted)) {
            others.is_unsure |= self.looks_left.is_some();
            let known = self.known.entry(*object).or_default();
            known.is_wanted = false;
            let woken_by = woken_by(others);
            if woken_by.as_ref() != self.last.as_deref() {
                self.last = woken_by.map(Rc::new);
            }
            known.holds_ns = if known.woken_by == self.last {
                (known.holds_ns * 2).clamp(HOLDS_NS, HOLDS_MOST_NS)
            } else {
                self.changed.push(*object);
                HOLDS_NS
            };
            known.woken_by = self.last.clone();
            known.until_ns = match (self.looks_left, object.0) {
                (Some(_), _) => u64::MAX,
                (None, WaitKind::EPOLL) => boot_ns + WATCHED_HOLDS_NS,
                (None, _) => boot_ns + known.holds_ns,
            };
        }
    }
}

/// Returns true if an event tells an object that another process can have to do with: of a wait, or
/// of a wake-up by the kernel.
#[inline]
fn has_object(event: &Event) -> bool {
    let kind = event.wait;
    match event.kind {
        EventKind::SWITCH => kind.is_descriptor(),
        EventKind::WAKE => is_by_kernel(event) && (kind.is_descriptor() || kind == WaitKind::FUTEX),
        _ => false,
    }
}

/// Returns true if an event is a wake-up by the kernel.
#[inline]
pub(super) fn is_by_kernel(event: &Event) -> bool {
    event.kind == EventKind::WAKE && Event::by(event.other) == By::Kernel
}

/// The objects that were seen last: most events are of an object that was looked up a moment ago.
struct Seen(Box<[u64; SEEN]>);

/// Powers of two: how many objects are remembered, and for how long in nanoseconds.
const SEEN: usize = 1 << 12;
const SEEN_NS: u64 = 1 << 28;

impl Default for Seen {
    fn default() -> Seen {
        Seen(Box::new([0; SEEN]))
    }
}

impl Seen {
    /// Returns true if the object was not seen with this thread a moment ago, or was forgotten.
    #[inline]
    fn is_new(&mut self, (kind, object): Object, tid: u32, boot_ns: u64) -> bool {
        // Descriptors are small numbers, side by side. Addresses of futexes are multiples of four.
        let place = (object ^ object >> 12) as usize % SEEN;
        let what = u64::from(kind.0) << 56 ^ object;
        let when = (u64::from(tid) << 32) ^ (boot_ns / SEEN_NS);
        let mark =
            what.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ when.wrapping_mul(0xff51_afd7_ed55_8ccd);
        std::mem::replace(&mut self.0[place], mark) != mark
    }
}

fn woken_by(mut others: Others) -> Option<WokenBy> {
    let text = others.to_string();
    match (others.processes.len(), others.is_unsure) {
        (0, _) => None,
        (1, false) => others.processes.pop().map(WokenBy::one),
        (_, false) => Some(WokenBy::guess(&format!("one of {text}"))),
        (_, true) => Some(WokenBy::guess(&format!("perhaps {text}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_new_once_for_each_thread_and_time() {
        let mut seen = Seen::default();
        let read = |fd| (WaitKind::FD_READ, fd);
        for fd in 0..500 {
            assert!(seen.is_new(read(fd), 7, 0));
        }
        for fd in 0..500 {
            assert!(!seen.is_new(read(fd), 7, SEEN_NS - 1));
        }
        assert!(seen.is_new(read(3), 8, 0), "another thread");
        assert!(seen.is_new((WaitKind::FD_WRITE, 3), 8, 0));
        assert!(seen.is_new(read(3), 8, SEEN_NS), "later");
    }
}
