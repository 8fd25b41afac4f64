//! Buffers: where the data of their CPUs are.

use std::collections::{BTreeMap, BTreeSet};

use super::super::layout::{OptionId, SectionId};
use super::super::option::FileOption;
use super::super::reader::option::{BufferOption, CpuExtent, OptionValue};
use super::super::reader::{Reader, Source};
use super::options::RawOption;
use super::report::At;
use super::rule::Rule;
use super::v7::Body;
use super::{Check, buffer_name};

/// The data of a CPU, and what describes it.
struct Data<'a> {
    extent: CpuExtent,
    name: &'a str,
    /// Where that is said.
    at: At,
}

/// Checks the extents of all data. `bodies` are the sections of version 7.
pub(super) fn check<S: Source>(
    check: &mut Check<'_>,
    reader: &Reader<S>,
    options: &[RawOption],
    bodies: Option<&BTreeMap<u64, Body>>,
) {
    let mut data = Vec::new();
    let Some(bodies) = bodies else {
        for buffer in reader.buffers() {
            check.checked.buffers += 1;
            let of = |extent: &CpuExtent| Data {
                extent: *extent,
                name: &buffer.name,
                at: At::plain(extent.offset),
            };
            data.extend(buffer.cpus.iter().map(of));
        }
        return version_6(check, reader, data);
    };
    let mut top = 0;
    for option in options {
        for value in &option.values {
            let buffer = match value {
                OptionValue::Buffer(buffer) => buffer,
                OptionValue::BufferText { name, .. } => {
                    top += u32::from(name.is_empty());
                    continue;
                }
                _ => continue,
            };
            top += u32::from(buffer.name.is_empty());
            check.checked.buffers += 1;
            page_size(check, reader, option, buffer);
            let body = bodies.get(&buffer.offset).filter(|body| body.id == SectionId::FLYRECORD);
            if let Some(body) = body {
                section(check, option, buffer, *body);
                let of = |extent: &CpuExtent| Data { extent: *extent, name: &buffer.name, at: option.at };
                data.extend(buffer.cpus.iter().filter(|extent| extent.size != 0).map(of));
            }
        }
    }
    if top != 1 {
        let detail = || format!("{top} buffers have no name");
        check.faults.add(Rule::TopBuffer, At::plain(0), || "options".to_owned(), detail);
    }
    cpu_count(check, options);
    data_extents(check, data);
}

fn page_size<S: Source>(
    check: &mut Check<'_>,
    reader: &Reader<S>,
    option: &RawOption,
    buffer: &BufferOption,
) {
    let (layout, size) = (reader.layout(), buffer.page_size);
    let wrong = match buffer.name.as_str() {
        "" if size != 0 && size != layout.page_size => {
            Some(format!("pages of {size} bytes, header_page describes pages of {}", layout.page_size))
        }
        _ if size != 0 && layout.with_page_size(size).is_none() => Some(format!("pages of {size} bytes")),
        _ => None,
    };
    if let Some(wrong) = wrong {
        check.faults.add(Rule::PageSize, option.at, || option.name(), || wrong);
    }
}

/// The data of a buffer are in its section, and no CPU is there twice.
fn section(check: &mut Check<'_>, option: &RawOption, buffer: &BufferOption, body: Body) {
    let mut seen = BTreeSet::new();
    for CpuExtent { cpu, offset, size } in &buffer.cpus {
        let location = || format!("data of CPU {cpu} of {}", buffer_name(&buffer.name));
        if !seen.insert(*cpu) {
            check.faults.add(Rule::CpuTwice, option.at, location, || "it was listed before".to_owned());
        }
        if *size == 0 {
            continue;
        }
        let end = offset.saturating_add(*size);
        if *offset < body.start || end > body.end {
            let (start, section_end) = (body.start, body.end);
            let detail = || {
                format!("they are said to be at {offset} to {end}, in a section at {start} to {section_end}")
            };
            check.faults.add(Rule::Extent, option.at, location, detail);
        }
        if !body.compressed && buffer.page_size != 0 && !offset.is_multiple_of(buffer.page_size.into()) {
            let detail = || format!("pages of {} bytes begin at {offset}", buffer.page_size);
            check.faults.add(Rule::Alignment, option.at, location, detail);
        }
    }
}

/// The number of CPUs leaves none out.
fn cpu_count(check: &mut Check<'_>, options: &[RawOption]) {
    let values = || options.iter().flat_map(|option| option.values.iter().map(move |value| (option, value)));
    let told = values().find_map(|(option, value)| match value {
        OptionValue::Fact(FileOption::CpuCount(count)) => Some((option.at, *count)),
        _ => None,
    });
    let cpus = values().filter_map(|(_, value)| match value {
        OptionValue::Buffer(buffer) => buffer.cpus.iter().map(|extent| extent.cpu).max(),
        _ => None,
    });
    let needed = cpus.max().map_or(0, |highest| highest.saturating_add(1));
    let location = || super::options::name(OptionId::CPUCOUNT);
    match told {
        None => check.faults.add(Rule::CpuCount, At::plain(0), location, || "it is missing".to_owned()),
        Some((at, count)) if count < needed => {
            let detail = || format!("it says {count}, and there are data of CPU {}", needed - 1);
            check.faults.add(Rule::CpuCount, at, location, detail);
        }
        Some(_) => {}
    }
}

/// Version 6 has no sections around the data. Recorders leave less than a page between them, for the next to
/// begin at one: more is data that nothing describes.
fn version_6<S: Source>(check: &mut Check<'_>, reader: &Reader<S>, mut data: Vec<Data<'_>>) {
    let page_size = u64::from(reader.layout().page_size);
    data.sort_by_key(|data| data.extent.offset);
    let parts = reader.sections().iter().map(|part| (part.offset, part.offset.saturating_add(part.size)));
    let extents = data.iter().map(|data| data.extent);
    let extents = extents.map(|extent| (extent.offset, extent.offset.saturating_add(extent.size)));
    let mut taken: Vec<(u64, u64)> = parts.chain(extents).chain([(check.len, check.len)]).collect();
    taken.sort_unstable();
    let mut end = 0;
    for (start, next) in taken {
        if start.saturating_sub(end) >= page_size && end != 0 {
            let detail = || format!("{} bytes", start - end);
            check.faults.add(Rule::SectionGap, At::plain(end), || "between the data of CPUs".into(), detail);
        }
        end = end.max(next);
    }
    for Data { extent, name, at } in &data {
        if !extent.offset.is_multiple_of(page_size) {
            let location = || format!("data of CPU {} of {}", extent.cpu, buffer_name(name));
            let detail = || format!("pages of {page_size} bytes begin at {}", extent.offset);
            check.faults.add(Rule::Alignment, *at, location, detail);
        }
    }
    data_extents(check, data);
}

/// All data are in the file, and no two have bytes in common.
fn data_extents(check: &mut Check<'_>, mut data: Vec<Data<'_>>) {
    data.sort_by_key(|data| data.extent.offset);
    let mut end_before = 0;
    for Data { extent: CpuExtent { cpu, offset, size }, name, at } in data {
        check.checked.cpus += 1;
        let location = || format!("data of CPU {cpu} of {}", buffer_name(name));
        let end = offset.saturating_add(size);
        if end > check.len {
            let len = check.len;
            let detail = || format!("they are said to end at {end}, and the file ends at {len}");
            check.faults.add(Rule::Extent, at, location, detail);
        }
        if offset < end_before {
            let detail =
                || format!("they begin at {offset}, before those of another CPU end at {end_before}");
            check.faults.add(Rule::Extent, at, location, detail);
        }
        end_before = end_before.max(end);
    }
}
