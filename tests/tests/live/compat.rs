//! System calls of 32-bit programs, which have numbers of their own, against what a program is known to make.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use ftrace_event::syscalls::ia32_functions;
use integration_tests::{
    answers, babeltrace, ctf,
    harness::{agent, ledger_in_info, run},
    perfetto,
    session::{add, events, start, stop},
    trace_cmd,
    workload::{self, COMPAT},
};
use serde_json::{Value, json};
use spec::{ChannelSpec, RecordingSpec};

/// The bit of a number of the other table.
const MARK: u64 = 1 << 32;

/// Runs `record ARGS` around the program, of which everything is recorded and nothing else.
#[track_caller]
fn record(dir: &Path, args: &[&str]) -> (String, String) {
    let command = workload::command("compat", dir);
    let args = ["record", "-F", "-o", "out.dat"].iter().chain(args).copied();
    let ended = run(&mut agent(dir, args.chain(command.iter().map(String::as_str)))).expect(0);
    (ended.out, ended.err)
}

/// How often each call was made, by its number in records.
fn made() -> BTreeMap<u64, u64> {
    COMPAT.into_iter().map(|(number, _, times)| (MARK | u64::from(number), times as u64)).collect()
}

/// How often each number of the other table is in the records of an event, and the names that they have.
#[track_caller]
fn recorded(dir: &Path, event: &str) -> (BTreeMap<u64, u64>, BTreeMap<u64, Option<String>>) {
    let json = run(&mut agent(dir, ["report", "--json", "out.dat"])).expect(0).out;
    let (mut counts, mut names) = (BTreeMap::new(), BTreeMap::new());
    for line in json.lines() {
        let record: Value = serde_json::from_str(line).unwrap();
        let number = record["fields"]["id"].as_u64().filter(|number| *number >= MARK);
        if let Some(number) = number.filter(|_| record["event"] == event) {
            *counts.entry(number).or_default() += 1;
            names.insert(number, record["names"]["id"].as_str().map(str::to_owned));
        }
    }
    (counts, names)
}

#[test]
fn records_and_answers_have_them_by_their_own_names() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path();
    let file = dir.join("out.dat");
    for lane in ["fast", "generic"] {
        record(dir, &["--lane", lane, "-e", "raw_syscalls"]);
        for event in ["sys_enter", "sys_exit"] {
            let (counts, names) = recorded(dir, event);
            assert_eq!(counts, made(), "{lane} {event}");
            for (number, name, _) in COMPAT {
                let name = name.map(|name| format!("compat_{name}"));
                assert_eq!(names[&(MARK | u64::from(number))], name, "{lane} {event}");
            }
        }
        assert_eq!(ledger_in_info(&file)["marks_compat"], true, "{lane}");
        let answer = answers::answer("syscalls", &file, &[]);
        let covered = &answer["covered"];
        assert_eq!((&covered["compat_calls"], &covered["compat_unmarked"]), (&json!(0), &json!(false)));
        let calls = answers::list(&answer, "calls");
        for (number, name, times) in COMPAT {
            let number = MARK | u64::from(number);
            let call = calls.iter().find(|call| call["number"] == number).unwrap();
            assert_eq!(call["name"].as_str(), name.map(|name| format!("compat_{name}")).as_deref());
            assert_eq!(answers::number(&call["times"], "count"), times as u64, "{call}");
            let succeeds = ["open", "write", "getpid", "getuid", "getuid32", "futex"];
            let failed = if name.is_some_and(|name| succeeds.contains(&name)) { 0 } else { times };
            assert_eq!(answers::number(call, "failed"), failed as u64, "{call}");
        }
        // `getpid` and `getuid` have the numbers 39 and 102.
        assert!(calls.iter().all(|call| call["name"] != "getuid"), "{lane}");
        let stock = trace_cmd::report(&file, &[]);
        assert_eq!(stock.matches(&format!(" NR {} (", MARK + 39)).count(), 3, "{lane}");
    }
}

#[test]
fn filters_and_maps_take_them_for_others() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path();
    record(dir, &["-e", "raw_syscalls:sys_enter", "-f", "id == 0x100000027"]);
    assert_eq!(recorded(dir, "sys_enter").0, BTreeMap::from([(MARK + 39, 3)]));
    record(dir, &["-e", "raw_syscalls:sys_enter", "-f", "id == 102"]);
    assert_eq!(recorded(dir, "sys_enter").0, BTreeMap::new());
    record(dir, &["-e", "raw_syscalls:sys_exit", "--context", "uid", "-f", "id > 0xffffffff && ret == 7"]);
    assert_eq!(recorded(dir, "sys_exit").0, BTreeMap::from([(MARK + 4, 10)]));
    let maps = ["raw_syscalls:sys_enter by id", "raw_syscalls:sys_exit: id >= 0x100000000 by id"];
    let command = workload::command("compat", dir);
    let args = maps.iter().flat_map(|map| ["--count", map]).chain(command.iter().map(String::as_str));
    let out = run(&mut agent(dir, ["record", "--json", "-F"].into_iter().chain(args))).expect(0).out;
    let mut seen = 0;
    for line in out.lines().filter(|line| line.starts_with('{')) {
        let map: Value = serde_json::from_str(line).unwrap();
        let entries = map["entries"].as_array().unwrap().iter();
        let entry = |entry: &Value| (entry["key"][0].as_u64().unwrap(), entry["count"].as_u64().unwrap());
        let counts: BTreeMap<u64, u64> = entries.map(entry).filter(|(number, _)| *number >= MARK).collect();
        assert_eq!(counts, made(), "{line}");
        seen += 1;
    }
    assert_eq!(seen, maps.len());
}

/// The kernel has no events of them, and so the recorder has none, nor their strings.
#[test]
fn events_of_single_calls_leave_them_out_and_count_them() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path();
    let all: u64 = made().values().sum();
    let file = dir.join("out.dat");
    let counted = |args: &[&str]| {
        let (_, said) = record(dir, args);
        let calls = ledger_in_info(&file)["compat_calls"].as_u64();
        assert_eq!(said.contains("of 32-bit programs"), calls.is_some(), "{said}");
        calls
    };
    let missing = |args: &[&str]| answers::answer("syscalls", &file, args)["covered"]["compat_calls"].clone();
    for events in ["syscalls:*", "syscalls:sys_enter_mkdir", "syscalls:sys_exit_*"] {
        assert_eq!(counted(&["-e", events]), Some(all), "{events}");
        // There is no answer without entries and exits.
        if events == "syscalls:*" {
            assert_eq!(missing(&[]), all, "{events}");
        }
        let report = trace_cmd::report(&file, &[]);
        assert!(!report.contains("/absent/compat") && !report.contains("sys_exit_mkdir"), "{report}");
    }
    assert_eq!(counted(&["-e", "syscalls:*", "-B", "other", "-e", "syscalls:*"]), Some(all));
    assert_eq!(missing(&[]), all);
    // They were counted for the whole recording.
    for part in [["--cpu", "0"], ["--comm", "*"], ["--from", "0"]] {
        assert_eq!(missing(&part), json!(null), "{part:?}");
    }
    // Nobody counts them there.
    assert_eq!(counted(&["-e", "syscalls:*_openat", "--lane", "generic"]), None);
    assert_eq!(missing(&[]), json!(null));
    assert_eq!(counted(&["-e", "sched"]), None);
    // All are recorded, in whichever buffer.
    for buffer in [&[][..], &["-B", "other"]] {
        let args = [&["-e", "syscalls:*"], buffer, &["-e", "raw_syscalls"]].concat();
        assert_eq!(counted(&args), Some(all), "{args:?}");
        assert_eq!((missing(&[]), missing(&["--cpu", "0"])), (json!(0), json!(0)), "{args:?}");
    }
    assert_eq!(recorded(dir, "sys_enter").0, made());
    // Some are.
    let filtered = ["-e", "syscalls:*", "-e", "raw_syscalls:sys_exit", "-f", "id >= 0x100000000"];
    assert_eq!(counted(&filtered), Some(all));
    assert_eq!(missing(&[]), all);
    assert_eq!(recorded(dir, "sys_exit").0, made());
    // Those that maps count are not in the file.
    assert_eq!(counted(&["-e", "syscalls:*", "--count", "raw_syscalls:sys_enter by id"]), Some(all));
}

/// Whichever of the programs counts that leave them out, each call is counted once, as long as there is one.
#[test]
fn calls_that_are_left_out_are_counted_while_events_come_and_go() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path();
    let file = dir.join("t.dat");
    let all: u64 = made().values().sum();
    let work = || {
        let command = workload::command("compat", dir);
        assert!(Command::new(&command[0]).args(&command[1..]).status().unwrap().success());
    };
    let channel = ChannelSpec {
        rules: vec![events("sched:sched_process_fork")],
        spare_events: 8,
        ..ChannelSpec::default()
    };
    let mut spec = RecordingSpec { channels: vec![channel], ..RecordingSpec::default() };
    spec.file.path = file.clone();
    (spec.scope.pids, spec.scope.children) = (vec![std::process::id()], true);
    let mut session = start(&spec);
    let (enter, exit) = ("syscalls:sys_enter_mkdir", "syscalls:sys_exit_mkdir");
    let mut counted = 0;
    let mut step = |times: u64| {
        work();
        counted += times * all;
    };
    step(0);
    add(&mut session, events(exit));
    step(1);
    add(&mut session, events(enter));
    step(1);
    add(&mut session, events("syscalls:sys_enter_openat"));
    step(1);
    session.remove("", enter).unwrap();
    step(1);
    session.remove("", "syscalls:sys_enter_openat").unwrap();
    step(1);
    session.remove("", exit).unwrap();
    step(0);
    assert_eq!(stop(session), file);
    assert_eq!(ledger_in_info(&file)["compat_calls"], counted);
}

#[test]
fn traces_of_ours_come_back_with_their_numbers() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path();
    record(dir, &["-e", "raw_syscalls"]);
    run(&mut agent(dir, ["export", "--format", "lttng", "out.dat", "traced"])).expect(0);
    run(&mut agent(dir, ["import", "-o", "back.dat", "traced"])).expect(0);
    let answer = answers::answer("syscalls", &dir.join("back.dat"), &[]);
    let calls = answers::list(&answer, "calls");
    for (number, name, times) in COMPAT.into_iter().filter(|(_, name, _)| name.is_some()) {
        let call = calls.iter().find(|call| call["number"] == (MARK | u64::from(number)));
        let call = call.unwrap_or_else(|| panic!("{number}: {calls:?}"));
        assert_eq!(call["name"].as_str(), name.map(|name| format!("compat_{name}")).as_deref());
        assert_eq!(answers::number(&call["times"], "count"), times as u64, "{call}");
    }
}

#[test]
fn exports_have_them_by_their_own_names() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path();
    record(dir, &["-e", "raw_syscalls"]);
    let export = |format: &str, to: &str| {
        run(&mut agent(dir, ["export", "--format", format, "out.dat", to])).expect(0)
    };
    export("lttng", "traced");
    let trace = ctf::read(&dir.join("traced"));
    let (text, _) = babeltrace::printed(&dir.join("traced"), &[]);
    let functions = ia32_functions();
    for (number, _, times) in COMPAT {
        for part in ["entry", "exit"] {
            let event = format!("compat_syscall_{part}_{}", functions[number as usize].unwrap_or("unknown"));
            let events = trace.events.iter().filter(|event_of| event_of.name == event);
            assert_eq!(events.count(), times, "{number} {event}");
            assert_eq!(text.matches(&format!(" {event}: ")).count(), times, "{number} {event}");
        }
    }
    export("perfetto", "out.pftrace");
    let trace = perfetto::read(&dir.join("out.pftrace"));
    let events = || trace.events.values().flatten();
    let drawn = |text: &str| events().filter(|event| event["fields"]["buf"] == text).count();
    for (number, name, times) in COMPAT {
        let name = name.map_or_else(|| number.to_string(), str::to_owned);
        assert_eq!(drawn(&format!("B|0|compat_{name}")), times, "{number}");
    }
    let all: u64 = made().values().sum();
    assert_eq!(drawn("E|0") as u64, all);
    let marked = |event: &&Value| event["fields"]["id"].as_u64().is_some_and(|number| number >= MARK);
    assert_eq!(events().filter(marked).count(), 0);
    // Slices would not end.
    record(dir, &["-e", "raw_syscalls:sys_enter"]);
    export("perfetto", "enters.pftrace");
    let trace = perfetto::read(&dir.join("enters.pftrace"));
    let drawn =
        |text: &str| trace.events.values().flatten().filter(|event| event["fields"]["buf"] == text).count();
    for (number, name, times) in COMPAT {
        let name = name.map_or_else(|| number.to_string(), str::to_owned);
        let texts = [format!("I|0|compat_{name}"), format!("B|0|compat_{name}")];
        assert_eq!(texts.map(|text| drawn(&text)), [times, 0], "{number}");
    }
    assert_eq!(drawn("E|0"), 0);
    record(dir, &["-e", "raw_syscalls"]);
    export("chrome", "out.json");
    let slices: Value = serde_json::from_slice(&std::fs::read(dir.join("out.json")).unwrap()).unwrap();
    let events = slices["traceEvents"].as_array().unwrap();
    for (number, name, times) in
        COMPAT.into_iter().filter_map(|(number, name, times)| Some((number, name?, times)))
    {
        let name = format!("compat_{name}");
        let of_name = events.iter().filter(|event| event["name"] == name.as_str() && event["ph"] == "X");
        assert_eq!(of_name.count(), times, "{number}");
    }
}

/// A program of 32 bits that fails to make a directory and runs `/bin/true`.
fn program_of_32_bits() -> Vec<u8> {
    const AT: u32 = 0x0804_8000;
    const HEADERS: u32 = 52 + 32;
    /// What the instructions below take.
    const CODE: u32 = 57;
    let (arguments, path) = (AT + HEADERS + CODE, c"/bin/true".to_bytes_with_nul());
    let directory = arguments + 8 + path.len() as u32;
    let data = [&(arguments + 8).to_le_bytes(), &[0; 4], path, c"/absent/32".to_bytes_with_nul()].concat();
    // mov eax, NUMBER; mov ebx, FIRST; mov ecx, SECOND; xor edx, edx; int 0x80
    let call = |number: u32, first: u32, second: u32| {
        let [number, first, second] = [number, first, second].map(u32::to_le_bytes);
        [&[0xb8][..], &number, &[0xbb], &first, &[0xb9], &second, &[0x31, 0xd2, 0xcd, 0x80]].concat()
    };
    let code = [call(39, directory, 0o700), call(11, arguments + 8, arguments), call(1, 1, 0)].concat();
    let code_len = code.len() as u32;
    assert_eq!(code_len, CODE);
    let len = HEADERS + code_len + data.len() as u32;
    // `Elf32_Ehdr` and one `Elf32_Phdr`, include/uapi/linux/elf.h: ET_EXEC, EM_386; PT_LOAD, all rights.
    let ident = b"\x7fELF\x01\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
    let halves = |halves: &[u16]| halves.iter().flat_map(|half| half.to_le_bytes()).collect::<Vec<u8>>();
    let words = |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
    [
        ident,
        halves(&[2, 3]),
        words(&[1, AT + HEADERS, 52, 0, 0]),
        halves(&[52, 32, 1, 0, 0, 0]),
        words(&[1, 0, AT, AT, len, len, 7, 0x1000]),
        code,
        data,
    ]
    .concat()
}

/// `execve` ends with the number that the new program has for it.
#[test]
fn a_call_that_runs_a_program_of_the_other_kind_is_one() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path();
    let program = dir.join("program");
    std::fs::write(&program, program_of_32_bits()).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    for events in [&["raw_syscalls"][..], &["raw_syscalls", "syscalls:*"]] {
        let args = events.iter().flat_map(|event| ["-e", event]);
        // The shell waits for it, as another command follows.
        let command = ["/bin/sh", "-c", "./program; exit $?"];
        let args = ["record", "-F", "-c", "-o", "out.dat"].into_iter().chain(args).chain(command);
        run(&mut agent(dir, args)).expect(0);
        let answer = answers::answer("syscalls", &dir.join("out.dat"), &[]);
        let calls = answers::list(&answer, "calls");
        let of = |number: u64| calls.iter().find(|call| call["number"] == number).unwrap();
        for number in [59, MARK + 11] {
            let call = of(number);
            let of_call = ["failed", "unmatched", "unfinished"].map(|count| answers::number(call, count));
            assert_eq!(of_call, [0; 3], "{events:?} {call}");
        }
        assert_eq!(answers::number(&of(MARK + 11)["times"], "count"), 1, "{events:?}");
        assert_eq!(answers::number(of(MARK + 39), "failed"), 1, "{events:?}");
    }
    run(&mut agent(dir, ["record", "-F", "-o", "out.dat", "-e", "raw_syscalls", "./program"])).expect(0);
    run(&mut agent(dir, ["export", "--format", "perfetto", "out.dat", "out.pftrace"])).expect(0);
    let trace = perfetto::read(&dir.join("out.pftrace"));
    let events = || trace.events.values().flatten();
    let drawn = |text: &str| events().filter(|event| event["fields"]["buf"] == text).count();
    assert_eq!(["B|0|compat_mkdir", "B|0|compat_execve", "E|0"].map(drawn), [1, 1, 2]);
}
