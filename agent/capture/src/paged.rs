//! The pages of a recording that goes on, CPU by CPU, for whoever sends them elsewhere.
//!
//! It reads the recording's spool as everybody does who follows it, so that whoever takes the pages slowly
//! costs the recording nothing: what was not taken waits in the spool.

use std::{collections::VecDeque, fs::File};

use super::{
    StreamId,
    follow::{FollowError, Follower, Progress},
    segment::CHUNK_MAX,
    symbols,
};
use ftrace_event::Cmdlines;
use report::TraceFile;
use tracedat::reader::{Corrections, LiveRecords as _, Reader};
use tracedat::{BLOCK_HEADER_LEN, Codec, Compression, Decompressor};

/// Pages of a CPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pages {
    /// The CPU.
    pub cpu: u32,
    /// Whole pages, the oldest first.
    pub bytes: Vec<u8>,
}

/// Gives the pages of a recording of one file and one channel, which neither overwrites nor has a size limit.
#[derive(Debug)]
pub struct PageFeed {
    follower: Follower,
    head: TraceFile<Vec<u8>>,
    decompressor: Decompressor,
    /// Chunks that were read and not given.
    ready: VecDeque<(StreamId, Vec<u8>)>,
    /// Whether all chunks there are were read.
    is_exhausted: bool,
    names: Cmdlines,
    events: u64,
}

impl PageFeed {
    /// Begins with the first page.
    ///
    /// # Errors
    /// What describes the recording makes no sense.
    pub fn begin(mut follower: Follower) -> Result<Self, FollowError> {
        let mut head = follower.head()?;
        // Times are only compared.
        head.reader_mut().set_corrections(Corrections::NONE);
        follower.keep_chunks();
        follower.leave_out_user_symbols();
        let decompressor = Decompressor::new(Codec::Zstd);
        let (ready, names) = (VecDeque::new(), Cmdlines::new());
        Ok(Self { follower, head, decompressor, ready, is_exhausted: false, names, events: 0 })
    }

    /// What describes the events: a trace file without data.
    pub fn head(&self) -> &Reader<Vec<u8>> {
        self.head.reader()
    }

    /// How many CPUs there are: the highest number of one, and one.
    pub fn cpu_count(&self) -> u32 {
        self.follower.manifest().cpu_count
    }

    /// Looks at what there is by now.
    ///
    /// # Errors
    /// The spool cannot be read.
    pub fn poll(&mut self) -> Result<Progress, FollowError> {
        let progress = self.follower.poll()?;
        for (tid, name) in self.follower.take_names() {
            self.names.insert(tid, &name);
        }
        // Nobody waits for them; they go with what describes the file at its end.
        self.follower.take_symbols();
        self.is_exhausted = false;
        Ok(progress)
    }

    /// Takes what is there by now for the last.
    ///
    /// # Errors
    /// The spool cannot be read.
    pub fn end_here(&mut self) -> Result<(), FollowError> {
        self.is_exhausted = false;
        self.follower.end_here()
    }

    /// The next pages that are there; `None` if there are none for now.
    pub fn next_pages(&mut self) -> Option<Pages> {
        loop {
            if let Some((stream, chunk)) = self.ready.pop_front() {
                // A chunk that is damaged is none of the file's either.
                let Some(bytes) = self.unpack(chunk) else { continue };
                return Some(Pages { cpu: stream.cpu, bytes });
            }
            if self.is_exhausted {
                return None;
            }
            self.read();
        }
    }

    /// Events in the pages that were read.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// The names of threads that are known by now, and the kernel's symbols if those are.
    pub fn known(&self) -> (Cmdlines, Vec<u8>) {
        let manifest = self.follower.manifest();
        let symbols = symbols::so_far(self.follower.files(), &manifest.host.boot_id);
        (self.names.clone(), symbols.unwrap_or_default())
    }

    /// The finished file, once it is there.
    pub fn take_finished(&mut self) -> Option<File> {
        self.follower.take_finished()
    }

    /// Reads until there is a chunk.
    fn read(&mut self) {
        let mut records = self.follower.records(self.head.reader().clock());
        loop {
            match records.next_record() {
                Ok(Some(_)) => self.events += 1,
                Ok(None) => break,
                // Whoever reads the page finds the same.
                Err(_) => {}
            }
            if let Some((stream, chunks)) = records.chunks_before().filter(|(_, chunks)| !chunks.is_empty()) {
                self.ready.extend(chunks.into_iter().map(|chunk| (stream, chunk)));
                return;
            }
        }
        self.is_exhausted = true;
        if !records.goes_on() {
            // What has no records, or damaged ones.
            let rest = self.follower.take_chunks().into_iter();
            self.ready.extend(
                rest.flat_map(|(stream, chunks)| chunks.into_iter().map(move |chunk| (stream, chunk))),
            );
        }
    }

    fn unpack(&mut self, chunk: Vec<u8>) -> Option<Vec<u8>> {
        if self.follower.manifest().compression == Compression::None {
            return Some(chunk);
        }
        let (header, packed) = chunk.split_at_checked(BLOCK_HEADER_LEN)?;
        let len = u32::from_le_bytes(*header.last_chunk()?) as usize;
        if len > CHUNK_MAX {
            return None;
        }
        let mut pages = Vec::new();
        self.decompressor.decompress(packed, len, &mut pages).ok()?;
        pages.truncate(len);
        Some(pages)
    }
}
