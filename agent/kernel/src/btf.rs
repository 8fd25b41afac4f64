//! The layout of the kernel's types, from the BTF it carries (`/sys/kernel/btf/vmlinux`,
//! `Documentation/bpf/btf.rst`).
//!
//! Programs written in Rust carry no relocations for the kernel's structures, so what they need is looked up
//! here at start and handed to them as constants: a few dozen members of a few structures. Hence this reader
//! keeps the blob as it is, plus one table with the offset of each type, and a lookup by name is a scan.
//! Building that table takes a millisecond for the 130 000 types of a kernel, each scan about as long;
//! parsing everything into maps would take a hundred times that.
//!
//! The BTF of a module goes on from the kernel's: the numbers of its types follow those of the kernel, the
//! offsets of its strings follow the kernel's strings, and its types refer to both ([`Btf::of_module`]).
//!
//! The blob may be damaged, or written by someone else: no count, offset or reference in it is trusted, and
//! chains of references have an end.

mod blob;
pub mod describe;
#[cfg(test)]
mod tests;

use std::{
    collections::HashMap,
    io,
    path::Path,
    sync::{Arc, OnceLock},
};

use self::blob::{Blob, Head, head_at, kind, kind_of, word_at};
use serde::{Deserialize, Serialize};

use super::read;

/// The kernel's own BTF.
pub const VMLINUX: &str = "/sys/kernel/btf/vmlinux";

/// How many typedefs, qualifiers or nested anonymous members are followed before the blob is taken for a
/// circle. The verifier's limit is 32 (`MAX_RESOLVE_DEPTH` in `kernel/bpf/btf.c`).
const MAX_DEPTH: usize = 32;
/// What the names of the types of tracepoints begin with (`include/trace/bpf_probe.h`).
const TRACEPOINT: &str = "btf_trace_";
/// How many members one lookup looks at: far more than the largest structure has.
const MAX_MEMBERS: usize = 1 << 20;

/// Why something cannot be read from BTF.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BtfError {
    /// The file could not be read. Kernels without `CONFIG_DEBUG_INFO_BTF` do not have it.
    #[error("cannot read {path}: {source}")]
    Read {
        /// Which file.
        path: String,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// The blob is not BTF, is of the other byte order, or is damaged.
    #[error("BTF is not understood at byte {at}: {what}")]
    Malformed {
        /// Where in the blob.
        at: usize,
        /// What is wrong there.
        what: &'static str,
    },
    /// There is no type of this name.
    #[error("this kernel has no type {0}")]
    NoType(String),
    /// There is no such member.
    #[error("{of} has no member {member} on this kernel")]
    NoMember {
        /// The type, or the path to the member, in which it was looked for.
        of: String,
        /// The member.
        member: String,
    },
    /// A path continues after something that has no members inside itself, such as a pointer.
    #[error("{0} is no structure that lies inside another, so nothing in it has an offset")]
    NotEmbedded(String),
    /// The member is a bit field, which has no byte offset.
    #[error("{0} is a bit field")]
    BitField(String),
    /// There is no such variable.
    #[error("this kernel has no variable {name} in {section}")]
    NoVariable {
        /// The section.
        section: String,
        /// The variable.
        name: String,
    },
}

/// The number of a type. 0 is `void`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TypeId(pub u32);

/// What sort of type something is, with typedefs and qualifiers taken off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Shape {
    /// `void`.
    Void,
    /// An integer, a boolean or a character.
    Int {
        /// Its size in bytes.
        size: u32,
        /// Whether it has a sign.
        signed: bool,
    },
    /// A pointer.
    Pointer,
    /// An array.
    Array {
        /// The type of its elements.
        element: TypeId,
        /// How many there are.
        len: u32,
    },
    /// A structure.
    Struct,
    /// A union.
    Union,
    /// An enumeration.
    Enum,
    /// Anything else.
    Other,
}

/// A member of a structure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Member {
    /// Where it is, in bytes from the start of the outermost structure.
    pub offset: u32,
    /// How many bytes it has.
    pub size: u32,
    /// Its type.
    pub type_id: TypeId,
}

/// A tracepoint as programs see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RawTracepoint {
    /// The number that a program is loaded for (`attach_btf_id`).
    pub id: TypeId,
    /// The types of its arguments.
    pub args: Vec<TypeId>,
}

/// A variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Variable {
    /// The number of the variable itself, as `BPF_PSEUDO_BTF_ID` takes it.
    pub id: TypeId,
    /// Where it is, in bytes from the start of its section. For `.data..percpu` that is the offset in each
    /// CPU's area, counted from `__per_cpu_start`.
    pub offset: u32,
    /// How many bytes it has.
    pub size: u32,
    /// Its type.
    pub type_id: TypeId,
}

/// A kernel's BTF, or a module's with the kernel's. Clones share the blobs.
///
/// Places in them are counted through: those of the own blob follow those of the base.
#[derive(Debug, Clone)]
pub struct Btf {
    /// What the own blob goes on from: the kernel's, if this is a module's.
    base: Option<Arc<Blob>>,
    own: Arc<Blob>,
    /// The own blob's tracepoints by name: whoever asks for one asks for many.
    tracepoints: OnceLock<HashMap<Box<str>, TypeId>>,
}

impl Btf {
    /// Reads the running kernel's BTF.
    pub fn of_kernel() -> Result<Self, BtfError> {
        Self::read(Path::new(VMLINUX))
    }

    /// Reads a file with raw BTF.
    pub fn read(path: &Path) -> Result<Self, BtfError> {
        let data =
            read::file(path).map_err(|source| BtfError::Read { path: path.display().to_string(), source })?;
        Self::parse(data)
    }

    /// Takes a blob of raw BTF in this machine's byte order.
    pub fn parse(data: Vec<u8>) -> Result<Self, BtfError> {
        Ok(Self { base: None, own: Arc::new(Blob::parse(data)?), tracepoints: OnceLock::new() })
    }

    /// Takes the blob of a module of the kernel whose own types `base` has.
    pub fn of_module(base: &Self, data: Vec<u8>) -> Result<Self, BtfError> {
        if base.base.is_some() {
            return Err(BtfError::Malformed { at: 0, what: "a module's types go on from another module's" });
        }
        let (base, own) = (Some(Arc::clone(&base.own)), Arc::new(Blob::parse(data)?));
        Ok(Self { base, own, tracepoints: OnceLock::new() })
    }

    /// Whether this is a module's.
    pub fn has_base(&self) -> bool {
        self.base.is_some()
    }

    /// Whether a type is the module's own, and not one of the kernel's.
    pub fn is_of_module(&self, type_id: TypeId) -> bool {
        self.base.is_some() && type_id.0 as usize > self.base_count()
    }

    /// The names of the tracepoints whose types the own blob has.
    pub fn own_tracepoints(&self) -> impl Iterator<Item = &str> {
        self.tracepoints().keys().map(|name| &**name)
    }

    /// How many types there are, `void` not counted.
    pub fn type_count(&self) -> usize {
        self.base_count() + self.own.types.len()
    }

    /// How many of them are the base's.
    fn base_count(&self) -> usize {
        self.base.as_ref().map_or(0, |base| base.types.len())
    }

    /// Whether there is a structure or union of this name.
    pub fn has_struct(&self, name: &str) -> bool {
        self.find(name, |kind| matches!(kind, kind::STRUCT | kind::UNION)).is_some()
    }

    /// Whether there is a function of this name: one that `fentry` programs can be attached to.
    pub fn has_function(&self, name: &str) -> bool {
        self.find(name, |kind| kind == kind::FUNC).is_some()
    }

    /// The number of the function of this name.
    pub fn function(&self, name: &str) -> Result<TypeId, BtfError> {
        self.find(name, |kind| kind == kind::FUNC).ok_or_else(|| BtfError::NoType(name.to_owned()))
    }

    /// The number of the structure, union, typedef, enumeration or integer of this name.
    pub fn type_named(&self, name: &str) -> Result<TypeId, BtfError> {
        let named = |kind| {
            matches!(
                kind,
                kind::STRUCT
                    | kind::UNION
                    | kind::TYPEDEF
                    | kind::ENUM
                    | kind::ENUM64
                    | kind::INT
                    | kind::FLOAT
            )
        };
        // A typedef of the same name as a structure is a different thing (typedef struct foo *foo);
        // structures win.
        self.find(name, |kind| matches!(kind, kind::STRUCT | kind::UNION))
            .or_else(|| self.find(name, named))
            .ok_or_else(|| BtfError::NoType(name.to_owned()))
    }

    /// The member that a path such as `task_struct.se.cfs_rq` names. The first part is a type; each further
    /// part is a member of the structure before it, or of an anonymous structure or union inside that.
    pub fn member(&self, path: &str) -> Result<Member, BtfError> {
        let mut parts = path.split('.');
        let first = parts.next().unwrap_or_default();
        let mut type_id = self.type_named(first)?;
        let mut offset = 0_u32;
        let mut walked = first.to_owned();
        for part in parts {
            let (outer, head) = self.resolve(type_id)?;
            if !head.is_some_and(|head| matches!(head.kind, kind::STRUCT | kind::UNION)) {
                return Err(BtfError::NotEmbedded(walked));
            }
            let missing = || BtfError::NoMember { of: walked.clone(), member: part.to_owned() };
            let mut budget = MAX_MEMBERS;
            let found = self.member_in(outer, part, 0, &mut budget)?.ok_or_else(missing)?;
            walked = format!("{walked}.{part}");
            if found.bit_size != 0 || found.bit_offset % 8 != 0 {
                return Err(BtfError::BitField(walked));
            }
            offset = offset
                .checked_add(found.bit_offset / 8)
                .ok_or(BtfError::Malformed { at: 0, what: "an offset is too large" })?;
            type_id = found.type_id;
        }
        Ok(Member { offset, size: self.size_of(type_id)?, type_id })
    }

    /// The member of a structure, or of an anonymous structure or union inside it.
    pub fn member_of(&self, outer: TypeId, name: &str) -> Result<Member, BtfError> {
        let (outer, head) = self.resolve(outer)?;
        let of = || self.type_name(outer).unwrap_or_default().to_owned();
        if !head.is_some_and(|head| matches!(head.kind, kind::STRUCT | kind::UNION)) {
            return Err(BtfError::NotEmbedded(format!("the owner of {name}")));
        }
        let mut budget = MAX_MEMBERS;
        let found = self.member_in(outer, name, 0, &mut budget)?;
        let found = found.ok_or_else(|| BtfError::NoMember { of: of(), member: name.to_owned() })?;
        if found.bit_size != 0 || found.bit_offset % 8 != 0 {
            return Err(BtfError::BitField(format!("{}.{name}", of())));
        }
        Ok(Member {
            offset: found.bit_offset / 8,
            size: self.size_of(found.type_id)?,
            type_id: found.type_id,
        })
    }

    /// A member that is a bit field, of a structure or of an anonymous one inside it; `None` if it is none.
    pub fn bit_field_of(&self, outer: TypeId, name: &str) -> Result<Option<BitField>, BtfError> {
        let (outer, head) = self.resolve(outer)?;
        if !head.is_some_and(|head| matches!(head.kind, kind::STRUCT | kind::UNION)) {
            return Ok(None);
        }
        let mut budget = MAX_MEMBERS;
        let Some(found) = self.member_in(outer, name, 0, &mut budget)? else { return Ok(None) };
        if found.bit_size == 0 {
            return Ok(None);
        }
        let signed = matches!(self.shape(found.type_id)?, Shape::Int { signed: true, .. });
        Ok(BitField::at(found.bit_offset, found.bit_size, signed))
    }

    /// The offset of [`Btf::member`].
    pub fn member_offset(&self, path: &str) -> Result<u32, BtfError> {
        Ok(self.member(path)?.offset)
    }

    /// How many bytes a type has.
    pub fn size_of(&self, type_id: TypeId) -> Result<u32, BtfError> {
        let mut type_id = type_id;
        let mut count = 1_u32;
        for _ in 0..MAX_DEPTH {
            let (_, head) = self.resolve(type_id)?;
            let Some(head) = head else { return Ok(0) };
            let size = match head.kind {
                kind::INT
                | kind::STRUCT
                | kind::UNION
                | kind::ENUM
                | kind::ENUM64
                | kind::FLOAT
                | kind::DATASEC => head.size_or_type,
                kind::PTR => size_of::<usize>() as u32,
                kind::ARRAY => {
                    let len = self.word(head.body + 8)?;
                    type_id = TypeId(self.word(head.body)?);
                    count = count
                        .checked_mul(len)
                        .ok_or_else(|| self.malformed(head, "an array is too large"))?;
                    continue;
                }
                _ => return Err(self.malformed(head, "something that has no size is asked for its size")),
            };
            return size.checked_mul(count).ok_or_else(|| self.malformed(head, "an array is too large"));
        }
        Err(BtfError::Malformed { at: 0, what: "arrays are nested too deep" })
    }

    /// What sort of type this is, behind its typedefs and qualifiers.
    pub fn shape(&self, type_id: TypeId) -> Result<Shape, BtfError> {
        let (_, head) = self.resolve(type_id)?;
        let Some(head) = head else { return Ok(Shape::Void) };
        Ok(match head.kind {
            kind::INT => {
                // Bits 24 to 27 of the word after the head are the encoding; the first of them is the sign.
                let signed = self.word(head.body)? & 1 << 24 != 0;
                Shape::Int { size: head.size_or_type, signed }
            }
            kind::PTR => Shape::Pointer,
            kind::ARRAY => {
                Shape::Array { element: TypeId(self.word(head.body)?), len: self.word(head.body + 8)? }
            }
            kind::STRUCT => Shape::Struct,
            kind::UNION => Shape::Union,
            kind::ENUM | kind::ENUM64 => Shape::Enum,
            _ => Shape::Other,
        })
    }

    /// The value of an enumerator of an enumeration, if it has one of this name.
    pub fn enumerator(&self, type_id: TypeId, name: &str) -> Result<Option<i64>, BtfError> {
        let (_, Some(head)) = self.resolve(type_id)? else { return Ok(None) };
        let entry = match head.kind {
            kind::ENUM => 8,
            kind::ENUM64 => 12,
            _ => return Ok(None),
        };
        for index in 0..head.vlen {
            let at = head.body + index * entry;
            if !self.string_is(self.word(at)?, name) {
                continue;
            }
            let low = self.word(at + 4)?;
            let high = if head.kind == kind::ENUM64 { Some(self.word(at + 8)?) } else { None };
            // The kind flag says that values have a sign.
            return Ok(Some(match high {
                Some(high) => (u64::from(high) << 32 | u64::from(low)).cast_signed(),
                None if head.kind_flag => low.cast_signed().into(),
                None => low.into(),
            }));
        }
        Ok(None)
    }

    /// What a pointer points to, behind the typedefs and qualifiers of both; nothing when the type is no
    /// pointer.
    pub fn pointer_target(&self, type_id: TypeId) -> Result<Option<TypeId>, BtfError> {
        match self.resolve(type_id)? {
            (_, Some(head)) if head.kind == kind::PTR => Ok(Some(self.resolve(TypeId(head.size_or_type))?.0)),
            _ => Ok(None),
        }
    }

    /// The name of a type, empty for anonymous ones and for those that have none, such as pointers.
    pub fn type_name(&self, type_id: TypeId) -> Result<&str, BtfError> {
        if type_id.0 == 0 {
            return Ok("void");
        }
        let head = self.head(type_id)?;
        std::str::from_utf8(self.string(head.name)).map_err(|_| self.malformed(head, "a name is not text"))
    }

    /// What a program on a tracepoint is called with: `typedef void (*btf_trace_NAME)(void *, ...)`, without
    /// the first parameter (`include/trace/bpf_probe.h`).
    pub fn raw_tracepoint(&self, tracepoint: &str) -> Result<RawTracepoint, BtfError> {
        let missing = || BtfError::NoType(format!("{TRACEPOINT}{tracepoint}"));
        let id = *self.tracepoints().get(tracepoint).ok_or_else(missing)?;
        let proto = self.pointer_target(id)?.ok_or_else(missing)?;
        let head = self.head(proto)?;
        if head.kind != kind::FUNC_PROTO {
            return Err(missing());
        }
        let args = (1..head.vlen).map(|index| Ok(TypeId(self.word(head.body + index * 8 + 4)?)));
        Ok(RawTracepoint { id, args: args.collect::<Result<_, BtfError>>()? })
    }

    /// A variable of a section.
    pub fn variable(&self, section: &str, name: &str) -> Result<Variable, BtfError> {
        let missing = || BtfError::NoVariable { section: section.to_owned(), name: name.to_owned() };
        let section_id = self.find(section, |kind| kind == kind::DATASEC).ok_or_else(missing)?;
        let head = self.head(section_id)?;
        for index in 0..head.vlen {
            let entry = head.body + index * 12;
            let id = TypeId(self.word(entry)?);
            let variable = self.head(id)?;
            if variable.kind == kind::VAR && self.string(variable.name) == name.as_bytes() {
                return Ok(Variable {
                    id,
                    offset: self.word(entry + 4)?,
                    size: self.word(entry + 8)?,
                    type_id: TypeId(variable.size_or_type),
                });
            }
        }
        Err(missing())
    }

    /// A per-CPU variable of the kernel, such as `runqueues`.
    pub fn percpu_variable(&self, name: &str) -> Result<Variable, BtfError> {
        self.variable(".data..percpu", name)
    }

    /// Where each CPU's preemption counter is, and its offset inside that variable: `__preempt_count`, or
    /// from Linux 6.2 to 6.14 `pcpu_hot.preempt_count` (`arch/x86/include/asm/preempt.h`). Other
    /// architectures than x86 have no per-CPU counter, arm64 for one keeps it in `task_struct.thread_info`.
    pub fn preempt_count(&self) -> Result<(Variable, u32), BtfError> {
        match self.percpu_variable("__preempt_count") {
            Ok(variable) => Ok((variable, 0)),
            Err(missing) => match (self.percpu_variable("pcpu_hot"), self.member("pcpu_hot.preempt_count")) {
                (Ok(variable), Ok(member)) => Ok((variable, member.offset)),
                _ => Err(missing),
            },
        }
    }

    /// Where a task says whether it is in a 32-bit system call: `task_struct.thread_info.status`, 32 bits of
    /// which `TS_COMPAT` is one. x86-64 alone has it.
    ///
    /// # Errors
    /// There is no such member.
    pub fn call_status(&self) -> Result<u32, BtfError> {
        const MEMBER: &str = "status";
        let of = "task_struct.thread_info".to_owned();
        let member = self.member(&format!("{of}.{MEMBER}"))?;
        if cfg!(target_arch = "x86_64") && member.size == 4 {
            Ok(member.offset)
        } else {
            Err(BtfError::NoMember { of, member: MEMBER.to_owned() })
        }
    }

    /// The tracepoints whose types the own blob has, by name.
    fn tracepoints(&self) -> &HashMap<Box<str>, TypeId> {
        self.tracepoints.get_or_init(|| {
            let mut found = HashMap::new();
            for id in (self.base_count()..self.type_count()).map(|index| TypeId(index as u32 + 1)) {
                let Some(head) = self.head(id).ok().filter(|head| head.kind == kind::TYPEDEF) else {
                    continue;
                };
                let name = std::str::from_utf8(self.string(head.name)).ok();
                if let Some(tracepoint) = name.and_then(|name| name.strip_prefix(TRACEPOINT)) {
                    found.entry(tracepoint.into()).or_insert(id);
                }
            }
            found
        })
    }

    /// The first type of this name whose kind is wanted; a module's own before the kernel's.
    fn find(&self, name: &str, wanted: impl Fn(u32) -> bool) -> Option<TypeId> {
        if name.is_empty() {
            return None;
        }
        let in_blob = |blob: &Blob| {
            blob.types.iter().position(|&at| {
                // The kind comes first: it is next to the name's offset, while the name is anywhere in the
                // strings.
                let at = at as usize;
                let kind = word_at(&blob.data, at + 4).map(kind_of);
                kind.is_some_and(&wanted)
                    && word_at(&blob.data, at).is_some_and(|offset| self.string_is(offset, name))
            })
        };
        let own = in_blob(&self.own).map(|index| self.base_count() + index);
        let found = own.or_else(|| self.base.as_ref().and_then(|base| in_blob(base)));
        found.map(|index| TypeId(index as u32 + 1))
    }

    fn string_is(&self, offset: u32, name: &str) -> bool {
        let rest = self.strings_from(offset).strip_prefix(name.as_bytes());
        rest.is_some_and(|rest| rest.first() == Some(&0))
    }

    /// The string at an offset, without its end; empty where the offset is outside.
    fn string(&self, offset: u32) -> &[u8] {
        self.strings_from(offset).split(|&byte| byte == 0).next().unwrap_or_default()
    }

    /// The strings from an offset to the end of their blob; nothing where the offset is outside.
    fn strings_from(&self, offset: u32) -> &[u8] {
        let offset = offset as usize;
        let (blob, offset) = match &self.base {
            None => (&self.own, offset),
            Some(base) => match offset.checked_sub(base.strings.len()) {
                None => (base, offset),
                Some(offset) => (&self.own, offset),
            },
        };
        blob.data[blob.strings.clone()].get(offset..).unwrap_or_default()
    }

    /// Where the places of the own blob begin.
    fn own_start(&self) -> usize {
        self.base.as_ref().map_or(0, |base| base.data.len())
    }

    fn word(&self, at: usize) -> Result<u32, BtfError> {
        let word = match (&self.base, at.checked_sub(self.own_start())) {
            (Some(base), None) => word_at(&base.data, at),
            (_, own) => word_at(&self.own.data, own.unwrap_or(at)),
        };
        word.ok_or(BtfError::Malformed { at, what: "it ends inside a type" })
    }

    fn head(&self, type_id: TypeId) -> Result<Head, BtfError> {
        let missing = BtfError::Malformed { at: 0, what: "a type refers to one that does not exist" };
        let Some(index) = (type_id.0 as usize).checked_sub(1) else { return Err(missing) };
        let (blob, index, start) = match (&self.base, index.checked_sub(self.base_count())) {
            (Some(base), None) => (base, index, 0),
            (_, own) => (&self.own, own.unwrap_or(index), self.own_start()),
        };
        let Some(&at) = blob.types.get(index) else { return Err(missing) };
        let mut head = head_at(&blob.data, at as usize)?;
        head.body += start;
        Ok(head)
    }

    /// Takes typedefs and qualifiers off. No head means `void`.
    fn resolve(&self, type_id: TypeId) -> Result<(TypeId, Option<Head>), BtfError> {
        let mut type_id = type_id;
        for _ in 0..MAX_DEPTH {
            if type_id.0 == 0 {
                return Ok((type_id, None));
            }
            let head = self.head(type_id)?;
            match head.kind {
                kind::TYPEDEF | kind::VOLATILE | kind::CONST | kind::RESTRICT | kind::TYPE_TAG => {
                    type_id = TypeId(head.size_or_type);
                }
                _ => return Ok((type_id, Some(head))),
            }
        }
        Err(BtfError::Malformed { at: 0, what: "typedefs are nested too deep" })
    }

    /// Looks for a member by name in a structure and in its anonymous members. `budget` bounds how many
    /// members are looked at: in a hostile blob a structure's anonymous members can share types and multiply
    /// with each level.
    fn member_in(
        &self,
        outer: TypeId,
        name: &str,
        depth: usize,
        budget: &mut usize,
    ) -> Result<Option<Bits>, BtfError> {
        let head = self.head(outer)?;
        if depth > MAX_DEPTH {
            return Err(self.malformed(head, "anonymous members are nested too deep"));
        }
        for index in 0..head.vlen {
            *budget = budget
                .checked_sub(1)
                .ok_or_else(|| self.malformed(head, "there are too many anonymous members"))?;
            let at = head.body + index * 12;
            let (member_name, type_id, offset) =
                (self.word(at)?, TypeId(self.word(at + 4)?), self.word(at + 8)?);
            // With the kind flag the upper byte of the offset is the size of a bit field.
            let (bit_offset, bit_size) =
                if head.kind_flag { (offset & 0x00ff_ffff, offset >> 24) } else { (offset, 0) };
            if self.string_is(member_name, name) {
                return Ok(Some(Bits { bit_offset, bit_size, type_id }));
            }
            if self.string(member_name).is_empty() {
                let (inner, inner_head) = self.resolve(type_id)?;
                if !inner_head.is_some_and(|head| matches!(head.kind, kind::STRUCT | kind::UNION)) {
                    continue;
                }
                if let Some(mut found) = self.member_in(inner, name, depth + 1, budget)? {
                    found.bit_offset = found
                        .bit_offset
                        .checked_add(bit_offset)
                        .ok_or_else(|| self.malformed(head, "an offset is too large"))?;
                    return Ok(Some(found));
                }
            }
        }
        Ok(None)
    }

    #[expect(clippy::unused_self, reason = "reads as the other lookups do")]
    fn malformed(&self, head: Head, what: &'static str) -> BtfError {
        BtfError::Malformed { at: head.body - 12, what }
    }
}

/// A bit field, as the word that has all of it. On machines whose first byte is the lowest one, bits count
/// from the lowest one on (include/uapi/linux/btf.h, `BTF_MEMBER_BIT_OFFSET`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BitField {
    /// Bytes from the start of the structure to the word.
    pub offset: u32,
    /// Bytes of the word: 1, 2, 4 or 8, to which the offset is aligned.
    pub size: u32,
    /// The lowest bit of the field in the word.
    pub shift: u32,
    /// How many bits it has.
    pub bits: u32,
    /// Whether the highest one is a sign.
    pub signed: bool,
}

impl BitField {
    /// `None` for one that is in no word of 64 bits, which C does not have.
    fn at(bit_offset: u32, bits: u32, signed: bool) -> Option<Self> {
        let end = bit_offset.checked_add(bits)?;
        let words = [1, 2, 4, 8].into_iter().map(|size| (bit_offset / 8 / size * size, size));
        let (offset, size) = words.into_iter().find(|(offset, size)| end <= 8 * (offset + size))?;
        Some(Self { offset, size, shift: bit_offset - 8 * offset, bits, signed })
    }
}

/// Where a member is, in bits.
struct Bits {
    bit_offset: u32,
    bit_size: u32,
    type_id: TypeId,
}
