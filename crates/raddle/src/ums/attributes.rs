//! Attributes of a worker's thread in Linux: its niceness and its CPUs.

use super::context::Context;
use libc::{CPU_ISSET, CPU_SET, CPU_SETSIZE, ESRCH, PRIO_PROCESS, cpu_set_t};
use std::io;
use std::mem::zeroed;

/// Converts a result of libc.
fn checked(result: libc::c_int) -> io::Result<()> {
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

impl Context {
    /// Returns the id of the worker's thread.
    fn asked(&self) -> io::Result<libc::pid_t> {
        let id = self.thread_id().filter(|_| !self.has_ended());
        id.ok_or_else(|| io::Error::from_raw_os_error(ESRCH))
    }

    /// Returns the niceness of the worker's thread, -20 to 19 (`getpriority(2)`). It only matters
    /// to schedulers that read it: the scheduler decides which worker runs.
    ///
    /// ```
    /// # if raddle::runtime::status() != raddle::runtime::Status::Green { return Ok(()); }
    /// # use raddle::ums::{self, CompletionList};
    /// let (worker, _) = ums::spawn(&CompletionList::new()?, || ())?;
    /// assert_eq!(worker.niceness()?, 0);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// `ESRCH` while the worker has no thread, after its end, and of a light one.
    pub fn niceness(&self) -> io::Result<i32> {
        let id = self.asked()?;
        // SAFETY: errno is the calling thread's; -1 may be an answer.
        unsafe {
            *libc::__errno_location() = 0;
            match libc::getpriority(PRIO_PROCESS, id as libc::id_t) {
                -1 if *libc::__errno_location() != 0 => Err(io::Error::last_os_error()),
                niceness => Ok(niceness),
            }
        }
    }

    /// Changes the niceness of the worker's thread (`setpriority(2)`).
    ///
    /// ```
    /// # if raddle::runtime::status() != raddle::runtime::Status::Green { return Ok(()); }
    /// # use raddle::ums::{self, CompletionList};
    /// let (worker, _) = ums::spawn(&CompletionList::new()?, || ())?;
    /// worker.set_niceness(5)?;
    /// assert_eq!(worker.niceness()?, 5);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Context::niceness`], and Linux's.
    pub fn set_niceness(&self, niceness: i32) -> io::Result<()> {
        let id = self.asked()?;
        // SAFETY: numbers only.
        checked(unsafe { libc::setpriority(PRIO_PROCESS, id as libc::id_t, niceness) })
    }

    /// Returns the CPUs that the worker's thread asked for (`sched_getaffinity(2)`), in order. Like
    /// other green threads it may run on others; a scheduler can honour the wish.
    ///
    /// ```
    /// # if raddle::runtime::status() != raddle::runtime::Status::Green { return Ok(()); }
    /// # use raddle::ums::{self, CompletionList};
    /// let (worker, _) = ums::spawn(&CompletionList::new()?, || ())?;
    /// assert!(!worker.cpus()?.is_empty());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Context::niceness`].
    pub fn cpus(&self) -> io::Result<Vec<usize>> {
        let id = self.asked()?;
        // SAFETY: a set of numbers, for which zero bytes are the empty one.
        let mut set: cpu_set_t = unsafe { zeroed() };
        // SAFETY: a live set of that size.
        checked(unsafe { libc::sched_getaffinity(id, size_of::<cpu_set_t>(), &raw mut set) })?;
        // SAFETY: numbers within the set.
        let all = (0..CPU_SETSIZE as usize).filter(|&cpu| unsafe { CPU_ISSET(cpu, &set) });
        Ok(all.collect())
    }

    /// Changes the CPUs that the worker's thread asks for (`sched_setaffinity(2)`).
    ///
    /// ```
    /// # if raddle::runtime::status() != raddle::runtime::Status::Green { return Ok(()); }
    /// # use raddle::ums::{self, CompletionList};
    /// let (worker, _) = ums::spawn(&CompletionList::new()?, || ())?;
    /// let allowed = worker.cpus()?;
    /// worker.set_cpus(&allowed[..1])?;
    /// assert_eq!(worker.cpus()?, allowed[..1]);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Context::niceness`], and [`io::ErrorKind::InvalidInput`] if there is no such CPU.
    pub fn set_cpus(&self, cpus: &[usize]) -> io::Result<()> {
        let id = self.asked()?;
        // SAFETY: as in `cpus`.
        let mut set: cpu_set_t = unsafe { zeroed() };
        for &cpu in cpus {
            if cpu >= CPU_SETSIZE as usize {
                return Err(io::ErrorKind::InvalidInput.into());
            }
            // SAFETY: a number within the set.
            unsafe { CPU_SET(cpu, &mut set) };
        }
        // SAFETY: a live set of that size.
        checked(unsafe { libc::sched_setaffinity(id, size_of::<cpu_set_t>(), &raw const set) })
    }
}
