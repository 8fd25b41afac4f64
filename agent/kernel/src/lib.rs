//! Reads the running kernel: tracefs, BTF, symbols, CPUs, clocks, `/proc`, and what the kernel allows.
//!
//! **Data flow:** files of the kernel → parsers on slices → typed data for `plan`, `compile` and `attach`.
//!
//! **Guarantees**
//!
//! - It only reads: it changes no kernel setting, and a mount that it makes is private to a thread.
//! - The kernel's text is outside data: parsers take a slice, have bounds, and give typed errors.
//! - A missing feature comes with its reason and a remedy ([`features`]).
//!
//! **Must not know:** recordings and their files, eBPF programs, terminals.
//!
//! # Example
//!
//! ```no_run
//! use kernel::events::Catalogue;
//! use kernel::tracefs::Tracefs;
//!
//! let tracefs = Tracefs::open()?;
//! let catalogue = Catalogue::read(&tracefs)?;
//! for entry in catalogue.matching(&"sched:*".parse()?) {
//!     println!("{}", entry.name);
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Modules
//!
//! | module | content |
//! |---|---|
//! | [`tracefs`] | where tracefs is; event formats, page header, printk formats, clocks |
//! | [`events`] | the events, the matches of a selection such as `sched:*`, and events that cannot be recorded |
//! | [`cpus`] | the CPUs |
//! | [`clock`] | clocks for time stamps, and their distance to wall time |
//! | [`kallsyms`] | the kernel's symbols |
//! | [`btf`] | layouts of the kernel's types: member offsets, functions, per-CPU variables |
//! | [`proc`] | threads, memory maps and limits |
//! | [`ids`], [`cgroup`] | users, groups and namespaces; control groups |
//! | [`version`], [`privileges`] | the kernel's version; the rights of this process |
//! | [`features`] | what kernel, capabilities and mounts allow, with remedies |
//! | [`read`] | reading the kernel's files |

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
