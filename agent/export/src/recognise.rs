//! Which layout a directory has.

use std::ffi::OsStr;
use std::path::Path;

use rustix::fs::FileType;

use ctf_writer::{KERNEL, traces};
use recording::TABLES;
use stdx::output::Directory;

/// A layout that [`export`](recording::export) writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Layout {
    /// Common Trace Format 1.8: a file `metadata` and streams beside it, or directories with them where LTTng
    /// has the traces of a session, also of its users, processes, chunks and snapshots.
    Ctf,
    /// The layout of LTTng of 2008: `control/facilities_N` and `cpu_N`.
    Lttng2008,
    /// The layout of LTT of 2003: `eventdefs/*.xml`, `control/facilities`, `cpu/N`.
    EventDefs,
    /// Tables: `tables.sql`, and a file for each beside it.
    Tables,
}

/// The layout of a directory; `None` if it is none of them.
pub fn layout(dir: &Path) -> Option<Layout> {
    let dir = Directory::open(dir).ok()?;
    layout_of_export(&dir).or_else(|| traces::has_some(&dir).then_some(Layout::Ctf))
}

/// The layout of a directory that is open, if it has what an export writes: a session that was recorded has
/// more.
fn layout_of_export(dir: &Directory) -> Option<Layout> {
    let is = |dir: &Directory, name: &str, kind: FileType| {
        let there = dir.look(OsStr::new(name)).ok().flatten();
        there.is_some_and(|there| FileType::from_raw_mode(there.st_mode) == kind)
    };
    if traces::is_trace(dir) || dir.open_dir(KERNEL).is_ok_and(|kernel| traces::is_trace(&kernel)) {
        return Some(Layout::Ctf);
    }
    if is(dir, TABLES, FileType::RegularFile) {
        return Some(Layout::Tables);
    }
    let control = dir.open_dir("control").ok()?;
    if is(dir, "eventdefs", FileType::Directory) {
        return Some(Layout::EventDefs);
    }
    let names = control.names().ok()?;
    names.iter().any(|name| name.to_string_lossy().contains("facilities_")).then_some(Layout::Lttng2008)
}

/// Whether a directory that is open has what an export writes.
pub fn is_export(dir: &Directory) -> bool {
    layout_of_export(dir).is_some()
}
