//! What a program is compiled with beside its description: the rules of its kind, how the kernel's memory is
//! read, filters and contexts, and the kernel's types by name.

use std::{cell::RefCell, collections::HashMap, sync::Arc};

use agent_ebpf::SIDE_RECORD_MAX;

use super::FAST_MAX;
use crate::aggregate::Counter;
use crate::context::ContextLayout;
use crate::fast::memory::{KernelMemory, MemoryError};
use crate::fast::modules::ModuleError;
use crate::filter;
use bpf::preemption::Preemption;
use ftrace_event::Format;
use kernel::btf::{Btf, BtfError, Shape, TypeId};
use kernel::version::KernelVersion;

/// What programs of different kinds do differently.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    /// The longest record.
    pub(super) record_max: u32,
    pub(super) preemption: Preemption,
    /// Whether the upper halves of arguments may hold anything: those of functions are registers as they are,
    /// those of tracepoints are zero extended.
    pub(super) raw_arguments: bool,
    /// Whether a text that does not fit is cut, and that counted, instead of the record's being lost.
    pub(super) cuts: bool,
    /// What stands for a text that cannot be read.
    pub(super) absent: &'static [u8; 8],
}

impl Rules {
    /// Those of the fast lane, whose records are the kernel's own: `__assign_str` writes `(null)` for a null
    /// pointer.
    pub(in super::super) const FAST: Self = Self {
        record_max: FAST_MAX,
        preemption: Preemption::Off,
        raw_arguments: false,
        cuts: false,
        absent: b"(null)\0\0",
    };

    /// Those of typed probes, whose records are like the kernel's probes': `(fault)`.
    pub(crate) fn typed(preemption: Preemption) -> Self {
        Self {
            record_max: SIDE_RECORD_MAX as u32 / 2,
            preemption,
            raw_arguments: true,
            cuts: true,
            absent: b"(fault)\0",
        }
    }

    /// The flags that `fast_begin` gets with the event's id.
    pub(super) fn begin_flags(self) -> u32 {
        // Tracepoints have the same as the fast lane's own rules say; only other hooks tell.
        if self.raw_arguments { self.preemption.begin_flags() } else { 0 }
    }
}

/// Why an event does not go through the fast lane.
#[derive(Debug, thiserror::Error)]
pub enum Mismatch {
    /// It has no description.
    #[error("it has none of the fast programs")]
    NotDescribed,
    /// The kernel's own types do not have its tracepoint, and the module's are not known.
    #[error(transparent)]
    Module(#[from] ModuleError),
    /// The tracepoint takes other arguments.
    #[error("its tracepoint has {found} arguments on this kernel, {expected} are described")]
    Arguments {
        /// In BTF.
        found: usize,
        /// In the description.
        expected: usize,
    },
    /// The record has a field that is not described.
    #[error("its field {0} is not described")]
    UnknownField(String),
    /// The description has a field that the record lacks.
    #[error("it has no field {0} on this kernel")]
    NoField(String),
    /// The kernel's memory does not have what the description needs, or cannot be read.
    #[error(transparent)]
    Memory(#[from] Arc<MemoryError>),
    /// A field is of another size or kind than its value.
    #[error("its field {0} does not have the described type on this kernel")]
    FieldType(String),
    /// A type or member is missing.
    #[error(transparent)]
    Btf(#[from] BtfError),
    /// The record is too long.
    #[error("its record can have {0} bytes, its program writes at most {1}")]
    TooLong(u32, u32),
    /// It has a filter or contexts, and its program is that of others.
    #[error("all system calls share their programs there, which have neither filters nor contexts")]
    SharedProgram,
    /// Its filter.
    #[error("its filter cannot be evaluated there: {0}")]
    Filter(#[from] filter::Uncompiled),
    /// The expression is not understood. A defect of the description for this kernel.
    #[error("its description does not fit: {0}")]
    Expression(&'static str),
}

/// From here on the verifier trusts pointer arguments, and has a function that takes the trust away.
const TRUSTED_SINCE: KernelVersion = KernelVersion::new(6, 2, 0);

/// How members are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// By loads that the verifier checks against the kernel's types, through pointers that were cast if it
    /// would trust them.
    Direct(Option<Cast>),
    /// By a helper.
    Copied,
}

/// How pointers are made ones that the verifier does not trust.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cast {
    /// The function of the kernel that does it (its number in BTF). It knows structures of the kernel's own
    /// types only.
    pub(crate) function: TypeId,
    /// What pointers to the structures of modules are cast to; only for events of modules.
    pub(crate) holder: Option<Holder>,
}

/// A structure of the kernel that begins with an array of bytes. The verifier lets programs load numbers of
/// any size at any place of such an array (`btf_struct_walk`, kernel/bpf/btf.c), so a pointer to the
/// structure stands for one to anything that is no larger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Holder {
    /// Its number in the kernel's own BTF.
    pub(crate) type_id: TypeId,
    /// Bytes of the array.
    pub(crate) len: u32,
}

impl Holder {
    /// `struct trace_seq`, whose buffer has a page or more (include/linux/trace_seq.h).
    fn find(base: &Btf) -> Option<Self> {
        let type_id = base.type_named("trace_seq").ok()?;
        let buffer = base.member_of(type_id, "buffer").ok().filter(|buffer| buffer.offset == 0)?;
        let Ok(Shape::Array { element, len }) = base.shape(buffer.type_id) else { return None };
        let is_bytes = matches!(base.shape(element), Ok(Shape::Int { size: 1, .. }));
        is_bytes.then_some(Self { type_id, len })
    }
}

impl Access {
    /// How the programs of this kernel, whose type information `btf` is, read members.
    pub(crate) fn of_kernel(btf: &Btf) -> Self {
        match btf.function("bpf_rdonly_cast") {
            Ok(function) => Self::Direct(Some(Cast { function, holder: None })),
            Err(_) if KernelVersion::running().is_some_and(|running| running < TRUSTED_SINCE) => {
                Self::Direct(None)
            }
            Err(_) => Self::Copied,
        }
    }

    /// The same for the events of modules; `base` is the kernel's own BTF.
    pub(in super::super) fn of_module(self, base: &Btf) -> Self {
        match self {
            Self::Direct(Some(cast)) => match Holder::find(base) {
                Some(holder) => Self::Direct(Some(Cast { holder: Some(holder), ..cast })),
                None => Self::Copied,
            },
            other => other,
        }
    }
}

/// A filter of an event's records.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked<'a> {
    /// The filter.
    pub(crate) program: &'a filter::Program,
    /// The fields that it looks at, as it finds them; `None` if they are where the record has them.
    pub(crate) apart: Option<&'a Format>,
}

/// What an event's program has beside its description.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extras<'a> {
    /// Which records are wanted.
    pub(crate) filter: Option<Asked<'a>>,
    /// What counts them; then none is recorded.
    pub(crate) counter: Option<&'a Counter>,
    /// Fields of the format that are not described.
    pub(crate) contexts: &'a ContextLayout,
}

/// The kernel's types by name. Looking for one in BTF takes a walk through all of them, and the same few are
/// asked for again and again.
#[derive(Debug)]
pub(crate) struct TypeNames {
    pub(in super::super) btf: Btf,
    known: RefCell<HashMap<String, Option<TypeId>>>,
    /// What else a description may need of this kernel.
    pub(super) memory: KernelMemory,
}

impl TypeNames {
    pub(crate) fn new(btf: &Btf) -> Self {
        Self { btf: btf.clone(), known: RefCell::default(), memory: KernelMemory::default() }
    }

    /// The number of a type, if there is one of that name.
    pub(super) fn find(&self, name: &str) -> Option<TypeId> {
        let mut known = self.known.borrow_mut();
        if let Some(found) = known.get(name) {
            return *found;
        }
        let found = self.btf.type_named(name).ok();
        known.insert(name.to_owned(), found);
        found
    }

    pub(super) fn named(&self, name: &str) -> Result<TypeId, BtfError> {
        self.find(name).ok_or_else(|| BtfError::NoType(name.to_owned()))
    }
}
