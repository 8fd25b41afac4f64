//! Tests that only make and read files, with the built program: they load nothing into the kernel, and what
//! they read does not depend on the machine.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests fail the test by panicking")]

mod compare;
