//! The end of an engine with a policy of the program's own.

use raddle::engine::{Engine, Policy, Reason, Runnable};
use raddle::runtime::{Status, status};
use std::cell::OnceCell;
use std::collections::VecDeque;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

/// Waits for something when it is dropped, and tells that it has.
struct SlowToEnd(Sender<()>);

impl Drop for SlowToEnd {
    fn drop(&mut self) {
        (0..3).for_each(|_| std::thread::sleep(Duration::from_millis(2)));
        let _ = self.0.send(());
    }
}

thread_local! {
    static AT_THE_END: OnceCell<SlowToEnd> = const { OnceCell::new() };
}

/// A policy that tells when it is dropped.
struct Told(VecDeque<Runnable>, Sender<()>);

impl Policy for Told {
    fn enqueue(&mut self, thread: Runnable, _: Reason) {
        self.0.push_back(thread);
    }

    fn pick(&mut self) -> Option<Runnable> {
        self.0.pop_front()
    }
}

impl Drop for Told {
    fn drop(&mut self) {
        let _ = self.1.send(());
    }
}

#[test]
fn an_engine_without_handles_lasts_until_its_threads_have_ended() {
    if status() != Status::Green {
        return; // there are no engines; a test of engines checks that
    }
    const THREADS: usize = 4;
    const LIMIT: Duration = Duration::from_secs(30);
    for carriers in [1, 2] {
        let (ended, ends) = channel();
        let (dropped, drops) = channel();
        let policy = Told(VecDeque::new(), dropped);
        let engine = Engine::builder().carriers(carriers).policy(policy);
        let engine = engine.build().unwrap();
        let threads: Vec<_> = (0..THREADS)
            .map(|_| {
                let ended = ended.clone();
                let body = || AT_THE_END.with(|at| drop(at.set(SlowToEnd(ended))));
                engine.spawn(body).unwrap()
            })
            .collect();
        drop(engine);
        for _ in 0..THREADS {
            ends.recv_timeout(LIMIT).expect("it runs to its end");
        }
        threads
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
        drops
            .recv_timeout(LIMIT)
            .expect("the policy ends with the engine");
    }
}
