//! Readers of tables: DuckDB, pyarrow, pandas and Polars, which `cargo xtask setup` installs in
//! `target/duckdb`.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::harness::{program, run};

/// Creates the views of a directory, and prints what each query gives: an array of objects in a line. Moments
/// are microseconds since 1970. DuckDB reads the files of Arrow that `tables.sql` tells of through pyarrow.
const ASK: &str = "
import datetime, json, os, re, sys
import duckdb
os.chdir(sys.argv[1])
db = duckdb.connect()
db.execute(\"SET TimeZone = 'UTC'\")
views = open('tables.sql').read()
if 'pyarrow.dataset' in views:
    import pyarrow.dataset
    for line in re.findall('^-- +(db.register.*)$', views, re.M):
        exec(line)
    views = ''.join(re.findall('^-- (CREATE .*)$', views, re.M))
db.execute(views)
epoch = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
def plain(value):
    return (value - epoch) // datetime.timedelta(microseconds=1)
for query in sys.argv[2:]:
    found = db.execute(query)
    names = [column[0] for column in found.description]
    print(json.dumps([dict(zip(names, row)) for row in found.fetchall()], default=plain))
";

/// Python with these packages, running a text.
#[track_caller]
pub fn python(text: &str) -> Command {
    let site = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/duckdb");
    for package in ["duckdb", "pandas", "polars", "pyarrow"] {
        assert!(site.join(package).is_dir(), "{package} is not there: cargo xtask setup --for test");
    }
    let mut python = program("/".as_ref(), "/usr/bin/python3", ["-c", text]);
    python.env("PYTHONPATH", site);
    python
}

/// The rows that each query finds in a directory of tables.
#[track_caller]
pub fn ask(dir: &Path, queries: &[&str]) -> Vec<Vec<Value>> {
    let out = run(python(ASK).arg(dir).args(queries)).expect(0).out;
    out.lines().map(|line| serde_json::from_str(line).expect(line)).collect()
}
