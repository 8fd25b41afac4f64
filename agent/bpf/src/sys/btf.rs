//! The kernel's own objects of types: one for the kernel, one for each module.
//!
//! To walk through them takes `CAP_SYS_ADMIN`, as to get a descriptor of one: without it a program cannot be
//! loaded for a module's types at all.

use std::{
    io,
    os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd},
};

use super::{BPF_OBJ_GET_INFO_BY_FD, GetInfo, bpf, owned};

// include/uapi/linux/bpf.h, enum bpf_cmd.
const BPF_BTF_GET_FD_BY_ID: libc::c_int = 19;
const BPF_BTF_GET_NEXT_ID: libc::c_int = 23;

/// Bytes of a name, NUL included: those of modules have up to 56 (`MODULE_NAME_LEN`).
const NAME_MAX: usize = 64;
/// The largest blob that is taken: some hundred times what the largest module's has.
const BLOB_MAX: u32 = 64 << 20;

/// `struct bpf_btf_info`.
#[repr(C)]
#[derive(Default)]
struct Info {
    btf: u64,
    btf_size: u32,
    id: u32,
    name: u64,
    name_len: u32,
    kernel_btf: u32,
}

/// An object of types that the kernel made itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelTypes {
    /// Its number, which no other one gets as long as this one is there.
    pub id: u32,
    /// `vmlinux`, or a module's name.
    pub name: String,
}

/// All that there are now.
pub fn kernel_types() -> io::Result<Vec<KernelTypes>> {
    let mut found = Vec::new();
    let mut after = 0;
    while let Some(id) = next_id(after)? {
        // Numbers go up: what does not is no answer of the kernel's.
        if id <= after {
            return Err(io::ErrorKind::InvalidData.into());
        }
        after = id;
        // It may be gone meanwhile.
        let Some(object) = open_if_there(id)? else { continue };
        let mut name = [0; NAME_MAX];
        let info = info(object.as_fd(), &mut name, &mut [])?;
        if info.kernel_btf != 0 {
            found.push(KernelTypes { id, name: text(&name) });
        }
    }
    Ok(found)
}

/// A descriptor of the object of this number, which is closed when a program is executed.
pub fn open(id: u32) -> io::Result<OwnedFd> {
    /// `union bpf_attr` as `BPF_BTF_GET_FD_BY_ID` reads it.
    #[repr(C)]
    struct GetFd {
        id: u32,
        next_id: u32,
        open_flags: u32,
    }
    // The kernel sets close-on-exec by itself (`btf_new_fd`, kernel/bpf/btf.c).
    bpf(BPF_BTF_GET_FD_BY_ID, &mut GetFd { id, next_id: 0, open_flags: 0 }).map(owned)
}

/// The blob of an object.
pub fn blob(object: BorrowedFd<'_>) -> io::Result<Vec<u8>> {
    let size = info(object, &mut [], &mut [])?.btf_size;
    if size > BLOB_MAX {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    let mut blob = vec![0; size as usize];
    let told = info(object, &mut [], &mut blob)?.btf_size;
    if told == size { Ok(blob) } else { Err(io::ErrorKind::InvalidData.into()) }
}

/// The number after this one, if there is one.
fn next_id(after: u32) -> io::Result<Option<u32>> {
    /// `union bpf_attr` as `BPF_BTF_GET_NEXT_ID` reads it.
    #[repr(C)]
    struct NextId {
        after: u32,
        found: u32,
        open_flags: u32,
    }
    let mut attr = NextId { after, found: 0, open_flags: 0 };
    match bpf(BPF_BTF_GET_NEXT_ID, &mut attr) {
        Ok(_) => Ok(Some(attr.found)),
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(None),
        Err(error) => Err(error),
    }
}

fn open_if_there(id: u32) -> io::Result<Option<OwnedFd>> {
    match open(id) {
        Ok(object) => Ok(Some(object)),
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Asks about an object; the kernel writes as much of its name and its blob as there is room for.
fn info(object: BorrowedFd<'_>, name: &mut [u8], blob: &mut [u8]) -> io::Result<Info> {
    let mut info = Info {
        btf: if blob.is_empty() { 0 } else { blob.as_mut_ptr() as u64 },
        btf_size: blob.len() as u32,
        name: if name.is_empty() { 0 } else { name.as_mut_ptr() as u64 },
        name_len: name.len() as u32,
        ..Info::default()
    };
    let mut attr = GetInfo {
        fd: object.as_raw_fd() as u32,
        len: size_of::<Info>() as u32,
        info: (&raw mut info) as u64,
    };
    bpf(BPF_OBJ_GET_INFO_BY_FD, &mut attr)?;
    Ok(info)
}

fn text(name: &[u8]) -> String {
    String::from_utf8_lossy(name.split(|&byte| byte == 0).next().unwrap_or_default()).into_owned()
}
