//! Shared by several test programs: the modules of this process.

use raddle_patch::Image;
use raddle_patch::modules::{Module, modules};

/// Returns the loaded modules of this process.
pub(crate) fn loaded() -> Vec<Module> {
    // SAFETY: the values are the kernel's, and no test loads or unloads a module.
    unsafe {
        let headers = libc::getauxval(libc::AT_PHDR) as usize;
        let count = libc::getauxval(libc::AT_PHNUM) as usize;
        modules(headers, count).collect()
    }
}

/// Returns the module with a file name that starts with `name`.
pub(crate) fn module(name: &str) -> Module {
    let found = loaded()
        .into_iter()
        .find(|m| m.name().starts_with(name.as_bytes()));
    found.unwrap_or_else(|| panic!("{name} is not loaded"))
}

/// Returns the image of a loaded module of glibc's.
pub(crate) fn image(name: &str) -> Image {
    // SAFETY: ld.so loaded the module, and no test unloads it.
    let image = unsafe { Image::at(module(name).base, Image::ANY_SIZE) }.expect(name);
    image.that_keeps_the_abi()
}

/// glibc's two files with system calls.
pub(crate) const LIBC: &str = "libc.so.6";
pub(crate) const LD_SO: &str = "ld-linux-x86-64";
