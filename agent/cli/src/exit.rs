//! The exit codes, all in one place.
//!
//! `record COMMAND` ends with the command's own status when the recording itself is fine, so the codes of the
//! recorder stay away from those that shells and commands use: 126, 127 and 128 plus a signal have the
//! meaning that every shell gives them, and the recorder's own begin at 110.

use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;

/// How the program ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ExitCode {
    /// Everything that was asked for was done.
    Ok = 0,
    /// Something went wrong that has no code of its own; the message says what.
    Failure = 1,
    /// The command line is wrong. Nothing was done.
    Usage = 2,
    /// This user may not do it: privileges, capabilities, lockdown, seccomp, as `tracer-agent doctor` shows;
    /// or the file may not be read.
    NotPermitted = 110,
    /// This kernel or machine cannot do it: too old, no eBPF, no tracefs. `tracer-agent doctor` says what is
    /// missing.
    Unsupported = 111,
    /// An event that was asked for does not exist, or cannot be recorded.
    NoSuchEvent = 112,
    /// The disk became full, or a file as large as `ulimit -f` allows. What was recorded until then is in the
    /// file, or in the spool.
    DiskFull = 113,
    /// The output cannot be written: the directory does not exist, or is not writable, or a file is in the
    /// way.
    OutputNotWritable = 114,
    /// More events were lost than `record --max-loss` allows. The file is complete otherwise.
    TooMuchLost = 115,
    /// A second signal came while the file was being finished. `tracer-agent recover` finishes it.
    Interrupted = 116,
    /// The daemon has ended for the next one to go on with its sessions: its supervisor starts that one.
    HandedOver = 117,
    /// The command to record was found and cannot be run.
    CommandNotExecutable = 126,
    /// The command to record was not found.
    CommandNotFound = 127,
}

impl ExitCode {
    /// Every code, ascending.
    pub const ALL: [Self; 13] = [
        Self::Ok,
        Self::Failure,
        Self::Usage,
        Self::NotPermitted,
        Self::Unsupported,
        Self::NoSuchEvent,
        Self::DiskFull,
        Self::OutputNotWritable,
        Self::TooMuchLost,
        Self::Interrupted,
        Self::HandedOver,
        Self::CommandNotExecutable,
        Self::CommandNotFound,
    ];

    /// The number that the parent process sees.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// That of a file that cannot be opened.
    pub(super) fn of_opening(error: &io::Error) -> Self {
        if error.kind() == io::ErrorKind::PermissionDenied { Self::NotPermitted } else { Self::Failure }
    }

    /// What it means, for help texts and the manual.
    pub fn meaning(self) -> &'static str {
        match self {
            Self::Ok => "success",
            Self::Failure => "failure without a code of its own",
            Self::Usage => "the command line is wrong",
            Self::NotPermitted => "not permitted; the message or tracer-agent doctor shows the remedy",
            Self::Unsupported => "not supported by this kernel or machine; see tracer-agent doctor",
            Self::NoSuchEvent => "no such event, or one that cannot be recorded",
            Self::DiskFull => {
                "the disk is full, or the file size limit is reached (ulimit -f); what was recorded is kept"
            }
            Self::OutputNotWritable => "the output cannot be written",
            Self::TooMuchLost => "more events were lost than --max-loss allows; the file is complete",
            Self::Interrupted => "interrupted by a second signal; tracer-agent recover finishes the file",
            Self::HandedOver => "the daemon has handed its sessions over; the next one goes on with them",
            Self::CommandNotExecutable => "the command cannot be run",
            Self::CommandNotFound => "the command was not found",
        }
    }
}

impl From<ExitCode> for std::process::ExitCode {
    fn from(code: ExitCode) -> Self {
        Self::from(code.code())
    }
}

/// The status of a command that was recorded, passed on as a shell would: its own code, or 128 plus the
/// signal that ended it.
pub fn of_command(status: ExitStatus) -> u8 {
    match (status.code(), status.signal()) {
        (Some(code), _) => code as u8,
        (None, Some(signal)) => 128_u8.saturating_add(signal as u8),
        // wait(2) reports nothing else of a process that has ended.
        (None, None) => ExitCode::Failure.code(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_distinct_and_leave_the_shells_own_alone() {
        let codes: Vec<u8> = ExitCode::ALL.iter().map(|code| code.code()).collect();
        assert!(codes.is_sorted_by(|a, b| a < b));
        assert!(codes.iter().all(|&code| code < 128));
        assert_eq!(ExitCode::CommandNotExecutable.code(), 126);
        assert_eq!(ExitCode::CommandNotFound.code(), 127);
    }

    #[test]
    fn a_commands_status_is_passed_on() {
        assert_eq!(of_command(ExitStatus::from_raw(0)), 0);
        assert_eq!(of_command(ExitStatus::from_raw(7 << 8)), 7);
        assert_eq!(of_command(ExitStatus::from_raw(255 << 8)), 255);
        assert_eq!(of_command(ExitStatus::from_raw(9)), 137);
        assert_eq!(of_command(ExitStatus::from_raw(64)), 192);
    }
}
