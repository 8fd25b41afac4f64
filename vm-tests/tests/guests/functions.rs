//! Functions of the kernel by name and type, and calls as ftrace records them, on Debian's kernels.

use vm_tests::{Cmd, Kernel, Vm, on_kernels};

const BY_NAME: &str = "name == \"probed\" && count == 512";
const BY_COUNT: &str = "count == 512 && common_pid > 1";
const AT_END: &str = "retval == 10 && count == 512";

/// Contexts in every kind of program: both lanes, system calls, and probes.
const CONTEXTS: &str = "tracer-agent record -o /tmp/contexts.dat -e 'sched:sched_process_*' \
    --context pid,tid,ppid,comm,cgroup,uid,prio,perf:page-faults -e syscalls:sys_enter_openat --context comm,perf:cpu-clock \
    -e syscalls:sys_enter_read -f 'ctx_vpid > 1 && $hostname != \"\" && $vegid == 0 && $mnt_ns > 0' \
    --context container,vpid,vtid,vppid,nice,hostname,interruptible,preemptible,need_reschedule,migratable,cgroup_ns,ipc_ns,mnt_ns \
    --context net_ns,pid_ns,time_ns,user_ns,uts_ns,euid,suid,gid,egid,sgid,vuid,veuid,vsuid,vgid,vegid,vsgid,callstack-kernel \
    --fentry 'typed=vfs_read count' --context tid,perf:cs,prio,vuid,hostname --kprobe 'place=vfs_read count=%dx' \
    --context uid,comm,cgroup,vppid,preemptible \
    -F dd if=/tmp/probed of=/dev/null bs=512";

on_kernels! {
    k6_1_cloud: [typed_probes_and_calls_of_functions],
    k6_12_cloud: [typed_probes_and_calls_of_functions],
}

/// The lines of a report with this event, by the task `dd`.
fn lines<'t>(report: &'t str, event: &str) -> Vec<&'t str> {
    let event = format!(" {event}:");
    report.lines().filter(|line| line.trim_start().starts_with("dd-") && line.contains(&event)).collect()
}

fn typed_probes_and_calls_of_functions(kernel: &Kernel) {
    let typed = "tracer-agent record -o /tmp/typed.dat \
        --fentry 'start=vfs_read file->f_inode->i_ino count more=count+1 name=string(file->f_path.dentry->d_name.name) \
        current->comm' --fexit 'end=vfs_read $retval' -T -F dd if=/tmp/probed of=/dev/null bs=512";
    // Each probe with a filter and without: the kernel has to choose what user space does.
    let reads = "vfs_read count name=string(file->f_path.dentry->d_name.name)";
    let filtered = format!(
        "tracer-agent record -o /tmp/filtered.dat --fentry 'all={reads}' --fentry 'some={reads}' -f '{BY_NAME}' \
         --fentry 'few=vfs_read count' -f '{BY_COUNT}' --fexit 'ends=vfs_read count $retval' --fexit 'end=vfs_read count $retval' \
         -f '{AT_END}' --kprobe 'places=vfs_read count=%dx:u64' --kprobe 'place=vfs_read count=%dx:u64' -f '{BY_COUNT}' \
         dd if=/tmp/probed of=/dev/null bs=512"
    );
    let counts = |event: &str, filter: &str| {
        Cmd::sh(&format!(
            "tracer-agent report -F '{event}: {filter}' /tmp/filtered.dat | grep -c ' {event}: '"
        ))
    };
    let run = Vm::new(kernel)
        .agent()
        .trace_cmd()
        .run(&[
            Cmd::sh("echo some text > /tmp/probed && busybox stat -c %i /tmp/probed"),
            Cmd::sh(typed),
            Cmd::new(["trace-cmd", "report", "/tmp/typed.dat"]),
            Cmd::new(["trace-cmd", "report", "-R", "/tmp/typed.dat"]),
            Cmd::sh("tracer-agent record -o /tmp/calls.dat --function 'vfs_*' -F dd if=/tmp/probed of=/dev/null bs=512"),
            Cmd::new(["trace-cmd", "report", "/tmp/calls.dat"]),
            Cmd::new(["tracer-agent", "report", "/tmp/calls.dat"]),
            Cmd::sh(&filtered),
            counts("all", BY_NAME),
            counts("some", "count >= 0"),
            counts("all", BY_COUNT),
            counts("few", "count >= 0"),
            counts("ends", AT_END),
            counts("end", "count >= 0"),
            counts("places", BY_COUNT),
            counts("place", "count >= 0"),
            Cmd::sh(CONTEXTS),
            Cmd::new(["trace-cmd", "report", "/tmp/contexts.dat"]),
            Cmd::new(["tracer-agent", "info", "--json", "/tmp/contexts.dat"]),
        ])
        .unwrap_or_else(|error| panic!("{error}"));
    let (typed, rest) = run.outcomes.split_at(4);
    let (calls, rest) = rest.split_at(3);
    let (filtered, contexts) = rest.split_at(9);
    check_contexts(contexts);
    let said: Vec<String> = filtered.iter().map(vm_tests::Outcome::expect_success).collect();
    for pair in said[1..].chunks(2) {
        assert_eq!(pair[0], pair[1], "{said:?}");
    }
    let said: Vec<String> = typed.iter().map(vm_tests::Outcome::expect_success).collect();

    let inode = said[0].trim();
    let report = &said[2];
    assert!(!report.contains("FAILED TO PARSE"), "{report}");
    let starts = lines(report, "start");
    let read =
        starts.iter().find(|line| line.contains("name=\"probed\"")).unwrap_or_else(|| panic!("{report}"));
    assert!(read.contains("(vfs_read) "), "{read}");
    assert!(read.contains(&format!(" i_ino={inode} ")) && read.contains(" comm=\"dd\""), "{read}");
    let number = |name: &str| -> u64 {
        let text = read.split(&format!(" {name}=")).nth(1).and_then(|rest| rest.split(' ').next()).unwrap();
        text.parse().unwrap()
    };
    assert_eq!(number("more"), number("count") + 1, "{read}");
    let ends = lines(report, "end");
    // It was waiting in one more when recording began.
    assert!((starts.len()..=starts.len() + 1).contains(&ends.len()), "{report}");
    // The text of the file, and then its end.
    for expected in ["retval=10", "retval=0"] {
        assert!(ends.iter().any(|line| line.ends_with(expected)), "{expected}: {report}");
    }
    // The stack begins in the function, or behind its trampoline.
    let at = report.lines().position(|line| line == *read).unwrap();
    let stack: Vec<&str> = report.lines().skip(at + 1).take(12).collect();
    assert!(
        stack[0].contains("kernel_stack:") && stack.iter().any(|line| line.contains("ksys_read")),
        "{stack:?}"
    );
    assert!(said[3].contains(&format!("i_ino={inode}")) || said[3].contains("i_ino=0x"), "{}", said[3]);

    // Debian's 6.1 is built without fprobes.
    if kernel.name.starts_with("6.1-") {
        let said = calls[0].stderr_text();
        assert!(!calls[0].success() && said.contains("CONFIG_FPROBE"), "{said}");
        return;
    }
    let said: Vec<String> = calls.iter().map(vm_tests::Outcome::expect_success).collect();
    let recorded = lines(&said[1], "function");
    assert!(
        recorded.iter().any(|line| line.ends_with("vfs_read <-- ksys_read") || line.ends_with(" vfs_read")),
        "{}",
        said[1]
    );
    assert!(recorded.iter().all(|line| line.contains(" vfs_")), "{}", said[1]);
    assert_eq!(said[2], said[1]);
}

fn check_contexts(outcomes: &[vm_tests::Outcome]) {
    let recorded = outcomes[0].stderr_text();
    let said: Vec<String> = outcomes.iter().map(vm_tests::Outcome::expect_success).collect();
    assert!(!recorded.contains("not recorded"), "{recorded}");
    let (report, ledger) = (&said[1], &said[2]);
    assert!(!report.contains("FAILED TO PARSE"), "{report}");
    let all_have = |event: &str, contexts: &[&str]| {
        let lines = lines(report, event);
        let has_all = |line: &&str| contexts.iter().all(|context| line.contains(&format!(" ctx_{context}=")));
        assert!(!lines.is_empty() && lines.iter().all(has_all), "{event}: {report}");
    };
    all_have(
        "sched_process_exec",
        &["pid", "tid", "ppid", "comm", "cgroup", "uid", "prio", "perf_cpu_page_faults"],
    );
    all_have("sched_process_exit", &["pid", "perf_cpu_page_faults"]);
    all_have("sys_enter_openat", &["comm", "perf_cpu_cpu_clock"]);
    let all = "container vpid vtid vppid nice hostname interruptible preemptible need_reschedule migratable cgroup_ns ipc_ns mnt_ns net_ns pid_ns \
        time_ns user_ns uts_ns euid suid gid egid sgid vuid veuid vsuid vgid vegid vsgid";
    all_have("sys_enter_read", &all.split_whitespace().collect::<Vec<_>>());
    // The guest has one namespace of each kind, and one user.
    for line in lines(report, "sys_enter_read") {
        let value =
            |name: &str| line.split_once(&format!(" ctx_{name}=")).unwrap().1.split(' ').next().unwrap();
        assert!(value("vpid") == value("vtid") && value("vpid") != "0" && value("vppid") != "0", "{line}");
        assert!(["euid", "sgid", "vuid", "vegid", "nice"].map(value) == ["0"; 5], "{line}");
        assert_eq!(["preemptible", "migratable", "interruptible"].map(value), ["1", "1", "-1"], "{line}");
        let inodes = "cgroup_ns ipc_ns mnt_ns net_ns pid_ns time_ns user_ns uts_ns";
        assert!(inodes.split(' ').all(|name| value(name).parse::<u32>().unwrap() > 0xefff_fff0), "{line}");
    }
    all_have("typed", &["tid", "perf_cpu_cs", "prio", "vuid", "hostname"]);
    all_have("place", &["uid", "comm", "cgroup", "vppid", "preemptible"]);
    let exec = lines(report, "sched_process_exec");
    assert!(exec[0].contains("filename=") && exec[0].contains(" ctx_comm=dd "), "{exec:?}");
    assert!(ledger.contains("\"lane\":\"fast\"") && ledger.contains("\"lane\":\"generic\""), "{ledger}");
}
