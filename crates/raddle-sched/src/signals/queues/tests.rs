//! Tests of the queues without other threads.

use super::*;

/// Signals with a value.
struct Values;

impl Details for Values {
    type Info = (u32, u32);

    const UNUSED: (u32, u32) = (0, 0);

    fn signal(info: &(u32, u32)) -> u32 {
        info.0
    }

    fn form(info: &(u32, u32)) -> Form {
        if info.0 < 32 { Form::Once } else { Form::Each }
    }

    fn add_expiry(_: &mut (u32, u32), _: &(u32, u32)) -> bool {
        false
    }

    fn without_record(signal: u32) -> (u32, u32) {
        (signal, 0)
    }
}

/// Returns the records of a process, and a thread of it.
fn process() -> (&'static Records<Values>, &'static PendingSignals) {
    let thread = Box::leak(Box::new(PendingSignals::new()));
    (Box::leak(Box::new(SpinLock::new(Pool::new()))), thread)
}

fn post(records: &Records<Values>, at: &PendingSignals, info: (u32, u32), to: Addressee) {
    assert!(at.post(records, &info, Values::form(&info), to, || true));
}

#[test]
fn addressees_have_an_instance_each_of_a_signal_that_merges() {
    let (records, thread) = process();
    for (value, to) in [
        (1, Addressee::Process),
        (2, Addressee::Thread),
        (3, Addressee::Process),
        (4, Addressee::Thread),
    ] {
        post(records, thread, (10, value), to);
    }
    assert_eq!(thread.take(records, 10), Some((10, 1)));
    assert_eq!(thread.take_shared(records, 10), None);
    assert_eq!(thread.deliverable(), bit(10));
    assert_eq!(thread.take(records, 10), Some((10, 2)));
    assert_eq!(thread.deliverable(), 0);
}

#[test]
fn a_signal_without_room_for_its_record_is_taken_without_details() {
    let (records, thread) = process();
    for _ in 0..2048 {
        post(records, thread, (40, 1), Addressee::Process);
    }
    post(records, thread, (10, 1), Addressee::Thread);
    post(records, thread, (10, 1), Addressee::Process);
    assert_eq!(thread.take(records, 10), Some((10, 0)));
    assert_eq!(thread.take(records, 10), Some((10, 0)), "the process's");
    assert_eq!(thread.take(records, 10), None);
    assert!(!thread.holds(10) && thread.holds(40));
}

#[test]
fn a_thread_gets_no_real_time_signal_while_another_holds_some() {
    let (records, first) = process();
    let (_, second) = process();
    let common = CommonSignals::new();
    let pass = |thread, value| common.pass(records, thread, &(34, value), || true);
    assert_eq!(pass(first, 1), Passed::Given);
    assert_eq!(pass(first, 2), Passed::Given);
    assert_eq!(pass(second, 3), Passed::Late);
    common.post(records, &(34, 3));
    assert_eq!(common.give(records, second, 34, || true), Passed::Late);
    assert_eq!(common.take(records, second, 34), Some((34, 1)));
    assert_eq!(first.take(records, 34), Some((34, 2)));
    assert_eq!(common.give(records, second, 34, || false), Passed::Refused);
    assert_eq!(common.give(records, second, 34, || true), Passed::Given);
    assert_eq!(second.take(records, 34), Some((34, 3)));
    assert_eq!(common.pending(), 0);
}

#[test]
fn what_a_thread_refuses_pends_for_the_process_again() {
    let (records, thread) = process();
    let common = CommonSignals::new();
    post(records, thread, (34, 1), Addressee::Thread);
    let passed = common.pass(records, thread, &(34, 2), || true);
    assert_eq!(passed, Passed::Given);
    common.take_back(records, thread, 34, || false);
    assert_eq!(common.pending(), 0);
    common.take_back(records, thread, 34, || true);
    assert_eq!(common.take(records, thread, 34), None, "its own is older");
    thread.drop_pending(records);
    assert_eq!(common.take(records, thread, 34), Some((34, 2)));
}
