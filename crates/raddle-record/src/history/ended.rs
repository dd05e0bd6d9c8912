//! What ended the waits of threads, beside other threads.

/// How long the waits of a doing took that threads have not ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ended {
    pub timer_ns: u64,
    pub kernel_ns: u64,
    /// By the end of another thread.
    pub end_ns: u64,
    /// Those that have no end yet.
    pub lasting_ns: u64,
}

impl Ended {
    pub(super) const NONE: Ended = Ended {
        timer_ns: 0,
        kernel_ns: 0,
        end_ns: 0,
        lasting_ns: 0,
    };

    pub(super) fn merge(&mut self, other: &Ended) {
        self.timer_ns += other.timer_ns;
        self.kernel_ns += other.kernel_ns;
        self.end_ns += other.end_ns;
        self.lasting_ns += other.lasting_ns;
    }
}
