//! Recording on Debian's kernels, read back by stock trace-cmd.

use std::time::Duration;

use vm_tests::{Cmd, Kernel, Vm, on_kernels, soak_on_kernels};

on_kernels! {
    k6_1_cloud: [records_and_stock_trace_cmd_reads, time_goes_on_while_the_clock_is_set],
}
soak_on_kernels! {
    k6_12_cloud: [records_and_stock_trace_cmd_reads, time_goes_on_while_the_clock_is_set],
}

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
            Cmd::new(["trace-cmd", "dump", "--cmd-lines", "/tmp/sched.dat"]),
            Cmd::sh("tracer-agent record -e 'syscalls:*' -F -o /tmp/calls.dat true").timeout(minutes(4)),
            Cmd::new(["trace-cmd", "report", "/tmp/calls.dat"]),
            Cmd::sh("tracer-agent record -e 'sched:*' -e 'irq:*' -C tai --overwrite -o /tmp/tai.dat sleep 1"),
            Cmd::new(["trace-cmd", "report", "/tmp/tai.dat"]),
        ])
        .unwrap_or_else(|error| panic!("{error}"));
    for outcome in &run.outcomes {
        outcome.expect_success();
    }
    let [doctor, sched, report, dump, names, calls, calls_report, tai, tai_report] = run.outcomes.as_slice()
    else {
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
    // In front of the events trace-cmd may print the name from before the exec. As long as all events were
    // the idle thread's, it has not sorted the names of the file, and adds those that switches tell beside
    // them: which of a thread's two it finds is chance (`tep_register_comm` of libtraceevent).
    let exit = text.lines().find_map(|line| line.split_once("sched_process_exit:   comm=sleep pid="));
    let (_, rest) = exit.unwrap_or_else(|| panic!("no exit of sleep: {text}"));
    let pid = rest.split(' ').next().unwrap();
    let names = names.stdout_text();
    assert!(names.lines().any(|line| line == format!("{pid} sleep")), "{pid}: {names}");
    assert!(!text.contains("<...>"), "a thread without a name: {text}");
    let text = calls_report.stdout_text();
    assert!(text.contains("sys_enter_execve") || text.contains("sys_exit_execve"), "{text}");
    assert!(text.lines().skip(1).all(|line| line.trim_start().starts_with("true-")), "{text}");
    let unknown_before_6_7 = sched.stderr_text().contains("recursion guard: unknown");
    assert_eq!(unknown_before_6_7, kernel.series() == "6.1", "{sched:?}");
}

/// The clock is set forth and back by seconds while events are recorded. CLOCK_TAI follows it.
fn time_goes_on_while_the_clock_is_set(kernel: &Kernel) {
    const SETTING: &str = "for i in 1 2 3; do date -s @$(($(date +%s) + 7)); cat /proc/loadavg; \
                           date -s @$(($(date +%s) - 20)); cat /proc/loadavg; done";
    const WAYS: [&str; 4] = ["-C tai", "-C mono --date", "-C tai --date", "-C tai --overwrite"];
    let mut commands = Vec::new();
    for (number, way) in WAYS.iter().enumerate() {
        let file = format!("/tmp/{number}.dat");
        let events = "-e sched -e timer -e raw_syscalls";
        let record = format!("tracer-agent record -q {way} {events} -o {file} sh -c '{SETTING}'");
        commands.push(Cmd::sh(&record).timeout(Duration::from_mins(2)));
        commands
            .push(Cmd::sh(&format!("tracer-agent check {file} && tracer-agent report --ts-check {file}")));
        commands.push(Cmd::new(["trace-cmd", "report", "-t", "-i", &file]));
    }
    let vm = Vm::new(kernel).agent().trace_cmd().timeout(Duration::from_mins(8));
    let run = vm.run(&commands).unwrap_or_else(|error| panic!("{error}"));
    for (outcomes, way) in run.outcomes.chunks(3).zip(WAYS) {
        let said: Vec<String> = outcomes.iter().map(vm_tests::Outcome::expect_success).collect();
        // `--ts-check` complains on stderr.
        assert_eq!(outcomes[1].stderr_text(), "", "{way}");
        // Six settings, at least one system call each.
        let settings =
            said[2].lines().filter(|line| line.contains("sys_enter: ") && line.contains("NR 227 "));
        assert!(settings.count() >= 6, "{way}: {}", said[2]);
        let times: Vec<u64> = said[2]
            .lines()
            .filter_map(|line| {
                line.split_once("] ")?.1.trim_start().split_once(':')?.0.replace('.', "").parse().ok()
            })
            .collect();
        assert!(times.len() > 100 && times.is_sorted(), "{way}: {} times", times.len());
    }
}
