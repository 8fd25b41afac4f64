//! A recording as a trace of LTTng's layout, written while it goes on.
//!
//! The writer follows the spool, as everybody does who reads a recording meanwhile: the recorder waits for
//! nobody. What the writer has not taken is in the spool, which is removed when all of an archive is in the
//! trace. So a rotation also frees the disk space of the spool.

use std::{
    collections::{HashSet, VecDeque},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use super::{
    FinishError, Finished, Make, Manifest, Recorded,
    archive::{ArchiveName, open_directory},
    follow::{FollowError, Follower},
};
use crate::{
    export::{
        ExportError, NotCarried, TraceFile,
        ctf::{Chunk, Ctf, Shape, Taken, TraceWriter},
        sync_tree,
    },
    output::{Directory, Output, OutputError},
    tracedat::reader::{Clock, LiveRecords as _, Reader, Record, Source},
    utc,
};

/// How often it is looked for new events.
const LOOK: Duration = Duration::from_millis(200);
/// How long the state at the start is waited for, which the recorder collects meanwhile.
const STATE_WAIT: Duration = Duration::from_secs(2);
/// Records between two looks at the time.
const STEP: u32 = 1 << 14;

/// What LTTng calls the directory of closed chunks, and that of the kernel's part of a trace.
const ARCHIVES: &str = "archives";
const KERNEL: &str = "kernel";
/// What LTTng calls snapshots if the user gives them no name: by the number of their output.
const SNAPSHOT: &str = "snapshot-1";

/// How a trace is written.
#[derive(Clone, Copy, Debug)]
pub struct CtfOptions {
    /// The names of events and fields.
    pub naming: Ctf,
    /// Packets and files of streams.
    pub shape: Shape,
    /// How old events become before they can be read; `None` if packets are written when they are full.
    pub flush: Option<Duration>,
    /// How many closed chunks are kept: the newest ones. `None` for all.
    pub keep: Option<usize>,
}

/// The directory of a trace, as LTTng's of a session.
#[derive(Clone, Debug)]
pub struct CtfOutput {
    dir: Directory,
    options: CtfOptions,
}

impl CtfOutput {
    /// Opens the directory, which is created if it is not there.
    ///
    /// # Errors
    /// It cannot be created, or something is in it.
    pub fn create(path: &Path, options: CtfOptions) -> Result<Self, OutputError> {
        let dir = open_directory(path)?;
        if dir.names().map_err(OutputError::io("read", path))?.is_empty() {
            Ok(Self { dir, options })
        } else {
            Err(OutputError::NotEmpty { path: path.to_owned() })
        }
    }

    /// Where `recover` puts what a killed recorder has left: beside the trace that was written by then.
    ///
    /// # Errors
    /// Something has the name.
    pub fn recovered(&self) -> Result<Output, OutputError> {
        Output::in_directory(self.dir.clone(), "trace.dat".into())
    }

    /// What writes the recording, in a [`Finisher`](super::Finisher).
    pub fn recording(&self) -> impl Make + use<> {
        LiveTrace {
            output: self.clone(),
            trace: None,
            followed: None,
            flushed: Instant::now(),
            events: 0,
            archived: VecDeque::new(),
            given_up: None,
        }
    }

    /// What writes its snapshots, each as a trace of its own.
    pub fn snapshots(&self) -> impl Make + use<> {
        Snapshots { output: self.clone(), count: 0 }
    }
}

/// The trace of a recording.
struct LiveTrace {
    output: CtfOutput,
    /// What is written, and the directory of the open chunk if it has one of its own.
    trace: Option<(TraceWriter, Option<String>)>,
    followed: Option<Followed>,
    flushed: Instant,
    /// Events of closed chunks.
    events: u64,
    /// Names of closed chunks, of which some are kept.
    archived: VecDeque<String>,
    /// Why nothing more is written.
    given_up: Option<FinishError>,
}

/// An archive that is read.
struct Followed {
    follower: Follower,
    head: Option<TraceFile>,
    since: Instant,
    begin: u64,
}

impl Followed {
    fn new(mut follower: Follower) -> Self {
        follower.leave_out_names();
        let manifest = follower.manifest();
        if !manifest.overwrites() {
            // What others keep in memory comes at the end.
            let stored = buffers(manifest, false);
            follower.select_buffers(stored);
        }
        let begin = follower.now_ns().unwrap_or(0);
        Self { follower, head: None, since: Instant::now(), begin }
    }

    /// Looks what there is by now, and what describes it. Gives whether there is anything to be written.
    fn look(&mut self, is_over: bool) -> Result<bool, FinishError> {
        if is_over {
            self.follower.end_here()?;
        } else {
            self.follower.poll()?;
        }
        if self.head.is_none() {
            let (bytes, has_state) = self.follower.description()?;
            if has_state || is_over || self.since.elapsed() >= STATE_WAIT {
                self.head = Some(head(bytes)?);
            }
        }
        Ok(self.head.is_some())
    }
}

/// The buffers whose events are kept in memory, or those whose are not.
fn buffers(manifest: &Manifest, overwrite: bool) -> HashSet<String> {
    let channels = manifest.channels.iter().filter(|channel| channel.overwrite == overwrite);
    channels.map(|channel| channel.name.clone()).collect()
}

fn head(bytes: Vec<u8>) -> Result<TraceFile, FinishError> {
    Ok(Reader::open(Box::new(bytes) as Box<dyn Source>).map_err(ExportError::from)?)
}

impl Make for LiveTrace {
    fn follow(&mut self, follower: Follower) {
        self.followed = Some(Followed::new(follower));
    }

    fn meanwhile(&mut self) -> Option<Duration> {
        if self.given_up.is_some() {
            return None;
        }
        if let Err(error) = self.tail(false) {
            // The recording goes on, and is in its spool.
            self.given_up = Some(error);
            self.followed = None;
        }
        Some(LOOK)
    }

    fn make(&mut self, recorded: Recorded, is_last: bool) -> Result<Finished, FinishError> {
        let made = match self.given_up.take() {
            Some(error) => Err(error),
            None => self.close(recorded, is_last),
        };
        self.followed = None;
        if let Err(error) = &made {
            let text = format!("nothing more is written to this trace, after: {error}");
            self.given_up = Some(ExportError::Unsupported(text).into());
        }
        made
    }
}

impl LiveTrace {
    /// Writes what there is by now.
    fn tail(&mut self, is_over: bool) -> Result<(), FinishError> {
        let Some(followed) = &mut self.followed else { return Ok(()) };
        let had_head = followed.head.is_some();
        if !followed.look(is_over)? {
            return Ok(());
        }
        let Followed { follower, head: Some(head), begin, .. } = followed else { return Ok(()) };
        if !had_head {
            let name = follower.manifest().archive.filter(|name| name.number > 1);
            let name = name.map(|name| format!("{}-{}", utc::compact(name.begin_ns), name.number - 1));
            let dir = self.output.chunk(name.as_deref())?;
            let chunk = Chunk { dir: &dir, indexed: true };
            if let Some((writer, at)) = &mut self.trace {
                writer.next_chunk(chunk, head)?;
                *at = name;
            } else {
                let CtfOptions { naming, shape, .. } = self.output.options;
                self.trace = Some((TraceWriter::create(naming, shape, (head, *begin), chunk)?, name));
            }
        }
        let Some((writer, _)) = &mut self.trace else { return Ok(()) };
        writer.open(follower.streams())?;
        let every = self.output.options.flush;
        take(follower, head, writer, &mut |writer| match every {
            Some(every) if self.flushed.elapsed() >= every => {
                self.flushed = Instant::now();
                writer.flush()
            }
            _ => Ok(()),
        })
    }

    /// Writes the rest of an archive, and removes its spool.
    fn close(&mut self, recorded: Recorded, is_last: bool) -> Result<Finished, FinishError> {
        let Recorded { spool, manifest, stats, .. } = recorded;
        if self.followed.is_none() {
            self.follow(Follower::of_spool(&spool)?);
        }
        self.tail(true)?;
        let fell_behind = self.followed.as_ref().map_or(0, |followed| followed.follower.fell_behind());
        let Some((writer, at)) = &mut self.trace else {
            return Err(FollowError::Empty { path: spool.dir().to_owned() }.into());
        };
        let in_memory = buffers(&manifest, true);
        if !manifest.overwrites() && !in_memory.is_empty() {
            let mut rest = Followed::new(Follower::of_spool(&spool)?);
            rest.follower.select_buffers(in_memory);
            rest.look(true)?;
            take_all(&mut rest, writer)?;
        }
        let ledger =
            stats.ledger(&manifest.clock_name, manifest.realtime_offset, manifest.realtime_uncertainty);
        writer.end_chunk(stats.covered.map_or(0, |(_, to)| to), &ledger)?;
        let events = writer.events() - self.events;
        self.events = writer.events();
        let mut notes = notes(&writer.take_not_carried());
        if fell_behind != 0 {
            notes.push(format!(
                "{fell_behind} events are not in the trace: the recording's size limit removed them before they were written"
            ));
        }
        let stored = stats.stored_events();
        if events != stored && fell_behind == 0 && stats.cpus.iter().all(|cpu| cpu.stored.capped_events == 0)
        {
            notes.push(format!("{events} events are in the trace, of {stored} that were stored"));
        }
        let dir = match at {
            Some(name) => self
                .output
                .dir
                .open_dir(&*name)
                .map_err(ExportError::io("open", self.output.dir.join(&*name))),
            None => Ok(self.output.dir.clone()),
        }?;
        let kernel = dir.open_dir(KERNEL).map_err(ExportError::io("open", dir.join(KERNEL)))?;
        let file_bytes = sync_tree(&kernel)?;
        let archive = manifest.archive.filter(|name| name.number > 1 || !is_last);
        let path = match archive {
            Some(name) => self.output.archive(at.take(), name, &mut self.archived)?,
            None => self.output.dir.path().to_owned(),
        };
        spool.remove()?;
        Ok(Finished { path, file_bytes, stats, notes })
    }
}

impl CtfOutput {
    /// The directory of a chunk: the first one has that of the trace.
    fn chunk(&self, name: Option<&str>) -> Result<Directory, ExportError> {
        match name {
            Some(name) => self.dir.create_dir(name).map_err(ExportError::io("create", self.dir.join(name))),
            None => Ok(self.dir.clone()),
        }
    }

    /// Brings a closed chunk to the others, under the name that LTTng gives it.
    fn archive(
        &self,
        from: Option<String>,
        name: ArchiveName,
        archived: &mut VecDeque<String>,
    ) -> Result<PathBuf, ExportError> {
        let archives = match self.dir.create_dir(ARCHIVES) {
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => self.dir.open_dir(ARCHIVES),
            created => created,
        };
        let archives = archives.map_err(ExportError::io("create", self.dir.join(ARCHIVES)))?;
        let end = name.end_ns.unwrap_or(name.begin_ns);
        let closed = format!(
            "{}-{}-{}",
            utc::compact(name.begin_ns),
            utc::compact(end),
            name.number.saturating_sub(1)
        );
        let path = archives.join(&closed);
        let moved = match from {
            Some(open) => self.dir.rename_new(open.as_ref(), &archives, closed.as_ref()),
            None => archives
                .create_dir(&closed)
                .and_then(|to| self.dir.rename_new(KERNEL.as_ref(), &to, KERNEL.as_ref())),
        };
        moved.map_err(ExportError::io("move a closed chunk to", &path))?;
        archived.push_back(closed);
        while self.options.keep.is_some_and(|keep| archived.len() > keep) {
            let Some(oldest) = archived.pop_front() else { break };
            // Somebody may have taken it away already.
            if let Ok(dir) = archives.open_dir(&oldest) {
                let _ = archives.remove_tree(&oldest, &dir);
            }
        }
        Ok(path)
    }
}

/// Writes all that is known of the records.
fn take_all(followed: &mut Followed, writer: &mut TraceWriter) -> Result<(), FinishError> {
    let Followed { follower, head: Some(head), .. } = followed else { return Ok(()) };
    writer.open(follower.streams())?;
    take(follower, head, writer, &mut |_| Ok(()))
}

/// The same, with a word in between and at the end.
fn take(
    follower: &mut Follower,
    described: &TraceFile,
    writer: &mut TraceWriter,
    meanwhile: &mut dyn FnMut(&mut TraceWriter) -> Result<(), ExportError>,
) -> Result<(), FinishError> {
    let clock: &Clock = described.clock();
    loop {
        let mut records = follower.records(clock);
        let mut count = 0;
        let unknown = loop {
            match records.next_record() {
                Ok(Some(record)) => {
                    if writer.record(&record)? == Taken::Unknown {
                        break Some((record.buffer, record.cpu, record.timestamp, record.data.to_vec()));
                    }
                    count += 1;
                    if count % STEP == 0 {
                        meanwhile(writer)?;
                    }
                }
                Ok(None) => break None,
                Err(_) => writer.leave_out_damaged(1),
            }
        };
        let Some((buffer, cpu, timestamp, data)) = unknown else { break };
        // Its event may have been added to the recording meanwhile.
        if follower.read_again()? {
            writer.describe(&head(follower.description()?.0)?)?;
        }
        let endian = described.header().endian;
        let record = Record { reader: 0, buffer, cpu, timestamp, missed: None, data: &data, endian };
        if writer.record(&record)? == Taken::Unknown {
            writer.leave_out(1);
        }
    }
    Ok(meanwhile(writer)?)
}

/// What the user should know of what the layout has no place for.
fn notes(not_carried: &NotCarried) -> Vec<String> {
    not_carried.iter().map(|(what, count)| format!("not in the trace: {count} {what}")).collect()
}

/// Snapshots, each in a directory of its own.
struct Snapshots {
    output: CtfOutput,
    count: u64,
}

impl Make for Snapshots {
    fn make(&mut self, recorded: Recorded, _is_last: bool) -> Result<Finished, FinishError> {
        let Recorded { spool, manifest, stats, .. } = recorded;
        let mut followed = Followed::new(Follower::of_spool(&spool)?);
        followed.look(true)?;
        let end = stats.covered.map_or(followed.begin, |(_, to)| to);
        let taken = utc::compact(end.saturating_add_signed(manifest.realtime_offset));
        // `20260302T101500+0000` as `20260302-101500`.
        let taken = taken.replace('T', "-").replace("+0000", "");
        let name = format!("{SNAPSHOT}-{taken}-{}", self.count);
        let dir = self.output.chunk(Some(&name))?;
        let Some(head) = &followed.head else {
            return Err(FollowError::Empty { path: spool.dir().to_owned() }.into());
        };
        let CtfOptions { naming, shape, .. } = self.output.options;
        let begin = stats.covered.map_or(0, |(from, _)| from);
        let chunk = Chunk { dir: &dir, indexed: false };
        let mut writer = TraceWriter::create(naming, shape, (head, begin), chunk)?;
        self.count += 1;
        take_all(&mut followed, &mut writer)?;
        let ledger =
            stats.ledger(&manifest.clock_name, manifest.realtime_offset, manifest.realtime_uncertainty);
        writer.end_chunk(end, &ledger)?;
        let notes = notes(&writer.take_not_carried());
        let file_bytes = sync_tree(&dir)?;
        spool.remove()?;
        Ok(Finished { path: self.output.dir.join(&name), file_bytes, stats, notes })
    }
}
