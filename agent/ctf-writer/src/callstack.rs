//! Stacks as contexts of their events, as LTTng has them (lttng-context-callstack.c of lttng-modules 2.13):
//! `callstack_kernel` and `callstack_user`, sequences of addresses.
//!
//! In a recording, stacks are records that follow the record of their event. So an event waits for the record
//! after it. A stack that another record separates from its event, as when an interrupt came in between, or a
//! loss, belongs to none.

use serde::{Deserialize, Serialize};

use super::types::{Integer, Type};
use ftrace_event::stacks::{Origin, Stack};
use ftrace_event::{Printer, Value};
use tracedat::reader::Record;

/// Which stacks a channel has as contexts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallStacks {
    /// Of the kernel.
    pub kernel: bool,
    /// Of processes.
    pub user: bool,
}

/// Whose stack a context is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallStack {
    /// The kernel's.
    Kernel,
    /// The process's.
    User,
}

impl CallStacks {
    /// Those whose records a channel has.
    pub(super) fn of(printers: &[&Printer]) -> Self {
        let mut stacks = printers.iter().filter(|printer| printer.is_stack());
        let kernel = stacks.clone().any(|printer| printer.is_kernel_stack());
        Self { kernel, user: stacks.any(|printer| !printer.is_kernel_stack()) }
    }

    /// Whether there are any.
    pub(super) fn any(self) -> bool {
        self.kernel || self.user
    }

    /// The contexts, which every event has.
    pub(super) fn fields(self) -> impl Iterator<Item = (&'static str, Type, CallStack)> {
        let ty = || Type::Sequence { element: Integer::hex(8) };
        let kernel = self.kernel.then(|| ("callstack_kernel", ty(), CallStack::Kernel));
        kernel.into_iter().chain(self.user.then(|| ("callstack_user", ty(), CallStack::User)))
    }
}

impl CallStack {
    /// The addresses of a stack, the innermost first.
    pub(super) fn addresses(self, stack: &Stack) -> &[u64] {
        match self {
            Self::Kernel => &stack.kernel,
            Self::User => &stack.user,
        }
    }
}

/// An event that waits for its stacks.
#[derive(Debug)]
pub(super) struct Held {
    /// The record, without its bytes.
    record: Record<'static>,
    data: Vec<u8>,
    /// Its thread and the kind of interrupt.
    from: Option<(u64, u64)>,
    /// The stacks that have come.
    pub(super) stack: Stack,
    /// How many of their records have another time than the event.
    pub(super) later_stacks: u64,
}

impl Held {
    /// Holds the record of an event.
    pub(super) fn new(record: &Record<'_>, printer: Option<&Printer>) -> Self {
        Self {
            record: Record { data: &[], ..*record },
            data: record.data.to_vec(),
            from: printer.and_then(|printer| from(record, printer)),
            stack: Stack::default(),
            later_stacks: 0,
        }
    }

    /// The record.
    pub(super) fn record(&self) -> Record<'_> {
        Record { data: &self.data, ..self.record }
    }

    /// Takes a record that is a stack. Gives whether it is one of this event, which it may be `later` than.
    pub(super) fn take(&mut self, record: &Record<'_>, printer: &Printer, later: bool) -> bool {
        let is_later = record.timestamp != self.record.timestamp;
        let is_next = record.missed.is_none() && (later || !is_later);
        let is_of_it = is_next && self.from.is_some() && self.from == from(record, printer);
        if is_of_it {
            self.stack.add(printer, record.data);
            self.later_stacks += u64::from(is_later);
        }
        is_of_it
    }
}

/// Where a record was made: the thread, and the kind of interrupt.
fn from(record: &Record<'_>, printer: &Printer) -> Option<(u64, u64)> {
    let number = |name| match printer.value(printer.field_index(name)?, record.data)?.ok()? {
        Value::Signed(number) => Some(number.cast_unsigned()),
        Value::Unsigned(number) => Some(number),
        _ => None,
    };
    let origin = Origin { stream: (record.buffer, record.cpu), flags: number("common_flags")? };
    Some((number("common_pid")?, origin.context()))
}
