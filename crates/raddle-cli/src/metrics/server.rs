//! HTTP for a scraper, of version 1.0 or 1.1: `GET` and `HEAD` of `/metrics`, one request a
//! connection.
//!
//! A connection has a thread, of which there are [`CONNECTIONS_MAX`]; further ones are
//! told to come again later. A
//! client has [`PATIENCE`] for its request and as long for the answer, however slowly it goes on.
//! Requests that wait for the same scrape get the same text.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::exporter::Exporter;
use super::page;
use crate::failure::{Failure, say};

const CONNECTIONS_MAX: usize = 32;
const BUSY: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nRetry-After: 5\r\n\
    Connection: close\r\n\r\n";
/// See the module.
const PATIENCE: Duration = Duration::from_secs(5);
const REQUEST_BYTES_MAX: usize = 8192;
const HEADERS_MAX: usize = 64;
/// How long to wait if no connection can be accepted, because there are no descriptors.
const PAUSE: Duration = Duration::from_millis(100);

/// What all connections share.
struct Server {
    exporter: Exporter,
    connections: AtomicUsize,
    latest: Mutex<Latest>,
}

/// The latest scrape.
#[derive(Default)]
struct Latest {
    began: Option<Instant>,
    text: Arc<str>,
}

/// Serves until the process is ended.
pub(super) fn serve(address: SocketAddr, exporter: Exporter) -> Result<ExitCode> {
    let listener = TcpListener::bind(address).map_err(|error| {
        Failure::input(
            format!("{address} can't be listened on ({error})"),
            "give another address or port",
        )
    })?;
    let address = listener.local_addr()?;
    say(&format!("metrics at http://{address}/metrics"));
    let server = Arc::new(Server {
        exporter,
        connections: AtomicUsize::new(0),
        latest: Mutex::default(),
    });
    loop {
        match listener.accept() {
            Ok((stream, _)) => server.begin(stream),
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
            Err(_) => thread::sleep(PAUSE),
        }
    }
}

/// A place among the connections, until it is dropped.
struct Place(Arc<Server>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Server {
    fn begin(self: &Arc<Server>, stream: TcpStream) {
        let before = self.connections.fetch_add(1, Ordering::Relaxed);
        let place = Place(Arc::clone(self));
        if before >= CONNECTIONS_MAX {
            // A short answer fits into the socket of any client; one that doesn't read it has none.
            let _ = stream.set_nonblocking(true);
            let _ = (&stream).write_all(BUSY);
            return;
        }
        // Without a thread, the connection is closed.
        let _ = thread::Builder::new().spawn(move || {
            // A client that has gone needs no answer.
            let _ = place.0.answer(&stream);
        });
    }

    fn answer(&self, stream: &TcpStream) -> io::Result<()> {
        let until = Instant::now() + PATIENCE;
        let request = Request::read(|to| read_until(stream, to, until))?;
        let (status, kind, text) = match request {
            Request::Metrics { .. } => match self.scrape() {
                Ok(text) => ("200 OK", page::CONTENT_TYPE, text),
                Err(_) => ("500 Internal Server Error", PLAIN, "no metrics\n".into()),
            },
            Request::Other => (
                "404 Not Found",
                PLAIN,
                "GET /metrics is all there is\n".into(),
            ),
            Request::Bad => ("400 Bad Request", PLAIN, "no HTTP request\n".into()),
        };
        let head = format!(
            "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\
             Connection: close\r\n\r\n",
            text.len()
        );
        let until = Instant::now() + PATIENCE;
        write_until(stream, head.as_bytes(), until)?;
        if matches!(request, Request::Metrics { head_only: true }) {
            return Ok(());
        }
        write_until(stream, text.as_bytes(), until)
    }

    /// Returns the text of a scrape that began after this call.
    fn scrape(&self) -> Result<Arc<str>> {
        let asked = Instant::now();
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        if latest.began.is_none_or(|began| began < asked) {
            let began = Instant::now();
            let text = page::text(self.exporter.collect())?.into();
            *latest = Latest {
                began: Some(began),
                text,
            };
        }
        Ok(Arc::clone(&latest.text))
    }
}

const PLAIN: &str = "text/plain; charset=utf-8";

/// What a client wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Request {
    Metrics {
        /// Without the text.
        head_only: bool,
    },
    Other,
    Bad,
}

impl Request {
    /// Reads the head of a request; a body is left unread.
    fn read(mut read: impl FnMut(&mut [u8]) -> io::Result<usize>) -> io::Result<Request> {
        let mut bytes = [0; REQUEST_BYTES_MAX];
        let mut length = 0;
        while length < bytes.len() {
            let got = read(&mut bytes[length..])?;
            if got == 0 {
                break;
            }
            length += got;
            if let Some(request) = Request::parse(&bytes[..length]) {
                return Ok(request);
            }
        }
        Ok(Request::Bad)
    }

    /// `None` if there is to be more.
    fn parse(bytes: &[u8]) -> Option<Request> {
        let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
        let mut request = httparse::Request::new(&mut headers);
        match request.parse(bytes) {
            Ok(status) if status.is_partial() => None,
            Ok(_) => {
                let path = request.path.unwrap_or_default();
                let path = path.split('?').next();
                Some(match (request.method, path) {
                    (Some("GET"), Some("/metrics")) => Request::Metrics { head_only: false },
                    (Some("HEAD"), Some("/metrics")) => Request::Metrics { head_only: true },
                    _ => Request::Other,
                })
            }
            Err(_) => Some(Request::Bad),
        }
    }
}

/// Returns the time that is left.
fn left(until: Instant) -> io::Result<Duration> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(io::ErrorKind::TimedOut.into());
    }
    Ok(left)
}

fn read_until(mut stream: &TcpStream, to: &mut [u8], until: Instant) -> io::Result<usize> {
    stream.set_read_timeout(Some(left(until)?))?;
    stream.read(to)
}

fn write_until(mut stream: &TcpStream, mut bytes: &[u8], until: Instant) -> io::Result<()> {
    while !bytes.is_empty() {
        stream.set_write_timeout(Some(left(until)?))?;
        match stream.write(bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => bytes = &bytes[written..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pieces: &[&str]) -> Request {
        let mut pieces = pieces.iter();
        let request = Request::read(|to| {
            let piece = pieces.next().copied().unwrap_or_default();
            to[..piece.len()].copy_from_slice(piece.as_bytes());
            Ok(piece.len())
        });
        request.unwrap()
    }

    #[test]
    fn a_request_may_come_in_pieces() {
        const METRICS: Request = Request::Metrics { head_only: false };
        let whole = "GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n";
        assert_eq!(read(&[whole]), METRICS);
        let pieces: Vec<&str> = whole.split_inclusive('/').collect();
        assert_eq!(read(&pieces), METRICS);
        assert_eq!(read(&["GET /metrics?name=x HTTP/1.0\r\n\r\n"]), METRICS);
        let head = Request::Metrics { head_only: true };
        assert_eq!(read(&["HEAD /metrics HTTP/1.1\r\n\r\n"]), head);
    }

    #[test]
    fn everything_else_is_not_found_or_bad() {
        for head in [
            "GET /",
            "GET /metric",
            "GET /metrics/",
            "POST /metrics",
            "HEAD /metric",
        ] {
            assert_eq!(
                read(&[&format!("{head} HTTP/1.1\r\n\r\n")]),
                Request::Other,
                "{head}"
            );
        }
        for bad in [
            "",
            "GET /metrics HTTP/1.1\r\n",
            "\u{1}\u{2}\r\n\r\n",
            "GET /metrics\r\n\r\n",
        ] {
            assert_eq!(read(&[bad]), Request::Bad, "{bad:?}");
        }
        let long = "a".repeat(4000);
        assert_eq!(read(&["GET /", &long, &long, &long[..187]]), Request::Bad);
        let many = "a: b\r\n".repeat(HEADERS_MAX + 1);
        assert_eq!(read(&["GET /metrics HTTP/1.1\r\n", &many]), Request::Bad);
    }
}
