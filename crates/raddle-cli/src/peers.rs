//! Other processes that can end the waits of a process: those that have the other end of a pipe or
//! a socket, or the shared memory of a futex. All of it is read from outside, from `/proc`.
//!
//! A look reads what all processes have, so the objects of many waits are looked for at once, and
//! looks take a small part of the time only.

mod sockets;

use std::collections::{BTreeSet, HashMap};
use std::fmt::{self, Display};
use std::fs;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

use raddle_inspect::WaitKind;
use raddle_record::perfetto::OtherProcess;
use rustix::fs::{Mode, OFlags, open, readlinkat_raw};
use rustix::path::DecInt;
use rustix::time::{ClockId, clock_gettime};

use sockets::Sockets;

/// What a thread waits for: a kind, and a descriptor or an address.
pub(crate) type Object = (WaitKind, u64);

/// What looks may take: at most this part of a CPU, and so much CPU time at the begin. The time on
/// the clock says nothing of their cost: on a busy machine a look is long because others compute.
#[derive(Clone, Copy)]
pub(crate) struct Budget {
    pub part: u32,
    pub burst: Duration,
}

impl Budget {
    /// Of a tool for which other processes are a part of what it shows.
    pub(crate) const USUAL: Budget = Budget {
        part: 800,
        burst: Duration::from_millis(15),
    };
}

/// From one look to the next passes so many times what it has cost: objects that are new meanwhile
/// are looked for together.
const PAUSE: u32 = 16;
/// The most objects that are looked for at once: a look goes through all processes, and costs
/// little more for many objects than for one.
pub(crate) const OBJECTS_MAX: usize = 1 << 11;
/// The most descriptors of an epoll instance that are followed.
const WATCHED_MAX: usize = 1 << 10;
/// The most processes that are named.
const NAMED_MAX: usize = 3;
/// In the mode of a link in `/proc/PID/fd`: the descriptor can be read, or written.
const READ: u32 = 0o400;
const WRITE: u32 = 0o200;

/// Room for what a link in `/proc/PID/fd` says.
pub(crate) type Link = [MaybeUninit<u8>; 256];
pub(crate) const LINK: Link = [MaybeUninit::uninit(); 256];

/// The processes that can end a wait.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Others {
    /// In the order of `/proc`.
    pub processes: Vec<OtherProcess>,
    /// The process itself can end the wait as well, or one that was not found.
    pub is_unsure: bool,
}

/// What has to be found in a process.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum End {
    /// A descriptor of a pipe with this inode.
    Pipe(u64),
    /// A socket with this inode.
    Socket(u64),
    /// A mapping that is shared: the device and the inode.
    Memory(String, u64),
}

/// The objects that have an end, with what the descriptor must be able to do.
type Ends = HashMap<End, Vec<(usize, u32)>>;

/// See the module.
pub(crate) struct Peers {
    pid: u32,
    /// The links of the process's descriptors.
    descriptors: Option<OwnedFd>,
    sockets: Sockets,
    budget: Budget,
    begun: Instant,
    /// The CPU time that looks have taken.
    spent: Duration,
    /// Before then is no look.
    next: Instant,
}

impl Peers {
    pub(crate) fn new(pid: u32, budget: Budget) -> Peers {
        let path = format!("/proc/{pid}/fd");
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Peers {
            pid,
            descriptors: open(path, flags, Mode::empty()).ok(),
            sockets: Sockets::new(pid),
            budget,
            begun: Instant::now(),
            spent: Duration::ZERO,
            next: Instant::now(),
        }
    }

    /// Returns true if there is time for a look.
    pub(crate) fn is_due(&self) -> bool {
        self.can_afford(Duration::ZERO) && Instant::now() >= self.next
    }

    /// Returns true if there is time for a look that takes so much CPU time.
    pub(crate) fn can_afford(&self, cost: Duration) -> bool {
        let left = self.budget.burst + self.begun.elapsed() / self.budget.part;
        self.spent + cost <= left
    }

    /// Returns the CPU time that looks have taken.
    pub(crate) fn spent(&self) -> Duration {
        self.spent
    }

    /// Writes what a descriptor is to `to`, as far as that has room, and returns it; `None` for
    /// other objects.
    pub(crate) fn link<'l>(&self, (kind, object): Object, to: &'l mut Link) -> Option<&'l [u8]> {
        let descriptors = self.descriptors.as_ref().filter(|_| kind.is_descriptor())?;
        let (link, _) = readlinkat_raw(descriptors, DecInt::new(object), to).ok()?;
        Some(link)
    }

    /// Returns the processes that can end the waits for each of these objects.
    pub(crate) fn find(&mut self, objects: &[Object]) -> Vec<Others> {
        let begun = cpu_time();
        let mut others = vec![Others::default(); objects.len()];
        let ends = self.ends(objects, &mut others);
        if !ends.is_empty() {
            self.look(&ends, &mut others);
        }
        let cost = cpu_time().saturating_sub(begun);
        self.spent += cost;
        self.next = Instant::now() + cost * PAUSE;
        others
    }

    /// Returns the ends by which waits for the objects can be ended.
    fn ends(&mut self, objects: &[Object], others: &mut [Others]) -> Ends {
        let mut ends = Ends::new();
        self.sockets.may_read();
        let mut maps = None;
        for (at, (&(kind, object), others)) in objects.iter().zip(others).enumerate() {
            let mut add = |(end, can)| {
                let objects: &mut Vec<_> = ends.entry(end).or_default();
                objects.push((at, can));
            };
            match kind {
                WaitKind::FUTEX => {
                    let path = format!("/proc/{}/maps", self.pid);
                    let maps = maps.get_or_insert_with(|| fs::read_to_string(path));
                    let maps = maps.as_deref().unwrap_or_default();
                    let end = memory_at(maps, object);
                    end.into_iter().for_each(|end| add((end, 0)));
                }
                WaitKind::EPOLL => {
                    for fd in self.watched(object) {
                        let end = self.other_end(fd);
                        others.is_unsure |= end.is_none();
                        end.into_iter().for_each(&mut add);
                    }
                }
                _ if kind.is_descriptor() => {
                    let end = self.other_end(object);
                    end.into_iter().for_each(add);
                }
                _ => {}
            }
        }
        ends
    }

    /// Returns the other end of a descriptor, and what a descriptor of that must be able to do.
    fn other_end(&mut self, fd: u64) -> Option<(End, u32)> {
        let descriptors = self.descriptors.as_ref()?;
        let mut link = LINK;
        let (link, _) = readlinkat_raw(descriptors, DecInt::new(fd), &mut link).ok()?;
        match end_of(std::str::from_utf8(link).ok()?)? {
            End::Socket(inode) => Some((End::Socket(self.sockets.peer(inode)?), 0)),
            end => {
                let path = format!("/proc/{}/fd/{fd}", self.pid);
                let own = fs::symlink_metadata(path).ok()?.mode() & (READ | WRITE);
                let can = match own {
                    READ => WRITE,
                    WRITE => READ,
                    _ => 0,
                };
                Some((end, can))
            }
        }
    }

    /// Returns the descriptors of an epoll instance.
    fn watched(&self, fd: u64) -> Vec<u64> {
        let path = format!("/proc/{}/fdinfo/{fd}", self.pid);
        let text = fs::read_to_string(path).unwrap_or_default();
        let watched = text.lines().filter_map(|line| {
            let number = line.strip_prefix("tfd:")?.split_whitespace().next()?;
            number.parse().ok()
        });
        watched.take(WATCHED_MAX).collect()
    }

    /// Looks for ends in all processes.
    fn look(&self, ends: &Ends, others: &mut [Others]) {
        let has = |it: fn(&End) -> bool| ends.keys().any(it);
        let has_memory = has(|end| matches!(end, End::Memory(..)));
        let has_descriptors = has(|end| !matches!(end, End::Memory(..)));
        for process in fs::read_dir("/proc").into_iter().flatten().flatten() {
            let name = process.file_name();
            let Some(pid) = name.to_str().and_then(|it| it.parse::<u32>().ok()) else {
                continue;
            };
            if pid == std::process::id() {
                continue;
            }
            let mut found = BTreeSet::new();
            if has_descriptors {
                find_descriptors(&process.path(), ends, &mut found);
            }
            if has_memory && pid != self.pid {
                find_memory(&process.path(), ends, &mut found);
            }
            if found.is_empty() {
                continue;
            }
            let name = fs::read_to_string(process.path().join("comm")).unwrap_or_default();
            for at in found {
                let others = &mut others[at];
                if pid == self.pid {
                    others.is_unsure = true;
                } else {
                    let name = name.trim_end().to_owned();
                    others.processes.push(OtherProcess { pid, name });
                }
            }
        }
    }
}

impl Display for Others {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = self.processes.iter().take(NAMED_MAX);
        let mut words: Vec<_> = named.map(OtherProcess::to_string).collect();
        if let Some(further @ 1..) = self.processes.len().checked_sub(NAMED_MAX) {
            words.push(format!("{further} others"));
        }
        to.write_str(&words.join(", "))
    }
}

/// The CPU time of the calling thread.
pub(crate) fn cpu_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}

/// Finds the objects that have an end among the descriptors of a process.
fn find_descriptors(process: &Path, ends: &Ends, found: &mut BTreeSet<usize>) {
    let path = process.join("fd");
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let Ok(folder) = open(&path, flags, Mode::empty()) else {
        return;
    };
    let mut link = LINK;
    for descriptor in fs::read_dir(path).into_iter().flatten().flatten() {
        let read = readlinkat_raw(&folder, descriptor.file_name(), &mut link);
        let Ok((read, _)) = read else { continue };
        let end = std::str::from_utf8(read).ok().and_then(end_of);
        let Some(objects) = end.and_then(|end| ends.get(&end)) else {
            continue;
        };
        let mode = descriptor.metadata().map_or(0, |it| it.mode());
        let objects = objects.iter().filter(|(_, can)| mode & can == *can);
        found.extend(objects.map(|&(at, _)| at));
    }
}

/// Finds the objects that have an end among the mappings of a process.
fn find_memory(process: &Path, ends: &Ends, found: &mut BTreeSet<usize>) {
    let maps = fs::read_to_string(process.join("maps")).unwrap_or_default();
    for end in maps.lines().filter_map(shared_memory) {
        let objects = ends.get(&end).into_iter().flatten();
        found.extend(objects.map(|&(at, _)| at));
    }
}

/// Returns the pipe or the socket of a link in `/proc/PID/fd`.
fn end_of(link: &str) -> Option<End> {
    let (kind, inode) = link.strip_suffix(']')?.split_once(":[")?;
    let inode = inode.parse().ok()?;
    match kind {
        "pipe" => Some(End::Pipe(inode)),
        "socket" => Some(End::Socket(inode)),
        _ => None,
    }
}

/// Returns the shared memory at an address; `None` if others don't see what is written there.
fn memory_at(maps: &str, address: u64) -> Option<End> {
    let is_there = |line: &&str| {
        let range = line.split(' ').next().and_then(|it| it.split_once('-'));
        let number = |word| u64::from_str_radix(word, 16).unwrap_or(0);
        range.is_some_and(|(from, to)| (number(from)..number(to)).contains(&address))
    };
    shared_memory(maps.lines().find(is_there)?)
}

/// Returns what a line of `/proc/PID/maps` maps, if others see what is written there.
fn shared_memory(line: &str) -> Option<End> {
    let mut fields = line.split(' ').skip(1);
    let is_shared = fields.next()?.as_bytes().get(3) == Some(&b's');
    let (device, inode) = (fields.nth(1)?, fields.next()?);
    is_shared.then_some(End::Memory(device.to_owned(), inode.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::pipe;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::{AsRawFd, OwnedFd};
    use std::os::unix::net::UnixStream;
    use std::process::{Command, Stdio};

    #[test]
    fn shared_memory_is_told_by_its_file() {
        let shared = "7f00-7f10 rw-s 00000000 00:01 77 /dev/zero (deleted)";
        let memory = Some(End::Memory("00:01".into(), 77));
        assert_eq!(shared_memory(shared), memory);
        assert_eq!(memory_at(shared, 0x7f0f), memory);
        assert_eq!(memory_at(shared, 0x7f10), None);
        let private = "7f00-7f10 rw-p 00000000 00:01 77 /lib/a.so";
        assert_eq!(shared_memory(private), None);
        assert_eq!(shared_memory("nonsense"), None);
    }

    #[test]
    fn links_of_descriptors_tell_pipes_and_sockets() {
        let end = end_of;
        assert_eq!(end("pipe:[12]"), Some(End::Pipe(12)));
        assert_eq!(end("socket:[12]"), Some(End::Socket(12)));
        assert_eq!(end("anon_inode:[eventpoll]"), None);
        assert_eq!(end("/dev/null"), None);
    }

    #[test]
    fn what_has_no_other_end_has_no_others() {
        let mut peers = Peers::new(std::process::id(), Budget::USUAL);
        assert!(peers.is_due());
        let word = &raw const peers as u64;
        let objects = [(WaitKind::FUTEX, word), (WaitKind::FD_READ, 99_999)];
        assert_eq!(peers.find(&objects), [Others::default(), Others::default()]);
    }

    /// Returns the processes at the other ends of descriptors of a process.
    fn names(pid: u32, descriptors: &[u64]) -> Vec<(Vec<u32>, bool)> {
        let objects = descriptors.iter().map(|&fd| (WaitKind::FD_READ, fd));
        let found = Peers::new(pid, Budget::USUAL).find(&objects.collect::<Vec<_>>());
        let pids = |it: &Others| it.processes.iter().map(|it| it.pid).collect();
        found.iter().map(|it| (pids(it), it.is_unsure)).collect()
    }

    #[test]
    fn the_other_ends_of_pipes_and_sockets_are_found() {
        // The tool itself is no other process, so two children have the ends.
        let (reader, writer) = pipe().unwrap();
        let (left, right) = UnixStream::pair().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (far, _) = listener.accept().unwrap();
        let child = |input: Stdio, output: Stdio| {
            let mut command = Command::new("sleep");
            command.arg("60").stdin(input).stdout(output);
            command.spawn().unwrap()
        };
        let mut first = child(reader.into(), OwnedFd::from(left).into());
        let mut second = child(OwnedFd::from(right).into(), writer.into());
        let mut third = child(OwnedFd::from(near).into(), Stdio::null());
        let mut fourth = child(OwnedFd::from(far).into(), Stdio::null());
        let found = names(first.id(), &[0, 1, listener.as_raw_fd() as u64]);
        let is_found = found[..2] == [(vec![second.id()], false), (vec![second.id()], false)];
        let by_tcp = names(third.id(), &[0]);
        for child in [&mut first, &mut second, &mut third, &mut fourth] {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        assert!(is_found, "{found:?} of {first:?}, {second:?}");
        assert_eq!(by_tcp, [(vec![fourth.id()], false)]);
    }
}
