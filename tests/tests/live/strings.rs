//! Copies of the strings that system calls are given, against what a program is known to pass.

use std::path::Path;

use integration_tests::{
    daemon::Daemon,
    harness::{agent, name_of, run},
    trace_cmd, workload,
};

fn record(dir: &Path, options: &[&str]) -> String {
    let events =
        ["record", "-o", "out.dat", "-e", "syscalls:sys_enter_chdir", "-e", "syscalls:sys_enter_rename"];
    let calls = workload::command("calls", dir);
    let command = ["-F"].into_iter().chain(calls.iter().map(String::as_str));
    run(&mut agent(dir, events.into_iter().chain(options.iter().copied()).chain(command))).expect(0).err
}

/// Records these events of calls whose strings are not resident.
fn record_untouched(dir: &Path, events: &[String]) -> String {
    let calls = workload::command("untouched", dir);
    let events = events.iter().flat_map(|event| ["-e", event]);
    let args = ["record", "-o", "out.dat"].into_iter().chain(events).chain(["-F", "-c"]);
    run(&mut agent(dir, args.chain(calls.iter().map(String::as_str)))).expect(0).err
}

/// What is printed of an event, without what is before the fields.
fn lines_of<'a>(report: &'a str, event: &str) -> Vec<&'a str> {
    let mark = format!(" {event}: ");
    report.lines().filter_map(|line| line.split_once(&mark)).map(|(_, fields)| fields.trim()).collect()
}

/// What stock trace-cmd prints of the events, without what is before the fields.
fn stock(dir: &Path, options: &[&str]) -> Vec<String> {
    let report = trace_cmd::report(&dir.join("out.dat"), options);
    assert!(!report.contains("FAILED TO PARSE"), "{report}");
    texts(&report)
}

fn texts(report: &str) -> Vec<String> {
    let events = report.lines().filter(|line| line.contains("sys_enter_"));
    events.map(|line| line.split_once(&format!("{}:", name_of(line))).unwrap().1.trim().to_owned()).collect()
}

/// What the workload passes, with U+FFFD for bytes that are not UTF-8.
const UNPRINTABLE: &str = "t\t d\x7f e\u{fffd} a\u{fffd}!";

/// What is in quotes.
fn quoted(line: &str) -> Vec<&str> {
    line.split('"').skip(1).step_by(2).collect()
}

#[test]
fn stock_readers_show_what_was_passed() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path();
    let said = record(dir, &[]);
    assert!(!said.contains("generic lane"), "{said}");
    let lines = stock(dir, &[]);
    let shown: Vec<Vec<&str>> = lines.iter().map(|line| quoted(line)).collect();
    let cut = format!("/absent/{}...", "x".repeat(63 - "/absent/".len()));
    let [one, long, bytes, empty, nowhere, renamed] = shown.as_slice() else { panic!("{lines:?}") };
    assert_eq!((one.as_slice(), long.as_slice()), (&["/absent/one"][..], &[cut.as_str()][..]));
    assert_eq!(bytes, &[UNPRINTABLE]);
    assert_eq!((empty.as_slice(), nowhere.as_slice()), (&[""][..], &[""][..]));
    assert!(lines[4].contains("filename: 0x00000010 "), "{lines:?}");
    assert_eq!(renamed, &["/absent/from", "/absent/to"]);
    // Ours prints the same, and JSON has the fields; what could not be read differs from an empty string in
    // length.
    let ours = run(&mut agent(dir, ["report", "out.dat"])).expect(0).out;
    assert_eq!(texts(&ours), lines);
    let json = run(&mut agent(dir, ["report", "--json", "out.dat"])).expect(0).out;
    let json = json.replace(": ", ":");
    assert!(json.contains(r#""__filename_val":"/absent/one""#), "{json}");
    assert!(json.contains(r#""__newname_val":"/absent/to""#), "{json}");
}

/// The kernel reads what the mapped files have, programs at the entry cannot.
#[test]
fn what_is_not_resident_is_copied_when_the_call_has_read_it() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path();
    let cut = format!("/absent/{}...", "x".repeat(63 - "/absent/".len()));
    for (events, entries_only) in [
        (&["chdir", "rename", "execve", "write"].map(|call| format!("syscalls:sys_enter_{call}"))[..], true),
        (&["syscalls:*", "raw_syscalls:*"].map(str::to_owned)[..], false),
    ] {
        let said = record_untouched(dir, events);
        assert!(!said.contains("generic lane"), "{said}");
        let report = trace_cmd::report(&dir.join("out.dat"), &[]);
        assert_eq!(report.contains("sys_exit_"), !entries_only);
        let of = |call: &str| lines_of(&report, &format!("sys_enter_{call}"));
        let texts: Vec<_> = of("chdir").into_iter().map(|line| quoted(line)[0].to_owned()).collect();
        let [one, long, bytes, empty] = texts.as_slice() else { panic!("{report}") };
        assert_eq!([one, long, bytes, empty], ["/absent/one", &cut, UNPRINTABLE, ""]);
        let renamed: Vec<_> = of("rename").into_iter().map(quoted).collect();
        assert_eq!(renamed, [["/absent/from", "/absent/to"]; 3]);
        assert_eq!(of("execve").iter().filter(|line| quoted(line) == ["/absent/exec"]).count(), 1);
        // Of the kernels that are known, only newer ones have copies of what has a length.
        let format =
            std::fs::read_to_string("/sys/kernel/tracing/events/syscalls/sys_enter_write/format").unwrap();
        let raw = trace_cmd::report(&dir.join("out.dat"), &["-R"]);
        let bytes = "__buf_val=ARRAY[61, 20, 74, 65, 78, 74, 0a]";
        let written = lines_of(&raw, "sys_enter_write").into_iter().filter(|line| line.contains(bytes));
        assert_eq!(written.count(), usize::from(format.contains("__buf_val")), "{raw}");
    }
}

/// One event alone, of calls that every program makes.
#[test]
fn a_recording_of_entries_alone_has_what_was_not_resident() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path();
    record_untouched(dir, &["syscalls:sys_enter_openat".to_owned()]);
    let lines = stock(dir, &[]);
    let opened = lines.iter().filter(|line| quoted(line) == ["/absent/open"]);
    assert_eq!(opened.count(), 1, "{lines:?}");
}

/// When `execve` returns, the address belongs to the new program.
#[test]
fn a_new_program_is_not_taken_for_what_was_not_resident() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path();
    record_untouched(dir, &["syscalls:sys_enter_execve".to_owned()]);
    let lines = stock(dir, &[]);
    let executed = format!("filename: {:#010x} ", workload::EXECUTED);
    let executed: Vec<_> = lines.iter().filter(|line| line.starts_with(&executed)).collect();
    let [executed] = executed[..] else { panic!("{lines:?}") };
    assert_eq!(quoted(executed), [""], "{lines:?}");
}

#[test]
fn filters_take_the_argument_for_its_string() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path();
    record(dir, &[]);
    let all = stock(dir, &[]);
    for (filter, wanted) in [
        (r#"sys_enter_chdir: filename ~ "/absent/*""#, &all[..2]),
        (r#"sys_enter_chdir: __filename_val == "/absent/one""#, &all[..1]),
        (r#"sys_enter_chdir: filename == "/absent/one""#, &all[..1]),
        (r#"sys_enter_rename: newname =~ "to$" && oldname != "x""#, &all[5..]),
        ("sys_enter_chdir: filename == 16", &all[4..5]),
    ] {
        let ours = run(&mut agent(dir, ["report", "-F", filter, "out.dat"])).expect(0).out;
        assert_eq!(texts(&ours), wanted, "{filter}");
    }
    // While recording, too.
    for filter in [r#"filename ~ "/absent/*""#, r#"__filename_val ~ "/absent/*""#] {
        let args = ["record", "-o", "out.dat", "-e", "syscalls:sys_enter_chdir", "-f", filter, "-F"];
        let calls = workload::command("calls", dir);
        run(&mut agent(dir, args.into_iter().chain(calls.iter().map(String::as_str)))).expect(0);
        assert_eq!(stock(dir, &[]).len(), 2, "{filter}");
    }
}

#[test]
fn strings_can_be_shorter_or_left_out() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path();
    record(dir, &["--strings", "5"]);
    let lines = stock(dir, &[]);
    assert_eq!(quoted(&lines[0]), ["/abse..."]);
    assert_eq!(quoted(&lines[5]), ["/abse...", "/abse..."]);
    record(dir, &["--strings", "165"]);
    assert_eq!(quoted(&stock(dir, &[])[1]), [format!("/absent/{}...", "x".repeat(165 - "/absent/".len()))]);
    record(dir, &["--strings", "off"]);
    let lines = stock(dir, &[]);
    assert!(lines.len() == 6 && lines.iter().all(|line| !line.contains("abs")), "{lines:?}");
    // The format is the kernel's own then.
    let dump = trace_cmd::run(["dump".as_ref(), "--events".as_ref(), dir.join("out.dat").as_os_str()]).out;
    let format =
        std::fs::read_to_string("/sys/kernel/tracing/events/syscalls/sys_enter_chdir/format").unwrap();
    assert!(dump.contains(&format), "{dump}");
    let refused =
        run(&mut agent(dir, ["record", "--strings", "166", "-e", "syscalls:sys_enter_chdir", "true"]));
    refused.expect(2).says(&["1 to 165"]);
}

/// The strings of each line.
fn strings_of(lines: &[String]) -> Vec<Vec<String>> {
    lines.iter().map(|line| quoted(line).into_iter().map(str::to_owned).collect()).collect()
}

/// Events with a filter or contexts have programs by themselves, which copy the strings too.
#[test]
fn filters_contexts_stacks_and_rates_keep_strings() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path();
    record(dir, &[]);
    let all = strings_of(&stock(dir, &[]));
    for options in [
        &["--context", "tid"][..],
        &["--context", "comm,cgroup,hostname"],
        &["-f", "common_pid != 0"],
        &["-f", "common_pid != 0", "--context", "tid"],
        &["--context", "callstack-kernel,callstack-user"],
        &["-f", "common_pid != 0", "--context", "comm,callstack-user"],
        &["--rate", "1000000/s", "-f", "common_pid != 0"],
        &["--lane", "generic"],
        &["--lane", "generic", "--context", "tid"],
    ] {
        let calls = workload::command("calls", dir);
        let named = ["chdir", "rename"].map(|call| format!("syscalls:sys_enter_{call}"));
        let (lane, options) = if options[0] == "--lane" { options.split_at(2) } else { options.split_at(0) };
        let events = named.iter().flat_map(|event| ["-e", event].into_iter().chain(options.iter().copied()));
        let command = ["-F"].into_iter().chain(calls.iter().map(String::as_str));
        let args = ["record", "-o", "out.dat"].into_iter().chain(lane.iter().copied()).chain(events);
        let said = run(&mut agent(dir, args.chain(command))).expect(0).err;
        assert!(!said.contains("no strings"), "{options:?}: {said}");
        assert_eq!(strings_of(&stock(dir, &[])), all, "{options:?}");
        let ours = run(&mut agent(dir, ["report", "out.dat"])).expect(0).out;
        assert_eq!(strings_of(&texts(&ours)), all, "{options:?}");
    }
}

/// Of every other call, with and without a filter.
#[test]
fn samples_have_strings() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path();
    let calls = workload::command("calls", dir);
    for filter in [&[][..], &["-f", "common_pid != 0"]] {
        let args = ["record", "-o", "out.dat", "-e", "syscalls:sys_enter_chdir", "--sample", "1/2"];
        let args = args.into_iter().chain(filter.iter().copied()).chain(["-F"]);
        run(&mut agent(dir, args.chain(calls.iter().map(String::as_str)))).expect(0);
        let lines = stock(dir, &[]);
        assert!((1..5).contains(&lines.len()), "{lines:?}");
        for line in lines {
            let is_nowhere = line.contains("filename: 0x00000010 ");
            let is_empty = quoted(&line) == [""];
            let is_unprintable = quoted(&line) == [UNPRINTABLE];
            assert!(is_nowhere || is_empty || line.contains("/absent/") || is_unprintable, "{line}");
        }
    }
}

/// Contexts stand between the arguments and the strings.
#[test]
fn contexts_stand_beside_strings() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path();
    record(dir, &["--context", "tid,comm"]);
    let json = run(&mut agent(dir, ["report", "--json", "out.dat"])).expect(0).out;
    let records = json.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let renamed: Vec<_> = records.filter(|record| record["event"] == "sys_enter_rename").collect();
    let [renamed] = renamed.as_slice() else { panic!("{json}") };
    let fields = &renamed["fields"];
    assert_eq!(fields["__oldname_val"], "/absent/from", "{renamed}");
    assert_eq!(fields["__newname_val"], "/absent/to", "{renamed}");
    assert_eq!(fields["ctx_tid"], renamed["pid"], "{renamed}");
    assert_eq!(fields["ctx_comm"], renamed["comm"], "{renamed}");
}

#[test]
fn what_is_not_resident_is_copied_with_filters_and_contexts() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path();
    for options in [&["-f", "common_pid != 0"][..], &["--context", "comm,tid"]] {
        let calls = workload::command("untouched", dir);
        let events = ["chdir", "rename"].map(|call| format!("syscalls:sys_enter_{call}"));
        let events = events.iter().flat_map(|event| ["-e", event].into_iter().chain(options.iter().copied()));
        let args = ["record", "-o", "out.dat"].into_iter().chain(events).chain(["-F", "-c"]);
        run(&mut agent(dir, args.chain(calls.iter().map(String::as_str)))).expect(0);
        let report = trace_cmd::report(&dir.join("out.dat"), &[]);
        let changed = lines_of(&report, "sys_enter_chdir");
        assert_eq!(changed.len(), 4, "{report}");
        assert_eq!(quoted(changed[0]), ["/absent/one"], "{report}");
        let renamed: Vec<_> = lines_of(&report, "sys_enter_rename").into_iter().map(quoted).collect();
        assert_eq!(renamed, [["/absent/from", "/absent/to"]; 3], "{options:?}");
    }
}

/// The example of the daemon's configuration: who opens what.
#[test]
fn a_session_with_a_filter_has_strings() {
    let scratch = tempfile::tempdir().unwrap();
    let (out, made) = (scratch.path().join("out"), scratch.path().join("made"));
    let daemon = Daemon::start_configured(&format!(
        "[sessions.opens]\noutput = {out:?}\n[[sessions.opens.channels]]\n\
         rules = [{{ what = {{ events = \"syscalls:sys_enter_openat\" }}, filter = \"flags & 0x40\" }}]\n"
    ));
    std::fs::File::create(&made).unwrap();
    daemon.tell("POST", "/v1/sessions/opens/stop", None);
    let files = std::fs::read_dir(&out).unwrap().map(|file| file.unwrap().path());
    let lines: Vec<String> = files.flat_map(|file| texts(&trace_cmd::report(&file, &[]))).collect();
    let made = made.to_str().unwrap();
    assert_eq!(lines.iter().filter(|line| quoted(line) == [made]).count(), 1, "{lines:?}");
}
