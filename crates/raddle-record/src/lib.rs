//! What the carriers of another process do: events that they record, read from outside, and what
//! tools make of them.
//!
//! | module | noun |
//! |---|---|
//! | [`rings`] | the rings of events in the process's memory |
//! | [`crash`] | the file of a process that crashed, with its rings |
//! | [`clock`] | the time of a stamp |
//! | [`order`] | events of all rings in the order of time |
//! | [`history`] | what each thread does, from event to event |
//! | [`bound`] | what bound threads do in the kernel |
//! | [`text`] | texts of the program's, as a terminal may have them |
//! | [`weights`] | the profile that a history and the stacks of its spans come to |
//! | [`wakers`] | what ended the waits, and from which code |
//! | [`managed_locks`] | locks of Java and Python that no word tells apart |
//! | [`outputs`] | files and texts that are made of a profile |
//! | [`conditions`] | what a trace may wait for |
//! | [`perfetto`] | a trace for Perfetto |
//! | [`profile`] | where threads ran and waited, with names |
//!
//! Everything that is read may be wrong on purpose: nothing here trusts a count or an address, and
//! all that is kept has a limit.

pub mod bound;
pub mod clock;
pub mod conditions;
pub mod crash;
pub mod history;
pub mod managed_locks;
mod name_parts;
pub mod order;
pub mod outputs;
pub mod perfetto;
pub mod profile;
pub mod rings;
pub mod text;
pub mod wakers;
pub mod weights;
