//! What killed daemons leave to the next one.

use std::{
    fs,
    os::unix::fs::{MetadataExt as _, chown},
    path::{Path, PathBuf},
};

use integration_tests::{
    daemon::{Daemon, User},
    harness::{Caller, program, run, wait_for, wait_for_readers},
};
use serde_json::json;

use super::{
    calls, files, found, notes, only,
    users::{ALICE, BOB},
};

/// A file system of its own on which everything that changes something can be made to wait.
struct Freezable {
    at: PathBuf,
    is_frozen: bool,
}

impl Freezable {
    fn mount(daemon: &Daemon, owner: User) -> Self {
        let (image, at) = (daemon.path().join("image"), daemon.path().join("frozen"));
        fs::File::create(&image).unwrap().set_len(64 << 20).unwrap();
        run(program(daemon.path(), "mkfs.ext4", ["-q"]).arg(&image)).expect(0);
        fs::create_dir(&at).unwrap();
        run(program(daemon.path(), "mount", ["-o", "loop"]).args([&image, &at])).expect(0);
        chown(&at, Some(owner.uid), Some(owner.gid)).unwrap();
        Self { at, is_frozen: false }
    }

    fn freeze(&mut self, on: bool) {
        let option = if on { "--freeze" } else { "--unfreeze" };
        run(program("/".as_ref(), "fsfreeze", [option]).arg(&self.at)).expect(0);
        self.is_frozen = on;
    }
}

impl Drop for Freezable {
    fn drop(&mut self) {
        if self.is_frozen {
            self.freeze(false);
        }
        // Lazily: a failed test may have left a daemon that uses it.
        run(program("/".as_ref(), "umount", ["-l"]).arg(&self.at));
    }
}

/// A session named `one` of a user that records the calls of a caller.
fn started(daemon: &Daemon, user: User, dir: &Path, caller: &Caller) {
    daemon.session(user, "one", dir, &[calls()]);
    let trackers = "/v1/sessions/one/domains/kernel/trackers";
    daemon.tell_as(user, "POST", trackers, Some(&only(caller.pid())));
    daemon.tell_as(user, "POST", "/v1/sessions/one/start", None);
}

/// The spools in a directory.
fn spools(dir: &Path) -> Vec<PathBuf> {
    let mut all = files(dir);
    all.retain(|path| path.extension().is_some_and(|name| name == "spool"));
    all
}

/// Waits until each of the spools of a directory is a file.
fn wait_for_files(dir: &Path) -> Vec<PathBuf> {
    wait_for("the recovered files", || {
        let there = files(dir);
        there.iter().all(|file| file.extension().is_some_and(|name| name == "dat")).then_some(there)
    })
}

#[test]
fn nobody_waits_for_the_recovery_of_others() {
    let mut daemon = Daemon::start();
    let mut disk = Freezable::mount(&daemon, ALICE);
    let of_alice = disk.at.join("out");
    let of_bob = daemon.directory_of(BOB, "bob");
    let mut caller = Caller::start();
    started(&daemon, ALICE, &of_alice, &caller);
    started(&daemon, BOB, &of_bob, &caller);
    caller.call(100_000);
    caller.settle();
    wait_for_readers(daemon.pid());
    daemon.kill();
    let left = spools(&of_alice);
    assert_eq!(left.len(), 1);
    disk.freeze(true);
    daemon.start_again();
    let recovered = wait_for_files(&of_bob);
    assert!(recovered.len() == 1 && found(&recovered) > 10_000);
    assert_eq!(fs::metadata(&recovered[0]).unwrap().uid(), BOB.uid);
    wait_for("the note of what was recovered to go", || (notes(&daemon).len() == 1).then_some(()));
    // What is noted of new sessions stays when the recovery is done.
    started(&daemon, BOB, &of_bob, &caller);
    // A session in the very directory begins as soon as it can, and takes nothing from what is recovered.
    daemon.session(ALICE, "one", &of_alice, &[calls()]);
    std::thread::scope(|scope| {
        let start = scope.spawn(|| daemon.tell_as(ALICE, "POST", "/v1/sessions/one/start", None));
        assert_eq!(spools(&of_alice), left);
        disk.freeze(false);
        start.join().unwrap();
    });
    wait_for("the recovered file", || (!left[0].exists()).then_some(()));
    wait_for("the notes of the two sessions", || (notes(&daemon).len() == 2).then_some(()));
    daemon.tell_as(ALICE, "POST", "/v1/sessions/one/stop", None);
    let there = files(&of_alice);
    assert_eq!((there.len(), spools(&of_alice).len()), (2, 0), "{there:?}");
    assert!(found(&there[..1]) > 10_000);
    daemon.stop().expect(0);
}

#[test]
fn what_is_not_recovered_is_tried_again() {
    let mut daemon = Daemon::start();
    let of_alice = daemon.directory_of(ALICE, "alice");
    let of_bob = daemon.directory_of(BOB, "bob");
    let mut caller = Caller::start();
    started(&daemon, ALICE, &of_alice, &caller);
    started(&daemon, BOB, &of_bob, &caller);
    caller.call(100_000);
    caller.settle();
    wait_for_readers(daemon.pid());
    daemon.kill();
    let manifest = spools(&of_alice)[0].join("manifest");
    let kept = manifest.with_file_name("kept");
    fs::rename(&manifest, &kept).unwrap();
    run(&mut program("/".as_ref(), "mkfifo", [&manifest])).expect(0);
    fs::write(daemon.path().join("state/nonsense.json"), "{").unwrap();
    daemon.start_again();
    wait_for_files(&of_bob);
    wait_for("the note of what was recovered to go", || (notes(&daemon).len() == 2).then_some(()));
    assert_eq!(daemon.tell("GET", "/v1/sessions", None), json!([]));
    let ended = daemon.end();
    let again = format!("`tracer-agent recover {}` does it now", of_alice.display());
    ended.expect(0).says(&[
        "session one of user 54321",
        "not a regular file",
        "tries again",
        &again,
        "nonsense.json",
    ]);
    assert_eq!(spools(&of_alice).len(), 1);
    fs::rename(&kept, &manifest).unwrap();
    daemon.start_again();
    let recovered = wait_for_files(&of_alice);
    assert!(recovered.len() == 1 && found(&recovered) > 10_000);
    wait_for("its note to go", || (notes(&daemon).len() == 1).then_some(()));
}

#[test]
fn directories_that_are_gone_are_not_waited_for() {
    let mut daemon = Daemon::start();
    let home = daemon.directory_of(ALICE, "alice");
    let caller = Caller::start();
    started(&daemon, ALICE, &home.join("out"), &caller);
    started(&daemon, BOB, &daemon.directory_of(BOB, "bob"), &caller);
    daemon.kill();
    fs::remove_dir_all(home.join("out")).unwrap();
    run(&mut program("/".as_ref(), "mkfifo", [home.join("out")])).expect(0);
    fs::remove_dir_all(daemon.path().join("bob")).unwrap();
    daemon.start_again();
    wait_for("the notes to go", || notes(&daemon).is_empty().then_some(()));
}
