//! What happens again and again: starts and stops, and daemons that are killed.

use std::{path::PathBuf, process::Command};

use integration_tests::{
    daemon::{Daemon, ROOT},
    harness::{Caller, wait_for},
    soak,
};
use serde_json::{Value, json};

use super::{calls, files, found, notes, only};

/// Starts and stops in a trial: 10 000 in a hundred of them.
const STARTS: usize = 100;
/// Daemons that are killed in a trial.
const KILLS: usize = 3;
/// The rings of the session that keeps its newest events: room for a page of each stop of the short form, on
/// whichever CPU.
const SUBBUF_BYTES: usize = 131_072;
const SUBBUFS: usize = 4;
const PAGE_BYTES: usize = 4096;

/// Kilobytes of memory that the daemon holds, its descriptors, its threads, and the kernel's programs and
/// maps.
pub(super) fn held(daemon: &Daemon) -> (u64, [usize; 3]) {
    let status = std::fs::read_to_string(format!("/proc/{}/status", daemon.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    let count = |of: &str| std::fs::read_dir(format!("/proc/{}/{of}", daemon.pid())).unwrap().count();
    let objects = std::fs::read_dir(format!("/proc/{}/fdinfo", daemon.pid())).unwrap();
    let is_object = |entry: std::io::Result<std::fs::DirEntry>| {
        let text = std::fs::read_to_string(entry.ok()?.path()).ok()?;
        (text.contains("prog_id:") || text.contains("map_id:")).then_some(())
    };
    let objects = objects.filter_map(is_object).count();
    (line.trim().trim_end_matches(" kB").parse().unwrap(), [count("fd"), count("task"), objects])
}

/// Waits until nothing more than before is held.
fn assert_held(daemon: &Daemon, before: [usize; 3]) {
    // Connections and threads for requests end a moment later.
    wait_for("what was used to be given back", || {
        let now = held(daemon).1;
        let is_no_more = now[0] <= before[0] && now[1] <= before[1] + 2 && now[2] <= before[2];
        is_no_more.then_some(())
    });
}

fn sessions_start_and_stop_again_and_again() {
    let daemon = Daemon::start();
    let mut caller = Caller::start();
    daemon.session(ROOT, "file", &daemon.path().join("out"), &[calls()]);
    let snapshots =
        json!({"name": "ring", "mode": "snapshot", "snapshot_output": daemon.path().join("rings")});
    daemon.tell("POST", "/v1/sessions", Some(&snapshots));
    let channels = "/v1/sessions/ring/domains/kernel/channels";
    daemon.tell(
        "POST",
        channels,
        Some(&json!({"name": "r", "attributes": {"subbuf_size": SUBBUF_BYTES, "num_subbuf": SUBBUFS}})),
    );
    daemon.tell("POST", &format!("{channels}/r/rules"), Some(&calls()));
    for name in ["file", "ring"] {
        let trackers = format!("/v1/sessions/{name}/domains/kernel/trackers");
        daemon.tell("POST", &trackers, Some(&only(caller.pid())));
    }
    let mut before = None;
    let mut stored = 0;
    for turn in 0..STARTS * soak() {
        // Most of them pause: a recording that ends is attached anew.
        let name = if turn % 10 == 0 { "file" } else { "ring" };
        daemon.tell("POST", &format!("/v1/sessions/{name}/start"), None);
        caller.call(10);
        caller.settle();
        let stopped = daemon.tell("POST", &format!("/v1/sessions/{name}/stop"), None);
        assert_eq!(stopped["discarded"], 0, "{name}");
        if name == "file" {
            let there = files(&daemon.path().join("out"));
            assert_eq!(found(&there), 10);
            stored += 1;
            // They are looked at as they come.
            for file in &there {
                std::fs::remove_file(file).unwrap();
            }
        }
        // Each kind has had its first turn.
        if turn == 10 {
            before = Some(held(&daemon));
        }
    }
    let (memory, objects) = before.unwrap();
    assert_held(&daemon, objects);
    let now = held(&daemon).0;
    assert!(now < memory + memory / 4 + 8192, "{memory} KB became {now} KB");
    let snapshot = daemon.tell("POST", "/v1/sessions/ring/snapshots", Some(&json!({})));
    // What the rings hold outlasts stops, each of which closes a page. Long trials fill them, and the newest
    // events stay.
    let (stops, pages) = (STARTS * soak() - stored, SUBBUFS * SUBBUF_BYTES / PAGE_BYTES);
    let kept = snapshot["events"].as_u64().unwrap() as usize;
    if stops <= pages {
        assert_eq!(kept, 10 * stops);
    } else {
        assert!((10 * pages..=10 * stops).contains(&kept), "{kept} of {stops} stops");
    }
    for name in ["file", "ring"] {
        daemon.tell("DELETE", &format!("/v1/sessions/{name}"), None);
    }
    daemon.stop().expect(0);
}

/// What `check` says of a file.
fn is_sound(file: &PathBuf) {
    let checked =
        Command::new(integration_tests::harness::agent_path()).arg("check").arg(file).output().unwrap();
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stdout));
}

fn killed_daemons_leave_files_that_open() {
    let mut daemon = Daemon::start();
    for round in 0..KILLS * soak() {
        let load = std::thread::spawn(|| {
            let mut caller = Caller::start();
            caller.call(400_000);
        });
        let dir = |number: usize| format!("{round}-{number}");
        for number in 0..3 {
            let name = dir(number);
            daemon.session(ROOT, &name, &daemon.path().join(&name), &[calls()]);
            daemon.tell("POST", &format!("/v1/sessions/{name}/start"), None);
        }
        daemon.tell("POST", &format!("/v1/sessions/{}/rotations", dir(0)), None);
        // At another moment each time.
        std::thread::sleep(std::time::Duration::from_millis((round as u64 * 37) % 400));
        daemon.kill();
        daemon.start_again();
        wait_for("the notes to go", || notes(&daemon).is_empty().then_some(()));
        for number in 0..3 {
            let there = files(&daemon.path().join(dir(number)));
            assert!(
                !there.is_empty()
                    && there.iter().all(|file| file.extension().is_some_and(|name| name == "dat")),
                "{there:?}"
            );
            there.iter().for_each(is_sound);
        }
        load.join().unwrap();
    }
    let none: Value = json!([]);
    assert_eq!(daemon.tell("GET", "/v1/sessions", None), none);
    daemon.stop().expect(0);
}

mod soak {
    #[test]
    fn sessions_start_and_stop_again_and_again() {
        super::sessions_start_and_stop_again_and_again();
    }

    #[test]
    fn killed_daemons_leave_files_that_open() {
        super::killed_daemons_leave_files_that_open();
    }
}
