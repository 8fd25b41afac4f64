//! The configuration of this daemon: read at its start, and again on SIGHUP and when its files change.

use std::{
    io,
    mem::MaybeUninit,
    os::fd::{AsFd as _, OwnedFd},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::inotify::{self, CreateFlags, WatchFlags},
};

use super::{
    config::{Config, ConfigError, ReadFiles},
    registry::{Registry, log},
};
use crate::{
    capture::Notice,
    control::api::{ConfigurationState, Reload},
    utc,
};

/// How long nothing may happen to the files before they are read: some are written in several steps.
const QUIET: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };
/// After how long sessions that could not be begun are tried again.
const RETRY: Timespec = Timespec { tv_sec: 30, tv_nsec: 0 };
/// Bytes of what has happened to files, as the kernel tells it at a time.
const EVENTS_SIZE: usize = 4096;

/// The configuration, and what became of it.
#[derive(Debug)]
pub(super) struct Configuration {
    path: PathBuf,
    /// Where sessions are that name no directory.
    sessions: PathBuf,
    cpus: u64,
    state: Mutex<State>,
    /// Told when it is to be read again.
    wanted: Notice,
}

#[derive(Debug)]
struct State {
    config: Arc<Config>,
    dirs: Vec<PathBuf>,
    told: ConfigurationState,
}

impl Configuration {
    /// Reads it for the first time. Nothing is done of what it says yet.
    ///
    /// # Errors
    /// It cannot be read, or has mistakes.
    pub(super) fn read(path: &Path, state: &Path, cpus: u64) -> Result<Self, ConfigError> {
        let (config, files) = Config::read(path)?;
        let wanted = Notice::new().map_err(|source| ConfigError::Read { path: path.to_owned(), source })?;
        let told = ConfigurationState {
            path: path.to_owned(),
            read_at: utc::seconds_now(),
            reloads: 0,
            refused: 0,
            last: Reload::default(),
        };
        let state_now = State { config: Arc::new(config), dirs: files.dirs().to_vec(), told };
        Ok(Self {
            path: path.to_owned(),
            sessions: state.join("sessions"),
            cpus,
            state: Mutex::new(state_now),
            wanted,
        })
    }

    /// What is in force.
    pub(super) fn config(&self) -> Arc<Config> {
        Arc::clone(&self.state().config)
    }

    /// What clients are told of it.
    pub(super) fn told(&self) -> ConfigurationState {
        self.state().told.clone()
    }

    /// Has it read again soon.
    pub(super) fn reload_soon(&self) {
        self.wanted.tell();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does what it says now.
    pub(super) fn apply(&self, registry: &Registry) {
        let config = self.config();
        let applied = registry.configure(&config, &self.sessions, self.cpus);
        for text in applied.changes.iter().chain(&applied.failures) {
            log(&format!("configuration: {text}"));
        }
        let mut state = self.state();
        state.told.last =
            Reload { mistakes: Vec::new(), changes: applied.changes, failures: applied.failures };
    }

    /// Reads it again, and does what it says, if there is no mistake in it.
    fn reload(&self, registry: &Registry) {
        let read = Config::read(&self.path);
        let (config, files): (Config, ReadFiles) = match read {
            Ok(read) => read,
            Err(error) => {
                log(&format!("the configuration is refused, and the one before stays in force:\n{error}"));
                let mut state = self.state();
                state.told.refused += 1;
                let mistakes = error.to_string().lines().map(str::to_owned).collect();
                state.told.last = Reload { mistakes, ..Reload::default() };
                return;
            }
        };
        let mut state = self.state();
        files.dirs().clone_into(&mut state.dirs);
        state.told.read_at = utc::seconds_now();
        state.told.reloads += 1;
        state.config = Arc::new(config);
        drop(state);
        self.apply(registry);
    }

    /// Watches the files, and does what they say, in a thread of its own as long as the registry is there.
    ///
    /// # Errors
    /// There is no thread, or nothing can be watched.
    pub(super) fn follow(self: &Arc<Self>, registry: &Arc<Registry>) -> io::Result<()> {
        let (this, registry) = (Arc::clone(self), Arc::downgrade(registry));
        let mut watch = Watch::new(&self.state().dirs)?;
        let follow = move || {
            loop {
                let Some(of) = registry.upgrade() else { return };
                let is_missing = !of.missing(&this.config()).is_empty();
                drop(of);
                let told = this.wait(&watch, is_missing);
                let Some(of) = registry.upgrade() else { return };
                match told {
                    Some(true) => this.reload(&of),
                    Some(false) => this.apply(&of),
                    None => continue,
                }
                drop(of);
                match Watch::new(&this.state().dirs) {
                    Ok(new) => watch = new,
                    Err(error) => {
                        log(&format!("changes of the configuration are not seen: {error}; send SIGHUP"))
                    }
                }
            }
        };
        std::thread::Builder::new().name("configuration".into()).spawn(follow).map(drop)
    }

    /// Waits until it is to be read again (`true`), or done again (`false`).
    fn wait(&self, watch: &Watch, is_missing: bool) -> Option<bool> {
        /// How often it is asked whether the daemon ends.
        const LOOK: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };
        let mut left = RETRY.tv_sec;
        loop {
            let (asked, changed) = self.happens(watch, &LOOK);
            if asked {
                self.wanted.clear();
                watch.forget();
                return Some(true);
            }
            if changed {
                // Until nothing has happened for a moment.
                while self.happens(watch, &QUIET).1 {}
                return Some(true);
            }
            left -= LOOK.tv_sec;
            if left <= 0 {
                return is_missing.then_some(false);
            }
        }
    }

    /// Whether it is to be read again, and whether something has happened to its files.
    fn happens(&self, watch: &Watch, within: &Timespec) -> (bool, bool) {
        let mut fds = [PollFd::new(&self.wanted, PollFlags::IN), PollFd::new(&watch.0, PollFlags::IN)];
        // After a signal it is as if nothing had come.
        let _ = poll(&mut fds, Some(within));
        let came = |fd: &PollFd<'_>| fd.revents().contains(PollFlags::IN);
        (came(&fds[0]), came(&fds[1]) && watch.forget())
    }
}

/// What happens in directories.
#[derive(Debug)]
struct Watch(OwnedFd);

impl Watch {
    fn new(dirs: &[PathBuf]) -> io::Result<Self> {
        let fd = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        let what = WatchFlags::CLOSE_WRITE
            | WatchFlags::MOVED_TO
            | WatchFlags::MOVED_FROM
            | WatchFlags::DELETE
            | WatchFlags::CREATE
            | WatchFlags::ONLYDIR;
        for dir in dirs {
            inotify::add_watch(fd.as_fd(), dir, what)?;
        }
        Ok(Self(fd))
    }

    /// Takes what has happened; whether there was something. Editors write files of their own beside the
    /// configuration, too: reading it again for those changes nothing.
    fn forget(&self) -> bool {
        let mut space = [const { MaybeUninit::uninit() }; EVENTS_SIZE];
        let mut events = inotify::Reader::new(self.0.as_fd(), &mut space);
        let mut is_some = false;
        // At the end there is nothing to read.
        while events.next().is_ok() {
            is_some = true;
        }
        is_some
    }
}
