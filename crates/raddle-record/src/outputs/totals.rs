//! The time of each function: its own, and with all that it called; on a CPU and off it.

use std::collections::{BTreeMap, HashMap};

use super::names;
use crate::profile::Profile;

/// Times in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// The function was the innermost of the stack.
    pub own_ns: u128,
    /// The function was somewhere in the stack.
    pub total_ns: u128,
}

/// The times of a function.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FunctionTimes {
    pub name: String,
    pub on_cpu: Times,
    pub off_cpu: Times,
}

/// The times of all functions and of the whole profile.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// In the order of names; equal names are one function.
    pub functions: Vec<FunctionTimes>,
    pub on_cpu_ns: u128,
    pub off_cpu_ns: u128,
}

impl Totals {
    /// Sums a profile's samples. A function that stands in a stack twice counts once.
    pub fn of(profile: &Profile) -> Totals {
        let mut totals = Totals::default();
        let mut stacks: HashMap<(u32, bool), u128> = HashMap::new();
        for sample in &profile.samples {
            let is_on_cpu = sample.activity.is_on_cpu();
            let weight_ns = u128::from(sample.weight_ns);
            *stacks.entry((sample.stack, is_on_cpu)).or_default() += weight_ns;
            *totals.whole(is_on_cpu) += weight_ns;
        }
        let numbers = totals.number(profile);
        // The last stack in which each function was counted.
        let mut seen = vec![usize::MAX; totals.functions.len()];
        for (position, ((stack, is_on_cpu), weight_ns)) in stacks.into_iter().enumerate() {
            let stack = profile.stacks.get(stack as usize);
            let functions = stack.into_iter().flatten().rev();
            let functions = functions.filter_map(|&it| numbers.get(it as usize));
            for (depth, &number) in functions.enumerate() {
                let function = &mut totals.functions[number];
                let times = if is_on_cpu {
                    &mut function.on_cpu
                } else {
                    &mut function.off_cpu
                };
                if depth == 0 {
                    times.own_ns += weight_ns;
                }
                if seen[number] != position {
                    seen[number] = position;
                    times.total_ns += weight_ns;
                }
            }
        }
        totals
    }

    fn whole(&mut self, is_on_cpu: bool) -> &mut u128 {
        if is_on_cpu {
            &mut self.on_cpu_ns
        } else {
            &mut self.off_cpu_ns
        }
    }

    /// Makes an entry for each name; returns the entry of each of the profile's functions.
    fn number(&mut self, profile: &Profile) -> Vec<usize> {
        let named: Vec<String> = profile.functions.iter().map(names::function).collect();
        let mut numbers: BTreeMap<&String, usize> = named.iter().map(|name| (name, 0)).collect();
        for (number, (name, entry)) in numbers.iter_mut().enumerate() {
            *entry = number;
            self.functions.push(FunctionTimes {
                name: (*name).clone(),
                ..FunctionTimes::default()
            });
        }
        named.iter().map(|name| numbers[name]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outputs::samples;

    #[test]
    fn a_recursive_function_counts_once_a_stack() {
        let totals = Totals::of(&samples::small());
        let recursive = totals
            .functions
            .iter()
            .find(|it| it.name == "descend")
            .unwrap();
        assert_eq!(recursive.on_cpu.own_ns, 30_000_000);
        assert_eq!(recursive.on_cpu.total_ns, 30_000_000);
        assert_eq!(totals.on_cpu_ns, 40_000_000);
        assert_eq!(totals.off_cpu_ns, 9_960_000_000);
    }
}
