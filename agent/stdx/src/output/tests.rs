use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{PermissionsExt as _, chown, lchown, symlink};

use super::*;

/// Somebody else. Giving files away takes root, as which the project's tests run.
const OTHER: u32 = 12345;

fn names(dir: &Path) -> Vec<OsString> {
    let mut names: Vec<_> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    names
}

fn link(target: &Path, path: &Path, owner: u32) {
    symlink(target, path).unwrap();
    lchown(path, Some(owner), None).unwrap();
}

/// A directory with this mode and owner.
fn dir(path: &Path, mode: u32, owner: u32) {
    fs::create_dir_all(path).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    chown(path, Some(owner), None).unwrap();
}

#[test]
fn only_a_finished_file_gets_the_name() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("out");
    let output = Output::at(&path).unwrap();
    let (temp, mut file) = TempFile::beside(&output).unwrap();
    file.write_all(b"half").unwrap();
    assert_eq!((path.exists(), names(dir.path()).len()), (false, 1));
    drop(temp);
    assert_eq!(names(dir.path()).len(), 0);
    fs::write(&path, "old").unwrap();
    let (temp, mut file) = TempFile::beside(&output).unwrap();
    file.write_all(b"new one").unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"old");
    assert_eq!(temp.put_in_place(&file).unwrap(), 7);
    assert_eq!((fs::read(&path).unwrap(), names(dir.path()).len()), (b"new one".to_vec(), 1));
    // The longest name has room for a temporary one.
    let longest = Output::at(&dir.path().join("n".repeat(255))).unwrap();
    let (temp, file) = TempFile::beside(&longest).unwrap();
    temp.put_in_place(&file).unwrap();
    assert!(dir.path().join("n".repeat(255)).exists());
}

#[test]
fn links_are_followed_and_other_things_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let (real, link) = (dir.path().join("sub/real"), dir.path().join("link"));
    fs::create_dir(dir.path().join("sub")).unwrap();
    fs::write(&real, "old").unwrap();
    symlink("x/../real", dir.path().join("sub/second")).unwrap();
    fs::create_dir(dir.path().join("sub/x")).unwrap();
    symlink("sub/second", &link).unwrap();
    let output = Output::at(&link).unwrap();
    assert!(output.is_same_file(&real) && output.is_same_file(&link) && !output.is_same_file(dir.path()));
    let (temp, file) = TempFile::beside(&output).unwrap();
    temp.put_in_place(&file).unwrap();
    assert!(link.is_symlink());
    assert_eq!(fs::read(&real).unwrap(), b"");
    // A link to nothing leads to a new file.
    let dangling = dir.path().join("dangling");
    symlink(dir.path().join("fresh"), &dangling).unwrap();
    assert_eq!(Output::at(&dangling).unwrap().path(), dir.path().join("fresh"));
    symlink("loop", dir.path().join("loop")).unwrap();
    assert!(matches!(Output::at(&dir.path().join("loop")), Err(OutputError::TooManyLinks { .. })));
    assert!(matches!(Output::at(dir.path()), Err(OutputError::IsDirectory { .. })));
    assert!(matches!(Output::at(&dir.path().join("new/")), Err(OutputError::IsDirectory { .. })));
    assert!(matches!(Output::at(Path::new("/dev/null")), Err(OutputError::NotRegular { .. })));
    assert!(matches!(Output::at(&dir.path().join("none/out")), Err(OutputError::NoDirectory { .. })));
    assert!(matches!(Output::at(&real.join("out")), Err(OutputError::Io { action: "open", .. })));
    let own = fs::File::open(&real).unwrap();
    let number = std::os::fd::AsRawFd::as_raw_fd(&own);
    let opened = PathBuf::from(format!("/proc/self/fd/{number}"));
    assert!(matches!(Output::at(&opened), Err(OutputError::ProcessLink { .. })));
    // On the way, the kernel's own links lead where it says.
    let through = PathBuf::from(format!("/proc/self/root{}", real.display()));
    assert!(Output::at(&through).unwrap().is_same_file(&real));
}

#[test]
fn links_of_others_are_followed_where_they_may_put_them() {
    let scratch = tempfile::tempdir().unwrap();
    let at = |path: &str| scratch.path().join(path);
    fs::write(at("victim"), "").unwrap();
    dir(&at("sticky"), 0o1777, 0);
    dir(&at("open"), 0o777, 0);
    dir(&at("home"), 0o755, OTHER);
    dir(&at("sticky/theirs"), 0o755, OTHER);
    dir(&at("sticky/ours"), 0o755, 0);
    dir(&at("theirs-sticky"), 0o1777, OTHER);
    dir(&at("open/theirs"), 0o755, OTHER);
    dir(&at("open/ours"), 0o755, 0);
    dir(&at("group"), 0o775, 0);
    dir(&at("group/theirs"), 0o755, OTHER);
    dir(&at("theirs-group"), 0o775, OTHER);
    dir(&at("theirs-group/sub"), 0o755, OTHER);
    for (path, owner, followed) in [
        ("sticky/of-other", OTHER, false),
        ("sticky/of-root", 0, true),
        ("open/of-other", OTHER, false),
        ("open/of-root", 0, true),
        ("home/of-other", OTHER, true),
        ("home/of-root", 0, true),
        ("home/of-third", OTHER + 1, false),
        ("theirs-sticky/of-other", OTHER, true),
        // Everybody may have put this directory there.
        ("sticky/theirs/of-other", OTHER, false),
        ("sticky/theirs/of-root", 0, true),
        ("sticky/ours/of-other", OTHER, false),
        ("open/theirs/of-other", OTHER, false),
        ("open/theirs/of-root", 0, true),
        ("open/ours/of-other", OTHER, false),
        ("open/ours/of-root", 0, true),
        ("group/of-other", OTHER, false),
        ("group/of-root", 0, true),
        ("group/theirs/of-other", OTHER, false),
        // Its owner may put links there, and lets a group do so.
        ("theirs-group/of-other", OTHER, true),
        ("theirs-group/of-root", 0, true),
        ("theirs-group/of-third", OTHER + 1, false),
        ("theirs-group/sub/of-other", OTHER, true),
    ] {
        link(&at("victim"), &at(path), owner);
        let found = Output::at(&at(path));
        match found {
            Ok(output) => assert!(followed && output.path() == at("victim"), "{path}"),
            Err(OutputError::ForeignLink { owner: of, .. }) => assert!(!followed && of == owner, "{path}"),
            Err(error) => panic!("{path}: {error}"),
        }
        // On the way to the file, too.
        let way = at(&format!("{path}-dir"));
        link(scratch.path(), &way, owner);
        assert_eq!(Output::at(&way.join("victim")).is_ok(), followed, "{path}");
    }
    // A link of ours that leads to one of theirs, and a second name for a link of ours.
    link(&at("sticky/of-other"), &at("first"), 0);
    assert!(matches!(Output::at(&at("first")), Err(OutputError::ForeignLink { .. })));
    // A second name where only the owner writes is the owner's.
    link(&at("victim"), &at("own"), 0);
    for (second, followed) in
        [("sticky/second", false), ("open/second", false), ("group/second", false), ("home/second", true)]
    {
        fs::hard_link(at("own"), at(second)).unwrap();
        let found = Output::at(&at(second));
        assert_eq!(found.is_ok(), followed, "{second}");
        assert!(followed || matches!(found, Err(OutputError::ForeignLink { .. })), "{second}");
    }
}

#[test]
fn a_new_directory_is_as_new_where_others_may_exchange_it() {
    let scratch = tempfile::tempdir().unwrap();
    let at = |path: &str| scratch.path().join(path);
    for (parent, mode, owner, checked) in [
        ("own", 0o755, 0, false),
        ("open", 0o777, 0, true),
        ("group", 0o775, 0, true),
        ("home", 0o755, OTHER, true),
    ] {
        dir(&at(parent), mode, owner);
        let shared = Directory::open(&at(parent)).unwrap();
        for (name, mode, owner) in [("of-other", 0o700, OTHER), ("writable", 0o770, 0), ("full", 0o700, 0)] {
            let path = at(parent).join(name);
            dir(&path, mode, owner);
            if name == "full" {
                fs::write(path.join("thesis"), "years").unwrap();
            }
            let opened = shared.open_created(OsStr::new(name), MODE_PRIVATE);
            assert_eq!(opened.is_err(), checked, "{parent}/{name}");
        }
        assert_eq!(fs::read(at(parent).join("full/thesis")).unwrap(), b"years");
        shared.create_dir("new").unwrap();
        shared.create_dir_with(OsStr::new("private"), MODE_PRIVATE).unwrap();
    }
}

#[test]
fn what_is_exchanged_meanwhile_is_noticed() {
    let dir = tempfile::tempdir().unwrap();
    let (path, victim) = (dir.path().join("out"), dir.path().join("victim"));
    fs::write(&victim, "precious").unwrap();
    let output = Output::at(&path).unwrap();
    // A link comes under the name: it is replaced.
    symlink(&victim, &path).unwrap();
    let (temp, file) = TempFile::beside(&output).unwrap();
    temp.put_in_place(&file).unwrap();
    assert!(!path.is_symlink());
    // The temporary file is exchanged: what came is not told of as the output.
    let (temp, file) = TempFile::beside(&output).unwrap();
    let name = names(dir.path()).into_iter().find(|name| name.to_string_lossy().contains(".new.")).unwrap();
    fs::remove_file(dir.path().join(&name)).unwrap();
    symlink(&victim, dir.path().join(&name)).unwrap();
    assert!(matches!(temp.put_in_place(&file), Err(OutputError::Exchanged { .. })));
    // The directory is exchanged: the file goes where the directory is now.
    let (old, new) = (dir.path().join("dir"), dir.path().join("moved"));
    fs::create_dir(&old).unwrap();
    let output = Output::at(&old.join("out")).unwrap();
    fs::rename(&old, &new).unwrap();
    symlink(dir.path(), &old).unwrap();
    let (temp, file) = TempFile::beside(&output).unwrap();
    temp.put_in_place(&file).unwrap();
    assert_eq!(names(&new), ["out"]);
    assert_eq!(fs::read(&victim).unwrap(), b"precious");
}

#[test]
fn names_stay_in_their_directory_and_trees_go_without_what_they_link_to() {
    let scratch = tempfile::tempdir().unwrap();
    let root = Directory::open(scratch.path()).unwrap();
    for name in ["", ".", "..", "a/b", "/etc/passwd", "../x"] {
        assert_eq!(root.create(name).unwrap_err().kind(), io::ErrorKind::InvalidInput, "{name:?}");
    }
    fs::write(scratch.path().join("kept"), "").unwrap();
    let tree = root.create_dir("tree").unwrap();
    tree.create_dir("deep").unwrap().write("file", b"x").unwrap();
    symlink(scratch.path(), scratch.path().join("tree/deep/link")).unwrap();
    symlink("kept", scratch.path().join("tree/link")).unwrap();
    assert!(tree.open_file("link").is_err() && root.open_dir("tree/deep").is_err());
    root.remove_tree("tree", &tree).unwrap();
    assert_eq!(names(scratch.path()), ["kept"]);
    // Something else has the name by now.
    let tree = root.create_dir("tree").unwrap();
    fs::rename(scratch.path().join("tree"), scratch.path().join("moved")).unwrap();
    fs::create_dir(scratch.path().join("tree")).unwrap();
    fs::write(scratch.path().join("tree/thesis"), "").unwrap();
    root.remove_tree("tree", &tree).unwrap();
    assert_eq!(names(&scratch.path().join("tree")), ["thesis"]);
}

#[test]
fn a_file_that_could_not_be_written_whole_is_not_there() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = Directory::open(scratch.path()).unwrap();
    let failed = dir.write_whole("name", |file| {
        file.write_all(b"half")?;
        Err::<(), _>(io::ErrorKind::StorageFull.into())
    });
    assert_eq!(failed.unwrap_err().kind(), io::ErrorKind::StorageFull);
    assert_eq!(names(scratch.path()).len(), 0);
    dir.write_whole("name", |file| file.write_all(b"all")).unwrap();
    assert_eq!((dir.read("name").unwrap(), names(scratch.path()).len()), (b"all".to_vec(), 1));
}
