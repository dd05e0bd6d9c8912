//! The flags of `raddle metrics`.

use std::net::{SocketAddr, ToSocketAddrs};

use clap::Args;

use super::parse_pid;

/// Prints counters of processes as OpenMetrics, or serves them for Prometheus
///
/// All figures are read from outside, or are those that the process counts in any case.
#[derive(Args)]
#[command(after_help = "\
Examples:
  raddle metrics 4242
  raddle metrics --all --listen 9095      # http://127.0.0.1:9095/metrics
  raddle metrics --listen 0.0.0.0:9095 4242 4243

A process that is stopped, hangs or has ended has `raddle_up 0`. A scrape waits for it for two
seconds at most, while it reads the others. docs/observability.md lists the metrics.

Exit status: 0; 1 if a process did not answer; 2 if a process is not there, is not ours or does not
run under raddle, or if the address can't be used.")]
pub(crate) struct MetricsArguments {
    /// The processes, started by `raddle run`
    #[arg(value_name = "PID", value_parser = parse_pid, required_unless_present = "all")]
    pub pids: Vec<u32>,

    /// All processes of this user that run under raddle, found anew at each scrape; as root, those
    /// of all users
    #[arg(long, conflicts_with = "pids")]
    pub all: bool,

    /// Serves the metrics at /metrics: an address with its port, or a port of 127.0.0.1
    #[arg(long, value_name = "ADDR", value_parser = parse_address)]
    pub listen: Option<SocketAddr>,
}

/// The first address that the text stands for.
fn parse_address(text: &str) -> Result<SocketAddr, String> {
    let port = text.strip_prefix(':').unwrap_or(text).parse::<u16>();
    if let Ok(port) = port {
        return Ok(SocketAddr::from(([127, 0, 0, 1], port)));
    }
    let addresses = text.to_socket_addrs().ok();
    let first = addresses.and_then(|mut addresses| addresses.next());
    first.ok_or_else(|| "give a port, or an address with one, like 127.0.0.1:9095".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_alone_is_one_of_this_machine() {
        for text in ["9095", ":9095", "127.0.0.1:9095"] {
            let address = parse_address(text).unwrap();
            assert_eq!(address.to_string(), "127.0.0.1:9095", "{text}");
        }
        assert_eq!(parse_address("[::1]:1").unwrap().to_string(), "[::1]:1");
        for text in ["", ":", "65536", "-1", "127.0.0.1", "1.2.3.4:x", "/tmp/x"] {
            assert!(parse_address(text).is_err(), "{text}");
        }
    }
}
