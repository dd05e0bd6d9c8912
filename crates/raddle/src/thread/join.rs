//! Green threads as libc makes them, and their join handles.
//!
//! A thread without a name is made by `pthread_create` itself: std would map an alternate signal
//! stack for each, which costs more than all else, only to print a line when the stack overflows.
//! When it has ended it may be used again ([`super::reuse`]).
//!
//! Thread and handle share one block of memory, the packet, which the handle's owner usually frees:
//! a new thread's first use of the heap costs as much as the rest of its life. For the same reason
//! a thread asks std for its own handle only if the join handle may still ask for it.
//!
//! [`super::ends`] says which side frees the packet and the result.

use super::ends::{self, Ends};
use super::reuse::{self, Born};
use super::{NextIsGreen, Thread};
use crate::runtime;
use raddle_arch::call_by_jumps;
use raddle_interface::ReuseControl;
use std::cell::{Cell, UnsafeCell};
use std::ffi::c_void;
use std::fmt;
use std::io;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr::{NonNull, null, null_mut};
use std::sync::OnceLock;
use std::thread::{self, current};

// The runtime sets these bits for a thread that is kept.
const _: () = assert!(
    ends::CONSUMED == ReuseControl::AWAITED
        && ends::JOINED == ReuseControl::JOINED
        && ends::OVER == ReuseControl::OVER
);

/// State shared by a thread and its handle, for any result type.
struct Packet {
    ends: Ends,
    thread: OnceLock<Thread>,
    /// The first function of the new thread.
    run: unsafe fn(NonNull<Packet>),
    /// Drops the result, if it is there.
    forget: unsafe fn(NonNull<Packet>),
    /// Frees the [`Start`] that begins with the packet.
    free: unsafe fn(NonNull<Packet>),
    stack_size: usize,
}

/// A packet with its result: the thread writes, and the handle reads after the thread's end.
#[repr(C)]
struct ResultPacket<T> {
    packet: Packet,
    result: UnsafeCell<Option<thread::Result<T>>>,
}

/// A new thread's argument: the packet with its result, and its closure, which it takes out.
#[repr(C)]
struct Start<T, F> {
    shared: ResultPacket<T>,
    closure: ManuallyDrop<F>,
}

impl<T, F: FnOnce() -> T> Start<T, F> {
    /// # Safety
    /// `packet` must begin a boxed `Start<T, F>` that nothing else uses.
    unsafe fn free(packet: NonNull<Packet>) {
        // SAFETY: the caller's promise.
        drop(unsafe { Box::from_raw(packet.cast::<Self>().as_ptr()) });
    }

    /// # Safety
    /// Must be called once, on the new thread, with the packet that [`spawn`] gave it.
    unsafe fn run(packet: NonNull<Packet>) {
        let start = packet.cast::<Self>().as_ptr();
        // SAFETY: the packet lives until both sides have left it; the closure is taken out once.
        let (packet, closure) =
            unsafe { (packet.as_ref(), std::ptr::read(&raw const (*start).closure)) };
        if packet.ends.is_named() {
            let _ = packet.thread.set(current());
        }
        let result = catch_unwind(AssertUnwindSafe(ManuallyDrop::into_inner(closure)));
        // SAFETY: the handle reads the result only after the thread says that it ran.
        unsafe { *(*start).shared.result.get() = Some(result) };
    }

    /// # Safety
    /// `packet` must begin a `Start<T, F>`, and the caller must own its result.
    unsafe fn forget(packet: NonNull<Packet>) {
        let start = packet.cast::<Self>().as_ptr();
        // SAFETY: the caller's promise.
        drop(unsafe { (*(*start).shared.result.get()).take() });
    }
}

/// A thread made through libc, without std.
struct Native<T> {
    id: libc::pthread_t,
    shared: NonNull<ResultPacket<T>>,
}

// SAFETY: a pthread_t is a name that any thread may use; the packet's result crosses.
unsafe impl<T: Send> Send for Native<T> {}
// SAFETY: shared references only ask whether the thread lives, and for its std handle.
unsafe impl<T: Send> Sync for Native<T> {}

/// The error of [`JoinHandle::join`] on the thread's own handle, in place of a panic's payload: the
/// wait would never end.
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

/// The right to wait for a green thread's end. Dropping it detaches the thread.
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
    /// The payload of the thread's panic; [`SelfJoin`] on the thread itself, which goes on
    /// detached.
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

    /// Returns the thread's std handle, for `unpark`.
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

    /// Returns true once the thread has run to its end; [`JoinHandle::join`] then returns soon.
    ///
    /// ```
    /// let thread = raddle::spawn(|| ());
    /// while !thread.is_finished() { raddle::yield_now() }
    /// ```
    pub fn is_finished(&self) -> bool {
        match &self.0 {
            Kind::Std(thread) => thread.is_finished(),
            Kind::Native(thread) => thread.packet().ends.has_run(),
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
    fn packet(&self) -> &Packet {
        // SAFETY: while the handle lives, only its owner frees the packet.
        unsafe { &self.shared.as_ref().packet }
    }

    fn join(self) -> thread::Result<T> {
        let packet = self.packet();
        // A reused thread has the same name for libc.
        // SAFETY: asks for the calling thread's name.
        if self.id == unsafe { libc::pthread_self() } && !packet.ends.has_left() {
            return Err(Box::new(SelfJoin));
        }
        packet.ends.consume();
        if runtime::table().is_none() || packet.wait() {
            // SAFETY: the thread ends for good, and is joined or detached once: here, or by drop
            // if this fails.
            let error = unsafe { libc::pthread_join(self.id, null_mut()) };
            assert!(error == 0, "a thread that isn't joined can be");
        }
        let shared = ManuallyDrop::new(self).shared;
        // SAFETY: the thread has ended, so the handle owns the packet, and the handle is gone.
        let result = unsafe {
            let result = (*shared.as_ref().result.get()).take();
            (shared.as_ref().packet.free)(shared.cast());
            result
        };
        result.expect("a thread that has ended left its result")
    }
}

impl Packet {
    /// Waits until the thread is gone, or ends for good. Returns true if it ends for good.
    fn wait(&self) -> bool {
        loop {
            let (state, is_final) = self.ends.look();
            if is_final {
                return self.ends.is_for_good();
            }
            match runtime::table() {
                Some(runtime) => (runtime.wait)(self.ends.word(), state),
                None => super::yield_now(),
            }
        }
    }
}

impl<T> Drop for Native<T> {
    fn drop(&mut self) {
        let at = self.shared.cast();
        let packet = self.packet();
        let panic = Cell::new(None);
        let lose = || {
            // SAFETY: the result that the thread has left is the handle's.
            let lost = catch_unwind(AssertUnwindSafe(|| unsafe { (packet.forget)(at) }));
            panic.set(lost.err().or(panic.take())); // the result is lost once
        };
        if packet.ends.detach(lose) {
            // After its last step in the word the thread runs nothing that could take long.
            if packet.wait() {
                // SAFETY: as in join.
                unsafe { libc::pthread_detach(self.id) };
            }
            // SAFETY: the thread has left the packet to this handle.
            unsafe { (packet.free)(at) };
        }
        if let Some(payload) = panic.take() {
            resume_unwind(payload);
        }
    }
}

/// Starts a green thread without a name.
///
/// # Errors
/// EAGAIN or ENOMEM.
///
/// # Safety
/// The borrows of `run`, and its result, must live until `run` has returned and the result is gone.
pub(super) unsafe fn spawn<T, F>(stack_size: usize, run: F) -> io::Result<JoinHandle<T>>
where
    T: Send,
    F: FnOnce() -> T + Send,
{
    let stack_size = stack_size
        .max(libc::PTHREAD_STACK_MIN)
        .checked_next_multiple_of(4096)
        .ok_or_else(|| io::Error::from_raw_os_error(libc::EINVAL))?;
    let start = Box::new(Start::<T, F> {
        shared: ResultPacket {
            packet: Packet {
                ends: Ends::new(),
                thread: OnceLock::new(),
                run: Start::<T, F>::run,
                forget: Start::<T, F>::forget,
                free: Start::<T, F>::free,
                stack_size,
            },
            result: UnsafeCell::new(None),
        },
        closure: ManuallyDrop::new(run),
    });
    let start = NonNull::from(Box::leak(start));
    let id = match begin(stack_size, start.as_ptr().cast()) {
        Ok(id) => id,
        Err(error) => {
            // SAFETY: nothing else has it.
            let start = *unsafe { Box::from_raw(start.as_ptr()) };
            drop(ManuallyDrop::into_inner(start.closure));
            return Err(io::Error::from_raw_os_error(error));
        }
    };
    let shared = start.cast();
    Ok(JoinHandle(Kind::Native(Native { id, shared })))
}

/// Has a thread run the packet: a kept one, or a new one.
fn begin(stack_size: usize, packet: *mut c_void) -> Result<libc::pthread_t, i32> {
    if let Some(id) = reuse::begin(stack_size, packet) {
        return Ok(id);
    }
    let mut id = MaybeUninit::uninit();
    let _green = NextIsGreen::ask();
    // SAFETY: `work` gets what it expects, if the thread is made.
    let error = unsafe {
        let mut attributes = MaybeUninit::uninit();
        libc::pthread_attr_init(attributes.as_mut_ptr());
        libc::pthread_attr_setstacksize(attributes.as_mut_ptr(), stack_size);
        let error = libc::pthread_create(id.as_mut_ptr(), attributes.as_ptr(), work, packet);
        libc::pthread_attr_destroy(attributes.as_mut_ptr());
        error
    };
    match error {
        // SAFETY: the thread was made.
        0 => Ok(unsafe { id.assume_init() }),
        error => Err(error),
    }
}

/// The first function of the thread.
extern "C" fn work(packet: *mut c_void) -> *mut c_void {
    let Some(mut packet) = NonNull::new(packet.cast::<Packet>()) else {
        return null_mut(); // never
    };
    // SAFETY: the packet that `spawn` gave.
    let stack_size = unsafe { packet.as_ref() }.stack_size;
    // SAFETY: asks for the calling thread's name.
    let control = ReuseControl::new(unsafe { libc::pthread_self() } as usize, stack_size);
    let born = Born::look();
    loop {
        // SAFETY: as above; each packet is run once.
        let mut told = unsafe {
            (packet.as_ref().run)(packet);
            leave(packet, Ends::ran)
        };
        let begins_anew = || {
            born.as_ref()
                .is_some_and(|born| born.begins_anew(stack_size))
        };
        let Some(runtime) = runtime::table().filter(|_| begins_anew()) else {
            end(told);
            return null_mut();
        };
        if let Some(left) = told {
            // SAFETY: the packet is the thread's until the thread says that it leaves it.
            told = unsafe { leave(left, Ends::leaves) };
            if told.is_none() && !begins_anew() {
                end(None); // dropping the packet left something behind
                return null_mut();
            }
        }
        // SAFETY: the packet lives until its word says that the thread is over.
        let word = told.map(|packet| unsafe { std::ptr::from_ref(packet.as_ref().ends.word()) });
        control.told.set(word.unwrap_or(null()));
        // By jumps: the thread's joiner returns after this call, and a reused thread doesn't.
        // SAFETY: the runtime's function of a reuse control, which lies here while the thread
        // lives.
        unsafe { call_by_jumps(runtime.keep, (&raw const control).expose_provenance(), 0) };
        match NonNull::new(control.next.get().cast()) {
            Some(next) => packet = next,
            None => {
                detach_self();
                return null_mut();
            }
        }
        reuse::begins();
    }
}

/// Takes a step in the packet's word. Returns `None` if the handle was dropped; the packet is then
/// freed.
///
/// # Safety
/// The packet must be the calling thread's.
unsafe fn leave(packet: NonNull<Packet>, step: fn(&Ends) -> bool) -> Option<NonNull<Packet>> {
    // SAFETY: the caller's promise.
    unsafe {
        if step(&packet.as_ref().ends) {
            return Some(packet);
        }
        (packet.as_ref().free)(packet);
    }
    None
}

/// Ends the thread for good. The handle, if there is one, frees the packet.
fn end(packet: Option<NonNull<Packet>>) {
    let Some(packet) = packet else {
        return detach_self();
    };
    // SAFETY: the packet is this thread's until `ends.ends()`; after that only the address is used.
    let (word, (has_handle, is_awaited)) = unsafe {
        let ends = &packet.as_ref().ends;
        (ends.word().as_ptr().expose_provenance(), ends.ends())
    };
    if !has_handle {
        // SAFETY: the handle is gone, and has taken the result along.
        unsafe { (packet.as_ref().free)(packet) };
        return detach_self();
    }
    if is_awaited && let Some(runtime) = runtime::table() {
        (runtime.wake)(word);
    }
}

/// Detaches the calling thread, which ends for good and is not joined.
fn detach_self() {
    // SAFETY: the thread is joined or detached once.
    unsafe { libc::pthread_detach(libc::pthread_self()) };
}
