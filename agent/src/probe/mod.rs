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
mod insn;
mod kernel_layout;
mod load;
pub mod mappings;
mod object;
mod parts;
pub mod plan;
mod program;
pub mod scope;
pub mod shape;
mod simplify;
mod survey;
mod sys;
pub mod tasks;
pub mod tracepoint;
pub mod typed;

pub use kernel_layout::{AnyLoad, KernelLayout, PreemptCountPath};
pub use load::LoadError;
pub use object::{NameStream, ProbeToAttach, ProgramOptions, Programs, RecursionMisses, WakeStream};
pub use survey::{Outcome, Surveyed, survey};

/// Why a hook could not be used.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// The programs could not be loaded.
    #[error(transparent)]
    Load(LoadError),
    /// The kernel refused to attach.
    #[error(transparent)]
    Attach(#[from] tracepoint::AttachError),
    /// The kernel lacks a kind of hook.
    #[error(transparent)]
    Hook(#[from] hook::NoSuchHook),
}
