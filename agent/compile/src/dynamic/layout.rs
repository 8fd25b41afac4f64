//! The record of a probe's event, as the kernel lays out those of its own (`kprobe_event_define_fields`,
//! `__set_print_fmt`, kernel/trace/trace_kprobe.c and trace_probe.c): the address, and after it the arguments
//! without gaps.

use std::fmt::Write as _;

use super::{
    compile::{FAULT_TEXT, THREAD_NAME_ROOM},
    fetch::{Argument, Fetch, Kind, Style},
};
use crate::context::ContextLayout;
use crate::probe_filter::ProbeRule;
use crate::shape::{COMMON_LEN, EventShape, ShapeField};

/// The longest record: what the queue for interrupting programs takes.
const RECORD_MAX: u32 = agent_ebpf::SIDE_RECORD_MAX as u32;
/// The most room that one text gets, NUL included. A record takes the room of its longest form at the end of
/// a page.
const TEXT_MAX: u32 = 512;

/// An event of a probe.
#[derive(Clone, Debug)]
pub struct Layout {
    pub(super) group: String,
    pub(super) name: String,
    /// Whether the record has the addresses of function and caller instead of the probe's.
    pub(super) returns: bool,
    /// Whether the address is shown by name: there are many functions.
    pub(super) many: bool,
    /// Whether it is recorded whoever's events are.
    pub(super) of_anyone: bool,
    /// Where each argument is.
    pub(super) offsets: Vec<u32>,
    /// Room of each argument's text, NUL and one more included; 0 for numbers.
    pub(super) rooms: Vec<u32>,
    /// Behind the arguments.
    pub(super) contexts: ContextLayout,
    /// Bytes of the fixed part, where the texts begin.
    pub(super) fixed: u32,
    pub(super) arguments: Vec<Argument>,
}

impl Layout {
    /// The layout of an event; `None` if it does not fit a record.
    pub(super) fn new(
        group: &str,
        name: &str,
        (returns, many): (bool, bool),
        arguments: &[Argument],
        rule: &ProbeRule<'_>,
    ) -> Option<Self> {
        let mut fixed = COMMON_LEN + if returns { 16 } else { 8 };
        let mut offsets = Vec::new();
        for argument in arguments {
            offsets.push(fixed);
            fixed += argument.kind.size() * argument.count.unwrap_or(1);
        }
        let contexts = rule.contexts.lay_out(fixed, false, rule.facts);
        fixed = contexts.end;
        let known = |argument: &Argument| match (&argument.fetch, argument.kind) {
            (_, Kind::Number { .. } | Kind::Bits { .. } | Kind::Symbol) => Some(0),
            (Fetch::Comm, _) => Some(THREAD_NAME_ROOM),
            (Fetch::Text(text), _) => Some(text.len() as u32 + 1),
            _ => None,
        };
        let open = arguments.iter().filter(|argument| known(argument).is_none()).count() as u32;
        let taken: u32 = fixed + arguments.iter().filter_map(known).sum::<u32>();
        let share =
            RECORD_MAX.checked_sub(taken.next_multiple_of(8))?.checked_div(open).unwrap_or(0).min(TEXT_MAX);
        if open != 0 && share < FAULT_TEXT.len() as u32 + 2 {
            return None;
        }
        let rooms = arguments.iter().map(|argument| known(argument).unwrap_or(share)).collect();
        Some(Self {
            group: group.to_owned(),
            name: name.to_owned(),
            returns,
            many,
            of_anyone: false,
            offsets,
            rooms,
            contexts,
            fixed,
            arguments: arguments.to_vec(),
        })
    }

    /// The longest record.
    pub(super) fn max(&self) -> u32 {
        self.fixed + self.rooms.iter().sum::<u32>()
    }

    /// How many fields the addresses in front of the arguments are.
    pub(super) fn address_fields(&self) -> usize {
        if self.returns { 2 } else { 1 }
    }

    /// What readers are told.
    pub(super) fn recorded_shape(&self) -> EventShape {
        let mut shape = self.shape();
        self.contexts.extend(&mut shape);
        shape
    }

    /// The same without the contexts.
    pub(super) fn shape(&self) -> EventShape {
        let address = |name: &str, offset| ShapeField {
            declaration: format!("unsigned long {name}"),
            offset,
            size: 8,
            signed: false,
        };
        let mut fields = if self.returns {
            vec![address("__probe_func", 8), address("__probe_ret_ip", 16)]
        } else {
            vec![address("__probe_ip", 8)]
        };
        fields.extend(
            self.arguments.iter().zip(&self.offsets).map(|(argument, &offset)| field(argument, offset)),
        );
        EventShape {
            system: self.group.clone(),
            name: self.name.clone(),
            fields,
            print_fmt: self.print_fmt(),
        }
    }

    fn print_fmt(&self) -> String {
        let mut format = String::from(match (self.returns, self.many) {
            (true, false) => "\"(%lx <- %lx)",
            (true, true) => "\"(%lx <- %pS)",
            (false, false) => "\"(%lx)",
            (false, true) => "\"(%pS)",
        });
        let mut values = String::from(match (self.returns, self.many) {
            (true, false) => ", REC->__probe_func, REC->__probe_ret_ip",
            (true, true) => ", REC->__probe_ret_ip, (void *)REC->__probe_func",
            (false, false) => ", REC->__probe_ip",
            (false, true) => ", (void *)REC->__probe_ip",
        });
        for Argument { name, kind, count, .. } in &self.arguments {
            let conversion = conversion(*kind);
            let one = |element: &str| match kind {
                Kind::Text { .. } => format!(", __get_str({name}{element})"),
                Kind::Symbol => format!(", (void *)REC->{name}{element}"),
                _ => format!(", REC->{name}{element}"),
            };
            match count {
                None => {
                    let _ = write!(format, " {name}={conversion}");
                    values += &one("");
                }
                Some(count) => {
                    let all = vec![conversion; *count as usize].join(",");
                    let _ = write!(format, " {name}={{{all}}}");
                    values.extend((0..*count).map(|index| one(&format!("[{index}]"))));
                }
            }
        }
        format!("{format}\"{values}")
    }
}

fn conversion(kind: Kind) -> &'static str {
    match kind {
        Kind::Bits { size: 8, signed: true, .. } => "%Ld",
        Kind::Bits { signed: true, .. } => "%d",
        Kind::Number { size: 8, style: Style::Unsigned } | Kind::Bits { size: 8, .. } => "%Lu",
        Kind::Number { style: Style::Unsigned, .. } | Kind::Bits { .. } => "%u",
        Kind::Number { size: 8, style: Style::Signed } => "%Ld",
        Kind::Number { style: Style::Signed, .. } => "%d",
        Kind::Number { size: 8, style: Style::Hexadecimal } => "0x%Lx",
        Kind::Number { style: Style::Hexadecimal, .. } => "0x%x",
        Kind::Number { style: Style::Character, .. } => "'%c'",
        Kind::Text { .. } => "\\\"%s\\\"",
        Kind::Symbol => "%pS",
    }
}

fn field(argument: &Argument, offset: u32) -> ShapeField {
    let Argument { name, kind, count, .. } = argument;
    let size = kind.size() * count.unwrap_or(1);
    let (declaration, signed) = match kind {
        Kind::Text { .. } => (format!("__data_loc char[] {name}"), true),
        Kind::Number { size, style: Style::Signed } | Kind::Bits { size, signed: true, .. } => {
            (format!("s{} {name}", size * 8), true)
        }
        Kind::Number { size, .. } | Kind::Bits { size, .. } => (format!("u{} {name}", size * 8), false),
        Kind::Symbol => (format!("u64 {name}"), false),
    };
    let declaration = match count {
        Some(count) => format!("{declaration}[{count}]"),
        None => declaration,
    };
    ShapeField { declaration, offset, size, signed }
}
