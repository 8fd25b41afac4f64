//! Copies of the strings that system calls are given.
//!
//! From 6.19 on formats of `syscalls:sys_enter_*` have a field `__ARGUMENT_val` for each argument that the
//! kernel copies (`check_faultable_syscall`, kernel/trace/trace_syscalls.c). Where a kernel's have none, the
//! recorder gives formats the same fields, at the same offsets and with the same text, so that readers see
//! one shape.

use std::fmt::Write as _;

use agent_ebpf::{STRING_MAX, SYSCALL_STRINGS};

// The specification knows the limit without knowing the programs.
const _: () = assert!(spec::STRING_MAX == STRING_MAX);

use serde::{Deserialize, Serialize};

use super::{
    compile::Mismatch,
    syscalls::{self, Call},
};
use ftrace_event::copies::{CALLS, copied_argument, copy_of};
use ftrace_event::{Format, Location};

/// The arguments that are strings which the call reads, for kernels whose formats do not tell: `NAME
/// POSITION...`.
static READ_BY_CALLS: &str = include_str!("events/syscall-strings.txt");

/// Calls whose copied argument has a length in another one, `(name, argument, length)`, as the kernel has
/// them (`user_arg_size`).
const WITH_LENGTH: [(&str, u8, u8); 6] = [
    ("write", 1, 2),
    ("pwrite64", 1, 2),
    ("mq_timedsend", 1, 2),
    ("setdomainname", 0, 1),
    ("sethostname", 0, 1),
    // The kernel takes the wrong arguments here, and so its records are reproduced.
    ("kexec_file_load", 4, 3),
];

/// Which arguments a record has copies of, as the programs are told: positions plus 1, 0 for none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Copies {
    /// The arguments.
    pub(super) positions: [u8; SYSCALL_STRINGS],
    /// The length of the only one.
    pub(super) length: u8,
}

/// The copies that a format of `sys_enter_CALL` has.
pub(super) fn copies(call: &str, format: &Format) -> Result<Copies, Mismatch> {
    let (inline, copied): (Vec<_>, Vec<_>) =
        format.fields.iter().partition(|field| field.location == Location::Inline);
    let mut copies = Copies::default();
    for (index, field) in copied.into_iter().enumerate() {
        let wrong = || Mismatch::FieldType(field.name.clone());
        let position = copied_argument(&field.name)
            .and_then(|name| inline.iter().skip(1).position(|field| field.name == name))
            .ok_or_else(wrong)?;
        *copies.positions.get_mut(index).ok_or_else(wrong)? = position as u8 + 1;
        // What is printed as an array has a length somewhere.
        let is_array = format.print_fmt.contains(&format!("__print_dynamic_array({},", field.name));
        let known = WITH_LENGTH.iter().find(|known| known.0 == call);
        match known {
            Some(&(_, argument, length)) if index == 0 && usize::from(argument) == position => {
                copies.length = length + 1;
            }
            None if !is_array => {}
            _ => return Err(wrong()),
        }
    }
    Ok(copies)
}

/// The system call `syscalls:NAME` of this format, if its records have strings.
///
/// # Errors
/// Nobody knows which they are.
pub fn call_with_strings(name: &str, format: &Format) -> Result<Option<Call>, Mismatch> {
    if !name.starts_with(CALLS) || format.fields.iter().all(|field| field.location == Location::Inline) {
        return Ok(None);
    }
    syscalls::plan("syscalls", name, format).map(Some)
}

/// The format `text` of `syscalls:NAME`, as tracefs shows it and parsed, with copies of strings; `None` if it
/// has them already or the call reads none.
pub fn extend_text(name: &str, text: &str, format: &Format) -> Option<String> {
    const PRINT: &str = "\nprint fmt: ";
    let call = name.strip_prefix(CALLS)?;
    if format.fields.iter().any(|field| field.location != Location::Inline) {
        return None;
    }
    let mut known = READ_BY_CALLS.lines().map(|line| line.split(' '));
    let positions = known.find_map(|mut words| (words.next() == Some(call)).then_some(words))?;
    let (fields, print) = text.split_once(PRINT)?;
    let (mut fields, mut print) = (fields.to_owned(), print.to_owned());
    let mut at = format.fields.last().map(|field| field.offset + field.size)?;
    for position in positions {
        // The first field is the call's number.
        let argument = &format.fields.get(position.parse::<usize>().ok()? + 1)?.name;
        let copy = copy_of(argument);
        let _ = writeln!(fields, "\tfield:__data_loc char[] {copy};\toffset:{at};\tsize:4;\tsigned:0;");
        at += 4;
        // As the kernel's own (`__set_enter_print_fmt`); without these offsets the field is there all the
        // same.
        let value = format!("((unsigned long)(REC->{argument}))");
        let conversion = format!("{argument}: 0x%08lx");
        if let (Some(shown), Some(given)) = (end_of(&print, &conversion), end_of(&print, &value)) {
            print.insert_str(given, &format!(", __get_str({copy})"));
            print.insert_str(shown, " \\\"%s\\\"");
        }
    }
    Some(format!("{fields}{PRINT}{print}"))
}

/// Where a word ends that has none of a name's characters before it.
fn end_of(text: &str, word: &str) -> Option<usize> {
    let is_whole =
        |at: &usize| !text[..*at].ends_with(|before: char| before.is_alphanumeric() || before == '_');
    text.match_indices(word).map(|(at, _)| at).find(is_whole).map(|at| at + word.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    const RENAME: &str = "name: sys_enter_rename\nID: 9\nformat:\n\
        \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
        \tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;\n\
        \tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;\n\
        \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\
        \tfield:int __syscall_nr;\toffset:8;\tsize:4;\tsigned:1;\n\
        \tfield:const char * oldname;\toffset:16;\tsize:8;\tsigned:0;\n\
        \tfield:const char * newname;\toffset:24;\tsize:8;\tsigned:0;\n";
    const RENAME_618: &str = "\nprint fmt: \"oldname: 0x%08lx, newname: 0x%08lx\", \
        ((unsigned long)(REC->oldname)), ((unsigned long)(REC->newname))\n";
    /// As 7.2 has it.
    const RENAME_72: &str = "\tfield:__data_loc char[] __oldname_val;\toffset:32;\tsize:4;\tsigned:0;\n\
        \tfield:__data_loc char[] __newname_val;\toffset:36;\tsize:4;\tsigned:0;\n\n\
        print fmt: \"oldname: 0x%08lx \\\"%s\\\", newname: 0x%08lx \\\"%s\\\"\", ((unsigned long)(REC->oldname)), \
        __get_str(__oldname_val), ((unsigned long)(REC->newname)), __get_str(__newname_val)\n";

    #[test]
    fn extended_formats_are_those_of_newer_kernels() {
        let (before, after) = ([RENAME, RENAME_618].concat(), [RENAME, RENAME_72].concat());
        let parsed = Format::parse(&before).unwrap();
        assert_eq!(extend_text("sys_enter_rename", &before, &parsed).as_deref(), Some(after.as_str()));
        let parsed = Format::parse(&after).unwrap();
        assert_eq!(extend_text("sys_enter_rename", &after, &parsed), None);
        assert_eq!(copies("rename", &parsed).unwrap(), Copies { positions: [1, 2, 0], length: 0 });
        assert_eq!(extend_text("sys_exit_rename", &before, &parsed), None);
        assert_eq!(extend_text("sys_enter_getpid", &before, &parsed), None);
    }

    #[test]
    fn copies_that_nobody_knows_are_refused() {
        let format = |print: &str| {
            let text = [RENAME, &RENAME_72.replace("__get_str(__newname_val)", print)].concat();
            Format::parse(&text).unwrap()
        };
        assert!(copies("rename", &format("__print_dynamic_array(__newname_val, 1)")).is_err());
        let renamed = RENAME_72.replace("__newname_val", "__other_val");
        assert!(copies("rename", &Format::parse(&[RENAME, &renamed].concat()).unwrap()).is_err());
        // A length belongs to the argument that it is known for.
        assert!(copies("write", &format("__get_str(__newname_val)")).is_err());
    }

    #[test]
    fn calls_are_known_once_and_have_positions() {
        let mut names = Vec::new();
        for line in READ_BY_CALLS.lines() {
            let mut words = line.split(' ');
            names.push(words.next().unwrap());
            let positions: Vec<u8> = words.map(|word| word.parse().unwrap()).collect();
            assert!((1..=SYSCALL_STRINGS).contains(&positions.len()) && positions.is_sorted(), "{line}");
            assert!(positions.iter().all(|&position| position < 6), "{line}");
        }
        assert!(names.is_sorted());
    }
}
