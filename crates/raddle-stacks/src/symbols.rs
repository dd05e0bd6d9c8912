//! Names, lines and inlined functions of code, each looked up once.

use std::collections::{BTreeSet, HashMap};
use std::process::Command;
use std::rc::Rc;
use std::time::{Duration, Instant};

use crate::exports::Exports;
use crate::memory::Memory;
use crate::modules::Modules;
use crate::names::{Answer, Function, Question, Reader, Source};
use crate::perf_map::cure;
use crate::unwind::Frame;

/// The most names that are kept.
const NAMES_MAX: usize = 1 << 18;
/// The most addresses of one question.
const QUESTION_MAX: usize = 1 << 12;
/// After this time for names, only symbol tables are read.
const PATIENCE: Duration = Duration::from_secs(30);

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

/// What names are read with. Of several [`Symbols`], one after another, each needs less time with
/// that of the one before.
pub struct NameReader {
    reader: Reader,
    /// The time that questions took.
    spent: Duration,
}

impl Default for NameReader {
    fn default() -> NameReader {
        NameReader {
            reader: Reader::new(),
            spent: Duration::ZERO,
        }
    }
}

/// The names of a process's code.
pub struct Symbols<'a> {
    memory: &'a dyn Memory,
    modules: &'a Modules,
    reader: NameReader,
    /// Where names of modules come from, by their positions; `None` for modules that can't be read
    /// at all. Those that aren't here are read whole.
    sources: HashMap<usize, Option<Source>>,
    kept: HashMap<u64, Rc<Named>>,
    /// What is said of code that is no file's, once it was asked for.
    remark: Option<&'static str>,
    /// What the file that was asked for last exports, with its start.
    exports: Option<(u64, Option<Exports<'a>>)>,
}

impl<'a> Symbols<'a> {
    /// Names are read by a child, which is this executable with the argument
    /// [`SERVE_NAMES`](crate::SERVE_NAMES).
    pub fn new(memory: &'a dyn Memory, modules: &'a Modules) -> Symbols<'a> {
        Symbols::with(NameReader::default(), memory, modules)
    }

    /// As [`Symbols::new`]; the command starts the child, which calls
    /// [`serve_names`](crate::serve_names).
    pub fn read_by(
        command: impl Fn() -> Command + 'static,
        memory: &'a dyn Memory,
        modules: &'a Modules,
    ) -> Symbols<'a> {
        let reader = NameReader {
            reader: Reader::started_by(command),
            ..NameReader::default()
        };
        Symbols::with(reader, memory, modules)
    }

    /// As [`Symbols::new`], with what names were read with before.
    pub fn with(reader: NameReader, memory: &'a dyn Memory, modules: &'a Modules) -> Symbols<'a> {
        Symbols {
            memory,
            modules,
            reader,
            sources: HashMap::new(),
            kept: HashMap::new(),
            remark: None,
            exports: None,
        }
    }

    /// Returns what the names were read with.
    pub fn into_reader(self) -> NameReader {
        self.reader
    }

    /// Returns true if a frame is in a function that the file which is mapped from `start` on
    /// exports.
    pub fn is_exported(&mut self, start: u64, frame: &Frame) -> bool {
        let named = self.name(frame);
        let Some(function) = named.functions.last() else {
            return false;
        };
        let memory = self.memory;
        let known = self.exports.take().filter(|(of, _)| *of == start);
        let (_, exports) = known.unwrap_or_else(|| (start, Exports::of(memory, start)));
        let is_inside = match &exports {
            Some(exports) => exports.find(&function.name).is_some_and(|it| {
                let within = frame.inside().checked_sub(it.address);
                within.is_some_and(|within| within < it.size)
            }),
            // The process has ended. Rust's functions have a path in their names, and the runtime's
            // own functions for C begin with its name.
            None => !function.name.contains("::") && !function.name.starts_with("raddle"),
        };
        self.exports = Some((start, exports));
        is_inside
    }

    /// Looks up the names of frames, those of a file together. [`Symbols::name`] is the same for
    /// one frame, and slower.
    pub fn prepare<'f>(&mut self, frames: impl IntoIterator<Item = &'f Frame>) {
        let frames = frames.into_iter().map(Frame::inside);
        let addresses: BTreeSet<u64> = frames
            .filter(|address| !self.kept.contains_key(address))
            .collect();
        let mut of_modules: HashMap<usize, Vec<u64>> = HashMap::new();
        for address in addresses {
            if self.modules.is_code(address) && !self.modules.has_file(address) {
                let module = self.modules.at(address);
                let named = Named {
                    module: module.map(|module| module.name().to_owned()),
                    offset: module.map_or(0, |module| address.wrapping_sub(module.start())),
                    remark: Some(*self.remark.get_or_insert_with(|| cure(self.modules))),
                    ..Named::default()
                };
                self.keep(address, named);
                continue;
            }
            match self.modules.find(address) {
                Some(Some(module)) => of_modules.entry(module).or_default().push(address),
                _ => self.keep(address, Named::default()),
            }
        }
        for (module, addresses) in of_modules {
            for addresses in addresses.chunks(QUESTION_MAX) {
                self.look_up(module, addresses);
            }
        }
    }

    /// Names a frame.
    pub fn name(&mut self, frame: &Frame) -> Rc<Named> {
        let address = frame.inside();
        if !self.kept.contains_key(&address) {
            self.prepare([frame]);
        }
        self.kept.get(&address).cloned().unwrap_or_default()
    }

    /// Returns one sentence on the files that have fewer names than they should, if there are any.
    pub fn shortcoming(&self) -> Option<String> {
        let mut names: Vec<&str> = self
            .sources
            .keys()
            .filter_map(|&index| Some(self.modules.modules.get(index)?.name()))
            .collect();
        names.sort_unstable();
        names.dedup();
        (!names.is_empty()).then(|| {
            format!(
                "some names and lines are missing, because the debug information of these files \
                 could not be read in time and memory: {}",
                names.join(", ")
            )
        })
    }

    fn keep(&mut self, address: u64, named: Named) {
        if self.kept.len() == NAMES_MAX {
            self.kept.clear();
        }
        self.kept.insert(address, Rc::new(named));
    }

    /// Looks up addresses of one module.
    fn look_up(&mut self, index: usize, addresses: &[u64]) {
        let Some(module) = self.modules.modules.get(index) else {
            return;
        };
        let Some(image) = self.modules.image(module, self.memory) else {
            for &address in addresses {
                self.keep(address, Named::default());
            }
            return;
        };
        let offset = |address: u64| address.wrapping_sub(image.bias);
        let question = Question {
            file: module.readable(),
            build_id: image.build_id.clone(),
            is_deleted: module.is_deleted && !module.is_held(),
            source: Source::Everything,
            offsets: addresses.iter().copied().map(offset).collect(),
        };
        let answer = self.ask(index, question).unwrap_or_default();
        let mut functions = answer.into_iter();
        let digits = |id: &Vec<u8>| id.iter().map(|byte| format!("{byte:02x}")).collect();
        let build_id: Option<String> = image.build_id.as_ref().map(digits);
        for &address in addresses {
            let named = Named {
                functions: functions.next().unwrap_or_default(),
                module: Some(module.name().to_owned()),
                offset: offset(address),
                build_id: build_id.clone(),
                remark: None,
            };
            self.keep(address, named);
        }
    }

    /// Asks for as much as the module's file gives.
    fn ask(&mut self, index: usize, mut question: Question) -> Option<Answer> {
        let is_late = self.reader.spent >= PATIENCE;
        let wanted = match self.sources.get(&index) {
            None if is_late => Some(Source::SymbolTable),
            None => Some(Source::Everything),
            Some(known) => *known,
        };
        let begun = Instant::now();
        let tries: &[Source] = match wanted {
            Some(Source::Everything) => &[Source::Everything, Source::SymbolTable],
            Some(Source::SymbolTable) => &[Source::SymbolTable],
            None => &[],
        };
        let mut found = None;
        for &source in tries {
            question.source = source;
            found = self.reader.reader.ask(&question);
            if found.is_some() {
                break;
            }
        }
        if question.source != Source::Everything {
            let source = found.is_some().then_some(question.source);
            self.sources.insert(index, source);
        }
        self.reader.spent += begun.elapsed();
        found
    }
}
