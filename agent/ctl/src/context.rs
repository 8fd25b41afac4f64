//! Context fields: what `lttng add-context --list` names, and what files and documents call them.

use super::document::Node;
use ftrace_event::counters;

/// Fields that are no counters (lttng-add-context(1), `--type`).
const PLAIN: [&str; 38] = [
    "pid",
    "procname",
    "prio",
    "nice",
    "vpid",
    "tid",
    "pthread_id",
    "vtid",
    "ppid",
    "vppid",
    "hostname",
    "ip",
    "interruptible",
    "preemptible",
    "need_reschedule",
    "migratable",
    "callstack-kernel",
    "callstack-user",
    "cgroup_ns",
    "ipc_ns",
    "mnt_ns",
    "net_ns",
    "pid_ns",
    "time_ns",
    "user_ns",
    "uts_ns",
    "uid",
    "euid",
    "suid",
    "gid",
    "egid",
    "sgid",
    "vuid",
    "veuid",
    "vsuid",
    "vgid",
    "vegid",
    "vsgid",
];

/// The names of all fields, in LTTng's order.
pub(super) fn names() -> impl Iterator<Item = String> {
    let counters = ["cpu", "thread"].into_iter();
    let counters = counters.flat_map(|of| counters_of(of).collect::<Vec<_>>());
    PLAIN.into_iter().map(str::to_owned).chain(counters)
}

fn counters_of(of: &'static str) -> impl Iterator<Item = String> {
    counters::LTTNG.into_iter().map(move |(name, ..)| format!("perf:{of}:{name}"))
}

/// Whether LTTng has a field of this name. Fields of raw counters and of applications have names that are
/// not in the list: `perf:cpu:raw:rN:NAME`, `$app.PROVIDER:TYPE`.
pub(super) fn is_known(name: &str) -> bool {
    names().any(|known| known == name) || name.starts_with("$app.") || raw(name).is_some()
}

/// The parts of `perf:(cpu|thread):raw:rN:NAME`.
fn raw(name: &str) -> Option<(&str, u64, &str)> {
    let (of, rest) = name.strip_prefix("perf:")?.split_once(':')?;
    let (number, name) = rest.strip_prefix("raw:r")?.split_once(':')?;
    let number = u64::from_str_radix(number, 16).ok()?;
    (matches!(of, "cpu" | "thread") && !name.is_empty()).then_some((of, number, name))
}

/// The parts of a context as documents and files have them: its type, or its counter, or its application.
pub(super) fn node(name: &str) -> Node {
    let perf = |kind: u32, number: u64, name: &str| {
        Node::Parts(
            "perf",
            vec![
                Node::number("type", kind),
                Node::number("config", number),
                Node::text("name", name.replace([':', '-'], "_")),
            ],
        )
    };
    if let Some((of, number, raw)) = raw(name) {
        return perf(counters::RAW, number, &format!("perf:{of}:raw:r{number:x}:{raw}"));
    }
    let counter = name
        .rsplit(':')
        .next()
        .and_then(|last| counters::LTTNG.into_iter().find(|(known, ..)| *known == last));
    match counter {
        Some((_, kind, number)) if name.starts_with("perf:") => return perf(kind, number, name),
        _ => {}
    }
    if let Some((provider, of)) = name.strip_prefix("$app.").and_then(|rest| rest.split_once(':')) {
        return Node::Parts("app", vec![Node::text("provider_name", provider), Node::text("ctx_name", of)]);
    }
    Node::text("type", name.replace('-', "_").to_uppercase())
}

/// Whether LTTng's files have a name for a field that leads back to this one.
pub(super) fn has_node(name: &str) -> bool {
    let is_plain = |(_, number, raw): (&str, u64, &str)| {
        let is_part = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        name.contains(&format!(":raw:r{number:x}:")) && raw.bytes().all(is_part)
    };
    // Blanks around texts are lost where files are read.
    let is_whole = |(provider, of): (&str, &str)| provider.trim() == provider && of.trim() == of;
    names().any(|known| known == name)
        || raw(name).is_some_and(is_plain)
        || name.strip_prefix("$app.").and_then(|rest| rest.split_once(':')).is_some_and(is_whole)
}

/// The name of a type in a file: `CALLSTACK_KERNEL`.
pub(super) fn of_type(kind: &str) -> Option<String> {
    PLAIN.into_iter().find(|name| name.replace('-', "_").to_uppercase() == kind).map(str::to_owned)
}

/// The name of a counter in a file, from the name that LTTng wrote for it: `perf_cpu_cpu_cycles`.
pub(super) fn of_counter(written: &str) -> Option<String> {
    names().filter(|name| name.starts_with("perf:")).find(|name| name.replace([':', '-'], "_") == written)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_list() {
        let names: Vec<String> = names().collect();
        assert_eq!(names.len(), 38 + 2 * 53);
        assert_eq!(names.last().map(String::as_str), Some("perf:thread:emulation-faults"));
        assert!(names.iter().all(|name| is_known(name)));
        assert!(is_known("perf:cpu:raw:r003c:mine") && is_known("$app.a:b"));
        for wrong in ["", "nope", "perf:cpu:nope", "perf:cpu:raw:rxx:mine", "perf:node:cycles"] {
            assert!(!is_known(wrong), "{wrong}");
        }
    }

    #[test]
    fn what_files_have_leads_back_to_the_name() {
        for name in names() {
            let back = match node(&name) {
                Node::Text("type", kind) => of_type(&kind),
                Node::Parts("perf", parts) => match &parts[2] {
                    Node::Text("name", written) => of_counter(written),
                    other => panic!("{other:?}"),
                },
                other => panic!("{other:?}"),
            };
            assert_eq!(back, Some(name));
        }
    }
}
