//! The descriptors that a case has from the start.

use super::Maker;
use crate::calls::{Argument, Spec};
use crate::case::{Kind, Resource, State};

/// The number of the first resource; what the case itself opens comes before.
const FIRST_NUMBER: u8 = 10;

const MOST: usize = 6;

/// Adds resources that these calls are made for, and others; six at most.
pub(super) fn make(maker: &mut Maker, specs: &[&'static Spec]) {
    let mut kinds = Vec::new();
    for spec in specs.iter().filter(|spec| !spec.on.is_empty()) {
        if maker.random.chance(60) {
            kinds.push(*maker.random.pick(spec.on));
        }
        for argument in spec.arguments {
            if let Argument::On(on) = argument {
                kinds.push(*maker.random.pick(on));
            }
        }
    }
    if kinds.is_empty() || maker.random.chance(40) {
        kinds.push(*maker.random.pick(Kind::ALL));
    }
    kinds.truncate(MOST);
    let mut number = FIRST_NUMBER;
    for kind in kinds {
        let numbers = if is_pair(kind) {
            [number, number + 1]
        } else {
            [number, 0]
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

/// Returns true if a resource has two descriptors.
pub(crate) const fn is_pair(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::Pipe | Kind::Stream | Kind::Datagram | Kind::Packet | Kind::TcpPair | Kind::Terminal
    )
}

/// The states that a resource can have.
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
