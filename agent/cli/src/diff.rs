//! `tracer-agent diff`: the differences of two recordings.

use std::fmt::Write as _;
use std::io::{IsTerminal as _, Write};
use std::path::PathBuf;

use super::error::CliError;
use super::exit::ExitCode;
use super::progress::ReadingLine;
use super::{open_trace, sorted_json_line, write_all};
use analysis::diff::{Both, Diff, Options};
use analysis::json::DiffJson;
use stdx::terminal;
use tracedat::ledger::in_buffer;

/// Compare two trace.dat files
///
/// Compares event formats, the number of events of each type and CPU, and the number of lost events. With
/// --values it also compares records pair by pair: the nth record of each event, CPU and thread with the nth
/// one of the other file. Exits with 0 if there are no differences, with 1 if there are.
#[derive(Debug, clap::Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub struct Args {
    /// The first file
    #[arg(value_name = "A")]
    pub first: PathBuf,

    /// The second file
    #[arg(value_name = "B")]
    pub second: PathBuf,

    /// Compare the field values of records, pair by pair
    #[arg(long)]
    pub values: bool,

    /// Do not compare the values of this field; repeatable
    #[arg(long, value_name = "FIELD", requires = "values")]
    pub ignore: Vec<String>,

    /// Do not compare formats
    #[arg(long)]
    pub no_formats: bool,

    /// Do not compare event counts
    #[arg(long)]
    pub no_counts: bool,

    /// Do not compare the numbers of lost events
    #[arg(long)]
    pub no_losses: bool,

    /// Print nothing; only set the exit code
    #[arg(short, long, conflicts_with = "json")]
    pub quiet: bool,

    /// Print JSON: one object
    #[arg(long)]
    pub json: bool,
}

/// Compares two files.
///
/// # Errors
/// A file cannot be read, or the output cannot be written.
pub fn run(args: &Args, out: &mut dyn Write) -> Result<ExitCode, CliError> {
    let (first, second) = (open_trace(&args.first)?, open_trace(&args.second)?);
    let options = Options {
        formats: !args.no_formats,
        counts: !args.no_counts,
        losses: !args.no_losses,
        values: args.values,
        ignored: args.ignore.iter().flat_map(|list| list.split(',')).map(str::to_owned).collect(),
        ..Options::default()
    };
    // CPUs are compared one after another, so times do not show the progress.
    let mut line = ReadingLine::new(std::io::stderr().is_terminal(), None);
    let diff = Diff::of(&first, &second, &options, &mut |now| line.show(now))
        .map_err(|error| CliError::Failed(error.to_string()))?;
    drop(line);
    if !args.quiet {
        write_all(out, &if args.json { sorted_json_line(&DiffJson::new(&diff))? } else { text(&diff) })?;
    }
    Ok(if diff.is_empty() { ExitCode::Ok } else { ExitCode::Failure })
}

fn text(diff: &Diff) -> String {
    let Diff {
        only_first,
        only_second,
        formats,
        counts,
        cpus,
        losses,
        pairs,
        values,
        alone,
        not_compared,
        damaged,
    } = diff;
    let mut text = String::new();
    let head = |text: &mut String, head: &str| *text += &format!("{head}\n");
    for (names, which) in [(only_first, "first"), (only_second, "second")] {
        if !names.is_empty() {
            head(&mut text, &format!("EVENTS only in the {which} file"));
            for name in names {
                text += &format!("  {name}\n");
            }
        }
    }
    if !formats.is_empty() {
        head(&mut text, "FORMATS that differ");
        for (name, differences) in formats {
            let _ = writeln!(text, "  {name}");
            for difference in differences {
                text += &format!("    {difference}\n");
            }
        }
    }
    let mut table = |title: &str, rows: Vec<(String, Both)>| {
        if !rows.is_empty() {
            let _ = writeln!(text, "{title}\n{:>14} {:>14} {:>15}", "first", "second", "change");
            for (name, (one, other)) in rows {
                let change = i128::from(other) - i128::from(one);
                let _ = writeln!(text, "{one:>14} {other:>14} {change:>+15}  {name}");
            }
        }
    };
    let cpu = |((buffer, cpu), both): (&(String, u32), &Both)| {
        (in_buffer(format_args!("CPU {cpu}"), buffer), *both)
    };
    let named = |(name, both): (&String, &Both)| (name.clone(), *both);
    table("EVENTS by kind", counts.iter().map(named).collect());
    table("EVENTS by CPU", cpus.iter().map(cpu).collect());
    table("LOST events by CPU", losses.iter().map(cpu).collect());
    table("RECORDS without a counterpart", alone.iter().map(named).collect());
    if !values.is_empty() {
        let _ = writeln!(text, "VALUES that differ, of {pairs} pairs of records");
        for ((event, field), (count, example)) in values {
            let _ = writeln!(text, "{count:>14}  {event} {field}: {}", terminal::name(example));
        }
    }
    for (number, what) in [
        (*not_compared, "records were not compared: too many were waiting for their counterparts"),
        (*damaged, "pages or chunks cannot be read; `tracer-agent check` shows where"),
    ] {
        if number > 0 {
            let _ = writeln!(text, "{number} {what}");
        }
    }
    // Names and values come from the files.
    terminal::lines(&text)
}
