//! Which metrics there are.

use super::Snapshot;
use crate::budget::BudgetState;
use api::usage::{ChannelUsage, CpuUsage};
use api::{Trigger, Usage};
use store::{Cause, UploadCounters};

/// What a metric is (OpenMetrics 1.0, section "Metric Types").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Counter,
    Gauge,
    Info,
}

impl Kind {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Info => "info",
        }
    }
}

/// The value of a series.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Value {
    Whole(u64),
    Real(f64),
}

impl From<bool> for Value {
    fn from(is_so: bool) -> Self {
        Self::Whole(is_so.into())
    }
}

/// A series: its labels, and its value.
pub(super) type Sample = (Vec<(String, String)>, Value);

/// A metric.
pub(super) struct Metric {
    /// Its name without unit and suffix.
    pub(super) name: &'static str,
    pub(super) unit: Option<&'static str>,
    pub(super) kind: Kind,
    pub(super) labels: &'static [&'static str],
    pub(super) help: &'static str,
    /// Its series. What is not known has none.
    pub(super) samples: fn(&Snapshot) -> Vec<Sample>,
}

impl Metric {
    /// Its name as descriptions have it.
    pub(super) fn base_name(&self) -> String {
        match self.unit {
            Some(unit) => format!("{}_{unit}", self.name),
            None => self.name.to_owned(),
        }
    }

    /// The name of its series.
    pub(super) fn full_name(&self) -> String {
        let suffix = match self.kind {
            Kind::Counter => "_total",
            Kind::Gauge => "",
            Kind::Info => "_info",
        };
        self.base_name() + suffix
    }
}

fn labelled<const N: usize>(labels: [(&str, &str); N], value: Value) -> Sample {
    (labels.map(|(name, value)| (name.to_owned(), value.to_owned())).into(), value)
}

/// A series of each session.
fn of_sessions(snapshot: &Snapshot, value: impl Fn(&Usage) -> Option<Value>) -> Vec<Sample> {
    let of = |usage: &Usage| {
        let uid = usage.uid.to_string();
        Some(labelled([("session", &usage.session), ("uid", &uid)], value(usage)?))
    };
    snapshot.sessions.iter().filter_map(of).collect()
}

/// A series of each CPU of each channel.
fn of_cpus(snapshot: &Snapshot, value: impl Fn(&ChannelUsage, &CpuUsage) -> Option<u64>) -> Vec<Sample> {
    let mut all = Vec::new();
    for usage in &snapshot.sessions {
        let uid = usage.uid.to_string();
        for channel in &usage.channels {
            for cpu in &channel.cpus {
                let Some(value) = value(channel, cpu) else { continue };
                let number = cpu.cpu.to_string();
                let labels = [
                    ("session", &*usage.session),
                    ("uid", &uid),
                    ("channel", &channel.channel),
                    ("cpu", &number),
                ];
                all.push(labelled(labels, Value::Whole(value)));
            }
        }
    }
    all
}

fn lost_by_cpu(snapshot: &Snapshot) -> Vec<Sample> {
    let mut all = Vec::new();
    for usage in &snapshot.sessions {
        let uid = usage.uid.to_string();
        for channel in &usage.channels {
            for cpu in &channel.cpus {
                let number = cpu.cpu.to_string();
                for (cause, count) in cpu.counts.lost.causes() {
                    let labels = [
                        ("session", &*usage.session),
                        ("uid", &uid),
                        ("channel", &channel.channel),
                        ("cpu", &number),
                        ("cause", cause),
                    ];
                    all.push(labelled(labels, Value::Whole(count)));
                }
            }
        }
    }
    all
}

/// Events of which none was lost have no series: there may be thousands.
fn lost_by_event(snapshot: &Snapshot) -> Vec<Sample> {
    let mut all = Vec::new();
    for usage in &snapshot.sessions {
        let uid = usage.uid.to_string();
        for channel in &usage.channels {
            for event in channel.events.iter().flatten() {
                for (cause, count) in event.lost.causes().into_iter().filter(|(_, count)| *count != 0) {
                    let labels = [
                        ("session", &*usage.session),
                        ("uid", &uid),
                        ("channel", &channel.channel),
                        ("event", &event.name),
                        ("cause", cause),
                    ];
                    all.push(labelled(labels, Value::Whole(count)));
                }
            }
        }
    }
    all
}

fn of_triggers(snapshot: &Snapshot, value: impl Fn(&Trigger) -> u64) -> Vec<Sample> {
    let of = |trigger: &Trigger| {
        let uid = trigger.uid.to_string();
        labelled([("trigger", &trigger.name), ("uid", &uid)], Value::Whole(value(trigger)))
    };
    snapshot.triggers.iter().map(of).collect()
}

/// A series of the process, and one of its programs.
fn of_budget(snapshot: &Snapshot, values: impl Fn(&BudgetState) -> [Value; 2]) -> Vec<Sample> {
    let of = |budget: &BudgetState| {
        let [process, programs] = values(budget);
        [labelled([("of", "process")], process), labelled([("of", "programs")], programs)]
    };
    snapshot.budget.iter().flat_map(of).collect()
}

/// A series where archives are sent.
fn of_uploads(snapshot: &Snapshot, value: impl Fn(&UploadCounters) -> u64) -> Vec<Sample> {
    let of = snapshot.archives.as_ref().filter(|of| of.uploads);
    alone(of.map(|of| Value::Whole(value(&of.counters))))
}

fn upload_failures(snapshot: &Snapshot) -> Vec<Sample> {
    let Some(of) = snapshot.archives.as_ref().filter(|of| of.uploads) else { return Vec::new() };
    let count = |cause: &Cause| of.counters.failures.get(cause).copied().unwrap_or_default();
    Cause::ALL.iter().map(|cause| labelled([("cause", cause.name())], Value::Whole(count(cause)))).collect()
}

/// A series where there are limits of what stays here.
fn of_retention(snapshot: &Snapshot, value: impl Fn(&UploadCounters) -> u64) -> Vec<Sample> {
    let of = snapshot.archives.as_ref().filter(|of| of.retains);
    alone(of.map(|of| Value::Whole(value(&of.counters))))
}

fn alone(value: Option<Value>) -> Vec<Sample> {
    value.map(|value| labelled([], value)).into_iter().collect()
}

const SESSION: &[&str] = &["session", "uid"];
const CPU: &[&str] = &["session", "uid", "channel", "cpu"];
const TRIGGER: &[&str] = &["trigger", "uid"];

/// All metrics, in the order in which they are told.
pub(super) const METRICS: &[Metric] = &[
    Metric {
        name: "tracer_agent_build",
        unit: None,
        kind: Kind::Info,
        labels: &["version"],
        help: "The version of the daemon.",
        samples: |_| vec![labelled([("version", env!("CARGO_PKG_VERSION"))], Value::Whole(1))],
    },
    Metric {
        name: "tracer_agent_host",
        unit: None,
        kind: Kind::Info,
        labels: &["host", "..."],
        help: "The host, and the labels that the configuration gives it.",
        samples: |snapshot| {
            let labels = std::iter::once(("host".to_owned(), snapshot.host.clone()));
            vec![(labels.chain(snapshot.labels.clone()).collect(), Value::Whole(1))]
        },
    },
    Metric {
        name: "tracer_agent_ready",
        unit: None,
        kind: Kind::Gauge,
        labels: &[],
        help: "1 if the daemon calls itself ready: all configured sessions record, their data are younger than their \
               bound, and losses are below theirs.",
        samples: |snapshot| alone(snapshot.is_ready.map(Value::from)),
    },
    Metric {
        name: "tracer_agent_session_active",
        unit: None,
        kind: Kind::Gauge,
        labels: SESSION,
        help: "1 if the session is started.",
        samples: |snapshot| of_sessions(snapshot, |usage| Some(usage.active.into())),
    },
    Metric {
        name: "tracer_agent_events",
        unit: None,
        kind: Kind::Counter,
        labels: CPU,
        help: "Events that were written to rings, those included that were overwritten since.",
        samples: |snapshot| of_cpus(snapshot, |_, cpu| Some(cpu.counts.events)),
    },
    Metric {
        name: "tracer_agent_lost_events",
        unit: None,
        kind: Kind::Counter,
        labels: &["session", "uid", "channel", "cpu", "cause"],
        help: "Events that were not recorded, by cause as the ledgers of files name them.",
        samples: lost_by_cpu,
    },
    Metric {
        name: "tracer_agent_event_lost",
        unit: None,
        kind: Kind::Counter,
        labels: &["session", "uid", "channel", "event", "cause"],
        help: "Events of each kind that were not recorded, in the recording that goes on; those of which none was \
               lost have no series.",
        samples: lost_by_event,
    },
    Metric {
        name: "tracer_agent_overwritten_events",
        unit: None,
        kind: Kind::Counter,
        labels: CPU,
        help: "Events in pages that newer events were written over.",
        samples: |snapshot| {
            of_cpus(snapshot, |channel, cpu| channel.overwrites.then_some(cpu.counts.overwritten_events))
        },
    },
    Metric {
        name: "tracer_agent_stored",
        unit: Some("bytes"),
        kind: Kind::Counter,
        labels: CPU,
        help: "Bytes of pages that left the rings to be stored.",
        samples: |snapshot| of_cpus(snapshot, |_, cpu| cpu.counts.stored_bytes),
    },
    Metric {
        name: "tracer_agent_ring_held",
        unit: Some("bytes"),
        kind: Kind::Gauge,
        labels: CPU,
        help: "Bytes of complete pages in the rings of the CPU.",
        samples: |snapshot| of_cpus(snapshot, |_, cpu| cpu.rings.map(|rings| rings.held_bytes)),
    },
    Metric {
        name: "tracer_agent_ring_room",
        unit: Some("bytes"),
        kind: Kind::Gauge,
        labels: CPU,
        help: "Bytes that there is room for in the rings of the CPU.",
        samples: |snapshot| of_cpus(snapshot, |_, cpu| cpu.rings.map(|rings| rings.room_bytes)),
    },
    Metric {
        name: "tracer_agent_data_age",
        unit: Some("seconds"),
        kind: Kind::Gauge,
        labels: SESSION,
        help: "For how long complete pages have been in the rings while nothing was stored; 0 while all is stored.",
        samples: |snapshot| {
            let age = |usage: &Usage| snapshot.ages.get(&(usage.uid, usage.session.clone())).copied();
            of_sessions(snapshot, |usage| age(usage).map(Value::Real))
        },
    },
    Metric {
        name: "tracer_agent_trigger_fired",
        unit: None,
        kind: Kind::Counter,
        labels: TRIGGER,
        help: "How often the trigger has fired.",
        samples: |snapshot| of_triggers(snapshot, |trigger| trigger.fired),
    },
    Metric {
        name: "tracer_agent_trigger_missed",
        unit: None,
        kind: Kind::Counter,
        labels: TRIGGER,
        help: "How often the rule of the trigger has matched without that the daemon could be told.",
        samples: |snapshot| of_triggers(snapshot, |trigger| trigger.missed),
    },
    Metric {
        name: "tracer_agent_trigger_action_failures",
        unit: None,
        kind: Kind::Counter,
        labels: TRIGGER,
        help: "How often an action of the trigger has failed.",
        samples: |snapshot| {
            of_triggers(snapshot, |trigger| trigger.actions.iter().map(|action| action.failed).sum())
        },
    },
    Metric {
        name: "tracer_agent_config_reloads",
        unit: None,
        kind: Kind::Counter,
        labels: &[],
        help: "How often the configuration was read again.",
        samples: |snapshot| alone(snapshot.configuration.as_ref().map(|of| Value::Whole(of.reloads))),
    },
    Metric {
        name: "tracer_agent_config_refused",
        unit: None,
        kind: Kind::Counter,
        labels: &[],
        help: "How often a configuration had mistakes, and the one before stayed in force.",
        samples: |snapshot| alone(snapshot.configuration.as_ref().map(|of| Value::Whole(of.refused))),
    },
    Metric {
        name: "tracer_agent_config_failures",
        unit: None,
        kind: Kind::Gauge,
        labels: &[],
        help: "How many mistakes the last configuration has, and how much of the one in force could not be done.",
        samples: |snapshot| {
            let failures =
                |of: &api::requests::ConfigurationState| of.last.mistakes.len() + of.last.failures.len();
            alone(snapshot.configuration.as_ref().map(|of| Value::Whole(failures(of) as u64)))
        },
    },
    Metric {
        name: "tracer_agent_config_read_timestamp",
        unit: Some("seconds"),
        kind: Kind::Gauge,
        labels: &[],
        help: "When the configuration that is in force was read, since 1970.",
        samples: |snapshot| alone(snapshot.configuration.as_ref().map(|of| Value::Whole(of.read_at))),
    },
    Metric {
        name: "tracer_agent_upload_queued_archives",
        unit: None,
        kind: Kind::Gauge,
        labels: &[],
        help: "Archives that are not in the store yet.",
        samples: |snapshot| of_uploads(snapshot, |of| of.queued_archives),
    },
    Metric {
        name: "tracer_agent_upload_queued",
        unit: Some("bytes"),
        kind: Kind::Gauge,
        labels: &[],
        help: "Bytes of archives that are not in the store yet.",
        samples: |snapshot| of_uploads(snapshot, |of| of.queued_bytes),
    },
    Metric {
        name: "tracer_agent_upload_oldest_unsent",
        unit: Some("seconds"),
        kind: Kind::Gauge,
        labels: &[],
        help: "How long ago the oldest archive has ended that is not in the store yet; 0 if all are.",
        samples: |snapshot| of_uploads(snapshot, |of| of.oldest_unsent_seconds.unwrap_or_default()),
    },
    Metric {
        name: "tracer_agent_upload_stored_archives",
        unit: None,
        kind: Kind::Counter,
        labels: &[],
        help: "Archives that are in the store, each verified.",
        samples: |snapshot| of_uploads(snapshot, |of| of.stored_archives),
    },
    Metric {
        name: "tracer_agent_upload_stored",
        unit: Some("bytes"),
        kind: Kind::Counter,
        labels: &[],
        help: "Bytes of archives that are in the store.",
        samples: |snapshot| of_uploads(snapshot, |of| of.stored_bytes),
    },
    Metric {
        name: "tracer_agent_upload_sent",
        unit: Some("bytes"),
        kind: Kind::Counter,
        labels: &[],
        help: "Bytes of archives that the store has taken; some of them more than once.",
        samples: |snapshot| of_uploads(snapshot, |of| of.bytes_sent),
    },
    Metric {
        name: "tracer_agent_upload_failures",
        unit: None,
        kind: Kind::Counter,
        labels: &["cause"],
        help: "Attempts to send an archive that have failed, by cause.",
        samples: upload_failures,
    },
    Metric {
        name: "tracer_agent_upload_retries",
        unit: None,
        kind: Kind::Counter,
        labels: &[],
        help: "Attempts after the first one of an archive.",
        samples: |snapshot| of_uploads(snapshot, |of| of.retries),
    },
    Metric {
        name: "tracer_agent_upload_lost_archives",
        unit: None,
        kind: Kind::Counter,
        labels: &[],
        help: "Archives that somebody removed before they were stored.",
        samples: |snapshot| of_uploads(snapshot, |of| of.lost_archives),
    },
    Metric {
        name: "tracer_agent_archives_deleted",
        unit: None,
        kind: Kind::Counter,
        labels: &[],
        help: "Stored archives that were deleted on this machine; without a store, all that were.",
        samples: |snapshot| of_retention(snapshot, |of| of.deleted_archives),
    },
    Metric {
        name: "tracer_agent_archives_deleted",
        unit: Some("bytes"),
        kind: Kind::Counter,
        labels: &[],
        help: "Their bytes.",
        samples: |snapshot| of_retention(snapshot, |of| of.deleted_bytes),
    },
    Metric {
        name: "tracer_agent_archives_deleted_unsent",
        unit: None,
        kind: Kind::Counter,
        labels: &[],
        help: "Archives that were deleted before they were stored, because the disk was too full.",
        samples: |snapshot| of_retention(snapshot, |of| of.deleted_unsent_archives),
    },
    Metric {
        name: "tracer_agent_archives_deleted_unsent",
        unit: Some("bytes"),
        kind: Kind::Counter,
        labels: &[],
        help: "Their bytes.",
        samples: |snapshot| of_retention(snapshot, |of| of.deleted_unsent_bytes),
    },
    Metric {
        name: "tracer_agent_program_cpu",
        unit: Some("ratio"),
        kind: Kind::Gauge,
        labels: &[],
        help: "The share of one CPU that the daemon's programs in the kernel took, in the last window in which the \
               kernel was asked to measure it.",
        samples: |snapshot| alone(snapshot.programs.map(|of| Value::Real(of.cpu_ratio))),
    },
    Metric {
        name: "tracer_agent_program_run_rate",
        unit: None,
        kind: Kind::Gauge,
        labels: &[],
        help: "How often in a second the daemon's programs in the kernel ran, in the same window.",
        samples: |snapshot| alone(snapshot.programs.map(|of| Value::Real(of.runs_per_second))),
    },
    Metric {
        name: "tracer_agent_programs",
        unit: None,
        kind: Kind::Gauge,
        labels: &[],
        help: "How many programs the daemon has in the kernel.",
        samples: |snapshot| alone(snapshot.programs.map(|of| Value::Whole(of.programs))),
    },
    Metric {
        name: "tracer_agent_budget_cpu",
        unit: Some("ratio"),
        kind: Kind::Gauge,
        labels: &[],
        help: "The share of one CPU that the daemon and its programs may take.",
        samples: |snapshot| alone(snapshot.budget.as_ref().map(|of| Value::Real(of.limit))),
    },
    Metric {
        name: "tracer_agent_budget_cpu_used",
        unit: Some("ratio"),
        kind: Kind::Gauge,
        labels: &["of"],
        help: "The share of one CPU that the daemon's process and its programs took in the last second. Far below the                budget, programs are measured in one second of ten.",
        samples: |snapshot| {
            let per_second = |taken: f64, of: &BudgetState| Value::Real(taken / of.last.seconds.max(1e-3));
            of_budget(snapshot, |of| [per_second(of.last.process, of), per_second(of.last.programs, of)])
        },
    },
    Metric {
        name: "tracer_agent_budget_cpu_time",
        unit: Some("seconds"),
        kind: Kind::Counter,
        labels: &["of"],
        help: "CPU time of the daemon's process and of its programs, since it keeps to a budget.",
        samples: |snapshot| {
            of_budget(snapshot, |of| [Value::Real(of.taken.process), Value::Real(of.taken.programs)])
        },
    },
    Metric {
        name: "tracer_agent_throttle_level",
        unit: None,
        kind: Kind::Gauge,
        labels: &[],
        help: "How many steps are taken to keep to the budget; 0 while all is recorded.",
        samples: |snapshot| alone(snapshot.budget.as_ref().map(|of| Value::Whole(of.level))),
    },
    Metric {
        name: "tracer_agent_throttle_recorded",
        unit: Some("ratio"),
        kind: Kind::Gauge,
        labels: &[],
        help: "How much of the last second was recorded; 1 but where the last steps are taken.",
        samples: |snapshot| alone(snapshot.budget.as_ref().map(|of| Value::Real(of.recorded.min(1.0)))),
    },
    Metric {
        name: "tracer_agent_throttle_steps",
        unit: None,
        kind: Kind::Counter,
        labels: &["step", "way"],
        help: "How often each step was taken to keep to the budget, and taken back.",
        samples: |snapshot| {
            let steps = snapshot.budget.iter().flat_map(|of| &of.steps);
            let of = |((step, way), count): (&(&str, &str), &u64)| {
                labelled([("step", step), ("way", way)], Value::Whole(*count))
            };
            steps.map(of).collect()
        },
    },
    Metric {
        name: "tracer_agent_state_disk_free",
        unit: Some("bytes"),
        kind: Kind::Gauge,
        labels: &[],
        help: "Bytes that are free where the daemon's state is.",
        samples: |snapshot| alone(snapshot.disk_free.map(Value::Whole)),
    },
    Metric {
        name: "process_cpu",
        unit: Some("seconds"),
        kind: Kind::Counter,
        labels: &[],
        help: "Time that the daemon's threads have run.",
        samples: |snapshot| alone(snapshot.process.map(|of| Value::Real(of.cpu_seconds))),
    },
    Metric {
        name: "process_resident_memory",
        unit: Some("bytes"),
        kind: Kind::Gauge,
        labels: &[],
        help: "Memory of the daemon, with the rings as far as they were written to.",
        samples: |snapshot| alone(snapshot.process.map(|of| Value::Whole(of.resident_bytes))),
    },
    Metric {
        name: "process_open_fds",
        unit: None,
        kind: Kind::Gauge,
        labels: &[],
        help: "Descriptors that the daemon has open.",
        samples: |snapshot| alone(snapshot.process.map(|of| Value::Whole(of.descriptors))),
    },
    Metric {
        name: "process_threads",
        unit: None,
        kind: Kind::Gauge,
        labels: &[],
        help: "Threads of the daemon.",
        samples: |snapshot| alone(snapshot.process.map(|of| Value::Whole(of.threads))),
    },
    Metric {
        name: "process_start_time",
        unit: Some("seconds"),
        kind: Kind::Gauge,
        labels: &[],
        help: "When the daemon was started, since 1970.",
        samples: |snapshot| alone(snapshot.process.map(|of| Value::Real(of.started))),
    },
];
