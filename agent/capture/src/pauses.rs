//! When an archive was not recorded to, though its recording had begun and had not ended.
//!
//! The file `pauses` of the spool, which is there once there was one, has two numbers of 64 bits for each,
//! little endian, by the recording's clock: when the first gate was about to be closed, and when the last one
//! was open again, which is 0 until then, and 1 once all records from before the pause are stored. The first
//! is written before a gate is closed, so that followers and `recover` do not take a pause for a time without
//! events.
//!
//! There are so many at most: before one more begins, each two of the older half become one, which lasts from
//! the beginning of the first to the end of the second. That claims less, and forgets none.

use std::{
    fs::File,
    io::{self, Write as _},
    os::unix::fs::FileExt as _,
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};

use super::{Spool, SpoolError};
use stdx::handover::{Descriptors, Missing, Moment, Number};
use stdx::output::Directory;
use tracedat::ledger::Pause;

/// Name of the file in the spool.
pub(super) const NAME: &str = "pauses";
/// Bytes of a pause.
const ENTRY: usize = 16;
/// Stands for the end of a pause that goes on, when all records from before it are stored.
const STORED: u64 = 1;
/// The most pauses of an archive.
const PAUSES_MAX: usize = 1 << 12;

/// The pauses of an archive that is recorded to.
#[derive(Debug, Default)]
pub(super) struct Pauses {
    file: Option<File>,
    spans: Vec<Pause>,
    /// When the last one began, if it goes on.
    since: Option<Instant>,
    /// How long the others were.
    over: Duration,
}

/// The same on their way to another process.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct HandedPauses {
    file: Option<Number>,
    spans: Vec<Pause>,
    since: Option<Moment>,
    over: Duration,
}

impl Pauses {
    /// Notes that a pause begins at this time.
    pub(super) fn begin(&mut self, spool: &Spool, from_ns: u64) -> Result<(), SpoolError> {
        let path = || spool.file(NAME);
        if self.spans.len() >= PAUSES_MAX {
            self.merge_old(spool)?;
        }
        let file = if let Some(file) = &self.file {
            file
        } else {
            let file = spool.files().create(NAME).map_err(SpoolError::io("create", path()))?;
            self.file.insert(file)
        };
        // With the room for its end, which is then written wherever the disk is full.
        let mut entry = [0; ENTRY];
        entry[..8].copy_from_slice(&from_ns.to_le_bytes());
        let at = (self.spans.len() * ENTRY) as u64;
        file.write_all_at(&entry, at).map_err(SpoolError::io("write", path()))?;
        self.spans.push(Pause { from_ns, to_ns: None });
        self.since = Some(Instant::now());
        Ok(())
    }

    /// Makes room for more. All pauses are over.
    fn merge_old(&mut self, spool: &Spool) -> Result<(), SpoolError> {
        let failed = |action| SpoolError::io(action, spool.file(NAME));
        let (old, new) = self.spans.split_at(self.spans.len() / 2);
        let merged = old.chunks(2).filter_map(|pair| {
            let (first, last) = (pair.first()?, pair.last()?);
            Some(Pause { from_ns: first.from_ns, to_ns: last.to_ns })
        });
        let spans: Vec<Pause> = merged.chain(new.iter().copied()).collect();
        let number = |of: &Pause| [of.from_ns.to_le_bytes(), of.to_ns.unwrap_or_default().to_le_bytes()];
        let bytes: Vec<u8> = spans.iter().flat_map(number).flatten().collect();
        // Who reads it meanwhile has the one or the other.
        spool.files().write_whole(NAME, |file| file.write_all(&bytes)).map_err(failed("write"))?;
        self.file = Some(spool.files().open_for_writing(NAME).map_err(failed("open"))?);
        self.spans = spans;
        Ok(())
    }

    /// Notes that all records from before the pause that goes on are stored.
    pub(super) fn stored(&self) {
        if let Some(last) = self.spans.len().checked_sub(1) {
            self.note_end(last, STORED);
        }
    }

    fn note_end(&self, index: usize, end: u64) {
        if let Some(file) = &self.file {
            // Without it the pause seems to go on, or to be incomplete, which claims less.
            let _ = file.write_all_at(&end.to_le_bytes(), (index * ENTRY + 8) as u64);
        }
    }

    /// Notes that the pause that goes on has ended at this time.
    pub(super) fn end(&mut self, to_ns: u64) {
        let (Some(since), Some(last)) = (self.since.take(), self.spans.last_mut()) else { return };
        self.over += since.elapsed();
        last.to_ns = Some(to_ns);
        self.note_end(self.spans.len() - 1, to_ns);
    }

    /// Gives them away.
    pub(super) fn hand_over(self, to: &mut Descriptors) -> HandedPauses {
        HandedPauses {
            file: self.file.map(|file| to.put(file)),
            spans: self.spans,
            since: self.since.map(Moment::from),
            over: self.over,
        }
    }

    /// Those that another process has given away.
    pub(super) fn take_over(handed: HandedPauses, from: &mut Descriptors) -> Result<Self, Missing> {
        let file = handed.file.map(|file| from.take(file)).transpose()?.map(File::from);
        let since = handed.since.map(Instant::from);
        Ok(Self { file, spans: handed.spans, since, over: handed.over })
    }

    /// All of them.
    pub(super) fn spans(&self) -> &[Pause] {
        &self.spans
    }

    /// How long they are, up to `end`.
    pub(super) fn duration(&self, end: Instant) -> Duration {
        self.over + self.since.map(|since| end.saturating_duration_since(since)).unwrap_or_default()
    }

    /// The same for a copy of what was recorded, in a spool of its own.
    pub(super) fn copy_to(&self, spool: &Spool) -> Result<Self, SpoolError> {
        let mut copy = Self { since: self.since, over: self.over, ..Self::default() };
        for span in &self.spans {
            copy.begin(spool, span.from_ns)?;
            if let Some(to_ns) = span.to_ns {
                copy.end(to_ns);
            }
        }
        (copy.since, copy.over) = (self.since, self.over);
        Ok(copy)
    }
}

/// The pauses that the spool of a recording has, which may go on.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct NotedPauses {
    pub(super) spans: Vec<Pause>,
    /// Whether the last one goes on, and all records from before it are stored.
    pub(super) is_complete: bool,
}

/// Reads the pauses of a spool; empty without a pause.
pub(super) fn read(files: &Directory) -> Result<NotedPauses, SpoolError> {
    let failed = |action| SpoolError::io(action, files.join(NAME));
    let file = match files.open_file(NAME) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(NotedPauses::default()),
        file => file.map_err(failed("open"))?,
    };
    let len = file.metadata().map_err(failed("look at"))?.len().min((PAUSES_MAX * ENTRY) as u64);
    let mut bytes = vec![0; len as usize];
    file.read_exact_at(&mut bytes, 0).map_err(failed("read"))?;
    Ok(decode(&bytes))
}

/// The whole entries of a file. Times that go back are not believed, nor what follows.
fn decode(bytes: &[u8]) -> NotedPauses {
    let number = |bytes: Option<&[u8; 8]>| bytes.map_or(0, |bytes| u64::from_le_bytes(*bytes));
    let mut reached = 0;
    let mut pauses = NotedPauses::default();
    for entry in bytes.chunks_exact(ENTRY) {
        let (from_ns, to_ns) = (number(entry.first_chunk()), number(entry.last_chunk()));
        let is_complete = to_ns == STORED;
        let to_ns = (to_ns > STORED).then_some(to_ns);
        if from_ns < reached || to_ns.is_some_and(|to_ns| to_ns < from_ns) {
            break;
        }
        reached = to_ns.unwrap_or(from_ns);
        pauses.spans.push(Pause { from_ns, to_ns });
        pauses.is_complete = is_complete;
    }
    pauses
}

#[cfg(test)]
mod tests {
    use super::*;
    use stdx::output::Output;

    #[test]
    fn pauses_are_known_while_they_last() {
        let dir = tempfile::tempdir().unwrap();
        let spool = Spool::create(&Output::at(&dir.path().join("t.dat")).unwrap()).unwrap().0;
        assert_eq!(read(spool.files()).unwrap(), NotedPauses::default());
        let mut pauses = Pauses::default();
        pauses.begin(&spool, 10).unwrap();
        let going_on =
            |is_complete| NotedPauses { spans: vec![Pause { from_ns: 10, to_ns: None }], is_complete };
        assert_eq!(read(spool.files()).unwrap(), going_on(false));
        pauses.stored();
        assert_eq!(read(spool.files()).unwrap(), going_on(true));
        pauses.end(20);
        pauses.begin(&spool, 30).unwrap();
        let both = [Pause { from_ns: 10, to_ns: Some(20) }, Pause { from_ns: 30, to_ns: None }];
        assert_eq!(pauses.spans(), both);
        assert_eq!(read(spool.files()).unwrap(), NotedPauses { spans: both.to_vec(), is_complete: false });
    }

    #[test]
    fn any_number_of_pauses_takes_little_room_and_none_is_forgotten() {
        let dir = tempfile::tempdir().unwrap();
        let spool = Spool::create(&Output::at(&dir.path().join("t.dat")).unwrap()).unwrap().0;
        let mut pauses = Pauses::default();
        let count = 3 * PAUSES_MAX as u64;
        for number in 1..=count {
            pauses.begin(&spool, 10 * number).unwrap();
            pauses.end(10 * number + 5);
        }
        let spans = pauses.spans().to_vec();
        assert!(spans.len() <= PAUSES_MAX && spans.len() > PAUSES_MAX / 2, "{}", spans.len());
        assert_eq!(read(spool.files()).unwrap().spans, spans);
        for number in 1..=count {
            let (from, to) = (10 * number, Some(10 * number + 5));
            assert!(spans.iter().any(|span| span.from_ns <= from && span.to_ns >= to), "{number}");
        }
        let newest = Pause { from_ns: 10 * count, to_ns: Some(10 * count + 5) };
        assert_eq!((spans.first().unwrap().from_ns, *spans.last().unwrap()), (10, newest));
    }

    #[test]
    fn what_makes_no_sense_is_not_believed() {
        let bytes = |numbers: &[u64]| -> Vec<u8> { numbers.iter().flat_map(|n| n.to_le_bytes()).collect() };
        let first = Pause { from_ns: 10, to_ns: Some(20) };
        assert_eq!(
            decode(&bytes(&[10, 20, 15, 30, 40, 50])).spans,
            [first],
            "it begins before the end of another"
        );
        assert_eq!(decode(&bytes(&[10, 20, 30, 25])).spans, [first], "it ends before it begins");
        assert_eq!(decode(&bytes(&[10, 20, 30])).spans, [first], "half of one");
    }
}
