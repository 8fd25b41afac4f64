//! Every event format of the running kernel is parsed. Needs root and a mounted tracefs.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use crate::common::{Scratch, pages, run, str};
use ftrace_event::{Array, Format, Location};
use tracedat::{Buffer, EventSystem, Section, Setup, Writer};

const EVENTS: &str = "/sys/kernel/tracing/events";

/// Paths and texts of all formats.
fn formats() -> Vec<(PathBuf, String)> {
    let list = |path: &Path| -> Vec<PathBuf> {
        let entries = fs::read_dir(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        entries.map(|entry| entry.unwrap().path()).filter(|path| path.is_dir()).collect()
    };
    let mut found = Vec::new();
    for event in list(Path::new(EVENTS)).iter().flat_map(|system| list(system)) {
        let path = event.join("format");
        if path.exists() {
            let text = fs::read_to_string(&path).unwrap();
            found.push((path, text));
        }
    }
    assert!(found.len() > 500, "only {} formats below {EVENTS}", found.len());
    found
}

#[test]
fn every_format_parses_and_loses_nothing() {
    for (path, text) in formats() {
        let path = path.display();
        let format = Format::parse(&text).unwrap_or_else(|error| panic!("{path}: {error}"));
        // What the parser kept, written back, is the text.
        let mut again = format!("name: {}\nID: {}\nformat:\n", format.name, format.id);
        for fields in [&format.common, &format.fields] {
            for field in fields {
                let signed = u8::from(field.signed);
                let _ = writeln!(
                    again,
                    "\tfield:{field};\toffset:{};\tsize:{};\tsigned:{signed};",
                    field.offset, field.size
                );
            }
            again += "\n";
        }
        again += "print fmt: ";
        again += &format.print_fmt;
        let lines = |text: &str| -> Vec<String> {
            text.trim_end().lines().map(|line| line.trim_end().to_owned()).collect()
        };
        assert_eq!(lines(&again), lines(&text), "{path}");
    }
}

#[test]
fn layouts_are_those_of_c_structs() {
    for (path, text) in formats() {
        let path = path.display();
        let format = Format::parse(&text).unwrap();
        let layout = format.record_layout();
        assert!([4, 8].contains(&layout.align), "{path}: {layout:?}");
        assert!(layout.size >= layout.fields_end && layout.size - layout.fields_end < layout.align, "{path}");
        let dynamic = format.fields.iter().filter(|field| field.location != Location::Inline).count();
        assert_eq!(layout.dynamic.len(), dynamic, "{path}");
        // The first own field stands where the kernel's struct puts it, and every gap is one that alignment
        // explains. Of structs that kernel code packs by hand (system `ftrace`) nothing is known.
        let mut end = 8;
        for field in &format.fields {
            if path.to_string().contains("/ftrace/") {
                break;
            }
            let gap = field.offset.checked_sub(end).unwrap_or_else(|| panic!("{path}: {field} overlaps"));
            assert!(gap < 8, "{path}: {gap} bytes before {field}");
            end = field.end();
        }
    }
}

#[test]
fn known_events() {
    let parse = |event: &str| {
        let path = Path::new(EVENTS).join(event).join("format");
        Format::parse(
            &fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display())),
        )
        .unwrap()
    };
    let switch = parse("sched/sched_switch");
    assert_eq!(switch.field("prev_comm").unwrap().array, Array::Fixed(16));
    assert_eq!(switch.record_layout().size, 64);
    assert!(!switch.prints_symbols());
    let timer = parse("timer/timer_start");
    assert!(timer.prints_symbols());
    let exec = parse("sched/sched_process_exec").record_layout();
    assert_eq!((exec.fields_end, exec.size, exec.dynamic.len()), (20, 20, 1));
}

#[test]
fn all_of_them_make_a_file_that_trace_cmd_opens() {
    let scratch = Scratch::new();
    let path = scratch.path("t.dat");
    let Setup { endian, compression, page_size } = Setup::default();
    let mut by_system: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (path, text) in formats() {
        let system = path.ancestors().nth(2).and_then(Path::file_name).unwrap().to_str().unwrap();
        by_system.entry(system.to_owned()).or_default().push(text);
    }
    let ftrace = by_system.remove("ftrace").unwrap();
    let ftrace: Vec<&str> = ftrace.iter().map(String::as_str).collect();
    let systems: Vec<(&String, Vec<&str>)> =
        by_system.iter().map(|(name, texts)| (name, texts.iter().map(String::as_str).collect())).collect();
    let systems: Vec<EventSystem<'_>> =
        systems.iter().map(|(name, formats)| EventSystem { name, formats }).collect();

    let read = |file: &str| fs::read(file).unwrap_or_else(|error| panic!("{file}: {error}"));
    let text = |file: &str| String::from_utf8(read(file)).unwrap();
    let mut writer = Writer::create(fs::File::create_new(&path).unwrap(), Setup::default()).unwrap();
    // The kernel gives the whole of these files to the first read, or as much as that asks for, and nothing
    // to the second; fs::read starts with a short one.
    let read_at_once = |name: &str| {
        let mut buffer = vec![0; 65536];
        let len = fs::File::open(format!("{EVENTS}/{name}")).unwrap().read(&mut buffer).unwrap();
        String::from_utf8(buffer[..len].to_vec()).unwrap()
    };
    let (header_page, header_event) = (read_at_once("header_page"), read_at_once("header_event"));
    // Packed beside, as a recorder does it.
    let kallsyms = std::thread::spawn(move || {
        Section::kallsyms(endian, &read("/proc/kallsyms")).unwrap().pack(compression).unwrap()
    });
    writer.section(Section::header_info(endian, &header_page, &header_event).unwrap()).unwrap();
    writer.section(Section::ftrace_events(endian, &ftrace).unwrap()).unwrap();
    writer.section(Section::event_formats(endian, &systems).unwrap()).unwrap();
    writer.section(kallsyms.join().unwrap()).unwrap();
    writer
        .section(Section::printk(endian, &fs::read("/sys/kernel/tracing/printk_formats").unwrap()).unwrap())
        .unwrap();
    let switch = Format::parse(&text(&format!("{EVENTS}/sched/sched_switch/format"))).unwrap();
    let mut record = crate::common::switch(("before", 11), ("after", 12));
    record[..2].copy_from_slice(&switch.id.to_le_bytes());
    let mut top = writer.begin_buffer(Buffer { name: "", clock: "mono", page_size }).unwrap();
    top.write_cpu(0, pages(page_size, [(1_000_000, record)]).as_slice()).unwrap();
    top.finish().unwrap();
    writer.finish().unwrap();

    // What this trace-cmd thinks of the print fmts of a newer kernel is not the file's matter.
    let shown = |options: &[&str]| {
        let output = run(&[&["report", "-i", str(&path)], options].concat());
        assert!(output.status.success(), "{options:?}: {output:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let report = shown(&[]);
    assert!(report.contains("sched_switch:         before:11 [120] S ==> after:12 [120]"), "{report}");
    let events = shown(&["-E"]);
    let count: usize = systems.iter().map(|system| system.formats.len()).sum();
    assert_eq!(events.lines().filter(|line| line.contains(':')).count(), count + ftrace.len());
    assert!(shown(&["-f"]).lines().count() > 10_000, "functions");
}
