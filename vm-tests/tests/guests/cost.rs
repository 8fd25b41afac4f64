//! What recording costs those who are recorded, in instructions, beside stock trace-cmd.

use vm_tests::{Kernel, cost, on_kernels, soak_on_kernels};

on_kernels! {
    k6_12_cloud: [
        events_cost_fewer_instructions_than_with_trace_cmd,
        a_thousand_functions_are_attached_and_let_go,
    ],
}
soak_on_kernels! {
    k6_1_cloud: [
        events_cost_fewer_instructions_than_with_trace_cmd,
        a_thousand_functions_are_attached_and_let_go,
    ],
}

/// What recording adds to a call, on 6.12 and on 6.1: the figures of docs/performance-results.md.
const ADDED: [(&str, f64, f64); 12] = [
    ("sys_enter", 357.0, 473.0),
    ("sys_enter_getppid", 453.0, 564.0),
    ("sys_*_openat", 1202.0, 1474.0),
    ("sys_*_openat, no strings", 780.0, 1024.0),
    ("generic sys_enter", 673.0, 740.0),
    ("generic sys_exit", 647.0, 712.0),
    ("kprobe", 572.0, 714.0),
    ("kprobe with arguments", 681.0, 799.0),
    ("kprobe with a text", 829.0, 922.0),
    ("kretprobe", 854.0, 973.0),
    ("uprobe", 2057.0, 2268.0),
    ("uprobe with a text", 2377.0, 2700.0),
];

/// What the figures may differ by: other builds of the same kernel series, and what an open costs by itself,
/// which is a few percent of its thousands of instructions more or less.
const MARGIN: f64 = 1.15;

/// The figures are the guest's own count of instructions, so that they are the same on every host.
/// docs/performance-results.md has them.
fn events_cost_fewer_instructions_than_with_trace_cmd(kernel: &Kernel) {
    let costs = cost::measure(kernel, "").unwrap_or_else(|error| panic!("{error}"));
    println!("{}", cost::HEADER);
    for cost in &costs {
        println!("{cost}");
    }
    for cost in &costs {
        assert!(cost.theirs > cost.untraced * 1.05, "nothing was measured: {cost}");
        // A uprobe's breakpoint costs the same whoever records it. On 6.1, kprobes are perf's, and a program
        // calls more helpers.
        let most = match (kernel.name, cost.name) {
            ("6.1-cloud", "kprobe" | "kretprobe") => 1.1,
            // The path is copied, which trace-cmd's records do not have.
            ("6.1-cloud", "sys_*_openat") => 1.3,
            (_, "sys_*_openat") => 1.05,
            ("6.1-cloud", name) if name.starts_with("generic") => 1.4,
            ("6.1-cloud", _) => 1.0,
            (_, "kprobe" | "kretprobe") => 0.9,
            (_, name) if name.starts_with("uprobe") => 0.9,
            // perf makes the record first.
            (_, name) if name.starts_with("generic") => 1.25,
            _ => 0.8,
        };
        assert!(cost.ratio() <= most, "{}: {cost}, and the ratio may be {most} at most", kernel.name);
        let (_, on_6_12, on_6_1) = ADDED.iter().find(|(name, ..)| *name == cost.name).unwrap();
        let known = if kernel.name == "6.1-cloud" { on_6_1 } else { on_6_12 };
        let added = cost.ours - cost.untraced;
        assert!(added <= known * MARGIN, "{}: {cost}, and {known} were added before", kernel.name);
    }
    assert_eq!(costs.len(), ADDED.len());
}

/// Three seconds at an instruction a nanosecond, less than processors do. Without `kprobe.multi`, as on 6.1,
/// the kernel changes its code for each function by itself, and goes through all of its functions for that:
/// docs/performance-results.md says what it does.
fn a_thousand_functions_are_attached_and_let_go(kernel: &Kernel) {
    const SECOND: u64 = 1_000_000_000;
    let probes = cost::measure_many(kernel, "acpi_*").unwrap_or_else(|error| panic!("{error}"));
    println!("{}: {probes:?}", kernel.name);
    assert!(probes.functions >= 1000, "{probes:?}");
    let most = if kernel.name == "6.1-cloud" { 14 } else { 3 };
    assert!(probes.attached < most * SECOND, "{probes:?}");
    // Taking probes away takes longer than that, and the agent does not wait for it.
    assert!(probes.ended < SECOND, "{probes:?}");
}
