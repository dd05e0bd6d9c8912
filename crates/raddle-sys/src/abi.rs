//! The kernel's structures, as x86-64 lays them out (`linux/*.h`).

pub use raddle_arch::{SigContext, StackT, UContext};

use crate::nr;

/// `struct timespec` (seconds, nanoseconds).
#[repr(C)]
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Timespec {
    pub sec: i64,
    pub nsec: i64,
}

/// Nanoseconds in a second.
pub const SECOND_NS: u64 = 1_000_000_000;

impl Timespec {
    /// Makes one from a duration or an instant in nanoseconds.
    pub const fn from_ns(ns: u64) -> Self {
        Self {
            sec: (ns / SECOND_NS) as i64,
            nsec: (ns % SECOND_NS) as i64,
        }
    }

    /// Returns nanoseconds, saturating; `None` if the kernel would answer EINVAL.
    pub const fn to_ns(self) -> Option<u64> {
        if self.sec < 0 || self.nsec < 0 || self.nsec >= SECOND_NS as i64 {
            return None;
        }
        Some(
            (self.sec as u64)
                .saturating_mul(SECOND_NS)
                .saturating_add(self.nsec as u64),
        )
    }
}

/// `struct epoll_event`: packed on x86-64.
#[repr(C, packed)]
#[derive(Clone, Copy, Default)]
pub struct EpollEvent {
    pub events: u32,
    pub data: u64,
}

/// `struct pollfd`.
#[repr(C)]
#[derive(Clone, Copy, Default, Debug)]
pub struct PollFd {
    pub fd: i32,
    pub events: i16,
    pub revents: i16,
}

/// `struct iovec`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct IoVec {
    pub base: usize,
    pub len: usize,
}

/// The kernel's `struct sigaction` (not libc's).
#[repr(C)]
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct SigAction {
    pub handler: usize,
    pub flags: u64,
    pub restorer: usize,
    pub mask: u64,
}

/// `siginfo_t`: 128 bytes, of which the first words are signal, errno and code.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
pub struct SigInfo {
    pub signo: i32,
    pub errno: i32,
    pub code: i32,
    pub pad: i32,
    pub pid: i32,
    pub uid: u32,
    pub value: u64,
    pub rest: [u64; 12],
}

const _: () = assert!(size_of::<SigInfo>() == 128);

impl SigInfo {
    /// All zero.
    pub const EMPTY: Self = Self {
        signo: 0,
        errno: 0,
        code: 0,
        pad: 0,
        pid: 0,
        uid: 0,
        value: 0,
        rest: [0; 12],
    };
}

/// `struct clone_args` of `clone3(2)`, first version and later fields.
#[repr(C)]
#[derive(Clone, Copy, Default, Debug)]
pub struct CloneArgs {
    pub flags: u64,
    pub pidfd: u64,
    pub child_tid: u64,
    pub parent_tid: u64,
    pub exit_signal: u64,
    pub stack: u64,
    pub stack_size: u64,
    pub tls: u64,
    pub set_tid: u64,
    pub set_tid_size: u64,
    pub cgroup: u64,
}

impl CloneArgs {
    /// The flags that make namespaces.
    pub const NAMESPACES: u64 = (nr::CLONE_NEWTIME
        | nr::CLONE_NEWNS
        | nr::CLONE_NEWCGROUP
        | nr::CLONE_NEWUTS
        | nr::CLONE_NEWIPC
        | nr::CLONE_NEWUSER
        | nr::CLONE_NEWPID
        | nr::CLONE_NEWNET) as u64;
}

/// `struct sched_attr` of `sched_setattr(2)`, up to the utilisation clamps.
#[repr(C)]
#[derive(Clone, Copy, Default, Debug)]
pub struct SchedAttr {
    pub size: u32,
    pub policy: u32,
    pub flags: u64,
    pub nice: i32,
    pub priority: u32,
    pub times_ns: [u64; 3],
    pub util_min: u32,
    pub util_max: u32,
}

impl SchedAttr {
    /// Bytes of the first version of the structure.
    pub const FIRST_SIZE: usize = 48;
}

/// `struct perf_event_attr`, its first version.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct PerfEventAttr {
    kind: u32,
    size: u32,
    config: u64,
    period: u64,
    sample: u64,
    read_format: u64,
    flags: u64,
    wakeup: u32,
    rest: [u32; 3],
}

const _: () = assert!(size_of::<PerfEventAttr>() == 64);

impl PerfEventAttr {
    /// Counts nothing, but writes a record of eight bytes each time the thread leaves its CPU or
    /// comes back (PERF_RECORD_SWITCH), and each record wakes pollers. Needs no privilege up to
    /// `perf_event_paranoid` 2.
    pub const fn switches() -> Self {
        const SOFTWARE: u32 = 1;
        const COUNT_SW_DUMMY: u64 = 9;
        const EXCLUDE_KERNEL: u64 = 1 << 5;
        const EXCLUDE_HV: u64 = 1 << 6;
        const WATERMARK: u64 = 1 << 14;
        const CONTEXT_SWITCH: u64 = 1 << 26;
        Self {
            kind: SOFTWARE,
            size: size_of::<Self>() as u32,
            config: COUNT_SW_DUMMY,
            period: 0,
            sample: 0,
            read_format: 0,
            flags: EXCLUDE_KERNEL | EXCLUDE_HV | WATERMARK | CONTEXT_SWITCH,
            wakeup: 1,
            rest: [0; 3],
        }
    }
}

/// `struct sigevent`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct SigEvent {
    pub value: u64,
    pub signal: u32,
    pub notify: u32,
    pub tid: u32,
    pub rest: [u32; 11],
}

const _: () = assert!(size_of::<SigEvent>() == 64);

/// `struct io_uring_sqe`: a request.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Sqe {
    pub opcode: u8,
    pub flags: u8,
    pub priority: u16,
    pub fd: i32,
    pub offset: u64,
    pub address: u64,
    pub len: u32,
    pub operation_flags: u32,
    pub user_data: u64,
    pub buffer: u16,
    pub personality: u16,
    pub file_index: u32,
    pub address3: u64,
    pub pad: u64,
}

const _: () = assert!(size_of::<Sqe>() == 64);

/// `struct io_uring_cqe`: the result of a request.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Cqe {
    pub user_data: u64,
    pub result: i32,
    pub flags: u32,
}

/// `struct io_sqring_offsets`; `struct io_cqring_offsets` has the same size.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct RingOffsets {
    pub head: u32,
    pub tail: u32,
    pub ring_mask: u32,
    pub ring_entries: u32,
    /// `flags` of requests, `overflow` of completions.
    pub flags_or_overflow: u32,
    /// `dropped` of requests, `cqes` of completions.
    pub dropped_or_cqes: u32,
    /// `array` of requests, `flags` of completions.
    pub array_or_flags: u32,
    pub reserved: u32,
    pub user_addr: u64,
}

/// `struct io_uring_params`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct RingParams {
    pub sq_entries: u32,
    pub cq_entries: u32,
    pub flags: u32,
    pub sq_thread_cpu: u32,
    pub sq_thread_idle: u32,
    pub features: u32,
    pub wq_fd: u32,
    pub reserved: [u32; 3],
    pub sq_off: RingOffsets,
    pub cq_off: RingOffsets,
}

const _: () = assert!(size_of::<RingParams>() == 120);

/// `struct io_uring_getevents_arg`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct EventsArg {
    pub mask: u64,
    pub mask_len: u32,
    pub reserved: u32,
    /// The address of a `struct __kernel_timespec`, the longest wait.
    pub time: u64,
}

/// `struct io_uring_rsrc_update`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct RsrcUpdate {
    pub offset: u32,
    pub reserved: u32,
    pub data: u64,
}

/// `struct iocb`: a request to an AIO context. The kernel writes `key`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Iocb {
    pub data: u64,
    pub key: u32,
    pub rw_flags: u32,
    pub opcode: u16,
    pub priority: i16,
    pub fd: u32,
    pub address: u64,
    pub len: u64,
    pub offset: u64,
    pub reserved: u64,
    pub flags: u32,
    /// The eventfd to signal.
    pub signalled: u32,
}

const _: () = assert!(size_of::<Iocb>() == 64);

/// `struct io_event`: the result of a request.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct AioEvent {
    pub data: u64,
    pub request: u64,
    pub result: i64,
    pub result2: i64,
}
