//! Packets, as bytes. Those of slices and counters come by the million, and are put together here
//! without a message of their own.

use std::io::{self, Write};

use prost::Message;
use prost::encoding::{WireType, encode_key, encode_varint};

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
        self.packet.clear();
        encode_key(PACKET, WireType::LengthDelimited, &mut self.packet);
        let encoded = packet.encode_length_delimited(&mut self.packet);
        encoded.map_err(io::Error::other)?; // a vector has room for all
        self.output.write_all(&self.packet)
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
    pub(super) fn named(
        &mut self,
        kind: TrackKind,
        track: u64,
        (category, iid): (Category, u64),
        text: Option<String>,
        boot_ns: u64,
    ) -> io::Result<()> {
        let event = &mut self.event;
        event.clear();
        varint(3, category as u64, event);
        varint(9, kind as u64, event);
        varint(10, iid, event);
        varint(11, track, event);
        let data = text.map(|text| InternedData {
            event_names: vec![Interned {
                iid: Some(iid),
                name: Some(text),
            }],
            ..InternedData::default()
        });
        self.event(data, boot_ns)
    }

    /// Writes the end of a slice.
    pub(super) fn end(&mut self, track: u64, boot_ns: u64) -> io::Result<()> {
        self.event.clear();
        varint(9, TrackKind::End as u64, &mut self.event);
        varint(11, track, &mut self.event);
        self.event(None, boot_ns)
    }

    /// Writes a counter's value.
    pub(super) fn value(&mut self, track: u64, value: i64, boot_ns: u64) -> io::Result<()> {
        self.event.clear();
        varint(9, TrackKind::Counter as u64, &mut self.event);
        varint(11, track, &mut self.event);
        varint(30, value as u64, &mut self.event);
        self.event(None, boot_ns)
    }

    fn event(&mut self, data: Option<InternedData>, boot_ns: u64) -> io::Result<()> {
        const HEAD: usize = 2;
        let packet = &mut self.packet;
        packet.clear();
        packet.extend([0; HEAD]);
        varint(8, boot_ns, packet);
        varint(10, SEQUENCE.into(), packet);
        encode_key(11, WireType::LengthDelimited, packet);
        encode_varint(self.event.len() as u64, packet);
        packet.extend_from_slice(&self.event);
        if let Some(data) = data {
            prost::encoding::message::encode(12, &data, packet);
        }
        varint(13, NEEDS_STATE.into(), packet);
        let length = packet.len() - HEAD;
        if length < 0x80 {
            packet[0] = (PACKET as u8) << 3 | WireType::LengthDelimited as u8;
            packet[1] = length as u8;
            return self.output.write_all(packet);
        }
        let mut head = Vec::new();
        encode_key(PACKET, WireType::LengthDelimited, &mut head);
        encode_varint(length as u64, &mut head);
        self.output.write_all(&head)?;
        self.output.write_all(&packet[HEAD..])
    }

    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.output.flush()
    }
}

fn varint(field: u32, value: u64, to: &mut Vec<u8>) {
    encode_key(field, WireType::Varint, to);
    encode_varint(value, to);
}
