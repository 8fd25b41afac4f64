//! tracer-agent in guests: a module for each subject.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod boot;
mod cost;
mod engine;
mod functions;
mod graph;
mod hotplug;
mod many_cpus;
mod modules;
mod newest;
mod oracle;
mod probes;
mod record;
mod trace_cmd_net;
mod verifier;
