//! Wake-ups of shared words, for events: which thread of this process has made them.
//!
//! A thread that waits for a shared word waits in the kernel, by a helper
//! ([`crate::io::helpers`]). A wake-up goes to the kernel, too, so the helper doesn't see which
//! thread has made it. While events are recorded, a waker leaves a *note* of its call before it
//! makes it ([`crate::state::events::wakes_shared`]). A helper of which a wake-up ended the wait
//! takes the oldest note of the word that is younger than the wait. If the word changes before the
//! helper comes to wait, the call wakes nothing, and its note says so: the helper looks at it, and
//! leaves it.
//!
//! The kernel doesn't say which waiters a call has woken. If another process waits for the same
//! word, the note may be of a call that has woken one there.
//!
//! Rejected: a look at the word's waiters by the waker. Those of other processes are missing, and
//! the order is the kernel's.

use crate::state::carrier::Carrier;
use crate::state::events;
use crate::state::parts::helpers::Call;
use crate::state::process::PROCESS;
use crate::state::thread::{Thread, WaitKind};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use raddle_inspect::Event;
use raddle_sys::{err, errno, nr};

/// Notes that are kept, and the words of which a waiter is known.
const NOTES: usize = 64;
/// In [`Note::word`]: the call may wake several. Words are multiples of four.
const SEVERAL: u64 = 1;
/// Likewise: the call has woken none.
const IN_VAIN: u64 = 2;

/// What is kept, in the recorder.
pub(crate) struct WordWakes {
    /// The next note is written here.
    next: AtomicU32,
    notes: [Note; NOTES],
    /// The threads that began to wait last, by their words' places.
    waiters: [AtomicU32; NOTES],
}

/// One call.
struct Note {
    /// Its address, with [`SEVERAL`] and [`IN_VAIN`]; 0 for none. Written last.
    word: AtomicU64,
    stamp: AtomicU64,
    waker: AtomicU32,
}

impl WordWakes {
    pub(crate) const fn new() -> Self {
        Self {
            next: AtomicU32::new(0),
            notes: [const {
                Note {
                    word: AtomicU64::new(0),
                    stamp: AtomicU64::new(0),
                    waker: AtomicU32::new(0),
                }
            }; NOTES],
            waiters: [const { AtomicU32::new(0) }; NOTES],
        }
    }

    fn add(&self, word: u64, waker: u32, stamp: u64) -> &Note {
        let at = self.next.fetch_add(1, Ordering::Relaxed) as usize % NOTES;
        let note = &self.notes[at];
        note.word.store(0, Ordering::Release);
        note.stamp.store(stamp, Ordering::Release);
        note.waker.store(waker, Ordering::Release);
        note.word.store(word, Ordering::Release);
        note
    }

    /// Returns the waker of the oldest note of a word that is younger than `began`, or 0.
    fn take(&self, address: u64, began: u64) -> u32 {
        let Some((note, word, waker)) = self.oldest(address, began, SEVERAL) else {
            return 0;
        };
        if word & SEVERAL == 0 {
            note.replace(word, 0);
        }
        waker
    }

    /// As [`WordWakes::take`], of a call that may have woken none. Its note stays.
    fn look(&self, address: u64, since: u64) -> u32 {
        let oldest = self.oldest(address, since, SEVERAL | IN_VAIN);
        oldest.map_or(0, |(_, _, waker)| waker)
    }

    /// Returns the oldest note of a word, without other flags than these, and what it says.
    fn oldest(&self, address: u64, since: u64, flags: u64) -> Option<(&Note, u64, u32)> {
        let mut oldest: Option<(u64, (&Note, u64, u32))> = None;
        for note in &self.notes {
            let word = note.word.load(Ordering::Acquire);
            if word & !flags != address {
                continue;
            }
            let stamp = note.stamp.load(Ordering::Acquire);
            let waker = note.waker.load(Ordering::Acquire);
            if stamp >= since && oldest.is_none_or(|(before, _)| stamp < before) {
                oldest = Some((stamp, (note, word, waker)));
            }
        }
        oldest.map(|(_, note)| note)
    }

    /// Forgets all, in the child of a fork.
    pub(crate) fn forget(&self) {
        let Self {
            next,
            notes,
            waiters,
        } = self;
        next.store(0, Ordering::Relaxed);
        for Note {
            word,
            stamp: _,
            waker: _,
        } in notes
        {
            word.store(0, Ordering::Relaxed);
        }
        for waiter in waiters {
            waiter.store(0, Ordering::Relaxed);
        }
    }
}

impl Note {
    /// Changes or takes away a note, unless another one is there by now.
    fn replace(&self, word: u64, by: u64) {
        let _ = self
            .word
            .compare_exchange(word, by, Ordering::AcqRel, Ordering::Relaxed);
    }
}

fn place(address: usize) -> usize {
    ((address >> 2).wrapping_mul(0x9e37_79b9) >> 8) % NOTES
}

/// `thread` is about to wait for a shared word.
#[cold]
pub(crate) fn waits(thread: &Thread, address: usize) {
    let waiters = &PROCESS.recorder.words.waiters;
    waiters[place(address)].store(thread.tid(), Ordering::Relaxed);
}

/// Returns since when a thread waits for a shared word: the one that began last, if it is known.
pub(crate) fn waited_from(address: usize) -> Option<u64> {
    let tid = PROCESS.recorder.words.waiters[place(address)].load(Ordering::Relaxed);
    let thread = PROCESS.find(tid)?;
    let is_it = thread.wait_kind.load(Ordering::Relaxed) == WaitKind::FUTEX.0
        && thread.wait_arg.load(Ordering::Relaxed) == address;
    let from = thread.waits_from.load(Ordering::Relaxed);
    (is_it && from != 0).then_some(from)
}

/// Calls `wake`, which wakes up to `count` threads that wait for a shared word, in the kernel.
#[cold]
pub(crate) fn call(
    carrier: &Carrier,
    address: usize,
    count: usize,
    wake: impl FnOnce() -> isize,
) -> isize {
    let Some(waker) = carrier.thread_or_none().map(Thread::tid) else {
        return wake();
    };
    let stamp = raddle_arch::timestamp();
    let word = address as u64 | if count == 1 { 0 } else { SEVERAL };
    crate::state::wakers::wakes_word(carrier, address, waker, stamp);
    let note = PROCESS.recorder.words.add(word, waker, stamp);
    let woken = wake();
    if woken <= 0 {
        note.replace(word, if woken == 0 { word | IN_VAIN } else { 0 });
    }
    woken
}

/// Returns [`Event::other`] of the wake-up that ends a call of a helper, which began at this stamp.
pub(crate) fn ended_by(call: &Call, result: isize, began: u64) -> u32 {
    const TIMED_OUT: isize = err(errno::ETIMEDOUT);
    const CHANGED: isize = err(errno::EAGAIN);
    let waits = call.nr == nr::__NR_futex && call.args[1] as u32 == nr::FUTEX_WAIT_BITSET;
    let (words, address) = (&PROCESS.recorder.words, call.args[0] as u64);
    match result {
        _ if !waits || !events::is_on() => 0,
        0 => words.take(address, began),
        CHANGED if call.left != 0 => words.look(address, call.left),
        TIMED_OUT => Event::TIMER,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_takes_the_oldest_note_of_its_word_once() {
        let words = WordWakes::new();
        words.add(0x40, 7, 100);
        words.add(0x40, 8, 90);
        words.add(0x44, 9, 80);
        assert_eq!(words.take(0x40, 85), 8);
        assert_eq!(words.take(0x40, 85), 7);
        assert_eq!(words.take(0x40, 85), 0);
        assert_eq!(words.take(0x44, 81), 0);
        assert_eq!(words.take(0x44, 80), 9);
    }

    #[test]
    fn a_call_that_wakes_several_is_noted_for_all() {
        let words = WordWakes::new();
        let note = words.add(0x40 | SEVERAL, 7, 100);
        assert_eq!((words.take(0x40, 10), words.take(0x40, 20)), (7, 7));
        note.replace(0x40 | SEVERAL, 0x40 | SEVERAL | IN_VAIN);
        assert_eq!((words.take(0x40, 10), words.look(0x40, 10)), (0, 7));
        assert_eq!(words.look(0x40, 101), 0);
        words.add(0x40, 8, 100);
        words.forget();
        assert_eq!(words.take(0x40, 10), 0);
    }
}
