//! The units, as systemd's own tools read them.

use std::{fs, path::Path, process::Command};

use crate::place::{directory, output};

/// The units, as far as this machine can check them: it has no installed program and manual.
fn units() -> tempfile::TempDir {
    let dir = directory();
    for name in ["tracer-agent.service", "tracer-agent.socket"] {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("systemd").join(name);
        let text = fs::read_to_string(source).unwrap();
        let text = text.replace("ExecStart=/usr/bin/tracer-agent ", "ExecStart=/bin/true ");
        fs::write(dir.path().join(name), text).unwrap();
    }
    dir
}

#[test]
fn systemd_understands_every_line() {
    let dir = units();
    let mut verify = Command::new("systemd-analyze");
    verify.args(["verify", "--man=no", "tracer-agent.service", "tracer-agent.socket"]);
    let path = format!("{}:", dir.path().display());
    let verified = verify.current_dir(dir.path()).env("SYSTEMD_UNIT_PATH", path).output().unwrap();
    let said = String::from_utf8_lossy(&verified.stderr);
    assert!(verified.status.success() && !said.contains("tracer-agent"), "{said}");
}

#[test]
fn the_service_is_exposed_no_more_than_it_has_to_be() {
    let dir = units();
    let mut security = Command::new("systemd-analyze");
    security.args(["security", "--no-pager", "--offline=true", "--threshold=40"]);
    let table = output(security.arg(dir.path().join("tracer-agent.service")));
    assert!(table.contains("Overall exposure level"), "{table}");
}
