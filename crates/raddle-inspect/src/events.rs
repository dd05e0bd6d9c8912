//! What carriers record while a tool asks for it: an event has three words, in a ring of each
//! carrier's. The tool reads the rings from outside, by the addresses in a
//! [`Layout`](crate::Layout).

use crate::codes::{EventKind, WaitKind};

/// Words of an event.
pub const EVENT_WORDS: usize = 3;

/// Bits of [`Event::arg`].
pub const ARG_BITS: u32 = 48;

/// One event. A thread is 0 for none.
///
/// | kind | `thread` | `other` | `wait`, `arg` |
/// |---|---|---|---|
/// | [`EventKind::SWITCH`] | stops running | runs from now on | what `thread` waits for |
/// | [`EventKind::WAKE`] | was woken | woke it, see [`Event::by`] | what `thread` waited for |
/// | [`EventKind::CREATE`] | is new | created it | |
/// | [`EventKind::END`] | ends | | |
/// | [`EventKind::PREEMPT`] | has to make room | | |
/// | [`EventKind::BLOCK`] | waits in the kernel, with its carrier | the carrier's id | |
/// | [`EventKind::RETURN`] | is back from there | | |
/// | [`EventKind::STEAL`] | runs on another carrier | the id of the one before | |
/// | [`EventKind::SIGNAL`] | gets it | its number | |
/// | [`EventKind::QUEUE`] | length of the carrier's queue | of its engine's | `arg`: engine |
/// | [`EventKind::SPAN_BEGIN`] | the caller | | text |
/// | [`EventKind::SPAN_END`] | the caller | | |
/// | [`EventKind::INSTANT`] | the caller | | text |
/// | [`EventKind::COUNTER`] | low half of the value | high half | text |
/// | [`EventKind::BIND`] | is bound from now on | the carrier's id | |
/// | [`EventKind::START`] | | | |
/// | [`EventKind::NAME`], [`EventKind::NAME_REST`] | has it | [`Event::name_part`] | the same |
/// | [`EventKind::CODE`] | the caller | low half of the file's inode | `arg`: address of the code |
///
/// The `arg` of a text is its address in the process's memory, and `wait` its length, or 0 if it
/// ends with a zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// The CPU's time-stamp counter.
    pub stamp: u64,
    pub kind: EventKind,
    /// A green thread's id.
    pub thread: u32,
    /// Another one's.
    pub other: u32,
    pub wait: WaitKind,
    /// An address, a descriptor or a number; the low [`ARG_BITS`] bits.
    pub arg: u64,
}

/// What wakes a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum By {
    /// A green thread, by its id.
    Thread(u32),
    /// The time for which the thread wanted to wait at most is over.
    Timer,
    /// Another thread has ended.
    End,
    /// The kernel: a descriptor is ready, a transfer is done. Also a kernel thread of the runtime.
    Kernel,
}

impl Event {
    /// Bytes of a text at most.
    pub const TEXT_MAX: usize = 255;
    /// [`Event::other`] of a wake-up by a timer.
    pub const TIMER: u32 = u32::MAX;
    /// [`Event::other`] of a wake-up by the end of a thread.
    pub const END: u32 = u32::MAX - 1;

    /// Returns what has made a wake-up.
    ///
    /// # Examples
    /// ```
    /// use raddle_inspect::{Event, By};
    /// assert_eq!(Event::by(Event::TIMER), By::Timer);
    /// ```
    pub const fn by(other: u32) -> By {
        match other {
            0 => By::Kernel,
            Event::TIMER => By::Timer,
            Event::END => By::End,
            tid => By::Thread(tid),
        }
    }

    /// Bytes of a name that an event has.
    pub const NAME_PART: usize = 11;

    /// Returns an event with a part of a thread's name, of which the bytes behind
    /// [`Event::NAME_PART`] are left out.
    ///
    /// # Examples
    /// ```
    /// use raddle_inspect::{Event, EventKind};
    /// let event = Event::of_name(EventKind::NAME, 7, 1, b"acceptor");
    /// let read = Event::from_words(event.words()).unwrap();
    /// assert_eq!(read.name_part(), *b"acceptor\0\0\0");
    /// ```
    pub fn of_name(kind: EventKind, stamp: u64, thread: u32, part: &[u8]) -> Event {
        let mut bytes = [0; 16];
        for (to, from) in bytes.iter_mut().zip(part.iter().take(Self::NAME_PART)) {
            *to = *from;
        }
        let all = u128::from_le_bytes(bytes);
        Event {
            stamp,
            kind,
            thread,
            other: all as u32,
            wait: WaitKind((all >> 32) as u32 & 0xff),
            arg: (all >> 40) as u64,
        }
    }

    /// Returns the part of a name, with zeros behind it.
    pub fn name_part(&self) -> [u8; Self::NAME_PART] {
        let (other, wait) = (u128::from(self.other), u128::from(self.wait.0));
        let all = other | wait << 32 | u128::from(self.arg) << 40;
        let bytes = all.to_le_bytes();
        core::array::from_fn(|at| bytes[at])
    }

    /// Returns the event as it stands in a ring.
    #[inline]
    pub const fn words(self) -> [u64; EVENT_WORDS] {
        let threads = self.thread as u64 | (self.other as u64) << 32;
        let arg = self.arg & ((1 << ARG_BITS) - 1);
        let codes = (self.wait.0 as u64 & 0xff) << 48 | (self.kind.0 as u64) << 56;
        [self.stamp, threads, arg | codes]
    }

    /// Reads an event from a ring; `None` if the slot is empty.
    ///
    /// # Examples
    /// ```
    /// use raddle_inspect::{Event, EventKind, WaitKind};
    /// let event = Event {
    ///     stamp: 7,
    ///     kind: EventKind::SWITCH,
    ///     thread: 1,
    ///     other: 2,
    ///     wait: WaitKind::FUTEX,
    ///     arg: 0x7fff_0000_1000,
    /// };
    /// assert_eq!(Event::from_words(event.words()), Some(event));
    /// assert_eq!(Event::from_words([0; 3]), None);
    /// ```
    pub const fn from_words([stamp, threads, rest]: [u64; EVENT_WORDS]) -> Option<Event> {
        let kind = EventKind((rest >> 56) as u32);
        if stamp == 0 || kind.0 == 0 {
            return None;
        }
        Some(Event {
            stamp,
            kind,
            thread: threads as u32,
            other: (threads >> 32) as u32,
            wait: WaitKind((rest >> 48) as u32 & 0xff),
            arg: rest & ((1 << ARG_BITS) - 1),
        })
    }
}
