//! What the tests package, and where they install it.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    process::Command,
    sync::{Mutex, OnceLock},
};

use packaging::{Effort, Error, Release};
use tempfile::TempDir;

/// When everything was made.
const TIME: u64 = 1_764_000_000;

fn target_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target")
}

/// A version of the static program that other tests run. It is large, and what compresses it is not tested.
pub(crate) fn release(version: &str) -> Release {
    let built = || target_dir().join("x86_64-unknown-linux-musl/release/tracer-agent");
    let binary = std::env::var_os("TRACER_AGENT_BIN").map_or_else(built, PathBuf::from);
    assert!(binary.is_file(), "no {}: cargo xtask test builds it", binary.display());
    Release { binary: stripped(&binary), version: version.to_owned(), time: TIME, effort: Effort::Quick }
}

/// The program without its symbols, as `cargo xtask dist` has it.
fn stripped(binary: &Path) -> PathBuf {
    static STRIPPED: OnceLock<PathBuf> = OnceLock::new();
    let stripped = STRIPPED.get_or_init(|| {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("tracer-agent");
        output(Command::new("strip").arg("-o").args([path.as_path(), binary]));
        path
    });
    stripped.clone()
}

/// A program that has only a man page and completions.
const SMALL_PROGRAM: &str = r#"#!/bin/sh
case "$1" in
generate) echo .TH >"$3/tracer-agent.1" ;;
completions) echo "script of $2" ;;
esac
"#;

/// The same of a program that is packed in no time, where it does not matter what the program is.
pub(crate) fn small_release() -> Release {
    static MADE: OnceLock<PathBuf> = OnceLock::new();
    let binary = MADE.get_or_init(|| {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("small-program");
        // By another process: no file that this one has open for writing can be run.
        let script = "printf %s \"$1\" >\"$2\" && chmod 755 \"$2\"";
        output(Command::new("sh").args(["-c", script, "sh", SMALL_PROGRAM]).arg(&path));
        path
    });
    Release { binary: binary.clone(), version: "1.0.0".to_owned(), time: TIME, effort: Effort::Best }
}

/// What makes a package in a directory.
type Make = fn(&Release, &Path) -> Result<PathBuf, Error>;

/// A package of a version. Packing the program takes seconds, so each is made once.
pub(crate) fn package(version: &str, make: Make, kind: &str) -> PathBuf {
    static MADE: Mutex<BTreeMap<String, PathBuf>> = Mutex::new(BTreeMap::new());
    let mut made = MADE.lock().unwrap();
    let of_version = made.entry(format!("{kind} {version}")).or_insert_with(|| {
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR"));
        make(&release(version), dir).unwrap_or_else(|error| panic!("{error}"))
    });
    of_version.clone()
}

/// A directory for what is made, which another user of this machine can read.
pub(crate) fn directory() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    dir
}

/// What a program prints, which must end well.
#[track_caller]
pub(crate) fn output(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let [out, err] = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    assert!(output.status.success(), "{command:?}: {}\n{out}\n{err}", output.status);
    out
}

/// A system: Debian's essential packages and nothing else.
pub(crate) struct Root(TempDir);

impl Root {
    pub(crate) fn new() -> Self {
        let archive = target_dir().join("packages/debian.tar");
        assert!(archive.is_file(), "no {}: cargo xtask setup makes it", archive.display());
        let root = directory();
        output(Command::new("tar").arg("-xpf").arg(archive).arg("-C").arg(root.path()));
        Self(root)
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn join(&self, path: &str) -> PathBuf {
        self.path().join(path.trim_start_matches('/'))
    }

    pub(crate) fn read(&self, path: &str) -> String {
        let path = self.join(path);
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    pub(crate) fn has(&self, path: &str) -> bool {
        self.join(path).symlink_metadata().is_ok()
    }

    pub(crate) fn mode(&self, path: &str) -> u32 {
        self.join(path).symlink_metadata().unwrap().mode() & 0o7777
    }

    /// A program in it.
    pub(crate) fn command(&self, line: &[&str]) -> Command {
        let mut chroot = Command::new("chroot");
        chroot.arg(self.path()).args(line).env_clear().env("DEBIAN_FRONTEND", "noninteractive");
        chroot.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").env("LC_ALL", "C.UTF-8");
        chroot
    }

    /// What a program in it prints, which must end well.
    #[track_caller]
    pub(crate) fn run(&self, line: &[&str]) -> String {
        output(&mut self.command(line))
    }

    /// Everything in it, with permissions and sizes of files.
    pub(crate) fn files(&self) -> BTreeMap<String, (u32, u64)> {
        let listing =
            output(Command::new("find").args([".", "-printf", "%P\\t%m\\t%y%s\\n"]).current_dir(self.path()));
        let entry = |line: &str| {
            let mut parts = line.split('\t');
            let (path, mode, size) = (parts.next()?, parts.next()?, parts.next()?);
            let size = size.strip_prefix('f').map_or(0, |size| size.parse().unwrap());
            Some((path.to_owned(), (u32::from_str_radix(mode, 8).unwrap(), size)))
        };
        listing.lines().filter_map(entry).collect()
    }

    /// systemd seems to run in it: what is said to `systemctl` is written down.
    pub(crate) fn with_systemd(self, is_active: bool) -> Self {
        fs::create_dir_all(self.join("run/systemd/system")).unwrap();
        let answer = if is_active { "exit 0" } else { "exit 3" };
        let script = format!(
            "#!/bin/sh\necho \"$*\" >>/run/asked\ncase \"$*\" in *is-active*) {answer};; *is-enabled*) exit 1;; esac\n"
        );
        let path = self.join("usr/bin/systemctl");
        fs::write(&path, script).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
        self
    }

    /// What `systemctl` was asked for since the last time.
    pub(crate) fn asked(&self) -> Vec<String> {
        let path = self.join("run/asked");
        let asked = fs::read_to_string(&path).unwrap_or_default();
        let _ = fs::remove_file(path);
        asked.lines().map(str::to_owned).collect()
    }
}

/// How an upgrade lets the running daemon go on as the new one.
pub(crate) const HAND_OVER: &str = "kill --kill-whom=main --signal=USR2 tracer-agent.service";

/// Fails unless the daemon's sessions go on.
#[track_caller]
pub(crate) fn assert_hands_over(asked: &[String]) {
    assert!(asked.iter().any(|line| line == HAND_OVER), "{asked:?}");
    for word in ["stop", "restart", "disable", "mask"] {
        assert!(!asked.iter().any(|line| line.split(' ').any(|of| of == word)), "{asked:?}");
    }
}
