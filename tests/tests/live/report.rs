//! `report` prints what stock trace-cmd prints of the same recording: lines of the running kernel, and values
//! in JSON and stacks of stored recordings.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use integration_tests::{agent, binaries, folded, stock_lines, trace_cmd, workload};
use serde_json::Value;

/// Systems of events that fire in the workload. Those of `tcp` have addresses as bytes: libtraceevent's -R
/// prints such a field as bytes for ever once it has met one that is no text.
const SYSTEMS: [&str; 13] = [
    "sched",
    "irq",
    "timer",
    "kmem",
    "raw_syscalls",
    "syscalls",
    "signal",
    "task",
    "workqueue",
    "exceptions",
    "net",
    "maple_tree",
    "writeback",
];

#[test]
fn lines_are_those_of_trace_cmd() {
    let dir = tempfile::tempdir().unwrap();
    let mut args: Vec<String> =
        SYSTEMS.iter().flat_map(|system| ["-e".to_owned(), (*system).to_owned()]).collect();
    args.extend(workload::command("mixed", dir.path()));
    let recording = agent::record(&dir.path().join("live.dat"), &args);
    let path = recording.path.to_str().unwrap();
    for options in [&[][..], &["-R", "-t"], &["-N", "-t"], &["-l", "--ts-diff"], &["-w"]] {
        let theirs = trace_cmd::report(&recording.path, options);
        // This stock reader has one table of task states for all kernels, except where it prints by the
        // format.
        let states = if matches!(options, ["-R" | "-N", ..]) { &[][..] } else { &["--old-states"] };
        let output = agent::run([&["report", path], options, states].concat());
        assert_eq!((output.status.code(), String::from_utf8_lossy(&output.stderr).as_ref()), (Some(0), ""));
        let ours = String::from_utf8_lossy(&output.stdout);
        assert_eq!(ours.lines().count(), theirs.lines().count(), "{options:?}");
        for (ours, theirs) in ours.lines().zip(theirs.lines()) {
            let (a, b) = (stock_lines::comparable(ours), stock_lines::comparable(theirs));
            assert_eq!(a, b, "{options:?}\nours:   {ours}\ntheirs: {theirs}");
        }
        println!("{} lines, {options:?}", ours.lines().count());
        if options.is_empty() {
            let events = ours.lines().filter_map(trace_cmd::Line::parse).map(|line| line.event);
            let kinds: BTreeSet<_> = events.collect();
            assert!(kinds.len() > 50, "only {kinds:?}");
        }
    }
    a_reader_that_goes_away_is_no_error(path);
}

fn a_reader_that_goes_away_is_no_error(path: &str) {
    let mut command = agent::command(["report", path]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.next().unwrap().unwrap().starts_with("cpus="));
    assert!(trace_cmd::Line::parse(&lines.next().unwrap().unwrap()).is_some());
    drop(lines);
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), String::from_utf8_lossy(&output.stderr).as_ref()), (Some(0), ""));
}

#[test]
fn what_cannot_be_reported_is_told() {
    let run = |args: &[&str]| {
        let output = agent::run(["report"].iter().chain(args));
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (code, error) = run(&["/nowhere/trace.dat"]);
    assert_eq!((code, error.contains("cannot open /nowhere/trace.dat")), (Some(1), true), "{error}");
    let (code, error) = run(&["/proc/self/exe"]);
    assert_eq!((code, error.contains("cannot read /proc/self/exe")), (Some(1), true), "{error}");
    for wrong in [&["--cpu", "2-1"][..], &["--since", "soon"], &["-R", "--json"]] {
        assert_eq!(run(wrong).0, Some(2), "{wrong:?}");
    }
}

fn stored(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("traces").join(name)
}

/// What the agent prints, which must be all that it says.
#[track_caller]
fn printed(args: &[&str]) -> String {
    let output = agent::run(args);
    assert_eq!(
        (output.status.code(), String::from_utf8_lossy(&output.stderr).as_ref()),
        (Some(0), ""),
        "{args:?}"
    );
    String::from_utf8(output.stdout).unwrap()
}

/// What is wrong with lines of JSON, by Debian's python3-jsonschema.
fn faults(lines: &str) -> String {
    const SCRIPT: &str = "
import json, sys, jsonschema
schema = json.load(open(sys.argv[1]))
jsonschema.Draft202012Validator.check_schema(schema)
validator = jsonschema.Draft202012Validator(schema)
count = 0
for line in sys.stdin:
    count += 1
    for error in validator.iter_errors(json.loads(line)):
        print(error.message, line, end='')
print(count, file=sys.stderr)
";
    let schema = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/report.schema.json");
    let mut command = Command::new("/usr/bin/python3");
    command.args(["-c", SCRIPT]).arg(schema);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let text = lines.to_owned();
    let writer = std::thread::spawn(move || input.write_all(text.as_bytes()).unwrap());
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(said.trim(), lines.lines().count().to_string(), "python3-jsonschema reads all lines");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn json_is_as_its_schema_says() {
    let mut lines = String::new();
    for name in ["all-mono", "graph", "instances", "kprobes", "lost", "sched-irq-timer-zstd", "stacks"] {
        let path = stored(&format!("k6.12-{name}.dat"));
        lines += &printed(&["report", "--json", "--limit", "400", path.to_str().unwrap()]);
    }
    assert!(lines.lines().count() > 2000);
    assert_eq!(faults(&lines), "");
    // The schema tells wrong objects from right ones.
    for (right, wrong) in [
        (",\"cpu\":0,\"pid\":", ",\"cpu\":\"0\",\"pid\":"),
        ("\"buffer\":\"\"", "\"buffer\":null"),
        ("\"lost\":0", "\"lost\":0,\"more\":1"),
        ("\"event\":\"", "\"id\":1,\"event\":\""),
        ("\"fields\":{", "\"symbols\":{},\"fields\":{"),
    ] {
        let line = lines.lines().find(|line| line.contains(right)).expect(right);
        assert_ne!(faults(&format!("{}\n", line.replacen(right, wrong, 1))), "", "{wrong}");
    }
}

/// What stands between two texts.
fn between<'l>(line: &'l str, before: &str, after: &[char]) -> &'l str {
    let (_, rest) = line.split_once(before).unwrap_or_else(|| panic!("no {before} in {line}"));
    rest.split(after).next().unwrap()
}

#[test]
fn json_has_addresses_symbols_and_names_as_stock_prints_them() {
    let mut compared: BTreeMap<&str, u32> = BTreeMap::new();
    for name in ["k6.12-sched-irq-timer-zstd.dat", "k6.12-all-mono.dat", "k6.12-kprobes.dat"] {
        let path = stored(name);
        let json = printed(&["report", "--json", path.to_str().unwrap()]);
        let (raw, text) = (trace_cmd::report(&path, &["-R"]), trace_cmd::report(&path, &["-N"]));
        // Texts of some events go on in further lines.
        let is_event = |line: &&str| trace_cmd::Line::parse(line).is_some();
        let raw: Vec<_> = raw.lines().filter(is_event).collect();
        let text: Vec<_> = text.lines().filter(is_event).collect();
        assert_eq!((json.lines().count(), raw.len()), (raw.len(), text.len()));
        for (line, (raw, text)) in json.lines().zip(raw.into_iter().zip(text)) {
            let record: Value = serde_json::from_str(line).unwrap();
            let (fields, symbols, names) = (&record["fields"], &record["symbols"], &record["names"]);
            let mut same = |what, ours: &Value, stock: &str| {
                assert_eq!(ours, &Value::from(stock), "{what}: {line}\n{raw}\n{text}");
                *compared.entry(what).or_default() += 1;
            };
            match record["event"].as_str().unwrap() {
                "hrtimer_start" => {
                    same("address", &fields["hrtimer"], between(raw, " hrtimer=", &[' ']));
                    same("function", &symbols["function"], between(raw, " function=", &[' ']));
                }
                "kfree" | "kmalloc" => {
                    same("symbol", &symbols["call_site"], between(text, " call_site=", &[' ']));
                }
                "softirq_entry" => same("enumerator", &names["vec"], between(text, "[action=", &[']'])),
                "sched_switch" => {
                    same("state", &names["prev_state"], between(text, " prev_state=", &[' ']));
                }
                // The last field of the line.
                "mm_page_alloc" => same("flags", &names["gfp_flags"], between(text, " gfp_flags=", &[' '])),
                "opens" => {
                    // Stock prints `(ffffffffa6242060)`.
                    let at = format!("0x{}", between(text, "(", &[')']));
                    same("probe", &fields["__probe_ip"], &at);
                    same("probed", &symbols["__probe_ip"], "do_sys_openat2");
                }
                _ => {}
            }
        }
    }
    let all = ["address", "enumerator", "flags", "function", "probe", "probed", "state", "symbol"];
    assert_eq!(compared.keys().copied().collect::<Vec<_>>(), all, "{compared:?}");
    assert!(compared["state"] > 50 && compared["symbol"] > 50, "{compared:?}");
}

#[test]
fn system_calls_have_the_names_of_the_c_headers() {
    let header = fs::read_to_string("/usr/include/x86_64-linux-gnu/asm/unistd_64.h").unwrap();
    let numbers: BTreeMap<u64, &str> = header
        .lines()
        .filter_map(|line| {
            let mut words = line.strip_prefix("#define __NR_")?.split_whitespace();
            let name = words.next()?;
            Some((words.next()?.parse().ok()?, name))
        })
        .collect();
    let path = stored("k6.12-instances.dat");
    let json = printed(&["report", "--json", "-F", "sys_enter", path.to_str().unwrap()]);
    let mut seen = BTreeSet::new();
    for line in json.lines() {
        let record: Value = serde_json::from_str(line).unwrap();
        let number = record["fields"]["id"].as_u64().unwrap();
        assert_eq!(record["names"]["id"].as_str(), numbers.get(&number).copied(), "{line}");
        seen.insert(number);
    }
    assert!(seen.len() > 20, "{seen:?}");
}

#[test]
fn folded_stacks_are_those_of_stocks_text() {
    let path = stored("k6.12-stacks.dat");
    let file = path.to_str().unwrap();
    let report = trace_cmd::report(&path, &[]);
    let all = folded::by_stock(&report, |_| true);
    assert!(all.len() > 30 && all.values().sum::<u64>() > 1000, "{all:?}");
    assert_eq!(folded::read(&printed(&["report", "--folded", file])), all);
    let some = folded::by_stock(&report, |line| line.event == "sched_switch");
    assert!(!some.is_empty() && some.len() < all.len());
    assert_eq!(folded::read(&printed(&["report", "--folded", "-F", "sched_switch", file])), some);

    // A field instead of events: every allocation has an order, and most have 0, which adds nothing.
    let output = agent::run(["report", "--folded=order", "-F", "mm_page_alloc", file]);
    let sum: u64 = folded::read(&String::from_utf8(output.stdout).unwrap()).values().sum();
    let orders = report.lines().filter(|line| line.contains(" mm_page_alloc: "));
    let orders: Vec<u64> = orders.map(|line| between(line, " order=", &[' ']).parse().unwrap()).collect();
    assert_eq!(sum, orders.iter().sum::<u64>());
    let zeros = orders.iter().filter(|order| **order == 0).count();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(said, format!("tracer-agent: {zeros} events have no positive order and are not counted\n"));

    for (args, code, expected) in [
        (&["report", "--folded=ordr", file][..], 2, "did you mean order"),
        (&["report", "--folded", "--json", file], 2, "--json"),
        (&["report", "--folded", stored("k6.12-lost.dat").to_str().unwrap()], 0, "`record -T`"),
    ] {
        let output = agent::run(args);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(code) && said.contains(expected), "{args:?}: {output:?}");
    }
}

/// Calls `getppid` from a chain of functions that is longer than the stack of one record.
const CHAIN: &str = r#"
#define NOINLINE __attribute__((noinline))
static NOINLINE long call(void)
{
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "a"(110) : "rcx", "r11", "memory");
    return result;
}
#define DEEP(name, next) NOINLINE long name(void) { long sum = next(); __asm__ volatile(""); return sum + 1; }
DEEP(deep_0, call) DEEP(deep_1, deep_0) DEEP(deep_2, deep_1) DEEP(deep_3, deep_2) DEEP(deep_4, deep_3)
DEEP(deep_5, deep_4) DEEP(deep_6, deep_5) DEEP(deep_7, deep_6) DEEP(deep_8, deep_7) DEEP(deep_9, deep_8)
int main(void) { return (deep_9() + deep_9() + deep_9()) == 0; }
"#;

#[test]
fn folded_stacks_have_processes_before_the_kernel() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("chain.c"), CHAIN).unwrap();
    binaries::tool(dir.path(), "cc", &["-O1", "-fno-omit-frame-pointer", "-o", "chain", "chain.c"]);
    let options = ["-T", "--user-stack", "-e", "syscalls:sys_enter_getppid", "-F"];
    let program = dir.path().join("chain");
    let args = options.iter().map(AsRef::as_ref).chain([program.as_os_str()]);
    let recording = agent::record(&dir.path().join("trace.dat"), args);
    let file = recording.path.to_str().unwrap();
    let found = folded::read(&printed(&["report", "--folded", file]));
    let stock =
        folded::by_stock(&trace_cmd::report(&recording.path, &[]), |line| line.event == "sys_enter_getppid");
    assert_eq!(found, stock);
    let found: Vec<_> = found.into_iter().collect();
    let [(stack, 3)] = found.as_slice() else { panic!("{stock:?}") };
    let frames: Vec<_> = stack.split(';').collect();
    assert_eq!(frames[0], "chain");
    let place = |name: &str| {
        frames.iter().position(|frame| *frame == name).unwrap_or_else(|| panic!("{name}: {stack}"))
    };
    let order =
        ["main", "deep_9", "deep_5", "deep_1", "call", "entry_SYSCALL_64_after_hwframe", "do_syscall_64"];
    assert!(order.map(place).is_sorted(), "{stack}");

    // The same as a tree.
    let tree = printed(&["hist", file, "sys_enter_getppid", "stacktrace"]);
    let names: Vec<_> = frames[1..].to_vec();
    let lines: Vec<_> = tree.lines().map(|line| line.trim_start_matches([' ', '|'])).collect();
    assert_eq!(lines[1], format!("--100.00%--{} (3)", names[0]), "{tree}");
    assert_eq!(lines[2..=names.len()], names[1..], "{tree}");
    assert!(tree.ends_with("3 events, 1 different stacks\n"), "{tree}");
}
