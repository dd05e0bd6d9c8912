//! The names of what threads wait for.

use std::collections::HashMap;

use raddle_inspect::WaitKind;
use raddle_stacks::Target;
use raddle_stacks::locks::Variables;

use crate::peers::{self, Object, Peers};

/// The most objects of which names are looked for.
const OBJECTS_MAX: usize = 1 << 13;

/// See the module.
pub(in super::super) struct Objects {
    pub names: HashMap<Object, String>,
    /// Those without a name yet, which are addresses.
    unnamed: Vec<Object>,
    peers: Peers,
    /// Those that other processes may have as well, which were not looked for yet.
    unsought: Vec<Object>,
    /// Other processes that have an object.
    others: HashMap<Object, String>,
}

impl Objects {
    pub(super) fn new(pid: u32) -> Objects {
        Objects {
            names: HashMap::new(),
            unnamed: Vec::new(),
            peers: Peers::new(pid),
            unsought: Vec::new(),
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
            if kind.is_address() {
                self.unnamed.push((kind, object));
            } else if kind.is_descriptor() {
                let mut link = peers::LINK;
                let link = self.peers.link((kind, object), &mut link);
                let name = link.map(|link| String::from_utf8_lossy(link).into_owned());
                self.names.extend(name.map(|name| ((kind, object), name)));
            }
            if kind == WaitKind::FUTEX || kind.is_descriptor() {
                self.unsought.push((kind, object));
            }
        }
        if self.peers.is_due() {
            self.seek();
        }
    }

    /// Looks for other processes that have the objects.
    pub(super) fn seek(&mut self) {
        let count = self.unsought.len().min(peers::OBJECTS_MAX);
        let sought: Vec<_> = self.unsought.drain(..count).collect();
        if sought.is_empty() {
            return;
        }
        for (object, others) in sought.iter().zip(self.peers.find(&sought)) {
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
