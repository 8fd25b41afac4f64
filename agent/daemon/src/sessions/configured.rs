//! Sessions that the daemon's configuration says: what they are, and how clients are told of them.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::model::{Checked, Model};
use crate::config::{SessionConfig, SessionKind};
use api::{
    Buffers, Channel, ChannelAttributes, Code, ControlError, Domain, EventLoss, EventRule, Instrumentation,
    NewSession, OutputMethod, Schedule, SessionMode, UserProbe,
};
use spec::{ChannelSpec, RecordingSpec, RuleSpec, What};

/// Microseconds between two looks at how full the rings of a configured session are.
const MONITOR_US: u64 = 1_000_000;

/// A session of the daemon's configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Configured {
    /// What the configuration says.
    pub(crate) config: SessionConfig,
    /// The recording that it is on this machine.
    pub(crate) spec: RecordingSpec,
}

impl Model {
    /// A session of root that the configuration says, on a machine with so many CPUs, at a moment in seconds
    /// since 1970. Its files go to `output`.
    pub(crate) fn of_config(
        name: &str,
        config: &SessionConfig,
        output: &Path,
        (cpus, now): (u64, u64),
    ) -> Checked<Self> {
        let output = output.to_owned();
        let (mode, snapshot_output) = match config.mode {
            SessionKind::Files => (SessionMode::Local { output: Some(output) }, None),
            SessionKind::Snapshot => (SessionMode::Snapshot, Some(output)),
        };
        let name = Some(name.to_owned());
        let mut model = Self::create(
            NewSession { name, mode, snapshot_output, format: config.format, state_by_rule: false },
            0,
            now,
        )?;
        model.configure(config, cpus);
        Ok(model)
    }

    /// Lets it be what the configuration says.
    pub(crate) fn configure(&mut self, config: &SessionConfig, cpus: u64) {
        let mut spec = config.spec(cpus);
        name_channels(&mut spec);
        let schedules = [
            config.rotate.period.map(|period| Schedule::PeriodUs(period.nanoseconds() / 1000)),
            config.rotate.size.map(|size| Schedule::SizeBytes(size.0)),
        ];
        self.session.schedules = schedules.into_iter().flatten().collect();
        let lost = |name: &str| {
            let before = self.channels().find(|(_, channel)| channel.name == name);
            before.map_or((0, 0), |(_, channel)| (channel.discarded, channel.lost_packets))
        };
        let channels: Vec<Channel> =
            spec.channels.iter().map(|channel| told_channel(channel, lost(&channel.name))).collect();
        self.domain_mut(Domain::Kernel).channels = channels;
        self.configured = Some(Box::new(Configured { config: config.clone(), spec }));
    }

    /// What the configuration says of it, if it is one of its sessions.
    pub(crate) fn configured(&self) -> Option<&Configured> {
        self.configured.as_deref()
    }

    /// Refuses what only the configuration may change.
    pub(crate) fn check_own(&self) -> Checked {
        if self.configured.is_none() {
            return Ok(());
        }
        Err(ControlError::new(
            Code::NotSupported,
            format!(
                "the daemon's configuration says what the session {} is and records: change it there, and reload it",
                self.name()
            ),
        ))
    }
}

/// Gives channels without a name one that no other has.
fn name_channels(spec: &mut RecordingSpec) {
    let taken: Vec<String> = spec.channels.iter().map(|channel| channel.name.clone()).collect();
    for channel in spec.channels.iter_mut().filter(|channel| channel.name.is_empty()) {
        let free =
            (0..=taken.len()).map(|number| format!("channel{number}")).find(|name| !taken.contains(name));
        channel.name = free.unwrap_or_default();
    }
}

/// A channel of the configuration as clients are told of it: its pages are the sub-buffers.
fn told_channel(spec: &ChannelSpec, (discarded, lost_packets): (u64, u64)) -> Channel {
    let page = agent_ebpf::PAGE_SIZE as u64;
    let loss = if spec.overwrite { EventLoss::Overwrite } else { EventLoss::Discard };
    Channel {
        name: spec.name.clone(),
        enabled: true,
        attributes: ChannelAttributes {
            event_loss: Some(loss),
            subbuf_size: Some(page),
            num_subbuf: Some(spec.ring_bytes.div_ceil(page).max(2)),
            switch_timer_us: Some(spec.switch_ns / 1000),
            read_timer_us: Some(spec.poll_ns.unwrap_or_default() / 1000),
            monitor_timer_us: Some(MONITOR_US),
            blocking_timeout_us: Some(0),
            output: Some(OutputMethod::Mmap),
            tracefile_size: Some(spec.tracefile_bytes.unwrap_or_default()),
            tracefile_count: Some(spec.tracefile_count.unwrap_or_default()),
            buffers: Some(Buffers::Global),
        },
        discarded,
        lost_packets,
        contexts: spec.contexts.iter().map(ToString::to_string).collect(),
        rules: spec.rules.iter().map(told_rule).collect(),
    }
}

/// A rule of the configuration as clients are told of it.
fn told_rule(rule: &RuleSpec) -> EventRule {
    let text = rule.what.text();
    let probe = || match text.split_once(':') {
        Some((path, symbol)) => UserProbe::Elf { path: path.to_owned(), symbol: symbol.to_owned() },
        None => UserProbe::Elf { path: text.clone(), symbol: String::new() },
    };
    let instrumentation = match &rule.what {
        What::Events(_) | What::Exclude(_) | What::Usdt(_) => Instrumentation::Tracepoint,
        What::Kprobe(_) => Instrumentation::Kprobe { location: text.clone() },
        What::Uprobe(_) | What::Uretprobe(_) => Instrumentation::UserProbe(probe()),
        What::Kretprobe(_)
        | What::Fentry(_)
        | What::Fexit(_)
        | What::Function(_)
        | What::FunctionGraph(_) => Instrumentation::Function { location: text.clone() },
    };
    EventRule {
        name: if matches!(rule.what, What::Exclude(_)) { format!("!{text}") } else { text },
        instrumentation,
        enabled: true,
        filter: rule.filter.clone(),
        exclusions: Vec::new(),
        log_level: None,
    }
}
