//! The conditions that a recording was made under, as text for formats of others.
//!
//! Most formats have places for events, and none for the machine, the clock, the choice of threads and
//! events, or the names of buffers. [`Provenance`] has these, and is the one list of them: exporters write it
//! as short texts with names ([`Provenance::texts`]), wherever their format has room for such (the
//! environment of a CTF trace, comments of a text), and importers read them again ([`Texts`]).
//!
//! A member is JSON in ASCII, in pieces of at most [`PIECE`] bytes: `recording_clock_0`,
//! `recording_threads_0`, `recording_threads_1`. Members that a reader does not know are ignored.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write as _};

use serde::de::{Error as _, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer as _, Serialize};

use super::initial_state::Host;
use super::ledger::Ledger;

/// The beginning of all names.
pub const PREFIX: &str = "recording_";
/// Most bytes of a piece.
pub const PIECE: usize = 4000;
/// Most bytes of a member.
const MAX_MEMBER: usize = 8 << 20;
/// Most pieces of a member that are read: more than are written.
const MAX_PIECES: usize = 2 * MAX_MEMBER / PIECE;
/// Most threads that are written: their texts then have less than [`MAX_MEMBER`] bytes.
const MAX_THREADS: usize = 1 << 17;
/// Most buffers that are read.
const MAX_BUFFERS: usize = 1 << 12;
/// Most events that are read: numbers of events have 16 bits.
const MAX_EVENTS: usize = 1 << 16;
/// Most ledgers that are written and read.
const MAX_LEDGERS: usize = 1 << 12;

/// The conditions that a recording was made under. Members that are not known are empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Provenance {
    /// The clock of the records.
    pub clock: Option<ClockOrigin>,
    /// The machine and its kernel.
    pub machine: Option<Machine>,
    /// The program that recorded.
    pub recorder: Option<Recorder>,
    /// The buffers, in their order.
    pub buffers: Vec<BufferName>,
    /// Events whose names in the format do not tell those in the recording.
    pub events: Vec<EventName>,
    /// Threads with their names and processes.
    pub threads: Threads,
    /// The ledgers, of which importers take the choices of threads, CPUs and events, and the counts of events
    /// that were left out. Times are those of the records. [`Ledger::unknown`] stands for those that are
    /// damaged or too many.
    pub ledgers: Vec<Ledger>,
}

/// A clock and its distance to wall time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ClockOrigin {
    /// ftrace's name for it.
    pub name: String,
    /// Nanoseconds to add to times for those since 1970; `None` if unknown, which 0 is not.
    pub wall_offset_ns: Option<i64>,
    /// The error of that, at most.
    pub uncertainty_ns: Option<u64>,
}

/// A machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Machine {
    /// Its name, its kernel and its identity.
    pub host: Host,
    /// Number of its CPUs.
    pub cpus: Option<u32>,
}

/// A program that records.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Recorder {
    /// Its name and version.
    pub version: String,
}

/// The words between an importer and the recorder, in the version that a file names.
const IMPORTED_FROM: &str = ", imported from ";

impl Recorder {
    /// The version of a file that `importer` made of what `recorder` recorded.
    pub fn imported(importer: &str, recorder: &str) -> String {
        format!("{importer}{IMPORTED_FROM}{recorder}")
    }

    /// The recorder in the version of a file, without those that imported it.
    pub fn first(version: &str) -> &str {
        version.rsplit_once(IMPORTED_FROM).map_or(version, |(_, first)| first)
    }
}

/// A buffer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct BufferName {
    /// Its name in the recording; empty for the one that every file has.
    pub name: String,
    /// Its name in the format, if that has another one.
    pub renamed: String,
}

/// An event.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct EventName {
    /// Its system in the recording.
    pub system: String,
    /// Its name there.
    pub name: String,
    /// Its name in the format.
    pub renamed: String,
}

impl EventName {
    /// The events by their names in the format, without names that several have.
    pub fn unambiguous(events: impl IntoIterator<Item = Self>) -> BTreeMap<String, (String, String)> {
        let mut all = BTreeMap::<String, BTreeSet<(String, String)>>::new();
        for Self { system, name, renamed } in events {
            all.entry(renamed).or_default().insert((system, name));
        }
        let only = |(renamed, mut of): (String, BTreeSet<(String, String)>)| {
            (of.len() == 1).then_some((renamed, of.pop_first()?))
        };
        all.into_iter().filter_map(only).collect()
    }
}

/// Threads.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Threads {
    /// Whether the names are those at the start: events may tell later ones.
    pub at_start: bool,
    /// The threads, by their numbers.
    pub list: Vec<ThreadName>,
}

/// A thread: its number, the number of its process (0 if unknown), and its name, with bytes that are no UTF-8
/// as `\xHH` ([`stdx::escapes`]).
pub type ThreadName = (u32, u32, String);

/// Members as texts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Names and values.
    pub texts: Vec<(String, String)>,
    /// Threads that are not among them, because there are too many.
    pub threads_left_out: u64,
    /// Members that are not among them, because they are too long.
    pub left_out: Vec<&'static str>,
}

impl Provenance {
    /// All members as texts.
    pub fn texts(&self) -> Written {
        let Self { clock, machine, recorder, buffers, events, threads, ledgers } = self;
        let Threads { at_start, list } = threads;
        let some = list.get(..MAX_THREADS).unwrap_or(list);
        let mut written =
            Written { threads_left_out: (list.len() - some.len()) as u64, ..Written::default() };
        if let Some(clock) = clock {
            written.add_or_leave_out("clock", clock);
        }
        if let Some(machine) = machine {
            written.add_or_leave_out("machine", machine);
        }
        if let Some(recorder) = recorder {
            written.add_or_leave_out("recorder", recorder);
        }
        if !buffers.is_empty() {
            written.add_or_leave_out("buffers", buffers);
        }
        if !events.is_empty() {
            written.add_or_leave_out("events", events);
        }
        if !some.is_empty() {
            let threads = Threads { at_start: *at_start, list: some.to_vec() };
            written.add_or_leave_out("threads", &threads);
        }
        if !ledgers.is_empty() {
            let is_added = ledgers.len() <= MAX_LEDGERS && written.add("ledgers", ledgers);
            if !is_added {
                written.left_out.push("ledgers");
                // Without any, readers would take the recording for one of all threads.
                written.add("ledgers", &[Ledger::unknown()]);
            }
        }
        written
    }
}

impl Written {
    fn add_or_leave_out(&mut self, name: &'static str, member: &impl Serialize) {
        if !self.add(name, member) {
            self.left_out.push(name);
        }
    }

    /// Adds a member, unless it is too long.
    fn add(&mut self, name: &str, member: &impl Serialize) -> bool {
        // Neither maps with keys that are no texts nor writing to memory fail.
        let text = ascii(&serde_json::to_string(member).unwrap_or_default());
        if text.len() > MAX_MEMBER {
            return false;
        }
        let mut rest = text.as_str();
        for number in 0.. {
            // All characters have one byte.
            let (piece, more) = rest.split_at(rest.len().min(PIECE));
            self.texts.push((format!("{PREFIX}{name}_{number}"), piece.to_owned()));
            rest = more;
            if rest.is_empty() {
                break;
            }
        }
        true
    }
}

/// The same JSON with what is no printable ASCII escaped: such stands in its texts only.
fn ascii(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for c in json.chars() {
        if matches!(c, ' '..='~') {
            text.push(c);
        } else {
            for unit in c.encode_utf16(&mut [0; 2]) {
                let _ = write!(text, "\\u{unit:04x}"); // a String takes everything
            }
        }
    }
    text
}

/// Texts that an importer finds in its source, which anybody may have written.
#[derive(Debug, Default)]
pub struct Texts {
    members: BTreeMap<&'static str, Member>,
}

/// A member, as far as its pieces came.
#[derive(Debug, Default)]
struct Member {
    /// By their numbers: a source may have them in any order, as the environment of CTF 2 has none.
    pieces: BTreeMap<usize, String>,
    /// Bytes of all of them.
    len: usize,
    /// A piece came twice, or it is too long.
    is_broken: bool,
}

/// The names of members.
const MEMBERS: [&str; 7] = ["clock", "machine", "recorder", "buffers", "events", "threads", "ledgers"];

impl Texts {
    /// Takes a text. Gives whether its name is that of a member.
    pub fn add(&mut self, name: &str, value: &str) -> bool {
        let piece = name.strip_prefix(PREFIX).and_then(|name| name.rsplit_once('_'));
        let known = piece.and_then(|(name, number)| {
            Some((MEMBERS.iter().copied().find(|known| *known == name)?, number.parse::<usize>().ok()?))
        });
        let Some((name, number)) = known else { return false };
        let member = self.members.entry(name).or_default();
        member.len = member.len.saturating_add(value.len());
        member.is_broken |= member.len > MAX_MEMBER || number >= MAX_PIECES;
        if !member.is_broken {
            member.is_broken = member.pieces.insert(number, value.to_owned()).is_some();
        }
        true
    }

    /// Whether there are any.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// The members, and the names of those that are damaged.
    pub fn finish(self) -> (Provenance, Vec<&'static str>) {
        let (mut all, mut damaged) = (Provenance::default(), Vec::new());
        for (name, Member { pieces, is_broken, .. }) in self.members {
            let is_whole = !is_broken && pieces.keys().copied().eq(0..pieces.len());
            let is_taken = is_whole && all.take(name, &pieces.into_values().collect::<String>());
            if !is_taken {
                damaged.push(name);
                if name == "ledgers" {
                    all.ledgers = vec![Ledger::unknown()];
                }
            }
        }
        (all, damaged)
    }
}

/// Reads ledgers, of which there are as many as recordings that a file was merged of.
struct Ledgers;

impl<'t> Visitor<'t> for Ledgers {
    type Value = Vec<Ledger>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at most {MAX_LEDGERS} ledgers")
    }

    fn visit_seq<A: SeqAccess<'t>>(self, mut texts: A) -> Result<Vec<Ledger>, A::Error> {
        let mut ledgers = Vec::new();
        while let Some(ledger) = texts.next_element()? {
            if ledgers.len() == MAX_LEDGERS {
                return Err(A::Error::invalid_length(MAX_LEDGERS + 1, &self));
            }
            ledgers.push(ledger);
        }
        Ok(ledgers)
    }
}

impl Provenance {
    /// Takes a member. Gives whether it is one.
    fn take(&mut self, name: &str, text: &str) -> bool {
        fn read<'t, T: Deserialize<'t>>(text: &'t str, into: &mut T) -> bool {
            serde_json::from_str(text).map(|member| *into = member).is_ok()
        }
        match name {
            "clock" => read(text, &mut self.clock),
            "machine" => read(text, &mut self.machine),
            "recorder" => read(text, &mut self.recorder),
            "buffers" => {
                let is_read = read(text, &mut self.buffers) && self.buffers.len() <= MAX_BUFFERS;
                if !is_read {
                    self.buffers = Vec::new();
                }
                is_read
            }
            "events" => {
                let is_read = read(text, &mut self.events) && self.events.len() <= MAX_EVENTS;
                if !is_read {
                    self.events = Vec::new();
                }
                is_read
            }
            "threads" => read(text, &mut self.threads),
            "ledgers" => {
                let mut text = serde_json::Deserializer::from_str(text);
                let ledgers = text.deserialize_seq(Ledgers).ok().filter(|_| text.end().is_ok());
                let is_read = ledgers.is_some();
                self.ledgers = ledgers.unwrap_or_default();
                is_read
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ledgers_are_bounded() {
        let of = |count: usize| {
            let mut found = Provenance::default();
            let text = format!("[{}]", vec!["{\"cpus\":[]}"; count].join(","));
            (found.take("ledgers", &text), found.ledgers.len())
        };
        assert_eq!(of(MAX_LEDGERS), (true, MAX_LEDGERS));
        assert_eq!(of(MAX_LEDGERS + 1), (false, 0));
        assert!(!Provenance::default().take("ledgers", "[] []"));
    }

    #[test]
    fn of_too_many_ledgers_the_choice_is_unknown() {
        let of = |ledgers| Provenance { ledgers, ..Provenance::default() };
        // Rotated files of an hour, and more.
        let all = of(vec![Ledger::default(); 65]);
        assert_eq!(read(&all.texts().texts), (all.clone(), vec![]));
        let long = Ledger { only: vec!["x".repeat(MAX_MEMBER)], ..Ledger::default() };
        for ledgers in [vec![Ledger::default(); MAX_LEDGERS + 1], vec![long]] {
            let written = of(ledgers).texts();
            assert_eq!(written.left_out, ["ledgers"]);
            assert_eq!(read(&written.texts).0.ledgers, [Ledger::unknown()]);
        }
    }

    use crate::ledger::{LedgerCpu, LedgerEvent};

    fn whole() -> Provenance {
        let event = LedgerEvent {
            event: "a:b".into(),
            filter: Some("c == \"ä\u{7f}\"".into()),
            ..LedgerEvent::default()
        };
        let ledger = Ledger {
            only: vec!["the command".into()],
            cpus: vec![LedgerCpu { cpu: 1, filtered: Some(u64::MAX), ..LedgerCpu::default() }],
            events: Some(vec![event]),
            ..Ledger::default()
        };
        Provenance {
            clock: Some(ClockOrigin { name: "mono".into(), wall_offset_ns: Some(0), uncertainty_ns: None }),
            machine: Some(Machine {
                host: Host { hostname: "\u{1f600}\n\"\\".into(), ..Host::default() },
                cpus: Some(4),
            }),
            recorder: Some(Recorder { version: "r 1".into() }),
            buffers: vec![BufferName::default(), BufferName { name: "a/b".into(), renamed: "a_b".into() }],
            events: vec![EventName { system: "a".into(), name: "b".into(), renamed: "a_b".into() }],
            threads: Threads {
                at_start: true,
                list: (0..3000).map(|tid| (tid, tid / 2, format!("t{tid}\\xff"))).collect(),
            },
            ledgers: vec![ledger],
        }
    }

    fn read(texts: &[(String, String)]) -> (Provenance, Vec<&'static str>) {
        let mut found = Texts::default();
        for (name, value) in texts {
            assert!(found.add(name, value), "{name}");
        }
        found.finish()
    }

    #[test]
    fn all_members_can_be_read_back() {
        let written = whole().texts();
        assert!(written.texts.len() > MEMBERS.len(), "in pieces");
        for (name, value) in &written.texts {
            assert!(value.len() <= PIECE && value.bytes().all(|byte| matches!(byte, b' '..=b'~')), "{name}");
        }
        assert_eq!(read(&written.texts), (whole(), vec![]));
        // As readers have them that keep names in order: `_10` stands before `_2`.
        let mut sorted = written.texts.clone();
        sorted.sort();
        assert_ne!(sorted, written.texts);
        assert_eq!(read(&sorted), (whole(), vec![]));
        assert_eq!(Provenance::default().texts(), Written::default());
        assert_eq!(read(&[]), (Provenance::default(), vec![]));
    }

    #[test]
    fn the_first_recorder_stays() {
        let once = Recorder::imported("b 2", "a 1");
        let twice = Recorder::imported("b 3", Recorder::first(&once));
        assert_eq!((Recorder::first(&twice), Recorder::first("a 1")), ("a 1", "a 1"));
    }

    #[test]
    fn members_that_are_damaged_are_named_and_the_others_stay() {
        let mut texts = whole().texts().texts;
        let threads = texts.iter().position(|(name, _)| name == "recording_threads_1").unwrap();
        texts.remove(threads);
        texts[0].1 = "{\"name\":7}".into();
        let (read, damaged) = read(&texts);
        assert_eq!(damaged, ["clock", "threads"]);
        assert_eq!(read, Provenance { clock: None, threads: Threads::default(), ..whole() });
    }

    #[test]
    fn texts_of_others_are_none_and_no_member_is_too_long() {
        let mut found = Texts::default();
        for name in ["hostname", "recording_", "recording_clock", "recording_clock_x", "recording_other_0"] {
            assert!(!found.add(name, "{}"), "{name}");
        }
        assert!(found.is_empty());
        let long = "x".repeat(MAX_MEMBER / 2 + 1);
        assert!(found.add("recording_buffers_0", &long) && found.add("recording_buffers_1", &long));
        assert!(found.members["buffers"].pieces.values().map(String::len).sum::<usize>() < MAX_MEMBER);
        assert_eq!(found.finish(), (Provenance::default(), vec!["buffers"]));
        let of = |list| Provenance { threads: Threads { at_start: false, list }, ..Provenance::default() };
        assert_eq!(of(vec![(1, 1, String::new()); MAX_THREADS + 3]).texts().threads_left_out, 3);
        let long = of(vec![(1, 1, "x".repeat(MAX_MEMBER))]).texts();
        assert_eq!((long.texts.len(), long.left_out), (0, vec!["threads"]));
        let mut found = Texts::default();
        for number in [0, MAX_PIECES] {
            assert!(found.add(&format!("recording_buffers_{number}"), "[]"));
        }
        assert_eq!(found.members["buffers"].pieces.len(), 1);
        assert_eq!(found.finish(), (Provenance::default(), vec!["buffers"]));
        let deep = "[".repeat(100_000);
        let mut found = Texts::default();
        found.add("recording_ledgers_0", &deep);
        let unknown = Provenance { ledgers: vec![Ledger::unknown()], ..Provenance::default() };
        assert_eq!(found.finish(), (unknown, vec!["ledgers"]));
    }
}
