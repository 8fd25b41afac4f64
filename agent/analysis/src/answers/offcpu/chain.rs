//! Who wakes a thread, who woke that one before, and so on.

use std::collections::HashMap;

use crate::answers::parts::StackParts;
use crate::answers::who::Who;

/// A chain, by its number.
pub(super) type Chain = u32;

/// Most chains.
const MOST: usize = 1 << 17;

/// Most links of a chain.
const DEPTH: u32 = 8;

/// A link of a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Link {
    pub(super) waker: Who,
    pub(super) stack: StackParts,
    /// The chain that woke the waker.
    pub(super) before: Option<Chain>,
    depth: u32,
}

/// Chains, each of them once.
#[derive(Clone, Debug, Default)]
pub(super) struct Chains {
    numbers: HashMap<(Who, StackParts, Option<Chain>), Chain>,
    all: Vec<Link>,
    left_out: u64,
}

impl Chains {
    /// The number of a chain. `None` if there is no room for it.
    pub(super) fn number(&mut self, waker: Who, stack: StackParts, before: Option<Chain>) -> Option<Chain> {
        let before = before.and_then(|before| self.shorten(before, DEPTH - 1));
        let key = (waker, stack, before);
        if let Some(number) = self.numbers.get(&key) {
            return Some(*number);
        }
        if self.all.len() >= MOST {
            self.left_out += 1;
            return None;
        }
        let number = self.all.len() as Chain;
        let depth = before.and_then(|before| self.all.get(before as usize)).map_or(1, |link| link.depth + 1);
        self.all.push(Link { waker, stack, before, depth });
        self.numbers.insert(key, number);
        Some(number)
    }

    /// The first links of a chain, the last waker first.
    fn shorten(&mut self, chain: Chain, most: u32) -> Option<Chain> {
        let link = *self.all.get(chain as usize)?;
        if link.depth <= most {
            return Some(chain);
        }
        let before = if most > 1 { self.shorten(link.before?, most - 1) } else { None };
        self.number(link.waker, link.stack, before)
    }

    /// The links of a chain, the last waker first.
    pub(super) fn links(&self, chain: Option<Chain>) -> impl Iterator<Item = &Link> {
        let link = |chain: Option<Chain>| self.all.get(chain? as usize);
        std::iter::successors(link(chain), move |before| link(before.before))
    }

    /// Whether half of the room is taken.
    pub(super) fn is_half_full(&self) -> bool {
        self.all.len() >= MOST / 2
    }

    /// How often there was no room.
    pub(super) fn left_out(&self) -> u64 {
        self.left_out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_ends_after_some_links() {
        let mut chains = Chains::default();
        let mut chain = None;
        for index in 0..20 {
            let waker = Who::Thread { tid: 1, index };
            chain = chains.number(waker, StackParts::default(), chain);
            assert_eq!(chains.links(chain).next().unwrap().waker, waker);
            assert_eq!(chains.links(chain).count(), (index + 1).min(DEPTH as usize));
        }
        let again = chains.number(Who::Thread { tid: 1, index: 0 }, StackParts::default(), None);
        assert_eq!(again, Some(0));
        assert_eq!(chains.links(None).count(), 0);
    }
}
