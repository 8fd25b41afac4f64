//! Stock trace-cmd sends what ftrace records to `tracer-agent listen`, on Debian's kernels.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::time::Duration;

use vm_tests::{Cmd, Kernel, Outcome, Vm, on_cloud_kernels};

on_cloud_kernels!(stock_trace_cmd_records_to_our_listener, machines_of_one_host_meet_through_vsock);

/// A listener with these options, the recording COMMAND, and the listener's end.
fn session(listen: &str, command: &str) -> Cmd {
    Cmd::sh(&format!(
        "mkdir -p /tmp/net && rm -f /tmp/net/* && tracer-agent listen -d /tmp/net {listen} 2>/tmp/said & \
         until grep -q 'listening at' /tmp/said; do sleep 0.1; done; \
         {command}; ended=$?; \
         tries=0; until grep -q ' bytes in ' /tmp/said || [ $tries = 100 ]; do sleep 0.1; tries=$((tries + 1)); done; \
         kill %1; wait; cat /tmp/said; [ $ended = 0 ] && [ $(ls /tmp/net | wc -l) = 1 ] && mv /tmp/net/* /tmp/got.dat"
    ))
    .timeout(Duration::from_mins(3))
}

/// The events that the listener speaks of.
fn told(outcome: &Outcome) -> usize {
    let said = outcome.expect_success();
    assert!(!said.contains("the recorder has gone"), "{said}");
    let (line, _) = said.split_once(" events, ").unwrap_or_else(|| panic!("no events: {said}"));
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

fn stock_trace_cmd_records_to_our_listener(kernel: &Kernel) {
    const WAYS: [(&str, &str); 4] = [
        ("-p 12345", "trace-cmd record -q -N 127.0.0.1:12345 -t -e sched -e syscalls sleep 1"),
        ("-p 12345", "trace-cmd record -q -N 127.0.0.1:12345 -e sched:sched_switch sleep 1"),
        ("-p 12345", "trace-cmd record -q -N 127.0.0.1:12345 -t --compression none -e sched sleep 1"),
        ("-p 12345", "trace-cmd record -q -N 127.0.0.1:12345 -t --file-version 6 -e sched sleep 1"),
    ];
    let mut commands = vec![Cmd::new(["ifconfig", "lo", "up"])];
    for (listen, command) in WAYS {
        commands.push(session(listen, command));
        commands.push(Cmd::sh("tracer-agent check /tmp/got.dat && trace-cmd report /tmp/got.dat"));
    }
    let vm = Vm::new(kernel).agent().trace_cmd().timeout(Duration::from_mins(15));
    let run = vm.run(&commands).unwrap_or_else(|error| panic!("{error}"));
    run.outcomes[0].expect_success();
    for (outcomes, (_, command)) in run.outcomes[1..].chunks(2).zip(WAYS) {
        let events = told(&outcomes[0]);
        let text = outcomes[1].expect_success();
        let shown = text.lines().filter(|line| line.contains("] ") && line.contains(": ")).count();
        assert!(events > 10 && shown >= events, "{command}: {events} events, {shown} lines");
        assert!(text.contains("sched_switch:"), "{command}: {text}");
    }
}

/// Where the kernel passes connections of a machine to itself on.
fn machines_of_one_host_meet_through_vsock(kernel: &Kernel) {
    let commands = [
        Cmd::sh("ls /sys/module | grep -c '^vsock_loopback$' || true"),
        session("-V -p 823", "tracer-agent record -q -V 1:823 -e sched sleep 1"),
        Cmd::sh("tracer-agent check /tmp/got.dat && trace-cmd report /tmp/got.dat"),
        session("-V -p 823", "trace-cmd record -q -V 1:823 -e sched sleep 1"),
        Cmd::sh("tracer-agent check /tmp/got.dat && trace-cmd report /tmp/got.dat"),
    ];
    let vm = Vm::new(kernel).agent().trace_cmd().timeout(Duration::from_mins(10));
    let run = vm.run(&commands).unwrap_or_else(|error| panic!("{error}"));
    for outcomes in run.outcomes[1..].chunks(2) {
        assert!(told(&outcomes[0]) > 10);
        assert!(outcomes[1].expect_success().contains("sched_switch:"));
    }
}
