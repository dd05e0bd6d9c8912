//! The names of what threads wait for.

use std::collections::HashMap;
use std::time::Duration;

use raddle_inspect::WaitKind;
use raddle_stacks::Target;
use raddle_stacks::locks::Variables;

use crate::peers::{self, Budget, Object, Peers};

/// The most objects of which names are looked for.
const OBJECTS_MAX: usize = 1 << 13;

/// What looks for other processes may take while the process is recorded: one look reads what all
/// processes have. The rest is looked for when the recording is over, for so long at most.
const BUDGET: Budget = Budget {
    part: 1000,
    burst: Duration::from_millis(2),
};
/// What a look for the other ends of sockets takes: the kernel goes through its table of all TCP
/// connections, which has room for as many as the machine could have. So such a look comes when a
/// recording has lasted for twenty seconds, or at its end.
const SOCKETS: Duration = Duration::from_millis(20);
/// The ends of so few new sockets are looked for at once, until looks have taken so much CPU time.
const FEW: usize = 32;
const AT_ONCE: Duration = Duration::from_millis(60);
const AT_END: Duration = Duration::from_millis(100);

/// See the module.
pub(in super::super) struct Objects {
    pub names: HashMap<Object, String>,
    /// Those without a name yet, which are addresses.
    unnamed: Vec<Object>,
    peers: Peers,
    /// Those that other processes may have as well, which were not looked for yet.
    unsought: Vec<Object>,
    /// Likewise sockets, and what may watch some.
    unsought_sockets: Vec<Object>,
    /// Other processes that have an object.
    others: HashMap<Object, String>,
}

impl Objects {
    pub(super) fn new(pid: u32) -> Objects {
        Objects {
            names: HashMap::new(),
            unnamed: Vec::new(),
            peers: Peers::new(pid, BUDGET),
            unsought: Vec::new(),
            unsought_sockets: Vec::new(),
            others: HashMap::new(),
        }
    }

    /// Looks for the names of new objects: those of descriptors now, before they are closed. Other
    /// processes are looked for while they live, if that does not cost too much.
    pub(super) fn look(&mut self, new: Vec<Object>) {
        for (kind, object) in new {
            if self.names.len() + self.unnamed.len() >= OBJECTS_MAX {
                break;
            }
            let mut is_socket = kind == WaitKind::EPOLL;
            if kind.is_address() {
                self.unnamed.push((kind, object));
            } else if kind.is_descriptor() {
                let mut link = peers::LINK;
                let link = self.peers.link((kind, object), &mut link);
                let name = link.map(|link| String::from_utf8_lossy(link).into_owned());
                is_socket |= name.as_ref().is_some_and(|it| it.starts_with("socket:"));
                self.names.extend(name.map(|name| ((kind, object), name)));
            }
            if is_socket {
                self.unsought_sockets.push((kind, object));
            } else if kind == WaitKind::FUTEX || kind.is_descriptor() {
                self.unsought.push((kind, object));
            }
        }
        if self.peers.is_due() {
            self.seek();
        }
        let are_few = self.unsought_sockets.len() <= FEW && self.peers.spent() < AT_ONCE;
        if are_few || self.peers.can_afford(SOCKETS) {
            self.seek_sockets();
        }
    }

    /// Looks for other processes that have what is left, when the recording is over.
    pub(super) fn seek_rest(&mut self) {
        let until = self.peers.spent() + AT_END;
        let is_left = |it: &Self| !it.unsought.is_empty() || !it.unsought_sockets.is_empty();
        while is_left(self) && self.peers.spent() < until {
            self.seek();
            self.seek_sockets();
        }
    }

    /// Looks for other processes that have some of the objects that are no sockets.
    fn seek(&mut self) {
        let count = self.unsought.len().min(peers::OBJECTS_MAX);
        let sought: Vec<_> = self.unsought.drain(..count).collect();
        self.find(&sought);
    }

    /// Likewise for some of the sockets.
    fn seek_sockets(&mut self) {
        let count = self.unsought_sockets.len().min(peers::OBJECTS_MAX);
        let sought: Vec<_> = self.unsought_sockets.drain(..count).collect();
        self.find(&sought);
    }

    fn find(&mut self, sought: &[Object]) {
        if sought.is_empty() {
            return;
        }
        for (object, others) in sought.iter().zip(self.peers.find(sought)) {
            if !others.processes.is_empty() {
                self.others.insert(*object, others.to_string());
            }
        }
    }

    /// Looks for the names of static variables.
    pub(in super::super) fn name_variables(&mut self, target: &Target<'_>) {
        let mut variables = Variables::new(target.memory, target.modules);
        let names = &mut self.names;
        self.unnamed.retain(|&(kind, object)| {
            let name = variables.name(object);
            let is_unnamed = name.is_none();
            names.extend(name.map(|name| ((kind, object), name)));
            is_unnamed
        });
    }

    /// Adds other processes to the names of objects.
    pub(in super::super) fn name_others(&mut self) {
        for (object, others) in self.others.drain() {
            let name = self.names.entry(object).or_default();
            let gap = if name.is_empty() { "" } else { ", " };
            let has = match object.0 {
                WaitKind::FUTEX => "shared with other processes",
                _ => "other end in",
            };
            *name += &format!("{gap}{has}: {others}");
        }
    }
}
