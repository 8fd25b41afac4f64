//! Names of tasks, as ftrace keeps them.

use std::collections::BTreeMap;

/// Names of tasks by pid.
///
/// Readers stop at the first line without a name and search the lines as if pids were unique; a `Cmdlines`
/// can hold neither a blank name nor a pid twice. Tasks that are not in it are shown as `<...>`, pid 0 always
/// as `<idle>`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cmdlines {
    by_pid: BTreeMap<u32, Vec<u8>>,
}

impl Cmdlines {
    /// No tasks.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the name of a task; the last name given counts.
    ///
    /// Names are what the kernel holds: any bytes, up to the first NUL. Line ends, which would end the line
    /// in the file, become `?`. A name of nothing but blanks is not taken (and `false` returned): readers
    /// would stop there.
    pub fn insert(&mut self, pid: u32, comm: &[u8]) -> bool {
        let comm = comm.split(|byte| *byte == 0).next().unwrap_or_default();
        let comm: Vec<u8> =
            comm.iter().map(|byte| if matches!(byte, b'\n' | b'\r') { b'?' } else { *byte }).collect();
        let blank = comm.iter().all(|byte| byte.is_ascii_whitespace() || *byte == 0x0b);
        if !blank {
            self.by_pid.insert(pid, comm);
        }
        !blank
    }

    /// The name of a task.
    pub fn get(&self, pid: u32) -> Option<&[u8]> {
        self.by_pid.get(&pid).map(Vec::as_slice)
    }

    /// Pids and names, by pid.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &[u8])> {
        self.by_pid.iter().map(|(pid, comm)| (*pid, comm.as_slice()))
    }

    /// Number of tasks.
    pub fn len(&self) -> usize {
        self.by_pid.len()
    }

    /// Whether there are no tasks.
    pub fn is_empty(&self) -> bool {
        self.by_pid.is_empty()
    }

    /// The names as lines `pid name`, by pid: `saved_cmdlines` of tracefs, and a section of trace.dat files.
    pub fn text(&self) -> Vec<u8> {
        let mut text = Vec::new();
        for (pid, comm) in &self.by_pid {
            text.extend_from_slice(pid.to_string().as_bytes());
            text.push(b' ');
            text.extend_from_slice(comm);
            text.push(b'\n');
        }
        text
    }
}

impl<C: AsRef<[u8]>> FromIterator<(u32, C)> for Cmdlines {
    fn from_iter<I: IntoIterator<Item = (u32, C)>>(tasks: I) -> Self {
        let mut cmdlines = Self::new();
        for (pid, comm) in tasks {
            cmdlines.insert(pid, comm.as_ref());
        }
        cmdlines
    }
}
