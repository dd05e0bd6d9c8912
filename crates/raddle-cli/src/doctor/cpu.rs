//! The CPU: the features for a switch, the size of vector registers, the number of CPUs.

use super::Finding;
use super::probe;
use crate::machine;

pub(super) fn fs_base() -> Finding {
    match (cfg!(target_arch = "x86_64"), probe::fs_base_instructions()) {
        (true, true) => Finding::ok("FSGSBASE", "user code may set the FS base"),
        (true, false) => Finding::broken(
            "FSGSBASE",
            "not enabled",
            "a switch can't change the thread pointer",
            "use Linux 5.9 or later on a CPU from 2012 or later, without nofsgsbase",
        ),
        (false, _) => Finding::broken(
            "FSGSBASE",
            std::env::consts::ARCH,
            "there are green threads on x86-64 only",
            "use an x86-64 machine",
        ),
    }
}

pub(super) fn vectors() -> Finding {
    #[cfg(target_arch = "x86_64")]
    let widest = match (
        std::arch::is_x86_feature_detected!("avx512f"),
        std::arch::is_x86_feature_detected!("avx"),
    ) {
        (true, _) => "AVX-512",
        (false, true) => "AVX",
        (false, false) => "SSE2",
    };
    #[cfg(not(target_arch = "x86_64"))]
    let widest = "unknown";
    Finding::ok("vectors", format!("up to {widest}"))
}

pub(super) fn carriers() -> Finding {
    let (allowed, quota) = (machine::cpus_allowed(), machine::cpu_quota());
    let seen = format!("{allowed} may be used");
    let Some(quota) = quota.filter(|&quota| quota < allowed as f64) else {
        return Finding::ok("CPUs", format!("{seen}, no quota below that"));
    };
    let seen = format!("{seen}, of which the control group grants the time of {quota:.2}");
    if quota < 1.0 {
        Finding::degraded(
            "CPUs",
            seen,
            "the one carrier is stopped for a part of every period, and all green threads with it",
            "grant at least one CPU (cpu.max)",
        )
    } else {
        Finding::ok("CPUs", seen)
    }
}

pub(super) fn shadow_stack() -> Finding {
    const NAME: &str = "shadow stack";
    if !probe::shadow_stack() {
        Finding::ok(NAME, "not in use")
    } else {
        Finding::broken(
            NAME,
            "in use",
            "the CPU refuses to return on a stack that it did not see called",
            "unset GLIBC_TUNABLES, or set glibc.cpu.x86_shstk=off in it",
        )
    }
}
