//! Recordings whose names are made to be taken for something else: whatever is made of them, its readers read
//! it, and a terminal, a page, a path and a table get text.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use integration_tests::chromium::Chromium;
use integration_tests::harness::{agent, agent_path, files, program, reported, run};
use integration_tests::hostile::{self, LONG, TEXTS, records};
use integration_tests::{ctf, duckdb, eventdefs_reader, ltt2008_reader, perfetto, trace_processor};
use serde_json::Value;

/// Reads an export, and compares it with the recording.
type Reader = fn(&Path, &Path);

/// How the export of a format is read, by something that is not ours where there is that. A format without a
/// reader here fails the test.
const READERS: &[(&str, Reader)] = &[
    ("ctf", read_ctf),
    ("ctf2", read_ctf2),
    ("lttng", read_ctf),
    ("perfetto", read_perfetto),
    ("chrome", read_chrome),
    ("perf-script", read_perf_script),
    ("html", read_html),
    ("csv", read_csv),
    ("jsonl", read_jsonl),
    ("parquet", read_parquet),
    ("arrow", read_arrow),
    ("sqlite", read_sqlite),
    ("ltt-eventdefs", read_eventdefs),
    ("lttng-2008", read_2008),
];

/// The formats that the command has.
fn formats() -> Vec<String> {
    let said = run(&mut agent("/".as_ref(), ["export", "--format", "?", "x", "y"])).expect(2).err;
    let (_, known) = said.split_once("known: ").unwrap_or_else(|| panic!("{said}"));
    known.lines().next().unwrap().split(", ").map(str::to_owned).collect()
}

fn recording(dir: &Path, long: usize) -> PathBuf {
    let file = dir.join("hostile.dat");
    hostile::write(&file, long);
    file
}

#[test]
fn every_export_is_read_by_its_readers() {
    let dir = tempfile::tempdir().unwrap();
    let file = recording(dir.path(), 200);
    for format in formats() {
        let reader = READERS.iter().find(|(name, _)| *name == format);
        let (_, read) = reader.unwrap_or_else(|| panic!("the format {format} has no reader in this test"));
        let inside = dir.path().join(format!("in-{format}"));
        fs::create_dir(&inside).unwrap();
        let out = inside.join("out");
        run(agent(dir.path(), ["export", "--format", &format]).arg(&file).arg(&out)).expect(0);
        // Nothing is anywhere else.
        assert_eq!(files(&inside), ["out"], "{format}");
        read(&out, &file);
    }
    let left: BTreeSet<String> = files(dir.path()).into_iter().collect();
    assert_eq!(left.len(), formats().len() + 1, "{left:?}");
}

#[test]
fn names_of_a_megabyte_are_exported() {
    let dir = tempfile::tempdir().unwrap();
    let file = recording(dir.path(), LONG);
    for format in formats() {
        let out = dir.path().join(&format);
        let ended = run(agent(dir.path(), ["export", "--format", &format]).arg(&file).arg(&out));
        ended.expect(0);
    }
}

/// The texts as JSON has them: what is no UTF-8 is replaced.
fn lossy() -> BTreeSet<String> {
    TEXTS.into_iter().map(|text| String::from_utf8_lossy(text).into_owned()).collect()
}

fn python(script: &str, path: &Path) -> Vec<Value> {
    let out = run(program("/".as_ref(), "/usr/bin/python3", ["-c", script]).arg(path)).expect(0).out;
    out.lines().map(|line| serde_json::from_str(line).expect(line)).collect()
}

fn read_ctf(out: &Path, _: &Path) {
    let text = run(program("/".as_ref(), "babeltrace2", ["--names", "all"]).arg(out)).expect(0).out;
    // Texts have line feeds of their own nowhere.
    assert_eq!(text.lines().count(), records(), "{text}");
}

/// Debian's babeltrace2 is older than CTF 2: its reader is one of the tests.
fn read_ctf2(out: &Path, _: &Path) {
    assert_eq!(ctf::read(out).events.len(), records());
}

fn read_perfetto(out: &Path, _: &Path) {
    let trace = perfetto::read(out);
    let events: Vec<&Value> = trace.events.values().flatten().collect();
    assert_eq!(events.len(), records());
    let texts: BTreeSet<String> =
        events.iter().map(|event| event["fields"]["text"].as_str().unwrap().to_owned()).collect();
    assert_eq!(texts, lossy());
    let answers = trace_processor::ask(out, &["select count(*) from ftrace_event"]);
    assert_eq!(answers[0][0][0], records());
}

fn read_chrome(out: &Path, file: &Path) {
    let trace: Value = serde_json::from_str(&fs::read_to_string(out).unwrap()).unwrap();
    let instants: Vec<&Value> =
        trace["traceEvents"].as_array().unwrap().iter().filter(|event| event["ph"] == "i").collect();
    let told = reported(file);
    assert_eq!((instants.len(), told.len()), (records(), records()));
    for (instant, record) in instants.iter().zip(&told) {
        assert_eq!((&instant["name"], &instant["cat"]), (&record["event"], &record["system"]));
        assert_eq!(instant["args"]["fields"], record["fields"]);
        assert_eq!(instant["args"]["names"], record["names"]);
    }
    let texts: BTreeSet<String> =
        told.iter().map(|record| record["fields"]["text"].as_str().unwrap().to_owned()).collect();
    assert_eq!(texts, lossy());
    let wrong = "select name from stats where value > 0 and severity in ('error', 'data_loss')";
    let answers = trace_processor::ask(out, &["select count(*) from slice where category != 'loss'", wrong]);
    assert_eq!((&answers[0][0][0], answers[1].len()), (&Value::from(records()), 0));
}

fn read_perf_script(out: &Path, _: &Path) {
    let text = fs::read_to_string(out).unwrap();
    let lines = || text.lines().filter(|line| !line.starts_with("# "));
    assert_eq!(lines().count(), records(), "{text}");
    expect_harmless(text.as_bytes(), "perf-script");
    assert!(lines().all(|line| line.contains(" [000] ") && !line.contains('\t')), "{text}");
}

fn read_html(out: &Path, file: &Path) {
    let dir = tempfile::tempdir().unwrap();
    let mut browser = Chromium::start(dir.path());
    // Chromium takes what it is given for what its name says.
    let page = dir.path().join("page.html");
    fs::copy(out, &page).unwrap();
    browser.open(&format!("file://{}", page.display()));
    let told = reported(file);
    let shown = browser.eval(
        "(async () => { const all = []; for (let n = 1; n <= index.total; n++) { const event = await loadEvent(n); \
         all.push([event.name, new Map(event.fields).get('text')]); } return all; })()",
    );
    for (shown, record) in shown.as_array().unwrap().iter().zip(&told) {
        let name = format!("{}:{}", record["system"].as_str().unwrap(), record["event"].as_str().unwrap());
        assert_eq!((&shown[0], &shown[1]), (&Value::from(name), &record["fields"]["text"]));
    }
    assert_eq!(shown.as_array().unwrap().len(), records());
    // What the page shows of them is text: no elements, and nothing ran.
    browser.eval("for (const row of document.querySelectorAll('tr, summary, button')) row.click?.()");
    assert_eq!(
        browser.eval("[typeof window.pwned, document.images.length]"),
        serde_json::json!(["undefined", 0])
    );
    browser.expect_quiet();
}

fn read_csv(out: &Path, _: &Path) {
    const READ: &str = "
import csv, glob, json, os, sys
for path in sorted(glob.glob(glob.escape(sys.argv[1]) + '/*.csv')):
    with open(path, newline='', encoding='utf-8') as file:
        rows = list(csv.reader(file, strict=True))
    assert all(len(row) == len(rows[0]) for row in rows), path
    print(json.dumps({'file': os.path.basename(path), 'rows': [dict(zip(rows[0], row)) for row in rows[1:]]}))
";
    let tables = python(READ, out);
    let rows = tables.iter().flat_map(|table| table["rows"].as_array().unwrap());
    let rows: Vec<&Value> = rows.filter(|row| row["text"].is_string()).collect();
    assert_eq!(rows.len(), records());
    let texts: BTreeSet<String> = rows.iter().map(|row| row["text"].as_str().unwrap().to_owned()).collect();
    assert_eq!(texts, lossy());
}

fn read_jsonl(out: &Path, _: &Path) {
    const READ: &str = "
import glob, json, os, sys
for path in sorted(glob.glob(glob.escape(sys.argv[1]) + '/*.jsonl')):
    # Python also ends lines at characters that JSON may have in a text.
    for line in open(path, newline='\\n', encoding='utf-8'):
        print(json.dumps(json.loads(line)))
";
    let rows: Vec<Value> = python(READ, out).into_iter().filter(|row| row["text"].is_string()).collect();
    assert_eq!(rows.len(), records());
    let texts: BTreeSet<String> = rows.iter().map(|row| row["text"].as_str().unwrap().to_owned()).collect();
    assert_eq!(texts, lossy());
}

/// Fails unless these are the rows of all events. Tables of other things have no column of that name.
fn expect_texts(rows: &[Value]) {
    assert_eq!(rows.len(), records());
    let texts: BTreeSet<String> = rows.iter().map(|text| text.as_str().unwrap().to_owned()).collect();
    assert_eq!(texts, lossy());
}

fn read_parquet(out: &Path, _: &Path) {
    const READ: &str = "
import glob, json, sys
import pyarrow.parquet
for path in sorted(glob.glob(glob.escape(sys.argv[1]) + '/*.parquet')):
    table = pyarrow.parquet.ParquetFile(path).read()
    for text in table['text'].to_pylist() if 'text' in table.column_names else []:
        print(json.dumps(text))
";
    expect_texts(&read_in_python(READ, out));
    // The views of all tables can be made and asked.
    let views = "SELECT view_name FROM duckdb_views() WHERE NOT internal";
    assert!(duckdb::ask(out, &[views])[0].len() > records() / 100);
}

fn read_arrow(out: &Path, _: &Path) {
    const READ: &str = "
import glob, json, sys
import pyarrow.ipc
for path in sorted(glob.glob(glob.escape(sys.argv[1]) + '/*.arrow')):
    table = pyarrow.ipc.open_file(path).read_all()
    for text in table['text'].to_pylist() if 'text' in table.column_names else []:
        print(json.dumps(text))
";
    expect_texts(&read_in_python(READ, out));
}

fn read_sqlite(out: &Path, _: &Path) {
    const READ: &str = "
import json, sqlite3, sys
db = sqlite3.connect(sys.argv[1])
assert db.execute('PRAGMA integrity_check').fetchall() == [('ok',)]
quoted = lambda name: '\"' + name.replace('\"', '\"\"') + '\"'
for (table,) in db.execute(\"SELECT name FROM sqlite_master WHERE type = 'table'\").fetchall():
    columns = [row[1] for row in db.execute(f'PRAGMA table_info({quoted(table)})')]
    for row in db.execute(f'SELECT text FROM {quoted(table)}') if 'text' in columns else []:
        print(json.dumps(row[0]))
";
    expect_texts(&read_in_python(READ, out));
}

/// What Python prints that has the readers of tables.
fn read_in_python(script: &str, path: &Path) -> Vec<Value> {
    let out = run(duckdb::python(script).arg(path)).expect(0).out;
    out.lines().map(|line| serde_json::from_str(line).expect(line)).collect()
}

/// The descriptions are as LTTV 0.4 reads them, which is no XML: values of attributes stand without quotation
/// marks.
fn read_eventdefs(out: &Path, _: &Path) {
    eventdefs_reader::read(out, false);
}

fn read_2008(out: &Path, _: &Path) {
    ltt2008_reader::read(out, false);
}

/// Fails if a terminal would act on something: controls of C0 and C1, an override of the direction.
fn expect_harmless(shown: &[u8], what: &str) {
    let text = std::str::from_utf8(shown);
    let text = text.unwrap_or_else(|_| panic!("{what} is no UTF-8: {:?}", String::from_utf8_lossy(shown)));
    // But for what wipes the line of progress.
    for c in text.replace("\x1b[K", "").chars() {
        let is_layout = matches!(c, '\n' | '\r' | '\t');
        let turns = matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        assert!(is_layout || !(c.is_control() || turns), "{what}: {c:?} in {text:?}");
    }
}

#[test]
fn a_terminal_gets_nothing_that_it_would_obey() {
    let dir = tempfile::tempdir().unwrap();
    recording(dir.path(), 200);
    for (format, out) in [("ctf", "traced"), ("ctf2", "traced2")] {
        run(&mut agent(dir.path(), ["export", "--format", format, "hostile.dat", out])).expect(0);
    }
    let agent_path = agent_path();
    for command in [
        "report hostile.dat",
        "report -R hostile.dat",
        "report -l -t --ts-diff hostile.dat",
        "report --json hostile.dat",
        "report --events hostile.dat",
        "report --stat hostile.dat",
        "report --uname --version hostile.dat",
        "report --folded hostile.dat",
        "info hostile.dat",
        "info --json hostile.dat",
        "info traced",
        "info --json traced",
        "info traced2",
        "check hostile.dat",
        "hist hostile.dat plain text",
        "hist hostile.dat plain text --json",
        "hist hostile.dat plain kind",
        "hist hostile.dat plain common_comm",
        "analyze summary hostile.dat",
        "analyze summary hostile.dat --json",
        "analyze cpu hostile.dat",
        "diff hostile.dat hostile.dat",
        "export --force --format perf-script hostile.dat $'out\\x1b[31m'",
        "export --force --format csv hostile.dat $'out\\x1b[32m'",
        "export --format $'\\x1b[31m' hostile.dat x",
        "export --format csv $'gone\\x1b[31m' x",
        "split hostile.dat -o $'part\\x1b[31m' 2 </dev/null",
    ] {
        let line = format!("NO_COLOR=1 '{}' {command}", agent_path.display());
        let mut script = program(dir.path(), "script", ["-qc", &line, "/dev/null"]);
        let shown = script.env("SHELL", "/bin/bash").output().unwrap().stdout;
        expect_harmless(&shown, command);
    }
}
