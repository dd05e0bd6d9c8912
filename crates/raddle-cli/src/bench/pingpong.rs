//! Two threads hand a turn to each other, in the languages that are installed, and in peers that
//! have user-mode threads of their own.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

use super::harness::{Case, Work};
use super::process::{EVERY_WAY, Way};
use super::programs::{Jdk, Workshop, find, jdks, python, skipped, version};

/// Rounds as the literature on each has them.
const C_ROUNDS: u32 = 1_000_000;
const JAVA_ROUNDS: u32 = 1_000_000;
const PYTHON_ROUNDS: u32 = 100_000;
const CSHARP_ROUNDS: u32 = 300_000;
const PEER_ROUNDS: u32 = 1_000_000;

/// The first JDK with virtual threads that are no preview.
const VIRTUAL_THREADS_JDK: u32 = 21;

/// A peer schedules its own threads: raddle has nothing to add.
const NATIVE: &[Way] = &[Way::NativeAll, Way::NativeOne];

pub fn cases(workshop: &Workshop) -> Vec<Case> {
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

fn case(title: &str, toolchain: String, command: Vec<OsString>, ways: &'static [Way]) -> Case {
    Case {
        title: title.into(),
        toolchain,
        command,
        work: Work::Prints,
        ways,
    }
}

fn c(workshop: &Workshop) -> Made {
    let command = vec![workshop.c_program("pingpong")?, workshop.rounds(C_ROUNDS)];
    Ok(vec![case(
        "C",
        version(Path::new("cc"), "--version"),
        command,
        &EVERY_WAY,
    )])
}

/// The stock program on platform threads; where there are virtual threads, those natively, with
/// one carrier as the JDK calls it too, and with the JDK's default.
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
        command.push(workshop.rounds(JAVA_ROUNDS));
        command
    };
    let toolchain = || format!("JDK {}", jdk.version);
    let title = format!("Java {}", jdk.major());
    let mut cases = vec![case(
        &title,
        toolchain(),
        command(None, "PingPong"),
        &EVERY_WAY,
    )];
    if jdk.major() >= VIRTUAL_THREADS_JDK {
        let one = "-Djdk.virtualThreadScheduler.parallelism=1";
        for (suffix, flag) in [("virtual, 1 carrier", Some(one)), ("virtual", None)] {
            let title = format!("Java {} {suffix}", jdk.major());
            let command = command(flag, "VirtualPingPong");
            cases.push(case(&title, toolchain(), command, &NATIVE[..1]));
        }
    }
    Ok(cases)
}

fn cpython(workshop: &Workshop) -> Made {
    let python = python().ok_or("python3 is not installed")?;
    let toolchain = version(&python, "--version");
    let rounds = workshop.rounds(PYTHON_ROUNDS);
    let command = vec![python.into(), workshop.path("pingpong.py").into(), rounds];
    Ok(vec![case("Python", toolchain, command, &EVERY_WAY)])
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
    let rounds = workshop.rounds(CSHARP_ROUNDS);
    let toolchain = version(&mono, "--version");
    let command = vec![mono.into(), program.clone().into(), rounds.clone()];
    let mut cases = vec![case("C# on Mono", toolchain, command, &EVERY_WAY)];
    if let Some(dotnet) = find("dotnet") {
        let toolchain = version(&dotnet, "--list-runtimes");
        let config = workshop.path("dotnet.json").into();
        let options = ["exec".into(), "--runtimeconfig".into(), config];
        let command = [
            vec![dotnet.into()],
            options.into(),
            vec![program.into(), rounds],
        ]
        .concat();
        cases.push(case("C# on .NET", toolchain, command, &EVERY_WAY));
    } else {
        skipped("pingpong in C# on .NET", "dotnet is not installed");
    }
    Ok(cases)
}

fn go(workshop: &Workshop) -> Made {
    let go = find("go").ok_or("go is not installed")?;
    let program = workshop.path("pingpong-go");
    let mut compile = Command::new(&go);
    compile
        .args(["build", "-o"])
        .arg(&program)
        .arg("pingpong.go");
    compile.env("GOFLAGS", "").env("GO111MODULE", "off");
    workshop.make(&mut compile)?;
    let mut toolchain = Command::new(&go);
    let toolchain = toolchain
        .arg("version")
        .output()
        .map(|output| output.stdout);
    let toolchain = String::from_utf8_lossy(&toolchain.unwrap_or_default())
        .trim()
        .to_owned();
    let command = vec![program.into(), workshop.rounds(PEER_ROUNDS)];
    Ok(vec![case("Go channels", toolchain, command, NATIVE)])
}

fn boost_fiber(workshop: &Workshop) -> Made {
    let cxx = find("c++").ok_or("c++ is not installed")?;
    let program = workshop.path("pingpong-boost");
    let mut compile = Command::new(&cxx);
    compile.args(["-O2", "-pthread", "-o"]).arg(&program);
    compile.args(["pingpong.cc", "-lboost_fiber", "-lboost_context"]);
    workshop.make(&mut compile)?;
    let command = vec![program.into(), workshop.rounds(PEER_ROUNDS)];
    Ok(vec![case(
        "Boost.Fiber",
        version(&cxx, "--version"),
        command,
        &NATIVE[..1],
    )])
}
