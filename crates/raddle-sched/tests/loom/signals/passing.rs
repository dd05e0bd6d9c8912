//! A signal for the process waits at a thread that changes its mask or ends.

use super::*;

/// The main thread closes its mask while a signal comes, which another thread accepts.
fn closing<V: Model>() {
    in_worlds(3, 2, |world| {
        let closing = thread::spawn(move || {
            world.threads[0].set_mask(&V::of(world, Some(0)), bit(USR1));
        });
        V::of(world, None).to_process(&(USR1, 1), None);
        closing.join().unwrap();
        world.settle::<V>();
        world.judge(&[1], &[]);
    });
}

/// The main thread ends while a signal comes, which another thread accepts.
fn ending<V: Model>() {
    in_worlds(3, 2, |world| {
        let ending = thread::spawn(move || world.threads[0].end(&V::of(world, Some(0))));
        V::of(world, None).to_process(&(USR1, 1), None);
        ending.join().unwrap();
        world.settle::<V>();
        world.judge(&[1], &[]);
    });
}

/// The only thread opens its mask while a signal comes.
fn opening<V: Model>() {
    in_worlds(3, 1, |world| {
        let thread = &world.threads[0];
        thread.signals.mask.store(bit(USR1), Ordering::Relaxed);
        let opening = thread::spawn(move || thread.set_mask(&V::of(world, Some(0)), 0));
        V::of(world, None).to_process(&(USR1, 1), None);
        opening.join().unwrap();
        world.settle::<V>();
        world.judge(&[1], &[]);
    });
}

/// The only thread closes its mask and opens it again while a signal comes.
fn closing_and_opening<V: Model>() {
    in_worlds(2, 1, |world| {
        let changing = thread::spawn(move || {
            let (thread, view) = (&world.threads[0], V::of(world, Some(0)));
            thread.set_mask(&view, bit(USR1));
            thread.set_mask(&view, 0);
        });
        V::of(world, None).to_process(&(USR1, 1), None);
        changing.join().unwrap();
        world.settle::<V>();
        world.judge(&[1], &[]);
    });
}

#[test]
fn a_thread_that_closes_its_mask_passes_the_signal_on() {
    closing::<Sound>();
}

#[test]
fn a_thread_that_ends_passes_the_signal_on() {
    ending::<Sound>();
}

#[test]
fn a_thread_that_opens_its_mask_takes_what_pends_for_the_process() {
    opening::<Sound>();
}

#[test]
fn a_thread_that_closes_and_opens_its_mask_takes_the_signal() {
    closing_and_opening::<Sound>();
}

/// A view with a flaw.
#[derive(Clone, Copy)]
struct Twin<const FLAW: u32>(Ref, Option<usize>);

/// Without a flaw.
const NONE: u32 = 8;
/// A thread passes on before it writes its mask.
const PASSES_ON_FIRST: u32 = 0;
/// A thread writes its mask without an order.
const WRITES_UNORDERED: u32 = 1;
/// A thread passes on to the process only.
const KEEPS_FOR_PROCESS: u32 = 2;
/// A sender doesn't read the mask after it has queued the signal.
const ASKS_ONCE: u32 = 3;
/// A sender that has found no thread doesn't look again.
const LOOKS_ONCE: u32 = 4;
/// A thread that ends doesn't wait for senders.
const ENDS_AT_ONCE: u32 = 5;
/// A thread passes on before it marks its end.
const MARKS_LAST: u32 = 6;
/// A thread that ends passes nothing on.
const KEEPS_AT_END: u32 = 7;

impl<const FLAW: u32> Model for Twin<FLAW> {
    fn of(world: Ref, at: Option<usize>) -> Self {
        Self(world, at)
    }
}

impl<const FLAW: u32> Routes for Twin<FLAW> {
    surroundings!();

    fn set_mask(&self, thread: &Thread, mask: u64) -> u64 {
        if FLAW == PASSES_ON_FIRST {
            self.pass_on(thread, mask);
        }
        if FLAW == WRITES_UNORDERED {
            thread.signals.mask.store(mask, Ordering::Relaxed);
        } else {
            thread.signals.mask.store(mask, Ordering::SeqCst);
        }
        if FLAW != PASSES_ON_FIRST {
            self.pass_on(thread, mask);
        }
        0
    }

    fn pass_on_some(&self, thread: &Thread, _: u64) {
        let is_refused = || !thread.accepts(USR1);
        let signals = &thread.signals;
        self.common()
            .take_back(self.records(), signals, USR1, is_refused);
        if FLAW != KEEPS_FOR_PROCESS {
            self.give_pending(USR1);
        }
    }

    fn tell(&self, thread: &Thread, signal: u32) {
        if FLAW == ASKS_ONCE || thread.accepts(signal) {
            self.notify(thread);
        } else {
            self.pass_on(thread, bit(signal));
        }
    }

    fn hold_here(&self, info: &Value) {
        self.common().post(self.records(), info);
        if FLAW != LOOKS_ONCE {
            self.give_pending(info.0);
        }
    }

    fn end(&self, thread: &Thread) {
        if FLAW == MARKS_LAST {
            self.pass_on(thread, u64::MAX);
        }
        thread.set_exiting();
        if FLAW != ENDS_AT_ONCE {
            thread.signals.close();
        }
        if FLAW != MARKS_LAST && FLAW != KEEPS_AT_END {
            self.pass_on(thread, u64::MAX);
        }
    }
}

#[test]
fn a_twin_without_a_flaw_loses_nothing() {
    closing::<Twin<NONE>>();
    ending::<Twin<NONE>>();
    opening::<Twin<NONE>>();
    closing_and_opening::<Twin<NONE>>();
}

#[test]
#[should_panic(expected = "a signal is lost")]
fn a_thread_that_passes_on_before_it_closes_its_mask_is_caught() {
    closing::<Twin<PASSES_ON_FIRST>>();
}

#[test]
#[should_panic(expected = "a signal is lost")]
fn a_mask_that_is_written_without_an_order_is_caught() {
    closing::<Twin<WRITES_UNORDERED>>();
}

#[test]
#[should_panic(expected = "a signal is lost")]
fn a_thread_that_passes_on_to_the_process_only_is_caught() {
    closing::<Twin<KEEPS_FOR_PROCESS>>();
}

#[test]
#[should_panic(expected = "a signal is lost")]
fn a_sender_that_does_not_ask_again_is_caught() {
    closing::<Twin<ASKS_ONCE>>();
}

#[test]
#[should_panic(expected = "a signal is lost")]
fn a_sender_that_looks_for_a_thread_once_is_caught() {
    opening::<Twin<LOOKS_ONCE>>();
}

#[test]
#[should_panic(expected = "a signal is lost")]
fn a_sender_that_does_not_look_while_a_mask_changes_twice_is_caught() {
    closing_and_opening::<Twin<LOOKS_ONCE>>();
}

#[test]
#[should_panic(expected = "a signal is lost")]
fn an_end_that_does_not_wait_for_senders_is_caught() {
    ending::<Twin<ENDS_AT_ONCE>>();
}

#[test]
#[should_panic(expected = "a signal is lost")]
fn an_end_that_is_marked_last_is_caught() {
    ending::<Twin<MARKS_LAST>>();
}

#[test]
#[should_panic(expected = "a signal is lost")]
fn an_end_that_passes_nothing_on_is_caught() {
    ending::<Twin<KEEPS_AT_END>>();
}
