//! The settings of a process: environment variables and the limits of their values. The tool sets
//! the variables and the runtime in the process reads them.

use core::ops::RangeInclusive;

/// Carriers; [`CARRIERS_MAX`] at most.
pub const CARRIERS: &str = "RADDLE_CARRIERS";
/// The CPUs that the program sees.
pub const CPUS: &str = "RADDLE_CPUS";
/// The seed of chaos.
pub const CHAOS: &str = "RADDLE_CHAOS";
/// The quantum; 0 or a number of [`QUANTA_US`].
pub const QUANTUM: &str = "RADDLE_QUANTUM_US";
/// Green threads at a time; [`THREADS_MAX`] at most.
pub const MAX_THREADS: &str = "RADDLE_MAX_THREADS";
/// Runnable threads at a time; [`THREADS_MAX`] at most.
pub const MAX_RUNNABLE: &str = "RADDLE_MAX_RUNNABLE";
/// Extra carriers; [`CARRIERS_MAX`] at most.
pub const EXTRA_CARRIERS: &str = "RADDLE_EXTRA_CARRIERS";
/// 1 for lines about the start.
pub const VERBOSE: &str = "RADDLE_VERBOSE";
/// Milliseconds between two looks for deadlocks, or 0 for none. The tool alone reads it.
pub const WATCH_DEADLOCKS: &str = "RADDLE_WATCH_DEADLOCKS";
/// `1`, or a folder for the files of crashes: events are recorded from the start. `0` or nothing is
/// off.
pub const FLIGHT_RECORDER: &str = "RADDLE_FLIGHT_RECORDER";
/// A policy's name, or a plug-in's path.
pub const POLICY: &str = "RADDLE_POLICY";
/// Shares of threads.
pub const SHARE: &str = "RADDLE_SHARE";
/// Threads that are bound.
pub const EXCLUDE: &str = "RADDLE_EXCLUDE";

/// The most carriers that can be asked for.
pub const CARRIERS_MAX: u32 = 1024;
/// The most threads of a process.
pub const THREADS_MAX: u32 = 1 << 20;
/// Quanta that can be asked for, in microseconds.
pub const QUANTA_US: RangeInclusive<u32> = 50..=1_000_000;
/// The largest quota of an engine, in percent of one CPU.
pub const QUOTA_MAX_PERCENT: u32 = 102_400;
/// The most carriers of an engine beside the default one.
pub const ENGINE_CARRIERS_MAX: u32 = 64;
