//! Names of static variables, by their addresses.

use std::collections::HashMap;
use std::ops::ControlFlow;

use blazesym::SymType;
use blazesym::inspect::Inspector;
use blazesym::inspect::source::{Elf, Source};

use crate::memory::Memory;
use crate::modules::Modules;
use crate::symbols::Symbols;

/// The most variables of one file that are kept.
const VARIABLES_MAX: usize = 1 << 18;
/// The most files of which variables are read.
const FILES_MAX: usize = 64;

/// The variables of a process's files, as far as they were needed.
pub struct Variables<'a> {
    memory: &'a dyn Memory,
    modules: &'a Modules,
    inspector: Inspector,
    files: HashMap<usize, Vec<Variable>>,
}

/// A variable, by its address in the file's own terms.
struct Variable {
    start: u64,
    size: u64,
    name: String,
}

impl<'a> Variables<'a> {
    pub fn new(memory: &'a dyn Memory, modules: &'a Modules) -> Variables<'a> {
        Variables {
            memory,
            modules,
            inspector: Inspector::new(),
            files: HashMap::new(),
        }
    }

    /// Returns `lock_a` for the address of that variable, `table+0x40` inside of one, and with it
    /// the file's name. `None` for memory that is no static variable with a name.
    pub fn name(&mut self, address: u64, symbols: &mut Symbols<'_>) -> Option<String> {
        let number = self.modules.data_at(address)?;
        let module = self.modules.modules.get(number)?;
        let image = self.modules.image(module, self.memory)?;
        let offset = address.wrapping_sub(image.bias);
        if !self.files.contains_key(&number) {
            if self.files.len() == FILES_MAX {
                return None;
            }
            let is_same = symbols.is_same(module, image.build_id.as_deref());
            let variables = if is_same {
                self.read(&module.file)
            } else {
                Vec::new()
            };
            self.files.insert(number, variables);
        }
        let variables = self.files.get(&number)?;
        let after = variables.partition_point(|it| it.start <= offset);
        let variable = variables.get(after.checked_sub(1)?)?;
        let within = offset - variable.start;
        (within < variable.size.max(1)).then(|| match within {
            0 => variable.name.clone(),
            within => format!("{}+{within:#x}", variable.name),
        })
    }

    fn read(&self, file: &std::path::Path) -> Vec<Variable> {
        let mut variables = Vec::new();
        let mut elf = Elf::new(file);
        elf.debug_syms = false; // those have functions only
        let source = Source::Elf(elf);
        let read = self.inspector.for_each(&source, |symbol| {
            if symbol.sym_type == SymType::Variable {
                variables.push(Variable {
                    start: symbol.addr,
                    size: symbol.size.unwrap_or(0) as u64,
                    name: crate::symbols::demangled(&symbol.name),
                });
            }
            if variables.len() < VARIABLES_MAX {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        });
        if read.is_err() {
            variables.clear();
        }
        variables.sort_by_key(|it| it.start);
        variables
    }
}
