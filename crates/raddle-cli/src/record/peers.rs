//! Other processes that can end the waits of this one: those that have the other end of a pipe, or
//! the shared memory of a futex. Their names are looked for while they live.

use std::fs;
use std::path::Path;

/// The most objects that are looked for: each look reads what all processes have.
const LOOKS_MAX: usize = 32;
/// The most processes that are named.
const NAMED_MAX: usize = 3;

/// See the module.
pub(super) struct Peers {
    pid: u32,
    looks: usize,
}

impl Peers {
    pub(super) fn new(pid: u32) -> Peers {
        Peers { pid, looks: 0 }
    }

    /// Returns the processes that have a pipe, by the link of a descriptor; `None` for other links,
    /// and if no other process has it.
    pub(super) fn of_pipe(&mut self, link: &str) -> Option<String> {
        if !link.starts_with("pipe:[") {
            return None;
        }
        self.find(&|process| {
            let descriptors = fs::read_dir(process.join("fd")).into_iter().flatten();
            let mut links = descriptors.flatten().map(|it| fs::read_link(it.path()));
            links.any(|it| it.is_ok_and(|it| it == Path::new(link)))
        })
    }

    /// Returns the processes that share the memory at an address; `None` if it is not shared.
    pub(super) fn of_word(&mut self, address: u64) -> Option<String> {
        let maps = fs::read_to_string(format!("/proc/{}/maps", self.pid)).ok()?;
        let is_there = |line: &&str| {
            let range = line.split(' ').next().and_then(|it| it.split_once('-'));
            let number = |word| u64::from_str_radix(word, 16).unwrap_or(0);
            range.is_some_and(|(from, to)| (number(from)..number(to)).contains(&address))
        };
        let file = shared_file(maps.lines().find(is_there)?)?;
        self.find(&|process| {
            let maps = fs::read_to_string(process.join("maps")).unwrap_or_default();
            maps.lines().any(|line| shared_file(line) == Some(file))
        })
    }

    fn find(&mut self, is_it: &dyn Fn(&Path) -> bool) -> Option<String> {
        if self.looks == LOOKS_MAX {
            return None;
        }
        self.looks += 1;
        let mut found = Vec::new();
        for process in fs::read_dir("/proc").ok()?.flatten() {
            let pid = process
                .file_name()
                .to_str()
                .and_then(|it| it.parse::<u32>().ok());
            let Some(pid) = pid.filter(|&pid| pid != self.pid && pid != std::process::id()) else {
                continue;
            };
            if is_it(&process.path()) {
                let name = fs::read_to_string(process.path().join("comm")).unwrap_or_default();
                found.push(format!("{} ({pid})", name.trim_end()));
            }
        }
        let others = found.len().saturating_sub(NAMED_MAX);
        found.truncate(NAMED_MAX);
        if others != 0 {
            found.push(format!("{others} others"));
        }
        (!found.is_empty()).then(|| found.join(", "))
    }
}

/// Returns the device and the inode of a line of `/proc/PID/maps`, if others see what is written
/// there.
fn shared_file(line: &str) -> Option<(&str, &str)> {
    let mut fields = line.split(' ').skip(1);
    let is_shared = fields.next()?.as_bytes().get(3) == Some(&b's');
    let file = (fields.nth(1)?, fields.next()?);
    is_shared.then_some(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_memory_is_told_by_its_file() {
        let shared = "7f00-7f10 rw-s 00000000 00:01 77 /dev/zero (deleted)";
        assert_eq!(shared_file(shared), Some(("00:01", "77")));
        assert_eq!(
            shared_file("7f00-7f10 rw-p 00000000 00:01 77 /lib/a.so"),
            None
        );
        assert_eq!(shared_file("nonsense"), None);
    }

    #[test]
    fn a_pipe_that_no_other_process_has_has_no_peers() {
        let mut peers = Peers::new(std::process::id());
        assert_eq!(peers.of_pipe("pipe:[0]"), None);
        assert_eq!(peers.of_pipe("socket:[1]"), None);
        assert_eq!(peers.of_word(&raw const peers as u64), None);
    }
}
