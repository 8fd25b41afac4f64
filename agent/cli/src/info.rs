//! `tracer-agent info`: what is in a file.

mod directory;
mod json;

use std::fmt::Write as _;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::error::repair_hint;
use super::exit::ExitCode;
use super::input::{self, Opened};
use super::json_writer::{self, Lines};
use super::units::{bytes, count};
use capture::LEDGER_OPTION;
use ftrace_event::Endian;
use stdx::terminal;
use tracedat::initial_state::{Host, InitialState};
use tracedat::ledger::Ledger;
use tracedat::reader::{
    BufferInfo, Counts, CpuCounts, Module, OptionValue, ReadError, Reader, sum_of_losses,
};
use tracedat::{FileOption, OptionId};

/// Show what a trace.dat file, or a directory made by `export`, contains
///
/// Prints its sections and options, its buffers with the events of every CPU, how many events of each kind
/// there are, and what was lost. It takes any file of version 6 or 7, whichever recorder wrote it. For a
/// damaged file it shows the damage, and exits with 1.
#[derive(Debug, Default, clap::Args)]
pub struct Args {
    /// The file or directory
    #[arg(value_name = "FILE", default_value = "trace.dat")]
    pub file: PathBuf,

    /// Print JSON: one object
    #[arg(long)]
    pub json: bool,

    #[command(flatten)]
    #[expect(missing_docs, reason = "its options are documented")]
    pub access: super::remote::AccessArgs,
}

impl Args {
    /// About a file, with no other options.
    pub fn new(file: PathBuf, json: bool) -> Self {
        Self { file, json, ..Self::default() }
    }
}

/// Why nothing could be told.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InfoError {
    /// The file cannot be opened.
    #[error("cannot open {path}: {source}", path = .path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// It is no trace file, or damaged so early that nothing of it can be read.
    #[error("cannot read {path}: {source}{}", repair_hint(.source), path = .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: ReadError,
    },
    /// It is a directory of which nothing can be told.
    #[error("cannot describe the directory {path}: {reason}", path = .path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// The report cannot be written.
    #[error("cannot write the report: {0}")]
    Write(#[from] io::Error),
}

impl InfoError {
    /// The code to exit with.
    pub fn exit_code(&self) -> ExitCode {
        match self {
            Self::Open { source, .. } => ExitCode::of_opening(source),
            Self::Read { .. } | Self::Directory { .. } => ExitCode::Failure,
            Self::Write(_) => ExitCode::OutputNotWritable,
        }
    }
}

/// Options with longer values are cut in the text.
const MAX_OPTION_TEXT: usize = 90;

/// Tells of a file.
pub fn run(args: &Args, out: &mut dyn Write) -> Result<ExitCode, InfoError> {
    let (mut text, whole) =
        if args.file.is_dir() { directory::report(&args.file, args.json)? } else { file_report(args)? };
    if !text.ends_with('\n') {
        text.push('\n');
    }
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        // A reader that has seen enough is no error.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
        result => result?,
    }
    Ok(if whole { ExitCode::Ok } else { ExitCode::Failure })
}

/// A report as one line of JSON.
fn json_text(value: &impl Serialize) -> Result<String, InfoError> {
    Ok(json_writer::text(value, Lines::One)?)
}

/// Tells of a trace file, and whether it is whole.
fn file_report(args: &Args) -> Result<(String, bool), InfoError> {
    let (path, json) = (args.file.as_path(), args.json);
    let file = input::open_source(path, &args.access)
        .map_err(|source| InfoError::Open { path: path.to_owned(), source })?;
    let reader = Reader::open(file).map_err(|source| InfoError::Read { path: path.to_owned(), source })?;
    let report = Report::new(path, &reader);
    let text = if json { json_text(&json::Contents::of(&report))? } else { report.text() };
    Ok((text, report.damage.is_empty()))
}

/// Everything that is told.
struct Report<'a> {
    name: String,
    reader: &'a Reader<Opened>,
    modules: Vec<Module>,
    buffers: Vec<(&'a BufferInfo, Counts)>,
    counts: Counts,
    /// Events by number, most first.
    by_id: Vec<(u16, u64)>,
    ledger: Option<FoundLedger>,
    damage: Vec<String>,
}

/// What a CPU has lost at its ends, beside what is marked before records; 0 is a number that is not known.
#[derive(Clone, Copy)]
struct CpuEnds {
    before: Option<u64>,
    behind: Option<u64>,
}

impl CpuEnds {
    fn both(self) -> impl Iterator<Item = u64> {
        [self.before, self.behind].into_iter().flatten()
    }

    fn events(self) -> u64 {
        self.both().fold(0, u64::saturating_add)
    }

    fn unknown(self) -> u64 {
        self.both().filter(|events| *events == 0).count() as u64
    }
}

/// What our recorder says of losses.
#[derive(Serialize)]
#[serde(untagged)]
enum FoundLedger {
    Readable(Box<Ledger>),
    /// What is there instead.
    Text(String),
}

impl FoundLedger {
    fn of(bytes: &[u8]) -> Self {
        match Ledger::parse(bytes) {
            Some(ledger) => Self::Readable(Box::new(ledger)),
            None => Self::Text(String::from_utf8_lossy(bytes).trim_end_matches('\0').to_owned()),
        }
    }
}

impl<'a> Report<'a> {
    fn new(path: &Path, reader: &'a Reader<Opened>) -> Self {
        let mut damage: Vec<_> = reader.problems().iter().map(ToString::to_string).collect();
        let mut counts = Counts::default();
        let mut table = vec![0_u64; 1 << 16];
        let mut buffers = Vec::new();
        let silent = reader.silent_cpus();
        for (index, info) in reader.buffers().iter().enumerate() {
            let mut found = reader.count(index);
            // Data that a cut file has not were told of above.
            damage.extend(
                found
                    .damage
                    .iter()
                    .filter(|text| !reader.problems().iter().any(|p| p.to_string() == **text))
                    .cloned(),
            );
            let silent = silent.iter().filter(|(buffer, _)| *buffer == index);
            found.cpus.extend(silent.map(|(_, cpu)| CpuCounts { cpu: *cpu, ..CpuCounts::default() }));
            counts.cpus.extend(found.cpus.iter().cloned());
            found.by_id.iter().for_each(|(id, events)| table[usize::from(*id)] += events);
            buffers.push((info, found));
        }
        let seen = table.into_iter().enumerate().filter(|(_, events)| *events != 0);
        let mut by_id: Vec<_> = seen.map(|(id, events)| (id as u16, events)).collect();
        by_id.sort_by_key(|(id, events)| (std::cmp::Reverse(*events), *id));
        let modules = reader.modules().unwrap_or_else(|error| {
            damage.push(error.to_string());
            Vec::new()
        });
        let ledger = reader.facts().find_map(|fact| match fact {
            FileOption::Unknown { id, bytes } if *id == LEDGER_OPTION => Some(FoundLedger::of(bytes)),
            _ => None,
        });
        Self { name: path.display().to_string(), reader, modules, buffers, counts, by_id, ledger, damage }
    }

    fn events(&self) -> u64 {
        self.counts.events()
    }

    /// First and last time.
    fn span(&self) -> Option<(u64, u64)> {
        self.counts.span()
    }

    /// Events per second, if they took any time.
    fn rate(&self, events: u64) -> Option<f64> {
        let (first, last) = self.span().filter(|(first, last)| last > first)?;
        Some(events as f64 / ((last - first) as f64 / 1e9))
    }

    /// What a CPU in a buffer has lost before its first record and behind its last one; 0 is a number that is
    /// not known. Marks before records are not among it.
    fn ends(&self, buffer: &BufferInfo, counts: &CpuCounts) -> CpuEnds {
        let index = self.reader.buffers().iter().position(|other| std::ptr::eq(other, buffer));
        let (before, behind) = self.reader.losses_of(index.unwrap_or(usize::MAX), counts.cpu);
        CpuEnds { before, behind: sum_of_losses(counts.missed_behind, behind) }
    }

    /// Each CPU in each buffer, also those that lost all.
    fn rows(&self) -> impl Iterator<Item = (&BufferInfo, &CpuCounts)> {
        self.buffers.iter().flat_map(|(info, counts)| counts.cpus.iter().map(|cpu| (*info, cpu)))
    }

    /// Events that are known to be lost, and of how many losses the number is not known.
    fn lost(&self) -> (u64, u64) {
        self.rows().fold((0, 0), |(events, unknown), (info, counts)| {
            let ends = self.ends(info, counts);
            (
                events.saturating_add(counts.missed_events).saturating_add(ends.events()),
                unknown + counts.missed_unknown + ends.unknown(),
            )
        })
    }

    /// Events that marks before records tell of as lost, and how many marks there are.
    fn missed(&self) -> (u64, u64) {
        let sum = |of: &dyn Fn(&CpuCounts) -> u64| -> u64 {
            self.counts.cpus.iter().map(of).fold(0, u64::saturating_add)
        };
        (sum(&|cpu| cpu.missed_events), sum(&|cpu| cpu.missed_marks))
    }

    fn text(&self) -> String {
        let mut text = String::new();
        self.overview(&mut text);
        self.sections(&mut text);
        self.options(&mut text);
        self.modules(&mut text);
        self.buffers(&mut text);
        self.by_event(&mut text);
        self.losses(&mut text);
        if !self.damage.is_empty() {
            text.push_str("\nDAMAGE\n");
            self.damage.iter().for_each(|damage| text += &format!("  {}\n", clean(damage)));
        }
        text
    }

    fn overview(&self, text: &mut String) {
        let (header, layout) = (self.reader.header(), self.reader.layout());
        let codec = format!("{} {}", header.codec.name(), clean(&header.codec_version));
        let _ = writeln!(
            text,
            "{}: version {}, {}, {} endian, {}-bit kernel, pages of {} bytes, compression {}",
            self.name,
            header.version,
            bytes(self.reader.file_len()),
            endian_name(header.endian),
            u32::from(layout.long_size) * 8,
            layout.page_size,
            codec.trim_end(),
        );
        let _ = write!(text, "{} events", count(self.events()));
        if let Some((first, last)) = self.span() {
            let _ = write!(
                text,
                " from {} to {}, {} s",
                seconds(first),
                seconds(last),
                seconds(last.saturating_sub(first))
            );
        }
        if let Some(rate) = self.rate(self.events()) {
            let _ = write!(text, ", {} per second", count(rate as u64));
        }
        text.push('\n');
    }

    fn sections(&self, text: &mut String) {
        let _ = writeln!(
            text,
            "\nSECTIONS\n{:>14} {:>12} {:>12} {:>7}  holds",
            "offset", "bytes", "unpacked", "ratio"
        );
        for section in self.reader.sections() {
            let plain = section.plain_size.filter(|_| section.compressed);
            let ratio = plain.map_or_else(String::new, |plain| ratio(plain, section.size));
            let plain = plain.map_or_else(String::new, |plain| plain.to_string());
            let description = section.description.as_deref().filter(|text| *text != section.id.description());
            let description = description.map_or_else(String::new, |text| format!(" \"{}\"", clean(text)));
            let _ = writeln!(
                text,
                "{:>14} {:>12} {plain:>12} {ratio:>7}  {}{description}",
                section.offset, section.size, section.id,
            );
        }
    }

    fn options(&self, text: &mut String) {
        let _ = writeln!(text, "\nOPTIONS\n{:>14} {:>12}  option", "offset", "bytes");
        for option in self.reader.options() {
            let name = match option.id.name() {
                Some(name) => name.to_owned(),
                None if option.id == LEDGER_OPTION => "(loss ledger)".to_owned(),
                None if option.id == OptionId::CHECKSUMS => "(checksums)".to_owned(),
                None if option.id == InitialState::OPTION => "(initial state)".to_owned(),
                None if option.id == Host::OPTION => "(host)".to_owned(),
                None => format!("(unknown, {})", option.id),
            };
            let value = clean(&option_text(&option.value, MAX_OPTION_TEXT));
            let _ = writeln!(text, "{:>14} {:>12}  {name:<14} {value}", option.offset, option.size);
        }
    }

    /// Modules, which recorders of version 3.3 and later store.
    fn modules(&self, text: &mut String) {
        if !self.modules.is_empty() {
            let _ = writeln!(text, "\nMODULES\n{:>18} {:>12}  name", "address", "bytes");
        }
        for Module { name, size, address } in &self.modules {
            let _ = writeln!(text, "{address:>#18x} {size:>12}  {}", clean(name));
        }
    }

    fn buffers(&self, text: &mut String) {
        for (info, counts) in &self.buffers {
            let packed: u64 = info.cpus.iter().map(|cpu| cpu.size).fold(0, u64::saturating_add);
            let pages: u64 = counts.cpus.iter().map(|cpu| cpu.pages).sum();
            let plain = pages * u64::from(info.layout.page_size);
            let name = if info.name.is_empty() { "(top)".to_owned() } else { clean(&info.name) };
            let clock = if info.clock.is_empty() { "unknown".to_owned() } else { clean(&info.clock) };
            let _ = write!(text, "\nBUFFER {name}: clock {clock}, {}", bytes(packed));
            if info.compressed {
                let _ = write!(text, " of {} compressed {}", bytes(plain), ratio(plain, packed));
            }
            let _ = writeln!(
                text,
                "\n{:>6} {:>9} {:>12} {:>12} {:>20} {:>20} {:>12}",
                "CPU", "pages", "events", "bytes", "first", "last", "lost"
            );
            for cpu in &counts.cpus {
                let time = |time: Option<u64>| time.map_or_else(|| "-".to_owned(), seconds);
                let ends = self.ends(info, cpu);
                let events = cpu.missed_events.saturating_add(ends.events());
                let lost = match (events, cpu.missed_unknown + ends.unknown()) {
                    (events, 0) => events.to_string(),
                    (0, _) => "some".to_owned(),
                    (events, _) => format!(">{events}"),
                };
                let size = info.cpu(cpu.cpu).unwrap_or_default().size;
                let (first, last) = (time(cpu.first), time(cpu.last));
                let _ = writeln!(
                    text,
                    "{:>6} {:>9} {:>12} {size:>12} {first:>20} {last:>20} {lost:>12}",
                    cpu.cpu, cpu.pages, cpu.events,
                );
            }
        }
    }

    fn by_event(&self, text: &mut String) {
        if self.by_id.is_empty() {
            return;
        }
        let _ = writeln!(
            text,
            "\nEVENTS\n{:>14} {:>7} {:>12} {:>6}  event",
            "events", "share", "per second", "id"
        );
        for (id, events) in &self.by_id {
            let share = *events as f64 * 100.0 / self.events().max(1) as f64;
            let rate = self.rate(*events).map_or_else(|| "-".to_owned(), |rate| format!("{rate:.1}"));
            let name = self.reader.metadata().event(*id).map_or_else(
                || "(the file has no format for it)".to_owned(),
                |event| clean(&format!("{}:{}", event.system, event.name)),
            );
            let _ = writeln!(text, "{events:>14} {share:>6.1}% {rate:>12} {id:>6}  {name}");
        }
    }

    fn losses_at_ends(&self, text: &mut String) {
        let ends: Vec<_> = self.rows().map(|(info, counts)| self.ends(info, counts)).collect();
        let before: Vec<u64> = ends.iter().filter_map(|ends| ends.before).collect();
        let behind: Vec<u64> = ends.iter().filter_map(|ends| ends.behind).collect();
        for (place, found) in [("before the first record", before), ("behind the last record", behind)] {
            if found.is_empty() {
                continue;
            }
            let events = found.iter().fold(0_u64, |sum, events| sum.saturating_add(*events));
            let cpus = count(found.len() as u64);
            let _ = write!(text, "  {} events lost {place} of {cpus} CPUs", count(events));
            if let unknown @ 1.. = found.iter().filter(|events| **events == 0).count() as u64 {
                let _ = write!(text, ", {} of which without a count", count(unknown));
            }
            text.push('\n');
        }
    }

    fn losses(&self, text: &mut String) {
        let (events, marks) = self.missed();
        let unknown: u64 = self.counts.cpus.iter().map(|cpu| cpu.missed_unknown).sum();
        text.push_str("\nLOSSES\n");
        if marks == 0 {
            text.push_str("  no page reports lost events\n");
        } else {
            let _ = write!(text, "  {} events lost at {} places", count(events), count(marks));
            if unknown != 0 {
                let _ = write!(text, ", {} of which without a count", count(unknown));
            }
            text.push('\n');
        }
        self.losses_at_ends(text);
        let Some(ledger) = &self.ledger else { return };
        let FoundLedger::Readable(ledger) = ledger else {
            text.push_str("  the recorder's ledger cannot be read\n");
            return;
        };
        if ledger.part {
            text.push_str("  the file is a part; of the whole, ");
        } else {
            text.push_str("  ");
        }
        text.push_str("the recorder's ledger: ");
        match ledger.cut_short() {
            None => {
                let _ = write!(text, "{} events recorded", count(ledger.sum(|cpu| cpu.recorded)));
                if let stored @ 1.. = ledger.sum(|cpu| cpu.stored) {
                    let _ = write!(text, ", {} stored", count(stored));
                }
            }
            Some(cut_short) => {
                let stored = count(ledger.sum(|cpu| cpu.stored));
                let _ = write!(text, "{}, {stored} events stored", cut_short.text());
            }
        }
        for (events, what) in [
            (ledger.sum(|cpu| cpu.overwritten), "overwritten"),
            (ledger.sum(|cpu| cpu.capped.flatten()), "dropped for the size limit"),
            (ledger.sum(|cpu| cpu.unstored), "not stored"),
            (ledger.sum(|cpu| cpu.filtered), "filtered"),
            (ledger.sum(|cpu| cpu.own_threads), "left out as the recorder's own"),
        ] {
            if events != 0 {
                let _ = write!(text, ", {} {what}", count(events));
            }
        }
        if ledger.cpus.iter().any(|cpu| cpu.capped == Some(None)) {
            text.push_str(", an unknown number dropped for the size limit");
        }
        let mut causes: Vec<(&str, u64)> = Vec::new();
        for (cause, events) in ledger.cpus.iter().flat_map(|cpu| &cpu.lost.0) {
            match causes.iter_mut().find(|(name, _)| name == cause) {
                Some((_, sum)) => *sum = sum.saturating_add(*events),
                None => causes.push((cause, *events)),
            }
        }
        let causes: Vec<_> = causes
            .iter()
            .filter(|(_, events)| *events != 0)
            .map(|(cause, events)| format!("{} {}", clean(cause), count(*events)))
            .collect();
        let lost = match (causes.is_empty(), ledger.cut_short()) {
            (true, None) => "none".to_owned(),
            (false, None) => causes.join(", "),
            (true, Some(_)) => "unknown".to_owned(),
            (false, Some(_)) => format!("at least {}", causes.join(", ")),
        };
        let _ = writeln!(text, "; lost: {lost}");
        for cpu in &ledger.cpus {
            if let Some(missing) = cpu.missing {
                let _ = writeln!(text, "  {}: {}", clean(&cpu.title()), missing.text(count));
            }
        }
        for pause in &ledger.pauses {
            let to = pause.to_ns.map_or_else(|| "on".to_owned(), |to| format!("to {}", seconds(to)));
            let _ = writeln!(text, "  paused from {} {to}: nothing was recorded", seconds(pause.from_ns));
        }
        for event in ledger.events.iter().flatten() {
            let span = match (event.since_ns, event.until_ns) {
                (None, None) => continue,
                (Some(since), None) => format!("from {} on", seconds(since)),
                (None, Some(until)) => format!("up to {}", seconds(until)),
                (Some(since), Some(until)) => format!("from {} to {}", seconds(since), seconds(until)),
            };
            let _ = writeln!(text, "  {} was recorded {span}", clean(&event.title()));
        }
    }
}

fn endian_name(endian: Endian) -> &'static str {
    match endian {
        Endian::Little => "little",
        Endian::Big => "big",
    }
}

/// Nanoseconds as seconds.
fn seconds(nanos: u64) -> String {
    format!("{}.{:09}", nanos / 1_000_000_000, nanos % 1_000_000_000)
}

fn ratio(plain: u64, packed: u64) -> String {
    format!("{:.1}:1", plain as f64 / packed.max(1) as f64)
}

/// A text of a file as one line that does nothing to a terminal.
fn clean(text: &str) -> String {
    terminal::name(&text.trim_end().replace(['\n', '\t'], " "))
}

/// What an option says, in at most about `max` bytes.
fn option_text(value: &OptionValue, max: usize) -> String {
    let text = match value {
        OptionValue::Section { id, offset } => format!("section {id} at {offset}"),
        OptionValue::Buffer(buffer) => {
            format!("{:?} at {}, {} CPUs", buffer.name, buffer.offset, buffer.cpus.len())
        }
        OptionValue::BufferText { offset, name, .. } => format!("{name:?} at {offset}"),
        OptionValue::Checksums(Some(checksums)) => format!("of {} ranges", checksums.ranges.len()),
        OptionValue::Checksums(None) => "damaged".to_owned(),
        OptionValue::Fact(fact) => fact_text(fact),
        // Values that a later version of the library reads.
        other => format!("{other:?}"),
    };
    let Some((end, _)) = text.char_indices().nth(max) else { return text };
    format!("{}...", &text[..end])
}

fn fact_text(fact: &FileOption) -> String {
    match fact {
        FileOption::Date { micros } => format!("{micros} us"),
        FileOption::Offset { nanos } => format!("{nanos} ns"),
        FileOption::CpuStat(text)
        | FileOption::TraceClock(text)
        | FileOption::Uname(text)
        | FileOption::Hook(text)
        | FileOption::Version(text) => text.clone(),
        FileOption::CpuCount(count) => count.to_string(),
        FileOption::ProcMaps(maps) => {
            format!("process {} ({}), {} files", maps.pid, maps.name, maps.maps.len())
        }
        FileOption::TraceId(id) => format!("{id:#x}"),
        FileOption::TimeShift(shift) => {
            let samples: usize = shift.cpus.iter().map(Vec::len).sum();
            format!("peer {:#x}, {} CPUs, {samples} samples", shift.peer, shift.cpus.len())
        }
        FileOption::Guest(guest) => {
            format!("{:?}, {:#x}, {} CPUs", guest.name, guest.trace_id, guest.cpus.len())
        }
        FileOption::Tsc2Nsec { mult, shift, offset } => {
            format!("(ticks * {mult}) >> {shift}, {offset} ns at 0")
        }
        FileOption::LastBootInfo { buffer, text } => format!("{buffer}: {text}"),
        FileOption::Unknown { id, bytes } => unknown_text(*id, bytes),
        other => format!("{other:?}"),
    }
}

fn state_text(bytes: &[u8]) -> String {
    match InitialState::decode(bytes) {
        Ok(state) => format!(
            "{} threads, {} open files, {} interrupts, {} modules, {} network interfaces, {} block devices",
            state.threads.len(),
            state.files.len(),
            state.interrupts.len(),
            state.modules.len(),
            state.interfaces.len(),
            state.block_devices.len(),
        ),
        Err(error) => error.to_string(),
    }
}

fn unknown_text(id: OptionId, bytes: &[u8]) -> String {
    if id == InitialState::OPTION {
        return state_text(bytes);
    }
    let text = std::str::from_utf8(bytes).ok().map(|text| text.trim_end_matches('\0'));
    let printable =
        text.filter(|text| !text.is_empty() && !text.contains(|c: char| c.is_control() && c != '\n'));
    match printable {
        Some(text) => text.to_owned(),
        None if id == LEDGER_OPTION => "damaged".to_owned(),
        None => bytes.iter().take(32).fold(String::new(), |text, byte| text + &format!("{byte:02x}")),
    }
}
