//! `cargo xtask bench export`: writing a large file in the layouts of other tools, beside what readers take
//! for the same events.
//!
//! Nobody else writes these layouts from a trace.dat, so the exports are compared with programs that go
//! through the same events once: stock trace-cmd, which prints the recording, and babeltrace2, which decodes
//! the exported trace and prints nothing. The ratio is taken within a round.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use super::read::{self, Options, Run, To, timed};
use super::report::{OURS, Spread, aligned};
use crate::tasks::setup::Purpose;
use crate::{Result, process};

/// The formats, and whether babeltrace2 reads them.
const FORMATS: [(&str, bool); 8] = [
    ("ctf", true),
    ("lttng", true),
    ("lttng-2008", false),
    ("ltt-eventdefs", false),
    ("perfetto", false),
    ("html", false),
    ("csv", false),
    ("jsonl", false),
];

/// What is compared in a round, for one format.
#[derive(Clone, Copy)]
struct Row {
    export: Run,
    /// babeltrace2 on the export.
    babeltrace: Option<Run>,
}

/// A round: printing the recording with stock trace-cmd, and the formats.
struct Round {
    stock: Run,
    rows: Vec<Row>,
}

pub(super) fn run(args: &[String]) -> Result {
    read::on_a_file("export", Purpose::Run, args, measure)
}

fn measure(options: &Options, agent: &Path, trace_cmd: &Path, dir: &Path) -> Result<(String, Value)> {
    let babeltrace = process::find("babeltrace2")
        .ok_or("there is no babeltrace2 to compare with; `cargo xtask setup --for bench` installs it")?;
    let (file, events, bytes) = read::recording(options, agent, dir)?;
    let mut rounds = Vec::new();
    for number in 0..options.rounds {
        let mut command = Command::new(trace_cmd);
        command.arg("report").arg(&file);
        let stock = timed(command, To::Nothing, dir)?;
        eprintln!("  round {}, trace-cmd report: {:.2} s", number + 1, stock.seconds());
        let mut rows = Vec::new();
        for (format, readable) in FORMATS {
            let out = dir.join(format);
            let mut command = Command::new(agent);
            command.args(["export", "--force", "--quiet", "--format", format]).arg(&file).arg(&out);
            let export = timed(command, To::Nothing, dir)?;
            let mut command = Command::new(&babeltrace);
            command.args(["--output-format=dummy"]).arg(&out);
            let babeltrace = if readable { Some(timed(command, To::Nothing, dir)?) } else { None };
            eprintln!("  round {}, {format}: {:.2} s", number + 1, export.seconds());
            rows.push(Row { export, babeltrace });
        }
        rounds.push(Round { stock, rows });
    }
    Ok((table(events, bytes, &rounds), json(events, bytes, &rounds)))
}

/// A figure of one format over all rounds.
fn spread(rounds: &[Round], format: usize, value: impl Fn(&Round, &Row) -> Option<f64>) -> Option<Spread> {
    Spread::of(rounds.iter().filter_map(|round| value(round, round.rows.get(format)?)))
}

fn table(events: u64, bytes: u64, rounds: &[Round]) -> String {
    let head =
        ["median (min .. max)", "10^6 events/s", "x trace-cmd report", "x babeltrace2", "CPU, s", "MB"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for (index, (format, _)) in FORMATS.iter().enumerate() {
        let cell = |value: &dyn Fn(&Round, &Row) -> Option<f64>| {
            spread(rounds, index, value).map_or_else(|| "-".to_owned(), Spread::cell)
        };
        rows.push(vec![
            (*format).to_owned(),
            cell(&|_, row| Some(events as f64 / row.export.seconds() / 1e6)),
            cell(&|round, row| Some(round.stock.seconds() / row.export.seconds())),
            cell(&|_, row| Some(row.babeltrace?.seconds() / row.export.seconds())),
            cell(&|_, row| Some(row.export.usage.cpu.as_secs_f64())),
            cell(&|_, row| Some(row.export.usage.peak_bytes as f64 / 1e6)),
        ]);
    }
    format!("\nexport: {events} events, {bytes} bytes, {} rounds\n\n{}", rounds.len(), aligned(&rows))
}

fn json(events: u64, bytes: u64, rounds: &[Round]) -> Value {
    let formats: Vec<Value> = FORMATS
        .iter()
        .enumerate()
        .map(|(index, (format, _))| {
            let row = |round: &Round| {
                let row = round.rows.get(index)?;
                let babeltrace = row.babeltrace.as_ref().map(Run::json);
                Some(json!({ OURS: row.export.json(), "trace-cmd": round.stock.json(), "babeltrace2": babeltrace }))
            };
            let rate = spread(rounds, index, |_, row| Some(events as f64 / row.export.seconds()));
            json!({
                "name": format, "events_per_second": rate.map(Spread::json),
                "rounds": rounds.iter().filter_map(row).collect::<Vec<_>>(),
            })
        })
        .collect();
    json!({ "version": 1, "events": events, "file_bytes": bytes, "formats": formats })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::sys::Usage;
    use super::*;

    #[test]
    fn figures_are_those_of_a_round() {
        let run = |millis| Run { elapsed: Duration::from_millis(millis), usage: Usage::default() };
        let row =
            |export, babeltrace: Option<u64>| Row { export: run(export), babeltrace: babeltrace.map(run) };
        let rounds = [
            Round { stock: run(1000), rows: vec![row(100, Some(200)), row(500, None)] },
            Round { stock: run(3000), rows: vec![row(100, Some(400)), row(500, None)] },
        ];
        let ratio = spread(&rounds, 0, |round, row| Some(round.stock.seconds() / row.export.seconds()));
        assert_eq!(ratio, Spread::of([10.0, 30.0].into_iter()));
        assert_eq!(spread(&rounds, 1, |_, row| Some(row.babeltrace?.seconds())), None);
        let lines = table(1_000_000, 7, &rounds);
        assert!(lines.contains("lttng-2008") && lines.contains("10.0"), "{lines}");
        assert_eq!(json(5, 7, &rounds)["formats"][0]["events_per_second"]["median"], 50.0);
    }
}
