//! Files that tests have made, as text.

use ftrace_event::{EventTable, Machine, NoNames, NoSymbols};
use tracedat::reader::{Reader, Source};

/// Lines of all records, in the order of time: `buffer cpu time system:event text`.
pub(super) fn lines(reader: &Reader<impl Source>) -> Vec<String> {
    let machine = Machine { endian: reader.header().endian, long_size: reader.layout().long_size };
    let mut table = EventTable::new(machine);
    for system in &reader.metadata().systems {
        for format in &system.formats {
            table.add(&system.name, format, &NoNames).unwrap();
        }
    }
    let mut lines = Vec::new();
    let mut records = reader.records().unwrap();
    while let Some(record) = records.next_record().unwrap() {
        let mut text = Vec::new();
        let printer = table.print(record.data, &NoSymbols, &mut text).unwrap();
        lines.push(format!(
            "{} {} {} {}:{} {}{}",
            record.buffer,
            record.cpu,
            record.timestamp,
            printer.system(),
            printer.format().name,
            String::from_utf8(text).unwrap(),
            record.missed.map_or_else(String::new, |missed| format!(" after {missed} lost")),
        ));
    }
    lines
}
