//! What programs say of themselves, for who works on them.
//!
//! It is there with the feature `diagnostics` only; without, each of these functions is nothing. They are
//! called where something is rare: at the border of a page, or when a count reaches a power of two. The
//! messages go through aya-log's ring buffer; what has no room in that is not said. The agent sets the level
//! as it does its constants, and of what is above it nothing is loaded either.

use agent_ebpf::CpuControl;
#[cfg(feature = "diagnostics")]
use agent_ebpf::{LossCause, PAGE_HEADER, switched};

/// Defines a message. Each is a function of its own, with a frame of its own.
macro_rules! message {
    ($(#[$doc:meta])* $name:ident($($arg:ident: $ty:ty),*) $body:block) => {
        $(#[$doc])*
        #[cfg(feature = "diagnostics")]
        #[inline(never)]
        pub fn $name($($arg: $ty),*) -> u64 {
            $body
            0
        }

        $(#[$doc])*
        #[cfg(not(feature = "diagnostics"))]
        #[inline(always)]
        pub fn $name($(_: $ty),*) -> u64 {
            0
        }
    };
}

#[cfg(feature = "diagnostics")]
use crate::atomic;
#[cfg(feature = "diagnostics")]
use aya_log_ebpf::{debug, info, warn};

message! {
    /// An event is about to be lost because no page is free; `ctl` is the holder's of the flag.
    ring_is_full(ctl: *const CpuControl) {
        // SAFETY: the map's value, of which these are members; the caller has the flag of the writer.
        let (cpu, lost, head) = unsafe { ((*ctl).cpu, (*ctl).lost[LossCause::RingFull as usize], (*ctl).head) };
        // SAFETY: the map's value, of which this is a member; the agent writes it.
        let consumed = atomic::load(unsafe { &raw const (*ctl).consumed });
        if lost & lost.wrapping_sub(1) == 0 {
            warn!(&(), "CPU {}: no page is free: {} wait for the reader; {} events were lost so far", cpu, head - consumed, lost);
        }
    }
}

message! {
    /// An event is about to be lost because the page that is due has one that asks for a snapshot.
    page_is_kept(ctl: *const CpuControl) {
        // SAFETY: as above.
        let (cpu, lost) = unsafe { ((*ctl).cpu, (*ctl).lost[LossCause::RingFull as usize]) };
        if lost & lost.wrapping_sub(1) == 0 {
            warn!(&(), "CPU {}: the page that is due is kept for a snapshot; {} events were lost so far", cpu, lost);
        }
    }
}

message! {
    /// A page is opened, and events were lost since the one before it; `ctl` is the holder's of the flag.
    page_after_loss(ctl: *const CpuControl, lost: u64) {
        // SAFETY: as above.
        let (cpu, head) = unsafe { ((*ctl).cpu, (*ctl).head) };
        info!(&(), "CPU {}: page {} begins after {} lost events", cpu, head, lost);
    }
}

message! {
    /// A reader was not woken: its ring buffer is full.
    not_woken(reader: u32) {
        warn!(&(), "reader {}: no room for a record that wakes it; the next page tries again", reader);
    }
}

message! {
    /// A page has an event that asks for a snapshot.
    asked_for_snapshot(cpu: u32, page: u64, is_held: bool) {
        if is_held {
            info!(&(), "CPU {}: page {} is kept until its snapshot is taken", cpu, page);
        } else {
            info!(&(), "CPU {}: page {} asks for a snapshot, while another one is taken or none is wanted", cpu, page);
        }
    }
}

message! {
    /// The agent has asked for the open page of a CPU; `outcome` is one of [`switched`].
    page_switched(cpu: u32, used: u32, outcome: i32) {
        match outcome {
            switched::BUSY => debug!(&(), "CPU {}: the open page stays: a program is writing", cpu),
            switched::MORE => debug!(&(), "CPU {}: the open page stays: more in the side queue", cpu),
            _ if used > PAGE_HEADER as u32 => debug!(&(), "CPU {}: the open page was closed at {} bytes", cpu, used),
            _ => debug!(&(), "CPU {}: no page with events is open", cpu),
        }
    }
}

message! {
    /// A record has no room in the side queue.
    side_is_full(ctl: *const CpuControl, bytes: u32) {
        // SAFETY: the map's value, of which these are members: one is set before the gate is opened, the
        // other is only looked at.
        let (cpu, lost) = unsafe { ((*ctl).cpu, (*ctl).lost[LossCause::Nested as usize]) };
        if lost & lost.wrapping_sub(1) == 0 {
            warn!(&(), "CPU {}: no room for {} bytes in the side queue; {} events were lost so far", cpu, bytes, lost);
        }
    }
}

message! {
    /// A thread's name does not come to the agent.
    name_lost(tid: u32) {
        warn!(&(), "thread {}: no room for its name", tid);
    }
}

message! {
    /// A thread's name came to the agent, after an event that changes it.
    name_noted(tid: u32) {
        debug!(&(), "thread {}: its name was noted", tid);
    }
}
