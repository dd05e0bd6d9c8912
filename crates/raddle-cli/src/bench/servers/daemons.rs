//! Servers that are installed as they are: memcached, Redis, nginx, Apache.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::catalog::{Client, Missing, Server};
use super::protocol::Protocol;
use crate::bench::programs::{Workshop, find, version};
use crate::machine::cpus_allowed;

pub(super) const CLIENTS: &[u32] = &[64];
/// The size of the static file.
const FILE_BYTES: usize = 4096;
/// Where distributions put Apache's modules.
const MODULES: [&str; 3] = [
    "/usr/lib/apache2/modules",
    "/usr/lib64/httpd/modules",
    "/usr/lib/httpd/modules",
];
/// The user for servers that refuse to run as root.
const NOBODY: &str = "nobody";

pub(super) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// The path of a program that [`Kind::check`](super::catalog::Kind::check) has found.
pub(super) fn program(name: &str) -> Result<PathBuf, Missing> {
    find(name).ok_or_else(|| Missing::new(format!("{name} is not installed"), "install it"))
}

/// A server without a configuration file.
fn plain(
    name: &str,
    title: &str,
    flag: &str,
    arguments: Vec<String>,
    protocol: Protocol,
) -> Result<Vec<Server>, Missing> {
    let path = program(name)?;
    let toolchain = version(&path, flag);
    let mut command: Vec<OsString> = vec![path.into()];
    command.extend(arguments.into_iter().map(OsString::from));
    Ok(vec![Server {
        title: title.into(),
        toolchain,
        command,
        files: Vec::new(),
        client: Client::Own(protocol),
        clients: CLIENTS,
        set_up: None,
    }])
}

pub(super) fn memcached(_: &Workshop) -> Result<Vec<Server>, Missing> {
    let mut words = words("-t 4 -l 127.0.0.1 -p {port} -U 0 -c 16384");
    if is_root() {
        words.extend(["-u".into(), "root".into()]);
    }
    plain(
        "memcached",
        "memcached -t 4",
        "-V",
        words,
        Protocol::Memcached,
    )
}

/// With as many threads as CPUs: they spin for each other, so more threads would only slow each
/// other down.
pub(super) fn redis(_: &Workshop) -> Result<Vec<Server>, Missing> {
    let threads = cpus_allowed().clamp(2, 4);
    let flags = "--port {port} --bind 127.0.0.1 --appendonly no --io-threads-do-reads yes";
    let mut words = words(&format!("{flags} --io-threads {threads} --save"));
    words.push(String::new()); // never
    let title = format!("Redis, --io-threads {threads}");
    plain("redis-server", &title, "--version", words, Protocol::Redis)
}

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(String::from).collect()
}

/// A folder with a static file in it, which every user can read.
fn documents(folder: &Path) -> Result<PathBuf, Missing> {
    let documents = folder.join("documents");
    let write = || -> io::Result<()> {
        let file = documents.join("index.html");
        fs::create_dir_all(&documents)?;
        fs::write(&file, "x".repeat(FILE_BYTES))?;
        for (path, mode) in [(folder, 0o755), (&documents, 0o755), (&file, 0o644)] {
            fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
        }
        Ok(())
    };
    write().map(|()| documents.clone()).map_err(|error| {
        Missing::new(
            format!("its files can't be written ({error})"),
            "point TMPDIR to a folder that you can write to",
        )
    })
}

pub(super) fn nginx(workshop: &Workshop) -> Result<Vec<Server>, Missing> {
    let path = program("nginx")?;
    let folder = workshop.path("");
    let documents = documents(&folder)?;
    let user = if is_root() { "user root;\n" } else { "" };
    let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|kind| format!("  {kind}_temp_path {}/nginx-{kind};\n", folder.display()))
        .concat();
    let text = format!(
        "{user}daemon off;\nworker_processes auto;\npid {folder}/nginx.pid;\n\
         error_log stderr error;\nevents {{ worker_connections 16384; }}\nhttp {{\n{temporary}  \
         access_log off;\n  keepalive_requests 1000000000;\n  aio threads;\n  sendfile off;\n  \
         server {{\n    listen 127.0.0.1:{{port}} backlog=4096;\n    root {documents};\n  }}\n}}\n",
        folder = folder.display(),
        documents = documents.display(),
    );
    let configuration = folder.join("nginx.conf");
    Ok(vec![Server {
        title: "nginx, aio threads".into(),
        toolchain: version(&path, "-v"),
        command: vec![
            path.into(),
            "-e".into(),
            "stderr".into(),
            "-c".into(),
            configuration.clone().into(),
        ],
        files: vec![(configuration, text)],
        client: Client::Http,
        clients: CLIENTS,
        set_up: None,
    }])
}

pub(super) fn apache_worker(workshop: &Workshop) -> Result<Vec<Server>, Missing> {
    apache(workshop, "worker")
}

pub(super) fn apache_event(workshop: &Workshop) -> Result<Vec<Server>, Missing> {
    apache(workshop, "event")
}

fn apache(workshop: &Workshop, kind: &str) -> Result<Vec<Server>, Missing> {
    let path = program("apache2")?;
    let module = |folder: &&str, name: &str| Path::new(folder).join(format!("mod_{name}.so"));
    let kind_module = format!("mpm_{kind}");
    let modules = MODULES
        .iter()
        .find(|folder| module(folder, &kind_module).is_file());
    let modules = modules.ok_or_else(|| {
        Missing::new(
            format!("Apache's module mpm_{kind} is not there"),
            "apt-get install apache2-bin",
        )
    })?;
    let folder = workshop.path("");
    let user = if is_root() {
        format!("User {NOBODY}\nGroup nogroup\n")
    } else {
        String::new()
    };
    let text = format!(
        "ServerName localhost\nServerRoot {folder}\nDefaultRuntimeDir {folder}\n\
         PidFile {folder}/apache.pid\nListen 127.0.0.1:{{port}}\nListenBacklog 4096\n\
         LoadModule {kind_module}_module {mpm}\nLoadModule authz_core_module {authz}\n\
         LoadModule dir_module {dir}\n{user}ErrorLog /dev/stderr\nLogLevel error\n\
         DocumentRoot {documents}\nDirectoryIndex index.html\n\
         KeepAlive On\nMaxKeepAliveRequests 0\nKeepAliveTimeout 60\n\
         StartServers 2\nServerLimit 16\nThreadsPerChild 64\nMaxRequestWorkers 1024\n",
        folder = folder.display(),
        mpm = module(modules, &kind_module).display(),
        authz = module(modules, "authz_core").display(),
        dir = module(modules, "dir").display(),
        documents = documents(&folder)?.display(),
    );
    let configuration = folder.join(format!("apache-{kind}.conf"));
    let mut command: Vec<OsString> = vec![path.clone().into()];
    command.extend(["-D", "FOREGROUND", "-f"].map(OsString::from));
    command.push(configuration.clone().into());
    Ok(vec![Server {
        title: format!("Apache, {kind}"),
        toolchain: version(&path, "-v"),
        command,
        files: vec![(configuration, text)],
        client: Client::Http,
        clients: CLIENTS,
        set_up: None,
    }])
}
