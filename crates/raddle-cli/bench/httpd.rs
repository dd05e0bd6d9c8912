//! An HTTP server with a thread for each connection. Its argument is the port.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;

const RESPONSE: &[u8] =
    b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 13\r\n\r\nHello, World!";

fn serve(mut connection: TcpStream) {
    let mut request = [0; 4096];
    let _ = connection.set_nodelay(true);
    while matches!(connection.read(&mut request), Ok(1..)) {
        if connection.write_all(RESPONSE).is_err() {
            return;
        }
    }
}

fn main() {
    let port = std::env::args().nth(1).and_then(|port| port.parse().ok());
    let port: u16 = port.expect("the argument is a port");
    let listener = TcpListener::bind(("127.0.0.1", port)).expect("the port is free");
    for connection in listener.incoming().flatten() {
        thread::spawn(|| serve(connection));
    }
}
