//! Checked reading of a snapshot. The bytes come from another process: they may be inconsistent,
//! and every length in them is compared with the actual size before use.

use core::fmt;
use core::mem::size_of;

use crate::records::{CarrierRecord, Header, MAGIC, ThreadRecord, Wire};

/// Why bytes are no snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParseError {
    /// The bytes end inside the header.
    Short,
    /// The bytes do not start with [`MAGIC`].
    Magic,
    /// The header gives a structure fewer bytes than its first version had, or version 0.
    Sizes,
    /// The bytes end before the last record.
    Truncated,
}

impl fmt::Display for ParseError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            ParseError::Short => "it ends inside the header",
            ParseError::Magic => "it does not start like a snapshot",
            ParseError::Sizes => "its header gives impossible sizes",
            ParseError::Truncated => "it ends before the last record",
        })
    }
}

impl core::error::Error for ParseError {}

impl Header {
    /// Reads and checks the header at the start of `bytes`.
    ///
    /// # Errors
    /// [`ParseError`], but never `Truncated`: the records need not be there yet.
    pub fn parse(bytes: &[u8]) -> Result<Header, ParseError> {
        if !bytes.starts_with(&MAGIC[..bytes.len().min(MAGIC.len())]) {
            return Err(ParseError::Magic);
        }
        let header = Header::from_prefix(bytes).ok_or(ParseError::Short)?;
        let long_enough = header.header_size as usize >= size_of::<Header>()
            && header.record_size as usize >= size_of::<ThreadRecord>()
            && header.carrier_record_size as usize >= size_of::<CarrierRecord>();
        if long_enough && header.version > 0 {
            Ok(header)
        } else {
            Err(ParseError::Sizes)
        }
    }

    /// Returns the size of the whole snapshot; `None` if that is more than can be addressed.
    pub fn total_bytes(&self) -> Option<usize> {
        let carriers = self.carriers_bytes()?;
        let threads = usize::try_from(self.threads)
            .ok()?
            .checked_mul(self.record_size as usize)?;
        (self.header_size as usize)
            .checked_add(carriers)?
            .checked_add(threads)
    }

    fn carriers_bytes(&self) -> Option<usize> {
        (self.carriers as usize).checked_mul(self.carrier_record_size as usize)
    }
}

/// A snapshot with checked lengths.
///
/// # Examples
/// ```
/// use raddle_inspect::{Header, Snapshot, ThreadRecord, Wire};
/// let mut bytes = Header { threads: 1, ..Header::new() }.as_bytes().to_vec();
/// bytes.extend_from_slice(ThreadRecord { tid: 7, ..ThreadRecord::default() }.as_bytes());
/// let snapshot = Snapshot::parse(&bytes)?;
/// assert_eq!(snapshot.threads().next().map(|thread| thread.tid), Some(7));
/// # Ok::<(), raddle_inspect::ParseError>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Snapshot<'a> {
    header: Header,
    carriers: &'a [u8],
    threads: &'a [u8],
}

impl<'a> Snapshot<'a> {
    /// Checks that `bytes` are a whole snapshot, and ignores what follows it.
    ///
    /// # Errors
    /// The [`ParseError`] of the first check that failed.
    pub fn parse(bytes: &'a [u8]) -> Result<Snapshot<'a>, ParseError> {
        let header = Header::parse(bytes)?;
        let total = header.total_bytes().ok_or(ParseError::Truncated)?;
        let carriers_bytes = header.carriers_bytes().ok_or(ParseError::Truncated)?;
        let records = bytes
            .get(header.header_size as usize..total)
            .ok_or(ParseError::Truncated)?;
        let (carriers, threads) = records.split_at(carriers_bytes);
        Ok(Snapshot {
            header,
            carriers,
            threads,
        })
    }

    pub fn header(&self) -> &Header {
        &self.header
    }

    pub fn carriers(&self) -> impl ExactSizeIterator<Item = CarrierRecord> + 'a {
        records(self.carriers, self.header.carrier_record_size)
    }

    pub fn threads(&self) -> impl ExactSizeIterator<Item = ThreadRecord> + 'a {
        records(self.threads, self.header.record_size)
    }
}

/// Steps by the writer's size and reads the fields that this version knows.
fn records<R: Wire + Default>(
    bytes: &[u8],
    size_bytes: u32,
) -> impl ExactSizeIterator<Item = R> + '_ {
    // `Header::parse` has refused a size below that of `R`, so the default is never taken.
    bytes
        .chunks_exact(size_bytes as usize)
        .map(|chunk| R::from_prefix(chunk).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codes::{CarrierState, ThreadState};
    use std::vec::Vec;

    fn sample() -> Vec<u8> {
        let header = Header {
            pid: 4242,
            carriers: 2,
            threads: 3,
            live_threads: 3,
            ..Header::new()
        };
        let mut bytes = header.as_bytes().to_vec();
        for id in 0..2 {
            let carrier = CarrierRecord {
                id,
                state: CarrierState::IDLE,
                ..CarrierRecord::default()
            };
            bytes.extend_from_slice(carrier.as_bytes());
        }
        for tid in 10..13 {
            let thread = ThreadRecord {
                tid,
                state: ThreadState::WAITING,
                ..ThreadRecord::default()
            };
            bytes.extend_from_slice(thread.as_bytes());
        }
        bytes
    }

    /// Returns `sample` as a later version might write it, each structure 8 bytes longer.
    fn sample_of_a_later_version() -> Vec<u8> {
        let plain = sample();
        let mut header = Header::from_prefix(&plain).unwrap();
        header.version += 1;
        header.header_size += 8;
        header.record_size += 8;
        header.carrier_record_size += 8;
        let mut bytes = header.as_bytes().to_vec();
        bytes.extend_from_slice(&[0xee; 8]);
        for chunk in plain[size_of::<Header>()..].chunks(128) {
            bytes.extend_from_slice(chunk);
            bytes.extend_from_slice(&[0xee; 8]);
        }
        bytes
    }

    fn tids(bytes: &[u8]) -> Vec<u32> {
        let snapshot = Snapshot::parse(bytes).unwrap();
        snapshot.threads().map(|thread| thread.tid).collect()
    }

    #[test]
    fn records_come_back_in_order() {
        let bytes = sample();
        let snapshot = Snapshot::parse(&bytes).unwrap();
        assert_eq!(snapshot.header().pid, 4242);
        assert_eq!(snapshot.carriers().len(), 2);
        assert!(
            snapshot
                .carriers()
                .all(|carrier| carrier.state == CarrierState::IDLE)
        );
        assert_eq!(tids(&bytes), [10, 11, 12]);
    }

    #[test]
    fn longer_records_of_a_later_version_are_stepped_over() {
        let bytes = sample_of_a_later_version();
        assert_eq!(tids(&bytes), [10, 11, 12]);
        let snapshot = Snapshot::parse(&bytes).unwrap();
        let ids: Vec<_> = snapshot.carriers().map(|carrier| carrier.id).collect();
        assert_eq!(ids, [0, 1]);
    }

    #[test]
    fn every_truncation_is_an_error() {
        let bytes = sample();
        for length in 0..bytes.len() {
            let error = Snapshot::parse(&bytes[..length]).unwrap_err();
            let expected = if length < size_of::<Header>() {
                ParseError::Short
            } else {
                ParseError::Truncated
            };
            assert_eq!(error, expected, "{length} bytes");
        }
    }

    #[test]
    fn what_is_no_snapshot_is_refused() {
        let mut bytes = sample();
        bytes[3] ^= 1;
        assert_eq!(Snapshot::parse(&bytes).unwrap_err(), ParseError::Magic);
        assert_eq!(
            Snapshot::parse(b"HTTP").unwrap_err(),
            ParseError::Magic,
            "even a short one"
        );
    }

    #[test]
    fn lengths_that_lie_are_refused() {
        let lie = |change: fn(&mut Header)| {
            let mut bytes = sample();
            let mut header = Header::from_prefix(&bytes).unwrap();
            change(&mut header);
            bytes[..size_of::<Header>()].copy_from_slice(header.as_bytes());
            Snapshot::parse(&bytes).unwrap_err()
        };
        assert_eq!(lie(|h| h.version = 0), ParseError::Sizes);
        assert_eq!(lie(|h| h.header_size = 8), ParseError::Sizes);
        assert_eq!(lie(|h| h.record_size = 0), ParseError::Sizes);
        assert_eq!(lie(|h| h.carrier_record_size = 127), ParseError::Sizes);
        assert_eq!(lie(|h| h.threads = 4), ParseError::Truncated);
        assert_eq!(lie(|h| h.threads = u64::MAX), ParseError::Truncated);
        assert_eq!(lie(|h| h.carriers = u32::MAX), ParseError::Truncated);
        assert_eq!(lie(|h| h.header_size = u32::MAX), ParseError::Truncated);
    }
}
