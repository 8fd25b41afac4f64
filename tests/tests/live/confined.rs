//! The session daemon with the rights that systemd's unit and the manifest for Kubernetes leave to it, and no
//! more: util-linux' setpriv and libseccomp enforce them.

use std::{collections::BTreeSet, fs, path::Path};

use integration_tests::{
    daemon::{Daemon, GID, ROOT, User},
    harness::{Caller, Report, is_getppid, program, run},
    kubernetes,
};
use serde_json::{Value, json};

const MEMBER: User = User { uid: 54_321, gid: GID };

/// Allows system calls and refuses all others, as systemd does with `SystemCallErrorNumber=EPERM`.
const FILTER: &str = "
import errno, os, seccomp, sys
rules = seccomp.SyscallFilter(seccomp.ERRNO(errno.EPERM))
for name in sys.argv[1].split():
    try:
        rules.add_rule(seccomp.ALLOW, name)
    except (RuntimeError, ValueError):
        pass # one of another architecture, or newer than libseccomp
rules.load()
os.execvp(sys.argv[2], sys.argv[2:])
";

/// What is mounted as for a unit with `ProtectKernelTunables`, and a container with tracefs: nothing of /sys
/// can be written. The shell then becomes its arguments.
const MOUNTS: &str = "
set -e
mount --bind /sys /sys
mount -o remount,bind,ro /sys
mount -t tracefs nodev /sys/kernel/tracing
mount -o remount,bind,ro /sys/kernel/tracing
exec \"$@\"
";

fn source(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)).unwrap()
}

/// What the unit says of something.
fn of_unit(setting: &str) -> Vec<String> {
    let unit = source("agent/packaging/systemd/tracer-agent.service");
    let line = unit.lines().find_map(|line| line.strip_prefix(setting)?.strip_prefix('='));
    line.unwrap().split(' ').map(str::to_owned).collect()
}

/// The system calls of a filter, in which systemd's names of sets begin with `@`.
fn system_calls(names: &[String]) -> BTreeSet<String> {
    let mut calls = BTreeSet::new();
    for name in names {
        if !name.starts_with('@') {
            calls.insert(name.clone());
            continue;
        }
        let listing =
            run(&mut program(Path::new("/"), "systemd-analyze", ["syscall-filter", name])).expect(0).out;
        let members =
            listing.lines().skip(1).map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        calls.extend(system_calls(&members.map(str::to_owned).collect::<Vec<_>>()));
    }
    calls
}

/// What starts a program with these capabilities, and without any way to get others.
pub(super) fn with_capabilities(names: &[String]) -> Vec<String> {
    let lower = names.iter().map(|name| name.to_lowercase().replace("cap_", ""));
    let kept: String = lower.flat_map(|name| [",+".to_owned(), name]).collect();
    let words = ["setpriv", "--no-new-privs", "--inh-caps=-all", "--bounding-set"];
    words.into_iter().map(str::to_owned).chain([format!("-all{kept}")]).collect()
}

/// What starts a program with mounts of its own.
fn with_mounts() -> Vec<String> {
    let words = ["unshare", "--mount", "--propagation=private", "sh", "-c", MOUNTS, "sh"];
    words.map(str::to_owned).to_vec()
}

/// A user's session with a rule that records getppid, and more.
fn records(daemon: &Daemon, user: User, more: &[Value]) {
    let mut caller = Caller::start();
    let out = daemon.directory_of(user, &format!("of-{}", user.uid)).join("out");
    let calls =
        json!({"name": "raw_syscalls:sys_enter", "instrumentation": "tracepoint", "filter": "id == 110"});
    daemon.session(user, "mine", &out, &[&[calls], more].concat());
    daemon.tell_as(user, "POST", "/v1/sessions/mine/start", None);
    caller.call(1000);
    daemon.tell_as(user, "POST", "/v1/sessions/mine/stop", None);
    daemon.tell_as(user, "DELETE", "/v1/sessions/mine", None);
    let file = fs::read_dir(&out).unwrap().next().unwrap().unwrap().path();
    let report = Report::of(&file);
    assert!(report.count(is_getppid) >= 1000);
    for _ in more {
        assert!(report.count(|line| line.contains(" asked: ")) > 0, "{}", file.display());
    }
}

/// A probe of the C library's function.
fn asked() -> Value {
    let place = json!({"path": "/lib/x86_64-linux-gnu/libc.so.6", "symbol": "getppid"});
    json!({"name": "asked", "instrumentation": {"user_probe": {"elf": place}}})
}

#[test]
fn the_units_rights_are_enough_for_sessions_of_root_and_of_users() {
    let calls = system_calls(&of_unit("SystemCallFilter"));
    assert!(calls.contains("bpf") && !calls.contains("mount"), "{calls:?}");
    let calls = calls.into_iter().collect::<Vec<_>>().join(" ");
    let filter = ["/usr/bin/python3", "-c", FILTER, &calls].map(str::to_owned).to_vec();
    let rights = with_capabilities(&of_unit("CapabilityBoundingSet"));
    let daemon = Daemon::start_through(&[with_mounts(), filter, rights].concat());
    let status = fs::read_to_string(format!("/proc/{}/status", daemon.pid())).unwrap();
    assert!(status.contains("Seccomp:\t2") && status.contains("NoNewPrivs:\t1"), "{status}");
    records(&daemon, ROOT, &[asked()]);
    records(&daemon, MEMBER, &[]);
    daemon.stop().expect(0);
}

#[test]
fn the_manifests_capabilities_are_enough_for_sessions_of_root() {
    let names = kubernetes::capabilities(&kubernetes::manifest().0);
    assert!(names.contains(&"BPF".to_owned()) && !names.contains(&"SYS_ADMIN".to_owned()), "{names:?}");
    let daemon = Daemon::start_through(&[with_mounts(), with_capabilities(&names)].concat());
    records(&daemon, ROOT, &[asked()]);
    daemon.stop().expect(0);
}
