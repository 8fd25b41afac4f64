//! The description of a session, and which changes of it are allowed. It knows of no kernel and no files.

use std::{
    collections::BTreeMap,
    path::{Component, Path},
};

use serde::{Deserialize, Serialize};

use super::{configured::Configured, defaults, expand, spec};
use ::spec::SWITCH_NS_MIN;
use api::requests::{EnableRules, NewChannel, TakeSnapshot, Track};
use api::session::SessionDomain;
use api::track::Attribute;
use api::{
    Channel, Code, ControlError, Domain, EventRule, Format, Instrumentation, NewMap, NewSession, Schedule,
    Session, SessionMode, SnapshotOutput, Summary, Tracked, Tracker, UserProbe,
};
use ctf_writer::TraceSession;
use ftrace_event::filter::{Dialect, Filter, FilterError};
use lttng_relay::RelayAddress;
use stdx::utc;

/// The most channels of a session, over all domains: each has a buffer in the file.
const CHANNELS_MAX: usize = ::spec::CHANNELS_MAX;
/// The most rules of a channel, contexts of it, outputs of snapshots and values of a tracker.
const LIST_MAX: usize = 4096;
/// The most maps of a session.
const MAPS_MAX: usize = 64;
/// The longest name (`LTTNG_NAME_MAX` less its end).
const NAME_MAX: usize = 254;
/// The longest name of a probe's event (`MAX_EVENT_NAME_LEN` of the kernel).
const PROBE_NAME_MAX: usize = 64;
/// The longest other text: patterns, filters, places.
const TEXT_MAX: usize = 64 << 10;

/// What viewers read is a trace of LTTng's format, and not written without a pause.
fn check_served(output: &Path, timer_us: u64, format: Format) -> Result<(), ControlError> {
    check_path(output)?;
    if format != Format::Lttng {
        return Err(ControlError::new(
            Code::NotSupported,
            "viewers read sessions of the format lttng; a trace.dat is complete when it is closed",
        ));
    }
    check_timer(timer_us)
}

fn check_timer(timer_us: u64) -> Result<(), ControlError> {
    if timer_us.saturating_mul(1000) < SWITCH_NS_MIN {
        return Err(ControlError::new(Code::Invalid, "the live timer has 1000 microseconds at least"));
    }
    Ok(())
}

/// The description of a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Model {
    pub(super) session: Session,
    /// Whether it was started before.
    was_started: bool,
    /// The number that the next output of snapshots gets.
    next_output: u32,
    /// Bytes of the memory of each map.
    map_bytes: BTreeMap<String, u64>,
    /// What the daemon's configuration says of it, if it is one of its sessions.
    #[serde(default)]
    pub(super) configured: Option<Box<Configured>>,
    /// Whether its trace has the machine's state only if a rule matches `lttng_statedump_*`.
    #[serde(default)]
    state_by_rule: bool,
}

pub(super) type Checked<T = ()> = Result<T, ControlError>;

impl Model {
    /// A new session of a user, at a moment in seconds since 1970.
    pub(crate) fn create(new: NewSession, uid: u32, now: u64) -> Checked<Self> {
        let NewSession { name, mode, snapshot_output, format, state_by_rule } = new;
        let name = name.unwrap_or_else(|| format!("auto-{}", utc::date_and_time(now)));
        if name.contains('/') {
            return Err(Code::SessionName.into());
        }
        check_name(&name, Code::SessionName)?;
        match &mode {
            SessionMode::Local { output } => output.iter().try_for_each(|path| check_path(path))?,
            SessionMode::Snapshot => {}
            SessionMode::Served { output, timer_us } => check_served(output, *timer_us, format)?,
            SessionMode::Network { url } => check_network(&name, url, format)?,
            SessionMode::Live { url, timer_us } => {
                check_network(&name, url, format)?;
                check_timer(*timer_us)?;
            }
        }
        let summary = Summary { name, active: false, mode, format, created_at: now, uid };
        let session = Session {
            summary,
            domains: Vec::new(),
            schedules: Vec::new(),
            snapshot_outputs: Vec::new(),
            last_rotation: None,
            maps: Vec::new(),
            notes: Vec::new(),
        };
        let mut model = Self {
            session,
            was_started: false,
            next_output: 1,
            map_bytes: BTreeMap::new(),
            configured: None,
            state_by_rule,
        };
        if let Some(path) = snapshot_output {
            model.add_snapshot_output(SnapshotOutput { id: 0, name: None, path, max_size: None })?;
        }
        Ok(model)
    }

    /// The session as it is told.
    pub(crate) fn session(&self) -> &Session {
        &self.session
    }

    /// Its name.
    pub(crate) fn name(&self) -> &str {
        &self.session.summary.name
    }

    /// Whether it is started.
    pub(crate) fn is_active(&self) -> bool {
        self.session.summary.active
    }

    /// Whether it keeps the newest events until a snapshot is taken, as it stores nothing otherwise.
    pub(crate) fn keeps(&self) -> bool {
        matches!(self.session.summary.mode, SessionMode::Snapshot | SessionMode::Local { output: None })
    }

    /// Whether a rule wants the machine's state, in a trace that has it only then.
    pub(crate) fn wants_state(&self) -> bool {
        let of_kernel =
            self.channels().filter(|(domain, channel)| *domain == Domain::Kernel && channel.enabled);
        let mut rules = of_kernel.flat_map(|(_, channel)| &channel.rules).filter(|rule| rule.enabled);
        let is_of_lttng = self.session.summary.format == Format::Lttng;
        self.state_by_rule && is_of_lttng && rules.any(expand::is_about_state)
    }

    /// What its traces have of the session.
    pub(crate) fn trace_session(&self) -> TraceSession {
        TraceSession {
            name: self.name().to_owned(),
            created_at: self.session.summary.created_at,
            has_state: !self.state_by_rule || self.wants_state(),
        }
    }

    /// Whether it was started before.
    pub(crate) fn was_started(&self) -> bool {
        self.was_started
    }

    /// Whether it has rules that wait for programs.
    pub(crate) fn waits_for_programs(&self) -> bool {
        self.channels().any(|(domain, channel)| domain == Domain::User && !channel.rules.is_empty())
    }

    /// Its channels with their domains.
    pub(crate) fn channels(&self) -> impl Iterator<Item = (Domain, &Channel)> {
        let domains = self.session.domains.iter();
        domains.flat_map(|of| of.channels.iter().map(|channel| (of.domain, channel)))
    }

    /// Its channels, for counts of them.
    pub(crate) fn channels_mut(&mut self) -> impl Iterator<Item = (Domain, &mut Channel)> {
        let domains = self.session.domains.iter_mut();
        domains.flat_map(|of| of.channels.iter_mut().map(|channel| (of.domain, channel)))
    }

    /// Its maps.
    pub(crate) fn maps(&self) -> &[NewMap] {
        &self.session.maps
    }

    /// Bytes of the memory of all its maps.
    pub(crate) fn bytes_of_maps(&self) -> u64 {
        self.map_bytes.values().copied().fold(0, u64::saturating_add)
    }

    /// Whether it can have such a map.
    pub(crate) fn check_map(&self, new: &NewMap) -> Checked {
        check_name(&new.name, Code::InvalidMap)?;
        if self.session.maps.iter().any(|there| there.name == new.name) {
            return Err(Code::MapExists.into());
        }
        if self.session.maps.len() >= MAPS_MAX {
            return Err(ControlError::new(Code::Invalid, format!("a session has at most {MAPS_MAX} maps")));
        }
        Ok(())
    }

    /// Adds a map that takes so many bytes of memory.
    pub(crate) fn add_map(&mut self, new: NewMap, bytes: u64) -> Checked {
        self.check_map(&new)?;
        self.map_bytes.insert(new.name.clone(), bytes);
        self.session.maps.push(new);
        Ok(())
    }

    /// Removes a map; gives what it was.
    pub(crate) fn remove_map(&mut self, name: &str) -> Checked<NewMap> {
        let index = self.session.maps.iter().position(|there| there.name == name);
        let index = index.ok_or_else(|| ControlError::from(Code::NoMap))?;
        self.map_bytes.remove(name);
        Ok(self.session.maps.remove(index))
    }

    /// Removes the maps of other names.
    pub(crate) fn keep_maps(&mut self, is_there: impl Fn(&str) -> bool) {
        self.map_bytes.retain(|name, _| is_there(name));
        self.session.maps.retain(|map| is_there(&map.name));
    }

    /// Starts it.
    pub(crate) fn start(&mut self) -> Checked {
        if self.is_active() {
            return Err(Code::AlreadyStarted.into());
        }
        if self.channels().next().is_none() && self.session.maps.is_empty() {
            return Err(Code::NoChannel.into());
        }
        self.session.summary.active = true;
        self.was_started = true;
        Ok(())
    }

    /// Stops it.
    pub(crate) fn stop(&mut self) -> Checked {
        if !self.is_active() {
            return Err(Code::AlreadyStopped.into());
        }
        self.session.summary.active = false;
        Ok(())
    }

    /// Whether channels and contexts can be added. Readers take the declarations of a trace's streams
    /// once, so that those of one that has begun stay, as LTTng's.
    fn check_streams(&self) -> Checked {
        let has_trace = self.was_started
            && self.session.summary.format == Format::Lttng
            && self.channels().next().is_some();
        if has_trace { Err(Code::AlreadyStarted.into()) } else { Ok(()) }
    }

    /// Adds a channel, with its first rules.
    pub(crate) fn add_channel(&mut self, domain: Domain, new: &NewChannel) -> Checked<Channel> {
        let NewChannel { name, attributes, rules } = new;
        self.check_own()?;
        check_name(name, Code::ChannelName)?;
        if name.contains(['/', '.']) || name.starts_with('_') {
            return Err(Code::ChannelName.into());
        }
        let exists = match domain {
            Domain::Kernel => Code::KernelChannelExists,
            Domain::User => Code::UserChannelExists,
        };
        if self.find_channel(domain, name).is_some() {
            return Err(exists.into());
        }
        // In a file, both domains' channels are buffers.
        let buffer = spec::buffer_name(domain, name);
        if self.channels().any(|(of, there)| spec::buffer_name(of, &there.name) == buffer) {
            return Err(ControlError::new(
                Code::ChannelName,
                format!("a channel of the other domain has the name {buffer} in files; choose another name"),
            ));
        }
        if self.channels().count() >= CHANNELS_MAX {
            return Err(ControlError::new(
                Code::Invalid,
                format!("a session has at most {CHANNELS_MAX} channels"),
            ));
        }
        let attributes = defaults::complete(domain, &self.session.summary.mode, attributes)?;
        let differs =
            |(of, other): (Domain, &Channel)| of == domain && other.attributes.buffers != attributes.buffers;
        if self.channels().any(differs) {
            return Err(Code::BufferTypes.into());
        }
        self.check_streams()?;
        let mut channel = Channel {
            name: name.clone(),
            enabled: true,
            attributes,
            discarded: 0,
            lost_packets: 0,
            contexts: Vec::new(),
            rules: Vec::new(),
        };
        add_rules_to(&mut channel, self.session.summary.uid, domain, rules)?;
        self.domain_mut(domain).channels.push(channel.clone());
        Ok(channel)
    }

    /// Switches a channel on or off.
    pub(crate) fn enable_channel(&mut self, domain: Domain, name: &str, on: bool) -> Checked {
        self.channel_mut(domain, name)?.enabled = on;
        Ok(())
    }

    /// Adds rules to a channel, or switches those on again that are there. After an error none of them is.
    pub(crate) fn add_rules(&mut self, domain: Domain, channel: &str, rules: &[EventRule]) -> Checked {
        let uid = self.session.summary.uid;
        let of = self.channel_mut(domain, channel)?;
        let mut changed = of.clone();
        add_rules_to(&mut changed, uid, domain, rules)?;
        *of = changed;
        Ok(())
    }

    /// Removes a rule from a channel.
    pub(crate) fn remove_rule(&mut self, domain: Domain, channel: &str, rule: &EventRule) -> Checked {
        let of = self.channel_mut(domain, channel)?;
        let index = find_rule(of, rule).ok_or_else(|| ControlError::from(no_event(domain)))?;
        of.rules.remove(index);
        Ok(())
    }

    /// Switches rules of a channel on or off; gives how many.
    pub(crate) fn enable_rules(
        &mut self,
        domain: Domain,
        channel: &str,
        which: &EnableRules,
    ) -> Checked<u32> {
        let EnableRules { name, kind, enabled } = which;
        let of = self.channel_mut(domain, channel)?;
        let mut count = 0;
        let meant = |rule: &EventRule| {
            name.as_ref().is_none_or(|name| *name == rule.name)
                && kind.as_ref().is_none_or(|kind| kind == kind_of(&rule.instrumentation))
        };
        for rule in of.rules.iter_mut().filter(|rule| meant(rule)) {
            count += 1;
            rule.enabled = *enabled;
        }
        if count == 0 && name.is_some() {
            return Err(no_event(domain).into());
        }
        Ok(count)
    }

    /// Adds contexts to a channel.
    pub(crate) fn add_contexts(&mut self, domain: Domain, channel: &str, contexts: &[String]) -> Checked {
        let (exists, invalid) = (Code::ContextExists, context_refused(domain));
        let of = self.channel_mut(domain, channel)?;
        for context in contexts {
            check_text(context)?;
            if of.contexts.contains(context) {
                return Err(exists.into());
            }
            if of.contexts.len() >= LIST_MAX {
                return Err(invalid.into());
            }
            of.contexts.push(context.clone());
        }
        self.check_streams()
    }

    /// Changes what is recorded of an attribute of processes.
    pub(crate) fn track(&mut self, domain: Domain, change: &Track) -> Checked<Tracker> {
        let Track { attribute, values, add } = change;
        self.check_own()?;
        if domain == Domain::User && matches!(attribute, Attribute::Pid | Attribute::Uid | Attribute::Gid) {
            return Err(Code::TrackerDomain.into());
        }
        let trackers = &mut self.domain_mut(domain).trackers;
        let index = trackers.iter().position(|tracker| tracker.attribute == *attribute);
        let index = index.unwrap_or_else(|| {
            let index = trackers.partition_point(|tracker| tracker.attribute < *attribute);
            trackers.insert(index, Tracker { attribute: *attribute, tracked: Tracked::All });
            index
        });
        let tracker = &mut trackers[index];
        match (values, add, &mut tracker.tracked) {
            (Tracked::All, true, tracked) => *tracked = Tracked::All,
            (Tracked::All, false, tracked) => *tracked = Tracked::Only(Vec::new()),
            (Tracked::Only(values), true, tracked) => {
                let mut set = match tracked {
                    Tracked::All => Vec::new(),
                    Tracked::Only(set) => set.clone(),
                };
                for value in values {
                    check_text(value)?;
                    if set.contains(value) {
                        return Err(Code::AlreadyTracked.into());
                    }
                    if set.len() >= LIST_MAX {
                        return Err(Code::Invalid.into());
                    }
                    set.push(value.clone());
                }
                *tracked = Tracked::Only(set);
            }
            (Tracked::Only(_), false, Tracked::All) => return Err(Code::TrackerPolicy.into()),
            (Tracked::Only(values), false, Tracked::Only(set)) => {
                if values.iter().any(|value| !set.contains(value)) {
                    return Err(Code::NotTracked.into());
                }
                set.retain(|value| !values.contains(value));
            }
        }
        Ok(tracker.clone())
    }

    /// Adds a schedule of rotations.
    pub(crate) fn add_schedule(&mut self, schedule: Schedule) -> Checked {
        self.check_own()?;
        self.check_rotates()?;
        if matches!(schedule, Schedule::PeriodUs(0) | Schedule::SizeBytes(0)) {
            return Err(Code::Invalid.into());
        }
        if self.session.schedules.iter().any(|there| is_same_kind(there, &schedule)) {
            return Err(Code::ScheduleSet.into());
        }
        self.session.schedules.push(schedule);
        Ok(())
    }

    /// Removes a schedule of rotations.
    pub(crate) fn remove_schedule(&mut self, schedule: &Schedule) -> Checked {
        self.check_own()?;
        let index = self.session.schedules.iter().position(|there| is_same_kind(there, schedule));
        let index = index.ok_or_else(|| ControlError::from(Code::ScheduleNotSet))?;
        self.session.schedules.remove(index);
        Ok(())
    }

    /// Whether it can be rotated, apart from when that was done last.
    pub(crate) fn check_rotation(&self) -> Checked {
        self.check_rotates()?;
        if self.was_started { Ok(()) } else { Err(Code::NeverStarted.into()) }
    }

    /// Whether such a snapshot can be taken now.
    pub(crate) fn check_snapshot(&self, wanted: &TakeSnapshot) -> Checked {
        let TakeSnapshot { name, path, max_size, max_age_ms: _ } = wanted;
        if !self.keeps() {
            return Err(Code::NotSnapshotSession.into());
        }
        if let Some(name) = name {
            check_snapshot_name(name)?;
        }
        if let Some(path) = path {
            self.check_snapshot_place(path)?;
        }
        if *max_size == Some(0) {
            return Err(Code::SnapshotSize.into());
        }
        if !self.was_started {
            return Err(Code::NeverStarted.into());
        }
        Ok(())
    }

    /// Adds a place for snapshots.
    pub(crate) fn add_snapshot_output(&mut self, output: SnapshotOutput) -> Checked<SnapshotOutput> {
        let SnapshotOutput { id: _, name, path, max_size } = output;
        self.check_own()?;
        if !self.keeps() {
            return Err(Code::NotSnapshotSession.into());
        }
        self.check_snapshot_place(&path)?;
        if max_size == Some(0) {
            return Err(Code::SnapshotSize.into());
        }
        let name = name.unwrap_or_else(|| format!("snapshot-{}", self.next_output));
        check_snapshot_name(&name)?;
        let outputs = &mut self.session.snapshot_outputs;
        if outputs.iter().any(|there| there.name.as_ref() == Some(&name)) || outputs.len() >= LIST_MAX {
            return Err(Code::SnapshotOutputExists.into());
        }
        let output = SnapshotOutput { id: self.next_output, name: Some(name), path, max_size };
        self.next_output += 1;
        outputs.push(output.clone());
        Ok(output)
    }

    /// Removes a place for snapshots, by its number or name.
    pub(crate) fn remove_snapshot_output(&mut self, which: &str) -> Checked {
        self.check_own()?;
        if !self.keeps() {
            return Err(Code::NotSnapshotSession.into());
        }
        let outputs = &mut self.session.snapshot_outputs;
        let id = which.parse().ok();
        let is_meant = |there: &SnapshotOutput| Some(there.id) == id || there.name.as_deref() == Some(which);
        let index = outputs.iter().position(is_meant).ok_or_else(|| {
            ControlError::new(Code::Invalid, format!("the session has no output for snapshots named {which}"))
        })?;
        outputs.remove(index);
        Ok(())
    }

    /// Whether snapshots can go to a directory or relay daemon.
    fn check_snapshot_place(&self, place: &Path) -> Checked {
        let Summary { name, format, .. } = &self.session.summary;
        match place.to_str().filter(|url| url.contains("://")) {
            Some(url) => check_network(name, url, *format),
            None => check_path(place),
        }
    }

    fn check_rotates(&self) -> Checked {
        match &self.session.summary.mode {
            SessionMode::Local { output: Some(_) }
            | SessionMode::Served { .. }
            | SessionMode::Network { .. }
            | SessionMode::Live { .. } => Ok(()),
            SessionMode::Local { output: None } | SessionMode::Snapshot => {
                Err(Code::RotationUnavailable.into())
            }
        }
    }

    fn find_channel(&self, domain: Domain, name: &str) -> Option<&Channel> {
        self.channels()
            .find(|(of, channel)| *of == domain && channel.name == name)
            .map(|(_, channel)| channel)
    }

    fn channel_mut(&mut self, domain: Domain, name: &str) -> Checked<&mut Channel> {
        self.check_own()?;
        let missing = match domain {
            Domain::Kernel => Code::NoKernelChannel,
            Domain::User => Code::NoUserChannel,
        };
        let mut all = self.channels_mut();
        let found = all.find(|(of, channel)| *of == domain && channel.name == name);
        found.map(|(_, channel)| channel).ok_or_else(|| missing.into())
    }

    /// The part of a domain, which is made if it is not there.
    pub(super) fn domain_mut(&mut self, domain: Domain) -> &mut SessionDomain {
        let domains = &mut self.session.domains;
        let index = match domains.binary_search_by_key(&domain, |of| of.domain) {
            Ok(index) => index,
            Err(index) => {
                domains.insert(index, SessionDomain { domain, trackers: Vec::new(), channels: Vec::new() });
                index
            }
        };
        &mut domains[index]
    }
}

/// The name of a kind of instrumentation in requests.
fn kind_of(instrumentation: &Instrumentation) -> &'static str {
    match instrumentation {
        Instrumentation::Tracepoint => "tracepoint",
        Instrumentation::Syscall(_) => "syscall",
        Instrumentation::Kprobe { .. } => "kprobe",
        Instrumentation::Function { .. } => "function",
        Instrumentation::UserProbe(_) => "user_probe",
    }
}

fn find_rule(channel: &Channel, rule: &EventRule) -> Option<usize> {
    channel.rules.iter().position(|there| is_same_rule(there, rule))
}

/// Whether two rules select the same, whether they record or not.
fn is_same_rule(one: &EventRule, other: &EventRule) -> bool {
    let EventRule { name, instrumentation, enabled: _, filter, exclusions, log_level } = one;
    *name == other.name
        && *instrumentation == other.instrumentation
        && *filter == other.filter
        && *exclusions == other.exclusions
        && *log_level == other.log_level
}

fn no_event(domain: Domain) -> Code {
    match domain {
        Domain::Kernel => Code::NoEvent,
        Domain::User => Code::NoUserEvent,
    }
}

fn context_refused(domain: Domain) -> Code {
    match domain {
        Domain::Kernel => Code::KernelContext,
        Domain::User => Code::UserContext,
    }
}

fn is_same_kind(a: &Schedule, b: &Schedule) -> bool {
    std::mem::discriminant(a) == std::mem::discriminant(b)
}

/// Adds rules of a user to a channel, some of them perhaps before an error.
fn add_rules_to(of: &mut Channel, uid: u32, domain: Domain, rules: &[EventRule]) -> Checked {
    let exists = match domain {
        Domain::Kernel => Code::KernelEventExists,
        Domain::User => Code::UserEventEnabled,
    };
    // The places of the probes that are on, by their events: one name is that of one place.
    let mut places = BTreeMap::<(String, String), Instrumentation>::new();
    let probes = |rule: &EventRule| {
        let events = expand::probe_events(rule).into_iter();
        events.map(|event| (event, rule.instrumentation.clone())).collect::<Vec<_>>()
    };
    places.extend(of.rules.iter().filter(|rule| rule.enabled).flat_map(probes));
    let mut has_new = false;
    for rule in rules {
        check_rule_of(uid, domain, rule)?;
        let found = find_rule(of, rule);
        if found.is_some_and(|index| of.rules[index].enabled) {
            continue;
        }
        has_new = true;
        for (event, place) in probes(rule).into_iter().filter(|_| rule.enabled) {
            let (_, name) = &event;
            if places.get(&event).is_some_and(|other| *other != place) {
                let why = format!("the channel has another probe whose event is {name}");
                return Err(ControlError::new(exists, why));
            }
            places.insert(event, place);
        }
        match found {
            Some(index) => of.rules[index].enabled = rule.enabled,
            None if of.rules.len() >= LIST_MAX => {
                let why = format!("a channel has at most {LIST_MAX} rules");
                return Err(ControlError::new(Code::Invalid, why));
            }
            None => of.rules.push(rule.clone()),
        }
    }
    if has_new || rules.is_empty() { Ok(()) } else { Err(exists.into()) }
}

/// Whether a user may have such a rule.
pub(crate) fn check_rule_of(uid: u32, domain: Domain, rule: &EventRule) -> Checked {
    check_rule(domain, rule)?;
    let is_user_space =
        domain == Domain::User || matches!(rule.instrumentation, Instrumentation::UserProbe(_));
    if uid != 0 && is_user_space {
        return Err(ControlError::new(
            Code::NotSupported,
            "probes of programs and libraries are for root's sessions: the program is looked up with root's \
             rights",
        ));
    }
    Ok(())
}

fn check_rule(domain: Domain, rule: &EventRule) -> Checked {
    let EventRule { name, instrumentation, enabled: _, filter, exclusions, log_level } = rule;
    check_name(name, Code::EventName)?;
    filter.iter().try_for_each(|filter| check_filter(filter))?;
    if exclusions.len() > LIST_MAX {
        return Err(Code::Invalid.into());
    }
    exclusions.iter().try_for_each(|text| check_text(text))?;
    if log_level.is_some() {
        return Err(ControlError::new(
            Code::NotSupported,
            "neither the kernel's tracepoints nor markers of programs have log levels",
        ));
    }
    match (domain, instrumentation) {
        (_, Instrumentation::Tracepoint) | (Domain::Kernel, Instrumentation::Syscall(_)) => Ok(()),
        (Domain::Kernel, Instrumentation::Kprobe { location } | Instrumentation::Function { location }) => {
            check_event_names(rule)?;
            check_location(location)
        }
        (Domain::Kernel, Instrumentation::UserProbe(probe)) => {
            check_event_names(rule)?;
            let (path, names) = match probe {
                UserProbe::Elf { path, symbol } => (path, vec![symbol]),
                UserProbe::Sdt { path, provider, name } => (path, vec![provider, name]),
            };
            check_text(path)?;
            if !Path::new(path).is_absolute() || path.contains(char::is_control) {
                return Err(ControlError::new(
                    Code::UserProbeLocation,
                    format!("{path}: the file of a probe is an absolute path without control characters"),
                ));
            }
            names.into_iter().try_for_each(|text| check_word(text))
        }
        (Domain::User, _) => {
            Err(ControlError::new(Code::NotSupported, "rules of the user domain are for markers of programs"))
        }
    }
}

/// Whether a session can be sent to a relay daemon.
pub(crate) fn check_network(name: &str, url: &str, format: Format) -> Checked {
    let invalid = |why: String| Err(ControlError::new(Code::Invalid, why));
    check_text(url)?;
    let Some(address) = RelayAddress::parse(url) else {
        return invalid(format!("{url} is no address of a relay daemon: net://HOST:CONTROL:DATA/PATH"));
    };
    if address.base_path().is_none() || url.contains(char::is_control) {
        return invalid(format!("{url}: the path at the relay daemon has no `..` and no control characters"));
    }
    if name.starts_with('.') {
        return invalid("relay daemons take no session whose name begins with a dot".to_owned());
    }
    if format != Format::Lttng {
        return invalid("what is sent to a relay daemon is in LTTng's format: say `lttng`".to_owned());
    }
    Ok(())
}

/// Whether a text is a name.
pub(crate) fn check_name(name: &str, code: Code) -> Checked {
    match name {
        "" => Err(code.into()),
        name if name.len() > NAME_MAX || name.chars().any(char::is_control) => Err(code.into()),
        _ => Ok(()),
    }
}

/// The name of a snapshot or of a place for some: the begin of a file's name.
pub(crate) fn check_snapshot_name(name: &str) -> Checked {
    check_name(name, Code::Invalid)?;
    if name.contains('/') || name.starts_with('.') {
        return Err(ControlError::new(
            Code::Invalid,
            "the name of a snapshot has no slash, and begins with no dot",
        ));
    }
    Ok(())
}

/// Whether the events of a probe have names that are short enough.
fn check_event_names(rule: &EventRule) -> Checked {
    let is_long = |(_, name): &(_, String)| name.len() > PROBE_NAME_MAX;
    match expand::probe_events(rule).into_iter().find(is_long) {
        Some((_, name)) => Err(ControlError::new(
            Code::EventName,
            format!("{name}: the name of a probe's event has at most {PROBE_NAME_MAX} characters"),
        )),
        None => Ok(()),
    }
}

/// The name of a probe's event.
pub(crate) fn check_probe_name(name: &str) -> Checked {
    let is_first = |byte: &u8| byte.is_ascii_alphabetic() || *byte == b'_';
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    if name.as_bytes().first().is_some_and(is_first) && name.bytes().all(is_part) {
        return Ok(());
    }
    Err(ControlError::new(
        Code::EventName,
        format!("{name}: the name of a probe has letters, digits and `_`, and begins with no digit"),
    ))
}

/// A place in the kernel: `SYMBOL`, `SYMBOL+OFFSET` or an address. More would be arguments, which read any
/// memory.
pub(crate) fn check_location(location: &str) -> Checked {
    let (symbol, offset) =
        location.split_once('+').map_or((location, None), |(symbol, offset)| (symbol, Some(offset)));
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'$');
    let is_symbol = symbol.len() <= NAME_MAX
        && symbol.bytes().all(is_part)
        && symbol.bytes().next().is_some_and(|first| !first.is_ascii_digit());
    if is_symbol && offset.is_none_or(is_number) || is_number(location) {
        return Ok(());
    }
    Err(ControlError::new(
        Code::Invalid,
        format!(
            "{location} is no place in the kernel: a symbol, a symbol and an offset (SYMBOL+0x10), or an address"
        ),
    ))
}

/// A number of 64 bits, in decimal or behind `0x` in hexadecimal digits.
fn is_number(text: &str) -> bool {
    let (digits, radix) = text.strip_prefix("0x").map_or((text, 10), |digits| (digits, 16));
    // A sign would be taken, too.
    digits.bytes().all(|byte| byte.is_ascii_hexdigit()) && u64::from_str_radix(digits, radix).is_ok()
}

/// Something that is one word of a probe.
fn check_word(text: &str) -> Checked {
    check_text(text)?;
    if text.contains(|one: char| one.is_whitespace() || one == '=' || one.is_control()) {
        return Err(ControlError::new(
            Code::Invalid,
            format!("{text}: a probe's place has no blanks and no `=`"),
        ));
    }
    Ok(())
}

/// Whether a text is an expression of LTTng's language, whatever the events are.
fn check_filter(text: &str) -> Checked {
    check_text(text)?;
    Filter::parse_expression(text, Dialect::Lttng).map(drop).map_err(|error| filter_refused(&error))
}

/// What is said of a filter, in one line.
pub(super) fn filter_refused(error: &FilterError) -> ControlError {
    ControlError::new(Code::Filter, format!("at byte {}: {}", error.span.start, error.kind))
}

fn check_text(text: &str) -> Checked {
    if text.is_empty() || text.len() > TEXT_MAX || text.contains('\0') {
        return Err(Code::Invalid.into());
    }
    Ok(())
}

/// A path that means the same in whichever directory this process is.
pub(crate) fn check_path(path: &Path) -> Checked {
    let is_plain = |part: Component<'_>| matches!(part, Component::RootDir | Component::Normal(_));
    if path.is_absolute() && path.components().all(is_plain) {
        return Ok(());
    }
    Err(ControlError::new(
        Code::Invalid,
        format!("{}: an output is an absolute path without `..`", path.display()),
    ))
}
