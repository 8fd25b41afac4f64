//! Every event format of the running kernel is parsed. Needs root and a mounted tracefs.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a helper of a test fails the test")]

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use tracer_agent::event::{Array, Format, Location};

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
        // The first own field stands where the kernel's struct puts it, and every gap is one that alignment explains. Of
        // structs that kernel code packs by hand (system `ftrace`) nothing is known.
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
