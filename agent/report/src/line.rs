//! The lines of a report, as trace-cmd prints them (`trace_show_data` of tracecmd/trace-read.c).

use super::batch::Item;
use super::plugin::{Context, Plugin};
use super::text::{decimal, hex, micros, right, signed_left, unsigned};
use super::view::{BufferView, EventView, FileView, SecondFlag};
use ftrace_event::digits;
use ftrace_event::output::{BLOCK, append_composed};
use ftrace_event::record::flag;
use stdx::terminal;
use stdx::terminal::Lines;

/// How lines look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is an option of its own")]
pub struct Style {
    /// Times with all their digits (`-t`).
    pub full_time: bool,
    /// Fields instead of texts (`-R`).
    pub raw: bool,
    /// Flags of interrupts, preemption and scheduling (`-l`).
    pub latency: bool,
    /// The time since the line before (`--ts-diff`).
    pub differences: bool,
    /// Nothing but the `print fmt` (`-N`).
    pub plain: bool,
    /// Names of events, and lines of lost ones, in colours of a terminal (ECMA-48, 8.3.117).
    pub colour: bool,
    /// The lines go to a terminal, which must not obey what names have in them: see [`terminal`].
    pub terminal: bool,
    /// Task states with the letters of trace-cmd 3.1, instead of those that the recording's format has
    /// (`--old-states`).
    pub old_states: bool,
}

/// Escape sequences of the colours.
mod colour {
    pub(super) const EVENT: &[u8] = b"\x1b[36m";
    pub(super) const LOST: &[u8] = b"\x1b[31m";
    pub(super) const END: &[u8] = b"\x1b[0m";
}

/// Prints a record's line.
pub(super) fn write(
    out: &mut Vec<u8>,
    style: Style,
    file: &FileView<'_>,
    buffer: &BufferView<'_>,
    item: &Item,
    data: &[u8],
) {
    let mut safe = Safe { on: style.terminal, from: out.len() };
    out.extend_from_slice(&buffer.prefix);
    safe.up_to_here(out, Lines::Escaped);
    if let Some(missed) = item.missed() {
        lost(out, style, item.cpu, missed);
        safe.from = out.len();
    }
    let record = item.record(data);
    let Some(event) = file.event(record) else {
        out.extend_from_slice(b"[UNKNOWN EVENT]");
        if style.latency && !style.raw {
            out.extend_from_slice(b"[UNKNOWN EVENT]");
        }
        out.extend_from_slice(b"[UNKNOWN EVENT] (NULL):               [UNKNOWN EVENT]\n");
        return;
    };
    head(out, style, file, item, record);
    if style.differences {
        difference(out, style, file, item);
    }
    if style.colour {
        safe.up_to_here(out, Lines::Escaped);
        out.extend_from_slice(colour::EVENT);
        safe.from = out.len();
    }
    event.label.append_to(out);
    if style.colour {
        safe.up_to_here(out, Lines::Escaped);
        out.extend_from_slice(colour::END);
        safe.from = out.len();
    }
    text(out, style, file, event, item, data);
    if out.last() == Some(&b'\n') {
        out.pop();
    }
    safe.up_to_here(out, if event.has_lines && !style.raw { Lines::Kept } else { Lines::Escaped });
    if let Some(latency) = item.latency() {
        out.extend_from_slice(b" Latency: ");
        micros(out, latency);
        out.extend_from_slice(b" usecs");
    }
    out.push(b'\n');
}

/// Where the text begins that is not yet made safe for a terminal.
struct Safe {
    on: bool,
    from: usize,
}

impl Safe {
    /// Escapes what was printed since.
    #[inline]
    fn up_to_here(&mut self, out: &mut Vec<u8>, lines: Lines) {
        if self.on {
            terminal::escape_from(out, self.from, lines);
            self.from = out.len();
        }
    }
}

/// A line that tells of lost events. The line of the record stands below it.
fn lost(out: &mut Vec<u8>, style: Style, cpu: u32, missed: u64) {
    if style.colour {
        out.extend_from_slice(colour::LOST);
    }
    out.extend_from_slice(b"CPU:");
    unsigned(out, cpu.into());
    out.extend_from_slice(b" [");
    if missed != 0 {
        unsigned(out, missed);
        out.push(b' ');
    }
    out.extend_from_slice(b"EVENTS DROPPED]");
    if style.colour {
        out.extend_from_slice(colour::END);
    }
    out.push(b'\n');
}

/// Task and CPU, the flags, and the time.
fn head(out: &mut Vec<u8>, style: Style, file: &FileView<'_>, item: &Item, record: &[u8]) {
    let pid = file.pid(record);
    if style.latency {
        file.tasks.with_name(pid, item.number, |name| right(out, &name[..name.len().min(8)], 8));
        out.push(b'-');
        signed_left(out, pid.cast_signed().into(), 5);
        out.push(b' ');
        decimal(out, item.cpu.into(), 3, b' ');
        if style.raw {
            out.extend_from_slice(b"-0x");
            hex(out, file.common.flags.map_or(0, |flags| flags.read(record, file.machine)));
        } else {
            latency_flags(out, file, record);
        }
    } else {
        file.tasks.head(out, pid, item.number);
        cpu(out, item.cpu);
    }
    if file.in_nanoseconds {
        out.push(b' ');
    }
    time(out, item.timestamp, file.in_nanoseconds, style.full_time);
    out.push(b':');
}

/// The number of a CPU: `[003]`.
#[inline]
fn cpu(out: &mut Vec<u8>, cpu: u32) {
    let count = digits::decimal_len(cpu.into()).max(3);
    append_composed(out, count + 2, b'0', |block: &mut [u8; 16]| {
        block[0] = b'[';
        digits::decimal(&mut block[1..=count], cpu.into());
        block[count + 1] = b']';
    });
}

/// `data_latency_format` of libtraceevent.
fn latency_flags(out: &mut Vec<u8>, file: &FileView<'_>, record: &[u8]) {
    let read = |num: super::plugin::Num| num.read(record, file.machine);
    out.extend(flag_letters(file.common.flags.map_or(0, read), file.second_flag));
    let count = file.common.preempt_count.map_or(0, read);
    for nibble in [count & 15, count >> 4 & 15] {
        if nibble == 0 { out.push(b'.') } else { hex(out, nibble) }
    }
    if let Some(migrate) = file.common.migrate_disable.map(read) {
        unsigned(out, migrate);
    }
    if let Some(depth) = file.common.lock_depth.map(read) {
        // A signed field, -1 where no lock is held.
        if (depth as u32).cast_signed() >= 0 { unsigned(out, depth) } else { out.push(b'.') }
    }
}

/// Interrupts, rescheduling and context. Of the second flag libtraceevent knows one meaning, by its version,
/// whatever kernel recorded it: `X` up to 1.8, and `L` since 1.9.
fn flag_letters(flags: u64, second: SecondFlag) -> [u8; 3] {
    let has = |bit: u64| flags & bit != 0;
    let means = |meaning| has(flag::SECOND) && second == meaning;
    let irqs = if has(flag::IRQS_OFF) {
        b'd'
    } else if means(SecondFlag::IrqsUnknown) {
        b'X'
    } else {
        b'.'
    };
    let resched = if has(flag::NEED_RESCHED) {
        b'N'
    } else if means(SecondFlag::NeedReschedLazy) {
        b'L'
    } else {
        b'.'
    };
    let context = match (has(flag::HARD_IRQ), has(flag::SOFT_IRQ)) {
        (true, true) => b'H',
        (true, false) => b'h',
        (false, true) => b's',
        (false, false) => b'.',
    };
    [irqs, resched, context]
}

/// A time as seconds, or as the number it is.
#[inline]
pub(super) fn time(out: &mut Vec<u8>, timestamp: u64, in_nanoseconds: bool, full: bool) {
    if !in_nanoseconds {
        decimal(out, timestamp, 12, b' ');
    } else if full {
        seconds::<9>(out, timestamp / 1_000_000_000, timestamp % 1_000_000_000);
    } else {
        let micros = timestamp.saturating_add(500) / 1000;
        seconds::<6>(out, micros / 1_000_000, micros % 1_000_000);
    }
}

/// Seconds, of which there are 11 digits at most, and `N` digits of parts of them.
#[inline]
fn seconds<const N: usize>(out: &mut Vec<u8>, seconds: u64, parts: u64) {
    let count = digits::decimal_len(seconds).max(5);
    append_composed(out, count + 1 + N, b' ', |block: &mut [u8; BLOCK]| {
        digits::decimal(&mut block[..count], seconds);
        block[count] = b'.';
        if let Some(place) = block[count + 1..].first_chunk_mut::<N>() {
            digits::decimal_all(place, parts);
        }
    });
}

/// The time since the line before, in the unit that is shown.
fn difference(out: &mut Vec<u8>, style: Style, file: &FileView<'_>, item: &Item) {
    let unit = |time: u64| {
        if file.has_clock && !style.full_time { time.saturating_add(500) / 1000 } else { time }
    };
    out.push(b' ');
    let start = out.len();
    if let Some(previous) = item.previous() {
        out.extend_from_slice(b"(+");
        super::text::signed(out, unit(item.timestamp).wrapping_sub(unit(previous)) as i64);
        out.push(b')');
    }
    for _ in out.len() - start..8 {
        out.push(b' ');
    }
}

/// What the event says.
fn text(
    out: &mut Vec<u8>,
    style: Style,
    file: &FileView<'_>,
    event: &EventView<'_>,
    item: &Item,
    data: &[u8],
) {
    let record = item.record(data);
    let printer = event.printer;
    if style.raw {
        return printer.print_raw(record, file.symbols, out);
    }
    let Some(plugin) = &event.plugin else {
        return printer.print_format(record, file.symbols, out);
    };
    let leaf = item.leaf(data).and_then(|leaf| Some((file.event(leaf)?.plugin.as_ref()?, leaf)));
    let context = Context {
        symbols: file.symbols,
        signatures: file.signatures,
        machine: file.machine,
        timestamp: item.timestamp,
        in_nanoseconds: file.in_nanoseconds,
        full_time: style.full_time,
        indent: item.indent,
        leaf,
    };
    if matches!(plugin, Plugin::KernelStack) {
        Plugin::print_stack(printer.stack(record), &context, out);
    } else if !plugin.print(record, &context, out) {
        printer.print_format(record, file.symbols, out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_flag_has_the_letter_of_its_meaning() {
        let letters = |flags, second| String::from_utf8(flag_letters(flags, second).to_vec()).unwrap();
        for (flags, unknown, lazy) in [
            (0x00, "...", "..."),
            (0x02, "X..", ".L."),
            (0x03, "d..", "dL."),
            (0x06, "XN.", ".N."),
            (0x1b, "d.H", "dLH"),
        ] {
            assert_eq!(letters(flags, SecondFlag::IrqsUnknown), unknown, "{flags:#x}");
            assert_eq!(letters(flags, SecondFlag::NeedReschedLazy), lazy, "{flags:#x}");
        }
    }
}
