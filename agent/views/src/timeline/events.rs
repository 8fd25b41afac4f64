//! The records with their fields, in blocks.
//!
//! A block has columns: the event, the time since the record before, the CPU and the thread of each record;
//! then the fields of each event that occurs, one after the other; and the texts that these have, each once.
//!
//! A column of a field begins with whether values are missing; if so, a byte for each record says which are
//! there. Numbers follow as differences to the value before, and texts as places among those of the block.

use std::fmt::Write as _;

use super::columns::{Columns, number, signed};
use super::index::BlockTold;
use ftrace_event::stacks::symbol;
use ftrace_event::syscalls::{SyscallTable, is_number};
use ftrace_event::{AddressKind, EventTable, FieldKind, FieldReader, NamedField, Printer, Symbols, Value};
use stdx::fast_map::FastMap;
use stdx::parallel::Ended;
use tracedat::reader::{Batch, Record};

/// Records in a block.
const RECORDS: usize = 8192;
/// From so many values of fields on a block is written: events of a hostile file have very many fields.
const VALUES: usize = 1 << 21;
/// From so many bytes of records on a block is written.
const BYTES: usize = 3 << 19;
/// From so many bytes of texts on a block is written.
const TEXTS: usize = 1 << 20;
/// Most bytes of a text; the rest is left out, which the text says at its end.
const TEXT: usize = 1 << 14;

/// The types of columns, as the index has them.
pub(super) mod ty {
    /// A number with a sign, of up to 4 bytes.
    pub(crate) const SIGNED: char = 'i';
    /// One without.
    pub(crate) const UNSIGNED: char = 'u';
    /// The same of 8 bytes.
    pub(crate) const SIGNED_LONG: char = 'I';
    pub(crate) const UNSIGNED_LONG: char = 'U';
    /// An address.
    pub(crate) const ADDRESS: char = 'x';
    /// Anything else, as a text.
    pub(crate) const TEXT: char = 's';
    /// The name of the number before it. Where it has none, nothing is shown.
    pub(crate) const NAME: char = 'n';
}

/// How the records of an event are stored.
#[derive(Debug)]
pub(super) struct Plan {
    /// The event's number in the index.
    pub(super) number: u32,
    fields: Vec<Field>,
}

#[derive(Debug)]
struct Field {
    name: String,
    ty: char,
    what: What,
}

#[derive(Clone, Copy, Debug)]
enum What {
    Number(FieldReader),
    Text(FieldReader),
    /// The name of a value: of a state, of flags.
    Name(NamedField),
    /// The system call that a number stands for.
    Call(FieldReader, SyscallTable),
    /// The function or variable that an address is in.
    Symbol(FieldReader),
    /// The addresses of a stack's frames.
    Frames,
    /// What is printed of the record.
    Printed,
}

impl Plan {
    /// Of the event with a number.
    pub(super) fn of(printer: &Printer, number: u32, calls: Option<SyscallTable>) -> Self {
        let format = printer.format();
        let first = format.common.len();
        let mut fields = Vec::new();
        // These say what is nowhere else.
        let is_printed = printer.is_stack() || printer.system() == "ftrace" && printer.name() == "bprint";
        if is_printed {
            fields.push(Field { name: "text".to_owned(), ty: ty::TEXT, what: What::Printed });
        }
        for (index, field) in format.common.iter().chain(&format.fields).enumerate() {
            if index < first && matches!(field.name.as_str(), "common_type" | "common_pid") {
                continue;
            }
            if printer.is_stack_field(field) {
                fields.push(Field { name: field.name.clone(), ty: ty::TEXT, what: What::Frames });
                continue;
            }
            let Some((reader, kind)) = printer.field(index).zip(printer.kind(index)) else { continue };
            let (ty, what) = match kind {
                FieldKind::Number { .. } if printer.address(field).is_some() => {
                    (ty::ADDRESS, What::Number(reader))
                }
                FieldKind::Number { size: 8, signed: true } => (ty::SIGNED_LONG, What::Number(reader)),
                FieldKind::Number { size: 8, signed: false } => (ty::UNSIGNED_LONG, What::Number(reader)),
                FieldKind::Number { signed: true, .. } => (ty::SIGNED, What::Number(reader)),
                FieldKind::Number { signed: false, .. } => (ty::UNSIGNED, What::Number(reader)),
                FieldKind::Pointer { .. } => (ty::ADDRESS, What::Number(reader)),
                _ => (ty::TEXT, What::Text(reader)),
            };
            fields.push(Field { name: field.name.clone(), ty, what });
            if ty == ty::TEXT || index < first {
                continue;
            }
            let call = calls.filter(|_| is_number(printer.system(), &field.name));
            let name = match (call, printer.named(field)) {
                (Some(calls), _) => Some(What::Call(reader, calls)),
                (None, named) => named.map(What::Name),
            };
            let is_symbol = printer.address(field) == Some(AddressKind::Symbol);
            let symbol = is_symbol.then_some(What::Symbol(reader));
            for (ending, what) in [("name", name), ("symbol", symbol)] {
                let name = format!("{}_{ending}", field.name);
                fields.extend(what.map(|what| Field { name, ty: ty::NAME, what }));
            }
        }
        Self { number, fields }
    }

    /// The names and types of the fields.
    pub(super) fn told(&self) -> Vec<(String, char)> {
        self.fields.iter().map(|field| (field.name.clone(), field.ty)).collect()
    }
}

/// A column of a field that is being filled.
#[derive(Debug, Default)]
struct Column {
    /// Whether each value is there.
    there: Vec<u8>,
    before: u64,
    values: Vec<u8>,
}

/// Where and when a record was made.
#[derive(Clone, Copy, Debug)]
pub(super) struct Made {
    /// Since the first event.
    pub(super) time: u64,
    /// The number of its thread from 1 on; 0 if it does not say.
    pub(super) thread: u32,
}

/// The records of the next block.
#[derive(Debug, Default)]
pub(super) struct Pending {
    records: Batch<Made>,
    /// Of all fields, also those that are missing.
    values: usize,
}

impl Pending {
    /// Adds a record.
    pub(super) fn add(&mut self, record: &Record<'_>, made: Made, plan: &Plan) {
        self.records.push(record, usize::MAX, made);
        self.values += plan.fields.len();
    }

    /// Whether they are a block.
    pub(super) fn is_full(&self) -> bool {
        self.records.len() >= RECORDS || self.values >= VALUES || self.records.size() >= BYTES
    }

    /// Takes them, unless there is none.
    pub(super) fn take(&mut self) -> Option<Batch<Made>> {
        let Self { records, .. } = std::mem::take(self);
        (!records.is_empty()).then_some(records)
    }
}

/// What makes blocks of records, on any thread.
pub(super) struct Packer<'p> {
    pub(super) plans: &'p FastMap<u16, Plan>,
    pub(super) events: &'p EventTable,
    pub(super) symbols: &'p (dyn Symbols + Sync),
}

impl Packer<'_> {
    /// Makes blocks of records: one, unless their texts are very long. Hands on the bytes of each, what the
    /// index says of it, and how many texts were cut.
    pub(super) fn pack(
        &self,
        records: &Batch<Made>,
        hand_on: &mut dyn FnMut(Vec<u8>, BlockTold, u64) -> Result<(), Ended>,
    ) -> Result<(), Ended> {
        let mut made = Block::default();
        for (record, when) in records.iter() {
            let Some(id) = record.event_id() else { continue };
            if let (Some(plan), Some(printer)) = (self.plans.get(&id), self.events.get(id)) {
                made.add(&record, when, (plan, printer), self.symbols);
            }
            if made.is_full() {
                std::mem::take(&mut made).hand_on(hand_on)?;
            }
        }
        if made.count == 0 { Ok(()) } else { made.hand_on(hand_on) }
    }
}

/// The block that is being filled.
#[derive(Debug, Default)]
struct Block {
    count: u32,
    from: u64,
    before: u64,
    events: Vec<u8>,
    times: Vec<u8>,
    cpus: Vec<u8>,
    threads: Vec<u8>,
    /// By the numbers of the events: how many records there are, and the columns of their fields.
    fields: Vec<(u32, Vec<Column>)>,
    texts: FastMap<Box<str>, u64>,
    /// The texts with their lengths.
    all_texts: Vec<u8>,
    text: String,
    /// Texts that were cut.
    cut: u64,
}

impl Block {
    /// Adds a record.
    fn add(
        &mut self,
        record: &Record<'_>,
        made: Made,
        (plan, printer): (&Plan, &Printer),
        symbols: &dyn Symbols,
    ) {
        if self.count == 0 {
            (self.from, self.before) = (made.time, made.time);
        }
        self.count += 1;
        number(plan.number.into(), &mut self.events);
        number(made.time.saturating_sub(self.before), &mut self.times);
        self.before = self.before.max(made.time);
        number(record.cpu.into(), &mut self.cpus);
        number(made.thread.into(), &mut self.threads);
        let place = plan.number as usize;
        if self.fields.len() <= place {
            self.fields.resize_with(place + 1, Default::default);
        }
        // Away while the texts of all events are looked at.
        let (count, mut columns) = self.fields.get_mut(place).map(std::mem::take).unwrap_or_default();
        columns.resize_with(plan.fields.len(), Column::default);
        for (field, column) in plan.fields.iter().zip(&mut columns) {
            let is_there = match field.what {
                What::Number(reader) => {
                    let value = reader.number(record.data);
                    if let Some(value) = value {
                        signed(value.wrapping_sub(column.before).cast_signed(), &mut column.values);
                        column.before = value;
                    }
                    value.is_some()
                }
                What::Text(reader) => match reader.value(record.data) {
                    Ok(value) => {
                        let place = self.value(&value);
                        number(place, &mut column.values);
                        true
                    }
                    Err(_) => false,
                },
                What::Name(named) => {
                    let text = printer.value_text(named, record.data, symbols);
                    text.map(|text| self.text_of(&text, column)).is_some()
                }
                What::Call(reader, calls) => {
                    let name = reader.number(record.data).and_then(|number| calls.name(number));
                    name.map(|name| self.text_of(name.as_bytes(), column)).is_some()
                }
                What::Symbol(reader) => {
                    let found = reader.number(record.data).and_then(|address| symbol(symbols, address));
                    let text = found.map(|symbol| match symbol.offset {
                        0 => symbol.name.to_owned(),
                        offset => format!("{}+{offset:#x}", symbol.name),
                    });
                    text.map(|text| self.text_of(text.as_bytes(), column)).is_some()
                }
                What::Frames => match printer.frames(record.data) {
                    Some(frames) => {
                        let frames: Vec<String> = frames.map(|frame| format!("{frame:#x}")).collect();
                        self.text_of(frames.join(" ").as_bytes(), column);
                        true
                    }
                    None => false,
                },
                What::Printed => {
                    let mut bytes = Vec::new();
                    printer.print(record.data, symbols, &mut bytes);
                    self.text_of(bytes.trim_ascii_end(), column);
                    true
                }
            };
            column.there.push(is_there.into());
        }
        if let Some(of_event) = self.fields.get_mut(place) {
            *of_event = (count + 1, columns);
        }
    }

    /// Adds the place of a text to a column.
    fn text_of(&mut self, text: &[u8], column: &mut Column) {
        self.text.clear();
        self.text.push_str(&String::from_utf8_lossy(text));
        number(self.place(), &mut column.values);
    }

    /// The place of a value's text.
    fn value(&mut self, value: &Value<'_>) -> u64 {
        self.text.clear();
        match value {
            // The kernel's own texts have no such lengths.
            Value::Text(text) => self.text.push_str(&String::from_utf8_lossy(text)),
            // Writing to a string does not fail.
            value => drop(write!(self.text, "{value}")),
        }
        self.place()
    }

    /// The place of the text.
    fn place(&mut self) -> u64 {
        if self.text.len() > TEXT {
            let whole = self.text.len();
            let end = (0..=TEXT).rev().find(|end| self.text.is_char_boundary(*end)).unwrap_or(0);
            self.text.truncate(end);
            let _ = write!(self.text, "… (of {whole} bytes)");
            self.cut += 1;
        }
        if let Some(place) = self.texts.get(self.text.as_str()) {
            return *place;
        }
        let place = self.texts.len() as u64;
        number(self.text.len() as u64, &mut self.all_texts);
        self.all_texts.extend_from_slice(self.text.as_bytes());
        self.texts.insert(self.text.as_str().into(), place);
        place
    }

    fn is_full(&self) -> bool {
        self.all_texts.len() >= TEXTS
    }

    fn hand_on(
        self,
        hand_on: &mut dyn FnMut(Vec<u8>, BlockTold, u64) -> Result<(), Ended>,
    ) -> Result<(), Ended> {
        let (bytes, counts) = self.pack();
        let Self { count, from, before: to, cut, .. } = self;
        hand_on(bytes, BlockTold { block: 0, count: count as usize, from, to, counts }, cut)
    }

    /// Its columns; and the events with their counts, one after the other.
    fn pack(&self) -> (Vec<u8>, Vec<u32>) {
        let mut columns = Columns::default();
        for column in [&self.events, &self.times, &self.cpus, &self.threads, &self.all_texts] {
            columns.add(column);
        }
        let mut counts = Vec::new();
        for (event, (count, fields)) in (0..).zip(&self.fields).filter(|(_, (count, _))| *count != 0) {
            counts.extend([event, *count]);
            for column in fields {
                let mut bytes = vec![u8::from(column.there.contains(&0))];
                if bytes[0] == 1 {
                    bytes.extend_from_slice(&column.there);
                }
                bytes.extend_from_slice(&column.values);
                columns.add(&bytes);
            }
        }
        (columns.into_bytes(), counts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ftrace_event::Endian;
    use ftrace_event::{Format, Machine, NoNames};

    #[test]
    fn blocks_are_bounded_whatever_events_have() {
        let format = "name: wide\nID: 1\nformat:\n\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\n";
        let fields =
            (0..VALUES / 16).map(|nth| format!("\tfield:int f{nth};\toffset:4;\tsize:4;\tsigned:1;\n"));
        let text = format!("{format}{}\nprint fmt: \"\"\n", fields.collect::<String>());
        let printer = Printer::new("test", Format::parse(&text).unwrap(), Machine::default(), &NoNames);
        let plan = Plan::of(&printer, 0, None);
        let mut pending = Pending::default();
        let mut records = 0;
        while !pending.is_full() {
            records += 1;
            let (data, endian) = (&[1, 0, 0, 0, 5, 0, 0, 0], Endian::Little);
            let record =
                Record { reader: 0, buffer: 0, cpu: 0, timestamp: records, missed: None, data, endian };
            let made = Made { time: records, thread: 0 };
            pending.add(&record, made, &plan);
        }
        assert_eq!(records, 16);
        assert_eq!(pending.take().map(|records| records.len()), Some(16));
        assert!(pending.take().is_none() && !pending.is_full());
        let data = &[1; 4096];
        let long =
            Record { reader: 0, buffer: 0, cpu: 0, timestamp: 1, missed: None, data, endian: Endian::Little };
        let few = Plan { number: 0, fields: Vec::new() };
        while !pending.is_full() {
            pending.add(&long, Made { time: 1, thread: 0 }, &few);
        }
        assert!(pending.records.len() < BYTES / 4096 + 1);
    }

    #[test]
    fn long_texts_are_cut_and_counted() {
        let mut block = Block::default();
        let long = "é".repeat(TEXT);
        let places = ["a", &long, "a", &long].map(|text| block.value(&Value::Text(text.as_bytes())));
        assert_eq!((places, block.cut), ([0, 1, 0, 1], 2));
        let cut = block.texts.keys().map(|text| text.len()).max().unwrap();
        assert!(cut < TEXT + 40 && block.texts.keys().any(|text| text.ends_with("… (of 32768 bytes)")));
        // Bytes that are no text do not matter.
        block.value(&Value::Text(b"\xff\0</script>"));
        assert_eq!(block.texts.len(), 3);
        // Blocks do not grow with what is in them.
        for nth in 0.. {
            if block.is_full() {
                break;
            }
            assert!(nth < 100);
            block.value(&Value::Text(format!("{nth}{long}").as_bytes()));
        }
    }
}
