//! Interrupts inside one another on a CPU.

/// What a CPU is in the middle of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interrupt {
    /// A hardware interrupt, by its number.
    Hard(i64),
    /// A soft interrupt, by its number.
    Soft(u64),
}

/// Most interrupts that are inside one another.
const DEPTH: usize = 16;

/// The interrupts that a CPU is in, with what is known of each. The innermost is the last.
#[derive(Clone, Debug)]
pub struct Nesting<T>(Vec<(Interrupt, T)>);

impl<T> Default for Nesting<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> Nesting<T> {
    /// An interrupt begins. Gives how many others each of those was in that have ended without a record, and
    /// what is known of it: no interrupt comes while the CPU is in the same one.
    pub fn enter(&mut self, interrupt: Interrupt, of: T) -> impl Iterator<Item = (usize, T)> + use<T> {
        let same = self.0.iter().position(|(open, _)| *open == interrupt);
        let depth = same.unwrap_or(if self.0.len() >= DEPTH { 0 } else { self.0.len() });
        let ended = self.0.split_off(depth);
        self.0.push((interrupt, of));
        ended.into_iter().enumerate().map(move |(nth, (_, of))| (depth + nth, of))
    }

    /// An interrupt ends: how many it is in, and what is known of it. `None` if its begin was not seen.
    pub fn leave(&mut self, interrupt: Interrupt) -> Option<(usize, T)> {
        // What is inside of it and has not ended by now, ended without a record.
        let depth = self.0.iter().rposition(|(open, _)| *open == interrupt)?;
        self.0.truncate(depth + 1);
        self.0.pop().map(|(_, of)| (depth, of))
    }

    /// What is known of the innermost.
    pub(crate) fn innermost(&mut self) -> Option<&mut T> {
        self.0.last_mut().map(|(_, of)| of)
    }

    /// Which of them have ended is not known any more. Gives what is known of each, the outermost first.
    pub fn forget(&mut self) -> impl Iterator<Item = T> + use<T> {
        std::mem::take(&mut self.0).into_iter().map(|(_, of)| of)
    }
}
