//! Oracles on Debian's kernels: the integration tests that compare recordings with ftrace's and with perf's
//! counters, run in the guest.

use vm_tests::{
    Kernel,
    guest::{STORMS, integration_tests, integration_tests_on_disk},
    on_cloud_kernels, on_rt_kernels,
};

on_cloud_kernels!(
    records_equal_ftraces_in_storms_too,
    records_of_disks_equal_ftraces,
    interrupts_are_not_those_of_threads_that_are_left_out
);
// With `PREEMPT_RT`, where soft interrupts run in threads and spinning locks sleep.
on_rt_kernels!(sched_records_equal_ftraces_in_storms_too);

/// Every event of the fast lane that fires in a guest without a disk, and the generic lane beside it; storms
/// of them, against counters.
fn records_equal_ftraces_in_storms_too(kernel: &Kernel) {
    let groups = ["sched", "timer", "nested", "kmem", "raw_syscalls", "syscalls", "network"];
    integration_tests(kernel, &[("oracle", &groups), ("storm", &STORMS)]);
}

/// The events that need one, and interrupts that devices raise.
fn records_of_disks_equal_ftraces(kernel: &Kernel) {
    integration_tests_on_disk(kernel, &[("oracle", &["irq", "block"])]);
}

fn sched_records_equal_ftraces_in_storms_too(kernel: &Kernel) {
    integration_tests(kernel, &[("oracle", &["sched"]), ("storm", &STORMS)]);
}

/// What comes while a thread has the CPU that is not recorded.
fn interrupts_are_not_those_of_threads_that_are_left_out(kernel: &Kernel) {
    let tests = [
        "requests_end_in_interrupts_of_the_recorder",
        "requests_end_in_interrupts_of_excluded_threads",
        "threads_that_are_asked_for_bring_their_own_interrupts_only",
        "soft_interrupts_are_as_many_as_the_kernel_counts",
        "interrupts_of_the_recorder_are_those_that_ftrace_records",
        "maps_count_interrupts_of_the_recorder",
        "probes_of_the_kernel_tell_interrupts_from_threads",
    ];
    integration_tests_on_disk(kernel, &[("interrupts", &tests)]);
}
