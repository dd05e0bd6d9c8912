//! A case: the actions of one process, as data.
//!
//! Everything in a case is concrete, so that it means the same after a part of it was taken away:
//! descriptors of resources have fixed numbers, memory has fixed addresses, and a [`Value`] names
//! what is known only during the run (a result, a process id).

mod listing;
mod memory;
mod text;

pub use listing::{error_name, listing};
pub use memory::{
    BASE, FILES, PAGE_BYTES, PAGES, PATHS, Page, Place, READABLE_BYTES, STACK_PAGES, STACK_WINDOW,
    name_index, name_place, page_of,
};
pub use text::{parse, to_text};

use crate::calls::Spec;

/// Agents of a case: the main thread, the other threads, then its forked children.
pub const MAIN: u8 = 0;
/// The highest agent that is a thread.
pub const LAST_THREAD: u8 = 3;
/// The agent, for traces, of threads that the case itself makes.
pub const EXTRA: u8 = 7;
/// Functions that a new thread can start with.
pub const STARTS: u8 = 6;
/// The first agent that is a child process.
pub const FIRST_CHILD: u8 = 8;
/// Child processes that a case can have.
pub const CHILDREN: u8 = 4;

/// What the agents other than the main one do while they have no call to make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Idle {
    /// They wait for a futex.
    Futex,
    /// They sleep a millisecond at a time.
    Sleep,
    /// They compute.
    Spin,
}

/// The instruction by which a call enters the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Site {
    /// libc's function of the call's name.
    Libc,
    /// libc's function `syscall`.
    Syscall,
    /// An instruction of the program's own, with a constant number.
    Inline,
    /// The same in a function that uses vector registers.
    Vector,
    /// An instruction of the program's own with a computed number.
    Register,
}

/// A value that a call gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value {
    Int(u64),
    /// An address in the case's memory.
    Place(Place),
    /// The 32-bit number that is in the case's memory when the call is made.
    Load(Place),
    /// The same with 64 bits.
    LoadLong(Place),
    /// The result of a step, -1 before it was made.
    Result(u8),
    /// The process id of the case's process.
    Pid,
    /// The parent's process id, for children alone.
    Parent,
    /// The id of an agent that is a thread.
    Tid(u8),
    /// The process id of a child.
    Child(u8),
    /// An address in the stack of an agent, relative to the page that the agent uses.
    Stack(u8, i32),
    /// `pthread_t` of an agent that is a thread.
    Pthread(u8),
    /// A function that a new thread starts with.
    Start(u8),
    /// The function of the case's handlers.
    Handler,
    /// The function by which handlers return.
    Restorer,
    /// A message queue of System V.
    Queue,
    /// A set of two semaphores of System V.
    Semaphores,
}

/// What a step stores before its call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Put {
    pub at: Place,
    pub data: Data,
}

/// What is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Data {
    Bytes(Vec<u8>),
    /// A number of so many bytes.
    Number(u8, Value),
    /// A `timespec`: that clock's time when the step begins, and some milliseconds.
    Deadline(u8, i16),
}

/// One call by one agent.
#[derive(Clone, Debug)]
pub struct Call {
    pub agent: u8,
    pub site: Site,
    pub spec: &'static Spec,
    pub arguments: Vec<Value>,
}

/// A call of another agent some milliseconds after its step has begun.
#[derive(Clone, Debug)]
pub struct Event {
    pub after_ms: u8,
    pub call: Call,
}

#[derive(Clone, Debug)]
pub struct Step {
    pub puts: Vec<Put>,
    pub call: Call,
    pub events: Vec<Event>,
}

/// A descriptor, or a pair, that is there from the start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resource {
    pub kind: Kind,
    /// The descriptors' numbers; one that is not used is 0.
    pub numbers: [u8; 2],
    pub state: Vec<State>,
}

macro_rules! words {
    ($(#[$head:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident = $word:literal,)* }) => {
        $(#[$head])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name { $($(#[$doc])* $variant,)* }

        impl $name {
            pub const ALL: &'static [$name] = &[$($name::$variant,)*];

            /// Its word in a case's text.
            pub const fn word(self) -> &'static str {
                match self { $($name::$variant => $word,)* }
            }

            pub fn from_word(word: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|item| item.word() == word)
            }
        }
    };
}

words! {
    /// What a resource is.
    Kind {
        Pipe = "pipe",
        Stream = "stream",
        Datagram = "datagram",
        Packet = "packet",
        TcpListener = "tcp-listener",
        TcpPair = "tcp-pair",
        TcpSocket = "tcp-socket",
        UnixListener = "unix-listener",
        Udp = "udp",
        Event = "eventfd",
        Timer = "timerfd",
        Epoll = "epoll",
        Inotify = "inotify",
        SignalFd = "signalfd",
        File = "file",
        ReadOnly = "read-only-file",
        PathOnly = "path-only-file",
        Folder = "folder",
        Null = "null",
        Zero = "zero",
        Full = "full",
        Memory = "memfd",
        Terminal = "terminal",
        Fifo = "fifo",
        PidFd = "pidfd",
        Queue = "message-queue",
        /// An io_uring with four submissions that do nothing.
        Ring = "io-uring",
        Proc = "proc-file",
    }
}

words! {
    /// A property of a resource.
    State {
        /// O_NONBLOCK.
        NonBlocking = "nonblock",
        /// The first descriptor has data to read; an epoll instance watches the other resources.
        HasData = "data",
        /// The second descriptor can't be written without waiting.
        IsFull = "full",
        /// The second descriptor is closed.
        PeerClosed = "closed",
        /// SO_RCVTIMEO of ten milliseconds.
        ReceiveLimit = "rcvtimeo",
        /// SO_SNDTIMEO of ten milliseconds.
        SendLimit = "sndtimeo",
        /// A timer that has expired.
        Armed = "armed",
        /// EFD_SEMAPHORE.
        Semaphore = "semaphore",
        /// O_APPEND.
        Append = "append",
    }
}

impl Resource {
    pub fn has(&self, state: State) -> bool {
        self.state.contains(&state)
    }
}

/// A signal's action at the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handler {
    pub signal: u8,
    /// `sa_flags`; SA_SIGINFO is added.
    pub flags: u64,
    /// The action is SIG_IGN, not a handler.
    pub ignore: bool,
}

#[derive(Clone, Debug)]
pub struct Case {
    /// Threads other than the main one.
    pub threads: u8,
    pub idle: Idle,
    /// The main thread's signal mask; other threads block everything, but for the first of them.
    pub blocked: u64,
    pub resources: Vec<Resource>,
    pub handlers: Vec<Handler>,
    pub steps: Vec<Step>,
}

impl Default for Case {
    fn default() -> Self {
        Self {
            threads: 0,
            idle: Idle::Futex,
            blocked: 0,
            resources: Vec::new(),
            handlers: Vec::new(),
            steps: Vec::new(),
        }
    }
}

impl Case {
    /// Calls of steps and events.
    pub fn calls(&self) -> impl Iterator<Item = &Call> {
        let steps = self.steps.iter().map(|step| &step.call);
        let events = self.steps.iter().flat_map(|step| &step.events);
        steps.chain(events.map(|event| &event.call))
    }
}

impl Step {
    /// The longest delay of its events.
    pub fn events_ms(&self) -> u64 {
        let delays = self.events.iter().map(|event| u64::from(event.after_ms));
        delays.max().unwrap_or(0)
    }
}

/// The name of an agent in a case's text.
pub fn agent_name(agent: u8) -> String {
    match agent {
        MAIN => "main".into(),
        1..FIRST_CHILD => format!("a{agent}"),
        _ => format!("c{}", agent - FIRST_CHILD),
    }
}

/// The agent of that name.
pub fn agent_of(name: &str) -> Option<u8> {
    if name == "main" {
        return Some(MAIN);
    }
    let (kind, number) = name.split_at_checked(1)?;
    let number: u8 = number.parse().ok()?;
    match kind {
        "a" if (1..=LAST_THREAD).contains(&number) => Some(number),
        "c" if number < CHILDREN => Some(FIRST_CHILD + number),
        _ => None,
    }
}
