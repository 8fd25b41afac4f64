//! The layout of LTT with eventdefs.

use super::*;

fn same(event: &eventdefs_reader::Event, record: &Record<'_>, printer: &Printer) {
    assert_eq!(event.name, format!("{}.{}", printer.system(), printer.name()));
    let common = printer.format().common.iter().map(|field| &field.name).collect::<Vec<_>>();
    let mut seen = 0;
    for (name, value) in fields(printer, record.data) {
        let expected = match value {
            _ if printer.is_kernel_stack() && name == "caller" => {
                Item::List(stack(printer, record.data).iter().map(|n| Item::Number((*n).into())).collect())
            }
            Value::Text(text) => Item::Text(text.to_vec()),
            Value::Texts(texts) => {
                Item::List(texts.iter().map(|text| Item::Text(text.unwrap().to_vec())).collect())
            }
            Value::Array(numbers) => {
                Item::List(numbers.iter().map(|value| Item::Number(number(&value).unwrap())).collect())
            }
            Value::Bytes(bytes) => {
                Item::List(bytes.iter().map(|byte| Item::Number((*byte).into())).collect())
            }
            Value::Bitmask(bits) => {
                let mut words = vec![0_i128; bits.capacity().div_ceil(32)];
                bits.iter().for_each(|bit| words[bit / 32] |= 1 << (bit % 32));
                Item::List(words.into_iter().map(Item::Number).collect())
            }
            value => Item::Number(number(&value).unwrap()),
        };
        let is_common = common.iter().any(|common| *common == name);
        let place = if is_common { event.data.get("common").unwrap() } else { &event.data };
        assert_eq!(place.get(name), Some(&expected), "{name} of {}", event.name);
        seen += u64::from(!is_common);
    }
    let Item::Struct(fields) = &event.data else { panic!("{:?}", event.data) };
    assert_eq!(seen + 1, fields.len() as u64);
}

fn compare(trace: &eventdefs_reader::Trace, file: &TraceFile) -> u64 {
    let table = events_of(file);
    let job = Job::new(&|_| {});
    let offset = Recording::survey(file, &job).unwrap().wall_offset().unwrap_or(0);
    let (mut skipped, mut switches, mut schedules) = (0, 0, 0);
    let mut by_cpu: BTreeMap<u32, Vec<&eventdefs_reader::Event>> = BTreeMap::new();
    for (name, events) in trace.files.iter().filter(|(name, _)| name.starts_with("cpu/")) {
        schedules += events.iter().filter(|event| event.name == "core.schedchange").count();
        let recorded = events.iter().filter(|event| !event.name.starts_with("core."));
        by_cpu.insert(name["cpu/".len()..].parse().unwrap(), recorded.collect());
    }
    let mut next: BTreeMap<u32, usize> = BTreeMap::new();
    let mut records = file.records().unwrap();
    while let Some(record) = records.next_record().unwrap() {
        let at = next.entry(record.cpu).or_default();
        let time = record.timestamp.wrapping_add_signed(offset);
        let events = &by_cpu[&record.cpu];
        if let Some(missed) = record.missed {
            assert_eq!((events[*at].name.as_str(), events[*at].time), ("state.events_lost", time));
            assert_eq!(events[*at].data.number("count"), i128::from(missed));
            *at += 1;
        }
        let printer = table.of_record(record.data).unwrap();
        let there = events.get(*at).is_some_and(|event| event.time == time);
        if record.data.len() > LONG && !there {
            skipped += 1;
            continue;
        }
        assert_eq!(events[*at].time, time);
        same(events[*at], &record, printer);
        switches += usize::from(printer.name() == "sched_switch");
        *at += 1;
    }
    for (cpu, events) in &by_cpu {
        assert_eq!(next.get(cpu), Some(&events.len()), "CPU {cpu}");
    }
    assert_eq!(schedules, switches);
    skipped
}

fn check(file: &TraceFile, options: eventdefs::Options) -> (eventdefs_reader::Trace, u64) {
    let (_dir, path, done) = exported(file, &EventDefs::new(options).unwrap());
    let trace = eventdefs_reader::read(&path, options.literal);
    let summary = eventdefs::summary::read(&path).unwrap();
    assert_eq!((summary.damage.len(), summary.files.len()), (0, trace.files.len()), "{summary:?}");
    assert_eq!(summary.files.iter().map(|file| file.blocks).sum::<u64>(), trace.blocks as u64);
    assert_eq!(trace.system["ltt_block_size"], options.block_size.to_string());
    assert_eq!(trace.system["arch_size"], "LP64");
    let skipped = compare(&trace, file);
    assert_eq!(skipped, too_long(&done));
    (trace, skipped)
}

fn every_option() -> Vec<eventdefs::Options> {
    let mut all = Vec::new();
    for literal in [false, true] {
        for endian in [Endian::Little, Endian::Big] {
            for block_size in BLOCKS {
                all.push(eventdefs::Options { literal, block_size, endian: Some(endian) });
            }
        }
    }
    all
}

#[test]
fn every_event_of_every_recording_in_every_shape() {
    for (name, file) in recordings() {
        for options in every_option() {
            if name == "k6.12-lost.dat" && options.block_size < 1 << 20 {
                continue;
            }
            let (trace, _) = check(&file, options);
            let marks = |name: &str| {
                trace.bookmarks.iter().filter(|(attributes, _)| attributes["name"] == name).count()
            };
            assert_eq!((marks("session_start"), marks("session_stop")), (1, 1));
            if name == "k6.12-lost.dat" {
                assert_eq!(marks("lost"), 6);
            }
        }
    }
}

#[test]
fn whatever_a_recording_may_hold() {
    for seed in 0..4 {
        let recorded = synthetic(seed);
        for options in every_option() {
            let (trace, skipped) = check(&recorded, options);
            let long = count_long(&recorded);
            assert!(options.block_size > 4096 || skipped == long, "{skipped} of {long}");
            assert!(options.block_size < 1 << 20 || skipped == 0, "{skipped}");
            assert!(trace.heartbeats > 0);
        }
    }
}
