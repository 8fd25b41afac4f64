//! Building tracer-agent: which compiler and linker make eBPF objects on this machine, and making one.
//!
//! | module | what it is |
//! |---|---|
//! | [`toolchain`] | finds a compiler that has `core` for BPF and the `bpf-linker` of the same LLVM |
//! | [`ebpf`] | builds the package `agent-ebpf` with that pair |
//!
//! `agent/build.rs` depends on this library, so it uses the standard library alone. The tasks that people
//! call (`cargo xtask ...`) are in the binary, behind the feature `cli`.

pub mod ebpf;
pub mod toolchain;
