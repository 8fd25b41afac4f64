//! Maps that events are counted in, compared with a recording of the same events that is made beside them.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    process::{Command, Stdio},
};

use integration_tests::harness::{Caller, Ended, Ledger, Marked, agent, files, run, wait_for};
use serde_json::Value;

/// What is done while it is counted: processes, files, memory, sleeps.
const WORK: &str = "for i in 1 2 3 4 5 6; do ls / /usr >/dev/null; cat /etc/passwd /etc/group >/dev/null; done; \
                    for i in 1 2 3; do sleep 0.01 & sleep 0.02; wait; done";

/// Runs `record ARGS` around [`WORK`], of which everything is counted and nothing else. Gives the maps.
#[track_caller]
fn count(dir: &Path, args: &[&str]) -> Vec<Value> {
    let mut command = agent(dir, ["record", "--json", "-F", "-c"]);
    let ended = run(command.args(args).args(["sh", "-c", WORK])).expect(0);
    maps(&ended)
}

#[track_caller]
fn maps(ended: &Ended) -> Vec<Value> {
    let lines = ended.out.lines().filter(|line| line.starts_with('{'));
    lines.map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}"))).collect()
}

/// The records of a file.
#[track_caller]
fn records(dir: &Path) -> Vec<Value> {
    let file = dir.join("trace.dat");
    assert_eq!(Ledger::of(&file).lost(), 0, "these recordings are small");
    let ended = run(agent(dir, ["report", "--json"]).arg(&file)).expect(0);
    ended.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn of_event<'r>(records: &'r [Value], event: &'r str) -> impl Iterator<Item = &'r Value> {
    records.iter().filter(move |record| record["event"] == event)
}

/// The entries of a map by their keys, each with one of its values.
fn entries(map: &Value, value: &str) -> BTreeMap<String, i64> {
    let entries = map["entries"].as_array().unwrap().iter();
    entries.map(|entry| (entry["key"].to_string(), entry[value].as_i64().unwrap())).collect()
}

/// How many records there are for each value of these fields.
fn counted<'r>(records: impl Iterator<Item = &'r Value>, fields: &[&str]) -> BTreeMap<String, i64> {
    let mut counts = BTreeMap::new();
    for record in records {
        let key: Vec<&Value> = fields.iter().map(|field| value(record, field)).collect();
        *counts.entry(serde_json::to_string(&key).unwrap()).or_default() += 1;
    }
    counts
}

/// A field of a record, or `$comm` and the like.
fn value<'r>(record: &'r Value, field: &str) -> &'r Value {
    match field.strip_prefix('$') {
        Some(context) => &record[context],
        None => &record["fields"][field],
    }
}

#[test]
fn addresses_that_events_print_as_functions_are_functions() {
    let dir = tempfile::tempdir().unwrap();
    let map = &count(dir.path(), &["--count", "timer:hrtimer_start by function,softexpires"])[0];
    let symbols = fs::read_to_string("/proc/kallsyms").unwrap();
    let known: BTreeSet<&str> = symbols.lines().filter_map(|line| line.split_whitespace().nth(2)).collect();
    let entries = map["entries"].as_array().unwrap();
    assert!(!entries.is_empty(), "sleeps start timers");
    for entry in entries {
        assert!(known.contains(entry["key"][0].as_str().unwrap()), "{entry}");
        assert!(entry["key"][1].is_number(), "{entry}");
    }
}

#[test]
fn counts_are_those_of_a_recording() {
    let dir = tempfile::tempdir().unwrap();
    let maps = count(
        dir.path(),
        &[
            "-e",
            "sched_switch",
            "-e",
            "raw_syscalls:sys_exit",
            "-e",
            "sched_process_exit",
            "--count",
            "sched_switch by next_comm,next_pid,prev_state",
            "--count",
            "raw_syscalls:sys_exit: ret < 0 by id,ret",
            "--count",
            "sched_process_exit by comm",
            "--count",
            "sched_switch",
        ],
    );
    let records = records(dir.path());
    let switches = || of_event(&records, "sched_switch");
    assert!(switches().count() > 30);
    assert_eq!(entries(&maps[0], "count"), counted(switches(), &["next_comm", "next_pid", "prev_state"]));
    let failed =
        of_event(&records, "sys_exit").filter(|record| record["fields"]["ret"].as_i64().unwrap() < 0);
    let failed = counted(failed, &["id", "ret"]);
    assert!(failed.values().sum::<i64>() > 20);
    assert_eq!(entries(&maps[1], "count"), failed);
    let others = of_event(&records, "sys_exit").count() as i64 - failed.values().sum::<i64>();
    assert_eq!(maps[1]["filtered"].as_i64().unwrap().min(others), others, "{}", maps[1]["filtered"]);
    assert_eq!(entries(&maps[2], "count"), counted(of_event(&records, "sched_process_exit"), &["comm"]));
    assert_eq!(entries(&maps[3], "count"), BTreeMap::from([("[]".to_owned(), switches().count() as i64)]));
    for map in &maps {
        for cause in ["overflow", "unreadable", "unmatched", "restarted", "open", "rate_limited"] {
            assert_eq!(map[cause], 0, "{cause} of {}", map["map"]);
        }
        assert_eq!((map["last"].as_bool(), map["skipped"].as_u64()), (Some(true), Some(0)));
    }
}

#[test]
fn the_generic_lane_counts_the_same() {
    let dir = tempfile::tempdir().unwrap();
    // Records of any length, and those with the numbers of pages.
    let maps = count(
        dir.path(),
        &[
            "-e",
            "sched_process_exec",
            "-e",
            "kmem:mm_page_alloc",
            "--count",
            "sched_process_exec by filename",
            "--count",
            "hist(order) of kmem:mm_page_alloc: order < 3 by migratetype",
        ],
    );
    let records = records(dir.path());
    let executed = counted(of_event(&records, "sched_process_exec"), &["filename"]);
    assert!(executed.values().sum::<i64>() >= 12, "{executed:?}");
    assert_eq!(entries(&maps[0], "count"), executed);
    let small =
        of_event(&records, "mm_page_alloc").filter(|record| record["fields"]["order"].as_u64() < Some(3));
    assert_eq!(entries(&maps[1], "count"), counted(small, &["migratetype"]));
}

#[test]
fn single_system_calls_are_counted() {
    let dir = tempfile::tempdir().unwrap();
    let maps = count(
        dir.path(),
        &[
            "-e",
            "syscalls:sys_exit_close",
            "-e",
            "syscalls:sys_enter_read",
            "--count",
            "stats(ret) of syscalls:sys_exit_close by $comm,$pid",
            "--count",
            "max(count) of syscalls:sys_enter_read: count > 0 by fd & 0xff",
        ],
    );
    let records = records(dir.path());
    let closed = counted(of_event(&records, "sys_exit_close"), &["$comm", "$pid"]);
    assert_eq!(entries(&maps[0], "count").values().sum::<i64>(), closed.values().sum::<i64>());
    let reads = of_event(&records, "sys_enter_read");
    let mut most: BTreeMap<String, i64> = BTreeMap::new();
    for read in reads {
        let field = |name: &str| match &read["fields"][name] {
            Value::String(text) => i64::from_str_radix(text.trim_start_matches("0x"), 16).unwrap(),
            number => number.as_i64().unwrap(),
        };
        let entry = most.entry(format!("[{}]", field("fd") & 0xff)).or_default();
        *entry = field("count").max(*entry);
    }
    assert!(!most.is_empty());
    assert_eq!(entries(&maps[1], "max"), most);
}

#[test]
fn numbers_and_histograms_are_those_of_a_recording() {
    let dir = tempfile::tempdir().unwrap();
    let maps = count(
        dir.path(),
        &[
            "-e",
            "raw_syscalls:sys_exit",
            "--count",
            "stats(ret) of raw_syscalls:sys_exit by id",
            "--count",
            "hist(ret) of raw_syscalls:sys_exit by $comm",
            "--count",
            "lhist(ret,-10,100,25) of raw_syscalls:sys_exit",
            "--count",
            "min(ret) of raw_syscalls:sys_exit",
            "--count",
            "avg(ret) of raw_syscalls:sys_exit: ret < 4096 && ret >= 0 by id",
        ],
    );
    let records = records(dir.path());
    let calls: Vec<(i64, i64, String)> = of_event(&records, "sys_exit")
        .map(|record| {
            let number = |name: &str| record["fields"][name].as_i64().unwrap();
            (number("id"), number("ret"), record["comm"].as_str().unwrap().to_owned())
        })
        .collect();
    let mut stats: BTreeMap<String, [i128; 4]> = BTreeMap::new();
    for (id, ret, _) in &calls {
        let ret = i128::from(*ret);
        let [count, sum, least, most] = stats.entry(format!("[{id}]")).or_insert([0, 0, ret, ret]);
        (*count, *sum, *least, *most) = (*count + 1, *sum + ret, ret.min(*least), ret.max(*most));
    }
    let of = |entry: &Value, name: &str| match &entry[name] {
        Value::String(text) => text.parse().unwrap(),
        number => number.as_i64().map_or_else(|| number.as_u64().unwrap().into(), i128::from),
    };
    let found: BTreeMap<String, [i128; 4]> = (maps[0]["entries"].as_array().unwrap().iter())
        .map(|entry| (entry["key"].to_string(), ["count", "sum", "min", "max"].map(|name| of(entry, name))))
        .collect();
    // Sums of addresses do not fit 64 bits; those of other calls do.
    let fits = |(_, [.., most]): &(&String, &[i128; 4])| *most < 1 << 32;
    assert!(stats.len() > 10);
    assert_eq!(found.keys().collect::<Vec<_>>(), stats.keys().collect::<Vec<_>>());
    assert_eq!(found.iter().filter(fits).collect::<Vec<_>>(), stats.iter().filter(fits).collect::<Vec<_>>());

    let power = |ret: i64| match ret {
        ..0 => "null".to_owned(),
        0 => "0".to_owned(),
        _ => (1_i64 << ret.ilog2()).to_string(),
    };
    let total: u64 =
        maps[1]["entries"].as_array().unwrap().iter().flat_map(buckets).map(|(_, count)| count).sum();
    assert_eq!(total, calls.len() as u64);
    let mut powers: BTreeMap<String, u64> = BTreeMap::new();
    for entry in maps[1]["entries"].as_array().unwrap() {
        for (from, count) in buckets(entry) {
            *powers.entry(from).or_default() += count;
        }
    }
    let mut expected: BTreeMap<String, u64> = BTreeMap::new();
    for (_, ret, _) in &calls {
        *expected.entry(power(*ret)).or_default() += 1;
    }
    assert_eq!(powers, expected);

    let step = |ret: i64| match ret {
        ..-10 => "null".to_owned(),
        100.. => "115".to_owned(),
        _ => ((ret + 10) / 25 * 25 - 10).to_string(),
    };
    let mut expected: BTreeMap<String, u64> = BTreeMap::new();
    // The last range goes beyond 100, as the width is not a multiple of the step.
    for (_, ret, _) in &calls {
        let from = if (100..115).contains(ret) { "90".to_owned() } else { step(*ret) };
        *expected.entry(from).or_default() += 1;
    }
    assert_eq!(buckets(&maps[2]["entries"][0]).into_iter().collect::<BTreeMap<_, _>>(), expected);
    assert_eq!(maps[3]["entries"][0]["min"].as_i64(), calls.iter().map(|(_, ret, _)| *ret).min());
    let small = |id: i64| calls.iter().filter(move |(of, ret, _)| *of == id && (0..4096).contains(ret));
    for entry in maps[4]["entries"].as_array().unwrap() {
        let id = entry["key"][0].as_i64().unwrap();
        let (count, sum) = (small(id).count() as i64, small(id).map(|(_, ret, _)| *ret).sum::<i64>());
        assert_eq!(
            (entry["count"].as_i64(), entry["avg"].as_i64()),
            (Some(count), Some(sum / count)),
            "{id}"
        );
    }
}

/// The buckets of an entry that are not empty, by their first numbers. Those at both ends are not.
fn buckets(entry: &Value) -> Vec<(String, u64)> {
    let buckets = entry["buckets"].as_array().unwrap();
    assert!(buckets.first().is_none_or(|first| first["count"] != 0));
    assert!(buckets.last().is_none_or(|last| last["count"] != 0));
    let buckets = buckets.iter().filter(|bucket| bucket["count"] != 0);
    buckets.map(|bucket| (bucket["from"].to_string(), bucket["count"].as_u64().unwrap())).collect()
}

#[test]
fn probes_of_programs_are_counted() {
    let dir = tempfile::tempdir().unwrap();
    let maps = count(
        dir.path(),
        &[
            "--uprobe",
            "m=libc.so.6:malloc size=$arg1:u64",
            "--uprobe",
            "g=libc.so.6:getenv name=+0($arg1):string",
            "--count",
            "stats(size) of uprobe libc.so.6:malloc size=$arg1:u64: size > 100 by $comm",
            "--count",
            "uprobe libc.so.6:getenv name=+0($arg1):string by name",
            "--time",
            "uprobe libc.so.6:malloc -> uretprobe libc.so.6:malloc key $tid",
        ],
    );
    let records = records(dir.path());
    let large = || of_event(&records, "m").filter(|record| record["fields"]["size"].as_u64().unwrap() > 100);
    assert!(large().count() > 20);
    let large_by = counted(large(), &["$comm"]).values().sum::<i64>();
    assert_eq!(entries(&maps[0], "count").values().sum::<i64>(), large_by);
    let sum: i64 = large().map(|record| record["fields"]["size"].as_i64().unwrap()).sum();
    assert_eq!(entries(&maps[0], "sum").values().sum::<i64>(), sum);
    let names = counted(of_event(&records, "g"), &["name"]);
    assert!(names.len() > 3);
    assert_eq!(entries(&maps[1], "count"), names);
    let calls = of_event(&records, "m").count() as i64;
    let returned = maps[2]["entries"][0]["count"].as_i64().unwrap();
    // A call may allocate in a call.
    assert!(returned <= calls && returned > calls / 2, "{returned} of {calls}: {}", maps[2]);
}

#[test]
fn texts_are_keys() {
    let dir = tempfile::tempdir().unwrap();
    let work = dir.path().join("a-file");
    fs::write(&work, "x").unwrap();
    let long = dir.path().join("l".repeat(100));
    let script = r#"for i in 1 2 3 4 5; do cat "$1"; done >/dev/null; cat "$2" 2>/dev/null; true"#;
    let mut command = agent(dir.path(), ["record", "-q", "--json", "-F", "-c"]);
    command.args(["--count", "syscalls:sys_enter_openat by $comm,filename", "sh", "-c", script, "sh"]);
    let ended = run(command.arg(&work).arg(&long)).expect(0);
    let counts = entries(&maps(&ended)[0], "count");
    let key = |path: &str| serde_json::to_string(&["cat", path]).unwrap();
    let cut = |path: &Path| path.to_str().unwrap().chars().take(63).collect::<String>();
    assert_eq!(counts.get(&key(&cut(&work))), Some(&5), "{counts:?}");
    assert_eq!(counts.get(&key(&cut(&long))), Some(&1), "{counts:?}");
    assert_eq!(files(dir.path()), ["a-file"], "a recording of maps makes no file");
}

#[test]
fn keys_beyond_the_limit_are_counted() {
    let dir = tempfile::tempdir().unwrap();
    let limited =
        ["--count", "raw_syscalls:sys_enter by id", "--max-keys", "3", "-e", "raw_syscalls:sys_enter"];
    let maps = count(dir.path(), &limited);
    let records = records(dir.path());
    let all = counted(of_event(&records, "sys_enter"), &["id"]);
    let counts = entries(&maps[0], "count");
    assert_eq!(counts.len(), 3);
    for (key, count) in &counts {
        assert_eq!(all.get(key), Some(count));
    }
    let overflow = maps[0]["overflow"].as_i64().unwrap();
    assert!(overflow > 0);
    assert_eq!(counts.values().sum::<i64>() + overflow, all.values().sum::<i64>());
}

#[test]
fn many_keys_all_find_a_place() {
    let dir = tempfile::tempdir().unwrap();
    let mut caller = Caller::start();
    let mut command = agent(dir.path(), ["record", "-q", "--json", "-P", &caller.pid().to_string()]);
    // The number of the call's key is the microsecond in which it was made: about as many as there are calls.
    command.args(["--count", "raw_syscalls:sys_enter by $timestamp >> 10", "--max-keys", "4096"]);
    let recording = Marked::start_as(&mut command, dir.path().join("mark"));
    caller.call(20_000);
    let map = maps(&recording.finish().expect(0)).remove(0);
    let counts = entries(&map, "count");
    assert_eq!(counts.len(), 4096, "the calls take longer than 4096 microseconds");
    // Its answers and orders are calls, too.
    let counted = counts.values().sum::<i64>() + map["overflow"].as_i64().unwrap();
    assert!((20_000..20_100).contains(&counted), "{counted}");
}

#[test]
fn times_are_those_of_a_recording() {
    let dir = tempfile::tempdir().unwrap();
    let maps = count(
        dir.path(),
        &[
            "-e",
            "sched_waking",
            "-e",
            "sched_switch",
            "-e",
            "raw_syscalls",
            "--time",
            "sched_waking -> sched_switch key pid=next_pid",
            "--time",
            "stats of raw_syscalls:sys_enter -> raw_syscalls:sys_exit key $tid,id by id",
            "--time",
            "sched_switch -> sched_switch key prev_pid=next_pid",
        ],
    );
    let records = records(dir.path());
    let pairs =
        |from: &str, from_key: &dyn Fn(&Value) -> String, to: &str, to_key: &dyn Fn(&Value) -> String| {
            let (mut open, mut times, mut unmatched, mut restarted) = (BTreeMap::new(), Vec::new(), 0, 0);
            for record in &records {
                let time = record["timestamp"].as_i64().unwrap();
                if record["event"] == *to {
                    match open.remove(&to_key(record)) {
                        Some(begun) => times.push((record, time - begun)),
                        None => unmatched += 1,
                    }
                }
                if record["event"] == *from && open.insert(from_key(record), time).is_some() {
                    restarted += 1;
                }
            }
            (times, unmatched, restarted, open.len())
        };
    let field = |name: &'static str| move |record: &Value| record["fields"][name].to_string();
    let check = |map: &Value, (times, unmatched, restarted, open): &(Vec<(&Value, i64)>, i32, i32, usize)| {
        let counts: i64 = entries(map, "count").values().sum();
        assert_eq!(counts, times.len() as i64, "{map}");
        assert_eq!(map["unmatched"].as_i64(), Some(i64::from(*unmatched)), "{map}");
        assert_eq!(map["restarted"].as_i64(), Some(i64::from(*restarted)), "{map}");
        assert_eq!(map["open"].as_u64(), Some(*open as u64), "{map}");
        // The map's clock is read by another program at the same event.
        let sum: i64 = times.iter().map(|(_, time)| time).sum();
        let counted: i64 = entries(map, "sum").values().sum();
        let slack = times.len() as i64 * 50_000 + 5_000_000;
        assert!((sum - counted).abs() <= slack, "{counted} instead of {sum} ns");
    };
    let wakeups = pairs("sched_waking", &field("pid"), "sched_switch", &field("next_pid"));
    assert!(wakeups.0.len() > 10);
    check(&maps[0], &wakeups);
    let call = |record: &Value| format!("{} {}", record["pid"], record["fields"]["id"]);
    let calls = pairs("sys_enter", &call, "sys_exit", &call);
    assert!(calls.0.len() > 100);
    check(&maps[1], &calls);
    let by_id = counted(calls.0.iter().map(|(record, _)| *record), &["id"]);
    assert_eq!(entries(&maps[1], "count"), by_id);
    for entry in maps[1]["entries"].as_array().unwrap() {
        let [least, average, most] = ["min", "avg", "max"].map(|name| entry[name].as_i64().unwrap());
        assert!(0 < least && least <= average && average <= most, "{entry}");
    }
    check(&maps[2], &pairs("sched_switch", &field("prev_pid"), "sched_switch", &field("next_pid")));
}

#[test]
fn maps_are_printed_as_tables_and_in_intervals() {
    let dir = tempfile::tempdir().unwrap();
    let mut command = agent(dir.path(), ["record", "-q", "--interval", "100ms", "--json"]);
    command.args(["--count", "sched_switch by next_comm", "--duration", "1s"]);
    let ended = run(&mut command).expect(0);
    let printed = maps(&ended);
    assert!((5..=11).contains(&printed.len()), "{}", printed.len());
    let total = |map: &Value| entries(map, "count").values().sum::<i64>();
    for pair in printed.windows(2) {
        assert!(total(&pair[0]) <= total(&pair[1]), "they are of all the time so far");
        assert!(pair[0]["elapsed_ns"].as_u64() < pair[1]["elapsed_ns"].as_u64());
        assert_eq!(pair[0]["last"], false);
    }
    assert_eq!(printed.last().unwrap()["last"], true);

    let mut command = agent(dir.path(), ["record", "-q", "-F"]);
    command.args([
        "--count",
        "hist(ret) of raw_syscalls:sys_exit: id == 1",
        "--count",
        "raw_syscalls:sys_exit by id",
    ]);
    let ended = run(command.args(["sh", "-c", "echo a text of twenty-five >&2"])).expect(0);
    assert!(ended.out.contains("\n  [16, 32)"), "{}", ended.out);
    assert!(ended.out.contains(&format!("|{}|\n", "@".repeat(52))), "{}", ended.out);
    assert!(ended.out.contains("\n  id   count\n"), "{}", ended.out);
    assert_eq!(files(dir.path()), Vec::<String>::new());
}

#[test]
fn samples_of_a_specification_are_counted_and_signals_end_it() {
    let dir = tempfile::tempdir().unwrap();
    let spec = r#"{"version": 1, "channels": [], "maps": [{
        "event": {"what": {"events": "raw_syscalls:sys_enter"}, "filter": "id == 110", "sample": 10},
        "by": ["$pid"], "name": "calls"}]}"#;
    fs::write(dir.path().join("spec.json"), spec).unwrap();
    let mut caller = Caller::start();
    let mut command = agent(dir.path(), ["record", "--spec", "spec.json"]);
    let mut recording = integration_tests::harness::Running::start(&mut command);
    recording.wait_until_said("counting", 1);
    caller.call(1000);
    recording.signal(libc::SIGUSR1);
    recording.wait_until_out("calls");
    recording.signal(libc::SIGINT);
    let ended = recording.wait().expect(0);
    let line = format!("  {}", caller.pid());
    let counted: Vec<&str> = ended.out.lines().filter(|found| found.starts_with(&line)).collect();
    assert!(counted.len() >= 2 && counted.iter().all(|line| line.ends_with("100")), "{}", ended.out);
}

#[test]
fn what_cannot_be_counted_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    for (map, says) in [
        ("sched:* by x", "means several events"),
        ("sched_switch by nxt_pid", "did you mean `next_pid`"),
        ("sched_switch by next_pid,prev_pid,next_prio,prev_prio", "more than three keys"),
        ("hist(next_comm) of sched_switch", "is no number"),
        ("sched_switch: next_pid", "EVENT"),
        ("frob(x) of sched_switch", "is no function"),
        ("sched_switch by $hostname", "cannot be a key"),
        ("no_such_event", "no_such_event"),
    ] {
        let ended = run(agent(dir.path(), ["record"]).args(["--count", map, "true"]));
        if says == "EVENT" {
            // A number alone is a condition: it is not 0.
            ended.expect(0);
            continue;
        }
        assert_ne!(ended.code(), 0, "{map}");
        assert!(ended.err.contains(says), "{map}: {}", ended.err);
    }
    let refused = |args: &[&str], says: &str| {
        let ended = run(agent(dir.path(), ["record"]).args(args).arg("true"));
        assert!(ended.code() != 0 && ended.err.contains(says), "{args:?}: {}", ended.err);
    };
    refused(&["--time", "sched_waking -> sched_switch"], "no key");
    refused(&["--time", "sched_waking -> sched_switch key comm=next_pid"], "cannot be paired");
    refused(&["-e", "sched_switch", "--interval", "1s"], "--interval is for maps");
    refused(&["--count", "sched_switch by next_pid", "--max-keys", "9999999"], "1048576");
}

#[test]
fn bpftrace_counts_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let mut caller = Caller::named("mapscompared");
    let script = "tracepoint:raw_syscalls:sys_enter /pid == $1/ { @calls[comm, args->id] = count(); @ids = hist(args->id); }\n\
                  END { printf(\"\"); }";
    let output = dir.path().join("bpftrace.json");
    let mut bpftrace = Command::new("bpftrace")
        .args(["-f", "json", "-o"])
        .arg(&output)
        .args(["-e", script, &caller.pid().to_string()])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("bpftrace, which `cargo xtask setup --for test` installs");
    wait_for("bpftrace", || {
        fs::read_to_string(&output).is_ok_and(|text| text.contains("attached_probes")).then_some(())
    });
    let pid = caller.pid().to_string();
    let mut command = agent(dir.path(), ["record", "-q", "--json", "-P", &pid]);
    command.args(["--count", "raw_syscalls:sys_enter: id == 110 by $comm,id"]);
    command.args(["--count", "hist(id) of raw_syscalls:sys_enter: id == 110"]);
    let recording = Marked::start_as(&mut command, dir.path().join("mark"));
    caller.call(5000);
    let maps = maps(&recording.finish().expect(0));
    // SAFETY: it is our own child, which has not been waited for.
    unsafe { libc::kill(bpftrace.id().cast_signed(), libc::SIGINT) };
    bpftrace.wait().unwrap();
    let text = fs::read_to_string(&output).unwrap();
    let lines: Vec<Value> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let data = |kind: &str, name: &str| {
        let line = lines.iter().find(|line| line["type"] == kind && !line["data"][name].is_null());
        line.unwrap_or_else(|| panic!("{text}"))["data"][name].clone()
    };
    let theirs = data("map", "@calls")["mapscompared,110"].as_i64().unwrap();
    let ours = entries(&maps[0], "count")[r#"["mapscompared",110]"#];
    assert_eq!((theirs, ours), (5000, 5000));
    let theirs = data("hist", "@ids");
    let of_110 = theirs.as_array().unwrap().iter().find(|bucket| bucket["min"] == 64).unwrap();
    assert_eq!(of_110["count"], 5000);
    assert_eq!(buckets(&maps[1]["entries"][0]), [("64".to_owned(), 5000)]);
}
