//! The stand-in: does sysmon's work while sysmon itself can't begin.
//!
//! Sysmon starts with a copy of the program's table of descriptors, and closes there all but the
//! engine's own. Closing a file of a file system that is a process (FUSE) or another machine (NFS,
//! SMB) may wait for an answer, and threads that are stuck behind the same one must be noticed
//! meanwhile.
//!
//! 1. Before there is a second kernel thread, the starter of sysmon looks whether such a file is
//!    open ([`StandIn::prepare`]).
//! 2. If one is, the stand-in starts beside sysmon, and looks at carriers with the program's table.
//! 3. Sysmon, when its table is empty, says that it is there, wakes the stand-in and waits.
//! 4. The stand-in sees that between two looks, says that it has gone, and ends.
//!
//! Where none is open, sysmon's table is empty soon, and the engine's start waits for that: a file
//! that the program closes meanwhile would stay open.
//!
//! Rejected: to leave sysmon with the program's table for good (no block events, and numbers of the
//! program's that are taken for moments); a stand-in for every program (a kernel thread made in
//! vain, where closing never waits).

use crate::kernel_threads::kthread;
use crate::state::carrier::PREEMPT;
use crate::state::clock;
use crate::state::parts::sysmon::{GONE, StandIn};
use crate::state::process::PROCESS;
use crate::sysmon;
use core::sync::atomic::Ordering;
use raddle_sys::{is_err, nr, sys};

/// For how long the engine's start waits until sysmon's table is empty.
const PATIENCE_NS: u64 = 100_000_000;

/// The stand-in does the work.
const STANDS: u32 = 1;
/// Sysmon waits for it to go.
const RELIEVED: u32 = 2;
/// There is none, and sysmon's table isn't empty yet.
const BEGINS: u32 = 3;

impl StandIn {
    /// Returns true if one is needed: sysmon, which starts after this, will wait for it to go. The
    /// calling thread is the only one.
    pub(crate) fn prepare(&self) -> bool {
        let needed = closing_may_wait();
        self.0
            .store(if needed { STANDS } else { BEGINS }, Ordering::Relaxed);
        needed
    }

    /// Starts it. Without the means sysmon begins when it can.
    pub(crate) fn start(&self) {
        if kthread::spawn(stand_in_main, 0, sysmon::STACK).is_err() {
            self.go();
        }
    }

    /// Waits until sysmon, which needs no stand-in, has emptied its table: what the program closes
    /// must be closed then. Not for ever, if sysmon gets no CPU.
    ///
    /// # Blocking
    /// The calling kernel thread, for at most [`PATIENCE_NS`].
    pub(crate) fn await_sysmon(&self) {
        let until_ns = clock::now_ns() + PATIENCE_NS;
        while self.0.load(Ordering::Acquire) == BEGINS {
            let left_ns = until_ns.saturating_sub(clock::now_ns());
            if left_ns == 0 || kthread::futex_wait_for(self.0.as_ptr(), BEGINS, left_ns) {
                return;
            }
        }
    }

    /// In sysmon, which can begin.
    pub(crate) fn relieve(&self) {
        if self.0.load(Ordering::Relaxed) == BEGINS {
            return self.go();
        }
        let stands = self
            .0
            .compare_exchange(STANDS, RELIEVED, Ordering::SeqCst, Ordering::SeqCst);
        if stands.is_ok() {
            PROCESS.sysmon.write_wake();
            while self.0.load(Ordering::Acquire) == RELIEVED {
                kthread::futex_wait(self.0.as_ptr(), RELIEVED);
            }
        }
    }

    /// In the child of a fork, which has no other thread.
    pub(crate) fn reset(&self) {
        let Self(state) = self;
        state.store(GONE, Ordering::Relaxed);
    }

    fn go(&self) {
        self.0.store(GONE, Ordering::Release);
        kthread::futex_wake(self.0.as_ptr(), 1);
    }
}

extern "C" fn stand_in_main(_: usize, stack: *mut u8) -> ! {
    // SAFETY: this thread is no carrier; of all signals it takes the one for what every kernel
    // thread must do.
    unsafe {
        raddle_arch::set_gs_base(0);
        kthread::accept_only(&[PREEMPT]);
    }
    let stand_in = &PROCESS.sysmon.stand_in;
    sysmon::watch_while(false, || stand_in.0.load(Ordering::SeqCst) == STANDS);
    stand_in.go();
    PROCESS.roster.leave();
    // SAFETY: it has left the roster, so no signal is sent to it any more; the stack is its own.
    unsafe {
        kthread::accept_only(&[]);
        kthread::end([(stack, sysmon::STACK), (core::ptr::null_mut(), 0)])
    }
}

/// File systems that may wait for an answer when a file is closed (their magic numbers in
/// statfs(2)): FUSE, NFS, SMB of both kinds, AFS, Coda, OrangeFS, eCryptfs.
const ASKING: [u32; 8] = [
    0x6573_5546,
    0x6969,
    0xff53_4d42,
    0xfe53_4d42,
    0x5346_414f,
    0x7375_7245,
    0x2003_0528,
    0xf15f,
];

/// Returns true if the closing of an open descriptor may wait. Opens a descriptor.
fn closing_may_wait() -> bool {
    const FOLDER: usize = 0o2200000; // O_DIRECTORY | O_CLOEXEC
    const HERE: isize = -100;
    let path = c"/proc/self/fd";
    // SAFETY: a zero-terminated path; the descriptor is closed here, and no other thread runs.
    unsafe {
        let fd = sys!(nr::__NR_openat, HERE, path.as_ptr(), FOLDER, 0usize);
        if is_err(fd) {
            return false;
        }
        let found = lists_asking(fd as usize);
        sys!(nr::__NR_close, fd);
        found
    }
}

fn lists_asking(folder: usize) -> bool {
    /// Of an entry: its length, two bytes, and its name, which a zero ends.
    const LENGTH: usize = 16;
    const NAME: usize = 19;
    let mut list = [0u8; 2048];
    loop {
        // SAFETY: the kernel fills at most the buffer.
        let got = unsafe { sys!(nr::__NR_getdents64, folder, list.as_mut_ptr(), list.len()) };
        if got <= 0 {
            return false;
        }
        let mut rest = &list[..got as usize];
        while rest.len() > NAME {
            let length = usize::from(u16::from_ne_bytes([rest[LENGTH], rest[LENGTH + 1]]));
            let digits = rest[NAME..].iter().take_while(|byte| byte.is_ascii_digit());
            let (count, fd) = digits.fold((0, 0), |(count, fd), digit| {
                (count + 1, fd * 10 + usize::from(digit - b'0'))
            });
            if count > 0 && is_asking(fd) {
                return true;
            }
            rest = rest.get(length.max(1)..).unwrap_or_default();
        }
    }
}

fn is_asking(fd: usize) -> bool {
    let mut about = [0u64; 15]; // struct statfs; its first word is the file system's number
    // SAFETY: the kernel fills a live structure of its size.
    let got = unsafe { sys!(nr::__NR_fstatfs, fd, about.as_mut_ptr()) };
    !is_err(got) && ASKING.contains(&(about[0] as u32))
}

/// Returns true if the kernel closes whole ranges: not before Linux 5.9, where sysmon shares the
/// program's table.
pub(crate) fn can_empty_a_table() -> bool {
    const NONE: usize = u32::MAX as usize; // a number that no descriptor has
    // SAFETY: nothing is closed.
    unsafe { sys!(nr::__NR_close_range, NONE, NONE, 0usize) == 0 }
}

/// Closes in this kernel thread's own table of descriptors all but the engine's: what it opens, the
/// program never sees, and what the program closes is closed.
pub(crate) fn empty_table() {
    let mut from = 0usize;
    let ends = PROCESS.own_descriptors().map(|fd| fd as usize);
    for own in ends.chain([u32::MAX as usize + 1]) {
        if own > from {
            // SAFETY: no memory is involved; with an own table no other thread's descriptors
            // change.
            unsafe { sys!(nr::__NR_close_range, from, own - 1, 0usize) };
        }
        from = own + 1;
    }
}
