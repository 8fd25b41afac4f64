//! The system calls that aya does not make: bpf(2) links with a cookie, test runs on a chosen CPU, perf_event_open(2).

use std::{
    ffi::CStr,
    io,
    os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd},
};

// include/uapi/linux/bpf.h, enum bpf_cmd and enum bpf_attach_type.
const BPF_PROG_TEST_RUN: libc::c_int = 10;
const BPF_RAW_TRACEPOINT_OPEN: libc::c_int = 17;
const BPF_LINK_CREATE: libc::c_int = 28;
const BPF_PERF_EVENT: u32 = 41;
const BPF_F_TEST_RUN_ON_CPU: u32 = 1;

// include/uapi/linux/perf_event.h.
const PERF_TYPE_TRACEPOINT: u32 = 2;
const PERF_FLAG_FD_CLOEXEC: libc::c_ulong = 8;
const PERF_ATTR_DISABLED: u64 = 1;

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

/// `struct perf_event_attr`, `PERF_ATTR_SIZE_VER0`.
#[repr(C)]
#[derive(Default)]
struct PerfEventAttr {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    bp_type: u32,
    config1: u64,
}

fn bpf<T>(cmd: libc::c_int, attr: &mut T) -> io::Result<libc::c_long> {
    // SAFETY: `attr` is a valid, fully initialised object of the size given; the kernel reads and writes only that much.
    let result = unsafe { libc::syscall(libc::SYS_bpf, cmd, std::ptr::from_mut(attr), size_of::<T>()) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

fn owned(fd: libc::c_long) -> OwnedFd {
    // SAFETY: the kernel just returned this descriptor to us and nobody else owns it.
    unsafe { OwnedFd::from_raw_fd(fd as libc::c_int) }
}

/// Opens a perf event for the tracepoint with this id, as a handle to attach a program to.
///
/// It belongs to the calling thread only and is not enabled: a program attached through it runs for everybody, but the event
/// itself never counts, so that the program's "do not hide" return value costs nothing.
pub(super) fn open_tracepoint(id: u16) -> io::Result<OwnedFd> {
    let mut attr = PerfEventAttr {
        kind: PERF_TYPE_TRACEPOINT,
        size: size_of::<PerfEventAttr>() as u32,
        config: id.into(),
        flags: PERF_ATTR_DISABLED,
        ..PerfEventAttr::default()
    };
    let (this_thread, any_cpu, no_group) = (0, -1, -1);
    // SAFETY: `attr` is valid and its size is in it.
    let result = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            &raw mut attr,
            this_thread,
            any_cpu,
            no_group,
            PERF_FLAG_FD_CLOEXEC,
        )
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(owned(result)) }
}

/// Attaches `program` to a perf event with a cookie (5.15 and later). The link holds the event, so its descriptor
/// may be closed.
pub(super) fn link_perf_event(
    program: BorrowedFd<'_>,
    event: BorrowedFd<'_>,
    cookie: u64,
) -> io::Result<OwnedFd> {
    let mut attr = LinkCreate {
        prog_fd: program.as_raw_fd() as u32,
        target_fd: event.as_raw_fd() as u32,
        attach_type: BPF_PERF_EVENT,
        flags: 0,
        cookie,
    };
    bpf(BPF_LINK_CREATE, &mut attr).map(owned)
}

/// Attaches a raw tracepoint program to the tracepoint `name`.
pub(super) fn open_raw_tracepoint(program: BorrowedFd<'_>, name: &CStr) -> io::Result<OwnedFd> {
    let mut attr =
        RawTracepointOpen { name: name.as_ptr() as u64, prog_fd: program.as_raw_fd() as u32, _pad: 0 };
    bpf(BPF_RAW_TRACEPOINT_OPEN, &mut attr).map(owned)
}

/// Runs a raw tracepoint program once on `cpu` (5.10 and later) and gives its return value.
pub(super) fn run_on_cpu(program: BorrowedFd<'_>, cpu: u32) -> io::Result<i32> {
    let mut attr = TestRun {
        prog_fd: program.as_raw_fd() as u32,
        flags: BPF_F_TEST_RUN_ON_CPU,
        cpu,
        ..TestRun::default()
    };
    bpf(BPF_PROG_TEST_RUN, &mut attr)?;
    Ok(attr.retval as i32)
}
