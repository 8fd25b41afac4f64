//! A session: what it is to record, and the thread that records it.
//!
//! | file | subject |
//! |---|---|
//! | `admission` | whether this machine has what new rules name |
//! | `model` | its description, and which changes of it are allowed |
//! | `configured` | those that the daemon's configuration says |
//! | `defaults` | what channels are like where nothing is said |
//! | `expand` | which events its rules mean on this kernel |
//! | `pattern` | the patterns of its rules |
//! | `programs` | the markers of programs that run |
//! | `finder` | what is known of them, between the thread that looks and others |
//! | `spec` | the recording that is made of it |
//! | `recorder` | the thread that records, for those who ask it |
//! | `running` | what that thread does |
//! | `tally` | what a session has counted in its recordings |

mod admission;
mod configured;
mod defaults;
mod expand;
mod finder;
mod model;
mod pattern;
mod programs;
mod recorder;
mod running;
pub(super) mod spec;
mod tally;

pub(super) use admission::Admission;
pub(super) use expand::{Key, Selections, World, rules_of};
pub(super) use finder::{Finder, KnownPrograms, Wanted};
pub(super) use model::{
    Model, check_location, check_name, check_network, check_path, check_probe_name, check_rule_of,
    check_snapshot_name,
};
#[cfg(any(test, fuzzing))]
pub(super) use programs::Program;
pub(super) use programs::Programs;
pub(super) use recorder::{
    Added, Halt, Handed, HandedRunning, Listener, NextRecording, Recorder, Sample, SnapshotTo, Stored, Whose,
};
pub(super) use spec::ring_sets;
pub(super) use tally::{Moment, Tally};
