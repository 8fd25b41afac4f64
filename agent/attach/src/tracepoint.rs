//! Attaching the generic lane: one program on any tracepoint event.

use std::{
    collections::BTreeMap,
    io,
    os::fd::{AsFd as _, OwnedFd},
};

use agent_ebpf::EventSlot;

use super::{AttachError, Attachment, ProbeError, detach::close_in_background, programs::Programs};
use bpf::load::{LoadError, Object, ToLoad, verify};
use bpf::sys;
use compile::filter;
use compile::generic::{ANY, GenericProgram, cookie};

/// The perf event that a program is attached to, or why there is none.
pub type Carrier = io::Result<OwnedFd>;

/// Perf events by slots, that no program is attached to yet. To close one takes long: those that are left
/// when it is dropped are closed in the background.
#[derive(Debug, Default)]
pub struct Carriers(BTreeMap<usize, Carrier>);

impl Carriers {
    /// Opens those of these events, which is most of what attaching takes.
    pub fn open(events: &[(usize, EventSlot)]) -> Self {
        Self(events.iter().map(|(index, plan)| (*index, sys::open_tracepoint(plan.id))).collect())
    }

    /// Takes out the one of a slot.
    pub fn take(&mut self, slot: usize) -> Option<Carrier> {
        self.0.remove(&slot)
    }
}

impl Drop for Carriers {
    fn drop(&mut self) {
        // If there can be no child, they are closed here.
        let _ = close_in_background(std::mem::take(&mut self.0).into_values().flatten().collect());
    }
}

/// Ties a program of the generic lane to the event of `plan`, by its perf event or by one that is opened
/// here; it records under the slot `index` from the moment its CPU's gate is open. Dropping it detaches,
/// which takes the kernel tens of milliseconds: see [`super::detach`].
pub fn attach(
    programs: &mut Programs,
    event: &str,
    plan: &EventSlot,
    filter: Option<&filter::Program>,
    (index, carrier): (u32, Option<Carrier>),
) -> Result<Attachment, ProbeError> {
    let program = GenericProgram::of(plan, filter.map(|filter| filter.code.as_slice()));
    let fail = |step| move |source| AttachError { event: event.to_owned(), step, advice: "", source };
    let carrier =
        carrier.unwrap_or_else(|| sys::open_tracepoint(plan.id)).map_err(fail("perf_event_open"))?;
    let mut link = |program: &GenericProgram| -> Result<_, ProbeError> {
        let fd = programs.generic(program)?;
        Ok(sys::link_perf_event(fd, carrier.as_fd(), cookie(index, plan.id)))
    };
    let mut linked = link(&program)?;
    // To the kernel an event ends with the field that was defined last, whatever is after it.
    if let Err(error) = &linked
        && error.kind() == io::ErrorKind::PermissionDenied
        && let Some(any) = program.without_shape()
    {
        linked = link(&any)?;
    }
    let link = linked.map_err(fail("BPF_LINK_CREATE"))?;
    Ok(Attachment { link, carrier: Some(carrier) })
}

/// Gives a program to the verifier.
pub(super) fn load(program: &GenericProgram, object: &Object) -> Result<OwnedFd, LoadError> {
    let filter = program.filter();
    let Some(body) = program.body()? else {
        return object.load(ToLoad { filter, ..ToLoad::plain(ANY) });
    };
    let code = body.link(&[], object.parts())?;
    let name = program.name();
    verify(&code.program(sys::ProgramKind::Tracepoint, &name))
        .map_err(|refused| refused.of_program(ANY, filter.is_some()))
}
