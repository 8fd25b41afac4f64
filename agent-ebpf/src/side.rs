//! The side queue: records of programs that interrupted a writer (layout and order: `agent_ebpf`).
//!
//! Programs that append compete only for `side_tail`. Each reads the clock between reading the tail and
//! moving it with a compare-and-exchange: so entries are in time order. Interrupts end in reverse order, so
//! an entry that the owner of the ring sees is complete, unless programs can be preempted; then the marker
//! says so.

use agent_ebpf::{
    CpuControl, KERNEL_STACK_MAX, LossCause, PAGE_SIZE, SIDE_ALIGN, SIDE_RECORD_MAX, SIDE_SKIP, SideEntry,
    USER_STACK_LEN, USER_STACK_RECORDS,
};
use aya_ebpf::{
    helpers::generated::bpf_probe_read_kernel as probe_read, macros::raw_tracepoint,
    programs::RawTracePointContext,
};

use crate::{
    atomic, context, diagnose, globals,
    maps::{CONTROL, SIDE, Side},
    parts,
    ring::{self, LONG_HEADER, Ring, Room, clamp, clamp_to, put, row_of},
    stack,
};

const HEADER: u32 = size_of::<SideEntry>() as u32;
/// How often an append tries again because an interrupt came between.
const TRIES: usize = 4;
/// Says that one is worth it. No position is that large.
const AGAIN: u64 = u64::MAX - 1;
/// Says that there is no room.
const FULL: u64 = u64::MAX;
/// Entries moved at one release; what is left waits for the next event, which adds one itself.
const FLUSH_MAX: usize = 2;

/// An entry that is being filled.
pub struct Entry {
    /// Its header.
    pub header: *mut SideEntry,
    /// Where it is since the start.
    position: u64,
}

/// Whether every entry is in the ring.
#[inline(always)]
pub fn is_empty(ctl: *mut CpuControl) -> bool {
    let (tail, head) = ends(ctl);
    atomic::load(tail) == atomic::load(head)
}

/// The words that say how much was ever taken by entries, and how much of it moved to the ring.
#[inline(always)]
fn ends(ctl: *mut CpuControl) -> (*mut u64, *mut u64) {
    // SAFETY: the map's value, of which these are members.
    unsafe { (&raw mut (*ctl).side_tail, &raw mut (*ctl).side_head) }
}

/// The queue of a CPU.
#[inline(always)]
fn queue(ctl: *mut CpuControl) -> Option<*mut Side> {
    // SAFETY: the map's value; the agent has set the queue's number before it opened the gate.
    SIDE.get_ptr_mut(unsafe { (*ctl).side })
}

/// What is `at` bytes after the start of a queue.
#[inline(always)]
fn within<T>(queue: *mut Side, at: u32) -> *mut T {
    // SAFETY: the map's value: `at` is clamped to what the agent has made its size (`side_bytes`), less the
    // `T`.
    unsafe { queue.cast::<u8>().add(at as usize).cast() }
}

impl Entry {
    /// Appends an entry for a record of at most `max` bytes; `None` if there is no room.
    #[inline(always)]
    pub fn append(ctl: *mut CpuControl, cookie: u32, max: u32) -> Option<Self> {
        let position = append(ctl, HEADER + max, cookie);
        if position == FULL {
            return None;
        }
        let queue = queue(ctl)?;
        let at = clamp_to(offset(position), globals::side_bytes() - HEADER - max);
        Some(Self { header: within(queue, at), position })
    }

    /// The entry that [`Entry::append`] gave, from its parts.
    #[inline(always)]
    pub fn at(header: *mut SideEntry, position: u64) -> Self {
        Self { header, position }
    }

    #[inline(always)]
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Where the record goes.
    #[inline(always)]
    pub fn record(&self) -> *mut u8 {
        // SAFETY: the map's value: `Entry::append` has taken room for a record after the header.
        unsafe { self.header.add(1).cast() }
    }

    /// Lets the owner take the entry. Without a record (`len` 0) it is passed over.
    #[inline(always)]
    pub fn complete(&self, len: u32) {
        // SAFETY: the map's value, of which this is a member.
        let target = unsafe { &raw mut (*self.header).marker };
        atomic::store(target, marker(self.position, len));
    }
}

#[inline(always)]
fn offset(position: u64) -> u32 {
    position as u32 & (globals::side_bytes() - 1)
}

#[inline(always)]
fn marker(position: u64, len: u32) -> u64 {
    (position / SIDE_ALIGN as u64 + 1) << 32 | u64::from(len)
}

/// Takes `size` bytes in one piece, and stamps them. Gives the position, or all ones.
#[inline(never)]
fn append(ctl: *mut CpuControl, size: u32, cookie: u32) -> u64 {
    for _ in 0..TRIES {
        let position = parts::try_append(row_of(ctl), size, cookie);
        if position != AGAIN {
            return position;
        }
    }
    FULL
}

/// The same in the queue of this row; [`AGAIN`] if an interrupt came between.
#[unsafe(no_mangle)]
#[unsafe(link_section = "raw_tp/side_try_append")]
extern "C" fn side_try_append(row: u64, size: u64, cookie: u64) -> u64 {
    match CONTROL.get_ptr_mut(row as u32, globals::control_len()) {
        Some(ctl) => try_append(ctl, size as u32, cookie as u32),
        None => FULL,
    }
}

#[inline(always)]
fn try_append(ctl: *mut CpuControl, size: u32, cookie: u32) -> u64 {
    let size = (size + SIDE_ALIGN as u32 - 1) & !(SIDE_ALIGN as u32 - 1);
    let Some(queue) = queue(ctl) else { return FULL };
    let (side_tail, side_head) = ends(ctl);
    let (tail, head) = (atomic::load(side_tail), atomic::load(side_head));
    let to_end = globals::side_bytes() - offset(tail);
    let skipped = if size > to_end { to_end } else { 0 };
    let next = tail + u64::from(skipped + size);
    if next - head > u64::from(globals::side_bytes()) {
        diagnose::side_is_full(ctl, size);
        return FULL;
    }
    let time = context::now();
    if !atomic::replace(side_tail, tail, next) {
        return AGAIN;
    }
    let position = tail + u64::from(skipped);
    let at = clamp_to(offset(position), globals::side_bytes() - HEADER);
    let header: *mut SideEntry = within(queue, at);
    // SAFETY: the map's value. The exchange has made these bytes, at a multiple of `SIDE_ALIGN`, this
    // program's; the owner of the ring does not read them before the entry has its marker.
    unsafe {
        (*header).time = time;
        (*header).cookie = cookie;
        (*header).size = size;
        (*header).kernel_stack = 0;
        (*header).user_stacks = 0;
    }
    if skipped != 0 {
        // Only the marker: it may be all that fits.
        let at = clamp_to(offset(tail), globals::side_bytes() - 8);
        atomic::store(within(queue, at), marker(tail, SIDE_SKIP));
    }
    position
}

/// `flush_side`: moves what is left in the queue of the CPU that its argument names. Run by the agent at a
/// stop, through `BPF_PROG_TEST_RUN`, when nothing else writes; never attached. Returns how many bytes are
/// left.
#[raw_tracepoint(tracepoint = "sys_enter")]
pub fn flush_side(ctx: RawTracePointContext) -> i32 {
    let cpu: u64 = ctx.arg(0);
    let Some(ctl) = CONTROL.get_ptr_mut(cpu as u32, globals::control_len()) else { return -1 };
    parts::flush(cpu as u32);
    let (tail, head) = ends(ctl);
    (atomic::load(tail) - atomic::load(head)) as i32
}

/// Moves entries of this row to the ring, unless somebody writes there.
#[unsafe(no_mangle)]
#[unsafe(link_section = "raw_tp/side_flush")]
extern "C" fn side_flush(row: u64) -> u64 {
    let Some(ctl) = CONTROL.get_ptr_mut(row as u32, globals::control_len()) else { return 0 };
    if !ring::take(ctl) {
        return 0;
    }
    for _ in 0..FLUSH_MAX {
        if parts::move_entry(row as u32) == 0 {
            break;
        }
    }
    ring::give_up(ctl);
    0
}

/// Moves the oldest entry of this row to the ring, for the holder of the flag. Gives 0 if there is none, or
/// if it is not complete.
#[unsafe(no_mangle)]
#[unsafe(link_section = "raw_tp/side_move_entry")]
extern "C" fn side_move_entry(row: u64) -> u64 {
    CONTROL.get_ptr_mut(row as u32, globals::control_len()).map_or(0, move_entry)
}

#[inline(always)]
fn move_entry(ctl: *mut CpuControl) -> u64 {
    // SAFETY: the map's value; only the holder of the flag changes this word.
    let head = unsafe { (*ctl).side_head };
    // SAFETY: the map's value, of which this is a member.
    if head == atomic::load(unsafe { &raw const (*ctl).side_tail }) {
        return 0;
    }
    let Some(queue) = queue(ctl) else { return 0 };
    let at = clamp_to(offset(head), globals::side_bytes() - 8);
    let marked = atomic::load(within(queue, at));
    if marked & !0xffff_ffff != marker(head, 0) {
        return 0;
    }
    let len = marked as u32;
    if len == SIDE_SKIP {
        // SAFETY: the map's value; only the holder of the flag changes this word.
        unsafe { (*ctl).side_head = head + u64::from(globals::side_bytes() - offset(head)) };
        return 1;
    }
    let at = clamp_to(offset(head), globals::side_bytes() - HEADER);
    let header: *mut SideEntry = within(queue, at);
    // SAFETY: the map's value. The entry has its marker, which is written last, and by this CPU: it is
    // complete, and only the holder of the flag uses it until `side_head` passes it.
    let (time, cookie) = unsafe { ((*header).time, (*header).cookie) };
    if len > 8 {
        if let Some(mut ring) = Ring::at(ctl, row_of(ctl), cookie) {
            // SAFETY: the map's value: the record of `len` bytes follows the header.
            let record: *const u8 = unsafe { header.add(1).cast() };
            move_record(&mut ring, time, record, len);
            if stack::any() {
                move_stacks(ctl, header, time);
            }
        }
    }
    // Read again: kept over the calls they would take stack, of which programs that call this have none to
    // spare.
    // SAFETY: the map's value: a complete entry, as above.
    let size = unsafe { (&raw const (*header).size).read_volatile() };
    let (_, side_head) = ends(ctl);
    let head = atomic::load(side_head);
    // SAFETY: the map's value; only the holder of the flag changes this word.
    unsafe { (*ctl).side_head = head + u64::from(size) };
    1
}

/// Moves the stacks of a complete entry's event.
#[inline(always)]
fn move_stacks(ctl: *mut CpuControl, header: *mut SideEntry, time: u64) {
    // SAFETY: the map's value: a complete entry, which only the holder of the flag uses.
    let (kernel, users) = unsafe { ((*header).kernel_stack, (*header).user_stacks) };
    // SAFETY: as above. In an entry without stacks the offset is what an older one has left.
    let stacks_at = unsafe { (*header).stacks_at };
    // SAFETY: the map's value: a record follows the header.
    let record: *const u8 = unsafe { header.add(1).cast() };
    let mut stacks = record.wrapping_add(stacks_at as usize);
    if kernel != 0 {
        move_stack(ctl, globals::kernel_stack(), time, stacks, kernel.into());
    }
    stacks = stacks.wrapping_add(KERNEL_STACK_MAX);
    for part in 0..USER_STACK_RECORDS {
        if part >= users as usize {
            break;
        }
        move_stack(ctl, globals::user_stack(), time, stacks, USER_STACK_LEN as u32);
        stacks = stacks.wrapping_add(USER_STACK_LEN);
    }
}

/// Moves a record of the event in `slot - 1`.
#[inline(never)]
fn move_stack(ctl: *mut CpuControl, slot: u32, time: u64, record: *const u8, len: u32) -> u64 {
    if slot != 0 {
        if let Some(mut ring) = Ring::at(ctl, row_of(ctl), slot - 1) {
            move_record(&mut ring, time, record, len);
        }
    }
    0
}

/// Writes a queued record to the page. Room for the longest is asked for, whatever its length: with one bound
/// the verifier walks through this once, and what it wastes at the end of a page does not matter for so few
/// records.
#[inline(always)]
fn move_record(ring: &mut Ring, time: u64, record: *const u8, len: u32) {
    const NEED: u32 = LONG_HEADER + SIDE_RECORD_MAX as u32;
    const LAST: u32 = PAGE_SIZE as u32 - NEED;
    let Some(Room { page, at, delta }) = ring.room(time, NEED) else {
        ring.lose(LossCause::RingFull);
        return;
    };
    let words = (len + 3) / 4;
    // A header of 8 bytes suits every length.
    let mut start = clamp::<LAST>(at);
    put(page, start, delta << 5);
    put(page, start + 4, words * 4 + 4);
    start += LONG_HEADER;
    // SAFETY: the map's value: a page, with room for `NEED` bytes from `LAST` on, of which the header is
    // taken.
    let to = unsafe { page.cast::<u8>().add(start as usize) };
    // SAFETY: the length is clamped to the room; the space after the last event is the holder's of the flag.
    // The helper would catch a fault at the source.
    unsafe { probe_read(to.cast(), clamp::<{ SIDE_RECORD_MAX as u32 }>(len), record.cast()) };
    ring.commit(delta.into(), start + words * 4);
}
