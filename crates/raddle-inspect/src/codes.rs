//! Numbers on the wire that have names. Each is a newtype: an unknown number from a later version
//! is a valid value, with the name `"unknown"`.

use crate::policy::Kind;

/// Defines a code: its constants, and the word that tools print for each.
macro_rules! code {
    (
        $(#[$docs:meta])*
        $name:ident {
            $($(#[$value_docs:meta])* $value_name:ident = $value:literal, $word:literal;)*
        }
    ) => {
        $(#[$docs])*
        #[repr(transparent)]
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
        pub struct $name(pub u32);

        impl $name {
            $($(#[$value_docs])* pub const $value_name: $name = $name($value);)*

            /// Every code that this version knows.
            pub const ALL: &[$name] = &[$($name::$value_name),*];

            /// Returns the code's word; `"unknown"` for a number of a later version.
            ///
            /// # Examples
            /// ```
            #[doc = concat!("use raddle_inspect::", stringify!($name), ";")]
            #[doc = concat!("assert_eq!(", stringify!($name), "(u32::MAX).word(), \"unknown\");")]
            /// ```
            pub const fn word(self) -> &'static str {
                match self.0 {
                    $($value => $word,)*
                    _ => "unknown",
                }
            }
        }
    };
}

code! {
    /// A carrier's activity.
    CarrierState {
        /// Runs the green thread [`CarrierRecord::current_tid`](crate::CarrierRecord).
        RUNNING = 0, "running";
        /// Sleeps: nothing is runnable.
        IDLE = 1, "idle";
        /// Sleeps in the event pump.
        POLLING = 2, "polling";
        /// Belongs to one bound thread.
        BOUND = 3, "bound";
        /// In a call that blocks in the kernel and could not be made otherwise.
        BLOCKED = 4, "blocked";
        /// Sleeps until a running carrier blocks in the kernel.
        SPARE = 5, "spare";
        /// It has no kernel thread any more; only in an answer to [`RequestKind::METRICS`].
        ENDED = 6, "ended";
    }
}

/// The policy: the order of runnable threads. The number of a [`Kind`].
#[repr(transparent)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct PolicyKind(pub u32);

impl PolicyKind {
    /// The usual policy.
    pub const FIFO: PolicyKind = PolicyKind(Kind::Fifo as u32);

    /// Returns the policy's name; `"unknown"` for a number of a later version.
    ///
    /// # Examples
    /// ```
    /// use raddle_inspect::PolicyKind;
    /// assert_eq!(PolicyKind(u32::MAX).word(), "unknown");
    /// ```
    pub const fn word(self) -> &'static str {
        match Kind::of_code(self.0) {
            Some(kind) => kind.name(),
            None => "unknown",
        }
    }
}

code! {
    /// A client's request.
    RequestKind {
        /// Returns a snapshot, and changes nothing.
        SNAPSHOT = 0, "snapshot";
        /// Sets how many carriers may be active to the value; 0 for as many as CPUs may be used.
        CARRIERS = 1, "carriers";
        /// Sets the quantum in nanoseconds to the value; `u64::MAX` for none.
        QUANTUM = 2, "quantum";
        /// Returns a snapshot without threads, followed by a [`Histogram`](crate::Histogram) of the
        /// time from a wake-up to running, the [`BlockingRecords`](crate::BlockingRecords), the
        /// [`BlockingSites`](crate::BlockingSites), and a [`Histogram`](crate::Histogram) of the
        /// time from runnable to running.
        STATS = 3, "stats";
        /// Sets the default engine's policy to the value, a [`PolicyKind`]; a plug-in can't be
        /// chosen.
        POLICY = 4, "policy";
        /// Sets a quota: the reserved word is the engine's number, the value the quota in percent,
        /// 0 for none. With the value's highest bit set: the number and the share of a group.
        SHARE = 5, "share";
        /// Returns a snapshot with CPU times, which are counted for so many seconds more as the
        /// value says, 0 for a few. Several tools may ask, and the longest counts. Each switch
        /// reads the clock meanwhile. A program's own question counts for ever.
        CPU = 6, "cpu";
        /// Returns a snapshot without threads, followed by a [`Layout`](crate::Layout). The value
        /// is 1 to ask for the right to read the process's memory, where Yama refuses it: then the
        /// right lasts until the tool closes the connection, at most for half a minute. The
        /// reserved word, if it isn't 0, has CPU times counted for so many seconds more.
        LAYOUT = 7, "layout";
        /// Has the carriers record events ([`Event`](crate::Event)), for so many seconds as the low
        /// half of the value says, `u32::MAX` for ever, 0 for no longer; several tools may ask, and
        /// the longest counts. The high half is the number of events that a carrier keeps, a power
        /// of two; the largest that was asked for counts. The reserved word, if it isn't 0, has the
        /// runtime sample the carriers for as long, so many times a second, at most
        /// [`SAMPLES_MAX`](crate::SAMPLES_MAX); of several, the highest counts. Returns a
        /// [`Layout`](crate::Layout), too.
        RECORD = 8, "record";
        /// Returns a snapshot without threads and with carriers that have ended, followed by
        /// [`Totals`](crate::Totals) and a [`Layout`](crate::Layout). The value is as for
        /// [`RequestKind::LAYOUT`].
        METRICS = 16, "metrics";
    }
}

code! {
    /// An event that a carrier records.
    EventKind {
        /// A carrier runs another thread.
        SWITCH = 1, "switch";
        /// A thread that waits becomes runnable.
        WAKE = 2, "wake";
        /// A thread is made.
        CREATE = 3, "create";
        /// A thread ends.
        END = 4, "end";
        /// A thread that computes makes room for others.
        PREEMPT = 5, "preempt";
        /// A carrier waits in the kernel, and another one runs in its place.
        BLOCK = 6, "block";
        /// A carrier is back from there.
        RETURN = 7, "return";
        /// A thread runs on another carrier than before.
        STEAL = 8, "steal";
        /// A thread gets a signal that it handles.
        SIGNAL = 9, "signal";
        /// How long the queues of runnable threads are, now and then.
        QUEUE = 10, "queue";
        /// A span of the program's begins, as the next four by its own calls.
        SPAN_BEGIN = 11, "span_begin";
        /// The thread's latest span ends.
        SPAN_END = 12, "span_end";
        /// Something happens in the program.
        INSTANT = 13, "instant";
        /// A counter of the program's has a value.
        COUNTER = 14, "counter";
        /// ld.so maps code of a file.
        CODE = 15, "code";
        /// A thread gets a carrier that runs nothing else.
        BIND = 16, "bind";
        /// Recording begins; what happened since it ended before is not known.
        START = 17, "start";
        /// A thread has this name from now on, or has had it, if it ends then: the first bytes.
        NAME = 18, "name";
        /// The rest of the name that the thread's next [`NAME`](Self::NAME) begins.
        NAME_REST = 19, "name_rest";
    }
}

code! {
    /// A green thread's state.
    ThreadState {
        /// On a carrier.
        RUNNING = 0, "running";
        /// In a queue, ready for a carrier.
        RUNNABLE = 1, "runnable";
        /// Parked; [`WaitKind`] says for what.
        WAITING = 2, "waiting";
        /// Has ended; its stack may still be in use for the last instructions.
        EXITING = 3, "exiting";
    }
}

code! {
    /// What a green thread waits for, which determines the meaning of `wait_arg`.
    WaitKind {
        /// Nothing.
        NONE = 0, "none";
        /// A futex; the argument is its address.
        FUTEX = 1, "futex";
        /// A condition variable; the argument is its address.
        CONDVAR = 2, "condvar";
        /// A semaphore; the argument is its address.
        SEMAPHORE = 3, "semaphore";
        /// A mutex; the argument is its address.
        MUTEX = 4, "mutex";
        /// The clock; the deadline is the end of the sleep.
        SLEEP = 5, "sleep";
        /// A descriptor to become readable; the argument is the descriptor.
        FD_READ = 6, "fd_read";
        /// A descriptor to become writable; the argument is the descriptor.
        FD_WRITE = 7, "fd_write";
        /// `poll` or `select`; the argument is the number of descriptors.
        POLL = 8, "poll";
        /// `epoll_wait`; the argument is the epoll descriptor.
        EPOLL = 9, "epoll";
        /// A signal: `pause`, `sigsuspend`, `sigtimedwait`.
        SIGNAL = 10, "signal";
        /// The end of a child process; the argument is the process id, or 0 for any.
        CHILD = 11, "child";
        /// The end of another thread; the argument is the address that its exit clears.
        JOIN = 12, "join";
        /// Nothing: the thread yielded and has not run since.
        YIELD = 13, "yield";
        /// Another call, which a helper makes for the thread, as a rule; the argument is the system
        /// call's number.
        OTHER = 14, "other";
        /// An event of the explicit API, for which a light thread waits: an unpark, a completion,
        /// the end of another light thread.
        API = 15, "api";
        /// Likewise, an unpark.
        UNPARK = 16, "unpark";
        /// Likewise, a completion, which the end of a light thread is, too.
        COMPLETION = 17, "completion";
        /// A page of a file to be read from a disk; the argument is the descriptor.
        PAGE = 18, "page";
    }
}

impl WaitKind {
    /// Returns whether `wait_arg` is an address.
    pub const fn is_address(self) -> bool {
        matches!(
            self,
            WaitKind::FUTEX
                | WaitKind::CONDVAR
                | WaitKind::SEMAPHORE
                | WaitKind::MUTEX
                | WaitKind::JOIN
        )
    }

    /// Returns whether `wait_arg` is a descriptor.
    pub const fn is_descriptor(self) -> bool {
        matches!(
            self,
            WaitKind::FD_READ | WaitKind::FD_WRITE | WaitKind::EPOLL | WaitKind::PAGE
        )
    }
}

/// Properties of a green thread, one bit each.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ThreadFlags(pub u32);

impl ThreadFlags {
    /// A bound thread.
    pub const BOUND: ThreadFlags = ThreadFlags(1);
    /// The main thread.
    pub const MAIN: ThreadFlags = ThreadFlags(1 << 1);
    /// A light thread of the explicit API; it has no counters. Tools alone set it.
    pub const LIGHT: ThreadFlags = ThreadFlags(1 << 2);
    /// Of a light thread: its wait is certain. Waits for completions are told by the stack alone.
    pub const CERTAIN: ThreadFlags = ThreadFlags(1 << 4);
    /// In a core file: the thread has waited since before its memory was copied, so that what the
    /// core says of its locks is of one moment. Tools alone set it.
    pub const UNMOVED: ThreadFlags = ThreadFlags(1 << 3);

    /// Returns whether all bits of `other` are set.
    pub const fn contains(self, other: ThreadFlags) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns the bits of both.
    pub const fn union(self, other: ThreadFlags) -> ThreadFlags {
        ThreadFlags(self.0 | other.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn codes_count_up_from_zero_and_have_words_of_their_own() {
        fn check(words: &[(u32, &'static str)]) {
            let distinct: BTreeSet<_> = words.iter().map(|(_, word)| word).collect();
            assert_eq!(distinct.len(), words.len());
            for (index, (code, word)) in words.iter().enumerate() {
                assert_eq!(*code as usize, index, "{word}");
                assert_ne!(*word, "unknown");
            }
        }
        check(&std::vec::Vec::from_iter(
            CarrierState::ALL.iter().map(|code| (code.0, code.word())),
        ));
        check(&std::vec::Vec::from_iter(
            ThreadState::ALL.iter().map(|code| (code.0, code.word())),
        ));
        check(&std::vec::Vec::from_iter(
            WaitKind::ALL.iter().map(|code| (code.0, code.word())),
        ));
    }

    #[test]
    fn an_argument_is_an_address_or_a_descriptor_or_neither() {
        for kind in WaitKind::ALL {
            assert!(!(kind.is_address() && kind.is_descriptor()), "{kind:?}");
        }
        assert!(WaitKind::FUTEX.is_address() && WaitKind::FD_READ.is_descriptor());
        assert!(!WaitKind::SLEEP.is_address() && !WaitKind::SLEEP.is_descriptor());
    }

    #[test]
    fn flags_are_bits() {
        let both = ThreadFlags::BOUND.union(ThreadFlags::MAIN);
        assert!(both.contains(ThreadFlags::MAIN) && both.contains(ThreadFlags::BOUND));
        assert!(!ThreadFlags::MAIN.contains(ThreadFlags::BOUND));
    }
}
