//! A trace of what a spool has: the events in the order of time, and what was read beside them.

use std::fs::File;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use raddle_stacks::Memory;

use super::bound::{Found, Stays};
use super::spool::{self, LOOK_EVERY, Pieces, Record, words};
use super::tracer::Tracer;
use crate::failure::say;
use crate::recording::Sequence;

/// How much less weight this has than the process that was traced, which goes on.
const NICER: i32 = 10;
/// After how long a sentence says what is still done.
const LONG: Duration = Duration::from_secs(2);

/// No memory: texts were read before.
struct Nothing;

impl Memory for Nothing {
    fn read(&self, _: u64, _: &mut [u8]) -> usize {
        0
    }
}

/// Writes what the pieces have to `file`, by `tracer`, as far as there is room: returns what says
/// that there is none. `ends` is true once a signal has come: the next one ends this command.
///
/// # Errors
/// Those of reading. Those of the trace are kept by `tracer`.
pub(super) fn replay<W: Write>(
    mut pieces: Pieces,
    sequence: &mut Sequence,
    (tracer, file): (&mut Tracer<W>, &File),
    ends: &Arc<AtomicBool>,
) -> io::Result<Option<io::Error>> {
    // It may be refused; then this costs the process some more.
    let _ = rustix::process::nice(NICER);
    let begun = Instant::now();
    let mut is_said = false;
    let mut stays = Stays::default();
    let mut ahead = Ahead::new(pieces.clone());
    let mut piece = Vec::new();
    let mut readings = 0;
    let mut room = None;
    while !tracer.has_ended() && pieces.next(&mut piece)? {
        room = spool::room(file)?;
        if let Some((bytes, _)) = room {
            tracer.set_room(bytes);
        }
        let mut rest = &piece[..];
        while let Some(record) = Record::take(&mut rest) {
            if let Record::Read(_) = record {
                ahead.go_to(readings + LOOK_EVERY, tracer)?;
                readings += 1;
            }
            take(record, sequence, tracer, &mut stays);
        }
        pieces.give_back(&ahead.pieces);
        if !is_said && begun.elapsed() >= LONG {
            is_said = true;
            say("what was recorded becomes a trace now; ctrl-C ends that, without a file");
            ends.store(true, Ordering::Relaxed);
        }
    }
    let why = room.filter(|_| tracer.full_ns().is_some());
    Ok(why.map(|(_, error)| error.into()))
}

/// Reads the spool ahead of the events, for what is known of other processes: that is read behind
/// the events that need it.
struct Ahead {
    pieces: Pieces,
    piece: Vec<u8>,
    /// How much of the piece was read, and how many readings in all.
    at: usize,
    readings: usize,
}

impl Ahead {
    fn new(pieces: Pieces) -> Ahead {
        Ahead {
            pieces,
            piece: Vec::new(),
            at: 0,
            readings: 0,
        }
    }

    /// Goes on until there were so many readings.
    fn go_to<W: Write>(&mut self, readings: usize, tracer: &mut Tracer<W>) -> io::Result<()> {
        while self.readings < readings {
            let mut rest = self.piece.get(self.at..).unwrap_or_default();
            let record = Record::take(&mut rest);
            self.at = self.piece.len() - rest.len();
            match record {
                Some(Record::Read(_)) => self.readings += 1,
                Some(Record::WokenBy { object, by }) => tracer.is_woken_by(object, by),
                Some(_) => {}
                None => {
                    self.at = 0;
                    if !self.pieces.next(&mut self.piece)? {
                        self.readings = usize::MAX;
                    }
                }
            }
        }
        Ok(())
    }
}

fn take<W: Write>(
    record: Record<'_>,
    sequence: &mut Sequence,
    tracer: &mut Tracer<W>,
    stays: &mut Stays,
) {
    match record {
        Record::Events(lane, events) => {
            words(events).for_each(|words| sequence.add(lane, words));
        }
        Record::Read(reading) => sequence.tell(&reading, |timed| {
            stays.event(timed.lane, &timed.event, timed.boot_ns);
            tracer.take(&Nothing, timed.lane, &timed.event, timed.boot_ns);
        }),
        Record::Looked => stays.look(sequence.told_ns(), |found, boot_ns| match found {
            Found::Stay(lane, event) => tracer.take(&Nothing, lane, &event, boot_ns),
            Found::Share(tid, percent) => tracer.kernel_share(tid, percent, boot_ns),
        }),
        Record::Name { tid, group, name } => tracer.name(tid, name, group),
        Record::Text { place, text } => tracer.text(place, text),
        Record::ForgetTexts => tracer.forget_texts(),
        Record::WokenBy { .. } => {} // see `Ahead`
        Record::Bound {
            tid,
            carrier,
            is_running,
        } => stays.add(tid, carrier, is_running, sequence.told_ns()),
        Record::Unbound { tid } => stays.remove(tid),
        Record::Still { tid, is_still } => stays.set_still(tid, is_still),
        Record::Used { tid, used_ns } => stays.set_used(tid, used_ns),
        Record::Runs { lane, tid } => tracer.runs_at_end(lane, tid),
    }
}
