//! What is left of sessions whose daemon was killed: which there were, and making files of their data.
//!
//! While a session records, a file in the daemon's own directory says where and for whom. The next daemon
//! finds it, and recovers the spools there with the rights of that user.

use std::{
    io,
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _},
    path::{Path, PathBuf},
    time::{SystemTime, UNIX_EPOCH},
};

use serde::{Deserialize, Serialize};

use super::{registry::log, user::Owner};
use crate::{
    capture::{Spool, recover},
    output::Directory,
};

/// Where the daemon keeps what the next one needs, if nothing else is said.
pub const DEFAULT_STATE: &str = "/var/lib/tracer-agent";

/// The largest note: a path, and some.
const NOTE_MAX: usize = 64 << 10;

/// The directory of notes.
#[derive(Clone, Debug)]
pub(super) struct Notes(Directory);

/// A session that is being recorded.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Noted {
    session: String,
    uid: u32,
    gid: u32,
    output: PathBuf,
}

/// A note as long as the session records.
#[derive(Debug)]
pub(super) struct Note {
    dir: Directory,
    name: String,
}

impl Note {
    /// The session's data are files.
    pub(super) fn remove(self) {
        // If it stays, the next daemon finds nothing to recover.
        let _ = self.dir.remove(&self.name);
    }
}

impl Notes {
    /// Opens the directory, which is made if it is not there. Nobody else may write to it: a note says whose
    /// rights are taken.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        std::fs::DirBuilder::new().mode(0o700).recursive(true).create(path)?;
        let dir = Directory::open(path)?;
        let there = dir.metadata()?;
        if there.uid() != rustix::process::geteuid().as_raw() || there.mode() & 0o022 != 0 {
            return Err(io::Error::other(format!(
                "{}: other users can change this directory; choose another --state",
                path.display()
            )));
        }
        Ok(Self(dir))
    }

    /// Notes that a session records into a directory from now on.
    pub(super) fn add(&self, session: &str, owner: &Owner, output: &Path) -> io::Result<Note> {
        let Owner { uid, gid, .. } = owner;
        let noted = Noted { session: session.to_owned(), uid: *uid, gid: *gid, output: output.to_owned() };
        // Not the session's: one of the same name may be recovered at this moment.
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        let name = format!("{uid}-{now}.json");
        let bytes = serde_json::to_vec(&noted)?;
        self.0.write(&name, &bytes)?;
        Ok(Note { dir: self.0.clone(), name })
    }

    /// Recovers what the daemon before has left, in threads with the rights of the sessions' users.
    pub(super) fn recover(&self) -> io::Result<()> {
        for name in self.0.names()? {
            let note = Note { dir: self.0.clone(), name: name.to_string_lossy().into_owned() };
            match self.read(&note.name) {
                Ok(noted) => {
                    let done = std::thread::Builder::new()
                        .name("recovery".into())
                        .spawn(move || recover_session(&noted))?
                        .join();
                    // What could not be recovered stays where it is; its user is told by the log once.
                    if done.is_ok() {
                        note.remove();
                    }
                }
                Err(error) => {
                    log(&format!("cannot read what the daemon before noted: {}: {error}", note.name));
                }
            }
        }
        Ok(())
    }

    fn read(&self, name: &str) -> io::Result<Noted> {
        use io::Read as _;
        let mut bytes = Vec::new();
        self.0.open_file(name)?.take(NOTE_MAX as u64).read_to_end(&mut bytes)?;
        Ok(serde_json::from_slice(&bytes)?)
    }
}

/// Makes files of what a session has recorded.
fn recover_session(noted: &Noted) {
    let Noted { session, uid, gid, output } = noted;
    let log = |text: &str| log(&format!("session {session} of user {uid}: {text}"));
    if let Err(error) = Owner::new(*uid, *gid).take_rights() {
        log(&format!("not recovered: cannot take the user's rights: {error}"));
        return;
    }
    let spools = match Spool::all_in(output) {
        Ok(spools) => spools.unwrap_or_default(),
        Err(error) => {
            log(&format!("not recovered: {error}"));
            return;
        }
    };
    for path in spools {
        match Spool::remove_started(&path) {
            Ok(true) => continue,
            Ok(false) => {}
            Err(error) => {
                log(&format!("not recovered: {error}"));
                continue;
            }
        }
        let recovered = Spool::open(&path)
            .map_err(|error| error.to_string())
            .and_then(|spool| recover(spool, None, &|| false).map_err(|error| error.to_string()));
        match recovered {
            Ok(finished) => log(&format!(
                "recovered {} with {} events; the daemon was killed while it recorded",
                finished.path.display(),
                finished.stats.stored_events()
            )),
            Err(error) => log(&format!("{} is not recovered: {error}", path.display())),
        }
    }
}
