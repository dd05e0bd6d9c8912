//! Registers and the stack of a kernel thread that executes, at one instant: the first sample of a
//! perf event that is due each millisecond. The event ends with it: without a dump there is none,
//! and the process pays nothing.
//!
//! Where the kernel permits no events (`perf_event_paranoid` is 3, or a container's filter), there
//! is no sample.
//!
//! Rejected: a handler in the process that notes the registers. The stack changes while it is read
//! from outside, and a copy by the handler needs memory of the process.

use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant};

use crate::perf_event::{Event, STACK_BYTES_MAX, Sample, Settings};

/// How long a sample is waited for: some turns of a thread that shares its CPU.
const PATIENCE: Duration = Duration::from_millis(30);
/// The most time for all samples of a dump.
const ALL_PATIENCE: Duration = Duration::from_secs(2);
const SETTINGS: Settings = Settings {
    period_ns: Some(1_000_000),
    with_kernel: false,
    stack_bytes: STACK_BYTES_MAX,
    pages: 32,
    is_prompt: true,
    with_mappings: false,
};

/// A thread that gives its CPU away again and again has none for as long as the kernel's timer
/// needs.
const AT_SWITCHES: Settings = Settings {
    period_ns: None,
    with_kernel: true,
    ..SETTINGS
};

/// Takes samples for a dump.
#[derive(Default)]
pub(crate) struct Sampler {
    spent: Duration,
    /// True if the kernel has refused an event.
    is_refused: bool,
}

impl Sampler {
    /// A sampler that takes none.
    pub(crate) fn none() -> Sampler {
        Sampler {
            spent: Duration::ZERO,
            is_refused: true,
        }
    }

    /// Takes a sample of a kernel thread, by its number here; `None` if the thread doesn't execute
    /// soon, or the kernel doesn't permit it.
    pub(crate) fn take(&mut self, tid: u32) -> Option<Sample> {
        if self.is_refused || self.spent >= ALL_PATIENCE {
            return None;
        }
        let begun = Instant::now();
        let event = Event::open(tid, SETTINGS);
        self.is_refused = event.is_err();
        let mut sample = event.ok().and_then(wait);
        if sample.is_none() && !self.is_refused {
            sample = Event::open(tid, AT_SWITCHES).ok().and_then(wait);
        }
        self.spent += begun.elapsed();
        sample
    }
}

fn wait(mut event: Event) -> Option<Sample> {
    let until = Instant::now() + PATIENCE;
    loop {
        let left = until.checked_duration_since(Instant::now())?;
        let mut polled = libc::pollfd {
            fd: event.as_fd().as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        let wait_ms = left.as_millis() as i32 + 1;
        // SAFETY: one live structure.
        unsafe { libc::poll(&raw mut polled, 1, wait_ms) };
        let mut first = None;
        let note = |sample| {
            first.get_or_insert(sample);
        };
        event.take(note, |_| {});
        if first.is_some() {
            return first;
        }
        if polled.revents & !libc::POLLIN != 0 {
            return None; // the thread has ended
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Memory;
    use crate::rules::RSP;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc::channel;

    #[inline(never)]
    fn compute(stop: &AtomicBool) -> u64 {
        let mut turns = 0;
        while !stop.load(Ordering::Relaxed) {
            turns += 1;
        }
        turns
    }

    #[test]
    fn a_thread_that_computes_is_sampled() {
        static STOP: AtomicBool = AtomicBool::new(false);
        let (sender, receiver) = channel();
        let thread = std::thread::spawn(move || {
            let local = 0u8;
            // SAFETY: it has no argument and can't fail.
            let tid = unsafe { libc::gettid() };
            sender.send((tid, &raw const local as u64)).unwrap();
            compute(&STOP)
        });
        let (tid, local) = receiver.recv().unwrap();
        let mut sampler = Sampler::default();
        // On a busy machine the thread may have no CPU for a while.
        let sample = (0..20).find_map(|_| sampler.take(tid.unsigned_abs()));
        STOP.store(true, Ordering::Relaxed);
        thread.join().unwrap();
        let Some(sample) = sample else {
            assert!(sampler.is_refused, "the thread was never seen");
            eprintln!("skipped: the kernel permits no perf events");
            return;
        };
        let pointer = sample.registers[RSP].unwrap();
        assert!(pointer <= local && local - pointer < 1 << 16);
        assert!(sample.stack.read(local, &mut [0]) == 1);
        assert!(sample.boot_ns != 0 && !sample.is_in_kernel);
    }
}
