//! The inspection server: a snapshot of carriers and green threads for a client that may look.
//!
//! Sysmon serves it on the abstract socket of [`SocketName`], one client at a time, and never waits
//! for it: it polls the client beside what else it looks at.
//!
//! 1. A client of another user, root apart, is closed at once. That only spares the others a wait.
//! 2. The server maps a page of a memory file with a random name and says that it has. The kernel
//!    shows the name in `/proc/PID/maps` to those that may look into this process (ptrace(2),
//!    PTRACE_MODE_READ_FSCREDS): by user and group, PR_SET_DUMPABLE, capabilities, user namespaces
//!    and security modules, as they are now.
//! 3. The client proves that it has read the name, and says what it wants.
//! 4. The server does it, copies the answer to memory of its own, and sends it as fast as the
//!    client reads.
//! 5. A client that reads the process's memory by itself keeps the connection, if it needs a right
//!    for that ([`tracer`]), and loses the right with the connection.
//!
//! A client that makes no progress for a second is dropped. Records are read while the threads run:
//! each field is true by itself, and a thread that parks meanwhile may show its old wait.
//!
//! Rejected: to compare user ids here. It takes root of another user namespace for root, a process
//! that made itself undumpable for one like others, and knows no security module. To read the
//! client's capabilities in `/proc`: a number may be another process's by then, and a process that
//! gave up its rights can't see root's namespaces.

pub mod crash;
pub(crate) mod layout;
mod records;
mod totals;
pub mod tracer;

use crate::os::shown;
use crate::state::carrier::{Carrier, CarrierState};
use crate::state::process::{MAX_CARRIERS, MAX_WANTED, PROCESS};
use crate::state::{accounting, clock, delays, events};
use core::ptr::null_mut;
use core::sync::atomic::Ordering;
pub use raddle_inspect::CodePlaces;
use raddle_inspect::{
    BlockingRecords, BlockingSites, CarrierRecord, Header, Histogram, Layout, NO_CARRIER,
    PROOF_BYTES, PROOF_NAME, PROOF_WANTED, PolicyKind, REQUEST_MAGIC, Request, RequestKind,
    SocketName, ThreadRecord, Totals, WAKES_SHIFT, Wire,
};
use raddle_sched::policies::Kind;
use raddle_sched::quota::MAX_PERCENT;
use raddle_sys::{err, errno, is_err, mem, nr, sys};
use records::{carrier_record, shares, thread_record};

const AF_UNIX: u16 = 1;
const CLOEXEC_STREAM: usize = 0o2000000 | 1;
const SOL_SOCKET: usize = 1;
const NOW: usize = 0x4040; // MSG_DONTWAIT, MSG_NOSIGNAL
const AGAIN: isize = err(errno::EAGAIN);

/// How long a client may make no progress.
const PATIENCE_NS: u64 = 1_000_000_000;

/// How long a client may keep the right to read this process's memory.
const READING_NS: u64 = 30_000_000_000;

/// For how many seconds CPU time is counted for a client that doesn't say.
const COUNTED_S: u32 = 10;

/// What a client sends: the proof and the request.
const ASKED_BYTES: usize = PROOF_BYTES + size_of::<Request>();

/// Opens the socket; -1 if that can't be done, and then there is no inspection.
pub(crate) fn listen() -> i32 {
    let pid = PROCESS.pid.load(Ordering::Relaxed);
    match listen_as(SocketName::of(pid)) {
        // A process of another PID namespace may have the name.
        -1 => pid_namespace().map_or(-1, |inode| listen_as(SocketName::in_namespace(pid, inode))),
        socket => socket,
    }
}

/// Returns the inode of this process's PID namespace.
fn pid_namespace() -> Option<u64> {
    let here = nr::AT_FDCWD as isize;
    // SAFETY: integers, for which zeros are values.
    let mut found: nr::stat = unsafe { core::mem::zeroed() };
    let path = c"/proc/self/ns/pid";
    let to = &raw mut found;
    // SAFETY: a path that ends in 0, and a live buffer for the result.
    let done = unsafe { sys!(nr::__NR_newfstatat, here, path.as_ptr(), to, 0usize) };
    (!is_err(done)).then_some(found.st_ino)
}

fn listen_as(name: SocketName) -> i32 {
    let mut address = [0u8; 110];
    address[..2].copy_from_slice(&AF_UNIX.to_ne_bytes());
    let bytes = name.as_bytes();
    address[3..3 + bytes.len()].copy_from_slice(bytes);
    let len = 3 + bytes.len();
    // SAFETY: plain calls with live buffers.
    unsafe {
        let socket = sys!(nr::__NR_socket, AF_UNIX, CLOEXEC_STREAM, 0usize);
        let Ok(socket) = crate::kernel_threads::descriptor::hide(socket) else {
            return -1;
        };
        if is_err(sys!(nr::__NR_bind, socket, address.as_ptr(), len))
            || is_err(sys!(nr::__NR_listen, socket, 16usize))
        {
            sys!(nr::__NR_close, socket);
            return -1;
        }
        socket as i32
    }
}

/// The client that is served.
pub(crate) struct Client {
    /// False on a thread that leaves clients to the one that it stands in for.
    serves: bool,
    /// The deadline of its next step; none without a client.
    deadline_ns: u64,
    /// The random part of the page's name.
    secret: [u8; PROOF_BYTES],
    /// The page with that name; null when the client has answered.
    page: *mut u8,
    asked: [u8; ASKED_BYTES],
    received: usize,
    answer: Answer,
    sent: usize,
    /// True while it has the right to read this process's memory.
    reads: bool,
}

impl Client {
    pub(crate) const fn none(serves: bool) -> Self {
        Self {
            serves,
            deadline_ns: 0,
            secret: [0; PROOF_BYTES],
            page: null_mut(),
            asked: [0; ASKED_BYTES],
            received: 0,
            answer: Answer::none(),
            sent: 0,
            reads: false,
        }
    }

    fn fd() -> i32 {
        PROCESS.sysmon.client.get()
    }

    /// What to poll, and for what: the client, or the listener without one.
    pub(crate) fn polled(&self, listener: i32) -> (i32, i16) {
        const POLLIN: i16 = raddle_sys::nr::POLLIN as i16;
        const POLLOUT: i16 = 4;
        match Self::fd() {
            _ if !self.serves => (-1, 0), // ignored
            -1 => (listener, POLLIN),
            client if self.answer.is_there() => (client, POLLOUT),
            client => (client, POLLIN), // its request, or its end
        }
    }

    /// Until when to poll; `None` for ever.
    pub(crate) fn deadline_ns(&self) -> Option<u64> {
        (self.serves && Self::fd() != -1).then_some(self.deadline_ns)
    }

    /// Does what is possible now, if the polled descriptor is ready or the time is over.
    pub(crate) fn serve(&mut self, listener: i32, ready: bool) {
        if !self.serves {
            return;
        }
        if Self::fd() == -1 {
            if ready {
                self.accept(listener);
            }
            return;
        }
        let goes_on = match ready {
            false => clock::now_ns() < self.deadline_ns,
            true if self.reads && !self.answer.is_there() => false,
            true if self.answer.is_there() => self.send() || self.goes_on_reading(),
            true => self.receive(),
        };
        if !goes_on {
            self.finish();
        }
    }

    /// Closes the connection and gives the memory back.
    pub(crate) fn finish(&mut self) {
        if core::mem::replace(&mut self.reads, false) {
            tracer::reader_leaves();
        }
        self.unmap_page();
        self.answer.free();
        if self.serves {
            PROCESS.sysmon.client.close();
        }
    }

    fn accept(&mut self, listener: i32) {
        const NONBLOCK_CLOEXEC: usize = 0o2004000;
        // SAFETY: a plain call on the runtime's descriptor.
        let client = unsafe { sys!(nr::__NR_accept4, listener, 0usize, 0usize, NONBLOCK_CLOEXEC) };
        let Ok(client) = crate::kernel_threads::descriptor::hide(client) else {
            return;
        };
        PROCESS.sysmon.client.set(client as i32);
        self.received = 0;
        self.sent = 0;
        self.be_patient();
        if !may_wait_here(client) || !self.map_page() {
            return self.finish();
        }
        let wanted = PROOF_WANTED;
        // SAFETY: a live buffer.
        let sent = unsafe {
            sys!(
                nr::__NR_sendto,
                client,
                wanted.as_ptr(),
                wanted.len(),
                NOW,
                0usize
            )
        };
        if sent != wanted.len() as isize {
            self.finish();
        }
    }

    fn be_patient(&mut self) {
        self.deadline_ns = clock::now_ns().saturating_add(PATIENCE_NS);
    }

    /// Maps the page that has the secret in its name.
    fn map_page(&mut self) -> bool {
        const MFD_CLOEXEC: usize = nr::MFD_CLOEXEC as usize;
        const READ: usize = nr::PROT_READ as usize;
        const PRIVATE: usize = nr::MAP_PRIVATE as usize;
        let mut random = [0u8; PROOF_BYTES / 2];
        // SAFETY: a live buffer.
        let got = unsafe {
            sys!(
                nr::__NR_getrandom,
                random.as_mut_ptr(),
                random.len(),
                0usize
            )
        };
        if got != random.len() as isize {
            return false;
        }
        let mut name = [0u8; PROOF_NAME.len() + PROOF_BYTES + 1];
        name[..PROOF_NAME.len()].copy_from_slice(PROOF_NAME);
        for (pair, byte) in self.secret.chunks_exact_mut(2).zip(random) {
            const DIGITS: &[u8; 16] = b"0123456789abcdef";
            pair[0] = DIGITS[usize::from(byte >> 4)];
            pair[1] = DIGITS[usize::from(byte & 15)];
        }
        name[PROOF_NAME.len()..][..PROOF_BYTES].copy_from_slice(&self.secret);
        // SAFETY: a name that ends in 0, and a mapping wherever there is room; nothing reads it.
        let page = unsafe {
            let file = sys!(nr::__NR_memfd_create, name.as_ptr(), MFD_CLOEXEC);
            if is_err(file) {
                return false;
            }
            let page = sys!(
                nr::__NR_mmap,
                0usize,
                mem::PAGE_SIZE,
                READ,
                PRIVATE,
                file,
                0usize
            );
            sys!(nr::__NR_close, file);
            page
        };
        if is_err(page) {
            return false;
        }
        self.page = core::ptr::with_exposed_provenance_mut(page as usize);
        true
    }

    fn unmap_page(&mut self) {
        let page = core::mem::replace(&mut self.page, null_mut());
        if !page.is_null() {
            // SAFETY: mapped by `map_page`; nothing refers to it.
            unsafe { mem::unmap(page, mem::PAGE_SIZE) };
        }
    }

    /// Takes what the client has sent. Returns false if it is to be dropped.
    fn receive(&mut self) -> bool {
        let room = &mut self.asked[self.received..];
        // SAFETY: a live buffer.
        let got = unsafe {
            let (at, len) = (room.as_mut_ptr(), room.len());
            sys!(nr::__NR_recvfrom, Self::fd(), at, len, NOW, 0usize, 0usize)
        };
        if got <= 0 {
            return got == AGAIN;
        }
        self.received += got as usize;
        if self.received < ASKED_BYTES {
            return true; // the deadline stays
        }
        let (proof, request) = self.asked.split_at(PROOF_BYTES);
        if proof != self.secret {
            return false;
        }
        let request = obey(request);
        self.unmap_page();
        if !self.answer.write(request) {
            return false;
        }
        let may_read = matches!(request.kind, RequestKind::LAYOUT | RequestKind::METRICS);
        if may_read && request.value != 0 {
            self.reads = tracer::reader_comes(peer(Self::fd()).map_or(0, |peer| peer[0]));
        }
        // Events that are recorded for ever are not read now.
        let seconds = request.value as u32;
        if request.kind == RequestKind::RECORD && !matches!(seconds, 0 | u32::MAX) {
            tracer::recorder_comes(peer(Self::fd()).map_or(0, |peer| peer[0]));
        }
        self.be_patient();
        self.send() || self.goes_on_reading()
    }

    /// After the whole answer: returns true if the client needs its connection any longer. Whatever
    /// it sends, or its end, ends the right.
    fn goes_on_reading(&mut self) -> bool {
        let is_whole = self.sent == self.answer.bytes().len();
        self.answer.free();
        self.deadline_ns = clock::now_ns().saturating_add(READING_NS);
        self.reads && is_whole
    }

    /// Sends what the client has room for. Returns false when there is no more to send.
    fn send(&mut self) -> bool {
        let rest = &self.answer.bytes()[self.sent..];
        // SAFETY: a live buffer.
        let sent = unsafe {
            let (at, len) = (rest.as_ptr(), rest.len());
            sys!(nr::__NR_sendto, Self::fd(), at, len, NOW, 0usize, 0usize)
        };
        if sent <= 0 {
            return sent == AGAIN;
        }
        self.be_patient();
        self.sent += sent as usize;
        self.sent < self.answer.bytes().len()
    }
}

/// Returns true for a peer of the process's own user, and for root: others can't prove anything,
/// and would keep those waiting that can.
fn may_wait_here(client: isize) -> bool {
    let mut own = [0u32; 3];
    // SAFETY: the kernel fills live words.
    unsafe {
        let [real, effective, saved] = own.each_mut().map(core::ptr::from_mut);
        sys!(nr::__NR_getresuid, real, effective, saved);
    }
    peer(client as i32).is_some_and(|[_, uid, _]| uid == 0 || own.contains(&uid))
}

/// Returns the peer's process id, user and group, as this process's namespaces name them.
fn peer(client: i32) -> Option<[u32; 3]> {
    const SO_PEERCRED: usize = 17;
    let (mut credentials, mut len) = ([0u32; 3], 12u32);
    // SAFETY: the kernel fills live words.
    let result = unsafe {
        let to = credentials.as_mut_ptr();
        let (option, len) = (SO_PEERCRED, &raw mut len);
        sys!(nr::__NR_getsockopt, client, SOL_SOCKET, option, to, len)
    };
    (result == 0).then_some(credentials)
}

/// Does what is asked. A request that says nonsense changes nothing.
fn obey(bytes: &[u8]) -> Request {
    let request = Request::from_prefix(bytes);
    let Some(request) = request.filter(|request| request.magic == REQUEST_MAGIC) else {
        return Request::new(RequestKind::SNAPSHOT, 0);
    };
    match request.kind {
        RequestKind::CARRIERS => {
            let carriers = request.value.min(u64::from(MAX_WANTED)) as u32;
            PROCESS.set_wanted(carriers);
            shown::show(carriers);
        }
        RequestKind::POLICY => change_policy(request.value),
        RequestKind::SHARE => change_share(request.reserved, request.value),
        RequestKind::QUANTUM => PROCESS.set_quantum_ns(request.value),
        RequestKind::CPU => accounting::count_for(match request.value {
            0 => COUNTED_S,
            seconds => seconds.min(u64::from(u32::MAX)) as u32,
        }),
        RequestKind::LAYOUT if request.reserved != 0 => accounting::count_for(request.reserved),
        RequestKind::RECORD => {
            let capacity = (request.value >> 32) as u32;
            let wakes = request.reserved >> WAKES_SHIFT;
            let samples = request.reserved & ((1 << WAKES_SHIFT) - 1);
            events::record(request.value as u32, capacity, [samples, wakes]);
        }
        _ => {}
    }
    request
}

/// Changes to a built-in policy. The client asks again while a plug-in holds its lock.
fn change_policy(kind: u64) {
    match Kind::from_code(kind.min(99) as u32) {
        Kind::Fifo if kind != 0 => {}
        Kind::Plugin => {}
        kind => {
            PROCESS.first().choose_policy(kind); // the answer says what came of it
        }
    }
}

/// The quota of an engine in percent, 0 for none; or with the highest bit the weight of a group.
fn change_share(number: u32, value: u64) {
    const WEIGHT: u64 = 1 << 63;
    let percent = (value & !WEIGHT).min(u64::from(MAX_PERCENT)) as u32;
    if value & WEIGHT == 0 {
        if let Some(engine) = PROCESS.engines.get(number) {
            engine.set_quota(percent);
        }
    } else if PROCESS.first().queue.kind() != Kind::Plugin {
        let queue = &PROCESS.first().queue;
        let mut weights = queue.shares();
        let is_group = (number as usize) < weights.len() && weights[number as usize] != 0;
        if is_group && number != 0 && (1..=99).contains(&percent) {
            weights[number as usize] = percent;
            let others: u32 = weights[1..].iter().sum();
            weights[0] = 100u32.saturating_sub(others).max(1);
            queue.set_shares(&weights);
        }
    }
}

/// A snapshot as it goes out, in memory of its own.
struct Answer {
    memory: *mut u8,
    room: usize,
    len: usize,
}

impl Answer {
    const fn none() -> Self {
        Self {
            memory: null_mut(),
            room: 0,
            len: 0,
        }
    }

    fn is_there(&self) -> bool {
        !self.memory.is_null()
    }

    fn bytes(&self) -> &[u8] {
        if self.memory.is_null() {
            return &[];
        }
        // SAFETY: so many bytes of the mapping were written.
        unsafe { core::slice::from_raw_parts(self.memory, self.len) }
    }

    fn free(&mut self) {
        let answer = core::mem::replace(self, Self::none());
        if answer.is_there() {
            // SAFETY: mapped by `write`; nothing refers to it.
            unsafe { mem::unmap(answer.memory, answer.room) };
        }
    }

    /// Returns false without memory.
    fn write(&mut self, request: Request) -> bool {
        let asked = PROCESS.engines.get(request.reserved);
        let answer = match request.kind {
            RequestKind::SHARE => asked.map_or(0, |engine| engine.quota() + 1),
            _ => 0,
        };
        let is_stats = request.kind == RequestKind::STATS;
        let is_layout = matches!(request.kind, RequestKind::LAYOUT | RequestKind::RECORD);
        let is_metrics = request.kind == RequestKind::METRICS;
        let threads = if is_stats || is_layout || is_metrics {
            0
        } else {
            PROCESS.threads.iter().count()
        };
        let room = size_of::<Header>()
            + MAX_CARRIERS * size_of::<CarrierRecord>()
            + threads * size_of::<ThreadRecord>()
            + 2 * size_of::<Histogram>()
            + size_of::<BlockingRecords>()
            + size_of::<BlockingSites>()
            + size_of::<Totals>()
            + size_of::<Layout>();
        let Ok(memory) = mem::map(room) else {
            return false;
        };
        (self.memory, self.room, self.len) = (memory, room, 0);
        // Both of one moment: a reader takes their difference for threads that have ended.
        let (live, created) = PROCESS.threads.counts();
        self.write_snapshot(live, threads, answer, is_metrics);
        if is_stats {
            self.add(&delays::wake_ups());
            self.add(&PROCESS.blocking.latest());
            PROCESS.blocking.sites().for_each(|site| self.add(&site));
            self.add(&delays::histogram());
        }
        if is_metrics {
            self.add(&totals::totals(created as u64));
        }
        if is_layout || is_metrics {
            self.add(&layout::layout());
        }
        true
    }

    /// `live` threads are there, and `threads` of them are shown. `ended` is true to show carriers
    /// that have ended, too.
    fn write_snapshot(&mut self, live: usize, threads: usize, answer: u32, ended: bool) {
        let all = || PROCESS.carriers().enumerate();
        let mut exists = [0u64; MAX_CARRIERS / 64]; // those that have ended may begin again
        let shown =
            |(_, carrier): &(usize, &Carrier)| ended || carrier.state() != CarrierState::Ended;
        all()
            .filter(shown)
            .for_each(|(at, _)| exists[at / 64] |= 1 << (at % 64));
        let carriers: u32 = exists.iter().map(|bits| bits.count_ones()).sum();
        let now_ns = clock::now_ns();
        self.add(&Header {
            pid: PROCESS.pid.load(Ordering::Relaxed),
            carriers,
            threads: threads as u64,
            now_ns,
            started_ns: PROCESS.started_ns.load(Ordering::Relaxed),
            live_threads: live as u64,
            wanted: u64::from(PROCESS.first().wanted()),
            extra: u64::from(PROCESS.first().extra()),
            quantum_ns: PROCESS.quantum_ns(),
            flags: if PROCESS.block_events.are_permitted() {
                Header::ALARMS
            } else {
                0
            },
            policy: PolicyKind(PROCESS.first().queue.kind() as u32),
            shares: shares(),
            longest_delay: delays::longest(),
            answer,
            ..Header::new()
        });
        let chosen = |&(at, _): &(usize, &Carrier)| exists[at / 64] & 1 << (at % 64) != 0;
        for (_, carrier) in all().filter(chosen) {
            self.add(&carrier_record(carrier, ended));
        }
        let mut left = threads;
        for thread in PROCESS.threads.iter().take(threads) {
            self.add(&thread_record(thread));
            left -= 1;
        }
        // Threads that ended since they were counted.
        for _ in 0..left {
            let state = raddle_inspect::ThreadState::EXITING;
            self.add(&ThreadRecord {
                state,
                carrier: NO_CARRIER,
                ..ThreadRecord::default()
            });
        }
    }

    fn add(&mut self, record: &impl Wire) {
        let bytes = record.as_bytes();
        if bytes.len() <= self.room - self.len {
            // SAFETY: the mapping has room for them.
            unsafe {
                core::ptr::copy_nonoverlapping(
                    bytes.as_ptr(),
                    self.memory.add(self.len),
                    bytes.len(),
                )
            };
            self.len += bytes.len();
        }
    }
}
