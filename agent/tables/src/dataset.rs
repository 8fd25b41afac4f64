//! A data set that many recordings are added to: files of Parquet in directories that say what they have, as
//! Hive has them.
//!
//! ```text
//! events/event=SYSTEM.EVENT/date=YYYY-MM-DD/host=NAME/ID.parquet
//! gaps/date=YYYY-MM-DD/host=NAME/ID.parquet       and so losses, threads, hosts, sessions
//! ```
//!
//! What a directory's name says is no column of the files. The date is the UTC day of a record, and of the
//! other tables that of the recording's begin; what is unknown is `__HIVE_DEFAULT_PARTITION__`.
//!
//! Files of a recording are written beside their places under names that readers pass over, and renamed when
//! all of them are complete; that in `sessions` comes last and says that the recording is complete, and goes
//! first when the recording is exported again. What an interrupted export has left has these names, too, and
//! is removed by the next one of the same recording. So a lock, a file of such a name in the data set, keeps
//! out a second one at the same time.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, ErrorKind, Seek as _, SeekFrom, Write as _};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::DAY;
use super::encoding::{Destination, Kind};
use recording::ExportError;
use stdx::output::{Directory, FileMode, Links, LockedFile, Resolved, resolve};

/// What a directory is named after whose value is unknown.
const UNKNOWN: &str = "__HIVE_DEFAULT_PARTITION__";
/// The directory of events.
const EVENTS: &str = "events";
/// The directory whose files say that recordings are complete.
const SESSIONS: &str = "sessions";
/// What the names of files end in.
const ENDING: &str = ".parquet";

/// A recording's part of a data set.
pub(super) struct Dataset {
    root: Directory,
    id: String,
    /// `host=NAME`.
    host: String,
    _lock: File,
    state: Mutex<State>,
    /// The day of tables that are not of events.
    begin: Option<i64>,
}

#[derive(Default)]
struct State {
    /// Files that are written.
    files: BTreeSet<String>,
    /// Directories that were created, by their paths.
    created: Vec<String>,
    committed: bool,
}

/// The directory of a data set, which is created if there is none.
pub(super) fn open_root(path: &Path) -> Result<Directory, ExportError> {
    let Resolved { dir, name } = resolve(path, Links::Follow)?;
    let root = match name {
        None => dir,
        Some(name) => {
            let made = match dir.create_dir(&name) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => dir.open_dir(&name),
                made => made,
            };
            made.map_err(ExportError::io("open", path))?
        }
    };
    let names = root.names().map_err(ExportError::io("read", path))?;
    let is_known = |name: &OsStr| name == EVENTS || name == SESSIONS;
    // Whoever mistypes a name does not want files among others.
    let is_hidden = |name: &OsStr| name.as_encoded_bytes().starts_with(b".");
    if !names.iter().all(|name| is_hidden(name)) && !names.iter().any(|name| is_known(name)) {
        return Err(ExportError::NoDataset { path: path.to_owned() });
    }
    Ok(root)
}

fn date(day: Option<i64>) -> String {
    let day = day.map(|day| stdx::utc::day((day * DAY).cast_unsigned()));
    format!("date={}", day.as_deref().unwrap_or(UNKNOWN))
}

/// A value in the name of a directory, as Hive escapes it.
fn escaped(value: &str) -> String {
    let mut escaped = String::new();
    for byte in value.bytes() {
        let is_plain = matches!(byte, b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'-' | b'.');
        if is_plain {
            escaped.push(char::from(byte));
        } else {
            escaped += &format!("%{byte:02X}");
        }
    }
    if escaped.is_empty() { UNKNOWN.to_owned() } else { escaped }
}

impl Dataset {
    /// The part of the recording with this id, which nobody else writes meanwhile. What an interrupted export
    /// has left of it is removed.
    pub(super) fn begin(
        root: Directory,
        id: &str,
        host: Option<&str>,
        begin: Option<i64>,
    ) -> Result<Self, ExportError> {
        let name = format!(".{id}.lock");
        let failed = || ExportError::io("lock", root.join(&name));
        let lock = root.lock(&name, FileMode::of_process()).map_err(failed())?;
        let Some(LockedFile { file: lock, .. }) = lock else {
            return Err(ExportError::InUse { path: root.path().to_owned() });
        };
        let host = format!("host={}", host.map_or_else(|| UNKNOWN.to_owned(), escaped));
        let dataset = Self { root, id: id.to_owned(), host, _lock: lock, state: Mutex::default(), begin };
        dataset.remove_files(&dataset.temporary(), |_| true)?;
        Ok(dataset)
    }

    fn lock_state(&self) -> MutexGuard<'_, State> {
        // Paths are put in whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The name of a file until all are complete.
    fn temporary(&self) -> String {
        format!(".{}{ENDING}.new", self.id)
    }

    fn name(&self) -> String {
        format!("{}{ENDING}", self.id)
    }

    /// The directory of a file.
    fn open(&self, file: &str) -> io::Result<Directory> {
        let (path, _) = file.rsplit_once('/').unwrap_or_default();
        path.split('/').try_fold(self.root.clone(), |dir, name| dir.open_dir(name))
    }

    /// The same, created if it is not there.
    fn open_or_create(&self, file: &str) -> io::Result<Directory> {
        let (path, _) = file.rsplit_once('/').unwrap_or_default();
        let mut dir = self.root.clone();
        let mut so_far = String::new();
        for name in path.split('/') {
            so_far = if so_far.is_empty() { name.to_owned() } else { format!("{so_far}/{name}") };
            dir = match dir.create_dir(name) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => dir.open_dir(name)?,
                created => {
                    let created = created?;
                    self.lock_state().created.push(so_far.clone());
                    created
                }
            };
        }
        Ok(dir)
    }

    /// Brings the files to their places. Gives their bytes.
    pub(super) fn commit(self) -> Result<u64, ExportError> {
        let files = std::mem::take(&mut self.lock_state().files);
        let mut bytes = 0;
        for file in &files {
            let synced = self.open(file).and_then(|dir| {
                let written = dir.open_for_writing(self.temporary())?;
                written.sync_all()?;
                Ok(written.metadata()?.len())
            });
            bytes += synced.map_err(ExportError::io("write", self.root.join(file)))?;
        }
        let sessions = format!("{SESSIONS}/");
        // From here on the recording is not complete, until its session is there again.
        self.remove_files(&self.name(), |path| path.starts_with(&sessions))?;
        let (last, first): (Vec<&String>, Vec<&String>) =
            files.iter().partition(|file| file.starts_with(&sessions));
        for file in first {
            self.put_in_place(file)?;
        }
        self.remove_files(&self.name(), |path| !files.contains(path))?;
        for file in last {
            self.put_in_place(file)?;
        }
        self.lock_state().committed = true;
        Ok(bytes)
    }

    fn put_in_place(&self, file: &str) -> Result<(), ExportError> {
        let rename = || {
            let dir = self.open(file)?;
            dir.rename(self.temporary().as_ref(), &dir, self.name().as_ref())?;
            dir.sync();
            Ok(())
        };
        rename().map_err(ExportError::io("create", self.root.join(file)))
    }

    /// Removes the files of this recording with this name, wherever they are, if `wanted` says so of their
    /// paths.
    fn remove_files(&self, name: &str, wanted: impl Fn(&String) -> bool) -> Result<(), ExportError> {
        let mut tables = Vec::new();
        for (path, dir) in directories(&self.root, "")? {
            if path == EVENTS { tables.extend(directories(&dir, EVENTS)?) } else { tables.push((path, dir)) }
        }
        for (path, dir) in tables {
            for (path, date) in directories(&dir, &path)? {
                let file = format!("{path}/{}/{}", self.host, self.name());
                let Ok(dir) = date.open_dir(&self.host) else { continue };
                if !wanted(&file) {
                    continue;
                }
                match dir.remove(name) {
                    Err(error) if error.kind() != ErrorKind::NotFound => {
                        return Err(ExportError::io("remove", dir.join(name))(error));
                    }
                    _ => {}
                }
            }
        }
        Ok(())
    }
}

impl Drop for Dataset {
    fn drop(&mut self) {
        let state = std::mem::take(&mut *self.lock_state());
        if !state.committed {
            // What cannot be removed has a name that readers pass over.
            let _ = self.remove_files(&self.temporary(), |_| true);
            for path in state.created.iter().rev() {
                let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
                let parent = parent.split('/').filter(|name| !name.is_empty());
                let parent = parent.clone().try_fold(self.root.clone(), |dir, name| dir.open_dir(name));
                // Others may have put something there.
                let _ = parent.and_then(|parent| parent.remove_empty(name.as_ref(), &parent.open_dir(name)?));
            }
        }
        // It is removed while it is locked, so that nobody else's is.
        let _ = self.root.remove(format!(".{}.lock", self.id));
    }
}

/// The directories in a directory, and their paths. Links are none.
fn directories(dir: &Directory, path: &str) -> Result<Vec<(String, Directory)>, ExportError> {
    let names = dir.names().map_err(ExportError::io("read", dir.path()))?;
    let open = |name: std::ffi::OsString| {
        let found = dir.open_dir(&name).ok()?;
        let name = name.into_string().ok()?;
        Some((if path.is_empty() { name } else { format!("{path}/{name}") }, found))
    };
    Ok(names.into_iter().filter_map(open).collect())
}

/// The files of a data set by their paths, in the order in which they are to become visible elsewhere: those
/// that say that recordings are complete are the last group.
///
/// # Errors
/// A directory cannot be read.
pub fn dataset_files(root: &Directory) -> Result<Vec<Vec<String>>, ExportError> {
    let (mut first, mut last) = (Vec::new(), Vec::new());
    let mut left = directories(root, "")?;
    while let Some((path, dir)) = left.pop() {
        left.extend(directories(&dir, &path)?);
        let is_last = path.split('/').next() == Some(SESSIONS);
        let group = if is_last { &mut last } else { &mut first };
        let names = dir.names().map_err(ExportError::io("read", dir.path()))?;
        let names = names.into_iter().filter_map(|name| name.into_string().ok());
        let files = names.filter(|name| name.ends_with(ENDING) && !name.starts_with('.'));
        group.extend(files.map(|name| format!("{path}/{name}")));
    }
    Ok(vec![first, last])
}

impl Destination for Dataset {
    fn path(&self, kind: Kind, stem: &str, _ending: &str) -> String {
        let (name, host) = (self.name(), &self.host);
        match kind {
            Kind::Event { day } => format!("{EVENTS}/event={stem}/{}/{host}/{name}", date(day)),
            Kind::Beside => format!("{stem}/{}/{host}/{name}", date(self.begin)),
        }
    }

    fn recording(&self) -> Option<&str> {
        Some(&self.id)
    }

    fn create(&self, file: &str) -> Result<(), ExportError> {
        let create = || self.open_or_create(file)?.replace(self.temporary());
        create().map_err(ExportError::io("create", self.root.join(file)))?;
        self.lock_state().files.insert(file.to_owned());
        Ok(())
    }

    fn append(&self, file: &str, bytes: &[u8]) -> Result<(), ExportError> {
        let append = || {
            let mut file = self.open(file)?.open_for_writing(self.temporary())?;
            file.seek(SeekFrom::End(0))?;
            file.write_all(bytes)
        };
        append().map_err(ExportError::io("write", self.root.join(file)))
    }
}
