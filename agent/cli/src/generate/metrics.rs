//! The daemon's metrics, as the table of `docs/metrics.md`.

use std::fmt::Write as _;

use daemon::metrics::{Described, metrics};

/// The table.
pub(super) fn table() -> String {
    let mut out = "| metric | kind | labels | meaning |\n|---|---|---|---|\n".to_owned();
    for metric in metrics() {
        let labels = labels(&metric);
        let Described { name, kind, help, .. } = metric;
        let _ = writeln!(out, "| `{name}` | {kind} | {labels} | {} |", help.replace('|', "\\|"));
    }
    out
}

fn labels(metric: &Described) -> String {
    let of = |label: &&str| match *label {
        "..." => "those of the configuration's `labels`".to_owned(),
        name => format!("`{name}`"),
    };
    metric.labels.iter().map(of).collect::<Vec<_>>().join(", ")
}
