//! Events of several kernels in one file: one number for each.

use std::collections::{BTreeMap, BTreeSet};

use super::super::super::layout::SectionId;
use super::super::super::reader::Source;
use super::super::super::section::{Body, EventSystem, Section};
use super::super::error::RewriteError;
use super::super::head::Head;
use super::{MergeInput, all_same};
use ftrace_event::Format;
use ftrace_event::format::name_and_id;

/// Numbers for events whose own are taken; far from those that kernels give.
const FIRST_NEW: u16 = 20_000;

/// What makes two events the same: system, and the format's text but for the number.
type Key = (String, String);

/// New numbers by old ones, if any are new.
pub(super) type Ids = Option<Box<[u16]>>;

/// Puts the formats of all inputs into `merged`, and returns the new numbers of each input's events.
pub(super) fn merge<S: Source>(
    inputs: &[MergeInput<'_, S>],
    heads: &[Head],
    merged: &mut Head,
) -> Result<Vec<Ids>, RewriteError> {
    if all_same(heads, SectionId::FTRACE_EVENTS) && all_same(heads, SectionId::EVENT_FORMATS) {
        return Ok(vec![None; inputs.len()]);
    }
    check_common(inputs)?;
    let mut numbers: BTreeMap<Key, u16> = BTreeMap::new();
    let mut taken: BTreeMap<u16, Key> = BTreeMap::new();
    let mut systems: Vec<(String, Vec<String>)> = Vec::new();
    let mut tables = Vec::new();
    // What any input calls an event stays free for it, as far as that is possible.
    let wanted: BTreeSet<u16> =
        inputs.iter().flat_map(|input| input.reader.metadata().events().map(|event| event.id)).collect();
    let mut renumbered = 0_u64;
    for input in inputs {
        let mut table: Vec<(u16, u16)> = Vec::new();
        for event in input.reader.metadata().events() {
            let key = (event.system.to_owned(), without_number(event.format));
            let number = if let Some(number) = numbers.get(&key) {
                *number
            } else {
                let number = if taken.contains_key(&event.id) {
                    renumbered += 1;
                    free(&taken, &wanted)?
                } else {
                    event.id
                };
                let format = with_number(event.format, number);
                match systems.iter_mut().find(|(name, _)| name == event.system) {
                    Some((_, formats)) => formats.push(format),
                    None => systems.push((event.system.to_owned(), vec![format])),
                }
                numbers.insert(key.clone(), number);
                taken.insert(number, key);
                number
            };
            table.push((event.id, number));
        }
        tables.push(table);
    }
    if renumbered > 0 {
        merged.notes.push(format!(
            "{renumbered} events got new numbers, because other events have theirs in another file"
        ));
    }
    write(&systems, merged)?;
    let nobodys = free(&taken, &wanted)?;
    let table = |known: Vec<(u16, u16)>| -> Ids {
        // A number without a format must not become that of another file's event.
        let mut ids: Vec<u16> =
            (0..=u16::MAX).map(|id| if taken.contains_key(&id) { nobodys } else { id }).collect();
        for &(from, to) in &known {
            ids[usize::from(from)] = to;
        }
        // Where nothing changes, pages can be copied.
        let changes = ids.iter().enumerate().any(|(id, new)| id != usize::from(*new));
        changes.then(|| ids.into_boxed_slice())
    };
    Ok(tables.into_iter().map(table).collect())
}

/// Readers take the offsets of the common fields from one event and use them for all.
fn check_common<S: Source>(inputs: &[MergeInput<'_, S>]) -> Result<(), RewriteError> {
    let common = |input: &MergeInput<'_, S>| {
        input.reader.metadata().events().find_map(|event| Some(Format::parse(event.format).ok()?.common))
    };
    let mut known = inputs.iter().filter_map(|input| Some((input, common(input)?)));
    let Some((first, fields)) = known.next() else { return Ok(()) };
    let names = |fields: &[ftrace_event::Field]| -> Vec<_> {
        fields.iter().map(|field| (field.name.clone(), field.offset, field.size)).collect()
    };
    match known.find(|(_, other)| names(other) != names(&fields)) {
        None => Ok(()),
        Some((other, _)) => Err(RewriteError::Apart(format!(
            "the events of {} and {} do not begin with the same fields, as those of their kernels (PREEMPT_RT has one more); readers \
             take them from one event for all, so that these files cannot be one",
            first.name, other.name
        ))),
    }
}

/// A number that no event has.
fn free(taken: &BTreeMap<u16, Key>, wanted: &BTreeSet<u16>) -> Result<u16, RewriteError> {
    (FIRST_NEW..=u16::MAX)
        .find(|number| !taken.contains_key(number) && !wanted.contains(number))
        .ok_or_else(|| RewriteError::Apart("the files have more events than there are numbers".to_owned()))
}

/// A format's text without the line of its number.
fn without_number(format: &str) -> String {
    let lines = format.lines().filter(|line| !line.starts_with("ID:"));
    lines.collect::<Vec<_>>().join("\n")
}

/// A format's text with this number.
fn with_number(format: &str, number: u16) -> String {
    if name_and_id(format).is_some_and(|(_, id)| id == u32::from(number)) {
        return format.to_owned();
    }
    let line =
        |line: &str| if line.starts_with("ID:") { format!("ID: {number}\n") } else { format!("{line}\n") };
    format.lines().map(line).collect()
}

fn write(systems: &[(String, Vec<String>)], merged: &mut Head) -> Result<(), RewriteError> {
    let endian = merged.layout.endian;
    let ftrace: Vec<&str> = systems
        .iter()
        .filter(|(name, _)| name == "ftrace")
        .flat_map(|(_, formats)| formats.iter().map(String::as_str))
        .collect();
    let others: Vec<(&str, Vec<&str>)> = systems
        .iter()
        .filter(|(name, _)| name != "ftrace")
        .map(|(name, formats)| (name.as_str(), formats.iter().map(String::as_str).collect()))
        .collect();
    let others: Vec<_> =
        others.iter().map(|(name, formats)| EventSystem { name, formats: formats.as_slice() }).collect();
    for section in [Section::ftrace_events(endian, &ftrace)?, Section::event_formats(endian, &others)?] {
        if let Body::Plain(bytes) = section.body {
            merged.set_body(section.id, bytes);
        }
    }
    Ok(())
}
