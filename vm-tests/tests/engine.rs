//! Rotations, snapshots that events ask for, and events that come and go, on other kernels.

use vm_tests::{Kernel, guest, on_cloud_kernels};

on_cloud_kernels!(a_recording_rotates_changes_and_takes_snapshots);

fn a_recording_rotates_changes_and_takes_snapshots(kernel: &Kernel) {
    guest::integration_tests(
        kernel,
        &[
            ("rotate", &["the_newest_files_are_kept"]),
            ("snapshot", &["a_snapshot_waits_for_what_comes_after_its_event"]),
            ("changing", &["the_example_records_what_it_says"]),
        ],
    );
}
