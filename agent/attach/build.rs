//! Builds the eBPF programs, and gives the crate the path of the object (`TRACER_AGENT_EBPF`).
//!
//! `TRACER_AGENT_EBPF_OBJECT=/path` uses that object instead, for packagers and documentation builders that
//! have no sources of `core`.

fn main() -> std::process::ExitCode {
    ebpf_build::build_script()
}
