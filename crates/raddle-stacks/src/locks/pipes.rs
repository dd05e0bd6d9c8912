//! The ends of pipes that a process has, as the kernel shows them.

use std::collections::HashMap;
use std::fs;

/// The most descriptors that are looked at.
const DESCRIPTORS_MAX: usize = 1 << 16;

/// The pipes of a process, by the kernel's names of them.
pub(super) struct Pipes {
    /// For each pipe its descriptors, and whether each of them writes.
    ends: HashMap<String, Vec<(u64, bool)>>,
    names: HashMap<u64, String>,
}

impl Pipes {
    pub(super) fn of(pid: u32) -> Pipes {
        let mut pipes = Pipes {
            ends: HashMap::new(),
            names: HashMap::new(),
        };
        let entries = fs::read_dir(format!("/proc/{pid}/fd"));
        let entries = entries.into_iter().flatten().filter_map(Result::ok);
        for entry in entries.take(DESCRIPTORS_MAX) {
            let number = entry.file_name().to_str().and_then(|it| it.parse().ok());
            let name = fs::read_link(entry.path()).ok();
            let name = name.as_deref().and_then(|it| it.to_str());
            let (Some(number), Some(name)) = (number, name) else {
                continue;
            };
            if name.starts_with("pipe:")
                && let Some(writes) = writes(pid, number)
            {
                pipes.names.insert(number, name.to_owned());
                let ends = pipes.ends.entry(name.to_owned()).or_default();
                ends.push((number, writes));
            }
        }
        for ends in pipes.ends.values_mut() {
            ends.sort_unstable();
        }
        pipes
    }

    /// Returns the descriptors that write to, or read from, the pipe of this descriptor; `None` if
    /// it is no pipe's.
    pub(super) fn ends(&self, descriptor: u64, that_write: bool) -> Option<Vec<u64>> {
        let ends = self.ends.get(self.names.get(&descriptor)?)?.iter();
        let wanted = ends.filter(|(_, writes)| *writes == that_write);
        Some(wanted.map(|(number, _)| *number).collect())
    }
}

/// Returns true if a descriptor is open for writing.
fn writes(pid: u32, descriptor: u64) -> Option<bool> {
    const ACCESS: u32 = 3;
    let info = fs::read_to_string(format!("/proc/{pid}/fdinfo/{descriptor}")).ok()?;
    let flags = info.lines().find_map(|line| line.strip_prefix("flags:"))?;
    Some(u32::from_str_radix(flags.trim(), 8).ok()? & ACCESS != 0)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn a_pipe_has_two_ends() {
        let (from, to) = std::io::pipe().unwrap();
        let [from, to] = [from.as_raw_fd(), to.as_raw_fd()].map(i32::unsigned_abs);
        let pipes = Pipes::of(std::process::id());
        assert_eq!(pipes.ends(from.into(), true), Some(vec![to.into()]));
        assert_eq!(pipes.ends(to.into(), false), Some(vec![from.into()]));
        assert_eq!(pipes.ends(u64::MAX, true), None);
    }
}
