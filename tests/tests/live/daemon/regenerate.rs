//! What describes a recording, written again while a session records.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use integration_tests::{
    babeltrace,
    daemon::{Daemon, ROOT},
    harness::{Caller, agent, run, wait_for},
    trace_cmd,
};
use serde_json::{Value, json};
use tracedat::initial_state::InitialState;
use tracedat::reader::Reader;

use super::{calls, files, only};

const STATE: &str = "/v1/sessions/one/regenerate/statedump";
const METADATA: &str = "/v1/sessions/one/regenerate/metadata";

/// What babeltrace2 prints of a trace, which it reads without a warning.
fn babeltrace(trace: &Path) -> Vec<String> {
    let (text, lost) = babeltrace::printed(trace, &["--clock-cycles", "--no-delta"]);
    assert_eq!(lost, 0, "{}", trace.display());
    text.lines().map(str::to_owned).collect()
}

/// The places of the lines that have all of these texts.
fn places(lines: &[String], texts: &[&str]) -> Vec<usize> {
    let has_all = |line: &String| texts.iter().all(|text| line.contains(text));
    (0..).zip(lines).filter(|(_, line)| has_all(line)).map(|(place, _)| place).collect()
}

fn begin(daemon: &Daemon, format: &str, dir: &Path, caller: &Caller) {
    let new = json!({"name": "one", "format": format, "mode": {"local": {"output": dir}}});
    daemon.tell("POST", "/v1/sessions", Some(&new));
    let channels = "/v1/sessions/one/domains/kernel/channels";
    daemon.tell("POST", channels, Some(&json!({"name": "channel0"})));
    daemon.tell("POST", &format!("{channels}/channel0/rules"), Some(&calls()));
    daemon.tell("POST", "/v1/sessions/one/domains/kernel/trackers", Some(&only(caller.pid())));
    is_not_started(daemon);
    daemon.tell("POST", "/v1/sessions/one/start", None);
}

/// Waits until the state at the begin of the chunk is complete: who comes later is not in it.
fn wait_for_first_state(dir: &Path) {
    let has_state = |dir: &PathBuf| dir.join("state").exists();
    wait_for("the state at the start", || files(dir).iter().any(has_state).then_some(()));
}

/// As LTTng's daemon says it.
fn is_not_started(daemon: &Daemon) {
    for path in [STATE, METADATA] {
        let (status, refusal) = daemon.ask("POST", path, None);
        assert_eq!((status, &refusal["code"]), (409, &json!("not_started")), "{refusal}");
        assert_eq!(refusal["message"], "Session not started");
    }
}

#[test]
fn a_trace_has_the_state_at_each_moment_that_it_was_asked_for() {
    let daemon = Daemon::start();
    let dir = daemon.path().join("out");
    let mut caller = Caller::start();
    begin(&daemon, "lttng", &dir, &caller);
    caller.call(1000);
    caller.settle();
    wait_for_first_state(&dir);
    let late = Caller::named("born-later");
    daemon.tell("POST", STATE, None);
    caller.call(1000);
    caller.settle();
    daemon.tell("POST", "/v1/sessions/one/stop", None);
    let lines = babeltrace(&dir);
    let (begins, ends) =
        (places(&lines, &["lttng_statedump_start: "]), places(&lines, &["lttng_statedump_end: "]));
    assert_eq!((begins.len(), ends.len()), (2, 2));
    let of_thread = |lines: &[String], tid: u32| {
        places(lines, &["lttng_statedump_process_state: ", &format!("{{ tid = {tid}, ")])
    };
    let caller_at = of_thread(&lines, caller.pid());
    assert!(caller_at[0] < ends[0] && begins[1] < caller_at[1] && caller_at.len() == 2, "{caller_at:?}");
    let late_at = of_thread(&lines, late.pid());
    assert!(late_at.len() == 1 && begins[1] < late_at[0], "{late_at:?} {begins:?}");
    assert!(lines[late_at[0]].contains("name = \"born-later\""), "{}", lines[late_at[0]]);
    let is_call = |line: &String| line.contains("sys_enter: ") || line.contains("syscall_entry_getppid: ");
    let calls_before = lines[..begins[1]].iter().filter(|line| is_call(line)).count();
    let calls_in_all = lines.iter().filter(|line| is_call(line)).count();
    assert_eq!((calls_before, calls_in_all), (1000, 2000), "the state is where it was asked for");

    is_not_started(&daemon);
    daemon.tell("POST", "/v1/sessions/one/start", None);
    daemon.tell("POST", STATE, None);
    daemon.tell("POST", STATE, None);
    caller.call(10);
    let rotation = daemon.tell("POST", "/v1/sessions/one/rotations", None);
    let archive = wait_for("the archive", || {
        let rotation = daemon.tell("GET", &format!("/v1/sessions/one/rotations/{}", rotation["id"]), None);
        rotation["path"].as_str().map(PathBuf::from)
    });
    daemon.tell("POST", STATE, None);
    daemon.tell("DELETE", "/v1/sessions/one", None);
    let states = |trace: &Path| places(&babeltrace(trace), &["lttng_statedump_start: "]).len();
    assert_eq!(states(&archive), 4, "also behind a pause");
    let last = files(&dir.join("archives")).pop().unwrap();
    assert_eq!(states(&last), 2, "each chunk has that of its own begin");
    assert_eq!(daemon.stop().expect(0).err, "");
}

/// The lines of metadata without the packets around them (CTF 1.8.3, section 7.1), and without the clocks'
/// distances to wall time, of which a later and better measurement replaces the earlier one. Their order
/// depends on when they were written.
fn described(metadata: &[u8]) -> BTreeSet<String> {
    let (mut text, mut rest) = (Vec::new(), metadata);
    while !rest.is_empty() {
        let word = |at: usize| u32::from_le_bytes(rest[at..at + 4].try_into().unwrap()) as usize;
        let (content, size) = (word(24) / 8, word(28) / 8);
        text.extend_from_slice(&rest[37..content]);
        rest = &rest[size..];
    }
    let text = String::from_utf8(text).unwrap();
    let is_distance = |line: &str| line.contains("offset = ") || line.contains("wall_offset_ns");
    text.lines().filter(|line| !is_distance(line)).map(str::to_owned).collect()
}

#[test]
fn metadata_that_somebody_has_cut_are_whole_again() {
    let daemon = Daemon::start();
    let dir = daemon.path().join("out");
    let mut caller = Caller::start();
    begin(&daemon, "lttng", &dir, &caller);
    caller.call(1000);
    caller.settle();
    let path = dir.join("kernel/metadata");
    // All is there after a stop.
    daemon.tell("POST", "/v1/sessions/one/stop", None);
    let whole = fs::read(&path).unwrap();
    daemon.tell("POST", "/v1/sessions/one/start", None);
    fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(4096).unwrap();
    daemon.tell("POST", METADATA, None);
    let again = fs::read(&path).unwrap();
    let difference: Vec<_> = described(&again).symmetric_difference(&described(&whole)).cloned().collect();
    assert!(difference.is_empty(), "{difference:?}");
    let is_metadata = |file: &PathBuf| file.to_str().unwrap().contains("metadata");
    let there = files(&dir.join("kernel"));
    assert_eq!(there.iter().filter(|file| is_metadata(file)).count(), 1, "{there:?}");
    // What is declared from now on comes behind.
    let returns =
        json!({"name": "raw_syscalls:sys_exit", "instrumentation": "tracepoint", "filter": "id == 110"});
    daemon.tell("POST", "/v1/sessions/one/domains/kernel/channels/channel0/rules", Some(&returns));
    caller.call(500);
    caller.settle();
    daemon.tell("POST", METADATA, None);
    daemon.tell("POST", "/v1/sessions/one/stop", None);
    let lines = babeltrace(&dir);
    let count =
        |texts: [&str; 2]| lines.iter().filter(|line| texts.iter().any(|text| line.contains(text))).count();
    assert_eq!(count([" sys_enter: ", " syscall_entry_getppid: "]), 1500);
    assert_eq!(count([" sys_exit: ", " syscall_exit_getppid: "]), 500);
    daemon.tell("DELETE", "/v1/sessions/one", None);
    assert_eq!(daemon.stop().expect(0).err, "");
}

#[test]
fn a_file_has_all_states_that_were_asked_for() {
    let daemon = Daemon::start();
    let dir = daemon.path().join("out");
    let mut caller = Caller::start();
    begin(&daemon, "trace_dat", &dir, &caller);
    caller.call(1000);
    wait_for_first_state(&dir);
    let late = Caller::named("born-later");
    daemon.tell("POST", STATE, None);
    daemon.tell("POST", METADATA, None);
    caller.call(1000);
    caller.settle();
    daemon.tell("POST", "/v1/sessions/one/stop", None);
    let [file] = files(&dir).try_into().unwrap();
    run(&mut agent(&dir, ["check", file.to_str().unwrap()])).expect(0);
    let reader = Reader::open(fs::File::open(&file).unwrap()).unwrap();
    let states: Vec<InitialState> = reader.states().map(Result::unwrap).collect();
    assert_eq!(states.len(), 2);
    assert!(states[0].ended_ns < states[1].began_ns, "in the order of time");
    assert_eq!(reader.initial_state().unwrap().as_ref(), Some(&states[0]));
    let has = |state: &InitialState, tid| state.threads.iter().any(|thread| thread.tid == tid);
    let threads = [caller.pid(), late.pid()].map(|tid| [has(&states[0], tid), has(&states[1], tid)]);
    assert_eq!(threads, [[true, true], [false, true]]);
    // Readers that know of one state, or of none, read it as ever.
    let is_call = |line: &&str| line.contains("sys_enter");
    assert_eq!(trace_cmd::report(&file, &[]).lines().filter(is_call).count(), 2000);
    // Whatever is done with the file, they stay in it.
    let args = ["convert", "--compression", "none", "-o", "converted.dat", file.to_str().unwrap()];
    run(&mut agent(daemon.path(), args)).expect(0);
    let converted = Reader::open(fs::File::open(daemon.path().join("converted.dat")).unwrap()).unwrap();
    assert_eq!(converted.states().map(Result::unwrap).collect::<Vec<_>>(), states);
    let args = ["export", "--format", "lttng", file.to_str().unwrap(), "exported"];
    run(&mut agent(daemon.path(), args)).expect(0);
    let lines = babeltrace(&daemon.path().join("exported"));
    assert_eq!(places(&lines, &["lttng_statedump_start: "]).len(), 2);
    let late_at = places(&lines, &["lttng_statedump_process_state: ", "name = \"born-later\""]);
    assert_eq!(late_at.len(), 1);
}

#[test]
fn a_snapshot_has_the_states_up_to_it() {
    let daemon = Daemon::start();
    let dir = daemon.path().join("out");
    let new = json!({"name": "one", "mode": "snapshot", "snapshot_output": dir});
    daemon.tell("POST", "/v1/sessions", Some(&new));
    let channels = "/v1/sessions/one/domains/kernel/channels";
    daemon.tell("POST", channels, Some(&json!({"name": "channel0", "attributes": {"subbuf_size": 65536}})));
    daemon.tell("POST", &format!("{channels}/channel0/rules"), Some(&calls()));
    daemon.tell("POST", "/v1/sessions/one/start", None);
    let mut caller = Caller::start();
    caller.call(100);
    let take = || {
        let taken: Value = daemon.tell("POST", "/v1/sessions/one/snapshots", Some(&json!({})));
        let file = fs::File::open(taken["path"].as_str().unwrap()).unwrap();
        Reader::open(file).unwrap().states().map(Result::unwrap).collect::<Vec<_>>()
    };
    daemon.tell("POST", STATE, None);
    let first = take();
    daemon.tell("POST", STATE, None);
    let second = take();
    assert_eq!((first.len(), second.len()), (2, 3));
    assert_eq!(first, second[..2]);
    assert!(first[1].threads.iter().any(|thread| thread.tid == caller.pid()));
}

#[test]
fn a_snapshot_that_is_a_trace_has_them_too() {
    let daemon = Daemon::start();
    let dir = daemon.path().join("out");
    let new = json!({"name": "one", "mode": "snapshot", "snapshot_output": dir, "format": "lttng"});
    daemon.tell("POST", "/v1/sessions", Some(&new));
    let channels = "/v1/sessions/one/domains/kernel/channels";
    daemon.tell("POST", channels, Some(&json!({"name": "channel0", "attributes": {"subbuf_size": 65536}})));
    daemon.tell("POST", &format!("{channels}/channel0/rules"), Some(&calls()));
    daemon.tell("POST", "/v1/sessions/one/start", None);
    Caller::start().call(100);
    daemon.tell("POST", STATE, None);
    daemon.tell("POST", METADATA, None);
    let taken = daemon.tell("POST", "/v1/sessions/one/snapshots", Some(&json!({})));
    let lines = babeltrace(Path::new(taken["path"].as_str().unwrap()));
    assert_eq!(places(&lines, &["lttng_statedump_start: "]).len(), 2);
}

#[test]
fn what_there_is_not_is_refused() {
    let daemon = Daemon::start();
    daemon.session(ROOT, "one", &daemon.path().join("out"), &[calls()]);
    daemon.tell("POST", "/v1/sessions/one/start", None);
    let status = |path: &str| daemon.ask("POST", path, None).0;
    assert_eq!(status("/v1/sessions/one/regenerate/nothing"), 422);
    assert_eq!(status("/v1/sessions/two/regenerate/statedump"), 404);
}
