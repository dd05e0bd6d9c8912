//! Code of the program's in places where little is expected of it: destructors that panic or use
//! the API, ends of threads, exit handlers, and forks. Each case is a process of its own: this
//! program again.

use raddle::completion::{self, Completion};
use raddle::fiber::{self, Fiber};
use raddle::handles::Table;
use raddle::pool::{Pending, Pool, PoolRef};
use raddle::{Builder, light, thread};
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, mpsc};
use std::time::Duration;

const LONG: Duration = Duration::from_secs(20);
const STACK: usize = 64 << 10;

/// Runs the test of that name in a process of its own; `false` in that process.
fn apart(name: &str) -> bool {
    const CASE: &str = "HOSTILE_CASE";
    if std::env::var(CASE).is_ok_and(|case| case == name) {
        return false;
    }
    let program = std::env::current_exe().unwrap();
    let mut command = Command::new("timeout");
    command.args(["-k", "2", "30"]).arg(program);
    command.args(["--exact", name, "--nocapture", "--test-threads=1"]);
    let output = command.env(CASE, name).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}\n{errors}", output.status);
    true
}

static DROPS: AtomicU32 = AtomicU32::new(0);

/// Panics when it is dropped, unless a panic is under way.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        DROPS.fetch_add(1, SeqCst);
        if !std::thread::panicking() {
            std::panic::resume_unwind(Box::new("bomb"));
        }
    }
}

/// Uses much of the API when it is dropped.
struct User;

fn use_much() {
    let five = light::spawn(|| {
        light::yield_now();
        5
    });
    assert_eq!(five.join().unwrap(), 5);
    assert_eq!(raddle::spawn(|| 6).join().unwrap(), 6);
    let (promise, answer) = completion::pair();
    let answer = answer.then(|value: u32| value + 1);
    let sets = raddle::spawn(move || promise.set(6).unwrap());
    assert_eq!(answer.wait().unwrap(), 7);
    sets.join().unwrap();
    let pool = Pool::builder().workers(1).max_workers(2).build().unwrap();
    assert_eq!(pool.task(|| 8).unwrap().wait().unwrap(), 8);
    raddle::scope(|scope| {
        scope.spawn(light::yield_now);
    });
    drop(pool);
    DROPS.fetch_add(1, SeqCst);
}

impl Drop for User {
    fn drop(&mut self) {
        use_much();
    }
}

/// Calls `f`, and forgets its panic.
fn quietly<R>(f: impl FnOnce() -> R) -> Result<R, ()> {
    catch_unwind(AssertUnwindSafe(f)).map_err(std::mem::forget)
}

fn still_works() {
    use_much();
    let pool = Pool::builder().workers(2).build().unwrap();
    let tasks: Vec<_> = (0..100).map(|i| pool.task(move || i).unwrap()).collect();
    let sum: u32 = tasks.into_iter().map(|task| task.wait().unwrap()).sum();
    assert_eq!(sum, 4950);
    pool.dispose(Pending::Run, Some(LONG));
}

#[test]
fn results_that_panic_in_their_destructors() {
    if apart("results_that_panic_in_their_destructors") {
        return;
    }
    // Dropped by the setter, since no waiter is there.
    let (promise, answer) = completion::pair::<Bomb>();
    drop(answer);
    _ = quietly(|| promise.set(Bomb).map_err(|_| ()));
    // Dropped with the completion.
    _ = quietly(|| drop(Completion::ready(Bomb)));
    // By the end of a chain.
    let (promise, answer) = completion::pair::<u8>();
    drop(answer.then(|_| Bomb));
    _ = quietly(|| promise.set(1).map_err(|_| ()));
    // By handles of threads. (A detached thread with such a result aborts the process, as std's.)
    let threads = [raddle::spawn(|| Bomb), raddle::spawn(|| Bomb)];
    std::thread::sleep(Duration::from_millis(50));
    for thread in threads {
        _ = quietly(|| drop(thread));
    }
    let lights = [light::spawn(|| Bomb), light::spawn(|| Bomb)];
    std::thread::sleep(Duration::from_millis(50));
    for thread in lights {
        _ = quietly(|| drop(thread));
    }
    let pool = Pool::builder().workers(1).build().unwrap();
    _ = quietly(|| drop(pool.task(|| Bomb).unwrap()));
    let task = pool.task(|| Bomb).unwrap();
    std::thread::sleep(Duration::from_millis(50));
    _ = quietly(|| drop(task));
    pool.dispose(Pending::Run, Some(LONG));
    still_works();
}

#[test]
fn captures_that_panic_in_their_destructors() {
    if apart("captures_that_panic_in_their_destructors") {
        return;
    }
    fn work() -> impl FnOnce() + Send + 'static {
        let bomb = Bomb;
        move || {
            let _bomb = &bomb;
        }
    }
    _ = light::spawn(work()).join();
    _ = raddle::spawn(work()).join();
    _ = Builder::new().name("named").spawn(work()).unwrap().join();
    drop(light::spawn(work()));
    drop(raddle::spawn(work()));
    let pool = Pool::builder().workers(1).build().unwrap();
    pool.queue(work()).unwrap();
    _ = pool.task(work()).unwrap().wait();
    let (gate, shut) = mpsc::channel::<()>();
    pool.queue(move || shut.recv().unwrap_or(())).unwrap();
    for _ in 0..10 {
        pool.queue(work()).unwrap();
    }
    let late = pool.task(work()).unwrap();
    let then = late.then(|outcome| outcome.is_err());
    pool.dispose(Pending::Drop, Some(Duration::ZERO));
    drop(gate);
    assert!(then.wait().is_err());
    let scoped = quietly(|| raddle::scope(|scope| drop(scope.spawn(work()))));
    let lights = quietly(|| light::scope(|scope| drop(scope.spawn(work()))));
    _ = (scoped, lights);
    still_works();
}

#[test]
fn payloads_that_panic_in_their_destructors() {
    if apart("payloads_that_panic_in_their_destructors") {
        return;
    }
    fn panics() {
        std::panic::resume_unwind(Box::new(Bomb));
    }
    let pool = Pool::builder().workers(1).build().unwrap();
    pool.queue(panics).unwrap();
    _ = quietly(|| drop(pool.task(panics).unwrap()));
    std::thread::sleep(Duration::from_millis(50));
    _ = quietly(|| drop(pool.install(|| raddle::pool::join(panics, panics))));
    let each = || raddle::pool::parallel_for(0..100, 1, |_| panics());
    _ = quietly(|| drop(pool.install(each)));
    let (promise, answer) = completion::pair::<u8>();
    drop(answer.then(|_| panics()));
    _ = quietly(|| promise.set(1));
    still_works();
}

#[test]
fn tables_whose_values_panic_or_use_the_table() {
    if apart("tables_whose_values_panic_or_use_the_table") {
        return;
    }
    static TABLE: std::sync::OnceLock<Table<Value>> = std::sync::OnceLock::new();
    enum Value {
        Bomb(#[allow(dead_code)] Bomb),
        Uses,
        Plain(u32),
    }
    impl Drop for Value {
        fn drop(&mut self) {
            if matches!(self, Self::Uses) {
                let table = TABLE.get().unwrap();
                let handle = table.insert(Self::Plain(5)).unwrap();
                let five = |value: &Self| matches!(value, Self::Plain(5));
                assert_eq!(table.with(handle, five), Ok(true));
                table.remove(handle).unwrap();
                DROPS.fetch_add(1, SeqCst);
            }
        }
    }
    let table = TABLE.get_or_init(Table::new);
    let start = table.count();
    for i in 0..2000 {
        let value = if i % 2 == 0 {
            Value::Bomb(Bomb)
        } else {
            Value::Uses
        };
        let handle = table.insert(value).unwrap();
        let removed = quietly(|| table.remove(handle));
        assert!(removed.is_err() == (i % 2 == 0), "{i}");
        assert!(table.get(handle).is_err());
    }
    // Removed while it is looked at, and dropped by the look's end.
    let handle = table.insert(Value::Bomb(Bomb)).unwrap();
    let looked = quietly(|| table.with(handle, |_| table.remove(handle)));
    assert!(looked.is_err());
    let handle = table.insert(Value::Uses).unwrap();
    assert_eq!(table.with(handle, |_| table.remove(handle)), Ok(Ok(())));
    assert_eq!(table.count(), start);
    assert_eq!(DROPS.load(SeqCst), 1000 + 1000 + 2);
}

thread_local! {
    static LAST: RefCell<Option<User>> = const { RefCell::new(None) };
    static FIBER: Cell<Option<Fiber>> = const { Cell::new(None) };
}

#[test]
fn ends_of_threads_use_the_api() {
    if apart("ends_of_threads_use_the_api") {
        return;
    }
    let end = || LAST.set(Some(User));
    raddle::spawn(end).join().unwrap();
    Builder::new()
        .name("named")
        .spawn(end)
        .unwrap()
        .join()
        .unwrap();
    std::thread::spawn(end).join().unwrap();
    drop(raddle::spawn(end));
    let pool = Pool::builder().workers(2).build().unwrap();
    (0..4).for_each(|_| pool.queue(end).unwrap());
    pool.dispose(Pending::Run, Some(LONG));
    thread::spawn_blocking(end).unwrap().wait().unwrap();
    while DROPS.load(SeqCst) < 6 {
        std::thread::sleep(Duration::from_millis(1));
    }
    still_works();
}

#[test]
fn destructors_use_the_api_where_values_are_lost() {
    if apart("destructors_use_the_api_where_values_are_lost") {
        return;
    }
    drop(light::spawn(|| User));
    drop(raddle::spawn(|| User));
    let (promise, answer) = completion::pair::<User>();
    drop(answer.then(|user| user));
    drop(promise.set(User));
    let user = User;
    _ = light::spawn(move || _ = &user).join();
    let pool = Pool::builder().workers(1).build().unwrap();
    let (gate, shut) = mpsc::channel::<()>();
    pool.queue(move || shut.recv().unwrap_or(())).unwrap();
    for _ in 0..3 {
        let user = User;
        pool.queue(move || _ = &user).unwrap();
    }
    let user = User;
    let own = pool.remote();
    let task = pool.task(move || _ = (&user, own)).unwrap();
    pool.dispose(Pending::Drop, Some(Duration::ZERO));
    drop(gate);
    assert!(task.wait().is_err());
    let panics = raddle::spawn(|| {
        let _user = User;
        std::panic::resume_unwind(Box::new(User));
    });
    drop(panics.join());
    still_works();
}

#[test]
fn fibers_use_the_api_at_their_threads_end() {
    if apart("fibers_use_the_api_at_their_threads_end") {
        return;
    }
    fn leave_one() {
        let main = fiber::convert_thread().unwrap();
        let waits = move || {
            let _user = User;
            let shared = AtomicU32::new(0);
            raddle::scope(|scope| {
                scope.spawn(|| {
                    std::thread::sleep(Duration::from_millis(20));
                    shared.fetch_add(1, SeqCst);
                });
                main.switch_to().unwrap();
            });
            main
        };
        Fiber::new(STACK, waits).unwrap().switch_to().unwrap();
    }
    for _ in 0..20 {
        raddle::spawn(leave_one).join().unwrap();
        std::thread::spawn(leave_one).join().unwrap();
    }
    thread::spawn_blocking(leave_one).unwrap().wait().unwrap();
    let pool = Pool::builder().workers(2).build().unwrap();
    (0..2).for_each(|_| pool.queue(leave_one).unwrap());
    pool.dispose(Pending::Run, Some(LONG));
    while DROPS.load(SeqCst) < 40 {
        std::thread::sleep(Duration::from_millis(1));
    }
    still_works();
    leave_one(); // on the thread of the test
}

extern "C" fn at_exit() {
    use_much();
    let threads: Vec<_> = (0..20).map(|i| light::spawn(move || i)).collect();
    let sum: u32 = threads
        .into_iter()
        .map(|thread| thread.join().unwrap())
        .sum();
    assert_eq!(sum, 190);
    println!("exits");
}

#[test]
fn exit_handlers_use_the_api() {
    if apart("exit_handlers_use_the_api") {
        return;
    }
    // SAFETY: a function of this program.
    assert_eq!(unsafe { libc::atexit(at_exit) }, 0);
    use_much();
    let exits = [
        || std::process::exit(0),
        || raddle::spawn(|| std::process::exit(0)).join().unwrap(),
        || light::spawn(|| std::process::exit(0)).join().unwrap(),
        || {
            let main = fiber::convert_thread().unwrap();
            let exits = move || {
                if std::process::id() != 0 {
                    std::process::exit(0);
                }
                main
            };
            Fiber::new(STACK, exits).unwrap().switch_to().unwrap();
        },
        || {
            let pool = Pool::builder().workers(1).build().unwrap();
            pool.task(|| std::process::exit(0)).unwrap().wait().unwrap();
        },
    ];
    for (i, exit) in exits.into_iter().enumerate() {
        assert_eq!(in_child(exit), Some(0), "{i}");
    }
}

/// Runs `f` in the child of a fork. Returns the child's status, or `None` if it had to be killed.
fn in_child(f: impl FnOnce()) -> Option<i32> {
    // SAFETY: glibc and the runtime mend their state in the child.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        let fine = quietly(f).is_ok();
        // SAFETY: ends the child.
        unsafe { libc::_exit(if fine { 0 } else { 3 }) };
    }
    let mut status = 0;
    for _ in 0..1000 {
        // SAFETY: our own child.
        if unsafe { libc::waitpid(pid, &mut status, libc::WNOHANG) } == pid {
            return Some(status);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    // SAFETY: our own child, which has not been waited for.
    unsafe {
        libc::kill(pid, libc::SIGKILL);
        libc::waitpid(pid, &mut status, 0);
    }
    None
}

#[test]
fn forks_inside_of_callbacks() {
    if apart("forks_inside_of_callbacks") {
        return;
    }
    let fork = || in_child(use_much);
    assert_eq!(raddle::spawn(fork).join().unwrap(), Some(0), "green");
    assert_eq!(light::spawn(fork).join().unwrap(), Some(0), "light");
    let (promise, answer) = completion::pair();
    let answer = answer
        .then(move |(): ()| in_child(use_much))
        .then(|status| status);
    promise.set(()).unwrap();
    assert_eq!(answer.wait().unwrap(), Some(0), "then");
    let pool = Pool::builder().workers(2).build().unwrap();
    assert_eq!(pool.task(fork).unwrap().wait().unwrap(), Some(0), "task");
    let both = pool.install(|| raddle::pool::join(fork, || in_child(use_much)));
    assert_eq!(both.unwrap(), (Some(0), Some(0)), "join");
    let scoped = raddle::scope(|scope| scope.spawn(|| in_child(use_much)).join().unwrap());
    assert_eq!(scoped, Some(0), "scope");
    let (to, from) = mpsc::channel();
    std::thread::spawn(move || {
        let main = fiber::convert_thread().unwrap();
        let forks = move || {
            to.send(in_child(use_much)).unwrap();
            main
        };
        Fiber::new(STACK * 16, forks).unwrap().switch_to().unwrap();
    });
    assert_eq!(from.recv().unwrap(), Some(0), "fiber");
    struct Forks(mpsc::Sender<Option<i32>>);
    impl Drop for Forks {
        fn drop(&mut self) {
            self.0.send(in_child(use_much)).unwrap();
        }
    }
    thread_local!(static END: RefCell<Option<Forks>> = const { RefCell::new(None) });
    let (to, from) = mpsc::channel();
    raddle::spawn(move || END.set(Some(Forks(to))))
        .join()
        .unwrap();
    assert_eq!(from.recv().unwrap(), Some(0), "destructor");
    let table = Arc::new(Table::new());
    let (to, from) = mpsc::channel();
    let handle = table.insert(Forks(to)).unwrap();
    table.remove(handle).unwrap();
    assert_eq!(from.recv().unwrap(), Some(0), "table");
    assert!(PoolRef::current().is_none());
    still_works();
}
