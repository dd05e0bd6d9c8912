//! The descriptors that a case has from the start.

use super::Maker;
use crate::case::{Kind, Resource, State};

/// The number of the first resource; what the case itself opens comes before.
const FIRST_NUMBER: u8 = 10;

/// Adds up to four resources, mostly of the kinds that the case's calls are made for.
pub(super) fn make(maker: &mut Maker, wanted: &[Kind]) {
    let mut number = FIRST_NUMBER;
    for _ in 0..maker.random.between(1, 4) {
        let kind = match maker.random.chance(75) && !wanted.is_empty() {
            true => *maker.random.pick(wanted),
            false => *maker.random.pick(Kind::ALL),
        };
        let numbers = match is_pair(kind) {
            true => [number, number + 1],
            false => [number, 0],
        };
        number += 2;
        let state = states(kind)
            .iter()
            .copied()
            .filter(|_| maker.random.chance(35))
            .collect();
        maker.case.resources.push(Resource {
            kind,
            numbers,
            state,
        });
    }
}

/// True if a resource has two descriptors.
pub(crate) const fn is_pair(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::Pipe | Kind::Stream | Kind::Datagram | Kind::Packet | Kind::TcpPair | Kind::Terminal
    )
}

/// What a resource can be like.
const fn states(kind: Kind) -> &'static [State] {
    use State::{
        Append, Armed, HasData, IsFull, NonBlocking, PeerClosed, ReceiveLimit, Semaphore, SendLimit,
    };
    match kind {
        Kind::Pipe => &[NonBlocking, HasData, IsFull, PeerClosed],
        Kind::Stream | Kind::Packet | Kind::Datagram | Kind::TcpPair => &[
            NonBlocking,
            HasData,
            IsFull,
            PeerClosed,
            ReceiveLimit,
            SendLimit,
        ],
        Kind::TcpListener | Kind::UnixListener => &[NonBlocking, HasData, ReceiveLimit],
        Kind::TcpSocket | Kind::Udp => &[NonBlocking, ReceiveLimit, SendLimit],
        Kind::Event => &[NonBlocking, HasData, IsFull, Semaphore],
        Kind::Timer => &[NonBlocking, Armed],
        Kind::Terminal | Kind::Inotify | Kind::SignalFd | Kind::Queue => &[NonBlocking, HasData],
        Kind::Epoll => &[HasData],
        Kind::File | Kind::Memory => &[NonBlocking, HasData, Append],
        Kind::Fifo => &[NonBlocking, HasData],
        _ => &[],
    }
}
