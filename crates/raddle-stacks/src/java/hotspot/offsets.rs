//! Where HotSpot's structures have what is read of them.

use super::structs::Structs;

/// A place in or near a block of code, as versions note it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Place {
    /// The address is in this field.
    Address(u64),
    /// The distance from the block is in this field.
    Distance(u64),
    /// The address is in the first field, and a distance from there in the second.
    Behind(u64, u64),
    /// The distance of the block's data is in the first field, and a short one in the second.
    InData(u64, u64),
}

pub(super) struct Offsets {
    pub heaps: Heaps,
    pub blob: Blob,
    pub compiled: Compiled,
    pub method: Method,
    /// Static fields: the code of the interpreter, and where it has its first byte and length.
    pub interpreter: u64,
    pub queue_start: u64,
    pub queue_bytes: u64,
    pub call_stub_return: u64,
    pub continuation_return: Option<u64>,
    /// From JDK 20 on, no byte of a compressed number is 0.
    pub excludes_zero: bool,
}

/// The heaps of code.
pub(super) struct Heaps {
    /// The static list of them.
    pub list: u64,
    pub list_length: u64,
    pub list_data: u64,
    pub memory: u64,
    pub segments: u64,
    pub log2_segment_bytes: u64,
    pub low: u64,
    pub high: u64,
    pub header_bytes: u64,
    pub is_used: u64,
    /// How many segments a block has.
    pub block_length: u64,
}

/// A block of code.
pub(super) struct Blob {
    pub name: u64,
    pub size: u64,
    pub frame_complete: u64,
    /// Two bytes only.
    pub is_frame_complete_short: bool,
    pub frame_words: u64,
    pub code: Place,
}

/// A compiled method.
pub(super) struct Compiled {
    pub method: u64,
    pub descriptions: Place,
    pub descriptions_end: Place,
    pub scopes: Place,
    pub metadata: Option<Place>,
    pub handlers: [Option<Place>; 2],
    pub original: Option<u64>,
}

/// A method, and what leads to its names.
pub(super) struct Method {
    pub constant: u64,
    pub access: u64,
    pub pool: u64,
    pub constant_words: u64,
    pub constant_bytes: u64,
    pub flags: u64,
    pub code_bytes: u64,
    pub name: u64,
    pub holder: u64,
    pub pool_bytes: u64,
    /// In the pool, or in the class before JDK 16.
    pub file_in_pool: Option<u64>,
    pub file_in_class: Option<u64>,
    pub class_name: u64,
    pub symbol_length: u64,
    pub symbol_body: u64,
}

impl Offsets {
    /// `None` for versions that are not understood. `major` is the version's number.
    pub(super) fn of(structs: &Structs, major: u32) -> Option<Offsets> {
        let either = |names: [&str; 2]| names.iter().find_map(|name| structs.offset(name));
        Some(Offsets {
            heaps: Heaps {
                list: structs.address("CodeCache._heaps")?,
                list_length: either(["GrowableArrayBase._len", "GenericGrowableArray._len"])?,
                list_data: structs.offset("GrowableArray<int>._data")?,
                memory: structs.offset("CodeHeap._memory")?,
                segments: structs.offset("CodeHeap._segmap")?,
                log2_segment_bytes: structs.offset("CodeHeap._log2_segment_size")?,
                low: structs.offset("VirtualSpace._low")?,
                high: structs.offset("VirtualSpace._high")?,
                header_bytes: structs.size("HeapBlock")?,
                is_used: structs.offset("HeapBlock::Header._used")?,
                block_length: structs.offset("HeapBlock::Header._length")?,
            },
            blob: Blob::of(structs)?,
            compiled: Compiled::of(structs)?,
            method: Method {
                constant: structs.offset("Method._constMethod")?,
                access: structs.offset("Method._access_flags")?,
                pool: structs.offset("ConstMethod._constants")?,
                constant_words: structs.offset("ConstMethod._constMethod_size")?,
                constant_bytes: structs.size("ConstMethod")?,
                flags: either(["ConstMethod._flags", "ConstMethod._flags._flags"])?,
                code_bytes: structs.offset("ConstMethod._code_size")?,
                name: structs.offset("ConstMethod._name_index")?,
                holder: structs.offset("ConstantPool._pool_holder")?,
                pool_bytes: structs.size("ConstantPool")?,
                file_in_pool: structs.offset("ConstantPool._source_file_name_index"),
                file_in_class: structs.offset("InstanceKlass._source_file_name_index"),
                class_name: structs.offset("Klass._name")?,
                symbol_length: structs.offset("Symbol._length")?,
                symbol_body: either(["Symbol._body", "Symbol._body[0]"])?,
            },
            interpreter: structs.address("AbstractInterpreter._code")?,
            queue_start: structs.offset("StubQueue._stub_buffer")?,
            queue_bytes: structs.offset("StubQueue._buffer_limit")?,
            call_stub_return: structs.address("StubRoutines._call_stub_return_address")?,
            continuation_return: structs.address("ContinuationEntry._return_pc"),
            excludes_zero: major >= 20,
        })
    }
}

impl Blob {
    fn of(structs: &Structs) -> Option<Blob> {
        let begin = structs.offset("CodeBlob._code_begin").map(Place::Address);
        let offset = structs.offset("CodeBlob._code_offset").map(Place::Distance);
        Some(Blob {
            name: structs.offset("CodeBlob._name")?,
            size: structs.offset("CodeBlob._size")?,
            frame_complete: structs.offset("CodeBlob._frame_complete_offset")?,
            // Shortened together with the begin of the code.
            is_frame_complete_short: begin.is_none(),
            frame_words: structs.offset("CodeBlob._frame_size")?,
            code: begin.or(offset)?,
        })
    }
}

impl Compiled {
    fn of(structs: &Structs) -> Option<Compiled> {
        let field = |name: &str| structs.offset(&format!("nmethod.{name}"));
        let older = |name: &str| structs.offset(&format!("CompiledMethod.{name}"));
        let constant = field("_immutable_data");
        let place = |name: &str| {
            let at = field(name)?;
            Some(constant.map_or(Place::Distance(at), |data| Place::Behind(data, at)))
        };
        let handler = |new: &str, old: &str| {
            let new = field(new).map(Place::Distance);
            new.or(older(old).map(Place::Address))
        };
        let scopes = older("_scopes_data_begin").map(Place::Address);
        let scopes = scopes.or_else(|| place("_scopes_data_offset"));
        let in_data = || {
            let at = field("_metadata_offset")?;
            let data = structs.offset("CodeBlob._data_offset")?;
            Some(constant.map_or(Place::Distance(at), |_| Place::InData(data, at)))
        };
        let mutable = || {
            let data = structs.offset("CodeBlob._mutable_data")?;
            let behind = structs.offset("CodeBlob._relocation_size")?;
            Some(Place::Behind(data, behind))
        };
        let end = match constant {
            Some(_) => "_scopes_data_offset",
            None => "_dependencies_offset",
        };
        Some(Compiled {
            method: field("_method").or_else(|| older("_method"))?,
            descriptions: place("_scopes_pcs_offset")?,
            descriptions_end: place(end)?,
            scopes: scopes?,
            metadata: mutable().or_else(in_data),
            handlers: [
                handler("_deopt_handler_offset", "_deopt_handler_begin"),
                handler("_deopt_mh_handler_offset", "_deopt_mh_handler_begin"),
            ],
            original: field("_orig_pc_offset"),
        })
    }
}
