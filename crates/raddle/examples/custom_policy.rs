//! A policy of one's own: jobs with a size run smallest first, on an engine beside the others.
//!
//! `cargo run --release --example custom_policy`

use raddle::engine::{Engine, Policy, Reason, Runnable};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// The shortest job first, by the size in its thread's name; equal ones in their order. A job that
/// has waited while a hundred others ran comes first, so that no job waits for ever.
#[derive(Default)]
struct ShortestFirst {
    /// By size, and by order of arrival.
    waiting: BTreeMap<(u64, u64), Runnable>,
    came: u64,
}

impl ShortestFirst {
    fn size(thread: &Runnable) -> u64 {
        let size = thread.name().and_then(|name| name.strip_prefix("job-"));
        size.and_then(|size| size.parse().ok()).unwrap_or(0)
    }
}

impl Policy for ShortestFirst {
    fn enqueue(&mut self, thread: Runnable, _: Reason) {
        self.came += 1;
        self.waiting
            .insert((Self::size(&thread), self.came), thread);
    }

    fn pick(&mut self) -> Option<Runnable> {
        let oldest = self.waiting.keys().min_by_key(|(_, came)| *came).copied();
        match oldest.filter(|(_, came)| self.came - came > 100) {
            Some(key) => self.waiting.remove(&key),
            None => self.waiting.pop_first().map(|(_, thread)| thread),
        }
    }
}

pub(crate) fn main() {
    let engine = Engine::builder()
        .name("jobs")
        .carriers(1)
        .policy(ShortestFirst::default());
    let engine = match engine.build() {
        Ok(engine) => engine,
        Err(error) => return println!("{error}"), // every thread is the kernel's to schedule
    };
    let done = Arc::new(Mutex::new(vec![]));
    let all_came = Arc::new(AtomicBool::new(false));
    let came = Arc::clone(&all_came);
    let first = engine.spawn(move || {
        while !came.load(Ordering::Relaxed) {} // computes, and has the engine's only carrier
    });
    let start = |size| {
        let done = Arc::clone(&done);
        let builder = raddle::Builder::new().name(format!("job-{size}"));
        let job = builder
            .engine(&engine)
            .spawn(move || done.lock().unwrap().push(size));
        job.expect("a thread can be made")
    };
    let jobs = [50, 10, 40, 20, 30].map(start);
    all_came.store(true, Ordering::Relaxed);
    first.expect("a thread can be made").join().unwrap();
    jobs.into_iter().for_each(|job| job.join().unwrap());
    engine.shut_down();
    engine.wait().unwrap();
    let mut done = done.lock().unwrap();
    println!("they ran in this order: {done:?}");
    done.sort_unstable();
    assert_eq!(*done, [10, 20, 30, 40, 50]);
    assert_eq!(engine.policy_failure(), None);
}
