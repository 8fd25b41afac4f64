//! System calls: one event for each call and direction.
//!
//! The kernel has them in two ways: `syscalls:sys_enter_NAME` with named arguments, each stored as a long,
//! and `raw_syscalls:sys_enter` with a number and six longs. The names and arguments for the latter come from
//! a table of x86-64; calls of 32-bit programs have names alone. Texts are in the former only, and only where
//! the kernel or the recorder has read them.

use super::super::schema::{CallEvents, Choice, Event, Field, Source};
use super::super::types::{Integer, Type};
use super::{names, texts};
use ftrace_event::syscalls::ia32_functions;
use ftrace_event::{Meaning, Printer};

/// Lines `number name argument:kind ...`; kinds are `i` int, `u` unsigned int, `l` long, `x` unsigned long,
/// `p` pointer. Made from `arch/x86/entry/syscalls/syscall_64.tbl` and the formats of tracefs' `syscalls` of
/// Linux 6.18.
const TABLE: &str = include_str!("syscalls_x86_64.txt");

/// The number of a system call on x86-64.
pub fn number(call: &str) -> Option<u32> {
    let found = TABLE.lines().find_map(|line| {
        let mut words = line.split(' ');
        let number = words.next()?;
        (words.next()? == call).then_some(number)
    });
    found?.parse().ok()
}

/// The type that an argument has in C, by the letter of the table.
fn of_kind(kind: &str) -> Integer {
    match kind {
        "i" => Integer::new(4, true),
        "u" => Integer::new(4, false),
        "l" => Integer::new(8, true),
        "p" => Integer::hex(8),
        _ => Integer::new(8, false),
    }
}

/// Fields of `syscalls:*`: arguments as long as their C types, or the texts behind them. The number is in the
/// event's name.
pub(super) fn fields(printer: &Printer, fields: Vec<Field>) -> Vec<Field> {
    let exit = printer.name().starts_with("sys_exit_");
    let call = printer.name().trim_start_matches("sys_enter_").trim_start_matches("sys_exit_");
    let declared = &printer.format().fields;
    let is_text = |argument: &str| !exit && texts::is_text(call, argument);
    let is_argument = |name: &str| declared.iter().any(|field| field.name == name && field.size == 8);
    let copies: Vec<(&str, usize)> = fields
        .iter()
        .zip(declared)
        .filter(|(field, _)| !exit && field.ty == Type::String)
        .filter_map(|(field, declared)| match field.source {
            Source::Record(field_index) => Some((texts::argument_of(&declared.name)?, field_index)),
            _ => None,
        })
        .filter(|(argument, _)| is_argument(argument))
        .collect();
    let copy_of = |name: &str| copies.iter().find(|(argument, _)| *argument == name).map(|(_, copy)| *copy);
    let argument = |(mut field, declared): (Field, &ftrace_event::Field)| {
        let number = matches!(field.name.as_str(), "__syscall_nr" | "nr") && field.name == declared.name;
        if number || texts::argument_of(&declared.name).is_some_and(|argument| copy_of(argument).is_some()) {
            return None;
        }
        if let (Type::Integer(_), 8) = (&field.ty, declared.size) {
            let copy = copy_of(&declared.name);
            if let (true, Source::Record(field_index)) =
                (copy.is_some() || is_text(&declared.name), field.source)
            {
                field.ty = Type::String;
                field.source =
                    copy.map_or(Source::TextBehind(field_index), |copy| Source::Copy(copy, field_index));
            } else {
                let integer = if exit { Integer::new(8, true) } else { of_type(&declared.type_text) };
                field.ty = Type::Integer(integer);
            }
        }
        if field.name == declared.name {
            names::argument(call, &declared.name).clone_into(&mut field.name);
        }
        Some(field)
    };
    fields.into_iter().zip(declared).filter_map(argument).collect()
}

/// The type of an argument, which the record has as a long.
fn of_type(type_text: &str) -> Integer {
    let words: Vec<&str> = type_text.split_whitespace().filter(|word| *word != "const").collect();
    match words.as_slice() {
        _ if type_text.contains('*') => of_kind("p"),
        ["int" | "pid_t" | "clockid_t" | "timer_t" | "key_t" | "rwf_t" | "s32" | "__s32"] => of_kind("i"),
        [
            "unsigned" | "u32" | "__u32" | "umode_t" | "uid_t" | "gid_t" | "qid_t" | "key_serial_t" | "mqd_t",
        ]
        | ["unsigned", "int"] => of_kind("u"),
        ["long" | "loff_t" | "off_t" | "ssize_t"] => of_kind("l"),
        _ => of_kind("x"),
    }
}

/// The events of `raw_syscalls:sys_enter` and `sys_exit`: those of the table, one for all other numbers, and
/// the same of 32-bit calls (`compat_syscall_entry_open`), whose arguments are numbers without names.
pub(super) fn raw(printer: &Printer, fields: &[Field], events: &mut Vec<Event>) -> Choice {
    let (entry, prefix) = match printer.name() {
        "sys_enter" => (true, "syscall_entry_"),
        _ => (false, "syscall_exit_"),
    };
    let number = super::number_index(printer, "id");
    let unknown = events.len() as u32;
    events.push(Event { name: format!("{prefix}unknown"), contexts: 0, fields: fields.to_vec() });
    let Some(number) = number else { return Choice::One(unknown) };
    let mut native = CallEvents { by_number: Vec::new(), unknown };
    let numbers = printer.typed("args", Meaning::Numbers);
    let arguments = numbers.and(printer.field_index("args"));
    for line in TABLE.lines() {
        let mut words = line.split(' ');
        let (Some(Ok(call)), Some(name)) = (words.next().map(str::parse::<usize>), words.next()) else {
            continue;
        };
        let fields = if entry {
            let argument = |(index, word): (usize, &str)| {
                let (argument, kind) = word.split_once(':')?;
                let (ty, source) = if texts::is_text(name, argument) {
                    (Type::String, Source::TextBehindElement(arguments?, index))
                } else {
                    (Type::Integer(of_kind(kind)), Source::Element(arguments?, index))
                };
                Some(Field { name: names::argument(name, argument).to_owned(), ty, source })
            };
            words.enumerate().filter_map(argument).collect()
        } else {
            fields.iter().filter(|field| field.name == "ret").cloned().collect()
        };
        native.set(call, events.len() as u32);
        events.push(Event { name: format!("{prefix}{name}"), contexts: 0, fields });
    }
    let mut compat = CallEvents { by_number: Vec::new(), unknown: events.len() as u32 };
    let mut declare = |name: &str, fields: Vec<Field>| {
        events.push(Event { name: format!("compat_{prefix}{name}"), contexts: 0, fields });
        events.len() as u32 - 1
    };
    declare("unknown", fields.to_vec());
    let fields: Vec<Field> = fields.iter().filter(|field| field.name != "id").cloned().collect();
    // LTTng's events have the names of the kernel's functions.
    for (number, function) in (0..).zip(ia32_functions()) {
        if let Some(function) = function {
            compat.set(number, declare(function, fields.clone()));
        }
    }
    Choice::SystemCall { number, tables: [native, compat] }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use ftrace_event::syscalls::COMPAT;
    use ftrace_event::{EventTable, Machine, NoNames, RecordReader};

    #[test]
    fn every_line_of_the_table_is_whole() {
        let mut last = None;
        for line in TABLE.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            let number: u32 = words[0].parse().unwrap();
            assert!(last < Some(number), "{line}");
            last = Some(number);
            assert!(words[1].bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_'), "{line}");
            assert!(words.len() <= 8, "{line}");
            assert!(words[2..].iter().all(|word| {
                let (argument, kind) = word.split_once(':').unwrap();
                kind == "p" || !texts::is_text(words[1], argument)
            }));
            for word in &words[2..] {
                let (name, kind) = word.split_once(':').unwrap();
                assert!(!name.is_empty() && ["i", "u", "l", "x", "p"].contains(&kind), "{line}");
            }
        }
        assert_eq!(TABLE.lines().nth(1), Some("1 write fd:u buf:p count:x"));
        assert_eq!((number("write"), number("openat"), number("other")), (Some(1), Some(257), None));
    }

    #[test]
    fn every_number_has_the_event_of_its_table() {
        let mut events = EventTable::new(Machine::default());
        let text = "name: sys_exit\nID: 9\nformat:\n\
            \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
            \tfield:long id;\toffset:8;\tsize:8;\tsigned:1;\n\
            \tfield:long ret;\toffset:16;\tsize:8;\tsigned:1;\n\nprint fmt: \"\"\n";
        events.add("raw_syscalls", text, &NoNames).unwrap();
        let printer = events.get(9).unwrap();
        let reader = RecordReader::new(printer.format(), Machine::default());
        let mut declared = Vec::new();
        let choice = raw(printer, &super::super::fields(printer, &reader), &mut declared);
        let Choice::SystemCall { tables, .. } = choice else { panic!("{choice:?}") };
        for (number, name) in [
            (Some(5), "syscall_exit_newfstat"),
            (Some(COMPAT + 5), "compat_syscall_exit_open"),
            (Some(COMPAT + 17), "compat_syscall_exit_break"),
            (Some(COMPAT + 24), "compat_syscall_exit_getuid16"),
            (Some(COMPAT + 102), "compat_syscall_exit_socketcall"),
            (Some(COMPAT + 122), "compat_syscall_exit_newuname"),
            (Some(COMPAT + 199), "compat_syscall_exit_getuid"),
            (Some(COMPAT + 422), "compat_syscall_exit_futex"),
            (Some(COMPAT + 511), "compat_syscall_exit_unknown"),
            (Some(i64::MAX), "compat_syscall_exit_unknown"),
            (Some(-1), "syscall_exit_unknown"),
            (None, "syscall_exit_unknown"),
        ] {
            assert_eq!(declared[Choice::of_call(&tables, number) as usize].name, name, "{number:?}");
        }
        let names: BTreeSet<&str> = declared.iter().map(|event| event.name.as_str()).collect();
        assert_eq!(names.len(), declared.len());
    }

    #[test]
    fn arguments_have_their_types() {
        for (text, kind) in [
            ("unsigned int", "u"),
            ("int", "i"),
            ("const clockid_t", "i"),
            ("const char *", "p"),
            ("size_t", "x"),
            ("loff_t", "l"),
            ("unsigned long", "x"),
        ] {
            assert_eq!(of_type(text), of_kind(kind), "{text}");
        }
    }
}
