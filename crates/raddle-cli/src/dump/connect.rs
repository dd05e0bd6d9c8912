//! Getting the bytes of a snapshot from the process itself.
//!
//! Protocol: connect to the socket of the process; ask the kernel which process listens there, and
//! go on only if it is the right one; prove the right to look into it by mappings that the kernel
//! shows; send the request; read the header, then as much as it announces, and any part after that
//! which was requested. A process that bound the name of another one gets no request.
//!
//! The process may be stopped, have a full queue of clients, or never answer. So each step has a
//! deadline, connecting included.

use std::io::{self, Read, Write};
use std::mem::size_of;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use raddle_inspect::{
    BlockingRecords, BlockingSites, Header, Histogram, Layout, PROOF_BYTES, PROOF_NAME,
    PROOF_WANTED, Request, RequestKind, SocketName, Totals, Wire,
};
use rustix::net::sockopt::{Timeout, set_socket_timeout, socket_peercred};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect as connect_socket, socket_with,
};

use super::process::Process;
use crate::failure::{Failure, more_rights};

/// How long the process may take until its answer begins, from the first try to connect on.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long its answer may take from its begin to its end.
const ANSWER_PATIENCE: Duration = Duration::from_secs(10);

/// More than a snapshot of ten million green threads.
const SNAPSHOT_BYTES_MAX: usize = 2 << 30;

/// Sends a request, and returns the answer.
pub(crate) fn ask(pid: u32, request: &Request) -> Result<Vec<u8>, Failure> {
    open(pid, request).map(|(answer, _)| answer)
}

/// Why a process gave no answer.
pub(crate) enum Unanswered {
    /// It is stopped, or did nothing until the deadline: its memory may be readable.
    Silent(Failure),
    Refused(Failure),
}

impl From<Failure> for Unanswered {
    fn from(failure: Failure) -> Unanswered {
        Unanswered::Refused(failure)
    }
}

impl From<Unanswered> for Failure {
    fn from(unanswered: Unanswered) -> Failure {
        match unanswered {
            Unanswered::Silent(failure) | Unanswered::Refused(failure) => failure,
        }
    }
}

/// As [`ask`]; returns the connection, too: with it ends what the process grants for its time.
pub(crate) fn open(pid: u32, request: &Request) -> Result<(Vec<u8>, UnixStream), Failure> {
    Ok(try_open(pid, request)?)
}

/// As [`open`]; tells a process that is silent from one that refuses.
pub(crate) fn try_open(pid: u32, request: &Request) -> Result<(Vec<u8>, UnixStream), Unanswered> {
    let process = Process::find(pid)?;
    if let Some(stopped) = process.is_stopped() {
        return Err(Unanswered::Silent(stopped));
    }
    open_until(
        &process,
        request,
        Instant::now() + PATIENCE,
        ANSWER_PATIENCE,
    )
}

/// As [`try_open`], with an answer that begins by `deadline` and takes no longer than `answer`.
pub(crate) fn open_until(
    process: &Process,
    request: &Request,
    deadline: Instant,
    answer: Duration,
) -> Result<(Vec<u8>, UnixStream), Unanswered> {
    let mut link = connect(process, deadline)?;
    let proof = prove(&mut link, process)?;
    // A process that doesn't read the request has closed the socket, and then there is no answer.
    // The few bytes fit into the socket of any process.
    let _ = link
        .stream
        .write_all(&[&proof[..], request.as_bytes()].concat());
    let extra = match request.kind {
        RequestKind::STATS => {
            2 * size_of::<Histogram>() + size_of::<BlockingRecords>() + size_of::<BlockingSites>()
        }
        RequestKind::LAYOUT | RequestKind::RECORD => size_of::<Layout>(),
        RequestKind::METRICS => size_of::<Totals>() + size_of::<Layout>(),
        _ => 0,
    };
    // A process with an earlier version of the runtime knows no layout.
    let is_optional = matches!(
        request.kind,
        RequestKind::LAYOUT | RequestKind::RECORD | RequestKind::METRICS
    );
    match read(&mut link, extra, is_optional, answer) {
        Ok(answer) => Ok((answer, link.stream)),
        Err(error) => Err(explain(&error, process)),
    }
}

/// A connection on which reads end at a deadline.
struct Link {
    stream: UnixStream,
    deadline: Instant,
}

impl Read for Link {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.stream.set_read_timeout(Some(left))?;
        self.stream.read(to)
    }
}

/// Explains why the process closed a connection before it asked for a proof. It can't ask if it can
/// make no page with a name.
fn explain_refusal(error: &io::Error, process: &Process) -> Unanswered {
    let refused = explain(error, process);
    let is_closed = matches!(
        error.kind(),
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset
    );
    if !is_closed || !process.is_ours() || process.check_program().is_err() {
        return refused;
    }
    Unanswered::Silent(if process.has_filter() {
        Failure::input(
            format!("a filter forbids process {} to answer", process.pid),
            "permit memfd_create in it; raddle dump needs no answer",
        )
    } else {
        refused.into()
    })
}

/// Explains why there is no whole answer.
fn explain(error: &io::Error, process: &Process) -> Unanswered {
    let pid = process.pid;
    if let Err(changed) = process.check_program() {
        return changed.into();
    }
    Unanswered::Refused(match error.kind() {
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset if !process.is_ours() => {
            process.belongs_to_another()
        }
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset => Failure::input(
            format!("process {pid} closed the connection before its answer was complete"),
            "try again, or see whether it is ending",
        ),
        kind if is_late(kind) => {
            return Unanswered::Silent(Failure::input(
                format!("process {pid} did not answer in time"),
                "try again, or see what its kernel threads do",
            ));
        }
        _ => Failure::input(
            format!("the answer of process {pid} can't be read ({error})"),
            "use the raddle that started it",
        ),
    })
}

fn is_late(kind: io::ErrorKind) -> bool {
    matches!(kind, io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

/// Connects to the process by its second name, or else by its first: another process may have one
/// of them.
fn connect(process: &Process, deadline: Instant) -> Result<Link, Unanswered> {
    let second = process
        .namespace()
        .map(|inode| SocketName::in_namespace(process.own_pid, inode));
    let mut failure = None;
    for name in second.into_iter().chain([SocketName::of(process.own_pid)]) {
        match connect_to(name.as_bytes(), deadline) {
            Ok(stream) => match check_peer(&stream, process) {
                Ok(()) => return Ok(Link { stream, deadline }),
                Err(other) => failure = Some(other.into()),
            },
            Err(error) if is_late(error.kind()) => {
                let what = format!("the queue of process {} for clients is full", process.pid);
                let cure = "try again when other tools have left it";
                failure = Some(Unanswered::Silent(Failure::input(what, cure)));
            }
            Err(_) => {}
        }
    }
    Err(failure.unwrap_or_else(|| process.explain_silence().into()))
}

/// Connects until the deadline: a queue that is full makes the kernel wait.
fn connect_to(name: &[u8], deadline: Instant) -> io::Result<UnixStream> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(io::ErrorKind::TimedOut.into());
    }
    let flags = SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    set_socket_timeout(&socket, Timeout::Send, Some(left))?;
    let address = SocketAddrUnix::new_abstract_name(name)?;
    rustix::io::retry_on_intr(|| connect_socket(&socket, &address))?;
    Ok(socket.into())
}

/// Returns the process that listens on an abstract socket.
pub(crate) fn listener(name: &str) -> Option<u32> {
    const PATIENCE: Duration = Duration::from_millis(100);
    let stream = connect_to(name.as_bytes(), Instant::now() + PATIENCE).ok()?;
    let peer = socket_peercred(&stream).ok()?;
    Some(peer.pid.as_raw_nonzero().get().unsigned_abs())
}

/// Checks the listener's process and user. The user is that of the time when it began to listen:
/// root, if the process has given up its rights since.
fn check_peer(stream: &UnixStream, process: &Process) -> Result<(), Failure> {
    const ROOT: u32 = 0;
    let peer = socket_peercred(stream).map_err(|_| process.explain_silence())?;
    let peer_pid = peer.pid.as_raw_nonzero().get().unsigned_abs();
    let uid = peer.uid.as_raw();
    if peer_pid == process.pid && (uid == process.user || uid == ROOT) {
        return Ok(());
    }
    let pid = process.pid;
    Err(Failure::input(
        format!("the socket of process {pid} belongs to process {peer_pid} of user {uid}"),
        "trust nothing it says, and find out why it poses as another",
    ))
}

/// Returns the proof: bytes that the kernel shows only to processes that may look into this one.
fn prove(stream: &mut Link, process: &Process) -> Result<[u8; PROOF_BYTES], Unanswered> {
    let pid = process.pid;
    let mut wanted = [0; PROOF_WANTED.len()];
    stream
        .read_exact(&mut wanted)
        .map_err(|error| explain_refusal(&error, process))?;
    if wanted != PROOF_WANTED {
        let what = format!("process {pid} speaks another protocol");
        return Err(Failure::input(what, "use the raddle that started it").into());
    }
    let maps = std::fs::read(format!("/proc/{pid}/maps")).unwrap_or_default();
    let at = maps
        .windows(PROOF_NAME.len())
        .position(|text| text == PROOF_NAME)
        .map(|at| at + PROOF_NAME.len());
    at.and_then(|at| maps.get(at..)?.first_chunk().copied())
        .ok_or_else(|| {
            Failure::input(
                format!("the kernel doesn't let this user look into process {pid}"),
                more_rights(),
            )
            .into()
        })
}

/// Reads a snapshot, and `extra` bytes that follow it, or perhaps don't.
/// The rest of it may take as long as `patience`.
fn read(
    link: &mut Link,
    extra: usize,
    is_optional: bool,
    patience: Duration,
) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; size_of::<Header>()];
    link.read_exact(&mut bytes)?;
    link.deadline = Instant::now() + patience;
    let invalid = |what: String| io::Error::new(io::ErrorKind::InvalidData, what);
    let header = Header::parse(&bytes).map_err(|error| invalid(error.to_string()))?;
    let total = header
        .total_bytes()
        .filter(|&total| total <= SNAPSHOT_BYTES_MAX);
    let total = total.ok_or_else(|| invalid("it announces an impossible length".into()))?;
    let rest = total + extra - bytes.len();
    // `take` and not a buffer of the announced size: an announcement must not cause an allocation.
    let read = link.take(rest as u64).read_to_end(&mut bytes)?;
    // The part behind the snapshot may be another version's, of another length.
    if read == rest || is_optional && read >= rest - extra {
        Ok(bytes)
    } else {
        Err(io::ErrorKind::UnexpectedEof.into())
    }
}
