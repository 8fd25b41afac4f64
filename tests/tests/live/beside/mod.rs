//! Tests that may run beside others: they only read and make files, however long that takes.
//! `cargo xtask test` runs each of them as a job. A subject that records, watches or holds this machine in
//! any test is not here.

mod analysis;
mod analyze;
mod binaries;
mod export_chrome;
mod export_html;
mod export_perf_script;
mod export_perfetto;
mod export_tables;
mod filter_stock;
mod hostile_names;
mod store;
mod tables_questions;
