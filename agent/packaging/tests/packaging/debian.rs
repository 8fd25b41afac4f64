//! Installing, upgrading, downgrading, removing and purging the package in a system of Debian 12.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use packaging::deb;

use crate::place::{Root, assert_hands_over, directory, output, package, small_release};

const CONFIG: &str = "/etc/tracer-agent/agent.toml";

fn made(version: &str) -> PathBuf {
    package(version, deb::make, "deb")
}

/// A package with another default configuration.
fn with_other_config(package: &Path, dir: &Path) -> PathBuf {
    let unpacked = dir.join("unpacked");
    output(Command::new("dpkg-deb").arg("-R").args([package, &unpacked]));
    let config = unpacked.join(CONFIG.trim_start_matches('/'));
    let text = fs::read_to_string(&config).unwrap() + "# New in this version.\n";
    fs::write(config, text).unwrap();
    let changed = dir.join("changed.deb");
    output(Command::new("dpkg-deb").args(["-Znone", "-b"]).args([&unpacked, &changed]));
    changed
}

/// Brings a package into a system, where dpkg finds it.
fn bring(root: &Root, package: &Path) -> String {
    let name = format!("/tmp/{}", package.file_name().unwrap().to_str().unwrap());
    fs::copy(package, root.join(&name)).unwrap();
    name
}

fn install(root: &Root, package: &str) {
    // As unattended upgrades do.
    root.run(&["dpkg", "--force-confdef", "--force-confold", "--install", package]);
    assert_eq!(root.run(&["dpkg", "--audit"]), "");
}

fn installed_version(root: &Root) -> String {
    root.run(&["dpkg-query", "-W", "-f=${Version}", "tracer-agent"])
}

#[test]
fn a_package_comes_changes_and_goes() {
    let dir = directory();
    let [old, new] = ["1.0.0-rc.1", "1.0.0"].map(made);
    let root = Root::new();
    let [old, new, changed] =
        [old, new.clone(), with_other_config(&new, dir.path())].map(|of| bring(&root, &of));
    let before = root.files();

    install(&root, &old);
    assert_eq!(installed_version(&root), "1.0.0~rc.1-1");
    assert!(root.run(&["tracer-agent", "--version"]).starts_with("tracer-agent "));
    assert_eq!(root.run(&["dpkg", "--verify", "tracer-agent"]), "");
    assert!(root.run(&["getent", "group", "tracing"]).starts_with("tracing:"));
    assert_eq!(root.mode("/var/lib/tracer-agent"), 0o700);
    assert_eq!(root.mode(CONFIG), 0o644);
    assert!(root.join("/etc/tracer-agent/conf.d").is_dir());
    let units = [
        "etc/systemd/system/multi-user.target.wants/tracer-agent.service",
        "etc/systemd/system/sockets.target.wants/tracer-agent.socket",
    ];
    assert!(units.iter().all(|link| !root.has(link)), "a package does not enable what records");

    // What an administrator does, and what the daemon leaves.
    // `systemctl enable tracer-agent.socket`
    let wants = root.join(units[1]);
    fs::create_dir_all(wants.parent().unwrap()).unwrap();
    std::os::unix::fs::symlink("/lib/systemd/system/tracer-agent.socket", wants).unwrap();
    fs::write(root.join(CONFIG), "# mine\n").unwrap();
    fs::write(root.join("/etc/tracer-agent/conf.d/web.toml"), "# mine, too\n").unwrap();
    fs::write(root.join("/var/lib/tracer-agent/note"), "").unwrap();
    let verified = root.command(&["dpkg", "--verify", "tracer-agent"]).output().unwrap();
    let said = String::from_utf8(verified.stdout).unwrap();
    assert!(said.lines().count() == 1 && said.contains(&format!(" c {CONFIG}")), "{said}");

    for (package, version) in [(&new, "1.0.0-1"), (&old, "1.0.0~rc.1-1"), (&changed, "1.0.0-1")] {
        install(&root, package);
        assert_eq!(installed_version(&root), version);
        assert_eq!(root.read(CONFIG), "# mine\n");
        assert!(root.run(&["tracer-agent", "--version"]).starts_with("tracer-agent "));
    }
    assert!(root.read(&format!("{CONFIG}.dpkg-dist")).ends_with("# New in this version.\n"));

    root.run(&["dpkg", "--remove", "tracer-agent"]);
    assert!(!root.has("/usr/bin/tracer-agent"));
    assert!(root.has("/var/lib/tracer-agent/note") && root.has("/etc/tracer-agent/conf.d/web.toml"));
    assert_eq!(root.read(CONFIG), "# mine\n");

    // Once more, as it was.
    install(&root, &new);
    assert_eq!(root.read(CONFIG), "# mine\n");
    assert!(root.has(units[1]), "what was enabled is enabled again");
    assert!(!root.has(units[0]));

    root.run(&["dpkg", "--purge", "tracer-agent"]);
    assert_eq!(root.run(&["dpkg", "--audit"]), "");
    // The group stays, with what its tools keep of the files before it; and dpkg's own notes.
    let kept = |path: &&String| {
        let own = ["var/lib/dpkg/", "var/log/", "etc/group", "etc/gshadow"];
        !own.iter().any(|prefix| path.starts_with(prefix))
    };
    let after = root.files();
    let names = |files: &std::collections::BTreeMap<String, _>| {
        files.keys().filter(kept).cloned().collect::<BTreeSet<String>>()
    };
    let difference: Vec<_> = names(&after).symmetric_difference(&names(&before)).cloned().collect();
    assert!(difference.is_empty(), "{difference:?}");
    assert!(!after.keys().any(|path| path.contains("tracer-agent") && !path.starts_with("tmp/")));
    assert!(root.run(&["getent", "group", "tracing"]).starts_with("tracing:"));
}

#[test]
fn an_upgrade_lets_sessions_go_on_and_a_removal_ends_them() {
    let [old, new] = ["1.0.0-rc.1", "1.0.0"].map(made);
    let root = Root::new().with_systemd(true);
    let [old, new] = [old, new].map(|of| bring(&root, &of));
    install(&root, &old);
    root.asked();
    for package in [&new, &old] {
        install(&root, package);
        assert_hands_over(&root.asked());
    }
    root.run(&["dpkg", "--remove", "tracer-agent"]);
    let asked = root.asked();
    let stops = asked.iter().any(|line| line.split(' ').any(|word| word == "stop"));
    assert!(stops && asked.iter().any(|line| line.contains("tracer-agent.service")), "{asked:?}");
}

#[test]
fn a_package_starts_nothing_that_is_not_enabled() {
    let package = made("1.0.0");
    let root = Root::new().with_systemd(false);
    let package = bring(&root, &package);
    for _ in 0..2 {
        install(&root, &package);
        let asked = root.asked();
        let changes = ["start", "restart", "enable", "kill"];
        let is_change = |line: &String| line.split(' ').any(|word| changes.contains(&word));
        assert!(!asked.iter().any(is_change), "{asked:?}");
        assert!(asked.iter().any(|line| line.ends_with("daemon-reload")), "{asked:?}");
    }
}

#[test]
fn lintian_has_no_objection() {
    let package = made("1.0.0");
    let mut lintian = Command::new("lintian");
    // Our packages are not uploaded to Debian's archive.
    let not_ours = "initial-upload-closes-no-bugs";
    lintian.args(["--allow-root", "--fail-on", "error,warning", "--suppress-tags", not_ours]);
    output(lintian.arg(package));
}

#[test]
fn the_same_package_can_be_made_again() {
    let [one, other] = [(), ()].map(|()| {
        let dir = directory();
        fs::read(deb::make(&small_release(), dir.path()).unwrap()).unwrap()
    });
    assert!(one == other);
}
