//! The socket: one that systemd hands over, or our own.

use std::{
    io,
    os::{
        fd::{FromRawFd as _, OwnedFd},
        unix::{
            fs::{DirBuilderExt as _, FileTypeExt as _, MetadataExt as _, PermissionsExt as _},
            net::{UnixListener, UnixStream},
        },
    },
    path::{Path, PathBuf},
};

use super::user::Group;

/// The first descriptor that systemd passes (`SD_LISTEN_FDS_START`, sd_listen_fds(3)).
const FIRST_PASSED: i32 = 3;

/// A socket that connections come to.
#[derive(Debug)]
pub(super) struct Listener {
    pub(super) socket: UnixListener,
    /// What is removed at the end: nothing of systemd's.
    own: Option<PathBuf>,
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Some(path) = &self.own {
            // Somebody else may have removed it.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// What systemd passes: the socket, and what it has stored for the daemon before.
#[derive(Debug, Default)]
pub(super) struct Passed {
    pub(super) listener: Option<Listener>,
    /// With the names that it was stored under.
    pub(super) stored: Vec<(String, OwnedFd)>,
}

impl Passed {
    /// What the environment says that there is; `is_stored` of a name under which something was stored.
    ///
    /// # Errors
    /// There are several sockets, or one that does not listen.
    pub(super) fn of_environment(is_stored: impl Fn(&str) -> bool) -> io::Result<Self> {
        let number = |name: &str| std::env::var(name).ok().and_then(|value| value.parse::<i32>().ok());
        let mut passed = Self::default();
        if number("LISTEN_PID").and_then(|pid| u32::try_from(pid).ok()) != Some(std::process::id()) {
            return Ok(passed);
        }
        let names = std::env::var("LISTEN_FDNAMES").unwrap_or_default();
        let mut names = names.split(':');
        for offset in 0..number("LISTEN_FDS").unwrap_or(0) {
            // SAFETY: systemd passes this descriptor to this process (LISTEN_PID says so), and nobody else
            // here takes it: the daemon's start calls this once.
            let fd = unsafe { OwnedFd::from_raw_fd(FIRST_PASSED + offset) };
            rustix::io::fcntl_setfd(&fd, rustix::io::FdFlags::CLOEXEC)?;
            let name = names.next().unwrap_or_default();
            if is_stored(name) {
                passed.stored.push((name.to_owned(), fd));
                continue;
            }
            if !rustix::net::sockopt::socket_acceptconn(&fd)? {
                return Err(io::Error::other("what systemd passes is no socket that listens"));
            }
            let listener = Listener { socket: UnixListener::from(fd), own: None };
            if passed.listener.replace(listener).is_some() {
                return Err(io::Error::other("systemd passes more than one socket"));
            }
        }
        Ok(passed)
    }
}

impl Listener {
    /// A socket of our own at a path, for root and the group.
    ///
    /// # Errors
    /// A daemon listens there already, something else has the name, or other users could exchange what is in
    /// the directory.
    pub(super) fn bind(path: &Path, group: Option<&Group>) -> io::Result<Self> {
        let dir = path.parent().ok_or_else(|| io::Error::other("a socket needs a directory"))?;
        // A name alone is one in the working directory.
        let dir = if dir.as_os_str().is_empty() { Path::new(".") } else { dir };
        let made = std::fs::DirBuilder::new().mode(0o755).recursive(true).create(dir);
        made.map_err(|error| with_path(dir, "create", &error))?;
        check_directory(dir)?;
        remove_dead(path)?;
        let socket = UnixListener::bind(path).map_err(|error| with_path(path, "listen on", &error))?;
        let own = Some(path.to_owned());
        let listener = Self { socket, own };
        std::os::unix::fs::chown(path, None, group.map(|group| group.gid))?;
        let mode = if group.is_some() { 0o660 } else { 0o600 };
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))?;
        Ok(listener)
    }
}

/// Only root may exchange what is in the directory.
fn check_directory(dir: &Path) -> io::Result<()> {
    let there = std::fs::metadata(dir).map_err(|error| with_path(dir, "look at", &error))?;
    let own = rustix::process::geteuid().as_raw();
    if there.uid() != own && there.uid() != 0 || there.mode() & 0o022 != 0 && there.mode() & 0o1000 == 0 {
        return Err(io::Error::other(format!(
            "{}: other users can change this directory; choose another --socket",
            dir.display()
        )));
    }
    Ok(())
}

/// Removes the socket of a daemon that was killed.
fn remove_dead(path: &Path) -> io::Result<()> {
    match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(with_path(path, "look at", &error)),
        Ok(there) if !there.file_type().is_socket() => {
            Err(io::Error::other(format!("{}: this is no socket", path.display())))
        }
        Ok(_) => match UnixStream::connect(path) {
            Ok(_) => Err(io::Error::new(
                io::ErrorKind::AddrInUse,
                format!("{}: a session daemon listens there already", path.display()),
            )),
            Err(_) => std::fs::remove_file(path).map_err(|error| with_path(path, "remove", &error)),
        },
    }
}

fn with_path(path: &Path, action: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("cannot {action} {}: {error}", path.display()))
}
