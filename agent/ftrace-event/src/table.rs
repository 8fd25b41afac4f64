//! Printing the records of many events.

use std::fmt;

use super::format::{Field, Format, FormatError, Location, name_and_id};
use super::message::Message;
use super::output::{Limited, Output};
use super::print::{
    self, AddressKind, MAX_TEXT, NamedField, PointerStyle, PrintFmt, PrintFmtError, RawFields,
};
use super::record::{FieldError, FieldKind, FieldReader, Machine, RecordReader, Value};
use super::stacks::{Frames, STACK_FIELD, StackReader};
use super::symbols::{Names, NoNames, Symbols};

/// What the names of fields begin with in which probes keep the addresses that they were hit at
/// (kernel/trace/trace_probe.h, `FIELD_STRING_IP` and others).
const PROBE_ADDRESS: &str = "__probe_";

/// Everything about one event that printing its records needs.
#[derive(Clone, Debug)]
pub struct Printer {
    system: String,
    format: Format,
    machine: Machine,
    reader: RecordReader,
    print_fmt: Result<PrintFmt, PrintFmtError>,
    raw: RawFields,
    special: Special,
    format_error: Option<FormatError>,
}

/// Events whose records are more than their format describes.
#[derive(Clone, Copy, Debug)]
enum Special {
    No,
    /// Stacks of the kernel or of processes.
    Stack(StackReader),
    /// `trace_printk`: where the caller is, and the text.
    Binary {
        caller: usize,
        message: Message,
    },
}

impl Printer {
    /// The printer of an event of a system. A `print fmt` that is not understood is no error: the event's
    /// fields are printed instead, and [`error`](Self::error) says why.
    pub fn new(system: &str, format: Format, machine: Machine, names: &dyn Names) -> Self {
        let reader = RecordReader::new(&format, machine);
        let print_fmt = PrintFmt::compile(&format, machine, names);
        let special = Special::of(system, &format, machine);
        let message = special.message();
        // What the `print fmt` of a text with arguments says is not how its fields are printed.
        let conversions = print_fmt.as_ref().ok().filter(|_| !message.is_some_and(Message::has_arguments));
        let raw = RawFields::new(&format, machine, conversions, message);
        let system = system.to_owned();
        Self { system, format, machine, reader, print_fmt, raw, special, format_error: None }
    }

    /// The kind of machine that writes the records.
    pub fn machine(&self) -> Machine {
        self.machine
    }

    /// Chooses how `%p` prints an address.
    pub fn set_pointers(&mut self, pointers: PointerStyle) {
        if let Ok(print_fmt) = &mut self.print_fmt {
            print_fmt.set_pointers(pointers);
        }
    }

    /// Whether the records are stacks, of the kernel or of a process: addresses in the field [`STACK_FIELD`],
    /// the innermost first.
    pub fn is_stack(&self) -> bool {
        self.stack_reader().is_some()
    }

    /// Whether the records are stacks of the kernel, each belonging to the event before it on its CPU.
    pub fn is_kernel_stack(&self) -> bool {
        self.stack_reader().is_some_and(|stack| stack.is_kernel())
    }

    /// What reads the addresses of records that are stacks. `None` for other records.
    pub fn stack_reader(&self) -> Option<StackReader> {
        if let Special::Stack(stack) = self.special { Some(stack) } else { None }
    }

    /// The frames of a record that is a stack, the innermost first. `None` for other records, and for one
    /// that does not have the field.
    pub fn frames<'r>(&self, record: &'r [u8]) -> Option<Frames<'r>> {
        self.stack_reader()?.frames(record)
    }

    /// The process of a record that is the stack of one, where the record says it.
    pub fn process(&self, record: &[u8]) -> Option<u32> {
        self.stack_reader()?.process(record)
    }

    /// Whether a field has the addresses of a stack: [`frames`](Self::frames) are its values.
    pub fn is_stack_field(&self, field: &Field) -> bool {
        self.is_stack() && field.name == STACK_FIELD
    }

    /// The addresses of a record that is a stack of the kernel, as far as it goes: with those that fill the
    /// room behind its frames, as stock readers print them. Nothing for other records.
    pub fn stack<'r>(&self, record: &'r [u8]) -> impl Iterator<Item = u64> + use<'r> {
        let stack = self.stack_reader().filter(StackReader::is_kernel);
        stack.into_iter().flat_map(move |stack| stack.addresses(record))
    }

    /// The system that the event is of.
    pub fn system(&self) -> &str {
        &self.system
    }

    /// The event's name.
    pub fn name(&self) -> &str {
        &self.format.name
    }

    /// The event's format.
    pub fn format(&self) -> &Format {
        &self.format
    }

    /// Why records are printed as fields.
    pub fn error(&self) -> Option<&PrintFmtError> {
        self.print_fmt.as_ref().err()
    }

    /// Why the format of the file cannot be used, so that the records have no fields but their bytes.
    pub fn format_error(&self) -> Option<&FormatError> {
        self.format_error.as_ref()
    }

    /// Names in the `print fmt` whose value was unknown.
    pub fn unresolved(&self) -> &[String] {
        self.print_fmt.as_ref().map_or(&[], PrintFmt::unresolved)
    }

    /// The names that the `print fmt` has for the values of a field, and the values: entries of its
    /// `__print_symbolic` and `__print_flags`.
    pub fn value_names(&self, field: &Field) -> Vec<(&[u8], u64)> {
        self.print_fmt.as_ref().map(|print_fmt| print_fmt.value_names(field.offset)).unwrap_or_default()
    }

    /// Whether a field of the event's own is an address, or an array of them, by its type, by the conversion
    /// that prints it, or because it is an address of a probe or a stack. `None` for other fields.
    pub fn address(&self, field: &Field) -> Option<AddressKind> {
        let is_address = self.is_stack_field(field) || field.name.starts_with(PROBE_ADDRESS);
        if is_address && field.element_size().is_none_or(|size| size == u32::from(self.machine.long_size)) {
            return Some(AddressKind::Symbol);
        }
        let printed = self.print_fmt.as_ref().ok().and_then(|print_fmt| print_fmt.address(field));
        printed.or_else(|| field.type_text.contains('*').then_some(AddressKind::Number))
    }

    /// Whether the `print fmt` prints names for the values of a field.
    pub fn named(&self, field: &Field) -> Option<NamedField> {
        self.print_fmt.as_ref().ok().and_then(|print_fmt| print_fmt.named(field.offset))
    }

    /// The name of a field's value in a record, as the kernel prints it: one name, or those of all flags that
    /// are set. `None` for a value without a name.
    pub fn value_text(&self, field: NamedField, record: &[u8], symbols: &dyn Symbols) -> Option<Vec<u8>> {
        self.print_fmt.as_ref().ok().and_then(|print_fmt| print_fmt.value_text(field, record, symbols))
    }

    /// Prints a record as the kernel does, without the event's name before it.
    pub fn print<O: Output + ?Sized>(&self, record: &[u8], symbols: &dyn Symbols, out: &mut O) {
        if self.is_kernel_stack() {
            return print::print_stack("<stack trace>", self.stack(record), self.machine, symbols, out);
        }
        if let Some(frames) = self.frames(record) {
            return print::print_stack("<user stack trace>", frames, self.machine, symbols, out);
        }
        self.print_format(record, symbols, out);
    }

    /// Prints a record by the event's `print fmt` and nothing else: of a stack of the kernel the 8 addresses
    /// that the format tells of.
    pub fn print_format<O: Output + ?Sized>(&self, record: &[u8], symbols: &dyn Symbols, out: &mut O) {
        if self.print_message(record, symbols, out).is_some() {
            return;
        }
        match &self.print_fmt {
            Ok(print_fmt) => print_fmt.print(record, symbols, out),
            Err(_) => self.print_fields(record, out),
        }
    }

    /// Prints a record's own fields as `trace-cmd report -R` does: ` name=value name=value`, numbers by the
    /// conversions of the `print fmt` where it has the field by itself, arrays byte by byte.
    pub fn print_raw<O: Output + ?Sized>(&self, record: &[u8], symbols: &dyn Symbols, out: &mut O) {
        self.raw.print(record, self.print_fmt.as_ref().ok(), symbols, out);
    }

    /// The text that records refer to, as those of `trace_printk` do.
    pub fn message(&self) -> Option<Message> {
        self.special.message()
    }

    /// Prints the `trace_printk` that a record is of: the function that called it, and the text. `None`, and
    /// nothing printed, if it is none or its text is unknown.
    fn print_message<O: Output + ?Sized>(
        &self,
        record: &[u8],
        symbols: &dyn Symbols,
        out: &mut O,
    ) -> Option<()> {
        let Special::Binary { caller, message } = self.special else { return None };
        let long = usize::from(self.machine.long_size);
        let caller = self.machine.number(record.get(caller..caller + long)?);
        let mut text = Vec::new();
        if message.write(record, symbols, &mut text).is_none() {
            // As libtraceevent says it. Without arguments, `print fmt` has the address.
            let address = message.format_address(record)?;
            text = format!("(NO FORMAT FOUND at {address:x})").into_bytes();
        }
        print::print_function(caller, symbols, out);
        let out = &mut Limited::new(out, MAX_TEXT);
        out.push(b": ");
        out.push(&text);
        Some(())
    }

    /// Prints a record's own fields as `name=value name=value`: numbers as they are, addresses in hex, texts,
    /// arrays as the kernel prints them, bits as ranges.
    pub fn print_fields<O: Output + ?Sized>(&self, record: &[u8], out: &mut O) {
        let mut out = Limited::new(out, MAX_TEXT);
        for (index, (field, value)) in self.fields(record).enumerate() {
            if index > 0 {
                out.push(b" ");
            }
            out.push(field.declared_name().as_bytes());
            out.push(b"=");
            match value {
                Ok(value) => value.write(&mut out),
                Err(_) => out.push(b"?"),
            }
        }
    }

    /// The event's own fields and their values in a record.
    pub fn fields<'a>(
        &'a self,
        record: &'a [u8],
    ) -> impl Iterator<Item = (&'a Field, Result<Value<'a>, FieldError>)> {
        let first = self.reader.common();
        self.format
            .fields
            .iter()
            .enumerate()
            .filter_map(move |(index, field)| Some((field, self.reader.value(first + index, record)?)))
    }

    /// The fields that all events have, and their values in a record.
    pub fn common_fields<'a>(
        &'a self,
        record: &'a [u8],
    ) -> impl Iterator<Item = (&'a Field, Result<Value<'a>, FieldError>)> {
        self.format
            .common
            .iter()
            .enumerate()
            .filter_map(move |(index, field)| Some((field, self.reader.value(index, record)?)))
    }

    /// The index of a field, for [`value`](Self::value).
    pub fn field_index(&self, name: &str) -> Option<usize> {
        self.format.common.iter().chain(&self.format.fields).position(|field| field.name == name)
    }

    /// The value of a field by its index, common fields first. `None` if there is no such field.
    pub fn value<'r>(&self, index: usize, record: &'r [u8]) -> Option<Result<Value<'r>, FieldError>> {
        self.reader.value(index, record)
    }

    /// A field by its index, common fields first, to read it in many records. `None` if there is no such
    /// field.
    pub fn field(&self, index: usize) -> Option<FieldReader> {
        self.reader.field(index)
    }

    /// What the values of a field are, by its index, common fields first. `None` if there is no such field.
    pub fn kind(&self, index: usize) -> Option<FieldKind> {
        self.reader.kind(index)
    }
}

/// A name of letters, digits and a few other characters, and of no more than 100 of them.
fn usable_name(name: &str) -> String {
    let usable = |c: char| if c.is_ascii_alphanumeric() || "_-.".contains(c) { c } else { '_' };
    let name: String = name.chars().take(100).map(usable).collect();
    if name.is_empty() { "unnamed".to_owned() } else { name }
}

impl Special {
    fn of(system: &str, format: &Format, machine: Machine) -> Self {
        if let Some(stack) = StackReader::of(system, format, machine) {
            return Self::Stack(stack);
        }
        if system != "ftrace" || !["bprint", "bputs"].contains(&format.name.as_str()) {
            return Self::No;
        }
        // Another recorder's event of this name can have fields of other types.
        let is_address =
            |field: &&Field| field.location == Location::Inline && field.size == u32::from(machine.long_size);
        let caller = format.field("ip").filter(is_address);
        match (caller, Message::of(system, format, machine)) {
            (Some(caller), Some(message)) => Self::Binary { caller: caller.offset as usize, message },
            _ => Self::No,
        }
    }
}

impl Special {
    fn message(self) -> Option<Message> {
        match self {
            Self::Binary { message, .. } => Some(message),
            Self::No | Self::Stack(_) => None,
        }
    }
}

impl Value<'_> {
    fn write<O: Output + ?Sized>(&self, out: &mut Limited<'_, O>) {
        struct Writer<'l, 'o, O: ?Sized>(&'l mut Limited<'o, O>);
        impl<O: Output + ?Sized> fmt::Write for Writer<'_, '_, O> {
            fn write_str(&mut self, text: &str) -> fmt::Result {
                self.0.push(text.as_bytes());
                // Stops loops over long arrays.
                if self.0.left() == 0 { Err(fmt::Error) } else { Ok(()) }
            }
        }
        match self {
            Value::Text(text) => out.push(text),
            // An error is that the limit was reached.
            other => drop(fmt::Write::write_fmt(&mut Writer(out), format_args!("{other}"))),
        }
    }
}

impl fmt::Display for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Signed(value) => write!(f, "{value}"),
            Self::Unsigned(value) => write!(f, "{value}"),
            Self::Pointer(value) => write!(f, "0x{value:x}"),
            Self::Text(text) => write_lossy(f, text),
            Self::Texts(texts) => {
                f.write_str("{")?;
                for (index, text) in texts.iter().enumerate() {
                    f.write_str(if index > 0 { ",\"" } else { "\"" })?;
                    write_lossy(f, text.unwrap_or(b"?"))?;
                    f.write_str("\"")?;
                }
                f.write_str("}")
            }
            Self::Array(numbers) => {
                f.write_str("{")?;
                for (index, value) in numbers.iter().enumerate() {
                    let comma = if index > 0 { "," } else { "" };
                    write!(f, "{comma}{value}")?;
                }
                f.write_str("}")
            }
            Self::Bitmask(bits) => {
                let mut open: Option<(usize, usize)> = None;
                let mut first = true;
                for bit in bits.iter().map(Some).chain([None]) {
                    open = match (open, bit) {
                        (Some((start, end)), Some(bit)) if end + 1 == bit => Some((start, bit)),
                        (range, bit) => {
                            if let Some((start, end)) = range {
                                let comma = if first { "" } else { "," };
                                first = false;
                                if start == end {
                                    write!(f, "{comma}{start}")?;
                                } else {
                                    write!(f, "{comma}{start}-{end}")?;
                                }
                            }
                            bit.map(|bit| (bit, bit))
                        }
                    };
                }
                Ok(())
            }
            Self::Bytes(bytes) => bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}")),
        }
    }
}

/// Text with U+FFFD for what is no UTF-8.
fn write_lossy(f: &mut fmt::Formatter<'_>, text: &[u8]) -> fmt::Result {
    text.utf8_chunks().try_for_each(|chunk| {
        f.write_str(chunk.valid())?;
        if chunk.invalid().is_empty() { Ok(()) } else { f.write_str("\u{fffd}") }
    })
}

/// The printers of the events of a file or of a kernel, by number.
#[derive(Clone, Debug)]
pub struct EventTable {
    machine: Machine,
    printers: Vec<Printer>,
    /// Index of the printer of each number, plus one.
    by_id: Vec<u32>,
    pointers: PointerStyle,
}

/// A record that cannot be printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// It is too short for the number of its event.
    #[error("a record of {0} bytes has no event number")]
    Short(usize),
    /// There is no event of that number.
    #[error("no event has the number {0}")]
    UnknownEvent(u16),
}

impl EventTable {
    /// An empty table, for records of that kind of machine.
    pub fn new(machine: Machine) -> Self {
        Self { machine, printers: Vec::new(), by_id: Vec::new(), pointers: PointerStyle::default() }
    }

    /// The kind of machine that wrote the records.
    pub fn machine(&self) -> Machine {
        self.machine
    }

    /// Chooses how `%p` prints an address.
    pub fn set_pointers(&mut self, pointers: PointerStyle) {
        self.pointers = pointers;
        for printer in &mut self.printers {
            printer.set_pointers(pointers);
        }
    }

    /// Adds the event that a format text describes. A later one of the same number replaces an earlier one.
    ///
    /// # Errors
    /// A text that is no format.
    pub fn add(&mut self, system: &str, text: &str, names: &dyn Names) -> Result<&Printer, FormatError> {
        let format = Format::parse(text)?;
        Ok(self.insert(Printer::new(system, format, self.machine, names)))
    }

    /// Adds the event that a text describes which is no usable format: its records have the fields of all
    /// events, and their bytes as [`RAW_FIELD`](crate::format::RAW_FIELD). `None` if the text has no name and
    /// number, or if there is an event of that number.
    pub fn add_raw(&mut self, system: &str, text: &str, error: FormatError) -> Option<&Printer> {
        let (name, id) = name_and_id(text)?;
        let id = u16::try_from(id).ok().filter(|id| self.get(*id).is_none())?;
        let common = match self.printers.first() {
            Some(printer) => printer.format.common.clone(),
            None => Format::usual_common(),
        };
        let format = Format::raw(&usable_name(name), id, &common);
        let mut printer = Printer::new(system, format, self.machine, &NoNames);
        printer.format_error = Some(error);
        Some(self.insert(printer))
    }

    /// Takes an event in, in place of one that has its number.
    fn insert(&mut self, mut printer: Printer) -> &Printer {
        let id = usize::from(printer.format.id);
        printer.set_pointers(self.pointers);
        if self.by_id.len() <= id {
            self.by_id.resize(id + 1, 0);
        }
        let at = match self.by_id[id] as usize {
            0 => {
                self.printers.push(printer);
                self.by_id[id] = self.printers.len() as u32;
                self.printers.len() - 1
            }
            index => {
                self.printers[index - 1] = printer;
                index - 1
            }
        };
        &self.printers[at]
    }

    /// Gives the events whose records refer to texts the formats of records that have them, and returns where
    /// the texts are: records are [made](Message::inline) such before they are read with this table.
    pub fn inline_messages(&mut self) -> Vec<(u16, Message)> {
        let mut found = Vec::new();
        for printer in &mut self.printers {
            let Some(message) = printer.message() else { continue };
            let format = message.inlined_format(&printer.format);
            found.push((format.id, message));
            let mut inlined = Printer::new(&printer.system, format, self.machine, &NoNames);
            inlined.special = Special::No;
            inlined.raw =
                RawFields::new(&inlined.format, self.machine, inlined.print_fmt.as_ref().ok(), None);
            inlined.set_pointers(self.pointers);
            *printer = inlined;
        }
        found
    }

    /// The printer of an event number.
    pub fn get(&self, id: u16) -> Option<&Printer> {
        let index = *self.by_id.get(usize::from(id))? as usize;
        self.printers.get(index.checked_sub(1)?)
    }

    /// All printers, in the order in which they were added.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Printer> {
        self.printers.iter()
    }

    /// How many events there are.
    pub fn len(&self) -> usize {
        self.printers.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.printers.is_empty()
    }

    /// The printer of a record: its first two bytes are the event's number.
    ///
    /// # Errors
    /// A record that is too short, or an event that the table does not have.
    pub fn of_record(&self, record: &[u8]) -> Result<&Printer, RecordError> {
        let id = record.get(..2).ok_or(RecordError::Short(record.len()))?;
        let id = self.machine.number(id) as u16;
        self.get(id).ok_or(RecordError::UnknownEvent(id))
    }

    /// Prints a record as the kernel does, without the event's name, and returns the printer that did it.
    ///
    /// # Errors
    /// A record that is too short, or an event that the table does not have.
    pub fn print<O: Output + ?Sized>(
        &self,
        record: &[u8],
        symbols: &dyn Symbols,
        out: &mut O,
    ) -> Result<&Printer, RecordError> {
        let printer = self.of_record(record)?;
        printer.print(record, symbols, out);
        Ok(printer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::symbols::{NoNames, NoSymbols};

    const COMMON: &str = "\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;
\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;
";
    const OWN: &str = "\tfield:char comm[4];\toffset:8;\tsize:4;\tsigned:0;
\tfield:u16 ports[2];\toffset:12;\tsize:4;\tsigned:0;
\tfield:void * at;\toffset:16;\tsize:8;\tsigned:0;
\tfield:__data_loc cpumask_t cpus;\toffset:24;\tsize:4;\tsigned:0;
\tfield:struct pair p;\toffset:28;\tsize:2;\tsigned:0;
";

    fn text(id: u16, print_fmt: &str) -> String {
        format!("name: event{id}\nID: {id}\nformat:\n{COMMON}\n{OWN}\nprint fmt: {print_fmt}\n")
    }

    fn record(id: u16) -> Vec<u8> {
        let mut record = id.to_le_bytes().to_vec();
        record.extend([0, 0, 42, 0, 0, 0, b'a', 0xff, 0, 0, 80, 0, 0xbb, 1, 0x10, 0, 0, 0, 0, 0, 0, 0]);
        record.extend(0x0008_0020_u32.to_le_bytes());
        record.extend([1, 2, 0, 0, 0b1011_0111, 0, 0, 0, 1, 0, 0, 0]);
        record
    }

    #[test]
    fn events_are_printed_by_number() {
        let mut table = EventTable::new(Machine::default());
        table.add("sys", &text(300, "\"ports=%d\", REC->ports[1]"), &NoNames).unwrap();
        assert!(table.add("sys", "nothing", &NoNames).is_err());
        let printer = table.add("sys", &text(7, "\"%d\", mystery(REC->at)"), &NoNames).unwrap();
        assert_eq!(
            printer.error().unwrap().to_string(),
            "at byte 6 of print fmt: unknown function `mystery`"
        );
        assert_eq!((table.len(), table.iter().filter(|printer| printer.error().is_some()).count()), (2, 1));

        let print = |record: &[u8]| {
            let mut text = String::new();
            table.print(record, &NoSymbols, &mut text).map(|printer| (printer.name().to_owned(), text))
        };
        assert_eq!(print(&record(300)).unwrap(), ("event300".to_owned(), "ports=443".to_owned()));
        let fields = "comm=a\u{fffd} ports={80,443} at=0x10 cpus=0-2,4-5,7,32 p=0102";
        assert_eq!(print(&record(7)).unwrap(), ("event7".to_owned(), fields.to_owned()));
        assert_eq!(print(&record(8)).unwrap_err(), RecordError::UnknownEvent(8));
        assert_eq!(print(&record(301)).unwrap_err(), RecordError::UnknownEvent(301));
        assert_eq!(print(&[1]).unwrap_err(), RecordError::Short(1));
        // What is cut off is not there; the rest is.
        assert_eq!(print(&record(7)[..16]).unwrap().1, "comm=a\u{fffd} ports={80,443} at=? cpus=? p=?");

        // A second text of the same number replaces the first.
        table.add("sys", &text(7, "\"x\""), &NoNames).unwrap();
        assert_eq!((table.len(), table.get(7).unwrap().error()), (2, None));
    }

    #[test]
    fn records_without_a_usable_format_keep_their_bytes() {
        let mut table = EventTable::new(Machine::default());
        table.add("sys", &text(300, "\"\""), &NoNames).unwrap();
        let broken = "name: odd one\nID: 7\nformat:\n\tfield:int x[1][2];\toffset:8;\tsize:8;\tsigned:1;\n";
        let error = table.add("sys", broken, &NoNames).unwrap_err();
        assert!(table.add_raw("sys", "name: x\n", error.clone()).is_none());
        assert!(table.add_raw("sys", &broken.replace("ID: 7", "ID: 300"), error.clone()).is_none());
        let printer = table.add_raw("sys", broken, error.clone()).unwrap();
        assert_eq!((printer.name(), printer.format_error()), ("odd_one", Some(&error)));
        let record = record(7);
        let mut printed = String::new();
        table.print(&record, &NoSymbols, &mut printed).unwrap();
        let hex = printed.strip_prefix("raw=61ff0000").unwrap();
        assert_eq!(hex.len() / 2, record[8..].len() - 4);
        let printer = table.get(7).unwrap();
        assert_eq!(printer.format().common, table.get(300).unwrap().format().common);
        assert_eq!(printer.value(2, &record), Some(Ok(Value::Bytes(&record[8..]))));
        let mut raw = String::new();
        printer.print_raw(&record[..10], &NoSymbols, &mut raw);
        assert_eq!(raw, " raw=ARRAY[61, ff]");
        // Without another event, the common fields are those of all kernels.
        let mut alone = EventTable::new(Machine::default());
        alone.add_raw("sys", broken, error).unwrap();
        assert_eq!(alone.get(7).unwrap().field_index("common_pid"), Some(3));
    }

    #[test]
    fn fields_by_name_and_in_order() {
        let format = Format::parse(&text(1, "\"\"")).unwrap();
        let printer = Printer::new("sys", format, Machine::default(), &NoNames);
        let record = record(1);
        let names: Vec<&str> = printer.fields(&record).map(|(field, _)| field.name.as_str()).collect();
        assert_eq!(names, ["comm", "ports", "at", "cpus", "p"]);
        let pid = printer.field_index("common_pid").unwrap();
        assert_eq!(printer.value(pid, &record), Some(Ok(Value::Signed(42))));
        assert_eq!(printer.common_fields(&record).count(), 2);
        assert_eq!(printer.value(99, &record), None);
    }

    #[test]
    fn pointers_as_the_kernel_and_as_trace_cmd_print_them() {
        let mut table = EventTable::new(Machine::default());
        table.add("sys", &text(1, "\"%p %p %px\", REC->at, (void *)0, REC->at"), &NoNames).unwrap();
        let print = |table: &EventTable| {
            let mut text = String::new();
            table.print(&record(1), &NoSymbols, &mut text).unwrap();
            text
        };
        assert_eq!(print(&table), "0000000000000010 0000000000000000 0000000000000010");
        table.set_pointers(PointerStyle::TraceCmd);
        assert_eq!(print(&table), "0x10 (nil) 0x10");
    }

    #[test]
    fn a_stack_goes_on_to_the_end_of_its_record() {
        let own = "\tfield:int size;\toffset:8;\tsize:4;\tsigned:1;
\tfield:unsigned long caller[8];\toffset:16;\tsize:64;\tsigned:0;";
        let text = format!("name: kernel_stack\nID: 4\nformat:\n{COMMON}\n{own}\n\nprint fmt: \"\"");
        let mut table = EventTable::new(Machine::default());
        let printer = table.add("ftrace", &text, &NoNames).unwrap();
        assert!(printer.is_kernel_stack());
        let mut record = vec![4, 0, 0, 0, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0, 0, 0];
        for address in (1..=10).chain([u64::MAX, 11]) {
            record.extend(u64::to_le_bytes(address));
        }
        let mut text = String::new();
        table.print(&record, &NoSymbols, &mut text).unwrap();
        assert!(
            text.starts_with("<stack trace>\n => 0x1\n => 0x2\n") && text.ends_with("\n => 0xa"),
            "{text}"
        );
    }
}
