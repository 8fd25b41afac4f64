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

impl Listener {
    /// The socket that systemd passes, if it does.
    ///
    /// # Errors
    /// There are several, or it is none that listens.
    pub(super) fn of_systemd() -> io::Result<Option<Self>> {
        let number = |name: &str| std::env::var(name).ok().and_then(|value| value.parse::<u32>().ok());
        if number("LISTEN_PID") != Some(std::process::id()) {
            return Ok(None);
        }
        match number("LISTEN_FDS") {
            None | Some(0) => return Ok(None),
            Some(1) => {}
            Some(_) => return Err(io::Error::other("systemd passes more than one socket")),
        }
        // SAFETY: systemd passes this descriptor to this process (LISTEN_PID says so), and nobody else here
        // takes it: the daemon's start calls this once.
        let fd = unsafe { OwnedFd::from_raw_fd(FIRST_PASSED) };
        rustix::io::fcntl_setfd(&fd, rustix::io::FdFlags::CLOEXEC)?;
        if !rustix::net::sockopt::socket_acceptconn(&fd)? {
            return Err(io::Error::other("what systemd passes is no socket that listens"));
        }
        Ok(Some(Self { socket: UnixListener::from(fd), own: None }))
    }

    /// A socket of our own at a path, for root and the group.
    ///
    /// # Errors
    /// A daemon listens there already, something else has the name, or other users could exchange what is in
    /// the directory.
    pub(super) fn bind(path: &Path, group: Option<&Group>) -> io::Result<Self> {
        let dir = path.parent().ok_or_else(|| io::Error::other("a socket needs a directory"))?;
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
