//! Getting the bytes of a snapshot from the process itself.
//!
//! Protocol: connect to the socket of the process; ask the kernel who listens there, and go on
//! only if it is that process; send the request; read the header, then as much as it announces,
//! and what follows if that was asked for. Whoever bound the name of another process gets a
//! sentence and no attention.

use std::io::{self, Read, Write};
use std::mem::size_of;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::time::Duration;

use raddle_inspect::{Header, Histogram, PinPlaces, Pins, Request, RequestKind, SocketName, Wire};
use rustix::net::sockopt::socket_peercred;

use super::process::Process;
use crate::failure::Failure;

const PATIENCE: Duration = Duration::from_secs(5);

/// More than a snapshot of ten million green threads.
const SNAPSHOT_BYTES_MAX: usize = 2 << 30;

pub fn ask(pid: u32, request: &Request) -> Result<Vec<u8>, Failure> {
    let process = Process::find(pid)?;
    let mut stream = connect(&process).map_err(|_| process.explain_silence())?;
    check_peer(&stream, &process)?;
    // Who doesn't read it has closed, and then there is no answer either.
    let _ = stream.write_all(request.as_bytes());
    let extra = match request.kind {
        RequestKind::STATS => size_of::<Histogram>() + size_of::<Pins>() + size_of::<PinPlaces>(),
        _ => 0,
    };
    read(stream, extra).map_err(|error| match error.kind() {
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
    })
}

fn connect(process: &Process) -> io::Result<UnixStream> {
    let name = SocketName::of(process.own_pid);
    let stream = UnixStream::connect_addr(&SocketAddr::from_abstract_name(name.as_bytes())?)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    Ok(stream)
}

fn check_peer(stream: &UnixStream, process: &Process) -> Result<(), Failure> {
    let peer = socket_peercred(stream).map_err(|_| process.explain_silence())?;
    let peer_pid = peer.pid.as_raw_nonzero().get().unsigned_abs();
    if (peer_pid, peer.uid.as_raw()) == (process.pid, process.user) {
        return Ok(());
    }
    let (pid, uid) = (process.pid, peer.uid.as_raw());
    Err(Failure::input(
        format!("the socket of process {pid} belongs to process {peer_pid} of user {uid}"),
        "trust nothing it says, and find out why it poses as another",
    ))
}

/// A snapshot, and `extra` bytes that follow it.
fn read(mut stream: impl Read, extra: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; size_of::<Header>()];
    stream.read_exact(&mut bytes)?;
    let invalid = |what: String| io::Error::new(io::ErrorKind::InvalidData, what);
    let header = Header::parse(&bytes).map_err(|error| invalid(error.to_string()))?;
    let total = header
        .total_bytes()
        .filter(|&total| total <= SNAPSHOT_BYTES_MAX);
    let total = total.ok_or_else(|| invalid("it announces an impossible length".into()))?;
    let rest = total + extra - bytes.len();
    // `take` and not a buffer of the announced size: an announcement allocates nothing.
    let read = stream.take(rest as u64).read_to_end(&mut bytes)?;
    match read == rest {
        true => Ok(bytes),
        false => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}
