//! Which records are printed, by the options.

use std::collections::{BTreeSet, HashSet};

use clap::ArgMatches;

use super::super::tell;
use super::{Args, ReportError, indices};
use ftrace_event::filter;
use ftrace_event::filter::FilterError;
use report::{Selection, TraceFile};
use stdx::input::glob::matches_name;
use tracedat::reader::Source;

/// The filters of each file.
fn filters<S: Source>(
    args: &Args,
    matches: &ArgMatches,
    files: &[TraceFile<S>],
) -> Result<Vec<filter::Selection>, FilterError> {
    let invert = if args.invert { matches.index_of("invert") } else { None };
    let filters: Vec<_> = indices(matches, "filters").into_iter().zip(&args.filters).collect();
    let of_file = |file: &TraceFile<S>| {
        let mut selection = filter::Selection::new(file.events());
        for (index, text) in &filters {
            let negated = invert.is_some_and(|invert| invert < *index);
            selection.add_text(text, negated, file.events())?;
        }
        Ok(selection)
    };
    if filters.is_empty() { Ok(Vec::new()) } else { files.iter().map(of_file).collect() }
}

/// The selection, by what the files say of their tasks. `missing` is told the names that no task has.
pub(super) fn selection<S: Source>(
    args: &Args,
    matches: &ArgMatches,
    files: &[TraceFile<S>],
    mut missing: impl FnMut(&str),
) -> Result<Selection, ReportError> {
    let cpus = args.cpu.iter().flatten().copied().collect::<HashSet<_>>();
    let mut pids: HashSet<u32> = args.pid.iter().copied().collect();
    for comm in &args.comm {
        let tasks = files.iter().flat_map(|file| file.reader().metadata().cmdlines.iter());
        let before = pids.len();
        pids.extend(tasks.filter(|(_, name)| matches_name(comm, name)).map(|(pid, _)| pid));
        if pids.len() == before {
            missing(comm);
        }
    }
    Ok(Selection {
        filters: filters(args, matches, files)?,
        buffers: Some(buffers(args, files)?).filter(|_| !args.buffers.is_empty()),
        cpus: Some(cpus).filter(|_| !args.cpu.is_empty()),
        pids: Some(pids).filter(|_| !args.pid.is_empty() || !args.comm.is_empty()),
        no_hard_irqs: args.no_hard_irqs,
        no_soft_irqs: args.no_soft_irqs,
        since: args.since,
        until: args.until,
        limit: args.limit,
    })
}

/// The buffers that are wanted.
///
/// # Errors
/// No file has one of them.
fn buffers<S: Source>(args: &Args, files: &[TraceFile<S>]) -> Result<HashSet<String>, ReportError> {
    let known = || files.iter().flat_map(|file| file.reader().buffers()).map(|buffer| buffer.name.as_str());
    if let Some(missing) = args.buffers.iter().find(|name| !known().any(|of| of == *name)) {
        let names: BTreeSet<&str> = known().filter(|name| !name.is_empty()).collect();
        let there = match names.len() {
            0 => "there is only the one that has no name".to_owned(),
            _ => format!("there are {}", names.into_iter().collect::<Vec<_>>().join(", ")),
        };
        return Err(ReportError::Usage(format!("-B {missing}: there is no such buffer; {there}")));
    }
    Ok(args.buffers.iter().cloned().collect())
}

/// Says that no task has this name.
pub(super) fn tell_missing(comm: &str) {
    tell(&format!("tracer-agent: the file has no task named {comm:?}"));
}
