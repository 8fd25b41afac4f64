//! What a line is.
//!
//! ```text
//! COMM-PID [(TGID)] [CPU] [FLAGS] TIME: EVENT: TEXT      tracefs; with BUFFER: before it, trace-cmd
//! COMM TID|PID/TID [CPU] TIME: SYSTEM:EVENT: TEXT        perf script
//! CPU:N [LOST n EVENTS], CPU:N [n EVENTS DROPPED]        tracefs, trace-cmd; without n if it is not known
//! # entries-in-buffer/entries-written: n/n   #P:n        tracefs
//! cpus=N                                                 trace-cmd
//! ```
//! A name of a task may have anything in it, so that the place to begin is what follows it: a CPU in brackets
//! and a time.

use std::borrow::Cow;

/// Flags of an event (`enum trace_flag_type` of include/linux/trace_events.h).
mod flag {
    pub(super) const IRQS_OFF: u8 = 0x01;
    pub(super) const NEED_RESCHED_LAZY: u8 = 0x02;
    pub(super) const NEED_RESCHED: u8 = 0x04;
    pub(super) const HARDIRQ: u8 = 0x08;
    pub(super) const SOFTIRQ: u8 = 0x10;
    pub(super) const PREEMPT_RESCHED: u8 = 0x20;
    pub(super) const NMI: u8 = 0x40;
    pub(super) const BH_OFF: u8 = 0x80;
}

/// What a line says.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Said<'a> {
    Event(Entry<'a>),
    Lost { cpu: u32, count: Option<u64> },
    Header(Header<'a>),
    Other,
}

/// An event.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Entry<'a> {
    /// Empty for the top one.
    pub(super) buffer: Cow<'a, str>,
    pub(super) comm: Cow<'a, [u8]>,
    pub(super) pid: u32,
    pub(super) cpu: u32,
    pub(super) flags: u8,
    pub(super) preempt_count: u8,
    /// Nanoseconds, or units of a clock that counts something else.
    pub(super) time: u64,
    /// What follows the time.
    pub(super) rest: Cow<'a, [u8]>,
}

/// What stands before events.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Header<'a> {
    Cpus(u32),
    Entries { left: u64, written: u64, cpus: u32 },
    Uname(&'a [u8]),
    Comment,
    Unknown,
}

impl Header<'_> {
    /// Whether only the text of a trace has it.
    pub(super) fn is_certain(&self) -> bool {
        matches!(self, Self::Cpus(_) | Self::Entries { .. })
    }
}

impl<'a> Said<'a> {
    pub(super) fn of(line: &'a [u8]) -> Self {
        if let Some(entry) = entry(line) {
            return Self::Event(entry);
        }
        if let Some((cpu, count)) = lost(line) {
            return Self::Lost { cpu, count };
        }
        header(line).map_or(Self::Other, Self::Header)
    }
}

fn entry(line: &[u8]) -> Option<Entry<'_>> {
    let mut from = 0;
    loop {
        let open = from + line.get(from..)?.iter().position(|byte| *byte == b'[')?;
        from = open + 1;
        let before = line.get(..open)?;
        if let Some((cpu, flags, time, rest)) = behind_task(line.get(from..)?)
            && let Some((buffer, comm, pid)) = task(before)
        {
            let (flags, preempt_count) = flags_of(flags);
            let (buffer, comm, rest) = (String::from_utf8_lossy(buffer), comm.into(), rest.into());
            return Some(Entry { buffer, comm, pid, cpu, flags, preempt_count, time, rest });
        }
    }
}

/// CPU, flags, time and what follows, behind the bracket that opens before the CPU.
fn behind_task(text: &[u8]) -> Option<(u32, &[u8], u64, &[u8])> {
    let close = text.iter().take(8).position(|byte| *byte == b']')?;
    let cpu = number(text.get(..close)?)?;
    let rest = text.get(close + 1..)?.trim_ascii_start();
    let (first, after) = word(rest);
    // `12.345678:`, or flags before it.
    if let Some(time) = first.strip_suffix(b":").and_then(time_of) {
        return Some((u32::try_from(cpu).ok()?, &[], time, after));
    }
    let (second, after) = word(after.trim_ascii_start());
    let time = second.strip_suffix(b":").and_then(time_of)?;
    (first.len() <= 8).then_some((u32::try_from(cpu).ok()?, first, time, after))
}

/// Up to the first blank, and what follows that.
fn word(text: &[u8]) -> (&[u8], &[u8]) {
    let len = text.iter().position(|byte| *byte == b' ' || *byte == b'\t').unwrap_or(text.len());
    (text.get(..len).unwrap_or_default(), text.get(len + 1..).unwrap_or_default())
}

fn number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// Seconds with a fraction as nanoseconds; a number without one as it is.
fn time_of(text: &[u8]) -> Option<u64> {
    let Some(point) = text.iter().position(|byte| *byte == b'.') else { return number(text) };
    let seconds = number(text.get(..point)?)?;
    let fraction = text.get(point + 1..)?;
    let nanos =
        number(fraction)?.checked_mul(10_u64.checked_pow(9_u32.checked_sub(fraction.len() as u32)?)?)?;
    seconds.checked_mul(1_000_000_000)?.checked_add(nanos)
}

/// Buffer, name and number of a task, as they stand before the CPU.
fn task(text: &[u8]) -> Option<(&[u8], &[u8], u32)> {
    let mut text = text.trim_ascii_end();
    // `(TGID)`, `(-----)` with the option record-tgid.
    if let Some(open) = text.strip_suffix(b")").and_then(|text| text.iter().rposition(|byte| *byte == b'(')) {
        text = text.get(..open)?.trim_ascii_end();
    }
    let digits = text.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
    let (name, pid) = text.split_at_checked(text.len() - digits)?;
    let pid = u32::try_from(number(pid)?).ok()?;
    match name.last()? {
        b'-' => {
            let name = name.get(..name.len() - 1)?;
            // What perf says of a thread that has ended.
            if pid == 1 && name.last() == Some(&b' ') {
                return Some((&[], name.trim_ascii(), u32::MAX));
            }
            let (buffer, comm) = buffer_of(name);
            Some((buffer, comm.trim_ascii_start(), pid))
        }
        b' ' => Some((&[], name.trim_ascii(), pid)),
        b'/' => {
            let name = name.get(..name.len() - 1)?;
            let digits = name.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
            let name = name.get(..name.len() - digits)?;
            (name.last() == Some(&b' ')).then_some((&[], name.trim_ascii(), pid))
        }
        _ => None,
    }
}

/// trace-cmd puts the name of a buffer and a colon before the task, which takes 16 places and has at most 15,
/// so that there are two blanks at least.
fn buffer_of(name: &[u8]) -> (&[u8], &[u8]) {
    let start = name.trim_ascii_start();
    let colon = start.windows(3).position(|bytes| bytes == b":  ");
    match colon {
        Some(colon) if !start.get(..colon).unwrap_or_default().contains(&b' ') => {
            (start.get(..colon).unwrap_or_default(), start.get(colon + 1..).unwrap_or_default())
        }
        _ => (&[], name),
    }
}

/// `common_flags` and `common_preempt_count`, as `trace_print_lat_fmt` of kernel/trace/trace_output.c prints
/// them: interrupts, rescheduling, what kind of interrupt, how often preemption is disabled, and migration.
fn flags_of(text: &[u8]) -> (u8, u8) {
    let at = |index: usize| text.get(index).copied().unwrap_or(b'.');
    let irqs = match at(0) {
        b'd' => flag::IRQS_OFF,
        b'D' => flag::IRQS_OFF | flag::BH_OFF,
        b'b' => flag::BH_OFF,
        _ => 0,
    };
    let resched = match at(1) {
        b'B' => flag::NEED_RESCHED | flag::PREEMPT_RESCHED | flag::NEED_RESCHED_LAZY,
        b'N' => flag::NEED_RESCHED | flag::PREEMPT_RESCHED,
        b'L' => flag::NEED_RESCHED_LAZY | flag::PREEMPT_RESCHED,
        b'b' => flag::NEED_RESCHED_LAZY | flag::NEED_RESCHED,
        b'n' => flag::NEED_RESCHED,
        b'p' => flag::PREEMPT_RESCHED,
        b'l' => flag::NEED_RESCHED_LAZY,
        _ => 0,
    };
    let context = match at(2) {
        b'Z' => flag::NMI | flag::HARDIRQ,
        b'z' => flag::NMI,
        b'H' => flag::HARDIRQ | flag::SOFTIRQ,
        b'h' => flag::HARDIRQ,
        b's' => flag::SOFTIRQ,
        _ => 0,
    };
    let digit = |index: usize| (at(index) as char).to_digit(16).unwrap_or(0) as u8;
    (irqs | resched | context, digit(3) | digit(4) << 4)
}

fn lost(line: &[u8]) -> Option<(u32, Option<u64>)> {
    let rest = line.trim_ascii().strip_prefix(b"CPU:")?;
    let open = rest.windows(2).position(|bytes| bytes == b" [")?;
    let cpu = u32::try_from(number(rest.get(..open)?)?).ok()?;
    let inner = rest.get(open + 2..)?.strip_suffix(b"]")?;
    let count = match inner {
        b"LOST EVENTS" | b"EVENTS DROPPED" => None,
        _ => {
            let lost = inner.strip_prefix(b"LOST ").and_then(|inner| inner.strip_suffix(b" EVENTS"));
            Some(number(lost.or_else(|| inner.strip_suffix(b" EVENTS DROPPED"))?)?)
        }
    };
    Some((cpu, count))
}

fn header(line: &[u8]) -> Option<Header<'_>> {
    let line = line.trim_ascii();
    if let Some(count) = line.strip_prefix(b"cpus=").and_then(number) {
        return Some(Header::Cpus(u32::try_from(count).ok()?));
    }
    if let Some(text) = line.strip_prefix(b"uname:") {
        return Some(Header::Uname(text.trim_ascii()));
    }
    if let Some(rest) = line.strip_prefix(b"# entries-in-buffer/entries-written: ") {
        let (counts, cpus) = word(rest);
        let slash = counts.iter().position(|byte| *byte == b'/')?;
        let (left, written) = (number(counts.get(..slash)?)?, number(counts.get(slash + 1..)?)?);
        let cpus = u32::try_from(number(cpus.trim_ascii_start().strip_prefix(b"#P:")?)?).ok()?;
        return Some(Header::Entries { left, written, cpus });
    }
    if line.is_empty() || line.starts_with(b"#") {
        return Some(Header::Comment);
    }
    let is_known =
        line.starts_with(b"CPU ") && line.ends_with(b" is empty") || line.starts_with(b"version = ");
    is_known.then_some(Header::Unknown)
}

/// System and name of an event, and the text that follows them.
///
/// What does not begin with a name and a colon has one by what it looks like: the calls and returns of system
/// calls, which tracefs prints as such, what the function tracer prints, and stacks. Their text is all of it.
pub(super) fn split_event(rest: &[u8]) -> ((String, String), &[u8]) {
    let rest = rest.trim_ascii_start();
    let name_len = |text: &[u8]| {
        text.iter()
            .take_while(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-'))
            .count()
    };
    let text_of = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let first = name_len(rest);
    let (name, after) = rest.split_at_checked(first).unwrap_or((rest, &[]));
    if let Some(after) = after.strip_prefix(b":").filter(|_| first > 0 && !name.starts_with(b"0x")) {
        let second = name_len(after);
        if let Some((event, text)) = after.split_at_checked(second)
            && let Some(text) = text.strip_prefix(b":")
            && second > 0
        {
            return ((text_of(name), text_of(event)), text.trim_ascii_start());
        }
        if after.is_empty() || after.starts_with(b" ") || after.starts_with(b"\t") {
            return ((super::SYSTEM.to_owned(), text_of(name)), after.trim_ascii_start());
        }
    }
    let of = |system: &str, name: String| (system.to_owned(), name);
    if let Some(call) = name.strip_prefix(b"sys_") {
        if after.starts_with(b"(") {
            return (of("syscalls", format!("sys_enter_{}", text_of(call))), rest);
        }
        if after.starts_with(b" -> ") {
            return (of("syscalls", format!("sys_exit_{}", text_of(call))), rest);
        }
    }
    let name = if rest.starts_with(b"<stack trace>") {
        "kernel_stack_text"
    } else if rest.starts_with(b"<user stack trace>") {
        "user_stack_text"
    } else if rest.windows(4).any(|bytes| bytes == b" <-") || after.starts_with(b" <-") {
        "function_text"
    } else {
        "line"
    };
    (of(super::SYSTEM, name.to_owned()), rest)
}
