//! What one process says at one moment.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use raddle_inspect::{
    CarrierRecord, CarrierState, Header, Layout, Request, RequestKind, Snapshot, Totals,
};
use raddle_stacks::{ProcessMemory, Refusal, kernel_numbers};

use super::groups::{GroupRow, Groups};
use super::kernel_times::{KernelTime, KernelTimes};
use crate::dump::connect;
use crate::dump::process::Process;
use crate::failure::Failure;

/// The most carriers that have rows of their own.
pub(super) const CARRIERS_MAX: usize = 128;

/// How long an answer may take that has begun.
const ANSWER_PATIENCE: Duration = Duration::from_millis(100);

/// See the module.
pub(super) struct Reading {
    pub header: Header,
    pub carriers: Vec<CarrierRecord>,
    pub totals: Totals,
    /// Of the first [`CARRIERS_MAX`] carriers.
    pub kernel: Vec<Option<KernelTime>>,
    /// `None` if the table of threads can't be read.
    pub groups: Option<GroupTable>,
}

/// The threads by their names.
pub(super) struct GroupTable {
    pub rows: Vec<GroupRow>,
    /// How old the oldest of the looks is that they are made of.
    pub age_s: f64,
}

/// A process that is read at each scrape.
pub(super) struct Watched {
    pid: u32,
    retained: Mutex<Retained>,
}

/// What is retained from one reading to the next.
#[derive(Default)]
struct Retained {
    /// When the engine began that the others are of.
    started_ns: u64,
    groups: Groups,
    times: KernelTimes,
    /// The memory can be read only while the process declares this one as its tracer.
    needs_right: bool,
}

impl Watched {
    pub(super) fn new(pid: u32) -> Watched {
        Watched {
            pid,
            retained: Mutex::default(),
        }
    }

    /// Reads the process, until some time at most.
    pub(super) fn read(&self, until: Instant) -> Result<Reading, Failure> {
        let pid = self.pid;
        let process = Process::find(pid)?;
        if let Some(stopped) = process.is_stopped() {
            return Err(stopped);
        }
        let Ok(mut retained) = self.retained.try_lock() else {
            return Err(Failure::input(
                format!("process {pid} has not answered the request before"),
                "see whether it hangs",
            ));
        };
        let value = u64::from(retained.needs_right);
        let request = Request::new(RequestKind::METRICS, value);
        let (answer, connection) = connect::open_until(&process, &request, until, ANSWER_PATIENCE)?;
        let mut reading = parse(pid, &answer)?;
        if retained.started_ns != reading.header.started_ns {
            *retained = Retained {
                started_ns: reading.header.started_ns,
                needs_right: retained.needs_right,
                ..Retained::default()
            };
        }
        // Without a layout of this version there are the process's own figures.
        if let Some(layout) = layout(&answer) {
            let memory = ProcessMemory::of(pid);
            match memory.probe(layout.used) {
                Ok(()) => reading.groups = retained.groups.look(&memory, &layout, until),
                Err(Refusal::Forbidden) => retained.needs_right = true, // next time
                Err(_) => {}
            }
        }
        drop(connection);
        reading.kernel = retained.kernel_times(pid, &reading.carriers);
        // What was read is of one program.
        process.check_program()?;
        Ok(reading)
    }
}

impl Retained {
    /// Reads the times of the first [`CARRIERS_MAX`] carriers.
    fn kernel_times(&mut self, pid: u32, carriers: &[CarrierRecord]) -> Vec<Option<KernelTime>> {
        let numbers = kernel_numbers(pid);
        let time = |(number, carrier): (usize, &CarrierRecord)| {
            let own = carrier.kernel_tid;
            let tid = numbers.get(&own).copied().unwrap_or(own);
            let is_there = carrier.state != CarrierState::ENDED && tid != 0;
            let now = is_there.then(|| KernelTime::read(pid, tid)).flatten();
            self.times.note(number, tid, now)
        };
        let shown = carriers.iter().take(CARRIERS_MAX).enumerate();
        shown.map(time).collect()
    }
}

fn another_version(pid: u32) -> Failure {
    Failure::input(
        format!("process {pid} runs under another version of raddle"),
        "use that one's metrics",
    )
}

fn parse(pid: u32, answer: &[u8]) -> Result<Reading, Failure> {
    let snapshot = Snapshot::parse(answer).map_err(|_| another_version(pid))?;
    let behind = snapshot.header().total_bytes().unwrap_or(answer.len());
    let totals = answer.get(behind..).and_then(Totals::parse);
    Ok(Reading {
        header: *snapshot.header(),
        carriers: snapshot.carriers().collect(),
        totals: totals.ok_or_else(|| another_version(pid))?,
        kernel: Vec::new(),
        groups: None,
    })
}

/// The layout, at the end of the answer.
fn layout(answer: &[u8]) -> Option<Layout> {
    let at = answer.len().checked_sub(size_of::<Layout>())?;
    Layout::parse(&answer[at..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_answer_is_refused() {
        assert!(parse(1, &[]).is_err() && parse(1, &[7; 9000]).is_err());
        let mut answer = Header::new().as_bytes().to_vec();
        assert!(parse(1, &answer).is_err());
        answer.extend_from_slice(Totals::NONE.as_bytes());
        assert!(parse(1, &answer).is_ok() && layout(&answer).is_none());
        assert!(layout(&[]).is_none());
    }

    use raddle_inspect::Wire;
}
