//! The fields of a message, one after the other, and a limit on what is kept of them.
//!
//! A file of 256 MiB can name more entries than memory has room for, each in two bytes. So entries
//! are decoded one by one, and each takes from a budget.

use prost::Message;
use prost::encoding::{WireType, decode_key, decode_varint};

use super::reader::ReadError;

/// The most that is kept of a file.
#[derive(Clone, Copy)]
pub(super) struct Limits {
    /// Of the file itself, packed and unpacked.
    pub bytes: u64,
    /// Of what is made of it: a position in a stack counts 1, an entry of a table [`ENTRY`].
    pub units: u64,
}

pub(super) const LIMITS: Limits = Limits {
    bytes: 256 << 20,
    units: 64 << 20,
};
/// What an entry of a table counts.
pub(super) const ENTRY: u64 = 16;
/// The longest entry.
const ENTRY_BYTES: usize = 4 << 20;

/// The value of a field.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
    /// Of a kind that no known field has.
    Other,
}

/// Iterates over fields: each with its number.
pub(super) struct Fields<'a>(pub &'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, length: u64) -> Option<&'a [u8]> {
        let length = usize::try_from(length).ok()?;
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    fn field(&mut self) -> Option<(u32, Value<'a>)> {
        let (number, kind) = decode_key(&mut self.0).ok()?;
        let value = match kind {
            WireType::Varint => Value::Number(decode_varint(&mut self.0).ok()?),
            WireType::LengthDelimited => {
                let length = decode_varint(&mut self.0).ok()?;
                Value::Bytes(self.take(length)?)
            }
            WireType::ThirtyTwoBit => self.take(4).map(|_| Value::Other)?,
            WireType::SixtyFourBit => self.take(8).map(|_| Value::Other)?,
            WireType::StartGroup | WireType::EndGroup => return None,
        };
        Some((number, value))
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u32, Value<'a>), ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_none() {
            self.0 = &[];
        }
        Some(field.ok_or(ReadError::Damaged))
    }
}

/// What is left of the budget.
pub(super) struct Budget(u64);

impl Budget {
    pub(super) fn new(limits: Limits) -> Budget {
        Budget(limits.units)
    }

    /// Takes from the budget.
    ///
    /// # Errors
    /// The file is too large.
    pub(super) fn take(&mut self, units: u64) -> Result<(), ReadError> {
        self.0 = self.0.checked_sub(units).ok_or(ReadError::TooLarge)?;
        Ok(())
    }

    /// Decodes an entry of a table.
    pub(super) fn entry<M: Message + Default>(&mut self, bytes: &[u8]) -> Result<M, ReadError> {
        self.take(ENTRY)?;
        if bytes.len() > ENTRY_BYTES {
            return Err(ReadError::TooLarge);
        }
        M::decode(bytes).map_err(|_| ReadError::Damaged)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read_and_a_cut_one_is_damage() {
        let bytes = [
            1 << 3,
            0x96,
            1,
            2 << 3 | 2,
            2,
            b'h',
            b'i',
            3 << 3 | 5,
            0,
            0,
            0,
            0,
        ];
        let all: Vec<_> = Fields(&bytes).map(Result::unwrap).collect();
        let expected = [
            (1, Value::Number(150)),
            (2, Value::Bytes(b"hi")),
            (3, Value::Other),
        ];
        assert_eq!(all, expected);
        assert!(Fields(&bytes[..6]).any(|field| field.is_err()));
        assert!(Fields(&[1 << 3 | 3]).all(|field| field.is_err()));
    }

    #[test]
    fn the_budget_ends() {
        let mut budget = Budget::new(LIMITS);
        budget.take(LIMITS.units).unwrap();
        assert!(budget.take(0).is_ok());
        assert!(matches!(budget.take(1), Err(ReadError::TooLarge)));
    }
}
