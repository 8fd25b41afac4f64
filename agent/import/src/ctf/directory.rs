//! The traces of a directory, and their files.

use std::ffi::OsString;
use std::io::Read as _;
use std::path::Path;

use super::error::CtfError;
use super::schema::Trace;
use super::stream::StreamFile;
use super::{text, tsdl};
use ctf_writer::traces;
use ctf_writer::traces::Found;
use stdx::output::Directory;

/// The most bytes of metadata. Those of all events that a kernel has are about one megabyte.
const METADATA_MAX: u64 = 64 << 20;
/// The name of their file.
const METADATA: &str = "metadata";
/// What the directory of the kernel's trace is called.
const KERNEL: &str = "kernel";

/// How deep traces are looked for below a directory that has none.
const DEPTH_MAX: u32 = 4;
/// How deep the traces of a session are in it: `archives/CHUNK/ust/uid/UID/64-bit`.
const LAYOUT_DEPTH: u32 = 6;
/// How many recordings are found there at most: one is read.
const SESSIONS_MAX: usize = 1 << 10;

/// A trace of a directory.
#[derive(Debug)]
pub(crate) struct Part {
    /// Its path in the directory that was named; empty for that itself.
    pub(crate) path: String,
    dir: Directory,
    pub(crate) trace: Trace,
    /// The files of its streams, in the order of their names.
    pub(crate) files: Vec<OsString>,
}

/// The traces of a directory that are imported together.
#[derive(Debug)]
pub(crate) struct Parts {
    /// The parts in time, of which those of archives come first. At least one.
    pub(crate) parts: Vec<Part>,
    /// How many other traces are in the directory, as those of user space beside that of the kernel.
    pub(crate) beside: u64,
}

/// Opens the traces of a directory: a trace itself, or what LTTng has of a session. That of the kernel is
/// taken if there is one, in all its chunks.
pub(crate) fn open(path: &Path) -> Result<Parts, CtfError> {
    let dir = Directory::open(path).map_err(CtfError::io("open", path))?;
    let failed = || CtfError::io("look for traces in", path);
    let mut all = traces::find(&dir).map_err(failed())?.found;
    let total = count(&dir, DEPTH_MAX + LAYOUT_DEPTH).map_err(failed())?;
    if all.is_empty() {
        // A session in a directory of its own, as those of a host are, or those that babeltrace2 writes.
        let mut sessions = Vec::new();
        below(&dir, "", DEPTH_MAX, &mut sessions).map_err(failed())?;
        if let [first, second, ..] = &sessions[..] {
            let (first, second) = (first.0.clone(), second.0.clone());
            let what = "the recordings that they are of";
            return Err(CtfError::Several {
                path: path.to_owned(),
                count: sessions.len(),
                first,
                second,
                what,
            });
        }
        all = sessions.pop().map(|(_, found)| found).unwrap_or_default();
    }
    let (kernel, others): (Vec<Found>, Vec<Found>) = all.into_iter().partition(|found| {
        found.path.is_empty() || found.path.rsplit('/').next().is_some_and(|name| name == KERNEL)
    });
    let taken = if kernel.is_empty() { others } else { kernel };
    let beside = total.saturating_sub(taken.len() as u64);
    let parts = taken.into_iter().map(Part::open).collect::<Result<Vec<_>, _>>()?;
    if parts.is_empty() {
        return Err(CtfError::NoTrace { path: path.to_owned() });
    }
    check(path, &parts)?;
    Ok(Parts { parts, beside })
}

/// Finds the directories below that have traces of their own, with these traces.
fn below(
    dir: &Directory,
    path: &str,
    depth: u32,
    found: &mut Vec<(String, Vec<Found>)>,
) -> std::io::Result<()> {
    if depth == 0 || found.len() >= SESSIONS_MAX {
        return Ok(());
    }
    let mut names = dir.names()?;
    names.sort();
    for name in names {
        let Ok(inner) = dir.open_dir(&name) else { continue };
        let separator = if path.is_empty() { "" } else { "/" };
        let path = format!("{path}{separator}{}", name.to_string_lossy());
        let traces = traces::find(&inner)?.found;
        if traces.is_empty() {
            below(&inner, &path, depth - 1, found)?;
        } else {
            let of = |found: Found| Found { path: format!("{path}/{}", found.path), dir: found.dir };
            let traces = traces.into_iter().map(of).collect();
            found.push((path, traces));
        }
    }
    Ok(())
}

/// How many traces there are in a directory and below.
fn count(dir: &Directory, depth: u32) -> std::io::Result<u64> {
    let mut total = u64::from(traces::is_trace(dir));
    if depth == 0 {
        return Ok(total);
    }
    for name in dir.names()? {
        // What cannot be opened is none that could be imported.
        let Ok(inner) = dir.open_dir(&name) else { continue };
        total += count(&inner, depth - 1).unwrap_or(0);
    }
    Ok(total)
}

/// Fails for traces that are no parts of one.
fn check(path: &Path, parts: &[Part]) -> Result<(), CtfError> {
    let Some((first, others)) = parts.split_first() else { return Ok(()) };
    let several = |other: &Part, what| {
        let (first, second) = (first.path.clone(), other.path.clone());
        Err(CtfError::Several { path: path.to_owned(), count: parts.len(), first, second, what })
    };
    for other in others {
        if first.trace.uuid.is_none() || other.trace.uuid != first.trace.uuid {
            return several(other, "their UUIDs");
        }
        if is_snapshot(&first.path) || is_snapshot(&other.path) {
            return several(other, "the moment of a snapshot, and may have the same events");
        }
    }
    Ok(())
}

/// Whether a part is in a directory that LTTng names as a snapshot: `NAME-DATE-TIME-NUMBER`. Chunks begin
/// with `DATET`, and closed ones are in `archives`.
fn is_snapshot(path: &str) -> bool {
    let Some(first) = path.rsplit('/').nth(1) else { return false };
    let is_chunk = first.get(8..9) == Some("T");
    traces::is_part(first) && !is_chunk
}

impl Part {
    fn open(found: Found) -> Result<Self, CtfError> {
        let Found { path, dir } = found;
        let metadata = dir.join(METADATA);
        let file = dir.open_file(METADATA).map_err(CtfError::io("open", &metadata))?;
        let len = file.metadata().map_err(CtfError::io("look at", &metadata))?.len();
        if len > METADATA_MAX {
            return Err(CtfError::MetadataSize { path: metadata, len, most: METADATA_MAX });
        }
        let mut bytes = Vec::new();
        file.take(METADATA_MAX).read_to_end(&mut bytes).map_err(CtfError::io("read", &metadata))?;
        let text = match text::text(&bytes) {
            Ok(text) => text,
            Err(source) => return Err(CtfError::Text { path: metadata, source }),
        };
        let trace = match tsdl::parse(&text) {
            Ok(trace) => trace,
            Err(source) => return Err(CtfError::Metadata { path: metadata, source }),
        };
        let mut files = dir.names().map_err(CtfError::io("list", dir.path()))?;
        // Directories are told from files where they are opened.
        files.retain(|name| name != METADATA && !name.as_encoded_bytes().starts_with(b"."));
        files.sort();
        Ok(Self { path, dir, trace, files })
    }

    /// Opens a file of a stream; `None` for what is none: a directory, or an empty file.
    pub(crate) fn file(&self, name: &OsString) -> Result<Option<StreamFile>, CtfError> {
        let path = self.dir.join(name);
        let there = self.dir.look(name).map_err(CtfError::io("look at", &path))?;
        let is_file = there.is_some_and(|there| {
            rustix::fs::FileType::from_raw_mode(there.st_mode) == rustix::fs::FileType::RegularFile
        });
        if !is_file {
            return Ok(None);
        }
        let file = self.dir.open_file(name).map_err(CtfError::io("open", &path))?;
        let file = StreamFile::new(file, path)?;
        Ok((file.len() > 0).then_some(file))
    }
}
