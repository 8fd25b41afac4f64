//! A trace that grows packet by packet, for tests of those who read it meanwhile.
#![allow(
    clippy::unwrap_used,
    clippy::missing_panics_doc,
    clippy::new_without_default,
    reason = "a helper of tests fails the test"
)]

use std::{fs, sync::Arc};

use super::{
    files::{FileLimits, TraceDirectory},
    published::{Publication, Publisher},
    stream::{EventHeader, StreamOptions, StreamWriter},
};
use stdx::output::Directory;

const UUID: [u8; 16] = [7; 16];
/// When all streams begin.
const BEGIN: u64 = 10;

/// The trace.
pub struct Sample {
    root: tempfile::TempDir,
    /// The packets that are published.
    pub publication: Arc<Publication>,
    chunk: u64,
    dir: TraceDirectory,
    streams: Vec<StreamWriter>,
    metadata: u64,
}

impl Sample {
    /// One without streams.
    pub fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let publication = Arc::<Publication>::default();
        publication.begin_chunk(1, Some(1));
        let dir = Self::dir(&root, 1, &publication);
        Self { root, publication, chunk: 1, dir, streams: Vec::new(), metadata: 0 }
    }

    fn dir(root: &tempfile::TempDir, chunk: u64, publication: &Arc<Publication>) -> TraceDirectory {
        let path = root.path().join(chunk.to_string());
        fs::create_dir(&path).unwrap();
        let dir = TraceDirectory::create(&Directory::open(&path).unwrap(), "kernel", true).unwrap();
        dir.published(Some(publication), ("kernel", UUID))
    }

    fn publisher(&self) -> &Publisher {
        self.dir.publisher.as_ref().unwrap()
    }

    /// Adds metadata: packets of four kilobytes with this byte.
    pub fn declare(&mut self, packets: usize, byte: u8) {
        let new = vec![byte; packets << 12];
        self.metadata += new.len() as u64;
        self.publisher().metadata(self.metadata, false, &new);
    }

    /// Adds a stream, whose number it gives.
    pub fn stream(&mut self) -> usize {
        let cpu = self.streams.len() as u32;
        let options = StreamOptions {
            uuid: UUID,
            stream_id: 3,
            instance_id: cpu.into(),
            cpu,
            header: EventHeader::Compact,
            begin: BEGIN,
            packet: 1 << 20,
            limits: FileLimits::default(),
            exact: true,
        };
        self.streams.push(StreamWriter::create(&self.dir, &format!("channel0_{cpu}"), options).unwrap());
        self.streams.len() - 1
    }

    /// Adds a packet with one event of this time and so many bytes.
    pub fn packet(&mut self, stream: usize, time: u64, bytes: usize) {
        let stream = &mut self.streams[stream];
        stream.event(0, time).unwrap().resize(bytes + 128, 0x5a);
        stream.flush().unwrap();
    }

    /// Nothing comes in any stream from before this time.
    pub fn silence(&mut self, until: u64) {
        self.streams.iter_mut().for_each(|stream| stream.tell_silence(until, false).unwrap());
    }

    /// Goes on in the next chunk.
    pub fn rotate(&mut self) {
        self.publication.close_chunk(Some(self.chunk));
        self.chunk += 1;
        self.publication.begin_chunk(self.chunk, Some(self.chunk));
        self.dir = Self::dir(&self.root, self.chunk, &self.publication);
        self.streams.iter_mut().for_each(|stream| stream.move_to(&self.dir).unwrap());
    }

    /// Removes the files of a chunk.
    pub fn remove(&self, chunk: u64) {
        fs::remove_dir_all(self.root.path().join(chunk.to_string())).unwrap();
    }
}
