//! The text of a scrape, in OpenMetrics.

mod families;

use std::fmt;

use anyhow::Result;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};
use raddle_inspect::{BUCKETS, Histogram, upper_ns};

use super::exporter::Sample;

/// What the text's type is called in HTTP.
pub(super) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Returns the text of the samples.
pub(super) fn text(samples: Vec<Sample>) -> Result<String> {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Page { samples }));
    let mut text = String::new();
    encode(&mut text, &registry)?;
    Ok(text)
}

struct Page {
    samples: Vec<Sample>,
}

impl fmt::Debug for Page {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "a page of {} processes", self.samples.len())
    }
}

impl Collector for Page {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        families::write(&self.samples, &mut Families(encoder))
    }
}

/// Labels of one row.
type Labels = Vec<(&'static str, String)>;

/// What is written of one row.
struct Row<V> {
    labels: Labels,
    value: V,
}

/// A histogram with the sum of its durations, as the process has them.
struct Durations<'a> {
    histogram: &'a Histogram,
    sum_ns: u64,
}

/// Writes one family after the other.
struct Families<'a>(DescriptorEncoder<'a>);

impl Families<'_> {
    fn gauge(
        &mut self,
        name: &str,
        help: &str,
        rows: impl IntoIterator<Item = Row<f64>>,
    ) -> fmt::Result {
        let (name, unit) = with_unit(name);
        let unit = unit.as_ref();
        let gauge = MetricType::Gauge;
        let mut metric = self.0.encode_descriptor(name, help, unit, gauge)?;
        for row in rows {
            metric
                .encode_family(&row.labels)?
                .encode_gauge(&row.value)?;
        }
        Ok(())
    }

    /// `name` is without `_total`.
    fn counter(
        &mut self,
        name: &str,
        help: &str,
        rows: impl IntoIterator<Item = Row<u64>>,
    ) -> fmt::Result {
        let counter = MetricType::Counter;
        let mut metric = self.0.encode_descriptor(name, help, None, counter)?;
        for row in rows {
            metric
                .encode_family(&row.labels)?
                .encode_counter::<NoLabelSet, _, u64>(&row.value, None)?;
        }
        Ok(())
    }

    /// Of nanoseconds; `name` is without `_seconds_total`.
    fn seconds(
        &mut self,
        name: &str,
        help: &str,
        rows: impl IntoIterator<Item = Row<u64>>,
    ) -> fmt::Result {
        let unit = Some(&Unit::Seconds);
        let counter = MetricType::Counter;
        let mut metric = self.0.encode_descriptor(name, help, unit, counter)?;
        for row in rows {
            metric
                .encode_family(&row.labels)?
                .encode_counter::<NoLabelSet, _, f64>(&seconds(row.value), None)?;
        }
        Ok(())
    }

    fn info(
        &mut self,
        name: &str,
        help: &str,
        rows: impl IntoIterator<Item = Row<Labels>>,
    ) -> fmt::Result {
        let info = MetricType::Info;
        let mut metric = self.0.encode_descriptor(name, help, None, info)?;
        for row in rows {
            metric.encode_family(&row.labels)?.encode_info(&row.value)?;
        }
        Ok(())
    }

    /// `name` is without `_seconds`.
    fn histogram<'h>(
        &mut self,
        name: &str,
        help: &str,
        rows: impl IntoIterator<Item = Row<Durations<'h>>>,
    ) -> fmt::Result {
        let unit = Some(&Unit::Seconds);
        let histogram = MetricType::Histogram;
        let mut metric = self.0.encode_descriptor(name, help, unit, histogram)?;
        for row in rows {
            let buckets = buckets(row.value.histogram);
            let count = buckets.iter().map(|(_, count)| count).sum();
            let sum = seconds(row.value.sum_ns);
            metric
                .encode_family(&row.labels)?
                .encode_histogram::<NoLabelSet>(sum, count, &buckets, None)?;
        }
        Ok(())
    }
}

/// The name without `_seconds`, and that unit, if it has it.
fn with_unit(name: &str) -> (&str, Option<Unit>) {
    match name.strip_suffix("_seconds") {
        Some(rest) => (rest, Some(Unit::Seconds)),
        None => (name, None),
    }
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

/// The upper ends in seconds and the counts, one bucket for each doubling: a process has two of
/// these histograms, and a time series for each bucket is kept.
fn buckets(histogram: &Histogram) -> Vec<(f64, u64)> {
    const EACH: usize = 4;
    /// The counts are the other process's word; their sum must be a number.
    const COUNT_MAX: u64 = u64::MAX / BUCKETS as u64;
    let octaves = histogram.counts.chunks(EACH).enumerate();
    octaves
        .map(|(octave, counts)| {
            let last = octave * EACH + EACH - 1;
            let end = if last == BUCKETS - 1 {
                f64::INFINITY
            } else {
                seconds(upper_ns(last))
            };
            (end, counts.iter().map(|it| *it.min(&COUNT_MAX)).sum())
        })
        .collect()
}

#[cfg(test)]
mod tests;
