//! One primitive each: yield, create and join, wake-up, sharing, being in the way, files.

use std::path::Path;

use super::harness::{Case, Work};
use super::process::EVERY_WAY;
use super::programs::{Workshop, skipped, version};

const YIELD_ROUNDS: u32 = 1_000_000;
const CREATE_ROUNDS: u32 = 50_000;
const FORK_ROUNDS: u32 = 2_000;
const WAKEUP_ROUNDS: u32 = 4_000;
const DISK_ROUNDS: u32 = 100_000;
const SLEEPS: u32 = 1_000;
const STUCK: u32 = 20;

pub(super) fn yielding(workshop: &Workshop) -> Vec<Case> {
    c_case(workshop, "sched_yield", "yield", YIELD_ROUNDS)
}

pub(super) fn creating(workshop: &Workshop) -> Vec<Case> {
    c_case(workshop, "threads", "create", CREATE_ROUNDS)
}

/// Native on one CPU, and one carrier too: both make processes.
pub(super) fn forking(workshop: &Workshop) -> Vec<Case> {
    let mut cases = c_case(workshop, "child processes", "fork", FORK_ROUNDS);
    for case in &mut cases {
        case.work = Work::MakesProcesses;
    }
    cases
}

pub(super) fn waking(workshop: &Workshop) -> Vec<Case> {
    c_case(workshop, "wake-up", "wakeup", WAKEUP_ROUNDS)
}

pub(super) fn disk(workshop: &Workshop) -> Vec<Case> {
    c_case(workshop, "files", "disk", DISK_ROUNDS)
}

pub(super) fn sharing(workshop: &Workshop) -> Vec<Case> {
    c_case(workshop, "computing threads", "fairness", SLEEPS)
}

pub(super) fn handing_off(workshop: &Workshop) -> Vec<Case> {
    c_case(workshop, "threads in the kernel", "handoff", SLEEPS)
}

pub(super) fn getting_stuck(workshop: &Workshop) -> Vec<Case> {
    c_case(workshop, "a thread stuck in the kernel", "stuck", STUCK)
}

/// A C program that prints its figures; nothing if it can't be compiled.
pub(super) fn c_case(
    workshop: &Workshop,
    title: &str,
    name: &'static str,
    rounds: u32,
) -> Vec<Case> {
    match workshop.c_program(name) {
        Ok(program) => vec![Case {
            title: title.into(),
            toolchain: version(Path::new("cc"), "--version"),
            command: vec![program, workshop.rounds(rounds)],
            work: Work::Prints,
            ways: &EVERY_WAY,
        }],
        Err(why) => {
            skipped(title, &why);
            Vec::new()
        }
    }
}
