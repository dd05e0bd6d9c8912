//! The tables that are measured, each with weak handles to the same objects.

use super::Object;
use raddle::handles::raw::{Host, RawHandle, RawTable};
use raddle::handles::{Handle, Kind, Owner, Table};
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::cell::Cell;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};

/// A table of weak handles.
pub(crate) trait Weaks: Sync {
    type Handle: Copy + Send + Sync;
    fn new() -> Self;
    fn insert(&self, object: &Arc<Object>) -> Self::Handle;
    /// Calls `look` with the object, if it lives.
    fn with<R>(&self, handle: Self::Handle, look: impl FnOnce(&Object) -> R) -> Option<R>;
    fn remove(&self, handle: Self::Handle);
}

/// What a peer keeps for a handle.
pub(crate) trait Reference: Clone + Send + Sync {
    type Strong: Deref<Target = Object>;
    fn to(object: &Arc<Object>) -> Self;
    fn strong(&self) -> Option<Self::Strong>;
}

impl Reference for Weak<Object> {
    type Strong = Arc<Object>;

    fn to(object: &Arc<Object>) -> Self {
        Arc::downgrade(object)
    }

    fn strong(&self) -> Option<Arc<Object>> {
        self.upgrade()
    }
}

/// The address of an object that lives at least as long as its handles.
#[derive(Clone, Copy)]
pub(crate) struct Plain(NonNull<Object>);

// SAFETY: an object may be shared by threads.
unsafe impl Send for Plain {}
// SAFETY: as above.
unsafe impl Sync for Plain {}

impl Deref for Plain {
    type Target = Object;

    fn deref(&self) -> &Object {
        // SAFETY: the stresses keep objects longer than their handles.
        unsafe { self.0.as_ref() }
    }
}

impl Reference for Plain {
    type Strong = Plain;

    fn to(object: &Arc<Object>) -> Self {
        Plain(NonNull::from(&**object))
    }

    fn strong(&self) -> Option<Plain> {
        Some(*self)
    }
}

/// Our raw table: addresses, which are looked at without a hold.
pub(crate) struct Raw(RawTable<Heap>);

pub(crate) struct Heap;

// SAFETY: the global allocator's memory, zeroed.
unsafe impl Host for Heap {
    fn allocate(&self, layout: Layout) -> Option<NonNull<u8>> {
        // SAFETY: a bucket's size isn't 0.
        NonNull::new(unsafe { alloc_zeroed(layout) })
    }

    unsafe fn free(&self, at: NonNull<u8>, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { dealloc(at.as_ptr(), layout) }
    }

    unsafe fn release(&self, _: NonNull<()>, _: Kind) {}
}

/// A number for each thread.
fn hint() -> usize {
    static THREADS: AtomicUsize = AtomicUsize::new(1);
    thread_local!(static HINT: Cell<usize> = const { Cell::new(0) });
    if HINT.get() == 0 {
        HINT.set(THREADS.fetch_add(1, Ordering::Relaxed));
    }
    HINT.get()
}

impl Weaks for Raw {
    type Handle = RawHandle;

    fn new() -> Self {
        Self(RawTable::new(Heap, 0))
    }

    fn insert(&self, object: &Arc<Object>) -> RawHandle {
        let target = NonNull::from(&**object).cast();
        let handle = self.0.insert(hint(), target, Kind::Weak, Owner::NOBODY);
        handle.expect("there is memory")
    }

    fn with<R>(&self, handle: RawHandle, look: impl FnOnce(&Object) -> R) -> Option<R> {
        let target = self.0.peek(handle).ok()?.target;
        Some(look(&Plain(target.cast())))
    }

    fn remove(&self, handle: RawHandle) {
        let removed = self.0.remove(hint(), handle);
        removed.expect("it was not removed before");
    }
}

/// Our table of values that are counted.
pub(crate) struct Counted(Table<Object>);

impl Weaks for Counted {
    type Handle = Handle<Object>;

    fn new() -> Self {
        Self(Table::new())
    }

    fn insert(&self, object: &Arc<Object>) -> Self::Handle {
        let handle = self.0.insert_weak(object, Owner::NOBODY);
        handle.expect("there is memory")
    }

    fn with<R>(&self, handle: Self::Handle, look: impl FnOnce(&Object) -> R) -> Option<R> {
        self.0.with(handle, look).ok()
    }

    fn remove(&self, handle: Self::Handle) {
        self.0.remove(handle).expect("it was not removed before");
    }
}

/// A mutex around a bitmap of free slots and the array of objects.
pub(crate) struct Bitmap<V>(Mutex<Bits<V>>);

pub(crate) struct Bits<V> {
    /// A set bit is a slot in use.
    used: Vec<u64>,
    /// No word before this one has a free bit.
    first: usize,
    objects: Vec<Option<V>>,
}

impl<V: Reference> Weaks for Bitmap<V> {
    type Handle = usize;

    fn new() -> Self {
        Self(Mutex::new(Bits {
            used: Vec::new(),
            first: 0,
            objects: Vec::new(),
        }))
    }

    fn insert(&self, object: &Arc<Object>) -> usize {
        let object = V::to(object);
        let mut bits = self.0.lock().expect("no thread fails");
        while bits.used.get(bits.first) == Some(&u64::MAX) {
            bits.first += 1;
        }
        let word = bits.first;
        if word == bits.used.len() {
            let words = (word * 2).max(1);
            bits.used.resize(words, 0);
            bits.objects.resize(words * 64, None);
        }
        let bit = bits.used[word].trailing_ones() as usize;
        bits.used[word] |= 1 << bit;
        bits.objects[word * 64 + bit] = Some(object);
        word * 64 + bit
    }

    fn with<R>(&self, handle: usize, look: impl FnOnce(&Object) -> R) -> Option<R> {
        let bits = self.0.lock().expect("no thread fails");
        let object = bits.objects[handle].as_ref()?.strong();
        drop(bits);
        object.map(|object| look(&object))
    }

    fn remove(&self, handle: usize) {
        let mut bits = self.0.lock().expect("no thread fails");
        let object = bits.objects[handle].take();
        bits.used[handle / 64] &= !(1 << (handle % 64));
        bits.first = bits.first.min(handle / 64);
        drop(bits);
        drop(object);
    }
}

pub(crate) struct Slabs<V>(Mutex<slab::Slab<V>>);

impl<V: Reference> Weaks for Slabs<V> {
    type Handle = usize;

    fn new() -> Self {
        Self(Mutex::default())
    }

    fn insert(&self, object: &Arc<Object>) -> usize {
        let object = V::to(object);
        self.0.lock().expect("no thread fails").insert(object)
    }

    fn with<R>(&self, handle: usize, look: impl FnOnce(&Object) -> R) -> Option<R> {
        let slab = self.0.lock().expect("no thread fails");
        let object = slab.get(handle)?.strong();
        drop(slab);
        object.map(|object| look(&object))
    }

    fn remove(&self, handle: usize) {
        let object = self.0.lock().expect("no thread fails").remove(handle);
        drop(object);
    }
}

pub(crate) struct Sharded<V>(sharded_slab::Slab<V>);

impl<V: Reference> Weaks for Sharded<V> {
    type Handle = usize;

    fn new() -> Self {
        Self(sharded_slab::Slab::new())
    }

    fn insert(&self, object: &Arc<Object>) -> usize {
        self.0.insert(V::to(object)).expect("there is memory")
    }

    fn with<R>(&self, handle: usize, look: impl FnOnce(&Object) -> R) -> Option<R> {
        let object = self.0.get(handle)?.strong();
        object.map(|object| look(&object))
    }

    fn remove(&self, handle: usize) {
        assert!(self.0.remove(handle), "it was not removed before");
    }
}
