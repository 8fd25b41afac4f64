//! Rotations, snapshots that events ask for, and events and threads that come and go, on other kernels.

use vm_tests::{Kernel, guest, on_kernels, soak_on_kernels};

on_kernels! {
    k6_1_cloud: [threads_are_tracked_and_files_rotate],
}
soak_on_kernels! {
    k6_1_cloud: [a_recording_changes_and_takes_snapshots],
    k6_12_cloud: [threads_are_tracked_and_files_rotate, a_recording_changes_and_takes_snapshots],
}

fn threads_are_tracked_and_files_rotate(kernel: &Kernel) {
    guest::integration_tests(
        kernel,
        &[
            ("rotate", &["the_newest_files_are_kept"]),
            (
                "tracking",
                &["ids_of_namespaces_are_tracked", "what_is_tracked_changes_exactly_when_it_is_said"],
            ),
            ("trace_marker", &guest::MARKERS),
        ],
    );
}

fn a_recording_changes_and_takes_snapshots(kernel: &Kernel) {
    guest::integration_tests(
        kernel,
        &[
            ("snapshot", &["a_snapshot_waits_for_what_comes_after_its_event"]),
            ("changing", &["the_example_records_what_it_says"]),
            (
                "rate_groups",
                &[
                    "an_overload_of_a_group_leaves_the_others_what_is_theirs",
                    "events_that_are_added_and_handed_over_have_limits_of_groups",
                ],
            ),
        ],
    );
}
