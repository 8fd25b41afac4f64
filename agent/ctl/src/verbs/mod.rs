//! The commands, a file for each group.

pub(super) mod activity;
pub(super) mod channel;
pub(super) mod context;
pub(super) mod create;
pub(super) mod destroy;
pub(super) mod domains;
pub(super) mod event;
pub(super) mod list;
pub(super) mod load;
pub(super) mod map;
pub(super) mod program;
pub(super) mod rotate;
pub(super) mod save;
pub(super) mod snapshot;
pub(super) mod track;
pub(super) mod trigger;
pub(super) mod view;

use clap::Args;

use super::at::{At, Done, Failure};

/// The session that an option names.
#[derive(Args, Debug, Default)]
pub struct InSession {
    /// Session [default: the current one]
    #[arg(short, long, value_name = "SESSION")]
    pub session: Option<String>,
}

/// The session that an argument names.
#[derive(Args, Debug, Default)]
pub struct OfSession {
    /// Session [default: the current one]
    #[arg(value_name = "SESSION")]
    pub session: Option<String>,
}

/// Names that are separated by commas.
fn several(names: &str) -> impl Iterator<Item = &str> {
    names.split(',').filter(|name| !name.is_empty())
}

/// Makes a session the current one.
fn set_current(at: &At, session: &str) -> Done {
    let home = at.home()?;
    home.set_current(session)
        .map_err(|error| Failure::new(format!("Cannot write {}: {error}", home.config().display())))
}

/// Forgets the current session if it is this one.
fn forget(at: &At, session: &str) -> Done {
    let Some(home) = &at.home else { return Ok(()) };
    if home.current().as_deref() != Some(session) {
        return Ok(());
    }
    home.forget_current()
        .map_err(|error| Failure::new(format!("Cannot remove {}: {error}", home.config().display())))
}
