//! Which event a stack belongs to, and the names of its frames.
//!
//! Stacks are records of their own, `ftrace:kernel_stack` and `ftrace:user_stack`, that follow the record of
//! their event in the same buffer of the same CPU. An interrupt can come in between, with events and stacks
//! of its own: a stack belongs to the last event of its context. User stacks that are longer than a record go
//! on in the next one.

use std::borrow::Cow;
use std::collections::HashMap;

use crate::record::{bytes, flag, long_size};
use crate::{Array, Field, Format, Location, Machine, Printer, Symbol, Symbols};

/// The field of the events `ftrace:kernel_stack` and `ftrace:user_stack` that has the addresses.
pub const STACK_FIELD: &str = "caller";

/// The field of `ftrace:user_stack` that has the process.
const PROCESS_FIELD: &str = "tgid";

/// Where tables of symbols have names that hold for one process: no machine has addresses there.
const OF_PROCESS: u64 = 1 << 62;
/// Programs that have a fixed place are below this, and so are the numbers of processes (`PID_MAX_LIMIT`).
const ADDRESS_BITS: u32 = 36;
const PROCESS_BITS: u32 = 22;

/// Most frames of a stack, of the kernel and of the process each, that are shown. The kernel records no more:
/// `FTRACE_KSTACK_ENTRIES` of kernel/trace/trace.c is 1024 with pages of 4 KiB.
const MAX_FRAMES: usize = 1024;

/// Names of entries in the table of symbols that stand for the absence of one.
const NO_SYMBOL: [&str; 2] = ["-", "[unknown]"];

/// What a frame without a symbol is called, as `perf script` calls it.
pub const UNKNOWN: &str = "[unknown]";

/// Where a record was made, as far as it tells which event a stack belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// Buffer and CPU.
    pub stream: (usize, u32),
    /// `common_flags`.
    pub flags: u64,
}

impl Origin {
    /// Thread, soft interrupt, hard interrupt or non-maskable interrupt. There are no more than 8, and one
    /// event waits in each.
    pub fn context(self) -> u64 {
        self.flags & (flag::HARD_IRQ | flag::SOFT_IRQ | flag::NMI)
    }
}

/// Addresses of a stack, the innermost first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stack {
    /// Of the kernel.
    pub kernel: Vec<u64>,
    /// Of the process.
    pub user: Vec<u64>,
    /// Which process it is, where the records say it.
    pub process: Option<u32>,
}

impl Stack {
    /// Whether there are no frames.
    pub fn is_empty(&self) -> bool {
        self.kernel.is_empty() && self.user.is_empty()
    }

    /// Adds the frames of a record of [`Printer::is_stack`].
    pub fn add(&mut self, printer: &Printer, record: &[u8]) {
        self.process = self.process.or(printer.process(record));
        let frames = if printer.is_kernel_stack() { &mut self.kernel } else { &mut self.user };
        let room = MAX_FRAMES - frames.len();
        frames.extend(printer.frames(record).into_iter().flatten().take(room));
    }
}

/// Reads the addresses in the records of an event that are stacks.
#[derive(Clone, Copy, Debug)]
pub struct StackReader {
    offset: usize,
    /// 0: to the end of the record.
    size: usize,
    location: Location,
    machine: Machine,
    is_kernel: bool,
    /// Where the process is.
    process_at: Option<usize>,
}

impl StackReader {
    /// The reader of `ftrace:kernel_stack` or `ftrace:user_stack`. `None` for any other event, and for one of
    /// these names whose [`STACK_FIELD`] is no array of the machine's longs.
    pub fn of(system: &str, format: &Format, machine: Machine) -> Option<Self> {
        let is_kernel = match (system, format.name.as_str()) {
            ("ftrace", "kernel_stack") => true,
            ("ftrace", "user_stack") => false,
            _ => return None,
        };
        let field = format.field(STACK_FIELD).filter(|field| is_array_of_longs(field, machine))?;
        let Field { offset, size, location, .. } = *field;
        // The kernel describes 8 addresses, and records all of a stack of its own.
        let is_open = is_kernel && location == Location::Inline;
        let size = if is_open { 0 } else { size as usize };
        let process = format.field(PROCESS_FIELD).filter(|field| {
            !is_kernel
                && field.size == 4
                && field.location == Location::Inline
                && field.array == Array::Single
        });
        let process_at = process.map(|field| field.offset as usize);
        Some(Self { offset: offset as usize, size, location, machine, is_kernel, process_at })
    }

    /// Whether the stacks are the kernel's, not a process's.
    pub fn is_kernel(&self) -> bool {
        self.is_kernel
    }

    /// The frames of a record, the innermost first, without what fills the room behind them. `None` if the
    /// record does not have the field.
    pub fn frames<'r>(&self, record: &'r [u8]) -> Option<Frames<'r>> {
        let bytes = bytes(record, self.offset, self.size, self.location, self.machine).ok()?;
        Some(Frames { bytes, machine: self.machine, left: MAX_FRAMES })
    }

    /// The process that a record is of, if it is a stack of a process and says it.
    pub fn process(&self, record: &[u8]) -> Option<u32> {
        let at = self.process_at?;
        let process = self.machine.number(record.get(at..at + 4)?) as u32;
        (process != 0).then_some(process)
    }

    /// All addresses of a record, with those that fill the room behind its frames.
    pub fn addresses<'r>(&self, record: &'r [u8]) -> impl Iterator<Item = u64> + use<'r> {
        let machine = self.machine;
        let bytes = bytes(record, self.offset, self.size, self.location, machine).unwrap_or_default();
        bytes.chunks_exact(long(machine)).map(move |bytes| machine.number(bytes))
    }
}

fn long(machine: Machine) -> usize {
    usize::from(machine.long_size.max(1))
}

fn is_array_of_longs(field: &Field, machine: Machine) -> bool {
    // Kernels before 5.6 declare one address of no size.
    let is_array = field.array != Array::Single || field.location != Location::Inline || field.size == 0;
    let words = || field.type_text.split_whitespace();
    let size = if field.type_text.contains('*') {
        Some(machine.long_size.into())
    } else if words().any(|word| word == "long") {
        Some(long_size(&field.type_text, machine))
    } else {
        field.element_size()
    };
    is_array && size == Some(machine.long_size.into())
}

/// The frames of a record. The kernel fills what it does not need with 0 or with all ones.
#[derive(Clone, Debug)]
pub struct Frames<'r> {
    bytes: &'r [u8],
    machine: Machine,
    left: usize,
}

impl Iterator for Frames<'_> {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        let (address, rest) = self.bytes.split_at_checked(long(self.machine))?;
        let end = if self.machine.long_size == 4 { u64::from(u32::MAX) } else { u64::MAX };
        let frame = Some(self.machine.number(address));
        let frame = frame.filter(|address| *address != 0 && *address != end && self.left > 0);
        (self.bytes, self.left) = if frame.is_some() { (rest, self.left - 1) } else { (&rest[..0], 0) };
        frame
    }
}

/// Events that wait for their stacks.
#[derive(Debug)]
pub struct Stacks<T> {
    waiting: HashMap<(usize, u32), Vec<Waiting<T>>>,
}

#[derive(Debug)]
struct Waiting<T> {
    context: u64,
    event: T,
    stack: Stack,
}

impl<T> Default for Stacks<T> {
    fn default() -> Self {
        Self { waiting: HashMap::new() }
    }
}

impl<T> Stacks<T> {
    /// Takes an event, which waits for its stack until the next one of its context; returns the one before
    /// it.
    pub fn event(&mut self, origin: Origin, event: T) -> Option<(T, Stack)> {
        let waiting = self.waiting.entry(origin.stream).or_default();
        let context = origin.context();
        let before = waiting.iter().position(|waiting| waiting.context == context);
        let before = before.map(|at| waiting.remove(at));
        waiting.push(Waiting { context, event, stack: Stack::default() });
        before.map(|before| (before.event, before.stack))
    }

    /// Takes a record that is a stack. One whose event is not there belongs to none.
    pub fn stack(&mut self, origin: Origin, printer: &Printer, record: &[u8]) {
        let waiting = self.waiting.get_mut(&origin.stream).into_iter().flatten();
        if let Some(waiting) = waiting.rev().find(|waiting| waiting.context == origin.context()) {
            waiting.stack.add(printer, record);
        }
    }

    /// Records are missing here, or their context is not known: a stack that follows can be that of another
    /// event. Returns the events that waited on this buffer and CPU.
    pub fn gap(&mut self, stream: (usize, u32)) -> impl Iterator<Item = (T, Stack)> + use<T> {
        let waiting = self.waiting.remove(&stream).unwrap_or_default();
        waiting.into_iter().map(|waiting| (waiting.event, waiting.stack))
    }

    /// Whether `holds` is true of an event that waits.
    pub fn any(&self, holds: impl Fn(&T) -> bool) -> bool {
        self.waiting.values().flatten().any(|waiting| holds(&waiting.event))
    }

    /// The events that still wait at the end.
    pub fn finish(&mut self) -> impl Iterator<Item = (T, Stack)> {
        let waiting = std::mem::take(&mut self.waiting);
        waiting.into_values().flatten().map(|waiting| (waiting.event, waiting.stack))
    }
}

/// `common_flags` of a record, where it has them.
pub fn flags(printer: &Printer, record: &[u8]) -> u64 {
    let value = printer.field_index("common_flags").and_then(|index| printer.value(index, record));
    value.and_then(Result::ok).and_then(|value| value.address()).unwrap_or(0)
}

/// The symbol that an address is in, and how far from its start the address is. Recordings mark addresses
/// without one by names that no symbol has.
pub fn symbol(symbols: &dyn Symbols, address: u64) -> Option<Symbol<'_>> {
    let has_name = |symbol: &Symbol<'_>| !NO_SYMBOL.contains(&symbol.name) && !symbol.name.starts_with("0x");
    symbols.lookup(address).filter(has_name)
}

/// The place in a table of symbols of the name that an address has in one process, where other processes have
/// other code there: programs that are not position-independent. `None` for an address that has no such
/// place.
pub fn place_of_process(process: u32, address: u64) -> Option<u64> {
    let fits = process != 0 && process >> PROCESS_BITS == 0 && address >> ADDRESS_BITS == 0;
    fits.then_some(OF_PROCESS | u64::from(process) << ADDRESS_BITS | address)
}

/// Where a table of symbols has the name of a process's frame: in a place of its own, or at its address.
pub fn place_of_frame(symbols: &dyn Symbols, process: Option<u32>, address: u64) -> u64 {
    let own = process.and_then(|process| place_of_process(process, address));
    let has_name = |own: &u64| symbol(symbols, *own).is_some_and(|symbol| symbol.offset == 0);
    own.filter(has_name).unwrap_or(address)
}

/// The function of a frame, without the offset in it.
pub fn function(symbols: &dyn Symbols, address: u64) -> Cow<'_, str> {
    let Some(symbol) = symbol(symbols, address) else { return Cow::Borrowed(UNKNOWN) };
    // Frames of processes have entries of their own, named with the offset: `a+0x9`. Where processes have
    // other code at the same address, all names are there: `a+0x9|b+0x2|0x1234`.
    let mut rest = symbol.name;
    let mut names: Vec<&str> = Vec::new();
    while let Some((name, others)) = split_at_bar(rest) {
        add(&mut names, name);
        rest = others;
    }
    if names.is_empty() {
        return Cow::Borrowed(without_offset(rest).unwrap_or(rest));
    }
    add(&mut names, without_offset(rest).unwrap_or(if is_number(rest) { UNKNOWN } else { rest }));
    Cow::Owned(names.join("|"))
}

fn add<'n>(names: &mut Vec<&'n str>, name: &'n str) {
    if !names.contains(&name) {
        names.push(name);
    }
}

/// The first of several names, without its offset, and the others. Names can have bars of their own.
fn split_at_bar(names: &str) -> Option<(&str, &str)> {
    names.match_indices('|').find_map(|(bar, _)| {
        let (name, others) = (names.get(..bar)?, names.get(bar + 1..)?);
        let name = without_offset(name).or_else(|| is_number(name).then_some(UNKNOWN))?;
        Some((name, others))
    })
}

fn without_offset(name: &str) -> Option<&str> {
    let (name, offset) = name.rsplit_once("+0x")?;
    is_hex(offset).then_some(name)
}

fn is_number(name: &str) -> bool {
    name.strip_prefix("0x").is_some_and(is_hex)
}

fn is_hex(digits: &str) -> bool {
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Functions of the kernel that record an event, by what their names begin with: the innermost ones of a
/// stack that a program took there.
const TRACING: [&str; 9] = [
    "__traceiter_",
    "__bpf_trace_",
    "__perf_trace_",
    "bpf_prog_",
    "bpf_trace_run",
    "bpf_trampoline_",
    "perf_trace_",
    "trace_event_buffer_",
    "trace_event_raw_event_",
];

/// Whether a function of the kernel records an event.
pub fn is_tracing(function: &str) -> bool {
    TRACING.iter().any(|start| function.starts_with(start))
}

/// The frames of the kernel, the innermost first, without the functions that recorded the event. All of them
/// if there are no others.
pub fn without_tracing<'f>(symbols: &dyn Symbols, kernel: &'f [u64]) -> &'f [u64] {
    let first = kernel.iter().position(|address| !is_tracing(&function(symbols, *address)));
    kernel.get(first.unwrap_or(0)..).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Format, Machine, NoNames, SymbolTable};

    const COMMON: &str = "\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;
\tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;
\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;
";

    fn printer(name: &str) -> Printer {
        printer_of(name, "size")
    }

    fn printer_of(name: &str, first: &str) -> Printer {
        let own = "\tfield:int size;\toffset:8;\tsize:4;\tsigned:1;
\tfield:unsigned long caller[8];\toffset:16;\tsize:64;\tsigned:0;";
        let own = own.replace("size;", &format!("{first};"));
        let text = format!("name: {name}\nID: 4\nformat:\n{COMMON}\n{own}\n\nprint fmt: \"\"");
        Printer::new("ftrace", Format::parse(&text).unwrap(), Machine::default(), &NoNames)
    }

    fn record(addresses: &[u64]) -> Vec<u8> {
        let mut record = vec![4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        for address in addresses {
            record.extend(address.to_le_bytes());
        }
        record.resize(record.len().max(80), 0);
        record
    }

    #[test]
    fn a_stack_belongs_to_the_last_event_of_its_context() {
        let (kernel, user) = (printer("kernel_stack"), printer("user_stack"));
        let thread = Origin { stream: (0, 1), flags: 0x01 };
        let interrupt = Origin { flags: flag::HARD_IRQ, ..thread };
        let mut stacks = Stacks::default();
        assert_eq!(stacks.event(thread, "a"), None);
        // An interrupt comes before the event's stack does.
        assert_eq!(stacks.event(interrupt, "irq"), None);
        stacks.stack(interrupt, &kernel, &record(&[7, u64::MAX, 9]));
        stacks.stack(thread, &kernel, &record(&[1, 2]));
        stacks.stack(thread, &user, &record(&[11, 12, 13, 14, 15, 16, 17, 18]));
        stacks.stack(thread, &user, &record(&[19, 0, 20]));
        // One of another CPU has no event.
        stacks.stack(Origin { stream: (0, 2), ..thread }, &kernel, &record(&[1]));
        let (event, stack) = stacks.event(thread, "b").unwrap();
        assert_eq!((event, &stack.kernel[..]), ("a", &[1, 2][..]));
        assert_eq!(stack.user, (11..=19).collect::<Vec<u64>>());
        // What waits on another CPU is not touched by a gap.
        assert!(stacks.event(Origin { stream: (0, 2), ..thread }, "other").is_none());
        let gone: Vec<_> = stacks.gap((0, 2)).collect();
        assert_eq!(gone, [("other", Stack::default())]);
        stacks.stack(Origin { stream: (0, 2), ..thread }, &kernel, &record(&[1]));
        assert!(stacks.any(|event| *event == "irq") && !stacks.any(|event| *event == "other"));
        let mut rest: Vec<_> = stacks.finish().collect();
        rest.sort_by_key(|(event, _)| *event);
        assert_eq!(rest[0], ("b", Stack::default()));
        assert_eq!(rest[1], ("irq", Stack { kernel: vec![7], ..Stack::default() }));
        assert!(stacks.finish().next().is_none());
    }

    #[test]
    fn stacks_are_read_by_the_types_of_their_fields() {
        let of = |name: &str, field: &str, machine: Machine| {
            let text = format!("name: {name}\nID: 4\nformat:\n{COMMON}\n\tfield:{field}\n\nprint fmt: \"\"");
            Printer::new("ftrace", Format::parse(&text).unwrap(), machine, &NoNames)
        };
        let frames =
            |printer: &Printer, record: &[u8]| printer.frames(record).map(Iterator::collect::<Vec<_>>);
        let long = Machine::default();
        let inline = record(&[1, 2, u64::MAX, 9]);
        let kernel = of("kernel_stack", "unsigned long caller[8];\toffset:16;\tsize:64;\tsigned:0;", long);
        assert_eq!(frames(&kernel, &inline), Some(vec![1, 2]));
        let kernel = of("kernel_stack", "unsigned long caller;\toffset:16;\tsize:0;\tsigned:0;", long);
        assert_eq!(frames(&kernel, &inline), Some(vec![1, 2]));
        assert_eq!(frames(&kernel, &inline[..12]), None);
        // Another tracer's, whose addresses are elsewhere in the record.
        let mut dynamic = record(&[0, 3, 4]);
        for (location, word) in [("__data_loc", 0x0010_0018_u32), ("__rel_loc", 0x0010_0004)] {
            dynamic[16..20].copy_from_slice(&word.to_le_bytes());
            for name in ["kernel_stack", "user_stack"] {
                let field = format!("{location} void *[] caller;\toffset:16;\tsize:4;\tsigned:0;");
                assert_eq!(frames(&of(name, &field, long), &dynamic), Some(vec![3, 4]), "{field}");
            }
        }
        let short = Machine { long_size: 4, ..long };
        let words = [&inline[..16], &[5, 0, 0, 0, 6, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 7, 0, 0, 0]].concat();
        let user = of("user_stack", "unsigned long caller[4];\toffset:16;\tsize:16;\tsigned:0;", short);
        assert_eq!(frames(&user, &words), Some(vec![5, 6]));
        for field in [
            "u32 caller[8];\toffset:16;\tsize:32;\tsigned:0;",
            "__data_loc char[] caller;\toffset:16;\tsize:4;\tsigned:0;",
            "unsigned long caller;\toffset:16;\tsize:8;\tsigned:0;",
            "unsigned long called[8];\toffset:16;\tsize:64;\tsigned:0;",
        ] {
            let other = of("kernel_stack", field, long);
            assert_eq!((other.is_stack(), frames(&other, &inline)), (false, None), "{field}");
        }
    }

    #[test]
    fn functions_have_no_offset_in_their_names() {
        const NAMES: [(&str, Option<&str>); 12] = [
            ("-", None),
            ("[unknown]", None),
            ("main+0x1f", Some("main")),
            ("vfs_read", Some("vfs_read")),
            ("0x7f00", None),
            ("a+0xg", Some("a+0xg")),
            ("a+0x9|b", Some("a|b")),
            ("a+0x9|b+0x2|a+0x1", Some("a|b")),
            ("a+0x9|0x7f00", Some("a|[unknown]")),
            ("operator|+0x5", Some("operator|")),
            ("operator||(A|B)+0x5|b+0x1", Some("operator||(A|B)|b")),
            ("a|b", Some("a|b")),
        ];
        struct Table;
        impl Symbols for Table {
            fn lookup(&self, address: u64) -> Option<Symbol<'_>> {
                let (name, _) = *NAMES.get(address as usize)?;
                Some(Symbol { name, offset: 3, size: None, module: None })
            }
        }
        for (address, (name, expected)) in (0..).zip(NAMES) {
            assert_eq!(function(&Table, address), expected.unwrap_or(UNKNOWN), "{name}");
            assert_eq!(symbol(&Table, address).is_some(), expected.is_some(), "{name}");
        }
        assert_eq!(function(&Table, 12), UNKNOWN);
    }

    #[test]
    fn frames_have_the_names_of_their_process() {
        let place = |process| place_of_process(process, 0x0040_1000).unwrap();
        let table = SymbolTable::parse(
            format!(
                "401000 t a+0x9|b+0x2\n401001 t [unknown]\n{:x} t a+0x9\n{:x} t [unknown]\n{:x} t b+0x2\n{:x} t [unknown]\n",
                place(7),
                place(7) + 1,
                place(8),
                place(8) + 1
            )
            .into_bytes(),
        );
        let name = |process| function(&table, place_of_frame(&table, process, 0x0040_1000)).into_owned();
        assert_eq!([Some(7), Some(8), Some(9), None].map(name), ["a", "b", "a|b", "a|b"]);
        assert_eq!(place_of_frame(&table, Some(7), 0x0040_1001), 0x0040_1001);
        let none = [(0, 1), (1 << 22, 1), (1, 1 << 36)];
        assert_eq!(none.map(|(process, address)| place_of_process(process, address)), [None; 3]);
        let user = printer_of("user_stack", "tgid");
        let mut stack = Stack::default();
        stack.add(&user, &record(&[1]));
        assert_eq!(stack.process, None, "0 is no process");
        let mut of_seven = record(&[1]);
        of_seven[8] = 7;
        stack.add(&user, &of_seven);
        assert_eq!(stack.process, Some(7));
    }

    #[test]
    fn functions_that_record_events_are_not_the_innermost_ones() {
        struct Table;
        impl Symbols for Table {
            fn lookup(&self, address: u64) -> Option<Symbol<'_>> {
                let name = match address {
                    1 => "__traceiter_sched_switch",
                    2 => "bpf_prog_6deef7357e7b4530_sched_switch",
                    _ => "__schedule",
                };
                Some(Symbol { name, offset: 3, size: None, module: None })
            }
        }
        for (all, kept) in
            [(&[2, 1, 3, 4][..], &[3, 4][..]), (&[3, 1], &[3, 1]), (&[1, 2], &[1, 2]), (&[], &[])]
        {
            assert_eq!(without_tracing(&Table, all), kept);
        }
    }
}
