//! Reminders: signals to carriers that sit in the kernel while their rings hold files open.
//!
//! The kernel finishes what a ring was asked for on the ring's own kernel thread. If that thread
//! waits in a call of the program's, sysmon sends it signals: the first a millisecond after the
//! carrier was found there, the next after twice the time, until nothing is left. The handler waits
//! in the ring for a millisecond ([`page_rings::let_go`]). So a file that the program has closed is
//! gone after at most twice the time that the disk took, and some milliseconds. Entering the ring
//! for a moment isn't enough: a page that another thread drops from the cache must be read once
//! more.

use crate::scheduling::page_rings;
use crate::state::carrier::Carrier;
use crate::sysmon::WATCHED;
use raddle_sched::policy::Found;

/// After so long the first one is sent.
const FIRST_NS: u64 = 1_000_000;

/// Sysmon's memory of them, by the carriers' places there.
pub(crate) struct Reminders([Reminder; WATCHED]);

#[derive(Clone, Copy)]
struct Reminder {
    /// The carrier's count of switches.
    switches: u64,
    due_ns: u64,
    gap_ns: u64,
}

impl Reminders {
    pub(crate) const fn new() -> Self {
        let none = Reminder {
            switches: 0,
            due_ns: 0,
            gap_ns: 0,
        };
        Self([none; WATCHED])
    }

    /// After a look at a carrier: sends one that is due. When to look again at the latest.
    pub(crate) fn look(
        &mut self,
        at: usize,
        carrier: &Carrier,
        found: Found,
        now_ns: u64,
    ) -> Option<u64> {
        if found.switches_on() || found.computes || !page_rings::holds_files(carrier) {
            return None;
        }
        let reminder = &mut self.0[at];
        if reminder.switches != found.switches {
            *reminder = Reminder {
                switches: found.switches,
                due_ns: now_ns + FIRST_NS,
                gap_ns: FIRST_NS,
            };
        } else if reminder.due_ns <= now_ns {
            page_rings::remind(carrier, found.switches);
            reminder.gap_ns *= 2;
            reminder.due_ns = now_ns + reminder.gap_ns;
        }
        Some(reminder.due_ns - now_ns)
    }
}
