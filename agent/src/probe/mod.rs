//! Attach points: how eBPF programs are tied to the kernel's hooks.
//!
//! aya-obj parses and relocates the object; loading and attaching are done here. One file per kind of attach
//! point.

pub mod context;
pub mod detach;
pub mod dynamic;
pub mod fast;
pub mod filter;
mod generic;
pub mod hook;
mod kernel_layout;
pub mod mappings;
mod object;
pub mod plan;
pub mod scope;
pub mod shape;
mod survey;
pub mod tasks;
pub mod tracepoint;
pub mod typed;

pub use kernel_layout::{AnyLoad, KernelLayout, PreemptCountPath};
pub use object::{NameStream, ProbeToAttach, ProgramOptions, Programs, RecursionMisses, WakeStream};
pub use survey::{Outcome, Surveyed, survey};

use crate::bpf::LoadError;

/// Why a hook could not be used.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// The programs could not be loaded.
    #[error(transparent)]
    Load(LoadError),
    /// A program of the fast lane could not be used.
    #[error(transparent)]
    Fast(#[from] fast::FastError),
    /// The kernel refused to attach.
    #[error(transparent)]
    Attach(#[from] tracepoint::AttachError),
    /// The kernel lacks a kind of hook.
    #[error(transparent)]
    Hook(#[from] hook::NoSuchHook),
}
