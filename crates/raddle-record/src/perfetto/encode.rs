//! Packets, as bytes. Those of turns, slices and counters come by the million, and are put together
//! here without a message of their own.

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

/// The type of a track event.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum TrackKind {
    Begin = 1,
    End = 2,
    Instant = 3,
    Counter = 4,
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
#[inline]
fn put_field(field: u32, value: u64, to: &mut Vec<u8>) {
    put((field << 3 | WireType::Varint as u32).into(), to);
    put(value, to);
}

/// Appends a field with eight bytes.
pub(super) fn put_fixed(field: u32, value: u64, to: &mut Vec<u8>) {
    put((field << 3 | WireType::SixtyFourBit as u32).into(), to);
    to.extend(value.to_le_bytes());
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

/// Appends a field with bytes.
pub(super) fn put_bytes(field: u32, bytes: &[u8], to: &mut Vec<u8>) {
    put((field << 3 | WireType::LengthDelimited as u32).into(), to);
    put(bytes.len() as u64, to);
    to.extend_from_slice(bytes);
}

/// Writes packets.
pub(super) struct Encoder<W> {
    output: W,
    packet: Vec<u8>,
    event: Vec<u8>,
}

impl<W: Write> Encoder<W> {
    pub(super) fn new(output: W) -> Self {
        Encoder {
            output,
            packet: Vec::new(),
            event: Vec::new(),
        }
    }

    pub(super) fn packet(&mut self, packet: &TracePacket) -> io::Result<()> {
        let bytes = packet.encode_to_vec();
        self.encoded(&bytes)
    }

    /// Writes a packet that is encoded already.
    pub(super) fn encoded(&mut self, packet: &[u8]) -> io::Result<()> {
        let head = &mut self.event;
        head.clear();
        put(
            (PACKET << 3 | WireType::LengthDelimited as u32).into(),
            head,
        );
        put(packet.len() as u64, head);
        self.output.write_all(head)?;
        self.output.write_all(packet)
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
    /// what the number stands for from now on, and `fields` are more fields, encoded.
    pub(super) fn named(
        &mut self,
        (kind, track): (TrackKind, u64),
        (category, iid): (Category, u64),
        text: Option<String>,
        fields: &[u8],
        boot_ns: u64,
    ) -> io::Result<()> {
        let event = &mut self.event;
        event.clear();
        put_field(3, category as u64, event);
        put_field(9, kind as u64, event);
        put_field(10, iid, event);
        put_field(11, track, event);
        event.extend_from_slice(fields);
        let data = text.map(|text| InternedData {
            event_names: vec![Interned {
                iid: Some(iid),
                name: Some(text),
            }],
            ..InternedData::default()
        });
        self.event(data, boot_ns)
    }

    /// Writes the end of a slice, with annotations that are encoded already.
    pub(super) fn end(&mut self, track: u64, annotations: &[u8], boot_ns: u64) -> io::Result<()> {
        self.event.clear();
        put_field(9, TrackKind::End as u64, &mut self.event);
        put_field(11, track, &mut self.event);
        self.event.extend_from_slice(annotations);
        self.event(None, boot_ns)
    }

    /// Writes a counter's value.
    pub(super) fn value(&mut self, track: u64, value: i64, boot_ns: u64) -> io::Result<()> {
        self.event.clear();
        put_field(9, TrackKind::Counter as u64, &mut self.event);
        put_field(11, track, &mut self.event);
        put_field(30, value as u64, &mut self.event);
        self.event(None, boot_ns)
    }

    fn event(&mut self, data: Option<InternedData>, boot_ns: u64) -> io::Result<()> {
        /// The tag of a packet and a length of one byte.
        const HEAD: usize = 2;
        let packet = &mut self.packet;
        packet.clear();
        packet.extend([(PACKET as u8) << 3 | WireType::LengthDelimited as u8, 0]);
        put_field(8, boot_ns, packet);
        put_field(10, SEQUENCE.into(), packet);
        put_bytes(11, &self.event, packet);
        if let Some(data) = data {
            put_bytes(12, &data.encode_to_vec(), packet);
        }
        put_field(13, NEEDS_STATE.into(), packet);
        let length = packet.len() - HEAD;
        if length < 0x80 {
            packet[1] = length as u8;
            return self.output.write_all(packet);
        }
        let packet = packet.split_off(HEAD);
        self.encoded(&packet)
    }

    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.output.flush()
    }
}
