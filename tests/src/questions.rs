//! The questions of docs/tables.md about a data set, as DuckDB and Spark answer them.
#![expect(clippy::missing_panics_doc, reason = "every one of these fails a test by panicking")]

use std::net::SocketAddr;
use std::path::Path;

use serde_json::Value;

use crate::harness::{Running, program};

/// What `cargo xtask bench tables` runs, too.
const ASK: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/questions/ask.py");
const DOCUMENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/tables.md");

/// What makes Spark fast where there is little to read: less work before each question and no compiling of
/// what runs once.
const SPARK_CONF: &str = "spark.driver.memory=1g spark.sql.shuffle.partitions=2 spark.sql.adaptive.enabled=false \
    spark.sql.codegen.wholeStage=false spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1";

/// Who answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// DuckDB with the extension that reads from object stores, in `target/duckdb-s3`.
    DuckDb,
    /// Spark, in `target/spark`.
    Spark,
}

/// A question and its answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// The question's words.
    pub question: String,
    /// The rows: objects.
    pub rows: Vec<Value>,
}

/// Asks all questions about a data set: a directory, or a URL of objects on a server.
#[track_caller]
pub fn ask(engine: Engine, place: &str, server: Option<SocketAddr>) -> Vec<Answer> {
    let (name, site) = match engine {
        Engine::DuckDb => ("duckdb", "../target/duckdb-s3"),
        Engine::Spark => ("spark", "../target/spark"),
    };
    let site = Path::new(env!("CARGO_MANIFEST_DIR")).join(site);
    assert!(site.is_dir(), "{} is not there: cargo xtask setup --for test", site.display());
    let mut python = program("/".as_ref(), "/usr/bin/python3", [ASK, name, DOCUMENT, place]);
    python
        .args(server.map(|server| server.to_string()))
        .env("PYTHONPATH", site)
        .env("SPARK_CONF", SPARK_CONF);
    let mut running = Running::start(&mut python);
    // On a busy machine it takes Spark long to start, and long to answer all of them.
    running.wait_until_out("\"question\": \"open\"");
    let out = running.wait().expect(0).out;
    let answer = |line: &str| {
        let mut answer: Value = serde_json::from_str(line).expect(line);
        let question = answer["question"].as_str().expect(line).to_owned();
        match answer["rows"].take() {
            Value::Array(rows) => Answer { question, rows },
            other => panic!("{other} are no rows"),
        }
    };
    // The first line is about opening the data set.
    out.lines().skip(1).map(answer).collect()
}
