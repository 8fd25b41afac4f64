//! Installing, upgrading and erasing the package with rpm.

use std::{fs, path::PathBuf, process::Command};

use packaging::rpm;

use crate::place::{Root, assert_hands_over, directory, output, package, small_release};

const CONFIG: &str = "/etc/tracer-agent/agent.toml";

fn made(version: &str) -> PathBuf {
    package(version, rpm::make, "rpm")
}

/// rpm for a system.
fn rpm(root: &Root, args: &[&str]) -> Command {
    let mut rpm = Command::new("rpm");
    rpm.arg("--root").arg(root.path()).args(args);
    rpm
}

/// Changes what is installed in a system, whose other packages rpm does not know.
fn change(root: &Root, options: &[&str], package: &str) -> String {
    output(rpm(root, options).args(["--nodeps", package]))
}

#[test]
fn a_package_comes_changes_and_goes() {
    let [old, new] = ["1.0.0-rc.1", "1.0.0"].map(made);
    let root = Root::new().with_systemd(true);
    let version =
        || output(&mut rpm(&root, &["-q", "--queryformat", "%{VERSION}-%{RELEASE}", "tracer-agent"]));

    let [old, new] = [&old, &new].map(|of| of.to_str().unwrap());
    change(&root, &["--install"], old);
    assert_eq!(version(), "1.0.0~rc.1-1");
    assert_eq!(output(&mut rpm(&root, &["--verify", "--nodeps", "tracer-agent"])), "");
    assert!(root.run(&["tracer-agent", "--version"]).starts_with("tracer-agent "));
    assert!(root.run(&["getent", "group", "tracing"]).starts_with("tracing:"));
    assert_eq!(root.mode("/var/lib/tracer-agent"), 0o700);
    let asked = root.asked();
    assert!(
        !asked.iter().any(|line| line.split(' ').any(|word| word == "start" || word == "enable")),
        "{asked:?}"
    );

    fs::write(root.join(CONFIG), "# mine\n").unwrap();
    change(&root, &["--upgrade"], new);
    assert_eq!(version(), "1.0.0-1");
    assert_eq!(root.read(CONFIG), "# mine\n");
    assert_hands_over(&root.asked());
    change(&root, &["--upgrade", "--oldpackage"], old);
    assert_eq!(version(), "1.0.0~rc.1-1");
    assert_eq!(root.read(CONFIG), "# mine\n");
    assert_hands_over(&root.asked());
    let verified = rpm(&root, &["--verify", "--nodeps", "tracer-agent"]).output().unwrap();
    let said = String::from_utf8(verified.stdout).unwrap();
    assert!(said.lines().count() == 1 && said.contains(CONFIG), "{said}");

    change(&root, &["--erase"], "tracer-agent");
    let asked = root.asked();
    assert!(asked.iter().any(|line| line == "stop tracer-agent.socket tracer-agent.service"), "{asked:?}");
    assert_eq!(root.read(&format!("{CONFIG}.rpmsave")), "# mine\n");
    let left: Vec<_> = root.files().into_keys().filter(|path| path.contains("tracer-agent")).collect();
    assert_eq!(left, ["etc/tracer-agent", "etc/tracer-agent/agent.toml.rpmsave"]);
}

#[test]
fn a_package_knows_what_it_has() {
    let package = made("1.0.0");
    let ask = |option: &str| output(Command::new("rpm").args(["-qp", option]).arg(&package));
    assert_eq!(ask("--configfiles"), format!("{CONFIG}\n"));
    assert_eq!(ask("--licensefiles").lines().count(), 2);
    assert!(ask("--docfiles").contains("/usr/share/man/man1/tracer-agent-record.1.gz"));
    let files = ask("--list");
    for path in [
        "/usr/bin/tracer-agent",
        "/usr/lib/systemd/system/tracer-agent.service",
        "/usr/lib/systemd/system/tracer-agent.socket",
        "/usr/lib/sysusers.d/tracer-agent.conf",
        "/usr/lib/tmpfiles.d/tracer-agent.conf",
        "/usr/share/bash-completion/completions/tracer-agent",
        "/usr/share/zsh/site-functions/_tracer-agent",
        "/usr/share/fish/vendor_completions.d/tracer-agent.fish",
    ] {
        assert!(files.lines().any(|line| line == path), "{path}: {files}");
    }
    let of_machine = |line: &&str| !line.starts_with("rpmlib(") && *line != "/bin/sh";
    assert_eq!(ask("--requires").lines().find(of_machine), None);
}

#[test]
fn the_same_package_can_be_made_again() {
    let [one, other] = [(), ()].map(|()| {
        let dir = directory();
        fs::read(rpm::make(&small_release(), dir.path()).unwrap()).unwrap()
    });
    assert!(one == other);
}
