//! Tasks by rising key, and in turn where keys are equal: a pairing heap (Fredman, Sedgewick,
//! Sleator, Tarjan 1986) of policy nodes.

use crate::task::{Task, TaskRef, node, of};
use core::ptr::null_mut;

/// See the module.
pub(crate) struct Heap {
    root: *mut Task,
    turn: u64,
}

// SAFETY: the owner of the heap owns its tasks.
unsafe impl Send for Heap {}

impl Heap {
    pub(crate) const fn new() -> Self {
        Self {
            root: null_mut(),
            turn: 0,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.root.is_null()
    }

    /// Returns the least key.
    pub(crate) fn least(&self) -> Option<u64> {
        (!self.root.is_null()).then(|| node(self.root).key.get())
    }

    pub(crate) fn push(&mut self, task: TaskRef, key: u64) {
        let links = of(task);
        links.key.set(key);
        links.turn.set(self.turn);
        self.turn += 1;
        links.child.set(null_mut());
        links.next.set(null_mut());
        links.before.set(null_mut());
        self.root = meld(self.root, task.as_ptr());
    }

    pub(crate) fn pop(&mut self) -> Option<TaskRef> {
        // SAFETY: the heap's tasks.
        let task = unsafe { TaskRef::from_ptr(self.root) }?;
        self.root = meld_siblings(of(task).child.get());
        Some(task)
    }

    /// Takes a task of this heap out, wherever it is.
    pub(crate) fn remove(&mut self, task: TaskRef) {
        let links = of(task);
        let children = meld_siblings(links.child.get());
        if task.as_ptr() == self.root {
            self.root = children;
            return;
        }
        let (before, next) = (links.before.get(), links.next.get());
        if node(before).child.get() == task.as_ptr() {
            node(before).child.set(next)
        } else {
            node(before).next.set(next)
        }
        set_before(next, before);
        self.root = meld(self.root, children);
    }
}

/// Sets the task before `task`: its elder sibling, or the parent for the first child.
fn set_before(task: *mut Task, before: *mut Task) {
    if !task.is_null() {
        node(task).before.set(before);
    }
}

fn is_before(a: *mut Task, b: *mut Task) -> bool {
    let place = |task| (node(task).key.get(), node(task).turn.get());
    place(a) < place(b)
}

/// Makes the later of two roots, which have no siblings, the first child of the earlier.
fn meld(a: *mut Task, b: *mut Task) -> *mut Task {
    if a.is_null() {
        return b;
    }
    if b.is_null() {
        return a;
    }
    let (top, low) = if is_before(a, b) { (a, b) } else { (b, a) };
    let elder = node(top).child.replace(low);
    node(low).next.set(elder);
    set_before(elder, low);
    set_before(low, top);
    top
}

/// Takes the first of a list of siblings off it.
fn take(first: &mut *mut Task) -> *mut Task {
    let task = *first;
    if !task.is_null() {
        *first = node(task).next.replace(null_mut());
        node(task).before.set(null_mut());
    }
    task
}

/// Melds a list of siblings into one tree: pairs from the left, then all from the right.
fn meld_siblings(mut first: *mut Task) -> *mut Task {
    let mut pairs: *mut Task = null_mut();
    while !first.is_null() {
        let a = take(&mut first);
        let b = take(&mut first);
        let pair = meld(a, b);
        node(pair).next.set(pairs);
        pairs = pair;
    }
    let mut root: *mut Task = null_mut();
    while !pairs.is_null() {
        let pair = take(&mut pairs);
        root = meld(root, pair);
    }
    root
}

#[cfg(all(test, not(any(raddle_loom, raddle_shuttle))))]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::ptr::NonNull;

    proptest! {
        /// Against a list that is sorted anew each time.
        #[test]
        fn tasks_leave_in_order_whatever_was_taken_out(
            steps in prop::collection::vec((0u8..4, 0u64..50), 1..200),
        ) {
            let tasks: Vec<Box<Task>> = steps.iter().map(|_| Box::new(Task::new())).collect();
            let mut heap = Heap::new();
            let mut inside: Vec<(u64, usize)> = Vec::new();
            for (at, &(kind, number)) in steps.iter().enumerate() {
                // SAFETY: the tasks outlive the heap.
                let task = |at: usize| unsafe { TaskRef::new(NonNull::from(&*tasks[at])) };
                match kind {
                    0 | 1 => {
                        heap.push(task(at), number);
                        inside.push((number, at));
                    }
                    2 if !inside.is_empty() => {
                        let (_, at) = inside.remove(number as usize % inside.len());
                        heap.remove(task(at));
                    }
                    _ => {
                        inside.sort_unstable();
                        let first = (!inside.is_empty()).then(|| inside.remove(0));
                        prop_assert_eq!(heap.pop(), first.map(|(_, at)| task(at)));
                    }
                }
                prop_assert_eq!(heap.least(), inside.iter().map(|&(key, _)| key).min());
                prop_assert_eq!(heap.is_empty(), inside.is_empty());
            }
        }
    }
}
