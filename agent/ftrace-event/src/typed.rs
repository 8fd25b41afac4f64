//! Fields of the kernel's events by what they are in the kernel.
//!
//! The formats of other tracers, and those that an import makes of a text, have fields of the kernel's names
//! and other types. Whoever reads a field for its meaning takes it from here: a field of another type is
//! none, unless its values mean the same.

use super::format::Format;
use super::record::{FieldKind, FieldReader, StateBits};
use super::table::Printer;

/// What a field is in the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// A number or an address: [`FieldReader::number`].
    Number,
    /// A text: [`FieldReader::text`].
    Text,
    /// An array of numbers: [`FieldReader::value`].
    Numbers,
    /// `prev_state` of `sched_switch`: [`FieldReader::number`] has the bits of [`state`], whatever bits the
    /// kernel had for them, and also where the field is a text of the kernel's letters.
    State,
}

/// Bits of a task's state, as kernels since 4.14 record them (`TASK_REPORT` of include/linux/sched.h).
pub mod state {
    /// `S`: a signal ends its sleep.
    pub const INTERRUPTIBLE: u64 = 0x1;
    /// `D`
    pub const UNINTERRUPTIBLE: u64 = 0x2;
    /// `T`
    pub const STOPPED: u64 = 0x4;
    /// `t`
    pub const TRACED: u64 = 0x8;
    /// `X`
    pub const DEAD: u64 = 0x10;
    /// `Z`
    pub const ZOMBIE: u64 = 0x20;
    /// `P`
    pub const PARKED: u64 = 0x40;
    /// `I`: a thread of the kernel that sleeps without being part of the load.
    pub const IDLE: u64 = 0x80;
    /// `+`: it could go on.
    pub const PREEMPTED: u64 = 0x100;

    /// The bit of a letter; 0 for a letter that says nothing else than others do: kernels before 4.14 show
    /// that a task is being woken (`W`), new (`N`), or that only a deadly signal wakes it (`K`).
    pub(crate) fn of_letter(letter: u8) -> Option<u64> {
        Some(match letter {
            b'R' | b'K' | b'W' | b'N' => 0,
            b'S' => INTERRUPTIBLE,
            b'D' => UNINTERRUPTIBLE,
            b'T' => STOPPED,
            b't' => TRACED,
            // `x` is a task that has ended (`TASK_DEAD`) before 4.14.
            b'X' | b'x' => DEAD,
            b'Z' => ZOMBIE,
            b'P' => PARKED,
            b'I' => IDLE,
            _ => return None,
        })
    }

    /// The bits of the kernel's text of a state: `S`, `D|K`, `R+`. `None` for any other text.
    pub fn of_letters(text: &[u8]) -> Option<u64> {
        let (letters, preempted) = match text.strip_suffix(b"+") {
            Some(letters) => (letters, PREEMPTED),
            None => (text, 0),
        };
        letters.split(|byte| *byte == b'|').try_fold(preempted, |bits, part| match part {
            [letter] => Some(bits | of_letter(*letter)?),
            _ => None,
        })
    }
}

impl Printer {
    /// A field by its name, if it is what is meaning. `None` if there is none, or one of another type.
    pub fn typed(&self, name: &str, meaning: Meaning) -> Option<FieldReader> {
        let index = self.field_index(name)?;
        let (reader, kind) = self.field(index).zip(self.kind(index))?;
        match (meaning, kind) {
            (Meaning::Number, FieldKind::Number { .. } | FieldKind::Pointer { .. })
            | (Meaning::Text, FieldKind::Text)
            | (Meaning::Numbers, FieldKind::Array { .. }) => Some(reader),
            (Meaning::State, FieldKind::Text) => Some(reader.of_letters()),
            (Meaning::State, FieldKind::Number { .. }) => Some(match self.state_bits(name) {
                Some(bits) => reader.of_bits(bits),
                None => reader,
            }),
            _ => None,
        }
    }

    /// The numbers of a kernel that has other bits for states than [`state`], by its own table. `None` for
    /// one that has these, and for a format without a table.
    fn state_bits(&self, name: &str) -> Option<StateBits> {
        let field = Format::field(self.format(), name)?;
        let mut bits = StateBits::default();
        let (mut is_other, mut has_letters) = (false, false);
        for (name, bit) in self.value_names(field) {
            let [letter] = name else { continue };
            let place = bit.trailing_zeros() as usize;
            let (true, Some(of)) = (bit.is_power_of_two(), state::of_letter(*letter)) else { continue };
            let Some(slot) = bits.0.get_mut(place) else { continue };
            (*slot, has_letters) = (of as u8, true);
            is_other |= of != bit;
        }
        (is_other && has_letters).then_some(bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Machine, NoNames, Value};

    fn switch(field: &str, print_fmt: &str) -> Printer {
        let text = format!(
            "name: sched_switch\nID: 7\nformat:\n\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\n\
             \tfield:{field}\n\nprint fmt: {print_fmt}\n"
        );
        Printer::new("sched", Format::parse(&text).unwrap(), Machine::default(), &NoNames)
    }

    const LONG: &str = "long prev_state;\toffset:8;\tsize:8;\tsigned:1;";

    fn record(state: u64) -> Vec<u8> {
        [7_u64.to_le_bytes(), state.to_le_bytes()].concat()
    }

    #[test]
    fn a_field_of_another_type_is_none() {
        let number = switch(LONG, "\"\"");
        let text = switch("__data_loc char[] prev_state;\toffset:8;\tsize:4;\tsigned:0;", "\"\"");
        let array = switch("u16 prev_state[4];\toffset:8;\tsize:8;\tsigned:0;", "\"\"");
        let has = |printer: &Printer| {
            [Meaning::Number, Meaning::Text, Meaning::Numbers, Meaning::State]
                .map(|meaning| printer.typed("prev_state", meaning).is_some())
        };
        assert_eq!(has(&number), [true, false, false, true]);
        assert_eq!(has(&text), [false, true, false, true]);
        assert_eq!(has(&array), [false, false, true, false]);
        assert!(number.typed("state", Meaning::Number).is_none());
    }

    #[test]
    fn letters_say_what_bits_say() {
        let of = |text: &str| state::of_letters(text.as_bytes());
        assert_eq!(["R", "R+", "S", "D|K", "R|K", "D|W"].map(of), [0, 0x100, 1, 2, 0, 2].map(Some));
        assert_eq!(["x", "X", "Z", "T|t", "D|N", "I", "P"].map(of), [16, 16, 32, 12, 2, 128, 64].map(Some));
        assert_eq!(["", "+", "S|", "0x400", "Q", "SD"].map(of), [None; 6]);
        let text = switch("char prev_state[8];\toffset:8;\tsize:8;\tsigned:0;", "\"\"");
        let state = text.typed("prev_state", Meaning::State).unwrap();
        let record = [&7_u64.to_le_bytes()[..], b"D|K\0\0\0\0\0"].concat();
        assert_eq!((state.number(&record), state.text(&record)), (Some(2), None));
        assert_eq!(state.value(&record), Ok(Value::Unsigned(2)));
    }

    #[test]
    fn bits_of_old_kernels_are_those_of_new_ones() {
        let table = |table: &str| {
            let print_fmt = format!("\"%s\", __print_flags(REC->prev_state, \"|\", {table})");
            let printer = switch(LONG, &print_fmt);
            let state = printer.typed("prev_state", Meaning::State).unwrap();
            [0, 1, 0x10, 0x20, 0x40, 0x82, 0x400].map(|bits| state.number(&record(bits)))
        };
        let new = "{ 1, \"S\" }, { 2, \"D\" }, { 4, \"T\" }, { 8, \"t\" }, { 0x10, \"X\" }, { 0x20, \"Z\" }, { 0x40, \"P\" }";
        assert_eq!(table(new), [0, 1, 0x10, 0x20, 0x40, 0x82, 0x400].map(Some));
        let old = "{ 1, \"S\" }, { 2, \"D\" }, { 16, \"Z\" }, { 32, \"X\" }, { 64, \"x\" }, { 128, \"K\" }, { 256, \"W\" }";
        assert_eq!(table(old), [0, 1, 0x20, 0x10, 0x10, 2, 0].map(Some));
    }
}
