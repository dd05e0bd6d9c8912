//! Taking a process over, or leaving it alone.

use crate::environment::{Environment, Line};
use crate::original::{self, LinkMap};
use core::ffi::{CStr, c_char, c_int};
use core::fmt::Write;
use raddle_engine::ENGINE;
use raddle_engine::engine::Hooks;
use raddle_kernel::{boundary, calls, exclusion, process, signal, threads};

const AT_PHDR: usize = 3;
const AT_PHNUM: usize = 5;
const AT_SECURE: usize = 23;
const AT_HWCAP2: usize = 26;
const AT_SYSINFO_EHDR: usize = 33;
const FSGSBASE: usize = 2;

unsafe extern "C" {
    static __ehdr_start: u8;
}

#[used]
#[unsafe(link_section = ".init_array")]
static INIT: extern "C" fn(c_int, *const *const c_char, *const *const c_char) = constructor;

/// What ld.so calls.
extern "C" fn constructor(_: c_int, _: *const *const c_char, variables: *const *const c_char) {
    // SAFETY: ld.so passes the initial environment.
    let environment = unsafe { Environment::new(variables) };
    let verbose = environment.get(b"RADDLE_VERBOSE").is_some_and(|v| v != b"0" && !v.is_empty());
    match take_over(&environment) {
        Ok(report) => {
            if verbose {
                say(format_args!("{} of {} system call sites patched", report.1, report.0));
            }
        }
        Err(why) => {
            if verbose {
                say(format_args!("runs on kernel threads: {why}"));
            }
        }
    }
}

fn say(text: core::fmt::Arguments<'_>) {
    let mut line = Line::new();
    let _ = writeln!(line, "raddle: {text}");
    raddle_sys::write_stderr(line.bytes());
}

fn take_over(environment: &Environment) -> Result<(usize, usize), &'static str> {
    if environment.auxiliary(AT_HWCAP2) & FSGSBASE == 0 {
        return Err("the kernel or the CPU lacks FSGSBASE (Linux 5.9 on Ivy Bridge or later)");
    }
    if environment.auxiliary(AT_SECURE) != 0 {
        return Err("the program is setuid or has capabilities");
    }
    let map = link_map(environment).ok_or("ld.so's list of libraries was not found")?;
    let libc = find(map, b"libc.so.6").ok_or("the program doesn't use glibc")?;
    let ldso = find(map, b"ld-linux-x86-64.so.2");
    // SAFETY: entries of ld.so's list.
    unsafe { original::look_up(libc) };
    if let Some(rules) = environment.get(b"RADDLE_EXCLUDE")
        && !rules.is_empty()
    {
        exclusion::set_rules(rules);
    }
    original::remember(map);
    let carriers = environment.number(b"RADDLE_CARRIERS").unwrap_or(0);
    let hooks = Hooks {
        carrier_starts: signal::carrier_starts,
        thread_exited: threads::exited,
        route_signals: signal::route,
    };
    // SAFETY: the only thread, once; FSGSBASE was checked.
    unsafe { ENGINE.init(carriers, environment.auxiliary(AT_SYSINFO_EHDR), hooks) }
        .map_err(|_| "there is not enough memory")?;
    process::init().map_err(|_| "there is not enough memory")?;
    let targets = crate::bootpatch::Targets {
        plain: boundary::raddle_entry_plain as *const () as usize,
        vector: boundary::raddle_entry_vector as *const () as usize,
        before: boundary::raddle_entry_clone_before as *const () as usize,
        after: boundary::raddle_entry_clone_after as *const () as usize,
    };
    let wanted = calls::wanted();
    // SAFETY: one thread.
    let (sites, patched, _bad) =
        unsafe { crate::bootpatch::patch(libc.base, false, &wanted, &targets)? };
    if let Some(ldso) = ldso {
        // SAFETY: one thread.
        unsafe { crate::bootpatch::patch(ldso.base, false, &wanted, &targets)? };
    }
    let own = (&raw const __ehdr_start).addr();
    let mut next = Some(map);
    while let Some(object) = next {
        // SAFETY: the list is null-terminated.
        next = unsafe { object.next.as_ref() };
        let done = [libc.base, own, environment.auxiliary(AT_SYSINFO_EHDR), map.base];
        let done = done.contains(&object.base) || ldso.is_some_and(|l| l.base == object.base);
        if !done {
            // SAFETY: one thread.
            let _ = unsafe { crate::bootpatch::patch(object.base, true, &wanted, &targets) };
        }
    }
    Ok((sites, patched))
}

fn find<'a>(mut map: &'a LinkMap, name: &[u8]) -> Option<&'a LinkMap> {
    loop {
        if !map.name.is_null() {
            // SAFETY: a string of ld.so's.
            let path = unsafe { CStr::from_ptr(map.name) }.to_bytes();
            if path.rsplit(|&b| b == b'/').next() == Some(name) {
                return Some(map);
            }
        }
        // SAFETY: the list is null-terminated.
        map = unsafe { map.next.as_ref() }?;
    }
}

/// The head of ld.so's list, through the main program's `DT_DEBUG`.
fn link_map<'a>(environment: &Environment) -> Option<&'a LinkMap> {
    const PT_DYNAMIC: u32 = 2;
    const PT_PHDR: u32 = 6;
    const DT_DEBUG: usize = 21;
    let (at, count) = (environment.auxiliary(AT_PHDR), environment.auxiliary(AT_PHNUM));
    if at == 0 {
        return None;
    }
    // SAFETY: the kernel says where the program's headers are; the rest follows from ELF.
    unsafe {
        let header = |i: usize| (at + i * 56) as *const u32;
        let vaddr = |i: usize| *(header(i).add(4) as *const u64) as usize;
        let bias = (0..count).find(|&i| *header(i) == PT_PHDR).map_or(0, |i| at - vaddr(i));
        let dynamic = (0..count).find(|&i| *header(i) == PT_DYNAMIC)?;
        let mut entry = (bias + vaddr(dynamic)) as *const [usize; 2];
        while (*entry)[0] != 0 {
            if (*entry)[0] == DT_DEBUG && (*entry)[1] != 0 {
                // struct r_debug: version, then the list.
                return (*((*entry)[1] as *const *const LinkMap).add(1)).as_ref();
            }
            entry = entry.add(1);
        }
    }
    None
}
