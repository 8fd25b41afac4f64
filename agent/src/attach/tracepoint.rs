//! Attaching the generic lane: one program on any tracepoint event.

use std::{
    io,
    os::fd::{AsFd as _, OwnedFd},
};

use agent_ebpf::EventSlot;

use super::{AttachError, Attachment, ProbeError, programs::Programs};
use crate::{
    bpf::{
        load::{LoadError, Object, ToLoad, verify},
        program::{LICENSE, Subprograms},
        sys,
    },
    compile::{
        filter,
        generic::{ANY, GenericProgram, cookie},
    },
};

/// Ties a program of the generic lane to the event of `plan`; it records under the slot `index` from the
/// moment its CPU's gate is open. Dropping it detaches, which takes the kernel tens of milliseconds: see
/// [`super::detach`].
pub fn attach(
    programs: &mut Programs,
    event: &str,
    plan: &EventSlot,
    filter: Option<&filter::Program>,
    index: u32,
) -> Result<Attachment, ProbeError> {
    let program = GenericProgram::of(plan, filter.map(|filter| filter.code.as_slice()));
    let fail = |step| move |source| AttachError { event: event.to_owned(), step, advice: "", source };
    let carrier = sys::open_tracepoint(plan.id).map_err(fail("perf_event_open"))?;
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
    let to_load = sys::Program {
        kind: sys::ProgramKind::Tracepoint,
        name: &program.name(),
        license: LICENSE,
        instructions: &body.link(&[], &Subprograms::of_object(object)?)?,
        expected_attach: 0,
        attach_btf_id: 0,
        sleepable: false,
    };
    verify(&to_load).map_err(|refused| refused.of_program(ANY, filter.is_some()))
}
