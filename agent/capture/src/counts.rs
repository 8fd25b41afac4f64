//! What the control blocks said when a reader last looked: all that is known of what was in the rings of a
//! recording that was killed.
//!
//! The file `counts` of the spool, in numbers of 64 bits, little endian:
//!
//! | at | content |
//! |---|---|
//! | 0 | name and version of the layout |
//! | 16 | how far it came: [`Stage`] |
//! | 64 + 384 i | two notes of the i-th stream, of 192 bytes each |
//!
//! Whoever follows a recording knows from them up to when it has all events of a CPU: a note that is settled
//! counts all that are older than it.
//!
//! A note has a CRC-32 of what follows, and an increasing number. The two notes alternate, so that one that
//! was cut short leaves the previous one. A note is written *before* the data it counts, so that it never has
//! less than the data.

use std::{
    collections::BTreeMap,
    fs::File,
    io,
    os::unix::fs::FileExt as _,
    sync::{Arc, Mutex, PoisonError},
};

use agent_ebpf::LossCause;
use kernel::clock::ReadClock as _;
use serde::{Deserialize, Serialize};

use super::{Spool, SpoolError, StreamId, readers::CPUS_PER_THREAD};
use attach::ring::{Control, CpuCounts};
use spec::TraceClock;
use stdx::handover::{Descriptors, Missing, Number};

/// Name of the file in the spool.
pub(super) const NAME: &str = "counts";
/// First bytes of the file.
const MAGIC: u64 = u64::from_le_bytes(*b"TACOUNT3");
const STAGE_AT: usize = 16;
/// Where the notes begin.
const HEADER: usize = 64;
/// Bytes that a note has room for.
const NOTE: usize = 192;
/// Numbers in a note.
const NUMBERS: usize = 12 + LossCause::COUNT;
/// More streams than any recording has.
const MAX_STREAMS: usize = 1 << 16;

/// How far a recording came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stage {
    /// It records, or is about to.
    Recording = 0,
    /// Nothing is recorded any more; the readers empty the rings.
    Stopping = 1,
    /// A second signal ended it meanwhile.
    Interrupted = 2,
    /// The notes are final: what is not in the spool is known.
    Counted = 3,
}

/// What a reader noted of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Note {
    /// When, by the recording's clock.
    pub time: u64,
    /// Events written to the ring.
    pub events: u64,
    /// Events lost, by cause.
    pub lost: [u64; LossCause::COUNT],
    /// Events in pages that overwrite mode reused.
    pub overwritten: u64,
    /// Thread names lost.
    pub names_lost: u64,
    /// Number of the oldest segment that is kept.
    pub first_segment: u64,
    /// Events in the segments before that.
    pub capped: u64,
    /// Events in the last of them.
    pub last_capped: u64,
    /// Events lost before the first of the data, which its first page is marked with.
    pub marked_before: u64,
    /// Whether nothing counted any more.
    pub is_final: bool,
    /// Whether all events from before `time` are among those counted. Not so while a program is between the
    /// two, or where records wait in the side queue.
    pub is_settled: bool,
}

/// What is true of a note, as bits of one number.
mod flag {
    pub(super) const FINAL: u64 = 1;
    pub(super) const SETTLED: u64 = 1 << 1;
}

/// Takes back what a file of counts says of the end: whoever has it may not have all the data that it counts.
pub(super) fn reopen(file: &mut [u8]) {
    if let Some(stage) = file.get_mut(STAGE_AT)
        && *stage == Stage::Counted as u8
    {
        *stage = Stage::Stopping as u8;
    }
}

impl Note {
    /// Events that the size cap removed, where `first_segment` is the number of the oldest segment found.
    /// `None` if that is not the one that the note counts.
    pub(super) fn capped(&self, first_segment: u64) -> Option<u64> {
        match self.first_segment.checked_sub(first_segment) {
            Some(0) => Some(self.capped),
            // Noted, but not removed any more.
            Some(1) => self.capped.checked_sub(self.last_capped),
            _ => None,
        }
    }

    fn encode(&self, sequence: u64, stream: StreamId) -> [u8; NOTE] {
        // Destructured so that a new field is not forgotten here.
        let Self {
            time,
            events,
            lost,
            overwritten,
            names_lost,
            first_segment,
            capped,
            last_capped,
            marked_before,
            is_final,
            is_settled,
        } = *self;
        let flag = |is_set: bool, flag: u64| if is_set { flag } else { 0 };
        let flags = flag(is_final, flag::FINAL) | flag(is_settled, flag::SETTLED);
        let known =
            [sequence, stream.to_number(), time, events, overwritten, names_lost, first_segment, capped];
        let numbers = known.into_iter().chain([last_capped, marked_before, flags]).chain(lost);
        let mut bytes = [0; NOTE];
        for (slot, number) in bytes[8..].chunks_exact_mut(8).zip(numbers) {
            slot.copy_from_slice(&number.to_le_bytes());
        }
        let sum = u64::from(crc32fast::hash(&bytes[8..]));
        bytes[..8].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// The number, the stream, and the note.
    fn decode(bytes: &[u8; NOTE]) -> Option<(u64, StreamId, Self)> {
        let mut numbers = [0; NUMBERS];
        for (number, slot) in numbers.iter_mut().zip(bytes.chunks_exact(8)) {
            *number = u64::from_le_bytes(*slot.first_chunk()?);
        }
        let [
            sum,
            sequence,
            stream,
            time,
            events,
            overwritten,
            names_lost,
            first_segment,
            capped,
            last_capped,
            marked_before,
            flags,
            lost @ ..,
        ] = numbers;
        let is_whole = sum == u64::from(crc32fast::hash(&bytes[8..])) && sequence != 0;
        let (is_final, is_settled) = (flags & flag::FINAL != 0, flags & flag::SETTLED != 0);
        let note = Self {
            time,
            events,
            lost,
            overwritten,
            names_lost,
            first_segment,
            capped,
            last_capped,
            marked_before,
            is_final,
            is_settled,
        };
        is_whole.then_some((sequence, StreamId::of_number(stream), note))
    }
}

/// The file while it is written.
#[derive(Clone, Debug)]
pub(super) struct CountsFile {
    file: Arc<File>,
    stage: Arc<Mutex<Stage>>,
    clock: TraceClock,
}

impl CountsFile {
    /// Creates the file for so many streams, with room for all notes: writing one takes no space that a full
    /// disk might not have.
    pub(super) fn create(spool: &Spool, streams: usize, clock: TraceClock) -> Result<Self, SpoolError> {
        let path = spool.file(NAME);
        let mut bytes = vec![0; HEADER + streams * 2 * NOTE];
        bytes[..8].copy_from_slice(&MAGIC.to_le_bytes());
        let file = spool.files().create(NAME).map_err(SpoolError::io("create", &path))?;
        file.write_all_at(&bytes, 0).map_err(SpoolError::io("write", &path))?;
        Ok(Self { file: Arc::new(file), stage: Arc::new(Mutex::new(Stage::Recording)), clock })
    }

    /// The notes of a stream, the one number `index` of those recorded.
    pub(super) fn of_stream(&self, index: usize, stream: StreamId) -> CpuNotes {
        let at = (HEADER + index * 2 * NOTE) as u64;
        let Self { file, clock, .. } = self;
        let (begin, note) = (Arc::default(), Note::default());
        CpuNotes { file: Arc::clone(file), clock: *clock, at, stream, sequence: 0, begin, note }
    }

    /// Gives away the file, of a recording that goes on.
    pub(super) fn hand_over(self, to: &mut Descriptors) -> Number {
        to.put(self.file)
    }

    /// The file that another process has written to, of a recording that goes on.
    ///
    /// # Errors
    /// The descriptor is missing.
    pub(super) fn take_over(
        file: Number,
        clock: TraceClock,
        from: &mut Descriptors,
    ) -> Result<Self, Missing> {
        let file = Arc::new(File::from(from.take(file)?));
        Ok(Self { file, stage: Arc::new(Mutex::new(Stage::Recording)), clock })
    }

    /// Notes that another process has written, to go on with.
    pub(super) fn going_on(&self, notes: HandedNotes, stream: StreamId, begin: Arc<CpuCounts>) -> CpuNotes {
        let HandedNotes { at, sequence, note } = notes;
        CpuNotes { file: Arc::clone(&self.file), clock: self.clock, at, stream, sequence, begin, note }
    }

    /// Tells how far the recording is, unless it is further.
    pub(super) fn set_stage(&self, stage: Stage) {
        let mut now = self.stage.lock().unwrap_or_else(PoisonError::into_inner);
        if *now < stage {
            *now = stage;
            // A stage that cannot be written leaves the one before, which claims less.
            let _ = self.file.write_all_at(&[stage as u8], STAGE_AT as u64);
        }
    }
}

/// Tells the spool how its recording ends. It stays when the capture is gone.
#[derive(Clone, Debug)]
pub struct Ending(pub(super) CountsFile);

impl Ending {
    /// A second signal ends the process, which may be before the rings are empty.
    pub fn interrupted(&self) {
        // Once they are, nothing is missing: that stage is a later one, and stays.
        let Self(counts) = self;
        counts.set_stage(Stage::Interrupted);
    }
}

/// A stream's notes while they are written.
#[derive(Debug)]
pub(super) struct CpuNotes {
    file: Arc<File>,
    clock: TraceClock,
    at: u64,
    stream: StreamId,
    sequence: u64,
    /// What the CPU had counted before: the notes are of what came since.
    begin: Arc<CpuCounts>,
    note: Note,
}

/// A stream's notes on their way to another process.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct HandedNotes {
    at: u64,
    sequence: u64,
    note: Note,
}

impl CpuNotes {
    /// What another process needs to go on.
    pub(super) fn hand_over(&self) -> HandedNotes {
        HandedNotes { at: self.at, sequence: self.sequence, note: self.note }
    }

    /// Says what the CPU had counted before the first of the data.
    pub(super) fn begin_at(&mut self, counts: &Arc<CpuCounts>) {
        self.begin = Arc::clone(counts);
        self.note.marked_before = counts.unmarked;
    }

    /// Notes what the control block says.
    pub(super) fn note(&mut self, control: Control<'_>) {
        // The time first: what fires from here on is not claimed to be counted.
        self.note.time = self.clock.now_ns();
        // Between the two: what had its time by then is counted.
        self.note.is_settled = control.is_settled();
        // Before the events that are overwritten, so that the difference of both is no more than there are.
        let events = control.events();
        let counts = CpuCounts {
            events,
            lost: LossCause::ALL.map(|cause| control.lost(cause)),
            overwritten: control.overwritten(),
            names_lost: control.names_lost(),
            ..CpuCounts::default()
        };
        self.take(&counts);
        self.write();
    }

    /// Notes what the CPU has counted where the data end.
    pub(super) fn note_end(&mut self, counts: &CpuCounts) {
        self.note.is_final = true;
        self.note_border(counts);
    }

    /// The same where more of it may be overwritten before it is stored.
    pub(super) fn note_border(&mut self, counts: &CpuCounts) {
        self.note.time = self.clock.now_ns();
        // What comes from here on goes elsewhere.
        self.note.is_settled = true;
        self.take(counts);
        self.write();
    }

    fn take(&mut self, counts: &CpuCounts) {
        let begin = &self.begin;
        self.note.events = counts.events.saturating_sub(begin.events);
        self.note.overwritten = counts.overwritten.saturating_sub(begin.overwritten);
        self.note.names_lost = counts.names_lost.saturating_sub(begin.names_lost);
        for (lost, (now, before)) in self.note.lost.iter_mut().zip(counts.lost.iter().zip(begin.lost)) {
            *lost = now.saturating_sub(before);
        }
    }

    /// Notes what the control block says when nothing counts there any more.
    pub(super) fn note_final(&mut self, control: Control<'_>) {
        self.note.is_final = true;
        self.note(control);
    }

    /// Notes that the segment before `first_segment` is about to be removed, with `events` events.
    pub(super) fn note_capped(&mut self, first_segment: u64, events: u64) {
        self.note.first_segment = first_segment;
        self.note.capped += events;
        self.note.last_capped = events;
        self.write();
    }

    fn write(&mut self) {
        self.sequence += 1;
        let at = self.at + self.sequence % 2 * NOTE as u64;
        // Without this note the one before it holds, which says less and nothing wrong.
        let _ = self.file.write_all_at(&self.note.encode(self.sequence, self.stream), at);
    }
}

/// The file of a recording that is recovered or followed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Noted {
    /// How far it came.
    pub stage: Stage,
    /// How many streams it has notes of, or will have.
    pub stream_count: usize,
    /// The CPUs of the first notes that there are, as many as share a reader at most. The reader that writes
    /// these collects thread names.
    pub first_cpus: Vec<u32>,
    /// The last whole note of each stream that has one.
    pub notes: BTreeMap<StreamId, Note>,
}

impl Noted {
    /// Reads the file. `None` if there is none (as older recorders left none), or if it makes no sense: then
    /// nothing is known.
    pub(super) fn load(spool: &Spool) -> Result<Option<Self>, SpoolError> {
        let path = spool.file(NAME);
        let file = match spool.files().open_file(NAME) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file.map_err(SpoolError::io("open", &path))?,
        };
        Self::read(&file).map_err(SpoolError::io("read", path))
    }

    /// Reads the file, which may be written meanwhile. `None` if it makes no sense.
    pub(super) fn read(file: &File) -> io::Result<Option<Self>> {
        let most = (HEADER + MAX_STREAMS * 2 * NOTE) as u64;
        let mut bytes = vec![0; file.metadata()?.len().min(most) as usize];
        file.read_exact_at(&mut bytes, 0)?;
        Ok(Self::decode(&bytes))
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (header, notes) = bytes.split_at_checked(HEADER)?;
        if !header.starts_with(&MAGIC.to_le_bytes()) {
            return None;
        }
        let stages = [Stage::Recording, Stage::Stopping, Stage::Interrupted, Stage::Counted];
        let stage = stages.into_iter().find(|stage| *stage as u8 == header[STAGE_AT])?;
        let (mut found, mut first_cpus) = (BTreeMap::new(), Vec::new());
        let mut first_channel = None;
        for (index, pair) in notes.chunks_exact(2 * NOTE).enumerate() {
            let whole = pair.chunks_exact(NOTE).filter_map(|note| Note::decode(note.first_chunk()?));
            if let Some((_, stream, note)) = whole.max_by_key(|(sequence, ..)| *sequence) {
                if index < CPUS_PER_THREAD && stream.channel == first_channel.unwrap_or(stream.channel) {
                    first_channel = Some(stream.channel);
                    first_cpus.push(stream.cpu);
                }
                found.insert(stream, note);
            }
        }
        Some(Self { stage, stream_count: notes.len() / (2 * NOTE), first_cpus, notes: found })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;
    use stdx::output::Output;

    fn spool() -> (tempfile::TempDir, Spool) {
        let dir = tempfile::tempdir().unwrap();
        let spool = Spool::create(&Output::at(&dir.path().join("t.dat")).unwrap()).unwrap().0;
        (dir, spool)
    }

    #[test]
    fn the_last_whole_note_holds() {
        let (_dir, spool) = spool();
        assert_eq!(Noted::load(&spool).unwrap(), None, "an older recorder's spool");
        let file = CountsFile::create(&spool, 2, TraceClock::Mono).unwrap();
        let empty = Noted {
            stage: Stage::Recording,
            stream_count: 2,
            first_cpus: Vec::new(),
            notes: BTreeMap::new(),
        };
        assert_eq!(Noted::load(&spool).unwrap(), Some(empty));
        let stream = StreamId { channel: 2, cpu: 9 };
        let mut notes = file.of_stream(1, stream);
        for events in 1..=3 {
            notes.note.events = events;
            notes.note.lost[4] = 10 * events;
            (notes.note.is_settled, notes.note.is_final) = (events % 2 == 0, events == 3);
            notes.write();
            assert_eq!(Noted::load(&spool).unwrap().unwrap().notes[&stream], notes.note);
        }
        // One that was cut short leaves the one before.
        let newest = notes.at + notes.sequence % 2 * NOTE as u64;
        notes.file.write_all_at(&[0xff; 9], newest + 20).unwrap();
        let found = Noted::load(&spool).unwrap().unwrap();
        assert_eq!(
            (found.notes[&stream].events, found.notes[&stream].lost[4], found.notes.len()),
            (2, 20, 1)
        );
    }

    #[test]
    fn a_stage_is_never_taken_back() {
        let (_dir, spool) = spool();
        let file = CountsFile::create(&spool, 1, TraceClock::Mono).unwrap();
        let stage = || Noted::load(&spool).unwrap().unwrap().stage;
        file.set_stage(Stage::Stopping);
        Ending(file.clone()).interrupted();
        assert_eq!(stage(), Stage::Interrupted);
        file.set_stage(Stage::Counted);
        Ending(file.clone()).interrupted();
        file.set_stage(Stage::Recording);
        assert_eq!(stage(), Stage::Counted);
    }

    #[test]
    fn what_a_cap_removed_is_known_before_and_after_the_removal() {
        let (_dir, spool) = spool();
        let mut notes =
            CountsFile::create(&spool, 1, TraceClock::Mono).unwrap().of_stream(0, StreamId::default());
        notes.note_capped(1, 100);
        notes.note_capped(2, 7);
        let note = Noted::load(&spool).unwrap().unwrap().notes[&StreamId::default()];
        assert_eq!([0, 1, 2, 3].map(|first| note.capped(first)), [None, Some(100), Some(107), None]);
    }

    #[test]
    fn counts_without_their_data_are_not_the_last_word() {
        let (_dir, spool) = spool();
        let file = CountsFile::create(&spool, 1, TraceClock::Mono).unwrap();
        let after = |stage| {
            file.set_stage(stage);
            let mut bytes = std::fs::read(spool.file(NAME)).unwrap();
            reopen(&mut bytes);
            Noted::decode(&bytes).unwrap().stage
        };
        assert_eq!(after(Stage::Recording), Stage::Recording);
        assert_eq!(after(Stage::Interrupted), Stage::Interrupted);
        assert_eq!(after(Stage::Counted), Stage::Stopping);
        reopen(&mut []);
    }

    #[test]
    fn what_is_no_file_of_ours_tells_nothing() {
        let (_dir, spool) = spool();
        drop(CountsFile::create(&spool, 1, TraceClock::Mono).unwrap().of_stream(0, StreamId::default()));
        let good = std::fs::read(spool.file(NAME)).unwrap();
        assert!(Noted::decode(&good).is_some());
        for len in 0..HEADER {
            assert_eq!(Noted::decode(&good[..len]), None, "{len} bytes");
        }
        let mut bad = good.clone();
        bad[STAGE_AT] = 4;
        assert_eq!(Noted::decode(&bad), None);
        let absurd = Noted::decode(&[&good[..HEADER], &[0xff; 4 * NOTE][..]].concat()).unwrap();
        assert_eq!(absurd.notes, BTreeMap::new());
    }
}
