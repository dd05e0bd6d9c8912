//! The flags of `raddle ctl`.

use clap::{Args, Subcommand, ValueEnum};
use raddle_inspect::policy::Kind;

use super::{CARRIERS_MAX, parse_pid, parse_quantum};
use crate::run::policy::Part;

/// Changes a running program's carriers, quantum, policy or shares, or has it record events
#[derive(Args)]
#[command(after_help = "\
Examples:
  raddle ctl 4242 carriers 4
  raddle ctl 4242 carriers auto
  raddle ctl 4242 quantum 500
  raddle ctl 4242 policy fair
  raddle ctl 4242 share 1 50%
  raddle ctl 4242 share 2 none
  raddle ctl 4242 flight-recorder on")]
pub(crate) struct CtlArguments {
    /// The process, started by `raddle run`
    #[arg(value_parser = parse_pid)]
    pub pid: u32,

    #[command(subcommand)]
    pub change: Change,
}

#[derive(Subcommand)]
pub(crate) enum Change {
    /// Kernel threads that run green threads
    Carriers {
        /// 1 to 1024, or auto for as many as CPUs may be used
        #[arg(value_name = "CARRIERS", value_parser = parse_carriers_or_auto)]
        count: u16,
    },
    /// How long a thread may compute while others wait
    Quantum {
        /// Microseconds, 50 to 1000000; 0 for no limit
        #[arg(value_name = "US", value_parser = parse_quantum)]
        us: u32,
    },
    /// Which runnable thread runs next; without a name says which policy it is
    Policy {
        /// fifo, lifo, priority, fair or deadline
        #[arg(value_name = "POLICY", value_parser = parse_policy)]
        policy: Option<Kind>,
    },
    /// What the threads of one rule of `raddle run --share` get
    Share {
        /// The rule, from 1 in the order of the flags; or an engine, by the number that dump shows
        #[arg(value_name = "NUMBER", value_parser = parse_rule)]
        number: u32,
        /// 30% for a quota, none to end one, 25 for another share
        #[arg(value_name = "PART", value_parser = parse_part)]
        part: Allotment,
    },
    /// Keeps the latest events of each carrier, for `raddle trace --last`
    #[command(alias = "record")]
    FlightRecorder {
        /// On, until it is off again, or off
        #[arg(value_enum)]
        switch: Switch,
        /// How many events of each carrier are kept, rounded up to a power of two, 1024 to 4194304;
        /// 24 bytes each. The largest number that was asked for counts
        #[arg(long, value_name = "EVENTS", default_value = "65536", value_parser = parse_events)]
        events: u32,
    },
}

/// On or off.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Switch {
    On,
    Off,
}

/// 0 for auto.
fn parse_carriers_or_auto(text: &str) -> Result<u16, String> {
    if text == "auto" {
        return Ok(0);
    }
    let carriers = text.parse().ok();
    let allowed = carriers.filter(|carriers| (1..=CARRIERS_MAX).contains(carriers));
    allowed.ok_or_else(|| format!("give auto or a number from 1 to {CARRIERS_MAX}"))
}

fn parse_policy(text: &str) -> Result<Kind, String> {
    let kind = Kind::from_name(text.as_bytes());
    kind.ok_or_else(|| "name fifo, lifo, priority, fair or deadline".into())
}

fn parse_rule(text: &str) -> Result<u32, String> {
    let number = text.parse().ok();
    number
        .filter(|number| (1..=63).contains(number))
        .ok_or_else(|| "give a number from 1 to 63".into())
}

/// The part that `raddle ctl PID share` gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Allotment {
    /// Percent of one CPU; 0 for all.
    Quota(u32),
    /// Hundredths of the carriers' time while others want it.
    Weight(u32),
}

fn parse_part(text: &str) -> Result<Allotment, String> {
    match Part::parse(text) {
        _ if text == "none" => Ok(Allotment::Quota(0)),
        Some(Part::Weight(percent)) => Ok(Allotment::Weight(percent)),
        Some(Part::Engine { quota, carriers: 0 }) => Ok(Allotment::Quota(quota)),
        _ => Err("give a share from 1 to 99, a quota like 30%, or none".into()),
    }
}

/// Events of a carrier.
fn parse_events(text: &str) -> Result<u32, String> {
    let allowed = text.parse().ok();
    let allowed = allowed.filter(|events| (1 << 10..=1 << 22).contains(events));
    allowed.ok_or_else(|| "give --events a number from 1024 to 4194304".into())
}
