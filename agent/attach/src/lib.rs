//! Loads and attaches a recording's programs, and reads the rings that they fill.
//!
//! **Data flow:** down: plans of [`compile`] → [`Programs`] (maps, loaded programs) → links. Up: pages of a
//! ring ([`ring::CpuRing`]) → [`ring::Claim`] → the caller stores them → the claim is committed, and programs
//! may reuse the pages.
//!
//! **Guarantees**
//!
//! - No page is reused before its claim is committed.
//! - All memory that programs and agent share is accessed here, through atomics and volatile reads.
//! - Detaching blocks nobody ([`detach`]).
//!
//! **Must not know:** files, sessions, specifications' planning. This is the only crate that embeds the eBPF
//! object, so that no other crate waits for its build.
//!
//! # Example
//!
//! Which programs does this kernel accept?
//!
//! ```no_run
//! use attach::Outcome;
//! use kernel::btf::Btf;
//! use kernel::tracefs::Tracefs;
//!
//! for program in attach::survey(&Tracefs::open()?, &Btf::of_kernel()?)? {
//!     if let Outcome::Refused { reason, .. } = program.outcome {
//!         println!("{}: {reason}", program.name);
//!     }
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Modules
//!
//! | module | content |
//! |---|---|
//! | [`Programs`] | the programs of a channel: loaded, attached, enabled |
//! | `object` | constants and maps of the eBPF object for a channel |
//! | [`ring`] | shared memory: control blocks, counts, pages |
//! | `misses` | events that the kernel kept from programs |
//! | `kernel_layout` | offsets in this kernel's structures |
//! | [`tracepoint`] | attaching the generic lane |
//! | [`fast`] | attaching the fast lane |
//! | [`hook`] | attaching the programs of probes |
//! | [`tasks`] | programs that note thread names and follow processes |
//! | `switch` | closing open pages |
//! | `border` | the borders of archives in the rings |
//! | [`detach`] | detaching in the background |
//! | [`mappings`] | perf's records of mapped code |
//! | `survey`, [`support`], [`trial`] | loading programs without attaching them |

mod border;
pub mod detach;
pub mod fast;
pub mod hook;
mod kernel_layout;
pub mod mappings;
mod misses;
mod object;
mod programs;
pub mod ring;
pub mod support;
mod survey;
mod switch;
pub mod tasks;
pub mod tracepoint;
pub mod trial;

use std::{io, os::fd::OwnedFd};

use serde::{Deserialize, Serialize};

pub use border::{Border, Borders};
pub use kernel_layout::{AnyLoad, IdLayout, KernelLayout, PreemptCountPath};
pub use misses::{Misses, RecursionMisses};
pub use object::{ProgramOptions, RingSets};
pub use programs::{ChannelMaps, PartState, ProbeToAttach, Programs, ProgramsState};
pub use survey::{Outcome, Surveyed, survey};
pub use switch::{Closed, PageSwitch};
pub use tasks::{TaskTracker, TasksState};

use bpf::LoadError;
pub use bpf::SharedMaps;
use compile::hook::NoSuchHook;
use stdx::handover::{Descriptors, Missing, Number};

/// A program on an event.
#[derive(Debug)]
pub struct Attachment {
    /// Ties the program to the event. Closing it stops the program; many can be closed at once.
    pub link: OwnedFd,
    /// The perf event that the link is made through. The kernel detaches from the tracepoint, slowly, when
    /// the last user of it closes; a link alone would keep it too, and then pay for that. Probes, which cost
    /// the traced code until they are gone, have none beside the link's own.
    pub carrier: Option<OwnedFd>,
}

/// An attachment on its way to another process: its link and its carrier.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct AttachmentState(Number, Option<Number>);

impl Attachment {
    /// Gives it away. The program goes on.
    pub fn hand_over(self, to: &mut Descriptors) -> AttachmentState {
        AttachmentState(to.put(self.link), self.carrier.map(|carrier| to.put(carrier)))
    }

    /// Takes one that another process has given away.
    ///
    /// # Errors
    /// A descriptor is missing.
    pub fn take_over(state: AttachmentState, from: &mut Descriptors) -> Result<Self, Missing> {
        let AttachmentState(link, carrier) = state;
        let link = from.take(link)?;
        Ok(Self { link, carrier: carrier.map(|carrier| from.take(carrier)).transpose()? })
    }
}

/// Programs with the names that they are counted under, on their way to another process.
#[derive(Debug, Default, Serialize, Deserialize)]
struct NamedState(Vec<(String, Number)>);

impl NamedState {
    fn of(programs: Vec<(String, OwnedFd)>, to: &mut Descriptors) -> Self {
        Self(programs.into_iter().map(|(name, program)| (name, to.put(program))).collect())
    }

    fn take(self, from: &mut Descriptors) -> Result<Vec<(String, OwnedFd)>, Missing> {
        let Self(programs) = self;
        programs.into_iter().map(|(name, program)| Ok((name, from.take(program)?))).collect()
    }
}

/// Why attaching failed.
#[derive(Debug, thiserror::Error)]
#[error("cannot attach to {event}: {step}: {source}{advice}")]
pub struct AttachError {
    /// `system:name`.
    pub event: String,
    /// The system call.
    pub step: &'static str,
    /// What the error may mean, and what to do.
    pub advice: &'static str,
    /// Its error.
    #[source]
    pub source: io::Error,
}

/// Why a hook could not be used.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// The programs could not be loaded.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// A program of the fast lane could not be used.
    #[error(transparent)]
    Fast(#[from] fast::FastError),
    /// The kernel refused to attach.
    #[error(transparent)]
    Attach(#[from] AttachError),
    /// The kernel lacks a kind of hook.
    #[error(transparent)]
    Hook(#[from] NoSuchHook),
}
