//! Where the commands write: nothing is overwritten that another user chose, nothing that cannot be replaced
//! is found out about at the end, and what is recorded comes before what is stored beside it.

use std::{
    collections::BTreeSet,
    fs,
    os::{
        fd::AsFd as _,
        unix::fs::{MetadataExt as _, PermissionsExt as _, chown, lchown, symlink},
    },
    path::{Path, PathBuf},
    process::{Child, Command},
    sync::{Mutex, MutexGuard, PoisonError},
};

use integration_tests::harness::{
    Caller, Ended, Marked, Report, Running, Tmpfs, agent, files, is_getppid, program, run, wait_for,
};
use rustix::{
    fs::{IFlags, ioctl_getflags, ioctl_setflags},
    io::Errno,
};

/// The user that plants and exchanges.
const NOBODY: u32 = 65534;
const PROTECTED_SYMLINKS: &str = "/proc/sys/fs/protected_symlinks";
/// What nobody may overwrite.
const PRECIOUS: &str = "precious";

/// What the commands read: a recording, and what a killed one left.
struct Inputs {
    dir: tempfile::TempDir,
}

impl Inputs {
    fn make() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let record = ["record", "-e", "sched:sched_switch", "-o", "in.dat", "true"];
        run(&mut agent(dir.path(), record)).expect(0);
        let killed = Marked::start(dir.path(), &["-e", "sched:sched_switch", "-o", "killed.dat"]);
        killed.agent.signal(libc::SIGKILL);
        killed.end_command();
        killed.agent.wait();
        assert_eq!(files(dir.path()), ["in.dat", "killed.dat.spool"]);
        Self { dir }
    }

    fn path(&self, name: &str) -> String {
        self.dir.path().join(name).into_os_string().into_string().unwrap()
    }

    /// A spool that may be used up.
    fn spool(&self) -> String {
        let copy = self.path("copy.dat.spool");
        let _ = fs::remove_dir_all(&copy);
        run(&mut program(self.dir.path(), "cp", ["-r", "killed.dat.spool", "copy.dat.spool"])).expect(0);
        copy
    }

    /// The arguments of a command that writes `output`.
    fn command(&self, kind: &str, output: &Path) -> Vec<String> {
        let input = self.path("in.dat");
        let output = output.to_str().unwrap();
        let args = match kind {
            "record" => vec!["record", "-e", "sched:sched_switch", "-o", output, "true"],
            "recover" => return vec!["recover".into(), "-o".into(), output.into(), self.spool()],
            "convert" => vec!["convert", &input, "-o", output],
            "split" => vec!["split", &input, "-o", output.strip_suffix(".1").unwrap()],
            "merge" => vec!["merge", &input, "-o", output],
            "repair" => vec!["repair", &input, "-o", output],
            "export" => vec!["export", "--format", "ctf", "--force", &input, output],
            _ => vec![
                "export",
                "--format",
                "ctf",
                "--force",
                "--tar",
                &input,
                output.strip_suffix(".tar.gz").unwrap(),
            ],
        };
        args.into_iter().map(str::to_owned).collect()
    }

    fn run(&self, kind: &str, output: &Path) -> Ended {
        run(&mut agent(self.dir.path(), self.command(kind, output)))
    }
}

/// Every command that writes, and the name of what it writes.
const COMMANDS: [(&str, &str); 8] = [
    ("record", "out.dat"),
    ("recover", "out.dat"),
    ("convert", "out.dat"),
    ("split", "out.dat.1"),
    ("merge", "out.dat"),
    ("repair", "out.dat"),
    ("export", "out"),
    ("archive", "out.tar.gz"),
];

/// The modes of what is at a path and below it, of directories and of files.
fn modes(path: &Path) -> (BTreeSet<u32>, BTreeSet<u32>) {
    let there = fs::symlink_metadata(path).unwrap();
    let mode = there.mode() & 0o7777;
    if !there.is_dir() {
        return (BTreeSet::new(), BTreeSet::from([mode]));
    }
    let mut found = (BTreeSet::from([mode]), BTreeSet::new());
    for entry in fs::read_dir(path).unwrap() {
        let (dirs, files) = modes(&entry.unwrap().path());
        found.0.extend(dirs);
        found.1.extend(files);
    }
    found
}

#[test]
fn what_is_recorded_is_private_unless_a_mode_is_given() {
    let inputs = Inputs::make();
    for (kind, name) in COMMANDS {
        for (mode, umask, (dir, file)) in [
            (None, "022", (0o700, 0o600)),
            (Some("0644"), "022", (0o755, 0o644)),
            (Some("0666"), "027", (0o750, 0o640)),
            (Some("0640"), "077", (0o700, 0o600)),
        ] {
            let place = tempfile::tempdir().unwrap();
            let mut args = inputs.command(kind, &place.path().join(name));
            args.splice(1..1, mode.iter().flat_map(|mode| ["--mode".to_owned(), (*mode).to_owned()]));
            let script = format!("umask {umask}; exec \"$@\"");
            let mut command = program(inputs.dir.path(), "sh", ["-c", &script, "sh"]);
            run(command.arg(integration_tests::harness::agent_path()).args(&args)).expect(0);
            let (dirs, files) = modes(&place.path().join(name));
            assert_eq!(files, BTreeSet::from([file]), "{kind}, {mode:?}, {umask}");
            assert!(dirs.iter().all(|found| *found == dir), "{kind}, {mode:?}, {umask}: {dirs:?}");
            assert_eq!(dirs.is_empty(), kind != "export", "{kind}");
        }
    }
    for wrong in ["0400", "0755", "rw", "4600"] {
        let mut args = inputs.command("convert", &inputs.dir.path().join("new.dat"));
        args.splice(1..1, ["--mode".to_owned(), wrong.to_owned()]);
        run(&mut agent(inputs.dir.path(), &args)).expect(2);
    }
}

#[test]
fn the_recorded_command_has_the_umask_that_it_was_started_with() {
    let dir = tempfile::tempdir().unwrap();
    let script = "umask 022; exec \"$@\"";
    let mut command = program(dir.path(), "sh", ["-c", script, "sh"]);
    command.arg(integration_tests::harness::agent_path());
    run(command.args(["record", "-e", "sched:sched_switch", "touch", "made"])).expect(0);
    assert_eq!(modes(&dir.path().join("made")).1, BTreeSet::from([0o644]));
}

#[test]
fn who_may_not_read_a_file_learns_whose_it_is() {
    let inputs = Inputs::make();
    let places = Places::make();
    let copy = places.dir.path().join("agent");
    fs::copy(integration_tests::harness::agent_path(), &copy).unwrap();
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o755)).unwrap();
    let input = places.dir.path().join("in.dat");
    fs::copy(inputs.path("in.dat"), &input).unwrap();
    fs::set_permissions(&input, fs::Permissions::from_mode(0o600)).unwrap();
    let id = NOBODY.to_string();
    for args in [
        &["report"][..],
        &["info"],
        &["check"],
        &["hist", "sched:sched_switch", "-i"],
        &["analyze", "sched"],
        &["import", "-o", "new.dat"],
        &["convert", "-o", "new.dat"],
        &["repair", "-o", "new.dat"],
    ] {
        let as_nobody = ["--reuid", &id, "--regid", &id, "--clear-groups"];
        let mut command = program(&places.sticky(""), "setpriv", as_nobody);
        run(command.arg(&copy).args(args).arg(&input)).expect(110).says(&["user 0", "0600"]);
    }
}

/// `fs.protected_symlinks`, which is one for the whole machine, as a test wants it; as it was when dropped.
struct ProtectedSymlinks {
    before: String,
    _turn: MutexGuard<'static, ()>,
}

impl ProtectedSymlinks {
    fn set(value: &str) -> Self {
        static TURN: Mutex<()> = Mutex::new(());
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let before = fs::read_to_string(PROTECTED_SYMLINKS).unwrap();
        fs::write(PROTECTED_SYMLINKS, value).unwrap();
        Self { before, _turn: turn }
    }
}

impl Drop for ProtectedSymlinks {
    fn drop(&mut self) {
        if let Err(error) = fs::write(PROTECTED_SYMLINKS, &self.before) {
            eprintln!("{PROTECTED_SYMLINKS} is not as it was, {}: {error}", self.before);
        }
    }
}

/// A directory that everybody may write to, and a place where nobody but root may.
struct Places {
    dir: tempfile::TempDir,
}

impl Places {
    fn make() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        for (name, mode) in [("sticky", 0o1777), ("etc", 0o755)] {
            fs::create_dir(dir.path().join(name)).unwrap();
            fs::set_permissions(dir.path().join(name), fs::Permissions::from_mode(mode)).unwrap();
        }
        fs::write(dir.path().join("etc/victim"), PRECIOUS).unwrap();
        Self { dir }
    }

    fn sticky(&self, name: &str) -> PathBuf {
        self.dir.path().join("sticky").join(name)
    }

    fn etc(&self) -> PathBuf {
        self.dir.path().join("etc")
    }

    /// Puts a link of the other user's into the sticky directory.
    fn plant(&self, name: &str, target: &Path) {
        let path = self.sticky(name);
        symlink(target, &path).unwrap();
        lchown(&path, Some(NOBODY), Some(NOBODY)).unwrap();
    }

    #[track_caller]
    fn check_victim(&self, context: &str) {
        assert_eq!(fs::read_to_string(self.etc().join("victim")).unwrap(), PRECIOUS, "{context}");
        assert_eq!(files(&self.etc()), ["victim"], "{context}: something was written beside it");
    }
}

#[test]
fn links_that_another_user_planted_are_not_followed() {
    let inputs = Inputs::make();
    for protected in ["0", "1"] {
        let _setting = ProtectedSymlinks::set(protected);
        for (kind, name) in COMMANDS {
            let context = format!("{kind}, {protected}");
            let places = Places::make();
            places.plant(name, &places.etc().join("victim"));
            let ended = inputs.run(kind, &places.sticky(name));
            places.check_victim(&format!("{context}: {ended:?}"));
            assert_eq!(ended.code(), 114, "{context}: {ended:?}");
            // An export replaces exports only, and a link is none.
            let why = if name.ends_with("out") || Path::new(name).extension().is_some_and(|end| end == "gz") {
                "no earlier export"
            } else {
                "symbolic link of user 65534"
            };
            let ended = ended.says(&[why, name]);
            assert_eq!(files(&places.sticky("")), [name], "{context}: {ended:?}");
            // The same with a link on the way.
            places.plant("way", &places.etc());
            let ended = inputs.run(kind, &places.sticky("way").join(name));
            places.check_victim(&format!("{context}: {ended:?}"));
            assert_eq!(ended.code(), 114, "{context}: {ended:?}");
            ended.says(&["way is a symbolic link of user 65534", "not followed"]);
        }
    }
}

#[test]
fn links_of_our_own_and_of_the_directorys_owner_are_followed() {
    let inputs = Inputs::make();
    let _setting = ProtectedSymlinks::set("1");
    // Root's, in a directory of root's; the other user's, in one of theirs, as `sudo` in somebody's home
    // finds it.
    for (mode, owner) in [(0o1777, 0), (0o755, 12_345)] {
        let places = Places::make();
        let dir = places.sticky("");
        fs::set_permissions(&dir, fs::Permissions::from_mode(mode)).unwrap();
        chown(&dir, Some(owner), Some(owner)).unwrap();
        let target = places.dir.path().join("target.dat");
        symlink(&target, places.sticky("out.dat")).unwrap();
        lchown(places.sticky("out.dat"), Some(owner), Some(owner)).unwrap();
        for kind in ["record", "convert", "recover"] {
            inputs.run(kind, &places.sticky("out.dat")).expect(0);
            assert!(places.sticky("out.dat").is_symlink());
            Report::of(&target);
            fs::remove_file(&target).unwrap();
        }
    }
}

/// The other user, who exchanges a file and a link of theirs without pause.
struct Attacker(Child);

impl Attacker {
    /// Starts it, and returns when it is at work.
    fn start(one: &Path, other: &Path) -> Self {
        // renameat2(AT_FDCWD, one, AT_FDCWD, other, RENAME_EXCHANGE)
        let script = "my ($a, $b) = @ARGV; syscall(316, -100, $a, -100, $b, 2) while 1";
        let id = NOBODY.to_string();
        let mut command = Command::new("setpriv");
        command.args(["--reuid", &id, "--regid", &id, "--clear-groups", "perl", "-e", script]);
        let attacker = Self(command.args([one, other]).spawn().unwrap());
        let kind = || fs::symlink_metadata(one).unwrap().file_type();
        let first = kind();
        wait_for("the first exchange", || (kind() != first).then_some(()));
        attacker
    }
}

impl Drop for Attacker {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_file_and_a_link_that_are_exchanged_all_the_time_lead_nowhere_else() {
    let inputs = Inputs::make();
    let mut written = 0;
    for protected in ["0", "1"] {
        let _setting = ProtectedSymlinks::set(protected);
        for (kind, name) in COMMANDS {
            // Attaching programs takes long.
            for round in 0..if kind == "record" { 4 } else { 12 } {
                let context = format!("{kind}, {protected}, {round}");
                let places = Places::make();
                let output = places.sticky(name);
                places.plant(name, &places.etc().join("victim"));
                let own = places.sticky("own");
                fs::write(&own, "theirs").unwrap();
                chown(&own, Some(NOBODY), Some(NOBODY)).unwrap();
                let attacker = Attacker::start(&output, &own);
                let ended = inputs.run(kind, &output);
                drop(attacker);
                places.check_victim(&format!("{context}: {ended:?}"));
                match ended.code() {
                    // It was the file when it was looked at. Ours took the place of what was there at the
                    // end, and stays.
                    0 => {
                        let there = fs::symlink_metadata(&output).unwrap();
                        assert!(there.is_file() && there.uid() == 0, "{context}: {ended:?}");
                        written += 1;
                    }
                    114 => {}
                    code => panic!("{context}: {code}: {ended:?}"),
                }
                let left = files(&places.sticky(""));
                assert!(left.iter().all(|left| left == name || left == "own"), "{context}: {left:?}");
            }
        }
    }
    println!("{written} times the file was there when it was looked at");
}

/// A file with an attribute (chattr(1)), which is taken off when dropped.
struct Fixed {
    path: PathBuf,
    flag: IFlags,
}

impl Fixed {
    fn make(path: PathBuf, flag: IFlags) -> Result<Self, Errno> {
        let file = fs::File::open(&path).unwrap();
        let flags = ioctl_getflags(file.as_fd())?;
        ioctl_setflags(file.as_fd(), flags | flag)?;
        Ok(Self { path, flag })
    }
}

impl Drop for Fixed {
    fn drop(&mut self) {
        let result = fs::File::open(&self.path)
            .map_err(|_| Errno::IO)
            .and_then(|file| ioctl_setflags(file.as_fd(), ioctl_getflags(file.as_fd())? - self.flag));
        if let Err(error) = result {
            eprintln!("{} keeps its attribute: {error}", self.path.display());
        }
    }
}

/// A directory on a file system that has attributes: the usual one, or a tmpfs, which has them since Linux
/// 6.0.
enum WithAttributes {
    Usual(tempfile::TempDir),
    Mounted(Tmpfs),
}

impl WithAttributes {
    fn find() -> Self {
        let usual = tempfile::tempdir().unwrap();
        let probe = usual.path().join("probe");
        fs::write(&probe, "").unwrap();
        let works = Fixed::make(probe.clone(), IFlags::IMMUTABLE).is_ok();
        fs::remove_file(probe).unwrap();
        if works { Self::Usual(usual) } else { Self::Mounted(Tmpfs::mount("size=256m")) }
    }

    fn path(&self) -> &Path {
        match self {
            Self::Usual(dir) => dir.path(),
            Self::Mounted(tmpfs) => tmpfs.path(),
        }
    }
}

#[test]
fn what_cannot_be_replaced_is_noticed_before_the_work() {
    let inputs = Inputs::make();
    let disk = WithAttributes::find();
    for (flag, says) in [(IFlags::IMMUTABLE, "immutable"), (IFlags::APPEND, "append-only")] {
        for (kind, name) in COMMANDS {
            let output = disk.path().join(name);
            if kind == "export" {
                // An earlier export: only such a one would be replaced.
                run(&mut agent(disk.path(), inputs.command(kind, &output))).expect(0);
            } else {
                fs::write(&output, PRECIOUS).unwrap();
            }
            let fixed = Fixed::make(output.clone(), flag).unwrap();
            let mut args = inputs.command(kind, &output);
            if kind == "record" {
                args.splice(args.len() - 1.., ["touch", "ran"].map(str::to_owned));
            }
            let ended = run(&mut agent(disk.path(), &args));
            assert_eq!(ended.code(), 114, "{kind}: {ended:?}");
            ended.says(&[name, says, "chattr"]);
            assert_eq!(
                files(disk.path()),
                [name],
                "{kind}: nothing is left behind, and the command did not run"
            );
            drop(fixed);
            if kind == "export" {
                fs::remove_dir_all(&output).unwrap();
            } else {
                assert_eq!(fs::read_to_string(&output).unwrap(), PRECIOUS);
                fs::remove_file(&output).unwrap();
            }
        }
        // Nor can anything be renamed in such a directory, though an append-only one takes new files.
        let dir = disk.path().join("dir");
        fs::create_dir(&dir).unwrap();
        let fixed = Fixed::make(dir.clone(), flag).unwrap();
        for (kind, name) in COMMANDS {
            inputs.run(kind, &dir.join(name)).expect(114).says(&["dir", says, "chattr"]);
        }
        drop(fixed);
        assert_eq!(files(&dir), [""; 0]);
        fs::remove_dir(&dir).unwrap();
    }
    // Where only its owner may replace a file, another user learns so at once.
    let places = Places::make();
    fs::write(places.sticky("out.dat"), PRECIOUS).unwrap();
    let id = NOBODY.to_string();
    let copy = places.dir.path().join("agent");
    fs::copy(integration_tests::harness::agent_path(), &copy).unwrap();
    let input = places.dir.path().join("in.dat");
    fs::copy(inputs.path("in.dat"), &input).unwrap();
    fs::set_permissions(&input, fs::Permissions::from_mode(0o644)).unwrap();
    let as_nobody = ["--reuid", &id, "--regid", &id, "--clear-groups"];
    let mut command = program(places.dir.path(), "setpriv", as_nobody);
    command.arg(&copy).arg("convert").arg(&input).arg("-o").arg(places.sticky("out.dat"));
    run(&mut command).expect(114).says(&["out.dat", "belongs to user 0", "sticky"]);
    assert_eq!(fs::read_to_string(places.sticky("out.dat")).unwrap(), PRECIOUS);
}

/// Records calls on a small disk until it is full; returns how many are in the file.
fn recorded_until_full(options: &[&str]) -> (usize, Ended) {
    let disk = Tmpfs::mount("size=8m");
    let mut caller = Caller::start();
    let pid = caller.pid().to_string();
    // Uncompressed, so that the disk is full soon.
    let args = ["record", "-e", "raw_syscalls:sys_enter", "--compression", "none", "-P", &pid];
    let mut command = agent(disk.path(), args);
    let mut recording = Running::start(command.args(options));
    wait_for("a full disk", || {
        caller.call(20_000);
        recording.has_ended().then_some(())
    });
    let ended = recording.wait().expect(113).says(&["No space left", "trace.dat contains everything"]);
    assert_eq!(files(disk.path()), ["trace.dat"], "{ended:?}");
    let found = Report::of(&disk.path().join("trace.dat")).count(is_getppid);
    (found as usize, ended)
}

#[test]
fn symbols_leave_a_small_disk_to_the_events() {
    let (without, _) = recorded_until_full(&["--kallsyms", "none"]);
    let (with, ended) = recorded_until_full(&["--kallsyms", "full"]);
    assert!(without > 50_000, "{without}");
    assert!(with > without / 10 * 8, "{with} with symbols, {without} without: {}", ended.err);
    // Where there is room, they are in the file.
    let disk = Tmpfs::mount("size=24m");
    let record = ["record", "-e", "sched:sched_switch", "--kallsyms", "full", "true"];
    let ended = run(&mut agent(disk.path(), record)).expect(0);
    let shown =
        run(&mut program(disk.path(), "trace-cmd", ["dump", "--kallsyms", "-i", "trace.dat"])).expect(0);
    assert!(shown.out.lines().count() > 10_000, "{ended:?}");
}
