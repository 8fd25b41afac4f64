//! Names that somebody chose to do harm: control characters, markup, and more of them than there is room for.

use std::path::Path;

use integration_tests::answers::{answer, list, number, tables, text};
use integration_tests::harness::{self, Caller, Marked, run};
use integration_tests::made_up::{Is, MadeUp};

/// Clears the screen, begins a line, and is markup: as much as a thread's name can have.
const NAME: &str = "\x1b[2J<b>\n&\"'\x07";

/// Analyses with tables of threads.
const ANALYSES: [&str; 3] = ["sched", "syscalls", "offcpu"];

/// Fails if tables have what a terminal obeys.
fn assert_harmless(tables: &str) {
    let is_wrong = |c: char| c.is_control() && c != '\n';
    assert!(!tables.contains(is_wrong), "{tables:?}");
    let line = |line: &str| line.is_empty() || !line.starts_with("&\"");
    assert!(tables.lines().all(line), "{tables:?}");
}

/// Fails unless Python reads it as JSON.
fn assert_json(file: &Path, analysis: &str) {
    let script = r#""$0" analyze "$1" "$2" --json | python3 -m json.tool >/dev/null"#;
    let (program, file) = (harness::agent_path(), file.to_str().unwrap());
    let args = ["-o", "pipefail", "-c", script, program.to_str().unwrap(), analysis, file];
    let ended = run(&mut harness::program("/".as_ref(), "bash", args));
    assert_eq!(ended.expect(0).err, "");
}

#[test]
fn names_of_threads_do_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let mut caller = Caller::named(NAME);
    let args = ["-o", "trace.dat", "--for", "sched", "--for", "syscalls", "--for", "offcpu"];
    let marked = Marked::start(dir.path(), &args);
    for _ in 0..10 {
        caller.call(100);
        caller.settle();
    }
    marked.finish().expect(0);
    let file = dir.path().join("trace.dat");
    for analysis in ANALYSES {
        let told = answer(analysis, &file, &["--pid", &caller.pid().to_string()]);
        assert_eq!(text(&list(&told, "threads")[0], "comm"), NAME, "{analysis}");
        assert_json(&file, analysis);
        let tables = tables(analysis, &file, &["-n", "100000"]);
        assert_harmless(&tables);
        assert!(tables.contains("\\x1b[2J<b>\\x0a&\"'\\x07"), "{analysis}: {tables}");
    }
    // They can be asked for all the same.
    let told = answer("sched", &file, &["--comm", "*<b>*"]);
    assert_eq!(list(&told, "threads").len(), 1);
}

/// More memory than an analysis may take for threads, in KiB: for a quarter of a million of them, what is
/// known of each and a row for it.
const ENOUGH: u64 = 1 << 19;

/// The most memory that a command line of the agent had, in KiB, and what it printed.
fn most_memory(args: &[&str]) -> (u64, String) {
    let program = harness::agent_path();
    let script = "import resource, subprocess, sys
out = subprocess.run(sys.argv[1:], stdout=subprocess.PIPE, check=True).stdout
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
sys.stdout.flush()
sys.stdout.buffer.write(out)";
    let line = ["-c", script, program.to_str().unwrap()].into_iter().chain(args.iter().copied());
    let out = run(&mut harness::program("/".as_ref(), "python3", line)).expect(0).out;
    let (most, out) = out.split_once('\n').unwrap();
    (most.parse().unwrap(), out.to_owned())
}

/// Behind each switch: functions that nobody knows.
const STACK: [(&str, Is<'static>); 2] =
    [("size", Is::Number(8)), ("caller", Is::Numbers(&[0xffff_ffff_8100_0000; 8]))];

#[test]
fn sixteen_megabytes_of_names_are_too_many() {
    const THREADS: u32 = 1_120_000;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("names.dat");
    let mut made = MadeUp::new(&["sched", "ftrace"]);
    let name = |tid: u32| format!("\x1b]<{tid:011}\n").into_bytes();
    assert!(name(1).len() as u32 * THREADS > 16 << 20);
    for tid in 1..THREADS {
        let time = u64::from(tid) * 1000;
        made.switch_names((time, 0), (tid, 1, &name(tid)), (tid + 1, &name(tid + 1)));
        made.at((time, 0), tid, "kernel_stack", &STACK);
    }
    made.write(&file);
    let path = file.to_str().unwrap();
    for analysis in ["sched", "offcpu"] {
        let (most, out) = most_memory(&["analyze", analysis, path, "-n", "100"]);
        println!("{analysis}: {most} KiB");
        assert!(most < ENOUGH, "{analysis}: {most} KiB");
        assert_harmless(&out);
        assert!(out.contains("no room"), "{}", &out[..out.len().min(2000)]);
    }
    for (analysis, args, left_out) in
        [("sched", &[][..], "threads_left_out"), ("stacks", &["--event", "sched_switch"], "others.count")]
    {
        let (most, out) = most_memory(&[&["analyze", analysis, path, "--json"], args].concat());
        println!("{analysis} --json: {most} KiB");
        assert!(most < ENOUGH, "{analysis}: {most} KiB");
        let told: serde_json::Value = serde_json::from_str(&out).unwrap();
        assert!(number(&told, left_out) > 100_000, "{analysis}");
        assert!(list(&told, "threads").len() > 100_000, "{analysis}");
    }
    let picture = dir.path().join("names.svg");
    let of = ["analyze", "stacks", path, "--event", "sched_switch", "--flame"];
    let (most, _) = most_memory(&[&of[..], &[picture.to_str().unwrap()]].concat());
    println!("names.svg: {most} KiB");
    assert!(most < ENOUGH, "names.svg: {most} KiB");
    let text = std::fs::read_to_string(&picture).unwrap();
    assert!(!text.contains(|c: char| c.is_control() && !c.is_whitespace()));
    // Markup of names is text.
    assert!(text.contains("[other stacks]") && !text.contains("]<0"));
}
