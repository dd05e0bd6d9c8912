//! The other ends of sockets: of connected Unix sockets by the kernel's socket diagnostics
//! (sock_diag(7)), and of TCP connections within the machine by `/proc/PID/net`.

use std::collections::HashMap;
use std::fs;

use rustix::fd::OwnedFd;
use rustix::net::netlink::{SOCK_DIAG, SocketAddrNetlink};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, sendto, socket_with,
};

/// The most connections that are read.
const CONNECTIONS_MAX: usize = 1 << 17;

/// The files with connections, in `/proc/PID/net`. The kernel goes through all connections for
/// each.
const FILES: [&str; 2] = ["tcp", "tcp6"];

/// An address and a port, as `/proc/PID/net/tcp` has them.
type Address = String;

/// See the module. A connection has the same ends as long as it lives, and its inode is not given
/// to another one for long: what was read stays good.
pub(super) struct Sockets {
    pid: u32,
    tcp: Tcp,
    /// The files of connections that were not read since the last call of [`Sockets::may_read`].
    unread: &'static [&'static str],
    unix: Option<Option<OwnedFd>>,
}

#[derive(Default)]
struct Tcp {
    /// The own address and the other one of a socket, by its inode.
    addresses: HashMap<u64, (Address, Address)>,
    inodes: HashMap<(Address, Address), u64>,
}

impl Sockets {
    pub(super) fn new(pid: u32) -> Sockets {
        Sockets {
            pid,
            tcp: Tcp::default(),
            unread: &FILES,
            unix: None,
        }
    }

    /// From now on, connections may be read once more.
    pub(super) fn may_read(&mut self) {
        self.unread = &FILES;
    }

    /// Returns the inode of the socket at the other end, if that is on this machine.
    pub(super) fn peer(&mut self, inode: u64) -> Option<u64> {
        if let Some(peer) = self.tcp.peer(inode) {
            return Some(peer);
        }
        if self.tcp.listens(inode) {
            return None;
        }
        let pid = self.pid;
        while let [file, rest @ ..] = self.unread {
            if self.unread.len() == FILES.len() {
                self.tcp = Tcp::default();
            }
            self.tcp.read(pid, file);
            self.unread = rest;
            if let Some(peer) = self.tcp.peer(inode) {
                return Some(peer);
            }
            if self.tcp.listens(inode) {
                return None;
            }
        }
        if self.tcp.addresses.contains_key(&inode) {
            return None;
        }
        let unix = self.unix.get_or_insert_with(|| open(pid));
        unix_peer(unix.as_ref()?, inode)
    }
}

impl Tcp {
    fn peer(&self, inode: u64) -> Option<u64> {
        let (own, other) = self.addresses.get(&inode)?;
        self.inodes.get(&(other.clone(), own.clone())).copied()
    }

    /// Returns true if it is known that a socket has no other end.
    fn listens(&self, inode: u64) -> bool {
        let known = self.addresses.get(&inode);
        known.is_some_and(|(_, other)| other.ends_with(":0000"))
    }

    /// Reads connections of a process's network.
    fn read(&mut self, pid: u32, file: &str) {
        let path = format!("/proc/{pid}/net/{file}");
        let text = fs::read_to_string(path).unwrap_or_default();
        for (own, other, inode) in text.lines().filter_map(connection).take(CONNECTIONS_MAX) {
            self.inodes.insert((own.clone(), other.clone()), inode);
            self.addresses.insert(inode, (own, other));
        }
    }
}

/// Returns the own address, the other one and the inode of a line of `/proc/PID/net/tcp`.
fn connection(line: &str) -> Option<(Address, Address, u64)> {
    let mut fields = line.split_whitespace().skip(1);
    let (own, other) = (fields.next()?, fields.next()?);
    let inode = fields.nth(6)?.parse().ok().filter(|&inode| inode != 0)?;
    Some((shortened(own), shortened(other), inode))
}

/// Returns an IPv4 address that stands in IPv6 as the address that it is.
fn shortened(address: &str) -> Address {
    const MAPPED: &str = "0000000000000000FFFF0000";
    address.strip_prefix(MAPPED).unwrap_or(address).to_owned()
}

/// Opens the kernel's diagnostics, which are about the own network: of another one it says nothing.
fn open(pid: u32) -> Option<OwnedFd> {
    let network = |process: &str| fs::read_link(format!("/proc/{process}/ns/net"));
    if network("self").ok()? != network(&pid.to_string()).ok()? {
        return None;
    }
    let netlink = AddressFamily::NETLINK;
    let flags = SocketFlags::CLOEXEC;
    socket_with(netlink, SocketType::DGRAM, flags, Some(SOCK_DIAG)).ok()
}

/// Bytes of a message's head (`struct nlmsghdr`).
const HEAD: usize = 16;
/// Bytes of a question for a Unix socket (`struct unix_diag_req`), and what an answer has before
/// its attributes (`struct unix_diag_msg`).
const QUESTION: usize = 24;
const ANSWER: usize = 16;

/// Asks for the peer of a Unix socket.
fn unix_peer(diagnostics: &OwnedFd, inode: u64) -> Option<u64> {
    let question = question(u32::try_from(inode).ok()?);
    let kernel = SocketAddrNetlink::new(0, 0);
    sendto(diagnostics, &question, SendFlags::empty(), &kernel).ok()?;
    let mut answer = [0; 1024];
    let (length, _) = recv(diagnostics, &mut answer, RecvFlags::DONTWAIT).ok()?;
    peer_of(answer.get(..length)?).map(u64::from)
}

fn question(inode: u32) -> Vec<u8> {
    const SOCK_DIAG_BY_FAMILY: u16 = 20;
    const REQUEST: u16 = 1;
    const AF_UNIX: u8 = 1;
    const ALL_STATES: u32 = u32::MAX;
    const SHOW_PEER: u32 = 4;
    const ANY_COOKIE: [u8; 8] = [0xff; 8];
    let mut question = Vec::with_capacity(HEAD + QUESTION);
    question.extend(((HEAD + QUESTION) as u32).to_ne_bytes());
    question.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    question.extend(REQUEST.to_ne_bytes());
    question.extend([0; 8]); // its number and its sender
    question.extend([AF_UNIX, 0, 0, 0]);
    for word in [ALL_STATES, inode, SHOW_PEER] {
        question.extend(word.to_ne_bytes());
    }
    question.extend(ANY_COOKIE);
    question
}

/// Returns the inode of the peer that an answer names.
fn peer_of(answer: &[u8]) -> Option<u32> {
    const PEER: u16 = 2;
    let number = |at: usize| Some(u16::from_ne_bytes(answer.get(at..at + 2)?.try_into().ok()?));
    let mut at = HEAD + ANSWER;
    while let (Some(length), Some(kind)) = (number(at), number(at + 2)) {
        if kind == PEER && usize::from(length) == 8 {
            let inode = answer.get(at + 4..at + 8)?;
            return Some(u32::from_ne_bytes(inode.try_into().ok()?));
        }
        at += usize::from(length.max(4)).next_multiple_of(4);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_has_two_addresses_and_an_inode() {
        let line = "   2: 0100007F:9C40 0100007F:1F90 01 00000000:00000000 00:00000000 00000000  \
                    1000        0 91823 1 0000000000000000 20 4 30 10 -1";
        let (own, other) = ("0100007F:9C40".to_owned(), "0100007F:1F90".to_owned());
        assert_eq!(connection(line), Some((own, other.clone(), 91823)));
        assert_eq!(
            connection("  sl  local_address rem_address   st tx_queue"),
            None
        );
        let mapped = "0000000000000000FFFF00000100007F:1F90";
        assert_eq!(shortened(mapped), other);
    }

    #[test]
    fn an_answer_that_is_cut_or_wrong_names_no_peer() {
        assert_eq!(question(7).len(), HEAD + QUESTION);
        let mut answer = vec![0; HEAD + ANSWER];
        answer.extend([5, 0, 9, 0, 1, 0, 0, 0]);
        answer.extend([8, 0, 2, 0, 0x34, 0x12, 0, 0]);
        assert_eq!(peer_of(&answer), Some(0x1234));
        for length in 0..answer.len() {
            assert_eq!(peer_of(&answer[..length]), None);
        }
        answer[HEAD + ANSWER] = 0; // an attribute without a length
        peer_of(&answer);
    }
}
