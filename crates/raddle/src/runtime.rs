//! The engine beneath green threads.
//!
//! The engine is started before `main`, or when a library that contains it is loaded, while the
//! process has one thread: libc's system calls are patched to lead to the engine. Nothing else
//! happens until the first thread is made. Where the engine can't run (see [`status`]), every green
//! thread is a kernel thread, and all else works the same.

use crate::engine::BuiltIn;
use crate::thread::reuse;
use raddle_interface::{EXPLICIT, HostControl, Runtime, SYMBOL, TraceKind, VERSION};
use raddle_sched::policies::Kind;
use std::ffi::{CStr, c_void};
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsRawFd, FromRawFd};
use std::ptr::from_ref;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};

/// The runtime's library.
static LIBRARY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/runtime.so"));

/// The runtime's table; null without a runtime of a known version. Written before `main`.
static RUNTIME: AtomicPtr<Runtime> = AtomicPtr::new(std::ptr::null_mut());

/// The table once the runtime is up; before that null.
static UP: AtomicPtr<Runtime> = AtomicPtr::new(std::ptr::null_mut());

#[used]
#[unsafe(link_section = ".init_array")]
static INIT: extern "C" fn() = init;

/// True if other threads existed before the runtime could be loaded. Written with [`RUNTIME`].
static LATE: AtomicBool = AtomicBool::new(false);

/// Finds or loads the runtime. Runs before `main`, or in `dlopen`.
extern "C" fn init() {
    // SAFETY: a search by name; what has this name is a runtime's table.
    let mut table = unsafe { libc::dlsym(libc::RTLD_DEFAULT, SYMBOL.as_ptr()) };
    if table.is_null() {
        if has_one_thread() {
            table = load();
        } else {
            LATE.store(true, Ordering::Relaxed);
        }
    }
    RUNTIME.store(table.cast(), Ordering::Release);
    follow_trace();
    reuse::find();
}

/// Returns whether the calling thread is the process's only one; false where that can't be read.
fn has_one_thread() -> bool {
    std::fs::read_dir("/proc/self/task").is_ok_and(|tasks| tasks.count() == 1)
}

/// Loads the runtime's library from memory and returns its table; null where that is not allowed.
/// To be called while the process has one thread.
fn load() -> *mut c_void {
    let Some(handle) = copy_to_memory().and_then(|file| {
        let (own, fd) = (std::process::id(), file.as_raw_fd());
        // A debugger, which opens loaded files, has a `self` of its own, and might read for ever
        // from the file that it finds there.
        let path = if std::path::Path::new(&format!("/proc/{own}/fd/{fd}")).exists() {
            format!("/proc/{own}/fd/{fd}\0")
        } else {
            format!("/proc/self/fd/{fd}\0") // in a namespace without a /proc of its own
        };
        let path = CStr::from_bytes_until_nul(path.as_bytes()).ok()?;
        // SAFETY: the process has one thread here, so no other thread reads the environment
        // meanwhile, and the library's constructor is the runtime's.
        let handle = unsafe {
            libc::setenv(EXPLICIT.as_ptr(), c"1".as_ptr(), 1);
            let handle = libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL);
            libc::unsetenv(EXPLICIT.as_ptr());
            handle
        };
        (!handle.is_null()).then_some(handle)
    }) else {
        return std::ptr::null_mut();
    };
    // SAFETY: a search by name in a library that is never closed.
    unsafe { libc::dlsym(handle, SYMBOL.as_ptr()) }
}

/// Returns a file in memory that holds the library.
fn copy_to_memory() -> Option<File> {
    // SAFETY: a new descriptor or -1.
    let fd = unsafe { libc::memfd_create(c"raddle".as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        return None;
    }
    // SAFETY: the descriptor is ours alone.
    let mut file = unsafe { File::from_raw_fd(fd) };
    file.write_all(LIBRARY).ok()?;
    Some(file)
}

/// Returns the runtime, if it is up and of this version.
#[inline(always)]
pub(crate) fn table() -> Option<&'static Runtime> {
    // SAFETY: null or the table of a library that is never unloaded.
    unsafe { UP.load(Ordering::Relaxed).as_ref() }.or_else(find_up)
}

/// Returns the runtime that `init` found, once it is up; it stays up.
#[cold]
fn find_up() -> Option<&'static Runtime> {
    // SAFETY: as above.
    let runtime = unsafe { RUNTIME.load(Ordering::Relaxed).as_ref() }?;
    let is_up = runtime.version == VERSION && (runtime.is_up)() != 0;
    is_up.then(|| {
        UP.store(from_ref(runtime).cast_mut(), Ordering::Relaxed);
        runtime
    })
}

/// The word of a process that records nothing.
static NEVER_TRACED: AtomicU32 = AtomicU32::new(0);

/// The word that says whether events are recorded. Written before `main`.
static TRACE_WORD: AtomicPtr<AtomicU32> = AtomicPtr::new((&raw const NEVER_TRACED).cast_mut());

/// The bits of it that count. Written before [`TRACE_WORD`].
static TRACE_MASK: AtomicU32 = AtomicU32::new(0);

/// Finds the word that says whether events are recorded.
fn follow_trace() {
    // SAFETY: null or the table of a library that is never unloaded.
    let runtime = unsafe { RUNTIME.load(Ordering::Relaxed).as_ref() };
    if let Some(runtime) = runtime.filter(|runtime| runtime.version == VERSION) {
        TRACE_MASK.store(runtime.trace_mask, Ordering::Relaxed);
        let word = from_ref(runtime.trace_word).cast_mut();
        TRACE_WORD.store(word, Ordering::Release);
    }
}

/// Returns true while events are recorded. CPU time that is counted, which is a bit of the same
/// word, costs a second look.
#[inline(always)]
pub(crate) fn is_traced() -> bool {
    // SAFETY: a static here or in a library that is never unloaded.
    let word = unsafe { &*TRACE_WORD.load(Ordering::Relaxed) }.load(Ordering::Relaxed);
    word != 0 && word & TRACE_MASK.load(Ordering::Relaxed) != 0
}

/// Records an event; see [`Runtime::trace`]. Of a text, only the first 255 bytes.
pub(crate) fn trace(kind: TraceKind, text: *const u8, length: usize, value: i64) {
    const TEXT_MAX: usize = 255;
    // SAFETY: null or the table of a library that is never unloaded.
    let runtime = unsafe { RUNTIME.load(Ordering::Relaxed).as_ref() };
    if let Some(runtime) = runtime.filter(|runtime| runtime.version == VERSION) {
        (runtime.trace)(kind as u32, text, length.min(TEXT_MAX) as u32, value);
    }
}

/// Tells the runtime that the calling thread hosts light threads from now on.
pub(crate) fn set_host(host: &'static HostControl) {
    if let Some(runtime) = table() {
        (runtime.set_host)(host);
    }
}

/// Whether threads that are asked to be green are green.
///
/// ```
/// use raddle::runtime::{Status, status};
/// assert_eq!(raddle::spawn(raddle::is_green_thread).join().unwrap(), status() == Status::Green);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Status {
    /// Threads are green, unless the engine runs short of memory or threads when the first one is
    /// made.
    Green,
    /// Threads are kernel threads: the system can't carry the engine (`raddle doctor` says why).
    KernelThreads,
    /// Threads are kernel threads: the process had other threads before the engine was loaded.
    LoadedLate,
}

/// Returns whether green threads are green in this process.
///
/// ```
/// use raddle::runtime::{Status, status};
/// if status() != Status::Green {
///     eprintln!("each thread costs a kernel thread here; see raddle doctor");
/// }
/// ```
pub fn status() -> Status {
    match table() {
        Some(_) => Status::Green,
        None if LATE.load(Ordering::Relaxed) => Status::LoadedLate,
        None => Status::KernelThreads,
    }
}

/// Changes how many carriers may run green threads at a time. 0, the initial value, means as many
/// as the CPUs that the process may use; more than 1024 means 1024. Takes effect as threads come
/// and go.
///
/// ```
/// raddle::runtime::set_carriers(1);
/// # if raddle::runtime::status() == raddle::runtime::Status::Green {
/// assert_eq!(raddle::runtime::carriers(), 1);
/// # }
/// ```
pub fn set_carriers(count: usize) {
    if let Some(runtime) = table() {
        (runtime.set_carriers)(count.try_into().unwrap_or(u32::MAX));
    }
}

/// Changes which runnable thread of the default engine runs next. Waiting threads are in the new
/// order at once; carriers follow within microseconds, or when their running thread gives way.
///
/// ```
/// use raddle::engine::BuiltIn;
/// # use raddle::runtime::{Status, status};
/// # if status() != Status::Green { return; }
/// raddle::runtime::set_policy(BuiltIn::Fair);
/// assert_eq!(raddle::runtime::policy(), Some(BuiltIn::Fair));
/// ```
pub fn set_policy(policy: BuiltIn) {
    if let Some(runtime) = table() {
        (runtime.set_policy)(policy as u32);
    }
}

/// Returns the policy of the default engine; `None` for a plug-in, and where threads are kernel
/// threads.
///
/// ```
/// match raddle::runtime::policy() {
///     Some(policy) => println!("{policy:?}"),
///     None => println!("not one of Raddle's"),
/// }
/// ```
pub fn policy() -> Option<BuiltIn> {
    BuiltIn::of_kind(Kind::of_code((table()?.policy)())?)
}

/// Returns how many carriers may run green threads at a time; 0 before the first thread is made, if
/// no number was set.
///
/// ```
/// raddle::spawn(|| ()).join().unwrap();
/// println!("{} carriers run green threads", raddle::runtime::carriers());
/// ```
pub fn carriers() -> usize {
    table().map_or(0, |runtime| (runtime.carriers)() as usize)
}
