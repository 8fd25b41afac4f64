//! Readers of tables: DuckDB, pyarrow, pandas and Polars, which `cargo xtask setup` installs in
//! `target/duckdb`.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use serde_json::Value;

use crate::harness::program;
use crate::interpreter::Interpreter;

/// Creates the views of a directory, and answers with what each query gives: an array of objects. Moments
/// are microseconds since 1970. DuckDB reads the files of Arrow that `tables.sql` tells of through pyarrow.
const ASK: &str = "
import datetime, json, os, re, sys
import duckdb
epoch = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
def plain(value):
    return (value - epoch) // datetime.timedelta(microseconds=1)
def answer(dir, queries):
    os.chdir(dir)
    with duckdb.connect() as db:
        db.execute(\"SET TimeZone = 'UTC'\")
        views = open('tables.sql').read()
        if 'pyarrow.dataset' in views:
            import pyarrow.dataset
            for line in re.findall('^-- +(db.register.*)$', views, re.M):
                exec(line)
            views = ''.join(re.findall('^-- (CREATE .*)$', views, re.M))
        db.execute(views)
        for query in queries:
            found = db.execute(query)
            names = [column[0] for column in found.description]
            yield [dict(zip(names, row)) for row in found.fetchall()]
for line in sys.stdin:
    print(json.dumps(list(answer(*json.loads(line))), default=plain), flush=True)
";

/// What runs [`ASK`] for one test after the other.
static IDLE: Mutex<Option<Interpreter>> = Mutex::new(None);

fn site() -> PathBuf {
    let site = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/duckdb");
    for package in ["duckdb", "pandas", "polars", "pyarrow"] {
        assert!(site.join(package).is_dir(), "{package} is not there: cargo xtask setup --for test");
    }
    site
}

/// Python with these packages, running a text.
#[track_caller]
pub fn python(text: &str) -> Command {
    let mut python = program("/".as_ref(), "/usr/bin/python3", ["-c", text]);
    python.env("PYTHONPATH", site());
    python
}

/// The rows that each query finds in a directory of tables.
#[track_caller]
pub fn ask(dir: &Path, queries: &[&str]) -> Vec<Vec<Value>> {
    let idle = || IDLE.lock().unwrap_or_else(PoisonError::into_inner);
    let taken = idle().take();
    let mut interpreter = taken.unwrap_or_else(|| Interpreter::start(ASK, &site()));
    let found = interpreter.ask(&serde_json::json!([dir, queries]));
    *idle() = Some(interpreter);
    found
}
