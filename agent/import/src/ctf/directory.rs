//! The traces of a directory, and their files.

use std::collections::HashMap;
use std::ffi::OsString;
use std::io::Read as _;
use std::path::Path;

use super::error::CtfError;
use super::schema::Trace;
use super::stream::StreamFile;
use super::text::Metadata;
use super::{fragments, text, tsdl};
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
    /// Which of the traces it is a part of, by their order.
    pub(crate) number: usize,
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
/// taken if there is one, in all its chunks; `with_user_space`, those of user space are taken behind it.
pub(crate) fn open(path: &Path, with_user_space: bool) -> Result<Parts, CtfError> {
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
    let taken: Vec<Vec<Found>> = match (kernel.is_empty(), with_user_space) {
        (true, _) => vec![others],
        (false, true) => vec![kernel, others],
        (false, false) => vec![kernel],
    };
    let mut parts = Vec::new();
    for of_domain in taken {
        let first = parts.len();
        for found in of_domain {
            parts.push(Part::open(found)?);
        }
        let is_of_kernel = first == 0 && parts.iter().any(Part::is_of_kernel);
        let may_be_several = with_user_space && !is_of_kernel;
        join(path, parts.get_mut(first..).unwrap_or_default(), (first, may_be_several))?;
    }
    if parts.is_empty() {
        return Err(CtfError::NoTrace { path: path.to_owned() });
    }
    let beside = total.saturating_sub(parts.len() as u64);
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

/// Numbers the traces that parts are of, from `first` on. Fails for those that are no parts of one, unless
/// there may be several, and for parts that may have the same events.
fn join(path: &Path, parts: &mut [Part], (first, may_be_several): (usize, bool)) -> Result<(), CtfError> {
    let count = parts.len();
    let mut known: HashMap<String, usize> = HashMap::new();
    for index in 0..count {
        let (before, rest) = parts.split_at_mut(index);
        let Some(part) = rest.first_mut() else { break };
        part.number = first + index;
        let several = |other: &Part, what| {
            let (first, second) = (other.path.clone(), part.path.clone());
            Err(CtfError::Several { path: path.to_owned(), count, first, second, what })
        };
        let identity = part.trace.identity.as_ref();
        let same = identity.and_then(|of| known.get(of)).and_then(|of| before.get(*of));
        match (same, before.first()) {
            (Some(other), _) if is_snapshot(&other.path) || is_snapshot(&part.path) => {
                return several(other, "the moment of a snapshot, and may have the same events");
            }
            (Some(other), _) => part.number = other.number,
            (None, Some(other)) if !may_be_several => return several(other, "their UUIDs"),
            (None, _) => {
                known.extend(identity.map(|of| (of.clone(), index)));
            }
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
        drop(bytes);
        let trace = match text {
            Metadata::Tsdl(text) => {
                tsdl::parse(&text).map_err(|source| CtfError::Metadata { path: metadata, source })
            }
            Metadata::Fragments(text) => {
                fragments::parse(&text).map_err(|source| CtfError::Fragment { path: metadata, source })
            }
        }?;
        let mut files = dir.names().map_err(CtfError::io("list", dir.path()))?;
        // Directories are told from files where they are opened.
        files.retain(|name| name != METADATA && !name.as_encoded_bytes().starts_with(b"."));
        files.sort();
        Ok(Self { path, dir, trace, number: 0, files })
    }

    /// Whether its place is that of the kernel's trace.
    fn is_of_kernel(&self) -> bool {
        self.path.rsplit('/').next() == Some(KERNEL)
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
