//! Green threads as libc makes them, and the right to wait for one.
//!
//! A thread without a name is made by `pthread_create` itself: std would map an alternate signal
//! stack for each, which costs more than all else, only to print a line when the stack overflows.
//!
//! Thread and handle share one block of memory, which the handle's owner frees as a rule: a new
//! thread's first use of the heap costs it as much as all else that it does. For the same reason it
//! asks std for its own handle only if somebody may yet want it.

use super::{NextIsGreen, Thread};
use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::fmt;
use std::io;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::{self, current};

/// The handle is being joined, or was dropped: nobody can ask it for the thread's std handle.
const CONSUMED: u32 = 1;
/// The handle was dropped: the thread frees the packet, unless it has ended.
const DETACHED: u32 = 2;
/// The thread has run to its end and leaves the packet to the handle, unless that was dropped.
const ENDED: u32 = 4;

/// What a thread and its handle share: the thread writes, and the handle reads after the thread's
/// end.
struct Packet<T> {
    /// The bits above. Each side sets its own (release), and frees the packet if it finds the
    /// other's (acquire).
    state: AtomicU32,
    thread: OnceLock<Thread>,
    result: UnsafeCell<Option<thread::Result<T>>>,
    /// Frees the packet and the [`Start`] that it begins.
    free: unsafe fn(NonNull<Packet<T>>),
}

/// What a new thread is given: the packet, and what it runs, which it takes out.
#[repr(C)]
struct Start<T, F> {
    packet: Packet<T>,
    run: ManuallyDrop<F>,
}

impl<T, F> Start<T, F> {
    /// # Safety
    /// `packet` must begin a boxed `Start<T, F>` that nobody else uses.
    unsafe fn free(packet: NonNull<Packet<T>>) {
        // SAFETY: the caller's promise.
        drop(unsafe { Box::from_raw(packet.cast::<Self>().as_ptr()) });
    }
}

/// A thread that libc knows and std doesn't.
struct Native<T> {
    id: libc::pthread_t,
    packet: NonNull<Packet<T>>,
}

// SAFETY: a pthread_t is a name that any thread may use; the packet's result crosses.
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
                if let Some(thread) = thread.packet().thread.get() {
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
            Kind::Native(thread) => thread.packet().state.load(Ordering::Acquire) & ENDED != 0,
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
    fn packet(&self) -> &Packet<T> {
        // SAFETY: while the handle lives, only its owner frees the packet.
        unsafe { self.packet.as_ref() }
    }

    fn join(self) -> thread::Result<T> {
        // SAFETY: asks for the calling thread's name.
        if self.id == unsafe { libc::pthread_self() } {
            return Err(Box::new(SelfJoin));
        }
        self.packet().state.fetch_or(CONSUMED, Ordering::Relaxed);
        // SAFETY: the id is joined or detached once: here, or by drop if this fails.
        let error = unsafe { libc::pthread_join(self.id, std::ptr::null_mut()) };
        assert!(error == 0, "a thread that isn't joined can be");
        let packet = ManuallyDrop::new(self).packet;
        // SAFETY: the thread has ended, so the packet is this handle's, which is gone.
        let result = unsafe {
            let result = (*packet.as_ref().result.get()).take();
            (packet.as_ref().free)(packet);
            result
        };
        result.expect("a thread that has ended left its result")
    }
}

impl<T> Drop for Native<T> {
    fn drop(&mut self) {
        // SAFETY: as in join.
        unsafe { libc::pthread_detach(self.id) };
        let before = self
            .packet()
            .state
            .fetch_or(CONSUMED | DETACHED, Ordering::AcqRel);
        if before & ENDED != 0 {
            // SAFETY: the thread has left the packet to this handle.
            unsafe { (self.packet().free)(self.packet) };
        }
    }
}

/// Starts a green thread without a name.
///
/// # Errors
/// EAGAIN or ENOMEM.
///
/// # Safety
/// What `run` borrows, and what it returns, must live until it has returned and that is gone.
pub(super) unsafe fn spawn<T, F>(stack_size: usize, run: F) -> io::Result<JoinHandle<T>>
where
    T: Send,
    F: FnOnce() -> T + Send,
{
    let start = Box::new(Start {
        packet: Packet {
            state: AtomicU32::new(0),
            thread: OnceLock::new(),
            result: UnsafeCell::new(None),
            free: Start::<T, F>::free,
        },
        run: ManuallyDrop::new(run),
    });
    let start = NonNull::from(Box::leak(start));
    let mut id = MaybeUninit::uninit();
    let _green = NextIsGreen::ask();
    // SAFETY: `begin` gets what it expects, if the thread is made.
    let error = unsafe {
        let mut attributes = MaybeUninit::uninit();
        libc::pthread_attr_init(attributes.as_mut_ptr());
        let size = stack_size
            .max(libc::PTHREAD_STACK_MIN)
            .next_multiple_of(4096);
        libc::pthread_attr_setstacksize(attributes.as_mut_ptr(), size);
        let argument = start.as_ptr().cast::<c_void>();
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
        let start = *unsafe { Box::from_raw(start.as_ptr()) };
        drop(ManuallyDrop::into_inner(start.run));
        return Err(io::Error::from_raw_os_error(error));
    }
    // SAFETY: the thread was made.
    let id = unsafe { id.assume_init() };
    let packet = start.cast();
    Ok(JoinHandle(Kind::Native(Native { id, packet })))
}

/// The first function of the thread.
extern "C" fn begin<T, F: FnOnce() -> T>(start: *mut c_void) -> *mut c_void {
    let start = start.cast::<Start<T, F>>();
    // SAFETY: what spawn gave; it lives until both sides have done with it, and what it runs is
    // taken out once.
    let (packet, run) = unsafe { (&(*start).packet, std::ptr::read(&raw const (*start).run)) };
    if packet.state.load(Ordering::Relaxed) & CONSUMED == 0 {
        let _ = packet.thread.set(current());
    }
    let result = catch_unwind(AssertUnwindSafe(ManuallyDrop::into_inner(run)));
    // SAFETY: the handle doesn't look before this thread's end.
    unsafe { *packet.result.get() = Some(result) };
    let before = packet.state.fetch_or(ENDED, Ordering::AcqRel);
    if before & DETACHED != 0 {
        // SAFETY: the handle is gone.
        unsafe { (packet.free)(NonNull::from(packet)) };
    }
    std::ptr::null_mut()
}
