//! The kinds of descriptors that calls are made for.

use crate::case::Kind::{
    self, Datagram, Epoll, Event, Fifo, File, Folder, Inotify, Memory, Null, Packet, PidFd, Pipe,
    Proc, Queue, ReadOnly, Ring, SignalFd, Stream, TcpListener, TcpPair, TcpSocket, Terminal,
    Timer, Udp, UnixListener, Zero,
};

pub const READABLE: &[Kind] = &[
    Pipe, Pipe, Stream, Stream, Datagram, Packet, TcpPair, Event, Timer, SignalFd, Terminal, Fifo,
    Inotify, File, Udp,
];
pub const WRITABLE: &[Kind] = &[
    Pipe, Pipe, Stream, Stream, Datagram, Packet, TcpPair, Event, Terminal, Fifo, File, Memory,
];
pub const FILES: &[Kind] = &[File, File, ReadOnly, Memory, Null, Proc];
pub const FOLDERS: &[Kind] = &[Folder];
pub const TRANSFER: &[Kind] = &[Pipe, Pipe, File, Stream, Memory, Zero, Null, TcpPair];
pub const PIPES: &[Kind] = &[Pipe, Pipe, Fifo];
pub const SOCKETS: &[Kind] = &[
    Stream, Stream, Datagram, Packet, TcpPair, TcpPair, Udp, TcpSocket,
];
pub const LISTENERS: &[Kind] = &[TcpListener, UnixListener];
pub const UNCONNECTED: &[Kind] = &[TcpSocket, Udp, TcpListener, UnixListener];
pub const EPOLL: &[Kind] = &[Epoll];
pub const RINGS: &[Kind] = &[Ring];
pub const TIMERS: &[Kind] = &[Timer];
pub const QUEUES: &[Kind] = &[Queue];
pub const PIDFDS: &[Kind] = &[PidFd];
pub const INOTIFY: &[Kind] = &[Inotify];
pub const SIGNALS: &[Kind] = &[SignalFd];
