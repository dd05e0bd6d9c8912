//! Annotations for `raddle trace`: spans, moments and counters of the program, on the tracks of its
//! threads.
//!
//! While nothing records, each of these costs two loads and a branch. While something does, an
//! event of 24 bytes goes into the memory of the carrier. Without a runtime, on kernel threads that
//! are not the runtime's, and before the first thread is made, nothing is recorded.
//!
//! A span of a light thread is on the track of its host. There it should end before the light
//! thread waits.
//!
//! ```
//! fn handle(request: &str) -> usize {
//!     let _span = raddle::trace::span("handle");
//!     raddle::trace::counter("request bytes", request.len() as i64);
//!     request.lines().count()
//! }
//! assert_eq!(handle("a\nb"), 2);
//! ```

use crate::runtime;
use raddle_interface::TraceKind;
use std::ffi::CStr;
use std::marker::PhantomData;

/// A span, from [`span`] until it is dropped.
///
/// ```
/// let parsing: raddle::trace::Span = raddle::trace::span("parse");
/// drop(parsing);
/// ```
#[must_use = "the span ends when this is dropped"]
#[derive(Debug)]
pub struct Span {
    /// The begin was recorded, and the end has to be.
    is_recorded: bool,
    /// It ends on the thread on which it began.
    _own: PhantomData<*const ()>,
}

/// Begins a span of the calling thread. Of a name longer than 255 bytes the rest is left out. Spans
/// end in the reverse order of their begins.
///
/// ```
/// let _outer = raddle::trace::span("request");
/// let _inner = raddle::trace::span("parse"); // dropped first
/// ```
///
/// # Blocking
/// Nothing.
///
/// # Signal safety
/// May be called in a signal handler.
#[inline]
pub fn span(name: &'static str) -> Span {
    let is_recorded = runtime::is_traced();
    if is_recorded {
        runtime::trace(TraceKind::Begin, name.as_ptr(), name.len(), 0);
    }
    Span {
        is_recorded,
        _own: PhantomData,
    }
}

impl Drop for Span {
    #[inline]
    fn drop(&mut self) {
        if self.is_recorded {
            runtime::trace(TraceKind::End, std::ptr::null(), 0, 0);
        }
    }
}

/// Marks a moment of the calling thread.
///
/// ```
/// raddle::trace::instant("cache is full");
/// ```
///
/// # Blocking
/// Nothing.
#[inline]
pub fn instant(name: &'static str) {
    if runtime::is_traced() {
        runtime::trace(TraceKind::Instant, name.as_ptr(), name.len(), 0);
    }
}

/// Records a value of a counter of the process, which has a track of its own.
///
/// ```
/// raddle::trace::counter("queued jobs", 3);
/// ```
///
/// # Blocking
/// Nothing.
#[inline]
pub fn counter(name: &'static str, value: i64) {
    if runtime::is_traced() {
        runtime::trace(TraceKind::Counter, name.as_ptr(), name.len(), value);
    }
}

/// Returns whether something records at the moment. A program asks before it computes what an
/// annotation says.
///
/// ```
/// if raddle::trace::is_on() {
///     let free: u64 = [3, 4].iter().sum(); // what takes a while
///     raddle::trace::counter("free blocks", free as i64);
/// }
/// ```
#[inline]
pub fn is_on() -> bool {
    runtime::is_traced()
}

/// As [`span`], for other languages; [`end`] ends it.
#[doc(hidden)]
#[inline]
pub fn begin_c(name: &'static CStr) {
    if runtime::is_traced() {
        runtime::trace(TraceKind::Begin, name.as_ptr().cast(), 0, 0);
    }
}

/// Ends the calling thread's latest span, if it began with [`begin_c`].
#[doc(hidden)]
#[inline]
pub fn end() {
    if runtime::is_traced() {
        runtime::trace(TraceKind::End, std::ptr::null(), 0, 0);
    }
}

/// As [`instant`], for other languages.
#[doc(hidden)]
#[inline]
pub fn instant_c(name: &'static CStr) {
    if runtime::is_traced() {
        runtime::trace(TraceKind::Instant, name.as_ptr().cast(), 0, 0);
    }
}

/// As [`counter`], for other languages.
#[doc(hidden)]
#[inline]
pub fn counter_c(name: &'static CStr, value: i64) {
    if runtime::is_traced() {
        runtime::trace(TraceKind::Counter, name.as_ptr().cast(), 0, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_recorder_nothing_happens() {
        assert!(!is_on());
        let span = span("a");
        instant("b");
        counter("c", -1);
        assert!(!span.is_recorded);
        begin_c(c"d");
        instant_c(c"e");
        counter_c(c"f", 1);
        end();
    }
}
