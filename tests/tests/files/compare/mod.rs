//! A recording is the same in whatever way it is read: what `report --json` says of it is compared with what
//! other tools find in each export, with conversions and parts, and with imports of exports.
//!
//! What a format does not carry is on its list, and an entry without a difference fails.
//!
//! The live suite compares what needs a kernel in the same way: imports of perf.data with what perf prints of
//! it (`import`), and readers of recordings that go on with `report --json` of the finished file (`follow`)
//! and with the stored trace (`live`).

mod analyses;
mod exports;
mod readers;
mod recordings;
mod rewrites;
mod stock;
mod truth;
