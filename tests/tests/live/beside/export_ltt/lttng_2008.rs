//! The layout of LTTng in 2008.

use super::*;

const STATE: [&str; 15] = [
    "kernel_sched_schedule",
    "kernel_arch_syscall_entry",
    "kernel_arch_syscall_exit",
    "kernel_arch_trap_entry",
    "kernel_arch_trap_exit",
    "kernel_irq_entry",
    "kernel_irq_exit",
    "kernel_softirq_raise",
    "kernel_softirq_entry",
    "kernel_softirq_exit",
    "kernel_process_fork",
    "kernel_arch_kthread_create",
    "kernel_process_exit",
    "kernel_process_free",
    "fs_exec",
];

fn same(event: &ltt2008_reader::Event, record: &Record<'_>, printer: &Printer) {
    assert_eq!(event.name, format!("{}_{}", printer.system(), printer.name()));
    let mut seen = 0;
    let mut is = |name: &str, expected: Field| {
        assert_eq!(event.field(name), Some(&expected), "{name} of {}", event.name);
        seen += 1;
    };
    for (name, value) in fields(printer, record.data) {
        match value {
            _ if printer.is_kernel_stack() && name == "caller" => {
                let addresses: Vec<_> =
                    stack(printer, record.data).iter().map(|address| format!("0x{address:x}")).collect();
                is(name, Field::Text(format!("{{{}}}", addresses.join(",")).into_bytes()));
            }
            Value::Text(text) => is(name, Field::Text(text.to_vec())),
            Value::Array(numbers) if event.field(&format!("{name}_0")).is_some() => {
                for (place, value) in numbers.iter().enumerate() {
                    is(&format!("{name}_{place}"), Field::Number(number(&value).unwrap()));
                }
            }
            Value::Texts(texts) => {
                for (place, text) in texts.iter().enumerate() {
                    is(&format!("{name}_{place}"), Field::Text(text.unwrap().to_vec()));
                }
            }
            value => is(
                name,
                number(&value).map_or_else(|| Field::Text(value.to_string().into_bytes()), Field::Number),
            ),
        }
    }
    assert_eq!(seen, event.fields.len(), "fields of {}", event.name);
}

/// Compares a trace with the recording; returns how many records are not in it.
fn compare(trace: &ltt2008_reader::Trace, file: &TraceFile) -> u64 {
    let table = events_of(file);
    let prefix = if trace.header.flight_recorder { "flight-" } else { "" };
    let (mut skipped, mut cpus) = (0, 0);
    let mut state = BTreeMap::<&str, u64>::new();
    let mut recorded = BTreeMap::<String, u64>::new();
    for (buffer, info) in file.buffers().iter().enumerate() {
        let channel = if info.name.is_empty() { "cpu" } else { &info.name };
        for cpu in &info.cpus {
            let name = format!("{prefix}{channel}_{}", cpu.cpu);
            let mut records = file.cpu_records(buffer, cpu.cpu).unwrap();
            let Some(written) = trace.files.get(&name) else {
                assert!(records.next_record().unwrap().is_none(), "no file {name}");
                continue;
            };
            cpus += 1;
            let mut events = written.events.iter().peekable();
            while let Some(record) = records.next_record().unwrap() {
                while let Some(event) = events.next_if(|event| {
                    STATE.contains(&event.name.as_str()) || event.name == "core_heartbeat_32"
                }) {
                    *state.entry(&event.name).or_default() += 1;
                }
                if let Some(missed) = record.missed {
                    let event = events.next().unwrap();
                    assert_eq!((event.name.as_str(), event.cycles), ("trace_events_lost", record.timestamp));
                    assert_eq!(event.number("count"), i128::from(missed));
                }
                while events.next_if(|event| event.name == "core_heartbeat_32").is_some() {}
                let printer = table.of_record(record.data).unwrap();
                let full = format!("{}:{}", printer.system(), printer.name());
                if record.data.len() > LONG
                    && events.peek().is_none_or(|event| event.cycles != record.timestamp)
                {
                    skipped += 1;
                    continue;
                }
                *recorded.entry(full).or_default() += 1;
                let event = events.next().unwrap();
                assert_eq!(event.cycles, record.timestamp, "{name}");
                same(event, &record, printer);
            }
            for event in events {
                assert!(STATE.contains(&event.name.as_str()), "{}", event.name);
                *state.entry(&event.name).or_default() += 1;
            }
        }
    }
    let files = trace.files.keys().filter(|name| !name.starts_with("control/")).count();
    assert_eq!(files, cpus, "files without a CPU");
    let of = |name: &str| recorded.get(name).copied().unwrap_or(0);
    let told = |name: &str| state.get(name).copied().unwrap_or(0);
    assert_eq!(told("kernel_sched_schedule"), of("sched:sched_switch"));
    assert_eq!(told("kernel_softirq_entry"), of("irq:softirq_entry"));
    assert_eq!(told("kernel_process_fork"), of("sched:sched_process_fork"));
    assert_eq!(told("fs_exec"), of("sched:sched_process_exec"));
    skipped
}

fn check(file: &TraceFile, options: ltt2008::Options) -> (ltt2008_reader::Trace, u64) {
    let (_dir, path, done) = exported(file, &Lttng2008::new(options).unwrap());
    let trace = ltt2008_reader::read(&path, options.literal);
    let summary = ltt2008::summary::read(&path).unwrap();
    assert_eq!((summary.damage.len(), summary.files.len()), (0, trace.files.len()), "{summary:?}");
    for file in &summary.files {
        assert_eq!(file.blocks, trace.files[&file.name].blocks as u64, "{}", file.name);
    }
    let bytes = &summary.facts.iter().find(|(name, _)| name == "header").unwrap().1;
    assert_eq!(bytes.starts_with("61"), options.literal);
    let header = &trace.header;
    let endian = options.endian.unwrap_or(file.header().endian);
    assert_eq!(header.big, endian == Endian::Big);
    assert_eq!((header.heartbeat, header.alignment), (options.heartbeat, options.alignment.bytes()));
    assert_eq!(header.arch_size, file.layout().long_size);
    let blocks = trace.files.iter().filter(|(name, _)| !name.starts_with("control/"));
    assert!(blocks.into_iter().all(|(_, file)| file.block_size == options.block_size as usize));
    let skipped = compare(&trace, file);
    assert_eq!(skipped, too_long(&done));
    (trace, skipped)
}

fn every_option() -> Vec<ltt2008::Options> {
    let mut all = Vec::new();
    for literal in [false, true] {
        for heartbeat in [false, true] {
            for alignment in [Alignment::Packed, Alignment::Four, Alignment::Eight] {
                for endian in [Endian::Little, Endian::Big] {
                    let endian = Some(endian);
                    all.push(ltt2008::Options { literal, heartbeat, alignment, block_size: 0, endian });
                }
            }
        }
    }
    all
}

#[test]
fn every_event_of_every_recording_in_every_shape() {
    for (place, (name, file)) in recordings().into_iter().enumerate() {
        for (number, options) in every_option().into_iter().enumerate() {
            // The long one is there for what it lost, the others for what they have.
            let sizes = match name.as_str() {
                "k6.12-sched-irq-timer-zstd.dat" => &BLOCKS[..],
                "k6.12-lost.dat" if number % 12 != 5 => &[],
                _ => {
                    let size = (number + place) % BLOCKS.len();
                    &BLOCKS[size..=size]
                }
            };
            for block_size in sizes {
                check(&file, ltt2008::Options { block_size: *block_size, ..options });
            }
        }
    }
}

#[test]
fn whatever_a_recording_may_hold() {
    for seed in 0..4 {
        let recorded = synthetic(seed);
        let shapes = every_option();
        for number in 0..3 {
            let options = shapes[(seed as usize * 7 + number * 5) % shapes.len()];
            for block_size in BLOCKS {
                let (trace, skipped) = check(&recorded, ltt2008::Options { block_size, ..options });
                let long = count_long(&recorded);
                assert!(block_size > 4096 || skipped == long, "{skipped} of {long}");
                assert!(block_size < 1 << 20 || skipped == 0, "{skipped}");
                // Every CPU number up to the highest has its facilities.
                assert!((0..=20).all(|cpu| trace.files.contains_key(&format!("control/facilities_{cpu}"))));
            }
        }
    }
}

#[test]
fn overwritten_recordings_are_marked() {
    let stat = "CPU: 0\nentries: 0\noverrun: 12\n";
    let file = build(&[], &[FileOption::CpuStat(stat.into())], Endian::Little, |_, _| Vec::new());
    assert!(check(&file, ltt2008::Options::default()).0.header.flight_recorder);
}
