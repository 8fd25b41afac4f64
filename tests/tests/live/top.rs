//! `top`: what it shows is what came, on a terminal and elsewhere, and the terminal is left as it was.

use std::{fs, path::Path};

use integration_tests::{
    daemon::{Daemon, ROOT},
    harness::{Caller, Marked, Running, agent, agent_path, program, run, wait_for},
    terminal::Terminal,
};
use serde_json::{Value, json};

/// What is counted: system calls of the callers, getppid only.
const GETPPID: [&str; 4] = ["-e", "raw_syscalls:sys_enter", "-f", "id == 110"];

fn tables(out: &str) -> Vec<Value> {
    out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn number(row: &Value, key: &str) -> u64 {
    row[key].as_u64().unwrap_or_else(|| panic!("{key}: {row}"))
}

/// The row of a table whose member is this.
fn row<'t>(table: &'t Value, rows: &str, key: &str, is: impl Into<Value>) -> &'t Value {
    let is = is.into();
    let found = table[rows].as_array().unwrap().iter().find(|row| row[key] == is);
    found.unwrap_or_else(|| panic!("no {key} {is}: {table}"))
}

fn callers() -> [Caller; 2] {
    let callers = [Caller::named("first"), Caller::named("second")];
    callers.iter().enumerate().for_each(|(cpu, caller)| caller.pin(cpu));
    callers
}

/// `top ARGS` of these callers' calls, in the directory.
fn top(dir: &Path, callers: &[Caller], args: &[&str]) -> std::process::Command {
    let mut command = agent(dir, ["top"]);
    command.args(GETPPID).args(args);
    for caller in callers {
        command.args(["-P", &caller.pid().to_string()]);
    }
    command
}

#[test]
fn its_figures_are_those_of_the_workload() {
    let dir = tempfile::tempdir().unwrap();
    let mut callers = callers();
    let mut command = top(dir.path(), &callers, &["--batch", "--json", "--interval", "100ms"]);
    let running = Marked::start_as(&mut command, dir.path().join("mark"));
    for _ in 0..5 {
        callers[0].call(3000);
        callers[1].call(1000);
    }
    let ended = running.finish().expect(0);
    let tables = tables(&ended.out);
    let (last, before) = tables.split_last().unwrap();
    assert!(last["last"] == true && before.iter().all(|table| table["last"] == false));
    assert_eq!((number(last, "total"), number(last, "unnamed"), number(last, "skipped")), (20_000, 0, 0));
    assert_eq!(tables.iter().map(|table| number(table, "count")).sum::<u64>(), 20_000);
    let event = row(last, "events", "name", "raw_syscalls:sys_enter");
    assert_eq!((number(event, "total"), number(event, "skipped")), (20_000, 0));
    for (cpu, (caller, (name, calls))) in
        callers.iter().zip([("first", 15_000), ("second", 5000)]).enumerate()
    {
        let process = row(last, "processes", "pid", caller.pid());
        assert_eq!((process["name"].as_str(), number(process, "total")), (Some(name), calls));
        assert_eq!(number(row(last, "cpus", "name", cpu.to_string()), "total"), calls);
    }
    let busy = tables.iter().find(|table| number(table, "count") != 0).unwrap();
    let event = row(busy, "events", "name", "raw_syscalls:sys_enter");
    let seconds = number(busy, "interval_ns") as f64 / 1e9;
    let rate = event["rate"].as_f64().unwrap();
    assert!((rate - number(event, "count") as f64 / seconds).abs() < 1.0, "{busy}");
    for pair in tables.windows(2) {
        let elapsed = |table| number(table, "elapsed_ns");
        assert_eq!(elapsed(&pair[0]) + number(&pair[1], "interval_ns"), elapsed(&pair[1]));
        assert!(number(&pair[0], "total") <= number(&pair[1], "total"));
    }
}

#[test]
fn several_events_are_told_apart() {
    let dir = tempfile::tempdir().unwrap();
    let args =
        ["top", "-b", "--json", "-e", "sched:sched_process_*", "-v", "-e", "sched_process_wait", "-F", "-c"];
    let script = "/bin/true; /bin/true; exec /bin/true";
    let ended = run(agent(dir.path(), args).args(["sh", "-c", script])).expect(0);
    let tables = tables(&ended.out);
    let last = tables.last().unwrap();
    let total = |event: &str| number(row(last, "events", "name", format!("sched:{event}")), "total");
    assert_eq!(
        [total("sched_process_exec"), total("sched_process_fork"), total("sched_process_exit")],
        [4, 2, 3],
        "{last}"
    );
    let names = last["events"].as_array().unwrap().iter().map(|row| row["name"].as_str().unwrap());
    assert!(names.clone().count() > 3 && !names.clone().any(|name| name.contains("sched_process_wait")));
}

#[test]
fn tables_are_printed_one_after_the_other() {
    let dir = tempfile::tempdir().unwrap();
    let mut callers = callers();
    callers[0].call(1);
    let args = ["--interval", "50ms", "-n", "3", "--rows", "1"];
    let ended = run(&mut top(dir.path(), &callers, &args))
        .expect(0)
        .says(&["counting until the processes of -P exit; Ctrl-C stops it"]);
    let count = |text: &str| ended.out.lines().filter(|line| line.ends_with(text)).count();
    assert_eq!((count("  EVENT"), count("  PROCESS"), count("  CPU")), (3, 3, 3), "{}", ended.out);
    assert_eq!(count(" raw_syscalls:sys_enter"), 3, "{}", ended.out);
    assert_eq!(ended.out.lines().filter(|line| line.ends_with(" s: 0 events/s, 0 events")).count(), 3);

    // What is usual, as far as there is such an event here; a closed pipe is no error.
    let script = r#"("$0" top -q --interval 50ms; echo "code $?" >code) | head -n 40"#;
    let ended = run(program(dir.path(), "sh", ["-c", script]).arg(agent_path())).expect(0);
    assert!(ended.out.lines().any(|line| line.ends_with("  sched:sched_switch")), "{}", ended.out);
    assert_eq!(ended.err, "");
    assert_eq!(fs::read_to_string(dir.path().join("code")).unwrap(), "code 0\n");

    // Signals end it with a last table.
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        let mut running = Running::start(&mut top(dir.path(), &callers, &["--json", "--interval", "1h"]));
        running.wait_until_said("counting", 1);
        callers[1].call(70);
        running.signal(signal);
        let tables = tables(&running.wait().expect(0).out);
        assert_eq!((tables.len(), number(&tables[0], "total")), (1, 70), "{signal}");
    }
    let ended =
        run(&mut top(dir.path(), &callers, &["--json", "--duration", "150ms", "--interval", "100ms"]));
    assert_eq!(tables(&ended.expect(0).out).len(), 2);
    // A command's status is passed on.
    run(&mut agent(dir.path(), ["top", "-b", "-e", "sched_switch", "sh", "-c", "exit 7"])).expect(7);
}

#[test]
fn processes_that_come_and_go_do_not_fill_it() {
    let dir = tempfile::tempdir().unwrap();
    let args = ["top", "-b", "--json", "-e", "sched_process_exec", "--interval", "100ms"];
    let script = "i=0; while [ $i -lt 9000 ]; do /bin/true; i=$((i + 1)); done";
    let ended = run(agent(dir.path(), args).args(["-F", "-c", "sh", "-c", script])).expect(0);
    let tables = tables(&ended.out);
    let keys = |table: &Value| table["keys"][0].as_u64().unwrap();
    let room = tables[0]["keys"][1].as_u64().unwrap();
    assert!(room < 9000, "{room}");
    assert!(tables.windows(2).any(|pair| keys(&pair[1]) < keys(&pair[0])), "never emptied");
    let last = tables.last().unwrap();
    // Nothing is counted while a map is emptied, which is told by the time that it has counted.
    let total = number(last, "total");
    assert!(total > 8000 && total <= 9001, "{total}");
    assert_eq!(number(last, "unnamed"), 0);
    assert_eq!(number(last, "total"), tables.iter().map(|table| number(table, "count")).sum::<u64>());
}

/// What the terminal is like: whether its cursor is to be seen, lines wrap, and another screen is shown.
fn state(terminal: &Terminal) -> String {
    terminal.tmux(&["display-message", "-p", "#{cursor_flag} #{wrap_flag} #{alternate_on}"])
}

/// The terminal is as it was: lines are edited, and what is typed is shown.
#[track_caller]
fn is_usable(terminal: &Terminal) {
    wait_for("the terminal as it was", || (state(terminal) == "1 1 0\n").then_some(()));
    terminal.types(&[
        "stty -a | tr ' ' '\\n' | grep -xE 'icanon|echo|isig' | tr '\\n' '+'; echo usable",
        "Enter",
    ]);
    terminal.wait_for(|lines| {
        let is_said =
            |line: &String| ["isig+", "icanon+", "echo+", "usable"].iter().all(|part| line.contains(part));
        lines.iter().any(|line| is_said(line) && !line.contains("stty"))
    });
    terminal.types(&["clear", "Enter"]);
    terminal.wait_for(|lines| lines.first().is_some_and(|line| line == "$"));
}

#[test]
fn a_terminal_is_drawn_and_left_as_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let mut hostile = Caller::named("\u{1b}[31mred");
    let mut caller = Caller::named("quiet one");
    let terminal = Terminal::start(dir.path());
    let pids = format!("-P {},{}", hostile.pid(), caller.pid());
    let start = |more: &str| {
        let script = "sh -c 'echo $$ >pid; exec \"$0\" \"$@\"'";
        let top = format!("{} top -e raw_syscalls:sys_enter -f 'id == 110' {pids}", agent_path().display());
        terminal.types(&[&format!("{script} {top} --interval 100ms {more}; echo code $?"), "Enter"]);
        terminal.wait_for(|lines| {
            lines.iter().any(|line| line.contains(" raw_syscalls:sys_enter")) && lines[1].contains("1 Events")
        });
    };
    start("");
    assert_eq!(state(&terminal), "0 1 1\n");
    hostile.call(500);
    caller.call(20);
    let has = |lines: &[String], parts: &[&str]| {
        lines.iter().any(|line| parts.iter().all(|part| line.contains(part)))
    };
    terminal.wait_for(|lines| {
        has(lines, &[" 520 ", "raw_syscalls:sys_enter"]) && lines[0].ends_with(", 520 events")
    });
    terminal.types(&["2"]);
    terminal.wait_for(|lines| {
        has(lines, &[" 500 ", &hostile.pid().to_string(), r"\x1b[31mred"])
            && has(lines, &[" 20 ", &caller.pid().to_string(), "quiet one"])
    });
    // Only some rows.
    terminal.types(&["/quiet", "Enter"]);
    terminal.wait_for(|lines| {
        has(lines, &["quiet one"]) && !has(lines, &["red"]) && has(lines, &["/quiet  (Esc: all)"])
    });
    terminal.types(&["Escape"]);
    terminal.wait_for(|lines| has(lines, &["red"]));
    // Sorted by their names; what is sorted by is told.
    terminal.types(&["s", "s"]);
    terminal.wait_for(|lines| lines[1].contains("by name"));
    // Nothing changes, and everything is counted, while it is stopped.
    terminal.types(&["Space"]);
    terminal.wait_for(|lines| lines[0].starts_with("[stopped]"));
    caller.call(80);
    terminal.types(&["Space"]);
    terminal.wait_for(|lines| lines[0].ends_with(", 600 events"));
    terminal.types(&["3"]);
    terminal.wait_for(|lines| has(lines, &["TOTAL CPU"]));
    terminal.types(&["h"]);
    terminal.wait_for(|lines| has(lines, &["q           quit"]));
    terminal.types(&["h", "1", "+"]);
    terminal.wait_for(|lines| lines[1].contains("each 200ms"));
    // In another size it is drawn anew.
    terminal.tmux(&["resize-window", "-x", "40", "-y", "8"]);
    let small = terminal.wait_for(|lines| {
        lines.len() == 8 && has(lines, &[" raw_syscalls:sys_enter"]) && lines[7].starts_with("q quit")
    });
    assert!(small.iter().all(|line| line.chars().count() <= 40), "{small:#?}");
    terminal.tmux(&["resize-window", "-x", "110", "-y", "30"]);
    terminal.wait_for(|lines| lines.len() == 30 && lines[29].starts_with("q quit"));
    terminal.types(&["q"]);
    let end = terminal.wait_for(|lines| has(lines, &["code 0"]));
    assert!(has(&end, &[", 600 events"]), "{end:#?}");
    is_usable(&terminal);

    for signal in [libc::SIGTERM, libc::SIGINT] {
        start("");
        let pid: i32 = fs::read_to_string(dir.path().join("pid")).unwrap().trim().parse().unwrap();
        // SAFETY: plain numbers; the process runs, as it has drawn, and ends by this.
        assert_eq!(unsafe { libc::kill(pid, signal) }, 0);
        terminal.wait_for(|lines| has(lines, &["code 0"]));
        is_usable(&terminal);
    }
    // Ctrl-C is a key there.
    start("");
    terminal.types(&["C-c"]);
    terminal.wait_for(|lines| has(lines, &["code 0"]));
    is_usable(&terminal);
    // A command neither writes on the screen nor reads keys, and its status is passed on.
    start("sh -c 'echo GARBAGE; echo GARBAGE >&2; cat; while [ ! -e end ]; do sleep 0.05; done; exit 3'");
    assert!(!has(&terminal.lines(), &["GARBAGE"]), "{:#?}", terminal.lines());
    terminal.types(&["2"]);
    terminal.wait_for(|lines| has(lines, &["MOST OF"]));
    fs::write(dir.path().join("end"), "").unwrap();
    terminal.wait_for(|lines| has(lines, &["code 3"]));
    is_usable(&terminal);
    // It ends with the processes that it is about.
    start("");
    drop((hostile, caller));
    terminal.wait_for(|lines| has(lines, &["code 0"]));
    is_usable(&terminal);
}

/// A session named `one` that records the calls of a caller, and is started.
fn session(daemon: &Daemon, caller: &Caller) {
    let call =
        json!({"name": "raw_syscalls:sys_enter", "instrumentation": "tracepoint", "filter": "id == 110"});
    daemon.session(ROOT, "one", &daemon.path().join("out"), &[call]);
    let only = json!({"attribute": "pid", "values": {"only": [caller.pid().to_string()]}, "add": true});
    daemon.tell("POST", "/v1/sessions/one/domains/kernel/trackers", Some(&only));
    daemon.tell("POST", "/v1/sessions/one/start", None);
}

#[test]
fn sessions_of_the_daemon_are_printed() {
    let daemon = Daemon::start();
    let mut caller = Caller::start();
    session(&daemon, &caller);
    caller.call(3000);
    caller.settle();
    let socket = daemon.socket();
    let top = |args: &[&str]| {
        let mut top =
            agent(daemon.path(), ["top", "--interval", "50ms", "--socket", socket.to_str().unwrap()]);
        run(top.args(args))
    };
    let ended = top(&["--session", "one", "--json", "-n", "2"]).expect(0);
    let tables = tables(&ended.out);
    assert_eq!(tables.iter().map(|table| table["last"].clone()).collect::<Vec<_>>(), [false, true]);
    for table in &tables {
        let (session, event) = (&table["sessions"][0], &table["events"][0]);
        assert_eq!((number(session, "events"), number(event, "events")), (3000, 3000), "{table}");
        assert_eq!(event["name"], "raw_syscalls:sys_enter in channel0");
        assert_eq!((&session["events_per_second"], &event["stored_bytes"]), (&json!(0.0), &Value::Null));
        let of_cpus: u64 = table["cpus"].as_array().unwrap().iter().map(|cpu| number(cpu, "events")).sum();
        assert_eq!(of_cpus, 3000, "{table}");
    }
    let ended = top(&["--sessions", "-n", "1"]).expect(0);
    assert!(
        ended.out.lines().any(|line| line.contains(" 3 000 ") && line.contains("one (user 0)")),
        "{}",
        ended.out
    );
    top(&["--session", "two"]).expect(1).says(&["there is no session two", "--sessions"]);
    top(&["--session", "one", "-e", "sched_switch"]).expect(2).says(&["--events is about events"]);
    daemon.stop().expect(0);
    run(&mut agent(Path::new("/"), ["top", "--sessions", "--socket", socket.to_str().unwrap()]))
        .expect(1)
        .says(&["no session daemon listens on", "starts one"]);
}

#[test]
fn a_session_of_the_daemon_is_drawn() {
    let daemon = Daemon::start();
    let mut caller = Caller::start();
    session(&daemon, &caller);
    let terminal = Terminal::start(daemon.path());
    let (top, socket) = (agent_path(), daemon.socket());
    let (top, socket) = (top.display(), socket.display());
    let line = format!("{top} top --session one --interval 100ms --socket {socket}; echo code $?");
    terminal.types(&[&line, "Enter"]);
    let has = |lines: &[String], parts: &[&str]| {
        lines.iter().any(|line| parts.iter().all(|part| line.contains(part)))
    };
    terminal.wait_for(|lines| lines[0].contains("1 Rings") && lines[0].contains("session one"));
    caller.call(1234);
    terminal.types(&["2"]);
    terminal.wait_for(|lines| has(lines, &["CHANNEL"]) && has(lines, &["%", " 1 234 "]));
    // What holds the reader up fills the ring, and what is lost is told with its cause.
    daemon.signal(libc::SIGSTOP);
    caller.call(400_000);
    daemon.signal(libc::SIGCONT);
    terminal.tmux(&["resize-window", "-x", "200", "-y", "30"]);
    terminal.wait_for(|lines| has(lines, &["channel0", "lost: ring_full"]));
    terminal.types(&["3"]);
    terminal.wait_for(|lines| has(lines, &["raw_syscalls:sys_enter in channel0"]));
    terminal.types(&["q"]);
    terminal.wait_for(|lines| has(lines, &["code 0"]));
    is_usable(&terminal);
}

#[test]
fn what_makes_no_sense_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let refused = |args: &[&str], code: i32, text: &str| {
        run(agent(dir.path(), ["top"]).args(args)).expect(code).says(&[text]);
    };
    refused(&["-e", "syscalls:*"], 2, "top counts 64 events at most");
    refused(&["-e", "nothing_like_it"], 112, "no such event nothing_like_it");
    refused(&["-e", "sched_switch", "-f", "nothing == 1"], 2, "nothing");
    refused(&["-e", "sched:*", "-e", "sched_switch", "-f", "next_pid == 1"], 2, "with different filters");
    refused(&["--interval", "1ms"], 2, "--interval is 50ms at least");
    refused(&["--output", "x.dat"], 2, "--output is an option of record");
    refused(&["-n", "0"], 2, "0 is not in");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}
