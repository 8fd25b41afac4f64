//! Context fields: what `lttng add-context --list` names, and what files and documents call them.

use super::document::Node;

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

/// Counters of the processor: `PERF_TYPE_HARDWARE`, `PERF_TYPE_SOFTWARE` and `PERF_TYPE_HW_CACHE` of
/// `include/uapi/linux/perf_event.h`, with their number there.
const COUNTERS: [(&str, u32, u64); 49] = [
    ("cpu-cycles", 0, 0),
    ("cycles", 0, 0),
    ("stalled-cycles-frontend", 0, 7),
    ("idle-cycles-frontend", 0, 7),
    ("stalled-cycles-backend", 0, 8),
    ("idle-cycles-backend", 0, 8),
    ("instructions", 0, 1),
    ("cache-references", 0, 2),
    ("cache-misses", 0, 3),
    ("branch-instructions", 0, 4),
    ("branches", 0, 4),
    ("branch-misses", 0, 5),
    ("bus-cycles", 0, 6),
    ("L1-dcache-loads", 3, 0),
    ("L1-dcache-load-misses", 3, 0x1_0000),
    ("L1-dcache-stores", 3, 0x100),
    ("L1-dcache-store-misses", 3, 0x1_0100),
    ("L1-dcache-prefetches", 3, 0x200),
    ("L1-dcache-prefetch-misses", 3, 0x1_0200),
    ("L1-icache-loads", 3, 1),
    ("L1-icache-load-misses", 3, 0x1_0001),
    ("L1-icache-stores", 3, 0x101),
    ("L1-icache-store-misses", 3, 0x1_0101),
    ("L1-icache-prefetches", 3, 0x201),
    ("L1-icache-prefetch-misses", 3, 0x1_0201),
    ("LLC-loads", 3, 2),
    ("LLC-load-misses", 3, 0x1_0002),
    ("LLC-stores", 3, 0x102),
    ("LLC-store-misses", 3, 0x1_0102),
    ("LLC-prefetches", 3, 0x202),
    ("LLC-prefetch-misses", 3, 0x1_0202),
    ("dTLB-loads", 3, 3),
    ("dTLB-load-misses", 3, 0x1_0003),
    ("dTLB-stores", 3, 0x103),
    ("dTLB-store-misses", 3, 0x1_0103),
    ("dTLB-prefetches", 3, 0x203),
    ("dTLB-prefetch-misses", 3, 0x1_0203),
    ("iTLB-loads", 3, 4),
    ("iTLB-load-misses", 3, 0x1_0004),
    ("branch-loads", 3, 5),
    ("branch-load-misses", 3, 0x1_0005),
    ("cpu-clock", 1, 0),
    ("task-clock", 1, 1),
    ("page-fault", 1, 2),
    ("faults", 1, 2),
    ("major-faults", 1, 6),
    ("minor-faults", 1, 5),
    ("context-switches", 1, 3),
    ("cs", 1, 3),
];
/// The rest of them.
const MORE_COUNTERS: [(&str, u32, u64); 4] =
    [("cpu-migrations", 1, 4), ("migrations", 1, 4), ("alignment-faults", 1, 7), ("emulation-faults", 1, 8)];

fn counters() -> impl Iterator<Item = (&'static str, u32, u64)> {
    COUNTERS.into_iter().chain(MORE_COUNTERS)
}

/// The names of all fields, in LTTng's order.
pub(super) fn names() -> impl Iterator<Item = String> {
    let counters = ["cpu", "thread"].into_iter();
    let counters = counters.flat_map(|of| counters_of(of).collect::<Vec<_>>());
    PLAIN.into_iter().map(str::to_owned).chain(counters)
}

fn counters_of(of: &'static str) -> impl Iterator<Item = String> {
    counters().map(move |(name, ..)| format!("perf:{of}:{name}"))
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

/// `PERF_TYPE_RAW`.
const RAW: u32 = 4;

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
    let counter = name.rsplit(':').next().and_then(|last| counters().find(|(known, ..)| *known == last));
    match counter {
        Some((_, kind, number)) if name.starts_with("perf:") => return perf(kind, number, name),
        _ => {}
    }
    if let Some((of, number, raw)) = raw(name) {
        return perf(RAW, number, &format!("perf:{of}:raw:r{number:x}:{raw}"));
    }
    if let Some((provider, of)) = name.strip_prefix("$app.").and_then(|rest| rest.split_once(':')) {
        return Node::Parts("app", vec![Node::text("provider_name", provider), Node::text("ctx_name", of)]);
    }
    Node::text("type", name.replace('-', "_").to_uppercase())
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
