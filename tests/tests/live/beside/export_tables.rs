//! Tables of stock recordings, read by DuckDB, against `report --json`.

use integration_tests::harness::{agent, reported, run};
use integration_tests::tables::export;
use integration_tests::trace_cmd::stored;

use crate::export_tables::{FORMATS, check};

#[test]
fn tables_of_stock_recordings_have_every_record_and_field() {
    let dir = tempfile::tempdir().unwrap();
    for file in stored(dir.path()) {
        for format in FORMATS {
            check(&file, format, dir.path());
        }
    }
}

#[test]
fn directories_of_tables_are_exports() {
    let dir = tempfile::tempdir().unwrap();
    let file = stored(dir.path()).remove(0);
    let out = dir.path().join("out");
    export(&file, "csv", &out).expect(0);
    assert!(export(&file, "jsonl", &out).err.contains("--force replaces it"));
    run(agent("/".as_ref(), ["export", "--force", "--format", "jsonl"]).arg(&file).arg(&out)).expect(0);
    assert!(out.join("hosts.jsonl").is_file() && !out.join("hosts.csv").exists());
    let told = run(agent("/".as_ref(), ["info"]).arg(&out));
    assert!(told.err.contains("duckdb -init tables.sql"), "{told:?}");
}

#[test]
fn one_table_goes_to_standard_output() {
    let dir = tempfile::tempdir().unwrap();
    let file = stored(dir.path()).remove(0);
    let event = reported(&file).remove(0);
    let (system, event) = (event["system"].as_str().unwrap(), event["event"].as_str().unwrap());
    let export = |args: &[&str]| run(agent("/".as_ref(), ["export"]).args(args).arg(&file).arg("-"));
    for format in ["csv", "jsonl"] {
        let out = dir.path().join(format);
        let args = ["export", "--format", format, "--table", event, "--table", "gaps"];
        run(agent("/".as_ref(), args).arg(&file).arg(&out)).expect(0);
        let mut names: Vec<String> = std::fs::read_dir(&out)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        let table = format!("{system}.{event}.{format}");
        assert_eq!(names, [format!("gaps.{format}"), table.clone(), "tables.sql".to_owned()]);
        let told = export(&["--format", format, "--table", &format!("{system}:{event}")]).expect(0);
        assert_eq!(told.out, std::fs::read_to_string(out.join(table)).unwrap());
    }
    assert!(export(&["--format", "csv", "--table", "none"]).expect(1).err.contains("no table none"));
    for args in [
        &["--format", "csv"][..],
        &["--format", "csv", "--table", "gaps", "--table", "hosts"],
        &["--format", "parquet", "--table", "gaps"],
        &["--format", "html"],
        &["--format", "html", "--table", "gaps"],
    ] {
        export(args).expect(2);
    }
}
