//! The graph of calls beside ftrace's own, both drawn by stock trace-cmd.

use std::{collections::HashMap, time::Duration};

use vm_tests::{Cmd, Kernel, Vm, on_kernels, soak_on_kernels};

on_kernels! {
    k6_1_cloud: [the_graph_is_that_of_ftrace],
    k6_12_cloud: [the_graph_is_that_of_ftrace],
}
soak_on_kernels! {
    k6_12_cloud: [the_graph_by_entries_and_returns_is_that_of_ftrace],
}

/// Every call of `vfs_read` is alike.
const WORKLOAD: &str = "dd if=/tmp/probed of=/dev/null bs=64 count=64";
/// A few functions, for kernels that take them one by one: some that call others, and some that do not.
const FEW: [&str; 6] = [
    "rw_verify_area",
    "security_file_permission",
    "*_file_read_iter",
    "filemap_read",
    "touch_atime",
    "__fsnotify_parent",
];

fn the_graph_is_that_of_ftrace(kernel: &Kernel) {
    check(kernel, if has_fprobes(kernel) { &[] } else { &FEW }, "auto");
}

/// As on kernels before 6.10.
fn the_graph_by_entries_and_returns_is_that_of_ftrace(kernel: &Kernel) {
    check(kernel, &FEW, "returns");
}

fn has_fprobes(kernel: &Kernel) -> bool {
    !kernel.name.starts_with("6.1-")
}

/// Records the calls below `vfs_read` of these functions, or of all, by these hooks.
fn check(kernel: &Kernel, few: &[&str], hooks: &str) {
    let few: Vec<String> = few.iter().map(|pattern| format!("'{pattern}'")).collect();
    let only = options("--graph-filter", &few);
    let ours = format!(
        "tracer-agent record -o /tmp/ours.dat --function-graph vfs_read --max-graph-depth 3 --graph-hooks {hooks}{only} -F {WORKLOAD}"
    );
    let root = if few.is_empty() { "" } else { " -l vfs_read" };
    let only = options("-l", &few);
    let theirs = format!(
        "trace-cmd record -o /tmp/theirs.dat -p function_graph -g vfs_read --max-graph-depth 3{root}{only} -F {WORKLOAD}"
    );
    let minutes = |line: &str| Cmd::sh(line).timeout(Duration::from_mins(8));
    let mut commands = vec![Cmd::sh("yes | head -c 4096 > /tmp/probed; mkdir -p /var/tmp")];
    commands.extend([minutes(&theirs), minutes("trace-cmd report /tmp/theirs.dat")]);
    commands.extend([minutes(&ours), minutes("trace-cmd report /tmp/ours.dat")]);
    commands
        .extend([minutes("tracer-agent report /tmp/ours.dat"), minutes("trace-cmd report -R /tmp/ours.dat")]);
    commands.push(minutes("tracer-agent record -o /tmp/no.dat --function-graph vfs_raed true"));
    if !has_fprobes(kernel) {
        commands.push(minutes("tracer-agent record -o /tmp/no.dat --function-graph vfs_read true"));
    }
    let run = Vm::new(kernel).agent().trace_cmd().run(&commands).unwrap_or_else(|error| panic!("{error}"));
    let mut outcomes = run.outcomes.iter().skip(2);
    let by_ftrace = outcomes.next().unwrap().expect_success();
    let [recorded, drawn, by_us, raw] = std::array::from_fn(|_| outcomes.next().unwrap());
    let said = recorded.stderr_text();
    recorded.expect_success();
    let drawn = drawn.expect_success();
    assert_eq!(by_us.expect_success(), drawn, "{said}");
    assert_eq!(usual(&calls(&drawn)), usual(&calls(&by_ftrace)), "{said}\n{drawn}\n{by_ftrace}");
    times_are_nested(&raw.expect_success());
    let misspelt = outcomes.next().unwrap();
    assert_eq!(misspelt.code(), Some(112), "{misspelt:?}");
    assert!(misspelt.stderr_text().contains("did you mean vfs_read"), "{misspelt:?}");
    if let Some(unlimited) = outcomes.next() {
        assert_eq!(unlimited.code(), Some(111), "{unlimited:?}");
        assert!(unlimited.stderr_text().contains("--graph-filter"), "{unlimited:?}");
    }
}

/// An option for each of the values.
fn options(option: &str, values: &[String]) -> String {
    values.iter().flat_map(|value| [" ", option, " ", value]).collect()
}

/// The calls of `vfs_read` by `dd` as they are drawn, without the times.
fn calls(report: &str) -> Vec<Vec<String>> {
    let mut calls: Vec<Vec<String>> = Vec::new();
    let lines = report.lines().filter(|line| line.trim_start().starts_with("dd-"));
    for line in lines.filter(|line| line.contains(" funcgraph_e")) {
        // `   dd-77    [000]    12.3: funcgraph_entry:  ! 1.5 us  |  vfs_read() {`
        let Some((_, drawn)) = line.split_once('|') else { continue };
        if drawn.trim_start().starts_with("vfs_read()") {
            calls.push(Vec::new());
        }
        if let Some(call) = calls.last_mut() {
            call.push(drawn.trim_end().to_owned());
        }
    }
    calls
}

/// What more of the calls look like than anything else: in some there is an interrupt somewhere.
fn usual(calls: &[Vec<String>]) -> Vec<String> {
    let mut counts: HashMap<&Vec<String>, usize> = HashMap::new();
    for call in calls {
        *counts.entry(call).or_default() += 1;
    }
    let (most, count) = counts.into_iter().max_by_key(|(_, count)| *count).expect("a call");
    assert!(count > 1, "{calls:?}");
    most.clone()
}

/// Calls are within the times of those that they are nested in.
fn times_are_nested(raw: &str) {
    let mut inner: Vec<(u64, u64, u64)> = Vec::new();
    let mut count = 0;
    for line in raw.lines().filter(|line| line.contains("funcgraph_exit:")) {
        let number = |name: &str| {
            let text = line.split_once(&format!("{name}=")).unwrap_or_else(|| panic!("{line}")).1;
            let text = text.split_whitespace().next().unwrap();
            // Times are hexadecimal, and a depth is below 10.
            u64::from_str_radix(text, 16).unwrap_or_else(|_| panic!("{line}"))
        };
        let (depth, start, end) = (number(" depth"), number("calltime"), number("rettime"));
        assert!(depth < 3 && start < end && start != 0, "{line}");
        for (_, from, to) in inner.extract_if(.., |(inner, ..)| *inner > depth) {
            assert!(start <= from && to <= end, "{from} to {to}: {line}");
        }
        inner.push((depth, start, end));
        count += 1;
    }
    assert!(count >= 64, "{raw}");
}
