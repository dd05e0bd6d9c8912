use super::*;
use crate::recording::Reading;
use raddle_inspect::WaitKind;
use raddle_record::clock::Moment;
use raddle_record::perfetto::{OtherProcess, WokenBy};
use std::fs;
use std::path::PathBuf;

fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("raddle-spool-{}-{name}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir(&folder).unwrap();
    folder
}

fn reading(stamp: u64) -> Reading {
    let moment = |stamp| Moment { stamp, boot_ns: 9 };
    Reading {
        begun: moment(stamp),
        done: moment(stamp + 1),
        read_to: stamp.is_multiple_of(2).then_some(stamp),
        is_last: stamp.is_multiple_of(3),
    }
}

/// Reads all records: the stamps of events, by their lanes, and how many readings there are.
fn read(mut pieces: Pieces) -> (Vec<(Lane, u64)>, usize) {
    let (mut events, mut readings) = (Vec::new(), 0);
    let mut piece = Vec::new();
    while pieces.next(&mut piece).unwrap() {
        assert!(piece.len() <= BUFFER, "more memory for more events");
        let mut rest = &piece[..];
        while let Some(record) = Record::take(&mut rest) {
            match record {
                Record::Events(lane, some) => {
                    events.extend(words(some).map(|words| (lane, words[0])));
                }
                Record::Read(_) => readings += 1,
                other => panic!("{other:?}"),
            }
        }
        assert!(rest.is_empty());
    }
    (events, readings)
}

/// Puts events of three lanes, with a reading after each thousand. Returns what was taken.
fn fill(spool: &mut Spool<'_>, count: u64) -> Vec<(Lane, u64)> {
    let mut all = Vec::new();
    for stamp in 1..=count {
        let lane = match stamp / 100 % 3 {
            0 => Lane::Carrier(7),
            1 => Lane::Bound(8),
            _ => Lane::Other,
        };
        spool.event(lane, [stamp, 2, 3]);
        if !spool.is_closed {
            all.push((lane, stamp));
        }
        if stamp.is_multiple_of(1000) {
            spool.record(&Record::Read(reading(stamp)));
        }
    }
    all
}

#[test]
fn a_record_is_taken_as_it_was_put() {
    let process = OtherProcess {
        pid: 5,
        name: "wrk".into(),
    };
    let events: Vec<u8> = (0..2 * EVENT_BYTES as u8).collect();
    let object = (WaitKind::FD_READ, 1 << 40);
    let woken = |by| Record::WokenBy { object, by };
    let records = [
        Record::Events(Lane::Bound(3), &events),
        Record::Read(reading(2)),
        Record::Read(reading(3)),
        Record::Looked,
        Record::Name {
            tid: 1,
            group: 2,
            name: "an ä",
        },
        Record::Text {
            place: (1 << 47, 3),
            text: "",
        },
        Record::ForgetTexts,
        woken(Some(WokenBy::one(process))),
        woken(Some(WokenBy::guess("one of many"))),
        woken(None),
        Record::Bound {
            tid: 1,
            carrier: 2,
            is_running: true,
        },
        Record::Unbound { tid: 1 },
        Record::Still {
            tid: 1,
            is_still: true,
        },
        Record::Runs {
            lane: Lane::Bound(1),
            tid: 2,
        },
        Record::Used {
            tid: 1,
            used_ns: 1 << 40,
        },
    ];
    let mut bytes = Vec::new();
    for record in &records {
        record.put(&mut bytes);
        if let Record::Events(..) = record {
            record::end_events(&mut bytes, 0);
        }
    }
    let mut rest = &bytes[..];
    for record in &records {
        assert_eq!(Record::take(&mut rest).as_ref(), Some(record));
    }
    assert_eq!(Record::take(&mut rest), None);
    // Damage is an end.
    for length in 0..bytes.len() {
        let mut rest = &bytes[..length];
        while Record::take(&mut rest).is_some() {}
    }
}

#[test]
fn a_short_recording_needs_no_file() {
    let folder = folder("short");
    let output = Output::create(&folder.join("a"), false).unwrap();
    let mut spool = Spool::new(&output);
    let count = IN_MEMORY / EVENT_BYTES as u64 / 1000 * 1000;
    let events = fill(&mut spool, count);
    assert!(spool.file.is_none() && !spool.kept.is_empty());
    let (pieces, end) = spool.into_pieces();
    assert!(end.is_none());
    assert!(read(pieces) == (events, count as usize / 1000));
    drop(output);
    fs::remove_dir(folder).unwrap();
}

#[test]
fn a_long_one_is_read_back_piece_by_piece_from_a_file_without_a_name() {
    let folder = folder("long");
    let output = Output::create(&folder.join("a"), false).unwrap();
    let mut spool = Spool::new(&output);
    let count = (IN_MEMORY + 3 * CUT) / EVENT_BYTES as u64;
    let events = fill(&mut spool, count);
    assert!(spool.file.is_some());
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
    let (pieces, end) = spool.into_pieces();
    assert!(end.is_none());
    let (found, readings) = read(pieces);
    assert!(found == events, "{} of {}", found.len(), events.len());
    assert_eq!(readings as u64, count / 1000);
    drop(output);
    fs::remove_dir(folder).unwrap();
}

#[test]
fn what_was_read_is_given_back() {
    use std::os::unix::fs::MetadataExt;
    let folder = folder("back");
    let output = Output::create(&folder.join("a"), false).unwrap();
    let mut spool = Spool::new(&output);
    fill(&mut spool, (IN_MEMORY + 2 * CUT) / EVENT_BYTES as u64);
    let (mut pieces, _) = spool.into_pieces();
    let mut ahead = pieces.clone();
    let file = |pieces: &Pieces| pieces.content.file.as_ref().unwrap().metadata().unwrap();
    let room = |pieces: &Pieces| file(pieces).blocks();
    let before = room(&pieces);
    let mut piece = Vec::new();
    let mut goes_on = true;
    while goes_on {
        goes_on = pieces.next(&mut piece).unwrap();
        pieces.give_back(&ahead);
    }
    assert_eq!(room(&pieces), before, "the other one has not read it");
    while ahead.next(&mut piece).unwrap() {
        pieces.give_back(&ahead);
    }
    assert!(room(&pieces) <= before / 2 + 1, "{before} blocks");
    drop(output);
    fs::remove_dir(folder).unwrap();
}

#[test]
fn without_room_it_ends_with_a_whole_reading_and_has_what_came_before() {
    let folder = folder("full");
    let output = Output::create(&folder.join("a"), false).unwrap();
    let mut spool = Spool::new(&output);
    fs::remove_dir(&folder).unwrap(); // no file can be made here any more
    let kept = IN_MEMORY as usize / EVENT_BYTES;
    let events = fill(&mut spool, 2 * kept as u64);
    assert!(spool.has_ended() && (kept..kept + 2 * BUFFER).contains(&events.len()));
    assert!(events.len().is_multiple_of(1000), "{}", events.len());
    spool.record(&Record::Read(reading(0))); // tells nothing any more
    let (pieces, end) = spool.into_pieces();
    assert!(end.is_some());
    let (found, readings) = read(pieces);
    assert!(found == events, "{} of {}", found.len(), events.len());
    assert_eq!(readings, events.len() / 1000);
}
