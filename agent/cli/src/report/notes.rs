//! What users should know of a report, on stderr, and in the exit code.

use super::super::exit::ExitCode;
use super::super::tell;
use super::super::units::count;
use super::Args;
use report::{LostBehind, Summary, TraceFile};
use stdx::terminal;
use tracedat::ledger::in_buffer;
use tracedat::reader::Source;

/// Says on stderr what users should know of what was read.
pub(super) fn finish<S: Source>(args: &Args, summary: &Summary, files: &[TraceFile<S>]) {
    if args.quiet {
        return;
    }
    notes(summary, files);
    if summary.shown == 0 && args.chooses() {
        let read = count(summary.records);
        tell(&format!("tracer-agent: no event matches; {read} were read"));
    }
}

pub(super) fn exit_code<S: Source>(summary: &Summary, files: &[TraceFile<S>]) -> ExitCode {
    let damaged = files.iter().any(|file| !file.reader().problems().is_empty()) || summary.damage.count != 0;
    if damaged { ExitCode::Failure } else { ExitCode::Ok }
}

/// Warnings about the report, on stderr.
fn notes<S: Source>(summary: &Summary, files: &[TraceFile<S>]) {
    for file in files {
        for problem in file.reader().problems() {
            tell(&format!("tracer-agent: {}: {problem}", file.name()));
        }
    }
    for text in &summary.damage.texts {
        tell(&format!("tracer-agent: damaged: {text}"));
    }
    let more = summary.damage.count - summary.damage.texts.len() as u64;
    if more != 0 {
        tell(&format!("tracer-agent: {} more damaged places", count(more)));
    }
    for LostBehind { file, buffer, cpu, events, since: _ } in &summary.lost_behind {
        let cpu = in_buffer(format_args!("CPU {cpu}"), &terminal::name(buffer));
        let events = events.map_or_else(|| "events".to_owned(), |events| format!("{} events", count(events)));
        let name = files.get(*file).map_or("", TraceFile::name);
        tell(&format!("tracer-agent: {name}: {cpu}: {events} were lost behind the last record"));
    }
    for found in &summary.not_understood {
        let events = count(found.records);
        tell(&match &found.event {
            Some((name, why)) if !found.has_fields => {
                format!(
                    "tracer-agent: {events} {name} events are printed as bytes, as their format cannot be parsed: {why}"
                )
            }
            Some((name, why)) => {
                format!(
                    "tracer-agent: {events} {name} events are printed as raw fields, as their print format cannot \
                     be parsed: {why}"
                )
            }
            None => format!("tracer-agent: {events} events have no format in the file"),
        });
    }
}
