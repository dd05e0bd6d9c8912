//! A web crawler: a green thread for each page, many sockets at a time, plain blocking code.
//!
//! `cargo run --release --example crawler [HOST:PORT]` follows links within one host over HTTP;
//! without a host it tests itself on a server of its own.

use std::collections::HashSet;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, mpsc};

/// How many pages are fetched at most.
const LIMIT: usize = 1000;

/// One page's text.
fn fetch(host: &str, path: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect(host)?;
    write!(stream, "GET {path} HTTP/1.0\r\nHost: {host}\r\n\r\n")?;
    let mut page = Vec::new();
    stream.take(1 << 20).read_to_end(&mut page)?;
    Ok(String::from_utf8_lossy(&page).into_owned())
}

/// Paths on the same host that a page refers to.
fn links(page: &str) -> impl Iterator<Item = &str> {
    let rests = page.split("href=\"").skip(1);
    let targets = rests.filter_map(|rest| rest.split('"').next());
    targets.filter(|target| target.starts_with('/'))
}

struct Crawl {
    host: String,
    seen: Mutex<HashSet<String>>,
}

/// Fetches a page, and starts a thread for each new page that it refers to. The crawl is over when
/// the last `found` is dropped.
fn visit(crawl: &Arc<Crawl>, path: String, found: &mpsc::Sender<(String, io::Result<usize>)>) {
    let page = fetch(&crawl.host, &path);
    for link in page.iter().flat_map(|page| links(page)) {
        let mut seen = crawl.seen.lock().unwrap();
        if seen.len() < LIMIT && seen.insert(link.to_owned()) {
            let (crawl, found, link) = (Arc::clone(crawl), found.clone(), link.to_owned());
            raddle::spawn(move || visit(&crawl, link, &found));
        }
    }
    let _ = found.send((path, page.map(|page| page.len())));
}

fn crawl(host: String) -> usize {
    let seen = Mutex::new(HashSet::from(["/".to_owned()]));
    let crawl = Arc::new(Crawl { host, seen });
    let (found, pages) = mpsc::channel();
    raddle::spawn(move || visit(&crawl, "/".to_owned(), &found));
    let fetched = pages.into_iter().filter(|(path, bytes)| match bytes {
        Ok(_) => true,
        Err(error) => {
            eprintln!("{path}: {error}");
            false
        }
    });
    fetched.count()
}

/// Serves a tree of pages: `/n` refers to its three children.
fn serve_a_tree(listener: &TcpListener) -> io::Result<()> {
    loop {
        let (mut stream, _) = listener.accept()?;
        raddle::spawn(move || -> io::Result<()> {
            let mut request = Vec::new();
            let mut buffer = [0; 1024];
            while !request.ends_with(b"\r\n\r\n") {
                match stream.read(&mut buffer)? {
                    0 => return Ok(()),
                    count => request.extend_from_slice(&buffer[..count]),
                }
            }
            let request = String::from_utf8_lossy(&request);
            let path = request.split(' ').nth(1).unwrap_or("/");
            let number: usize = path[1..].parse().unwrap_or(0);
            let children = (3 * number + 1..=3 * number + 3).filter(|&child| child < 364);
            write!(stream, "HTTP/1.0 200 OK\r\n\r\n")?;
            for child in children {
                writeln!(stream, "<a href=\"/{child}\">{child}</a>")?;
            }
            Ok(())
        });
    }
}

/// The run without a host.
pub(crate) fn test_itself() -> io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let host = listener.local_addr()?.to_string();
    raddle::spawn(move || serve_a_tree(&listener));
    let pages = crawl(host);
    assert_eq!(pages, 364);
    println!("{pages} pages were fetched");
    Ok(())
}

fn main() -> io::Result<()> {
    if let Some(host) = std::env::args().nth(1) {
        println!("{} pages", crawl(host));
        return Ok(());
    }
    test_itself()
}
