//! Kprobes and uprobes on Debian's kernels, beside ftrace's own, read by stock trace-cmd.

use std::{collections::BTreeSet, time::Duration};

use integration_tests::{binaries::Link, dat::Dat, harness::Ledger, probe_program::build};
use vm_tests::{Cmd, Kernel, Outcome, Vm, on_kernels, soak_on_kernels};

on_kernels! {
    k6_1_cloud: [probes_record_what_ftrace_does],
    k6_12_cloud: [
        probes_record_what_ftrace_does,
        calls_of_four_threads_are_recorded_or_counted,
        users_and_processes_have_rings_of_their_own,
        returns_that_the_kernel_does_not_watch_are_counted,
    ],
}
soak_on_kernels! {
    k6_1_cloud: [calls_of_four_threads_are_recorded_or_counted, users_and_processes_have_rings_of_their_own],
}

/// Name, `p` or `r`, function and arguments: five forms, and the return.
const PROBES: [(&str, &str, &str, &str); 6] = [
    ("opened", "p", "do_sys_openat2", "dfd=%di:s32 path=+0(%si):ustring flags=+0(%dx):x64"),
    ("returned", "r", "do_sys_openat2", "ret=$retval:s32"),
    ("named", "p", "do_sys_openat2", "comm=$comm five=\\5"),
    ("stacked", "p", "do_sys_openat2", "caller=$stack0 low=%dx:b12@0/32"),
    ("symbols", "p", "do_sys_openat2", "version=@linux_banner:u8 name=+0(@saved_command_line):string"),
    ("numbered", "p", "do_sys_openat2", "how=$arg3 bytes=+0(%si):x8[4]"),
];

fn probes_record_what_ftrace_does(kernel: &Kernel) {
    let mut define = String::from("set -e; cd /sys/kernel/tracing; echo mono > trace_clock; ");
    let mut record = String::from("tracer-agent record -F -c -o /tmp/probes.dat");
    for (name, kind, function, arguments) in PROBES {
        // Quoted for ash: nothing in the arguments has a single quote.
        define += &format!("echo '{kind}:chk/{name} {function} {arguments}' >> kprobe_events; ");
        define += &format!("echo 1 > events/chk/{name}/enable; ");
        let option = if kind == "p" { "--kprobe" } else { "--kretprobe" };
        record += &format!(" {option} 'ours/{name}={function} {arguments}'");
    }
    record += " -- sh -c 'for i in 1 2 3; do cat /etc/passwd /absent; done' > /dev/null";
    let libc = "/lib/x86_64-linux-gnu/libc.so.6";
    let uprobes = format!(
        "tracer-agent record -F -o /tmp/uprobe.dat --uprobe 'opened={libc}:open64 path=+0(%di):string' \
         --uretprobe 'result={libc}:open64 fd=$retval:s32' trace-cmd dump --summary -i /tmp/probes.dat 2>&1 > /dev/null"
    );
    let run = Vm::new(kernel)
        .agent()
        .trace_cmd()
        .timeout(Duration::from_mins(12))
        .run(&[
            Cmd::sh(&define),
            Cmd::sh(&format!("{record} 2>&1; echo 0 > /sys/kernel/tracing/tracing_on")).timeout(Duration::from_mins(4)),
            Cmd::sh("cat /sys/kernel/tracing/trace"),
            Cmd::sh("trace-cmd report /tmp/probes.dat"),
            Cmd::sh("cat /sys/kernel/tracing/events/chk/*/format"),
            Cmd::sh("trace-cmd dump --events /tmp/probes.dat"),
            Cmd::sh("time tracer-agent record -o /tmp/glob.dat --kprobe 'many=vfs_*' sh -c 'cat /etc/passwd' 2>&1")
                .timeout(Duration::from_mins(4)),
            Cmd::sh("trace-cmd report /tmp/glob.dat"),
            Cmd::sh("grep -c '^acpi_' /sys/kernel/tracing/available_filter_functions"),
            Cmd::sh(&format!(
                "time tracer-agent record -o /tmp/acpi.dat --kprobe 'many=acpi_*' sh -c '{COUNT_PROBED}' && {UNTIL_DETACHED}"
            ))
            .timeout(Duration::from_mins(6)),
            Cmd::sh("tracer-agent record --kprobe vfs_raed true"),
            Cmd::sh("tracer-agent record --kprobe kprobe_int3_handler true"),
            Cmd::sh("mount -t debugfs d /sys/kernel/debug && tracer-agent record --kprobe kprobe_int3_handler true"),
            Cmd::sh("tracer-agent record --kprobe linux_banner true"),
            Cmd::sh(&uprobes),
            Cmd::sh("trace-cmd report /tmp/uprobe.dat"),
        ])
        .unwrap_or_else(|error| panic!("{error}"));
    let [
        defined,
        recorded,
        theirs,
        ours,
        formats,
        dump,
        many,
        named,
        thousand,
        attached,
        misspelt,
        forbidden,
        listed,
        data,
        user,
        opened,
    ] = run.outcomes.as_slice()
    else {
        panic!("{:?}", run.outcomes)
    };
    defined.expect_success();
    let said = recorded.expect_success();
    let (theirs, ours) = (theirs.expect_success(), ours.expect_success());
    assert!(!ours.contains("FAILED TO PARSE"), "{ours}");
    for (name, ..) in PROBES {
        let got = texts(&ours, name);
        assert!(got.len() >= 6, "{name}: {said}\n{ours}");
        // ftrace has every task's.
        let tasks: BTreeSet<&str> = got.iter().map(|(task, _)| *task).collect();
        let wanted: Vec<_> =
            texts(&theirs, name).into_iter().filter(|(task, _)| tasks.contains(task)).collect();
        assert_eq!(got, wanted, "{name}");
    }
    // The formats but for names and ids.
    let (formats, dump) = (formats.expect_success(), dump.expect_success());
    for print in formats.lines().filter(|line| line.starts_with("print fmt:")) {
        // An array has its length in ours.
        assert!(dump.contains(print), "{print} is not in\n{dump}");
    }
    many.expect_success();
    let named = named.expect_success();
    assert!(named.contains("(vfs_open)") || named.contains("(vfs_open+0x0)"), "{named}");
    let count = |text: &str| {
        text.split_whitespace().next().and_then(|word| word.parse::<u64>().ok()).expect("a number")
    };
    let thousand = count(&thousand.expect_success());
    assert!(thousand >= 1000, "{thousand}");
    println!("{thousand} functions on {}: {}", kernel.name, attached.stderr_text());
    // Nearly all of them had a probe (some are refused), and none has one any more.
    assert!(count(&attached.expect_success()) >= 1000, "{attached:?}");
    user.expect_success();
    let opened = opened.expect_success();
    assert!(opened.contains("path=\"/tmp/probes.dat\""), "{opened}");
    // The function's address is known, and the value that it returned.
    let result = opened.lines().find(|line| line.contains(" result: ")).expect("a returned value");
    assert!(!result.contains("(0 <- ") && result.contains(" fd="), "{result}");
    fails(misspelt, 112, "did you mean vfs_read");
    // Without debugfs the kernel's list cannot be read, and it is the kernel that refuses.
    fails(forbidden, 111, "NOKPROBE_SYMBOL");
    fails(listed, 112, "kprobe_int3_handler must not be probed");
    fails(data, 112, "data of the kernel");
}

/// On 6.1 programs at uprobes write with preemption on.
fn calls_of_four_threads_are_recorded_or_counted(kernel: &Kernel) {
    const CALLS: u64 = 25_000;
    let scratch = tempfile::tempdir().expect("a directory");
    let probed = build(scratch.path(), Link::Pie);
    let record = format!(
        "tracer-agent record -o /tmp/hits.dat --uprobe 'work=/bin/probed:work n=$arg1' --usdt '/bin/probed:probed:guarded' \
         -F /bin/probed {CALLS} 4"
    );
    let run = Vm::new(kernel)
        .agent()
        .trace_cmd()
        .program(&probed.program, "/bin/probed")
        .bring_back("/tmp/hits.dat")
        .run(&[
            Cmd::sh(&record).timeout(Duration::from_mins(8)),
            Cmd::sh("trace-cmd report /tmp/hits.dat | grep -cE ' (work|guarded): '")
                .timeout(Duration::from_mins(4)),
        ])
        .unwrap_or_else(|error| panic!("{error}"));
    run.outcomes[0].expect_success();
    let file = scratch.path().join("hits.dat");
    std::fs::write(&file, &run.files["/tmp/hits.dat"]).expect("a file");
    let ledger = Ledger::of(&file);
    // Each thread calls the function twice more.
    assert_eq!(ledger.events("recorded") + ledger.lost_of_events(), 4 * (CALLS + 2) + 4 * CALLS);
    let reported: u64 = run.outcomes[1].expect_success().trim().parse().expect("a number");
    assert_eq!(reported, ledger.events("recorded"));
}

/// Programs find the rings of their user or process by themselves, in a loop that each verifier has to
/// follow.
fn users_and_processes_have_rings_of_their_own(kernel: &Kernel) {
    let scratch = tempfile::tempdir().expect("a directory");
    let probed = build(scratch.path(), Link::Pie);
    let spec = |whose: &str| {
        format!(
            r#"{{"version":1,"channels":[{{"name":"c","own_rings":"{whose}","rules":[{{"what":{{"uprobe":"work=/bin/probed:work"}}}}]}}]}}"#
        )
    };
    let record = |whose: &str| {
        Cmd::sh(&format!(
            "echo '{}' > /tmp/{whose}.json; tracer-agent record --spec /tmp/{whose}.json -o /tmp/{whose}.dat \
             sh -c '/bin/probed 1000 1 > /dev/null; /bin/probed 500 1 > /dev/null'",
            spec(whose)
        ))
    };
    // The buffers, and how many events each has.
    let buffers = |whose: &str| {
        Cmd::sh(&format!(
            "trace-cmd report /tmp/{whose}.dat | grep ' work: ' | sed 's/: .*//' | sort | uniq -c | sort -n"
        ))
    };
    let run = Vm::new(kernel)
        .agent()
        .trace_cmd()
        .program(&probed.program, "/bin/probed")
        .run(&[record("user"), record("process"), buffers("user"), buffers("process")])
        .unwrap_or_else(|error| panic!("{error}"));
    for outcome in &run.outcomes[..2] {
        outcome.expect_success();
    }
    let rows = |outcome: &Outcome| -> Vec<(u64, String)> {
        let row = |line: &str| {
            let (count, name) = line.trim().split_once(' ').expect("a count and a buffer");
            (count.parse().expect("a count"), name.to_owned())
        };
        outcome.expect_success().lines().map(row).collect()
    };
    // Each run of the program calls the function twice more.
    assert_eq!(rows(&run.outcomes[2]), [(1504, "c:uid-0".to_owned())]);
    let of_processes = rows(&run.outcomes[3]);
    let counts: Vec<u64> = of_processes.iter().map(|(count, _)| *count).collect();
    assert_eq!(counts, [502, 1002], "{of_processes:?}");
    assert!(of_processes.iter().all(|(_, name)| name.starts_with("c:pid-")), "{of_processes:?}");
}

/// The kernel watches the returns of a few calls of a function that are open at a time.
fn returns_that_the_kernel_does_not_watch_are_counted(kernel: &Kernel) {
    const SLEEPERS: u64 = 64;
    let scratch = tempfile::tempdir().expect("a directory");
    // All are in the function when they are killed.
    let sleep = format!(
        "i=0; while [ $i -lt {SLEEPERS} ]; do sleep 1000 & i=$((i + 1)); done; \
         while [ $(cat /proc/[0-9]*/wchan 2>/dev/null | grep -o nanosleep | wc -l) -lt {SLEEPERS} ]; do sleep 0.1; done; \
         kill $(jobs -p); wait"
    );
    let record = format!(
        "tracer-agent record -o /tmp/slept.dat --kprobe 'in=do_nanosleep' --kretprobe 'back=do_nanosleep' sh -c '{sleep}'"
    );
    let report = |event: &str| Cmd::sh(&format!("trace-cmd report /tmp/slept.dat | grep -c ' {event}: '"));
    let run = Vm::new(kernel)
        .agent()
        .trace_cmd()
        .bring_back("/tmp/slept.dat")
        .run(&[Cmd::sh(&record).timeout(Duration::from_mins(8)), report("in"), report("back")])
        .unwrap_or_else(|error| panic!("{error}"));
    run.outcomes[0].expect_success();
    let count = |at: usize| run.outcomes[at].expect_success().trim().parse::<u64>().expect("a number");
    let (calls, returns) = (count(1), count(2));
    let file = scratch.path().join("slept.dat");
    std::fs::write(&file, &run.files["/tmp/slept.dat"]).expect("a file");
    // Among those that the kernel missed may be the recorder's own.
    let missed = Dat::open(&file).ledger().recursion_misses().expect("a number");
    assert!(calls >= SLEEPERS && returns < calls && missed >= calls - returns, "{calls} {returns} {missed}");
}

/// How many functions have a probe: those of many at once are ftrace's, single ones are kprobes.
const COUNT_PROBED: &str =
    "cat /sys/kernel/tracing/enabled_functions /sys/kernel/debug/kprobes/list 2>/dev/null | grep -c acpi_";
/// The rest is detached behind the back of the recorder.
const UNTIL_DETACHED: &str = "while cat /sys/kernel/tracing/enabled_functions /sys/kernel/debug/kprobes/list 2>/dev/null | grep -q acpi_; do sleep 1; done";

/// An event's lines: the task's number, and what is behind the address.
fn texts<'a>(report: &'a str, event: &str) -> Vec<(&'a str, &'a str)> {
    let marker = format!(" {event}: ");
    let text = |line: &'a str| {
        let (front, text) = line.split_once(&marker)?;
        let task = front.split_once(" [")?.0.trim().rsplit_once('-')?.1;
        Some((task, text.split_once(") ")?.1.trim()))
    };
    report.lines().filter(|line| !line.starts_with('#')).filter_map(text).collect()
}

#[track_caller]
fn fails(outcome: &Outcome, code: i32, text: &str) {
    assert_eq!(outcome.code(), Some(code), "{outcome:?}");
    assert!(outcome.stderr_text().contains(text), "{outcome:?}");
}
