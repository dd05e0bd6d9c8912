//! libc's own functions behind the names that the symbol layer takes.
//!
//! Looked up once at start-up in libc's dynamic symbols (default versions), without `dlsym`.

use core::ffi::{CStr, c_char};
use core::sync::atomic::{AtomicUsize, Ordering};

/// A function of libc by address; 0 before start-up and if libc has none.
#[repr(C)]
pub struct Original {
    /// First, where assembly looks for it.
    address: AtomicUsize,
    name: &'static CStr,
}

impl Original {
    const fn new(name: &'static CStr) -> Self {
        Self {
            name,
            address: AtomicUsize::new(0),
        }
    }

    /// The address.
    #[inline(always)]
    pub fn get(&self) -> usize {
        self.address.load(Ordering::Relaxed)
    }
}

macro_rules! originals {
    ($($constant:ident = $name:literal;)*) => {
        $(pub static $constant: Original = Original::new($name);)*
        static ALL: &[&Original] = &[$(&$constant),*];
    };
}

originals! {
    COND_INIT = c"pthread_cond_init";
    COND_WAIT = c"pthread_cond_wait";
    COND_TIMEDWAIT = c"pthread_cond_timedwait";
    COND_CLOCKWAIT = c"pthread_cond_clockwait";
    COND_SIGNAL = c"pthread_cond_signal";
    COND_BROADCAST = c"pthread_cond_broadcast";
    CND_WAIT = c"cnd_wait";
    SEM_WAIT = c"sem_wait";
    SEM_TIMEDWAIT = c"sem_timedwait";
    SEM_CLOCKWAIT = c"sem_clockwait";
    SEM_POST = c"sem_post";
    GETAFFINITY = c"sched_getaffinity";
    PTHREAD_GETAFFINITY = c"pthread_getaffinity_np";
    SYSCONF = c"sysconf";
    GET_NPROCS = c"get_nprocs";
    SCHED_GETCPU = c"sched_getcpu";
    GETCPU = c"getcpu";
    SCHED_YIELD = c"sched_yield";
    CREATE = c"pthread_create";
    PTRACE = c"ptrace";
    SIGNALFD = c"signalfd";
    TIMER_CREATE = c"timer_create";
    SETNAME = c"pthread_setname_np";
    GETNAME = c"pthread_getname_np";
    TESTCANCEL = c"pthread_testcancel";
    CANCEL = c"pthread_cancel";
    CLEANUP_PUSH = c"_pthread_cleanup_push";
    CLEANUP_POP = c"_pthread_cleanup_pop";
    CLOCK_GETTIME = c"clock_gettime";
    CLOCK_GETRES = c"clock_getres";
    ERRNO_LOCATION = c"__errno_location";
}

/// One entry of ld.so's list of loaded objects (`struct link_map`).
#[repr(C)]
pub struct LinkMap {
    pub base: usize,
    pub name: *const c_char,
    pub dynamic: *const [usize; 2],
    pub next: *const LinkMap,
}

/// The head of ld.so's list; it grows and shrinks as libraries come and go.
static LIST: AtomicUsize = AtomicUsize::new(0);

/// The path that the program was executed by: its entry in the list has an empty name.
static PROGRAM: AtomicUsize = AtomicUsize::new(0);

/// Remembers ld.so's list, and the address of the program's path (AT_EXECFN) or 0.
pub fn remember(map: &LinkMap, program: usize) {
    PROGRAM.store(program, Ordering::Relaxed);
    LIST.store(
        core::ptr::from_ref(map).expose_provenance(),
        Ordering::Release,
    );
}

/// The loaded object that most closely precedes `address`, which should be code of it.
pub fn object_of<'a>(address: usize) -> Option<&'a LinkMap> {
    let mut next = LIST.load(Ordering::Acquire) as *const LinkMap;
    let mut best: Option<&LinkMap> = None;
    // SAFETY: entries of ld.so's list; the caller runs code of the object it asks for.
    while let Some(object) = unsafe { next.as_ref() } {
        if object.base <= address && best.is_none_or(|best| object.base > best.base) {
            best = Some(object);
        }
        next = object.next;
    }
    best
}

/// The file of a loaded object.
pub fn path_of(object: &LinkMap) -> &'static [u8] {
    let program = PROGRAM.load(Ordering::Relaxed) as *const c_char;
    // SAFETY: strings of ld.so's list and of the auxiliary vector, which live for ever.
    unsafe {
        let named = !object.name.is_null() && *object.name != 0;
        let path = if named { object.name } else { program };
        path.as_ref()
            .map_or(&[], |path| CStr::from_ptr(path).to_bytes())
    }
}

#[repr(C)]
struct Symbol {
    name: u32,
    info: u8,
    other: u8,
    section: u16,
    value: usize,
    size: u64,
}

/// Looks every original up in `libc`.
///
/// # Safety
/// `libc` must be libc's entry in ld.so's list.
pub unsafe fn look_up(libc: &LinkMap) {
    for original in ALL {
        // SAFETY: the caller's promise.
        let address = unsafe { symbol(libc, original.name) };
        original.address.store(address, Ordering::Relaxed);
    }
}

/// What is needed of an object's dynamic section to look symbols up.
struct Tables {
    strings: usize,
    symbols: usize,
    hash: usize,
    versions: usize,
}

impl Tables {
    /// # Safety
    /// `object` must be an entry of ld.so's list.
    unsafe fn of(object: &LinkMap) -> Option<Self> {
        const DT_STRTAB: usize = 5;
        const DT_SYMTAB: usize = 6;
        const DT_GNU_HASH: usize = 0x6fff_fef5;
        const DT_VERSYM: usize = 0x6fff_fff0;
        let [mut strings, mut symbols, mut hash, mut versions] = [0usize; 4];
        let mut entry = object.dynamic;
        // SAFETY: a loaded object's dynamic section ends with a zero entry.
        while let [kind, value] = unsafe { *entry }
            && kind != 0
        {
            match kind {
                DT_STRTAB => strings = value,
                DT_SYMTAB => symbols = value,
                DT_GNU_HASH => hash = value,
                DT_VERSYM => versions = value,
                _ => {}
            }
            entry = entry.wrapping_add(1);
        }
        (strings != 0 && symbols != 0 && hash != 0).then_some(Self {
            strings,
            symbols,
            hash,
            versions,
        })
    }

    /// # Safety
    /// The object must have so many symbols.
    unsafe fn symbol(&self, index: usize) -> (&Symbol, &CStr) {
        // SAFETY: the caller's promise; names are strings of the object.
        unsafe {
            let symbol = &*(self.symbols as *const Symbol).add(index);
            let name = (self.strings + symbol.name as usize) as *const c_char;
            (symbol, CStr::from_ptr(name))
        }
    }
}

/// True if an object uses `name` from elsewhere. The next of its tables must lie behind its
/// symbols, as linkers put them (GNU's the strings, LLVM's the versions or the hash); else false.
///
/// # Safety
/// `object` must be an entry of ld.so's list.
pub unsafe fn imports(object: &LinkMap, name: &CStr) -> bool {
    // SAFETY: the caller's promise.
    let Some(tables) = (unsafe { Tables::of(object) }) else {
        return false;
    };
    let others = [tables.strings, tables.versions, tables.hash];
    let next = others.into_iter().filter(|&table| table > tables.symbols);
    let count = next
        .min()
        .map_or(0, |next| (next - tables.symbols) / size_of::<Symbol>());
    (0..count).any(|index| {
        // SAFETY: the symbols end where the next table begins.
        let (symbol, named) = unsafe { tables.symbol(index) };
        symbol.section == 0 && named == name
    })
}

/// A defined symbol in its default version, or 0 (through `DT_GNU_HASH`).
///
/// # Safety
/// `object` must be an entry of ld.so's list.
pub unsafe fn symbol(object: &LinkMap, name: &CStr) -> usize {
    const HIDDEN: u16 = 0x8000;
    // SAFETY: the tables of a loaded object, which ld.so has relocated.
    unsafe {
        let Some(tables) = Tables::of(object) else {
            return 0;
        };
        let header = tables.hash as *const u32;
        let (buckets, first, bloom) = (*header, *header.add(1), *header.add(2));
        let bucket_table = header.add(4 + 2 * bloom as usize);
        let chains = bucket_table.add(buckets as usize);
        let wanted = gnu_hash(name);
        let mut index = *bucket_table.add((wanted % buckets) as usize);
        if index < first {
            return 0;
        }
        loop {
            let link = *chains.add((index - first) as usize);
            let (symbol, named) = tables.symbol(index as usize);
            let versions = tables.versions as *const u16;
            let hidden = !versions.is_null() && *versions.add(index as usize) & HIDDEN != 0;
            if link | 1 == wanted | 1 && !hidden && symbol.section != 0 && named == name {
                return object.base + symbol.value;
            }
            if link & 1 != 0 {
                return 0;
            }
            index += 1;
        }
    }
}

fn gnu_hash(name: &CStr) -> u32 {
    name.to_bytes().iter().fold(5381u32, |h, &b| {
        h.wrapping_mul(33).wrapping_add(u32::from(b))
    })
}
