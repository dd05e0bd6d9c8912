//! Work without further threads. Each case is a process of its own: this program again, which the
//! runtime lets have few threads.

use raddle::Builder;
use raddle::pool::{self, Pending, Pool, QueueError};
use raddle::runtime::{Status, status};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// How many threads the process may have.
const LIMIT: usize = 16;
const LONG: Duration = Duration::from_secs(20);

/// Runs the test of that name in a process with few threads; `false` in that process.
fn apart(name: &str) -> bool {
    const CASE: &str = "SCARCITY_CASE";
    if std::env::var(CASE).is_ok_and(|case| case == name) {
        return false;
    }
    let program = std::env::current_exe().unwrap();
    let mut command = Command::new("timeout");
    command.args(["-k", "2", "60"]).arg(program);
    command.args(["--exact", name, "--nocapture", "--test-threads=1"]);
    command.env("RADDLE_MAX_THREADS", LIMIT.to_string());
    let output = command.env(CASE, name).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}\n{errors}", output.status);
    true
}

/// Threads that wait until they are released.
struct Held(Vec<(mpsc::Sender<()>, raddle::thread::JoinHandle<()>)>);

impl Held {
    /// Makes as many as possible, and at most `most`. Named ones: their places are free when they
    /// end.
    fn new(most: usize) -> Self {
        let one = |_| {
            let (sender, receiver) = mpsc::channel::<()>();
            let wait = move || assert!(receiver.recv().is_err());
            let thread = Builder::new().name("held").spawn(wait).ok()?;
            Some((sender, thread))
        };
        Self((0..most).map_while(one).collect())
    }

    fn let_go(self) {
        for (sender, thread) in self.0 {
            drop(sender);
            thread.join().unwrap();
        }
    }
}

#[test]
fn a_worker_that_could_not_be_made_begins_later_and_shares_its_work() {
    if status() != Status::Green
        || apart("a_worker_that_could_not_be_made_begins_later_and_shares_its_work")
    {
        return;
    }
    static RAN: AtomicBool = AtomicBool::new(false);
    let builder = Pool::builder().workers(2).max_workers(2);
    let pool = builder.inline_waits(false).build().unwrap();
    let held = Held::new(LIMIT + 1);
    assert!(held.0.len() < LIMIT, "there is room for {}", held.0.len());
    let refused = pool.queue(|| RAN.store(true, Ordering::Relaxed));
    assert!(matches!(refused, Err(QueueError::NoThread(_))));
    held.let_go();
    // A thread's place is free shortly after its join: then there is more than enough room.
    while {
        let held = Held::new(LIMIT / 2);
        let few = held.0.len() < LIMIT / 2;
        held.let_go();
        few
    } {
        std::thread::sleep(Duration::from_millis(1));
    }
    // The first worker waits for work in its own deque, so that the second must take it there.
    let shares = pool.task(|| {
        let (tell, told) = mpsc::channel();
        pool::queue(move || tell.send(()).unwrap()).unwrap();
        told.recv_timeout(LONG).is_ok()
    });
    assert!(shares.unwrap().wait().unwrap());
    let report = pool.dispose(Pending::Run, Some(LONG));
    assert_eq!((report.dropped, report.still_running), (0, 0));
    assert!(RAN.load(Ordering::Relaxed), "what was refused ran, too");
}

#[test]
fn threads_that_can_not_be_made_are_an_error_and_no_loss() {
    if status() != Status::Green || apart("threads_that_can_not_be_made_are_an_error_and_no_loss") {
        return;
    }
    let held = Held::new(LIMIT + 1);
    let kind = |error: std::io::Error| error.kind();
    let refused = Builder::new().spawn(|| ()).map(drop).map_err(kind);
    assert_eq!(refused, Err(std::io::ErrorKind::WouldBlock));
    let refused = raddle::scope(|scope| {
        let thread = Builder::new().spawn_scoped(&scope, || ());
        thread.map(drop).map_err(kind)
    });
    assert_eq!(refused, Err(std::io::ErrorKind::WouldBlock));
    let refused = raddle::thread::on_kernel_thread(1 << 20, || ()).map_err(kind);
    assert_eq!(refused, Err(std::io::ErrorKind::WouldBlock)); // the limit is for all kinds
    let refused = raddle::light::Builder::new().spawn(|| ()).map(drop);
    assert_eq!(refused.map_err(kind), Err(std::io::ErrorKind::WouldBlock)); // it has no host
    held.let_go();
    while Builder::new()
        .spawn(|| ())
        .map(|thread| thread.join())
        .is_err()
    {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// More hosts that can't be made than a process may have leave it with room for one.
#[test]
fn hosts_that_could_not_be_made_are_no_loss() {
    if status() != Status::Green || apart("hosts_that_could_not_be_made_are_no_loss") {
        return;
    }
    const TRIES: u32 = 100_000;
    let one = || raddle::light::spawn(|| ()).join().unwrap();
    let block = || {
        let (release, released) = mpsc::channel::<()>();
        (release, raddle::light::spawn(move || released.recv()))
    };
    let (first, first_blocks) = block();
    one(); // on the second host, with a third one as a spare
    let held = Held::new(LIMIT + 1);
    let (second, second_blocks) = block();
    (0..TRIES).for_each(|_| one()); // each time a spare host is wanted
    held.let_go();
    let until = Instant::now() + LONG;
    let has_another_host = || {
        let (tell, told) = mpsc::channel();
        let (begins, has_begun) = mpsc::channel();
        let blocks = raddle::light::spawn(move || {
            begins.send(()).unwrap();
            told.recv_timeout(Duration::from_millis(100)).is_ok()
        });
        has_begun.recv().unwrap();
        let tells = raddle::light::spawn(move || tell.send(()).is_ok());
        blocks.join().unwrap() && tells.join().unwrap()
    };
    while !has_another_host() {
        assert!(Instant::now() < until, "there is no other host");
    }
    drop((first, second));
    assert!(first_blocks.join().unwrap().is_err() && second_blocks.join().unwrap().is_err());
}

/// Bytes of address space that the process has.
fn address_space() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = text.split(' ').next().unwrap().parse().unwrap();
    pages * 4096
}

#[test]
fn light_threads_need_little_address_space() {
    if status() != Status::Green || apart("light_threads_need_little_address_space") {
        return;
    }
    const ROOM: u64 = 24 << 20;
    let first = raddle::spawn(|| 1).join().unwrap();
    let limit = libc::rlimit {
        rlim_cur: address_space() + ROOM,
        rlim_max: libc::RLIM_INFINITY,
    };
    // SAFETY: a live structure.
    let set = unsafe { libc::setrlimit(libc::RLIMIT_AS, &raw const limit) };
    assert_eq!(set, 0);
    let second = raddle::spawn(|| {
        let one = |i: usize| raddle::light::spawn(move || i);
        let threads: Vec<_> = (0..100).map(one).collect();
        let results = threads.into_iter().map(|thread| thread.join().unwrap());
        results.sum::<usize>()
    });
    assert_eq!(first + second.join().unwrap(), 1 + 99 * 100 / 2);
}

/// Where guards take mappings (before Linux 6.13, and in locked memory), there are fewer stacks:
/// none is without a guard, below which the next one lies.
#[test]
fn no_light_thread_has_a_stack_without_a_guard() {
    const MOST: usize = 40_000;
    let setting = std::fs::read_to_string("/proc/sys/vm/max_map_count").unwrap();
    let mappings: usize = setting.trim().parse().unwrap();
    if mappings > 2 * MOST || apart("no_light_thread_has_a_stack_without_a_guard") {
        return;
    }
    let locked = libc::MCL_FUTURE | libc::MCL_ONFAULT;
    // SAFETY: nothing is read or written.
    if unsafe { libc::mlockall(locked) } != 0 {
        return; // it may not
    }
    let small = raddle::light::Builder::new().stack_size(16 << 10);
    let spawn = |_| small.spawn(raddle::light::park);
    let threads: Result<Vec<_>, _> = (0..MOST).map(spawn).collect();
    let refused = threads.map(|all| all.len()).map_err(|error| error.kind());
    assert_eq!(refused, Err(std::io::ErrorKind::OutOfMemory));
}
