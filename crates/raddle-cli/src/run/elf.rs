//! What an ELF file says about its process: the machine, the loader, the libc.

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use object::elf::{ELFCLASS32, EM_386, EM_AARCH64, EM_ARM, EM_RISCV, EM_X86_64};
use object::elf::{ET_DYN, FileHeader32, FileHeader64, PT_INTERP, SHT_DYNSYM};
use object::read::elf::{FileHeader, ProgramHeader, SectionHeader, Sym};
use object::{Endianness, ReadCache, ReadRef, StringTable};

/// The oldest glibc with all pthread code in libc.so.6.
pub(crate) const GLIBC_FLOOR: (u32, u32) = (2, 34);

/// The index of the byte in a file's identification that tells 32 from 64 bits.
const CLASS_INDEX: usize = 4;

/// The reason why a program's threads stay kernel threads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Obstacle {
    Static,
    Bits32,
    Machine(String),
    Musl,
    Loader(PathBuf),
    OldGlibc(u32, u32),
    Setuid,
    Capabilities,
    Sanitizer,
    Valgrind,
    Damaged,
}

impl Obstacle {
    /// Returns whether `LD_PRELOAD` may stay as it is. A static program never looks at it, and its
    /// children get green threads. Elsewhere another loader would complain or load a library that
    /// it must not, and a program with more rights than the caller gets no preload.
    pub(crate) fn spares_preload(&self) -> bool {
        matches!(self, Obstacle::Static | Obstacle::Damaged)
    }
}

impl std::fmt::Display for Obstacle {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (major, minor) = GLIBC_FLOOR;
        match self {
            Obstacle::Static => write!(out, "it is linked statically, so nothing can be preloaded"),
            Obstacle::Bits32 => write!(out, "it is a 32-bit program"),
            Obstacle::Machine(name) => write!(out, "it is a program for {name}"),
            Obstacle::Musl => write!(out, "its libc is musl, and green threads need glibc"),
            Obstacle::Loader(path) => {
                write!(out, "its loader {} is not glibc's", path.display())
            }
            Obstacle::OldGlibc(old_major, old_minor) => write!(
                out,
                "its glibc is {old_major}.{old_minor}, and green threads need {major}.{minor}"
            ),
            Obstacle::Setuid => write!(
                out,
                "it runs as another user or group (setuid), and ld.so then preloads nothing"
            ),
            Obstacle::Capabilities => write!(
                out,
                "its file gives it capabilities, and ld.so then preloads nothing"
            ),
            Obstacle::Sanitizer => write!(
                out,
                "it is built with a sanitizer, which must be loaded first and knows kernel threads"
            ),
            Obstacle::Valgrind => write!(out, "valgrind simulates threads by itself"),
            Obstacle::Damaged => write!(out, "its ELF headers make no sense"),
        }
    }
}

/// Returns the file's own obstacle; `None` if there is none, or if the file can't be read (a
/// program can be executable and unreadable: then the runtime inside finds out).
pub(crate) fn obstacle(file: &Path) -> Option<Obstacle> {
    let image = ReadCache::new(File::open(file).ok()?);
    let ident = (&image).read_bytes_at(0, 16).ok()?;
    match ident[CLASS_INDEX] {
        ELFCLASS32 => Some(read_32(&image)),
        _ => match read_64(&image).unwrap_or(Some(Obstacle::Damaged)) {
            // ld.so itself, started with a program as its argument.
            Some(Obstacle::Static) if is_loader(file) => loader_obstacle(file),
            other => other,
        },
    }
}

fn is_loader(file: &Path) -> bool {
    file.file_name()
        .is_some_and(|name| name.as_bytes().starts_with(b"ld-"))
}

/// Returns whether a file can be loaded as a shared object. So can most programs.
pub(crate) fn is_shared_object(file: &Path) -> bool {
    let Ok(file) = File::open(file) else {
        return false;
    };
    let image = ReadCache::new(file);
    let header = FileHeader64::<Endianness>::parse(&image);
    header.is_ok_and(|header| {
        let kind = |endian| (header.e_type.get(endian), header.e_machine.get(endian));
        header
            .endian()
            .is_ok_and(|endian| kind(endian) == (ET_DYN, EM_X86_64))
    })
}

fn read_32(image: &ReadCache<File>) -> Obstacle {
    let header = FileHeader32::<Endianness>::parse(image);
    let machine = header.and_then(|header| Ok(header.e_machine.get(header.endian()?)));
    match machine {
        Ok(machine) if !matches!(machine, EM_386 | EM_X86_64) => {
            Obstacle::Machine(machine_name(machine))
        }
        Ok(_) => Obstacle::Bits32,
        Err(_) => Obstacle::Damaged,
    }
}

fn read_64(image: &ReadCache<File>) -> object::Result<Option<Obstacle>> {
    let header = FileHeader64::<Endianness>::parse(image)?;
    let endian = header.endian()?;
    let machine = header.e_machine.get(endian);
    if machine != EM_X86_64 {
        return Ok(Some(Obstacle::Machine(machine_name(machine))));
    }
    let segments = header.program_headers(endian, image)?;
    let Some(segment) = segments
        .iter()
        .find(|segment| segment.p_type(endian) == PT_INTERP)
    else {
        return Ok(Some(Obstacle::Static));
    };
    if has_sanitizer(header, endian, image).unwrap_or(false) {
        return Ok(Some(Obstacle::Sanitizer));
    }
    let loader = segment.interpreter(endian, image)?.unwrap_or_default();
    Ok(loader_obstacle(Path::new(OsStr::from_bytes(loader))))
}

/// Returns whether a program uses or contains a sanitizer's library: gcc's is a shared one, clang's
/// is part of the program.
fn has_sanitizer(
    header: &FileHeader64<Endianness>,
    endian: Endianness,
    image: &ReadCache<File>,
) -> object::Result<bool> {
    const SANITIZERS: [&[u8]; 5] = [
        b"__asan_init",
        b"__hwasan_init",
        b"__lsan_init",
        b"__msan_init",
        b"__tsan_init",
    ];
    let sections = header.sections(endian, image)?;
    let symbols = sections.symbols(endian, image, SHT_DYNSYM)?;
    if symbols.is_empty() {
        return Ok(false);
    }
    let strings = whole(
        sections
            .section(symbols.string_section())?
            .data(endian, image)?,
    );
    Ok(symbols.iter().any(|symbol| {
        symbol
            .name(endian, strings)
            .is_ok_and(|name| SANITIZERS.contains(&name))
    }))
}

/// Wraps a table of strings that is in memory as a whole. A table in the file costs two system
/// calls for each string, and a large program has thirty thousand.
fn whole(strings: &[u8]) -> StringTable<'_> {
    StringTable::new(strings, 0, strings.len() as u64)
}

fn machine_name(machine: u16) -> String {
    match machine {
        EM_AARCH64 => "aarch64".into(),
        EM_ARM => "arm".into(),
        EM_RISCV => "riscv".into(),
        EM_386 => "i386".into(),
        other => format!("another machine (ELF number {other})"),
    }
}

/// Judges the loader by its name and the libc by the files beside it: glibc installs both there, on
/// every distribution and in every bundle.
fn loader_obstacle(loader: &Path) -> Option<Obstacle> {
    let target = loader
        .canonicalize()
        .unwrap_or_else(|_| loader.to_path_buf());
    let named = |prefix: &str| {
        let starts = |path: &Path| {
            path.file_name()
                .is_some_and(|name| name.as_bytes().starts_with(prefix.as_bytes()))
        };
        starts(loader) || starts(&target)
    };
    if named("ld-musl") {
        return Some(Obstacle::Musl);
    }
    let libc = target.with_file_name("libc.so.6");
    match newest_version(&libc) {
        Some((major, minor)) if (major, minor) < GLIBC_FLOOR => {
            Some(Obstacle::OldGlibc(major, minor))
        }
        Some(_) => None,
        None if named("ld-linux") => None,
        None => Some(Obstacle::Loader(loader.to_path_buf())),
    }
}

/// Returns the newest `GLIBC_x.y` that a libc defines: its release.
fn newest_version(libc: &Path) -> Option<(u32, u32)> {
    let image = ReadCache::new(File::open(libc).ok()?);
    let image = &image;
    let header = FileHeader64::<Endianness>::parse(image).ok()?;
    let endian = header.endian().ok()?;
    let sections = header.sections(endian, image).ok()?;
    let (mut definitions, strings) = sections.gnu_verdef(endian, image).ok()??;
    let strings = whole(sections.section(strings).ok()?.data(endian, image).ok()?);
    let mut newest = None;
    while let Some((_, mut names)) = definitions.next().ok()? {
        if let Some(name) = names.next().ok()? {
            newest = newest.max(version(name.name(endian, strings).ok()?));
        }
    }
    newest
}

/// Parses `GLIBC_2.34` to (2, 34).
fn version(name: &[u8]) -> Option<(u32, u32)> {
    let text = std::str::from_utf8(name).ok()?.strip_prefix("GLIBC_")?;
    let mut parts = text.split('.').map(str::parse);
    let (major, minor) = (parts.next()?.ok()?, parts.next()?.ok()?);
    Some((major, minor))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_compare_by_number_and_others_are_none() {
        assert_eq!(version(b"GLIBC_2.34"), Some((2, 34)));
        assert_eq!(version(b"GLIBC_2.2.5"), Some((2, 2)));
        assert!(version(b"GLIBC_2.9") < version(b"GLIBC_2.34"));
        for name in [
            &b"GLIBC_PRIVATE"[..],
            b"GCC_3.0",
            b"GLIBC_",
            b"GLIBC_2.\xff",
        ] {
            assert_eq!(version(name), None);
        }
    }

    #[test]
    fn this_programs_libc_has_the_version_that_it_reports() {
        // SAFETY: no argument, and the string it returns is static.
        let reported = unsafe { std::ffi::CStr::from_ptr(libc::gnu_get_libc_version()) };
        let reported = version(format!("GLIBC_{}", reported.to_str().unwrap()).as_bytes());
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let line = maps
            .lines()
            .find(|line| line.ends_with("/libc.so.6"))
            .unwrap();
        let path = line.split_whitespace().last().unwrap();
        assert_eq!(newest_version(Path::new(path)), reported);
    }

    #[test]
    fn a_loader_without_a_libc_is_judged_by_its_name() {
        let judge = |path: &str| loader_obstacle(Path::new(path));
        assert_eq!(judge("/nowhere/ld-musl-x86_64.so.1"), Some(Obstacle::Musl));
        assert_eq!(judge("/nowhere/ld-linux-x86-64.so.2"), None);
        let other = "/nowhere/linker64";
        assert_eq!(judge(other), Some(Obstacle::Loader(other.into())));
    }

    #[test]
    fn this_program_has_no_obstacle() {
        assert_eq!(obstacle(&std::env::current_exe().unwrap()), None);
    }
}
