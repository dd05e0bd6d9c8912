//! The surroundings of a case at its start: memory, files, handlers, a process group of its own.

use std::cell::Cell;
use std::ffi::CString;

use super::board::names;
use super::shared::{Line, Slot};
use super::{descriptors, sites, system};
use crate::case::{
    BASE, Case, FILES, FIRST_CHILD, Kind, MAIN, PAGE_BYTES, PATHS, Page, Place, Value, name_place,
};
use crate::generate::objects;

const PAGE: usize = PAGE_BYTES as usize;

thread_local! {
    /// The agent that runs on this thread.
    static AGENT: Cell<u8> = const { Cell::new(MAIN) };
}

/// The agent that runs on the calling thread.
pub(super) fn agent() -> u8 {
    AGENT.get()
}

pub(super) fn become_agent(agent: u8) {
    AGENT.set(agent);
}

/// The slot of the running case; handlers write there.
static SLOT: std::sync::OnceLock<&'static Slot> = std::sync::OnceLock::new();

pub(super) fn slot() -> &'static Slot {
    SLOT.get().expect("a case is running")
}

/// Prepares the process for its case.
pub(super) fn prepare(case: &Case, slot: &'static Slot) {
    let _ = SLOT.set(slot);
    map_memory(needs_files(case));
    if needs_files(case) {
        make_files();
        map_file();
    }
    fill_names();
    init_objects();
    make_queues(case, slot);
    descriptors::make(case, slot);
    limit();
    // The standard library gave the main thread an alternate stack.
    let none = [0, libc::SS_DISABLE as usize, 0];
    system(
        libc::SYS_sigaltstack,
        [none.as_ptr().expose_provenance(), 0, 0, 0, 0, 0],
    );
    for handler in &case.handlers {
        install(handler.signal, handler.flags, handler.ignore);
    }
    // The bits of signals that can't be blocked are ignored.
    set_mask(case.blocked);
}

fn map(page: u8, pages: u8, protection: i32, flags: i32, descriptor: i32) {
    let at = std::ptr::with_exposed_provenance_mut((BASE + u64::from(page) * PAGE_BYTES) as usize);
    let flags = flags | libc::MAP_FIXED;
    let bytes = usize::from(pages) * PAGE;
    // SAFETY: the case's own addresses, where nothing else is.
    let mapped = unsafe { libc::mmap(at, bytes, protection, flags, descriptor, 0) };
    assert!(mapped == at, "the case's memory can't be mapped");
}

fn map_memory(has_files: bool) {
    const RW: i32 = libc::PROT_READ | libc::PROT_WRITE;
    const ANONYMOUS: i32 = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    map(0, Page::HOLE, RW, ANONYMOUS, -1);
    map(Page::NO_ACCESS, 1, libc::PROT_NONE, ANONYMOUS, -1);
    map(
        Page::SHARED,
        1,
        RW,
        libc::MAP_SHARED | libc::MAP_ANONYMOUS,
        -1,
    );
    if !has_files {
        map(Page::OF_FILE, 1, RW, ANONYMOUS, -1);
        map(Page::BEHIND_FILE, 1, libc::PROT_NONE, ANONYMOUS, -1);
    }
    map(Page::LAST, 1, RW, ANONYMOUS, -1);
    map(Page::CHANGING, Page::CHANGING_PAGES, RW, ANONYMOUS, -1);
    map(
        Page::SIGNAL_STACK,
        Page::SIGNAL_STACK_PAGES,
        RW,
        ANONYMOUS,
        -1,
    );
    map(Page::STACK_END - 2, 2, RW, ANONYMOUS, -1);
    for page in [Page::READ_ONLY, Page::BUFFERS, Page::LAST, Page::CHANGING] {
        fill_pattern(page);
    }
    let read_only = pointer(Place::new(Page::READ_ONLY, 0));
    // SAFETY: the case's own page.
    unsafe { libc::mprotect(read_only.cast(), PAGE, libc::PROT_READ) };
}

fn fill_pattern(page: u8) {
    let to = pointer(Place::new(page, 0));
    for index in 0..PAGE {
        // SAFETY: a page of the case's that was just mapped.
        unsafe { to.wrapping_add(index).write((index % 251) as u8) };
    }
}

/// A pointer to a place in mapped memory.
pub(super) fn pointer(place: Place) -> *mut u8 {
    std::ptr::with_exposed_provenance_mut(place.address() as usize)
}

fn store(place: Place, bytes: &[u8]) {
    // SAFETY: pages that are mapped now; the case hasn't begun.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), pointer(place), bytes.len()) };
}

fn fill_names() {
    for (index, name) in FILES.iter().chain(PATHS).enumerate() {
        store(name_place(index), name.as_bytes());
    }
}

/// Returns true if the case may look at a file of its folder.
fn needs_files(case: &Case) -> bool {
    const PAGES: [u8; 3] = [Page::NAMES, Page::OF_FILE, Page::BEHIND_FILE];
    let of_files = |kind| {
        matches!(
            kind,
            Kind::File
                | Kind::ReadOnly
                | Kind::PathOnly
                | Kind::Folder
                | Kind::Fifo
                | Kind::Inotify
        )
    };
    let at_files =
        |value: &Value| matches!(value, Value::Place(place) if PAGES.contains(&place.page));
    let stored = case.steps.iter().flat_map(|step| &step.puts);
    case.resources
        .iter()
        .any(|resource| of_files(resource.kind))
        || case.calls().any(|call| call.arguments.iter().any(at_files))
        || stored.into_iter().any(|put| match &put.data {
            crate::case::Data::Number(_, value) => at_files(value),
            _ => false,
        })
}

/// Makes the files of [`FILES`] in the current folder, which is the case's own.
fn make_files() {
    let text: String = ('a'..='z').cycle().take(300).collect();
    let write = |name: &str, text: &str| {
        std::fs::write(name, text).unwrap_or_else(|error| panic!("{name}: {error}"));
    };
    write("file", &text);
    write("short", "short");
    std::fs::create_dir("folder").expect("the case's folder is new");
    write("folder/inner", "inner");
    let link = |to: &str, name: &str| std::os::unix::fs::symlink(to, name).expect("a new link");
    link("file", "link");
    link("nowhere", "dangling");
    link("loop", "loop");
    let program = std::env::current_exe().expect("/proc says it");
    std::os::unix::fs::symlink(program, "program").expect("a new link");
    // SAFETY: a live string.
    unsafe { libc::mkfifo(c"fifo".as_ptr(), 0o600) };
}

/// Two pages of a file of one.
fn map_file() {
    std::fs::write("mapped", [0; PAGE]).expect("the case's folder is writable");
    let path = CString::new("mapped").unwrap_or_default();
    // SAFETY: a live string; the mapping keeps the file.
    unsafe {
        let descriptor = libc::open(path.as_ptr(), libc::O_RDWR);
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        map(Page::OF_FILE, 2, protection, libc::MAP_PRIVATE, descriptor);
        libc::close(descriptor);
        libc::unlink(path.as_ptr());
    }
}

/// Initializes locks, condition variables and semaphores.
fn init_objects() {
    const KINDS: [i32; 4] = [
        libc::PTHREAD_MUTEX_NORMAL,
        libc::PTHREAD_MUTEX_RECURSIVE,
        libc::PTHREAD_MUTEX_ERRORCHECK,
        3, // adaptive
    ];
    let at = |offset| pointer(Place::new(Page::WORDS, offset));
    // SAFETY: each object has its room in a page that is mapped.
    unsafe {
        for (index, &offset) in objects::MUTEXES.iter().enumerate() {
            let mut attributes = std::mem::zeroed();
            libc::pthread_mutexattr_init(&raw mut attributes);
            match index {
                0..4 => {
                    libc::pthread_mutexattr_settype(&raw mut attributes, KINDS[index]);
                }
                4 => {
                    libc::pthread_mutexattr_setprotocol(&raw mut attributes, 1);
                }
                5 => {
                    libc::pthread_mutexattr_setpshared(&raw mut attributes, 1);
                }
                _ => {
                    libc::pthread_mutexattr_setrobust(&raw mut attributes, 1);
                }
            }
            libc::pthread_mutex_init(at(offset).cast(), &raw const attributes);
        }
        for (index, &offset) in objects::CONDITIONS.iter().enumerate() {
            let mut attributes = std::mem::zeroed();
            libc::pthread_condattr_init(&raw mut attributes);
            match index {
                1 => {
                    libc::pthread_condattr_setclock(&raw mut attributes, libc::CLOCK_MONOTONIC);
                }
                2 => {
                    libc::pthread_condattr_setpshared(&raw mut attributes, 1);
                }
                _ => {}
            }
            libc::pthread_cond_init(at(offset).cast(), &raw const attributes);
        }
        for (index, &offset) in objects::SEMAPHORES.iter().enumerate() {
            let (shared, value) = (i32::from(index == 2), u32::from(index == 1));
            libc::sem_init(at(offset).cast(), shared, value);
        }
        for &offset in &objects::RWLOCKS {
            libc::pthread_rwlock_init(at(offset).cast(), std::ptr::null());
        }
        libc::pthread_barrier_init(at(objects::BARRIER).cast(), std::ptr::null(), 2);
        libc::pthread_spin_init(at(objects::SPIN_LOCK).cast(), 0);
    }
}

/// Makes the System V objects that the case names; the server removes them.
fn make_queues(case: &Case, slot: &Slot) {
    use std::sync::atomic::Ordering::Relaxed;
    let names = |wanted| case.calls().any(|call| call.arguments.contains(&wanted));
    // SAFETY: plain calls.
    unsafe {
        if names(Value::Queue) {
            slot.queue
                .store(libc::msgget(libc::IPC_PRIVATE, 0o600) + 1, Relaxed);
        }
        if names(Value::Semaphores) {
            slot.semaphores
                .store(libc::semget(libc::IPC_PRIVATE, 2, 0o600) + 1, Relaxed);
        }
    }
}

/// Limits a case's use of resources. Memory is not limited: the runtime reserves much of it.
fn limit() {
    let set = |resource, most| {
        let limit = libc::rlimit {
            rlim_cur: most,
            rlim_max: most,
        };
        // SAFETY: a live structure.
        unsafe { libc::setrlimit(resource, &raw const limit) };
    };
    set(libc::RLIMIT_CORE, 0);
    set(libc::RLIMIT_FSIZE, 1 << 20);
    set(libc::RLIMIT_CPU, 10);
    set(libc::RLIMIT_MEMLOCK, 1 << 20);
    // SAFETY: a plain call.
    unsafe { libc::setpgid(0, 0) };
}

/// The kernel's `struct sigaction`.
#[repr(C)]
struct Action {
    handler: usize,
    flags: u64,
    restorer: usize,
    mask: u64,
}

fn install(signal: u8, flags: u64, ignore: bool) {
    const SIGINFO: u64 = 4;
    const RESTORER: u64 = 0x0400_0000;
    let action = Action {
        handler: if ignore {
            libc::SIG_IGN
        } else {
            handler_address()
        },
        flags: flags | SIGINFO | RESTORER,
        restorer: sites::restorer(),
        mask: 0,
    };
    let address = (&raw const action).expose_provenance();
    system(libc::SYS_rt_sigaction, [signal.into(), address, 0, 8, 0, 0]);
}

/// Blocks every signal but those that libc uses itself.
pub(super) fn block_signals() {
    const CANCEL: u64 = 1 << 31;
    const SET_IDS: u64 = 1 << 32;
    set_mask(!(CANCEL | SET_IDS));
}

pub(super) fn set_mask(mask: u64) {
    let address = (&raw const mask).expose_provenance();
    system(libc::SYS_rt_sigprocmask, [2, address, 0, 8, 0, 0]);
}

/// The address of the handler of all signals.
pub(super) fn handler_address() -> usize {
    (on_signal as *const ()).addr()
}

/// Writes its arguments to the agent's trace, and changes nothing.
extern "C" fn on_signal(
    signal: i32,
    information: *const libc::siginfo_t,
    context: *const libc::ucontext_t,
) {
    // SAFETY: a handler with SA_SIGINFO gets both.
    let (information, context) = unsafe { (&*information, &*context) };
    // SAFETY: libc's set is larger than the kernel's.
    let mask = unsafe { (&raw const context.uc_sigmask).cast::<u64>().read() };
    // SAFETY: any bytes are numbers, whatever the signal's code.
    let (pid, value) = unsafe {
        let words = (&raw const *information).cast::<i32>();
        (
            words.wrapping_add(4).read(),
            words.wrapping_add(6).cast::<i64>().read_unaligned(),
        )
    };
    let here = (&raw const signal).addr() as u64;
    let stack = BASE + u64::from(Page::SIGNAL_STACK) * PAGE_BYTES;
    let on_stack =
        (stack..stack + u64::from(Page::SIGNAL_STACK_PAGES) * PAGE_BYTES).contains(&here);
    let line = Line::new().text("signal ").number(signal.into());
    let line = line.text(" code ").number(information.si_code.into());
    let line = match information.si_code {
        // kill, tgkill, sigqueue and similar codes: the sender.
        libc::SI_USER | libc::SI_TKILL | libc::SI_QUEUE => {
            let names = names();
            let line = match names.of_id(pid.cast_unsigned()) {
                Some(name) => line.text(" from ").text(name),
                None => line.text(" from ").number(pid.into()),
            };
            match information.si_code {
                libc::SI_QUEUE => line.text(" value ").hex(value.cast_unsigned()),
                _ => line,
            }
        }
        _ => line,
    };
    let line = line.text(" mask ").hex(mask);
    let line = if on_stack {
        line.text(" on its stack")
    } else {
        line
    };
    line.write(slot(), agent());
    // A fault would come again after the handler's return.
    if signal == libc::SIGSEGV && information.si_code > 0 {
        // SAFETY: ends the process.
        unsafe { libc::_exit(99) };
    }
}

/// The agent is a child of the case.
pub(super) fn is_child(agent: u8) -> bool {
    agent >= FIRST_CHILD
}
