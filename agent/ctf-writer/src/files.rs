//! The files of a stream: packets one after the other, and the index that finds them. A stream with a size
//! limit has several, of which the oldest give way.

use std::{fs::File, io::Write as _, path::PathBuf};

use serde::{Deserialize, Serialize};

use std::sync::Arc;

use super::published::{Publication, Publisher};
use recording::ExportError;
use recording::staging::{create_dir, create_file};
use stdx::output::Directory;

/// First word of an index.
const INDEX_MAGIC: u32 = 0xc1f1_dcc1;
/// Bytes of an index entry: 9 words of 64 bits.
pub(super) const INDEX_ENTRY: u32 = 72;

/// Bytes before the first of them.
pub(super) const INDEX_HEAD: u64 = 16;

/// How large the files of a stream become, as LTTng limits them (lttng-enable-channel(1)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileLimits {
    /// Bytes of a file, at most. The packet that would not fit goes to the next one, whose name has the next
    /// number.
    pub size: Option<u64>,
    /// How many files there are at most. Then the oldest is replaced. It needs a size.
    pub count: Option<u64>,
    /// The receiver of the packets applies these limits; here each stream has one file.
    #[serde(default)]
    pub is_elsewhere: bool,
}

impl FileLimits {
    /// Those of the files here.
    fn here(self) -> Self {
        if self.is_elsewhere { Self::default() } else { self }
    }
}

/// The directory of a trace, with that of its indexes.
#[derive(Clone, Debug)]
pub(super) struct TraceDirectory {
    pub(super) kernel: Directory,
    index: Directory,
    /// Whether streams have indexes; those of LTTng's snapshots have none.
    indexed: bool,
    /// Who tells others what is written.
    pub(super) publisher: Option<Publisher>,
}

impl TraceDirectory {
    /// Creates it in a directory, with that of the indexes.
    pub(super) fn create(dir: &Directory, name: &str, indexed: bool) -> Result<Self, ExportError> {
        Self::within(create_dir(dir, name)?, indexed)
    }

    /// Makes an empty directory that of a trace.
    pub(super) fn within(kernel: Directory, indexed: bool) -> Result<Self, ExportError> {
        let index = create_dir(&kernel, "index")?;
        Ok(Self { kernel, index, indexed, publisher: None })
    }

    /// The same of a trace of which others are told, with its path in its chunk and its UUID.
    pub(super) fn published(
        self,
        publication: Option<&Arc<Publication>>,
        (path, uuid): (&str, [u8; 16]),
    ) -> Self {
        let publisher = publication.map(|of| Publisher::of(of, (path, uuid), &self.kernel));
        Self { publisher, ..self }
    }
}

/// A packet in the index.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) content_bits: u64,
    pub(super) begin: u64,
    pub(super) end: u64,
    pub(super) discarded: u64,
    pub(super) stream: u64,
    pub(super) instance: u64,
    pub(super) sequence: u64,
}

/// Where the packets of a stream go.
#[derive(Debug)]
pub(super) struct StreamFiles {
    dir: TraceDirectory,
    name: String,
    /// The stream's class, and which one of it.
    id: (u32, u64),
    /// Those that others are told of.
    told: FileLimits,
    limits: FileLimits,
    /// Its number for those who are told of it.
    published: Option<u64>,
    /// How many files there were before this one.
    before: u64,
    data: File,
    path: PathBuf,
    index: Option<(File, PathBuf)>,
    /// Bytes of packets in this file.
    written: u64,
    /// How many they are.
    packets: u64,
}

impl StreamFiles {
    /// Creates the first file and its index.
    pub(super) fn create(
        dir: &TraceDirectory,
        (name, id): (&str, (u32, u64)),
        told: FileLimits,
    ) -> Result<Self, ExportError> {
        let limits = told.here();
        let file = file_name(name, limits, 0);
        let (data, path, index) = open(dir, &file)?;
        let (name, dir) = (name.to_owned(), dir.clone());
        let mut files = Self {
            dir,
            name,
            id,
            told,
            limits,
            published: None,
            before: 0,
            data,
            path,
            index,
            written: 0,
            packets: 0,
        };
        files.publish(&file);
        Ok(files)
    }

    /// Tells of a file that was created.
    fn publish(&mut self, file: &str) {
        let Self { dir: TraceDirectory { kernel, index, publisher, .. }, name, id, told, .. } = self;
        let stream = (name.as_str(), id.0, id.1, *told);
        let publish = |of: &mut Publisher| of.file(stream, ([&*kernel, &*index], file));
        self.published = publisher.as_mut().map(publish);
    }

    /// Tells that no event from before this time comes any more.
    pub(super) fn tell_silence(&self, until: u64) {
        if let (Some(publisher), Some(stream)) = (&self.dir.publisher, self.published) {
            publisher.silent(stream, until);
        }
    }

    /// Goes on in another directory, with the first file there.
    pub(super) fn move_to(&mut self, dir: &TraceDirectory) -> Result<(), ExportError> {
        *self = Self::create(dir, (&self.name, self.id), self.told)?;
        Ok(())
    }

    /// Writes a packet, and then its entry: an index never has what is not there. If it cannot be written,
    /// nothing is left of it.
    pub(super) fn put(&mut self, packet: &[u8], entry: Entry) -> Result<(), ExportError> {
        let size = packet.len() as u64;
        let is_full = self.limits.size.is_some_and(|limit| self.written.saturating_add(size) > limit);
        if is_full && self.written != 0 {
            self.next_file()?;
        }
        let written = self.write(packet, entry);
        if written.is_err() {
            // What cuts a file frees space, so that it works on a full disk, too.
            let _ = self.data.set_len(self.written);
            if let Some((index, _)) = &self.index {
                let _ = index.set_len(INDEX_HEAD + self.packets * u64::from(INDEX_ENTRY));
            }
        } else {
            self.written += size;
            self.packets += 1;
            if let (Some(publisher), Some(stream)) = (&self.dir.publisher, self.published) {
                publisher.packet(stream, size);
            }
        }
        written
    }

    fn write(&mut self, packet: &[u8], entry: Entry) -> Result<(), ExportError> {
        let size = packet.len() as u64;
        self.data.write_all(packet).map_err(ExportError::io("write", &self.path))?;
        if let Some((index, path)) = &mut self.index {
            let Entry { content_bits, begin, end, discarded, stream, instance, sequence } = entry;
            let words =
                [self.written, size * 8, content_bits, begin, end, discarded, stream, instance, sequence];
            let bytes: Vec<u8> = words.into_iter().flat_map(u64::to_be_bytes).collect();
            index.write_all(&bytes).map_err(ExportError::io("write", &*path))?;
        }
        Ok(())
    }

    fn next_file(&mut self) -> Result<(), ExportError> {
        self.before += 1;
        let number = self.limits.count.map_or(self.before, |count| self.before % count.max(1));
        let name = file_name(&self.name, self.limits, number);
        if self.limits.count.is_some_and(|count| self.before >= count) {
            let gone = |dir: &Directory, name: &str| match dir.remove(name) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    Err(ExportError::io("remove", dir.join(name))(error))
                }
                _ => Ok(()),
            };
            if let (Some(publisher), Some(stream)) = (&self.dir.publisher, self.published) {
                publisher.replaced(stream, &name);
            }
            // Whoever reads meanwhile finds no index of packets that are not there.
            gone(&self.dir.index, &index_name(&name))?;
            gone(&self.dir.kernel, &name)?;
        }
        (self.data, self.path, self.index) = open(&self.dir, &name)?;
        (self.written, self.packets) = (0, 0);
        self.publish(&name);
        Ok(())
    }
}

fn file_name(stream: &str, limits: FileLimits, number: u64) -> String {
    if limits.size.is_some() { format!("{stream}_{number}") } else { stream.to_owned() }
}

pub(super) fn index_name(file: &str) -> String {
    format!("{file}.idx")
}

type Opened = (File, PathBuf, Option<(File, PathBuf)>);

fn open(dir: &TraceDirectory, name: &str) -> Result<Opened, ExportError> {
    let (data, path) = create_file(&dir.kernel, name)?;
    let index = dir.indexed.then(|| {
        let (mut index, path) = create_file(&dir.index, &index_name(name))?;
        let head: Vec<u8> = [INDEX_MAGIC, 1, 1, INDEX_ENTRY].into_iter().flat_map(u32::to_be_bytes).collect();
        index.write_all(&head).map_err(ExportError::io("write", &path))?;
        Ok::<_, ExportError>((index, path))
    });
    Ok((data, path, index.transpose()?))
}
