//! The loss ledger: how many events our recorder recorded and lost.
//!
//! It is a JSON object in option [`LEDGER`](super::OptionId::LEDGER), a text that ends with NUL. Unknown
//! members are ignored.

use crate::json::Value;

/// A ledger, as far as readers need it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    /// Set for a recording that did not come to its end, with what ended it: then its rings were not emptied,
    /// and what was in them is missing.
    pub cut_short: Option<CutShort>,
    /// By CPU.
    pub cpus: Vec<LedgerCpu>,
}

/// What kept a recording from coming to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CutShort {
    /// The recorder was killed while it recorded.
    Killed,
    /// The recorder was killed while it emptied its rings.
    KilledStopping,
    /// A second signal came while it emptied its rings.
    SecondSignal,
    /// Nobody knows.
    Unknown,
}

impl CutShort {
    /// What happened, in a few words.
    pub fn text(self) -> &'static str {
        match self {
            Self::Killed => "the recorder was killed",
            Self::KilledStopping => "the recorder was killed while it stopped",
            Self::SecondSignal => "a second signal ended the recorder while it stopped",
            Self::Unknown => "the recording did not end by itself",
        }
    }
}

/// What is known of the events that were in a CPU's ring when its recording was cut short. A number that is
/// not known is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Missing {
    /// How many they are at least.
    pub at_least: Option<u64>,
    /// Time of the last event before them; `None` if the file has none of this CPU.
    pub since: Option<u64>,
    /// Time at which the ledger's counts of this CPU were taken; later ones are not known.
    pub counted: Option<u64>,
}

impl Missing {
    /// What is known, for a user; `number` writes a count.
    pub fn text(&self, number: impl Fn(u64) -> String) -> String {
        let since = match self.since {
            Some(since) => format!("since {}", seconds(since)),
            None => "from the start on".to_owned(),
        };
        let counted = self.counted.map(|at| format!("; counted at {}", seconds(at))).unwrap_or_default();
        match self.at_least {
            Some(0) => format!("none is known to be missing {since}{counted}"),
            Some(events) => format!("at least {} events are missing {since}{counted}", number(events)),
            None => format!("it is not known how many events are missing {since}"),
        }
    }
}

/// Nanoseconds as seconds.
fn seconds(nanos: u64) -> String {
    format!("{}.{:09}", nanos / 1_000_000_000, nanos % 1_000_000_000)
}

/// What the ledger says of one CPU. A number that it does not have is `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LedgerCpu {
    /// The CPU.
    pub cpu: u32,
    /// Events that were written to the ring.
    pub recorded: Option<u64>,
    /// Events that are in the file.
    pub stored: Option<u64>,
    /// Events that were lost, by cause.
    pub lost: Vec<(String, u64)>,
    /// What is missing at the end, if the recording was cut short.
    pub missing: Option<Missing>,
}

impl Ledger {
    /// Parses the option's text, without its NUL. `None` if it is no ledger.
    pub fn parse(text: &str) -> Option<Self> {
        let value = Value::parse(text)?;
        let Value::Array(items) = value.get("cpus")? else { return None };
        let mut cpus = items.iter().map(LedgerCpu::of).collect::<Option<Vec<_>>>()?;
        let cut_short = value.get("recovered").and_then(cut_short);
        for cpu in &mut cpus {
            // Version 1 has no word about it.
            cpu.missing = cut_short.is_some().then(|| cpu.missing.unwrap_or_default());
        }
        Some(Self { cut_short, cpus })
    }
}

/// What cut a recovered recording short. `None` if only its file had not been made.
fn cut_short(recovered: &Value<'_>) -> Option<CutShort> {
    let Value::Object(_) = recovered else { return None };
    match recovered.get("ended") {
        Some(Value::String("\"unfinished\"")) => None,
        Some(Value::String("\"killed\"")) => Some(CutShort::Killed),
        Some(Value::String("\"killed_stopping\"")) => Some(CutShort::KilledStopping),
        Some(Value::String("\"second_signal\"")) => Some(CutShort::SecondSignal),
        _ => Some(CutShort::Unknown),
    }
}

impl LedgerCpu {
    fn of(value: &Value<'_>) -> Option<Self> {
        let number = |name| value.get(name).and_then(Value::number);
        let causes = value.get("lost").map_or(&[][..], Value::members).iter();
        let lost =
            causes.map(|(cause, events)| (cause.trim_matches('"').to_owned(), events.number().unwrap_or(0)));
        let missing = value.get("missing").map(|missing| {
            let number = |name| missing.get(name).and_then(Value::number);
            Missing { at_least: number("at_least"), since: number("since_ns"), counted: number("counted_ns") }
        });
        Some(Self {
            missing,
            cpu: u32::try_from(number("cpu")?).ok()?,
            recorded: number("recorded"),
            stored: number("stored"),
            lost: lost.collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ledger_is_taken_apart() {
        let text = "{\"version\":1,\"cpus\":[{\"cpu\":3,\"recorded\":20,\"stored\":17,\
                    \"lost\":{\"ring_full\":3,\"nested\":0}},{\"cpu\":4}],\"events\":[]}";
        let ledger = Ledger::parse(text).unwrap();
        let lost = vec![("ring_full".to_owned(), 3), ("nested".to_owned(), 0)];
        let first = LedgerCpu { cpu: 3, recorded: Some(20), stored: Some(17), lost, missing: None };
        assert_eq!(ledger.cpus, [first, LedgerCpu { cpu: 4, ..LedgerCpu::default() }]);
        for text in ["", "{}", "{\"cpus\":1}", "{\"cpus\":[{}]}", "{\"cpus\":[{\"cpu\":4294967296}]}"] {
            assert_eq!(Ledger::parse(text), None, "{text}");
        }
    }

    #[test]
    fn what_was_cut_short_is_known() {
        let ledger = |recovered: &str, cpu: &str| {
            let text = format!("{{\"version\":2,\"recovered\":{recovered},\"cpus\":[{{\"cpu\":0{cpu}}}]}}");
            let ledger = Ledger::parse(&text).unwrap();
            (ledger.cut_short, ledger.cpus[0].missing)
        };
        let missing = ",\"missing\":{\"at_least\":3,\"since_ns\":1500000000,\"counted_ns\":null}";
        let known = Missing { at_least: Some(3), since: Some(1_500_000_000), counted: None };
        assert_eq!(ledger("{\"ended\":\"killed\"}", missing), (Some(CutShort::Killed), Some(known)));
        assert_eq!(known.text(|n| n.to_string()), "at least 3 events are missing since 1.500000000");
        // Version 1.
        let unknown = (Some(CutShort::Unknown), Some(Missing::default()));
        assert_eq!(ledger("{\"unreadable_bytes\":0}", ""), unknown);
        assert_eq!(
            Missing::default().text(|n| n.to_string()),
            "it is not known how many events are missing from the start on"
        );
        assert_eq!(ledger("{\"ended\":\"unfinished\"}", ""), (None, None));
    }
}
