//! Moving data out of the spool, where the disk has no room for a copy.
//!
//! The draft is then in the spool itself, and so is a journal of what is where. It holds at any moment, also
//! when the process is killed or the power fails: a piece's first `moved` bytes are in the draft, the rest is
//! in its segment. A step is copied and synced to the disk before the journal has it, and journalled before
//! its blocks are freed. Going back takes the same steps from the end, so that a failed attempt to recover
//! loses nothing either.

use std::{
    collections::{HashMap, hash_map::Entry},
    fs::File,
    io::{self, Write as _},
    os::unix::fs::FileExt as _,
};

use rustix::fs::{FallocateFlags, fallocate, fstatvfs};

use super::super::{Spool, SpoolError, StreamId, spool::segment_name};
use stdx::output::Directory;

/// Name of the draft of a trace file in the spool.
pub(crate) const DRAFT: &str = "trace.dat";
/// Name of the journal.
pub(crate) const JOURNAL: &str = "moved";
/// First bytes of the journal: name and version of the layout.
const MAGIC: &[u8; 8] = b"TAMOVED1";
/// Bytes of a row, the first of which has the magic. Rows do not cross a disk's sectors, so that none is ever
/// half-written.
const ROW: usize = 64;
/// The least and the most that is moved at a time. Every step waits for the disk.
const STEP: u64 = 64 << 10;
const STEP_MAX: u64 = 64 << 20;
/// The most that is in memory at a time.
const COPY: u64 = 1 << 20;

/// A part of a segment, and where it goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Row {
    stream: StreamId,
    segment: u64,
    /// Offset in the segment.
    from: u64,
    /// Offset in the draft.
    to: u64,
    /// Bytes that are in the draft.
    moved: u64,
}

impl Row {
    fn encode(&self) -> [u8; ROW] {
        let Self { stream, segment, from, to, moved } = *self;
        let mut bytes = [0; ROW];
        for (slot, number) in bytes.chunks_exact_mut(8).zip([stream.to_number(), segment, from, to, moved]) {
            slot.copy_from_slice(&number.to_le_bytes());
        }
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let mut numbers = bytes.as_chunks::<8>().0.iter().map(|number| u64::from_le_bytes(*number));
        let stream = StreamId::of_number(numbers.next()?);
        let (segment, from) = (numbers.next()?, numbers.next()?);
        Some(Self { stream, segment, from, to: numbers.next()?, moved: numbers.next()? })
    }
}

/// The journal of a move.
#[derive(Debug)]
pub(super) struct Mover {
    /// The spool's directory.
    files: Directory,
    journal: File,
    rows: Vec<Row>,
}

impl Mover {
    /// Starts a journal with room for `pieces` pieces: later there may be no space for it.
    pub(super) fn create(spool: &Spool, pieces: usize) -> Result<Self, SpoolError> {
        let files = spool.files().clone();
        let write = || {
            let mut bytes = vec![0; (pieces + 1) * ROW];
            bytes[..MAGIC.len()].copy_from_slice(MAGIC);
            let mut journal = files.replace(JOURNAL)?;
            journal.write_all(&bytes)?;
            journal.sync_all()?;
            Ok(journal)
        };
        let journal = write().map_err(SpoolError::io("write", spool.file(JOURNAL)))?;
        Ok(Self { files, journal, rows: Vec::new() })
    }

    /// Whether the draft has what is nowhere else.
    pub(super) fn has_moved(&self) -> bool {
        self.rows.iter().any(|row| row.moved != 0)
    }

    /// Deletes the journal of a move that moved nothing.
    pub(super) fn discard(self) {
        // Without moved bytes it says nothing, so it may as well stay.
        let _ = self.files.remove(JOURNAL);
    }

    /// Moves `len` bytes at `from` of segment `(stream, segment)` to `to` in `draft`.
    pub(super) fn transfer(
        &mut self,
        source: &File,
        (stream, segment): (StreamId, u64),
        (from, len): (u64, u64),
        (draft, to): (&File, u64),
    ) -> io::Result<()> {
        self.rows.push(Row { stream, segment, from, to, moved: 0 });
        let index = self.rows.len() - 1;
        self.note(index, 0)?;
        let step = step(draft);
        if !self.has_moved() {
            // The names of journal and draft must be on the disk before anything depends on them.
            self.files.sync();
        }
        let mut moved = 0;
        while moved < len {
            let count = step.min(len - moved);
            copy_range((source, from + moved), (draft, to + moved), count)?;
            draft.sync_data()?;
            self.note(index, moved + count)?;
            punch(source, from + moved, count);
            moved += count;
        }
        Ok(())
    }

    fn note(&mut self, index: usize, moved: u64) -> io::Result<()> {
        let row = Row { moved, ..self.rows[index] };
        // Counted as moved even if the write should fail: the disk may have it.
        self.rows[index].moved = moved.max(self.rows[index].moved);
        self.journal.write_all_at(&row.encode(), ((index + 1) * ROW) as u64)?;
        self.journal.sync_data()?;
        self.rows[index] = row;
        Ok(())
    }

    /// Brings everything that a move left in the draft back to the segments, and deletes draft and journal.
    pub(super) fn undo(spool: &Spool) -> Result<(), SpoolError> {
        let path = spool.file(JOURNAL);
        let files = spool.files();
        let bytes = match files.read(JOURNAL) {
            Ok(bytes) => bytes,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(e) => return Err(SpoolError::io("read", path)(e)),
        };
        // Nothing is moved before all of the journal is on the disk.
        let rows = match bytes.split_at_checked(ROW) {
            Some((head, rows)) if head.starts_with(MAGIC) => {
                rows.chunks_exact(ROW).map(Row::decode).collect::<Option<Vec<_>>>()
            }
            Some((head, _)) if head.iter().any(|byte| *byte != 0) => None,
            _ => Some(Vec::new()),
        };
        let Some(rows) = rows else {
            let what = "it is no journal of moved data that this version knows; nothing was changed";
            return Err(SpoolError::Damaged { path, what: what.to_owned() });
        };
        let journal = files.open_for_writing(JOURNAL).map_err(SpoolError::io("open", &path))?;
        let mut mover = Self { files: files.clone(), journal, rows };
        let draft_path = spool.file(DRAFT);
        if mover.has_moved() {
            let draft = match files.open_for_writing(DRAFT) {
                Ok(draft) => draft,
                // It only ever leaves its place complete.
                Err(e) if e.kind() == io::ErrorKind::NotFound => {
                    let what = "the trace file was finished and has all of the data; this directory can go";
                    return Err(SpoolError::Damaged { path: spool.dir().to_owned(), what: what.to_owned() });
                }
                Err(e) => return Err(SpoolError::io("open", draft_path)(e)),
            };
            mover.check(&draft).map_err(SpoolError::io("check", &path))?;
            mover.free_rest(&draft).map_err(SpoolError::io("read", &draft_path))?;
            for index in 0..mover.rows.len() {
                let Row { stream, segment, .. } = mover.rows[index];
                let name = segment_name(stream, segment);
                mover
                    .bring_back(index, &draft, &name)
                    .map_err(SpoolError::io("restore", spool.file(&name)))?;
            }
        }
        // The journal goes first: a draft alone is of no meaning.
        files.remove(JOURNAL).map_err(SpoolError::io("remove", path))?;
        match files.remove(DRAFT) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(SpoolError::io("remove", draft_path)(e)),
            _ => Ok(()),
        }
    }

    /// Refuses a journal that cannot be true, before anything is changed by it: a damaged one must not cost
    /// data that are there.
    fn check(&self, draft: &File) -> io::Result<()> {
        let wrong = |what: String| Err(io::Error::new(io::ErrorKind::InvalidData, what));
        let draft_len = draft.metadata()?.len();
        let mut segments: HashMap<(StreamId, u64), u64> = HashMap::new();
        let mut ranges = Vec::new();
        for row in self.rows.iter().filter(|row| row.moved != 0) {
            let Row { stream, segment, from, to, moved } = *row;
            let name = segment_name(stream, segment);
            let len = match segments.entry((stream, segment)) {
                Entry::Occupied(len) => *len.get(),
                // Blocks are freed, but segments keep their length.
                Entry::Vacant(len) => {
                    let Some(there) = self.files.look(name.as_ref())? else {
                        return wrong(format!("there is no {name}"));
                    };
                    *len.insert(there.st_size.cast_unsigned())
                }
            };
            if from.checked_add(moved).is_none_or(|end| end > len) {
                return wrong(format!("it has more of {name} than there is"));
            }
            match to.checked_add(moved) {
                Some(end) if end <= draft_len => ranges.push((to, end)),
                _ => return wrong("it tells of data behind the end of the draft".to_owned()),
            }
        }
        ranges.sort_unstable();
        if ranges.is_sorted_by(|(_, end), (next, _)| end <= next) {
            Ok(())
        } else {
            wrong("it tells of different data at one place".to_owned())
        }
    }

    /// Frees what else is in the draft. It is rewritten, and the way back needs a little space.
    fn free_rest(&self, draft: &File) -> io::Result<()> {
        let mut kept: Vec<(u64, u64)> =
            self.rows.iter().filter(|row| row.moved != 0).map(|row| (row.to, row.moved)).collect();
        kept.sort_unstable();
        let mut at = 0;
        for (start, len) in kept {
            punch(draft, at, start.saturating_sub(at));
            at = start + len;
        }
        draft.set_len(at.min(draft.metadata()?.len()))
    }

    fn bring_back(&mut self, index: usize, draft: &File, segment: &str) -> io::Result<()> {
        let Row { from, to, moved, .. } = self.rows[index];
        if moved == 0 {
            return Ok(());
        }
        let segment = self.files.open_for_writing(segment)?;
        let (mut left, step) = (moved, step(draft));
        while left > 0 {
            let start = (left - 1) / step * step;
            copy_range((draft, to + start), (&segment, from + start), left - start)?;
            segment.sync_data()?;
            self.note(index, start)?;
            punch(draft, to + start, left - start);
            left = start;
        }
        Ok(())
    }
}

/// How much to move at a time: it must fit beside what it is a copy of.
fn step(draft: &File) -> u64 {
    let free = fstatvfs(draft).map_or(0, |stat| stat.f_bavail.saturating_mul(stat.f_frsize));
    (free / 4 / STEP * STEP).clamp(STEP, STEP_MAX)
}

fn copy_range((source, from): (&File, u64), (target, to): (&File, u64), len: u64) -> io::Result<()> {
    let mut buffer = vec![0; len.min(COPY) as usize];
    let mut done = 0;
    while done < len {
        let piece = &mut buffer[..(len - done).min(COPY) as usize];
        source.read_exact_at(piece, from + done)?;
        target.write_all_at(piece, to + done)?;
        done += piece.len() as u64;
    }
    Ok(())
}

/// Gives blocks back. A file system that cannot do so leaves us with what space there is.
fn punch(file: &File, at: u64, len: u64) {
    if len != 0 {
        let _ = fallocate(file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, at, len);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use std::{fs, path::Path};

    use super::*;
    use stdx::output::Output;

    const STREAM: StreamId = StreamId { channel: 0, cpu: 3 };
    const LEN: u64 = 3 * STEP + 77;
    const FROM: u64 = 100;
    const TO: u64 = 5000;

    fn content() -> Vec<u8> {
        (0..FROM + LEN).map(|n| (n % 251) as u8 + 1).collect()
    }

    /// A spool with one segment, moved to a draft; `kill` ends the move after that many bytes.
    fn moved(dir: &Path, kill: u64) -> Spool {
        let (spool, _) = Spool::create(&Output::at(&dir.join("trace.dat")).unwrap()).unwrap();
        let segment = spool.file("cpu3.7");
        fs::write(&segment, content()).unwrap();
        let source = File::options().read(true).write(true).open(segment).unwrap();
        let draft = File::create(spool.file(DRAFT)).unwrap();
        let mut mover = Mover::create(&spool, 2).unwrap();
        mover.transfer(&source, (STREAM, 7), (FROM, kill), (&draft, TO)).unwrap();
        assert_eq!(mover.has_moved(), kill != 0);
        spool
    }

    #[test]
    fn an_interrupted_move_is_undone() {
        for kill in [0, 1, STEP - 1, STEP, STEP + 1, LEN] {
            let dir = tempfile::tempdir().unwrap();
            let spool = moved(dir.path(), kill);
            let segment = fs::read(spool.file("cpu3.7")).unwrap();
            assert!(segment[FROM as usize..][..kill as usize].iter().all(|byte| *byte == 0), "{kill}: moved");
            Mover::undo(&spool).unwrap();
            assert!(fs::read(spool.file("cpu3.7")).unwrap() == content(), "{kill}");
            assert!(!spool.file(DRAFT).exists() && !spool.file(JOURNAL).exists());
            Mover::undo(&spool).unwrap();
        }
    }

    #[test]
    fn an_interrupted_undo_goes_on() {
        let dir = tempfile::tempdir().unwrap();
        let spool = moved(dir.path(), LEN);
        // As if killed after the first step back: the last bytes are in the segment, and the journal says so.
        let segment = File::options().write(true).open(spool.file("cpu3.7")).unwrap();
        let back = 3 * STEP;
        segment.write_all_at(&content()[(FROM + back) as usize..], FROM + back).unwrap();
        let journal = File::options().write(true).open(spool.file(JOURNAL)).unwrap();
        let row = Row { stream: STREAM, segment: 7, from: FROM, to: TO, moved: back };
        journal.write_all_at(&row.encode(), ROW as u64).unwrap();
        File::options().write(true).open(spool.file(DRAFT)).unwrap().set_len(TO + back).unwrap();
        Mover::undo(&spool).unwrap();
        assert!(fs::read(spool.file("cpu3.7")).unwrap() == content());
    }

    #[test]
    fn a_journal_that_cannot_be_true_changes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let spool = moved(dir.path(), LEN);
        let good = Row { stream: STREAM, segment: 7, from: FROM, to: TO, moved: LEN };
        let rows = [
            [Row { moved: u64::MAX, ..good }, Row::default()],
            [Row { from: u64::MAX, ..good }, Row::default()],
            [Row { to: u64::MAX, ..good }, Row::default()],
            [Row { moved: LEN + 1, ..good }, Row::default()],
            [Row { to: TO + 1, ..good }, Row::default()],
            [Row { stream: StreamId { cpu: 4, ..STREAM }, ..good }, Row::default()],
            [good, good],
        ];
        let before = ["cpu3.7", DRAFT].map(|name| fs::read(spool.file(name)).unwrap());
        for rows in rows {
            let journal = File::options().write(true).open(spool.file(JOURNAL)).unwrap();
            for (index, row) in rows.iter().enumerate() {
                journal.write_all_at(&row.encode(), ((index + 1) * ROW) as u64).unwrap();
            }
            let error = Mover::undo(&spool).unwrap_err().to_string();
            assert!(error.contains("cannot check") && error.contains(JOURNAL), "{error}");
            assert!(["cpu3.7", DRAFT].map(|name| fs::read(spool.file(name)).unwrap()) == before, "{rows:?}");
        }
        let journal = File::options().write(true).open(spool.file(JOURNAL)).unwrap();
        journal.write_all_at(&[good.encode(), Row::default().encode()].concat(), ROW as u64).unwrap();
        Mover::undo(&spool).unwrap();
        assert!(fs::read(spool.file("cpu3.7")).unwrap() == content());
    }

    #[test]
    fn a_draft_that_has_left_was_finished() {
        let dir = tempfile::tempdir().unwrap();
        let spool = moved(dir.path(), LEN);
        fs::rename(spool.file(DRAFT), dir.path().join("trace.dat")).unwrap();
        let error = Mover::undo(&spool).unwrap_err().to_string();
        assert!(error.contains("was finished"), "{error}");
    }
}
