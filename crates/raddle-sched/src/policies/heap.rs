//! Tasks by rising key, and in turn where keys are equal: a pairing heap (Fredman, Sedgewick,
//! Sleator, Tarjan 1986) of policy nodes.

use super::node::{node, of};
use crate::task::{Task, TaskRef};
use core::ptr::null_mut;

/// See the module.
pub(crate) struct Heap {
    root: *mut Task,
    turn: u64,
}

// SAFETY: whoever has the heap has its tasks.
unsafe impl Send for Heap {}

impl Heap {
    pub const fn new() -> Self {
        Self {
            root: null_mut(),
            turn: 0,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.root.is_null()
    }

    /// The least key.
    pub fn least(&self) -> Option<u64> {
        (!self.root.is_null()).then(|| node(self.root).key.get())
    }

    pub fn push(&mut self, task: TaskRef, key: u64) {
        let links = of(task);
        links.key.set(key);
        links.turn.set(self.turn);
        self.turn += 1;
        links.child.set(null_mut());
        links.next.set(null_mut());
        self.root = meld(self.root, task.as_ptr());
    }

    pub fn pop(&mut self) -> Option<TaskRef> {
        // SAFETY: the heap's tasks.
        let task = unsafe { TaskRef::from_ptr(self.root) }?;
        self.root = meld_siblings(of(task).child.get());
        Some(task)
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
    node(low).next.set(node(top).child.get());
    node(top).child.set(low);
    top
}

/// Takes the first of a list of siblings off it.
fn take(first: &mut *mut Task) -> *mut Task {
    let task = *first;
    if !task.is_null() {
        *first = node(task).next.replace(null_mut());
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
