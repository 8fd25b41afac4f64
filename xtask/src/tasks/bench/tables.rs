//! `cargo xtask bench tables`: the questions of docs/tables.md about a fleet, answered by DuckDB and Spark.
//!
//! The fleet's recordings are made up by the tests' generator, the same ones each time, and exported into one
//! data set in a directory, which both engines read by themselves. Servers of S3 that fit a machine like this
//! would be what is measured: one in Python answers some hundred requests a second.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};

use super::read::{To, timed};
use super::report::{Spread, aligned};
use super::{Ready, file, number};
use crate::tasks::setup::{Purpose, duckdb_s3_dir, setup, spark_dir};
use crate::{Result, process, workspace};

/// The engines, as the program that asks them calls them.
const ENGINES: [&str; 2] = ["duckdb", "spark"];
/// What Spark is given: the fleet's rows of one question, sorted, are in it.
const SPARK_CONF: &str = "spark.driver.memory=8g spark.sql.shuffle.partitions=16";

/// A fleet of this many hosts, recordings of each, events of each of them, and CPUs of each host.
const FLEET: [u64; 4] = [25, 2, 2_000_000, 4];
const QUICK: [u64; 4] = [3, 2, 200_000, 4];

struct Options {
    rounds: usize,
    fleet: [u64; 4],
    json: Option<PathBuf>,
    agent: Option<PathBuf>,
    generator: Option<PathBuf>,
}

impl Options {
    fn parse(args: &[String]) -> Result<Self> {
        let mut options = Self { rounds: 3, fleet: FLEET, json: None, agent: None, generator: None };
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            match arg.as_str() {
                "--quick" => (options.rounds, options.fleet) = (1, QUICK),
                "--rounds" => options.rounds = number(arg, args.next())?,
                "--hosts" => options.fleet[0] = number(arg, args.next())?,
                "--events" => options.fleet[2] = number(arg, args.next())?,
                "--json" => options.json = Some(file(arg, args.next())?),
                "--agent" => options.agent = Some(file(arg, args.next())?),
                "--generator" => options.generator = Some(file(arg, args.next())?),
                other => return Err(format!("no such option: {other}").into()),
            }
        }
        Ok(options)
    }
}

/// What comes before the questions.
struct Made {
    recordings: usize,
    events: u64,
    dat_bytes: u64,
    parquet_bytes: u64,
    generating: Duration,
    exporting: Duration,
    export_cpu: Duration,
    /// The largest resident set of an export.
    peak_bytes: u64,
}

/// A question, how many rows answer it, and how long each engine took in each round.
#[derive(Debug, PartialEq)]
struct Question {
    text: String,
    rows: u64,
    seconds: [Vec<f64>; ENGINES.len()],
}

pub(super) fn run(args: &[String]) -> Result {
    let options = Options::parse(args)?;
    setup(Purpose::Bench)?;
    let agent = match &options.agent {
        Some(agent) => agent.clone(),
        None => crate::tasks::build::measured()?,
    };
    let generator = match &options.generator {
        Some(generator) => generator.clone(),
        None => build_generator()?,
    };
    let dir = std::env::temp_dir().join(format!("tracer-agent-bench-tables.{}", std::process::id()));
    fs::create_dir(&dir)?;
    let ready = Ready { agent, dir };
    let made = make(&options, &generator, &ready)?;
    let questions = ask(options.rounds, &ready.dir)?;
    print!("{}", table(&made, &questions));
    if let Some(path) = &options.json {
        fs::write(path, serde_json::to_string_pretty(&json(&made, &questions))? + "\n")?;
        eprintln!("wrote {}", path.display());
    }
    Ok(())
}

fn build_generator() -> Result<PathBuf> {
    let args = ["build", "--release", "--package=integration-tests", "--bin=test-fleet"];
    process::run(&mut process::cargo(args))?;
    Ok(workspace::target_dir().join("release/test-fleet"))
}

/// Makes the recordings, and the data set of them.
fn make(options: &Options, generator: &Path, ready: &Ready) -> Result<Made> {
    let recordings = ready.dir.join("recordings");
    fs::create_dir(&recordings)?;
    let mut command = Command::new(generator);
    command.args(options.fleet.map(|number| number.to_string())).arg(&recordings);
    let generating = timed(command, To::Nothing, &ready.dir)?.elapsed;
    let mut files =
        fs::read_dir(&recordings)?.map(|entry| Ok(entry?.path())).collect::<Result<Vec<PathBuf>>>()?;
    files.sort_unstable();
    let [hosts, of_each, events, _] = options.fleet;
    let mut made = Made {
        recordings: files.len(),
        events: hosts * of_each * events,
        dat_bytes: bytes_in(&recordings)?,
        parquet_bytes: 0,
        generating,
        exporting: Duration::ZERO,
        export_cpu: Duration::ZERO,
        peak_bytes: 0,
    };
    eprintln!("{} recordings of {} bytes in {:.1} s", files.len(), made.dat_bytes, generating.as_secs_f64());
    let data = data_set(&ready.dir);
    for file in &files {
        let mut command = Command::new(&ready.agent);
        command.args(["export", "--quiet", "--format", "parquet", "--partition"]).arg(file).arg(&data);
        let run = timed(command, To::Nothing, &ready.dir)?;
        made.exporting += run.elapsed;
        made.export_cpu += run.usage.cpu;
        made.peak_bytes = made.peak_bytes.max(run.usage.peak_bytes);
    }
    made.parquet_bytes = bytes_in(&data)?;
    eprintln!("exported to {} bytes in {:.1} s", made.parquet_bytes, made.exporting.as_secs_f64());
    Ok(made)
}

fn data_set(dir: &Path) -> PathBuf {
    dir.join("fleet")
}

/// Bytes of all files below a directory.
fn bytes_in(dir: &Path) -> Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        bytes += if entry.file_type()?.is_dir() { bytes_in(&entry.path())? } else { entry.metadata()?.len() };
    }
    Ok(bytes)
}

/// Has the engines answer all questions in turns.
fn ask(rounds: usize, dir: &Path) -> Result<Vec<Question>> {
    let mut questions = Vec::new();
    for round in 0..rounds {
        for (index, engine) in ENGINES.into_iter().enumerate() {
            let site = if engine == "duckdb" { duckdb_s3_dir() } else { spark_dir() };
            let mut python = Command::new("/usr/bin/python3");
            python.arg(workspace::root().join("tests/src/questions/ask.py")).arg(engine);
            python.arg(workspace::root().join("docs/tables.md")).arg(data_set(dir));
            let answers = process::output(python.env("PYTHONPATH", site).env("SPARK_CONF", SPARK_CONF))?;
            let took = add(&mut questions, index, &answers)?;
            eprintln!("  round {}, {engine}: {:.1} s", round + 1, took.as_secs_f64());
        }
    }
    Ok(questions)
}

/// Adds what an engine answered, and gives the time that all of it took. Engines differ in the answers only
/// if something is wrong.
fn add(questions: &mut Vec<Question>, engine: usize, answers: &str) -> Result<Duration> {
    let mut sum = Duration::ZERO;
    for (index, line) in answers.lines().enumerate() {
        let answer: Value = serde_json::from_str(line)?;
        let (Some(text), Some(seconds), Some(rows)) =
            (answer["question"].as_str(), answer["seconds"].as_f64(), answer["rows"].as_array())
        else {
            return Err(format!("this is no answer: {line}").into());
        };
        let rows = rows.len() as u64;
        if questions.len() == index {
            questions.push(Question { text: text.to_owned(), rows, seconds: <[Vec<f64>; 2]>::default() });
        }
        let question = &mut questions[index];
        if question.text != text || question.rows != rows {
            return Err(format!("{text}: {} has {rows} rows, not {}", ENGINES[engine], question.rows).into());
        }
        question.seconds[engine].push(seconds);
        sum += Duration::try_from_secs_f64(seconds)?;
    }
    Ok(sum)
}

fn table(made: &Made, questions: &[Question]) -> String {
    let head = ["seconds, median (min .. max)", "rows", "DuckDB", "Spark"].map(str::to_owned).to_vec();
    let cell =
        |seconds: &[f64]| Spread::of(seconds.iter().copied()).map_or_else(|| "-".to_owned(), Spread::cell);
    let row = |question: &Question| {
        let [duckdb, spark] = &question.seconds;
        vec![question.text.clone(), question.rows.to_string(), cell(duckdb), cell(spark)]
    };
    let rows: Vec<_> = std::iter::once(head).chain(questions.iter().map(row)).collect();
    let Made { recordings, events, dat_bytes, parquet_bytes, .. } = made;
    let per_event = |bytes: u64| bytes as f64 / *events as f64;
    format!(
        "\ntables: {recordings} recordings, {events} events\n\
         trace.dat: {dat_bytes} bytes ({:.2} an event), made in {:.1} s\n\
         Parquet: {parquet_bytes} bytes ({:.2} an event), exported in {:.1} s ({:.2} 10^6 events/s, {:.1} s of CPU, {:.0} MB)\n\n{}",
        per_event(*dat_bytes),
        made.generating.as_secs_f64(),
        per_event(*parquet_bytes),
        made.exporting.as_secs_f64(),
        *events as f64 / made.exporting.as_secs_f64() / 1e6,
        made.export_cpu.as_secs_f64(),
        made.peak_bytes as f64 / 1e6,
        aligned(&rows)
    )
}

fn json(made: &Made, questions: &[Question]) -> Value {
    let questions: Vec<Value> = questions
        .iter()
        .map(|question| {
            let [duckdb, spark] = &question.seconds;
            json!({ "question": question.text, "rows": question.rows, "duckdb_seconds": duckdb, "spark_seconds": spark })
        })
        .collect();
    json!({
        "version": 1, "recordings": made.recordings, "events": made.events, "dat_bytes": made.dat_bytes,
        "parquet_bytes": made.parquet_bytes, "generating_ns": made.generating.as_nanos() as u64,
        "exporting_ns": made.exporting.as_nanos() as u64, "export_cpu_ns": made.export_cpu.as_nanos() as u64,
        "export_peak_bytes": made.peak_bytes, "questions": questions,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_of_both_engines_are_put_together() {
        let mut questions = Vec::new();
        let answers = |seconds: f64| {
            let line = |text: &str| json!({ "question": text, "seconds": seconds, "rows": [{ "a": 1 }] });
            format!("{}\n{}\n", line("open"), line("Who?"))
        };
        assert_eq!(add(&mut questions, 0, &answers(1.0)).unwrap(), Duration::from_secs(2));
        assert_eq!(add(&mut questions, 1, &answers(4.0)).unwrap(), Duration::from_secs(8));
        assert_eq!(add(&mut questions, 0, &answers(3.0)).unwrap(), Duration::from_secs(6));
        assert_eq!(questions[1].seconds, [vec![1.0, 3.0], vec![4.0]]);
        let made = Made {
            recordings: 2,
            events: 1_000_000,
            dat_bytes: 9_000_000,
            parquet_bytes: 4_000_000,
            generating: Duration::from_secs(1),
            exporting: Duration::from_secs(2),
            export_cpu: Duration::from_secs(3),
            peak_bytes: 5_000_000,
        };
        let lines = table(&made, &questions);
        assert!(lines.contains("4.00 an event") && lines.contains("2.00 (1.00 .. 3.00)"), "{lines}");
        assert_eq!(json(&made, &questions)["questions"][1]["spark_seconds"][0], 4.0);
        let other = json!({ "question": "Who?", "seconds": 1, "rows": [] }).to_string();
        assert!(add(&mut questions, 1, &other).is_err());
    }

    #[test]
    fn arguments() {
        let parse =
            |args: &[&str]| Options::parse(&args.iter().map(|&arg| arg.to_owned()).collect::<Vec<_>>());
        assert_eq!(parse(&[]).unwrap().fleet, FLEET);
        assert_eq!(parse(&["--quick", "--rounds", "2"]).unwrap().rounds, 2);
        assert_eq!(parse(&["--hosts", "5", "--events", "9"]).unwrap().fleet, [5, 2, 9, 4]);
        assert!(parse(&["--fast"]).is_err() && parse(&["--rounds", "0"]).is_err());
    }
}
