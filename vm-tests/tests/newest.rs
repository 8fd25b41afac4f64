//! The newest kernel there is, in one boot: every program loads, and records equal ftrace's where kernels
//! have changed since the older ones of the matrix.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use vm_tests::{Kernel, guest::integration_tests, on_the_newest_kernel};

on_the_newest_kernel!(programs_load_and_records_equal_ftraces);

fn programs_load_and_records_equal_ftraces(kernel: &Kernel) {
    integration_tests(
        kernel,
        &[
            ("verifier", &["programs_take_the_verifier_as_long_as_last_time"]),
            // Programs that can be preempted, and network devices with cookies.
            ("oracle", &["raw_syscalls", "network"]),
            ("lanes", &["what_takes_the_generic_lane_is_told_in_one_line"]),
        ],
    );
}
