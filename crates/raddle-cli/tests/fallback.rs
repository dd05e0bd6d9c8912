//! Programs that can't have green threads run all the same, and -v says why.

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Output;

use common::{Folder, copy, has, is_root, preload, raddle, succeeds, text};

/// Prints its `LD_PRELOAD`, empty if it has none.
const SHOWS_PRELOAD: &str = r#"
#include <stdio.h>
#include <stdlib.h>
int main(void) {
  const char *list = getenv("LD_PRELOAD");
  puts(list ? list : "");
  return 0;
}
"#;

/// Runs it with -v. Returns the program's output and raddle's lines.
fn verbose(program: &Path) -> Output {
    raddle(&["run", "-v", program.to_str().unwrap()])
        .output()
        .unwrap()
}

#[track_caller]
fn assert_said(output: &Output, image: &Path, reason: &str) {
    let sentence = format!(
        "raddle: {}: runs on kernel threads: {reason}\n",
        image.display()
    );
    assert_eq!(text(&output.stderr), sentence);
}

#[test]
fn a_dynamic_program_gets_the_preload_in_silence() {
    let folder = Folder::new();
    let program = folder.compile("cc", "dynamic", SHOWS_PRELOAD, &[]);
    let output = verbose(&program);
    assert_eq!(text(&output.stderr), "");
    assert_eq!(text(&output.stdout), format!("{}\n", preload().display()));
}

#[test]
fn a_static_program_keeps_the_preload_for_its_children() {
    let folder = Folder::new();
    for flag in ["-static", "-static-pie"] {
        let program = folder.compile("cc", "static", SHOWS_PRELOAD, &[flag]);
        let output = verbose(&program);
        assert_said(
            &output,
            &program,
            "it is linked statically, so nothing can be preloaded",
        );
        assert_eq!(
            text(&output.stdout),
            format!("{}\n", preload().display()),
            "{flag}"
        );
        let quiet = succeeds(&mut raddle(&["run", program.to_str().unwrap()]));
        assert_eq!(text(&quiet.stderr), "");
    }
}

#[test]
fn a_program_for_musl_gets_no_preload() {
    if !has("musl-gcc") {
        return;
    }
    let folder = Folder::new();
    let program = folder.compile("musl-gcc", "musl", SHOWS_PRELOAD, &[]);
    let output = verbose(&program);
    assert_said(
        &output,
        &program,
        "its libc is musl, and green threads need glibc",
    );
    assert_eq!(text(&output.stdout), "\n");
    // The caller's own preload stays.
    let mut command = raddle(&["run", program.to_str().unwrap()]);
    command.env("LD_PRELOAD", preload());
    assert_eq!(text(&succeeds(&mut command).stdout), "\n");
}

#[test]
fn an_old_glibc_beside_the_loader_gets_no_preload() {
    let folder = Folder::new();
    let map = folder.file(
        "map",
        "GLIBC_2.2.5 { f; }; GLIBC_2.31 { g; } GLIBC_2.2.5;",
        0o644,
    );
    let flag = format!("-Wl,--version-script={}", map.display());
    let source = "void f(void) {} void g(void) {}";
    let flags = ["-shared", "-fPIC", "-nostdlib", &flag];
    folder.compile("cc", "libc.so.6", source, &flags);
    // The loader itself is the machine's, so that the program runs.
    let loader = folder.0.join("ld-linux-x86-64.so.2");
    copy(Path::new("/lib64/ld-linux-x86-64.so.2"), &loader, 0o755);
    let flag = format!("-Wl,--dynamic-linker={}", loader.display());
    let program = folder.compile("cc", "old", SHOWS_PRELOAD, &[&flag]);
    let output = verbose(&program);
    assert_said(
        &output,
        &program,
        "its glibc is 2.31, and green threads need 2.34",
    );
    assert_eq!(text(&output.stdout), "\n");
}

#[test]
fn a_script_is_judged_by_its_interpreter() {
    let folder = Folder::new();
    let interpreter = folder.compile("cc", "static", SHOWS_PRELOAD, &["-static"]);
    let script = folder.file("script", format!("#!{}\n", interpreter.display()), 0o755);
    let reason = "it is linked statically, so nothing can be preloaded";
    assert_said(&verbose(&script), &interpreter, reason);

    let script = folder.file("by-env", "#!/usr/bin/env -S static -x\n", 0o755);
    let mut command = raddle(&["run", "-v", script.to_str().unwrap()]);
    let path = std::env::var("PATH").unwrap();
    command.env("PATH", format!("{}:{path}", folder.0.display()));
    assert_said(&command.output().unwrap(), &interpreter, reason);

    let script = folder.file("shell", "#!/bin/sh\necho $LD_PRELOAD\n", 0o755);
    let output = verbose(&script);
    assert_eq!(text(&output.stderr), "");
    assert_eq!(text(&output.stdout), format!("{}\n", preload().display()));
}

#[test]
fn a_program_with_a_sanitizer_gets_no_preload_and_keeps_its_status() {
    let folder = Folder::new();
    for flag in ["-fsanitize=address", "-fsanitize=thread"] {
        let program = folder.compile("cc", "sanitized", SHOWS_PRELOAD, &[flag]);
        let output = verbose(&program);
        let reason =
            "it is built with a sanitizer, which must be loaded first and knows kernel threads";
        assert_said(&output, &program, reason);
        assert_eq!(text(&output.stdout), "\n", "{flag}");
        assert_eq!(output.status.code(), Some(0), "{flag}");
    }
}

#[test]
fn valgrind_gets_no_preload() {
    let folder = Folder::new();
    let script = folder.file("valgrind", "#!/bin/sh\necho $LD_PRELOAD; exit 7\n", 0o755);
    let output = verbose(&script);
    assert_said(&output, &script, "valgrind simulates threads by itself");
    assert_eq!(text(&output.stdout), "\n");
    assert_eq!(output.status.code(), Some(7));
}

#[test]
fn a_setuid_program_gets_no_preload() {
    if !is_root() {
        eprintln!("skipped: only root can give a file away");
        return;
    }
    let folder = Folder::new();
    let program = folder.compile("cc", "setuid", SHOWS_PRELOAD, &[]);
    std::os::unix::fs::chown(&program, Some(65_534), None).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o4755)).unwrap();
    let output = verbose(&program);
    let reason = "it runs as another user or group (setuid), and ld.so then preloads nothing";
    assert_said(&output, &program, reason);
    assert_eq!(text(&output.stdout), "\n");
}

/// A program of 32 bits that ends with status 42, by hand: a compiler for it is rarely there.
fn program_of_32_bits() -> Vec<u8> {
    const BASE: u32 = 0x0800_0000;
    const HEADERS_BYTES: u32 = 52 + 32;
    let code = [0xb8, 1, 0, 0, 0, 0xbb, 42, 0, 0, 0, 0xcd, 0x80];
    let size = HEADERS_BYTES + code.len() as u32;
    let mut image = b"\x7fELF\x01\x01\x01\0\0\0\0\0\0\0\0\0\x02\0\x03\0".to_vec();
    for word in [1, BASE + HEADERS_BYTES, 52, 0, 0] {
        image.extend(u32::to_le_bytes(word));
    }
    for half in [52_u16, 32, 1, 0, 0, 0] {
        image.extend(half.to_le_bytes());
    }
    for word in [1, 0, BASE, BASE, size, size, 5, 0x1000] {
        image.extend(u32::to_le_bytes(word));
    }
    image.extend(code);
    image
}

#[test]
fn a_program_of_32_bits_or_another_machine_is_named_as_such() {
    let folder = Folder::new();
    let program = folder.file("small", program_of_32_bits(), 0o755);
    let output = verbose(&program);
    let said = text(&output.stderr);
    let first = format!(
        "raddle: {}: runs on kernel threads: it is a 32-bit program",
        program.display()
    );
    assert_eq!(said.lines().next(), Some(&*first));
    // A kernel without 32-bit support refuses it, as under any shell.
    assert!(
        matches!(output.status.code(), Some(42 | 126)),
        "{}",
        output.status
    );

    let mut image = fs::read("/bin/true").unwrap();
    image[18..20].copy_from_slice(&183_u16.to_le_bytes());
    let program = folder.file("foreign", image, 0o755);
    let said = text(&verbose(&program).stderr);
    let first = format!(
        "raddle: {}: runs on kernel threads: it is a program for aarch64",
        program.display()
    );
    assert_eq!(said.lines().next(), Some(&*first));
}
