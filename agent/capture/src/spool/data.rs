//! One CPU's data on its way into the spool.

use std::{
    fs::File,
    io::{self, Write as _},
    path::{Path, PathBuf},
    sync::Arc,
};

use agent_ebpf::sets::Owner;
use serde::{Deserialize, Serialize};

use super::{Spool, SpoolError};
use crate::archive::ArchiveState;
use crate::counts::{CountsFile, CpuNotes, HandedNotes};
use crate::{StreamId, sets};
use attach::ring::{Control, CountNumbers, CpuCounts, SharedArray};
use stdx::handover::{Descriptors, Missing, Number};
use stdx::output::Directory;
use tracedat::{ChunkCompressor, FinderChoice};

/// A data file of a stream.
#[derive(Clone, Debug)]
pub(crate) struct SegmentFile {
    /// Its number, rising in recording order.
    pub(crate) index: u64,
    /// Its name in the spool.
    pub(crate) name: String,
}

/// Name of a stream's segment: `cpu0.3`, and of the channels after the first `channel1-cpu0.3`.
pub(crate) fn segment_name(StreamId { channel, cpu }: StreamId, index: u64) -> String {
    match channel {
        0 => format!("cpu{cpu}.{index}"),
        _ => format!("channel{channel}-cpu{cpu}.{index}"),
    }
}

/// Stream and number of a segment.
pub(crate) fn parse_segment(name: &str) -> Option<(StreamId, u64)> {
    let (channel, of_cpu) = match name.strip_prefix("channel") {
        None => (0, name),
        Some(rest) => {
            let (channel, of_cpu) = rest.split_once('-')?;
            (channel.parse().ok().filter(|channel| *channel != 0)?, of_cpu)
        }
    };
    let (cpu, index) = of_cpu.strip_prefix("cpu")?.split_once('.')?;
    Some((StreamId { channel, cpu: cpu.parse().ok()? }, index.parse().ok()?))
}

/// One CPU's data on its way into the spool.
#[derive(Debug)]
pub(crate) struct CpuSpool {
    files: Directory,
    stream: StreamId,
    /// Uncompressed bytes after which a segment is full; `None` for a single segment without limit.
    segment_limit: Option<u64>,
    current: Segment,
    previous: Option<Segment>,
    next_index: u64,
    totals: SpoolTotals,
    /// The archive that it is part of.
    archive: Arc<ArchiveState>,
    /// What the CPU had counted where the archive begins.
    begin: Arc<CpuCounts>,
    notes: CpuNotes,
    /// Whose the channel's sets of rings are, if it has several.
    owners: Option<Arc<SharedArray<Owner>>>,
    /// Whether it is noted in the spool whose this one is.
    is_owner_noted: bool,
    /// By which match finder its chunks are compressed.
    finder: FinderChoice,
    /// Whole chunks that are not in the file yet.
    pending: Vec<u8>,
    pending_pages: u64,
    pending_events: u64,
}

/// What a CPU's spool holds, and what a size cap removed from it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpoolTotals {
    /// Events in the pages on disk.
    pub events: u64,
    /// Pages on disk.
    pub pages: u64,
    /// Bytes on disk.
    pub bytes: u64,
    /// Events in pages that the size cap removed.
    pub capped_events: u64,
}

#[derive(Debug)]
struct Segment {
    name: String,
    path: PathBuf,
    file: File,
    pages: u64,
    events: u64,
    /// Length up to which the file consists of whole chunks.
    len: u64,
}

/// A stream's data on their way to another process.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct HandedStream {
    stream: u64,
    segment_limit: Option<u64>,
    current: HandedSegment,
    previous: Option<HandedSegment>,
    next_index: u64,
    totals: SpoolTotals,
    begin: CountNumbers,
    notes: HandedNotes,
    is_owner_noted: bool,
}

#[derive(Debug, Serialize, Deserialize)]
struct HandedSegment {
    name: String,
    file: Number,
    pages: u64,
    events: u64,
    len: u64,
}

impl HandedSegment {
    fn take_over(self, files: &Directory, from: &mut Descriptors) -> Result<Segment, Missing> {
        let Self { name, file, pages, events, len } = self;
        Ok(Segment { path: files.join(&name), file: from.take(file)?.into(), name, pages, events, len })
    }
}

impl CpuSpool {
    /// The spool of a stream. With a `cap`, at most that many bytes of pages are kept: two segments of half
    /// the size, the older of which goes when the newer is full (as trace-cmd's `-m` does).
    pub(crate) fn create(
        spool: &Spool,
        stream: StreamId,
        cap: Option<u64>,
        archive: &Arc<ArchiveState>,
        notes: CpuNotes,
    ) -> Result<Self, SpoolError> {
        let current = Segment::create(spool.files(), stream, 0)?;
        Ok(Self {
            files: spool.files().clone(),
            stream,
            segment_limit: cap.map(|bytes| bytes / 2),
            current,
            previous: None,
            next_index: 1,
            totals: SpoolTotals::default(),
            archive: Arc::clone(archive),
            begin: Arc::default(),
            notes,
            owners: None,
            is_owner_noted: false,
            finder: FinderChoice::default(),
            pending: Vec::new(),
            pending_pages: 0,
            pending_events: 0,
        })
    }

    /// Gives it away. What is not in the file yet is still in the ring.
    pub(crate) fn hand_over(self, to: &mut Descriptors) -> HandedStream {
        HandedStream {
            stream: self.stream.to_number(),
            segment_limit: self.segment_limit,
            current: self.current.hand_over(to),
            previous: self.previous.map(|segment| segment.hand_over(to)),
            next_index: self.next_index,
            totals: self.totals,
            begin: CountNumbers::from(&*self.begin),
            notes: self.notes.hand_over(),
            is_owner_noted: self.is_owner_noted,
        }
    }

    /// Goes on with what another process has stored.
    pub(crate) fn take_over(
        handed: HandedStream,
        (spool, archive, counts): (&Spool, &Arc<ArchiveState>, &CountsFile),
        from: &mut Descriptors,
    ) -> Result<Self, Missing> {
        let files = spool.files().clone();
        let stream = StreamId::of_number(handed.stream);
        let begin: Arc<CpuCounts> = Arc::new(handed.begin.into());
        let mut segment = |handed: HandedSegment| handed.take_over(&files, from);
        Ok(Self {
            stream,
            segment_limit: handed.segment_limit,
            current: segment(handed.current)?,
            previous: handed.previous.map(segment).transpose()?,
            next_index: handed.next_index,
            totals: handed.totals,
            archive: Arc::clone(archive),
            notes: counts.going_on(handed.notes, stream, Arc::clone(&begin)),
            begin,
            owners: None,
            is_owner_noted: handed.is_owner_noted,
            finder: FinderChoice::default(),
            pending: Vec::new(),
            pending_pages: 0,
            pending_events: 0,
            files,
        })
    }

    /// Adds a chunk of `pages` that hold `events` events. It is in the file after [`CpuSpool::flush`], which
    /// the caller calls when [`CpuSpool::pending_bytes`] are many.
    pub(crate) fn append(
        &mut self,
        pages: &[u8],
        page_size: usize,
        events: u64,
        compressor: &mut ChunkCompressor,
    ) -> Result<(), SpoolError> {
        self.note_owner()?;
        if let Some(limit) = self.segment_limit {
            let used = (self.current.pages + self.pending_pages) * page_size as u64;
            if used > 0 && used + pages.len() as u64 > limit {
                self.flush()?;
                self.next_segment()?;
            }
        }
        self.pending.extend_from_slice(compressor.compress_stream(pages, &mut self.finder)?);
        self.pending_pages += (pages.len() / page_size) as u64;
        self.pending_events += events;
        Ok(())
    }

    /// Says where it stands whose the channel's sets of rings are.
    pub(crate) fn know_owners(&mut self, owners: Option<Arc<SharedArray<Owner>>>) {
        self.owners = owners;
    }

    /// What it was told of that.
    pub(crate) fn owners(&self) -> Option<Arc<SharedArray<Owner>>> {
        self.owners.clone()
    }

    /// Notes whose data it has, before the first of them.
    fn note_owner(&mut self) -> Result<(), SpoolError> {
        let Some(owners) = self.owners.as_ref().filter(|_| !self.is_owner_noted) else { return Ok(()) };
        if let Some(owner) = sets::owner_of(owners, self.stream.ring().set) {
            sets::note(&self.files, self.stream, &owner)?;
        }
        self.is_owner_noted = true;
        Ok(())
    }

    /// Bytes that wait for [`CpuSpool::flush`].
    pub(crate) fn pending_bytes(&self) -> usize {
        self.pending.len()
    }

    /// Brings all chunks to the file, in one write. After an error the file still ends with a whole chunk,
    /// and the chunks that were to be written are forgotten: their pages are still in the ring.
    pub(crate) fn flush(&mut self) -> Result<(), SpoolError> {
        let (pages, events) =
            (std::mem::take(&mut self.pending_pages), std::mem::take(&mut self.pending_events));
        let written = if self.pending.is_empty() { Ok(()) } else { self.current.append(&self.pending) };
        let bytes = self.pending.len() as u64;
        self.pending.clear();
        written?;
        self.current.pages += pages;
        self.current.events += events;
        self.totals.pages += pages;
        self.totals.events += events;
        self.totals.bytes += bytes;
        self.archive.grow(bytes);
        Ok(())
    }

    /// Whose data it has.
    pub(crate) fn stream(&self) -> StreamId {
        self.stream
    }

    /// The number of the archive that it is part of.
    pub(crate) fn archive(&self) -> u64 {
        self.archive.number
    }

    /// Bytes of the archive, over all CPUs, when what waits is flushed.
    pub(crate) fn archive_bytes_then(&self) -> u64 {
        self.archive.bytes().saturating_add(self.pending.len() as u64)
    }

    /// What the CPU had counted where the archive begins.
    pub(crate) fn begin(&self) -> Arc<CpuCounts> {
        Arc::clone(&self.begin)
    }

    /// Says what the CPU had counted where the archive begins, before anything is stored.
    pub(crate) fn begin_at(&mut self, counts: Arc<CpuCounts>) {
        self.notes.begin_at(&counts);
        self.begin = counts;
    }

    /// Notes what the CPU has counted where the archive ends. To be called before the last data come.
    pub(crate) fn note_end(&mut self, counts: &CpuCounts) {
        self.notes.note_end(counts);
    }

    /// Notes what the CPU has counted where a copy of its ring ends. To be called before the copy.
    pub(crate) fn note_border(&mut self, counts: &CpuCounts) {
        self.notes.note_border(counts);
    }

    /// Where the spool is, for messages.
    pub(crate) fn dir(&self) -> &Path {
        self.files.path()
    }

    /// Notes what the ring's control block says, for the case that this process is killed. To be called
    /// before the data that are counted there come to the file.
    pub(crate) fn note(&mut self, control: Control<'_>) {
        self.notes.note(control);
    }

    /// The same when nothing counts there any more.
    pub(crate) fn note_final(&mut self, control: Control<'_>) {
        self.notes.note_final(control);
    }

    /// What is on disk.
    pub(crate) fn totals(&self) -> SpoolTotals {
        self.totals
    }

    /// Removes all data.
    pub(crate) fn clear(&mut self) -> Result<(), SpoolError> {
        self.pending.clear();
        (self.pending_pages, self.pending_events) = (0, 0);
        if let Some(old) = self.previous.take() {
            self.files.remove(&old.name).map_err(SpoolError::io("remove", &old.path))?;
        }
        self.current.clear()?;
        self.archive.shrink(self.totals.bytes);
        self.totals = SpoolTotals::default();
        Ok(())
    }

    fn next_segment(&mut self) -> Result<(), SpoolError> {
        let fresh = Segment::create(&self.files, self.stream, self.next_index)?;
        self.next_index += 1;
        let full = std::mem::replace(&mut self.current, fresh);
        if let Some(old) = self.previous.replace(full) {
            // After the fresh one and the full one.
            self.notes.note_capped(self.next_index - 2, old.events);
            self.files.remove(&old.name).map_err(SpoolError::io("remove", &old.path))?;
            self.totals.pages -= old.pages;
            self.totals.events -= old.events;
            self.totals.bytes -= old.len;
            self.archive.shrink(old.len);
            self.totals.capped_events += old.events;
        }
        Ok(())
    }
}

impl Segment {
    fn hand_over(self, to: &mut Descriptors) -> HandedSegment {
        let Self { name, path: _, file, pages, events, len } = self;
        HandedSegment { name, file: to.put(file), pages, events, len }
    }

    fn create(files: &Directory, stream: StreamId, index: u64) -> Result<Self, SpoolError> {
        let name = segment_name(stream, index);
        let path = files.join(&name);
        let file = files.create(&name).map_err(SpoolError::io("create", &path))?;
        Ok(Self { name, path, file, pages: 0, events: 0, len: 0 })
    }

    fn clear(&mut self) -> Result<(), SpoolError> {
        let cut = self.file.set_len(0).and_then(|()| io::Seek::rewind(&mut self.file));
        cut.map_err(SpoolError::io("cut", &self.path))?;
        (self.pages, self.events, self.len) = (0, 0, 0);
        Ok(())
    }

    fn append(&mut self, chunk: &[u8]) -> Result<(), SpoolError> {
        if let Err(error) = self.file.write_all(chunk) {
            // Part of the chunk may be there. Cutting it off frees space, so this works on a full disk too;
            // if it should not, the reader of the spool recognises the partial chunk.
            let _ = self.file.set_len(self.len);
            let _ = io::Seek::seek(&mut self.file, io::SeekFrom::Start(self.len));
            return Err(SpoolError::io("write", &self.path)(error));
        }
        self.len += chunk.len() as u64;
        Ok(())
    }
}
