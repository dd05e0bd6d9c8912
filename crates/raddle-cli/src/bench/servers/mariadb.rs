//! MariaDB with a data folder of its own, under sysbench's point selects.

use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use super::catalog::{Client, Missing, Need, Server};
use super::daemons::{is_root, program};
use super::running::Running;
use super::sysbench;
use crate::bench::process::{self, Way};
use crate::bench::programs::{Workshop, version};

const CLIENTS: &[u32] = &[1, 16, 128, 400];
const SET_UP: Duration = Duration::from_secs(120);
const DATA: &str = "mariadb";

const PACKAGE: &str = "apt-get install mariadb-server";
pub(super) const NEEDS: &[Need] = &[
    Need("mariadbd", PACKAGE),
    Need("mariadb-install-db", PACKAGE),
    Need("mariadb", PACKAGE),
    Need("sysbench", "apt-get install sysbench"),
];

pub(super) fn server(workshop: &Workshop) -> Result<Vec<Server>, Missing> {
    made(&workshop.path("")).map(|server| vec![server])
}

fn made(folder: &Path) -> Result<Server, Missing> {
    let path = program("mariadbd")?;
    let mut command: Vec<OsString> = vec![path.clone().into(), "--no-defaults".into()];
    for (flag, file) in [
        ("datadir", DATA),
        ("socket", "mariadb.sock"),
        ("pid-file", "mariadb.pid"),
    ] {
        command.push(format!("--{flag}={}", folder.join(file).display()).into());
    }
    let flags = "--port={port} --bind-address=127.0.0.1 --skip-name-resolve --skip-log-bin \
                 --max-connections=10000 --innodb-buffer-pool-size=256M";
    command.extend(flags.split_whitespace().map(OsString::from));
    command.extend(user());
    Ok(Server {
        title: "MariaDB".into(),
        toolchain: version(&path, "--version"),
        command,
        files: Vec::new(),
        client: Client::Sysbench,
        clients: CLIENTS,
        set_up: Some(set_up),
    })
}

/// Returns the user option: MariaDB refuses to run as root without it.
fn user() -> Option<OsString> {
    is_root().then(|| "--user=root".into())
}

/// Makes the data folder, and fills the table while a native server runs.
fn set_up(folder: &Path) -> Result<(), String> {
    let missing = |missing: Missing| missing.what;
    let mut install = Command::new(program("mariadb-install-db").map_err(missing)?);
    install
        .arg("--no-defaults")
        .arg(format!("--datadir={}", folder.join(DATA).display()))
        .args(["--auth-root-authentication-method=normal", "--skip-test-db"])
        .args(user())
        .stdin(Stdio::null());
    process::output(Way::NativeAll, &mut install, SET_UP)?;
    let server = made(folder).map_err(missing)?;
    let running = Running::start(&server, Way::NativeAll, None, Path::new(""), folder)?;
    let mut create = Command::new(program("mariadb").map_err(missing)?);
    create
        .args(["--no-defaults", "--host=127.0.0.1", "--user=root"])
        .arg(format!("--port={}", running.port))
        .args(["--execute", "CREATE DATABASE sbtest"])
        .stdin(Stdio::null());
    process::output(Way::NativeAll, &mut create, SET_UP)?;
    sysbench::prepare(running.port)?;
    running.stop()
}
