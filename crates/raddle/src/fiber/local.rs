//! Values of fibers.

use super::{Error, Fiber, current};
use std::any::Any;
use std::fmt;
use std::rc::Rc;

/// A value for each fiber, made at its first use on that fiber and dropped with it. It must be a
/// `static`.
///
/// ```
/// # use raddle::fiber::{self, Local};
/// # use std::cell::Cell;
/// static DEPTH: Local<Cell<u32>> = Local::new(|| Cell::new(7));
/// fiber::convert_thread()?;
/// DEPTH.with(|depth| depth.set(depth.get() + 1))?;
/// assert_eq!(DEPTH.with(Cell::get)?, 8);
/// fiber::convert_back()?;
/// # Ok::<(), fiber::Error>(())
/// ```
pub struct Local<T: 'static> {
    init: fn() -> T,
}

impl<T: 'static> fmt::Debug for Local<T> {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("Local").finish_non_exhaustive()
    }
}

impl<T: 'static> Local<T> {
    /// A value that `init` makes for each fiber.
    ///
    /// ```
    /// use raddle::fiber::Local;
    /// static NAME: Local<String> = Local::new(String::new);
    /// # let _ = &NAME;
    /// ```
    pub const fn new(init: fn() -> T) -> Self {
        Self { init }
    }

    /// Calls `f` with the running fiber's value.
    ///
    /// ```
    /// use raddle::fiber::{self, Error, Local};
    /// static NAME: Local<&str> = Local::new(|| "weft");
    /// assert_eq!(NAME.with(|name| name.len()), Err(Error::NoFiber));
    /// fiber::convert_thread()?;
    /// assert_eq!(NAME.with(|name| name.len()), Ok(4));
    /// # fiber::convert_back()?;
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::NoFiber`].
    pub fn with<R>(&'static self, f: impl FnOnce(&T) -> R) -> Result<R, Error> {
        let key = std::ptr::from_ref(self).addr();
        let Fiber(current) = current().ok_or(Error::NoFiber)?; // `init` may end the fiber
        let find = || {
            let locals = current.locals.borrow();
            let local = locals.iter().find(|(of, _)| *of == key);
            local.map(|(_, value)| Rc::clone(value))
        };
        let value = find().unwrap_or_else(|| {
            let value: Rc<dyn Any> = Rc::new((self.init)());
            find().unwrap_or_else(|| {
                current.locals.borrow_mut().push((key, Rc::clone(&value)));
                value
            })
        });
        match value.downcast_ref::<T>() {
            Some(value) => Ok(f(value)),
            None => unreachable!("a static's address is its own"),
        }
    }
}
