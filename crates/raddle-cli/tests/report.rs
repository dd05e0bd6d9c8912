//! `raddle report`: recordings that were written, shown, compared, and refused.

mod common;

use std::fs::{self, File};
use std::io::Write;
use std::path::PathBuf;

use common::{Folder, raddle, refuses, succeeds, text};
use raddle_inspect::WaitKind;
use raddle_record::outputs::pprof;
use raddle_record::profile::{Activity, Function, Interner, Origin, Profile, Sample, Thread};

const MS: u64 = 1_000_000;

/// A second in which a thread computes for a while and waits for the rest.
fn profile(computing_ms: u64) -> Profile {
    let mut interner = Interner::default();
    let mut stack = |names: &[&str]| {
        let function = |name: &&str| Function {
            origin: Origin::Native,
            ..Function::note(*name)
        };
        let functions = names.iter().map(|name| interner.function(function(name)));
        let functions = functions.collect();
        interner.stack(functions)
    };
    let computes = stack(&["main", "compute"]);
    let waits = stack(&["main", "pthread_mutex_lock"]);
    let sample = |activity, stack, ms| Sample {
        thread: 0,
        activity,
        object: 0,
        stack,
        at_ns: 0,
        weight_ns: ms * MS,
        count: 1,
    };
    Profile {
        pid: 4711,
        command: vec!["./server".into()],
        duration_ns: 1000 * MS,
        samples: vec![
            sample(Activity::Running, computes, computing_ms),
            sample(
                Activity::Waiting(WaitKind::MUTEX),
                waits,
                1000 - computing_ms,
            ),
        ],
        threads: vec![Thread {
            tid: 4711,
            name: "server".into(),
            running_ns: computing_ms * MS,
            waiting_ns: (1000 - computing_ms) * MS,
            ..Thread::default()
        }],
        functions: interner.functions,
        stacks: interner.stacks,
        ..Profile::default()
    }
}

/// Writes a recording into the folder.
fn recording(folder: &Folder, name: &str, computing_ms: u64) -> PathBuf {
    let path = folder.0.join(name);
    let mut file = File::create(&path).unwrap();
    pprof::write(&profile(computing_ms), &mut file).unwrap();
    path
}

fn report(arguments: &[&str], folder: &Folder) -> std::process::Command {
    let mut command = raddle(&["report"]);
    command.args(arguments).current_dir(&folder.0);
    command
}

#[test]
fn one_file_is_shown_and_converted() {
    let folder = Folder::new();
    recording(&folder, "a.pb.gz", 300);
    let shown = text(&succeeds(&mut report(&["a.pb.gz"], &folder)).stdout);
    assert!(
        shown.starts_with("process 4711: ./server\nrecorded 1.000s, 1 thread, 2 stacks"),
        "{shown}"
    );
    assert!(shown.contains("300.00ms  100.0%  compute"), "{shown}");
    let all = [
        "a.pb.gz", "--json", "-o", "a.html", "-o", "a.json", "-o", "a.folded",
    ];
    let json = succeeds(&mut report(&all, &folder)).stdout;
    let json: serde_json::Value = serde_json::from_slice(&json).unwrap();
    assert_eq!(json["functions"][0]["name"], "compute");
    assert_eq!(json["on_cpu_ns"], 300 * MS);
    let folded = fs::read_to_string(folder.0.join("a.folded")).unwrap();
    assert_eq!(
        folded,
        "server;main;compute 300000\nserver;main;pthread_mutex_lock;[waiting: mutex] 700000\n"
    );
    let page = fs::read_to_string(folder.0.join("a.html")).unwrap();
    assert!(page.contains("Content-Security-Policy") && page.contains("compute"));
    refuses(
        &mut report(&["a.pb.gz", "-o", "a.html"], &folder),
        2,
        "a.html exists: give another name, or --force to replace it",
    );
    succeeds(&mut report(
        &["a.pb.gz", "--force", "-o", "a.html"],
        &folder,
    ));
}

#[test]
fn two_files_are_compared() {
    let folder = Folder::new();
    recording(&folder, "a.pb.gz", 300);
    recording(&folder, "b.pb.gz", 500);
    let files = ["a.pb.gz", "b.pb.gz"];
    let shown = text(&succeeds(&mut report(&files, &folder)).stdout);
    let grew = "+200.00ms/s  300.00ms/s  500.00ms/s  +0.0%  +200.00ms/s  compute";
    assert!(shown.contains(grew), "{shown}");
    assert!(shown.contains("off CPU, shrank"), "{shown}");
    let all = [&files[..], &["--json", "-o", "d.html", "-o", "d.folded"]].concat();
    let json = succeeds(&mut report(&all, &folder)).stdout;
    let json: serde_json::Value = serde_json::from_slice(&json).unwrap();
    assert_eq!(json["functions"][0]["on_cpu"]["self"]["after"], 500e6);
    assert_eq!(json["measure"], "ns_per_second");
    let folded = fs::read_to_string(folder.0.join("d.folded")).unwrap();
    assert_eq!(
        folded,
        "server;main;compute 300000 500000\n\
         server;main;pthread_mutex_lock;[waiting: mutex] 700000 500000\n"
    );
    assert!(fs::metadata(folder.0.join("d.html")).unwrap().len() > 100_000);
    refuses(
        &mut report(&[&files[..], &["-o", "d.pb.gz"]].concat(), &folder),
        2,
        "the name d.pb.gz says no format of a comparison: end it with .html or .folded",
    );
}

#[test]
fn what_can_not_be_read_is_refused_in_a_sentence() {
    let folder = Folder::new();
    let whole = fs::read(recording(&folder, "a.pb.gz", 300)).unwrap();
    const NO_PROFILE: &str = "is no profile in pprof's format: name one that raddle record -o \
                              FILE.pb.gz has written";
    for (name, bytes, sentence) in [
        (
            "cut",
            &whole[..whole.len() / 2],
            "is cut or damaged: copy it again, or record anew",
        ),
        ("text", b"main;work 12\n", NO_PROFILE),
        ("empty", b"", NO_PROFILE),
    ] {
        File::create(folder.0.join(name))
            .unwrap()
            .write_all(bytes)
            .unwrap();
        refuses(
            &mut report(&[name], &folder),
            2,
            &format!("{name} {sentence}"),
        );
        refuses(
            &mut report(&["a.pb.gz", name], &folder),
            2,
            &format!("{name} {sentence}"),
        );
    }
    refuses(
        &mut report(&["none.pb.gz"], &folder),
        2,
        "none.pb.gz can't be read (No such file or directory (os error 2)): name a file that this \
         user may read",
    );
    refuses(
        &mut report(&[], &folder),
        2,
        "FILE is missing: see raddle COMMAND --help",
    );
    assert_eq!(
        raddle(&["report", "/dev/zero"])
            .output()
            .unwrap()
            .status
            .code(),
        Some(2)
    );
}
