//! Names for the user stacks of a recording that goes on.

use std::collections::BTreeSet;

use super::{ADDRESSES_MAX, MAPPINGS, Processes, frames_of, resolve::Resolver, stack_id};
use crate::Manifest;
use stdx::output::libc_mode::OTHERS_WRITE;
use stdx::output::{Directory, own_user};

/// The frames that were seen, and their names.
#[derive(Debug)]
pub(crate) struct LiveSymbols {
    id: u16,
    known: BTreeSet<(u32, u64)>,
    /// Frames that have no names yet.
    new: BTreeSet<(u32, u64)>,
    resolver: Resolver,
    /// Bytes of the journal when it was read last.
    journal_len: i64,
}

impl LiveSymbols {
    /// `None` if the recording cannot have user stacks, or if it is not this user's: its journal says which
    /// files are opened for their names, and whoever wrote it would choose them.
    pub(crate) fn of(manifest: &Manifest, files: &Directory) -> Option<Self> {
        let status = files.status().ok()?;
        let is_ours = status.st_uid == own_user() && status.st_mode & OTHERS_WRITE == 0;
        let id = stack_id(manifest).filter(|_| is_ours)?;
        Some(Self {
            id,
            known: BTreeSet::new(),
            new: BTreeSet::new(),
            resolver: Resolver::default(),
            journal_len: 0,
        })
    }

    /// Notes the frames of a page's user stacks.
    pub(crate) fn note(&mut self, page: &[u8]) {
        let mut found = BTreeSet::new();
        frames_of(page, self.id, &mut found);
        let room = ADDRESSES_MAX.saturating_sub(self.known.len() + self.new.len());
        self.new.extend(found.into_iter().filter(|frame| !self.known.contains(frame)).take(room));
    }

    /// Whether there are frames that have no names yet.
    pub(crate) fn has_new(&self) -> bool {
        !self.new.is_empty()
    }

    /// Whether there are frames that are in no known mapping.
    pub(crate) fn has_unmapped(&self) -> bool {
        self.resolver.has_unmapped()
    }

    /// Names the new frames, by what processes have mapped so far, and those that were in no mapping if there
    /// are more now. `true` if there were any.
    pub(crate) fn resolve(&mut self, files: &Directory) -> bool {
        let len = files.look(MAPPINGS.as_ref()).ok().flatten().map_or(0, |there| there.st_size);
        let has_more = self.resolver.has_unmapped() && len != self.journal_len;
        if self.new.is_empty() && !has_more {
            return false;
        }
        self.journal_len = len;
        // Without the journal they are named by their addresses.
        let journal = files.read(MAPPINGS).unwrap_or_default();
        let new = std::mem::take(&mut self.new);
        self.known.extend(&new);
        self.resolver.add(&Processes::parse(&journal), new);
        true
    }

    /// Lines for the table of symbols.
    pub(crate) fn lines(&self) -> Vec<u8> {
        self.resolver.lines()
    }
}
