//! From the spool to the trace file: at the end of a recording, and after a crash.

pub(super) mod moving;
mod recovered;

use std::{
    ffi::OsStr,
    fs::File,
    io::{self, Read as _, Seek, SeekFrom, Write},
    path::PathBuf,
};

use agent_ebpf::PAGE_SIZE;

use self::moving::{DRAFT, Mover};
use super::{
    ArchiveName, CpuStats, Manifest, Recorded, RecordedChannel, Spool, SpoolError, Stats, StreamId,
    assumed::{self, Found, LostManifest},
    counts::Noted,
    ctf::{self, Killed},
    finisher::Maker,
    follow::FollowError,
    names::read_journal,
    pauses,
    segment::{Look, SegmentContent, measure},
    session::Part,
    spool::SegmentFile,
    state, symbols, user_symbols,
};
use ftrace_event::{Cmdlines, Endian};
use recording::ExportError;
use stdx::output::{Directory, Output, OutputError, TempFile, put_in_place};
use stdx::reason;
use tracedat::initial_state::{Host, InitialState};
use tracedat::reader::Reader;
use tracedat::{Buffer, Compression, EventSystem, FileOption, OptionId, Section, Setup, WriteError, Writer};

/// Number of the file option that holds the loss ledger as JSON text. Readers skip options that they do not
/// know.
pub const LEDGER_OPTION: OptionId = OptionId::LEDGER;

/// Number of the file option that names the files which addresses of user stacks are in, with their build
/// ids, as JSON text.
pub const BINARIES_OPTION: OptionId = OptionId(0x5444);

/// Free space beyond the data and the symbols below which data is moved instead of copied.
const COPY_MARGIN: u64 = 4 << 20;

/// Free space that the parts of the file beside data and symbols have: what is kept back for them while
/// recording.
const METADATA_MARGIN: u64 = 1 << 20;
/// Bytes that are copied between two checks whether to go on.
const COPY_STEP: u64 = 64 << 20;

/// Why the trace file could not be made. The spool is still there.
#[derive(Debug, thiserror::Error)]
pub enum FinishError {
    /// A file of the spool.
    #[error(transparent)]
    Spool(#[from] SpoolError),
    /// The trace file.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// Where the file goes.
    #[error(transparent)]
    Output(#[from] OutputError),
    /// The trace that is written meanwhile.
    #[error(transparent)]
    Export(#[from] ExportError),
    /// Its data cannot be read.
    #[error(transparent)]
    Follow(#[from] FollowError),
    /// Something went wrong earlier with the trace that is written meanwhile.
    #[error("nothing more is written to the trace since something went wrong: {0}")]
    TraceEnded(String),
    /// The user does not want to wait.
    #[error("stopped; the recording is still in its spool")]
    Stopped,
}

impl FinishError {
    /// Whether the disk is full.
    pub fn is_disk_full(&self) -> bool {
        reason::is_disk_full(self)
    }
}

/// A finished trace file.
#[derive(Debug)]
pub struct Finished {
    /// Where it is.
    pub path: PathBuf,
    /// Its size.
    pub file_bytes: u64,
    /// What is in it, and what is not.
    pub stats: Stats,
    /// What the user should know beside that.
    pub notes: Vec<String>,
}

/// Makes what a recording becomes that was stopped, or a snapshot of it: a trace file, or a trace. Then the
/// spool is removed.
///
/// A recording of several archives that becomes a trace needs a [`Finisher`](super::Finisher), which knows
/// those before.
///
/// # Errors
/// It is still in its spool.
pub fn finish(recorded: Recorded) -> Result<Finished, FinishError> {
    Maker::default().make(recorded)
}

/// Makes the trace file of a recording that was stopped, and removes the spool.
pub(super) fn finish_file(recorded: Recorded) -> Result<Finished, FinishError> {
    let Recorded { spool, output, manifest, cmdlines, with_symbols, stats, .. } = recorded;
    // Who does not want to wait for the file ends the process, and recovers the spool.
    let stop = &|| false;
    let data = collect(&spool, &manifest, Look::Sizes, stop)?;
    let symbols = if with_symbols { symbols::load(&spool) } else { Vec::new() };
    let mut extras = Extras::collect(&spool, &manifest, &data, cmdlines, symbols)?;
    spool.release_reserve();
    extras.make_room(&output, &manifest);
    build(spool, &manifest, &extras, stats, &data, &output, stop)
}

/// Makes a trace file of what a crashed recording left in its spool, or, of one that is written as a trace,
/// the rest of that, and removes the spool, unless there is damage in it.
///
/// The file goes beside the spool, under the name that the recording was started with: where the spool is
/// now, not where it was or where this is called. A spool that was kept aside keeps its number, as there is a
/// newer file. `output` overrules both. `lost` is what stands in for a manifest that a loss of power took.
///
/// `stop` is asked now and then, but not while data are moved for want of room for a copy; when it says so,
/// the spool stays and there is no file.
pub fn recover(
    spool: Spool,
    output: Option<Output>,
    lost: LostManifest,
    stop: &dyn Fn() -> bool,
) -> Result<Finished, FinishError> {
    let Found { mut manifest, assumed } = assumed::manifest(&spool, lost)?;
    manifest.resolve_sets(&spool);
    // Room for the way back, too.
    spool.release_reserve();
    Mover::undo(&spool)?;
    let cmdlines = read_journal(&spool)?;
    let data = collect(&spool, &manifest, Look::Verify, stop)?;
    let pauses = pauses::read(spool.files())?.spans;
    let stats = Stats { pauses, ..recovered::stats(&data, &manifest, Noted::load(&spool)?.as_ref()) };
    if output.is_none()
        && !manifest.is_assumed
        && let Some(begun) = ctf::begun_beside(&spool, manifest.archive)?
    {
        let is_last = manifest.archive.is_none_or(|archive| archive.number <= 1)
            && !ctf::has_second(spool.parent()).map_err(SpoolError::io("read", spool.parent().path()))?;
        manifest.archive = manifest.archive.map(|archive| closed_name(&archive, &manifest, &data));
        let output = Output::in_directory(spool.parent().clone(), "trace.dat".into())?;
        let part = Part::Last { is_continued: false };
        let (with_symbols, failure, trace) = (false, None, None);
        let recorded =
            Recorded { spool, output, manifest, cmdlines, with_symbols, stats, failure, part, trace };
        let contents = || data.iter().flat_map(|cpu| &cpu.segments).map(|(_, content)| content);
        let is_damaged = contents().any(|content| content.damaged);
        let last_ns = contents().filter_map(|content| content.last_time).max();
        return ctf::recover(recorded, begun, (is_last, Killed { is_damaged, last_ns }));
    }
    let output = output.map_or_else(|| output_beside(&spool, &manifest, &data), Ok)?;
    let symbols = symbols::load_again(&spool, &manifest.host.boot_id);
    let mut extras = Extras::collect(&spool, &manifest, &data, cmdlines, symbols)?;
    extras.notes.extend(assumed);
    extras.make_room(&output, &manifest);
    build(spool, &manifest, &extras, stats, &data, &output, stop)
}

/// The output that belongs to the spool. A link there is replaced: nobody has said that it is to be followed.
fn output_beside(spool: &Spool, manifest: &Manifest, data: &[CpuData]) -> Result<Output, OutputError> {
    if let Some(archive) = &manifest.archive {
        let name = closed_name(archive, manifest, data);
        let output = name.replacing(spool.parent())?;
        // What was made of this very archive before is replaced, and nothing else.
        let is_other = output.is_taken() && !has_file_of(&output, manifest);
        return if is_other { name.output_in(spool.parent()) } else { Ok(output) };
    }
    let recorded_to = || manifest.output.file_name().map(OsStr::to_owned);
    let name = spool.output_name().or_else(recorded_to).unwrap_or_else(|| "trace.dat".into());
    Output::in_directory(spool.parent().clone(), name)
}

/// Whether the file that is there is of this recording.
fn has_file_of(output: &Output, manifest: &Manifest) -> bool {
    let file = output.directory().open_file(output.name()).ok();
    file.and_then(|file| Reader::open(file).ok()).is_some_and(|reader| manifest.is_of(&reader))
}

/// The name of an archive whose end may not be known: then it is that of its data.
fn closed_name(archive: &ArchiveName, manifest: &Manifest, data: &[CpuData]) -> ArchiveName {
    let last = data.iter().flat_map(|cpu| &cpu.segments).filter_map(|(_, content)| content.last_time).max();
    let of_data = || {
        let last = last.map_or(archive.begin_ns, |last| last.saturating_add_signed(manifest.realtime_offset));
        last.max(archive.begin_ns)
    };
    ArchiveName { end_ns: Some(archive.end_ns.unwrap_or_else(of_data)), ..*archive }
}

/// What became known while recording.
struct Extras {
    cmdlines: Cmdlines,
    symbols: Vec<u8>,
    /// Data of the options with states: the initial one, and those that were asked for.
    states: Vec<Vec<u8>>,
    /// Data of the option with the files that user stacks are in.
    binaries: Option<Vec<u8>>,
    /// What the user should know.
    notes: Vec<String>,
}

impl Extras {
    fn collect(
        spool: &Spool,
        manifest: &Manifest,
        data: &[CpuData],
        mut cmdlines: Cmdlines,
        mut symbols: Vec<u8>,
    ) -> Result<Self, SpoolError> {
        let user = user_symbols::collect(spool, manifest, data.iter().flat_map(|cpu| &cpu.segments))?;
        symbols.extend_from_slice(&user.lines);
        let binaries = (!user.binaries.is_empty()).then(|| user.option_text());
        let later = state::load_later(spool);
        state::add_names(&later, &mut cmdlines);
        let states = state::load(spool).into_iter().chain(later).collect();
        Ok(Self { cmdlines, symbols, states, binaries, notes: Vec::new() })
    }

    /// Gives the symbols up where the disk has no room for them: the data's place is not theirs.
    fn make_room(&mut self, output: &Output, manifest: &Manifest) {
        let needed = match manifest.compression {
            Compression::None => self.symbols.len() as u64,
            Compression::Zstd { .. } => symbols::compressed_len(&self.symbols),
        };
        let free = output.directory().free_bytes().unwrap_or(u64::MAX);
        if needed != 0 && free < needed + METADATA_MARGIN {
            self.symbols = Vec::new();
            self.notes.push(
                "the disk has no room for the kernel's symbols: addresses have no names in the file"
                    .to_owned(),
            );
        }
    }
}

fn go_on(stop: &dyn Fn() -> bool) -> Result<(), FinishError> {
    if stop() { Err(FinishError::Stopped) } else { Ok(()) }
}

/// A stream's segments and what is whole in them.
struct CpuData {
    stream: StreamId,
    segments: Vec<(SegmentFile, SegmentContent)>,
}

/// Whether there is nothing in any of these files.
fn is_empty(spool: &Spool, files: &[SegmentFile]) -> Result<bool, SpoolError> {
    for SegmentFile { name, .. } in files {
        let path = spool.file(name);
        let file = spool.files().open_file(name).map_err(SpoolError::io("open", &path))?;
        if file.metadata().map_err(SpoolError::io("look at", path))?.len() != 0 {
            return Ok(false);
        }
    }
    Ok(true)
}

fn collect(
    spool: &Spool,
    manifest: &Manifest,
    look: Look,
    stop: &dyn Fn() -> bool,
) -> Result<Vec<CpuData>, FinishError> {
    let mut data = Vec::new();
    for (stream, files) in spool.segments()? {
        if manifest.channel(stream.channel).is_none() {
            // The sets of rings that nobody has taken have empty files.
            if is_empty(spool, &files)? {
                continue;
            }
            let path = files.first().map_or_else(|| spool.dir().to_owned(), |file| spool.file(&file.name));
            let what = "the manifest has no such channel".to_owned();
            return Err(SpoolError::Damaged { path, what }.into());
        }
        let mut segments = Vec::new();
        for segment in files {
            let path = spool.file(&segment.name);
            let file = spool.files().open_file(&segment.name).map_err(SpoolError::io("open", &path))?;
            let content = measure(&file, &path, manifest.compression, look, stop)?;
            go_on(stop)?;
            segments.push((segment, content));
        }
        data.push(CpuData { stream, segments });
    }
    Ok(data)
}

fn build(
    spool: Spool,
    manifest: &Manifest,
    extras: &Extras,
    stats: Stats,
    data: &[CpuData],
    output: &Output,
    stop: &dyn Fn() -> bool,
) -> Result<Finished, FinishError> {
    let symbols = extras.symbols.len() as u64;
    let moving = must_move(&spool, output, data, symbols);
    let file_bytes = match put_together((&spool, data), manifest, extras, &stats, output, moving, stop) {
        // Somebody took the room that was there for a copy.
        Err(error) if !moving && error.is_disk_full() && are_together(&spool, output) => {
            put_together((&spool, data), manifest, extras, &stats, output, true, stop)?
        }
        result => result?,
    };
    let mut notes = extras.notes.clone();
    if data.iter().flat_map(|cpu| &cpu.segments).any(|(_, content)| content.damaged) {
        notes.push(format!(
            "parts of the recording are damaged and not in the file; {} is kept with them",
            spool.dir().display()
        ));
    } else if manifest.is_assumed {
        // Another kernel may have been recorded, under which it can be recovered again.
    } else if let Err(error) = spool.remove() {
        // The file is complete and in its place.
        notes.push(error.to_string());
    }
    Ok(Finished { path: output.path(), file_bytes, stats, notes })
}

/// Makes the file and puts it in its place; `moving` takes the data out of the spool, which needs no room.
/// Gives its length.
fn put_together(
    (spool, data): (&Spool, &[CpuData]),
    manifest: &Manifest,
    extras: &Extras,
    stats: &Stats,
    output: &Output,
    moving: bool,
    stop: &dyn Fn() -> bool,
) -> Result<u64, FinishError> {
    let mut mover = if moving {
        let pieces = data.iter().flat_map(|cpu| &cpu.segments).map(|(_, content)| content.ranges.len()).sum();
        let mover = Mover::create(spool, pieces)?;
        symbols::give_up(spool);
        Some(mover)
    } else {
        None
    };
    let (draft, file) = Draft::create(spool, output, moving)?;
    let result = write_file((spool, data), file, manifest, extras, stats, mover.as_mut(), stop)
        .and_then(|file| draft.put_in_place(spool, &file, output));
    match (result, mover) {
        (Ok(bytes), _) => Ok(bytes),
        // The draft has the only copy of what was moved. Recovering takes it from there.
        (Err(error), Some(mover)) if mover.has_moved() => Err(error),
        (Err(error), mover) => {
            // It holds a copy of what is in the spool and takes the space that a second try needs.
            let _ = spool.files().remove(DRAFT);
            if let Some(mover) = mover {
                mover.discard();
            }
            Err(error)
        }
    }
}

/// Whether the spool and the file are on one file system.
fn are_together(spool: &Spool, output: &Output) -> bool {
    let device = |dir: &Directory| dir.identity().map(|identity| identity.dev).ok();
    device(spool.files()).is_some_and(|spool| device(output.directory()) == Some(spool))
}

/// Whether the disk has no room for a copy of the data, and moving them makes some.
fn must_move(spool: &Spool, output: &Output, data: &[CpuData], symbols: u64) -> bool {
    let target = output.directory();
    if !are_together(spool, output) {
        return false;
    }
    let len: u64 = data.iter().flat_map(|cpu| &cpu.segments).map(|(_, content)| content.len()).sum();
    target.free_bytes().is_ok_and(|free| free < len + symbols + COPY_MARGIN)
}

/// The file before it has its name. It is written beside its final place, so that renaming it there cannot
/// fail half-way; when data is moved, in the spool, where it stays with the rest of the recording until it is
/// complete.
enum Draft {
    /// In the spool, where an earlier one is ours to replace.
    InSpool,
    /// Elsewhere. It is removed unless it gets to its place.
    Beside(TempFile),
}

impl Draft {
    fn create(spool: &Spool, output: &Output, moving: bool) -> Result<(Self, File), FinishError> {
        let is_beside_spool = || Some(spool.parent().identity().ok()? == output.directory().identity().ok()?);
        if moving || is_beside_spool() == Some(true) {
            let file = spool.files().replace(DRAFT);
            return Ok((Self::InSpool, file.map_err(SpoolError::io("create", spool.file(DRAFT)))?));
        }
        let (temp, file) = TempFile::beside(output)?;
        Ok((Self::Beside(temp), file))
    }

    fn put_in_place(self, spool: &Spool, file: &File, output: &Output) -> Result<u64, FinishError> {
        let path = match self {
            Self::InSpool => spool.file(DRAFT),
            Self::Beside(_) => output.path(),
        };
        file.sync_data().map_err(SpoolError::io("write", path))?;
        Ok(match self {
            Self::InSpool => put_in_place(spool.files(), DRAFT.as_ref(), file, output)?,
            Self::Beside(temp) => temp.put_in_place(file)?,
        })
    }
}

fn write_file(
    (spool, data): (&Spool, &[CpuData]),
    file: File,
    manifest: &Manifest,
    extras: &Extras,
    stats: &Stats,
    mut mover: Option<&mut Mover>,
    stop: &dyn Fn() -> bool,
) -> Result<File, FinishError> {
    let endian = Endian::Little;
    let setup = Setup { endian, page_size: PAGE_SIZE as u32, compression: manifest.compression };
    let mut writer = Writer::create(file, setup)?;
    describe(&mut writer, manifest, &extras.symbols, &extras.cmdlines)?;
    let states = (extras.states.iter())
        .map(|bytes| FileOption::Unknown { id: InitialState::OPTION, bytes: bytes.clone() });
    let host = extras.states.is_empty().then(|| host(manifest)).transpose()?;
    let binaries = (extras.binaries.iter())
        .map(|bytes| FileOption::Unknown { id: BINARIES_OPTION, bytes: bytes.clone() });
    for option in options(manifest, stats).into_iter().chain(host).chain(states).chain(binaries) {
        writer.option(&option)?;
    }
    for (name, channel) in manifest.buffers() {
        let of = Buffer { name, clock: &manifest.clock_name, page_size: setup.page_size };
        let mut buffer = writer.begin_buffer(of)?;
        let is_in = |cpu: &&CpuData| channel.is_some_and(|channel| channel.number == cpu.stream.channel);
        for CpuData { stream, segments } in data.iter().filter(is_in) {
            let chunks = segments.iter().map(|(_, content)| content.chunks).sum();
            buffer
                .copy_cpu(stream.cpu, chunks, |out, at| {
                    segments.iter().try_fold(0, |sum, (segment, content)| {
                        let from = (spool, *stream, segment);
                        let to = (&mut *out, at + sum);
                        Ok(sum + transfer(from, content, to, mover.as_deref_mut(), stop)?)
                    })
                })
                .map_err(|error| if stop() { FinishError::Stopped } else { error.into() })?;
        }
        buffer.finish()?;
    }
    let file = writer.finish()?;
    Ok(file)
}

/// Writes what a file has before its options: what describes the events, symbols and names.
pub(super) fn describe<W: Write + Seek>(
    writer: &mut Writer<W>,
    manifest: &Manifest,
    symbols: &[u8],
    cmdlines: &Cmdlines,
) -> Result<(), WriteError> {
    let endian = Endian::Little;
    writer.section(Section::header_info(endian, &manifest.header_page, &manifest.header_event)?)?;
    let ftrace: Vec<&str> = manifest.ftrace_events.iter().map(String::as_str).collect();
    writer.section(Section::ftrace_events(endian, &ftrace)?)?;
    let formats: Vec<(&str, Vec<&str>)> = (manifest.systems.iter())
        .map(|(name, formats)| (name.as_str(), formats.iter().map(String::as_str).collect()))
        .collect();
    let systems: Vec<EventSystem<'_>> =
        formats.iter().map(|(name, formats)| EventSystem { name, formats }).collect();
    writer.section(Section::event_formats(endian, &systems)?)?;
    writer.section(Section::kallsyms(endian, symbols)?)?;
    writer.section(Section::printk(endian, &manifest.printk_formats)?)?;
    writer.section(Section::cmdlines(endian, cmdlines))?;
    Ok(())
}

/// The machine and its kernel, for files without a state.
pub(super) fn host(manifest: &Manifest) -> Result<FileOption, WriteError> {
    let bytes = manifest.host.encode().map_err(|source| WriteError::Io { what: "the host", source })?;
    Ok(FileOption::Unknown { id: Host::OPTION, bytes })
}

/// The options of a file that are known of every recording.
pub(super) fn options(manifest: &Manifest, stats: &Stats) -> Vec<FileOption> {
    let mut options = vec![
        FileOption::Uname(manifest.uname.clone()),
        FileOption::Version(concat!("tracer-agent ", env!("CARGO_PKG_VERSION")).to_owned()),
        FileOption::TraceId(manifest.trace_id),
        FileOption::CpuCount(manifest.cpu_count),
    ];
    if !manifest.trace_clock.is_empty() {
        options.push(FileOption::TraceClock(manifest.trace_clock.clone()));
    }
    if manifest.wall_time {
        options.push(FileOption::Offset { nanos: manifest.realtime_offset });
    }
    options.extend(manifest.buffers().flat_map(|(name, channel)| cpustat(name, channel, stats)));
    options.extend(manifest.proc_maps.iter().map(|text| {
        let mut bytes = text.clone();
        bytes.push(0);
        FileOption::Unknown { id: OptionId::PROCMAPS, bytes }
    }));
    let mut ledger =
        stats.ledger(&manifest.clock_name, manifest.realtime_offset, manifest.realtime_uncertainty);
    if manifest.is_assumed {
        (ledger.realtime_offset_ns, ledger.realtime_uncertainty_ns) = (None, None);
    }
    ledger.only.clone_from(&manifest.only);
    // A head has no counts.
    if ledger.events.as_ref().is_none_or(Vec::is_empty) {
        ledger.marks_compat = ledger.marks_compat.or(manifest.marks_compat);
        ledger.choices.clone_from(&manifest.choices);
    }
    options.push(FileOption::Unknown { id: LEDGER_OPTION, bytes: ledger.to_bytes() });
    options
}

/// The statistics of a buffer: one of each CPU, and before those of a named buffer its name (as trace-cmd
/// writes it).
fn cpustat(name: &str, channel: Option<&RecordedChannel>, stats: &Stats) -> Vec<FileOption> {
    let title = (!name.is_empty()).then(|| format!("\nBuffer: {name}\n\n"));
    let is_in = |cpu: &&CpuStats| channel.is_some_and(|channel| channel.number == cpu.channel);
    let cpus = stats.cpus.iter().filter(is_in).map(CpuStats::cpustat);
    title.into_iter().chain(cpus).map(FileOption::CpuStat).collect()
}

/// Brings a segment's data to `at` in `out` and returns their length. A copy may share the blocks of the
/// disk.
fn transfer(
    (spool, stream, segment): (&Spool, StreamId, &SegmentFile),
    content: &SegmentContent,
    (out, at): (&mut File, u64),
    mover: Option<&mut Mover>,
    stop: &dyn Fn() -> bool,
) -> io::Result<u64> {
    let mut to = at;
    let files = spool.files();
    let source = match &mover {
        Some(_) => files.open_for_writing(&segment.name)?,
        None => files.open_file(&segment.name)?,
    };
    if let Some(mover) = mover {
        for &(from, len) in &content.ranges {
            mover.transfer(&source, (stream, segment.index), (from, len), (out, to))?;
            to += len;
        }
    } else {
        out.seek(SeekFrom::Start(to))?;
        for &(from, len) in &content.ranges {
            (&source).seek(SeekFrom::Start(from))?;
            let end = to + len;
            while to < end && !stop() {
                match io::copy(&mut (&source).take((end - to).min(COPY_STEP)), out)? {
                    0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                    copied => to += copied,
                }
            }
            if stop() {
                return Err(io::ErrorKind::Interrupted.into());
            }
        }
    }
    Ok(to - at)
}
