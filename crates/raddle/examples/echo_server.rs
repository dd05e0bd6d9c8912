//! An echo server: a green thread for each connection, and nothing but std's sockets.
//!
//! `cargo run --release --example echo_server [ADDRESS]`; without an address it tests itself: many
//! clients talk to it at a time.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};

/// Accepts for ever.
fn serve(listener: &TcpListener) -> io::Result<()> {
    loop {
        let (stream, _) = listener.accept()?; // parks this green thread
        raddle::Builder::new()
            .stack_size(64 << 10)
            .spawn(move || echo(stream))?;
    }
}

/// Sends back what comes, until the client ends.
fn echo(mut stream: TcpStream) -> io::Result<()> {
    let mut buffer = [0; 4096];
    loop {
        let count = stream.read(&mut buffer)?;
        if count == 0 {
            return Ok(());
        }
        stream.write_all(&buffer[..count])?;
    }
}

fn client(server: SocketAddr, name: usize) -> io::Result<()> {
    let mut stream = TcpStream::connect(server)?;
    for round in 0..10 {
        let sent = format!("client {name}, round {round}");
        stream.write_all(sent.as_bytes())?;
        let mut received = vec![0; sent.len()];
        stream.read_exact(&mut received)?;
        assert_eq!(received, sent.as_bytes());
    }
    Ok(())
}

/// The run without an address.
pub(crate) fn test_itself() -> io::Result<()> {
    const CLIENTS: usize = 200;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let server = listener.local_addr()?;
    raddle::spawn(move || serve(&listener));
    let clients: Vec<_> = (0..CLIENTS)
        .map(|name| raddle::spawn(move || client(server, name)))
        .collect();
    for client in clients {
        client.join().unwrap()?;
    }
    println!("{CLIENTS} clients were echoed");
    Ok(())
}

fn main() -> io::Result<()> {
    if let Some(address) = std::env::args().nth(1) {
        let listener = TcpListener::bind(address)?;
        println!("echoes on {}", listener.local_addr()?);
        return raddle::spawn(move || serve(&listener)).join().unwrap();
    }
    test_itself()
}
