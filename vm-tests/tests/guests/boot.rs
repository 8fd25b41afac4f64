//! Every kernel boots, runs the agent and stock trace-cmd, and gives back what they print and write.

use std::time::Duration;

use vm_tests::{Cmd, End, Error, Kernel, Vm, kernel_for_test, on_kernels, soak_on_kernels};

on_kernels! {
    k6_12_generic: [boots],
}
soak_on_kernels! {
    k6_1_cloud: [boots],
    k6_1_rt: [boots],
    k6_12_cloud: [boots],
    k6_12_rt: [boots],
}

fn boots(kernel: &Kernel) {
    let run = Vm::new(kernel)
        .agent()
        .trace_cmd()
        .bytes("/etc/greeting", "hello\n")
        .bring_back("/tmp/copy")
        .run(&[
            Cmd::new(["/bin/busybox", "uname", "-r"]),
            Cmd::new(["tracer-agent", "--version"]),
            Cmd::new(["trace-cmd", "list", "-s"]),
            Cmd::sh("cat /etc/greeting; echo bad >&2; head -c 1000000 /dev/zero > /tmp/copy; exit 3"),
            Cmd::new(["sleep", "60"]).timeout(Duration::from_millis(300)),
            Cmd::sh("kill -9 $$"),
            Cmd::new(["/no/such/program"]),
            Cmd::sh("grep -c . /sys/kernel/tracing/available_events; ls /sys/kernel/btf/vmlinux; nproc"),
        ])
        .unwrap_or_else(|error| panic!("{error}"));
    let [uname, agent, trace_cmd, mixed, slow, killed, missing, offers] = run.outcomes.as_slice() else {
        panic!("{:?}", run.outcomes)
    };
    assert!(uname.expect_success().starts_with(&format!("{}.", kernel.series())), "{uname:?}");
    agent.expect_success();
    assert!(trace_cmd.expect_success().lines().any(|system| system.trim() == "sched"), "{trace_cmd:?}");
    assert_eq!(
        (mixed.code(), mixed.stdout_text().as_str(), mixed.stderr_text().as_str()),
        (Some(3), "hello\n", "bad\n")
    );
    assert_eq!(slow.end, End::TimedOut);
    assert_eq!(killed.end, End::Signal(9));
    assert_eq!(missing.end, End::NotStarted);
    assert!(offers.expect_success().ends_with("/sys/kernel/btf/vmlinux\n2\n"), "{offers:?}");
    assert_eq!(run.files["/tmp/copy"], vec![0; 1_000_000]);
}

#[test]
fn a_panic_fails_the_run_with_the_console() {
    let kernel = kernel_for_test("6.12-cloud");
    let error =
        Vm::new(&kernel).run(&[Cmd::sh("echo c > /proc/sysrq-trigger")]).expect_err("the kernel panics");
    let Error::Kernel { line, console } = error else { panic!("{error}") };
    assert!(line.contains("panic") || line.contains("BUG: "), "{line}");
    assert!(console.contains("sysrq: Trigger a crash"), "{console}");
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let kernel = kernel_for_test("6.12-cloud");
    let error = Vm::new(&kernel).bring_back("/tmp/none").run(&[]).expect_err("there is no such file");
    assert!(error.to_string().contains("/tmp/none"), "{error}");
}
