//! The columns of an event's table.
//!
//! | column | what |
//! |---|---|
//! | `common_timestamp` | time by the recording's clock, in nanoseconds |
//! | `common_wall_ns` | the same since 1970 in UTC, where it is known |
//! | `common_buffer` | the buffer, empty for the top one |
//! | `common_cpu`, `common_pid`, `common_comm` | the CPU, the thread, its name as the file has it |
//! | `common_flags`, `common_preempt_count` | as the kernel recorded them |
//! | `FIELD` | a field of the event; addresses are texts (`0xffffffff81000000`) |
//! | `FIELD_name` | the name of its value, where the event's format has names, or it is the number of a system call |
//! | `FIELD_symbol` | the symbol of an address that the kernel prints by name |

use std::borrow::Cow;
use std::collections::BTreeSet;

use super::super::Recording;
use super::out::{Column, Row, Type};
use crate::event::syscalls::{self, SyscallTable};
use crate::event::table::STACK_FIELD;
use crate::event::{AddressKind, Field, FieldKind, FieldReader, NamedField, Printer, Symbols, Value};
use crate::report::stacks;
use crate::tracedat::Uname;
use crate::tracedat::reader::Record;

/// Columns that every event has.
const COMMON: [(&str, Type); 8] = [
    ("common_timestamp", Type::Unsigned),
    ("common_wall_ns", Type::Signed),
    ("common_buffer", Type::Text),
    ("common_cpu", Type::Unsigned),
    ("common_pid", Type::Signed),
    ("common_comm", Type::Text),
    ("common_flags", Type::Unsigned),
    ("common_preempt_count", Type::Unsigned),
];

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
}

/// What of a field a column has.
#[derive(Clone, Copy, Debug)]
enum What {
    Value,
    Address,
    /// The addresses of a stack of the kernel.
    Stack,
    Name(NamedField),
    Syscall(SyscallTable),
    Symbol,
}

impl<'a> Columns<'a> {
    /// Those of an event.
    pub(super) fn of(printer: &'a Printer, recording: &Recording<'_>) -> Self {
        let uname = Uname::of(recording.file().facts());
        let calls = uname.and_then(|uname| SyscallTable::of_machine(&uname.machine));
        let reader = |name: &str| printer.field(printer.field_index(name)?);
        let mut taken: BTreeSet<String> = COMMON.iter().map(|(name, _)| (*name).to_owned()).collect();
        let mut own = Vec::new();
        let first = printer.format().common.len();
        // Fields keep their names; what is added gives way.
        let mut free = |name: String| {
            let mut name = name;
            while !taken.insert(name.clone()) {
                name.push('_');
            }
            name
        };
        for (index, field) in printer.format().fields.iter().enumerate() {
            let Some((reader, kind)) = printer.field(first + index).zip(printer.kind(first + index)) else {
                continue;
            };
            let (ty, what) = value_of(printer, field, kind);
            own.push(Own { name: free(field.name.clone()), ty, field: reader, what });
        }
        for (index, field) in printer.format().fields.iter().enumerate() {
            let Some((reader, kind)) = printer.field(first + index).zip(printer.kind(first + index)) else {
                continue;
            };
            for (ending, what) in beside(printer, field, kind, calls) {
                let name = free(format!("{}_{ending}", field.name));
                own.push(Own { name, ty: Type::Text, field: reader, what });
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
        let common = COMMON.iter().map(|(name, ty)| (Cow::Borrowed(*name), *ty));
        common.chain(self.own.iter().map(|own| (Cow::Owned(own.name.clone()), own.ty))).collect()
    }

    /// Writes a record.
    pub(super) fn write(
        &self,
        record: &Record<'_>,
        recording: &Recording<'_>,
        symbols: &dyn Symbols,
        row: &mut Row<'_>,
    ) {
        let number = |field: Option<FieldReader>| {
            field.and_then(|field| field.value(record.data).ok()).and_then(|value| value.address())
        };
        let file = recording.file();
        let pid = number(self.pid).map(|pid| (pid as u32).cast_signed());
        row.unsigned(record.timestamp);
        row.signed(wall(record.timestamp, recording));
        row.text(file.buffers().get(record.buffer).map_or("", |buffer| &buffer.name).as_bytes());
        row.unsigned(u64::from(record.cpu));
        row.signed(pid.map(i64::from));
        match pid.map(i32::cast_unsigned).and_then(|pid| name_of(pid, recording)) {
            Some(comm) => row.text(comm),
            None => row.unknown(),
        }
        row.unsigned(number(self.flags));
        row.unsigned(number(self.preempt_count));
        for own in &self.own {
            self.write_own(own, record.data, symbols, row);
        }
    }

    fn write_own(&self, own: &Own, record: &[u8], symbols: &dyn Symbols, row: &mut Row<'_>) {
        let value = own.field.value(record).ok();
        let number = value.as_ref().and_then(Value::address);
        let optional = |row: &mut Row<'_>, text: Option<&[u8]>| match text {
            Some(text) => row.text(text),
            None => row.unknown(),
        };
        match own.what {
            What::Value => match value {
                Some(value) => row.value(&value),
                None => row.broken(),
            },
            What::Address => match number {
                Some(address) => row.address(address),
                None => row.broken(),
            },
            What::Stack => {
                row.list(self.printer.stack(record).map(|address| format!("\"{address:#x}\"").into_bytes()));
            }
            What::Name(named) => optional(row, self.printer.value_text(named, record, symbols).as_deref()),
            What::Syscall(calls) => {
                optional(row, number.and_then(|number| calls.name(number)).map(str::as_bytes));
            }
            What::Symbol => match number.and_then(|address| stacks::symbol(symbols, address)) {
                Some(symbol) if symbol.offset == 0 => row.text(symbol.name.as_bytes()),
                Some(symbol) => row.text(format!("{}+{:#x}", symbol.name, symbol.offset).as_bytes()),
                None => row.unknown(),
            },
        }
    }
}

/// The type and content of a field's own column.
fn value_of(printer: &Printer, field: &Field, kind: FieldKind) -> (Type, What) {
    if printer.is_kernel_stack() && field.name == STACK_FIELD {
        return (Type::List("VARCHAR"), What::Stack);
    }
    match kind {
        FieldKind::Number { .. } if printer.address(field).is_some() => (Type::Text, What::Address),
        FieldKind::Number { signed: true, .. } => (Type::Signed, What::Value),
        FieldKind::Number { signed: false, .. } => (Type::Unsigned, What::Value),
        FieldKind::Pointer { .. } | FieldKind::Text => (Type::Text, What::Value),
        FieldKind::Texts { .. } => (Type::List("VARCHAR"), What::Value),
        FieldKind::Array { signed: true, .. } => (Type::List("BIGINT"), What::Value),
        FieldKind::Array { signed: false, .. } | FieldKind::Bitmask | FieldKind::Bytes { .. } => {
            (Type::List("UBIGINT"), What::Value)
        }
    }
}

/// The columns that a field has beside its own.
fn beside(
    printer: &Printer,
    field: &Field,
    kind: FieldKind,
    calls: Option<SyscallTable>,
) -> impl Iterator<Item = (&'static str, What)> {
    let is_number = matches!(kind, FieldKind::Number { .. } | FieldKind::Pointer { .. });
    let named = if syscalls::is_number(printer.system(), &field.name) {
        calls.map(What::Syscall)
    } else {
        printer.named(field).map(What::Name)
    };
    let symbol = (printer.address(field) == Some(AddressKind::Symbol)).then_some(What::Symbol);
    let found = [("name", named), ("symbol", symbol)];
    found.into_iter().filter_map(move |(ending, what)| Some((ending, what.filter(|_| is_number)?)))
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
