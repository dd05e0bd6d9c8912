//! Protocol buffers, read without their schema.

/// The bytes of a message.
#[derive(Clone, Copy)]
pub(crate) struct Message<'a>(pub(super) &'a [u8]);

/// A field's value.
enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

impl<'a> Message<'a> {
    /// Returns the messages in the fields of this number.
    pub(crate) fn messages(self, number: u64) -> impl Iterator<Item = Message<'a>> {
        self.fields(number).filter_map(|value| match value {
            Value::Bytes(bytes) => Some(Message(bytes)),
            Value::Number(_) => None,
        })
    }

    /// Returns the number in a field.
    pub(crate) fn number(self, number: u64) -> Option<u64> {
        self.numbers(number).next()
    }

    /// Returns the numbers in a field, packed ones too.
    pub(crate) fn numbers(self, number: u64) -> impl Iterator<Item = u64> {
        self.fields(number).flat_map(|value| match value {
            Value::Number(number) => vec![number],
            Value::Bytes(mut bytes) => std::iter::from_fn(|| varint(&mut bytes)).collect(),
        })
    }

    /// Returns the text in a field.
    pub(crate) fn text(self, number: u64) -> Option<String> {
        let message = self.messages(number).next()?;
        String::from_utf8(message.0.to_vec()).ok()
    }

    fn fields(self, wanted: u64) -> impl Iterator<Item = Value<'a>> {
        let mut rest = self.0;
        std::iter::from_fn(move || field(&mut rest))
            .filter_map(move |(number, value)| (number == wanted).then_some(value))
    }
}

fn field<'a>(rest: &mut &'a [u8]) -> Option<(u64, Value<'a>)> {
    let tag = varint(rest)?;
    let value = match tag & 7 {
        0 => Value::Number(varint(rest)?),
        2 => {
            let len = varint(rest)? as usize;
            let (bytes, behind) = rest.split_at_checked(len)?;
            *rest = behind;
            Value::Bytes(bytes)
        }
        _ => panic!("a field of another kind: {tag}"),
    };
    Some((tag >> 3, value))
}

fn varint(rest: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (&byte, behind) = rest.split_first()?;
        *rest = behind;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}
