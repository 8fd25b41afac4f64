//! Analyses of recordings of which filters or sampling chose events: ends are joined with beginnings only
//! where they are theirs.

use std::fs;
use std::path::Path;

use integration_tests::agent;
use integration_tests::answers::{answer, list, number, tables, text};
use integration_tests::binaries::tool;
use integration_tests::harness::{self, run};
use serde_json::{Value, json};

/// Opens a file that is there and one that is not, in turns.
const OPENS: &str = r#"
#include <fcntl.h>
#include <unistd.h>

int main(void)
{
    for (int round = 0; round < 100; round++) {
        int file = open("/etc/passwd", O_RDONLY);
        if (file < 0 || open("/no/such/file", O_WRONLY) >= 0)
            return 1;
        close(file);
    }
}
"#;

/// Records the program with these arguments. Gives the answer about its `openat`.
fn opens(dir: &Path, args: &[&str]) -> Value {
    let (dat, program) = (dir.join("trace.dat"), dir.join("opens"));
    if !program.exists() {
        fs::write(dir.join("opens.c"), OPENS).unwrap();
        tool(dir, "cc", &["-O1", "-o", "opens", "opens.c"]);
    }
    let program = program.display().to_string();
    agent::record_all(&dat, ["-F", "-C", "mono"].iter().chain(args).copied().chain([&*program]));
    answer("syscalls", &dat, &["--comm", "opens"])
}

fn call<'a>(told: &'a Value, name: &str) -> &'a Value {
    let found = list(told, "calls").iter().find(|call| call["name"] == name);
    found.unwrap_or_else(|| panic!("no {name}: {told}"))
}

/// How many slices of system calls a picture has.
fn slices(dat: &Path) -> usize {
    let chrome = dat.with_extension("json");
    run(harness::agent("/".as_ref(), ["export", "--force", "--format", "chrome"]).arg(dat).arg(&chrome))
        .expect(0);
    let trace: Value = serde_json::from_str(&fs::read_to_string(chrome).unwrap()).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    events.iter().filter(|event| event["ph"] == "X" && event["cat"] == "syscall").count()
}

#[test]
fn an_end_of_another_call_is_not_that_of_one_whose_own_was_left_out() {
    let dir = tempfile::tempdir().unwrap();
    let dat = dir.path().join("trace.dat");
    let (enter, exit) = ("syscalls:sys_enter_openat", "syscalls:sys_exit_openat");
    // Those that are there, and of ends those with errors.
    let told = opens(dir.path(), &["-e", enter, "-f", "flags == 0", "-e", exit, "-f", "ret < 0"]);
    assert_eq!(told["covered"]["unjoined"], json!([enter]));
    let openat = call(&told, "openat");
    let unknown = ["times", "failed", "unfinished"].map(|name| openat[name].is_null());
    assert_eq!(unknown, [true; 3], "{openat}");
    let errors = list(openat, "unmatched_errors");
    let missing = errors.iter().find(|error| error["name"] == "ENOENT").unwrap();
    // The loader may look for libraries in vain, too.
    assert!(number(missing, "count") >= 100, "{openat}");
    assert!(number(openat, "unmatched") >= 100, "{openat}");
    assert!(tables("syscalls", &dat, &[]).contains("ENOENT"));
    assert_eq!(slices(&dat), 0);

    // Of each recorded end the call is known where all that begin are there.
    let told = opens(dir.path(), &["-e", enter, "-e", exit, "-f", "ret < 0"]);
    assert_eq!(told["covered"]["unjoined"], json!([]));
    let openat = call(&told, "openat");
    let failed = number(openat, "failed");
    assert!(failed >= 100 && number(openat, "times.count") == failed, "{openat}");
    assert!(number(openat, "unmatched") == 0 && number(openat, "unfinished") >= 100, "{openat}");
    assert_eq!(slices(&dat) as u64, failed + number(openat, "unfinished"));

    // The number is the same in both halves.
    let (enter, exit) = ("raw_syscalls:sys_enter", "raw_syscalls:sys_exit");
    let told = opens(dir.path(), &["-e", enter, "-f", "id == 257", "-e", exit, "-f", "id == 257"]);
    assert_eq!(told["covered"]["unjoined"], json!([]));
    let openat = call(&told, "openat");
    assert!(number(openat, "times.count") >= 200 && number(openat, "unmatched") == 0, "{openat}");

    let told = opens(dir.path(), &["-e", enter, "--sample", "1/2", "-e", exit, "--sample", "1/2"]);
    assert_eq!(told["covered"]["unjoined"], json!([enter]));
    assert!(list(&told, "calls").iter().all(|call| call["times"].is_null()), "{told}");
}

/// A program that may not make directories, and tries to.
const REFUSED: &str = r"
import errno, os, seccomp
rules = seccomp.SyscallFilter(seccomp.ALLOW)
rules.add_rule(seccomp.ERRNO(errno.EPERM), 'mkdir')
rules.add_rule(seccomp.ERRNO(errno.EPERM), 'mkdirat')
rules.load()
for _ in range(20):
    try:
        os.mkdir('/var/tmp/none')
    except PermissionError:
        continue
    raise SystemExit('it was made')
";

#[test]
fn calls_that_seccomp_refuses_are_ends_with_their_errors() {
    let dir = tempfile::tempdir().unwrap();
    let dat = dir.path().join("trace.dat");
    let args = ["-F", "-e", "raw_syscalls:*", "/usr/bin/python3", "-c", REFUSED];
    agent::record_all(&dat, args);
    let told = answer("syscalls", &dat, &[]);
    let refused = list(&told, "calls").iter().filter(|call| text(call, "name").starts_with("mkdir"));
    let refused: Vec<_> = refused.flat_map(|call| list(call, "unmatched_errors")).collect();
    assert_eq!(refused, [&json!({ "errno": 1, "name": "EPERM", "count": 20 })], "{told}");
}
