//! Light threads.

use raddle::light;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

#[test]
fn results_come_back() {
    let threads: Vec<_> = (0..10_000u64)
        .map(|i| light::spawn(move || i * i))
        .collect();
    for (i, thread) in threads.into_iter().enumerate() {
        assert_eq!(thread.join().unwrap(), (i * i) as u64);
    }
}

#[test]
fn light_threads_join_light_threads() {
    fn count(depth: u32) -> u64 {
        if depth == 0 {
            return 1;
        }
        let both = [
            light::spawn(move || count(depth - 1)),
            light::spawn(move || count(depth - 1)),
        ];
        both.into_iter().map(|thread| thread.join().unwrap()).sum()
    }
    assert_eq!(light::spawn(|| count(12)).join().unwrap(), 4096);
}

/// Some threads have stacks that no host keeps, so that they end in another way.
#[test]
fn who_joins_follows_whatever_stack_has_ended() {
    let joins = |own: u64| {
        for round in 0..2000 {
            let builder = light::Builder::new();
            let builder = match round % 5 {
                0 => builder.stack_size(32 << 10),
                _ => builder,
            };
            let thread = builder.spawn(move || own * round).unwrap();
            assert_eq!(thread.join().unwrap(), own * round);
        }
    };
    let threads: Vec<_> = (0..8).map(|own| light::spawn(move || joins(own))).collect();
    threads
        .into_iter()
        .for_each(|thread| thread.join().unwrap());
}

#[test]
fn threads_that_make_and_join_others_let_all_others_run() {
    static TURNS: AtomicU64 = AtomicU64::new(0);
    let yields = light::spawn(|| {
        while TURNS.fetch_add(1, Ordering::Relaxed) < 1000 {
            light::yield_now();
        }
    });
    let joins = || {
        while TURNS.load(Ordering::Relaxed) < 1000 {
            light::spawn(|| ()).join().unwrap();
        }
    };
    let threads = [light::spawn(joins), light::spawn(joins)];
    threads
        .into_iter()
        .for_each(|thread| thread.join().unwrap());
    yields.join().unwrap();
}

/// A backtrace of a light thread reaches its first instruction.
#[test]
fn a_thread_begins_at_a_known_place() {
    let trace = light::spawn(|| std::backtrace::Backtrace::force_capture().to_string());
    assert!(trace.join().unwrap().contains("first_instruction"));
}

#[test]
fn a_yield_lets_others_run() {
    let turn = Arc::new(AtomicU64::new(0));
    let threads: Vec<_> = (0..4)
        .map(|me| {
            let turn = Arc::clone(&turn);
            light::spawn(move || {
                for round in 0..1000 {
                    while turn.load(Ordering::SeqCst) != round * 4 + me {
                        light::yield_now();
                    }
                    turn.fetch_add(1, Ordering::SeqCst);
                }
            })
        })
        .collect();
    threads
        .into_iter()
        .for_each(|thread| thread.join().unwrap());
    assert_eq!(turn.load(Ordering::SeqCst), 4000);
}

#[test]
fn panics_propagate_and_threads_go_on() {
    let panicked = light::spawn(|| panic!("on purpose")).join().unwrap_err();
    assert_eq!(panicked.downcast_ref::<&str>(), Some(&"on purpose"));
    assert_eq!(light::spawn(|| 1).join().unwrap(), 1);
}

#[test]
fn who_blocks_in_std_is_replaced() {
    // More light threads block than there are carriers; the one that ends their wait comes last.
    let (to, from) = mpsc::channel::<()>();
    let from = Arc::new(Mutex::new(from));
    let ended = Arc::new(AtomicU64::new(0));
    let threads: Vec<_> = (0..50)
        .map(|_| {
            let (from, ended) = (Arc::clone(&from), Arc::clone(&ended));
            light::spawn(move || {
                from.lock().unwrap().recv().unwrap();
                ended.fetch_add(1, Ordering::SeqCst);
            })
        })
        .collect();
    let last = light::spawn(move || (0..50).for_each(|_| to.send(()).unwrap()));
    last.join().unwrap();
    threads
        .into_iter()
        .for_each(|thread| thread.join().unwrap());
    assert_eq!(ended.load(Ordering::SeqCst), 50);
}

#[test]
fn sockets_and_sleep_block_one_light_thread() {
    let threads: Vec<_> = (0..100u8)
        .map(|i| {
            light::spawn(move || {
                let (mut here, mut there) = UnixStream::pair().unwrap();
                let echo = light::spawn(move || {
                    let mut byte = [0];
                    while there.read(&mut byte).unwrap() == 1 {
                        there.write_all(&byte).unwrap();
                    }
                });
                for _ in 0..20 {
                    let mut byte = [i];
                    here.write_all(&byte).unwrap();
                    here.read_exact(&mut byte).unwrap();
                    assert_eq!(byte, [i]);
                }
                std::thread::sleep(Duration::from_millis(1));
                drop(here);
                echo.join().unwrap();
            })
        })
        .collect();
    threads
        .into_iter()
        .for_each(|thread| thread.join().unwrap());
}

#[test]
fn large_closures_and_stacks() {
    let large = [7u8; 32 << 10];
    let sum = light::spawn(move || large.iter().map(|&b| u64::from(b)).sum::<u64>());
    assert_eq!(sum.join().unwrap(), 7 * (32 << 10));
    let deep = light::Builder::new().stack_size(8 << 20).spawn(|| {
        fn down(n: u64) -> u64 {
            let room = std::hint::black_box([n; 16]);
            if n == 0 {
                0
            } else {
                room[3] - n + 1 + down(n - 1)
            }
        }
        down(20_000)
    });
    assert_eq!(deep.unwrap().join().unwrap(), 20_000);
    #[repr(align(256))]
    struct Aligned(u64);
    let aligned = Aligned(5);
    let thread = light::spawn(move || (&raw const aligned).addr() % 256 + aligned.0 as usize);
    assert_eq!(thread.join().unwrap(), 5);
}

#[test]
fn a_stack_too_large_is_refused() {
    let refused = light::Builder::new().stack_size(usize::MAX).spawn(|| ());
    assert_eq!(refused.unwrap_err().kind(), std::io::ErrorKind::OutOfMemory);
}

#[test]
fn a_dropped_handle_lets_the_thread_go_on() {
    static ENDED: AtomicBool = AtomicBool::new(false);
    drop(light::spawn(|| ENDED.store(true, Ordering::SeqCst)));
    while !ENDED.load(Ordering::SeqCst) {
        std::thread::yield_now();
    }
}

#[test]
fn kernel_green_and_light_threads_join_light_threads() {
    let thread = light::spawn(|| 1);
    assert_eq!(thread.join().unwrap(), 1);
    let thread = light::spawn(|| 2);
    assert_eq!(raddle::spawn(|| thread.join().unwrap()).join().unwrap(), 2);
    let thread = light::spawn(|| 3);
    assert_eq!(light::spawn(|| thread.join().unwrap()).join().unwrap(), 3);
    let slow = light::spawn(|| std::thread::sleep(Duration::from_millis(20)));
    slow.join().unwrap();
}

#[test]
fn one_that_computes_is_no_obstacle() {
    let stop = Arc::new(AtomicBool::new(false));
    let burners: Vec<_> = (0..4)
        .map(|_| {
            let stop = Arc::clone(&stop);
            light::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    light::yield_now();
                }
            })
        })
        .collect();
    for i in 0..100 {
        assert_eq!(light::spawn(move || i).join().unwrap(), i);
    }
    stop.store(true, Ordering::Relaxed);
    burners
        .into_iter()
        .for_each(|thread| thread.join().unwrap());
}

/// Returns how many light threads there may be: each guard takes a mapping before Linux 6.13.
fn most_at_a_time() -> u64 {
    const MADV_GUARD_INSTALL: i32 = 102;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a page of its own, which is not read.
    let has_guards = unsafe {
        let page = libc::mmap(std::ptr::null_mut(), 4096, libc::PROT_READ, flags, -1, 0);
        libc::madvise(page, 4096, MADV_GUARD_INSTALL) == 0
    };
    if has_guards { 100_000 } else { 20_000 }
}

#[test]
fn a_hundred_thousand_wait_at_a_time() {
    let count = most_at_a_time();
    let gate = Arc::new(AtomicBool::new(false));
    let threads: Vec<_> = (0..count)
        .map(|i| {
            let gate = Arc::clone(&gate);
            light::spawn(move || {
                while !gate.load(Ordering::Relaxed) {
                    light::yield_now();
                }
                i
            })
        })
        .collect();
    gate.store(true, Ordering::Relaxed);
    let sum: u64 = threads
        .into_iter()
        .map(|thread| thread.join().unwrap())
        .sum();
    assert_eq!(sum, count * (count - 1) / 2);
}

#[test]
fn one_that_computes_is_replaced() {
    let stop = Arc::new(AtomicBool::new(false));
    let burners: Vec<_> = (0..4)
        .map(|_| {
            let stop = Arc::clone(&stop);
            light::spawn(move || while !stop.load(Ordering::Relaxed) {})
        })
        .collect();
    for i in 0..5 {
        assert_eq!(light::spawn(move || i).join().unwrap(), i);
    }
    let stopped = Arc::clone(&stop);
    light::spawn(move || {
        light::spawn(move || stopped.store(true, Ordering::Relaxed)); // in the queue of a burner
        while !stop.load(Ordering::Relaxed) {}
    })
    .join()
    .unwrap();
    burners
        .into_iter()
        .for_each(|thread| thread.join().unwrap());
}

/// Forks, has the child start light threads, and returns its exit status.
fn fork_and_start() -> i32 {
    // SAFETY: the child only uses what the crate and libc allow there.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        let sum: u64 = (0..100u64)
            .map(|i| light::spawn(move || light::spawn(move || i).join().unwrap()))
            .collect::<Vec<_>>()
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .sum();
        // SAFETY: ends the child without the parent's exit handlers.
        unsafe { libc::_exit(if sum == 4950 { 7 } else { 1 }) };
    }
    let mut status = 0;
    // SAFETY: a live word.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    libc::WEXITSTATUS(status)
}

#[test]
fn children_of_forks_have_light_threads_of_their_own() {
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    let other = light::spawn(move || {
        while !stopped.load(Ordering::Relaxed) {
            light::yield_now();
        }
    });
    for _ in 0..5 {
        assert_eq!(fork_and_start(), 7);
        assert_eq!(light::spawn(fork_and_start).join().unwrap(), 7);
    }
    stop.store(true, Ordering::Relaxed);
    other.join().unwrap();
}
