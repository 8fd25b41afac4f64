//! From a record to an `FtraceEvent`.

use std::collections::{BTreeMap, HashMap};

use prost::encoding::{WireType, encode_key, encode_varint, int64, uint32, uint64};

use super::calls::{Calls, Drawn};
use super::packet::InternedString;
use super::table::{self, Known, Type};
use ftrace_event::copies::copied_argument;
use ftrace_event::stacks::STACK_FIELD;
use ftrace_event::stacks::symbol;
use ftrace_event::syscalls::{CallNames, call_of};
use ftrace_event::{EventTable, FieldKind, FieldReader, Meaning, Printer, Symbols, Value};
use recording::{NotCarried, Recording};
use tracedat::ledger::Ledger;
use tracedat::reader::Record;

/// `FtraceEventBundle.event`.
const EVENT: u32 = 2;
// Fields of `FtraceEvent`.
const TIMESTAMP: u32 = 1;
const PID: u32 = 2;
const COMMON_FLAGS: u32 = 5;
const GENERIC: u32 = 327;
// Fields of `GenericFtraceEvent` and of its fields.
const EVENT_NAME: u32 = 1;
const FIELD: u32 = 2;
const FIELD_NAME: u32 = 1;
const STR_VALUE: u32 = 3;
const INT_VALUE: u32 = 4;
const UINT_VALUE: u32 = 5;
// Fields of `SysEnterFtraceEvent`, `SysExitFtraceEvent`, `PrintFtraceEvent`.
const SYSCALL_ID: u32 = 1;
const SYSCALL_ARGS: u32 = 2;
const SYSCALL_RET: u32 = 2;
const PRINT_BUF: u32 = 2;
/// What `PrintFtraceEvent` has for the end of the last slice of its thread.
const END_OF_SLICE: &[u8] = b"E|0";

/// The events that the viewer draws, and therefore gets as its own ones even if a record has more fields than
/// those have.
const DRAWN: [&str; 30] = [
    "clock_set_rate",
    "cpu_frequency",
    "cpu_idle",
    "funcgraph_entry",
    "funcgraph_exit",
    "gpu_frequency",
    "ipi_entry",
    "ipi_exit",
    "ipi_raise",
    "irq_handler_entry",
    "irq_handler_exit",
    "print",
    "rss_stat",
    "sched_blocked_reason",
    "sched_process_exec",
    "sched_process_exit",
    "sched_process_fork",
    "sched_process_free",
    "sched_switch",
    "sched_waking",
    "sched_wakeup",
    "sched_wakeup_new",
    "signal_deliver",
    "signal_generate",
    "softirq_entry",
    "softirq_exit",
    "softirq_raise",
    "task_newtask",
    "task_rename",
    "workqueue_execute_start",
];

/// The messages that Perfetto has for events, by their names.
type Messages = HashMap<&'static str, table::Message>;

/// The symbols that a sequence has numbers for.
#[derive(Debug, Default)]
pub(super) struct Interned {
    /// The numbers by address.
    numbers: BTreeMap<u64, u64>,
    /// Those that no packet has told yet.
    pub(super) new: Vec<InternedString>,
}

impl Interned {
    /// The number of the symbol at an address, which is new if it was not asked for before; where there is no
    /// symbol, that of the address.
    fn number(&mut self, address: u64, symbols: &dyn Symbols) -> u64 {
        let next = self.numbers.len() as u64 + 1;
        *self.numbers.entry(address).or_insert_with(|| {
            let name = symbol(symbols, address);
            let str = name.map_or_else(|| format!("{address:#x}"), |symbol| symbol.name.to_owned());
            self.new.push(InternedString { iid: next, str: str.into_bytes() });
            next
        })
    }
}

/// What makes events of records.
pub(super) struct Encoder<'a> {
    events: &'a EventTable,
    plans: HashMap<u16, Plan>,
    symbols: &'a dyn Symbols,
    calls: Calls,
    print: Option<u32>,
    message: Vec<u8>,
    event: Vec<u8>,
    text: String,
    with_preempt_count: u64,
    not_carried: NotCarried,
}

/// How many records of an event there are.
fn records_of(recording: &Recording<'_>, id: u16) -> u64 {
    let counts = recording.cpu_streams().iter().flat_map(|stream| &stream.by_id);
    counts.filter(|(of, _)| *of == id).map(|(_, records)| records).sum()
}

/// How the records of one event are written.
struct Plan {
    pid: Option<FieldReader>,
    flags: Option<FieldReader>,
    preempt_count: Option<FieldReader>,
    kinds: Vec<Kind>,
}

/// A message that a record becomes.
enum Kind {
    /// One that Perfetto has for the event.
    Known { number: u32, fields: Vec<(Known, FieldReader)>, function: Option<u32> },
    /// Any event.
    Generic { name: String, fields: Vec<(String, FieldReader)> },
    /// A system call, whose event has its arguments as fields.
    Enter { message: u32, number: Option<FieldReader>, args: Vec<FieldReader>, named: Named },
    /// The end of one.
    Exit { message: u32, number: Option<FieldReader>, result: FieldReader, named: Named },
    /// The end of a slice, before another call of its thread, if its own is not there.
    EndOfSlice { print: u32 },
    /// One of all system calls, whose result only its end has.
    AnyCall { event: Box<Kind>, number: FieldReader, result: Option<FieldReader>, print: u32 },
    /// A text that is only known when it is printed.
    Print { message: u32 },
}

/// A marker of user space that draws a system call without a number.
#[derive(Clone, Debug)]
struct Named {
    message: u32,
    text: String,
}

impl<'a> Encoder<'a> {
    /// For the events of a recording.
    pub(super) fn new(recording: &'a Recording<'_>, symbols: &'a dyn Symbols) -> Self {
        let events = recording.events();
        let messages = table::messages();
        // With both, each system call would be there twice.
        let draws_calls = events.iter().all(|printer| printer.system() != "raw_syscalls");
        let mut not_carried = NotCarried::default();
        let mut plans = HashMap::new();
        for printer in events.iter() {
            let id = printer.format().id;
            let plan = Plan::of(printer, &messages, draws_calls);
            let records = records_of(recording, id);
            not_carried.add("systems of events: their names are there", u64::from(records != 0));
            for field in plan.left_out(printer) {
                let name = format!("{}:{}.{field}", printer.system(), printer.name());
                let what = format!("values of {name}: Perfetto's own event does not have the field");
                not_carried.add(what, records);
            }
            plans.insert(id, plan);
        }
        let calls = Calls::new(CallNames::from(recording.syscalls()), has_ends_of_calls(recording));
        let print = messages.get("print").map(|print| print.number);
        let (message, event, text) = Default::default();
        Self {
            events,
            plans,
            symbols,
            calls,
            print,
            message,
            event,
            text,
            with_preempt_count: 0,
            not_carried,
        }
    }

    /// What it could not carry over so far.
    pub(super) fn take_not_carried(&mut self) -> NotCarried {
        let counted = std::mem::take(&mut self.with_preempt_count);
        self.not_carried.add("preempt counts of records, which Perfetto's events do not have", counted);
        std::mem::take(&mut self.not_carried)
    }

    /// Adds a record to a bundle, whose sequence has these symbols.
    pub(super) fn encode(&mut self, record: &Record<'_>, interned: &mut Interned, bundle: &mut Vec<u8>) {
        if record.missed.is_some()
            && let Some(print) = self.print
        {
            for thread in self.calls.lose() {
                self.message.clear();
                delimited(PRINT_BUF, END_OF_SLICE, &mut self.message);
                put(&mut self.event, &self.message, (record.timestamp, thread, None), print, bundle);
            }
        }
        let Some(id) = record.event_id() else { return };
        // Others were found by the survey.
        let (Some(plan), Some(printer)) = (self.plans.get(&id), self.events.get(id)) else { return };
        let number = |field: Option<FieldReader>| {
            field.and_then(|field| field.value(record.data).ok()).and_then(|value| value.address())
        };
        self.with_preempt_count += u64::from(number(plan.preempt_count).is_some_and(|count| count != 0));
        let thread = number(plan.pid).unwrap_or(0) as u32;
        for kind in &plan.kinds {
            self.message.clear();
            let mut fields = Fields {
                out: &mut self.message,
                text: &mut self.text,
                symbols: self.symbols,
                calls: &mut self.calls,
                thread,
                record: record.data,
                broken: 0,
                replaced: 0,
                unnumbered: 0,
            };
            let tag = kind.write(&mut fields, printer, interned);
            let (broken, replaced, unnumbered) = (fields.broken, fields.replaced, fields.unnumbered);
            if unnumbered != 0 {
                self.not_carried.add("arguments and results of system calls of 32-bit programs", unnumbered);
            }
            let Some(tag) = tag else { continue };
            let flags = number(plan.flags).filter(|flags| *flags != 0);
            put(&mut self.event, &self.message, (record.timestamp, thread, flags), tag, bundle);
            if broken + replaced != 0 {
                let name = format!("{}:{}", printer.system(), printer.name());
                self.not_carried.add(format!("values of {name} that are not in their records"), broken);
                self.not_carried.add("texts that are not UTF-8, whose wrong bytes are replaced", replaced);
            }
        }
    }
}

/// Adds an event to a bundle with its time, its thread and perhaps its flags.
fn put(
    event: &mut Vec<u8>,
    message: &[u8],
    (time, thread, flags): (u64, u32, Option<u64>),
    tag: u32,
    bundle: &mut Vec<u8>,
) {
    event.clear();
    uint64::encode(TIMESTAMP, &time, event);
    uint32::encode(PID, &thread, event);
    if let Some(flags) = flags {
        uint32::encode(COMMON_FLAGS, &(flags as u32), event);
    }
    delimited(tag, message, event);
    delimited(EVENT, event, bundle);
}

/// Whether each beginning and end of system calls is in `raw_syscalls` of a recording, or counted as lost.
fn has_ends_of_calls(recording: &Recording<'_>) -> bool {
    let mut ledgers = Ledger::all_of(recording.file()).peekable();
    // Other choices are made for each event: a thread can change its name within a call.
    let is_of_threads = |only: &String| only.starts_with("processes ") || only.starts_with("the command");
    let is_whole = |ledger: Ledger| {
        ["raw_syscalls:sys_enter", "raw_syscalls:sys_exit"].iter().all(|event| ledger.has_all_of(event))
            && ledger.pauses.is_empty()
            && ledger.only.iter().all(is_of_threads)
    };
    ledgers.peek().is_some() && ledgers.all(is_whole)
}

impl Plan {
    fn of(printer: &Printer, messages: &Messages, draws_calls: bool) -> Self {
        let reader = |name: &str| printer.field(printer.field_index(name)?);
        let call = draws_calls.then(|| Self::syscall(printer, messages));
        let kinds = call.flatten().or_else(|| Self::print(printer, messages)).unwrap_or_else(|| {
            let kind = Kind::known(printer, messages).unwrap_or_else(|| Kind::generic(printer));
            kind.with_calls(printer, messages)
        });
        Self {
            pid: reader("common_pid"),
            flags: reader("common_flags"),
            preempt_count: reader("common_preempt_count"),
            kinds,
        }
    }

    fn print(printer: &Printer, messages: &Messages) -> Option<Vec<Kind>> {
        let is_print = printer.system() == "ftrace" && matches!(printer.name(), "bprint" | "bputs");
        is_print.then(|| messages.get("print").map(|print| vec![Kind::Print { message: print.number }]))?
    }

    fn syscall(printer: &Printer, messages: &Messages) -> Option<Vec<Kind>> {
        if printer.system() != "syscalls" {
            return None;
        }
        let reader = |name: &str| printer.field(printer.field_index(name)?);
        let typed = |name| printer.typed(name, Meaning::Number);
        let number = typed("__syscall_nr").or_else(|| typed("nr"));
        let print = messages.get("print")?.number;
        if printer.name().starts_with("sys_exit_") {
            let message = messages.get("sys_exit")?.number;
            let named = Named { message: print, text: "E|0".to_owned() };
            return Some(vec![Kind::Exit { message, number, result: typed("ret")?, named }]);
        }
        let call = call_of(printer.name()).filter(|_| printer.name().starts_with("sys_enter_"))?;
        let named = Named { message: print, text: format!("B|0|{call}") };
        let message = messages.get("sys_enter")?.number;
        let is_arg = |name: &str| !matches!(name, "__syscall_nr" | "nr") && copied_argument(name).is_none();
        let own = &printer.format().fields;
        let args = own.iter().filter(|field| is_arg(&field.name)).filter_map(|field| reader(&field.name));
        let mut kinds = vec![Kind::Enter { message, number, args: args.collect(), named }];
        if own.iter().any(|field| copied_argument(&field.name).is_some()) {
            kinds.push(Kind::generic(printer));
        }
        Some(kinds)
    }

    /// The fields of the event that are not in its message.
    fn left_out(&self, printer: &Printer) -> Vec<String> {
        let [Kind::Known { fields, .. }] = &*self.kinds else { return Vec::new() };
        let own = printer.format().fields.iter();
        own.filter(|field| !fields.iter().any(|(known, _)| known.name == field.name))
            .map(|field| field.name.clone())
            .collect()
    }
}

impl Kind {
    /// The message of the event, if it has all of the event's fields, or is needed to draw it.
    fn known(printer: &Printer, messages: &Messages) -> Option<Self> {
        let message = messages.get(printer.name())?;
        let own = &printer.format().fields;
        let mut fields = Vec::new();
        let is_drawn = DRAWN.contains(&printer.name());
        for known in &message.fields {
            let Some(index) = printer.field_index(known.name) else { continue };
            if own.iter().all(|field| field.name != known.name) {
                continue;
            }
            let kind = printer.kind(index)?;
            if suits(*known, kind) {
                fields.push((*known, printer.field(index)?));
            } else if kind == FieldKind::Text && known.name == "prev_state" {
                fields.push((*known, printer.typed(known.name, Meaning::State)?));
            } else if is_drawn {
                // Without its value, something else would be drawn.
                return None;
            }
        }
        if fields.is_empty() && !own.is_empty() || fields.len() < own.len() && !is_drawn {
            return None;
        }
        let is_graph = printer.system() == "ftrace" && printer.name().starts_with("funcgraph_");
        let function = is_graph.then(|| fields.iter().find(|(known, _)| known.name == "func"));
        let function = function.flatten().map(|(known, _)| known.number);
        Some(Self::Known { number: message.number, fields, function })
    }

    /// The same with what draws calls whose numbers Perfetto does not understand, if it is one of all system
    /// calls.
    fn with_calls(self, printer: &Printer, messages: &Messages) -> Vec<Self> {
        let typed = |name| printer.typed(name, Meaning::Number);
        let number = typed("id").filter(|_| printer.system() == "raw_syscalls");
        let (Some(number), Some(print)) = (number, messages.get("print")) else { return vec![self] };
        let (print, result) = (print.number, typed("ret"));
        let call = Self::AnyCall { event: Box::new(self), number, result, print };
        if result.is_some() { vec![call] } else { vec![Self::EndOfSlice { print }, call] }
    }

    fn generic(printer: &Printer) -> Self {
        let reader = |name: &str| printer.field(printer.field_index(name)?);
        let own = printer.format().fields.iter();
        let fields = own.filter_map(|field| Some((field.name.clone(), reader(&field.name)?))).collect();
        Self::Generic { name: printer.name().to_owned(), fields }
    }

    /// Writes the message, and gives its number in `FtraceEvent`; `None` if the record has none.
    fn write(&self, to: &mut Fields<'_>, printer: &Printer, interned: &mut Interned) -> Option<u32> {
        Some(match self {
            Self::Known { number, fields, function } => {
                for (known, reader) in fields {
                    let Some(value) = to.value(*reader) else { continue };
                    match value.address().filter(|_| *function == Some(known.number)) {
                        Some(address) => {
                            let number = interned.number(address, to.symbols);
                            uint64::encode(known.number, &number, to.out);
                        }
                        None => to.known(*known, value),
                    }
                }
                *number
            }
            Self::Generic { name, fields } => {
                to.string(EVENT_NAME, name.as_bytes());
                for (name, reader) in fields {
                    if printer.is_stack()
                        && name == STACK_FIELD
                        && let Some(frames) = printer.frames(to.record)
                    {
                        let mut is_empty = true;
                        for (index, address) in frames.enumerate() {
                            to.generic(&format!("{name}[{index}]"), Value::Pointer(address));
                            is_empty = false;
                        }
                        if is_empty {
                            to.generic_without_value(name);
                        }
                    } else if let Some(value) = to.value(*reader) {
                        to.generic(name, value);
                    }
                }
                GENERIC
            }
            Self::Enter { number, named, .. } | Self::Exit { number, named, .. }
                if !number.is_some_and(|number| is_call(number, to.record)) =>
            {
                to.string(PRINT_BUF, named.text.as_bytes());
                named.message
            }
            Self::Enter { message, number, args, .. } => {
                if let Some(number) = number {
                    to.number(SYSCALL_ID, *number);
                }
                for arg in args {
                    to.number(SYSCALL_ARGS, *arg);
                }
                *message
            }
            Self::Exit { message, number, result, .. } => {
                if let Some(number) = number {
                    to.number(SYSCALL_ID, *number);
                }
                to.number(SYSCALL_RET, *result);
                *message
            }
            Self::EndOfSlice { print } => {
                if !to.calls.ends_open_slice(to.thread) {
                    return None;
                }
                to.string(PRINT_BUF, END_OF_SLICE);
                *print
            }
            Self::AnyCall { event, number, result, print } => {
                let Some(number) = number.number(to.record).map(u64::cast_signed) else {
                    return event.write(to, printer, interned);
                };
                let drawn = match result {
                    Some(_) => to.calls.end(to.thread, number),
                    None => to.calls.begin(to.thread, number),
                };
                match (drawn, &**event, result) {
                    (Drawn::EndOf(number), Self::Known { number: message, .. }, Some(result)) => {
                        uint64::encode(SYSCALL_ID, &number.cast_unsigned(), to.out);
                        to.number(SYSCALL_RET, *result);
                        return Some(*message);
                    }
                    (Drawn::Event | Drawn::EndOf(_), ..) => return event.write(to, printer, interned),
                    (Drawn::Instant(name), ..) => to.string(PRINT_BUF, format!("I|0|{name}").as_bytes()),
                    (Drawn::Begin(name), ..) => to.string(PRINT_BUF, format!("B|0|{name}").as_bytes()),
                    (Drawn::End, ..) => to.string(PRINT_BUF, END_OF_SLICE),
                    (Drawn::Nothing, ..) => {
                        to.unnumbered += 1;
                        return None;
                    }
                }
                to.unnumbered += 1;
                *print
            }
            Self::Print { message } => {
                let mut text = Vec::new();
                printer.print(to.record, to.symbols, &mut text);
                to.string(PRINT_BUF, &text);
                *message
            }
        })
    }
}

/// Whether a record has the number of a system call: those of other tracers have the name alone.
fn is_call(number: FieldReader, record: &[u8]) -> bool {
    number.number(record).is_some_and(|number| number.cast_signed() >= 0)
}

/// Whether a field of a message can hold the values.
fn suits(known: Known, kind: FieldKind) -> bool {
    match (known.ty, kind) {
        (Type::Text, FieldKind::Text) => true,
        (Type::Bytes, FieldKind::Bytes { .. } | FieldKind::Array { size: 1, .. }) => true,
        (Type::Unsigned32, FieldKind::Number { size, .. }) => size <= 4,
        (Type::Number, FieldKind::Number { .. } | FieldKind::Pointer { .. }) => !known.repeated,
        (Type::Number, FieldKind::Array { .. }) => known.repeated,
        _ => false,
    }
}

/// Writes the fields of a message.
struct Fields<'a> {
    out: &'a mut Vec<u8>,
    text: &'a mut String,
    symbols: &'a dyn Symbols,
    calls: &'a mut Calls,
    /// The thread of the record.
    thread: u32,
    record: &'a [u8],
    /// Values that are not in the record.
    broken: u64,
    /// Texts that are not UTF-8.
    replaced: u64,
    /// Calls whose number has no place in the message, and with it their arguments and results.
    unnumbered: u64,
}

impl<'a> Fields<'a> {
    fn value(&mut self, reader: FieldReader) -> Option<Value<'a>> {
        let value = reader.value(self.record).ok();
        self.broken += u64::from(value.is_none());
        value
    }

    fn known(&mut self, known: Known, value: Value<'_>) {
        match value {
            Value::Text(text) => self.string(known.number, text),
            Value::Bytes(bytes) => delimited(known.number, bytes, self.out),
            Value::Array(numbers) if known.ty == Type::Bytes => {
                delimited(known.number, numbers.bytes(), self.out);
            }
            Value::Array(numbers) => {
                for number in numbers.iter().filter_map(|value| value.address()) {
                    uint64::encode(known.number, &number, self.out);
                }
            }
            value => {
                let bits = value.address().unwrap_or(0);
                let bits = if known.ty == Type::Unsigned32 { bits & u64::from(u32::MAX) } else { bits };
                uint64::encode(known.number, &bits, self.out);
            }
        }
    }

    fn number(&mut self, tag: u32, reader: FieldReader) {
        if let Some(bits) = self.value(reader).and_then(|value| value.address()) {
            uint64::encode(tag, &bits, self.out);
        }
    }

    fn generic(&mut self, name: &str, value: Value<'_>) {
        let mut field = Vec::new();
        match value {
            Value::Array(numbers) if numbers.is_empty() => return self.generic_without_value(name),
            Value::Texts(texts) if texts.iter().len() == 0 => return self.generic_without_value(name),
            Value::Array(numbers) => {
                for (index, number) in numbers.iter().enumerate() {
                    self.generic(&format!("{name}[{index}]"), number);
                }
                return;
            }
            Value::Texts(texts) => {
                for (index, text) in texts.iter().enumerate() {
                    self.generic(&format!("{name}[{index}]"), Value::Text(text.unwrap_or(b"?")));
                }
                return;
            }
            Value::Signed(number) => int64::encode(INT_VALUE, &number, &mut field),
            Value::Unsigned(number) | Value::Pointer(number) => {
                uint64::encode(UINT_VALUE, &number, &mut field);
            }
            Value::Text(text) => {
                self.replaced += u64::from(std::str::from_utf8(text).is_err());
                delimited(STR_VALUE, String::from_utf8_lossy(text).as_bytes(), &mut field);
            }
            Value::Bitmask(_) | Value::Bytes(_) => {
                use std::fmt::Write as _;
                self.text.clear();
                // Writing to a string does not fail.
                let _ = write!(self.text, "{value}");
                delimited(STR_VALUE, self.text.as_bytes(), &mut field);
            }
        }
        delimited(FIELD_NAME, name.as_bytes(), &mut field);
        delimited(FIELD, &field, self.out);
    }

    /// A list without elements, which has no field for any of them.
    fn generic_without_value(&mut self, name: &str) {
        let mut field = Vec::new();
        delimited(FIELD_NAME, name.as_bytes(), &mut field);
        delimited(FIELD, &field, self.out);
    }

    fn string(&mut self, tag: u32, text: &[u8]) {
        self.replaced += u64::from(std::str::from_utf8(text).is_err());
        delimited(tag, String::from_utf8_lossy(text).as_bytes(), self.out);
    }
}

/// A field of bytes.
fn delimited(tag: u32, bytes: &[u8], out: &mut Vec<u8>) {
    encode_key(tag, WireType::LengthDelimited, out);
    encode_varint(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;
    use ftrace_event::Symbol;

    /// One function, and what recordings call an address that is in none.
    struct Known;

    impl Symbols for Known {
        fn lookup(&self, address: u64) -> Option<Symbol<'_>> {
            let name = match address {
                0x1000 => "do_it",
                0x2000 => "-",
                0x3000 => "0x3000",
                _ => return None,
            };
            Some(Symbol { name, offset: 0, size: None, module: None })
        }
    }

    #[test]
    fn an_address_without_a_symbol_is_told_as_a_number() {
        let mut interned = Interned::default();
        let addresses = [0x1000, 0x2000, 0x3000, 0x4000, 0x1000];
        assert_eq!(addresses.map(|address| interned.number(address, &Known)), [1, 2, 3, 4, 1]);
        let names: Vec<_> = interned.new.iter().map(|string| string.str.as_slice()).collect();
        assert_eq!(names, [&b"do_it"[..], b"0x2000", b"0x3000", b"0x4000"]);
    }
}
