//! How many carriers run beside those that the CPUs call for, while other processes want the CPUs.
//!
//! The kernel shares a CPU among kernel threads. `c` carriers beside `o` other runnable kernel
//! threads get `c / (c + o)` of the CPUs, however many green threads want to run. As many kernel
//! threads as green threads would get more. Extra carriers restore a part of that.
//!
//! Sysmon measures in *windows* of [`WINDOW_NS`] while green threads wait for a carrier:
//!
//! 1. The process is *starved* if it and its relatives by forks got less than a quarter of its CPUs
//!    together, and the kernel says that its carriers waited for a CPU for three times as long as
//!    they ran. After two such windows in a row there is half as many carriers again.
//! 2. The process is *relieved* if it and its relatives got more than half of its CPUs, or if no
//!    thread waits for a carrier. After two such windows in a row half of the extra carriers go.
//!
//! Growth ends at a third or so of the CPUs, below the half at which carriers go: the number
//! doesn't swing. Carriers that wait for each other only have all CPUs together, and so are never
//! starved. A carrier that waits in the kernel and a machine that was suspended show no wait for a
//! CPU, and a quota that is used up counts as all of the CPUs.
//!
//! Rejected: extra carriers whenever others run. Clients on the same CPUs are such others, and with
//! four or eight carriers on two CPUs a server under their load was a fifth slower. Relatives that
//! count as others: each process of a server gets less than a quarter of the CPUs, because the
//! others have the rest, and all of them grow until each of their threads has a carrier.

/// How long one measurement lasts.
pub const WINDOW_NS: u64 = 50_000_000;
/// The most extra carriers, unless another number is asked for.
pub const MOST_EXTRA: u32 = 62;
/// So many windows in a row must say the same.
const IN_A_ROW: u32 = 2;

/// What happened during a window.
#[derive(Clone, Copy, Debug, Default)]
pub struct Window {
    /// How long it was.
    pub elapsed_ns: u64,
    /// CPU time of the carriers.
    pub used_ns: u64,
    /// CPU time of the process and its relatives by forks.
    pub family_ns: u64,
    /// For how long carriers waited for a CPU, by the kernel's account.
    pub delayed_ns: u64,
    /// CPUs that the process may use, in thousandths.
    pub capacity_thousandths: u64,
    /// Carriers that may be active without extra ones.
    pub wanted: u32,
    /// Threads that run or wait for a carrier, at its end.
    pub runnable: u32,
    /// The most extra carriers.
    pub most: u32,
}

/// See the module. All zero it is new.
#[derive(Clone, Copy, Debug, Default)]
pub struct Contention {
    extra: u32,
    starved: u32,
    relieved: u32,
}

impl Contention {
    /// No extra carriers.
    pub const fn new() -> Self {
        Self {
            extra: 0,
            starved: 0,
            relieved: 0,
        }
    }

    /// How many carriers there are beside the wanted ones.
    pub const fn extra(&self) -> u32 {
        self.extra
    }

    /// Takes a window. Returns how many extra carriers there are from now on.
    pub fn judge(&mut self, window: Window) -> u32 {
        let carriers = window.wanted + self.extra;
        let cpus = window
            .capacity_thousandths
            .min(1000 * u64::from(window.wanted));
        let all_ns = window.elapsed_ns.min(u64::MAX / 2_000_000) * cpus / 1000;
        let family_ns = window.family_ns.max(window.used_ns);
        let is_starved = family_ns < all_ns / 4
            && window.delayed_ns / 3 > window.used_ns
            && window.runnable > carriers;
        let is_relieved = family_ns > all_ns / 2 || window.runnable <= window.wanted;
        self.starved = if is_starved { self.starved + 1 } else { 0 };
        self.relieved = if is_relieved { self.relieved + 1 } else { 0 };
        if self.starved >= IN_A_ROW {
            self.extra += (carriers / 2).max(1);
            self.starved = 0;
        } else if self.relieved >= IN_A_ROW {
            self.extra /= 2;
            self.relieved = 0;
        }
        let useful = window.runnable.saturating_sub(window.wanted);
        let most = if is_starved {
            window.most.min(useful)
        } else {
            window.most
        };
        self.extra = self.extra.min(most);
        self.extra
    }

    /// Nothing ran for a while: there are no extra carriers.
    pub fn rest(&mut self) {
        *self = Self::new();
    }
}

#[cfg(all(test, not(any(raddle_loom, raddle_shuttle))))]
mod tests {
    use super::*;

    /// A kernel that shares `cpus` evenly among carriers and `others` threads that compute.
    struct Machine {
        cpus: u32,
        others: u32,
        runnable: u32,
        contention: Contention,
    }

    impl Machine {
        fn with(cpus: u32, others: u32, runnable: u32) -> Self {
            let contention = Contention::new();
            Self {
                cpus,
                others,
                runnable,
                contention,
            }
        }

        /// A window in which carriers get `percent` of what they are due.
        fn window(&self, percent: u64) -> Window {
            let active = (self.cpus + self.contention.extra()).min(self.runnable);
            let kernel_threads = u64::from(active + self.others);
            let cpu_ns = WINDOW_NS * u64::from(self.cpus).min(kernel_threads);
            let used_ns = cpu_ns * u64::from(active) / kernel_threads.max(1) * percent / 100;
            Window {
                elapsed_ns: WINDOW_NS,
                used_ns,
                family_ns: used_ns,
                delayed_ns: (WINDOW_NS * u64::from(active)).saturating_sub(used_ns),
                capacity_thousandths: 1000 * u64::from(self.cpus),
                wanted: self.cpus,
                runnable: self.runnable,
                most: MOST_EXTRA,
            }
        }

        fn after(&mut self, windows: u32) -> u32 {
            (0..windows).fold(0, |_, _| self.contention.judge(self.window(100)))
        }
    }

    #[test]
    fn a_process_alone_has_no_extra_carriers() {
        for cpus in [1, 2, 8, 64] {
            assert_eq!(Machine::with(cpus, 0, 1000).after(100), 0);
        }
    }

    #[test]
    fn clients_on_the_same_cpus_change_nothing() {
        for (cpus, others) in [(1, 2), (2, 4), (2, 6), (8, 20)] {
            assert_eq!(Machine::with(cpus, others, 200).after(100), 0);
        }
    }

    #[test]
    fn a_starved_process_gets_a_quarter_of_its_cpus_or_a_carrier_a_thread() {
        for cpus in [1, 2, 8] {
            for others in [8 * cpus, 15 * cpus, 40, 60] {
                for runnable in [2, 10, 200] {
                    let mut machine = Machine::with(cpus, others, runnable);
                    let extra = machine.after(40);
                    let carriers = cpus + extra;
                    let share = f64::from(carriers) / f64::from(carriers + others);
                    let all_have_one = carriers >= runnable;
                    assert!(share >= 0.25 || all_have_one || others < 3 * cpus);
                    assert!(carriers <= runnable.max(cpus));
                }
            }
        }
    }

    #[test]
    fn the_number_does_not_swing() {
        for others in 0..100 {
            let mut machine = Machine::with(2, others, 200);
            let settled = machine.after(40);
            assert!((0..200).all(|_| machine.after(1) == settled), "{others}");
        }
    }

    #[test]
    fn extra_carriers_go_with_the_others_and_with_the_work() {
        let mut machine = Machine::with(2, 60, 200);
        assert!(machine.after(40) > 8);
        machine.others = 0;
        assert_eq!(machine.after(20), 0);
        machine.others = 60;
        assert!(machine.after(40) > 8);
        machine.runnable = 1;
        assert_eq!(machine.after(20), 0);
    }

    #[test]
    fn relatives_that_share_the_cpus_need_no_extra_carriers() {
        let mut machine = Machine::with(2, 6, 200);
        let of_three = |window: Window| Window {
            family_ns: 3 * window.used_ns,
            ..window
        };
        // Two relatives with two carriers each, and two clients.
        for _ in 0..100 {
            let starved = machine.window(90);
            assert!(starved.used_ns < 2 * WINDOW_NS / 4);
            assert_eq!(machine.contention.judge(of_three(starved)), 0);
        }
        // Beside strangers relatives are starved together.
        machine.others = 64;
        for _ in 0..4 {
            let window = machine.window(100);
            machine.contention.judge(of_three(window));
        }
        assert!(machine.contention.extra() > 0);
    }

    #[test]
    fn one_bad_window_is_none() {
        let mut machine = Machine::with(2, 0, 200);
        for _ in 0..50 {
            let stalled = Window {
                delayed_ns: 2 * WINDOW_NS,
                ..machine.window(1)
            };
            assert_eq!(machine.contention.judge(stalled), 0);
            assert_eq!(machine.after(1), 0);
        }
    }

    #[test]
    fn a_quota_that_is_used_up_is_no_contention() {
        let mut machine = Machine::with(1, 0, 200);
        for _ in 0..100 {
            let throttled = Window {
                used_ns: WINDOW_NS / 5,
                family_ns: WINDOW_NS / 5,
                delayed_ns: WINDOW_NS * 4 / 5,
                capacity_thousandths: 200,
                ..machine.window(100)
            };
            assert_eq!(machine.contention.judge(throttled), 0);
        }
    }

    #[test]
    fn carriers_that_wait_in_the_kernel_are_not_starved() {
        let mut machine = Machine::with(2, 0, 200);
        for _ in 0..100 {
            let waiting = Window {
                used_ns: 0,
                family_ns: 0,
                delayed_ns: 0,
                ..machine.window(100)
            };
            assert_eq!(machine.contention.judge(waiting), 0);
        }
    }
}
