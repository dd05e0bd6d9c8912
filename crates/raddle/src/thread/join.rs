//! Green threads as libc makes them, and the right to wait for one.
//!
//! A thread without a name is made by `pthread_create` itself: std would map an alternate signal
//! stack for each, which costs more than all else, only to print a line when the stack overflows.

use super::{NextIsGreen, Thread};
use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::fmt;
use std::io;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};
use std::thread::{self, current};

/// What a thread and its handle share: the thread writes, and the handle reads after the thread's
/// end.
struct Packet<T> {
    thread: OnceLock<Thread>,
    result: UnsafeCell<Option<thread::Result<T>>>,
}

// SAFETY: `result` is the thread's until its end, and then the joiner's.
unsafe impl<T: Send> Sync for Packet<T> {}

/// What a new thread is given.
struct Start<T, F> {
    packet: Arc<Packet<T>>,
    run: F,
}

/// A thread that libc knows and std doesn't.
struct Native<T> {
    id: libc::pthread_t,
    packet: Arc<Packet<T>>,
}

// SAFETY: a pthread_t is a name that any thread may use.
unsafe impl<T: Send> Send for Native<T> {}
// SAFETY: shared references only ask whether the thread lives, and for its std handle.
unsafe impl<T: Send> Sync for Native<T> {}

/// A thread waited for its own end, which would never have come: what [`JoinHandle::join`] gives
/// instead of a panic's payload.
///
/// ```
/// use raddle::thread::SelfJoin;
/// use std::sync::mpsc;
///
/// let (to, from) = mpsc::channel::<raddle::thread::JoinHandle<bool>>();
/// let (told, tells) = mpsc::channel();
/// let thread = raddle::spawn(move || {
///     let refused = from.recv().unwrap().join().unwrap_err();
///     told.send(refused.is::<SelfJoin>()).unwrap();
///     true
/// });
/// to.send(thread).unwrap();
/// assert!(tells.recv().unwrap());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SelfJoin;

impl fmt::Display for SelfJoin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a thread can't wait for its own end")
    }
}

impl std::error::Error for SelfJoin {}

enum Kind<T> {
    Std(thread::JoinHandle<T>),
    Native(Native<T>),
}

/// The right to wait for a green thread's end. Dropped, it lets the thread go on by itself.
///
/// ```
/// let thread = raddle::spawn(|| 5);
/// assert_eq!(thread.join().unwrap(), 5);
/// drop(raddle::spawn(|| println!("perhaps")));
/// ```
pub struct JoinHandle<T>(Kind<T>);

impl<T> JoinHandle<T> {
    pub(super) fn of_std(thread: thread::JoinHandle<T>) -> Self {
        Self(Kind::Std(thread))
    }

    /// Waits for the thread's end, destructors of its thread-locals included. A green thread parks
    /// meanwhile, a kernel thread blocks.
    ///
    /// ```
    /// assert_eq!(raddle::spawn(|| 6 * 7).join().unwrap(), 42);
    /// ```
    ///
    /// # Errors
    /// What the thread panicked with; [`SelfJoin`] if it is the calling thread, which goes on with
    /// nobody to wait for it.
    ///
    /// # Blocking
    /// The green thread; outside raddle, the kernel thread. A light thread keeps its host.
    pub fn join(self) -> thread::Result<T> {
        match self.0 {
            Kind::Std(thread) if thread.thread().id() == current().id() => Err(Box::new(SelfJoin)),
            Kind::Std(thread) => thread.join(),
            Kind::Native(thread) => thread.join(),
        }
    }

    /// The thread's std handle, to unpark it by.
    ///
    /// ```
    /// let thread = raddle::spawn(std::thread::park);
    /// thread.thread().unpark();
    /// thread.join().unwrap();
    /// ```
    pub fn thread(&self) -> &Thread {
        match &self.0 {
            Kind::Std(thread) => thread.thread(),
            Kind::Native(thread) => loop {
                if let Some(thread) = thread.packet.thread.get() {
                    break thread;
                }
                super::yield_now(); // it has not begun
            },
        }
    }

    /// True once the thread has run to its end; [`JoinHandle::join`] returns soon then.
    ///
    /// ```
    /// let thread = raddle::spawn(|| ());
    /// while !thread.is_finished() { raddle::yield_now() }
    /// ```
    pub fn is_finished(&self) -> bool {
        match &self.0 {
            Kind::Std(thread) => thread.is_finished(),
            Kind::Native(thread) => Arc::strong_count(&thread.packet) == 1,
        }
    }
}

impl<T> fmt::Debug for JoinHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinHandle")
            .field("is_finished", &self.is_finished())
            .finish()
    }
}

impl<T> Native<T> {
    fn join(self) -> thread::Result<T> {
        // SAFETY: asks for the calling thread's name.
        if self.id == unsafe { libc::pthread_self() } {
            return Err(Box::new(SelfJoin));
        }
        let this = ManuallyDrop::new(self);
        // SAFETY: the id is joined or detached once: here, or by drop.
        let error = unsafe { libc::pthread_join(this.id, std::ptr::null_mut()) };
        // SAFETY: `this` is never used again.
        let packet = unsafe { std::ptr::read(&raw const this.packet) };
        assert!(error == 0, "a thread that isn't joined can be");
        // SAFETY: the thread has ended.
        let result = unsafe { (*packet.result.get()).take() };
        result.expect("a thread that has ended left its result")
    }
}

impl<T> Drop for Native<T> {
    fn drop(&mut self) {
        // SAFETY: as in join.
        unsafe { libc::pthread_detach(self.id) };
    }
}

/// Starts a green thread without a name.
///
/// # Errors
/// EAGAIN or ENOMEM.
pub(super) fn spawn<T, F>(stack_size: usize, run: F) -> io::Result<JoinHandle<T>>
where
    T: Send + 'static,
    F: FnOnce() -> T + Send + 'static,
{
    let packet = Arc::new(Packet {
        thread: OnceLock::new(),
        result: UnsafeCell::new(None),
    });
    let start = Box::new(Start {
        packet: Arc::clone(&packet),
        run,
    });
    let start = Box::into_raw(start);
    let mut id = MaybeUninit::uninit();
    let _green = NextIsGreen::ask();
    // SAFETY: `begin` gets what it expects, and owns it if the thread is made.
    let error = unsafe {
        let mut attributes = MaybeUninit::uninit();
        libc::pthread_attr_init(attributes.as_mut_ptr());
        let size = stack_size
            .max(libc::PTHREAD_STACK_MIN)
            .next_multiple_of(4096);
        libc::pthread_attr_setstacksize(attributes.as_mut_ptr(), size);
        let argument = start.cast::<c_void>();
        let error = libc::pthread_create(
            id.as_mut_ptr(),
            attributes.as_ptr(),
            begin::<T, F>,
            argument,
        );
        libc::pthread_attr_destroy(attributes.as_mut_ptr());
        error
    };
    if error != 0 {
        // SAFETY: nobody else has it.
        drop(unsafe { Box::from_raw(start) });
        return Err(io::Error::from_raw_os_error(error));
    }
    // SAFETY: the thread was made.
    let id = unsafe { id.assume_init() };
    Ok(JoinHandle(Kind::Native(Native { id, packet })))
}

/// The first function of the thread.
extern "C" fn begin<T, F: FnOnce() -> T>(start: *mut c_void) -> *mut c_void {
    // SAFETY: what spawn gave.
    let start = unsafe { Box::from_raw(start.cast::<Start<T, F>>()) };
    let Start { packet, run } = *start;
    let _ = packet.thread.set(current());
    let result = catch_unwind(AssertUnwindSafe(run));
    // SAFETY: the handle doesn't look before this thread's end.
    unsafe { *packet.result.get() = Some(result) };
    std::ptr::null_mut()
}
