//! Python processes that answer requests: many packages take longer to import than to answer.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use serde::de::DeserializeOwned;
use serde_json::Value;

/// A process that answers lines on its standard input with lines. It ends with its input, at the latest when
/// this process does.
#[derive(Debug)]
pub struct Interpreter {
    process: Child,
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Interpreter {
    /// Runs a text, which finds the packages of a directory.
    #[track_caller]
    pub fn start(text: &str, site: &Path) -> Self {
        let mut python = Command::new("/usr/bin/python3");
        python.args(["-c", text]).env("PYTHONPATH", site).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = python.spawn().expect("python3");
        let requests = process.stdin.take().expect("a pipe");
        let answers = BufReader::new(process.stdout.take().expect("a pipe"));
        Self { process, requests, answers }
    }

    /// The next line that it prints.
    #[track_caller]
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        assert_ne!(self.answers.read_line(&mut line).expect("a line"), 0, "python3 has ended");
        line
    }

    /// Sends a request and gives its answer, both JSON in a line.
    #[track_caller]
    pub fn ask<T: DeserializeOwned>(&mut self, request: &Value) -> T {
        writeln!(self.requests, "{request}").expect("python3 runs");
        serde_json::from_str(&self.line()).expect("an answer")
    }
}

impl Drop for Interpreter {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
