//! From the start to the end of the process.

use std::{
    io,
    os::fd::OwnedFd,
    path::PathBuf,
    sync::{Arc, mpsc},
    time::{Duration, Instant},
};

use axum::{Extension, Router};
use tokio::{
    net::{UnixListener, UnixStream},
    signal::unix::{Signal, SignalKind, signal},
    sync::watch,
    task::{JoinHandle, JoinSet},
};

use super::{
    archives::Archives,
    budget::Governor,
    config::ConfigError,
    configuration::Configuration,
    descriptors::Descriptors,
    handover,
    http::{self, Place, Room, Watched, Words, refuse_at_once, serve_connection},
    listen::{Listener, Passed},
    live::Live,
    monitor::Monitor,
    peer::Peer,
    recovery::{Left, Notes, Recoveries},
    registry::{Registry, log},
    relay::Places,
    sessions::Programs,
    shares::Shares,
    side_by_side::{Work, within},
    supervisor::Supervisor,
    triggers::{OnSessions, look_each_second},
    user::Group,
};
use api::{Code, ControlError};
use kernel::{cgroup::memory::MemoryLimit, cpus::Cpus};
use stdx::{clients::Limits, handover::Parcels, output::FileMode, set_host_name};

/// What is said to who asks for a hand-over in vain.
const NOT_STORED: &str = "SIGUSR2: sessions cannot be handed over to another daemon, as systemd stores no descriptors for \
                          this one (FileDescriptorStoreMax=); they go on here";
/// What is said to who asks for a configuration to be read again in vain.
const NO_CONFIG: &str = "SIGHUP: there is no configuration to read again; give one with --config";
/// Connections at a time; root has its own.
const CONNECTIONS: Limits = Limits { all: 256, of_each: 64, reserved: 64 };
/// Connections beyond those, whose request is refused with the reason if it is not about health.
const EXCESS: Limits = Limits { all: 64, of_each: 8, reserved: 8 };
/// How often all that processes have mapped is looked at while a session waits for programs.
const EVERYWHERE: Duration = Duration::from_secs(30);
/// How long a client may read nothing of an answer, or of notifications that do not fit into its socket.
const PATIENCE: Duration = Duration::from_mins(10);
/// How long the database of users may take to say whether a user is in the daemon's group.
const DATABASE_TIME: Duration = Duration::from_secs(5);
/// How long nobody is let in when there are no descriptors.
const BREATH: Duration = Duration::from_millis(100);
/// How long answers that are being written may take when the daemon ends.
const LAST_ANSWERS: Duration = Duration::from_secs(2);
/// How long the store of archives may take to answer when the daemon ends.
const LAST_UPLOADS: Duration = Duration::from_secs(10);
/// How many threads do what takes its time: one for each connection, which has one request at a time, so that
/// nobody waits for what others wait for; and some more.
const BLOCKING_THREADS: usize = CONNECTIONS.total() + EXCESS.total() + http::CONNECTIONS_MAX + 8;

/// What is chosen of a daemon.
#[derive(Clone, Debug)]
pub struct Options {
    /// The socket, if systemd passes none.
    pub socket: PathBuf,
    /// The directory in which the next daemon finds what this one records.
    pub state: PathBuf,
    /// The group whose members may have sessions; `None` for root alone.
    pub group: Option<String>,
    /// The group that reads the files of sessions whose owner is of it; `None` for the owners alone.
    pub read_group: Option<String>,
    /// The most bytes of memory for the rings of a user's sessions; `None` for a quarter of what this process
    /// may have.
    pub user_memory: Option<u64>,
    /// The most descriptors of a user's recordings; `None` for a quarter of what this process may open.
    pub user_descriptors: Option<u64>,
    /// Where viewers of live sessions connect to.
    pub live_bind: std::net::SocketAddr,
    /// Bytes of each session that may wait here for its relay daemon.
    pub relay_backlog: u64,
    /// The first file of its configuration, if it has one.
    pub config: Option<PathBuf>,
    /// What this host is called, whatever the configuration says; `None` for what that says, or the kernel's
    /// name of it.
    pub host: Option<String>,
}

/// Why there is no daemon.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// The socket.
    #[error("{0}")]
    Listen(#[source] io::Error),
    /// The directory of its state.
    #[error("cannot use the directory {path} for the daemon's state: {source}", path = path.display())]
    State {
        /// The directory.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// What it is to record.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Something of the process.
    #[error("cannot {action}: {source}")]
    System {
        /// What was tried.
        action: &'static str,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
}

impl DaemonError {
    fn system(action: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::System { action, source }
    }
}

/// The signals that a daemon obeys.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
    replace: Signal,
    fire: Signal,
}

impl Signals {
    fn listen() -> Result<Self, DaemonError> {
        let of = |kind| signal(kind).map_err(DaemonError::system("wait for signals"));
        Ok(Self {
            terminate: of(SignalKind::terminate())?,
            interrupt: of(SignalKind::interrupt())?,
            hangup: of(SignalKind::hangup())?,
            replace: of(SignalKind::user_defined2())?,
            fire: of(SignalKind::user_defined1())?,
        })
    }
}

/// Why a daemon has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It was told to. Its sessions have ended.
    Stopped,
    /// The next one goes on with its sessions, which record meanwhile.
    HandedOver,
}

/// Serves requests until SIGTERM or SIGINT comes; then ends all sessions, so that their files are there. On
/// SIGUSR2 it hands them over to the next daemon, if systemd stores descriptors for it.
/// `ready` is called when connections are accepted.
///
/// # Errors
/// There is no socket, or the process has no threads or descriptors left.
pub fn run(options: &Options, ready: impl FnOnce()) -> Result<Ended, DaemonError> {
    let group = match &options.group {
        None => None,
        Some(name) => Group::find(name).map_err(DaemonError::system("look up the group"))?,
    };
    match &options.read_group {
        None => FileMode::PRIVATE,
        Some(name) => FileMode::readable_by(
            Group::find(name)
                .and_then(|group| group.ok_or_else(|| io::Error::other(format!("there is no group {name}"))))
                .map_err(DaemonError::system("look up the group that reads"))?
                .gid,
        ),
    }
    .set();
    // The directory of the socket is everybody's, whatever the mask was that this was started with.
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .max_blocking_threads(BLOCKING_THREADS)
        .enable_all()
        .build()
        .map_err(DaemonError::system("start threads"))?;
    // Before there is anything that a signal would leave behind: it is obeyed when everything is there.
    let signals = {
        let _of_runtime = runtime.enter();
        Signals::listen()?
    };
    let supervisor = Supervisor::of_environment();
    let Passed { listener, stored } =
        Passed::of_environment(|name| STORED.contains(&name)).map_err(DaemonError::Listen)?;
    let parcels = parcels_of(stored, &supervisor);
    let listener = match listener {
        Some(passed) => passed,
        None => Listener::bind(&options.socket, group.as_ref()).map_err(DaemonError::Listen)?,
    };
    // What sessions make is their owners'.
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
    let unusable = |source| DaemonError::State { path: options.state.clone(), source };
    let notes = Notes::open(&options.state).map_err(unusable)?;
    let recoveries = Recoveries::default();
    let descriptors = Descriptors::new(options.user_descriptors);
    let limits = (shares(options)?, descriptors);
    let relays = (Places::beside(&options.state).map_err(unusable)?, options.relay_backlog);
    let live = Live::new(options.live_bind);
    set_host_name(options.host.clone());
    let configuration = match &options.config {
        Some(path) => {
            let host = options.host.clone();
            Some(Arc::new(Configuration::read(path, host, &options.state, cpus()?)?))
        }
        None => None,
    };
    let archives = Arc::new(Archives::new(&options.state));
    let of_live = (live, Arc::clone(&archives));
    let registry = Arc::new(Registry::new(notes.clone(), recoveries.clone(), limits, of_live, relays));
    // First of all: their rings fill.
    let going_on =
        parcels.as_ref().map(|parcels| handover::take_over(&registry, parcels)).unwrap_or_default();
    // Before there are notes of this daemon's sessions.
    let left = notes.left(&going_on).unwrap_or_else(|error| {
        log(&format!("cannot recover what the daemon before has left: {error}"));
        Left::default()
    });
    // New sessions need not wait for old ones; spools that are recorded to are locked.
    recoveries.start(left, &archives);
    let act = OnSessions(Arc::downgrade(&registry));
    registry.triggers().start(Box::new(act)).map_err(DaemonError::system("start threads"))?;
    look_each_second(registry.triggers()).map_err(DaemonError::system("start threads"))?;
    registry.watch_triggers_again().map_err(DaemonError::system("start threads"))?;
    watch_programs(&registry).map_err(DaemonError::system("start threads"))?;
    if let Some(configuration) = &configuration {
        configuration.apply(&registry);
        archives.start().map_err(DaemonError::system("start threads"))?;
        configuration.follow(&registry).map_err(DaemonError::system("watch the configuration"))?;
    }
    let governor = configuration.as_ref().map(|of| Arc::new(Governor::new(Arc::clone(of), &registry)));
    if let Some(governor) = &governor {
        governor.start().map_err(DaemonError::system("start threads"))?;
    }
    let told = (signals, &supervisor, parcels.is_some());
    let of_configuration = (configuration.clone(), governor.clone());
    let monitor = Monitor::new(Arc::clone(&registry), of_configuration, options.state.clone());
    let monitor = Arc::new(monitor);
    monitor.start().map_err(DaemonError::system("start threads"))?;
    let of_daemon = (Arc::clone(&registry), configuration, monitor);
    let served = runtime.block_on(serve(&listener, group, of_daemon, told, ready));
    let ended = served.as_ref().map_or(Ended::Stopped, |why| *why);
    if let (Ended::HandedOver, Some(parcels)) = (ended, &parcels) {
        if let Some(governor) = &governor {
            governor.hand_over(&registry);
        }
        while_alive(&supervisor, || handover::hand_over(&registry, parcels));
    } else {
        supervisor.tell("STOPPING=1");
    }
    while_alive(&supervisor, || {
        registry.end();
        // What the sessions have closed is noted.
        let end: Work<()> = Box::new(move || archives.end());
        if within(vec![end], Instant::now() + LAST_UPLOADS) == [None] {
            log("what sends archives has not ended in time; the next daemon finds what is not sent");
        }
    });
    match ended {
        // Rings fill until the next one is there.
        Ended::HandedOver => runtime.shutdown_background(),
        Ended::Stopped => runtime.shutdown_timeout(LAST_ANSWERS),
    }
    served.map(|_| ended)
}

/// Does what may take its time, and tells systemd meanwhile that this process is alive.
fn while_alive(supervisor: &Supervisor, act: impl FnOnce() + Send) {
    let Some(period) = supervisor.watchdog() else { return act() };
    std::thread::scope(|scope| {
        let (done, is_done) = mpsc::channel::<()>();
        scope.spawn(move || {
            act();
            drop(done);
        });
        while is_done.recv_timeout(period) == Err(mpsc::RecvTimeoutError::Timeout) {
            supervisor.tell("WATCHDOG=1");
        }
    });
}

/// The names under which the ends of the way to the next daemon are stored.
const STORED: [&str; 2] = ["hand-over-near", "hand-over-far"];

/// The way to the next daemon: the one that the daemon before had, or a new one that is stored. `None` where
/// nothing can be stored.
fn parcels_of(stored: Vec<(String, OwnedFd)>, supervisor: &Supervisor) -> Option<Parcels> {
    let mut ends = STORED.map(|_| None);
    for (name, fd) in stored {
        if let Some(index) = STORED.iter().position(|known| *known == name) {
            ends[index] = Some(fd);
        }
    }
    if let [Some(near), Some(far)] = ends {
        return Some(Parcels::of_kept([near, far]));
    }
    let parcels = Parcels::new().and_then(|parcels| {
        let [near, far] = parcels.ends();
        supervisor.store(&[(STORED[0], near), (STORED[1], far)])?;
        Ok(parcels)
    });
    match parcels {
        Ok(parcels) => Some(parcels),
        Err(error) if error.kind() == io::ErrorKind::Unsupported => None,
        Err(error) => {
            log(&format!("sessions cannot be handed over: systemd does not store descriptors: {error}"));
            None
        }
    }
}

/// What users may have.
fn shares(options: &Options) -> Result<Shares, DaemonError> {
    let memory = options.user_memory.unwrap_or_else(|| memory() / 4);
    Ok(Shares::new(memory, cpus()?))
}

fn cpus() -> Result<u64, DaemonError> {
    let cpus =
        Cpus::read().map_err(|error| DaemonError::system("count the CPUs")(io::Error::other(error)))?;
    Ok(cpus.online.iter().count() as u64)
}

/// Bytes that this process may have: the machine's, or fewer where its control group has a limit.
fn memory() -> u64 {
    let system = rustix::system::sysinfo();
    let machine = system.totalram.saturating_mul(system.mem_unit.into());
    MemoryLimit::read().map_or(machine, |limit| limit.max.min(machine))
}

/// Looks for programs that sessions wait for: for those that have been started each second, for what others
/// have loaded each half a minute, and for all when somebody asks. Only this thread looks at files of users.
fn watch_programs(registry: &Arc<Registry>) -> io::Result<()> {
    let (finder, registry) = (Arc::clone(registry.finder()), Arc::downgrade(registry));
    let watch = move || {
        let mut programs = Programs::default();
        let mut last = Instant::now();
        loop {
            let wanted = finder.wait(Duration::from_secs(1));
            let Some(registry) = registry.upgrade() else { return };
            let everywhere = wanted.is_asked || last.elapsed() >= EVERYWHERE;
            if everywhere {
                last = Instant::now();
            }
            registry.look_for_programs(&mut programs, &wanted, everywhere);
        }
    };
    std::thread::Builder::new().name("programs".into()).spawn(watch).map(drop)
}

async fn serve(
    listener: &Listener,
    group: Option<Group>,
    (registry, configuration, monitor): (Arc<Registry>, Option<Arc<Configuration>>, Arc<Monitor>),
    (mut signals, supervisor, can_hand_over): (Signals, &Supervisor, bool),
    ready: impl FnOnce(),
) -> Result<Ended, DaemonError> {
    let failed = DaemonError::system("listen");
    let socket = listener.socket.try_clone().and_then(|socket| {
        socket.set_nonblocking(true)?;
        UnixListener::from_std(socket)
    });
    let socket = socket.map_err(failed)?;
    let triggers = Arc::clone(registry.triggers());
    let of_hand_over = Arc::clone(&registry);
    let router = http::router(registry, configuration.clone(), Arc::clone(&monitor));
    // It ends with the runtime.
    tokio::spawn(http::serve(Arc::clone(&monitor)));
    let group = group.map(Arc::new);
    let words = Words {
        client: "user",
        all: "all users",
        advice: "end some of the programs that have them, such as those that listen",
    };
    let room = Room::new((CONNECTIONS, EXCESS), 0, words);
    let (end, ended) = watch::channel(false);
    let mut connections = JoinSet::new();
    let mut watchdog = supervisor.watchdog().map(tokio::time::interval);
    let mut preparing = None;
    supervisor.tell("READY=1");
    ready();
    let why = loop {
        tokio::select! {
            _ = signals.terminate.recv() => break Ended::Stopped,
            _ = signals.interrupt.recv() => break Ended::Stopped,
            _ = signals.hangup.recv() => match &configuration {
                Some(configuration) => configuration.reload_soon(),
                None => log(NO_CONFIG),
            },
            _ = signals.fire.recv() => triggers.has_signal(),
            _ = signals.replace.recv() => {
                if can_hand_over {
                    let registry = Arc::clone(&of_hand_over);
                    // Clients are served meanwhile.
                    preparing.get_or_insert_with(|| {
                        tokio::task::spawn_blocking(move || registry.prepare_hand_over())
                    });
                } else {
                    log(NOT_STORED);
                }
            }
            () = prepared(preparing.as_mut()) => break Ended::HandedOver,
            () = tick(watchdog.as_mut()) => supervisor.tell("WATCHDOG=1"),
            Some(_) = connections.join_next() => {}
            accepted = socket.accept() => match accepted {
                Ok((stream, _)) => {
                    // Who has gone already is nobody.
                    let Ok(peer) = Peer::of(&stream) else { continue };
                    match room.take(peer.uid) {
                        Ok(place) => {
                            let (router, group) = (router.clone(), group.clone());
                            let (monitor, ended) = (Arc::clone(&monitor), ended.clone());
                            connections.spawn(async move {
                                connection(stream, (peer, place), router, (group, monitor), ended).await;
                            });
                        }
                        Err(refusal) => refuse_at_once(&stream, &refusal),
                    }
                }
                Err(error) => {
                    log(&format!("cannot accept a connection: {error}"));
                    tokio::time::sleep(BREATH).await;
                }
            },
        }
    };
    // Who waits for an answer gets it; who only listens does not keep the daemon.
    let _ = end.send(true);
    let _ =
        tokio::time::timeout(LAST_ANSWERS, async { while connections.join_next().await.is_some() {} }).await;
    Ok(why)
}

/// Waits until sessions can be handed over, if they are to be.
async fn prepared(preparing: Option<&mut JoinHandle<()>>) {
    match preparing {
        // A panic has been printed, and sessions are looked at again.
        Some(preparing) => drop(preparing.await),
        None => std::future::pending().await,
    }
}

async fn tick(interval: Option<&mut tokio::time::Interval>) {
    match interval {
        Some(interval) => {
            interval.tick().await;
        }
        None => std::future::pending().await,
    }
}

/// Serves one connection, of a peer that is known from its socket.
async fn connection(
    stream: UnixStream,
    (peer, mut place): (Peer, Place<u32>),
    router: Router,
    (group, monitor): (Option<Arc<Group>>, Arc<Monitor>),
    mut ended: watch::Receiver<bool>,
) {
    let (stream, hangup) = Watched::new(stream);
    let refusal = place.refusal.take();
    let place = Arc::new(place);
    let router = match may_control(peer, group.as_ref(), &place).await {
        None => http::refuse(ControlError::new(
            Code::Daemon,
            format!("the database of users has not answered within {} s", DATABASE_TIME.as_secs()),
        )),
        Some(false) => http::refuse_others(group.as_deref().map(|group| group.name.as_str())),
        Some(true) => match refusal {
            Some(refusal) => http::excess(monitor, refusal),
            None => router.layer(Extension(peer)).layer(Extension(hangup)),
        },
    };
    let ended = async move { drop(ended.changed().await) };
    serve_connection(stream, router, (PATIENCE, place), ended).await;
}

/// Whether a peer may control the daemon. `None` if the database of users does not answer in time; its
/// look-up goes on, and the connection's place is taken until it ends.
async fn may_control(peer: Peer, group: Option<&Arc<Group>>, place: &Arc<Place<u32>>) -> Option<bool> {
    if let (None, Some(group)) = (peer.may_control_by_itself(group.map(Arc::as_ref)), group) {
        let (group, place) = (Arc::clone(group), Arc::clone(place));
        let look_up = tokio::task::spawn_blocking(move || {
            let _place = place;
            peer.is_member(&group)
        });
        // A panic has been printed.
        return tokio::time::timeout(DATABASE_TIME, look_up).await.ok()?.ok();
    }
    peer.may_control_by_itself(group.map(Arc::as_ref))
}
