//! How many CPUs the process may use: affinity mask and cgroup quota, both versions.

use raddle_sys::{is_err, nr, sys};

/// CPUs in the affinity mask, at least 1.
pub fn in_affinity_mask() -> u32 {
    let mut mask = [0u64; 128];
    read_affinity_mask(&mut mask);
    mask.iter()
        .map(|word| word.count_ones())
        .sum::<u32>()
        .max(1)
}

/// The calling kernel thread's affinity mask; what is there stays if it can't be read.
pub(crate) fn read_affinity_mask(mask: &mut [u64]) {
    // SAFETY: the kernel fills at most the buffer's size.
    unsafe {
        sys!(
            nr::__NR_sched_getaffinity,
            0usize,
            size_of_val(mask),
            mask.as_mut_ptr()
        )
    };
}

/// CPUs that the least quota is worth, in thousandths, of the process's cgroups and those above
/// them; `None` without a quota.
pub fn thousandths_in_cgroup_quota() -> Option<u32> {
    let mut text = [0u8; GROUPS];
    let groups = read_file(b"/proc/self/cgroup\0", &mut text)?;
    groups.split(|&b| b == b'\n').filter_map(in_group).min()
}

/// CPUs that the process may use, rounded up, at least 1: carriers to start with.
pub fn allowed() -> u32 {
    allowed_thousandths().div_ceil(1000)
}

/// CPUs that the process may use, in thousandths, at least 1.
pub(crate) fn allowed_thousandths() -> u32 {
    let mask = 1000 * in_affinity_mask();
    thousandths_in_cgroup_quota().map_or(mask, |quota| quota.clamp(1, mask))
}

/// Bytes of `/proc/self/cgroup` that are read.
const GROUPS: usize = 4096;
/// Bytes of the longest path of a file of a cgroup.
const PATH: usize = 1024;

/// The least quota of the cgroup of one line (`3:cpu,cpuacct:/a/b`; version 2: `0::/a/b`) and of
/// those above it. In a container the upper ones are out of sight, and its own is the mount's root.
fn in_group(line: &[u8]) -> Option<u32> {
    let mut fields = line.splitn(3, |&b| b == b':').skip(1);
    let (controllers, mut group) = (fields.next()?, fields.next()?);
    let quota = match controllers {
        b"" => quota_v2,
        _ if controllers.split(|&b| b == b',').any(|it| it == b"cpu") => quota_v1,
        _ => return None,
    };
    let mut least = quota(group);
    while let Some(end) = group.iter().rposition(|&b| b == b'/') {
        group = &group[..end];
        least = least.into_iter().chain(quota(group)).min();
    }
    least
}

fn quota_v2(group: &[u8]) -> Option<u32> {
    let mut text = [0u8; 64];
    let text = read_file_of(&[b"/sys/fs/cgroup", group, b"/cpu.max\0"], &mut text)?;
    let mut fields = text.split(|b| b.is_ascii_whitespace());
    thousandths(number(fields.next()?)?, number(fields.next()?)?)
}

fn quota_v1(group: &[u8]) -> Option<u32> {
    let value = |file: &[u8]| {
        let mut text = [0u8; 32];
        let text = read_file_of(&[b"/sys/fs/cgroup/cpu", group, file], &mut text)?;
        number(text.split(|b| b.is_ascii_whitespace()).next()?)
    };
    thousandths(
        value(b"/cpu.cfs_quota_us\0")?,
        value(b"/cpu.cfs_period_us\0")?,
    )
}

fn read_file_of<'a>(path: &[&[u8]], buffer: &'a mut [u8]) -> Option<&'a [u8]> {
    let mut whole = [0u8; PATH];
    read_file(join(&mut whole, path)?, buffer)
}

fn thousandths(quota: u64, period: u64) -> Option<u32> {
    const MOST: u64 = 1_000_000_000;
    (period != 0).then(|| quota.saturating_mul(1000).div_ceil(period).clamp(1, MOST) as u32)
}

/// A decimal number; `None` for `max` and `-1`.
pub fn number(text: &[u8]) -> Option<u64> {
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
