//! A channel while it is recorded: a ring of each CPU, and the programs that fill it.

use std::sync::Arc;

use super::{
    CaptureError, LeftOut,
    attaching::attach,
    options::{CaptureOptions, ChannelOptions},
};
use crate::{
    attach::{
        Attachment, Borders, Misses, Programs, SharedMaps, detach::detach_in_background, fast::FastLinks,
        hook::HookLinks,
    },
    bpf::LoadError,
    capture::needs::program_options,
    ring::Control,
};

/// A channel.
#[derive(Debug)]
pub(super) struct Channel {
    // The links come first: they are handed over before the programs are dropped.
    links: Links,
    pub(super) programs: Programs,
    /// What finds borders in its rings, once it was needed.
    borders: Option<Arc<Borders>>,
    /// What the kernel had kept from the programs when the archive began; nothing of the first one.
    misses: Misses,
}

/// The descriptors that keep programs attached. However a capture ends, they go to the background detacher:
/// closing them here would take seconds to minutes.
#[derive(Debug, Default)]
pub(super) struct Links {
    pub(super) events: Vec<Attachment>,
    pub(super) fast: FastLinks,
    pub(super) probes: HookLinks,
}

impl Drop for Links {
    fn drop(&mut self) {
        // Raw tracepoints are detached at once.
        self.fast = FastLinks::default();
        let mut attachments = self.probes.take_attachments();
        attachments.append(&mut self.events);
        // Without a child process the descriptors are closed right here, which only takes longer.
        let _ = detach_in_background(attachments);
    }
}

impl Channel {
    /// Creates the rings and loads the programs, with `maps` of a channel that has been loaded before.
    pub(super) fn load(
        options: &CaptureOptions,
        channel: &ChannelOptions,
        maps: Option<&SharedMaps>,
    ) -> Result<Self, CaptureError> {
        let programs = Programs::load(&program_options(options, channel)?, maps)?;
        let mut loaded = Self { links: Links::default(), programs, borders: None, misses: Misses::default() };
        if options.rotation.is_some() {
            // A kernel that refuses the program says so before anything is recorded.
            loaded.borders()?;
        }
        Ok(loaded)
    }

    /// Attaches its events and probes. Gives what the kernel refused and the recording can do without.
    pub(super) fn attach(
        &mut self,
        options: &mut ChannelOptions,
        attaching: &mut dyn FnMut(usize),
    ) -> Result<Vec<LeftOut>, CaptureError> {
        attach(&mut self.programs, &mut self.links, options, attaching)
    }

    /// The control blocks of these CPUs.
    pub(super) fn controls<'a>(&'a self, cpus: &[u32]) -> impl Iterator<Item = Control<'a>> {
        cpus.iter().filter_map(|&cpu| self.programs.rings.control(cpu))
    }

    /// What finds borders, which not every recording needs.
    pub(super) fn borders(&mut self) -> Result<Arc<Borders>, LoadError> {
        Ok(match &self.borders {
            Some(borders) => Arc::clone(borders),
            None => Arc::clone(self.borders.insert(Arc::new(self.programs.borders()?))),
        })
    }

    /// What the kernel has kept from the programs since they were attached.
    pub(super) fn all_misses(&self) -> Misses {
        self.programs.misses(&self.links.fast, &self.links.probes)
    }

    /// The same since the archive began.
    pub(super) fn misses(&self) -> Misses {
        self.all_misses().since(&self.misses)
    }

    /// What the kernel has kept from the programs before an archive, which begins when it has kept `until`.
    pub(super) fn misses_until(&mut self, until: Misses) -> Misses {
        let before = until.since(&self.misses);
        self.misses = until;
        before
    }

    /// Ends attaching; detaching continues in the background.
    pub(super) fn detach(&mut self) {
        drop(std::mem::take(&mut self.links));
    }
}
