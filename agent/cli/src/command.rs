//! The recorded command: created first, started when everything is attached.

use std::{
    ffi::OsString,
    fs::File,
    io::{self, Read as _},
    os::{
        fd::{AsRawFd as _, OwnedFd},
        unix::process::CommandExt as _,
    },
    path::{Path, PathBuf},
    process::{Child, Command},
    thread::JoinHandle,
};

use rustix::pipe::{PipeFlags, pipe_with};

use super::dispositions;

/// Why the command did not run.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// No such program.
    #[error("command not found: {0}")]
    NotFound(String),
    /// It exists, but the kernel does not run it.
    #[error("cannot run {program}: {source}")]
    NotExecutable {
        /// The program.
        program: String,
        /// The kernel's reason.
        #[source]
        source: io::Error,
    },
    /// No process could be created for it.
    #[error("cannot create a process for the command: {0}")]
    Spawn(#[source] io::Error),
}

/// What the child must get back that the agent changed for itself.
#[derive(Clone, Copy)]
pub(super) struct Inherit {
    /// Signal mask.
    pub(super) mask: libc::sigset_t,
    /// Limit of open files.
    pub(super) open_files: libc::rlimit,
}

/// A process that waits before it becomes the command.
#[derive(Debug)]
pub(super) struct Waiting {
    pid: u32,
    go: OwnedFd,
    spawner: JoinHandle<io::Result<Child>>,
    program: String,
}

/// Finds `program` as the shell would, so that a typing error costs nothing.
pub(super) fn find(program: &OsString) -> Result<PathBuf, CommandError> {
    let name = || program.to_string_lossy().into_owned();
    let direct = Path::new(program);
    if direct.components().count() > 1 {
        return if direct.exists() { Ok(direct.to_owned()) } else { Err(CommandError::NotFound(name())) };
    }
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into());
    let candidates = std::env::split_paths(&path).map(|dir| dir.join(direct));
    let is_executable =
        |file: &PathBuf| file.is_file() && rustix::fs::access(file, rustix::fs::Access::EXEC_OK).is_ok();
    candidates.into_iter().find(is_executable).ok_or_else(|| CommandError::NotFound(name()))
}

impl Waiting {
    /// Creates the process. It waits until [`Waiting::start`], and ends without running anything if that
    /// never comes.
    pub(super) fn create(program: &Path, argv: &[OsString], inherit: Inherit) -> Result<Self, CommandError> {
        let pipe = || pipe_with(PipeFlags::CLOEXEC).map_err(|e| CommandError::Spawn(e.into()));
        let (pid_reader, pid_writer) = pipe()?;
        let (go_reader, go) = pipe()?;
        let mut command = Command::new(program);
        if let Some((name, arguments)) = argv.split_first() {
            command.arg0(name).args(arguments);
        }
        let (pid_fd, go_fd, go_writer_fd) = (pid_writer.as_raw_fd(), go_reader.as_raw_fd(), go.as_raw_fd());
        // SAFETY: the closure makes async-signal-safe calls only, on descriptors that are open across the
        // fork.
        unsafe {
            command.pre_exec(move || {
                let pid = libc::getpid().to_ne_bytes();
                // The child's own copy of the writing end would keep the pipe open if the agent died.
                libc::close(go_writer_fd);
                let mut byte = 0_u8;
                if libc::write(pid_fd, pid.as_ptr().cast(), pid.len()) != pid.len() as isize
                    || libc::read(go_fd, (&raw mut byte).cast(), 1) != 1
                {
                    return Err(io::Error::from_raw_os_error(libc::ECANCELED));
                }
                libc::setrlimit(libc::RLIMIT_NOFILE, &raw const inherit.open_files);
                libc::pthread_sigmask(libc::SIG_SETMASK, &raw const inherit.mask, std::ptr::null_mut());
                // Behind the standard library's own preparations, which set SIGPIPE to its default.
                dispositions::restore()
            });
        }
        // The standard library waits in spawn() until the program runs, so that call has a thread of its own.
        let spawner = std::thread::Builder::new()
            .name("spawner".into())
            .spawn(move || {
                let child = command.spawn();
                drop((pid_writer, go_reader));
                child
            })
            .map_err(CommandError::Spawn)?;
        let program = program.display().to_string();
        let mut pid = [0; 4];
        match File::from(pid_reader).read_exact(&mut pid) {
            Ok(()) => Ok(Self { pid: u32::from_ne_bytes(pid), go, spawner, program }),
            Err(no_process) => Err(match join(spawner) {
                Err(source) => CommandError::Spawn(source),
                Ok(_) => CommandError::Spawn(no_process),
            }),
        }
    }

    /// The process id, which the command keeps.
    pub(super) fn pid(&self) -> u32 {
        self.pid
    }

    /// Lets the process become the command.
    pub(super) fn start(self) -> Result<Child, CommandError> {
        let Self { go, spawner, program, .. } = self;
        // If the child is gone the join below says why.
        let _ = rustix::io::write(&go, &[1]);
        join(spawner).map_err(|source| match source.kind() {
            io::ErrorKind::NotFound => CommandError::NotFound(program),
            _ => CommandError::NotExecutable { program, source },
        })
    }
}

fn join(spawner: JoinHandle<io::Result<Child>>) -> io::Result<Child> {
    match spawner.join() {
        Ok(result) => result,
        Err(panic) => std::panic::resume_unwind(panic),
    }
}
