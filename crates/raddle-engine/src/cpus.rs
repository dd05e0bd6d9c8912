//! How many CPUs the process may use: affinity mask and cgroup quota, both versions.

use raddle_sys::{is_err, nr, sys};

/// CPUs in the affinity mask, at least 1.
pub fn in_affinity_mask() -> u32 {
    let mut mask = [0u64; 128];
    // SAFETY: the kernel fills at most the buffer's size.
    let bytes = unsafe {
        sys!(
            nr::__NR_sched_getaffinity,
            0usize,
            size_of_val(&mask),
            mask.as_mut_ptr()
        )
    };
    if is_err(bytes) {
        return 1;
    }
    mask.iter()
        .map(|word| word.count_ones())
        .sum::<u32>()
        .max(1)
}

/// CPUs that the cgroup's quota is worth, rounded up; `None` without a quota.
pub fn in_cgroup_quota() -> Option<u32> {
    quota_v2().or_else(quota_v1)
}

/// Carriers to start with: as many as CPUs we may use.
pub fn allowed() -> u32 {
    let mask = in_affinity_mask();
    in_cgroup_quota()
        .map_or(mask, |quota| quota.min(mask))
        .max(1)
}

fn quota_v2() -> Option<u32> {
    let mut own = [0u8; 512];
    let own = read_file(b"/proc/self/cgroup\0", &mut own)?;
    let line = own
        .split(|&b| b == b'\n')
        .find(|line| line.starts_with(b"0::"))?;
    let mut path = [0u8; 600];
    let path = join(&mut path, &[b"/sys/fs/cgroup", &line[3..], b"/cpu.max\0"])?;
    let mut text = [0u8; 64];
    let text = read_file(path, &mut text);
    // Inside a container the cgroup's own directory is the mount's root.
    let mut root = [0u8; 64];
    let text = match text {
        Some(text) => text,
        None => read_file(b"/sys/fs/cgroup/cpu.max\0", &mut root)?,
    };
    let mut fields = text.split(|b| b.is_ascii_whitespace());
    let quota = number(fields.next()?)?;
    let period = number(fields.next()?)?;
    ceil_cpus(quota, period)
}

fn quota_v1() -> Option<u32> {
    let (mut quota, mut period) = ([0u8; 32], [0u8; 32]);
    let quota = read_file(b"/sys/fs/cgroup/cpu/cpu.cfs_quota_us\0", &mut quota)?;
    let period = read_file(b"/sys/fs/cgroup/cpu/cpu.cfs_period_us\0", &mut period)?;
    let trim = |text: &[u8]| number(text.split(|b| b.is_ascii_whitespace()).next()?);
    ceil_cpus(trim(quota)?, trim(period)?)
}

fn ceil_cpus(quota: u64, period: u64) -> Option<u32> {
    (period != 0).then(|| quota.div_ceil(period).max(1) as u32)
}

/// A decimal number; `None` for `max` and `-1`.
fn number(text: &[u8]) -> Option<u64> {
    if text.is_empty() || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    Some(text.iter().fold(0u64, |n, d| {
        n.saturating_mul(10).saturating_add(u64::from(d - b'0'))
    }))
}

fn join<'a>(buffer: &'a mut [u8], parts: &[&[u8]]) -> Option<&'a [u8]> {
    let mut len = 0;
    for part in parts {
        buffer.get_mut(len..len + part.len())?.copy_from_slice(part);
        len += part.len();
    }
    Some(&buffer[..len])
}

/// The first bytes of a file; `path` ends in a zero.
pub fn read_file<'a>(path: &[u8], buffer: &'a mut [u8]) -> Option<&'a [u8]> {
    const READ_CLOEXEC: usize = 0o2000000;
    // SAFETY: a zero-terminated path and a live buffer.
    unsafe {
        let fd = sys!(
            nr::__NR_openat,
            -100isize,
            path.as_ptr(),
            READ_CLOEXEC,
            0usize
        );
        if is_err(fd) {
            return None;
        }
        let len = sys!(nr::__NR_read, fd, buffer.as_mut_ptr(), buffer.len());
        sys!(nr::__NR_close, fd);
        if is_err(len) {
            None
        } else {
            Some(&buffer[..len as usize])
        }
    }
}
