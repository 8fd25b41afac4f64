//! The events that Perfetto has messages for: names, numbers and types, as of its version 0.59
//! (protos/perfetto/trace/ftrace, message `FtraceEvent`).

use std::collections::HashMap;

/// A line for each: the event's name, its number in `FtraceEvent`, and of each field name, number and type,
/// where `*` says that there may be several.
const EVENTS: &str = include_str!("events.txt");

/// The type of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Type {
    /// `string`.
    Text,
    /// `bytes`.
    Bytes,
    /// `uint32`, of whose numbers the lower 32 bits are kept.
    Unsigned32,
    /// Any other type of whole numbers that are not zigzagged.
    Number,
}

/// A field of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Known {
    pub(super) name: &'static str,
    pub(super) number: u32,
    pub(super) ty: Type,
    pub(super) repeated: bool,
}

/// An event's message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Message {
    /// Its number in `FtraceEvent`.
    pub(super) number: u32,
    pub(super) fields: Vec<Known>,
}

/// All of them, by the event's name.
pub(super) fn messages() -> HashMap<&'static str, Message> {
    EVENTS.lines().filter_map(message).collect()
}

fn message(line: &'static str) -> Option<(&'static str, Message)> {
    let mut words = line.split(' ');
    let (name, number) = (words.next()?, words.next()?.parse().ok()?);
    let fields = words.map(field).collect::<Option<_>>()?;
    Some((name, Message { number, fields }))
}

fn field(word: &'static str) -> Option<Known> {
    let mut parts = word.split(':');
    let (name, number, ty) = (parts.next()?, parts.next()?.parse().ok()?, parts.next()?);
    let (repeated, letter) = ty.strip_prefix('*').map_or((false, ty), |ty| (true, ty));
    let ty = match letter {
        "s" => Type::Text,
        "y" => Type::Bytes,
        "u" => Type::Unsigned32,
        "U" | "i" | "I" | "b" | "e" => Type::Number,
        _ => return None,
    };
    Some(Known { name, number, ty, repeated })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_understood() {
        let messages = messages();
        assert_eq!(messages.len(), EVENTS.lines().count());
        let switch = &messages["sched_switch"];
        assert_eq!((switch.number, switch.fields.len()), (4, 7));
        let text = Known { name: "prev_comm", number: 1, ty: Type::Text, repeated: false };
        assert_eq!(switch.fields[0], text);
        assert!(messages["sys_enter"].fields[1].repeated);
    }
}
