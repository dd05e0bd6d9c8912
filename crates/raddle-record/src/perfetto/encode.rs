//! Packets, as bytes. Those of turns, slices and counters come by the million, and are put together
//! here without a message of their own, and without memory of their own.

use std::io::{self, Write};

use prost::Message;
use prost::encoding::WireType;

use super::messages::{Interned, InternedData, TracePacket, TrackDescriptor};
use super::names::Category;

/// All slices come from one sequence of packets.
const SEQUENCE: u32 = 1;
/// In `sequence_flags`: numbers of strings begin anew.
const STATE_CLEARED: u32 = 1;
/// In `sequence_flags`: the packet refers to strings.
const NEEDS_STATE: u32 = 2;
/// The field of a packet in the file.
const PACKET: u32 = 1;
/// Bytes that are kept until they are written at once.
const BUFFER: usize = 1 << 17;

/// The type of a track event.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum TrackKind {
    Begin = 1,
    End = 2,
    Instant = 3,
    Counter = 4,
}

/// Returns how many bytes a number has as a varint.
pub(super) const fn length(value: u64) -> usize {
    let bits = 64 - (value | 1).leading_zeros() as usize;
    bits.div_ceil(7)
}

/// Appends a number as a varint.
#[inline]
pub(super) fn put(mut value: u64, to: &mut Vec<u8>) {
    while value >= 0x80 {
        to.push(value as u8 | 0x80);
        value >>= 7;
    }
    to.push(value as u8);
}

/// Appends a field with a number.
fn put_field(field: u32, value: u64, to: &mut Vec<u8>) {
    put((field << 3 | WireType::Varint as u32).into(), to);
    put(value, to);
}

/// The value of an annotation.
pub(super) enum Value<'a> {
    Text(&'a str),
    Number(u64),
}

/// Appends an annotation of a track event.
pub(super) fn put_annotation(name: &str, value: Value<'_>, to: &mut Vec<u8>) {
    const ANNOTATION: u32 = 4;
    const NAME: u32 = 10;
    const NUMBER: u32 = 4;
    const TEXT: u32 = 6;
    let mut annotation = Vec::new();
    put_bytes(NAME, name.as_bytes(), &mut annotation);
    match value {
        Value::Text(text) => put_bytes(TEXT, text.as_bytes(), &mut annotation),
        Value::Number(number) => put_field(NUMBER, number, &mut annotation),
    }
    put_bytes(ANNOTATION, &annotation, to);
}

/// Appends the head of a field with so many bytes.
pub(super) fn put_head(field: u32, length: usize, to: &mut Vec<u8>) {
    put((field << 3 | WireType::LengthDelimited as u32).into(), to);
    put(length as u64, to);
}

/// Appends a field with bytes.
pub(super) fn put_bytes(field: u32, bytes: &[u8], to: &mut Vec<u8>) {
    put_head(field, bytes.len(), to);
    to.extend_from_slice(bytes);
}

/// Where a few fields are written.
struct Fields<'b> {
    to: &'b mut [u8; FIELDS],
    length: usize,
}

/// More than a packet of a track event has, up to what has a length of its own. A power of two.
const FIELDS: usize = 128;

impl Fields<'_> {
    #[inline]
    fn push(&mut self, byte: u8) {
        self.to[self.length % FIELDS] = byte;
        self.length += 1;
    }

    #[inline]
    fn put(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.push(value as u8);
    }

    #[inline]
    fn field(&mut self, field: u32, value: u64) {
        self.put((field << 3 | WireType::Varint as u32).into());
        self.put(value);
    }

    #[inline]
    fn head(&mut self, field: u32, length: usize) {
        self.put((field << 3 | WireType::LengthDelimited as u32).into());
        self.put(length as u64);
    }

    /// Begins the packet of a track event, which has `event` bytes; `data` bytes follow it.
    #[inline]
    fn begin(&mut self, event: usize, data: usize, boot_ns: u64) {
        const TIME: u32 = 8;
        const SEQUENCE_ID: u32 = 10;
        const EVENT: u32 = 11;
        /// The tags of these three, the sequence, and the flags at the end.
        const REST: usize = 3 + 1 + FLAGS;
        let packet = REST + length(boot_ns) + length(event as u64) + event + data;
        self.head(PACKET, packet);
        self.field(TIME, boot_ns);
        self.field(SEQUENCE_ID, SEQUENCE.into());
        self.head(EVENT, event);
    }

    /// Ends it.
    #[inline]
    fn end(&mut self) {
        self.field(13, NEEDS_STATE.into());
    }
}

/// Bytes at the end of the packet of a track event.
const FLAGS: usize = 2;
/// Bytes of a field with a number below 128.
const SHORT: usize = 2;
/// Bytes of an arrow.
const FLOW: usize = 2 + size_of::<u64>();

/// An arrow that begins or ends at an event.
pub(super) struct Flow {
    pub field: u32,
    pub number: u64,
}

/// Writes packets.
pub(super) struct Encoder<W> {
    output: W,
    /// [`BUFFER`] bytes, of which so many are used.
    buffer: Box<[u8]>,
    used: usize,
    /// How many bytes were written.
    written: u64,
}

impl<W: Write> Encoder<W> {
    pub(super) fn new(output: W) -> Self {
        Encoder {
            output,
            buffer: vec![0; BUFFER].into(),
            used: 0,
            written: 0,
        }
    }

    /// Returns how many bytes all packets have.
    #[inline]
    pub(super) fn bytes(&self) -> u64 {
        self.written + self.used as u64
    }

    pub(super) fn packet(&mut self, packet: &TracePacket) -> io::Result<()> {
        let bytes = packet.encode_to_vec();
        self.encoded(&bytes)
    }

    /// Writes a packet that is encoded already.
    pub(super) fn encoded(&mut self, packet: &[u8]) -> io::Result<()> {
        self.few(|fields| fields.head(PACKET, packet.len()))?;
        self.append(packet)
    }

    pub(super) fn track(&mut self, track: TrackDescriptor) -> io::Result<()> {
        self.packet(&TracePacket {
            trusted_packet_sequence_id: Some(SEQUENCE),
            track_descriptor: Some(track),
            ..TracePacket::default()
        })
    }

    /// Begins to number strings.
    pub(super) fn begin_names(&mut self) -> io::Result<()> {
        let categories = Category::ALL.iter().map(|&(category, name)| Interned {
            iid: Some(category as u64),
            name: Some(name.to_owned()),
        });
        self.packet(&TracePacket {
            trusted_packet_sequence_id: Some(SEQUENCE),
            sequence_flags: Some(STATE_CLEARED),
            interned_data: Some(InternedData {
                event_categories: categories.collect(),
                ..InternedData::default()
            }),
            ..TracePacket::default()
        })
    }

    /// Writes the begin of a slice or a mark, with a category and a number for a name; `text` is
    /// what the number stands for from now on.
    #[inline]
    pub(super) fn named(
        &mut self,
        (kind, track): (TrackKind, u64),
        (category, iid): (Category, u64),
        text: Option<String>,
        flow: Option<Flow>,
        boot_ns: u64,
    ) -> io::Result<()> {
        let of_flow = if flow.is_some() { FLOW } else { 0 };
        let event = SHORT + SHORT + 1 + length(iid) + 1 + length(track) + of_flow;
        let write = |fields: &mut Fields<'_>, data| {
            fields.begin(event, data, boot_ns);
            fields.field(3, category as u64);
            fields.field(9, kind as u64);
            fields.field(10, iid);
            fields.field(11, track);
            if let Some(flow) = flow {
                fields.put((flow.field << 3 | WireType::SixtyFourBit as u32).into());
                let bytes = flow.number.to_le_bytes();
                bytes.iter().for_each(|&byte| fields.push(byte));
            }
        };
        let Some(text) = text else {
            return self.few(|fields| {
                write(fields, 0);
                fields.end();
            });
        };
        let data = encoded_name(iid, text);
        self.few(|fields| write(fields, data.len()))?;
        self.append(&data)?;
        self.few(|fields| fields.end())
    }

    /// Writes the end of a slice, with annotations that are encoded already.
    #[inline]
    pub(super) fn end(&mut self, track: u64, annotations: &[u8], boot_ns: u64) -> io::Result<()> {
        let event = SHORT + 1 + length(track) + annotations.len();
        let write = |fields: &mut Fields<'_>| {
            fields.begin(event, 0, boot_ns);
            fields.field(9, TrackKind::End as u64);
            fields.field(11, track);
        };
        if annotations.is_empty() {
            return self.few(|fields| {
                write(fields);
                fields.end();
            });
        }
        self.few(write)?;
        self.append(annotations)?;
        self.few(|fields| fields.end())
    }

    /// Writes a counter's value.
    pub(super) fn value(&mut self, track: u64, value: i64, boot_ns: u64) -> io::Result<()> {
        let value = value as u64;
        self.few(|fields| {
            let event = SHORT + 1 + length(track) + 2 + length(value);
            fields.begin(event, 0, boot_ns);
            fields.field(9, TrackKind::Counter as u64);
            fields.field(11, track);
            fields.field(30, value);
            fields.end();
        })
    }

    /// Has a few fields written.
    #[inline]
    fn few(&mut self, write: impl FnOnce(&mut Fields<'_>)) -> io::Result<()> {
        if self.buffer.len() - self.used < FIELDS {
            self.write_out()?;
        }
        if let Some(to) = self.buffer[self.used..].first_chunk_mut() {
            let mut fields = Fields { to, length: 0 };
            write(&mut fields);
            self.used += fields.length;
        }
        Ok(())
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.buffer.len() - self.used < bytes.len() {
            self.write_out()?;
            if bytes.len() > self.buffer.len() {
                self.written += bytes.len() as u64;
                return self.output.write_all(bytes);
            }
        }
        self.buffer[self.used..self.used + bytes.len()].copy_from_slice(bytes);
        self.used += bytes.len();
        Ok(())
    }

    #[cold]
    fn write_out(&mut self) -> io::Result<()> {
        let used = std::mem::take(&mut self.used);
        self.written += used as u64;
        self.output.write_all(&self.buffer[..used])
    }

    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.write_out()?;
        self.output.flush()
    }
}

/// Returns a field that says what the number of a name stands for.
#[cold]
fn encoded_name(iid: u64, text: String) -> Vec<u8> {
    const DATA: u32 = 12;
    let names = InternedData {
        event_names: vec![Interned {
            iid: Some(iid),
            name: Some(text),
        }],
        ..InternedData::default()
    };
    let mut data = Vec::new();
    put_bytes(DATA, &names.encode_to_vec(), &mut data);
    data
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_as_long_as_it_is_said_to_be() {
        for bits in 0..64 {
            for value in [1u64 << bits, (1 << bits) - 1, u64::MAX >> bits] {
                let mut bytes = Vec::new();
                put(value, &mut bytes);
                assert_eq!(length(value), bytes.len(), "{value:#x}");
            }
        }
    }

    #[test]
    fn packets_are_written_at_once_and_none_is_lost() {
        let mut bytes = Vec::new();
        let mut encoder = Encoder::new(&mut bytes);
        let long = vec![7; BUFFER + 1];
        for number in 0..20_000 {
            let annotations = &long[..number % 300];
            encoder.end(u64::MAX, annotations, u64::MAX).unwrap();
        }
        encoder.encoded(&long).unwrap();
        encoder.value(u64::MAX, -1, u64::MAX).unwrap();
        encoder.flush().unwrap();
        let mut left = &bytes[..];
        let mut count = 0;
        while !left.is_empty() {
            let tag = prost::encoding::decode_varint(&mut left).unwrap();
            assert_eq!(tag, 1 << 3 | 2);
            let length = prost::encoding::decode_varint(&mut left).unwrap();
            left = &left[length as usize..];
            count += 1;
        }
        assert_eq!(count, 20_002);
    }
}
