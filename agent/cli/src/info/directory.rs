//! What is in a directory that is an export.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

use super::{InfoError, json_text};
use crate::units::{bytes, count};
use ctf_writer::summary;
use ctf_writer::summary::{Summary, Trace};
use export::recognise;
use export::recognise::Layout;
use export::{blocks, eventdefs, ltt2008};
use stdx::terminal;

/// Tells of a directory, and whether it is whole.
pub(super) fn report(path: &Path, json: bool) -> Result<(String, bool), InfoError> {
    let directory = |reason: String| InfoError::Directory { path: path.to_owned(), reason };
    match recognise::layout(path) {
        Some(Layout::Ctf) => {
            let summary = summary::read(path).map_err(|error| directory(error.to_string()))?;
            let text = if json { json_text(&summary)? } else { ctf(path, &summary) };
            Ok((text, summary.is_whole()))
        }
        Some(layout @ (Layout::Lttng2008 | Layout::EventDefs)) => {
            let read =
                if layout == Layout::Lttng2008 { ltt2008::summary::read } else { eventdefs::summary::read };
            let summary = read(path).map_err(|error| directory(error.to_string()))?;
            let text = if json { json_text(&summary)? } else { in_blocks(path, &summary) };
            Ok((text, summary.damage.is_empty()))
        }
        Some(Layout::Tables) => Err(directory(
            "it has the tables of an export; its table `events` lists them, and `duckdb -init tables.sql` reads them"
                .to_owned(),
        )),
        None => Err(directory("it is no trace in a layout that is known here".to_owned())),
    }
}

/// A trace in one of the layouts that came before CTF.
fn in_blocks(path: &Path, summary: &blocks::Summary) -> String {
    let blocks::Summary { layout, facts, files, damage } = summary;
    let mut text = format!("{}: {layout}\n", path.display());
    for (name, value) in facts {
        text += &fact(name, value);
    }
    let _ = writeln!(
        text,
        "\nFILES\n{:>24} {:>10} {:>12} {:>12} {:>20} {:>20}",
        "file", "blocks", "block size", "unused", "begin", "end"
    );
    for file in files {
        let blocks::FileSummary { name, blocks, block_size, unused, begin, end } = file;
        let _ = writeln!(
            text,
            "{name:>24} {:>10} {:>12} {:>12} {begin:>20} {end:>20}",
            count(*blocks),
            bytes(*block_size),
            bytes(*unused)
        );
    }
    for damage in damage {
        let _ = writeln!(text, "damaged: {damage}");
    }
    text
}

fn ctf(path: &Path, Summary { traces, left_out, .. }: &Summary) -> String {
    let mut text = traces.iter().map(|of| trace(path, of)).collect::<Vec<_>>().join("\n");
    if *left_out != 0 {
        let _ = writeln!(text, "\n{} more traces, which were not looked at", count(*left_out));
    }
    text
}

/// A line of a table: line feeds in names and values, which anybody may have written, would be others.
fn fact(name: &str, value: &str) -> String {
    format!("  {:<24} {}\n", terminal::name(name), terminal::name(value))
}

fn trace(dir: &Path, trace: &Trace) -> String {
    let Trace { path, version, env, clock_offset_ns, events, recorded, streams, damage } = trace;
    let path = if path.is_empty() { dir.to_owned() } else { dir.join(path) };
    let mut text = format!("{}: Common Trace Format {version}\n", path.display());
    for (name, value) in env {
        text += &fact(name, value);
    }
    let clock = if *clock_offset_ns == 0 {
        "not wall time".to_owned()
    } else {
        format!("{clock_offset_ns} ns before wall time")
    };
    let _ = writeln!(text, "  {:<24} {clock}", "clock");
    let _ = writeln!(text, "  {:<24} {}", "kinds of events", count(events.len() as u64));
    let counted = |events: Option<u64>| events.map_or_else(|| "not counted".to_owned(), count);
    let _ = writeln!(text, "  {:<24} {}", "events", counted(*recorded));
    let cpus: BTreeSet<u32> =
        streams.iter().filter(|stream| stream.packets > 0).map(|stream| stream.cpu).collect();
    let _ = writeln!(text, "  {:<24} {}", "CPUs", cpus.len());
    let _ = writeln!(text, "  {:<24} {}", "lost", count(streams.iter().map(|stream| stream.discarded).sum()));
    let _ = writeln!(
        text,
        "\nSTREAMS\n{:>20} {:>12} {:>10} {:>12} {:>20} {:>20} {:>12}",
        "stream", "events", "packets", "content", "begin", "end", "lost"
    );
    for stream in streams {
        let _ = writeln!(
            text,
            "{:>20} {:>12} {:>10} {:>12} {:>20} {:>20} {:>12}",
            stream.name,
            counted(stream.events),
            count(stream.packets),
            bytes(stream.content_bytes),
            stream.begin,
            stream.end,
            count(stream.discarded)
        );
    }
    for damage in damage {
        let _ = writeln!(text, "damaged: {damage}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_an_environment_are_no_lines() {
        let entry = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let env = vec![entry("hostname", "x\n  lost                     0"), entry("a\nb", "c")];
        let with = trace(Path::new("t"), &Trace { env, ..Trace::default() });
        let without = trace(Path::new("t"), &Trace::default());
        assert_eq!(with.lines().count(), without.lines().count() + 2, "{with}");
        assert_eq!(with.matches("\n  lost ").count(), 1, "{with}");
    }
}
