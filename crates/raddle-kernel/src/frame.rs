//! A system call of the program, and what a handler decides about it.
//!
//! The entries ([`crate::entry`]) make a [`Frame`] of the registers that they save; a handler
//! returns an [`Outcome`]. A call that passes is executed by the entry itself, at
//! `raddle_pass_begin`: the signal handler asks here whether it has interrupted that code.

use crate::user::User;
use raddle_arch::{CallFrame, EntryReturns, RED_ZONE, WideState};
use raddle_sys::abi::SigContext;
use raddle_sys::{err, errno, nr, syscall6};

/// A system call of the program.
#[repr(transparent)]
pub struct Frame(CallFrame);

impl Frame {
    /// Returns the frame of a call.
    pub fn of(call: &CallFrame) -> &Self {
        let frame = core::ptr::from_ref(call).cast::<Self>();
        // SAFETY: a transparent wrapper of what is borrowed for as long.
        unsafe { &*frame }
    }

    /// The number.
    #[inline(always)]
    pub fn number(&self) -> u32 {
        self.0.number()
    }

    /// Argument `index` (0 to 5).
    #[inline(always)]
    pub fn arg(&self, index: usize) -> usize {
        self.args()[index]
    }

    /// Argument `index` where the kernel takes an `int` or an `unsigned int`: what lies above its
    /// 32 bits is ignored.
    #[inline(always)]
    pub fn word(&self, index: usize) -> u32 {
        self.args()[index] as u32
    }

    /// Argument `index` as an address in the program's memory.
    #[inline(always)]
    pub fn user<T>(&self, index: usize) -> User<T> {
        User::at(self.args()[index])
    }

    /// All arguments.
    #[inline(always)]
    pub fn args(&self) -> [usize; 6] {
        self.0.args()
    }

    /// The address behind the system call's site, which the stub pushed.
    pub fn site(&self) -> usize {
        // SAFETY: the stub's word, below everything of the program's.
        unsafe { *self.pushed() }
    }

    /// The program's stack pointer at the call.
    pub fn program_stack(&self) -> *const usize {
        self.pushed().wrapping_add(1).wrapping_byte_add(RED_ZONE)
    }

    /// Where the stub pushed the site.
    fn pushed(&self) -> *const usize {
        // SAFETY: frames are made by the entries alone, on the program's stack.
        unsafe { self.0.pushed_site(&entry_returns()) }
    }

    /// Executes the call as it is, here: for handlers that need its result.
    ///
    /// # Safety
    /// The program asked for it; the handler must not rely on memory that the call changes.
    pub unsafe fn raw(&self) -> isize {
        // SAFETY: the caller's promise.
        unsafe { syscall6(self.number(), self.args()) }
    }
}

/// What a handler decided.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Outcome {
    value: isize,
    pass: u64,
}

impl Outcome {
    /// Let the kernel do it, with the program's own arguments.
    pub const PASS: Self = Self { value: 0, pass: 1 };

    /// As [`Outcome::PASS`], of a call that may wait for long: it is for a helper, where there is
    /// one ([`crate::fd::helped::finish`]).
    pub const KERNEL: Self = Self { value: 1, pass: 1 };

    /// The call's result.
    #[inline(always)]
    pub const fn of(value: isize) -> Self {
        Self { value, pass: 0 }
    }

    /// Returns true if the kernel is to do it.
    pub const fn is_pass(self) -> bool {
        self.pass != 0
    }

    /// Returns true if the kernel is to do it and may wait for long.
    pub const fn is_for_helper(self) -> bool {
        self.pass == Self::KERNEL.pass && self.value == Self::KERNEL.value
    }

    /// The result, unless the kernel is to do it.
    pub const fn value(self) -> Option<isize> {
        if self.is_pass() {
            None
        } else {
            Some(self.value)
        }
    }

    /// Returns true if the result is `value`.
    pub const fn is_value(self, value: isize) -> bool {
        !self.is_pass() && self.value == value
    }
}

/// A handler of one system call number.
pub type Handler = extern "C" fn(&Frame) -> Outcome;

unsafe extern "C" {
    /// For sites where no vector register holds anything.
    pub fn raddle_entry_plain();
    /// For sites where xmm0 to xmm15 may hold something.
    pub fn raddle_entry_narrow();
    /// For other sites.
    pub fn raddle_entry_vector();
    /// Before a clone-like call.
    pub fn raddle_entry_clone_before();
    /// The same, where xmm0 to xmm15 may hold something, and where no vector register does.
    pub fn raddle_entry_narrow_clone_before();
    pub fn raddle_entry_plain_clone_before();
    /// After a raw clone-like call, in parent and child.
    pub fn raddle_entry_clone_after();
    /// Where a new green thread starts: behind the stub's call, as the child of a clone.
    pub fn raddle_child_start();
    static raddle_pass_check: u8;
    static raddle_pass_begin: u8;
    static raddle_pass_end: u8;
    static raddle_narrow_return: u8;
    static raddle_vector_return: u8;
    static raddle_after_return: u8;
    static raddle_wide_return: u8;
    static raddle_clone_return: u8;
    static raddle_narrow_clone_return: u8;
    static raddle_plain_clone_return: u8;
}

/// The vector state that entries save where it is in use. Nothing before the first thread: a call
/// of the only thread returns on the CPU where it began.
pub static WIDE: WideState = WideState::new();

/// Returns where entries that call another one go on.
pub fn entry_returns() -> EntryReturns {
    let clone = (&raw const raddle_clone_return).addr();
    let narrow_clone = (&raw const raddle_narrow_clone_return).addr();
    let plain_clone = (&raw const raddle_plain_clone_return).addr();
    let vector = (&raw const raddle_vector_return).addr();
    let narrow = (&raw const raddle_narrow_return).addr();
    let after = (&raw const raddle_after_return).addr();
    let wide = (&raw const raddle_wide_return).addr();
    EntryReturns {
        vector: [narrow, vector, wide, after],
        direct: [clone, narrow_clone, plain_clone],
    }
}

/// Returns true if `address` is the passing system call of an entry, or its last look whether a
/// signal came.
pub fn is_pass(address: usize) -> bool {
    let (check, end) = (&raw const raddle_pass_check, &raw const raddle_pass_end);
    (check.addr()..=end.addr()).contains(&address)
}

/// Returns the end of the passing system call that a signal has interrupted, if the kernel is about
/// to restart the call: the kernel has put the instruction pointer back. A call that hasn't begun
/// has an end of zero; the instruction notes its own end.
pub fn interrupted_pass(registers: &SigContext) -> Option<usize> {
    let (begin, end) = (&raw const raddle_pass_begin, &raw const raddle_pass_end);
    let is_restarting =
        begin.addr() == registers.instruction_pointer() && end.addr() == registers.syscall_end();
    is_restarting.then(|| end.addr())
}

/// Returns the address and the number with which an interrupted passing wait for a child begins
/// again. The kernel ends the wait with EINTR if the runtime's handler for the signal doesn't
/// restart calls: the poke's handler, and the one in the place of the program's. But the program's
/// handlers decide, if any runs; after one, the noted end is not the call's any more.
///
/// # Safety
/// The registers must be those of interrupted code on a program's stack.
pub unsafe fn interrupted_wait(registers: &SigContext) -> Option<(usize, u64)> {
    // SAFETY: the caller's promise.
    unsafe { interrupted_by_eintr(registers, &[nr::__NR_wait4, nr::__NR_waitid]) }
}

/// Returns the address and the number with which an interrupted passing `ioctl` begins again.
///
/// # Safety
/// As for [`interrupted_wait`].
pub unsafe fn interrupted_ioctl(registers: &SigContext) -> Option<(usize, u64)> {
    // SAFETY: the caller's promise.
    unsafe { interrupted_by_eintr(registers, &[nr::__NR_ioctl]) }
}

/// Returns the address and the number with which a passing call of these numbers begins again that
/// the kernel has ended with EINTR.
///
/// # Safety
/// As for [`interrupted_wait`].
unsafe fn interrupted_by_eintr(registers: &SigContext, numbers: &[u32]) -> Option<(usize, u64)> {
    let (begin, end) = (&raw const raddle_pass_begin, &raw const raddle_pass_end);
    let ends = [registers.instruction_pointer(), registers.syscall_end()] == [end.addr(); 2];
    if !ends || registers.syscall_result() != err(errno::EINTR) {
        return None;
    }
    // SAFETY: at this address the frame pointer is the entry's.
    let number = unsafe { registers.entry_call_number() };
    let is_one = numbers.iter().any(|&one| u64::from(one) == number);
    is_one.then(|| (begin.addr(), number))
}

/// Returns true if `address` is where a passing system call ends.
pub fn is_pass_end(address: usize) -> bool {
    pass_end() == address
}

/// Where a passing system call ends.
pub fn pass_end() -> usize {
    (&raw const raddle_pass_end).addr()
}
