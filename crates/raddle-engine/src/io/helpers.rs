//! Helper kernel threads: for calls that the kernel can only block in.
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
pub use crate::state::parts::helpers::Helpers;
use crate::state::parts::helpers::{Progress, Request, State};
use crate::state::process::PROCESS;
use core::cell::Cell;
use core::ptr::null;
use core::sync::atomic::{AtomicU32, Ordering};
use raddle_arch::timestamp;
use raddle_sched::Wake;
use raddle_sys::{err, errno, mem, nr, sys};

pub use crate::kernel_threads::own_signals::POKE;
const HELPER_STACK: usize = 32 * 1024;

impl State {
    fn unlink(&mut self, request: &Request) {
        let (mut before, mut at) = (null::<Request>(), self.head);
        // SAFETY: queued requests are alive: their threads are parked until they are taken.
        while let Some(entry) = unsafe { at.as_ref() } {
            if core::ptr::eq(entry, request) {
                // SAFETY: as above.
                match unsafe { before.as_ref() } {
                    Some(before) => before.next.set(entry.next.get()),
                    None => self.head = entry.next.get(),
                }
                if self.tail == at {
                    self.tail = before;
                }
                self.idle += 1;
                return;
            }
            before = at;
            at = entry.next.get();
        }
    }
}

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
        let request = Request {
            nr,
            args,
            result: Cell::new(0),
            ticks: Cell::new(0),
            patient,
            task: thread.task_ref(),
            helper: AtomicU32::new(0),
            interrupted: AtomicU32::new(0),
            progress: Cell::new(Progress::Queued),
            next: Cell::new(null()),
        };
        if !self.post(&request) {
            return (err(errno::EAGAIN), 0);
        }
        let mut outcome = switch::park();
        while outcome != Wake::Woken {
            // A signal: take the request back, or interrupt the helper and wait for its answer,
            // which is EINTR unless the call was faster.
            match self.withdraw(&request) {
                Progress::Queued if !patient => return (err(errno::EINTR), 0),
                Progress::Done => break,
                Progress::Queued | Progress::Taken => {
                    let tid = request.helper.load(Ordering::Acquire);
                    if tid != 0 {
                        let pid = PROCESS.pid.load(Ordering::Relaxed);
                        // SAFETY: pokes a helper of the runtime.
                        unsafe { sys!(nr::__NR_tgkill, pid, tid, POKE) };
                    }
                    outcome = switch::park_through_signals();
                }
            }
        }
        (request.result.get(), request.ticks.get())
    }

    /// Queues a request and sees to a helper. The thread is prepared to park.
    fn post(&self, request: &Request) -> bool {
        let mut state = self.state.lock();
        let spawn = state.idle == 0 && state.total < MAX_HELPERS;
        if spawn {
            state.total += 1;
        } else {
            state.idle = state.idle.saturating_sub(1);
        }
        drop(state);
        if spawn && kthread::spawn(helper_main, 0, HELPER_STACK).is_err() {
            let mut state = self.state.lock();
            state.total -= 1;
            if state.total == 0 {
                return false;
            }
        }
        Carrier::current().thread().task.prepare();
        chaos::stop(Point::Helper);
        let mut state = self.state.lock();
        let at = core::ptr::from_ref(request);
        // SAFETY: queued requests are alive: their threads are parked until they are taken.
        match unsafe { state.tail.as_ref() } {
            Some(tail) => tail.next.set(at),
            None => state.head = at,
        }
        state.tail = at;
        drop(state);
        self.posted.fetch_add(1, Ordering::Release);
        kthread::futex_wake(self.posted.as_ptr(), 1);
        true
    }

    /// Takes a request back that no helper has taken, unless it is patient. Else, if it isn't done,
    /// the thread is prepared to park again: under the lock, so that the helper's answer wakes it.
    fn withdraw(&self, request: &Request) -> Progress {
        let mut state = self.state.lock();
        match request.progress.get() {
            Progress::Queued if !request.patient => state.unlink(request),
            Progress::Queued | Progress::Taken => {
                request
                    .interrupted
                    .store(u32::from(!request.patient), Ordering::Release);
                request.task.get().prepare();
            }
            Progress::Done => {}
        }
        request.progress.get()
    }

    fn take(&self) -> Option<&Request> {
        let mut state = self.state.lock();
        // SAFETY: queued requests are alive; a taken one until it is completed.
        let request = unsafe { state.head.as_ref() }?;
        state.head = request.next.get();
        if state.head.is_null() {
            state.tail = null();
        }
        request.progress.set(Progress::Taken);
        Some(request)
    }

    fn complete(&self, request: &Request, result: isize) {
        let task = request.task;
        chaos::stop(Point::Helper);
        let state = self.state.lock();
        request.result.set(result);
        request.progress.set(Progress::Done);
        let woken = task.get().claim(Wake::Woken);
        drop(state); // from here on the request may be gone
        if woken {
            PROCESS.inject(task);
        }
    }

    fn wait(&self, seen: u32) {
        kthread::futex_wait(self.posted.as_ptr(), seen);
    }

    /// In the child of a fork: there are no helpers.
    pub(crate) fn reset(&self) {
        let Self { state, posted: _ } = self;
        // SAFETY: no other thread exists in the child.
        unsafe { state.break_lock() };
        *state.lock() = State {
            head: null(),
            tail: null(),
            idle: 0,
            total: 0,
        };
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
        let seen = helpers.posted.load(Ordering::Acquire);
        let Some(request) = helpers.take() else {
            helpers.wait(seen);
            continue;
        };
        let began = timestamp();
        // SAFETY: the request's maker promised that the call is valid.
        let result = unsafe {
            request
                .helper
                .store(sys!(nr::__NR_gettid) as u32, Ordering::Release);
            let interrupted = request.interrupted.as_ptr();
            raddle_arch::call_unless(request.nr, &request.args, interrupted)
        };
        request.ticks.set(timestamp().wrapping_sub(began));
        helpers.complete(request, result);
        helpers.state.lock().idle += 1;
    }
}
