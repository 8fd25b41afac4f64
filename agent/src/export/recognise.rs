//! Which layout a directory has.

use std::fs;
use std::path::Path;

/// A layout that [`export`](super::export) writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Layout {
    /// Common Trace Format 1.8: a file `metadata` and streams beside it, or a directory `kernel` with them as LTTng makes it.
    Ctf,
    /// The layout of LTTng of 2008: `control/facilities_N` and `cpu_N`.
    Lttng2008,
    /// The layout of LTT of 2003: `eventdefs/*.xml`, `control/facilities`, `cpu/N`.
    EventDefs,
}

/// The layout of a directory; `None` if it is none of them.
pub fn layout(dir: &Path) -> Option<Layout> {
    if dir.join("metadata").is_file() || dir.join("kernel/metadata").is_file() {
        return Some(Layout::Ctf);
    }
    if dir.join("eventdefs").is_dir() && dir.join("control").is_dir() {
        return Some(Layout::EventDefs);
    }
    let mut control = fs::read_dir(dir.join("control")).ok()?;
    let facilities = |entry: std::io::Result<fs::DirEntry>| {
        entry.is_ok_and(|entry| entry.file_name().to_string_lossy().contains("facilities_"))
    };
    control.any(facilities).then_some(Layout::Lttng2008)
}

/// Whether a directory is empty.
pub(super) fn is_empty(dir: &Path) -> bool {
    fs::read_dir(dir).is_ok_and(|mut entries| entries.next().is_none())
}
