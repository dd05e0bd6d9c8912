//! `libraddle`: the explicit API for C, as it is installed.
//!
//! Cargo makes an archive of `raddle-c` with all of Rust's library in it. From that: (1) one object
//! with the parts that the API needs; (2) every name in it but `raddle_*` made local, so that two
//! Rust libraries may meet in one program; (3) the object, as `libraddle.a` and linked as
//! `libraddle.so`, with a version for each name.
//!
//! Rejected: Cargo's own shared library. rustc links it with a list of exports, and no linker takes
//! a second list, with versions, beside it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::shell;
use crate::workspace::Workspace;

pub(crate) const PACKAGE: &str = "raddle-c";
/// The first header is included by the others.
pub(crate) const HEADERS: [&str; 6] = [
    "include/raddle.h",
    "include/raddle_engine.h",
    "include/raddle_fiber.h",
    "include/raddle_table.h",
    "include/raddle_trace.h",
    "include/raddle_ums.h",
];
/// The form of policies, which plug-ins of `raddle run` have, too.
pub(crate) const POLICY_HEADER: &str = "crates/raddle-interface/include/raddle_policy.h";
/// The prefix of each name.
pub(crate) const PREFIX: &str = "raddle_";
const PROFILE: &str = "c-library";

/// The library's files.
pub(crate) struct CLibrary {
    pub shared: PathBuf,
    pub archive: PathBuf,
    pub version: String,
}

impl CLibrary {
    /// Returns the name that programs ask ld.so for. Before 1.0 a minor version may break
    /// compatibility, which shows in its symbols' version.
    pub(crate) fn soname(&self) -> String {
        format!(
            "libraddle.so.{}",
            self.version.split('.').next().unwrap_or("0")
        )
    }

    /// Returns the installed file's name.
    pub(crate) fn file_name(&self) -> String {
        format!("libraddle.so.{}", self.version)
    }
}

/// Returns a file of the package.
pub(crate) fn source(workspace: &Workspace, file: &str) -> PathBuf {
    workspace.root.join("crates").join(PACKAGE).join(file)
}

/// Builds both libraries.
pub(crate) fn build(workspace: &Workspace) -> Result<CLibrary> {
    let cargo = &mut shell::cargo(&workspace.root);
    shell::run(cargo.args(["build", "--profile", PROFILE, "--package", PACKAGE]))?;
    let package = workspace.package(PACKAGE).context("there is no raddle-c")?;
    let made = workspace.target.join(PROFILE);
    let folder = made.join("c");
    fs::create_dir_all(&folder)?;
    let library = CLibrary {
        shared: folder.join("libraddle.so"),
        archive: folder.join("libraddle.a"),
        version: package.version.clone(),
    };
    let object = folder.join("raddle.o");
    one_object(workspace, &made.join("libraddle_c.a"), &object)?;
    if library.archive.exists() {
        fs::remove_file(&library.archive)?; // `ar` would add to an old archive
    }
    shell::run(
        Command::new("ar")
            .arg("rcsD")
            .args([&library.archive, &object]),
    )?;
    link(workspace, &object, &library)?;
    Ok(library)
}

/// Makes one object of the archive's parts that the API needs, with no global name but the API's.
fn one_object(workspace: &Workspace, archive: &Path, object: &Path) -> Result<()> {
    let names = declared_names(workspace)?;
    let whole = object.with_extension("whole.o");
    let needed = names.iter().flat_map(|name| ["-u", name]);
    let mut ld = Command::new("ld");
    ld.arg("-r").args(needed).arg(archive).arg("-o").arg(&whole);
    ensure!(
        ld.status()?.success(),
        "ld can't join {}",
        archive.display()
    );
    let mut objcopy = Command::new("objcopy");
    objcopy.args(["--strip-debug", "--wildcard"]);
    objcopy.args(["--remove-section=.llvmbc", "--remove-section=.llvmcmd"]); // left by the compiler
    objcopy.arg(format!("--keep-global-symbol={PREFIX}*"));
    shell::run(objcopy.arg(&whole).arg(object))
}

fn link(workspace: &Workspace, object: &Path, library: &CLibrary) -> Result<()> {
    let list = source(workspace, "package/libraddle.map");
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-o"]).arg(&library.shared).arg(object);
    cc.arg(format!("-Wl,--version-script={}", list.display()));
    cc.arg(format!("-Wl,-soname,{}", library.soname()));
    // Never unloaded: its threads and libc's system calls lead into it.
    cc.args(["-Wl,-z,nodelete", "-Wl,-z,relro,-z,now"]);
    cc.args(["-Wl,--gc-sections", "-Wl,--no-undefined", "-Wl,--as-needed"]);
    shell::run(cc.args(["-lgcc_s", "-lpthread", "-ldl", "-lm", "-lc"]))
}

/// The text of all headers.
pub(crate) fn headers(workspace: &Workspace) -> Result<String> {
    let text = |name: &&str| Ok(fs::read_to_string(source(workspace, name))?);
    HEADERS.iter().map(text).collect()
}

/// The functions that the headers declare.
pub(crate) fn declared_names(workspace: &Workspace) -> Result<Vec<String>> {
    let headers = headers(workspace)?;
    Ok(prototypes(&headers)
        .iter()
        .map(|text| name(text).to_owned())
        .collect())
}

/// The headers' prototypes, each on one line, in the order of their names.
pub(crate) fn prototypes(header: &str) -> Vec<String> {
    let starts = header.split("\nRADDLE_API ").skip(1);
    let mut found: Vec<_> = starts
        .filter_map(|text| text.split_once(';'))
        .map(|(text, _)| text.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect();
    found.sort_by(|a, b| name(a).cmp(name(b)));
    found
}

/// The function's name in a prototype.
pub(crate) fn name(prototype: &str) -> &str {
    let before = prototype.split('(').next().unwrap_or_default();
    before.rsplit([' ', '*']).next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prototypes_are_found_joined_and_sorted() {
        let header = "#define RADDLE_API extern\n/* x */\nRADDLE_API void *raddle_b(int a,\n   \
                      void (*f)(int));\n\nRADDLE_API int raddle_a(void);\n";
        let found = prototypes(header);
        assert_eq!(
            found,
            [
                "int raddle_a(void)",
                "void *raddle_b(int a, void (*f)(int))"
            ]
        );
        assert_eq!(
            found.iter().map(|text| name(text)).collect::<Vec<_>>(),
            ["raddle_a", "raddle_b"]
        );
    }
}
