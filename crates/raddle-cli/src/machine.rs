//! Facts of this machine that `raddle doctor` judges and every benchmark result carries.

use std::ffi::CStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;

/// The facts that make two benchmark results comparable, or not.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Machine {
    pub cpu: String,
    pub cpus_online: usize,
    pub cpus_allowed: usize,
    /// The CPU time that the cgroup may use, in CPUs.
    pub cpu_quota: Option<f64>,
    pub kernel: String,
    pub system: String,
    pub libc: String,
    pub raddle: &'static str,
}

impl Machine {
    pub(crate) fn look() -> Machine {
        Machine {
            cpu: cpu_model(),
            cpus_online: cpus_online(),
            cpus_allowed: cpus_allowed(),
            cpu_quota: cpu_quota(),
            kernel: kernel_release(),
            system: system_name(),
            libc: format!("glibc {}", libc_version()),
            raddle: env!("CARGO_PKG_VERSION"),
        }
    }
}

fn cpu_model() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with("model name"));
    let model = line
        .and_then(|line| line.split_once(':'))
        .map(|(_, model)| model.trim());
    model.unwrap_or("unknown").into()
}

fn cpus_online() -> usize {
    // SAFETY: no pointer is involved.
    let online = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
    usize::try_from(online).unwrap_or(1)
}

pub(crate) fn cpus_allowed() -> usize {
    let set = rustix::thread::sched_getaffinity(None);
    set.map_or(1, |set| set.count() as usize)
}

pub(crate) fn kernel_release() -> String {
    rustix::system::uname()
        .release()
        .to_string_lossy()
        .into_owned()
}

fn system_name() -> String {
    let text = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let name = text
        .lines()
        .find_map(|line| line.strip_prefix("PRETTY_NAME="));
    name.unwrap_or("unknown").trim_matches('"').into()
}

/// Returns the version of the system's libc, which this command and the programs that it starts
/// use.
pub(crate) fn libc_version() -> String {
    // SAFETY: no argument, and the string it returns is static.
    let version = unsafe { CStr::from_ptr(libc::gnu_get_libc_version()) };
    version.to_string_lossy().into_owned()
}

/// Returns this process's limit of a resource (`RLIMIT_*`): the greatest number for none, and where
/// a filter refuses the question.
pub(crate) fn limit(resource: libc::__rlimit_resource_t) -> u64 {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the kernel fills a live structure.
    match unsafe { libc::getrlimit(resource, &raw mut limit) } {
        0 => limit.rlim_cur,
        _ => u64::MAX,
    }
}

/// Returns true if `/proc` is mounted here.
pub(crate) fn has_procfs() -> bool {
    Path::new("/proc/self").exists()
}

/// The smallest CPU quota of this process's control group and those above it, in CPUs.
pub(crate) fn cpu_quota() -> Option<f64> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let quotas = groups.lines().filter_map(|line| {
        let mut fields = line.splitn(3, ':');
        let (_, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
        let (root, read): (_, fn(&Path) -> Option<f64>) = match controllers {
            "" => ("/sys/fs/cgroup", quota_v2),
            _ if controllers.split(',').any(|name| name == "cpu") => {
                ("/sys/fs/cgroup/cpu", quota_v1)
            }
            _ => return None,
        };
        smallest_up_to(Path::new(root), path, read)
    });
    quotas.reduce(f64::min)
}

fn smallest_up_to(root: &Path, path: &str, read: fn(&Path) -> Option<f64>) -> Option<f64> {
    let group: PathBuf = root.join(path.trim_start_matches('/'));
    let within = group
        .ancestors()
        .take_while(|folder| folder.starts_with(root));
    within.filter_map(read).reduce(f64::min)
}

fn quota_v2(folder: &Path) -> Option<f64> {
    parse_quota_v2(&fs::read_to_string(folder.join("cpu.max")).ok()?)
}

/// `150000 100000` is 1.5 CPUs; `max 100000` is no quota.
fn parse_quota_v2(text: &str) -> Option<f64> {
    let (quota, period) = text.trim().split_once(' ')?;
    Some(quota.parse::<f64>().ok()? / period.parse::<f64>().ok()?)
}

fn quota_v1(folder: &Path) -> Option<f64> {
    let number = |name: &str| {
        fs::read_to_string(folder.join(name))
            .ok()?
            .trim()
            .parse()
            .ok()
    };
    let (quota, period): (f64, f64) = (number("cpu.cfs_quota_us")?, number("cpu.cfs_period_us")?);
    (quota > 0.0).then_some(quota / period)
}

/// Returns the time of day in UTC, in the format of RFC 3339.
pub(crate) fn date() -> String {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    format_date(since.as_secs())
}

/// Days to a date by the usual arithmetic on years that begin in March (Hinnant,
/// "chrono-Compatible Low-Level Date Algorithms").
fn format_date(seconds: u64) -> String {
    const DAYS_OF_400_YEARS: u64 = 146_097;
    const DAYS_TO_1970: u64 = 719_468;
    let (days, second) = (seconds / 86_400 + DAYS_TO_1970, seconds % 86_400);
    let (era, day_of_era) = (days / DAYS_OF_400_YEARS, days % DAYS_OF_400_YEARS);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = (month_from_march + 2) % 12 + 1;
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotas_are_in_cpus() {
        assert_eq!(parse_quota_v2("150000 100000\n"), Some(1.5));
        assert_eq!(parse_quota_v2("max 100000\n"), None);
        assert_eq!(parse_quota_v2(""), None);
    }

    #[test]
    fn the_smallest_quota_on_the_way_up_counts() {
        let root = std::env::temp_dir().join(format!("raddle-quota-{}", std::process::id()));
        fs::create_dir_all(root.join("a/b")).unwrap();
        fs::write(root.join("cpu.max"), "max 100000\n").unwrap();
        fs::write(root.join("a/cpu.max"), "50000 100000\n").unwrap();
        fs::write(root.join("a/b/cpu.max"), "200000 100000\n").unwrap();
        assert_eq!(smallest_up_to(&root, "/a/b", quota_v2), Some(0.5));
        assert_eq!(smallest_up_to(&root, "/", quota_v2), None);
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn dates_are_civil() {
        assert_eq!(format_date(0), "1970-01-01T00:00:00Z");
        assert_eq!(format_date(951_827_696), "2000-02-29T12:34:56Z");
        assert_eq!(format_date(4_102_444_799), "2099-12-31T23:59:59Z");
    }

    #[test]
    fn this_machine_has_a_kernel_a_libc_and_a_cpu() {
        let machine = Machine::look();
        assert!(machine.cpus_allowed >= 1 && machine.cpus_allowed <= machine.cpus_online);
        assert!(machine.kernel.starts_with(|c: char| c.is_ascii_digit()));
        assert!(machine.libc.starts_with("glibc 2."));
    }
}
