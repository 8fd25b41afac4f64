//! Tables of recordings: their export, and what `report` says of the same records.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;

use crate::harness::{Ended, agent, run};

/// Exports a file.
pub fn export(file: &Path, format: &str, to: &Path) -> Ended {
    run(agent("/".as_ref(), ["export", "--format", format]).arg(file).arg(to))
}

/// The records of a file, as `report` has them.
pub fn told(file: &Path) -> Vec<Value> {
    let out = run(agent("/".as_ref(), ["report", "--json"]).arg(file)).expect(0).out;
    out.lines()
        .filter(|line| line.starts_with("{\"timestamp\""))
        .map(|line| serde_json::from_str(line).expect(line))
        .collect()
}

/// How many records of each event a file has, as `report` says.
pub fn counts(file: &Path) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    for record in told(file) {
        let text = |member: &str| record[member].as_str().unwrap().to_owned();
        *counts.entry(format!("{}.{}", text("system"), text("event"))).or_default() += 1;
    }
    counts
}
