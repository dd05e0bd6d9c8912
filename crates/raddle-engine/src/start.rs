//! The start of the engine, when the program makes its second thread.

pub mod fork;

use crate::inspect;
use crate::kernel_threads::{descriptor, kthread};
use crate::scheduling::{chaos, switch};
use crate::state::carrier::Carrier;
use crate::state::process::{PROCESS, Process};
use crate::state::{accounting, clock, events};
use core::sync::atomic::Ordering;
use raddle_sys::{err, errno, mem};

impl Process {
    /// Starts what more than one thread needs. Idempotent; called by the only thread there is.
    ///
    /// # Errors
    /// The errno that `clone` should return: EAGAIN.
    pub fn start(&self) -> Result<(), isize> {
        if self.is_started() {
            return Ok(());
        }
        let left = self.unsettled.swap(0, Ordering::Relaxed);
        if left != 0 {
            // SAFETY: the only thread, which the engine has not begun for.
            unsafe { fork::settle(left) };
        }
        let carrier = Carrier::current();
        let started = give_stack(carrier).and_then(|stack| {
            let mut result = Ok(());
            let address = (&raw mut result).expose_provenance();
            // The main thread's stack may be limited to a few pages.
            // SAFETY: the lower half of the carrier's stack, of which its scheduler uses the upper
            // one; the result outlives the call.
            unsafe { raddle_arch::call_on(stack.add(kthread::STACK_SIZE / 2), run_parts, address) };
            result
        });
        if started.is_err() {
            self.pump.close();
            self.pump.reset();
            self.sysmon.close();
            return Err(err(errno::EAGAIN));
        }
        self.stacks.open();
        let used_ns = accounting::kernel_cpu_ns(0).unwrap_or(0);
        carrier.thread().cpu.reset(used_ns);
        self.first().start_policy();
        // SAFETY: the caller is the only thread.
        unsafe { inspect::layout::publish() };
        let started = 1 + u32::from(chaos::is_on());
        self.started.store(started, Ordering::Release);
        Ok(())
    }

    /// What may fail of a start.
    fn start_parts(&self, carrier: &Carrier) -> Result<(), isize> {
        match self.first().wanted() {
            0 => self.set_wanted(0),
            _ => self.follow_cpus(),
        }
        (self.hooks().carrier_starts)(carrier);
        let now_ns = clock::now_ns();
        carrier.now_ns.set(now_ns);
        self.started_ns.store(now_ns, Ordering::Relaxed);
        descriptor::with_room(|| {
            self.pump.start()?;
            self.roster.begin(); // before the first kernel thread is made
            events::begin();
            self.sysmon.start()
        })
    }
}

/// The carrier's own stack; it gets one if it has none.
///
/// # Errors
/// ENOMEM.
fn give_stack(carrier: &Carrier) -> Result<*mut u8, isize> {
    if carrier.scheduler.get().is_null() {
        let stack = mem::map(kthread::STACK_SIZE)?;
        carrier.stack.set(stack);
        switch::prepare_scheduler(carrier, stack, kthread::STACK_SIZE);
    }
    Ok(carrier.stack.get())
}

/// [`Process::start_parts`] on the carrier's stack; `result` is the address of what it returns.
extern "C" fn run_parts(result: usize) {
    let started = PROCESS.start_parts(Carrier::current());
    // SAFETY: the caller's, which waits.
    unsafe { *core::ptr::with_exposed_provenance_mut::<Result<(), isize>>(result) = started };
}
