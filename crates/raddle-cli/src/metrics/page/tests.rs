use super::*;
use crate::failure::Failure;
use crate::metrics::reading::Reading;
use raddle_inspect::{BUCKETS, CarrierRecord, Header, Totals};
use std::time::Duration;

fn sample(command: &str, reading: Option<Reading>) -> Sample {
    Sample {
        pid: 42,
        command: command.into(),
        reading: reading.ok_or_else(|| Failure::input("it", "is away")),
        took: Duration::from_millis(5),
    }
}

fn reading() -> Reading {
    let mut totals = Totals::NONE;
    totals.engines[0].wanted = 2;
    Reading {
        header: Header::new(),
        carriers: Vec::new(),
        totals,
        kernel: Vec::new(),
        groups: None,
    }
}

fn line<'a>(text: &'a str, beginning: &str) -> &'a str {
    let found = text.lines().find(|line| line.starts_with(beginning));
    found.unwrap_or_else(|| panic!("no {beginning} in {text}"))
}

#[test]
fn a_process_that_is_away_has_no_more_than_that() {
    let text = text(vec![sample("gone", None)]).unwrap();
    let up = "raddle_up{pid=\"42\",command=\"gone\"} 0.0";
    assert_eq!(line(&text, "raddle_up{"), up);
    let rows = text.lines().filter(|line| !line.starts_with('#')).count();
    assert_eq!(rows, 2, "{text}");
    assert!(text.ends_with("# EOF\n"));
}

#[test]
fn names_with_any_characters_stay_one_label() {
    let text = text(vec![sample("a\"b\\c\nd{}", Some(reading()))]).unwrap();
    let up = "raddle_up{pid=\"42\",command=\"a\\\"b\\\\c\\nd{}\"} 1.0";
    assert_eq!(line(&text, "raddle_up{"), up);
}

#[test]
fn counts_that_lie_overflow_nothing() {
    let mut reading = reading();
    reading.header.live_threads = u64::MAX;
    reading.header.now_ns = 1;
    reading.header.started_ns = u64::MAX;
    reading.totals.delays.counts = [u64::MAX; BUCKETS];
    reading.totals.engines[0].queue_len = u64::MAX;
    let carrier = CarrierRecord {
        switches: u64::MAX,
        queue_len: u64::MAX,
        engine: u64::MAX,
        ..CarrierRecord::default()
    };
    reading.carriers = vec![carrier; 1000];
    let text = text(vec![sample("liar", Some(reading))]).unwrap();
    let rest = "raddle_switches_total{pid=\"42\",command=\"liar\",engine=\"18446744073709551615\",\
                carrier=\"other\"} 18446744073709551615";
    assert_eq!(line(&text, &rest[..rest.len() - 20]), rest);
}

#[test]
fn a_histogram_has_one_bucket_for_each_doubling() {
    let mut histogram = Histogram::EMPTY;
    histogram.counts[0] = 1;
    histogram.counts[3] = 2;
    histogram.counts[4] = 3;
    histogram.counts[BUCKETS - 1] = 4;
    let buckets = buckets(&histogram);
    assert_eq!(buckets.len(), BUCKETS / 4);
    assert_eq!(buckets[..2], [(31e-9, 3), (63e-9, 3)]);
    assert_eq!(buckets[BUCKETS / 4 - 1], (f64::INFINITY, 4));
    assert!(buckets.is_sorted_by(|a, b| a.0 < b.0));
}
