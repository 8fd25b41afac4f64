//! `cargo xtask bench views`: answering questions about a recording, beside what answers the same ones.
//!
//! For each analysis one recording is made of the events that it uses, and one of perf's, if perf has an
//! analysis like it, of the same workload. LTTng's analyses run on an export of a shorter recording, as they
//! take a thousand times as long. What is compared is how many of the events in its own file a program goes
//! through in a second, within a round.

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
    /// Its name, as `analyze` has it.
    name: &'static str,
    /// What is asked besides.
    args: &'static [&'static str],
    /// Whose events are recorded, as `record --for` has it.
    recorded_for: &'static str,
    /// An analysis of LTTng's.
    lttng: Option<&'static str>,
    perf: Option<&'static Perf>,
}

/// What has nothing like it with LTTng or perf.
const fn view(name: &'static str) -> View {
    View { name, args: &[], recorded_for: name, lttng: None, perf: None }
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

const PERF_KMEM: Perf = Perf {
    name: "perf kmem stat",
    events: &["kmem:mm_page_alloc", "kmem:mm_page_free"],
    args: &["kmem", "--page", "stat"],
};

const VIEWS: &[View] = &[
    View { lttng: Some("lttng-cputop"), perf: Some(&PERF_SCHED), ..view("sched") },
    View { lttng: Some("lttng-schedstats"), perf: Some(&PERF_SCHED), ..view("offcpu") },
    View { args: &["--event", "sched_switch"], recorded_for: "offcpu", ..view("stacks") },
    View { lttng: Some("lttng-syscallstats"), perf: Some(&PERF_TRACE), ..view("syscalls") },
    View { lttng: Some("lttng-iousagetop"), ..view("io") },
    View { lttng: Some("lttng-irqstats"), ..view("irq") },
    view("locks"),
    View { lttng: Some("lttng-memtop"), perf: Some(&PERF_KMEM), ..view("memory") },
    view("summary"),
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
    lttng: Option<Input>,
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
    lttng: Option<Rated>,
    perf: Option<Rated>,
    /// The older build, if one is given.
    before: Option<Rated>,
}

impl Row {
    /// The others that there are.
    fn others(&self) -> impl Iterator<Item = Rated> {
        [Some(self.stock), self.lttng, self.perf].into_iter().flatten()
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
            let row = row(view, inputs, options, agent, trace_cmd, dir)?;
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
        let export = |_| for_lttng(view, events / SHORTER, workload, agent, dir);
        let lttng = view.lttng.map(export).transpose()?;
        let perf = view.perf.map(|peer| peer.record(events, workload, perf, dir, view.name)).transpose()?;
        let others = [("LTTng's", &lttng), ("perf's", &perf)];
        let others = others.map(|(whose, input)| {
            input.as_ref().map_or_else(String::new, |input| format!(", {} in {whose}", input.events))
        });
        eprintln!("{}: {} events{}", view.name, ours.events, others.concat());
        Ok(Self { ours, lttng, perf })
    }
}

/// Records what an analysis uses, and exports it for LTTng's.
fn for_lttng(view: &View, events: u64, workload: &Workload, agent: &Path, dir: &Path) -> Result<Input> {
    let short = record(view, events, workload, agent, dir, "short.dat")?;
    let file = dir.join(format!("{}.ctf", view.name));
    let mut export = Command::new(agent);
    export.args(["export", "--force", "--quiet", "--format", "lttng"]).arg(&short.file).arg(&file);
    process::output(&mut export)?;
    Ok(Input { file, events: short.events })
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
        command
            .args(["record", "-b", &recorder::RING_KB.to_string(), "--for", view.recorded_for, "-o"])
            .arg(&file);
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

fn row(
    view: &View,
    inputs: &Inputs,
    options: &Options,
    agent: &Path,
    trace_cmd: &Path,
    dir: &Path,
) -> Result<Row> {
    let rated = |command: Command, input: &Input| -> Result<Rated> {
        Ok(Rated { run: timed(command, To::Nothing, dir)?, events: input.events })
    };
    let analyze = |agent: &Path| {
        let mut command = Command::new(agent);
        command.args(["analyze", view.name]).arg(&inputs.ours.file).args(view.args);
        rated(command, &inputs.ours)
    };
    let ours = analyze(agent)?;
    let before = options.before.as_deref().map(analyze).transpose()?;
    let mut command = Command::new(trace_cmd);
    command.arg("report").arg(&inputs.ours.file);
    let stock = rated(command, &inputs.ours)?;
    let lttng = match (view.lttng, &inputs.lttng) {
        (Some(peer), Some(input)) => {
            // Debian's interpreter, whose babeltrace module they use.
            let mut command = Command::new("/usr/bin/python3");
            command.args(["-c", LTTNG, peer]).arg(&input.file).env("PYTHONPATH", analyses_dir());
            Some(rated(command, input)?)
        }
        _ => None,
    };
    let perf = match (view.perf, &inputs.perf) {
        (Some(peer), Some(input)) => Some(rated(peer.command(&input.file), input)?),
        _ => None,
    };
    Ok(Row { ours, stock, lttng, perf, before })
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
        "CPU to before",
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
            cell(&|row| Some(row.ours.rate() / row.lttng?.rate())),
            view.lttng.unwrap_or("-").to_owned(),
            cell(&|row| Some(row.ours.rate() / row.perf?.rate())),
            view.perf.map_or("-", |perf| perf.name).to_owned(),
            cell(&|row| Some(row.ours.run.cpu_to(&row.before?.run))),
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
                let mut runs = json!({ OURS: row.ours.json(), "trace-cmd report": row.stock.json() });
                let names = [view.lttng, view.perf.map(|perf| perf.name), Some("before")];
                for (name, run) in names.into_iter().zip([row.lttng, row.perf, row.before]) {
                    if let (Some(name), Some(run)) = (name, run) {
                        runs[name] = run.json();
                    }
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
            lttng: Some(rated(10, 1000)),
            perf: Some(rated(100, 20)),
            before: None,
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
