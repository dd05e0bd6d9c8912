use std::collections::HashSet;
use std::io::{Read, Write};

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use prost::Message;

use super::fields::Limits;
use super::messages::{self, Function, Label, Line, Location, Sample as Stack, ValueType};
use super::*;
use crate::outputs::columns::WIDTH;
use crate::outputs::samples;
use crate::outputs::summary;
use crate::outputs::totals::Totals;

fn file(profile: &Profile) -> Vec<u8> {
    let mut bytes = Vec::new();
    write(profile, &mut bytes).unwrap();
    bytes
}

fn decoded(bytes: &[u8]) -> messages::Profile {
    let mut unpacked = Vec::new();
    io::copy(&mut GzDecoder::new(bytes), &mut unpacked).unwrap();
    messages::Profile::decode(&unpacked[..]).unwrap()
}

fn packed(message: &messages::Profile) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(&message.encode_to_vec()).unwrap();
    encoder.finish().unwrap()
}

/// What pprof itself checks of a profile.
fn check(message: &messages::Profile) {
    assert_eq!(message.string_table[0], "");
    let strings = message.string_table.len() as i64;
    let unique: HashSet<_> = message.string_table.iter().collect();
    assert_eq!(unique.len() as i64, strings);
    let functions: HashSet<u64> = message.function.iter().map(|it| it.id).collect();
    let locations: HashSet<u64> = message.location.iter().map(|it| it.id).collect();
    let mappings: HashSet<u64> = message.mapping.iter().map(|it| it.id).collect();
    assert_eq!(functions.len(), message.function.len());
    assert_eq!(locations.len(), message.location.len());
    assert_eq!(mappings.len(), message.mapping.len());
    for ids in [&functions, &locations, &mappings] {
        assert!(!ids.contains(&0));
    }
    for location in &message.location {
        assert!(location.mapping_id == 0 || mappings.contains(&location.mapping_id));
        assert!(!location.line.is_empty());
        for line in &location.line {
            assert!(functions.contains(&line.function_id));
        }
    }
    for function in &message.function {
        assert!((1..strings).contains(&function.name));
        assert!((0..strings).contains(&function.filename));
    }
    for sample in &message.sample {
        assert_eq!(sample.value.len(), message.sample_type.len());
        assert!(sample.value.iter().all(|&value| value >= 0));
        assert!(sample.location_id.iter().all(|id| locations.contains(id)));
        for label in &sample.label {
            assert!((1..strings).contains(&label.key));
            assert!((0..strings).contains(&label.str));
        }
    }
}

#[test]
fn a_file_has_inlined_functions_in_one_location() {
    let message = decoded(&file(&samples::small()));
    check(&message);
    let text = |number: i64| message.string_table[number as usize].as_str();
    let inlined: Vec<_> = message
        .location
        .iter()
        .filter(|location| location.line.len() == 2)
        .collect();
    assert_eq!(inlined.len(), 1);
    let computes = message
        .sample
        .iter()
        .find(|sample| sample.location_id.first() == Some(&inlined[0].id))
        .unwrap();
    assert_eq!(computes.location_id.len(), 2);
    assert_eq!(computes.value, [1, 30_000_000, 30_000_000, 0]);
    let waits = message.sample.iter().filter(|sample| {
        let has = |it: &Label| text(it.key) == "object" && text(it.str).starts_with("0x5510 (");
        sample.label.iter().any(has) && sample.value == [11, 1_100_000_000, 0, 1_100_000_000]
    });
    assert_eq!(waits.count(), 9);
    assert_eq!(text(message.comment[0]), "raddle profile version 1");
    assert_eq!(text(message.default_sample_type), "wall");
    assert_eq!(text(message.mapping[0].filename), "server");
}

#[test]
fn what_was_written_is_read() {
    let written = samples::small();
    let read = read(&mut &file(&written)[..]).unwrap();
    assert_eq!(read.threads, written.threads);
    assert_eq!(read.waits, written.waits);
    assert_eq!(read.command, written.command);
    assert_eq!(read.remarks, written.remarks);
    assert_eq!(Totals::of(&read), Totals::of(&written));
    let texts = [&read, &written].map(|profile| {
        let mut text = Vec::new();
        crate::outputs::folded::write(profile, &mut text).unwrap();
        crate::outputs::wakers::write(profile, &mut text).unwrap();
        String::from_utf8(text).unwrap()
    });
    assert_eq!(texts[0], texts[1]);
    let summaries = [&read, &written].map(|it| summary::text(it, WIDTH));
    assert_eq!(summaries[0], summaries[1]);
    assert_eq!(decoded(&file(&read)).sample.len(), written.samples.len());
}

#[test]
fn hostile_profiles_are_valid_files() {
    for profile in samples::hostile() {
        let bytes = file(&profile);
        check(&decoded(&bytes));
        let read = read(&mut &bytes[..]).unwrap();
        assert_eq!(read.threads.len().max(1), profile.threads.len().max(1));
    }
}

#[test]
fn a_later_version_is_refused_by_its_number() {
    let mut message = decoded(&file(&samples::small()));
    let number = message.comment[0] as usize;
    for version in ["2", "17", "1.5", "x\u{1b}y"] {
        message.string_table[number] = format!("raddle profile version {version}");
        let error = read(&mut &packed(&message)[..]).unwrap_err();
        let shown = version.replace('\u{1b}', "\\u{1b}");
        let sentence = format!("has version {shown} of raddle's profiles, and this raddle reads 1");
        let sentence = sentence.replace("reads 1", "reads version 1");
        assert_eq!(error.to_string(), sentence);
    }
}

/// A file of another profiler.
fn foreign() -> messages::Profile {
    let strings = [
        "",
        "samples",
        "count",
        "cpu",
        "nanoseconds",
        "main.work",
        "main.go",
        "main",
    ];
    let kind = |name, unit| ValueType { r#type: name, unit };
    messages::Profile {
        sample_type: vec![kind(1, 2), kind(3, 4)],
        sample: vec![Stack {
            location_id: vec![1, 2, 77],
            value: vec![3, 30_000_000],
            label: Vec::new(),
        }],
        location: vec![
            Location {
                id: 1,
                line: vec![Line {
                    function_id: 1,
                    line: 12,
                }],
                ..Location::default()
            },
            Location {
                id: 2,
                mapping_id: 5,
                address: 0x4711,
                line: Vec::new(),
            },
        ],
        function: vec![Function {
            id: 1,
            name: 5,
            system_name: 5,
            filename: 6,
        }],
        string_table: strings.map(Into::into).to_vec(),
        duration_nanos: 1_000_000_000,
        ..messages::Profile::default()
    }
}

#[test]
fn files_of_other_profilers_are_read() {
    let read = read(&mut &packed(&foreign())[..]).unwrap();
    assert_eq!(read.duration_ns, 1_000_000_000);
    assert_eq!(read.threads.len(), 1);
    assert_eq!(read.threads[0].running_ns, 30_000_000);
    let names: Vec<_> = read.functions_of(0).map(|it| it.name.as_str()).collect();
    assert_eq!(names, ["0x4711", "main.work"]);
    assert_eq!(read.samples[0].count, 3);
    assert!(read.remarks[0].starts_with("only the samples of this file are known"));
    let raw = foreign().encode_to_vec();
    assert_eq!(super::read(&mut &raw[..]).unwrap(), read);
}

#[test]
fn numbers_that_stand_for_nothing_name_nothing() {
    let mut message = foreign();
    message.function[0].name = -1;
    message.function[0].system_name = i64::MAX;
    message.location[0].line[0].function_id = u64::MAX;
    message.sample[0].label = vec![Label {
        key: 99,
        str: -5,
        num: -1,
        num_unit: 7,
    }];
    message.sample[0].value.clear();
    message.comment = vec![i64::MIN, 400];
    message.location[1].id = 1;
    let read = read(&mut &packed(&message)[..]).unwrap();
    assert_eq!(read.samples.len(), 0);
    message.sample_type[1].r#type = 1000;
    assert!(super::read(&mut &packed(&message)[..]).is_ok());
}

#[test]
fn what_is_no_profile_is_refused() {
    let whole = file(&samples::small());
    for (bytes, expected) in [
        (&b""[..], "is no profile in pprof's format"),
        (b"main;work 12\n", "is no profile in pprof's format"),
        (&[0x1f, 0x8b], "is cut or damaged"),
        (&whole[..whole.len() / 2], "is cut or damaged"),
        (&whole[..whole.len() - 3], "is cut or damaged"),
    ] {
        let error = read(&mut &bytes[..]).unwrap_err();
        assert_eq!(error.to_string(), expected);
    }
    let mut memory = foreign();
    memory.string_table[4] = "bytes".into();
    let error = read(&mut &packed(&memory)[..]).unwrap_err();
    assert_eq!(error.to_string(), "is a profile without times");
}

/// Limits that tests reach in little time.
const SMALL: Limits = Limits {
    bytes: 1 << 20,
    units: 1 << 16,
};

#[test]
fn bombs_are_too_large() {
    let too_large = |bytes: &[u8]| {
        let read = super::reader::read_within(SMALL, &mut &bytes[..]);
        matches!(read, Err(ReadError::TooLarge))
    };
    assert!(!too_large(&packed(&foreign())));
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    io::copy(&mut io::repeat(0).take(2 << 20), &mut encoder).unwrap();
    let bomb = encoder.finish().unwrap();
    assert!(bomb.len() < 1 << 16 && too_large(&bomb));
    // Few locations of many lines, in many stacks.
    let mut message = foreign();
    message.location[0].line = vec![
        Line {
            function_id: 1,
            line: 1
        };
        100
    ];
    message.sample[0].location_id = vec![1; 1000];
    assert!(too_large(&packed(&message)));
    // Many entries in few bytes.
    for field in [1, 2, 3, 4, 5, 6, 7202, 7203] {
        let mut bytes = foreign().encode_to_vec();
        let mut entry = Vec::new();
        prost::encoding::encode_varint(field << 3 | 2, &mut entry);
        entry.push(0);
        bytes.extend(entry.repeat(1 << 14));
        assert!(too_large(&bytes), "{field}");
    }
}

#[test]
fn damaged_bytes_never_panic() {
    let whole = decoded(&file(&samples::small())).encode_to_vec();
    let mut state = 88_172_645_463_325_252_u64;
    let mut random = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as usize
    };
    for _ in 0..3000 {
        let mut bytes = whole.clone();
        for _ in 0..random() % 8 + 1 {
            let place = random() % bytes.len();
            bytes[place] = random() as u8;
        }
        bytes.truncate(random() % (bytes.len() * 2));
        if let Ok(profile) = read(&mut &bytes[..]) {
            summary::text(&profile, WIDTH);
            write(&profile, &mut io::sink()).unwrap();
        }
    }
}
