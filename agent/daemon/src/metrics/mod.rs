//! What monitoring systems read: metrics in the text formats of OpenMetrics and Prometheus.
//!
//! | file | subject |
//! |---|---|
//! | `table` | which metrics there are, and where their values come from |
//! | `snapshot` | those values at a moment |
//! | `process` | what this process takes |
//! | `programs` | what its programs in the kernel take |

mod process;
mod programs;
mod snapshot;
mod table;

use std::fmt::{self, Write as _};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, NoLabelSet, text::encode},
    metrics::MetricType,
    registry::{Registry, Unit},
};

use self::table::{Kind, METRICS, Metric, Value};
pub(super) use self::{
    process::{Process, cpu_seconds},
    programs::{ProgramTimes, Programs, own_programs},
    snapshot::Snapshot,
};

/// The media type of OpenMetrics.
pub(super) const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// The media type of Prometheus' older text format.
pub(super) const PROMETHEUS: &str = "text/plain; version=0.0.4; charset=utf-8";

/// A metric, for who reads about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Described {
    /// Its name, with its suffix.
    pub name: String,
    /// `counter`, `gauge` or `info`.
    pub kind: &'static str,
    /// The labels of its series.
    pub labels: &'static [&'static str],
    /// What it says.
    pub help: &'static str,
}

/// All metrics, in the order in which they are told.
pub fn metrics() -> Vec<Described> {
    let of = |metric: &Metric| Described {
        name: metric.full_name(),
        kind: metric.kind.name(),
        labels: metric.labels,
        help: metric.help,
    };
    METRICS.iter().map(of).collect()
}

/// The metrics as OpenMetrics has them.
pub(super) fn open_metrics(snapshot: Snapshot) -> Result<String, fmt::Error> {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(snapshot));
    let mut text = String::new();
    encode(&mut text, &registry)?;
    Ok(text)
}

/// The same in Prometheus' older text format, which has counters by the name of their series, no units and no
/// end.
pub(super) fn prometheus(snapshot: Snapshot) -> Result<String, fmt::Error> {
    let text = open_metrics(snapshot)?;
    let mut out = String::with_capacity(text.len());
    for line in text.lines() {
        let mut words = line.splitn(4, ' ');
        let (mark, what, name, rest) = (words.next(), words.next(), words.next(), words.next());
        match (mark, what, name, rest) {
            (Some("#"), Some("EOF" | "UNIT"), _, _) => {}
            (Some("#"), Some(what), Some(name), Some(rest)) => {
                let metric = METRICS.iter().find(|metric| metric.base_name() == name);
                let full = metric.map_or_else(|| name.to_owned(), Metric::full_name);
                let rest = if what == "TYPE" && rest == "info" { "gauge" } else { rest };
                writeln!(out, "# {what} {full} {rest}")?;
            }
            _ => writeln!(out, "{line}")?,
        }
    }
    Ok(out)
}

impl Collector for Snapshot {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        for metric in METRICS {
            let samples = (metric.samples)(self);
            if samples.is_empty() {
                continue;
            }
            let unit = metric.unit.map(unit);
            let kind = match metric.kind {
                Kind::Counter => MetricType::Counter,
                Kind::Gauge => MetricType::Gauge,
                Kind::Info => MetricType::Info,
            };
            let mut family = encoder.encode_descriptor(metric.name, metric.help, unit.as_ref(), kind)?;
            for (labels, value) in samples {
                match (metric.kind, value) {
                    (Kind::Info, _) => family.encode_info(&labels)?,
                    (Kind::Counter, Value::Whole(value)) => {
                        family.encode_family(&labels)?.encode_counter::<NoLabelSet, _, u64>(&value, None)?;
                    }
                    (Kind::Counter, Value::Real(value)) => {
                        family.encode_family(&labels)?.encode_counter::<NoLabelSet, _, f64>(&value, None)?;
                    }
                    // What is larger than a gauge's whole numbers can be is told less exactly.
                    (Kind::Gauge, Value::Whole(value)) => match i64::try_from(value) {
                        Ok(value) => family.encode_family(&labels)?.encode_gauge(&value)?,
                        Err(_) => family.encode_family(&labels)?.encode_gauge(&(value as f64))?,
                    },
                    (Kind::Gauge, Value::Real(value)) => {
                        family.encode_family(&labels)?.encode_gauge(&value)?;
                    }
                }
            }
        }
        Ok(())
    }
}

fn unit(name: &str) -> Unit {
    match name {
        "bytes" => Unit::Bytes,
        "seconds" => Unit::Seconds,
        other => Unit::Other(other.to_owned()),
    }
}
