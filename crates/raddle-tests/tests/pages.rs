//! The pages of `raddle record` and `raddle report`, opened in a browser without a network: the
//! viewer shows the profile, nothing is loaded, and no script runs but the viewer's.
//!
//! The browser's word for it is its document after the scripts have run, and its console.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use raddle_tests::{Mode, Program, RunFolder, find_tool, in_every_mode, raddle};

/// Browsers that draw without a screen.
const BROWSERS: [&str; 4] = [
    "chromium-headless-shell",
    "chromium",
    "google-chrome",
    "chromium-browser",
];

/// What the viewer says when all is well.
const EXPECTED: [&str; 4] = [
    "\"speedscope v",
    "\"WebGL initialized.",
    "\"Importing as speedscope json file\"",
    "\"import: ",
];

fn browser() -> Result<PathBuf> {
    let found = BROWSERS.iter().find_map(|name| find_tool(name).ok());
    match found {
        Some(path) => Ok(path),
        None => find_tool(BROWSERS[0]),
    }
}

/// Opens a page, in a view of the viewer's. No name has an address in this browser.
fn open(page: &Path, view: &str, flag: &str) -> Result<(String, String)> {
    let profile = page.with_extension("browser");
    let output = Command::new("timeout")
        .arg("120")
        .arg(browser()?)
        .args(["--headless", "--no-sandbox", "--disable-dev-shm-usage"])
        .args(["--use-angle=swiftshader", "--enable-unsafe-swiftshader"])
        .args(["--host-resolver-rules=MAP * ~NOTFOUND", "--no-first-run"])
        .args(["--window-size=1200,600", "--virtual-time-budget=30000"])
        .args(["--enable-logging=stderr", flag])
        .arg(format!("--user-data-dir={}", profile.display()))
        .arg(format!("file://{}#view={view}", page.display()))
        .stdin(Stdio::null())
        .output()?;
    ensure!(output.status.success(), "{output:?}");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok((text(&output.stdout), text(&output.stderr)))
}

/// Checks that the page's console has what the viewer says, and nothing else.
fn check_console(log: &str) -> Result<()> {
    let lines: Vec<&str> = log.lines().filter(|it| it.contains(":CONSOLE")).collect();
    for line in &lines {
        ensure!(
            EXPECTED.iter().any(|expected| line.contains(expected)),
            "the console says {line}"
        );
    }
    for expected in EXPECTED {
        ensure!(
            lines.iter().any(|line| line.contains(expected)),
            "the console lacks {expected} in {lines:?}"
        );
    }
    Ok(())
}

/// Returns what the viewer has made: the document without scripts, styles and the summary.
fn viewer(document: &str) -> String {
    let mut rest = document.to_owned();
    for (begin, end) in [
        ("<script", "</script>"),
        ("<style", "</style>"),
        ("<details", "</details>"),
        ("<!--", "-->"),
    ] {
        while let Some(at) = rest.find(begin) {
            let length = rest[at..]
                .find(end)
                .map_or(rest.len() - at, |it| it + end.len());
            rest.replace_range(at..at + length, "");
        }
    }
    rest
}

/// Records the program, and returns the page and the recording.
fn record(folder: &RunFolder, carriers: u16) -> Result<(PathBuf, PathBuf)> {
    let program = Program::build("pages.c")?;
    let variant = program.variants.first().context("a program")?;
    let [page, recording] = ["a.html", "a.pb.gz"].map(|name| folder.path().join(name));
    let output = Command::new(raddle()?)
        .args(["record", "-F", "999", "-o"])
        .arg(&page)
        .arg("-o")
        .arg(&recording)
        .arg("--")
        .args(&variant.command)
        .arg("1.5")
        .env("RADDLE_CARRIERS", carriers.to_string())
        .output()?;
    ensure!(output.status.success() && page.is_file(), "{output:?}");
    Ok((page, recording))
}

fn under_raddle(name: &str, test: impl Fn(&RunFolder, u16) -> Result<()>) {
    in_every_mode(name, |mode| match mode {
        Mode::Raddle { carriers } => {
            browser()?;
            test(&RunFolder::new(&format!("{name}-{mode}"))?, carriers)
        }
        Mode::Native => Ok(()),
    });
}

#[test]
fn a_page_shows_the_profile_in_a_browser_without_a_network() {
    let name = "pages::a_page_shows_the_profile_in_a_browser_without_a_network";
    under_raddle(name, |folder, carriers| {
        let (page, _) = record(folder, carriers)?;
        let (document, log) = open(&page, "sandwich", "--dump-dom")?;
        check_console(&log)?;
        let shown = viewer(&document);
        for part in [
            "compute_for_the_page",
            "wait_for_the_page",
            "&lt;/script&gt;&lt;b&gt;&amp;",
            "waits by object",
        ] {
            ensure!(shown.contains(part), "no {part} in {shown}");
        }
        ensure!(!shown.contains("<b>"), "a name is a tag in {shown}");
        ensure!(
            document.contains("<title>program: raddle record</title>"),
            "the title"
        );
        let picture = folder.path().join("page.png");
        let flag = format!("--screenshot={}", picture.display());
        let (_, log) = open(&page, "left-heavy", &flag)?;
        check_console(&log)?;
        let length = fs::metadata(&picture)?.len();
        ensure!(length > 10_000, "a picture of {length} bytes");
        Ok(())
    });
}

#[test]
fn what_a_page_may_not_do_is_seen_here() {
    let name = "pages::what_a_page_may_not_do_is_seen_here";
    under_raddle(name, |folder, carriers| {
        if carriers != 1 {
            return Ok(()); // the policy does not depend on the program
        }
        let (page, _) = record(folder, carriers)?;
        let text = fs::read_to_string(&page)?;
        for (number, foreign) in [
            "<script>console.log('foreign')</script>",
            "<img src=\"http://127.0.0.1/a.png\">",
            "<link rel=stylesheet href=\"http://127.0.0.1/a.css\">",
            "<iframe src=\"http://127.0.0.1/\"></iframe>",
            "<img src=x onerror=\"console.log('foreign')\">",
        ]
        .iter()
        .enumerate()
        {
            let changed = page.with_file_name(format!("changed-{number}.html"));
            fs::write(
                &changed,
                text.replacen("<body>", &format!("<body>{foreign}"), 1),
            )?;
            let (_, log) = open(&changed, "sandwich", "--dump-dom")?;
            let Err(error) = check_console(&log) else {
                bail!("{foreign} was not noticed");
            };
            let error = error.to_string();
            ensure!(
                error.contains("Content Security Policy"),
                "{foreign}: {error}"
            );
            ensure!(!log.contains("\"foreign\""), "{foreign} was executed");
        }
        Ok(())
    });
}

#[test]
fn a_page_of_a_comparison_shows_what_changed() {
    let name = "pages::a_page_of_a_comparison_shows_what_changed";
    under_raddle(name, |folder, carriers| {
        let (_, before) = record(folder, carriers)?;
        let other = RunFolder::new(&format!("{name}-{carriers}-after"))?;
        let (_, after) = record(&other, carriers)?;
        let page = folder.path().join("changes.html");
        let mut report = Command::new(raddle()?);
        report
            .arg("report")
            .args([&before, &after])
            .arg("-o")
            .arg(&page);
        let output = report.output()?;
        ensure!(output.status.success(), "{output:?}");
        let (document, log) = open(&page, "sandwich", "--dump-dom")?;
        check_console(&log)?;
        let shown = viewer(&document);
        let has_changes = shown.contains("grew, off CPU") || shown.contains("shrank, off CPU");
        ensure!(has_changes && shown.contains("before"), "{shown}");
        Ok(())
    });
}
