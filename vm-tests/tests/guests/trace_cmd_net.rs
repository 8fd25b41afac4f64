//! Stock trace-cmd sends what ftrace records to `tracer-agent listen`, on Debian's kernels.

use std::time::Duration;

use vm_tests::{Cmd, Kernel, Outcome, Vm, on_kernels, soak_on_kernels};

on_kernels! {
    k6_12_cloud: [stock_trace_cmd_records_to_our_listener],
}
soak_on_kernels! {
    k6_1_cloud: [stock_trace_cmd_records_to_our_listener],
}

/// A listener, a recording by COMMAND, and the listener's end.
fn session(command: &str) -> Cmd {
    Cmd::sh(&format!(
        "mkdir -p /tmp/net && rm -f /tmp/net/* && tracer-agent listen -p 12345 -d /tmp/net 2>/tmp/said & \
         until grep -q 'listening at' /tmp/said; do sleep 0.1; done; \
         {command}; ended=$?; \
         tries=0; until grep -q ' events, ' /tmp/said || [ $tries = 100 ]; do sleep 0.1; tries=$((tries + 1)); done; \
         kill %1; wait; cat /tmp/said; [ $ended = 0 ] && [ $(ls /tmp/net | wc -l) = 1 ] && mv /tmp/net/* /tmp/got.dat"
    ))
    .timeout(Duration::from_mins(3))
}

/// The events that the listener speaks of.
fn told(outcome: &Outcome) -> usize {
    let said = outcome.expect_success();
    assert!(!said.contains("the recorder has gone"), "{said}");
    let (line, _) = said.split_once(" events, ").unwrap_or_else(|| panic!("no events: {said}"));
    line.rsplit(": ").next().unwrap().replace(' ', "").parse().unwrap()
}

fn stock_trace_cmd_records_to_our_listener(kernel: &Kernel) {
    const WAYS: [&str; 4] = [
        "trace-cmd record -q -N 127.0.0.1:12345 -t -e sched -e syscalls sleep 1",
        "trace-cmd record -q -N 127.0.0.1:12345 -e sched:sched_switch sleep 1",
        "trace-cmd record -q -N 127.0.0.1:12345 -t --compression none -e sched sleep 1",
        "trace-cmd record -q -N 127.0.0.1:12345 -t --file-version 6 -e sched sleep 1",
    ];
    let mut commands = vec![Cmd::new(["ifconfig", "lo", "up"])];
    for command in WAYS {
        commands.push(session(command));
        commands.push(Cmd::sh("tracer-agent check /tmp/got.dat && trace-cmd report /tmp/got.dat"));
    }
    let vm = Vm::new(kernel).agent().trace_cmd().timeout(Duration::from_mins(15));
    let run = vm.run(&commands).unwrap_or_else(|error| panic!("{error}"));
    run.outcomes[0].expect_success();
    for (outcomes, command) in run.outcomes[1..].chunks(2).zip(WAYS) {
        let events = told(&outcomes[0]);
        let text = outcomes[1].expect_success();
        let shown = text.lines().filter(|line| line.contains("] ") && line.contains(": ")).count();
        assert!(events > 10 && shown >= events, "{command}: {events} events, {shown} lines");
        assert!(text.contains("sched_switch:"), "{command}: {text}");
    }
}
