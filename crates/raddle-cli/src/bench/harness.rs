//! Runs one case: every way once a round, and keeps the figures of each run.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::time::Duration;

use super::process::{self, Way};
use super::{http, overhead};
use crate::cli::BenchArguments;
use crate::failure::Failure;
use crate::own_path;

pub(super) struct Settings {
    pub rounds: u32,
    pub fraction: f64,
    pub limit: Duration,
    pub raddle: PathBuf,
}

impl Settings {
    pub(super) fn new(arguments: &BenchArguments) -> Result<Settings, Failure> {
        Ok(Settings {
            rounds: arguments.rounds,
            fraction: arguments.fraction,
            limit: Duration::from_secs(arguments.limit.into()),
            raddle: this_executable()?,
        })
    }
}

/// Returns the path of the running `raddle`.
pub(super) fn this_executable() -> Result<PathBuf, Failure> {
    own_path::executable().map_err(|error| {
        Failure::input(
            format!("this executable can't be found ({error})"),
            "see whether it was moved while it runs",
        )
    })
}

/// One program with its arguments.
pub(super) struct Case {
    pub title: String,
    /// The compiler or interpreter, for the record.
    pub toolchain: String,
    pub command: Vec<OsString>,
    pub work: Work,
    pub ways: &'static [Way],
}

/// How a run gives figures.
pub(super) enum Work {
    /// The program prints the figures.
    Prints,
    /// The program prints the figures, and makes processes: one carrier in each is one CPU only
    /// where there is one.
    MakesProcesses,
    /// The program is started and waited for again and again.
    StartUp { starts: u32 },
    /// The program prints the figures, and takes the number of rounds as its last argument: as many
    /// as fit into a time, and at most `most`. It plays them `repeats` times, and a round has two
    /// hand-offs.
    HandsOff { most: u32, repeats: u32 },
    /// The program prints its CPU time, and is run with preemption and without.
    Preempted { pairs: u32 },
    /// The program is a server, and wrk loads it; with `idles` its CPU time without load is a
    /// figure, too.
    Serves { connections: u32, idles: bool },
}

/// One figure of one run.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Sample {
    pub name: String,
    pub value: f64,
    pub unit: String,
}

/// The samples of one figure, by way, in the order of the rounds.
#[derive(Debug)]
pub(super) struct Figure {
    pub name: String,
    pub unit: String,
    pub samples: BTreeMap<Way, Vec<f64>>,
}

/// The outcome of a case.
pub(super) struct Outcome {
    pub title: String,
    pub toolchain: String,
    pub figures: Vec<Figure>,
    /// Ways that failed, with the reason: once each, however many rounds failed.
    pub failures: BTreeMap<Way, String>,
}

pub(super) fn measure(case: &Case, settings: &Settings) -> Outcome {
    let mut outcome = Outcome {
        title: case.title.clone(),
        toolchain: case.toolchain.clone(),
        figures: Vec::new(),
        failures: BTreeMap::new(),
    };
    let mut lengths = BTreeMap::new();
    for round in 1..=settings.rounds {
        let mut figures = Vec::new();
        for &way in case.ways {
            // A way that has failed would only run into its limit again.
            if outcome.failures.contains_key(&way) {
                continue;
            }
            let what = format!("{}, round {round} of {}", case.title, settings.rounds);
            progress(&format!("{what}: {}", way.name()));
            match run_once(case, way, settings, &mut lengths) {
                Ok(samples) => {
                    figures.extend(samples.first().map(|first| told(way, first)));
                    samples
                        .into_iter()
                        .for_each(|sample| add(&mut outcome.figures, way, sample));
                }
                Err(why) => drop(outcome.failures.insert(way, why)),
            }
        }
        progress("");
        eprintln!(
            "{}, round {round} of {}: {}",
            case.title,
            settings.rounds,
            figures.join(", ")
        );
    }
    outcome
}

/// Formats a figure for a line of progress.
fn told(way: Way, sample: &Sample) -> String {
    format!("{} {:.1} {}", way.name(), sample.value, sample.unit)
}

/// Seconds that one run of [`Work::HandsOff`] may take.
const PLAYS_S: f64 = 5.0;
/// A first run, which measures the time of hand-offs, has one in so many of the rounds.
const TRIAL: u32 = 50;

/// Rounds of each way, once a first run has shown how many fit into the time.
type Lengths = BTreeMap<Way, u32>;

/// Returns as many rounds as take [`PLAYS_S`], at least as many as the first run's and at most
/// `most`.
fn length(most: u32, repeats: u32, hand_off_ns: f64) -> u32 {
    let round_s = hand_off_ns * 2.0 * f64::from(repeats) / 1e9;
    let fitting = (PLAYS_S / round_s).round() as u32; // of an infinite number the largest
    fitting.clamp((most / TRIAL).max(1), most.max(1))
}

/// Runs a case of hand-offs, after a first run that gives the number of rounds.
fn hand_off(
    case: &Case,
    way: Way,
    settings: &Settings,
    (most, repeats): (u32, u32),
    lengths: &mut Lengths,
) -> Result<Vec<Sample>, String> {
    let play = |rounds: u32| {
        let program = [&case.command[..], &[rounds.to_string().into()]].concat();
        let mut command = way.command(&settings.raddle, &program);
        parse(&process::output(way, &mut command, settings.limit)?)
    };
    let rounds = match lengths.get(&way) {
        Some(&rounds) => rounds,
        None => {
            let trial = play((most / TRIAL).max(1))?;
            let hand_off_ns = trial.first().map_or(0.0, |sample| sample.value);
            *lengths
                .entry(way)
                .or_insert(length(most, repeats, hand_off_ns))
        }
    };
    play(rounds)
}

fn run_once(
    case: &Case,
    way: Way,
    settings: &Settings,
    lengths: &mut Lengths,
) -> Result<Vec<Sample>, String> {
    let mut command = way.command(&settings.raddle, &case.command);
    match case.work {
        Work::Prints => parse(&process::output(way, &mut command, settings.limit)?),
        Work::MakesProcesses => parse(&process::output_of_processes(
            way,
            &mut command,
            settings.limit,
        )?),
        Work::HandsOff { most, repeats } => hand_off(case, way, settings, (most, repeats), lengths),
        Work::Preempted { pairs } => overhead::preempted(way, &case.command, pairs, settings),
        Work::StartUp { starts } => overhead::start_up(way, &mut command, starts, settings.limit),
        Work::Serves { connections, idles } => {
            let mut samples = Vec::new();
            let server = http::load(way, &mut command, connections, settings, &mut samples)?;
            if idles {
                samples.push(http::idle(&server, settings)?);
            }
            Ok(samples)
        }
    }
}

/// Puts a sample with the others of its name and unit.
pub(super) fn add(figures: &mut Vec<Figure>, way: Way, sample: Sample) {
    let same = |figure: &&mut Figure| figure.name == sample.name && figure.unit == sample.unit;
    match figures.iter_mut().find(same) {
        Some(figure) => figure.samples.entry(way).or_default().push(sample.value),
        None => figures.push(Figure {
            name: sample.name,
            unit: sample.unit,
            samples: BTreeMap::from([(way, vec![sample.value])]),
        }),
    }
}

impl Figure {
    pub(super) fn median(&self, way: Way) -> Option<f64> {
        let mut samples = self.samples.get(&way)?.clone();
        median(&mut samples)
    }

    /// Returns whether more is better: for rates it is, for times it is not.
    pub(super) fn more_is_better(&self) -> bool {
        self.unit.ends_with("/s") && !self.unit.starts_with("us")
    }

    /// Returns how many times better `this` is than `that`.
    pub(super) fn times_better(&self, this: Way, that: Way) -> Option<f64> {
        self.better(self.median(this)?, self.median(that)?)
    }

    /// The same for samples that were taken one after the other: the median of the ratios of
    /// neighbours, which a change of the machine's speed leaves as it is.
    pub(super) fn times_better_than_neighbours(&self, this: Way, that: Way) -> Option<f64> {
        let pairs = self
            .samples
            .get(&this)?
            .iter()
            .zip(self.samples.get(&that)?);
        let mut ratios: Vec<f64> = pairs
            .filter_map(|(&this, &that)| self.better(this, that))
            .collect();
        median(&mut ratios)
    }

    fn better(&self, this: f64, that: f64) -> Option<f64> {
        let (better, worse) = if self.more_is_better() {
            (this, that)
        } else {
            (that, this)
        };
        (worse > 0.0).then_some(better / worse)
    }
}

/// Returns the median of the samples; of two middles the mean. Sorts the samples.
pub(super) fn median(samples: &mut [f64]) -> Option<f64> {
    samples.sort_by(f64::total_cmp);
    let (low, high) = (samples.len().checked_sub(1)? / 2, samples.len() / 2);
    Some((samples[low] + samples[high]) / 2.0)
}

/// Parses the `METRIC name value unit` lines; a program without one has failed.
pub(super) fn parse(output: &str) -> Result<Vec<Sample>, String> {
    let samples: Vec<_> = output.lines().filter_map(parse_line).collect();
    if samples.is_empty() {
        Err("it printed no figure".into())
    } else {
        Ok(samples)
    }
}

fn parse_line(line: &str) -> Option<Sample> {
    let mut words = line.strip_prefix("METRIC ")?.split_whitespace();
    let (name, value, unit) = (words.next()?, words.next()?, words.next()?);
    Some(Sample {
        name: name.into(),
        value: value.parse().ok().filter(|value: &f64| value.is_finite())?,
        unit: unit.into(),
    })
}

/// Shows the current run, on a terminal only, until the next call.
pub(super) fn progress(what: &str) {
    let mut err = io::stderr();
    if err.is_terminal() {
        let _ = write!(err, "\r\x1b[K{what}");
        let _ = err.flush();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(unit: &str, native: &[f64], raddle: &[f64]) -> Figure {
        Figure {
            name: "x".into(),
            unit: unit.into(),
            samples: BTreeMap::from([
                (Way::NativeOne, native.to_vec()),
                (Way::RaddleOne, raddle.to_vec()),
            ]),
        }
    }

    #[test]
    fn medians_stand_in_the_middle() {
        assert_eq!(median(&mut [3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&mut [4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(median(&mut []), None);
    }

    #[test]
    fn times_better_knows_rates_from_times() {
        let times = figure("ns", &[2000.0], &[100.0]);
        assert_eq!(
            times.times_better(Way::RaddleOne, Way::NativeOne),
            Some(20.0)
        );
        let rates = figure("req/s", &[100.0], &[150.0]);
        assert_eq!(
            rates.times_better(Way::RaddleOne, Way::NativeOne),
            Some(1.5)
        );
        assert!(!figure("us/s", &[], &[]).more_is_better());
        assert_eq!(times.times_better(Way::RaddleOne, Way::NativeAll), None);
        assert_eq!(
            figure("ns", &[1.0], &[0.0]).times_better(Way::RaddleOne, Way::NativeOne),
            None
        );
    }

    #[test]
    fn slow_hand_offs_get_fewer_rounds() {
        assert_eq!(length(1_000_000, 1, 80.0), 1_000_000);
        assert_eq!(length(1_000_000, 1, 40_000.0), 62_500);
        assert_eq!(length(300_000, 3, 40_000.0), 20_833);
        assert_eq!(
            length(1_000_000, 1, 4e6),
            20_000,
            "no fewer than were tried"
        );
        assert_eq!(length(10, 1, 0.0), 10);
    }

    #[test]
    fn only_whole_metric_lines_count() {
        let samples = parse("hello\nMETRIC hand-off 12.5 ns\nMETRIC bad nan ns\nMETRIC a 1\n");
        let sample = Sample {
            name: "hand-off".into(),
            value: 12.5,
            unit: "ns".into(),
        };
        assert_eq!(samples, Ok(vec![sample]));
        assert!(parse("hello\n").is_err());
    }
}
