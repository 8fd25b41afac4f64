//! `cargo xtask bench export`: writing a large file in the layouts of other tools, beside what readers take
//! for the same events.
//!
//! Nobody else writes these layouts from a trace.dat, so the exports are compared with programs that go
//! through the same events once: stock trace-cmd, which prints the recording, and babeltrace2, which decodes
//! the exported trace and prints nothing. The ratio is taken within a round. Beside the formats, which are
//! all that the command has, stand both printing programs: trace-cmd, and babeltrace2 with the text of the
//! CTF.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use super::read::{self, Options, Run, To, timed};
use super::report::{OURS, Spread, aligned};
use crate::tasks::setup::Purpose;
use crate::{Result, process};

/// The formats that babeltrace2 reads.
const READABLE: [&str; 2] = ["ctf", "lttng"];

/// What is compared in a round, for one format.
#[derive(Clone, Copy)]
struct Row {
    export: Run,
    /// babeltrace2 on the export.
    babeltrace: Option<Run>,
    /// The older build, if one is given that has the format.
    before: Option<Run>,
}

/// A round: printing the recording with stock trace-cmd, printing its first export that babeltrace2 reads
/// with that, and the formats.
struct Round {
    stock: Run,
    printed: Option<Run>,
    rows: Vec<Row>,
}

/// The formats that a command has, by what it says of one that it does not have: so none is forgotten.
fn formats(agent: &Path) -> Result<Vec<String>> {
    let said = Command::new(agent).args(["export", "--format", "?", "-", "-"]).output()?.stderr;
    let said = String::from_utf8_lossy(&said);
    let known = said.split_once("known: ").and_then(|(_, known)| known.lines().next());
    let known = known.ok_or_else(|| format!("the command does not list its formats: {said}"))?;
    Ok(known.split(", ").map(str::to_owned).collect())
}

pub(super) fn run(args: &[String]) -> Result {
    read::on_a_file("export", Purpose::Run, args, measure)
}

fn measure(options: &Options, agent: &Path, trace_cmd: &Path, dir: &Path) -> Result<(String, Value)> {
    let babeltrace = process::find("babeltrace2")
        .ok_or("there is no babeltrace2 to compare with; `cargo xtask setup --for bench` installs it")?;
    let (file, events, bytes) = read::recording(options, agent, dir)?;
    let formats = formats(agent)?;
    let before = match options.before.as_deref() {
        Some(before) => Some((before, self::formats(before)?)),
        None => None,
    };
    let mut rounds = Vec::new();
    for number in 0..options.rounds {
        let mut command = Command::new(trace_cmd);
        command.arg("report").arg(&file);
        let stock = timed(command, To::Nothing, dir)?;
        eprintln!("  round {}, trace-cmd report: {:.2} s", number + 1, stock.seconds());
        let mut round = Round { stock, printed: None, rows: Vec::new() };
        for format in &formats {
            let out = dir.join(format);
            let export = |agent: &Path| {
                // An older build does not replace exports of this one.
                match fs::metadata(&out) {
                    Ok(found) if found.is_dir() => fs::remove_dir_all(&out)?,
                    Ok(_) => fs::remove_file(&out)?,
                    Err(_) => {}
                }
                let mut command = Command::new(agent);
                command.args(["export", "--quiet", "--format", format]).arg(&file).arg(&out);
                timed(command, To::Nothing, dir)
            };
            let before = before.as_ref().filter(|(_, formats)| formats.contains(format));
            let before = before.map(|(before, _)| export(before)).transpose()?;
            let export = export(agent)?;
            eprintln!("  round {}, {format}: {:.2} s", number + 1, export.seconds());
            let is_readable = READABLE.contains(&format.as_str());
            let read = |args: &[&str]| {
                let mut command = Command::new(&babeltrace);
                command.args(args).arg(&out);
                timed(command, To::Nothing, dir)
            };
            let babeltrace = if is_readable { Some(read(&["--output-format=dummy"])?) } else { None };
            if is_readable && round.printed.is_none() {
                round.printed = Some(read(&[])?);
            }
            round.rows.push(Row { export, babeltrace, before });
        }
        rounds.push(round);
    }
    Ok((table(&formats, events, bytes, &rounds), json(&formats, events, bytes, &rounds)))
}

/// A figure of one format over all rounds.
fn spread(rounds: &[Round], format: usize, value: impl Fn(&Round, &Row) -> Option<f64>) -> Option<Spread> {
    Spread::of(rounds.iter().filter_map(|round| value(round, round.rows.get(format)?)))
}

/// The cells that every row has.
fn cells(name: &str, figures: [Option<Spread>; 6]) -> Vec<String> {
    let cell = |figure: Option<Spread>| figure.map_or_else(|| "-".to_owned(), Spread::cell);
    std::iter::once(name.to_owned()).chain(figures.into_iter().map(cell)).collect()
}

fn table(formats: &[String], events: u64, bytes: u64, rounds: &[Round]) -> String {
    let head = [
        "median (min .. max)",
        "10^6 events/s",
        "x trace-cmd report",
        "x babeltrace2",
        "CPU, s",
        "MB",
        "CPU to before",
    ];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    let rate = |run: Run| events as f64 / run.seconds() / 1e6;
    let cpu = |run: Run| run.usage.cpu.as_secs_f64();
    let memory = |run: Run| run.usage.peak_bytes as f64 / 1e6;
    for (index, format) in formats.iter().enumerate() {
        let of = |value: &dyn Fn(&Round, &Row) -> Option<f64>| spread(rounds, index, value);
        let figures = [
            of(&|_, row| Some(rate(row.export))),
            of(&|round, row| Some(round.stock.seconds() / row.export.seconds())),
            of(&|_, row| Some(row.babeltrace?.seconds() / row.export.seconds())),
            of(&|_, row| Some(cpu(row.export))),
            of(&|_, row| Some(memory(row.export))),
            of(&|_, row| Some(row.export.cpu_to(&row.before?))),
        ];
        rows.push(cells(format, figures));
    }
    for (name, run) in [
        ("trace-cmd report", (|round| Some(round.stock)) as fn(&Round) -> Option<Run>),
        ("babeltrace2, text", |round| round.printed),
    ] {
        let of = |value: &dyn Fn(&Round, Run) -> f64| {
            Spread::of(rounds.iter().filter_map(|round| Some(value(round, run(round)?))))
        };
        let figures = [
            of(&|_, run| rate(run)),
            of(&|round, run| round.stock.seconds() / run.seconds()),
            None,
            of(&|_, run| cpu(run)),
            of(&|_, run| memory(run)),
            None,
        ];
        rows.push(cells(name, figures));
    }
    format!("\nexport: {events} events, {bytes} bytes, {} rounds\n\n{}", rounds.len(), aligned(&rows))
}

fn json(formats: &[String], events: u64, bytes: u64, rounds: &[Round]) -> Value {
    let formats: Vec<Value> = formats
        .iter()
        .enumerate()
        .map(|(index, format)| {
            let row = |round: &Round| {
                let row = round.rows.get(index)?;
                let [babeltrace, before] =
                    [row.babeltrace, row.before].map(|run| run.as_ref().map(Run::json));
                Some(json!({
                    OURS: row.export.json(), "trace-cmd": round.stock.json(), "babeltrace2": babeltrace,
                    "before": before,
                }))
            };
            let rate = spread(rounds, index, |_, row| Some(events as f64 / row.export.seconds()));
            json!({
                "name": format, "events_per_second": rate.map(Spread::json),
                "rounds": rounds.iter().filter_map(row).collect::<Vec<_>>(),
            })
        })
        .collect();
    let printed: Vec<Value> = rounds.iter().filter_map(|round| round.printed).map(|run| run.json()).collect();
    json!({ "version": 1, "events": events, "file_bytes": bytes, "formats": formats, "babeltrace2_text": printed })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::sys::Usage;
    use super::*;

    #[test]
    fn figures_are_those_of_a_round() {
        let run = |millis| Run { elapsed: Duration::from_millis(millis), usage: Usage::default() };
        let row = |export, babeltrace: Option<u64>| Row {
            export: run(export),
            babeltrace: babeltrace.map(run),
            before: None,
        };
        let rounds = [
            Round { stock: run(1000), printed: None, rows: vec![row(100, Some(200)), row(500, None)] },
            Round {
                stock: run(3000),
                printed: Some(run(500)),
                rows: vec![row(100, Some(400)), row(500, None)],
            },
        ];
        let ratio = spread(&rounds, 0, |round, row| Some(round.stock.seconds() / row.export.seconds()));
        assert_eq!(ratio, Spread::of([10.0, 30.0].into_iter()));
        assert_eq!(spread(&rounds, 1, |_, row| Some(row.babeltrace?.seconds())), None);
        let formats = ["ctf", "lttng-2008"].map(str::to_owned);
        let lines = table(&formats, 1_000_000, 7, &rounds);
        assert!(lines.contains("lttng-2008") && lines.contains("10.0"), "{lines}");
        assert_eq!(json(&formats, 5, 7, &rounds)["formats"][0]["events_per_second"]["median"], 50.0);
    }
}
