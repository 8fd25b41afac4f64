//! The code that processes map, as the kernel announces it to profilers: `PERF_RECORD_MMAP2` and
//! `PERF_RECORD_FORK` of an event that never counts (`PERF_COUNT_SW_DUMMY`), one for each CPU. No other
//! interface tells of all mappings before their code runs.

use std::{
    io,
    os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd},
    sync::atomic::{AtomicU64, Ordering},
};

use memmap2::{MmapOptions, MmapRaw};

use bpf::sys;

/// Pages of data in each CPU's ring, a power of two: some two thousand mappings.
const DATA_PAGES: usize = 64;
// `struct perf_event_mmap_page` (include/uapi/linux/perf_event.h).
const DATA_HEAD: usize = 1024;
const DATA_TAIL: usize = 1032;
// `enum perf_event_type`.
const RECORD_LOST: u32 = 2;
const RECORD_FORK: u32 = 7;
const RECORD_MMAP2: u32 = 10;
/// `PERF_RECORD_MISC_MMAP_BUILD_ID`.
const MISC_BUILD_ID: u16 = 1 << 14;
const HEADER: usize = 8;

/// What a process did to its address space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MappingEvent<'a> {
    /// It mapped code.
    Mapped(Mapped<'a>),
    /// It was created as a copy of another process.
    Forked {
        /// The new process.
        child: u32,
        /// The other.
        parent: u32,
    },
    /// So many announcements found the ring full.
    Lost(u64),
}

/// Which file a mapping is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileId<'a> {
    /// The one with this build id.
    BuildId(&'a [u8]),
    /// One without a build id.
    NoBuildId,
    /// Major and minor number of its device, and its inode, as the kernel has them. It may have a build id.
    Inode(u32, u32, u64),
}

/// A mapping of code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapped<'a> {
    /// The process.
    pub process: u32,
    /// Its first address.
    pub start: u64,
    /// The address after it.
    pub end: u64,
    /// Where it begins in the file.
    pub offset: u64,
    /// Which file it is. The kernel announces build ids since Linux 5.12, of files whose first page is in
    /// memory.
    pub file: FileId<'a>,
    /// The file, or a name such as `[vdso]`.
    pub path: &'a [u8],
}

/// One CPU's announcements.
#[derive(Debug)]
pub struct MappingEvents {
    event: OwnedFd,
    map: MmapRaw,
}

impl MappingEvents {
    /// Listens to what the processes on `cpu` map from now on.
    pub fn open(cpu: u32) -> io::Result<Self> {
        let page = rustix::param::page_size();
        let event = sys::open_mapping_events(cpu, (page * DATA_PAGES / 2) as u32)?;
        let map = MmapOptions::new().len(page * (1 + DATA_PAGES)).map_raw(event.as_raw_fd())?;
        Ok(Self { event, map })
    }

    /// Shows `each` what has arrived, in order, and makes room for more.
    pub fn read(&mut self, mut each: impl FnMut(&MappingEvent<'_>)) {
        let page = rustix::param::page_size();
        let len = self.map.len() - page;
        let base = self.map.as_mut_ptr();
        // SAFETY: both words are aligned, in the first page of the mapping, which lives as long as `self`;
        // the kernel accesses them atomically.
        let (head, tail) = unsafe {
            (AtomicU64::from_ptr(base.add(DATA_HEAD).cast()), AtomicU64::from_ptr(base.add(DATA_TAIL).cast()))
        };
        let until = head.load(Ordering::Acquire);
        let from = tail.load(Ordering::Relaxed);
        let count = usize::try_from(until.wrapping_sub(from)).unwrap_or(len).min(len);
        let mut bytes = vec![0_u8; count];
        let at = (from % len as u64) as usize;
        let first = count.min(len - at);
        // SAFETY: the data pages are after the first page; the kernel leaves what is between tail and head
        // alone until the tail moves.
        unsafe {
            let data = base.add(page);
            std::ptr::copy_nonoverlapping(data.add(at), bytes.as_mut_ptr(), first);
            std::ptr::copy_nonoverlapping(data, bytes.as_mut_ptr().add(first), count - first);
        }
        tail.store(until, Ordering::Release);
        each_record(&bytes, &mut each);
    }
}

impl AsFd for MappingEvents {
    /// Readable when the ring is half full.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

/// Reads `struct perf_event_header` and what follows it. A length that makes no sense ends the reading.
fn each_record(mut bytes: &[u8], each: &mut impl FnMut(&MappingEvent<'_>)) {
    while let Some((header, _)) = bytes.split_at_checked(HEADER) {
        let kind = u32::from_ne_bytes([header[0], header[1], header[2], header[3]]);
        let misc = u16::from_ne_bytes([header[4], header[5]]);
        let size = usize::from(u16::from_ne_bytes([header[6], header[7]]));
        if size < HEADER {
            return;
        }
        let Some((record, rest)) = bytes.split_at_checked(size) else { return };
        if let Some(event) = parse(kind, misc, &record[HEADER..]) {
            each(&event);
        }
        bytes = rest;
    }
}

fn parse(kind: u32, misc: u16, body: &[u8]) -> Option<MappingEvent<'_>> {
    let word = |at: usize| Some(u32::from_ne_bytes(*body.get(at..)?.first_chunk()?));
    let long = |at: usize| Some(u64::from_ne_bytes(*body.get(at..)?.first_chunk()?));
    match kind {
        // id, lost
        RECORD_LOST => Some(MappingEvent::Lost(long(8)?)),
        // pid, ppid, tid, ptid, time: a new thread has its process's pid.
        RECORD_FORK => {
            let (child, parent) = (word(0)?, word(4)?);
            (child != parent).then_some(MappingEvent::Forked { child, parent })
        }
        // pid, tid, addr, len, pgoff, device and inode or build id (24), prot, flags, filename
        RECORD_MMAP2 => {
            let (start, len) = (long(8)?, long(16)?);
            let file = body.get(32..56)?;
            let build_id = file.get(4..4 + usize::from(file[0])).filter(|_| misc & MISC_BUILD_ID != 0);
            let file = match build_id {
                Some(build_id) => FileId::BuildId(build_id),
                None => FileId::Inode(word(32)?, word(36)?, long(40)?),
            };
            let path = body.get(64..)?;
            let path = path.split(|&byte| byte == 0).next().unwrap_or_default();
            Some(MappingEvent::Mapped(Mapped {
                process: word(0)?,
                start,
                end: start.checked_add(len)?,
                offset: long(24)?,
                file,
                path,
            }))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    fn record(kind: u32, misc: u16, body: &[u8]) -> Vec<u8> {
        let size = (HEADER + body.len()) as u16;
        [&kind.to_ne_bytes()[..], &misc.to_ne_bytes(), &size.to_ne_bytes(), body].concat()
    }

    fn texts(bytes: &[u8]) -> Vec<String> {
        let mut found = Vec::new();
        each_record(bytes, &mut |event| found.push(format!("{event:?}")));
        found
    }

    fn mapping() -> Vec<u8> {
        let mut body = [7_u32.to_ne_bytes(), 8_u32.to_ne_bytes()].concat();
        for long in [0x1000_u64, 0x500, 0x2000] {
            body.extend_from_slice(&long.to_ne_bytes());
        }
        body.extend_from_slice(&[2, 0, 0, 0, 0xab, 0xcd]);
        body.resize(64, 0);
        body.extend_from_slice(b"/bin/x\0\0");
        body
    }

    #[test]
    fn records_are_read() {
        let mapped = |file| {
            let (process, start, end, offset) = (7, 0x1000, 0x1500, 0x2000);
            format!(
                "{:?}",
                MappingEvent::Mapped(Mapped { process, start, end, offset, file, path: b"/bin/x" })
            )
        };
        let fork = [9_u32, 7, 9, 7].map(u32::to_ne_bytes).concat();
        let thread = [7_u32, 7, 9, 7].map(u32::to_ne_bytes).concat();
        let lost = [1_u64, 5].map(u64::to_ne_bytes).concat();
        let bytes = [
            record(RECORD_MMAP2, MISC_BUILD_ID, &mapping()),
            record(RECORD_FORK, 0, &thread),
            record(RECORD_FORK, 0, &fork),
            record(99, 0, b"12345678"),
            record(RECORD_MMAP2, 0, &mapping()),
            record(RECORD_LOST, 0, &lost),
        ];
        let expected = [
            mapped(FileId::BuildId(&[0xab, 0xcd])),
            "Forked { child: 9, parent: 7 }".to_owned(),
            mapped(FileId::Inode(2, 0xcdab, 0)),
            "Lost(5)".to_owned(),
        ];
        assert_eq!(texts(&bytes.concat()), expected);
    }

    #[test]
    fn records_that_are_cut_short_are_left_out() {
        let whole = record(RECORD_MMAP2, MISC_BUILD_ID, &mapping());
        for len in 0..whole.len() {
            assert!(texts(&whole[..len]).is_empty(), "{len}");
            // A header that claims no more than there is.
            if len >= HEADER {
                let mut cut = whole[..len].to_vec();
                cut[6..8].copy_from_slice(&(len as u16).to_ne_bytes());
                texts(&cut);
            }
        }
        assert!(texts(&record(RECORD_MMAP2, 0, &[]).repeat(3)).is_empty());
        assert!(texts(&[0; 64]).is_empty());
    }

    #[test]
    fn a_mapping_of_this_process_is_announced() {
        let cpus = std::thread::available_parallelism().unwrap().get() as u32;
        let mut events: Vec<MappingEvents> = (0..cpus).map(|cpu| MappingEvents::open(cpu).unwrap()).collect();
        let exe = std::fs::read_link("/proc/self/exe").unwrap();
        let file = std::fs::File::open(&exe).unwrap();
        // SAFETY: nobody writes to a running test's executable.
        let map = unsafe { MmapOptions::new().len(4096).map_exec(&file) }.unwrap();
        let mut found = false;
        for cpu in &mut events {
            cpu.read(|event| {
                if let MappingEvent::Mapped(mapped) = event {
                    found |= mapped.process == std::process::id()
                        && mapped.start == map.as_ptr() as u64
                        && mapped.path == exe.as_os_str().as_encoded_bytes();
                }
            });
        }
        assert!(found);
    }
}
