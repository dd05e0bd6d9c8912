//! Which other processes end the waits of a process that is traced. An event says only that the
//! kernel has woken the thread; the other ends of what it waited for are found from outside, and
//! are looked for when the wait begins, while the other process lives.
//!
//! A descriptor may be another file later: its link is read again now and then, of many descriptors
//! less often. Of what was kept before, only what is there now can be found.

use std::rc::Rc;

use raddle_inspect::{By, Event, EventKind, WaitKind};
use raddle_record::perfetto::WokenBy;
use rustc_hash::FxHashMap;

use crate::peers::{self, LINK, Object, Others, Peers};

/// For so long a descriptor is taken to be what it was at least, and at most.
const SAME_NS: u64 = 250_000_000;
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
            peers: Peers::new(pid),
            known: FxHashMap::default(),
            last: None,
            wanted: Vec::new(),
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

    /// Takes an event. Returns the processes that have made this wake-up, if that is known.
    #[inline]
    pub(super) fn event(&mut self, event: &Event, boot_ns: u64) -> Option<Rc<WokenBy>> {
        let kind = event.wait;
        let is_wake = event.kind == EventKind::WAKE && Event::by(event.other) == By::Kernel;
        let is_wait = event.kind == EventKind::SWITCH && kind.is_descriptor();
        if !is_wait && !(is_wake && (kind.is_descriptor() || kind == WaitKind::FUTEX)) {
            return None;
        }
        self.follow((kind, event.arg), event.thread, is_wake, boot_ns)
    }

    fn follow(
        &mut self,
        object: Object,
        tid: u32,
        is_wake: bool,
        boot_ns: u64,
    ) -> Option<Rc<WokenBy>> {
        let count = self.known.len();
        if count >= KNOWN_MAX && !self.known.contains_key(&object) {
            return None;
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
                (known.until_ns, known.holds_ns, known.woken_by) = (0, 0, None);
            }
        }
        if known.until_ns <= boot_ns && !known.is_wanted {
            known.is_wanted = true;
            self.wanted.push(object);
        }
        if !is_wake {
            return None;
        }
        if known.until_ns != 0 {
            return known.woken_by.clone();
        }
        self.look(boot_ns);
        self.known.get(&object)?.woken_by.clone()
    }

    /// Looks for objects that are wanted, unless that costs too much.
    pub(super) fn look(&mut self, boot_ns: u64) {
        let may_look = match &mut self.looks_left {
            Some(left) => std::mem::replace(left, left.saturating_sub(1)) != 0,
            None => self.peers.is_due(),
        };
        if self.wanted.is_empty() || !may_look {
            return;
        }
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

fn woken_by(mut others: Others) -> Option<WokenBy> {
    let text = others.to_string();
    match (others.processes.len(), others.is_unsure) {
        (0, _) => None,
        (1, false) => others.processes.pop().map(WokenBy::one),
        (_, false) => Some(WokenBy::guess(&format!("one of {text}"))),
        (_, true) => Some(WokenBy::guess(&format!("perhaps {text}"))),
    }
}
