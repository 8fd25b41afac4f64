//! What actions of triggers do to sessions, and to other services.

use std::sync::Weak;

use super::{check::place_of, executor::Act, post::post};
use crate::registry::Registry;
use crate::user::Owner;
use api::requests::TakeSnapshot;
use api::trigger::{ActionKind, Firing, SnapshotTarget};
use api::{Code, ControlError};

/// Actions on the sessions of a daemon.
pub(crate) struct OnSessions(pub(crate) Weak<Registry>);

impl Act for OnSessions {
    fn act(&self, owner: &Owner, action: &ActionKind, firing: &Firing) -> Result<(), String> {
        // The daemon ends.
        let Some(registry) = self.0.upgrade() else { return Ok(()) };
        let uid = owner.uid;
        let done = match action {
            // It is counted that it is due.
            ActionKind::Notify | ActionKind::Count { .. } => Ok(()),
            ActionKind::StartSession { session } => registry.start(uid, session),
            ActionKind::StopSession { session } => registry.stop(uid, session).map(drop),
            ActionKind::RotateSession { session } => registry.rotate(uid, session).map(drop),
            ActionKind::SnapshotSession { session, output, window } => {
                let max_age_ms = window.max_age_ms();
                let mut wanted = TakeSnapshot { max_age_ms, ..TakeSnapshot::default() };
                if let Some(target) = output {
                    let SnapshotTarget { path: _, data_url: _, name, max_size } = target;
                    wanted.path = Some(place_of(target).map_err(|error| error.message)?);
                    (wanted.name, wanted.max_size) = (name.clone(), *max_size);
                }
                registry.snapshot(uid, session, &wanted).map(drop)
            }
            ActionKind::Post { socket } => return post(owner, socket, firing),
        };
        match done {
            Err(error) if !is_done_already(&error, action) => Err(error.message),
            _ => Ok(()),
        }
    }
}

/// What is so already is no failure, and a session that is not there is nothing to do (lttng-add-trigger(1)).
fn is_done_already(error: &ControlError, action: &ActionKind) -> bool {
    matches!(
        (error.code, action),
        (Code::NoSession, _)
            | (Code::AlreadyStarted, ActionKind::StartSession { .. })
            | (Code::AlreadyStopped, ActionKind::StopSession { .. })
            | (Code::RotationPending | Code::RotatedAfterStop, ActionKind::RotateSession { .. })
    )
}
