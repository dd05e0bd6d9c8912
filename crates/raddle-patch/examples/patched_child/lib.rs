//! A library that the end-to-end tests preload into a program. Its initializer patches glibc while
//! one thread exists, and lets it work. Its entries execute the system call as it is, and count.
//! The program itself never begins: the library ends the process.

#[path = "../../tests/common/mod.rs"]
mod common;
mod entries;
mod failures;
mod far;
mod traces;
mod work;

use raddle_patch::{Linux, Memory, Refusal, Report, Site, Targets, apply, plan};

use common::{LD_SO, LIBC, image};

/// The variable that names the case.
pub const CASE: &str = "RADDLE_PATCH_TEST_CASE";

/// Runs before the program's `main`.
#[used]
#[unsafe(link_section = ".init_array")]
static INITIALIZER: extern "C" fn() = initializer;

extern "C" fn initializer() {
    let Ok(case) = std::env::var(CASE) else {
        return;
    };
    // SAFETY: one thread exists, and the case is over when it returns.
    unsafe { std::env::remove_var(CASE) };
    let status = run(&case);
    std::process::exit(status);
}

fn run(case: &str) -> i32 {
    match case {
        "work" => work::everyday(),
        "clones" => work::clones(),
        "backtrace" => traces::from_entry(),
        "cancel" => traces::cancel(),
        "step" => traces::step(),
        "registers" => work::registers(),
        "sites" => work::sites(),
        "failures" => failures::all(),
        "islands" => far::islands(),
        _ => return 2,
    }
    println!("{case} done");
    0
}

/// The entries of [`entries`].
pub fn targets() -> Targets {
    let address = |entry: unsafe extern "C" fn()| entry as *const () as usize;
    Targets {
        plain: address(entries::test_entry_plain),
        narrow: address(entries::test_entry_vector),
        vector: address(entries::test_entry_vector),
        clone_before: address(entries::test_entry_before),
        narrow_clone_before: address(entries::test_entry_before),
        plain_clone_before: address(entries::test_entry_before),
        clone_after: address(entries::test_entry_after),
    }
}

/// Patches all sites of a module.
pub fn patch(name: &str, memory: &impl Memory) -> Result<Report, Refusal> {
    let image = image(name);
    let path = common::module(name).path;
    let mut scratch = vec![Site::EMPTY; 1024];
    let plan = plan(&image, &[u64::MAX; 8], &mut scratch)?;
    // SAFETY: one thread exists, and runs this; the entries keep the promises of `Targets`.
    unsafe { apply(&image, &plan, &targets(), memory, Some(path)) }
}

/// Patches libc and ld.so.
pub fn patch_glibc() -> [Report; 2] {
    [LIBC, LD_SO].map(|name| patch(name, &Linux).unwrap_or_else(|why| panic!("{name}: {why}")))
}
