//! What the integration tests share: the built agent, stock trace-cmd, ftrace as the reference recorder, and
//! workloads.
//!
//! The tests run as root on the live kernel, one at a time (`--test-threads=1`) unless they only read files.
//! A missing tool or right fails them.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::missing_panics_doc,
    reason = "helpers of tests fail the test by panicking"
)]

pub mod agent;
pub mod analyses;
pub mod answers;
pub mod babeltrace;
pub mod binaries;
pub mod cgroup;
pub mod chromium;
pub mod ctf;
mod ctf2;
pub mod daemon;
pub mod dat;
pub mod duckdb;
pub mod eventdefs_reader;
pub mod fleet;
pub mod folded;
pub mod harness;
pub mod hidden;
pub mod hostile;
pub mod http;
pub mod interpreter;
pub mod kernel_log;
pub mod kernelshark;
pub mod kubernetes;
pub mod ltt2008_reader;
pub mod made_up;
pub mod object_store;
pub mod pairs;
pub mod perf;
pub mod perfetto;
pub mod probe_program;
pub mod prometheus;
pub mod questions;
pub mod session;
pub mod stock_answers;
pub mod stock_lines;
pub mod storm;
pub mod supervisor;
pub mod systemd;
pub mod tables;
pub mod terminal;
pub mod trace_cmd;
pub mod trace_processor;
pub mod tracefs;
pub mod workload;

/// How often a trial in a module `soak` does its work. `cargo xtask soak` sets it; in `cargo xtask test` they
/// are short.
pub const ENV_SOAK: &str = "TRACER_AGENT_SOAK";

/// The value of [`ENV_SOAK`], which is 1 where it is not set.
pub fn soak() -> usize {
    std::env::var(ENV_SOAK).map_or(1, |times| times.parse().expect("TRACER_AGENT_SOAK is a number"))
}

/// Whether the running kernel is one with `PREEMPT_RT`.
pub fn has_preempt_rt() -> bool {
    let version = std::fs::read_to_string("/proc/sys/kernel/version").expect("the kernel's version");
    version.contains("PREEMPT_RT")
}
