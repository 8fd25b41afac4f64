//! What is in a directory in this layout, by its metadata and its packets. Events are counted, not decoded.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use rustix::fs::FileType;
use serde::Serialize;

use super::shape::StreamShape;
use super::traces::{self, Found};
use super::{METADATA, metadata, stream};
use recording::ExportError;
use stdx::output::Directory;
use tracedat::provenance;

/// Longest metadata that are read, of all traces together.
const MAX_METADATA: u64 = 256 << 20;
/// Longest packet whose events are counted. Ours have 1 MiB and a record at most, LTTng's what a user chose.
const MAX_PACKET: u64 = 64 << 20;

/// A directory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Summary {
    /// The traces in it.
    pub traces: Vec<Trace>,
    /// How many more there are, which were not looked at.
    pub left_out: u64,
}

/// A trace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Trace {
    /// Its path in the directory; empty if it is that itself.
    pub path: String,
    /// The version of CTF that its metadata are in: `1.8` or `2`.
    pub version: &'static str,
    /// Names and values of the environment.
    pub env: Vec<(String, String)>,
    /// Nanoseconds from 1970 to the clock's zero; 0 if unknown.
    pub clock_offset_ns: u64,
    /// Names of the events that are declared.
    pub events: Vec<String>,
    /// Events in all streams; `None` if the metadata have types that are not understood here.
    pub recorded: Option<u64>,
    /// The streams, by name.
    pub streams: Vec<Stream>,
    /// What could not be read.
    pub damage: Vec<String>,
}

/// A stream: a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Stream {
    /// Name of the file: channel and CPU.
    pub name: String,
    /// The CPU that its packets are of.
    pub cpu: u32,
    /// Its packets.
    pub packets: u64,
    /// Its events; `None` if they cannot be counted.
    pub events: Option<u64>,
    /// Bytes of the file.
    pub bytes: u64,
    /// Bytes of headers and events.
    pub content_bytes: u64,
    /// When its first packet begins, by the clock.
    pub begin: u64,
    /// When its last packet ends.
    pub end: u64,
    /// Events that were lost.
    pub discarded: u64,
}

impl Summary {
    /// Whether all of it could be read.
    pub fn is_whole(&self) -> bool {
        self.traces.iter().all(|trace| trace.damage.is_empty())
    }
}

/// Looks into a directory: at the trace that it is, or at all that it has where LTTng has those of a session.
/// Of several traces, one that cannot be read is damaged.
///
/// # Errors
/// It has no trace, or only one, which cannot be read.
pub fn read(dir: &Path) -> Result<Summary, ExportError> {
    let failed = || ExportError::io("look into", dir);
    let found = Directory::open(dir).and_then(|dir| traces::find(&dir)).map_err(failed())?;
    let is_only = found.found.len() == 1;
    let mut summary = Summary { traces: Vec::new(), left_out: found.left_out };
    let mut room = MAX_METADATA;
    for Found { path, dir } in found.found {
        let (trace, len) = match trace(&dir, room) {
            Ok(Some(read)) => read,
            Ok(None) if !is_only => {
                summary.left_out += 1;
                continue;
            }
            Ok(None) => {
                let path = dir.join(METADATA).display().to_string();
                return Err(ExportError::Unsupported(format!("{path} is too long for metadata")));
            }
            Err(error) if is_only => return Err(error),
            Err(error) => (Trace { damage: vec![error.to_string()], ..Trace::default() }, 0),
        };
        room -= len;
        summary.traces.push(Trace { path, ..trace });
    }
    if summary.traces.is_empty() {
        return Err(ExportError::Unsupported(format!("{} has no trace", dir.display())));
    }
    Ok(summary)
}

/// Looks at a trace, if its metadata have `room` bytes at most. Gives how many they have, too.
fn trace(dir: &Directory, room: u64) -> Result<Option<(Trace, u64)>, ExportError> {
    let failed = || ExportError::io("read", dir.join(METADATA));
    let file = dir.open_file(METADATA).map_err(failed())?;
    let mut bytes = Vec::new();
    // It may grow meanwhile.
    let len = file.take(room + 1).read_to_end(&mut bytes).map_err(failed())? as u64;
    if len > room {
        return Ok(None);
    }
    let (mut trace, shapes) = metadata::read(&bytes).ok_or_else(|| {
        let path = dir.join(METADATA);
        ExportError::Unsupported(format!("{} is damaged, or no metadata of CTF 1.8 or 2", path.display()))
    })?;
    let mut names = dir.names().map_err(ExportError::io("read", dir.path()))?;
    names.sort();
    for name in names.into_iter().filter(|name| name != METADATA) {
        let kind = dir.look(&name).ok().flatten().map(|there| FileType::from_raw_mode(there.st_mode));
        if kind.is_none_or(|kind| kind == FileType::Directory) {
            continue;
        }
        let mut stream = Stream { name: name.to_string_lossy().into_owned(), ..Stream::default() };
        let read = dir.open_file(&name).and_then(|file| packets(&file, shapes.as_deref(), &mut stream));
        if let Err(error) = read {
            trace.damage.push(format!("{}: {error}", stream.name));
        }
        trace.streams.push(stream);
    }
    trace.recorded = trace.streams.iter().map(|stream| stream.events).sum();
    Ok(Some((trace, len)))
}

fn packets(file: &File, shapes: Option<&[StreamShape]>, stream: &mut Stream) -> io::Result<()> {
    stream.events = shapes.map(|_| 0);
    let mut content = Vec::new();
    stream.bytes = file.metadata()?.len();
    let mut at = 0;
    while at < stream.bytes {
        let mut prefix = [0; stream::PREFIX];
        file.read_exact_at(&mut prefix, at)?;
        let damaged = || io::Error::new(io::ErrorKind::InvalidData, format!("no packet at byte {at}"));
        let packet = stream::Prefix::parse(&prefix).ok_or_else(damaged)?;
        let left = stream.bytes - at;
        if packet.size < stream::PREFIX as u64 || packet.size > left || packet.content > packet.size {
            return Err(damaged());
        }
        if stream.packets == 0 {
            stream.begin = packet.begin;
            stream.cpu = packet.cpu;
        }
        let shape = shapes.and_then(|shapes| shapes.get(packet.stream as usize));
        if let Some(shape) = shape.filter(|_| packet.content <= MAX_PACKET) {
            content.resize(packet.content as usize, 0);
            file.read_exact_at(&mut content, at)?;
            let count = shape.count(&content).ok_or_else(|| {
                io::Error::new(
                    io::ErrorKind::InvalidData,
                    format!("the events of the packet at byte {at} make no sense"),
                )
            })?;
            stream.events = stream.events.map(|events| events + count);
        } else {
            stream.events = None;
        }
        stream.packets += 1;
        stream.content_bytes += packet.content;
        stream.end = packet.end;
        stream.discarded = packet.discarded;
        at += packet.size;
    }
    Ok(())
}

impl Trace {
    /// Takes what the environment has, but for what importers read.
    pub(super) fn take_env(&mut self, env: impl IntoIterator<Item = (String, String)>) {
        self.env.extend(env.into_iter().filter(|(name, _)| !name.starts_with(provenance::PREFIX)));
    }
}

/// What a line of the text says is enough to know; whoever wants all of it takes a reader of CTF.
pub(super) fn of_text(text: &str) -> Trace {
    let mut trace = Trace { version: "1.8", ..Trace::default() };
    let mut block = "";
    for line in text.lines() {
        if !line.starts_with(char::is_whitespace) {
            block = line.split_whitespace().next().unwrap_or_default();
            continue;
        }
        let Some((name, value)) = line.trim().trim_end_matches(';').split_once(" = ") else { continue };
        let value = value.trim_matches('"');
        match (block, name) {
            ("env", name) => trace.take_env([(name.to_owned(), value.to_owned())]),
            ("clock", "offset") => trace.clock_offset_ns = value.parse().unwrap_or(0),
            ("event", "name") => trace.events.push(value.to_owned()),
            _ => {}
        }
    }
    trace
}
