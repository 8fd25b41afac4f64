//! Attach points: how eBPF programs are tied to the kernel's hooks.
