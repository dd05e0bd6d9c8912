"""Spans, moments and counters of a Python program for `raddle trace`.

    import raddle_trace

    with raddle_trace.span("parse"):
        raddle_trace.counter("lines", 3)

Each of them costs one call by ctypes while something records, and one such call to find out that
nothing does. Without libraddle they do nothing. RADDLE_LIBRARY names the library where ld.so
doesn't find it.
"""

import ctypes
import os


def _load():
    try:
        return ctypes.CDLL(os.environ.get("RADDLE_LIBRARY", "libraddle.so.0"))
    except OSError:
        return None


_library = _load()
# Names as the library wants them: for ever. As many as the program has.
_names = {}

if _library is not None:
    for _name in ("begin", "end", "instant", "counter"):
        getattr(_library, "raddle_trace_" + _name).restype = None
    _library.raddle_trace_begin.argtypes = [ctypes.c_void_p]
    _library.raddle_trace_instant.argtypes = [ctypes.c_void_p]
    _library.raddle_trace_counter.argtypes = [ctypes.c_void_p, ctypes.c_int64]


def _address(name):
    kept = _names.get(name)
    if kept is None:
        kept = _names.setdefault(name, ctypes.create_string_buffer(name.encode()))
    return ctypes.addressof(kept)


def is_on():
    """True while something records."""
    return _library is not None and _library.raddle_trace_is_on() != 0


class span:
    """A span of the calling thread, for `with`."""

    __slots__ = ("_name", "_begun")

    def __init__(self, name):
        self._name = name
        self._begun = False

    def __enter__(self):
        if is_on():
            self._begun = True
            _library.raddle_trace_begin(_address(self._name))
        return self

    def __exit__(self, *_):
        if self._begun:
            self._begun = False
            _library.raddle_trace_end()


def instant(name):
    """A moment of the calling thread."""
    if is_on():
        _library.raddle_trace_instant(_address(name))


def counter(name, value):
    """A value of a counter of the process: an integer of 64 bits."""
    if is_on():
        _library.raddle_trace_counter(_address(name), value)


if __name__ == "__main__":
    with span("outer"):
        instant("inside")
        counter("jobs", 1)
    print("ok")
