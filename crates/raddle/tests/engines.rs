//! Engines side by side: their carriers, the order of their threads, and faults of policies.

use raddle::engine::{BuiltIn, Engine, Error, Failure, Policy, Reason, Runnable};
use raddle::runtime::{self, Status, status};
use raddle::{Builder, completion, spawn};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{channel, sync_channel};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

/// Skips a test without a runtime, where there are no engines; another test checks that.
fn is_green() -> bool {
    status() == Status::Green
}

fn one(policy: BuiltIn) -> Engine {
    let engine = Engine::builder().name("one").carriers(1).policy(policy);
    engine.build().unwrap()
}

#[test]
fn what_makes_no_engine_is_refused() {
    if !is_green() {
        assert_eq!(Engine::builder().build().unwrap_err(), Error::Unsupported);
        return;
    }
    for (builder, error) in [
        (Engine::builder().carriers(0), Error::NoCarriers),
        (Engine::builder().carriers(65), Error::TooManyCarriers),
        (Engine::builder().cpu_share(0), Error::BadShare),
        (Engine::builder().cpu_share(102_401), Error::BadShare),
    ] {
        assert_eq!(builder.build().unwrap_err(), error);
    }
    let engine = one(BuiltIn::Fifo);
    assert_eq!(engine.set_cpu_share(Some(0)), Err(Error::BadShare));
    let all: Vec<_> = std::iter::repeat_with(|| Engine::builder().carriers(1).build())
        .take(64)
        .collect();
    assert!(matches!(all.last(), Some(Err(Error::TooManyEngines))));
    drop(all);
    assert!(
        Engine::builder().build().is_ok(),
        "their places are free again"
    );
}

#[test]
fn threads_of_engines_wait_for_each_other_in_every_way() {
    if !is_green() {
        return;
    }
    for policy in [BuiltIn::Fifo, BuiltIn::Fair, BuiltIn::Priority] {
        let (a, b) = (one(policy), one(BuiltIn::Fifo));
        let (to_b, from_a) = sync_channel(0);
        let (to_a, from_b) = channel();
        let pair = Arc::new((Mutex::new(0u32), Condvar::new()));
        let turns = |own: u32, pair: Arc<(Mutex<u32>, Condvar)>| {
            for _ in 0..500 {
                let (turn, changed) = &*pair;
                let guard = turn.lock().unwrap();
                let mut guard = changed.wait_while(guard, |turn| *turn % 2 != own).unwrap();
                *guard += 1;
                changed.notify_all();
            }
        };
        let (pair_a, pair_b, pair_c) = (Arc::clone(&pair), Arc::clone(&pair), pair);
        let in_a = a.spawn(move || {
            assert!(raddle::is_green_thread());
            turns(0, pair_a);
            (0..500u32).for_each(|i| to_b.send(i).unwrap());
            drop(to_b); // or both wait for each other's end
            from_b.iter().sum::<u32>()
        });
        let b_again = b.clone();
        let in_b = b.spawn(move || {
            // A thread that a member starts is its engine's or the first one's, and is joined from
            // here.
            let turner = b_again.spawn(move || turns(1, pair_b)).unwrap();
            turner.join().unwrap();
            from_a.iter().for_each(|i| to_a.send(i).unwrap());
            spawn(|| std::thread::sleep(Duration::from_millis(2)))
                .join()
                .unwrap();
            completion::block_on(raddle::run_as_green_thread(|| 7)).unwrap()
        });
        assert_eq!(in_a.unwrap().join().unwrap(), 499 * 500 / 2);
        assert_eq!(in_b.unwrap().join().unwrap(), 7);
        assert_eq!(*pair_c.0.lock().unwrap(), 1000);
    }
}

#[test]
fn an_engine_is_shut_down_and_waited_for() {
    if !is_green() {
        return;
    }
    let engine = one(BuiltIn::Fifo);
    let (to, from) = channel::<()>();
    let from = Arc::new(Mutex::new(from));
    for _ in 0..10 {
        let from = Arc::clone(&from);
        engine
            .spawn(move || from.lock().unwrap().recv().is_ok())
            .unwrap();
    }
    assert_eq!(engine.threads(), 10);
    engine.shut_down();
    let refused = engine.spawn(|| ()).unwrap_err();
    assert_eq!(refused.to_string(), Error::ShutDown.to_string());
    drop(to);
    engine.wait().unwrap();
    assert_eq!(engine.threads(), 0);

    let engine = one(BuiltIn::Fifo);
    let own = engine.clone();
    let waits = engine.spawn(move || own.wait()).unwrap();
    assert_eq!(waits.join().unwrap(), Err(Error::WaitsForItself));
    let panics = engine.spawn(|| panic!("as it should")).unwrap();
    assert!(panics.join().is_err());
    engine.wait().unwrap();
    let scoped = raddle::scope(|scope| {
        let builder = Builder::new().engine(&engine);
        let thread = builder.spawn_scoped(&scope, || engine.threads()).unwrap();
        thread.join().unwrap()
    });
    assert_eq!((scoped, engine.threads()), (1, 0));
}

/// Returns the order in which threads run that the only carrier of `engine` finds at once. Each is
/// made by its builder, knows its number, and does `first` before it reports.
fn order(engine: &Engine, threads: impl IntoIterator<Item = Builder>, first: fn()) -> Vec<usize> {
    let ran = Arc::new(Mutex::new(vec![]));
    let go = Arc::new(AtomicBool::new(false));
    let (begun, has_begun) = channel();
    let goes = Arc::clone(&go);
    let holder = engine.spawn(move || {
        begun.send(()).unwrap();
        while !goes.load(Ordering::Relaxed) {} // no other thread gets a turn within a quantum
    });
    has_begun.recv().unwrap();
    let made: Vec<_> = (0..)
        .zip(threads)
        .map(|(i, builder)| {
            let ran = Arc::clone(&ran);
            builder
                .engine(engine)
                .spawn(move || {
                    first();
                    ran.lock().unwrap().push(i);
                })
                .unwrap()
        })
        .collect();
    go.store(true, Ordering::Relaxed);
    holder.unwrap().join().unwrap();
    made.into_iter().for_each(|thread| thread.join().unwrap());
    Arc::try_unwrap(ran).unwrap().into_inner().unwrap()
}

/// For how long an order is tried.
const TRIES_END: Duration = Duration::from_secs(60);

/// Retries: a preemption, or a thread made slower than a quantum, disturbs an order. That may go on
/// for as long as other tests compute on the carrier of the thread that makes the others.
fn usually(engine: &Engine, make: impl Fn() -> Vec<Builder>, expected: &[usize]) {
    usually_after(|| (), engine, make, expected);
}

fn usually_after(
    first: fn(),
    engine: &Engine,
    make: impl Fn() -> Vec<Builder>,
    expected: &[usize],
) {
    runtime::set_carriers(1);
    let begun = Instant::now();
    loop {
        let ran = order(engine, make(), first);
        if ran == expected {
            return;
        }
        assert!(
            begun.elapsed() < TRIES_END,
            "{ran:?} and never {expected:?}"
        );
    }
}

#[test]
fn a_niceness_leaves_priority_and_deadline() {
    if !is_green() {
        return;
    }
    let new = || Builder::new().niceness(5);
    let three = || {
        vec![
            new().priority(1),
            new().priority(9),
            Builder::new().priority(5),
        ]
    };
    usually_after(
        raddle::yield_now,
        &one(BuiltIn::Priority),
        three,
        &[1, 2, 0],
    );
}

#[test]
fn terms_of_threads_reach_the_policies() {
    if !is_green() {
        return;
    }
    let new = Builder::new;
    let three = || vec![new().priority(1), new().priority(9), new().priority(5)];
    usually(&one(BuiltIn::Priority), three, &[1, 2, 0]);
    let three = || vec![new().niceness(5), new().niceness(-5), new()];
    usually(&one(BuiltIn::Priority), three, &[1, 2, 0]);
    let due = |ms| new().deadline(Duration::from_millis(ms));
    usually(
        &one(BuiltIn::Deadline),
        || vec![new(), due(90), due(30)],
        &[2, 1, 0],
    );
    usually(
        &one(BuiltIn::Lifo),
        || vec![new(), new(), new()],
        &[2, 1, 0],
    );
    usually(
        &one(BuiltIn::Fifo),
        || vec![new(), new(), new()],
        &[0, 1, 2],
    );
    let by_name = |name| new().name(name);
    let own = Engine::builder().carriers(1).policy(ByName::default());
    let named = || vec![by_name("c"), by_name("a"), by_name("b")];
    usually(&own.build().unwrap(), named, &[1, 2, 0]);
}

/// By name; threads without a name first.
#[derive(Default)]
struct ByName(Vec<Runnable>);

impl Policy for ByName {
    fn enqueue(&mut self, thread: Runnable, _: Reason) {
        self.0.push(thread);
    }

    fn pick(&mut self) -> Option<Runnable> {
        let names = self
            .0
            .iter()
            .enumerate()
            .map(|(i, thread)| (thread.name(), i));
        let (_, first) = names.min()?;
        Some(self.0.remove(first))
    }
}

#[test]
fn a_share_is_kept_and_can_be_changed() {
    if !is_green() {
        return;
    }
    let used = |share| {
        let engine = Engine::builder()
            .carriers(2)
            .cpu_share(share)
            .build()
            .unwrap();
        let burn = || {
            let (start, cpu) = (Instant::now(), cpu_time());
            while start.elapsed() < Duration::from_millis(1500) {}
            (cpu_time() - cpu).as_secs_f64() / start.elapsed().as_secs_f64()
        };
        let burners = [engine.spawn(burn).unwrap(), engine.spawn(burn).unwrap()];
        burners
            .map(|burner| burner.join().unwrap())
            .iter()
            .sum::<f64>()
    };
    // A busy machine may give less, but never more.
    assert!(used(20) < 0.24);
    assert!(used(50) < 0.56);
}

#[test]
fn threads_that_yield_stay_on_their_engines_carriers() {
    if !is_green() {
        return;
    }
    runtime::set_carriers(2); // which have nothing to do
    let engine = one(BuiltIn::Fifo);
    let burn = || {
        // The engine's carrier has used more CPU time than the others then.
        while carrier_time() < Duration::from_millis(300) {}
        let (start, mut before, mut moved) = (Instant::now(), carrier_time(), 0);
        while start.elapsed() < Duration::from_millis(500) {
            raddle::yield_now();
            let now = carrier_time();
            moved += u32::from(now < before);
            before = now;
        }
        moved
    };
    let burners = [engine.spawn(burn).unwrap(), engine.spawn(burn).unwrap()];
    let moved: u32 = burners.map(|burner| burner.join().unwrap()).iter().sum();
    // On a busy machine another carrier of the engine may take the place of this one.
    assert!(moved < 10, "{moved} moves to another carrier");
}

/// CPU time of the carrier that runs the calling thread.
fn carrier_time() -> Duration {
    let mut time = std::mem::MaybeUninit::<libc::timespec>::uninit();
    // SAFETY: fills a live structure.
    let time = unsafe {
        let clock = libc::CLOCK_THREAD_CPUTIME_ID;
        assert_eq!(libc::clock_gettime(clock, time.as_mut_ptr()), 0);
        time.assume_init()
    };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// CPU time of the calling thread. CLOCK_THREAD_CPUTIME_ID is the carrier's here.
fn cpu_time() -> Duration {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::uninit();
    // SAFETY: fills a live structure.
    let usage = unsafe {
        assert_eq!(libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr()), 0);
        usage.assume_init()
    };
    let time = |it: libc::timeval| Duration::new(it.tv_sec as u64, it.tv_usec as u32 * 1000);
    time(usage.ru_utime) + time(usage.ru_stime)
}

/// A panic's payload that panics, too, when it is dropped.
struct Rude;

impl Drop for Rude {
    fn drop(&mut self) {
        std::panic::resume_unwind(Box::new(()));
    }
}

/// A policy's act at its tenth pick.
type Act = fn(&mut VecDeque<Runnable>) -> Option<Runnable>;

/// Fifo, with a fault at its tenth pick.
struct Wrong {
    queue: VecDeque<Runnable>,
    picks: u32,
    act: Act,
}

impl Policy for Wrong {
    fn enqueue(&mut self, thread: Runnable, _: Reason) {
        self.queue.push_back(thread);
    }

    fn pick(&mut self) -> Option<Runnable> {
        self.picks += 1;
        match self.picks {
            10 => (self.act)(&mut self.queue),
            _ => self.queue.pop_front(),
        }
    }
}

static FOREIGN: Mutex<Option<Runnable>> = Mutex::new(None);

/// A policy that keeps its only thread for others.
struct Lends;

impl Policy for Lends {
    fn enqueue(&mut self, thread: Runnable, _: Reason) {
        *FOREIGN.lock().unwrap() = Some(thread);
    }

    fn pick(&mut self) -> Option<Runnable> {
        FOREIGN.lock().unwrap().take()
    }
}

#[test]
fn a_policy_that_fails_is_left_and_nobody_is_lost() {
    if !is_green() {
        return;
    }
    let cases: [(Failure, Act); 7] = [
        // Without the hook, which may take longer than a call is allowed to.
        (Failure::Panicked, |_| {
            std::panic::resume_unwind(Box::new(()))
        }),
        (Failure::Panicked, |_| {
            std::panic::resume_unwind(Box::new(Rude))
        }),
        (Failure::Nothing, |_| None),
        (Failure::Lost, |queue| {
            queue.pop_back();
            queue.pop_front()
        }),
        (Failure::Foreign, |_| FOREIGN.lock().unwrap().take()),
        (Failure::Stuck, |_| {
            loop {
                std::hint::spin_loop();
            }
        }),
        (Failure::Stuck, |_| {
            loop {
                std::thread::park(); // never unparked
            }
        }),
    ];
    for (failure, act) in cases {
        for carriers in [1, 2] {
            let lender = Engine::builder().carriers(1).policy(Lends).build().unwrap();
            let policy = Wrong {
                queue: VecDeque::new(),
                picks: 0,
                act,
            };
            let engine = Engine::builder().carriers(carriers).policy(policy);
            let engine = engine.name("wrong").build().unwrap();
            if failure == Failure::Foreign {
                lender.spawn(|| ()).unwrap();
            }
            let count = Arc::new(AtomicU32::new(0));
            let threads: Vec<_> = (0..20)
                .map(|i| {
                    let count = Arc::clone(&count);
                    let body = move || {
                        for _ in 0..50 {
                            count.fetch_add(1, Ordering::Relaxed);
                            raddle::yield_now();
                        }
                        std::thread::sleep(Duration::from_millis(1));
                        i
                    };
                    engine.spawn(body).unwrap()
                })
                .collect();
            let sum: u32 = threads
                .into_iter()
                .map(|thread| thread.join().unwrap())
                .sum();
            assert_eq!(
                (sum, count.load(Ordering::Relaxed)),
                (190, 1000),
                "{failure:?}"
            );
            let found = engine.policy_failure();
            match failure {
                // The other engine's thread may have run before the policy could take it.
                Failure::Foreign => assert!(
                    matches!(found, Some(Failure::Foreign | Failure::Nothing)),
                    "{found:?}"
                ),
                _ => assert_eq!(found, Some(failure), "on {carriers}"),
            }
        }
    }
}

/// The turn of the thread that is borrowed.
const TURN: usize = 40;
static BORROWED: Mutex<Option<Runnable>> = Mutex::new(None);

/// A policy of one thread, which it gives away at a turn.
struct GivesAway {
    thread: Option<Runnable>,
    turns: usize,
}

impl Policy for GivesAway {
    fn enqueue(&mut self, thread: Runnable, _: Reason) {
        match self.turns {
            TURN => *BORROWED.lock().unwrap() = Some(thread),
            _ => self.thread = Some(thread),
        }
        self.turns += 1;
    }

    fn pick(&mut self) -> Option<Runnable> {
        self.thread.take()
    }
}

/// Fifo. Once it answers with another engine's thread, while one of its own has the same turn.
#[derive(Default)]
struct Borrows {
    queue: VecDeque<Runnable>,
    picks: usize,
}

impl Policy for Borrows {
    fn enqueue(&mut self, thread: Runnable, _: Reason) {
        self.queue.push_back(thread);
    }

    fn pick(&mut self) -> Option<Runnable> {
        if (self.picks..self.picks + self.queue.len()).contains(&TURN)
            && let Some(thread) = BORROWED.lock().unwrap().take()
        {
            return Some(thread);
        }
        self.picks += 1;
        self.queue.pop_front()
    }
}

#[test]
fn a_foreign_answer_costs_no_thread_of_its_turn() {
    if !is_green() {
        return;
    }
    let policy = GivesAway {
        thread: None,
        turns: 0,
    };
    let lender = Engine::builder().carriers(1).policy(policy).build();
    let lent = || (0..TURN).for_each(|_| raddle::yield_now());
    lender.unwrap().spawn(lent).unwrap().join().unwrap();
    let engine = Engine::builder().carriers(1).policy(Borrows::default());
    let engine = engine.build().unwrap();
    let ended = Arc::new(AtomicU32::new(0));
    for _ in 0..20 {
        let ended = Arc::clone(&ended);
        let body = move || {
            (0..50).for_each(|_| raddle::yield_now());
            ended.fetch_add(1, Ordering::Relaxed);
        };
        engine.spawn(body).unwrap();
    }
    let limit = Instant::now() + Duration::from_secs(30);
    while ended.load(Ordering::Relaxed) != 20 && Instant::now() < limit {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(ended.load(Ordering::Relaxed), 20);
    assert_eq!(engine.policy_failure(), Some(Failure::Foreign));
}

#[test]
fn who_computes_makes_room_for_the_others_of_its_engine() {
    if !is_green() {
        return;
    }
    let own = || {
        Engine::builder()
            .carriers(1)
            .policy(ByName::default())
            .build()
    };
    for engine in [one(BuiltIn::Fifo), one(BuiltIn::Fair), own().unwrap()] {
        let stop = Arc::new(AtomicBool::new(false));
        let burners: Vec<_> = (0..2)
            .map(|_| {
                let stop = Arc::clone(&stop);
                engine
                    .spawn(move || while !stop.load(Ordering::Relaxed) {})
                    .unwrap()
            })
            .collect();
        let sleeper = engine.spawn(|| {
            (0..20).for_each(|_| std::thread::sleep(Duration::from_millis(1)));
        });
        sleeper.unwrap().join().unwrap();
        stop.store(true, Ordering::Relaxed);
        burners
            .into_iter()
            .for_each(|burner| burner.join().unwrap());
        engine.wait().unwrap();
    }
}
