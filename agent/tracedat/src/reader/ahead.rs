//! Records that are read by a thread of their own, ahead of those who take them.

use std::ops::ControlFlow;
use std::sync::mpsc::{Receiver, SyncSender, channel, sync_channel};
use std::thread;

use super::batch::Batch;
use super::error::ReadError;
use super::merged::{End, Gap, Records};
use super::records::Record;

/// Records and bytes of them that are handed over at once, at most, but for a record that is longer.
const MAX_RECORDS: usize = 4096;
const MAX_BYTES: usize = 256 << 10;
/// Batches that wait for the one who takes them. One more is being filled, one more is being taken.
const WAITING: usize = 2;

/// What a reader comes upon.
#[derive(Debug)]
pub enum Next<'r> {
    /// A record.
    Record(Record<'r>),
    /// Between the last record of a CPU and its next one records are missing.
    Gap(Gap),
    /// The records of a CPU have ended.
    End(End),
    /// A page or chunk is damaged. Its CPU has a gap there.
    Damage(ReadError),
}

/// Calls `take` with the records from this position on, and with gaps, ends and errors in their places, until
/// it has enough or there are no more. Meanwhile another thread reads the next ones.
///
/// `kept` tells how many bytes of a record are wanted: what is behind them is not there when it is taken.
/// Only records whose bytes are wanted are worth more than a few instructions.
pub fn each_record_ahead(
    records: &mut Records<'_>,
    kept: impl Fn(&Record<'_>) -> usize + Send,
    mut take: impl FnMut(Next<'_>) -> ControlFlow<()>,
) {
    let (full, batches) = sync_channel(WAITING);
    let (spare, spares) = channel();
    thread::scope(|scope| {
        scope.spawn(move || read(records, &kept, &full, &spares));
        // Where the loop ends early, the reader has nobody to hand on to, and ends as well.
        for mut batch in batches {
            if batch.each(&mut take).is_break() {
                return;
            }
            batch.records.clear();
            // The reader may be through.
            let _ = spare.send(batch);
        }
    });
}

fn read(
    records: &mut Records<'_>,
    kept: &dyn Fn(&Record<'_>) -> usize,
    full: &SyncSender<Read>,
    spares: &Receiver<Read>,
) {
    loop {
        let mut batch = spares.try_recv().unwrap_or_default();
        let more = batch.fill(records, kept);
        if full.send(batch).is_err() || !more {
            return;
        }
    }
}

/// Some records, one after the other, with their bytes.
#[derive(Default)]
struct Read {
    records: Batch<()>,
    /// What is missing, and how many of the records come before that.
    missing: Vec<(usize, Missing)>,
}

/// What is missing.
enum Missing {
    Gap(Gap),
    End(End),
    Damage(ReadError),
}

impl Read {
    /// Reads records until it is full. Returns whether there may be more.
    fn fill(&mut self, records: &mut Records<'_>, kept: &dyn Fn(&Record<'_>) -> usize) -> bool {
        while self.records.len() + self.missing.len() < MAX_RECORDS && self.records.bytes() < MAX_BYTES {
            let before = self.records.len();
            let next = records.next_record();
            let mut is_over = false;
            // Where it stands: a copy of what was just written takes longer than all else that is done here.
            if let Ok(Some(record)) = &next {
                self.records.push(record, kept(record), ());
            } else {
                match next {
                    Err(error) => self.missing.push((before, Missing::Damage(error))),
                    Ok(_) => is_over = true,
                }
            }
            self.missing.extend(records.ends().map(|end| (before, Missing::End(end))));
            if is_over {
                return false;
            }
            self.missing.extend(records.gaps().map(|gap| (before, Missing::Gap(gap))));
        }
        true
    }

    /// Hands on all of it.
    fn each(&mut self, take: &mut impl FnMut(Next<'_>) -> ControlFlow<()>) -> ControlFlow<()> {
        let next = |missing| match missing {
            Missing::Gap(gap) => Next::Gap(gap),
            Missing::End(end) => Next::End(end),
            Missing::Damage(error) => Next::Damage(error),
        };
        let mut missing = self.missing.drain(..).peekable();
        for (index, (record, ())) in self.records.iter().enumerate() {
            while let Some((_, missing)) = missing.next_if(|(before, _)| *before == index) {
                take(next(missing))?;
            }
            take(Next::Record(record))?;
        }
        missing.try_for_each(|(_, missing)| take(next(missing)))
    }
}
