//! Names of static variables, by their addresses.

use std::collections::HashMap;

use crate::memory::Memory;
use crate::modules::{Module, Modules};
use crate::names::{demangled, table};

/// The most files of which variables are read.
const FILES_MAX: usize = 64;

/// The variables of a process's files, as far as they were needed.
pub struct Variables<'a> {
    memory: &'a dyn Memory,
    modules: &'a Modules,
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
            files: HashMap::new(),
        }
    }

    /// Returns `lock_a` for the address of that variable, `table+0x40` inside of one, and with it
    /// the file's name. `None` for memory that is no static variable with a name.
    pub fn name(&mut self, address: u64) -> Option<String> {
        let number = self.modules.data_at(address)?;
        let module = self.modules.modules.get(number)?;
        let image = self.modules.image(module, self.memory)?;
        let offset = address.wrapping_sub(image.bias);
        if !self.files.contains_key(&number) {
            if self.files.len() == FILES_MAX {
                return None;
            }
            let variables = read(module, image.build_id.as_deref());
            self.files.insert(number, variables);
        }
        let variables = self.files.get(&number)?;
        let after = variables.partition_point(|it| it.start <= offset);
        let variable = variables.get(after.checked_sub(1)?)?;
        let within = offset - variable.start;
        let name = demangled(&variable.name);
        (within < variable.size.max(1)).then(|| match within {
            0 => name,
            within => format!("{name}+{within:#x}"),
        })
    }
}

/// Reads the variables, if the module's path leads to the file that the process has mapped.
fn read(module: &Module, build_id: Option<&[u8]>) -> Vec<Variable> {
    let is_file = std::fs::metadata(&module.file).is_ok_and(|it| it.is_file());
    let found = is_file.then(|| table::build_id(&module.file)).flatten();
    let is_same = match (found, build_id) {
        (Some(Some(found)), Some(mapped)) => *found == *mapped,
        (Some(None), None) => !module.is_deleted,
        _ => false,
    };
    let variables = is_same.then(|| table::variables(&module.file)).flatten();
    let of = |(start, size, name)| Variable { start, size, name };
    variables.unwrap_or_default().into_iter().map(of).collect()
}
