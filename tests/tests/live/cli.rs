//! What users and scripts read: lists, reports, help, and the progress on a terminal.

use std::{
    fs::{self, File},
    io::Write as _,
    path::Path,
    process::Stdio,
};

use ftrace_event::Cmdlines;
use integration_tests::harness::{Ended, Marked, Running, agent, agent_path, program, run, wait_for};
use tracedat::layout::header_page_text;
use tracedat::page::{PageBuilder, Push};
use tracedat::{Buffer, EventSystem, FileOption, Section, Setup, Writer};

fn tool(args: &[&str]) -> Ended {
    run(&mut agent("/".as_ref(), args))
}

/// Panics unless Python parses `json`; returns what `expression` gives for it, called `j`.
fn python(json: &str, expression: &str) -> String {
    let script = format!("import json, sys; j = json.load(sys.stdin); print({expression})");
    let mut child = program("/".as_ref(), "python3", ["-c", &script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(json.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "not JSON: {json}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

#[test]
fn list_names_every_event_of_the_kernel_once() {
    let listed = tool(&["list"]).expect(0).out;
    // Those that ftrace writes itself are listed with that remark; available_events has none of them.
    let (internal, mut listed): (Vec<&str>, Vec<&str>) =
        listed.lines().partition(|line| line.starts_with("ftrace:"));
    let (recorded, other): (Vec<&str>, Vec<&str>) =
        internal.iter().copied().partition(|line| *line == "ftrace:print");
    assert_eq!(recorded.len(), 1);
    assert!(other.iter().all(|line| line.contains("cannot be recorded")), "{internal:?}");
    let available = fs::read_to_string("/sys/kernel/tracing/available_events").unwrap();
    let mut available: Vec<&str> = available.lines().collect();
    listed.sort_unstable();
    available.sort_unstable();
    let missing: Vec<_> = available.iter().filter(|name| listed.binary_search(name).is_err()).collect();
    assert!(missing.is_empty(), "not listed: {missing:?}");
    let made_up: Vec<_> = listed.iter().filter(|name| available.binary_search(name).is_err()).collect();
    assert!(made_up.is_empty(), "no such events: {made_up:?}");
    assert_eq!(listed.len(), available.len());
}

#[test]
fn list_selects_by_glob_and_shows_fields() {
    let listed = tool(&["list", "-e", "sched:sched_process_*"]).expect(0).out;
    assert!(
        listed.lines().count() >= 5 && listed.lines().all(|line| line.starts_with("sched:sched_process_"))
    );
    let fields = tool(&["list", "-e", "sched:sched_switch", "--fields"]).expect(0).out;
    for field in ["prev_comm", "prev_pid", "next_comm", "next_prio"] {
        assert!(fields.contains(field), "{fields}");
    }
    tool(&["list", "-e", "sched:sched_swich"]).expect(112).says(&["sched:sched_swich", "sched:sched_switch"]);
}

#[test]
fn list_and_doctor_speak_json() {
    let json = tool(&["list", "-e", "sched:*", "--fields", "--json"]).expect(0).out;
    assert!(python(&json, "'sched_switch' in json.dumps(j) and 'next_pid' in json.dumps(j)") == "True");
    let all = tool(&["list", "--json"]).expect(0).out;
    assert!(python(&all, "len(json.dumps(j)) > 10000") == "True");
    let json = tool(&["doctor", "--json"]).out;
    assert!(python(&json, "len(j) > 0") == "True");
}

#[test]
fn doctor_finds_that_root_can_record_here() {
    let ended = tool(&["doctor"]).expect(0);
    assert!(ended.out.to_lowercase().contains("tracefs") && ended.out.contains("BTF"), "{}", ended.out);
}

#[test]
fn every_command_has_help_and_wrong_usage_is_code_2() {
    assert!(tool(&["--help"]).expect(0).out.contains("EXIT CODES"));
    for command in ["record", "recover", "list", "doctor"] {
        for flag in ["--help", "-h"] {
            let help = tool(&[command, flag]).expect(0);
            assert!(help.out.contains("Usage:") && help.err.is_empty(), "{help:?}");
        }
        let wrong = tool(&[command, "--no-such-option"]).expect(2);
        assert!(wrong.out.is_empty() && wrong.err.contains("--no-such-option"), "{wrong:?}");
    }
    assert!(tool(&["--version"]).expect(0).out.starts_with("tracer-agent "));
    tool(&[]).expect(2);
    tool(&["record"]).expect(2).says(&["-e"]);
    tool(&["recover"]).expect(2);
}

#[test]
fn a_small_stack_is_enough() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("small.dat");
    let agent = agent_path();
    let limited = |args: &[&str]| {
        let script = "ulimit -s 128; exec \"$@\"";
        let words = [&["-c", script, "sh", agent.to_str().unwrap()], args].concat();
        run(&mut program(dir.path(), "sh", words)).expect(0)
    };
    let path = file.to_str().unwrap();
    limited(&["record", "-o", path, "-e", "sched", "true"]);
    assert!(!limited(&["report", path]).out.is_empty());
}

#[test]
fn a_name_with_a_bracket_is_found_and_one_that_no_thread_has_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let odd = dir.path().join("[odd]");
    fs::copy("/bin/true", &odd).unwrap();
    let record = |name: &str| {
        let args = ["record", "-o", "names.dat", "-e", "sched:sched_process_exit", "--comm", name];
        run(agent(dir.path(), args).arg(&odd)).expect(0)
    };
    // A set of characters, of which no name consists here.
    record("[odd]").says(&["--comm", "\\["]);
    let found = record("\\[odd]");
    assert!(!found.err.contains("no event of a thread"), "{}", found.err);
    let report = run(&mut agent(dir.path(), ["report", "names.dat"])).expect(0).out;
    assert!(report.contains("[odd]-"), "{report}");
}

#[test]
fn function_tracing_that_the_kernel_refuses_is_no_matter_of_privileges() {
    let dir = tempfile::tempdir().unwrap();
    let doctor = tool(&["doctor"]).out;
    let line = |name: &str| doctor.lines().find(|line| line.split_whitespace().nth(1) == Some(name)).unwrap();
    let supported = line("fentry:").starts_with("ok");
    assert!(supported || line("fentry:").starts_with("no"), "root can try it: {doctor}");
    for (option, probe) in [("--fentry", "vfs_read count"), ("--fexit", "vfs_read $retval")] {
        let ended =
            run(&mut agent(dir.path(), ["record", option, probe, "-o", "f.dat", "cat", "/etc/passwd"]));
        if supported {
            let ended = ended.expect(0);
            assert!(!ended.err.contains(" 0 events"), "{}", ended.err);
        } else {
            let ended = ended.expect(111).says(&["this kernel", "tracepoints"]);
            assert!(!ended.err.contains("sudo"), "root already: {}", ended.err);
        }
    }
}

#[test]
fn a_reader_that_has_enough_is_no_error() {
    for command in
        ["list", "list --fields", "list --json", "doctor", "doctor --json", "--help", "record --help"]
    {
        let script = format!("set -o pipefail; '{}' {command} | head -n 1", agent_path().display());
        let ended = run(&mut program("/".as_ref(), "bash", ["-c", &script])).expect(0);
        assert!(ended.err.is_empty(), "{command}: {}", ended.err);
        assert_eq!(ended.out.lines().count(), 1, "{command}");
        // A pipe that nobody reads at all: the first write fails.
        let script = format!("'{}' {command} | true; echo ${{PIPESTATUS[0]}}", agent_path().display());
        let ended = run(&mut program("/".as_ref(), "bash", ["-c", &script])).expect(0);
        assert_eq!((ended.out.trim(), ended.err.as_str()), ("0", ""), "{command}");
    }
}

#[test]
fn progress_is_shown_on_a_terminal_only() {
    let dir = tempfile::tempdir().unwrap();
    let (piped_dir, quiet_dir) = (dir.path().join("piped"), dir.path().join("quiet"));
    for dir in [&piped_dir, &quiet_dir] {
        fs::create_dir(dir).unwrap();
    }
    // All three record until the terminal has shown progress: what the others say is said in the same time.
    let on_terminal = |dir: &Path, options: &str, typescript: &str| {
        let waits = format!("until [ -e {}/shown ]; do sleep 0.02; done", dir.parent().unwrap().display());
        let line = format!(
            "'{}' record {options} -e sched:sched_switch -o t.dat sh -c '{waits}'",
            agent_path().display()
        );
        Running::start(&mut program(dir, "script", ["-qfec", &line, typescript]))
    };
    let piped = Marked::start(&piped_dir, &["-e", "sched:sched_switch"]);
    let quiet = on_terminal(&quiet_dir, "-q", "typescript");
    let typescript = piped_dir.join("typescript");
    let loud = on_terminal(&piped_dir, "", "typescript");
    wait_for("progress on a terminal", || {
        let shown = fs::read_to_string(&typescript).unwrap_or_default();
        // The second one is a while after all of them have begun.
        (shown.matches("\rrecording: ").count() >= 2).then_some(())
    });
    fs::write(dir.path().join("shown"), "").unwrap();
    let (piped, quiet, shown) = (piped.finish().expect(0), quiet.wait().expect(0), loud.wait().expect(0).out);
    assert!(!piped.err.contains('\r') && !piped.err.contains('\x1b'), "{:?}", piped.err);
    assert!(!piped.err.contains("recording:") && !piped.err.contains("attaching"), "{:?}", piped.err);
    let begun = "tracer-agent: recording until the command exits; Ctrl-C stops it\n";
    assert!(piped.err.starts_with(begun), "{:?}", piped.err);
    // Only the agent itself was left out.
    assert!(!piped.err.contains("left out by filters"), "{:?}", piped.err);
    assert!(shown.contains("\rrecording: ") && shown.contains("none lost"), "{shown:?}");
    let order =
        ["\rattaching 0 of 1\x1b[K", "\rrecording until the command exits", "\rrecording: ", "t.dat: "];
    let places = order.map(|text| shown.find(text));
    assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{places:?} {shown:?}");
    assert!(shown.contains("\x1b[K") && shown.contains("t.dat: "), "wiped, then the summary: {shown:?}");
    assert_eq!(quiet.out, "", "-q is quiet there too");
}

#[test]
fn colours_are_shown_on_a_terminal_only() {
    let dir = tempfile::tempdir().unwrap();
    run(&mut agent(dir.path(), ["record", "-q", "-e", "sched:sched_process_exec", "true"])).expect(0);
    let plain = run(&mut agent(dir.path(), ["report"])).expect(0).out;
    assert!(plain.contains(" sched_process_exec: ") && !plain.contains('\x1b'), "{plain:?}");
    let coloured = run(&mut agent(dir.path(), ["report", "--color", "always"])).expect(0).out;
    assert!(coloured.contains("\x1b[36m sched_process_exec: "), "{coloured:?}");
    assert_eq!(coloured.replace("\x1b[36m", "").replace("\x1b[0m", ""), plain);
    let on_terminal = |variable: &str, options: &str| {
        let line = format!("{variable} '{}' report {options}", agent_path().display());
        run(&mut program(dir.path(), "script", ["-qec", &line, "/dev/null"])).expect(0).out.replace('\r', "")
    };
    assert_eq!(on_terminal("NO_COLOR=", ""), coloured);
    for (variable, options) in [("NO_COLOR=1", ""), ("NO_COLOR=", "--color never")] {
        assert_eq!(on_terminal(variable, options), plain, "{variable} {options}");
    }
}

/// What a terminal obeys: ESC, BEL, DEL, CSI of C1 as UTF-8, and an override of the direction.
const ACTIVE: [&[u8]; 5] = [b"\x1b", b"\x07", b"\x7f", b"\xc2\x9b", b"\xe2\x80\xae"];

/// A recording in which everything that has a name has a hostile one.
fn hostile_recording(path: &Path) {
    let comm = b"e\x1b]0;x\x07\nforged";
    let common = "\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
        \tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;\n\
        \tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;\n\
        \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n";
    let format = |name: &str, id: u32, field: &str| {
        format!(
            "name: {name}\nID: {id}\nformat:\n{common}\tfield:u64 {field};\toffset:8;\tsize:8;\tsigned:0;\n\
             \tfield:char text[24];\toffset:16;\tsize:24;\tsigned:0;\n\n\
             print fmt: \"%pS says %s\", (void *)REC->{field}, REC->text\n"
        )
    };
    let plain = format("plain", 301, "at");
    let hostile =
        [format("said\x1b[31m", 300, "at"), format("field", 302, "at\x1b[1m"), format("c1", 303, "at\u{9b}")];
    let setup = Setup::default();
    let endian = setup.endian;
    let mut pages = PageBuilder::new(setup.page_size as usize, endian).unwrap();
    for (number, id) in [300_u32, 301, 301, 302, 303].into_iter().enumerate() {
        let mut record = [id.to_le_bytes(), 42_u32.to_le_bytes()].concat();
        record.extend_from_slice(&0xffff_ffff_8100_0000_u64.to_le_bytes());
        let mut text = b"\x1b[2J\x9b3;\xc2\x9b\x7f\xe2\x80\xae\nforged".to_vec();
        text.resize(24, 0);
        record.extend_from_slice(&text);
        assert_eq!(pages.push(1_000_000 * number as u64, &record).unwrap(), Push::Stored);
    }
    let mut writer = Writer::create(File::create(path).unwrap(), setup).unwrap();
    writer.section(Section::header_info(endian, &header_page_text(setup.page_size), "").unwrap()).unwrap();
    let hostile = hostile.each_ref().map(String::as_str);
    let systems =
        [EventSystem { name: "s\x1b[5m", formats: &hostile }, EventSystem { name: "t", formats: &[&plain] }];
    writer.section(Section::event_formats(endian, &systems).unwrap()).unwrap();
    let symbols = b"ffffffff81000000 T sym\x1b[1mbol\nffffffff81001000 T end\x9b\n";
    writer.section(Section::kallsyms(endian, symbols).unwrap()).unwrap();
    writer.section(Section::printk(endian, b"0x20 : \"\x1b[7m\"\n").unwrap()).unwrap();
    let mut names = Cmdlines::default();
    names.insert(42, comm);
    writer.section(Section::cmdlines(endian, &names)).unwrap();
    for text in [
        FileOption::Uname("uname\x1b[2m".to_owned()),
        FileOption::Version("version\u{9b}".to_owned()),
        FileOption::CpuStat("CPU: 0\x07\n".to_owned()),
    ] {
        writer.option(&text).unwrap();
    }
    let mut top =
        writer.begin_buffer(Buffer { name: "", clock: "mono", page_size: setup.page_size }).unwrap();
    top.write_cpu(0, pages.finish().unwrap()).unwrap();
    top.finish().unwrap();
    let name = "buf\x1b[4m";
    writer
        .begin_buffer(Buffer { name, clock: "mono", page_size: setup.page_size })
        .unwrap()
        .finish()
        .unwrap();
    writer.finish().unwrap();
}

/// A copy of the C library in which a function has a name of the same length that a terminal obeys.
fn hostile_library(path: &Path) {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let libc = maps.split_whitespace().find(|word| word.contains("/libc.so")).unwrap();
    let mut bytes = fs::read(libc).unwrap();
    let name = b"\0getservbyname\0";
    let at = bytes.windows(name.len()).position(|window| window == name).unwrap();
    bytes[at + 1..at + 7].copy_from_slice(b"\x1b]0;x\x07");
    fs::write(path, bytes).unwrap();
}

#[test]
fn names_do_nothing_to_a_terminal() {
    let dir = tempfile::tempdir().unwrap();
    hostile_recording(&dir.path().join("h.dat"));
    hostile_library(&dir.path().join("h.so"));
    fs::write(dir.path().join("no\x1b[31m.dat"), "nothing").unwrap();
    let agent_path = agent_path();
    // (command, whether it escapes in pipes too: it has a layout of its own)
    let commands = [
        ("report h.dat", false),
        ("report -N h.dat", false),
        ("report -R h.dat", false),
        ("report -l --ts-diff -t h.dat", false),
        ("report -w h.dat", false),
        ("report h.dat ./h.dat", false),
        ("report --stat h.dat", false),
        ("report --uname --version h.dat", false),
        ("report --events h.dat", false),
        ("report -E h.dat", false),
        ("report -f h.dat", false),
        ("report -P h.dat", false),
        ("report --json h.dat", true),
        ("info h.dat", true),
        ("info --json h.dat", true),
        ("hist h.dat plain text", true),
        ("hist h.dat plain text --json", true),
        ("convert h.dat --force --json -o $'x\\x1b\\x7f\\xe2\\x80\\xae' 2>/dev/null", true),
        ("list --symbols h.so", false),
        ("list --symbols h.so --json", true),
        ("report $'no\\x1b[31m.dat'", false),
        ("report $'gone\\x1b[31m.dat'", false),
        ("info $'gone\\x1b[31m.dat'", false),
        ("check $'no\\x1b[31m.dat'", true),
        ("convert $'gone\\x1b[31m.dat' -o x", false),
        ("report --cpu $'\\x1b[31m'", true),
        ("list -e $'\\x1b[31m:x'", true),
        ("record -e $'\\x1b[31m:x' true", true),
    ];
    for (command, always) in commands {
        let line = format!("{} {command} 2>&1", agent_path.display());
        let piped = program(dir.path(), "bash", ["-c", &line]).output().unwrap().stdout;
        let shell = format!("NO_COLOR=1 {} {command}", agent_path.display());
        // The shell of `script` is that of SHELL.
        let mut script = program(dir.path(), "script", ["-qc", &shell, "/dev/null"]);
        let shown = script.env("SHELL", "/bin/bash").output().unwrap().stdout;
        for active in ACTIVE {
            let found = shown.windows(active.len()).any(|window| window == active);
            assert!(!found, "{command}: {active:?} in {:?}", String::from_utf8_lossy(&shown));
        }
        // But for the records of `report`, JSON has escapes for control characters wherever it goes.
        if command.contains("--json") && !command.starts_with("report") {
            for control in &ACTIVE[..4] {
                let found = piped.windows(control.len()).any(|window| window == *control);
                assert!(!found, "{command}: {control:?} in {:?}", String::from_utf8_lossy(&piped));
            }
        }
        // A byte of C1 alone is no UTF-8.
        assert!(std::str::from_utf8(&shown).is_ok(), "{command}: {:?}", String::from_utf8_lossy(&shown));
        let text = String::from_utf8_lossy(&shown);
        let escapes = ["\\x1b", "\\x07", "\\xc2\\x9b", "\\u001b", "\\u{1b}"];
        assert!(escapes.iter().any(|escape| text.contains(escape)), "{command}: {text}");
        assert!(!text.lines().any(|line| line.starts_with("forged")), "{command}: {text}");
        let is_raw = piped.contains(&0x1b) || piped.contains(&7);
        assert!(always || is_raw || command.contains("version"), "{command} keeps bytes in pipes");
    }
    let line = format!("NO_COLOR= {} report -R h.dat", agent_path.display());
    let shown = program(dir.path(), "script", ["-qc", &line, "/dev/null"]).output().unwrap().stdout;
    let shown = String::from_utf8(shown).unwrap();
    assert!(shown.contains("\x1b[36m plain: "), "its own colours stay: {shown}");
    // In pipes, lines are those of stock trace-cmd, byte by byte.
    let stock = program(dir.path(), "trace-cmd", ["report", "-i", "h.dat"]).output().unwrap().stdout;
    let ours = agent(dir.path(), ["report", "h.dat"]).output().unwrap().stdout;
    let plain = |text: &[u8]| {
        let lines =
            text.split(|byte| *byte == b'\n').filter(|line| line.windows(7).any(|word| word == b" plain:"));
        lines.map(<[u8]>::to_vec).collect::<Vec<_>>()
    };
    assert_eq!(plain(&ours).len(), 2);
    assert_eq!(plain(&ours), plain(&stock));
}

#[test]
fn errors_say_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    hostile_recording(&dir.path().join("h.dat"));
    let bytes = fs::read(dir.path().join("h.dat")).unwrap();
    fs::write(dir.path().join("cut.dat"), &bytes[..60]).unwrap();
    let run = |args: &[&str]| run(&mut agent(dir.path(), args));
    run(&["report", "cut.dat"]).expect(1).says(&["cannot read cut.dat", "tracer-agent repair"]);
    run(&["info", "cut.dat"]).expect(1).says(&["cannot read cut.dat", "tracer-agent repair"]);
    for files in [["h.dat", "cut.dat"], ["cut.dat", "h.dat"]] {
        run(&["diff", files[0], files[1]]).expect(1).says(&["cannot read cut.dat", "tracer-agent repair"]);
    }
    let other = run(&["report", "/proc/self/exe"]).expect(1);
    assert!(!other.err.contains("repair"), "nothing of it can be saved: {}", other.err);

    run(&["record", "-p", "function", "true"]).expect(2).says(&["no option -p", "--function GLOB"]);
    run(&["record", "--user=me", "-e", "sched", "true"]).expect(2).says(&["--user=me", "sudo -u"]);
    run(&["report", "--profile", "h.dat"]).expect(2).says(&["--profile", "tracer-agent hist"]);
    // No machine has that many CPUs, nor one of that number.
    run(&["record", "-e", "sched:sched_switch", "-M", "9,00000000,00000000,00000000", "true"]).expect(2);
    let possible = fs::read_to_string("/sys/devices/system/cpu/possible").unwrap();
    let last: u32 = possible.trim().rsplit(['-', ',']).next().unwrap().parse().unwrap();
    if last < 15 {
        let refused = run(&["record", "-e", "sched:sched_switch", "-M", "9000", "true"]).expect(2);
        refused.says(&["-M 9000: ", "9000 is the hexadecimal mask of CPU 12,15", "write 9000-9000"]);
    }

    let shown = |args: &[&str]| run(&[&["report", "h.dat"], args].concat()).expect(0);
    let all = shown(&[]).out;
    assert_eq!(
        (shown(&["--comm", "e*x*forged"]).out, shown(&["--since", "0ms", "--until", "1h"]).out),
        (all.clone(), all)
    );
    for none in [&["--comm", "x*"][..], &["--since", "2h"], &["--cpu", "7"], &["-F", "plain: at == 1"]] {
        let ended = shown(none);
        assert_eq!(ended.out.lines().count(), 1, "{none:?}: {}", ended.out);
        ended.says(&["no event matches"]);
    }
    assert!(!shown(&["--cpu", "0"]).err.contains("no event matches"));

    run(&["convert", "h.dat", "-o", "new.dat"]).expect(0);
    let first = fs::read(dir.path().join("new.dat")).unwrap();
    run(&["convert", "h.dat", "-o", "new.dat", "--compression", "none"])
        .expect(114)
        .says(&["new.dat exists", "--force"]);
    assert_eq!(fs::read(dir.path().join("new.dat")).unwrap(), first);
    run(&["convert", "h.dat", "--output", "new.dat", "--compression", "none", "--force"]).expect(0);
    assert_ne!(fs::read(dir.path().join("new.dat")).unwrap(), first);
}
