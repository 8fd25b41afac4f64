//! Two sets of stacks beside each other.

use super::{FlameStacks, Frame};

/// How stacks differ from those of another recording.
#[derive(Clone, Copy, Debug)]
pub struct Difference<'s> {
    /// The other recording.
    pub before: &'s FlameStacks,
    /// This one.
    pub now: &'s FlameStacks,
    /// Whether what was before is made as much in all as what is now, so that shares are compared. Otherwise
    /// the weights are compared as they are, which needs recordings of the same length and load.
    pub is_normalized: bool,
}

impl<'s> Difference<'s> {
    /// A weight of before, as it is compared.
    pub(super) fn scaled(&self, weight: u128) -> u128 {
        let (before, now) = (self.before.total(), self.now.total());
        if !self.is_normalized || before == 0 || before == now {
            return weight;
        }
        // No sum of this many 64-bit numbers overflows 128 bits, but their product can: then it is done with
        // less digits.
        match weight.checked_mul(now) {
            Some(product) => product / before,
            None => (weight as f64 * (now as f64 / before as f64)) as u128,
        }
    }

    /// Each stack with its weights before and now, in the order of [`FlameStacks::sorted`].
    pub(super) fn sorted(&self) -> Vec<(Vec<Frame<'s>>, u128, u128)> {
        let (mut before, mut now) =
            (self.before.sorted().into_iter().peekable(), self.now.sorted().into_iter().peekable());
        let mut all = Vec::new();
        loop {
            // What found no room is at the end of both.
            let order = match (before.peek(), now.peek()) {
                (Some((one, _)), Some((other, _))) => one.cmp(other),
                (Some(_), None) => std::cmp::Ordering::Less,
                (None, Some(_)) => std::cmp::Ordering::Greater,
                (None, None) => return all,
            };
            let old = if order.is_le() { before.next() } else { None };
            let new = if order.is_ge() { now.next() } else { None };
            let weight = |stack: &Option<(_, u128)>| stack.as_ref().map_or(0, |(_, weight)| *weight);
            let weights = (self.scaled(weight(&old)), weight(&new));
            if let Some((frames, _)) = old.or(new) {
                all.push((frames, weights.0, weights.1));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Kind, OTHERS, Unit};
    use super::*;

    fn stacks(all: &[(&[&str], u64)], others: u64) -> FlameStacks {
        let mut stacks = FlameStacks::new("", Unit::Events);
        for (names, weight) in all {
            stacks.add(names.iter().map(|name| Frame { kind: Kind::User, name }), *weight);
        }
        stacks.add_others(others);
        stacks
    }

    fn told(of: &Difference<'_>) -> Vec<(String, u128, u128)> {
        let text =
            |frames: Vec<Frame<'_>>| frames.iter().map(|frame| frame.name).collect::<Vec<_>>().join(";");
        of.sorted().into_iter().map(|(frames, before, now)| (text(frames), before, now)).collect()
    }

    #[test]
    fn each_stack_has_both_weights() {
        let before = stacks(&[(&["a"], 1), (&["a", "b"], 2), (&["z"], 3)], 4);
        let now = stacks(&[(&["a", "b"], 10), (&["c"], 20)], 30);
        let of = Difference { before: &before, now: &now, is_normalized: false };
        let expected = [("a", 1, 0), ("a;b", 2, 10), ("c", 0, 20), ("z", 3, 0), (OTHERS, 4, 30)];
        assert_eq!(told(&of), expected.map(|(name, before, now)| (name.to_owned(), before, now)));
        let of = Difference { is_normalized: true, ..of };
        let expected = [("a", 6, 0), ("a;b", 12, 10), ("c", 0, 20), ("z", 18, 0), (OTHERS, 24, 30)];
        assert_eq!(told(&of), expected.map(|(name, before, now)| (name.to_owned(), before, now)));
    }

    #[test]
    fn large_weights_are_scaled() {
        let (mut before, mut now) = (stacks(&[(&["a"], u64::MAX)], 0), stacks(&[(&["a"], u64::MAX)], 0));
        for _ in 0..3 {
            before.add([Frame { kind: Kind::User, name: "a" }], u64::MAX);
            now.add([Frame { kind: Kind::User, name: "a" }], u64::MAX);
        }
        now.add([Frame { kind: Kind::User, name: "a" }], u64::MAX);
        let of = Difference { before: &before, now: &now, is_normalized: true };
        let (_, old, new) = &told(&of)[0];
        assert!((*old as f64 / *new as f64 - 1.0).abs() < 1e-9, "{old} {new}");
    }
}
