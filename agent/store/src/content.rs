//! The bytes of an archive: those of a file, or of a directory as a tar file, which is made where it is read.
//!
//! What is here may belong to another user, who may exchange it at any moment: it is reached by descriptors,
//! no link is followed, and whatever belongs to somebody else than the archive is refused.

use std::error::Error as _;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Stat};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::failure::StoreError;
use super::name::Form;
use stdx::output::{Directory, Identity, Links, OutputError, Resolved, resolve};

/// Size of a tar file's records (POSIX pax).
const RECORD: u64 = 512;
/// A tar file ends with two records of zeros.
const END: u64 = 2 * RECORD;
/// More files are in no trace: a channel has one for each CPU.
const MOST_FILES: usize = 100_000;
/// Traces have directories of channels in those of domains.
const DEEPEST: usize = 16;
/// Bytes that are read at a time for a checksum.
const BLOCK: usize = 1 << 20;

/// What an archive was when it was looked at: whether it was changed since.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Fingerprint {
    pub(super) dev: u64,
    pub(super) ino: u64,
    pub(super) uid: u32,
    pub(super) size: u64,
    /// Nanoseconds since 1970; of a directory the last change of anything in it.
    pub(super) modified: u64,
}

/// The bytes of an archive.
pub(super) struct Content {
    form: Form,
    size: u64,
    segments: Vec<Segment>,
}

/// A piece of the bytes.
struct Segment {
    at: u64,
    len: u64,
    source: Source,
}

enum Source {
    Open(File),
    Named { dir: Directory, name: OsString, identity: Identity },
    Bytes(Vec<u8>),
    Zeros,
}

/// An archive that was opened.
pub(super) struct Opened {
    pub(super) content: Content,
    pub(super) fingerprint: Fingerprint,
    /// The first change of anything in it.
    pub(super) oldest: u64,
}

/// Where an archive is: a name in a directory.
pub(super) fn locate(path: &Path) -> Result<(Directory, OsString), StoreError> {
    let failed = |source| StoreError::Local { what: format!("open {}", path.display()), source };
    match resolve(path, Links::Keep).map_err(|error| failed(io::Error::new(kind(&error), error)))? {
        Resolved { dir, name: Some(name) } => Ok((dir, name)),
        Resolved { name: None, .. } => Err(failed(io::ErrorKind::IsADirectory.into())),
    }
}

/// The kind of what is behind an error.
fn kind(error: &OutputError) -> io::ErrorKind {
    let causes = std::iter::successors(error.source(), |error| (*error).source());
    let mut found = causes.filter_map(|error| error.downcast_ref::<io::Error>());
    found.next().map_or(io::ErrorKind::Other, io::Error::kind)
}

/// Opens the archive at a path.
pub(super) fn open(path: &Path) -> Result<Opened, StoreError> {
    let (dir, name) = locate(path)?;
    let opened = match dir.look(&name) {
        Ok(None) => Err(io::ErrorKind::NotFound.into()),
        Ok(Some(there)) if is_dir(&there) => {
            dir.open_dir(&name).and_then(|inner| of_directory(&inner, Path::new(&name)))
        }
        Ok(Some(_)) => dir.open_file(&name).and_then(of_file),
        Err(error) => Err(error),
    };
    opened.map_err(StoreError::local(format!("read {}", path.display())))
}

fn is_dir(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::Directory
}

fn nanoseconds(seconds: i64, ns: i64) -> u64 {
    // Nothing that is recorded is older than 1970.
    u64::try_from(seconds)
        .map_or(0, |seconds| seconds.saturating_mul(1_000_000_000))
        .saturating_add(ns as u64)
}

/// When a file was changed last, in nanoseconds since 1970.
pub(super) fn modified(stat: &Stat) -> u64 {
    nanoseconds(stat.st_mtime, stat.st_mtime_nsec as i64)
}

fn of_file(file: File) -> io::Result<Opened> {
    let meta = file.metadata()?;
    let modified = nanoseconds(meta.mtime(), meta.mtime_nsec());
    let (dev, ino, uid, size) = (meta.dev(), meta.ino(), meta.uid(), meta.len());
    let segments = vec![Segment { at: 0, len: size, source: Source::Open(file) }];
    Ok(Opened {
        content: Content { form: Form::File, size, segments },
        fingerprint: Fingerprint { dev, ino, uid, size, modified },
        oldest: modified,
    })
}

fn of_directory(dir: &Directory, name: &Path) -> io::Result<Opened> {
    let status = dir.status()?;
    let mut tree = Tree { uid: status.st_uid, at: 0, segments: Vec::new(), files: 0, span: None };
    tree.add(dir, name, DEEPEST)?;
    tree.push(END, Source::Zeros);
    let Tree { uid, at: size, segments, span, .. } = tree;
    let (oldest, modified) = span.unwrap_or_default();
    Ok(Opened {
        content: Content { form: Form::Directory, size, segments },
        fingerprint: Fingerprint { dev: status.st_dev, ino: status.st_ino, uid, size, modified },
        oldest,
    })
}

/// A tar file that is being laid out.
struct Tree {
    uid: u32,
    at: u64,
    segments: Vec<Segment>,
    files: usize,
    /// Times of the first and the last change of a file.
    span: Option<(u64, u64)>,
}

impl Tree {
    fn push(&mut self, len: u64, source: Source) {
        self.segments.push(Segment { at: self.at, len, source });
        self.at += len;
    }

    fn header(&mut self, path: &Path, kind: tar::EntryType, size: u64, modified: u64) -> io::Result<()> {
        let mut header = tar::Header::new_ustar();
        header.set_path(path)?;
        header.set_entry_type(kind);
        header.set_size(size);
        // The same for ever: an object has the name of its bytes, and an upload that was cut off goes on.
        header.set_mode(if kind.is_dir() { 0o755 } else { 0o644 });
        header.set_mtime(modified / 1_000_000_000);
        // Whose it is here means nothing elsewhere.
        header.set_uid(0);
        header.set_gid(0);
        header.set_cksum();
        self.push(RECORD, Source::Bytes(header.as_bytes().to_vec()));
        Ok(())
    }

    fn add(&mut self, dir: &Directory, path: &Path, depth: usize) -> io::Result<()> {
        if depth == 0 {
            return Err(io::Error::other("its directories are nested too deeply"));
        }
        self.header(&path.join(""), tar::EntryType::Directory, 0, 0)?;
        let mut names = dir.names()?;
        names.sort();
        for name in names {
            self.files += 1;
            if self.files > MOST_FILES {
                return Err(io::Error::other("more files are in it than in any trace"));
            }
            let path = path.join(&name);
            let there = dir.look(&name)?.ok_or(io::ErrorKind::NotFound)?;
            if there.st_uid != self.uid {
                return Err(io::Error::other(format!("{} is another user's", path.display())));
            }
            if is_dir(&there) {
                self.add(&dir.open_dir(&name)?, &path, depth - 1)?;
            } else if FileType::from_raw_mode(there.st_mode) == FileType::RegularFile {
                self.add_file(dir, name, &path, &there)?;
            } else {
                return Err(io::Error::other(format!("{} is no file and no directory", path.display())));
            }
        }
        Ok(())
    }

    fn add_file(&mut self, dir: &Directory, name: OsString, path: &Path, there: &Stat) -> io::Result<()> {
        let modified = modified(there);
        let (first, last) = self.span.unwrap_or((modified, modified));
        self.span = Some((first.min(modified), last.max(modified)));
        let size = there.st_size.cast_unsigned();
        self.header(path, tar::EntryType::Regular, size, modified)?;
        self.push(size, Source::Named { dir: dir.clone(), name, identity: Identity::of(there) });
        self.push(size.next_multiple_of(RECORD) - size, Source::Zeros);
        Ok(())
    }
}

impl Content {
    /// How it is stored.
    pub(super) fn form(&self) -> Form {
        self.form
    }

    /// Number of bytes.
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// The bytes from `offset` on, `len` of them.
    pub(super) fn read(&self, offset: u64, len: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; len];
        let mut done = 0;
        let first = self.segments.partition_point(|segment| segment.at + segment.len <= offset);
        for segment in self.segments.iter().skip(first) {
            if done == len {
                break;
            }
            let inner = offset + done as u64 - segment.at;
            let here = usize::try_from(segment.len - inner).unwrap_or(usize::MAX).min(len - done);
            segment.source.read(inner, &mut bytes[done..done + here])?;
            done += here;
        }
        if done < len { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(bytes) }
    }

    /// The SHA-256 of all bytes, in hexadecimal.
    pub(super) fn sha256(&self) -> io::Result<String> {
        let mut hash = Sha256::new();
        let mut offset = 0;
        while offset < self.size {
            let len = usize::try_from(self.size - offset).unwrap_or(usize::MAX).min(BLOCK);
            hash.update(self.read(offset, len)?);
            offset += len as u64;
        }
        Ok(hex(&hash.finalize()))
    }

    /// The only file of an archive that is one.
    pub(super) fn file(&self) -> Option<&File> {
        match self.segments.as_slice() {
            [Segment { source: Source::Open(file), .. }] => Some(file),
            _ => None,
        }
    }
}

impl Source {
    fn read(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        match self {
            Self::Open(file) => file.read_exact_at(bytes, offset),
            Self::Named { dir, name, identity } => {
                let file = dir.open_file(name)?;
                if Identity::of_file(&file)? != *identity {
                    return Err(io::Error::other(format!("{} was exchanged", dir.join(name).display())));
                }
                file.read_exact_at(bytes, offset)
            }
            Self::Bytes(all) => {
                let offset = usize::try_from(offset).unwrap_or(usize::MAX);
                all.get(offset..).unwrap_or_default().read_exact(bytes)
            }
            Self::Zeros => {
                bytes.fill(0);
                Ok(())
            }
        }
    }
}

/// Bytes in hexadecimal.
pub(super) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;

    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        // Writing to a string does not fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// A path that means the same whatever the working directory is.
pub(super) fn absolute(path: &Path) -> Result<PathBuf, StoreError> {
    std::path::absolute(path).map_err(StoreError::local(format!("find {}", path.display())))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_directory_is_a_tar_file_in_any_pieces() {
        let dir = tempfile::tempdir().unwrap();
        let trace = dir.path().join("trace");
        fs::create_dir_all(trace.join("kernel/empty")).unwrap();
        fs::write(trace.join("metadata"), "a".repeat(1000)).unwrap();
        fs::write(trace.join("kernel/channel_0"), vec![7; 5000]).unwrap();
        let opened = open(&trace).unwrap();
        let all = opened.content.read(0, opened.content.size() as usize).unwrap();
        let mut pieces = Vec::new();
        while pieces.len() < all.len() {
            pieces
                .extend(opened.content.read(pieces.len() as u64, 333.min(all.len() - pieces.len())).unwrap());
        }
        assert!(pieces == all);
        assert_eq!(opened.content.sha256().unwrap(), hex(&Sha256::digest(&all)));
        let out = tempfile::tempdir().unwrap();
        tar::Archive::new(all.as_slice()).unpack(out.path()).unwrap();
        assert_eq!(fs::read(out.path().join("trace/kernel/channel_0")).unwrap(), vec![7; 5000]);
        assert!(out.path().join("trace/kernel/empty").is_dir());
        assert!(opened.content.read(all.len() as u64 - 1, 2).is_err());
    }

    #[test]
    fn links_are_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("secret");
        fs::write(&target, "x").unwrap();
        let link = dir.path().join("trace.dat");
        std::os::unix::fs::symlink(&target, &link).unwrap();
        assert!(open(&link).is_err());
        fs::create_dir(dir.path().join("trace")).unwrap();
        std::os::unix::fs::symlink(&target, dir.path().join("trace/link")).unwrap();
        assert!(open(&dir.path().join("trace")).is_err());
    }
}
