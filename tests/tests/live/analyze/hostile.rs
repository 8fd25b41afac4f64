//! Names that somebody chose to do harm: control characters and markup.

use std::path::Path;

use integration_tests::answers::{answer, list, tables, text};
use integration_tests::harness::{self, Caller, Marked, run};

/// Clears the screen, begins a line, and is markup: as much as a thread's name can have.
const NAME: &str = "\x1b[2J<b>\n&\"'\x07";

/// Analyses with tables of threads.
const ANALYSES: [&str; 3] = ["sched", "syscalls", "offcpu"];

/// Fails if tables have what a terminal obeys.
pub(crate) fn assert_harmless(tables: &str) {
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
