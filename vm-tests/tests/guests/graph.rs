//! The graph of calls beside ftrace's own, both drawn by stock trace-cmd.

use std::{collections::HashMap, time::Duration};

use vm_tests::{Cmd, Kernel, Vm, on_cloud_kernels};

on_cloud_kernels!(the_graph_is_that_of_ftrace);

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
    let has_fprobes = !kernel.name.starts_with("6.1-");
    let few: Vec<String> = FEW.iter().map(|pattern| format!("'{pattern}'")).collect();
    let ours = |hooks: &str, few: &[String]| {
        let filter = options("--graph-filter", few);
        format!(
            "tracer-agent record -o /tmp/ours.dat --function-graph vfs_read --max-graph-depth 3 --graph-hooks {hooks}{filter} -F {WORKLOAD}"
        )
    };
    let theirs = |few: &[String]| {
        let filter = options("-l", few);
        let root = if few.is_empty() { "" } else { " -l vfs_read" };
        format!(
            "trace-cmd record -o /tmp/theirs.dat -p function_graph -g vfs_read --max-graph-depth 3{root}{filter} -F {WORKLOAD}"
        )
    };
    // Which functions, and which hooks.
    let recordings: Vec<(&[String], &[&str])> =
        if has_fprobes { vec![(&[], &["auto"]), (&few, &["returns"])] } else { vec![(&few, &["auto"])] };
    let minutes = |line: &str| Cmd::sh(line).timeout(Duration::from_mins(8));
    let mut commands = vec![Cmd::sh("yes | head -c 4096 > /tmp/probed; mkdir -p /var/tmp")];
    for (few, hooks) in &recordings {
        commands.extend([minutes(&theirs(few)), minutes("trace-cmd report /tmp/theirs.dat")]);
        for hooks in *hooks {
            commands.extend([minutes(&ours(hooks, few)), minutes("trace-cmd report /tmp/ours.dat")]);
            commands.push(minutes("tracer-agent report /tmp/ours.dat"));
            commands.push(minutes("trace-cmd report -R /tmp/ours.dat"));
        }
    }
    commands.push(minutes("tracer-agent record -o /tmp/no.dat --function-graph vfs_raed true"));
    if !has_fprobes {
        commands.push(minutes("tracer-agent record -o /tmp/no.dat --function-graph vfs_read true"));
    }
    let run = Vm::new(kernel).agent().trace_cmd().run(&commands).unwrap_or_else(|error| panic!("{error}"));
    let mut outcomes = run.outcomes.iter().skip(1);
    for (few, hooks) in &recordings {
        let by_ftrace = outcomes.nth(1).unwrap().expect_success();
        for hooks in *hooks {
            let [recorded, drawn, by_us, raw] = std::array::from_fn(|_| outcomes.next().unwrap());
            let said = format!("{hooks} {few:?}: {}", recorded.stderr_text());
            recorded.expect_success();
            let drawn = drawn.expect_success();
            assert_eq!(by_us.expect_success(), drawn, "{said}");
            assert_eq!(usual(&calls(&drawn)), usual(&calls(&by_ftrace)), "{said}\n{drawn}\n{by_ftrace}");
            times_are_nested(&raw.expect_success());
        }
    }
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
