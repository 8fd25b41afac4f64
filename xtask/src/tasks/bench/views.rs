//! `cargo xtask bench views`: answering questions about a recording, beside what answers the same ones.
//!
//! For each analysis one recording is made of the events that it uses, and one of perf's, if perf has an analysis like it,
//! of the same workload. LTTng's analyses run on an export of a shorter recording, as they take a thousand times as long.
//! What is compared is how many of the events in its own file a program goes through in a second, within a round.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use super::load::{self, Workload};
use super::read::{self, Options, Run, To, timed};
use super::recorder::{self, Recorder};
use super::report::{OURS, Spread, aligned};
use crate::tasks::setup::{Purpose, analyses_dir};
use crate::{Result, process};

/// An analysis of tracer-agent, and what others have like it.
struct View {
    /// Its name, as `analyze` and `record --for` have it.
    name: &'static str,
    /// An analysis of LTTng.
    lttng: &'static str,
    perf: Option<&'static Perf>,
}

/// An analysis of perf.
struct Perf {
    name: &'static str,
    /// What it wants to have recorded.
    events: &'static [&'static str],
    /// Its arguments, but for the file, which stands behind the first of them.
    args: &'static [&'static str],
}

const PERF_SCHED: Perf = Perf {
    name: "perf sched latency",
    events: &[
        "sched:sched_switch",
        "sched:sched_stat_runtime",
        "sched:sched_process_fork",
        "sched:sched_wakeup",
        "sched:sched_wakeup_new",
        "sched:sched_migrate_task",
    ],
    args: &["sched", "latency"],
};

const PERF_TRACE: Perf = Perf {
    name: "perf trace -s",
    events: &["raw_syscalls:sys_enter", "raw_syscalls:sys_exit"],
    args: &["trace", "-s"],
};

const VIEWS: &[View] = &[
    View { name: "sched", lttng: "lttng-cputop", perf: Some(&PERF_SCHED) },
    View { name: "offcpu", lttng: "lttng-schedstats", perf: Some(&PERF_SCHED) },
    View { name: "syscalls", lttng: "lttng-syscallstats", perf: Some(&PERF_TRACE) },
    View { name: "irq", lttng: "lttng-irqstats", perf: None },
];

/// An LTTng analysis goes through one event while ours goes through so many, about.
const SHORTER: u64 = 50;

/// Runs an analysis of LTTng's, which knows names that Python 3.10 moved.
const LTTNG: &str = "import collections, collections.abc, sys
from importlib.metadata import distribution
for name in ('Mapping', 'MutableMapping', 'Iterable', 'Sequence'):
    if not hasattr(collections, name): setattr(collections, name, getattr(collections.abc, name))
entry = next(entry for entry in distribution('lttnganalyses').entry_points if entry.name == sys.argv[1])
sys.argv = [entry.name, '--skip-validation', '--no-progress', sys.argv[2]]
entry.load()()";

/// What a program reads, and how many events are in it.
#[derive(Clone, Debug)]
struct Input {
    file: PathBuf,
    events: u64,
}

/// The recordings of an analysis.
struct Inputs {
    ours: Input,
    lttng: Input,
    perf: Option<Input>,
}

/// A run, and how many events it went through.
#[derive(Clone, Copy, Debug)]
struct Rated {
    run: Run,
    events: u64,
}

impl Rated {
    /// Events a second.
    fn rate(&self) -> f64 {
        self.events as f64 / self.run.seconds()
    }

    fn json(&self) -> Value {
        let mut json = self.run.json();
        json["events"] = self.events.into();
        json
    }
}

/// An analysis in a round.
#[derive(Clone, Copy, Debug)]
struct Row {
    ours: Rated,
    stock: Rated,
    lttng: Rated,
    perf: Option<Rated>,
}

impl Row {
    /// The others that there are.
    fn others(&self) -> impl Iterator<Item = Rated> {
        [Some(self.stock), Some(self.lttng), self.perf].into_iter().flatten()
    }

    /// How many times as fast ours is as the fastest of the others.
    fn times_the_fastest(&self) -> f64 {
        self.ours.rate() / self.others().map(|other| other.rate()).fold(0.0, f64::max)
    }
}

pub(super) fn run(args: &[String]) -> Result {
    read::on_a_file("views", Purpose::Bench, args, measure)
}

fn measure(options: &Options, agent: &Path, trace_cmd: &Path, dir: &Path) -> Result<(String, Value)> {
    let perf = Recorder::perf()
        .ok_or("there is no perf to compare with; `cargo xtask setup --for bench` installs it")?;
    let mut inputs = Vec::new();
    for view in VIEWS {
        inputs.push(Inputs::make(view, options.events, agent, &perf, dir)?);
    }
    let mut rounds = Vec::new();
    for number in 0..options.rounds {
        let mut rows = Vec::new();
        for (view, inputs) in VIEWS.iter().zip(&inputs) {
            let row = row(view, inputs, agent, trace_cmd, dir)?;
            eprintln!("  round {}, {}: {:.2} s", number + 1, view.name, row.ours.run.seconds());
            rows.push(row);
        }
        rounds.push(rows);
    }
    Ok((table(&rounds), json(&rounds)))
}

impl Inputs {
    fn make(view: &View, events: u64, agent: &Path, perf: &Recorder, dir: &Path) -> Result<Self> {
        let workload = load::find("mixed")?;
        let ours = record(view, events, workload, agent, dir, "dat")?;
        let short = record(view, events / SHORTER, workload, agent, dir, "short.dat")?;
        let ctf = dir.join(format!("{}.ctf", view.name));
        let mut export = Command::new(agent);
        export.args(["export", "--force", "--quiet", "--format", "lttng"]).arg(&short.file).arg(&ctf);
        process::output(&mut export)?;
        let lttng = Input { file: ctf, events: short.events };
        let perf = view.perf.map(|peer| peer.record(events, workload, perf, dir, view.name)).transpose()?;
        let in_perf = perf.as_ref().map_or(String::new(), |perf| format!(", {} in perf's", perf.events));
        eprintln!("{}: {} events, {} in the short recording{in_perf}", view.name, ours.events, lttng.events);
        Ok(Self { ours, lttng, perf })
    }
}

/// Records what an analysis uses.
fn record(
    view: &View,
    events: u64,
    workload: &Workload,
    agent: &Path,
    dir: &Path,
    suffix: &str,
) -> Result<Input> {
    let file = dir.join(format!("{}.{suffix}", view.name));
    let events = read::until_enough(events, |iterations| {
        let _ = fs::remove_file(&file);
        let load = read::load_of(workload, iterations, dir)?;
        let mut command = Command::new(agent);
        command.args(["record", "-b", &recorder::RING_KB.to_string(), "--for", view.name, "-o"]).arg(&file);
        command.arg(load.get_program()).args(load.get_args());
        process::output(command.current_dir(dir).stdin(File::open("/dev/null")?))?;
        Ok(recorder::trace_cmd_counts(&file)?.recorded)
    })?;
    Ok(Input { file, events })
}

impl Perf {
    /// Records what it wants.
    fn record(
        &self,
        events: u64,
        workload: &Workload,
        perf: &Recorder,
        dir: &Path,
        name: &str,
    ) -> Result<Input> {
        let file = dir.join(format!("{name}.perf"));
        let events = read::until_enough(events, |iterations| {
            let load = read::load_of(workload, iterations, dir)?;
            let mut command = perf.command(self.events, &file, &load)?;
            process::output(command.current_dir(dir).stdin(File::open("/dev/null")?))?;
            Ok(perf.count(&file, &file)?.recorded)
        })?;
        Ok(Input { file, events })
    }

    fn command(&self, file: &Path) -> Command {
        let mut command = Command::new("perf");
        command.args(self.args.first()).arg("-i").arg(file).args(self.args.get(1..).unwrap_or_default());
        command
    }
}

fn row(view: &View, inputs: &Inputs, agent: &Path, trace_cmd: &Path, dir: &Path) -> Result<Row> {
    let rated = |command: Command, input: &Input| -> Result<Rated> {
        Ok(Rated { run: timed(command, To::Nothing, dir)?, events: input.events })
    };
    let mut command = Command::new(agent);
    command.args(["analyze", view.name]).arg(&inputs.ours.file);
    let ours = rated(command, &inputs.ours)?;
    let mut command = Command::new(trace_cmd);
    command.arg("report").arg(&inputs.ours.file);
    let stock = rated(command, &inputs.ours)?;
    // Debian's interpreter, whose babeltrace module they use.
    let mut command = Command::new("/usr/bin/python3");
    command.args(["-c", LTTNG, view.lttng]).arg(&inputs.lttng.file).env("PYTHONPATH", analyses_dir());
    let lttng = rated(command, &inputs.lttng)?;
    let perf = match (view.perf, &inputs.perf) {
        (Some(peer), Some(input)) => Some(rated(peer.command(&input.file), input)?),
        _ => None,
    };
    Ok(Row { ours, stock, lttng, perf })
}

/// A figure of one analysis over all rounds.
fn spread(rounds: &[Vec<Row>], view: usize, value: impl Fn(&Row) -> Option<f64>) -> Option<Spread> {
    Spread::of(rounds.iter().filter_map(|rows| value(rows.get(view)?)))
}

fn table(rounds: &[Vec<Row>]) -> String {
    let head = [
        "median (min .. max)",
        "events",
        "10^6 events/s",
        "CPU, s",
        "MB",
        "x the fastest",
        "x trace-cmd report",
        "x LTTng's",
        "which",
        "x perf's",
        "which",
    ];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for (index, view) in VIEWS.iter().enumerate() {
        let cell = |value: &dyn Fn(&Row) -> Option<f64>| {
            spread(rounds, index, value).map_or_else(|| "-".to_owned(), Spread::cell)
        };
        let events = rounds.first().and_then(|rows| rows.get(index)).map_or(0, |row| row.ours.events);
        rows.push(vec![
            view.name.to_owned(),
            events.to_string(),
            cell(&|row| Some(row.ours.rate() / 1e6)),
            cell(&|row| Some(row.ours.run.usage.cpu.as_secs_f64())),
            cell(&|row| Some(row.ours.run.usage.peak_bytes as f64 / 1e6)),
            cell(&|row| Some(row.times_the_fastest())),
            cell(&|row| Some(row.ours.rate() / row.stock.rate())),
            cell(&|row| Some(row.ours.rate() / row.lttng.rate())),
            view.lttng.to_owned(),
            cell(&|row| Some(row.ours.rate() / row.perf?.rate())),
            view.perf.map_or("-", |perf| perf.name).to_owned(),
        ]);
    }
    format!("\nviews: {} rounds\n\n{}", rounds.len(), aligned(&rows))
}

fn json(rounds: &[Vec<Row>]) -> Value {
    let views: Vec<Value> = VIEWS
        .iter()
        .enumerate()
        .map(|(index, view)| {
            let row = |rows: &Vec<Row>| {
                let row = rows.get(index)?;
                let mut runs = json!({
                    OURS: row.ours.json(), "trace-cmd report": row.stock.json(), view.lttng: row.lttng.json(),
                });
                if let (Some(peer), Some(perf)) = (view.perf, row.perf) {
                    runs[peer.name] = perf.json();
                }
                Some(runs)
            };
            let rate = spread(rounds, index, |row| Some(row.ours.rate()));
            let times = spread(rounds, index, |row| Some(row.times_the_fastest()));
            json!({
                "name": view.name, "events_per_second": rate.map(Spread::json),
                "times_the_fastest": times.map(Spread::json),
                "rounds": rounds.iter().filter_map(row).collect::<Vec<_>>(),
            })
        })
        .collect();
    json!({ "version": 1, "views": views })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::sys::Usage;
    use super::*;

    #[test]
    fn rates_are_compared_within_a_round() {
        let rated = |events, millis| {
            let run = Run { elapsed: Duration::from_millis(millis), usage: Usage::default() };
            Rated { run, events }
        };
        let row = |millis| Row {
            ours: rated(1000, millis),
            stock: rated(1000, 1000),
            lttng: rated(10, 1000),
            perf: Some(rated(100, 20)),
        };
        let rounds = [vec![row(10)], vec![row(20)]];
        assert_eq!(
            spread(&rounds, 0, |row| Some(row.times_the_fastest())),
            Spread::of([20.0, 10.0].into_iter())
        );
        assert_eq!(spread(&rounds, 1, |row| Some(row.times_the_fastest())), None);
        let lines = table(&rounds);
        assert!(lines.contains("sched") && lines.contains("75.0 (50.0 .. 100.0)"), "{lines}");
        let json = json(&rounds);
        assert_eq!(json["views"][0]["times_the_fastest"]["median"], 15.0);
        assert_eq!(json["views"][0]["rounds"][1]["perf sched latency"]["events"], 100);
    }

    #[test]
    fn the_file_of_perf_stands_behind_its_command() {
        let command = PERF_SCHED.command(Path::new("/x"));
        assert_eq!(process::line(&command), "perf sched -i /x latency");
    }
}
