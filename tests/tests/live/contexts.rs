//! `record --context`: values against what is known, in both lanes and in probes, for stock readers and in
//! exports.

use std::{collections::BTreeMap, fs, os::unix::fs::MetadataExt as _, path::Path};

use integration_tests::{
    binaries::{Link, tool},
    harness::{Running, agent, name_of, run, tid_of},
    probe_program::{Probed, build},
    trace_cmd,
};

const USAGE: i32 = 2;
const UNSUPPORTED: i32 = 111;

/// What stock trace-cmd prints of the events of this name.
fn stock(dir: &Path, event: &str) -> Vec<String> {
    let report = trace_cmd::report(&dir.join("out.dat"), &[]);
    assert!(!report.contains("FAILED TO PARSE"), "{report}");
    report.lines().skip(1).filter(|line| name_of(line) == event).map(str::to_owned).collect()
}

/// The value of a field in a line.
fn value<'t>(line: &'t str, field: &str) -> &'t str {
    let (_, rest) = line.split_once(&format!(" {field}=")).unwrap_or_else(|| panic!("no {field}: {line}"));
    rest.split(' ').next().unwrap()
}

fn number(line: &str, field: &str) -> u64 {
    value(line, field).parse().unwrap_or_else(|error| panic!("{field}: {error}: {line}"))
}

/// The kernel's priority of this process and of what it starts.
fn priority() -> u64 {
    let stat = fs::read_to_string("/proc/self/stat").unwrap();
    let (_, fields) = stat.rsplit_once(") ").unwrap();
    let priority: i64 = fields.split(' ').nth(15).unwrap().parse().unwrap();
    (100 + priority).try_into().unwrap()
}

#[test]
fn contexts_tell_of_the_thread() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path();
    let exec = "sched:sched_process_exec";
    let list = "pid,tid,ppid,comm,cgroup,uid,prio";
    let args =
        ["record", "-o", "out.dat", "-e", exec, "--context", list, "--context", "perf:cpu-clock,pid", "-F"];
    let command = ["setpriv", "--reuid=1234", "--regid=1234", "--clear-groups", "/bin/true"];
    let recording = Running::start(&mut agent(dir, args.into_iter().chain(command)));
    let recorder = recording.pid();
    recording.wait().expect(0);
    let lines = stock(dir, "sched_process_exec");
    let [before, line] = lines.as_slice() else { panic!("{lines:?}") };
    assert!(
        line.contains("filename=/bin/true ") && line.contains("setpriv") != before.contains("setpriv "),
        "{lines:?}"
    );
    let tid = u64::from(tid_of(line));
    for field in ["ctx_pid", "ctx_tid", "pid"] {
        assert_eq!(number(line, field), tid, "{line}");
    }
    assert_eq!(number(line, "ctx_ppid"), u64::from(recorder), "{line}");
    assert_eq!((value(line, "ctx_comm"), value(before, "ctx_comm")), ("true", "setpriv"));
    assert_eq!((number(line, "ctx_uid"), number(before, "ctx_uid")), (1234, 0));
    assert_eq!(number(line, "ctx_prio"), priority(), "{line}");
    assert!(number(line, "ctx_perf_cpu_cpu_clock") > 0, "{line}");
    let group = fs::read_to_string("/proc/self/cgroup").unwrap();
    let group = group.lines().find_map(|line| line.strip_prefix("0::")).expect("cgroup2 is mounted");
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    let mount = mounts.lines().find(|line| line.split(' ').nth(2) == Some("cgroup2")).unwrap();
    let path = format!("{}{group}", mount.split(' ').nth(1).unwrap());
    assert_eq!(number(line, "ctx_cgroup"), fs::metadata(path).unwrap().ino());
    // Both readers filter on them, and print the same.
    let ours = run(&mut agent(dir, ["report", "-F", "sched_process_exec: ctx_uid == 1234", "out.dat"]))
        .expect(0)
        .out;
    let ours: Vec<&str> = ours.lines().skip(1).filter(|line| name_of(line) == "sched_process_exec").collect();
    assert_eq!(ours, [line]);
    // Behind -i stock trace-cmd ignores filters.
    let file = dir.join("out.dat");
    let filter = "sched_process_exec: ctx_comm == \"true\"";
    let theirs = trace_cmd::run(["report", "-F", filter, "-i", file.to_str().unwrap()]).out;
    assert_eq!(theirs.lines().skip(1).collect::<Vec<_>>(), [line]);
    run(&mut agent(dir, ["check", "out.dat"])).expect(0);

    // LTTng's viewers find them where they are in its traces.
    run(&mut agent(dir, ["export", "--format", "lttng", "out.dat", "out.lttng"])).expect(0);
    let text = tool(dir, "babeltrace2", &["out.lttng"]);
    let exec = text.lines().find(|line| line.contains("/bin/true")).unwrap_or_else(|| panic!("{text}"));
    let (contexts, fields) = exec.rsplit_once("}, {").unwrap();
    let context = contexts.rsplit_once("}, {").unwrap().1;
    for expected in [
        // One context of the stream, which has the thread in any case.
        // The flags say more on a busy machine: that another thread waits.
        format!(" tid = {tid}, common_flags = 0x"),
        format!(", common_preempt_count = 0, pid = {tid}, ppid = {recorder}, procname = \"true\""),
        format!("uid = 1234, prio = {}", i64::try_from(priority()).unwrap() - 100),
        "perf_cpu_cpu_clock = ".to_owned(),
    ] {
        assert!(context.contains(&expected), "{expected}: {exec}");
    }
    assert!(fields.contains("filename = \"/bin/true\"") && !fields.contains("ctx_"), "{exec}");
    let counted = run(&mut agent(dir, ["info", "out.lttng"])).expect(0).out;
    // Its events can be stepped over, contexts and all.
    let streams = counted.lines().filter(|line| line.trim_start().starts_with("channel0_"));
    let events = streams.map(|line| line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap());
    assert_eq!(events.sum::<u64>(), 2, "{counted}");
    // Elsewhere they are fields as others are.
    run(&mut agent(dir, ["export", "--format", "ctf", "out.dat", "out.ctf"])).expect(0);
    let text = tool(dir, "babeltrace2", &["out.ctf"]);
    assert!(text.contains("ctx_uid = 1234") && text.contains("ctx_comm = \"true\""), "{text}");
}

/// A process that gets namespaces of its own of every kind, and a child in them with users and groups of its
/// own. Both call getppid: the first before its user namespace has ids, the child after. What /proc tells of
/// the child is printed, from inside and from outside.
const NAMESPACES: &str = r#"
use strict; use POSIX;
my ($unshare, $sethostname, $setresuid, $setresgid) = (272, 170, 117, 119);
my @pipes = map { pipe(my $read, my $write) or die; [$read, $write] } 1..4;
sub give { syswrite $pipes[$_[0]][1], "$_[1]\n" or die }
sub take { sysread $pipes[$_[0]][0], my $text, 99 or die; chomp $text; $text }
sub show {
    my ($who, $pid) = @_;
    open my $status, "/proc/$pid/status" or die;
    print map { "$who $_" } grep { /^(Uid|Gid|NSpid):/ } <$status>;
}
$| = 1;
my $first = fork;
if (!$first) {
    # CLONE_NEWUSER, NEWPID, NEWNET, NEWIPC, NEWUTS, NEWCGROUP, NEWNS, NEWTIME.
    syscall($unshare, 0x10000000|0x20000000|0x40000000|0x08000000|0x04000000|0x02000000|0x20000|0x80) and die $!;
    getppid;
    give 0, "unshared"; take 1;
    if (!fork) {
        syscall($sethostname, my $name = "inside.example", 14) and die $!;
        POSIX::nice(7);
        syscall($setresgid, 2, 4, 6) and die $!;
        syscall($setresuid, 3, 5, 7) and die $!;
        getppid;
        show "inside", "self";
        give 2, readlink "/proc/self"; take 3;
        exit;
    }
    wait; exit;
}
take 0;
sub ids { open my $map, ">", "/proc/$first/$_[0]" or die $!; syswrite $map, $_[1] or die $! }
ids "uid_map", "0 0 1\n1 100000 10\n";
ids "gid_map", $ENV{GROUP_RANGES};
give 1, "mapped";
my $pid = take 2;
show "outside", $pid;
for my $kind (qw(cgroup ipc mnt net pid time user uts)) { print "$kind ", readlink("/proc/$pid/ns/$kind"), "\n" }
print "nice ", `ps -o ni= -p $pid`;
print "ids $first $$\n";
give 3, "done";
wait;
"#;

/// The numbers in what [`NAMESPACES`] says of something.
fn told(out: &str, what: &str) -> Vec<u64> {
    let line =
        out.lines().find_map(|line| line.strip_prefix(what)).unwrap_or_else(|| panic!("{what}: {out}"));
    let words = line.split(|c: char| !c.is_ascii_digit()).filter(|word| !word.is_empty());
    words.map(|word| word.parse().unwrap()).collect()
}

#[test]
fn contexts_tell_of_namespaces_and_users() {
    const LIST: &str = "vpid,vtid,vppid,pid,ppid,nice,hostname,cgroup_ns,ipc_ns,mnt_ns,net_ns,pid_ns,time_ns,user_ns,uts_ns,uid,euid,suid,\
        gid,egid,sgid,vuid,veuid,vsuid,vgid,vegid,vsgid";
    const FEW: &str = "0 0 1\n1 300000 10\n";
    const MANY: &str = "0 0 1\n1 300000 2\n3 400000 2\n5 500000 2\n7 600000 2\n9 700000 2\n";
    for ranges in [FEW, MANY] {
        let scratch = tempfile::tempdir().unwrap();
        let dir = scratch.path();
        let args = ["record", "-q", "-o", "out.dat", "-e", "syscalls:sys_enter_getppid", "--context", LIST];
        let args = args.into_iter().chain(["-F", "-c", "perl", "-e", NAMESPACES]);
        let out = run(agent(dir, args).env("GROUP_RANGES", ranges)).expect(0).out;
        let lines = stock(dir, "sys_enter_getppid");
        let [before, line] = lines.as_slice() else { panic!("{lines:?}") };

        for kind in ["cgroup", "ipc", "mnt", "net", "pid", "time", "user", "uts"] {
            let inode = told(&out, &format!("{kind} {kind}:["));
            assert_eq!(number(line, &format!("ctx_{kind}_ns")), inode[0], "{kind}: {line}");
        }
        let [pid, vpid] = told(&out, "inside NSpid:")[..] else { panic!("{out}") };
        let [first, perl] = told(&out, "ids ")[..] else { panic!("{out}") };
        for (field, expected) in [
            ("pid", pid),
            ("ppid", first),
            ("vpid", vpid),
            ("vtid", vpid),
            ("vppid", 0),
            ("nice", told(&out, "nice ")[0]),
        ] {
            assert_eq!(number(line, &format!("ctx_{field}")), expected, "{field}: {line}");
        }
        for (field, expected) in [("vpid", first), ("ppid", perl), ("vppid", perl), ("nice", 0)] {
            assert_eq!(number(before, &format!("ctx_{field}")), expected, "{field}: {before}");
        }
        assert_eq!(value(line, "ctx_hostname"), "inside.example");
        let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
        assert_eq!(value(before, "ctx_hostname"), host.trim());

        for (what, ids) in [("Uid", ["uid", "euid", "suid"]), ("Gid", ["gid", "egid", "sgid"])] {
            let outside = told(&out, &format!("outside {what}:"));
            let inside = told(&out, &format!("inside {what}:"));
            let unmapped: u64 = fs::read_to_string(format!("/proc/sys/kernel/overflow{}", ids[0]))
                .unwrap()
                .trim()
                .parse()
                .unwrap();
            for ((id, outside), inside) in ids.into_iter().zip(outside).zip(inside) {
                assert_eq!(number(line, &format!("ctx_{id}")), outside, "{id}: {line}");
                // A namespace with more ranges than the kernel keeps inside of it tells nothing.
                let known = if what == "Gid" && ranges == MANY { u32::MAX.into() } else { inside };
                assert_eq!(number(line, &format!("ctx_v{id}")), known, "v{id}: {line}");
                assert_eq!(number(before, &format!("ctx_{id}")), 0, "{id}: {before}");
                assert_eq!(number(before, &format!("ctx_v{id}")), unmapped, "v{id}: {before}");
            }
        }
        run(&mut agent(dir, ["export", "--format", "lttng", "out.dat", "out.lttng"])).expect(0);
        let text = tool(dir, "babeltrace2", &["out.lttng"]);
        let call =
            text.lines().find(|line| line.contains("inside.example")).unwrap_or_else(|| panic!("{text}"));
        for field in LIST.split(',') {
            let expected = match value(line, &format!("ctx_{field}")) {
                text if field == "hostname" => format!("hostname = \"{text}\""),
                value => format!("{field} = {value}"),
            };
            assert!(call.contains(&expected), "{expected}: {call}");
        }
    }
}

#[test]
fn filters_ask_for_contexts() {
    for filter in [
        "ctx_vpid == 1 && ctx_nice > 5",
        "$hostname == \"inside.example\" && $uid != 0",
        "$hostname ~ \"in*.example\"",
        "ctx_veuid == 5 && $vsgid == 6 && $vppid == 0",
        "ctx_vuid < 65534",
    ] {
        let scratch = tempfile::tempdir().unwrap();
        let dir = scratch.path();
        let args = ["record", "-q", "-o", "out.dat", "-e", "syscalls:sys_enter_getppid", "-f", filter];
        let args = args.into_iter().chain(["--context", "vpid", "-F", "-c", "perl", "-e", NAMESPACES]);
        run(agent(dir, args).env("GROUP_RANGES", "0 0 1\n1 300000 10\n")).expect(0);
        let lines = stock(dir, "sys_enter_getppid");
        assert!(matches!(lines.as_slice(), [line] if number(line, "ctx_vpid") == 1), "{filter}: {lines:?}");
        // Files have what was recorded, under the same names.
        for (name, found) in [("ctx_vpid == 1", 1), ("$vpid == 1", 1), ("$vpid == 2", 0)] {
            let args = ["report", "-F", &format!("sys_enter_getppid: {name}"), "out.dat"];
            let report = run(&mut agent(dir, args)).expect(0).out;
            assert_eq!(
                report.lines().skip(1).filter(|line| name_of(line) == "sys_enter_getppid").count(),
                found,
                "{name}"
            );
        }
    }
}

#[test]
fn contexts_tell_of_the_cpu_what_the_record_does() {
    const EVENTS: [&str; 4] = [
        "timer:hrtimer_expire_entry",
        "sched:sched_switch",
        "syscalls:sys_enter_getppid",
        "irq:softirq_entry",
    ];
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path();
    let mut args = vec!["record", "-q", "-o", "out.dat"];
    for event in EVENTS {
        args.extend(["-e", event, "--context", "interruptible,preemptible,need_reschedule,migratable"]);
    }
    let script = "for (1..50) { getppid(); select undef, undef, undef, 0.002 }";
    run(&mut agent(dir, args.into_iter().chain(["perl", "-e", script]))).expect(0);
    let file = dir.join("out.dat");
    let report = trace_cmd::run(["report", "-N", "-l", "-i", file.to_str().unwrap()]).out;
    let mut seen = std::collections::BTreeSet::new();
    for line in report.lines() {
        let Some(event) =
            EVENTS.iter().map(|event| event.split_once(':').unwrap().1).find(|event| line.contains(event))
        else {
            continue;
        };
        // `  perl-123   0d.h2. 12.345678: `: behind the CPU, as wide as it is.
        let (head, _) = line.split_once(event).unwrap();
        let word = head.split_whitespace().rev().nth(1).unwrap();
        let flags: Vec<char> = word.chars().skip_while(char::is_ascii_digit).collect();
        let is_set = |at: usize| flags.get(at).is_some_and(|flag| *flag != '.');
        let has = |field: &str| value(line, &format!("ctx_{field}")).parse::<i32>().unwrap();
        assert_eq!(has("interruptible"), if flags[0] == 'd' { 0 } else { -1 }, "{line}");
        let in_interrupt = matches!(flags[2], 'h' | 'H' | 's' | 'z' | 'Z');
        if flags[0] == 'd' || !matches!(flags[0], 'b' | 'D') {
            assert_eq!(has("preemptible") == 1, !in_interrupt && !is_set(3), "{line}");
        }
        assert_eq!(has("migratable") == 1, !is_set(4), "{line}");
        assert_eq!(has("need_reschedule") == 1, matches!(flags[1], 'n' | 'N' | 'B'), "{line}");
        let expected = match event {
            "hrtimer_expire_entry" => Some((0, 0)),
            "sched_switch" => Some((0, 0)),
            "sys_enter_getppid" => Some((-1, 1)),
            _ => None,
        };
        if let Some(expected) = expected {
            assert_eq!((has("interruptible"), has("preemptible")), expected, "{line}");
        }
        assert!(event != "softirq_entry" || has("preemptible") == 0, "{line}");
        seen.insert(event);
    }
    assert_eq!(seen.len(), EVENTS.len(), "{report}");
}

#[test]
fn events_are_the_same_with_contexts_in_both_lanes() {
    // Forks, ends, signals, renamings: fixed fields, arrays, and texts behind the fixed part.
    const EVENTS: [&str; 6] = [
        "sched:sched_process_fork",
        "sched:sched_process_exit",
        "sched:sched_process_exec",
        "signal:signal_generate",
        "task:task_rename",
        "syscalls:sys_enter_kill",
    ];
    let script = "$0 = 'renamed'; if (!fork) { exec '/bin/true' } wait; kill 0, $$; $SIG{USR1} = 'IGNORE'; kill 'USR1', $$";
    for lane in ["auto", "generic"] {
        let scratch = tempfile::tempdir().unwrap();
        let dir = scratch.path();
        let mut plain = vec!["record", "-q", "-o", "plain.dat", "-F", "-c"];
        let mut with = vec!["record", "-q", "-o", "out.dat", "--lane", lane, "-F", "-c"];
        for event in EVENTS {
            plain.extend(["-e", event]);
            with.extend(["-e", event, "--context", "comm,tid,cgroup,uid,prio,ppid"]);
        }
        let inner = ["perl", "-e", script];
        let ours = integration_tests::harness::agent_path();
        let command = [ours.to_str().unwrap()].into_iter().chain(with).chain(inner);
        run(&mut agent(dir, plain.into_iter().chain(command))).expect(0);

        let texts = |file: &str| -> BTreeMap<u32, Vec<String>> {
            let mut texts: BTreeMap<u32, Vec<String>> = BTreeMap::new();
            let report = run(&mut agent(dir, ["report", "-N", file])).expect(0).out;
            for line in report.lines().filter(|line| line.contains(": ") && !line.starts_with("cpus")) {
                let (_, text) = line.split_once(name_of(line)).unwrap();
                let text = format!("{}{text}", name_of(line));
                if let Some((_, contexts)) = text.split_once(" ctx_comm=") {
                    assert!(contexts.contains(&format!(" ctx_tid={} ", tid_of(line))), "{lane}: {line}");
                    assert!(contexts.ends_with(|c: char| c.is_ascii_digit()), "{lane}: {line}");
                }
                texts.entry(tid_of(line)).or_default().push(text);
            }
            texts
        };
        let (plain, with) = (texts("plain.dat"), texts("out.dat"));
        let mut kinds = std::collections::BTreeSet::new();
        for (tid, texts) in &with {
            let stripped: Vec<&str> = texts
                .iter()
                .map(|text| {
                    kinds.insert(text.split(':').next().unwrap());
                    text.split_once(" ctx_comm=").unwrap_or_else(|| panic!("{lane}: {text}")).0
                })
                .collect();
            let known: Vec<&str> = plain[tid].iter().map(String::as_str).collect();
            assert!(
                known.windows(stripped.len()).any(|window| window == stripped),
                "{lane}: {stripped:?} {known:?}"
            );
        }
        assert_eq!(kinds.len(), EVENTS.len(), "{lane}: {kinds:?}");
        let json = run(&mut agent(dir, ["info", "--json", "out.dat"])).expect(0).out;
        assert_eq!(json.contains("\"lane\":\"fast\""), lane == "auto", "{json}");
    }
}

/// A control group that goes away with this.
struct Group(std::path::PathBuf);

impl Group {
    /// Makes one of this name at the top of the hierarchy of version 2.
    fn make(name: &str) -> Self {
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        let mount = mounts.lines().find(|line| line.split(' ').nth(2) == Some("cgroup2"));
        let path = Path::new(mount.expect("cgroup2 is mounted").split(' ').nth(1).unwrap()).join(name);
        fs::create_dir(&path).unwrap();
        Self(path)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

#[test]
fn containers_are_named_by_their_control_group() {
    let name = format!("docker-{:064x}.scope", std::process::id());
    let group = Group::make(&name);
    let inner = Group::make(&format!("{name}/inner"));
    // Into the group and a namespace of its own, as runtimes do, and then deeper.
    let script = format!(
        "getppid; open F, '>', '{}/cgroup.procs'; print F $$; close F; getppid; syscall 272, 0x2000000 and die $!; getppid;
         open F, '>', '{}/cgroup.procs'; print F $$; close F; getppid",
        group.0.display(),
        inner.0.display()
    );
    for (filter, found) in [("", 4), ("$container == \"\"", 2), ("ctx_container ~ \"docker-*.scope\"", 2)] {
        let scratch = tempfile::tempdir().unwrap();
        let dir = scratch.path();
        let mut args = vec!["record", "-q", "-o", "out.dat", "-e", "syscalls:sys_enter_getppid"];
        if !filter.is_empty() {
            args.extend(["-f", filter]);
        }
        args.extend(["--context", "container,tid", "-F", "perl", "-e", &script]);
        run(&mut agent(dir, args)).expect(0);
        let lines = stock(dir, "sys_enter_getppid");
        let names: Vec<&str> = lines.iter().map(|line| value(line, "ctx_container")).collect();
        let expected = match filter {
            "" => vec!["", "", &name, &name],
            _ if filter.contains("docker") => vec![&*name; 2],
            _ => vec![""; 2],
        };
        assert_eq!((names.len(), &names), (found, &expected), "{filter}");
        run(&mut agent(dir, ["export", "--format", "lttng", "out.dat", "out.lttng"])).expect(0);
        let text = tool(dir, "babeltrace2", &["out.lttng"]);
        let named = text.matches(&format!("container = \"{name}\"")).count();
        assert_eq!(named, expected.iter().filter(|name| !name.is_empty()).count(), "{text}");
    }
}

/// The addresses in a text: `(ffffffff8139be59)`, `0xFFFFFFFF8139BE59`.
fn addresses(text: &str) -> Vec<u64> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric());
    let digits = words.map(|word| word.strip_prefix("0x").unwrap_or(word)).filter(|word| word.len() == 16);
    digits.filter_map(|digits| u64::from_str_radix(digits, 16).ok()).collect()
}

#[test]
fn stacks_are_contexts() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path();
    let args = ["record", "-q", "-o", "out.dat", "-e", "sched:sched_process_exec"];
    let with = ["--context", "callstack-kernel,vpid,callstack-user", "-e", "syscalls:sys_enter_getppid"];
    let script = "system '/bin/true'; getppid for 1..3";
    let rest = ["--context", "vpid", "-F", "-c", "perl", "-e", script];
    run(&mut agent(dir, args.into_iter().chain(with).chain(rest))).expect(0);
    let report = trace_cmd::report(&dir.join("out.dat"), &[]);
    // The stack of the last one, which is that of `true`.
    let (_, stack) = report.rsplit_once("<stack trace >").unwrap_or_else(|| panic!("{report}"));
    let frames: Vec<u64> =
        stack.lines().skip(1).take_while(|line| line.starts_with("=>")).flat_map(addresses).collect();
    assert!(frames.len() > 2 && stack.contains("user_stack:"), "{report}");
    assert_eq!(report.matches(" kernel_stack: ").count(), 2, "{report}");

    let exported = run(&mut agent(dir, ["export", "--format", "lttng", "out.dat", "out.lttng"])).expect(0);
    assert!(exported.err.is_empty() || !exported.err.contains("stacks that do not"), "{}", exported.err);
    let text = tool(dir, "babeltrace2", &["out.lttng"]);
    let own: Vec<&str> = text.lines().filter(|line| !line.contains("lttng_statedump")).collect();
    assert_eq!(own.len(), 5, "{own:?}");
    for line in &own {
        // One context of the stream, with both stacks, which are empty where none were asked for.
        let (context, _) = line.rsplit_once("}, {").unwrap();
        assert!(context.contains(" vpid = "), "{line}");
        let kernel =
            format!("_callstack_kernel_length = {}", if line.contains("exec") { frames.len() } else { 0 });
        assert!(context.contains(&kernel) && context.contains("_callstack_user_length = "), "{line}");
    }
    let exec = own.iter().find(|line| line.contains("/bin/true")).unwrap();
    let (_, kernel) = exec.split_once("callstack_kernel = [").unwrap();
    assert_eq!(addresses(kernel.split_once(" ]").unwrap().0), frames, "{exec}");
    // Events are counted, stacks are not.
    let counted = run(&mut agent(dir, ["info", "out.lttng"])).expect(0).out;
    let streams = counted.lines().filter(|line| line.trim_start().starts_with("channel0_"));
    let events = streams.map(|line| line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap());
    assert_eq!(events.sum::<u64>(), 5, "{counted}");
}

#[test]
fn probes_carry_contexts() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path();
    let Probed { program, file } = build(dir, Link::Pie);
    let work = format!("{}:work n=%di:s64 text=+0(%si):string", file.display());
    let marker = format!("{}:probed:guarded", file.display());
    let args = ["record", "-o", "out.dat", "--uprobe", &work, "-f", "n >= 0", "--context", "tid,comm,pid"];
    let rest = ["--usdt", &marker, "--context", "uid,perf:cs", program.to_str().unwrap(), "20"];
    run(&mut agent(dir, args.into_iter().chain(rest))).expect(0);
    let report = trace_cmd::report(&dir.join("out.dat"), &[]);
    let of = |text: &str| -> Vec<&str> { report.lines().filter(|line| line.contains(text)).collect() };
    let (calls, markers) = (of("text=\"some text\""), of(" guarded: "));
    assert_eq!((calls.len(), markers.len()), (20, 20), "{report}");
    for line in calls {
        assert_eq!(
            (number(line, "ctx_tid"), value(line, "ctx_comm")),
            (tid_of(line).into(), "probed"),
            "{line}"
        );
        assert_ne!(
            number(line, "ctx_pid"),
            number(line, "ctx_tid"),
            "calls are made by another thread: {line}"
        );
    }
    assert!(markers.iter().all(|line| line.contains(" ctx_uid=0 ctx_perf_cpu_cs=")), "{markers:?}");
}

#[test]
fn counters_count() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path();
    let args = ["record", "-o", "out.dat", "-M", "1", "-e", "syscalls:sys_enter_getppid", "--context"];
    let list = "perf:cpu:cpu-clock,perf:page-faults,perf:cpu:context-switches";
    let script = "for (1..50) { getppid(); my $x = 'x' x 300_000; select undef, undef, undef, 0.001 }";
    run(&mut agent(dir, args.into_iter().chain([list, "-F", "taskset", "-c", "0", "perl", "-e", script])))
        .expect(0);
    let lines = stock(dir, "sys_enter_getppid");
    assert_eq!(lines.len(), 50, "{lines:?}");
    for counter in ["cpu_clock", "page_faults", "context_switches"] {
        let values: Vec<u64> =
            lines.iter().map(|line| number(line, &format!("ctx_perf_cpu_{counter}"))).collect();
        assert!(values.is_sorted() && values[0] < values[49], "{counter}: {values:?}");
        // Each pause is two switches at least, and each second text new memory.
        let least = if counter == "cpu_clock" { 50 * 1_000_000 } else { 25 };
        assert!(values[49] - values[0] >= least, "{counter}: {values:?}");
    }
    // Those of the processor are there or not.
    let args = [
        "record",
        "-o",
        "cycles.dat",
        "-e",
        "sched:sched_process_exec",
        "--context",
        "perf:cpu:cycles",
        "true",
    ];
    let ended = run(&mut agent(dir, args));
    if ended.code() == 0 {
        let report = trace_cmd::report(&dir.join("cycles.dat"), &[]);
        assert!(report.contains("ctx_perf_cpu_cycles="), "{report}");
    } else {
        ended.expect(UNSUPPORTED).says(&["no counter cycles", "perf:page-faults"]);
    }
}

#[test]
fn what_is_no_context_is_told() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path();
    for (args, texts) in [
        (
            &["-e", "sched:sched_switch", "--context", "pid,name"][..],
            &["no context \"name\"", "ppid", "perf:cpu:COUNTER"][..],
        ),
        (
            &["-e", "sched:sched_switch", "--context", "perf:cpu:nothing"],
            &["no counter \"nothing\"", "cache-misses", "page-faults"],
        ),
        (
            &["--context", "pid", "-e", "sched:sched_switch"],
            &["--context applies to the -e, --for or probe", "none before it"],
        ),
        (
            &["--function", "vfs_*", "--context", "pid"],
            &["--context applies to the events", "function tracer"],
        ),
        (&["-e", "sched:sched_switch", "--context", "perf:cpu:raw:r1:a b"], &["no counter \"raw:r1:a b\""]),
        (&["-e", "sched:sched_switch", "--context", "pid", "-f", "ctx_cpu == 1"], &["no field `ctx_cpu`"]),
        (
            &["-e", "sched:sched_switch", "-f", "$preemptible == 1"],
            &["`$preemptible` is not known before the record is written"],
        ),
    ] {
        let args = ["record", "-o", "refused.dat"].iter().chain(args).chain(&["true"]);
        run(&mut agent(dir, args)).expect(USAGE).says(texts);
    }
    assert!(!dir.join("refused.dat").exists());
}
