//! A signal for a thread that is about to wait, or about to run.

use super::*;

/// A view with a flaw.
#[derive(Clone, Copy)]
struct Twin<const FLAW: u32>(Ref, Option<usize>);

/// Without a flaw of the view: the flaw is elsewhere.
const NONE: u32 = 0;
/// A thread announces its wait after its look.
const LOOKS_FIRST: u32 = 1;
/// A thread announces its wait without a look.
const LOOKS_NOT: u32 = 2;
/// A sender doesn't end waits.
const ENDS_NO_WAIT: u32 = 3;
/// A thread that has waited passes nothing on.
const PASSES_NOTHING_ON: u32 = 4;
/// A sender doesn't wake sysmon.
const LETS_SYSMON_SLEEP: u32 = 5;

impl<const FLAW: u32> Model for Twin<FLAW> {
    fn of(world: Ref, at: Option<usize>) -> Self {
        Self(world, at)
    }
}

impl<const FLAW: u32> Routes for Twin<FLAW> {
    surroundings!();

    fn prepare(&self, thread: &Thread, wanted: u64) -> bool {
        let due = || thread.signals.pending.load(Ordering::SeqCst) | self.common().pending();
        if FLAW == LOOKS_FIRST && due() & wanted != 0 {
            return false;
        }
        thread.task.prepare_fenced();
        let has_none = FLAW == LOOKS_FIRST || FLAW == LOOKS_NOT || due() & wanted == 0;
        has_none || !thread.task.claim(Wake::Retry)
    }

    fn await_none(&self, thread: &Thread, set: u64) {
        thread.signals.awaited.store(0, Ordering::SeqCst);
        if FLAW != PASSES_NOTHING_ON {
            self.pass_on(thread, set & thread.signals.mask.load(Ordering::Relaxed));
        }
    }

    fn notify(&self, thread: &Thread) {
        if FLAW != ENDS_NO_WAIT && thread.claim(Wake::Signalled) {
            self.unpark(thread);
        } else if thread.task.on_cpu.load(Ordering::SeqCst) != 0 {
            self.interrupt(thread);
        } else if FLAW != LETS_SYSMON_SLEEP {
            self.wake_sysmon();
        }
    }
}

/// How a thread announces any wait: whether it may park then.
type Announce = fn(&Thread) -> bool;

/// A thread parks for something else while another sends it a signal.
fn parking<V: Model>(announce: Announce) {
    in_worlds(3, 1, move |world| {
        let sender = thread::spawn(move || {
            V::of(world, None).to_thread(&world.threads[0], &(USR1, 1));
        });
        let thread = &world.threads[0];
        if announce(thread) {
            thread.task.on_cpu.store(0, Ordering::Release);
        } else {
            thread.look(&V::of(world, Some(0)));
        }
        sender.join().unwrap();
        world.settle::<V>();
        world.judge(&[1], &[]);
    });
}

#[test]
fn a_thread_that_parks_takes_its_signal() {
    parking::<Sound>(|thread| {
        thread.task.prepare_fenced();
        !thread.is_interrupted()
    });
}

/// Announces a wait for a word.
fn enqueue(thread: &Thread) {
    // SAFETY: node and table live as long as the world.
    let parks = unsafe {
        thread
            .table
            .enqueue(&thread.node, thread.task_ref(), 8, !0, || true)
    };
    assert!(parks);
}

#[test]
fn a_thread_that_waits_for_a_word_takes_its_signal() {
    parking::<Sound>(|thread| {
        WaitTable::<1>::prepare(&thread.node, thread.task_ref(), 8);
        enqueue(thread);
        !thread.is_interrupted()
    });
}

#[test]
fn a_thread_that_waits_for_a_word_and_more_takes_its_signal() {
    parking::<Sound>(|thread| {
        thread.task.prepare();
        enqueue(thread);
        !thread.is_interrupted()
    });
}

#[test]
#[should_panic(expected = "a signal is lost")]
fn a_look_before_the_enqueueing_is_caught() {
    parking::<Sound>(|thread| {
        let is_due = thread.signals.deliverable() != 0;
        WaitTable::<1>::prepare(&thread.node, thread.task_ref(), 8);
        enqueue(thread);
        !is_due || !thread.claim(Wake::Signalled)
    });
}

#[test]
#[should_panic(expected = "a signal is lost")]
fn a_look_before_the_announcement_is_caught() {
    parking::<Sound>(|thread| {
        let is_due = thread.signals.deliverable() != 0;
        thread.task.prepare_fenced();
        !is_due || !thread.claim(Wake::Signalled)
    });
}

#[test]
#[should_panic(expected = "a signal is lost")]
fn an_announcement_without_a_fence_is_caught() {
    parking::<Sound>(|thread| {
        thread.task.prepare();
        !thread.is_interrupted()
    });
}

#[test]
#[should_panic(expected = "a signal is lost")]
fn a_sender_that_ends_no_wait_is_caught() {
    parking::<Twin<ENDS_NO_WAIT>>(|thread| {
        thread.task.prepare_fenced();
        !thread.is_interrupted()
    });
}

/// A thread waits for a signal, which comes to the process.
fn awaiting<V: Model>() {
    in_worlds(3, 1, |world| {
        let (thread, view) = (&world.threads[0], V::of(world, Some(0)));
        thread.signals.mask.store(bit(USR1), Ordering::Relaxed);
        let sender = thread::spawn(move || V::of(world, None).to_process(&(USR1, 1), None));
        view.await_set(thread, bit(USR1));
        loop {
            thread.look(&view);
            if !thread.values().is_empty() {
                view.await_none(thread, bit(USR1));
                break;
            }
            if view.prepare(thread, bit(USR1)) {
                thread.task.on_cpu.store(0, Ordering::Release);
                break;
            }
        }
        sender.join().unwrap();
        world.settle::<V>();
        world.judge(&[1], &[]);
    });
}

#[test]
fn a_thread_that_waits_for_a_signal_takes_it() {
    awaiting::<Sound>();
}

#[test]
fn the_twins_of_waits_take_signals_without_a_flaw() {
    awaiting::<Twin<NONE>>();
}

#[test]
#[should_panic(expected = "a signal is lost")]
fn a_wait_that_is_announced_after_the_look_is_caught() {
    awaiting::<Twin<LOOKS_FIRST>>();
}

#[test]
#[should_panic(expected = "a signal is lost")]
fn a_wait_that_is_announced_without_a_look_is_caught() {
    awaiting::<Twin<LOOKS_NOT>>();
}

/// The main thread waits for a signal in vain, while the signal comes; another thread accepts it.
fn in_vain<V: Model>() {
    in_worlds(3, 2, |world| {
        let (thread, view) = (&world.threads[0], V::of(world, Some(0)));
        thread.signals.mask.store(bit(USR1), Ordering::Relaxed);
        view.await_set(thread, bit(USR1));
        let sender = thread::spawn(move || V::of(world, None).to_process(&(USR1, 1), None));
        view.await_none(thread, bit(USR1));
        sender.join().unwrap();
        world.settle::<V>();
        world.judge(&[1], &[]);
    });
}

#[test]
fn a_thread_that_has_waited_in_vain_passes_the_signal_on() {
    in_vain::<Sound>();
}

#[test]
#[should_panic(expected = "a signal is lost")]
fn a_thread_that_has_waited_and_passes_nothing_on_is_caught() {
    in_vain::<Twin<PASSES_NOTHING_ON>>();
}

/// A runnable thread begins to run while another sends it a signal: the sender interrupts nothing.
fn beginning<V: Model>() {
    in_worlds(3, 1, |world| {
        let thread = &world.threads[0];
        thread.task.on_cpu.store(0, Ordering::Relaxed);
        let sender = thread::spawn(move || V::of(world, None).to_thread(thread, &(USR1, 1)));
        thread.task.on_cpu.store(1, Ordering::Relaxed);
        if thread.signals.deliverable() != 0 {
            thread.look(&V::of(world, Some(0)));
        }
        sender.join().unwrap();
        world.settle::<V>();
        world.judge(&[1], &[]);
    });
}

#[test]
fn a_thread_that_begins_to_run_takes_its_signal() {
    beginning::<Sound>();
}

#[test]
#[should_panic(expected = "a signal is lost")]
fn a_sender_that_lets_sysmon_sleep_is_caught() {
    beginning::<Twin<LETS_SYSMON_SLEEP>>();
}
