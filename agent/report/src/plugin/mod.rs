//! The texts that libtraceevent's plugins and trace-cmd itself print instead of the `print fmt` (plugins/*.c
//! of libtraceevent 1.7, lib/trace-cmd/trace-ftrace.c of trace-cmd 3.1; arguments of functions as of 1.9 and
//! 3.4). An event that lacks a field that its plugin prints, or has a text where the kernel has a number, has
//! its `print fmt`.

mod arguments;
mod kvm;
mod states;

use super::text::{hex, micros, right, signed, unsigned};
use arguments::Arguments;
pub(super) use arguments::Signatures;
use ftrace_event::output::append_block;
use ftrace_event::print::MAX_TEXT;
use ftrace_event::record::{len_until_nul, until_nul};
use ftrace_event::{Array, Format, Location, Machine, Printer, Symbols};
use kvm::Kvm;
pub(super) use states::States;
use states::TaskStates;

/// A number in a record, read as libtraceevent reads numbers: without a sign.
#[derive(Clone, Copy, Debug)]
pub(super) struct Num {
    offset: usize,
    size: usize,
}

impl Num {
    pub(super) fn of(format: &Format, name: &str) -> Option<Self> {
        let field = format.field(name)?;
        let is_number = field.location == Location::Inline && field.array == Array::Single;
        (is_number && matches!(field.size, 1 | 2 | 4 | 8))
            .then_some(Self { offset: field.offset as usize, size: field.size as usize })
    }

    #[inline]
    pub(super) fn read(self, record: &[u8], machine: Machine) -> u64 {
        record.get(self.offset..self.offset + self.size).map_or(0, |bytes| machine.number(bytes))
    }
}

/// Characters in a record.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chars {
    offset: usize,
    size: usize,
    location: Location,
}

impl Chars {
    fn of(format: &Format, name: &str) -> Option<Self> {
        let field = format.field(name)?;
        let is_text = field.location != Location::Inline || field.array != Array::Single;
        is_text.then_some(Self {
            offset: field.offset as usize,
            size: field.size as usize,
            location: field.location,
        })
    }

    #[inline]
    pub(super) fn read(self, record: &[u8], machine: Machine) -> &[u8] {
        let (mut start, mut size) = (self.offset, self.size);
        if self.location != Location::Inline {
            let word = record.get(start..start + size).map_or(0, |bytes| machine.number(bytes)) as usize;
            let base = if self.location == Location::RelLoc { start + size } else { 0 };
            (start, size) = (base + (word & 0xffff), word >> 16 & 0xffff);
        }
        until_nul(record.get(start..start + size).unwrap_or_default())
    }

    /// Prints the characters.
    #[inline]
    fn print(self, record: &[u8], machine: Machine, out: &mut Vec<u8>) {
        let name = record.get(self.offset..self.offset + self.size).and_then(|bytes| bytes.try_into().ok());
        match name {
            Some(name) if self.location == Location::Inline => append_block(out, name, len_until_nul(name)),
            _ => out.extend_from_slice(self.read(record, machine)),
        }
    }
}

/// The task that a scheduler event names: its pid and its name.
#[derive(Clone, Copy, Debug)]
pub(super) struct Task {
    pub(super) pid: Num,
    pub(super) comm: Chars,
}

impl Task {
    fn of(format: &Format, pid: &str, comm: &str) -> Option<Self> {
        Some(Self { pid: Num::of(format, pid)?, comm: Chars::of(format, comm)? })
    }
}

/// A call of a function, or its return.
#[derive(Clone, Copy, Debug)]
pub(super) struct Graph {
    pub(super) func: Num,
    depth: Num,
    /// Of a call.
    arguments: Option<Arguments>,
    /// Of a return, when it was called and when it returned.
    times: Option<(Num, Num)>,
}

/// How the records of an event are printed.
#[derive(Clone, Copy, Debug)]
pub(super) enum Plugin {
    SchedSwitch {
        prev: Task,
        next: Task,
        prio: (Num, Num),
        state: Num,
        letters: TaskStates,
    },
    SchedWakeup {
        task: Task,
        prio: Option<Num>,
        success: Option<Num>,
        cpu: Option<Num>,
    },
    /// `(function+0x12) ` before the `print fmt`.
    CallSite(Num),
    HrtimerExpire {
        timer: Num,
        now: Num,
        function: Option<Num>,
    },
    HrtimerStart {
        timer: Num,
        function: Option<Num>,
        expires: Num,
        soft: Num,
    },
    Futex([Num; 6]),
    TlbFlush {
        pages: Num,
        reason: Num,
    },
    Kvm(Kvm),
    BssInfo {
        wiphy: Chars,
        vif: Chars,
        kind: Num,
        numbers: [Option<Num>; 11],
    },
    KernelStack,
    Function {
        ip: Num,
        parent: Num,
        arguments: Option<Arguments>,
    },
    FunctionRepeats {
        ip: Num,
        count: Num,
        deltas: (Num, Num),
    },
    RawData {
        id: Num,
        data: usize,
    },
    GraphEntry(Graph),
    GraphExit(Graph),
}

/// What a plugin knows besides the record.
pub(super) struct Context<'a> {
    pub(super) symbols: &'a dyn Symbols,
    pub(super) signatures: Option<&'a Signatures>,
    pub(super) machine: Machine,
    /// The record's time, and how times are shown.
    pub(super) timestamp: u64,
    pub(super) in_nanoseconds: bool,
    pub(super) full_time: bool,
    /// How deep a function is called in others.
    pub(super) indent: u16,
    /// The return that belongs to a call without calls in it.
    pub(super) leaf: Option<(&'a Plugin, &'a [u8])>,
}

impl Plugin {
    /// The plugin of an event.
    pub(super) fn of(printer: &Printer, states: States) -> Option<Self> {
        let format = printer.format();
        let num = |name| Num::of(format, name);
        let task = |pid, comm| Task::of(format, pid, comm);
        Some(match (printer.system(), printer.name()) {
            ("sched", "sched_switch") => Self::SchedSwitch {
                prev: task("prev_pid", "prev_comm")?,
                next: task("next_pid", "next_comm")?,
                prio: (num("prev_prio")?, num("next_prio")?),
                state: num("prev_state")?,
                letters: TaskStates::of(printer, states),
            },
            ("sched", "sched_wakeup" | "sched_wakeup_new") => Self::SchedWakeup {
                task: task("pid", "comm")?,
                prio: num("prio"),
                success: num("success"),
                cpu: num("target_cpu"),
            },
            (
                "kmem",
                "kfree"
                | "kmalloc"
                | "kmalloc_node"
                | "kmem_cache_alloc"
                | "kmem_cache_alloc_node"
                | "kmem_cache_free",
            ) => Self::CallSite(num("call_site")?),
            ("timer", "hrtimer_expire_entry") => Self::HrtimerExpire {
                timer: num("timer").or(num("hrtimer"))?,
                now: num("now")?,
                function: num("function"),
            },
            ("timer", "hrtimer_start") => Self::HrtimerStart {
                timer: num("timer").or(num("hrtimer"))?,
                function: num("function"),
                expires: num("expires")?,
                soft: num("softexpires")?,
            },
            ("syscalls", "sys_enter_futex") => Self::Futex([
                num("op")?,
                num("uaddr")?,
                num("val")?,
                num("utime")?,
                num("uaddr2")?,
                num("val3")?,
            ]),
            ("tlb", "tlb_flush") => Self::TlbFlush { pages: num("pages")?, reason: num("reason")? },
            ("kvm" | "kvmmmu", name) => Self::Kvm(Kvm::of(printer.system(), name, format)?),
            ("mac80211", "drv_bss_info_changed") => Self::BssInfo {
                wiphy: Chars::of(format, "wiphy_name")?,
                vif: Chars::of(format, "vif_name")?,
                kind: num("vif_type")?,
                numbers: BSS.map(|(name, _)| num(name)),
            },
            ("ftrace", "kernel_stack") if printer.is_kernel_stack() => Self::KernelStack,
            ("ftrace", "function") => {
                Self::Function { ip: num("ip")?, parent: num("parent_ip")?, arguments: Arguments::of(format) }
            }
            ("ftrace", "func_repeats") => Self::FunctionRepeats {
                ip: num("ip")?,
                count: num("count")?,
                deltas: (num("top_delta_ts")?, num("bottom_delta_ts")?),
            },
            ("ftrace", "raw_data") => {
                let data = format.field("buf").filter(|field| field.location == Location::Inline)?;
                Self::RawData { id: num("id")?, data: data.offset as usize }
            }
            ("ftrace", "funcgraph_entry") => {
                let arguments = Arguments::of(format);
                Self::GraphEntry(Graph { func: num("func")?, depth: num("depth")?, arguments, times: None })
            }
            ("ftrace", "funcgraph_exit") => Self::GraphExit(Graph {
                func: num("func")?,
                depth: num("depth")?,
                arguments: None,
                times: Some((num("calltime")?, num("rettime")?)),
            }),
            _ => return None,
        })
    }

    /// Whether its texts have arguments of functions.
    pub(super) fn has_arguments(&self) -> bool {
        match self {
            Self::Function { arguments, .. } => arguments.is_some(),
            Self::GraphEntry(graph) => graph.arguments.is_some(),
            _ => false,
        }
    }

    /// Whether its texts have line feeds of their own.
    pub(super) fn has_lines(&self) -> bool {
        matches!(self, Self::KernelStack | Self::BssInfo { .. })
    }

    /// The tasks whose names its text tells, so that records behind it can show them.
    pub(super) fn tasks(&self) -> [Option<&Task>; 2] {
        match self {
            Self::SchedSwitch { prev, next, .. } => [Some(prev), Some(next)],
            Self::SchedWakeup { task, .. } => [Some(task), None],
            _ => [None, None],
        }
    }

    /// Prints a record. `false` if the `print fmt` is still to be printed behind it.
    #[expect(clippy::too_many_lines, reason = "a table of texts")]
    pub(super) fn print(&self, record: &[u8], context: &Context<'_>, out: &mut Vec<u8>) -> bool {
        let machine = context.machine;
        let read = |num: Num| num.read(record, machine);
        match *self {
            Self::SchedSwitch { prev, next, prio, state, letters } => {
                task(out, prev, record, machine);
                out.extend_from_slice(b" [");
                signed(out, i64::from(read(prio.0) as i32));
                out.extend_from_slice(b"] ");
                letters.write(out, read(state));
                out.extend_from_slice(b" ==> ");
                task(out, next, record, machine);
                out.extend_from_slice(b" [");
                signed(out, i64::from(read(prio.1) as i32));
                out.push(b']');
            }
            Self::SchedWakeup { task: woken, prio, success, cpu } => {
                task(out, woken, record, machine);
                if let Some(prio) = prio {
                    out.extend_from_slice(b" [");
                    unsigned(out, read(prio));
                    out.push(b']');
                }
                if let Some(success) = success {
                    out.extend_from_slice(b" success=");
                    unsigned(out, read(success));
                }
                if let Some(cpu) = cpu {
                    out.extend_from_slice(b" CPU:");
                    super::text::decimal(out, read(cpu), 3, b'0');
                }
            }
            Self::CallSite(site) => {
                if let Some(symbol) = context.symbols.lookup(read(site)) {
                    out.push(b'(');
                    out.extend_from_slice(symbol.name.as_bytes());
                    out.extend_from_slice(b"+0x");
                    hex(out, symbol.offset & 0xffff_ffff);
                    out.extend_from_slice(b") ");
                }
                return false;
            }
            Self::HrtimerExpire { timer, now, function } => {
                labelled_hex(out, b"hrtimer=0x", read(timer));
                out.extend_from_slice(b" now=");
                unsigned(out, read(now));
                timer_function(out, function.map(read), context.symbols);
            }
            Self::HrtimerStart { timer, function, expires, soft } => {
                labelled_hex(out, b"hrtimer=0x", read(timer));
                timer_function(out, function.map(read), context.symbols);
                out.extend_from_slice(b" expires=");
                unsigned(out, read(expires));
                out.extend_from_slice(b" softexpires=");
                unsigned(out, read(soft));
            }
            Self::Futex(fields) => return futex(out, fields.map(read)),
            Self::TlbFlush { pages, reason } => {
                out.extend_from_slice(b"pages=");
                signed(out, read(pages) as i64);
                out.extend_from_slice(b" reason=");
                let reason = read(reason);
                let texts =
                    ["flush on task switch", "remote shootdown", "local shootdown", "local mm shootdown"];
                let text = usize::try_from(reason).ok().and_then(|reason| texts.get(reason));
                out.extend_from_slice(text.unwrap_or(&"").as_bytes());
                out.extend_from_slice(b" (");
                signed(out, reason as i64);
                out.push(b')');
            }
            Self::Kvm(kvm) => return kvm.print(record, machine, out),
            Self::BssInfo { wiphy, vif, kind, numbers } => {
                out.extend_from_slice(wiphy.read(record, machine));
                out.extend_from_slice(b" vif:");
                out.extend_from_slice(vif.read(record, machine));
                out.push(b'(');
                signed(out, i64::from(read(kind) as i32));
                out.push(b')');
                bss_info(out, numbers.map(|num| num.map(read)));
            }
            Self::KernelStack => return false,
            Self::Function { ip, arguments, .. } => {
                function(out, read(ip), context);
                if let Some((arguments, symbol)) = arguments.zip(context.symbols.lookup(read(ip))) {
                    out.push(b'(');
                    arguments.print(out, (symbol.name, context.signatures), record, machine);
                    out.push(b')');
                }
            }
            Self::FunctionRepeats { ip, count, deltas } => {
                function(out, read(ip), context);
                out.extend_from_slice(b" (count: ");
                unsigned(out, read(count));
                out.extend_from_slice(b"  last_ts: ");
                let delta = read(deltas.0) << 32 | read(deltas.1);
                let last = context.timestamp.wrapping_sub(delta);
                super::line::time(out, last, context.in_nanoseconds, context.full_time);
                out.push(b')');
            }
            Self::RawData { id, data } => {
                labelled_hex(out, b"# ", read(id));
                for byte in record.get(data..).unwrap_or_default() {
                    out.push(b' ');
                    super::text::hex_zeros(out, u64::from(*byte), 2);
                }
            }
            Self::GraphEntry(graph) => graph_entry(out, graph, record, context),
            Self::GraphExit(graph) => {
                duration(out, graph.nanos(record, machine));
                indent(out, read(graph.depth));
                out.push(b'}');
            }
        }
        true
    }

    /// Prints the stack that follows an event.
    pub(super) fn print_stack(
        addresses: impl Iterator<Item = u64>,
        context: &Context<'_>,
        out: &mut Vec<u8>,
    ) {
        let end = out.len() + MAX_TEXT;
        out.extend_from_slice(b"<stack trace >\n");
        // Also a long of 8 bytes ends the stack if its lower half is all ones.
        for address in addresses.take_while(|address| *address as u32 != u32::MAX) {
            if out.len() >= end {
                break;
            }
            out.extend_from_slice(b"=> ");
            match context.symbols.lookup(address) {
                Some(symbol) => {
                    out.extend_from_slice(symbol.name.as_bytes());
                    labelled_hex(out, b" (", address);
                    out.push(b')');
                }
                None => hex(out, address),
            }
            out.push(b'\n');
        }
    }
}

fn task(out: &mut Vec<u8>, task: Task, record: &[u8], machine: Machine) {
    task.comm.print(record, machine, out);
    out.push(b':');
    signed(out, task.pid.read(record, machine) as i64);
}

fn labelled_hex(out: &mut Vec<u8>, label: &[u8], value: u64) {
    out.extend_from_slice(label);
    hex(out, value);
}

/// `tep_print_func_field`: behind the slash stands the symbol's address less the function's own.
fn timer_function(out: &mut Vec<u8>, address: Option<u64>, symbols: &dyn Symbols) {
    let Some(address) = address else { return };
    out.extend_from_slice(b" function=");
    if let Some(symbol) = symbols.lookup(address) {
        out.extend_from_slice(symbol.name.as_bytes());
        labelled_hex(out, b"/0x", symbol.offset.wrapping_neg());
    } else {
        out.extend_from_slice(b"0x");
        super::text::hex_zeros(out, address, 8);
    }
}

/// Which of `val`, `utime`, `uaddr2` and `val3` a futex operation has, and in which form.
type FutexOperation = (&'static str, [Option<FutexForm>; 4]);

#[derive(Clone, Copy)]
enum FutexForm {
    Hex,
    Number,
    /// The fourth argument of the call is a number and no time.
    Second,
}

fn futex(out: &mut Vec<u8>, [op, uaddr, values @ ..]: [u64; 6]) -> bool {
    use FutexForm::{Hex, Number, Second};
    /// include/uapi/linux/futex.h
    const OPERATIONS: [FutexOperation; 13] = [
        ("FUTEX_WAIT", [Some(Hex), Some(Hex), None, None]),
        ("FUTEX_WAKE", [Some(Number), None, None, None]),
        ("FUTEX_FD", [Some(Number), None, None, None]),
        ("FUTEX_REQUEUE", [Some(Number), Some(Second), Some(Hex), None]),
        ("FUTEX_CMP_REQUEUE", [Some(Number), Some(Second), Some(Hex), Some(Hex)]),
        ("FUTEX_WAKE_OP", [Some(Number), Some(Second), Some(Hex), Some(Hex)]),
        ("FUTEX_LOCK_PI", [None, Some(Hex), None, None]),
        ("FUTEX_UNLOCK_PI", [None; 4]),
        ("FUTEX_TRYLOCK_PI", [None; 4]),
        ("FUTEX_WAIT_BITSET", [Some(Hex), Some(Hex), None, Some(Hex)]),
        ("FUTEX_WAKE_BITSET", [Some(Number), None, None, Some(Hex)]),
        ("FUTEX_WAIT_REQUEUE_PI", [Some(Hex), Some(Hex), Some(Hex), Some(Hex)]),
        ("FUTEX_CMP_REQUEUE_PI", [Some(Number), Some(Second), Some(Hex), Some(Hex)]),
    ];
    let command = op & !(128 | 256);
    let Some((name, forms)) = usize::try_from(command).ok().and_then(|command| OPERATIONS.get(command))
    else {
        return false;
    };
    out.extend_from_slice(b"op=");
    out.extend_from_slice(name.as_bytes());
    if op & 128 != 0 {
        out.extend_from_slice(b"|FUTEX_PRIVATE_FLAG");
    }
    if op & 256 != 0 {
        out.extend_from_slice(b"|FUTEX_CLOCK_REALTIME");
    }
    out.extend_from_slice(b" uaddr=0x");
    super::text::hex_zeros(out, uaddr, 8);
    for ((label, form), value) in ["val", "utime", "uaddr2", "val3"].into_iter().zip(forms).zip(values) {
        let Some(form) = form else { continue };
        out.push(b' ');
        out.extend_from_slice(if matches!(form, Second) { b"val2" } else { label.as_bytes() });
        out.push(b'=');
        if matches!(form, Hex) {
            out.extend_from_slice(b"0x");
            super::text::hex_zeros(out, value, 8);
        } else {
            unsigned(out, value);
        }
    }
    true
}

/// The numbers of `drv_bss_info_changed`, and what stands behind each.
const BSS: [(&str, &str); 11] = [
    ("assoc", " "),
    ("aid", " "),
    ("cts", " "),
    ("shortpre", " "),
    ("shortslot", " "),
    ("dtimper", " \n"),
    ("bcnint", " "),
    ("assoc_cap", " "),
    ("basic_rates", " "),
    ("enable_beacon", "\n"),
    ("ht_operation_mode", ""),
];

fn bss_info(out: &mut Vec<u8>, numbers: [Option<u64>; 11]) {
    let new_line = |out: &mut Vec<u8>| {
        out.push(b'\n');
        right(out, b"", 65);
    };
    new_line(out);
    for ((name, behind), number) in BSS.into_iter().zip(numbers) {
        if let Some(number) = number {
            out.extend_from_slice(name.as_bytes());
            out.push(b':');
            if name == "assoc_cap" || name == "basic_rates" {
                // `%#x` prints no 0x before 0.
                labelled_hex(out, if number == 0 { b"" } else { b"0x" }, number & 0xffff_ffff);
            } else {
                signed(out, i64::from(number as i32));
            }
        }
        if behind.starts_with(' ') {
            out.push(b' ');
        }
        if behind.ends_with('\n') {
            new_line(out);
        }
    }
}

fn function_name(out: &mut Vec<u8>, address: u64, context: &Context<'_>, prefix: &[u8]) {
    match context.symbols.lookup(address) {
        Some(symbol) => out.extend_from_slice(symbol.name.as_bytes()),
        None => labelled_hex(out, prefix, address),
    }
}

fn function(out: &mut Vec<u8>, address: u64, context: &Context<'_>) {
    right(out, b"", usize::from(context.indent) * 3);
    function_name(out, address, context, b"0x");
}

impl Graph {
    fn nanos(&self, record: &[u8], machine: Machine) -> u64 {
        self.times.map_or(0, |(call, ret)| ret.read(record, machine).wrapping_sub(call.read(record, machine)))
    }
}

fn graph_entry(out: &mut Vec<u8>, graph: Graph, record: &[u8], context: &Context<'_>) {
    let machine = context.machine;
    let leaf = match context.leaf {
        Some((Plugin::GraphExit(exit), exit_record)) => Some(exit.nanos(exit_record, machine)),
        _ => None,
    };
    match leaf {
        Some(nanos) => duration(out, nanos),
        None => out.extend_from_slice(b"             |  "),
    }
    indent(out, graph.depth.read(record, machine));
    let func = graph.func.read(record, machine);
    function_name(out, func, context, b"");
    out.push(b'(');
    if let Some((arguments, symbol)) = graph.arguments.zip(context.symbols.lookup(func)) {
        arguments.print(out, (symbol.name, context.signatures), record, machine);
    }
    out.extend_from_slice(if leaf.is_some() { b");" } else { b") {" });
}

/// The mark of long times, the time in a column of its own, and the line beside it.
fn duration(out: &mut Vec<u8>, nanos: u64) {
    let mark = match nanos {
        u64::MAX => b"  ",
        1_000_000_001.. => b"$ ",
        1_000_001.. => b"# ",
        100_001.. => b"! ",
        10_001.. => b"+ ",
        _ => b"  ",
    };
    out.extend_from_slice(mark);
    let start = out.len();
    // With 7 digits of microseconds and more, the rest is left out.
    if nanos / 1000 < 1_000_000 {
        micros(out, nanos);
    } else {
        unsigned(out, nanos / 1000);
    }
    let len = out.len() - start;
    out.extend_from_slice(b" us ");
    right(out, b"", 7_usize.saturating_sub(len));
    out.extend_from_slice(b"|  ");
}

/// Two blanks for each function that is above it. The kernel's stacks have no more than 50
/// (FTRACE_RETFUNC_DEPTH of include/linux/ftrace.h), and a record may say anything.
fn indent(out: &mut Vec<u8>, depth: u64) {
    right(out, b"", depth.min(1000) as usize * 2);
}
