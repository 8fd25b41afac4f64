//! What is known of each archive that is uploaded, in files of a state directory, so that a restart, or the
//! end of the machine, loses none and sends none under two names.
//!
//! Each archive has two files, named by a hash of its path: `HASH.archive` says what it is and is written
//! once; `HASH.progress` says how far its upload has come. A file that is damaged is moved aside, to
//! `HASH.progress.damaged`: without progress the archive is sent anew.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::archive::Archive;
use super::content::{Fingerprint, hex};
use stdx::output::{Directory, FileMode, LockedFile, MODE_PRIVATE, directory_at, is_own};

/// The directory in the state directory.
const DIRECTORY: &str = "uploads";
/// Who uploads holds it.
const LOCK: &str = "lock";
const ARCHIVE: &str = "archive";
const PROGRESS: &str = "progress";
const DAMAGED: &str = "damaged";
/// The most that is read of a file: 10 000 parts have about 2 MB.
const LONGEST: u64 = 8 << 20;
const VERSION: u32 = 1;

/// Why the journal cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JournalError {
    /// A system call failed.
    #[error("cannot {what} {path}: {source}", path = .path.display())]
    Io {
        /// What was tried.
        what: &'static str,
        /// On which path.
        path: PathBuf,
        /// The system's reason.
        #[source]
        source: io::Error,
    },
    /// Another process uploads what is there.
    #[error("another process uploads what is in {path}; name another state directory", path = .path.display())]
    InUse {
        /// The directory.
        path: PathBuf,
    },
    /// Others could write to it.
    #[error("{path} is not only this user's to write to; `chmod 700` it, or name another state directory", path = .path.display())]
    Foreign {
        /// The directory.
        path: PathBuf,
    },
    /// A file says nothing that can be used. It was moved aside.
    #[error("{path} is damaged ({why}); it is kept as {path}.damaged, and the archive is sent anew", path = .path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
}

impl JournalError {
    /// Whether there is no room for it.
    pub(super) fn is_full(&self) -> bool {
        use io::ErrorKind::{QuotaExceeded, StorageFull};
        matches!(self, Self::Io { source, .. } if matches!(source.kind(), StorageFull | QuotaExceeded))
    }
}

/// What an archive is, for good.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    version: u32,
    archive: Archive,
    fingerprint: Fingerprint,
}

/// How far an upload has come.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Progress {
    version: u32,
    /// Of which archive this is: another one may have come to its path.
    #[serde(default)]
    of: Option<Fingerprint>,
    /// The SHA-256 of the content.
    pub(super) sha256: Option<String>,
    /// The parts that the store has.
    pub(super) upload: Option<Upload>,
    /// The address of the object, once it is stored and verified.
    pub(super) stored: Option<String>,
}

/// An object that comes in parts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Upload {
    /// The address of the object.
    pub(super) url: String,
    /// The store's name of the upload.
    pub(super) id: String,
    pub(super) part_size: u64,
    /// What the store calls the parts.
    pub(super) parts: Vec<String>,
}

/// An archive in the journal.
#[derive(Clone, Debug)]
pub(super) struct Record {
    pub(super) key: Key,
    pub(super) archive: Archive,
    pub(super) fingerprint: Fingerprint,
    pub(super) progress: Progress,
}

/// What names an archive's files.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key(String);

impl Key {
    pub(super) fn of(path: &Path) -> Self {
        let hash = Sha256::digest(path.as_os_str().as_encoded_bytes());
        Self(hex(&hash).get(..32).unwrap_or_default().to_owned())
    }

    fn file(&self, kind: &str) -> String {
        format!("{}.{kind}", self.0)
    }
}

/// The journal of all uploads of a state directory.
#[derive(Debug)]
pub(super) struct Journal {
    dir: Directory,
    _lock: File,
}

impl Journal {
    /// Opens the journal of a state directory, which must be there, and holds it against other processes.
    pub(super) fn open(state: &Path) -> Result<Self, JournalError> {
        let io = |what, path: PathBuf| move |source| JournalError::Io { what, path, source };
        let open = directory_at(state).map_err(io::Error::other).map_err(io("open", state.to_owned()))?;
        let name = OsStr::new(DIRECTORY);
        let made = match open.create_dir_with(name, MODE_PRIVATE) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => open.open_dir(name),
            made => made,
        };
        let dir = made.map_err(io("create", open.join(DIRECTORY)))?;
        if !is_own(&dir).map_err(io("look at", open.join(DIRECTORY)))? {
            return Err(JournalError::Foreign { path: open.join(DIRECTORY) });
        }
        match dir.lock(LOCK, FileMode::PRIVATE).map_err(io("lock", dir.join(LOCK)))? {
            Some(LockedFile { file, .. }) => Ok(Self { dir, _lock: file }),
            None => Err(JournalError::InUse { path: dir.path().to_owned() }),
        }
    }

    /// All archives in it, and what was damaged.
    pub(super) fn load(&self) -> Result<(Vec<Record>, Vec<JournalError>), JournalError> {
        let names = self.dir.names().map_err(|source| self.failed("read", "", source))?;
        let (mut records, mut damage) = (Vec::new(), Vec::new());
        for name in names {
            let suffix = format!(".{ARCHIVE}");
            let Some(key) = name.to_str().and_then(|name| name.strip_suffix(&suffix)) else { continue };
            let key = Key(key.to_owned());
            let entry = match self.read::<Entry>(&key.file(ARCHIVE), |entry| {
                entry.version == VERSION
                    && entry.archive.is_plausible()
                    && Key::of(&entry.archive.path) == key
            }) {
                Ok(Some(entry)) => entry,
                Ok(None) => continue,
                Err(error) => {
                    damage.push(error);
                    continue;
                }
            };
            let progress = self.read::<Progress>(&key.file(PROGRESS), Progress::is_plausible);
            let progress = progress.unwrap_or_else(|error| {
                damage.push(error);
                None
            });
            let Entry { archive, fingerprint, .. } = entry;
            let progress = progress.filter(|progress| progress.of.as_ref() == Some(&fingerprint));
            records.push(Record { key, archive, fingerprint, progress: progress.unwrap_or_default() });
        }
        Ok((records, damage))
    }

    /// Notes an archive.
    pub(super) fn add(&self, record: &Record) -> Result<(), JournalError> {
        let Record { key, archive, fingerprint, .. } = record;
        // What is known of another archive that was there says nothing of this one.
        self.remove_file(&key.file(PROGRESS))?;
        let entry = Entry { version: VERSION, archive: archive.clone(), fingerprint: fingerprint.clone() };
        self.write(&key.file(ARCHIVE), &entry)
    }

    /// Notes how far an upload has come.
    pub(super) fn save(&self, record: &Record) -> Result<(), JournalError> {
        let of = Some(record.fingerprint.clone());
        let progress = Progress { version: VERSION, of, ..record.progress.clone() };
        self.write(&record.key.file(PROGRESS), &progress)
    }

    /// Forgets an archive.
    pub(super) fn remove(&self, key: &Key) -> Result<(), JournalError> {
        // In this order: an archive without progress would be sent again.
        self.remove_file(&key.file(ARCHIVE))?;
        self.remove_file(&key.file(PROGRESS))
    }

    fn remove_file(&self, name: &str) -> Result<(), JournalError> {
        match self.dir.remove(name) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(self.failed("remove", name, error)),
            _ => Ok(()),
        }
    }

    fn failed(&self, what: &'static str, name: &str, source: io::Error) -> JournalError {
        JournalError::Io { what, path: self.dir.join(name), source }
    }

    fn write(&self, name: &str, value: &impl Serialize) -> Result<(), JournalError> {
        let write = |file: &mut File| {
            file.write_all(&serde_json::to_vec(value)?)?;
            file.sync_all()
        };
        self.dir.write_whole(name, write).map_err(|source| self.failed("write", name, source))?;
        self.dir.sync();
        Ok(())
    }

    /// Reads a file; one that is damaged is moved aside.
    fn read<T: DeserializeOwned>(
        &self,
        name: &str,
        is_good: impl FnOnce(&T) -> bool,
    ) -> Result<Option<T>, JournalError> {
        let mut text = Vec::new();
        match self.dir.open_file(name).and_then(|file| file.take(LONGEST + 1).read_to_end(&mut text)) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(self.failed("read", name, error)),
        }
        let why = match serde_json::from_slice::<T>(&text) {
            _ if text.len() as u64 > LONGEST => "it is longer than any journal".to_owned(),
            Ok(value) if is_good(&value) => return Ok(Some(value)),
            Ok(_) => "it says what cannot be".to_owned(),
            Err(error) => error.to_string(),
        };
        let aside = format!("{name}.{DAMAGED}");
        self.dir
            .rename(name.as_ref(), &self.dir, aside.as_ref())
            .map_err(|source| self.failed("rename", name, source))?;
        Err(JournalError::Damaged { path: self.dir.join(name), why })
    }
}

impl Progress {
    fn is_plausible(&self) -> bool {
        let is_hash = |text: &String| text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        self.version == VERSION
            && self.sha256.as_ref().is_none_or(is_hash)
            && self.upload.as_ref().is_none_or(|upload| upload.part_size > 0)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn record(path: &str) -> Record {
        let archive = Archive { path: path.into(), host: "h".into(), session: "s".into(), begin: 1, end: 2 };
        let fingerprint = Fingerprint { dev: 1, ino: 2, uid: 0, size: 3, modified: 4 };
        Record { key: Key::of(path.as_ref()), archive, fingerprint, progress: Progress::default() }
    }

    #[test]
    fn what_was_noted_is_there_after_a_restart() {
        let state = tempfile::tempdir().unwrap();
        let journal = Journal::open(state.path()).unwrap();
        assert!(matches!(Journal::open(state.path()), Err(JournalError::InUse { .. })));
        let record = record("/x/trace.dat");
        journal.add(&record).unwrap();
        let upload = Upload { url: "s3://b/x".into(), id: "1".into(), part_size: 5, parts: vec!["a".into()] };
        let progress = Progress { upload: Some(upload), ..Progress::default() };
        journal.save(&Record { progress: progress.clone(), ..record.clone() }).unwrap();
        drop(journal);
        let journal = Journal::open(state.path()).unwrap();
        let (found, damage) = journal.load().unwrap();
        assert!(damage.is_empty());
        assert_eq!(found[0].archive, record.archive);
        assert_eq!(found[0].progress.upload, progress.upload);
        // What is still noted of an archive says nothing of another one that has come to its path.
        let other =
            Record { fingerprint: Fingerprint { ino: 3, ..record.fingerprint.clone() }, ..record.clone() };
        journal.add(&other).unwrap();
        journal.save(&Record { progress, ..record.clone() }).unwrap();
        assert_eq!(journal.load().unwrap().0[0].progress, Progress::default());
        journal.remove(&record.key).unwrap();
        assert!(journal.load().unwrap().0.is_empty());
    }

    #[test]
    fn damaged_files_are_moved_aside_and_the_archive_stays() {
        let state = tempfile::tempdir().unwrap();
        let journal = Journal::open(state.path()).unwrap();
        let record = record("/x/trace.dat");
        for damage in [&b""[..], b"{", b"{\"version\":9}", b"null", &[0xff; 100]] {
            journal.add(&record).unwrap();
            let path = state.path().join("uploads").join(record.key.file(PROGRESS));
            fs::write(&path, damage).unwrap();
            let (found, errors) = journal.load().unwrap();
            assert_eq!((found.len(), errors.len()), (1, 1));
            assert!(matches!(errors[0], JournalError::Damaged { .. }));
            assert_eq!(found[0].progress, Progress::default());
            assert!(path.with_extension("progress.damaged").exists());
        }
        // Of which archive it was is not known then.
        fs::write(state.path().join("uploads").join(record.key.file(ARCHIVE)), "x").unwrap();
        let (found, errors) = journal.load().unwrap();
        assert_eq!((found.len(), errors.len()), (0, 1));
    }
}
