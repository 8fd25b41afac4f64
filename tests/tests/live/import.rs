//! Recordings of perf and texts of traces as trace.dat files, against perf's own texts, its counts, stock
//! trace-cmd, and the kernel.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use integration_tests::harness::{Ended, agent, program, reported, run};
use integration_tests::{perf, trace_cmd};
use serde_json::Value;

const EVENTS: [&str; 2] = ["sched:*", "raw_syscalls:*"];

/// A line without the task's name, which is that at the end in a trace.dat and that of the moment in perf:
/// time, CPU, event, text, thread.
type Line = (String, u32, String, String, String);

fn workload() -> Vec<String> {
    ["sh", "-c", "for i in 1 2 3 4 5 6 7 8; do /bin/true; done; ls / > /dev/null"].map(str::to_owned).to_vec()
}

#[track_caller]
fn import(source: &Path, to: &Path) -> Ended {
    run(agent("/".as_ref(), ["import", "-o"]).arg(to).arg(source)).expect(0)
}

/// What `perf script` prints. Its warnings are about events of other kinds, which have no fields.
#[track_caller]
fn script(file: &Path, fields: &str) -> String {
    let mut command = program("/".as_ref(), "perf", ["script", "--ns", "-F", fields, "-i"]);
    run(command.arg(file)).expect(0).out
}

/// Lines of `perf script`, sorted.
#[track_caller]
fn by_perf(file: &Path) -> Vec<Line> {
    let line = |line: &str| {
        // `TID [CPU] TIME: SYSTEM:EVENT: TEXT`
        let (tid, rest) = line.trim_start().split_once(" [")?;
        let (cpu, rest) = rest.split_once("] ")?;
        let (time, rest) = rest.trim_start().split_once(": ")?;
        let (event, text) = rest.trim_start().split_once(": ")?;
        let (_, event) = event.split_once(':')?;
        Some((time.to_owned(), cpu.parse().ok()?, event.to_owned(), text.trim().to_owned(), tid.to_owned()))
    };
    let printed = script(file, "tid,cpu,time,event,trace");
    let mut lines: Vec<Line> =
        printed.lines().map(|text| line(text).unwrap_or_else(|| panic!("{text}"))).collect();
    lines.sort();
    lines
}

/// The same of a report, by us or by trace-cmd.
#[track_caller]
fn of_report(report: &str) -> Vec<Line> {
    let line = |line: &str| {
        // `COMM-PID [CPU] TIME: EVENT: TEXT`, and a name may have anything.
        let (task, rest) = line.split_once(" [")?;
        let (cpu, rest) = rest.split_once("] ")?;
        let (time, rest) = rest.trim_start().split_once(": ")?;
        let (event, text) = rest.split_once(':')?;
        let (_, pid) = task.trim_end().rsplit_once('-')?;
        Some((time.to_owned(), cpu.parse().ok()?, event.to_owned(), text.trim().to_owned(), pid.to_owned()))
    };
    let lines = report.lines().filter(|line| !line.starts_with("cpus=") && !line.starts_with("CPU "));
    let mut lines: Vec<Line> = lines.map(|text| line(text).unwrap_or_else(|| panic!("{text}"))).collect();
    lines.sort();
    lines
}

fn report(file: &Path) -> String {
    run(agent("/".as_ref(), ["report", "-N", "-t"]).arg(file)).expect(0).out
}

/// Fails unless the lines of perf are those of a report. Of a thread that has ended the kernel tells perf the
/// id -1, and ftrace its own.
#[track_caller]
fn same(by_perf: &[Line], reported: &[Line]) {
    assert!(!by_perf.is_empty());
    assert_eq!(by_perf.len(), reported.len());
    for (left, right) in by_perf.iter().zip(reported) {
        let (a, b) = ((&left.0, left.1, &left.2, &left.3), (&right.0, right.1, &right.2, &right.3));
        assert!(a == b && (left.4 == right.4 || left.4 == "-1"), "{left:?}\n{right:?}");
    }
}

/// Everything that is said of a file without losses.
#[track_caller]
fn compare(perf_data: &Path, dat: &Path) {
    let lines = by_perf(perf_data);
    same(&lines, &of_report(&report(dat)));
    same(&lines, &of_report(&trace_cmd::report(dat, &["-N", "-t"])));
    let checked = run(agent("/".as_ref(), ["check"]).arg(dat)).expect(0);
    assert!(checked.out.contains("no faults"), "{checked:?}");
}

#[test]
fn every_sample_is_what_perf_prints_of_it() {
    let dir = tempfile::tempdir().unwrap();
    let (file, dat) = (dir.path().join("perf.data"), dir.path().join("new.dat"));
    perf::record(&file, &EVENTS, &workload());
    let ended = import(&file, &dat);
    compare(&file, &dat);
    // The records themselves, as another reader of such files finds them.
    let samples = perf::samples(&file);
    ended.says(&["mappings of processes", " events of "]);
    let records = reported(&dat);
    let mut times: Vec<_> = records.iter().map(|record| record["timestamp"].as_u64().unwrap()).collect();
    let mut expected: Vec<_> = samples.iter().map(|sample| sample.time).collect();
    times.sort_unstable();
    expected.sort_unstable();
    assert_eq!(times, expected);
    // The analyses work on it: the workload's processes are there by name.
    let sched = run(agent("/".as_ref(), ["analyze", "sched", "-n", "10000"]).arg(&dat)).expect(0);
    assert!(sched.out.contains("true"), "{}", sched.out);
    // perf was told to use the monotonic clock, and noted how far it is from wall time.
    let day = run(agent("/".as_ref(), ["import", "--force", "--date", "-o"]).arg(&dat).arg(&file)).expect(0);
    assert!(!day.err.is_empty());
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    let first: f64 = of_report(&report(&dat))[0].0.parse().unwrap();
    assert!(first <= now as f64 && first > (now - 3600) as f64, "{first} {now}");
}

/// Imports a file that comes through a pipe.
fn piped(dir: &Path, source: &str, to: &str) -> Output {
    let mut cat = program(dir, "cat", [source]).stdout(Stdio::piped()).spawn().unwrap();
    // The command has the end of the pipe, and is gone before cat is waited for, which may have more to say.
    let ended = agent(dir, ["import", "-o", to, "-"]).stdin(cat.stdout.take().unwrap()).output().unwrap();
    cat.wait().unwrap();
    ended
}

#[test]
fn streams_and_compressed_files() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let mut compressed = perf::record_line(&path("packed.data"), &EVENTS[..1], &workload());
    compressed.insert(2, "-z".to_owned());
    run(&mut program(dir.path(), &compressed[0], &compressed[1..])).expect(0);
    import(&path("packed.data"), &path("packed.dat"));
    compare(&path("packed.data"), &path("packed.dat"));

    let line = perf::record_line("-".as_ref(), &EVENTS[..1], &workload());
    let mut record = program(dir.path(), &line[0], &line[1..]);
    let written = record.stdout(File::create(path("stream.data")).unwrap()).stderr(Stdio::null()).status();
    assert!(written.unwrap().success());
    import(&path("stream.data"), &path("stream.dat"));
    compare(&path("stream.data"), &path("stream.dat"));
    // From a pipe it is the same.
    let ended = piped(dir.path(), "stream.data", "piped.dat");
    assert!(ended.status.success(), "{ended:?}");
    assert!(fs::read(path("piped.dat")).unwrap() == fs::read(path("stream.dat")).unwrap());
    // A file needs its end first.
    let ended = piped(dir.path(), "packed.data", "none.dat");
    assert_eq!(ended.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&ended.stderr).contains("from a pipe"), "{ended:?}");
    assert!(!path("none.dat").exists());
}

#[test]
fn kernel_call_chains_become_stacks() {
    let dir = tempfile::tempdir().unwrap();
    let (file, dat) = (dir.path().join("perf.data"), dir.path().join("new.dat"));
    let mut line = perf::record_line(&file, &["sched:sched_switch"], &workload());
    line.insert(2, "-g".to_owned());
    run(&mut program(dir.path(), &line[0], &line[1..])).expect(0);
    import(&file, &dat).says(&["call chains of user space"]);
    let expected = perf::kernel_chains(&file);
    let stacks: BTreeMap<(u32, u64), Vec<u64>> = reported(&dat)
        .iter()
        .filter(|record| record["event"] == "kernel_stack")
        .map(|record| {
            let caller = record["fields"]["caller"].as_array().unwrap();
            let number = |text: &str| u64::from_str_radix(text.strip_prefix("0x").unwrap(), 16).unwrap();
            let caller = caller.iter().map(|address| number(address.as_str().unwrap())).collect();
            let cpu = record["cpu"].as_u64().unwrap() as u32;
            ((cpu, record["timestamp"].as_u64().unwrap()), caller)
        })
        .collect();
    assert!(stacks.len() > 8, "{}", stacks.len());
    assert_eq!(stacks, expected);
}

#[test]
fn losses_are_marked_and_counted() {
    let dir = tempfile::tempdir().unwrap();
    let (file, dat) = (dir.path().join("perf.data"), dir.path().join("new.dat"));
    // Buffers of a page, and a workload that makes more than perf can take out.
    let line = ["record", "-q", "-a", "-m", "1", "-e", "raw_syscalls:*", "-o", "perf.data", "--"];
    let dd = ["dd", "if=/dev/zero", "of=/dev/null", "bs=1", "count=200000"];
    let mut record = program(dir.path(), "perf", line.iter().chain(&dd));
    run(&mut record).expect(0);
    let ended = import(&file, &dat).says(&["lost when it was recorded"]);
    let lost = perf::lost(&file);
    assert!(lost.told > 1000, "{lost:?}");
    let info = run(agent(dir.path(), ["info", "--json"]).arg(&dat)).expect(0).out;
    let info: Value = serde_json::from_str(&info).unwrap();
    let cpus = info["ledger"]["cpus"].as_array().unwrap_or_else(|| panic!("{info}"));
    let counted: u64 = cpus.iter().map(|cpu| cpu["lost"]["by_recorder"].as_u64().unwrap_or(0)).sum();
    // Both counts are by CPU; the larger one of each is right.
    assert!(
        counted >= lost.told.max(lost.counted) && counted <= lost.told + lost.counted,
        "{lost:?} {counted}"
    );
    let marks: Vec<u64> = reported(&dat).iter().map(|record| record["lost"].as_u64().unwrap()).collect();
    assert!(marks.iter().sum::<u64>() <= lost.told, "{ended:?}");
    let marks = marks.iter().filter(|lost| **lost != 0).count();
    assert!(marks > 10 && marks <= lost.places, "{lost:?} {marks}");
    // trace-cmd tells of each gap.
    let gaps = trace_cmd::report(&dat, &[]).matches("EVENTS DROPPED").count();
    assert_eq!(gaps, marks, "{lost:?}");
}

#[test]
fn what_cannot_be_imported_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| -> PathBuf { dir.path().join(name) };
    let refused = |args: &[&str], code: i32, said: &[&str]| {
        run(&mut agent(dir.path(), ["import"].iter().chain(args))).expect(code).says(said);
        assert!(!path("trace.dat").exists());
    };
    perf::record(&path("perf.data"), &["sched:sched_switch"], &workload());
    let whole = fs::read(path("perf.data")).unwrap();
    for (name, len) in [("half", whole.len() / 2), ("tail", whole.len() - 10), ("head", 50)] {
        fs::write(path(name), &whole[..len]).unwrap();
        refused(&[name], 1, &[name, "perf.data, byte ", "cut short"]);
    }
    // Inside of the data: the place is told, and what is before can be kept.
    let mut damaged = whole.clone();
    let data = u64::from_le_bytes(whole[40..48].try_into().unwrap()) as usize;
    let len = u64::from_le_bytes(whole[48..56].try_into().unwrap()) as usize;
    damaged[data + len - 8..data + len].fill(0);
    fs::write(path("damaged"), &damaged).unwrap();
    refused(&["damaged"], 1, &["perf.data, byte ", "--keep-going"]);
    let kept = agent(dir.path(), ["import", "--keep-going", "-o", "kept.dat", "damaged"]);
    run(&mut { kept }).expect(0).says(&["everything after the damage"]);
    fs::write(path("text"), "hello\n").unwrap();
    refused(&["--format", "perf", "text"], 1, &["does not begin with PERFILE2"]);
    refused(&["--format", "nothing", "text"], 2, &["known: perf, ctf, text"]);
    refused(&["missing"], 1, &["missing", "No such file"]);
    refused(&["."], 1, &["has no CTF trace"]);
    // What is there stays there.
    fs::write(path("taken.dat"), "mine").unwrap();
    refused(&["-o", "taken.dat", "perf.data"], 114, &["--force"]);
    assert_eq!(fs::read(path("taken.dat")).unwrap(), b"mine");
    refused(&["-o", "no/such/new.dat", "perf.data"], 114, &["does not exist"]);
    let quiet =
        run(&mut agent(dir.path(), ["import", "-q", "--force", "-o", "taken.dat", "perf.data"])).expect(0);
    assert_eq!((quiet.out.as_str(), quiet.err.as_str()), ("", ""));
    same(&by_perf(&path("perf.data")), &of_report(&report(&path("taken.dat"))));
}

/// The lines of a report or another text without what differs in how they begin: blanks, the name of the
/// task. Lines of stacks are what they are.
fn contents(text: &str) -> Vec<String> {
    let event = |line: &str| {
        let (task, rest) = line.split_once(" [")?;
        let (cpu, rest) = rest.split_once("] ")?;
        let (before, rest) = rest.split_once(": ")?;
        let time = before.split_whitespace().last()?;
        let (event, text) = rest.split_once(':')?;
        let (_, pid) = task.trim_end().rsplit_once('-')?;
        cpu.parse::<u32>().ok()?;
        Some(format!("{pid} {cpu} {time} {event}: {}", text.trim()))
    };
    let lines = text.lines().filter(|line| !line.starts_with("cpus=") && !line.starts_with('#'));
    let mut lines: Vec<_> = lines.map(|line| event(line).unwrap_or_else(|| line.trim().to_owned())).collect();
    lines.retain(|line| !line.is_empty());
    lines.sort();
    lines
}

#[track_caller]
fn same_text(source: &str, report: &str) {
    let (source, report) = (contents(source), contents(report));
    assert!(source.len() > 10);
    for (left, right) in source.iter().zip(&report) {
        assert_eq!(left, right);
    }
    assert_eq!(source.len(), report.len());
}

#[test]
fn texts_of_stock_trace_cmd_are_printed_again() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("none")).unwrap();
    let traces = Path::new(env!("CARGO_MANIFEST_DIR")).join("traces");
    let mut count = 0;
    for entry in fs::read_dir(traces).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if !name.ends_with(".txt.gz") {
            continue;
        }
        let text = run(program("/".as_ref(), "zcat", ["--"]).arg(&path)).expect(0).out;
        let (source, dat) = (dir.path().join("trace.txt"), dir.path().join(format!("{name}.dat")));
        fs::write(&source, &text).unwrap();
        // Without formats, which the running kernel may have or not.
        let mut import = agent(dir.path(), ["import", "--formats", "none", "-o"]);
        run(import.arg(&dat).arg(&source)).expect(0);
        let full = if name.contains(".report.") { None } else { Some("-t") };
        let report = run(agent("/".as_ref(), ["report", "-N"]).args(full).arg(&dat)).expect(0).out;
        same_text(&text, &report);
        run(agent("/".as_ref(), ["check", "-q"]).arg(&dat)).expect(0);
        count += 1;
    }
    assert!(count >= 20, "{count}");
}

/// An instance of tracefs, which is removed at the end.
struct Instance(PathBuf);

impl Instance {
    fn new(name: &str) -> Self {
        let path = Path::new("/sys/kernel/tracing/instances").join(format!("{name}-{}", std::process::id()));
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn write(&self, file: &str, text: &str) {
        fs::write(self.0.join(file), text).unwrap();
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        drop(fs::remove_dir(&self.0));
    }
}

#[test]
fn the_kernels_own_text_becomes_its_records() {
    let dir = tempfile::tempdir().unwrap();
    let text = {
        let instance = Instance::new("import-test");
        instance.write("buffer_size_kb", "8192");
        for events in ["sched", "raw_syscalls"] {
            instance.write(&format!("events/{events}/enable"), "1");
        }
        let line = workload();
        run(&mut program("/".as_ref(), &line[0], &line[1..])).expect(0);
        instance.write("events/enable", "0");
        fs::read_to_string(instance.0.join("trace")).unwrap()
    };
    fs::write(dir.path().join("trace.txt"), &text).unwrap();
    let mut import = agent(dir.path(), ["import", "-o", "new.dat", "-"]);
    let source = File::open(dir.path().join("trace.txt")).unwrap();
    let ended = import.stdin(source).output().unwrap();
    assert!(ended.status.success(), "{ended:?}");
    let dat = dir.path().join("new.dat");
    same_text(&text, &run(agent("/".as_ref(), ["report", "-N"]).arg(&dat)).expect(0).out);
    // Values are the kernel's, although the text has letters for states.
    let records = reported(&dat);
    let switches: Vec<_> = records.iter().filter(|record| record["event"] == "sched_switch").collect();
    assert!(switches.len() > 8);
    for switch in switches {
        assert_eq!(switch["system"], "sched");
        assert!(switch["fields"]["prev_state"].is_i64() && switch["fields"]["next_pid"].is_i64(), "{switch}");
    }
    let sched = run(agent("/".as_ref(), ["analyze", "sched", "-n", "10000"]).arg(&dat)).expect(0);
    assert!(sched.out.contains("true"), "{}", sched.out);
}
