//! Names for the user stacks of a recording.
//!
//! A record of `ftrace:user_stack` has addresses, and readers look every address up in the file's one table
//! of symbols. So while stacks are recorded, the mappings of all processes are noted in the spool
//! (`journal`), and when the file is made, each address that is in some user stack gets an entry of its own
//! in the table (`resolve`). Its process may have ended long before.

mod journal;
mod live;
mod resolve;

use std::{
    collections::{BTreeSet, HashMap, hash_map::Entry},
    fs::File,
    io::{Seek as _, SeekFrom},
    os::fd::{AsFd as _, OwnedFd},
    os::unix::ffi::OsStrExt as _,
    thread::JoinHandle,
};

use agent_ebpf::FRAMES_AT;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use super::{
    CaptureOptions, Manifest, Spool, SpoolError,
    segment::{self, SegmentContent},
    spool::SegmentFile,
};
use attach::mappings::{FileId, Mapped, MappingEvents};
use elf::{Identity, MappedFile};
use ftrace_event::{Endian, Format};
use journal::{Journal, Processes};
use kernel::proc::{self, Mapping};
pub(super) use live::LiveSymbols;
pub(super) use resolve::UserSymbols;
use spec::StackKind;
use tracedat::page;

/// Name of the journal in the spool.
pub(super) const MAPPINGS: &str = "mappings";

/// Addresses that get names: more than any but the longest recordings have.
const ADDRESSES_MAX: usize = 1 << 20;
/// The most files whose build ids are read at the start: more than a machine has. Names of frames in others
/// are looked for by their paths alone.
const BUILD_IDS_MAX: usize = 1 << 14;

/// Notes mappings in a thread of its own.
#[derive(Debug)]
pub(super) struct MappingReader {
    thread: Option<JoinHandle<()>>,
    stop: OwnedFd,
}

impl MappingReader {
    /// Starts noting in `spool` what all processes have mapped, and what they map from now on.
    pub(super) fn start(spool: &Spool, options: &CaptureOptions) -> std::io::Result<Self> {
        Self::write_to(spool.files().create(MAPPINGS)?, options)
    }

    /// Goes on where another process has ended. What was mapped and taken away again meanwhile is not known.
    pub(super) fn go_on(spool: &Spool, options: &CaptureOptions) -> std::io::Result<Self> {
        let mut file = spool.files().open_for_writing(MAPPINGS)?;
        file.seek(SeekFrom::End(0))?;
        Self::write_to(file, options)
    }

    fn write_to(file: File, options: &CaptureOptions) -> std::io::Result<Self> {
        let recorded = options.tasks.as_ref().map(|tasks| tasks.processes.clone()).unwrap_or_default();
        let cpus = options.possible_cpus;
        // A CPU that is not online has no processes.
        let mut events: Vec<MappingEvents> =
            (0..cpus).filter_map(|cpu| MappingEvents::open(cpu).ok()).collect();
        let mut journal = Journal::new(file);
        let stop = eventfd(0, EventfdFlags::CLOEXEC)?;
        let stopped = stop.try_clone()?;
        let thread = std::thread::Builder::new().name("mappings".into()).spawn(move || {
            note_all(&mut journal, &recorded, || is_over(&stopped), |journal| note_new(&mut events, journal));
            // Whoever follows the recording names stacks by what is there.
            journal.flush();
            let mut last = false;
            while !last {
                last = wait(&events, &stopped);
                note_new(&mut events, &mut journal);
                journal.flush();
            }
        })?;
        Ok(Self { thread: Some(thread), stop })
    }
}

/// Notes what was announced by now.
fn note_new(events: &mut [MappingEvents], journal: &mut Journal) {
    for cpu in events {
        cpu.read(|event| journal.event(event));
    }
}

/// Notes what all processes have mapped by now, those that are `recorded` first: with the paths that they
/// have for it, and with build ids, as the kernel announces what comes. Once it is over, no file is looked
/// at any more. `between` two processes, what is announced can be read.
fn note_all(
    journal: &mut Journal,
    recorded: &[u32],
    is_over: impl Fn() -> bool,
    mut between: impl FnMut(&mut Journal),
) {
    let mut build_ids = HashMap::new();
    let first: BTreeSet<u32> = recorded.iter().copied().collect();
    let all = proc::processes().unwrap_or_default();
    let others = all.into_iter().filter(|process| !first.contains(process));
    for process in first.iter().copied().chain(others) {
        // It may have ended, or be a kernel thread.
        let (mappings, files) = if is_over() {
            let mappings = proc::open_process(process).and_then(|dir| proc::mappings(dir.as_fd()));
            (mappings.unwrap_or_default(), Vec::new())
        } else {
            MappedFile::with_mappings(process).unwrap_or_default()
        };
        note(journal, process, (&mappings, &files), &mut build_ids);
        between(journal);
    }
}

/// Build ids of files, as [`OpenBinary::build_id`](elf::OpenBinary::build_id).
type BuildIds = HashMap<Identity, Option<Vec<u8>>>;

/// Notes what a process has mapped.
fn note(
    journal: &mut Journal,
    process: u32,
    (mappings, files): (&[Mapping], &[MappedFile]),
    build_ids: &mut BuildIds,
) {
    let by_start: HashMap<u64, &MappedFile> =
        files.iter().flat_map(|file| file.code_starts().map(move |start| (start, file))).collect();
    for mapping in mappings.iter().filter(|mapping| mapping.executable) {
        let Mapping { start, end, offset, ref path, .. } = *mapping;
        let of = by_start.get(&start).copied();
        let file = match of.and_then(|of| build_id_of(build_ids, of)) {
            Some([]) => FileId::NoBuildId,
            Some(build_id) => FileId::BuildId(build_id),
            None => {
                let (major, minor) = mapping.device_numbers();
                FileId::Inode(major, minor, mapping.inode)
            }
        };
        let path = of.map_or(path.as_slice(), |of| of.path().as_os_str().as_bytes());
        journal.mapping(&Mapped { process, start, end, offset, file, path });
    }
}

/// The build id of a file, which is read once; empty if it has none, and `None` if it is not known.
fn build_id_of<'a>(known: &'a mut BuildIds, file: &MappedFile) -> Option<&'a [u8]> {
    let has_room = known.len() < BUILD_IDS_MAX;
    match known.entry(file.identity()) {
        Entry::Occupied(there) => there.into_mut().as_deref(),
        Entry::Vacant(free) if has_room => {
            free.insert(file.open().ok().and_then(|binary| binary.build_id())).as_deref()
        }
        Entry::Vacant(_) => None,
    }
}

/// Whether the noting is to end.
fn is_over(stop: &OwnedFd) -> bool {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut [PollFd::new(stop, PollFlags::IN)], Some(&now)).is_ok_and(|ready| ready != 0)
}

/// Waits for mappings; `true` if this is the end.
fn wait(events: &[MappingEvents], stop: &OwnedFd) -> bool {
    let mut fds = vec![PollFd::new(stop, PollFlags::IN)];
    fds.extend(events.iter().map(|event| PollFd::from_borrowed_fd(event.as_fd(), PollFlags::IN)));
    // An error other than an interruption would come again and again.
    match poll(&mut fds, None) {
        Err(rustix::io::Errno::INTR) => false,
        Err(_) => true,
        Ok(_) => !fds[0].revents().is_empty(),
    }
}

/// Ends the noting; what has been announced by then is in the journal.
impl Drop for MappingReader {
    fn drop(&mut self) {
        // The counter of an eventfd takes one.
        let _ = rustix::io::write(&self.stop, &1_u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            // A panic has been printed; some frames then have no names.
            let _ = thread.join();
        }
    }
}

/// The symbols of all user stacks in the data, if the recording has any.
pub(super) fn collect<'a>(
    spool: &Spool,
    manifest: &Manifest,
    data: impl Iterator<Item = &'a (SegmentFile, SegmentContent)>,
) -> Result<UserSymbols, SpoolError> {
    // The journal exists only where user stacks were recorded.
    let Ok(text) = spool.files().read(MAPPINGS) else { return Ok(UserSymbols::default()) };
    let Some(id) = stack_id(manifest) else { return Ok(UserSymbols::default()) };
    let mut frames = BTreeSet::new();
    for (segment, content) in data {
        let path = spool.file(&segment.name);
        let file = spool.files().open_file(&segment.name).map_err(SpoolError::io("open", &path))?;
        segment::each_page(&file, &path, manifest.compression, content, |page| {
            frames_of(page, id, &mut frames);
        })?;
    }
    Ok(resolve::resolve(&Processes::parse(&text), &frames))
}

/// The id of the event, by the formats that go into the file.
fn stack_id(manifest: &Manifest) -> Option<u16> {
    let (_, name) = StackKind::User.event().split_once(':')?;
    let formats = manifest.ftrace_events.iter().filter_map(|text| Format::parse(text).ok());
    formats.into_iter().find(|format| format.name == name).map(|format| format.id)
}

/// Adds the frames of a page's user stacks, each with its process. A page that is damaged has them up to the
/// damage.
fn frames_of(page: &[u8], id: u16, frames: &mut BTreeSet<(u32, u64)>) {
    page::each_record(page, Endian::Little, |record| {
        if record.len() < FRAMES_AT || record[..2] != id.to_le_bytes() {
            return;
        }
        let process = u32::from_le_bytes([record[8], record[9], record[10], record[11]]);
        for frame in record[FRAMES_AT..].as_chunks().0 {
            let address = u64::from_le_bytes(*frame);
            if address != u64::MAX && frames.len() < ADDRESSES_MAX {
                frames.insert((process, address));
            }
        }
    });
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use std::io::Read as _;

    use super::*;
    use tracedat::page::{PageBuilder, Push};

    /// The text of a journal of what is mapped.
    fn noted(recorded: &[u32], is_over: impl Fn() -> bool, between: impl FnMut(&mut Journal)) -> Vec<u8> {
        let mut file = tempfile::tempfile().unwrap();
        let mut journal = Journal::new(file.try_clone().unwrap());
        note_all(&mut journal, recorded, is_over, between);
        journal.flush();
        let mut text = Vec::new();
        file.rewind().unwrap();
        file.read_to_end(&mut text).unwrap();
        text
    }

    #[test]
    fn what_is_mapped_has_its_path_and_build_id() {
        let exe = std::env::current_exe().unwrap().canonicalize().unwrap();
        let text = noted(&[], || false, |_| ());
        let functions = elf::symbols::Functions::of(&exe).unwrap();
        let address = what_is_mapped_has_its_path_and_build_id as fn() as usize as u64;
        let processes = Processes::parse(&text);
        let mapping = processes.find(std::process::id(), address).unwrap();
        assert_eq!(mapping.path, exe.as_os_str().as_bytes());
        assert_eq!(mapping.build_id(), Some(functions.build_id()));
    }

    /// A recording may be over before all files were looked at.
    #[test]
    fn what_is_mapped_is_noted_also_when_it_is_over() {
        let exe = std::env::current_exe().unwrap().canonicalize().unwrap();
        let own = std::process::id();
        let mut count = 0_usize;
        let text = noted(&[own], || true, |_| count += 1);
        let address = what_is_mapped_is_noted_also_when_it_is_over as fn() as usize as u64;
        let processes = Processes::parse(&text);
        let mapping = processes.find(own, address).unwrap();
        assert_eq!((mapping.path, mapping.build_id()), (exe.as_os_str().as_bytes(), None));
        assert!(count > 1, "all processes are noted");
        // What is recorded comes first.
        assert!(text.starts_with(format!("m {own:x} ").as_bytes()));
        let stop = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        assert!(!is_over(&stop));
        rustix::io::write(&stop, &1_u64.to_ne_bytes()).unwrap();
        assert!(is_over(&stop));
    }

    #[test]
    fn only_frames_of_user_stacks_count() {
        let record = |id: u16, frames: &[u64]| {
            let mut bytes = id.to_le_bytes().to_vec();
            bytes.resize(8, 0);
            bytes.extend_from_slice(&[7, 0, 0, 0, 0, 0, 0, 0]);
            bytes.extend(frames.iter().flat_map(|frame| frame.to_le_bytes()));
            bytes
        };
        let mut builder = PageBuilder::new(4096, Endian::Little).unwrap();
        for record in [record(4, &[1]), record(13, &[0x10, 0x20, u64::MAX]), record(13, &[0x10])] {
            assert_eq!(builder.push(1, &record).unwrap(), Push::Stored);
        }
        let mut page = Vec::new();
        builder.finish().unwrap().read_to_end(&mut page).unwrap();
        let mut frames = BTreeSet::new();
        frames_of(&page, 13, &mut frames);
        assert_eq!(frames.into_iter().collect::<Vec<_>>(), [(7, 0x10), (7, 0x20)]);
    }
}
