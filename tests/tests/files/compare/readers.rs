//! What the readers of other tools find in exports.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use integration_tests::chromium::Chromium;
use integration_tests::ctf::{self, Event, Trace};
use integration_tests::harness::run;
use integration_tests::{babeltrace, duckdb, eventdefs_reader, ltt2008_reader, perfetto, trace_processor};
use serde_json::{Map, Value, json};

use super::recordings::{OWN, WALL};
use super::truth::{Facet, Row, Told, equal, number};

/// Fields that are sets of bits.
const BITS: [&str; 2] = ["cpus", "mask"];

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
fn bits(words: &[Value], size: u32) -> Value {
    let set = words.iter().enumerate().flat_map(|(index, word)| {
        let word = number(word).unwrap();
        (0..size)
            .filter(move |bit| word >> bit & 1 == 1)
            .map(move |bit| index as u64 * u64::from(size) + u64::from(bit))
    });
    set.collect()
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
    told.whole = Row::from([
        (Facet::Wall, json!(Some(trace.clock_offset).filter(|offset| *offset != 0))),
        (Facet::Host, json!(trace.env.get("hostname").map(|name| name.trim_start_matches('"')))),
    ]);
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
                ("raw_syscalls", "sys_enter") => call[0],
                ("raw_syscalls", "sys_exit") => call[1],
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
    let answers = trace_processor::ask(out, &["select count(*) from ftrace_event"]);
    assert_eq!(answers[0][0][0], told.rows.len());
    told
}

/// A mark of a loss is no number, numbers are without a sign, sets of bits a text, and the text of
/// `trace_printk` is that of `print`.
pub(super) fn as_perfetto_has_it(facet: Facet, row: &Row, found: &Value, told: &Value) -> bool {
    match facet {
        Facet::Lost => *found == (*told != 0),
        Facet::Event => found == told || (*found == "print" && (*told == "bprint" || *told == "bputs")),
        // The function is in the text.
        Facet::Fields if row[&Facet::System] == "ftrace" && told.get("buf").is_some() => {
            let text = |value: &Value| value["buf"].as_str().unwrap().to_owned();
            text(found).ends_with(&text(told))
        }
        Facet::Fields => {
            let (found, told) = (found.as_object().unwrap(), told.as_object().unwrap());
            let is_own = row[&Facet::System] != OWN;
            let is_same = |(name, told): (&String, &Value)| {
                let Some(found) = found.get(name) else { return false };
                let ranges = |text: &str| -> Value {
                    let ranges = text.split(',').filter(|range| !range.is_empty()).flat_map(|range| {
                        let (from, to) = range.split_once('-').unwrap_or((range, range));
                        from.parse::<u64>().unwrap()..=to.parse::<u64>().unwrap()
                    });
                    ranges.collect()
                };
                let is_of_32_bits = |found: i128, told: i128| is_own && (found - told).trailing_zeros() >= 32;
                equal(found, told)
                    || (BITS.contains(&&**name) && found.as_str().is_some_and(|text| ranges(text) == *told))
                    || number(found).zip(number(told)).is_some_and(|(found, told)| is_of_32_bits(found, told))
            };
            found.len() == told.len() && told.iter().all(is_same)
        }
        _ => equal(found, told),
    }
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
    let mut pending = BTreeMap::<(u64, i128), Vec<Option<u64>>>::new();
    let (mut losses, mut last) = (Vec::new(), BTreeMap::<u64, i128>::new());
    for (event, time) in events.iter().filter(|event| event["ph"] == "i").zip(times) {
        let args = &event["args"];
        if event["cat"] == "loss" {
            // Rows of CPUs have their numbers.
            let cpu = (event["tid"].as_u64().unwrap() - (1 << 24)) / 4;
            losses.push((cpu, time, args["count"].as_u64(), args["since_ns"].clone()));
            continue;
        }
        let cpu = args["cpu"].as_u64().unwrap();
        last.insert(cpu, last.get(&cpu).map_or(time, |last| time.max(*last)));
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
    for (cpu, time, count, since) in losses {
        let since = since.as_str().map(|since| since.parse::<i128>().unwrap());
        if last.get(&cpu).is_none_or(|last| since == Some(*last)) {
            told.lose_behind("", cpu, count);
        } else {
            told.lose("", cpu, count);
            pending.entry((cpu, time)).or_default().push(count);
        }
    }
    for row in &mut told.rows {
        let at = (row[&Facet::Cpu].as_u64().unwrap(), number(&row[&Facet::Time]).unwrap());
        let lost = pending.remove(&at).map_or(Some(0), |counts| counts.into_iter().sum());
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
    let mut pending = BTreeMap::<u64, Option<u64>>::new();
    for line in text.lines() {
        if let Some(comment) = line.strip_prefix("# CPU ") {
            let (cpu, lost) = comment.split_once(": ").unwrap();
            let lost = lost.split(' ').next().unwrap().parse().ok();
            pending.insert(cpu.split(' ').next().unwrap().parse().unwrap(), lost);
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
            let lost = pending.remove(&row[&Facet::Cpu].as_u64().unwrap()).unwrap_or(Some(0));
            told.lose("", row[&Facet::Cpu].as_u64().unwrap(), lost);
            row.insert(Facet::Lost, json!(lost));
            told.rows.push(row);
        }
    }
    for (cpu, lost) in pending {
        told.lose_behind("", cpu, lost);
    }
    told
}

/// What the timeline has of each event, and of losses.
pub(super) fn html(out: &Path) -> Told {
    const ALL: &str = "(async () => { const all = []; for (let n = 1; n <= index.total; n++) { \
        const event = await loadEvent(n); const thread = event.thread === null ? null : index.threads[event.thread]; \
        all.push([event.name, String(BigInt(index.first) + BigInt(Math.round(event.time))), event.cpu, thread, \
        Object.fromEntries(event.fields)]); } return [all, index.cpus, index.wall_offset]; })()";
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
        let mut row = Row::from([
            (Facet::Cpu, event[2].clone()),
            (Facet::Time, json!(event[1].as_str().unwrap().parse::<u64>().unwrap())),
            (Facet::Thread, event[3].get(0).cloned().unwrap_or(json!(0))),
            (Facet::Comm, comm_of_page(&event[3])),
            (Facet::Flags, event[4]["common_flags"].clone()),
            (Facet::Preempt, event[4]["common_preempt_count"].clone()),
            (Facet::Fields, event[4].clone()),
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
    let wall = shown[2].as_str().map(|text| text.parse::<i64>().unwrap());
    told.whole = Row::from([(Facet::Wall, json!(wall))]);
    told
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
        Facet::Flags | Facet::Preempt => found.as_str() == Some(told.to_string().as_str()),
        Facet::Fields => told.as_object().unwrap().iter().all(|(name, told)| {
            let Some(found) = found[name].as_str() else { return false };
            match told {
                Value::String(text) => found == text,
                Value::Number(number) => found == number.to_string(),
                Value::Array(values) => values.is_empty() || !found.is_empty(),
                _ => true,
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
            let (mut fields, mut names, mut symbols) = (Map::new(), Map::new(), Map::new());
            let columns = found.as_object().unwrap();
            for (column, value) in columns.iter().filter(|(column, _)| !is_common(column)) {
                let derived = |ending: &str| {
                    column.strip_suffix(ending).filter(|of| columns.contains_key(*of)).map(str::to_owned)
                };
                match (derived("_name"), derived("_symbol")) {
                    (Some(of), _) if !value.is_null() => drop(names.insert(of, value.clone())),
                    (_, Some(of)) if !value.is_null() => drop(symbols.insert(of, value.clone())),
                    (None, None) => drop(fields.insert(column.clone(), value.clone())),
                    _ => {}
                }
            }
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

fn is_common(column: &str) -> bool {
    column.starts_with("common_")
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
for path in sorted(glob.glob(glob.escape(sys.argv[1]) + '/*.parquet')):
    table = pyarrow.parquet.ParquetFile(path).read()
    assert len(pandas.read_parquet(path)) == table.num_rows
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
            if STATE.iter().any(|state| event.name.starts_with(state)) {
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
            let system = SYSTEMS.iter().find(|system| event.name.starts_with(&format!("{system}_")));
            let system = system.unwrap_or_else(|| panic!("{}", event.name));
            row.insert(Facet::System, json!(system));
            row.insert(Facet::Event, json!(event.name[system.len() + 1..]));
            told.rows.push(row);
        }
    }
    told
}

/// The systems of the recordings: a name is `SYSTEM_EVENT`.
const SYSTEMS: [&str; 10] =
    [OWN, "ftrace", "kprobes", "uprobes", "sched", "raw_syscalls", "block", "irq", "kmem", "lock"];

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
                (Some(Value::String(text)), Value::Array(values)) => values.is_empty() || !text.is_empty(),
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
