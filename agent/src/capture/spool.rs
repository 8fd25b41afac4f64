//! The spool: where a recording's data is until the finished file exists, and what a crash leaves behind.
//!
//! A directory beside the output file, `NAME.spool`:
//!
//! | file | content |
//! |---|---|
//! | `manifest` | everything else that the trace file needs: [`super::Manifest`] |
//! | `names` | thread names as they became known: [`super::names`] |
//! | `kallsyms` | the kernel's symbols, written while recording |
//! | `cpuN.K` | segment K of CPU N's data, exactly as it will be in the trace file: chunks, or bare pages |
//! | `reserve` | disk space set aside, so that a full disk leaves room to finish the file |
//! | `trace.dat` | the trace file, until it is complete and goes to its place |
//! | `moved` | what of the data is in `trace.dat` only, as the disk had no room for a copy |
//! | `lock` | locked while the recording runs |
//!
//! Pages are written before their memory is given back to the kernel, so a `kill -9` loses only what was still in the
//! rings. A partly written last chunk is recognised by its length and cut off.

use std::{
    fs::{self, File},
    io::{self, Write as _},
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};

use rustix::{
    fs::{FallocateFlags, FlockOperation, Mode, OFlags, fallocate, flock, fstat, open, openat},
    io::Errno,
};

use crate::{reason, tracedat::ChunkCompressor};

/// Suffix of the spool directory's name.
const SUFFIX: &str = ".spool";

/// Why a spool cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SpoolError {
    /// A system call on a file of the spool failed.
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
    /// The recording that writes to the spool has not ended.
    #[error("{0} belongs to a recording that is still running; let that one end first")]
    InUse(PathBuf),
    /// A directory of another user, or none at all: what is in it may be a trap.
    #[error("{0} is not a directory of the user that runs this")]
    NotOurs(PathBuf),
    /// A file of the spool does not hold what it should.
    #[error("{path} is damaged: {what}")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// Compressing a chunk failed.
    #[error("cannot compress trace pages: {0}")]
    Compress(#[from] crate::tracedat::CompressError),
}

impl SpoolError {
    pub(super) fn io(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { action, path, source }
    }

    /// Whether the disk, or the user's part of it, is full.
    pub fn is_disk_full(&self) -> bool {
        reason::is_disk_full(self)
    }
}

/// A spool directory that this process has locked.
#[derive(Debug)]
pub struct Spool {
    dir: PathBuf,
    /// `None` for a copy of a spool that lacks the file. No recording runs there.
    lock: Option<OwnedFd>,
}

impl Spool {
    /// Where the spool of the trace file `output` is.
    pub fn path_for(output: &Path) -> PathBuf {
        let mut name = output.as_os_str().to_owned();
        name.push(SUFFIX);
        name.into()
    }

    /// Creates the spool of `output`. One that a crashed recording left behind is kept under another name, which is the
    /// second value.
    pub fn create(output: &Path) -> Result<(Self, Option<PathBuf>), SpoolError> {
        let dir = Self::path_for(output);
        let kept = if is_there(&dir) { set_aside(&dir)? } else { None };
        fs::create_dir(&dir).map_err(SpoolError::io("create", &dir))?;
        let lock = lock(&dir, OFlags::CREATE)?;
        Ok((Self { dir, lock }, kept))
    }

    /// Opens the spool that a recording left behind. `path` is the spool directory or the trace file it belongs to.
    pub fn open(path: &Path) -> Result<Self, SpoolError> {
        let beside = Self::path_for(path);
        let dir = if path.is_dir() { path.to_owned() } else { beside };
        // `.` has no name, and a path beside it would be one in it.
        let dir = if dir.file_name().is_some() { dir } else { fs::canonicalize(&dir).unwrap_or(dir) };
        fs::metadata(dir.join("manifest")).map_err(SpoolError::io("find a recording in", &dir))?;
        let lock = lock(&dir, OFlags::empty())?;
        Ok(Self { dir, lock })
    }

    /// The directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The trace file that belongs to the spool by its name: `a/trace.dat.spool` has `a/trace.dat`, and `a/trace.dat.spool.1`,
    /// which a later recording moved out of its way, `a/trace.dat.1`. `None` for a directory that was renamed.
    pub fn output(&self) -> Option<PathBuf> {
        output_of(&self.dir)
    }

    /// Path of the file `name` in the spool.
    pub fn file(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Sets `bytes` of disk space aside for finishing the file. A file system that cannot do so is not an error: then a
    /// full disk may leave the recording in the spool.
    pub fn reserve(&self, bytes: u64) -> Result<(), SpoolError> {
        let path = self.file("reserve");
        let file = File::create(&path).map_err(SpoolError::io("create", &path))?;
        match fallocate(&file, FallocateFlags::empty(), 0, bytes) {
            Err(e) if e == Errno::NOSPC || e == Errno::DQUOT => {
                Err(SpoolError::io("reserve space in", path)(e.into()))
            }
            _ => Ok(()),
        }
    }

    /// Gives the reserved space back to the file system.
    pub fn release_reserve(&self) {
        // It may never have been there; a failure to remove it shows when the space is needed.
        let _ = fs::remove_file(self.file("reserve"));
    }

    /// The data segments of every CPU, by CPU and in recording order.
    pub(super) fn segments(&self) -> Result<Vec<(u32, Vec<SegmentFile>)>, SpoolError> {
        let mut found = Vec::new();
        let entries = fs::read_dir(&self.dir).map_err(SpoolError::io("list", &self.dir))?;
        for entry in entries {
            let entry = entry.map_err(SpoolError::io("list", &self.dir))?;
            if let Some((cpu, index)) = entry.file_name().to_str().and_then(parse_segment) {
                found.push((cpu, index, entry.path()));
            }
        }
        found.sort();
        let mut cpus: Vec<(u32, Vec<SegmentFile>)> = Vec::new();
        for (cpu, index, path) in found {
            let segment = SegmentFile { index, path };
            match cpus.last_mut() {
                Some((last, files)) if *last == cpu => files.push(segment),
                _ => cpus.push((cpu, vec![segment])),
            }
        }
        Ok(cpus)
    }

    /// Deletes the spool.
    pub fn remove(self) -> Result<(), SpoolError> {
        let Self { dir, lock } = self;
        // Without it nobody takes what is left for a recording if this is interrupted.
        let _ = fs::remove_file(dir.join("manifest"));
        // A network file system keeps a file that is open under another name, and the directory with it.
        drop(lock);
        fs::remove_dir_all(&dir).map_err(SpoolError::io("remove", dir))
    }
}

/// A data file of a CPU.
#[derive(Clone, Debug)]
pub(super) struct SegmentFile {
    /// Its number, rising in recording order.
    pub index: u64,
    /// Where it is.
    pub path: PathBuf,
}

/// Name of a CPU's segment.
pub(super) fn segment_name(cpu: u32, index: u64) -> String {
    format!("cpu{cpu}.{index}")
}

fn parse_segment(name: &str) -> Option<(u32, u64)> {
    let (cpu, index) = name.strip_prefix("cpu")?.split_once('.')?;
    Some((cpu.parse().ok()?, index.parse().ok()?))
}

fn output_of(dir: &Path) -> Option<PathBuf> {
    let name = dir.file_name()?.to_str()?;
    let (base, number) = name.rsplit_once(SUFFIX)?;
    let kept = number.strip_prefix('.').is_some_and(|n| n.parse::<u32>().is_ok());
    let ours = !base.is_empty() && (number.is_empty() || kept);
    ours.then(|| dir.with_file_name(format!("{base}{number}")))
}

/// Whether something has this name, be it a link to nothing.
fn is_there(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok()
}

/// Locks a spool directory that belongs to us. Who can write beside the output can put anything under the spool's name: links are
/// not followed, and nothing is changed.
fn lock(dir: &Path, create: OFlags) -> Result<Option<OwnedFd>, SpoolError> {
    let flags = OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = match open(dir, flags | OFlags::DIRECTORY | OFlags::RDONLY, Mode::empty()) {
        Err(Errno::NOTDIR | Errno::LOOP) => return Err(SpoolError::NotOurs(dir.to_owned())),
        other => other.map_err(|e| SpoolError::io("open", dir)(e.into()))?,
    };
    let owner = fstat(&opened).map_err(|e| SpoolError::io("look at", dir)(e.into()))?.st_uid;
    if owner != rustix::process::geteuid().as_raw() {
        return Err(SpoolError::NotOurs(dir.to_owned()));
    }
    let path = dir.join("lock");
    let lock = match openat(&opened, "lock", flags | create | OFlags::RDWR | OFlags::NONBLOCK, 0o600.into()) {
        Err(Errno::NOENT) => return Ok(None),
        other => other.map_err(|e| SpoolError::io("open", &path)(e.into()))?,
    };
    match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(lock)),
        Err(Errno::WOULDBLOCK) => Err(SpoolError::InUse(dir.to_owned())),
        Err(e) => Err(SpoolError::io("lock", path)(e.into())),
    }
}

/// Moves an earlier recording's spool out of the way, or removes it if it never got as far as a manifest. A directory that only
/// has the name of a spool is moved like one: nothing in it is ours to delete.
fn set_aside(dir: &Path) -> Result<Option<PathBuf>, SpoolError> {
    const OURS: [&str; 3] = ["lock", "manifest.new", "reserve"];
    drop(lock(dir, OFlags::empty())?);
    let entries = fs::read_dir(dir).map_err(SpoolError::io("list", dir))?;
    // An entry that cannot be read is not known to be ours.
    let only_ours = |entry: io::Result<fs::DirEntry>| {
        entry.is_ok_and(|entry| entry.file_name().to_str().is_some_and(|name| OURS.contains(&name)))
    };
    if entries.into_iter().all(only_ours) {
        for ours in OURS {
            // What cannot be removed keeps the directory from being removed, and then it is moved.
            let _ = fs::remove_file(dir.join(ours));
        }
        if fs::remove_dir(dir).is_ok() {
            return Ok(None);
        }
    }
    let mut number = 1_u32;
    loop {
        let mut name = dir.as_os_str().to_owned();
        name.push(format!(".{number}"));
        let free = PathBuf::from(name);
        // A recovery writes it to a file with the same number.
        let output = output_of(&free);
        if !is_there(&free) && !output.is_some_and(|output| is_there(&output)) {
            fs::rename(dir, &free).map_err(SpoolError::io("rename", dir))?;
            return Ok(Some(free));
        }
        number += 1;
    }
}

/// One CPU's data on its way into the spool.
#[derive(Debug)]
pub(super) struct CpuSpool {
    dir: PathBuf,
    cpu: u32,
    /// Uncompressed bytes after which a segment is full; `None` for a single segment without limit.
    segment_limit: Option<u64>,
    current: Segment,
    previous: Option<Segment>,
    next_index: u64,
    totals: SpoolTotals,
    /// Whole chunks that are not in the file yet.
    pending: Vec<u8>,
    pending_pages: u64,
    pending_events: u64,
}

/// What a CPU's spool holds, and what a size cap removed from it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpoolTotals {
    /// Events in the pages on disk.
    pub events: u64,
    /// Pages on disk.
    pub pages: u64,
    /// Bytes on disk.
    pub bytes: u64,
    /// Events in pages that the size cap removed.
    pub capped_events: u64,
}

#[derive(Debug)]
struct Segment {
    path: PathBuf,
    file: File,
    pages: u64,
    events: u64,
    /// Length up to which the file consists of whole chunks.
    len: u64,
}

impl CpuSpool {
    /// The spool of `cpu`. With a `cap`, at most that many bytes of pages are kept: two segments of half the size, the
    /// older of which goes when the newer is full (as trace-cmd's `-m` does).
    pub(super) fn create(spool: &Spool, cpu: u32, cap: Option<u64>) -> Result<Self, SpoolError> {
        let current = Segment::create(spool.dir(), cpu, 0)?;
        Ok(Self {
            dir: spool.dir().to_owned(),
            cpu,
            segment_limit: cap.map(|bytes| bytes / 2),
            current,
            previous: None,
            next_index: 1,
            totals: SpoolTotals::default(),
            pending: Vec::new(),
            pending_pages: 0,
            pending_events: 0,
        })
    }

    /// Adds a chunk of `pages` that hold `events` events. It is in the file after [`CpuSpool::flush`], which the caller
    /// calls when [`CpuSpool::pending_bytes`] are many.
    pub(super) fn append(
        &mut self,
        pages: &[u8],
        page_size: usize,
        events: u64,
        compressor: &mut ChunkCompressor,
    ) -> Result<(), SpoolError> {
        if let Some(limit) = self.segment_limit {
            let used = (self.current.pages + self.pending_pages) * page_size as u64;
            if used > 0 && used + pages.len() as u64 > limit {
                self.flush()?;
                self.next_segment()?;
            }
        }
        self.pending.extend_from_slice(compressor.compress(pages)?);
        self.pending_pages += (pages.len() / page_size) as u64;
        self.pending_events += events;
        Ok(())
    }

    /// Bytes that wait for [`CpuSpool::flush`].
    pub(super) fn pending_bytes(&self) -> usize {
        self.pending.len()
    }

    /// Brings all chunks to the file, in one write. After an error the file still ends with a whole chunk, and the chunks that
    /// were to be written are forgotten: their pages are still in the ring.
    pub(super) fn flush(&mut self) -> Result<(), SpoolError> {
        let (pages, events) =
            (std::mem::take(&mut self.pending_pages), std::mem::take(&mut self.pending_events));
        let written = if self.pending.is_empty() { Ok(()) } else { self.current.append(&self.pending) };
        let bytes = self.pending.len() as u64;
        self.pending.clear();
        written?;
        self.current.pages += pages;
        self.current.events += events;
        self.totals.pages += pages;
        self.totals.events += events;
        self.totals.bytes += bytes;
        Ok(())
    }

    /// What is on disk.
    pub(super) fn totals(&self) -> SpoolTotals {
        self.totals
    }

    fn next_segment(&mut self) -> Result<(), SpoolError> {
        let fresh = Segment::create(&self.dir, self.cpu, self.next_index)?;
        self.next_index += 1;
        let full = std::mem::replace(&mut self.current, fresh);
        if let Some(old) = self.previous.replace(full) {
            fs::remove_file(&old.path).map_err(SpoolError::io("remove", &old.path))?;
            self.totals.pages -= old.pages;
            self.totals.events -= old.events;
            self.totals.bytes -= old.len;
            self.totals.capped_events += old.events;
        }
        Ok(())
    }
}

impl Segment {
    fn create(dir: &Path, cpu: u32, index: u64) -> Result<Self, SpoolError> {
        let path = dir.join(segment_name(cpu, index));
        let file = File::create(&path).map_err(SpoolError::io("create", &path))?;
        Ok(Self { path, file, pages: 0, events: 0, len: 0 })
    }

    fn append(&mut self, chunk: &[u8]) -> Result<(), SpoolError> {
        if let Err(error) = self.file.write_all(chunk) {
            // Part of the chunk may be there. Cutting it off frees space, so this works on a full disk too; if it should
            // not, the reader of the spool recognises the partial chunk.
            let _ = self.file.set_len(self.len);
            let _ = io::Seek::seek(&mut self.file, io::SeekFrom::Start(self.len));
            return Err(SpoolError::io("write", &self.path)(error));
        }
        self.len += chunk.len() as u64;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    #[test]
    fn a_link_under_the_name_of_a_spool_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let (output, target) = (dir.path().join("trace.dat"), dir.path().join("target"));
        fs::create_dir(&target).unwrap();
        fs::write(target.join("manifest"), "").unwrap();
        std::os::unix::fs::symlink(&target, Spool::path_for(&output)).unwrap();
        assert!(matches!(Spool::create(&output), Err(SpoolError::NotOurs(_))));
        assert!(matches!(Spool::open(&output), Err(SpoolError::NotOurs(_))));
        assert_eq!(fs::read_dir(target).unwrap().count(), 1);
    }

    #[test]
    fn a_lock_that_is_a_link_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let (output, victim) = (dir.path().join("trace.dat"), dir.path().join("victim"));
        let spool = Spool::path_for(&output);
        fs::create_dir(&spool).unwrap();
        fs::write(&victim, "text").unwrap();
        std::os::unix::fs::symlink(&victim, spool.join("lock")).unwrap();
        Spool::create(&output).unwrap_err();
        assert_eq!(fs::read_to_string(victim).unwrap(), "text");
    }

    #[test]
    fn a_spool_is_not_set_aside_under_a_number_that_a_file_has() {
        let dir = tempfile::tempdir().unwrap();
        let output = dir.path().join("trace.dat");
        fs::write(dir.path().join("trace.dat.1"), "").unwrap();
        fs::create_dir(dir.path().join("trace.dat.spool.2")).unwrap();
        let spool = Spool::create(&output).unwrap().0;
        fs::write(spool.file("manifest"), "").unwrap();
        drop(spool);
        let (_, kept) = Spool::create(&output).unwrap();
        assert_eq!(kept, Some(dir.path().join("trace.dat.spool.3")));
    }
}
