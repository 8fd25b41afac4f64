//! Stacks with their weights.

use std::collections::HashMap;
use std::sync::Arc;

use super::name::clean;

/// Memory for names and stacks, in bytes, with what tables need for them.
const MOST_BYTES: usize = 128 << 20;

/// What a name or a stack needs beside its own bytes, about.
const OVERHEAD: usize = 96;

/// The one frame of what found no room.
pub const OTHERS: &str = "[other stacks]";

/// What is counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Events.
    Events,
    /// Samples: events that tell where CPUs are.
    Samples,
    /// Nanoseconds.
    Nanoseconds,
    /// What a field of events has, by its name.
    Field(String),
}

impl Unit {
    /// What it is called.
    pub fn name(&self) -> &str {
        match self {
            Self::Events => "events",
            Self::Samples => "samples",
            Self::Nanoseconds => "ns",
            Self::Field(name) => name,
        }
    }

    /// Whether it is a field that has bytes, by its name.
    pub(super) fn is_bytes(&self) -> bool {
        matches!(self, Self::Field(name) if name.split('_').any(|word| word == "bytes"))
    }
}

/// What a frame is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// The thread that has the stack: its outermost frame.
    Thread,
    /// A function of a process.
    User,
    /// A function of the kernel.
    Kernel,
    /// Something else, such as the mark between a stack and the one that woke it.
    Mark,
}

/// A frame of a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Frame<'n> {
    /// What it is of.
    pub kind: Kind,
    /// Its name.
    pub name: &'n str,
}

/// Stacks, each once, with what they weigh.
///
/// Names are kept without what would end a frame or a line, or act on who reads it. Memory is bounded: stacks
/// that find no room are counted together, as [`OTHERS`].
#[derive(Clone, Debug)]
pub struct FlameStacks {
    title: String,
    unit: Unit,
    duration_ns: Option<u64>,
    names: Vec<(Kind, Arc<str>)>,
    /// By kind.
    numbers: [HashMap<Arc<str>, u32>; 4],
    weights: HashMap<Box<[u32]>, u128>,
    others: u128,
    bytes: usize,
    stack: Vec<u32>,
}

impl FlameStacks {
    /// No stacks yet.
    pub fn new(title: &str, unit: Unit) -> Self {
        Self {
            title: title.to_owned(),
            unit,
            duration_ns: None,
            names: Vec::new(),
            numbers: Default::default(),
            weights: HashMap::new(),
            others: 0,
            bytes: 0,
            stack: Vec::new(),
        }
    }

    /// Tells how long the recording lasts that they are from.
    #[must_use]
    pub fn lasting(mut self, duration_ns: u64) -> Self {
        self.duration_ns = Some(duration_ns);
        self
    }

    /// Gives them another title.
    #[must_use]
    pub fn titled(mut self, title: &str) -> Self {
        title.clone_into(&mut self.title);
        self
    }

    /// What they are.
    pub fn title(&self) -> &str {
        &self.title
    }

    /// What they weigh in.
    pub fn unit(&self) -> &Unit {
        &self.unit
    }

    /// How long the recording lasts that they are from, in nanoseconds.
    pub fn duration_ns(&self) -> Option<u64> {
        self.duration_ns
    }

    /// Adds a stack, from the outermost frame to the innermost. One without frames or weight is none.
    pub fn add<'n>(&mut self, frames: impl IntoIterator<Item = Frame<'n>>, weight: u64) {
        if weight == 0 {
            return;
        }
        let weight = u128::from(weight);
        let mut stack = std::mem::take(&mut self.stack);
        stack.clear();
        let mut has_room = true;
        for frame in frames {
            match self.number(frame) {
                Some(number) => stack.push(number),
                None => has_room = false,
            }
        }
        let bytes = OVERHEAD + stack.len() * size_of::<u32>();
        if !has_room {
            self.others += weight;
        } else if let Some(sum) = self.weights.get_mut(stack.as_slice()) {
            *sum += weight;
        } else if stack.is_empty() {
            // Nothing to show.
        } else if self.bytes + bytes <= MOST_BYTES {
            self.bytes += bytes;
            self.weights.insert(stack.as_slice().into(), weight);
        } else {
            self.others += weight;
        }
        self.stack = stack;
    }

    /// Adds what was counted without being told apart.
    pub fn add_others(&mut self, weight: u64) {
        self.others += u128::from(weight);
    }

    /// The number of a frame. `None` if there is no room for it.
    fn number(&mut self, frame: Frame<'_>) -> Option<u32> {
        let name = clean(frame.name, frame.kind == Kind::Thread);
        let numbers = &mut self.numbers[frame.kind as usize];
        if let Some(number) = numbers.get(&*name) {
            return Some(*number);
        }
        let bytes = OVERHEAD + name.len();
        if self.bytes + bytes > MOST_BYTES {
            return None;
        }
        let number = u32::try_from(self.names.len()).ok()?;
        self.bytes += bytes;
        let name = Arc::<str>::from(name);
        self.names.push((frame.kind, Arc::clone(&name)));
        numbers.insert(name, number);
        Some(number)
    }

    /// How many stacks are told apart.
    pub fn len(&self) -> usize {
        self.weights.len()
    }

    /// Whether nothing has a weight.
    pub fn is_empty(&self) -> bool {
        self.weights.is_empty() && self.others == 0
    }

    /// What stacks weigh that found no room.
    pub fn others(&self) -> u128 {
        self.others
    }

    /// What all of them weigh.
    pub fn total(&self) -> u128 {
        self.weights.values().sum::<u128>() + self.others
    }

    /// The stacks by the order of their frames, so that those which begin with the same frames stand
    /// together, and what found no room at the end.
    pub fn sorted(&self) -> Vec<(Vec<Frame<'_>>, u128)> {
        let frame = |number: &u32| {
            let (kind, name) = self.names.get(*number as usize)?;
            Some(Frame { kind: *kind, name })
        };
        let stacks = self.weights.iter();
        let mut stacks: Vec<(Vec<Frame<'_>>, u128)> =
            stacks.map(|(stack, weight)| (stack.iter().filter_map(frame).collect(), *weight)).collect();
        stacks.sort_unstable();
        if self.others != 0 {
            stacks.push((vec![Frame { kind: Kind::Mark, name: OTHERS }], self.others));
        }
        stacks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames<'n>(names: &[&'n str]) -> Vec<Frame<'n>> {
        names.iter().map(|name| Frame { kind: Kind::User, name }).collect()
    }

    #[test]
    fn stacks_are_counted_once_each() {
        let mut stacks = FlameStacks::new("title", Unit::Events);
        assert!(stacks.is_empty());
        for (names, weight) in
            [(&["a", "b"][..], 2), (&["a"], u64::MAX), (&["a", "b"], 3), (&["a"], 1), (&["x"], 0)]
        {
            stacks.add(frames(names), weight);
        }
        stacks.add([Frame { kind: Kind::Kernel, name: "a" }], 7);
        stacks.add([], 9);
        assert_eq!((stacks.len(), stacks.total()), (3, u128::from(u64::MAX) + 1 + 5 + 7));
        let told = stacks.sorted();
        assert_eq!(told[0], (frames(&["a"]), u128::from(u64::MAX) + 1));
        assert_eq!(told[1], (frames(&["a", "b"]), 5));
        assert_eq!(told[2].0[0].kind, Kind::Kernel);
    }

    #[test]
    fn what_finds_no_room_is_one_stack() {
        let mut stacks = FlameStacks::new("", Unit::Events);
        stacks.add(frames(&["a", "b"]), 1);
        stacks.bytes = MOST_BYTES;
        stacks.add(frames(&["b", "a"]), 2);
        stacks.add(frames(&["c"]), 4);
        stacks.add(frames(&["a", "b"]), 8);
        stacks.add_others(16);
        let told = stacks.sorted();
        assert_eq!((stacks.len(), stacks.others(), stacks.total()), (1, 22, 31));
        assert_eq!(told, [(frames(&["a", "b"]), 9), (vec![Frame { kind: Kind::Mark, name: OTHERS }], 22)]);
    }

    #[test]
    fn many_names_stay_within_the_bound() {
        let mut stacks = FlameStacks::new("", Unit::Events);
        let long = "x".repeat(1 << 20);
        for number in 0..200 {
            stacks.add(frames(&[&format!("{long}{number}")]), 1);
        }
        assert!(stacks.bytes <= MOST_BYTES && stacks.others() > 0, "{}", stacks.bytes);
        assert_eq!(stacks.total(), 200);
    }
}
