//! Annotations: they are in traces, and nothing happens without one.

use crate::support::{Linked, MODES, compile, everywhere, folder, has, in_mode, prefix, succeeds};
use std::path::{Path, PathBuf};
use std::process::Command;

#[test]
fn annotations_without_a_trace_do_nothing() {
    everywhere("examples/trace.c", &[], "15 requests\n");
}

#[test]
fn annotations_in_python_without_a_trace_do_nothing() {
    if !has("python3") {
        return;
    }
    let module = folder().join("examples/raddle_trace.py");
    let library = prefix().join("lib/libraddle.so");
    for mode in MODES {
        let mut python = in_mode(mode, Path::new("python3"));
        python.arg(&module).env("RADDLE_LIBRARY", &library);
        assert_eq!(succeeds(&mut python), "ok\n", "{mode:?}");
    }
    let mut python = Command::new("python3");
    python.arg(&module).env("RADDLE_LIBRARY", "/no/library.so");
    assert_eq!(succeeds(&mut python), "ok\n");
}

/// Runs a program with a flight recorder, which ends by a signal. Returns the trace.
fn trace_of_crash(name: &str, command: &[&str]) -> Vec<u8> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    let raddle = prefix().join("bin/raddle");
    let mut program = Command::new("timeout");
    program.args(["-k", "2", "60"]).arg(&raddle);
    program.args(["run", "-n", "2", "--flight-recorder", "--"]);
    program.args(command).current_dir(&folder);
    program.env("RADDLE_LIBRARY", prefix().join("lib/libraddle.so"));
    let output = program.output().unwrap();
    let files: Vec<PathBuf> = std::fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|it| it == "events"))
        .collect();
    let [events] = &files[..] else {
        panic!("one file of events: {files:?} {output:?}");
    };
    let trace = folder.join("trace");
    let mut tool = Command::new(raddle);
    tool.args(["trace", "--from"]).arg(events);
    succeeds(tool.arg("-o").arg(&trace));
    std::fs::read(trace).unwrap()
}

fn assert_has(trace: &[u8], names: &[&str]) {
    for name in names {
        let is_there = trace.windows(name.len()).any(|it| it == name.as_bytes());
        assert!(is_there, "no {name} in {} bytes", trace.len());
    }
}

#[test]
fn annotations_of_c_are_in_the_trace_of_a_crash() {
    let program = compile("examples/trace.c", Linked::Shared);
    let trace = trace_of_crash("trace-c", &[program.to_str().unwrap(), "crash"]);
    let names = ["handle request", "count it", "requests handled", "answered"];
    assert_has(&trace, &names);
}

#[test]
fn annotations_of_python_are_in_the_trace_of_a_crash() {
    if !has("python3") {
        return;
    }
    let text = "import os, threading, raddle_trace\n\
        def work():\n\
        \x20   with raddle_trace.span('in python'):\n\
        \x20       raddle_trace.counter('lines read', 7)\n\
        thread = threading.Thread(target=work)\n\
        thread.start()\n\
        thread.join()\n\
        os.abort()\n";
    let text = format!(
        "import sys; sys.path.insert(0, {:?})\n{text}",
        folder().join("examples")
    );
    let trace = trace_of_crash("trace-python", &["python3", "-c", &text]);
    assert_has(&trace, &["in python", "lines read"]);
}
