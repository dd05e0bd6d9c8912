//! Taking a process over, or leaving it alone.
//!
//! 1. Look libc's own functions up, for the symbol layer, which is there in any case.
//! 2. Check what can't be helped: FSGSBASE, a setuid program, another thread already there, a
//!    program whose runtime makes threads by itself (Go) or that watches them from below, a libc
//!    that isn't glibc 2.34 or later.
//! 3. Make the main thread a green thread on carrier 0.
//! 4. Patch: libc, which must work; then the program, ld.so and whatever else is loaded and holds
//!    system calls.
//!
//! Nothing is visible to the program until step 4, and a step 4 that is refused leaves no trace:
//! the engine never starts, because no clone reaches it.

use crate::environment::{Environment, Line};
use crate::interface;
use crate::late;
use crate::original::{self, LinkMap};
use crate::policy::{self, Wrong};
use crate::{memory_functions, own_stack, symbols, watchers};
use core::ffi::{CStr, c_char, c_int};
use core::fmt::{self, Write};
use core::ptr::with_exposed_provenance_mut;
use raddle_engine::engine::{Hooks, MAX_WANTED};
use raddle_engine::thread::MAX_THREADS;
use raddle_engine::{Carrier, ENGINE, chaos};
use raddle_kernel::{
    boundary, calls, credentials, exclusion, loading, process, shares, signal, threads,
};
use raddle_patch::{Image, Linux, Refusal, Report, Site, Targets, apply, plan};
use raddle_sched::policy::QUANTUM_NS;
use raddle_sys::{is_err, mem, nr, sys};

const AT_PHDR: usize = 3;
const AT_PHNUM: usize = 5;
const AT_SECURE: usize = 23;
const AT_HWCAP2: usize = 26;
const AT_EXECFN: usize = 31;
const AT_SYSINFO_EHDR: usize = 33;
const FSGSBASE: usize = 2;
const READ: usize = 1;
const WRITE: usize = 2;
/// The newest glibc 2.N that the tests have run with.
const NEWEST_MINOR: u32 = 43;
/// System call sites that one module may have.
const MAX_SITES: usize = 2048;

unsafe extern "C" {
    /// This library's ELF header.
    static __ehdr_start: u8;
}

#[used]
#[unsafe(link_section = ".init_array")]
static INIT: extern "C" fn(c_int, *const *const c_char, *const *const c_char) = constructor;

/// Why the process stays on kernel threads.
enum Why {
    NoFsgsbase,
    Secure,
    Threads,
    GoProgram,
    Valgrind,
    Sanitizer,
    Tracer,
    NoLinkMap,
    NoGlibc,
    OldGlibc,
    NewGlibc,
    NoMemory,
    Carriers,
    Quantum,
    Chaos,
    MaxThreads,
    MaxRunnable,
    Policy,
    Share,
    Patching(Refusal),
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoFsgsbase => {
                "the CPU or the kernel lacks FSGSBASE; use Linux 5.9 or later on x86-64 v2"
            }
            Self::Secure => {
                "the program is setuid or has file capabilities; run it as its own user"
            }
            Self::Threads => {
                "a library made a thread before raddle could start; exclude that library"
            }
            Self::GoProgram => "Go programs have a scheduler of their own; run them without raddle",
            Self::Valgrind => "valgrind simulates threads by itself; run it without raddle",
            Self::Sanitizer => {
                "a sanitizer (ASan, TSan, ...) keeps accounts of kernel threads; build without it"
            }
            Self::Tracer => "the program traces others by ptrace, which is bound to kernel threads",
            Self::NoLinkMap => {
                "ld.so's list of libraries was not found; use the system's dynamic loader"
            }
            Self::NoGlibc => "the program doesn't use glibc; use a glibc build",
            Self::NewGlibc => {
                "this glibc is newer than 2.43, the newest known to work; use a newer raddle"
            }
            Self::OldGlibc => "this glibc is older than 2.34; use a newer system",
            Self::NoMemory => "there is not enough memory or address space; raise the limits",
            Self::MaxThreads => "RADDLE_MAX_THREADS is not a number from 1 to 1048576; correct it",
            Self::MaxRunnable => {
                "RADDLE_MAX_RUNNABLE is not a number from 1 to 1048576; correct it"
            }
            Self::Quantum => {
                "RADDLE_QUANTUM_US is not 0 or a number from 50 to 1000000; correct it"
            }
            Self::Chaos => "RADDLE_CHAOS is not a number from 0 to 4294967295; correct it",
            Self::Policy => {
                "RADDLE_POLICY is not fifo, lifo, priority, fair, deadline or a path; correct it"
            }
            Self::Share => {
                "RADDLE_SHARE is not a list of name:GLOB=PERCENT and lib:GLOB=PERCENT of 100 at \
                 most, or RADDLE_POLICY is not fair; correct it"
            }
            Self::Carriers => "RADDLE_CARRIERS is not a number from 1 to 1024; correct it",
            Self::Patching(refusal) => return write!(f, "{refusal}"),
        })
    }
}

/// What ld.so calls.
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
    // The main thread's stack may be limited to a few pages.
    let address = (&raw const environment).expose_provenance();
    if !own_stack::call(set_up, address) {
        set_up(address);
    }
}

/// Takes the process over; `environment` is the address of one.
extern "C" fn set_up(environment: usize) {
    // SAFETY: the constructor's, which waits.
    let environment = unsafe { &*core::ptr::with_exposed_provenance::<Environment>(environment) };
    let verbose = environment.is_verbose();
    let taken = take_over(environment);
    if taken.is_ok() {
        interface::set_up();
    }
    match taken {
        Ok(report) if verbose => say(format_args!(
            "threads are green: {} of libc's {} system call sites lead to the runtime",
            report.patched, report.sites
        )),
        Ok(_) => {}
        Err(why) if verbose => say(format_args!("runs on kernel threads: {why}")),
        Err(_) => {}
    }
}

fn say(text: fmt::Arguments<'_>) {
    let mut line = Line::new();
    let _ = writeln!(line, "raddle: {text}");
    raddle_sys::write_stderr(line.bytes());
}

/// Quanta that can be asked for, in microseconds.
const QUANTUM_US: core::ops::RangeInclusive<u32> = 50..=1_000_000;

fn take_over(environment: &Environment) -> Result<Report, Why> {
    let map = link_map(environment).ok_or(Why::NoLinkMap)?;
    let libc = find(map, b"libc.so.6").ok_or(Why::NoGlibc)?;
    // First, because the symbol layer calls these whatever is decided.
    // SAFETY: entries of ld.so's list.
    unsafe { original::look_up(libc) };
    if environment.auxiliary(AT_HWCAP2) & FSGSBASE == 0 {
        return Err(Why::NoFsgsbase);
    }
    if environment.auxiliary(AT_SECURE) != 0 {
        return Err(Why::Secure);
    }
    if !is_single_threaded() {
        return Err(Why::Threads);
    }
    if is_go(environment) {
        return Err(Why::GoProgram);
    }
    check_watchers(environment, map)?;
    if original::CREATE.get() == 0 || original::COND_CLOCKWAIT.get() == 0 {
        return Err(Why::OldGlibc); // before 2.34 they were in libpthread
    }
    // SAFETY: libc's entry.
    if unsafe { minor_version(libc) }.is_none_or(|minor| minor > NEWEST_MINOR) {
        return Err(Why::NewGlibc);
    }
    // SAFETY: libc's functions were looked up.
    if !unsafe { symbols::learn_condvar() } {
        return Err(Why::NewGlibc);
    }
    prepare(environment, map)?;
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
    // SAFETY: the list begins with the program.
    if unsafe { watchers::is_tracer(map) } {
        return Err(Why::Tracer);
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
    if let Some(rules) = environment.get(b"RADDLE_EXCLUDE")
        && !rules.is_empty()
    {
        exclusion::set_rules(rules);
    }
    original::remember(map, environment.auxiliary(AT_EXECFN));
    if environment
        .get(raddle_interface::EXPLICIT.to_bytes())
        .is_some()
    {
        ENGINE.set_explicit();
    }
    let carriers = carriers(environment)?;
    chaos::set_seed(seed(environment)?);
    ENGINE.set_quantum_ns(quantum_ns(environment)?);
    let threads = limit(environment, b"RADDLE_MAX_THREADS", Why::MaxThreads)?;
    ENGINE.threads.set_limit(threads as usize);
    let runnable = limit(environment, b"RADDLE_MAX_RUNNABLE", Why::MaxRunnable)?;
    ENGINE.set_max_runnable(runnable);
    static HOOKS: Hooks = Hooks {
        carrier_starts: threads::carrier_starts,
        thread_exited: threads::exited,
        route_signals: signal::route,
    };
    policy::choose(environment).map_err(|wrong| match wrong {
        Wrong::Policy => Why::Policy,
        Wrong::Share => Why::Share,
    })?;
    // SAFETY: the only thread, once; FSGSBASE was checked.
    unsafe { ENGINE.init(carriers, environment.auxiliary(AT_SYSINFO_EHDR), &HOOKS) }
        .map_err(|_| Why::NoMemory)?;
    policy::plug_in(environment, map);
    let main = Carrier::current().thread();
    shares::named(main, &main.name());
    process::init(environment.is_verbose()).map_err(|_| Why::NoMemory)
}

/// How many carriers are asked for; 0 for as many as CPUs.
fn carriers(environment: &Environment) -> Result<u32, Why> {
    match environment.get(b"RADDLE_CARRIERS") {
        None | Some(b"") => Ok(0),
        Some(_) => environment
            .number(b"RADDLE_CARRIERS")
            .filter(|n| (1..=MAX_WANTED).contains(n))
            .ok_or(Why::Carriers),
    }
}

/// The seed of chaos; 0 for none.
fn seed(environment: &Environment) -> Result<u32, Why> {
    match environment.get(b"RADDLE_CHAOS") {
        None | Some(b"") => Ok(0),
        Some(_) => environment.number(b"RADDLE_CHAOS").ok_or(Why::Chaos),
    }
}

/// How many green threads there may be at a time, by this variable; 0 for no limit.
fn limit(environment: &Environment, name: &[u8], why: Why) -> Result<u32, Why> {
    match environment.get(name) {
        None | Some(b"") => Ok(0),
        Some(_) => environment
            .number(name)
            .filter(|n| (1..=MAX_THREADS as u32).contains(n))
            .ok_or(why),
    }
}

fn quantum_ns(environment: &Environment) -> Result<u64, Why> {
    match environment.get(b"RADDLE_QUANTUM_US") {
        None | Some(b"") if chaos::is_on() => Ok(chaos::QUANTUM_NS),
        None | Some(b"") => Ok(QUANTUM_NS),
        Some(b"0") => Ok(u64::MAX),
        Some(_) => environment
            .number(b"RADDLE_QUANTUM_US")
            .filter(|us| QUANTUM_US.contains(us))
            .map(|us| u64::from(us) * 1000)
            .ok_or(Why::Quantum),
    }
}

fn patch_all(environment: &Environment, map: &LinkMap, libc: &LinkMap) -> Result<Report, Why> {
    // SAFETY: libc's entry.
    unsafe { memory_functions::know(libc) };
    let report = patch(libc).map_err(Why::Patching)?;
    // SAFETY: libc's entry, and its headers, which are loaded as its entry says.
    unsafe {
        let image = Image::at(libc.base, Image::ANY_SIZE).map_err(Why::Patching)?;
        let (from, to) = image.text_range();
        credentials::know_libc(from, to, original::symbol(libc, c"syscall"));
    }
    // SAFETY: entries of ld.so's list.
    unsafe { withdraw_rseq(map) };
    watch_loading(map);
    patch_program(environment, map);
    let own = (&raw const __ehdr_start).addr();
    let vdso = environment.auxiliary(AT_SYSINFO_EHDR);
    let mut next = after(map);
    while let Some(object) = next {
        next = after(object);
        if ![libc.base, own, vdso].contains(&object.base) {
            let _ = patch(object); // what can't be patched makes its calls in the kernel
        }
    }
    Ok(report)
}

/// Patches the program's own text, unless it is linked to fixed addresses: jump tables can't be
/// told from data then.
fn patch_program(environment: &Environment, map: &LinkMap) {
    let headers = environment.auxiliary(AT_PHDR);
    if map.base == 0 || headers & !(mem::PAGE_SIZE - 1) != map.base {
        return;
    }
    // SAFETY: the kernel mapped the program with its ELF header in the page of its program headers;
    // one thread exists, and nothing of the program's text is being executed.
    unsafe {
        if let Ok(image) = Image::at(map.base, Image::ANY_SIZE) {
            let _ = patch_image(&image.that_stays(), Some(c"/proc/self/exe"));
        }
    }
}

/// From now on libraries are patched when they are loaded.
fn watch_loading(map: &LinkMap) {
    let Some(ldso) = find(map, b"ld-linux-x86-64.so.2") else {
        return;
    };
    // SAFETY: an entry of ld.so's list.
    if let Ok(image) = unsafe { Image::at(ldso.base, Image::ANY_SIZE) } {
        let (from, to) = image.text_range();
        let hooks = loading::Hooks {
            loaded: late::loaded,
            unmapped: late::unmapped,
        };
        loading::watch(from, to, hooks);
    }
}

fn patch(object: &LinkMap) -> Result<Report, Refusal> {
    // SAFETY: a shared library of ld.so's list begins with its ELF header; one thread exists.
    unsafe {
        let image = Image::at(object.base, Image::ANY_SIZE)?;
        let path = (!object.name.is_null()).then(|| CStr::from_ptr(object.name));
        patch_image(&image, path)
    }
}

/// Patches a library that ld.so has mapped, and says where its text is.
///
/// # Safety
/// Its header is at `base`, all segments are mapped, and nobody executes its text.
pub unsafe fn patch_late(base: usize) -> Result<(Report, (usize, usize)), Refusal> {
    // SAFETY: the caller's promise.
    unsafe {
        let image = Image::at(base, Image::ANY_SIZE)?;
        if image.has_text_relocations() {
            return Err(Refusal::NotRelocatable);
        }
        Ok((patch_image(&image, None)?, image.text_range()))
    }
}

/// # Safety
/// Nobody executes the image's text.
unsafe fn patch_image(image: &Image, path: Option<&CStr>) -> Result<Report, Refusal> {
    let targets = Targets {
        plain: boundary::raddle_entry_plain as *const () as usize,
        vector: boundary::raddle_entry_vector as *const () as usize,
        clone_before: boundary::raddle_entry_clone_before as *const () as usize,
        plain_clone_before: boundary::raddle_entry_plain_clone_before as *const () as usize,
        clone_after: boundary::raddle_entry_clone_after as *const () as usize,
    };
    let mut scratch = [Site::EMPTY; MAX_SITES];
    // SAFETY: the caller's promise; the targets are the boundary's entries, which keep theirs.
    unsafe {
        let plan = plan(image, &calls::wanted(), &mut scratch)?;
        apply(image, &plan, &targets, &Linux, path)
    }
}

/// Takes the kernel's rseq registration of the main thread back: it would go on writing the CPU of
/// carrier 0 while the thread runs on another. Then says what glibc says where there is no rseq:
/// "registration failed" in the area, which new threads inherit, and a size of 0.
///
/// # Safety
/// `map` must be ld.so's list.
unsafe fn withdraw_rseq(map: &LinkMap) {
    const UNREGISTER: usize = 1;
    const SIGNATURE: usize = 0x5305_3053;
    const REGISTRATION_FAILED: u32 = -2i32 as u32;
    let Some(ldso) = find(map, b"ld-linux-x86-64.so.2") else {
        return;
    };
    // SAFETY: an entry of ld.so's list; the symbols are of these types since glibc 2.35. The size
    // lies in memory that ld.so has protected after its relocation; cpu_id is the second word.
    unsafe {
        let (offset, size) = (
            original::symbol(ldso, c"__rseq_offset"),
            original::symbol(ldso, c"__rseq_size"),
        );
        if offset == 0 || size == 0 || *(size as *const u32) == 0 {
            return;
        }
        let area = (raddle_context::fs_base() as i64 + *(offset as *const i64)) as usize;
        let len = (*(size as *const u32)).max(32);
        if is_err(sys!(nr::__NR_rseq, area, len, UNREGISTER, SIGNATURE)) {
            return;
        }
        with_exposed_provenance_mut::<u32>(area + 4).write_volatile(REGISTRATION_FAILED);
        let page = with_exposed_provenance_mut::<u8>(size & !(mem::PAGE_SIZE - 1));
        if mem::protect(page, mem::PAGE_SIZE, READ | WRITE).is_ok() {
            with_exposed_provenance_mut::<u32>(size).write_volatile(0);
            let _ = mem::protect(page, mem::PAGE_SIZE, READ);
        }
    }
}

fn is_single_threaded() -> bool {
    const LINKS: usize = 2; // st_nlink is the third word of struct stat
    let mut stat = [0u64; 18];
    // SAFETY: a zero-terminated path and a live structure.
    let result = unsafe {
        sys!(
            nr::__NR_stat,
            c"/proc/self/task".as_ptr(),
            stat.as_mut_ptr()
        )
    };
    // A directory has a link of its own, one from above and one from each folder in it.
    is_err(result) || stat[LINKS] <= 3
}

fn after(object: &LinkMap) -> Option<&LinkMap> {
    // SAFETY: the list is null-terminated.
    unsafe { object.next.as_ref() }
}

fn find<'a>(map: &'a LinkMap, name: &[u8]) -> Option<&'a LinkMap> {
    let mut next = Some(map);
    while let Some(object) = next {
        if !object.name.is_null() {
            // SAFETY: a string of ld.so's.
            let path = unsafe { CStr::from_ptr(object.name) }.to_bytes();
            if path.rsplit(|&b| b == b'/').next() == Some(name) {
                return Some(object);
            }
        }
        next = after(object);
    }
    None
}

/// The program's own headers.
struct Headers {
    at: usize,
    count: usize,
    bias: usize,
}

impl Headers {
    const SIZE: usize = 56;

    fn of(environment: &Environment) -> Option<Self> {
        const PT_PHDR: u32 = 6;
        let (at, count) = (
            environment.auxiliary(AT_PHDR),
            environment.auxiliary(AT_PHNUM),
        );
        if at == 0 {
            return None;
        }
        let mut headers = Self { at, count, bias: 0 };
        headers.bias = headers.find(PT_PHDR).map_or(0, |(address, _)| at - address);
        Some(headers)
    }

    /// Address (biased) and size in memory of the first segment of a kind.
    fn find(&self, kind: u32) -> Option<(usize, usize)> {
        (0..self.count)
            .map(|i| self.at + i * Self::SIZE)
            .find_map(|header| {
                // SAFETY: the kernel says where the program's headers are.
                unsafe {
                    (*(header as *const u32) == kind).then(|| {
                        let address = *((header + 16) as *const usize) + self.bias;
                        (address, *((header + 40) as *const usize))
                    })
                }
            })
    }
}

/// The head of ld.so's list, through the main program's `DT_DEBUG`.
fn link_map<'a>(environment: &Environment) -> Option<&'a LinkMap> {
    const PT_DYNAMIC: u32 = 2;
    const DT_DEBUG: usize = 21;
    let (dynamic, _) = Headers::of(environment)?.find(PT_DYNAMIC)?;
    let mut entry = dynamic as *const [usize; 2];
    // SAFETY: the program's dynamic section ends with a zero entry; DT_DEBUG points at struct
    // r_debug: a version, then the list.
    unsafe {
        while (*entry)[0] != 0 {
            if (*entry)[0] == DT_DEBUG && (*entry)[1] != 0 {
                return (*((*entry)[1] as *const *const LinkMap).add(1)).as_ref();
            }
            entry = entry.add(1);
        }
    }
    None
}

/// True if a note of the program says that Go's linker made it.
fn is_go(environment: &Environment) -> bool {
    const PT_NOTE: u32 = 4;
    let Some((mut at, mut left)) = Headers::of(environment).and_then(|h| h.find(PT_NOTE)) else {
        return false;
    };
    // SAFETY: the program's notes, which are mapped: name length, value length, kind, name, value.
    unsafe {
        while left >= 12 {
            let [name, value] = *(at as *const [u32; 2]);
            let size = 12 + name.next_multiple_of(4) as usize + value.next_multiple_of(4) as usize;
            if name == 4 && *((at + 12) as *const [u8; 4]) == *b"Go\0\0" {
                return true;
            }
            at += size;
            left = left.saturating_sub(size);
        }
    }
    false
}
