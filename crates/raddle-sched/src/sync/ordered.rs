//! loom's atomics, with `SeqCst` accesses that are sequentially consistent.
//!
//! loom treats a `SeqCst` access as an acquire and release one, and so finds failures that no
//! machine shows; it does model `SeqCst` fences. Here a thread that makes a `SeqCst` access after
//! another makes a fence between the two, so that the language's promise between `SeqCst` accesses
//! holds in the model. A single access still orders nothing around it, so that loom finds a missing
//! fence beside it. Between two of them the model is stronger than the language: accesses there
//! that aren't `SeqCst` are ordered before the second too, so that loom misses a weakened middle
//! one of three.
//!
//! Rejected: explicit fences in the protocols (a real one costs 8 ns on x86-64, where the atomic
//! read-modify-write before it has the same effect).

use core::cell::Cell;
use loom::sync::atomic as inner;
pub use loom::sync::atomic::Ordering;

loom::thread_local! {
    /// True if this thread made a `SeqCst` access after its last `SeqCst` fence.
    static UNFENCED: Cell<bool> = Cell::new(false);
}

/// As `core::sync::atomic::fence`.
pub fn fence(order: Ordering) {
    inner::fence(order);
    if order == Ordering::SeqCst {
        UNFENCED.with(|unfenced| unfenced.set(false));
    }
}

/// Makes the fence that an access of this order needs; called before each access.
fn before(order: Ordering) {
    if order == Ordering::SeqCst && UNFENCED.with(|unfenced| unfenced.replace(true)) {
        inner::fence(order);
    }
}

macro_rules! ordered {
    ($name:ident $(<$t:ident>)?, $inner:ty, $value:ty) => {
        /// As the type of that name in `core::sync::atomic`.
        pub struct $name $(<$t>)? ($inner);

        impl $(<$t>)? $name $(<$t>)? {
            #[track_caller]
            pub fn new(value: $value) -> Self {
                Self(<$inner>::new(value))
            }

            #[track_caller]
            pub fn load(&self, order: Ordering) -> $value {
                before(order);
                self.0.load(order)
            }

            #[track_caller]
            pub fn store(&self, value: $value, order: Ordering) {
                before(order);
                self.0.store(value, order);
            }

            #[track_caller]
            pub fn swap(&self, value: $value, order: Ordering) -> $value {
                before(order);
                self.0.swap(value, order)
            }

            #[track_caller]
            pub fn compare_exchange(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                before(success);
                self.0.compare_exchange(current, new, success, failure)
            }
        }
    };
}

macro_rules! arithmetic {
    ($name:ident, $value:ty, $($method:ident)+) => {
        impl $name {
            $(
                #[track_caller]
                pub fn $method(&self, value: $value, order: Ordering) -> $value {
                    before(order);
                    self.0.$method(value, order)
                }
            )+
        }
    };
}

ordered!(AtomicU32, inner::AtomicU32, u32);
ordered!(AtomicU64, inner::AtomicU64, u64);
ordered!(AtomicUsize, inner::AtomicUsize, usize);
ordered!(AtomicPtr<T>, inner::AtomicPtr<T>, *mut T);
arithmetic!(AtomicU32, u32, fetch_add fetch_sub fetch_or fetch_and);
arithmetic!(AtomicU64, u64, fetch_add fetch_sub fetch_or fetch_and fetch_max fetch_min);
arithmetic!(AtomicUsize, usize, fetch_add fetch_sub fetch_or fetch_and fetch_max);
