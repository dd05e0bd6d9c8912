//! What [`crate::sysmon`] keeps.

use crate::os::own_descriptor::OwnDescriptor;
use core::sync::atomic::AtomicU32;
use raddle_sched::wake::{Announcement, SysmonSleep};

/// See [`crate::sysmon`].
pub struct Sysmon {
    /// Whether it sleeps without a timeout, and how.
    pub(crate) asleep: SysmonSleep,
    /// Made while it is on guard.
    pub(crate) on_guard: Announcement,
    pub(crate) wake: OwnDescriptor,
    /// The inspection socket.
    pub(crate) listener: OwnDescriptor,
    /// The client of the inspection server.
    pub(crate) client: OwnDescriptor,
    /// 1 if sysmon's table of descriptors is the program's.
    pub(crate) shares_table: AtomicU32,
    pub(crate) stand_in: StandIn,
}

impl Sysmon {
    pub(crate) const fn new() -> Self {
        Self {
            asleep: SysmonSleep::new(),
            on_guard: Announcement::new(),
            wake: OwnDescriptor::none(),
            listener: OwnDescriptor::none(),
            client: OwnDescriptor::none(),
            shares_table: AtomicU32::new(0),
            stand_in: StandIn::new(),
        }
    }
}

/// There is none, or it has gone.
pub(crate) const GONE: u32 = 0;

/// See [`crate::sysmon::stand_in`]. Written by the starter of sysmon, sysmon and the stand-in, in
/// the order of the states.
pub(crate) struct StandIn(pub(crate) AtomicU32);

impl StandIn {
    pub(crate) const fn new() -> Self {
        Self(AtomicU32::new(GONE))
    }
}
