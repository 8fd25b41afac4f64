//! Tests that may run beside others: they only read and make files, however long that takes.
//! `cargo xtask test` runs each of them as a job. A subject that records, watches or holds this machine in
//! any test is not here.

mod analysis;
mod binaries;
mod export_html;
mod filter_stock;
mod hostile_names;
mod tables_questions;
