//! Copies of the strings that system calls are given, against what a program is known to pass.

use std::path::Path;

use integration_tests::{
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
    // 0xa0 is printable to the kernel.
    let [one, long, bytes, empty, nowhere, renamed] = shown.as_slice() else { panic!("{lines:?}") };
    assert_eq!((one.as_slice(), long.as_slice()), (&["/absent/one"][..], &[cut.as_str()][..]));
    assert!(bytes.len() == 1 && bytes[0].starts_with("t. d. e. a") && bytes[0].ends_with('!'), "{bytes:?}");
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
        assert_eq!([one, long, empty], ["/absent/one", &cut, ""]);
        assert!(bytes.starts_with("t. d. e. a") && bytes.ends_with('!'), "{bytes}");
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
