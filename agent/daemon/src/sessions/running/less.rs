//! What the thread of a session does less, to keep to a budget.

use super::{Answer, Running};
use api::{Code, ControlError};

/// What is done less, for a budget.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Less {
    /// The recording is suspended until it is told to go on.
    is_suspended: bool,
    /// What is stored is compressed with next to no effort.
    pub(super) hurries: bool,
}

impl Running {
    /// Records nothing until it is told to go on, unless it pauses anyway.
    pub(super) fn suspend(&mut self) -> Answer {
        let Some(session) = self.session.as_mut().filter(|session| !session.is_paused()) else {
            return Ok(());
        };
        session.suspend().map_err(|error| ControlError::new(Code::Daemon, error.to_string()))?;
        self.less.is_suspended = true;
        Ok(())
    }

    /// Goes on, if it was suspended.
    pub(super) fn end_suspension(&mut self) -> Answer {
        if !std::mem::take(&mut self.less.is_suspended) {
            return Ok(());
        }
        let Some(session) = &mut self.session else { return Ok(()) };
        let resumed = session.resume();
        // Who asked tries again.
        self.less.is_suspended = resumed.is_err();
        resumed.map_err(|error| ControlError::new(Code::StartKernel, error.to_string()))
    }

    /// The same for who does not wait for an answer to it.
    pub(super) fn go_on_or_tell(&mut self) {
        if let Err(error) = self.end_suspension() {
            self.listener.has_failed(&error.message);
        }
    }

    /// Whether what is stored is compressed with next to no effort from now on.
    pub(super) fn hurry(&mut self, hurries: bool) {
        self.less.hurries = hurries;
        self.session.iter().for_each(|session| session.hurry(hurries));
    }
}
