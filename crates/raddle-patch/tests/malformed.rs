//! Malformed images: a refusal that says why, or a plan, never a fault.
//!
//! The images lie between inaccessible pages, so reading beyond them would kill the test.

mod synthetic;

use object::{Object, ObjectSegment, SegmentFlags};
use proptest::collection::vec;
use proptest::prelude::*;
use raddle_patch::{Refusal, Report, Site, plan};
use synthetic::{Builder, Loaded};

const ALL: [u64; 8] = [u64::MAX; 8];

fn sample() -> Vec<u8> {
    let mut builder = Builder::default();
    builder.function(&[0xb8, 39, 0, 0, 0, 0x0f, 0x05, 0xc3]);
    builder.function(&[0x74, 0x01, 0xf0, 0xff, 0x07, 0x0f, 0x05, 0xff, 0xe0]);
    builder.function(&[0x48, 0x8d, 0x05, 0, 0xf8, 0xff, 0xff, 0x0f, 0x05, 0xc3]);
    builder.constants(&[0, 8, 0, 0, 4, 8, 0, 0]);
    builder.bytes()
}

fn refusal_of(change: impl FnOnce(&mut Vec<u8>)) -> Refusal {
    let mut bytes = sample();
    change(&mut bytes);
    let loaded = Loaded::new(&bytes);
    let mut scratch = [Site::EMPTY; 16];
    let outcome = loaded
        .image()
        .and_then(|image| plan(&image, &ALL, &mut scratch).map(|_| ()));
    outcome.expect_err("it is malformed")
}

#[test]
fn each_part_is_checked() {
    let program_header = |index: usize, field: usize| 64 + index * 56 + field;
    assert_eq!(refusal_of(|bytes| bytes[1] = b'e'), Refusal::NotElf);
    assert_eq!(refusal_of(|bytes| bytes[4] = 1), Refusal::NotElf);
    assert_eq!(refusal_of(|bytes| bytes[18] = 3), Refusal::NotElf);
    assert_eq!(refusal_of(|bytes| bytes[16] = 2), Refusal::NotRelocatable);
    assert_eq!(refusal_of(|bytes| bytes[33] = 0xff), Refusal::BadHeaders);
    assert_eq!(refusal_of(|bytes| bytes[39] = 0xff), Refusal::BadHeaders);
    assert_eq!(refusal_of(|bytes| bytes[54] = 55), Refusal::BadHeaders);
    assert_eq!(refusal_of(|bytes| bytes[56] = 200), Refusal::BadHeaders);
    assert_eq!(refusal_of(|bytes| bytes[56] = 0), Refusal::NoText);
    let address = program_header(1, 16);
    assert_eq!(
        refusal_of(|bytes| bytes[address + 7] = 0x80),
        Refusal::BadHeaders
    );
    let len = program_header(1, 32);
    assert_eq!(
        refusal_of(|bytes| bytes[len..len + 8].fill(0xff)),
        Refusal::BadHeaders
    );
    assert_eq!(
        refusal_of(|bytes| bytes[program_header(1, 4)] = 4),
        Refusal::NoText
    );
    assert_eq!(
        refusal_of(|bytes| bytes[program_header(3, 0)] = 9),
        Refusal::NoUnwindTable
    );
    assert_eq!(
        refusal_of(|bytes| bytes[0x4000] = 2),
        Refusal::NoUnwindTable
    );
    assert_eq!(
        refusal_of(|bytes| bytes[0x400b] = 0x7f),
        Refusal::NoUnwindTable
    );
}

#[test]
fn a_refusal_is_one_sentence_with_a_cure() {
    let refusals = [
        Refusal::NotElf,
        Refusal::BadHeaders,
        Refusal::NotRelocatable,
        Refusal::NoText,
        Refusal::NoUnwindTable,
        Refusal::TooManySites,
        Refusal::NoStubsLeft,
        Refusal::TooFar,
        Refusal::Forbidden { errno: 13 },
        Refusal::Protect { errno: 12 },
        Refusal::TextLost { errno: 12 },
    ];
    for refusal in refusals {
        let text = refusal.to_string();
        assert!(
            text.contains(';') && !text.contains('\n') && !text.ends_with('.'),
            "{text}"
        );
    }
}

#[test]
fn an_empty_report_counts_nothing() {
    assert_eq!(Report::default().sites, 0);
}

/// Returns ld.so's file, laid out as in memory, without the segments that the loader leaves
/// writable.
fn ld_so() -> Vec<u8> {
    let file = std::fs::read("/lib64/ld-linux-x86-64.so.2").expect("this program was loaded by it");
    let object = object::File::parse(&*file).expect("an ELF file");
    let mut bytes = Vec::new();
    for segment in object.segments() {
        let SegmentFlags::Elf { .. } = segment.flags() else {
            continue;
        };
        let (address, data) = (
            segment.address() as usize,
            segment.data().expect("in the file"),
        );
        bytes.resize(bytes.len().max(address + data.len()), 0);
        bytes[address..address + data.len()].copy_from_slice(data);
    }
    bytes
}

fn plan_does_not_fault(bytes: &[u8]) {
    let loaded = Loaded::new(bytes);
    let mut scratch = [Site::EMPTY; 256];
    if let Ok(image) = loaded.image() {
        let sites = plan(&image, &ALL, &mut scratch).map_or(0, |plan| plan.sites().len());
        assert!(sites <= 256);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// A few wrong bytes in headers, constants, code and unwind tables.
    #[test]
    fn a_small_image_with_wrong_bytes_does_no_harm(
        changes in vec((0usize..6, 0usize..300, any::<u8>()), 1..12)
    ) {
        let mut bytes = sample();
        for (region, offset, value) in changes {
            let start = [0, 64, 0x800, 0x1000, 0x4000, 0x5000][region];
            bytes[start + offset] = value;
        }
        plan_does_not_fault(&bytes);
    }

    /// Random code.
    #[test]
    fn any_bytes_as_code_do_no_harm(code in vec(any::<u8>(), 1..400)) {
        let mut builder = Builder::default();
        builder.function(&code);
        builder.function(&[0x0f, 0x05]);
        plan_does_not_fault(&builder.bytes());
    }

    /// Random bytes decode to an instruction of at most 15 existing bytes, or to none.
    #[test]
    fn any_bytes_can_be_decoded(bytes in vec(any::<u8>(), 0..20)) {
        if let Some(instruction) = raddle_patch::decode::decode(&bytes) {
            prop_assert!((1..=bytes.len().min(15)).contains(&instruction.len()));
            let _ = (instruction.flow(), instruction.rip(), instruction.rsp(), instruction.eax());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 48, failure_persistence: None, ..ProptestConfig::default()
    })]

    /// Wrong bytes anywhere in a real file.
    #[test]
    fn a_real_file_with_wrong_bytes_does_no_harm(
        changes in vec((any::<prop::sample::Index>(), any::<u8>()), 1..400),
        headers in vec((0usize..1024, any::<u8>()), 0..3)
    ) {
        let mut bytes = ld_so();
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        for (at, value) in headers {
            bytes[at] = value;
        }
        plan_does_not_fault(&bytes);
    }
}
