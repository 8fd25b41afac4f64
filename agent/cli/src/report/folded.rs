//! `report --folded`: stacks with their counts.

use std::io::{self, Write};

use clap::ArgMatches;

use super::super::exit::ExitCode;
use super::super::input::Opened;
use super::super::tell;
use super::super::units::count;
use super::choose::{selection, tell_missing};
use super::notes::{exit_code, finish};
use super::{Args, ReportError, progress};
use flame::Format;
use report::{Notice, Report, TraceFile};
use stdx::input::nearest;
use stdx::terminal::SafeWriter;

/// Prints stacks with their counts.
pub(super) fn fold<W: Write>(
    args: &Args,
    matches: &ArgMatches,
    files: &[TraceFile<Opened>],
    field: Option<&str>,
    out: &mut SafeWriter<W>,
) -> Result<ExitCode, ReportError> {
    if let Some(field) = field {
        has_field(files, field)?;
    }
    let report = Report::new(files).select(selection(args, matches, files, tell_missing)?);
    let mut progress = progress(files);
    let (folded, summary) = report.fold(field, |notice| {
        if let Notice::Progress(now) = notice {
            progress.show(now);
        }
    });
    drop(progress);
    // Whoever asks for lines where there are none gets none.
    let write = |out: &mut dyn Write| {
        if folded.stacks.is_empty() { Ok(()) } else { Format::Folded.write(&folded.stacks, out) }
    };
    match write(out).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(ExitCode::Ok),
        result => result?,
    }
    finish(args, &summary, files);
    if !args.quiet {
        let events = |number: u64| count(number);
        if folded.stacks.is_empty() && folded.without_stack != 0 {
            tell("tracer-agent: no event has a stack; `record -T` and `record --user-stack` record them");
        } else if folded.without_stack != 0 {
            tell(&format!(
                "tracer-agent: {} events have no stack and are not counted",
                events(folded.without_stack)
            ));
        }
        if let (Some(field), 1..) = (field, folded.without_value) {
            let number = events(folded.without_value);
            tell(&format!("tracer-agent: {number} events have no positive {field} and are not counted"));
        }
        if folded.stacks.others() != 0 {
            tell("tracer-agent: too many different stacks: the last ones are counted as [other stacks]");
        }
    }
    Ok(exit_code(&summary, files))
}

/// Whether an event of the files has a field of this name.
fn has_field(files: &[TraceFile<Opened>], field: &str) -> Result<(), ReportError> {
    let events = || files.iter().flat_map(|file| file.events().iter());
    if events().any(|event| event.field_index(field).is_some()) {
        return Ok(());
    }
    let names = events().flat_map(|event| &event.format().fields).map(|field| field.name.as_str());
    let near = names.filter_map(|name| Some((nearest::score(field, name)?, name))).min();
    let hint = near.map_or(String::new(), |(_, name)| format!("; did you mean {name}?"));
    Err(ReportError::Usage(format!("--folded={field}: no event of the file has such a field{hint}")))
}
