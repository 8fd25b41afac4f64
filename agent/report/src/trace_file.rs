//! A trace file with the events and symbols that formatting its records needs.

use std::sync::OnceLock;

use super::plugin::Signatures;
use ftrace_event::syscalls::{CallNames, SyscallTable};
use ftrace_event::{EventTable, FormatError, Machine, Names, PointerStyle, Symbol, SymbolTable, Symbols};
use tracedat::reader::{ReadError, Reader, Source};
use tracedat::{FileOption, Uname};

/// An open file, its events and its symbols.
#[derive(Debug)]
pub struct TraceFile<S> {
    name: String,
    reader: Reader<S>,
    events: EventTable,
    /// Formats that cannot be parsed: of their records only the bytes are shown.
    unparsed: Vec<(String, FormatError)>,
    symbols: OnceLock<SymbolTable>,
    signatures: OnceLock<Option<Signatures>>,
    extra_symbols: Vec<u8>,
    /// Those that are laid over all others.
    user_symbols: Vec<u8>,
}

impl<S: Source> TraceFile<S> {
    /// Opens a file and compiles its formats. `name` is what it is called in prefixes of lines.
    ///
    /// # Errors
    /// As [`Reader::open`].
    pub fn open(name: &str, source: S) -> Result<Self, ReadError> {
        let reader = Reader::open(source)?;
        let layout = reader.layout();
        let machine = Machine { endian: layout.endian, long_size: layout.long_size };
        let mut events = EventTable::new(machine);
        let mut unusable = Vec::new();
        let constants = Constants::of(&reader);
        // Of several events with one number the first counts, which a later one would replace.
        for system in reader.metadata().systems.iter().rev() {
            for text in system.formats.iter().rev() {
                if let Err(error) = events.add(&system.name, text, &constants) {
                    unusable.push((&system.name, text, error));
                }
            }
        }
        let mut unparsed = Vec::new();
        for (system, text, error) in unusable.into_iter().rev() {
            events.add_raw(system, text, error.clone());
            unparsed.push((system.clone(), error));
        }
        events.set_pointers(PointerStyle::TraceCmd);
        Ok(Self {
            name: name.to_owned(),
            reader,
            events,
            unparsed,
            symbols: OnceLock::new(),
            signatures: OnceLock::new(),
            extra_symbols: Vec::new(),
            user_symbols: Vec::new(),
        })
    }

    /// What the file is called.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its reader.
    pub fn reader(&self) -> &Reader<S> {
        &self.reader
    }

    /// Its reader, to set how times are corrected.
    pub fn reader_mut(&mut self) -> &mut Reader<S> {
        &mut self.reader
    }

    /// Its events.
    pub fn events(&self) -> &EventTable {
        &self.events
    }

    /// The formats that cannot be parsed, each with its system.
    pub fn unparsed(&self) -> &[(String, FormatError)] {
        &self.unparsed
    }

    /// Adds the name of a task, or replaces the one that the file has.
    pub fn add_name(&mut self, pid: u32, name: &[u8]) {
        self.reader.names_mut().insert(pid, name);
    }

    /// Adds symbols to those of the file: lines of `/proc/kallsyms`.
    pub fn add_kallsyms(&mut self, text: &[u8]) {
        self.extra_symbols.extend_from_slice(text);
        self.extra_symbols.push(b'\n');
        self.symbols = OnceLock::new();
    }

    /// Replaces all symbols that were added.
    pub fn set_kallsyms(&mut self, text: Vec<u8>) {
        self.extra_symbols = text;
        self.symbols = OnceLock::new();
    }

    /// Replaces the symbols that were laid over the others, as [`SymbolTable::lay_over`] does: those of
    /// processes, of which there are more and more while a recording goes on.
    pub fn set_user_symbols(&mut self, text: Vec<u8>) {
        if let Some(table) = self.symbols.get_mut() {
            table.lay_over(SymbolTable::parse(text.clone()));
        }
        self.user_symbols = text;
    }

    /// The symbols of the file, read when they are asked for the first time. A file whose symbols are damaged
    /// has none.
    pub fn symbols(&self) -> &SymbolTable {
        self.symbols.get_or_init(|| {
            let mut text = self.extra_symbols.clone();
            text.extend(self.reader.kallsyms().unwrap_or_default());
            let texts = &self.reader.metadata().printk;
            let texts = texts.iter().map(|(at, text)| (*at, text.as_str()));
            let mut table = SymbolTable::parse(text).with_texts(texts);
            table.lay_over(SymbolTable::parse(self.user_symbols.clone()));
            table
        })
    }

    /// The functions of the kernel, read when they are asked for the first time: a file may have its types.
    pub(super) fn signatures(&self) -> Option<&Signatures> {
        let parse = |types| Signatures::parse(types, self.reader.layout().endian);
        self.signatures.get_or_init(|| self.reader.btf().ok().flatten().and_then(parse)).as_ref()
    }

    /// The system calls of the machine that it was recorded on, if the file names that and it is a known one.
    pub fn syscalls(&self) -> Option<SyscallTable> {
        SyscallTable::of_machine(&Uname::of(self.reader.facts())?.machine)
    }

    /// The names of system calls: by the numbers of its machine, and by those of its events.
    pub fn call_names(&self) -> CallNames {
        CallNames::of(self.syscalls(), self.events())
    }

    /// The clock that the file names, if it does.
    pub fn clock(&self) -> Option<&str> {
        let text = self.reader.facts().find_map(|fact| match fact {
            FileOption::TraceClock(text) => Some(text.as_str()),
            _ => None,
        })?;
        let chosen = text.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
        match chosen {
            Some((name, _)) => Some(name),
            // Version 6 has it behind the list of CPUs.
            None => {
                self.reader.buffers().first().map(|buffer| buffer.clock.as_str()).filter(|c| !c.is_empty())
            }
        }
    }

    /// Whether the file has an option that names its clock, if only an empty one.
    pub fn has_clock_option(&self) -> bool {
        self.reader.facts().any(|fact| matches!(fact, FileOption::TraceClock(_)))
    }

    /// Whether times count nanoseconds, so that they are shown as seconds. Of a file that names no clock,
    /// they do.
    pub fn is_in_nanoseconds(&self) -> bool {
        let Some(clock) = self.clock() else { return true };
        let corrections = self.reader.clock().corrections();
        let is_raw = corrections == tracedat::reader::Corrections::NONE;
        let converted =
            self.reader.facts().any(|fact| matches!(fact, FileOption::Tsc2Nsec { mult, .. } if *mult != 0));
        !is_raw
            && (converted
                || matches!(clock, "local" | "global" | "uptime" | "perf" | "tsc2nsec" | "tai")
                || clock.starts_with("mono"))
    }

    /// Whether a time of 1 is a nanosecond. `uptime` counts hundredths of a second (`USER_HZ`), which stock
    /// readers, and so the lines of `report`, show as if they were nanoseconds.
    pub fn counts_nanoseconds(&self) -> bool {
        self.is_in_nanoseconds() && self.clock() != Some("uptime")
    }

    /// A time as lines show it.
    pub fn time_text(&self, timestamp: u64, full: bool) -> String {
        let mut text = Vec::new();
        super::line::time(&mut text, timestamp, self.is_in_nanoseconds(), full);
        String::from_utf8_lossy(&text).into_owned()
    }
}

impl<S: Source> Symbols for TraceFile<S> {
    fn lookup(&self, address: u64) -> Option<Symbol<'_>> {
        self.symbols().lookup(address)
    }

    fn text_at(&self, address: u64) -> Option<&str> {
        self.symbols().text_at(address)
    }
}

/// What the formats of a file tell of the kernel's constants.
struct Constants {
    hz: Option<i64>,
}

impl Constants {
    /// `writeback_single_inode` prints an age as `(jiffies - REC->dirtied_when) / 250`: the divisor is the
    /// kernel's HZ.
    fn of<S: Source>(reader: &Reader<S>) -> Self {
        let metadata = reader.metadata();
        let formats = metadata.systems.iter().filter(|system| system.name == "writeback");
        let hz = formats.flat_map(|system| &system.formats).find_map(|text| {
            let (_, rest) = text.split_once("REC->dirtied_when) / ")?;
            let digits = rest.find(|c: char| !c.is_ascii_digit()).map_or(rest, |end| &rest[..end]);
            digits.parse().ok()
        });
        Self { hz }
    }
}

impl Names for Constants {
    fn value(&self, name: &str) -> Option<i64> {
        if name == "HZ" { self.hz } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::super::crafted;

    #[test]
    fn uptime_looks_like_nanoseconds_and_counts_none() {
        for (clock, looks, counts) in [
            ("local [mono]", true, true),
            ("local [uptime]", true, false),
            ("local [counter]", false, false),
            ("local [ppc-tb]", false, false),
        ] {
            let file = crafted::file(&[], "", "", clock);
            assert_eq!((file.is_in_nanoseconds(), file.counts_nanoseconds()), (looks, counts), "{clock}");
        }
    }
}
