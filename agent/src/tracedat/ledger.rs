//! The loss ledger: what our recorder says of the events that it recorded and lost.
//!
//! It is a JSON object in option [`LEDGER`](super::OptionId::LEDGER), a text that ends with NUL. Members that are not known are
//! left alone.

use crate::json::Value;

/// A ledger, as far as readers need it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    /// By CPU.
    pub cpus: Vec<LedgerCpu>,
}

/// What the ledger says of one CPU. A number that it does not tell is `None`.
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
}

impl Ledger {
    /// Takes the option's text apart, without its NUL. `None` if it is no ledger.
    pub fn parse(text: &str) -> Option<Self> {
        let value = Value::parse(text)?;
        let Value::Array(items) = value.get("cpus")? else { return None };
        let cpus = items.iter().map(LedgerCpu::of).collect::<Option<Vec<_>>>()?;
        Some(Self { cpus })
    }
}

impl LedgerCpu {
    fn of(value: &Value<'_>) -> Option<Self> {
        let number = |name| value.get(name).and_then(Value::number);
        let causes = value.get("lost").map_or(&[][..], Value::members).iter();
        let lost =
            causes.map(|(cause, events)| (cause.trim_matches('"').to_owned(), events.number().unwrap_or(0)));
        Some(Self {
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
        let first = LedgerCpu { cpu: 3, recorded: Some(20), stored: Some(17), lost };
        assert_eq!(ledger.cpus, [first, LedgerCpu { cpu: 4, ..LedgerCpu::default() }]);
        for text in ["", "{}", "{\"cpus\":1}", "{\"cpus\":[{}]}", "{\"cpus\":[{\"cpu\":4294967296}]}"] {
            assert_eq!(Ledger::parse(text), None, "{text}");
        }
    }
}
