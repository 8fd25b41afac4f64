//! What a file says, taken apart so that anything else that says the same can be compared with it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use integration_tests::harness::{agent, run};
use serde_json::{Map, Value, json};

/// What there is to know of a record, of a CPU, or of a whole recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Facet {
    Cpu,
    Time,
    Thread,
    /// The name of the thread.
    Comm,
    Buffer,
    Flags,
    Preempt,
    System,
    Event,
    Fields,
    /// Functions at addresses.
    Symbols,
    /// What numbers are called.
    Names,
    /// Losses before a record.
    Lost,
    /// The stack of the kernel that belongs to a record.
    KernelStack,
    UserStack,
    /// How long after its event each stack of a record was taken, where that is not at once.
    StackTimes,
    /// Losses behind the last record of a CPU.
    Behind,
    /// All losses of a CPU.
    Sums,
    /// How far the clock is from wall time.
    Wall,
    Host,
    /// Which threads and CPUs were recorded.
    Scope,
    /// Which firings of events were recorded.
    Choices,
}

/// A record.
pub(crate) type Row = BTreeMap<Facet, Value>;

/// Losses of a buffer's CPU: how many, and at how many places nobody counted them.
pub(crate) type Loss = (u64, u64);

/// What something says of a recording. Facets that it knows nothing of are not there.
#[derive(Clone, Debug, Default)]
pub(crate) struct Told {
    pub(crate) rows: Vec<Row>,
    /// By buffer and CPU, without those that lost nothing.
    pub(crate) behind: Option<BTreeMap<(String, u64), Loss>>,
    pub(crate) sums: Option<BTreeMap<(String, u64), Loss>>,
    /// Facets of the recording.
    pub(crate) whole: Row,
}

impl Told {
    /// What `report --json` and `info --json` say.
    pub(crate) fn of(file: &Path) -> Self {
        let out = run(agent("/".as_ref(), ["report", "--json"]).arg(file)).expect(0).out;
        let mut told = Self { behind: Some(BTreeMap::new()), sums: Some(BTreeMap::new()), ..Self::default() };
        for line in out.lines() {
            let said: Value = serde_json::from_str(line).expect(line);
            if said["timestamp"].is_null() {
                let lost = said["lost_behind"].as_u64();
                told.lose_behind(said["buffer"].as_str().unwrap(), said["cpu"].as_u64().unwrap(), lost);
                continue;
            }
            told.lose(said["buffer"].as_str().unwrap(), said["cpu"].as_u64().unwrap(), said["lost"].as_u64());
            let members = [
                (Facet::Cpu, "cpu"),
                (Facet::Time, "timestamp"),
                (Facet::Thread, "pid"),
                (Facet::Comm, "comm"),
                (Facet::Buffer, "buffer"),
                (Facet::Flags, "flags"),
                (Facet::Preempt, "preempt_count"),
                (Facet::System, "system"),
                (Facet::Event, "event"),
                (Facet::Fields, "fields"),
                (Facet::Lost, "lost"),
            ];
            let mut row: Row = members.map(|(facet, member)| (facet, said[member].clone())).into();
            for (facet, member) in [(Facet::Symbols, "symbols"), (Facet::Names, "names")] {
                let none = Value::Object(Map::new());
                row.insert(facet, said.get(member).cloned().unwrap_or(none));
            }
            told.rows.push(row);
        }
        let info = run(agent("/".as_ref(), ["info", "--json"]).arg(file)).expect(0).out;
        let info: Value = serde_json::from_str(&info).unwrap();
        let ledger = &info["ledger"];
        let uname = info["options"].as_array().unwrap().iter().find(|option| option["name"] == "UNAME");
        let host = uname.and_then(|option| option["value"].as_str()?.split(' ').nth(1));
        told.whole = Row::from([
            (Facet::Wall, ledger["realtime_offset_ns"].clone()),
            (Facet::Host, json!(host)),
            (Facet::Scope, ledger.get("only").cloned().unwrap_or(json!([]))),
            (Facet::Choices, choices(ledger)),
        ]);
        told
    }

    /// Puts what `report` prints of records by their formats in the place of their fields.
    pub(crate) fn print_fields(&mut self, file: &Path) {
        let out = run(agent("/".as_ref(), ["report", "-N", "-t"]).arg(file)).expect(0).out;
        let mut texts: Vec<String> = Vec::new();
        for line in printed_lines(&out).into_iter().filter(|line| !is_beside_records(line)) {
            texts.push(event_of_line(&line).1.to_owned());
        }
        assert_eq!(texts.len(), self.rows.len());
        for (row, text) in self.rows.iter_mut().zip(texts) {
            // Stacks keep their frames.
            if row[&Facet::Fields].get("caller").is_none() {
                row.insert(Facet::Fields, json!(text));
            }
        }
    }

    /// Losses before a record, of a number that is not known if there is none.
    pub(crate) fn lose(&mut self, buffer: &str, cpu: u64, lost: Option<u64>) {
        if lost != Some(0) {
            add(self.sums.get_or_insert_default(), buffer, cpu, lost);
        }
    }

    /// Losses behind the last record of a CPU.
    pub(crate) fn lose_behind(&mut self, buffer: &str, cpu: u64, lost: Option<u64>) {
        if lost != Some(0) {
            add(self.behind.get_or_insert_default(), buffer, cpu, lost);
        }
        self.lose(buffer, cpu, lost);
    }

    /// The same without names of buffers.
    fn without_buffers(mut self) -> Self {
        for sums in [&mut self.behind, &mut self.sums].into_iter().flatten() {
            let mut merged = BTreeMap::<(String, u64), Loss>::new();
            for ((_, cpu), (known, unknown)) in std::mem::take(sums) {
                let sum = merged.entry((String::new(), cpu)).or_default();
                *sum = (sum.0 + known, sum.1 + unknown);
            }
            *sums = merged;
        }
        self
    }

    /// The same with stacks at the records they belong to, the last ones of their buffer, CPU and thread.
    pub(crate) fn with_stacks_folded(mut self) -> Self {
        let mut rows: Vec<Row> = Vec::new();
        for row in std::mem::take(&mut self.rows) {
            let stack = match row[&Facet::Event].as_str() {
                Some("kernel_stack") => Facet::KernelStack,
                Some("user_stack") => Facet::UserStack,
                _ => {
                    rows.push(row);
                    continue;
                }
            };
            let of = |row: &Row| [Facet::Buffer, Facet::Cpu, Facet::Thread].map(|facet| row[&facet].clone());
            let event = rows.iter_mut().rfind(|event| of(event) == of(&row)).expect("a stack has an event");
            event.insert(stack, row[&Facet::Fields]["caller"].clone());
            let [time, taken] = [&*event, &row].map(|row| row[&Facet::Time].as_u64().unwrap());
            if taken != time {
                let times = event.entry(Facet::StackTimes).or_insert(json!([]));
                times.as_array_mut().unwrap().push(json!(taken - time));
            }
        }
        for row in &mut rows {
            row.entry(Facet::KernelStack).or_insert(Value::Null);
            row.entry(Facet::UserStack).or_insert(Value::Null);
        }
        self.rows = rows;
        self
    }

    /// Orders records so that two of the same are found at the same place.
    fn sort(&mut self) {
        self.rows.sort_by_key(|row| {
            let number = |facet| row[&facet].as_u64();
            let text = |facet| row.get(&facet).map(Value::to_string);
            (number(Facet::Time), number(Facet::Cpu), text(Facet::Event), text(Facet::Thread))
        });
    }
}

fn add(sums: &mut BTreeMap<(String, u64), Loss>, buffer: &str, cpu: u64, lost: Option<u64>) {
    let (known, unknown) = sums.entry((buffer.to_owned(), cpu)).or_default();
    *known += lost.unwrap_or(0);
    *unknown += u64::from(lost.is_none());
}

/// Filters and sampling by buffer and event.
pub(crate) fn choices(ledger: &Value) -> Value {
    let rows = ledger["events"].as_array().or(ledger["choices"].as_array());
    let rows = rows.into_iter().flatten();
    let chosen = rows.filter_map(|row| {
        let is_sampled = row["sampled_out"].as_u64().is_some_and(|n| n != 0) || row["is_sampled"] == true;
        let filter = &row["filter"];
        let channel = row["channel"].as_str().unwrap_or_default();
        (is_sampled || filter.is_string())
            .then(|| json!([channel, row["event"], filter, is_sampled]).to_string())
    });
    json!(chosen.collect::<BTreeSet<_>>())
}

/// Whether a value is that of the recording, in whatever way the format writes it.
pub(crate) type Same = fn(Facet, &Row, &Value, &Value) -> bool;

/// What differs: a facet of an event, `system:event`, or a field of one, `system:event.field`. The event is
/// empty where it is about a CPU or the whole recording.
pub(crate) type Place = (Facet, String);

/// How something differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Difference {
    /// Whether nothing at all is said in any record.
    pub(crate) is_missing: bool,
    example: String,
}

/// Where two differ. `same` judges values of records; its second argument is the record that the truth has.
pub(crate) fn differences(told: &Told, truth: &Told, same: Same) -> BTreeMap<Place, Difference> {
    let mut found = BTreeMap::new();
    let (mut told, mut truth) = (told.clone(), truth.clone());
    let lacks_buffers =
        !told.rows.is_empty() && told.rows.iter().all(|row| !row.contains_key(&Facet::Buffer));
    if lacks_buffers {
        truth = truth.without_buffers();
        told = told.without_buffers();
    }
    told.sort();
    truth.sort();
    assert_eq!(told.rows.len(), truth.rows.len(), "records");
    let mut differs = |place: Place, value: Option<&Value>, example: &dyn Fn() -> String| {
        let is_missing = value.is_none_or(is_nothing);
        let differs = found.entry(place).or_insert_with(|| Difference { is_missing, example: example() });
        differs.is_missing &= is_missing;
    };
    for (row, expected) in told.rows.iter().zip(&truth.rows) {
        let event = format!("{}:{}", text(expected, Facet::System), text(expected, Facet::Event));
        for (facet, value) in expected {
            let found = row.get(facet);
            let is_nothing = is_nothing(value) && found.is_none_or(is_nothing);
            if is_nothing || found.is_some_and(|found| same(*facet, expected, found, value)) {
                continue;
            }
            let example = || format!("{found:?}, not {value}: {expected:?}");
            let fields = match (facet, found, value) {
                (Facet::Fields, Some(Value::Object(found)), Value::Object(told)) => {
                    fields_that_differ(found, told, &|found, told| same(Facet::Fields, expected, found, told))
                }
                _ => Vec::new(),
            };
            for field in &fields {
                differs((*facet, format!("{event}.{field}")), found, &example);
            }
            if fields.is_empty() {
                differs((*facet, event.clone()), found, &example);
            }
        }
    }
    let sums = |told: &Told| [(Facet::Behind, told.behind.clone()), (Facet::Sums, told.sums.clone())];
    for ((facet, told), (_, truth)) in sums(&told).into_iter().zip(sums(&truth)) {
        // No losses are nothing.
        let (told, truth) = (told.unwrap_or_default(), truth.unwrap_or_default());
        let is_there = !told.is_empty();
        if told != truth {
            let value = Value::Bool(true);
            let example = || format!("{told:?}, not {truth:?}");
            differs((facet, String::new()), is_there.then_some(&value), &example);
        }
    }
    for (facet, value) in &truth.whole {
        let found = told.whole.get(facet);
        let is_nothing = is_nothing(value) && found.is_none_or(is_nothing);
        if !is_nothing && found != Some(value) {
            differs((*facet, String::new()), found, &|| format!("{found:?}, not {value}"));
        }
    }
    found
}

fn text(row: &Row, facet: Facet) -> &str {
    row[&facet].as_str().unwrap()
}

fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(members) => members.is_empty(),
        _ => false,
    }
}

/// The fields that only one has, and those whose values differ.
fn fields_that_differ(
    found: &Map<String, Value>,
    told: &Map<String, Value>,
    same: &dyn Fn(&Value, &Value) -> bool,
) -> Vec<String> {
    let names: BTreeSet<&String> = found.keys().chain(told.keys()).collect();
    let alone = |of: &Map<String, Value>, name: &String| {
        Value::Object(of.get(name).map(|value| (name.clone(), value.clone())).into_iter().collect())
    };
    let differs = |name: &&&String| !same(&alone(found, name), &alone(told, name));
    names.iter().filter(differs).map(|name| (*name).clone()).collect()
}

/// What may differ: a facet, a recording, and an event or a field as [`Place`] has it. What ends with `*`
/// stands for all that begin so.
pub(crate) type Exception = (Facet, &'static str, &'static str);

/// The differences of many recordings, and those that there are to be.
pub(crate) struct Verdict {
    exceptions: Vec<(Exception, bool)>,
    wrong: Vec<String>,
}

impl Verdict {
    pub(crate) fn new(exceptions: impl IntoIterator<Item = Exception>) -> Self {
        Self {
            exceptions: exceptions.into_iter().map(|exception| (exception, false)).collect(),
            wrong: Vec::new(),
        }
    }

    /// Takes the differences of a recording.
    pub(crate) fn take(&mut self, recording: &str, found: BTreeMap<Place, Difference>) {
        for ((facet, event), difference) in found {
            let mut is_expected = false;
            for ((of, recordings, events), is_met) in &mut self.exceptions {
                if *of == facet && matches(recordings, recording) && matches(events, &event) {
                    (is_expected, *is_met) = (true, true);
                }
            }
            if !is_expected {
                let Difference { example, .. } = difference;
                self.wrong.push(format!("(Facet::{facet:?}, {recording:?}, {event:?}): {example}"));
            }
        }
    }

    pub(crate) fn is_wrong(&mut self, what: String) {
        self.wrong.push(what);
    }

    /// Fails where something differs that should not, or does not that should.
    #[track_caller]
    pub(crate) fn pass(mut self, what: &str) {
        let unmet = self.exceptions.iter().filter(|(_, is_met)| !is_met);
        self.wrong.extend(unmet.map(|(exception, _)| format!("{exception:?} does not differ")));
        assert!(self.wrong.is_empty(), "{what}\n{}", self.wrong.join("\n"));
    }
}

pub(crate) fn matches(pattern: &str, text: &str) -> bool {
    pattern.strip_suffix('*').map_or(pattern == text, |start| text.starts_with(start))
}

/// What `report` prints, with the lines that a text makes of one.
pub(crate) fn printed_lines(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for line in text.lines() {
        let is_start = is_beside_records(line) || behind_time(line).is_some();
        match lines.last_mut() {
            Some(last) if !is_start => *last += &format!("\n{line}"),
            _ => lines.push(line.to_owned()),
        }
    }
    lines
}

/// Whether a line is of a loss, or the first one.
pub(crate) fn is_beside_records(line: &str) -> bool {
    let is_loss = line.ends_with(" EVENTS DROPPED]") && line.contains("CPU:");
    is_loss || line.starts_with("CPU:") || line.starts_with("cpus=")
}

/// What stands behind a time with nine digits of a second.
fn behind_time(line: &str) -> Option<&str> {
    line.match_indices(": ").find_map(|(at, _)| {
        let before = &line[..at];
        let rest = before.trim_end_matches(|c: char| c.is_ascii_digit());
        (before.len() - rest.len() == 9 && rest.ends_with('.')).then(|| &line[at + 2..])
    })
}

/// The event of a line, and its text.
pub(crate) fn event_of_line(line: &str) -> (&str, &str) {
    let rest = behind_time(line).unwrap_or("").trim_start();
    // The time since the line before.
    let rest = rest.strip_prefix('(').and_then(|rest| rest.split_once(')')).map_or(rest, |(_, rest)| rest);
    let (event, text) = rest.split_once(':').unwrap_or((rest, ""));
    (event.trim(), text.trim_start())
}

/// A number, also an address as `report --json` writes it.
pub(crate) fn number(value: &Value) -> Option<i128> {
    match value {
        Value::String(text) => i128::from_str_radix(text.strip_prefix("0x")?, 16).ok(),
        Value::Bool(truth) => Some((*truth).into()),
        value => value.as_i64().map(i128::from).or_else(|| value.as_u64().map(i128::from)),
    }
}

/// Whether values are equal, where numbers may be written otherwise.
pub(crate) fn equal(found: &Value, told: &Value) -> bool {
    match (found, told) {
        (Value::Array(found), Value::Array(told)) => {
            found.len() == told.len() && found.iter().zip(told).all(|(found, told)| equal(found, told))
        }
        (Value::Object(found), Value::Object(told)) => {
            found.len() == told.len()
                && told.iter().all(|(name, told)| found.get(name).is_some_and(|found| equal(found, told)))
        }
        _ => found == told || number(found).is_some_and(|found| number(told) == Some(found)),
    }
}
