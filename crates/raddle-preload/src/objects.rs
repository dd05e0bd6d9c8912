//! What is loaded: ld.so's list, and the program's own headers.

use crate::environment::{AT_BASE, AT_PHDR, AT_PHNUM, Environment};
use crate::original::{self, LinkMap};
use core::ffi::CStr;
use core::ptr::null;
use raddle_sys::mem;

/// The next entry of ld.so's list.
pub(crate) fn after(object: &LinkMap) -> Option<&LinkMap> {
    // SAFETY: the list is null-terminated.
    unsafe { object.next.as_ref() }
}

/// The object of this file name, or the one that calls itself so: ld.so's path is the program's
/// interpreter or what a user typed, like `/usr/bin/ld.so`.
pub(crate) fn find<'a>(map: &'a LinkMap, name: &CStr) -> Option<&'a LinkMap> {
    let mut next = Some(map);
    while let Some(object) = next {
        let has_path = !object.name.is_null() && {
            // SAFETY: a string of ld.so's.
            let path = unsafe { CStr::from_ptr(object.name) }.to_bytes();
            path.rsplit(|&b| b == b'/').next() == Some(name.to_bytes())
        };
        // SAFETY: an entry of ld.so's list.
        if has_path || unsafe { object.is_called(name) } {
            return Some(object);
        }
        next = after(object);
    }
    None
}

/// The program's own headers.
struct Headers {
    at: usize,
    count: usize,
    bias: usize,
}

impl Headers {
    const SIZE: usize = 56;

    fn of(environment: &Environment) -> Option<Self> {
        const PT_PHDR: u32 = 6;
        let (at, count) = (
            environment.auxiliary(AT_PHDR),
            environment.auxiliary(AT_PHNUM),
        );
        if at == 0 {
            return None;
        }
        let mut headers = Self { at, count, bias: 0 };
        headers.bias = headers.find(PT_PHDR).map_or(0, |(address, _)| at - address);
        Some(headers)
    }

    /// Address (biased) and size in memory of the first segment of a kind.
    fn find(&self, kind: u32) -> Option<(usize, usize)> {
        self.each(kind).next()
    }

    /// As [`Headers::find`], of all segments of a kind.
    fn each(&self, kind: u32) -> impl Iterator<Item = (usize, usize)> {
        (0..self.count)
            .map(|i| self.at + i * Self::SIZE)
            .filter_map(move |header| {
                // SAFETY: the kernel says where the program's headers are.
                unsafe {
                    (*(header as *const u32) == kind).then(|| {
                        let address = *((header + 16) as *const usize) + self.bias;
                        (address, *((header + 40) as *const usize))
                    })
                }
            })
    }
}

/// Returns true if ld.so has protected this address of the program's after its relocation.
pub(crate) fn is_protected(environment: &Environment, address: usize) -> bool {
    const PT_GNU_RELRO: u32 = 0x6474_e552;
    let page_of = |address: usize| address & !(mem::PAGE_SIZE - 1);
    let range = Headers::of(environment).and_then(|headers| headers.find(PT_GNU_RELRO));
    range.is_some_and(|(begin, size)| (page_of(begin)..page_of(begin + size)).contains(&address))
}

const PT_DYNAMIC: u32 = 2;

/// The head of ld.so's list: through the main program's `DT_DEBUG`, or through ld.so's own symbol
/// where the program has no such entry, as a shared object that is executed.
pub(crate) fn link_map<'a>(environment: &Environment) -> Option<&'a LinkMap> {
    by_program(environment).or_else(|| by_loader(environment))
}

fn by_loader<'a>(environment: &Environment) -> Option<&'a LinkMap> {
    let base = environment.auxiliary(AT_BASE);
    if base == 0 {
        return None;
    }
    // SAFETY: the kernel says where it has mapped ld.so: an ELF header, with the offset of the
    // program headers in its fifth word and their number in its last but three half-words.
    let headers = unsafe {
        Headers {
            at: base + *((base + 32) as *const usize),
            count: usize::from(*((base + 56) as *const u16)),
            bias: base,
        }
    };
    let (dynamic, _) = headers.find(PT_DYNAMIC)?;
    let loader = LinkMap {
        base,
        name: null(),
        dynamic: dynamic as *const [usize; 2],
        next: null(),
    };
    // SAFETY: ld.so's own base and dynamic section; the symbol is a struct r_debug: a version, then
    // the list.
    unsafe {
        match original::symbol(&loader, c"_r_debug") {
            0 => None,
            debug => (*(debug as *const *const LinkMap).add(1)).as_ref(),
        }
    }
}

fn by_program<'a>(environment: &Environment) -> Option<&'a LinkMap> {
    const DT_DEBUG: usize = 21;
    let (dynamic, _) = Headers::of(environment)?.find(PT_DYNAMIC)?;
    let mut entry = dynamic as *const [usize; 2];
    // SAFETY: the program's dynamic section ends with a zero entry; DT_DEBUG points at struct
    // r_debug: a version, then the list.
    unsafe {
        while (*entry)[0] != 0 {
            if (*entry)[0] == DT_DEBUG && (*entry)[1] != 0 {
                return (*((*entry)[1] as *const *const LinkMap).add(1)).as_ref();
            }
            entry = entry.add(1);
        }
    }
    None
}

/// True if a note of the program says that Go's linker made it. There are several segments of notes
/// where another linker has the last word, as in programs with C parts.
pub(crate) fn is_go(environment: &Environment) -> bool {
    const PT_NOTE: u32 = 4;
    let headers = Headers::of(environment);
    headers.is_some_and(|headers| headers.each(PT_NOTE).any(has_go_note))
}

/// True if one of the notes at this address, in so many bytes, is Go's.
fn has_go_note((mut at, mut left): (usize, usize)) -> bool {
    // SAFETY: the program's notes, which are mapped: name length, value length, kind, name, value.
    unsafe {
        while left >= 12 {
            let [name, value] = *(at as *const [u32; 2]);
            let size = 12 + name.next_multiple_of(4) as usize + value.next_multiple_of(4) as usize;
            if name == 4 && *((at + 12) as *const [u8; 4]) == *b"Go\0\0" {
                return true;
            }
            at += size;
            left = left.saturating_sub(size);
        }
    }
    false
}
