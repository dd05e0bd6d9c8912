//! The kinds of servers, their needs, and their start.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::{fs, io};

use super::protocol::Protocol;
use super::{daemons, mariadb, runtimes};
use crate::bench::programs::{Workshop, find};

/// A name on the command line.
pub(super) struct Kind {
    pub name: &'static str,
    pub about: &'static str,
    /// Programs without which it does not run, and how to get each.
    pub needs: &'static [Need],
    /// Finds and compiles the rest.
    pub prepare: fn(&Workshop) -> Result<Vec<Server>, Missing>,
    pub client: Client,
}

/// A program, and the Debian packages or the command that install it.
pub(super) struct Need(pub &'static str, pub &'static str);

const WRK: Need = Need("wrk", "apt-get install wrk");

/// What a server lacks, and the cure.
#[derive(Debug)]
pub(super) struct Missing {
    pub what: String,
    pub cure: String,
}

impl Missing {
    pub(super) fn new(what: impl Into<String>, cure: impl Into<String>) -> Missing {
        Missing {
            what: what.into(),
            cure: cure.into(),
        }
    }
}

/// The client that loads a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Client {
    /// wrk in windows, our own client at constant rates.
    Http,
    /// Our own client.
    Own(Protocol),
    Sysbench,
}

impl Client {
    /// Returns the protocol of our own client with the server.
    pub(super) fn protocol(self) -> Option<Protocol> {
        match self {
            Client::Http => Some(Protocol::Http),
            Client::Own(protocol) => Some(protocol),
            Client::Sysbench => None,
        }
    }
}

/// Prepares the folder of temporary files.
pub(super) type SetUp = fn(&Path) -> Result<(), String>;

/// The placeholder of the port in commands and configuration files.
pub(super) const PORT: &str = "{port}";

/// One program with its configuration.
pub(super) struct Server {
    pub title: String,
    /// Versions, for the record.
    pub toolchain: String,
    /// The program with its arguments; [`PORT`] in them is replaced.
    pub command: Vec<OsString>,
    /// Configuration files that are written before a start; [`PORT`] in them is replaced.
    pub files: Vec<(PathBuf, String)>,
    pub client: Client,
    /// Numbers of clients, unless the command line has others.
    pub clients: &'static [u32],
    /// A step before the first start.
    pub set_up: Option<SetUp>,
}

impl Server {
    pub(super) fn command(&self, port: u16) -> Vec<OsString> {
        let port = port.to_string();
        let replace = |argument: &OsString| match argument.to_str() {
            Some(text) => text.replace(PORT, &port).into(),
            None => argument.clone(),
        };
        self.command.iter().map(replace).collect()
    }

    pub(super) fn write_files(&self, port: u16) -> io::Result<()> {
        let write = |(path, text): &(PathBuf, String)| {
            fs::write(path, text.replace(PORT, &port.to_string()))
        };
        self.files.iter().try_for_each(write)
    }
}

impl Kind {
    /// Checks that the programs are installed, and that the client can do the requested load.
    pub(super) fn check(&self, constant_rate: bool) -> Result<(), Missing> {
        for Need(program, cure) in self.needs {
            if find(program).is_none() {
                return Err(Missing::new(format!("{program} is not installed"), *cure));
            }
        }
        if constant_rate && self.client.protocol().is_none() {
            Err(Missing::new(
                "its client knows no constant rate",
                "leave out --rate for it",
            ))
        } else {
            Ok(())
        }
    }
}

const MODULES: &str = "apt-get install apache2-bin";

pub(super) const KINDS: [Kind; 14] = [
    Kind {
        name: "c",
        about: "a C server with a thread for each connection",
        needs: &[Need("cc", "apt-get install build-essential"), WRK],
        prepare: runtimes::c,
        client: Client::Http,
    },
    Kind {
        name: "waiting",
        about: "the same beside 10,000 threads that sleep and poll",
        needs: &[Need("cc", "apt-get install build-essential"), WRK],
        prepare: runtimes::waiting,
        client: Client::Http,
    },
    Kind {
        name: "rust",
        about: "a Rust server with a thread for each connection",
        needs: &[Need("rustc", "apt-get install rustc"), WRK],
        prepare: runtimes::rust,
        client: Client::Http,
    },
    Kind {
        name: "memcached",
        about: "memcached with 4 threads, one key read",
        needs: &[Need("memcached", "apt-get install memcached")],
        prepare: daemons::memcached,
        client: Client::Own(Protocol::Memcached),
    },
    Kind {
        name: "redis",
        about: "Redis with threads that read and write (io-threads), one key read",
        needs: &[Need("redis-server", "apt-get install redis-server")],
        prepare: daemons::redis,
        client: Client::Own(Protocol::Redis),
    },
    Kind {
        name: "nginx",
        about: "nginx that reads files by a pool of threads (aio threads)",
        needs: &[Need("nginx", "apt-get install nginx-light"), WRK],
        prepare: daemons::nginx,
        client: Client::Http,
    },
    Kind {
        name: "apache-worker",
        about: "Apache with its worker module, a static file",
        needs: &[Need("apache2", MODULES), WRK],
        prepare: daemons::apache_worker,
        client: Client::Http,
    },
    Kind {
        name: "apache-event",
        about: "Apache with its event module, a static file",
        needs: &[Need("apache2", MODULES), WRK],
        prepare: daemons::apache_event,
        client: Client::Http,
    },
    Kind {
        name: "gunicorn",
        about: "gunicorn with one process and 16 threads (gthread)",
        needs: &[Need("gunicorn", "apt-get install gunicorn"), WRK],
        prepare: runtimes::gunicorn,
        client: Client::Http,
    },
    Kind {
        name: "tomcat",
        about: "Tomcat 10 in a small Java program, on each JDK from 17",
        needs: &[WRK],
        prepare: runtimes::tomcat,
        client: Client::Http,
    },
    Kind {
        name: "mono",
        about: "HttpListener on Mono",
        needs: &[
            Need("mono", "apt-get install mono-runtime"),
            Need("mcs", "apt-get install mono-mcs"),
            WRK,
        ],
        prepare: runtimes::mono,
        client: Client::Http,
    },
    Kind {
        name: "dotnet",
        about: "async sockets on .NET",
        needs: &[
            Need("dotnet", "install .NET's runtime from https://dot.net"),
            Need("mcs", "apt-get install mono-mcs"),
            WRK,
        ],
        prepare: runtimes::dotnet,
        client: Client::Http,
    },
    Kind {
        name: "mariadb",
        about: "MariaDB under sysbench's point selects, 1, 16, 128 and 400 clients",
        needs: mariadb::NEEDS,
        prepare: mariadb::server,
        client: Client::Sysbench,
    },
    Kind {
        name: "python",
        about: "CPython's http.server with a thread for each connection",
        needs: &[Need("python3", "apt-get install python3"), WRK],
        prepare: runtimes::python,
        client: Client::Http,
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_put_into_commands() {
        let server = Server {
            title: String::new(),
            toolchain: String::new(),
            command: ["prog", "--listen=127.0.0.1:{port}", "{port}"]
                .map(OsString::from)
                .into(),
            files: Vec::new(),
            client: Client::Http,
            clients: &[1],
            set_up: None,
        };
        assert_eq!(
            server.command(8080),
            ["prog", "--listen=127.0.0.1:8080", "8080"]
        );
    }

    #[test]
    fn names_are_unique_and_clients_know_what_they_can() {
        for (index, kind) in KINDS.iter().enumerate() {
            assert!(KINDS[..index].iter().all(|other| other.name != kind.name));
        }
        let kind = KINDS.iter().find(|kind| kind.name == "mariadb").unwrap();
        assert!(kind.check(true).is_err());
    }
}
