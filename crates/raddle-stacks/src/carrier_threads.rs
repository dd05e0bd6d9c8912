//! The kernel threads of carriers, and whether they wait in the kernel.
//!
//! The question is asked often, so the file that answers it stays open.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;

use crate::capture::Target;
use crate::kernel::KernelThreads;
use crate::sample_rings::{carriers, halves};

/// The most kernel threads that are asked about, because each takes a descriptor.
const THREADS_MAX: usize = 256;

/// The kernel threads of carriers, those of bound threads excluded.
#[derive(Default)]
pub struct CarrierThreads {
    /// By the number in the process's own namespace.
    known: HashMap<u32, CarrierThread>,
}

/// A carrier's kernel thread.
pub struct CarrierThread {
    pub carrier: u32,
    /// Its number here.
    pub tid: u32,
    stat: File,
}

impl CarrierThreads {
    /// Finds the carriers that there are now.
    pub fn follow(&mut self, target: &Target<'_>) {
        let carriers = carriers(target, &[]);
        let addresses: Vec<u64> = carriers.iter().map(|(carrier, _)| *carrier).collect();
        let own_tids = halves(target.memory, &addresses, target.layout.carrier_kernel_tid);
        let mut kernel_threads = None;
        let mut before = std::mem::take(&mut self.known);
        for ((_, carrier), own_tid) in carriers.into_iter().zip(own_tids) {
            let Some(own_tid) = own_tid.filter(|&tid| tid != 0) else {
                continue;
            };
            if self.known.len() == THREADS_MAX {
                break;
            }
            let known = before.remove(&own_tid).or_else(|| {
                let kernel_threads =
                    kernel_threads.get_or_insert_with(|| KernelThreads::of(target.pid, None));
                let tid = kernel_threads.here(own_tid);
                let stat = File::open(format!("/proc/{}/task/{tid}/stat", target.pid)).ok()?;
                Some(CarrierThread { carrier, tid, stat })
            });
            let known = known.map(|known| CarrierThread { carrier, ..known });
            self.known.extend(known.map(|known| (own_tid, known)));
        }
    }

    /// Returns all of them.
    pub fn iter(&self) -> impl Iterator<Item = &CarrierThread> {
        self.known.values()
    }
}

impl CarrierThread {
    /// Returns true if it waits in the kernel: it neither executes nor wants a CPU.
    pub fn waits(&self) -> bool {
        let mut line = [0; 512];
        let got = self.stat.read_at(&mut line, 0).unwrap_or(0);
        state(&line[..got]).is_some_and(|state| state != b'R')
    }
}

/// Returns the state in a line of `/proc/PID/stat`: it follows the name, which is in brackets and
/// may have brackets.
fn state(line: &[u8]) -> Option<u8> {
    let end = line.iter().rposition(|&byte| byte == b')')?;
    line.get(end + 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_is_behind_the_name() {
        assert_eq!(state(b"12 (a) R (b) D 1 2 3\n"), Some(b'D'));
        assert_eq!(state(b"12 (a) R 1"), Some(b'R'));
        assert_eq!(state(b"12 (a)"), None);
        assert_eq!(state(b""), None);
    }
}
