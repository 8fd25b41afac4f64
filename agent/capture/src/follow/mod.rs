//! Reading a recording while it goes on, out of its spool.
//!
//! Whoever follows only reads: nothing in the spool is created, written or locked, and nobody is woken. The
//! recorder does not know of it. The spool may be another user's, so that nothing in it is believed, and all
//! of it is opened below the directory's descriptor.
//!
//! | file | subject |
//! |---|---|
//! | `stream` | the records of one CPU in a channel, as far as they are there |
//! | `pages` | those of pages in memory |
//! | `merged` | those of all streams in the order of time, as far as that is known |
//! | `horizon` | up to when the records of a CPU are known |
//! | `head` | what describes the events: a trace file without data |
//! | `finished` | the file that the recording became |

mod finished;
pub(super) mod head;
mod horizon;
mod merged;
pub(super) mod pages;
mod stream;

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    ffi::{OsStr, OsString},
    fs::File,
    io::{self, Read as _},
    os::unix::fs::{FileExt as _, MetadataExt as _},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use self::{finished::FinishedFile, merged::Merged, stream::CpuStream};
pub use self::{head::HeadError, merged::LiveStream};
use super::{
    Manifest, RecordedChannel, Spool, SpoolError, StreamId,
    counts::{Noted, Stage},
    names,
    pauses::{self, NotedPauses},
    spool::{LOCK, find, output_of, parse_segment},
    state, symbols,
    user_symbols::LiveSymbols,
};
use ftrace_event::{Cmdlines, Printer};
use kernel::clock::ReadClock as _;
use report::TraceFile;
use spec::TraceClock;
use stdx::output::{Directory, Identity};
use tracedat::initial_state::InitialState;
use tracedat::ledger::{EventChoice, Pause};
use tracedat::reader::Clock;

/// The longest manifest that is read: many times that of a kernel's formats.
const MANIFEST_MAX: u64 = 64 << 20;
/// Most of the journal of names that is read at once.
const NAMES_STEP: usize = 1 << 20;
/// Linux has no thread ids above (`PID_MAX_LIMIT` of include/linux/threads.h).
const PID_MAX: u32 = 4 << 20;
/// How long nothing changes in the spool before it is asked whether its recorder is still there. Readers note
/// what they see once a second, unless the user has told them otherwise.
const QUIET: Duration = Duration::from_secs(2);
/// How long symbols are waited for that the events print: the kernel needs a while to list them.
const SYMBOLS_WAIT: Duration = Duration::from_secs(5);
/// The same for what processes have mapped: the recorder needs a while to note it. Later it is not waited
/// for, as there are addresses in stacks that are in no mapping.
const MAPPINGS_WAIT: Duration = Duration::from_secs(2);
/// The same for what the recorder sees of the machine when it begins.
const STATE_WAIT: Duration = Duration::from_secs(2);
/// How often it is looked for what the recorder has not written yet.
const AGAIN: Duration = Duration::from_millis(50);

/// Why a recording cannot be followed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FollowError {
    /// A file of the spool.
    #[error("{source}{}", permission_hint(.source))]
    Spool {
        /// The reason.
        #[from]
        source: SpoolError,
    },
    /// What describes the events.
    #[error("{path} is damaged: {source}", path = .path.display())]
    Head {
        /// The manifest.
        path: PathBuf,
        /// What is wrong.
        source: HeadError,
    },
    /// An archive of a recording that rotates.
    #[error(
        "{path} is one of several files of a recording, which is closed and goes on in the next one: it cannot be followed; \
         the closed files in its directory can be read",
        path = .path.display()
    )]
    Archive {
        /// The spool.
        path: PathBuf,
    },
    /// Nobody records there.
    #[error("{path} has no recording in it, and no recorder", path = .path.display())]
    Empty {
        /// The spool.
        path: PathBuf,
    },
}

fn permission_hint(error: &SpoolError) -> &'static str {
    match error {
        SpoolError::Io { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => {
            "; a spool can be read by the user that records, and by root"
        }
        _ => "",
    }
}

/// How a recording is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// It goes on.
    Recording,
    /// It came to its end, and its file is in its place.
    Finished,
    /// It came to its end; the file has another place, or none.
    Gone,
    /// Its recorder is not there any more, and has left the spool.
    Left,
}

/// A recording that is followed.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub struct Follower {
    parent: Directory,
    name: OsString,
    files: Directory,
    identity: Identity,
    manifest: Manifest,
    /// The file with it that was read again last.
    manifest_read: Option<Stamp>,
    counts: File,
    stage: Stage,
    progress: Progress,
    changed: Changed,
    names: Names,
    opened: Instant,
    /// Whether the kernel's symbols were given.
    has_symbols: bool,
    /// Ids of the events that print symbols.
    print_symbols: HashSet<u16>,
    merged: Merged,
    /// The buffers that are followed; `None` for all.
    buffers: Option<HashSet<String>>,
    /// Whether what channels keep in memory is stored by now, too.
    is_stored: bool,
    /// Whether this process records it: then it goes on until it is told otherwise.
    is_own: bool,
    /// Whether something may come to what is stored.
    expects_more: bool,
    /// Records from before this time are given: no pause is known that begins later.
    pauses_until: u64,
    /// Whether the streams are known.
    has_streams: bool,
    /// Up to when the journal of names has what is to be known of them.
    named_until: u64,
    /// The last notes of the streams whose reader collects names.
    names_noted: BTreeMap<StreamId, u64>,
    pauses: Vec<Pause>,
    /// Whether the last one goes on, and all records from before it are stored.
    is_complete_in_pause: bool,
    finished: Option<FinishedFile>,
}

/// Symbols that became known, as lines of `/proc/kallsyms`.
#[derive(Clone, Debug, Default)]
pub struct NewSymbols {
    /// Those of the kernel; of a recording that came to its end, all of its file.
    pub kernel: Option<Vec<u8>>,
    /// All of addresses in user stacks that are known by now.
    pub user: Option<Vec<u8>>,
}

/// When something changed last.
#[derive(Debug)]
struct Changed {
    last: Option<Noted>,
    at: Instant,
}

/// The journal of names, as far as it was read.
#[derive(Debug)]
struct Names {
    file: Option<File>,
    at: u64,
    new: BTreeMap<u32, Vec<u8>>,
    /// Whether nobody looks at them.
    is_unwanted: bool,
}

impl Follower {
    /// Opens the recording that `path` names: its spool, or the file that it will become. `None` if there is
    /// no spool.
    ///
    /// Waits until the recorder has written what describes its events.
    ///
    /// # Errors
    /// The spool cannot be read, or it does not make sense.
    pub fn open(path: &Path) -> Result<Option<Self>, FollowError> {
        // What is wrong with a path is for whoever opens the file to say.
        let Ok((parent, name)) = find(path) else { return Ok(None) };
        let dir = parent.join(&name);
        let failed = |action: &'static str| SpoolError::io(action, &dir);
        let files = match parent.open_dir(&name) {
            Ok(files) => files,
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                return Ok(None);
            }
            Err(error) => return Err(failed("open")(error).into()),
        };
        let identity = files.identity().map_err(failed("look at"))?;
        let is_there = || parent.has(&name, identity).unwrap_or(false);
        let Some(started) = wait_for_start(&files, is_there)? else {
            // It ended in the meantime, or never began.
            return if is_there() { Err(FollowError::Empty { path: dir }) } else { Ok(None) };
        };
        if started.0.archive.is_some() {
            return Err(FollowError::Archive { path: dir });
        }
        Ok(Some(Self::start((parent, name), (files, identity), started)))
    }

    /// The recording in a spool of this process, also one that is an archive, or whose recording has ended.
    ///
    /// # Errors
    /// The spool cannot be read.
    pub(super) fn of_spool(spool: &Spool) -> Result<Self, FollowError> {
        let files = spool.files().clone();
        let identity = files.identity().map_err(SpoolError::io("look at", files.path()))?;
        // It is there.
        let started = wait_for_start(&files, || false)?;
        let started = started.ok_or_else(|| FollowError::Empty { path: files.path().to_owned() })?;
        let named = (spool.parent().clone(), spool.name().to_owned());
        Ok(Self { is_own: true, ..Self::start(named, (files, identity), started) })
    }

    fn start(
        (parent, name): (Directory, OsString),
        (files, identity): (Directory, Identity),
        (manifest, counts): (Manifest, File),
    ) -> Self {
        let merged = Merged::new(manifest.compression, LiveSymbols::of(&manifest, &files));
        Self {
            parent,
            name,
            files,
            identity,
            manifest,
            manifest_read: None,
            counts,
            stage: Stage::Recording,
            progress: Progress::Recording,
            changed: Changed { last: None, at: Instant::now() },
            names: Names { file: None, at: 0, new: BTreeMap::new(), is_unwanted: false },
            opened: Instant::now(),
            has_symbols: false,
            print_symbols: HashSet::new(),
            merged,
            buffers: None,
            is_stored: false,
            is_own: false,
            expects_more: true,
            pauses_until: 0,
            has_streams: false,
            named_until: 0,
            names_noted: BTreeMap::new(),
            pauses: Vec::new(),
            is_complete_in_pause: false,
            finished: None,
        }
    }

    /// The spool's directory, for messages.
    pub fn dir(&self) -> &Path {
        self.files.path()
    }

    /// The spool.
    pub(super) fn files(&self) -> &Directory {
        &self.files
    }

    /// The events of the recording, in a trace file without data that is in memory.
    ///
    /// # Errors
    /// The manifest does not make sense.
    pub fn head(&mut self) -> Result<TraceFile<Vec<u8>>, FollowError> {
        self.head_with(None)
    }

    /// The same with the threads, open files and devices that the recorder saw when it began. Waits until it
    /// has seen them; without them if that takes long, or if it cannot store them.
    ///
    /// # Errors
    /// The manifest does not make sense.
    pub fn head_with_state(&mut self) -> Result<TraceFile<Vec<u8>>, FollowError> {
        let begun = Instant::now();
        loop {
            // What came to its end does not get them any more.
            let may_come = begun.elapsed() < STATE_WAIT && self.is_there()? && is_held(&self.files)?;
            let state = state::of(&self.files);
            if state.is_some() || !may_come {
                return self.head_with(state);
            }
            std::thread::sleep(AGAIN);
        }
    }

    /// What describes the recording, as a trace file without data, with the state if that is there by now.
    /// Gives whether it is.
    ///
    /// # Errors
    /// The manifest does not make sense.
    pub(super) fn description(&mut self) -> Result<(Vec<u8>, bool), FollowError> {
        let state = state::of(&self.files);
        let has_state = state.is_some();
        let bytes = head::bytes(&self.manifest, state)
            .map_err(|error| FollowError::Head { path: self.files.join("manifest"), source: error.into() })?;
        Ok((bytes, has_state))
    }

    fn head_with(&mut self, state: Option<Vec<u8>>) -> Result<TraceFile<Vec<u8>>, FollowError> {
        let failed = |source: HeadError| FollowError::Head { path: self.files.join("manifest"), source };
        let bytes = head::bytes(&self.manifest, state).map_err(|error| failed(error.into()))?;
        let name = self.files.path().display().to_string();
        let file = TraceFile::open(&name, bytes).map_err(|error| failed(error.into()))?;
        let formats = file.events().iter().map(Printer::format);
        self.print_symbols =
            formats.filter(|format| format.prints_symbols()).map(|format| format.id).collect();
        Ok(file)
    }

    /// What time it is by the clock of the recording, in nanoseconds. `None` if this machine cannot tell.
    pub fn now_ns(&self) -> Option<u64> {
        self.manifest.clock_name.parse().ok().map(TraceClock::now_ns)
    }

    /// Follows only these CPUs from now on.
    pub fn select_cpus(&mut self, cpus: HashSet<u32>) {
        self.merged.select(cpus);
    }

    /// Follows only these buffers from now on, by name.
    pub fn select_buffers(&mut self, names: HashSet<String>) {
        self.buffers = Some(names);
    }

    /// Whether the recorder keeps the newest events in memory, and stores them when it ends.
    pub fn is_overwriting(&self) -> bool {
        self.manifest.overwrites()
    }

    /// The channels of which it is so, while others are stored meanwhile. Their events are in the file only.
    pub fn not_followed(&self) -> impl Iterator<Item = &str> {
        let is_wanted = |name: &str| self.buffers.as_ref().is_none_or(|names| names.contains(name));
        let channels = self.manifest.channels.iter().filter(|channel| channel.overwrite);
        let channels = channels.filter(|_| !self.is_overwriting()).map(|channel| channel.name.as_str());
        channels.filter(move |name| is_wanted(name))
    }

    /// Events that a size limit removed before they could be read.
    pub fn fell_behind(&self) -> u64 {
        self.merged.fell_behind()
    }

    /// Events that came after others with later times had been given.
    pub fn late(&self) -> u64 {
        self.merged.late
    }

    /// Events that were recorded and are in nothing that can be read, as far as the recorder has counted.
    pub fn unread(&self) -> u64 {
        let noted = self.changed.last.iter().flat_map(|noted| &noted.notes);
        noted.map(|(stream, note)| self.merged.unread(*stream, note.events)).sum()
    }

    /// The finished file, for whoever wants to read it from its beginning.
    pub fn take_finished(&mut self) -> Option<File> {
        self.finished.take()?.into_file()
    }

    /// When the recording was paused, by its clock, as far as is known by now: a pause that goes on has no
    /// end. No record from behind a pause is given before the pause is here.
    pub fn pauses(&self) -> &[Pause] {
        &self.pauses
    }

    /// Whether it is paused, and all records from before the pause are stored.
    pub(super) fn is_complete_in_pause(&self) -> bool {
        self.is_complete_in_pause
    }

    /// Which threads and CPUs are recorded, as the ledger of the file will have it.
    pub fn only(&self) -> &[String] {
        &self.manifest.only
    }

    /// The events that are recorded from the beginning on, and those of which not each firing is recorded, or
    /// that of more threads than others, as a ledger without counts would have them.
    pub fn choices(&self) -> &[EventChoice] {
        &self.manifest.choices
    }

    /// Looks at what there is by now.
    ///
    /// # Errors
    /// The spool cannot be read.
    pub fn poll(&mut self) -> Result<Progress, FollowError> {
        if self.progress != Progress::Recording {
            return Ok(self.progress);
        }
        // First: if it is gone, all that is read from here on is the last.
        let is_gone = !self.is_own && !self.is_there()?;
        self.read_notes()?;
        // After the notes, which say how complete they are.
        self.names.read(&self.files).map_err(SpoolError::io("read", self.files.join("names")))?;
        if is_gone {
            return Ok(self.finish());
        }
        // Of what comes to the data from here on, some may be from behind a pause that is not read here. The
        // notes are older than this, in whichever namespace the recorder's clock is (time_namespaces(7)).
        self.pauses_until = self.newest_note().max(self.now_ns().unwrap_or(u64::MAX));
        NotedPauses { spans: self.pauses, is_complete: self.is_complete_in_pause } =
            pauses::read(&self.files)?;
        let is_quiet = !self.is_own && self.changed.at.elapsed() >= QUIET;
        let is_left = is_quiet && !is_held(&self.files)? && self.is_there()?;
        if self.has_streams {
            self.merged.go_on(&self.files, self.changed.last.as_ref())?;
        } else if is_left || !self.is_overwriting() {
            self.find_streams(is_left)?;
        }
        if is_left {
            self.progress = Progress::Left;
            self.merged.end();
        }
        Ok(self.progress)
    }

    /// The records that are there by now, in the order of time.
    pub fn records<'a>(&'a mut self, clock: &'a Clock) -> LiveStream<'a> {
        let goes_on = self.progress == Progress::Recording && self.expects_more;
        let is_named = self.names.is_unwanted || !goes_on || self.stage >= Stage::Counted;
        let until = if is_named { u64::MAX } else { self.named_until };
        // Records from behind the end of a pause may be stored meanwhile.
        let is_open = self.progress == Progress::Recording;
        let until = if is_open { until.min(self.pauses_until) } else { until };
        let unmapped = self.merged.user.as_ref().is_some_and(LiveSymbols::has_unmapped);
        let since = self.opened.elapsed();
        let waits = !self.has_symbols && since < SYMBOLS_WAIT || unmapped && since < MAPPINGS_WAIT;
        let waits = waits && goes_on;
        self.merged.records(clock, until, waits.then_some(&self.print_symbols), goes_on)
    }

    /// When it was looked at last, by the clock of the recording: of later records some may be there, and of
    /// earlier ones none is missing in a pause.
    pub(super) fn looked_until(&self) -> u64 {
        self.pauses_until
    }

    /// Whether there are more records now, which wait for symbols that can be taken.
    pub fn has_new_symbols(&self) -> bool {
        self.merged.has_new_frames()
    }

    /// Names of threads that became known.
    pub fn take_names(&mut self) -> BTreeMap<u32, Vec<u8>> {
        std::mem::take(&mut self.names.new)
    }

    /// Symbols that became known.
    pub fn take_symbols(&mut self) -> NewSymbols {
        let mut new = NewSymbols::default();
        if !self.has_symbols {
            new.kernel = match &self.finished {
                Some(finished) => {
                    // It has both.
                    new.user = Some(Vec::new());
                    Some(finished.symbols())
                }
                None => symbols::so_far(&self.files, &self.manifest.host.boot_id),
            };
            self.has_symbols = new.kernel.is_some();
        }
        if let Some(user) = &mut self.merged.user
            && user.resolve(&self.files)
        {
            new.user = Some(user.lines());
        }
        new
    }

    /// Says whether something may come to what is stored. In a pause that is not so: all records that are
    /// there are given, whatever is known of other CPUs.
    pub(super) fn expect_more(&mut self, expects: bool) {
        self.expects_more = expects;
    }

    /// Whether the state of the machine is there by now.
    pub(super) fn has_state(&self) -> bool {
        state::of(&self.files).is_some()
    }

    fn newest_note(&self) -> u64 {
        let notes = self.changed.last.iter().flat_map(|noted| noted.notes.values());
        notes.map(|note| note.time).max().unwrap_or(0)
    }

    /// Takes the recording for ended: all that there will be is in the spool.
    ///
    /// # Errors
    /// The spool cannot be read.
    pub fn end_here(&mut self) -> Result<(), FollowError> {
        if self.progress != Progress::Recording {
            return Ok(());
        }
        self.read_notes()?;
        self.names.read(&self.files).map_err(SpoolError::io("read", self.files.join("names")))?;
        self.is_stored = true;
        if self.has_streams {
            self.merged.go_on(&self.files, self.changed.last.as_ref())?;
        } else {
            self.find_streams(true)?;
        }
        self.progress = Progress::Left;
        self.merged.end();
        Ok(())
    }

    /// A later state of the machine, which are counted from 1 on, if it is there by now.
    pub(super) fn later_state(&self, number: u32) -> Option<InitialState> {
        state::later(&self.files, number)
    }

    /// Reads what describes the events again, if the recorder has changed it since. Gives whether it has.
    ///
    /// # Errors
    /// It does not make sense.
    pub(super) fn read_again(&mut self) -> Result<bool, FollowError> {
        let Some(file) = open(&self.files, "manifest")? else { return Ok(false) };
        let stamp = Stamp::of(&file).map_err(SpoolError::io("look at", self.files.join("manifest")))?;
        if self.manifest_read.replace(stamp) == Some(stamp) {
            return Ok(false);
        }
        let manifest = read_manifest(file, &self.files.join("manifest"))?;
        let is_new = manifest.systems != self.manifest.systems;
        self.manifest.systems = manifest.systems;
        self.manifest.only = manifest.only;
        self.manifest.choices = manifest.choices;
        self.manifest.realtime_offset = manifest.realtime_offset;
        self.manifest.realtime_uncertainty = manifest.realtime_uncertainty;
        Ok(is_new)
    }

    /// What describes the recording, as far as it was read.
    pub(super) fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// The streams that are followed, each with its buffer and CPU; none as long as not all are known.
    pub(super) fn streams(&self) -> impl Iterator<Item = (usize, u32)> {
        self.merged.streams()
    }

    /// Keeps the chunks of data that are read, for [`LiveStream::chunks_before`] and
    /// [`Follower::take_chunks`].
    pub(super) fn keep_chunks(&mut self) {
        self.merged.keep_chunks();
    }

    /// All chunks that were read and not taken, with their streams.
    pub(super) fn take_chunks(&mut self) -> Vec<(StreamId, Vec<Vec<u8>>)> {
        self.merged.take_chunks()
    }

    /// Ids of the events that print symbols, once the head was asked for.
    pub(super) fn print_symbols(&self) -> &HashSet<u16> {
        &self.print_symbols
    }

    /// The finished file, and where in it each stream's chunks or pages are, in the order of the file.
    pub(super) fn finished_layout(&self) -> Option<finished::Layout> {
        self.finished.as_ref().map(FinishedFile::layout)
    }

    /// Waits for no symbols, and for no names of threads: nobody looks at them.
    pub(super) fn leave_out_names(&mut self) {
        self.leave_out_user_symbols();
        self.has_symbols = true;
        self.names.is_unwanted = true;
    }

    /// Finds no names for the frames of processes from now on: nobody looks at them.
    pub fn leave_out_user_symbols(&mut self) {
        self.merged.user = None;
    }

    fn is_there(&self) -> Result<bool, SpoolError> {
        self.parent
            .has(&self.name, self.identity)
            .map_err(SpoolError::io("look for", self.parent.join(&self.name)))
    }

    fn read_notes(&mut self) -> Result<(), SpoolError> {
        let path = || self.files.join("counts");
        let noted = Noted::read(&self.counts).map_err(SpoolError::io("read", path()))?;
        let Some(noted) = noted else {
            return Err(SpoolError::Damaged { path: path(), what: "it has no notes".to_owned() });
        };
        if self.changed.last.as_ref() == Some(&noted) {
            return Ok(());
        }
        self.stage = noted.stage;
        let by_first = noted.notes.iter().filter(|(stream, _)| noted.first_cpus.contains(&stream.cpu));
        for (stream, note) in by_first {
            let before = self.names_noted.entry(*stream).or_default();
            if note.time > *before {
                // Names are collected between two notes of a stream: those from before the first are there by
                // the second.
                self.named_until = self.named_until.max(*before);
                *before = note.time;
            }
        }
        self.changed = Changed { last: Some(noted), at: Instant::now() };
        Ok(())
    }

    /// Finds the streams that are recorded, if all of them are there, or `any` will do.
    fn find_streams(&mut self, any: bool) -> Result<(), SpoolError> {
        let mut streams = BTreeSet::new();
        for name in self.files.names().map_err(SpoolError::io("list", self.dir()))? {
            streams.extend(name.to_str().and_then(parse_segment).map(|(stream, _)| stream));
        }
        // Each stream gets its first segment before its reader writes the first note.
        let noted = self.changed.last.as_ref().filter(|noted| !noted.first_cpus.is_empty());
        self.has_streams = any || noted.is_some_and(|noted| streams.len() >= noted.stream_count);
        if self.has_streams {
            let last = self.changed.last.as_ref();
            self.merged.start(followed((&self.manifest, self.buffers.as_ref(), self.is_stored), streams));
            self.merged.go_on(&self.files, last)?;
        }
        Ok(())
    }

    /// The spool has lost its name: the file is in its place.
    fn finish(&mut self) -> Progress {
        let name = output_of(&self.name);
        let file = name.and_then(|name| FinishedFile::open(&self.parent, &name, &self.manifest));
        if let Some(file) = &file {
            if !self.is_overwriting() {
                if !self.has_streams {
                    self.merged.start(followed(
                        (&self.manifest, self.buffers.as_ref(), self.is_stored),
                        file.streams(),
                    ));
                }
                self.merged.continue_in(file);
            }
            self.names.take(file.names());
            self.pauses = file.pauses();
            // Its symbols are those of all stacks.
            (self.has_symbols, self.merged.user) = (false, None);
        }
        self.progress = if file.is_some() { Progress::Finished } else { Progress::Gone };
        self.finished = file;
        self.merged.end();
        self.progress
    }
}

/// What tells a file from one that has replaced it, also if it has got the number of its inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    identity: Identity,
    changed: (i64, i64),
    len: u64,
}

impl Stamp {
    fn of(file: &File) -> io::Result<Self> {
        let found = file.metadata()?;
        let changed = (found.ctime(), found.ctime_nsec());
        Ok(Self { identity: Identity::of_file(file)?, changed, len: found.len() })
    }
}

/// The streams that are followed, each with its buffer in the trace file. Without `all` not those whose
/// events stay in memory until the end, which would hold up all others.
fn followed(
    (manifest, wanted, all): (&Manifest, Option<&HashSet<String>>, bool),
    streams: impl IntoIterator<Item = StreamId>,
) -> impl Iterator<Item = (StreamId, usize)> {
    let all = all || manifest.overwrites();
    streams.into_iter().filter_map(move |stream| {
        let is_its = |channel: &RecordedChannel| {
            let is_wanted = wanted.is_none_or(|names| names.contains(&channel.name));
            channel.number == stream.channel && (all || !channel.overwrite) && is_wanted
        };
        let buffer = manifest.buffers().position(|(_, channel)| channel.is_some_and(is_its))?;
        Some((stream, buffer))
    })
}

impl Names {
    /// Reads what has come to the journal.
    fn read(&mut self, files: &Directory) -> io::Result<()> {
        if self.is_unwanted {
            return Ok(());
        }
        if self.file.is_none() {
            self.file = match files.open_file("names") {
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
                file => Some(file?),
            };
        }
        let Some(file) = &self.file else { return Ok(()) };
        let mut bytes = vec![0; NAMES_STEP / names::ENTRY * names::ENTRY];
        loop {
            let mut len = 0;
            while len < bytes.len() {
                match file.read_at(&mut bytes[len..], self.at + len as u64) {
                    Ok(0) => break,
                    Ok(more) => len += more,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => return Err(error),
                }
            }
            let whole = len / names::ENTRY * names::ENTRY;
            for (tid, comm) in names::entries(&bytes[..whole]) {
                // Thread 0 is left to readers, as in the file.
                if (1..PID_MAX).contains(&tid) {
                    let len = comm.iter().position(|byte| *byte == 0).unwrap_or(comm.len());
                    self.new.insert(tid, comm[..len].to_vec());
                }
            }
            self.at += whole as u64;
            if whole < bytes.len() {
                return Ok(());
            }
        }
    }

    fn take(&mut self, names: &Cmdlines) {
        self.new.extend(names.iter().map(|(tid, name)| (tid, name.to_vec())));
    }
}

/// Whether a process holds a spool.
fn is_held(files: &Directory) -> Result<bool, SpoolError> {
    let holder = files.lock_holder(LOCK).map_err(SpoolError::io("find the recorder of", files.path()))?;
    Ok(holder.is_some())
}

/// Waits until there are a manifest and counts. `None` if there will be none.
fn wait_for_start(
    files: &Directory,
    is_there: impl Fn() -> bool,
) -> Result<Option<(Manifest, File)>, SpoolError> {
    loop {
        // Whoever holds the spool may write them until it ends.
        let may_come = is_there() && is_held(files)?;
        if let Some(manifest) = open(files, "manifest")?
            && let Some(counts) = open(files, "counts")?
            && counts.metadata().map_err(SpoolError::io("look at", files.join("counts")))?.len() > 0
        {
            return Ok(Some((read_manifest(manifest, &files.join("manifest"))?, counts)));
        }
        if !may_come {
            return Ok(None);
        }
        std::thread::sleep(AGAIN);
    }
}

fn open(files: &Directory, name: &str) -> Result<Option<File>, SpoolError> {
    match files.open_file(OsStr::new(name)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        file => file.map(Some).map_err(SpoolError::io("open", files.join(name))),
    }
}

fn read_manifest(file: File, path: &Path) -> Result<Manifest, SpoolError> {
    let mut bytes = Vec::new();
    file.take(MANIFEST_MAX).read_to_end(&mut bytes).map_err(SpoolError::io("read", path))?;
    Manifest::decode(&bytes).map_err(|what| SpoolError::Damaged { path: path.to_owned(), what })
}
