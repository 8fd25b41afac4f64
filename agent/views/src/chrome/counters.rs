//! Counters: records that have values to be drawn over time.

use super::lanes::Lane;
use super::out::Out;
use ftrace_event::{EventTable, FieldReader, Meaning, Printer, Value};
use report::json::string;
use report::text::signed;
use stdx::fast_map::FastMap;
use tracedat::reader::Record;

/// An event whose records are values of a counter.
struct Rule {
    system: &'static str,
    event: &'static str,
    /// The fields that have the values, and the units, by which viewers call them.
    values: &'static [(&'static str, &'static str)],
    /// The fields that tell the counter from others of the event, and what is before them in its name.
    of: &'static [(&'static str, &'static str)],
}

const RULES: [Rule; 8] = [
    Rule { system: "power", event: "cpu_frequency", values: &[("state", "kHz")], of: &[("cpu_id", "CPU")] },
    Rule {
        system: "power",
        event: "cpu_frequency_limits",
        values: &[("min_freq", "min kHz"), ("max_freq", "max kHz")],
        of: &[("cpu_id", "CPU")],
    },
    Rule { system: "power", event: "cpu_idle", values: &[("state", "state")], of: &[("cpu_id", "CPU")] },
    Rule { system: "power", event: "clock_set_rate", values: &[("state", "Hz")], of: &[("name", "")] },
    Rule { system: "power", event: "gpu_frequency", values: &[("state", "kHz")], of: &[("gpu_id", "GPU")] },
    Rule {
        system: "thermal",
        event: "thermal_temperature",
        values: &[("temp", "m°C")],
        of: &[("thermal_zone", "")],
    },
    Rule {
        system: "kmem",
        event: "rss_stat",
        values: &[("size", "bytes")],
        of: &[("mm_id", "mm"), ("member", "member")],
    },
    Rule {
        system: "gpu_mem",
        event: "gpu_mem_total",
        values: &[("size", "bytes")],
        of: &[("gpu_id", "GPU"), ("pid", "pid")],
    },
];

/// How the values of an event are read.
struct Plan {
    name: &'static str,
    values: Vec<(&'static str, FieldReader)>,
    of: Vec<(&'static str, FieldReader)>,
}

/// The counters of a recording.
pub(super) struct Counters {
    plans: FastMap<u16, Plan>,
}

impl Counters {
    /// For these events.
    pub(super) fn of(events: &EventTable) -> Self {
        let plans = events.iter().filter_map(|printer| Some((printer.format().id, Plan::of(printer)?)));
        Self { plans: plans.collect() }
    }

    /// Writes the values of a record, if it has any.
    pub(super) fn write(&self, record: &Record<'_>, out: &mut Out) {
        let Some(plan) = record.event_id().and_then(|id| self.plans.get(&id)) else { return };
        let mut name = plan.name.as_bytes().to_vec();
        for (label, field) in &plan.of {
            name.push(b' ');
            name.extend_from_slice(label.as_bytes());
            match field.value(record.data) {
                Ok(Value::Text(text)) => name.extend_from_slice(text),
                Ok(value) => {
                    name.push(b' ');
                    signed(&mut name, number(&value).unwrap_or(0));
                }
                Err(_) => return,
            }
        }
        let lane = Lane::of_counters();
        out.event(b'C', lane, record.timestamp).category("counter").name(&name).args(|args| {
            let mut is_first = true;
            for (unit, field) in &plan.values {
                let Some(value) = field.value(record.data).ok().as_ref().and_then(number) else { continue };
                if !std::mem::take(&mut is_first) {
                    args.push(b',');
                }
                string(args, unit.as_bytes());
                args.push(b':');
                signed(args, value);
            }
        });
    }
}

impl Plan {
    fn of(printer: &Printer) -> Option<Self> {
        let rule =
            RULES.iter().find(|rule| rule.system == printer.system() && rule.event == printer.name())?;
        let value =
            |(field, unit): &(&str, &'static str)| Some((*unit, printer.typed(field, Meaning::Number)?));
        let of = |(field, label): &(&str, &'static str)| {
            let typed = |wanted| printer.typed(field, wanted);
            Some((*label, typed(Meaning::Number).or_else(|| typed(Meaning::Text))?))
        };
        Some(Self {
            name: rule.event,
            values: rule.values.iter().map(value).collect::<Option<_>>()?,
            of: rule.of.iter().map(of).collect::<Option<_>>()?,
        })
    }
}

/// A value as it is drawn: an idle state that is none, all ones in the record, is -1.
fn number(value: &Value<'_>) -> Option<i64> {
    match value {
        Value::Signed(value) => Some(*value),
        Value::Unsigned(value) if *value == u64::from(u32::MAX) => Some(-1),
        value => i64::try_from(value.address()?).ok(),
    }
}
