#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};

use super::*;
use crate::archive::ArchiveState;
use crate::counts::CountsFile;
use ftrace_event::Endian;
use spec::TraceClock;
use tracedat::{ChunkCompressor, Compression};

fn output(dir: &tempfile::TempDir) -> Output {
    Output::at(&dir.path().join("trace.dat")).unwrap()
}

fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// The spool of a recording that was killed.
fn leave_spool(dir: &tempfile::TempDir) {
    let spool = Spool::create(&output(dir)).unwrap().0;
    spool.files().write("manifest", b"").unwrap();
    spool.files().write("cpu0.0", b"data").unwrap();
}

#[test]
fn a_link_under_the_name_of_a_spool_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("target");
    fs::create_dir(&target).unwrap();
    fs::write(target.join("manifest"), "").unwrap();
    symlink(&target, dir.path().join("trace.dat.spool")).unwrap();
    assert!(matches!(Spool::create(&output(&dir)), Err(SpoolError::NotOurs(_))));
    assert!(matches!(Spool::open(&dir.path().join("trace.dat")), Err(SpoolError::NotOurs(_))));
    assert_eq!(names(&target), ["manifest"]);
    assert_eq!(names(dir.path()), ["target", "trace.dat.spool"]);
}

#[test]
fn a_spool_that_others_can_write_to_is_not_ours() {
    let dir = tempfile::tempdir().unwrap();
    leave_spool(&dir);
    let spool = dir.path().join("trace.dat.spool");
    assert_eq!(spool.metadata().unwrap().mode() & 0o777, 0o700);
    fs::set_permissions(&spool, fs::Permissions::from_mode(0o722)).unwrap();
    assert!(matches!(Spool::open(&spool), Err(SpoolError::NotOurs(_))));
    assert!(matches!(Spool::create(&output(&dir)), Err(SpoolError::NotOurs(_))));
    assert_eq!(names(&spool), ["cpu0.0", "lock", "manifest"]);
}

#[test]
fn a_lock_that_is_a_link_is_not_followed() {
    let dir = tempfile::tempdir().unwrap();
    let (spool, victim) = (dir.path().join("trace.dat.spool"), dir.path().join("victim"));
    fs::create_dir(&spool).unwrap();
    fs::write(&victim, "text").unwrap();
    symlink(&victim, spool.join("lock")).unwrap();
    Spool::create(&output(&dir)).unwrap_err();
    assert_eq!(fs::read_to_string(victim).unwrap(), "text");
}

#[test]
fn a_spool_is_not_set_aside_under_a_number_that_a_file_has() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("trace.dat.1"), "").unwrap();
    fs::create_dir(dir.path().join("trace.dat.spool.2")).unwrap();
    leave_spool(&dir);
    let (_, kept) = Spool::create(&output(&dir)).unwrap();
    assert_eq!(kept, Some(dir.path().join("trace.dat.spool.3")));
}

#[test]
fn a_spool_is_found_by_its_file_its_path_and_from_within() {
    let dir = tempfile::tempdir().unwrap();
    leave_spool(&dir);
    let spool = dir.path().join("trace.dat.spool");
    for path in
        [dir.path().join("trace.dat"), spool.clone(), spool.join("."), spool.join("../trace.dat.spool/")]
    {
        let found = Spool::open(&path).unwrap();
        assert_eq!(found.output_name().unwrap(), "trace.dat", "{}", path.display());
    }
    let here = Spool::open(&spool.join("..")).unwrap_err().to_string();
    assert!(here.contains("find a recording in"), "{here}");
}

/// What another recorder does in the middle of the first one's work.
#[derive(Clone, Copy, Debug)]
enum Other {
    /// It starts a recording to the same file, which goes on.
    Records,
    /// It starts one and is killed.
    IsKilled,
    /// It starts one and ends it.
    Ends,
}

/// The first recorder creates a spool; at `step` the other one does what it does. Whoever got a spool must
/// have one of its own, under the name if it is the last.
fn interleave(left: bool, step: Step, other: Other) {
    let context = format!("{left} {step:?} {other:?}");
    let dir = tempfile::tempdir().unwrap();
    if left {
        leave_spool(&dir);
    }
    let mut others = Vec::new();
    let mut reached = false;
    let result = Spool::create_with(&output(&dir), &mut |now| {
        if now != step || std::mem::replace(&mut reached, true) {
            return;
        }
        match (Spool::create(&output(&dir)), other) {
            (Ok((spool, _)), Other::Ends) => spool.remove().unwrap(),
            (Ok((spool, _)), Other::Records) => {
                spool.files().write("manifest", b"other").unwrap();
                others.push(spool);
            }
            (Ok((spool, _)), Other::IsKilled) => spool.files().write("manifest", b"other").unwrap(),
            // The first one holds the lock of what is there.
            (Err(error), _) => assert!(matches!(error, SpoolError::InUse(_)), "{context}: {error}"),
        }
    });
    assert_eq!(
        reached,
        left || matches!(step, Step::Created | Step::Locked),
        "{context}: was the step there?"
    );
    let at_name = |spool: &Spool| {
        let files = spool.files().identity().unwrap();
        spool.parent.has(OsStr::new("trace.dat.spool"), files).unwrap()
    };
    match result {
        Ok((spool, _)) => {
            assert!(at_name(&spool), "{context}: it has lost its name");
            assert!(others.is_empty(), "{context}: two recordings at once");
            assert_eq!(spool.files().names().unwrap(), ["lock"], "{context}: not a fresh one");
            // It is held: nobody else gets it.
            assert!(matches!(Spool::create(&output(&dir)), Err(SpoolError::InUse(_))), "{context}");
        }
        Err(error) => {
            assert!(matches!(error, SpoolError::InUse(_)), "{context}: {error}");
            assert!(others.iter().all(at_name) && others.len() == 1, "{context}: nobody has it");
        }
    }
    for spool in &others {
        assert_eq!(spool.files().read("manifest").unwrap(), b"other", "{context}");
    }
    // The recording that was left is still there, and nothing of what came to nothing.
    let names = names(dir.path());
    let recordings = names.iter().filter(|name| dir.path().join(name).join("cpu0.0").exists()).count();
    assert_eq!(recordings, usize::from(left), "{context}: {names:?}");
    assert!(
        names.iter().all(|name| !name.contains("new") && !name.contains("removed")),
        "{context}: {names:?}"
    );
}

#[test]
fn two_recorders_never_have_one_spool() {
    for step in [Step::Created, Step::Locked, Step::Found, Step::Claimed, Step::SetAside] {
        for other in [Other::Records, Other::IsKilled, Other::Ends] {
            for left in [false, true] {
                interleave(left, step, other);
            }
        }
    }
}

/// A directory without a file to lock, which two find at the same time: only one may move it, and the other
/// must not take what came in its place.
#[test]
fn a_directory_without_a_lock_is_moved_once() {
    for step in [Step::Found, Step::Claimed] {
        let dir = tempfile::tempdir().unwrap();
        let foreign = dir.path().join("trace.dat.spool");
        fs::create_dir(&foreign).unwrap();
        fs::write(foreign.join("thesis"), "years").unwrap();
        let mut first = true;
        let mut other = None;
        let result = Spool::create_with(&output(&dir), &mut |now| {
            if now == step && std::mem::take(&mut first) {
                other = Some(Spool::create(&output(&dir)));
            }
        });
        let ok = [result.is_ok(), other.as_ref().is_some_and(Result::is_ok)];
        assert_eq!(ok, if step == Step::Found { [false, true] } else { [true, false] }, "{step:?}");
        assert_eq!(names(&dir.path().join("trace.dat.spool.1")), ["thesis"], "{step:?}: as it was");
        assert_eq!(names(dir.path()), ["trace.dat.spool", "trace.dat.spool.1"]);
    }
}

/// A lock that was removed while somebody waited for it protects nothing.
#[test]
fn a_lock_that_was_removed_is_not_the_lock() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("d")).unwrap();
    let files = || Directory::open(&dir.path().join("d")).unwrap();
    let first = claim(files()).unwrap();
    assert!(matches!(claim(files()), Err(SpoolError::InUse(_))));
    fs::remove_file(dir.path().join("d/lock")).unwrap();
    let second = claim(files()).unwrap();
    assert!(second.created_lock && first.lock.is_some());
    // A directory that is gone has no lock: that is an error, not a lock that nobody needs.
    drop((first, second));
    let gone = files();
    fs::remove_dir_all(dir.path().join("d")).unwrap();
    let error = claim(gone).unwrap_err();
    assert!(
        matches!(&error, SpoolError::Io { action: "lock", source, .. }
        if source.kind() == io::ErrorKind::NotFound),
        "{error}"
    );
}

/// The new directory is exchanged for another before it is locked, and locking fails: the other is not
/// cleared.
#[test]
fn what_came_in_the_place_of_a_new_directory_stays() {
    let dir = tempfile::tempdir().unwrap();
    let result = Spool::create_with(&output(&dir), &mut |now| {
        if now == Step::Created {
            let [new] = &names(dir.path())[..] else { panic!("more than the new directory") };
            let (new, away) = (dir.path().join(new), dir.path().join("away"));
            fs::create_dir(new.join("lock")).unwrap();
            fs::rename(&new, away).unwrap();
            fs::create_dir(&new).unwrap();
            fs::write(new.join("thesis"), "years").unwrap();
        }
    });
    assert!(matches!(result, Err(SpoolError::Io { action: "lock", .. })));
    let mut left = names(dir.path());
    assert_eq!(left.remove(0), "away");
    assert_eq!((left.len(), names(&dir.path().join(&left[0]))), (1, vec!["thesis".to_owned()]));
}

/// What comes into a spool that looked as if a recording had just started is not deleted with it.
#[test]
fn only_what_a_recording_starts_with_is_removed() {
    for more in [None, Some("thesis")] {
        let dir = tempfile::tempdir().unwrap();
        let parent = Directory::open(dir.path()).unwrap();
        let files = parent.create_dir("trace.dat.spool").unwrap();
        files.write("reserve", b"").unwrap();
        files.write("manifest.new", b"").unwrap();
        let claim = claim(files.clone()).unwrap();
        if let Some(more) = more {
            files.create_dir(more).unwrap().write("text", b"years").unwrap();
        }
        lock::discard_started(&parent, OsStr::new("trace.dat.spool"), claim).unwrap();
        let left = names(dir.path());
        assert!(
            left.len() == more.iter().len() && left.iter().all(|left| left.contains(".removed.")),
            "{left:?}"
        );
        assert!(left.iter().all(|left| names(&dir.path().join(left)) == ["thesis"]));
    }
}

#[test]
fn a_cpu_that_was_cleared_begins_again() {
    let dir = tempfile::tempdir().unwrap();
    let (spool, _) = Spool::create(&output(&dir)).unwrap();
    let counts = CountsFile::create(&spool, 1, TraceClock::Mono).unwrap();
    let archive = ArchiveState::new(1, None);
    let mut cpu = CpuSpool::create(
        &spool,
        StreamId::default(),
        Some(16 << 10),
        &archive,
        counts.of_stream(0, StreamId::default()),
    )
    .unwrap();
    let mut compressor = ChunkCompressor::new(Compression::None, Endian::Little).unwrap();
    // Two segments, and a page that waits.
    for page in 1..=4_u8 {
        cpu.append(&[page; 4096], 4096, 10, &mut compressor).unwrap();
        if page < 4 {
            cpu.flush().unwrap();
        }
    }
    assert_eq!((cpu.totals().pages, archive.bytes()), (3, 3 * 4096));
    cpu.clear().unwrap();
    assert_eq!((cpu.totals(), archive.bytes(), cpu.pending_bytes()), (SpoolTotals::default(), 0, 0));
    cpu.append(&[9; 4096], 4096, 10, &mut compressor).unwrap();
    cpu.flush().unwrap();
    assert_eq!((cpu.totals().events, archive.bytes()), (10, 4096));
    let segments: Vec<String> =
        names(spool.dir()).into_iter().filter(|name| parse_segment(name).is_some()).collect();
    assert_eq!(segments.len(), 1, "{segments:?}");
    assert_eq!(fs::read(spool.dir().join(&segments[0])).unwrap(), [9; 4096]);
}
