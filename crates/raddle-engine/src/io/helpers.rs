//! Helper kernel threads: for calls that the kernel can only block in. How requests wait for them,
//! and how many there must be, is [`raddle_sched::helper_queue`]'s.
//!
//! A green thread leaves a *request* (on its own stack) and parks; a helper executes the call and
//! wakes it. Helpers are made on demand, wait for the next request when done, and are interrupted
//! by the poke signal when the green thread they work for gets a signal. A *patient* request is for
//! calls that signals don't interrupt in Linux either, such as reads of a disk: it is never taken
//! back, and a poke only reaches a file system that listens to signals by itself.

use crate::kernel_threads::kthread;
use crate::kernel_threads::roster::MAX_HELPERS;
use crate::scheduling::chaos::{self, Point};
use crate::scheduling::switch;
use crate::state::carrier::{Carrier, PREEMPT};
use crate::state::events;
use crate::state::parts::helpers::Call;
pub use crate::state::parts::helpers::Helpers;
use crate::state::process::PROCESS;
use crate::state::thread::Thread;
use crate::state::word_wakes;
use core::cell::Cell;
use core::sync::atomic::{AtomicU32, Ordering};
use raddle_arch::timestamp;
use raddle_sched::Wake;
use raddle_sched::helper_queue::{Next, Progress, Request};
use raddle_sys::{err, errno, mem, nr, sys};

pub use crate::kernel_threads::own_signals::POKE;
const HELPER_STACK: usize = 32 * 1024;

impl Helpers {
    /// Executes a blocking system call on a helper; the running thread parks meanwhile. A signal
    /// for the thread interrupts the call.
    ///
    /// # Safety
    /// As for the call itself; pointers must stay valid, which the caller's frame sees to.
    pub unsafe fn call(&self, nr: u32, args: [usize; 6]) -> isize {
        // SAFETY: the caller's promise.
        unsafe { self.execute(nr, args, false) }.0
    }

    /// As [`Helpers::call`], patiently: a signal waits until the call is over, unless the kernel
    /// itself says EINTR. Gives the time stamp ticks that the call took in the kernel as well.
    ///
    /// # Safety
    /// As for [`Helpers::call`].
    pub unsafe fn call_patiently(&self, nr: u32, args: [usize; 6]) -> (isize, u64) {
        // SAFETY: the caller's promise.
        unsafe { self.execute(nr, args, true) }
    }

    unsafe fn execute(&self, nr: u32, args: [usize; 6], patient: bool) -> (isize, u64) {
        let thread = Carrier::current().thread();
        if Carrier::current().is_apart() {
            // A helper would act for the rest of the process.
            let began = timestamp();
            // SAFETY: the caller's promise.
            let result = unsafe { raddle_sys::syscall6(nr, args) };
            return (result, timestamp() - began);
        }
        let call = Call {
            nr,
            args,
            left: if events::is_on() { timestamp() } else { 0 },
            result: Cell::new(0),
            ticks: Cell::new(0),
            helper: AtomicU32::new(0),
            interrupted: AtomicU32::new(0),
        };
        let request = Request::new(call, thread.task_ref(), patient);
        if !self.post(&request) {
            return (err(errno::EAGAIN), 0);
        }
        let mut outcome = switch::park();
        while outcome != Wake::Woken {
            // A signal: take the request back, or interrupt the helper and wait for its answer,
            // which is EINTR unless the call was faster.
            match self.queue.withdraw(&request, |call| {
                call.interrupted
                    .store(u32::from(!patient), Ordering::Release);
            }) {
                Progress::Queued if !patient => return (err(errno::EINTR), 0),
                Progress::Done => break,
                Progress::Queued | Progress::Taken => {
                    let tid = request.work.helper.load(Ordering::Acquire);
                    if tid != 0 {
                        let pid = PROCESS.pid.load(Ordering::Relaxed);
                        // SAFETY: pokes a helper of the runtime.
                        unsafe { sys!(nr::__NR_tgkill, pid, tid, POKE) };
                    }
                    outcome = switch::park_through_signals();
                }
            }
        }
        (request.work.result.get(), request.work.ticks.get())
    }

    /// Queues a request and sees to a helper. The thread is prepared to park. Returns false if
    /// there is no helper.
    fn post(&self, request: &Request<Call>) -> bool {
        let mut next = self.queue.reserve(MAX_HELPERS);
        while next == Next::Make {
            next = if kthread::spawn(helper_main, 0, HELPER_STACK).is_ok() {
                self.queue.made(MAX_HELPERS)
            } else if self.queue.not_made() {
                Next::Push
            } else {
                return false;
            };
        }
        Carrier::current().thread().task.prepare();
        chaos::stop(Point::Helper);
        // SAFETY: the thread is parked until the request is done or was withdrawn.
        unsafe { self.queue.push(request) };
        kthread::futex_wake(self.queue.address(), 1);
        true
    }

    /// Wakes the thread of a call that began at this stamp.
    fn complete(&self, request: &Request<Call>, result: isize, began: u64) {
        chaos::stop(Point::Helper);
        let other = word_wakes::ended_by(&request.work, result, began);
        if let Some(task) = self.queue.complete(request, |call| call.result.set(result)) {
            if Thread::of(task).takes_detour() {
                events::woken_by(task, other);
            }
            PROCESS.inject(task);
        }
    }

    /// In the child of a fork: there are no helpers.
    pub(crate) fn reset(&self) {
        let Self { queue } = self;
        // SAFETY: no other thread exists in the child.
        unsafe { queue.reset() };
    }
}

extern "C" fn helper_main(_: usize, stack: *mut u8) -> ! {
    // SAFETY: this thread is no carrier, and never forks; only the runtime's own signals may
    // interrupt it.
    unsafe {
        mem::leave_out_of_forks(stack, HELPER_STACK);
        raddle_arch::set_gs_base(0);
        kthread::accept_only(&[POKE, PREEMPT]);
    }
    let helpers = &PROCESS.helpers;
    loop {
        let seen = helpers.queue.posted();
        let Some(request) = helpers.queue.take() else {
            kthread::futex_wait(helpers.queue.address(), seen);
            continue;
        };
        let call = &request.work;
        let began = timestamp();
        // SAFETY: the request's maker promised that the call is valid.
        let result = unsafe {
            call.helper
                .store(sys!(nr::__NR_gettid) as u32, Ordering::Release);
            raddle_arch::call_unless(call.nr, &call.args, call.interrupted.as_ptr())
        };
        call.ticks.set(timestamp().wrapping_sub(began));
        helpers.complete(request, result, began);
    }
}
