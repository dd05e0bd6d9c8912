//! Annotations for `raddle trace`.

use libc::c_char;
use raddle::trace;
use std::ffi::CStr;

/// Returns the text; `None` for null.
fn text(name: *const c_char) -> Option<&'static CStr> {
    // SAFETY: the header's promise: null, or a string that lives as long as the process.
    (!name.is_null()).then(|| unsafe { CStr::from_ptr(name) })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn raddle_trace_begin(name: *const c_char) {
    if trace::is_on()
        && let Some(name) = text(name)
    {
        trace::begin_c(name);
    }
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn raddle_trace_end() {
    trace::end();
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn raddle_trace_instant(name: *const c_char) {
    if trace::is_on()
        && let Some(name) = text(name)
    {
        trace::instant_c(name);
    }
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn raddle_trace_counter(name: *const c_char, value: i64) {
    if trace::is_on()
        && let Some(name) = text(name)
    {
        trace::counter_c(name, value);
    }
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn raddle_trace_is_on() -> libc::c_int {
    trace::is_on().into()
}
