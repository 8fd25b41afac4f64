//! The built `tracer-agent`: finding it, running it, and what its summary says.

use std::{
    env,
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
    thread,
    time::Duration,
};

use crate::harness::Running;

/// The environment variable that names the binary under test.
pub const ENV_BIN: &str = "TRACER_AGENT_BIN";

/// A program beside the test's own directory: `target/PROFILE/NAME`.
pub fn beside_test(name: &str) -> PathBuf {
    // target/PROFILE/deps/TEST
    let test = env::current_exe().expect("the path of this test");
    test.ancestors().nth(2).expect("a test lies two levels below its profile's directory").join(name)
}

/// The binary under test: what `TRACER_AGENT_BIN` names, or `tracer-agent` in the target directory of this
/// test.
pub fn binary() -> PathBuf {
    let found = env::var_os(ENV_BIN).map_or_else(|| beside_test("tracer-agent"), PathBuf::from);
    assert!(
        found.is_file(),
        "the agent to test, {}, does not exist: build it with `cargo build`, or name it in {ENV_BIN}",
        found.display()
    );
    found
}

/// A command line of the agent.
pub fn command<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Command {
    let mut command = Command::new(binary());
    command.args(args);
    command
}

/// Runs the agent to its end, whatever that is.
pub fn run<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Output {
    command(args).output().expect("the agent starts")
}

/// A finished recording.
#[derive(Debug)]
pub struct Recording {
    /// The trace file.
    pub path: PathBuf,
    /// What the agent said on standard error, its summary included.
    pub said: String,
}

/// Runs `tracer-agent record -o PATH ARGS`, which must end well.
pub fn record<S: AsRef<OsStr>>(path: &Path, args: impl IntoIterator<Item = S>) -> Recording {
    let mut command = command(["record", "-o"]);
    command.arg(path).args(args);
    let output = command.output().expect("the agent starts");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{command:?}: {}\n{said}", output.status);
    Recording { path: path.to_owned(), said }
}

/// As [`record`], again and again until the kernel has kept no event from the agent: a program that runs when
/// an event fires on its CPU misses that one, which is the kernel's choice and more frequent on a busy
/// machine.
#[track_caller]
pub fn record_all<S: AsRef<OsStr>>(path: &Path, args: impl IntoIterator<Item = S>) -> Recording {
    let args: Vec<S> = args.into_iter().collect();
    let mut recordings = (0..10).map(|_| record(path, args.iter().map(AsRef::as_ref)));
    let whole = recordings.find(|recording| recording.recursion_misses() == 0);
    whole.expect("the kernel keeps events from the agent each time")
}

/// As [`record`], and the most memory of its own that the agent had meanwhile, in kilobytes: without the
/// rings, which are the kernel's, and without files.
pub fn record_and_watch<S: AsRef<OsStr>>(path: &Path, args: impl IntoIterator<Item = S>) -> (Recording, u64) {
    let mut command = command(["record", "-o"]);
    command.arg(path).args(args);
    let mut running = Running::start(&mut command);
    let status = format!("/proc/{}/status", running.pid());
    let mut most = 0;
    while !running.has_ended() {
        let text = fs::read_to_string(&status).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("RssAnon:"));
        // A zombie has none.
        let kilobytes = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse().ok());
        most = most.max(kilobytes.unwrap_or(0));
        thread::sleep(Duration::from_millis(20));
    }
    let said = running.wait().expect(0).err;
    (Recording { path: path.to_owned(), said }, most)
}

impl Recording {
    /// Events that the summary counts as stored.
    pub fn events(&self) -> u64 {
        self.summary_number(" events in ").expect("a summary with a number of events")
    }

    /// Events that the kernel's recursion guard kept from the agent, by the summary.
    pub fn recursion_misses(&self) -> u64 {
        self.summary_number(" events were skipped by the kernel").unwrap_or(0)
    }

    /// The number that stands before `marker`.
    fn summary_number(&self, marker: &str) -> Option<u64> {
        let before = &self.said[..self.said.find(marker)?];
        // Thousands stand apart: `1 234 567`.
        let digits = before.rsplit(|c: char| !(c.is_ascii_digit() || c == ' ')).next()?;
        digits.replace(' ', "").parse().ok()
    }
}
