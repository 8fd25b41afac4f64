//! One file from one.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Seek, Write};
use std::ops::Range;

use super::super::reader::{Reader, Source};
use super::error::RewriteError;
use super::head::Head;
use super::output::{Beginning, BufferPlan, Inputs, write_file};
use super::stream::{Change, Piece, Position, last_record};
use super::{Rewritten, Target, Watch};

/// What of a file is kept: everything, unless said otherwise.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// Only the buffers of these names, empty for the top one.
    pub buffers: Option<BTreeSet<String>>,
    /// Only these CPUs.
    pub cpus: Option<BTreeSet<u32>>,
    /// All events but those with these numbers.
    pub without_events: BTreeSet<u16>,
    /// Only these pages of each CPU, counted from its first.
    pub pages: Option<Range<u64>>,
}

impl Selection {
    fn has_buffer(&self, name: &str) -> bool {
        self.buffers.as_ref().is_none_or(|buffers| buffers.contains(name))
    }

    fn has_cpu(&self, cpu: u32) -> bool {
        self.cpus.as_ref().is_none_or(|cpus| cpus.contains(&cpu))
    }

    /// Whether everything is kept.
    pub(super) fn is_all(&self) -> bool {
        *self == Self::default()
    }

    /// A piece between these positions.
    fn cut<S: Source>(&self, reader: &Reader<S>, piece: Piece, (from, to): (Position, Position)) -> Piece {
        if self.pages.is_none() || !piece.has_losses() {
            return Piece { from, to, ..piece };
        }
        let has_last = last_record(reader, piece.buffer, piece.cpu).is_none_or(|last| last < to);
        Piece {
            from,
            to,
            before: piece.before.filter(|_| from == Position::START),
            behind: piece.behind.filter(|_| has_last),
            ..piece
        }
    }

    /// What this does to records.
    pub(super) fn change(&self) -> Change {
        if self.without_events.is_empty() {
            return Change::default();
        }
        let keep = |id: u16| if self.without_events.contains(&id) { 0 } else { id };
        Change { ids: Some((0..=u16::MAX).map(keep).collect()), correct: false }
    }

    /// The buffers of a reader as they are to be written.
    pub(super) fn plan<S: Source>(&self, reader: &Reader<S>) -> Vec<BufferPlan> {
        let (from, to) = self.pages.as_ref().map_or((Position::START, Position::END), |pages| {
            (Position::of_page(pages.start), Position::of_page(pages.end))
        });
        let buffers = reader.buffers().iter().enumerate();
        let kept = buffers.filter(|(_, info)| self.has_buffer(&info.name));
        kept.map(|(buffer, info)| {
            let pieces = Piece::of_buffer(0, reader, buffer).into_iter();
            let cpus: BTreeMap<_, _> = pieces
                .filter(|piece| self.has_cpu(piece.cpu))
                .map(|piece| (piece.cpu, vec![self.cut(reader, piece, (from, to))]))
                .collect();
            BufferPlan { name: info.name.clone(), clock: info.clock.clone(), layout: info.layout, cpus }
        })
        .collect()
    }
}

/// Rewrites a file: with another version or compression, or less in it. Byte order and pages stay what they
/// are.
///
/// The facts of the recording, its [`TraceId`](super::super::FileOption::TraceId) among them, stay as well,
/// also those that describe events which are left out.
///
/// # Errors
/// The file is damaged, or cannot be written as it is wanted.
pub fn convert<S: Source, W: Write + Seek>(
    reader: &Reader<S>,
    target: &Target,
    selection: &Selection,
    out: W,
    watch: Watch<'_>,
) -> Result<(W, Rewritten), RewriteError> {
    let mut head = Head::read(reader, false)?;
    if !selection.is_all() {
        head.is_part();
    }
    let inputs = Inputs { readers: &[reader], changes: &[selection.change()], tolerant: false };
    let mut plan = selection.plan(reader);
    let beginning = Beginning::new(target, head, &mut plan, inputs.readers)?;
    write_file(out, &beginning, &plan, &inputs, watch)
}
