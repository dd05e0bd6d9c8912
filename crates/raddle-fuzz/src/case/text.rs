//! A case as text, one fact a line: what the corpus holds and what executors read.
//!
//! ```text
//! threads 2 futex              threads besides the main one, and what they do when idle
//! blocked 0x200                the main thread's signal mask
//! open pipe 10 11 nonblock     a resource: kind, numbers, state
//! handler 10 0x10000000        a signal with a handler, sa_flags; or: ignore 13
//! put P0+0x10 u32 10           stored before the next step's call; or: put P0+0x10 hex 00ff
//! main inline read(10, P0+0x10, 64)
//! after 10 a1 libc write(11, P0, 4)
//! ```

use std::fmt::Write as _;

use anyhow::{Context, Result, bail, ensure};

use super::{
    CHILDREN, Call, Case, Data, Event, Handler, Idle, Kind, LAST_THREAD, PAGES, Place, Put,
    Resource, STARTS, Site, State, Step, Value, agent_name, agent_of,
};
use crate::calls;

const IDLES: [(Idle, &str); 3] = [
    (Idle::Futex, "futex"),
    (Idle::Sleep, "sleep"),
    (Idle::Spin, "spin"),
];

const SITES: [(Site, &str); 5] = [
    (Site::Libc, "libc"),
    (Site::Syscall, "syscall"),
    (Site::Inline, "inline"),
    (Site::Vector, "vector"),
    (Site::Register, "register"),
];

fn word_of<T: Copy + PartialEq>(list: &[(T, &'static str)], item: T) -> &'static str {
    let found = list.iter().find(|(candidate, _)| *candidate == item);
    found.map_or("", |(_, word)| word)
}

fn item_of<T: Copy>(list: &[(T, &str)], word: &str) -> Result<T> {
    let found = list.iter().find(|(_, candidate)| *candidate == word);
    let (item, _) = found.with_context(|| format!("`{word}` is no known word"))?;
    Ok(*item)
}

/// Writes a case.
pub fn to_text(case: &Case) -> String {
    let mut text = format!("threads {} {}\n", case.threads, word_of(&IDLES, case.idle));
    if case.blocked != 0 {
        let _ = writeln!(text, "blocked {:#x}", case.blocked);
    }
    for Resource {
        kind,
        numbers: [first, second],
        state,
    } in &case.resources
    {
        let _ = write!(text, "open {} {first} {second}", kind.word());
        for state in state {
            let _ = write!(text, " {}", state.word());
        }
        text.push('\n');
    }
    for handler in &case.handlers {
        let _ = if handler.ignore {
            writeln!(text, "ignore {}", handler.signal)
        } else {
            writeln!(text, "handler {} {:#x}", handler.signal, handler.flags)
        };
    }
    for step in &case.steps {
        for Put { at, data } in &step.puts {
            let _ = write!(text, "put {} ", value_text(Value::Place(*at)));
            let _ = match data {
                Data::Number(bytes, value) => {
                    writeln!(text, "u{} {}", bytes * 8, value_text(*value))
                }
                Data::Bytes(bytes) => writeln!(text, "hex {}", hex(bytes)),
                Data::Deadline(clock, ms) => writeln!(text, "deadline:{clock} {ms}"),
            };
        }
        let _ = writeln!(text, "{}", call_text(&step.call));
        for event in &step.events {
            let _ = writeln!(text, "after {} {}", event.after_ms, call_text(&event.call));
        }
    }
    text
}

fn call_text(call: &Call) -> String {
    let arguments: Vec<_> = call
        .arguments
        .iter()
        .map(|&value| value_text(value))
        .collect();
    format!(
        "{} {} {}({})",
        agent_name(call.agent),
        word_of(&SITES, call.site),
        call.spec.name,
        arguments.join(", ")
    )
}

pub(super) fn value_text(value: Value) -> String {
    match value {
        Value::Int(number) => int_text(number),
        Value::Place(place) => place_text(place),
        Value::Load(place) => format!("[{}]", place_text(place)),
        Value::LoadLong(place) => format!("{{{}}}", place_text(place)),
        Value::Start(index) => format!("start:{index}"),
        Value::Result(step) => format!("r{step}"),
        Value::Pid => "pid".into(),
        Value::Parent => "parent".into(),
        Value::Tid(agent) => format!("tid:{}", agent_name(agent)),
        Value::Child(child) => format!("child:{child}"),
        Value::Stack(agent, offset) => {
            format!("stack:{}{}", agent_name(agent), offset_text(offset, true))
        }
        Value::Pthread(agent) => format!("pthread:{}", agent_name(agent)),
        Value::Handler => "handler".into(),
        Value::Restorer => "restorer".into(),
        Value::Queue => "queue".into(),
        Value::Semaphores => "semaphores".into(),
    }
}

fn int_text(number: u64) -> String {
    match number as i64 {
        signed @ -4096..=4096 => signed.to_string(),
        _ => format!("{number:#x}"),
    }
}

fn place_text(place: Place) -> String {
    format!("P{}{}", place.page, offset_text(place.offset, false))
}

fn offset_text(offset: i32, always: bool) -> String {
    match offset {
        0 if !always => String::new(),
        0.. => format!("+{offset:#x}"),
        _ => format!("-{:#x}", offset.unsigned_abs()),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Reads a case; lines that are empty or begin with `#` mean nothing.
///
/// # Errors
/// Names the first line that is no part of a case.
pub fn parse(text: &str) -> Result<Case> {
    let mut case = Case::default();
    let mut puts = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        parse_line(line, &mut case, &mut puts)
            .with_context(|| format!("line {}: {line}", index + 1))?;
    }
    ensure!(puts.is_empty(), "nothing follows the last `put`");
    Ok(case)
}

fn parse_line(line: &str, case: &mut Case, puts: &mut Vec<Put>) -> Result<()> {
    let (first, rest) = line.split_once(' ').context("a lonely word")?;
    match first {
        "threads" => {
            let (threads, idle) = rest.split_once(' ').context("no idle state")?;
            case.threads = threads.parse()?;
            ensure!(case.threads <= LAST_THREAD, "too many threads");
            case.idle = item_of(&IDLES, idle)?;
        }
        "blocked" => case.blocked = parse_int(rest)?,
        "open" => case.resources.push(parse_resource(rest)?),
        "handler" | "ignore" => {
            let (signal, flags) = rest.split_once(' ').unwrap_or((rest, "0"));
            case.handlers.push(Handler {
                signal: signal.parse()?,
                flags: parse_int(flags)?,
                ignore: first == "ignore",
            });
        }
        "put" => puts.push(parse_put(rest)?),
        "after" => {
            let (delay, call) = rest.split_once(' ').context("no call")?;
            let step = case.steps.last_mut().context("no step before")?;
            step.events.push(Event {
                after_ms: delay.parse()?,
                call: parse_call(call)?,
            });
        }
        _ => case.steps.push(Step {
            puts: std::mem::take(puts),
            call: parse_call(line)?,
            events: Vec::new(),
        }),
    }
    Ok(())
}

fn parse_resource(text: &str) -> Result<Resource> {
    let words: Vec<_> = text.split(' ').collect();
    let [kind, first, second, state @ ..] = &words[..] else {
        bail!("a resource has a kind and two numbers");
    };
    let state = state
        .iter()
        .map(|word| State::from_word(word).with_context(|| format!("no state `{word}`")));
    Ok(Resource {
        kind: Kind::from_word(kind).with_context(|| format!("no kind `{kind}`"))?,
        numbers: [first.parse()?, second.parse()?],
        state: state.collect::<Result<_>>()?,
    })
}

fn parse_put(text: &str) -> Result<Put> {
    let words: Vec<_> = text.split(' ').collect();
    let [at, width, data] = words[..] else {
        bail!("a put has a place, a width and a value");
    };
    let data = match width {
        "hex" => Data::Bytes(parse_hex(data)?),
        "u8" | "u16" | "u32" | "u64" => {
            Data::Number(width[1..].parse::<u8>()? / 8, parse_value(data)?)
        }
        _ => {
            let clock = width.strip_prefix("deadline:").context("no such width")?;
            Data::Deadline(clock.parse()?, data.parse()?)
        }
    };
    Ok(Put {
        at: parse_place(at)?,
        data,
    })
}

fn parse_hex(text: &str) -> Result<Vec<u8>> {
    ensure!(
        text.len().is_multiple_of(2) && text.is_ascii(),
        "bytes have two digits"
    );
    let pairs = text.as_bytes().chunks(2);
    let byte = |pair| Ok(u8::from_str_radix(std::str::from_utf8(pair)?, 16)?);
    pairs.map(byte).collect()
}

fn parse_call(text: &str) -> Result<Call> {
    let (head, arguments) = text.split_once('(').context("a call has parentheses")?;
    let words: Vec<_> = head.split(' ').collect();
    let [agent, site, name] = words[..] else {
        bail!("a call has an agent, a site and a name");
    };
    let arguments = arguments.strip_suffix(')').context("no `)` at the end")?;
    let values = arguments.split(", ").filter(|text| !text.is_empty());
    let spec = calls::find(name).with_context(|| format!("no call `{name}`"))?;
    let arguments = values.map(parse_value).collect::<Result<Vec<_>>>()?;
    ensure!(arguments.len() <= 6, "a call has six arguments at most");
    Ok(Call {
        agent: agent_of(agent).with_context(|| format!("no agent `{agent}`"))?,
        site: item_of(&SITES, site)?,
        spec,
        arguments,
    })
}

fn parse_value(text: &str) -> Result<Value> {
    if let Some(place) = text.strip_prefix('[') {
        let place = place.strip_suffix(']').context("no `]` at the end")?;
        return Ok(Value::Load(parse_place(place)?));
    }
    if let Some(place) = text.strip_prefix('{') {
        let place = place.strip_suffix('}').context("no `}` at the end")?;
        return Ok(Value::LoadLong(parse_place(place)?));
    }
    if let Some((kind, rest)) = text.split_once(':') {
        return parse_named(kind, rest);
    }
    let lonely = [
        Value::Pid,
        Value::Parent,
        Value::Handler,
        Value::Restorer,
        Value::Queue,
        Value::Semaphores,
    ];
    if let Some(value) = lonely.into_iter().find(|&value| value_text(value) == text) {
        return Ok(value);
    }
    match text.as_bytes().first() {
        Some(b'P') => Ok(Value::Place(parse_place(text)?)),
        Some(b'r') => Ok(Value::Result(text[1..].parse()?)),
        _ => Ok(Value::Int(parse_int(text)?)),
    }
}

fn parse_named(kind: &str, rest: &str) -> Result<Value> {
    let agent = |name: &str| agent_of(name).with_context(|| format!("no agent `{name}`"));
    Ok(match kind {
        "tid" => Value::Tid(agent(rest)?),
        "pthread" => Value::Pthread(agent(rest)?),
        "start" => {
            let index = rest.parse()?;
            ensure!(index < STARTS, "no such function");
            Value::Start(index)
        }
        "child" => {
            let child = rest.parse()?;
            ensure!(child < CHILDREN, "too many children");
            Value::Child(child)
        }
        "stack" => {
            let end = rest.find(['+', '-']).unwrap_or(rest.len());
            Value::Stack(agent(&rest[..end])?, parse_offset(&rest[end..])?)
        }
        _ => bail!("`{kind}` is no kind of value"),
    })
}

fn parse_place(text: &str) -> Result<Place> {
    let text = text.strip_prefix('P').context("no place")?;
    let end = text.find(['+', '-']).unwrap_or(text.len());
    let page = text[..end].parse()?;
    ensure!(page < PAGES, "no such page");
    Ok(Place::new(page, parse_offset(&text[end..])?))
}

fn parse_offset(text: &str) -> Result<i32> {
    match text.split_at_checked(1) {
        Some(("-", digits)) => Ok(-(parse_int(digits)? as i32)),
        Some((_, digits)) => Ok(parse_int(digits)? as i32),
        None => Ok(0),
    }
}

fn parse_int(text: &str) -> Result<u64> {
    let number = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None if text.starts_with('-') => text.parse::<i64>().map(|number| number as u64),
        None => text.parse(),
    };
    number.with_context(|| format!("`{text}` is no number"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
threads 2 futex
blocked 0x2000000000
open pipe 10 11 nonblock data
handler 10 0x10000000
ignore 13
put P0+0x10 u32 10
put P0+0x20 hex 00ff
put P1 deadline:1 -20
put P1+0x8 u64 handler
main inline read(10, P0+0x10, 64)
after 10 a1 libc write(11, [P4-0x8], -1)
a2 register close(r0)
c1 syscall tgkill(pid, tid:a1, 0x8000000000000000)
main vector munmap(stack:a1-0x2000, child:3)
main libc pthread_join({P4+0x820}, start:1)
";

    #[test]
    fn a_case_is_the_same_after_it_was_written_and_read() -> Result<()> {
        assert_eq!(to_text(&parse(TEXT)?), TEXT);
        Ok(())
    }

    #[test]
    fn a_line_that_means_nothing_is_named() {
        let error = parse("threads 1 futex\nmain inline nothing(1)\n").expect_err("no such call");
        assert!(format!("{error:#}").contains("line 2"), "{error:#}");
    }
}
