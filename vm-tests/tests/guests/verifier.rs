//! Every program on Debian's kernels: loaded, and no harder for the verifier than last time.

use vm_tests::{Kernel, guest::integration_tests, on_kernels};

on_kernels! {
    k6_1_cloud: [programs_take_the_verifier_as_long_as_last_time],
    k6_12_cloud: [programs_take_the_verifier_as_long_as_last_time],
}

fn programs_take_the_verifier_as_long_as_last_time(kernel: &Kernel) {
    integration_tests(kernel, &[("verifier", &["programs_take_the_verifier_as_long_as_last_time"])]);
}
