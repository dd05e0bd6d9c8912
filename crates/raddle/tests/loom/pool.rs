//! The pool's deque, and pushing against going to rest.

use crate::explore;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering};
use raddle::pool::deque::{self, Owner, Thief};
use raddle::pool::job::Job;
use raddle_sched::wake::{Announce, Sign, WakeWord, prepare};

/// How often each of `N` jobs ran.
struct Runs<const N: usize>(Arc<[AtomicUsize; N]>);

impl<const N: usize> Runs<N> {
    fn new() -> Self {
        Self(Arc::new(std::array::from_fn(|_| AtomicUsize::new(0))))
    }

    fn job(&self, number: usize) -> Job {
        let runs = self.0.clone();
        Job::new(move || {
            runs[number].fetch_add(1, Ordering::Relaxed);
        })
    }

    fn push(&self, owner: &Owner, number: usize) {
        assert!(owner.push(self.job(number)).is_ok(), "there is room");
    }

    fn assert_once(&self) {
        let runs: Vec<_> = self
            .0
            .iter()
            .map(|runs| runs.load(Ordering::Relaxed))
            .collect();
        assert!(runs.iter().all(|&runs| runs == 1), "{runs:?}");
    }
}

fn run(job: Option<Job>) {
    job.into_iter().for_each(Job::run);
}

fn stealing(thief: &Thief, times: usize) -> loom::thread::JoinHandle<()> {
    let thief = thief.clone();
    loom::thread::spawn(move || (0..times).for_each(|_| run(thief.steal())))
}

#[test]
fn owner_and_thief_race_for_the_last_job() {
    explore(3, || {
        let (runs, (owner, thief)) = (Runs::<1>::new(), deque::new());
        runs.push(&owner, 0);
        let other = stealing(&thief, 1);
        run(owner.pop());
        other.join().unwrap();
        run(owner.pop());
        runs.assert_once();
    });
}

#[test]
fn two_thieves_and_the_owner_take_two_jobs_once_each() {
    explore(3, || {
        let (runs, (owner, thief)) = (Runs::<2>::new(), deque::new());
        runs.push(&owner, 0);
        runs.push(&owner, 1);
        let others = [stealing(&thief, 1), stealing(&thief, 1)];
        run(owner.pop());
        others.into_iter().for_each(|other| other.join().unwrap());
        while let Some(job) = owner.pop() {
            job.run();
        }
        runs.assert_once();
    });
}

#[test]
fn a_slot_is_not_filled_again_while_a_thief_reads_it() {
    explore(3, || {
        let (runs, (owner, thief)) = (Runs::<4>::new(), deque::new());
        runs.push(&owner, 0);
        runs.push(&owner, 1);
        let other = stealing(&thief, 2);
        // The ring of two wraps round; a job that finds no room runs here.
        for number in 2..4 {
            if let Err(job) = owner.push(runs.job(number)) {
                job.run();
            }
        }
        while let Some(job) = owner.pop() {
            job.run();
        }
        other.join().unwrap();
        while let Some(job) = owner.pop() {
            job.run();
        }
        runs.assert_once();
    });
}

#[test]
fn a_batch_appears_whole_or_not_at_all_and_once() {
    explore(3, || {
        let (runs, (owner, thief)) = (Runs::<2>::new(), deque::new());
        let other = stealing(&thief, 2);
        let mut jobs = (0..2).map(|number| runs.job(number));
        assert!(owner.push_all(&mut jobs).is_none());
        other.join().unwrap();
        while let Some(job) = owner.pop() {
            job.run();
        }
        runs.assert_once();
    });
}

/// A worker that rests, with the sign that posters see.
struct Resting<'a>(&'a Sign);

impl Announce for Resting<'_> {
    fn announce(&mut self) -> bool {
        self.0.show(true);
        true
    }

    fn withdraw(&mut self) {
        self.0.show(false);
    }
}

/// A push to a deque against a worker that goes to rest: the deque's end is what the protocol of
/// sleep and wake-up takes for the publication.
fn a_push_meets_a_rest(looks_first: bool) {
    explore(3, move || {
        let (runs, (owner, thief)) = (Runs::<1>::new(), deque::new());
        let sign = std::sync::Arc::new(Sign::new(false));
        let shown = sign.clone();
        let rester = loom::thread::spawn(move || {
            let mut sleeper = Resting(&shown);
            if looks_first {
                return thief.len() > 0 || !sleeper.announce();
            }
            prepare(&WakeWord::new(), &mut sleeper, || thief.len() > 0).is_none()
        });
        runs.push(&owner, 0);
        let wakes = sign.is_shown();
        let stays_awake = rester.join().unwrap();
        run(owner.pop());
        assert!(wakes || stays_awake, "a lost wake-up");
    });
}

#[test]
fn a_push_is_seen_by_a_worker_that_rests_or_sees_it() {
    a_push_meets_a_rest(false);
}

#[test]
#[should_panic(expected = "a lost wake-up")]
fn a_worker_that_looks_before_it_shows_the_sign_is_caught() {
    a_push_meets_a_rest(true);
}
