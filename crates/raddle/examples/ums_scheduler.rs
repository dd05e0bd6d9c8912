//! A user-mode scheduler to copy: workers with priorities on two schedulers, which share one queue.
//!
//! Workers that yield choose the next worker themselves, which is the quick way; the schedulers'
//! own threads go on when a worker blocks or ends.
//!
//!     cargo run --release -p raddle --example ums_scheduler

use raddle::ums::{self, Claimed, CompletionList, Context, Next, Reason, Scheduler};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

const WORKERS: usize = 6;
const TURNS: usize = 50;

/// Workers that can be executed: the most urgent ones first, of these the one that waits longest.
struct Urgent {
    list: CompletionList,
    ready: Mutex<BTreeMap<(Reverse<usize>, u64), Claimed>>,
    turn: AtomicU64,
    left: AtomicUsize,
}

impl Urgent {
    /// For so many workers of the list.
    fn new(list: &CompletionList, workers: usize) -> Self {
        Self {
            list: list.clone(),
            ready: Mutex::default(),
            turn: AtomicU64::new(0),
            left: AtomicUsize::new(workers),
        }
    }

    /// Schedules on the calling thread until all workers have ended.
    fn run(&self) -> Result<(), ums::Error> {
        ums::enter_in_place(&self.list, |scheduler, reason| {
            self.decide(scheduler, reason)
        })
    }

    /// Returns the worker that runs next. May be called on a worker that yields, so it waits for no
    /// worker; only schedulers and workers that decide hold the lock, for a few instructions.
    fn decide(&self, scheduler: &Scheduler<'_>, reason: Reason) -> Next {
        if let Reason::Yielded { worker, .. } = reason {
            self.keep(worker);
        } // of those that are blocked or have ended the list will tell
        loop {
            self.take_listed(Duration::ZERO);
            let Some(worker) = self.pop() else {
                if self.left.load(Ordering::SeqCst) == 0 {
                    return scheduler.leave();
                }
                self.take_listed(Duration::from_millis(1)); // another scheduler may be first
                continue;
            };
            match scheduler.resume(worker) {
                Ok(next) => return next,
                Err(locked) => {
                    self.keep(locked); // its registers are still being saved: try again
                    std::thread::yield_now();
                }
            }
        }
    }

    /// Takes new workers, ones that no longer block, and ones that have ended.
    fn take_listed(&self, wait: Duration) {
        for context in self.list.dequeue(Some(wait)).into_iter().flatten() {
            match context.claim() {
                Ok(worker) => self.keep(worker),
                Err(_ended) => _ = self.left.fetch_sub(1, Ordering::SeqCst),
            }
        }
    }

    fn keep(&self, worker: Claimed) {
        let urgency = Reverse(worker.user_context());
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        self.ready.lock().unwrap().insert((urgency, turn), worker);
    }

    fn pop(&self) -> Option<Claimed> {
        let (_, worker) = self.ready.lock().unwrap().pop_first()?;
        Some(worker)
    }
}

/// A worker that takes turns; the most urgent ones wait for a message first, which is blocking.
fn work(me: usize, messages: Option<mpsc::Receiver<()>>) -> usize {
    if let Some(messages) = messages {
        messages.recv().expect("the sender sends first");
    }
    (0..TURNS).for_each(|turn| ums::yield_now(turn).expect("this is a worker"));
    me
}

pub(crate) fn main() -> io::Result<()> {
    if raddle::runtime::status() != raddle::runtime::Status::Green {
        println!("there is no engine for green threads here");
        return Ok(());
    }
    let list = CompletionList::new()?;
    let order = Arc::new(Mutex::new(Vec::new()));
    let (mut results, mut senders) = (Vec::new(), Vec::new());
    for me in 0..WORKERS {
        let (sender, receiver) = mpsc::channel();
        let is_urgent = me % 2 == 1;
        let context = Context::new(&list);
        context.set_user_context(usize::from(is_urgent));
        let order = Arc::clone(&order);
        let run = move || {
            let me = work(me, is_urgent.then_some(receiver));
            order.lock().unwrap().push(me);
            me
        };
        // A light worker begins on a used thread; `ums::spawn_with` makes a new one.
        results.push(ums::spawn_light_with(64 << 10, &context, run)?);
        senders.push(sender);
    }
    let schedulers = Urgent::new(&list, WORKERS);
    raddle::scope(|scope| {
        let threads = [(); 2].map(|()| scope.spawn(|| schedulers.run()));
        senders.iter().for_each(|sender| _ = sender.send(())); // the others hold a closed end
        for thread in threads {
            thread.join().expect("no panic").expect("a plain thread");
        }
    });
    let sum: usize = results
        .into_iter()
        .map(|result| result.wait().expect("no panic"))
        .sum();
    assert_eq!(sum, (0..WORKERS).sum());
    assert_eq!(order.lock().unwrap().len(), WORKERS);
    println!("they ended in this order: {:?}", order.lock().unwrap());
    Ok(())
}
