//! Exports of stock recordings to Perfetto, read by the descriptors of Perfetto's own package, against
//! `report --json`.

use std::collections::BTreeSet;

use integration_tests::harness::{agent, run};
use integration_tests::trace_cmd::stored;

use crate::export_perfetto::{check, export};

#[test]
fn every_event_and_field_of_stock_recordings_comes_back() {
    let dir = tempfile::tempdir().unwrap();
    let mut lost = 0;
    for file in stored(dir.path()) {
        let (trace, records) = check(&file, dir.path());
        let marked = trace.events.values().flatten().filter(|event| event["lost"] == true).count();
        assert_eq!(marked, records.iter().filter(|record| record["lost"] != 0).count(), "{}", file.display());
        lost += marked;
    }
    assert!(lost > 0, "one of them has losses");
}

#[test]
fn targets_are_files() {
    let dir = tempfile::tempdir().unwrap();
    let file = stored(dir.path()).remove(0);
    let out = dir.path().join("out");
    export(&file, &out).expect(0);
    assert!(out.is_file());
    let again = export(&file, &out);
    assert!(again.err.contains("exists; --force replaces it"), "{again:?}");
    run(agent("/".as_ref(), ["export", "--force", "--format", "perfetto"]).arg(&file).arg(&out)).expect(0);
    let directory = dir.path().join("directory");
    std::fs::create_dir(&directory).unwrap();
    std::fs::write(directory.join("other"), "").unwrap();
    let refused =
        run(agent("/".as_ref(), ["export", "--force", "--format", "perfetto"]).arg(&file).arg(&directory));
    assert!(refused.err.contains("is no earlier export"), "{refused:?}");
    let tar =
        run(agent("/".as_ref(), ["export", "--tar", "--format", "perfetto"]).arg(&file).arg(&directory));
    assert!(tar.err.contains("--tar: perfetto is one file"), "{tar:?}");
    let names: BTreeSet<_> =
        std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(names.iter().all(|name| !name.to_string_lossy().starts_with('.')), "{names:?}");
}
