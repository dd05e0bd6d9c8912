//! The stacks of light threads: see [`crate::light`].

use std::collections::HashMap;

use raddle_inspect::ThreadRecord;

use super::{Camera, Captured, Kind, Stack, TRIES, without_stack};
use crate::light::{LightSlot, Lights};
use crate::rules::Registers;
use crate::table::Slot;

impl<'a> Camera<'a> {
    /// Adds the light threads that `is_wanted` picks. Returns how many there are.
    pub(super) fn take_lights(
        &mut self,
        lights: &Lights<'a>,
        hosts: &[Slot],
        is_wanted: &dyn Fn(&ThreadRecord) -> bool,
        threads: &mut Vec<Captured>,
    ) -> u64 {
        let mut slots = Vec::new();
        lights.for_each(|slot| slots.push(slot));
        let hosts: HashMap<u64, &Slot> = hosts.iter().map(|slot| (slot.host, slot)).collect();
        for slot in &slots {
            let host = hosts.get(&slot.host).copied();
            let first = as_hosted(slot, host.map(|host| &host.record));
            if is_wanted(&first) {
                threads.push(self.take_light(lights, slot, host));
            }
        }
        slots.len() as u64
    }

    fn take_light(
        &mut self,
        lights: &Lights<'a>,
        first: &LightSlot,
        host: Option<&Slot>,
    ) -> Captured {
        let mut slot = *first;
        for _ in 0..TRIES {
            if slot.is_on_cpu {
                let hosted = host.map(|host| self.take(host));
                let is_still = |it: LightSlot| (it.life, it.host) == (slot.life, slot.host);
                let stays = lights
                    .again(&slot)
                    .is_some_and(|it| it.is_on_cpu && is_still(it));
                if let Some(hosted) = hosted.filter(|_| stays) {
                    return Captured {
                        record: as_hosted(&slot, Some(&hosted.record)),
                        ..hosted
                    };
                }
            } else {
                self.pages.clear();
                let is_new = slot.host == 0;
                let registers = if is_new {
                    None
                } else {
                    self.switched_off(slot.context)
                };
                let stack = registers.map(|(registers, _)| self.native_stack(registers));
                let is_same = self.pages.are_unchanged();
                if lights.again(&slot).is_some_and(|it| slot.is_unmoved(&it)) && is_same {
                    let stack = stack.filter(|stack| !stack.frames.is_empty());
                    return Captured {
                        record: slot.record,
                        kind: match (is_new, &stack) {
                            (true, _) => Kind::New,
                            (_, None) => Kind::Unreadable,
                            _ => Kind::Parked,
                        },
                        stack: stack.map(|stack| self.number(stack)),
                        wait_lock: 0,
                    };
                }
            }
            match lights.again(&slot).filter(|it| it.life == slot.life) {
                Some(later) => slot = later,
                None => return without_stack(slot.record, Kind::Ended),
            }
        }
        without_stack(slot.record, Kind::Restless)
    }

    /// Returns a stack without managed frames.
    fn native_stack(&mut self, registers: Registers) -> Stack {
        let (frames, end) = self.unwinder.frames(registers, &mut self.pages);
        Stack {
            frames: frames.into(),
            end,
            managed: Box::default(),
            monitor: 0,
        }
    }
}

/// Returns the record of a light thread: on a host it does what the host does.
fn as_hosted(slot: &LightSlot, host: Option<&ThreadRecord>) -> ThreadRecord {
    match host {
        Some(host) if slot.is_on_cpu => ThreadRecord {
            carrier: host.carrier,
            state: host.state,
            wait_kind: host.wait_kind,
            wait_arg: host.wait_arg,
            since_ns: host.since_ns,
            deadline_ns: host.deadline_ns,
            host_tid: host.tid.into(),
            ..slot.record
        },
        _ => slot.record,
    }
}
