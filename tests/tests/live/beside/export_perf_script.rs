//! Exports of stock recordings as the text of `perf script`, against `report --json`.

use std::collections::BTreeMap;

use integration_tests::harness::reported;
use integration_tests::trace_cmd::stored;

use crate::export_perf_script::{export, records};

#[test]
fn every_record_of_stock_recordings_is_a_line_or_the_frames_of_one() {
    let dir = tempfile::tempdir().unwrap();
    for file in stored(dir.path()) {
        let text = export(&file, &dir.path().join("out"));
        let told = reported(&file);
        let losses = told.iter().filter(|record| record["lost"] != 0).count();
        assert_eq!(text.lines().filter(|line| line.starts_with("# CPU ")).count(), losses);
        let is_stack = |name: &str| name.ends_with("_stack");
        // By CPU: of events at one time, those of any CPU come first.
        let mut expected: BTreeMap<u64, Vec<(u64, i64, String)>> = BTreeMap::new();
        for record in told.iter().filter(|record| !is_stack(record["event"].as_str().unwrap())) {
            let name =
                format!("{}:{}", record["system"].as_str().unwrap(), record["event"].as_str().unwrap());
            let (time, pid) = (record["timestamp"].as_u64().unwrap(), record["pid"].as_i64().unwrap());
            expected.entry(record["cpu"].as_u64().unwrap()).or_default().push((time, pid, name));
        }
        let mut found: BTreeMap<u64, Vec<(u64, i64, String)>> = BTreeMap::new();
        let mut before = 0;
        for record in records(&text).into_iter().filter(|record| !is_stack(record.event)) {
            assert!(before <= record.nanos, "{record:?}");
            before = record.nanos;
            let entry = (record.nanos, record.tid, record.event.to_owned());
            found.entry(record.cpu.into()).or_default().push(entry);
        }
        assert_eq!(found, expected, "{}", file.display());
    }
}
