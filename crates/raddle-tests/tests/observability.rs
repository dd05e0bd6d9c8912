//! The examples of `docs/observability.md`: each command is executed, and its output has the shape
//! that the text shows.
//!
//! A block of the text begins with a line of three backquotes and `console`. Its lines that begin
//! with `$ ` are commands, and those that follow one are its output. All blocks are executed in one
//! folder, each by one shell, from which programs in the background have gone when it ends. The
//! shape of a line is its words, without the numbers in them; of carriers and of kernel threads
//! only the number of a line counts, since they do something else each time. Lines may come in any
//! order: threads begin as they like.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use raddle_tests::{Missing, RunFolder, find_tool, or_skip, raddle, say};

/// A command, and the output that the text shows below it.
#[derive(Debug)]
struct Example {
    command: String,
    output: Vec<String>,
}

/// Returns the examples of each block.
fn blocks(text: &str) -> Vec<Vec<Example>> {
    let mut blocks = Vec::new();
    let mut lines = text.lines();
    while lines.by_ref().any(|line| line == "```console") {
        let mut block: Vec<Example> = Vec::new();
        let mut goes_on = false;
        for line in lines.by_ref().take_while(|line| *line != "```") {
            if let Some(command) = line.strip_prefix("$ ") {
                block.push(Example {
                    command: command.to_owned(),
                    output: Vec::new(),
                });
            } else if let Some(last) = block.last_mut() {
                if goes_on {
                    last.command.push('\n');
                    last.command.push_str(line);
                } else {
                    last.output.push(line.to_owned());
                }
            }
            let is_command = goes_on || line.starts_with("$ ");
            goes_on = is_command && (line.ends_with('\\') || line.ends_with('|'));
        }
        blocks.push(block);
    }
    blocks
}

/// Returns the shell's text for a block: each command's output goes to a file of its own.
fn script(block: &[Example]) -> String {
    let mut text = String::from("trap 'kill $(jobs -p) 2>/dev/null' EXIT\n");
    for (number, example) in block.iter().enumerate() {
        let command = &example.command;
        if let Some(program) = command.strip_suffix('&') {
            // It says that it is ready, or serves soon.
            let _ = write!(
                text,
                "{program} >out.{number} 2>err.{number} </dev/null &\n\
                 for i in $(seq 100); do grep -q ready out.{number} && break; sleep 0.02; done\n\
                 sleep 0.5\n"
            );
        } else {
            let _ = write!(
                text,
                "{{ {command}\n}} >out.{number} 2>err.{number} </dev/null\n"
            );
        }
    }
    text
}

/// Returns a line without what differs from run to run.
fn shape(line: &str, width: Option<usize>) -> Option<String> {
    let line = line.trim_end();
    let words: Vec<&str> = line.split_whitespace().collect();
    let is_number = |word: &str| word.starts_with(|it: char| it.is_ascii_digit());
    match words.as_slice() {
        [] => return None,
        ["carrier", ..] => return Some("carrier".into()),
        // Sentences about a busy machine.
        ["the", "longest", "wait", ..] | ["other", "processes", ..] => return None,
        [_, _, "has", "been", "runnable", ..] => return None,
        // gdb's list of kernel threads, and the frame of the selected one.
        ["*", number, "Thread" | "LWP", ..] | [number, "Thread" | "LWP", ..]
            if is_number(number) =>
        {
            return Some("kernel thread".into());
        }
        _ => {}
    }
    let mut shape = String::new();
    let mut characters = line.chars().peekable();
    while let Some(character) = characters.next() {
        if character == '0' && characters.peek() == Some(&'x') {
            characters.next();
            while characters.next_if(char::is_ascii_hexdigit).is_some() {}
            shape.push_str("0xN");
        } else if character.is_ascii_digit() {
            while characters
                .next_if(|it| it.is_ascii_digit() || *it == '.')
                .is_some()
            {}
            shape.push('N');
        } else if character.is_whitespace() {
            if !shape.ends_with(' ') {
                shape.push(' ');
            }
        } else {
            shape.push(character);
        }
    }
    // A line that was cut at its end is compared as far as it is sure to be whole.
    const WHOLE: usize = 40;
    if let Some(at) = shape.find(" green threads, ") {
        shape.truncate(at);
    } else if width.is_some() {
        shape = shape.chars().take(WHOLE).collect();
    }
    Some(shape.trim_end().to_owned())
}

/// Returns the shapes of an output, of which the command has cut the lines if it says so.
fn shapes<'a>(lines: impl Iterator<Item = &'a str>, command: &str) -> BTreeSet<String> {
    let width = command.split("cut -c1-").nth(1);
    let width = width.and_then(|it| it.split_whitespace().next()?.parse().ok());
    lines.filter_map(|line| shape(line, width)).collect()
}

/// Returns the first tool that a block needs and the machine lacks.
fn missing(block: &[Example]) -> Option<String> {
    const TOOLS: [&str; 5] = ["memcached", "gdb", "jq", "cc", "java"];
    let names = |tool: &str| {
        let mut words = block.iter().flat_map(|it| it.command.split_whitespace());
        words.any(|word| word == tool)
    };
    let mut needed = TOOLS.into_iter().filter(|tool| names(tool));
    let lacks = needed.find(|tool| find_tool(tool).is_err())?;
    Some(lacks.to_owned())
}

/// Returns why a core file of a crash would not be in the folder.
fn cores_elsewhere(block: &[Example]) -> Result<Option<String>> {
    if !block.iter().any(|it| it.command.contains("ulimit -c")) {
        return Ok(None);
    }
    let pattern = fs::read_to_string("/proc/sys/kernel/core_pattern")?;
    let is_here = pattern.trim() == "core";
    Ok((!is_here).then(|| format!("core files by the name core ({})", pattern.trim())))
}

fn run_block(folder: &Path, block: &[Example]) -> Result<()> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let tools = folder.join("tools");
    let paths = [tools].into_iter().chain(std::env::split_paths(&path));
    let status = Command::new("timeout")
        .args(["-k", "5", "120", "bash", "-c", &script(block)])
        .current_dir(folder)
        .env("PATH", std::env::join_paths(paths)?)
        .env("DEBUGINFOD_URLS", "")
        .stdin(Stdio::null())
        .status()?;
    ensure!(status.code() != Some(124), "it takes too long: {block:#?}");
    for (number, example) in block.iter().enumerate() {
        let output =
            String::from_utf8_lossy(&fs::read(folder.join(format!("out.{number}")))?).into_owned();
        let errors = fs::read_to_string(folder.join(format!("err.{number}"))).unwrap_or_default();
        let command = &example.command;
        let refused = errors.lines().find(|line| line.starts_with("raddle: "));
        ensure!(refused.is_none(), "{command}: {errors}");
        if example.output.is_empty() {
            continue;
        }
        let wanted = shapes(example.output.iter().map(String::as_str), command);
        let found = shapes(output.lines(), command);
        if command.contains("gdb") {
            // Versions of gdb differ in their words: the last line is the program's.
            let last = shapes(
                example.output.last().map(String::as_str).into_iter(),
                command,
            );
            ensure!(
                last.is_subset(&found),
                "{command}: no {last:?} in\n{output}{errors}"
            );
            continue;
        }
        let lacks: Vec<_> = wanted.difference(&found).collect();
        let more: Vec<_> = found.difference(&wanted).collect();
        ensure!(
            lacks.is_empty() && more.is_empty(),
            "{command}\nin the text and not in the output: {lacks:#?}\n\
             in the output and not in the text: {more:#?}\n{output}{errors}"
        );
    }
    Ok(())
}

fn check(skipped: &mut Vec<String>) -> Result<usize> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()?;
    let text = fs::read_to_string(root.join("docs/observability.md"))?;
    let blocks = blocks(&text);
    let folder = RunFolder::new("observability")?;
    let folder = folder.path();
    symlink(root.join("crates"), folder.join("crates"))?;
    fs::create_dir(folder.join("tools"))?;
    symlink(raddle()?, folder.join("tools/raddle"))?;
    let mut run = 0;
    for block in &blocks {
        let first = &block.first().context("a block has a command")?.command;
        let lacks = match missing(block) {
            None => cores_elsewhere(block)?,
            lacks => lacks,
        };
        match lacks {
            Some(lacks) => skipped.push(format!("{first}: no {lacks}")),
            None => {
                run_block(folder, block).with_context(|| first.clone())?;
                run += 1;
            }
        }
    }
    if run == 0 {
        bail!(Missing("all that the examples need".into()));
    }
    Ok(run)
}

#[test]
fn examples_do_what_the_text_shows() {
    let name = "observability::examples_do_what_the_text_shows";
    let mut skipped = Vec::new();
    if let Some(run) = or_skip(name, check(&mut skipped)) {
        let count = skipped.len();
        say(&format!(
            "{name}: {run} blocks executed, {count} skipped: {skipped:?}"
        ));
    }
}

#[test]
fn shapes_are_words_without_numbers() {
    let lines = [
        "#183442476  \"condition-0\"  waiting  condvar 0x55d1a43fe140  since 0.988s",
        "carrier 0  kernel tid 5459  polling  runs nothing",
        "process 5459: 5 green threads, 1 carrier and 1 spare, up 0.991s",
        "",
    ];
    let found = shapes(lines.into_iter(), "raddle dump 1");
    let wanted = [
        "#N \"condition-N\" waiting condvar 0xN since Ns",
        "carrier",
        "process N: N",
    ];
    assert_eq!(found, BTreeSet::from(wanted.map(str::to_owned)));
    let text = "```console\n$ a \\\n  b\nsays 1\n$ c &\n```\n";
    let [block] = blocks(text).try_into().unwrap();
    assert_eq!(
        (block[0].command.as_str(), block[0].output.len()),
        ("a \\\n  b", 1)
    );
    assert!(block[1].output.is_empty() && script(&block).contains("c  >out.1"));
}
