//! Names of threads: those that are told, those of events, and those that threads have from their
//! makers.

use std::io::{self, Write};

use raddle_inspect::Event;

use super::messages::{Process, ProcessTree, Thread, TracePacket};
use super::{GROUP_PIDS, GROUPS_MAX, PerfettoWriter};

impl<W: Write> PerfettoWriter<W> {
    /// Tells a thread's name, and the number of the engine or share that it belongs to, 0 for none.
    /// The threads of each are shown together, as those of a process with a number that no process
    /// has.
    ///
    /// # Errors
    /// Those of the output.
    pub fn name(&mut self, tid: u32, name: &str, group: u32) -> io::Result<()> {
        let place = self.threads.add(tid);
        let thread = self.threads.at_mut(place);
        if thread.name.as_deref() == Some(name) {
            return Ok(());
        }
        thread.name = Some(name.into());
        thread.commands = Default::default();
        if !thread.is_shown {
            thread.group = group.min(GROUPS_MAX); // a track has one process
        }
        let group = thread.group;
        if group != 0 && self.groups.insert(group) {
            self.encoder.packet(&TracePacket {
                process_tree: Some(ProcessTree {
                    processes: vec![Process {
                        pid: Some(self.pid_of(group)),
                        cmdline: vec![format!("engine or share {group}")],
                    }],
                    threads: Vec::new(),
                }),
                ..TracePacket::default()
            })?;
        }
        self.encoder.packet(&TracePacket {
            process_tree: Some(ProcessTree {
                processes: Vec::new(),
                threads: vec![Thread {
                    tid: Some(tid as i32),
                    name: Some(name.to_owned()),
                    tgid: Some(self.pid_of(group)),
                }],
            }),
            ..TracePacket::default()
        })
    }

    fn pid_of(&self, group: u32) -> i32 {
        if group == 0 {
            self.pid
        } else {
            GROUP_PIDS | group as i32
        }
    }

    /// Takes an event that makes a thread: as in the kernel, it has the name of its maker.
    #[cold]
    pub(super) fn inherit_name(&mut self, event: &Event) -> io::Result<()> {
        let place = self.threads.add(event.thread);
        if self.threads.at(place).name.is_some() {
            return Ok(()); // it was told already
        }
        let Some(maker) = self.threads.find(event.other) else {
            return Ok(());
        };
        let maker = self.threads.at(maker);
        match maker.name.clone() {
            Some(name) => self.name(event.thread, &name, maker.group),
            None => Ok(()),
        }
    }

    /// Takes an event with a part of a name.
    #[cold]
    pub(super) fn take_name(&mut self, event: &Event) -> io::Result<()> {
        let Some(name) = self.name_parts.take(event) else {
            return Ok(());
        };
        let place = self.threads.add(event.thread);
        let group = self.threads.at(place).group;
        self.name(event.thread, &String::from_utf8_lossy(&name), group)
    }
}
