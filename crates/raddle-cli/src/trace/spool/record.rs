//! What stands in a spool. Numbers are little-endian; a record begins with a byte for its kind.

use raddle_inspect::{EVENT_WORDS, WaitKind};
use raddle_record::clock::Moment;
use raddle_record::perfetto::{OtherProcess, WokenBy};
use raddle_record::rings::{Lane, Words};

use crate::peers::Object;
use crate::recording::Reading;

/// Bytes of an event.
pub(super) const EVENT_BYTES: usize = EVENT_WORDS * 8;
/// Bytes of a record of events before its events: its kind, the lane's kind, its id, their number.
const EVENTS_HEAD: usize = 1 + 1 + 4 + 4;

/// One thing that was read from the process.
#[derive(Debug, PartialEq)]
pub(in super::super) enum Record<'a> {
    /// Events of one ring, [`EVENT_BYTES`] each; [`words`] reads them.
    Events(Lane, &'a [u8]),
    /// The rings were read: this tells the events up to then.
    Read(Reading),
    /// All bound threads were looked at.
    Looked,
    /// The name of a thread, and the number of its engine or share.
    Name { tid: u32, group: u32, name: &'a str },
    /// The text of events, by its place in the process's memory.
    Text { place: (u64, u8), text: &'a str },
    /// Texts that are still needed come again.
    ForgetTexts,
    /// The processes that end waits for an object from now on.
    WokenBy { object: Object, by: Option<WokenBy> },
    /// A bound thread, and the id of its carrier.
    Bound {
        tid: u32,
        carrier: u32,
        is_running: bool,
    },
    /// It is bound no longer.
    Unbound { tid: u32 },
    /// Whether its kernel thread has not executed since the look before.
    Still { tid: u32, is_still: bool },
    /// For how long it has executed or wanted a CPU since the look before.
    Used { tid: u32, used_ns: u64 },
    /// What a carrier runs at the end.
    Runs { lane: Lane, tid: u32 },
}

impl<'a> Record<'a> {
    /// Appends the record.
    pub(super) fn put(&self, to: &mut Vec<u8>) {
        let mut out = Out(to);
        match self {
            Record::Events(lane, events) => {
                out.byte(0).lane(*lane);
                out.half((events.len() / EVENT_BYTES) as u32).bytes(events);
            }
            Record::Read(reading) => {
                out.byte(1).moment(reading.begun).moment(reading.done);
                out.word(reading.read_to.unwrap_or(0));
                let has_left = u8::from(reading.read_to.is_some());
                out.byte(has_left | u8::from(reading.is_last) << 1);
            }
            Record::Looked => {
                out.byte(2);
            }
            Record::Name { tid, group, name } => {
                out.byte(3).half(*tid).half(*group).text(name);
            }
            Record::Text { place, text } => {
                out.byte(4).word(place.0).byte(place.1).text(text);
            }
            Record::ForgetTexts => {
                out.byte(5);
            }
            Record::WokenBy { object, by } => {
                out.byte(6).half(object.0.0).word(object.1);
                let process = by.as_ref().and_then(WokenBy::process);
                let guess = by.as_ref().and_then(WokenBy::guessed);
                match (process, guess) {
                    (Some(process), _) => out.byte(2).half(process.pid).text(&process.name),
                    (None, Some(guess)) => out.byte(1).text(guess),
                    (None, None) => out.byte(0),
                };
            }
            Record::Bound {
                tid,
                carrier,
                is_running,
            } => {
                out.byte(7)
                    .half(*tid)
                    .half(*carrier)
                    .byte((*is_running).into());
            }
            Record::Unbound { tid } => {
                out.byte(8).half(*tid);
            }
            Record::Still { tid, is_still } => {
                out.byte(9).half(*tid).byte((*is_still).into());
            }
            Record::Runs { lane, tid } => {
                out.byte(10).lane(*lane).half(*tid);
            }
            Record::Used { tid, used_ns } => {
                out.byte(11).half(*tid).word(*used_ns);
            }
        }
    }

    /// Takes a record from the begin of `from`; `None` at the end, and if it is damaged.
    pub(in super::super) fn take(from: &mut &'a [u8]) -> Option<Record<'a>> {
        let mut source = In(from);
        Some(match source.byte()? {
            0 => {
                let lane = source.lane()?;
                let count = source.half()? as usize;
                Record::Events(lane, source.bytes(count * EVENT_BYTES)?)
            }
            1 => {
                let (begun, done) = (source.moment()?, source.moment()?);
                let read_to = source.word()?;
                let flags = source.byte()?;
                Record::Read(Reading {
                    begun,
                    done,
                    read_to: (flags & 1 != 0).then_some(read_to),
                    is_last: flags & 2 != 0,
                })
            }
            2 => Record::Looked,
            3 => Record::Name {
                tid: source.half()?,
                group: source.half()?,
                name: source.text()?,
            },
            4 => Record::Text {
                place: (source.word()?, source.byte()?),
                text: source.text()?,
            },
            5 => Record::ForgetTexts,
            6 => {
                let object = (WaitKind(source.half()?), source.word()?);
                let by = match source.byte()? {
                    0 => None,
                    1 => Some(WokenBy::guess(source.text()?)),
                    _ => Some(WokenBy::one(OtherProcess {
                        pid: source.half()?,
                        name: source.text()?.to_owned(),
                    })),
                };
                Record::WokenBy { object, by }
            }
            7 => Record::Bound {
                tid: source.half()?,
                carrier: source.half()?,
                is_running: source.byte()? != 0,
            },
            8 => Record::Unbound {
                tid: source.half()?,
            },
            9 => Record::Still {
                tid: source.half()?,
                is_still: source.byte()? != 0,
            },
            10 => Record::Runs {
                lane: source.lane()?,
                tid: source.half()?,
            },
            11 => Record::Used {
                tid: source.half()?,
                used_ns: source.word()?,
            },
            _ => return None,
        })
    }
}

/// Says in a record of events, which begins at `at`, how many follow up to the end.
pub(super) fn end_events(buffer: &mut [u8], at: usize) {
    let events = at + EVENTS_HEAD;
    let count = (buffer.len() - events) / EVENT_BYTES;
    buffer[events - 4..events].copy_from_slice(&(count as u32).to_le_bytes());
}

/// Returns the events of a record.
pub(in super::super) fn words(events: &[u8]) -> impl Iterator<Item = Words> {
    let word = |event: &[u8], at: usize| {
        let bytes = event[at * 8..].first_chunk();
        u64::from_le_bytes(bytes.copied().unwrap_or_default())
    };
    let events = events.chunks_exact(EVENT_BYTES);
    events.map(move |event| std::array::from_fn(|at| word(event, at)))
}

/// Where a record is put.
struct Out<'b>(&'b mut Vec<u8>);

impl Out<'_> {
    fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.extend_from_slice(bytes);
        self
    }

    fn byte(&mut self, byte: u8) -> &mut Self {
        self.bytes(&[byte])
    }

    fn half(&mut self, half: u32) -> &mut Self {
        self.bytes(&half.to_le_bytes())
    }

    fn word(&mut self, word: u64) -> &mut Self {
        self.bytes(&word.to_le_bytes())
    }

    fn lane(&mut self, lane: Lane) -> &mut Self {
        let (kind, id) = match lane {
            Lane::Carrier(id) => (0, id),
            Lane::Bound(id) => (1, id),
            Lane::Other => (2, 0),
        };
        self.byte(kind).half(id)
    }

    fn moment(&mut self, moment: Moment) -> &mut Self {
        self.word(moment.stamp).word(moment.boot_ns)
    }

    fn text(&mut self, text: &str) -> &mut Self {
        self.half(text.len() as u32).bytes(text.as_bytes())
    }
}

/// Where a record is taken from.
struct In<'b, 'a>(&'b mut &'a [u8]);

impl<'a> In<'_, 'a> {
    fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(count)?;
        *self.0 = rest;
        Some(bytes)
    }

    fn byte(&mut self) -> Option<u8> {
        self.bytes(1)?.first().copied()
    }

    fn half(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(*self.bytes(4)?.first_chunk()?))
    }

    fn word(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(*self.bytes(8)?.first_chunk()?))
    }

    fn lane(&mut self) -> Option<Lane> {
        let (kind, id) = (self.byte()?, self.half()?);
        Some(match kind {
            0 => Lane::Carrier(id),
            1 => Lane::Bound(id),
            _ => Lane::Other,
        })
    }

    fn moment(&mut self) -> Option<Moment> {
        Some(Moment {
            stamp: self.word()?,
            boot_ns: self.word()?,
        })
    }

    fn text(&mut self) -> Option<&'a str> {
        let length = self.half()? as usize;
        std::str::from_utf8(self.bytes(length)?).ok()
    }
}
