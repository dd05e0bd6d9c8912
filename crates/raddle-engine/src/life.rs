//! Where a thread is in its life, and what it waits for.

/// What a thread waits for, as inspection shows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum WaitKind {
    None = 0,
    Futex = 1,
    Condvar = 2,
    Semaphore = 3,
    Mutex = 4,
    Sleep = 5,
    Read = 6,
    Write = 7,
    Poll = 8,
    Epoll = 9,
    Signal = 10,
    Child = 11,
    Join = 12,
    Yield = 13,
    Other = 14,
}

/// Where a thread is in its life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Life {
    Free = 0,
    Live = 1,
    Exiting = 2,
}
