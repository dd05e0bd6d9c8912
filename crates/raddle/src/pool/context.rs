//! Values that flow from the queueing thread to the work.
//!
//! A [`Context`] is a set of values of [`ContextLocal`]s. Each thread has a current one. A pool
//! captures it when work is queued and makes it current around the work. Contexts are immutable
//! and shared: capturing one is a reference count, and nothing at all while no value is set.

use super::sync::quietly;
use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

type Value = Arc<dyn Any + Send + Sync>;

#[derive(Clone)]
struct Entry {
    value: Value,
    notify: Option<Notify>,
}

/// Calls a local's callback after a change; knows the local's type.
type Notify = fn(usize, Option<&Value>, Option<&Value>, bool);

type Values = BTreeMap<usize, Entry>;

thread_local! {
    static CURRENT: RefCell<Option<Arc<Values>>> = const { RefCell::new(None) };
    static SUPPRESSED: Cell<u32> = const { Cell::new(0) };
}

/// Calls `look` with the current values; a thread that ends has none.
fn with_current<R>(look: impl Fn(Option<&Arc<Values>>) -> R) -> R {
    let seen = CURRENT.try_with(|values| look(values.borrow().as_ref()));
    seen.unwrap_or_else(|_| look(None))
}

/// Makes `next` current; a thread that ends keeps no values. Returns the earlier values.
fn replace_current(next: Option<Arc<Values>>) -> Option<Arc<Values>> {
    CURRENT
        .try_with(|values| values.replace(next))
        .ok()
        .flatten()
}

/// The values of all [`ContextLocal`]s at one moment.
///
/// # Examples
/// ```
/// use raddle::pool::{Context, ContextLocal};
///
/// static USER: ContextLocal<String> = ContextLocal::new();
///
/// USER.set("ada".to_string());
/// let context = Context::capture();
/// USER.clear();
/// assert_eq!(context.run(|| USER.get().as_deref().cloned()), Some("ada".to_string()));
/// assert_eq!(USER.get(), None);
/// ```
#[derive(Clone, Default)]
pub struct Context {
    values: Option<Arc<Values>>,
}

impl Context {
    /// Returns the calling thread's current context.
    ///
    /// # Examples
    /// ```
    /// let context = raddle::pool::Context::capture();
    /// assert!(context.is_empty());
    /// ```
    pub fn capture() -> Self {
        let values = with_current(|values| values.cloned());
        Self { values }
    }

    /// Returns whether no value is set.
    ///
    /// # Examples
    /// ```
    /// assert!(raddle::pool::Context::default().is_empty());
    /// ```
    pub fn is_empty(&self) -> bool {
        self.values.is_none()
    }

    /// Runs `f` with this context current, and restores the thread's own afterwards, also after a
    /// panic. Values that `f` sets are dropped with its run.
    ///
    /// # Examples
    /// ```
    /// use raddle::pool::{Context, ContextLocal};
    /// static DEPTH: ContextLocal<u32> = ContextLocal::new();
    ///
    /// Context::default().run(|| DEPTH.set(1));
    /// assert_eq!(DEPTH.get(), None);
    /// ```
    pub fn run<R>(&self, f: impl FnOnce() -> R) -> R {
        struct Restore(Option<Arc<Values>>);
        impl Drop for Restore {
            fn drop(&mut self) {
                switch(self.0.take());
            }
        }
        let _restore = Restore(switch(self.values.clone()));
        f()
    }

    /// Keeps contexts from flowing into work that this thread queues, until the guard is dropped.
    ///
    /// # Examples
    /// ```
    /// use raddle::pool::{Context, ContextLocal, Pool};
    /// static USER: ContextLocal<&str> = ContextLocal::new();
    ///
    /// let pool = Pool::new();
    /// USER.set("ada");
    /// let guard = Context::suppress_flow();
    /// assert_eq!(pool.task(|| USER.get())?.wait().unwrap(), None);
    /// drop(guard);
    /// assert!(pool.task(|| USER.get())?.wait().unwrap().is_some());
    /// # Ok::<(), raddle::pool::QueueError>(())
    /// ```
    pub fn suppress_flow() -> SuppressFlow {
        SUPPRESSED.set(SUPPRESSED.get() + 1);
        SuppressFlow(PhantomData)
    }

    /// Returns the context for work that is queued now; `None` if it is empty or may not flow.
    #[inline(always)]
    pub(super) fn flowing() -> Option<Self> {
        with_current(|values| {
            let values = Some(values.filter(|_| SUPPRESSED.get() == 0)?.clone());
            Some(Self { values })
        })
    }

    /// Drops values that a work item has set without a context of its own.
    #[inline(always)]
    pub(super) fn reset() {
        if with_current(|values| values.is_some()) {
            switch(None);
        }
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let values = self.values.as_ref().map_or(0, |values| values.len());
        out.debug_struct("Context")
            .field("values", &values)
            .finish()
    }
}

/// A guard that keeps contexts from flowing; from [`Context::suppress_flow`].
///
/// ```
/// use raddle::pool::Context;
/// {
///     let _guard = Context::suppress_flow();
///     // work that is queued here takes no context along
/// }
/// ```
#[derive(Debug)]
pub struct SuppressFlow(PhantomData<*mut ()>);

impl Drop for SuppressFlow {
    fn drop(&mut self) {
        SUPPRESSED.set(SUPPRESSED.get() - 1);
    }
}

/// Makes `next` current, notifies the changed locals, and returns the earlier values.
fn switch(next: Option<Arc<Values>>) -> Option<Arc<Values>> {
    let previous = replace_current(next.clone());
    let same = match (&previous, &next) {
        (None, None) => true,
        (Some(a), Some(b)) => Arc::ptr_eq(a, b),
        _ => false,
    };
    if !same {
        tell_of_differences(previous.as_deref(), next.as_deref());
    }
    previous
}

fn tell_of_differences(before: Option<&Values>, after: Option<&Values>) {
    let value = |values: Option<&Values>, id| {
        let entry = values.and_then(|values: &Values| values.get(&id));
        entry.map(|entry| entry.value.clone())
    };
    for (&id, entry) in before.into_iter().flatten() {
        let new = value(after, id);
        let same = new
            .as_ref()
            .is_some_and(|new| Arc::ptr_eq(new, &entry.value));
        if let (Some(notify), false) = (entry.notify, same) {
            quietly(|| notify(id, Some(&entry.value), new.as_ref(), true));
        }
    }
    for (&id, entry) in after.into_iter().flatten() {
        if let (Some(notify), None) = (entry.notify, value(before, id)) {
            quietly(|| notify(id, None, Some(&entry.value), true));
        }
    }
}

/// A change of a [`ContextLocal`] on the calling thread.
///
/// ```
/// use raddle::pool::{Change, ContextLocal};
/// fn tell(change: &Change<'_, u8>) {
///     println!("from {:?} to {:?}", change.old, change.new);
/// }
/// static LOCAL: ContextLocal<u8> = ContextLocal::with_notify(tell);
/// LOCAL.set(3); // from None to Some(3)
/// ```
#[derive(Debug)]
pub struct Change<'a, T> {
    /// The value before.
    pub old: Option<&'a T>,
    /// The value now.
    pub new: Option<&'a T>,
    /// True if another context became current, false if the value was set or cleared.
    pub by_switch: bool,
}

type Callback<T> = fn(&Change<'_, T>);

/// A value of the current context; made for a `static`. In destructors of thread-locals, at a
/// thread's end, there may be no context any more: then the local has no value, and keeps none.
///
/// # Examples
/// ```
/// use raddle::pool::{ContextLocal, Pool};
///
/// static REQUEST: ContextLocal<u64> = ContextLocal::new();
///
/// let pool = Pool::new();
/// REQUEST.set(7);
/// let seen = pool.task(|| *REQUEST.get().unwrap())?;
/// assert_eq!(seen.wait().unwrap(), 7);
/// # Ok::<(), raddle::pool::QueueError>(())
/// ```
pub struct ContextLocal<T: Send + Sync + 'static> {
    /// The local's key in contexts, given at the first use.
    id: OnceLock<usize>,
    notify: Option<Callback<T>>,
    value: PhantomData<fn() -> T>,
}

/// The callbacks by id, with their types erased; [`notify_typed`] of the same type reads them.
static CALLBACKS: std::sync::Mutex<BTreeMap<usize, &'static (dyn Any + Send + Sync)>> =
    std::sync::Mutex::new(BTreeMap::new());

impl<T: Send + Sync + 'static> ContextLocal<T> {
    /// Makes a local without a value.
    ///
    /// # Examples
    /// ```
    /// static LOCAL: raddle::pool::ContextLocal<u8> = raddle::pool::ContextLocal::new();
    /// assert!(LOCAL.get().is_none());
    /// ```
    pub const fn new() -> Self {
        Self {
            id: OnceLock::new(),
            notify: None,
            value: PhantomData,
        }
    }

    /// Makes a local that calls `notify` after each change of its value, on the thread of the
    /// change. The callback may change values itself, and is called for that, too. If it panics
    /// during a switch of contexts, the switch goes on, and the panic is dropped.
    ///
    /// # Examples
    /// ```
    /// use raddle::pool::{Change, Context, ContextLocal};
    /// use std::sync::atomic::{AtomicU32, Ordering};
    ///
    /// static SWITCHES: AtomicU32 = AtomicU32::new(0);
    /// fn count(change: &Change<'_, u8>) {
    ///     SWITCHES.fetch_add(change.by_switch.into(), Ordering::Relaxed);
    /// }
    /// static LOCAL: ContextLocal<u8> = ContextLocal::with_notify(count);
    ///
    /// LOCAL.set(1);
    /// Context::default().run(|| ());
    /// assert_eq!(SWITCHES.load(Ordering::Relaxed), 2); // away and back
    /// ```
    pub const fn with_notify(notify: fn(&Change<'_, T>)) -> Self {
        Self {
            id: OnceLock::new(),
            notify: Some(notify),
            value: PhantomData,
        }
    }

    /// Returns the value in the current context.
    ///
    /// # Examples
    /// ```
    /// static LOCAL: raddle::pool::ContextLocal<u8> = raddle::pool::ContextLocal::new();
    /// LOCAL.set(3);
    /// assert_eq!(LOCAL.get().as_deref(), Some(&3));
    /// ```
    pub fn get(&self) -> Option<Arc<T>> {
        let id = self.id.get()?;
        let value = with_current(|values| {
            let entry = values.and_then(|values| values.get(id));
            entry.map(|entry| entry.value.clone())
        });
        value.and_then(|value| value.downcast().ok())
    }

    /// Sets the value in the current context, which is copied: contexts captured earlier keep their
    /// values.
    ///
    /// # Examples
    /// ```
    /// static LOCAL: raddle::pool::ContextLocal<u8> = raddle::pool::ContextLocal::new();
    /// LOCAL.set(3);
    /// LOCAL.set(4);
    /// assert_eq!(LOCAL.get().as_deref(), Some(&4));
    /// ```
    pub fn set(&self, value: T) {
        self.replace(Some(Arc::new(value)));
    }

    /// Takes the value out of the current context.
    ///
    /// # Examples
    /// ```
    /// static LOCAL: raddle::pool::ContextLocal<u8> = raddle::pool::ContextLocal::new();
    /// LOCAL.set(3);
    /// LOCAL.clear();
    /// assert!(LOCAL.get().is_none());
    /// ```
    pub fn clear(&self) {
        self.replace(None);
    }

    fn replace(&self, value: Option<Arc<T>>) {
        let id = self.id();
        let value = value.map(|value| value as Value);
        let notify = self.notify.is_some().then_some(notify_typed::<T> as Notify);
        let current = replace_current(None);
        let mut values = current.map_or_else(Values::new, Arc::unwrap_or_clone);
        let old = match value.clone() {
            Some(value) => values.insert(id, Entry { value, notify }),
            None => values.remove(&id),
        };
        replace_current((!values.is_empty()).then(|| Arc::new(values)));
        if let Some(notify) = notify {
            let old = old.map(|entry| entry.value);
            notify(id, old.as_ref(), value.as_ref(), false);
        }
    }

    fn id(&self) -> usize {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        *self.id.get_or_init(|| {
            let id = NEXT.fetch_add(1, Ordering::Relaxed);
            if let Some(callback) = self.notify {
                // Ids live as long as statics, and so may the one box behind each.
                let callback: &'static (dyn Any + Send + Sync) = Box::leak(Box::new(callback));
                callbacks().insert(id, callback);
            }
            id
        })
    }
}

fn callbacks() -> std::sync::MutexGuard<'static, BTreeMap<usize, &'static (dyn Any + Send + Sync)>>
{
    CALLBACKS
        .lock()
        .unwrap_or_else(|broken| broken.into_inner())
}

fn notify_typed<T: 'static>(id: usize, old: Option<&Value>, new: Option<&Value>, by_switch: bool) {
    let callback = callbacks().get(&id).copied();
    if let Some(callback) = callback.and_then(|any| any.downcast_ref::<Callback<T>>()) {
        callback(&Change {
            old: old.and_then(|value| value.downcast_ref()),
            new: new.and_then(|value| value.downcast_ref()),
            by_switch,
        });
    }
}

impl<T: Send + Sync + 'static> Default for ContextLocal<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Send + Sync + 'static> fmt::Debug for ContextLocal<T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("ContextLocal").finish_non_exhaustive()
    }
}
