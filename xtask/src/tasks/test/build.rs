//! Everything that the tests run, each built once.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::workspace::{self, STATIC_TARGET};
use crate::{Result, process};

/// The programs that guests and this machine's tests run, and the packages that have them.
const STATIC_PROGRAMS: [(&str, &str); 3] =
    [("tracer-agent", "tracer-agent"), ("vm-tests", "vm-init"), ("vm-tests", "vm-load")];

/// All commands that tracer-agent can have, as its packages do.
const WITH_ALL_COMMANDS: &str = "--features=tracer-agent/full";

/// The same with the example of programs that print messages. Every build for this machine has the same
/// features, so that nothing is built for each of two sets of them.
pub(in crate::tasks) const WITH_ALL_FEATURES: &str =
    "--features=tracer-agent/full,tracer-agent/debug-programs";

/// Their profile.
const STATIC_PROFILE: &str = "tested";

/// A test program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Program {
    pub(super) package: String,
    /// The package's directory, in which cargo runs tests.
    pub(super) dir: PathBuf,
    pub(super) kind: Kind,
    /// The name of its target: a test's file, or the crate's.
    pub(super) name: String,
    pub(super) path: PathBuf,
}

/// What a test program is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The unit tests of a library or a binary.
    Unit,
    /// A file in `tests`.
    Integration,
}

impl Program {
    /// The suite that it belongs to.
    pub(super) fn suite(&self) -> &'static str {
        match (self.package.as_str(), self.kind) {
            ("vm-tests", Kind::Integration) => "vm",
            ("integration-tests", Kind::Integration) if self.name == "live" => "live",
            // These want what `setup --for test` installs, and load nothing into the kernel.
            ("vm-tests" | "integration-tests", Kind::Unit) | (_, Kind::Integration) => "files",
            (_, Kind::Unit) => "unit",
        }
    }

    /// Whether its modules are subjects, not the whole program.
    pub(super) fn has_subjects(&self) -> bool {
        let is_of_subjects = matches!(self.package.as_str(), "vm-tests" | "integration-tests");
        is_of_subjects && self.kind == Kind::Integration
    }
}

/// What was built.
#[derive(Debug, Default)]
pub(super) struct Built {
    pub(super) programs: Vec<Program>,
    /// The list of programs for tests that run others: [`ENV_PROGRAMS`].
    list: Option<PathBuf>,
    /// Where the static programs are, if a suite needs them.
    statics: Option<PathBuf>,
}

impl Built {
    /// Builds the unit tests, of all packages where other suites have units, too: the same packages have the
    /// same features, and are built once.
    pub(super) fn units(suites: &[&str]) -> Result<Self> {
        let mut cargo = cargo_test();
        if suites.iter().all(|suite| matches!(*suite, "unit" | "doc" | "fuzz")) {
            cargo.args(["--exclude", "integration-tests", "--exclude", "vm-tests"]);
        }
        let programs = test_programs(cargo.args(["--lib", "--bins"]))?;
        Ok(Self { programs, ..Self::default() })
    }

    /// Builds all test programs.
    pub(super) fn all() -> Result<Self> {
        let programs = test_programs(cargo_test().args(["--lib", "--bins", "--tests"]))?;
        Ok(Self { list: Some(write_list(&programs)?), programs, statics: None })
    }

    /// Builds what tests of files, live ones and guests run.
    pub(super) fn add_statics(&mut self) -> Result {
        self.statics = Some(static_programs()?);
        Ok(())
    }

    /// What tests find in their environment.
    pub(super) fn environment(&self) -> Vec<(&'static str, PathBuf)> {
        let list = self.list.iter().map(|list| (ENV_PROGRAMS, list.clone()));
        let statics = self.statics.iter();
        let statics =
            statics.flat_map(|dir| [(ENV_STATICS, dir.clone()), (ENV_AGENT, dir.join("tracer-agent"))]);
        list.chain(statics).collect()
    }
}

/// Builds the command with programs that say what they do, for the test of that: only itself again.
pub(super) fn with_messages() -> Result {
    let mut cargo = process::cargo(["build", "--locked", "--workspace", "--example", "debug_programs"]);
    process::run(cargo.arg(WITH_ALL_FEATURES))
}

/// The recorder as users get it, but less optimised, and what runs in guests: one build for all.
pub(in crate::tasks) fn static_programs() -> Result<PathBuf> {
    let mut cargo =
        process::cargo(["build", "--profile", STATIC_PROFILE, "--locked", "--target", STATIC_TARGET]);
    for (package, binary) in STATIC_PROGRAMS {
        cargo.args(["--package", package, "--bin", binary]);
    }
    process::run(cargo.arg(WITH_ALL_COMMANDS))?;
    Ok(workspace::target_dir().join(STATIC_TARGET).join(STATIC_PROFILE))
}

fn cargo_test() -> Command {
    process::cargo([
        "test",
        "--no-run",
        "--locked",
        "--message-format=json-render-diagnostics",
        "--workspace",
        WITH_ALL_FEATURES,
    ])
}

/// The test programs that a command builds.
fn test_programs(cargo: &mut Command) -> Result<Vec<Program>> {
    eprintln!("$ {}", process::line(cargo));
    let output = cargo.stderr(Stdio::inherit()).output()?;
    if !output.status.success() {
        return Err(format!("{}: {}", process::line(cargo), output.status).into());
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let mut programs: Vec<Program> = text.lines().filter_map(program).collect();
    programs.sort_by(|one, other| (&one.package, &one.name).cmp(&(&other.package, &other.name)));
    Ok(programs)
}

/// A line of cargo's, if it is about a test program.
fn program(line: &str) -> Option<Program> {
    let message: Value = serde_json::from_str(line).ok()?;
    if message["reason"] != "compiler-artifact" || message["profile"]["test"] != true {
        return None;
    }
    let dir = Path::new(message["manifest_path"].as_str()?).parent()?;
    let kind = match message["target"]["kind"][0].as_str()? {
        "test" => Kind::Integration,
        "lib" | "bin" => Kind::Unit,
        _ => return None,
    };
    Some(Program {
        package: package_name(message["package_id"].as_str()?, dir)?,
        dir: dir.to_owned(),
        kind,
        name: message["target"]["name"].as_str()?.to_owned(),
        path: message["executable"].as_str()?.into(),
    })
}

/// `path+file:///w/tests#integration-tests@0.1.0`, or without the name where the directory has it.
fn package_name(id: &str, dir: &Path) -> Option<String> {
    let (_, fragment) = id.rsplit_once('#')?;
    match fragment.split_once('@') {
        Some((name, _)) => Some(name.to_owned()),
        None => Some(dir.file_name()?.to_string_lossy().into_owned()),
    }
}

/// Names the file that [`write_list`] writes.
const ENV_PROGRAMS: &str = "TRACER_AGENT_TEST_PROGRAMS";

/// Names the tracer-agent to test.
const ENV_AGENT: &str = "TRACER_AGENT_BIN";

/// Names the directory of the static programs.
pub(in crate::tasks) const ENV_STATICS: &str = "TRACER_AGENT_GUEST_PROGRAMS";

/// Writes where the integration tests are, for tests that run them in guests: package, name and path, between
/// tabs.
fn write_list(programs: &[Program]) -> Result<PathBuf> {
    let path = workspace::target_dir().join("test-programs");
    let tests = programs.iter().filter(|program| program.kind == Kind::Integration);
    let lines =
        tests.map(|Program { package, name, path, .. }| format!("{package}\t{name}\t{}\n", path.display()));
    std::fs::write(&path, lines.collect::<String>())?;
    Ok(path)
}

/// The names of the tests in a program.
pub(super) fn tests_of(program: &Program) -> Result<Vec<String>> {
    let mut list = Command::new(&program.path);
    let listing = process::output(list.args(["--list", "--format", "terse"]))?;
    Ok(listing.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cargos_messages_name_the_programs() {
        let line = |id: &str, kind: &str, name: &str, test: bool| {
            format!(
                "{{\"reason\":\"compiler-artifact\",\"package_id\":\"{id}\",\"manifest_path\":\"/w/tests/Cargo.toml\",\
                 \"target\":{{\"kind\":[\"{kind}\"],\"name\":\"{name}\"}},\"profile\":{{\"test\":{test}}},\
                 \"executable\":\"/t/oracle-1\"}}"
            )
        };
        let found = program(&line("path+file:///w/tests#integration-tests@0.1.0", "test", "live", true))
            .expect("a test");
        assert_eq!(
            (found.package.as_str(), found.suite(), found.name.as_str()),
            ("integration-tests", "live", "live")
        );
        let found = program(&line("path+file:///w/tests#integration-tests@0.1.0", "test", "files", true));
        let found = found.expect("a test");
        assert_eq!((found.suite(), found.has_subjects()), ("files", true));
        let found = program(&line("path+file:///w/agent/tracedat#0.1.0", "test", "files", true));
        assert!(!found.expect("a test").has_subjects());
        let found = program(&line("path+file:///w/tests#0.1.0", "lib", "tests", true)).expect("unit tests");
        assert_eq!((found.package.as_str(), found.suite()), ("tests", "unit"));
        assert_eq!(program(&line("path+file:///w/tests#0.1.0", "bin", "tests", false)), None);
        assert_eq!(program("warning: none of cargo's"), None);
    }
}
