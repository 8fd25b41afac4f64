//! ftrace as the oracle on Debian's kernels: the integration test that compares the two recorders, run in the guest.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use vm_tests::{Kernel, guest::integration_tests, on_cloud_kernels, on_rt_kernels};

on_cloud_kernels!(sched_records_equal_ftraces);
// With `PREEMPT_RT`, where soft interrupts run in threads and spinning locks sleep.
on_rt_kernels!(sched_records_equal_ftraces);

fn sched_records_equal_ftraces(kernel: &Kernel) {
    integration_tests(kernel, &[("oracle", &["sched"])]);
}
