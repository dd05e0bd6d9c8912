//! Reads files in pprof's format: Raddle's own as they were written, those of other profilers as
//! far as they have times.
//!
//! 1. The file is unpacked, up to a limit.
//! 2. One pass collects the tables, each entry against a [budget](super::fields).
//! 3. Another pass reads samples, because strings may stand behind them.
//!
//! Numbers of entries may be wrong on purpose. A number that stands for nothing names nothing.

mod profile;

use std::collections::HashMap;
use std::fmt;
use std::io::{self, Read};

use flate2::read::MultiGzDecoder;

use super::fields::{Budget, ENTRY, Fields, LIMITS, Limits, Value};
use super::messages::{self, field};
use super::values::{Columns, Type};
use super::{VERSION, VERSION_COMMENT};
use crate::profile::Profile;
use profile::Builder;

/// The reason why a file can't be read.
#[derive(Debug)]
pub enum ReadError {
    Io(io::Error),
    /// It begins like no file in pprof's format.
    NotAProfile,
    /// It ends too early, or its parts don't fit together.
    Damaged,
    /// It is larger than 256 MiB, or would need more memory than a profile does.
    TooLarge,
    /// Its values are not times.
    NoTimes,
    /// A later version of Raddle has written it.
    Newer {
        /// Its version of Raddle's own parts, in its words.
        version: String,
    },
}

impl fmt::Display for ReadError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReadError::Io(error) => write!(out, "can't be read ({error})"),
            ReadError::NotAProfile => write!(out, "is no profile in pprof's format"),
            ReadError::Damaged => write!(out, "is cut or damaged"),
            ReadError::TooLarge => write!(out, "is larger than a profile can be"),
            ReadError::NoTimes => write!(out, "is a profile without times"),
            ReadError::Newer { version } => write!(
                out,
                "has version {version} of raddle's profiles, and this raddle reads version \
                 {VERSION}"
            ),
        }
    }
}

impl std::error::Error for ReadError {}

/// Reads a profile.
///
/// # Errors
/// The file is none, is damaged or too large, has no times, or is of a later version.
pub fn read(file: &mut dyn Read) -> Result<Profile, ReadError> {
    read_within(LIMITS, file)
}

/// Reads a profile that needs no more than the limits.
pub(super) fn read_within(limits: Limits, file: &mut dyn Read) -> Result<Profile, ReadError> {
    let bytes = unpack(file, limits.bytes)?;
    let mut budget = Budget::new(limits);
    let tables = Parts::collect(&bytes, &mut budget)?;
    let version = tables.version()?;
    let columns = tables.columns();
    columns.check()?;
    let mut builder = Builder::new(&tables, &columns, version.is_some(), &mut budget)?;
    for field in Fields(&bytes) {
        match field? {
            (field::SAMPLE, Value::Bytes(bytes)) => builder.sample(bytes, &mut budget)?,
            (field::WAKING, Value::Bytes(bytes)) => builder.waking(bytes, &mut budget)?,
            _ => {}
        }
    }
    Ok(builder.finish())
}

/// Returns the unpacked file. Also a file that isn't packed is read.
fn unpack(file: &mut dyn Read, bytes_max: u64) -> Result<Vec<u8>, ReadError> {
    let packed = limited(file, bytes_max)?;
    if !packed.starts_with(&[0x1f, 0x8b]) {
        return Ok(packed);
    }
    match limited(&mut MultiGzDecoder::new(&packed[..]), bytes_max) {
        Err(ReadError::Io(_)) => Err(ReadError::Damaged),
        unpacked => unpacked,
    }
}

fn limited(file: &mut dyn Read, bytes_max: u64) -> Result<Vec<u8>, ReadError> {
    let mut bytes = Vec::new();
    file.take(bytes_max + 1)
        .read_to_end(&mut bytes)
        .map_err(ReadError::Io)?;
    if bytes.len() as u64 > bytes_max {
        return Err(ReadError::TooLarge);
    }
    Ok(bytes)
}

/// The parts of a file besides samples.
#[derive(Default)]
struct Parts<'a> {
    strings: Vec<&'a [u8]>,
    sample_types: Vec<messages::ValueType>,
    /// Functions, locations and mappings by their ids.
    functions: HashMap<u64, messages::Function>,
    locations: HashMap<u64, messages::Location>,
    mappings: HashMap<u64, messages::Mapping>,
    comments: Vec<u64>,
    period_type: Option<messages::ValueType>,
    period: i64,
    time_nanos: i64,
    duration_nanos: i64,
    recording: Option<messages::Recording>,
    threads: Vec<messages::Thread>,
    waits: Vec<messages::Wait>,
}

impl<'a> Parts<'a> {
    fn collect(bytes: &'a [u8], budget: &mut Budget) -> Result<Parts<'a>, ReadError> {
        let mut parts = Parts::default();
        for field in Fields(bytes) {
            match field {
                Ok((number, value)) => parts.add(number, value, budget)?,
                // Text, for instance.
                Err(_) if parts.sample_types.is_empty() => return Err(ReadError::NotAProfile),
                Err(error) => return Err(error),
            }
        }
        // Each profile has types, and the empty string first.
        let is_profile =
            !parts.sample_types.is_empty() && parts.strings.first().is_some_and(|it| it.is_empty());
        if !is_profile {
            return Err(ReadError::NotAProfile);
        }
        Ok(parts)
    }

    fn add(&mut self, number: u32, value: Value<'a>, budget: &mut Budget) -> Result<(), ReadError> {
        match (number, value) {
            (field::SAMPLE_TYPE, Value::Bytes(bytes)) => {
                self.sample_types.push(budget.entry(bytes)?);
            }
            (field::MAPPING, Value::Bytes(bytes)) => {
                let mapping: messages::Mapping = budget.entry(bytes)?;
                self.mappings.insert(mapping.id, mapping);
            }
            (field::LOCATION, Value::Bytes(bytes)) => {
                let location: messages::Location = budget.entry(bytes)?;
                budget.take(location.line.len() as u64)?;
                self.locations.insert(location.id, location);
            }
            (field::FUNCTION, Value::Bytes(bytes)) => {
                let function: messages::Function = budget.entry(bytes)?;
                self.functions.insert(function.id, function);
            }
            (field::STRING, Value::Bytes(bytes)) => {
                budget.take(ENTRY / 4)?;
                self.strings.push(bytes);
            }
            (field::TIME_NANOS, Value::Number(number)) => self.time_nanos = number as i64,
            (field::DURATION_NANOS, Value::Number(number)) => {
                self.duration_nanos = number as i64;
            }
            (field::PERIOD_TYPE, Value::Bytes(bytes)) => {
                self.period_type = Some(budget.entry(bytes)?);
            }
            (field::PERIOD, Value::Number(number)) => self.period = number as i64,
            (field::COMMENT, Value::Number(number)) => {
                budget.take(ENTRY)?;
                self.comments.push(number);
            }
            (field::COMMENT, Value::Bytes(bytes)) => self.add_comments(bytes, budget)?,
            (field::RECORDING, Value::Bytes(bytes)) => {
                self.recording = Some(budget.entry(bytes)?);
            }
            (field::THREAD, Value::Bytes(bytes)) => self.threads.push(budget.entry(bytes)?),
            (field::WAIT, Value::Bytes(bytes)) => {
                let wait: messages::Wait = budget.entry(bytes)?;
                budget.take(wait.wakers.len() as u64)?;
                self.waits.push(wait);
            }
            _ => {}
        }
        Ok(())
    }

    /// Adds numbers that stand together.
    fn add_comments(&mut self, mut bytes: &[u8], budget: &mut Budget) -> Result<(), ReadError> {
        while !bytes.is_empty() {
            budget.take(ENTRY)?;
            let number = prost::encoding::decode_varint(&mut bytes);
            self.comments.push(number.map_err(|_| ReadError::Damaged)?);
        }
        Ok(())
    }

    /// Returns a string; the empty one for a number that stands for nothing.
    fn string(&self, number: i64) -> &'a str {
        let bytes = usize::try_from(number)
            .ok()
            .and_then(|number| self.strings.get(number));
        bytes.map_or("", |bytes| std::str::from_utf8(bytes).unwrap_or(""))
    }

    /// Returns the version of Raddle's own parts, if there are any.
    fn version(&self) -> Result<Option<u32>, ReadError> {
        let mut comments = self.comments.iter();
        let version = comments.find_map(|&it| self.string(it as i64).strip_prefix(VERSION_COMMENT));
        let Some(version) = version else {
            return Ok(None);
        };
        match version.parse() {
            Ok(number) if number <= VERSION => Ok(Some(number)),
            _ => Err(ReadError::Newer {
                version: crate::outputs::names::plain(version)
                    .chars()
                    .take(20)
                    .collect(),
            }),
        }
    }

    fn columns(&self) -> Columns {
        let kind = |it: &messages::ValueType| Type {
            name: self.string(it.r#type),
            unit: self.string(it.unit),
        };
        let types: Vec<_> = self.sample_types.iter().map(kind).collect();
        let period = self.period_type.as_ref().map(|it| (kind(it), self.period));
        Columns::of(&types, period)
    }
}
