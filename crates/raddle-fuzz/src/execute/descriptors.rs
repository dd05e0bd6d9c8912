//! Making the descriptors that a case has from the start.

use std::ffi::{CStr, CString};
use std::mem::{size_of, zeroed};

use super::shared::{Line, Slot};
use crate::case::{Case, Kind, MAIN, Resource, State};

/// Signals that signal descriptors of resources read.
const READ_SIGNALS: u64 = 1 << 9 | 1 << 34;

/// Makes all descriptors; the trace says of each whether it could be made.
pub(super) fn make(case: &Case, slot: &Slot) {
    make_all(case, slot);
    connect(case);
}

fn make_all(case: &Case, slot: &Slot) {
    for resource in &case.resources {
        let made = make_one(resource);
        let error = std::io::Error::last_os_error().raw_os_error().unwrap_or(0);
        let line = Line::new().text("open ").text(resource.kind.word());
        if made {
            line.write(slot, MAIN)
        } else {
            line.text(" failed ").number(error.into()).write(slot, MAIN)
        }
    }
}

/// Lets epoll instances that have something watch everything else.
fn connect(case: &Case) {
    for epoll in case
        .resources
        .iter()
        .filter(|resource| resource.kind == Kind::Epoll)
    {
        if !epoll.has(State::HasData) {
            continue;
        }
        let others = case
            .resources
            .iter()
            .filter(|resource| resource.kind != Kind::Epoll);
        for other in others {
            let number = other.numbers[0];
            let mut event = libc::epoll_event {
                events: libc::EPOLLIN as u32,
                u64: number.into(),
            };
            let (at, add) = (i32::from(epoll.numbers[0]), libc::EPOLL_CTL_ADD);
            // SAFETY: a live structure.
            unsafe { libc::epoll_ctl(at, add, number.into(), &raw mut event) };
        }
    }
}

/// Gives a descriptor its number.
fn place(descriptor: i32, number: u8) -> bool {
    if descriptor < 0 {
        return false;
    }
    let number = i32::from(number);
    // SAFETY: descriptors of the case alone.
    descriptor == number
        || unsafe { libc::dup2(descriptor, number) == number && libc::close(descriptor) == 0 }
}

fn make_one(resource: &Resource) -> bool {
    let [first, second] = resource.numbers;
    let nonblocking = if resource.has(State::NonBlocking) {
        libc::O_NONBLOCK
    } else {
        0
    };
    let made = match resource.kind {
        Kind::Pipe => pipe(first, second, nonblocking),
        Kind::Stream => sockets(libc::SOCK_STREAM | nonblocking, first, second),
        Kind::Datagram => sockets(libc::SOCK_DGRAM | nonblocking, first, second),
        Kind::Packet => sockets(libc::SOCK_SEQPACKET | nonblocking, first, second),
        Kind::TcpListener | Kind::TcpPair => tcp(resource, nonblocking),
        Kind::UnixListener => unix_listener(resource, nonblocking),
        // SAFETY: plain calls.
        Kind::TcpSocket => place(
            unsafe { libc::socket(libc::AF_INET, libc::SOCK_STREAM | nonblocking, 0) },
            first,
        ),
        // SAFETY: as above.
        Kind::Udp => place(
            unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | nonblocking, 0) },
            first,
        ),
        Kind::Terminal => terminal(first, second, nonblocking),
        _ => place(single(resource, nonblocking), first),
    };
    made && fill(resource)
}

fn pipe(first: u8, second: u8, flags: i32) -> bool {
    let mut ends = [0; 2];
    // SAFETY: room for two numbers.
    (unsafe { libc::pipe2(ends.as_mut_ptr(), flags) } == 0)
        && place(ends[0], first)
        && place(ends[1], second)
}

fn sockets(kind: i32, first: u8, second: u8) -> bool {
    let mut ends = [0; 2];
    // SAFETY: room for two numbers.
    (unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, ends.as_mut_ptr()) } == 0)
        && place(ends[0], first)
        && place(ends[1], second)
}

/// A listener on the loopback, or the two ends of a connection to one.
fn tcp(resource: &Resource, flags: i32) -> bool {
    let [first, second] = resource.numbers;
    let is_pair = resource.kind == Kind::TcpPair;
    // SAFETY: the structure and its length agree; all descriptors are the case's.
    unsafe {
        let mut name: libc::sockaddr_in = zeroed();
        name.sin_family = libc::AF_INET as u16;
        name.sin_addr.s_addr = u32::from_ne_bytes([127, 0, 0, 1]);
        let to = (&raw mut name).cast::<libc::sockaddr>();
        let mut bytes = size_of::<libc::sockaddr_in>() as u32;
        let listener = libc::socket(libc::AF_INET, libc::SOCK_STREAM | flags, 0);
        let listens = libc::bind(listener, to, bytes) == 0 && libc::listen(listener, 4) == 0;
        if !listens || !is_pair {
            return listens && place(listener, first);
        }
        libc::getsockname(listener, to, &raw mut bytes);
        let client = libc::socket(libc::AF_INET, libc::SOCK_STREAM, 0);
        libc::connect(client, to, bytes);
        let server = libc::accept4(listener, std::ptr::null_mut(), std::ptr::null_mut(), flags);
        libc::fcntl(client, libc::F_SETFL, libc::O_RDWR | flags);
        libc::close(listener);
        place(server, first) && place(client, second)
    }
}

fn unix_listener(resource: &Resource, flags: i32) -> bool {
    // SAFETY: the structure and its length agree.
    unsafe {
        let mut name: libc::sockaddr_un = zeroed();
        name.sun_family = libc::AF_UNIX as u16;
        for (to, &from) in name.sun_path.iter_mut().zip(c"sock".to_bytes()) {
            *to = from.cast_signed();
        }
        let listener = libc::socket(libc::AF_UNIX, libc::SOCK_STREAM | flags, 0);
        let bytes = size_of::<libc::sockaddr_un>() as u32;
        libc::bind(listener, (&raw const name).cast(), bytes) == 0
            && libc::listen(listener, 1) == 0
            && place(listener, resource.numbers[0])
    }
}

/// A terminal without a line discipline's transformations, which is not the controlling one.
fn terminal(first: u8, second: u8, flags: i32) -> bool {
    let mut name = [0; 64];
    // SAFETY: plain calls on descriptors of the case.
    unsafe {
        let master = libc::open(c"/dev/ptmx".as_ptr(), libc::O_RDWR | libc::O_NOCTTY | flags);
        if master < 0 || libc::grantpt(master) < 0 || libc::unlockpt(master) < 0 {
            return false;
        }
        if libc::ptsname_r(master, name.as_mut_ptr(), name.len()) != 0 {
            return false;
        }
        let other = libc::open(name.as_ptr(), libc::O_RDWR | libc::O_NOCTTY | flags);
        let mut modes: libc::termios = zeroed();
        libc::tcgetattr(other, &raw mut modes);
        libc::cfmakeraw(&raw mut modes);
        libc::tcsetattr(other, libc::TCSANOW, &raw const modes);
        place(master, first) && place(other, second)
    }
}

fn open(path: &CStr, flags: i32) -> i32 {
    // SAFETY: a live string.
    unsafe { libc::open(path.as_ptr(), flags, 0o600) }
}

fn single(resource: &Resource, flags: i32) -> i32 {
    let append = if resource.has(State::Append) {
        libc::O_APPEND
    } else {
        0
    };
    // SAFETY: plain calls with live arguments.
    unsafe {
        match resource.kind {
            Kind::Event => {
                let semaphore = if resource.has(State::Semaphore) {
                    libc::EFD_SEMAPHORE
                } else {
                    0
                };
                libc::eventfd(
                    u32::from(resource.has(State::HasData)) * 2,
                    flags | semaphore,
                )
            }
            Kind::Timer => libc::timerfd_create(libc::CLOCK_MONOTONIC, flags),
            Kind::Epoll => libc::epoll_create1(0),
            Kind::Inotify => {
                let made = libc::inotify_init1(flags);
                libc::inotify_add_watch(made, c"folder".as_ptr(), libc::IN_ALL_EVENTS);
                made
            }
            Kind::SignalFd => {
                let mut set: libc::sigset_t = zeroed();
                (&raw mut set).cast::<u64>().write(READ_SIGNALS);
                libc::signalfd(-1, &raw const set, flags)
            }
            Kind::File => open(c"file", libc::O_RDWR | append | flags),
            Kind::ReadOnly => open(c"short", libc::O_RDONLY),
            Kind::PathOnly => open(c"file", libc::O_PATH),
            Kind::Folder => open(c"folder", libc::O_RDONLY | libc::O_DIRECTORY),
            Kind::Null => open(c"/dev/null", libc::O_RDWR),
            Kind::Zero => open(c"/dev/zero", libc::O_RDWR),
            Kind::Full => open(c"/dev/full", libc::O_RDWR),
            Kind::Memory => libc::memfd_create(c"memory".as_ptr(), libc::MFD_ALLOW_SEALING),
            Kind::Fifo => open(c"fifo", libc::O_RDWR | flags),
            Kind::Proc => open(c"/proc/self/comm", libc::O_RDWR),
            Kind::PidFd => libc::syscall(libc::SYS_pidfd_open, libc::getpid(), 0) as i32,
            Kind::Queue => queue(flags),
            Kind::Ring => ring(),
            _ => -1,
        }
    }
}

/// A queue for messages; its name is gone before another case could use it.
fn queue(flags: i32) -> i32 {
    // SAFETY: live arguments.
    unsafe {
        let mut attributes: libc::mq_attr = zeroed();
        attributes.mq_maxmsg = 2;
        attributes.mq_msgsize = 64;
        let name = CString::new(format!("/fuzz-{}", libc::getpid())).unwrap_or_default();
        let flags = libc::O_RDWR | libc::O_CREAT | flags;
        let made = libc::mq_open(name.as_ptr(), flags, 0o600, &raw mut attributes);
        libc::mq_unlink(name.as_ptr());
        made
    }
}

/// A ring with four submissions that do nothing.
fn ring() -> i32 {
    const ENTRIES: u32 = 4;
    const ENTRY_BYTES: usize = 64;
    const SUBMISSIONS: i64 = 0;
    const ENTRIES_AT: i64 = 0x1000_0000;
    const TAIL: usize = 40 + 4;
    const ARRAY: usize = 40 + 24;
    let mut parameters = [0_u32; 30];
    // SAFETY: room for the parameters; the mappings are of the sizes that they say, and unused.
    unsafe {
        let ring = libc::syscall(libc::SYS_io_uring_setup, ENTRIES, parameters.as_mut_ptr()) as i32;
        if ring < 0 {
            return ring;
        }
        let word = |at: usize| parameters[at / 4] as usize;
        let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        let bytes = word(ARRAY) + ENTRIES as usize * 4;
        let map = |bytes, offset| {
            libc::mmap(std::ptr::null_mut(), bytes, protection, flags, ring, offset).cast::<u8>()
        };
        let entry_bytes = ENTRIES as usize * ENTRY_BYTES;
        let (queue, entries) = (map(bytes, SUBMISSIONS), map(entry_bytes, ENTRIES_AT));
        for index in 0..ENTRIES {
            queue
                .add(word(ARRAY))
                .cast::<u32>()
                .add(index as usize)
                .write(index);
        }
        queue.add(word(TAIL)).cast::<u32>().write(ENTRIES);
        libc::munmap(queue.cast(), bytes);
        libc::munmap(entries.cast(), entry_bytes);
        ring
    }
}

/// Brings a resource into the state that the case wants.
fn fill(resource: &Resource) -> bool {
    let [first, second] = resource.numbers.map(i32::from);
    let data = b"some data that is read";
    let write = |to: i32, bytes: &[u8]| {
        // SAFETY: a live buffer.
        unsafe { libc::write(to, bytes.as_ptr().cast(), bytes.len()) }
    };
    if resource.has(State::HasData) {
        match resource.kind {
            Kind::Fifo => _ = write(first, data),
            Kind::File | Kind::Memory => {
                write(first, data);
                // SAFETY: a plain call.
                unsafe { libc::lseek(first, 0, libc::SEEK_SET) };
            }
            Kind::Queue => {
                // SAFETY: a live buffer.
                unsafe { libc::mq_send(first, data.as_ptr().cast(), data.len(), 1) };
            }
            Kind::TcpListener => connect_to(first),
            Kind::UnixListener => connect_to_path(),
            _ if second != 0 => _ = write(second, data),
            _ => {}
        }
    }
    if resource.has(State::IsFull) {
        fill_up(resource, if second == 0 { first } else { second });
    }
    for (state, option) in [
        (State::ReceiveLimit, libc::SO_RCVTIMEO),
        (State::SendLimit, libc::SO_SNDTIMEO),
    ] {
        let limit = libc::timeval {
            tv_sec: 0,
            tv_usec: 10_000,
        };
        for number in [first, second] {
            if resource.has(state) && number != 0 {
                let bytes = size_of::<libc::timeval>() as u32;
                let value = (&raw const limit).cast();
                // SAFETY: the structure and its length agree.
                unsafe { libc::setsockopt(number, libc::SOL_SOCKET, option, value, bytes) };
            }
        }
    }
    if resource.has(State::Armed) {
        let time = |tv_nsec| libc::timespec { tv_sec: 0, tv_nsec };
        let interval = libc::itimerspec {
            it_interval: time(0),
            it_value: time(1),
        };
        // SAFETY: a live structure.
        unsafe { libc::timerfd_settime(first, 0, &raw const interval, std::ptr::null_mut()) };
    }
    if resource.has(State::PeerClosed) {
        // SAFETY: a descriptor of the case.
        unsafe { libc::close(second) };
    }
    true
}

/// Writes until a write would wait.
fn fill_up(resource: &Resource, number: i32) {
    if resource.kind == Kind::Event {
        let most = (u64::MAX - 1).to_ne_bytes();
        // SAFETY: a live buffer; a second number than zero can't be added, hence no data here.
        unsafe {
            libc::write(
                number,
                most.as_ptr().cast(),
                if resource.has(State::HasData) { 0 } else { 8 },
            )
        };
        return;
    }
    let block = [7_u8; 4096];
    // SAFETY: plain calls with a live buffer.
    unsafe {
        let flags = libc::fcntl(number, libc::F_GETFL);
        libc::fcntl(number, libc::F_SETFL, flags | libc::O_NONBLOCK);
        let mut left = 4000;
        while left > 0 && libc::write(number, block.as_ptr().cast(), block.len()) > 0 {
            left -= 1;
        }
        libc::fcntl(number, libc::F_SETFL, flags);
    }
}

/// A connection that waits to be accepted; its client's end has a high number.
fn connect_to(listener: i32) {
    // SAFETY: the structure and its length agree.
    unsafe {
        let mut name: libc::sockaddr_in = zeroed();
        let mut bytes = size_of::<libc::sockaddr_in>() as u32;
        libc::getsockname(listener, (&raw mut name).cast(), &raw mut bytes);
        let client = libc::socket(libc::AF_INET, libc::SOCK_STREAM, 0);
        libc::connect(client, (&raw const name).cast(), bytes);
        place(client, CLIENT);
    }
}

fn connect_to_path() {
    // SAFETY: the structure and its length agree.
    unsafe {
        let mut name: libc::sockaddr_un = zeroed();
        name.sun_family = libc::AF_UNIX as u16;
        for (to, &from) in name.sun_path.iter_mut().zip(c"sock".to_bytes()) {
            *to = from.cast_signed();
        }
        let client = libc::socket(libc::AF_UNIX, libc::SOCK_STREAM, 0);
        let bytes = size_of::<libc::sockaddr_un>() as u32;
        libc::connect(client, (&raw const name).cast(), bytes);
        place(client, CLIENT);
    }
}

const CLIENT: u8 = 30;
