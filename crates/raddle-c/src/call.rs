//! Arguments of C: addresses of results, and functions to call.

use crate::error::Errno;
use libc::c_void;
use std::ptr::NonNull;

/// An address for a result from C, or null.
#[repr(transparent)]
pub(crate) struct Out<T>(Option<NonNull<T>>);

impl<T> Out<T> {
    /// For required results.
    pub(crate) fn required(self) -> Result<Place<T>, Errno> {
        self.0.map(Place).ok_or(Errno(libc::EFAULT))
    }

    /// Returns whether C wants the result.
    pub(crate) fn is_wanted(&self) -> bool {
        self.0.is_some()
    }

    /// Stores a result if C wants it.
    pub(crate) fn put(self, value: T) {
        if let Some(place) = self.0 {
            Place(place).put(value);
        }
    }
}

/// An address for a result from C.
pub(crate) struct Place<T>(NonNull<T>);

impl<T> Place<T> {
    /// Stores a result.
    pub(crate) fn put(&self, value: T) {
        // SAFETY: C promises that an address that isn't null can be written until the call returns.
        unsafe { self.0.write(value) }
    }
}

/// A value of C's, which means nothing here.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub(crate) struct Value(pub *mut c_void);

// SAFETY: the value is only stored and given back; C promises that it may cross threads.
unsafe impl Send for Value {}
// SAFETY: as above.
unsafe impl Sync for Value {}

impl Value {
    pub(crate) const NULL: Self = Self(std::ptr::null_mut());
}

/// A function that computes something. A C++ function may throw, which ends the process at the next
/// frame of this library.
pub(crate) type Compute = unsafe extern "C-unwind" fn(*mut c_void) -> *mut c_void;

/// A function of C's with its argument.
#[derive(Clone, Copy)]
pub(crate) struct Job {
    compute: Compute,
    argument: Value,
}

impl Job {
    pub(crate) fn new(compute: Option<Compute>, argument: Value) -> Result<Self, Errno> {
        let compute = compute.ok_or(Errno(libc::EFAULT))?;
        Ok(Self { compute, argument })
    }

    /// Returns the job as work without a result.
    pub(crate) fn work(self) -> impl Fn() + Send + 'static {
        move || {
            self.run();
        }
    }

    pub(crate) fn run(self) -> Value {
        // SAFETY: C promises that the function may be called with its argument, on any thread.
        Value(unsafe { (self.compute)(self.argument.0) })
    }
}
