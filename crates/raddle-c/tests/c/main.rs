//! The C library as it is installed, from C, C++ and Python programs.
//!
//! `RADDLE_PREFIX` names the folder of the installation; otherwise the library is built and
//! installed first, which takes a minute. Programs run with 1, 2 and 3 carriers, natively (they
//! load the runtime themselves) and under `raddle run`; linked with `libraddle.so` and with
//! `libraddle.a`.

mod examples;
mod package;
mod programs;
mod support;
mod trace;
