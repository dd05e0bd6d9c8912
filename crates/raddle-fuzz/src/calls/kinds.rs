//! The kinds of descriptors that calls are made for.

use crate::case::Kind::{
    self, Datagram, Epoll, Event, Fifo, File, Folder, Inotify, Memory, Null, Packet, PidFd, Pipe,
    Proc, Queue, ReadOnly, Ring, SignalFd, Stream, TcpListener, TcpPair, TcpSocket, Terminal,
    Timer, Udp, UnixListener, Zero,
};

pub(super) const READABLE: &[Kind] = &[
    Pipe, Pipe, Stream, Stream, Datagram, Packet, TcpPair, Event, Timer, SignalFd, Terminal, Fifo,
    Inotify, File, Udp,
];
pub(super) const WRITABLE: &[Kind] = &[
    Pipe, Pipe, Stream, Stream, Datagram, Packet, TcpPair, Event, Terminal, Fifo, File, Memory,
];
pub(super) const FILES: &[Kind] = &[File, File, ReadOnly, Memory, Null, Proc];
pub(super) const FOLDERS: &[Kind] = &[Folder];
pub(super) const TRANSFER: &[Kind] = &[Pipe, Pipe, File, Stream, Memory, Zero, Null, TcpPair];
pub(super) const PIPES: &[Kind] = &[Pipe, Pipe, Fifo];
pub(super) const SOCKETS: &[Kind] = &[
    Stream, Stream, Datagram, Packet, TcpPair, TcpPair, Udp, TcpSocket,
];
pub(super) const LISTENERS: &[Kind] = &[TcpListener, UnixListener];
pub(super) const UNCONNECTED: &[Kind] = &[TcpSocket, Udp, TcpListener, UnixListener];
pub(super) const EPOLL: &[Kind] = &[Epoll];
pub(super) const RINGS: &[Kind] = &[Ring];
pub(super) const TIMERS: &[Kind] = &[Timer];
pub(super) const QUEUES: &[Kind] = &[Queue];
pub(super) const PIDFDS: &[Kind] = &[PidFd];
pub(super) const INOTIFY: &[Kind] = &[Inotify];
pub(super) const SIGNALS: &[Kind] = &[SignalFd];
