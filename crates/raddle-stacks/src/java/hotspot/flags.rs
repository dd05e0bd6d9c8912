//! The switches of a virtual machine as they are in its memory: they may come from its command
//! line, from a file or from the environment.

use super::structs::{Structs, text};
use crate::elf::u64_at;
use crate::exports::Exports;
use crate::memory::Memory;
use crate::modules::Modules;

/// The most switches that are read.
const FLAGS_MAX: u64 = 1 << 13;
/// The most bytes that describe one.
const FLAG_BYTES_MAX: u64 = 1 << 8;

/// Returns a switch that is on or off; `None` if the virtual machine has none of this name, or
/// isn't understood.
pub(crate) fn flag(memory: &dyn Memory, modules: &Modules, wanted: &str) -> Option<bool> {
    let mut modules = modules.modules.iter();
    let library = modules.find(|module| module.name() == "libjvm.so")?;
    let structs = Structs::of(memory, &Exports::of(memory, library.start())?)?;
    is_one_on(memory, &structs, &[wanted])
}

/// Returns true if one of some switches is on; `None` if the virtual machine has none of them, or
/// isn't understood.
pub(super) fn is_one_on(memory: &dyn Memory, structs: &Structs, wanted: &[&str]) -> Option<bool> {
    let count = memory.word(structs.address("JVMFlag.numFlags")?)?;
    let start = memory.word(structs.address("JVMFlag.flags")?)?;
    let bytes = structs.size("JVMFlag")?;
    let name = structs.offset("JVMFlag._name")? as usize;
    let value = structs.offset("JVMFlag._addr")? as usize;
    if !(8..=FLAG_BYTES_MAX).contains(&bytes) {
        return None;
    }
    let mut flags = vec![0; (count.min(FLAGS_MAX) * bytes) as usize];
    let got = memory.read(start, &mut flags);
    let flags = flags[..got].chunks_exact(bytes as usize);
    let is_wanted = |flag: &&[u8]| {
        let name = u64_at(flag, name).and_then(|at| text(memory, at));
        name.is_some_and(|it| wanted.contains(&it.as_str()))
    };
    let mut found = None;
    for flag in flags.filter(is_wanted) {
        let mut byte = [0];
        memory.read_all(u64_at(flag, value)?, &mut byte)?;
        found = Some(found == Some(true) || byte[0] != 0);
    }
    found
}
