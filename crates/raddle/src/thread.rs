//! Green threads in the shape of [`std::thread`].
//!
//! A green thread made here is a thread to std, libc and the kernel's interfaces: it has its own
//! thread-locals, id, name, signal mask and stack, its panics propagate through [`JoinHandle`], and
//! [`std::thread::current`] names it. Switching and blocking happen in user space.
//!
//! One difference: when a thread without a name overflows its stack, the process ends by SIGSEGV
//! without std's line about it.

#[allow(unreachable_pub)] // for its models
mod ends;
mod join;
pub(crate) mod reuse;
mod scope;

use crate::completion::{self, Completion};
use crate::engine::Engine;
use crate::runtime;
pub use join::{JoinHandle, SelfJoin};
use raddle_interface::Birth;
pub use scope::{Scope, ScopedJoinHandle, scope};
use std::io;
pub use std::thread::{Thread, ThreadId, current, park, park_timeout, sleep, yield_now};
use std::time::Duration;

/// The default stack size of a thread in bytes, as in std.
///
/// ```
/// let twice = raddle::Builder::new().stack_size(2 * raddle::thread::STACK_SIZE);
/// # drop(twice);
/// ```
pub const STACK_SIZE: usize = 2 << 20;

/// Returns true on a green thread; false on a kernel thread, which blocks where a green thread
/// parks.
///
/// ```
/// # use raddle::runtime::{Status, status};
/// let inside = raddle::spawn(raddle::is_green_thread).join().unwrap();
/// assert_eq!(inside, status() == Status::Green);
/// ```
pub fn is_green_thread() -> bool {
    runtime::table().is_some_and(|runtime| (runtime.is_green)() != 0)
}

/// Options of a new green thread.
///
/// ```
/// let named = raddle::Builder::new().name("weaver").stack_size(64 << 10);
/// let handle = named.spawn(|| raddle::thread::current().name().map(str::to_owned))?;
/// assert_eq!(handle.join().unwrap().as_deref(), Some("weaver"));
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Builder {
    name: Option<String>,
    stack_size: Option<usize>,
    niceness: Option<i8>,
    engine: Option<Engine>,
    birth: Birth,
}

impl Builder {
    /// Makes options for a thread without a name and with std's stack size.
    ///
    /// ```
    /// let thread = raddle::Builder::new().spawn(|| raddle::thread::current().name().is_none())?;
    /// assert!(thread.join().unwrap());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the thread's name; the kernel's interfaces show its first 15 bytes.
    ///
    /// ```
    /// let thread = raddle::Builder::new().name("weaver").spawn(|| ())?;
    /// assert_eq!(thread.thread().name(), Some("weaver"));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Sets the stack's size in bytes; a size that is too small for a thread to begin is enlarged.
    /// Memory is taken as the stack is used.
    ///
    /// ```
    /// let tiny = raddle::Builder::new().stack_size(1); // enlarged
    /// assert_eq!(tiny.spawn(|| 5)?.join().unwrap(), 5);
    /// let huge = raddle::Builder::new().stack_size(1 << 50).spawn(|| 5);
    /// assert!(huge.is_err());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn stack_size(mut self, bytes: usize) -> Self {
        self.stack_size = Some(bytes);
        self
    }

    /// Sets the thread's priority as Linux' niceness from -20, which is most urgent, to 19; a value
    /// beyond is clamped. The default is the niceness of the thread that makes it. The engine's
    /// policies `priority` and `fair` follow it, and policies of your own may.
    ///
    /// ```
    /// let later = raddle::Builder::new().niceness(10).spawn(|| "sums")?;
    /// assert_eq!(later.join().unwrap(), "sums");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn niceness(mut self, niceness: i8) -> Self {
        let niceness = niceness.clamp(-20, 19);
        self.birth.nice = niceness.into();
        self.niceness = Some(niceness);
        self
    }

    /// Sets the engine that the thread belongs to. Default: the first one.
    ///
    /// ```
    /// # use raddle::runtime::{Status, status};
    /// # if status() != Status::Green { return Ok(()); }
    /// let engine = raddle::engine::Engine::builder().build()?;
    /// let thread = raddle::Builder::new().engine(&engine).spawn(|| 5)?;
    /// assert_eq!(thread.join().unwrap(), 5);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn engine(mut self, engine: &Engine) -> Self {
        self.engine = Some(engine.clone());
        self
    }

    /// Sets the thread's priority for policies that follow it ([`BuiltIn::Priority`]): 1 to 99, the
    /// most important; 0, the default, is below all. More than 99 means 99.
    ///
    /// ```
    /// let urgent = raddle::Builder::new().priority(50).spawn(|| 5)?;
    /// assert_eq!(urgent.join().unwrap(), 5);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// [`BuiltIn::Priority`]: crate::engine::BuiltIn::Priority
    pub fn priority(mut self, priority: u8) -> Self {
        self.birth.priority = priority.min(99).into();
        self
    }

    /// Sets how soon after becoming runnable the thread should have run, for policies that follow
    /// it ([`BuiltIn::Deadline`]). Default: no deadline.
    ///
    /// ```
    /// let soon = std::time::Duration::from_millis(5);
    /// let frame = raddle::Builder::new().deadline(soon).spawn(|| 5)?;
    /// assert_eq!(frame.join().unwrap(), 5);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// [`BuiltIn::Deadline`]: crate::engine::BuiltIn::Deadline
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.birth.deadline_ns = deadline.as_nanos().try_into().unwrap_or(u64::MAX);
        self
    }

    /// Returns an error for a name that std rejects. std would panic on it halfway through making
    /// the thread.
    pub(crate) fn check_name(&self) -> io::Result<()> {
        if self.name.as_deref().is_some_and(|name| name.contains('\0')) {
            Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "a thread's name can't hold a zero byte",
            ))
        } else {
            Ok(())
        }
    }

    pub(crate) fn into_std(self) -> std::thread::Builder {
        let mut builder = std::thread::Builder::new();
        if let Some(name) = self.name {
            builder = builder.name(name);
        }
        if let Some(bytes) = self.stack_size {
            builder = builder.stack_size(bytes);
        }
        builder
    }

    /// Starts a green thread that runs `f`.
    ///
    /// ```
    /// let thread = raddle::Builder::new().spawn(|| 6 * 7)?;
    /// assert_eq!(thread.join().unwrap(), 42);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] (EAGAIN) if memory or a limit allows no other thread;
    /// [`io::ErrorKind::PermissionDenied`] if this process may not have a thread of that
    /// [`niceness`](Builder::niceness); [`io::ErrorKind::InvalidInput`] if the name holds a zero
    /// byte.
    pub fn spawn<T: Send + 'static>(
        self,
        f: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<JoinHandle<T>> {
        // SAFETY: nothing is borrowed.
        unsafe { self.spawn_unchecked(f) }
    }

    /// [`Builder::spawn`] of a closure that may borrow.
    ///
    /// # Safety
    /// The borrows of `f`, and its result, must live until `f` has returned and the result is gone.
    unsafe fn spawn_unchecked<T: Send>(
        self,
        f: impl FnOnce() -> T + Send,
    ) -> io::Result<JoinHandle<T>> {
        self.check_name()?;
        let niceness = self.allowed_niceness()?;
        let run = move || {
            become_nice(niceness);
            f()
        };
        let Some(engine) = self.engine.clone() else {
            let _birth = NextBirth::ask_if_any(self.birth);
            // SAFETY: the caller's promise.
            return unsafe { self.start(run) };
        };
        let name = self.name.clone();
        engine.adopt(self.birth, name.as_deref(), |member| {
            let run = move || {
                member.begin();
                run()
            };
            // SAFETY: as above.
            unsafe { self.start(run) }
        })
    }

    /// Makes the thread.
    ///
    /// # Safety
    /// As for [`Builder::spawn_unchecked`].
    unsafe fn start<T: Send>(self, f: impl FnOnce() -> T + Send) -> io::Result<JoinHandle<T>> {
        if self.name.is_none() {
            // SAFETY: the caller's promise.
            return unsafe { join::spawn(self.stack_size.unwrap_or(STACK_SIZE), f) };
        }
        let _green = NextIsGreen::ask();
        // SAFETY: as above.
        unsafe { self.into_std().spawn_unchecked(f) }.map(JoinHandle::of_std)
    }

    /// Starts a green thread in a scope that runs `f`.
    ///
    /// ```
    /// let word = String::from("weft");
    /// let length = raddle::scope(|scope| {
    ///     let builder = raddle::Builder::new().name("reader");
    ///     builder.spawn_scoped(&scope, || word.len()).map(|thread| thread.join().unwrap())
    /// })?;
    /// assert_eq!(length, 4);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Builder::spawn`].
    pub fn spawn_scoped<'scope, 'env, T: Send + 'scope>(
        self,
        scope: &Scope<'scope, 'env>,
        f: impl FnOnce() -> T + Send + 'scope,
    ) -> io::Result<ScopedJoinHandle<'scope, T>> {
        scope.start(self, f)
    }

    /// Returns the requested niceness, if this process may have it: the calling thread takes it on
    /// for a moment. A thread that may lower its niceness may raise it again.
    fn allowed_niceness(&self) -> io::Result<Option<i8>> {
        let Some(asked) = self.niceness else {
            return Ok(None);
        };
        let own = niceness();
        if i32::from(asked) < own {
            set_niceness(asked.into())?;
            set_niceness(own)?;
        }
        Ok(Some(asked))
    }
}

/// Returns the calling thread's niceness.
fn niceness() -> i32 {
    // SAFETY: a question about the calling thread; it can't fail.
    unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) }
}

/// Changes the calling thread's niceness: on Linux each thread has its own.
fn set_niceness(niceness: i32) -> io::Result<()> {
    // SAFETY: changes the calling thread alone.
    match unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, niceness) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Sets the new thread's niceness. Its maker was allowed to do so, so the thread is.
#[inline(always)]
fn become_nice(niceness: Option<i8>) {
    if let Some(niceness) = niceness {
        let _ = set_niceness(niceness.into()); // fails only if limits were lowered meanwhile
    }
}

/// While it lives, the calling thread's next thread is made green.
pub(crate) struct NextIsGreen;

impl NextIsGreen {
    pub(crate) fn ask() -> Self {
        Self::set(1);
        Self
    }

    fn set(green: u32) {
        if let Some(runtime) = runtime::table() {
            (runtime.next_is_green)(green);
        }
    }
}

impl Drop for NextIsGreen {
    fn drop(&mut self) {
        Self::set(0); // the thread may not have been made
    }
}

/// While it lives, the calling thread's next thread is made with these options.
pub(crate) struct NextBirth;

impl NextBirth {
    pub(crate) fn ask(birth: Birth) -> Self {
        Self::set(&birth);
        Self
    }

    /// Returns `None` if the options are all defaults.
    fn ask_if_any(birth: Birth) -> Option<Self> {
        let is_any = birth.priority != 0 || birth.nice != 0 || birth.deadline_ns != 0;
        is_any.then(|| Self::ask(birth))
    }

    fn set(birth: &Birth) {
        if let Some(runtime) = runtime::table() {
            (runtime.next_birth)(birth);
        }
    }
}

impl Drop for NextBirth {
    fn drop(&mut self) {
        Self::set(&Birth::default()); // the thread may not have been made
    }
}

/// Starts a green thread that runs `f`.
///
/// ```
/// let (to, from) = std::sync::mpsc::channel();
/// let weaver = raddle::spawn(move || from.iter().sum::<u32>());
/// (1..=3).for_each(|i| to.send(i).unwrap());
/// drop(to);
/// assert_eq!(weaver.join().unwrap(), 6);
/// ```
///
/// The thread may outlive the caller, and its captures must be safe to send:
///
/// ```compile_fail,E0373
/// let word = String::from("warp");
/// raddle::spawn(|| println!("{word}"));
/// ```
///
/// ```compile_fail,E0277
/// let shared = std::rc::Rc::new(1);
/// raddle::spawn(move || println!("{shared}"));
/// ```
///
/// # Panics
/// If no thread can be made; [`Builder::spawn`] returns an error instead.
pub fn spawn<T: Send + 'static>(f: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    Builder::new().spawn(f).expect("a thread can be made")
}

/// Runs `f` on a green thread of its own and returns a completion with the result.
///
/// ```
/// let answer = raddle::run_as_green_thread(|| 6 * 7);
/// assert_eq!(answer.wait().unwrap(), 42);
/// let late = raddle::run_as_green_thread(|| 1).then(|one| one + 1);
/// assert_eq!(raddle::completion::block_on(late).unwrap(), 2);
/// ```
///
/// # Panics
/// If no thread can be made.
pub fn run_as_green_thread<T: Send + 'static>(
    f: impl FnOnce() -> T + Send + 'static,
) -> Completion<T> {
    let (promise, completion) = completion::pair();
    drop(spawn(move || promise.run(f)));
    completion
}

/// Runs `f` on a kernel thread of its own and returns a completion with the result: for code that
/// blocks where the runtime can't see it, and for long computations that would hold a carrier.
///
/// [`on_kernel_thread`] waits for the end, allows borrows, and takes a stack size. Under `raddle
/// run`, where every thread is green, that thread is green, too.
///
/// ```
/// let green = raddle::thread::spawn_blocking(raddle::is_green_thread)?;
/// # let _ = &green;
/// let answer = raddle::thread::spawn_blocking(|| 6 * 7)?;
/// assert_eq!(answer.wait().unwrap(), 42);
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
/// As [`Builder::spawn`].
///
/// # Blocking
/// Nothing; the completion tells when the computation is over, and how.
pub fn spawn_blocking<T: Send + 'static>(
    f: impl FnOnce() -> T + Send + 'static,
) -> io::Result<Completion<T>> {
    let (promise, completion) = completion::pair();
    let builder = std::thread::Builder::new().stack_size(STACK_SIZE);
    builder.spawn(move || promise.run(f))?;
    Ok(completion)
}

/// Runs `f` on a kernel thread of its own with a stack of at least `stack_size` bytes, and waits
/// for it: for native code that needs much stack, or that blocks where the runtime can't see it.
///
/// ```
/// let depth = raddle::thread::on_kernel_thread(64 << 20, || {
///     fn deep(n: u64) -> u64 { if n == 0 { 0 } else { 1 + deep(n - 1) } }
///     deep(10_000)
/// })?;
/// assert_eq!(depth, 10_000);
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
/// As [`Builder::spawn`].
///
/// # Panics
/// With the payload of a panic of `f`.
pub fn on_kernel_thread<T: Send>(stack_size: usize, f: impl FnOnce() -> T + Send) -> io::Result<T> {
    std::thread::scope(|scope| {
        let builder = std::thread::Builder::new().stack_size(stack_size);
        let thread = builder.spawn_scoped(scope, f)?;
        Ok(thread
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })
}
