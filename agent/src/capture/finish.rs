//! From the spool to the trace file: at the end of a recording, and after a crash.

use std::{
    fs::{self, File},
    io::{self, Read},
    path::{Path, PathBuf},
};

use agent_ebpf::PAGE_SIZE;
use rustix::fs::{FallocateFlags, fallocate, fstatvfs};

use super::{
    CpuStats, Manifest, Recorded, Spool, SpoolError, Stats,
    names::read_journal,
    segment::{Look, SegmentContent, measure},
    symbols,
};
use crate::tracedat::{
    Buffer, Cmdlines, Endian, EventSystem, FileOption, OptionId, Section, Setup, WriteError, Writer,
};

/// Number of the file option that holds the loss ledger as JSON text. Readers skip options that they do not know; the number
/// is far from those that trace-cmd gives out.
pub const LEDGER_OPTION: OptionId = OptionId(0x5441);

/// How much is moved at a time when the disk has no room for a copy.
const MOVE_STEP: u64 = 1 << 20;
/// Free space beyond the data itself below which data is moved instead of copied.
const COPY_MARGIN: u64 = 4 << 20;

/// Why the trace file could not be made. The spool is still there.
#[derive(Debug, thiserror::Error)]
pub enum FinishError {
    /// A file of the spool.
    #[error(transparent)]
    Spool(#[from] SpoolError),
    /// The trace file.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// Bringing the file to its place.
    #[error("cannot {action} {path}: {source}")]
    Io {
        /// What was tried.
        action: &'static str,
        /// On which path.
        path: PathBuf,
        /// The system's reason.
        #[source]
        source: io::Error,
    },
}

impl FinishError {
    fn io(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { action, path, source }
    }

    /// Whether the disk is full.
    pub fn is_disk_full(&self) -> bool {
        let mut source: Option<&(dyn std::error::Error + 'static)> = Some(self);
        while let Some(error) = source {
            if let Some(io) = error.downcast_ref::<io::Error>() {
                return matches!(io.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded);
            }
            source = error.source();
        }
        false
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
}

/// Makes the trace file of a recording that was stopped, and removes the spool.
pub fn finish(recorded: Recorded) -> Result<Finished, FinishError> {
    let Recorded { spool, manifest, cmdlines, with_symbols, stats, failure: _ } = recorded;
    let output = manifest.output.clone();
    let data = collect(&spool, &manifest, Look::Sizes)?;
    let symbols = if with_symbols { symbols::load(&spool) } else { Vec::new() };
    build(spool, &manifest, &Extras { cmdlines, symbols }, stats, &data, &output)
}

/// Makes a trace file of what a crashed recording left in its spool, and removes the spool.
///
/// `output` replaces the file that the recording was to write.
pub fn recover(spool: Spool, output: Option<&Path>) -> Result<Finished, FinishError> {
    let manifest = Manifest::load(&spool)?;
    let cmdlines = read_journal(&spool)?;
    let data = collect(&spool, &manifest, Look::Verify)?;
    let mut stats = Stats::default();
    for cpu in &data {
        let mut row = CpuStats { cpu: cpu.cpu, ..CpuStats::default() };
        for (_, content) in &cpu.segments {
            row.events += content.events;
            row.stored.events += content.events;
            row.stored.pages += content.pages;
            row.stored.bytes += content.len;
        }
        stats.cpus.push(row);
    }
    let output = output.unwrap_or(&manifest.output).to_owned();
    let extras = Extras { cmdlines, symbols: symbols::load(&spool) };
    build(spool, &manifest, &extras, stats, &data, &output)
}

/// What became known while recording.
struct Extras {
    cmdlines: Cmdlines,
    symbols: Vec<u8>,
}

/// A CPU's segments and what is whole in them.
struct CpuData {
    cpu: u32,
    segments: Vec<(PathBuf, SegmentContent)>,
}

fn collect(spool: &Spool, manifest: &Manifest, look: Look) -> Result<Vec<CpuData>, SpoolError> {
    let mut data = Vec::new();
    for (cpu, paths) in spool.segments()? {
        let mut segments = Vec::new();
        for path in paths {
            let file = File::open(&path).map_err(SpoolError::io("open", &path))?;
            let content = measure(&file, &path, manifest.compression, look)?;
            segments.push((path, content));
        }
        data.push(CpuData { cpu, segments });
    }
    Ok(data)
}

fn build(
    spool: Spool,
    manifest: &Manifest,
    extras: &Extras,
    stats: Stats,
    data: &[CpuData],
    output: &Path,
) -> Result<Finished, FinishError> {
    spool.release_reserve();
    let draft = draft_path(&spool, output);
    let result =
        write_file(&draft, manifest, extras, &stats, data).and_then(|()| put_in_place(&draft, output));
    let file_bytes = match result {
        Ok(bytes) => bytes,
        Err(error) => {
            // It holds a copy of what is in the spool and takes the space that a second try needs.
            let _ = fs::remove_file(&draft);
            return Err(error);
        }
    };
    spool.remove()?;
    Ok(Finished { path: output.to_owned(), file_bytes, stats })
}

/// The file is written beside its final place, so that renaming it there cannot fail half-way.
fn draft_path(spool: &Spool, output: &Path) -> PathBuf {
    if spool.dir().parent() == output.parent() {
        spool.file("trace.dat")
    } else {
        let mut name = output.as_os_str().to_owned();
        name.push(".new");
        name.into()
    }
}

fn write_file(
    draft: &Path,
    manifest: &Manifest,
    extras: &Extras,
    stats: &Stats,
    data: &[CpuData],
) -> Result<(), FinishError> {
    let file = File::options()
        .create(true)
        .truncate(true)
        .read(true)
        .write(true)
        .open(draft)
        .map_err(FinishError::io("create", draft))?;
    let endian = Endian::Little;
    let setup = Setup { endian, page_size: PAGE_SIZE as u32, compression: manifest.compression };
    let mut writer = Writer::create(file, setup)?;
    writer.section(Section::header_info(endian, &manifest.header_page, &manifest.header_event)?)?;
    let ftrace: Vec<&str> = manifest.ftrace_events.iter().map(String::as_str).collect();
    writer.section(Section::ftrace_events(endian, &ftrace)?)?;
    let formats: Vec<(&str, Vec<&str>)> = manifest
        .systems
        .iter()
        .map(|(name, formats)| (name.as_str(), formats.iter().map(String::as_str).collect()))
        .collect();
    let systems: Vec<EventSystem<'_>> =
        formats.iter().map(|(name, formats)| EventSystem { name, formats }).collect();
    writer.section(Section::event_formats(endian, &systems)?)?;
    writer.section(Section::kallsyms(endian, &extras.symbols)?)?;
    writer.section(Section::printk(endian, &manifest.printk_formats)?)?;
    writer.section(Section::cmdlines(endian, &extras.cmdlines))?;
    for option in options(manifest, stats) {
        writer.option(&option)?;
    }
    let mut buffer =
        writer.begin_buffer(Buffer { name: "", clock: &manifest.clock_name, page_size: setup.page_size })?;
    for cpu in data {
        let chunks = cpu.segments.iter().map(|(_, content)| content.chunks).sum();
        buffer.copy_cpu(cpu.cpu, chunks, |out, _| {
            cpu.segments
                .iter()
                .try_fold(0, |sum, (path, content)| Ok(sum + transfer(path, content.len, out)?))
        })?;
    }
    buffer.finish()?;
    let file = writer.finish()?;
    file.sync_data().map_err(FinishError::io("write", draft))
}

fn options(manifest: &Manifest, stats: &Stats) -> Vec<FileOption> {
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
    options.extend(stats.cpus.iter().map(|cpu| FileOption::CpuStat(cpu.cpustat())));
    options.extend(manifest.proc_maps.iter().map(|text| {
        let mut bytes = text.clone();
        bytes.push(0);
        FileOption::Unknown { id: OptionId::PROCMAPS, bytes }
    }));
    let mut ledger =
        stats.to_json(&manifest.clock_name, manifest.realtime_offset, manifest.realtime_uncertainty);
    ledger.push('\0');
    options.push(FileOption::Unknown { id: LEDGER_OPTION, bytes: ledger.into_bytes() });
    options
}

/// Appends the first `len` bytes of a segment to `out`. Copies, and the kernel may share the blocks; where the disk has no
/// room for two of them, moves: what is copied is given back piece by piece.
fn transfer(path: &Path, len: u64, out: &mut File) -> io::Result<u64> {
    let source = File::options().read(true).write(true).open(path)?;
    let free = fstatvfs(&*out).map(|stat| stat.f_bavail.saturating_mul(stat.f_frsize));
    if free.is_ok_and(|free| free < len.saturating_add(COPY_MARGIN)) {
        return move_data(&source, len, out);
    }
    io::copy(&mut source.take(len), out)
}

fn move_data(mut source: &File, len: u64, out: &mut File) -> io::Result<u64> {
    let mut moved = 0;
    while moved < len {
        let step = io::copy(&mut Read::by_ref(&mut source).take(MOVE_STEP.min(len - moved)), out)?;
        if step == 0 {
            break;
        }
        // A file system that cannot punch holes leaves us with what space there is.
        let _ = fallocate(source, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, moved, step);
        moved += step;
    }
    Ok(moved)
}

fn put_in_place(draft: &Path, output: &Path) -> Result<u64, FinishError> {
    let bytes = fs::metadata(draft).map_err(FinishError::io("read the size of", draft))?.len();
    fs::rename(draft, output).map_err(FinishError::io("create", output))?;
    let parent = match output.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    // The name is durable with the directory; a file system that cannot sync one has no such step.
    if let Ok(dir) = File::open(parent) {
        let _ = dir.sync_all();
    }
    Ok(bytes)
}
