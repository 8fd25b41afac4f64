//! ftrace as the oracle on Debian's kernels: the integration test that compares the two recorders, run in the guest.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::time::Duration;

use vm_tests::{Cmd, Kernel, Vm, guest::test_program, on_cloud_kernels, target_dir};

on_cloud_kernels!(sched_records_equal_ftraces);

fn sched_records_equal_ftraces(kernel: &Kernel) {
    let program = test_program("integration-tests", "oracle").unwrap_or_else(|error| panic!("{error}"));
    let mut vm = Vm::new(kernel)
        .agent()
        .trace_cmd()
        .program(&program.test, "/test/deps/oracle")
        .size(2, 2048)
        .timeout(Duration::from_mins(15));
    for helper in &program.helpers {
        let name = helper.file_name().and_then(|name| name.to_str()).expect("a name of ours");
        vm = vm.program(helper, &format!("/test/{name}"));
    }
    // Where the test was told at compile time to put its files.
    let scratch = target_dir().join("tmp");
    let run = vm
        .run(&[Cmd::sh(&format!(
            "mkdir -p {} && TRACER_AGENT_BIN=/bin/tracer-agent /test/deps/oracle --exact sched --nocapture",
            scratch.display()
        ))
        .timeout(Duration::from_mins(10))])
        .unwrap_or_else(|error| panic!("{error}"));
    let text = run.outcomes[0].expect_success();
    assert!(text.contains("test result: ok. 1 passed"), "{text}");
}
