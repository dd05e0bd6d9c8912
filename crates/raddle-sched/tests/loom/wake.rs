//! Sleep and wake-up: one model for each announcement and word, with a twin for each step that
//! matters.
//!
//! Sleepers go to sleep while posters post work that no thread takes before the end. After each
//! post a sleeper must look: at the end at least as many sleepers are awake as there were posts, or
//! one, where a sleeper that is awake wakes the next one.

use super::explore;

use loom::sync::{Arc, Mutex};
use loom::thread;
use raddle_sched::sync::{AtomicU32, Ordering};
use raddle_sched::wake::{Announce, IdleSet, WakeWord, Word, prepare};

/// Twins: each step that is removed loses a wake-up.
macro_rules! twins {
    ($use:ty; $($name:ident: $flaw:expr;)+) => {
        $(
            #[test]
            #[should_panic(expected = "a wake-up was lost")]
            fn $name() {
                super::meet::<$use>(1, 1, 3, $flaw);
            }
        )+
    };
}

mod carriers;
mod hosts;
mod known;
mod poller;
mod workers;

/// What a twin does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flaw {
    None,
    /// None, and no count of searchers, which would order what the sign has to order.
    NoSearchers,
    /// The sleeper looks for work, and announces itself afterwards.
    LooksFirst,
    /// The sleeper takes its ticket after its last look.
    LateTicket,
    /// The announcement isn't SeqCst.
    WeakAnnouncement,
    /// The publication isn't SeqCst.
    WeakPublication,
    /// The sleeper's last look isn't SeqCst.
    WeakLook,
    /// The poster's look for a sleeper isn't SeqCst.
    WeakSearch,
    /// The poster looks for a sleeper, and publishes afterwards.
    SearchesFirst,
    /// The poster takes the sleeper, and leaves the word as it is.
    NoChange,
}

impl Flaw {
    /// True for an order that is too weak.
    fn is_of_order(self) -> bool {
        matches!(
            self,
            WeakAnnouncement | WeakLook | WeakPublication | WeakSearch
        )
    }
}

use Flaw::{LateTicket, LooksFirst, WeakAnnouncement, WeakLook, WeakPublication, WeakSearch};

/// The sleepers that the kernel has put to sleep, for all words.
struct Kernel(Mutex<Vec<usize>>);

impl Kernel {
    fn new() -> Self {
        Self(Mutex::new(Vec::new()))
    }

    /// As futex(2): compares, and queues the sleeper, in one step.
    fn wait(&self, id: usize, word: &AtomicU32, ticket: u32) {
        let mut asleep = self.0.lock().unwrap();
        if word.load(Ordering::Relaxed) == ticket {
            asleep.push(id);
        }
    }

    /// Wakes the first sleeper that `fits`.
    fn wake(&self, fits: impl Fn(usize) -> bool) {
        let mut asleep = self.0.lock().unwrap();
        if let Some(at) = asleep.iter().position(|&id| fits(id)) {
            asleep.remove(at);
        }
    }

    fn asleep(&self) -> usize {
        self.0.lock().unwrap().len()
    }
}

/// The work: one word a post.
struct Work([AtomicU32; 2], Flaw);

impl Work {
    fn new(flaw: Flaw) -> Self {
        Self([AtomicU32::new(0), AtomicU32::new(0)], flaw)
    }

    fn publish(&self, number: usize) {
        let order = match self.1 {
            WeakPublication => Ordering::Release,
            _ => Ordering::SeqCst,
        };
        self.0[number].store(1, order);
    }

    fn is_there(&self) -> bool {
        let order = match self.1 {
            WeakLook => Ordering::Acquire,
            _ => Ordering::SeqCst,
        };
        self.0.iter().any(|work| work.load(order) != 0)
    }
}

/// Steps 1 to 3 of a sleeper, as they are or with a flaw.
fn steps(flaw: Flaw, word: &impl Word, sleeper: &mut impl Announce, work: &Work) -> Option<u32> {
    match flaw {
        LooksFirst => {
            let ticket = word.ticket();
            if work.is_there() {
                return None;
            }
            sleeper.announce().then_some(ticket)
        }
        LateTicket => {
            if !sleeper.announce() {
                return None;
            }
            if work.is_there() {
                sleeper.withdraw();
                return None;
            }
            Some(word.ticket())
        }
        _ => prepare(word, sleeper, || work.is_there()),
    }
}

/// A use of the protocol.
trait Use: Send + Sync + Sized + 'static {
    fn new(sleepers: usize, flaw: Flaw) -> Self;

    /// Steps 1 to 4 of sleeper `id`.
    fn sleep(&self, id: usize);

    fn post(&self, number: usize);

    fn asleep(&self) -> usize;

    /// True if a post wakes no sleeper while another one is awake.
    const RELAYS: bool = false;
}

fn meet<U: Use>(sleepers: usize, posters: usize, preemptions: usize, flaw: Flaw) {
    explore(preemptions, move || {
        let shared = Arc::new(U::new(sleepers, flaw));
        let threads: Vec<_> = (0..sleepers)
            .map(|id| {
                let shared = shared.clone();
                thread::spawn(move || shared.sleep(id))
            })
            .chain((0..posters).map(|number| {
                let shared = shared.clone();
                thread::spawn(move || shared.post(number))
            }))
            .collect();
        threads
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
        let awake = if U::RELAYS { 1 } else { posters };
        assert!(
            shared.asleep() <= sleepers.saturating_sub(awake),
            "a wake-up was lost"
        );
    });
}

/// Two sleepers, two posters, and both at once.
fn all_meet<U: Use>() {
    meet::<U>(1, 1, 4, Flaw::None);
    meet::<U>(2, 1, 2, Flaw::None);
    meet::<U>(1, 2, 2, Flaw::None);
    meet::<U>(2, 2, 1, Flaw::None);
}

/// An announcement of one word, for twins: one of more words orders more than each of its accesses.
struct Bit(AtomicU32, Flaw);

impl Bit {
    fn new(flaw: Flaw) -> Self {
        Self(AtomicU32::new(0), flaw)
    }

    /// The poster's search.
    fn is_set(&self) -> bool {
        let order = match self.1 {
            WeakSearch => Ordering::Acquire,
            _ => Ordering::SeqCst,
        };
        self.0.load(order) != 0
    }
}

impl Announce for &Bit {
    fn announce(&mut self) -> bool {
        let order = match self.1 {
            WeakAnnouncement => Ordering::Release,
            _ => Ordering::SeqCst,
        };
        self.0.store(1, order);
        true
    }

    fn withdraw(&mut self) {
        self.0.store(0, Ordering::SeqCst);
    }
}

/// Carriers that rest because each sees one too many: the last to enter the set sees that no other
/// is awake, and that there is room.
#[test]
fn carriers_that_rest_at_once_leave_one_awake() {
    explore(3, || {
        const CARRIERS: usize = 3;
        const LIMIT: usize = 1;
        fn rests(spares: &IdleSet, id: usize) -> bool {
            let has_room = || CARRIERS - spares.len() < LIMIT;
            prepare(&WakeWord::new(), &mut spares.entry(id), has_room).is_some()
        }
        let spares = Arc::new(IdleSet::new());
        let carriers: Vec<_> = (1..CARRIERS)
            .map(|id| {
                let spares = spares.clone();
                thread::spawn(move || rests(&spares, id))
            })
            .collect();
        let mut asleep = usize::from(rests(&spares, 0));
        for carrier in carriers {
            asleep += usize::from(carrier.join().unwrap());
        }
        assert!(asleep < CARRIERS, "no carrier is awake");
    });
}

/// A poster takes each sleeper once, and one that it has not taken stays in the set.
#[test]
fn a_sleeper_is_taken_once() {
    explore(2, || {
        let shared = Arc::new((IdleSet::new(), Work::new(Flaw::None)));
        let carriers: Vec<_> = (0..2)
            .map(|id| {
                let shared = shared.clone();
                thread::spawn(move || {
                    let mut sleeper = shared.0.entry(id);
                    prepare(&WakeWord::new(), &mut sleeper, || shared.1.is_there()).is_some()
                })
            })
            .collect();
        let there = shared.clone();
        let other = thread::spawn(move || {
            there.1.publish(1);
            there.0.take_one()
        });
        shared.1.publish(0);
        let taken = [shared.0.take_one(), other.join().unwrap()];
        assert!(taken[0].is_none() || taken[0] != taken[1], "taken twice");
        let mut left = 0;
        for (id, carrier) in carriers.into_iter().enumerate() {
            let sleeps = carrier.join().unwrap();
            left += usize::from(sleeps && !taken.contains(&Some(id)));
        }
        assert_eq!(
            shared.0.len(),
            left,
            "the set has those that were not taken"
        );
    });
}
