//! The messages of our own client: one request, always the same, and the end of its answer.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    Http,
    Memcached,
    Redis,
}

/// The bytes of the value that is read from memcached and Redis.
const VALUE_BYTES: usize = 100;
const KEY: &str = "raddle";
const PREPARE: Duration = Duration::from_secs(10);
/// The largest answer.
pub(super) const ANSWER_MOST_BYTES: usize = 64 << 10;

impl Protocol {
    pub(super) fn request(self, port: u16) -> Vec<u8> {
        let text = match self {
            Protocol::Http => format!("GET / HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n"),
            Protocol::Memcached => format!("get {KEY}\r\n"),
            Protocol::Redis => format!("*2\r\n$3\r\nGET\r\n${}\r\n{KEY}\r\n", KEY.len()),
        };
        text.into_bytes()
    }

    /// Stores the value that is read, if the protocol has one.
    pub(super) fn prepare(self, port: u16) -> io::Result<()> {
        let value = "x".repeat(VALUE_BYTES);
        let (request, answer) = match self {
            Protocol::Http => return Ok(()),
            Protocol::Memcached => (
                format!("set {KEY} 0 0 {VALUE_BYTES}\r\n{value}\r\n"),
                "STORED\r\n",
            ),
            Protocol::Redis => (format!("SET {KEY} {value}\r\n"), "+OK\r\n"),
        };
        let mut stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_read_timeout(Some(PREPARE))?;
        stream.write_all(request.as_bytes())?;
        let mut said = vec![0; answer.len()];
        stream.read_exact(&mut said)?;
        if said == answer.as_bytes() {
            Ok(())
        } else {
            Err(io::Error::other("the server stored no value"))
        }
    }

    /// The length of the answer that `bytes` begin with; `None` if it is not complete.
    pub(super) fn answer_bytes(self, bytes: &[u8]) -> Result<Option<usize>, String> {
        match self {
            Protocol::Http => http_answer(bytes),
            Protocol::Memcached => {
                let value = format!("VALUE {KEY} 0 {VALUE_BYTES}\r\n");
                let length = value.len() + VALUE_BYTES + "\r\nEND\r\n".len();
                fixed_answer(bytes, &value, length)
            }
            Protocol::Redis => {
                let value = format!("${VALUE_BYTES}\r\n");
                let length = value.len() + VALUE_BYTES + "\r\n".len();
                fixed_answer(bytes, &value, length)
            }
        }
    }
}

fn fixed_answer(bytes: &[u8], start: &str, length: usize) -> Result<Option<usize>, String> {
    let known = bytes.len().min(start.len());
    if bytes[..known] != start.as_bytes()[..known] {
        return Err(format!("the server answered {}", first_line(bytes)));
    }
    Ok((bytes.len() >= length).then_some(length))
}

/// An answer with a length; other ways to end one are not needed here.
fn http_answer(bytes: &[u8]) -> Result<Option<usize>, String> {
    const END: &[u8] = b"\r\n\r\n";
    let Some(end) = bytes.windows(END.len()).position(|part| part == END) else {
        return Ok(None);
    };
    let head = String::from_utf8_lossy(&bytes[..end]);
    let status = head.split(' ').nth(1).unwrap_or_default();
    if !status.starts_with('2') {
        return Err(format!("the server answered {}", first_line(bytes)));
    }
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length")
            .then(|| value.trim().parse::<usize>().ok())?
    });
    let length = length.ok_or("the server's answer has no Content-Length")?;
    let whole = end + END.len() + length;
    Ok((bytes.len() >= whole).then_some(whole))
}

fn first_line(bytes: &[u8]) -> String {
    let line = bytes
        .split(|byte| *byte == b'\r')
        .next()
        .unwrap_or_default();
    String::from_utf8_lossy(line).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn http_answers_end_by_their_length() {
        let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
        let length = |bytes: &[u8]| Protocol::Http.answer_bytes(bytes);
        assert_eq!(length(answer), Ok(Some(answer.len())));
        assert_eq!(length(&answer[..answer.len() - 1]), Ok(None));
        assert_eq!(length(&answer[..20]), Ok(None));
        assert_eq!(
            length(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\nHTTP"),
            Ok(Some(38))
        );
        let error = length(b"HTTP/1.1 503 Busy\r\n\r\n").unwrap_err();
        assert_eq!(error, "the server answered HTTP/1.1 503 Busy");
        assert!(length(b"HTTP/1.1 200 OK\r\n\r\n").is_err());
    }

    #[test]
    fn values_have_a_known_length() {
        let value = "x".repeat(VALUE_BYTES);
        let redis = format!("$100\r\n{value}\r\n");
        let memcached = format!("VALUE raddle 0 100\r\n{value}\r\nEND\r\n");
        for (protocol, answer) in [(Protocol::Redis, redis), (Protocol::Memcached, memcached)] {
            let bytes = answer.as_bytes();
            assert_eq!(protocol.answer_bytes(bytes), Ok(Some(bytes.len())));
            assert_eq!(protocol.answer_bytes(&bytes[..bytes.len() - 1]), Ok(None));
        }
        let error = Protocol::Memcached.answer_bytes(b"END\r\n").unwrap_err();
        assert_eq!(error, "the server answered END");
    }
}
