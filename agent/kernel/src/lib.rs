//! What the running kernel offers.
//!
//! | module | what it answers |
//! |---|---|
//! | [`tracefs`] | where tracefs is, and what is written there: event formats, page header, printk formats, clocks |
//! | [`events`] | which events there are, which of them a selection such as `sched:*` means, which can be recorded |
//! | [`cpus`] | which CPUs there are |
//! | [`clock`] | the clocks that timestamps can be taken from, and how far they are from wall time |
//! | [`kallsyms`] | the kernel's symbols |
//! | [`btf`] | the layout of the kernel's types: member offsets, functions, per-CPU variables |
//! | [`proc`] | the threads, maps and limits of this machine |
//! | [`ids`] | users and groups: their names, and what threads and their namespaces have |
//! | [`version`], [`privileges`] | the kernel's version; what this process may do, and what the kernel lets no process do |
//! | [`features`] | what this kernel, these capabilities and these mounts allow, and what to do about the rest |
//!
//! This module reads. It writes nothing to the kernel's settings, makes no mount that another process could
//! see, and knows nothing of the files that a recording is kept in, nor of the terminal.
//!
//! Text of the kernel is data from outside to it: every parser takes a slice, has bounds, and gives a typed
//! error.

pub mod btf;
pub mod cgroup;
pub mod clock;
pub mod cpus;
pub mod events;
pub mod features;
pub mod ids;
pub mod kallsyms;
pub mod privileges;
pub mod proc;
pub mod tracefs;
pub mod version;

pub mod read;
