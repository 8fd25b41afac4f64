//! An export compared with its recording: as the library reads it, as babeltrace2 prints the export, and as
//! `report --json` tells it.

use super::*;

/// A record of a file, as the library reads it.
#[derive(Debug)]
pub(crate) struct Kernel {
    pub(crate) time: u64,
    pub(crate) system: String,
    pub(crate) name: String,
    pub(crate) common: Vec<(String, Value)>,
    pub(crate) fields: Vec<(String, Value)>,
    /// Whether records were lost before it.
    pub(crate) is_after_loss: bool,
    /// The stacks that are contexts of it, by their name there.
    pub(crate) stacks: Vec<(&'static str, Value)>,
}

pub(crate) fn plain(value: ftrace_event::Value<'_>) -> Value {
    match value {
        ftrace_event::Value::Signed(number) => Value::Number(number.into(), 10),
        ftrace_event::Value::Unsigned(number) | ftrace_event::Value::Pointer(number) => {
            Value::Number(number.into(), 10)
        }
        ftrace_event::Value::Text(text) => Value::Text(text.to_vec()),
        ftrace_event::Value::Texts(texts) => {
            Value::List(texts.iter().map(|text| Value::Text(text.unwrap().to_vec())).collect())
        }
        ftrace_event::Value::Array(numbers) => Value::List(numbers.iter().map(plain).collect()),
        ftrace_event::Value::Bytes(bytes) => {
            Value::List(bytes.iter().map(|byte| Value::Number((*byte).into(), 10)).collect())
        }
        ftrace_event::Value::Bitmask(bits) => {
            let set =
                |byte: usize| (0..8).filter(|bit| bits.contains(byte * 8 + bit)).map(|bit| 1 << bit).sum();
            Value::List((0..bits.capacity() / 8).map(|byte| Value::Number(set(byte), 10)).collect())
        }
    }
}

/// Records by channel and CPU, and events lost by the marks between them.
pub(crate) fn kernel_records(file: &Path) -> (BTreeMap<(String, u32), Vec<Kernel>>, u64) {
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
                let named = |(field, value): (&ftrace_event::Field, Result<ftrace_event::Value<'_>, _>)| {
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
                    is_after_loss: record.missed.is_some(),
                    stacks: Vec::new(),
                });
            }
        }
    }
    found.retain(|_, records| !records.is_empty());
    (found, lost)
}

/// Makes stacks contexts of the records that they directly follow, as LTTng has them. Others are left out.
fn fold_stacks(records: Vec<Kernel>) -> Vec<Kernel> {
    // The thread, and the bits of `common_flags` for interrupts of hardware, of software and NMIs.
    let from = |record: &Kernel| {
        let common = |name| match record.common.iter().find(|(field, _)| field == name) {
            Some((_, Value::Number(number, _))) => *number,
            other => panic!("{name}: {other:?}"),
        };
        (common("common_pid"), common("common_flags") & 0x58)
    };
    let mut found: Vec<Kernel> = Vec::new();
    let mut is_separated = false;
    for record in records {
        let context = match (&*record.system, &*record.name) {
            ("ftrace", "kernel_stack") => "callstack_kernel",
            ("ftrace", "user_stack") => "callstack_user",
            _ => {
                is_separated = false;
                found.push(record);
                continue;
            }
        };
        match found.last_mut() {
            Some(event) if !is_separated && !record.is_after_loss && from(event) == from(&record) => {
                let (_, Value::List(mut caller)) =
                    record.fields.into_iter().find(|(name, _)| name == "caller").unwrap()
                else {
                    panic!("no list of addresses");
                };
                while matches!(caller.last(), Some(Value::Number(0, _))) {
                    caller.pop();
                }
                event.stacks.push((context, Value::List(caller)));
            }
            _ => is_separated = true,
        }
    }
    found
}

/// Whether the values are the same, whatever base they are shown in.
pub(crate) fn same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one, _), Value::Number(other, _)) => one == other,
        (Value::List(one), Value::List(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| same(one, other))
        }
        (one, other) => one == other,
    }
}

pub(crate) fn is_length(name: &str) -> bool {
    name.starts_with('_') && name.ends_with("_length")
}

/// Fails unless an event has what its record has, under the kernel's names.
pub(crate) fn compare_kernel(event: &Event, record: &Kernel) {
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
pub(crate) fn compare_lttng(event: &Event, record: &Kernel) {
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
    for (name, found) in event.context.iter().filter(|(name, _)| name.starts_with("callstack_")) {
        let expected = record.stacks.iter().find(|(stack, _)| stack == name).map(|(_, stack)| stack);
        assert!(same(found, expected.unwrap_or(&Value::List(Vec::new()))), "{event:?}\n{record:?}");
    }
    let has = |name: &str| event.context.iter().any(|(context, _)| context == name);
    assert!(record.stacks.iter().all(|(name, _)| has(name)), "{event:?}\n{record:?}");
}

/// Whether `report --json` shows this value.
pub(crate) fn is_told(value: &Value, told: &serde_json::Value) -> bool {
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
pub(crate) fn bits(bytes: &[Value]) -> Option<impl Iterator<Item = Option<u64>>> {
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
pub(crate) fn compare_told(file: &Path, by_stream: &BTreeMap<(String, u32), Vec<&Event>>) {
    let mut streams: BTreeMap<_, _> =
        by_stream.iter().map(|(stream, events)| (stream.clone(), events.iter())).collect();
    for record in reported(file) {
        let buffer = record["buffer"].as_str().unwrap();
        let channel = if buffer.is_empty() { "channel0" } else { buffer };
        let cpu = record["cpu"].as_u64().unwrap() as u32;
        let event = streams
            .get_mut(&(channel.to_owned(), cpu))
            .and_then(Iterator::next)
            .unwrap_or_else(|| panic!("{record}"));
        let name = format!("{}:{}", record["system"].as_str().unwrap(), record["event"].as_str().unwrap());
        assert_eq!((&event.name, Some(event.time)), (&name, record["timestamp"].as_u64()), "{record}");
        let values: Vec<_> = event.fields.iter().filter(|(name, _)| !is_length(name)).collect();
        assert_eq!(values.len(), record["fields"].as_object().unwrap().len(), "{record}\n{event:?}");
        for (name, value) in values {
            assert!(is_told(value, &record["fields"][name]), "{name}: {record}\n{event:?}");
        }
        for (name, told) in
            [("common_pid", "pid"), ("common_flags", "flags"), ("common_preempt_count", "preempt_count")]
        {
            let value = &event.context.iter().find(|(field, _)| field == name).expect(name).1;
            assert!(is_told(value, &record[told]), "{name}: {record}\n{event:?}");
        }
    }
    for (stream, mut rest) in streams {
        assert_eq!(rest.next(), None, "{stream:?}: more than the report has");
    }
}

/// Exports a file in a format and compares everything with everything. Returns the trace and where it is.
pub(crate) fn check(file: &Path, format: &str, dir: &Path) -> (ctf::Trace, PathBuf) {
    let out = dir.join(format!("{}.{format}", file.file_name().unwrap().to_str().unwrap()));
    let ended = export(file, format, &out).expect(0);
    let (mut records, lost) = kernel_records(file);
    if format == "lttng" {
        records = records.into_iter().map(|(stream, records)| (stream, fold_stacks(records))).collect();
    }
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
    assert_eq!(
        told["traces"][0]["recorded"].as_u64(),
        Some(trace.events.len() as u64),
        "events that info counts"
    );
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
pub(crate) fn is_printed(line: &str, printed: &str) -> bool {
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

pub(crate) fn field<'e>(record: &'e Kernel, name: &str) -> &'e Value {
    &record.fields.iter().find(|(field, _)| field == name).unwrap().1
}

pub(crate) fn int(record: &Kernel, name: &str) -> i128 {
    let Value::Number(number, _) = field(record, name) else { panic!("{record:?}") };
    *number
}
