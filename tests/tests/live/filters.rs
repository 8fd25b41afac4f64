//! Which tasks, CPUs and events a recording has.

use std::{collections::BTreeSet, fs, path::Path};

use integration_tests::harness::{
    Caller, Ended, Ledger, Marked, Report, agent, is_getppid, name_of, run, tid_of, wait_for_readers,
};

const SYSCALLS: &str = "raw_syscalls:sys_enter";

fn record(dir: &Path, args: &[&str]) -> Ended {
    run(agent(dir, ["record"]).args(args)).expect(0)
}

fn report(dir: &Path) -> Report {
    let file = dir.join("trace.dat");
    let report = Report::of(&file);
    assert_eq!(Ledger::of(&file).lost(), 0, "these recordings are small");
    report
}

#[test]
fn only_the_process_of_p_is_recorded() {
    let dir = tempfile::tempdir().unwrap();
    let (mut wanted, mut other) = (Caller::start(), Caller::start());
    let recording = Marked::start(dir.path(), &["-e", SYSCALLS, "-P", &wanted.pid().to_string()]);
    wanted.call(300);
    other.call(300);
    recording.finish().expect(0);
    let report = report(dir.path());
    assert_eq!(report.tids(), BTreeSet::from([wanted.pid()]));
    assert_eq!(report.count(is_getppid), 300);
}

#[test]
fn several_processes_can_be_given_in_one_list_or_in_several() {
    let dir = tempfile::tempdir().unwrap();
    let mut callers: Vec<Caller> = (0..4).map(|_| Caller::start()).collect();
    let pids: Vec<String> = callers.iter().map(|caller| caller.pid().to_string()).collect();
    let list = format!("{},{}", pids[0], pids[1]);
    let recording = Marked::start(dir.path(), &["-e", SYSCALLS, "-P", &list, "-P", &pids[2]]);
    for caller in &mut callers {
        caller.call(100);
    }
    recording.finish().expect(0);
    let report = report(dir.path());
    assert_eq!(report.tids(), callers[..3].iter().map(Caller::pid).collect());
    assert_eq!(report.count(is_getppid), 300);
}

#[test]
fn all_threads_of_the_process_are_recorded() {
    let dir = tempfile::tempdir().unwrap();
    let go = dir.path().join("go");
    // Threads from before the start and from after it; each asks for its id as its only such call.
    let script = "import threading, os, sys, time\n\
         def work(): \n\
         \twhile not os.path.exists(sys.argv[1]): time.sleep(0.01)\n\
         \tfor _ in range(50): os.getppid()\n\
         old = [threading.Thread(target=work) for _ in range(4)]\n\
         [t.start() for t in old]\n\
         open(sys.argv[1] + '.ready', 'w')\n\
         while not os.path.exists(sys.argv[1]): time.sleep(0.01)\n\
         new = [threading.Thread(target=work) for _ in range(4)]\n\
         [t.start() for t in new]\n\
         [t.join() for t in old + new]\n";
    let mut python = std::process::Command::new("python3").args(["-c", script]).arg(&go).spawn().unwrap();
    integration_tests::harness::wait_for("python's threads", || {
        dir.path().join("go.ready").exists().then_some(())
    });
    let recording = Marked::start(dir.path(), &["-e", SYSCALLS, "-P", &python.id().to_string()]);
    fs::write(&go, "").unwrap();
    assert!(python.wait().unwrap().success());
    recording.finish().expect(0);
    let report = report(dir.path());
    assert_eq!(report.count(is_getppid), 8 * 50);
    let callers: BTreeSet<u32> =
        report.events.iter().filter(|line| is_getppid(line)).map(|line| tid_of(line)).collect();
    assert_eq!(callers.len(), 8, "every thread by its own id");
}

#[test]
fn children_are_followed_through_fork_and_exec() {
    const TASKS: u64 = 2000;
    let dir = tempfile::tempdir().unwrap();
    let mut other = Caller::start();
    // Grandchildren: each is forked by a child of the command, and calls getppid once in a program of its own
    // every 100th time.
    let script = format!(
        "for $c (1..20) {{ if (!fork) {{ for $i (1..{each}) {{ \
           if (!fork) {{ if ($i % 100 == 0) {{ exec 'perl', '-e', 'getppid()' }} getppid(); exit }} wait }} exit }} }} \
         1 while wait > 0;",
        each = TASKS / 20
    );
    let args = ["record", "-e", SYSCALLS, "-e", "sched:sched_process_exit", "-b", "16384", "-F", "-c"];
    let recording =
        integration_tests::harness::Running::start(agent(dir.path(), args).args(["perl", "-e", &script]));
    other.call(500);
    recording.wait().expect(0);
    let report = report(dir.path());
    assert_eq!(report.count(is_getppid), TASKS, "one call of each task");
    let exits: Vec<&String> =
        report.events.iter().filter(|line| name_of(line) == "sched_process_exit").collect();
    assert_eq!(
        exits.len() as u64,
        TASKS + 20 + 1,
        "the end of each task, of their parents and of the command"
    );
    let ended: BTreeSet<u32> = exits.iter().map(|line| tid_of(line)).collect();
    assert_eq!(report.tids(), ended, "no event of any other task");
    assert!(!ended.contains(&other.pid()));
}

#[test]
fn without_c_children_are_left_out() {
    let dir = tempfile::tempdir().unwrap();
    let script = "getppid() for 1..10; for (1..5) { if (!fork) { getppid() for 1..10; exit } wait }";
    record(dir.path(), &["-e", SYSCALLS, "-F", "perl", "-e", script]);
    let report = report(dir.path());
    assert_eq!(report.count(is_getppid), 10);
    assert_eq!(report.tids().len(), 1);
}

#[test]
fn f_records_the_command_from_its_exec_on() {
    let dir = tempfile::tempdir().unwrap();
    record(dir.path(), &["-e", SYSCALLS, "-e", "sched:sched_process_exec", "-F", "/bin/true"]);
    let report = report(dir.path());
    assert_eq!(report.tids().len(), 1);
    assert_eq!(report.count(|line| name_of(line) == "sched_process_exec"), 1);
    assert!(report.count(|line| line.contains("NR 231 ")) == 1, "up to its exit_group");
    assert!(report.events.last().unwrap().contains("true-"), "under its own name");
}

#[test]
fn switches_to_the_traced_task_and_its_wakeups_count_as_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let mut caller = Caller::start();
    let pid = caller.pid();
    let args = ["-e", "sched:sched_switch", "-e", "sched:sched_waking", "-P", &pid.to_string()];
    let recording = Marked::start(dir.path(), &args);
    for _ in 0..50 {
        // It sleeps each time before it is woken for the next call.
        caller.settle();
        caller.call(1);
    }
    caller.settle();
    recording.finish().expect(0);
    let report = report(dir.path());
    let switch_in =
        |line: &str| name_of(line) == "sched_switch" && line.contains(&format!("==> perl:{pid} "));
    let switch_out = |line: &str| name_of(line) == "sched_switch" && tid_of(line) == pid;
    let (named, in_field) = (format!("perl:{pid} "), format!("pid={pid} "));
    let about = |line: &str| line.contains(&named) || line.contains(&in_field);
    let woken = |line: &str| name_of(line) == "sched_waking" && tid_of(line) != pid && about(line);
    assert!(report.count(switch_in) >= 50, "{:?}", &report.events[..10]);
    assert!(report.count(switch_out) >= 50);
    assert!(report.count(woken) >= 50, "it is this test that wakes it");
    for line in &report.events {
        assert!(tid_of(line) == pid || about(line), "not its own: {line}");
    }
}

#[test]
fn only_the_cpus_of_the_mask_are_recorded() {
    for (mask, cpu) in [("1", "[000]"), ("2", "[001]"), ("0x2", "[001]"), ("0-0", "[000]")] {
        let dir = tempfile::tempdir().unwrap();
        let (on_0, on_1) = (Caller::start(), Caller::start());
        on_0.pin(0);
        on_1.pin(1);
        let recording = Marked::start(dir.path(), &["-e", SYSCALLS, "-M", mask]);
        let callers = [on_0.pid(), on_1.pid()];
        for mut caller in [on_0, on_1] {
            caller.call(200);
        }
        recording.finish().expect(0);
        let report = report(dir.path());
        // Other programs of this machine may call it, too.
        let calls = report.count(|line| is_getppid(line) && callers.contains(&tid_of(line)));
        assert_eq!(calls, 200, "-M {mask}");
        assert_eq!(report.count(|line| !line.contains(cpu)), 0, "-M {mask}");
    }
}

#[test]
fn the_agent_itself_is_recorded_only_on_request() {
    for (option, own) in [("--no-self", false), ("--self", true), ("--no-filter", true), ("", false)] {
        let dir = tempfile::tempdir().unwrap();
        let mut args = vec!["-e", SYSCALLS, "-e", "sched:sched_switch", "-s", "10000"];
        args.extend(Some(option).filter(|option| !option.is_empty()));
        let recording = Marked::start(dir.path(), &args);
        let pid = recording.agent.pid();
        let threads: BTreeSet<u32> = fs::read_dir(format!("/proc/{pid}/task"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().to_str().unwrap().parse().unwrap())
            .collect();
        assert!(threads.len() >= 2, "a reader thread at least");
        // They wait for events in a system call each time.
        wait_for_readers(pid);
        recording.finish().expect(0);
        let report = Report::of(&dir.path().join("trace.dat"));
        let seen = report.count(|line| name_of(line) == "sys_enter" && threads.contains(&tid_of(line)));
        assert_eq!(seen > 0, own, "{option:?}: {seen} events of the agent's own threads");
    }
}

/// The events with data in a recording of one command that uses many kinds.
fn recorded_names(args: &[&str]) -> BTreeSet<String> {
    let dir = tempfile::tempdir().unwrap();
    let mut all = args.to_vec();
    all.extend(["-b", "16384", "sh", "-c", "cat /etc/passwd >/dev/null; sleep 0.05"]);
    record(dir.path(), &all);
    report(dir.path()).names()
}

fn starts(names: &BTreeSet<String>, prefixes: &[&str]) -> bool {
    !names.is_empty() && names.iter().all(|name| prefixes.iter().any(|prefix| name.starts_with(prefix)))
}

#[test]
fn events_are_selected_in_every_form() {
    let only = |args: &[&str], name: &str| {
        assert_eq!(recorded_names(args), BTreeSet::from([name.to_owned()]), "{args:?}");
    };
    only(&["-e", "sched:sched_switch"], "sched_switch");
    only(&["-e", "sched_switch"], "sched_switch");
    only(&["-e", "sched/sched_switch"], "sched_switch");
    only(&["-e", "sched:sched_swi*"], "sched_switch");
    only(&["-e", "syscalls:sys_enter_openat"], "sys_enter_openat");
    for form in ["sched", "sched:*", "sched:"] {
        let names = recorded_names(&["-e", form]);
        assert!(starts(&names, &["sched_"]) && names.len() > 5, "{form}: {names:?}");
    }
    let names = recorded_names(&["-e", "syscalls:*open*"]);
    assert!(starts(&names, &["sys_enter_open", "sys_exit_open"]), "{names:?}");
    let names = recorded_names(&["-e", "sched_switch", "-e", "raw_syscalls"]);
    assert_eq!(names.into_iter().collect::<Vec<_>>(), ["sched_switch", "sys_enter", "sys_exit"]);
}

#[test]
fn v_leaves_events_out() {
    let names = recorded_names(&["-e", "sched", "-v", "-e", "sched_switch", "-e", "sched:sched_wak*"]);
    assert!(names.contains("sched_process_exit"), "{names:?}");
    assert!(!names.contains("sched_switch") && !names.contains("sched_waking"), "{names:?}");
}

#[test]
fn i_goes_on_without_unknown_events_and_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let ended = record(dir.path(), &["-i", "-e", "no:such", "-e", "sched_switch", "true"]);
    ended.says(&["ignored", "no:such"]);
    assert_eq!(report(dir.path()).names(), BTreeSet::from(["sched_switch".to_owned()]));
}

/// What the JSON of --print-spec records is what the options record, and what the options of the next
/// recording say of it.
#[test]
fn a_specification_records_what_its_options_do() {
    const CALLS: [&str; 3] = ["python3", "-c", "import os\nfor _ in range(300): os.getppid()"];
    let dir = tempfile::tempdir().unwrap();
    let options = [
        "-e",
        SYSCALLS,
        "-f",
        "id == 110",
        "--context",
        "tid",
        "-e",
        "sched/sched_process_exit",
        "-F",
        "-b",
        "512",
        "--compression",
        "none",
    ];
    let printed = run(agent(dir.path(), ["record", "--print-spec"]).args(options)).expect(0);
    fs::write(dir.path().join("spec.json"), &printed.out).unwrap();
    let again = run(&mut agent(dir.path(), ["record", "--print-spec", "--spec", "spec.json"])).expect(0);
    assert_eq!(again.out, printed.out);

    let summary = |args: &[&str]| {
        record(dir.path(), &[args, &CALLS].concat());
        let report = report(dir.path());
        let counts = report.names().into_iter().map(|name| {
            let count = report.count(|line| name_of(line) == name);
            (name, count)
        });
        counts.collect::<Vec<_>>()
    };
    let by_options = summary(&options);
    // Where python3 is a script that finds the interpreter, its shells make some calls, too.
    let names = ["sched_process_exit", "sys_enter"];
    assert!(by_options.iter().map(|(name, _)| &**name).eq(names) && by_options[1].1 >= 300, "{by_options:?}");
    assert_eq!(summary(&["--spec", "spec.json"]), by_options);
    record(dir.path(), &[&["-q", "-o", "other.dat", "--spec", "spec.json"][..], &CALLS].concat());
    let other = Report::of(&dir.path().join("other.dat"));
    assert_eq!(other.count(is_getppid), by_options[1].1);
}

#[test]
fn what_cannot_be_recorded_of_a_specification_is_told_with_its_place() {
    let dir = tempfile::tempdir().unwrap();
    let rules = |rules: &str| format!(r#"{{"version": 1, "channels": [{{"rules": [{rules}]}}]}}"#);
    let switch = r#"{"what": {"events": "sched:sched_switch"}}"#;
    for (spec, args, code, says) in [
        (r#"{"version": 1}"#.to_owned(), &["true"][..], 2, &["--spec spec.json: ", "`channels`"][..]),
        (r#"{"version": 99, "channels": 7}"#.to_owned(), &["true"], 2, &["version 99", "newer tracer-agent"]),
        (rules(r#"{"what": {"events": "sched"}, "filtre": "x"}"#), &["true"], 2, &["field `filtre`"]),
        (
            rules(r#"{"what": {"exclude": "sched"}}"#),
            &["true"],
            2,
            &["channels[0].rules: all of them exclude"],
        ),
        (
            r#"{"version": 1, "channels": [{"rules": [{"what": {"events": "sched"}}], "switch_ns": 1}]}"#
                .to_owned(),
            &["true"],
            2,
            &["channels[0].switch_ns: ", "1 ms or more"],
        ),
        (
            format!(r#"{{"scope": {{"cpus": "0,8191"}}, {}"#, &rules(switch)[1..]),
            &["true"],
            2,
            &["scope.cpus: this machine cannot have a CPU 8191"],
        ),
        (rules(switch), &["-e", "irq", "true"], 2, &["--event cannot be added", "-o, -N, -V, --duration"]),
        (
            rules(&format!(
                r#"{switch}, {{"what": {{"events": "sched:sched_waking"}}, "filter": "prev_pid == 1"}}"#
            )),
            &["true"],
            2,
            &["channels[0].rules[1].filter: ", "no field `prev_pid`", "sched_waking"],
        ),
        (
            rules(r#"{"what": {"uprobe": "/no/such/program:main"}}"#),
            &["true"],
            112,
            &["channels[0].rules[0] (uprobe '/no/such/program:main'): "],
        ),
        (rules(r#"{"what": {"events": "sched:nothing"}}"#), &["true"], 112, &["no such event sched:nothing"]),
        (
            format!(r#"{{"scope": {{"only_command": true}}, {}"#, &rules(switch)[1..]),
            &[],
            2,
            &["scope.only_command", "there is no command"],
        ),
    ] {
        fs::write(dir.path().join("spec.json"), &spec).unwrap();
        run(agent(dir.path(), ["record", "--spec", "spec.json"]).args(args)).expect(code).says(says);
        assert!(!dir.path().join("trace.dat").exists(), "{spec}");
    }
    run(&mut agent(dir.path(), ["record", "--spec", "none.json", "true"]))
        .expect(2)
        .says(&["none.json: No such file"]);
}

/// However it is written.
#[test]
fn an_event_that_was_named_is_required() {
    let dir = tempfile::tempdir().unwrap();
    // Its text has no length that a program of the fast lane could know, and so it cannot be recorded.
    for name in ["printk:console", "printk/console", "console"] {
        let refused =
            run(&mut agent(dir.path(), ["record", "--lane", "fast", "-e", name, "-e", "sched", "true"]));
        refused.expect(2).says(&["cannot record printk:console"]);
    }
    run(&mut agent(dir.path(), ["record", "--lane", "fast", "-e", "printk/con*", "-e", "sched", "true"]))
        .expect(0);
}
