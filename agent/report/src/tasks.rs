//! Task names, as in the first column of a line.

use std::collections::HashMap;
use std::sync::RwLock;

use super::text::{right, signed_left};
use ftrace_event::Cmdlines;
use ftrace_event::output::{BLOCK, append_block};

/// Pids above this are looked up more slowly. Linux has none above (PID_MAX_LIMIT of
/// include/linux/threads.h).
const MAX_PID: usize = 4 << 20;

/// The names of a file's tasks.
///
/// Those that the file lists are known from the start. Of others the scheduler's events tell the names; they
/// hold for the records behind, so that each is kept with the number of its record.
#[derive(Debug, Default)]
pub(super) struct Tasks {
    /// Start and length of each head, by pid.
    listed: Vec<(u32, u16)>,
    /// `%16s-%-5d ` of every listed task, and a block that the last ones can be copied with.
    heads: Vec<u8>,
    names: Cmdlines,
    learned: RwLock<HashMap<u32, Learned>>,
}

/// A name that an event told.
#[derive(Debug)]
pub(super) struct Learned {
    /// Number of its record.
    since: u64,
    name: Box<[u8]>,
}

impl Tasks {
    pub(super) fn new(names: &Cmdlines) -> Self {
        let mut tasks = Self { names: names.clone(), ..Self::default() };
        for (pid, name) in names.iter() {
            let index = pid as usize;
            if index >= MAX_PID {
                continue;
            }
            if tasks.listed.len() <= index {
                tasks.listed.resize(index + 1, (0, 0));
            }
            let start = tasks.heads.len();
            head(&mut tasks.heads, name, pid.cast_signed());
            // Longer ones are printed each time.
            if let (Ok(start), Ok(len)) = (u32::try_from(start), u16::try_from(tasks.heads.len() - start)) {
                tasks.listed[index] = (start, len);
            }
        }
        tasks.heads.extend_from_slice(&[0; BLOCK]);
        tasks
    }

    /// Whether the file lists the task, so that no event needs to be asked.
    #[inline]
    pub(super) fn is_listed(&self, pid: u32) -> bool {
        pid == 0
            || self.listed.get(pid as usize).is_some_and(|(_, len)| *len != 0)
            || self.names.get(pid).is_some()
    }

    /// The names that the file lists.
    pub(super) fn listed(&self) -> &Cmdlines {
        &self.names
    }

    /// Notes the name that record `number` tells, unless one is known.
    pub(super) fn learn(&self, pid: u32, name: &[u8], number: u64) {
        if self.is_listed(pid) {
            return;
        }
        if let Ok(mut learned) = self.learned.write() {
            learned.entry(pid).or_insert_with(|| Learned { since: number, name: name.into() });
        }
    }

    /// The names that events have told.
    pub(super) fn into_learned(self) -> HashMap<u32, Learned> {
        self.learned.into_inner().unwrap_or_default()
    }

    /// Takes over what events have told before.
    pub(super) fn set_learned(&mut self, learned: HashMap<u32, Learned>) {
        self.learned = RwLock::new(learned);
    }

    /// Prints name and pid as record `number` knows them: `            name-pid   `.
    #[inline]
    pub(super) fn head(&self, out: &mut Vec<u8>, pid: u32, number: u64) {
        if let Some(&(start, len)) = self.listed.get(pid as usize).filter(|(_, len)| *len != 0)
            && let Some(text) = self.heads.get(start as usize..)
        {
            let len = usize::from(len);
            return match text.first_chunk::<BLOCK>() {
                Some(block) if len <= BLOCK => append_block(out, block, len),
                _ => out.extend_from_slice(text.get(..len).unwrap_or_default()),
            };
        }
        self.with_name(pid, number, |name| head(out, name, pid.cast_signed()));
    }

    /// Calls `with` with the name of a task, as stock readers show it: `<...>` if it is not known.
    pub(super) fn with_name<R>(&self, pid: u32, number: u64, with: impl FnOnce(&[u8]) -> R) -> R {
        self.with_known_name(pid, number, |name| with(name.unwrap_or(b"<...>")))
    }

    /// Calls `with` with the name of a task, if it is known.
    pub(super) fn with_known_name<R>(
        &self,
        pid: u32,
        number: u64,
        with: impl FnOnce(Option<&[u8]>) -> R,
    ) -> R {
        if pid == 0 {
            return with(Some(b"<idle>"));
        }
        if let Some(name) = self.names.get(pid) {
            return with(Some(name));
        }
        let learned = self.learned.read();
        let learned = learned.as_ref().ok().and_then(|learned| learned.get(&pid));
        with(learned.filter(|learned| learned.since < number).map(|learned| &*learned.name))
    }
}

fn head(out: &mut Vec<u8>, name: &[u8], pid: i32) {
    right(out, name, 16);
    out.push(b'-');
    signed_left(out, pid.into(), 5);
    out.push(b' ');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_known_from_where_they_were_told() {
        let listed: Cmdlines = [(7, "seven"), (u32::MAX, "far")].into_iter().collect();
        let tasks = Tasks::new(&listed);
        let head = |pid, number| {
            let mut out = Vec::new();
            tasks.head(&mut out, pid, number);
            String::from_utf8(out).unwrap()
        };
        tasks.learn(7, b"other", 1);
        tasks.learn(9, b"nine", 5);
        tasks.learn(9, b"later", 6);
        assert_eq!(head(7, 100), "           seven-7     ");
        assert_eq!(head(0, 0), "          <idle>-0     ");
        assert_eq!(head(9, 5), "           <...>-9     ");
        assert_eq!(head(9, 6), "            nine-9     ");
        assert_eq!(head(u32::MAX, 0), "             far--1    ");
        assert!(tasks.is_listed(u32::MAX) && !tasks.is_listed(9));
    }
}
