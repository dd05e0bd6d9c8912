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
use raddle_sched::wake::{
    ActiveCount, Announce, Announcement, IdleSet, Known, Searchers, SharedWakeWord, Sign, WakeWord,
    Word, prepare,
};

/// What a twin does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flaw {
    None,
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

use Flaw::{
    LateTicket, LooksFirst, NoChange, SearchesFirst, WeakAnnouncement, WeakLook, WeakPublication,
    WeakSearch,
};

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
            .chain((1..posters).map(|number| {
                let shared = shared.clone();
                thread::spawn(move || shared.post(number))
            }))
            .collect();
        shared.post(0);
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
    meet::<U>(2, 1, 3, Flaw::None);
    meet::<U>(1, 2, 3, Flaw::None);
    meet::<U>(2, 2, 2, Flaw::None);
}

/// An announcement of one word, for twins: one of more words orders more than each of its accesses.
struct Bit(AtomicU32, Flaw);

/// An engine's carriers, each with a word of its own.
struct Carriers {
    words: [WakeWord; 2],
    idle: IdleSet,
    bit: Bit,
    work: Work,
    kernel: Kernel,
    flaw: Flaw,
}

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

/// The ids of two carriers, in two words of the set.
const FIRST: usize = 63;

impl Use for Carriers {
    fn new(_sleepers: usize, flaw: Flaw) -> Self {
        Self {
            words: [WakeWord::new(), WakeWord::new()],
            idle: IdleSet::new(),
            bit: Bit::new(flaw),
            work: Work::new(flaw),
            kernel: Kernel::new(),
            flaw,
        }
    }

    fn sleep(&self, id: usize) {
        let word = &self.words[id];
        let ticket = match self.flaw {
            flaw if flaw.is_of_order() => steps(flaw, word, &mut &self.bit, &self.work),
            _ => {
                let mut sleeper = self.idle.entry(FIRST + id);
                steps(self.flaw, word, &mut sleeper, &self.work)
            }
        };
        if let Some(ticket) = ticket {
            self.kernel.wait(id, word.futex(), ticket);
        }
    }

    fn post(&self, number: usize) {
        let take = || match self.flaw {
            flaw if flaw.is_of_order() => self.bit.is_set().then_some(0),
            _ => self.idle.take_one().map(|id| id - FIRST),
        };
        let taken = if self.flaw == SearchesFirst {
            let taken = take();
            self.work.publish(number);
            taken
        } else {
            self.work.publish(number);
            take()
        };
        if let Some(id) = taken
            && self.flaw != NoChange
            && self.words[id].set()
        {
            self.kernel.wake(|other| other == id);
        }
    }

    fn asleep(&self) -> usize {
        self.kernel.asleep()
    }
}

#[test]
fn carriers_and_posters_never_miss_each_other() {
    all_meet::<Carriers>();
}

/// Hosts of light threads, which share a word. One may be active.
struct Hosts {
    word: SharedWakeWord,
    count: ActiveCount,
    bit: Bit,
    work: Work,
    kernel: Kernel,
    flaw: Flaw,
}

impl Use for Hosts {
    fn new(sleepers: usize, flaw: Flaw) -> Self {
        let count = ActiveCount::new();
        count.reset(sleepers as u32);
        Self {
            word: SharedWakeWord::new(),
            count,
            bit: Bit::new(flaw),
            work: Work::new(flaw),
            kernel: Kernel::new(),
            flaw,
        }
    }

    fn sleep(&self, id: usize) {
        let word = &self.word;
        let ticket = match self.flaw {
            flaw if flaw.is_of_order() => steps(flaw, word, &mut &self.bit, &self.work),
            Flaw::None => prepare(word, &mut &self.count, || {
                self.count.active() < 1 && self.work.is_there()
            }),
            _ => steps(self.flaw, word, &mut &self.count, &self.work),
        };
        if let Some(ticket) = ticket {
            self.kernel.wait(id, word.futex(), ticket);
        }
    }

    fn post(&self, number: usize) {
        let wants = || match self.flaw {
            flaw if flaw.is_of_order() => self.bit.is_set(),
            _ => self.count.wants_one(|| 1),
        };
        let wanted = if self.flaw == SearchesFirst {
            let wanted = wants();
            self.work.publish(number);
            wanted
        } else {
            self.work.publish(number);
            wants()
        };
        if wanted {
            if self.flaw != NoChange {
                self.word.change();
            }
            self.kernel.wake(|_| true);
        }
    }

    fn asleep(&self) -> usize {
        self.kernel.asleep()
    }

    const RELAYS: bool = true;
}

#[test]
fn hosts_and_posters_never_miss_each_other() {
    all_meet::<Hosts>();
}

/// A pool's workers, listed under a lock that shows a sign. Those that go to sleep have searched.
struct Workers {
    words: [WakeWord; 2],
    idle: Mutex<Vec<usize>>,
    sign: Sign,
    bit: Bit,
    searchers: Searchers,
    work: Work,
    kernel: Kernel,
    flaw: Flaw,
}

/// A worker's entry in the list, under the lock.
struct Listed<'a> {
    idle: &'a mut Vec<usize>,
    sign: &'a Sign,
    id: usize,
}

impl Announce for Listed<'_> {
    fn announce(&mut self) -> bool {
        self.idle.push(self.id);
        self.sign.show(true);
        true
    }

    fn withdraw(&mut self) {
        self.idle.retain(|&id| id != self.id);
        self.sign.show(!self.idle.is_empty());
    }
}

/// As [`Listed`], with a bit as the sign.
struct BitListed<'a>(&'a mut Vec<usize>, &'a Bit, usize);

impl Announce for BitListed<'_> {
    fn announce(&mut self) -> bool {
        self.0.push(self.2);
        let mut bit = self.1;
        bit.announce()
    }

    fn withdraw(&mut self) {
        self.0.retain(|&id| id != self.2);
    }
}

impl Use for Workers {
    fn new(sleepers: usize, flaw: Flaw) -> Self {
        let searchers = Searchers::default();
        // A twin without searchers: their count would order what it weakens.
        if flaw == Flaw::None {
            (0..sleepers).for_each(|_| searchers.begin());
        }
        Self {
            words: [WakeWord::new(), WakeWord::new()],
            idle: Mutex::new(Vec::new()),
            sign: Sign::new(false),
            bit: Bit::new(flaw),
            searchers,
            work: Work::new(flaw),
            kernel: Kernel::new(),
            flaw,
        }
    }

    fn sleep(&self, id: usize) {
        if self.flaw == Flaw::None {
            self.searchers.end();
        }
        let word = &self.words[id];
        let mut idle = self.idle.lock().unwrap();
        let ticket = match self.flaw {
            flaw if flaw.is_of_order() => {
                let mut sleeper = BitListed(&mut idle, &self.bit, id);
                steps(flaw, word, &mut sleeper, &self.work)
            }
            _ => {
                let mut sleeper = Listed {
                    idle: &mut idle,
                    sign: &self.sign,
                    id,
                };
                steps(self.flaw, word, &mut sleeper, &self.work)
            }
        };
        drop(idle);
        if let Some(mut ticket) = ticket {
            // Under the lock a ticket is never late: no poster takes the worker before.
            if self.flaw == LateTicket {
                ticket = word.ticket();
            }
            self.kernel.wait(id, word.futex(), ticket);
        }
    }

    fn post(&self, number: usize) {
        let wants = || match self.flaw {
            flaw if flaw.is_of_order() => self.bit.is_set(),
            Flaw::None => self.sign.is_shown() && !self.searchers.has_any(),
            _ => self.sign.is_shown(),
        };
        let wanted = if self.flaw == SearchesFirst {
            let wanted = wants();
            self.work.publish(number);
            wanted
        } else {
            self.work.publish(number);
            wants()
        };
        if !wanted {
            return;
        }
        let mut idle = self.idle.lock().unwrap();
        let summoned = match self.searchers.has_any() {
            true => None,
            false => idle.pop(),
        };
        if summoned.is_some() {
            self.searchers.begin();
        }
        self.sign.show(!idle.is_empty());
        drop(idle);
        if let Some(id) = summoned
            && self.flaw != NoChange
            && self.words[id].set()
        {
            self.kernel.wake(|other| other == id);
        }
    }

    fn asleep(&self) -> usize {
        self.kernel.asleep()
    }

    const RELAYS: bool = true;
}

#[test]
fn workers_and_posters_never_miss_each_other() {
    all_meet::<Workers>();
}

/// The poller, or sysmon: one sleeper, woken by a descriptor that counts.
struct Poller {
    descriptor: SharedWakeWord,
    announcement: Announcement,
    bit: Bit,
    work: Work,
    kernel: Kernel,
    flaw: Flaw,
}

impl Use for Poller {
    fn new(_sleepers: usize, flaw: Flaw) -> Self {
        Self {
            descriptor: SharedWakeWord::new(),
            announcement: Announcement::new(),
            bit: Bit::new(flaw),
            work: Work::new(flaw),
            kernel: Kernel::new(),
            flaw,
        }
    }

    fn sleep(&self, id: usize) {
        let word = &self.descriptor;
        let ticket = match self.flaw {
            flaw if flaw.is_of_order() => steps(flaw, word, &mut &self.bit, &self.work),
            _ => steps(self.flaw, word, &mut &self.announcement, &self.work),
        };
        if let Some(ticket) = ticket {
            self.kernel.wait(id, word.futex(), ticket);
        }
    }

    fn post(&self, number: usize) {
        let take = || match self.flaw {
            flaw if flaw.is_of_order() => self.bit.is_set(),
            _ => self.announcement.is_made() && self.announcement.take(),
        };
        let taken = if self.flaw == SearchesFirst {
            let taken = take();
            self.work.publish(number);
            taken
        } else {
            self.work.publish(number);
            take()
        };
        if taken {
            if self.flaw != NoChange {
                self.descriptor.change();
            }
            self.kernel.wake(|_| self.flaw != NoChange);
        }
    }

    fn asleep(&self) -> usize {
        self.kernel.asleep()
    }
}

#[test]
fn the_poller_and_posters_never_miss_each_other() {
    meet::<Poller>(1, 1, 4, Flaw::None);
    meet::<Poller>(1, 2, 3, Flaw::None);
}

/// The carrier of a bound thread, which posters know: the word alone decides.
struct Bound {
    word: WakeWord,
    mail: AtomicU32,
    kernel: Kernel,
    flaw: Flaw,
}

impl Use for Bound {
    fn new(_sleepers: usize, flaw: Flaw) -> Self {
        Self {
            word: WakeWord::new(),
            mail: AtomicU32::new(0),
            kernel: Kernel::new(),
            flaw,
        }
    }

    fn sleep(&self, id: usize) {
        let has_mail = || self.mail.load(Ordering::Acquire) != 0;
        let ticket = match self.flaw {
            LateTicket => (!has_mail()).then(|| self.word.ticket()),
            // A word that is cleared by a store: it forgets what it clears.
            WeakLook => {
                self.word.futex().store(0, Ordering::SeqCst);
                (!has_mail()).then_some(0)
            }
            _ => prepare(&self.word, &mut Known, has_mail),
        };
        if let Some(ticket) = ticket {
            self.kernel.wait(id, self.word.futex(), ticket);
        }
    }

    fn post(&self, _number: usize) {
        if self.flaw == SearchesFirst {
            let may_wait = self.word.set();
            self.mail.store(1, Ordering::Release);
            if may_wait {
                self.kernel.wake(|_| true);
            }
            return;
        }
        self.mail.store(1, Ordering::Release);
        if self.flaw != NoChange && self.word.set() {
            self.kernel.wake(|_| true);
        }
    }

    fn asleep(&self) -> usize {
        self.kernel.asleep()
    }
}

#[test]
fn a_sleeper_that_posters_know_is_never_missed() {
    meet::<Bound>(1, 1, 4, Flaw::None);
    meet::<Bound>(1, 2, 3, Flaw::None);
}

/// Twins: each step that is removed loses a wake-up.
macro_rules! twins {
    ($($name:ident: $use:ty, $sleepers:expr, $posters:expr, $flaw:expr;)+) => {
        $(
            #[test]
            #[should_panic(expected = "a wake-up was lost")]
            fn $name() {
                meet::<$use>($sleepers, $posters, 3, $flaw);
            }
        )+
    };
}

twins! {
    a_carrier_that_looks_first_is_caught: Carriers, 1, 1, LooksFirst;
    a_carrier_that_clears_its_word_late_is_caught: Carriers, 1, 1, LateTicket;
    a_carrier_with_a_weak_announcement_is_caught: Carriers, 1, 1, WeakAnnouncement;
    a_carrier_with_a_weak_look_is_caught: Carriers, 1, 1, WeakLook;
    a_weak_publication_for_carriers_is_caught: Carriers, 1, 1, WeakPublication;
    a_weak_search_for_carriers_is_caught: Carriers, 1, 1, WeakSearch;
    a_search_before_the_publication_for_carriers_is_caught: Carriers, 1, 1, SearchesFirst;
    a_carrier_with_an_unchanged_word_is_caught: Carriers, 1, 1, NoChange;
    a_host_that_looks_first_is_caught: Hosts, 1, 1, LooksFirst;
    a_host_that_reads_the_word_late_is_caught: Hosts, 1, 1, LateTicket;
    a_host_with_a_weak_announcement_is_caught: Hosts, 1, 1, WeakAnnouncement;
    a_host_with_a_weak_look_is_caught: Hosts, 1, 1, WeakLook;
    a_weak_publication_for_hosts_is_caught: Hosts, 1, 1, WeakPublication;
    a_weak_search_for_hosts_is_caught: Hosts, 1, 1, WeakSearch;
    a_search_before_the_publication_for_hosts_is_caught: Hosts, 1, 1, SearchesFirst;
    a_host_with_an_unchanged_word_is_caught: Hosts, 1, 1, NoChange;
    a_worker_that_looks_first_is_caught: Workers, 1, 1, LooksFirst;
    a_worker_that_clears_its_word_late_is_caught: Workers, 1, 1, LateTicket;
    a_worker_with_a_weak_sign_is_caught: Workers, 1, 1, WeakAnnouncement;
    a_worker_with_a_weak_look_is_caught: Workers, 1, 1, WeakLook;
    a_weak_publication_for_workers_is_caught: Workers, 1, 1, WeakPublication;
    a_weak_search_for_workers_is_caught: Workers, 1, 1, WeakSearch;
    a_search_before_the_publication_for_workers_is_caught: Workers, 1, 1, SearchesFirst;
    a_worker_with_an_unchanged_word_is_caught: Workers, 1, 1, NoChange;
    a_poller_that_looks_first_is_caught: Poller, 1, 1, LooksFirst;
    a_poller_with_a_weak_announcement_is_caught: Poller, 1, 1, WeakAnnouncement;
    a_poller_with_a_weak_look_is_caught: Poller, 1, 1, WeakLook;
    a_weak_publication_for_the_poller_is_caught: Poller, 1, 1, WeakPublication;
    a_weak_search_for_the_poller_is_caught: Poller, 1, 1, WeakSearch;
    a_search_before_the_publication_for_the_poller_is_caught: Poller, 1, 1, SearchesFirst;
    a_poller_that_is_taken_and_not_woken_is_caught: Poller, 1, 1, NoChange;
    a_known_sleeper_that_clears_late_is_caught: Bound, 1, 1, LateTicket;
    a_known_sleeper_that_clears_by_a_store_is_caught: Bound, 1, 1, WeakLook;
    a_known_sleeper_that_is_woken_before_the_post_is_caught: Bound, 1, 1, SearchesFirst;
    a_known_sleeper_with_an_unchanged_word_is_caught: Bound, 1, 1, NoChange;
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
                    let mut sleeper = shared.0.entry(FIRST + id);
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
            left += usize::from(sleeps && !taken.contains(&Some(FIRST + id)));
        }
        assert_eq!(
            shared.0.len(),
            left,
            "the set has those that were not taken"
        );
    });
}
