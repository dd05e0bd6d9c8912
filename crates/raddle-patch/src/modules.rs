//! The list of loaded modules that ld.so keeps for debuggers.
//!
//! The program's dynamic section has an entry DT_DEBUG that points to `r_debug`; the `link_map`
//! entries of its list name every module and its load address (`<link.h>`). The list is complete
//! when the first initializer runs. The kernel's auxiliary vector leads to the main program itself.

use core::ffi::{CStr, c_char};

/// A loaded module.
#[derive(Clone, Copy, Debug)]
pub struct Module {
    /// The load bias of its addresses: for shared libraries, where the ELF header is.
    pub base: usize,
    /// The module's file; empty for the main program.
    pub path: &'static CStr,
}

impl Module {
    /// Returns the file's name without its folders.
    pub fn name(&self) -> &'static [u8] {
        let path = self.path.to_bytes();
        path.rsplit(|&byte| byte == b'/').next().unwrap_or(path)
    }
}

/// A program header (`Elf64_Phdr`).
#[repr(C)]
struct ProgramHeader {
    kind: u32,
    flags: u32,
    offset: u64,
    address: u64,
    physical: u64,
    file_len: u64,
    memory_len: u64,
    alignment: u64,
}

/// An entry of the dynamic section (`Elf64_Dyn`).
#[repr(C)]
struct Dynamic {
    tag: i64,
    value: u64,
}

/// `struct r_debug`, up to its list.
#[repr(C)]
struct Debug {
    version: i32,
    list: *const LinkMap,
}

/// The public part of `struct link_map`.
#[repr(C)]
struct LinkMap {
    base: usize,
    path: *const c_char,
    dynamic: *const Dynamic,
    next: *const LinkMap,
    previous: *const LinkMap,
}

const PT_DYNAMIC: u32 = 2;
const PT_PHDR: u32 = 6;
const DT_NULL: i64 = 0;
const DT_DEBUG: i64 = 21;

/// Lists the loaded modules, the main program first.
///
/// `headers` and `count` are AT_PHDR and AT_PHNUM of the auxiliary vector. The list is empty if the
/// program has no dynamic section.
///
/// # Safety
/// `headers` and `count` come from the kernel, ld.so has finished loading, and no module is loaded
/// or unloaded as long as the iterator and its modules are used.
pub unsafe fn modules(headers: usize, count: usize) -> impl Iterator<Item = Module> {
    // SAFETY: the caller's promise.
    let mut entry = unsafe { list(headers, count) }.unwrap_or(core::ptr::null());
    core::iter::from_fn(move || {
        // SAFETY: ld.so's list ends with a null pointer, and no thread changes it meanwhile.
        let map = unsafe { entry.as_ref() }?;
        entry = map.next;
        let path = if map.path.is_null() {
            c""
        } else {
            // SAFETY: ld.so's names are strings that live as long as their entries.
            unsafe { CStr::from_ptr(map.path) }
        };
        Some(Module {
            base: map.base,
            path,
        })
    })
}

/// Returns the head of ld.so's list.
///
/// # Safety
/// As for [`modules`].
unsafe fn list(headers: usize, count: usize) -> Option<*const LinkMap> {
    if headers == 0 {
        return None;
    }
    // SAFETY: the kernel mapped the program with its headers, and passed their address.
    let table = unsafe { core::slice::from_raw_parts(headers as *const ProgramHeader, count) };
    let address_of = |kind| {
        table
            .iter()
            .find(|header| header.kind == kind)
            .map(|h| h.address)
    };
    // A program without PT_PHDR is not relocated: its addresses need no bias.
    let bias = address_of(PT_PHDR).map_or(0, |address| headers.wrapping_sub(address as usize));
    let mut entry = bias.wrapping_add(address_of(PT_DYNAMIC)? as usize) as *const Dynamic;
    loop {
        // SAFETY: the dynamic section ends with DT_NULL.
        let dynamic = unsafe { &*entry };
        match dynamic.tag {
            DT_NULL => return None,
            DT_DEBUG => {
                // SAFETY: ld.so filled the entry in with the address of its `r_debug`, or zero.
                let debug = unsafe { (dynamic.value as *const Debug).as_ref() }?;
                return Some(debug.list);
            }
            _ => entry = entry.wrapping_add(1),
        }
    }
}
