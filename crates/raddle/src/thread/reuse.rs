//! Reuse of ended threads for new ones.
//!
//! Making and ending a thread costs libc much: two thirds of a green thread's time are libc's, and
//! its heap begins with an empty cache each time. So a thread that ends and leaves nothing behind
//! makes itself *as good as new*, and the runtime keeps it ([`raddle_interface::ReuseControl`])
//! until a thread with such a stack is made.
//!
//! The state of a thread is the runtime's (id, mask, name, attributes, times: a new thread there),
//! or the program's, in its thread-locals, or libc's:
//!
//! - Destructors of thread-locals are called by libc's own function. Then the thread-locals of all
//!   modules with the same place in every thread are written anew from the modules' images
//!   ([`Images`]). If the thread has used those of another module, libc's table of them (the DTV)
//!   has changed since the thread began: it ends for good.
//! - libc's own thread-locals stay: the heap's cache is there. `errno`, the locale and
//!   cancellation are reset to a new thread's values.
//! - Thread-specific data is dropped in the way of libc ([`data`]).
//! - Other state of libc's is not touched: a thread that was cancelled, has used the resolver or
//!   has an unread `dlerror` ends for good.
//!
//! libc's descriptors for debuggers tell where it keeps the state that it has no function for
//! (thread-specific data, cancellation).

mod data;
mod images;

use crate::runtime;
use data::Data;
use images::Images;
use std::ffi::{CStr, c_int, c_void};
use std::ptr::without_provenance_mut;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// The most words of the DTV that are compared; a thread with more modules ends for good.
const SLOTS: usize = 48;
/// The most bytes that a thread may leave used on its stack, below where it began.
const LEFT: usize = 64 << 10;
const PAGE: usize = 4096;

unsafe extern "C" {
    fn __h_errno_location() -> *mut c_int;
    fn __res_state() -> *const ResolverState;
    fn pthread_setcancelstate(state: c_int, old: *mut c_int) -> c_int;
    fn pthread_setcanceltype(kind: c_int, old: *mut c_int) -> c_int;
}

/// The beginning of `struct __res_state`.
#[repr(C)]
struct ResolverState {
    retrans: c_int,
    retry: c_int,
    options: usize,
    servers: c_int,
}

/// A field's descriptor for debuggers: the bits of an element, the number of elements, the offset.
type Descriptor = [u32; 3];

/// Functions and offsets of libc that it doesn't declare.
struct Libc {
    /// Calls the destructors of the calling thread's thread-locals.
    call_destructors: extern "C" fn(),
    data: Data,
    /// Offset of the cancellation state: a word.
    cancellation: usize,
    /// Offset of the DTV's address.
    dtv: usize,
    /// The loader's `_r_debug`.
    debug: usize,
}

/// Found before `main`, when no other thread can hold the loader's lock.
static LIBC: OnceLock<Libc> = OnceLock::new();

/// Looks for libc's parts; without them threads end for good.
pub(crate) fn find() {
    if let Some(libc) = Libc::find() {
        let _ = LIBC.set(libc);
    }
}

fn symbol(name: &CStr, version: Option<&CStr>) -> Option<usize> {
    // SAFETY: a search by name.
    let found = unsafe {
        match version {
            Some(version) => libc::dlvsym(libc::RTLD_DEFAULT, name.as_ptr(), version.as_ptr()),
            None => libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()),
        }
    };
    (!found.is_null()).then(|| found.expose_provenance())
}

/// Finds the field of a thread block in libc's descriptors.
fn field(name: &CStr) -> Option<Descriptor> {
    let at = symbol(name, Some(c"GLIBC_PRIVATE"))?;
    // SAFETY: a symbol of this name is a descriptor.
    let [bits, count, offset] =
        unsafe { std::ptr::with_exposed_provenance::<Descriptor>(at).read() };
    (offset < 1 << 14).then_some([bits, count, offset])
}

impl Libc {
    fn find() -> Option<Self> {
        let destructors = symbol(c"__call_tls_dtors", Some(c"GLIBC_PRIVATE"))?;
        let [word_bits, _, cancellation] = field(c"_thread_db_pthread_cancelhandling")?;
        let [_, _, dtv] = field(c"_thread_db_pthread_dtvp")?;
        (word_bits == 32 && cancellation % 4 == 0).then_some(())?;
        Some(Self {
            // SAFETY: libc's function of that name, without arguments and result.
            call_destructors: unsafe { std::mem::transmute::<usize, extern "C" fn()>(destructors) },
            data: Data::find()?,
            cancellation: cancellation as usize,
            dtv: dtv as usize,
            debug: symbol(c"_r_debug", None)?,
        })
    }

    fn cancellation(&self, block: *const u8) -> u32 {
        // SAFETY: inside the calling thread's block; other threads set bits there by atomic
        // operations.
        let word = unsafe { &*block.add(self.cancellation).cast::<AtomicU32>() };
        word.load(Ordering::Relaxed)
    }
}

/// The calling thread's DTV: its address, the number of slots, and their contents.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Dtv {
    at: *const [usize; 2],
    count: usize,
    slots: [usize; SLOTS],
}

/// A slot that the thread hasn't used, of a module with a different place in each thread.
const UNUSED: usize = usize::MAX;

impl Dtv {
    /// Reads the DTV. Returns `None` if it is too large.
    fn read(libc: &Libc, block: *const u8) -> Option<Self> {
        // SAFETY: the calling thread's own block and DTV, which begins one slot before its address,
        // with the number of the slots after.
        unsafe {
            let at = block.add(libc.dtv).cast::<*const [usize; 2]>().read();
            let count = (*at.sub(1))[0] + 1;
            if count > SLOTS {
                return None;
            }
            let mut slots = [0; SLOTS];
            for (index, slot) in slots[..count].iter_mut().enumerate() {
                *slot = (*at.add(index))[0];
            }
            Some(Self { at, count, slots })
        }
    }

    /// Returns true if the DTV is unchanged.
    fn is_same(&self, libc: &Libc, block: *const u8) -> bool {
        // SAFETY: as above.
        unsafe {
            let at = block.add(libc.dtv).cast::<*const [usize; 2]>().read();
            let slots = self.slots[..self.count].iter().enumerate();
            at == self.at && { slots }.all(|(index, slot)| (*at.add(index))[0] == *slot)
        }
    }

    /// Returns the content of a module's slot.
    fn slot(&self, module: usize) -> Option<usize> {
        self.slots[..self.count].get(module).copied()
    }
}

/// State of a new thread, by which its reuse is judged.
pub(super) struct Born {
    libc: &'static Libc,
    block: *mut u8,
    cancellation: u32,
    dtv: Dtv,
}

impl Born {
    /// Reads the state; to be called on a new thread first of all. `None` if it can't be reused.
    pub(super) fn look() -> Option<Self> {
        let runtime = runtime::table()?;
        let libc = LIBC.get()?;
        // SAFETY: on x86-64 a thread's name is its block's address.
        let block = std::ptr::with_exposed_provenance_mut(unsafe { libc::pthread_self() } as usize);
        let dtv = Dtv::read(libc, block)?;
        let born = Self {
            libc,
            block,
            cancellation: libc.cancellation(block),
            dtv,
        };
        Images::refresh(&born, runtime);
        Some(born)
    }

    /// Calls the destructors of the calling thread's thread-locals, and makes it as good as new.
    /// Returns false if the thread must end for good, as it is.
    pub(super) fn begins_anew(&self, stack_size: usize) -> bool {
        (self.libc.call_destructors)();
        self.libc.data.lose(self.block);
        let Some(runtime) = runtime::table() else {
            return false;
        };
        let loads = (runtime.loads)();
        let Some(images) = Images::of(loads) else {
            return false;
        };
        let mut mask = 0;
        if (runtime.may_reuse)(stack_size, &mut mask) == 0 {
            return false;
        }
        // No signal handler changes anything from here on.
        if !self.is_plain() {
            (runtime.forgo_reuse)(mask);
            return false;
        }
        reset_libc();
        self.give_stack_back(stack_size);
        // SAFETY: the calling thread's block. From here on the thread runs only code with
        // thread-locals of libc's.
        unsafe { images.write(self.block) };
        (runtime.loads)() == loads
    }

    /// Returns true if libc's state of the calling thread is that of a new one.
    fn is_plain(&self) -> bool {
        // SAFETY: the calling thread's resolver state, and its error of the loader.
        unsafe {
            let resolver = &*__res_state();
            self.libc.data.is_none(self.block)
                && self.has_no_cancellation()
                && self.dtv.is_same(self.libc, self.block)
                && resolver.options == 0
                && resolver.retrans | resolver.retry | resolver.servers == 0
                && libc::dlerror().is_null()
        }
    }

    /// Enables cancellation as on a new thread. Returns true if the calling thread was not
    /// cancelled; otherwise restores its settings.
    fn has_no_cancellation(&self) -> bool {
        const ENABLED: c_int = 0;
        const DEFERRED: c_int = 0;
        let (mut state, mut kind) = (ENABLED, DEFERRED);
        // SAFETY: the calling thread's own settings.
        unsafe {
            pthread_setcanceltype(DEFERRED, &raw mut kind);
            pthread_setcancelstate(ENABLED, &raw mut state);
            let has_none = self.libc.cancellation(self.block) == self.cancellation;
            if !has_none {
                pthread_setcancelstate(state, &raw mut state);
                pthread_setcanceltype(kind, &raw mut kind);
            }
            has_none
        }
    }

    /// Gives the stack's memory back if the thread has used much of it.
    fn give_stack_back(&self, stack_size: usize) {
        const SAMPLES: usize = 8;
        let here = (&raw const stack_size).expose_provenance() & !(PAGE - 1);
        let low = (self.block.addr() - stack_size + PAGE).next_multiple_of(PAGE);
        let Some(end) = here.checked_sub(LEFT).filter(|end| *end > low + PAGE) else {
            return;
        };
        // SAFETY: the page below `end` is in the calling thread's stack, where it can be read.
        let is_used = (1..=SAMPLES).any(|sample| unsafe {
            let at = end - sample * (PAGE / SAMPLES);
            std::ptr::with_exposed_provenance::<usize>(at).read_volatile() != 0
        });
        if is_used {
            let at = std::ptr::with_exposed_provenance_mut(low);
            // SAFETY: the thread has returned from all frames there.
            unsafe { libc::madvise(at, end - low, libc::MADV_DONTNEED) };
        }
    }
}

/// Resets thread-local words of libc.
fn reset_libc() {
    // SAFETY: the calling thread's own words.
    unsafe {
        *libc::__errno_location() = 0;
        *__h_errno_location() = 0;
    }
}

/// Begins a kept thread anew, with the process's current locale.
pub(super) fn begins() {
    let process = without_provenance_mut::<c_void>(usize::MAX); // LC_GLOBAL_LOCALE
    // SAFETY: the calling thread's locale; libc looks up its tables again.
    unsafe { libc::uselocale(process.cast()) };
}

/// Has a kept thread run the packet. Returns libc's name for the thread.
pub(super) fn begin(stack_size: usize, packet: *mut c_void) -> Option<libc::pthread_t> {
    match (runtime::table()?.reuse)(stack_size, packet) {
        0 => None,
        id => Some(id as libc::pthread_t),
    }
}
