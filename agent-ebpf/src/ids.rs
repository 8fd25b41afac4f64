//! Ids of threads as their own namespaces number them.
//!
//! All are read through the addresses that the kernel's BTF gives, by helpers that catch the fault of a wrong
//! one. Where the offsets are not known, the agent asks for none of them.

use aya_ebpf::helpers::bpf_probe_read_kernel;

use crate::globals;

/// Ids of one kind, and the map of a user namespace that is for them.
#[derive(Clone, Copy)]
pub struct Kind {
    /// Offset of the real id in `struct cred`.
    of_cred: u32,
    /// Offset of the map in `struct user_namespace`.
    map: u32,
    /// The id that stands for those that the map does not have.
    overflow: u32,
}

impl Kind {
    /// Users.
    #[inline(always)]
    pub fn user() -> Self {
        Self {
            of_cred: globals::cred_uid(),
            map: globals::user_ns_uid_map(),
            overflow: globals::overflow_uid(),
        }
    }

    /// Groups.
    #[inline(always)]
    pub fn group() -> Self {
        Self {
            of_cred: globals::cred_gid(),
            map: globals::user_ns_gid_map(),
            overflow: globals::overflow_gid(),
        }
    }
}

/// Extents that a namespace's map has in itself, and at most (`UID_GID_MAP_MAX_BASE_EXTENTS` and
/// `UID_GID_MAP_MAX_EXTENTS`, include/linux/user_namespace.h).
const BASE_EXTENTS: u32 = 5;
/// Halvings that leave one of 340 extents.
const HALVINGS: u32 = 9;

/// `struct uid_gid_extent` (include/linux/user_namespace.h): `count` ids from `first` on inside of a
/// namespace are those from `lower` on of the kernel.
#[derive(Clone, Copy)]
#[repr(C)]
struct Extent {
    first: u32,
    lower: u32,
    count: u32,
}

impl Extent {
    #[inline(always)]
    fn map(self, id: u32) -> Option<u32> {
        let offset = id.wrapping_sub(self.lower);
        if id >= self.lower && offset < self.count { Some(self.first.wrapping_add(offset)) } else { None }
    }
}

/// The process of a task, as its own pid namespace numbers it (`task_tgid_vnr`, include/linux/pid.h); 0 if
/// the task has left it.
#[inline(always)]
pub fn virtual_process(task: u64) -> u32 {
    let number = || {
        let signal = pointer(task, globals::task_signal())?;
        let pid = pointer(signal, globals::signal_tgid())?;
        // All threads of a process are in the namespace of its id's last level (`pid_nr_ns`, kernel/pid.c).
        let level: u32 = read(pid + u64::from(globals::pid_level()))?;
        read(pid + u64::from(globals::pid_nr()) + u64::from(level) * u64::from(globals::upid_size()))
    };
    number().unwrap_or(0)
}

/// The real user or group of a task, as its own user namespace numbers it (`from_kuid_munged` of
/// `current_user_ns`, kernel/user_namespace.c).
#[inline(always)]
pub fn virtual_owner(task: u64, kind: Kind) -> u32 {
    let found = || {
        let cred = pointer(task, globals::task_cred())?;
        let id: u32 = read(cred + u64::from(kind.of_cred))?;
        let map = pointer(cred, globals::cred_user_ns())? + u64::from(kind.map);
        let count: u32 = read(map + u64::from(globals::id_map_count()))?;
        if count <= BASE_EXTENTS { in_base(map, count, id) } else { in_array(map, count, id) }
    };
    found().unwrap_or(kind.overflow)
}

/// `map_id_up_base`, kernel/user_namespace.c.
#[inline(always)]
fn in_base(map: u64, count: u32, id: u32) -> Option<u32> {
    let extents = map + u64::from(globals::id_map_extents());
    for index in 0..BASE_EXTENTS {
        if index >= count {
            break;
        }
        let extent: Extent = read(extents + u64::from(index) * size_of::<Extent>() as u64)?;
        if let Some(inside) = extent.map(id) {
            return Some(inside);
        }
    }
    None
}

/// `map_id_up_max`, kernel/user_namespace.c: `reverse` has the extents in the order of the kernel's ids.
#[inline(always)]
fn in_array(map: u64, count: u32, id: u32) -> Option<u32> {
    let extents: u64 = read(map + u64::from(globals::id_map_reverse()))?;
    let (mut low, mut high) = (0, count);
    for _ in 0..HALVINGS {
        if low >= high {
            break;
        }
        let middle = (low + high) / 2;
        let extent: Extent = read(extents + u64::from(middle) * size_of::<Extent>() as u64)?;
        if let Some(inside) = extent.map(id) {
            return Some(inside);
        }
        if id < extent.lower { high = middle } else { low = middle + 1 }
    }
    None
}

/// The pointer at an offset of a structure; `None` where it leads nowhere.
#[inline(always)]
fn pointer(of: u64, offset: u32) -> Option<u64> {
    read(of + u64::from(offset)).filter(|&pointer: &u64| pointer != 0)
}

/// Reads integers, of which any bytes are some.
#[inline(always)]
fn read<T>(address: u64) -> Option<T> {
    // SAFETY: the helper catches the fault of a wrong address. All callers ask for integers or structures of
    // them, of which any bytes are one.
    unsafe { bpf_probe_read_kernel(address as *const T) }.ok()
}
