//! Names, lines and inlined functions of code, each looked up once.

use std::collections::HashMap;
use std::path::Path;
use std::rc::Rc;

use blazesym::helper::read_elf_build_id;
use blazesym::symbolize::source::{Elf, Source};
use blazesym::symbolize::{CodeInfo, Input, Sym, Symbolized, Symbolizer};

use crate::memory::Memory;
use crate::modules::{Module, Modules};
use crate::perf_map::cure;
use crate::unwind::Frame;

/// The most names that are kept.
const NAMES_MAX: usize = 1 << 18;

/// What is known of an address of code.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Named {
    /// The functions there, the innermost inlined one first; empty without a symbol.
    pub functions: Vec<Function>,
    /// The last part of the file's path.
    pub module: Option<String>,
    /// The address in the file's own terms.
    pub offset: u64,
    /// As hexadecimal digits.
    pub build_id: Option<String>,
    /// What is known of code that is no file's.
    pub remark: Option<&'static str>,
}

/// A function at an address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Function {
    pub name: String,
    /// The source file and the line that is executed, or calls the function before this one.
    pub file: Option<String>,
    pub line: Option<u32>,
    /// True if it has no frame of its own.
    pub is_inlined: bool,
}

/// The names of a process's code.
pub struct Symbols<'a> {
    memory: &'a dyn Memory,
    modules: &'a Modules,
    symbolizer: Symbolizer,
    /// Whether the file that can be opened is the one that is mapped, by module.
    is_same: HashMap<*const Module, bool>,
    kept: HashMap<u64, Rc<Named>>,
    /// What is said of code that is no file's, once it was asked for.
    remark: Option<&'static str>,
}

impl<'a> Symbols<'a> {
    pub fn new(memory: &'a dyn Memory, modules: &'a Modules) -> Symbols<'a> {
        let builder = Symbolizer::builder();
        Symbols {
            memory,
            modules,
            symbolizer: builder.enable_auto_reload(false).build(),
            is_same: HashMap::new(),
            kept: HashMap::new(),
            remark: None,
        }
    }

    /// Names a frame.
    pub fn name(&mut self, frame: &Frame) -> Rc<Named> {
        let address = frame.inside();
        if let Some(named) = self.kept.get(&address) {
            return named.clone();
        }
        if self.kept.len() == NAMES_MAX {
            self.kept.clear();
        }
        let named = Rc::new(self.find(address).unwrap_or_default());
        self.kept.insert(address, named.clone());
        named
    }

    fn find(&mut self, address: u64) -> Option<Named> {
        if self.modules.is_code(address) && !self.modules.has_file(address) {
            let module = self.modules.at(address);
            return Some(Named {
                module: module.map(|module| module.name().to_owned()),
                offset: module.map_or(0, |module| address.wrapping_sub(module.start())),
                remark: Some(*self.remark.get_or_insert_with(|| cure(self.modules))),
                ..Named::default()
            });
        }
        let module = self.modules.at(address)?;
        let image = self.modules.image(module, self.memory)?;
        let offset = address.wrapping_sub(image.bias);
        let build_id = image.build_id.as_deref();
        let functions = if self.is_same(module, build_id) {
            self.functions(&module.file, offset)
        } else {
            Vec::new()
        };
        Some(Named {
            functions,
            module: Some(module.name().to_owned()),
            offset,
            build_id: build_id.map(|id| id.iter().map(|byte| format!("{byte:02x}")).collect()),
            remark: None,
        })
    }

    /// Returns true if the module's path leads to the file that the process has mapped.
    fn is_same(&mut self, module: &Module, build_id: Option<&[u8]>) -> bool {
        let look = || {
            let is_file = std::fs::metadata(&module.file).is_ok_and(|it| it.is_file());
            let found = is_file
                .then(|| read_elf_build_id(&module.file).ok())
                .flatten();
            match (found, build_id) {
                (Some(Some(found)), Some(mapped)) => *found == *mapped,
                (Some(None), None) => !module.is_deleted,
                _ => false,
            }
        };
        *self
            .is_same
            .entry(std::ptr::from_ref(module))
            .or_insert_with(look)
    }

    fn functions(&self, file: &Path, offset: u64) -> Vec<Function> {
        let source = Source::Elf(Elf::new(file));
        match self
            .symbolizer
            .symbolize_single(&source, Input::VirtOffset(offset))
        {
            Ok(Symbolized::Sym(symbol)) => expand(&symbol),
            _ => Vec::new(),
        }
    }
}

/// Returns the name as the source has it. A name of C's is that already, though the demangler of
/// C++ takes `f` for the type `float`.
fn demangled(name: &str) -> String {
    if !name.starts_with("_Z") && !name.starts_with("_R") {
        return name.to_owned();
    }
    if let Ok(rust) = rustc_demangle::try_demangle(name) {
        return format!("{rust:#}");
    }
    let symbol = cpp_demangle::Symbol::new(name).ok();
    let demangled = symbol.and_then(|symbol| symbol.demangle().ok());
    demangled.unwrap_or_else(|| name.to_owned())
}

/// Returns the functions from the inside out. A position in the source belongs to the innermost
/// function; that of an inlined function's call belongs to its caller.
fn expand(symbol: &Sym<'_>) -> Vec<Function> {
    let named = |name: &str, position: Option<&CodeInfo<'_>>, is_inlined| Function {
        name: demangled(name),
        file: position.map(|it| it.to_path().to_string_lossy().into_owned()),
        line: position.and_then(|it| it.line),
        is_inlined,
    };
    // Positions from the outside in: that in the function itself, then in each inlined one.
    let inner = symbol.inlined.iter();
    let positions = std::iter::once(symbol.code_info.as_deref())
        .chain(inner.clone().map(|it| it.code_info.as_ref()));
    let names = std::iter::once((&*symbol.name, false)).chain(inner.map(|it| (&*it.name, true)));
    let mut functions: Vec<Function> = names
        .zip(positions)
        .map(|((name, is_inlined), position)| named(name, position, is_inlined))
        .collect();
    functions.reverse();
    functions
}

#[cfg(test)]
mod tests {
    use super::demangled;

    #[test]
    fn names_of_c_are_left_alone() {
        for name in ["f", "rd", "St", "Pi", "i", "FvvE", "main"] {
            assert_eq!(demangled(name), name);
        }
    }

    #[test]
    fn names_of_rust_and_cpp_are_readable() {
        assert_eq!(
            demangled("_ZN4core3fmt5write17h0123456789abcdefE"),
            "core::fmt::write"
        );
        assert_eq!(demangled("_ZN3one3twoEi"), "one::two(int)");
        assert_eq!(demangled("_Zbroken"), "_Zbroken");
    }
}
