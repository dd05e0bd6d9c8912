//! What traces are made of.

use prost::Message as _;

use super::encode::TrackKind;
use super::*;

fn event(kind: EventKind, thread: u32, other: u32, wait: WaitKind) -> Event {
    Event {
        stamp: 1,
        kind,
        thread,
        other,
        wait,
        arg: 0x1000,
    }
}

#[test]
fn switches_wakes_and_waits_are_written() {
    let mut bytes = Vec::new();
    let mut writer = PerfettoWriter::new(&mut bytes, 7, vec!["a".into()], 1).unwrap();
    writer.name(7, "main", 0).unwrap();
    writer.name(8, "worker", 0).unwrap();
    let lane = Lane::Carrier(3);
    let waits = event(EventKind::SWITCH, 8, 7, WaitKind::MUTEX);
    writer.event(lane, &waits, 100).unwrap();
    let woken = event(EventKind::WAKE, 8, 7, WaitKind::MUTEX);
    writer.event(lane, &woken, 200).unwrap();
    let ends = event(EventKind::END, 7, 8, WaitKind::NONE);
    writer.event(lane, &ends, 300).unwrap();
    assert_eq!(writer.finish(400).unwrap(), Counts { runs: 2, wakes: 1 });
    let trace = messages::Trace::decode(&bytes[..]).unwrap();
    let names: Vec<_> = trace
        .packet
        .iter()
        .filter_map(|packet| packet.interned_data.as_ref())
        .flat_map(|data| &data.event_names)
        .map(|name| (name.iid, name.name.as_deref()))
        .collect();
    assert_eq!(names, [(Some(1), Some("mutex 0x1000"))]);
    let slices: Vec<_> = trace
        .packet
        .iter()
        .filter_map(|packet| Some((packet.timestamp?, packet.track_event.as_ref()?)))
        .filter(|(_, event)| event.counter_value.is_none())
        .map(|(at, slice)| (at, slice.r#type.unwrap(), slice.name_iid))
        .collect();
    assert_eq!(
        slices,
        [
            (100, TrackKind::Begin as u32, Some(1)),
            (300, TrackKind::End as u32, None)
        ]
    );
    let bundles: Vec<_> = trace
        .packet
        .iter()
        .filter_map(|packet| packet.ftrace_events.as_ref())
        .collect();
    let [bundle] = bundles[..] else {
        panic!("one bundle: {bundles:?}");
    };
    assert_eq!(bundle.cpu, Some(3));
    let events = bundle.compact_sched.as_ref().unwrap();
    assert_eq!(events.switch_timestamp, [100, 200]);
    assert_eq!(events.switch_prev_state, [SLEEPING as i64, DEAD as i64]);
    assert_eq!(events.switch_next_pid, [7, 8]);
    assert_eq!(events.intern_table, ["main", "worker"]);
    assert_eq!(events.waking_timestamp, [200]);
    assert_eq!(
        (&events.waking_pid[..], &events.waking_comm_index[..]),
        (&[8][..], &[1][..])
    );
}

/// As `history` and `raddle locks` count waits.
#[test]
fn a_thread_that_is_woken_before_it_has_left_its_carrier_does_not_wait() {
    let mut bytes = Vec::new();
    let mut writer = PerfettoWriter::new(&mut bytes, 7, Vec::new(), 1).unwrap();
    let (lane, other) = (Lane::Carrier(0), Lane::Carrier(1));
    let runs = event(EventKind::SWITCH, 0, 8, WaitKind::NONE);
    let waits = event(EventKind::SWITCH, 8, 0, WaitKind::MUTEX);
    let woken = event(EventKind::WAKE, 8, 9, WaitKind::MUTEX);
    for (at, lane, event) in [
        (10, lane, &runs),
        (20, other, &woken),
        (21, lane, &waits),
        (24, other, &runs),
        (30, other, &waits),
        (40, lane, &woken),
        (50, lane, &runs),
    ] {
        writer.event(lane, event, at).unwrap();
    }
    writer.finish(60).unwrap();
    let track = u64::from(8u32) << 1 | 1;
    assert_eq!(shown(&bytes, track), ["30 1 mutex 0x1000", "50 2 "]);
    let trace = messages::Trace::decode(&bytes[..]).unwrap();
    let bundles = trace
        .packet
        .iter()
        .filter_map(|it| it.ftrace_events.as_ref());
    let sched = bundles.filter_map(|it| it.compact_sched.as_ref());
    let states: Vec<_> = sched.map(|it| it.switch_prev_state.clone()).collect();
    let sleeping = SLEEPING as i64;
    assert_eq!(states[0][1], RUNNABLE as i64);
    assert_eq!(states[1][1], sleeping);
}

/// What a track shows: the type of each event, its name or value.
fn shown(bytes: &[u8], track: u64) -> Vec<String> {
    let trace = messages::Trace::decode(bytes).unwrap();
    let mut names = std::collections::HashMap::new();
    let mut shown = Vec::new();
    for packet in trace.packet {
        if packet.sequence_flags == Some(1) {
            names.clear();
        }
        for name in packet
            .interned_data
            .into_iter()
            .flat_map(|it| it.event_names)
        {
            names.insert(name.iid.unwrap(), name.name.unwrap());
        }
        let Some(event) = packet.track_event else {
            continue;
        };
        if event.track_uuid != Some(track) {
            continue;
        }
        let kind = event.r#type.unwrap();
        let name = event.name_iid.map(|iid| names[&iid].clone());
        let value = event.counter_value.map(|value| value.to_string());
        let what = name.or(value).unwrap_or_default();
        shown.push(format!("{} {kind} {what}", packet.timestamp.unwrap()));
    }
    shown
}

fn tracks(bytes: &[u8]) -> Vec<(String, u64)> {
    let trace = messages::Trace::decode(bytes).unwrap();
    let tracks = trace
        .packet
        .into_iter()
        .filter_map(|it| it.track_descriptor);
    tracks
        .filter_map(|track| Some((track.name?, track.uuid?)))
        .collect()
}

#[test]
fn marks_stays_in_the_kernel_and_spans_are_on_the_track_of_the_thread() {
    let mut bytes = Vec::new();
    let mut writer = PerfettoWriter::new(&mut bytes, 7, Vec::new(), 1).unwrap();
    let none = |kind, thread, other| event(kind, thread, other, WaitKind::NONE);
    let lane = Lane::Carrier(0);
    let span = event(EventKind::SPAN_BEGIN, 8, 0, WaitKind(4));
    assert_eq!(writer.wants_text(&span), Some((0x1000, 4)));
    writer.text((0x1000, 4), "work");
    assert_eq!(writer.wants_text(&span), None);
    for (at, event) in [
        (1, none(EventKind::SPAN_END, 8, 0)),
        (2, none(EventKind::STEAL, 8, 3)),
        (3, span),
        (4, none(EventKind::SIGNAL, 8, 10)),
        (5, none(EventKind::BLOCK, 8, 0)),
        (6, none(EventKind::RETURN, 8, 0)),
        (7, none(EventKind::BLOCK, 8, 0)),
        (8, event(EventKind::SWITCH, 8, 0, WaitKind::SLEEP)),
        (9, none(EventKind::BLOCK, 8, 0)),
        (10, none(EventKind::SWITCH, 0, 8)),
        (11, span),
    ] {
        writer.event(lane, &event, at).unwrap();
    }
    writer.finish(20).unwrap();
    let expected = [
        "2 3 moved from carrier 3",
        "3 1 work",
        "4 3 signal 10",
        "5 1 in the kernel",
        "6 2 ",
        "7 1 in the kernel",
        "8 2 ",
        "8 1 sleep",
        "10 2 ",
        "11 1 work",
        "20 2 ",
        "20 2 ",
    ];
    assert_eq!(shown(&bytes, 8 << 1 | 1), expected);
}

#[test]
fn counters_are_written_when_they_change() {
    let mut bytes = Vec::new();
    let mut writer = PerfettoWriter::new(&mut bytes, 7, Vec::new(), 1).unwrap();
    let queue = |own, common| Event {
        arg: 0,
        ..event(EventKind::QUEUE, own, common, WaitKind::NONE)
    };
    let counter = |value: i64| {
        let halves = value as u64;
        let (low, high) = (halves as u32, (halves >> 32) as u32);
        event(EventKind::COUNTER, low, high, WaitKind(0))
    };
    writer.text((0x1000, 0), "jobs");
    for (lane, at, event) in [
        (0, 1, queue(2, 5)),
        (1, 2, queue(1, 5)),
        (0, 3, queue(2, 5)),
        (0, 4, queue(0, 0)),
        (0, 5, counter(-3)),
        (0, 6, counter(1 << 40)),
    ] {
        writer.event(Lane::Carrier(lane), &event, at).unwrap();
    }
    writer.finish(20).unwrap();
    let tracks = tracks(&bytes);
    let of = |name: &str| {
        let (_, track) = tracks.iter().find(|(it, _)| it == name).unwrap();
        shown(&bytes, *track)
    };
    assert_eq!(of("run queue of carrier 0"), ["1 4 2", "4 4 0"]);
    assert_eq!(of("run queue of carrier 1"), ["2 4 1"]);
    assert_eq!(of("run queue of all carriers"), ["1 4 5", "4 4 0"]);
    assert_eq!(of("runnable threads"), ["1 4 7", "2 4 8", "4 4 1"]);
    assert_eq!(of("jobs"), ["5 4 -3", "6 4 1099511627776"]);
}

#[test]
fn threads_that_have_ended_are_forgotten() {
    let mut writer = PerfettoWriter::new(io::sink(), 7, Vec::new(), 1).unwrap();
    for tid in 1..10_000 {
        let at = u64::from(tid);
        let lane = Lane::Carrier(0);
        let span = event(EventKind::SPAN_BEGIN, tid, 0, WaitKind::NONE);
        let ends = event(EventKind::END, tid, 0, WaitKind::NONE);
        writer.name(tid, "worker", 0).unwrap();
        writer.event(lane, &span, at).unwrap();
        writer.event(lane, &ends, at).unwrap();
    }
    assert!(writer.threads.len() <= 1, "{}", writer.threads.len());
}

#[test]
fn threads_of_an_engine_are_together() {
    let mut bytes = Vec::new();
    let mut writer = PerfettoWriter::new(&mut bytes, 7, Vec::new(), 1).unwrap();
    for (tid, group) in [(7, 0), (8, 2), (9, 2), (10, u32::MAX)] {
        writer.name(tid, "a", group).unwrap();
        let waits = event(EventKind::SWITCH, tid, 0, WaitKind::SLEEP);
        writer.event(Lane::Carrier(0), &waits, 5).unwrap();
    }
    writer.finish(9).unwrap();
    let trace = messages::Trace::decode(&bytes[..]).unwrap();
    let trees: Vec<_> = trace
        .packet
        .iter()
        .filter_map(|it| it.process_tree.as_ref())
        .collect();
    let processes = trees.iter().flat_map(|tree| &tree.processes);
    let pids: Vec<_> = processes.map(|process| process.pid.unwrap()).collect();
    assert_eq!(pids, [7, 1 << 23 | 2, 1 << 23 | 0xffff]);
    let threads = trees.iter().flat_map(|tree| &tree.threads);
    let of: Vec<_> = threads.map(|thread| thread.tgid.unwrap()).collect();
    assert_eq!(of, [7, 1 << 23 | 2, 1 << 23 | 2, 1 << 23 | 0xffff]);
    let tracks = trace
        .packet
        .iter()
        .filter_map(|it| it.track_descriptor.as_ref()?.thread.as_ref());
    let shown: Vec<_> = tracks.map(|thread| thread.pid.unwrap()).collect();
    assert_eq!(shown, of, "a track is in the same process");
}

#[test]
fn the_end_of_a_wait_names_the_process_that_has_woken_the_thread() {
    let mut bytes = Vec::new();
    let mut writer = PerfettoWriter::new(&mut bytes, 7, Vec::new(), 1).unwrap();
    let lane = Lane::Carrier(0);
    let poster = || OtherProcess {
        pid: 99,
        name: "poster".into(),
    };
    let (sure, guess) = (
        WokenBy::one(poster()),
        WokenBy::guess("perhaps poster (99)"),
    );
    let waits = event(EventKind::SWITCH, 8, 0, WaitKind::FD_READ);
    let woken = event(EventKind::WAKE, 8, 0, WaitKind::FD_READ);
    let runs = event(EventKind::SWITCH, 0, 8, WaitKind::NONE);
    for (at, by) in [(10, Some(&sure)), (20, Some(&guess)), (30, None)] {
        writer.event(lane, &waits, at).unwrap();
        writer.event(lane, &woken, at + 1).unwrap();
        if let Some(by) = by {
            writer.woken_by(8, by, at + 1).unwrap();
        }
        writer.event(lane, &runs, at + 2).unwrap();
    }
    // A thread that does not wait has no end of a wait.
    writer.woken_by(8, &sure, 40).unwrap();
    writer.finish(50).unwrap();
    let other = others::OTHER_TRACK | 99;
    assert_eq!(shown(&bytes, other), ["11 3 wake-up"]);
    let expected = [
        "10 1 fd_read 4096",
        "11 3 woken by process 99",
        "12 2 ",
        "20 1 fd_read 4096",
        "22 2 ",
        "30 1 fd_read 4096",
        "32 2 ",
    ];
    assert_eq!(shown(&bytes, 8 << 1 | 1), expected);
    let trace = messages::Trace::decode(&bytes[..]).unwrap();
    let events = || trace.packet.iter().filter_map(|it| it.track_event.as_ref());
    let annotations = events().flat_map(|it| &it.debug_annotations);
    let annotations: Vec<_> = annotations
        .map(|it| (it.name.as_deref(), it.string_value.as_deref(), it.int_value))
        .collect();
    let by = Some("woken_by");
    let expected = [
        (by, Some("poster (99)"), None),
        (Some("waker_pid"), None, Some(99)),
        (by, Some("perhaps poster (99)"), None),
    ];
    assert_eq!(annotations, expected);
    let flows = |of: fn(&messages::TrackEvent) -> &Vec<u64>| {
        let flows = events().flat_map(move |it| of(it).iter().map(|&flow| (it.track_uuid, flow)));
        flows.collect::<Vec<_>>()
    };
    assert_eq!(flows(|it| &it.flow_ids), [(Some(other), 1)]);
    assert_eq!(
        flows(|it| &it.terminating_flow_ids),
        [(Some(8 << 1 | 1), 1)]
    );
    // No thread of this process has made the wake-ups.
    let bundles = trace
        .packet
        .iter()
        .filter_map(|it| it.ftrace_events.as_ref());
    let sched = bundles.filter_map(|it| it.compact_sched.as_ref());
    let flags: Vec<_> = sched.flat_map(|it| &it.waking_common_flags).collect();
    assert_eq!(flags, [&16; 3]);
}

#[test]
fn a_thread_that_is_woken_first_has_waited_from_the_begin_and_a_pause_ends_all() {
    let mut bytes = Vec::new();
    let mut writer = PerfettoWriter::new(&mut bytes, 7, Vec::new(), 10).unwrap();
    writer.begins(10);
    let lane = Lane::Carrier(0);
    let woken = event(EventKind::WAKE, 8, 9, WaitKind::MUTEX);
    let runs = event(EventKind::SWITCH, 0, 8, WaitKind::NONE);
    let waits = event(EventKind::SWITCH, 8, 0, WaitKind::FUTEX);
    let made = event(EventKind::CREATE, 11, 8, WaitKind::NONE);
    for (at, event) in [(20, woken), (30, runs), (35, made), (40, waits), (50, made)] {
        writer.event(lane, &event, at).unwrap();
    }
    writer.pauses().unwrap();
    writer.begins(90);
    for (at, event) in [(100, woken), (110, runs)] {
        writer.event(lane, &event, at).unwrap();
    }
    // An event has come after the end.
    writer.event(lane, &waits, 130).unwrap();
    writer.finish(120).unwrap();
    let expected = [
        "10 1 mutex 0x1000",
        "30 2 ",
        "40 1 futex 0x1000",
        "50 2 ",
        "90 1 mutex 0x1000",
        "110 2 ",
        "130 1 futex 0x1000",
        "130 2 ",
    ];
    assert_eq!(shown(&bytes, 8 << 1 | 1), expected);
    assert!(shown(&bytes, 11 << 1 | 1).is_empty());
}
