//! The programs that go into a guest.
//!
//! Ours are linked statically with musl and built here when they are not up to date, so that `cargo test -p
//! vm-tests` always tests the sources as they are. Others (trace-cmd, the compiler's test programs) are taken
//! from the host with the libraries that the dynamic loader names.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use crate::cpio::Archive;
use crate::disk::{BAD_SECTOR, DRIVE};
use crate::kernel::output;
use crate::{Cmd, Error, Kernel, Vm, target_dir, workspace};

/// The target of our programs in a guest.
pub const TARGET: &str = "x86_64-unknown-linux-musl";

const BUSYBOX: &str = "/bin/busybox";
const TRACE_CMD: &str = "/usr/bin/trace-cmd";
const LIBRARIES: &str = "/usr/lib/x86_64-linux-gnu";

/// Builds `vm-init`, `vm-load` and `tracer-agent` for the guest and says where they are. Once per process.
pub fn programs() -> Result<&'static Path, Error> {
    static DIR: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    DIR.get_or_init(build)
        .as_deref()
        .map_err(|why| Error::Host { program: "cargo build".to_owned(), why: why.clone() })
}

/// Names the directory of programs that were built already. `cargo xtask test` sets it, for it builds
/// everything before anything runs.
const ENV_PROGRAMS: &str = "TRACER_AGENT_GUEST_PROGRAMS";

fn build() -> Result<PathBuf, String> {
    if let Some(built) = std::env::var_os(ENV_PROGRAMS) {
        return Ok(built.into());
    }
    let programs = [("vm-tests", "vm-init"), ("vm-tests", "vm-load"), ("tracer-agent", "tracer-agent")];
    for (package, binary) in programs {
        let output = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
            .current_dir(workspace())
            .args(["build", "--quiet", "--release", "--locked", "--target", TARGET])
            .args(["--package", package, "--bin", binary])
            .arg("--target-dir")
            .arg(target_dir())
            // What the cargo that runs the tests has set for its own package.
            .env_remove("RUSTFLAGS")
            .env_remove("RUSTC_WORKSPACE_WRAPPER")
            .output()
            .map_err(|error| error.to_string())?;
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).into_owned());
        }
    }
    Ok(target_dir().join(TARGET).join("release"))
}

/// An integration test's program and the helper binaries of its package, built for the host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TestProgram {
    /// The test itself.
    pub test: PathBuf,
    /// The package's binaries, which tests expect one directory above their own.
    pub helpers: Vec<PathBuf>,
}

/// Names a file that says where test programs are that were built already: package, name and path a line,
/// between tabs.
const ENV_TEST_PROGRAMS: &str = "TRACER_AGENT_TEST_PROGRAMS";

/// The integration test `name` of `package`, if it was built already. Its package's binaries are one
/// directory above it.
fn built_test_program(package: &str, name: &str) -> Option<TestProgram> {
    let list = fs::read_to_string(std::env::var_os(ENV_TEST_PROGRAMS)?).ok()?;
    let path = list.lines().find_map(|line| line.strip_prefix(&format!("{package}\t{name}\t")))?;
    let test = PathBuf::from(path);
    let dir = test.parent()?.parent()?;
    let helpers = HELPERS.iter().map(|helper| dir.join(helper)).filter(|path| path.is_file()).collect();
    Some(TestProgram { test, helpers })
}

/// The binaries of the package `integration-tests`.
const HELPERS: [&str; 1] = ["test-workload"];

/// Builds the integration test `name` of `package`.
pub fn test_program(package: &str, name: &str) -> Result<TestProgram, Error> {
    if let Some(built) = built_test_program(package, name) {
        return Ok(built);
    }
    let failed = |why: String| Error::Host { program: "cargo test --no-run".to_owned(), why };
    let output = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .current_dir(workspace())
        .args(["test", "--no-run", "--quiet", "--locked", "--message-format=json"])
        .args(["--package", package, "--test", name, "--bins"])
        .arg("--target-dir")
        .arg(target_dir())
        .env_remove("RUSTC_WORKSPACE_WRAPPER")
        .output()
        .map_err(|error| failed(error.to_string()))?;
    if !output.status.success() {
        return Err(failed(String::from_utf8_lossy(&output.stderr).into_owned()));
    }
    let mut program = TestProgram::default();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let Some(path) = string_after(line, "\"executable\":\"") else { continue };
        let is_test = line.contains("\"kind\":[\"test\"]");
        // Binaries are built twice: as they are, and as harnesses of their own unit tests.
        let is_helper = line.contains("\"kind\":[\"bin\"]") && line.contains("\"test\":false}");
        if is_test && line.contains(&format!("\"name\":\"{name}\"")) {
            program.test = path.into();
        } else if is_helper {
            program.helpers.push(path.into());
        }
    }
    if program.test.as_os_str().is_empty() {
        return Err(failed(format!("{package} has no test {name}")));
    }
    Ok(program)
}

/// The tests of `storm`, which record as many events as the guest can make and count them with perf.
pub const STORMS: [&str; 5] = [
    "interrupts_in_a_storm_of_system_calls_are_all_there",
    "scheduling_in_a_storm_of_system_calls_is_all_there",
    "pages_that_are_closed_early_have_everything",
    "the_generic_lane_leaves_events_to_others",
    "soak::a_profiler_takes_nothing_away",
];

/// The tests of `trace_marker` that need no daemon.
pub const MARKERS: [&str; 4] = [
    "records_are_those_of_ftrace",
    "a_shell_writes_and_scopes_and_filters_take_what_they_take",
    "texts_are_recorded_while_ftrace_is_off",
    "writes_that_are_not_understood_are_counted_or_are_none",
];

/// Runs tests of the program `live` in one guest with this kernel: names of its modules, each with names of
/// tests in it.
///
/// # Panics
///
/// If the guest does not come to its end, or a test fails.
#[track_caller]
pub fn integration_tests(kernel: &Kernel, wanted: &[(&str, &[&str])]) {
    integration_tests_in(Vm::new(kernel), wanted);
}

/// The same where the tests have their files on a [disk](crate::disk).
///
/// # Panics
///
/// As [`integration_tests`].
#[track_caller]
pub fn integration_tests_on_disk(kernel: &Kernel, wanted: &[(&str, &[&str])]) {
    integration_tests_in(Vm::new(kernel).disk(SCRATCH), wanted);
}

/// The test program of the package `integration-tests`.
const LIVE: &str = "live";

/// Where the tests put their files.
const SCRATCH: &str = "/scratch";

/// What tests start processes with whose calls they count, and give them users and namespaces.
const CALLERS: [&str; 3] = ["/usr/bin/perl", "/usr/bin/setpriv", "/usr/bin/unshare"];

#[track_caller]
fn integration_tests_in(vm: Vm<'_>, wanted: &[(&str, &[&str])]) {
    let built = test_program("integration-tests", LIVE).unwrap_or_else(|error| panic!("{error}"));
    let program = format!("/test/deps/{LIVE}");
    let scratch = tempfile::tempdir().unwrap_or_else(|error| panic!("no directory: {error}"));
    let small = |program: &Path| {
        let small = scratch.path().join(program.file_name().unwrap_or_default());
        without_debug_information(program, &small).unwrap_or_else(|error| panic!("{error}"));
        small
    };
    let mut vm = vm.agent().trace_cmd().size(2, 4096).program(small(&built.test), &program);
    for helper in &built.helpers {
        let name = helper.file_name().unwrap_or_default().to_string_lossy();
        vm = vm.program(small(helper), &format!("/test/{name}"));
    }
    // Other tests have what they always had: what a shell finds there is recorded.
    if wanted.iter().any(|(subject, _)| *subject == "tracking") {
        for host in CALLERS {
            vm = vm.program(Path::new(host), host);
        }
    }
    let mut commands = Vec::new();
    for (subject, tests) in wanted {
        let names: Vec<String> = tests.iter().map(|test| format!("{subject}::{test}")).collect();
        let line = format!(
            "ifconfig lo up && mkdir -p {SCRATCH} && TMPDIR={SCRATCH} TRACER_AGENT_BIN=/bin/tracer-agent \
             BAD_DISK={DRIVE}:{BAD_SECTOR} {program} --test-threads=1 --nocapture --exact {}",
            names.join(" ")
        );
        commands.push(Cmd::sh(&line).timeout(Duration::from_mins(15)));
    }
    let run = vm.run(&commands).unwrap_or_else(|error| panic!("{error}"));
    for (outcome, (_, tests)) in run.outcomes.iter().zip(wanted) {
        let text = outcome.expect_success();
        println!("{text}");
        assert!(text.contains(&format!("test result: ok. {} passed", tests.len())), "{text}");
    }
}

/// Copies a program without what is more than half of it, and what guests would unpack for nothing.
fn without_debug_information(program: &Path, to: &Path) -> Result<(), Error> {
    let [program, to] = [program, to].map(|path| path.to_string_lossy());
    output("strip", &["--strip-debug", "-o", &to, &program], Path::new("/")).map(drop)
}

/// The text between `start` and the next quotation mark. Paths of a build have nothing that JSON escapes.
fn string_after<'a>(line: &'a str, start: &str) -> Option<&'a str> {
    let rest = line.split_once(start)?.1;
    rest.split_once('"').map(|(text, _)| text)
}

/// Adds what every guest has: init, busybox under the names of its applets, the console and the directories.
pub(crate) fn add_base(archive: &mut Archive) -> Result<(), Error> {
    for dir in ["proc", "sys", "dev", "tmp", "run", "root", "vm", "etc"] {
        archive.directory(dir);
    }
    // The kernel opens it for init before anything is mounted.
    archive.char_device("dev/console", 5, 1);
    archive.file("etc/passwd", 0o644, b"root:x:0:0:root:/root:/bin/sh\n");
    archive.file("etc/group", 0o644, b"root:x:0:\n");
    add_file(archive, &programs()?.join("vm-init"), "/init")?;
    let applets = output(BUSYBOX, &["--list"], Path::new("/"))?;
    add_file(archive, Path::new(BUSYBOX), BUSYBOX)?;
    if !is_static(Path::new(BUSYBOX))? {
        return Err(Error::Host { program: BUSYBOX.to_owned(), why: "is linked dynamically".to_owned() });
    }
    for applet in applets.lines() {
        archive.link(&format!("/bin/{applet}"), BUSYBOX);
    }
    Ok(())
}

/// Adds the host's trace-cmd and its plugins.
pub(crate) fn add_trace_cmd(archive: &mut Archive) -> Result<(), Error> {
    add_program(archive, Path::new(TRACE_CMD), "/usr/bin/trace-cmd")?;
    let plugins = Path::new(LIBRARIES).join("traceevent/plugins");
    for entry in fs::read_dir(&plugins).map_err(Error::io(&plugins))?.flatten() {
        let path = entry.path();
        add_program(archive, &path, &path.to_string_lossy())?;
    }
    Ok(())
}

/// Adds a file of the host with its permissions.
pub(crate) fn add_file(archive: &mut Archive, host: &Path, guest: &str) -> Result<(), Error> {
    let data = fs::read(host).map_err(Error::io(host))?;
    let permissions = fs::metadata(host).map_err(Error::io(host))?.permissions().mode() & 0o7777;
    archive.file(guest, permissions, &data);
    Ok(())
}

/// Adds a program of the host and every library that the dynamic loader would load for it.
pub(crate) fn add_program(archive: &mut Archive, host: &Path, guest: &str) -> Result<(), Error> {
    add_file(archive, host, guest)?;
    if is_static(host)? {
        return Ok(());
    }
    let listing = output("ldd", &[&host.to_string_lossy()], Path::new("/"))?;
    for library in libraries(&listing) {
        if !archive.contains(library) {
            add_file(archive, Path::new(library), library)?;
        }
    }
    Ok(())
}

/// The paths in what `ldd` prints: `name => /path (address)`, and `/path (address)` for the loader itself.
fn libraries(listing: &str) -> Vec<&str> {
    listing
        .lines()
        .filter_map(|line| line.rsplit_once(" (").map(|(rest, _)| rest.trim()))
        .map(|rest| rest.rsplit_once("=> ").map_or(rest, |(_, path)| path))
        .filter(|path| path.starts_with('/'))
        .collect()
}

/// True if `ldd` finds nothing to load.
fn is_static(program: &Path) -> Result<bool, Error> {
    let output = Command::new("ldd")
        .arg(program)
        .output()
        .map_err(|error| Error::Host { program: "ldd".to_owned(), why: error.to_string() })?;
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    Ok(text.contains("not a dynamic executable") || text.contains("statically linked"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ldd_names_libraries_and_the_loader() {
        let listing =
            "\tlinux-vdso.so.1 (0x1)\n\tlibc.so.6 => /lib/libc.so.6 (0x2)\n\t/lib64/ld.so.2 (0x3)\n";
        assert_eq!(libraries(listing), ["/lib/libc.so.6", "/lib64/ld.so.2"]);
    }
}
