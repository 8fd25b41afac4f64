//! The loss ledger: what our recorder recorded and lost, where and why.
//!
//! It is a JSON object in option [`LEDGER`](super::OptionId::LEDGER), a text that ends with NUL. This is its
//! one definition, for the recorder and for readers. A count that is not known is `null`, which is `None`
//! here, as is one that a version does not have; members that are not known to a reader are ignored.

use std::{collections::BTreeMap, fmt};

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{MapAccess, Visitor},
    ser::SerializeMap as _,
};

use super::{
    FileOption, OptionId,
    reader::{Clock, Reader, Source},
};

/// The version that is written. Version 1 had no word about what was in the rings of a recording that was
/// killed. Versions before 3 counted events of the recorder's own threads as filtered, and with them left out
/// those of interrupts that came while such a thread had a CPU.
pub const VERSION: u32 = 3;

/// A ledger.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[expect(clippy::struct_excessive_bools, reason = "each is a member of the file's JSON")]
pub struct Ledger {
    /// [`VERSION`], or an older one.
    #[serde(default)]
    pub version: u32,
    /// The format that the file was imported from, if it was. Of another tracer's recording only the clock,
    /// and losses as far as that tracer tells them, are known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub imported: Option<String>,
    /// Whether the file has only a part of what the ledger counts. Then all losses that are known to be in
    /// the part are marked on its pages.
    #[serde(default, skip_serializing_if = "is_false")]
    pub part: bool,
    /// The recording's clock.
    #[serde(default)]
    pub clock: Option<String>,
    /// Nanoseconds to add to its times for those of the wall clock.
    #[serde(default)]
    pub realtime_offset_ns: Option<i64>,
    /// How wrong they can be.
    #[serde(default)]
    pub realtime_uncertainty_ns: Option<u64>,
    /// From the start of recording to its end, without pauses; not known of a recording that was recovered.
    #[serde(default)]
    pub duration_ns: Option<u64>,
    /// The time in which every firing of a recorded event is in the file or counted as lost, but for the
    /// pauses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub covered: Option<Covered>,
    /// Pauses: within them nothing was recorded or counted, though they are within `covered`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pauses: Vec<Pause>,
    /// Events that were asked for by a pattern and that the kernel refused to attach.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_attached: Vec<String>,
    /// Which threads and CPUs were recorded, in a few words, each of which leaves out others; none if all
    /// were, but for the recorder's own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub only: Vec<String>,
    /// Events that the kernel's recursion guard kept from the programs.
    #[serde(default)]
    pub recursion_misses: Option<u64>,
    /// Whether there may be more of them, which the kernel does not count.
    #[serde(default, skip_serializing_if = "is_false")]
    pub skips_uncounted: bool,
    /// Whether what threads leave out, the recorder's own and those that were excluded, includes events of
    /// interrupts that came while they had a CPU.
    #[serde(default, skip_serializing_if = "is_false")]
    pub leaves_out_interrupts: bool,
    /// Whether `common_flags` of the records, which say whether they were made in interrupts, are 0 because
    /// the source of an import had none.
    #[serde(default, skip_serializing_if = "is_false")]
    pub lacks_contexts: bool,
    /// Control groups of the recording's scope that were removed meanwhile.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub vanished_cgroups: Vec<String>,
    /// Set for a recording whose file was not made at its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recovered: Option<Recovered>,
    /// Thread names that could not be noted when they changed.
    #[serde(default)]
    pub names_lost: Option<u64>,
    /// System calls of 32-bit programs that the fast lane's programs of single calls (`syscalls:*`) left out,
    /// whichever calls those are of. `raw_syscalls:*` has them, if it was recorded. Absent without such
    /// programs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compat_calls: Option<u64>,
    /// Whether events of all system calls have marks in the numbers of 32-bit ones, without which these look
    /// like numbers of 64-bit calls. Absent without such events, on machines other than x86-64 and 64-bit
    /// ARM, and in files of older recorders.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub marks_compat: Option<bool>,
    /// By buffer and CPU.
    pub cpus: Vec<LedgerCpu>,
    /// By buffer and event: those that fired. Not known of a recording that was recovered.
    #[serde(default)]
    pub events: Option<Vec<LedgerEvent>>,
    /// Of a recording whose counts by event are not known, the events that were recorded from the beginning
    /// on, whether they fired or not, and those of which not each firing was to be recorded, or that of more
    /// threads than others. Older recorders have the latter only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub choices: Vec<EventChoice>,
    /// By buffer, those that did not fire. Not known of a recording that was recovered, or that an older
    /// recorder made.
    #[serde(default)]
    pub silent: Option<Vec<LedgerSilent>>,
    /// By program.
    #[serde(default)]
    pub programs: Option<Vec<LedgerProgram>>,
}

/// A line of [`Ledger::only`] of a recording of which nobody knows whose threads it has: that of a spool
/// whose manifest was lost.
pub const UNKNOWN_THREADS: &str = "threads that are not known";

/// [`Ledger::only`] of a recording of which nobody knows whose threads it has, and of which CPUs.
pub const UNKNOWN_CHOICE: [&str; 2] = [UNKNOWN_THREADS, "CPUs that are not known"];

/// Which firings of an event were to be recorded, beside the choice of threads and CPUs ([`Ledger::only`]).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventChoice {
    /// The buffer; empty for the one that every file has.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub channel: String,
    /// `system:name`.
    #[serde(default)]
    pub event: String,
    /// Whether they were those of every thread.
    #[serde(default, skip_serializing_if = "is_false")]
    pub every_thread: bool,
    /// Its own filter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<String>,
    /// Whether sampling left out others.
    #[serde(default, skip_serializing_if = "is_false")]
    pub is_sampled: bool,
}

impl EventChoice {
    /// Whether something else than its thread decided which firings were recorded.
    pub fn is_chosen(&self) -> bool {
        self.filter.is_some() || self.is_sampled
    }
}

impl Ledger {
    /// That of a part of a recording whose ledger is missing.
    pub fn unknown() -> Self {
        let only = UNKNOWN_CHOICE.map(str::to_owned).into();
        Self { version: VERSION, part: true, only, ..Self::default() }
    }

    /// The events of which something is known: `system:name`, one of several buffers more than once.
    pub fn event_names(&self) -> impl Iterator<Item = &str> {
        let silent = self.silent.iter().flatten().flat_map(|of| &of.events);
        let fired = self.events.iter().flatten().map(|row| &row.event);
        fired.chain(self.choices.iter().map(|choice| &choice.event)).chain(silent).map(String::as_str)
    }

    /// Whether each firing of an event on the threads and CPUs that were recorded is in one buffer, or
    /// counted as lost there: from the beginning to the end, without a filter and without sampling.
    pub fn has_all_of(&self, event: &str) -> bool {
        // One that was added to an earlier archive has that time.
        let is_before = |since| self.covered.is_some_and(|covered| since <= covered.from_ns);
        let is_always = |row: &LedgerEvent| row.since_ns.is_none_or(is_before) && row.until_ns.is_none();
        let mut fired = self.events.iter().flatten();
        let mut silent = self.silent.iter().flatten().flat_map(|of| &of.events);
        fired.any(|row| row.event == event && is_always(row) && !row.choice().is_chosen())
            || self.choices.iter().any(|of| of.event == event && !of.every_thread && !of.is_chosen())
            || silent.any(|of| of == event)
    }

    /// What is known of each event that fired, or of all in [`Ledger::choices`].
    pub fn event_choices(&self) -> Vec<EventChoice> {
        match &self.events {
            Some(rows) => rows.iter().map(LedgerEvent::choice).collect(),
            None => self.choices.clone(),
        }
    }
}

/// Events of a buffer that were recorded from the beginning to the end, and did not fire.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LedgerSilent {
    /// The buffer; empty for the one that every file has.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub channel: String,
    /// `system:name` of each.
    #[serde(default)]
    pub events: Vec<String>,
}

/// A buffer, for a user. That which every file has has no name.
pub fn buffer_title(name: &str) -> String {
    if name.is_empty() { "the buffer without a name".to_owned() } else { format!("buffer {name}") }
}

/// Something of a buffer, for a user: the buffer that every file has is not mentioned.
pub fn in_buffer(what: impl fmt::Display, buffer: &str) -> String {
    if buffer.is_empty() { what.to_string() } else { format!("{what} of {}", buffer_title(buffer)) }
}

/// A span of time, by the recording's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Covered {
    /// Its first nanosecond.
    pub from_ns: u64,
    /// Its last one.
    pub to_ns: u64,
}

/// A time, by the recording's clock, in which nothing was recorded or counted, though the recording had begun
/// and had not ended. What fires right after its beginning or right before its end may be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pause {
    /// When the first CPU was about to stop.
    pub from_ns: u64,
    /// When all CPUs recorded again; `None` if they did not any more.
    pub to_ns: Option<u64>,
}

impl Pause {
    /// The same by the times of a file's records. A recording with pauses is of one machine.
    #[must_use]
    pub fn corrected(&self, clock: &Clock) -> Self {
        let clock = clock.for_cpu(0);
        Self { from_ns: clock.correct(self.from_ns), to_ns: self.to_ns.map(|to_ns| clock.correct(to_ns)) }
    }

    /// The pauses of a recording by the times of its records, in their order; only files of this recorder
    /// tell them.
    pub fn all_of<S: Source>(reader: &Reader<S>) -> Vec<Self> {
        let pauses = Ledger::of(reader).map(|ledger| ledger.pauses).unwrap_or_default();
        pauses.iter().map(|pause| pause.corrected(reader.clock())).collect()
    }
}

/// What is known about a recording that was recovered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recovered {
    /// How it came to its end.
    #[serde(default)]
    pub ended: End,
    /// Whether it was a flight recorder, whose events are in the rings until it ends.
    #[serde(default)]
    pub overwrite: Option<bool>,
    /// Bytes of the spool that hold no whole chunk: writes that were cut short.
    #[serde(default)]
    pub unreadable_bytes: u64,
}

/// How a recording ended whose file was not made at its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// It was killed while it recorded.
    Killed,
    /// It was killed when it had stopped recording, before the rings were empty.
    KilledStopping,
    /// A second signal ended it before the rings were empty.
    SecondSignal,
    /// Only the file was not finished. All counts by CPU are exact.
    Unfinished,
    /// Nobody knows: its spool is of an older recorder, or damaged.
    #[default]
    #[serde(other)]
    Unknown,
}

impl End {
    /// What kept the rings from being emptied, unless they were.
    pub fn cut_short(self) -> Option<CutShort> {
        match self {
            Self::Unknown => Some(CutShort::Unknown),
            Self::Killed => Some(CutShort::Killed),
            Self::KilledStopping => Some(CutShort::KilledStopping),
            Self::SecondSignal => Some(CutShort::SecondSignal),
            Self::Unfinished => None,
        }
    }
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Missing {
    /// How many they are at least.
    #[serde(default)]
    pub at_least: Option<u64>,
    /// Time of the last event before them; `None` if the file has none of this CPU.
    #[serde(default, rename = "since_ns")]
    pub since: Option<u64>,
    /// Time at which the ledger's counts of this CPU were taken; later ones are not known.
    #[serde(default, rename = "counted_ns")]
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

/// What the ledger says of one CPU in a buffer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LedgerCpu {
    /// The buffer; empty for the one that every file has.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub channel: String,
    /// The CPU.
    pub cpu: u32,
    /// Events that were written to the ring.
    #[serde(default)]
    pub recorded: Option<u64>,
    /// Events that are in the file.
    #[serde(default)]
    pub stored: Option<u64>,
    /// Pages that are in the file.
    #[serde(default)]
    pub pages: Option<u64>,
    /// Events in ring pages that overwrite mode reused.
    #[serde(default)]
    pub overwritten: Option<u64>,
    /// Events that a size limit removed: `Some(None)` if some were, and nobody knows how many.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub capped: Option<Option<u64>>,
    /// Events that were in the ring and could not be stored.
    #[serde(default)]
    pub unstored: Option<u64>,
    /// Events that filters left out.
    #[serde(default)]
    pub filtered: Option<u64>,
    /// Events of the recorder's own threads, which were left out.
    #[serde(default)]
    pub own_threads: Option<u64>,
    /// Events that were lost, by cause.
    #[serde(default)]
    pub lost: Losses,
    /// Events that the first page marks as lost, and that the archive before has counted.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub marked_before: u64,
    /// What is missing at the end, if the recording was cut short.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing: Option<Missing>,
}

impl LedgerCpu {
    /// Which one it is, for a user.
    pub fn title(&self) -> String {
        let Self { channel, cpu, .. } = self;
        in_buffer(format_args!("CPU {cpu}"), channel)
    }

    /// Events that did not reach the file, without those that were given up on demand; at least so many if
    /// the recording was cut short.
    pub fn lost_in_all(&self) -> u64 {
        let unstored = self.missing.map_or(self.unstored, |missing| missing.at_least);
        self.lost.total().saturating_add(unstored.unwrap_or(0))
    }
}

/// What the ledger says of one event in a buffer, over all CPUs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LedgerEvent {
    /// The buffer; empty for the one that every file has.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub channel: String,
    /// `system:name`.
    pub event: String,
    /// The kernel's number of it.
    pub id: u16,
    /// How it was recorded.
    #[serde(default)]
    pub lane: String,
    /// Records that were written to the rings.
    #[serde(default)]
    pub recorded: u64,
    /// Records in which a text was longer than its room.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cut: u64,
    /// Whether it was recorded of every thread, whatever [`Ledger::only`] leaves out of the others.
    #[serde(default, skip_serializing_if = "is_false")]
    pub every_thread: bool,
    /// Its own filter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<String>,
    /// Firings that filters left out.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub filtered: u64,
    /// Firings in the recorder's own threads, which were left out.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub own_threads: u64,
    /// Firings that sampling left out.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub sampled_out: u64,
    /// Lost ones, by cause.
    #[serde(default)]
    pub lost: Losses,
    /// The same by CPU, for those that lost any: counts in the order of the causes in `lost`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub lost_on: BTreeMap<u32, Vec<u64>>,
    /// From when on it was recorded, if it was added while the recording went on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since_ns: Option<u64>,
    /// Up to when it was recorded, if it was removed before the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until_ns: Option<u64>,
}

impl LedgerEvent {
    /// Which firings of it were to be recorded, as far as others were left out.
    pub fn choice(&self) -> EventChoice {
        EventChoice {
            channel: self.channel.clone(),
            event: self.event.clone(),
            every_thread: self.every_thread,
            filter: self.filter.clone(),
            is_sampled: self.sampled_out != 0,
        }
    }

    /// Whether its [`LedgerEvent::choice`] is one of those that [`Ledger::choices`] has.
    pub fn is_in_choices(&self) -> bool {
        let is_whole = self.since_ns.is_none() && self.until_ns.is_none();
        is_whole || self.every_thread || self.choice().is_chosen()
    }

    /// Which one it is, for a user.
    pub fn title(&self) -> String {
        let Self { channel, event, .. } = self;
        in_buffer(event, channel)
    }
}

/// What the ledger says of one program.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LedgerProgram {
    /// The buffer that it writes to; empty for the one that every file has.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub channel: String,
    /// Its name.
    pub program: String,
    /// Events that the kernel's recursion guard kept from it.
    #[serde(default)]
    pub recursion_misses: Option<u64>,
}

/// Counts by cause, in the recorder's order: an object of numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Losses(pub Vec<(String, u64)>);

impl Losses {
    /// All of them.
    pub fn total(&self) -> u64 {
        self.0.iter().fold(0, |sum, (_, events)| sum.saturating_add(*events))
    }
}

impl Serialize for Losses {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        self.0.iter().try_for_each(|(cause, events)| map.serialize_entry(cause, events))?;
        map.end()
    }
}

impl<'de> Deserialize<'de> for Losses {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Causes;

        impl<'de> Visitor<'de> for Causes {
            type Value = Losses;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("counts by cause")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Losses, A::Error> {
                let mut causes = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    causes.push(entry);
                }
                Ok(Losses(causes))
            }
        }

        deserializer.deserialize_map(Causes)
    }
}

/// Tells a member that is `null` from one that is not there.
#[expect(clippy::option_option, reason = "the outer one says whether the member is there")]
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Option<u64>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_false(flag: &bool) -> bool {
    !flag
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl Ledger {
    /// Parses the option's bytes. `None` if they are no ledger.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let end = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        let mut ledger: Self = serde_json::from_slice(&bytes[..end]).ok()?;
        ledger.leaves_out_interrupts |= ledger.version < 3 && ledger.imported.is_none();
        let cut_short = ledger.cut_short();
        for cpu in &mut ledger.cpus {
            // Version 1 has no word about it.
            cpu.missing = cut_short.is_some().then(|| cpu.missing.unwrap_or_default());
        }
        Some(ledger)
    }

    /// The ledger of a file. `None` if its recorder was another one.
    pub fn of<S: Source>(reader: &Reader<S>) -> Option<Self> {
        Self::all_of(reader).next()
    }

    /// The ledgers of a file: one for each recording that it was merged of, as far as that has one.
    pub fn all_of<S: Source>(reader: &Reader<S>) -> impl Iterator<Item = Self> {
        reader.facts().filter_map(|fact| match fact {
            FileOption::Unknown { id, bytes } if *id == OptionId::LEDGER => Self::parse(bytes),
            _ => None,
        })
    }

    /// The option's bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        // Neither maps with keys that are no texts nor writing to memory fail.
        let mut bytes = serde_json::to_vec(self).unwrap_or_default();
        bytes.push(0);
        bytes
    }

    /// What kept the recording from coming to its end: then its rings were not emptied, and what was in them
    /// is missing. `None` if only its file had not been made.
    pub fn cut_short(&self) -> Option<CutShort> {
        self.recovered.and_then(|recovered| recovered.ended.cut_short())
    }

    /// A count of all CPUs and buffers, as far as it is known.
    pub fn sum(&self, count: impl Fn(&LedgerCpu) -> Option<u64>) -> u64 {
        self.cpus.iter().filter_map(count).fold(0, u64::saturating_add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ledger_is_taken_apart() {
        let text = "{\"version\":1,\"cpus\":[{\"cpu\":3,\"recorded\":20,\"stored\":17,\
                    \"lost\":{\"ring_full\":3,\"nested\":0}},{\"cpu\":4}],\"events\":[]}";
        let ledger = Ledger::parse(text.as_bytes()).unwrap();
        let lost = Losses(vec![("ring_full".to_owned(), 3), ("nested".to_owned(), 0)]);
        assert_eq!((lost.total(), ledger.cut_short(), ledger.sum(|cpu| cpu.stored)), (3, None, 17));
        let first = LedgerCpu { cpu: 3, recorded: Some(20), stored: Some(17), lost, ..LedgerCpu::default() };
        assert_eq!(ledger.cpus, [first, LedgerCpu { cpu: 4, ..LedgerCpu::default() }]);
        for text in ["", "{}", "{\"cpus\":1}", "{\"cpus\":[{}]}", "{\"cpus\":[{\"cpu\":4294967296}]}"] {
            assert_eq!(Ledger::parse(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn what_was_cut_short_is_known() {
        let ledger = |recovered: &str, cpu: &str| {
            let text = format!("{{\"version\":2,\"recovered\":{recovered},\"cpus\":[{{\"cpu\":0{cpu}}}]}}");
            let ledger = Ledger::parse(text.as_bytes()).unwrap();
            (ledger.cut_short(), ledger.cpus[0].missing)
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
        assert_eq!(ledger("{\"ended\":\"in a way of the future\"}", "").0, Some(CutShort::Unknown));
    }

    #[test]
    fn ledgers_before_version_3_leave_out_interrupts() {
        let of = |members: &str| {
            let ledger = Ledger::parse(format!("{{{members}\"cpus\":[]}}").as_bytes()).unwrap();
            ledger.leaves_out_interrupts
        };
        assert!(of("") && of("\"version\":1,") && of("\"version\":2,"));
        assert!(!of("\"version\":3,") && !of("\"version\":2,\"imported\":\"perf\","));
        assert!(of("\"version\":3,\"leaves_out_interrupts\":true,"));
    }

    #[test]
    fn what_is_written_is_read_again() {
        let lost = Losses(vec![("ring_full".to_owned(), 3)]);
        let cpus = [Some(None), Some(Some(7)), None].map(|capped| LedgerCpu {
            capped,
            lost: lost.clone(),
            missing: Some(Missing { at_least: None, since: Some(5), counted: None }),
            ..LedgerCpu::default()
        });
        let event = LedgerEvent {
            event: "a:b".to_owned(),
            lost_on: BTreeMap::from([(3, vec![3])]),
            lost,
            ..LedgerEvent::default()
        };
        let ledger = Ledger {
            version: VERSION,
            recovered: Some(Recovered { ended: End::Killed, overwrite: None, unreadable_bytes: 9 }),
            cpus: cpus.into(),
            events: Some(vec![event]),
            ..Ledger::default()
        };
        assert_eq!(Ledger::parse(&ledger.to_bytes()), Some(ledger.clone()));
        let choice = EventChoice {
            event: "a:b".to_owned(),
            every_thread: true,
            filter: Some("c == 1".to_owned()),
            is_sampled: true,
            ..EventChoice::default()
        };
        let ledger = Ledger { events: None, choices: vec![choice], ..ledger };
        assert_eq!(Ledger::parse(&ledger.to_bytes()), Some(ledger));
    }
}
