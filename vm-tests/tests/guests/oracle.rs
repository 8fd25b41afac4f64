//! Oracles on Debian's kernels: the integration tests that compare recordings with ftrace's and with perf's
//! counters, run in the guest.

use vm_tests::{
    Kernel,
    guest::{STORMS, integration_tests, integration_tests_on_disk},
    on_kernels, soak_on_kernels,
};

on_kernels! {
    k6_1_cloud: [
        records_equal_ftraces_in_storms_too,
        interrupts_are_not_those_of_threads_that_are_left_out,
    ],
    k6_12_cloud: [records_of_disks_equal_ftraces, probes_tell_interrupts_from_threads],
    // With `PREEMPT_RT`, where soft interrupts run in threads and spinning locks sleep.
    k6_12_rt: [sched_records_equal_ftraces],
}
soak_on_kernels! {
    k6_1_cloud: [
        other_records_equal_ftraces,
        records_of_disks_equal_ftraces,
        chosen_threads_bring_their_own_interrupts,
        probes_tell_interrupts_from_threads,
    ],
    k6_1_rt: [sched_records_equal_ftraces, storms_lose_nothing],
    k6_12_cloud: [
        records_equal_ftraces_in_storms_too,
        other_records_equal_ftraces,
        interrupts_are_not_those_of_threads_that_are_left_out,
        chosen_threads_bring_their_own_interrupts,
    ],
    k6_12_rt: [storms_lose_nothing],
}

/// Events of tasks and interrupts, and both of them at once, in the fast lane and in the generic one; storms
/// of them, against counters.
fn records_equal_ftraces_in_storms_too(kernel: &Kernel) {
    let groups = ["sched", "nested", "raw_syscalls", "syscalls"];
    integration_tests(kernel, &[("oracle", &groups), ("storm", &STORMS)]);
}

/// What else of the fast lane fires in a guest without a disk.
fn other_records_equal_ftraces(kernel: &Kernel) {
    integration_tests(kernel, &[("oracle", &["timer", "kmem", "network"])]);
}

/// The events that need one, and interrupts that devices raise.
fn records_of_disks_equal_ftraces(kernel: &Kernel) {
    integration_tests_on_disk(kernel, &[("oracle", &["irq", "block"])]);
}

fn sched_records_equal_ftraces(kernel: &Kernel) {
    integration_tests(kernel, &[("oracle", &["sched"])]);
}

fn storms_lose_nothing(kernel: &Kernel) {
    integration_tests(kernel, &[("storm", &STORMS)]);
}

/// What comes while a thread has the CPU that is not recorded.
fn interrupts_are_not_those_of_threads_that_are_left_out(kernel: &Kernel) {
    let tests = [
        "requests_end_in_interrupts_of_the_recorder",
        "soft_interrupts_are_as_many_as_the_kernel_counts",
        "interrupts_of_the_recorder_are_those_that_ftrace_records",
        "maps_count_interrupts_of_the_recorder",
    ];
    integration_tests_on_disk(kernel, &[("interrupts", &tests)]);
}

/// The same of threads that options choose or exclude.
fn chosen_threads_bring_their_own_interrupts(kernel: &Kernel) {
    let tests = [
        "requests_end_in_interrupts_of_excluded_threads",
        "threads_that_are_asked_for_bring_their_own_interrupts_only",
    ];
    integration_tests_on_disk(kernel, &[("interrupts", &tests)]);
}

/// Functions that interrupts call, and that threads call.
fn probes_tell_interrupts_from_threads(kernel: &Kernel) {
    integration_tests(kernel, &[("interrupts", &["probes_of_the_kernel_tell_interrupts_from_threads"])]);
}
