//! What a clone asks for: copied once, and checked as the kernel checks it (`kernel/fork.c`).
//!
//! A request for a thread is *plain* if it names nothing that the kernel keeps for each of its
//! threads: such a thread is green. Any other one (a directory or a table of descriptors of its
//! own, a namespace, a cgroup, a descriptor that names the thread) gets a kernel thread to itself,
//! which the kernel is asked for: the program gets the kernel's refusal.
//!
//! Refused with or without a kernel thread: a thread on its maker's stack, where the runtime's own
//! frames lie (no stack, CLONE_VFORK), and an id of the program's choice.

use crate::frame::Frame;
use crate::user::{self, USUAL_END, User};
use raddle_sys::abi::CloneArgs;
use raddle_sys::{err, errno, mem};

pub const CLONE_VM: u64 = raddle_sys::nr::CLONE_VM as u64;
const CLONE_FS: u64 = raddle_sys::nr::CLONE_FS as u64;
pub const CLONE_FILES: u64 = raddle_sys::nr::CLONE_FILES as u64;
pub const CLONE_SIGHAND: u64 = raddle_sys::nr::CLONE_SIGHAND as u64;
const CLONE_PIDFD: u64 = raddle_sys::nr::CLONE_PIDFD as u64;
const CLONE_PTRACE: u64 = raddle_sys::nr::CLONE_PTRACE as u64;
const CLONE_VFORK: u64 = raddle_sys::nr::CLONE_VFORK as u64;
const CLONE_PARENT: u64 = raddle_sys::nr::CLONE_PARENT as u64;
pub const CLONE_THREAD: u64 = raddle_sys::nr::CLONE_THREAD as u64;
const CLONE_SYSVSEM: u64 = raddle_sys::nr::CLONE_SYSVSEM as u64;
pub const CLONE_SETTLS: u64 = raddle_sys::nr::CLONE_SETTLS as u64;
pub const CLONE_PARENT_SETTID: u64 = raddle_sys::nr::CLONE_PARENT_SETTID as u64;
pub const CLONE_CHILD_CLEARTID: u64 = raddle_sys::nr::CLONE_CHILD_CLEARTID as u64;
const CLONE_DETACHED: u64 = raddle_sys::nr::CLONE_DETACHED as u64;
const CLONE_UNTRACED: u64 = raddle_sys::nr::CLONE_UNTRACED as u64;
pub const CLONE_CHILD_SETTID: u64 = raddle_sys::nr::CLONE_CHILD_SETTID as u64;
const CLONE_IO: u64 = raddle_sys::nr::CLONE_IO as u64;
const CLONE_CLEAR_SIGHAND: u64 = raddle_sys::nr::CLONE_CLEAR_SIGHAND;
const CLONE_INTO_CGROUP: u64 = raddle_sys::nr::CLONE_INTO_CGROUP;
/// Flags of `clone(2)`; the lowest byte is a signal there.
const LEGACY: u64 = 0xffff_ffff;
const SIGNAL: u64 = 0xff;
const CLONE_NEWTIME: u64 = raddle_sys::nr::CLONE_NEWTIME as u64;

/// What threads of one process share.
const SHARED: u64 =
    CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM;
/// Flags that the runtime serves itself, and those that make no difference to a thread.
const OURS: u64 = CLONE_SETTLS
    | CLONE_PARENT_SETTID
    | CLONE_CHILD_CLEARTID
    | CLONE_CHILD_SETTID
    | CLONE_DETACHED
    | CLONE_UNTRACED
    | CLONE_PTRACE
    | CLONE_IO;
/// Flags of these that the runtime doesn't pass on to the kernel for a thread's kernel thread.
const NOT_ASKED: u64 = OURS & !(CLONE_SETTLS | CLONE_IO);

/// The arguments of a clone, whichever call it came by.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    pub args: CloneArgs,
    /// The child's first stack pointer; 0 for its maker's.
    pub stack: usize,
}

impl Request {
    /// From the arguments of `clone(2)` on x86-64.
    pub fn from_clone(call: &Frame) -> Self {
        let [flags, _, third, child_tid, tls, _] = call.args().map(|arg| arg as u64);
        let flags = flags & LEGACY;
        let args = CloneArgs {
            flags: flags & !SIGNAL,
            pidfd: third,
            child_tid,
            parent_tid: third,
            exit_signal: flags & SIGNAL,
            tls,
            ..CloneArgs::default()
        };
        Self {
            args,
            stack: call.arg(1),
        }
    }

    /// From `clone3(2)`'s structure.
    ///
    /// # Errors
    /// As the kernel's, negated.
    pub fn from_clone3(call: &Frame) -> Result<Self, isize> {
        let args = copy(call.user(0), call.arg(1))?;
        if !is_valid(&args) {
            return Err(err(errno::EINVAL));
        }
        Ok(Self {
            stack: args.stack.wrapping_add(args.stack_size) as usize,
            args,
        })
    }

    /// `fork(2)` and `vfork(2)`.
    pub fn of_flags(flags: u64) -> Self {
        Self {
            args: CloneArgs {
                flags,
                ..CloneArgs::default()
            },
            stack: 0,
        }
    }

    /// Returns true if all of these flags are set.
    pub fn has(&self, flags: u64) -> bool {
        self.args.flags & flags == flags
    }

    /// Whether a thread is refused.
    ///
    /// # Errors
    /// EINVAL or EPERM, negated.
    pub fn check_thread(&self) -> Result<(), isize> {
        let is_ambiguous =
            self.has(CLONE_PIDFD | CLONE_PARENT_SETTID) && self.args.pidfd == self.args.parent_tid;
        if is_ambiguous || self.has(CLONE_PIDFD | CLONE_DETACHED) {
            return Err(err(errno::EINVAL));
        }
        if self.stack == 0 || self.has(CLONE_VFORK) {
            return Err(err(errno::EINVAL)); // see the module
        }
        match self.args.set_tid_size {
            0 => Ok(()),
            _ => Err(err(errno::EPERM)), // as without the right to choose
        }
    }

    /// Returns the arguments to ask the kernel with; `None` for a plain thread.
    pub fn asked(&self) -> Option<CloneArgs> {
        let flags = self.args.flags;
        // The kernel refuses addresses of the upper half; it alone knows where the program's end.
        let is_tls = self.has(CLONE_SETTLS) && self.args.tls >= (USUAL_END - mem::PAGE_SIZE) as u64;
        let is_plain = flags & SHARED == SHARED && flags & !(SHARED | OURS) == 0 && !is_tls;
        (!is_plain).then_some(CloneArgs {
            flags: flags & !NOT_ASKED,
            ..self.args
        })
    }
}

/// Copies the structure of `bytes` bytes. Those behind the known part must be zero.
fn copy(at: User<CloneArgs>, bytes: usize) -> Result<CloneArgs, isize> {
    const FIRST: usize = 64;
    const WITH_CGROUP: usize = 88;
    const KNOWN: usize = size_of::<CloneArgs>();
    const SIGNALS: u64 = 64;
    const MOST_TIDS: u64 = 32;
    if bytes > mem::PAGE_SIZE {
        return Err(err(errno::E2BIG));
    }
    if bytes < FIRST {
        return Err(err(errno::EINVAL));
    }
    if bytes > KNOWN && !at.cast::<u8>().byte_add(KNOWN).are_zero(bytes - KNOWN)? {
        return Err(err(errno::E2BIG));
    }
    let args = at.read_start(bytes, CloneArgs::default())?;
    let is_list = (args.set_tid == 0) == (args.set_tid_size == 0) && args.set_tid_size <= MOST_TIDS;
    let is_signal = args.exit_signal <= SIGNALS;
    let is_cgroup = args.cgroup <= i32::MAX as u64 && bytes >= WITH_CGROUP;
    if !is_list || !is_signal || args.flags & CLONE_INTO_CGROUP != 0 && !is_cgroup {
        return Err(err(errno::EINVAL));
    }
    let mut tids = [0u32; MOST_TIDS as usize];
    let tids = &mut tids[..args.set_tid_size as usize];
    User::at(args.set_tid as usize).read_all(tids)?;
    Ok(args)
}

/// Returns true unless the kernel refuses such arguments of `clone3(2)`, whatever it would make of
/// them.
fn is_valid(args: &CloneArgs) -> bool {
    const BOTH: u64 = CLONE_SIGHAND | CLONE_CLEAR_SIGHAND;
    let flags = args.flags;
    let is_known = flags & !(LEGACY | CLONE_CLEAR_SIGHAND | CLONE_INTO_CGROUP) == 0
        && flags & (CLONE_DETACHED | SIGNAL & !CLONE_NEWTIME) == 0
        && flags & BOTH != BOTH;
    let has_signal = flags & (CLONE_THREAD | CLONE_PARENT) != 0 && args.exit_signal != 0;
    is_known && !has_signal && is_stack(args.stack, args.stack_size)
}

/// Returns true for both or neither of an address and a size, all of it the program's.
fn is_stack(address: u64, bytes: u64) -> bool {
    match (address, bytes) {
        (0, 0) => true,
        (0, _) | (_, 0) => false,
        _ => address.checked_add(bytes).is_some_and(|end| {
            let last = end as usize - 1;
            last < USUAL_END || user::kernel_accepts(last)
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const THREAD: CloneArgs = CloneArgs {
        flags: SHARED,
        pidfd: 0,
        child_tid: 0,
        parent_tid: 0,
        exit_signal: 0,
        stack: 0x10000,
        stack_size: 0x1000,
        tls: 0,
        set_tid: 0,
        set_tid_size: 0,
        cgroup: 0,
    };

    fn request(change: impl FnOnce(&mut CloneArgs)) -> Request {
        let mut args = THREAD;
        change(&mut args);
        Request {
            args,
            stack: (args.stack + args.stack_size) as usize,
        }
    }

    #[test]
    fn libcs_threads_are_plain() {
        let with = |flags| request(|args| args.flags |= flags).asked().is_none();
        assert!(with(0) && with(OURS));
        assert!(!with(CLONE_PIDFD) && !with(CLONE_PARENT) && !with(CLONE_INTO_CGROUP));
        for shared in [
            CLONE_FS,
            CLONE_FILES,
            CLONE_SYSVSEM,
            CLONE_SIGHAND,
            CLONE_VM,
        ] {
            assert!(request(|args| args.flags &= !shared).asked().is_some());
        }
        let asked = request(|args| args.flags = OURS).asked();
        let left = CLONE_SETTLS | CLONE_IO;
        assert!(asked.is_some_and(|asked| asked.flags == left));
    }

    #[test]
    fn a_tls_of_the_kernels_is_the_kernels_to_refuse() {
        let tls = |tls| {
            let request = request(|args| {
                args.flags |= CLONE_SETTLS;
                args.tls = tls;
            });
            request.asked().is_some()
        };
        assert!(!tls(0x7fff_0000_0000) && !tls(8));
        assert!(tls(0x8000_0000_0000) && tls(u64::MAX) && tls(1 << 63));
    }

    #[test]
    fn stacks_have_an_address_and_a_size() {
        assert!(is_stack(0, 0) && is_stack(0x1000, 1));
        assert!(!is_stack(0, 1) && !is_stack(0x1000, 0));
        assert!(!is_stack(1 << 63, 0x1000) && !is_stack(0x1000, u64::MAX));
    }

    #[test]
    fn flags_that_exclude_each_other_are_refused() {
        let valid = |flags, signal| {
            is_valid(&CloneArgs {
                flags,
                exit_signal: signal,
                ..THREAD
            })
        };
        assert!(valid(SHARED, 0) && valid(0, 17) && valid(CLONE_NEWTIME, 17));
        assert!(!valid(SHARED, 17) && !valid(CLONE_PARENT, 17));
        assert!(!valid(1 << 40, 0) && !valid(CLONE_DETACHED, 0) && !valid(1, 0));
        assert!(!valid(CLONE_SIGHAND | CLONE_CLEAR_SIGHAND, 0));
    }

    #[test]
    fn threads_that_cannot_be_given_are_refused() {
        let refused = |change: fn(&mut CloneArgs)| request(change).check_thread().is_err();
        assert!(request(|_| ()).check_thread().is_ok());
        assert!(refused(|args| args.flags |= CLONE_VFORK));
        assert!(refused(|args| args.flags |= CLONE_PIDFD | CLONE_DETACHED));
        assert!(refused(
            |args| args.flags |= CLONE_PIDFD | CLONE_PARENT_SETTID
        ));
        assert!(refused(|args| args.set_tid_size = 1));
        assert!(refused(|args| (args.stack, args.stack_size) = (0, 0)));
    }
}
