//! The eBPF programs.
#![no_std]
#![no_main]
