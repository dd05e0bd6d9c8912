//! What a parked task waits in, and how it leaves: rows by address, lists behind a lock, deadlines,
//! and the lists of user-mode schedulers.

pub mod absence;
pub mod completion_list;
pub mod helper_queue;
pub mod requests;
pub mod timers;
pub mod wait_list;
pub mod wait_table;
pub mod worker_state;
