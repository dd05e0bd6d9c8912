//! `raddle metrics`: what processes count, as OpenMetrics, once or for each scrape.
//!
//! | module | noun |
//! |---|---|
//! | `find` | the processes that run under raddle |
//! | `reading` | what one process says at one moment |
//! | `groups` | its threads by their names, kept from scrape to scrape |
//! | `kernel_times` | CPU time of its carriers, kept likewise |
//! | `exporter` | the readings of all processes, made at the same time |
//! | `page` | the text |
//! | `server` | HTTP |
//!
//! The process does what it does for `raddle dump --stats`. Threads are read from outside.

mod exporter;
mod find;
mod groups;
mod kernel_times;
mod page;
mod reading;
mod server;

use std::process::ExitCode;

use anyhow::Result;

use crate::cli::MetricsArguments;
use crate::dump::process::Process;
use crate::failure::{Failure, say};
use crate::stdout::print;
use exporter::{Chosen, Exporter};

pub(crate) fn run(arguments: &MetricsArguments) -> Result<ExitCode> {
    let chosen = if arguments.all {
        Chosen::All
    } else {
        Chosen::These(checked(&arguments.pids)?)
    };
    let exporter = Exporter::new(chosen);
    if let Some(address) = arguments.listen {
        return server::serve(address, exporter);
    }
    let samples = exporter.collect();
    let mut is_whole = true;
    for failure in samples.iter().filter_map(|it| it.reading.as_ref().err()) {
        say(&failure.to_string());
        is_whole = false;
    }
    print(&page::text(samples)?)?;
    Ok(ExitCode::from(u8::from(!is_whole)))
}

/// Returns the processes, each once. Fails for one that never has metrics: it isn't there, isn't
/// ours or doesn't run under raddle.
fn checked(pids: &[u32]) -> Result<Vec<u32>, Failure> {
    let mut pids = pids.to_vec();
    pids.sort_unstable();
    pids.dedup();
    for &pid in &pids {
        let process = Process::find(pid)?;
        if !matches!(process.is_preloaded(), Ok(true)) {
            return Err(process.explain_silence());
        }
    }
    Ok(pids)
}
