//! Two threads hand a turn to each other, in the languages that are installed, and in peers that
//! have user-mode threads of their own.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

use super::harness::{Case, Work};
use super::process::{EVERY_WAY, Way};
use super::programs::{Jdk, Workshop, find, jdks, python, skipped, version};

/// Rounds as in the literature on each program.
const C_ROUNDS: u32 = 1_000_000;
const JAVA_ROUNDS: u32 = 1_000_000;
const PYTHON_ROUNDS: u32 = 100_000;
const CSHARP_ROUNDS: u32 = 300_000;
const PEER_ROUNDS: u32 = 1_000_000;
/// How often programs in Java and C# play them: the last time counts, when all is compiled.
const RUNS: u32 = 3;

/// The first JDK with virtual threads that are no preview.
const VIRTUAL_THREADS_JDK: u32 = 21;

/// A peer schedules its own threads: raddle has nothing to add.
const NATIVE: &[Way] = &[Way::NativeAll, Way::NativeOne];

pub(super) fn cases(workshop: &Workshop) -> Vec<Case> {
    let jdks = jdks();
    if jdks.is_empty() {
        skipped("pingpong in Java", "no JDK is installed");
    }
    let java = jdks.iter().map(|jdk| {
        (
            format!("pingpong in Java {}", jdk.version),
            java(workshop, jdk),
        )
    });
    let mut made = vec![
        ("pingpong in C".into(), c(workshop)),
        ("pingpong in Python".into(), cpython(workshop)),
        ("pingpong in C#".into(), csharp(workshop)),
        ("pingpong in Go".into(), go(workshop)),
        ("pingpong with Boost.Fiber".into(), boost_fiber(workshop)),
    ];
    made.splice(1..1, java);
    let mut cases = Vec::new();
    for (what, made) in made {
        match made {
            Ok(more) => cases.extend(more),
            Err(why) => skipped(&what, &why),
        }
    }
    cases
}

type Made = Result<Vec<Case>, String>;

/// A program that takes its number of rounds as its last argument.
fn case(
    title: &str,
    toolchain: String,
    command: Vec<OsString>,
    work: Work,
    ways: &'static [Way],
) -> Case {
    Case {
        title: title.into(),
        toolchain,
        command,
        work,
        ways,
    }
}

/// So many rounds at most, `repeats` times.
fn plays(workshop: &Workshop, most: u32, repeats: u32) -> Work {
    let most = (f64::from(most) * workshop.fraction()).ceil() as u32;
    Work::HandsOff { most, repeats }
}

fn c(workshop: &Workshop) -> Made {
    Ok(vec![case(
        "C",
        version(Path::new("cc"), "--version"),
        vec![workshop.c_program("pingpong")?],
        plays(workshop, C_ROUNDS, 1),
        &EVERY_WAY,
    )])
}

/// The stock program on platform threads; with virtual threads, those natively, with one carrier
/// and with the JDK's default.
fn java(workshop: &Workshop, jdk: &Jdk) -> Made {
    let classes = workshop.path(&format!("java-{}", jdk.version));
    let mut sources = vec!["PingPong.java"];
    if jdk.major() >= VIRTUAL_THREADS_JDK {
        sources.push("VirtualPingPong.java");
    }
    let mut javac = Command::new(jdk.tool("javac"));
    workshop.make(javac.arg("-d").arg(&classes).args(&sources))?;
    let command = |flag: Option<&str>, class: &str| {
        let mut command = vec![jdk.tool("java")];
        command.extend(flag.map(OsString::from));
        command.extend(["-cp".into(), classes.clone().into(), class.into()]);
        command
    };
    let work = || plays(workshop, JAVA_ROUNDS, RUNS);
    let toolchain = || format!("JDK {}", jdk.version);
    let title = format!("Java {}", jdk.major());
    let mut cases = vec![case(
        &title,
        toolchain(),
        command(None, "PingPong"),
        work(),
        &EVERY_WAY,
    )];
    if jdk.major() >= VIRTUAL_THREADS_JDK {
        let one = "-Djdk.virtualThreadScheduler.parallelism=1";
        for (suffix, flag) in [("virtual, 1 carrier", Some(one)), ("virtual", None)] {
            let title = format!("Java {} {suffix}", jdk.major());
            let command = command(flag, "VirtualPingPong");
            cases.push(case(&title, toolchain(), command, work(), &NATIVE[..1]));
        }
    }
    Ok(cases)
}

fn cpython(workshop: &Workshop) -> Made {
    let python = python().ok_or("python3 is not installed")?;
    let toolchain = version(&python, "--version");
    let command = vec![python.into(), workshop.path("pingpong.py").into()];
    let work = plays(workshop, PYTHON_ROUNDS, 1);
    Ok(vec![case("Python", toolchain, command, work, &EVERY_WAY)])
}

fn csharp(workshop: &Workshop) -> Made {
    let mono = find("mono").ok_or("mono is not installed")?;
    let mcs = find("mcs").ok_or("mcs is not installed")?;
    let program = workshop.path("pingpong.exe");
    let mut compile = Command::new(mcs);
    compile
        .arg(format!("-out:{}", program.display()))
        .arg("pingpong.cs");
    workshop.make(&mut compile)?;
    let work = || plays(workshop, CSHARP_ROUNDS, RUNS);
    let toolchain = version(&mono, "--version");
    let command = vec![mono.into(), program.clone().into()];
    let mut cases = vec![case("C# on Mono", toolchain, command, work(), &EVERY_WAY)];
    if let Some(dotnet) = find("dotnet") {
        let toolchain = version(&dotnet, "--list-runtimes");
        let config = workshop.path("dotnet.json").into();
        let options = ["exec".into(), "--runtimeconfig".into(), config];
        let command = [vec![dotnet.into()], options.into(), vec![program.into()]].concat();
        cases.push(case("C# on .NET", toolchain, command, work(), &EVERY_WAY));
    } else {
        skipped("pingpong in C# on .NET", "dotnet is not installed");
    }
    Ok(cases)
}

fn go(workshop: &Workshop) -> Made {
    let (program, toolchain) = workshop.go_program("pingpong")?;
    let work = plays(workshop, PEER_ROUNDS, 1);
    Ok(vec![case(
        "Go channels",
        toolchain,
        vec![program],
        work,
        NATIVE,
    )])
}

fn boost_fiber(workshop: &Workshop) -> Made {
    let (program, toolchain) = workshop.boost_program("pingpong")?;
    let work = plays(workshop, PEER_ROUNDS, 1);
    let ways = &NATIVE[..1];
    Ok(vec![case(
        "Boost.Fiber",
        toolchain,
        vec![program],
        work,
        ways,
    )])
}
