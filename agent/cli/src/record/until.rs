//! What ends a recording whatever it is of: signals, its command, the processes of -P.

use std::{
    os::fd::{BorrowedFd, OwnedFd},
    path::Path,
    process::Child,
    time::Duration,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{Pid, PidfdFlags, kill_process, pidfd_open},
};

use super::{
    super::{
        CliError,
        command::{Inherit, Waiting},
        exit::{ExitCode, of_command},
        signals::{Asked, Signals},
    },
    RecordArgs,
};
use spec::RecordingSpec;

/// What ended the recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The command, with this exit code.
    Command(u8),
    /// A signal, the duration, an event, or the processes of -P.
    Asked,
    /// Recording could not go on.
    Failure,
    /// Nobody reads what is sent, or it cannot be written.
    Unsent,
}

/// The command while it runs.
#[derive(Debug)]
pub(crate) struct Running {
    child: Child,
    /// Becomes readable when it ends.
    ended: OwnedFd,
}

impl Running {
    /// Lets `open` open the gates, and starts the command when no event of it can be missed. `open` is given
    /// the command's first thread, if only the command's events are wanted.
    pub(crate) fn start(
        program: Option<&Path>,
        args: &RecordArgs,
        (spec, inherit): (&RecordingSpec, Inherit),
        open: impl FnOnce(Option<u32>),
    ) -> Result<Option<Self>, CliError> {
        let Some(program) = program else {
            open(None);
            return Ok(None);
        };
        let waiting = Waiting::create(program, &args.command, inherit)?;
        let ended = Pid::from_raw(waiting.pid().cast_signed())
            .ok_or(rustix::io::Errno::SRCH)
            .and_then(|pid| pidfd_open(pid, PidfdFlags::empty()))
            .map_err(|error| CliError::system("watch the command")(error.into()))?;
        open(spec.scope.only_command.then(|| waiting.pid()));
        Ok(Some(Self { child: waiting.start()?, ended }))
    }

    /// A terminal's Ctrl-C and Ctrl-\ reach the command too; a signal to the agent alone must be passed on.
    fn forward(&self, signal: i32) {
        if ![libc::SIGINT, libc::SIGQUIT].contains(&signal)
            && let Some(pid) = Pid::from_raw(self.child.id().cast_signed())
        {
            // It may have ended meanwhile.
            let _ = kill_process(pid, rustix::process::Signal::TERM);
        }
    }
}

/// What a recording goes on until.
#[derive(Debug)]
pub(crate) struct Until {
    signals: Signals,
    command: Option<Running>,
    /// The processes of -P, as pidfds.
    followed: Vec<OwnedFd>,
    waits_for_followed: bool,
}

impl Until {
    pub(crate) fn new(signals: Signals, command: Option<Running>, followed: Vec<OwnedFd>) -> Self {
        let waits_for_followed = !followed.is_empty() && command.is_none();
        Self { signals, command, followed, waits_for_followed }
    }

    /// Whether the end of the processes of -P ends it.
    pub(crate) fn waits_for_followed(&self) -> bool {
        self.waits_for_followed
    }

    /// Waits until one of them or of `others` has something to tell, for `timeout` at most. Says of each of
    /// the others whether it has.
    pub(crate) fn wait(
        &mut self,
        others: &[BorrowedFd<'_>],
        timeout: Option<Duration>,
    ) -> Result<Vec<bool>, CliError> {
        let of = |fd| PollFd::from_borrowed_fd(fd, PollFlags::IN);
        let mut fds: Vec<PollFd<'_>> = others.iter().copied().map(of).collect();
        fds.extend(self.followed.iter().map(|fd| PollFd::new(fd, PollFlags::IN)));
        fds.push(PollFd::new(&self.signals, PollFlags::IN));
        fds.extend(self.command.iter().map(|running| PollFd::new(&running.ended, PollFlags::IN)));
        let timeout =
            timeout.map(|t| Timespec { tv_sec: t.as_secs().cast_signed(), tv_nsec: t.subsec_nanos().into() });
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(CliError::system("wait for events")(error.into())),
        }
        let mut ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        drop(fds);
        let mut ended = ready.split_off(others.len()).into_iter();
        self.followed.retain(|_| ended.next() != Some(true));
        Ok(ready)
    }

    /// What a signal asks for, if one has come. The command is told of its end, too.
    pub(crate) fn asked(&self) -> Option<Asked> {
        let asked = self.signals.take();
        if let (Some(Asked::End(signal)), Some(running)) = (&asked, &self.command) {
            running.forward(*signal);
        }
        asked
    }

    /// Whether the command has ended, or all of the processes that are waited for.
    pub(crate) fn ended(&mut self) -> Result<Option<End>, CliError> {
        if let Some(running) = &mut self.command
            && let Some(status) =
                running.child.try_wait().map_err(CliError::system("wait for the command"))?
        {
            return Ok(Some(End::Command(of_command(status))));
        }
        Ok((self.waits_for_followed && self.followed.is_empty()).then_some(End::Asked))
    }

    /// The signals and the command, once it has ended.
    pub(crate) fn into_parts(self) -> (Signals, Option<Child>) {
        (self.signals, self.command.map(|running| running.child))
    }
}

/// The exit code after this end, if nothing else decides it.
pub(crate) fn exit_code(end: End, child: Option<Child>) -> u8 {
    let command = match (end, child) {
        (End::Command(code), _) => Some(code),
        // Asked to stop while the command runs: it goes on without us, unless it ended with us.
        (_, Some(mut child)) => child.try_wait().ok().flatten().map(of_command),
        _ => None,
    };
    command.unwrap_or(ExitCode::Ok.code())
}
