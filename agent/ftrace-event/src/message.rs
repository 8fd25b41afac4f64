//! Texts of `trace_printk` that records refer to: `ftrace:bprint` has the address of a format string and its
//! arguments, `ftrace:bputs` the address of a text. The texts are in the file or in the kernel.
//!
//! Readers of fields see the text as the field [`MESSAGE_FIELD`], as `ftrace:print` has it: either they use
//! [`Printer::message`](crate::Printer::message), or they [inline](Message::inline) the text in each record
//! and read that with the formats of [`EventTable::inline_messages`].
//!
//! [`EventTable::inline_messages`]: crate::EventTable::inline_messages

use crate::format::{Array, Field, Format, Location};
use crate::output::{Limited, Output};
use crate::print::{self, MAX_TEXT};
use crate::record::Machine;
use crate::symbols::Symbols;

/// The field that has the text.
pub const MESSAGE_FIELD: &str = "buf";

/// What stands for a text that is not known.
const UNKNOWN: &[u8] = b"?";

/// Where the records of an event refer to a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    machine: Machine,
    /// Where the address of the format string or of the text is.
    address: usize,
    /// Where the arguments of the format string are.
    arguments: Option<usize>,
    /// Where a record gets its text, in bytes from its start.
    inlined: usize,
}

impl Message {
    /// Of the records of an event. `None` if they refer to no text.
    pub(crate) fn of(system: &str, format: &Format, machine: Machine) -> Option<Self> {
        // Another recorder's event of this name can have fields of other types.
        let inline = |name| format.field(name).filter(|field| field.location == Location::Inline);
        let of_size =
            |name, size| inline(name).filter(|field| field.size == size).map(|field| field.offset as usize);
        let long = |name| of_size(name, u32::from(machine.long_size));
        let end = || format.fields.iter().map(Field::end).max().unwrap_or(0) as usize;
        let (address, arguments) = match (system, format.name.as_str()) {
            ("ftrace", "bprint") => (long("fmt")?, Some(of_size(MESSAGE_FIELD, 0)?)),
            ("ftrace", "bputs") if format.field(MESSAGE_FIELD).is_none() => (long("str")?, None),
            _ => return None,
        };
        Some(Self { machine, address, arguments, inlined: arguments.unwrap_or_else(end) })
    }

    /// Prints the text of a record. `None`, and nothing printed, if it is not known.
    pub fn write<O: Output + ?Sized>(&self, record: &[u8], symbols: &dyn Symbols, out: &mut O) -> Option<()> {
        self.draw(record, symbols, &mut Limited::new(out, MAX_TEXT))
    }

    /// As [`write`](Self::write).
    pub(crate) fn draw<O: Output + ?Sized>(
        &self,
        record: &[u8],
        symbols: &dyn Symbols,
        out: &mut Limited<'_, O>,
    ) -> Option<()> {
        let long = usize::from(self.machine.long_size);
        let address = self.machine.number(record.get(self.address..self.address + long)?);
        let text = symbols.text_at(address)?;
        match self.arguments {
            Some(arguments) => {
                let arguments = record.get(arguments..)?;
                print::print_arguments(text.as_bytes(), arguments, self.machine, symbols, out);
            }
            None => out.push(text.as_bytes()),
        }
        Some(())
    }

    /// Whether the text is a format string, whose arguments the records have.
    pub(crate) fn has_arguments(self) -> bool {
        self.arguments.is_some()
    }

    /// The address of a record's format string. `None` if it has none.
    pub(crate) fn format_address(&self, record: &[u8]) -> Option<u64> {
        self.arguments?;
        let bytes = record.get(self.address..self.address + usize::from(self.machine.long_size))?;
        Some(self.machine.number(bytes))
    }

    /// Puts a record into `out` that has its text, with `?` for one that is not known.
    pub fn inline(&self, record: &[u8], symbols: &dyn Symbols, out: &mut Vec<u8>) {
        out.clear();
        out.extend_from_slice(&record[..record.len().min(self.inlined)]);
        out.resize(self.inlined, 0);
        if self.write(record, symbols, out).is_none() {
            out.extend_from_slice(UNKNOWN);
        }
        out.push(0);
    }

    /// The format of the records that [`inline`](Self::inline) makes.
    pub(crate) fn inlined_format(&self, format: &Format) -> Format {
        let mut format = format.clone();
        format.fields.retain(|field| field.name != MESSAGE_FIELD);
        format.fields.push(Field {
            name: MESSAGE_FIELD.to_owned(),
            type_text: "char".to_owned(),
            array: Array::Open,
            location: Location::Inline,
            offset: self.inlined as u32,
            size: 0,
            signed: false,
            shared_name: None,
        });
        format.print_fmt = format!("\"%ps: %s\", (void *)REC->ip, REC->{MESSAGE_FIELD}");
        format
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::symbols::Symbol;
    use crate::{EventTable, NoNames, NoSymbols, Value};

    const COMMON: &str = "\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;
\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;
";

    struct Texts;

    impl Symbols for Texts {
        fn lookup(&self, address: u64) -> Option<Symbol<'_>> {
            (address == 0x50).then_some(Symbol { name: "caller", offset: 0, size: None, module: None })
        }

        fn text_at(&self, address: u64) -> Option<&str> {
            match address {
                0x1000 => Some("n=%d s=%s\n"),
                0x2000 => Some("whole"),
                _ => None,
            }
        }
    }

    fn table(buf: &str, long: u8) -> EventTable {
        let mut table = EventTable::new(Machine { long_size: long, ..Machine::default() });
        let long = u32::from(long);
        for (name, id, fields) in [
            (
                "bprint",
                6,
                format!(
                    "\tfield:const char * fmt;\toffset:{};\tsize:{long};\tsigned:0;\n\
                     \tfield:u32 {buf};\toffset:{};\tsize:0;\tsigned:0;\n",
                    8 + long,
                    8 + 2 * long
                ),
            ),
            (
                "bputs",
                14,
                format!("\tfield:const char * str;\toffset:{};\tsize:{long};\tsigned:0;\n", 8 + long),
            ),
        ] {
            let text = format!(
                "name: {name}\nID: {id}\nformat:\n{COMMON}\n\
                 \tfield:unsigned long ip;\toffset:8;\tsize:{long};\tsigned:0;\n{fields}\n\
                 print fmt: \"%ps: %s\", (void *)REC->ip, REC->{}\n",
                if id == 6 { "fmt" } else { "str" }
            );
            table.add("ftrace", &text, &NoNames).unwrap();
        }
        table
    }

    fn record(id: u8, long: u8, address: u64, arguments: &[u8]) -> Vec<u8> {
        let mut record = vec![id, 0, 0, 0, 42, 0, 0, 0];
        for number in [0x50, address] {
            record.extend(&u64::to_le_bytes(number)[..usize::from(long)]);
        }
        record.extend(arguments);
        record
    }

    #[test]
    fn records_get_their_texts() {
        let arguments = *b"\x07\0\0\0abc\0";
        for (buf, long) in [("buf[]", 8), ("buf", 8), ("buf", 4)] {
            let mut table = table(buf, long);
            let records = [record(6, long, 0x1000, &arguments), record(14, long, 0x2000, &[])];
            let printed = |table: &EventTable, record: &[u8]| {
                let mut text = String::new();
                table.print(record, &Texts, &mut text).unwrap();
                text
            };
            let texts: Vec<String> = records.iter().map(|record| printed(&table, record)).collect();
            assert_eq!(texts, ["caller: n=7 s=abc\n", "caller: whole"], "{buf} {long}");
            let mut raw = String::new();
            table.get(6).unwrap().print_raw(&records[0], &Texts, &mut raw);
            assert!(raw.ends_with(" buf=n=7 s=abc\n"), "{raw}");

            let messages = table.inline_messages();
            assert_eq!(messages.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [6, 14]);
            let texts: [&[u8]; 2] = [b"n=7 s=abc\n", b"whole"];
            for (((id, message), record), text) in messages.iter().zip(&records).zip(texts) {
                let mut inlined = Vec::new();
                message.inline(record, &Texts, &mut inlined);
                let printer = table.get(*id).unwrap();
                let index = printer.field_index(MESSAGE_FIELD).unwrap();
                assert_eq!(printer.value(index, &inlined), Some(Ok(Value::Text(text))));
                assert_eq!(printed(&table, &inlined), printed(&self::table(buf, long), record));
                // A record that is cut, and a text that no one has.
                message.inline(&record[..10], &NoSymbols, &mut inlined);
                assert_eq!(printer.value(index, &inlined), Some(Ok(Value::Text(b"?"))));
            }
        }
    }
}
