//! Fields that `record --context` adds to the kernel's own: facts about the current thread and CPU when the
//! event fired.
//!
//! They follow the event's own fields, in its format, and are called `ctx_NAME`, so that none is taken for
//! one of the event's (`sched_waking` has a `pid`, a `comm` and a `prio` of its own). What has dynamic data
//! has it after them.

/// What the names of all of them begin with.
pub const PREFIX: &str = "ctx_";

/// What the names of counters begin with.
pub const COUNTER_PREFIX: &str = "ctx_perf_";

/// Fields and LTTng's names of the same contexts (`lttng add-context --list`); `cgroup` has none there.
const LTTNG: [(&str, &str); 7] = [
    ("ctx_pid", "pid"),
    ("ctx_tid", "tid"),
    ("ctx_ppid", "ppid"),
    ("ctx_comm", "procname"),
    ("ctx_cgroup", "cgroup"),
    ("ctx_uid", "uid"),
    ("ctx_prio", "prio"),
];

/// The name that LTTng has for the context in the field `name`; `None` if it is a field of the event's own.
pub fn lttng_name(name: &str) -> Option<&str> {
    if name.starts_with(COUNTER_PREFIX) {
        return name.strip_prefix(PREFIX);
    }
    LTTNG.iter().find(|(field, _)| *field == name).map(|(_, lttng)| *lttng)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contexts_are_told_from_other_fields() {
        assert_eq!(lttng_name("ctx_comm"), Some("procname"));
        assert_eq!(lttng_name("ctx_perf_cpu_cycles"), Some("perf_cpu_cycles"));
        assert_eq!((lttng_name("ctx_other"), lttng_name("pid")), (None, None));
    }
}
