//! libc's own functions behind the names that the symbol layer takes.
//!
//! Looked up once at start-up in libc's dynamic symbols (default versions), without `dlsym`.

use core::ffi::{CStr, c_char};
use core::sync::atomic::{AtomicUsize, Ordering};

/// A function of libc by address; 0 before start-up and if libc has none.
#[repr(C)]
pub(crate) struct Original {
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
    pub(crate) fn get(&self) -> usize {
        self.address.load(Ordering::Relaxed)
    }
}

macro_rules! originals {
    ($($constant:ident = $name:literal;)*) => {
        $(pub(crate) static $constant: Original = Original::new($name);)*
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
    SEM_INIT = c"sem_init";
    SEM_TRYWAIT = c"sem_trywait";
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
pub(crate) struct LinkMap {
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
pub(crate) fn remember(map: &LinkMap, program: usize) {
    PROGRAM.store(program, Ordering::Relaxed);
    LIST.store(
        core::ptr::from_ref(map).expose_provenance(),
        Ordering::Release,
    );
}

/// The loaded object that most closely precedes `address`, which should be code of it.
pub(crate) fn object_of<'a>(address: usize) -> Option<&'a LinkMap> {
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
pub(crate) fn path_of(object: &LinkMap) -> &'static [u8] {
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
pub(crate) unsafe fn look_up(libc: &LinkMap) {
    for original in ALL {
        // SAFETY: the caller's promise.
        let address = unsafe { symbol(libc, original.name) };
        original.address.store(address, Ordering::Relaxed);
    }
}

/// Looks every original up in all objects but `own`: the program has another libc.
///
/// # Safety
/// `map` must be ld.so's list, and `own` the base of this library.
pub(crate) unsafe fn look_up_anywhere(map: &LinkMap, own: usize) {
    for original in ALL {
        let mut next = Some(map);
        while let Some(object) = next {
            let address = if object.base == own {
                0
            } else {
                // SAFETY: an entry of the list.
                unsafe { symbol(object, original.name) }
            };
            if address != 0 {
                original.address.store(address, Ordering::Relaxed);
                break;
            }
            // SAFETY: the list is null-terminated.
            next = unsafe { object.next.as_ref() };
        }
    }
}

/// What is needed of an object's dynamic section to look symbols up.
struct Tables {
    strings: usize,
    strings_size: usize,
    symbols: usize,
    hash: usize,
    versions: usize,
    /// Addresses and sizes in bytes of the relocations: of data, of functions.
    relocations: [(usize, usize); 2],
}

/// `Elf64_Rela`.
#[repr(C)]
struct Relocation {
    place: u64,
    /// The symbol's index above the type.
    info: u64,
    addend: i64,
}

impl Tables {
    /// # Safety
    /// `object` must be an entry of ld.so's list.
    unsafe fn of(object: &LinkMap) -> Option<Self> {
        const DT_PLTRELSZ: usize = 2;
        const DT_STRTAB: usize = 5;
        const DT_SYMTAB: usize = 6;
        const DT_RELA: usize = 7;
        const DT_RELASZ: usize = 8;
        const DT_STRSZ: usize = 10;
        const DT_JMPREL: usize = 23;
        const DT_GNU_HASH: usize = 0x6fff_fef5;
        const DT_VERSYM: usize = 0x6fff_fff0;
        // SAFETY: the caller's promise.
        let value = |kind| unsafe { object.value(kind) };
        let address = |kind| value(kind).map_or(0, |at| object.relocated(at));
        let size = |kind| value(kind).unwrap_or(0);
        let tables = Self {
            strings: address(DT_STRTAB),
            strings_size: size(DT_STRSZ),
            symbols: address(DT_SYMTAB),
            hash: address(DT_GNU_HASH),
            versions: address(DT_VERSYM),
            relocations: [
                (address(DT_RELA), size(DT_RELASZ)),
                (address(DT_JMPREL), size(DT_PLTRELSZ)),
            ],
        };
        (tables.strings != 0 && tables.symbols != 0).then_some(tables)
    }

    /// # Safety
    /// The object must have so many symbols.
    unsafe fn symbol(&self, index: usize) -> &Symbol {
        // SAFETY: the caller's promise.
        unsafe { &*(self.symbols as *const Symbol).add(index) }
    }

    /// True if the string at this offset is `name`. An offset behind the strings is none.
    fn is_named(&self, at: usize, name: &CStr) -> bool {
        let wanted = name.to_bytes_with_nul();
        let end = at.checked_add(wanted.len());
        // SAFETY: the object's strings, which are so long.
        end.is_some_and(|end| end <= self.strings_size)
            && unsafe {
                let start = (self.strings + at) as *const u8;
                core::slice::from_raw_parts(start, wanted.len()) == wanted
            }
    }
}

impl LinkMap {
    /// The value of the first entry of this kind in the dynamic section.
    ///
    /// # Safety
    /// This must be an entry of ld.so's list, or have the base and the dynamic section of one.
    unsafe fn value(&self, wanted: usize) -> Option<usize> {
        let mut entry = self.dynamic;
        // SAFETY: a loaded object's dynamic section ends with a zero entry.
        while let [kind, value] = unsafe { *entry }
            && kind != 0
        {
            if kind == wanted {
                return Some(value);
            }
            entry = entry.wrapping_add(1);
        }
        None
    }

    /// An address of the dynamic section. ld.so relocates the section in place, but for one that is
    /// read-only, as the vDSO's is.
    fn relocated(&self, at: usize) -> usize {
        if at < self.base { at + self.base } else { at }
    }

    /// True if the object calls itself `name` (DT_SONAME).
    ///
    /// # Safety
    /// This must be an entry of ld.so's list.
    pub(crate) unsafe fn is_called(&self, name: &CStr) -> bool {
        const DT_SONAME: usize = 14;
        // SAFETY: the caller's promise.
        let (tables, own) = unsafe { (Tables::of(self), self.value(DT_SONAME)) };
        tables
            .zip(own)
            .is_some_and(|(tables, at)| tables.is_named(at, name))
    }
}

/// True if an object uses `name` from elsewhere. Each use needs a relocation that names the symbol.
/// No table says where the symbols end, and tools like patchelf put the tables anywhere.
///
/// # Safety
/// `object` must be an entry of ld.so's list.
pub(crate) unsafe fn imports(object: &LinkMap, name: &CStr) -> bool {
    // SAFETY: the caller's promise.
    let Some(tables) = (unsafe { Tables::of(object) }) else {
        return false;
    };
    let present = tables.relocations.into_iter().filter(|&(at, _)| at != 0);
    present.into_iter().any(|(at, size)| {
        let count = size / size_of::<Relocation>();
        // SAFETY: the object's relocations.
        let all = unsafe { core::slice::from_raw_parts(at as *const Relocation, count) };
        let symbols = all
            .iter()
            .map(|relocation| (relocation.info >> 32) as usize);
        symbols.filter(|&index| index != 0).any(|index| {
            // SAFETY: ld.so has applied the relocation by this symbol.
            let symbol = unsafe { tables.symbol(index) };
            symbol.section == 0 && tables.is_named(symbol.name as usize, name)
        })
    })
}

/// A defined symbol in its default version, or 0 (through `DT_GNU_HASH`).
///
/// # Safety
/// `object` must be an entry of ld.so's list.
pub(crate) unsafe fn symbol(object: &LinkMap, name: &CStr) -> usize {
    const HIDDEN: u16 = 0x8000;
    // SAFETY: the tables of a loaded object, which ld.so has relocated.
    unsafe {
        let Some(tables) = Tables::of(object) else {
            return 0;
        };
        if tables.hash == 0 {
            return 0;
        }
        let header = tables.hash as *const u32;
        let (buckets, first, bloom) = (*header, *header.add(1), *header.add(2));
        if buckets == 0 {
            return 0; // as ld.so takes it: no symbol
        }
        let bucket_table = header.add(4 + 2 * bloom as usize);
        let chains = bucket_table.add(buckets as usize);
        let wanted = gnu_hash(name);
        let mut index = *bucket_table.add((wanted % buckets) as usize);
        if index < first {
            return 0;
        }
        loop {
            let link = *chains.add((index - first) as usize);
            let symbol = tables.symbol(index as usize);
            let versions = tables.versions as *const u16;
            let hidden = !versions.is_null() && *versions.add(index as usize) & HIDDEN != 0;
            let is_it = link | 1 == wanted | 1 && !hidden && symbol.section != 0;
            if is_it && tables.is_named(symbol.name as usize, name) {
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
