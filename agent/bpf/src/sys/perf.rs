//! perf_event_open(2): events that programs are attached to, counters, and announcements of mappings.

use std::{ffi::CStr, io, os::fd::OwnedFd};

use super::owned;

// include/uapi/linux/perf_event.h.
const PERF_TYPE_SOFTWARE: u32 = 1;
const PERF_TYPE_TRACEPOINT: u32 = 2;
const PERF_COUNT_SW_DUMMY: u64 = 9;
const PERF_FLAG_FD_CLOEXEC: libc::c_ulong = 8;
const PERF_ATTR_DISABLED: u64 = 1;
const PERF_ATTR_MMAP: u64 = 1 << 8;
const PERF_ATTR_TASK: u64 = 1 << 13;
const PERF_ATTR_WATERMARK: u64 = 1 << 14;
const PERF_ATTR_MMAP2: u64 = 1 << 23;
const PERF_ATTR_BUILD_ID: u64 = 1 << 34;

/// `struct perf_event_attr`, `PERF_ATTR_SIZE_VER1`.
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
    config2: u64,
}

/// Opens a perf event for the tracepoint with this id, as a handle to attach a program to.
///
/// It belongs to the calling thread only and is not enabled: a program attached through it runs for
/// everybody, but the event itself never counts, so that the program's "do not hide" return value costs
/// nothing.
pub fn open_tracepoint(id: u16) -> io::Result<OwnedFd> {
    let mut attr = PerfEventAttr {
        kind: PERF_TYPE_TRACEPOINT,
        size: size_of::<PerfEventAttr>() as u32,
        config: id.into(),
        flags: PERF_ATTR_DISABLED,
        ..PerfEventAttr::default()
    };
    let (this_thread, any_cpu) = (0, -1);
    open_event(&mut attr, this_thread, any_cpu)
}

/// Opens a counter of everything that happens on `cpu`.
pub fn open_counter(kind: u32, config: u64, cpu: u32) -> io::Result<OwnedFd> {
    let mut attr =
        PerfEventAttr { kind, size: size_of::<PerfEventAttr>() as u32, config, ..PerfEventAttr::default() };
    let everybody = -1;
    open_event(&mut attr, everybody, cpu.cast_signed())
}

/// Opens an event that never counts and announces what the processes on `cpu` map as code, and which are
/// created. Its descriptor is readable when `watermark` bytes wait.
pub fn open_mapping_events(cpu: u32, watermark: u32) -> io::Result<OwnedFd> {
    let flags = PERF_ATTR_MMAP | PERF_ATTR_MMAP2 | PERF_ATTR_TASK | PERF_ATTR_WATERMARK;
    let open = |flags| {
        let mut attr = PerfEventAttr {
            kind: PERF_TYPE_SOFTWARE,
            size: size_of::<PerfEventAttr>() as u32,
            config: PERF_COUNT_SW_DUMMY,
            flags,
            wakeup_events: watermark,
            ..PerfEventAttr::default()
        };
        let everybody = -1;
        open_event(&mut attr, everybody, cpu.cast_signed())
    };
    // Older kernels refuse bits that they do not know.
    open(flags | PERF_ATTR_BUILD_ID).or_else(|_| open(flags))
}

fn open_event(attr: &mut PerfEventAttr, thread: libc::c_int, cpu: libc::c_int) -> io::Result<OwnedFd> {
    const NO_GROUP: libc::c_int = -1;
    let attr: *mut PerfEventAttr = attr;
    // SAFETY: `attr` is valid, its size is in it, and what it points to outlives the call.
    let result = unsafe {
        libc::syscall(libc::SYS_perf_event_open, attr, thread, cpu, NO_GROUP, PERF_FLAG_FD_CLOEXEC)
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(owned(result)) }
}

/// A kprobe or uprobe as `perf_event_attr` describes it (include/uapi/linux/perf_event.h).
#[derive(Debug)]
pub struct ProbeEvent<'a> {
    /// Number of the perf unit (`/sys/bus/event_source/devices/{kprobe,uprobe}/type`).
    pub kind: u32,
    /// Flags, and the file offset of a reference counter, as the unit's `format` places them.
    pub config: u64,
    /// Where it is.
    pub location: ProbeLocation<'a>,
}

/// Where a [`ProbeEvent`] is.
#[derive(Clone, Copy, Debug)]
pub enum ProbeLocation<'a> {
    /// `kprobe_func` or `uprobe_path`, and `probe_offset`.
    Named(&'a CStr, u64),
    /// `kprobe_addr`, which is what `probe_offset` is where `kprobe_func` is 0 (`perf_kprobe_init`,
    /// kernel/trace/trace_event_perf.c).
    Address(u64),
}

/// Opens a perf event for a probe of its own, as a handle to attach a program to. It is not enabled, and so
/// counts nothing.
pub fn open_probe(probe: &ProbeEvent<'_>) -> io::Result<OwnedFd> {
    let (config1, config2) = match probe.location {
        ProbeLocation::Named(name, offset) => (name.as_ptr() as u64, offset),
        ProbeLocation::Address(address) => (0, address),
    };
    let mut attr = PerfEventAttr {
        kind: probe.kind,
        size: size_of::<PerfEventAttr>() as u32,
        config: probe.config,
        flags: PERF_ATTR_DISABLED,
        config1,
        config2,
        ..PerfEventAttr::default()
    };
    // With a thread, a uprobe is placed in that thread's process only.
    let (every_process, cpu) = (-1, 0);
    open_event(&mut attr, every_process, cpu)
}
