//! What a line is.
//!
//! ```text
//! COMM-PID [(TGID)] [CPU] [FLAGS] TIME: EVENT: TEXT      tracefs; with BUFFER: before it, trace-cmd
//! COMM-PID CPUFLAGS TIME: EVENT: TEXT                    the same of latency tracers, and of report -l
//! COMM TID|PID/TID [CPU] TIME: SYSTEM:EVENT: TEXT        perf script
//! CPU:N [LOST n EVENTS], CPU:N [n EVENTS DROPPED]        tracefs, trace-cmd; without n if it is not known
//! # CPU N: n events lost, # CPU N: events lost           exports of ours
//! # tracer-agent: buffer NAME, # tracer-agent: recording_... exports of ours
//! COMM PID [CPU] TIME: PERF_RECORD_LOST lost n           perf script
//! # entries-in-buffer/entries-written: n/n   #P:n        tracefs
//! # tracer: NAME, # _-----=> irqs-off                    tracefs; each column of flags has such a line
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
    Lost {
        cpu: u32,
        count: Option<u64>,
    },
    /// A frame of the stack of the event before it, as perf has them.
    Frame(Frame),
    Header(Header<'a>),
    Other,
}

/// An event.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Entry<'a> {
    /// Empty for the top one.
    pub(super) buffer: Cow<'a, str>,
    /// Whether all lines have a buffer, losses too.
    pub(super) is_of_buffer: bool,
    pub(super) comm: Cow<'a, [u8]>,
    pub(super) pid: u32,
    /// The process, where the text has it.
    pub(super) tgid: Option<u32>,
    pub(super) cpu: u32,
    /// `None` where the line has no flags.
    pub(super) flags: Option<u8>,
    pub(super) preempt_count: u8,
    /// Nanoseconds, or units of a clock that counts something else.
    pub(super) time: u64,
    /// What follows the time.
    pub(super) rest: Cow<'a, [u8]>,
    /// The frames that follow it, the kernel's and those of the process.
    pub(super) stack: [Vec<u64>; 2],
}

/// What a frame is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FrameOf {
    /// The kernel, as the line says.
    Kernel,
    /// Nothing that the line names, at an address of the kernel.
    High,
    /// A function that the compiler has put into another one: it has the address of that one's frame.
    Inlined,
    /// A process.
    Process,
}

/// A frame of a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) address: u64,
    pub(super) of: FrameOf,
    /// Whether it has the name of a function.
    pub(super) is_named: bool,
}

/// What stands before events.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Header<'a> {
    Cpus(u32),
    Entries {
        left: u64,
        written: u64,
        cpus: u32,
    },
    Uname(&'a [u8]),
    /// Who traced: `nop`, `function`.
    Tracer(&'a [u8]),
    /// What the next column of flags is.
    Column(Column),
    Comment,
    Unknown,
}

impl Header<'_> {
    /// Whether only the text of a trace has it.
    pub(super) fn is_certain(&self) -> bool {
        let is_graph = matches!(self, Self::Tracer(tracer) if *tracer == GRAPH);
        is_graph || matches!(self, Self::Cpus(_) | Self::Entries { .. })
    }
}

/// The tracer whose texts are of another kind.
pub(super) const GRAPH: &[u8] = b"function_graph";

/// What a column of flags is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Column {
    Cpu,
    IrqsOff,
    NeedResched,
    NeedReschedLazy,
    Context,
    PreemptDepth,
    MigrateDisable,
    /// What a trace.dat has no place for.
    Other,
}

/// The columns that a header names; most columns that a header may have.
#[derive(Clone, Debug, Default)]
pub(super) struct Columns {
    named: Vec<Column>,
    /// They were all named.
    is_complete: bool,
}

/// More columns than any kernel has.
const MOST_COLUMNS: usize = 32;

/// Longer than flags, and than a time, which has 20 digits, a point and 9 more at most.
const MAX_WORD: usize = 64;

/// Longer than a process in brackets before the CPU.
const MAX_PROCESS: usize = 32;

impl Columns {
    /// Those of kernels whose text names none: interrupts, rescheduling, what kind of interrupt, how often
    /// preemption is disabled, and migration.
    const USUAL: &[Column] = &[
        Column::IrqsOff,
        Column::NeedResched,
        Column::Context,
        Column::PreemptDepth,
        Column::MigrateDisable,
    ];

    /// Takes a header.
    pub(super) fn take(&mut self, header: &Header<'_>) {
        match header {
            Header::Tracer(_) => *self = Self::default(),
            Header::Column(column) if self.is_complete => {
                *self = Self { named: vec![*column], is_complete: false };
            }
            Header::Column(column) if self.named.len() < MOST_COLUMNS => self.named.push(*column),
            Header::Comment => self.is_complete = !self.named.is_empty(),
            _ => {}
        }
    }

    fn flags(&self) -> &[Column] {
        let named = self.named.strip_prefix(&[Column::Cpu]).unwrap_or(&self.named);
        if named.is_empty() { Self::USUAL } else { named }
    }

    /// Whether a word can be that of the flags.
    fn fit(&self, word: &[u8]) -> bool {
        let is_named = self.flags().len() == word.len();
        is_named || self.named.is_empty() && word.len() <= 8
    }
}

impl<'a> Said<'a> {
    /// In a text with these columns.
    pub(super) fn of(line: &'a [u8], columns: &Columns) -> Self {
        if let Some(entry) = entry(line, columns).or_else(|| latency(line, columns)) {
            if let Some(lost) = entry.rest.strip_prefix(b"PERF_RECORD_LOST") {
                let lost = lost.trim_ascii_start().strip_prefix(b"_SAMPLES").unwrap_or(lost).trim_ascii();
                let count = lost.strip_prefix(b"lost ").and_then(number).filter(|count| *count != 0);
                return Self::Lost { cpu: entry.cpu, count };
            }
            return Self::Event(entry);
        }
        if let Some((cpu, count)) = lost(line) {
            return Self::Lost { cpu, count };
        }
        if let Some(frame) = Frame::of(line) {
            return Self::Frame(frame);
        }
        header(line).map_or(Self::Other, Self::Header)
    }
}

impl Frame {
    /// `<tab>ffffffff821facd8 __schedule+0x618 ([kernel.kallsyms])`
    fn of(line: &[u8]) -> Option<Self> {
        let start = line.trim_ascii_start();
        let digits = start.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
        let (address, place) = start.split_at_checked(digits)?;
        let is_aligned = line.starts_with(b"\t") && line.len() - place.len() == "\t".len() + 16;
        let is_address = (4..=16).contains(&digits) || is_aligned && digits > 0;
        let is_one = start.len() < line.len() && is_address && place.starts_with(b" ");
        let place = place.strip_suffix(b")").filter(|_| is_one)?;
        let address = u64::from_str_radix(std::str::from_utf8(address).ok()?, 16).ok()?;
        let module = place.iter().rposition(|byte| *byte == b'(').and_then(|open| place.get(open + 1..));
        let module = module.unwrap_or_default();
        let is_inlined = module == b"inlined";
        let is_of_kernel = module.starts_with(b"[kernel") || module.starts_with(b"[guest.kernel");
        // Modules of the kernel have names of their own.
        let is_high = address >> 63 == 1 && address >> 12 != VSYSCALL && module != b"[vsyscall]";
        let is_named = !place.trim_ascii_start().starts_with(b"[unknown]");
        let of = match () {
            () if is_inlined => FrameOf::Inlined,
            () if is_of_kernel => FrameOf::Kernel,
            () if is_high => FrameOf::High,
            () => FrameOf::Process,
        };
        Some(Self { address, of, is_named })
    }
}

/// The page of processes that is among the addresses of the kernel (`VSYSCALL_ADDR` of
/// arch/x86/include/uapi/asm/vsyscall.h).
const VSYSCALL: u64 = 0xffff_ffff_ff60_0000 >> 12;

fn entry<'a>(line: &'a [u8], columns: &Columns) -> Option<Entry<'a>> {
    let mut from = 0;
    loop {
        let open = from + line.get(from..)?.iter().position(|byte| *byte == b'[')?;
        from = open + 1;
        let before = line.get(..open)?;
        if let Some((cpu, flags, time, rest)) = behind_task(line.get(from..)?, columns)
            && let Some(Task { buffer, comm, pid, tgid }) = task(before)
        {
            let (flags, preempt_count) = flags_of(flags, columns);
            let (buffer, comm, rest) = (String::from_utf8_lossy(buffer), comm.into(), rest.into());
            let is_of_buffer = false;
            return Some(Entry {
                buffer,
                is_of_buffer,
                comm,
                pid,
                tgid,
                cpu,
                flags,
                preempt_count,
                time,
                rest,
                stack: Default::default(),
            });
        }
    }
}

/// A line of the latency format: `<idle>-0       0d.s2    0us+: TEXT`, of trace-cmd with a time in seconds.
fn latency<'a>(line: &'a [u8], columns: &Columns) -> Option<Entry<'a>> {
    let mut from = 0;
    loop {
        let dash = from + line.get(from..)?.iter().position(|byte| *byte == b'-')?;
        from = dash + 1;
        let digits = line.get(from..)?.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (pid, after) = line.get(from..)?.split_at_checked(digits)?;
        if !matches!(after.first(), Some(b' ' | b'\t')) {
            continue;
        }
        let Some(pid) = number(pid).and_then(|pid| u32::try_from(pid).ok()) else { continue };
        let Some((place, after)) = word(after.trim_ascii_start()) else { continue };
        let digits = place.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (cpu, flags) = place.split_at_checked(digits)?;
        let Some(cpu) = number(cpu).and_then(|cpu| u32::try_from(cpu).ok()) else { continue };
        let is_flag = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'.';
        if flags.len() < 4 || !columns.fit(flags) || !flags.iter().all(is_flag) {
            continue;
        }
        let Some((time, rest)) = since(after.trim_ascii_start()) else { continue };
        let (flags, preempt_count) = flags_of(flags, columns);
        let (buffer, comm) = buffer_of(line.get(..dash)?);
        return Some(Entry {
            buffer: String::from_utf8_lossy(buffer),
            is_of_buffer: false,
            comm: comm.trim_ascii_start().into(),
            pid,
            tgid: None,
            cpu,
            flags,
            preempt_count,
            time,
            rest: rest.into(),
            stack: Default::default(),
        });
    }
}

/// `17us+: `, in microseconds since the trace began, with a mark of how long it took; or a time in seconds.
fn since(text: &[u8]) -> Option<(u64, &[u8])> {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (micros, after) = text.split_at_checked(digits)?;
    if let Some(after) = after.strip_prefix(b"us") {
        let rest = after.get(1..)?.strip_prefix(b":").or_else(|| after.strip_prefix(b":"))?;
        return Some((number(micros)?.checked_mul(1000)?, rest));
    }
    let (time, rest) = word(text)?;
    time_of(time.strip_suffix(b":")?).map(|time| (time, rest))
}

/// CPU, flags, time and what follows, behind the bracket that opens before the CPU.
fn behind_task<'a>(text: &'a [u8], columns: &Columns) -> Option<(u32, &'a [u8], u64, &'a [u8])> {
    let close = text.iter().take(8).position(|byte| *byte == b']')?;
    let cpu = number(text.get(..close)?)?;
    let rest = text.get(close + 1..)?.trim_ascii_start();
    let (first, after) = word(rest)?;
    // `12.345678:`, or flags before it.
    if let Some(time) = first.strip_suffix(b":").and_then(time_of) {
        return Some((u32::try_from(cpu).ok()?, &[], time, after));
    }
    let (second, after) = word(after.trim_ascii_start())?;
    let time = second.strip_suffix(b":").and_then(time_of)?;
    columns.fit(first).then_some((u32::try_from(cpu).ok()?, first, time, after))
}

/// Up to the first blank, and what follows that; `None` if that is longer than flags and times are. A line
/// may have a word at each of its bytes, so that the search must end soon.
fn word(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut start = text.iter().take(MAX_WORD + 1);
    let len = match start.position(|byte| *byte == b' ' || *byte == b'\t') {
        Some(len) => len,
        None if text.len() <= MAX_WORD => text.len(),
        None => return None,
    };
    Some((text.get(..len)?, text.get(len + 1..).unwrap_or_default()))
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

/// A task, as it stands before the CPU.
struct Task<'a> {
    buffer: &'a [u8],
    comm: &'a [u8],
    pid: u32,
    tgid: Option<u32>,
}

fn task(text: &[u8]) -> Option<Task<'_>> {
    let mut text = text.trim_ascii_end();
    let mut tgid = None;
    // `(TGID)`, `(-----)` with the option record-tgid.
    if let Some(inner) = text.strip_suffix(b")")
        && let Some(back) = inner.iter().rev().take(MAX_PROCESS).position(|byte| *byte == b'(')
        && let Some(open) = inner.len().checked_sub(back + 1)
    {
        let process = number(inner.get(open + 1..)?.trim_ascii());
        tgid = process.and_then(|process| u32::try_from(process).ok()).filter(|process| *process != 0);
        text = text.get(..open)?.trim_ascii_end();
    }
    let digits = text.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
    let (name, pid) = text.split_at_checked(text.len() - digits)?;
    let pid = u32::try_from(number(pid)?).ok()?;
    let of = |buffer, comm| Task { buffer, comm, pid, tgid };
    match name.last()? {
        b'-' => {
            let name = name.get(..name.len() - 1)?;
            // What perf says of a thread that has ended.
            if pid == 1 && name.last() == Some(&b' ') {
                return Some(Task { pid: u32::MAX, ..of(&[], name.trim_ascii()) });
            }
            let (buffer, comm) = buffer_of(name);
            Some(of(buffer, comm.trim_ascii_start()))
        }
        b' ' => Some(of(&[], name.trim_ascii())),
        b'/' => {
            let name = name.get(..name.len() - 1)?;
            let digits = name.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
            let (name, process) = name.split_at_checked(name.len() - digits)?;
            let process = number(process).and_then(|process| u32::try_from(process).ok());
            let process = process.filter(|process| *process != 0);
            (name.last() == Some(&b' ')).then_some(Task { tgid: process, ..of(&[], name.trim_ascii()) })
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
/// them.
fn flags_of(text: &[u8], columns: &Columns) -> (Option<u8>, u8) {
    let (mut flags, mut depth, mut migration) = (0, 0, 0);
    for (byte, column) in text.iter().zip(columns.flags()) {
        let digit = || (*byte as char).to_digit(16).unwrap_or(0) as u8;
        match column {
            Column::IrqsOff => flags |= irqs(*byte),
            Column::NeedResched => flags |= resched(*byte),
            Column::NeedReschedLazy if byte.is_ascii_alphabetic() => flags |= flag::NEED_RESCHED_LAZY,
            Column::Context => flags |= context(*byte),
            Column::PreemptDepth => depth = digit(),
            Column::MigrateDisable => migration = digit(),
            Column::Cpu | Column::NeedReschedLazy | Column::Other => {}
        }
    }
    let context = columns.flags().iter().position(|column| *column == Column::Context);
    let has_context = context.is_some_and(|at| at < text.len());
    (has_context.then_some(flags), depth | migration << 4)
}

fn irqs(byte: u8) -> u8 {
    match byte {
        b'd' => flag::IRQS_OFF,
        b'D' => flag::IRQS_OFF | flag::BH_OFF,
        b'b' => flag::BH_OFF,
        _ => 0,
    }
}

fn resched(byte: u8) -> u8 {
    match byte {
        b'B' => flag::NEED_RESCHED | flag::PREEMPT_RESCHED | flag::NEED_RESCHED_LAZY,
        b'N' => flag::NEED_RESCHED | flag::PREEMPT_RESCHED,
        b'L' => flag::NEED_RESCHED_LAZY | flag::PREEMPT_RESCHED,
        b'b' => flag::NEED_RESCHED_LAZY | flag::NEED_RESCHED,
        b'n' => flag::NEED_RESCHED,
        b'p' => flag::PREEMPT_RESCHED,
        b'l' => flag::NEED_RESCHED_LAZY,
        _ => 0,
    }
}

fn context(byte: u8) -> u8 {
    match byte {
        b'Z' => flag::NMI | flag::HARDIRQ,
        b'z' => flag::NMI,
        b'H' => flag::HARDIRQ | flag::SOFTIRQ,
        b'h' => flag::HARDIRQ,
        b's' => flag::SOFTIRQ,
        _ => 0,
    }
}

fn lost(line: &[u8]) -> Option<(u32, Option<u64>)> {
    if let Some(rest) = line.trim_ascii().strip_prefix(b"# CPU ") {
        let colon = rest.iter().position(|byte| *byte == b':')?;
        let cpu = u32::try_from(number(rest.get(..colon)?)?).ok()?;
        let told = rest.get(colon + 1..)?.strip_suffix(b"events lost")?.trim_ascii();
        return Some((cpu, if told.is_empty() { None } else { Some(number(told)?) }));
    }
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

pub(super) fn header(line: &[u8]) -> Option<Header<'_>> {
    let line = line.trim_ascii();
    if let Some(count) = line.strip_prefix(b"cpus=").and_then(number) {
        return Some(Header::Cpus(u32::try_from(count).ok()?));
    }
    if let Some(text) = line.strip_prefix(b"uname:") {
        return Some(Header::Uname(text.trim_ascii()));
    }
    if let Some(rest) = line.strip_prefix(b"# entries-in-buffer/entries-written: ") {
        let (counts, cpus) = word(rest)?;
        let slash = counts.iter().position(|byte| *byte == b'/')?;
        let (left, written) = (number(counts.get(..slash)?)?, number(counts.get(slash + 1..)?)?);
        let cpus = u32::try_from(number(cpus.trim_ascii_start().strip_prefix(b"#P:")?)?).ok()?;
        return Some(Header::Entries { left, written, cpus });
    }
    if let Some(tracer) = line.strip_prefix(b"# tracer:") {
        return Some(Header::Tracer(tracer.trim_ascii()));
    }
    if let Some(column) = line.strip_prefix(b"#").and_then(column) {
        return Some(Header::Column(column));
    }
    if line.is_empty() || line.starts_with(b"#") {
        return Some(Header::Comment);
    }
    let is_known =
        line.starts_with(b"CPU ") && line.ends_with(b" is empty") || line.starts_with(b"version = ");
    is_known.then_some(Header::Unknown)
}

/// `| / _----=> hardirq/softirq`, without what is before it.
fn column(line: &[u8]) -> Option<Column> {
    let arrow = line.windows(3).position(|bytes| bytes == b"=> ")?;
    let (before, name) = line.split_at_checked(arrow)?;
    if !before.ends_with(b"-") || !before.contains(&b'_') {
        return None;
    }
    Some(match name.get(3..)?.trim_ascii() {
        b"CPU#" => Column::Cpu,
        name if name.starts_with(b"irqs-off") => Column::IrqsOff,
        b"need-resched" => Column::NeedResched,
        b"need-resched-lazy" => Column::NeedReschedLazy,
        b"hardirq/softirq" => Column::Context,
        b"preempt-depth" => Column::PreemptDepth,
        b"migrate-disable" => Column::MigrateDisable,
        _ => Column::Other,
    })
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
            let name = text_of(name);
            return ((super::systems::of(&name).to_owned(), name), after.trim_ascii_start());
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
