//! `raddle metrics --listen`, and what its pages say.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use raddle_tests::raddle;

/// The value of the only row that begins so.
pub(crate) fn value(page: &str, beginning: &str) -> Result<f64> {
    let rows: Vec<&str> = page
        .lines()
        .filter(|row| row.starts_with(beginning))
        .collect();
    let [row] = rows.as_slice() else {
        bail!("{beginning}: {rows:?}");
    };
    let value = row.rsplit(' ').next().context("a value")?;
    Ok(value.parse()?)
}

/// The sum of the rows of a metric that contain `part`.
pub(crate) fn sum(page: &str, metric: &str, part: &str) -> f64 {
    let rows = page.lines().filter(|row| {
        let is_it = row
            .strip_prefix(metric)
            .is_some_and(|rest| rest.starts_with('{'));
        is_it && row.contains(part)
    });
    rows.filter_map(|row| row.rsplit(' ').next()?.parse::<f64>().ok())
        .sum()
}

/// The counters of a page, histograms included, by their names with labels.
pub(crate) fn counters(page: &str) -> BTreeMap<String, f64> {
    let rows = page.lines().filter(|row| !row.starts_with('#'));
    let rows = rows.filter_map(|row| {
        let (name, value) = row.rsplit_once(' ')?;
        let metric = name.split('{').next()?;
        let counts = ["_total", "_bucket", "_count", "_sum"];
        let is_counter = counts.iter().any(|end| metric.ends_with(end));
        is_counter.then(|| Some((name.to_owned(), value.parse().ok()?)))?
    });
    rows.collect()
}

/// Fails if a counter is gone, or is less than before.
pub(crate) fn ensure_no_fall(
    before: &BTreeMap<String, f64>,
    now: &BTreeMap<String, f64>,
) -> Result<()> {
    for (row, value) in before {
        let now = now.get(row);
        ensure!(
            now.is_some_and(|now| now >= value),
            "{row}: {value}, then {now:?}"
        );
    }
    Ok(())
}

/// An exporter that serves.
pub(crate) struct Exporter {
    child: Child,
    pub address: SocketAddr,
}

impl Exporter {
    pub(crate) fn start(arguments: &[&str]) -> Result<Exporter> {
        let mut child = Command::new(raddle()?)
            .args(["metrics", "--listen", "0"])
            .args(arguments)
            .stderr(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        let errors = child.stderr.take().context("a pipe")?;
        BufReader::new(errors).read_line(&mut line)?;
        let address = line.trim().strip_prefix("raddle: metrics at http://");
        let address = address.and_then(|it| it.strip_suffix("/metrics"));
        let address = address.with_context(|| line.clone())?.parse()?;
        Ok(Exporter { child, address })
    }

    pub(crate) fn connect(&self) -> Result<TcpStream> {
        Ok(TcpStream::connect(self.address)?)
    }

    /// Returns the head and the body of the answer.
    pub(crate) fn get(&self, path: &str) -> Result<(String, String)> {
        self.ask(&format!("GET {path} HTTP/1.1\r\nHost: here\r\n\r\n"))
    }

    /// As [`Exporter::get`], of any request.
    pub(crate) fn ask(&self, request: &str) -> Result<(String, String)> {
        let mut stream = self.connect()?;
        stream.write_all(request.as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        let (head, body) = answer.split_once("\r\n\r\n").context("a head")?;
        Ok((head.to_owned(), body.to_owned()))
    }

    pub(crate) fn page(&self) -> Result<String> {
        let (head, page) = self.get("/metrics")?;
        ensure!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
        ensure!(
            head.contains("application/openmetrics-text; version=1.0.0"),
            "{head}"
        );
        ensure!(page.ends_with("# EOF\n"), "{page}");
        Ok(page)
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
