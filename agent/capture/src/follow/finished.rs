//! The file that a followed recording became.

use std::{ffi::OsStr, fs::File, io, ops::Range, sync::Arc};

use crate::{Manifest, RecordedChannel, StreamId};
use ftrace_event::Cmdlines;
use stdx::output::Directory;
use tracedat::ledger::{Ledger, Pause};
use tracedat::reader::{BufferInfo, Reader, Source};

/// A finished file, and what tells where in it to go on.
#[derive(Debug)]
pub(super) struct FinishedFile {
    reader: Reader<Shared>,
    channels: Vec<RecordedChannel>,
    ledger: Option<Ledger>,
}

/// A finished file, and where in it the chunks or pages of each stream are.
pub(crate) type Layout = (Arc<File>, Vec<(StreamId, Range<u64>)>);

/// The data of a stream in it.
#[derive(Clone, Debug)]
pub(super) struct FinishedData {
    pub(super) file: Arc<File>,
    /// Where its first chunk or page is.
    pub(super) start: u64,
    pub(super) end: u64,
    /// Events that a size limit removed before the first.
    pub(super) removed: u64,
}

/// A file that several read.
#[derive(Clone, Debug)]
struct Shared(Arc<File>);

impl Source for Shared {
    fn size(&self) -> io::Result<u64> {
        self.0.size()
    }

    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        Source::read_exact_at(&*self.0, buffer, offset)
    }
}

impl FinishedFile {
    /// Opens the file `name` if it is that of the recording.
    pub(super) fn open(dir: &Directory, name: &OsStr, recording: &Manifest) -> Option<Self> {
        let reader = Reader::open(Shared(Arc::new(dir.open_file(name).ok()?))).ok()?;
        let is_it = recording.is_of(&reader);
        let ledger = Ledger::of(&reader);
        let channels = recording.channels.clone();
        is_it.then_some(Self { reader, channels, ledger })
    }

    /// The names of its threads.
    pub(super) fn names(&self) -> &Cmdlines {
        &self.reader.metadata().cmdlines
    }

    /// When it was paused.
    pub(super) fn pauses(&self) -> Vec<Pause> {
        self.ledger.as_ref().map(|ledger| ledger.pauses.clone()).unwrap_or_default()
    }

    /// Its symbols; none if they are damaged.
    pub(super) fn symbols(&self) -> Vec<u8> {
        self.reader.kallsyms().unwrap_or_default()
    }

    /// The streams that have data.
    pub(super) fn streams(&self) -> impl Iterator<Item = StreamId> {
        self.channels.iter().flat_map(|channel| {
            let cpus = self.buffer(&channel.name).into_iter().flat_map(|buffer| &buffer.cpus);
            cpus.map(|extent| StreamId { channel: channel.number, cpu: extent.cpu })
        })
    }

    fn buffer(&self, name: &str) -> Option<&BufferInfo> {
        self.reader.buffers().iter().find(|buffer| buffer.name == name)
    }

    /// The data of a stream; `None` if it has none.
    pub(super) fn data(&self, stream: StreamId) -> Option<FinishedData> {
        let name = &self.channels.iter().find(|channel| channel.number == stream.channel)?.name;
        let buffer = self.buffer(name)?;
        let extent = buffer.cpu(stream.cpu)?;
        // Compressed data begin with the number of chunks.
        let skip = if buffer.compressed { size_of::<u32>() as u64 } else { 0 };
        let (start, end) = (extent.offset.checked_add(skip)?, extent.offset.checked_add(extent.size)?);
        let mut rows = self.ledger.iter().flat_map(|ledger| &ledger.cpus);
        let row = rows.find(|row| row.channel == *name && row.cpu == stream.cpu);
        let removed = row.and_then(|row| row.capped.flatten()).unwrap_or(0);
        Some(FinishedData { file: Arc::clone(&self.reader.source().0), start, end, removed })
    }

    /// The file, and where in it each stream's chunks or pages are, in the order of the file.
    pub(super) fn layout(&self) -> Layout {
        let of_stream = |stream| self.data(stream).map(|data| (stream, data.start..data.end));
        let mut layout: Vec<_> = self.streams().filter_map(of_stream).collect();
        layout.retain(|(_, data)| data.start < data.end);
        layout.sort_unstable_by_key(|(_, data)| data.start);
        (Arc::clone(&self.reader.source().0), layout)
    }

    /// The file, to be read from its beginning.
    pub(super) fn into_file(self) -> Option<File> {
        let Shared(file) = self.reader.source().clone();
        file.try_clone().ok()
    }
}
