//! Differences of two recordings.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use serde::Serialize;

use super::{Pace, Watch, json};
use ftrace_event::{Format, Printer};
use report::TraceFile;
use tracedat::reader::{ReadError, Source};

/// What is compared besides formats, counts and losses.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is chosen by itself")]
pub struct Options {
    /// Formats.
    pub formats: bool,
    /// Event counts, by type and by CPU.
    pub counts: bool,
    /// Lost events, by CPU.
    pub losses: bool,
    /// Field values, record by record: the nth one of an event, CPU and thread with the nth one of the other
    /// recording.
    pub values: bool,
    /// Fields whose values are not compared.
    pub ignored: BTreeSet<String>,
    /// Most records that wait for their counterparts.
    pub most_waiting: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            formats: true,
            counts: true,
            losses: true,
            values: false,
            ignored: BTreeSet::new(),
            most_waiting: 1 << 18,
        }
    }
}

/// Two different numbers: of the first recording and of the second.
pub type Both = (u64, u64);

/// Records of an event in a thread that have no counterpart yet.
type Waiting = VecDeque<Box<[u8]>>;

/// The differences. Events are named `system:name`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Diff {
    /// Events only in the first recording.
    pub only_first: Vec<String>,
    /// Events only in the second one.
    pub only_second: Vec<String>,
    /// Events whose formats differ, and the differences.
    pub formats: BTreeMap<String, Vec<String>>,
    /// Events with different counts.
    pub counts: BTreeMap<String, Both>,
    /// Buffers and CPUs with different numbers of events.
    #[serde(serialize_with = "json::cpus")]
    pub cpus: BTreeMap<(String, u32), Both>,
    /// Buffers and CPUs with different numbers of lost events.
    #[serde(serialize_with = "json::cpus")]
    pub losses: BTreeMap<(String, u32), Both>,
    /// Pairs of records that were compared.
    pub pairs: u64,
    /// Pairs that differ in a field, by event and field, and the first of them.
    #[serde(serialize_with = "json::values")]
    pub values: BTreeMap<(String, String), (u64, String)>,
    /// Records without a counterpart: of the first recording and of the second.
    pub alone: BTreeMap<String, Both>,
    /// Records that were not compared because too many were waiting.
    pub not_compared: u64,
    /// Pages and chunks that could not be read, of both.
    pub damaged: u64,
}

impl Diff {
    /// Compares two recordings.
    ///
    /// # Errors
    /// A file that cannot be read.
    pub fn of<S: Source>(
        first: &TraceFile<S>,
        second: &TraceFile<S>,
        options: &Options,
        watch: Watch<'_>,
    ) -> Result<Self, ReadError> {
        let mut diff = Self::default();
        if options.formats {
            diff.compare_formats(first, second);
        }
        if options.counts || options.losses {
            diff.compare_counts(first, second, options);
        }
        if options.values {
            diff.compare_values(first, second, options, &mut Pace::new(watch))?;
        }
        Ok(diff)
    }

    /// Whether there are no differences.
    pub fn is_empty(&self) -> bool {
        let Self {
            only_first,
            only_second,
            formats,
            counts,
            cpus,
            losses,
            pairs: _,
            values,
            alone,
            not_compared,
            damaged,
        } = self;
        only_first.is_empty()
            && only_second.is_empty()
            && formats.is_empty()
            && counts.is_empty()
            && cpus.is_empty()
            && losses.is_empty()
            && values.is_empty()
            && alone.is_empty()
            && *not_compared == 0
            && *damaged == 0
    }

    fn compare_formats<S: Source>(&mut self, first: &TraceFile<S>, second: &TraceFile<S>) {
        let (first, second) = (by_name(first), by_name(second));
        let only = |these: &BTreeMap<String, &Printer>, others: &BTreeMap<String, &Printer>| {
            these.keys().filter(|name| !others.contains_key(*name)).cloned().collect()
        };
        self.only_first = only(&first, &second);
        self.only_second = only(&second, &first);
        for (name, one) in &first {
            if let Some(other) = second.get(name) {
                let differences = format_differences(one.format(), other.format());
                if !differences.is_empty() {
                    self.formats.insert(name.clone(), differences);
                }
            }
        }
    }

    fn compare_counts<S: Source>(&mut self, first: &TraceFile<S>, second: &TraceFile<S>, options: &Options) {
        let mut events: BTreeMap<String, Both> = BTreeMap::new();
        let mut cpus: BTreeMap<(String, u32), Both> = BTreeMap::new();
        let mut losses: BTreeMap<(String, u32), Both> = BTreeMap::new();
        let sides: [fn(&mut Both) -> &mut u64; 2] = [|both| &mut both.0, |both| &mut both.1];
        for (file, side) in [first, second].into_iter().zip(sides) {
            for (index, buffer) in file.reader().buffers().iter().enumerate() {
                let counts = file.reader().count(index);
                for (id, count) in counts.by_id {
                    *side(events.entry(event_name(file, id)).or_default()) += count;
                }
                for cpu in counts.cpus {
                    let key = (buffer.name.clone(), cpu.cpu);
                    *side(cpus.entry(key.clone()).or_default()) += cpu.events;
                    let lost = side(losses.entry(key).or_default());
                    let behind = cpu.missed_behind.unwrap_or(0);
                    *lost = lost.saturating_add(cpu.missed_events).saturating_add(behind);
                    self.damaged += cpu.damaged;
                }
            }
            for (buffer, cpu, of_cpu) in file.reader().losses().iter() {
                let lost = side(losses.entry((buffer.to_owned(), cpu)).or_default());
                for events in [of_cpu.before, of_cpu.behind].into_iter().flatten() {
                    *lost = lost.saturating_add(events);
                }
            }
        }
        if options.counts {
            self.counts = unequal(events);
            self.cpus = unequal(cpus);
        }
        if options.losses {
            self.losses = unequal(losses);
        }
    }

    /// Compares the records of each buffer and CPU in step, so that few have to wait for their partner.
    fn compare_values<S: Source>(
        &mut self,
        first: &TraceFile<S>,
        second: &TraceFile<S>,
        options: &Options,
        pace: &mut Pace<'_>,
    ) -> Result<(), ReadError> {
        let names = |file: &TraceFile<S>| -> BTreeMap<(String, u32), usize> {
            let buffers = file.reader().buffers().iter().enumerate();
            buffers
                .flat_map(|(index, buffer)| {
                    buffer.cpus.iter().map(move |cpu| ((buffer.name.clone(), cpu.cpu), index))
                })
                .collect()
        };
        let (firsts, seconds) = (names(first), names(second));
        let all: BTreeSet<_> = firsts.keys().chain(seconds.keys()).cloned().collect();
        let events = (by_name(first), by_name(second));
        for stream in all {
            let files = [first, second];
            let mut streams = [None, None];
            for (side, buffers) in [&firsts, &seconds].into_iter().enumerate() {
                if let Some(buffer) = buffers.get(&stream) {
                    streams[side] = Some(files[side].reader().cpu_records(*buffer, stream.1)?);
                }
            }
            let mut waiting: HashMap<(String, u32), [Waiting; 2]> = HashMap::new();
            let mut held = 0;
            while streams.iter().any(Option::is_some) {
                for side in 0..2 {
                    let Some(records) = &mut streams[side] else { continue };
                    let record = match records.next_record() {
                        Ok(Some(record)) => record,
                        Ok(None) => {
                            streams[side] = None;
                            continue;
                        }
                        Err(_) => {
                            self.damaged += 1;
                            continue;
                        }
                    };
                    pace.step(record.timestamp);
                    let Some(id) = record.event_id() else { continue };
                    let name = event_name(files[side], id);
                    let pid = record.data.get(4..8).and_then(<[u8]>::first_chunk);
                    let pid = pid.map_or(0, |bytes| record.endian.read_u32(*bytes));
                    let queues = waiting.entry((name.clone(), pid)).or_default();
                    if let Some(partner) = queues[1 - side].pop_front() {
                        held -= 1;
                        let pair =
                            if side == 0 { (record.data, &*partner) } else { (&*partner, record.data) };
                        if let (Some(one), Some(other)) = (events.0.get(&name), events.1.get(&name)) {
                            self.compare_records(&name, (one, pair.0), (other, pair.1), options);
                        }
                    } else if held < options.most_waiting {
                        held += 1;
                        queues[side].push_back(record.data.into());
                    } else {
                        self.not_compared += 1;
                    }
                }
            }
            for ((name, _), queues) in waiting {
                let [one, other] = queues.map(|queue| queue.len() as u64);
                if one + other != 0 {
                    let alone = self.alone.entry(name).or_default();
                    alone.0 += one;
                    alone.1 += other;
                }
            }
        }
        Ok(())
    }

    fn compare_records(
        &mut self,
        name: &str,
        (one, one_record): (&Printer, &[u8]),
        (other, other_record): (&Printer, &[u8]),
        options: &Options,
    ) {
        self.pairs += 1;
        for (field, values) in differing_fields((one, one_record), (other, other_record)) {
            if options.ignored.contains(field) {
                continue;
            }
            let found = self.values.entry((name.to_owned(), field.to_owned())).or_insert_with(|| (0, values));
            found.0 += 1;
        }
    }
}

/// The fields in which two records of an event differ, and both values as text. `common_type` is left out,
/// for it is the kernel's choice; fields that only one format has are no difference of values.
pub fn differing_fields<'p>(
    (one, one_record): (&'p Printer, &'p [u8]),
    (other, other_record): (&'p Printer, &'p [u8]),
) -> impl Iterator<Item = (&'p str, String)> {
    one.common_fields(one_record).chain(one.fields(one_record)).filter_map(move |(field, value)| {
        if field.name == "common_type" {
            return None;
        }
        let partner = other.value(other.field_index(&field.name)?, other_record)?;
        let text = |value: Result<ftrace_event::Value<'_>, _>| {
            value.map_or_else(|_| "?".to_owned(), |v| v.to_string())
        };
        // Addresses and byte orders may be written differently; what they say counts.
        let (value, partner) = (text(value), text(partner));
        (value != partner).then(|| (field.name.as_str(), format!("{value} and {partner}")))
    })
}

fn by_name<S: Source>(file: &TraceFile<S>) -> BTreeMap<String, &Printer> {
    file.events().iter().map(|event| (format!("{}:{}", event.system(), event.name()), event)).collect()
}

fn event_name<S: Source>(file: &TraceFile<S>, id: u16) -> String {
    match file.events().get(id) {
        Some(event) => format!("{}:{}", event.system(), event.name()),
        None => format!("unknown:{id}"),
    }
}

fn unequal<K: Ord>(numbers: BTreeMap<K, Both>) -> BTreeMap<K, Both> {
    numbers.into_iter().filter(|(_, (one, other))| one != other).collect()
}

/// In what two formats differ, as sentences. Numbers of events are the kernel's choice and no difference.
fn format_differences(one: &Format, other: &Format) -> Vec<String> {
    let mut differences = Vec::new();
    let fields = |format: &Format| -> BTreeMap<String, String> {
        let all = format.common.iter().chain(&format.fields);
        all.map(|field| {
            let signed = u8::from(field.signed);
            (
                field.name.clone(),
                format!("{field}; offset:{} size:{} signed:{signed}", field.offset, field.size),
            )
        })
        .collect()
    };
    let (ones, others) = (fields(one), fields(other));
    for (name, text) in &ones {
        match others.get(name) {
            None => differences.push(format!("field {name} is only in the first")),
            Some(other) if other != text => differences.push(format!("field {name}: {text} | {other}")),
            Some(_) => {}
        }
    }
    for name in others.keys().filter(|name| !ones.contains_key(*name)) {
        differences.push(format!("field {name} is only in the second"));
    }
    if one.print_fmt != other.print_fmt {
        differences.push("print fmt".to_owned());
    }
    differences
}
