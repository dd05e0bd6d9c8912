//! The wire format of an inspection snapshot, which a process under Raddle sends to `raddle dump`.
//!
//! The server inside the process and the tool outside share this crate: it is `no_std`, without
//! allocation and without dependencies.
//!
//! Nouns: a *snapshot* is the state of one process at one moment; a *record* is one carrier or one
//! green thread in it; a *code* is a number on the wire that has a name here ([`ThreadState`],
//! [`CarrierState`], [`WaitKind`]).
//!
//! Protocol:
//!
//! 1. The process listens on the abstract Unix stream socket of [`SocketName`]: the first name, or
//!    the second one if another process has the first.
//! 2. The process accepts, maps a page of a memory file with the name [`PROOF_NAME`] and random
//!    digits, and writes [`PROOF_WANTED`]. It closes the connection of a user that can't prove
//!    anything.
//! 3. The tool finds the digits in `/proc/PID/maps`, which the kernel shows only to processes that
//!    may inspect this one, and writes them and a [`Request`]. With other digits the process closes
//!    the connection.
//! 4. The process writes one [`Header`], [`Header::carriers`] times a [`CarrierRecord`],
//!    [`Header::threads`] times a [`ThreadRecord`], and closes.
//! 5. The tool reads all of it and checks it by [`Snapshot::parse`].
//!
//! A later version may append fields to each structure. It raises [`Header::version`] and writes
//! its sizes to the header; a reader steps by these sizes and reads the fields that it knows. A
//! field never changes its place or meaning, and a code is never reused.
//!
//! Integers are little-endian and no structure has padding, so that a structure in memory is its
//! own wire form: the server copies, it does not encode.
//!
//! Rejected: JSON from the process (formatting and allocation on a path that must work when the
//! program is out of memory); a serialization library (nothing here needs one); enums on the wire
//! (a number from a later version would be undefined behaviour instead of an unknown name).

#![no_std]

#[cfg(test)]
extern crate std;

#[cfg(not(target_endian = "little"))]
compile_error!("the structures are their own wire form only on little-endian machines");

mod blocking;
mod codes;
mod crash_file;
mod events;
mod histogram;
mod layout;
mod light;
mod lots;
pub mod policy;
mod records;
mod samples;
pub mod settings;
mod snapshot;
mod socket_name;
mod totals;

pub use blocking::{
    BLOCKING_RECORDS, BLOCKING_SITES, BlockingRecord, BlockingRecords, BlockingSite, BlockingSites,
    STACK_WORDS,
};
pub use codes::{
    CarrierState, EventKind, PolicyKind, RequestKind, ThreadFlags, ThreadState, WaitKind,
};
pub use crash_file::{CRASH_MAGIC, CRASH_MAGIC_BEFORE, CrashHeader, CrashName, CrashPart};
pub use events::{ARG_BITS, By, EVENT_WORDS, Event};
pub use histogram::{BUCKETS, Histogram, bucket_of, upper_ns};
pub use layout::{
    CarrierOffsets, CodePlaces, EngineOffsets, LAYOUT_MAGIC, LAYOUT_VERSION, Layout, ThreadOffsets,
};
pub use light::{LIGHT_MAGIC, LIGHT_TID_BASE, LIGHTS_MAX, LightOffsets, LightPlaces, LightRegion};
pub use lots::Lots;
pub use records::{
    CarrierRecord, Delay, Header, MAGIC, NAME_BYTES, NO_CARRIER, PROOF_BYTES, PROOF_NAME,
    PROOF_WANTED, REQUEST_MAGIC, Request, ThreadRecord, VERSION, Wire,
};
pub use samples::{SAMPLE_STACK_BYTES, SAMPLES_MAX, SampleHeader, WAKES_SHIFT, WakeHeader};
pub use snapshot::{ParseError, Snapshot};
pub use socket_name::SocketName;
pub use totals::{ENGINES_MAX, EngineRecord, TOTALS_VERSION, Totals, WAIT_KINDS};
