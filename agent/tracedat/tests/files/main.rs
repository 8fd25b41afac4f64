//! The codec on files: ours, stock trace-cmd's, and damaged ones.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a helper of a test fails the test")]

mod check;
mod check_damage;
mod common;
mod damage_files;
mod formats_live;
mod losses;
mod reader_files;
mod reader_foreign;
mod reader_roundtrip;
mod reader_stock;
mod repair_damage;
mod rewrite_convert;
mod rewrite_files;
mod rewrite_merge;
mod rewrite_repair;
mod rewrite_split;
mod trace_cmd;
