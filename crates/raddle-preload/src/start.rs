//! Taking a process over, or leaving it alone.
//!
//! ld.so calls before any other constructor:
//!
//! 1. Look libc's own functions up, for the symbol layer, which is there in any case.
//! 2. Check what can't be helped: FSGSBASE, a setuid program, a program with a runtime that makes
//!    threads by itself (Go) or watches them from below, a libc that isn't glibc 2.34 or later.
//! 3. Set [`tripwires`] that tell of the program's first thread. Where they can't be set, and where
//!    something is to be different from the start, go on at once.
//!
//! What is executed until then is in one place of the text: the kernel maps text when it is
//! executed, 64 KiB at a time, and every process starts so.
//!
//! At the first thread ([`ensure`]):
//!
//! 4. Make the main thread a green thread on carrier 0.
//! 5. Patch: libc, which must work; then the program, ld.so and whatever else is loaded and holds
//!    system calls.
//!
//! A step 5 that is refused leaves no trace: the engine never starts, because no clone reaches it.

use crate::environment::{AT_EXECFN, AT_HWCAP2, AT_SECURE, AT_SYSINFO_EHDR, Environment, Line};
use crate::objects::{after, find, is_go, link_map};
use crate::original::{self, LinkMap};
use crate::patching::{own_base, patch_all};
use crate::policy::{self, Wrong};
use crate::settings::{carriers, cpus, extra_carriers, flight_recorder, limit, quantum_ns, seed};
use crate::why::Why;
use crate::{filtered, interface, own_stack, rseq, symbols, tripwires, watchers};
use core::ffi::{CStr, c_char, c_int};
use core::fmt::{self, Write};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use raddle_engine::inspect::crash;
use raddle_engine::process::Hooks;
use raddle_engine::{Carrier, PROCESS, chaos, family, shown};
use raddle_inspect::settings;
use raddle_kernel::rules::{exclusion, shares};
use raddle_kernel::signal;
use raddle_kernel::task::{process, threads};
use raddle_patch::Report;
use raddle_sched::SpinLock;
use raddle_sys::{change_signal_mask, is_err, nr, sys};

const FSGSBASE: usize = 2;
/// The newest glibc 2.N that the tests have run with.
const NEWEST_MINOR: u32 = 43;

#[used]
#[unsafe(link_section = ".init_array")]
static INIT: extern "C" fn(c_int, *const *const c_char, *const *const c_char) = constructor;

/// What is needed to take the process over.
#[derive(Clone, Copy)]
struct Process {
    environment: Environment,
    map: &'static LinkMap,
    libc: &'static LinkMap,
    /// Shared with children from before the process's first thread, too.
    family: Option<&'static AtomicU64>,
}

// SAFETY: ld.so's list lives for ever; one thread at a time reads it.
unsafe impl Send for Process {}

/// A process that waits for its first thread.
static WAITING: SpinLock<Option<Process>> = SpinLock::new(None);
/// 1 while there is one.
static WAITS: AtomicU32 = AtomicU32::new(0);

/// What ld.so calls.
#[unsafe(link_section = ".text.raddle_start")] // see the module
extern "C" fn constructor(
    count: c_int,
    arguments: *const *const c_char,
    variables: *const *const c_char,
) {
    // SAFETY: ld.so passes the arguments where the kernel left them, and the environment of now.
    let environment = unsafe {
        let initial = arguments.add(count as usize + 1);
        Environment::new(variables, initial)
    };
    let process = match look(environment) {
        Ok(process) => process,
        Err(why) => return tell(&environment, &Err(why)),
    };
    match cpus(&environment) {
        Ok(Some(most)) => {
            // This asks the kernel, now; everything else waits for the first thread.
            let may_ask = if most == 0 { Ok(()) } else { filtered::check() };
            if let Err(why) = may_ask {
                return tell(&environment, &Err(why));
            }
            shown::show(most);
        }
        Ok(None) => shown::show_all(),
        Err(why) => return tell(&environment, &Err(why)),
    }
    // SAFETY: ld.so's list; one thread exists.
    unsafe { rseq::withdraw(&process.environment, process.map) };
    if !waits(&process) {
        begin(&process);
    }
}

/// Lets the process wait for its first thread. False if it must be taken over now: what is asked
/// for is seen before, or no wire would say when.
fn waits(process: &Process) -> bool {
    let environment = &process.environment;
    let is_asked = |name| environment.get(name).is_some_and(|value| !value.is_empty());
    if environment
        .get(raddle_interface::EXPLICIT.to_str().unwrap_or_default())
        .is_some()
        || is_asked(settings::CHAOS)
    {
        return false;
    }
    let Some(environment) = environment.copied() else {
        return false;
    };
    // SAFETY: libc's entry; a thread of another library's is found at the first of the program's.
    if !unsafe { tripwires::set(process.libc) } {
        return false;
    }
    *WAITING.lock() = Some(Process {
        environment,
        ..*process
    });
    WAITS.store(1, Ordering::Relaxed);
    true
}

/// Takes the process over if it waits: its first thread is about to be made.
///
/// # Blocking
/// The calling kernel thread, for a few milliseconds, the first time.
pub(crate) fn ensure() {
    if WAITS.load(Ordering::Relaxed) != 0 {
        end_wait();
    }
}

#[cold]
fn end_wait() {
    let Some(process) = *WAITING.lock() else {
        return;
    };
    if is_in_others_memory(process.libc) {
        return;
    }
    // A handler would run libc's text while that is being changed.
    // SAFETY: opens no signal; the mask is given back below.
    let mask = unsafe { change_signal_mask(nr::SIG_SETMASK, u64::MAX) };
    WAITS.store(0, Ordering::Relaxed);
    *WAITING.lock() = None;
    begin(&process);
    // SAFETY: the program's own mask.
    unsafe { change_signal_mask(nr::SIG_SETMASK, mask) };
}

/// True for the child of a `vfork`, which may not change its parent's memory: libc writes a
/// thread's id into a lock that may be locked again, and only a child of `fork` has been told its.
fn is_in_others_memory(libc: &LinkMap) -> bool {
    const RECURSIVE: u32 = 1;
    // `pthread_mutex_t`: the owner is the third word, the kind the fifth.
    let mut mutex = [0, 0, 0, 0, RECURSIVE, 0, 0, 0, 0, 0u32];
    // SAFETY: libc's entry, and its function of this type with an unlocked mutex.
    unsafe {
        let address = original::symbol(libc, c"pthread_mutex_lock");
        if address == 0 {
            return true;
        }
        let lock: extern "C" fn(*mut u32) -> c_int = core::mem::transmute(address);
        lock(mutex.as_mut_ptr());
        filtered::own_tid() != Some(mutex[2])
    }
}

/// Takes the process over, and says so.
fn begin(process: &Process) {
    // The thread's stack may be limited to a few pages.
    let address = core::ptr::from_ref(process).expose_provenance();
    if !own_stack::call(begin_here, address) {
        begin_here(address);
    }
}

extern "C" fn begin_here(process: usize) {
    // SAFETY: the caller's, which waits.
    let process = unsafe { &*core::ptr::with_exposed_provenance::<Process>(process) };
    let taken = take_over(process);
    if taken.is_ok() {
        rseq::give_place_back();
        interface::set_up();
    }
    tell(&process.environment, &taken);
}

/// Tells the user how the threads run, if the user wants to hear.
fn tell(environment: &Environment, taken: &Result<Report, Why>) {
    if !environment.is_verbose() {
        return;
    }
    match taken {
        Ok(report) => say(format_args!(
            "threads are green: {} of libc's {} system call sites lead to the runtime",
            report.patched, report.sites
        )),
        Err(why) => say(format_args!("runs on kernel threads: {why}")),
    }
}

fn say(text: fmt::Arguments<'_>) {
    let mut line = Line::new();
    let _ = writeln!(line, "raddle: {text}");
    raddle_sys::write_stderr(line.bytes());
}

/// Finds what is needed, and whatever keeps the process on kernel threads from its start.
fn look(environment: Environment) -> Result<Process, Why> {
    let map = link_map(&environment).ok_or(Why::NoLinkMap)?;
    // First, because the symbol layer calls these whatever is decided.
    let Some(libc) = find(map, c"libc.so.6") else {
        // SAFETY: ld.so's list.
        unsafe { original::look_up_anywhere(map, own_base()) };
        return Err(Why::NoGlibc);
    };
    // SAFETY: an entry of ld.so's list.
    unsafe { original::look_up(libc) };
    if environment.auxiliary(AT_HWCAP2) & FSGSBASE == 0 {
        return Err(Why::NoFsgsbase);
    }
    if environment.auxiliary(AT_SECURE) != 0 {
        return Err(Why::Secure);
    }
    if is_go(&environment) {
        return Err(Why::GoProgram);
    }
    check_watchers(&environment, map)?;
    if original::CREATE.get() == 0 || original::COND_CLOCKWAIT.get() == 0 {
        return Err(Why::OldGlibc); // before 2.34 they were in libpthread
    }
    // SAFETY: libc's entry.
    if unsafe { minor_version(libc) }.is_none_or(|minor| minor > NEWEST_MINOR) {
        return Err(Why::NewGlibc);
    }
    Ok(Process {
        environment,
        map,
        libc,
        family: family::found(),
    })
}

fn take_over(process: &Process) -> Result<Report, Why> {
    let Process {
        environment,
        map,
        libc,
        family,
    } = process;
    if !is_single_threaded() {
        return Err(Why::Threads);
    }
    // SAFETY: one thread, which no signal interrupts.
    unsafe { tripwires::clear(libc) }.map_err(Why::Patching)?;
    filtered::check()?;
    if !raddle_engine::descriptor::suffice() {
        return Err(Why::Descriptors);
    }
    // SAFETY: libc's functions were looked up.
    if !unsafe { symbols::learn_condvar() } {
        return Err(Why::NewGlibc);
    }
    // SAFETY: the list begins with the program.
    let may_trace = unsafe { watchers::is_tracer(map) };
    if tripwires::has_traced() || may_trace && has_children() {
        return Err(Why::Tracer);
    }
    prepare(environment, map)?;
    if let Some(family) = family {
        PROCESS.family.join(family);
    }
    if may_trace {
        process::expect_tracer();
    }
    patch_all(environment, map, libc)
}

/// Refuses what counts on kernel threads.
fn check_watchers(environment: &Environment, map: &LinkMap) -> Result<(), Why> {
    if watchers::is_under_valgrind() {
        return Err(Why::Valgrind);
    }
    let vdso = environment.auxiliary(AT_SYSINFO_EHDR);
    let mut next = Some(map);
    while let Some(object) = next {
        // SAFETY: an entry of ld.so's list; only the vDSO isn't relocated.
        if object.base != vdso && unsafe { watchers::is_sanitizer(object) } {
            return Err(Why::Sanitizer);
        }
        next = after(object);
    }
    Ok(())
}

/// glibc 2.N: N.
///
/// # Safety
/// `libc` must be glibc's entry in ld.so's list.
unsafe fn minor_version(libc: &LinkMap) -> Option<u32> {
    // SAFETY: the caller's promise.
    let function = unsafe { original::symbol(libc, c"gnu_get_libc_version") };
    if function == 0 {
        return None;
    }
    // SAFETY: glibc's function of this type; it does nothing but return a constant of its own.
    let version = unsafe {
        let function: extern "C" fn() -> *const c_char = core::mem::transmute(function);
        CStr::from_ptr(function())
    };
    let digits = version.to_str().ok()?.strip_prefix("2.")?;
    digits.split('.').next()?.parse().ok()
}

/// Everything that needs no patching.
fn prepare(environment: &Environment, map: &'static LinkMap) -> Result<(), Why> {
    if let Some(rules) = environment.get(settings::EXCLUDE)
        && !rules.is_empty()
    {
        exclusion::set_rules(rules);
    }
    original::remember(map, environment.auxiliary(AT_EXECFN));
    if environment
        .get(raddle_interface::EXPLICIT.to_str().unwrap_or_default())
        .is_some()
    {
        PROCESS.set_explicit();
    }
    let carriers = carriers(environment)?;
    chaos::set_seed(seed(environment)?);
    PROCESS.set_quantum_ns(quantum_ns(environment)?);
    if let Some(most) = extra_carriers(environment)? {
        PROCESS.set_most_extra(most);
    }
    let threads = limit(environment, settings::MAX_THREADS, Why::MaxThreads)?;
    PROCESS.threads.set_limit(threads as usize);
    let runnable = limit(environment, settings::MAX_RUNNABLE, Why::MaxRunnable)?;
    PROCESS.set_max_runnable(runnable);
    if let Some(folder) = flight_recorder(environment) {
        crash::set_flight_recorder(folder);
    }
    static HOOKS: Hooks = Hooks {
        carrier_starts: threads::carrier_starts,
        thread_exited: threads::exited,
        route_signals: signal::route,
        code_places: signal::code_places,
    };
    policy::choose(environment).map_err(|wrong| match wrong {
        Wrong::Policy => Why::Policy,
        Wrong::Share => Why::Share,
    })?;
    // SAFETY: the only thread, once; FSGSBASE was checked.
    unsafe { PROCESS.init(carriers, environment.auxiliary(AT_SYSINFO_EHDR), &HOOKS) }
        .map_err(|_| Why::NoMemory)?;
    policy::plug_in(environment, map);
    let main = Carrier::current().thread();
    shares::named(main, &main.name());
    process::init(environment.is_verbose()).map_err(|_| Why::NoMemory)
}

/// True if there is a child, which the only thread may trace.
fn has_children() -> bool {
    const NOWAIT: usize = 0x0100_0000;
    const EXITED: usize = 4;
    const NOHANG: usize = 1;
    const __WALL: usize = nr::__WALL as usize;
    const ANY: usize = 0;
    let options = NOWAIT | EXITED | NOHANG | __WALL;
    // SAFETY: nothing is asked but whether there is one, and the child is left to be waited for.
    let result = unsafe { sys!(nr::__NR_waitid, ANY, 0usize, 0usize, options, 0usize) };
    !is_err(result)
}

fn is_single_threaded() -> bool {
    const LINKS: usize = 2; // st_nlink is the third word of struct stat
    let mut stat = [0u64; 18];
    // SAFETY: a zero-terminated path and a live structure.
    let result = unsafe {
        sys!(
            nr::__NR_newfstatat,
            0usize,
            c"/proc/self/task".as_ptr(),
            stat.as_mut_ptr(),
            0usize
        )
    };
    // A directory has a link of its own, one from above and one from each folder in it.
    is_err(result) || stat[LINKS] <= 3
}
