//! The text of a record and of a frame.

use std::io::Write as _;

use ftrace_event::stacks::{Stack, UNKNOWN, place_of_frame, symbol};
use ftrace_event::{FieldReader, Printer, SymbolTable, Symbols};
use recording::{Recording, full_name};
use report::text::{decimal, hex, hex_right, right, signed, unsigned};
use stdx::escapes;
use stdx::fast_map::FastMap;
use tracedat::reader::Record;

/// What `perf script` calls the file of the kernel's symbols.
const KERNEL: &[u8] = b"[kernel.kallsyms]";

/// How the records of an event are printed.
struct Plan<'r> {
    printer: &'r Printer,
    pid: Option<FieldReader>,
    flags: Option<FieldReader>,
    preempt_count: Option<FieldReader>,
    /// `system:name`, right-aligned, and what follows it.
    name: Vec<u8>,
}

/// What is said of a record, besides what it has.
#[derive(Clone, Copy, Debug)]
pub(super) enum Said {
    /// It is one, of this process.
    Record { process: u32 },
    /// It is none: so many events of the CPU were lost here.
    Lost(u64),
}

/// What a record is of.
pub(super) enum What<'r> {
    /// An event, in the context of these flags and with this count of reasons not to be preempted.
    Event { printer: &'r Printer, flags: u64, preempt_count: u64 },
    /// Something that is not described.
    Unknown,
}

/// What prints records, on any thread.
pub(super) struct Lines<'r> {
    recording: &'r Recording<'r>,
    symbols: SymbolTable,
    plans: FastMap<u16, Plan<'r>>,
    has_stacks: bool,
    has_buffers: bool,
}

impl<'r> Lines<'r> {
    /// For a recording.
    pub(super) fn new(recording: &'r Recording<'r>) -> Self {
        let file = recording.file();
        let printk = file.metadata().printk.iter().map(|(at, text)| (*at, text.as_str()));
        // Without symbols, addresses stay numbers.
        let symbols = SymbolTable::parse(file.kallsyms().unwrap_or_default()).with_texts(printk);
        let names = recording.events().iter().map(|printer| safe(full_name(printer).as_bytes()));
        let width = names.map(|name| name.len()).max().unwrap_or(0);
        let plan = |printer| (Printer::format(printer).id, Plan::of(printer, width));
        Self {
            recording,
            symbols,
            plans: recording.events().iter().map(plan).collect(),
            has_stacks: recording.events().iter().any(Printer::is_stack),
            has_buffers: recording.cpu_streams().iter().any(|of| !of.channel.is_empty()),
        }
    }

    /// Whether stacks may follow records.
    pub(super) fn has_stacks(&self) -> bool {
        self.has_stacks
    }

    /// What a record is of.
    pub(super) fn what(&self, record: &Record<'_>) -> What<'r> {
        // Others were found by the survey.
        let Some(plan) = record.event_id().and_then(|id| self.plans.get(&id)) else { return What::Unknown };
        let number =
            |field: Option<FieldReader>| field.and_then(|field| field.number(record.data)).unwrap_or(0);
        What::Event {
            printer: plan.printer,
            flags: number(plan.flags),
            preempt_count: number(plan.preempt_count),
        }
    }

    /// The thread of a record.
    pub(super) fn thread(&self, record: &Record<'_>) -> u32 {
        let plan = record.event_id().and_then(|id| self.plans.get(&id));
        plan.and_then(|plan| plan.pid).and_then(|pid| pid.number(record.data)).map_or(0, |pid| pid as u32)
    }

    /// Prints which buffer the next lines are of, where they may be of several.
    pub(super) fn buffer(&self, index: usize, out: &mut Vec<u8>) {
        if !self.has_buffers {
            return;
        }
        let name = self.recording.file().buffers().get(index).map_or("", |buffer| &buffer.name);
        out.extend_from_slice(escapes::COMMENT.as_bytes());
        out.extend_from_slice(escapes::BUFFER.as_bytes());
        let start = out.len();
        out.extend_from_slice(name.as_bytes());
        escapes::escape_from(out, start);
        out.push(b'\n');
    }

    /// Prints what is said of a record. Gives whether a line cannot have its texts as they are.
    pub(super) fn print(&self, record: &Record<'_>, said: Said, stack: &Stack, out: &mut Vec<u8>) -> bool {
        match said {
            Said::Lost(missed) => lost(record.cpu, missed, out),
            Said::Record { process } => {
                let is_escaped = self.record(record, process, out);
                if self.has_stacks {
                    self.frames(stack, out);
                }
                return is_escaped;
            }
        }
        false
    }

    fn record(&self, record: &Record<'_>, process: u32, out: &mut Vec<u8>) -> bool {
        let Some(plan) = record.event_id().and_then(|id| self.plans.get(&id)) else { return false };
        let Plan { printer, .. } = plan;
        let tid = self.thread(record);
        let mut is_escaped = self.name(tid, out);
        out.push(b' ');
        let before = out.len();
        signed(out, process.cast_signed().into());
        align(out, before, 5);
        out.push(b'/');
        let before = out.len();
        signed(out, tid.cast_signed().into());
        out.resize(out.len().max(before + 5), b' ');
        out.extend_from_slice(b" [");
        decimal(out, record.cpu.into(), 3, b'0');
        out.extend_from_slice(b"] ");
        decimal(out, record.timestamp / 1_000_000_000, 5, b' ');
        out.push(b'.');
        decimal(out, record.timestamp % 1_000_000_000, 9, b'0');
        out.extend_from_slice(b": ");
        out.extend_from_slice(&plan.name);
        let start = out.len();
        if !printer.is_stack() {
            printer.print_format(record.data, &self.symbols, out);
        }
        while out.last() == Some(&b'\n') {
            out.pop();
        }
        let len = out.len();
        escapes::escape_from(out, start);
        is_escaped |= out.len() != len;
        out.push(b'\n');
        is_escaped
    }

    /// The name of a thread: aligned as `perf script` aligns it where there are no stacks. Gives whether it
    /// is escaped.
    fn name(&self, tid: u32, out: &mut Vec<u8>) -> bool {
        let width = if self.has_stacks { 0 } else { 16 };
        match self.recording.file().metadata().cmdlines.get(tid) {
            _ if tid == 0 => right(out, b"swapper", width),
            Some(name) if !name.is_empty() => {
                let safe = comm(name);
                right(out, &safe, width);
                return safe != name;
            }
            _ => {
                let before = out.len();
                out.push(b':');
                unsigned(out, tid.into());
                align(out, before, width);
            }
        }
        false
    }

    /// Prints the frames of a record, and the empty line that ends them.
    fn frames(&self, stack: &Stack, out: &mut Vec<u8>) {
        let kernel = stack.kernel.iter().map(|address| (*address, *address, KERNEL));
        let user = stack.user.iter().map(|address| {
            let place = place_of_frame(&self.symbols, stack.process, *address);
            (*address, place, UNKNOWN.as_bytes())
        });
        for (address, place, module) in kernel.chain(user) {
            out.push(b'\t');
            hex_right(out, address, 16);
            out.push(b' ');
            let start = out.len();
            let known = symbol(&self.symbols as &dyn Symbols, place);
            out.extend_from_slice(known.map_or(UNKNOWN, |symbol| symbol.name).as_bytes());
            // Frames of processes have entries of their own, named with the offset.
            if let Some(symbol) = known.filter(|symbol| symbol.offset != 0 || !has_offset(symbol.name)) {
                out.extend_from_slice(b"+0x");
                hex(out, symbol.offset);
            }
            escapes::escape_from(out, start);
            out.extend_from_slice(b" (");
            out.extend_from_slice(module);
            out.extend_from_slice(b")\n");
        }
        out.push(b'\n');
    }
}

/// Prints that events of a CPU were lost here; 0 if it is not known how many.
fn lost(cpu: u32, missed: u64, out: &mut Vec<u8>) {
    // Writing to memory does not fail.
    let _ = match missed {
        0 => writeln!(out, "# CPU {cpu}: events lost"),
        missed => writeln!(out, "# CPU {cpu}: {missed} events lost"),
    };
}

impl<'r> Plan<'r> {
    fn of(printer: &'r Printer, width: usize) -> Self {
        let reader = |name: &str| printer.field(printer.field_index(name)?);
        let mut name = Vec::new();
        right(&mut name, &safe(full_name(printer).as_bytes()), width);
        name.extend_from_slice(b": ");
        Self {
            printer,
            pid: reader("common_pid"),
            flags: reader("common_flags"),
            preempt_count: reader("common_preempt_count"),
            name,
        }
    }
}

/// What a line can have.
fn safe(text: &[u8]) -> Vec<u8> {
    let mut text = text.to_vec();
    escapes::escape_from(&mut text, 0);
    text
}

/// A name that does not look like what follows it, a bracket before the CPU, and keeps the blanks around it.
fn comm(name: &[u8]) -> Vec<u8> {
    let safe = safe(name);
    let start = safe.len() - safe.trim_ascii_start().len();
    let end = safe.trim_ascii_end().len();
    let mut text = Vec::with_capacity(safe.len());
    for (at, byte) in safe.iter().enumerate() {
        match byte {
            b' ' if at < start || at >= end => text.extend_from_slice(br"\x20"),
            b'[' => text.extend_from_slice(br"\x5b"),
            byte => text.push(*byte),
        }
    }
    text
}

fn align(out: &mut Vec<u8>, start: usize, width: usize) {
    let missing = width.saturating_sub(out.len() - start);
    out.splice(start..start, std::iter::repeat_n(b' ', missing));
}

fn has_offset(name: &str) -> bool {
    let offset = name.rsplit_once("+0x").map(|(_, offset)| offset);
    offset.is_some_and(|offset| !offset.is_empty() && offset.bytes().all(|byte| byte.is_ascii_hexdigit()))
}
