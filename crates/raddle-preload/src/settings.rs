//! What the environment says about numbers.

use crate::environment::Environment;
use crate::why::Why;
use raddle_engine::chaos;
use raddle_inspect::settings::{self, CARRIERS_MAX, QUANTA_US, THREADS_MAX};
use raddle_sched::policy::QUANTUM_NS;

/// How many carriers are asked for; 0 for as many as CPUs.
pub(crate) fn carriers(environment: &Environment) -> Result<u32, Why> {
    match environment.get(settings::CARRIERS) {
        None | Some(b"") => Ok(0),
        Some(_) => environment
            .number(settings::CARRIERS)
            .filter(|n| (1..=CARRIERS_MAX).contains(n))
            .ok_or(Why::Carriers),
    }
}

/// The most extra carriers; `None` if none are asked for.
///
/// # Errors
/// [`Why::ExtraCarriers`] if it is no such number.
pub(crate) fn extra_carriers(environment: &Environment) -> Result<Option<u32>, Why> {
    match environment.get(settings::EXTRA_CARRIERS) {
        None | Some(b"") => Ok(None),
        Some(_) => environment
            .number(settings::EXTRA_CARRIERS)
            .filter(|most| (0..=CARRIERS_MAX).contains(most))
            .map(Some)
            .ok_or(Why::ExtraCarriers),
    }
}

/// How many CPUs the program is shown; `None` for the machine's whatever happens, 0 for those of
/// its mask.
pub(crate) fn cpus(environment: &Environment) -> Result<Option<u32>, Why> {
    match environment.get(settings::CPUS) {
        None | Some(b"" | b"carriers") => carriers(environment).map(Some),
        Some(b"machine") => Ok(None),
        Some(_) => Err(Why::Cpus),
    }
}

/// The seed of chaos; 0 for none.
pub(crate) fn seed(environment: &Environment) -> Result<u32, Why> {
    match environment.get(settings::CHAOS) {
        None | Some(b"") => Ok(0),
        Some(_) => environment.number(settings::CHAOS).ok_or(Why::Chaos),
    }
}

/// The current folder, with the zero behind it that a path needs.
static HERE: [u8; 2] = *b".\0";

/// The folder for files of crashes, if events are recorded from the start.
pub(crate) fn flight_recorder(environment: &Environment) -> Option<&'static [u8]> {
    match environment.get(settings::FLIGHT_RECORDER)? {
        b"" | b"0" => None,
        b"1" => Some(&HERE[..1]),
        folder => Some(folder),
    }
}

/// How many green threads there may be at a time, by this variable; 0 for no limit.
pub(crate) fn limit(environment: &Environment, name: &str, why: Why) -> Result<u32, Why> {
    match environment.get(name) {
        None | Some(b"") => Ok(0),
        Some(_) => environment
            .number(name)
            .filter(|n| (1..=THREADS_MAX).contains(n))
            .ok_or(why),
    }
}

/// How long a thread may compute before others get a turn.
pub(crate) fn quantum_ns(environment: &Environment) -> Result<u64, Why> {
    match environment.get(settings::QUANTUM) {
        None | Some(b"") if chaos::is_on() => Ok(chaos::QUANTUM_NS),
        None | Some(b"") => Ok(QUANTUM_NS),
        Some(b"0") => Ok(u64::MAX),
        Some(_) => environment
            .number(settings::QUANTUM)
            .filter(|us| QUANTA_US.contains(us))
            .map(|us| u64::from(us) * 1000)
            .ok_or(Why::Quantum),
    }
}
