//! What the values of a sample mean, by the names of their types.

use raddle_inspect::WaitKind;

use super::reader::ReadError;
use crate::profile::Activity;

/// A type of values: its name and its unit; of the period, too.
pub(super) struct Type<'a> {
    pub name: &'a str,
    pub unit: &'a str,
}

/// Where the times of a sample are.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Columns {
    /// Time on a CPU, off it, and both together: the position, and the unit in nanoseconds.
    cpu: Option<(usize, u64)>,
    off_cpu: Option<(usize, u64)>,
    wall: Option<(usize, u64)>,
    /// The number of samples.
    count: Option<usize>,
    /// If only the number of samples is known: the time for which one stands.
    period_ns: Option<u64>,
}

/// Returns a unit of time in nanoseconds; none if it is no time.
pub(super) fn unit_ns(unit: &str) -> Option<u64> {
    Some(match unit {
        "nanoseconds" | "nanosecond" | "ns" => 1,
        "microseconds" | "microsecond" | "us" => 1000,
        "milliseconds" | "millisecond" | "ms" => 1_000_000,
        "seconds" | "second" | "s" => 1_000_000_000,
        _ => return None,
    })
}

impl Columns {
    /// Finds times by the names that profilers use: `cpu`; `off_cpu`, `delay` of Go's profiles of
    /// blocking; `wall`, or any other time.
    pub(super) fn of(types: &[Type<'_>], period: Option<(Type<'_>, i64)>) -> Columns {
        let mut columns = Columns::default();
        for (position, kind) in types.iter().enumerate() {
            let name = kind.name.to_lowercase();
            let Some(unit_ns) = unit_ns(kind.unit) else {
                if columns.count.is_none() && (name == "samples" || kind.unit == "count") {
                    columns.count = Some(position);
                }
                continue;
            };
            let is_off = ["off", "delay", "wait", "lock", "block"]
                .iter()
                .any(|part| name.contains(part));
            let column = if is_off {
                &mut columns.off_cpu
            } else if name.contains("cpu") {
                &mut columns.cpu
            } else {
                &mut columns.wall
            };
            column.get_or_insert((position, unit_ns));
        }
        let period = period.and_then(|(kind, period)| {
            let unit_ns = unit_ns(kind.unit)?;
            u64::try_from(period).ok()?.checked_mul(unit_ns)
        });
        columns.period_ns = period.filter(|&period_ns| period_ns != 0);
        columns
    }

    /// Checks that there is a time.
    pub(super) fn check(&self) -> Result<(), ReadError> {
        let has_time = self.cpu.or(self.off_cpu).or(self.wall).is_some();
        let can_count = self.count.is_some() && self.period_ns.is_some();
        if !has_time && !can_count {
            return Err(ReadError::NoTimes);
        }
        Ok(())
    }

    /// True if the file does not say which time was on a CPU.
    pub(super) fn is_mixed(&self) -> bool {
        self.cpu.is_none() && self.off_cpu.is_none() && self.wall.is_some()
    }

    /// Returns the number of samples.
    pub(super) fn count(&self, values: &[i64]) -> u64 {
        let count = self.count.and_then(|position| values.get(position));
        count.map_or(1, |&count| u64::try_from(count).unwrap_or(0))
    }

    /// Returns the sum of all times of a sample of Raddle's own.
    pub(super) fn wall_ns(&self, values: &[i64]) -> u64 {
        time_ns(self.wall, values)
    }

    /// Returns what a sample of another profiler says.
    pub(super) fn times_ns(&self, values: &[i64]) -> Vec<(Activity, u64)> {
        const OFF: Activity = Activity::Waiting(WaitKind::OTHER);
        let wall_ns = time_ns(self.wall, values);
        let cpu_ns = match (self.cpu, self.off_cpu, self.wall) {
            (None, None, Some(_)) => wall_ns,
            (None, None, None) => self
                .count(values)
                .saturating_mul(self.period_ns.unwrap_or(0)),
            _ => time_ns(self.cpu, values),
        };
        let off_ns = match self.off_cpu {
            Some(_) => time_ns(self.off_cpu, values),
            None => wall_ns.saturating_sub(cpu_ns),
        };
        let times = [(Activity::Running, cpu_ns), (OFF, off_ns)];
        times.into_iter().filter(|it| it.1 != 0).collect()
    }
}

/// A time; none is negative, also where one profile was subtracted from another.
fn time_ns(column: Option<(usize, u64)>, values: &[i64]) -> u64 {
    let Some((position, unit_ns)) = column else {
        return 0;
    };
    let value = values.get(position).copied().unwrap_or(0);
    u64::try_from(value).unwrap_or(0).saturating_mul(unit_ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn columns(types: &[(&'static str, &'static str)], period_ms: i64) -> Columns {
        let types: Vec<_> = types
            .iter()
            .map(|&(name, unit)| Type { name, unit })
            .collect();
        let period = Type {
            name: "cpu",
            unit: "milliseconds",
        };
        Columns::of(&types, Some((period, period_ms)))
    }

    const OFF: Activity = Activity::Waiting(WaitKind::OTHER);

    #[test]
    fn times_are_found_by_the_names_of_many_profilers() {
        let go = columns(&[("samples", "count"), ("cpu", "nanoseconds")], 10);
        assert_eq!(go.times_ns(&[2, 20]), [(Activity::Running, 20)]);
        let blocked = columns(&[("contentions", "count"), ("delay", "nanoseconds")], 1);
        assert_eq!(blocked.times_ns(&[2, 20]), [(OFF, 20)]);
        let both = columns(&[("cpu-time", "nanoseconds"), ("wall-time", "ns")], 0);
        let expected = [(Activity::Running, 3), (OFF, 4)];
        assert_eq!(both.times_ns(&[3, 7]), expected);
        let counted = columns(&[("samples", "count")], 10);
        assert_eq!(counted.times_ns(&[3]), [(Activity::Running, 30_000_000)]);
        let mixed = columns(&[("time", "seconds")], 0);
        assert!(mixed.is_mixed() && !both.is_mixed() && !counted.is_mixed());
        assert_eq!(mixed.times_ns(&[1]), [(Activity::Running, 1_000_000_000)]);
    }

    #[test]
    fn a_profile_of_memory_has_no_times() {
        let memory = columns(&[("alloc_objects", "count"), ("alloc_space", "bytes")], 0);
        assert!(matches!(memory.check(), Err(ReadError::NoTimes)));
        assert!(columns(&[("samples", "count")], 1).check().is_ok());
        assert!(columns(&[("wall", "ns")], 0).check().is_ok());
    }

    #[test]
    fn negative_and_missing_values_are_nothing() {
        let go = columns(&[("samples", "count"), ("cpu", "seconds")], 10);
        assert_eq!(go.times_ns(&[-1, -5]), []);
        assert_eq!(go.times_ns(&[]), []);
        assert_eq!(go.count(&[-1]), 0);
        assert_eq!(go.times_ns(&[1, i64::MAX]), [(Activity::Running, u64::MAX)]);
    }
}
