//! Tables of recordings: their export, and what `report` says of the same records.

use std::collections::BTreeMap;
use std::path::Path;

use crate::harness::{Ended, agent, reported, run};

/// Exports a file.
pub fn export(file: &Path, format: &str, to: &Path) -> Ended {
    run(agent("/".as_ref(), ["export", "--format", format]).arg(file).arg(to))
}

/// How many records of each event a file has, as `report` says.
pub fn counts(file: &Path) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    for record in reported(file) {
        let text = |member: &str| record[member].as_str().unwrap().to_owned();
        *counts.entry(format!("{}.{}", text("system"), text("event"))).or_default() += 1;
    }
    counts
}
