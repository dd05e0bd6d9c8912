//! HTTP servers that are compiled here, or run by an interpreter or a virtual machine.

use std::cmp::Reverse;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::catalog::{Client, Missing, Server};
use super::daemons::{CLIENTS, program};
use crate::bench::programs::{Jdk, Workshop, jdks, python as interpreter, version};

/// Tomcat 10.1 needs a JDK of this version.
const JDK_LEAST: u32 = 17;
const TOMCAT: &str = "tomcat-embed-core";
const ANNOTATIONS: &str = "tomcat-annotations-api";
const TOMCAT_CURE: &str = "apt-get install libtomcat10-embed-java libtomcat10-java, or mvn \
     dependency:get -Dartifact=org.apache.tomcat.embed:tomcat-embed-core:10.1.31";
/// Below the home folder.
const MAVEN: &str = ".m2/repository/org/apache/tomcat";
const JAVA_LIBRARIES: &str = "/usr/share/java";

type Made = Result<Vec<Server>, Missing>;

fn http(title: &str, toolchain: String, command: Vec<OsString>) -> Server {
    Server {
        title: title.into(),
        toolchain,
        command,
        files: Vec::new(),
        client: Client::Http,
        clients: CLIENTS,
        set_up: None,
    }
}

fn not_made(why: String) -> Missing {
    Missing::new(why, "see whether its compiler works")
}

pub(super) fn c(workshop: &Workshop) -> Made {
    c_beside(workshop, "C, a thread a connection", "0")
}

/// As [`c`], in one process with threads that mostly wait.
pub(super) fn waiting(workshop: &Workshop) -> Made {
    c_beside(workshop, "C, beside 10,000 threads that wait", "10000")
}

fn c_beside(workshop: &Workshop, title: &str, waiting: &str) -> Made {
    let program = workshop.c_program("httpd").map_err(not_made)?;
    let toolchain = version(Path::new("cc"), "--version");
    // No threads that compute or read beside it.
    let numbers = ["0", "0", "{port}", waiting].map(OsString::from);
    let command = [vec![program], numbers.into()].concat();
    Ok(vec![http(title, toolchain, command)])
}

pub(super) fn rust(workshop: &Workshop) -> Made {
    let rustc = program("rustc")?;
    let made = workshop.path("httpd-rust");
    let mut compile = Command::new(&rustc);
    compile
        .args(["--edition=2021", "-O", "-o"])
        .arg(&made)
        .arg("httpd.rs");
    workshop.make(&mut compile).map_err(not_made)?;
    let command = vec![made.into(), "{port}".into()];
    let toolchain = version(&rustc, "--version");
    Ok(vec![http(
        "Rust, a thread a connection",
        toolchain,
        command,
    )])
}

pub(super) fn python(workshop: &Workshop) -> Made {
    let missing = || Missing::new("python3 does not work", "apt-get install python3");
    let python = interpreter().ok_or_else(missing)?;
    let toolchain = version(&python, "--version");
    let script = workshop.path("httpd.py");
    let command = vec![python.into(), script.into(), "{port}".into()];
    Ok(vec![http("Python, http.server", toolchain, command)])
}

pub(super) fn gunicorn(workshop: &Workshop) -> Made {
    let gunicorn = program("gunicorn")?;
    let toolchain = version(&gunicorn, "--version");
    let flags = "--worker-class gthread --workers 1 --threads 16 --keep-alive 60 --backlog 4096 \
                 --log-level warning --bind 127.0.0.1:{port} --chdir";
    let mut command: Vec<OsString> = vec![gunicorn.into()];
    command.extend(flags.split_whitespace().map(OsString::from));
    command.extend([workshop.path("").into(), "application:application".into()]);
    Ok(vec![http("gunicorn, gthread", toolchain, command)])
}

/// Servers for the oldest JDK that can run Tomcat, and for the newest.
pub(super) fn tomcat(workshop: &Workshop) -> Made {
    let jars = [TOMCAT, ANNOTATIONS].map(newest_jar);
    let [Some(core), Some(annotations)] = &jars else {
        return Err(Missing::new("Tomcat's jars are not installed", TOMCAT_CURE));
    };
    let mut jdks: Vec<_> = jdks()
        .into_iter()
        .filter(|jdk| jdk.major() >= JDK_LEAST)
        .collect();
    jdks.dedup_by_key(|jdk| jdk.major());
    if jdks.len() > 2 {
        jdks.drain(1..jdks.len() - 1);
    }
    if jdks.is_empty() {
        return Err(Missing::new(
            format!("no JDK from {JDK_LEAST} is installed"),
            "apt-get install default-jdk-headless",
        ));
    }
    jdks.iter()
        .map(|jdk| tomcat_on(workshop, jdk, core, annotations))
        .collect()
}

fn tomcat_on(
    workshop: &Workshop,
    jdk: &Jdk,
    core: &Path,
    annotations: &Path,
) -> Result<Server, Missing> {
    let classes = workshop.path(&format!("tomcat-{}", jdk.version));
    let mut path = classes.clone().into_os_string();
    for jar in [core, annotations] {
        path.push(":");
        path.push(jar);
    }
    let mut javac = Command::new(jdk.tool("javac"));
    javac
        .arg("-d")
        .arg(&classes)
        .arg("-cp")
        .arg(&path)
        .arg("TomcatServer.java");
    workshop.make(&mut javac).map_err(not_made)?;
    let base = workshop.path(&format!("tomcat-base-{}", jdk.version));
    let command = vec![
        jdk.tool("java"),
        "-cp".into(),
        path,
        "TomcatServer".into(),
        "{port}".into(),
        base.into(),
    ];
    let jar = core
        .file_stem()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    let title = format!("Tomcat on Java {}", jdk.major());
    Ok(http(&title, format!("{jar}, JDK {}", jdk.version), command))
}

/// Returns the newest jar of this artefact, Maven's or the distribution's.
fn newest_jar(artefact: &str) -> Option<PathBuf> {
    let home = std::env::home_dir().unwrap_or_default();
    let mut jars = Vec::new();
    for folder in ["", "embed"] {
        let versions = home.join(MAVEN).join(folder).join(artefact);
        let versions = fs::read_dir(versions).into_iter().flatten().flatten();
        jars.extend(versions.flat_map(|version| jars_in(&version.path(), artefact)));
    }
    // Debian's are called tomcat10-embed-core.jar.
    let debian = artefact.replacen("tomcat", "tomcat10", 1);
    jars.extend(jars_in(Path::new(JAVA_LIBRARIES), &debian));
    let version = |jar: &PathBuf| numbers(&jar.file_name().unwrap_or_default().to_string_lossy());
    jars.retain(|jar| version(jar).first() == Some(&10));
    jars.sort_by_cached_key(|jar| Reverse(version(jar)));
    jars.into_iter().next()
}

fn jars_in(folder: &Path, start: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let jars = entries.map(|entry| entry.path()).filter(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let is_code = !name.contains("sources") && !name.contains("javadoc");
        name.starts_with(start) && name.ends_with(".jar") && is_code
    });
    jars.collect()
}

/// The numbers in a name: 10, 1 and 31 of `tomcat-embed-core-10.1.31.jar`.
fn numbers(name: &str) -> Vec<u32> {
    let parts = name.split(|letter: char| !letter.is_ascii_digit());
    parts.filter_map(|part| part.parse().ok()).collect()
}

pub(super) fn mono(workshop: &Workshop) -> Made {
    let mono = program("mono")?;
    let made = compiled_csharp(workshop, "httpd")?;
    let toolchain = version(&mono, "--version");
    let command = vec![mono.into(), made.into(), "{port}".into()];
    Ok(vec![http("Mono, HttpListener", toolchain, command)])
}

/// Without HttpListener: in .NET that needs a certain libssl, even without encryption.
pub(super) fn dotnet(workshop: &Workshop) -> Made {
    let dotnet = program("dotnet")?;
    let made = compiled_csharp(workshop, "sockets")?;
    let toolchain = version(&dotnet, "--list-runtimes");
    let config = workshop.path("dotnet.json").into();
    let options = ["exec".into(), "--runtimeconfig".into(), config];
    let program = [made.into(), "{port}".into()];
    let command = [vec![dotnet.into()], options.into(), program.into()].concat();
    Ok(vec![http(".NET, async sockets", toolchain, command)])
}

fn compiled_csharp(workshop: &Workshop, name: &str) -> Result<PathBuf, Missing> {
    let made = workshop.path(&format!("{name}.exe"));
    let mut compile = Command::new(program("mcs")?);
    compile
        .arg(format!("-out:{}", made.display()))
        .arg(format!("{name}.cs"));
    workshop.make(&mut compile).map_err(not_made)?;
    Ok(made)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_by_their_numbers() {
        assert_eq!(numbers("tomcat-embed-core-10.1.31.jar"), [10, 1, 31]);
        assert!(numbers("a-10.1.31.jar") > numbers("a-10.1.4.jar"));
        assert_eq!(numbers("tomcat10-embed-core.jar"), [10]);
    }
}
