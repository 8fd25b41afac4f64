//! Which layout a directory has.

use std::ffi::OsStr;
use std::io::Read as _;
use std::path::Path;

use rustix::fs::FileType;

use ctf_writer::{KERNEL, METADATA, names_export, traces};
use recording::TABLES;
use stdx::output::Directory;

/// Bytes of a file in which the name of its writer is looked for: it is near the beginning.
const MOST_READ: u64 = 1 << 20;

/// How the file that describes tables begins.
const TABLES_MARK: &[u8] = b"-- Written by tracer-agent";

/// A layout that [`export`](recording::export) writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Layout {
    /// Common Trace Format 1.8 or 2: a file `metadata` and streams beside it, or directories with them where
    /// LTTng has the traces of a session, also of its users, processes, chunks and snapshots.
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

/// Whether a directory that is open is one that [`export`](recording::export) wrote: its layout is one of
/// those above, and the file that describes the rest names its writer. The layout of 2008 has no place for a
/// name; nothing but its own files may be in there.
pub fn is_export(dir: &Directory) -> bool {
    let text_of = |dir: &Directory, file: &str| {
        let mut text = Vec::new();
        let read = dir.open_file(file).and_then(|file| file.take(MOST_READ).read_to_end(&mut text));
        read.is_ok().then_some(text)
    };
    let has_mark = |dir: &Directory, file: &str, mark: &[u8]| {
        text_of(dir, file).is_some_and(|text| text.windows(mark.len()).any(|found| found == mark))
    };
    match layout_of_export(dir) {
        Some(Layout::Ctf) => [Some(dir.clone()), dir.open_dir(KERNEL).ok()]
            .iter()
            .flatten()
            .any(|trace| text_of(trace, METADATA).is_some_and(|text| names_export(&text))),
        Some(Layout::Tables) => text_of(dir, TABLES).is_some_and(|text| text.starts_with(TABLES_MARK)),
        Some(Layout::EventDefs) => {
            dir.open_dir("info").is_ok_and(|info| has_mark(&info, "system.xml", b"by tracer-agent "))
        }
        Some(Layout::Lttng2008) => dir.names().is_ok_and(|names| {
            let is_numbered =
                |name: &str| name.rsplit_once('_').is_some_and(|(_, number)| number.parse::<u32>().is_ok());
            names.iter().all(|name| name.to_str().is_some_and(|name| name == "control" || is_numbered(name)))
        }),
        None => false,
    }
}
