//! The memory of a case: pages at fixed addresses, each with a purpose.

/// The beginning of the memory: far from the addresses that the kernel and ld.so choose.
pub const BASE: u64 = 0x10_0000_0000;
pub const PAGE_BYTES: u64 = 4096;
/// Pages in the case's reach; some of them are holes.
pub const PAGES: u8 = 48;
/// Bytes from `BASE`; their changes are part of a trace.
pub const READABLE_BYTES: u64 = 32 * PAGE_BYTES;

/// Pages of each thread's stack with changes that are part of a trace, and where they begin,
/// relative to the page that the thread uses.
pub const STACK_PAGES: u64 = 8;
pub const STACK_WINDOW: i32 = -0x20000;

/// The purpose of a page at the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Page;

impl Page {
    /// Structures that calls read, and buffers that they fill.
    pub const DATA: u8 = 0;
    pub const DATA_PAGES: u8 = 4;
    /// Words of futexes, locks and other objects that several threads use.
    pub const WORDS: u8 = 4;
    /// Large buffers.
    pub const BUFFERS: u8 = 5;
    /// Paths and names.
    pub const NAMES: u8 = 7;
    pub const READ_ONLY: u8 = 8;
    pub const NO_ACCESS: u8 = 9;
    pub const HOLE: u8 = 10;
    pub const SHARED: u8 = 11;
    /// A file's first page, private.
    pub const OF_FILE: u8 = 12;
    /// A mapping behind its file's end.
    pub const BEHIND_FILE: u8 = 13;
    /// The last page before a hole.
    pub const LAST: u8 = 14;
    /// For calls about memory, which may change them: sixteen pages, private.
    pub const CHANGING: u8 = 16;
    pub const CHANGING_PAGES: u8 = 16;
    /// An alternate stack for signals; no part of traces, nor are the pages behind it.
    pub const SIGNAL_STACK: u8 = 34;
    pub const SIGNAL_STACK_PAGES: u8 = 8;
    /// Behind a stack of two pages for threads that end at once.
    pub const STACK_END: u8 = 46;
}

/// An address in the case's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub page: u8,
    pub offset: i32,
}

impl Place {
    pub const fn new(page: u8, offset: i32) -> Self {
        Self { page, offset }
    }

    pub const fn address(self) -> u64 {
        (BASE + self.page as u64 * PAGE_BYTES).wrapping_add(self.offset as i64 as u64)
    }

    pub const fn plus(self, bytes: i32) -> Self {
        Self::new(self.page, self.offset + bytes)
    }
}

/// The page and offset of an address in the case's memory.
pub fn page_of(address: u64) -> Option<Place> {
    let offset = address.checked_sub(BASE)?;
    let page = offset / PAGE_BYTES;
    (page < u64::from(PAGES)).then(|| Place::new(page as u8, (offset % PAGE_BYTES) as i32))
}

/// Bytes of a name's room in the page of names.
const NAME_BYTES: i32 = 64;

/// Names of files in the case's folder, and paths that have the same content in every process.
pub const FILES: &[&str] = &[
    "file",
    "missing",
    "folder",
    "folder/inner",
    "link",
    "fifo",
    "dangling",
    ".",
    "..",
    "",
    "file/under",
    "loop",
    "a-thread-name-of-more-than-fifteen-bytes",
    "short",
    "/dev/null",
    "/dev/zero",
    "/dev/full",
    "/proc/self/comm",
    "/proc/self/cmdline/x",
    "/proc/thread-self/comm",
    "new",
    "program",
    "after-exec",
    "exit 3",
];

/// Paths below `/proc` with a content that differs from process to process.
pub const PATHS: &[&str] = &[
    "/proc/self/task",
    "/proc/self/task/1",
    "/proc/self/task/1/comm",
    "/proc/self/task/999999999/comm",
    "/proc/self/task/4294967296",
    "/proc/self/fd",
    "/proc/self/fd/10",
    "/proc/self/fd/1000",
    "/proc/self/exe",
    "/proc/self/cwd",
    "/proc/self/root",
    "/proc/self",
    "/proc/thread-self",
    "/proc/self/status",
    "/proc/self/maps",
    "/proc/self/stat",
    "/proc/self/task/.",
    "/proc/self/task/../comm",
    "/proc//self/task",
    "/proc/self/mem",
];

/// The index of a name that stands in one of the lists.
pub fn name_index(name: &str) -> usize {
    let mut names = FILES.iter().chain(PATHS);
    names
        .position(|candidate| *candidate == name)
        .expect("it stands there")
}

/// The place of the name with that index in [`FILES`], followed by [`PATHS`].
pub const fn name_place(index: usize) -> Place {
    Place::new(Page::NAMES, index as i32 * NAME_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_room() {
        let names = FILES.iter().chain(PATHS);
        assert!(names.clone().all(|name| name.len() < NAME_BYTES as usize));
        assert!(names.count() * NAME_BYTES as usize <= PAGE_BYTES as usize);
    }

    #[test]
    fn an_address_leads_back_to_its_page() {
        let place = Place::new(Page::LAST, 0xff8);
        assert_eq!(page_of(place.address()), Some(place));
        assert_eq!(page_of(BASE - 1), None);
        assert_eq!(page_of(Place::new(PAGES, 0).address()), None);
    }
}
