//! The command line of `raddle bench`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

/// Measures the same unmodified programs natively and under raddle
///
/// Each program runs natively on all CPUs, natively on one CPU, under raddle with one carrier and
/// with the default number, interleaved over several rounds. The table shows medians and how many
/// times better raddle's is. What is not installed is skipped with a line.
#[derive(Args)]
#[command(after_help = "\
Examples:
  raddle bench pingpong
  raddle bench all --rounds 5 --json results.jsonl
  raddle bench http --fraction 0.2
  raddle bench servers tomcat memcached --rounds 5")]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct BenchArguments {
    #[command(subcommand)]
    pub command: Option<BenchCommand>,

    /// What to measure
    #[arg(required = true)]
    pub group: Option<Group>,

    /// How often each program runs in each way
    #[arg(long, default_value = "3", value_parser = parse_count)]
    pub rounds: u32,

    /// Appends the results to this file, one JSON document a line, with facts of the machine
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,

    /// Does only this part of each program's work, above 0 up to 1: a quick, noisier look
    #[arg(long, default_value = "1", value_parser = parse_fraction)]
    pub fraction: f64,

    /// Ends a program that takes longer, and says so
    #[arg(long, value_name = "SECONDS", default_value = "120", value_parser = parse_count)]
    pub limit: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Group {
    /// Two threads hand a turn to each other: C, Java, Python, C#, and peers
    Pingpong,
    /// sched_yield between two threads
    Yield,
    /// pthread_create and pthread_join
    Create,
    /// Child processes: fork with exec and without, before and after a thread, and shells
    Fork,
    /// From waking a thread to its running
    Wakeup,
    /// Files: reads from memory and from the disk, fsync
    Disk,
    /// Threads that compute: their shares, and a sleeper among them
    Fairness,
    /// Threads that wait in the kernel: how late others wake
    Handoff,
    /// How long others wait beside threads that compute, read, or are stuck in the kernel
    Latency,
    /// Tables of handles: ours, and others behind mutexes and without
    Handles,
    /// Yields of kernel threads, of UMS workers and of fibers
    Ums,
    /// An HTTP server with a thread a connection, under wrk
    Http,
    /// System calls, start-up, and a program that only computes
    Overhead,
    /// Threads of the API beside kernel threads, and what may and tokio have instead
    Api,
    /// Thread pools: queueing and draining work, Raddle's, rayon and one queue under a mutex
    Pool,
    /// All of these
    All,
}

#[derive(Subcommand)]
pub(crate) enum BenchCommand {
    Servers(ServersArguments),
    Insight(InsightArguments),
}

/// Measures real servers natively and under raddle, from their start to a steady state
///
/// Each server is started in the four ways by turns and loaded from the moment it listens, by a
/// client that runs natively. Windows of some seconds follow one another; each gives the rate, the
/// median and the 99th percentile of the latency, and the server's CPU time a request. What is not
/// installed is skipped with a line that says how to get it.
#[derive(Args)]
#[command(after_help = "\
Examples:
  raddle bench servers --list
  raddle bench servers tomcat memcached --rounds 5 --json results.jsonl
  raddle bench servers mariadb --clients 16,128
  raddle bench servers nginx --rate 10,50,90
  raddle bench servers memcached --side-by-side --rounds 1 --windows 20 --seconds 1")]
pub(crate) struct ServersArguments {
    /// Which servers; without a name all that are installed
    #[arg(value_name = "SERVER")]
    pub servers: Vec<String>,

    /// Prints the servers, and what the missing ones need
    #[arg(long)]
    pub list: bool,

    /// How often each server runs in each way
    #[arg(long, default_value = "3", value_parser = parse_count)]
    pub rounds: u32,

    /// Windows from a server's start to its end
    #[arg(long, default_value = "6", value_parser = parse_count)]
    pub windows: u32,

    /// The length of a window
    #[arg(long, default_value = "3", value_parser = parse_count)]
    pub seconds: u32,

    /// Numbers of clients, instead of each server's own
    #[arg(long, value_name = "NUMBER[,NUMBER]", value_delimiter = ',', value_parser = parse_count)]
    pub clients: Vec<u32>,

    /// Requests at a constant rate after the windows: these percentages of the rate that the
    /// server reaches natively. The latency counts from the time at which a request was due
    #[arg(long, value_name = "PERCENT[,PERCENT]", value_delimiter = ',',
        value_parser = parse_percent)]
    pub rate: Vec<u32>,

    /// Runs the server in all ways at the same time, and loads each for a window by turns. The
    /// second half of the windows counts: the median of the ratios of neighbours in time. For
    /// machines that change their speed
    #[arg(long, conflicts_with_all = ["rate", "port"])]
    pub side_by_side: bool,

    /// The servers' port, instead of free ones
    #[arg(long, value_parser = parse_port)]
    pub port: Option<u16>,

    /// Appends the results to this file, one JSON document a line, with facts of the machine
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

impl ServersArguments {
    /// Those of a run without windows.
    pub(crate) fn of_names(servers: &[String]) -> ServersArguments {
        ServersArguments {
            servers: servers.to_vec(),
            list: false,
            rounds: 1,
            windows: 1,
            seconds: 1,
            clients: Vec::new(),
            rate: Vec::new(),
            side_by_side: false,
            port: None,
            json: None,
        }
    }
}

/// Measures what record, trace, top and locks cost a server that they watch
///
/// One server runs under raddle and is loaded in windows; a tool watches it in every second window.
/// A ratio of 0.99 is a rate of one percent less than in the windows around it.
#[derive(Args)]
#[command(after_help = "\
Examples:
  raddle bench insight c --clients 500 --rounds 9
  raddle bench insight mariadb --clients 128")]
pub(crate) struct InsightArguments {
    /// Which servers; `raddle bench servers --list` names them
    #[arg(value_name = "SERVER", required = true)]
    pub servers: Vec<String>,

    /// How often each tool watches
    #[arg(long, default_value = "5", value_parser = parse_count)]
    pub rounds: u32,

    /// The length of a window
    #[arg(long, default_value = "3", value_parser = parse_count)]
    pub seconds: u32,

    /// Numbers of clients, instead of each server's own
    #[arg(long, value_name = "NUMBER[,NUMBER]", value_delimiter = ',', value_parser = parse_count)]
    pub clients: Vec<u32>,
}

/// The commands that stand beside the values of an argument.
pub(super) fn beside(argument: &str) -> &'static str {
    if argument == "GROUP" {
        ", servers, insight"
    } else {
        ""
    }
}

fn parse_count(text: &str) -> Result<u32, String> {
    let count = text
        .parse()
        .ok()
        .filter(|count| (1..=10_000).contains(count));
    count.ok_or_else(|| "give a number from 1 to 10000".into())
}

fn parse_fraction(text: &str) -> Result<f64, String> {
    let fraction = text
        .parse()
        .ok()
        .filter(|&fraction| fraction > 0.0 && fraction <= 1.0);
    fraction.ok_or_else(|| "give a number above 0 and up to 1".into())
}

fn parse_percent(text: &str) -> Result<u32, String> {
    let percent = text.parse().ok();
    let allowed = percent.filter(|percent| (1..=200).contains(percent));
    allowed.ok_or_else(|| "give percentages from 1 to 200, with commas between them".into())
}

fn parse_port(text: &str) -> Result<u16, String> {
    let port = text.parse().ok().filter(|&port| port >= 1);
    port.ok_or_else(|| "give a number from 1 to 65535".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_outside_their_range_are_refused() {
        assert!(parse_fraction("0").is_err() && parse_fraction("NaN").is_err());
        assert_eq!(parse_fraction("0.5"), Ok(0.5));
        assert!(parse_percent("0").is_err() && parse_percent("201").is_err());
        assert_eq!(parse_percent("90"), Ok(90));
        assert!(parse_port("0").is_err() && parse_port("65536").is_err());
    }
}
