//! `analyze --live` and `record --live`: what is told of the intervals of a recording while it goes on is
//! together what is told of its file.

use std::{
    collections::BTreeMap,
    fs,
    io::Read as _,
    os::fd::AsRawFd as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use integration_tests::{
    answers::{list, number},
    harness::{Caller, Ended, Marked, Running, agent, agent_path, program, run, wait_for},
    soak,
    terminal::Terminal,
};
use serde_json::Value;

/// `analyze --live` of trace.dat, with its output in a file, so that it can be seen while it runs.
struct Live {
    process: Running,
    out: PathBuf,
}

impl Live {
    fn start(dir: &Path, args: &[&str]) -> Self {
        let out = dir.join(format!("live.{}", args[0]));
        let script = r#"out=$1; shift; exec "$0" analyze "$@" >"$out""#;
        let mut command = program(dir, "sh", ["-c", script]);
        let process = Running::start(command.arg(agent_path()).arg(&out).args(args));
        // Without a recording it would answer for the finished file.
        let open = format!("/proc/{}/fd", process.pid());
        wait_for("a recording that is followed", || {
            let mut open = fs::read_dir(&open).ok()?.filter_map(|fd| fs::read_link(fd.ok()?.path()).ok());
            open.any(|path| path.ends_with("trace.dat.spool/counts")).then_some(())
        });
        Self { process, out }
    }

    /// Waits until there are so many answers. To read them again and again would keep a processor from the
    /// analyses that are waited for.
    fn wait_for_answers(&self, count: usize) {
        wait_for("answers", || {
            let lines = fs::read_to_string(&self.out).unwrap().matches('\n').count();
            (lines >= count).then_some(())
        });
    }

    /// Waits until so many events were counted.
    fn wait_for_events(&self, count: u64) {
        let (mut counted, mut read) = (0, 0);
        wait_for("counted events", || {
            let text = fs::read_to_string(&self.out).unwrap();
            let end = text.rfind('\n').map_or(0, |end| end + 1);
            let answers = text[read..end].lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
            counted += answers.map(|answer| number(&answer["covered"], "events")).sum::<u64>();
            read = end;
            (counted >= count).then_some(())
        });
    }

    /// Waits for its end, which has this exit code.
    fn wait(self, code: i32) -> (Vec<Value>, Ended) {
        let ended = self.process.wait().expect(code);
        (answers(&self.out), ended)
    }
}

/// The whole lines of a file.
fn answers(file: &Path) -> Vec<Value> {
    let text = fs::read_to_string(file).unwrap();
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    whole.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The answer about a finished file.
fn whole(dir: &Path, topic: &str, file: &str) -> Value {
    let ended = run(&mut agent(dir, ["analyze", topic, file, "--json"])).expect(0);
    serde_json::from_str(&ended.out).unwrap()
}

/// How often each call ended, and how long all took.
fn calls<'a>(answers: impl IntoIterator<Item = &'a Value>) -> BTreeMap<i64, (u64, u64)> {
    let mut sums = BTreeMap::new();
    for call in answers.into_iter().flat_map(|answer| answer["calls"].as_array().unwrap()) {
        let sum: &mut (u64, u64) = sums.entry(call["number"].as_i64().unwrap()).or_default();
        sum.0 += number(&call["times"], "count");
        sum.1 += number(&call["times"], "total_ns");
    }
    sums.retain(|_, (count, _)| *count != 0);
    sums
}

/// For how long these threads ran.
fn run_times<'a>(answers: impl IntoIterator<Item = &'a Value>, callers: &[Caller]) -> Vec<u64> {
    let mut times = vec![0; callers.len()];
    for thread in answers.into_iter().flat_map(|answer| answer["threads"].as_array().unwrap()) {
        if let Some(at) = callers.iter().position(|of| u64::from(of.pid()) == number(thread, "tid")) {
            times[at] += number(thread, "run_ns");
        }
    }
    times
}

/// Each interval begins where the one before ends, and has a length of 100 ms, but for the last.
fn follow_one_another(answers: &[Value]) {
    let spans: Vec<_> = answers
        .iter()
        .map(|answer| (number(&answer["covered"], "from_ns"), number(&answer["covered"], "to_ns")))
        .collect();
    for pair in spans.windows(2) {
        assert_eq!(pair[0].1, pair[1].0, "{spans:?}");
        assert_eq!(pair[0].1 - pair[0].0, 100_000_000, "{spans:?}");
    }
}

fn callers() -> [Caller; 2] {
    let callers = [Caller::named("first"), Caller::named("second")];
    callers.iter().enumerate().for_each(|(cpu, caller)| caller.pin(cpu));
    callers
}

fn call(callers: &mut [Caller], count: u64) {
    for caller in callers {
        caller.call(count);
    }
}

const LIVE: &str = "--live=100ms";

#[test]
fn calls_of_all_intervals_are_those_of_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let mut callers = callers();
    let recording = Marked::start(dir.path(), &["--for", "syscalls", "--switch-timer", "20ms"]);
    let live = Live::start(dir.path(), &["syscalls", "trace.dat", "--json", LIVE]);
    for round in 1..=5 {
        call(&mut callers, 200);
        live.wait_for_events(round * 800);
    }
    recording.finish().expect(0);
    let (answers, ended) = live.wait(0);
    assert_eq!(ended.err, "");
    follow_one_another(&answers);
    let file = whole(dir.path(), "syscalls", "trace.dat");
    assert_eq!(calls(&answers), calls([&file]));
    let getppid = i64::from(libc::SYS_getppid as i32);
    assert!(calls(&answers)[&getppid].0 >= 2000);
    let of_threads = |answers: &[Value]| -> u64 {
        let threads = answers.iter().flat_map(|answer| answer["threads"].as_array().unwrap());
        threads.filter(|thread| thread["comm"] == "first").map(|thread| number(thread, "count")).sum()
    };
    assert_eq!(of_threads(&answers), of_threads(&[file]));
}

#[test]
fn run_times_of_all_intervals_are_those_of_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let mut callers = callers();
    let recording = Marked::start(dir.path(), &["--for", "sched", "--switch-timer", "20ms"]);
    let live = Live::start(dir.path(), &["sched", "trace.dat", "--json", LIVE]);
    for round in 1..=5 {
        call(&mut callers, 20_000);
        live.wait_for_events(round * 10);
    }
    recording.finish().expect(0);
    let (answers, ended) = live.wait(0);
    assert_eq!(ended.err, "");
    follow_one_another(&answers);
    let file = whole(dir.path(), "sched", "trace.dat");
    let times = run_times(&answers, &callers);
    assert_eq!(times, run_times([&file], &callers));
    assert!(times.iter().all(|time| *time > 0), "{times:?}");
    let events: u64 = answers.iter().map(|answer| number(&answer["covered"], "events")).sum();
    assert_eq!(events, number(&file["covered"], "events"));
}

/// What of answers about an analysis can be summed up, by what it is of.
fn sums<'a>(topic: &str, answers: impl IntoIterator<Item = &'a Value>) -> BTreeMap<String, u64> {
    let mut sums = BTreeMap::new();
    for answer in answers {
        let mut add = |name: String, number: u64| *sums.entry(name).or_default() += number;
        let rows = |of: &'a Value| of.as_array().unwrap().iter();
        add("events".to_owned(), number(&answer["covered"], "events"));
        add("losses".to_owned(), number(&answer["covered"], "losses"));
        match topic {
            "irq" => {
                for (kind, id) in [("irqs", "irq"), ("softirqs", "vector")] {
                    for row in rows(&answer[kind]) {
                        add(format!("{kind} {} count", row[id]), number(&row["times"], "count"));
                        add(format!("{kind} {} time", row[id]), number(&row["times"], "total_ns"));
                    }
                }
            }
            "offcpu" => {
                for row in rows(&answer["threads"]) {
                    add(format!("{} count", row["tid"]), number(&row["times"], "count"));
                    let time = number(&row["times"], "total_ns") + number(row, "open_ns");
                    add(format!("{} time", row["tid"]), time);
                }
            }
            "cpu" | "stacks" => {
                for row in rows(&answer["threads"]) {
                    add(format!("{} count", row["tid"]), number(row, "count"));
                    add(format!("{} weight", row["tid"]), number(row, "weight"));
                }
            }
            "summary" => {
                rows(&answer["events"]).for_each(|row| add("all".to_owned(), number(row, "count")));
                add("all".to_owned(), number(answer, "other_events"));
                add("started".to_owned(), number(answer, "started"));
            }
            "io" => {
                for row in rows(&answer["threads"]) {
                    for kind in ["opens", "reads", "writes", "syncs"] {
                        for sum in ["count", "bytes", "total_ns"] {
                            add(format!("{} {kind} {sum}", row["tid"]), number(&row[kind], sum));
                        }
                    }
                }
            }
            "locks" => {
                for row in rows(&answer["futexes"]["locks"]) {
                    let of = format!("{} {}", row["process"], row["address"]);
                    add(format!("{of} count"), number(&row["times"], "count"));
                    add(format!("{of} time"), number(&row["times"], "total_ns") + number(row, "open_ns"));
                }
            }
            "memory" => {
                add("allocated".to_owned(), number(&answer["pages"], "allocated"));
                add("freed".to_owned(), number(&answer["pages"], "freed"));
                add("objects".to_owned(), number(&answer["kernel"]["sum"], "count"));
                for row in rows(&answer["threads"]) {
                    add(format!("{} faults", row["tid"]), number(row, "user_faults"));
                }
            }
            other => panic!("nothing is known of {other}"),
        }
    }
    sums.retain(|_, sum| *sum != 0);
    sums
}

/// Whether each line of a file is as docs/analyses.schema.json says.
fn is_as_the_schema_says(lines: &Path) {
    const SCRIPT: &str = "
import json, sys, jsonschema
schema = json.load(open(sys.argv[1]))
validator = jsonschema.Draft202012Validator(schema)
for line in open(sys.argv[2]):
    for error in validator.iter_errors(json.loads(line)):
        print(list(error.absolute_path), error.message[:200], [of.message[:200] for of in error.context])
";
    let schema = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/analyses.schema.json");
    let mut python = program("/".as_ref(), "/usr/bin/python3", ["-c", SCRIPT]);
    assert_eq!(run(python.arg(schema).arg(lines)).expect(0).out, "");
}

/// Follows a recording with all of these analyses for some intervals, and compares their sums with the
/// answers about the file.
fn follow_all(dir: &Path, topics: &[&[&str]], finish: impl FnOnce()) {
    let start = |topic: &[&str]| Live::start(dir, &[topic, &["trace.dat", "--json", LIVE]].concat());
    let live: Vec<(&[&str], Live)> = topics.iter().map(|topic| (*topic, start(topic))).collect();
    for (_, live) in &live {
        live.wait_for_answers(5);
    }
    finish();
    for (topic, live) in live {
        let out = live.out.clone();
        let (answers, ended) = live.wait(0);
        assert_eq!(ended.err, "", "{topic:?}");
        follow_one_another(&answers);
        is_as_the_schema_says(&out);
        let args = [&["analyze"][..], topic, &["trace.dat", "--json"]].concat();
        let whole: Value = serde_json::from_str(&run(&mut agent(dir, args)).expect(0).out).unwrap();
        let (mut sums_of_parts, sums_of_whole) = (sums(topic[0], &answers), sums(topic[0], [&whole]));
        // The answer about the file ends with its last record, and intervals end at their borders: what goes
        // on then does so for longer in the last one, if that was told before the recording ended.
        let end = |answer: &Value| number(&answer["covered"], "to_ns");
        let more = end(answers.last().unwrap()).saturating_sub(end(&whole));
        for (name, sum) in sums_of_parts.iter_mut().filter(|(name, _)| name.ends_with(" time")) {
            let of_whole = sums_of_whole.get(name).copied().unwrap_or(0);
            if (of_whole..=of_whole + more).contains(sum) {
                *sum = of_whole;
            }
        }
        assert_eq!(sums_of_parts, sums_of_whole, "{topic:?}");
        assert!(sums_of_whole.len() > 1, "{topic:?}: {sums_of_whole:?}");
    }
}

/// Follows a recording of all threads that is for `recorded` with these analyses. Each records the others: a
/// processor has to keep up with all of them.
fn follow_all_threads(recorded: &[&str], topics: &[&[&str]]) {
    let dir = tempfile::tempdir().unwrap();
    let mut callers = callers();
    let recorded = recorded.iter().flat_map(|topic| ["--for", topic]);
    let options: Vec<&str> = recorded.chain(["--switch-timer", "20ms"]).collect();
    let recording = Marked::start(dir.path(), &options);
    let forks = "while :; do /bin/true; sleep 0.05; done";
    let busy = Running::start(&mut program(dir.path(), "sh", ["-c", forks]));
    call(&mut callers, 5000);
    follow_all(dir.path(), topics, || {
        call(&mut callers, 5000);
        drop(busy);
        recording.finish().expect(0).says(&[" events in "]);
    });
}

#[test]
fn sums_of_all_intervals_are_those_of_the_file() {
    follow_all_threads(&["offcpu", "cpu", "irq"], &[&["offcpu", "--comm", "first"], &["cpu"], &["irq"]]);
}

#[test]
fn sums_of_all_intervals_of_stacks_and_summaries_are_those_of_the_file() {
    let stacks = ["stacks", "--event", "sched:sched_switch", "--weight", "time", "--comm", "first"];
    follow_all_threads(&["offcpu", "summary"], &[&["summary"], &stacks]);
}

/// Reads and writes files, and threads that wait for a lock that another one has.
const WORK: &str = r#"
python3 -c '
import os, threading, time
lock = threading.Lock()
def work():
    while os.path.exists("go"):
        with lock: time.sleep(0.002)
threads = [threading.Thread(target=work) for _ in range(3)]
for thread in threads: thread.start()
for thread in threads: thread.join()' &
while [ -e go ]; do
    dd if=/dev/zero of=file bs=64k count=4 conv=fsync 2>/dev/null
    cat file >/dev/null
    sleep 0.02
done
wait"#;

#[test]
fn sums_of_files_locks_and_memory_are_those_of_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let go = dir.path().join("go");
    fs::write(&go, "").unwrap();
    let topics = ["record", "-F", "-c", "--for", "io", "--for", "locks", "--for", "memory"];
    let mut command = agent(dir.path(), topics);
    let recording = Running::start(command.args(["--switch-timer", "20ms", "sh", "-c", WORK]));
    wait_for("a recording", || dir.path().join("trace.dat.spool/counts").exists().then_some(()));
    let topics: [&[&str]; 3] = [&["io"], &["locks"], &["memory"]];
    follow_all(dir.path(), &topics, || {
        fs::remove_file(&go).unwrap();
        recording.wait().expect(0).says(&[" events in "]);
    });
}

#[test]
fn the_last_cumulative_answer_is_that_of_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let mut callers = callers();
    let recording = Marked::start(dir.path(), &["--for", "irq", "--for", "sched", "--switch-timer", "20ms"]);
    let args = ["sched", "trace.dat", "--json", "--cumulative", "--comm", "first", LIVE];
    let live = Live::start(dir.path(), &args);
    call(&mut callers, 1000);
    live.wait_for_events(1);
    call(&mut callers, 1000);
    recording.finish().expect(0);
    let (mut answers, _) = live.wait(0);
    // How late it was told is not said of a file.
    answers.last_mut().unwrap().as_object_mut().unwrap().remove("live").unwrap();
    let ended =
        run(&mut agent(dir.path(), ["analyze", "sched", "trace.dat", "--json", "--comm", "first"])).expect(0);
    assert_eq!(answers.last().unwrap(), &serde_json::from_str::<Value>(&ended.out).unwrap());
    assert!(answers.len() > 1);
}

#[test]
fn what_events_tell_that_have_not_fired_is_known() {
    let dir = tempfile::tempdir().unwrap();
    let mut callers = callers();
    let events = ["-e", "sched:sched_switch", "-e", "oom:mark_victim", "--switch-timer", "20ms"];
    let recording = Marked::start(dir.path(), &events);
    let live = Live::start(dir.path(), &["memory", "trace.dat", "--json", LIVE]);
    call(&mut callers, 1000);
    live.wait_for_answers(1);
    recording.finish().expect(0);
    let (answers, _) = live.wait(0);
    assert!(answers.iter().all(|answer| answer["kills"] == serde_json::json!([])), "{answers:?}");
    // Nobody recorded these.
    assert!(answers.iter().all(|answer| answer["pages"]["allocated"].is_null()), "{answers:?}");
}

#[test]
fn intervals_in_which_nothing_happens_are_told() {
    let dir = tempfile::tempdir().unwrap();
    let mut caller = Caller::named("first");
    let pid = caller.pid().to_string();
    let recording = Marked::start(dir.path(), &["--for", "syscalls", "-P", &pid, "--switch-timer", "20ms"]);
    let live = Live::start(dir.path(), &["syscalls", "trace.dat", LIVE]);
    caller.call(10);
    wait_for("intervals without events", || {
        (fs::read_to_string(&live.out).unwrap().matches(", 0 events used").count() >= 3).then_some(())
    });
    caller.call(10);
    recording.finish().expect(0);
    live.process.wait().expect(0);
    let text = fs::read_to_string(&live.out).unwrap();
    let blocks: Vec<&str> = text.split("trace.dat: ").skip(1).collect();
    let empty: Vec<_> = blocks.iter().filter(|block| block.contains(", 0 events used")).collect();
    for block in &empty {
        assert!(block.starts_with("100 ms from "), "{block}");
        // What is not there in one interval is not missing in the recording.
        assert!(!block.contains("sys_enter"), "{block}");
        assert!(block.contains("\ntold "), "{block}");
    }
    assert!(blocks.iter().any(|block| block.contains("  getppid  ")), "{text}");
    // The recording has what tells it, which does not fire.
    assert!(!text.contains("which threads are new"), "{text}");
}

#[test]
fn what_a_killed_recorder_has_stored_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let mut callers = callers();
    let recording = Marked::start(dir.path(), &["--for", "syscalls", "--switch-timer", "20ms"]);
    let live = Live::start(dir.path(), &["syscalls", "trace.dat", "--json", LIVE]);
    call(&mut callers, 1000);
    live.wait_for_events(4000);
    recording.agent.signal(libc::SIGKILL);
    let (answers, ended) = live.wait(1);
    ended.says(&["was killed; this is what it had stored", "tracer-agent recover"]);
    recording.end_command();
    run(&mut agent(dir.path(), ["recover", "trace.dat"])).expect(0);
    // Behind the last record of a CPU that the recorder had no time for, the file does not know what ended.
    let file = whole(dir.path(), "syscalls", "trace.dat");
    let (told, recovered) = (calls(&answers), calls([&file]));
    assert!(recovered.values().map(|(count, _)| count).sum::<u64>() >= 4000 / 2, "{recovered:?}");
    for call in list(&file, "calls") {
        let of = |sums: &BTreeMap<i64, (u64, u64)>| {
            call["number"].as_i64().and_then(|number| sums.get(&number)).map_or(0, |(count, _)| *count)
        };
        let unknown = number(call, "unfinished") + number(call, "unmatched");
        let (least, most) = (of(&recovered), of(&recovered) + unknown);
        assert!((least..=most).contains(&of(&told)), "{} times in intervals: {call}", of(&told));
    }
    let is_in_file = |number: &i64| list(&file, "calls").iter().any(|call| call["number"] == *number);
    assert!(told.keys().all(is_in_file), "{told:?}\n{recovered:?}");
}

#[test]
fn a_flight_recorder_is_answered_for_at_its_end() {
    let dir = tempfile::tempdir().unwrap();
    let mut callers = callers();
    let recording = Marked::start(dir.path(), &["--for", "syscalls", "--overwrite"]);
    let live = Live::start(dir.path(), &["syscalls", "trace.dat", "--json", LIVE]);
    call(&mut callers, 100);
    recording.finish().expect(0);
    let (answers, ended) = live.wait(0);
    ended.says(&[
        "a flight recorder (--overwrite) has its events in memory until it ends; they are counted then",
    ]);
    assert_eq!(answers, [whole(dir.path(), "syscalls", "trace.dat")]);
}

#[test]
fn ctrl_c_ends_it_even_if_nobody_reads() {
    let dir = tempfile::tempdir().unwrap();
    let recording = Marked::start(dir.path(), &["--for", "sched", "--switch-timer", "20ms"]);
    let mut live = Live::start(dir.path(), &["sched", "trace.dat", LIVE]);
    wait_for("an answer", || (fs::metadata(&live.out).unwrap().len() > 0).then_some(()));
    assert!(!live.process.has_ended());
    live.process.signal(libc::SIGINT);
    let ended = live.process.wait().expect(0);
    assert_eq!(ended.err, "");

    let args = ["analyze", "sched", "trace.dat", "--json", LIVE];
    let mut unread = unread(agent(dir.path(), args));
    let pid = unread.id();
    wait_for("a writer that is held up", || {
        let wchan = fs::read_to_string(format!("/proc/{pid}/wchan")).ok()?;
        wchan.contains("pipe").then_some(())
    });
    // SAFETY: plain numbers; the process is our child and has not been waited for.
    assert_eq!(unsafe { libc::kill(pid.cast_signed(), libc::SIGINT) }, 0);
    let status = wait_for("the end", || unread.try_wait().unwrap());
    assert_eq!(status.code(), Some(0));

    // One whose reader has enough ends as well.
    let script = r#""$0" analyze sched trace.dat --live=100ms | head -n 1"#;
    let ended = run(program(dir.path(), "sh", ["-c", script]).arg(agent_path())).expect(0);
    assert!(ended.out.starts_with("trace.dat: 100 ms from "), "{}", ended.out);
    assert_eq!(ended.err, "");
    recording.finish().expect(0);
}

/// Starts a command with a pipe for its output that has room for a page and is not read.
fn unread(mut command: Command) -> std::process::Child {
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let out = child.stdout.as_ref().unwrap().as_raw_fd();
    // SAFETY: the descriptor is open, and the argument is a plain number.
    assert!(unsafe { libc::fcntl(out, libc::F_SETPIPE_SZ, 4096) } > 0);
    child
}

#[test]
fn who_does_not_read_holds_up_no_recording() {
    for by_signal in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let mut callers = callers();
        let go = dir.path().join("go");
        fs::write(&go, "").unwrap();
        let mut command = agent(dir.path(), ["record", "--for", "syscalls", LIVE]);
        command.args(["sh", "-c", "while [ -e go ]; do sleep 0.05; done"]);
        let mut recorder = unread(command);
        let task = format!("/proc/{}/task", recorder.id());
        // The thread that shows the answers waits for somebody who reads them.
        wait_for("a display that is held up", || {
            let mut threads = fs::read_dir(&task).ok()?.flatten();
            let text = |thread: &fs::DirEntry, file| {
                fs::read_to_string(thread.path().join(file)).unwrap_or_default()
            };
            threads
                .any(|thread| text(&thread, "comm") == "live\n" && text(&thread, "wchan").contains("pipe"))
                .then_some(())
        });
        call(&mut callers, 1000);
        if by_signal {
            // SAFETY: plain numbers; the process is our child and has not been waited for.
            assert_eq!(unsafe { libc::kill(recorder.id().cast_signed(), libc::SIGINT) }, 0);
        } else {
            fs::remove_file(&go).unwrap();
        }
        let status = wait_for("the end of the recording", || recorder.try_wait().unwrap());
        if by_signal {
            // The command goes on, and has the output.
            fs::remove_file(&go).unwrap();
        }
        let mut said = String::new();
        recorder.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        assert_eq!(status.code(), Some(0), "{said}");
        assert!(
            said.contains("--live has not come to the end; `tracer-agent analyze syscalls trace.dat`"),
            "{said}"
        );
        assert!(said.contains(" events in ") && !said.contains("LOST"), "{said}");
        let file = whole(dir.path(), "syscalls", "trace.dat");
        assert_eq!(number(&file["covered"], "losses"), 0);
        assert!(calls([&file])[&i64::from(libc::SYS_getppid as i32)].0 >= 2000);
    }
}

#[test]
fn what_cannot_be_shown_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    for (args, texts) in [
        (&["analyze", "sched", "--live", "--from", "1"][..], &["--live", "no --from and no --to"][..]),
        (&["analyze", "sched", "--live=99ms"], &["it must be 100ms or more"]),
        (&["analyze", "sched", "--cumulative"], &["--live"]),
        (
            &["analyze", "cpu", "--live", "--flame", "cpu.svg"],
            &["--flame makes a graph of a whole recording", "analyze cpu trace.dat --flame FILE.svg"],
        ),
        (&["record", "--for", "sched", "--for", "irq", "--live"], &["--live shows one analysis"]),
        (&["record", "--for", "sched", "--live", "--overwrite"], &["--overwrite has its events in memory"]),
        (
            &["record", "--for", "sched", "--live", "--rotate-time", "1s"],
            &["--rotate-size and --rotate-time"],
        ),
    ] {
        run(agent(dir.path(), args).env("LC_ALL", "C")).expect(2).says(texts);
    }
    let ended = run(&mut agent(dir.path(), ["analyze", "sched", "none.dat", "--live"])).expect(1);
    ended.says(&["none.dat is not being recorded, and cannot be opened as a file: No such file"]);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    // It says at once that there will be nothing.
    let recording = Marked::start(dir.path(), &["-e", "raw_syscalls"]);
    let ended = run(&mut agent(dir.path(), ["analyze", "irq", "trace.dat", "--live"])).expect(1);
    ended.says(&[" has no irq:", ", which irq needs to tell ", "record --for irq"]);
    let ended = run(&mut agent(dir.path(), ["analyze", "stacks", "trace.dat", "--live"])).expect(2);
    ended.says(&["stacks needs --event EVENT"]);
    recording.finish().expect(0);
    // Of a file it is the answer.
    let ended =
        run(&mut agent(dir.path(), ["analyze", "syscalls", "trace.dat", "--live", "--json"])).expect(0);
    assert_eq!(
        serde_json::from_str::<Value>(&ended.out).unwrap(),
        whole(dir.path(), "syscalls", "trace.dat")
    );
    ended.says(&["trace.dat is not being recorded; this is the answer about the file"]);
}

#[test]
fn a_terminal_is_drawn_over_and_over_and_usable_afterwards() {
    let dir = tempfile::tempdir().unwrap();
    let terminal = Terminal::start(dir.path());
    let agent = agent_path();
    terminal.types(&[&format!("{} record --for sched --live", agent.display()), "Enter"]);
    let is_head = |line: &String| line.starts_with("trace.dat: ") && line.contains(" events used");
    let is_drawn = |lines: &[String]| {
        lines.first().is_some_and(is_head)
            && lines.iter().any(|line| line == "CPUs")
            && lines.iter().any(|line| line.starts_with("Threads, by the time that they ran"))
    };
    let first = terminal.wait_for(is_drawn);
    for lines in [&first, &terminal.wait_for(|lines| is_drawn(lines) && lines[0] != first[0])] {
        assert_eq!(lines.iter().filter(|line| is_head(line)).count(), 1, "{lines:#?}");
        assert!(lines.len() <= 30 && lines.iter().any(|line| line == "  ..."), "{lines:#?}");
    }
    // In another size it is drawn anew.
    terminal.tmux(&["resize-window", "-x", "40", "-y", "12"]);
    let small = terminal.wait_for(|lines| {
        lines.len() == 12 && lines[0].starts_with("trace.dat: ") && lines.iter().any(|line| line == "CPUs")
    });
    assert!(small.iter().all(|line| line.chars().count() <= 40), "{small:#?}");
    terminal.tmux(&["resize-window", "-x", "110", "-y", "30"]);
    terminal.wait_for(is_drawn);
    terminal.types(&["C-c"]);
    let end = terminal.wait_for(|lines| {
        lines.iter().any(|line| line.contains(" events in ")) && lines.last().is_some_and(|line| line == "$")
    });
    assert!(end.iter().any(|line| line.starts_with("  all ")), "{end:#?}");
    assert_eq!(terminal.tmux(&["display-message", "-p", "#{cursor_flag} #{wrap_flag}"]), "1 1\n");

    // One that is ended by itself, over a recording in the background.
    terminal.types(&["clear; echo is usable", "Enter"]);
    terminal.wait_for(|lines| lines.iter().any(|line| line == "is usable"));
    let recording =
        Marked::start(dir.path(), &["--for", "syscalls", "-o", "other.dat", "--switch-timer", "20ms"]);
    let command = format!("{} analyze syscalls other.dat --live=200ms; echo code $?", agent.display());
    terminal.types(&[&command, "Enter"]);
    terminal.wait_for(|lines| lines.iter().any(|line| line.starts_with("System calls, by the time")));
    terminal.types(&["C-c"]);
    let end = terminal.wait_for(|lines| lines.iter().any(|line| line.ends_with("code 0")));
    assert!(end.iter().any(|line| line.starts_with("System calls, by")), "the last picture stays: {end:#?}");
    assert_eq!(terminal.tmux(&["display-message", "-p", "#{cursor_flag} #{wrap_flag}"]), "1 1\n");
    recording.finish().expect(0);
}

/// Trials that take as long as they are told to.
mod soak {
    #[test]
    fn its_memory_does_not_grow_while_threads_come_and_go() {
        super::its_memory_does_not_grow_while_threads_come_and_go();
    }
}

fn its_memory_does_not_grow_while_threads_come_and_go() {
    let dir = tempfile::tempdir().unwrap();
    let recording = Marked::start(dir.path(), &["--for", "sched", "--switch-timer", "50ms"]);
    let live = Live::start(dir.path(), &["sched", "trace.dat", "--json", LIVE]);
    let churn = Running::start(&mut program(dir.path(), "sh", ["-c", "while :; do /bin/true; done"]));
    let intervals = |count: usize| {
        wait_for("intervals", || {
            (fs::read_to_string(&live.out).unwrap().lines().count() >= count).then_some(())
        });
    };
    let memory = || {
        let status = fs::read_to_string(format!("/proc/{}/status", live.process.pid())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
        line.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap()
    };
    let mut count = 20;
    intervals(count);
    let before = memory();
    for _ in 0..soak().min(20) {
        count += 30;
        intervals(count);
        std::thread::sleep(Duration::from_millis(10));
    }
    let after = memory();
    assert!(after <= before + 8192, "{before} KB after 20 intervals, {after} KB after {count}");
    drop(churn);
    recording.finish().expect(0);
    let (answers, _) = live.wait(0);
    // Threads that have ended are told in their interval only.
    let told: Vec<usize> = answers.iter().map(|answer| answer["threads"].as_array().unwrap().len()).collect();
    let [early, late] = [&told[5..20], &told[told.len() - 20..]].map(|of| *of.iter().max().unwrap());
    assert!(late <= 4 * early + 100, "{told:?}");
}
