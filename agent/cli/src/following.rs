//! What the commands that follow a recording have in common: waiting, and what users are told of it.

use std::os::fd::BorrowedFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::{exit::ExitCode, tell, units::count};
use capture::follow::{Follower, Progress};
use tracedat::ledger::buffer_title;

/// How often it is looked for new events, in nanoseconds. The recorder does not wake anybody who follows.
pub(super) const AGAIN: i64 = 200_000_000;

/// Says what is in memory until the recording ends. `done` is what becomes of events: printed, counted.
pub(super) fn tell_not_followed(follower: &Follower, done: &str) {
    let dir = follower.dir().display();
    if follower.is_overwriting() {
        tell(&format!(
            "tracer-agent: {dir}: a flight recorder (--overwrite) has its events in memory until it ends; they \
             are {done} then"
        ));
    }
    for buffer in follower.not_followed() {
        tell(&format!(
            "tracer-agent: {dir}: {} has its events in memory until the recording ends (--overwrite); \
             they are in its file then, and not {done} here",
            buffer_title(buffer)
        ));
    }
}

/// Says, once, that events were removed before they came here.
pub(super) fn tell_behind(follower: &Follower, is_told: &mut bool, done: &str) {
    if follower.fell_behind() != 0 && !std::mem::replace(is_told, true) {
        tell(&format!("tracer-agent: the recording's size limit removes events before they are {done}"));
    }
}

/// Says at the end how many events are missing, or are not in their order.
pub(super) fn tell_inexact(follower: &Follower, done: &str) {
    let behind = follower.fell_behind();
    if behind != 0 {
        tell(&format!(
            "tracer-agent: fell behind: the recording's size limit removed {} events before they were {done}",
            count(behind)
        ));
    }
    let late = follower.late();
    if late != 0 {
        tell(&format!(
            "tracer-agent: {} events are {done} behind later ones: the times of their CPU went back, or it \
             was not known that they would come",
            count(late)
        ));
    }
}

/// Says that a recording has not come to a good end, and gives the exit code for that.
pub(super) fn tell_end(follower: &Follower, progress: Progress, done: &str) -> Option<ExitCode> {
    let dir = follower.dir().display();
    match progress {
        Progress::Left => tell(&format!(
            "tracer-agent: the recorder of {dir} was killed; this is what it had stored; \
             `tracer-agent recover {dir}` makes a trace file of it"
        )),
        Progress::Gone if follower.unread() != 0 => tell(&format!(
            "tracer-agent: {dir} was removed, and the file of the recording is not in its place: {} \
             events could not be {done}",
            count(follower.unread())
        )),
        _ => return None,
    }
    Some(ExitCode::Failure)
}

/// Waits for so many nanoseconds, or until the other end of one of these is closed. With the output among
/// them it is noticed before the next event that its reader has gone.
pub(super) fn is_closed_within(nanoseconds: i64, ends: &[BorrowedFd<'_>]) -> bool {
    let mut fds: Vec<PollFd<'_>> =
        ends.iter().map(|end| PollFd::from_borrowed_fd(*end, PollFlags::empty())).collect();
    let (tv_sec, tv_nsec) = (nanoseconds / 1_000_000_000, nanoseconds % 1_000_000_000);
    // An interrupted wait is a short one.
    let _ = poll(&mut fds, Some(&Timespec { tv_sec, tv_nsec }));
    fds.iter().any(|fd| fd.revents().intersects(PollFlags::ERR | PollFlags::HUP))
}
