//! Completions in larger company, under random schedules.
//!
//! `RUSTFLAGS="--cfg raddle_shuttle" cargo test -p raddle --release --test shuttle`
#![cfg(raddle_shuttle)]

use raddle::completion::{self, Completion, Failure, block_on};
use shuttle::thread;

const SCHEDULES: usize = 5_000;

fn explore(model: impl Fn() + Send + Sync + Clone + 'static) {
    shuttle::check_random(model.clone(), SCHEDULES);
    shuttle::check_pct(model, SCHEDULES / 4, 3);
}

#[test]
fn a_chain_of_threads_hands_a_value_on() {
    explore(|| {
        let (first, mut last) = completion::pair();
        let mut threads = Vec::new();
        for _ in 0..4 {
            let (promise, completion) = completion::pair();
            let before = std::mem::replace(&mut last, completion);
            threads.push(thread::spawn(move || {
                promise.set(before.wait().unwrap() + 1).unwrap();
            }));
        }
        first.set(0).unwrap();
        assert_eq!(last.wait().unwrap(), 4);
        threads
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
    });
}

#[test]
fn an_abandoned_promise_fails_all_that_comes_next() {
    explore(|| {
        let (promise, completion) = completion::pair::<u32>();
        let thread = thread::spawn(move || drop(promise));
        let ends: Completion<u32> = completion.then(|v| v + 1).then(|v| v + 1).then(|v| v + 1);
        assert!(matches!(ends.wait(), Err(Failure::Abandoned)));
        thread.join().unwrap();
    });
}

#[test]
fn a_task_awaits_many_threads() {
    explore(|| {
        let mut completions = Vec::new();
        let mut threads = Vec::new();
        for value in 0..4 {
            let (promise, completion) = completion::pair();
            completions.push(completion);
            threads.push(thread::spawn(move || promise.set(value).unwrap()));
        }
        let sum = block_on(async {
            let mut sum = 0;
            for completion in completions {
                sum += completion.await.unwrap();
            }
            sum
        });
        assert_eq!(sum, 6);
        threads
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
    });
}
