//! User-mode schedulers.

mod attributes;
mod in_place;
mod light;
mod lock;

use raddle::ums::{
    self, Cause, CompletionList, Context, Error, Next, Reason, Scheduler, State, Why,
};
use raddle::{runtime, thread};
use std::collections::VecDeque;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Runs `test` with one, two and three carriers, and no other test meanwhile.
fn on_carriers(test: impl Fn()) {
    static ALONE: Mutex<()> = Mutex::new(());
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    for carriers in 1..=3 {
        runtime::set_carriers(carriers);
        test();
    }
}

/// A reason that a scheduler got.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Heard {
    Startup,
    Blocked(Cause),
    Yielded(usize),
}

/// A scheduler that executes workers in turn until `left` of them, counted by all schedulers that
/// share it, have ended.
struct Turns<'a> {
    list: &'a CompletionList,
    left: &'a AtomicUsize,
    ready: VecDeque<Context>,
    heard: Vec<Heard>,
}

impl<'a> Turns<'a> {
    fn run(list: &'a CompletionList, left: &'a AtomicUsize) -> Vec<Heard> {
        let mut turns = Self {
            list,
            left,
            ready: VecDeque::new(),
            heard: Vec::new(),
        };
        ums::enter_scheduling_mode(list, |scheduler, reason| turns.next(scheduler, reason))
            .unwrap();
        turns.heard
    }

    fn next(&mut self, scheduler: &Scheduler<'_>, reason: Reason) -> Next {
        match reason {
            Reason::Startup => self.heard.push(Heard::Startup),
            Reason::Blocked { cause, .. } => self.heard.push(Heard::Blocked(cause)),
            Reason::Yielded { worker, parameter } => {
                self.heard.push(Heard::Yielded(parameter));
                self.ready.push_back(worker.release());
            }
        }
        loop {
            // Another one may have taken the last.
            let wait = Duration::from_millis(if self.ready.is_empty() { 2 } else { 0 });
            for context in self.list.dequeue(Some(wait)).into_iter().flatten() {
                if context.has_ended() {
                    self.left.fetch_sub(1, Ordering::SeqCst);
                } else {
                    self.ready.push_back(context);
                }
            }
            let Some(context) = self.ready.pop_front() else {
                if self.left.load(Ordering::SeqCst) == 0 {
                    return scheduler.leave();
                }
                continue;
            };
            match scheduler.execute(context) {
                Ok(next) => return next,
                Err(refused) => {
                    assert_eq!(refused.why, Why::Locked);
                    self.ready.push_back(refused.context);
                    std::thread::yield_now();
                }
            }
        }
    }
}

/// Runs the workers of `list` on one scheduler. Returns the reasons that it got.
fn schedule(list: &CompletionList, workers: usize) -> Vec<Heard> {
    let list = list.clone();
    thread::Builder::new()
        .spawn(move || Turns::run(&list, &AtomicUsize::new(workers)))
        .unwrap()
        .join()
        .unwrap()
}

#[test]
fn a_scheduler_hears_of_startup_yields_blocks_and_ends() {
    on_carriers(|| {
        let list = CompletionList::new().unwrap();
        let (_, worker) = ums::spawn(&list, || {
            ums::yield_now(17).unwrap();
            std::thread::sleep(Duration::from_millis(2));
            ums::yield_now(18).unwrap();
            "done"
        })
        .unwrap();
        let heard = schedule(&list, 1);
        assert_eq!(worker.join().unwrap(), "done");
        // Also where a page of the program is away.
        let by_itself =
            |heard: &&Heard| !matches!(heard, Heard::Blocked(Cause::Call | Cause::Kernel));
        let own = heard.iter().filter(by_itself);
        let own: Vec<_> = own.cloned().collect();
        let yields = [Heard::Yielded(17), Heard::Yielded(18)];
        assert_eq!(own[0], Heard::Startup);
        assert_eq!(own[1..3], yields);
        assert_eq!(own[3..], [Heard::Blocked(Cause::End)]);
        let first = heard.iter().position(|heard| *heard == yields[0]).unwrap();
        let second = heard.iter().position(|heard| *heard == yields[1]).unwrap();
        let blocked = Heard::Blocked(Cause::Call);
        assert!(heard[first..second].contains(&blocked), "{heard:?}");
    });
}

#[test]
fn sched_yield_is_a_yield_and_threads_keep_their_thread_locals() {
    thread_local!(static OWN: std::cell::Cell<u32> = const { std::cell::Cell::new(0) });
    on_carriers(|| {
        let list = CompletionList::new().unwrap();
        let workers: Vec<_> = (0..10)
            .map(|me| {
                let run = move || {
                    OWN.set(me);
                    for _ in 0..100 {
                        std::thread::yield_now();
                        assert_eq!(OWN.get(), me);
                    }
                    std::thread::current().id()
                };
                ums::spawn(&list, run).unwrap().1
            })
            .collect();
        let heard = schedule(&list, 10);
        let ids: std::collections::HashSet<_> = workers
            .into_iter()
            .map(|worker| worker.join().unwrap())
            .collect();
        assert_eq!(ids.len(), 10);
        let yields = heard.iter().filter(|heard| **heard == Heard::Yielded(0));
        assert!(yields.count() >= 1000);
    });
}

#[test]
fn workers_block_in_reads_locks_and_condition_variables() {
    on_carriers(|| {
        let list = CompletionList::new().unwrap();
        let (mut near, mut far) = UnixStream::pair().unwrap();
        let shared = Arc::new((Mutex::new(0u32), Condvar::new()));
        let reads = ums::spawn(&list, move || {
            let mut bytes = [0; 4];
            near.read_exact(&mut bytes).unwrap();
            u32::from_ne_bytes(bytes)
        });
        let waits = {
            let shared = Arc::clone(&shared);
            ums::spawn(&list, move || {
                let value = shared.0.lock().unwrap();
                let wait = shared.1.wait_while(value, |value| *value != 5);
                *wait.unwrap()
            })
        };
        let counts: Vec<_> = (0..5)
            .map(|_| {
                let shared = Arc::clone(&shared);
                let count = move || {
                    let mut value = shared.0.lock().unwrap();
                    let next = *value + 1;
                    std::thread::sleep(Duration::from_millis(1)); // with the lock held
                    *value = next;
                    shared.1.notify_all();
                };
                ums::spawn(&list, count).unwrap().1
            })
            .collect();
        let writes = raddle::spawn(move || {
            std::thread::sleep(Duration::from_millis(3));
            far.write_all(&9u32.to_ne_bytes()).unwrap();
        });
        let heard = schedule(&list, 7);
        let blocked = heard
            .iter()
            .filter(|heard| **heard == Heard::Blocked(Cause::Call));
        assert!(blocked.count() >= 6, "{heard:?}");
        assert_eq!(reads.unwrap().1.join().unwrap(), 9);
        assert_eq!(waits.unwrap().1.join().unwrap(), 5);
        counts.into_iter().for_each(|count| count.join().unwrap());
        writes.join().unwrap();
    });
}

#[test]
fn several_schedulers_share_a_list() {
    on_carriers(|| {
        const WORKERS: usize = 200;
        let list = CompletionList::new().unwrap();
        let left = AtomicUsize::new(WORKERS);
        let sum = Arc::new(AtomicU64::new(0));
        let workers: Vec<_> = (0..WORKERS as u64)
            .map(|i| {
                let sum = Arc::clone(&sum);
                let add = move || {
                    for turn in 0..50 {
                        match turn % 10 {
                            9 => std::thread::sleep(Duration::from_micros(50)),
                            _ => ums::yield_now(0).unwrap(),
                        }
                        sum.fetch_add(i, Ordering::Relaxed);
                    }
                };
                ums::spawn(&list, add).unwrap().1
            })
            .collect();
        raddle::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| Turns::run(&list, &left));
            }
        });
        workers
            .into_iter()
            .for_each(|worker| worker.join().unwrap());
        let each = (0..WORKERS as u64).sum::<u64>();
        assert_eq!(sum.load(Ordering::Relaxed), 50 * each);
    });
}

#[test]
fn a_kernel_thread_can_be_a_scheduler() {
    on_carriers(|| {
        let list = CompletionList::new().unwrap();
        let work = |i: usize| {
            move || {
                ums::yield_now(i).unwrap();
                std::thread::sleep(Duration::from_millis(1));
                i
            }
        };
        let workers: Vec<_> = (0..20)
            .map(|i| ums::spawn(&list, work(i)).unwrap().1)
            .collect();
        let heard = Turns::run(&list, &AtomicUsize::new(20)); // on the test's own thread
        let ends = heard
            .iter()
            .filter(|heard| **heard == Heard::Blocked(Cause::End));
        assert_eq!(ends.count(), 20);
        for (i, worker) in workers.into_iter().enumerate() {
            assert_eq!(worker.join().unwrap(), i);
        }
        assert!(!raddle::is_green_thread());
    });
}

#[test]
fn who_leaves_scheduling_mode_leaves_workers_to_others() {
    on_carriers(|| {
        let list = CompletionList::new().unwrap();
        let (_, worker) =
            ums::spawn(&list, || (0..10).for_each(|i| ums::yield_now(i).unwrap())).unwrap();
        let mut kept = None;
        raddle::scope(|scope| {
            let first = scope.spawn(|| {
                let mut kept = None;
                ums::enter_scheduling_mode(&list, |scheduler, reason| match reason {
                    Reason::Yielded {
                        worker,
                        parameter: 3,
                    } => {
                        kept = Some(worker);
                        scheduler.leave()
                    }
                    Reason::Yielded { worker, .. } => scheduler.resume(worker).unwrap(),
                    _ => {
                        let next = list.dequeue(None).unwrap().next().unwrap();
                        scheduler.execute(next).unwrap()
                    }
                })
                .unwrap();
                kept
            });
            kept = first.join().unwrap();
        });
        let mut ready = kept;
        let last = std::cell::Cell::new(0);
        ums::enter_scheduling_mode(&list, |scheduler, reason| {
            if let Reason::Yielded { worker, parameter } = reason {
                last.set(parameter);
                ready = Some(worker);
            }
            match ready.take() {
                Some(worker) => scheduler.resume(worker).unwrap(),
                None => {
                    let item = list.dequeue(None).unwrap().next().unwrap();
                    if item.has_ended() {
                        scheduler.leave()
                    } else {
                        execute_patiently(scheduler, item)
                    }
                }
            }
        })
        .unwrap();
        assert_eq!(last.get(), 9);
        worker.join().unwrap();
    });
}

fn execute_patiently(scheduler: &Scheduler<'_>, mut context: Context) -> Next {
    loop {
        match scheduler.execute(context) {
            Ok(next) => return next,
            Err(refused) => {
                assert_eq!(refused.why, Why::Locked);
                context = refused.context;
                std::thread::yield_now();
            }
        }
    }
}

#[test]
fn wrong_use_is_refused() {
    on_carriers(|| {
        let list = CompletionList::new().unwrap();
        let dequeued = list.dequeue(Some(Duration::ZERO)).map(drop);
        assert_eq!(dequeued, Err(Error::TimedOut));
        let dequeued = list.dequeue(Some(Duration::from_millis(2))).map(drop);
        assert_eq!(dequeued, Err(Error::TimedOut));
        assert_eq!(ums::yield_now(1), Err(Error::NoWorker));
        assert!(ums::current().is_none());

        let new = Context::new(&list);
        assert_eq!(new.state(), State::New);
        let inner = list.clone();
        let (context, worker) = ums::spawn(&list, move || {
            let own = ums::current().unwrap();
            let entered = ums::enter_scheduling_mode(&inner, |scheduler, _| scheduler.leave());
            assert_eq!(entered, Err(Error::IsWorker));
            own.set_user_context(own.thread_id().unwrap() as usize);
            ums::yield_now(0).unwrap();
        })
        .unwrap();
        let twice = ums::spawn_with(raddle::Builder::new(), &context, || ());
        assert_eq!(twice.unwrap_err().kind(), std::io::ErrorKind::InvalidInput);
        let mut calls = 0;
        ums::enter_scheduling_mode(&list, |scheduler, reason| {
            let why = |context: &Context| scheduler.execute(context.clone()).unwrap_err().why;
            calls += 1;
            match (calls, reason) {
                (1, Reason::Startup) => {
                    let nested = ums::enter_scheduling_mode(&list, |it, _| it.leave());
                    assert_eq!(nested, Err(Error::IsScheduler));
                    assert_eq!(why(&new), Why::New);
                    assert_eq!(why(&context), Why::Listed);
                    let mut items = list.dequeue(None).unwrap();
                    assert_eq!(items.next(), Some(context.clone()));
                    assert_eq!(context.state(), State::Ready);
                    let dropped = scheduler.execute(context.clone()).unwrap();
                    assert_eq!(why(&context), Why::Busy); // another one is to execute it
                    drop(dropped);
                    scheduler.execute(context.clone()).unwrap()
                }
                (_, Reason::Yielded { worker, .. }) => {
                    assert_eq!(why(&worker), Why::Busy); // it is ours until it is released
                    execute_patiently(scheduler, worker.release())
                }
                (
                    _,
                    Reason::Blocked {
                        cause: Cause::End, ..
                    },
                ) => {
                    let ended = list.dequeue(None).unwrap().next().unwrap();
                    assert_eq!((ended.state(), why(&ended)), (State::Ended, Why::Ended));
                    scheduler.leave()
                }
                (_, _) => {
                    let woken = list.dequeue(None).unwrap().next().unwrap();
                    execute_patiently(scheduler, woken)
                }
            }
        })
        .unwrap();
        assert_eq!(
            context.user_context(),
            context.thread_id().unwrap() as usize
        );
        worker.join().unwrap();
    });
}

#[test]
fn a_busy_context_is_refused_by_other_schedulers() {
    on_carriers(|| {
        let list = CompletionList::new().unwrap();
        let (context, worker) = ums::spawn(&list, || {
            std::thread::sleep(Duration::from_millis(20));
        })
        .unwrap();
        let mut tried = false;
        ums::enter_scheduling_mode(&list, |scheduler, reason| {
            if let Reason::Blocked {
                cause: Cause::Call,
                context,
            } = &reason
                && !tried
            {
                tried = true;
                let why = scheduler.execute(context.clone()).unwrap_err().why;
                assert!([Why::Busy, Why::Listed].contains(&why));
            }
            let item = list.dequeue(None).unwrap().next().unwrap();
            if item.has_ended() {
                scheduler.leave()
            } else {
                execute_patiently(scheduler, item)
            }
        })
        .unwrap();
        assert!(tried && context.has_ended());
        worker.join().unwrap();
    });
}

#[test]
fn the_event_tells_of_listed_workers() {
    on_carriers(|| {
        let list = CompletionList::with_event().unwrap();
        let event = list.event().unwrap().as_raw_fd();
        let poll = |timeout| {
            let mut poll = libc::pollfd {
                fd: event,
                events: libc::POLLIN,
                revents: 0,
            };
            // SAFETY: one live structure.
            unsafe { libc::poll(&raw mut poll, 1, timeout) }
        };
        assert_eq!(poll(0), 0);
        let (_, worker) = ums::spawn(&list, || ()).unwrap();
        assert_eq!(poll(1000), 1);
        schedule(&list, 1);
        worker.join().unwrap();
    });
}

#[test]
fn items_that_nobody_takes_are_listed_again() {
    on_carriers(|| {
        let list = CompletionList::new().unwrap();
        let workers: Vec<_> = (0..3)
            .map(|_| ums::spawn(&list, || ()).unwrap().1)
            .collect();
        let mut items = list.dequeue(None).unwrap();
        let first = items.next().unwrap();
        drop(items);
        assert_eq!(list.dequeue(None).unwrap().count(), 2); // contexts that are dropped stay ready
        drop(first);
        drop(workers);
    });
}

/// Sleeps by a call that the runtime doesn't see, because it is in code that is made here. Signals
/// of the runtime's end such a call.
fn sleep_unseen(nanoseconds: i64) {
    const NANOSLEEP: u8 = libc::SYS_nanosleep as u8;
    // mov eax, NANOSLEEP; mov rsi, rdi; syscall; ret
    let code = [0xb8, NANOSLEEP, 0, 0, 0, 0x48, 0x89, 0xfe, 0x0f, 0x05, 0xc3];
    let (private, writable) = (
        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
        libc::PROT_READ | libc::PROT_WRITE,
    );
    const EINTR: isize = -(libc::EINTR as isize);
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: nanoseconds,
    };
    // SAFETY: the page is ours; it holds a function of one address, which follows C's rules.
    unsafe {
        let page = libc::mmap(std::ptr::null_mut(), 4096, writable, private, -1, 0);
        assert_ne!(page, libc::MAP_FAILED);
        page.cast::<[u8; 11]>().write(code);
        let executable = libc::PROT_READ | libc::PROT_EXEC;
        assert_eq!(libc::mprotect(page, 4096, executable), 0);
        // The remaining time is stored in place of the time.
        let sleep: extern "C" fn(&mut libc::timespec) -> isize = std::mem::transmute(page);
        let mut answer = EINTR;
        while answer == EINTR {
            answer = sleep(&mut time);
        }
        assert_eq!(answer, 0);
        libc::munmap(page, 4096);
    }
}

#[test]
fn a_worker_that_sits_in_the_kernel_lets_its_scheduler_go_on() {
    on_carriers(|| {
        let list = CompletionList::new().unwrap();
        let goes_on = Arc::new(AtomicBool::new(false));
        let sits = {
            let goes_on = Arc::clone(&goes_on);
            let sit = move || {
                sleep_unseen(300_000_000);
                assert!(
                    goes_on.load(Ordering::SeqCst),
                    "the other worker ran meanwhile"
                );
                ums::yield_now(1).unwrap();
                ums::yield_now(2).unwrap();
            };
            ums::spawn(&list, sit).unwrap().1
        };
        let other = ums::spawn(&list, move || goes_on.store(true, Ordering::SeqCst))
            .unwrap()
            .1;
        let heard = schedule(&list, 2);
        assert!(heard.contains(&Heard::Blocked(Cause::Kernel)), "{heard:?}");
        assert!(heard.contains(&Heard::Yielded(1)) && heard.contains(&Heard::Yielded(2)));
        sits.join().unwrap();
        other.join().unwrap();
    });
}

#[test]
fn other_threads_run_beside_schedulers() {
    on_carriers(|| {
        let list = CompletionList::new().unwrap();
        let over = Arc::new(AtomicBool::new(false));
        let spin = |over: Arc<AtomicBool>| {
            move || {
                while !over.load(Ordering::SeqCst) {
                    ums::yield_now(0).unwrap();
                }
            }
        };
        let workers: Vec<_> = (0..4)
            .map(|_| ums::spawn(&list, spin(Arc::clone(&over))).unwrap().1)
            .collect();
        let other = raddle::spawn(move || {
            for _ in 0..20 {
                std::thread::sleep(Duration::from_micros(200));
                std::thread::yield_now();
            }
            over.store(true, Ordering::SeqCst);
        });
        schedule(&list, 4);
        other.join().unwrap();
        workers
            .into_iter()
            .for_each(|worker| worker.join().unwrap());
    });
}

/// Returns the exit status of a fork's child: 42 if the child, like the caller, is no worker.
fn fork_and_ask() -> i32 {
    // SAFETY: the child only asks and exits.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let is_worker = ums::current().is_some() || ums::yield_now(0).is_ok();
        // SAFETY: ends the child.
        unsafe { libc::_exit(if is_worker { 1 } else { 42 }) };
    }
    let mut status = 0;
    // SAFETY: a live word.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    libc::WEXITSTATUS(status)
}

#[test]
fn a_forked_child_has_no_workers() {
    on_carriers(|| {
        let list = CompletionList::new().unwrap();
        let (_, idle) = ums::spawn(&list, || ums::yield_now(0).unwrap()).unwrap();
        let (_, forks) = ums::spawn(&list, fork_and_ask).unwrap();
        schedule(&list, 2);
        assert_eq!(forks.join().unwrap(), 42);
        idle.join().unwrap();
    });
}
