//! The processes of a server: its leader, the leader's group, and all descendants.

use std::fs;
use std::time::Duration;

use rustix::process::Pid;

/// Fields of `/proc/PID/stat`.
#[derive(Debug, PartialEq, Eq)]
struct Stat {
    pid: i32,
    parent: i32,
    group: i32,
    /// User and system time, its own and that of the children it has waited for.
    ticks: u64,
}

/// The processes of the leader's tree.
pub(super) fn members(leader: Pid) -> Vec<Pid> {
    let stats = stats();
    let members = tree(leader, &stats);
    members
        .iter()
        .filter_map(|stat| Pid::from_raw(stat.pid))
        .collect()
}

/// CPU time of the leader's tree, in user and kernel mode, since its start.
pub(super) fn cpu_time(leader: Pid) -> Duration {
    let ticks: u64 = tree(leader, &stats()).iter().map(|stat| stat.ticks).sum();
    let per_second = rustix::param::clock_ticks_per_second().max(1);
    Duration::from_micros(ticks * 1_000_000 / per_second)
}

fn stats() -> Vec<Stat> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let processes = entries.filter(|entry| {
        let name = entry.file_name();
        name.as_encoded_bytes().iter().all(u8::is_ascii_digit)
    });
    let read = |path| parse(&fs::read_to_string(path).ok()?);
    processes
        .filter_map(|entry| read(entry.path().join("stat")))
        .collect()
}

fn tree(leader: Pid, stats: &[Stat]) -> Vec<&Stat> {
    let leader = leader.as_raw_nonzero().get();
    let of_group = |stat: &&Stat| stat.pid == leader || stat.group == leader;
    let (mut inside, mut outside): (Vec<_>, Vec<_>) = stats.iter().partition(of_group);
    loop {
        let child = |stat: &&Stat| inside.iter().any(|parent| parent.pid == stat.parent);
        let (children, others): (Vec<_>, Vec<_>) = outside.into_iter().partition(child);
        if children.is_empty() {
            return inside;
        }
        inside.extend(children);
        outside = others;
    }
}

/// Fields are counted after the name, which is in parentheses and may hold anything.
fn parse(text: &str) -> Option<Stat> {
    let (before, after) = text.rsplit_once(')')?;
    let fields: Vec<_> = after.split_whitespace().collect();
    let number = |index: usize| fields.get(index)?.parse::<i64>().ok();
    let times = [number(11)?, number(12)?, number(13)?, number(14)?];
    Some(Stat {
        pid: before.split_whitespace().next()?.parse().ok()?,
        parent: i32::try_from(number(1)?).ok()?,
        group: i32::try_from(number(2)?).ok()?,
        ticks: times.iter().map(|&ticks| ticks.max(0) as u64).sum(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stat(pid: i32, parent: i32, group: i32) -> Stat {
        Stat {
            pid,
            parent,
            group,
            ticks: 1,
        }
    }

    #[test]
    fn a_name_may_hold_anything() {
        let line = "7 (a) b (c) S 3 5 5 0 -1 4 1 2 3 4 10 20 30 40 20 0 1 0 99";
        let wanted = Stat {
            ticks: 100,
            ..stat(7, 3, 5)
        };
        assert_eq!(parse(line), Some(wanted));
        assert_eq!(parse("7 (a) S"), None);
    }

    #[test]
    fn a_tree_has_the_group_and_all_descendants() {
        // 13 is in a group of its own, below 12; 14 has lost its parent and stays in the group.
        let stats = [
            stat(13, 12, 13),
            stat(1, 0, 1),
            stat(10, 1, 10),
            stat(11, 10, 10),
            stat(12, 11, 10),
            stat(14, 1, 10),
            stat(20, 1, 20),
        ];
        let mut pids: Vec<_> = tree(Pid::from_raw(10).unwrap(), &stats)
            .iter()
            .map(|stat| stat.pid)
            .collect();
        pids.sort_unstable();
        assert_eq!(pids, [10, 11, 12, 13, 14]);
    }

    #[test]
    fn this_process_has_used_time() {
        let own = rustix::process::getpid();
        let started = std::time::Instant::now();
        while cpu_time(own).is_zero() && started.elapsed() < Duration::from_secs(20) {}
        assert!(!cpu_time(own).is_zero());
        assert!(members(own).contains(&own));
    }
}
