//! The table in which HotSpot says where the fields of its own structures are, for debuggers. It is
//! exported as `gHotSpotVMStructs` and the like, by all versions and builds.

use std::collections::HashMap;

use crate::elf::u64_at;
use crate::exports::Exports;
use crate::memory::Memory;

/// The most entries of a table.
const ENTRIES_MAX: u64 = 1 << 14;
/// The most bytes of an entry, and of a name.
const ENTRY_BYTES_MAX: u64 = 256;
const NAME_BYTES_MAX: usize = 96;
/// How many entries are read at once.
const PIECE: u64 = 64;

/// Fields and types that are understood, by their names.
#[derive(Default)]
pub(super) struct Structs {
    fields: HashMap<String, Field>,
    sizes: HashMap<String, u64>,
}

#[derive(Clone, Copy)]
struct Field {
    offset: u64,
    /// Where a static one is, or 0.
    address: u64,
}

/// The types of which fields are kept.
const TYPES: [&str; 21] = [
    "AbstractInterpreter",
    "Abstract_VM_Version",
    "CodeBlob",
    "CodeCache",
    "CodeHeap",
    "CompiledMethod",
    "ConstMethod",
    "ConstantPool",
    "ContinuationEntry",
    "GenericGrowableArray",
    "GrowableArray<int>",
    "GrowableArrayBase",
    "HeapBlock",
    "HeapBlock::Header",
    "InstanceKlass",
    "JVMFlag",
    "Klass",
    "Method",
    "StubQueue",
    "StubRoutines",
    "Symbol",
];
const MORE_TYPES: [&str; 2] = ["VirtualSpace", "nmethod"];
/// Those of threads, objects and monitors.
const MONITOR_TYPES: [&str; 13] = [
    "CollectedHeap",
    "CompressedKlassPointers",
    "CompressedOops",
    "JavaThread",
    "LockStack",
    "OSThread",
    "ObjectMonitor",
    "Thread",
    "Threads",
    "ThreadsList",
    "ThreadsSMRSupport",
    "Universe",
    "oopDesc",
];

/// What a table is read with.
struct Reader<'a> {
    memory: &'a dyn Memory,
    exports: &'a Exports<'a>,
    /// Names by their addresses: a type has one for all its fields.
    names: HashMap<u64, String>,
}

impl Structs {
    /// Reads the tables of the library with these exports.
    pub(super) fn of(memory: &dyn Memory, exports: &Exports<'_>) -> Option<Structs> {
        let mut reader = Reader {
            memory,
            exports,
            names: HashMap::new(),
        };
        let mut structs = Structs::default();
        reader.fields(&mut structs)?;
        reader.sizes(&mut structs)?;
        Some(structs)
    }

    /// Returns where a field is in its structure.
    pub(super) fn offset(&self, name: &str) -> Option<u64> {
        let field = self.fields.get(name)?;
        // No structure of the virtual machine is larger.
        (field.offset < 1 << 16).then_some(field.offset)
    }

    /// Returns where a static field is.
    pub(super) fn address(&self, name: &str) -> Option<u64> {
        let field = self.fields.get(name)?;
        (field.address != 0).then_some(field.address)
    }

    /// Returns the size of a type.
    pub(super) fn size(&self, name: &str) -> Option<u64> {
        self.sizes.get(name).copied().filter(|&size| size < 1 << 16)
    }
}

impl Reader<'_> {
    fn variable(&self, name: &str) -> Option<u64> {
        self.memory.word(self.exports.find(name)?.address)
    }

    fn fields(&mut self, to: &mut Structs) -> Option<()> {
        let place = |end: &str| format!("gHotSpotVMStructEntry{end}Offset");
        let type_name = self.variable(&place("TypeName"))?;
        let field_name = self.variable(&place("FieldName"))?;
        let offset = self.variable(&place("Offset"))?;
        let address = self.variable(&place("Address"))?;
        let places = [type_name, field_name, offset, address];
        let (table, stride) = ("gHotSpotVMStructs", "gHotSpotVMStructEntryArrayStride");
        self.each(
            table,
            stride,
            places,
            |reader, [name, field, offset, address]| {
                let name = reader.name(name)?;
                let all = [&TYPES[..], &MORE_TYPES, &MONITOR_TYPES];
                if all.iter().any(|types| types.contains(&name.as_str())) {
                    let field = reader.name(field)?;
                    let known = Field { offset, address };
                    to.fields.insert(format!("{name}.{field}"), known);
                }
                Some(())
            },
        )
    }

    fn sizes(&mut self, to: &mut Structs) -> Option<()> {
        let name = self.variable("gHotSpotVMTypeEntryTypeNameOffset")?;
        let size = self.variable("gHotSpotVMTypeEntrySizeOffset")?;
        let (table, stride) = ("gHotSpotVMTypes", "gHotSpotVMTypeEntryArrayStride");
        self.each(
            table,
            stride,
            [name, size, name, name],
            |reader, [name, size, ..]| {
                let name = reader.name(name)?;
                if TYPES.contains(&name.as_str()) {
                    to.sizes.insert(name, size);
                }
                Some(())
            },
        )
    }

    /// Calls `each` with the words at these places of each entry, up to one without a first word.
    fn each(
        &mut self,
        table: &str,
        stride: &str,
        places: [u64; 4],
        mut each: impl FnMut(&mut Self, [u64; 4]) -> Option<()>,
    ) -> Option<()> {
        let start = self.variable(table)?;
        let stride = self.variable(stride)?;
        let is_inside = |place: &u64| place.checked_add(8).is_some_and(|end| end <= stride);
        if stride > ENTRY_BYTES_MAX || !places.iter().all(is_inside) {
            return None;
        }
        let mut bytes = vec![0; (PIECE * stride) as usize];
        for piece in 0..ENTRIES_MAX / PIECE {
            let from = start.checked_add(piece * PIECE * stride)?;
            let got = self.memory.read(from, &mut bytes);
            for entry in bytes[..got].chunks_exact(stride as usize) {
                let mut words = [0; 4];
                for (word, place) in words.iter_mut().zip(places) {
                    *word = u64_at(entry, place as usize)?;
                }
                if words[0] == 0 {
                    return Some(());
                }
                // A name that can't be read is that of no wanted entry.
                let _ = each(self, words);
            }
            if got < bytes.len() {
                return None;
            }
        }
        None
    }

    fn name(&mut self, address: u64) -> Option<String> {
        if let Some(name) = self.names.get(&address) {
            return Some(name.clone());
        }
        let name = text(self.memory, address)?;
        self.names.insert(address, name.clone());
        Some(name)
    }
}

/// Reads a text of C.
pub(super) fn text(memory: &dyn Memory, address: u64) -> Option<String> {
    let mut bytes = [0; NAME_BYTES_MAX];
    let got = memory.read(address, &mut bytes);
    let end = bytes[..got].iter().position(|&byte| byte == 0)?;
    std::str::from_utf8(&bytes[..end]).ok().map(str::to_owned)
}
