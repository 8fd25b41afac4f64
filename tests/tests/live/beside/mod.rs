//! Tests that may run beside others: they only read and make files, however long that takes.
//! `cargo xtask test` runs each of them as a job. A test that records, watches or holds this machine is not
//! here, and is in a module with the same name one level up.

mod analysis;
mod analyze;
mod binaries;
mod export_chrome;
mod export_html;
pub(crate) mod export_ltt;
mod export_perf_script;
mod export_perfetto;
mod export_tables;
mod filter_stock;
mod hostile_names;
mod store;
mod tables_questions;
