//! What is in a directory that is an export.

use std::fmt::Write as _;
use std::path::Path;

use super::InfoError;
use crate::cli::units::{bytes, count};
use crate::export::ctf::summary::{self, Summary};
use crate::export::recognise::{self, Layout};

/// Tells of a directory, and whether it is whole.
pub(super) fn report(path: &Path, json: bool) -> Result<(String, bool), InfoError> {
    let directory = |reason: String| InfoError::Directory { path: path.to_owned(), reason };
    match recognise::layout(path) {
        Some(Layout::Ctf) => {
            let summary = summary::read(path).map_err(|error| directory(error.to_string()))?;
            let text = if json {
                serde_json::to_string(&summary).map_err(|error| directory(error.to_string()))?
            } else {
                ctf(path, &summary)
            };
            Ok((text, summary.damage.is_empty()))
        }
        Some(Layout::Lttng2008) => Ok((format!("{}: a trace of LTTng of 2008\n", path.display()), true)),
        Some(Layout::EventDefs) => Ok((format!("{}: a trace of LTT of 2003\n", path.display()), true)),
        None => Err(directory("it is no trace in a layout that is known here".to_owned())),
    }
}

fn ctf(path: &Path, summary: &Summary) -> String {
    let Summary { env, clock_offset_ns, events, streams, damage } = summary;
    let mut text = format!("{}: Common Trace Format 1.8\n", path.display());
    for (name, value) in env {
        let _ = writeln!(text, "  {name:<24} {value}");
    }
    let clock = if *clock_offset_ns == 0 {
        "not wall time".to_owned()
    } else {
        format!("{clock_offset_ns} ns before wall time")
    };
    let _ = writeln!(text, "  {:<24} {clock}", "clock");
    let _ = writeln!(text, "  {:<24} {}", "kinds of events", count(events.len() as u64));
    let _ = writeln!(
        text,
        "\nSTREAMS\n{:>20} {:>10} {:>12} {:>20} {:>20} {:>12}",
        "stream", "packets", "content", "begin", "end", "lost"
    );
    for stream in streams {
        let _ = writeln!(
            text,
            "{:>20} {:>10} {:>12} {:>20} {:>20} {:>12}",
            stream.name,
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
