//! `cargo xtask bench`: tracer-agent beside other recorders, in one run on one machine.
//!
//! A machine's speed changes from minute to minute, so nothing here is judged by itself: in each round every
//! workload runs untraced and then under each recorder in turn, and what is compared is the ratio within a
//! round. The medians of those ratios carry over to other machines; the times do not.
//!
//! | module | what it is |
//! |---|---|
//! | [`load`] | the workloads, and the program that recorders run |
//! | [`probe`] | the uprobes that some workloads call |
//! | [`recorder`] | the recorders |
//! | [`read`] | reading a recording |
//! | [`maps`] | counting instead of recording |
//! | [`stream`] | sending to a relay daemon instead of storing |
//! | [`live`] | reading what is being recorded |
//! | [`filters`] | what filters cost in the kernel |
//! | [`export`] | writing a recording in the layouts of other tracers |
//! | [`views`] | answering questions about a recording |
//! | [`tables`] | answering questions about many recordings |
//! | [`report`] | what is computed from the runs: table and JSON |
//! | [`chart`] | a picture of it |
//! | [`build`] | what building costs |

mod build;
mod chart;
mod export;
mod filters;
mod live;
mod load;
mod maps;
mod probe;
mod read;
mod recorder;
mod report;
mod stream;
mod sys;
mod tables;
mod views;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use self::load::{LoadReport, WORKLOADS, Workload};
use self::recorder::{Counts, Recorder};
use self::report::Report;
use self::sys::Usage;
use super::Task;
use super::setup::{Purpose, setup};
use crate::{Result, process};

pub(super) const TASK: Task = Task {
    name: "bench",
    args: "[record|probes] [--rounds N] [--quick] [--longer N] [--without NAME] [--json FILE] [--svg FILE] [WORKLOAD...] | read|export|views [--rounds N] [--quick] [--events N] [--agent FILE] [--before FILE] [--json FILE] | maps|stream [--rounds N] [--quick] [--agent FILE] | live [--events N] [--quick] [--agent FILE] | tables [--rounds N] [--quick] [--hosts N] [--events N] [--agent FILE] [--generator FILE] [--json FILE] | filters | build [ROW] | instructions [KERNEL [EVENT]]",
    about: "Compares recording with stock trace-cmd: overhead, CPU time, memory, file size\n\
            Workloads are pingpong, pingpong-all, getppid, getppid-one, storm, walk, write, uprobe, uprobe-text and idle. perf and\n\
            bpftrace are measured too where they are installed (`cargo xtask setup --for bench` does), but for uprobes, which alone\n\
            are measured by `bench probes`; --without perf and --without bpftrace leave them out.\n\
            --quick runs 3 short rounds instead of 9 long ones, --longer N has loads go on for N times as long.\n\
            --agent FILE measures that build of tracer-agent, --before FILE an older build beside it.\n\
            `bench read` makes a recording of 5 million events and compares how fast it is read, `bench export` how fast\n\
            it is written in each export format. `bench views` compares each analysis with those of perf and LTTng.\n\
            `bench maps` compares counting in maps with bpftrace's maps.\n\
            `bench tables` makes 50 recordings of 2 million events, exports them as one data set, and has DuckDB and Spark answer the\n\
            questions of docs/tables.md; it needs 5 GB of disk and, for Spark, 10 GB of memory.\n\
            `bench stream` compares sending a session to a relay daemon with storing it. `bench live` tells how\n\
            late babeltrace2 prints what it reads while it is recorded.\n\
            `bench filters` measures predicates of filters in the kernel. `bench build` measures builds, from nothing and after an\n\
            edit in each of seven crates, in a target directory of its own (6 GB).\n\
            `bench instructions` counts the instructions that system calls, kprobes and uprobes take more when they are recorded,\n\
            in guests with Debian's kernels: figures that do not depend on what else the machine does.\n\
            docs/performance.md has the protocol, docs/performance-results.md the results.",
    run,
};

/// The program that recorders run; nobody calls it by hand.
pub(super) const LOAD_TASK: Task = Task { name: "bench-load", args: "", about: "", run: load::main };

/// How often a round is tried again in which a recorder was disturbed.
const RETRIES: usize = 3;

/// The share of a load's time that the host may have taken from this machine in a round that counts. A
/// shorter load than half a second cannot tell: the kernel counts in ticks of 10 ms.
const STOLEN_MAX: f64 = 0.02;

/// How many times as many rounds as are wanted are tried to have enough in which the host took little.
const TRIES: usize = 2;

/// How long to wait for processes that a recorder left behind: they may queue behind those of other
/// recorders.
const LEFT_BEHIND_MAX: Duration = Duration::from_secs(3);

struct Options {
    rounds: usize,
    /// Iterations are multiplied by this,
    longer: u64,
    /// and divided by this.
    shorter: u64,
    json: Option<PathBuf>,
    svg: Option<PathBuf>,
    agent: Option<PathBuf>,
    before: Option<PathBuf>,
    /// Recorders that are left out.
    without: Vec<String>,
    workloads: Vec<&'static Workload>,
}

impl Options {
    fn parse(args: &[String]) -> Result<Self> {
        let mut quick = false;
        let (mut rounds, mut json, mut svg, mut agent, mut before) = (None, None, None, None, None);
        let (mut workloads, mut without, mut longer) = (Vec::new(), Vec::new(), 1);
        let only_probes = args.first().is_some_and(|first| first == "probes");
        let mut args =
            args[usize::from(only_probes || args.first().is_some_and(|first| first == "record"))..].iter();
        while let Some(arg) = args.next() {
            let mut file = || -> Result<Option<PathBuf>> { file(arg, args.next()).map(Some) };
            match arg.as_str() {
                "--json" => json = file()?,
                "--svg" => svg = file()?,
                "--agent" => agent = file()?,
                "--before" => before = file()?,
                "--quick" => quick = true,
                "--without" => without.push(recorder::optional(args.next())?.to_owned()),
                "--rounds" => rounds = Some(number(arg, args.next())?),
                "--longer" => longer = number(arg, args.next())?,
                option if option.starts_with('-') => return Err(format!("no such option: {option}").into()),
                name => workloads.push(load::find(name)?),
            }
        }
        if workloads.is_empty() {
            workloads.extend(WORKLOADS.iter().filter(|workload| !only_probes || workload.has_probes()));
        }
        let (default_rounds, shorter) = if quick { (3, 5) } else { (9, 1) };
        let rounds = rounds.unwrap_or(default_rounds);
        Ok(Self { rounds, longer, shorter, json, svg, agent, before, without, workloads })
    }
}

/// The number above 0 that an option wants.
fn number<T: std::str::FromStr + PartialOrd + Default>(option: &str, value: Option<&String>) -> Result<T> {
    let number = value.and_then(|number| number.parse().ok()).filter(|number| *number > T::default());
    number.ok_or_else(|| format!("{option} wants a number above 0").into())
}

fn run(args: &[String]) -> Result {
    if let Some(args) = args.strip_prefix(&["read".to_owned()]) {
        return read::run(args);
    }
    if let Some(args) = args.strip_prefix(&["export".to_owned()]) {
        return export::run(args);
    }
    if let Some(args) = args.strip_prefix(&["views".to_owned()]) {
        return views::run(args);
    }
    if let Some(args) = args.strip_prefix(&["maps".to_owned()]) {
        return maps::run(args);
    }
    if let Some(args) = args.strip_prefix(&["tables".to_owned()]) {
        return tables::run(args);
    }
    if let Some(args) = args.strip_prefix(&["stream".to_owned()]) {
        return stream::run(args);
    }
    if let Some(args) = args.strip_prefix(&["live".to_owned()]) {
        return live::run(args);
    }
    if let Some(args) = args.strip_prefix(&["build".to_owned()]) {
        return build::run(args);
    }
    if args == ["filters"] {
        return filters::run();
    }
    if let Some(args) = args.strip_prefix(&["instructions".to_owned()]) {
        setup(Purpose::Test)?;
        return process::run(super::vm::vm().arg("cost").args(args));
    }
    let options = Options::parse(args)?;
    let agent = if let Some(agent) = &options.agent {
        agent.clone()
    } else {
        setup(Purpose::Run)?;
        crate::tasks::build::measured()?
    };
    if !process::is_root() {
        // Built as the user, run as root; what is to be measured is named, because root may have other
        // directories.
        let mut root = process::as_root(std::env::current_exe()?)
            .ok_or("recording needs root, and there is no sudo to become it")?;
        return process::run(root.arg("bench").args(args).arg("--agent").arg(agent));
    }
    let mut recorders = vec![Recorder::agent(report::OURS, agent), Recorder::trace_cmd()?];
    // They would need the probes in ways of their own.
    if !options.workloads.iter().any(|workload| workload.has_probes()) {
        let others = Recorder::perf().into_iter().chain(Recorder::bpftrace());
        recorders.extend(others.filter(|recorder| !options.without.contains(&recorder.name)));
    }
    recorders.extend(options.before.clone().map(|program| Recorder::agent("before", program)));

    let dir = std::env::temp_dir().join(format!("tracer-agent-bench.{}", std::process::id()));
    fs::create_dir(&dir)?;
    let result = measure(&options, &recorders, &dir);
    // Stand-ins for files may still be mounted from here, so only the directory's name goes.
    let _ = fs::remove_dir_all(&dir);
    let report = result?;
    print!("{}", report.table());
    if let Some(path) = &options.json {
        fs::write(path, report.json()?)?;
        eprintln!("wrote {}", path.display());
    }
    if let Some(path) = &options.svg {
        fs::write(path, report.chart())?;
        eprintln!("wrote {}", path.display());
    }
    Ok(())
}

fn measure(options: &Options, recorders: &[Recorder], dir: &Path) -> Result<Report> {
    recorder::admit_trace_cmd(dir)?;
    sys::adopt_orphans()?;
    let mut report = Report::new(recorders);
    let others = recorder::others();
    if !others.is_empty() {
        eprintln!("others are tracing on this machine, wait for a better time: {}", others.join(", "));
    }
    report.note_others(&others);
    for workload in &options.workloads {
        let iterations = (workload.iterations * options.longer / options.shorter).max(1);
        let _defined = if workload.has_probes() { Some(probe::Defined::define()?) } else { None };
        eprintln!("{}: {} ({})", workload.name, workload.about, workload.events.join(" "));
        round(workload, (iterations / 4).max(1), recorders, dir)?;
        let (mut rounds, mut robbed) = (Vec::new(), Vec::new());
        let mut disturbed = 0;
        while rounds.len() < options.rounds && rounds.len() + robbed.len() < options.rounds * TRIES {
            let round = round(workload, iterations, recorders, dir)?;
            if let Some(problem) = round.problem(workload, recorders) {
                disturbed += 1;
                eprintln!("  disturbed: {problem}");
                if disturbed > RETRIES + options.rounds / 4 {
                    return Err(format!("{}: {problem}; is anybody else tracing?", workload.name).into());
                }
                continue;
            }
            let stolen = round.stolen();
            if stolen > STOLEN_MAX {
                eprintln!("  left out, the host took {:.1} %: {}", stolen * 100.0, round.line(recorders));
                robbed.push(round);
                continue;
            }
            eprintln!("  round {}: {}", rounds.len() + 1, round.line(recorders));
            rounds.push(round);
        }
        report.add(workload, iterations, Rounds::choose(rounds, robbed, options.rounds));
        report.note_others(&recorder::others());
    }
    Ok(report)
}

/// The rounds that count.
#[derive(Debug, Default)]
struct Rounds {
    counted: Vec<Round>,
    /// How many of these count although the host took much: there were not enough others.
    robbed: usize,
    /// How many rounds were left out.
    left_out: usize,
}

impl Rounds {
    /// As many as are wanted: those in which the host took little, or else those in which it took least.
    fn choose(mut counted: Vec<Round>, mut robbed: Vec<Round>, wanted: usize) -> Self {
        robbed.sort_by(|one, other| one.stolen().total_cmp(&other.stolen()));
        let missing = wanted.saturating_sub(counted.len()).min(robbed.len());
        let left_out = robbed.len() - missing;
        counted.extend(robbed.drain(..missing));
        Self { counted, robbed: missing, left_out }
    }
}

/// A workload untraced, and under each recorder.
#[derive(Debug)]
struct Round {
    untraced: Load,
    runs: Vec<Run>,
}

/// What a load took.
#[derive(Clone, Copy, Debug, Default)]
struct Load {
    /// From its start to its end.
    elapsed: Duration,
    /// CPU time of its process, which other processes on the machine do not add to.
    cpu: Duration,
    /// Time that the host took from all CPUs meanwhile.
    stolen: Duration,
    /// How often its threads had to give up a CPU.
    preempted: u64,
}

impl Load {
    /// Which part of its time the host took. More than all of it if the host took several CPUs.
    fn stolen_share(self) -> f64 {
        self.stolen.as_secs_f64() / self.elapsed.as_secs_f64().max(f64::MIN_POSITIVE)
    }
}

impl From<LoadReport> for Load {
    fn from(report: LoadReport) -> Self {
        let LoadReport { cpu, stolen, preempted, .. } = report;
        Self { elapsed: report.elapsed(), cpu, stolen, preempted }
    }
}

/// A workload under a recorder.
#[derive(Clone, Copy, Debug, Default)]
struct Run {
    load: Load,
    /// Events that the load made, where that is known, or that the recorder saw.
    events: u64,
    counts: Counts,
    /// CPU time of the recorder: all its processes, those that outlive it included, without the load.
    cpu: Duration,
    /// The largest resident set of any of its processes.
    peak_bytes: u64,
    file_bytes: u64,
    /// From the recorder's start to the load's.
    start: Duration,
    /// From the load's end to the recorder's.
    finish: Duration,
    /// From the load's end to that of the last process which the recorder left behind.
    gone: Duration,
}

impl Round {
    /// The largest part of a run's time that the host took.
    fn stolen(&self) -> f64 {
        let loads = self.runs.iter().map(|run| run.load).chain([self.untraced]);
        loads.map(Load::stolen_share).fold(0.0, f64::max)
    }

    /// Why the round says nothing, if so: somebody else changed the kernel's tracing meanwhile.
    fn problem(&self, workload: &Workload, recorders: &[Recorder]) -> Option<String> {
        workload.known_events?;
        let mut exact = self.runs.iter().zip(recorders).filter(|(_, recorder)| recorder.is_exact());
        let (run, recorder) = exact.find(|(run, _)| {
            // trace-cmd's numbers may leave out what it lost, and recorders start on CPUs one after the
            // other.
            let seen = run.counts.recorded + run.counts.lost;
            seen < run.events / 100 * 98
        })?;
        Some(format!(
            "{} saw {} of {} events",
            recorder.name,
            run.counts.recorded + run.counts.lost,
            run.events
        ))
    }

    fn line(&self, recorders: &[Recorder]) -> String {
        let mut line = format!("untraced {} ms", self.untraced.elapsed.as_millis());
        for (run, recorder) in self.runs.iter().zip(recorders) {
            line += &format!(", {} {} ms", recorder.name, run.load.elapsed.as_millis());
        }
        line
    }
}

fn round(workload: &Workload, iterations: u64, recorders: &[Recorder], dir: &Path) -> Result<Round> {
    let report = dir.join("load");
    let mut load = Command::new(std::env::current_exe()?);
    load.arg(LOAD_TASK.name).args([workload.name, &iterations.to_string()]).arg(&report);
    let untraced = run_untraced(&mut load, &report)?.into();
    let mut runs = Vec::new();
    for recorder in recorders {
        let mut run = run_traced(recorder, workload, &load, &report, dir)?;
        run.events = match workload.known_events {
            Some(known) => known(iterations),
            None => run.counts.recorded + run.counts.lost,
        };
        runs.push(run);
    }
    Ok(Round { untraced, runs })
}

/// What a bench needs that has a daemon, a recorder or maps of its own.
struct Ready {
    /// The program that is measured.
    agent: PathBuf,
    /// A directory of the bench's own, which is removed in the end.
    dir: PathBuf,
}

impl Ready {
    /// Installs what is measured, and builds the agent unless one is given. `None` if it was all done by a
    /// process that became root.
    fn make(bench: &str, args: &[String], agent: Option<PathBuf>) -> Result<Option<Self>> {
        setup(Purpose::Bench)?;
        let agent = match agent {
            Some(agent) => agent,
            None => crate::tasks::build::measured()?,
        };
        if !process::is_root() {
            let mut root = process::as_root(std::env::current_exe()?)
                .ok_or("counting and recording need root, and there is no sudo to become it")?;
            process::run(root.args(["bench", bench]).args(args).arg("--agent").arg(agent))?;
            return Ok(None);
        }
        let dir = std::env::temp_dir().join(format!("tracer-agent-bench-{bench}.{}", std::process::id()));
        fs::create_dir(&dir)?;
        Ok(Some(Self { agent, dir }))
    }
}

impl Drop for Ready {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// The file behind an option.
fn file(option: &str, name: Option<&String>) -> Result<PathBuf> {
    Ok(std::path::absolute(name.ok_or_else(|| format!("{option} wants a file"))?)?)
}

/// The one in the middle.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

fn run_untraced(load: &mut Command, report: &Path) -> Result<LoadReport> {
    let _ = fs::remove_file(report);
    let output = load.output()?;
    if !output.status.success() {
        return Err(
            format!("{}: {}", process::line(load), String::from_utf8_lossy(&output.stderr).trim()).into()
        );
    }
    LoadReport::read(report)
}

fn run_traced(
    recorder: &Recorder,
    workload: &Workload,
    load: &Command,
    report: &Path,
    dir: &Path,
) -> Result<Run> {
    let file = dir.join("trace.dat");
    let log = dir.join("log");
    let _ = fs::remove_file(report);
    let _ = fs::remove_file(&file);
    let mut command = recorder.command(workload.events, &file, load)?;
    let output = File::create(&log)?;
    // What earlier runs left behind is not this one's.
    while sys::reap()?.is_some() {}
    // A terminal would make recorders show their progress.
    command.current_dir(dir).stdin(File::open("/dev/null")?).stderr(output.try_clone()?).stdout(output);
    let spawned = sys::now();
    let child = command.spawn().map_err(|error| format!("{}: {error}", process::line(&command)))?;
    let (status, Usage { mut cpu, mut peak_bytes, .. }) =
        sys::wait(child.id())?.ok_or("somebody else waited for the recorder")?;
    let ended = sys::now();
    while sys::has_children() && sys::now() < ended + LEFT_BEHIND_MAX {
        match sys::reap()? {
            Some(left_behind) => {
                cpu += left_behind.cpu;
                peak_bytes = peak_bytes.max(left_behind.peak_bytes);
            }
            None => std::thread::sleep(Duration::from_millis(1)),
        }
    }
    let gone = sys::now();
    if !status.success() {
        let log = fs::read_to_string(&log).unwrap_or_default();
        return Err(format!("{}: {status}\n{}", process::line(&command), log.trim()).into());
    }
    let load = LoadReport::read(report)?;
    Ok(Run {
        load: load.into(),
        events: 0,
        counts: recorder.count(&file, &log)?,
        cpu: cpu.saturating_sub(load.cpu),
        peak_bytes,
        file_bytes: fs::metadata(&file)?.len(),
        start: load.start.saturating_sub(spawned),
        finish: ended.saturating_sub(load.end),
        gone: gone.saturating_sub(load.end),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(args: &[&str]) -> Result<Options> {
        Options::parse(&args.iter().map(|&arg| arg.to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn rounds_in_which_the_host_took_least_count() {
        let round = |stolen: u64| Round {
            untraced: Load { elapsed: Duration::from_secs(1), ..Load::default() },
            runs: vec![Run {
                load: Load {
                    elapsed: Duration::from_secs(1),
                    stolen: Duration::from_millis(stolen),
                    ..Load::default()
                },
                ..Run::default()
            }],
        };
        let quiet = || vec![round(0), round(10)];
        let enough = Rounds::choose(quiet(), vec![round(500)], 2);
        assert_eq!((enough.counted.len(), enough.robbed, enough.left_out), (2, 0, 1));
        let few = Rounds::choose(quiet(), vec![round(500), round(40), round(300)], 4);
        assert_eq!((few.counted.len(), few.robbed, few.left_out), (4, 2, 1));
        assert!(few.counted.iter().all(|round| round.stolen() < 0.31));
    }

    #[test]
    fn arguments() {
        let all = options(&[]).unwrap();
        assert_eq!((all.rounds, all.shorter, all.workloads.len()), (9, 1, WORKLOADS.len()));
        let some = options(&["record", "--quick", "--rounds", "2", "getppid", "--json", "/x"]).unwrap();
        assert_eq!((some.rounds, some.shorter, some.workloads.len()), (2, 5, 1));
        assert_eq!(some.json.as_deref(), Some(Path::new("/x")));
        assert_eq!((some.longer, options(&["--longer", "3"]).unwrap().longer), (1, 3));
        assert!(options(&["probes"]).unwrap().workloads.iter().all(|workload| workload.has_probes()));
        let alone = options(&["--without", "perf", "--without", "bpftrace"]).unwrap();
        assert_eq!(alone.without, ["perf", "bpftrace"]);
        let bad: [&[&str]; 8] = [
            &["--rounds"],
            &["--longer", "x"],
            &["--rounds", "0"],
            &["nothing"],
            &["--fast"],
            &["--json"],
            &["--without"],
            // All ratios are to it.
            &["--without", "trace-cmd"],
        ];
        for bad in bad {
            assert!(options(bad).is_err(), "{bad:?}");
        }
    }
}
