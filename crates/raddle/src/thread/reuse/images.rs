//! Initial values of thread-locals, for the modules with the same place in every thread, except
//! libc and the loader.
//!
//! A list is read on a new thread, by its DTV, which tells such modules from others, and is valid
//! as long as nothing is loaded or unloaded. The reader notices a library that is being loaded in
//! one of three ways:
//!
//! 1. The runtime counts before the loader maps a library. If the count is the same before and
//!    after the read, no library was begun meanwhile; one may be half loaded:
//! 2. before the mapping the loader tells debuggers (`_r_debug`) that it adds a library, until the
//!    library is on its list;
//! 3. a library that is on the list, but not yet in the loader's table of thread-locals, has an
//!    empty slot in a new thread's DTV.
//!
//! The list holds copies of the images: a library may be unloaded at any moment. Libraries of other
//! namespaces (`dlmopen`) aren't on the loader's list; with other namespaces no list is made.

use super::{Born, UNUSED};
use raddle_interface::Runtime;
use std::ffi::{c_int, c_void};
use std::ptr::{null_mut, with_exposed_provenance};
use std::sync::Mutex;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// One module's thread-locals.
#[derive(PartialEq, Eq)]
struct Image {
    /// Distance in bytes from their beginning up to the thread block.
    below: usize,
    /// The initial bytes; the rest is zero.
    bytes: Box<[u8]>,
    size: usize,
}

/// A list of images: see the module.
pub(super) struct Images {
    /// The runtime's count for which the list is valid.
    loads: AtomicUsize,
    all: Vec<Image>,
}

/// The newest list, or null. Lists live for ever, since threads that end read them; a new one is
/// made only if it differs.
static NEWEST: AtomicPtr<Images> = AtomicPtr::new(null_mut());

/// Held while a list is made.
static MAKER: Mutex<()> = Mutex::new(());

/// The beginning of `struct r_debug_extended`.
#[repr(C)]
struct Debug {
    version: c_int,
    map: usize,
    breakpoint: usize,
    state: c_int,
    base: usize,
    /// The next namespace; since version 2.
    next: usize,
}

/// The state of a read of the loader's list.
struct Reader<'a> {
    born: &'a Born,
    images: Vec<Image>,
}

impl Images {
    /// Returns the list, if it is valid for this count.
    pub(super) fn of(loads: usize) -> Option<&'static Self> {
        // SAFETY: null or a list, which lives for ever.
        let newest = unsafe { NEWEST.load(Ordering::Acquire).as_ref() }?;
        (loads != 0 && newest.loads.load(Ordering::Relaxed) == loads).then_some(newest)
    }

    /// Makes a list on a new thread, if there is no valid one.
    pub(super) fn refresh(born: &Born, runtime: &Runtime) {
        let loads = (runtime.loads)();
        if loads == 0 || Self::of(loads).is_some() {
            return;
        }
        let Ok(_maker) = MAKER.try_lock() else {
            return; // the next thread tries again
        };
        if is_loading(born.libc.debug) {
            return;
        }
        let images = Reader::read(born);
        if let Some(all) = images
            && (runtime.loads)() == loads
        {
            Self::publish(loads, all);
        }
    }

    fn publish(loads: usize, all: Vec<Image>) {
        // SAFETY: null or a list, which lives for ever.
        let newest = unsafe { NEWEST.load(Ordering::Relaxed).as_ref() };
        match newest.filter(|newest| newest.all == all) {
            Some(same) => same.loads.store(loads, Ordering::Release),
            None => {
                let loads = AtomicUsize::new(loads);
                let list = Box::leak(Box::new(Self { loads, all }));
                NEWEST.store(list, Ordering::Release);
            }
        }
    }

    /// Writes the initial values into the thread-locals of the thread with this block.
    ///
    /// # Safety
    /// The block must be the calling thread's; no reference to a thread-local's old value may be
    /// left.
    pub(super) unsafe fn write(&self, block: *mut u8) {
        for image in &self.all {
            // SAFETY: the caller's promise; these bytes are the module's in every thread.
            unsafe {
                let at = block.sub(image.below);
                let len = image.bytes.len();
                at.copy_from_nonoverlapping(image.bytes.as_ptr(), len);
                at.add(len).write_bytes(0, image.size - len);
            }
        }
    }
}

/// Returns true while the loader adds or removes libraries, or has several namespaces.
fn is_loading(debug: usize) -> bool {
    let debug = with_exposed_provenance::<Debug>(debug);
    // SAFETY: the loader's own structure, which lives for ever.
    unsafe {
        (&raw const (*debug).state).read_volatile() != 0
            || (*debug).version > 1 && (*debug).next != 0
    }
}

impl Reader<'_> {
    /// Reads the list. Returns `None` if a module's thread-locals aren't known yet.
    fn read(born: &Born) -> Option<Vec<Image>> {
        let images = Vec::new();
        let mut reader = Reader { born, images };
        // SAFETY: `each` gets the reader that it expects.
        let stopped = unsafe { libc::dl_iterate_phdr(Some(each), (&raw mut reader).cast()) };
        (stopped == 0).then_some(reader.images)
    }

    /// Notes a module. Returns false if its thread-locals aren't known.
    fn note(&mut self, module: &libc::dl_phdr_info) -> bool {
        if module.dlpi_tls_modid == 0 {
            return true;
        }
        let slot = self.born.dtv.slot(module.dlpi_tls_modid);
        let place = module.dlpi_tls_data.expose_provenance();
        if place == 0 {
            return slot == Some(UNUSED);
        }
        let block = self.born.block.addr();
        if slot != Some(place) || place >= block {
            return false;
        }
        // SAFETY: the loader's own headers, which stay during the callback.
        let headers =
            unsafe { std::slice::from_raw_parts(module.dlpi_phdr, module.dlpi_phnum.into()) };
        let base = module.dlpi_addr as usize;
        let Some(tls) = headers.iter().find(|header| header.p_type == libc::PT_TLS) else {
            return false;
        };
        let (size, len) = (tls.p_memsz as usize, tls.p_filesz as usize);
        // SAFETY: the calling thread's own word.
        let errno = unsafe { libc::__errno_location() }.addr();
        let is_loader = headers.iter().any(|header| {
            let from = base + header.p_vaddr as usize;
            let to = from + header.p_memsz as usize;
            header.p_type == libc::PT_LOAD && (from..to).contains(&self.born.libc.debug)
        });
        if is_loader || (place..place + size).contains(&errno) {
            return true; // libc's or the loader's own
        }
        let image = with_exposed_provenance(base + tls.p_vaddr as usize);
        // SAFETY: the place that the module's header names.
        let bytes = unsafe { std::slice::from_raw_parts::<u8>(image, len) };
        self.images.push(Image {
            below: block - place,
            bytes: bytes.into(),
            size,
        });
        true
    }
}

/// Notes one module of the loader's list. A result other than 0 stops the loader.
unsafe extern "C" fn each(module: *mut libc::dl_phdr_info, _: usize, reader: *mut c_void) -> c_int {
    // SAFETY: the reader of `read`, and the loader's structure.
    let (reader, module) = unsafe { (&mut *reader.cast::<Reader<'_>>(), &*module) };
    c_int::from(!reader.note(module))
}
