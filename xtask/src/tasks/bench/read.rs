//! `cargo xtask bench read`: reading a large file with tracer-agent and with stock trace-cmd, in turns on one
//! machine.
//!
//! The file is a recording of `storm` that tracer-agent makes here. Each round runs every command of both,
//! and of an older build if one is given; ratios are taken within the round.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader};
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use super::load::Workload;
use super::recorder::{self, Recorder};
use super::report::{OURS, Spread, aligned};
use super::sys::{self, Usage};
use super::{LOAD_TASK, load};
use crate::tasks::setup::{Purpose, setup};
use crate::{Result, process};

/// Iterations that are enough to know how many events one makes.
const PILOT: u64 = 2000;

pub(super) struct Options {
    pub(super) rounds: usize,
    pub(super) events: u64,
    json: Option<PathBuf>,
    agent: Option<PathBuf>,
    /// An older build, which runs the same commands.
    pub(super) before: Option<PathBuf>,
    /// A recording that is there already.
    file: Option<PathBuf>,
}

impl Options {
    fn parse(args: &[String]) -> Result<Self> {
        let mut options =
            Self { rounds: 5, events: 5_000_000, json: None, agent: None, before: None, file: None };
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            if arg == "--quick" {
                (options.rounds, options.events) = (3, 1_000_000);
                continue;
            }
            let value = args.next().ok_or_else(|| format!("{arg} wants a value"))?;
            let path = || std::path::absolute(value).map(Some);
            match arg.as_str() {
                "--rounds" => options.rounds = super::number(arg, Some(value))?,
                "--events" => options.events = super::number(arg, Some(value))?,
                "--json" => options.json = path()?,
                "--agent" => options.agent = path()?,
                "--before" => options.before = path()?,
                "--file" => options.file = path()?,
                other => return Err(format!("no such option: {other}").into()),
            }
        }
        Ok(options)
    }
}

/// What is run, by both programs unless stock has nothing like it.
struct Job {
    name: &'static str,
    args: &'static [&'static str],
    to: To,
    only_ours: bool,
}

/// Where the output goes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum To {
    Nothing,
    File,
    /// A reader that takes the first two lines and goes away.
    Head,
}

const JOBS: [Job; 6] = [
    Job { name: "report", args: &["report"], to: To::Nothing, only_ours: false },
    Job { name: "report to a file", args: &["report"], to: To::File, only_ours: false },
    Job { name: "report -R -t", args: &["report", "-R", "-t"], to: To::Nothing, only_ours: false },
    Job { name: "report | head", args: &["report"], to: To::Head, only_ours: false },
    Job { name: "report --json", args: &["report", "--json"], to: To::Nothing, only_ours: true },
    Job { name: "info, cold", args: &["info"], to: To::Nothing, only_ours: true },
];

/// A command in a round.
#[derive(Clone, Copy)]
struct Runs {
    ours: Run,
    /// Stock trace-cmd, if it has the command.
    stock: Option<Run>,
    /// The older build, if one is given.
    before: Option<Run>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    pub(super) elapsed: Duration,
    pub(super) usage: Usage,
}

impl Run {
    pub(super) fn seconds(&self) -> f64 {
        self.elapsed.as_secs_f64()
    }

    /// The CPU time of this one for one second of the other one's.
    pub(super) fn cpu_to(&self, other: &Self) -> f64 {
        self.usage.cpu.as_secs_f64() / other.usage.cpu.as_secs_f64().max(f64::MIN_POSITIVE)
    }

    pub(super) fn json(&self) -> Value {
        json!({
            "elapsed_ns": self.elapsed.as_nanos() as u64, "cpu_ns": self.usage.cpu.as_nanos() as u64,
            "peak_bytes": self.usage.peak_bytes,
        })
    }
}

pub(super) fn run(args: &[String]) -> Result {
    on_a_file("read", Purpose::Run, args, measure)
}

/// What measures something on a recording: it gets the agent, stock trace-cmd and a directory for its files,
/// and returns a table and the same as JSON.
pub(super) type Measure = fn(&Options, &Path, &Path, &Path) -> Result<(String, Value)>;

/// Runs `cargo xtask bench NAME` with these arguments, on a machine that is ready for this purpose.
pub(super) fn on_a_file(name: &str, purpose: Purpose, args: &[String], measure: Measure) -> Result {
    let options = Options::parse(args)?;
    let agent = if let Some(agent) = &options.agent {
        agent.clone()
    } else {
        setup(purpose)?;
        crate::tasks::build::measured()?
    };
    if !process::is_root() {
        let mut root = process::as_root(std::env::current_exe()?)
            .ok_or("recording needs root, and there is no sudo to become it")?;
        return process::run(root.args(["bench", name]).args(args).arg("--agent").arg(agent));
    }
    let trace_cmd = process::find("trace-cmd").ok_or(recorder::NO_TRACE_CMD)?;
    let dir = std::env::temp_dir().join(format!("tracer-agent-bench-{name}.{}", std::process::id()));
    fs::create_dir(&dir)?;
    let result = measure(&options, &agent, &trace_cmd, &dir);
    let _ = fs::remove_dir_all(&dir);
    let (table, json) = result?;
    print!("{table}");
    if let Some(path) = &options.json {
        fs::write(path, serde_json::to_string_pretty(&json)? + "\n")?;
        eprintln!("wrote {}", path.display());
    }
    Ok(())
}

/// The recording that is measured, the events in it, and its bytes.
pub(super) fn recording(options: &Options, agent: &Path, dir: &Path) -> Result<(PathBuf, u64, u64)> {
    let file = match &options.file {
        Some(file) => file.clone(),
        None => record(options.events, agent, dir)?,
    };
    let events = recorder::trace_cmd_counts(&file)?.recorded;
    let bytes = fs::metadata(&file)?.len();
    eprintln!("{events} events in {bytes} bytes");
    Ok((file, events, bytes))
}

fn measure(options: &Options, agent: &Path, trace_cmd: &Path, dir: &Path) -> Result<(String, Value)> {
    let (file, events, bytes) = recording(options, agent, dir)?;
    let mut rounds: Vec<Vec<Runs>> = Vec::new();
    for round in 0..options.rounds {
        let mut runs = Vec::new();
        for job in &JOBS {
            let ours = one(job, agent, &file, dir)?;
            let stock = if job.only_ours { None } else { Some(one(job, trace_cmd, &file, dir)?) };
            let before = options.before.as_ref().map(|before| one(job, before, &file, dir)).transpose()?;
            let seconds = |run: Run| format!("{:.2} s", run.elapsed.as_secs_f64());
            let stock_text = stock.map_or_else(|| "-".to_owned(), seconds);
            eprintln!("  round {}, {}: {} and {stock_text}", round + 1, job.name, seconds(ours));
            runs.push(Runs { ours, stock, before });
        }
        rounds.push(runs);
    }
    Ok((table(events, bytes, &rounds), json(events, bytes, &rounds)))
}

/// Makes a recording of at least so many events.
fn record(events: u64, agent: &Path, dir: &Path) -> Result<PathBuf> {
    let recorder = Recorder::agent(OURS, agent.to_owned());
    let workload = load::find("storm")?;
    let file = dir.join("trace.dat");
    until_enough(events, |iterations| {
        let _ = fs::remove_file(&file);
        let mut command = recorder.command(workload.events, &file, &load_of(workload, iterations, dir)?)?;
        process::output(command.current_dir(dir).stdin(File::open("/dev/null")?))?;
        Ok(recorder::trace_cmd_counts(&file)?.recorded)
    })?;
    Ok(file)
}

/// The program that is a workload.
pub(super) fn load_of(workload: &Workload, iterations: u64, dir: &Path) -> Result<Command> {
    let mut load = Command::new(std::env::current_exe()?);
    load.arg(LOAD_TASK.name).args([workload.name, &iterations.to_string()]).arg(dir.join("load"));
    Ok(load)
}

/// Records with more and more iterations, until one has at least so many events. `record` says how many it
/// has.
pub(super) fn until_enough(events: u64, mut record: impl FnMut(u64) -> Result<u64>) -> Result<u64> {
    let mut iterations = PILOT;
    loop {
        let recorded = record(iterations)?;
        if recorded >= events {
            return Ok(recorded);
        }
        eprintln!("{recorded} events of {iterations} iterations");
        // A little more, for what is different each time.
        iterations = iterations * (events + events / 20) / recorded.max(1) + 1;
    }
}

/// Runs a command on the file, which is not in memory before if the job says so.
fn one(job: &Job, program: &Path, file: &Path, dir: &Path) -> Result<Run> {
    if job.name.ends_with("cold") {
        drop_from_memory(file)?;
    }
    let mut command = Command::new(program);
    command.args(job.args).arg(file);
    timed(command, job.to, dir)
}

/// Runs a command to its end, or until its reader has what it wants.
pub(super) fn timed(mut command: Command, to: To, dir: &Path) -> Result<Run> {
    command.current_dir(dir).stderr(File::create(dir.join("errors"))?);
    command.stdout(match to {
        To::Nothing => Stdio::null(),
        To::File => File::create(dir.join("output"))?.into(),
        To::Head => Stdio::piped(),
    });
    let start = sys::now();
    let mut child = command.spawn().map_err(|error| format!("{}: {error}", process::line(&command)))?;
    let mut first_line = None;
    if let Some(output) = child.stdout.take() {
        let mut lines = BufReader::new(output).lines();
        // The number of CPUs, and an event.
        let (_, event) = (lines.next(), lines.next());
        event.ok_or("no line of an event")??;
        first_line = Some(sys::now());
    }
    let (status, usage) = sys::wait(child.id())?.ok_or("somebody else waited for the command")?;
    let end = sys::now();
    // Stock trace-cmd is ended by the signal that its reader has gone.
    if !status.success() && to != To::Head {
        let errors = fs::read_to_string(dir.join("errors")).unwrap_or_default();
        return Err(format!("{}: {status}\n{}", process::line(&command), errors.trim()).into());
    }
    Ok(Run { elapsed: first_line.unwrap_or(end).saturating_sub(start), usage })
}

/// Writes what is unwritten of a file, and takes it out of the page cache.
fn drop_from_memory(file: &Path) -> Result {
    let file = File::open(file)?;
    file.sync_all()?;
    sys::forget(file.as_raw_fd())?;
    Ok(())
}

/// A figure of one command over all rounds.
fn spread(rounds: &[Vec<Runs>], job: usize, value: impl Fn(&Runs) -> Option<f64>) -> Option<Spread> {
    Spread::of(rounds.iter().filter_map(|runs| value(runs.get(job)?)))
}

fn ratio(rounds: &[Vec<Runs>], job: usize) -> Option<Spread> {
    spread(rounds, job, |runs| Some(runs.stock?.seconds() / runs.ours.seconds()))
}

fn table(events: u64, bytes: u64, rounds: &[Vec<Runs>]) -> String {
    let head = [
        "median (min .. max)",
        "tracer-agent, s",
        "trace-cmd, s",
        "times as fast",
        "MB",
        "MB of trace-cmd",
        "CPU to before",
    ];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for (index, job) in JOBS.iter().enumerate() {
        let cell = |value: &dyn Fn(&Runs) -> Option<f64>| {
            spread(rounds, index, value).map_or_else(|| "-".to_owned(), Spread::cell)
        };
        rows.push(vec![
            job.name.to_owned(),
            cell(&|runs| Some(runs.ours.seconds())),
            cell(&|runs| Some(runs.stock?.seconds())),
            ratio(rounds, index).map_or_else(|| "-".to_owned(), Spread::cell),
            cell(&|runs| Some(runs.ours.usage.peak_bytes as f64 / 1e6)),
            cell(&|runs| Some(runs.stock?.usage.peak_bytes as f64 / 1e6)),
            cell(&|runs| Some(runs.ours.cpu_to(&runs.before?))),
        ]);
    }
    format!("\nread: {events} events, {bytes} bytes, {} rounds\n\n{}", rounds.len(), aligned(&rows))
}

fn json(events: u64, bytes: u64, rounds: &[Vec<Runs>]) -> Value {
    let jobs: Vec<Value> = JOBS
        .iter()
        .enumerate()
        .map(|(index, job)| {
            let runs = rounds.iter().filter_map(|runs| runs.get(index));
            let runs: Vec<Value> = runs
                .map(|Runs { ours, stock, before }| {
                    let [stock, before] = [stock, before].map(|run| run.as_ref().map(Run::json));
                    json!({ OURS: ours.json(), "trace-cmd": stock, "before": before })
                })
                .collect();
            json!({ "name": job.name, "times_as_fast": ratio(rounds, index).map(Spread::json), "rounds": runs })
        })
        .collect();
    json!({ "version": 1, "events": events, "file_bytes": bytes, "jobs": jobs })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments() {
        let parse =
            |args: &[&str]| Options::parse(&args.iter().map(|&arg| arg.to_owned()).collect::<Vec<_>>());
        let options = parse(&["--rounds", "2", "--events", "9", "--file", "/x"]).unwrap();
        assert_eq!((options.rounds, options.events), (2, 9));
        assert_eq!(parse(&["--quick"]).unwrap().rounds, 3);
        assert_eq!(parse(&["--quick", "--rounds", "7"]).unwrap().rounds, 7);
        assert_eq!(options.file.as_deref(), Some(Path::new("/x")));
        for bad in [&["--rounds"][..], &["--rounds", "0"], &["--events", "x"], &["--fast", "1"]] {
            assert!(parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn ratios_are_how_many_times_as_fast() {
        let run = |millis| Run { elapsed: Duration::from_millis(millis), usage: Usage::default() };
        let runs = |stock| vec![Runs { ours: run(100), stock: Some(run(stock)), before: None }];
        let rounds = [runs(1000), runs(2000)];
        assert_eq!(ratio(&rounds, 0), Spread::of([10.0, 20.0].into_iter()));
        assert_eq!(ratio(&rounds, 1), None);
    }
}
