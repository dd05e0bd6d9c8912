//! Where CPython keeps what a stack is made of, by version.
//!
//! From 3.13 on, the process itself says it (`_Py_DebugOffsets`, the first field of `_PyRuntime`).
//! The tables of 3.9 to 3.12 were made by a C program that prints `offsetof` with the headers of
//! these versions on x86-64. Within one minor version these structures don't change.

use crate::elf::u64_at;
use crate::exports::Exports;
use crate::memory::Memory;
use crate::python::lines::Format;

/// Offsets that are larger make no sense.
const OFFSET_MAX: u64 = 1 << 20;
/// The owner of a frame that stands for a call of the interpreter, from 3.12 on.
const OWNED_BY_INTERPRETER: u8 = 3;

/// The version, and where the fields are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Offsets {
    /// The minor version of Python 3.
    pub minor: u8,
    /// The runtime's list of interpreters, and their lists of threads.
    pub interpreters: u64,
    pub next_interpreter: u64,
    pub threads: u64,
    pub next_thread: u64,
    /// The thread's id in libc: the address of its control block.
    pub thread_id: u64,
    /// What `gettid` returned; from 3.11 on.
    pub native_id: Option<u64>,
    pub innermost: Innermost,
    /// The frame.
    pub code: u64,
    pub previous: u64,
    pub position: Position,
    pub entry: Entry,
    /// The code object.
    pub filename: u64,
    pub name: u64,
    pub first_line: u64,
    pub lines: u64,
    pub lines_format: Format,
    /// A string.
    pub length: u64,
    pub state: u64,
    /// The size of the header of a string that is ASCII, and what others have more.
    pub ascii_bytes: u64,
    pub compact_more: u64,
    /// A bytes object.
    pub size: u64,
    pub bytes: u64,
}

/// Where a thread's innermost frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Innermost {
    /// In the thread, at this offset.
    Thread(u64),
    /// In a record on the native stack, to which this field of the thread leads, at this offset.
    Record { record: u64, frame: u64 },
}

/// Where a frame has its position in the code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Position {
    /// A number of four bytes, and how many bytes its unit has.
    Number { field: u64, unit: i64 },
    /// An address, and where the code begins in the code object. In free-threaded builds from 3.14
    /// on the thread may have a copy of the code.
    Address {
        field: u64,
        code: u64,
        copies: Option<Copies>,
    },
}

/// Copies of code for threads: the number of the copy in the frame, and the code's list of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Copies {
    pub number: u64,
    pub list: u64,
}

/// How a frame is known that the interpreter was entered with. The frames up to there are executed
/// by one native function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entry {
    /// Each frame is one. Without a field for records, their places aren't known.
    Each { records: Option<Records> },
    /// By a byte of the frame that isn't 0.
    Marked { mark: u64, records: Records },
    /// By a frame without code behind it, on the native stack.
    Behind { owner: u64 },
}

/// Records on the native stack, one a call of the interpreter: the thread's field, and the field
/// that leads to the next record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Records {
    pub first: u64,
    pub next: u64,
}

impl Entry {
    /// Returns true if a frame of this owner only stands for a call of the interpreter.
    pub(super) fn is_behind(owner: u8) -> bool {
        owner >= OWNED_BY_INTERPRETER
    }
}

impl Offsets {
    /// Finds out which version a file with `_PyRuntime` at this address is.
    pub(super) fn of(memory: &dyn Memory, exports: &Exports<'_>, runtime: u64) -> Option<Offsets> {
        let number = match exports.find("Py_Version") {
            Some(version) => memory.half(version.address)? >> 16,
            // Before 3.11 versions are told by functions that they brought.
            None if exports.find("Py_Is").is_some() => 0x030a,
            None if exports.find("PyObject_CallNoArgs").is_some() => 0x0309,
            None => return None,
        };
        match number {
            0x0309 => Some(V3_9),
            0x030a => Some(V3_10),
            0x030b => Some(V3_11),
            0x030c => Some(V3_12),
            0x030d..=0x030f => Offsets::declared(memory, runtime),
            _ => None,
        }
    }

    /// Reads what the process declares at the begin of `_PyRuntime`.
    fn declared(memory: &dyn Memory, runtime: u64) -> Option<Offsets> {
        let mut bytes = [0; 104 * 8];
        memory.read_all(runtime, &mut bytes)?;
        if bytes[..8] != *b"xdebugpy" {
            return None;
        }
        let minor = (u64_at(&bytes, 8)? >> 16) as u8;
        let is_free_threaded = u64_at(&bytes, 16)? != 0;
        /// How many fields each structure has: the head, the runtime, interpreter, thread, frame,
        /// code, object, type, tuple, list, set, dictionary, float, integer, bytes, string. In 3.15
        /// the structure of an exception is behind that of a thread, and the structure of a heap
        /// type behind that of a type: each is counted with the one before.
        const FIELDS_3_13: [usize; 16] = [3, 3, 13, 9, 6, 10, 2, 4, 3, 3, 0, 3, 2, 3, 3, 4];
        const FIELDS_3_14: [usize; 16] = [3, 3, 16, 9, 8, 11, 2, 4, 3, 3, 4, 3, 2, 3, 3, 4];
        const FIELDS_3_15: [usize; 16] = [3, 3, 16, 17, 8, 11, 2, 8, 3, 3, 4, 3, 2, 3, 3, 5];
        // The fields of a thread behind its innermost frame.
        let (counts, ids) = match minor {
            13 => (FIELDS_3_13, 5),
            14 => (FIELDS_3_14, 5),
            _ => (FIELDS_3_15, 8),
        };
        let field = |structure: usize, number: usize| {
            let before: usize = counts[..structure].iter().sum();
            u64_at(&bytes, (before + number) * 8).filter(|&offset| offset < OFFSET_MAX)
        };
        let [runtime, interpreter, thread, frame, code] = [1, 2, 3, 4, 5];
        let [bytes_object, string] = [14, 15];
        let copies = if is_free_threaded && minor >= 14 {
            Some(Copies {
                number: field(frame, 7)?,
                list: field(code, 10)?,
            })
        } else {
            None
        };
        Some(Offsets {
            minor,
            interpreters: field(runtime, 2)?,
            next_interpreter: field(interpreter, 2)?,
            threads: field(interpreter, 3)?,
            next_thread: field(thread, 2)?,
            thread_id: field(thread, ids)?,
            native_id: Some(field(thread, ids + 1)?),
            innermost: Innermost::Thread(field(thread, 4)?),
            code: field(frame, 2)?,
            previous: field(frame, 1)?,
            position: Position::Address {
                field: field(frame, 3)?,
                code: field(code, 9)?,
                copies,
            },
            entry: Entry::Behind {
                owner: field(frame, 5)?,
            },
            filename: field(code, 1)?,
            name: field(code, 3)?,
            first_line: field(code, 5)?,
            lines: field(code, 4)?,
            lines_format: Format::Locations,
            length: field(string, 2)?,
            state: field(string, 1)?,
            ascii_bytes: field(string, 3)?,
            compact_more: 16,
            size: field(bytes_object, 1)?,
            bytes: field(bytes_object, 2)?,
        })
    }
}

/// All versions that declare nothing.
#[cfg(test)]
pub(super) const TABLES: [Offsets; 4] = [V3_9, V3_10, V3_11, V3_12];

const V3_9: Offsets = Offsets {
    minor: 9,
    interpreters: 32,
    next_interpreter: 0,
    threads: 8,
    next_thread: 8,
    thread_id: 176,
    native_id: None,
    innermost: Innermost::Thread(24),
    code: 32,
    previous: 24,
    position: Position::Number {
        field: 104,
        unit: 1,
    },
    entry: Entry::Each { records: None },
    filename: 104,
    name: 112,
    first_line: 40,
    lines: 120,
    lines_format: Format::Pairs,
    length: 16,
    state: 32,
    ascii_bytes: 48,
    compact_more: 24,
    size: 16,
    bytes: 32,
};

const V3_10: Offsets = Offsets {
    minor: 10,
    position: Position::Number { field: 96, unit: 2 },
    entry: Entry::Each {
        records: Some(Records { first: 48, next: 8 }),
    },
    lines_format: Format::Ranges,
    ..V3_9
};

const V3_11: Offsets = Offsets {
    minor: 11,
    interpreters: 40,
    threads: 16,
    thread_id: 152,
    native_id: Some(160),
    innermost: Innermost::Record {
        record: 56,
        frame: 8,
    },
    previous: 48,
    position: Position::Address {
        field: 56,
        code: 184,
        copies: None,
    },
    entry: Entry::Marked {
        mark: 68,
        records: Records {
            first: 56,
            next: 16,
        },
    },
    filename: 112,
    name: 128,
    first_line: 72,
    lines: 136,
    lines_format: Format::Locations,
    ..V3_9
};

const V3_12: Offsets = Offsets {
    minor: 12,
    threads: 72,
    thread_id: 136,
    native_id: Some(144),
    innermost: Innermost::Record {
        record: 56,
        frame: 0,
    },
    code: 0,
    previous: 8,
    position: Position::Address {
        field: 56,
        code: 192,
        copies: None,
    },
    entry: Entry::Behind { owner: 70 },
    first_line: 68,
    ascii_bytes: 40,
    compact_more: 16,
    ..V3_11
};

#[cfg(test)]
mod tests {
    use super::*;

    struct Words(Vec<u8>);

    impl Memory for Words {
        fn read(&self, address: u64, to: &mut [u8]) -> usize {
            let from = (address as usize).min(self.0.len());
            let length = to.len().min(self.0.len() - from);
            to[..length].copy_from_slice(&self.0[from..from + length]);
            length
        }
    }

    /// What the headers of a free-threaded 3.13 say, in the order of the structure.
    fn declared_3_13() -> Vec<u64> {
        let cookie = u64::from_le_bytes(*b"xdebugpy");
        let mut words = vec![cookie, 0x030d_00f0, 1, 5000, 600, 632];
        words.extend([9000, 7256, 7264, 7344, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
        words.extend([300, 0, 8, 16, 72, 152, 160, 200, 36]);
        words.extend([88, 8, 0, 56, 72, 70]);
        words.extend([232, 128, 136, 144, 152, 84, 60, 112, 120, 216]);
        words.resize(64, 0);
        words.extend([33, 32, 48, 96, 48, 32, 56]);
        words.resize(104, 0);
        words
    }

    fn parse(words: &[u64]) -> Option<Offsets> {
        let bytes = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        Offsets::declared(&Words(bytes), 0)
    }

    #[test]
    fn declared_offsets_are_read() {
        let offsets = parse(&declared_3_13()).unwrap();
        assert_eq!(
            (offsets.minor, offsets.interpreters, offsets.threads),
            (13, 632, 7344)
        );
        assert_eq!(offsets.native_id, Some(160));
        assert_eq!(offsets.innermost, Innermost::Thread(72));
        assert_eq!(offsets.entry, Entry::Behind { owner: 70 });
        assert_eq!((offsets.filename, offsets.name), (128, 144));
        assert_eq!(
            (offsets.length, offsets.state, offsets.ascii_bytes),
            (32, 48, 56)
        );
        assert_eq!((offsets.size, offsets.bytes), (32, 48));
    }

    /// What C programs print that fill the structure by the headers of 3.14.10 and 3.15.2, without
    /// and with `Py_GIL_DISABLED`; behind the cookie.
    #[rustfmt::skip]
    const V3_14: [u64; 80] = [
        51251952, 0, 316616, 784, 808, 225864, 7280, 7272, 7344, 7360, 7408, 7688, 7672, 7680,
        16, 7784, 0, 7800, 7792, 7992, 0, 832, 0, 8, 16, 72, 152, 160, 232, 32, 88, 8, 0, 56, 80,
        74, 64, 0, 216, 112, 120, 128, 136, 68, 52, 96, 104, 208, 0, 16, 8, 416, 24, 88, 168, 40,
        32, 16, 40, 24, 16, 200, 24, 40, 32, 48, 32, 40, 24, 16, 32, 16, 24, 40, 16, 32, 64, 32,
        16, 40,
    ];
    #[rustfmt::skip]
    const V3_14T: [u64; 80] = [
        51251952, 1, 365624, 784, 808, 249976, 7280, 7272, 7344, 7360, 7408, 7712, 7696, 7704,
        16, 7808, 0, 7832, 7824, 8024, 17300, 832, 0, 8, 16, 72, 152, 160, 232, 32, 88, 8, 0, 56,
        80, 78, 64, 72, 240, 128, 136, 144, 152, 84, 68, 112, 120, 232, 224, 32, 24, 432, 40,
        104, 184, 56, 48, 32, 56, 40, 32, 216, 40, 56, 48, 64, 48, 56, 40, 32, 48, 32, 40, 56,
        32, 48, 80, 48, 32, 56,
    ];
    #[rustfmt::skip]
    const V3_15: [u64; 93] = [
        51315440, 0, 346560, 912, 936, 226232, 7272, 7264, 7336, 7352, 7400, 7592, 7576, 7584,
        16, 7736, 0, 7752, 7744, 7944, 0, 888, 0, 8, 16, 72, 80, 88, 96, 176, 184, 256, 32, 36,
        40, 136, 288, 0, 88, 8, 0, 56, 80, 74, 64, 0, 216, 112, 120, 128, 136, 68, 52, 96, 104,
        208, 0, 16, 8, 424, 24, 88, 168, 32, 288, 944, 888, 40, 32, 16, 40, 24, 16, 200, 24, 40,
        32, 48, 32, 40, 24, 16, 32, 16, 24, 40, 16, 32, 64, 32, 16, 40, 56,
    ];
    #[rustfmt::skip]
    const V3_15T: [u64; 93] = [
        51315440, 1, 409296, 912, 936, 250328, 7272, 7264, 7336, 7352, 7400, 7592, 7576, 7584,
        16, 7736, 0, 7760, 7752, 7952, 17252, 888, 0, 8, 16, 72, 80, 88, 96, 176, 184, 256, 32,
        36, 40, 136, 288, 0, 88, 8, 0, 56, 80, 78, 64, 72, 240, 128, 136, 144, 152, 84, 68, 112,
        120, 232, 224, 32, 24, 440, 40, 104, 184, 48, 304, 968, 904, 56, 48, 32, 56, 40, 32, 216,
        40, 56, 48, 64, 48, 56, 40, 32, 48, 32, 40, 56, 32, 48, 80, 48, 32, 56, 72,
    ];

    #[test]
    fn later_versions_and_free_threaded_ones_are_read() {
        let read = |words: &[u64]| {
            let cookie = u64::from_le_bytes(*b"xdebugpy");
            let mut all = [&[cookie], words].concat();
            all.resize(104, 0);
            parse(&all).unwrap()
        };
        let [v14, v14t] = [read(&V3_14), read(&V3_14T)];
        let [v15, v15t] = [read(&V3_15), read(&V3_15T)];
        for (offsets, minor, native_id) in [
            (v14, 14, 160),
            (v14t, 14, 160),
            (v15, 15, 184),
            (v15t, 15, 184),
        ] {
            assert_eq!((offsets.minor, offsets.native_id), (minor, Some(native_id)));
            assert_eq!(offsets.innermost, Innermost::Thread(72));
            assert_eq!((offsets.code, offsets.previous), (0, 8));
        }
        assert_eq!(
            (v14.interpreters, v14.threads, v14.next_thread),
            (808, 7344, 8)
        );
        assert_eq!(
            (v15.interpreters, v15.threads, v15.next_thread),
            (936, 7336, 8)
        );
        let copies = Some(Copies {
            number: 72,
            list: 224,
        });
        for (plain, free) in [(v14, v14t), (v15, v15t)] {
            assert_eq!(plain.entry, Entry::Behind { owner: 74 });
            assert_eq!(free.entry, Entry::Behind { owner: 78 });
            let position = |code, copies| Position::Address {
                field: 56,
                code,
                copies,
            };
            assert_eq!(plain.position, position(208, None));
            assert_eq!(free.position, position(232, copies));
            assert_eq!((plain.filename, plain.name, plain.lines), (112, 128, 136));
            assert_eq!((free.filename, free.name, free.lines), (128, 144, 152));
            assert_eq!((plain.size, plain.bytes), (16, 32));
            assert_eq!((free.size, free.bytes), (32, 48));
            assert_eq!((plain.length, plain.state, plain.ascii_bytes), (16, 32, 40));
            assert_eq!((free.length, free.state, free.ascii_bytes), (32, 48, 56));
        }
    }

    #[test]
    fn declarations_that_make_no_sense_are_refused() {
        let mut words = declared_3_13();
        words[5] = 1 << 40;
        assert_eq!(parse(&words), None);
        words[0] = 0;
        assert_eq!(parse(&words), None);
        assert_eq!(parse(&[0; 8]), None);
    }
}
