//! The tables of a file: strings, functions, locations and mappings, equal ones once.

use std::collections::HashMap;

use super::messages::{Function, Label, Line, Location, Mapping, Profile, ValueType};
use crate::outputs::names;
use crate::profile::{self, Origin};

/// Tables that are filled while samples are made.
pub(super) struct Tables<'a> {
    profile: &'a profile::Profile,
    strings: Vec<String>,
    string_numbers: HashMap<String, i64>,
    functions: Vec<Function>,
    function_numbers: HashMap<(i64, i64), u64>,
    locations: Vec<Location>,
    /// By their functions, from the outermost inwards.
    location_numbers: HashMap<Vec<u32>, u64>,
    mappings: Vec<Mapping>,
    mapping_numbers: HashMap<i64, u64>,
    /// The locations of a stack, by its position.
    stacks: HashMap<u32, Vec<u64>>,
}

impl<'a> Tables<'a> {
    /// Tables with the empty string, and with the program's own mapping: tools show the first one
    /// as that of the profile.
    pub(super) fn new(profile: &'a profile::Profile) -> Tables<'a> {
        let mut tables = Tables {
            profile,
            strings: vec![String::new()],
            string_numbers: HashMap::from([(String::new(), 0)]),
            functions: Vec::new(),
            function_numbers: HashMap::new(),
            locations: Vec::new(),
            location_numbers: HashMap::new(),
            mappings: Vec::new(),
            mapping_numbers: HashMap::new(),
            stacks: HashMap::new(),
        };
        let program = profile.command.first().map_or("", String::as_str);
        let program = program.rsplit('/').next().unwrap_or_default();
        let is_own = |it: &&profile::Function| {
            it.origin == Origin::Native && it.module.as_deref() == Some(program)
        };
        if let Some(own) = profile.functions.iter().find(is_own) {
            tables.mapping(own);
        }
        tables
    }

    pub(super) fn string(&mut self, text: &str) -> i64 {
        if let Some(&number) = self.string_numbers.get(text) {
            return number;
        }
        let number = self.strings.len() as i64;
        self.strings.push(text.into());
        self.string_numbers.insert(text.into(), number);
        number
    }

    pub(super) fn value_type(&mut self, name: &str, unit: &str) -> ValueType {
        ValueType {
            r#type: self.string(name),
            unit: self.string(unit),
        }
    }

    pub(super) fn label(&mut self, key: &str, text: &str) -> Label {
        Label {
            key: self.string(key),
            str: self.string(text),
            ..Label::default()
        }
    }

    /// Returns a stack's locations, the innermost first.
    pub(super) fn locations(&mut self, stack: u32) -> Vec<u64> {
        if let Some(known) = self.stacks.get(&stack) {
            return known.clone();
        }
        let profile = self.profile;
        let functions = profile.stacks.get(stack as usize);
        let functions = functions.map_or(&[][..], |it| it).iter().copied();
        let functions = functions.filter(|&function| (function as usize) < profile.functions.len());
        let functions: Vec<u32> = functions.collect();
        let is_inlined = |function: u32| profile.functions[function as usize].is_inlined;
        let frames = functions.chunk_by(|_, &next| is_inlined(next));
        let mut locations: Vec<u64> = frames.map(|frame| self.location(frame)).collect();
        locations.reverse();
        self.stacks.insert(stack, locations.clone());
        locations
    }

    /// Returns the location of a function with those that are inlined in it.
    fn location(&mut self, frame: &[u32]) -> u64 {
        if let Some(&number) = self.location_numbers.get(frame) {
            return number;
        }
        let functions = frame.iter().map(|&it| &self.profile.functions[it as usize]);
        let functions: Vec<&profile::Function> = functions.collect();
        let lines = functions.iter().rev().map(|function| Line {
            function_id: self.function(function),
            line: function.line.map_or(0, i64::from),
        });
        let line = lines.collect();
        let number = self.locations.len() as u64 + 1;
        let mapping_id = self.mapping(functions[0]);
        self.locations.push(Location {
            id: number,
            mapping_id,
            address: 0,
            line,
        });
        self.location_numbers.insert(frame.to_vec(), number);
        number
    }

    fn function(&mut self, function: &profile::Function) -> u64 {
        let name = self.string(&names::function(function));
        let file = function.file.as_deref().map(names::plain);
        let filename = self.string(&file.unwrap_or_default());
        let next = self.functions.len() as u64 + 1;
        let functions = &mut self.functions;
        *self
            .function_numbers
            .entry((name, filename))
            .or_insert_with(|| {
                functions.push(Function {
                    id: next,
                    name,
                    system_name: name,
                    filename,
                });
                next
            })
    }

    /// Returns the mapping of a function; 0 for none.
    fn mapping(&mut self, function: &profile::Function) -> u64 {
        let Some(filename) = module(function) else {
            return 0;
        };
        let filename = self.string(&filename);
        let next = self.mappings.len() as u64 + 1;
        let mappings = &mut self.mappings;
        *self.mapping_numbers.entry(filename).or_insert_with(|| {
            mappings.push(Mapping {
                id: next,
                filename,
                has_functions: true,
                has_filenames: true,
                has_line_numbers: true,
                has_inline_frames: true,
            });
            next
        })
    }

    pub(super) fn finish(self, message: &mut Profile) {
        message.string_table = self.strings;
        message.function = self.functions;
        message.location = self.locations;
        message.mapping = self.mappings;
    }
}

/// The mapping's name of functions that are in no file.
const ORIGINS: [(Origin, &str); 5] = [
    (Origin::Python, "[python]"),
    (Origin::Java, "[java]"),
    (Origin::Mapped, "[jit]"),
    (Origin::Kernel, "[kernel]"),
    (Origin::Note, "[note]"),
];

/// Returns the name of a function's mapping.
fn module(function: &profile::Function) -> Option<String> {
    match ORIGINS.iter().find(|it| it.0 == function.origin) {
        Some((_, name)) => Some((*name).into()),
        None => function.module.as_deref().map(names::plain),
    }
}

/// Returns what a mapping's name says of its functions.
pub(super) fn origin(mapping: &str) -> Origin {
    let special = ORIGINS.iter().find(|it| it.1 == mapping);
    special.map_or(Origin::Native, |it| it.0)
}
