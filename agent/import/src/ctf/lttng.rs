//! Names: what the kernel calls the events and fields of lttng-modules, and what other tracers call theirs.

use std::collections::BTreeMap;

use super::columns::{Place, Root};
use super::roles::Role;
use super::schema::{Event as EventClass, Trace};
use super::types::{Struct, Type};
use crate::ftrace;
use ctf_writer::{call_number, kernel_names};
use ftrace_event::syscalls::call_of;

pub(super) use kernel_names::operation_letters;

/// The system of events of which the kernel's is not known.
const LTTNG: &str = "lttng";
/// The system of events of other tracers that name none.
const OTHER: &str = "ctf";

/// Which tracer recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tracer {
    /// lttng-modules, or who writes as it does.
    LttngModules,
    /// LTTng's tracer of user space.
    LttngUst,
    Other,
}

/// What is known of the names in a trace.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tracing {
    pub(super) tracer: Tracer,
    /// Whether the machine was certainly an x86-64 one.
    pub(super) is_x86_64: bool,
}

/// What an event is called.
#[derive(Clone, Debug)]
pub(super) struct Naming {
    pub(super) system: String,
    pub(super) name: String,
    /// Whether the names are those of lttng-modules, for an event of the kernel.
    is_of_kernel: bool,
    tracing: Tracing,
}

impl Tracing {
    pub(super) fn of(trace: &Trace) -> Self {
        let tracer = match (trace.env("tracer_name"), trace.env("domain")) {
            (Some("lttng-modules"), _) => Tracer::LttngModules,
            (Some("lttng-ust"), _) => Tracer::LttngUst,
            _ => Tracer::Other,
        };
        // No other machine has these, and the width is that of a long.
        let has_event = trace.streams.values().flat_map(|stream| &stream.events).any(|event| {
            event.name.starts_with("x86_")
                || matches!(event.name.as_str(), "syscall_entry_arch_prctl" | "sys_arch_prctl")
        });
        let contexts = trace.streams.values().filter_map(|stream| stream.packet_context.as_ref());
        let has_long = contexts.flat_map(|context| &context.fields).any(|field| {
            field.roles.has(Role::Discarded)
                && matches!(&field.ty, Type::Integer(integer) if integer.bits == 64)
        });
        let is_little = trace.order == ftrace_event::Endian::Little;
        // Exports say it.
        let is_named = trace.env("machine").map(|machine| machine == "x86_64");
        Self { tracer, is_x86_64: is_named.unwrap_or(has_event && has_long && is_little) }
    }

    /// A field that the records of all events have, of an event of perf, which has them among its own.
    pub(super) fn common_field(self, class: &EventClass, name: &str) -> Option<Place> {
        let is_common = self.tracer == Tracer::Other && name.starts_with("common_");
        if is_common { Place::of(Root::Fields, class.fields.as_ref(), name) } else { None }
    }

    /// The system and the name of an event. `known` are those that the recording had, by the names that the
    /// export has.
    pub(super) fn naming(self, name: &str, known: &BTreeMap<String, (String, String)>) -> Naming {
        let naming = |system: &str, name: &str, is_of_kernel| Naming {
            system: system.to_owned(),
            name: name.to_owned(),
            is_of_kernel,
            tracing: self,
        };
        if self.tracer == Tracer::LttngModules {
            if let Some((system, name)) = known.get(name) {
                return naming(system, name, true);
            }
            return match kernel_names::event(name) {
                Some((system, name)) => naming(system, &name, true),
                // Exports in LTTng's layout have ftrace's events under their own names.
                None if ftrace::is_named(name) => naming(ftrace::SYSTEM, name, false),
                None => naming(LTTNG, name, false),
            };
        }
        match name.split_once(':') {
            Some((system, name)) if !system.is_empty() && !name.is_empty() => naming(system, name, false),
            _ if self.tracer == Tracer::LttngUst => naming(LTTNG, name, false),
            _ => naming(OTHER, name, false),
        }
    }
}

impl Naming {
    /// The name of a field, and what it has more than the trace says.
    pub(super) fn field(&self, of: &Struct, name: &str) -> (String, i64) {
        if !self.is_of_kernel {
            return (name.to_owned(), 0);
        }
        let has = |name: &str| of.fields.iter().any(|field| field.shown() == name);
        let name = kernel_names::field(&self.system, &self.name, name, has);
        let more = kernel_names::more(&self.system, &name);
        (name, more)
    }

    /// Whether a field has the bits of a block operation, where the kernel has letters.
    pub(super) fn is_operation(&self, field: &str) -> bool {
        self.is_of_kernel && self.system == "block" && field == "rwbs"
    }

    /// The number of the system call that it is of, which the kernel's records have. -1 if it is not certain.
    pub(super) fn call_number(&self) -> Option<i64> {
        if !self.is_of_kernel || self.system != "syscalls" {
            return None;
        }
        let call = call_of(&self.name)?;
        let number = call_number(call).filter(|_| self.tracing.is_x86_64);
        Some(number.map_or(-1, i64::from))
    }
}

/// What priorities of the kernel have more than those of lttng-modules.
pub(super) fn more_priority() -> i64 {
    kernel_names::more("sched", "prio")
}
