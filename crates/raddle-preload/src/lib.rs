//! The preloaded library: start-up, the symbol layer, and what a library without libc must bring.
//!
//! ld.so runs `start::constructor` before any other constructor (`-z initfirst`), with one thread
//! in the process. It decides whether the process can be taken over; if not, it leaves it alone and
//! says why under `RADDLE_VERBOSE`.
#![no_std]

mod builtins;
mod clean_pages;
mod cleanup;
mod environment;
mod filtered;
mod interface;
mod late;
mod light_workers;
mod memory_functions;
mod objects;
mod original;
mod own_stack;
mod patching;
mod policy;
mod reusable;
mod rseq;
mod settings;
mod start;
mod symbols;
mod symbols_cpus;
mod symbols_semaphores;
mod symbols_threads;
mod tripwires;
mod watchers;
mod why;
mod workers;

#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    use core::fmt::Write;
    let mut line = environment::Line::new();
    let _ = match info.location() {
        Some(at) => writeln!(
            line,
            "raddle: bug at {}:{}: {}",
            at.file(),
            at.line(),
            info.message()
        ),
        None => writeln!(line, "raddle: bug: {}", info.message()),
    };
    raddle_sys::fatal(line.bytes())
}
