//! The newest kernel there is, in one boot: every program loads, and records equal ftrace's where kernels
//! have changed since the older ones of the matrix.

use vm_tests::{
    Kernel,
    guest::{MARKERS, STORMS, integration_tests},
    on_kernels,
};

on_kernels! {
    newest_cloud: [programs_load_and_records_equal_ftraces, storms_lose_nothing],
}

fn programs_load_and_records_equal_ftraces(kernel: &Kernel) {
    integration_tests(
        kernel,
        &[
            ("verifier", &["programs_take_the_verifier_as_long_as_last_time"]),
            // Programs that can be preempted, the kernel's own copies of strings, and network devices with
            // cookies.
            ("oracle", &["raw_syscalls", "syscalls", "network", "sched"]),
            ("lanes", &["what_takes_the_generic_lane_is_told_in_one_line"]),
            ("trace_marker", &MARKERS),
        ],
    );
}

/// The storms, the texts of system calls and the chain of switches: what a program that is preempted could
/// break.
fn storms_lose_nothing(kernel: &Kernel) {
    integration_tests(
        kernel,
        &[
            ("storm", &STORMS),
            (
                "strings",
                &[
                    "a_new_program_is_not_taken_for_what_was_not_resident",
                    "filters_take_the_argument_for_its_string",
                    "stock_readers_show_what_was_passed",
                    "what_is_not_resident_is_copied_when_the_call_has_read_it",
                ],
            ),
            (
                "switches",
                &[
                    "a_recording_of_every_thread_has_a_chain_without_gaps",
                    "a_thread_that_is_recorded_comes_and_goes",
                    "a_thread_that_leaves_the_scope_while_it_runs_is_switched_away_from",
                ],
            ),
        ],
    );
}
