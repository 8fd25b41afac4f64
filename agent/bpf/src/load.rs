//! Loading the eBPF object: maps created, code tied to them, programs given to the verifier.
//!
//! aya-obj parses and relocates; the system calls are made here. aya's own loader would parse the whole of
//! the kernel's BTF for every recording, which takes longer than the verifier, although the programs carry no
//! relocations against it.

use std::{
    collections::{BTreeMap, HashSet},
    ffi::CString,
    io,
    os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd},
};

use agent_ebpf::parts::{APART, EVENT_FILTER};
use aya_obj::{
    EbpfSectionKind, ParseError, ProgramSection, generated::bpf_insn, relocation::EbpfRelocationError,
};

use super::{
    insn::{Insn, Replacement, calls_placeholder, load_values_of, replace_call},
    parts::{Parts, types_of},
    program::subprograms,
    simplify::Constants,
    sys,
};
use serde::{Deserialize, Serialize};

use kernel::btf::TypeId;
use kernel::cgroup::memory::MemoryLimit;
use stdx::handover::{Descriptors, Missing, Number};
use stdx::{parallel, reason};

/// Lines of the verifier's log in an error: the reason is at its end, and the whole has thousands.
const LOG_LINES: usize = 12;

/// Why the programs could not be loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The embedded object is not what aya-obj reads: a defect of the build.
    #[error("the embedded eBPF object cannot be read: {0}; rebuild the agent")]
    Parse(#[from] ParseError),
    /// As above.
    #[error("the embedded eBPF object cannot be relocated: {0}; rebuild the agent")]
    Relocate(#[from] EbpfRelocationError),
    /// Creating or filling a map.
    #[error("the kernel refused to create the eBPF map {map}: {source}{}", MemoryLimit::explain(source))]
    Map {
        /// Name of the map.
        map: String,
        /// The system's reason.
        #[source]
        source: io::Error,
    },
    /// The rings are larger than one map can be.
    #[error("{pages} pages for each of {cpus} CPUs exceed the size of an eBPF map; use smaller rings (-b)")]
    TooManyPages {
        /// Pages in each ring.
        pages: u32,
        /// CPUs that get a ring.
        cpus: usize,
    },
    /// More events are added to a channel than it has room for.
    #[error(
        "there is no room for more events in this channel; give it more spare ones when the recording begins"
    )]
    NoSlots,
    /// The verifier or a missing permission.
    #[error("the kernel refused the eBPF program {program}: {source}{}", said(.log))]
    Program {
        /// Name of the program.
        program: &'static str,
        /// The system's reason.
        #[source]
        source: io::Error,
        /// The end of the verifier's log, if it has written one.
        log: String,
    },
    /// The same of a program with a filter.
    #[error(
        "the kernel refused the program with the filter: {source}; use a simpler one, or record all and filter with \
         `report -F`{}", said(.log)
    )]
    Filtered {
        /// The system's reason.
        #[source]
        source: io::Error,
        /// The end of the verifier's log, if it has written one.
        log: String,
    },
    /// A program that was compiled for an event.
    #[error("the kernel refused the program of {event}: {source}{}", said(.log))]
    Compiled {
        /// `system:name`.
        event: String,
        /// The system's reason.
        #[source]
        source: io::Error,
        /// The end of the verifier's log, if it has written one.
        log: String,
    },
    /// The object and this binary do not fit together: a defect of the build.
    #[error("the embedded eBPF object has no usable {0}; rebuild the agent")]
    Missing(&'static str),
    /// What another process has handed over.
    #[error(transparent)]
    HandedOver(#[from] Missing),
    /// What the programs say of themselves cannot be read.
    #[cfg(feature = "debug-programs")]
    #[error("cannot read the messages of the eBPF programs: {0}; that needs CAP_SYS_ADMIN")]
    Messages(String),
    /// Mapping a map's memory.
    #[error("cannot map the memory of the eBPF map {map}: {source}")]
    Mmap {
        /// Name of the map.
        map: &'static str,
        /// The system's reason.
        #[source]
        source: io::Error,
    },
}

/// Why the kernel refused a program, in one line: the last one of the verifier's log that is no statistics,
/// or the system's reason.
pub fn verdict(source: &io::Error, log: &str) -> String {
    // print_verification_stats and check_stack_max_depth, kernel/bpf/verifier.c
    const STATISTICS: [&str; 4] = ["processed ", "stack depth ", "verification time ", "mark_precise:"];
    let reason = log
        .lines()
        .map(str::trim)
        .rfind(|line| !line.is_empty() && !STATISTICS.iter().any(|statistics| line.starts_with(statistics)));
    reason.map_or_else(|| source.to_string(), str::to_owned)
}

/// The end of the verifier's log, indented for an error message.
pub fn said(log: &str) -> String {
    if log.is_empty() { String::new() } else { format!("; the verifier said:\n  {log}") }
}

impl LoadError {
    /// Whether the kernel's reason was a missing permission. The verifier refuses what a program does with
    /// the same error (EACCES), but says why.
    pub fn is_permission(&self) -> bool {
        let log = match self {
            Self::Program { log, .. } | Self::Filtered { log, .. } | Self::Compiled { log, .. } => log,
            _ => "",
        };
        log.is_empty() && reason::io_kind(self) == Some(io::ErrorKind::PermissionDenied)
    }
}

/// An array that is the only value of its map if the kernel allows one of that size, so that programs need no
/// lookup (`Table` of agent-ebpf's `maps`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlatArray {
    /// The map's name.
    pub name: &'static str,
    /// How many elements it has.
    pub elements: u32,
    /// The constant that tells programs that number; it is 0 where the map is an array of them.
    pub len: &'static str,
}

/// What an object's maps are to be.
#[derive(Clone, Copy, Debug)]
pub struct Definitions<'a> {
    /// The values of its constants.
    pub globals: &'a [(&'static str, &'a [u8])],
    /// Maps that become one value.
    pub tables: &'a [FlatArray],
    /// The numbers of elements of others.
    pub sizes: &'a [(&'static str, u32)],
    /// The sizes of elements of others.
    pub value_sizes: &'a [(&'static str, u32)],
    /// Bytes of each ring buffer in an array of maps.
    pub inner_bytes: u32,
    /// Whether users or processes have rings of their own.
    pub owned_rings: bool,
    /// Whether functions may be in the place of their calls, where nobody counts the kernel's frames.
    pub may_inline: bool,
    /// Maps that there are already, and are used instead of new ones.
    pub given: Option<&'a SharedMaps>,
}

/// Maps of an object that others use as well, by name.
#[derive(Debug, Default)]
pub struct SharedMaps(BTreeMap<String, SharedMap>);

#[derive(Debug)]
struct SharedMap {
    map: OwnedFd,
    /// How many elements are its only value; 0 where it is an ordinary map.
    len: u32,
}

/// Maps on their way to another process.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct MapsState(BTreeMap<String, (Number, u32)>);

impl SharedMaps {
    /// Puts the maps' descriptors among those that the next process gets.
    pub fn hand_over(self, to: &mut Descriptors) -> MapsState {
        let Self(maps) = self;
        MapsState(maps.into_iter().map(|(name, SharedMap { map, len })| (name, (to.put(map), len))).collect())
    }

    /// # Errors
    /// A descriptor is missing.
    pub fn take_over(state: MapsState, from: &mut Descriptors) -> Result<Self, Missing> {
        let MapsState(maps) = state;
        let take = |(name, (map, len))| Ok((name, SharedMap { map: from.take(map)?, len }));
        maps.into_iter().map(take).collect::<Result<_, _>>().map(Self)
    }

    /// Adds others.
    pub fn append(&mut self, mut other: Self) {
        self.0.append(&mut other.0);
    }

    /// The descriptor of a map.
    pub fn map(&self, name: &'static str) -> Result<BorrowedFd<'_>, LoadError> {
        self.0.get(name).map(|of| of.map.as_fd()).ok_or(LoadError::Missing(name))
    }
}

/// A program to load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ToLoad<'a> {
    /// Its name in the object.
    pub program: &'static str,
    /// For programs that the verifier ties to one hook (`tp_btf`): the hook's type in the kernel's BTF.
    pub attach_btf_id: Option<u32>,
    /// The filter of its events.
    pub filter: Option<&'a [Insn]>,
}

impl ToLoad<'_> {
    /// A program that has no filter and is tied to no hook.
    pub fn plain(program: &'static str) -> Self {
        Self { program, attach_btf_id: None, filter: None }
    }
}

/// The object with its maps created.
#[derive(Debug)]
pub struct Object {
    code: aya_obj::Object,
    maps: BTreeMap<String, OwnedFd>,
    /// How many elements are the only value of a map; 0 for tables that are ordinary maps.
    flat: BTreeMap<&'static str, u32>,
    /// What is in the maps of maps.
    inner: BTreeMap<String, Vec<OwnedFd>>,
    /// What its programs are put together from.
    parts: Parts,
}

impl Object {
    /// Reads the object `bytes`, and creates its maps. `cast` is the kernel's function that calls of
    /// [`agent_ebpf::CAST_CALL`] mean.
    pub fn create(
        bytes: &[u8],
        definitions: &Definitions<'_>,
        cast: Option<TypeId>,
    ) -> Result<Self, LoadError> {
        let &Definitions { globals, tables, sizes, value_sizes, inner_bytes, owned_rings, may_inline, given } =
            definitions;
        let mut code = aya_obj::Object::parse(bytes)?;
        let (mut maps, mut inner) = (BTreeMap::new(), BTreeMap::new());
        let (mut lens, mut values, mut flat) = (Vec::new(), Vec::new(), BTreeMap::new());
        for table in tables {
            let definition = code.maps.get_mut(table.name).ok_or(LoadError::Missing(table.name))?;
            let failed = |source| LoadError::Map { map: table.name.to_owned(), source };
            let (map, len) = match given.and_then(|SharedMaps(maps)| maps.get(table.name)) {
                Some(SharedMap { map, len }) => (map.try_clone().map_err(failed)?, *len),
                None => create_table(table, definition).map_err(failed)?,
            };
            if len != 0 {
                values.push(map.as_raw_fd());
            }
            maps.insert(table.name.to_owned(), map);
            lens.push((table.len, len.to_ne_bytes()));
            flat.insert(table.name, len);
        }
        let lens = lens.iter().map(|(name, value)| (*name, value.as_slice()));
        let globals = globals.iter().copied().chain(lens);
        code.patch_map_data(globals.map(|(name, value)| (name, (value, true))).collect())?;
        for &(name, entries) in sizes {
            code.maps.get_mut(name).ok_or(LoadError::Missing(name))?.set_max_entries(entries);
        }
        for &(name, bytes) in value_sizes {
            code.maps.get_mut(name).ok_or(LoadError::Missing(name))?.set_value_size(bytes);
        }
        let definitions = std::mem::take(&mut code.maps);
        for (name, definition) in &definitions {
            if maps.contains_key(name) {
                continue;
            }
            let failed = |source| LoadError::Map { map: name.clone(), source };
            if let Some(SharedMap { map, .. }) = given.and_then(|SharedMaps(maps)| maps.get(name)) {
                maps.insert(name.clone(), map.try_clone().map_err(failed)?);
            } else if definition.map_type() == sys::BPF_MAP_TYPE_ARRAY_OF_MAPS {
                let (map, rings) = create_ring_buffers(name, definition, inner_bytes).map_err(failed)?;
                maps.insert(name.clone(), map);
                inner.insert(name.clone(), rings);
            } else {
                maps.insert(name.clone(), create_map(name, definition, None).map_err(failed)?);
            }
        }
        let text: HashSet<usize> = code.functions.keys().map(|&(section, _)| section).collect();
        let descriptors = definitions
            .iter()
            .filter_map(|(name, map)| Some((name.as_str(), maps.get(name)?.as_raw_fd(), map)));
        code.relocate_maps(descriptors, &text)?;
        code.relocate_calls(&text)?;
        for function in code.functions.values_mut() {
            load_values_of(&values, &mut function.instructions);
        }
        // Without the function, what is left is in a branch that is never taken.
        let cast = cast.map_or(Replacement::Value(0), Replacement::Kernel);
        let functions = code.functions.values_mut();
        let all = functions.flat_map(|function| &mut function.instructions);
        for call in all.filter(|insn| calls_placeholder(**insn, agent_ebpf::CAST_CALL)) {
            replace_call(call, cast);
        }
        let constants: Constants = definitions
            .iter()
            .filter(|(_, map)| map.section_kind() == EbpfSectionKind::Rodata)
            .filter_map(|(name, map)| Some((maps.get(name)?.as_raw_fd(), map.data().to_vec())))
            .collect();
        let mut parts = Parts::new(constants, may_inline);
        for (subprogram, name) in subprograms(owned_rings) {
            parts.add(subprogram.placeholder(), instructions(&code, name)?);
        }
        for (number, name, _) in APART {
            parts.add(number, instructions(&code, name)?);
        }
        Ok(Self { code, maps, flat, inner, parts })
    }

    /// What its programs are put together from.
    pub fn parts(&self) -> &Parts {
        &self.parts
    }

    /// Some of its maps, for another object.
    ///
    /// # Errors
    /// There are no descriptors left.
    pub fn share(&self, names: &[&'static str]) -> Result<SharedMaps, LoadError> {
        let share = |&name: &&'static str| {
            let failed = |source| LoadError::Map { map: name.to_owned(), source };
            let map = self.map(name)?.try_clone_to_owned().map_err(failed)?;
            let len = self.flat.get(name).copied().unwrap_or(0);
            Ok((name.to_owned(), SharedMap { map, len }))
        };
        names.iter().map(share).collect::<Result<_, _>>().map(SharedMaps)
    }

    /// The descriptor of a map.
    pub fn map(&self, name: &'static str) -> Result<BorrowedFd<'_>, LoadError> {
        self.maps.get(name).map(|map| map.as_fd()).ok_or(LoadError::Missing(name))
    }

    /// The descriptors of the ring buffers in an array of maps; none where the array was given.
    pub fn inner(&self, name: &str) -> &[OwnedFd] {
        self.inner.get(name).map(Vec::as_slice).unwrap_or_default()
    }

    /// Says which ring buffers are in an array of maps that was given.
    pub fn set_inner(&mut self, name: &str, rings: Vec<OwnedFd>) {
        self.inner.insert(name.to_owned(), rings);
    }

    /// Gives away the descriptors of some maps, and of the ring buffers in `name`. Programs that are loaded
    /// keep theirs.
    pub fn give_away(mut self, names: &[&'static str], inner: &str) -> (SharedMaps, Vec<OwnedFd>) {
        let give = |&name: &&'static str| {
            let len = self.flat.get(name).copied().unwrap_or(0);
            Some((name.to_owned(), SharedMap { map: self.maps.remove(name)?, len }))
        };
        let maps = SharedMaps(names.iter().filter_map(give).collect());
        (maps, self.inner.remove(inner).unwrap_or_default())
    }

    /// Loads programs side by side. The descriptors are in the order of `programs`.
    pub fn load_all(&self, programs: &[ToLoad<'_>]) -> Result<Vec<OwnedFd>, LoadError> {
        side_by_side(programs, |program| self.load(*program)).into_iter().collect()
    }

    /// The instructions of a program of the object, with the functions that it calls.
    pub fn instructions(&self, program: &'static str) -> Result<&[bpf_insn], LoadError> {
        instructions(&self.code, program)
    }

    /// Loads a program.
    pub fn load(&self, what: ToLoad<'_>) -> Result<OwnedFd, LoadError> {
        let ToLoad { program, attach_btf_id, filter } = what;
        let definition = self.code.programs.get(program).ok_or(LoadError::Missing(program))?;
        let (kind, expected_attach) = match &definition.section {
            ProgramSection::TracePoint => (sys::ProgramKind::Tracepoint, 0),
            ProgramSection::RawTracePoint => (sys::ProgramKind::RawTracepoint, 0),
            ProgramSection::BtfTracePoint => (sys::ProgramKind::Tracing, sys::BPF_TRACE_RAW_TP),
            _ => return Err(LoadError::Missing("program type")),
        };
        let own = filter.map(|code| (EVENT_FILTER, code.iter().map(|&insn| bpf_insn::from(insn)).collect()));
        let code = self.parts.join(self.instructions(program)?.to_vec(), own.into_iter().collect());
        let to_load = sys::Program {
            license: &definition.license,
            expected_attach,
            attach_btf_id: attach_btf_id.unwrap_or(0),
            ..code.program(kind, program)
        };
        verify(&to_load).map_err(|refused| refused.of_program(program, filter.is_some()))
    }
}

/// The instructions of a program of an object, with the functions that it calls.
fn instructions<'o>(code: &'o aya_obj::Object, program: &'static str) -> Result<&'o [bpf_insn], LoadError> {
    let definition = code.programs.get(program).ok_or(LoadError::Missing(program))?;
    let function = code.functions.get(&definition.function_key());
    Ok(&function.ok_or(LoadError::Missing(program))?.instructions)
}

/// Gives a program to the verifier.
pub fn verify(program: &sys::Program<'_>) -> Result<OwnedFd, Refused> {
    // Without types, the verifier takes all functions for ordinary ones.
    let types =
        (!program.functions.is_empty()).then(|| sys::load_types(&types_of(program.name)).ok()).flatten();
    let types = types.as_ref().map(|types| types.as_fd());
    sys::load_program(program, types, None).or_else(|source| {
        // Only a refusal is worth the time that writing a log takes; and whatever it is that the kernel does
        // not want of functions that it verifies by themselves, it may want of ordinary ones.
        let mut log = vec![0; 1 << 20];
        match sys::load_program(program, None, Some(&mut log)) {
            Ok(loaded) => Ok(loaded),
            Err(_) => Err(Refused { source, log: end_of(&log) }),
        }
    })
}

/// A program that the kernel does not take.
#[derive(Debug)]
pub struct Refused {
    /// The system's reason.
    pub source: io::Error,
    /// The end of the verifier's log, if it has written one.
    pub log: String,
}

impl Refused {
    /// The error of a program for many events, or of one with a filter.
    pub fn of_program(self, program: &'static str, filtered: bool) -> LoadError {
        let Self { source, log } = self;
        if filtered {
            LoadError::Filtered { source, log }
        } else {
            LoadError::Program { program, source, log }
        }
    }
}

/// Does `work` for each item, on all CPUs at once: the verifier takes milliseconds for a program, and works
/// on many side by side. The results are in the order of the items.
pub fn side_by_side<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    parallel::map(items, parallel::available(), work)
}

/// The last lines of a verifier's log, which ends with NULs.
fn end_of(log: &[u8]) -> String {
    let len = log.iter().position(|&byte| byte == 0).unwrap_or(log.len());
    let text = String::from_utf8_lossy(&log[..len]);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(LOG_LINES)..].join("\n  ")
}

/// An array of maps with a ring buffer of `bytes` in each element.
fn create_ring_buffers(
    name: &str,
    definition: &aya_obj::Map,
    bytes: u32,
) -> io::Result<(OwnedFd, Vec<OwnedFd>)> {
    let ring = || {
        sys::create_map(&sys::MapDefinition {
            kind: sys::BPF_MAP_TYPE_RINGBUF,
            key_size: 0,
            value_size: 0,
            max_entries: bytes,
            flags: 0,
            name: &CString::new(name)?,
            inner: None,
        })
    };
    // The verifier learns from the first one what all of them are.
    let first = ring()?;
    let map = create_map(name, definition, Some(first.as_fd()))?;
    let mut rings = vec![first];
    for _ in 1..definition.max_entries() {
        rings.push(ring()?);
    }
    for (index, ring) in rings.iter().enumerate() {
        sys::set_element(map.as_fd(), index as u32, &ring.as_raw_fd().to_ne_bytes())?;
    }
    Ok((map, rings))
}

/// Bytes that the verifier lets a program go beyond an address (`BPF_MAX_VAR_OFF`,
/// include/linux/bpf_verifier.h).
const TABLE_MAX: u32 = 1 << 29;

/// Makes a table, with the number of elements for its constant.
fn create_table(table: &FlatArray, definition: &mut aya_obj::Map) -> io::Result<(OwnedFd, u32)> {
    let element = definition.value_size();
    if let Some(bytes) = element.checked_mul(table.elements).filter(|bytes| *bytes <= TABLE_MAX) {
        definition.set_max_entries(1);
        definition.set_value_size(bytes);
        // Before 6.0 a value has 4 MB at most (`array_map_alloc_check`, kernel/bpf/arraymap.c).
        if let Ok(map) = create_map(table.name, definition, None) {
            return Ok((map, table.elements));
        }
    }
    definition.set_max_entries(table.elements);
    definition.set_value_size(element);
    Ok((create_map(table.name, definition, None)?, 0))
}

fn create_map(name: &str, definition: &aya_obj::Map, inner: Option<BorrowedFd<'_>>) -> io::Result<OwnedFd> {
    let data = definition.data();
    let map = sys::create_map(&sys::MapDefinition {
        kind: definition.map_type(),
        key_size: definition.key_size(),
        value_size: definition.value_size(),
        max_entries: definition.max_entries(),
        flags: definition.map_flags(),
        // The compiler's sections have names such as `.rodata`, which the kernel takes too.
        name: &CString::new(name)?,
        inner,
    })?;
    if !data.is_empty() {
        if data.len() != definition.value_size() as usize {
            return Err(io::ErrorKind::InvalidData.into());
        }
        // The kernel does not let such a map be written through memory (`bpf_map_mmap`,
        // kernel/bpf/syscall.c).
        sys::set_element(map.as_fd(), 0, data)?;
    }
    if definition.section_kind() == EbpfSectionKind::Rodata {
        // From here on the verifier takes the content for constants.
        sys::freeze_map(map.as_fd())?;
    }
    Ok(map)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_is_one_line() {
        let source = || io::Error::from_raw_os_error(13);
        let log = "0: R1=ctx()\n  1: (79) r1 = *(u64 *)(r6 +8)\n  func 'kfree' arg1 type UNKNOWN is not a struct\n  \
                   processed 8 insns (limit 1000000) max_states_per_insn 0\n  stack depth 0";
        assert_eq!(verdict(&source(), log), "func 'kfree' arg1 type UNKNOWN is not a struct");
        assert_eq!(verdict(&source(), ""), source().to_string());
    }

    #[test]
    fn what_the_verifier_refuses_is_no_missing_permission() {
        let refused = |errno, log: &str| {
            let (event, log) = ("a:b".to_owned(), log.to_owned());
            LoadError::Compiled { event, source: io::Error::from_raw_os_error(errno), log }.is_permission()
        };
        assert!(refused(libc::EPERM, "") && refused(libc::EACCES, ""));
        assert!(!refused(libc::EACCES, "R1 invalid mem access 'scalar'") && !refused(libc::EINVAL, ""));
    }

    #[test]
    fn a_log_is_cut_to_its_end() {
        let log = (0..100).map(|line| format!("line {line}")).collect::<Vec<_>>().join("\n");
        let shown = end_of(&[log.as_bytes(), &[0; 50]].concat());
        assert_eq!(shown.lines().count(), LOG_LINES);
        assert!(shown.ends_with("line 99"));
        assert_eq!(end_of(&[0; 8]), "");
    }
}
