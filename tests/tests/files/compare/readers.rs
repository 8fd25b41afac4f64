//! What the readers of other tools find in exports.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use integration_tests::chromium::Chromium;
use integration_tests::ctf::{self, Event, Trace};
use integration_tests::harness::run;
use integration_tests::{babeltrace, duckdb, eventdefs_reader, ltt2008_reader, perfetto, trace_processor};
use serde_json::{Map, Value, json};
use stdx::escapes;

use super::recordings::{OWN, WALL};
use super::truth::{Facet, Loss, Row, Told, choices, equal, number};

/// Fields that are sets of bits.
pub(super) const BITS: [&str; 2] = ["cpus", "mask"];

fn integer(number: i128) -> Value {
    i64::try_from(number).map(Value::from).or_else(|_| u64::try_from(number).map(Value::from)).unwrap()
}

fn lossy(text: &[u8]) -> Value {
    Value::from(String::from_utf8_lossy(text).into_owned())
}

/// `system:event`, or what stands before another sign.
fn named(row: &mut Row, name: &str, sign: &str) {
    let (system, event) = name.split_once(sign).unwrap_or_else(|| panic!("{name}"));
    row.insert(Facet::System, json!(system));
    row.insert(Facet::Event, json!(event));
}

/// Numbers of the bits that are set in words of so many bits.
pub(super) fn bits(words: &[Value], size: u32) -> Value {
    let set = words.iter().enumerate().flat_map(|(index, word)| {
        let word = number(word).unwrap();
        (0..size)
            .filter(move |bit| word >> bit & 1 == 1)
            .map(move |bit| index as u64 * u64::from(size) + u64::from(bit))
    });
    set.collect()
}

/// Numbers in ranges: `0-3,7`.
fn ranges(text: &str) -> Option<Value> {
    let mut all = Vec::new();
    for range in text.split(',').filter(|range| !range.is_empty()) {
        let (from, to) = range.split_once('-').unwrap_or((range, range));
        all.extend(from.parse::<u64>().ok()?..=to.parse::<u64>().ok()?);
    }
    Some(json!(all))
}

/// Numbers as texts for people have them: `{1,-2}`, sets of bits as ranges.
fn printed_list(text: &str) -> Option<Value> {
    let Some(list) = text.strip_prefix('{') else { return ranges(text) };
    let list = list.strip_suffix('}')?;
    let numbers = list.split(',').filter(|number| !number.is_empty());
    let value = |text: &str| match text.strip_prefix("0x") {
        Some(_) => Some(json!(text)),
        None => Some(integer(text.parse().ok()?)),
    };
    numbers.map(value).collect()
}

/// Values of records as they are.
pub(super) fn as_they_are(_: Facet, _: &Row, found: &Value, told: &Value) -> bool {
    equal(found, told)
}

fn ctf_value(value: &ctf::Value) -> Value {
    match value {
        ctf::Value::Number(number, _) => integer(*number),
        ctf::Value::Text(text) => lossy(text),
        ctf::Value::List(list) => list.iter().map(ctf_value).collect(),
    }
}

fn ctf_fields(event: &Event) -> Map<String, Value> {
    let fields =
        event.fields.iter().filter(|(name, _)| !(name.starts_with('_') && name.ends_with("_length")));
    fields
        .map(|(name, value)| {
            let value = ctf_value(value);
            match value {
                Value::Array(bytes) if BITS.contains(&&**name) => (name.clone(), bits(&bytes, 8)),
                value => (name.clone(), value),
            }
        })
        .collect()
}

/// The members of a recording's provenance, of the texts that an export has of it.
struct Described(BTreeMap<String, Value>);

impl Described {
    fn of<'t>(texts: impl Iterator<Item = (&'t str, &'t str)>) -> Self {
        let mut pieces = BTreeMap::<String, BTreeMap<u32, &str>>::new();
        for (name, piece) in texts {
            let Some((member, number)) =
                name.strip_prefix("recording_").and_then(|name| name.rsplit_once('_'))
            else {
                continue;
            };
            pieces.entry(member.to_owned()).or_default().insert(number.parse().unwrap(), piece);
        }
        let parse =
            |pieces: BTreeMap<u32, &str>| pieces.into_values().collect::<String>().parse::<Value>().unwrap();
        Self(pieces.into_iter().map(|(member, pieces)| (member, parse(pieces))).collect())
    }

    fn member(&self, name: &str) -> &Value {
        self.0.get(name).unwrap_or(&Value::Null)
    }

    /// What is about the whole recording.
    fn whole(&self) -> Row {
        let ledger = &self.member("ledgers")[0];
        let host = self.member("machine")["host"]["hostname"].as_str();
        Row::from([
            (Facet::Wall, self.member("clock")["wall_offset_ns"].clone()),
            (Facet::Host, json!(host.filter(|host| !host.is_empty()))),
            (Facet::Scope, ledger.get("only").cloned().unwrap_or(json!([]))),
            (Facet::Choices, choices(ledger)),
        ])
    }

    /// Puts the names of threads into records.
    fn name_threads(&self, rows: &mut [Row]) {
        let threads = self.member("threads")["list"].as_array();
        let names = threads.into_iter().flatten();
        let names: BTreeMap<i64, String> = names
            .map(|thread| (thread[0].as_i64().unwrap(), unescaped(thread[2].as_str().unwrap())))
            .filter(|(_, name)| !name.is_empty())
            .collect();
        for row in rows {
            let tid = row[&Facet::Thread].as_i64().unwrap();
            row.insert(Facet::Comm, if tid == 0 { json!("<idle>") } else { json!(names.get(&tid)) });
        }
    }
}

/// What babeltrace2 counts of records and losses has to be what our reader has.
fn ctf_read(out: &Path) -> Trace {
    let trace = ctf::read(out);
    let (printed, lost) = babeltrace::printed(out, &[]);
    assert_eq!(printed.lines().count(), trace.events.len());
    assert_eq!(lost, trace.losses.values().flatten().map(|(.., count)| count).sum::<u64>());
    trace
}

fn ctf_told(trace: &Trace, name: fn(&mut Row, &Event)) -> Told {
    let mut told = Told { behind: Some(BTreeMap::new()), sums: Some(BTreeMap::new()), ..Told::default() };
    let buffer = |channel: &str| if channel == "channel0" { String::new() } else { channel.to_owned() };
    let mut losses = trace.losses.clone();
    let mut seen = std::collections::BTreeSet::new();
    for event in trace.events.iter().filter(|event| event.channel != "statedump") {
        let context = |names: [&str; 2]| {
            let found = event.context.iter().find(|(field, _)| names.contains(&&**field));
            ctf_value(&found.unwrap_or_else(|| panic!("{names:?}: {event:?}")).1)
        };
        let losses = losses.entry(format!("{}_{}", event.channel, event.cpu)).or_default();
        // One behind the last record ends with the trace, and begins with that record.
        let is_first = !seen.contains(&(event.channel.clone(), event.cpu));
        let is_before = |(from, to, _): &&ctf::Loss| (is_first || *from < event.time) && *to <= event.time;
        let before = losses.iter().take_while(is_before).count();
        let lost: u64 = losses.drain(..before).map(|(.., count)| count).sum();
        seen.insert((event.channel.clone(), event.cpu));
        told.lose(&buffer(&event.channel), event.cpu.into(), Some(lost));
        let mut row = Row::from([
            (Facet::Cpu, json!(event.cpu)),
            (Facet::Time, json!(event.time)),
            (Facet::Thread, context(["common_pid", "tid"])),
            (Facet::Flags, context(["common_flags"; 2])),
            (Facet::Preempt, context(["common_preempt_count"; 2])),
            (Facet::Buffer, json!(buffer(&event.channel))),
            (Facet::Fields, Value::Object(ctf_fields(event))),
            (Facet::Lost, json!(lost)),
        ]);
        for (facet, context) in
            [(Facet::KernelStack, "callstack_kernel"), (Facet::UserStack, "callstack_user")]
        {
            let found = event.context.iter().find(|(name, _)| name == context);
            let frames = found.map_or(Value::Null, |(_, value)| ctf_value(value));
            // An event without a stack has one without frames where others of its kind have one.
            row.insert(facet, if frames == json!([]) { Value::Null } else { frames });
        }
        name(&mut row, event);
        told.rows.push(row);
    }
    for (file, losses) in losses {
        let (channel, cpu) = file.rsplit_once('_').unwrap();
        let lost = losses.iter().map(|(.., count)| count).sum();
        told.lose_behind(&buffer(channel), cpu.parse().unwrap(), Some(lost));
    }
    let texts = trace.env.iter().map(|(name, text)| (&**name, text.trim_start_matches('"')));
    let described = Described::of(texts);
    described.name_threads(&mut told.rows);
    told.whole = described.whole();
    // Other readers know of these.
    if let Some(offset) = told.whole[&Facet::Wall].as_u64() {
        assert_eq!(trace.clock_offset, offset);
    }
    if let Some(host) = told.whole[&Facet::Host].as_str() {
        assert_eq!(trace.env["hostname"].trim_start_matches('"'), host);
    }
    told
}

pub(super) fn ctf(out: &Path) -> Told {
    ctf_told(&ctf_read(out), |row, event| named(row, &event.name, ":"))
}

/// babeltrace2 reads it from its version 2.1 on, which no distribution that tests run on has.
pub(super) fn ctf2(out: &Path) -> Told {
    ctf_told(&ctf::read(out), |row, event| named(row, &event.name, ":"))
}

/// Events of the kernel have LTTng's names and fields; only those of others are compared.
pub(super) fn lttng(out: &Path) -> Told {
    ctf_told(&ctf_read(out), |row, event| {
        row.insert(Facet::Event, json!(event.name));
    })
}

/// Names and fields of events of the kernel are those of lttng-modules.
pub(super) fn as_lttng_has_it(facet: Facet, row: &Row, found: &Value, told: &Value) -> bool {
    let (system, event) = (row[&Facet::System].as_str().unwrap(), row[&Facet::Event].as_str().unwrap());
    match facet {
        Facet::Event => {
            let found = found.as_str().unwrap();
            let call = ["syscall_entry_", "syscall_exit_"].map(|prefix| found.starts_with(prefix));
            match (system, event) {
                // They are named so beside events of each call.
                ("raw_syscalls", _) if found == format!("raw_syscalls_{event}") => true,
                ("raw_syscalls", "sys_enter") => call[0],
                ("raw_syscalls", "sys_exit") => call[1],
                ("syscalls", _) => {
                    let [of_call, name] = [found, event].map(|name| name.splitn(3, '_').nth(2));
                    of_call == name && call[usize::from(event.starts_with("sys_exit_"))]
                }
                _ => found.ends_with(event.trim_start_matches("mm_")),
            }
        }
        // Contexts are not among the fields.
        Facet::Fields if event == "known" => found["number"] == told["number"],
        // An event of the kernel has the fields of lttng-modules, which other tests compare.
        Facet::Fields if !matches!(system, OWN | "kprobes" | "uprobes" | "ftrace") => found.is_object(),
        _ => as_ctf_has_it(facet, row, found, told),
    }
}

/// A loss of unknown size is one event.
pub(super) fn as_ctf_has_it(facet: Facet, _: &Row, found: &Value, told: &Value) -> bool {
    match facet {
        Facet::Lost if told.is_null() => *found == 1,
        Facet::Fields => {
            let (found, told) = (found.as_object().unwrap(), told.as_object().unwrap());
            found.len() == told.len()
                && told.iter().all(|(name, told)| found.get(name).is_some_and(|found| equal(found, told)))
        }
        _ => equal(found, told),
    }
}

pub(super) fn perfetto(out: &Path) -> Told {
    let trace = perfetto::read(out);
    let mut told = Told::default();
    for (cpu, events) in &trace.events {
        for event in events {
            let mut fields = Map::new();
            for (name, value) in event["fields"].as_object().unwrap() {
                // An element of an array.
                match name.strip_suffix(']').and_then(|name| name.rsplit_once('[')) {
                    Some((array, index)) => {
                        let array = fields.entry(array).or_insert(json!({}));
                        array.as_object_mut().unwrap().insert(index.to_owned(), value.clone());
                    }
                    None => drop(fields.insert(name.clone(), value.clone())),
                }
            }
            for array in fields.values_mut() {
                let Value::Object(elements) = array else { continue };
                *array = (0..elements.len()).map(|index| elements[&index.to_string()].clone()).collect();
            }
            told.rows.push(Row::from([
                (Facet::Cpu, json!(cpu)),
                (Facet::Time, event["timestamp"].clone()),
                (Facet::Thread, event["pid"].clone()),
                (Facet::Flags, event["flags"].clone()),
                (Facet::Event, event["name"].clone()),
                (Facet::Fields, Value::Object(fields)),
                (Facet::Lost, event["lost"].clone()),
            ]));
        }
    }
    let counted =
        trace.head["stats"].as_array().unwrap().iter().find(|stats| stats["phase"] == "END_OF_TRACE");
    let counted = counted.into_iter().filter_map(|stats| stats["cpu_stats"].as_array());
    for cpu in counted.flatten() {
        let count = cpu["overrun"].as_str().map_or(0, |count| count.parse().unwrap());
        let number = cpu["cpu"].as_str().map_or(0, |cpu| cpu.parse().unwrap());
        told.lose("", number, Some(count));
    }
    told.sums.get_or_insert_default();
    let clocks = trace.head["clocks"][0]["clocks"].as_array();
    let clock = |id: u64| {
        let clock = clocks.into_iter().flatten().find(|clock| clock["clock_id"].as_u64() == Some(id))?;
        clock["timestamp"].as_str()?.parse::<i64>().ok()
    };
    let wall = clock(1).zip(clock(6)).map(|(wall, boot)| wall - boot);
    told.whole = Row::from([
        (Facet::Wall, json!(wall)),
        (Facet::Host, trace.head["system"][0]["utsname"]["nodename"].clone()),
    ]);
    expect_in_trace_processor(out, &told.rows);
    told
}

/// What trace_processor has of the same records.
fn expect_in_trace_processor(out: &Path, rows: &[Row]) {
    let answers = trace_processor::ask(
        out,
        &[
            "select ts, cpu, tid, e.name from ftrace_event e join thread using (utid) where e.name is not null",
            "select ts, cpu, e.name, a.flat_key, a.int_value, a.string_value \
             from ftrace_event e join args a using (arg_set_id) where e.name is not null",
        ],
    );
    let of = |row: &Row, facets: &[Facet]| {
        json!(facets.iter().map(|facet| row[facet].clone()).collect::<Vec<_>>()).to_string()
    };
    let mut found: Vec<String> = answers[0].iter().map(|row| json!(row).to_string()).collect();
    let all = [Facet::Time, Facet::Cpu, Facet::Thread, Facet::Event];
    let mut expected: Vec<String> = rows.iter().map(|row| of(row, &all)).collect();
    found.sort();
    expected.sort();
    assert_eq!(found, expected);
    let mut values = BTreeMap::<String, Vec<(&str, &Value)>>::new();
    for row in &answers[1] {
        let value = if row[5].is_null() { &row[4] } else { &row[5] };
        let place = values.entry(json!(row[..3]).to_string()).or_default();
        place.push((row[3].as_str().unwrap(), value));
    }
    let bits = |value: &Value| number(value).map(|number| number as u64);
    for row in rows {
        let place = of(row, &[Facet::Time, Facet::Cpu, Facet::Event]);
        let values = values.get(&place).map_or(&[][..], |values| values);
        for (name, value) in row[&Facet::Fields].as_object().unwrap() {
            let is_it = |(key, found): &(&str, &Value)| {
                *key == name
                    && (*found == value || bits(found).is_some_and(|found| bits(value) == Some(found)))
            };
            // It has one element of an array, and not each field of its own events.
            let has_key = values.iter().any(|(key, _)| key == name);
            assert!(value.is_array() || !has_key || values.iter().any(is_it), "{name}: {row:?}: {values:?}");
        }
    }
}

/// A mark of a loss is no number, numbers are without a sign, sets of bits a text, and the text of
/// `trace_printk` is that of `print`.
pub(super) fn as_perfetto_has_it(facet: Facet, row: &Row, found: &Value, told: &Value) -> bool {
    match facet {
        Facet::Lost => *found == (*told != 0),
        // One event has all system calls, unless their numbers were recorded by others as well.
        Facet::Event if row[&Facet::System] == "syscalls" => {
            told.as_str().unwrap().starts_with(found.as_str().unwrap())
        }
        Facet::Fields if row[&Facet::System] == "syscalls" && found.get("id").is_some() => {
            is_call_of_perfetto(found, told)
        }
        Facet::Event => found == told || (*found == "print" && (*told == "bprint" || *told == "bputs")),
        // The function is in the text.
        Facet::Fields if row[&Facet::System] == "ftrace" && told.get("buf").is_some() => {
            let text = |value: &Value| value["buf"].as_str().unwrap().to_owned();
            text(found).ends_with(&text(told))
        }
        Facet::Fields => {
            let (found, told) = (found.as_object().unwrap(), told.as_object().unwrap());
            let is_same = |(name, told): (&String, &Value)| {
                let Some(found) = found.get(name) else { return false };
                // Functions of the graph have their names.
                let is_function = || {
                    let symbol = row[&Facet::Symbols].get(name).and_then(Value::as_str);
                    symbol.is_some_and(|symbol| symbol.split('+').next() == found.as_str())
                };
                equal(found, told)
                    || (BITS.contains(&&**name) && found.as_str().and_then(ranges).as_ref() == Some(told))
                    || is_function()
            };
            found.len() == told.len() && told.iter().all(is_same)
        }
        _ => equal(found, told),
    }
}

/// Perfetto's events of system calls have the number, and the arguments or the result.
fn is_call_of_perfetto(found: &Value, told: &Value) -> bool {
    let told = told.as_object().unwrap();
    let values = told.iter().filter(|(name, _)| *name != "__syscall_nr").map(|(_, value)| number(value));
    let mut told_values: Vec<Option<i128>> = values.collect();
    let mut values: Vec<Option<i128>> = match &found["args"] {
        Value::Array(args) => args.iter().map(number).collect(),
        _ => found.get("ret").into_iter().map(number).collect(),
    };
    // Which of them it is stands in the format only.
    values.sort_unstable();
    told_values.sort_unstable();
    found.get("id") == told.get("__syscall_nr") && values == told_values
}

pub(super) fn chrome(out: &Path) -> Told {
    let trace: Value = serde_json::from_str(&fs::read_to_string(out).unwrap()).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    // The times that it counts in doubles end before those of 64 bits.
    let is_late = |event: &&Value| event["ts"].as_f64().is_some_and(|ts| ts * 1000.0 >= i64::MAX as f64);
    let late = events.iter().filter(is_late).count();
    let wrong = "select name, value from stats where value > 0 and severity in ('error', 'data_loss') \
        and name != 'flow_no_enclosing_slice'";
    let expected = if late == 0 {
        vec![]
    } else {
        vec![vec![json!("trace_sorter_negative_timestamp_dropped"), json!(late)]]
    };
    assert_eq!(trace_processor::ask(out, &[wrong])[0], expected);
    let names = events.iter().filter(|event| event["ph"] == "M" && event["name"] == "thread_name");
    let names: BTreeMap<u64, &str> = names
        .map(|event| (event["tid"].as_u64().unwrap(), event["args"]["name"].as_str().unwrap()))
        .inspect(|(tid, name)| assert_ne!(*name, "", "{tid}"))
        .collect();
    let origin: i128 = trace["otherData"]["time_origin_ns"].as_str().unwrap().parse().unwrap();
    // Doubles do not hold all nanoseconds that the text has.
    let text = fs::read_to_string(out).unwrap();
    let instants = text.lines().filter(|line| line.starts_with("{\"ph\":\"i\""));
    let times = instants.map(|line| {
        let (_, rest) = line.split_once("\"ts\":").unwrap();
        let (micros, rest) = rest.split_once('.').unwrap();
        micros.parse::<i128>().unwrap() * 1000 + rest[..3].parse::<i128>().unwrap() + origin
    });
    let mut told = Told { sums: Some(BTreeMap::new()), behind: Some(BTreeMap::new()), ..Told::default() };
    let mut pending = BTreeMap::<((String, u64), i128), Vec<Option<u64>>>::new();
    let (mut losses, mut last) = (Vec::new(), BTreeMap::<(String, u64), i128>::new());
    for (event, time) in events.iter().filter(|event| event["ph"] == "i").zip(times) {
        let args = &event["args"];
        if event["cat"] == "loss" {
            // Rows of CPUs have their numbers.
            let cpu = (event["tid"].as_u64().unwrap() - (1 << 24)) / 4;
            let buffer = args["buffer"].as_str().unwrap_or("").to_owned();
            losses.push(((buffer, cpu), time, args["count"].as_u64(), args["since_ns"].clone()));
            continue;
        }
        let cpu = args["cpu"].as_u64().unwrap();
        let buffer = args["buffer"].as_str().unwrap_or("").to_owned();
        last.entry((buffer, cpu)).and_modify(|last| *last = time.max(*last)).or_insert(time);
        let tid = event["tid"].as_u64().unwrap();
        told.rows.push(Row::from([
            (Facet::Cpu, json!(cpu)),
            (Facet::Time, integer(time)),
            (Facet::Thread, args["pid"].clone()),
            (Facet::Comm, if args["pid"] == 0 { json!("<idle>") } else { json!(names.get(&tid)) }),
            (Facet::Buffer, args.get("buffer").cloned().unwrap_or(json!(""))),
            (Facet::Flags, args["flags"].clone()),
            (Facet::Preempt, args["preempt_count"].clone()),
            (Facet::System, event["cat"].clone()),
            (Facet::Event, event["name"].clone()),
            (Facet::Fields, args["fields"].clone()),
            (Facet::Symbols, args.get("symbols").cloned().unwrap_or(json!({}))),
            (Facet::Names, args.get("names").cloned().unwrap_or(json!({}))),
        ]));
    }
    for (place, time, count, since) in losses {
        let since = since.as_str().map(|since| since.parse::<i128>().unwrap());
        if last.get(&place).is_none_or(|last| since == Some(*last)) {
            told.lose_behind(&place.0, place.1, count);
        } else {
            told.lose(&place.0, place.1, count);
            pending.entry((place, time)).or_default().push(count);
        }
    }
    for row in &mut told.rows {
        let place = (row[&Facet::Buffer].as_str().unwrap().to_owned(), row[&Facet::Cpu].as_u64().unwrap());
        let lost = pending
            .remove(&(place, number(&row[&Facet::Time]).unwrap()))
            .map_or(Some(0), |counts| counts.into_iter().sum());
        row.insert(Facet::Lost, json!(lost));
    }
    assert!(pending.is_empty(), "{pending:?}");
    let wall = trace["otherData"]["wall_offset_ns"].as_str().map(|text| text.parse::<i64>().unwrap());
    let machine = trace["otherData"]["machine"].as_str();
    told.whole = Row::from([
        (Facet::Wall, json!(wall)),
        (Facet::Host, json!(machine.and_then(|machine| machine.split(' ').nth(1)))),
    ]);
    told
}

pub(super) fn as_chrome_has_it(facet: Facet, _: &Row, found: &Value, told: &Value) -> bool {
    if facet == Facet::Fields { has_numbers_as_texts(found, told) } else { equal(found, told) }
}

/// Whole numbers that doubles do not have are texts.
fn has_numbers_as_texts(found: &Value, told: &Value) -> bool {
    match (found, told) {
        (Value::Object(found), Value::Object(told)) => {
            found.len() == told.len()
                && told.iter().all(|(name, told)| has_numbers_as_texts(&found[name], told))
        }
        (Value::Array(found), Value::Array(told)) => {
            found.len() == told.len()
                && found.iter().zip(told).all(|(found, told)| has_numbers_as_texts(found, told))
        }
        (Value::String(text), Value::Number(number)) => *text == number.to_string(),
        _ => equal(found, told),
    }
}

/// A line that is `comm pid/tid [cpu] seconds.fraction: system:event: text`.
fn perf_line(line: &str) -> Row {
    let (at, time) = line
        .match_indices(" [")
        .find_map(|(at, _)| {
            let (cpu, rest) = line[at + 2..].split_once(']')?;
            cpu.parse::<u64>().ok()?;
            let (seconds, fraction) = rest.trim_start().split_once(':')?.0.split_once('.')?;
            let nanos = seconds.parse::<u64>().ok()? * 1_000_000_000 + fraction.parse::<u64>().ok()?;
            Some((at, nanos))
        })
        .unwrap_or_else(|| panic!("{line}"));
    let (task, rest) = line.split_at(at);
    let (cpu, rest) = rest[2..].split_once(']').unwrap();
    let (_, rest) = rest.split_once(':').unwrap();
    let (name, text) = rest.trim_start().split_once(": ").or(rest.trim_start().split_once(':')).unwrap();
    let (comm, ids) = task.trim_end().rsplit_once(' ').unwrap();
    let tid: i64 = ids.split_once('/').unwrap().1.parse().unwrap();
    let comm = comm.trim_matches(' ');
    let comm = match (unescaped(comm), tid) {
        (comm, 0) if comm == "swapper" => json!("<idle>"),
        (comm, tid) if comm == format!(":{tid}") => Value::Null,
        (comm, _) => json!(comm),
    };
    let mut row = Row::from([
        (Facet::Cpu, json!(cpu.parse::<u64>().unwrap())),
        (Facet::Time, json!(time)),
        (Facet::Thread, json!(tid)),
        (Facet::Comm, comm),
        (Facet::Fields, json!(unescaped(text))),
        (Facet::KernelStack, Value::Null),
        (Facet::UserStack, Value::Null),
    ]);
    named(&mut row, name, ":");
    row
}

/// `perf` prints addresses with all their digits and without a prefix.
pub(super) fn as_perf_script_has_it(facet: Facet, row: &Row, found: &Value, told: &Value) -> bool {
    let (Facet::Fields, Value::String(found), Value::String(told)) = (facet, found, told) else {
        return as_they_are(facet, row, found, told);
    };
    let is_word = |sign: char| sign.is_ascii_alphanumeric();
    let number = |text: &str| u64::from_str_radix(text, 16).ok().filter(|_| text.len() == 16);
    let (mut found, mut told) = (&**found, &**told);
    while found != told {
        let same = found.chars().zip(told.chars()).take_while(|(found, told)| found == told);
        let same = same.map(|(sign, _)| sign.len_utf8()).sum::<usize>();
        // A number begins with the first of its digits.
        let begin = found[..same].trim_end_matches(is_word).len();
        let digits =
            |text: &str| text[begin..].find(|sign| !is_word(sign)).map_or(text.len(), |end| begin + end);
        let (end, address) = if told[begin..].starts_with("(nil)") {
            (begin + "(nil)".len(), Some(0))
        } else {
            let end = digits(told);
            let hex = told[begin..end].strip_prefix("0x");
            (end, hex.and_then(|hex| u64::from_str_radix(hex, 16).ok()))
        };
        let found_end = digits(found);
        if address.is_none() || number(&found[begin..found_end]) != address {
            return false;
        }
        (found, told) = (&found[found_end..], &told[end..]);
    }
    true
}

/// A text without `\xHH`.
fn unescaped(text: &str) -> String {
    let (mut bytes, mut rest) = (Vec::new(), text.as_bytes());
    while let Some((first, after)) = rest.split_first() {
        let digits = rest.strip_prefix(br"\x").and_then(|rest| rest.get(..2));
        let digits = digits.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok());
        bytes.push(digits.unwrap_or(*first));
        rest = if digits.is_some() { &rest[4..] } else { after };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

pub(super) fn perf_script(out: &Path) -> Told {
    let text = fs::read_to_string(out).unwrap();
    let mut told = Told { sums: Some(BTreeMap::new()), behind: Some(BTreeMap::new()), ..Told::default() };
    let mut pending = BTreeMap::<(String, u64), Option<u64>>::new();
    let (mut texts, mut buffer) = (Vec::new(), String::new());
    for line in text.lines() {
        if let Some(comment) = line.strip_prefix(escapes::COMMENT) {
            match comment.strip_prefix(escapes::BUFFER) {
                Some(name) => buffer = unescaped(name),
                None => texts.extend(comment.split_once(' ')),
            }
        } else if let Some(comment) = line.strip_prefix("# CPU ") {
            let (cpu, lost) = comment.split_once(": ").unwrap();
            let lost = lost.split(' ').next().unwrap().parse().ok();
            pending.insert((buffer.clone(), cpu.split(' ').next().unwrap().parse().unwrap()), lost);
        } else if let Some(frame) = line.strip_prefix('\t') {
            let is_kernel = frame.ends_with("([kernel.kallsyms])");
            let facet = if is_kernel { Facet::KernelStack } else { Facet::UserStack };
            let address = frame.trim_start().split(' ').next().unwrap();
            let address = u64::from_str_radix(address, 16).unwrap();
            let stack = told.rows.last_mut().unwrap().get_mut(&facet).unwrap();
            let frames = stack.as_array().cloned().unwrap_or_default();
            *stack = frames.into_iter().chain([json!(address)]).collect();
        } else if !(line.is_empty() || line.starts_with('#')) {
            let mut row = perf_line(line);
            let place = (buffer.clone(), row[&Facet::Cpu].as_u64().unwrap());
            let lost = pending.remove(&place).unwrap_or(Some(0));
            told.lose(&buffer, row[&Facet::Cpu].as_u64().unwrap(), lost);
            row.insert(Facet::Lost, json!(lost));
            row.insert(Facet::Buffer, json!(buffer));
            told.rows.push(row);
        }
    }
    for ((buffer, cpu), lost) in pending {
        told.lose_behind(&buffer, cpu, lost);
    }
    told.whole = Described::of(texts.into_iter()).whole();
    told
}

/// What the timeline has of each event, and of losses.
pub(super) fn html(out: &Path) -> Told {
    const ALL: &str = "(async () => { const all = []; for (let n = 1; n <= index.total; n++) { \
        const event = await loadEvent(n); const thread = event.thread === null ? null : index.threads[event.thread]; \
        all.push([event.name, String(BigInt(index.first) + BigInt(Math.round(event.time))), event.cpu, thread, \
        Object.fromEntries(event.fields)]); } \
        const gaps = []; for (const told of index.slices) { const block = await stores.slices.get(told); \
        for (const [row, [begin, end]] of block.rows) if (index.rows[row][0] === KIND.gap) \
        for (let at = begin; at < end; at++) gaps.push([index.rows[row][1], \
        ...[block.start[at], block.end[at]].map((time) => String(BigInt(index.first) + BigInt(Math.round(time)))), \
        block.arg[at]]); } \
        return [all, index.cpus, index.wall_offset, index.machine, gaps]; })()";
    let dir = tempfile::tempdir().unwrap();
    let mut browser = Chromium::start(&dir.path().join("profile"));
    // Chromium takes a file for what its name says.
    let page = dir.path().join("page.html");
    fs::copy(out, &page).unwrap();
    browser.open(&format!("file://{}", page.display()));
    let shown = browser.eval(ALL);
    browser.expect_quiet();
    let mut told = Told { sums: Some(BTreeMap::new()), ..Told::default() };
    for event in shown[0].as_array().unwrap() {
        let (fields, names, mut symbols) = derived(event[4].as_object().unwrap());
        symbols
            .extend(fields.contains_key("caller").then(|| ("caller".to_owned(), printed_symbols(&fields))));
        let mut row = Row::from([
            (Facet::Cpu, event[2].clone()),
            (Facet::Time, json!(event[1].as_str().unwrap().parse::<u64>().unwrap())),
            (Facet::Thread, event[3].get(0).cloned().unwrap_or(json!(0))),
            (Facet::Comm, comm_of_page(&event[3])),
            (Facet::Flags, event[4]["common_flags"].clone()),
            (Facet::Preempt, event[4]["common_preempt_count"].clone()),
            (Facet::Fields, Value::Object(fields)),
            (Facet::Names, Value::Object(names)),
            (Facet::Symbols, Value::Object(symbols)),
        ]);
        named(&mut row, event[0].as_str().unwrap(), ":");
        told.rows.push(row);
    }
    for cpu in shown[1].as_array().unwrap() {
        let number = cpu["cpu"].as_u64().unwrap();
        told.lose("", number, cpu["lost"].as_u64());
        for _ in 0..cpu["uncounted"].as_u64().unwrap() {
            told.lose("", number, None);
        }
    }
    // A loss ends with the record behind it; one behind the last record begins with that.
    let mut last = BTreeMap::<u64, u64>::new();
    for row in &told.rows {
        let (cpu, time) = (row[&Facet::Cpu].as_u64().unwrap(), row[&Facet::Time].as_u64().unwrap());
        last.entry(cpu).and_modify(|last| *last = time.max(*last)).or_insert(time);
    }
    let mut gaps = BTreeMap::<(u64, u64), Vec<Option<u64>>>::new();
    let mut behind = BTreeMap::<(String, u64), Loss>::new();
    for gap in shown[4].as_array().unwrap() {
        let [since, at] = [1, 2].map(|member| gap[member].as_str().unwrap().parse::<u64>().unwrap());
        let (cpu, count) = (gap[0].as_u64().unwrap(), gap[3].as_u64().filter(|count| *count != 0));
        if last.get(&cpu).is_none_or(|last| since == *last) {
            let (known, unknown) = behind.entry((String::new(), cpu)).or_default();
            *known += count.unwrap_or(0);
            *unknown += u64::from(count.is_none());
        } else {
            gaps.entry((cpu, at)).or_default().push(count);
        }
    }
    for row in &mut told.rows {
        let at = (row[&Facet::Cpu].as_u64().unwrap(), row[&Facet::Time].as_u64().unwrap());
        let lost = gaps.remove(&at).map_or(Some(0), |counts| counts.into_iter().sum());
        row.insert(Facet::Lost, json!(lost));
    }
    assert!(gaps.is_empty(), "{gaps:?}");
    told.behind = Some(behind);
    let wall = shown[2].as_str().map(|text| text.parse::<i64>().unwrap());
    let host = shown[3].as_str().and_then(|machine| machine.split(' ').nth(1));
    told.whole = Row::from([(Facet::Wall, json!(wall)), (Facet::Host, json!(host))]);
    told
}

/// The functions of a stack that is printed with its frames, one in each line.
fn printed_symbols(fields: &Map<String, Value>) -> Value {
    let frames = fields["text"].as_str().unwrap().lines().filter_map(|line| line.trim().strip_prefix("=> "));
    let function = |frame: &str| frame.split_once(" (").map_or(frame, |(function, _)| function).to_owned();
    frames.map(|frame| if frame.starts_with("0x") { Value::Null } else { json!(function(frame)) }).collect()
}

/// The name of a thread of a page, which has none for one without.
fn comm_of_page(thread: &Value) -> Value {
    match (&thread[0], &thread[1]) {
        (tid, _) if *tid == 0 => json!("<idle>"),
        (_, name) if *name == "" => Value::Null,
        (_, name) => name.clone(),
    }
}

/// The last whole number of JavaScript.
const LAST_OF_BROWSERS: u64 = (1 << 53) - 1;

/// Values are texts for people: numbers in decimal, the rest as it is printed.
pub(super) fn as_html_has_it(facet: Facet, _: &Row, found: &Value, told: &Value) -> bool {
    match facet {
        // The page says how many times are later than a browser can count.
        Facet::Time if told.as_u64() > Some(LAST_OF_BROWSERS) => *found == LAST_OF_BROWSERS,
        // Stacks are printed without offsets.
        Facet::Symbols if told.get("caller").is_some() => {
            let [found, told] = [found, told].map(|of| of["caller"].as_array().unwrap());
            let function = |text: &Value| {
                let text = text.as_str()?;
                Some(text.split_once('+').map_or(text, |(function, _)| function).to_owned())
            };
            found.iter().map(function).eq(told.iter().map(function))
        }
        Facet::Flags | Facet::Preempt => found.as_str() == Some(told.to_string().as_str()),
        Facet::Fields => told.as_object().unwrap().iter().all(|(name, told)| {
            let Some(found) = found[name].as_str() else { return false };
            match told {
                Value::String(text) => found == text,
                Value::Number(number) => found == number.to_string(),
                Value::Array(frames) if name == "caller" => {
                    found.split(' ').eq(frames.iter().map(|frame| frame.as_str().unwrap()))
                }
                Value::Array(_) => printed_list(found).as_ref() == Some(told),
                _ => false,
            }
        }),
        _ => equal(found, told),
    }
}

/// Rows of events of a table, and of `losses` and `gaps`, as JSON.
fn tables(rows: &[(String, Vec<Value>)]) -> Told {
    const COMMON: [(&str, Facet); 7] = [
        ("common_timestamp", Facet::Time),
        ("common_cpu", Facet::Cpu),
        ("common_pid", Facet::Thread),
        ("common_comm", Facet::Comm),
        ("common_buffer", Facet::Buffer),
        ("common_flags", Facet::Flags),
        ("common_preempt_count", Facet::Preempt),
    ];
    let mut told = Told { sums: Some(BTreeMap::new()), behind: Some(BTreeMap::new()), ..Told::default() };
    let table = |name: &str| {
        let found = rows.iter().find(|(table, _)| table == name);
        found.map_or(&[][..], |(_, rows)| rows)
    };
    let place = |row: &Value| {
        (row["common_buffer"].as_str().unwrap().to_owned(), row["common_cpu"].as_u64().unwrap())
    };
    let mut gaps = BTreeMap::new();
    for row in table("gaps") {
        let (buffer, cpu) = place(row);
        let missed = row["missed"].as_u64();
        match row["common_timestamp"].as_u64() {
            Some(time) => {
                told.lose(&buffer, cpu, missed);
                assert_eq!(gaps.insert((buffer, cpu, time), missed), None);
            }
            None => told.lose_behind(&buffer, cpu, missed),
        }
    }
    for row in table("losses") {
        let known = told.sums.as_ref().unwrap().get(&place(row)).map_or(0, |(known, _)| *known);
        assert_eq!(row["lost"], known, "{row}");
    }
    for (name, rows) in rows {
        let Some((system, event)) = name.split_once('.') else { continue };
        for found in rows {
            let mut row = Row::from([(Facet::System, json!(system)), (Facet::Event, json!(event))]);
            row.extend(COMMON.map(|(column, facet)| (facet, found[column].clone())));
            let (fields, names, symbols) = derived(found.as_object().unwrap());
            row.extend([
                (Facet::Fields, Value::Object(fields)),
                (Facet::Names, Value::Object(names)),
                (Facet::Symbols, Value::Object(symbols)),
            ]);
            let at = (
                found["common_buffer"].as_str().unwrap().to_owned(),
                found["common_cpu"].as_u64().unwrap(),
                found["common_timestamp"].as_u64().unwrap(),
            );
            row.insert(Facet::Lost, json!(gaps.remove(&at).unwrap_or(Some(0))));
            told.rows.push(row);
        }
    }
    assert!(gaps.is_empty(), "{gaps:?}");
    let host = &table("hosts")[0];
    told.whole =
        Row::from([(Facet::Wall, host["wall_offset_ns"].clone()), (Facet::Host, host["hostname"].clone())]);
    told
}

/// Fields, and the names and symbols of values, which are in columns beside theirs.
fn derived(columns: &Map<String, Value>) -> (Map<String, Value>, Map<String, Value>, Map<String, Value>) {
    let (mut fields, mut names, mut symbols) = (Map::new(), Map::new(), Map::new());
    for (column, value) in columns.iter().filter(|(column, _)| !column.starts_with("common_")) {
        let of = |ending: &str| {
            column.strip_suffix(ending).filter(|of| columns.contains_key(*of)).map(str::to_owned)
        };
        match (of("_name"), of("_symbol")) {
            (Some(of), _) if !value.is_null() => drop(names.insert(of, value.clone())),
            (_, Some(of)) if !value.is_null() => drop(symbols.insert(of, value.clone())),
            (None, None) => drop(fields.insert(column.clone(), value.clone())),
            _ => {}
        }
    }
    (fields, names, symbols)
}

fn printed(script: &str, out: &Path) -> Vec<(String, Vec<Value>)> {
    let out = run(duckdb::python(script).arg(out)).expect(0).out;
    out.lines().map(|line| serde_json::from_str(line).expect(line)).collect()
}

/// Whoever reads them does not know which columns are numbers: DuckDB goes by the types of `tables.sql`.
pub(super) fn csv(out: &Path) -> Told {
    let names = fs::read_dir(out).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let names: Vec<String> = names.filter_map(|name| name.strip_suffix(".csv").map(str::to_owned)).collect();
    duckdb_tables(out, &names)
}

/// What DuckDB has by the views of `tables.sql`.
fn duckdb_tables(out: &Path, names: &[String]) -> Told {
    let views = duckdb::ask(out, &["SELECT view_name FROM duckdb_views() WHERE NOT internal"]);
    let views: Vec<&str> = views[0].iter().map(|row| row["view_name"].as_str().unwrap()).collect();
    let view = |name: &String| {
        let short = name.split_once('.').map_or(&**name, |(_, event)| event);
        if views.contains(&short) { short.to_owned() } else { name.clone() }
    };
    let queries: Vec<String> =
        names.iter().map(|name| format!("SELECT * FROM \"{}\"", view(name).replace('"', "\"\""))).collect();
    let rows = duckdb::ask(out, &queries.iter().map(String::as_str).collect::<Vec<_>>());
    tables(&names.iter().cloned().zip(rows).collect::<Vec<_>>())
}

pub(super) fn jsonl(out: &Path) -> Told {
    let mut rows = Vec::new();
    for entry in fs::read_dir(out).unwrap() {
        let path = entry.unwrap().path();
        let Some(name) = path.file_name().unwrap().to_str().unwrap().strip_suffix(".jsonl") else { continue };
        let text = fs::read_to_string(&path).unwrap();
        rows.push((name.to_owned(), text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()));
    }
    tables(&rows)
}

/// By pyarrow, and the same by pandas and by DuckDB.
pub(super) fn parquet(out: &Path) -> Told {
    const READ: &str = "
import datetime, glob, json, os, sys
import pandas, pyarrow.parquet
def bare(value):
    if hasattr(value, 'tolist'): return [bare(element) for element in value.tolist()]
    return None if value is pandas.NA else value
for path in sorted(glob.glob(glob.escape(sys.argv[1]) + '/*.parquet')):
    table = pyarrow.parquet.ParquetFile(path).read()
    frame = pandas.read_parquet(path, dtype_backend='pyarrow')
    assert list(frame.columns) == table.column_names
    for name in table.column_names:
        assert [bare(value) for value in frame[name].tolist()] == table[name].to_pylist(), name
    plain = lambda value: str(value) if isinstance(value, datetime.datetime) else value
    rows = [{name: plain(value) for name, value in row.items() if name != 'common_time'} for row in
            table.drop_columns([name for name in table.column_names if name.endswith('_time')]).to_pylist()]
    print(json.dumps([os.path.basename(path)[:-8], rows]))
";
    let rows = printed(READ, out);
    let told = tables(&rows);
    let names: Vec<String> = rows.into_iter().map(|(name, _)| name).collect();
    let by_duckdb = duckdb_tables(out, &names);
    assert_eq!((&by_duckdb.rows, &by_duckdb.sums), (&told.rows, &told.sums));
    told
}

pub(super) fn arrow(out: &Path) -> Told {
    const READ: &str = "
import glob, json, os, sys
import pyarrow.ipc
for path in sorted(glob.glob(glob.escape(sys.argv[1]) + '/*.arrow')):
    table = pyarrow.ipc.open_file(path).read_all()
    rows = table.drop_columns([name for name in table.column_names if name.endswith('_time')]).to_pylist()
    print(json.dumps([os.path.basename(path)[:-6], rows]))
";
    tables(&printed(READ, out))
}

pub(super) fn sqlite(out: &Path) -> Told {
    const READ: &str = "
import json, sqlite3, sys
db = sqlite3.connect(sys.argv[1])
assert db.execute('PRAGMA integrity_check').fetchall() == [('ok',)]
quoted = lambda name: '\"' + name.replace('\"', '\"\"') + '\"'
for (table,) in db.execute(\"SELECT name FROM sqlite_master WHERE type = 'table'\").fetchall():
    columns = [row[1] for row in db.execute(f'PRAGMA table_info({quoted(table)})')]
    rows = db.execute(f'SELECT * FROM {quoted(table)}').fetchall()
    print(json.dumps([table, [dict(zip(columns, row)) for row in rows]]))
";
    tables(&printed(READ, out))
}

/// Numbers of more than 63 bits are texts, lists are JSON.
pub(super) fn as_sqlite_has_it(facet: Facet, _: &Row, found: &Value, told: &Value) -> bool {
    let (Value::Object(found), Value::Object(told)) = (found, told) else { return equal(found, told) };
    let is_member = matches!(facet, Facet::Fields | Facet::Names | Facet::Symbols);
    is_member
        && found.len() == told.len()
        && told.iter().all(|(name, told)| match (&found[name], told) {
            (Value::String(text), Value::Array(_)) => {
                serde_json::from_str::<Value>(text).is_ok_and(|found| equal(&found, told))
            }
            (found, Value::Number(number))
                if number.as_u64().is_some_and(|number| number > i64::MAX as u64) =>
            {
                *found == json!(format!("{:#x}", number.as_u64().unwrap()))
            }
            (found, told) => equal(found, told),
        })
}

fn eventdefs_value(item: &eventdefs_reader::Item) -> Value {
    use eventdefs_reader::Item;
    match item {
        Item::Number(number) => integer(*number),
        Item::Text(text) => lossy(text),
        Item::List(items) => items.iter().map(eventdefs_value).collect(),
        Item::Struct(fields) => {
            fields.iter().map(|(name, item)| (name.clone(), eventdefs_value(item))).collect()
        }
    }
}

pub(super) fn eventdefs(out: &Path) -> Told {
    let trace = eventdefs_reader::read(out, false);
    let mut told = Told { sums: Some(BTreeMap::new()), ..Told::default() };
    for (file, events) in &trace.files {
        let Some(cpu) = file.strip_prefix("cpu/") else { continue };
        let cpu: u64 = cpu.parse().unwrap();
        let mut lost = 0;
        for event in events.iter().filter(|event| !event.name.starts_with("core.")) {
            if event.name == "state.events_lost" {
                let count = event.data.number("count") as u64;
                told.lose("", cpu, Some(count).filter(|count| *count != 0));
                lost += count;
                continue;
            }
            let Value::Object(mut fields) = eventdefs_value(&event.data) else { panic!("{event:?}") };
            let common = fields.remove("common").unwrap();
            for (name, value) in &mut fields {
                if let (true, Value::Array(words)) = (BITS.contains(&&**name), &value) {
                    *value = bits(words, 32);
                }
            }
            let mut row = Row::from([
                (Facet::Cpu, json!(cpu)),
                (Facet::Time, json!(event.time)),
                (Facet::Thread, common["common_pid"].clone()),
                (Facet::Flags, common["common_flags"].clone()),
                (Facet::Preempt, common["common_preempt_count"].clone()),
                (Facet::Fields, Value::Object(fields)),
                (Facet::Lost, json!(std::mem::take(&mut lost))),
            ]);
            named(&mut row, &event.name, ".");
            told.rows.push(row);
        }
    }
    told.whole = Row::from([(Facet::Host, json!(trace.system.get("node_name")))]);
    told
}

pub(super) fn ltt2008(out: &Path) -> Told {
    const STATE: [&str; 4] = ["kernel_", "core_", "fs_exec", "task_"];
    let trace = ltt2008_reader::read(out, false);
    let mut told = Told { sums: Some(BTreeMap::new()), ..Told::default() };
    for (file, written) in trace.files.iter().filter(|(file, _)| !file.starts_with("control/")) {
        let (channel, cpu) = file.trim_start_matches("flight-").rsplit_once('_').unwrap();
        let (buffer, cpu) = (if channel == "cpu" { "" } else { channel }, cpu.parse::<u64>().unwrap());
        let mut lost = 0;
        for event in &written.events {
            if event.name == "trace_events_lost" {
                let count = event.number("count") as u64;
                told.lose(buffer, cpu, Some(count).filter(|count| *count != 0));
                lost += count;
                continue;
            }
            // `task:task_newtask` of the kernel is no state.
            let is_state = STATE.iter().any(|state| event.name.starts_with(state));
            if is_state && !event.name.starts_with("task_task_") {
                continue;
            }
            let (mut row, mut fields) = (Row::new(), Map::new());
            for (name, value) in &event.fields {
                let value = match value {
                    ltt2008_reader::Field::Number(number) => integer(*number),
                    ltt2008_reader::Field::Text(text) => lossy(text),
                };
                match &**name {
                    "common_pid" => drop(row.insert(Facet::Thread, value)),
                    "common_flags" => drop(row.insert(Facet::Flags, value)),
                    "common_preempt_count" => drop(row.insert(Facet::Preempt, value)),
                    _ => drop(fields.insert(name.clone(), value)),
                }
            }
            row.extend([
                (Facet::Cpu, json!(cpu)),
                (Facet::Time, json!(event.cycles)),
                (Facet::Buffer, json!(buffer)),
                (Facet::Fields, Value::Object(fields)),
                (Facet::Lost, json!(std::mem::take(&mut lost))),
            ]);
            let systems = SYSTEMS.iter().filter(|system| event.name.starts_with(&format!("{system}_")));
            let system =
                systems.max_by_key(|system| system.len()).unwrap_or_else(|| panic!("{}", event.name));
            row.insert(Facet::System, json!(system));
            row.insert(Facet::Event, json!(event.name[system.len() + 1..]));
            told.rows.push(row);
        }
    }
    // Of its start it has the time of day in whole microseconds.
    let ltt2008_reader::Header { start_time, start_tsc, .. } = trace.header;
    let wall = (start_time != 0).then(|| start_time as i64 - (start_tsc / 1000 * 1000) as i64);
    told.whole = Row::from([(Facet::Wall, json!(wall))]);
    told
}

/// The systems of the recordings: a name is `SYSTEM_EVENT`.
const SYSTEMS: [&str; 34] = [
    OWN,
    "block",
    "cgroup",
    "compaction",
    "csd",
    "exceptions",
    "filemap",
    "ftrace",
    "ipi",
    "irq",
    "irq_vectors",
    "kmem",
    "kprobes",
    "lock",
    "maple_tree",
    "mmap",
    "mmap_lock",
    "pagemap",
    "percpu",
    "power",
    "raw_syscalls",
    "rcu",
    "rseq",
    "sched",
    "signal",
    "syscalls",
    "task",
    "timer",
    "timer_migration",
    "tlb",
    "uprobes",
    "workqueue",
    "writeback",
    "x86_fpu",
];

/// An unknown loss is 0 events, and there are numbers and texts only.
pub(super) fn as_2008_has_it(facet: Facet, _: &Row, found: &Value, told: &Value) -> bool {
    match facet {
        Facet::Lost if told.is_null() => *found == 0,
        Facet::Fields => {
            let (found, told) = (found.as_object().unwrap(), told.as_object().unwrap());
            told.iter().all(|(name, told)| match (found.get(name), told) {
                (None, Value::Array(values)) => values.iter().enumerate().all(|(index, told)| {
                    found.get(&format!("{name}_{index}")).is_some_and(|found| equal(found, told))
                }),
                // As `report` prints it.
                (Some(Value::String(text)), Value::Array(_)) => printed_list(text).as_ref() == Some(told),
                (Some(found), told) => equal(found, told),
                (None, _) => false,
            })
        }
        _ => equal(found, told),
    }
}

/// An unknown loss is 0 events.
pub(super) fn as_eventdefs_has_it(facet: Facet, _: &Row, found: &Value, told: &Value) -> bool {
    match facet {
        // Wall time, where the recording knows it.
        Facet::Time => number(found)
            .zip(number(told))
            .is_some_and(|(found, told)| found == told || found - told == WALL.into()),
        Facet::Lost if told.is_null() => *found == 0,
        _ => equal(found, told),
    }
}
