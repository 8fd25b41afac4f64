//! The report as JSON.

use std::fmt::Write as _;

use super::{FoundLedger, Report};
use crate::cli::list::json_string;
use crate::tracedat::reader::{BufferInfo, Counts, CpuCounts, Module, OptionValue, SectionInfo};

/// `items` with commas between.
fn joined<T>(items: impl IntoIterator<Item = T>, text: impl Fn(T) -> String) -> String {
    items.into_iter().map(text).collect::<Vec<_>>().join(",")
}

fn or_null(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "null".to_owned(), |value| value.to_string())
}

/// The whole report as one object.
pub(super) fn report(report: &Report<'_>) -> String {
    let Report { name, reader, modules, buffers, counts: _, by_id, ledger, damage } = report;
    let header = reader.header();
    let mut json = format!(
        "{{\"file\":{},\"bytes\":{},\"version\":{},\"endian\":\"{}\",\"long_size\":{},\"page_size\":{},\
         \"compression\":{},\"compression_version\":{}",
        json_string(name),
        reader.file_len(),
        header.version,
        super::endian_name(header.endian),
        reader.layout().long_size,
        reader.layout().page_size,
        json_string(header.codec.name()),
        json_string(&header.codec_version),
    );
    let span = report.span();
    let _ = write!(
        json,
        ",\"events\":{},\"first_ns\":{},\"last_ns\":{},\"missed_events\":{},\"missed_marks\":{}",
        report.events(),
        or_null(span.map(|(first, _)| first)),
        or_null(span.map(|(_, last)| last)),
        report.missed().0,
        report.missed().1,
    );
    let _ = write!(json, ",\"sections\":[{}]", joined(reader.sections(), section));
    let module = |Module { name, size, address }: &Module| {
        format!("{{\"name\":{},\"bytes\":{size},\"address\":{address}}}", json_string(name))
    };
    let _ = write!(json, ",\"modules\":[{}]", joined(modules, module));
    let _ = write!(
        json,
        ",\"options\":[{}]",
        joined(reader.options(), |option| {
            let (id, offset, size) = (option.id, option.offset, option.size);
            let name = or_null(id.name().map(json_string));
            let text = json_string(&super::option_text(&option.value, usize::MAX));
            let target = match &option.value {
                OptionValue::Section { offset, .. } | OptionValue::BufferText { offset, .. } => Some(*offset),
                OptionValue::Buffer(buffer) => Some(buffer.offset),
                _ => None,
            };
            let target = target.map_or_else(String::new, |target| format!(",\"points_at\":{target}"));
            format!(
                "{{\"id\":{id},\"name\":{name},\"offset\":{offset},\"bytes\":{size},\"value\":{text}{target}}}"
            )
        })
    );
    let _ = write!(json, ",\"buffers\":[{}]", joined(buffers, |(info, counts)| buffer(info, counts)));
    let _ = write!(
        json,
        ",\"by_event\":[{}]",
        joined(by_id, |(id, events)| {
            let event = reader.metadata().event(*id);
            let system = or_null(event.map(|event| json_string(event.system)));
            let name = or_null(event.map(|event| json_string(event.name)));
            let rate = or_null(report.rate(*events).map(|rate| format!("{rate:.3}")));
            format!(
                "{{\"id\":{id},\"system\":{system},\"event\":{name},\"events\":{events},\"per_second\":{rate}}}"
            )
        })
    );
    let ledger = match ledger {
        None => "null".to_owned(),
        Some(FoundLedger::Readable(ledger)) => serde_json::to_string(ledger).unwrap_or_default(),
        Some(FoundLedger::Text(text)) => json_string(text),
    };
    let _ = write!(json, ",\"ledger\":{ledger}");
    let _ = write!(json, ",\"damage\":[{}]}}", joined(damage, |text| json_string(text)));
    json
}

fn section(info: &SectionInfo) -> String {
    let SectionInfo { id, offset, size, compressed, plain_size, description } = info;
    format!(
        "{{\"id\":{},\"holds\":{},\"offset\":{offset},\"bytes\":{size},\"compressed\":{compressed},\
         \"plain_bytes\":{},\"description\":{}}}",
        id.0,
        json_string(id.description()),
        or_null(*plain_size),
        or_null(description.as_deref().map(json_string)),
    )
}

fn buffer(info: &BufferInfo, counts: &Counts) -> String {
    let cpus = joined(&counts.cpus, |cpu| {
        let CpuCounts {
            cpu: number,
            pages,
            data_bytes,
            events,
            first,
            last,
            missed_marks,
            missed_unknown,
            missed_events,
            damaged,
        } = cpu;
        let extent = info.cpu(*number).unwrap_or_default();
        format!(
            "{{\"cpu\":{number},\"offset\":{},\"bytes\":{},\"pages\":{pages},\"data_bytes\":{data_bytes},\
             \"events\":{events},\"first_ns\":{},\"last_ns\":{},\"missed_marks\":{missed_marks},\
             \"missed_marks_without_count\":{missed_unknown},\"missed_events\":{missed_events},\"damaged\":{damaged}}}",
            extent.offset,
            extent.size,
            or_null(*first),
            or_null(*last),
        )
    });
    format!(
        "{{\"name\":{},\"clock\":{},\"page_size\":{},\"compressed\":{},\"events\":{},\"cpus\":[{cpus}]}}",
        json_string(&info.name),
        json_string(&info.clock),
        info.layout.page_size,
        info.compressed,
        counts.events(),
    )
}
