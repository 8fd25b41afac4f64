//! DuckDB, which `cargo xtask setup` installs in `target/duckdb`, as a reader of tables.

use std::path::Path;

use serde_json::Value;

use crate::harness::{program, run};

/// Creates the views of a directory, and prints what each query gives: an array of objects in a line.
const ASK: &str = "
import json, os, sys
import duckdb
os.chdir(sys.argv[1])
db = duckdb.connect()
db.execute(open('tables.sql').read())
for query in sys.argv[2:]:
    found = db.execute(query)
    names = [column[0] for column in found.description]
    print(json.dumps([dict(zip(names, row)) for row in found.fetchall()]))
";

/// The rows that each query finds in a directory of tables.
#[track_caller]
pub fn ask(dir: &Path, queries: &[&str]) -> Vec<Vec<Value>> {
    let site = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/duckdb");
    assert!(site.is_dir(), "DuckDB is not there: cargo xtask setup --for test");
    let mut python = program("/".as_ref(), "/usr/bin/python3", ["-c", ASK]);
    let out = run(python.arg(dir).args(queries).env("PYTHONPATH", site)).expect(0).out;
    out.lines().map(|line| serde_json::from_str(line).expect(line)).collect()
}
