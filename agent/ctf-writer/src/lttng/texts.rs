//! Arguments of system calls that are texts.
//!
//! The kernel's records have the addresses of these. Since Linux 6.19 they have copies too, for many more
//! calls than lttng-modules reads texts of: a field `__NAME_val` after the arguments for a text that the
//! argument NAME points to (kernel/trace/trace_syscalls.c).

/// What stands for a text that was not recorded. LTTng's analyses call files so whose names they do not know.
const UNRECORDED: &[u8] = b"unknown";

/// Lines `call argument ...`: what lttng-modules 2.13 reads as text on x86-64 (`ctf_user_string` in
/// `include/instrumentation/syscalls/headers/{x86-64-,}syscalls_pointers{,_override}.h`).
const TEXTS: &str = include_str!("texts_2.13.txt");

/// Whether lttng-modules has an argument of a system call as text.
pub(super) fn is_text(call: &str, argument: &str) -> bool {
    let arguments = TEXTS.lines().find_map(|line| line.strip_prefix(call)?.strip_prefix(' '));
    arguments.is_some_and(|arguments| arguments.split(' ').any(|known| known == argument))
}

/// The argument that a field of the record is the text of, by its name.
pub(super) fn argument_of(copy: &str) -> Option<&str> {
    copy.strip_prefix("__")?.strip_suffix("_val")
}

/// The text behind an address that the record has and nothing else: none behind no address, as lttng-modules
/// has it, and otherwise a word in its place.
pub(in super::super) fn behind(address: u64) -> &'static [u8] {
    if address == 0 { b"" } else { UNRECORDED }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_known_by_call_and_argument() {
        assert!(is_text("openat", "filename") && is_text("mount", "type") && is_text("rename", "newname"));
        assert!(!is_text("openat", "flags") && !is_text("open", "name") && !is_text("openat2", "filename"));
        assert_eq!((argument_of("__filename_val"), argument_of("__syscall_nr")), (Some("filename"), None));
        assert_eq!((behind(0), behind(1)), (&b""[..], UNRECORDED));
    }
}
