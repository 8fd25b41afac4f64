//! Which event a stack belongs to, and the names of its frames.
//!
//! Stacks are records of their own, `ftrace:kernel_stack` and `ftrace:user_stack`, that follow the record of
//! their event in the same buffer of the same CPU. An interrupt can come in between, with events and stacks
//! of its own: a stack belongs to the last event of its context. User stacks that are longer than a record go
//! on in the next one.

use std::collections::HashMap;

use crate::record::flag;
use crate::table::STACK_FIELD;
use crate::{Printer, Symbol, Symbols, Value};

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
}

impl Stack {
    /// All frames, from the process's outermost to the kernel's innermost.
    pub fn outermost_first(&self) -> impl Iterator<Item = u64> {
        self.user.iter().rev().chain(self.kernel.iter().rev()).copied()
    }

    /// Whether there are no frames.
    pub fn is_empty(&self) -> bool {
        self.kernel.is_empty() && self.user.is_empty()
    }

    /// Adds the frames of a record of [`Printer::is_stack`].
    pub fn add(&mut self, printer: &Printer, record: &[u8]) {
        let frames = if printer.is_kernel_stack() { &mut self.kernel } else { &mut self.user };
        let room = MAX_FRAMES - frames.len();
        each_frame(printer, record, &mut |more| frames.extend(more.take(room)));
    }
}

/// Calls `take` with the frames of a record of [`Printer::is_stack`], the innermost first, up to what ends
/// them: the kernel fills what it does not need with 0 or with all ones. `take` is not called if the record
/// has no stack.
pub fn each_frame(printer: &Printer, record: &[u8], take: &mut dyn FnMut(&mut dyn Iterator<Item = u64>)) {
    let end = if printer.machine().long_size == 4 { u64::from(u32::MAX) } else { u64::MAX };
    let is_frame = |address: &u64| *address != 0 && *address != end;
    if printer.is_kernel_stack() {
        // The record has all addresses, its format some of them.
        take(&mut printer.stack(record).take_while(is_frame).take(MAX_FRAMES));
    } else if let Some(Ok(Value::Array(numbers))) =
        printer.field_index(STACK_FIELD).and_then(|index| printer.value(index, record))
    {
        let addresses = numbers.iter().filter_map(|value| value.address());
        take(&mut addresses.take_while(is_frame).take(MAX_FRAMES));
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

/// The function of a frame, without the offset in it.
pub fn function(symbols: &dyn Symbols, address: u64) -> &str {
    let Some(symbol) = symbol(symbols, address) else { return UNKNOWN };
    // Frames of processes have entries of their own, named with the offset.
    match symbol.name.rsplit_once("+0x") {
        Some((name, offset)) if offset.bytes().all(|byte| byte.is_ascii_hexdigit()) => name,
        _ => symbol.name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Format, Machine, NoNames};

    const COMMON: &str = "\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;
\tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;
\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;
";

    fn printer(name: &str) -> Printer {
        let own = "\tfield:int size;\toffset:8;\tsize:4;\tsigned:1;
\tfield:unsigned long caller[8];\toffset:16;\tsize:64;\tsigned:0;";
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
        assert_eq!(stack.outermost_first().last(), Some(1));
        // What waits on another CPU is not touched by a gap.
        assert!(stacks.event(Origin { stream: (0, 2), ..thread }, "other").is_none());
        let gone: Vec<_> = stacks.gap((0, 2)).collect();
        assert_eq!(gone, [("other", Stack::default())]);
        stacks.stack(Origin { stream: (0, 2), ..thread }, &kernel, &record(&[1]));
        assert!(stacks.any(|event| *event == "irq") && !stacks.any(|event| *event == "other"));
        let mut rest: Vec<_> = stacks.finish().collect();
        rest.sort_by_key(|(event, _)| *event);
        assert_eq!(rest[0], ("b", Stack::default()));
        assert_eq!(rest[1], ("irq", Stack { kernel: vec![7], user: vec![] }));
        assert!(stacks.finish().next().is_none());
    }

    #[test]
    fn functions_have_no_offset_in_their_names() {
        struct Table;
        impl Symbols for Table {
            fn lookup(&self, address: u64) -> Option<Symbol<'_>> {
                let name =
                    *["-", "[unknown]", "main+0x1f", "vfs_read", "0x7f00", "a+0xg"].get(address as usize)?;
                Some(Symbol { name, offset: 3, size: None, module: None })
            }
        }
        let names: Vec<_> = (0..7).map(|address| function(&Table, address)).collect();
        assert_eq!(names, [UNKNOWN, UNKNOWN, "main", "vfs_read", UNKNOWN, "a+0xg", UNKNOWN]);
        let has_symbol: Vec<_> = (0..7).map(|address| symbol(&Table, address).is_some()).collect();
        assert_eq!(has_symbol, [false, false, true, true, false, true, false]);
    }
}
