//! epoll, eventfd and the process's CPU clock, through libc: `raddle run` answers its calls.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

/// The eventfd's own id; other ids count from 1.
const WAKE: u64 = 0;
/// The most events of one call.
const EVENTS: usize = 64;

/// The readiness to watch for.
///
/// # Examples
/// ```
/// use raddle::pool::{Interest, Pool};
/// use std::io::Write;
/// use std::os::unix::net::UnixStream;
/// use std::sync::mpsc;
///
/// let (pool, (mut here, there)) = (Pool::new(), UnixStream::pair()?);
/// let (sender, receiver) = mpsc::channel();
/// pool.when_ready(&there, Interest::Readable, move || sender.send(()).unwrap())?;
/// here.write_all(b"!")?;
/// receiver.recv()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interest {
    /// A read would not wait; also at the end of the stream, and after an error.
    Readable,
    /// A write would not wait; also after an error.
    Writable,
}

pub(super) struct Poll {
    epoll: OwnedFd,
    wake: OwnedFd,
}

/// Returns the value of a call, or its error if the value is -1.
fn checked(value: libc::c_int) -> io::Result<libc::c_int> {
    match value {
        -1 => Err(io::Error::last_os_error()),
        value => Ok(value),
    }
}

impl Poll {
    pub(super) fn new() -> io::Result<Self> {
        // SAFETY: no memory is passed; the new descriptors have no other owner.
        let (epoll, wake) = unsafe {
            let epoll = checked(libc::epoll_create1(libc::EPOLL_CLOEXEC))?;
            let epoll = OwnedFd::from_raw_fd(epoll);
            let wake = checked(libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK))?;
            (epoll, OwnedFd::from_raw_fd(wake))
        };
        let poll = Self { epoll, wake };
        let number = poll.wake.as_raw_fd();
        poll.control(libc::EPOLL_CTL_ADD, number, libc::EPOLLIN, WAKE)?;
        Ok(poll)
    }

    fn control(&self, what: i32, descriptor: RawFd, events: i32, id: u64) -> io::Result<()> {
        let events = events.cast_unsigned();
        let mut event = libc::epoll_event { events, u64: id };
        // SAFETY: the event lives during the call; a wrong descriptor is an error, no more.
        checked(unsafe {
            libc::epoll_ctl(self.epoll.as_raw_fd(), what, descriptor, &raw mut event)
        })?;
        Ok(())
    }

    /// Reports `id` once, when the descriptor is ready.
    pub(super) fn watch(&self, descriptor: RawFd, interest: Interest, id: u64) -> io::Result<()> {
        let events = libc::EPOLLONESHOT
            | match interest {
                Interest::Readable => libc::EPOLLIN | libc::EPOLLRDHUP,
                Interest::Writable => libc::EPOLLOUT,
            };
        self.control(libc::EPOLL_CTL_ADD, descriptor, events, id)
    }

    pub(super) fn forget(&self, descriptor: RawFd) {
        // A descriptor that is not watched is forgotten already.
        let _ = self.control(libc::EPOLL_CTL_DEL, descriptor, 0, WAKE);
    }

    /// Ends the current or the next wait.
    pub(super) fn wake(&self) {
        let one = 1u64;
        // SAFETY: eight bytes of `one` are read. A full counter wakes as well.
        unsafe { libc::write(self.wake.as_raw_fd(), (&raw const one).cast(), 8) };
    }

    /// Waits until the deadline, a wake, or readiness of descriptors; stores their ids in `ready`.
    pub(super) fn wait(&self, deadline: Option<Instant>, ready: &mut Vec<u64>) {
        ready.clear();
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; EVENTS];
        let milliseconds = deadline.map_or(-1, |at| {
            let left = at.saturating_duration_since(Instant::now());
            // Rounded up: a wait that ends too early would spin until the deadline.
            left.as_nanos().div_ceil(1_000_000).min(i32::MAX as u128) as i32
        });
        let (epoll, room) = (self.epoll.as_raw_fd(), EVENTS as i32);
        // SAFETY: the array has room for as many events as the call may write.
        let count = unsafe { libc::epoll_wait(epoll, events.as_mut_ptr(), room, milliseconds) };
        // An error here is EINTR: nothing is ready.
        for event in &events[..count.max(0) as usize] {
            match event.u64 {
                WAKE => self.clear_wake(),
                id => ready.push(id),
            }
        }
    }

    fn clear_wake(&self) {
        let mut count = 0u64;
        // SAFETY: eight bytes of `count` are written. A counter that is already empty does no harm.
        unsafe { libc::read(self.wake.as_raw_fd(), (&raw mut count).cast(), 8) };
    }
}

/// Returns the CPU time that the process has used.
pub(super) fn cpu_time() -> Duration {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the call writes one timespec. Every Linux has this clock.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    Duration::new(time.tv_sec.max(0) as u64, time.tv_nsec.max(0) as u32)
}
