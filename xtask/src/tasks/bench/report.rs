//! What is computed from the runs. A new measure is a line in [`MEASURES`].

use std::fmt::Write as _;
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};

use super::chart::{self, Bar, Group};
use super::load::Workload;
use super::recorder::{RING_KB, Recorder};
use super::{Load, Round, Rounds, Run};
use crate::{Result, process};

/// The recorder that the others are compared with.
pub(super) const OURS: &str = "tracer-agent";

struct Measure {
    /// Its name in JSON.
    key: &'static str,
    /// Its name in the table, with the unit.
    title: &'static str,
    /// Whether dividing two of them says something.
    compared: bool,
    value: fn(&Round, &Run) -> f64,
}

const MEASURES: &[Measure] = &[
    Measure {
        key: "added_ns",
        title: "added time per event, ns",
        compared: true,
        value: |round, run| added(round, run, |load| load.elapsed),
    },
    Measure {
        key: "added_cpu_ns",
        title: "added CPU time of the load per event, ns",
        compared: true,
        value: |round, run| added(round, run, |load| load.cpu),
    },
    Measure {
        key: "cpu_ms_per_million",
        title: "recorder CPU per 10^6 events, ms",
        compared: true,
        value: |_, run| run.cpu.as_secs_f64() * 1e9 / run.counts.recorded.max(1) as f64,
    },
    Measure {
        key: "peak_mb",
        title: "peak memory of a process, MB",
        compared: true,
        value: |_, run| run.peak_bytes as f64 / 1e6,
    },
    Measure {
        key: "bytes_per_event",
        title: "file bytes per event",
        compared: true,
        value: |_, run| run.file_bytes as f64 / run.counts.recorded.max(1) as f64,
    },
    Measure {
        key: "start_ms",
        title: "recorder start to load start, ms",
        compared: true,
        value: |_, run| run.start.as_secs_f64() * 1e3,
    },
    Measure {
        key: "finish_ms",
        title: "load end to recorder end, ms",
        compared: true,
        value: |_, run| run.finish.as_secs_f64() * 1e3,
    },
    Measure {
        key: "gone_ms",
        title: "load end to last process gone, ms",
        compared: true,
        value: |_, run| run.gone.as_secs_f64() * 1e3,
    },
    Measure {
        key: "recorded",
        title: "events recorded",
        compared: false,
        value: |_, run| run.counts.recorded as f64,
    },
    Measure {
        key: "stolen_percent",
        title: "taken by the host, % of the load's time",
        compared: false,
        value: |_, run| run.load.stolen_share() * 100.0,
    },
    Measure {
        key: "preempted",
        title: "times that the load was preempted",
        compared: false,
        value: |_, run| run.load.preempted as f64,
    },
    Measure { key: "lost", title: "events lost", compared: false, value: |_, run| run.counts.lost as f64 },
];

fn added(round: &Round, run: &Run, time: fn(Load) -> Duration) -> f64 {
    (time(run.load).as_nanos() as f64 - time(round.untraced).as_nanos() as f64) / run.events.max(1) as f64
}

/// The middle of some numbers, and how far they spread.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Spread {
    median: f64,
    min: f64,
    max: f64,
}

impl Spread {
    pub(super) fn of(values: impl Iterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.filter(|value| value.is_finite()).collect();
        values.sort_by(f64::total_cmp);
        let (&min, &max) = (values.first()?, values.last()?);
        let middle = values.len() / 2;
        let median = if values.len() % 2 == 1 {
            values[middle]
        } else {
            f64::midpoint(values[middle - 1], values[middle])
        };
        Some(Self { median, min, max })
    }

    pub(super) fn json(self) -> Value {
        json!({ "median": self.median, "min": self.min, "max": self.max })
    }

    pub(super) fn cell(self) -> String {
        let digits = match self.median.abs() {
            0.0..10.0 => 2,
            10.0..100.0 => 1,
            _ => 0,
        };
        format!("{:.digits$} ({:.digits$} .. {:.digits$})", self.median, self.min, self.max)
    }
}

/// All rounds of all workloads.
pub(super) struct Report {
    recorders: Vec<String>,
    workloads: Vec<Measured>,
    /// Who else was tracing.
    others: Vec<String>,
}

struct Measured {
    name: &'static str,
    events: String,
    iterations: u64,
    rounds: Vec<Round>,
    /// How many of the rounds count although the host took much.
    robbed: usize,
    /// Rounds that were left out because it did.
    left_out: usize,
}

impl Report {
    pub(super) fn new(recorders: &[Recorder]) -> Self {
        Self {
            recorders: recorders.iter().map(|recorder| recorder.name.clone()).collect(),
            workloads: Vec::new(),
            others: Vec::new(),
        }
    }

    pub(super) fn add(&mut self, workload: &Workload, iterations: u64, rounds: Rounds) {
        let Rounds { counted, robbed, left_out } = rounds;
        self.workloads.push(Measured {
            name: workload.name,
            events: workload.events.join(" "),
            iterations,
            rounds: counted,
            robbed,
            left_out,
        });
    }

    /// Notes who else was tracing at some time.
    pub(super) fn note_others(&mut self, others: &[String]) {
        for other in others {
            if !self.others.contains(other) {
                self.others.push(other.clone());
            }
        }
    }

    /// For people: `median (min .. max)`, and the ratios to every other recorder.
    pub(super) fn table(&self) -> String {
        let mut text = String::new();
        for workload in &self.workloads {
            let _ = writeln!(
                text,
                "\n{}: {}, {} iterations, {} rounds{}\n",
                workload.name,
                workload.events,
                workload.iterations,
                workload.rounds.len(),
                workload.about_the_host()
            );
            let mut rows = vec![vec!["median (min .. max)".to_owned()]];
            rows[0].extend(self.recorders.iter().cloned());
            rows[0].extend(self.others().map(|(_, name)| format!("{OURS} / {name}")));
            let untraced =
                Spread::of(workload.rounds.iter().map(|round| round.untraced.elapsed.as_secs_f64() * 1e3));
            rows.push(vec!["untraced, ms".into(), untraced.map(Spread::cell).unwrap_or_default()]);
            let stolen = workload.rounds.iter().map(|round| round.untraced.stolen_share() * 100.0);
            let stolen = Spread::of(stolen).map(Spread::cell).unwrap_or_default();
            rows.push(vec!["taken by the host untraced, %".into(), stolen]);
            let preempted = workload.rounds.iter().map(|round| round.untraced.preempted as f64);
            let preempted = Spread::of(preempted).map(Spread::cell).unwrap_or_default();
            rows.push(vec!["times preempted untraced".into(), preempted]);
            for measure in MEASURES {
                let mut row = vec![measure.title.to_owned()];
                let cell = |spread: Option<Spread>| spread.map_or_else(|| "-".into(), Spread::cell);
                row.extend((0..self.recorders.len()).map(|index| cell(workload.spread(measure, index))));
                if measure.compared {
                    row.extend(self.others().map(|(index, _)| cell(workload.ratio(measure, index))));
                }
                rows.push(row);
            }
            text += &aligned(&rows);
        }
        if !self.others.is_empty() {
            let _ = writeln!(
                text,
                "\nOthers were tracing: {}. These figures are not to be quoted.",
                self.others.join(", ")
            );
        }
        text
    }

    /// A picture of the added time per event.
    pub(super) fn chart(&self) -> String {
        let measure = &MEASURES[0];
        let groups: Vec<Group> = self
            .workloads
            .iter()
            // Nothing is added to doing nothing.
            .filter(|workload| workload.name != "idle")
            .map(|workload| Group {
                name: format!("{}: {}", workload.name, workload.events),
                bars: self
                    .recorders
                    .iter()
                    .enumerate()
                    .map(|(index, name)| Bar {
                        name: name.clone(),
                        value: workload.spread(measure, index).map(|spread| spread.median),
                    })
                    .collect(),
            })
            .collect();
        chart::svg("Added time per event, ns (median; shorter is better)", &groups)
    }

    /// For programs, with every single run.
    pub(super) fn json(&self) -> Result<String> {
        let kernel = process::output(Command::new("uname").arg("-srm"))?;
        let cpus = std::thread::available_parallelism()?.get();
        let workloads: Vec<Value> = self
            .workloads
            .iter()
            .map(|workload| {
                let mut ratios = serde_json::Map::new();
                for (index, name) in self.others() {
                    let row = MEASURES.iter().filter(|measure| measure.compared).filter_map(|measure| {
                        Some((measure.key.to_owned(), workload.ratio(measure, index)?.json()))
                    });
                    ratios.insert(name.to_owned(), Value::Object(row.collect()));
                }
                let rounds: Vec<Value> = workload.rounds.iter().map(|round| self.round_json(round)).collect();
                json!({
                    "name": workload.name, "events": workload.events, "iterations": workload.iterations,
                    "ratio_to": ratios, "rounds": rounds,
                    "rounds_with_stolen_time": workload.robbed, "rounds_left_out": workload.left_out,
                })
            })
            .collect();
        let report = json!({
            "version": 1, "kernel": kernel.trim(), "cpus": cpus, "ring_kb": RING_KB, "workloads": workloads,
            "others_tracing": self.others,
        });
        Ok(serde_json::to_string_pretty(&report)? + "\n")
    }

    fn round_json(&self, round: &Round) -> Value {
        let runs = self.recorders.iter().zip(&round.runs).map(|(name, run)| {
            let mut row: serde_json::Map<String, Value> =
                MEASURES.iter().map(|m| (m.key.to_owned(), (m.value)(round, run).into())).collect();
            row.insert("elapsed_ns".into(), (run.load.elapsed.as_nanos() as u64).into());
            (name.clone(), Value::Object(row))
        });
        json!({
            "untraced_ns": round.untraced.elapsed.as_nanos() as u64,
            "untraced_cpu_ns": round.untraced.cpu.as_nanos() as u64,
            "untraced_stolen_ns": round.untraced.stolen.as_nanos() as u64,
            "untraced_preempted": round.untraced.preempted,
            "recorders": runs.collect::<serde_json::Map<_, _>>(),
        })
    }

    fn others(&self) -> impl Iterator<Item = (usize, &str)> {
        self.recorders.iter().map(String::as_str).enumerate().filter(|(_, name)| *name != OURS)
    }
}

impl Measured {
    /// What the host did to the rounds, if it did.
    fn about_the_host(&self) -> String {
        let mut text = String::new();
        if self.left_out > 0 {
            let _ = write!(text, ", {} more left out in which the host took CPU time", self.left_out);
        }
        if self.robbed > 0 {
            let _ =
                write!(text, "; in {} of them the host took CPU time, because it always did", self.robbed);
        }
        text
    }

    fn spread(&self, measure: &Measure, recorder: usize) -> Option<Spread> {
        Spread::of(self.rounds.iter().map(|round| (measure.value)(round, &round.runs[recorder])))
    }

    /// Ours over another's, round by round. The first recorder is ours.
    fn ratio(&self, measure: &Measure, other: usize) -> Option<Spread> {
        Spread::of(self.rounds.iter().filter_map(|round| {
            let theirs = (measure.value)(round, &round.runs[other]);
            // Where noise is larger than what is measured there is no ratio.
            (theirs > 0.0).then(|| (measure.value)(round, &round.runs[0]) / theirs)
        }))
    }
}

pub(super) fn aligned(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or_default();
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(String::len).max().unwrap_or_default()
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let cells: Vec<String> =
            row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        let _ = writeln!(text, "  {}", cells.join("  ").trim_end());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        let spread = |values: &[f64]| Spread::of(values.iter().copied());
        assert_eq!(spread(&[]), None);
        assert_eq!(spread(&[3.0, 1.0, f64::NAN, 2.0]), Some(Spread { median: 2.0, min: 1.0, max: 3.0 }));
        assert_eq!(spread(&[4.0, 1.0]), Some(Spread { median: 2.5, min: 1.0, max: 4.0 }));
    }

    #[test]
    fn ratios_are_taken_within_rounds() {
        let load = |ns| Load { elapsed: Duration::from_nanos(ns), ..Load::default() };
        let run = |ns| Run { load: load(ns), events: 10, ..Run::default() };
        let round =
            |untraced, ours, theirs| Round { untraced: load(untraced), runs: vec![run(ours), run(theirs)] };
        let rounds = vec![round(100, 200, 300), round(1000, 1300, 1400), round(100, 110, 90)];
        let measured =
            Measured { name: "x", events: String::new(), iterations: 1, rounds, robbed: 0, left_out: 0 };
        let ratio = measured.ratio(&MEASURES[0], 1).unwrap();
        assert_eq!(ratio, Spread { median: 0.625, min: 0.5, max: 0.75 });
    }
}
