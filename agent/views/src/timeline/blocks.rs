//! Blocks on their way into the page: threads pack them.

use super::document::{Document, Packed};
use super::events::{Made, Packer};
use super::index::BlockTold;
use super::levels::{Dense, pack_densities, pack_slices};
use crate::tracks::Slice;
use recording::ExportError;
use stdx::parallel::{Ended, HandOn};
use tracedat::reader::Batch;

/// What is to be packed.
pub(super) enum Item {
    /// A block with its number.
    Block(u32, Piece),
    /// Records, which are one or more blocks of their own.
    Records(Batch<Made>),
}

/// What a block is made of.
pub(super) enum Piece {
    /// With the time from which theirs are counted.
    Slices(Vec<Slice>, u64),
    /// With the bucket from which theirs are counted.
    Densities(Vec<Dense>, u64),
}

/// Where blocks are given.
pub(super) struct Blocks<'g> {
    next: u32,
    give: &'g mut Give<'g>,
}

/// Takes what is to be packed.
pub(super) type Give<'g> = dyn FnMut(Item) -> Result<(), ExportError> + 'g;

impl<'g> Blocks<'g> {
    /// No blocks yet.
    pub(super) fn new(give: &'g mut Give<'g>) -> Self {
        Self { next: 0, give }
    }

    /// Adds a block, and gives its number.
    pub(super) fn add(&mut self, piece: Piece) -> Result<u32, ExportError> {
        let number = self.next;
        self.next += 1;
        (self.give)(Item::Block(number, piece))?;
        Ok(number)
    }

    /// Adds records.
    pub(super) fn add_records(&mut self, records: Batch<Made>) -> Result<(), ExportError> {
        (self.give)(Item::Records(records))
    }
}

/// A block as the page has it.
pub(super) enum Done {
    Block(u32, Packed),
    /// Of records, with what the index says of it and how many texts were cut.
    Events(Packed, BlockTold, u64),
}

impl Item {
    /// Packs it, on any thread.
    pub(super) fn pack(self, packer: &Packer<'_>, hand_on: &mut HandOn<'_, Done>) -> Result<(), Ended> {
        match self {
            Self::Block(number, Piece::Slices(slices, from)) => {
                hand_on(Done::Block(number, Packed::of(&pack_slices(slices, from))))
            }
            Self::Block(number, Piece::Densities(cells, first)) => {
                hand_on(Done::Block(number, Packed::of(&pack_densities(cells, first))))
            }
            Self::Records(records) => packer
                .pack(&records, &mut |data, told, cut| hand_on(Done::Events(Packed::of(&data), told, cut))),
        }
    }
}

/// What was written of the records.
#[derive(Debug, Default)]
pub(super) struct Written {
    /// Their blocks.
    pub(super) told: Vec<BlockTold>,
    /// Texts that were cut.
    pub(super) cut: u64,
}

impl Written {
    /// Writes a block. Those of records get their numbers here.
    pub(super) fn write(&mut self, done: Done, document: &mut Document) -> Result<(), ExportError> {
        match done {
            Done::Block(number, packed) => document.add(&format!("block{number}"), packed),
            Done::Events(packed, told, cut) => {
                let number = self.told.len() as u32;
                self.told.push(BlockTold { block: number, ..told });
                self.cut += cut;
                document.add(&format!("events{number}"), packed)
            }
        }
    }
}
