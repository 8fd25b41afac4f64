//! Flame graphs of recordings of the running kernel, read by others: pprof of Go, speedscope's schema, an XML
//! parser, and the text of stock trace-cmd.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Output,
};

use integration_tests::{agent, binaries, folded, harness, trace_cmd};
use serde_json::Value;

/// `computes SECONDS PART [NAME]`: computes for so long, `inner` PART times as long as `other`, and calls
/// `getppid` once a round; its thread has another name then.
const SOURCE: &str = r#"
#include <stdlib.h>
#include <sys/prctl.h>
#include <time.h>
static volatile unsigned long sink;
void inner(long n) { for (long i = 0; i < n; i++) sink += i * i; }
void other(long n) { for (long i = 0; i < n; i++) sink += i * i; }
/* The C library's own functions have no frame, and hide who calls them. */
long ask(void)
{
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "a"(110L) : "rcx", "r11", "memory"); /* getppid */
    return result;
}
void work(long n, long part) { inner(part * n); other(n); ask(); }
static double now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec + t.tv_nsec / 1e9; }
int main(int argc, char **argv)
{
    if (argc > 3) prctl(PR_SET_NAME, argv[3]);
    double end = now() + atof(argv[1]);
    while (now() < end) work(100000, atol(argv[2]));
    return 0;
}
"#;

/// Its frames from the outermost, and where it computes.
const INNER: &str = ";main;work;inner";
const OTHER: &str = ";main;work;other";

fn program(dir: &Path) -> PathBuf {
    fs::write(dir.join("computes.c"), SOURCE).unwrap();
    // Without optimisation every function has a frame.
    binaries::tool(dir, "cc", &["-O0", "-fno-omit-frame-pointer", "-o", "computes", "computes.c"]);
    dir.join("computes")
}

/// A recording of the program.
fn recording(dir: &Path, name: &str, options: &[&str], args: &[&str]) -> PathBuf {
    let program = program(dir);
    let file = dir.join(name);
    let options = options.iter().map(AsRef::as_ref);
    agent::record(&file, options.chain([program.as_os_str()]).chain(args.iter().map(AsRef::as_ref)));
    file
}

fn stored(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("traces").join(name)
}

/// Runs `analyze` to its end.
fn analyze(args: &[&str]) -> Output {
    agent::run(["analyze"].iter().chain(args))
}

/// What `analyze` prints.
#[track_caller]
fn printed(args: &[&str]) -> String {
    let output = analyze(args);
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Writes a flame graph of what `args` ask for beside the recordings.
#[track_caller]
fn written(dir: &Path, name: &str, args: &[&str]) -> PathBuf {
    let path = dir.join(name);
    printed(&[args, &["--flame", path.to_str().unwrap()]].concat());
    path
}

fn python(script: &str, args: &[&str]) -> Value {
    let out = binaries::tool("/".as_ref(), "/usr/bin/python3", &[&["-c", script], args].concat());
    serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out}"))
}

/// The samples of a flame graph, by the text of each frame without its share, and how many there are in all.
/// There is one script, the picture's own, and nothing else that runs.
fn frames_of_svg(path: &Path) -> (BTreeMap<String, u64>, u64) {
    const SCRIPT: &str = r"
import json, re, sys, xml.etree.ElementTree as tree
root = tree.parse(sys.argv[1]).getroot()
svg = '{http://www.w3.org/2000/svg}'
scripts = list(root.iter(svg + 'script'))
assert len(scripts) == 1, scripts
for element in root.iter():
    for name, value in element.attrib.items():
        assert not name.startswith('on') or element is root and value == 'init(evt)', (element, name)
    assert element.tag[len(svg):] in ('svg', 'defs', 'linearGradient', 'stop', 'style', 'script', 'rect', 'text', 'g', 'title'), element
frames = next(element for element in root.iter(svg + 'svg') if element.get('id') == 'frames')
found = {}
for group in frames:
    name, number = re.fullmatch(r'(.*) \(([\d,]+) [^()]*\)', group.find(svg + 'title').text, re.S).groups()
    found[name] = found.get(name, 0) + int(number.replace(',', ''))
print(json.dumps([found, int(frames.get('total_samples'))]))";
    let told = python(SCRIPT, &[path.to_str().unwrap()]);
    serde_json::from_value(told).unwrap()
}

/// What pprof says of the functions of a profile: flat and cumulative values.
fn top_of_pprof(path: &Path, options: &[&str]) -> BTreeMap<String, (i64, i64)> {
    let all = ["tool", "pprof", "-top", "-nodecount=100000", "-nodefraction=0", "-unit=auto"];
    let args = [&all, options, &[path.to_str().unwrap()]].concat();
    let mut go = harness::program(path.parent().unwrap(), "go", args);
    let out = harness::run(go.env("PPROF_TMPDIR", path.parent().unwrap())).expect(0).out;
    let mut found = BTreeMap::new();
    // Flat, its share, the sum of shares, cumulative, its share, the name.
    for line in out.lines().skip_while(|line| !line.contains("flat%")).skip(1) {
        let mut words = line.split_whitespace();
        let flat = words.next().unwrap().parse().unwrap();
        let cumulative = words.nth(2).unwrap().parse().unwrap();
        found.insert(words.skip(1).collect::<Vec<_>>().join(" "), (flat, cumulative));
    }
    found
}

/// A file of speedscope, which its own schema allows.
fn speedscope(path: &Path) -> Value {
    const SCRIPT: &str = "
import json, sys, jsonschema
schema, file = (json.load(open(path)) for path in sys.argv[1:])
jsonschema.Draft7Validator.check_schema(schema)
jsonschema.Draft7Validator(schema).validate(file)
print(json.dumps(file))";
    let schema = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/speedscope/file-format-schema.json");
    assert!(schema.is_file(), "{} is not there: `cargo xtask setup` fetches it", schema.display());
    python(SCRIPT, &[schema.to_str().unwrap(), path.to_str().unwrap()])
}

/// The stacks of a profile of speedscope, as folded ones.
fn folded_of_speedscope(file: &Value, profile: usize) -> BTreeMap<String, u64> {
    let name = |index: &Value| {
        file["shared"]["frames"][index.as_u64().unwrap() as usize]["name"].as_str().unwrap().to_owned()
    };
    let profile = &file["profiles"][profile];
    let stacks = profile["samples"].as_array().unwrap().iter().zip(profile["weights"].as_array().unwrap());
    let mut found = BTreeMap::new();
    for (stack, weight) in stacks {
        let names: Vec<String> = stack.as_array().unwrap().iter().map(name).collect();
        *found.entry(names.join(";")).or_default() += weight.as_u64().unwrap();
    }
    found
}

/// The answer as JSON, which the schema of the documentation allows.
fn answer(args: &[&str]) -> Value {
    const SCRIPT: &str = "
import json, sys, jsonschema
schema, answer = (json.load(open(path)) for path in sys.argv[1:])
jsonschema.Draft202012Validator.check_schema(schema)
jsonschema.Draft202012Validator(schema).validate(answer)
print(json.dumps(answer))";
    let schema = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/analyses.schema.json");
    let all = printed(&[args, &["--json"]].concat());
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), &all).unwrap();
    let _ = python(SCRIPT, &[schema.to_str().unwrap(), file.path().to_str().unwrap()]);
    serde_json::from_str(&all).unwrap()
}

fn sum_of(stacks: &BTreeMap<String, u64>, is_wanted: impl Fn(&str) -> bool) -> u64 {
    stacks.iter().filter(|(stack, _)| is_wanted(stack)).map(|(_, weight)| weight).sum()
}

#[test]
fn samples_are_where_a_program_computes() {
    let dir = tempfile::tempdir().unwrap();
    let file = recording(dir.path(), "cpu.dat", &["--for", "cpu"], &["3", "3"]);
    let file = file.to_str().unwrap();
    let lines = printed(&["cpu", file, "--flame", "-"]);
    let stacks = folded::read(&lines);
    let of = |end: &str| sum_of(&stacks, |stack| stack.starts_with("computes;") && stack.ends_with(end));
    let (inner, other) = (of(INNER), of(OTHER));
    // Three quarters of the time, as far as there were samples at all; a busy machine gives the program some
    // of them.
    assert!(inner > 20 && other > 0 && inner > other, "{inner} {other}\n{lines}");
    let all = sum_of(&stacks, |stack| stack.starts_with("computes;"));
    assert!(inner + other > all * 9 / 10, "{inner} {other} of {all}\n{lines}");
    // Nothing of the interrupt that took the sample; it may have come while another one was handled.
    assert!(!lines.contains("hrtimer_interrupt"), "{lines}");

    // The same of stock trace-cmd's text.
    let report = trace_cmd::report(Path::new(file), &[]);
    let is_tick = |line: &trace_cmd::Line| {
        line.event == "hrtimer_expire_entry" && line.fields.contains("function=tick_")
    };
    let mut by_stock: BTreeMap<String, u64> = BTreeMap::new();
    for (stack, count) in folded::by_stock(&report, is_tick) {
        // It shows the zeros beyond the end of a stack, too, and code without a symbol as its address.
        let frames: Vec<&str> = stack.split(';').filter(|frame| !frame.starts_with("0x")).collect();
        let entry = frames.iter().rposition(|frame| frame.starts_with("asm_sysvec_"));
        let cut = frames[..entry.unwrap_or(frames.len())].join(";");
        *by_stock.entry(cut).or_default() += count;
    }
    // What is beyond the C library's begin, which has no frame pointers, is nothing, or anything.
    let of_program = |stacks: &BTreeMap<String, u64>| {
        let mut all: BTreeMap<String, u64> = BTreeMap::new();
        for (stack, count) in stacks.iter().filter(|(stack, _)| stack.starts_with("computes;")) {
            let known: Vec<&str> = stack.split(';').filter(|&frame| frame != "[unknown]").collect();
            *all.entry(known.join(";")).or_default() += count;
        }
        all
    };
    assert_eq!(of_program(&stacks), of_program(&by_stock));

    let json = answer(&["cpu", file]);
    let total = sum_of(&stacks, |_| true);
    assert_eq!(json["samples"].as_u64().unwrap() - json["without_stack"].as_u64().unwrap(), total, "{json}");
    let by_cpu = json["cpus"].as_array().unwrap().iter().map(|cpu| cpu["busy"].as_u64().unwrap());
    assert_eq!(by_cpu.sum::<u64>(), json["samples"].as_u64().unwrap());

    let (frames, samples) = frames_of_svg(&written(dir.path(), "cpu.svg", &["cpu", file]));
    // Interrupts that came meanwhile are above it.
    let in_inner = sum_of(&stacks, |stack| stack.starts_with("computes;") && stack.contains(";inner"));
    assert_eq!((samples, frames["inner"]), (total, in_inner));

    let profile = written(dir.path(), "cpu.pb.gz", &["cpu", file]);
    let top = top_of_pprof(&profile, &["-tagfocus=thread=computes"]);
    assert_eq!((top["inner"], top["other"].0), ((inner as i64, in_inner as i64), other as i64));
    assert_eq!(
        top["work"].1,
        sum_of(&stacks, |stack| stack.starts_with("computes;") && stack.contains(";work")) as i64
    );
    assert_eq!(top_of_pprof(&profile, &[]).values().map(|(flat, _)| *flat as u64).sum::<u64>(), total);

    let other_form = speedscope(&written(dir.path(), "cpu.speedscope.json", &["cpu", file]));
    assert_eq!(folded_of_speedscope(&other_form, 0), stacks);
    assert_eq!(
        folded::read(&fs::read_to_string(written(dir.path(), "cpu.txt", &["cpu", file])).unwrap()),
        stacks
    );

    let tables = printed(&["cpu", file, "--comm", "computes"]);
    assert!(tables.contains("inner < work < main"), "{tables}");
}

#[test]
fn stacks_of_any_event_are_those_of_report_and_of_stocks_text() {
    let path = stored("k6.12-stacks.dat");
    let file = path.to_str().unwrap();
    let all = printed(&["stacks", file, "--event", ".*", "--flame", "-"]);
    let report = agent::run(["report", "--folded", file]);
    assert_eq!(all, String::from_utf8(report.stdout).unwrap());
    let stock = folded::by_stock(&trace_cmd::report(&path, &[]), |line| line.event == "sched_switch");
    assert_eq!(folded::read(&printed(&["stacks", file, "--event", "sched_switch", "--flame", "-"])), stock);
    let orders = ["stacks", file, "--event", "kmem:mm_page_alloc", "--weight", "order"];
    let by_order = folded::read(&printed(&[&orders[..], &["--flame", "-"]].concat()));
    let report = agent::run(["report", "--folded=order", "-F", "mm_page_alloc", file]);
    assert_eq!(by_order, folded::read(&String::from_utf8(report.stdout).unwrap()));
    let json = answer(&orders);
    assert_eq!(
        (&json["unit"], json["all"]["weight"].as_u64()),
        (&"order".into(), Some(by_order.values().sum()))
    );
}

/// What the stored recording says of a thread: when it loses its CPU and gets the next one, by stock's text.
#[test]
fn time_without_a_cpu_is_that_between_stocks_switches() {
    let path = stored("k6.12-stacks.dat");
    let file = path.to_str().unwrap();
    let report = trace_cmd::report(&path, &["-R", "-t"]);
    let field = |line: &trace_cmd::Line, name: &str| -> Option<String> {
        let fields = format!(" {}", line.fields);
        let (_, rest) = fields.rsplit_once(&format!(" {name}="))?;
        Some(rest.split_whitespace().next()?.to_owned())
    };
    let number = |text: String| -> u64 {
        text.strip_prefix("0x").map_or_else(|| text.parse(), |hex| u64::from_str_radix(hex, 16)).unwrap()
    };
    let (mut since, mut times): (BTreeMap<u64, u64>, BTreeMap<u64, u64>) = (BTreeMap::new(), BTreeMap::new());
    let mut end = 0;
    for line in report.lines().filter_map(trace_cmd::Line::parse) {
        let time = line.time;
        end = end.max(time);
        if line.event != "sched_switch" {
            continue;
        }
        let of = |name: &str| number(field(&line, name).unwrap());
        let (prev, state, next) = (of("prev_pid"), of("prev_state"), of("next_pid"));
        if let Some(since) = since.remove(&next) {
            *times.entry(next).or_default() += time - since;
        }
        // One that is dead (EXIT_ZOMBIE, EXIT_DEAD) does not come back.
        if prev != 0 && state & 0x30 == 0 {
            since.insert(prev, time);
        }
    }
    for (tid, since) in since {
        *times.entry(tid).or_default() += end - since;
    }
    let mut checked = 0;
    for (tid, time) in times {
        let output = analyze(&["offcpu", file, "--pid", &tid.to_string(), "--flame", "-"]);
        let found = folded::read(&String::from_utf8(output.stdout).unwrap());
        assert_eq!(sum_of(&found, |_| true), time, "{tid}: {found:?}");
        checked += 1;
    }
    assert!(checked > 5, "{checked}");
}

#[test]
fn who_wakes_stands_upon_what_is_woken() {
    /// A process that waits for a pipe, and one that writes to it now and then.
    const PIPE: &str = r#"
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
long call(long number, long a, long b, long c)
{
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
    return result;
}
void waits(int fd) { char byte; while (call(0, fd, (long)&byte, 1) == 1); }
void wakes(int fd) { call(1, fd, (long)"x", 1); }
int main(void)
{
    int ends[2];
    struct timespec pause = { 0, 5000000 };
    if (pipe(ends)) return 1;
    if (fork() == 0) {
        prctl(PR_SET_NAME, "waker");
        for (int i = 0; i < 40; i++) { nanosleep(&pause, 0); wakes(ends[1]); }
        _exit(0);
    }
    prctl(PR_SET_NAME, "sleeper");
    close(ends[1]);
    waits(ends[0]);
    return wait(0) < 0;
}
"#;
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("pipe.c"), PIPE).unwrap();
    binaries::tool(dir.path(), "cc", &["-O0", "-fno-omit-frame-pointer", "-o", "pipe", "pipe.c"]);
    let file = dir.path().join("off.dat");
    let program = dir.path().join("pipe");
    agent::record(
        &file,
        ["--for", "offcpu", "-F", "-c"].iter().map(AsRef::as_ref).chain([program.as_os_str()]),
    );
    let of = ["offcpu", file.to_str().unwrap(), "--comm", "sleeper"];
    let plain = folded::read(&printed(&[&of[..], &["--flame", "-"]].concat()));
    let lines = printed(&[&of[..], &["--flame", "-", "--flame-wakers"]].concat());
    let woken = folded::read(&lines);
    assert_eq!(sum_of(&plain, |_| true), sum_of(&woken, |_| true), "{lines}");
    assert!(plain.keys().all(|stack| !stack.contains(";--;")), "{plain:?}");
    let by_waker = |stack: &str| {
        let parts: Vec<&str> = stack.split(";--;").collect();
        parts.len() > 1 && parts[0].contains(";main;waits;call;") && parts[1].contains(";call;wakes;main;")
    };
    // It sleeps for as long as the other one does: 40 times 5 ms at least.
    let time = sum_of(&woken, |stack| by_waker(stack) && stack.contains(";waker"));
    assert!(time >= 150_000_000, "{time}: {lines}");
    let picture = written(dir.path(), "off.svg", &[&of[..], &["--flame-wakers"]].concat());
    let (frames, all) = frames_of_svg(&picture);
    assert_eq!(all, sum_of(&woken, |_| true));
    assert!(frames.contains_key("wakes") && frames.contains_key("--"), "{frames:?}");
}

#[test]
fn differences_have_what_was_before_and_what_is_now() {
    let dir = tempfile::tempdir().unwrap();
    let event = ["-e", "syscalls:sys_enter_getppid", "-T", "--user-stack", "-F"];
    let before = recording(dir.path(), "before.dat", &event, &["0.2", "1"]);
    let now = recording(dir.path(), "now.dat", &event, &["0.4", "1"]);
    let (before, now) = (before.to_str().unwrap(), now.to_str().unwrap());
    let of = |file| ["stacks", file, "--event", "sys_enter_getppid", "--flame", "-"];
    let (old, new) = (folded::read(&printed(&of(before))), folded::read(&printed(&of(now))));
    let difference = [&of(now)[..4], &["--flame-diff", before]].concat();
    let lines = printed(&[&difference[..], &["--flame", "-"]].concat());
    let mut stacks: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    for line in lines.lines() {
        let mut words = line.rsplitn(3, ' ');
        let (now, before) = (words.next().unwrap().parse().unwrap(), words.next().unwrap().parse().unwrap());
        stacks.insert(words.next().unwrap().to_owned(), (before, now));
    }
    let expected: BTreeMap<String, (u64, u64)> = (old.keys().chain(new.keys()))
        .map(|stack| (stack.clone(), (*old.get(stack).unwrap_or(&0), *new.get(stack).unwrap_or(&0))))
        .collect();
    assert_eq!(stacks, expected);
    assert!(lines.contains(";main;work;ask;"), "{lines}");

    let profile = written(dir.path(), "diff.pprof", &difference);
    let total = |stacks: &BTreeMap<String, u64>| sum_of(stacks, |_| true) as i64;
    assert_eq!(top_of_pprof(&profile, &[])["work"].1, total(&new) - total(&old));
    let file = speedscope(&written(dir.path(), "diff.json", &difference));
    assert_eq!((folded_of_speedscope(&file, 0), folded_of_speedscope(&file, 1)), (old, new.clone()));
    let picture = written(dir.path(), "diff.svg", &difference);
    assert_eq!(frames_of_svg(&picture).1, new.values().sum::<u64>());
    let text = fs::read_to_string(&picture).unwrap();
    assert!(text.contains("red grew, blue shrank since") && text.contains("before.dat"), "{text}");
    let shares = written(dir.path(), "shares.folded", &[&difference[..], &["--flame-normalize"]].concat());
    let shares = fs::read_to_string(shares).unwrap();
    assert_ne!(shares, lines);
}

#[test]
fn names_of_others_are_text() {
    let dir = tempfile::tempdir().unwrap();
    let name = "<b>;\"'&\n\x1b 7";
    let options = ["-e", "syscalls:sys_enter_getppid", "--user-stack", "-F"];
    let file = recording(dir.path(), "evil.dat", &options, &["0.1", "1", name]);
    let of = ["stacks", file.to_str().unwrap(), "--event", "sys_enter_getppid"];
    let expected = "<b>:\"'&??_7";
    let lines = printed(&[&of[..], &["--flame", "-"]].concat());
    assert!(lines.lines().all(|line| line.starts_with(&format!("{expected};"))), "{lines}");
    let stacks = folded::read(&lines);
    let (frames, _) = frames_of_svg(&written(dir.path(), "evil.svg", &of));
    assert_eq!(frames[expected], stacks.values().sum::<u64>());
    let top = top_of_pprof(&written(dir.path(), "evil.pb.gz", &of), &["-tagshow=thread"]);
    assert_eq!(top["work"].1 as u64, stacks.values().sum::<u64>());
    assert_eq!(folded_of_speedscope(&speedscope(&written(dir.path(), "evil.json", &of)), 0), stacks);
    answer(&of);
}

#[test]
fn what_cannot_be_drawn_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = stored("k6.12-stacks.dat");
    let file = path.to_str().unwrap();
    let bare = stored("k6.12-sched-irq-timer-zstd.dat");
    let bare = bare.to_str().unwrap();
    let (svg, doc) = (dir.path().join("a.svg"), dir.path().join("a.doc"));
    let (svg, doc) = (svg.to_str().unwrap(), doc.to_str().unwrap());
    for (args, code, expected) in [
        (&["offcpu", file, "--flame", doc][..], 2, ".svg .folded .txt .pb.gz .pprof .speedscope.json .json"),
        (&["sched", file, "--flame", svg], 2, "sched has no stacks"),
        (&["offcpu", bare, "--flame", svg], 1, "`tracer-agent record --for offcpu`"),
        (
            &["stacks", bare, "--event", "sched_switch", "--flame", svg],
            1,
            "record -e sched_switch -T --user-stack`",
        ),
        (&["cpu", bare, "--flame", svg], 1, "record --for cpu"),
        (&["stacks", file], 2, "-T --user-stack"),
        (&["stacks", file, "--event", "sched_swich"], 2, "did you mean"),
        (&["sched", file, "--event", "sched_switch"], 2, "--event is for stacks and cpu"),
        (&["cpu", file, "--weight", "time"], 2, "--weight is for stacks"),
        (&["cpu", file, "--flame", svg, "--flame-wakers"], 2, "--flame-wakers is for offcpu"),
        (&["offcpu", file, "--flame-diff", file], 2, "--flame"),
        (&["offcpu", file, "--flame", svg, "--json"], 2, "--json"),
        (&["offcpu", file, "--flame", "/nowhere/a.svg"], 114, "/nowhere does not exist"),
    ] {
        let output = analyze(args);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains(expected), "{args:?}: {said}");
        assert_eq!(output.status.code(), Some(code), "{args:?}: {said}");
    }
    assert_eq!(harness::files(dir.path()), Vec::<String>::new());

    // What is read is not replaced; anything else is.
    let copy = dir.path().join("copy.json");
    fs::copy(&path, &copy).unwrap();
    let output = analyze(&["offcpu", copy.to_str().unwrap(), "--flame", copy.to_str().unwrap()]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("which is read"));
    assert_eq!(fs::read(&copy).unwrap(), fs::read(&path).unwrap());
    fs::write(svg, "something else").unwrap();
    printed(&["offcpu", file, "--flame", svg]);
    assert!(fs::read_to_string(svg).unwrap().ends_with("</svg>"));
    assert_eq!(harness::files(dir.path()), ["a.svg", "copy.json"]);
}
