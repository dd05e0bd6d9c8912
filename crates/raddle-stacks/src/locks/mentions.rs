//! Threads that have the address of a lock on their stacks: which of them may hold a lock that
//! notes no owner. A word on a stack may be what a finished call has left, so that this is a remark
//! for people: no owner is named by it, and no cycle is made of it.

use std::collections::{HashMap, HashSet};

use super::{Edge, ObjectKind, Owner};
use crate::capture::Target;
use crate::table::Table;

/// The part of a stack that is looked at.
const STACK_BYTES: usize = 32 << 10;
/// The most bytes that are looked at of all stacks.
const BYTES_MAX: usize = 64 << 20;
/// The most threads that are listed.
const LISTED_MAX: usize = 4;

/// Adds a remark to waits for locks of which the owner isn't known.
pub(super) fn remark(target: &Target<'_>, edges: &mut [Edge]) {
    let wanted: HashSet<u64> = edges
        .iter()
        .filter(|edge| is_wanted(edge))
        .map(|edge| edge.object.address)
        .collect();
    if wanted.is_empty() {
        return;
    }
    let mentions = mentions(target, &wanted);
    let waiters: HashSet<(u32, u64)> = edges
        .iter()
        .map(|edge| (edge.waiter, edge.object.address))
        .collect();
    for edge in edges.iter_mut().filter(|edge| is_wanted(edge)) {
        let address = edge.object.address;
        // A thread that waits for the lock has its address for that.
        let others = mentions.get(&address).into_iter().flatten();
        let others: Vec<u32> = others
            .filter(|&&tid| !waiters.contains(&(tid, address)))
            .copied()
            .collect();
        if (1..=LISTED_MAX).contains(&others.len()) {
            let list: Vec<String> = others.iter().map(|tid| format!("#{tid}")).collect();
            let remark = format!("its address is on the stack of {}", list.join(", "));
            edge.object.note = Some(match edge.object.note.take() {
                Some(note) => format!("{note}; {remark}"),
                None => remark,
            });
        }
    }
}

/// Returns true for a wait for a lock that some thread holds, without saying which.
fn is_wanted(edge: &Edge) -> bool {
    let is_lock = matches!(
        edge.object.kind,
        ObjectKind::RustMutex
            | ObjectKind::PythonMutex
            | ObjectKind::RustReadWriteLock
            | ObjectKind::ReadLock
            | ObjectKind::WriteLock
    );
    is_lock && edge.owner == Owner::Unknown && edge.object.address != 0
}

/// Returns the threads with one of the addresses on their stacks, by the addresses.
fn mentions(target: &Target<'_>, wanted: &HashSet<u64>) -> HashMap<u64, Vec<u32>> {
    let mut found: HashMap<u64, Vec<u32>> = HashMap::new();
    let Some(mut table) = Table::new(target) else {
        return found;
    };
    let mut left = BYTES_MAX;
    let mut bytes = vec![0; STACK_BYTES];
    table.for_each(|slot| {
        if slot.is_on_cpu || left < STACK_BYTES {
            return;
        }
        // The C library's thread block ends the stack of all threads but the main one.
        let room = slot.fs.checked_sub(slot.context).map(|it| it as usize);
        let size = room.map_or(STACK_BYTES, |it| it.min(STACK_BYTES));
        let got = target.memory.read(slot.context, &mut bytes[..size]);
        left -= got;
        let words = bytes[..got].chunks_exact(8);
        let words = words.filter_map(|word| word.first_chunk().copied());
        let here: HashSet<u64> = words
            .map(u64::from_le_bytes)
            .filter(|word| wanted.contains(word))
            .collect();
        for address in here {
            found.entry(address).or_default().push(slot.record.tid);
        }
    });
    found
}
