//! What Rust's standard library does with threads: its locks call futex themselves.
//!
//! `rust_std CASE` runs one case, `--list` prints all.

use std::cell::Cell;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::unix::net::UnixStream;
use std::panic;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Barrier, Condvar, LazyLock, Mutex, Once, OnceLock, RwLock};
use std::thread;
use std::time::{Duration, Instant};

fn in_threads(count: usize, body: impl Fn(usize) + Sync) {
    thread::scope(|scope| {
        for me in 0..count {
            let body = &body;
            scope.spawn(move || body(me));
        }
    });
}

fn scoped_threads_and_mutex() {
    let total = Mutex::new(0);
    in_threads(50, |_| {
        for _ in 0..2000 {
            *total.lock().unwrap() += 1;
        }
    });
    assert_eq!(total.into_inner().unwrap(), 100_000);
}

fn join_gives_values_and_panics() {
    let threads: Vec<_> = (0..500).map(|i| thread::spawn(move || i)).collect();
    let sum: usize = threads
        .into_iter()
        .map(|thread| thread.join().unwrap())
        .sum();
    assert_eq!(sum, 499 * 250);
    panic::set_hook(Box::new(|_| {}));
    let failure = thread::spawn(|| panic!("on purpose")).join().unwrap_err();
    assert_eq!(failure.downcast_ref::<&str>(), Some(&"on purpose"));
}

fn channels() {
    let (sender, receiver) = mpsc::channel();
    let (bounded_sender, bounded_receiver) = mpsc::sync_channel(2);
    let forwarder = thread::spawn(move || {
        for value in receiver {
            bounded_sender.send(value).unwrap();
        }
    });
    thread::scope(|scope| {
        for _ in 0..8 {
            let sender = sender.clone();
            scope.spawn(move || (0..1000).for_each(|i| sender.send(i).unwrap()));
        }
        drop(sender);
        assert_eq!(bounded_receiver.iter().sum::<usize>(), 8 * 499_500);
    });
    forwarder.join().unwrap();
    let (sender, receiver) = mpsc::channel::<()>();
    let started = Instant::now();
    let limit = Duration::from_millis(40);
    assert_eq!(receiver.recv_timeout(limit), Err(RecvTimeoutError::Timeout));
    assert!(started.elapsed() >= limit);
    drop(sender);
}

fn rendezvous_channels_take_turns() {
    let (there, inbox) = mpsc::sync_channel(0);
    let (back, outbox) = mpsc::sync_channel(0);
    let thread = thread::spawn(move || inbox.iter().for_each(|i: u32| back.send(i + 1).unwrap()));
    for i in 0..5000 {
        there.send(i).unwrap();
        assert_eq!(outbox.recv(), Ok(i + 1));
    }
    drop(there);
    thread.join().unwrap();
}

fn condvars_barriers_and_rwlocks() {
    let (turn, changed) = (Mutex::new(0), Condvar::new());
    let barrier = Barrier::new(10);
    let pair = RwLock::new((0, 0));
    in_threads(10, |me| {
        for _ in 0..100 {
            let mut turn = changed
                .wait_while(turn.lock().unwrap(), |t| *t % 10 != me)
                .unwrap();
            *turn += 1;
            changed.notify_all();
        }
        barrier.wait();
        for i in 0..200 {
            if (i + me) % 10 == 0 {
                let mut pair = pair.write().unwrap();
                pair.0 += 1;
                thread::yield_now();
                pair.1 += 1;
            } else {
                let pair = pair.read().unwrap();
                assert_eq!(pair.0, pair.1);
            }
        }
    });
    assert_eq!(*turn.lock().unwrap(), 1000);
    let limit = Duration::from_millis(30);
    let (guard, result) = changed.wait_timeout(turn.lock().unwrap(), limit).unwrap();
    drop(guard);
    assert!(result.timed_out());
}

fn park_and_unpark() {
    let token = Arc::new(AtomicUsize::new(0));
    let main = thread::current();
    let theirs = Arc::clone(&token);
    let other = thread::spawn(move || {
        for i in 0..5000 {
            while theirs.load(Ordering::Acquire) != 2 * i + 1 {
                thread::park();
            }
            theirs.store(2 * i + 2, Ordering::Release);
            main.unpark();
        }
    });
    for i in 0..5000 {
        token.store(2 * i + 1, Ordering::Release);
        other.thread().unpark();
        while token.load(Ordering::Acquire) != 2 * i + 2 {
            thread::park();
        }
    }
    other.join().unwrap();
    let started = Instant::now();
    thread::park_timeout(Duration::from_millis(30));
    assert!(started.elapsed() < Duration::from_secs(10));
}

fn once_and_lazy_initialise_once() {
    static ONCE: Once = Once::new();
    static LAZY: LazyLock<usize> = LazyLock::new(|| COUNT.fetch_add(1, Ordering::SeqCst));
    static CELL: OnceLock<usize> = OnceLock::new();
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    in_threads(20, |_| {
        ONCE.call_once(|| {
            thread::sleep(Duration::from_millis(20));
            COUNT.fetch_add(1, Ordering::SeqCst);
        });
        assert_eq!(*LAZY, 1);
        assert_eq!(
            *CELL.get_or_init(|| COUNT.fetch_add(1, Ordering::SeqCst)),
            2
        );
    });
    assert_eq!(COUNT.load(Ordering::SeqCst), 3);
}

fn thread_locals_are_dropped() {
    static DROPPED: AtomicUsize = AtomicUsize::new(0);
    struct Counted(Cell<usize>);
    impl Drop for Counted {
        fn drop(&mut self) {
            DROPPED.fetch_add(self.0.get(), Ordering::SeqCst);
        }
    }
    thread_local!(static LOCAL: Counted = const { Counted(Cell::new(0)) });
    let threads: Vec<_> = (0..50)
        .map(|me| {
            thread::spawn(move || {
                for i in 0..50 {
                    LOCAL.with(|local| assert_eq!(local.0.replace(i), i.saturating_sub(1)));
                    thread::yield_now();
                }
                LOCAL.with(|local| local.0.set(me));
            })
        })
        .collect();
    threads
        .into_iter()
        .for_each(|thread| thread.join().unwrap());
    assert_eq!(DROPPED.load(Ordering::SeqCst), 49 * 25);
}

fn tcp_with_a_thread_for_each_client() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            for stream in listener.incoming().take(50) {
                let mut stream = stream.unwrap();
                thread::spawn(move || {
                    let mut data = [0; 256];
                    while let Ok(count @ 1..) = stream.read(&mut data) {
                        stream.write_all(&data[..count]).unwrap();
                    }
                });
            }
        });
        in_threads(50, |me| {
            let mut stream = TcpStream::connect(address).unwrap();
            for i in 0..20 {
                let sent = [me as u8, i];
                stream.write_all(&sent).unwrap();
                let mut got = [0; 2];
                stream.read_exact(&mut got).unwrap();
                assert_eq!(sent, got);
            }
            let limit = Duration::from_millis(20);
            stream.set_read_timeout(Some(limit)).unwrap();
            let error = stream.read(&mut [0]).unwrap_err();
            assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
        });
    });
}

fn udp_and_unix_sockets() {
    let (a, b) = (
        UdpSocket::bind("127.0.0.1:0"),
        UdpSocket::bind("127.0.0.1:0"),
    );
    let (a, b) = (a.unwrap(), b.unwrap());
    let to = b.local_addr().unwrap();
    thread::scope(|scope| {
        scope.spawn(|| (0..50).for_each(|_| assert_eq!(b.recv(&mut [0; 9]).unwrap(), 3)));
        for _ in 0..50 {
            a.send_to(b"abc", to).unwrap();
            thread::yield_now();
        }
    });
    let (here, there) = UnixStream::pair().unwrap();
    thread::scope(|scope| {
        scope.spawn(|| (0..500).for_each(|i| writeln!(&there, "line {i}").unwrap()));
        let mut lines = BufReader::new(&here).lines();
        for i in 0..500 {
            assert_eq!(lines.next().unwrap().unwrap(), format!("line {i}"));
        }
    });
}

fn processes() {
    in_threads(8, |me| {
        let mut child = Command::new("sh")
            .args(["-c", &format!("read x; echo $x; exit {me}")])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(b"word\n").unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.stdout, b"word\n");
        assert_eq!(output.status.code(), Some(me as i32));
    });
    assert!(Command::new("/nonexistent").spawn().is_err());
}

fn sleeps_and_available_parallelism() {
    assert!(thread::available_parallelism().unwrap().get() >= 1);
    in_threads(100, |me| {
        let time = Duration::from_millis(10 + me as u64 % 20);
        let started = Instant::now();
        thread::sleep(time);
        assert!(started.elapsed() >= time);
    });
}

fn panics_unwind_in_all_threads() {
    panic::set_hook(Box::new(|_| {}));
    let dropped = AtomicUsize::new(0);
    struct Guard<'a>(&'a AtomicUsize);
    impl Drop for Guard<'_> {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    in_threads(20, |_| {
        for _ in 0..50 {
            let result = panic::catch_unwind(|| {
                let _guard = Guard(&dropped);
                thread::yield_now();
                panic!("on purpose");
            });
            assert!(result.is_err());
        }
    });
    assert_eq!(dropped.load(Ordering::SeqCst), 1000);
    let lock = Mutex::new(());
    in_threads(1, |_| {
        let _ = panic::catch_unwind(panic::AssertUnwindSafe(|| {
            let _guard = lock.lock();
            panic!("on purpose");
        }));
    });
    assert!(lock.is_poisoned());
}

fn compute_loops_share() {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| while !stop.load(Ordering::Relaxed) {});
        }
        thread::sleep(Duration::from_millis(50));
        stop.store(true, Ordering::Relaxed);
    });
}

const CASES: &[(&str, fn())] = &[
    ("scoped_threads_and_mutex", scoped_threads_and_mutex),
    ("join_gives_values_and_panics", join_gives_values_and_panics),
    ("channels", channels),
    (
        "rendezvous_channels_take_turns",
        rendezvous_channels_take_turns,
    ),
    (
        "condvars_barriers_and_rwlocks",
        condvars_barriers_and_rwlocks,
    ),
    ("park_and_unpark", park_and_unpark),
    (
        "once_and_lazy_initialise_once",
        once_and_lazy_initialise_once,
    ),
    ("thread_locals_are_dropped", thread_locals_are_dropped),
    (
        "tcp_with_a_thread_for_each_client",
        tcp_with_a_thread_for_each_client,
    ),
    ("udp_and_unix_sockets", udp_and_unix_sockets),
    ("processes", processes),
    (
        "sleeps_and_available_parallelism",
        sleeps_and_available_parallelism,
    ),
    ("panics_unwind_in_all_threads", panics_unwind_in_all_threads),
    ("compute_loops_share", compute_loops_share),
];

fn main() {
    let wanted = std::env::args().nth(1).unwrap_or_default();
    for (name, body) in CASES {
        if wanted == "--list" {
            println!("{name}");
        } else if wanted == *name {
            body();
            println!("ok {name}");
        }
    }
}
