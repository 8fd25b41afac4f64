//! Exports to CTF, against babeltrace2, LTTng's analyses and an independent reader.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use integration_tests::analyses::{rows, tables};
use integration_tests::ctf::{self, Event, Value};
use integration_tests::harness::{Ended, Tmpfs, agent, program, run};
use tracer_agent::event::{self, EventTable, Machine, NoNames};
use tracer_agent::tracedat::page::{PageBuilder, Push};
use tracer_agent::tracedat::reader::Reader;
use tracer_agent::tracedat::{
    Buffer, Cmdlines, Compression, Endian, EventSystem, Section, Setup, Writer, layout,
};

const FORMATS: [&str; 2] = ["ctf", "lttng"];

fn export(file: &Path, format: &str, to: &Path) -> Ended {
    run(agent("/".as_ref(), ["export", "--format", format]).arg(file).arg(to))
}

/// What babeltrace2 prints of a trace, in the order of the alphabet, and how many lost events it tells of.
/// Other warnings fail.
fn babeltrace(trace: &Path) -> (Vec<String>, u64) {
    let args = ["--clock-cycles", "--no-delta", "--fields=loglevel"];
    let ended = run(program("/".as_ref(), "babeltrace2", args).arg(trace)).expect(0);
    let mut lost = 0;
    for warning in ended.err.lines() {
        let count =
            warning.strip_prefix("WARNING: Tracer discarded ").and_then(|rest| rest.split(' ').next());
        lost += count.and_then(|count| count.parse::<u64>().ok()).unwrap_or_else(|| panic!("{warning}"));
    }
    let mut lines: Vec<String> = ended.out.lines().map(str::to_owned).collect();
    lines.sort_unstable();
    (lines, lost)
}

/// A record of a file, as the library reads it.
#[derive(Debug)]
struct Kernel {
    time: u64,
    system: String,
    name: String,
    common: Vec<(String, Value)>,
    fields: Vec<(String, Value)>,
}

fn plain(value: event::Value<'_>) -> Value {
    match value {
        event::Value::Signed(number) => Value::Number(number.into(), 10),
        event::Value::Unsigned(number) | event::Value::Pointer(number) => Value::Number(number.into(), 10),
        event::Value::Text(text) => Value::Text(text.to_vec()),
        event::Value::Texts(texts) => {
            Value::List(texts.iter().map(|text| Value::Text(text.unwrap().to_vec())).collect())
        }
        event::Value::Array(numbers) => Value::List(numbers.iter().map(plain).collect()),
        event::Value::Bytes(bytes) => {
            Value::List(bytes.iter().map(|byte| Value::Number((*byte).into(), 10)).collect())
        }
        event::Value::Bitmask(bits) => {
            let set =
                |byte: usize| (0..8).filter(|bit| bits.contains(byte * 8 + bit)).map(|bit| 1 << bit).sum();
            Value::List((0..bits.capacity() / 8).map(|byte| Value::Number(set(byte), 10)).collect())
        }
    }
}

/// Records by channel and CPU, and events lost by the marks between them.
fn kernel_records(file: &Path) -> (BTreeMap<(String, u32), Vec<Kernel>>, u64) {
    let reader = Reader::open(File::open(file).unwrap()).unwrap();
    let machine = Machine { endian: reader.header().endian, long_size: reader.layout().long_size };
    let mut table = EventTable::new(machine);
    for event in reader.metadata().events() {
        let _ = table.add(event.system, event.format, &NoNames);
    }
    let (mut found, mut lost) = (BTreeMap::<_, Vec<Kernel>>::new(), 0);
    for (place, buffer) in reader.buffers().iter().enumerate() {
        let channel = if buffer.name.is_empty() { "channel0" } else { &buffer.name };
        for extent in &buffer.cpus {
            let records = found.entry((channel.to_owned(), extent.cpu)).or_default();
            let mut stream = reader.cpu_records(place, extent.cpu).unwrap();
            while let Some(record) = stream.next_record().unwrap() {
                lost += record.missed.map_or(0, |missed| missed.max(1));
                let printer = table.of_record(record.data).unwrap();
                let common =
                    printer.common_fields(record.data).filter(|(field, _)| field.name != "common_type");
                let named = |(field, value): (&event::Field, Result<event::Value<'_>, _>)| {
                    (field.name.clone(), plain(value.unwrap()))
                };
                let common = common.map(named).collect();
                let mut fields: Vec<_> = printer.fields(record.data).map(named).collect();
                if printer.is_kernel_stack() {
                    let stack =
                        printer.stack(record.data).map(|address| Value::Number(address.into(), 16)).collect();
                    fields.iter_mut().find(|(name, _)| name == "caller").unwrap().1 = Value::List(stack);
                }
                records.push(Kernel {
                    time: record.timestamp,
                    system: printer.system().to_owned(),
                    name: printer.name().to_owned(),
                    common,
                    fields,
                });
            }
        }
    }
    found.retain(|_, records| !records.is_empty());
    (found, lost)
}

/// Whether the values are the same, whatever base they are shown in.
fn same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one, _), Value::Number(other, _)) => one == other,
        (Value::List(one), Value::List(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| same(one, other))
        }
        (one, other) => one == other,
    }
}

fn is_length(name: &str) -> bool {
    name.starts_with('_') && name.ends_with("_length")
}

/// Fails unless an event has what its record has, under the kernel's names.
fn compare_kernel(event: &Event, record: &Kernel) {
    assert_eq!(event.name, format!("{}:{}", record.system, record.name));
    for (found, expected) in [(&event.context, &record.common), (&event.fields, &record.fields)] {
        let found: Vec<_> = found.iter().filter(|(name, _)| !is_length(name)).collect();
        let equal = |(found, expected): (&&(String, Value), &(String, Value))| {
            found.0 == expected.0 && same(&found.1, &expected.1)
        };
        assert!(
            found.len() == expected.len() && found.iter().zip(expected).all(equal),
            "{event:?}\n{record:?}"
        );
    }
}

/// Fails unless an event has what its record has, with the values of lttng-modules.
fn compare_lttng(event: &Event, record: &Kernel) {
    let mut expected: Vec<(String, Value)> = record.fields.clone();
    let raw = record.system == "raw_syscalls" && !event.name.starts_with("raw_");
    let direction = if record.name.starts_with("sys_enter") { "entry" } else { "exit" };
    let prefix = format!("syscall_{direction}_");
    if raw && event.name == format!("{prefix}unknown") {
        assert!(int(record, "id") < 0 || int(record, "id") > 400, "{event:?}");
    } else if raw {
        assert!(event.name.starts_with(&prefix), "{event:?}");
        expected.retain(|(name, _)| name != "id");
        if let Some((_, Value::List(args))) = expected.iter().find(|(name, _)| name == "args") {
            expected = args.iter().map(|arg| (String::new(), arg.clone())).collect();
            expected.truncate(event.fields.len());
        }
    } else if record.system == "syscalls" {
        let call = record.name.split_once("_e").unwrap().1.split_once('_').unwrap().1;
        assert_eq!(event.name, format!("{prefix}{call}"));
        expected.retain(|(name, _)| name != "__syscall_nr" && name != "nr");
        // What an argument points to, if the recording has it.
        for (name, text) in record.fields.iter().filter(|(_, value)| matches!(value, Value::Text(_))) {
            let argument = name.strip_prefix("__").and_then(|name| name.strip_suffix("_val"));
            if let Some(place) = expected.iter().position(|(name, _)| Some(name.as_str()) == argument) {
                expected[place].1 = text.clone();
                expected.retain(|(other, _)| other != name);
            }
        }
    } else {
        // `net_if` and `skb_kfree` are all that is more than a prefix.
        let ending =
            record.name.trim_start_matches("netif_").trim_start_matches("mm_").trim_start_matches("kvm_");
        assert!(event.name.ends_with(ending) || event.name.starts_with("skb_"), "{event:?}\n{record:?}");
    }
    let syscall = raw || record.system == "syscalls";
    let found: Vec<_> = event.fields.iter().filter(|(name, _)| !is_length(name)).collect();
    assert!(found.len() >= expected.len(), "{event:?}\n{record:?}");
    for ((found_name, value), (name, kernel)) in found.iter().zip(&expected) {
        let equal = match (name.as_str(), value, kernel) {
            (
                "prio" | "prev_prio" | "next_prio" | "oldprio" | "newprio",
                Value::Number(value, _),
                Value::Number(kernel, _),
            ) if record.system == "sched" => *value == kernel - 100,
            ("rwbs", Value::Number(bits, _), Value::Text(letters)) => {
                let has = |letter: u8| letters.contains(&letter);
                (bits & 4 != 0) == has(b'R') && (bits & 1 != 0) == has(b'W') && (bits & 32 != 0) == has(b'S')
            }
            (_, Value::Text(text), Value::Number(address, _)) if syscall => {
                text.as_slice() == if *address == 0 { "" } else { "unknown" }.as_bytes()
            }
            // The record has no copy of it, or one of no characters, which look the same here.
            (_, Value::Text(text), Value::Text(copy)) if syscall && copy.is_empty() => {
                text.is_empty() || text == b"unknown"
            }
            // Arguments are longs in the record.
            (_, Value::Number(value, _), Value::Number(kernel, _)) if syscall => {
                *value == *kernel || (value - kernel).trailing_zeros() >= 32
            }
            _ => same(value, kernel),
        };
        assert!(equal, "{found_name}: {value:?} for {name}: {kernel:?} in {event:?}");
        if record.system == "sched" && name == "pid" {
            assert_eq!(found_name, "tid");
        }
    }
    let common = |name: &str| record.common.iter().find(|(field, _)| field == name).map(|(_, value)| value);
    assert!(same(&event.context[0].1, common("common_pid").unwrap()) && event.context[0].0 == "tid");
}

/// Whether `report --json` shows this value.
fn is_told(value: &Value, told: &serde_json::Value) -> bool {
    match (value, told) {
        // JSON has addresses as hexadecimal texts.
        (Value::Number(number, _), serde_json::Value::String(address)) => {
            let digits = address.strip_prefix("0x");
            digits.and_then(|digits| i128::from_str_radix(digits, 16).ok()) == Some(*number)
        }
        (Value::Number(number, _), told) => {
            told.as_i64().map(i128::from).or(told.as_u64().map(i128::from)) == Some(*number)
        }
        (Value::Text(text), told) => told.as_str() == Some(&*String::from_utf8_lossy(text)),
        (Value::List(list), serde_json::Value::Array(told)) => {
            let equal =
                list.len() == told.len() && list.iter().zip(told).all(|(one, told)| is_told(one, told));
            equal || bits(list).is_some_and(|bits| told.iter().map(serde_json::Value::as_u64).eq(bits))
        }
        _ => false,
    }
}

/// The bits that are set in a list of hexadecimal bytes, which is how bit masks are exported.
fn bits(bytes: &[Value]) -> Option<impl Iterator<Item = Option<u64>>> {
    let byte = |value: &Value| match value {
        Value::Number(byte, 16) => u8::try_from(*byte).ok(),
        _ => None,
    };
    let bytes: Vec<u8> = bytes.iter().map(byte).collect::<Option<_>>()?;
    let all = 0..bytes.len() as u64 * 8;
    Some(all.filter(move |bit| bytes[(bit / 8) as usize] >> (bit % 8) & 1 != 0).map(Some))
}

/// Fails unless the events of an export with the kernel's names are what `report --json` tells of the file:
/// how many there are on each CPU, of which kinds, their times, and all values.
fn compare_told(file: &Path, by_stream: &BTreeMap<(String, u32), Vec<&Event>>) {
    let told = run(agent("/".as_ref(), ["report", "--json"]).arg(file)).expect(0).out;
    let mut streams: BTreeMap<_, _> =
        by_stream.iter().map(|(stream, events)| (stream.clone(), events.iter())).collect();
    for line in told.lines() {
        let record: serde_json::Value = serde_json::from_str(line).unwrap();
        let buffer = record["buffer"].as_str().unwrap();
        let channel = if buffer.is_empty() { "channel0" } else { buffer };
        let cpu = record["cpu"].as_u64().unwrap() as u32;
        let event = streams.get_mut(&(channel.to_owned(), cpu)).and_then(Iterator::next).expect(line);
        let name = format!("{}:{}", record["system"].as_str().unwrap(), record["event"].as_str().unwrap());
        assert_eq!((&event.name, Some(event.time)), (&name, record["timestamp"].as_u64()), "{line}");
        let values: Vec<_> = event.fields.iter().filter(|(name, _)| !is_length(name)).collect();
        assert_eq!(values.len(), record["fields"].as_object().unwrap().len(), "{line}\n{event:?}");
        for (name, value) in values {
            assert!(is_told(value, &record["fields"][name]), "{name}: {line}\n{event:?}");
        }
        for (name, told) in
            [("common_pid", "pid"), ("common_flags", "flags"), ("common_preempt_count", "preempt_count")]
        {
            let value = &event.context.iter().find(|(field, _)| field == name).expect(name).1;
            assert!(is_told(value, &record[told]), "{name}: {line}\n{event:?}");
        }
    }
    for (stream, mut rest) in streams {
        assert_eq!(rest.next(), None, "{stream:?}: more than the report has");
    }
}

/// Exports a file in a format and compares everything with everything. Returns the trace and where it is.
fn check(file: &Path, format: &str, dir: &Path) -> (ctf::Trace, PathBuf) {
    let out = dir.join(format!("{}.{format}", file.file_name().unwrap().to_str().unwrap()));
    let ended = export(file, format, &out).expect(0);
    let (records, lost) = kernel_records(file);
    let trace = ctf::read(&out);
    let mut by_stream: BTreeMap<(String, u32), Vec<&Event>> = BTreeMap::new();
    for event in trace.events.iter().filter(|event| event.channel != "statedump") {
        by_stream.entry((event.channel.clone(), event.cpu)).or_default().push(event);
    }
    assert_eq!(
        by_stream.keys().collect::<Vec<_>>(),
        records.keys().collect::<Vec<_>>(),
        "{}",
        file.display()
    );
    for (stream, records) in &records {
        let events = &by_stream[stream];
        assert_eq!(events.len(), records.len(), "{} {stream:?}", file.display());
        for (event, record) in events.iter().zip(records) {
            assert_eq!(event.time, record.time, "{event:?}");
            if format == "ctf" { compare_kernel(event, record) } else { compare_lttng(event, record) }
        }
    }
    // What an export with LTTng's names has was compared with the same records above.
    if format == "ctf" {
        compare_told(file, &by_stream);
    }
    let told = run(agent("/".as_ref(), ["info", "--json"]).arg(&out)).expect(0).out;
    let told: serde_json::Value = serde_json::from_str(&told).unwrap();
    assert_eq!(told["recorded"].as_u64(), Some(trace.events.len() as u64), "events that info counts");
    let counted: u64 = trace.losses.values().flatten().map(|loss| loss.2).sum();
    assert!(counted >= lost, "{counted} of {lost} lost events\n{}", ended.err);
    let mut lines: Vec<String> = trace.events.iter().map(ctf::line).collect();
    lines.sort_unstable();
    let (printed, told) = babeltrace(&out);
    assert_eq!(told, counted, "lost events that babeltrace2 tells of");
    assert_eq!(printed.len(), lines.len());
    for (printed, line) in printed.iter().zip(&lines) {
        assert!(is_printed(line, printed), "{line}\n{printed}");
    }
    (trace, out)
}

/// Whether babeltrace2 printed this line. For an empty text, version 2.0.4 prints what stood in the same
/// place of an earlier event.
fn is_printed(line: &str, printed: &str) -> bool {
    let mut pieces = line.split("= \"\"");
    let Some(mut rest) = printed.strip_prefix(pieces.next().unwrap_or_default()) else { return false };
    for piece in pieces {
        let end = rest
            .match_indices(piece)
            .find(|(at, _)| rest[..*at].starts_with("= \"") && rest[..*at].ends_with('"'));
        let Some((at, _)) = end else { return false };
        rest = &rest[at + piece.len()..];
    }
    rest.is_empty()
}

/// The files of stock trace-cmd, unpacked.
fn stored(dir: &Path) -> Vec<PathBuf> {
    let traces = Path::new(env!("CARGO_MANIFEST_DIR")).join("traces");
    let mut files = Vec::new();
    for entry in fs::read_dir(traces).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if path.extension().is_some_and(|ending| ending == "dat") {
            files.push(path);
        } else if let Some(name) = name.strip_suffix(".gz").filter(|name| !name.contains(".txt")) {
            let unpacked = dir.join(name);
            let out = File::create(&unpacked).unwrap();
            assert!(program("/".as_ref(), "zcat", [&path]).stdout(out).status().unwrap().success());
            files.push(unpacked);
        }
    }
    assert!(files.len() >= 9, "{files:?}");
    files
}

#[test]
fn stock_recordings_are_read_by_babeltrace() {
    let dir = tempfile::tempdir().unwrap();
    let mut lost = 0;
    for file in stored(dir.path()) {
        for format in FORMATS {
            let (trace, _) = check(&file, format, dir.path());
            let tracer = if format == "ctf" { "\"tracer-agent" } else { "\"lttng-modules" };
            assert_eq!(trace.env["tracer_name"], tracer);
            assert_eq!((trace.env["domain"].as_str(), trace.clock_offset), ("\"kernel", 0));
            assert!(format == "ctf" || trace.env["exporter"].starts_with("\"tracer-agent "));
            lost += trace.losses.values().flatten().map(|loss| loss.2).sum::<u64>();
        }
    }
    assert!(lost > 10_000, "one of them lost events");
}

/// Records with the agent.
fn record(args: &[&str], file: &Path) -> Ended {
    run(agent("/".as_ref(), ["record", "-o"]).arg(file).args(args)).expect(0)
}

#[test]
fn every_event_of_this_kernel() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("all.dat");
    record(&["-e", "all", "ls", "/"], &file);
    for format in FORMATS {
        let (trace, out) = check(&file, format, dir.path());
        assert!(trace.events.len() > 100);
        // The distance of the clocks, which is what makes times absolute.
        let clock = |id| {
            let time = rustix::time::clock_gettime(id);
            i128::from(time.tv_sec) * 1_000_000_000 + i128::from(time.tv_nsec)
        };
        let before = clock(rustix::time::ClockId::Realtime) - clock(rustix::time::ClockId::Monotonic);
        assert!(
            (before - i128::from(trace.clock_offset)).abs() < 1_000_000,
            "{before} {}",
            trace.clock_offset
        );
        let args = ["--clock-seconds", "--clock-gmt", "--no-delta", "--fields=loglevel"];
        let absolute = run(program("/".as_ref(), "babeltrace2", args).arg(&out)).expect(0).out;
        let first = trace.events.iter().map(|event| event.time).min().unwrap() + trace.clock_offset;
        let expected = format!("[{}.{:09}]", first / 1_000_000_000, first % 1_000_000_000);
        assert!(absolute.starts_with(&expected), "{expected} {}", absolute.lines().next().unwrap());
        // Python's reader, on which LTTng's analyses stand.
        let script = "import babeltrace, sys\ntraces = babeltrace.TraceCollection()\n\
                      traces.add_traces_recursive(sys.argv[1], 'ctf')\nprint(next(traces.events).timestamp)";
        let python = run(program("/".as_ref(), "/usr/bin/python3", ["-c", script]).arg(&out)).expect(0).out;
        assert_eq!(python.trim(), first.to_string());
        if format == "lttng" {
            let named =
                |name: &str| trace.events.iter().filter(|event| event.name == name).collect::<Vec<_>>();
            assert_eq!(named("lttng_statedump_start").len(), 1);
            assert_eq!(named("lttng_statedump_end").len(), 1);
            // The state takes longer to look at than `ls` runs, but nothing is known of the time behind the
            // last record.
            let (state, recorded): (Vec<&Event>, Vec<&Event>) =
                trace.events.iter().partition(|event| event.channel == "statedump");
            let times = || recorded.iter().map(|event| event.time);
            let span = times().min().unwrap()..=times().max().unwrap();
            assert!(state.iter().all(|event| span.contains(&event.time)), "{span:?}");
            let own = i128::from(std::process::id());
            let me = named("lttng_statedump_process_state");
            let me = me.iter().find(|event| event.fields[0].1 == Value::Number(own, 10)).unwrap();
            let ppid = std::os::unix::process::parent_id();
            assert_eq!(me.fields[2].1, Value::Number(ppid.into(), 10), "{me:?}");
            assert!(
                named("lttng_statedump_network_interface")
                    .iter()
                    .any(|event| ctf::line(event).contains("\"lo\""))
            );
        }
    }
}

#[test]
fn a_rewrite_by_babeltrace_reads_back_equal() {
    let dir = tempfile::tempdir().unwrap();
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("traces/k6.12-instances.dat");
    for format in FORMATS {
        let (out, again) = (dir.path().join(format), dir.path().join(format!("{format}.again")));
        export(&file, format, &out).expect(0);
        let rewrite = ["--output-format=ctf", "--output"];
        run(program("/".as_ref(), "babeltrace2", rewrite).arg(&again).arg(&out)).expect(0);
        assert_eq!(babeltrace(&out), babeltrace(&again));
    }
}

fn field<'e>(record: &'e Kernel, name: &str) -> &'e Value {
    &record.fields.iter().find(|(field, _)| field == name).unwrap().1
}

fn int(record: &Kernel, name: &str) -> i128 {
    let Value::Number(number, _) = field(record, name) else { panic!("{record:?}") };
    *number
}

/// A number of an analysis.
fn told_int(json: &serde_json::Value) -> i128 {
    json.as_i64().unwrap_or_else(|| panic!("{json}")).into()
}

#[test]
fn lttng_analyses_agree_with_the_recording() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("trace.dat");
    let script = "i=0; while [ $i -lt 40000 ]; do i=$((i+1)); done; for f in 1 2 3; do ls / >/dev/null; done; sleep 0.1";
    let events =
        ["-e", "sched", "-e", "task", "-e", "irq", "-e", "raw_syscalls", "--self", "sh", "-c", script];
    record(&events, &file);
    let out = dir.path().join("out");
    export(&file, "lttng", &out).expect(0);
    let (records, lost) = kernel_records(&file);
    assert_eq!(lost, 0);
    let all = || records.values().flatten();
    let (first, last) = (all().map(|r| r.time).min().unwrap(), all().map(|r| r.time).max().unwrap());

    // CPU time of each task: from switch to switch, from the start for those that ran then, and until the end
    // for those that run then.
    let mut merged: Vec<&Kernel> = all().collect();
    merged.sort_by_key(|record| record.time);
    let mut cpu_time: BTreeMap<i128, (u64, Option<u64>)> = BTreeMap::new();
    for record in merged.iter().filter(|record| record.name == "sched_switch") {
        let times = cpu_time.entry(int(record, "prev_pid")).or_insert((0, Some(first)));
        times.0 += times.1.take().map_or(0, |since| record.time - since);
        if int(record, "next_pid") != 0 {
            cpu_time.entry(int(record, "next_pid")).or_insert((0, None)).1 = Some(record.time);
        }
    }
    let usage = &tables(&out, "lttng-cputop-mi", &[])[0];
    let mut compared = 0;
    for row in rows(usage) {
        let (tid, ratio) = (told_int(&row[0]["tid"]), row[3]["value"].as_f64().unwrap());
        let (time, since) = cpu_time.get(&tid).copied().unwrap_or_default();
        let time = time + since.map_or(0, |since| last - since);
        let expected = time as f64 / (last - first) as f64;
        assert!(
            (ratio - expected).abs() <= expected * 0.01 + 1e-4,
            "thread {tid}: {ratio}, not {expected}; it ran {time} ns of {first} .. {last}, at the end since {since:?}; {usage}"
        );
        compared += usize::from(time > 0);
    }
    assert!(compared >= 2, "{usage}");

    // System calls of the threads that were born meanwhile: their CPU is known from their first moment on.
    let born: Vec<i128> =
        all().filter(|r| r.name == "sched_process_fork").map(|r| int(r, "child_pid")).collect();
    // Analyses know who runs by the last switch on the CPU; other tracing programs can make the kernel skip
    // some.
    let mut by_time: Vec<(u32, &Kernel)> =
        records.iter().flat_map(|((_, cpu), records)| records.iter().map(|record| (*cpu, record))).collect();
    by_time.sort_by_key(|(_, record)| record.time);
    let mut running: BTreeMap<u32, i128> = BTreeMap::new();
    let mut entered: std::collections::BTreeSet<i128> = std::collections::BTreeSet::new();
    let mut calls: BTreeMap<i128, u64> = BTreeMap::new();
    for (cpu, record) in by_time {
        match record.name.as_str() {
            "sched_switch" => drop(running.insert(cpu, int(record, "next_pid"))),
            "sys_enter" => entered.extend(running.get(&cpu)),
            "sys_exit" => {
                if let Some(tid) = running.get(&cpu).filter(|tid| entered.remove(*tid)) {
                    *calls.entry(*tid).or_default() += 1;
                }
            }
            _ => {}
        }
    }
    let statistics = tables(&out, "lttng-syscallstats-mi", &[]);
    let mut compared = 0;
    for table in &statistics {
        let title = table["class"]["title"].as_str().unwrap_or_default();
        let Some((_, tid)) = title.split_once("TID: ") else { continue };
        let tid: i128 = tid.split(')').next().unwrap().parse().unwrap();
        if born.contains(&tid) {
            let count: u64 = rows(table).iter().map(|row| row[1]["value"].as_u64().unwrap()).sum();
            assert_eq!(calls.get(&tid), Some(&count), "system calls of thread {tid}");
            compared += 1;
        }
    }
    assert!(compared >= 3, "{statistics:?} {born:?}");

    // Interrupts: pairs of entry and exit on one CPU.
    let mut interrupts: BTreeMap<i128, u64> = BTreeMap::new();
    for records in records.values() {
        let mut entered = None;
        for record in records {
            match record.name.as_str() {
                "irq_handler_entry" => entered = Some(int(record, "irq")),
                "irq_handler_exit" if entered.take() == Some(int(record, "irq")) => {
                    *interrupts.entry(int(record, "irq")).or_default() += 1;
                }
                _ => {}
            }
        }
    }
    let mut counted: BTreeMap<i128, u64> = BTreeMap::new();
    for row in tables(&out, "lttng-irqstats-mi", &[]).iter().flat_map(rows) {
        let count = row[1]["value"].as_u64().unwrap_or(0);
        if row[0]["hard"] == true && count > 0 {
            counted.insert(told_int(&row[0]["nr"]), count);
        }
    }
    assert_eq!(counted, interrupts);

    // The longest times between waking and running: from the first time that a thread was woken while it ran
    // nowhere.
    let mut running: BTreeMap<u32, i128> = BTreeMap::new();
    let mut woken: BTreeMap<i128, u64> = BTreeMap::new();
    let mut waits: Vec<(u64, i128)> = Vec::new();
    let mut by_time: Vec<(u32, &Kernel)> =
        records.iter().flat_map(|((_, cpu), records)| records.iter().map(|record| (*cpu, record))).collect();
    by_time.sort_by_key(|(_, record)| record.time);
    for (cpu, record) in by_time {
        match record.name.as_str() {
            "sched_switch" => {
                let next = int(record, "next_pid");
                running.insert(cpu, next);
                waits.extend(woken.remove(&next).map(|since| (record.time - since, next)));
            }
            "sched_waking" | "sched_wakeup" | "sched_wakeup_new" => {
                let thread = int(record, "pid");
                if running.values().all(|other| *other != thread) {
                    woken.entry(thread).or_insert(record.time);
                }
            }
            _ => {}
        }
    }
    waits.sort_by(|one, other| other.cmp(one));
    let longest = &tables(&out, "lttng-schedtop-mi", &[])[0];
    let expected: Vec<u64> = waits.iter().take(rows(longest).len()).map(|(wait, _)| *wait).collect();
    let mut found: Vec<(u64, i128)> = rows(longest)
        .iter()
        .map(|row| (row[2]["value"].as_u64().unwrap(), told_int(&row[5]["tid"])))
        .collect();
    found.sort_by(|one, other| other.cmp(one));
    assert!(found.len() == 10 && found.iter().all(|row| waits.contains(row)), "{found:?}\n{waits:?}");
    assert_eq!(found.iter().map(|(wait, _)| *wait).collect::<Vec<_>>(), expected);
}

const COMMON: &str = "\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;
\tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;
\tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;
\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;
";

/// An event with text and numbers of any length.
fn blob_format(id: u16) -> String {
    format!(
        "name: blob{id}\nID: {id}\nformat:\n{COMMON}\n\
        \tfield:__data_loc char[] text;\toffset:8;\tsize:4;\tsigned:0;\n\
        \tfield:__data_loc s16[] list;\toffset:12;\tsize:4;\tsigned:1;\n\
        \tfield:s64 number;\toffset:16;\tsize:8;\tsigned:1;\n\nprint fmt: \"\"\n"
    )
}

fn blob(endian: Endian, id: u16, text: &[u8], list: &[i16], number: i64) -> Vec<u8> {
    let mut record = endian.u16(id).to_vec();
    record.extend([1, 2]);
    record.extend(endian.u32(3));
    let list_at = 24 + text.len() as u32 + 1;
    record.extend(endian.u32(0x18 | (text.len() as u32 + 1) << 16));
    record.extend(endian.u32(list_at | (list.len() as u32 * 2) << 16));
    record.extend(endian.u64(number as u64));
    record.extend(text);
    record.push(0);
    record.extend(list.iter().flat_map(|number| endian.u16(*number as u16)));
    record
}

/// A step of a made-up recording: time, events lost before, record.
type Made = (u64, Option<u64>, Vec<u8>);

/// Writes a file with these formats, and the records of these CPUs.
fn make(path: &Path, endian: Endian, formats: &[String], page_size: u32, cpus: &[(u32, Vec<Made>)]) {
    let setup = Setup { endian, page_size, compression: Compression::Zstd { level: 1 } };
    let mut writer = Writer::create(
        File::options().create(true).truncate(true).read(true).write(true).open(path).unwrap(),
        setup,
    )
    .unwrap();
    let header_page = layout::header_page_text(page_size);
    writer.section(Section::header_info(endian, &header_page, "x").unwrap()).unwrap();
    writer.section(Section::ftrace_events(endian, &[]).unwrap()).unwrap();
    let formats: Vec<&str> = formats.iter().map(String::as_str).collect();
    writer
        .section(Section::event_formats(endian, &[EventSystem { name: "made", formats: &formats }]).unwrap())
        .unwrap();
    writer.section(Section::kallsyms(endian, b"").unwrap()).unwrap();
    writer.section(Section::printk(endian, b"").unwrap()).unwrap();
    writer.section(Section::cmdlines(endian, &Cmdlines::new())).unwrap();
    let mut buffer = writer.begin_buffer(Buffer { name: "", clock: "mono", page_size }).unwrap();
    for (cpu, records) in cpus {
        let mut builder = PageBuilder::new(page_size as usize, endian).unwrap();
        let mut pages = Vec::new();
        for (time, missed, record) in records {
            if let Some(missed) = missed {
                pages.extend_from_slice(builder.finish().unwrap_or_default());
                builder.missed(*missed);
            }
            while builder.push(*time, record).unwrap() == Push::Full {
                pages.extend_from_slice(builder.finish().unwrap());
            }
        }
        pages.extend_from_slice(builder.finish().unwrap_or_default());
        buffer.write_cpu(*cpu, pages.as_slice()).unwrap();
    }
    buffer.finish().unwrap();
    writer.finish().unwrap();
}

/// Numbers that look random and are the same each time (splitmix64).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ z >> 31) % limit
    }
}

#[test]
fn made_up_recordings() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("made.dat");
    for seed in 0..4 {
        let mut random = Random(seed);
        // Few kinds of events have compact headers, many have large ones.
        let kinds = if seed % 2 == 0 { 3 } else { 40 };
        let endian = if seed < 2 { Endian::Little } else { Endian::Big };
        let formats: Vec<String> = (0..kinds).map(|kind| blob_format(1000 + kind)).collect();
        let mut cpus = Vec::new();
        let mut lost = 0;
        for cpu in [0, 3, 63] {
            let mut time = 1_000_000 + random.below(1000);
            let mut records = Vec::new();
            // One of them has nothing.
            let count = if cpu == 3 { 0 } else { 400 };
            for place in 0..count {
                // Gaps around the turns of 27 and 32 bits, and of five minutes.
                time += match random.below(20) {
                    0 => 300_000_000_000,
                    1 => (1 << 27) - 1 + random.below(3),
                    2 => (1 << 32) - 1 + random.below(3),
                    _ => random.below(5000),
                };
                let missed = (place == 0 || random.below(40) == 0).then(|| 1 + random.below(1000));
                lost += missed.unwrap_or(0);
                let text = match random.below(60) {
                    0..10 => Vec::new(),
                    // Nearly the longest that a page of 64 KB holds.
                    10 => vec![b'x'; 60_000],
                    length => vec![b"a\"\\\n b"[random.below(6) as usize]; length as usize],
                };
                let list: Vec<i16> = (0..random.below(5)).map(|_| random.below(65536) as i16).collect();
                let id = 1000 + random.below(kinds.into()) as u16;
                records.push((time, missed, blob(endian, id, &text, &list, random.below(u64::MAX) as i64)));
            }
            cpus.push((cpu, records));
        }
        make(&file, endian, &formats, 65536, &cpus);
        for format in FORMATS {
            let (trace, out) = check(&file, format, dir.path());
            assert_eq!(trace.events.len(), 800);
            assert_eq!(trace.losses.values().flatten().map(|loss| loss.2).sum::<u64>(), lost, "seed {seed}");
            assert!(trace.text.contains(if kinds == 3 {
                "event_header_compact;"
            } else {
                "event_header_large;"
            }));
            fs::remove_dir_all(out).unwrap();
        }
    }
}

/// The names in a directory.
fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn bad_input_leaves_nothing_behind() {
    let dir = tempfile::tempdir().unwrap();
    let stored = Path::new(env!("CARGO_MANIFEST_DIR")).join("traces/k6.12-lost.dat");
    let out = dir.path().join("out");
    let refuse = |file: &Path, format: &str, code: i32, texts: &[&str]| {
        let before = names(dir.path());
        export(file, format, &out).expect(code).says(texts);
        assert_eq!(names(dir.path()), before, "{texts:?}");
    };
    refuse(&stored, "svg", 2, &["svg", "known: ctf, lttng"]);
    refuse(&dir.path().join("none"), "ctf", 1, &["none"]);

    let mut bytes = fs::read(&stored).unwrap();
    let data = Reader::open(File::open(&stored).unwrap()).unwrap().buffers()[0].cpus[0];
    let middle = (data.offset + data.size / 2) as usize;
    bytes[middle..middle + 4000].fill(0xa5);
    let damaged = dir.path().join("damaged.dat");
    fs::write(&damaged, &bytes).unwrap();
    refuse(&damaged, "ctf", 1, &["damaged", "--keep-going"]);
    run(agent("/".as_ref(), ["export", "--format", "ctf", "--keep-going"]).arg(&damaged).arg(&out))
        .expect(0)
        .says(&["not carried over", "damaged"]);
    ctf::read(&out);
    refuse(&stored, "ctf", 114, &["exists", "--force"]);
    fs::remove_dir_all(&out).unwrap();

    let odd = dir.path().join("odd.dat");
    let format = blob_format(1000).replace("size:8", "size:eight");
    make(
        &odd,
        Endian::Little,
        &[format, blob_format(1001)],
        4096,
        &[(
            0,
            vec![
                (5, None, blob(Endian::Little, 1000, b"x", &[], 1)),
                (6, None, blob(Endian::Little, 1001, b"y", &[], 2)),
            ],
        )],
    );
    refuse(&odd, "lttng", 1, &["made:blob1000", "format cannot be understood"]);
    run(agent("/".as_ref(), ["export", "--format", "ctf", "--keep-going"]).arg(&odd).arg(&out)).expect(0);
    assert_eq!(ctf::read(&out).events.len(), 1);

    let full = Tmpfs::mount("size=200k");
    export(&stored, "lttng", &full.path().join("out")).expect(113).says(&["No space left"]);
    assert!(names(full.path()).is_empty());
}

#[test]
fn an_archive_and_an_earlier_export() {
    let dir = tempfile::tempdir().unwrap();
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("traces/k6.12-kprobes.dat");
    let out = dir.path().join("out");
    run(agent("/".as_ref(), ["export", "--format", "ctf", "--tar"]).arg(&file).arg(&out)).expect(0);
    assert_eq!(names(dir.path()), ["out.tar.gz"]);
    run(&mut program(dir.path(), "tar", ["xzf", "out.tar.gz"])).expect(0);
    let unpacked = ctf::read(&out).events;
    // The layout is recognised, and a second export is the same to the byte.
    run(agent("/".as_ref(), ["export", "--format", "ctf", "--force"]).arg(&file).arg(&out)).expect(0);
    assert_eq!(ctf::read(&out).events, unpacked);
    let told = run(agent("/".as_ref(), ["info"]).arg(&out)).expect(0).out;
    for text in ["Common Trace Format", "channel0_0", "tracer-agent"] {
        assert!(told.contains(text), "{told}");
    }
    let told = run(agent("/".as_ref(), ["info", "--json"]).arg(&out)).expect(0).out;
    assert!(told.starts_with("{\"env\":[[\"hostname\""), "{told}");
    run(agent("/".as_ref(), ["info"]).arg(dir.path())).expect(1).says(&["no trace"]);
}
