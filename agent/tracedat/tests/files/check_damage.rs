//! Whatever bytes of a file are changed or cut off: `check` finds it, or the content is the same.
//!
//! Files of our writer are covered by checksums, every byte of them. A file of version 6, as those of stock
//! recorders, has none. There, what is not found must be in bytes that could be anything: texts, numbers of
//! options, times and records.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::damage_files::{CHANGES, changed, with_each_file};
use crate::reader_files::{Chance, Kept, forwards};
use ftrace_event::{Cmdlines, Endian};
use ftrace_event::{EventTable, Machine, NoNames, NoSymbols};
use tracedat::FileOption;
use tracedat::check::check;
use tracedat::page::{EventCursor, PageHeader};
use tracedat::reader::{Reader, SystemFormats};

/// Everything that a reader gets out of a file.
#[derive(Debug, PartialEq)]
struct Content {
    header_page: String,
    header_event: String,
    systems: Vec<SystemFormats>,
    cmdlines: Cmdlines,
    printk: Vec<(u64, String)>,
    symbols: Vec<u8>,
    facts: Vec<FileOption>,
    buffers: Vec<(String, String)>,
    records: Vec<Kept>,
    /// The records as text.
    printed: Vec<String>,
}

impl Content {
    fn of(bytes: &[u8]) -> Self {
        let reader = Reader::open(bytes).unwrap();
        let metadata = reader.metadata();
        let machine = Machine { endian: reader.header().endian, long_size: reader.layout().long_size };
        let mut table = EventTable::new(machine);
        for event in metadata.events() {
            table.add(event.system, event.format, &NoNames).unwrap();
        }
        let records = forwards(&mut reader.records().unwrap());
        let print = |record: &Kept| {
            let mut text = String::new();
            let printer = table.print(&record.data, &NoSymbols, &mut text).unwrap();
            format!("{}: {text}", printer.name())
        };
        Self {
            header_page: metadata.header_page.clone(),
            header_event: metadata.header_event.clone(),
            systems: metadata.systems.clone(),
            cmdlines: metadata.cmdlines.clone(),
            printk: metadata.printk.clone().into_iter().collect(),
            symbols: reader.kallsyms().unwrap(),
            facts: reader.facts().cloned().collect(),
            buffers: reader
                .buffers()
                .iter()
                .map(|buffer| (buffer.name.clone(), buffer.clock.clone()))
                .collect(),
            printed: records.iter().map(print).collect(),
            records,
        }
    }
}

fn is_clean(bytes: &[u8]) -> bool {
    check(&bytes, NonZeroUsize::new(1)).is_clean()
}

/// Which bytes of the file of version 6 could be anything.
fn open_bytes(bytes: &[u8]) -> Vec<bool> {
    let mut open = vec![false; bytes.len()];
    let mut texts: Vec<String> =
        [crate::common::switch_format(), crate::common::tick_format(), crate::common::text_format()].to_vec();
    let others =
        ["ffffffff81000000 T first\n", "0xff : \"x\"\n", "42 worker\n", "local [mono]", "Linux", "1000"];
    texts.push(tracedat::layout::header_page_text(4096));
    texts.extend(others.iter().map(|text| (*text).to_owned()));
    texts.extend(["sched", "demo"].map(|name| format!("{name}\0")));
    for text in texts {
        let text = text.as_bytes();
        for at in 0..bytes.len() - text.len() {
            if &bytes[at..at + text.len()] == text {
                open[at..at + text.len()].fill(true);
            }
        }
    }
    // The numbers of options.
    let options = bytes.windows(10).position(|window| window == b"options  \0").unwrap() + 10;
    let mut at = options;
    loop {
        open[at..at + 2].fill(true);
        if bytes[at..at + 2] == [0, 0] {
            break;
        }
        at += 6 + usize::from(bytes[at + 2]);
    }
    // Times, the bits of events' headers, records, and zeros behind them.
    let reader = Reader::open(bytes).unwrap();
    for cpu in &reader.buffers()[0].cpus {
        for start in (cpu.offset..cpu.offset + cpu.size).step_by(4096).map(|start| start as usize) {
            open[start..start + 8].fill(true);
            let page = &bytes[start..start + 4096];
            let header = PageHeader::read(page, Endian::Little).unwrap();
            let data = &page[16..16 + header.data_len];
            let mut cursor = EventCursor::new(header.timestamp);
            let mut end = 0;
            while let Some(event) = cursor.next(data, Endian::Little).unwrap() {
                // The first word has the kind of event and its distance in time; a time extend may be before.
                open[start + 16 + end..start + 16 + event.start].fill(true);
                end = event.start + event.len;
                // The number of the event is looked up; another one that is known is as good if its record is
                // no longer.
                open[start + 16 + event.start..start + 16 + end].fill(true);
            }
        }
    }
    open
}

#[test]
fn every_truncation_is_found() {
    with_each_file(|name, bytes| {
        assert!(is_clean(bytes), "{name}");
        let content = Content::of(bytes);
        for len in 0..bytes.len() {
            let cut = &bytes[..len];
            if is_clean(cut) {
                assert_eq!(Content::of(cut), content, "{name} cut to {len}");
            }
        }
    });
}

#[test]
fn every_random_change_is_found() {
    let missed = AtomicUsize::new(0);
    with_each_file(|name, bytes| {
        let content = Content::of(bytes);
        let open = (name == "version 6").then(|| open_bytes(bytes));
        let chance = &mut Chance::new(bytes.len() as u64);
        for round in 0..CHANGES {
            let (damaged, places) = changed(bytes, chance);
            if damaged == bytes || !is_clean(&damaged) || Content::of(&damaged) == content {
                continue;
            }
            missed.fetch_add(1, Ordering::Relaxed);
            let mut changed = places.iter().filter(|at| damaged[**at] != bytes[**at]);
            assert!(
                open.as_ref().is_some_and(|open| changed.any(|at| open[*at])),
                "{name}, round {round}: changes at {places:?} are not found"
            );
        }
    });
    // Without checksums there is always something.
    let missed = missed.into_inner();
    assert!(missed > 0 && missed < CHANGES / 2, "{missed}");
}
