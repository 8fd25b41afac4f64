//! Letters of task states.
//!
//! Which bit of `prev_state` means what has changed from kernel to kernel: a dead task was 16 until Linux
//! 4.13 and is 16 again, `x` became `X`, idle threads and parked ones got letters of their own
//! (`fs/proc/array.c`, `task_state_array`). A recording says it in the `print fmt` of its `sched_switch`.

use ftrace_event::Printer;

/// Which letters are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum States {
    /// Those of the recording's own format, as `trace-cmd report -N` and libtraceevent from 1.8 on print
    /// them.
    OfFormat,
    /// Those of libtraceevent 1.7 and before, whatever the kernel.
    Old,
}

/// The letter of each bit; 0 where it has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct TaskStates {
    letters: [u8; 32],
    /// What stands for bits without a letter alone: the kernel's mark of a task that was preempted.
    preempted: &'static [u8],
}

impl TaskStates {
    /// The letters for the records of this event.
    pub(super) fn of(printer: &Printer, states: States) -> Self {
        if states == States::Old {
            return Self::from_word(b"SDTtZXxW", b"R");
        }
        let names = printer.format().field("prev_state").map(|field| printer.value_names(field));
        let mut letters = [0; 32];
        for (name, bit) in names.unwrap_or_default() {
            if bit.is_power_of_two()
                && let Some(slot) = letters.get_mut(bit.trailing_zeros() as usize)
                && let Some(letter) = name.first()
            {
                *slot = *letter;
            }
        }
        if letters == [0; 32] {
            // A format without a table. This one holds since Linux 4.14.
            return Self::from_word(b"SDTtXZPI", b"R+");
        }
        Self { letters, preempted: b"R+" }
    }

    fn from_word(word: &[u8], preempted: &'static [u8]) -> Self {
        let mut letters = [0; 32];
        letters.iter_mut().zip(word).for_each(|(slot, letter)| *slot = *letter);
        Self { letters, preempted }
    }

    /// Prints the letters of a state. One without any bit is a running task.
    pub(super) fn write(&self, out: &mut Vec<u8>, state: u64) {
        let start = out.len();
        // There are letters for the lower half only.
        let mut left = state as u32;
        while left != 0 {
            let bit = left.trailing_zeros() as usize;
            left &= left - 1;
            if let Some(letter) = self.letters.get(bit).filter(|letter| **letter != 0) {
                if out.len() > start {
                    out.push(b'|');
                }
                out.push(*letter);
            }
        }
        if out.len() == start {
            out.extend_from_slice(if state == 0 { b"R" } else { self.preempted });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ftrace_event::{EventTable, Machine, NoNames};

    /// `sched_switch` of a kernel with this table.
    fn states(table: &str) -> TaskStates {
        let format = format!(
            "name: sched_switch\nID: 7\nformat:\n\
             \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\n\
             \tfield:long prev_state;\toffset:8;\tsize:8;\tsigned:1;\n\n\
             print fmt: \"prev_state=%s%s\", (REC->prev_state & 255) ? \
             __print_flags(REC->prev_state & 255, \"|\", {table}) : \"R\", REC->prev_state & 256 ? \"+\" : \"\"\n"
        );
        let mut events = EventTable::new(Machine::default());
        TaskStates::of(events.add("sched", &format, &NoNames).unwrap(), States::OfFormat)
    }

    fn letters(states: TaskStates, bits: &[u64]) -> Vec<String> {
        let print = |bits: &u64| {
            let mut out = Vec::new();
            states.write(&mut out, *bits);
            String::from_utf8(out).unwrap()
        };
        bits.iter().map(print).collect()
    }

    #[test]
    fn kernels_have_tables_of_their_own() {
        let bits = [0, 1, 2, 3, 16, 32, 64, 128, 256];
        // Linux 6.12, then 4.9.
        let new = "{ 0x00000001, \"S\" }, { 0x00000002, \"D\" }, { 0x00000004, \"T\" }, { 0x00000008, \"t\" }, \
                   { 0x00000010, \"X\" }, { 0x00000020, \"Z\" }, { 0x00000040, \"P\" }, { 0x00000080, \"I\" }";
        let old = "{ 1, \"S\"} , { 2, \"D\" }, { 4, \"T\" }, { 8, \"t\" }, { 16, \"Z\" }, { 32, \"X\" }, \
                   { 64, \"x\" }, { 128, \"K\" }";
        assert_eq!(letters(states(new), &bits), ["R", "S", "D", "S|D", "X", "Z", "P", "I", "R+"]);
        assert_eq!(letters(states(old), &bits), ["R", "S", "D", "S|D", "Z", "X", "x", "K", "R+"]);
        // Names without a bit are none.
        assert_eq!(letters(states("{ 0, \"N\" }, { 3, \"B\" }"), &bits)[4], "X");
    }

    #[test]
    fn the_old_letters_hold_for_all_kernels() {
        let mut events = EventTable::new(Machine::default());
        let text = "name: any\nID: 1\nformat:\n\n\tfield:int a;\toffset:8;\tsize:4;\tsigned:1;\n\nprint fmt: \"%d\", REC->a\n";
        let states = TaskStates::of(events.add("a", text, &NoNames).unwrap(), States::Old);
        assert_eq!(letters(states, &[0, 32, 128, 256]), ["R", "X", "W", "R"]);
    }
}
