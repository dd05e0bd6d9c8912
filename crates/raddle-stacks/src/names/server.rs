//! The child's end: it limits itself, reads files, and answers until its input ends.

use std::collections::HashMap;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use blazesym::helper::read_elf_build_id;
use blazesym::symbolize::source::{Elf, Source as Place};
use blazesym::symbolize::{CodeInfo, Input, Sym, Symbolized, Symbolizer};
use rustix::process::{Resource, Rlimit, setrlimit};
use rustix::time::{ClockId, clock_gettime};

use super::stubs::Stubs;
use super::table::{Table, VDSO};
use super::{Answer, Function, Question, Source, receive, send};

/// The most private memory: the debug information of large programs, unpacked, needs some hundred
/// MiB.
const DATA_BYTES: u64 = 768 << 20;
/// The most addresses, files that are mapped included.
const ADDRESS_BYTES: u64 = 16 << 30;
/// The most CPU time for an answer.
const ANSWER_CPU_S: u64 = 5;
/// The most bytes of a name or a path.
const TEXT_MAX: usize = 4096;
/// The most inlined functions at one address.
const INLINED_MAX: usize = 256;

/// The most files of which stubs are kept.
const FILES_MAX: usize = 64;

/// The stubs of files with these build-ids.
type Known = HashMap<(PathBuf, Option<Vec<u8>>), Stubs>;

/// Answers questions from the standard input, a socket, until its end.
///
/// # Errors
/// If the input is no such socket, or no question can be read.
pub fn serve_names() -> io::Result<()> {
    let input = io::stdin();
    let mut socket = UnixStream::from(input.as_fd().try_clone_to_owned()?);
    socket.peer_addr()?;
    limit(Resource::Core, 0)?;
    limit(Resource::Data, DATA_BYTES)?;
    limit(Resource::As, ADDRESS_BYTES)?;
    let symbolizer = Symbolizer::builder().enable_auto_reload(false).build();
    let mut known = Known::new();
    loop {
        let question: Question = match receive(&mut socket) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            question => question?,
        };
        let used_s = clock_gettime(ClockId::ProcessCPUTime).tv_sec.unsigned_abs();
        limit(Resource::Cpu, used_s + ANSWER_CPU_S)?;
        send(&mut socket, &answer(&symbolizer, &mut known, &question))?;
    }
}

/// Sets what is in effect, and leaves the most that may be set.
fn limit(resource: Resource, most: u64) -> io::Result<()> {
    let old = rustix::process::getrlimit(resource);
    let most = old.maximum.map_or(most, |maximum| most.min(maximum));
    let new = Rlimit {
        current: Some(most),
        maximum: old.maximum,
    };
    Ok(setrlimit(resource, new)?)
}

fn answer(symbolizer: &Symbolizer, known: &mut Known, question: &Question) -> Answer {
    let file = &question.file;
    if !is_same(question) {
        return vec![Vec::new(); question.offsets.len()];
    }
    if question.file.ends_with(VDSO) {
        let table = Table::of_vdso();
        let offsets = question.offsets.iter();
        return offsets
            .map(|&offset| table.function(offset).into_iter().collect())
            .collect();
    }
    if known.len() == FILES_MAX {
        known.clear();
    }
    let of = (file.clone(), question.build_id.clone());
    let stubs = known.entry(of).or_insert_with(|| Stubs::of(file));
    let mut table = None;
    let mut from_table = |offset| {
        let table = table.get_or_insert_with(|| Table::of(file).unwrap_or_default());
        table.function(offset).into_iter().collect()
    };
    let everything = |offset| functions(symbolizer, file, offset);
    let offsets = question.offsets.iter();
    let functions = offsets.map(|&offset| match question.source {
        // The nearest symbol before is another section's.
        _ if stubs.has(offset) => stubs.function(offset).into_iter().collect(),
        Source::Everything => everything(offset).unwrap_or_else(|| from_table(offset)),
        Source::SymbolTable => from_table(offset),
    });
    functions.collect()
}

/// Returns true if the path leads to the file that the process has mapped.
fn is_same(question: &Question) -> bool {
    if question.file.ends_with(VDSO) {
        let own = Table::build_id_of_vdso();
        return own.is_some() && own == question.build_id;
    }
    let is_file = std::fs::metadata(&question.file).is_ok_and(|it| it.is_file());
    let found = match question.source {
        _ if !is_file => return false,
        Source::Everything => read_elf_build_id(&question.file)
            .ok()
            .map(|id| id.map(|id| id.to_vec())),
        Source::SymbolTable => super::table::build_id(&question.file),
    };
    match (found, &question.build_id) {
        (Some(Some(found)), Some(mapped)) => found == *mapped,
        (Some(None), None) => !question.is_deleted,
        _ => false,
    }
}

/// `None` if the debug information can't be read.
fn functions(symbolizer: &Symbolizer, file: &Path, offset: u64) -> Option<Vec<Function>> {
    let place = Place::Elf(Elf::new(file));
    match symbolizer.symbolize_single(&place, Input::VirtOffset(offset)) {
        Ok(Symbolized::Sym(symbol)) => Some(expand(&symbol)),
        Ok(_) => Some(Vec::new()),
        Err(_) => None,
    }
}

/// Returns the name as the source has it. A name of C's is that already, though the demangler of
/// C++ takes `f` for the type `float`.
pub(crate) fn demangled(name: &str) -> String {
    if !name.starts_with("_Z") && !name.starts_with("_R") {
        return cut(name.to_owned());
    }
    if let Ok(rust) = rustc_demangle::try_demangle(name) {
        return cut(format!("{rust:#}"));
    }
    let symbol = cpp_demangle::Symbol::new(name).ok();
    let demangled = symbol.and_then(|symbol| symbol.demangle().ok());
    cut(demangled.unwrap_or_else(|| name.to_owned()))
}

fn cut(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(TEXT_MAX));
    text
}

/// Returns the functions from the inside out. A position in the source belongs to the innermost
/// function; that of an inlined function's call belongs to its caller.
fn expand(symbol: &Sym<'_>) -> Vec<Function> {
    let named = |name: &str, position: Option<&CodeInfo<'_>>, is_inlined| Function {
        name: demangled(name),
        file: position.map(|it| cut(it.to_path().to_string_lossy().into_owned())),
        line: position.and_then(|it| it.line),
        is_inlined,
    };
    // Positions from the outside in: that in the function itself, then in each inlined one.
    let inner = symbol.inlined.iter().take(INLINED_MAX);
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
    use super::{TEXT_MAX, demangled};

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

    #[test]
    fn names_have_a_limit() {
        assert_eq!(demangled(&"é".repeat(TEXT_MAX)).len(), TEXT_MAX);
    }
}
