//! Every program on Debian's kernels: loaded, and no harder for the verifier than last time.

use vm_tests::{Kernel, guest::integration_tests, on_cloud_kernels};

on_cloud_kernels!(programs_take_the_verifier_as_long_as_last_time);

fn programs_take_the_verifier_as_long_as_last_time(kernel: &Kernel) {
    integration_tests(kernel, &[("verifier", &["programs_take_the_verifier_as_long_as_last_time"])]);
}
