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
            // Scheduling, arguments of all system calls and copies of their strings, network devices with
            // cookies.
            ("oracle", &["sched", "syscalls", "network"]),
            ("probes", &["records_and_formats_are_those_of_ftrace"]),
            ("lanes", &["what_takes_the_generic_lane_is_told_in_one_line"]),
        ],
    );
}
