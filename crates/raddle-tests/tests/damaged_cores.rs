//! `raddle dump --from` of core files that are damaged, at random and on purpose: each ends in time
//! with bounded memory, and none makes the tool panic. A failure is repeated by its seed.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use raddle_tests::{Mode, Program, RunFolder, Running, or_skip, raddle, say};

const MODE: Mode = Mode::Raddle { carriers: 2 };
/// Names how many cores are damaged.
const COUNT: &str = "RADDLE_TEST_DAMAGED_CORES";
/// Names the first seed.
const FIRST: &str = "RADDLE_TEST_SEED";
const COUNT_DEFAULT: u64 = 250;
/// How long a dump may take on a machine that is shared.
const LIMIT: Duration = Duration::from_secs(30);
/// The most address space of the tool, in KiB.
const MEMORY_MAX: &str = "2500000";

/// A generator of random numbers (xorshift64*).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }
}

fn word(bytes: &[u8], at: usize) -> usize {
    let word = bytes.get(at..at + 8).and_then(|it| it.first_chunk());
    word.map_or(0, |it| u64::from_le_bytes(*it) as usize)
}

/// The parts of a core that say where the others are.
fn parts(core: &[u8]) -> Vec<(usize, usize)> {
    const PROGRAM_HEADER: usize = 56;
    const NOTE: u8 = 4;
    let table = word(core, 32);
    let count = usize::from(core[56]) | usize::from(core[57]) << 8;
    let mut parts = vec![(0, 64), (table, count * PROGRAM_HEADER)];
    for header in (0..count).map(|it| table + it * PROGRAM_HEADER) {
        if core[header] == NOTE {
            parts.push((word(core, header + 8), word(core, header + 32)));
        }
    }
    // The layout of the runtime's tables, and what lies near to it.
    let magic = raddle_inspect::LAYOUT_MAGIC;
    let found = core.windows(8).enumerate().filter(|(_, it)| **it == magic);
    parts.extend(found.map(|(at, _)| (at, 400)));
    parts.push((0, core.len()));
    parts.retain(|&(at, size)| size != 0 && at + size <= core.len());
    parts
}

/// Damages a core: bits, words that are extreme, words of other places, pieces of others, its end.
fn damage(core: &[u8], parts: &[(usize, usize)], seed: u64) -> Vec<u8> {
    const EXTREMES: [u64; 10] = [
        0,
        1,
        7,
        0xffff,
        0x7fff_ffff,
        0xffff_ffff,
        1 << 40,
        (1 << 47) - 4096,
        1 << 63,
        u64::MAX,
    ];
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut damaged = core.to_vec();
    for _ in 0..1 << random.below(7) {
        let (start, size) = parts[random.below(parts.len())];
        let at = start + random.below(size);
        let aligned = (at & !7).min(core.len() - 8);
        match random.below(5) {
            0 | 1 => damaged[at] ^= 1 << random.below(8),
            2 => {
                let value = EXTREMES[random.below(EXTREMES.len())].to_le_bytes();
                let width = [2, 4, 8][random.below(3)];
                damaged[aligned..aligned + width].copy_from_slice(&value[..width]);
            }
            3 => {
                let from = random.below(core.len() / 8 - 1) * 8;
                damaged[aligned..aligned + 8].copy_from_slice(&core[from..from + 8]);
            }
            _ => {
                let size = (1 << random.below(12)).min(core.len() - at);
                let from = random.below(core.len() - size);
                damaged[at..at + size].copy_from_slice(&core[from..from + size]);
            }
        }
    }
    if seed.is_multiple_of(8) {
        damaged.truncate(random.below(core.len()));
    }
    damaged
}

/// Dumps a core; returns the exit status.
fn dump(core: &Path, more: &[&str]) -> Result<i32> {
    let started = Instant::now();
    let mut command = Command::new("sh");
    command.args(["-c", &format!("ulimit -v {MEMORY_MAX}; exec \"$0\" \"$@\"")]);
    command.arg(raddle()?).args(["dump", "--from"]).arg(core);
    let output = command.args(more).output()?;
    let took = started.elapsed();
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(took < LIMIT, "{took:?} {said}");
    ensure!(!said.contains("panicked"), "{said}");
    let status = output.status.code();
    let status = status.with_context(|| format!("{:?} {said}", output.status))?;
    ensure!((0..4).contains(&status), "{status} {said}");
    Ok(status)
}

fn number(variable: &str, default: u64) -> u64 {
    let value = std::env::var(variable).ok();
    value.and_then(|it| it.parse().ok()).unwrap_or(default)
}

fn check(seeds: std::ops::Range<u64>) -> Result<()> {
    let folder = RunFolder::new("damaged_cores")?;
    let program = Program::build("core_threads.c")?;
    let [variant] = program.variants.as_slice() else {
        bail!("core_threads.c is one program");
    };
    let line: Vec<OsString> = vec![variant.command[0].clone(), "5".into(), "spin".into()];
    let running = Running::start(MODE, MODE.command(&line)?, None)?;
    running.wait_until_it_says("ready\n")?;
    let path = folder.path().join("core");
    let mut command = Command::new(raddle()?);
    command.arg("core").arg(running.pid().to_string());
    let output = command.args(["--stop", "-o"]).arg(&path).output()?;
    ensure!(path.exists(), "{output:?}");
    drop(running);
    ensure!(dump(&path, &[])? == 0, "the core is good");
    let core = fs::read(&path)?;
    let parts = parts(&core);
    let damaged_path = folder.path().join("damaged");
    let mut statuses: BTreeMap<i32, u32> = BTreeMap::new();
    let mut longest = Duration::ZERO;
    for seed in seeds {
        fs::write(&damaged_path, damage(&core, &parts, seed))?;
        let more: &[&str] = match seed % 3 {
            0 => &["--json"],
            1 => &["--deadlocks"],
            _ => &["--all-frames"],
        };
        let started = Instant::now();
        let status = dump(&damaged_path, more).with_context(|| format!("seed {seed}"))?;
        longest = longest.max(started.elapsed());
        *statuses.entry(status).or_default() += 1;
    }
    say(&format!(
        "damaged cores by exit status: {statuses:?}, the longest {longest:?}"
    ));
    // Neither are all refused at once, nor is the damage without effect.
    ensure!(statuses.len() > 1, "{statuses:?}");
    Ok(())
}

#[test]
fn damaged_cores_are_read_to_an_end() {
    let test = "damaged_cores::damaged_cores_are_read_to_an_end";
    let first = number(FIRST, 1);
    or_skip(test, check(first..first + number(COUNT, COUNT_DEFAULT)));
}
