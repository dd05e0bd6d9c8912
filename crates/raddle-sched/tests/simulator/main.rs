//! A seeded simulator: up to 64 imaginary carriers drive the real queues, wait table, timers, idle
//! set and policy in virtual time.
//!
//! Nouns: an *actor* is a carrier, sysmon, or the world outside; each event is one small step of
//! one actor, at a virtual time that the seed decides, so that steps of different carriers
//! interleave. A *green thread* is a list of steps. The *mirror* is a plain model of every queue:
//! each task that comes out of a real queue must be the one that the model gives.
//!
//! Checked at every step: no task is lost or run twice, queues are first in, first out, no carrier
//! idles while work waits beyond [`judge::idle_bound_ns`], a queued thread runs within its bound of
//! picks, timers are never early and late by at most [`judge::timer_bound_ns`]. Checked at the end:
//! every thread came to its end.
//!
//! Rejected: real threads under a virtual clock (not repeatable), and a simulator of copies of the
//! scheduler's structures (it would check the copies).
//!
//! A failure prints its seed and the command that repeats it.
#![cfg(not(any(raddle_loom, raddle_shuttle)))]

mod actors;
mod carrier;
mod judge;
mod mirror;
mod program;
mod rng;
mod world;

use program::Workload;
use world::{Fault, World};

/// Seeds that a test tries; fewer without optimisation.
const SEEDS: u64 = if cfg!(debug_assertions) { 240 } else { 3600 };

/// The parameters of a run.
#[derive(Clone, Copy)]
struct Plan {
    seed: u64,
    carriers: usize,
    workload: Workload,
}

impl Plan {
    /// Derives the number of carriers and the workload from the seed.
    fn of(seed: u64) -> Self {
        let carriers = [1, 2, 3, 4, 8, 16, 33, 64][seed as usize % 8];
        let workload = Workload::ALL[(seed / 8) as usize % Workload::ALL.len()];
        Self {
            seed,
            carriers,
            workload,
        }
    }

    /// Reads `seed:carriers:workload`, as a failure prints it.
    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split(':');
        let (seed, carriers) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        let name = parts.next()?;
        let workload = Workload::ALL
            .into_iter()
            .find(|w| format!("{w:?}") == name)?;
        Some(Self {
            seed,
            carriers,
            workload,
        })
    }

    /// Plays to the end.
    fn play(self) -> World {
        let _says_how_to_repeat = Repeat(self);
        let mut world = World::new(self.seed, self.carriers, self.workload, Fault::None);
        world.play();
        world
    }
}

struct Repeat(Plan);

impl Drop for Repeat {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let Plan {
                seed,
                carriers,
                workload,
            } = self.0;
            eprintln!(
                "seed {seed} failed; repeat it with\n  RADDLE_SIM={seed}:{carriers}:{workload:?} \
                 cargo test -p raddle-sched --release --test simulator -- --nocapture any_number"
            );
        }
    }
}

/// What many seeds have shown.
#[derive(Default)]
struct Sum {
    seeds: u64,
    events: u64,
    longest_idle_ns: u64,
    latest_timer_ns: u64,
    thefts: u64,
    overflows: u64,
}

impl Sum {
    fn add(&mut self, world: &World) {
        self.seeds += 1;
        self.events += world.events_done;
        self.longest_idle_ns = self.longest_idle_ns.max(world.judge.longest_idle_ns);
        self.latest_timer_ns = self.latest_timer_ns.max(world.judge.latest_timer_ns);
        self.thefts += world.judge.thefts;
        self.overflows += world.judge.overflows;
    }

    fn print(&self) {
        println!(
            "{} seeds, {} events, {} thefts, {} overflows; at most work waited {} us beside an \
             idle carrier, and a timer was {} us late",
            self.seeds,
            self.events,
            self.thefts,
            self.overflows,
            self.longest_idle_ns / 1000,
            self.latest_timer_ns / 1000
        );
    }
}

#[test]
fn any_number_of_carriers_runs_any_workload() {
    let mut sum = Sum::default();
    match std::env::var("RADDLE_SIM") {
        Ok(text) => {
            let plan = Plan::parse(&text).expect("RADDLE_SIM is seed:carriers:workload");
            sum.add(&plan.play());
        }
        Err(_) => (0..SEEDS).for_each(|seed| sum.add(&Plan::of(seed).play())),
    }
    sum.print();
}

#[test]
fn every_number_of_carriers_from_1_to_64_runs_a_mixed_workload() {
    let mut sum = Sum::default();
    for carriers in 1..=64 {
        for seed in 0..SEEDS / 450 + 1 {
            sum.add(
                &Plan {
                    seed,
                    carriers,
                    workload: Workload::Mixed,
                }
                .play(),
            );
        }
    }
    assert!(
        sum.thefts > 0 && sum.overflows > 0,
        "the workload is too tame"
    );
    sum.print();
}

#[test]
fn a_seed_plays_the_same_twice() {
    let (one, two) = (Plan::of(77).play(), Plan::of(77).play());
    assert_eq!((one.events_done, one.now_ns), (two.events_done, two.now_ns));
}

/// Tries seeds until the judge objects.
fn provoke(carriers: usize, workload: Workload, fault: Fault) {
    for seed in 0..500 {
        World::new(seed, carriers, workload, fault).play();
    }
}

#[test]
#[should_panic(expected = "a carrier idles while work waits")]
fn a_policy_that_never_wakes_is_caught() {
    provoke(4, Workload::Crowd, Fault::NeverWake);
}

#[test]
#[should_panic(expected = "a carrier idles while work waits")]
fn a_policy_without_sysmon_is_caught() {
    provoke(4, Workload::Stuck, Fault::NoSysmon);
}

#[test]
#[should_panic(expected = "a carrier idles while work waits")]
fn a_search_that_watches_one_carrier_only_is_caught() {
    provoke(4, Workload::Stuck, Fault::WatchesFirst);
}

#[test]
#[should_panic(expected = "picks")]
fn a_slot_that_always_comes_first_is_caught() {
    provoke(1, Workload::Mixed, Fault::NeverFair);
}

#[test]
#[should_panic(expected = "lost")]
fn a_sleeper_that_does_not_look_again_is_caught() {
    provoke(1, Workload::Outside, Fault::NoSecondLook);
}

#[test]
#[should_panic(expected = "late")]
fn a_busy_carrier_that_never_polls_is_caught() {
    provoke(1, Workload::Crowd, Fault::NeverPolls);
}

#[test]
#[should_panic(expected = "never ends")]
fn a_theft_through_the_ring_among_many_is_caught() {
    provoke(64, Workload::Mixed, Fault::StealsIntoRing);
}
