//! The default order's bounds, in virtual time: how long a runnable task waits at most, and what
//! share of the CPUs it gets.
//!
//! The fair clock, the accounts, the queues and the choice of the next task are the real ones;
//! carriers and tasks are imaginary. A *task* has a behaviour ([`world::Behaviour`]). Each event
//! ends a carrier's turn, wakes a task that slept, or is a look of sysmon's, which ends turns that
//! are over. A seed decides lengths and the order of events at one moment.
//!
//! Rejected: the carriers of the other simulator: their steps are too small to show shares.
#![cfg(not(any(raddle_loom, raddle_shuttle)))]

mod used;
mod world;

use world::{Behaviour, MS, US, World};

const SEEDS: u64 = if cfg!(debug_assertions) { 2 } else { 20 };
const QUANTUM_NS: u64 = raddle_sched::policy::QUANTUM_NS;

fn each_seed_and_count(play: impl Fn(u64, usize)) {
    for carriers in [1, 2, 3, 4, 8, 16, 33, 64] {
        for seed in 0..SEEDS.div_ceil(carriers as u64) {
            play(seed, carriers);
        }
    }
}

/// Returns the longest that a runnable task may wait, from the rules of the order: the fair clock
/// reaches a task that is one quantum ahead; each carrier runs due tasks and others in turn; the
/// turn that lasts then ends.
fn bound_ns(most_runnable: usize, carriers: usize) -> u64 {
    let rounds = most_runnable.div_ceil(carriers) as u64;
    4 * rounds * QUANTUM_NS + 4 * QUANTUM_NS
}

fn check_waits(world: &World) {
    let bound_ns = bound_ns(world.most_runnable, world.carriers());
    assert!(
        world.longest_wait_ns <= bound_ns,
        "a task waited {} us; {} tasks on {} carriers should wait {} us at most",
        world.longest_wait_ns / US,
        world.most_runnable,
        world.carriers(),
        bound_ns / US
    );
}

#[test]
fn tasks_that_compute_share_evenly() {
    each_seed_and_count(|seed, carriers| {
        let count = carriers * 3 + 1;
        let mut world = World::new(seed, carriers);
        let all: Vec<_> = (0..count).map(|_| world.add(Behaviour::Compute)).collect();
        let time_ns = 100 * QUANTUM_NS * count.div_ceil(carriers) as u64;
        world.play(time_ns);
        let fair_ns = time_ns * carriers as u64 / count as u64;
        for task in all {
            let part = world.ran_ns(task) as f64 / fair_ns as f64;
            assert!((0.93..1.07).contains(&part), "{part} of its share");
        }
        check_waits(&world);
    });
}

#[test]
fn a_task_that_computes_gets_its_share_beside_any_number_that_sleep_and_wake() {
    each_seed_and_count(|seed, carriers| {
        for sleepers in [2 * carriers, 20 * carriers] {
            let mut world = World::new(seed, carriers);
            let computing = world.add(Behaviour::Compute);
            for _ in 0..sleepers {
                // Each task wants to run nine tenths of the time.
                let run = (20 * US, 400 * US);
                world.add(Behaviour::RunAndSleep {
                    run,
                    sleep: (2 * US, 44 * US),
                });
            }
            let time_ns = 40 * MS * (sleepers / carriers) as u64;
            world.play(time_ns);
            let fair_ns = time_ns * carriers as u64 / (sleepers as u64 + 1);
            let part = world.ran_ns(computing) as f64 / fair_ns.min(time_ns) as f64;
            assert!(
                (0.8..1.5).contains(&part),
                "{part} of its share beside {sleepers}"
            );
            check_waits(&world);
        }
    });
}

#[test]
fn a_pair_that_hands_over_shares_with_one_that_computes() {
    for seed in 0..SEEDS {
        let mut world = World::new(seed, 1);
        let computing = world.add(Behaviour::Compute);
        world.add_pair(10 * US);
        world.play(2000 * MS);
        let part = world.ran_ns(computing) as f64 / 2000e6;
        assert!((0.4..0.6).contains(&part), "{part} of the CPU");
        check_waits(&world);
    }
}

#[test]
fn a_niceness_that_all_tasks_have_changes_no_share() {
    for nice in [-20, -5, 0, 5, 19] {
        for seed in 0..SEEDS {
            let mut world = World::new(seed, 1);
            world.nice = nice;
            let computing = world.add(Behaviour::Compute);
            world.add_pair(10 * US);
            world.play(1000 * MS);
            let part = world.ran_ns(computing) as f64 / 1000e6;
            assert!((0.4..0.6).contains(&part), "{part} of the CPU at {nice}");
            check_waits(&world);
        }
    }
}

#[test]
fn a_woken_task_interrupts_its_waker_that_computes() {
    each_seed_and_count(|seed, carriers| {
        let mut world = World::new(seed, carriers);
        for _ in 0..carriers {
            world.add_waker(5 * US, 1000);
        }
        world.play(200 * MS);
        let longest_us = world.longest_wake_ns / US;
        assert!(longest_us <= 1200, "a woken task waited {longest_us} us");
        let mean_us = world.wake_ns / world.wakes.max(1) / US;
        assert!(mean_us <= 60, "woken tasks waited {mean_us} us each");
    });
}

/// Those with the joint account have two thirds of the CPUs, however many there are, and the others
/// don't wait for long turns of theirs.
#[test]
fn tasks_with_one_account_have_their_part_together() {
    each_seed_and_count(|seed, carriers| {
        for (joint, others) in [(1, 2), (2, 3), (3, 16), (8, 20)] {
            let mut world = World::new(seed, carriers);
            let joint: Vec<_> = (0..joint * carriers).map(|_| world.add_joint()).collect();
            for _ in 0..others * carriers {
                world.add(Behaviour::RunAndSleep {
                    run: (20 * US, 60 * US),
                    sleep: (1000, 2000),
                });
            }
            world.wakes_anywhere = true;
            let time_ns = 1000 * MS;
            world.play(time_ns);
            let ran_ns: u64 = joint.iter().map(|&task| world.ran_ns(task)).sum();
            let part = ran_ns as f64 / (time_ns * carriers as u64) as f64;
            assert!((0.55..0.8).contains(&part), "{part} beside {others}");
            check_waits(&world);
        }
    });
}

/// The dispatcher gives way to each task that it wakes, and uses less than its share. It wakes the
/// next one as soon as that one waits again.
#[test]
fn tasks_have_their_turns_beside_one_that_dispatches_work() {
    each_seed_and_count(|seed, carriers| {
        let mut world = World::new(seed, carriers);
        for _ in 0..carriers {
            world.add_dispatcher(3 * US, 16, 10 * US);
        }
        for _ in 0..2 * carriers {
            world.add(Behaviour::RunAndSleep {
                run: (20 * US, 40 * US),
                sleep: (20 * US, 40 * US),
            });
        }
        world.wakes_anywhere = true;
        world.play(500 * MS);
        check_waits(&world);
    });
}

/// A task that ends has had its turns like any other.
#[test]
fn a_task_that_computes_gets_its_share_beside_any_number_that_create_short_ones() {
    each_seed_and_count(|seed, carriers| {
        for creators in [carriers, 4 * carriers, 16 * carriers] {
            for run_ns in [100 * US, 1000 * US] {
                let mut world = World::new(seed, carriers);
                let computing = world.add(Behaviour::Compute);
                (0..creators).for_each(|_| world.add_creator(1000, run_ns));
                let part = part_of_share(&mut world, computing, creators + 1);
                assert!((0.8..1.5).contains(&part), "{part} beside {creators}");
            }
        }
    });
}

/// Waiters that give up soon, and try again, lend the holder no more than their own shares.
#[test]
fn a_task_that_computes_gets_its_share_beside_lent_turns() {
    each_seed_and_count(|seed, carriers| {
        let mut world = world_of_lenders(seed, carriers);
        let part = part_of_share(&mut world, 0, 10 * carriers);
        assert!((0.8..1.5).contains(&part), "{part} of its share");
    });
}

/// Nine tasks that compute for each carrier, and one that lends its turn to the ninth.
fn world_of_lenders(seed: u64, carriers: usize) -> World {
    let mut world = World::new(seed, carriers);
    for _ in 0..carriers {
        for _ in 0..9 {
            world.add(Behaviour::Compute);
        }
        world.add(Behaviour::Lend(1));
    }
    world
}

/// Plays for a while. Returns what part of its share a task has had, as one of `tasks` that are
/// runnable.
fn part_of_share(world: &mut World, task: usize, tasks: usize) -> f64 {
    let time_ns = 40 * MS * tasks.div_ceil(world.carriers()) as u64;
    world.play(time_ns);
    check_waits(world);
    let fair_ns = time_ns * world.carriers() as u64 / tasks as u64;
    world.ran_ns(task) as f64 / fair_ns.min(time_ns) as f64
}

/// A round of yields says that none of the tasks has anything urgent to do.
#[test]
fn a_task_that_computes_waits_for_one_round_of_those_that_only_yield() {
    for (seed, yielding) in (0..SEEDS).zip([1, 10, 100].into_iter().cycle()) {
        let mut world = World::new(seed, 1);
        for _ in 0..yielding {
            world.add(Behaviour::Yield(300));
        }
        let computing = world.add(Behaviour::Compute);
        world.play(500 * MS);
        let longest_us = world.longest_wait_ns(computing) / US;
        assert!(longest_us < 5000, "{longest_us} us beside {yielding}");
        check_waits(&world);
    }
}

#[test]
fn no_task_starves_whatever_the_others_do() {
    each_seed_and_count(|seed, carriers| {
        let mut world = World::new(seed, carriers);
        world.wakes_anywhere = true;
        world.add_random_mix();
        world.play(3000 * MS);
        check_waits(&world);
    });
}

/// No task gets ahead on a busy machine, so the ring is never empty, and no turn is short.
#[test]
fn a_woken_task_runs_beside_those_that_compute_on_a_busy_machine() {
    each_seed_and_count(|seed, carriers| {
        let mut world = World::new(seed, carriers);
        (world.wakes_anywhere, world.host_share) = (true, 40);
        for _ in 0..8 * carriers {
            world.add(Behaviour::Compute);
        }
        world.add(Behaviour::RunAndSleep {
            run: (10 * US, 10 * US),
            sleep: (20 * MS, 400 * MS),
        });
        world.play(2000 * MS);
        check_waits(&world);
    });
}

#[test]
#[should_panic(expected = "waited")]
fn an_order_that_prefers_tasks_that_sleep_is_caught() {
    let mut world = World::new(1, 1);
    world.prefers_sleepers = true;
    world.add(Behaviour::Compute);
    for _ in 0..40 {
        let run = (20 * US, 40 * US);
        world.add(Behaviour::RunAndSleep {
            run,
            sleep: (2 * US, 4 * US),
        });
    }
    world.play(2000 * MS);
    check_waits(&world);
}

#[test]
#[should_panic(expected = "waited")]
fn an_order_that_forgets_the_time_of_tasks_that_end_is_caught() {
    let mut world = World::new(1, 1);
    world.forgets_last_turns = true;
    world.add(Behaviour::Compute);
    (0..4).for_each(|_| world.add_creator(1000, 100 * US));
    world.play(2000 * MS);
    check_waits(&world);
}

#[test]
#[should_panic(expected = "of its share")]
fn an_order_in_which_lent_turns_cost_nothing_is_caught() {
    let mut world = world_of_lenders(1, 1);
    world.lends_for_nothing = true;
    let part = part_of_share(&mut world, 0, 10);
    assert!(part > 0.8, "{part} of its share");
}
