//! `tracer-agent hist`: how often and how long.

mod text;

use std::fs::File;
use std::io::{IsTerminal as _, Write};
use std::path::PathBuf;

use serde_json::json;

use super::error::CliError;
use super::exit::ExitCode;
use super::progress::ReadingLine;
use super::write_all;
use crate::analysis::Watch;
use crate::analysis::histogram::{self, Histogram, Order};
use crate::analysis::key::Key;
use crate::analysis::latency::{self, Latency};
use crate::report::TraceFile;

/// Count events by their fields, or measure the time between two events
///
/// With an EVENT and FIELDs it counts how often each combination of the fields' values is there. EVENT is what `report -F` takes:
/// names, patterns, several with commas, and a condition if wanted (`sched_switch: prev_pid != 0`). A FIELD is one of the events', or
/// COMM, CPU, event (the event's name). Behind a dot stands how it is written: .hex .sym .sym-offset .execname .log2 .buckets=N .name
/// (the name that the event's format has for the value).
///
/// With --from and --to it measures the time from each event to the next that has the same --key.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The file
    #[arg(value_name = "FILE")]
    pub file: PathBuf,

    /// The events to count
    #[arg(value_name = "EVENT", required_unless_present = "from", conflicts_with = "from")]
    pub event: Option<String>,

    /// The fields to count by [default: event]
    #[arg(value_name = "FIELD", conflicts_with = "from")]
    pub fields: Vec<String>,

    /// Add this field up: sum, smallest, mean and largest; can be given more than once
    #[arg(short = 'a', long = "value", value_name = "FIELD", conflicts_with = "from")]
    pub values: Vec<String>,

    /// What the rows are sorted by: count, key, or a field of --value, or its .avg or .max
    #[arg(long, value_name = "BY", default_value = "count")]
    pub sort: String,

    /// Sort the other way round
    #[arg(long)]
    pub reverse: bool,

    /// Show only so many rows
    #[arg(short = 'n', long, value_name = "N")]
    pub limit: Option<usize>,

    /// Tell so many combinations of keys, or begun times, apart; the rest is counted together
    #[arg(long, value_name = "N", default_value_t = 1 << 20)]
    pub max_keys: usize,

    /// Measure the time from this event
    #[arg(long, value_name = "EVENT", requires = "to")]
    pub from: Option<String>,

    /// Measure the time to this event
    #[arg(long, value_name = "EVENT", requires = "from")]
    pub to: Option<String>,

    /// What both events have in common: a field of both, or FIELD=FIELD of the first and of the second; can be given more than once
    #[arg(short, long = "key", value_name = "FIELD[=FIELD]", requires = "from")]
    pub keys: Vec<String>,

    /// Print JSON: one object
    #[arg(long)]
    pub json: bool,
}

const EXAMPLES: &str = "EXAMPLES
  tracer-agent hist trace.dat sched_switch next_comm
  tracer-agent hist trace.dat kmalloc call_site.sym --value bytes_req --sort bytes_req
  tracer-agent hist trace.dat 'syscalls' event
  tracer-agent hist trace.dat --from sched_waking --to sched_switch --key pid=next_pid";

/// Counts or measures.
///
/// # Errors
/// No such file, event or field, or nothing can be written.
pub fn run(args: &Args, out: &mut dyn Write) -> Result<ExitCode, CliError> {
    let name = args.file.display().to_string();
    let open =
        File::open(&args.file).map_err(|error| CliError::Failed(format!("cannot open {name}: {error}")))?;
    let file = TraceFile::open(&name, open)
        .map_err(|error| CliError::Failed(format!("cannot read {name}: {error}")))?;
    let mut line = ReadingLine::new(std::io::stderr().is_terminal(), file.reader().span());
    let watch = &mut |now| line.show(now);
    let (text, damaged) = match (&args.from, &args.to) {
        (Some(from), Some(to)) => measure(args, &file, from, to, watch)?,
        _ => count(args, &file, watch)?,
    };
    drop(line);
    write_all(out, &text)?;
    if damaged == 0 {
        return Ok(ExitCode::Ok);
    }
    super::tell(&format!(
        "tracer-agent: {damaged} pages of {name} cannot be read, and are not in these numbers; `tracer-agent check` tells more"
    ));
    Ok(ExitCode::Failure)
}

fn count(args: &Args, file: &TraceFile<File>, watch: Watch<'_>) -> Result<(String, u64), CliError> {
    let parse = |fields: &[String]| -> Result<Vec<Key>, CliError> {
        let fields = fields.iter().flat_map(|field| field.split(',')).filter(|field| !field.is_empty());
        Ok(fields.map(Key::parse).collect::<Result<_, _>>()?)
    };
    let mut keys = parse(&args.fields)?;
    if keys.is_empty() {
        keys = parse(&["event".to_owned()])?;
    }
    let values = parse(&args.values)?;
    let order = order(&args.sort, &values)?;
    let events = histogram::events(args.event.as_deref().unwrap_or_default())?;
    let question = histogram::Question { events, keys, values, most_rows: args.max_keys };
    let mut answer = Histogram::of(file, &question, watch)?;
    answer.sort(order, args.reverse);
    let rows = args.limit.unwrap_or(usize::MAX).min(answer.rows.len());
    let text = if args.json {
        histogram_json(&question, &answer, rows)
    } else {
        text::histogram(&question, &answer, rows)
    };
    Ok((text, answer.damaged))
}

fn order(text: &str, values: &[Key]) -> Result<Order, CliError> {
    let place = |field: &str| values.iter().position(|value| value.field == field);
    match text {
        "count" | "hitcount" => return Ok(Order::Count),
        "key" | "keys" => return Ok(Order::Keys),
        _ => {}
    }
    let (field, order): (&str, fn(usize) -> Order) = match text.rsplit_once('.') {
        Some((field, "avg")) => (field, Order::Average),
        Some((field, "max")) => (field, Order::Most),
        _ => (text, Order::Sum),
    };
    place(field).map(order).ok_or_else(|| {
        CliError::usage(format!(
            "--sort {text}: sort by count, by key, or by a field that --value names, or its .avg or .max"
        ))
    })
}

fn measure(
    args: &Args,
    file: &TraceFile<File>,
    from: &str,
    to: &str,
    watch: Watch<'_>,
) -> Result<(String, u64), CliError> {
    let keys: Result<Vec<_>, CliError> = args
        .keys
        .iter()
        .map(|key| {
            // A modifier has a `=` of its own.
            let split = key.match_indices('=').find(|(at, _)| !key[..*at].ends_with(".buckets"));
            let (first, second) =
                split.map_or((key.as_str(), key.as_str()), |(at, _)| (&key[..at], &key[at + 1..]));
            Ok((Key::parse(first)?, Key::parse(second)?))
        })
        .collect();
    let question = latency::Question {
        from: histogram::events(from)?,
        to: histogram::events(to)?,
        keys: keys?,
        most_open: args.max_keys,
    };
    let answer = Latency::of(file, &question, watch)?;
    let text =
        if args.json { latency_json(&answer) } else { text::latency(&answer, file.is_in_nanoseconds()) };
    Ok((text, answer.damaged))
}

fn histogram_json(question: &histogram::Question, answer: &Histogram, rows: usize) -> String {
    let row = |row: &histogram::Row| {
        let mut object = serde_json::Map::new();
        if !row.keys.is_empty() {
            object.insert("keys".to_owned(), json!(row.keys));
        }
        object.insert("count".to_owned(), json!(row.count));
        let values = question.values.iter().zip(&row.values).map(|(key, values)| {
            // JSON's numbers end at 64 bits.
            let number =
                |number: i128| i64::try_from(number).map_or_else(|_| json!(number.to_string()), |n| json!(n));
            let values = json!({
                "count": values.count, "sum": number(values.sum), "min": number(values.least),
                "avg": number(values.average()), "max": number(values.most),
            });
            (key.text(), values)
        });
        let values: serde_json::Map<_, _> = values.collect();
        if !values.is_empty() {
            object.insert("values".to_owned(), values.into());
        }
        serde_json::Value::from(object)
    };
    let keys: Vec<_> = question.keys.iter().map(Key::text).collect();
    let shown: Vec<_> = answer.rows.iter().take(rows).map(row).collect();
    let all = json!({
        "events": question.events.text(), "keys": keys, "records": answer.records, "distinct": answer.rows.len(),
        "rows": shown, "overflow": row(&answer.overflow), "damaged": answer.damaged,
    });
    format!("{all}\n")
}

fn latency_json(answer: &Latency) -> String {
    let Latency { times, restarted, open, unmatched, overflow, damaged } = answer;
    let [p50, p90, p99] = times.percentiles([50, 90, 99]);
    let powers: Vec<_> =
        times.powers().map(|(from, count)| json!({ "from": from, "count": count })).collect();
    let all = json!({
        "count": times.count(), "min": times.least(), "avg": times.average(), "p50": p50, "p90": p90, "p99": p99,
        "max": times.most(), "log2": powers, "restarted": restarted, "open": open, "unmatched": unmatched,
        "overflow": overflow, "damaged": damaged,
    });
    format!("{all}\n")
}
