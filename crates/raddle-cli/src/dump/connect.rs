//! Getting the bytes of a snapshot from the process itself.
//!
//! Protocol: connect to the socket of the process; ask the kernel which process listens there, and
//! go on only if it is the right one; prove the right to look into it by mappings that the kernel
//! shows; send the request; read the header, then as much as it announces, and any part after that
//! which was requested. A process that bound the name of another one gets no request.

use std::io::{self, Read, Write};
use std::mem::size_of;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::time::Duration;

use raddle_inspect::{
    BlockingRecords, BlockingSites, Header, Histogram, Layout, PROOF_BYTES, PROOF_NAME,
    PROOF_WANTED, Request, RequestKind, SocketName, Wire,
};
use rustix::net::sockopt::socket_peercred;

use super::process::Process;
use crate::failure::Failure;

const PATIENCE: Duration = Duration::from_secs(5);

/// More than a snapshot of ten million green threads.
const SNAPSHOT_BYTES_MAX: usize = 2 << 30;

/// Sends a request, and returns the answer.
pub(super) fn ask(pid: u32, request: &Request) -> Result<Vec<u8>, Failure> {
    open(pid, request).map(|(answer, _)| answer)
}

/// As [`ask`]; returns the connection, too: with it ends what the process grants for its time.
pub(crate) fn open(pid: u32, request: &Request) -> Result<(Vec<u8>, UnixStream), Failure> {
    let process = Process::find(pid)?;
    let mut stream = connect(&process)?;
    let proof = prove(&mut stream, &process)?;
    // A process that doesn't read the request has closed the socket, and then there is no answer.
    let _ = stream.write_all(&[&proof[..], request.as_bytes()].concat());
    let extra = match request.kind {
        RequestKind::STATS => {
            2 * size_of::<Histogram>() + size_of::<BlockingRecords>() + size_of::<BlockingSites>()
        }
        RequestKind::LAYOUT | RequestKind::RECORD => size_of::<Layout>(),
        _ => 0,
    };
    // A process with an earlier version of the runtime knows no layout.
    let is_optional = matches!(request.kind, RequestKind::LAYOUT | RequestKind::RECORD);
    match read(&stream, extra, is_optional) {
        Ok(answer) => Ok((answer, stream)),
        Err(error) => Err(explain(&error, &process)),
    }
}

/// Explains why there is no whole answer.
fn explain(error: &io::Error, process: &Process) -> Failure {
    let pid = process.pid;
    if let Err(changed) = process.check_program() {
        return changed;
    }
    match error.kind() {
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset if !process.is_ours() => {
            process.belongs_to_another()
        }
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset => Failure::input(
            format!("process {pid} closed the connection before its answer was complete"),
            "try again, or see whether it is ending",
        ),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Failure::input(
            format!(
                "process {pid} did not answer in {} seconds",
                PATIENCE.as_secs()
            ),
            "see whether it is stopped (kill -CONT resumes it), and try again",
        ),
        _ => Failure::input(
            format!("the answer of process {pid} can't be read ({error})"),
            "use the raddle that started it",
        ),
    }
}

/// Connects to the process by its second name, or else by its first: another process may have one
/// of them.
fn connect(process: &Process) -> Result<UnixStream, Failure> {
    let second = process
        .namespace()
        .map(|inode| SocketName::in_namespace(process.own_pid, inode));
    let mut failure = None;
    for name in second.into_iter().chain([SocketName::of(process.own_pid)]) {
        let Ok(stream) = connect_to(&name) else {
            continue;
        };
        match check_peer(&stream, process) {
            Ok(()) => return Ok(stream),
            Err(other) => failure = Some(other),
        }
    }
    Err(failure.unwrap_or_else(|| process.explain_silence()))
}

fn connect_to(name: &SocketName) -> io::Result<UnixStream> {
    let stream = UnixStream::connect_addr(&SocketAddr::from_abstract_name(name.as_bytes())?)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    Ok(stream)
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
fn prove(stream: &mut UnixStream, process: &Process) -> Result<[u8; PROOF_BYTES], Failure> {
    let pid = process.pid;
    let mut wanted = [0; PROOF_WANTED.len()];
    stream
        .read_exact(&mut wanted)
        .map_err(|error| explain(&error, process))?;
    if wanted != PROOF_WANTED {
        return Err(Failure::input(
            format!("process {pid} speaks another protocol"),
            "use the raddle that started it",
        ));
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
                "run this as root",
            )
        })
}

/// Reads a snapshot, and `extra` bytes that follow it, or perhaps don't.
fn read(mut stream: impl Read, extra: usize, is_optional: bool) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; size_of::<Header>()];
    stream.read_exact(&mut bytes)?;
    let invalid = |what: String| io::Error::new(io::ErrorKind::InvalidData, what);
    let header = Header::parse(&bytes).map_err(|error| invalid(error.to_string()))?;
    let total = header
        .total_bytes()
        .filter(|&total| total <= SNAPSHOT_BYTES_MAX);
    let total = total.ok_or_else(|| invalid("it announces an impossible length".into()))?;
    let rest = total + extra - bytes.len();
    // `take` and not a buffer of the announced size: an announcement must not cause an allocation.
    let read = stream.take(rest as u64).read_to_end(&mut bytes)?;
    if read == rest || is_optional && read == rest - extra {
        Ok(bytes)
    } else {
        Err(io::ErrorKind::UnexpectedEof.into())
    }
}
