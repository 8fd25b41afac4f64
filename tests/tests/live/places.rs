//! Bad input and bad places: each gives an error that says what was tried, why it failed and what to do, or
//! works all the same.

use std::{
    fs,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::{Path, PathBuf},
    process::Command,
};

use integration_tests::harness::{
    Ended, Ledger, Report, Tmpfs, agent, agent_path, files, is_getppid, program, run,
};

const SWITCH: &str = "sched:sched_switch";
/// Calls getppid 100 times.
const CALLS: [&str; 3] = ["perl", "-e", "getppid() for 1..100"];

fn record(dir: &Path, args: &[&str]) -> Ended {
    run(agent(dir, ["record"]).args(args))
}

/// Fails with `code`, says each of `texts` and leaves nothing behind.
#[track_caller]
fn refused(args: &[&str], code: i32, texts: &[&str]) {
    let dir = tempfile::tempdir().unwrap();
    let ended = record(dir.path(), args).expect(code).says(texts);
    assert!(ended.err.starts_with("tracer-agent: ") || ended.err.starts_with("error: "), "{}", ended.err);
    assert_eq!(files(dir.path()), [""; 0], "{args:?} left something behind");
}

/// Records 100 calls with these options before the command and checks the file.
#[track_caller]
fn works(args: &[&str]) -> Ended {
    let dir = tempfile::tempdir().unwrap();
    let mut all = vec!["-e", "raw_syscalls:sys_enter", "-F"];
    all.extend(args);
    all.extend(CALLS);
    let ended = record(dir.path(), &all).expect(0);
    assert_eq!(files(dir.path()), ["trace.dat"]);
    assert_eq!(Report::of(&dir.path().join("trace.dat")).count(is_getppid), 100, "{args:?}");
    ended
}

/// Runs a shell script in a mount namespace of its own. `$AGENT` is the agent.
fn in_private_mounts(dir: &Path, script: &str) -> Ended {
    let mut command = program(dir, "unshare", ["--mount", "--propagation", "private", "sh", "-ec", script]);
    run(command.env("AGENT", agent_path()))
}

/// A directory that everybody may write to, with a copy of the agent that everybody may run.
struct Public {
    dir: tempfile::TempDir,
    agent: PathBuf,
}

impl Public {
    fn make() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let agent = dir.path().join("agent");
        fs::copy(agent_path(), &agent).unwrap();
        let open = fs::Permissions::from_mode(0o755);
        fs::set_permissions(&agent, open).unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
        Self { dir, agent }
    }

    fn run_as(&self, setpriv: &[&str], args: &[&str]) -> Ended {
        run(program(self.dir.path(), "setpriv", setpriv).arg(&self.agent).args(args))
    }
}

const NOBODY: [&str; 3] = ["--reuid=65534", "--regid=65534", "--clear-groups"];

#[test]
fn an_ordinary_user_is_told_what_is_missing() {
    let public = Public::make();
    let ended = public.run_as(&NOBODY, &["record", "-e", SWITCH, "true"]).expect(110);
    let ended = ended.says(&["ermission", "root", "tracer-agent doctor"]);
    assert!(ended.err.lines().count() <= 4, "short: {}", ended.err);
    assert_eq!(files(public.dir.path()), ["agent"]);
    let doctor = public.run_as(&NOBODY, &["doctor"]);
    assert!(doctor.err.is_empty() && doctor.out.contains("CAP_"), "{doctor:?}");
    assert_eq!(doctor.code(), 110, "what is missing is a permission: {}", doctor.out);
    public.run_as(&NOBODY, &["list"]).expect(110).says(&["ermission"]);
}

#[test]
fn capabilities_are_enough() {
    let public = Public::make();
    // Without the third, the limit of open files stays as it is; containers often take it even from root.
    let caps = if has_sys_resource() {
        "+bpf,+perfmon,+dac_read_search,+sys_resource"
    } else {
        "+bpf,+perfmon,+dac_read_search"
    };
    let ambient = [format!("--inh-caps={caps}"), format!("--ambient-caps={caps}")];
    let mut setpriv = NOBODY.to_vec();
    setpriv.extend(ambient.iter().map(String::as_str));
    let mut args = vec!["record", "-e", "raw_syscalls:sys_enter", "-F", "-c"];
    args.extend(CALLS);
    public.run_as(&setpriv, &args).expect(0);
    assert_eq!(Report::of(&public.dir.path().join("trace.dat")).count(is_getppid), 100);
    assert_eq!(files(public.dir.path()), ["agent", "trace.dat"]);
}

/// Whether this process may raise its limits.
fn has_sys_resource() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let set = status.lines().find_map(|line| line.strip_prefix("CapEff:")).unwrap();
    u64::from_str_radix(set.trim(), 16).unwrap() >> 24 & 1 == 1
}

#[test]
fn more_events_than_open_files_are_refused_before_anything_is_done() {
    let public = Public::make();
    let caps = "+bpf,+perfmon,+dac_read_search";
    let ambient = [format!("--inh-caps={caps}"), format!("--ambient-caps={caps}")];
    let mut command = program(public.dir.path(), "prlimit", ["--nofile=64:64", "setpriv"]);
    command.args(NOBODY).args(&ambient).arg(&public.agent);
    let ended = run(command.args(["record", "-e", "syscalls", "touch", "ran"])).expect(110);
    let ended = ended.says(&["open files", "of this process is 64", "ulimit -n"]);
    assert_eq!(ended.err.lines().count(), 1, "{}", ended.err);
    assert_eq!(files(public.dir.path()), ["agent"]);
}

#[test]
fn root_with_a_low_limit_of_files_records_all_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let mut command = program(dir.path(), "prlimit", ["--nofile=64:64"]);
    command
        .arg(agent_path())
        .args(["record", "-e", "sched", "-e", "timer", "-e", "irq", "-e", "power", "-e", "ext4"]);
    let ended = run(command.args(["sh", "-c", "ulimit -n"]));
    if !has_sys_resource() {
        ended.expect(110).says(&["open files"]);
        return;
    }
    let ended = ended.expect(0);
    assert_eq!(ended.out, "64\n", "the command has the limit that the agent was started with");
    assert!(!ended.err.contains("not recorded"), "{}", ended.err);
    Report::of(&dir.path().join("trace.dat"));
}

#[test]
fn tracefs_need_not_be_mounted() {
    let dir = tempfile::tempdir().unwrap();
    let script =
        "umount -l /sys/kernel/debug/tracing 2>/dev/null || :; umount -l /sys/kernel/debug 2>/dev/null || :
        umount -l /sys/kernel/tracing
        ! test -e /sys/kernel/tracing/events
        \"$AGENT\" record -e raw_syscalls:sys_enter -F perl -e 'getppid() for 1..100'
        ! grep ' /sys/kernel/tracing ' /proc/self/mounts";
    in_private_mounts(dir.path(), script).expect(0);
    assert_eq!(Report::of(&dir.path().join("trace.dat")).count(is_getppid), 100);
    // Also where something else lies over both places.
    let script = "mount -t tmpfs none /sys/kernel/debug; mount -t tmpfs none /sys/kernel/tracing
        \"$AGENT\" record -e raw_syscalls:sys_enter -F -o over.dat perl -e 'getppid() for 1..100'
        \"$AGENT\" list -e sched:sched_switch";
    let ended = in_private_mounts(dir.path(), script).expect(0);
    assert_eq!(ended.out, "sched:sched_switch\n");
    assert_eq!(Report::of(&dir.path().join("over.dat")).count(is_getppid), 100);
}

#[test]
fn without_btf_it_records_and_says_what_is_missing() {
    let dir = tempfile::tempdir().unwrap();
    let hide = ": >empty; mount --bind empty /sys/kernel/btf/vmlinux";
    let script =
        format!("{hide}; \"$AGENT\" record -e raw_syscalls:sys_enter -F perl -e 'getppid() for 1..100'");
    in_private_mounts(dir.path(), &script).expect(0).says(&["BTF", "without it"]);
    assert_eq!(Report::of(&dir.path().join("trace.dat")).count(is_getppid), 100);
    let script = format!("{hide}; \"$AGENT\" record -e {SWITCH} -F -c true");
    in_private_mounts(dir.path(), &script).expect(111).says(&["-c: ", "to follow child processes", "BTF"]);
    let script = format!("{hide}; \"$AGENT\" doctor");
    assert!(in_private_mounts(dir.path(), &script).out.contains("BTF"));
}

#[test]
fn the_output_must_be_possible() {
    refused(
        &["-e", SWITCH, "-o", "no/such/dir/t.dat", "touch", "ran"],
        114,
        &["the directory no does not exist"],
    );
    refused(&["-e", SWITCH, "-o", "/proc", "true"], 114, &["/proc is a directory"]);
    for (args, why) in [
        (&["--overwrite"][..], "--overwrite"),
        (&["-m", "1M"], "-m"),
        (&["--rotate-size", "1M"], "-o DIRECTORY"),
        (&["--format", "lttng"], "-o DIRECTORY"),
        (&["--count", SWITCH], "--count"),
        (&["--for", "sched", "--live"], "--live"),
    ] {
        refused(&[&["-e", SWITCH, "-o", "-"], args, &["true"]].concat(), 2, &[why]);
    }
    refused(&["-e", SWITCH, "-o", "", "true"], 2, &["-o"]);
    refused(&["-e", SWITCH, "-o", "/proc/t.dat", "touch", "ran"], 114, &["/proc/t.dat"]);
    let name = "x".repeat(300);
    refused(&["-e", SWITCH, "-o", &name, "touch", "ran"], 114, &["name too long"]);
    // A name that is itself allowed, but not with the suffix of the spool.
    let name = "y".repeat(252);
    refused(&["-e", SWITCH, "-o", &name, "touch", "ran"], 114, &["name too long"]);
    let dir = tempfile::tempdir().unwrap();
    let name = "z".repeat(245);
    record(dir.path(), &["-e", SWITCH, "-o", &name, "true"]).expect(0);
    assert_eq!(files(dir.path()), [name]);
}

#[test]
fn a_read_only_place_is_named() {
    let disk = Tmpfs::mount("ro,size=1m");
    record(disk.path(), &["-e", SWITCH, "touch", "/tmp/ran-although-refused"])
        .expect(114)
        .says(&["trace.dat", "Read-only file system"]);
    assert!(!Path::new("/tmp/ran-although-refused").exists());
}

#[test]
fn the_output_may_be_on_another_file_system() {
    let (dir, disk) = (tempfile::tempdir().unwrap(), Tmpfs::mount("size=64m"));
    let output = disk.path().join("t.dat");
    record(dir.path(), &["-e", SWITCH, "-o", output.to_str().unwrap(), "true"]).expect(0);
    assert_eq!((files(dir.path()), files(disk.path())), (vec![], vec!["t.dat".to_owned()]));
    Report::of(&output);
}

#[test]
fn an_older_file_is_replaced_only_by_a_finished_one() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("trace.dat");
    fs::write(&file, "old").unwrap();
    record(dir.path(), &["-e", SWITCH, "sh", "-c", "cat trace.dat; exit 3"]).expect(3);
    Report::of(&file);
    fs::write(&file, "old").unwrap();
    record(dir.path(), &["-e", "no:such", "true"]).expect(112);
    assert_eq!(fs::read_to_string(&file).unwrap(), "old", "a start that failed touches nothing");
    // A link is followed, as other recorders do.
    let linked = dir.path().join("linked");
    symlink(&file, &linked).unwrap();
    record(dir.path(), &["-e", SWITCH, "-o", "linked", "true"]).expect(0);
    assert!(linked.is_symlink());
    Report::of(&file);
}

#[test]
fn an_output_that_is_no_file_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let ended = record(dir.path(), &["-e", SWITCH, "-o", "/dev/null", "true"]);
    assert_eq!(ended.code(), 114, "{ended:?}");
    ended.says(&["/dev/null", "not a regular file"]);
    assert!(!fs::metadata("/dev/null").unwrap().is_file());
}

#[test]
fn a_thread_is_no_process() {
    let dir = tempfile::tempdir().unwrap();
    let (end, ended) = std::sync::mpsc::channel::<()>();
    let thread = std::thread::spawn(move || ended.recv());
    let own = std::process::id();
    let tid = fs::read_dir("/proc/self/task")
        .unwrap()
        .filter_map(|entry| entry.unwrap().file_name().to_str()?.parse::<u32>().ok())
        .find(|&tid| tid != own)
        .unwrap();
    let ended = record(dir.path(), &["-e", SWITCH, "-P", &tid.to_string(), "true"]);
    drop(end);
    thread.join().unwrap().unwrap_err();
    assert_eq!(ended.code(), 2, "{ended:?}");
    ended.says(&["is a thread"]);
}

#[test]
fn a_working_directory_that_is_gone_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let script = "mkdir gone; cd gone; rmdir ../gone; \"$AGENT\" record -e sched:sched_switch true";
    let ended = run(program(dir.path(), "sh", ["-c", script]).env("AGENT", agent_path()));
    assert_eq!(ended.code(), 114, "{ended:?}");
    ended.says(&["trace.dat", "No such file or directory"]);
}

#[test]
fn commands_that_cannot_run_have_the_shells_codes() {
    refused(&["-e", SWITCH, "no-such-command"], 127, &["command not found: no-such-command"]);
    refused(&["-e", SWITCH, "./no-such-command"], 127, &["./no-such-command"]);
    refused(&["-e", SWITCH, ""], 127, &["command not found"]);
    refused(&["-e", SWITCH, "/etc/passwd"], 126, &["/etc/passwd", "ermission denied"]);
    refused(&["-e", SWITCH, "/etc"], 126, &["/etc"]);
    let dir = tempfile::tempdir().unwrap();
    let script = dir.path().join("script");
    fs::write(&script, "#!/no/such/interpreter\n").unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    let ended = record(dir.path(), &["-e", SWITCH, "./script"]);
    // As shells do: the kernel says ENOENT for the interpreter.
    assert!([126, 127].contains(&ended.code()), "{ended:?}");
    assert_eq!(files(dir.path()), ["script"]);
}

#[test]
fn nothing_recorded_is_a_valid_file() {
    let dir = tempfile::tempdir().unwrap();
    record(dir.path(), &["-e", "syscalls:sys_enter_reboot", "true"]).expect(0).says(&[": 0 events"]);
    let file = dir.path().join("trace.dat");
    assert_eq!(Report::of(&file).events, [""; 0]);
    assert_eq!(Ledger::of(&file).cpus("recorded"), 0);
}

#[test]
fn events_that_do_not_exist_are_answered_with_near_ones() {
    refused(&["-e", "sched:sched_swich", "true"], 112, &["sched:sched_swich", "sched:sched_switch"]);
    refused(&["-e", "shced:sched_switch", "true"], 112, &["sched:sched_switch"]);
    refused(&["-e", "nothing_like_it*", "true"], 112, &["nothing_like_it*"]);
    refused(&["-e", "", "true"], 2, &["does not name events"]);
    refused(&["-e", "a:b:c", "true"], 2, &["a:b:c"]);
    refused(&["-e", "[", "true"], 112, &["no such event [", "tracer-agent list"]);
    refused(
        &["-e", "ftrace:function", "true"],
        112,
        &["cannot record ftrace:function", "ftrace writes it itself"],
    );
    refused(&["-v", "-e", "sched", "true"], 2, &["-v"]);
    refused(&["-e", SWITCH, "-v", "-e", "sched", "true"], 112, &["no event"]);
}

#[test]
fn cpus_must_exist_and_be_online() {
    refused(&["-e", SWITCH, "-M", "9999", "true"], 2, &["-M"]);
    refused(&["-e", SWITCH, "-M", "5000-9999", "true"], 2, &["-M"]);
    refused(&["-e", SWITCH, "-M", &format!("1{}", "0".repeat(2500)), "true"], 2, &["-M", "CPU"]);
    refused(&["-e", SWITCH, "-M", "xyz", "true"], 2, &["-M"]);
    refused(&["-e", SWITCH, "-M", "", "true"], 2, &["-M"]);
    refused(&["-e", SWITCH, "-M", "0", "true"], 2, &["-M"]);
    refused(&["-e", SWITCH, "-M", &"f".repeat(2500), "true"], 2, &["-M", "no CPU"]);
}

#[test]
fn sizes_and_times_must_make_sense() {
    refused(&["-e", SWITCH, "-b", "0", "true"], 2, &["-b 0", "-b 8"]);
    refused(&["-e", SWITCH, "-b", "-1", "true"], 2, &["-b"]);
    refused(&["-e", SWITCH, "-b", "99999999999", "true"], 2, &["-b"]);
    refused(&["-e", SWITCH, "-b", "18446744073709551615", "true"], 2, &[]);
    let memory = fs::read_to_string("/proc/meminfo").unwrap();
    let total: u64 = memory.split_whitespace().nth(1).unwrap().parse().unwrap();
    refused(&["-e", SWITCH, "-b", &total.to_string(), "touch", "ran"], 2, &["MB", "smaller -b"]);
    refused(&["-e", SWITCH, "-s", "0", "true"], 2, &["-s 0"]);
    refused(&["-e", SWITCH, "-m", "1", "true"], 2, &["-m", "128"]);
    refused(&["-e", SWITCH, "-m", "256", "--overwrite", "true"], 2, &["--overwrite", "-m"]);
    refused(&["-e", SWITCH, "--duration", "0"], 2, &["--duration"]);
    refused(&["-e", SWITCH, "--duration", "soon"], 2, &["--duration"]);
    // Rounded up to two pages; what does not fit between two visits of the reader is counted.
    let dir = tempfile::tempdir().unwrap();
    let mut args = vec!["-e", "raw_syscalls:sys_enter", "-F", "-b", "1"];
    args.extend(CALLS);
    record(dir.path(), &args).expect(0);
    let (report, ledger) =
        (Report::of(&dir.path().join("trace.dat")), Ledger::of(&dir.path().join("trace.dat")));
    assert!(report.events.len() as u64 + ledger.lost() > 100 && report.dropped <= ledger.lost());
    works(&["-s", "18446744073709551615"]);
    refused(&["-e", SWITCH, "-m", "18446744073709551615", "true"], 2, &["--max-size", "is not a size"]);
}

#[test]
fn clocks_and_compressions_that_are_not_offered_are_explained() {
    refused(&["-e", SWITCH, "-C", "local", "true"], 2, &["local", "mono"]);
    refused(&["-e", SWITCH, "-C", "sundial", "true"], 2, &["sundial", "mono"]);
    refused(&["-e", SWITCH, "--compression", "zlib", "true"], 2, &["zlib", "zstd"]);
    refused(&["-e", SWITCH, "--compression", "zstd:99", "true"], 2, &["19"]);
    refused(&["-e", SWITCH, "--kallsyms", "some", "true"], 2, &["auto"]);
    for clock in ["mono", "boot", "tai"] {
        works(&["-C", clock]);
    }
    for how in ["none", "zstd", "zstd:19"] {
        works(&["--compression", how]);
    }
}

#[test]
fn processes_must_be_meant() {
    refused(&["-e", SWITCH, "-P", "4194303", "true"], 2, &["-P 4194303", "no such process"]);
    refused(&["-e", SWITCH, "-P", "0", "true"], 2, &["-P 0"]);
    refused(&["-e", SWITCH, "-P", "-5", "true"], 2, &["--pid"]);
    refused(&["-e", SWITCH, "-P", "init", "true"], 2, &["--pid"]);
    refused(&["-e", SWITCH, "-F"], 2, &["-F", "no command"]);
    refused(&["-e", SWITCH, "-c", "true"], 2, &["-c follows"]);
}

#[test]
fn closed_pipes_do_not_stop_a_recording() {
    for redirect in
        [">&- 2>&-", "2>/dev/full", "2>&1 >/dev/full", "</dev/null >&- 2>/dev/full", "<&- >&- 2>&-"]
    {
        let dir = tempfile::tempdir().unwrap();
        let script = format!("\"$AGENT\" record -e sched:sched_switch true {redirect}");
        run(program(dir.path(), "sh", ["-c", &script]).env("AGENT", agent_path())).expect(0);
        assert_eq!(files(dir.path()), ["trace.dat"], "{redirect}");
        Report::of(&dir.path().join("trace.dat"));
    }
    let dir = tempfile::tempdir().unwrap();
    // The reader of stderr is gone before the summary is written: the command ends when it cannot write any
    // more.
    let write =
        "$SIG{PIPE} = q(IGNORE); 1 while syswrite(STDERR, q(x)) && (select undef, undef, undef, 0.01) == 0";
    let script = format!(
        "\"$AGENT\" record -e sched:sched_switch perl -e '{write}' 2>&1 | true; echo ${{PIPESTATUS[0]}}"
    );
    let ended = run(program(dir.path(), "bash", ["-c", &script]).env("AGENT", agent_path())).expect(0);
    assert_eq!(ended.out, "0\n");
    assert_eq!(files(dir.path()), ["trace.dat"]);
}

#[test]
fn a_command_that_closes_everything_or_daemonises_does_no_harm() {
    let dir = tempfile::tempdir().unwrap();
    let script = "(exec >&- 2>&- <&-; sleep 1) & exit 5";
    let status = Command::new(agent_path())
        .current_dir(dir.path())
        .args(["record", "-q", "-e", SWITCH, "sh", "-c", script])
        .status()
        .unwrap();
    assert_eq!(status.code(), Some(5));
    Report::of(&dir.path().join("trace.dat"));
}
