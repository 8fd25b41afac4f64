//! Strings of system calls that were not resident at the entry: copied at the exit, when the call has read
//! them, into the room that the record has for them (`strings`).
//!
//! Nothing of a page is visible to the agent before `head` passes it (`ring`), so a record may be completed
//! while its page is open. Which one it is, [`StringNote`] says: one for each CPU, the last record with room,
//! so that nothing has to be found or freed. What it is about may be over, so the exit takes a note only if
//!
//! - the thread is the one that made it, and has not moved to another CPU since. Then this is its first exit
//!   on any CPU after that entry, because the first one that comes here takes the note: it is the exit of
//!   the same call, and a note that a call left behind, which ended on another CPU, is never taken;
//! - the thread has the same memory: `execve` gives it another, in which the address means something else.
//!   This covers those that fail after the point of no return, too;
//! - the record's page is still open.
//!
//! Otherwise the string stays unavailable, as it does if the address cannot be read at the exit either.
//!
//! # Preemption
//!
//! Up to 7.0, preemption is off in these programs, and of what interrupts them nothing makes notes. Where
//! tracepoints are preemptible (`PREEMPTIBLE`), another task's program may come at any point, on the same
//! CPU:
//!
//! - Notes are written by holders of the flag of the writer, and used by holders: a task that is preempted in
//!   between keeps the flag, and whoever then wants it here gives up. So the exit looks at the thread twice:
//!   before it has the flag, to be fast, and with it, because the note may have become another one's.
//! - A note may be cleared without the flag. At worst it is one that another task has just made, and that
//!   task's string stays unavailable.
//! - The kernel skips a program that it would start on top of itself. If that happens at the exit, the note
//!   stays, and this thread has not moved: so the next entry of the thread with strings drops it.

use agent_ebpf::{CpuControl, PAGE_SIZE, StringNote};

use crate::{
    atomic,
    context::{self, Current},
    fast::{self, Frame},
    globals,
    maps::{CONTROL, PAGES, STRING_NOTES, SYSCALLS},
    parts,
    ring::{self, clamp, give_up, take},
    side, strings, syscalls,
};

/// Copies what the note of this CPU says, if it is about the current thread.
#[inline(always)]
pub fn at_exit(ctx: *const u64, current: &Current) {
    if globals::late_strings() != 0
        && let Some(note) = own_note(current)
    {
        take_up(ctx, note);
    }
}

/// The note of this CPU.
#[inline(always)]
fn note_of(cpu: u32) -> Option<*mut StringNote> {
    STRING_NOTES.get_ptr_mut(cpu, globals::string_notes_len())
}

/// The same if it is about the current thread.
#[inline(always)]
fn own_note(current: &Current) -> Option<*mut StringNote> {
    note_of(context::cpu()).filter(|&note| thread(note) == current.tid.into())
}

/// Whom a note is about.
#[inline(always)]
fn thread(note: *mut StringNote) -> u64 {
    // SAFETY: the map's value, of which this is a member.
    atomic::load(unsafe { &raw const (*note).thread })
}

/// Changes whom a note is about.
#[inline(always)]
fn set_thread(note: *mut StringNote, thread: u64) {
    // SAFETY: the map's value, of which this is a member.
    atomic::store(unsafe { &raw mut (*note).thread }, thread);
}

/// Drops what an earlier call of the thread may have left.
#[inline(always)]
pub fn drop_note(current: &Current) {
    if globals::late_strings() != 0
        && let Some(note) = own_note(current)
    {
        set_thread(note, 0);
    }
}

/// Notes a record of call `nr`, for which `max` bytes were taken, that is about to be committed. Which copies
/// are `missing`, `strings` has told.
#[inline(always)]
pub fn note(frame: *const Frame, (nr, max): (u32, u32), missing: u32, current: &Current) {
    if globals::late_strings() == 0 {
        return;
    }
    let memory = current.memory();
    let Some((ctl, record)) = fast::offset_in_page(frame, max) else { return };
    let Some(note) = note_of(context::cpu()).filter(|_| memory != 0) else { return };
    set_thread(note, 0);
    // SAFETY: the map's values. With space in the page this program has the flag of the writer, to whom
    // `head` and the note belong. Volatile, so that the thread is written last.
    unsafe {
        (&raw mut (*note).migrations).write_volatile(current.migrations());
        (&raw mut (*note).memory).write_volatile(memory);
        (&raw mut (*note).head).write_volatile((*ctl).head);
        (&raw mut (*note).nr).write_volatile(nr);
        (&raw mut (*note).record).write_volatile(record);
        (&raw mut (*note).missing).write_volatile(missing);
    }
    set_thread(note, current.tid.into());
}

/// The rarer half: a function, of which nothing is left to the verifier but that it was called.
#[inline(never)]
fn take_up(ctx: *const u64, note: *mut StringNote) -> u64 {
    let current = Current::get();
    let Some(ctl) = CONTROL.get_ptr_mut(context::cpu(), globals::control_len()) else { return 0 };
    // The gate first, as in `Ring::open`: once it is closed, the agent uses the flag.
    // SAFETY: the map's value, of which this is a member.
    if atomic::load(unsafe { &raw const (*ctl).enabled }) == 0 || !take(ctl) {
        set_thread(note, 0);
        return 0;
    }
    if thread(note) == current.tid.into() {
        set_thread(note, 0);
        // SAFETY: the map's value. It belongs to the holder of the flag, and nobody changes it meanwhile but
        // for the thread.
        complete(ctx, ctl, unsafe { &*note }, &current);
    }
    give_up(ctl);
    // Programs that came meanwhile have left their records to the holder.
    if !side::is_empty(ctl) {
        parts::flush(ring::row_of(ctl));
    }
    0
}

/// Copies the strings into the record that the note is about, if it is about this call, for the holder of the
/// flag.
#[inline(always)]
fn complete(ctx: *const u64, ctl: *mut CpuControl, note: &StringNote, current: &Current) {
    let (regs, _) = syscalls::arguments(ctx);
    if syscalls::number(regs) as u32 != note.nr
        || current.in_compat_syscall()
        || current.migrations() != note.migrations
        || current.memory() != note.memory
    {
        return;
    }
    // SAFETY: the map's value; the caller has the flag, to whom these belong.
    let (head, offset, index) = unsafe { ((*ctl).head, (*ctl).offset, (*ctl).ring_base + (*ctl).page) };
    // Whoever opens a page has completed the one before: of a page with a record, `head` says which it is.
    if head != note.head || note.record >= offset {
        return;
    }
    let Some(slot) = SYSCALLS.get(note.nr) else { return };
    let Some(page) = PAGES.get_ptr_mut(index, globals::pages_len()) else { return };
    let record = clamp::<{ PAGE_SIZE as u32 }>(note.record);
    // SAFETY: the record is one that `strings` has written for this call, and what is in an open page is the
    // holder's of the flag.
    unsafe { strings::complete(page.cast(), record, slot, note.missing) };
}
