//! The lines of the timeline, and names that are told by number.

use stdx::fast_map::FastMap;

/// Most rows. What belongs into others is left out, and counted.
const MOST_ROWS: usize = 1 << 18;
/// Most names.
const MOST_LABELS: usize = 1 << 16;
/// Most characters of a name.
const LABEL: usize = 256;

/// What a row is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Row {
    /// Who runs on a CPU; keys of its slices are threads.
    Cpu(u32),
    /// Interrupts on a CPU, by how deep they are inside one another; keys are labels.
    Irq(u32, u32),
    /// Where events of a CPU are missing; keys are labels, the names of their buffers.
    Gap(u32),
    /// Requests to a block device; as many rows as there are requests at a time.
    Device(u64, u32),
    /// What a thread does; keys are states.
    Thread(u32),
    /// System calls of a thread; keys are labels.
    Calls(u32),
    /// Functions of a thread, by how deep they are.
    Graph(u32, u32),
    /// The same on the idle thread of a CPU.
    IdleGraph(u32, u32),
    /// Records that a thread made.
    Marks(u32),
    /// Spans of a thread that its program tells of, by how deep they are inside one another; keys are labels.
    Spans(u32, u32),
    /// Spans of a process that its program tells of; as many rows as there are spans at a time, keys are
    /// labels.
    ProcessSpans(u32, u32),
    /// Moments of a thread that its program tells of; keys are labels.
    Moments(u32),
    /// The values of a counter of a process, whose name is a label; so are the keys.
    Counter(u32, u32),
    /// The records of an event.
    Event(u32),
}

impl Row {
    /// Its number in the page, whom it belongs to, and which of several it is.
    pub(crate) fn told(self) -> (u8, u64, u32) {
        match self {
            Self::Cpu(cpu) => (0, cpu.into(), 0),
            Self::Irq(cpu, depth) => (1, cpu.into(), depth),
            Self::Gap(cpu) => (2, cpu.into(), 0),
            Self::Device(device, lane) => (3, device, lane),
            Self::Thread(thread) => (4, thread.into(), 0),
            Self::Calls(thread) => (5, thread.into(), 0),
            Self::Graph(thread, depth) => (6, thread.into(), depth),
            Self::IdleGraph(cpu, depth) => (7, cpu.into(), depth),
            Self::Marks(thread) => (8, thread.into(), 0),
            Self::Event(event) => (9, event.into(), 0),
            Self::Spans(thread, depth) => (10, thread.into(), depth),
            Self::ProcessSpans(process, lane) => (11, process.into(), lane),
            Self::Moments(thread) => (12, thread.into(), 0),
            Self::Counter(process, name) => (13, process.into(), name),
        }
    }

    /// Whether densities tell each key's share; otherwise the one that has most.
    pub(crate) fn has_few_keys(self) -> bool {
        matches!(self, Self::Thread(_))
    }
}

/// What is in a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sum {
    /// Slices or events.
    pub(crate) count: u64,
    /// Of slices; of threads, for how long they ran.
    pub(crate) time: u64,
}

/// All rows, in the order in which they were seen.
#[derive(Debug, Default)]
pub(crate) struct Rows {
    all: Vec<(Row, Sum)>,
    numbers: FastMap<Row, u32>,
    /// What had no room.
    pub(crate) left_out: u64,
}

impl Rows {
    /// The number of a row; `None` if there are too many.
    pub(crate) fn number(&mut self, row: Row) -> Option<u32> {
        if let Some(number) = self.numbers.get(&row) {
            return Some(*number);
        }
        if self.all.len() >= MOST_ROWS {
            self.left_out += 1;
            return None;
        }
        let number = self.all.len() as u32;
        self.all.push((row, Sum::default()));
        self.numbers.insert(row, number);
        Some(number)
    }

    /// A row by its number.
    pub(crate) fn get(&self, number: u32) -> Option<Row> {
        self.all.get(number as usize).map(|(row, _)| *row)
    }

    /// Counts a slice or an event of a row.
    pub(crate) fn count(&mut self, number: u32, time: u64) {
        if let Some((_, sum)) = self.all.get_mut(number as usize) {
            sum.count += 1;
            sum.time = sum.time.saturating_add(time);
        }
    }

    /// All of them.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Row, Sum)> {
        self.all.iter().copied()
    }
}

/// Names by number. 0 is the name of all for which there is no room.
#[derive(Debug)]
pub(crate) struct Labels {
    all: Vec<String>,
    numbers: FastMap<String, u32>,
}

impl Default for Labels {
    fn default() -> Self {
        Self { all: vec!["(one of very many)".to_owned()], numbers: FastMap::default() }
    }
}

impl Labels {
    /// The number of a name.
    pub(crate) fn number(&mut self, name: &str) -> u32 {
        // It is known by what is kept of it: a long one would otherwise be a new one each time.
        let end = name.char_indices().nth(LABEL).map_or(name.len(), |(end, _)| end);
        let name = name.get(..end).unwrap_or(name);
        if let Some(number) = self.numbers.get(name) {
            return *number;
        }
        if self.all.len() >= MOST_LABELS {
            return 0;
        }
        let number = self.all.len() as u32;
        self.all.push(name.to_owned());
        self.numbers.insert(name.to_owned(), number);
        number
    }

    /// All of them.
    pub(crate) fn all(&self) -> &[String] {
        &self.all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_and_names_are_bounded() {
        let mut rows = Rows::default();
        for thread in 0..MOST_ROWS as u32 + 5 {
            assert_eq!(rows.number(Row::Thread(thread)).is_some(), (thread as usize) < MOST_ROWS);
        }
        assert_eq!((rows.number(Row::Thread(7)), rows.left_out), (Some(7), 5));
        assert_eq!((rows.get(7), rows.iter().count()), (Some(Row::Thread(7)), MOST_ROWS));
        let mut labels = Labels::default();
        assert_eq!([labels.number("a"), labels.number("b"), labels.number("a")], [1, 2, 1]);
        for number in 0..MOST_LABELS {
            labels.number(&number.to_string());
        }
        assert_eq!((labels.number("new"), labels.all().len()), (0, MOST_LABELS));
        let mut labels = Labels::default();
        let long = "é".repeat(1 << 10);
        assert_eq!([labels.number(&long), labels.number(&long), labels.number("é")], [1, 1, 2]);
        assert_eq!((labels.all()[1].chars().count(), labels.all().len()), (LABEL, 3));
    }
}
