//! What programs write to trace_marker, against ftrace's own record of the same writes.

use std::{
    fs::{self, File},
    io::{IoSlice, Write as _},
    path::{Path, PathBuf},
};

use integration_tests::{
    chromium::Chromium,
    daemon::{Daemon, ROOT},
    harness::{Ledger, Marked, agent, ledger_in_info, program, reported, run},
    trace_cmd,
    tracefs::{self, Instance},
};
use serde_json::json;

const MARKER: &str = "/sys/kernel/tracing/trace_marker";

fn open(path: &Path) -> File {
    File::options().write(true).open(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// What a program may write, each a call: one text, or the segments of a `writev`. `pid` tells the texts from
/// those of other tests.
fn writes(pid: u32) -> Vec<Vec<Vec<u8>>> {
    let text = |text: &str| text.replace("PID", &pid.to_string()).into_bytes();
    let long = |len| vec![text("PID long ").into_iter().chain(std::iter::repeat_n(b'x', len)).collect()];
    vec![
        vec![text("PID one")],
        vec![text("PID two\n")],
        vec![text("B|PID|a slice")],
        vec![text("E|PID")],
        vec![text("PID not\0shown")],
        vec![text("PID \x1b[1m\u{e9}\n")],
        long(990),
        long(1100),
        // More than ftrace takes, which says how much it took.
        long(5000),
        vec![text("PID v1"), text(""), text("PID v2\n"), text("PID v3")],
        vec![text("PID m1\n"), text("")],
        vec![text("PID m2"), long(5000).remove(0), text("not written any more")],
        vec![text(""), text("PID n1")],
        vec![text("")],
    ]
}

/// Makes the calls, and says how many bytes each has written.
fn write(path: &Path, pid: u32) -> Vec<usize> {
    let mut file = open(path);
    let call = |segments: &Vec<Vec<u8>>| match segments.as_slice() {
        [text] => file.write(text).unwrap(),
        segments => {
            let segments: Vec<_> = segments.iter().map(|segment| IoSlice::new(segment)).collect();
            file.write_vectored(&segments).unwrap()
        }
    };
    writes(pid).iter().map(call).collect()
}

/// The texts that stock trace-cmd prints of the events of this process.
fn stock(file: &Path, pid: u32) -> Vec<String> {
    let report = trace_cmd::report(file, &[]);
    assert!(!report.contains("FAILED TO PARSE"), "{report}");
    let lines = report.lines().filter(|line| line.contains(&format!("-{pid} ")));
    lines.map(|line| line.split_once(": ").map_or("", |(_, text)| text.trim_start()).to_owned()).collect()
}

fn recording(dir: &Path, options: &[&str]) -> Marked {
    let pid = std::process::id().to_string();
    let args = [&["-o", "out.dat", "-P", &pid, "-e", "ftrace:print"], options].concat();
    Marked::start(dir, &args)
}

/// The texts of a file's records.
fn texts(file: &Path) -> Vec<String> {
    let text = |event: &serde_json::Value| event["fields"]["buf"].as_str().map(str::to_owned);
    reported(file).iter().filter_map(text).collect()
}

/// Of one thread, which no other test of this process is.
#[test]
fn records_are_those_of_ftrace() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path();
    let pid = std::process::id();
    let instance = Instance::create("trace-marker", 256);
    let marked = recording(dir, &[]);
    // What is written to the marker of an instance is not recorded, nor is anything else.
    instance.write("tracing_on", "1");
    let path = PathBuf::from(format!("/sys/kernel/tracing/instances/trace-marker-{pid}/trace_marker"));
    let expected = write(&path, pid);
    instance.stop();
    fs::write(dir.join("another"), "file").unwrap();
    let written = write(Path::new(MARKER), pid);
    assert_eq!(written, expected, "ftrace is off");
    marked.finish().expect(0);

    let tid = rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned();
    let (ours, theirs) = (dir.join("out.dat"), dir.join("stock.dat"));
    tracefs::write_dat(&theirs, &tracefs::events(&["ftrace"]), &instance.pages());
    let stock_lines = stock(&theirs, tid);
    assert_eq!(stock_lines.len(), 18, "{stock_lines:?}");
    let mine: Vec<_> = stock(&ours, tid);
    // The reference is without symbols.
    let text = |line: &String| line.splitn(3, ": ").nth(2).unwrap_or_default().to_owned();
    assert_eq!(mine.iter().map(text).collect::<Vec<_>>(), stock_lines.iter().map(text).collect::<Vec<_>>());
    assert!(
        mine.iter().all(|line| line.starts_with("print: ") && line.contains("tracing_mark_write: ")),
        "{mine:?}"
    );
    let counts = Ledger::of(&ours);
    assert_eq!((counts.events("recorded"), counts.lost(), counts.events("cut")), (18, 0, 0));

    let texts = texts(&ours);
    let text = |text: &str| text.replace("PID", &pid.to_string());
    assert_eq!(texts[..4], ["PID one\n", "PID two\n", "B|PID|a slice\n", "E|PID\n"].map(text));
    assert_eq!(texts[9..14], ["PID v1\n", "PID v2\n", "PID v3\n", "PID m1\n", "PID m2\n"].map(text));
    // What was written, and a line feed.
    let long = expected[8] + 1;
    assert!(long > 1000);
    assert_eq!((texts[8].len(), texts[14].len()), (long, long));
    assert_eq!(texts[15..], ["\n", "PID n1\n", "\n"].map(text));

    run(&mut agent(dir, ["export", "--format", "chrome", "out.dat", "chrome.json"])).expect(0);
    let chrome: serde_json::Value =
        serde_json::from_slice(&fs::read(dir.join("chrome.json")).unwrap()).unwrap();
    let events = chrome.as_array().or_else(|| chrome["traceEvents"].as_array()).unwrap();
    let spans = events.iter().filter(|event| event["cat"] == "span");
    let spans: Vec<_> = spans.map(|event| (event["ph"].as_str(), event["name"].as_str())).collect();
    assert_eq!(spans, [(Some("X"), Some("a slice"))]);
}

/// A switch of ftrace that is off, and on again afterwards.
struct Off(PathBuf);

impl Off {
    fn new(file: &str) -> Self {
        let path = Path::new("/sys/kernel/tracing").join(file);
        assert_eq!(fs::read_to_string(&path).unwrap().trim(), "1", "{}", path.display());
        fs::write(&path, "0").unwrap();
        Self(path)
    }
}

impl Drop for Off {
    fn drop(&mut self) {
        fs::write(&self.0, "1").unwrap();
    }
}

#[test]
fn texts_are_recorded_while_ftrace_is_off() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path();
    for (switch, error) in [("tracing_on", libc::EBADF), ("options/markers", libc::EINVAL)] {
        let marked = recording(dir, &[]);
        let mut file = open(Path::new(MARKER));
        let off = Off::new(switch);
        let refused = file.write(b"off").unwrap_err();
        drop(off);
        marked.finish().expect(0);
        assert_eq!(
            (refused.raw_os_error(), texts(&dir.join("out.dat"))),
            (Some(error), vec!["off\n".to_owned()])
        );
    }
}

#[test]
fn writes_that_are_not_understood_are_counted_or_are_none() {
    use std::os::fd::AsRawFd as _;

    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path();
    let marked = recording(dir, &[]);
    let mut file = open(Path::new(MARKER));
    let write = |address: usize, len: usize| {
        // SAFETY: the kernel checks the address, at which there is nothing.
        let written = unsafe { libc::write(file.as_raw_fd(), address as *const libc::c_void, len) };
        assert_eq!(written, -1);
        std::io::Error::last_os_error().raw_os_error().unwrap()
    };
    // The second has a length that no system call takes.
    assert_eq!([write(4096, 5), write(4096, usize::MAX)], [libc::EFAULT; 2]);
    let segments: Vec<_> = (b'0'..=b'8').map(|digit| [digit]).collect();
    let segments: Vec<_> = segments.iter().map(|segment| IoSlice::new(segment)).collect();
    assert_eq!(file.write_vectored(&segments).unwrap(), 9);
    marked.finish().expect(0);
    let expected = ["<faulted>\n", "0\n", "1\n", "2\n", "3\n", "4\n", "5\n", "6\n", "7\n"];
    assert_eq!(texts(&dir.join("out.dat")), expected);
    let counts = Ledger::of(&dir.join("out.dat"));
    assert_eq!((counts.events("recorded"), counts.lost()), (9, 1));
}

#[test]
fn a_shell_writes_and_scopes_and_filters_take_what_they_take() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path();
    let script = format!("echo one >{MARKER}; echo 'C|1|load|7' >{MARKER}; echo two >{MARKER}");
    let record = |options: &[&str]| {
        let args = ["record", "-o", "out.dat", "-e", "ftrace:print"].iter().chain(options);
        run(&mut agent(dir, args.copied().chain(["-F", "sh", "-c", &script]))).expect(0);
        texts(&dir.join("out.dat"))
    };
    assert_eq!(record(&[]), ["one\n", "C|1|load|7\n", "two\n"]);
    assert_eq!(record(&["-f", "buf ~ \"C|*\""]), ["C|1|load|7\n"]);
    let filtered = ["-f", "buf ~ \"*o*\" && !(buf ~ \"one*\")", "-e", "sched:sched_process_exit"];
    assert_eq!(record(&filtered), ["C|1|load|7\n", "two\n"]);
    let ledger = ledger_in_info(&dir.join("out.dat"));
    let filtered = ledger["cpus"].as_array().unwrap().iter().map(|cpu| cpu["filtered"].as_u64().unwrap());
    // Of other processes, too.
    assert!(filtered.sum::<u64>() >= 1, "{ledger}");
    assert_eq!(record(&["--user-stack"]).len(), 3);
    let report = trace_cmd::report(&dir.join("out.dat"), &[]);
    assert_eq!(report.matches("user_stack").count(), 3, "{report}");
}

/// Where a text goes on to the end of the record, nothing can follow it.
#[test]
fn what_it_cannot_have_is_refused() {
    let scratch = tempfile::tempdir().unwrap();
    let refused = |args: &[&str], why: &str| {
        let args = ["record"].iter().chain(args).chain(&["true"]).copied();
        let said = run(&mut agent(scratch.path(), args));
        assert_ne!(said.code(), 0);
        said.says(&[why]);
    };
    refused(&["-e", "ftrace:print", "--context", "uid"], "contexts");
    refused(&["--stop-on", "ftrace:print", "-e", "sched"], "contexts");
    refused(&["--count", "ftrace:print by $comm"], "ftrace:print");
    refused(&["-e", "ftrace:function"], "ftrace writes it itself");
}

#[test]
fn a_session_records_it_as_well() {
    let daemon = Daemon::start();
    let out = tempfile::tempdir().unwrap();
    daemon.session(
        ROOT,
        "marks",
        out.path(),
        &[json!({"name": "ftrace:print", "instrumentation": "tracepoint"})],
    );
    daemon.tell("POST", "/v1/sessions/marks/start", None);
    // Not of this process, of which another test records all.
    let text = format!("session {}\n", std::process::id());
    let script = format!("echo session {} >{MARKER}", std::process::id());
    run(&mut program(out.path(), "sh", ["-c", &script])).expect(0);
    daemon.tell("POST", "/v1/sessions/marks/stop", None);
    daemon.tell("DELETE", "/v1/sessions/marks", None);
    let files = fs::read_dir(out.path()).unwrap().map(|entry| entry.unwrap().path());
    let files: Vec<_> = files.filter(|path| path.extension().is_some_and(|end| end == "dat")).collect();
    assert_eq!(files.len(), 1, "{files:?}");
    assert_eq!(texts(&files[0]).iter().filter(|of| **of == text).count(), 1);
}

#[test]
fn chromes_viewer_has_spans_counters_and_moments() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path();
    let texts = ["B|1|load", "S|7|get|3", "C|7|queue|4", "I|1|now", "E", "C|7|queue|-6", "F|7|get|3"];
    let script = texts.map(|text| format!("echo '{text}' >{MARKER}")).join(";");
    run(&mut agent(dir, ["record", "-e", "ftrace:print", "-F", "-o", "out.dat", "sh", "-c", &script]))
        .expect(0);
    run(&mut agent(dir, ["export", "--format", "chrome", "out.dat", "chrome.json"])).expect(0);
    let chrome: serde_json::Value =
        serde_json::from_slice(&fs::read(dir.join("chrome.json")).unwrap()).unwrap();
    let of = |event: &serde_json::Value| {
        let process = event["pid"] == 7;
        (event["ph"].clone(), event["name"].clone(), process, event["args"]["value"].clone())
    };
    let events = chrome["traceEvents"].as_array().unwrap().iter();
    let mut found: Vec<_> =
        events.filter(|event| event["cat"] == "span" || event["cat"] == "counter").map(of).collect();
    found.sort_by_key(|(phase, name, _, value)| (phase.to_string(), name.to_string(), value.as_i64()));
    let expected = [
        ("C", "queue", true, json!(-6)),
        ("C", "queue", true, json!(4)),
        ("X", "load", false, json!(null)),
        ("b", "get", true, json!(null)),
        ("e", "get", true, json!(null)),
        ("i", "now", false, json!(null)),
    ];
    assert_eq!(
        found,
        expected.map(|(phase, name, process, value)| (json!(phase), json!(name), process, value))
    );
}

/// Slices of rows of such a kind, in the order of their begins: the row's name, what it is, and its value.
const SLICES: &str = "(async (kinds) => { const all = []; for (const told of index.slices) { \
     const block = await stores.slices.get(told); for (const [row, [begin, end]] of block.rows) { \
     const kind = index.rows[row][0]; if (!kinds.includes(kind)) continue; for (let at = begin; at < end; at++) \
     all.push([block.start[at], rowName(row).replace(/ [0-9]+$/, ''), keyName(kind, block.key[at]), block.arg[at], \
     Boolean(block.last[at])]); } } return all.sort((one, other) => one[0] - other[0]).map((of) => of.slice(1)); })";

#[test]
fn spans_and_counters_of_programs_are_shown() {
    let dir = tempfile::tempdir().unwrap();
    let texts = [
        "B|1|load",
        "S|7|get|3",
        "C|7|queue|4",
        "B|1|parse",
        "I|1|now",
        "E|1",
        "E",
        "C|7|queue|-6",
        "F|7|get|3",
    ];
    let script = texts.map(|text| format!("echo '{text}' >{MARKER}")).join(";");
    let file = dir.path().join("out.dat");
    let args = ["record", "-e", "ftrace:print", "-F", "-o", "out.dat", "sh", "-c", &script];
    run(&mut agent(dir.path(), args)).expect(0);
    let page = dir.path().join("page.html");
    html(&file, &page);
    let mut browser = Chromium::start(&dir.path().join("profile"));
    browser.open(&format!("file://{}", page.display()));
    let kinds = "[KIND.spans, KIND.processSpans, KIND.counter, KIND.moments]";
    let expected = json!([
        ["spans of sh", "load", 0, true],
        ["spans of process", "get", 0, true],
        ["queue of process", "queue", 4, true],
        ["spans of sh", "parse", 0, true],
        ["moments of sh", "now", 0, true],
        ["queue of process", "queue", -6, false],
    ]);
    assert_eq!(browser.eval(&format!("{SLICES}({kinds})")), expected);
    let lines = browser.eval("lines.filter((line) => line.lanes.length).map((line) => line.label)");
    for label in ["process 7", "queue of process 7"] {
        assert!(lines.as_array().unwrap().contains(&json!(label)), "{lines}");
    }
    browser.expect_quiet();
    // Where some were left out, an end may be that of another span.
    let args =
        ["record", "-e", "ftrace:print", "-f", "buf ~ \"*|*\"", "-F", "-o", "out.dat", "sh", "-c", &script];
    run(&mut agent(dir.path(), args)).expect(0);
    html(&file, &page);
    browser.open(&format!("file://{}", page.display()));
    let found = browser.eval(&format!("{SLICES}({kinds})"));
    let found: Vec<_> =
        found.as_array().unwrap().iter().map(|of| of[0].as_str().unwrap().to_owned()).collect();
    assert_eq!(found, ["queue of process", "moments of sh", "queue of process"]);
}

fn html(file: &Path, page: &Path) {
    let dir = file.parent().unwrap();
    run(agent(dir, ["export", "--force", "--format", "html"]).arg(file).arg(page)).expect(0);
}
