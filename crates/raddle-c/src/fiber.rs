//! Fibers, and their local words.
//!
//! A fiber of C's is a [`Fiber`] with its data, its words and its thread. It is on the list of its
//! thread until C deletes it.

use crate::call::{Out, Value};
use crate::error::{Answer, Errno, done, guard};
use libc::{c_int, c_void};
use raddle::fiber::{self, Error, Fiber};
use std::cell::{Cell, RefCell};
use std::mem::ManuallyDrop;
use std::ptr::{from_ref, null, null_mut};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

type Function = unsafe extern "C-unwind" fn(*mut c_void) -> *const CFiber;
type Callback = unsafe extern "C-unwind" fn(*mut c_void);

/// The type behind `raddle_fiber`.
pub(crate) struct CFiber {
    fiber: Fiber,
    is_first: bool,
    data: Value,
    /// The number of its thread, which no later thread gets.
    thread: u64,
    /// Keys and words that aren't null.
    words: RefCell<Vec<(u64, Value)>>,
}

thread_local! {
    /// The running fiber, or null.
    static CURRENT: Cell<*const CFiber> = const { Cell::new(null()) };
    /// All fibers of the thread. Without a destructor, since destructors of C++'s thread-locals may
    /// run later; deleting the last fiber frees the memory.
    static ALL: RefCell<ManuallyDrop<Vec<*const CFiber>>> =
        const { RefCell::new(ManuallyDrop::new(Vec::new())) };
    /// The thread's number, given at the first use.
    static NUMBER: Cell<u64> = const { Cell::new(0) };
}

fn this_thread() -> u64 {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    if NUMBER.get() == 0 {
        NUMBER.set(1 + COUNT.fetch_add(1, Ordering::Relaxed));
    }
    NUMBER.get()
}

impl From<Error> for Errno {
    fn from(error: Error) -> Self {
        Self(match error {
            Error::IsFiber | Error::Runs => libc::EBUSY,
            Error::Ended => libc::ESRCH,
            _ => libc::EPERM,
        })
    }
}

impl CFiber {
    fn add(fiber: Fiber, is_first: bool, data: Value) -> *const Self {
        let fiber = Box::into_raw(Box::new(Self {
            fiber,
            is_first,
            data,
            thread: this_thread(),
            words: RefCell::default(),
        }));
        ALL.with_borrow_mut(|all| all.push(fiber));
        fiber
    }

    /// Gives C its words back. Words that callbacks set meanwhile are dropped.
    fn lose_words(&self) {
        for (key, value) in self.words.take() {
            let callback = find(&keys(), key).ok().and_then(|key| key.callback);
            if let Some(callback) = callback {
                // SAFETY: C promises that the callback may be called with its words.
                unsafe { callback(value.0) };
            }
        }
    }

    /// Frees a fiber.
    ///
    /// # Safety
    /// The fiber must not be used any more.
    unsafe fn free(at: *const Self) {
        ALL.with_borrow_mut(|all| {
            all.retain(|&other| other != at);
            if all.is_empty() {
                drop(std::mem::take(&mut **all));
            }
        });
        // SAFETY: made by `add`.
        let own = unsafe { Box::from_raw(at.cast_mut()) };
        own.lose_words();
        if !own.is_first {
            // SAFETY: C promises that nothing refers to the fiber's stack; and the fiber doesn't
            // run.
            _ = unsafe { own.fiber.delete() };
        }
    }
}

/// Returns a fiber that C named, if it is the calling thread's.
fn own(fiber: Option<&CFiber>) -> Result<&CFiber, Errno> {
    let fiber = fiber.ok_or(Errno(libc::EFAULT))?;
    if fiber.thread == this_thread() {
        Ok(fiber)
    } else {
        Err(Errno(libc::EPERM))
    }
}

fn current<'a>() -> Result<&'a CFiber, Errno> {
    // SAFETY: null, or the running fiber, which can't be deleted.
    unsafe { CURRENT.get().as_ref() }.ok_or(Errno(libc::EPERM))
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn raddle_fiber_convert(data: Value, to: Out<*const CFiber>) -> c_int {
    guard(|| {
        let to = to.required()?;
        let first = CFiber::add(fiber::convert_thread()?, true, data);
        CURRENT.set(first);
        to.put(first);
        Ok(0)
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn raddle_fiber_convert_back() -> c_int {
    guard(|| {
        let first: *const CFiber = current()?;
        fiber::convert_back()?;
        CURRENT.set(null());
        // SAFETY: the thread is no fiber any more.
        unsafe { CFiber::free(first) };
        Ok(0)
    })
}

/// Runs a fiber's function.
fn run(function: Function, argument: Value) -> Fiber {
    // SAFETY: C promises that the function may be called with the argument, on this thread.
    let next = unsafe { function(argument.0) };
    if let Ok(this) = current() {
        this.lose_words();
    }
    // SAFETY: null or a fiber, by the header's promise.
    let Ok(target) = own(unsafe { next.as_ref() }) else {
        eprintln!("raddle: a fiber named none of its thread to continue");
        std::process::abort();
    };
    CURRENT.set(next);
    target.fiber.clone()
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn raddle_fiber_create(
    stack_size: usize,
    function: Option<Function>,
    argument: Value,
    to: Out<*const CFiber>,
) -> c_int {
    guard(|| {
        let (function, to) = (function.ok_or(Errno(libc::EFAULT))?, to.required()?);
        let run = move || run(function, argument);
        // SAFETY: C promises that no other thread uses what the fiber has of its thread's.
        let fiber = unsafe { Fiber::new_without_unwinding(stack_size, run) }?;
        to.put(CFiber::add(fiber, false, argument));
        Ok(0)
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn raddle_fiber_switch(fiber: Option<&CFiber>) -> c_int {
    let switch = || -> Answer {
        let target = own(fiber)?;
        let this = from_ref(current()?);
        CURRENT.set(target);
        done(target.fiber.switch_to().inspect_err(|_| CURRENT.set(this)))
    };
    switch().unwrap_or_else(|Errno(number)| -number)
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn raddle_fiber_delete(fiber: Option<&CFiber>) -> c_int {
    guard(|| {
        let target = own(fiber)?;
        let at = from_ref(target);
        if target.is_first || at == CURRENT.get() {
            return Err(Errno(libc::EBUSY));
        }
        // SAFETY: C's promise.
        unsafe { CFiber::free(at) };
        Ok(0)
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn raddle_fiber_current() -> *const CFiber {
    CURRENT.get()
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn raddle_fiber_data(fiber: Option<&CFiber>) -> *mut c_void {
    fiber.map_or(null_mut(), |fiber| fiber.data.0)
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn raddle_fiber_has_ended(fiber: Option<&CFiber>) -> c_int {
    guard(|| Ok(c_int::from(own(fiber)?.fiber.has_ended())))
}

/// A key of fiber-local words.
struct Key {
    /// The key's id; 0 for a free key.
    id: u64,
    callback: Option<Callback>,
}

const MOST_KEYS: usize = 1024;

/// All keys; the low part of an id is the index here.
static KEYS: Mutex<Vec<Key>> = Mutex::new(Vec::new());

fn keys() -> MutexGuard<'static, Vec<Key>> {
    KEYS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn find(keys: &[Key], id: u64) -> Result<&Key, Errno> {
    let key = keys.get(id as usize % MOST_KEYS);
    key.filter(|key| key.id == id && id != 0)
        .ok_or(Errno(libc::EBADF))
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn raddle_fls_alloc(callback: Option<Callback>, to: Out<u64>) -> c_int {
    static COUNT: Mutex<u64> = Mutex::new(0);
    guard(|| {
        let to = to.required()?;
        let mut keys = keys();
        let free = keys.iter().position(|key| key.id == 0);
        let at = free.unwrap_or(keys.len());
        if at == MOST_KEYS {
            return Err(Errno(libc::ENOSPC));
        }
        let mut count = COUNT.lock().unwrap_or_else(PoisonError::into_inner);
        *count += 1;
        let id = *count * MOST_KEYS as u64 + at as u64;
        let key = Key { id, callback };
        match keys.get_mut(at) {
            Some(place) => *place = key,
            None => keys.push(key),
        }
        to.put(id);
        Ok(0)
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn raddle_fls_free(id: u64) -> c_int {
    guard(|| {
        let mut keys = keys();
        let callback = find(&keys, id)?.callback;
        keys[id as usize % MOST_KEYS].id = 0;
        drop(keys);
        let mut values = Vec::new();
        ALL.with_borrow(|all| {
            for &fiber in all.iter() {
                // SAFETY: the fiber is on the list, so it wasn't deleted.
                let mut words = unsafe { &(*fiber).words }.borrow_mut();
                values.extend(words.extract_if(.., |(key, _)| *key == id));
            }
        });
        for (_, value) in values {
            if let Some(callback) = callback {
                // SAFETY: C promises that the callback may be called with its words.
                unsafe { callback(value.0) };
            }
        }
        Ok(0)
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn raddle_fls_get(id: u64, to: Out<*mut c_void>) -> c_int {
    guard(|| {
        let (to, this) = (to.required()?, current()?);
        find(&keys(), id)?;
        let words = this.words.borrow();
        let word = words.iter().find(|(key, _)| *key == id);
        to.put(word.map_or(null_mut(), |(_, value)| value.0));
        Ok(0)
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn raddle_fls_set(id: u64, value: Value) -> c_int {
    guard(|| {
        let this = current()?;
        find(&keys(), id)?;
        let mut words = this.words.borrow_mut();
        words.retain(|(key, _)| *key != id);
        if !value.0.is_null() {
            words.push((id, value));
        }
        Ok(0)
    })
}
