//! What analyses, timelines and exports make of imported traces whose fields are not the kernel's.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs::File;
use std::io::Cursor;
use std::path::Path;

use analysis::answers::{Analysis, Calls, CallsAnswer, Covered, Sched, SchedAnswer, Scope, Topic, answer};
use export::perfetto::Perfetto;
use import::ctf::CtfSource;
use import::text::TextTrace;
use import::{Options, Source, Target, import, import_to};
use recording::{Job, export};
use report::TraceFile;
use stdx::output::Directory;

fn imported(source: &mut dyn Source) -> TraceFile<Vec<u8>> {
    let temp = tempfile::tempdir().unwrap();
    let dir = Directory::open(temp.path()).unwrap();
    let (out, _) =
        import_to(source, Cursor::new(Vec::new()), &dir, Options::default(), &mut |_| true).unwrap();
    TraceFile::open("imported", out.into_inner()).unwrap()
}

fn text(text: &str) -> TraceFile<Vec<u8>> {
    imported(&mut TextTrace::open(Box::new(text.as_bytes().to_vec())))
}

fn asked<A: Analysis>(file: &TraceFile<Vec<u8>>, topic: Topic, analysis: A) -> (A::Answer, Covered) {
    answer(file, topic, &Scope::default(), analysis, &mut |_| {}).unwrap()
}

fn sched(file: &TraceFile<Vec<u8>>) -> (SchedAnswer, Covered) {
    asked(file, Topic::Sched, Sched::new(Scope::default()))
}

/// Three switches of two threads, in a state each.
fn switches(states: [&str; 3]) -> String {
    let [one, two, three] = states;
    format!(
        "c  3 [000]  10.000002: sched:sched_switch: prev_comm=c prev_pid=3 prev_prio=120 prev_state={one} ==> next_comm=b next_pid=2 next_prio=120\n\
         b  2 [000]  10.000012: sched:sched_switch: prev_comm=b prev_pid=2 prev_prio=120 prev_state={two} ==> next_comm=c next_pid=3 next_prio=120\n\
         c  3 [000]  10.000022: sched:sched_switch: prev_comm=c prev_pid=3 prev_prio=120 prev_state={three} ==> next_comm=b next_pid=2 next_prio=120\n"
    )
}

/// A text of switches in which threads are woken a microsecond before they get the CPU once more.
fn with_wakeups(switches: &str) -> String {
    let waking = |at: &str, by: &str, comm: &str, tid: u32| {
        format!("{by} [000]  {at}: sched:sched_waking: comm={comm} pid={tid} prio=120 target_cpu=000\n")
    };
    let [one, two, three] = switches.split_inclusive('\n').collect::<Vec<_>>()[..] else {
        panic!("{switches}")
    };
    let wakings = [waking("10.000011", "b  2", "c", 3), waking("10.000021", "c  3", "b", 2)];
    [one, &wakings[0], two, &wakings[1], three].concat()
}

#[test]
fn threads_run_and_sleep_by_the_letters_of_a_text() {
    for states in [["S", "D", "S"], ["R|K", "D|K", "S"], ["x", "D|W", "S"]] {
        let (answer, covered) = sched(&text(&with_wakeups(&switches(states))));
        let thread = |tid| answer.threads.iter().find(|thread| thread.tid == tid).unwrap();
        assert_eq!((thread(2).run_ns, thread(3).run_ns), (10_000, 10_000), "{states:?}");
        assert_eq!(thread(2).blocked_ns, Some(9_000), "{states:?}");
        assert_eq!((covered.unread, covered.foreign.len()), (0, 0));
    }
}

#[test]
fn a_state_that_is_not_understood_is_a_loss() {
    let (answer, covered) = sched(&text(&switches(["S", "Q", "S"])));
    assert_eq!((covered.unread, covered.events), (1, 2));
    assert_eq!(answer.threads.iter().map(|thread| thread.run_ns).sum::<u64>(), 0);
}

#[test]
fn events_with_other_fields_than_the_kernels_are_refused() {
    let wrong = switches(["S", "D", "S"]).replace("prev_pid=2", "prev_pid=x");
    let (answer, covered) = sched(&text(&wrong));
    assert!(answer.threads.is_empty());
    assert_eq!(covered.foreign, ["sched:sched_switch"]);
    assert!(covered.missing.iter().any(|need| need.is_required));
    // A text that is no record of anything the kernel has, in the same way.
    let wrong = "a-1 [000] .... 1.0: block_rq_issue: 8,0 WS 4096 () 1 + 8 [a]\n";
    let io = analysis::answers::Io::new(Scope::default(), ftrace_event::syscalls::CallNames::default());
    let (_, covered) = asked(&text(wrong), Topic::Io, io);
    assert_eq!(covered.foreign, ["block:block_rq_issue"]);
}

#[test]
fn calls_of_perf_have_numbers() {
    let file = text(
        "a 1 [000] 10.000001: raw_syscalls:sys_enter: NR 16 (19, 5401, 0, 0, 0, 0)\n\
         a 1 [000] 10.000005: raw_syscalls:sys_exit: NR 16 = -25\n",
    );
    let (calls, _) = asked(&file, Topic::Syscalls, Calls::new(Scope::default(), file.call_names()));
    let [call] = &calls.calls[..] else { panic!("{calls:?}") };
    assert_eq!((call.number, call.times.unwrap().total_ns, call.failed), (Some(16), 4000, Some(1)));
}

const METADATA: &str = "/* CTF 1.8 */
typealias integer { size = 32; align = 8; signed = true; } := int;
typealias integer { size = 64; align = 8; signed = true; } := long;
typealias integer { size = 32; align = 8; } := u32;
trace { major = 1; minor = 8; byte_order = le; packet.header := struct { u32 magic; }; };
env { domain = \"kernel\"; tracer_name = \"lttng-modules\"; };
clock { name = monotonic; freq = 1000000000; };
typealias integer { size = 64; align = 8; map = clock.monotonic.value; } := time;
stream { event.header := struct { u32 id; time timestamp; }; event.context := struct { int _tid; }; };
";

/// A trace of LTTng with these events, and records: event, time, the fields.
fn lttng(dir: &Path, events: &[(&str, &str)], records: &[(u32, u64, &[u8])]) {
    let mut metadata = METADATA.to_owned();
    for (id, (name, fields)) in events.iter().enumerate() {
        metadata += &format!("event {{ name = \"{name}\"; id = {id}; fields := struct {{ {fields} }}; }};\n");
    }
    let mut stream = 0xc1fc_1fc1_u32.to_le_bytes().to_vec();
    for (id, time, fields) in records {
        stream.extend(id.to_le_bytes());
        stream.extend(time.to_le_bytes());
        stream.extend(7_u32.to_le_bytes());
        stream.extend(*fields);
    }
    std::fs::write(dir.join("metadata"), metadata).unwrap();
    std::fs::write(dir.join("stream_0"), stream).unwrap();
}

const OPEN: &[u8] = b"\x9c\xff\xff\xff/etc/x\0\0\0\0\0";
const FAILED: &[u8] = &(-2_i64).to_le_bytes();
const DONE: &[u8] = &5_i64.to_le_bytes();

/// The events of calls as they are called since lttng-modules 2.6, and before.
const NEW: &[(&str, &str)] = &[
    ("syscall_entry_openat", "int _dfd; string _filename; int _flags;"),
    ("syscall_exit_openat", "long _ret;"),
    ("compat_syscall_entry_openat", "int _dfd; string _filename; int _flags;"),
    ("compat_syscall_exit_openat", "long _ret;"),
];
const OLD: &[(&str, &str)] = &[
    ("sys_openat", "int _dfd; string _filename; int _flags;"),
    ("exit_syscall", "long _ret;"),
    ("compat_sys_openat", "int _dfd; string _filename; int _flags;"),
    ("compat_exit_syscall", "long _ret;"),
];
const RECORDS: &[(u32, u64, &[u8])] =
    &[(0, 100, OPEN), (1, 130, FAILED), (0, 200, OPEN), (1, 210, DONE), (2, 300, OPEN), (3, 307, FAILED)];

fn calls(file: &TraceFile<Vec<u8>>) -> CallsAnswer {
    asked(file, Topic::Syscalls, Calls::new(Scope::default(), file.call_names())).0
}

#[test]
fn calls_of_lttng_go_by_their_names() {
    for events in [NEW, OLD] {
        let temp = tempfile::tempdir().unwrap();
        lttng(temp.path(), events, RECORDS);
        let file = imported(&mut CtfSource::open(temp.path()).unwrap());
        let calls = calls(&file).calls;
        let told: Vec<_> = (calls.iter())
            .map(|call| {
                let times = call.times.unwrap();
                (call.name.as_deref(), call.number, times.count, times.total_ns, call.failed.unwrap())
            })
            .collect();
        let expected = [(Some("openat"), None, 2, 40, 1), (Some("compat_openat"), None, 1, 7, 1)];
        assert_eq!(told, expected, "{}", events[0].0);
        assert!(calls.iter().all(|call| (call.unmatched, call.unfinished) == (Some(0), Some(0))));
        let io = analysis::answers::Io::of(&file, Scope::default());
        let (io, _) = asked(&file, Topic::Io, io);
        assert!(io.files.iter().any(|file| file.path.as_deref() == Some("/etc/x")), "{io:?}");
    }
}

/// What an export of an import is.
fn exported(source: &mut dyn Source, format: &dyn recording::Format) -> Vec<u8> {
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().join("trace.dat");
    let target = Target { path: path.clone(), force: false };
    import(source, &target, Options::default(), &mut |_| true).unwrap();
    let file = recording::TraceFile::open(Box::new(File::open(path).unwrap())).unwrap();
    let out = temp.path().join("out");
    let target = recording::Target { path: out.clone(), ..recording::Target::default() };
    export(&file, format, &target, &Job::new(&|_| {})).unwrap();
    std::fs::read(out).unwrap()
}

fn source(text: &str) -> TextTrace {
    TextTrace::open(Box::new(text.as_bytes().to_vec()))
}

fn count(bytes: &[u8], text: &str) -> usize {
    bytes.windows(text.len()).filter(|bytes| *bytes == text.as_bytes()).count()
}

#[test]
fn reports_and_pictures_show_the_state_of_a_text() {
    // The first is a record of the kernel's fields, the second of texts.
    for (states, line) in [
        (["S", "D", "S"], "b:2 [120] D ==> c:3 [120]"),
        (["S", "R|K", "S"], "prev_state=R|K ==> next_comm=c"),
    ] {
        let text = switches(states);
        let files = [self::text(&text)];
        let mut out = Vec::new();
        report::Report::new(&files).run(&mut out, |_| {}).unwrap();
        assert_eq!(count(&out, line), 1, "{}", String::from_utf8_lossy(&out));
        let chrome = exported(&mut source(&text), &views::chrome::Chrome);
        // Two threads that each ran once, and what they did meanwhile.
        let runs = "\"dur\":10.000,\"cat\":\"state\",\"name\":\"Running\"";
        assert_eq!(count(&chrome, runs), 2, "{}", String::from_utf8_lossy(&chrome));
    }
    let foreign = switches(["S", "S", "S"]).replace("next_pid=2", "next_pid=x");
    let chrome = exported(&mut source(&foreign), &views::chrome::Chrome);
    // What is not drawn is there as events.
    assert_eq!(count(&chrome, "\"name\":\"sched_switch\""), 3, "{}", String::from_utf8_lossy(&chrome));
}

#[test]
fn the_state_of_a_text_is_a_number_for_lttng() {
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().join("trace.dat");
    let target = Target { path: path.clone(), force: false };
    import(&mut source(&switches(["S", "R|K", "D|K"])), &target, Options::default(), &mut |_| true).unwrap();
    let file = recording::TraceFile::open(Box::new(File::open(path).unwrap())).unwrap();
    let out = temp.path().join("out");
    let target = recording::Target { path: out.clone(), ..recording::Target::default() };
    export(&file, &ctf_writer::Ctf::Lttng, &target, &Job::new(&|_| {})).unwrap();
    let back = imported(&mut CtfSource::open(&out).unwrap());
    let (answer, covered) = sched(&back);
    let thread = |tid| answer.threads.iter().find(|thread| thread.tid == tid).unwrap();
    assert_eq!((thread(2).run_ns, thread(3).run_ns, covered.unread), (10_000, 10_000, 0));
    // Wakeups are not in the text.
    assert_eq!((thread(2).preempted.total_ns, thread(3).sleep_ns), (10_000, None));
    assert_eq!((thread(2).wait_ns, thread(2).woken), (None, None));
}

#[test]
fn losses_come_back_from_a_script_of_ours() {
    let text = "\
# tracer: nop
 a-1 [000] d..2 1.000001: x: a=1
CPU:0 [LOST 12 EVENTS]
 a-1 [000] d..2 1.000002: x: a=2
CPU:1 [LOST EVENTS]
 a-1 [001] d..2 1.000003: x: a=3
";
    let script = exported(&mut source(text), &export::perf_script::PerfScript);
    let temp = tempfile::tempdir().unwrap();
    let dir = Directory::open(temp.path()).unwrap();
    let mut source = TextTrace::open(Box::new(script));
    let (_, imported) =
        import_to(&mut source, Cursor::new(Vec::new()), &dir, Options::default(), &mut |_| true).unwrap();
    assert_eq!((imported.events, imported.lost, imported.lost_unknown), (3, 12, true));
    assert!(imported.not_carried.is_empty());
}

#[test]
fn perfetto_draws_calls_of_lttng() {
    for events in [NEW, OLD] {
        let temp = tempfile::tempdir().unwrap();
        lttng(temp.path(), events, RECORDS);
        let bytes = exported(&mut CtfSource::open(temp.path()).unwrap(), &Perfetto);
        let counts = ["B|0|openat", "B|0|compat_openat", "E|0"].map(|text| count(&bytes, text));
        assert_eq!(counts, [2, 1, 3]);
    }
}
