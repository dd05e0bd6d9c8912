//! Schedulers with a procedure that yielding workers call.

use super::{Heard, on_carriers, sleep_unseen};
use raddle::ums::{
    self, Cause, Claimed, CompletionList, Context, Error, Next, Reason, Scheduler, State, Why,
};
use raddle::{runtime, thread};
use std::cell::Cell;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Schedulers make room before: a worker that is stopped in `malloc` or `fork` has locks of libc's.
const ROOM: usize = 1 << 12;

/// State shared by all schedulers of a test.
pub(crate) struct Shared {
    list: CompletionList,
    ready: Mutex<VecDeque<Claimed>>,
    left: AtomicUsize,
}

impl Shared {
    pub(crate) fn new(list: &CompletionList, workers: usize) -> Self {
        Self {
            list: list.clone(),
            ready: Mutex::new(VecDeque::with_capacity(ROOM)),
            left: AtomicUsize::new(workers),
        }
    }

    /// Schedules in turn until all workers have ended. Returns the reasons, and how often a worker
    /// was asked.
    pub(crate) fn run(&self) -> (Vec<Heard>, usize) {
        let (mut heard, mut in_place) = (Vec::with_capacity(ROOM), 0);
        let own = std::thread::current().id();
        ums::enter_in_place(&self.list, |scheduler, reason| {
            in_place += usize::from(std::thread::current().id() != own);
            assert!(ums::current().is_none(), "nobody is a worker here");
            heard.push(match &reason {
                Reason::Startup => Heard::Startup,
                Reason::Blocked { cause, .. } => Heard::Blocked(*cause),
                Reason::Yielded { parameter, .. } => Heard::Yielded(*parameter),
            });
            self.next(scheduler, reason)
        })
        .unwrap();
        (heard, in_place)
    }

    fn next(&self, scheduler: &Scheduler<'_>, reason: Reason) -> Next {
        if let Reason::Yielded { worker, .. } = reason {
            self.ready.lock().unwrap().push_back(worker);
        }
        loop {
            let wait = if self.ready.lock().unwrap().is_empty() {
                Duration::from_millis(2) // the calling thread parks
            } else {
                Duration::ZERO
            };
            for context in self.list.dequeue(Some(wait)).into_iter().flatten() {
                match context.claim() {
                    Ok(worker) => self.ready.lock().unwrap().push_back(worker),
                    Err(refused) => {
                        assert_eq!(refused.why, Why::Ended);
                        self.left.fetch_sub(1, Ordering::SeqCst);
                    }
                }
            }
            let worker = self.ready.lock().unwrap().pop_front();
            match worker.map(|worker| scheduler.resume(worker)) {
                Some(Ok(next)) => return next,
                Some(Err(locked)) => {
                    self.ready.lock().unwrap().push_back(locked);
                    std::thread::yield_now();
                }
                None if self.left.load(Ordering::SeqCst) == 0 => return scheduler.leave(),
                None => {}
            }
        }
    }
}

/// The scheduler gets each worker's end, unless it got before that the worker sits in the kernel:
/// the worker may end before it has seen that.
pub(crate) fn ends(heard: &[Heard]) -> usize {
    let is_end =
        |it: &&Heard| [Heard::Blocked(Cause::End), Heard::Blocked(Cause::Kernel)].contains(it);
    heard.iter().filter(is_end).count()
}

/// Runs the workers of `list` on one scheduler.
fn schedule(list: &CompletionList, workers: usize) -> (Vec<Heard>, usize) {
    let shared = Shared::new(list, workers);
    raddle::scope(|scope| scope.spawn(|| shared.run()).join().unwrap())
}

#[test]
fn workers_that_yield_call_the_procedure_and_keep_their_thread_locals() {
    thread_local!(static OWN: Cell<u32> = const { Cell::new(0) });
    on_carriers(|| {
        let list = CompletionList::new().unwrap();
        let workers: Vec<_> = (1..=10)
            .map(|me| {
                let run = move || {
                    OWN.set(me);
                    for i in 0..1000 {
                        ums::yield_now(i).unwrap();
                        assert_eq!(OWN.get(), me);
                        assert!(ums::current().is_some());
                    }
                };
                ums::spawn(&list, run).unwrap().1
            })
            .collect();
        let (heard, in_place) = schedule(&list, 10);
        let yields = heard.iter().filter(|it| matches!(it, Heard::Yielded(_)));
        assert_eq!(yields.count(), 10_000);
        assert!(in_place > 9000, "{in_place}");
        workers.into_iter().for_each(|it| it.join().unwrap());
    });
}

#[test]
fn a_worker_that_blocks_gives_the_scheduler_its_place() {
    on_carriers(|| {
        let list = CompletionList::new().unwrap();
        let workers: Vec<_> = (0..20)
            .map(|i| {
                let work = move || {
                    for _ in 0..10 {
                        ums::yield_now(i).unwrap();
                        std::thread::sleep(Duration::from_micros(100));
                        std::thread::yield_now();
                    }
                    i
                };
                ums::spawn(&list, work).unwrap()
            })
            .collect();
        let (heard, in_place) = schedule(&list, 20);
        let count = |it: &Heard| heard.iter().filter(|heard| *heard == it).count();
        assert!(count(&Heard::Blocked(Cause::Call)) >= 20, "{heard:?}");
        assert!(ends(&heard) >= 20, "{heard:?}");
        assert!(in_place > 0);
        for (i, (context, worker)) in workers.into_iter().enumerate() {
            assert_eq!((worker.join().unwrap(), context.state()), (i, State::Ended));
        }
    });
}

/// Becomes true in any case.
struct SetAtEnd(Arc<AtomicBool>);

impl Drop for SetAtEnd {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[test]
fn a_worker_that_sits_in_the_kernel_lets_the_others_run() {
    on_carriers(|| {
        let list = CompletionList::new().unwrap();
        let runs = Arc::new(AtomicBool::new(false));
        let over = Arc::new(AtomicBool::new(false));
        let sits = {
            let (runs, over) = (Arc::clone(&runs), Arc::clone(&over));
            let sit = move || {
                let _over = SetAtEnd(over);
                ums::yield_now(1).unwrap();
                runs.store(false, Ordering::SeqCst);
                sleep_unseen(300_000_000);
                assert!(runs.load(Ordering::SeqCst), "the others ran meanwhile");
            };
            ums::spawn(&list, sit).unwrap().1
        };
        let others: Vec<_> = (0..3)
            .map(|_| {
                let (runs, over) = (Arc::clone(&runs), Arc::clone(&over));
                let yields = move || {
                    while !over.load(Ordering::SeqCst) {
                        runs.store(true, Ordering::SeqCst);
                        ums::yield_now(2).unwrap();
                    }
                };
                ums::spawn(&list, yields).unwrap().1
            })
            .collect();
        let (heard, _) = schedule(&list, 4);
        assert!(heard.contains(&Heard::Blocked(Cause::Kernel)));
        sits.join().unwrap();
        others.into_iter().for_each(|it| it.join().unwrap());
    });
}

#[test]
fn several_schedulers_share_their_workers() {
    thread_local!(static OWN: Cell<u64> = const { Cell::new(0) });
    on_carriers(|| {
        const WORKERS: usize = 100;
        let list = CompletionList::new().unwrap();
        let shared = Shared::new(&list, WORKERS);
        let sum = Arc::new(AtomicU64::new(0));
        let workers: Vec<_> = (0..WORKERS as u64)
            .map(|i| {
                let sum = Arc::clone(&sum);
                let add = move || {
                    OWN.set(i);
                    for turn in 0..100 {
                        match turn % 20 {
                            19 => std::thread::sleep(Duration::from_micros(50)),
                            _ => ums::yield_now(0).unwrap(),
                        }
                        assert_eq!(OWN.get(), i, "the worker's own");
                        sum.fetch_add(i, Ordering::Relaxed);
                    }
                };
                ums::spawn(&list, add).unwrap().1
            })
            .collect();
        raddle::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| shared.run());
            }
        });
        workers.into_iter().for_each(|it| it.join().unwrap());
        let each = (0..WORKERS as u64).sum::<u64>();
        assert_eq!(sum.load(Ordering::Relaxed), 100 * each);
    });
}

#[test]
fn one_worker_alone_goes_on_by_either_name() {
    on_carriers(|| {
        let list = CompletionList::new().unwrap();
        let (_, worker) = ums::spawn(&list, || {
            (0..100).for_each(|i| ums::yield_now(i).unwrap());
        })
        .unwrap();
        raddle::spawn(move || {
            ums::enter_in_place(&list, |scheduler, reason| match reason {
                Reason::Yielded { worker, parameter } if parameter % 2 == 0 => {
                    scheduler.resume(worker).unwrap()
                }
                Reason::Yielded { worker, .. } => scheduler.execute(worker.release()).unwrap(),
                _ => {
                    let listed = list.dequeue(None).unwrap().next().unwrap();
                    match listed.claim() {
                        Ok(worker) => scheduler.resume(worker).unwrap(),
                        Err(_ended) => scheduler.leave(),
                    }
                }
            })
        })
        .join()
        .unwrap()
        .unwrap();
        worker.join().unwrap();
    });
}

/// A scheduler on a thread of its own that decides by `procedure` from its first yield on.
fn at_the_first_yield(
    list: &CompletionList,
    mut procedure: impl FnMut(&Scheduler<'_>, Claimed) -> Next + Send,
) -> Result<(), Error> {
    ums::enter_in_place(list, |scheduler, reason| match reason {
        Reason::Yielded { worker, .. } => procedure(scheduler, worker),
        _ => {
            let listed: Context = list.dequeue(None).unwrap().next().unwrap();
            scheduler.execute(listed).unwrap()
        }
    })
}

/// Executes a worker again whenever it is listed, until it has ended: a page fault may block it.
fn follow(list: &CompletionList, scheduler: &Scheduler<'_>) -> Next {
    let listed: Context = list.dequeue(None).unwrap().next().unwrap();
    if listed.has_ended() {
        scheduler.leave()
    } else {
        scheduler.execute(listed).unwrap()
    }
}

#[test]
fn a_panic_and_a_leave_on_a_worker_are_the_schedulers() {
    on_carriers(|| {
        let list = CompletionList::new().unwrap();
        let (context, worker) = ums::spawn(&list, || {
            (0..2).for_each(|i| ums::yield_now(i).unwrap());
        })
        .unwrap();
        let own = list.clone();
        let caught = raddle::spawn(move || {
            let schedules = AssertUnwindSafe(|| {
                at_the_first_yield(&own, |_, worker| {
                    drop(worker); // any scheduler may execute it
                    std::panic::resume_unwind(Box::new(17));
                })
            });
            *catch_unwind(schedules)
                .unwrap_err()
                .downcast::<i32>()
                .unwrap()
        });
        assert_eq!(caught.join().unwrap(), 17);
        assert_eq!(context.state(), State::Ready);
        let name = context.clone();
        let left = raddle::spawn(move || {
            ums::enter_in_place(&list, |scheduler, reason| match reason {
                Reason::Startup => {
                    let worker = name.clone().claim().unwrap();
                    scheduler.resume(worker).unwrap()
                }
                Reason::Yielded { worker, .. } => {
                    drop(worker);
                    scheduler.leave()
                }
                Reason::Blocked { .. } => follow(&list, scheduler),
            })
            .unwrap();
            list
        });
        let list = left.join().unwrap();
        let ended = raddle::spawn(move || {
            ums::enter_scheduling_mode(&list, |scheduler, reason| match reason {
                Reason::Startup => scheduler.execute(context.clone()).unwrap(),
                _ => follow(&list, scheduler),
            })
        });
        ended.join().unwrap().unwrap();
        worker.join().unwrap();
    });
}

/// A procedure that waits does so as an ordinary thread; the worker is not executed meanwhile.
#[test]
fn a_worker_that_decides_can_wait_and_is_locked() {
    on_carriers(|| {
        let (list, other) = (
            CompletionList::new().unwrap(),
            CompletionList::new().unwrap(),
        );
        let (tell, told) = std::sync::mpsc::channel();
        let (answer, answered) = std::sync::mpsc::channel::<()>();
        let (_, worker) = ums::spawn(&list, || ums::yield_now(0).unwrap()).unwrap();
        let listed = list.clone();
        let asks = {
            let (tell, answered) = (Mutex::new(tell), Mutex::new(answered));
            raddle::spawn(move || {
                let own = std::thread::current().id();
                at_the_first_yield(&list, |scheduler, worker| {
                    let decides = std::thread::current().id() != own; // as a rule
                    tell.lock().unwrap().send((worker, decides)).unwrap();
                    answered.lock().unwrap().recv().unwrap(); // parks
                    scheduler.leave()
                })
            })
        };
        let executes = raddle::spawn(move || {
            let (worker, decides) = told.recv().unwrap();
            let mut worker = Some(worker);
            ums::enter_scheduling_mode(&other, |scheduler, reason| {
                let Reason::Startup = reason else {
                    return follow(&listed, scheduler);
                };
                let first = scheduler.resume(worker.take().unwrap());
                assert!(first.is_err() || !decides, "it is locked");
                answer.send(()).unwrap();
                let mut locked = match first {
                    Ok(next) => return next,
                    Err(locked) => locked,
                };
                loop {
                    match scheduler.resume(locked) {
                        Ok(next) => return next,
                        Err(again) => locked = again,
                    }
                    std::thread::yield_now();
                }
            })
        });
        asks.join().unwrap().unwrap();
        executes.join().unwrap().unwrap();
        worker.join().unwrap();
    });
}

/// Threads beside the scheduler, and signals, reach a carrier that workers only pass on.
#[test]
fn others_run_and_preemption_goes_on() {
    on_carriers(|| {
        let list = CompletionList::new().unwrap();
        let over = Arc::new(AtomicBool::new(false));
        let workers: Vec<_> = (0..3)
            .map(|i| {
                let over = Arc::clone(&over);
                let run = move || {
                    while !over.load(Ordering::SeqCst) {
                        match i {
                            0 => (0..100_000).for_each(|i| _ = std::hint::black_box(i)),
                            _ => ums::yield_now(0).unwrap(),
                        }
                    }
                };
                ums::spawn(&list, run).unwrap().1
            })
            .collect();
        let other = thread::Builder::new().spawn(move || {
            for _ in 0..20 {
                std::thread::sleep(Duration::from_micros(200));
            }
            over.store(true, Ordering::SeqCst);
        });
        schedule(&list, 3);
        other.unwrap().join().unwrap();
        workers.into_iter().for_each(|it| it.join().unwrap());
        assert_eq!(runtime::status(), runtime::Status::Green);
    });
}

#[test]
fn a_kernel_thread_can_schedule_in_place() {
    on_carriers(|| {
        let list = CompletionList::new().unwrap();
        let workers: Vec<_> = (0..20)
            .map(|i| {
                let work = move || {
                    (0..100).for_each(|_| ums::yield_now(i).unwrap());
                    std::thread::sleep(Duration::from_millis(1));
                };
                ums::spawn(&list, work).unwrap().1
            })
            .collect();
        let (heard, in_place) = Shared::new(&list, 20).run(); // on the test's own thread
        assert!(ends(&heard) >= 20, "{heard:?}");
        assert!(in_place > 0);
        workers.into_iter().for_each(|it| it.join().unwrap());
    });
}
