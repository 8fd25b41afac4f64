//! The system calls of loading and attaching: bpf(2) here and, for the kernel's own types, in [`btf`],
//! perf_event_open(2) in `perf`.

pub mod btf;
mod perf;

use std::{
    ffi::CStr,
    io,
    os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd},
};

use agent_ebpf::PAGE_SIZE;
use aya_obj::generated::bpf_insn;

pub use self::perf::{
    ProbeEvent, ProbeLocation, open_counter, open_mapping_events, open_probe, open_tracepoint,
};

use super::program::LICENSE;

// include/uapi/linux/bpf.h, enum bpf_cmd and enum bpf_attach_type.
const BPF_MAP_CREATE: libc::c_int = 0;
const BPF_MAP_LOOKUP_ELEM: libc::c_int = 1;
const BPF_MAP_UPDATE_ELEM: libc::c_int = 2;
const BPF_PROG_LOAD: libc::c_int = 5;
const BPF_PROG_TEST_RUN: libc::c_int = 10;
const BPF_OBJ_GET_INFO_BY_FD: libc::c_int = 15;
const BPF_RAW_TRACEPOINT_OPEN: libc::c_int = 17;
const BPF_BTF_LOAD: libc::c_int = 18;
const BPF_MAP_FREEZE: libc::c_int = 22;
const BPF_LINK_CREATE: libc::c_int = 28;
const BPF_ENABLE_STATS: libc::c_int = 32;
const BPF_PERF_EVENT: u32 = 41;
/// The attach types of programs of type "tracing" at the entry and the exit of a function.
pub const BPF_TRACE_FENTRY: u32 = 24;
/// Attach type of programs at the return of a function (include/uapi/linux/bpf.h).
pub const BPF_TRACE_FEXIT: u32 = 25;
/// The attach types of kprobe programs that one link ties to many attach points (5.18, 6.6).
pub const BPF_TRACE_KPROBE_MULTI: u32 = 42;
/// Attach type of programs at many places of a file.
pub const BPF_TRACE_UPROBE_MULTI: u32 = 48;
/// The same at entries and returns (6.10).
pub const BPF_TRACE_KPROBE_SESSION: u32 = 56;
/// `BPF_F_KPROBE_MULTI_RETURN` and `BPF_F_UPROBE_MULTI_RETURN`.
const MULTI_RETURN: u32 = 1;
// include/uapi/linux/bpf.h, enum bpf_map_type.
const BPF_MAP_TYPE_ARRAY: u32 = 2;
/// Map type: an array of maps.
pub const BPF_MAP_TYPE_ARRAY_OF_MAPS: u32 = 12;
/// Map type: a ring buffer.
pub const BPF_MAP_TYPE_RINGBUF: u32 = 27;
/// The attach type of `tp_btf` programs.
pub const BPF_TRACE_RAW_TP: u32 = 23;
const BPF_F_SLEEPABLE: u32 = 1 << 4;

/// Bytes of a map's or program's name, NUL included (`BPF_OBJ_NAME_LEN`).
const NAME_LEN: usize = 16;

/// `union bpf_attr` as `BPF_MAP_CREATE` reads it.
#[repr(C)]
struct MapCreate {
    kind: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
    flags: u32,
    inner_map_fd: u32,
    numa_node: u32,
    name: [u8; NAME_LEN],
}

/// `union bpf_attr` as `BPF_MAP_LOOKUP_ELEM` and `BPF_MAP_UPDATE_ELEM` read it.
#[repr(C)]
struct MapElement {
    map_fd: u32,
    _pad: u32,
    key: u64,
    value: u64,
    flags: u64,
}

impl MapElement {
    fn new(map: BorrowedFd<'_>, key: &u32, value: *const u8) -> Self {
        Self {
            map_fd: map.as_raw_fd() as u32,
            _pad: 0,
            key: std::ptr::from_ref(key) as u64,
            value: value as u64,
            flags: 0,
        }
    }
}

/// `union bpf_attr` as `BPF_MAP_FREEZE` reads it.
#[repr(C)]
struct MapFreeze {
    map_fd: u32,
}

/// `union bpf_attr` as `BPF_PROG_LOAD` reads it, as far as 5.15 knows it.
#[repr(C)]
#[derive(Default)]
struct ProgLoad {
    kind: u32,
    insn_cnt: u32,
    insns: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log_buf: u64,
    kern_version: u32,
    flags: u32,
    name: [u8; NAME_LEN],
    ifindex: u32,
    expected_attach_type: u32,
    btf_fd: u32,
    func_info_rec_size: u32,
    func_info: u64,
    func_info_cnt: u32,
    line_info_rec_size: u32,
    line_info: u64,
    line_info_cnt: u32,
    attach_btf_id: u32,
    attach_btf_obj_fd: u32,
    _pad: u32,
}

/// `union bpf_attr` as `BPF_LINK_CREATE` reads it for a perf event.
#[repr(C)]
struct LinkCreate {
    prog_fd: u32,
    target_fd: u32,
    attach_type: u32,
    flags: u32,
    cookie: u64,
}

/// `union bpf_attr` as `BPF_PROG_TEST_RUN` reads it.
#[repr(C)]
#[derive(Default)]
struct TestRun {
    prog_fd: u32,
    retval: u32,
    data_size_in: u32,
    data_size_out: u32,
    data_in: u64,
    data_out: u64,
    repeat: u32,
    duration: u32,
    ctx_size_in: u32,
    ctx_size_out: u32,
    ctx_in: u64,
    ctx_out: u64,
    flags: u32,
    cpu: u32,
    batch_size: u32,
    _pad: u32,
}

/// `union bpf_attr` as `BPF_RAW_TRACEPOINT_OPEN` reads it.
#[repr(C)]
struct RawTracepointOpen {
    name: u64,
    prog_fd: u32,
    _pad: u32,
}

/// `union bpf_attr` as `BPF_LINK_CREATE` reads it for many kprobes.
#[repr(C)]
struct LinkKprobes {
    prog_fd: u32,
    target_fd: u32,
    attach_type: u32,
    flags: u32,
    multi_flags: u32,
    count: u32,
    symbols: u64,
    addresses: u64,
    cookies: u64,
}

/// `union bpf_attr` as `BPF_LINK_CREATE` reads it for many uprobes.
#[repr(C)]
struct LinkUprobes {
    prog_fd: u32,
    target_fd: u32,
    attach_type: u32,
    flags: u32,
    path: u64,
    offsets: u64,
    reference_counters: u64,
    cookies: u64,
    count: u32,
    multi_flags: u32,
    pid: u32,
    _pad: u32,
}

fn bpf<T>(cmd: libc::c_int, attr: &mut T) -> io::Result<libc::c_long> {
    // SAFETY: `attr` is a valid, fully initialised object of the size given; the kernel reads and writes only
    // that much.
    let result = unsafe { libc::syscall(libc::SYS_bpf, cmd, std::ptr::from_mut(attr), size_of::<T>()) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

fn owned(fd: libc::c_long) -> OwnedFd {
    // SAFETY: the kernel just returned this descriptor to us and nobody else owns it.
    unsafe { OwnedFd::from_raw_fd(fd as libc::c_int) }
}

fn object_name(name: &[u8]) -> [u8; NAME_LEN] {
    let mut out = [0; NAME_LEN];
    let len = name.len().min(NAME_LEN - 1);
    out[..len].copy_from_slice(&name[..len]);
    out
}

/// What a map is created with; the fields are those of `union bpf_attr`.
#[derive(Debug)]
pub struct MapDefinition<'a> {
    /// `enum bpf_map_type`.
    pub kind: u32,
    /// Bytes of a key.
    pub key_size: u32,
    /// Bytes of an element.
    pub value_size: u32,
    /// Number of elements; bytes of a ring buffer.
    pub max_entries: u32,
    /// `BPF_F_*`.
    pub flags: u32,
    /// Shown by tools; cut to 15 bytes.
    pub name: &'a CStr,
    /// For a map of maps: a map like those that will be in it.
    pub inner: Option<BorrowedFd<'a>>,
}

impl<'a> MapDefinition<'a> {
    /// An array with a page as its only element.
    pub fn page(name: &'a CStr, flags: u32) -> Self {
        let value_size = PAGE_SIZE as u32;
        Self { kind: BPF_MAP_TYPE_ARRAY, key_size: 4, value_size, max_entries: 1, flags, name, inner: None }
    }
}

/// Creates a map.
pub fn create_map(definition: &MapDefinition<'_>) -> io::Result<OwnedFd> {
    let &MapDefinition { kind, key_size, value_size, max_entries, flags, name, inner } = definition;
    let name = object_name(name.to_bytes());
    let inner_map_fd = inner.map_or(0, |map| map.as_raw_fd() as u32);
    let mut attr =
        MapCreate { kind, key_size, value_size, max_entries, flags, inner_map_fd, numa_node: 0, name };
    bpf(BPF_MAP_CREATE, &mut attr).map(owned)
}

/// Sets element `key` of an array map. Programs that fire meanwhile on this CPU are not run
/// (`bpf_disable_instrumentation`, include/linux/bpf.h). `value` has the size of an element, which the caller
/// has made sure of.
pub fn set_element(map: BorrowedFd<'_>, key: u32, value: &[u8]) -> io::Result<()> {
    let mut attr = MapElement::new(map, &key, value.as_ptr());
    bpf(BPF_MAP_UPDATE_ELEM, &mut attr).map(drop)
}

/// Copies element `key` of an array map to `value`, which has the size of an element: the caller has made
/// sure of it.
pub fn element(map: BorrowedFd<'_>, key: u32, value: &mut [u8]) -> io::Result<()> {
    let mut attr = MapElement::new(map, &key, value.as_mut_ptr());
    bpf(BPF_MAP_LOOKUP_ELEM, &mut attr).map(drop)
}

/// Keeps user space from changing a map.
pub fn freeze_map(map: BorrowedFd<'_>) -> io::Result<()> {
    bpf(BPF_MAP_FREEZE, &mut MapFreeze { map_fd: map.as_raw_fd() as u32 }).map(drop)
}

/// Makes the kernel measure how long programs run, as long as the result is there.
pub fn enable_run_times() -> io::Result<OwnedFd> {
    /// `union bpf_attr` as `BPF_ENABLE_STATS` reads it; 0 is `BPF_STATS_RUN_TIME`.
    #[repr(C)]
    struct EnableStats {
        kind: u32,
    }
    bpf(BPF_ENABLE_STATS, &mut EnableStats { kind: 0 }).map(owned)
}

/// `union bpf_attr` as `BPF_OBJ_GET_INFO_BY_FD` reads it.
#[repr(C)]
struct GetInfo {
    fd: u32,
    len: u32,
    info: u64,
}

/// What the kernel has measured of a program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunTimes {
    /// The program's number, which no other one has meanwhile.
    pub id: u32,
    /// Nanoseconds that it ran, while [they were measured](enable_run_times).
    pub time_ns: u64,
    /// How often it ran, while that was.
    pub runs: u64,
}

/// What the kernel has measured of the program that the descriptor of this number is of; it has to be a
/// program's.
pub fn run_times(number: i32) -> io::Result<RunTimes> {
    let fd = u32::try_from(number).map_err(|_| io::Error::from_raw_os_error(libc::EBADF))?;
    // SAFETY: all of its members are integers, of which 0 is a value.
    let mut info: aya_obj::generated::bpf_prog_info = unsafe { std::mem::zeroed() };
    let len = size_of_val(&info) as u32;
    // `info` is there, and has the length that is said of it.
    bpf(BPF_OBJ_GET_INFO_BY_FD, &mut GetInfo { fd, len, info: (&raw mut info) as u64 })?;
    Ok(RunTimes { id: info.id, time_ns: info.run_time_ns, runs: info.run_cnt })
}

/// A number that the kernel tells of a program in its descriptor's `fdinfo`.
pub fn told_of_program(program: BorrowedFd<'_>, key: &str) -> Option<u64> {
    let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", program.as_raw_fd())).ok()?;
    let line = info.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
    line.trim().parse().ok()
}

/// How often the kernel did not call the program of a link at kprobes, alone or many, where it should have:
/// it was inside another probe, or more calls were open than it has room to watch the returns of. The program
/// itself counts none of it. 0 for other links, and before Linux 6.7, which does not say it; `None` if the
/// kernel refuses.
pub fn missed_by_link(link: BorrowedFd<'_>) -> Option<u64> {
    // `enum bpf_link_type` and `enum bpf_perf_event_type` of include/uapi/linux/bpf.h.
    const OF_PERF_EVENT: u32 = 7;
    const OF_KPROBES: u32 = 8;
    const KPROBE: u32 = 3;
    const KRETPROBE: u32 = 4;
    // SAFETY: all of its members are integers, of which 0 is a value.
    let mut info: aya_obj::generated::bpf_link_info = unsafe { std::mem::zeroed() };
    let (fd, len) = (link.as_raw_fd() as u32, size_of_val(&info) as u32);
    // `info` is there, and has the length that is said of it.
    bpf(BPF_OBJ_GET_INFO_BY_FD, &mut GetInfo { fd, len, info: (&raw mut info) as u64 }).ok()?;
    let of_kind = &info.__bindgen_anon_1;
    // SAFETY: all of the unions' members are of integers, which are there as far as the kernel has not filled
    // them.
    let missed = unsafe {
        match (info.type_, of_kind.perf_event.type_) {
            (OF_KPROBES, _) => of_kind.kprobe_multi.missed,
            (OF_PERF_EVENT, KPROBE | KRETPROBE) => of_kind.perf_event.__bindgen_anon_1.kprobe.missed,
            _ => 0,
        }
    };
    Some(missed)
}

/// Program types (`enum bpf_prog_type`).
#[derive(Clone, Copy, Debug)]
#[repr(u32)]
pub enum ProgramKind {
    /// Kprobes and uprobes.
    Kprobe = 2,
    /// At a tracepoint, with the record that the kernel makes for perf.
    Tracepoint = 5,
    /// At a tracepoint, with its arguments.
    RawTracepoint = 17,
    /// `tp_btf` and its like, whose arguments have the types of the kernel's BTF.
    Tracing = 26,
}

/// What the kernel is told of one of a program's functions (`struct bpf_func_info`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct FunctionInfo {
    /// The instruction that it begins at.
    pub offset: u32,
    /// Its number in the program's type information.
    pub type_id: u32,
}

/// A program for the verifier.
#[derive(Debug)]
pub struct Program<'a> {
    /// Its type.
    pub kind: ProgramKind,
    /// Shown by tools; cut to 15 bytes.
    pub name: &'a str,
    /// Its licence, which decides about helpers.
    pub license: &'a CStr,
    /// The linked instructions.
    pub instructions: &'a [bpf_insn],
    /// What the kernel is told of its functions, in their order, the main one first; nothing if none is to be
    /// verified by itself.
    pub functions: &'a [FunctionInfo],
    /// `enum bpf_attach_type`, for [`ProgramKind::Tracing`] and programs at many attach points.
    pub expected_attach: u32,
    /// The hook's type in BTF, for [`ProgramKind::Tracing`].
    pub attach_btf_id: u32,
    /// The BTF of the module that the hook is in; `None` for the kernel's own.
    pub attach_btf: Option<BorrowedFd<'a>>,
    /// Whether it may wait for memory to be read from disk.
    pub sleepable: bool,
}

impl<'a> Program<'a> {
    /// One for a hook that no type tells, of which no function is verified by itself.
    pub fn new(kind: ProgramKind, name: &'a str, instructions: &'a [bpf_insn]) -> Self {
        Self {
            kind,
            name,
            license: LICENSE,
            instructions,
            functions: &[],
            expected_attach: 0,
            attach_btf_id: 0,
            attach_btf: None,
            sleepable: false,
        }
    }
}

/// Gives a program to the verifier, which writes down what it did if it gets a `log` to write to.
/// `types` is the type information that its functions are told in.
pub fn load_program(
    program: &Program<'_>,
    types: Option<BorrowedFd<'_>>,
    log: Option<&mut [u8]>,
) -> io::Result<OwnedFd> {
    let mut attr = ProgLoad {
        kind: program.kind as u32,
        insn_cnt: program.instructions.len() as u32,
        insns: program.instructions.as_ptr() as u64,
        license: program.license.as_ptr() as u64,
        name: object_name(program.name.as_bytes()),
        flags: if program.sleepable { BPF_F_SLEEPABLE } else { 0 },
        expected_attach_type: program.expected_attach,
        attach_btf_id: program.attach_btf_id,
        attach_btf_obj_fd: program.attach_btf.map_or(0, |btf| btf.as_raw_fd() as u32),
        ..ProgLoad::default()
    };
    if let Some(types) = types {
        attr.btf_fd = types.as_raw_fd().cast_unsigned();
        attr.func_info_rec_size = size_of::<FunctionInfo>() as u32;
        attr.func_info = program.functions.as_ptr() as u64;
        attr.func_info_cnt = program.functions.len() as u32;
    }
    if let Some(log) = log {
        attr.log_level = 1;
        attr.log_size = log.len() as u32;
        attr.log_buf = log.as_mut_ptr() as u64;
    }
    loop {
        match bpf(BPF_PROG_LOAD, &mut attr) {
            // A signal interrupts the verifier of a large program.
            Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => {}
            other => return other.map(owned),
        }
    }
}

/// Gives type information of programs to the kernel.
pub fn load_types(btf: &[u8]) -> io::Result<OwnedFd> {
    /// `union bpf_attr` as `BPF_BTF_LOAD` reads it.
    #[repr(C)]
    struct BtfLoad {
        btf: u64,
        log_buf: u64,
        size: u32,
        log_size: u32,
        log_level: u32,
        // Kernels look whether there is anything behind what they know.
        _pad: u32,
    }
    let (size, btf) = (btf.len() as u32, btf.as_ptr() as u64);
    bpf(BPF_BTF_LOAD, &mut BtfLoad { btf, log_buf: 0, size, log_size: 0, log_level: 0, _pad: 0 }).map(owned)
}

/// At which end of functions a program is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FunctionEnd {
    /// Where it begins.
    Entry,
    /// Where it returns.
    Return,
    /// A session.
    Both,
}

/// Attaches a program to many functions of the kernel, by their addresses.
pub fn link_kprobes(program: BorrowedFd<'_>, addresses: &[u64], end: FunctionEnd) -> io::Result<OwnedFd> {
    let both = end == FunctionEnd::Both;
    let mut attr = LinkKprobes {
        prog_fd: program.as_raw_fd() as u32,
        target_fd: 0,
        attach_type: if both { BPF_TRACE_KPROBE_SESSION } else { BPF_TRACE_KPROBE_MULTI },
        flags: 0,
        multi_flags: if end == FunctionEnd::Return { MULTI_RETURN } else { 0 },
        count: addresses.len() as u32,
        symbols: 0,
        addresses: addresses.as_ptr() as u64,
        cookies: 0,
    };
    bpf(BPF_LINK_CREATE, &mut attr).map(owned)
}

/// Attaches a program to many offsets of a file. `cookies` and `reference_counters` are empty or as long as
/// `offsets`, which the caller has made sure of.
pub fn link_uprobes(
    program: BorrowedFd<'_>,
    path: &CStr,
    offsets: &[u64],
    cookies: &[u64],
    reference_counters: &[u64],
    returns: bool,
) -> io::Result<OwnedFd> {
    let if_any = |numbers: &[u64]| if numbers.is_empty() { 0 } else { numbers.as_ptr() as u64 };
    let mut attr = LinkUprobes {
        prog_fd: program.as_raw_fd() as u32,
        target_fd: 0,
        attach_type: BPF_TRACE_UPROBE_MULTI,
        flags: 0,
        path: path.as_ptr() as u64,
        offsets: offsets.as_ptr() as u64,
        reference_counters: if_any(reference_counters),
        cookies: if_any(cookies),
        count: offsets.len() as u32,
        multi_flags: if returns { MULTI_RETURN } else { 0 },
        pid: 0,
        _pad: 0,
    };
    bpf(BPF_LINK_CREATE, &mut attr).map(owned)
}

/// Attaches `program` to a perf event with a cookie (5.15 and later). The link holds the event, so its
/// descriptor may be closed.
pub fn link_perf_event(program: BorrowedFd<'_>, event: BorrowedFd<'_>, cookie: u64) -> io::Result<OwnedFd> {
    let mut attr = LinkCreate {
        prog_fd: program.as_raw_fd() as u32,
        target_fd: event.as_raw_fd() as u32,
        attach_type: BPF_PERF_EVENT,
        flags: 0,
        cookie,
    };
    bpf(BPF_LINK_CREATE, &mut attr).map(owned)
}

/// Attaches a program of type "tracing" to the tracepoint that it was loaded for.
pub fn attach_tracing(program: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let mut attr = RawTracepointOpen { name: 0, prog_fd: program.as_raw_fd() as u32, _pad: 0 };
    bpf(BPF_RAW_TRACEPOINT_OPEN, &mut attr).map(owned)
}

/// Attaches a raw tracepoint program to the tracepoint `name`.
pub fn open_raw_tracepoint(program: BorrowedFd<'_>, name: &CStr) -> io::Result<OwnedFd> {
    let mut attr =
        RawTracepointOpen { name: name.as_ptr() as u64, prog_fd: program.as_raw_fd() as u32, _pad: 0 };
    bpf(BPF_RAW_TRACEPOINT_OPEN, &mut attr).map(owned)
}

/// The same with a cookie for the program (6.10 and later).
pub fn open_raw_tracepoint_with(program: BorrowedFd<'_>, name: &CStr, cookie: u64) -> io::Result<OwnedFd> {
    /// `union bpf_attr` as `BPF_RAW_TRACEPOINT_OPEN` reads it since 6.10.
    #[repr(C)]
    struct WithCookie {
        open: RawTracepointOpen,
        cookie: u64,
    }
    let open = RawTracepointOpen { name: name.as_ptr() as u64, prog_fd: program.as_raw_fd() as u32, _pad: 0 };
    bpf(BPF_RAW_TRACEPOINT_OPEN, &mut WithCookie { open, cookie }).map(owned)
}

/// Runs a raw tracepoint program once with this argument, on any CPU, and gives its return value.
pub fn run_with(program: BorrowedFd<'_>, argument: u64) -> io::Result<i32> {
    let mut attr = TestRun {
        prog_fd: program.as_raw_fd() as u32,
        ctx_size_in: size_of::<u64>() as u32,
        ctx_in: (&raw const argument) as u64,
        ..TestRun::default()
    };
    bpf(BPF_PROG_TEST_RUN, &mut attr)?;
    Ok(attr.retval as i32)
}

/// Runs a raw tracepoint program once on this CPU, in an interrupt there, with this argument, and gives its
/// return value.
///
/// # Errors
/// `ENXIO` if the CPU is offline.
pub fn run_on(program: BorrowedFd<'_>, cpu: u32, argument: u64) -> io::Result<i32> {
    /// `BPF_F_TEST_RUN_ON_CPU` (include/uapi/linux/bpf.h, Linux 5.10).
    const ON_CPU: u32 = 1;
    let mut attr = TestRun {
        prog_fd: program.as_raw_fd() as u32,
        ctx_size_in: size_of::<u64>() as u32,
        ctx_in: (&raw const argument) as u64,
        flags: ON_CPU,
        cpu,
        ..TestRun::default()
    };
    bpf(BPF_PROG_TEST_RUN, &mut attr)?;
    Ok(attr.retval as i32)
}
