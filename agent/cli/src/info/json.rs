//! The report as JSON.

use serde::Serialize;

use super::{CpuEnds, FoundLedger, Report};
use tracedat::reader::{BufferInfo, Counts, CpuCounts, Module, OptionEntry, OptionValue, SectionInfo};

/// Everything that is told of a trace file.
#[derive(Serialize)]
pub(super) struct Contents<'a> {
    file: &'a str,
    bytes: u64,
    version: u8,
    endian: &'static str,
    long_size: u8,
    page_size: u32,
    compression: &'a str,
    compression_version: &'a str,
    events: u64,
    first_ns: Option<u64>,
    last_ns: Option<u64>,
    missed_events: u64,
    missed_marks: u64,
    /// Events that are known to be lost, and of how many losses the number is not known.
    lost_events: u64,
    losses_without_count: u64,
    sections: Vec<Section<'a>>,
    modules: Vec<LoadedModule<'a>>,
    options: Vec<OptionText>,
    buffers: Vec<Buffer<'a>>,
    by_event: Vec<EventCount<'a>>,
    ledger: Option<&'a FoundLedger>,
    damage: &'a [String],
}

#[derive(Serialize)]
struct Section<'a> {
    id: u16,
    holds: &'static str,
    offset: u64,
    bytes: u64,
    compressed: bool,
    plain_bytes: Option<u64>,
    description: Option<&'a str>,
}

#[derive(Serialize)]
struct LoadedModule<'a> {
    name: &'a str,
    bytes: u64,
    address: u64,
}

#[derive(Serialize)]
struct OptionText {
    id: u16,
    name: Option<&'static str>,
    offset: u64,
    bytes: u64,
    value: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    points_at: Option<u64>,
}

#[derive(Serialize)]
struct Buffer<'a> {
    name: &'a str,
    clock: &'a str,
    page_size: u32,
    compressed: bool,
    events: u64,
    cpus: Vec<Cpu>,
}

#[derive(Serialize)]
#[expect(clippy::struct_field_names, reason = "they are the members' names")]
struct Cpu {
    cpu: u32,
    offset: u64,
    bytes: u64,
    pages: u64,
    data_bytes: u64,
    events: u64,
    first_ns: Option<u64>,
    last_ns: Option<u64>,
    missed_marks: u64,
    missed_marks_without_count: u64,
    missed_events: u64,
    /// Events lost before the first record that no mark tells of; `null` = not known how many.
    lost_before: Option<u64>,
    /// Events lost behind the last record; `null` = not known how many.
    lost_behind: Option<u64>,
    damaged: u64,
}

#[derive(Serialize)]
struct EventCount<'a> {
    id: u16,
    system: Option<&'a str>,
    event: Option<&'a str>,
    events: u64,
    per_second: Option<f64>,
}

impl<'a> Contents<'a> {
    pub(super) fn of(report: &'a Report<'_>) -> Self {
        let Report { name, reader, modules, buffers, counts: _, by_id, ledger, damage } = report;
        let (header, layout, span) = (reader.header(), reader.layout(), report.span());
        let (missed_events, missed_marks) = report.missed();
        let (lost_events, losses_without_count) = report.lost();
        let event_count = |&(id, events): &(u16, u64)| {
            let event = reader.metadata().event(id);
            EventCount {
                id,
                system: event.map(|event| event.system),
                event: event.map(|event| event.name),
                events,
                per_second: report.rate(events),
            }
        };
        Self {
            file: name,
            bytes: reader.file_len(),
            version: header.version,
            endian: super::endian_name(header.endian),
            long_size: layout.long_size,
            page_size: layout.page_size,
            compression: header.codec.name(),
            compression_version: &header.codec_version,
            events: report.events(),
            first_ns: span.map(|(first, _)| first),
            last_ns: span.map(|(_, last)| last),
            missed_events,
            missed_marks,
            lost_events,
            losses_without_count,
            sections: reader.sections().iter().map(Section::of).collect(),
            modules: modules.iter().map(LoadedModule::of).collect(),
            options: reader.options().iter().map(OptionText::of).collect(),
            buffers: buffers.iter().map(|(info, counts)| Buffer::of(report, info, counts)).collect(),
            by_event: by_id.iter().map(event_count).collect(),
            ledger: ledger.as_ref(),
            damage,
        }
    }
}

impl<'a> Section<'a> {
    fn of(info: &'a SectionInfo) -> Self {
        let SectionInfo { id, offset, size, compressed, plain_size, description } = info;
        Self {
            id: id.0,
            holds: id.description(),
            offset: *offset,
            bytes: *size,
            compressed: *compressed,
            plain_bytes: *plain_size,
            description: description.as_deref(),
        }
    }
}

impl<'a> LoadedModule<'a> {
    fn of(Module { name, size, address }: &'a Module) -> Self {
        Self { name, bytes: *size, address: *address }
    }
}

impl OptionText {
    fn of(OptionEntry { offset, size, id, value }: &OptionEntry) -> Self {
        let points_at = match value {
            OptionValue::Section { offset, .. } | OptionValue::BufferText { offset, .. } => Some(*offset),
            OptionValue::Buffer(buffer) => Some(buffer.offset),
            _ => None,
        };
        let value = super::option_text(value, usize::MAX);
        Self { id: id.0, name: id.name(), offset: *offset, bytes: *size, value, points_at }
    }
}

impl<'a> Buffer<'a> {
    fn of(report: &Report<'_>, info: &'a BufferInfo, counts: &Counts) -> Self {
        Self {
            name: &info.name,
            clock: &info.clock,
            page_size: info.layout.page_size,
            compressed: info.compressed,
            events: counts.events(),
            cpus: counts.cpus.iter().map(|cpu| Cpu::of(info, cpu, report.ends(info, cpu))).collect(),
        }
    }
}

/// A number of lost events, of which 0 is one that is not known.
fn number(lost: Option<u64>) -> Option<u64> {
    lost.map_or(Some(0), |events| Some(events).filter(|events| *events != 0))
}

impl Cpu {
    fn of(info: &BufferInfo, counts: &CpuCounts, ends: CpuEnds) -> Self {
        let extent = info.cpu(counts.cpu).unwrap_or_default();
        Self {
            cpu: counts.cpu,
            offset: extent.offset,
            bytes: extent.size,
            pages: counts.pages,
            data_bytes: counts.data_bytes,
            events: counts.events,
            first_ns: counts.first,
            last_ns: counts.last,
            missed_marks: counts.missed_marks,
            missed_marks_without_count: counts.missed_unknown,
            missed_events: counts.missed_events,
            lost_before: number(ends.before),
            lost_behind: number(ends.behind),
            damaged: counts.damaged,
        }
    }
}
