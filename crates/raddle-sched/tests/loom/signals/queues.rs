//! One queue: what a sender and a taker do at the same time.

use super::*;

/// A signal for the thread and one for the process are both taken, while the thread looks.
fn two_addressees<V: Model>() {
    in_worlds(3, 1, |world| {
        let sender = thread::spawn(move || V::of(world, None).to_process(&(USR1, 1), None));
        let to_thread = V::of(world, None);
        to_thread.to_thread(&world.threads[0], &(USR1, 2));
        sender.join().unwrap();
        world.settle::<V>();
        world.judge(&[1, 2], &[]);
    });
}

#[test]
fn a_signal_to_a_thread_and_one_to_its_process_are_both_taken() {
    two_addressees::<Sound>();
}

/// Signals to the process go to the thread as its own.
#[derive(Clone, Copy)]
struct Merging(Ref, Option<usize>);

surroundings!(Merging);

impl Routes for Merging {
    surroundings!();

    fn to_process(&self, info: &Value, _: Option<&'static Thread>) {
        self.to_thread(&self.0.threads[0], info);
    }
}

#[test]
#[should_panic(expected = "a signal is lost")]
fn addressees_that_share_a_bit_are_caught() {
    two_addressees::<Merging>();
}

/// Each of two threads that accept a signal which pends for the process looks; one takes it.
fn two_takers<V: Model>() {
    in_worlds(3, 2, |world| {
        world.common.post(&world.records, &(RT, 1));
        let other = thread::spawn(move || world.threads[1].look(&V::of(world, Some(1))));
        world.threads[0].look(&V::of(world, Some(0)));
        other.join().unwrap();
        world.judge(&[1], &[]);
    });
}

#[test]
fn a_signal_that_pends_for_the_process_is_taken_once() {
    two_takers::<Sound>();
}

/// A taker reads the oldest signal, and removes it later.
#[derive(Clone, Copy)]
struct TakesInTwoSteps(Ref, Option<usize>);

surroundings!(TakesInTwoSteps);

impl Routes for TakesInTwoSteps {
    surroundings!();

    fn take(&self, _: &Thread, wanted: u64) -> Option<Value> {
        let pends = self.common().pending() & wanted != 0;
        self.common().drop_first(self.records(), RT);
        pends.then_some((RT, 1))
    }
}

#[test]
#[should_panic(expected = "1 is taken twice")]
fn a_signal_that_is_read_before_it_is_removed_is_caught() {
    two_takers::<TakesInTwoSteps>();
}

/// A queue with its bit, of which a sender and the thread make use.
trait Queue: Send + Sync + 'static {
    fn new() -> Self;
    fn post(&self, value: u32);
    fn take(&self) -> Option<u32>;
    fn pends(&self) -> bool;
}

struct OfThread(PendingSignals, Records<Values>);

impl Queue for OfThread {
    fn new() -> Self {
        Self(PendingSignals::new(), SpinLock::new(Pool::new()))
    }

    fn post(&self, value: u32) {
        let (form, to) = (Form::Each, Addressee::Thread);
        self.0.post(&self.1, &(RT, value), form, to, || true);
    }

    fn take(&self) -> Option<u32> {
        self.0.take(&self.1, RT).map(|info| info.1)
    }

    fn pends(&self) -> bool {
        self.0.pending.load(Ordering::SeqCst) != 0
    }
}

/// The bit changes after the lock is free.
struct SettlesLater {
    list: SpinLock<Vec<u32>>,
    pending: AtomicU32,
}

impl Queue for SettlesLater {
    fn new() -> Self {
        Self {
            list: SpinLock::new(Vec::new()),
            pending: AtomicU32::new(0),
        }
    }

    fn post(&self, value: u32) {
        let mut list = self.list.lock();
        list.push(value);
        self.pending.store(1, Ordering::SeqCst);
    }

    fn take(&self) -> Option<u32> {
        let mut list = self.list.lock();
        let value = (!list.is_empty()).then(|| list.remove(0));
        let is_empty = list.is_empty();
        drop(list);
        if is_empty {
            self.pending.store(0, Ordering::SeqCst);
        }
        value
    }

    fn pends(&self) -> bool {
        self.pending.load(Ordering::SeqCst) != 0
    }
}

/// The bit says what is queued, after a take beside a post.
fn bits<Q: Queue>() {
    explore(3, || {
        let queue = loom::sync::Arc::new(Q::new());
        queue.post(1);
        let sender = queue.clone();
        let sender = thread::spawn(move || sender.post(2));
        assert_eq!(queue.take(), Some(1));
        sender.join().unwrap();
        assert!(queue.pends(), "a queued signal has no bit");
        assert_eq!(queue.take(), Some(2));
        assert!(!queue.pends());
    });
}

#[test]
fn a_signal_that_comes_during_a_take_keeps_its_bit() {
    bits::<OfThread>();
}

#[test]
#[should_panic(expected = "a queued signal has no bit")]
fn a_bit_that_is_cleared_without_the_lock_is_caught() {
    bits::<SettlesLater>();
}
