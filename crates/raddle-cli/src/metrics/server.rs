//! HTTP for a scraper, of version 1.0 or 1.1: `GET` and `HEAD` of `/metrics`, one request a
//! connection.
//!
//! A connection has a thread and one of [`PLACES`] places. A new connection takes the place of the
//! one that has been without a whole request for the longest time. Where all places have requests,
//! the new one is told to come again later. A client has [`PATIENCE`] for its request and as long
//! for the answer, however slowly it goes on. Requests that wait for the same scrape get the same
//! text.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::exporter::Exporter;
use super::page;
use crate::failure::{Failure, say};

/// See the module.
const PLACES: usize = 32;
/// The most threads, those included that have lost their places and are about to end.
const THREADS_MAX: usize = 4 * PLACES;
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
    places: Mutex<Places>,
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
        places: Mutex::default(),
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

/// The connections that are served, by their numbers, which are in the order of their age.
#[derive(Default)]
struct Places {
    /// `None` for a connection with a whole request.
    taken: BTreeMap<u64, Option<Arc<TcpStream>>>,
    /// The number of the latest connection.
    latest: u64,
}

impl Places {
    /// Gives a new connection a place. Returns its number, and the connection that has lost its
    /// place to it; `None` if all have whole requests.
    fn take(&mut self, stream: &Arc<TcpStream>) -> Option<(u64, Option<Arc<TcpStream>>)> {
        let mut loser = None;
        if self.taken.len() >= PLACES {
            let waits = |(number, stream): (&u64, &Option<_>)| stream.is_some().then_some(*number);
            let oldest = self.taken.iter().find_map(waits)?;
            loser = self.taken.remove(&oldest).flatten();
        }
        self.latest += 1;
        self.taken.insert(self.latest, Some(Arc::clone(stream)));
        Some((self.latest, loser))
    }

    /// The connection has a whole request. Returns true if it still has its place.
    fn keep(&mut self, number: u64) -> bool {
        let place = self.taken.get_mut(&number);
        place.map(|stream| *stream = None).is_some()
    }
}

/// A place among the connections, until it is dropped.
struct Place {
    server: Arc<Server>,
    number: u64,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.server.places().taken.remove(&self.number);
    }
}

/// Tells a client to come again later, and ends its connection.
fn refuse(mut stream: &TcpStream) {
    // A short answer fits into the socket of any client; one that doesn't read it has none.
    let _ = stream.set_nonblocking(true);
    let _ = stream.write_all(BUSY);
    let _ = stream.shutdown(Shutdown::Both);
}

impl Server {
    fn places(&self) -> MutexGuard<'_, Places> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(self: &Arc<Server>, stream: TcpStream) {
        let stream = Arc::new(stream);
        // Each thread has the server, and so has the caller.
        let may_begin = Arc::strong_count(self) <= THREADS_MAX;
        let taken = may_begin.then(|| self.places().take(&stream)).flatten();
        let Some((number, loser)) = taken else {
            return refuse(&stream);
        };
        if let Some(loser) = loser {
            refuse(&loser); // its thread ends
        }
        let server = Arc::clone(self);
        let place = Place { server, number };
        // Without a thread, the connection is closed.
        let _ = thread::Builder::new().spawn(move || {
            // A client that has gone needs no answer.
            let _ = place.server.answer(&stream, place.number);
        });
    }

    fn answer(&self, stream: &TcpStream, number: u64) -> io::Result<()> {
        let until = Instant::now() + PATIENCE;
        let request = Request::read(|to| read_until(stream, to, until))?;
        if !self.places().keep(number) {
            return Ok(()); // it was refused
        }
        let mut allow = "";
        let (status, kind, text) = match request {
            Request::Metrics { .. } => match self.scrape() {
                Ok(text) => ("200 OK", page::CONTENT_TYPE, text),
                Err(_) => ("500 Internal Server Error", PLAIN, "no metrics\n".into()),
            },
            Request::OtherMethod => {
                allow = "Allow: GET, HEAD\r\n";
                let text = "/metrics has GET and HEAD\n";
                ("405 Method Not Allowed", PLAIN, text.into())
            }
            Request::Other { .. } => (
                "404 Not Found",
                PLAIN,
                "GET /metrics is all there is\n".into(),
            ),
            Request::Bad => ("400 Bad Request", PLAIN, "no HTTP request\n".into()),
        };
        let head = format!(
            "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\
             {allow}Connection: close\r\n\r\n",
            text.len()
        );
        let until = Instant::now() + PATIENCE;
        write_until(stream, head.as_bytes(), until)?;
        if !request.is_head() {
            write_until(stream, text.as_bytes(), until)?;
        }
        if request == Request::OtherMethod {
            pass_over_body(stream, until)?;
        }
        Ok(())
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
    /// Of `/metrics`, with another method.
    OtherMethod,
    /// Of anything else.
    Other {
        /// As above.
        head_only: bool,
    },
    Bad,
}

impl Request {
    /// Returns true if the answer has no text.
    fn is_head(self) -> bool {
        matches!(
            self,
            Request::Metrics { head_only: true } | Request::Other { head_only: true }
        )
    }

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
                let Some(path) = path_of(request.path.unwrap_or_default()) else {
                    return Some(Request::Bad);
                };
                let head_only = request.method == Some("HEAD");
                Some(match (request.method, path) {
                    (Some("GET" | "HEAD"), "/metrics") => Request::Metrics { head_only },
                    (_, "/metrics") => Request::OtherMethod,
                    _ => Request::Other { head_only },
                })
            }
            Err(_) => Some(Request::Bad),
        }
    }
}

/// Returns the path of a request's target, in origin form or in absolute form (RFC 9112, section
/// 3.2), without the query; `None` for a URL without a host.
fn path_of(target: &str) -> Option<&str> {
    let scheme = ["http://", "https://"].into_iter().find(|scheme| {
        let begin = target.get(..scheme.len());
        begin.is_some_and(|begin| begin.eq_ignore_ascii_case(scheme))
    });
    let Some(scheme) = scheme else {
        return target.split('?').next();
    };
    let rest = &target[scheme.len()..];
    let (host, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    (!host.is_empty()).then(|| path.split('?').next().unwrap_or_default())
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

/// Reads what is left of a request after the answer: to close the connection before would reset it,
/// and the client might lose the answer (RFC 9112, section 9.6).
fn pass_over_body(stream: &TcpStream, until: Instant) -> io::Result<()> {
    const PIECES_MAX: usize = 64;
    stream.shutdown(Shutdown::Write)?;
    let mut bytes = [0; REQUEST_BYTES_MAX];
    for _ in 0..PIECES_MAX {
        if read_until(stream, &mut bytes, until)? == 0 {
            break;
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
    fn the_absolute_form_of_a_target_is_served() {
        for target in ["http://here:9095/metrics", "HTTPS://[::1]/metrics?x=/y"] {
            let request = read(&[&format!("GET {target} HTTP/1.1\r\nHost: here\r\n\r\n")]);
            assert_eq!(request, Request::Metrics { head_only: false }, "{target}");
        }
    }

    #[test]
    fn other_methods_are_not_allowed() {
        for head in ["POST /metrics", "PUT http://here/metrics", "get /metrics"] {
            let request = read(&[&format!("{head} HTTP/1.1\r\n\r\n")]);
            assert_eq!(request, Request::OtherMethod, "{head}");
        }
    }

    #[test]
    fn the_oldest_client_without_a_request_loses_its_place() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let stream = Arc::new(stream);
        let mut places = Places::default();
        for number in 1..=PLACES as u64 {
            let (taken, loser) = places.take(&stream).unwrap();
            assert!(taken == number && loser.is_none());
        }
        assert!(places.keep(1));
        let (number, loser) = places.take(&stream).unwrap();
        assert!(number == PLACES as u64 + 1 && loser.is_some());
        assert!(!places.keep(2) && places.taken.len() == PLACES);
        (3..=number).for_each(|number| assert!(places.keep(number)));
        assert!(places.take(&stream).is_none());
    }

    #[test]
    fn everything_else_is_not_found_or_bad() {
        for head in [
            "GET /",
            "GET /metric",
            "GET /metrics/",
            "POST /metric",
            "HEAD /metric",
            "GET http://here",
            "GET http://here?/metrics",
            "GET http://here/x/metrics",
            "GET ftp://here/metrics",
            "GET here/metrics",
            "OPTIONS *",
        ] {
            let head_only = head.starts_with("HEAD");
            assert_eq!(
                read(&[&format!("{head} HTTP/1.1\r\n\r\n")]),
                Request::Other { head_only },
                "{head}"
            );
        }
        for bad in [
            "",
            "GET /metrics HTTP/1.1\r\n",
            "\u{1}\u{2}\r\n\r\n",
            "GET /metrics\r\n\r\n",
            "GET http:///metrics HTTP/1.1\r\n\r\n",
        ] {
            assert_eq!(read(&[bad]), Request::Bad, "{bad:?}");
        }
        let long = "a".repeat(4000);
        assert_eq!(read(&["GET /", &long, &long, &long[..187]]), Request::Bad);
        let many = "a: b\r\n".repeat(HEADERS_MAX + 1);
        assert_eq!(read(&["GET /metrics HTTP/1.1\r\n", &many]), Request::Bad);
    }
}
