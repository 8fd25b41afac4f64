//! Memory shared with eBPF programs: a mapped `BPF_F_MMAPABLE` array.

use std::{
    io,
    marker::PhantomData,
    os::fd::{AsFd, AsRawFd as _},
    ptr::NonNull,
    sync::atomic::{AtomicU64, Ordering},
};

use agent_ebpf::{CpuBorder, CpuControl, EventLedger, EventSlot, PAGE_SIZE, PageMeta, SyscallSlot, sets};
use memmap2::{Advice, MmapOptions, MmapRaw};

/// Types that any bytes are a valid value of, and that agree with their eBPF side in size and layout.
///
/// # Safety
/// The type is `repr(C)` or a primitive, has no niches and no references, and its size is a multiple of 8.
pub unsafe trait Shared: Copy {}

// SAFETY: all of them are plain integers, or `repr(C)` structures and arrays of integers, with layout asserts
// in agent-ebpf.
unsafe impl Shared for u64 {}
// SAFETY: as above.
unsafe impl Shared for [u8; PAGE_SIZE] {}
// SAFETY: as above.
unsafe impl Shared for CpuControl {}
// SAFETY: as above.
unsafe impl Shared for CpuBorder {}
// SAFETY: as above.
unsafe impl Shared for PageMeta {}
// SAFETY: as above.
unsafe impl Shared for EventSlot {}
// SAFETY: as above.
unsafe impl Shared for EventLedger {}
// SAFETY: as above.
unsafe impl Shared for sets::Owner {}

// SAFETY: as above.
unsafe impl Shared for SyscallSlot {}

/// An array map's elements, in this process's memory.
///
/// Elements are only ever reached through raw pointers: the other side changes them at any time, so a
/// reference would be a lie. Typed views ([`super::CpuRing`], [`super::Control`]) give the fields that each
/// side owns.
#[derive(Debug)]
pub struct SharedArray<T> {
    map: MmapRaw,
    len: usize,
    _element: PhantomData<*mut T>,
}

// SAFETY: the mapping is valid from any thread, and all access is through raw pointers or atomics whose users
// state who owns what.
unsafe impl<T: Shared> Send for SharedArray<T> {}
// SAFETY: as above.
unsafe impl<T: Shared> Sync for SharedArray<T> {}

impl<T: Shared> SharedArray<T> {
    /// Maps the `len` elements of the array map behind `fd`.
    ///
    /// The kernel rounds an element's size up to 8 bytes (`array_map_alloc`, kernel/bpf/arraymap.c); all
    /// shared types are multiples of 8, which is asserted.
    pub fn map(fd: impl AsFd, len: usize) -> io::Result<Self> {
        const { assert!(size_of::<T>().is_multiple_of(8)) };
        let bytes = len * size_of::<T>();
        let map = MmapOptions::new().len(bytes).map_raw(fd.as_fd().as_raw_fd())?;
        // The detacher, a child that outlives the recording by minutes, must not keep this memory alive.
        map.advise(Advice::DontFork)?;
        Ok(Self { map, len, _element: PhantomData })
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// A pointer to element `index`, valid as long as `self`.
    pub fn get(&self, index: usize) -> Option<NonNull<T>> {
        if index >= self.len {
            return None;
        }
        // SAFETY: `index` is within the mapping, which is page aligned and holds `len` elements.
        NonNull::new(unsafe { self.map.as_mut_ptr().cast::<T>().add(index) })
    }

    /// A copy of element `index`, each word as it was at some moment of the call.
    pub fn read(&self, index: usize) -> Option<T> {
        // SAFETY: the pointer is valid, and any bytes are a valid `T`.
        self.get(index).map(|p| unsafe { p.as_ptr().read_volatile() })
    }

    /// Replaces element `index`; `false` if there is none. For elements that no program uses yet.
    pub fn write(&self, index: usize, value: T) -> bool {
        self.get(index).is_some_and(|p| {
            // SAFETY: the pointer is valid for writes.
            unsafe { p.as_ptr().write_volatile(value) };
            true
        })
    }
}

impl SharedArray<u64> {
    /// Replaces a number that programs read at any time.
    pub fn store(&self, index: usize, value: u64) {
        if let Some(word) = self.get(index) {
            // SAFETY: the word is an aligned u64 in the mapping, and programs read it atomically.
            unsafe { AtomicU64::from_ptr(word.as_ptr()) }.store(value, Ordering::SeqCst);
        }
    }

    /// Subtracts from a number that programs add to at any time. It is at least as much.
    pub fn subtract(&self, index: usize, value: u64) {
        if let Some(word) = self.get(index) {
            // SAFETY: the word is an aligned u64 in the mapping, and programs change it atomically too.
            unsafe { AtomicU64::from_ptr(word.as_ptr()) }.fetch_sub(value, Ordering::SeqCst);
        }
    }

    /// Sets bits of a number that programs change at any time.
    pub fn set_bits(&self, index: usize, bits: u64) {
        if let Some(word) = self.get(index) {
            // SAFETY: the word is an aligned u64 in the mapping, and programs change it atomically too.
            unsafe { AtomicU64::from_ptr(word.as_ptr()) }.fetch_or(bits, Ordering::SeqCst);
        }
    }

    /// Clears bits of a number that programs change at any time.
    pub fn clear_bits(&self, index: usize, bits: u64) {
        if let Some(word) = self.get(index) {
            // SAFETY: as in `set_bits`.
            unsafe { AtomicU64::from_ptr(word.as_ptr()) }.fetch_and(!bits, Ordering::SeqCst);
        }
    }
}
