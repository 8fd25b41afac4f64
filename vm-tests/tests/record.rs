//! Recording on Debian's kernels, read back by stock trace-cmd.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::time::Duration;

use vm_tests::{Cmd, Kernel, Vm, on_cloud_kernels};

on_cloud_kernels!(records_and_stock_trace_cmd_reads);

/// The number in front of ` events in` in a recording's summary.
fn events_in(summary: &str) -> usize {
    let line = summary.lines().find(|line| line.contains(" events in ")).expect("a summary");
    let count = line.split(": ").nth(1).expect("file: count").split(" events").next().expect("a count");
    count.replace(' ', "").parse().expect("a number")
}

fn records_and_stock_trace_cmd_reads(kernel: &Kernel) {
    let minutes = |n| Duration::from_mins(n);
    let run = Vm::new(kernel)
        .agent()
        .trace_cmd()
        .timeout(minutes(10))
        .run(&[
            Cmd::new(["tracer-agent", "doctor"]),
            Cmd::sh("tracer-agent record -e 'sched:*' -o /tmp/sched.dat sleep 1"),
            Cmd::new(["trace-cmd", "report", "/tmp/sched.dat"]),
            Cmd::new(["trace-cmd", "dump", "-v", "/tmp/sched.dat"]),
            Cmd::sh("tracer-agent record -e 'syscalls:*' -F -o /tmp/calls.dat true").timeout(minutes(4)),
            Cmd::new(["trace-cmd", "report", "/tmp/calls.dat"]),
            Cmd::sh("tracer-agent record -e 'sched:*' -e 'irq:*' -C tai --overwrite -o /tmp/tai.dat sleep 1"),
            Cmd::new(["trace-cmd", "report", "/tmp/tai.dat"]),
        ])
        .unwrap_or_else(|error| panic!("{error}"));
    for outcome in &run.outcomes {
        outcome.expect_success();
    }
    let [doctor, sched, report, dump, calls, calls_report, tai, tai_report] = run.outcomes.as_slice() else {
        panic!("{:?}", run.outcomes)
    };
    assert!(doctor.stdout_text().contains("Events can be recorded on this machine."), "{doctor:?}");

    // It exits with 0 for other files, too.
    let verdict = dump.stdout_text() + &dump.stderr_text();
    assert!(verdict.contains("valid trace-cmd file") && !verdict.contains("invalid"), "{verdict}");
    // The first line tells the number of CPUs; every other one is an event.
    for (recorded, shown) in [(sched, report), (calls, calls_report), (tai, tai_report)] {
        let (summary, text) = (recorded.stderr_text(), shown.stdout_text());
        assert_eq!(text.lines().count() - 1, events_in(&summary), "{summary}");
        assert!(!text.contains("FAILED TO PARSE"), "{text}");
    }
    let text = report.stdout_text();
    assert!(text.contains("sched_switch:"), "{text}");
    assert!(
        text.lines()
            .any(|line| line.trim_start().starts_with("sleep-") && line.contains("sched_process_exit")),
        "{text}"
    );
    assert!(!text.contains("<...>"), "a thread without a name: {text}");
    let text = calls_report.stdout_text();
    assert!(text.contains("sys_enter_execve") || text.contains("sys_exit_execve"), "{text}");
    assert!(text.lines().skip(1).all(|line| line.trim_start().starts_with("true-")), "{text}");
    let unknown_before_6_7 = sched.stderr_text().contains("recursion guard: unknown");
    assert_eq!(unknown_before_6_7, kernel.series() == "6.1", "{sched:?}");
}
