//! HTTP's hello, world: a green thread for each connection, which is kept open.
//!
//! `cargo run --release --example http_hello [ADDRESS]`; without an address it tests itself.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 13\r\n\r\nhello, world\n";

fn serve(listener: &TcpListener) -> io::Result<()> {
    loop {
        let (stream, _) = listener.accept()?;
        raddle::Builder::new()
            .stack_size(64 << 10)
            .spawn(move || answer(stream))?;
    }
}

/// Answers each request without a body; the first line that is empty ends it.
fn answer(mut stream: TcpStream) -> io::Result<()> {
    let mut lines = BufReader::new(stream.try_clone()?);
    let mut line = String::new();
    loop {
        line.clear();
        if lines.by_ref().take(8192).read_line(&mut line)? == 0 {
            return Ok(()); // the client has enough
        }
        if line == "\r\n" {
            stream.write_all(ANSWER)?;
        }
    }
}

/// The run without an address.
pub(crate) fn test_itself() -> io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let server = listener.local_addr()?;
    raddle::spawn(move || serve(&listener));
    let clients: Vec<_> = (0..50)
        .map(|_| {
            raddle::spawn(move || -> io::Result<()> {
                let mut stream = TcpStream::connect(server)?;
                for _ in 0..10 {
                    stream.write_all(b"GET / HTTP/1.1\r\nHost: here\r\n\r\n")?;
                    let mut answer = vec![0; ANSWER.len()];
                    stream.read_exact(&mut answer)?;
                    assert_eq!(answer, ANSWER);
                }
                Ok(())
            })
        })
        .collect();
    for client in clients {
        client.join().unwrap()?;
    }
    println!("500 requests were answered");
    Ok(())
}

fn main() -> io::Result<()> {
    if let Some(address) = std::env::args().nth(1) {
        let listener = TcpListener::bind(address)?;
        println!("serves on http://{}", listener.local_addr()?);
        return raddle::spawn(move || serve(&listener)).join().unwrap();
    }
    test_itself()
}
