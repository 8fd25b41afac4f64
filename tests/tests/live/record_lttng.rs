//! Traces of LTTng's layout that are written while the recording goes on: babeltrace2 reads each kind of them
//! without a warning, and they have what was recorded.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use capture::{Done, Finished, Finisher, finish};
use integration_tests::{
    analyses::{rows, tables},
    babeltrace, ctf,
    dat::Dat,
    harness::{
        Caller, Ended, Ledger, Marked, Report, Running, Tmpfs, agent, files, is_getppid, program, reported,
        run, wait_for,
    },
    session::{calls, spec, start},
    workload,
};
use spec::{RecordingSpec, RotationSpec, TraceFormat};

/// What `numbered` calls.
const CALL: &str = "syscall_entry_getppid";

/// What babeltrace2 prints of a trace, and how many lost events it tells of. Other warnings fail.
fn babeltrace(trace: &Path) -> (Vec<String>, u64) {
    let (text, lost) = babeltrace::printed(trace, &["--clock-cycles", "--no-delta"]);
    (text.lines().map(str::to_owned).collect(), lost)
}

/// How many of the lines are of this event.
fn count(lines: &[String], event: &str) -> u64 {
    lines.iter().filter(|line| line.contains(&format!(" {event}: "))).count() as u64
}

/// Those of events that were recorded, not of the state dump.
fn recorded(lines: &[String]) -> u64 {
    lines.iter().filter(|line| !line.contains(" lttng_statedump_")).count() as u64
}

/// Events and losses that the summary of one recording tells of.
fn told(ended: &Ended) -> (u64, u64) {
    let all = ended.err.lines().find(|line| line.trim_start().starts_with("all ")).unwrap();
    let before_events = ended.err.split(" events in ").next().unwrap();
    let number = |text: &str| text.replace(' ', "").parse::<u64>().unwrap();
    let events = number(before_events.rsplit(": ").next().unwrap());
    let lost = all.rsplit("  ").next().unwrap();
    (events, number(lost))
}

fn cpu_count() -> usize {
    std::thread::available_parallelism().unwrap().get()
}

/// Records `numbered` with these options until `is_enough` says so, or at once when it calls on all CPUs.
fn storm(dir: &Path, options: &[&str], mut is_enough: impl FnMut() -> bool) -> Ended {
    // Others may make the call, too.
    let mut command =
        agent(dir, ["record", "-F", "-e", "raw_syscalls:sys_enter", "-f", "id == 110", "-o", "out"]);
    let recording = Running::start(command.args(options).args(workload::command("numbered", dir)));
    wait_for("enough of the storm", || is_enough().then_some(()));
    workload::end_numbered(dir);
    recording.wait().expect(0)
}

/// What is in a directory and those below it.
fn tree(dir: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for name in files(dir) {
        let path = dir.join(&name);
        if path.is_dir() {
            found.extend(tree(&path).into_iter().map(|below| format!("{name}/{below}")));
        }
        found.insert(name);
    }
    found
}

/// What is in a directory, which may not be there yet.
fn files_in(dir: &Path) -> Vec<String> {
    if dir.exists() { files(dir) } else { Vec::new() }
}

/// How many chunks are closed.
fn closed(out: &Path) -> usize {
    files_in(&out.join("archives")).len()
}

/// Whether the files in a directory have so many bytes.
fn larger(dir: &Path, bytes: u64) -> bool {
    let sizes = files_in(dir).into_iter().filter_map(|name| dir.join(name).metadata().ok());
    sizes.map(|file| file.len()).sum::<u64>() > bytes
}

/// The entries of an index that may be replaced at any moment.
fn index_of(path: &Path) -> Vec<[u64; 9]> {
    fs::read(path).ok().filter(|bytes| bytes.len() >= 16).map(|bytes| entries(&bytes)).unwrap_or_default()
}

/// `20260302T101500+0000` with a 0 for each digit.
fn shape(text: &str) -> String {
    text.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect()
}

/// The entries of an index: offset, sizes, begin, end, discarded events, stream, instance, sequence.
fn index(path: &Path) -> Vec<[u64; 9]> {
    entries(&fs::read(path).unwrap())
}

fn entries(bytes: &[u8]) -> Vec<[u64; 9]> {
    assert_eq!(bytes[..4], [0xc1, 0xf1, 0xdc, 0xc1]);
    let word = |bytes: &[u8]| u64::from_be_bytes(bytes.try_into().unwrap());
    let entry = |bytes: &[u8]| -> [u64; 9] {
        bytes.chunks_exact(8).map(word).collect::<Vec<_>>().try_into().unwrap()
    };
    bytes[16..].chunks_exact(72).map(entry).collect()
}

fn uuid(kernel: &Path) -> Vec<u8> {
    fs::read(kernel.join("metadata")).unwrap()[4..20].to_vec()
}

#[test]
fn a_trace_can_be_read_while_it_is_recorded_and_when_it_is_stopped() {
    let dir = tempfile::tempdir().unwrap();
    let script = "i=0; while [ $i -lt 50 ]; do i=$((i+1)); /bin/true; done; exec sleep 100 >/dev/null 2>&1";
    let args =
        ["record", "--format", "lttng", "-F", "-c", "-e", "sched:sched_process_exec", "sh", "-c", script];
    let recording = Running::start(&mut agent(dir.path(), args));
    let out = dir.path().join("trace");
    // With that of the command, and the last one.
    let all = 52;
    let name = "sched_process_exec";
    wait_for("the events", || {
        // Half of the metadata may be there.
        let ended = run(&mut program("/".as_ref(), "babeltrace2", [&out]));
        let lines: Vec<String> = ended.out.lines().map(str::to_owned).collect();
        (ended.status.success() && count(&lines, name) == all).then_some(())
    });
    // Nothing comes any more.
    let (running, lost) = babeltrace(&out);
    assert_eq!((count(&running, name), lost), (all, 0));
    assert!(running.iter().any(|line| line.contains("lttng_statedump_end")), "{running:?}");
    recording.signal(libc::SIGTERM);
    let ended = recording.wait();
    assert_eq!(told(&ended), (all, 0), "{ended:?}");
    let (stopped, lost) = babeltrace(&out);
    assert_eq!((count(&stopped, name), lost), (all, 0));
    assert_eq!(stopped, running);
    let kernel = tree(&out.join("kernel"));
    let cpus = || 0..cpu_count();
    let mut expected: BTreeSet<String> =
        ["metadata", "index", "statedump_0", "index/statedump_0.idx"].map(str::to_owned).into();
    expected.extend(cpus().map(|cpu| format!("channel0_{cpu}")));
    expected.extend(cpus().map(|cpu| format!("index/channel0_{cpu}.idx")));
    assert_eq!(kernel, expected, "as LTTng has them");
    assert_eq!(files(&out), ["kernel"], "the spool is gone");
}

#[test]
fn what_is_lost_is_counted() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let ended = storm(dir.path(), &["--format", "lttng", "-b", "8"], || larger(&out.join("kernel"), 4 << 20));
    let (events, lost) = told(&ended);
    assert!(lost > 0, "{ended:?}");
    let (lines, discarded) = babeltrace(&out);
    assert_eq!((recorded(&lines), discarded), (events, lost));
    // An independent reader finds the same, and checks each packet and entry of the indexes.
    let trace = ctf::read(&out);
    let discarded: u64 = trace.losses.values().flatten().map(|(_, _, count)| count).sum();
    let calls = trace.events.iter().filter(|event| event.name == CALL).count() as u64;
    assert_eq!((calls, discarded), (events, lost));
}

/// The closed chunks in the order of their numbers.
fn chunks(out: &Path) -> Vec<PathBuf> {
    let mut found: Vec<(u64, String)> = files(&out.join("archives"))
        .into_iter()
        .map(|name| {
            let (times, number) = name.rsplit_once('-').unwrap();
            assert_eq!(shape(times), "00000000T000000+0000-00000000T000000+0000", "{name}");
            (number.parse().unwrap(), name)
        })
        .collect();
    found.sort();
    let numbers: Vec<u64> = found.iter().map(|(number, _)| *number).collect();
    assert_eq!(numbers, (0..numbers.len() as u64).collect::<Vec<_>>(), "LTTng counts from 0");
    found.into_iter().map(|(_, name)| out.join("archives").join(name)).collect()
}

#[test]
fn rotations_make_chunks_of_one_trace() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let options = ["--format", "lttng", "--rotate-size", "1M", "-b", "32M", "--compression", "none"];
    let ended = storm(dir.path(), &options, || closed(&out) >= 4);
    let chunks = chunks(&out);
    assert!(chunks.len() >= 2, "{ended:?}");
    assert_eq!(files(&out), ["archives"], "the last chunk is closed, and no spool is left");
    let calls: u64 = workload::numbers_of(dir.path()).into_iter().map(|(_, calls)| calls).sum();
    let (lines, lost) = babeltrace(&out);
    let told: Vec<u64> = chunks.iter().map(|chunk| recorded(&babeltrace(chunk).0)).collect();
    assert_eq!(told.iter().sum::<u64>(), recorded(&lines), "each chunk is a trace, and all are one");
    // Missing is also what the kernel's recursion guard kept from the program, which no stream can tell of.
    let all = ended.err.lines().find(|line| line.contains(" files, ")).unwrap();
    let missing = all.split_once(" LOST").map_or(0, |(before, _)| {
        before.rsplit_once(", ").unwrap().1.replace(' ', "").parse::<u64>().unwrap()
    });
    assert!(missing >= lost, "{lost} lost: {ended:?}");
    assert_eq!(recorded(&lines) + missing, calls, "{lost} lost: {ended:?}");

    let first = uuid(&chunks[0].join("kernel"));
    let mut before: BTreeMap<String, [u64; 9]> = BTreeMap::new();
    for chunk in &chunks {
        let kernel = chunk.join("kernel");
        assert_eq!(uuid(&kernel), first);
        for name in files(&kernel.join("index")) {
            for entry in index(&kernel.join("index").join(&name)) {
                let [.., end, discarded, _, _, sequence] = entry;
                match before.insert(name.clone(), entry) {
                    None => assert_eq!(sequence, 0, "{name}"),
                    Some([.., end_before, discarded_before, _, _, sequence_before]) => {
                        assert_eq!(sequence, sequence_before + 1, "{name}");
                        assert!(entry[3] >= end_before && end >= entry[3], "{name}: times go on");
                        assert!(discarded >= discarded_before, "{name}");
                    }
                }
            }
        }
    }
}

#[test]
fn threads_made_on_several_cpus_are_of_their_process() {
    let dir = tempfile::tempdir().unwrap();
    // Events wait for their stacks, on one CPU longer than on another.
    let mut command = agent(dir.path(), ["record", "--format", "lttng", "-T", "-o", "out"]);
    let mut recording =
        Running::start(command.args(["-e", "task:task_newtask", "-e", "sched:sched_process_fork"]));
    recording.wait_until_said("; Ctrl-C stops it", 1);
    std::thread::scope(|scope| {
        for cpu in 0..cpu_count() {
            scope.spawn(move || {
                workload::bind(&[cpu]);
                (0..100).for_each(|_| std::thread::spawn(|| ()).join().unwrap());
            });
        }
    });
    recording.signal(libc::SIGTERM);
    recording.wait().expect(0);
    let (lines, _) = babeltrace(&dir.path().join("out"));
    let number = |line: &str, field: &str| -> u32 {
        let (_, value) = line.split_once(&format!(" {field} = ")).unwrap();
        value.split([',', ' ']).next().unwrap().parse().unwrap()
    };
    let forks = lines.iter().filter(|line| line.contains(" sched_process_fork: "));
    let own = forks.filter(|line| number(line, "parent_pid") == std::process::id());
    let children: Vec<u32> = own.map(|line| number(line, "child_pid")).collect();
    assert!(children.len() >= 100 * cpu_count(), "{}", children.len());
    assert!(children.iter().all(|process| *process == std::process::id()), "{children:?}");
}

#[test]
fn chunks_that_are_not_kept_are_removed() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let options =
        ["--format", "ctf", "--rotate-size", "256K", "--keep", "2", "-b", "32M", "--compression", "none"];
    let number = |name: &String| name.rsplit('-').next().unwrap().parse::<u64>().unwrap();
    // Any number of chunks may have come between two looks.
    let newest = || files_in(&out.join("archives")).iter().any(|name| number(name) >= 5);
    storm(dir.path(), &options, newest);
    let left = files(&dir.path().join("out/archives"));
    assert_eq!(left.len(), 2);
    assert!(left.iter().all(|name| number(name) >= 4), "{left:?}");
    assert!(recorded(&babeltrace(&dir.path().join("out")).0) > 0);
}

/// Whether a line is of the event that [`storm`] records, with the kernel's own name.
fn is_entry(line: &str) -> bool {
    line.contains(" sys_enter:")
}

#[test]
fn a_trace_of_ctf_2_is_recorded_and_imported() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let ended = storm(dir.path(), &["--format", "ctf2", "-b", "8"], || larger(&out.join("kernel"), 1 << 20));
    let (events, lost) = told(&ended);
    assert!(lost > 0, "{ended:?}");
    let text = run(agent(dir.path(), ["info", "--json"]).arg(&out)).expect(0).out;
    let info: serde_json::Value = serde_json::from_str(&text).unwrap();
    let told = &info["traces"][0];
    assert_eq!((told["version"].as_str(), told["recorded"].as_u64()), (Some("2"), Some(events)));
    let streams = told["streams"].as_array().unwrap().iter();
    assert_eq!(streams.map(|stream| stream["discarded"].as_u64().unwrap()).sum::<u64>(), lost);
    run(agent(dir.path(), ["import", "-o", "back.dat"]).arg(&out)).expect(0);
    let back = dir.path().join("back.dat");
    let ledger = Ledger::of(&back);
    assert_eq!((Report::of(&back).count(is_entry), ledger.cpus("by_recorder")), (events, lost));
}

#[test]
fn chunks_of_ctf_2_are_traces_each() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let mut caller = Caller::start();
    let pid = caller.pid().to_string();
    let calls = ["-e", "raw_syscalls:sys_enter", "-f", "id == 110", "-P", &pid];
    let options = ["--format", "ctf2", "--rotate-size", "128K", "--compression", "none", "-o", "out"];
    let recording = Marked::start(dir.path(), &[&options[..], &calls].concat());
    // So many and no more: all of them are in memory below.
    for chunk in 1..=3 {
        caller.call(20_000);
        wait_for("a chunk", || (closed(&out) >= chunk).then_some(()));
    }
    recording.finish().expect(0);
    let read: Vec<ctf::Trace> = chunks(&out).iter().map(|chunk| ctf::read_chunk(chunk)).collect();
    assert!(read.len() >= 2);
    let are_entries = |trace: &ctf::Trace| trace.events.iter().all(|of| of.name == "raw_syscalls:sys_enter");
    assert!(read.iter().all(are_entries));
    run(agent(dir.path(), ["import", "-o", "back.dat"]).arg(&out)).expect(0);
    let events: u64 = read.iter().map(|trace| trace.events.len() as u64).sum();
    // How much was lost before the first packet of a chunk is not known, if the recorder had no CPU for long.
    let back = reported(&dir.path().join("back.dat"));
    assert_eq!(back.iter().filter(|record| record["event"] == "sys_enter").count() as u64, events);
}

#[test]
fn files_of_a_stream_have_a_size_and_a_count() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let kernel = out.join("kernel");
    let options = [
        "--format",
        "lttng",
        "-b",
        "32M",
        "--packet-size",
        "8K",
        "--tracefile-size",
        "64K",
        "--tracefile-count",
        "3",
    ];
    let all_wrapped = || {
        let has_wrapped = |cpu| {
            let indexes = files_in(&kernel.join("index")).into_iter();
            let mut indexes = indexes.filter(|name| name.starts_with(&format!("channel0_{cpu}_")));
            // Of three files of eight packets.
            indexes.any(|name| index_of(&kernel.join("index").join(name)).iter().any(|entry| entry[8] > 24))
        };
        (0..cpu_count()).all(has_wrapped)
    };
    let ended = storm(dir.path(), &options, all_wrapped);
    let mut wrapped = 0;
    for cpu in 0..cpu_count() {
        let of_cpu = format!("channel0_{cpu}_");
        let names: Vec<String> =
            files(&kernel).into_iter().filter(|name| name.starts_with(&of_cpu)).collect();
        let expected: BTreeSet<String> = (0..names.len()).map(|number| format!("{of_cpu}{number}")).collect();
        assert_eq!(names.iter().cloned().collect::<BTreeSet<_>>(), expected);
        assert!(names.len() <= 3, "{names:?}");
        let mut sequences = Vec::new();
        for name in &names {
            assert!(kernel.join(name).metadata().unwrap().len() <= 64 << 10);
            let entries = index(&kernel.join("index").join(format!("{name}.idx")));
            assert!(entries.iter().all(|entry| entry[1] <= 8 * (8 << 10)), "packets have their size");
            sequences.extend(entries.iter().map(|entry| entry[8]));
        }
        sequences.sort_unstable();
        assert!(sequences.windows(2).all(|pair| pair[1] == pair[0] + 1), "{sequences:?}");
        wrapped += u64::from(sequences[0] != 0);
    }
    assert!(wrapped != 0, "{ended:?}");
    let (lines, _) = babeltrace(&out);
    assert!(count(&lines, CALL) > 0 && count(&lines, CALL) < told(&ended).0);
}

#[test]
fn snapshots_are_traces() {
    let dir = tempfile::tempdir().unwrap();
    let mut command =
        agent(dir.path(), ["record", "--format", "lttng", "--overwrite", "-b", "64K", "-o", "out"]);
    command.args(["-e", "sched:sched_process_exec", "-F", "-c"]);
    let script = "for i in 1 2 3 4 5 6 7 8 9; do /bin/true; done; touch done; exec sleep 100 >/dev/null 2>&1";
    let mut recording = Running::start(command.args(["sh", "-c", script]));
    wait_for("the events", || dir.path().join("done").exists().then_some(()));
    for number in 0..2 {
        recording.signal(libc::SIGUSR2);
        recording.wait_until_said(&format!("-{number}: "), 1);
    }
    recording.signal(libc::SIGTERM);
    recording.wait();
    let out = dir.path().join("out");
    let snapshots: Vec<String> =
        files(&out).into_iter().filter(|name| name.starts_with("snapshot-1-")).collect();
    assert_eq!(snapshots.len(), 2, "{snapshots:?}");
    for name in &snapshots {
        assert_eq!(shape(name), "snapshot-0-00000000-000000-0");
        let (lines, lost) = babeltrace(&out.join(name));
        // The command may not have become `sleep` by the first one.
        let events = count(&lines, "sched_process_exec");
        assert!((11..=13).contains(&events) && lost == 0, "{events} {lost}: {lines:?}");
        assert!(files(&out.join(name).join("kernel/index")).is_empty(), "LTTng's snapshots have no indexes");
    }
    let (lines, _) = babeltrace(&out.join("kernel"));
    assert!((11..=13).contains(&count(&lines, "sched_process_exec")), "what is held at the end: {lines:?}");
}

/// Records eleven events into `trace` below a directory, and kills the recorder when they are there.
fn killed_trace(dir: &Path) -> PathBuf {
    let script = "for i in 1 2 3 4 5 6 7 8 9; do /bin/true; done; exec sleep 100 >/dev/null 2>&1";
    let args =
        ["record", "--format", "lttng", "-F", "-c", "-e", "sched:sched_process_exec", "sh", "-c", script];
    let recording = Running::start(&mut agent(dir, args));
    let out = dir.join("trace");
    wait_for("the events", || {
        let ended = run(&mut program("/".as_ref(), "babeltrace2", [&out]));
        let lines: Vec<String> = ended.out.lines().map(str::to_owned).collect();
        (ended.status.success() && count(&lines, "sched_process_exec") == 11).then_some(())
    });
    recording.signal(libc::SIGKILL);
    recording.wait();
    out
}

#[test]
fn the_trace_of_a_killed_recorder_is_finished() {
    let dir = tempfile::tempdir().unwrap();
    let out = killed_trace(dir.path());
    let kernel = out.join("kernel");
    let before = uuid(&kernel);
    run(&mut agent(dir.path(), ["recover", "trace/trace.dat.spool"])).expect(0);
    assert_eq!(files(&out), ["kernel"]);
    assert_eq!(count(&babeltrace(&out).0, "sched_process_exec"), 11);
    assert_eq!(uuid(&kernel), before);
    let packets: Vec<[u64; 9]> =
        (0..cpu_count()).flat_map(|cpu| index(&kernel.join(format!("index/channel0_{cpu}.idx")))).collect();
    // Those of CPUs without events as well.
    let [first, last] = [3, 4].map(|time| packets.iter().map(move |packet| packet[time]));
    assert!(last.max().unwrap() - first.min().unwrap() < 600_000_000_000, "{packets:?}");
}

#[test]
fn another_trace_in_the_place_of_one_that_was_begun_stays() {
    let dir = tempfile::tempdir().unwrap();
    let out = killed_trace(dir.path());
    fs::rename(out.join("kernel"), dir.path().join("begun")).unwrap();
    fs::create_dir(out.join("kernel")).unwrap();
    fs::write(out.join("kernel/metadata"), "of another one").unwrap();
    run(&mut agent(dir.path(), ["recover", "trace/trace.dat.spool"])).expect(0);
    assert_eq!(files(&out), ["kernel", "trace.dat"]);
    assert_eq!(fs::read(out.join("kernel/metadata")).unwrap(), b"of another one");
    assert_eq!(Ledger::of(&out.join("trace.dat")).cpus("stored"), 11);
}

/// The numbered calls of traces of the format `ctf`, by thread, in the order of their times.
fn numbered(out: &Path) -> BTreeMap<u32, Vec<u64>> {
    let number = |line: &str, name: &str| -> u64 {
        let (_, value) = line.split_once(&format!("{name} = ")).unwrap();
        value.split([',', ' ']).next().unwrap().parse().unwrap()
    };
    let mut calls: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
    for line in babeltrace(out).0 {
        calls.entry(number(&line, "common_pid") as u32).or_default().push(number(&line, "[0]"));
    }
    calls
}

/// Trials whose length `cargo xtask soak` sets.
mod soak {
    use super::*;

    #[test]
    fn each_event_of_killed_recorders_is_in_the_trace_once() {
        for trial in 0..integration_tests::soak() as u64 {
            killed(trial);
        }
    }
}

/// Kills a recorder that makes chunks, at another moment each time.
fn killed(trial: u64) {
    let dir = tempfile::tempdir().unwrap();
    let args = ["record", "--format", "ctf", "-e", "raw_syscalls:sys_enter", "-f", "id == 110", "-o", "out"];
    let mut command = agent(dir.path(), args);
    command
        .args(["--rotate-time", "100ms", "-b", "16M", "--compression", "none"])
        .args(workload::command("numbered", dir.path()));
    let mut recording = Running::start(&mut command);
    let out = dir.path().join("out");
    wait_for("chunks", || (closed(&out) > 1).then_some(()));
    std::thread::sleep(std::time::Duration::from_millis((13 + trial * 37) % 100));
    recording.signal(libc::SIGKILL);
    wait_for("its end", || recording.has_ended().then_some(()));
    workload::end_numbered(dir.path());
    wait_for("the end of the calls", || dir.path().join("numbers.txt").exists().then_some(()));
    let threads: BTreeMap<u32, u64> = workload::numbers_of(dir.path()).into_iter().collect();
    run(agent(dir.path(), ["recover", "-q"]).arg(&out)).expect(0);
    let mut calls = numbered(&out);
    // Archives that the trace had not begun.
    let has_end = |name: &String, end: &str| Path::new(name).extension().is_some_and(|of| of == end);
    let (rest, traces): (Vec<String>, Vec<String>) =
        files(&out).into_iter().partition(|name| has_end(name, "dat"));
    assert!(!traces.iter().any(|name| has_end(name, "spool")), "{traces:?}");
    for name in rest {
        for record in Dat::open(&out.join(name)).records() {
            let number = u64::from_le_bytes(record.bytes[16..24].try_into().unwrap());
            calls.entry(record.pid()).or_default().push(number);
        }
    }
    assert!(calls.values().map(Vec::len).sum::<usize>() > 10_000, "{traces:?}");
    for (thread, mut calls) in calls.into_iter().filter(|(thread, _)| threads.contains_key(thread)) {
        // Files are in no order.
        calls.sort_unstable();
        let all: Vec<u64> = (0..calls.len() as u64).collect();
        assert_eq!(calls, all, "{trial}: of {thread}");
    }
    let uuids: BTreeSet<Vec<u8>> = chunks(&out).iter().map(|chunk| uuid(&chunk.join("kernel"))).collect();
    assert_eq!(uuids.len(), 1);
}

#[test]
fn lttng_analyses_read_it() {
    let dir = tempfile::tempdir().unwrap();
    let script = "i=0; while [ $i -lt 40000 ]; do i=$((i+1)); done; ls / >/dev/null";
    let args = [
        "record",
        "--format",
        "lttng",
        "-e",
        "sched",
        "-e",
        "task",
        "-e",
        "raw_syscalls",
        "sh",
        "-c",
        script,
    ];
    run(&mut agent(dir.path(), args)).expect(0);
    let out = dir.path().join("trace");
    // Others may take more of the processors.
    let usage = &tables(&out, "lttng-cputop-mi", &["--limit", "1000000"])[0];
    assert!(rows(usage).iter().any(|row| row[0]["name"] == "sh"), "{usage}");
    let calls = tables(&out, "lttng-syscallstats-mi", &[]);
    assert!(calls.iter().any(|table| !rows(table).is_empty()), "{calls:?}");
}

#[test]
fn what_is_no_trace_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("out")).unwrap();
    fs::write(dir.path().join("out/thesis"), "years").unwrap();
    let record = |more: &[&str]| {
        run(agent(dir.path(), ["record", "-e", "sched", "-o", "out"]).args(more).arg("/bin/true"))
    };
    record(&["--format", "lttng"]).says(&["is not empty"]);
    record(&["--tracefile-size", "1M"]).expect(2).says(&["--format lttng"]);
    record(&["--format", "lttng", "--tracefile-size", "64K"]).expect(2).says(&["one packet at least"]);
    record(&["--format", "lttng", "--packet-size", "6"]).expect(2).says(&["a multiple of 4 KB"]);
    assert_eq!(files(&dir.path().join("out")), ["thesis"]);
}

/// What a program records of a caller into a trace.
fn trace_spec(path: &Path, caller: &Caller) -> RecordingSpec {
    let mut spec = spec(path, caller, vec![calls()], 0);
    spec.file.format = TraceFormat::Lttng;
    // Nothing but what is asked for brings an event to the trace.
    spec.channels[0].switch_ns = 0;
    spec
}

/// What a finisher has made of the last archive.
fn last_of(finisher: Finisher) -> Finished {
    match finisher.finish().pop() {
        Some(Done::File(finished)) => *finished,
        other => panic!("{other:?}"),
    }
}

/// The entries of all indexes of recorded events.
fn all_entries(kernel: &Path) -> Vec<[u64; 9]> {
    let indexes = kernel.join("index");
    let names = files(&indexes).into_iter().filter(|name| name.starts_with("channel0_"));
    names.flat_map(|name| index(&indexes.join(name))).collect()
}

#[test]
fn a_trace_is_complete_in_a_pause() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let mut caller = Caller::start();
    let finisher = Finisher::start(None).unwrap();
    let mut session = start(&trace_spec(&out, &caller));
    finisher.follow(&session).unwrap();
    let told = |calls: u64| {
        let (lines, lost) = babeltrace(&out);
        assert_eq!((count(&lines, CALL), lost), (calls, 0));
    };
    caller.call(1000);
    session.pause().unwrap();
    finisher.flush();
    told(1000);
    caller.call(2000);
    session.resume().unwrap();
    caller.call(4000);
    session.pause().unwrap();
    finisher.flush();
    told(5000);
    session.resume().unwrap();
    caller.call(8000);
    session.stop().into_iter().for_each(|recorded| finisher.add(recorded));
    let finished = last_of(finisher);
    told(13_000);
    assert_eq!((finished.stats.stored_events(), finished.path.as_path()), (13_000, out.as_path()));
    assert_eq!(files(&out), ["kernel"], "the spool is gone");
    // A packet ends where a pause begins.
    let pauses = &finished.stats.pauses;
    assert_eq!(pauses.len(), 2);
    let entries = all_entries(&out.join("kernel"));
    for pause in pauses {
        let (from, to) = (pause.from_ns, pause.to_ns.unwrap());
        let over = entries.iter().find(|[_, _, _, begin, end, ..]| *begin < from && *end > to);
        assert!(over.is_none(), "{over:?} {pause:?}");
        assert!(entries.iter().any(|entry| entry[4] == from), "{pause:?} {entries:?}");
    }
}

#[test]
fn a_pause_in_a_file_ends_the_packets_of_its_export() {
    let dir = tempfile::tempdir().unwrap();
    let mut caller = Caller::start();
    let mut session = start(&spec(&dir.path().join("t.dat"), &caller, vec![calls()], 0));
    caller.call(1000);
    session.pause().unwrap();
    caller.call(2000);
    session.resume().unwrap();
    caller.call(4000);
    let stats =
        session.stop().into_iter().map(|recorded| finish(recorded).unwrap().stats).next_back().unwrap();
    run(&mut agent(dir.path(), ["export", "--format", "lttng", "t.dat", "out"])).expect(0);
    let out = dir.path().join("out");
    let (lines, lost) = babeltrace(&out);
    assert_eq!((count(&lines, CALL), lost), (5000, 0));
    let [pause] = stats.pauses[..] else { panic!("{stats:?}") };
    let entries = all_entries(&out.join("kernel"));
    assert!(entries.iter().any(|entry| entry[4] == pause.from_ns), "{pause:?} {entries:?}");
    assert!(!entries.iter().any(|entry| entry[3] < pause.from_ns && entry[4] > pause.to_ns.unwrap()));
}

#[test]
fn a_program_that_rotates_gets_chunks() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let mut caller = Caller::start();
    let mut spec = trace_spec(&out, &caller);
    spec.rotation = Some(RotationSpec { period_ns: Some(u64::MAX), ..RotationSpec::default() });
    // Times of the file are wall time; those of the trace have a clock.
    spec.file.date = true;
    let finisher = Finisher::start(None).unwrap();
    let mut session = start(&spec);
    finisher.follow(&session).unwrap();
    caller.call(1000);
    finisher.add(session.rotate().unwrap());
    caller.call(2000);
    session.pause().unwrap();
    finisher.flush();
    let (lines, _) = babeltrace(&out);
    assert_eq!(count(&lines, CALL), 3000, "the closed chunk and the open one");
    finisher.add(session.rotate().unwrap());
    session.resume().unwrap();
    caller.call(4000);
    session.stop().into_iter().for_each(|recorded| finisher.add(recorded));
    last_of(finisher);
    let chunks = chunks(&out);
    let calls: Vec<u64> = chunks.iter().map(|chunk| count(&babeltrace(chunk).0, CALL)).collect();
    assert_eq!(calls, [1000, 2000, 4000]);
    for chunk in &chunks {
        let (lines, _) = babeltrace(chunk);
        assert_eq!(count(&lines, "lttng_statedump_end"), 1);
        // The clock counts from when the machine was started.
        let entries = all_entries(&chunk.join("kernel"));
        assert!(entries.iter().all(|entry| entry[4] - entry[3] < 3_600_000_000_000), "{entries:?}");
    }
    assert_eq!(files(&out), ["archives"]);
}

#[test]
fn the_state_of_the_machine_is_there_however_late_it_comes() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let mut caller = Caller::start();
    let finisher = Finisher::start(None).unwrap();
    let session = start(&trace_spec(&out, &caller));
    finisher.follow(&session).unwrap();
    // It does not wait for the state.
    finisher.flush();
    assert!(out.join("kernel/metadata").exists());
    caller.call(10);
    session.stop().into_iter().for_each(|recorded| finisher.add(recorded));
    last_of(finisher);
    let (lines, lost) = babeltrace(&out);
    assert_eq!((count(&lines, "lttng_statedump_end"), count(&lines, CALL), lost), (1, 10, 0));
}

#[test]
fn snapshots_of_a_program_are_traces() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let mut caller = Caller::start();
    let mut spec = trace_spec(&out, &caller);
    spec.channels[0].overwrite = true;
    for round in 0..2 {
        // Those of an earlier session stay.
        let mut session = start(&spec);
        caller.call(1000);
        let snapshot = finish(session.snapshot().unwrap()).unwrap();
        caller.call(2000);
        let finisher = Finisher::start(None).unwrap();
        finisher.add(session.snapshot().unwrap());
        let second = last_of(finisher);
        for (at, calls) in [(&snapshot.path, 1000), (&second.path, 3000)] {
            let (lines, lost) = babeltrace(at);
            assert_eq!((count(&lines, CALL), lost), (calls, 0), "{}", at.display());
        }
        for recorded in session.stop() {
            recorded.spool.remove().unwrap();
        }
        let names = files(&out);
        assert_eq!(names.len(), 2 * (round + 1), "{names:?}");
        assert!(names.iter().all(|name| shape(name) == "snapshot-0-00000000-000000-0"), "{names:?}");
    }
}

/// Bytes of the sizes before the pages of a chunk.
const SIZES: usize = 8;

/// Where the compressed pages of the chunk in the middle of a spool's data begin: behind its two sizes, of
/// which the first one is theirs.
fn middle_chunk(data: &[u8]) -> usize {
    let mut pages = SIZES;
    loop {
        let size = u32::from_le_bytes(data[pages - SIZES..][..4].try_into().unwrap()) as usize;
        if pages + size >= data.len() / 2 {
            return pages;
        }
        pages += size + SIZES;
    }
}

#[test]
fn what_is_not_in_the_trace_stays_in_the_spool() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let mut caller = Caller::start();
    let mut spec = trace_spec(&out, &caller);
    // In many chunks.
    spec.channels[0].switch_ns = 10_000_000;
    let session = start(&spec);
    for _ in 0..10 {
        caller.call(2000);
        std::thread::sleep(std::time::Duration::from_millis(30));
    }
    let recorded = session.stop().pop().unwrap();
    let spool = recorded.spool.dir().to_owned();
    // A block that goes bad, of the CPU where most calls were.
    let of_cpus = (0..).map(|cpu| spool.join(format!("cpu{cpu}.0"))).take_while(|data| data.exists());
    let data = of_cpus.max_by_key(|data| fs::metadata(data).unwrap().len()).unwrap();
    let mut bytes = fs::read(&data).unwrap();
    let chunk = middle_chunk(&bytes);
    // With its sizes: where the next chunk begins has to be found.
    bytes[chunk - SIZES..chunk + 16].fill(0xa5);
    fs::write(&data, &bytes).unwrap();
    let finished = finish(recorded).unwrap();
    let notes = finished.notes.join("\n");
    assert!(
        notes.contains("stored events are not in the trace") && notes.contains("tracer-agent recover -o"),
        "{notes}"
    );
    assert!(notes.contains("damaged places"), "{notes}");
    assert!(spool.join("manifest").exists(), "{notes}");
    let (lines, _) = babeltrace(&out);
    let calls = count(&lines, CALL);
    assert!(calls > 0 && calls < 20_000, "{calls}");
    // What the trace has is not recovered again.
    run(&mut agent(dir.path(), ["recover", "out/trace.dat.spool"])).expect(0);
    assert_eq!(files(&out), ["kernel", "trace.dat.spool"]);
    assert_eq!(count(&babeltrace(&out).0, CALL), calls);
    run(&mut agent(dir.path(), ["recover", "-o", "all.dat", "out/trace.dat.spool"])).expect(0);
    assert_eq!(Report::of(&dir.path().join("all.dat")).count(is_getppid), calls);
}

#[test]
fn a_full_disk_leaves_a_trace_that_can_be_read_and_the_spool() {
    let (disk, elsewhere) = (Tmpfs::mount("size=24m"), tempfile::tempdir().unwrap());
    let out = disk.path().join("out");
    let mut command = agent(
        elsewhere.path(),
        ["record", "--format", "lttng", "-e", "raw_syscalls:sys_enter", "-f", "id == 110"],
    );
    // The trace is the larger part.
    command.args(["--kallsyms", "none", "-o"]).arg(&out);
    let mut recording = Running::start(command.args(workload::command("numbered", elsewhere.path())));
    recording.wait_until_said("No space left", 1);
    workload::end_numbered(elsewhere.path());
    let ended = recording.wait();
    assert!(!ended.status.success(), "{ended:?}");
    ended.says(&["No space left", "recover"]);
    // What was written by then is whole.
    let (lines, _) = babeltrace(&out);
    assert!(count(&lines, CALL) > 0);
    let spool = out.join("trace.dat.spool");
    assert!(spool.join("manifest").exists());
    run(agent(elsewhere.path(), ["recover", "-o", "all.dat"]).arg(&spool)).expect(0);
    let recovered = Report::of(&elsewhere.path().join("all.dat")).count(is_getppid);
    assert!(recovered as u64 >= count(&lines, CALL), "{recovered}");
}

#[test]
fn a_specification_says_that_a_trace_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let options = ["--format", "ctf", "--packet-size", "8K", "-e", "sched:sched_process_exec", "-F"];
    let printed = run(agent(dir.path(), ["record", "--print-spec"]).args(options).arg("/bin/true")).expect(0);
    fs::write(dir.path().join("spec.json"), &printed.out).unwrap();
    run(&mut agent(dir.path(), ["record", "--spec", "spec.json", "/bin/true"])).expect(0);
    assert_eq!(count(&babeltrace(&dir.path().join("trace")).0, "sched:sched_process_exec"), 1);
}
