//! Real-time signals of one number keep their order.

use super::*;
use raddle_sched::queues::Passed;

/// The first of two signals waits at the main thread, which closes its mask and passes the signal
/// on; the second comes meanwhile, and another thread takes both.
fn in_order<V: Model>() {
    in_worlds(3, 2, |world| {
        V::of(world, None).to_process(&(RT, 1), None);
        let closing = thread::spawn(move || {
            world.threads[0].set_mask(&V::of(world, Some(0)), bit(RT));
        });
        V::of(world, None).to_process(&(RT, 2), None);
        // The other thread is told of a signal at any time.
        world.threads[1].look(&V::of(world, Some(1)));
        closing.join().unwrap();
        world.settle::<V>();
        let values = world.threads[1].values();
        assert!(
            values.is_sorted(),
            "a newer signal is taken before an older one"
        );
        world.judge(&[1, 2], &[]);
    });
}

#[test]
fn a_thread_takes_an_older_signal_that_another_passes_on_first() {
    in_order::<Sound>();
}

/// A new signal goes to any thread that accepts it, although an older one waits at another.
#[derive(Clone, Copy)]
struct PassesBeforeOlder(Ref, Option<usize>);

surroundings!(PassesBeforeOlder);

impl Routes for PassesBeforeOlder {
    surroundings!();

    fn to_process(&self, info: &Value, _: Option<&'static Thread>) {
        let Some(thread) = self.accepting(RT, None) else {
            return self.hold(info);
        };
        let (form, to) = (Form::Each, Addressee::Process);
        if self.common().pending() == 0 {
            thread
                .signals
                .post(&self.0.records, info, form, to, || true);
            self.tell(thread, RT);
        } else {
            self.hold_here(info);
        }
    }
}

#[test]
#[should_panic(expected = "a newer signal is taken before an older one")]
fn a_newer_signal_for_another_thread_is_caught() {
    in_order::<PassesBeforeOlder>();
}

/// The first of two signals waits at the main thread, which closes its mask; the second pends for
/// the process behind it, and another thread takes what it finds.
fn behind(is_noted: bool) {
    in_worlds(3, 2, move |world| {
        let (main, records) = (&world.threads[0].signals, &world.records);
        if is_noted {
            let passed = world.common.pass(records, main, &(RT, 1), || true);
            assert_eq!(passed, Passed::Given);
        } else {
            let (form, to) = (Form::Each, Addressee::Process);
            main.post(records, &(RT, 1), form, to, || true);
        }
        world.common.post(records, &(RT, 2));
        let closing = thread::spawn(move || {
            world.threads[0].set_mask(&world.of(0), bit(RT));
        });
        world.threads[1].look(&world.of(1));
        closing.join().unwrap();
        world.settle::<Sound>();
        let values = world.threads[1].values();
        assert!(
            values.is_sorted(),
            "a newer signal is taken before an older one"
        );
        world.judge(&[1, 2], &[]);
    });
}

#[test]
fn a_thread_takes_what_waits_at_another_before_what_pends_behind_it() {
    behind(true);
}

#[test]
#[should_panic(expected = "a newer signal is taken before an older one")]
fn a_holder_that_is_not_noted_is_caught() {
    behind(false);
}
