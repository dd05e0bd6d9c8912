//! Memory that a case and its server share: traces, and the present work of each agent.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use crate::case::{CHILDREN, FIRST_CHILD, agent_name};

/// Agents that have a trace: threads, and children behind them.
pub(super) const AGENTS: usize = (FIRST_CHILD + CHILDREN) as usize;

const TRACE_BYTES: usize = 48 << 10;

/// One agent's lines. Written by that agent alone, its signal handlers included; read by the server
/// when the case is over.
#[repr(C)]
struct Trace {
    len: AtomicUsize,
    bytes: UnsafeCell<[u8; TRACE_BYTES]>,
}

/// The memory that one case and the server share. All zeros is its first state.
#[repr(C)]
pub(super) struct Slot {
    /// When the main agent began its present step, in nanoseconds of the monotonic clock; 0 before
    /// the first. Written by the case, read by the server.
    pub busy_since: AtomicU64,
    /// Milliseconds that this step's events take. Likewise.
    pub events_ms: AtomicU32,
    /// By agent: 1 + the step of the call that it makes, 0 if it makes none. Likewise.
    pub calling: [AtomicU32; AGENTS],
    /// By child: 1 once it is over. Written by the child.
    pub ended: [AtomicU32; CHILDREN as usize],
    /// By child: its process id. Written by its parent.
    pub pids: [AtomicI32; CHILDREN as usize],
    /// The queue and the semaphores of System V that the case made, plus 1. Written by the case.
    pub queue: AtomicI32,
    pub semaphores: AtomicI32,
    traces: [Trace; AGENTS],
}

// SAFETY: a trace's bytes are reserved by an addition to its length before they are written, and
// read when no writer lives.
unsafe impl Sync for Slot {}

impl Slot {
    /// Makes slots in memory that children share.
    ///
    /// # Errors
    /// The kernel's.
    pub(super) fn many(count: usize) -> std::io::Result<&'static [Slot]> {
        let bytes = count * size_of::<Slot>();
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, -1, 0) };
        if at == libc::MAP_FAILED {
            return Err(std::io::Error::last_os_error());
        }
        // SAFETY: zeros are slots, and the mapping lasts as long as the process.
        Ok(unsafe { std::slice::from_raw_parts(at.cast(), count) })
    }

    /// Resets the slot to its first state.
    pub(super) fn clear(&self) {
        self.busy_since.store(0, Ordering::Relaxed);
        self.events_ms.store(0, Ordering::Relaxed);
        self.queue.store(0, Ordering::Relaxed);
        self.semaphores.store(0, Ordering::Relaxed);
        for word in self.calling.iter().chain(&self.ended) {
            word.store(0, Ordering::Relaxed);
        }
        for pid in &self.pids {
            pid.store(0, Ordering::Relaxed);
        }
        for trace in &self.traces {
            trace.len.store(0, Ordering::Relaxed);
        }
    }

    /// Adds a line to an agent's trace. Any instruction may be interrupted by a handler that adds
    /// lines of its own; a full trace stays as it is.
    pub(super) fn write(&self, agent: u8, line: &Line) {
        let trace = &self.traces[agent as usize];
        let text = line.bytes();
        let at = trace.len.fetch_add(text.len(), Ordering::Relaxed);
        if at + text.len() <= TRACE_BYTES {
            let to = trace.bytes.get().cast::<u8>().wrapping_add(at);
            // SAFETY: the range was reserved by the addition, and is within the array.
            unsafe { std::ptr::copy_nonoverlapping(text.as_ptr(), to, text.len()) };
        }
    }

    /// All traces, each line with its agent's name before it.
    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        for (agent, trace) in self.traces.iter().enumerate() {
            let len = trace.len.load(Ordering::Relaxed).min(TRACE_BYTES);
            // SAFETY: the agents are dead, and any bytes are bytes.
            let bytes = unsafe { &(&*trace.bytes.get())[..len] };
            let name = agent_name(agent as u8);
            for line in String::from_utf8_lossy(bytes).lines() {
                text.push_str(&name);
                text.push(' ');
                text.push_str(line);
                text.push('\n');
            }
        }
        text
    }
}

/// A line that is being written, without memory of its own: handlers write lines.
pub(super) struct Line {
    bytes: [u8; 224],
    len: usize,
}

impl Line {
    pub(super) const fn new() -> Self {
        Self {
            bytes: [0; 224],
            len: 0,
        }
    }

    pub(super) fn text(mut self, text: &str) -> Self {
        for &byte in text.as_bytes() {
            // The last byte is the line's end.
            if self.len < self.bytes.len() - 1 {
                self.bytes[self.len] = byte;
                self.len += 1;
            }
        }
        self
    }

    /// A decimal number.
    pub(super) fn number(self, number: i64) -> Self {
        let line = if number < 0 { self.text("-") } else { self };
        line.digits(number.unsigned_abs(), 10)
    }

    pub(super) fn hex(self, number: u64) -> Self {
        self.text("0x").digits(number, 16)
    }

    fn digits(self, mut number: u64, base: u64) -> Self {
        let mut digits = [0_u8; 20];
        let mut from = digits.len();
        loop {
            from -= 1;
            let digit = (number % base) as u8;
            digits[from] = if digit < 10 {
                b'0' + digit
            } else {
                b'a' + digit - 10
            };
            number /= base;
            if number == 0 {
                break;
            }
        }
        let text = std::str::from_utf8(&digits[from..]).unwrap_or_default();
        self.text(text)
    }

    fn bytes(&self) -> &[u8] {
        // The line's end replaces nothing: there is always room for it.
        &self.bytes[..self.len]
    }

    /// Writes the line, with its end.
    pub(super) fn write(mut self, slot: &Slot, agent: u8) {
        self.bytes[self.len] = b'\n';
        self.len += 1;
        slot.write(agent, &self);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_say_what_was_written() {
        let slots = Slot::many(1).expect("memory");
        Line::new()
            .text("a ")
            .number(-12)
            .text(" ")
            .hex(0xabc)
            .write(&slots[0], 0);
        Line::new().number(i64::MIN).write(&slots[0], 1);
        assert_eq!(
            slots[0].text(),
            "main a -12 0xabc\na1 -9223372036854775808\n"
        );
        slots[0].clear();
        assert_eq!(slots[0].text(), "");
    }

    #[test]
    fn a_long_line_is_cut() {
        let slots = Slot::many(1).expect("memory");
        Line::new().text(&"x".repeat(1000)).write(&slots[0], 0);
        assert_eq!(slots[0].text().len(), "main ".len() + 224);
    }
}
