//! Options: texts that end with NUL, numbers of the right size.

use std::collections::{BTreeMap, BTreeSet};

use super::super::initial_state::{Host, InitialState};
use super::super::layout::OptionId;
use super::super::option::{FileOption, TimeShift};
use super::super::reader::file::FileHeader;
use super::super::reader::option::{OptionValue, decode};
use super::super::reader::{Reader, Source};
use super::Check;
use super::report::At;
use super::rule::Rule;
use ftrace_event::endian::Endian;

/// An option as it stands in the file.
pub(super) struct RawOption {
    pub(super) id: OptionId,
    /// Where its data are.
    pub(super) at: At,
    pub(super) bytes: Vec<u8>,
    /// What they say.
    pub(super) values: Vec<OptionValue>,
}

impl RawOption {
    /// Parses the bytes; what cannot be parsed has no values.
    pub(super) fn new(id: OptionId, at: At, bytes: Vec<u8>, endian: Endian, version: u8) -> Self {
        let values = decode(id, at.inside.unwrap_or(at.offset), &bytes, endian, version);
        Self { id, at, bytes, values: values.unwrap_or_default() }
    }

    /// How it is called in a message.
    pub(super) fn name(&self) -> String {
        name(self.id)
    }
}

/// How an option is called in a message.
pub(super) fn name(id: OptionId) -> String {
    match id.name() {
        Some(name) => format!("option {name}"),
        None => match ours(id) {
            Some(ours) => format!("option {:#x} ({ours})", id.0),
            None => format!("option {id}"),
        },
    }
}

/// What options of our recorder hold.
fn ours(id: OptionId) -> Option<&'static str> {
    Some(match id {
        OptionId::LEDGER => "loss ledger",
        OptionId::CHECKSUMS => "checksums",
        InitialState::OPTION => "initial state",
        Host::OPTION => "host",
        _ => return None,
    })
}

/// The options of a file of version 6, which the reader has found.
pub(super) fn of_version_6<S: Source>(check: &mut Check<'_>, reader: &Reader<S>) -> Vec<RawOption> {
    let header = reader.header();
    let mut seen = BTreeSet::new();
    let mut options = Vec::new();
    for entry in reader.options().iter().filter(|entry| seen.insert(entry.offset)) {
        let mut bytes = vec![0; usize::try_from(entry.size).unwrap_or(0)];
        if let Err(error) = check.source.read_exact_at(&mut bytes, entry.offset) {
            let at = At::plain(entry.offset);
            check.faults.add(Rule::Source, at, || name(entry.id), || error.to_string());
            continue;
        }
        check.checked.options += 1;
        let at = At::plain(entry.offset);
        options.push(RawOption::new(entry.id, at, bytes, header.endian, header.version));
    }
    options
}

/// Options that are one text.
const TEXTS: [OptionId; 9] = [
    OptionId::DATE,
    OptionId::CPUSTAT,
    OptionId::TRACECLOCK,
    OptionId::UNAME,
    OptionId::HOOK,
    OptionId::OFFSET,
    OptionId::VERSION,
    OptionId::PROCMAPS,
    OptionId::LAST_BOOT_INFO,
];

/// Options of which there is one at most.
const SINGLE: [OptionId; 5] =
    [OptionId::CPUCOUNT, OptionId::TRACEID, OptionId::TRACECLOCK, OptionId::TSC2NSEC, OptionId::TIME_SHIFT];

/// Checks every option by itself.
pub(super) fn check(check: &mut Check<'_>, header: &FileHeader, options: &[RawOption]) {
    let mut seen: BTreeMap<OptionId, (At, &[u8])> = BTreeMap::new();
    for option in options {
        let RawOption { id, at, bytes, values: _ } = option;
        if TEXTS.contains(id) || *id == OptionId::LEDGER {
            text(check, option);
        }
        if let Some(wrong) = wrong_value(option, header) {
            check.faults.add(Rule::OptionValue, *at, || option.name(), || wrong);
        }
        let section = header.version >= 7
            && (matches!(id.0, 16..=21) || matches!(*id, OptionId::BTF | OptionId::MODULES));
        if SINGLE.contains(id) || section {
            // `trace-cmd convert` writes the number of CPUs twice.
            if let Some((first, other)) = seen.get(id)
                && *other != bytes.as_slice()
            {
                let detail = || format!("the first one, at byte {first}, says something else");
                check.faults.add(Rule::OptionTwice, *at, || option.name(), detail);
            }
            seen.entry(*id).or_insert((*at, bytes));
        }
        if id.name().is_none() && ours(*id).is_none() {
            let detail = || format!("{} bytes", bytes.len());
            check.faults.add(Rule::OptionUnknown, *at, || option.name(), detail);
        }
    }
}

/// A text ends with NUL, and nothing is after its first one but more of them: older recorders round up.
fn text(check: &mut Check<'_>, option: &RawOption) {
    let RawOption { id, at, bytes, .. } = option;
    let detail = match bytes.iter().position(|byte| *byte == 0) {
        // Recorders of kernels without other clocks write none.
        None if bytes.is_empty() && *id == OptionId::TRACECLOCK => return,
        // Readers take its last byte for the end of a line, whatever it is, and old recorders wrote any.
        None if *id == OptionId::CPUSTAT => return,
        None => format!("its {} bytes have no NUL at the end", bytes.len()),
        Some(end) if bytes[end..].iter().any(|byte| *byte != 0) => {
            format!("its text ends at byte {end} of {}, and something is behind", bytes.len())
        }
        Some(_) => return,
    };
    check.faults.add(Rule::OptionText, *at, || option.name(), || detail);
}

/// What is wrong with the value.
fn wrong_value(option: &RawOption, header: &FileHeader) -> Option<String> {
    let RawOption { id, bytes, values, .. } = option;
    let len = bytes.len();
    let size = |expected: usize| (len != expected).then(|| format!("{len} bytes instead of {expected}"));
    let empty = bytes.iter().all(|byte| *byte == 0);
    match *id {
        OptionId::CPUCOUNT => size(4),
        OptionId::TRACEID => size(8),
        OptionId::TSC2NSEC => size(16),
        OptionId::BTF | OptionId::MODULES | OptionId(16..=21) if header.version >= 7 => size(8),
        OptionId::CPUSTAT if bytes.is_empty() => Some("it is empty".to_owned()),
        OptionId::PROCMAPS if empty => Some("it is empty".to_owned()),
        OptionId::TRACECLOCK if bytes.is_empty() => None,
        OptionId::BUFFER if values.is_empty() => Some(format!("its {len} bytes are too few")),
        OptionId::BUFFER | OptionId::BUFFER_TEXT if values.is_empty() => {
            Some(format!("its {len} bytes are no description of a buffer"))
        }
        OptionId::BUFFER => buffer_end(option, header),
        OptionId::HOOK => {
            let hook = values.iter().any(|value| match value {
                OptionValue::Fact(fact @ FileOption::Hook(_)) => fact.encode(header.endian).is_ok(),
                _ => false,
            });
            (!hook).then(|| "it is not `event,field/event,field`".to_owned())
        }
        InitialState::OPTION => InitialState::decode(bytes).err().map(|error| error.to_string()),
        Host::OPTION => Host::decode(bytes).err().map(|error| error.to_string()),
        _ if id.name().is_none() || *id == OptionId::STRINGS => None,
        _ => values.iter().find_map(|value| match value {
            OptionValue::Fact(FileOption::Unknown { .. }) => {
                Some(format!("its {len} bytes cannot be taken apart"))
            }
            OptionValue::Fact(fact @ FileOption::Guest(_)) => exact(fact, header, len, 0),
            OptionValue::Fact(fact @ FileOption::TimeShift(TimeShift { cpus, .. })) => {
                let fractions = cpus.iter().map(|samples| samples.len() * 8).sum();
                exact(fact, header, len, fractions)
            }
            _ => None,
        }),
    }
}

/// Whether an option has the bytes that it needs, or this many fewer, and no more.
fn exact(fact: &FileOption, header: &FileHeader, len: usize, fewer: usize) -> Option<String> {
    let needed = fact.encode(header.endian).ok()?.len();
    (len != needed && len + fewer != needed).then(|| format!("{len} bytes, of which {needed} say something"))
}

/// Bytes after the list of CPUs.
fn buffer_end(option: &RawOption, header: &FileHeader) -> Option<String> {
    option.values.iter().find_map(|value| {
        let OptionValue::Buffer(buffer) = value else { return None };
        let names = option.bytes.get(8..)?;
        let name = names.iter().position(|byte| *byte == 0)? + 1;
        let needed = if header.version < 7 {
            8 + name
        } else {
            let clock = names.get(name..)?.iter().position(|byte| *byte == 0)? + 1;
            16 + name + clock + buffer.cpus.len() * 20
        };
        let len = option.bytes.len();
        (len != needed).then(|| format!("{len} bytes, of which {needed} say something"))
    })
}
