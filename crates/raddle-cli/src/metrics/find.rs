//! Finding the processes that run under raddle: each listens on an abstract socket with a known
//! name, and the kernel lists these.

use std::fs;
use std::io::{self, BufRead, BufReader};

use crate::dump::connect;
use crate::dump::process::Process;

/// Returns this user's processes that have the runtime's socket; as root, those of all users.
pub(super) fn processes() -> Vec<u32> {
    let Ok(file) = fs::File::open("/proc/net/unix") else {
        return Vec::new();
    };
    let mut pids: Vec<u32> = BufReader::new(file)
        .split(b'\n')
        .map_while(io::Result::ok)
        .filter_map(|line| listener(&line))
        .filter_map(|name| process_of(&name))
        .collect();
    pids.sort_unstable();
    pids.dedup();
    pids
}

/// The name behind `raddle/` in a line about a socket that listens.
fn listener(line: &[u8]) -> Option<String> {
    const LISTENS: &str = "00010000";
    let line = std::str::from_utf8(line).ok()?;
    let mut words = line.split_ascii_whitespace();
    let flags = words.nth(3)?;
    let name = words.nth(3)?.strip_prefix("@raddle/")?;
    let has_numbers = name
        .split('/')
        .all(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()));
    (flags == LISTENS && has_numbers).then(|| name.to_owned())
}

/// The process that listens by this name, if this user may ask it. The name has the number that the
/// process has in its own namespace; if that is another one here, the kernel tells the right one.
fn process_of(name: &str) -> Option<u32> {
    let own_pid = name.split('/').next()?.parse().ok()?;
    let is_it = |process: &Process| process.own_pid == own_pid && process.is_ours();
    let named = Process::find(own_pid).ok().filter(is_it);
    match named {
        Some(process) if !name.contains('/') => Some(process.pid),
        _ => {
            let pid = connect::listener(&format!("raddle/{name}"))?;
            Process::find(pid).ok().filter(is_it).map(|it| it.pid)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_listeners_with_such_names_count() {
        let line = "0000000000000000: 00000002 00000000 00010000 0001 01 12345 @raddle/4242";
        assert_eq!(listener(line.as_bytes()).as_deref(), Some("4242"));
        let second = format!("{line}/4026531836");
        let found = listener(second.as_bytes());
        assert_eq!(found.as_deref(), Some("4242/4026531836"));
        for other in [
            line.replace("00010000", "00000000"),
            line.replace("@raddle/", "@riddle/"),
            line.replace("4242", "42x"),
            format!("{line}/"),
            line.replace("4242", ""),
            "Num RefCount".to_owned(),
        ] {
            assert_eq!(listener(other.as_bytes()), None, "{other}");
        }
        assert_eq!(listener(&[0xff; 80]), None);
    }
}
