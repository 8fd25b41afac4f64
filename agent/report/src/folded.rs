//! Folded stacks: the input of flame graphs.
//!
//! One line for each stack: the thread's name, the functions from the outermost to the innermost, and a
//! number, as `stackcollapse-perf.pl` of FlameGraph makes them of `perf script`.

use super::batch::Item;
use super::view::{BufferView, FileView};
use flame::{FlameStacks, Frame, Kind, Unit};
use ftrace_event::stacks::{Origin, Stack, Stacks, flags, function, place_of_frame, without_tracing};
use ftrace_event::{Printer, Value};

/// Counted stacks.
#[derive(Clone, Debug)]
pub struct Folded {
    /// The stacks.
    pub stacks: FlameStacks,
    /// Events without a stack, which are not counted.
    pub without_stack: u64,
    /// Events with a stack, and without a number above 0 in the field that is added up.
    pub without_value: u64,
}

/// Counts the stacks of records as they come.
pub(super) struct Folding<'a, 'v> {
    files: &'v [FileView<'a>],
    /// The field that is added up; without one, events are counted.
    field: Option<&'a str>,
    /// `None` for events that are not selected: their stacks must not go to others.
    waiting: Stacks<Option<Event>>,
    folded: Folded,
}

/// What is needed of an event until its stack is complete.
struct Event {
    file: usize,
    pid: u32,
    /// Which record it is: names of threads hold from the record on that told them.
    number: u64,
    /// What its stack counts.
    weight: Option<u64>,
}

impl<'a, 'v> Folding<'a, 'v> {
    pub(super) fn new(files: &'v [FileView<'a>], field: Option<&'a str>) -> Self {
        let unit = field.map_or(Unit::Events, |field| Unit::Field(field.to_owned()));
        let folded = Folded { stacks: FlameStacks::new("", unit), without_stack: 0, without_value: 0 };
        Self { files, field, waiting: Stacks::default(), folded }
    }

    /// Takes a record, which has to be there whether its event is selected or not.
    pub(super) fn record(&mut self, buffer: &BufferView<'_>, item: &Item, data: &[u8]) {
        let record = item.record(data);
        let Some(file) = self.files.get(buffer.file) else { return };
        let stream = (item.buffer as usize, item.cpu);
        let event = file.event(record);
        if item.missed().is_some() || event.is_none() {
            let complete: Vec<_> = self.waiting.gap(stream).collect();
            for event in complete {
                self.count(event);
            }
        }
        let Some(printer) = event.map(|event| event.printer) else { return };
        let origin = Origin { stream, flags: flags(printer, record) };
        if printer.is_stack() {
            return self.waiting.stack(origin, printer, record);
        }
        let event = item.selected.then(|| self.event(buffer, file, printer, item, record));
        if let Some(complete) = self.waiting.event(origin, event) {
            self.count(complete);
        }
    }

    /// Whether the stack of a selected event is still to come.
    pub(super) fn is_waiting(&self) -> bool {
        self.waiting.any(Option::is_some)
    }

    fn event(
        &self,
        buffer: &BufferView<'_>,
        file: &FileView<'_>,
        printer: &Printer,
        item: &Item,
        record: &[u8],
    ) -> Event {
        let weight = match self.field {
            None => Some(1),
            Some(field) => {
                let value = printer.field_index(field).and_then(|index| printer.value(index, record));
                let number = match value.and_then(Result::ok) {
                    // A result below 0 is an error's number.
                    Some(Value::Signed(value)) => u64::try_from(value).ok(),
                    Some(Value::Unsigned(value) | Value::Pointer(value)) => Some(value),
                    _ => None,
                };
                number.filter(|number| *number != 0)
            }
        };
        Event { file: buffer.file, pid: file.pid(record), number: item.number, weight }
    }

    /// The end of the records.
    pub(super) fn finish(mut self) -> Folded {
        let rest: Vec<_> = self.waiting.finish().collect();
        for event in rest {
            self.count(event);
        }
        self.folded
    }

    fn count(&mut self, (event, stack): (Option<Event>, Stack)) {
        let Some(event) = event else { return };
        if stack.is_empty() {
            self.folded.without_stack += 1;
            return;
        }
        let Some(weight) = event.weight else {
            self.folded.without_value += 1;
            return;
        };
        let Some(file) = self.files.get(event.file) else { return };
        file.tasks.with_name(event.pid, event.number, |name| {
            let name = String::from_utf8_lossy(name);
            let thread = std::iter::once(Frame { kind: Kind::Thread, name: &name });
            let of = |kind: Kind| move |address: &u64| (kind, function(file.symbols, *address));
            let place = |address: &u64| place_of_frame(file.symbols, stack.process, *address);
            let places: Vec<u64> = stack.user.iter().rev().map(place).collect();
            let user = places.iter().map(of(Kind::User));
            let kernel = without_tracing(file.symbols, &stack.kernel);
            let functions: Vec<_> = user.chain(kernel.iter().rev().map(of(Kind::Kernel))).collect();
            let frames = functions.iter().map(|(kind, name)| Frame { kind: *kind, name });
            self.folded.stacks.add(thread.chain(frames), weight);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::super::crafted::{self, Entry, ev, stack, unknown};
    use super::super::{Report, Selection};
    use flame::Format;
    use ftrace_event::filter;

    const SYMBOLS: &str = "1000 t f1\n2000 t f2\n3000 t f3\n4000 t f4\n5000 t f5\n6000 t end\n";
    const IRQ: u8 = 0x08;

    /// Folds records; a filter selects some.
    fn fold(entries: &[Entry], filter: Option<&str>, selection: Selection, field: Option<&str>) -> String {
        let file = [crafted::file(entries, SYMBOLS, "1 one\n5 five\n", "[local]")];
        let mut filters = Vec::new();
        if let Some(text) = filter {
            let mut found = filter::Selection::new(file[0].events());
            found.add_text(text, false, file[0].events()).unwrap();
            filters.push(found);
        }
        let report = Report::new(&file).select(Selection { filters, ..selection });
        let (folded, summary) = report.fold(field, |_| {});
        assert_eq!(summary.damage.texts, Vec::<String>::new());
        let mut text = Vec::new();
        if !folded.stacks.is_empty() {
            Format::Folded.write(&folded.stacks, &mut text).unwrap();
        }
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn stacks_do_not_go_to_events_before_a_gap() {
        let before = [ev(1, 0, 1, 0), stack(1, 0, &[0x1000, 0x2000])];
        let after = [stack(1, 0, &[0x4000, 0x5000]), ev(1, 0, 1, 0), stack(1, 0, &[0x3000])];
        for gap in [Entry::Lost, unknown()] {
            let entries = [&before[..], &[gap], &after].concat();
            assert_eq!(fold(&entries, None, Selection::default(), None), "one;f2;f1 1\none;f3 1\n");
        }
    }

    #[test]
    fn stacks_are_selected_with_their_events() {
        let entries = [
            ev(1, 0, 1, 5),
            stack(1, 0, &[0x1000]),
            ev(1, 0, 2, 0),
            ev(1, IRQ, 1, 0),
            stack(1, IRQ, &[0x5000]),
            stack(1, 0, &[0x2000]),
        ];
        let all = Selection::default;
        assert_eq!(fold(&entries, None, all(), None), "one;f1 1\none;f2 1\none;f5 1\n");
        assert_eq!(fold(&entries, Some("ev: ptr == 1"), all(), None), "one;f1 1\none;f5 1\n");
        // The stack's own record is of thread 1 and has no such field; it comes after the time and the
        // number.
        let of_five = Selection { pids: Some([5].into()), ..all() };
        assert_eq!(fold(&entries, None, of_five, None), "one;f1 1\n");
        let first = Selection { limit: Some(1), ..all() };
        assert_eq!(fold(&entries, None, first, None), "one;f1 1\n");
        let until = Selection { until: Some(1003), ..all() };
        assert_eq!(fold(&entries, None, until, None), "one;f1 1\none;f2 1\n");
        let no_irqs = Selection { no_hard_irqs: true, ..all() };
        assert_eq!(fold(&entries, None, no_irqs, None), "one;f1 1\none;f2 1\n");
    }

    #[test]
    fn values_are_positive_by_the_sign_of_their_field() {
        let entries = [ev(1, 0, 1 << 63, 0), stack(1, 0, &[0x1000])];
        assert_eq!(fold(&entries, None, Selection::default(), Some("ptr")), "one;f1 9223372036854775808\n");
        assert_eq!(fold(&entries, None, Selection::default(), Some("ret")), "");
        let twice = [entries.clone(), entries].concat();
        assert_eq!(fold(&twice, None, Selection::default(), Some("ptr")), "one;f1 18446744073709551616\n");
    }
}
