//! A signal that a descriptor reads: the kernel holds it while no thread accepts it.

use super::*;

/// A view with a flaw.
#[derive(Clone, Copy)]
struct Twin<const FLAW: u32>(Ref, Option<usize>);

/// Without a flaw.
const NONE: u32 = 0;
/// A router doesn't look for a thread after it has held a signal.
const LOOKS_ONCE: u32 = 1;
/// A router looks for a thread before it holds the signal.
const HOLDS_LAST: u32 = 2;
/// A thread looks at the held signals before it opens its mask.
const FETCHES_FIRST: u32 = 3;
/// A thread passes on to the process what the kernel should hold.
const PASSES_TO_PROCESS: u32 = 4;

impl<const FLAW: u32> Model for Twin<FLAW> {
    fn of(world: Ref, at: Option<usize>) -> Self {
        Self(world, at)
    }
}

impl<const FLAW: u32> Routes for Twin<FLAW> {
    surroundings!();

    fn return_to_kernel(&self, info: &Value) -> bool {
        let is_accepted = || self.accepting(RT, None).is_some();
        let was_accepted = is_accepted();
        self.held().add(bit(RT));
        self.block_held();
        self.queue_in_kernel(info);
        let is_to_fetch = match FLAW {
            LOOKS_ONCE => false,
            HOLDS_LAST => was_accepted,
            _ => is_accepted(),
        };
        if is_to_fetch {
            self.fetch_from_kernel(bit(RT));
        }
        true
    }

    fn set_mask(&self, thread: &Thread, mask: u64) -> u64 {
        if FLAW == FETCHES_FIRST {
            self.fetch_from_kernel(!mask);
        }
        let before = thread.signals.mask.swap(mask, Ordering::SeqCst);
        if FLAW != FETCHES_FIRST {
            self.fetch_from_kernel(!mask);
        }
        self.pass_on(thread, mask);
        before
    }

    fn pass_on_some(&self, thread: &Thread, _: u64) {
        if FLAW == PASSES_TO_PROCESS {
            let is_refused = || !thread.accepts(RT);
            return self
                .common()
                .take_back(self.records(), &thread.signals, RT, is_refused);
        }
        while !thread.accepts(RT)
            && let Some(info) = thread.signals.take_shared(self.records(), RT)
        {
            self.to_process(&info, None);
        }
    }
}

/// The only thread changes its mask while a signal comes that a descriptor reads.
fn changing<V: Model>(from: u64, to: u64) {
    in_worlds(3, 1, move |world| {
        world.kernel.held.add_read(bit(RT));
        let thread = &world.threads[0];
        thread.signals.mask.store(from, Ordering::Relaxed);
        let changing = thread::spawn(move || thread.set_mask(&V::of(world, Some(0)), to));
        V::of(world, None).to_process(&(RT, 1), None);
        changing.join().unwrap();
        world.settle::<V>();
        world.judge(&[1], &[]);
    });
}

fn opening<V: Model>() {
    changing::<V>(bit(RT), 0);
}

/// As [`opening`], while the kernel holds an older signal: all carriers block its number.
fn opening_to_more<V: Model>() {
    in_worlds(3, 1, move |world| {
        world.kernel.held.add_read(bit(RT));
        world.kernel.held.add(bit(RT));
        world.kernel.pending.lock().unwrap().push((RT, 1));
        for mask in &world.kernel.masks {
            mask.store(bit(RT), SeqCst);
        }
        let thread = &world.threads[0];
        thread.signals.mask.store(bit(RT), Ordering::Relaxed);
        let opening = thread::spawn(move || thread.set_mask(&V::of(world, Some(0)), 0));
        V::of(world, None).to_process(&(RT, 2), None);
        opening.join().unwrap();
        world.settle::<V>();
        world.judge(&[1, 2], &[]);
    });
}

fn closing<V: Model>() {
    changing::<V>(0, bit(RT));
}

#[test]
fn a_thread_that_opens_its_mask_takes_what_the_kernel_holds() {
    opening::<Sound>();
}

#[test]
fn a_thread_that_opens_its_mask_takes_all_that_the_kernel_holds() {
    opening_to_more::<Sound>();
}

#[test]
fn the_kernel_holds_what_a_thread_does_not_accept_any_more() {
    closing::<Sound>();
}

#[test]
fn a_twin_without_a_flaw_loses_nothing() {
    opening::<Twin<NONE>>();
    opening_to_more::<Twin<NONE>>();
    closing::<Twin<NONE>>();
}

#[test]
#[should_panic(expected = "a signal is lost: the kernel keeps it")]
fn a_router_that_looks_once_is_caught() {
    opening_to_more::<Twin<LOOKS_ONCE>>();
}

#[test]
#[should_panic(expected = "a signal is lost: the kernel keeps it")]
fn a_router_that_holds_after_its_look_is_caught() {
    opening_to_more::<Twin<HOLDS_LAST>>();
}

#[test]
#[should_panic(expected = "a signal is lost: the kernel keeps it")]
fn a_thread_that_looks_at_held_signals_first_is_caught() {
    opening::<Twin<FETCHES_FIRST>>();
}

#[test]
#[should_panic(expected = "a signal is lost")]
fn a_signal_that_does_not_return_to_the_kernel_is_caught() {
    closing::<Twin<PASSES_TO_PROCESS>>();
}
