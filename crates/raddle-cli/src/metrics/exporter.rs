//! The readings of all processes, made at the same time.
//!
//! Each process is read by a thread of its own, up to [`READERS_MAX`] at a time, those first that
//! answered at the scrape before. A scrape ends after [`PATIENCE`]: a process that has not answered
//! by then counts as down, and the thread that waits for it is left behind. The process is not read
//! again before that thread has come back.

use std::collections::{HashMap, VecDeque};
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::find;
use super::reading::{Reading, Watched};
use crate::dump::process::Process;
use crate::failure::Failure;

/// The longest time of a scrape; a little less than Prometheus would notice.
const PATIENCE: Duration = Duration::from_millis(1900);
/// How long before the end of a scrape the wait for an answer ends.
const RESERVE: Duration = Duration::from_millis(200);
const READERS_MAX: usize = 256;
const READER_STACK_BYTES: usize = 256 * 1024;

/// The processes that are read.
pub(super) enum Chosen {
    These(Vec<u32>),
    /// All that are there at the time of the scrape.
    All,
}

/// A process at a scrape.
pub(super) struct Sample {
    pub pid: u32,
    pub command: String,
    pub reading: Result<Reading, Failure>,
    /// How long it was read.
    pub took: Duration,
}

/// See the module.
pub(super) struct Exporter {
    chosen: Chosen,
    processes: Mutex<HashMap<u32, Arc<Known>>>,
}

/// A process that was read before.
struct Known {
    watched: Watched,
    /// It has answered at the last scrape.
    is_up: AtomicBool,
    /// As it was called when it last was there.
    command: Mutex<String>,
}

type Queue = Arc<Mutex<VecDeque<(u32, Arc<Known>)>>>;

impl Exporter {
    pub(super) fn new(chosen: Chosen) -> Exporter {
        Exporter {
            chosen,
            processes: Mutex::default(),
        }
    }

    /// Reads all processes, in the order of their numbers.
    pub(super) fn collect(&self) -> Vec<Sample> {
        let until = Instant::now() + PATIENCE;
        let all = self.known();
        let mut first: Vec<_> = all.iter().map(|(pid, it)| (*pid, it.clone())).collect();
        first.sort_by_key(|(_, known)| !known.is_up.load(Ordering::Relaxed));
        let queue: Queue = Arc::new(Mutex::new(first.into()));
        let (to, from) = mpsc::channel();
        for _ in 0..all.len().min(READERS_MAX) {
            let (queue, to) = (Arc::clone(&queue), to.clone());
            let reader = thread::Builder::new().stack_size(READER_STACK_BYTES);
            // Without one more thread those that are there read all.
            let _ = reader.spawn(move || read_all(&queue, &to, until));
        }
        drop(to);
        let mut samples = HashMap::new();
        while samples.len() < all.len() {
            let left = until.saturating_duration_since(Instant::now());
            let Ok(sample) = from.recv_timeout(left) else {
                break;
            };
            samples.insert(sample.pid, sample);
        }
        queue.lock().unwrap_or_else(PoisonError::into_inner).clear();
        let sample = |(pid, known): (u32, Arc<Known>)| {
            let sample = samples.remove(&pid);
            let sample = sample.unwrap_or_else(|| missing(pid, &known));
            let is_up = sample.reading.is_ok();
            known.is_up.store(is_up, Ordering::Relaxed);
            sample
        };
        all.into_iter().map(sample).collect()
    }

    /// The processes of this scrape, with what is kept of them.
    fn known(&self) -> Vec<(u32, Arc<Known>)> {
        let found;
        let pids = match &self.chosen {
            Chosen::These(pids) => pids,
            Chosen::All => {
                found = find::processes();
                &found
            }
        };
        let processes = self.processes.lock();
        let mut processes = processes.unwrap_or_else(PoisonError::into_inner);
        forget_ended(&mut processes, pids);
        let known = |&pid: &u32| {
            let new = || Arc::new(Known::new(pid));
            (pid, Arc::clone(processes.entry(pid).or_insert_with(new)))
        };
        pids.iter().map(known).collect()
    }
}

impl Known {
    fn new(pid: u32) -> Known {
        Known {
            watched: Watched::new(pid),
            is_up: AtomicBool::new(true),
            command: Mutex::default(),
        }
    }

    /// Returns the command's name, or the last one of a process that has ended.
    fn command(&self, pid: u32) -> String {
        let mut command = self.command.lock().unwrap_or_else(PoisonError::into_inner);
        if let Ok(name) = fs::read(format!("/proc/{pid}/comm")) {
            let name = String::from_utf8_lossy(&name);
            *command = name.trim_end_matches('\n').to_owned();
        }
        command.clone()
    }
}

/// Forgets the processes that have ended. One that was not found this time, because there was no
/// descriptor for the search, say, goes on counting when it is found again.
fn forget_ended(processes: &mut HashMap<u32, Arc<Known>>, found: &[u32]) {
    let is_there = |pid: u32| found.binary_search(&pid).is_ok() || Process::find(pid).is_ok();
    processes.retain(|&pid, _| is_there(pid));
}

fn read_all(queue: &Queue, to: &Sender<Sample>, until: Instant) {
    loop {
        let next = queue
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .pop_front();
        let Some((pid, known)) = next else {
            return;
        };
        let began = Instant::now();
        let reading = known.watched.read(until - RESERVE);
        let sample = Sample {
            pid,
            command: known.command(pid),
            reading,
            took: began.elapsed(),
        };
        if to.send(sample).is_err() {
            return;
        }
    }
}

fn missing(pid: u32, known: &Known) -> Sample {
    Sample {
        pid,
        command: known.command(pid),
        reading: Err(Failure::input(
            format!("process {pid} did not answer in time"),
            "see whether it hangs",
        )),
        took: PATIENCE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_is_not_found_once_is_not_forgotten() {
        const GONE: u32 = i32::MAX as u32;
        let own = std::process::id();
        let known = [own, GONE].map(|pid| (pid, Arc::new(Known::new(pid))));
        let mut processes = HashMap::from(known);
        forget_ended(&mut processes, &[]);
        assert!(processes.contains_key(&own) && !processes.contains_key(&GONE));
    }
}
