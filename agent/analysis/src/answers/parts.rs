//! Stacks that are told apart by number.

use std::collections::HashMap;

/// A part of a stack, of the kernel or of a process, by its number.
pub(super) type Part = u32;

/// Most parts, and most addresses in all of them: 32 MiB.
const MOST: usize = 1 << 17;
const MOST_ADDRESSES: usize = 1 << 22;

/// Parts of stacks, each of them once.
#[derive(Clone, Debug, Default)]
pub(super) struct Parts {
    numbers: HashMap<Box<[u64]>, Part>,
    all: Vec<Box<[u64]>>,
    addresses: usize,
    left_out: u64,
    /// A stack that is looked up, kept for the memory.
    looked_up: Vec<u64>,
}

impl Parts {
    /// The number of a part. `None` if there is no room for it.
    pub(super) fn number(&mut self, addresses: &[u64]) -> Option<Part> {
        if let Some(number) = self.numbers.get(addresses) {
            return Some(*number);
        }
        if self.all.len() >= MOST || self.addresses + addresses.len() > MOST_ADDRESSES {
            self.left_out += 1;
            return None;
        }
        let number = self.all.len() as Part;
        self.addresses += addresses.len();
        self.all.push(addresses.into());
        self.numbers.insert(addresses.into(), number);
        Some(number)
    }

    /// The addresses of a part, the innermost first.
    pub(super) fn of(&self, part: Option<Part>) -> &[u64] {
        part.and_then(|part| self.all.get(part as usize)).map_or(&[], |addresses| addresses)
    }

    /// Whether half of the room is taken.
    pub(super) fn is_half_full(&self) -> bool {
        self.all.len() >= MOST / 2 || self.addresses >= MOST_ADDRESSES / 2
    }

    /// How often there was no room.
    pub(super) fn left_out(&self) -> u64 {
        self.left_out
    }
}

/// The parts of a stack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct StackParts {
    pub(super) kernel: Option<Part>,
    pub(super) user: Option<Part>,
}

impl StackParts {
    /// Adds frames behind those that are known.
    pub(super) fn add(
        &mut self,
        parts: &mut Parts,
        is_kernel: bool,
        addresses: &mut dyn Iterator<Item = u64>,
    ) {
        let part = if is_kernel { &mut self.kernel } else { &mut self.user };
        let mut all = std::mem::take(&mut parts.looked_up);
        all.clear();
        all.extend_from_slice(parts.of(*part));
        all.extend(addresses);
        if !all.is_empty() {
            *part = parts.number(&all);
        }
        parts.looked_up = all;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_has_one_number_and_goes_on() {
        let mut parts = Parts::default();
        let mut stack = StackParts::default();
        stack.add(&mut parts, true, &mut [1, 2].into_iter());
        stack.add(&mut parts, false, &mut [7, 8].into_iter());
        stack.add(&mut parts, false, &mut [9].into_iter());
        let mut same = StackParts::default();
        same.add(&mut parts, false, &mut [7, 8, 9].into_iter());
        same.add(&mut parts, true, &mut [1, 2].into_iter());
        same.add(&mut parts, true, &mut std::iter::empty());
        assert_eq!(stack, same);
        assert_eq!((parts.of(stack.kernel), parts.of(stack.user)), (&[1, 2][..], &[7, 8, 9][..]));
        assert_eq!(parts.of(None), &[] as &[u64]);
    }

    #[test]
    fn addresses_are_bounded() {
        let mut parts = Parts::default();
        let long: Vec<u64> = (0..MOST_ADDRESSES as u64).collect();
        assert!(parts.number(&long).is_some());
        assert_eq!(parts.number(&[1]), None);
        assert!(parts.number(&long).is_some());
        assert_eq!(parts.left_out(), 1);
    }
}
