//! What is in a directory in this layout, by its metadata and its packets. Events are counted, not decoded.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::super::ExportError;
use super::shape::{self, StreamShape};
use super::{metadata, stream};

/// Longest metadata that are read.
const MAX_METADATA: u64 = 256 << 20;
/// Longest packet whose events are counted. Ours have 1 MiB and a record at most, LTTng's what a user chose.
const MAX_PACKET: u64 = 64 << 20;

/// A trace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// Names and values of the block `env`.
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

/// Looks into a directory: itself, or its `kernel`.
///
/// # Errors
/// It has no metadata, or they cannot be read.
pub fn read(dir: &Path) -> Result<Summary, ExportError> {
    let kernel = dir.join("kernel");
    let dir = if kernel.join("metadata").is_file() { kernel } else { dir.to_owned() };
    let path = dir.join("metadata");
    let len = fs::metadata(&path).map_err(ExportError::io("look at", &path))?.len();
    if len > MAX_METADATA {
        return Err(ExportError::Unsupported(format!(
            "{} has {len} bytes: that is no metadata",
            path.display()
        )));
    }
    let bytes = fs::read(&path).map_err(ExportError::io("read", &path))?;
    let text = metadata::unpack(&bytes).ok_or_else(|| {
        ExportError::Unsupported(format!("{} is damaged, or no metadata of CTF 1.8", path.display()))
    })?;
    let mut summary = of_text(&text);
    let shapes = shape::of_text(&text);
    let entries = fs::read_dir(&dir).map_err(ExportError::io("read", &dir))?;
    let mut files: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    files.sort();
    for path in files.iter().filter(|path| path.is_file() && path.file_name() != Some("metadata".as_ref())) {
        let mut stream = Stream {
            name: path.file_name().unwrap_or_default().to_string_lossy().into_owned(),
            ..Stream::default()
        };
        if let Err(error) = packets(path, shapes.as_deref(), &mut stream) {
            summary.damage.push(format!("{}: {error}", stream.name));
        }
        summary.streams.push(stream);
    }
    summary.recorded = summary.streams.iter().map(|stream| stream.events).sum();
    Ok(summary)
}

fn packets(path: &Path, shapes: Option<&[StreamShape]>, stream: &mut Stream) -> io::Result<()> {
    let file = File::open(path)?;
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

/// What a line of the text says is enough to know; whoever wants all of it takes a reader of CTF.
fn of_text(text: &str) -> Summary {
    let mut summary = Summary::default();
    let mut block = "";
    for line in text.lines() {
        if !line.starts_with(char::is_whitespace) {
            block = line.split_whitespace().next().unwrap_or_default();
            continue;
        }
        let Some((name, value)) = line.trim().trim_end_matches(';').split_once(" = ") else { continue };
        let value = value.trim_matches('"');
        match (block, name) {
            ("env", name) => summary.env.push((name.to_owned(), value.to_owned())),
            ("clock", "offset") => summary.clock_offset_ns = value.parse().unwrap_or(0),
            ("event", "name") => summary.events.push(value.to_owned()),
            _ => {}
        }
    }
    summary
}
