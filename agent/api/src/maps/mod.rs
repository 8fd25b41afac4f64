//! What maps have counted, for people and programs.
//!
//! | file | subject |
//! |---|---|
//! | `table` | tables, and histograms as bars |
//! | `metrics` | OpenMetrics |

mod metrics;
mod table;

pub use metrics::metrics;
pub use table::table;
