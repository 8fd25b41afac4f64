//! The configuration of this daemon: read at its start, and again on SIGHUP and when its files change.

use std::{
    io,
    mem::MaybeUninit,
    os::fd::{AsFd as _, OwnedFd},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::inotify::{self, CreateFlags, WatchFlags},
    io::Errno,
};

use super::{
    budget::{Step, reduced},
    config::{Config, ConfigError, ReadFiles},
    registry::{Applied, Registry, log},
};
use api::requests::{ConfigurationState, Reload};
use capture::Notice;
use stdx::{set_host_name, utc};

/// How long nothing may happen to the files before they are read: some are written in several steps.
const QUIET: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };
/// How long is waited for that at most: something may be written all the time.
const QUIET_MAX: Duration = Duration::from_secs(5);
/// How often it is looked whether the daemon ends.
const LOOK: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };
/// After how long what could not be done is tried again, each time after twice as long.
const RETRY: Duration = Duration::from_secs(1);
/// The longest of these pauses.
const RETRY_MAX: Duration = Duration::from_secs(30);
/// Bytes of what has happened to files, as the kernel tells it at a time.
const EVENTS_SIZE: usize = 4096;

/// The configuration, and what became of it.
#[derive(Debug)]
pub(super) struct Configuration {
    path: PathBuf,
    /// What this host is called, whatever the files say.
    host: Option<String>,
    /// Where sessions are that name no directory.
    sessions: PathBuf,
    cpus: u64,
    state: Mutex<State>,
    /// Told when it is to be read again.
    wanted: Notice,
    watch: Watch,
}

#[derive(Debug)]
struct State {
    config: Arc<Config>,
    told: ConfigurationState,
    /// What of the configuration in force could not be done, and why.
    failures: Vec<String>,
    /// What is done less of it.
    steps: Vec<Step>,
}

impl Configuration {
    /// Reads it for the first time. Nothing is done of what it says yet. `host` is what this host is called,
    /// whatever the files say.
    ///
    /// # Errors
    /// It cannot be read, or has mistakes.
    pub(super) fn read(
        path: &Path,
        host: Option<String>,
        state: &Path,
        cpus: u64,
    ) -> Result<Self, ConfigError> {
        let of_path = |source| ConfigError::Read { path: path.to_owned(), source };
        let wanted = Notice::new().map_err(of_path)?;
        let watch = Watch::new().map_err(of_path)?;
        // Before it is read, so that no later change is missed.
        watch.add(path);
        let config = read(path, host.as_ref())?;
        let told = ConfigurationState {
            path: path.to_owned(),
            read_at: utc::seconds_now(),
            reloads: 0,
            refused: 0,
            last: Reload::default(),
        };
        let state_now = State { config: Arc::new(config), told, failures: Vec::new(), steps: Vec::new() };
        Ok(Self {
            path: path.to_owned(),
            host,
            sessions: state.join(super::recovery::CONFIGURED),
            cpus,
            state: Mutex::new(state_now),
            wanted,
            watch,
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

    /// What of it could not be done, and why. It is tried again.
    pub(super) fn failures(&self) -> Vec<String> {
        self.state().failures.clone()
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
        self.apply_and(registry, |_| {});
    }

    /// The same, and notes something together with what has come of it.
    fn apply_and(&self, registry: &Registry, note: impl FnOnce(&mut ConfigurationState)) {
        let config = reduced(&self.config(), &self.state().steps.clone());
        let Applied { changes, failures } = registry.configure(&config, &self.sessions, self.cpus);
        let mut state = self.state();
        // What fails again for the same reason was told before.
        let new = failures.iter().filter(|failure| !state.failures.contains(failure));
        for text in changes.iter().chain(new) {
            log(&format!("configuration: {text}"));
        }
        state.failures.clone_from(&failures);
        state.told.last = Reload { mistakes: Vec::new(), changes, failures };
        note(&mut state.told);
    }

    /// Records after these steps what it says.
    pub(super) fn throttle(&self, registry: &Registry, steps: &[Step]) {
        if std::mem::replace(&mut self.state().steps, steps.to_vec()) == steps {
            return;
        }
        // What the last reading has led to stays told.
        let before = self.told().last;
        self.apply_and(registry, |told| {
            told.last.mistakes = before.mistakes;
            told.last.changes = before.changes;
        });
    }

    /// Tries again what could not be done. What the last reading has led to stays told.
    fn retry(&self, registry: &Registry) {
        let before = self.told().last;
        self.apply_and(registry, |told| {
            let now = &mut told.last;
            now.mistakes = before.mistakes;
            now.changes.splice(0..0, before.changes);
        });
    }

    /// Reads it again, and does what it says, if there is no mistake in it.
    fn reload(&self, registry: &Registry) {
        self.watch.add(&self.path);
        match read(&self.path, self.host.as_ref()) {
            Ok(config) => {
                let read_at = utc::seconds_now();
                self.state().config = Arc::new(config);
                self.apply_and(registry, |told| {
                    told.read_at = read_at;
                    told.reloads += 1;
                });
            }
            Err(error) => {
                let mistakes: Vec<String> = error.to_string().lines().map(str::to_owned).collect();
                log("the configuration is refused, and the one before stays in force");
                for mistake in &mistakes {
                    log(&format!("configuration: {mistake}"));
                }
                let mut state = self.state();
                state.told.refused += 1;
                let failures = state.failures.clone();
                state.told.last = Reload { mistakes, changes: Vec::new(), failures };
            }
        }
    }

    /// Follows its files, and does what they say, in a thread of its own as long as the registry is there.
    ///
    /// # Errors
    /// There is no thread.
    pub(super) fn follow(self: &Arc<Self>, registry: &Arc<Registry>) -> io::Result<()> {
        let (this, registry) = (Arc::clone(self), Arc::downgrade(registry));
        let follow = move || {
            let mut pause = RETRY;
            let mut retry_at = Instant::now() + pause;
            loop {
                let is_changed = this.is_changed();
                let Some(registry) = registry.upgrade() else { return };
                if is_changed {
                    this.reload(&registry);
                    pause = RETRY;
                } else if Instant::now() < retry_at {
                    continue;
                } else if this.failures().is_empty() {
                    pause = RETRY;
                } else {
                    this.retry(&registry);
                    pause = (pause * 2).min(RETRY_MAX);
                }
                retry_at = Instant::now() + pause;
            }
        };
        std::thread::Builder::new().name("configuration".into()).spawn(follow).map(drop)
    }

    /// Waits a moment; whether it is to be read again.
    fn is_changed(&self) -> bool {
        let (is_asked, is_changed) = self.happens(&LOOK);
        if is_asked {
            self.wanted.clear();
            // What has changed before is read now.
            self.watch.forget();
        } else if is_changed {
            let until = Instant::now() + QUIET_MAX;
            while self.happens(&QUIET).1 && Instant::now() < until {}
        }
        is_asked || is_changed
    }

    /// Whether it is to be read again, and whether something has happened to its files.
    fn happens(&self, within: &Timespec) -> (bool, bool) {
        let mut fds = [PollFd::new(&self.wanted, PollFlags::IN), PollFd::new(&self.watch.0, PollFlags::IN)];
        // After a signal it is as if nothing had come.
        let _ = poll(&mut fds, Some(within));
        let came = |fd: &PollFd<'_>| fd.revents().contains(PollFlags::IN);
        let [asked, changed] = [came(&fds[0]), came(&fds[1])];
        (asked, changed && self.watch.forget())
    }
}

/// Reads the files, and gives the host its name.
fn read(path: &Path, host: Option<&String>) -> Result<Config, ConfigError> {
    let mut config = Config::read(path)?.0;
    if let Some(host) = host {
        config.host = Some(host.clone());
    }
    set_host_name(config.host.clone());
    Ok(config)
}

/// What happens in the directories of the files.
#[derive(Debug)]
struct Watch(OwnedFd);

impl Watch {
    fn new() -> io::Result<Self> {
        Ok(Self(inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?))
    }

    /// Watches the directories that there are now. What it watches already, it watches on, and the kernel
    /// leaves out those that go.
    fn add(&self, path: &Path) {
        let what = WatchFlags::CLOSE_WRITE
            | WatchFlags::MOVED_TO
            | WatchFlags::MOVED_FROM
            | WatchFlags::DELETE
            | WatchFlags::CREATE
            | WatchFlags::ATTRIB
            | WatchFlags::ONLYDIR;
        for dir in ReadFiles::dirs(path) {
            match inotify::add_watch(self.0.as_fd(), &dir, what) {
                Ok(_) | Err(Errno::NOENT) => {}
                Err(error) => {
                    log(&format!(
                        "changes in {} are not seen: {error}; send SIGHUP after one",
                        dir.display()
                    ));
                }
            }
        }
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
