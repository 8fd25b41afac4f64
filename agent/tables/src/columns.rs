//! The columns of an event's table.
//!
//! | column | what |
//! |---|---|
//! | `common_timestamp` | time by the recording's clock, in nanoseconds |
//! | `common_wall_ns` | the same since 1970 in UTC, where it is known |
//! | `common_time` | the same as a moment, in formats that have them |
//! | `common_buffer` | the buffer, empty for the top one |
//! | `common_cpu`, `common_pid`, `common_comm` | the CPU, the thread, its name as the file has it |
//! | `common_flags`, `common_preempt_count` | as the kernel recorded them |
//! | `FIELD` | a field of the event |
//! | `FIELD_name` | the name of its value, where the event's format has names, or it is the number of a system call |
//! | `FIELD_symbol` | the symbol of an address that the kernel prints by name; of an array a list of them |

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};

use super::encoding::Rows;
use super::out::Row;
use super::value::{Addresses, Cell, Column, Element, SymbolsOf, Type, symbol_text};
use ftrace_event::syscalls;
use ftrace_event::syscalls::SyscallTable;
use ftrace_event::{AddressKind, Field, FieldKind, FieldReader, NamedField, Printer, Symbols, Value};
use recording::Recording;
use tracedat::reader::Record;

/// The column with the times of records.
pub(super) const TIME: &str = "common_timestamp";

/// Columns that every event has.
const COMMON: [(&str, Type); 9] = [
    (TIME, Type::Time),
    ("common_wall_ns", Type::Wall),
    ("common_time", Type::Moment),
    ("common_buffer", Type::Name),
    ("common_cpu", Type::Unsigned(4)),
    ("common_pid", Type::Signed(4)),
    ("common_comm", Type::Name),
    ("common_flags", Type::Unsigned(1)),
    ("common_preempt_count", Type::Unsigned(1)),
];

/// Names of an event's values that are kept, since most records have the same ones; longer ones are not.
const MOST_KEPT: usize = 1024;
const LONGEST_KEPT: usize = 256;

/// The columns of one event.
pub(super) struct Columns<'a> {
    printer: &'a Printer,
    pid: Option<FieldReader>,
    flags: Option<FieldReader>,
    preempt_count: Option<FieldReader>,
    own: Vec<Own>,
}

/// A column that only this event has.
struct Own {
    name: String,
    ty: Type,
    field: FieldReader,
    what: What,
    /// Whether it is the field of a stack.
    is_stack: bool,
    /// Names of values that were looked up.
    known: HashMap<u64, Option<Vec<u8>>>,
}

/// What of a field a column has.
#[derive(Clone, Copy, Debug)]
enum What {
    Value,
    Address,
    /// The addresses of a stack, or of another array.
    Addresses,
    Name(NamedField),
    Syscall(SyscallTable),
    Symbol,
    /// The symbols of all addresses.
    Symbols,
}

impl<'a> Columns<'a> {
    /// Those of an event. Names of `reserved` belong to others, whatever their case.
    pub(super) fn of(printer: &'a Printer, recording: &Recording<'_>, reserved: &[&str]) -> Self {
        let calls = recording.syscalls();
        let reader = |name: &str| printer.field(printer.field_index(name)?);
        let mut taken: BTreeSet<String> = COMMON.iter().map(|(name, _)| (*name).to_owned()).collect();
        let mut own = Vec::new();
        let first = printer.format().common.len();
        // Fields keep their names; what is added gives way.
        let mut free = |name: String| {
            let mut name = name;
            let is_reserved = |name: &str| reserved.iter().any(|other| other.eq_ignore_ascii_case(name));
            while is_reserved(&name) || !taken.insert(name.clone()) {
                name.push('_');
            }
            name
        };
        for (index, field) in printer.format().fields.iter().enumerate() {
            let Some((reader, kind)) = printer.field(first + index).zip(printer.kind(first + index)) else {
                continue;
            };
            let (ty, what) = value_of(printer, field, kind);
            let is_stack = printer.is_stack_field(field);
            own.push(Own::new(free(field.name.clone()), ty, (reader, is_stack), what));
        }
        for (index, field) in printer.format().fields.iter().enumerate() {
            let Some((reader, kind)) = printer.field(first + index).zip(printer.kind(first + index)) else {
                continue;
            };
            for (ending, ty, what) in beside(printer, field, kind, calls) {
                let name = free(format!("{}_{ending}", field.name));
                own.push(Own::new(name, ty, (reader, printer.is_stack_field(field)), what));
            }
        }
        Self {
            printer,
            pid: reader("common_pid"),
            flags: reader("common_flags"),
            preempt_count: reader("common_preempt_count"),
            own,
        }
    }

    /// The columns in their order.
    pub(super) fn names_and_types(&self) -> Vec<Column> {
        let size = |field: Option<FieldReader>| field.map_or(1, |field| field.size() as u8);
        let common = COMMON.iter().map(|(name, ty)| {
            let ty = match *name {
                "common_flags" => Type::Unsigned(size(self.flags)),
                "common_preempt_count" => Type::Unsigned(size(self.preempt_count)),
                _ => *ty,
            };
            (Cow::Borrowed(*name), ty)
        });
        common.chain(self.own.iter().map(|own| (Cow::Owned(own.name.clone()), own.ty))).collect()
    }

    /// Writes a record. Gives how many fields it should have, and has not.
    pub(super) fn write<R: Rows>(
        &mut self,
        record: &Record<'_>,
        recording: &Recording<'_>,
        symbols: &dyn Symbols,
        row: &mut Row<'_, R>,
    ) -> u64 {
        let number = |field: Option<FieldReader>| field.and_then(|field| field.number(record.data));
        let buffer = recording.file().buffers().get(record.buffer).map_or("", |buffer| &buffer.name);
        let pid = number(self.pid).map(|pid| (pid as u32).cast_signed());
        put_times(record.timestamp, recording, row);
        row.put(buffer);
        row.put(record.cpu);
        row.put(pid.map(i64::from));
        row.put(pid.and_then(|pid| name_of(pid.cast_unsigned(), recording)));
        row.put(number(self.flags));
        row.put(number(self.preempt_count));
        let mut broken = 0;
        for own in &mut self.own {
            broken += u64::from(!own.write(self.printer, record.data, symbols, row));
        }
        broken
    }
}

impl Own {
    fn new(name: String, ty: Type, (field, is_stack): (FieldReader, bool), what: What) -> Self {
        Self { name, ty, field, what, is_stack, known: HashMap::new() }
    }

    /// Writes the value. Gives whether the record has the field.
    fn write<R: Rows>(
        &mut self,
        printer: &Printer,
        record: &[u8],
        symbols: &dyn Symbols,
        row: &mut Row<'_, R>,
    ) -> bool {
        match self.what {
            What::Value => {
                let value = self.field.value(record).ok();
                row.put(value.as_ref());
                value.is_some()
            }
            What::Address => {
                let address = self.field.number(record);
                row.put(address.map_or(Cell::Unknown, Cell::Address));
                address.is_some()
            }
            What::Addresses => {
                let addresses = self.addresses(printer, record);
                row.put(addresses.as_ref().map_or(Cell::Unknown, |addresses| Cell::List(addresses)));
                addresses.is_some()
            }
            What::Name(named) => {
                self.write_known(record, row, |_| printer.value_text(named, record, symbols));
                true
            }
            What::Syscall(calls) => {
                row.put(self.field.number(record).and_then(|number| calls.name(number)));
                true
            }
            What::Symbol => {
                self.write_known(record, row, |address| {
                    symbol_text(symbols, address).map(|text| text.into_owned().into_bytes())
                });
                true
            }
            What::Symbols => {
                match self.addresses(printer, record) {
                    Some(addresses) => {
                        let process = printer.process(record).filter(|_| self.is_stack);
                        row.put(Cell::List(&SymbolsOf { addresses, process, symbols }));
                    }
                    None => row.put(Cell::Unknown),
                }
                true
            }
        }
    }

    /// The addresses of the field, if the record has it.
    fn addresses<'r>(&self, printer: &Printer, record: &'r [u8]) -> Option<Addresses<'r>> {
        if self.is_stack {
            return printer.frames(record).map(Addresses::Stack);
        }
        match self.field.value(record) {
            Ok(Value::Array(numbers)) => Some(Addresses::Array(numbers)),
            _ => None,
        }
    }

    /// Writes the name of the field's number, which has always the same.
    fn write_known<R: Rows>(
        &mut self,
        record: &[u8],
        row: &mut Row<'_, R>,
        look_up: impl FnOnce(u64) -> Option<Vec<u8>>,
    ) {
        let Some(number) = self.field.number(record) else { return row.put(Cell::Unknown) };
        if let Some(name) = self.known.get(&number) {
            return row.put(name.as_deref());
        }
        let name = look_up(number);
        row.put(name.as_deref());
        if name.as_ref().is_none_or(|name| name.len() <= LONGEST_KEPT) {
            if self.known.len() >= MOST_KEPT {
                self.known.clear();
            }
            self.known.insert(number, name);
        }
    }
}

/// The type and content of a field's own column.
fn value_of(printer: &Printer, field: &Field, kind: FieldKind) -> (Type, What) {
    if printer.is_stack_field(field) {
        return (Type::List(Element::Address), What::Addresses);
    }
    match kind {
        FieldKind::Array { .. } if printer.address(field).is_some() => {
            (Type::List(Element::Address), What::Addresses)
        }
        FieldKind::Number { .. } if printer.address(field).is_some() => (Type::Address, What::Address),
        FieldKind::Number { signed: true, size } => (Type::Signed(size), What::Value),
        FieldKind::Number { signed: false, size } => (Type::Unsigned(size), What::Value),
        FieldKind::Pointer { .. } => (Type::Address, What::Value),
        FieldKind::Text => (Type::Text, What::Value),
        FieldKind::Texts { .. } => (Type::List(Element::Text), What::Value),
        FieldKind::Array { signed: true, size, .. } => (Type::List(Element::Signed(size)), What::Value),
        FieldKind::Array { signed: false, size, .. } => (Type::List(Element::Unsigned(size)), What::Value),
        FieldKind::Bitmask => (Type::List(Element::Unsigned(4)), What::Value),
        FieldKind::Bytes { .. } => (Type::List(Element::Unsigned(1)), What::Value),
    }
}

/// The columns that a field has beside its own.
fn beside(
    printer: &Printer,
    field: &Field,
    kind: FieldKind,
    calls: Option<SyscallTable>,
) -> impl Iterator<Item = (&'static str, Type, What)> {
    let is_number = matches!(kind, FieldKind::Number { .. } | FieldKind::Pointer { .. });
    let named = if syscalls::is_number(printer.system(), &field.name) {
        calls.map(What::Syscall)
    } else {
        printer.named(field).map(What::Name)
    };
    let named = named.filter(|_| is_number).map(|what| ("name", Type::Name, what));
    let is_array = printer.is_stack_field(field) || matches!(kind, FieldKind::Array { .. });
    let symbol = (printer.address(field) == Some(AddressKind::Symbol)).then_some(match kind {
        _ if is_array => Some(("symbol", Type::List(Element::Text), What::Symbols)),
        _ if is_number => Some(("symbol", Type::Name, What::Symbol)),
        _ => None,
    });
    named.into_iter().chain(symbol.flatten())
}

/// Writes a time, which three columns have.
pub(super) fn put_times<R: Rows>(
    time: impl Into<Option<u64>>,
    recording: &Recording<'_>,
    row: &mut Row<'_, R>,
) {
    let time = time.into();
    let wall = time.and_then(|time| wall(time, recording));
    row.put(time);
    row.put(wall);
    row.put(wall.map(|wall| wall.div_euclid(1000)));
}

/// A time since 1970, if the recording knows it.
pub(super) fn wall(time: u64, recording: &Recording<'_>) -> Option<i64> {
    i64::try_from(time.checked_add_signed(recording.wall_offset()?)?).ok()
}

/// The name of a thread, as the file has it.
fn name_of<'r>(tid: u32, recording: &Recording<'r>) -> Option<&'r [u8]> {
    if tid == 0 {
        return Some(b"<idle>");
    }
    recording.file().metadata().cmdlines.get(tid)
}
