//! What is looked at each second: for how long rings wait to be stored, what is lost, what programs take, and
//! whether the daemon is what its configuration wants.

use std::{
    collections::{BTreeMap, VecDeque},
    io,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use super::{
    budget::Governor,
    config::HealthConfig,
    configuration::Configuration,
    metrics::{Process, ProgramTimes, Programs, Snapshot},
    registry::{Detail, Registry},
};
use tokio::sync::Semaphore;

use api::Usage;
use api::requests::Health;
use stdx::host_name;
use stdx::output::Directory;

/// From one look to the next.
const LOOK: Duration = Duration::from_secs(1);
/// When nothing was looked at, or a thread has not answered, for so long, it does not come on any more.
const LATE: Duration = Duration::from_mins(1);
/// How many requests for health look at the same time.
const LOOKING_MAX: usize = 4;
/// How far back losses count.
const MINUTE: Duration = Duration::from_mins(1);

/// A session with its user.
type Key = (u32, String);

/// What is known from looking each second.
#[derive(Debug)]
pub(super) struct Monitor {
    registry: Arc<Registry>,
    configuration: Option<Arc<Configuration>>,
    governor: Option<Arc<Governor>>,
    /// The directory of the daemon's state.
    state: PathBuf,
    looked: Mutex<Looked>,
    /// Permits of requests for health.
    pub(super) looking: Arc<Semaphore>,
}

#[derive(Debug)]
struct Looked {
    at: Instant,
    stored: BTreeMap<Key, Stored>,
    /// What configured sessions had counted at moments of the last minute: events, and those lost.
    counts: VecDeque<(Instant, u64, u64)>,
    programs: Option<ProgramTimes>,
}

/// What a session has stored, and since when not more although there was something.
#[derive(Clone, Copy, Debug)]
struct Stored {
    bytes: u64,
    waits_since: Option<Instant>,
}

impl Monitor {
    pub(super) fn new(
        registry: Arc<Registry>,
        (configuration, governor): (Option<Arc<Configuration>>, Option<Arc<Governor>>),
        state: PathBuf,
    ) -> Self {
        let looked =
            Looked { at: Instant::now(), stored: BTreeMap::new(), counts: VecDeque::new(), programs: None };
        let looking = Arc::new(Semaphore::new(LOOKING_MAX));
        Self { registry, configuration, governor, state, looked: Mutex::new(looked), looking }
    }

    /// Looks each second in a thread of its own, as long as this is there.
    ///
    /// # Errors
    /// There is no thread.
    pub(super) fn start(self: &Arc<Self>) -> io::Result<()> {
        let this = Arc::downgrade(self);
        let watch = move || {
            let mut programs = Programs::default();
            while let Some(this) = this.upgrade() {
                this.look(&mut programs);
                drop(this);
                std::thread::sleep(LOOK);
            }
        };
        std::thread::Builder::new().name("monitor".into()).spawn(watch).map(drop)
    }

    fn looked(&self) -> MutexGuard<'_, Looked> {
        self.looked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn look(&self, programs: &mut Programs) {
        let usages = self.registry.usages(None, Detail::Sums);
        let configured = self.registry.configured();
        let times = programs.look();
        let now = Instant::now();
        let mut looked = self.looked();
        looked.at = now;
        looked.programs = times;
        let before = std::mem::take(&mut looked.stored);
        looked.stored = usages.iter().filter_map(|usage| waiting(usage, &before, now)).collect();
        let of_config = usages.iter().filter(|usage| usage.uid == 0 && configured.contains(&usage.session));
        let (mut events, mut lost) = (0, 0);
        for counts in of_config.map(Usage::counts) {
            events += counts.events;
            lost += counts.lost.total();
        }
        looked.counts.push_back((now, events, lost));
        while looked.counts.front().is_some_and(|(at, ..)| now.duration_since(*at) > MINUTE) {
            looked.counts.pop_front();
        }
    }

    /// What a user's metrics are made of; everything, where no user is named.
    pub(super) fn snapshot(&self, of: Option<u32>) -> Snapshot {
        let sessions = self.registry.usages(of, Detail::Events);
        let triggers = self.registry.triggers().list(of);
        let config = self.configuration.as_ref().map(|of| of.config()).unwrap_or_default();
        let host = config.host.clone().unwrap_or_else(host_name);
        let is_ready = Some(self.health().ready);
        let looked = self.looked();
        let ages = looked.stored.iter().map(|(key, stored)| {
            let age = stored.waits_since.map_or(Duration::ZERO, |since| since.elapsed());
            (key.clone(), age.as_secs_f64())
        });
        let (ages, programs) = (ages.collect(), looked.programs);
        drop(looked);
        Snapshot {
            host,
            labels: config.labels.clone(),
            sessions,
            ages,
            triggers,
            configuration: self.configuration.as_ref().map(|of| of.told()),
            archives: self.registry.archives().counts().filter(|_| of.is_none()),
            is_ready,
            process: Process::read(),
            programs,
            budget: self.governor.as_ref().and_then(|governor| governor.state()),
            disk_free: Directory::open(&self.state).and_then(|dir| dir.free_bytes()).ok(),
        }
    }

    /// Whether it is alive, and does what its configuration says.
    pub(super) fn health(&self) -> Health {
        let mut reasons = Vec::from_iter(self.late());
        let live = reasons.is_empty();
        if let Some(configuration) = &self.configuration {
            let config = configuration.config();
            reasons.extend(configuration.failures());
            let active: Vec<String> =
                self.registry.list(Some(0)).into_iter().filter(|of| of.active).map(|of| of.name).collect();
            let configured = self.registry.configured();
            for name in configured.iter().filter(|name| !active.contains(name)) {
                reasons.push(format!("the session {name} is stopped"));
            }
            let looked = self.looked();
            reasons.extend(looked.too_old(&config.health, &configured));
            reasons.extend(looked.too_many_lost(&config.health));
        }
        Health { live, ready: reasons.is_empty(), reasons }
    }

    /// Why the daemon is not alive, if it is not. It waits for no session, as [`health`](Self::health) may.
    pub(super) fn late(&self) -> Option<String> {
        let since = self.looked().at.elapsed();
        if since >= LATE {
            return Some(format!("the monitor has not looked at sessions for {} s", since.as_secs()));
        }
        let (since, name) = self.registry.silence().filter(|(since, _)| *since >= LATE)?;
        Some(format!("the thread of root's session {name} has not answered for {} s", since.as_secs()))
    }

    /// Where metrics are to be served over TCP.
    pub(super) fn wants_listener(&self) -> Option<std::net::SocketAddr> {
        self.configuration.as_ref()?.config().metrics.listen
    }
}

impl Looked {
    fn too_old(&self, limits: &HealthConfig, configured: &[String]) -> Option<String> {
        let waiting = self.stored.iter().filter(|((uid, name), _)| *uid == 0 && configured.contains(name));
        let ages = waiting.filter_map(|((_, name), stored)| Some((stored.waits_since?.elapsed(), name)));
        let (age, name) = ages.max()?;
        (age > limits.max_data_age.0).then(|| {
            format!(
                "nothing of the session {name} was stored for {} s although its rings hold some",
                age.as_secs()
            )
        })
    }

    fn too_many_lost(&self, limits: &HealthConfig) -> Option<String> {
        let ((_, events_then, lost_then), (_, events, lost)) = (self.counts.front()?, self.counts.back()?);
        // Sessions that have gone have taken their counts with them.
        let lost = lost.checked_sub(*lost_then)?;
        let all = events.checked_sub(*events_then)?.saturating_add(lost);
        let most = u128::from(all) * u128::from(limits.max_lost_per_million) / 1_000_000;
        (u128::from(lost) > most).then(|| format!("{lost} of {all} events of the last minute were lost"))
    }
}

/// Whether complete pages of a session that stores its events wait, and since when.
fn waiting(usage: &Usage, before: &BTreeMap<Key, Stored>, now: Instant) -> Option<(Key, Stored)> {
    let bytes = usage.stored_bytes?;
    let key = (usage.uid, usage.session.clone());
    let cpus = usage.channels.iter().filter(|channel| !channel.overwrites).flat_map(|channel| &channel.cpus);
    let held: u64 = cpus.filter_map(|cpu| cpu.rings).map(|rings| rings.held_bytes).sum();
    let waits_since = match before.get(&key) {
        _ if held == 0 || !usage.active => None,
        Some(then) if then.bytes == bytes => then.waits_since.or(Some(now)),
        _ => Some(now),
    };
    Some((key, Stored { bytes, waits_since }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::Domain;
    use api::usage::{ChannelUsage, Counts, CpuUsage, RingUsage};

    fn usage(stored: u64, held: u64) -> Usage {
        let mut rings = RingUsage::default();
        rings.add(held, 1 << 20);
        let cpu = CpuUsage { cpu: 0, rings: Some(rings), counts: Counts::default() };
        Usage {
            session: "s".into(),
            uid: 0,
            active: true,
            time_ns: 0,
            stored_bytes: Some(stored),
            channels: vec![ChannelUsage {
                domain: Domain::Kernel,
                channel: "c".into(),
                overwrites: false,
                cpus: vec![cpu],
                events: None,
            }],
        }
    }

    #[test]
    fn data_wait_while_nothing_is_stored() {
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        let mut all = BTreeMap::new();
        let mut since = |usage: Usage, now: u64| {
            all = waiting(&usage, &all, at(now)).into_iter().collect();
            all[&(0, "s".to_owned())].waits_since
        };
        assert_eq!(since(usage(0, 0), 0), None);
        assert_eq!(since(usage(0, 4096), 1), Some(at(1)));
        assert_eq!(since(usage(0, 8192), 2), Some(at(1)));
        // Some of it was stored, and more has come.
        assert_eq!(since(usage(4096, 8192), 3), Some(at(3)));
        assert_eq!(since(usage(16384, 0), 4), None);
        assert_eq!(since(Usage { active: false, ..usage(16384, 4096) }, 5), None);
    }

    #[test]
    fn losses_count_for_a_minute() {
        let now = Instant::now();
        let counts = [(now, 1000, 10), (now, 1_001_000, 1011)];
        let looked = Looked { at: now, stored: BTreeMap::new(), counts: counts.into(), programs: None };
        let limit = |most| HealthConfig { max_lost_per_million: most, ..HealthConfig::default() };
        assert_eq!(looked.too_many_lost(&limit(1000)), None);
        let told = looked.too_many_lost(&limit(999)).unwrap();
        assert_eq!(told, "1001 of 1001001 events of the last minute were lost");
    }
}
