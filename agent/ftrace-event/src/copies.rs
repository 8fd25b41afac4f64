//! Names of the copies of strings that records of system calls have (kernel/trace/trace_syscalls.c, from 6.19
//! on, and our own recordings).

/// What the names of these events begin with.
pub const CALLS: &str = "sys_enter_";
/// How the name of a copy begins and ends.
const AROUND: (&str, &str) = ("__", "_val");

/// The argument that a field has a copy of.
pub fn copied_argument(field: &str) -> Option<&str> {
    field.strip_prefix(AROUND.0)?.strip_suffix(AROUND.1)
}

/// The name of an argument's copy.
pub fn copy_of(argument: &str) -> String {
    format!("{}{argument}{}", AROUND.0, AROUND.1)
}
