//! What answers say of recordings that lack something: what is lost while they are made, and events in two
//! buffers.

use std::path::Path;

use integration_tests::agent;
use integration_tests::answers::{answer, list, number, tables};
use integration_tests::harness::{self, Caller, Marked, wait_for_readers};
use integration_tests::workload;

#[test]
fn what_a_live_recording_loses_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let mut caller = Caller::start();
    let args = ["-o", "trace.dat", "-b", "128", "-e", "raw_syscalls", "-e", "sched:sched_switch"];
    let marked = Marked::start(dir.path(), &args);
    caller.call(100);
    wait_for_readers(marked.agent.pid());
    // Nobody takes what is in the rings.
    marked.agent.hold();
    caller.call(50_000);
    marked.agent.signal(libc::SIGCONT);
    wait_for_readers(marked.agent.pid());
    caller.call(100);
    let ended = marked.finish();
    let file = dir.path().join("trace.dat");
    assert!(ended.err.contains("lost"), "{}", ended.err);
    let told = answer("syscalls", &file, &["--pid", &caller.pid().to_string()]);
    let covered = &told["covered"];
    assert!(number(covered, "lost_events") > 10_000 && number(covered, "losses") > 0, "{covered}");
    let getppid = list(&told, "calls").iter().find(|call| call["name"] == "getppid").expect("its calls");
    let known = number(getppid, "times.count");
    assert!((200..50_200).contains(&known), "{getppid}");
    // No call was as long as the time in which events were lost.
    let sched = answer("sched", &file, &[]);
    let unknown: u64 = list(&sched, "cpus").iter().map(|cpu| number(cpu, "unknown_ns")).sum();
    assert!(unknown > 0, "{sched}");
    assert!(tables("sched", &file, &[]).contains("events were lost "));
}

/// Two buffers of one recording that have the same events.
fn record_twice(dir: &Path) -> std::path::PathBuf {
    let file = dir.join("trace.dat");
    let mut args = ["-e", "sched:sched_switch", "-e", "sched:sched_waking"].map(str::to_owned).to_vec();
    args.extend(["-B", "other", "-e", "sched:sched_switch", "-e", "raw_syscalls"].map(str::to_owned));
    args.extend(workload::command("mixed", dir));
    agent::record(&file, &args);
    file
}

#[test]
fn an_event_in_two_buffers_counts_once() {
    let dir = tempfile::tempdir().unwrap();
    let file = record_twice(dir.path());
    let both = answer("sched", &file, &[]);
    let (top, other) = (answer("sched", &file, &["-B", ""]), answer("sched", &file, &["-B", "other"]));
    let switches = |told: &serde_json::Value| -> u64 {
        list(told, "cpus").iter().map(|cpu| number(cpu, "switches")).sum()
    };
    // Two programs see each switch, one after the other, and the first and last of them may be one's only.
    let [all, of_top, of_other] = [&both, &top, &other].map(switches);
    assert!(all > 100 && (all == of_top || all == of_other), "{all} {of_top} {of_other}");
    assert_eq!(number(&both, "covered.of_other_buffers"), of_top + of_other - all);
    assert_eq!(number(&both, "covered.losses"), 0);
    let text = tables("sched", &file, &[]);
    assert!(
        text.contains("records are in another buffer as well, and not counted twice; -B chooses a buffer"),
        "{text}"
    );
    // What only one of them has is had in any case.
    assert!(number(&both, "woken.count") > 50 && other["woken"].is_null(), "{other}");
    let calls = answer("syscalls", &file, &[]);
    let alone = answer("syscalls", &file, &["-B", "other"]);
    // The time without a CPU is by the switches of the one or the other.
    let times = |told: &serde_json::Value| -> Vec<_> {
        list(told, "calls").iter().map(|call| (call["number"].clone(), call["times"].clone())).collect()
    };
    assert_eq!(times(&calls), times(&alone));
    let mut wrong = harness::agent("/".as_ref(), ["analyze", "sched", file.to_str().unwrap(), "-B", "none"]);
    harness::run(&mut wrong).expect(2).says(&["-B none: the file has no such buffer (other)"]);
}

#[test]
fn what_for_records_is_all_that_its_analysis_uses() {
    let dir = tempfile::tempdir().unwrap();
    for analysis in ["sched", "syscalls", "irq", "offcpu"] {
        let file = dir.path().join(format!("{analysis}.dat"));
        let mut args = vec!["--for".to_owned(), analysis.to_owned()];
        args.extend(workload::command("mixed", dir.path()));
        agent::record(&file, &args);
        // What may not have happened meanwhile was recorded all the same.
        let told = answer(analysis, &file, &[]);
        assert!(list(&told["covered"], "missing").is_empty(), "{analysis}: {}", told["covered"]);
    }
}
