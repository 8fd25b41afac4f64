//! Pages that are allocated and freed.

use std::collections::HashMap;

use crate::answers::At;
use crate::answers::threads::Index;
use crate::answers::who::Who;

/// Most blocks of pages that are known at a time: as many as a table of 2^20 places holds. With these and
/// twice the places it takes 69 MB.
const MOST: usize = (1 << 20) / 8 * 7;

/// More than any kernel has (`MAX_PAGE_ORDER` of include/linux/mmzone.h is 10, of some machines 13). What has
/// more is no block.
pub(super) const ORDERS: u8 = 32;

/// Pages that were allocated together, or what is left of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Block {
    /// When.
    pub(super) since: u64,
    /// The number of losses then.
    losses: u32,
    /// By whom, as [`packed`].
    who: u32,
    /// How many: 2 to the power of this.
    order: u8,
    /// Whether it is asked about where it was allocated.
    is_asked: bool,
}

impl Block {
    /// A block that is allocated.
    pub(super) fn new(at: At, order: u8, who: Who, losses: u64, is_asked: bool) -> Self {
        Self { since: at.time, losses: losses as u32, who: packed(who), order, is_asked }
    }

    pub(super) fn pages(self) -> u64 {
        1 << self.order
    }

    /// The number of the thread that allocated it, or which of the others: see [`packed`].
    pub(super) fn who(self) -> u32 {
        self.who
    }
}

/// Who allocates, in 32 bits: the number of a thread, of which there are fewer, or one of the last three.
pub(super) fn packed(who: Who) -> u32 {
    match who {
        Who::Thread { index, .. } => u32::try_from(index).unwrap_or(u32::MAX).min(IRQ - 1),
        Who::Irq => IRQ,
        Who::Softirq => SOFTIRQ,
        Who::Unknown => UNKNOWN,
    }
}

/// [`Who::Irq`], [`Who::Softirq`] and [`Who::Unknown`] as [`packed`] has them.
pub(super) const IRQ: u32 = u32::MAX - 2;
pub(super) const SOFTIRQ: u32 = u32::MAX - 1;
pub(super) const UNKNOWN: u32 = u32::MAX;

/// The number of a thread that was [`packed`].
pub(super) fn index(who: u32) -> Option<Index> {
    (who < IRQ).then_some(who as usize)
}

/// Blocks that are not free, as far as it is known.
#[derive(Clone, Debug, Default)]
pub(super) struct Blocks {
    live: HashMap<u64, Block>,
    /// How many of each order there are.
    of_order: [u32; ORDERS as usize],
    /// Blocks that were not followed for want of room.
    pub(super) left_out: u64,
}

impl Blocks {
    /// A block is allocated. Gives the one that was there before, whose end was not seen.
    pub(super) fn allocate(&mut self, pfn: u64, block: Block) -> Option<Block> {
        let before = self.remove(pfn);
        if self.live.len() >= MOST {
            self.left_out += 1;
        } else {
            self.insert(pfn, block);
        }
        before
    }

    /// A block is freed. Gives what was allocated, with as many pages as are freed; `None` if it was not
    /// seen.
    ///
    /// A block can be split (`split_page`, mm/page_alloc.c), and then be freed in parts.
    pub(super) fn free(&mut self, pfn: u64, order: u8) -> Option<Block> {
        let (base, block) = self.holder(pfn, order)?;
        self.remove(base);
        if block.order <= order {
            return Some(block);
        }
        // The half without the freed part stays, and so on with the other half.
        let mut base = base;
        for half in (order..block.order).rev() {
            let middle = base | 1 << half;
            let rest = if pfn < middle { middle } else { base };
            if self.live.len() < MOST {
                self.insert(rest, Block { order: half, ..block });
            } else {
                self.left_out += 1;
            }
            base = if pfn < middle { base } else { middle };
        }
        Some(Block { order, ..block })
    }

    /// The block that holds pages, and where it begins.
    fn holder(&self, pfn: u64, order: u8) -> Option<(u64, Block)> {
        if let Some(block) = self.live.get(&pfn) {
            return Some((pfn, *block));
        }
        // Blocks of an order begin at a multiple of their size.
        (order + 1..ORDERS).filter(|order| self.of_order[usize::from(*order)] != 0).find_map(|order| {
            let base = pfn & !((1 << order) - 1);
            self.live.get(&base).filter(|block| block.order == order).map(|block| (base, *block))
        })
    }

    /// Whether half of the room is taken.
    pub(super) fn is_half_full(&self) -> bool {
        self.live.len() >= MOST / 2
    }

    fn insert(&mut self, pfn: u64, block: Block) {
        self.of_order[usize::from(block.order)] += 1;
        if let Some(before) = self.live.insert(pfn, block) {
            self.of_order[usize::from(before.order)] -= 1;
        }
    }

    fn remove(&mut self, pfn: u64) -> Option<Block> {
        let block = self.live.remove(&pfn)?;
        self.of_order[usize::from(block.order)] -= 1;
        Some(block)
    }

    /// The blocks that were asked about since a time, and whether it is known that they are still there.
    pub(super) fn kept(&self, from: Option<u64>, losses: u64) -> impl Iterator<Item = (Block, bool)> {
        let is_since = move |block: &&Block| block.is_asked && from.is_none_or(|from| block.since >= from);
        self.live.values().filter(is_since).map(move |block| (*block, block.losses == losses as u32))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(order: u8) -> Block {
        Block::new(At { time: 5, cpu: 0 }, order, Who::Irq, 0, true)
    }

    #[test]
    fn a_block_is_freed_in_parts() {
        let mut blocks = Blocks::default();
        assert_eq!(blocks.allocate(8, block(3)), None);
        assert_eq!(blocks.free(13, 0).map(Block::pages), Some(1));
        // 8 to 11, 12, and 14 to 15 are left.
        let mut left: Vec<u64> = blocks.live.keys().copied().collect();
        left.sort_unstable();
        assert_eq!(left, [8, 12, 14]);
        assert_eq!(blocks.free(13, 0), None);
        assert_eq!(blocks.free(8, 2).map(Block::pages), Some(4));
        assert_eq!(blocks.free(15, 0).map(Block::pages), Some(1));
        assert_eq!(blocks.kept(None, 0).map(|(block, _)| block.pages()).sum::<u64>(), 2);
        // Where one is still known, its end was not seen.
        assert_eq!(blocks.allocate(12, block(0)).map(Block::pages), Some(1));
        assert_eq!(blocks.of_order.iter().sum::<u32>(), 2);
        assert_eq!(blocks.kept(Some(6), 0).count(), 0);
        assert!(blocks.kept(None, 1).all(|(_, is_known)| !is_known));
    }

    #[test]
    fn blocks_are_bounded() {
        let mut blocks = Blocks::default();
        for pfn in 0..MOST as u64 + 10 {
            blocks.allocate(pfn * 2, block(0));
        }
        assert_eq!((blocks.live.len(), blocks.left_out), (MOST, 10));
        assert_eq!(blocks.free(MOST as u64 * 2, 0), None);
    }

    #[test]
    fn who_fits_into_32_bits() {
        assert_eq!(index(packed(Who::Thread { tid: 7, index: 9 })), Some(9));
        assert_eq!([Who::Irq, Who::Softirq, Who::Unknown].map(|who| index(packed(who))), [None; 3]);
    }
}
