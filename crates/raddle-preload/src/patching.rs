//! Leading system calls to the runtime: in libc, the program, ld.so and other libraries.

use crate::environment::{AT_PHDR, AT_SYSINFO_EHDR, Environment};
use crate::objects::{after, find};
use crate::original::{self, LinkMap};
use crate::why::Why;
use crate::{clean_pages, late, memory_functions};
use core::ffi::CStr;
use raddle_kernel::memory::loading;
use raddle_kernel::{callers, frame, table};
use raddle_patch::{Image, Linux, Refusal, Report, Site, Targets, apply, join_texts, plan};
use raddle_sys::mem;

/// ld.so's name.
const LDSO: &CStr = c"ld-linux-x86-64.so.2";
/// System call sites that one module may have.
const MAX_SITES: usize = 2048;

unsafe extern "C" {
    /// This library's ELF header.
    static __ehdr_start: u8;
}

/// The address at which this library is loaded.
pub(crate) fn own_base() -> usize {
    (&raw const __ehdr_start).addr()
}

/// Patches whatever is loaded. libc must be patched; what else can't be makes its calls in the
/// kernel.
pub(crate) fn patch_all(
    environment: &Environment,
    map: &LinkMap,
    libc: &LinkMap,
) -> Result<Report, Why> {
    // SAFETY: libc's entry.
    unsafe { memory_functions::know(libc) };
    let report = patch(libc, true).map_err(Why::Patching)?;
    // SAFETY: libc's entry, and its headers, which are loaded as its entry says.
    unsafe {
        let image = Image::at(libc.base, Image::ANY_SIZE).map_err(Why::Patching)?;
        let (from, to) = image.text_range();
        callers::know_libc(from, to, original::symbol(libc, c"syscall"));
    }
    watch_loading(map);
    patch_program(environment, map);
    let ldso = find(map, LDSO).map_or(0, |object| object.base);
    let own = own_base();
    let vdso = environment.auxiliary(AT_SYSINFO_EHDR);
    let mut next = after(map);
    while let Some(object) = next {
        next = after(object);
        if ![libc.base, own, vdso].contains(&object.base) {
            // What can't be patched makes its calls in the kernel.
            let _ = patch(object, object.base == ldso);
        }
    }
    Ok(report)
}

/// Patches the program's own text, unless it is linked to fixed addresses: jump tables can't be
/// told from data then.
fn patch_program(environment: &Environment, map: &LinkMap) {
    let headers = environment.auxiliary(AT_PHDR);
    if map.base == 0 || headers & !(mem::PAGE_SIZE - 1) != map.base {
        return;
    }
    // SAFETY: the kernel mapped the program with its ELF header in the page of its program headers;
    // one thread exists, and nothing of the program's text is being executed.
    unsafe {
        if let Ok(image) = Image::at(map.base, Image::ANY_SIZE) {
            let _ = patch_image(&image.that_stays(), Some(c"/proc/self/exe"));
        }
    }
}

/// From now on libraries are patched when they are loaded.
fn watch_loading(map: &LinkMap) {
    let Some(ldso) = find(map, LDSO) else {
        return;
    };
    // SAFETY: an entry of ld.so's list.
    if let Ok(image) = unsafe { Image::at(ldso.base, Image::ANY_SIZE) } {
        let (from, to) = image.text_range();
        let hooks = loading::Hooks {
            loaded: late::loaded,
            unmapped: late::unmapped,
            forked: late::in_child,
        };
        loading::watch(from, to, hooks);
    }
}

/// Patches a library, which `keeps_abi` if it is of glibc ([`Image::that_keeps_the_abi`]).
fn patch(object: &LinkMap, keeps_abi: bool) -> Result<Report, Refusal> {
    // SAFETY: a shared library of ld.so's list begins with its ELF header; one thread exists.
    unsafe {
        let mut image = Image::at(object.base, Image::ANY_SIZE)?;
        if keeps_abi {
            image = image.that_keeps_the_abi();
        }
        let path = (!object.name.is_null()).then(|| CStr::from_ptr(object.name));
        patch_image(&image, path)
    }
}

/// Patches a library that ld.so has mapped, and says where its text is.
///
/// # Safety
/// Its header is at `base`, all segments are mapped, and no thread executes its text.
pub(crate) unsafe fn patch_late(base: usize) -> Result<(Report, (usize, usize)), Refusal> {
    // SAFETY: the caller's promise.
    unsafe {
        let image = Image::at(base, Image::ANY_SIZE)?;
        if image.has_text_relocations() {
            return Err(Refusal::NotRelocatable);
        }
        Ok((patch_image(&image, None)?, image.text_range()))
    }
}

/// # Safety
/// No thread executes the image's text.
unsafe fn patch_image(image: &Image, path: Option<&CStr>) -> Result<Report, Refusal> {
    let targets = Targets {
        plain: frame::raddle_entry_plain as *const () as usize,
        narrow: frame::raddle_entry_narrow as *const () as usize,
        vector: frame::raddle_entry_vector as *const () as usize,
        clone_before: frame::raddle_entry_clone_before as *const () as usize,
        narrow_clone_before: frame::raddle_entry_narrow_clone_before as *const () as usize,
        plain_clone_before: frame::raddle_entry_plain_clone_before as *const () as usize,
        clone_after: frame::raddle_entry_clone_after as *const () as usize,
    };
    let mut scratch = [Site::EMPTY; MAX_SITES];
    // SAFETY: the caller's promise; the targets are the boundary's entries, which keep theirs.
    unsafe {
        let plan = plan(image, &table::wanted(), &mut scratch)?;
        let report = apply(image, &plan, &targets, &Linux, path)?;
        if report.patched != 0 {
            join_texts(image, &Linux)?;
            clean_pages::give_back(image);
        }
        Ok(report)
    }
}
