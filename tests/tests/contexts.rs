//! `record --context`: values against what is known, in both lanes and in probes, for stock readers and in
//! exports.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::{collections::BTreeMap, fs, os::unix::fs::MetadataExt as _, path::Path};

use integration_tests::{
    binaries::{Link, tool},
    harness::{Running, agent, name_of, run, tid_of},
    probe_program::{Probed, build},
    trace_cmd,
};

const USAGE: i32 = 2;
const UNSUPPORTED: i32 = 111;

/// What stock trace-cmd prints of the events of this name.
fn stock(dir: &Path, event: &str) -> Vec<String> {
    let report = trace_cmd::report(&dir.join("out.dat"), &[]);
    assert!(!report.contains("FAILED TO PARSE"), "{report}");
    report.lines().skip(1).filter(|line| name_of(line) == event).map(str::to_owned).collect()
}

/// The value of a field in a line.
fn value<'t>(line: &'t str, field: &str) -> &'t str {
    let (_, rest) = line.split_once(&format!(" {field}=")).unwrap_or_else(|| panic!("no {field}: {line}"));
    rest.split(' ').next().unwrap()
}

fn number(line: &str, field: &str) -> u64 {
    value(line, field).parse().unwrap_or_else(|error| panic!("{field}: {error}: {line}"))
}

/// The kernel's priority of this process and of what it starts.
fn priority() -> u64 {
    let stat = fs::read_to_string("/proc/self/stat").unwrap();
    let (_, fields) = stat.rsplit_once(") ").unwrap();
    let priority: i64 = fields.split(' ').nth(15).unwrap().parse().unwrap();
    (100 + priority).try_into().unwrap()
}

#[test]
fn contexts_tell_of_the_thread() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path();
    let exec = "sched:sched_process_exec";
    let list = "pid,tid,ppid,comm,cgroup,uid,prio";
    let args =
        ["record", "-o", "out.dat", "-e", exec, "--context", list, "--context", "perf:cpu-clock,pid", "-F"];
    let command = ["setpriv", "--reuid=1234", "--regid=1234", "--clear-groups", "/bin/true"];
    let recording = Running::start(&mut agent(dir, args.into_iter().chain(command)));
    let recorder = recording.pid();
    recording.wait().expect(0);
    let lines = stock(dir, "sched_process_exec");
    let [before, line] = lines.as_slice() else { panic!("{lines:?}") };
    assert!(
        line.contains("filename=/bin/true ") && line.contains("setpriv") != before.contains("setpriv "),
        "{lines:?}"
    );
    let tid = u64::from(tid_of(line));
    for field in ["ctx_pid", "ctx_tid", "pid"] {
        assert_eq!(number(line, field), tid, "{line}");
    }
    assert_eq!(number(line, "ctx_ppid"), u64::from(recorder), "{line}");
    assert_eq!((value(line, "ctx_comm"), value(before, "ctx_comm")), ("true", "setpriv"));
    assert_eq!((number(line, "ctx_uid"), number(before, "ctx_uid")), (1234, 0));
    assert_eq!(number(line, "ctx_prio"), priority(), "{line}");
    assert!(number(line, "ctx_perf_cpu_cpu_clock") > 0, "{line}");
    let group = fs::read_to_string("/proc/self/cgroup").unwrap();
    let group = group.lines().find_map(|line| line.strip_prefix("0::")).expect("cgroup2 is mounted");
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    let mount = mounts.lines().find(|line| line.split(' ').nth(2) == Some("cgroup2")).unwrap();
    let path = format!("{}{group}", mount.split(' ').nth(1).unwrap());
    assert_eq!(number(line, "ctx_cgroup"), fs::metadata(path).unwrap().ino());
    // Both readers filter on them, and print the same.
    let ours = run(&mut agent(dir, ["report", "-F", "sched_process_exec: ctx_uid == 1234", "out.dat"]))
        .expect(0)
        .out;
    let ours: Vec<&str> = ours.lines().skip(1).filter(|line| name_of(line) == "sched_process_exec").collect();
    assert_eq!(ours, [line]);
    // Behind -i stock trace-cmd ignores filters.
    let file = dir.join("out.dat");
    let filter = "sched_process_exec: ctx_comm == \"true\"";
    let theirs = trace_cmd::run(["report", "-F", filter, "-i", file.to_str().unwrap()]).out;
    assert_eq!(theirs.lines().skip(1).collect::<Vec<_>>(), [line]);
    run(&mut agent(dir, ["check", "out.dat"])).expect(0);

    // LTTng's viewers find them where they are in its traces.
    run(&mut agent(dir, ["export", "--format", "lttng", "out.dat", "out.lttng"])).expect(0);
    let text = tool(dir, "babeltrace2", &["out.lttng"]);
    let exec = text.lines().find(|line| line.contains("/bin/true")).unwrap_or_else(|| panic!("{text}"));
    let (contexts, fields) = exec.rsplit_once("}, {").unwrap();
    let context = contexts.rsplit_once("}, {").unwrap().1;
    for expected in [
        format!("pid = {tid}, tid = {tid}, ppid = {recorder}, procname = \"true\""),
        format!("uid = 1234, prio = {}", i64::try_from(priority()).unwrap() - 100),
        "perf_cpu_cpu_clock = ".to_owned(),
    ] {
        assert!(context.contains(&expected), "{expected}: {exec}");
    }
    assert!(fields.contains("filename = \"/bin/true\"") && !fields.contains("ctx_"), "{exec}");
    let counted = run(&mut agent(dir, ["info", "out.lttng"])).expect(0).out;
    // Its events can be stepped over, contexts and all.
    let streams = counted.lines().filter(|line| line.trim_start().starts_with("channel0_"));
    let events = streams.map(|line| line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap());
    assert_eq!(events.sum::<u64>(), 2, "{counted}");
    // Elsewhere they are fields as others are.
    run(&mut agent(dir, ["export", "--format", "ctf", "out.dat", "out.ctf"])).expect(0);
    let text = tool(dir, "babeltrace2", &["out.ctf"]);
    assert!(text.contains("ctx_uid = 1234") && text.contains("ctx_comm = \"true\""), "{text}");
}

#[test]
fn events_are_the_same_with_contexts_in_both_lanes() {
    // Forks, ends, signals, renamings: fixed fields, arrays, and texts behind the fixed part.
    const EVENTS: [&str; 6] = [
        "sched:sched_process_fork",
        "sched:sched_process_exit",
        "sched:sched_process_exec",
        "signal:signal_generate",
        "task:task_rename",
        "syscalls:sys_enter_kill",
    ];
    let script = "$0 = 'renamed'; if (!fork) { exec '/bin/true' } wait; kill 0, $$; $SIG{USR1} = 'IGNORE'; kill 'USR1', $$";
    for lane in ["auto", "generic"] {
        let scratch = tempfile::tempdir().unwrap();
        let dir = scratch.path();
        let mut plain = vec!["record", "-q", "-o", "plain.dat", "-F", "-c"];
        let mut with = vec!["record", "-q", "-o", "out.dat", "--lane", lane, "-F", "-c"];
        for event in EVENTS {
            plain.extend(["-e", event]);
            with.extend(["-e", event, "--context", "comm,tid,cgroup,uid,prio,ppid"]);
        }
        let inner = ["perl", "-e", script];
        let ours = integration_tests::harness::agent_path();
        let command = [ours.to_str().unwrap()].into_iter().chain(with).chain(inner);
        run(&mut agent(dir, plain.into_iter().chain(command))).expect(0);

        let texts = |file: &str| -> BTreeMap<u32, Vec<String>> {
            let mut texts: BTreeMap<u32, Vec<String>> = BTreeMap::new();
            let report = run(&mut agent(dir, ["report", "-N", file])).expect(0).out;
            for line in report.lines().filter(|line| line.contains(": ") && !line.starts_with("cpus")) {
                let (_, text) = line.split_once(name_of(line)).unwrap();
                let text = format!("{}{text}", name_of(line));
                if let Some((_, contexts)) = text.split_once(" ctx_comm=") {
                    assert!(contexts.contains(&format!(" ctx_tid={} ", tid_of(line))), "{lane}: {line}");
                    assert!(contexts.ends_with(|c: char| c.is_ascii_digit()), "{lane}: {line}");
                }
                texts.entry(tid_of(line)).or_default().push(text);
            }
            texts
        };
        let (plain, with) = (texts("plain.dat"), texts("out.dat"));
        let mut kinds = std::collections::BTreeSet::new();
        for (tid, texts) in &with {
            let stripped: Vec<&str> = texts
                .iter()
                .map(|text| {
                    kinds.insert(text.split(':').next().unwrap());
                    text.split_once(" ctx_comm=").unwrap_or_else(|| panic!("{lane}: {text}")).0
                })
                .collect();
            let known: Vec<&str> = plain[tid].iter().map(String::as_str).collect();
            assert!(
                known.windows(stripped.len()).any(|window| window == stripped),
                "{lane}: {stripped:?} {known:?}"
            );
        }
        assert_eq!(kinds.len(), EVENTS.len(), "{lane}: {kinds:?}");
        let json = run(&mut agent(dir, ["info", "--json", "out.dat"])).expect(0).out;
        assert_eq!(json.contains("\"lane\":\"fast\""), lane == "auto", "{json}");
    }
}

#[test]
fn probes_carry_contexts() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path();
    let Probed { program, file } = build(dir, Link::Pie);
    let work = format!("{}:work n=%di:s64 text=+0(%si):string", file.display());
    let marker = format!("{}:probed:guarded", file.display());
    let args = ["record", "-o", "out.dat", "--uprobe", &work, "-f", "n >= 0", "--context", "tid,comm,pid"];
    let rest = ["--usdt", &marker, "--context", "uid,perf:cs", program.to_str().unwrap(), "20"];
    run(&mut agent(dir, args.into_iter().chain(rest))).expect(0);
    let report = trace_cmd::report(&dir.join("out.dat"), &[]);
    let of = |text: &str| -> Vec<&str> { report.lines().filter(|line| line.contains(text)).collect() };
    let (calls, markers) = (of("text=\"some text\""), of(" guarded: "));
    assert_eq!((calls.len(), markers.len()), (20, 20), "{report}");
    for line in calls {
        assert_eq!(
            (number(line, "ctx_tid"), value(line, "ctx_comm")),
            (tid_of(line).into(), "probed"),
            "{line}"
        );
        assert_ne!(
            number(line, "ctx_pid"),
            number(line, "ctx_tid"),
            "calls are made by another thread: {line}"
        );
    }
    assert!(markers.iter().all(|line| line.contains(" ctx_uid=0 ctx_perf_cpu_cs=")), "{markers:?}");
}

#[test]
fn counters_count() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path();
    let args = ["record", "-o", "out.dat", "-M", "1", "-e", "syscalls:sys_enter_getppid", "--context"];
    let list = "perf:cpu:cpu-clock,perf:page-faults,perf:cpu:context-switches";
    let script = "for (1..50) { getppid(); my $x = 'x' x 300_000; select undef, undef, undef, 0.001 }";
    run(&mut agent(dir, args.into_iter().chain([list, "-F", "taskset", "-c", "0", "perl", "-e", script])))
        .expect(0);
    let lines = stock(dir, "sys_enter_getppid");
    assert_eq!(lines.len(), 50, "{lines:?}");
    for counter in ["cpu_clock", "page_faults", "context_switches"] {
        let values: Vec<u64> =
            lines.iter().map(|line| number(line, &format!("ctx_perf_cpu_{counter}"))).collect();
        assert!(values.is_sorted() && values[0] < values[49], "{counter}: {values:?}");
        // Each pause is two switches at least, and each second text new memory.
        let least = if counter == "cpu_clock" { 50 * 1_000_000 } else { 25 };
        assert!(values[49] - values[0] >= least, "{counter}: {values:?}");
    }
    // Those of the processor are there or not.
    let args = [
        "record",
        "-o",
        "cycles.dat",
        "-e",
        "sched:sched_process_exec",
        "--context",
        "perf:cpu:cycles",
        "true",
    ];
    let ended = run(&mut agent(dir, args));
    if ended.code() == 0 {
        let report = trace_cmd::report(&dir.join("cycles.dat"), &[]);
        assert!(report.contains("ctx_perf_cpu_cycles="), "{report}");
    } else {
        ended.expect(UNSUPPORTED).says(&["no counter cycles", "perf:page-faults"]);
    }
}

#[test]
fn what_is_no_context_is_told() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path();
    for (args, texts) in [
        (
            &["-e", "sched:sched_switch", "--context", "pid,name"][..],
            &["no context \"name\"", "ppid", "perf:cpu:COUNTER"][..],
        ),
        (
            &["-e", "sched:sched_switch", "--context", "perf:cpu:nothing"],
            &["no counter \"nothing\"", "cache-misses", "page-faults"],
        ),
        (
            &["--context", "pid", "-e", "sched:sched_switch"],
            &["--context applies to the -e, --for or probe", "none before it"],
        ),
        (
            &["--function", "vfs_*", "--context", "pid"],
            &["--context applies to the events", "function tracer"],
        ),
        (&["-e", "sched:sched_switch", "--context", "pid", "-f", "ctx_pid == 1"], &["no field `ctx_pid`"]),
    ] {
        let args = ["record", "-o", "refused.dat"].iter().chain(args).chain(&["true"]);
        run(&mut agent(dir, args)).expect(USAGE).says(texts);
    }
    assert!(!dir.join("refused.dat").exists());
}
