//! Images made by hand: a few functions of given bytes, with unwind entries and constants, laid out
//! as ld.so does, in memory that ends at an inaccessible page.

#![allow(dead_code, reason = "not every test program uses all of it")]

use raddle_patch::{Image, Refusal};

/// Where functions begin, by offset from the header.
pub(crate) const TEXT: usize = 0x1000;
/// Where constants are.
pub(crate) const CONSTANTS: usize = 0x800;
const UNWIND_HEADER: usize = 0x4000;
const UNWIND: usize = 0x5000;
const END: usize = 0x6000;

/// A function to lay out.
struct Function {
    /// Offset from the header.
    at: usize,
    code: Vec<u8>,
    /// Bytes that the unwind entry covers.
    covered: usize,
}

/// An image to lay out.
#[derive(Default)]
pub(crate) struct Builder {
    functions: Vec<Function>,
    constants: Vec<u8>,
}

impl Builder {
    /// Adds a function at the next multiple of 16, and returns its offset.
    pub(crate) fn function(&mut self, code: &[u8]) -> usize {
        self.function_covered(code, code.len())
    }

    /// The same with an unwind entry for its first bytes only.
    pub(crate) fn function_covered(&mut self, code: &[u8], covered: usize) -> usize {
        let end = self
            .functions
            .last()
            .map_or(TEXT, |last| last.at + last.code.len());
        let at = end.next_multiple_of(16);
        self.functions.push(Function {
            at,
            code: code.to_vec(),
            covered,
        });
        at
    }

    /// Sets the constants at [`CONSTANTS`].
    pub(crate) fn constants(&mut self, bytes: &[u8]) {
        self.constants = bytes.to_vec();
    }

    /// Returns the bytes of the image.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0u8; END];
        write_headers(&mut bytes);
        bytes[TEXT..UNWIND_HEADER].fill(0x90);
        bytes[CONSTANTS..CONSTANTS + self.constants.len()].copy_from_slice(&self.constants);
        for function in &self.functions {
            let end = function.at + function.code.len();
            bytes[function.at..end].copy_from_slice(&function.code);
        }
        self.write_unwind(&mut bytes);
        bytes
    }

    fn write_unwind(&self, bytes: &mut [u8]) {
        const COMMON_LEN: usize = 24;
        const ENTRY_LEN: usize = 24;
        let mut common = vec![20, 0, 0, 0, 0, 0, 0, 0, 1];
        // Alignment 1 and -8, return address in 16, one byte of data: pcrel, sdata4.
        common.extend_from_slice(b"zR\0\x01\x78\x10\x01\x1b");
        common.resize(COMMON_LEN, 0);
        put(bytes, UNWIND, &common);
        put(bytes, UNWIND_HEADER, &[1, 0x1b, 0x03, 0x3b]);
        put_i32(
            bytes,
            UNWIND_HEADER + 4,
            UNWIND as i32 - (UNWIND_HEADER as i32 + 4),
        );
        put_i32(bytes, UNWIND_HEADER + 8, self.functions.len() as i32);
        for (index, function) in self.functions.iter().enumerate() {
            let entry = UNWIND + COMMON_LEN + index * ENTRY_LEN;
            put_i32(bytes, entry, ENTRY_LEN as i32 - 4);
            put_i32(bytes, entry + 4, (entry + 4 - UNWIND) as i32);
            put_i32(bytes, entry + 8, function.at as i32 - (entry as i32 + 8));
            put_i32(bytes, entry + 12, function.covered as i32);
            let pair = UNWIND_HEADER + 12 + index * 8;
            put_i32(bytes, pair, function.at as i32 - UNWIND_HEADER as i32);
            put_i32(bytes, pair + 4, entry as i32 - UNWIND_HEADER as i32);
        }
    }

    /// Loads the image.
    pub(crate) fn load(&self) -> Loaded {
        Loaded::new(&self.bytes())
    }
}

fn write_headers(bytes: &mut [u8]) {
    const HEADERS: usize = 64;
    put(bytes, 0, b"\x7fELF\x02\x01\x01");
    put(bytes, 16, &[3, 0, 62, 0, 1]);
    put(bytes, 32, &(HEADERS as u64).to_le_bytes());
    put(bytes, 52, &[64, 0, 56, 0, 4]);
    let headers = [
        (1, 4, 0, TEXT),
        (1, 5, TEXT, UNWIND_HEADER - TEXT),
        (1, 4, UNWIND_HEADER, END - UNWIND_HEADER),
        (0x6474_e550, 4, UNWIND_HEADER, UNWIND - UNWIND_HEADER),
    ];
    for (index, (kind, flags, address, len)) in headers.into_iter().enumerate() {
        let at = HEADERS + index * 56;
        put_i32(bytes, at, kind);
        put_i32(bytes, at + 4, flags);
        for field in [8, 16, 24] {
            put(bytes, at + field, &(address as u64).to_le_bytes());
        }
        for field in [32, 40] {
            put(bytes, at + field, &(len as u64).to_le_bytes());
        }
    }
}

fn put(bytes: &mut [u8], at: usize, what: &[u8]) {
    bytes[at..at + what.len()].copy_from_slice(what);
}

fn put_i32(bytes: &mut [u8], at: usize, value: i32) {
    put(bytes, at, &value.to_le_bytes());
}

/// Bytes between inaccessible pages: reading beyond them is a fault.
pub(crate) struct Loaded {
    mapping: *mut libc::c_void,
    mapping_len: usize,
    len: usize,
}

const PAGE: usize = 4096;

impl Loaded {
    /// Loads whole pages.
    pub(crate) fn new(bytes: &[u8]) -> Self {
        let len = bytes.len().next_multiple_of(PAGE);
        let mapping_len = len + 2 * PAGE;
        // SAFETY: a fresh mapping; its middle becomes writable and receives as many bytes as fit.
        unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let mapping = libc::mmap(std::ptr::null_mut(), mapping_len, 0, flags, -1, 0);
            assert_ne!(mapping, libc::MAP_FAILED);
            let middle = mapping.byte_add(PAGE);
            let access = libc::PROT_READ | libc::PROT_WRITE;
            assert_eq!(libc::mprotect(middle, len, access), 0);
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), middle.cast(), bytes.len());
            Self {
                mapping,
                mapping_len,
                len,
            }
        }
    }

    /// Returns the address of the header.
    pub(crate) fn base(&self) -> usize {
        self.mapping as usize + PAGE
    }

    /// Reads the headers, of an image that keeps the ABI.
    pub(crate) fn image(&self) -> Result<Image, Refusal> {
        self.any_image().map(Image::that_keeps_the_abi)
    }

    /// Reads the headers, of an image that any compiler may have made.
    pub(crate) fn any_image(&self) -> Result<Image, Refusal> {
        // SAFETY: all bytes up to the limit are readable, and no thread changes them.
        unsafe { Image::at(self.base(), self.len) }
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own.
        unsafe { libc::munmap(self.mapping, self.mapping_len) };
    }
}
