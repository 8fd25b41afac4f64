//! What is left of sessions whose daemon was killed: which there were, and making files of their data.
//!
//! While a session records, a file in the daemon's own directory says where and for whom. The next daemon
//! reads these notes before it serves, and recovers the spools with the rights of their users while it does.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsString,
    fs::File,
    io,
    os::unix::{
        ffi::OsStrExt as _,
        fs::{DirBuilderExt as _, MetadataExt as _},
    },
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use rustix::fs::{Mode, fchmod};
use serde::{Deserialize, Serialize};

use super::{archives::Archives, registry::log, user::Owner};
use api::ControlError;
use capture::{LostManifest, Spool, SpoolError, recover};
use stdx::output::{Directory, FileMode, LockedFile, MODE_PRIVATE, is_ending};

/// Where the daemon of the default socket keeps what the next one needs.
const DEFAULT_STATE: &str = "/var/lib/tracer-agent";

/// Where the daemon of a socket keeps what the next one needs, if nothing else is said: each socket has a
/// directory, since a daemon that takes another one's notes would recover what that one records.
#[must_use]
pub fn default_state(socket: &Path) -> PathBuf {
    if socket == Path::new(api::DEFAULT_SOCKET) {
        return DEFAULT_STATE.into();
    }
    let socket = std::path::absolute(socket).unwrap_or_else(|_| socket.to_owned());
    let mut name = OsString::from(DEFAULT_STATE);
    // As systemd-escape(1) has it: two paths are two names.
    for part in socket.iter().skip(1) {
        name.push("-");
        let escaped = part.as_bytes().iter().flat_map(|byte| match byte {
            b'-' | b'\\' => format!("\\x{byte:02x}").into_bytes(),
            _ => vec![*byte],
        });
        name.push(std::ffi::OsStr::from_bytes(&escaped.collect::<Vec<_>>()));
    }
    name.into()
}

/// How the names of notes end.
const NOTE: &str = ".json";
/// How the names of notes end while they are written ([`Directory::write_whole`]).
const UNFINISHED: &str = ".json.new";
/// The largest note: a path, and some.
const NOTE_MAX: usize = 64 << 10;
/// How often a directory is looked at, where sessions that start meanwhile give spools other names.
const LOOKS: usize = 8;
/// The most spools of a session of which it is said why they are not recovered: anybody may put more there.
const TOLD_MAX: usize = 16;

/// What a daemon locks in the directory, as long as it is there.
const LOCK: &str = "lock";
/// What the lock has in a directory that is the daemon's alone.
const MARK: &[u8] = b"own\n";
/// How long a daemon waits for one that is ending, and how often it tries.
const LOCK_TIME: Duration = Duration::from_secs(10);
const LOCK_POLL: Duration = Duration::from_millis(50);
/// Where sessions of the configuration are that name no directory.
pub(super) const CONFIGURED: &str = "sessions";
/// Where earlier versions had what waits for relay daemons.
const EARLIER_RELAY: &str = "relay";

/// The directory of notes.
#[derive(Clone, Debug)]
pub(super) struct Notes {
    dir: Directory,
    /// No other daemon has it.
    _lock: Arc<File>,
}

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
    /// Its name.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    fn path(&self) -> PathBuf {
        self.dir.join(&self.name)
    }

    /// The session's data are files.
    pub(super) fn remove(self) {
        // If it stays, the next daemon finds nothing to recover.
        let _ = self.dir.remove(&self.name);
    }
}

impl Notes {
    /// Opens the directory, which is made if it is not there, and closes it to other users. Nobody else may
    /// write to it: a note says whose rights are taken.
    ///
    /// # Errors
    /// Others can write to it, or another daemon uses it.
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
        let names = dir.names()?;
        let mut lock = claim(&dir)?;
        let mut mark = Vec::new();
        io::Read::read_to_end(&mut io::Read::take(&mut lock, MARK.len() as u64 + 1), &mut mark)?;
        let is_own = mark == MARK || path == Path::new(DEFAULT_STATE) || names.iter().all(is_known);
        if is_own {
            if mark != MARK {
                lock.set_len(0)?;
                std::os::unix::fs::FileExt::write_all_at(&lock, MARK, 0)?;
            }
            close(&dir, &names)?;
        }
        Ok(Self { dir, _lock: Arc::new(lock) })
    }

    /// Notes that a session records into a directory from now on.
    pub(super) fn add(&self, session: &str, owner: &Owner, output: &Path) -> io::Result<Note> {
        let Owner { uid, gid, .. } = owner;
        let noted = Noted { session: session.to_owned(), uid: *uid, gid: *gid, output: output.to_owned() };
        // Not the session's: one of the same name may be recovered at this moment.
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        let name = format!("{uid}-{now}{NOTE}");
        let bytes = serde_json::to_vec(&noted)?;
        self.dir.write_whole(&name, |file| io::Write::write_all(file, &bytes))?;
        Ok(Note { dir: self.dir.clone(), name })
    }

    /// The note of a session that another daemon has handed over.
    pub(super) fn again(&self, name: String) -> Note {
        Note { dir: self.dir.clone(), name }
    }

    /// What the daemon before has noted, by user, but for sessions that go on. Nothing of a user is looked
    /// at.
    pub(super) fn left(&self, going_on: &BTreeSet<String>) -> io::Result<Left> {
        let mut left = Left::default();
        let mut names = self.dir.names()?;
        for name in names.iter().filter(|name| name.as_bytes().ends_with(UNFINISHED.as_bytes())) {
            // A daemon was killed while it wrote it, and the session had not begun.
            if let Err(error) = self.dir.remove(name) {
                log(&format!("cannot remove {}: {error}", self.dir.join(name).display()));
            }
        }
        // Files of sessions, and what waits for others, have directories beside the notes.
        names.retain(|name| name.as_bytes().ends_with(NOTE.as_bytes()));
        names.sort();
        for name in names {
            let note = self.again(name.to_string_lossy().into_owned());
            if going_on.contains(&note.name) {
                continue;
            }
            match self.read(&note.name) {
                Ok(noted) => left.0.entry(noted.uid).or_default().push((note, noted)),
                Err(error) => log(&format!(
                    "cannot read what the daemon before noted: {}: {error}; remove it if its session's data \
                     are not wanted",
                    self.dir.join(&note.name).display()
                )),
            }
        }
        Ok(left)
    }

    fn read(&self, name: &str) -> io::Result<Noted> {
        use io::Read as _;
        let mut bytes = Vec::new();
        self.dir.open_file(name)?.take(NOTE_MAX as u64).read_to_end(&mut bytes)?;
        Ok(serde_json::from_slice(&bytes)?)
    }
}

/// Whether a daemon makes an entry of this name in the directory of its state.
fn is_known(name: &OsString) -> bool {
    let ends = [NOTE, UNFINISHED].iter().any(|end| name.as_bytes().ends_with(end.as_bytes()));
    ends || [LOCK, EARLIER_RELAY, CONFIGURED].iter().any(|known| name == known)
}

/// Locks the state, which only one daemon has. A daemon that was killed holds it until the kernel has closed
/// all its files.
fn claim(dir: &Directory) -> io::Result<File> {
    let begun = std::time::Instant::now();
    loop {
        if let Some(LockedFile { file, .. }) = dir.lock(LOCK, FileMode::PRIVATE)? {
            // Earlier versions created it for other users too, and a user who can open it can lock it.
            fchmod(&file, Mode::RUSR | Mode::WUSR)?;
            return Ok(file);
        }
        let holder = dir.lock_holder(LOCK)?;
        let is_over = begun.elapsed() >= LOCK_TIME;
        if let Some(process) = holder.filter(|process| is_over || !is_ending(*process)) {
            let text = format!("process {process}, another daemon, uses it; choose another --state");
            return Err(io::Error::other(text));
        }
        if is_over {
            return Err(io::Error::other("another daemon uses it; choose another --state"));
        }
        std::thread::sleep(LOCK_POLL);
    }
}

/// Closes a directory that is the daemon's alone to other users. Earlier versions opened it for what waited
/// for relay daemons: while some of it is there, its users get to it, and to nothing else.
fn close(dir: &Directory, names: &[OsString]) -> io::Result<()> {
    let close = |dir: &Directory| -> io::Result<()> {
        Ok(fchmod(dir.open_itself()?, Mode::from_raw_mode(MODE_PRIVATE))?)
    };
    if names.iter().any(|name| name == EARLIER_RELAY) {
        let relay = dir.open_dir(EARLIER_RELAY);
        let removed = relay.and_then(|relay| dir.remove_empty(EARLIER_RELAY.as_ref(), &relay));
        if removed.is_err_and(|error| error.kind() != io::ErrorKind::NotFound) {
            for name in names.iter().filter(|name| *name != EARLIER_RELAY) {
                if let Ok(below) = dir.open_dir(name)
                    && below.metadata()?.uid() == rustix::process::geteuid().as_raw()
                {
                    close(&below)?;
                }
            }
            return Ok(());
        }
    }
    close(dir)
}

/// What the daemon before has noted, by user.
#[derive(Debug, Default)]
pub(super) struct Left(BTreeMap<u32, Vec<(Note, Noted)>>);

/// The recoveries that are under way.
#[derive(Clone, Debug, Default)]
pub(super) struct Recoveries(Arc<Mutex<BTreeSet<(u32, PathBuf)>>>);

impl Recoveries {
    /// Recovers what was left: what a user has left in a thread of its own with the user's rights, so that
    /// nobody waits for what another one's directories do. What is recovered may be sent to a store.
    pub(super) fn start(&self, left: Left, archives: &Arc<Archives>) {
        for (uid, notes) in left.0 {
            self.under_way().extend(notes.iter().map(|(_, noted)| (uid, noted.output.clone())));
            let (of_user, archives) = (self.clone(), Arc::clone(archives));
            let recover = move || {
                of_user.recover(uid, notes);
                archives.look_soon();
            };
            if let Err(error) = std::thread::Builder::new().name("recovery".into()).spawn(recover) {
                self.under_way().retain(|(of, _)| *of != uid);
                log(&format!(
                    "what user {uid} has left is not recovered: {error}; the next daemon tries again"
                ));
            }
        }
    }

    /// Why a session of a user does not start in a directory: what is being recovered there may be in its
    /// way.
    pub(super) fn explain(&self, uid: u32, output: &Path, error: ControlError) -> ControlError {
        if !self.is_under_way(uid, output) {
            return error;
        }
        let message = format!(
            "{}; what was recorded there before the daemon was killed is being recovered: start the session \
             when that is done, or record to another directory",
            error.message
        );
        ControlError::new(error.code, message)
    }

    /// Whether what a user has left in a directory is being recovered.
    pub(super) fn is_under_way(&self, uid: u32, output: &Path) -> bool {
        self.under_way().contains(&(uid, output.to_owned()))
    }

    fn under_way(&self) -> MutexGuard<'_, BTreeSet<(u32, PathBuf)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Recovers what a user has left. Notes of what is not recovered stay for the next daemon.
    fn recover(&self, uid: u32, notes: Vec<(Note, Noted)>) {
        for (note, noted) in notes {
            let owner = Owner::new(uid, noted.gid);
            let recovery = Recovery { noted: &noted };
            let recovered = match owner.take_rights() {
                Ok(()) => recovery.run(),
                Err(error) => {
                    recovery.log(&format!("not recovered: cannot take the user's rights: {error}"));
                    false
                }
            };
            if recovered {
                // The directory of notes is root's. Without it, the next daemon finds nothing to recover.
                let _ = owner.as_root(|| note.remove());
            } else {
                recovery.log(&format!(
                    "the next daemon tries again; `tracer-agent recover {}` does it now, and whoever does not \
                     want the data removes {}",
                    noted.output.display(),
                    note.path().display()
                ));
            }
            self.under_way().remove(&(uid, noted.output));
        }
    }
}

/// The recovery of a session.
struct Recovery<'a> {
    noted: &'a Noted,
}

impl Recovery<'_> {
    fn log(&self, text: &str) {
        log(&format!("session {} of user {}: {text}", self.noted.session, self.noted.uid));
    }

    /// Makes files of what the session has recorded. Gives whether there is nothing left to recover.
    fn run(&self) -> bool {
        let output = &self.noted.output;
        let mut seen = BTreeSet::new();
        let mut failed: usize = 0;
        // A session that starts meanwhile may give a spool another name.
        for _ in 0..LOOKS {
            let spools = match Spool::all_in(output) {
                Ok(spools) => spools.unwrap_or_default(),
                Err(error) => {
                    self.log(&format!("not recovered: {error}"));
                    return false;
                }
            };
            let new: Vec<PathBuf> = spools.into_iter().filter(|path| seen.insert(path.clone())).collect();
            if new.is_empty() {
                break;
            }
            for path in new {
                if let Err(error) = self.recover_spool(&path) {
                    failed += 1;
                    if failed <= TOLD_MAX {
                        self.log(&format!("{} is not recovered: {error}", path.display()));
                    }
                }
            }
        }
        // It is in nobody's way, and no note is kept for it.
        if let Err(error) = Spool::remove_left(output) {
            self.log(&format!("what is left of spools is not removed: {error}"));
        }
        if failed > TOLD_MAX {
            self.log(&format!("{} more are not recovered", failed - TOLD_MAX));
        }
        failed == 0
    }

    /// Makes a file of a spool. After an error it stays.
    fn recover_spool(&self, path: &Path) -> Result<(), String> {
        let spool = match Spool::remove_started(path) {
            Ok(true) => return Ok(()),
            Ok(false) => Spool::open(path),
            Err(error) => Err(error),
        };
        let spool = match spool {
            Ok(spool) => spool,
            // A session that was started since records there, or somebody else recovers it.
            Err(SpoolError::InUse(_)) => return Ok(()),
            // It has gone, or has another name.
            Err(SpoolError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error.to_string()),
        };
        let finished =
            recover(spool, None, LostManifest::Refuse, &|| false).map_err(|error| error.to_string())?;
        self.log(&format!(
            "recovered {} with {} events; the daemon was killed while it recorded",
            finished.path.display(),
            finished.stats.stored_events()
        ));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::Code;

    #[test]
    fn a_session_that_is_in_the_way_of_a_recovery_is_told_so() {
        let recoveries = Recoveries::default();
        recoveries.under_way().insert((1000, "/a".into()));
        let refused = || ControlError::new(Code::StartKernel, "in use");
        for (uid, output, is_told) in [(1000, "/a", true), (1000, "/b", false), (1001, "/a", false)] {
            let told = recoveries.explain(uid, Path::new(output), refused());
            assert_eq!(told.message.contains("is being recovered"), is_told, "{uid} {output}");
            assert!(told.code == Code::StartKernel && told.message.starts_with("in use"));
        }
    }

    #[test]
    fn notes_are_read_by_user_and_others_are_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let notes = Notes::open(dir.path()).unwrap();
        for uid in [1000, 1001, 1000] {
            let owner = Owner::new(uid, 1000);
            // It stays: whoever would remove it has been killed.
            let _ = notes.add("one", &owner, Path::new("/out")).unwrap();
        }
        std::fs::write(dir.path().join("other.json"), "no note").unwrap();
        std::fs::write(dir.path().join("1000-1.json.new"), "half of a n").unwrap();
        std::fs::create_dir(dir.path().join("sessions")).unwrap();
        let Left(left) = notes.left(&BTreeSet::new()).unwrap();
        let counts: Vec<_> = left.iter().map(|(uid, notes)| (*uid, notes.len())).collect();
        assert_eq!(counts, [(1000, 2), (1001, 1)]);
        for (note, noted) in left.into_values().flatten() {
            assert_eq!((noted.session.as_str(), noted.output.as_path()), ("one", Path::new("/out")));
            note.remove();
        }
        let mut left: Vec<_> =
            std::fs::read_dir(dir.path()).unwrap().map(|it| it.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, [LOCK, "other.json", "sessions"]);
    }

    #[test]
    fn a_directory_that_is_the_daemons_alone_is_closed() {
        use std::os::unix::fs::PermissionsExt as _;
        let mode_with = |names: &[&str], mode: u32| {
            let dir = tempfile::tempdir().unwrap();
            for name in names {
                std::fs::create_dir_all(dir.path().join(name)).unwrap();
            }
            std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(mode)).unwrap();
            drop(Notes::open(dir.path()).unwrap());
            // The second time it is known by its lock.
            let once = dir.path().metadata().unwrap().mode() & 0o777;
            drop(Notes::open(dir.path()).unwrap());
            (once, dir.path().metadata().unwrap().mode() & 0o777, dir.path().join(EARLIER_RELAY).exists())
        };
        assert_eq!(mode_with(&[], 0o755), (0o700, 0o700, false), "as kubelet makes it");
        assert_eq!(mode_with(&["relay", "sessions"], 0o711), (0o700, 0o700, false), "an earlier version's");
        assert_eq!(mode_with(&["sessions"], 0o755).0, 0o700, "the same of kubelet's");
        // What waits there is its user's, who gets to it.
        assert_eq!(mode_with(&["relay/1000-1-0", "sessions"], 0o711), (0o711, 0o711, true));
        assert_eq!(mode_with(&["home"], 0o755), (0o755, 0o755, false), "it has something else");
        assert_eq!(mode_with(&["home", "relay"], 0o755), (0o755, 0o755, true), "another one's");
    }

    #[test]
    fn what_is_beside_an_earlier_relay_directory_is_closed() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["relay/1000-1-0", "sessions"] {
            std::fs::create_dir_all(dir.path().join(name)).unwrap();
        }
        drop(Notes::open(dir.path()).unwrap());
        assert_eq!(dir.path().join("sessions").metadata().unwrap().mode() & 0o777, 0o700);
        assert_eq!(dir.path().join(LOCK).metadata().unwrap().mode() & 0o777, 0o600);
        // A link leads elsewhere, which is no reason not to start.
        let dir = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("/", dir.path().join("relay")).unwrap();
        drop(Notes::open(dir.path()).unwrap());
    }

    #[test]
    fn a_directory_has_one_daemon() {
        let dir = tempfile::tempdir().unwrap();
        let first = Notes::open(dir.path()).unwrap();
        assert!(Notes::open(dir.path()).is_err());
        drop(first);
        assert!(Notes::open(dir.path()).is_ok());
    }

    #[test]
    fn each_socket_has_a_directory() {
        let state = |socket: &str| default_state(Path::new(socket)).into_os_string().into_string().unwrap();
        assert_eq!(state(api::DEFAULT_SOCKET), "/var/lib/tracer-agent");
        assert_eq!(state("/run/a/b.sock"), "/var/lib/tracer-agent-run-a-b.sock");
        assert_eq!(state("/run/a-b.sock"), r"/var/lib/tracer-agent-run-a\x2db.sock");
        assert!(state("b.sock").ends_with("-b.sock"));
    }
}
