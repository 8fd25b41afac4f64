//! What is written of an archive, as it comes.

use std::time::{Duration, Instant};

use super::{buffers, parts::Parts};
use crate::follow::{FollowError, Follower};
use crate::{FinishError, Manifest};
use ctf_writer::Taken;
use recording::{ExportError, TraceFile};
use tracedat::ledger::Ledger;
use tracedat::reader::{Clock, Corrections, LiveRecords as _, Reader, Record, Source};

/// How long the state at the start is waited for, which the recorder collects meanwhile: what describes the
/// machine comes from it. The state itself is written whenever it comes.
const STATE_WAIT: Duration = Duration::from_secs(2);
/// Records between two looks at the time.
const STEP: u32 = 1 << 14;

/// When the head of an archive is made, which describes its events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Patience {
    /// It waits for the state of the machine, but not for long.
    Wait,
    /// With what is there: nobody waits any more.
    Now,
    /// The same, and nothing more comes to the archive.
    Over,
}

/// An archive that is read.
#[derive(Debug)]
pub(super) struct Followed {
    pub(super) follower: Follower,
    head: Option<TraceFile>,
    /// Whether the head has the state of the machine.
    has_state: bool,
    /// How many more states were taken.
    later_states: u32,
    since: Instant,
}

/// What there is of an archive when it was looked at.
pub(super) struct Looked {
    /// The head is new: the trace has nothing of the archive yet.
    pub(super) is_first: bool,
    /// The state has come after the head.
    pub(super) has_late_state: bool,
}

impl Followed {
    pub(super) fn new(mut follower: Follower) -> Self {
        follower.leave_out_names();
        let manifest = follower.manifest();
        if !manifest.overwrites() {
            // What others keep in memory comes at the end.
            let stored = buffers(manifest, false);
            follower.select_buffers(stored);
        }
        Self { follower, head: None, has_state: false, later_states: 0, since: Instant::now() }
    }

    /// Looks what there is by now. `None` if what describes it is waited for.
    pub(super) fn look(&mut self, patience: Patience) -> Result<Option<Looked>, FinishError> {
        if patience == Patience::Over {
            self.follower.end_here()?;
        } else {
            self.follower.poll()?;
            self.follower.expect_more(!self.follower.is_complete_in_pause());
        }
        let mut looked = Looked { is_first: false, has_late_state: false };
        if self.has_state {
            return Ok(Some(looked));
        }
        let has_state = self.follower.has_state();
        let is_enough = has_state || patience != Patience::Wait || self.since.elapsed() >= STATE_WAIT;
        if self.head.is_none() && !is_enough {
            return Ok(None);
        }
        if has_state || self.head.is_none() {
            looked.is_first = self.head.is_none();
            looked.has_late_state = !looked.is_first;
            let (bytes, has_state) = self.follower.description()?;
            self.has_state = has_state;
            self.head = Some(head(bytes)?);
        }
        Ok(Some(looked))
    }

    /// Writes the states that were asked for and are there by now, each once.
    pub(super) fn put_states(&mut self, writer: &mut Parts) -> Result<(), ExportError> {
        writer.know_pauses(self.follower.pauses());
        while let Some(state) = self.follower.later_state(self.later_states + 1) {
            self.later_states += 1;
            writer.put_later_state(&state)?;
        }
        Ok(())
    }

    /// Reads again what describes its events. Gives it if it was looked at before.
    pub(super) fn describe(&mut self) -> Result<Option<&TraceFile>, FinishError> {
        self.follower.read_again()?;
        if self.head.is_some() {
            let (bytes, has_state) = self.follower.description()?;
            self.has_state |= has_state;
            self.head = Some(head(bytes)?);
        }
        Ok(self.head.as_ref())
    }

    /// What describes its events, once it was looked at.
    pub(super) fn head(&self) -> Option<&TraceFile> {
        self.head.as_ref()
    }

    /// Writes the records that are known by now, and gives the time from before which no more come.
    /// `meanwhile` is called now and then, and at the end, with that time; if it gives `false`, no more are
    /// written for now, and the result is `None`.
    pub(super) fn write(
        &mut self,
        writer: &mut Parts,
        meanwhile: &mut dyn FnMut(&mut Parts, u64) -> Result<bool, ExportError>,
    ) -> Result<Option<u64>, FinishError> {
        let Self { follower, head: Some(described), .. } = self else { return Ok(None) };
        writer.know_pauses(follower.pauses());
        let streams: Vec<_> = follower.streams().collect();
        writer.open(&streams)?;
        let clock: &Clock = described.clock();
        let looked_until = follower.looked_until();
        let mut reached;
        loop {
            let mut records = follower.records(clock);
            let mut count = 0;
            let unknown = loop {
                match records.next_record() {
                    Ok(Some(record)) => {
                        if writer.record(&record, &streams, described)? == Taken::Unknown {
                            break Some((record.buffer, record.cpu, record.timestamp, record.data.to_vec()));
                        }
                        count += 1;
                        if count % STEP == 0 && !meanwhile(writer, record.timestamp)? {
                            return Ok(None);
                        }
                    }
                    Ok(None) => break None,
                    Err(_) => writer.leave_out_damaged(1),
                }
            };
            reached = records.reached().min(looked_until);
            let Some((buffer, cpu, timestamp, data)) = unknown else { break };
            // Its event may have been added to the recording meanwhile.
            if follower.read_again()? {
                writer.describe(head(follower.description()?.0)?);
            }
            let endian = described.header().endian;
            let record = Record { reader: 0, buffer, cpu, timestamp, missed: None, data: &data, endian };
            if writer.record(&record, &streams, described)? == Taken::Unknown {
                writer.leave_out(1);
            }
        }
        meanwhile(writer, reached)?;
        Ok(Some(reached))
    }

    /// Ends the chunk of the archive.
    pub(super) fn end(&self, writer: &mut Parts, closed: &Closed<'_>) -> Result<(), FinishError> {
        let &Closed { end, ledger, manifest } = closed;
        let Some(head) = &self.head else {
            return Err(FollowError::Empty { path: self.follower.dir().to_owned() }.into());
        };
        let streams: Vec<_> = self.follower.streams().collect();
        Ok(writer.end_chunk((end, ledger), (head, &streams), manifest)?)
    }
}

/// What is known of an archive when it is closed.
pub(super) struct Closed<'a> {
    /// It has nothing from later.
    pub(super) end: u64,
    pub(super) ledger: &'a Ledger,
    /// It says whose sets of rings are, also where nothing was stored.
    pub(super) manifest: &'a Manifest,
}

fn head(bytes: Vec<u8>) -> Result<TraceFile, FinishError> {
    let mut head = Reader::open(Box::new(bytes) as Box<dyn Source>).map_err(ExportError::from)?;
    // The trace's clock says how it stands to wall time.
    head.set_corrections(Corrections::NONE);
    Ok(head)
}
