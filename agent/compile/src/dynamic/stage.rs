//! What a probe's filter looks at, or what counts it, on the program's stack.

use super::{
    fetch::{Fetch, Kind},
    layout::Layout,
};
use crate::aggregate::Counter;
use crate::filter::{FAST_TEXT_MAX, Program};
use crate::probe_filter::{ProbeFilterError, ProbeRule, STAGE_MAX};

/// Room of a text: what filters see of it, the NUL, and one that tells whether it is longer.
const TEXT_ROOM: u32 = FAST_TEXT_MAX + 2;
/// With less than this too little is seen of a text.
const TEXT_ROOM_MIN: u32 = 64;

/// A filter with the fields that it looks at.
#[derive(Clone, Debug)]
pub(super) struct Stage {
    /// The filter, if there is one.
    pub(super) filter: Option<Program>,
    /// What counts the records, if they are not recorded.
    pub(super) counter: Option<Counter>,
    /// The addresses in front of the arguments: which of them, and where.
    pub(super) addresses: Vec<(usize, u32)>,
    pub(super) arguments: Vec<StagedArgument>,
    /// Bytes of all, a multiple of 8.
    pub(super) size: u32,
}

/// An argument that a filter looks at.
#[derive(Clone, Copy, Debug)]
pub(super) struct StagedArgument {
    /// Which one.
    pub(super) index: usize,
    /// Where its field is.
    pub(super) offset: u32,
    /// Where its text is.
    pub(super) text_at: u32,
    /// Room of the text.
    pub(super) room: u32,
}

impl Stage {
    /// What the filter needs of the event of `layout`; `None` if there is none, or it always holds.
    pub(super) fn new(
        layout: &Layout,
        rule: &ProbeRule<'_>,
        preemptible: bool,
    ) -> Result<Option<Self>, ProbeFilterError> {
        let Some(staged) = rule.stage(&layout.shape(), preemptible)? else { return Ok(None) };
        let (addresses, arguments) = staged.offsets.split_at(layout.address_fields());
        let found = |offsets: &[Option<u32>]| -> Vec<(usize, u32)> {
            offsets.iter().enumerate().filter_map(|(index, at)| Some((index, (*at)?))).collect()
        };
        let known = |index: usize| {
            let (argument, room) = (layout.arguments.get(index)?, *layout.rooms.get(index)?);
            match (&argument.fetch, argument.kind) {
                (Fetch::Comm | Fetch::Text(_), Kind::Text { .. }) => Some(room),
                (_, Kind::Text { .. }) => None,
                _ => Some(0),
            }
        };
        let arguments = found(arguments);
        let taken: u32 = staged.end + arguments.iter().filter_map(|&(index, _)| known(index)).sum::<u32>();
        let open = arguments.iter().filter(|&&(index, _)| known(index).is_none()).count() as u32;
        let share = STAGE_MAX.saturating_sub(taken).checked_div(open).unwrap_or(0).min(TEXT_ROOM);
        if taken > STAGE_MAX || open != 0 && share < TEXT_ROOM_MIN {
            return Err(ProbeFilterError::Room(taken + open * TEXT_ROOM_MIN));
        }
        let mut text_at = staged.end;
        let lay_out = |(index, offset)| {
            let room = known(index).unwrap_or(share);
            let staged = StagedArgument { index, offset, text_at, room };
            text_at += room;
            staged
        };
        let arguments = arguments.into_iter().map(lay_out).collect();
        let size = text_at.next_multiple_of(8);
        let (filter, counter) = (staged.program, staged.counter);
        Ok(Some(Self { filter, counter, addresses: found(addresses), arguments, size }))
    }
}
