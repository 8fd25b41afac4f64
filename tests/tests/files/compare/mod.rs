//! A recording is the same in whatever way it is read: what `report --json` says of it is compared with what
//! other tools find in each export, with conversions and parts, and with imports of exports.
//!
//! What a format does not carry is on its list, and an entry without a difference fails.

mod analyses;
mod exports;
mod readers;
mod recordings;
mod rewrites;
mod stock;
mod truth;
