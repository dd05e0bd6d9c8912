//! The bare switch between two stacks, as threads of either kind do it.

use raddle::runtime::{Status, status};
use raddle_arch::{Context, fs_base, prepare, switch, switch_keep_fs};
use std::ptr::null_mut;
use std::time::Instant;

/// Bytes of the partner's stack.
const STACK: usize = 16 << 10;

/// The kind of thread that switches.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A green thread: loads the segment base of the thread's thread-locals.
    Green,
    /// A light thread: loads no segment base.
    Light,
}

/// Two contexts that switch to each other.
struct Pair {
    here: Context,
    there: Context,
    on_cpu: u32,
    kind: Kind,
}

/// Prints what one switch costs, where the CPU lets programs load segment bases.
pub(crate) fn measure(kind: Kind, rounds: u32) {
    if status() != Status::Green {
        return;
    }
    let mut stack = vec![0u128; STACK / 16];
    let mut pair = Pair {
        here: null_mut(),
        there: null_mut(),
        on_cpu: 0,
        kind,
    };
    let pair = &raw mut pair;
    // SAFETY: the partner runs on a stack of its own, which outlives it, and uses the pair only
    // while this side waits.
    unsafe {
        let top = stack.as_mut_ptr_range().end.cast::<*mut Pair>().sub(2);
        top.write(pair);
        (*pair).there = prepare(top.cast(), first_instruction as *const () as usize);
        let started = Instant::now();
        match kind {
            Kind::Green => (0..rounds).for_each(|_| go::<true>(pair, true)),
            Kind::Light => (0..rounds).for_each(|_| go::<false>(pair, true)),
        }
        super::metric("switch", started, 2 * rounds);
    }
}

/// Switches from one to the other, `away` from the measuring side or back to it.
///
/// # Safety
/// Must be called by the side that runs.
#[inline(always)]
unsafe fn go<const LOADS_FS: bool>(pair: *mut Pair, away: bool) {
    // SAFETY: the other side is parked, on the same kernel thread and with the same thread-locals.
    unsafe {
        let (here, there) = (&raw mut (*pair).here, &raw mut (*pair).there);
        let (from, to) = if away { (here, there) } else { (there, here) };
        let on_cpu = &raw mut (*pair).on_cpu;
        if LOADS_FS {
            switch(from, *to, fs_base(), on_cpu)
        } else {
            switch_keep_fs(from, *to, on_cpu)
        }
    }
}

raddle_arch::first_instruction_with_argument! {
    /// Where the partner starts: the pair's address is on top of its stack.
    first_instruction => partner
}

extern "C" fn partner(pair: *mut Pair) -> ! {
    loop {
        // SAFETY: the measuring side is parked, and doesn't continue this one after its end.
        unsafe {
            match (*pair).kind {
                Kind::Green => go::<true>(pair, false),
                Kind::Light => go::<false>(pair, false),
            }
        }
    }
}
