//! Fields as keys of histograms: where they are in a record, and how their values are shown.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::sync::Arc;

use super::{AnalysisError, end_value};
use ftrace_event::context::Context as Known;
use ftrace_event::filter::{Computed, Dialect, Filter, Origin, Tasks};
use ftrace_event::syscalls::SyscallTable;
use ftrace_event::{EventTable, NamedField, NoSymbols, Value, syscalls};
use report::TraceFile;
use stdx::input::nearest;
use tracedat::reader::{Record, Source};

/// How the values of a key are shown, as in ftrace's hist triggers (Documentation/trace/histogram.rst).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Modifier {
    /// As it is.
    #[default]
    Plain,
    /// `.hex`: a number of base 16.
    Hex,
    /// `.sym`: the function that holds the address.
    Symbol,
    /// `.sym-offset`: the function, and how far behind its start the address is.
    SymbolOffset,
    /// `.execname`: the name of the thread with this number, and the number.
    ExecName,
    /// `.log2`: the power of two that it reaches.
    Log2,
    /// `.buckets=N`: the range of N values that it is in.
    Buckets(u64),
    /// `.name`: the name that the event's format has for the value, or those of the flags that are set.
    Name,
    /// `.syscall`: the name of the system call with this number.
    Syscall,
}

const MODIFIERS: &str = ".hex .sym .sym-offset .syscall .execname .log2 .buckets=N .name";

/// A field that is a key or a value: `call_site.sym`, or arithmetic with fields: `ret >> 10`,
/// `(addr & ~0xfff).hex`.
///
/// Besides the events' fields there are `COMM`, `CPU` and `event`, the event's name, and contexts as the keys
/// of maps have them: `$tid`, `$comm`, `$cpu`, and those that were recorded, `$uid`. For stacks see
/// [`Key::is_stack`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    /// The field.
    pub field: String,
    /// How its values are shown.
    pub modifier: Modifier,
}

impl Key {
    /// Reads `field` or `field.modifier`.
    ///
    /// # Errors
    /// A modifier that there is not.
    pub fn parse(text: &str) -> Result<Self, AnalysisError> {
        let (field, modifier) =
            text.split_once('.').map_or((text, None), |(field, rest)| (field, Some(rest)));
        let modifier = match modifier {
            None => Modifier::Plain,
            Some("hex") => Modifier::Hex,
            Some("sym") => Modifier::Symbol,
            Some("sym-offset") => Modifier::SymbolOffset,
            Some("execname") => Modifier::ExecName,
            Some("log2") => Modifier::Log2,
            Some("name") => Modifier::Name,
            Some("syscall") => Modifier::Syscall,
            Some(other) => {
                let size = other.strip_prefix("buckets=").and_then(|size| size.parse().ok());
                match size {
                    Some(size @ 1..) => Modifier::Buckets(size),
                    _ => {
                        return Err(AnalysisError::Field(format!(
                            "`{text}`: there is no `.{other}`; there are {MODIFIERS}"
                        )));
                    }
                }
            }
        };
        Ok(Self { field: field.to_owned(), modifier })
    }

    /// What it is computed by, if it is no name.
    fn expression(&self) -> Option<Filter> {
        let is_name = |c: char| c.is_alphanumeric() || matches!(c, '_' | '$');
        let is_computed = !self.field.chars().all(is_name);
        is_computed.then(|| Filter::parse_expression(&self.field, Dialect::default()).ok())?
    }

    /// Whether it stands for the stack that follows the event: `stacktrace` and `common_stacktrace`, as
    /// ftrace calls it.
    pub fn is_stack(&self) -> bool {
        matches!(self.field.as_str(), "stacktrace" | "common_stacktrace")
    }

    /// The name by which records have it.
    fn stored(&self) -> Cow<'_, str> {
        match self.field.strip_prefix('$') {
            None => Cow::Borrowed(&self.field),
            Some("tid") => Cow::Borrowed("common_pid"),
            Some("comm") => Cow::Borrowed("COMM"),
            Some("cpu") => Cow::Borrowed("CPU"),
            Some(name) => Known::named(name)
                .map_or(Cow::Borrowed(self.field.as_str()), |context| Cow::Owned(context.field())),
        }
    }

    /// The key as it is typed.
    pub fn text(&self) -> String {
        let modifier = match self.modifier {
            Modifier::Plain => return self.field.clone(),
            Modifier::Hex => "hex".to_owned(),
            Modifier::Symbol => "sym".to_owned(),
            Modifier::SymbolOffset => "sym-offset".to_owned(),
            Modifier::ExecName => "execname".to_owned(),
            Modifier::Log2 => "log2".to_owned(),
            Modifier::Buckets(size) => format!("buckets={size}"),
            Modifier::Name => "name".to_owned(),
            Modifier::Syscall => "syscall".to_owned(),
        };
        format!("{}.{modifier}", self.field)
    }
}

/// Where a key's value is in the records of one event.
#[derive(Clone, Debug)]
enum Location {
    Field {
        index: usize,
        /// What prints the names of its values.
        named: Option<NamedField>,
    },
    Computed(Arc<Computed>),
    Comm,
    Cpu,
    Event,
}

/// Nothing of threads but the numbers that records have.
struct NoTasks;

impl Tasks for NoTasks {
    fn comm(&self, _tid: u32) -> Option<&[u8]> {
        None
    }
}

/// A key made for the events of a file.
#[derive(Clone, Debug)]
pub(super) struct ResolvedKey {
    key: Key,
    locations: BTreeMap<u16, Location>,
    syscalls: Option<SyscallTable>,
}

impl ResolvedKey {
    /// Finds the key in these events of a file.
    ///
    /// # Errors
    /// None of them has such a field, or the file lacks what the modifier needs.
    pub(super) fn new<S: Source>(
        key: &Key,
        ids: impl IntoIterator<Item = u16>,
        file: &TraceFile<S>,
    ) -> Result<Self, AnalysisError> {
        let events = file.events();
        let syscalls = file.syscalls();
        if key.modifier == Modifier::Syscall && syscalls.is_none() {
            return Err(AnalysisError::Field(format!(
                "`{}`: the file does not name a machine whose system calls are known; use `{}`",
                key.text(),
                key.field
            )));
        }
        let stored = key.stored();
        let expression = key.expression();
        let mut wrong = None;
        let mut locations = BTreeMap::new();
        let mut names = BTreeSet::new();
        for id in ids {
            let Some(event) = events.get(id) else { continue };
            let location = match (event.field_index(&stored), &*stored) {
                (Some(index), _) => {
                    let named = event.format().field(&stored).and_then(|field| event.named(field));
                    Some(Location::Field { index, named })
                }
                (None, "COMM" | "comm" | "common_comm") => Some(Location::Comm),
                (None, "CPU" | "cpu" | "common_cpu") => Some(Location::Cpu),
                (None, "event") => Some(Location::Event),
                (None, _) => match expression.as_ref().map(|expression| expression.computed(events, id)) {
                    Some(Ok(computed)) => Some(Location::Computed(Arc::new(computed))),
                    Some(Err(error)) => {
                        wrong.get_or_insert(error);
                        None
                    }
                    None => None,
                },
            };
            if let Some(location) = location {
                locations.insert(id, location);
            } else {
                let fields = event.format().fields.iter().chain(&event.format().common);
                names.extend(fields.map(|field| field.name.clone()));
            }
        }
        if let Some(error) = wrong.filter(|_| locations.is_empty()) {
            return Err(AnalysisError::Field(error.to_string()));
        }
        if locations.is_empty() {
            let mut near: Vec<_> = names
                .iter()
                .filter_map(|name| Some((nearest::score(&key.field, name)?, name.as_str())))
                .collect();
            near.sort_unstable();
            let near: Vec<_> = near.into_iter().take(3).map(|(_, name)| name).collect();
            let hint = if near.is_empty() {
                format!("; there are {}", names.into_iter().take(20).collect::<Vec<_>>().join(" "))
            } else {
                format!("; did you mean {}?", near.join(" or "))
            };
            return Err(AnalysisError::Field(format!(
                "none of the events has a field `{}`{hint}",
                key.field
            )));
        }
        Ok(Self { key: key.clone(), locations, syscalls })
    }

    /// Finds the key in these events, and shows its values by name where it has no modifier and they have
    /// names: system calls, threads, and what the formats have names for.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub(super) fn by_name<S: Source>(
        key: &Key,
        ids: impl IntoIterator<Item = u16>,
        file: &TraceFile<S>,
    ) -> Result<Self, AnalysisError> {
        let mut found = Self::new(key, ids, file)?;
        if key.modifier == Modifier::Plain {
            let events = || found.locations.keys().filter_map(|id| file.events().get(*id));
            let is_number = events().any(|event| syscalls::is_number(event.system(), &key.field));
            let has_names = || {
                let named = |location: &Location| matches!(location, Location::Field { named: Some(_), .. });
                found.locations.values().any(named)
            };
            let field = key.field.strip_prefix('$').unwrap_or(&key.field);
            found.key.modifier = if is_number && found.syscalls.is_some() {
                Modifier::Syscall
            } else if has_names() {
                Modifier::Name
            } else if matches!(field, "pid" | "tid") || field.ends_with("_pid") {
                Modifier::ExecName
            } else {
                Modifier::Plain
            };
        }
        Ok(found)
    }

    /// The key with the modifier that it is shown with.
    pub(super) fn key(&self) -> &Key {
        &self.key
    }

    /// The value as a number; `None` if it is none or not there.
    pub(super) fn number(&self, events: &EventTable, id: u16, record: &Record<'_>) -> Option<i128> {
        match self.locations.get(&id)? {
            Location::Field { index, .. } => match events.get(id)?.value(*index, record.data)?.ok()? {
                Value::Signed(value) => Some(value.into()),
                Value::Unsigned(value) | Value::Pointer(value) => Some(value.into()),
                _ => None,
            },
            Location::Computed(computed) => {
                let Record { cpu, timestamp, .. } = *record;
                computed.of(record.data, &Origin { cpu, timestamp, tasks: &NoTasks, symbols: &NoSymbols })
            }
            Location::Cpu => Some(record.cpu.into()),
            Location::Comm | Location::Event => None,
        }
    }

    /// Writes the value as the modifier shows it, without a [`SEPARATOR`](super::SEPARATOR), and returns the
    /// number to sort by if it is one. A missing value is `-`.
    pub(super) fn write(
        &self,
        events: &EventTable,
        id: u16,
        record: &Record<'_>,
        origin: &Origin<'_>,
        out: &mut Vec<u8>,
    ) -> Option<i128> {
        let from = out.len();
        let number = self.write_value(events, id, record, origin, out);
        end_value(out, from);
        number
    }

    fn write_value(
        &self,
        events: &EventTable,
        id: u16,
        record: &Record<'_>,
        origin: &Origin<'_>,
        out: &mut Vec<u8>,
    ) -> Option<i128> {
        let number = self.number(events, id, record);
        // Nothing fails when it is written to memory.
        match (self.key.modifier, number) {
            (Modifier::Hex, Some(number)) => drop(write!(out, "{:#x}", number as u64)),
            (Modifier::Symbol | Modifier::SymbolOffset, Some(number)) => {
                match origin.symbols.lookup(number as u64) {
                    Some(symbol) if self.key.modifier == Modifier::SymbolOffset => {
                        drop(write!(out, "{}+{:#x}", symbol.name, symbol.offset));
                    }
                    Some(symbol) => {
                        out.extend_from_slice(symbol.name.as_bytes());
                        // All addresses of a function are one key.
                        return None;
                    }
                    None => drop(write!(out, "{:#x}", number as u64)),
                }
            }
            (Modifier::ExecName, Some(number)) => {
                let comm = u32::try_from(number).ok().and_then(|tid| origin.tasks.comm(tid));
                out.extend_from_slice(comm.unwrap_or(b"<...>"));
                drop(write!(out, "-{number}"));
            }
            (Modifier::Log2, Some(number)) => {
                let power = if number <= 0 { None } else { Some(number.ilog2()) };
                match power {
                    Some(power) => drop(write!(out, "2^{power}")),
                    None => out.extend_from_slice(b"<= 0"),
                }
                return Some(power.map_or(-1, i128::from));
            }
            (Modifier::Buckets(size), Some(number)) => {
                let start = number.div_euclid(size.into()) * i128::from(size);
                drop(write!(out, "{start}-{}", start + i128::from(size) - 1));
                return Some(start);
            }
            (Modifier::Name, Some(number)) => {
                let named = match self.locations.get(&id) {
                    Some(Location::Field { named, .. }) => *named,
                    _ => None,
                };
                let event = events.get(id);
                let text = event.and_then(|event| event.value_text(named?, record.data, origin.symbols));
                match text {
                    Some(text) => out.extend_from_slice(&text),
                    None => drop(write!(out, "{number}")),
                }
            }
            (Modifier::Syscall, Some(number)) => {
                let table = self.syscalls;
                match u64::try_from(number).ok().and_then(|number| table?.name(number)) {
                    Some(name) => out.extend_from_slice(name.as_bytes()),
                    None => drop(write!(out, "{number}")),
                }
            }
            _ => self.write_plain(events, id, record, origin, out),
        }
        number
    }

    fn write_plain(
        &self,
        events: &EventTable,
        id: u16,
        record: &Record<'_>,
        origin: &Origin<'_>,
        out: &mut Vec<u8>,
    ) {
        let value = match self.locations.get(&id) {
            Some(Location::Field { index, .. }) => {
                events.get(id).and_then(|event| event.value(*index, record.data)?.ok())
            }
            Some(Location::Comm) => {
                let pid = events.get(id).and_then(|event| {
                    match event.value(event.field_index("common_pid")?, record.data)?.ok()? {
                        Value::Signed(pid) => u32::try_from(pid).ok(),
                        _ => None,
                    }
                });
                let comm = pid.and_then(|pid| origin.tasks.comm(pid));
                return out.extend_from_slice(comm.unwrap_or(b"-"));
            }
            Some(Location::Computed(_)) => match self.number(events, id, record) {
                Some(number) => return drop(write!(out, "{number}")),
                None => None,
            },
            Some(Location::Cpu) => Some(Value::Unsigned(record.cpu.into())),
            Some(Location::Event) => {
                let name = events.get(id).map_or("-", |event| event.name());
                return out.extend_from_slice(name.as_bytes());
            }
            None => None,
        };
        match value {
            Some(Value::Text(text)) => out.extend_from_slice(text),
            Some(value) => drop(write!(out, "{value}")),
            None => out.push(b'-'),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    #[test]
    fn contexts_are_keys_as_maps_have_them() {
        for (text, stored, modifier) in [
            ("$tid", "common_pid", Modifier::Plain),
            ("$comm", "COMM", Modifier::Plain),
            ("$cpu", "CPU", Modifier::Plain),
            ("$uid", "ctx_uid", Modifier::Plain),
            ("$pid.buckets=10", "ctx_pid", Modifier::Buckets(10)),
            ("$nothing", "$nothing", Modifier::Plain),
            ("uid", "uid", Modifier::Plain),
        ] {
            let key = Key::parse(text).unwrap();
            assert_eq!((&*key.stored(), key.modifier, key.text().as_str()), (stored, modifier, text));
        }
    }
}
