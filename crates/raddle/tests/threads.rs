//! Green threads in a program that links the crate, beside kernel threads.

use raddle::runtime::{Status, status};
use std::cell::Cell;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier, Condvar, Mutex, mpsc};
use std::time::{Duration, Instant};

/// Kernel threads of this process.
fn kernel_threads() -> usize {
    // By another process: our own view has the green ones.
    let pid = std::process::id().to_string();
    let listing = std::process::Command::new("ls")
        .arg(format!("/proc/{pid}/task"))
        .output()
        .expect("ls runs");
    String::from_utf8_lossy(&listing.stdout).lines().count()
}

#[test]
fn the_runtime_is_there() {
    assert_eq!(status(), Status::Green);
}

#[test]
fn only_threads_of_the_crate_are_green() {
    assert!(!raddle::is_green_thread(), "a test runs on std's thread");
    assert!(raddle::spawn(raddle::is_green_thread).join().unwrap());
    assert!(!std::thread::spawn(raddle::is_green_thread).join().unwrap());
    let nested = raddle::spawn(|| std::thread::spawn(raddle::is_green_thread).join().unwrap());
    assert!(!nested.join().unwrap());
    assert!(!raddle::thread::on_kernel_thread(1 << 20, raddle::is_green_thread).unwrap());
}

#[test]
fn many_blocked_green_threads_take_few_kernel_threads() {
    const MANY: usize = 2000;
    let gate = Arc::new((Mutex::new(false), Condvar::new()));
    let waiting = Arc::new(AtomicU64::new(0));
    let before = kernel_threads();
    let threads: Vec<_> = (0..MANY)
        .map(|_| {
            let (gate, waiting) = (Arc::clone(&gate), Arc::clone(&waiting));
            raddle::spawn(move || {
                let (lock, opened) = &*gate;
                let mut open = lock.lock().unwrap();
                waiting.fetch_add(1, Ordering::SeqCst);
                while !*open {
                    open = opened.wait(open).unwrap();
                }
            })
        })
        .collect();
    while waiting.load(Ordering::SeqCst) < MANY as u64 {
        std::thread::sleep(Duration::from_millis(1));
    }
    let extra = kernel_threads().saturating_sub(before);
    assert!(extra < 100, "{extra} kernel threads more");
    *gate.0.lock().unwrap() = true;
    gate.1.notify_all();
    threads
        .into_iter()
        .for_each(|thread| thread.join().unwrap());
}

#[test]
fn kernel_and_green_threads_share_locks_and_channels() {
    const EACH: u64 = 5000;
    let sum = Arc::new(Mutex::new(0u64));
    let (to, from) = mpsc::channel();
    let work = |to: mpsc::Sender<u64>, sum: Arc<Mutex<u64>>| {
        move || {
            for i in 0..EACH {
                *sum.lock().unwrap() += 1;
                to.send(i).unwrap();
            }
        }
    };
    let green: Vec<_> = (0..4)
        .map(|_| raddle::spawn(work(to.clone(), Arc::clone(&sum))))
        .collect();
    let kernel: Vec<_> = (0..4)
        .map(|_| std::thread::spawn(work(to.clone(), Arc::clone(&sum))))
        .collect();
    drop(to);
    assert_eq!(from.iter().sum::<u64>(), 8 * EACH * (EACH - 1) / 2);
    green.into_iter().for_each(|thread| thread.join().unwrap());
    kernel.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(*sum.lock().unwrap(), 8 * EACH);
}

#[test]
fn sockets_park_green_threads() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let server = raddle::spawn(move || {
        for _ in 0..50 {
            let (mut stream, _) = listener.accept().unwrap();
            raddle::spawn(move || {
                let mut byte = [0];
                while stream.read(&mut byte).unwrap() == 1 {
                    stream.write_all(&byte).unwrap();
                }
            });
        }
    });
    raddle::scope(|scope| {
        for i in 0..50u8 {
            scope.spawn(move || {
                let mut stream = TcpStream::connect(address).unwrap();
                for _ in 0..20 {
                    let mut byte = [i];
                    stream.write_all(&byte).unwrap();
                    stream.read_exact(&mut byte).unwrap();
                    assert_eq!(byte, [i]);
                }
            });
        }
    });
    server.join().unwrap();
}

#[test]
fn thread_locals_belong_to_green_threads() {
    thread_local!(static OWN: Cell<usize> = const { Cell::new(0) });
    let threads: Vec<_> = (0..64)
        .map(|i| {
            raddle::spawn(move || {
                for round in 0..1000 {
                    OWN.set(i * 1000 + round);
                    raddle::yield_now();
                    assert_eq!(OWN.get(), i * 1000 + round);
                }
            })
        })
        .collect();
    threads
        .into_iter()
        .for_each(|thread| thread.join().unwrap());
}

#[test]
fn thread_local_destructors_run() {
    struct Notes(Arc<AtomicBool>);
    impl Drop for Notes {
        fn drop(&mut self) {
            self.0.store(true, Ordering::SeqCst);
        }
    }
    thread_local!(static OWN: Cell<Option<Notes>> = const { Cell::new(None) });
    let dropped = Arc::new(AtomicBool::new(false));
    let notes = Notes(Arc::clone(&dropped));
    raddle::spawn(move || OWN.set(Some(notes))).join().unwrap();
    assert!(dropped.load(Ordering::SeqCst));
}

#[test]
fn panics_propagate_through_join() {
    let panicked = raddle::spawn(|| panic!("on purpose")).join().unwrap_err();
    assert_eq!(panicked.downcast_ref::<&str>(), Some(&"on purpose"));
    let scoped = std::panic::catch_unwind(|| {
        raddle::scope(|scope| {
            scope.spawn(|| panic!("on purpose"));
        });
    });
    assert!(scoped.is_err());
}

#[test]
fn names_and_sleep_and_park_are_stds() {
    let thread = raddle::Builder::new()
        .name("sleeper")
        .spawn(|| {
            let before = Instant::now();
            std::thread::sleep(Duration::from_millis(20));
            assert!(before.elapsed() >= Duration::from_millis(20));
            std::thread::park();
            std::thread::current().name().map(str::to_owned)
        })
        .unwrap();
    thread.thread().unpark();
    assert_eq!(thread.join().unwrap().as_deref(), Some("sleeper"));
}

#[test]
fn a_thread_that_computes_does_not_stop_the_others() {
    let stop = Arc::new(AtomicBool::new(false));
    let burners: Vec<_> = (0..8)
        .map(|_| {
            let stop = Arc::clone(&stop);
            raddle::spawn(move || while !stop.load(Ordering::Relaxed) {})
        })
        .collect();
    raddle::spawn(|| ()).join().unwrap();
    stop.store(true, Ordering::Relaxed);
    burners
        .into_iter()
        .for_each(|thread| thread.join().unwrap());
}

#[test]
fn barriers_meet_across_kinds() {
    let barrier = Arc::new(Barrier::new(20));
    let meet = |barrier: Arc<Barrier>| {
        move || {
            (0..100).for_each(|_| {
                let _ = barrier.wait();
            })
        }
    };
    let green: Vec<_> = (0..10)
        .map(|_| raddle::spawn(meet(Arc::clone(&barrier))))
        .collect();
    let kernel: Vec<_> = (0..10)
        .map(|_| std::thread::spawn(meet(Arc::clone(&barrier))))
        .collect();
    green.into_iter().for_each(|thread| thread.join().unwrap());
    kernel.into_iter().for_each(|thread| thread.join().unwrap());
}

#[test]
fn children_know_nothing_of_the_runtime() {
    let output = std::process::Command::new("env").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(!text.contains("RADDLE_EXPLICIT"), "{text}");
    let threads: Vec<_> = (0..8)
        .map(|_| raddle::spawn(|| std::process::Command::new("true").status().unwrap()))
        .collect();
    for thread in threads {
        assert!(thread.join().unwrap().success());
    }
}

#[test]
fn a_name_with_a_zero_byte_is_refused() {
    let refused = raddle::Builder::new().name("a\0b").spawn(|| ());
    assert_eq!(
        refused.unwrap_err().kind(),
        std::io::ErrorKind::InvalidInput
    );
    assert!(!std::thread::spawn(raddle::is_green_thread).join().unwrap());
}

#[test]
fn closures_and_results_are_dropped_once_whoever_comes_last() {
    let alive = Arc::new(());
    for i in 0..300 {
        let (captured, result) = (Arc::clone(&alive), Arc::clone(&alive));
        let thread = raddle::spawn(move || {
            let _captured = captured;
            result
        });
        match i % 4 {
            0 => drop(thread),
            1 => drop(thread.join().unwrap()),
            2 => {
                thread.thread().unpark();
                drop(thread);
            }
            _ => {
                while !thread.is_finished() {
                    raddle::yield_now();
                }
                drop(thread);
            }
        }
    }
    let started = Instant::now();
    while Arc::strong_count(&alive) != 1 {
        assert!(started.elapsed() < Duration::from_secs(30), "lost");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_handle_names_its_thread_before_and_after_it_began() {
    for wait in [false, true] {
        let (to, from) = mpsc::channel();
        let thread = raddle::spawn(move || {
            to.send(std::thread::current().id()).unwrap();
            std::thread::park();
        });
        let told = wait.then(|| from.recv().unwrap());
        let named = thread.thread().id();
        assert_eq!(told.unwrap_or_else(|| from.recv().unwrap()), named);
        thread.thread().unpark();
        thread.join().unwrap();
    }
}

/// A result that panics when it is dropped.
struct Rude;

impl Drop for Rude {
    fn drop(&mut self) {
        std::panic::resume_unwind(Box::new("rude"));
    }
}

#[test]
fn a_result_whose_destructor_panics_leaves_no_thread_behind() {
    const STACK: usize = 256 << 20;
    let address_space = || {
        let status = std::fs::read_to_string("/proc/self/statm").unwrap();
        status.split(' ').next().unwrap().parse::<usize>().unwrap() * 4096
    };
    let before = address_space();
    for _ in 0..20 {
        let thread = raddle::Builder::new().stack_size(STACK).spawn(|| {
            // SAFETY: the calling thread's own niceness, which ends the thread for good.
            unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, 1) };
            Rude
        });
        let thread = thread.unwrap();
        while !thread.is_finished() {
            raddle::yield_now();
        }
        let dropped = catch_unwind(AssertUnwindSafe(|| drop(thread)));
        let payload = dropped.expect_err("the destructor's panic is the dropper's");
        assert_eq!(payload.downcast_ref(), Some(&"rude"));
    }
    let taken = address_space().saturating_sub(before);
    assert!(taken < 10 * STACK, "{taken} bytes of stacks are left");
}
