//! The messages of pprof's format, with its names and numbers (`profile.proto`), and fields of
//! Raddle's own that other readers pass over.
//!
//! A string is its position in the table of strings, in which the first one is empty.

use prost::Message;

/// Fields of [`Profile`] that the reader finds by number.
pub(super) mod field {
    pub(in super::super) const SAMPLE_TYPE: u32 = 1;
    pub(in super::super) const SAMPLE: u32 = 2;
    pub(in super::super) const MAPPING: u32 = 3;
    pub(in super::super) const LOCATION: u32 = 4;
    pub(in super::super) const FUNCTION: u32 = 5;
    pub(in super::super) const STRING: u32 = 6;
    pub(in super::super) const TIME_NANOS: u32 = 9;
    pub(in super::super) const DURATION_NANOS: u32 = 10;
    pub(in super::super) const PERIOD_TYPE: u32 = 11;
    pub(in super::super) const PERIOD: u32 = 12;
    pub(in super::super) const COMMENT: u32 = 13;
    pub(in super::super) const RECORDING: u32 = 7201;
    pub(in super::super) const THREAD: u32 = 7202;
    pub(in super::super) const WAIT: u32 = 7203;
    pub(in super::super) const WAKING: u32 = 7204;
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Profile {
    #[prost(message, repeated, tag = "1")]
    pub sample_type: Vec<ValueType>,
    #[prost(message, repeated, tag = "2")]
    pub sample: Vec<Sample>,
    #[prost(message, repeated, tag = "3")]
    pub mapping: Vec<Mapping>,
    #[prost(message, repeated, tag = "4")]
    pub location: Vec<Location>,
    #[prost(message, repeated, tag = "5")]
    pub function: Vec<Function>,
    #[prost(string, repeated, tag = "6")]
    pub string_table: Vec<String>,
    #[prost(int64, tag = "9")]
    pub time_nanos: i64,
    #[prost(int64, tag = "10")]
    pub duration_nanos: i64,
    #[prost(message, optional, tag = "11")]
    pub period_type: Option<ValueType>,
    #[prost(int64, tag = "12")]
    pub period: i64,
    #[prost(int64, repeated, tag = "13")]
    pub comment: Vec<i64>,
    #[prost(int64, tag = "14")]
    pub default_sample_type: i64,
    #[prost(message, optional, tag = "7201")]
    pub recording: Option<Recording>,
    #[prost(message, repeated, tag = "7202")]
    pub thread: Vec<Thread>,
    #[prost(message, repeated, tag = "7203")]
    pub wait: Vec<Wait>,
    #[prost(message, repeated, tag = "7204")]
    pub waking: Vec<Waking>,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct ValueType {
    #[prost(int64, tag = "1")]
    pub r#type: i64,
    #[prost(int64, tag = "2")]
    pub unit: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Sample {
    /// The innermost first.
    #[prost(uint64, repeated, tag = "1")]
    pub location_id: Vec<u64>,
    /// One for each sample type.
    #[prost(int64, repeated, tag = "2")]
    pub value: Vec<i64>,
    #[prost(message, repeated, tag = "3")]
    pub label: Vec<Label>,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct Label {
    #[prost(int64, tag = "1")]
    pub key: i64,
    #[prost(int64, tag = "2")]
    pub str: i64,
    #[prost(int64, tag = "3")]
    pub num: i64,
    #[prost(int64, tag = "4")]
    pub num_unit: i64,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct Mapping {
    #[prost(uint64, tag = "1")]
    pub id: u64,
    #[prost(int64, tag = "5")]
    pub filename: i64,
    #[prost(bool, tag = "7")]
    pub has_functions: bool,
    #[prost(bool, tag = "8")]
    pub has_filenames: bool,
    #[prost(bool, tag = "9")]
    pub has_line_numbers: bool,
    #[prost(bool, tag = "10")]
    pub has_inline_frames: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Location {
    #[prost(uint64, tag = "1")]
    pub id: u64,
    #[prost(uint64, tag = "2")]
    pub mapping_id: u64,
    #[prost(uint64, tag = "3")]
    pub address: u64,
    /// More than one if functions are inlined; the innermost first.
    #[prost(message, repeated, tag = "4")]
    pub line: Vec<Line>,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct Line {
    #[prost(uint64, tag = "1")]
    pub function_id: u64,
    #[prost(int64, tag = "2")]
    pub line: i64,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct Function {
    #[prost(uint64, tag = "1")]
    pub id: u64,
    #[prost(int64, tag = "2")]
    pub name: i64,
    #[prost(int64, tag = "3")]
    pub system_name: i64,
    #[prost(int64, tag = "4")]
    pub filename: i64,
}

/// What Raddle knows of the recording beside its samples.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Recording {
    #[prost(uint32, tag = "1")]
    pub pid: u32,
    #[prost(string, repeated, tag = "2")]
    pub command: Vec<String>,
    #[prost(uint64, tag = "3")]
    pub began_unix_ns: u64,
    #[prost(uint64, tag = "4")]
    pub duration_ns: u64,
    #[prost(uint64, tag = "5")]
    pub interval_ns: u64,
    #[prost(uint64, tag = "6")]
    pub lost_events: u64,
    #[prost(uint64, tag = "7")]
    pub lost_samples: u64,
    #[prost(string, repeated, tag = "8")]
    pub remarks: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Thread {
    #[prost(uint32, tag = "1")]
    pub tid: u32,
    #[prost(string, tag = "2")]
    pub name: String,
    #[prost(uint64, optional, tag = "3")]
    pub began_ns: Option<u64>,
    #[prost(uint64, optional, tag = "4")]
    pub ended_ns: Option<u64>,
    #[prost(uint64, tag = "5")]
    pub running_ns: u64,
    #[prost(uint64, tag = "6")]
    pub runnable_ns: u64,
    #[prost(uint64, tag = "7")]
    pub in_kernel_ns: u64,
    #[prost(uint64, tag = "8")]
    pub waiting_ns: u64,
    #[prost(uint64, tag = "9")]
    pub turns: u64,
    #[prost(uint64, tag = "10")]
    pub wakes: u64,
    #[prost(uint64, tag = "11")]
    pub longest_runnable_ns: u64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Wait {
    #[prost(uint32, tag = "1")]
    pub kind: u32,
    #[prost(uint64, tag = "2")]
    pub object: u64,
    #[prost(string, optional, tag = "3")]
    pub name: Option<String>,
    #[prost(uint64, tag = "4")]
    pub count: u64,
    #[prost(uint64, tag = "5")]
    pub total_ns: u64,
    #[prost(uint64, tag = "6")]
    pub longest_ns: u64,
    #[prost(uint64, tag = "7")]
    pub threads: u64,
    /// The position of a thread, and how often it woke others; alternately.
    #[prost(uint64, repeated, tag = "8")]
    pub wakers: Vec<u64>,
}

/// A part of a wait's time, with what ended it.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Waking {
    /// The position of the thread that waited.
    #[prost(uint32, tag = "1")]
    pub thread: u32,
    #[prost(uint32, tag = "2")]
    pub kind: u32,
    #[prost(uint64, tag = "3")]
    pub object: u64,
    /// The innermost first.
    #[prost(uint64, repeated, tag = "4")]
    pub location_id: Vec<u64>,
    /// 1 for a thread, 2 for a timer, 3 for the kernel, 4 for the end of a thread, 5 if nothing has
    /// ended it; 0 if that is not known.
    #[prost(uint32, tag = "5")]
    pub by: u32,
    /// The position of the thread that ended it, and the innermost location first; none if its
    /// stack was not read.
    #[prost(uint32, tag = "6")]
    pub waker: u32,
    #[prost(uint64, repeated, tag = "7")]
    pub waker_location_id: Vec<u64>,
    #[prost(uint64, tag = "8")]
    pub weight_ns: u64,
}
