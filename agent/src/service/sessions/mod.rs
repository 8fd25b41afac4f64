//! A session: what it is to record, and the thread that records it.
//!
//! | file | subject |
//! |---|---|
//! | `model` | its description, and which changes of it are allowed |
//! | `defaults` | what channels are like where nothing is said |
//! | `expand` | which events its rules mean on this kernel |
//! | `spec` | the recording that is made of it |
//! | `recorder` | the thread that records |

mod defaults;
mod expand;
mod model;
mod recorder;
pub(super) mod spec;

pub(super) use model::Model;
pub(super) use recorder::{Listener, Recorder, Stored};
