//! Sessions that are always there.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::check::{Way, Wrong};
use crate::sessions::check_name;
use api::{Code, Format};
use capture::SetOptions;
use spec::TraceClock;
use spec::{ChannelSpec, FileSpec, Kallsyms, RecordingSpec, ScopeSpec, text};
use stdx::quantity::{Bytes, Period};
use tracedat::Compression;

/// The fewest bytes of a CPU's ring: two pages.
const RING_MIN: u64 = 8 << 10;

/// What a session does with its events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub enum SessionKind {
    /// Writes them to files.
    #[default]
    Files,
    /// Keeps the newest in memory until a snapshot is taken: a flight recorder.
    Snapshot,
}

/// A session that the daemon records from its start on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct SessionConfig {
    /// Whether it is there at all.
    pub enabled: bool,
    /// What becomes of its events.
    pub mode: SessionKind,
    /// The directory of its files or snapshots, absolute; `sessions/NAME` in that of the daemon's state where
    /// nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schema(value_type = Option<String>))]
    pub output: Option<PathBuf>,
    /// What is written.
    pub format: Format,
    /// When a file is closed and the next one begun.
    pub rotate: RotateConfig,
    /// How much a flight recorder keeps.
    pub keep: KeepConfig,
    /// Whether its files go to the store of `upload`, if there is one.
    pub upload: bool,
    /// The buffers, and what is recorded into each.
    pub channels: Vec<ChannelSpec>,
    /// Whose events are recorded.
    pub scope: ScopeSpec,
    /// `none`, `zstd`, `zstd:LEVEL`, or `auto`: next to no effort while a ring is more than half full.
    #[serde(with = "text")]
    #[cfg_attr(test, schema(value_type = String, default = "zstd"))]
    pub compression: Compression,
    /// The clock of the time stamps: `mono`, `boot` or `tai`.
    #[serde(with = "text")]
    #[cfg_attr(test, schema(value_type = String, default = "mono"))]
    pub clock: TraceClock,
    /// When the kernel's symbols are stored.
    pub kallsyms: Kallsyms,
    /// Whether it records less while the daemon takes more than its `budget`.
    pub throttled: bool,
}

/// When a file is closed and the next one begun.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct RotateConfig {
    /// After so long.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schema(value_type = Option<String>))]
    pub period: Option<Period>,
    /// When it has so many bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schema(value_type = Option<String>))]
    pub size: Option<Bytes>,
}

/// How much a flight recorder keeps of the newest events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct KeepConfig {
    /// Memory of all CPUs together, shared by the channels that do not say `ring_bytes`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schema(value_type = Option<String>))]
    pub size: Option<Bytes>,
    /// Older events are left out of snapshots.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schema(value_type = Option<String>))]
    pub time: Option<Period>,
}

impl Default for SessionConfig {
    fn default() -> Self {
        let FileSpec { compression, clock, kallsyms, .. } = FileSpec::default();
        Self {
            enabled: true,
            mode: SessionKind::default(),
            output: None,
            format: Format::default(),
            rotate: RotateConfig::default(),
            keep: KeepConfig::default(),
            upload: true,
            channels: Vec::new(),
            scope: ScopeSpec::default(),
            compression,
            clock,
            kallsyms,
            throttled: true,
        }
    }
}

impl SessionConfig {
    /// The recording that it says, on a machine with so many CPUs. Where it goes and what is written is not
    /// in it.
    pub fn spec(&self, cpus: u64) -> RecordingSpec {
        let mut channels = self.channels.clone();
        if self.mode == SessionKind::Snapshot {
            let unsaid = ChannelSpec::default().ring_bytes;
            let sharing = channels.iter().filter(|channel| channel.ring_bytes == unsaid).count() as u64;
            let share = self.keep.size.map(|Bytes(all)| all / cpus.max(1) / sharing.max(1));
            for channel in &mut channels {
                channel.overwrite = true;
                if let Some(share) = share.filter(|_| channel.ring_bytes == unsaid) {
                    channel.ring_bytes = share.max(RING_MIN);
                }
            }
        }
        let file = FileSpec {
            compression: self.compression,
            clock: self.clock,
            kallsyms: self.kallsyms,
            date: true,
            ..FileSpec::default()
        };
        RecordingSpec { channels, scope: self.scope.clone(), file, ..RecordingSpec::default() }
    }

    /// Bytes of its rings on a machine with so many CPUs.
    pub(crate) fn rings_bytes(&self, cpus: u64) -> u64 {
        let page = agent_ebpf::PAGE_SIZE as u64;
        let of = |channel: &ChannelSpec| {
            let count = usize::try_from(cpus).unwrap_or(usize::MAX);
            let sets = channel.own_rings.map_or(1, |of| SetOptions::new(of, count, "").count.into());
            let ring = channel.ring_bytes.div_ceil(page).max(2).saturating_mul(page);
            ring.saturating_mul(cpus).saturating_mul(sets)
        };
        self.spec(cpus).channels.iter().map(of).fold(0, u64::saturating_add)
    }

    /// Looks for what contradicts itself.
    pub(super) fn check(&self, at: &Way, name: &str, wrong: &mut Vec<Wrong>) {
        let mut say = |way: Way, why: &str| wrong.push((way, why.to_owned()));
        if name.contains('/') || check_name(name, Code::SessionName).is_err() {
            say(
                at.clone(),
                "the name of a session has 1 to 254 characters, none of them a slash or a control character",
            );
        }
        if self.channels.is_empty() {
            say(at.clone(), "it records nothing: it has no `channels`");
        }
        if self.output.as_ref().is_some_and(|path| !path.is_absolute()) {
            say(at.clone().key("output"), "the directory of a session is an absolute path");
        }
        match self.mode {
            SessionKind::Snapshot if self.rotate != RotateConfig::default() => {
                say(
                    at.clone().key("rotate"),
                    "a session of the mode snapshot stores nothing that could be rotated",
                );
            }
            SessionKind::Files if self.keep != KeepConfig::default() => {
                say(at.clone().key("keep"), "only a session of the mode snapshot keeps the newest events");
            }
            _ => {}
        }
        for (number, channel) in self.channels.iter().enumerate() {
            if channel.snapshot.is_some() {
                let field = spec::Field::OfChannel { channel: number, name: "snapshot" };
                say(at.clone().field(&field), "what asks for snapshots of a session is a trigger");
            }
        }
        if let Err(problem) = self.spec(1).check() {
            say(at.clone().field(&problem.at), problem.why);
        }
    }
}
