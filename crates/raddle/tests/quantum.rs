//! The quantum that a policy asks for.

use raddle::engine::{Engine, Policy, Reason, Runnable};
use raddle::runtime::{Status, status};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// In turn, with a quantum. Counts the ends of quanta.
struct Long(VecDeque<Runnable>, Duration, Arc<AtomicU32>);

impl Policy for Long {
    fn enqueue(&mut self, thread: Runnable, reason: Reason) {
        self.2
            .fetch_add(u32::from(reason == Reason::Preempted), Ordering::Relaxed);
        self.0.push_back(thread);
    }

    fn pick(&mut self) -> Option<Runnable> {
        self.0.pop_front()
    }

    fn quantum(&mut self, _: &Runnable) -> Option<Duration> {
        Some(self.1)
    }
}

/// Two threads that compute for half a second of time, together, are preempted about as often as
/// their quantum says, if it is longer than the process's.
#[test]
fn a_policy_may_ask_for_a_long_quantum() {
    if status() != Status::Green {
        return;
    }
    let preempted = |quantum_ms| {
        let count = Arc::new(AtomicU32::new(0));
        let quantum = Duration::from_millis(quantum_ms);
        let policy = Long(VecDeque::new(), quantum, Arc::clone(&count));
        let engine = Engine::builder()
            .carriers(1)
            .policy(policy)
            .build()
            .unwrap();
        let compute = || {
            let start = Instant::now();
            while start.elapsed() < Duration::from_millis(500) {
                std::hint::spin_loop();
            }
        };
        let threads = [(); 2].map(|()| engine.spawn(compute).unwrap());
        threads
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
        count.load(Ordering::Relaxed)
    };
    let (short, long) = (preempted(5), preempted(50));
    assert!((20..=110).contains(&short), "{short} times with 5 ms"); // a busy machine takes time
    assert!((2..=12).contains(&long), "{long} times with 50 ms");
}
