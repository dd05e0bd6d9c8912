//! `raddle dump --deadlocks`: waits that can't end.
//!
//! The process is read twice, with a pause; what was the same both times is reported. Without a
//! suspicion at the first reading there is no second one.

use std::collections::HashMap;
use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use raddle_record::text::quoted;
use raddle_stacks::locks::{Deadlock, Edge, Waits, Why, confirmed, deadlocks};

use super::filter::Filter;
use super::lines::{count, seconds};
use super::stacks::{NONSENSE, OldWaits, Subject, Taken, doing};
use super::{Facts, Shown, document, groups, sitting, understand, waits};
use crate::cli::DumpArguments;
use crate::failure::say;
use crate::stdout::stdout;

/// The exit status for a process with a deadlock.
const HAS_DEADLOCK: u8 = 3;
/// Between the two readings.
const PAUSE: Duration = Duration::from_millis(30);
/// The most ids that are listed.
const LISTED_MAX: usize = 8;

/// What two readings have found.
pub(crate) struct Findings {
    taken: Taken,
    pub deadlocks: Vec<Deadlock>,
}

/// Reads a process twice. `None` if its tables make no sense.
pub(crate) fn find(subject: &Subject, may_attach: bool) -> Result<Option<Findings>> {
    let read = || subject.take(&Filter::default(), OldWaits::Kept, may_attach);
    let Some((taken, first)) = read()? else {
        return Ok(None);
    };
    if deadlocks(&first).is_empty() {
        return Ok(Some(Findings {
            taken,
            deadlocks: Vec::new(),
        }));
    }
    std::thread::sleep(PAUSE);
    Ok(read()?.map(|(taken, second)| Findings {
        taken,
        deadlocks: confirmed(&first, &second),
    }))
}

pub(super) fn run(arguments: &DumpArguments) -> Result<ExitCode> {
    let pid = arguments.pid.unwrap_or_default();
    let read = match Subject::open(pid)? {
        Ok(subject) => {
            find(&subject, !arguments.stacks.no_attach)?.ok_or_else(|| NONSENSE.to_owned())
        }
        Err(missing) => Err(missing),
    };
    let findings = match read {
        Ok(findings) => findings,
        Err(missing) => {
            say(&missing);
            return Ok(ExitCode::FAILURE);
        }
    };
    findings.show(pid, arguments)
}

impl Findings {
    /// What one reading has found of a core, in which nothing moves.
    pub(super) fn of_core(taken: Taken, waits: &Waits) -> Findings {
        Findings {
            taken,
            deadlocks: deadlocks(waits),
        }
    }

    /// Prints the deadlocks. Returns the exit status.
    pub(super) fn show(&self, pid: u32, arguments: &DumpArguments) -> Result<ExitCode> {
        let how = Shown::of(&arguments.stacks);
        let mut out = io::BufWriter::new(stdout());
        if arguments.json {
            let snapshot = understand(pid, &self.taken.snapshot)?;
            let facts = Facts {
                pid,
                statistics: None,
                usage: None,
                sitting: match arguments.from {
                    Some(_) => Vec::new(),
                    None => sitting(pid, &snapshot),
                },
                stacks: Some(&self.taken),
                missing: None,
                shown: how,
                deadlocks: Some(&self.deadlocks),
            };
            let document = document::Document::new(&facts, &snapshot);
            serde_json::to_writer_pretty(&mut out, &document).map_err(io::Error::from)?;
            writeln!(out)?;
        } else {
            if let Some(missing) = self
                .taken
                .silence
                .as_ref()
                .or(self.taken.java_missing.as_ref())
            {
                say(missing);
            }
            self.write(pid, &how, &mut out)?;
        }
        out.flush()?;
        Ok(if self.deadlocks.is_empty() {
            ExitCode::SUCCESS
        } else {
            ExitCode::from(HAS_DEADLOCK)
        })
    }

    /// Writes the deadlocks as text, each thread with its stack.
    pub(crate) fn write(&self, pid: u32, how: &Shown, out: &mut impl Write) -> Result<()> {
        let threads = count(self.taken.green() as u64, "green thread");
        if self.deadlocks.is_empty() {
            writeln!(out, "process {pid}: no deadlock among {threads}")?;
            return Ok(());
        }
        let found = count(self.deadlocks.len() as u64, "deadlock");
        writeln!(out, "process {pid}: {found} among {threads}")?;
        let snapshot = understand(pid, &self.taken.snapshot)?;
        for (number, deadlock) in self.deadlocks.iter().enumerate() {
            writeln!(out)?;
            let headline = format!("deadlock {}: {}", number + 1, headline(deadlock));
            groups::headline(how, &headline, out)?;
            self.write_edges(how, deadlock, snapshot.header().now_ns, out)?;
            if !deadlock.behind.is_empty() {
                let others = count(deadlock.behind.len() as u64, "other thread");
                writeln!(out, "{others} behind: {}", listed(&deadlock.behind))?;
            }
        }
        Ok(())
    }

    /// Writes the waits of a deadlock. Equal ones, with equal stacks, are written once.
    fn write_edges(
        &self,
        how: &Shown,
        deadlock: &Deadlock,
        now_ns: u64,
        out: &mut impl Write,
    ) -> io::Result<()> {
        let mut order: Vec<(String, Vec<&Edge>)> = Vec::new();
        let mut places: HashMap<String, usize> = HashMap::new();
        for edge in &deadlock.edges {
            let wait = waits::object(&self.taken, edge) + &waits::owner(&self.taken, edge);
            let stack = self.taken.threads.get(&edge.waiter).map(|it| it.stack);
            // Only threads of no cycle can be alike.
            let key = match deadlock.why {
                Why::Asleep => format!("{wait} {stack:?}"),
                _ => edge.waiter.to_string(),
            };
            let next = order.len();
            let place = *places.entry(key).or_insert(next);
            match order.get_mut(place) {
                Some((_, edges)) => edges.push(edge),
                None => order.push((wait, vec![edge])),
            }
        }
        for (wait, edges) in &order {
            self.write_edge(how, wait, edges, now_ns, out)?;
        }
        Ok(())
    }

    fn write_edge(
        &self,
        how: &Shown,
        wait: &str,
        edges: &[&Edge],
        now_ns: u64,
        out: &mut impl Write,
    ) -> io::Result<()> {
        let threads = &self.taken.threads;
        let Some(captured) = edges.first().and_then(|edge| threads.get(&edge.waiter)) else {
            return Ok(());
        };
        let record = &captured.record;
        let waited = match record.since_ns {
            0 => String::new(),
            since_ns => format!(", for {}", seconds(now_ns.saturating_sub(since_ns))),
        };
        let name = quoted(record.name_bytes());
        let waits = match edges.len() - 1 {
            0 => "waits".into(),
            more => format!("and {} like it wait", count(more as u64, "thread")),
        };
        let line = format!("#{} {name} {waits} for: {wait}{waited}", record.tid);
        groups::headline(how, &line, out)?;
        if let Some(doing) = doing(captured.kind) {
            writeln!(out, "    ({doing})")?;
        }
        groups::write_stack(how, &self.taken, captured, out)
    }
}

fn headline(deadlock: &Deadlock) -> String {
    let threads = count(deadlock.edges.len() as u64, "thread");
    match (deadlock.why, deadlock.edges.len()) {
        (Why::Cycle, 1) => "a thread waits for itself".into(),
        (Why::Cycle, _) => format!("{threads}, each of which waits for the next"),
        (Why::OwnerEnded, _) => "the owner of a lock has ended".into(),
        (Why::Asleep, 1) => "the only thread waits, and nothing can wake it".into(),
        (Why::Asleep, _) => format!("all {threads} wait, and nothing can wake one"),
    }
}

fn listed(tids: &[u32]) -> String {
    let shown = tids.iter().take(LISTED_MAX).map(|tid| format!("#{tid}"));
    let mut text = shown.collect::<Vec<_>>().join(" ");
    if tids.len() > LISTED_MAX {
        text += " ...";
    }
    text
}
