//! An archive: what a recording stores from one rotation to the next, and what becomes one trace file. A
//! recording that is never rotated has one.

use std::{
    ffi::{OsStr, OsString},
    io,
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

use serde::{Deserialize, Serialize};

use super::{
    Ending, Manifest, Spool, SpoolError, StreamId,
    counts::CountsFile,
    ctf::CtfOutput,
    handover::{HandedDirectory, HandedOutput},
    notice::Notice,
    options::CaptureOptions,
    pauses::{HandedPauses, Pauses},
    spool::{CpuSpool, HandedSpool, HandedStream},
    state::StateReader,
    user_symbols::MappingReader,
};
use spec::TraceClock;
use stdx::handover::{Descriptors, Missing, Moment, Number};
use stdx::output::{Directory, Links, Output, OutputError, Resolved, resolve};
use stdx::utc;

/// What a recording that becomes a trace is recovered to.
const RECOVERED: &str = "trace.dat";

/// How many names are tried for a file, of which others may have the first.
const NAMES_MAX: u32 = 1000;

/// Where the file or the files of a recording go.
#[derive(Clone, Debug)]
pub enum Destination {
    /// One file. There is no rotation.
    File(Output),
    /// A directory, which gets a file for each archive, or a trace. It is created if it is not there.
    Directory(PathBuf),
}

/// Opens what a recording goes to: the file or the directory of its archives, and its trace.
pub(super) fn open(options: &CaptureOptions) -> Result<(Opened, Option<CtfOutput>), OutputError> {
    let Some(trace) = &options.trace else {
        let opened = match &options.destination {
            Destination::File(output) => Opened::File(output.clone()),
            Destination::Directory(path) => Opened::Directory(open_directory(path)?),
        };
        return Ok((opened, None));
    };
    let dir = match &options.destination {
        Destination::Directory(path) => open_directory(path)?,
        Destination::File(output) => return Err(OutputError::NotADirectory { path: output.path() }),
    };
    // A session says what it is; a channel that overwrites may be in one that writes a trace.
    let only_snapshots = match trace.session {
        Some(_) => options.rotation.is_none(),
        None => options.channels.iter().all(|channel| channel.overwrite),
    };
    let trace = CtfOutput::create(dir, trace.clone(), (only_snapshots, options.first_archive > 1))?;
    let dir = trace.dir().clone();
    let opened = match options.rotation {
        Some(_) => Opened::Directory(dir),
        // What is recovered is a file beside the trace.
        None => Opened::File(Output::in_directory(dir, RECOVERED.into())?),
    };
    Ok((opened, Some(trace)))
}

/// The same on its way to another process.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum HandedDestination {
    File(HandedOutput),
    Directory(HandedDirectory),
}

impl Opened {
    pub(super) fn hand_over(&self, to: &mut Descriptors) -> HandedDestination {
        match self {
            Self::File(output) => HandedDestination::File(HandedOutput::of(output, to)),
            Self::Directory(dir) => HandedDestination::Directory(HandedDirectory::of(dir, to)),
        }
    }

    pub(super) fn take_over(handed: HandedDestination, from: &mut Descriptors) -> Result<Self, Missing> {
        Ok(match handed {
            HandedDestination::File(output) => Self::File(output.take_over(from)?),
            HandedDestination::Directory(dir) => Self::Directory(dir.take_over(from)?),
        })
    }

    /// The directory that it is, or that the file is in.
    pub(super) fn directory(&self) -> &Directory {
        match self {
            Self::File(output) => output.directory(),
            Self::Directory(dir) => dir,
        }
    }

    /// What it was opened from.
    pub(super) fn destination(&self) -> Destination {
        match self {
            Self::File(output) => Destination::File(output.clone()),
            Self::Directory(dir) => Destination::Directory(dir.path().to_owned()),
        }
    }
}

/// A [`Destination`] that is there.
#[derive(Clone, Debug)]
pub(super) enum Opened {
    File(Output),
    Directory(Directory),
}

impl Opened {
    /// Where an archive goes that is recorded.
    pub(super) fn begin(
        &self,
        number: u64,
        begin_ns: u64,
    ) -> Result<(Output, Option<ArchiveName>), OutputError> {
        match self {
            Self::File(output) => Ok((output.clone(), None)),
            Self::Directory(dir) => {
                let name = ArchiveName { begin_ns, end_ns: None, number };
                Ok((Output::in_directory(dir.clone(), name.file_name(""))?, Some(name)))
            }
        }
    }

    /// Where a snapshot goes: beside the file, named after it and by the time. It replaces no other file.
    pub(super) fn snapshot(&self, number: u64, taken_ns: u64) -> Result<Output, OutputError> {
        let (dir, mut stem) = match self {
            Self::File(output) => (output.directory(), stem_of(output.name())),
            Self::Directory(dir) => (dir, OsString::new()),
        };
        if !stem.is_empty() {
            stem.push("-");
        }
        let at = |more: &str| {
            let mut name = stem.clone();
            name.push(format!("{}-snapshot-{number}{more}.dat", utc::compact(taken_ns)));
            Output::in_directory(dir.clone(), name)
        };
        first_free(at)
    }
}

/// A file's name without `.dat`.
pub(super) fn stem_of(name: &OsStr) -> OsString {
    let bytes = name.as_bytes();
    OsStr::from_bytes(bytes.strip_suffix(b".dat").unwrap_or(bytes)).to_owned()
}

/// The first output whose name no file has: `at` is asked for it with nothing more in its name, then with a
/// number.
fn first_free(at: impl Fn(&str) -> Result<Output, OutputError>) -> Result<Output, OutputError> {
    let mut output = at("");
    for other in 2..=NAMES_MAX {
        match &output {
            Ok(output) if output.is_taken() => {}
            // Something else has the name.
            Err(OutputError::IsDirectory { .. } | OutputError::NotRegular { .. }) => {}
            _ => break,
        }
        output = at(&format!(".{other}"));
    }
    output
}

fn open_directory(path: &Path) -> Result<Directory, OutputError> {
    let failed = |action| OutputError::io(action, path);
    let Resolved { dir, name } = resolve(path, Links::Follow)?;
    let Some(name) = name else { return Ok(dir) };
    match dir.open_dir(&name) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let created = dir.create_dir(&name).map_err(failed("create"))?;
            dir.sync();
            Ok(created)
        }
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
            Err(OutputError::NotADirectory { path: path.to_owned() })
        }
        opened => opened.map_err(failed("open")),
    }
}

/// What an archive's file is called, as LTTng calls those of its rotations: `BEGIN-END-NUMBER`, both times in
/// UTC (`20260302T101500+0000`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArchiveName {
    /// When it began, in nanoseconds since 1970.
    pub begin_ns: u64,
    /// When it ended, which is known then.
    pub end_ns: Option<u64>,
    /// Its number in the recording, from 1 on.
    pub number: u64,
}

impl ArchiveName {
    /// The name of the file. `more` tells it from others: two recordings of one moment would have the same.
    pub(super) fn file_name(&self, more: &str) -> OsString {
        let begin = utc::compact(self.begin_ns);
        let end = self.end_ns.map(|end| format!("-{}", utc::compact(end))).unwrap_or_default();
        format!("{begin}{end}-{}{more}.dat", self.number).into()
    }

    /// The output in `dir` for a file of this name, which replaces what a recovery has made before.
    pub(super) fn replacing(&self, dir: &Directory) -> Result<Output, OutputError> {
        Output::in_directory(dir.clone(), self.file_name(""))
    }

    /// The output in `dir` for a file of this name that replaces no other one.
    pub(super) fn output_in(&self, dir: &Directory) -> Result<Output, OutputError> {
        first_free(|more| Output::in_directory(dir.clone(), self.file_name(more)))
    }
}

/// What everybody who stores something in an archive knows of it.
#[derive(Debug)]
pub(super) struct ArchiveState {
    /// Its number in the recording, from 1 on.
    pub(super) number: u64,
    /// Bytes of data in its spool.
    bytes: AtomicU64,
    /// How many are enough, and whom to tell.
    enough: Option<(AtomicU64, Arc<Notice>)>,
}

impl ArchiveState {
    /// One without data. With `enough` bytes of them, it says so.
    pub(super) fn new(number: u64, enough: Option<(u64, Arc<Notice>)>) -> Arc<Self> {
        let enough = enough.map(|(bytes, reached)| (AtomicU64::new(bytes), reached));
        Arc::new(Self { number, bytes: AtomicU64::new(0), enough })
    }

    /// Bytes of data.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    pub(super) fn grow(&self, bytes: u64) {
        let before = self.bytes.fetch_add(bytes, Ordering::Relaxed);
        if let Some((enough, reached)) = &self.enough {
            let enough = enough.load(Ordering::Relaxed);
            if before < enough && before.saturating_add(bytes) >= enough {
                reached.tell();
            }
        }
    }

    pub(super) fn shrink(&self, bytes: u64) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Whether there are as many as are wanted.
    pub(super) fn is_enough(&self) -> bool {
        self.enough.as_ref().is_some_and(|(enough, _)| self.bytes() >= enough.load(Ordering::Relaxed))
    }

    /// Asks to be told again when so many more bytes are there.
    pub(super) fn want_more(&self, bytes: u64) {
        if let Some((enough, _)) = &self.enough {
            enough.store(self.bytes().saturating_add(bytes), Ordering::Relaxed);
        }
    }
}

/// An archive that is recorded to.
#[derive(Debug)]
pub(super) struct Archive {
    pub(super) shared: Arc<ArchiveState>,
    /// What writes to the spool while it is recorded to. It ends before the spool is used.
    pub(super) writers: Writers,
    pub(super) spool: Spool,
    pub(super) counts: CountsFile,
    pub(super) manifest: Manifest,
    pub(super) output: Output,
    /// When it began.
    pub(super) began: Option<Instant>,
    /// From when on everything that fires is in it, by the recording's clock.
    pub(super) covered_from: Option<u64>,
    /// When it was not recorded to since.
    pub(super) pauses: Pauses,
}

/// An archive on its way to another process.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct HandedArchive {
    number: u64,
    bytes: u64,
    enough: Option<u64>,
    later_states: u32,
    spool: HandedSpool,
    counts: Number,
    manifest: Manifest,
    output: HandedOutput,
    began: Option<Moment>,
    covered_from: Option<u64>,
    pauses: HandedPauses,
    streams: Vec<HandedStream>,
}

impl HandedArchive {
    /// The lock of its spool.
    pub(super) fn lock(&self) -> Option<Number> {
        self.spool.lock()
    }
}

/// What collects facts beside the data.
#[derive(Debug, Default)]
pub(super) struct Writers {
    pub(super) state: Option<StateReader>,
    /// How many more states were stored.
    pub(super) later_states: u32,
    pub(super) mappings: Option<MappingReader>,
}

/// What archives of one recording have in common.
#[derive(Clone, Copy, Debug)]
pub(super) struct ArchiveOptions {
    /// How many streams are recorded.
    pub(super) streams: usize,
    pub(super) clock: TraceClock,
    /// Space that is set aside for what is not data.
    pub(super) reserve: u64,
    /// The same for what flight recorders hold, where others fill the disk meanwhile.
    pub(super) reserve_for_rings: u64,
}

impl Archive {
    /// Creates the spool and what is in it from the beginning. What an earlier recording has left there under
    /// the same name is kept under another one, which is the second value.
    pub(super) fn create(
        shared: Arc<ArchiveState>,
        (output, name): (Output, Option<ArchiveName>),
        manifest: Manifest,
        options: ArchiveOptions,
    ) -> Result<(Self, Option<PathBuf>), SpoolError> {
        let (spool, kept) = Spool::create(&output)?;
        let manifest = Manifest { output: output.path(), archive: name, ..manifest };
        let filled = manifest.store(&spool).and_then(|()| {
            spool.reserve(options.reserve)?;
            spool.reserve_for_rings(options.reserve_for_rings)?;
            CountsFile::create(&spool, options.streams, options.clock)
        });
        match filled {
            Ok(counts) => {
                let writers = Writers::default();
                let (began, covered_from, pauses) = (None, None, Pauses::default());
                let archive =
                    Self { shared, writers, spool, counts, manifest, output, began, covered_from, pauses };
                Ok((archive, kept))
            }
            Err(error) => {
                // There is nothing in it; the error at hand says more than one about cleaning up.
                let _ = spool.remove();
                Err(error)
            }
        }
    }

    /// The spools of the streams, in their order, each with a limit of its size.
    pub(super) fn spools(
        &self,
        streams: impl IntoIterator<Item = (StreamId, Option<u64>)>,
    ) -> Result<Vec<CpuSpool>, SpoolError> {
        let of = |(index, (stream, cap))| {
            let notes = self.counts.of_stream(index, stream);
            CpuSpool::create(&self.spool, stream, cap, &self.shared, notes)
        };
        streams.into_iter().enumerate().map(of).collect()
    }

    /// Gives it away, with the spools of its streams. What writes beside the data has ended.
    pub(super) fn hand_over(self, streams: Vec<CpuSpool>, to: &mut Descriptors) -> HandedArchive {
        let Self { shared, writers, spool, counts, manifest, output, began, covered_from, pauses } = self;
        let streams = streams.into_iter().map(|stream| stream.hand_over(to)).collect();
        HandedArchive {
            number: shared.number,
            bytes: shared.bytes(),
            enough: shared.enough.as_ref().map(|(enough, _)| enough.load(Ordering::Relaxed)),
            later_states: writers.later_states,
            spool: spool.hand_over(to),
            counts: counts.hand_over(to),
            manifest,
            output: HandedOutput::of(&output, to),
            began: began.map(Moment::from),
            covered_from,
            pauses: pauses.hand_over(to),
            streams,
        }
    }

    /// Goes on with one that another process has given away, with the spools of its streams.
    pub(super) fn take_over(
        handed: HandedArchive,
        (clock, reached): (TraceClock, &Arc<Notice>),
        from: &mut Descriptors,
    ) -> Result<(Self, Vec<CpuSpool>), Missing> {
        let enough = handed.enough.map(|bytes| (bytes, Arc::clone(reached)));
        let shared = ArchiveState::new(handed.number, enough);
        shared.grow(handed.bytes);
        let spool = Spool::take_over(handed.spool, from)?;
        let counts = CountsFile::take_over(handed.counts, clock, from)?;
        let of_archive = (&spool, &shared, &counts);
        let streams = handed.streams.into_iter().map(|stream| CpuSpool::take_over(stream, of_archive, from));
        let streams = streams.collect::<Result<_, _>>()?;
        let archive = Self {
            shared,
            writers: Writers { later_states: handed.later_states, ..Writers::default() },
            spool,
            counts,
            manifest: handed.manifest,
            output: handed.output.take_over(from)?,
            began: handed.began.map(Instant::from),
            covered_from: handed.covered_from,
            pauses: Pauses::take_over(handed.pauses, from)?,
        };
        Ok((archive, streams))
    }

    /// What marks in the spool that the end did not come by itself.
    pub(super) fn ending(&self) -> Ending {
        Ending(self.counts.clone())
    }

    /// Gives it up.
    pub(super) fn remove(self) {
        drop(self.writers);
        // What cannot be removed has nothing in it.
        let _ = self.spool.remove();
    }
}
