//! The manifest of a spool whose own is empty or cut short, as a loss of power leaves it: made of what the
//! data show, and of the running kernel. What that assumes is told.

use std::os::unix::fs::FileExt as _;
use std::path::Path;

use super::{Manifest, RecordedChannel, Spool, SpoolError, StreamId, spool::SegmentFile};
use kernel::tracefs::{Tracefs, TracefsError};
use spec::{CHANNELS_MAX, EventName, TraceClock};
use tracedat::ledger::UNKNOWN_CHOICE;
use tracedat::{BLOCK_HEADER_LEN, Compression};

/// The first bytes of a zstd frame.
const ZSTD: [u8; 4] = 0xfd2f_b528_u32.to_le_bytes();
/// The clock that recordings have unless something else is wanted.
const CLOCK: TraceClock = TraceClock::Mono;

/// A manifest, and what it assumes: nothing, if it is the recording's own.
pub(super) struct Found {
    pub(super) manifest: Manifest,
    pub(super) assumed: Vec<String>,
}

/// What stands in for a manifest that was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LostManifest {
    /// The formats of the running kernel, which may be another one than the recording's: somebody reads what
    /// that assumes.
    Assume,
    /// Nothing.
    Refuse,
}

/// The manifest of a recording that was cut short.
///
/// # Errors
/// It is damaged in another way, or lost and nothing stands in, or the running kernel does not show its
/// formats.
pub(super) fn manifest(spool: &Spool, lost: LostManifest) -> Result<Found, SpoolError> {
    let bytes = Manifest::bytes_in(spool)?;
    if !Manifest::is_lost(&bytes) {
        return Ok(Found { manifest: Manifest::load(spool)?, assumed: Vec::new() });
    }
    if lost == LostManifest::Refuse {
        let what =
            "it is empty or cut short, as after a loss of power; `tracer-agent recover` can assume the \
                    running kernel's formats instead"
                .to_owned();
        return Err(SpoolError::Damaged { path: spool.file("manifest"), what });
    }
    let tracefs = Tracefs::open().map_err(|error| no_formats(spool, &error))?;
    of_kernel(spool, &tracefs)
}

fn no_formats(spool: &Spool, error: &TracefsError) -> SpoolError {
    let what = format!(
        "it is empty or cut short, as after a loss of power, and the running kernel's formats, which would stand in, cannot be read: {error}"
    );
    SpoolError::Damaged { path: spool.file("manifest"), what }
}

/// One made of the spool's data and a kernel's formats.
fn of_kernel(spool: &Spool, tracefs: &Tracefs) -> Result<Found, SpoolError> {
    let segments = spool.segments()?;
    let mut compression = None;
    for file in segments.values().flatten() {
        match compression_of(spool, file)? {
            Some(found @ Compression::Zstd { .. }) => compression = Some(found),
            found => compression = compression.or(found),
        }
    }
    let compression = compression.unwrap_or(Compression::None);
    let read = |error: TracefsError| no_formats(spool, &error);
    let mut manifest = Manifest::of_kernel(tracefs, CLOCK, Path::new(""), compression).map_err(read)?;
    manifest.systems = systems(tracefs).map_err(read)?;
    // Its symbols are those of the spool, or none: whether this is the same boot is unknown.
    manifest.host.boot_id = String::new();
    manifest.is_assumed = true;
    // Answers must not take what is missing for what did not happen.
    manifest.only = UNKNOWN_CHOICE.map(str::to_owned).to_vec();
    manifest.cpu_count = segments.keys().map(|stream| stream.cpu.saturating_add(1)).max().unwrap_or(1);
    manifest.channels = channels(segments.keys().copied());
    let assumed = notes(spool, &manifest);
    Ok(Found { manifest, assumed })
}

/// Compressed data are in chunks, each of which has a frame behind its header; others are pages, in which
/// these bytes would be a length that no page has. `None` if there are too few bytes, or zeros, as a loss of
/// power leaves them.
fn compression_of(spool: &Spool, file: &SegmentFile) -> Result<Option<Compression>, SpoolError> {
    let path = spool.file(&file.name);
    let open = spool.files().open_file(&file.name).map_err(SpoolError::io("open", &path))?;
    let mut magic = [0; ZSTD.len()];
    let len = open.metadata().map_err(SpoolError::io("look at", &path))?.len();
    let at = BLOCK_HEADER_LEN as u64;
    if len < at + magic.len() as u64 {
        return Ok(None);
    }
    open.read_exact_at(&mut magic, at).map_err(SpoolError::io("read", path))?;
    Ok(match magic {
        ZSTD => Some(Compression::default()),
        [0, 0, 0, 0] => None,
        _ => Some(Compression::None),
    })
}

/// The formats of all events of the kernel.
fn systems(tracefs: &Tracefs) -> Result<Vec<(String, Vec<String>)>, TracefsError> {
    let mut systems: Vec<(String, Vec<String>)> = Vec::new();
    let mut names: Vec<EventName> = tracefs.event_names()?;
    names.retain(|name| !name.is_ftrace_internal());
    names.sort();
    for format in tracefs.event_formats(&names)? {
        match systems.last_mut() {
            Some((system, formats)) if system == format.name.system() => formats.push(format.text),
            _ => systems.push((format.name.system().to_owned(), vec![format.text])),
        }
    }
    Ok(systems)
}

/// The channels whose data there are. The first one is the buffer that every file has.
fn channels(streams: impl Iterator<Item = StreamId>) -> Vec<RecordedChannel> {
    let mut numbers: Vec<u32> = streams.map(|stream| stream.channel).collect();
    numbers.sort_unstable();
    numbers.dedup();
    let channel = |(index, number): (usize, u32)| RecordedChannel {
        number,
        name: if index == 0 { String::new() } else { format!("channel{number}") },
        ..RecordedChannel::default()
    };
    numbers.into_iter().take(CHANNELS_MAX * super::sets::SETS_MAX).enumerate().map(channel).collect()
}

fn notes(spool: &Spool, manifest: &Manifest) -> Vec<String> {
    let mut notes = vec![
        format!(
            "{} is empty or cut short, as after a loss of power; assumed instead:",
            spool.file("manifest").display()
        ),
        format!(
            "the kernel is the running one ({}): formats and numbers of events are its; events that were made for the recording (probes, \
             contexts) have none",
            manifest.uname
        ),
        format!("the clock is {}; its distance to wall time is unknown", manifest.clock_name),
        "which threads and CPUs were recorded is unknown; filters and sampling of events are taken for none"
            .to_owned(),
    ];
    let named: Vec<&str> = manifest
        .channels
        .iter()
        .map(|channel| channel.name.as_str())
        .filter(|name| !name.is_empty())
        .collect();
    if !named.is_empty() {
        notes.push(format!("further buffers have no names of their own: {}", named.join(", ")));
    }
    notes.push(format!("{} is kept; remove it when the file is as it should be", spool.dir().display()));
    notes
}

#[cfg(test)]
mod tests {
    use super::*;
    use stdx::output::Output;

    fn spool(dir: &Path) -> Spool {
        Spool::create(&Output::at(&dir.join("trace.dat")).unwrap()).unwrap().0
    }

    fn tracefs(dir: &Path) -> Tracefs {
        for (path, text) in [
            ("events/header_page", "\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;\n"),
            ("events/header_event", "# compressed entry header\n"),
            ("events/ftrace/print/format", "name: print\nID: 5\nformat:\n"),
            ("events/sched/sched_switch/format", "name: sched_switch\nID: 314\nformat:\n"),
            ("events/irq/softirq_entry/format", "name: softirq_entry\nID: 20\nformat:\n"),
            ("available_events", "sched:sched_switch\nirq:softirq_entry\n"),
            ("trace_clock", "[local] mono\n"),
        ] {
            let path = dir.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        Tracefs::open_at(dir).unwrap()
    }

    #[test]
    fn data_and_kernel_stand_in_for_a_manifest() {
        let (dir, kernel) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let spool = spool(dir.path());
        let mut chunk = vec![0; BLOCK_HEADER_LEN];
        chunk.extend(ZSTD);
        // As a loss of power leaves them.
        let zeros = [0; BLOCK_HEADER_LEN + 4096];
        for (name, content) in [("cpu0.0", &zeros[..]), ("cpu3.1", &chunk), ("channel2-cpu1.0", b"")] {
            spool.files().write(name, content).unwrap();
        }
        let Found { manifest, assumed } = of_kernel(&spool, &tracefs(kernel.path())).unwrap();
        assert_eq!(manifest.cpu_count, 4);
        let channels: Vec<_> =
            manifest.channels.iter().map(|channel| (channel.number, channel.name.as_str())).collect();
        assert_eq!(channels, [(0, ""), (2, "channel2")]);
        assert!(matches!(manifest.compression, Compression::Zstd { .. }));
        let systems: Vec<_> =
            manifest.systems.iter().map(|(name, formats)| (name.as_str(), formats.len())).collect();
        assert_eq!(systems, [("irq", 1), ("sched", 1)]);
        assert!(
            manifest.is_assumed
                && manifest.host.boot_id.is_empty()
                && !assumed.is_empty()
                && manifest.only.len() == 2
        );
    }

    #[test]
    fn pages_show_that_nothing_is_compressed() {
        let dir = tempfile::tempdir().unwrap();
        let spool = spool(dir.path());
        let file = |name: &str| SegmentFile { index: 0, name: name.to_owned() };
        let mut page = vec![0; 4096];
        page[8..16].copy_from_slice(&64_u64.to_le_bytes());
        spool.files().write("cpu0.0", &page).unwrap();
        spool.files().write("cpu1.0", b"short").unwrap();
        assert_eq!(compression_of(&spool, &file("cpu0.0")).unwrap(), Some(Compression::None));
        assert_eq!(compression_of(&spool, &file("cpu1.0")).unwrap(), None);
    }
}
