//! Names of files that are damaged or made to do harm: every frame keeps its file and address, the
//! reader's limits hold, and a function has its name from the symbol table. Failures are repeated
//! by their seeds.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use object::elf::{FileHeader64, SHF_COMPRESSED, SectionHeader64};
use object::read::elf::{FileHeader, SectionHeader};
use object::{Endianness, Object, ObjectSymbol};
use raddle_stacks::{Frame, Memory, Modules, Symbols};

/// Set for the child that reads names.
const IS_READER: &str = "RADDLE_STACKS_TEST_READS_NAMES";
/// Where the first file is mapped; the others follow.
const START: u64 = 0x1000_0000_0000;
const DISTANCE: u64 = 1 << 32;
const SECTION_HEADER_BYTES: usize = size_of::<SectionHeader64<Endianness>>();

const SOURCE: &str = r"
struct pair { int first; struct pair *next; };
static inline int add(int a, int b) { return a + b; }
static int twice(struct pair *p) { return p ? add(p->first, p->first) + twice(p->next) : 0; }
int first(struct pair *p) { return twice(p) + 1; }
int second(int n) { int sum = 0; for (int i = 0; i < n; i++) sum = add(sum, i * n); return sum; }
int third(int n) { return n < 2 ? n : third(n - 1) + second(n - 2); }
int main(int argc, char **argv) { struct pair p = { argc, 0 }; return first(&p) + third(argc); }
";

/// Not a test: the child of the other tests, which is this program, too.
#[test]
fn read_names() {
    if std::env::var_os(IS_READER).is_some() {
        raddle_stacks::serve_names().unwrap();
    }
}

fn reader() -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.args(["read_names", "--exact", "--nocapture"]);
    command.env(IS_READER, "1");
    command
}

/// A folder that goes with the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("raddle-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A program with debug information; `None` without a compiler.
fn build(folder: &Folder, flags: &[&str]) -> Option<Vec<u8>> {
    let path = folder.0.join("program");
    let mut child = Command::new("cc")
        .args(["-O1", "-g", "-x", "c", "-", "-o"])
        .arg(&path)
        .args(flags)
        .stdin(std::process::Stdio::piped())
        .spawn()
        .ok()?;
    child.stdin.take()?.write_all(SOURCE.as_bytes()).ok()?;
    assert!(child.wait().unwrap().success());
    Some(std::fs::read(path).unwrap())
}

/// Offsets and sizes in the file of sections that are named so, and where their headers are.
fn sections(program: &[u8], prefix: &str) -> Vec<(usize, usize, usize)> {
    let header = FileHeader64::<Endianness>::parse(program).unwrap();
    let endian = header.endian().unwrap();
    let table = header.sections(endian, program).unwrap();
    let place = |(number, section): (usize, &SectionHeader64<Endianness>)| {
        let name = table.section_name(endian, section).unwrap();
        let at = header.e_shoff.get(endian) as usize + number * SECTION_HEADER_BYTES;
        let range = (
            section.sh_offset(endian) as usize,
            section.sh_size(endian) as usize,
        );
        name.starts_with(prefix.as_bytes())
            .then_some((range.0, range.1, at))
    };
    table.iter().enumerate().filter_map(place).collect()
}

/// Addresses in the program's functions.
fn addresses(program: &[u8]) -> Vec<u64> {
    let file = object::File::parse(program).unwrap();
    let wanted = ["main", "first", "second", "third"];
    let is_wanted = |symbol: &object::Symbol<'_, '_>| wanted.contains(&symbol.name().unwrap());
    let symbols = file.symbols().filter(is_wanted);
    let all = symbols.flat_map(|it| [0, 1, 7].map(|within| it.address() + within));
    all.collect()
}

/// The headers of a program, mapped again and again.
struct Mapped(Vec<u8>);

impl Memory for Mapped {
    fn read(&self, address: u64, to: &mut [u8]) -> usize {
        let within = (address.wrapping_sub(START) % DISTANCE) as usize;
        let bytes = self.0.get(within..).unwrap_or_default();
        let length = bytes.len().min(to.len());
        to[..length].copy_from_slice(&bytes[..length]);
        length
    }
}

/// Names addresses in each of the files, which are like the program. Returns the number of files
/// that could not be read whole.
fn name_all(program: &[u8], files: &[PathBuf], has_symbols: bool) -> usize {
    let line = |(number, file): (usize, &PathBuf)| {
        let from = START + number as u64 * DISTANCE;
        let to = from + 0x100_0000;
        format!(
            "{from:x}-{to:x} r-xp 00000000 08:01 12 {}\n",
            file.display()
        )
    };
    let maps: String = files.iter().enumerate().map(line).collect();
    let modules = Modules::parse(maps.as_bytes(), "").unwrap();
    let memory = Mapped(program.to_vec());
    let mut symbols = Symbols::read_by(reader, &memory, &modules);
    let addresses = addresses(program);
    let frame = |address: u64| Frame {
        address,
        is_return: false,
        is_signal: false,
        is_guessed: false,
    };
    let place = |number: usize, address: &u64| frame(START + number as u64 * DISTANCE + address);
    let numbers = 0..files.len();
    let frames: Vec<Frame> = numbers
        .flat_map(|number| addresses.iter().map(move |at| place(number, at)))
        .collect();
    symbols.prepare(&frames);
    for (number, frame) in frames.iter().enumerate() {
        let file = &files[number / addresses.len()];
        let named = symbols.name(frame);
        let expected = file.file_name().unwrap().to_str();
        assert_eq!(named.module.as_deref(), expected);
        assert_eq!(named.offset, addresses[number % addresses.len()]);
        assert!(!has_symbols || !named.functions.is_empty(), "{file:?}");
    }
    let said = symbols.shortcoming().unwrap_or_default();
    said.matches("damaged-").count()
}

fn write(folder: &Folder, number: u64, program: &[u8]) -> PathBuf {
    let path = folder.0.join(format!("damaged-{number}"));
    std::fs::write(&path, program).unwrap();
    path
}

/// A generator of random numbers (xorshift64*).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) % limit as u64) as usize
    }
}

/// Changes one to some hundred bytes in these ranges.
fn damage(program: &mut [u8], ranges: &[(usize, usize)], random: &mut Random) {
    for _ in 0..1 << random.below(9) {
        let (from, size) = ranges[random.below(ranges.len())];
        let at = from + random.below(size);
        program[at] = match random.below(4) {
            0 => 0xff,
            1 => program[at] ^ 1 << random.below(8),
            _ => random.below(256) as u8,
        };
    }
}

/// Damages 160 copies, 40 at a time, and returns how many could not be read whole.
fn damage_many(name: &str, flags: &[&str], prefix: &str, has_symbols: bool) -> Option<usize> {
    const LIMIT: Duration = Duration::from_secs(120);
    let folder = Folder::new(name);
    let program = build(&folder, flags)?;
    let ranges: Vec<_> = sections(&program, prefix)
        .iter()
        .flat_map(|&(from, size, header)| {
            let of_header = (header, SECTION_HEADER_BYTES);
            let damages_header = !has_symbols;
            [Some((from, size)), damages_header.then_some(of_header)]
        })
        .flatten()
        .filter(|(_, size)| *size != 0)
        .collect();
    let mut unread = 0;
    for seeds in [1..=40, 41..=80, 81..=120, 121..=160] {
        let begun = Instant::now();
        let files: Vec<PathBuf> = seeds
            .map(|seed| {
                let mut damaged = program.clone();
                damage(&mut damaged, &ranges, &mut Random(seed));
                write(&folder, seed, &damaged)
            })
            .collect();
        unread += name_all(&program, &files, has_symbols);
        assert!(begun.elapsed() < LIMIT);
    }
    eprintln!("{name}: {unread} of 160 ended their reader");
    Some(unread)
}

const NO_COMPILER: &str = "skipped: there is no cc";

#[test]
fn damaged_debug_information_leaves_the_symbol_table() {
    if damage_many("dwarf", &[], ".debug_", true).is_none() {
        eprintln!("{NO_COMPILER}");
    }
}

#[test]
fn damaged_compressed_debug_information_leaves_the_symbol_table() {
    if damage_many("compressed", &["-gz=zlib"], ".debug_", true).is_none() {
        eprintln!("{NO_COMPILER}");
    }
}

#[test]
fn damaged_sections_leave_the_address() {
    if damage_many("sections", &[], ".", false).is_none() {
        eprintln!("{NO_COMPILER}");
    }
}

/// Bytes that become gigabytes of zeros, as zlib packs them, behind a header that announces
/// `announced` bytes.
fn bomb(announced: u64) -> Vec<u8> {
    const PIECE: usize = 16 << 20;
    const PIECES: usize = 160;
    let mut packer = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::best());
    packer.write_all(&vec![0; PIECE]).unwrap();
    packer.flush().unwrap(); // The piece ends at a byte, and refers to zeros only.
    let piece = packer.get_ref().clone();
    let mut bytes = Vec::new();
    for word in [1, announced, 1] {
        bytes.extend_from_slice(&word.to_le_bytes()); // ELFCOMPRESS_ZLIB, size, alignment
    }
    bytes.extend_from_slice(&[0x78, 0xda]);
    (0..PIECES).for_each(|_| bytes.extend_from_slice(&piece));
    bytes
}

/// The program with another `.debug_info`, which is compressed.
fn with_debug_info(program: &[u8], content: &[u8]) -> Vec<u8> {
    const FLAGS: usize = 8;
    const OFFSET: usize = 24;
    const SIZE: usize = 32;
    let (_, _, header) = sections(program, ".debug_info")[0];
    let mut changed = program.to_vec();
    let mut set = |at: usize, value: u64| {
        changed[header + at..header + at + 8].copy_from_slice(&value.to_le_bytes());
    };
    set(FLAGS, u64::from(SHF_COMPRESSED));
    set(OFFSET, program.len() as u64);
    set(SIZE, content.len() as u64);
    changed.extend_from_slice(content);
    changed
}

fn check_bomb(name: &str, announced: u64) {
    const LIMIT: Duration = Duration::from_secs(30);
    let folder = Folder::new(name);
    let Some(program) = build(&folder, &[]) else {
        eprintln!("{NO_COMPILER}");
        return;
    };
    let file = write(&folder, 0, &with_debug_info(&program, &bomb(announced)));
    let begun = Instant::now();
    assert_eq!(name_all(&program, &[file], true), 1);
    assert!(begun.elapsed() < LIMIT, "{:?}", begun.elapsed());
}

#[test]
fn a_section_that_unpacks_to_gigabytes_is_given_up() {
    check_bomb("bomb", 1 << 20);
}

#[test]
fn a_section_that_announces_a_petabyte_is_given_up() {
    check_bomb("announcement", 1 << 50);
}

/// A good file that is asked for after a bad one is read whole.
#[test]
fn a_bad_file_costs_no_other_its_names() {
    let folder = Folder::new("neighbours");
    let Some(program) = build(&folder, &[]) else {
        eprintln!("{NO_COMPILER}");
        return;
    };
    let bad = with_debug_info(&program, &bomb(1 << 50));
    let files: Vec<PathBuf> = (0..6)
        .map(|number| {
            write(
                &folder,
                number,
                if number % 2 == 0 { &bad } else { &program },
            )
        })
        .collect();
    assert_eq!(name_all(&program, &files, true), 3);
}

#[test]
fn a_reader_that_can_not_be_started_leaves_addresses() {
    let file = Path::new("/proc/self/exe").canonicalize().unwrap();
    let program = std::fs::read(&file).unwrap();
    let maps = format!(
        "{START:x}-{:x} r-xp 00000000 08:01 12 {}\n",
        START + 4096,
        file.display()
    );
    let modules = Modules::parse(maps.as_bytes(), "").unwrap();
    let memory = Mapped(program);
    for command in ["/nowhere", "true"] {
        let mut symbols = Symbols::read_by(move || Command::new(command), &memory, &modules);
        let named = symbols.name(&Frame {
            address: START + 8,
            is_return: false,
            is_signal: false,
            is_guessed: false,
        });
        assert_eq!((named.offset, named.functions.len()), (8, 0));
        assert!(symbols.shortcoming().is_some());
    }
}
