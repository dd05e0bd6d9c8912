//! Unwinding through stubs: from an entry, by cancellation, and from every instruction.

use std::cell::UnsafeCell;
use std::collections::BTreeSet;
use std::ffi::c_void;
use std::sync::atomic::{AtomicUsize, Ordering};

use raddle_patch::stub::{find_site, range};

use super::{entries, patch_glibc};

const MAX_FRAMES: usize = 64;

unsafe extern "C" {
    fn backtrace(buffer: *mut *mut c_void, size: libc::c_int) -> libc::c_int;
    fn pthread_cancel(thread: libc::pthread_t) -> libc::c_int;
    fn pthread_setcanceltype(to: libc::c_int, from: *mut libc::c_int) -> libc::c_int;
}

/// Return addresses, innermost first. Memory that a signal handler may write.
struct Frames {
    addresses: UnsafeCell<[usize; MAX_FRAMES]>,
    count: AtomicUsize,
}

// SAFETY: only one thread and its signal handlers write it.
unsafe impl Sync for Frames {}

static FRAMES: Frames = Frames {
    addresses: UnsafeCell::new([0; MAX_FRAMES]),
    count: AtomicUsize::new(0),
};

impl Frames {
    /// Takes a stack trace, by libgcc's unwinder.
    fn take(&self) {
        // SAFETY: the buffer has `MAX_FRAMES` places.
        let count = unsafe { backtrace(self.addresses.get().cast(), MAX_FRAMES as libc::c_int) };
        self.count.store(count as usize, Ordering::SeqCst);
    }

    fn addresses(&self) -> Vec<usize> {
        // SAFETY: the thread that writes runs this, so no write goes on.
        let all = unsafe { &*self.addresses.get() };
        all[..self.count.load(Ordering::SeqCst)].to_vec()
    }
}

extern "C" fn take_frames() {
    FRAMES.take();
}

fn is_stub(address: usize) -> bool {
    let (first, end) = range();
    (first..end).contains(&address)
}

/// Checks that a trace goes from a stub to its site's function and on to `caller`.
fn check_trace(trace: &[usize], caller: usize) -> Result<(), String> {
    let describe = || format!("{trace:x?}, caller {caller:x}");
    let stub = trace.iter().position(|&address| is_stub(address));
    let stub = stub.ok_or_else(|| format!("no stub in {}", describe()))?;
    let site = find_site(trace[stub]).ok_or_else(|| format!("no site for {}", describe()))?;
    if trace.get(stub + 1) != Some(&site.window_end) {
        return Err(format!(
            "{site:x?} does not follow its stub in {}",
            describe()
        ));
    }
    let near = caller..caller + 4096;
    if !trace[stub + 2..]
        .iter()
        .any(|address| near.contains(address))
    {
        return Err(format!("the caller is missing in {}", describe()));
    }
    Ok(())
}

#[inline(never)]
fn calls_getppid() -> libc::pid_t {
    // SAFETY: it always succeeds.
    std::hint::black_box(unsafe { libc::getppid() })
}

/// A stack trace from inside an entry.
pub(crate) fn from_entry() {
    // The first call loads libgcc, which makes system calls of its own.
    FRAMES.take();
    patch_glibc();
    entries::HOOK.store(take_frames as *const () as u64, Ordering::SeqCst);
    entries::HOOKED.store(libc::SYS_getppid as u64, Ordering::SeqCst);
    let parent = calls_getppid();
    assert_eq!(parent, std::os::unix::process::parent_id() as libc::pid_t);
    assert_eq!(
        entries::HOOKED.load(Ordering::SeqCst),
        0,
        "the hook was not called"
    );
    check_trace(&FRAMES.addresses(), calls_getppid as *const () as usize).unwrap();
}

/// How often the unwinder reached the frame that called `read`.
static REACHED: AtomicUsize = AtomicUsize::new(0);

unsafe extern "C" {
    /// A thread that may be cancelled at any instruction: it reads a byte from the descriptor that
    /// is its argument. It is assembly so that no compiler decides how its frame is unwound.
    fn test_reading_thread(fd: *mut c_void) -> *mut c_void;
}

std::arch::global_asm!(
    ".pushsection .text.test_reading_thread, \"ax\", @progbits",
    "test_reading_thread:",
    ".cfi_startproc",
    ".cfi_personality 0x1b, {reached}",
    "push rbp",
    ".cfi_def_cfa_offset 16",
    ".cfi_offset rbp, -16",
    "mov rbp, rsp",
    ".cfi_def_cfa_register rbp",
    "push rdi",
    "push rdi",
    "mov edi, 1", // PTHREAD_CANCEL_ASYNCHRONOUS
    "xor esi, esi",
    "call [rip + {set_type}@GOTPCREL]",
    "mov rdi, [rbp - 8]",
    "lea rsi, [rbp - 16]",
    "mov edx, 1",
    "call [rip + {read}@GOTPCREL]",
    "leave",
    ".cfi_def_cfa rsp, 8",
    "ret",
    ".cfi_endproc",
    ".popsection",
    reached = sym reached,
    set_type = sym pthread_setcanceltype,
    read = sym libc::read,
);

/// A personality function, which the unwinder calls at a frame.
extern "C" fn reached(_: i32, _: i32, _: u64, _: *mut c_void, _: *mut c_void) -> i32 {
    const CONTINUE: i32 = 8;
    REACHED.fetch_add(1, Ordering::SeqCst);
    CONTINUE
}

/// Cancels a thread that blocks in a system call inside an entry. The unwinder starts in a signal
/// handler there, and passes the entry and the stub to reach the thread's own frames.
pub(crate) fn cancel() {
    patch_glibc();
    let mut ends = [0; 2];
    let mut thread = 0;
    // SAFETY: a pipe and a thread, used as documented.
    unsafe {
        assert_eq!(libc::pipe(ends.as_mut_ptr()), 0);
        let argument = ends[0] as usize as *mut c_void;
        let start: extern "C" fn(*mut c_void) -> *mut c_void =
            std::mem::transmute(test_reading_thread as *const ());
        let made = libc::pthread_create(&raw mut thread, std::ptr::null(), start, argument);
        assert_eq!(made, 0);
        wait_until_blocked();
        assert_eq!(pthread_cancel(thread), 0);
        let mut result = std::ptr::null_mut();
        assert_eq!(libc::pthread_join(thread, &raw mut result), 0);
        assert_eq!(result as isize, -1, "PTHREAD_CANCELED");
    }
    assert_eq!(
        REACHED.load(Ordering::SeqCst),
        1,
        "the unwinder stopped before"
    );
}

/// Waits until the other thread is in `read` (number 0).
fn wait_until_blocked() {
    let own = std::process::id().to_string();
    let is_reading = |task: std::io::Result<std::fs::DirEntry>| {
        let task = task.expect("an entry");
        let call = std::fs::read_to_string(task.path().join("syscall"));
        task.file_name() != *own && call.is_ok_and(|line| line.starts_with("0 "))
    };
    while !std::fs::read_dir("/proc/self/task")
        .expect("/proc")
        .any(is_reading)
    {
        std::thread::yield_now();
    }
}

static STEPPED: Steps = Steps {
    seen: UnsafeCell::new([0; 256]),
    count: AtomicUsize::new(0),
    bad: AtomicUsize::new(0),
};

/// Addresses in stubs at which a single step stopped, and how many traces were wrong.
struct Steps {
    seen: UnsafeCell<[usize; 256]>,
    count: AtomicUsize,
    bad: AtomicUsize,
}

// SAFETY: it is written by the signal handler of one thread.
unsafe impl Sync for Steps {}

/// The processor's trap flag: a signal after each instruction.
const TRAP_FLAG: i64 = 0x100;

extern "C" fn on_step(_: libc::c_int, _: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes the context of the interrupted code.
    let registers = unsafe { &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs };
    let rip = registers[libc::REG_RIP as usize] as usize;
    if !is_stub(rip) {
        return;
    }
    FRAMES.take();
    let trace = FRAMES.addresses();
    let inside = trace.iter().position(|&address| address == rip);
    let passed = inside.is_some_and(|at| check_trace(&trace[at..], caller()).is_ok());
    if !passed {
        STEPPED.bad.fetch_add(1, Ordering::SeqCst);
    }
    let index = STEPPED.count.fetch_add(1, Ordering::SeqCst);
    // SAFETY: one thread, and no other step interrupts its handler.
    unsafe { (&mut *STEPPED.seen.get())[index % 256] = rip };
}

fn caller() -> usize {
    steps_through as *const () as usize
}

/// Calls `function` with the trap flag set.
#[inline(never)]
fn steps_through(function: usize) -> u64 {
    let result;
    // SAFETY: the flag is cleared again; the function is one of libc's without arguments.
    unsafe {
        std::arch::asm!(
            "pushfq",
            "or qword ptr [rsp], {flag}",
            "popfq",
            "call {function}",
            "pushfq",
            "and qword ptr [rsp], {not_flag}",
            "popfq",
            flag = const TRAP_FLAG,
            not_flag = const !TRAP_FLAG,
            function = in(reg) function,
            out("rax") result,
            clobber_abi("C"),
        );
    }
    result
}

/// Steps through the stub of `getppid`, which has a constant number, and the stub of `syscall`,
/// which hasn't, and takes a trace at each instruction.
pub(crate) fn step() {
    FRAMES.take();
    patch_glibc();
    // SAFETY: the handler has the signature that SA_SIGINFO requires.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_step as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        assert_eq!(
            libc::sigaction(libc::SIGTRAP, &raw const action, std::ptr::null_mut()),
            0
        );
    }
    steps_through(libc::getppid as *const () as usize);
    let plain = distinct();
    steps_through(by_unknown_number as *const () as usize);
    let both = distinct();
    println!(
        "{} and {} instructions",
        plain.len(),
        both.len() - plain.len()
    );
    assert_eq!(STEPPED.bad.load(Ordering::SeqCst), 0, "wrong traces");
    assert!(plain.len() >= 7, "{plain:x?}");
    assert!(both.len() - plain.len() >= 14, "{both:x?}");
}

fn distinct() -> BTreeSet<usize> {
    let count = STEPPED.count.load(Ordering::SeqCst).min(256);
    // SAFETY: no step is going on.
    unsafe { (&*STEPPED.seen.get())[..count].iter().copied().collect() }
}

extern "C" fn by_unknown_number() -> libc::c_long {
    // SAFETY: a call without arguments.
    unsafe { libc::syscall(libc::SYS_getppid) }
}
