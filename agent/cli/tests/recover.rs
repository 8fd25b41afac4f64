//! Spools of recorders that end. In a process that does nothing else: one that is started beside would hold
//! for a moment what is locked here.

#![allow(clippy::unwrap_used, reason = "a helper of a test fails the test")]

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::process::{Child, Command, Stdio};

use capture::{Spool, SpoolError};

/// A process with a lock, which prints a word when it holds it, and one for each line that it gets.
fn locks(lock: &std::path::Path, script: &str) -> Child {
    let locked =
        r#"use Fcntl ":flock"; open(my $lock, "+<", shift) or die; flock($lock, LOCK_EX) or die; $| = 1;"#;
    let mut command = Command::new("perl");
    command.args(["-e", &format!("{locked} {script}")]).arg(lock);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap()
}

#[test]
fn a_recorder_that_ends_is_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let (path, spool) = (dir.path().join("trace.dat"), dir.path().join("trace.dat.spool"));
    fs::DirBuilder::new().mode(0o700).create(&spool).unwrap();
    let lock = spool.join("lock");
    fs::write(&lock, "").unwrap();
    Spool::wait_for_end(&path, |_| panic!("nobody holds it")).unwrap();

    // The one that has locked is a zombie; what it has started holds the lock.
    let mut ends = locks(
        &lock,
        r#"my $parent = $$; exit 0 if fork; select undef, undef, undef, 0.01 while getppid == $parent;
           print "held"; <STDIN>; close $lock; print "free"; <STDIN>"#,
    );
    let (mut to, mut from) = (ends.stdin.take().unwrap(), ends.stdout.take().unwrap());
    let mut word = [0; 4];
    from.read_exact(&mut word).unwrap();
    let mut asked = Vec::new();
    let refused = Spool::wait_for_end(&path, |process| {
        asked.push(process);
        asked.len() < 3
    });
    let zombie = ends.id();
    assert!(matches!(refused, Err(SpoolError::Ending { process, .. }) if process == zombie), "{refused:?}");
    assert_eq!(asked, [zombie; 3]);
    let mut asked = Vec::new();
    Spool::wait_for_end(&path, |process| {
        asked.push(process);
        to.write_all(b"\n").unwrap();
        from.read_exact(&mut word).unwrap();
        true
    })
    .unwrap();
    assert_eq!((asked, word), (vec![zombie], *b"free"));
    drop((to, from));
    ends.wait().unwrap();

    // One that runs is named.
    let mut runs = locks(&lock, r#"print "held"; <STDIN>"#);
    runs.stdout.as_mut().unwrap().read_exact(&mut word).unwrap();
    let refused = Spool::wait_for_end(&path, |_| panic!("it runs"));
    let recorder = runs.id();
    assert!(
        matches!(refused, Err(SpoolError::InUseBy { process, .. }) if process == recorder),
        "{refused:?}"
    );
    drop(runs.stdin.take());
    runs.wait().unwrap();
    Spool::wait_for_end(&path, |_| panic!("nobody holds it")).unwrap();
}
