//! What the environment says about numbers.

use crate::environment::Environment;
use crate::why::Why;
use raddle_engine::chaos;
use raddle_engine::engine::MAX_WANTED;
use raddle_engine::thread::MAX_THREADS;
use raddle_sched::policy::QUANTUM_NS;

/// Quanta that can be asked for, in microseconds.
const QUANTUM_US: core::ops::RangeInclusive<u32> = 50..=1_000_000;

/// How many carriers are asked for; 0 for as many as CPUs.
pub fn carriers(environment: &Environment) -> Result<u32, Why> {
    match environment.get(b"RADDLE_CARRIERS") {
        None | Some(b"") => Ok(0),
        Some(_) => environment
            .number(b"RADDLE_CARRIERS")
            .filter(|n| (1..=MAX_WANTED).contains(n))
            .ok_or(Why::Carriers),
    }
}

/// The most extra carriers; `None` if none are asked for.
///
/// # Errors
/// [`Why::ExtraCarriers`] if it is no such number.
pub fn extra_carriers(environment: &Environment) -> Result<Option<u32>, Why> {
    match environment.get(b"RADDLE_EXTRA_CARRIERS") {
        None | Some(b"") => Ok(None),
        Some(_) => environment
            .number(b"RADDLE_EXTRA_CARRIERS")
            .filter(|most| (0..=MAX_WANTED).contains(most))
            .map(Some)
            .ok_or(Why::ExtraCarriers),
    }
}

/// How many CPUs the program is shown; `None` for the machine's whatever happens, 0 for those of
/// its mask.
pub fn cpus(environment: &Environment) -> Result<Option<u32>, Why> {
    match environment.get(b"RADDLE_CPUS") {
        None | Some(b"" | b"carriers") => carriers(environment).map(Some),
        Some(b"machine") => Ok(None),
        Some(_) => Err(Why::Cpus),
    }
}

/// The seed of chaos; 0 for none.
pub fn seed(environment: &Environment) -> Result<u32, Why> {
    match environment.get(b"RADDLE_CHAOS") {
        None | Some(b"") => Ok(0),
        Some(_) => environment.number(b"RADDLE_CHAOS").ok_or(Why::Chaos),
    }
}

/// How many green threads there may be at a time, by this variable; 0 for no limit.
pub fn limit(environment: &Environment, name: &[u8], why: Why) -> Result<u32, Why> {
    match environment.get(name) {
        None | Some(b"") => Ok(0),
        Some(_) => environment
            .number(name)
            .filter(|n| (1..=MAX_THREADS as u32).contains(n))
            .ok_or(why),
    }
}

/// How long a thread may compute before others get a turn.
pub fn quantum_ns(environment: &Environment) -> Result<u64, Why> {
    match environment.get(b"RADDLE_QUANTUM_US") {
        None | Some(b"") if chaos::is_on() => Ok(chaos::QUANTUM_NS),
        None | Some(b"") => Ok(QUANTUM_NS),
        Some(b"0") => Ok(u64::MAX),
        Some(_) => environment
            .number(b"RADDLE_QUANTUM_US")
            .filter(|us| QUANTUM_US.contains(us))
            .map(|us| u64::from(us) * 1000)
            .ok_or(Why::Quantum),
    }
}
