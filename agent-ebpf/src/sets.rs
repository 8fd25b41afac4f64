//! Sets of rings: where a channel's events of each user or process have rings of their own.
//!
//! A set has a ring of each CPU. Sets are made when the programs are loaded, and taken when the first event
//! of a user or process is recorded: its key is put into a free element of `OWNERS`, the first one from the
//! id, modulo the number of such elements, on. The last set belongs to nobody: what comes when all others
//! are taken goes there.
//!
//! The control block of a CPU in a set is element `set * rows + CPU id` of `CONTROL`.

/// Each user has a set: the real id, as the first user namespace calls it.
pub const BY_USER: u32 = 1;
/// Each process has a set.
pub const BY_PROCESS: u32 = 2;

/// Whose a set is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Owner {
    /// The id plus 1; 0 while it is nobody's.
    pub key: u64,
    /// When it was taken, by the recording's clock; 0 before that is written, which is after the name.
    pub since: u64,
    /// The name of the thread that took it.
    pub comm: [u8; crate::COMM_LEN],
}

const _: () = assert!(size_of::<Owner>() == 32);
