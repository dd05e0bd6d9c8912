//! The installed package: header, names, pkg-config, CMake.

use crate::support::{LINKAGES, Linked, compile, compiler, folder, has, prefix, run, succeeds};
use std::fs;
use std::path::Path;
use std::process::Command;

const HEADERS: [&str; 7] = [
    "raddle_ums.h",
    "raddle_fiber.h",
    "raddle_table.h",
    "raddle_trace.h",
    "raddle_engine.h",
    "raddle.h",
    "raddle_policy.h",
];

/// A program that needs the header and the library.
const PROGRAM: &str = "#include <raddle.h>\nint main(void) { return raddle_status() != 1; }\n";

fn scratch(name: &str) -> std::path::PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::create_dir_all(&folder).expect("cargo's folder is writable");
    folder
}

#[test]
fn the_headers_are_clean_c99_and_cxx17() {
    let folder = scratch("header");
    for name in ["header.c", "header.cc"] {
        let source = folder.join(name);
        // Twice, alone, and as the first.
        let text: String = HEADERS
            .map(|name| format!("#include <{name}>\n#include <{name}>\n"))
            .concat();
        fs::write(&source, text).unwrap();
        let mut compiler = compiler(&source);
        if name == "header.c" {
            compiler.arg("-Wstrict-prototypes"); // C++ has no others
        }
        succeeds(compiler.arg("-fsyntax-only").arg(&source));
    }
}

#[test]
fn only_the_apis_names_are_exported_each_with_a_version() {
    let library = prefix().join("lib/libraddle.so");
    let names = succeeds(
        Command::new("nm")
            .args(["-D", "--defined-only"])
            .arg(library),
    );
    let names: Vec<_> = names
        .lines()
        .filter_map(|line| line.split(' ').nth(2))
        .collect();
    assert!(names.len() > 40, "{names:?}");
    for name in names.iter().filter(|name| **name != "RADDLE_0.1") {
        assert!(
            name.starts_with("raddle_") && name.ends_with("@@RADDLE_0.1"),
            "{name}"
        );
    }
    let archive = prefix().join("lib/libraddle.a");
    let names = succeeds(
        Command::new("nm")
            .args(["-g", "--defined-only"])
            .arg(archive),
    );
    for name in names.lines().filter_map(|line| line.split(' ').nth(2)) {
        assert!(name.starts_with("raddle_"), "{name}");
    }
}

#[test]
fn the_shared_library_has_a_soname_and_stays_loaded() {
    let library = prefix().join("lib/libraddle.so");
    let dynamic = succeeds(Command::new("readelf").args(["-dW"]).arg(library));
    assert!(dynamic.contains("soname: [libraddle.so.0]"), "{dynamic}");
    assert!(dynamic.contains("NODELETE"), "{dynamic}");
    assert!(dynamic.contains("INIT_ARRAY"), "{dynamic}");
    let program = compile("tests/programs/values.c", Linked::Shared);
    let dynamic = succeeds(Command::new("readelf").args(["-dW"]).arg(program));
    assert!(dynamic.contains("[libraddle.so.0]"), "{dynamic}");
}

#[test]
fn pkg_config_tells_how_to_link() {
    if !has("pkg-config") {
        return;
    }
    let folder = scratch("pkg-config");
    let source = folder.join("program.c");
    fs::write(&source, PROGRAM).unwrap();
    let pkg_config = |arguments: &[&str]| {
        let mut command = Command::new("pkg-config");
        command.env("PKG_CONFIG_PATH", prefix().join("lib/pkgconfig"));
        succeeds(command.args(arguments).arg("raddle"))
    };
    assert_eq!(
        pkg_config(&["--modversion"]).trim(),
        env!("CARGO_PKG_VERSION")
    );
    for linked in LINKAGES {
        let program = folder.join(format!("{linked:?}"));
        let flags = match linked {
            Linked::Shared => pkg_config(&["--cflags", "--libs"]),
            Linked::Static => pkg_config(&["--cflags", "--libs", "--static"])
                .replace("-lraddle", "-l:libraddle.a"),
        };
        let mut cc = Command::new("cc");
        succeeds(
            cc.arg("-o")
                .arg(&program)
                .arg(&source)
                .args(flags.split_whitespace()),
        );
        succeeds(Command::new(&program).env("LD_LIBRARY_PATH", prefix().join("lib")));
    }
}

#[test]
fn cmake_finds_the_package() {
    if !has("cmake") {
        return;
    }
    let folder = scratch("cmake");
    fs::write(folder.join("program.c"), PROGRAM).unwrap();
    let lists = "cmake_minimum_required(VERSION 3.13)\nproject(use C)\n\
                 find_package(raddle 0.1 REQUIRED)\n\
                 add_executable(shared program.c)\n\
                 target_link_libraries(shared raddle::raddle)\n\
                 add_executable(static program.c)\n\
                 target_link_libraries(static raddle::static)\n";
    fs::write(folder.join("CMakeLists.txt"), lists).unwrap();
    let build = folder.join("build");
    let _ = fs::remove_dir_all(&build);
    let mut cmake = Command::new("cmake");
    cmake.arg("-S").arg(&folder).arg("-B").arg(&build);
    succeeds(cmake.arg(format!("-DCMAKE_PREFIX_PATH={}", prefix().display())));
    succeeds(Command::new("cmake").arg("--build").arg(&build));
    succeeds(&mut Command::new(build.join("shared")));
    succeeds(&mut Command::new(build.join("static")));
    let wrong = lists.replace("0.1", "0.2");
    fs::write(folder.join("CMakeLists.txt"), wrong).unwrap();
    let mut cmake = Command::new("cmake");
    cmake
        .arg("-S")
        .arg(&folder)
        .arg("-B")
        .arg(folder.join("wrong"));
    cmake.arg(format!("-DCMAKE_PREFIX_PATH={}", prefix().display()));
    assert!(!run(&mut cmake).status.success());
}

#[test]
fn the_installed_headers_are_the_ones_here() {
    for name in HEADERS {
        let from = match name {
            "raddle_policy.h" => "../raddle-interface/include",
            _ => "include",
        };
        let here = fs::read(folder().join(from).join(name)).unwrap();
        let there = fs::read(prefix().join("include").join(name)).unwrap();
        assert!(here == there, "{name}");
    }
}
