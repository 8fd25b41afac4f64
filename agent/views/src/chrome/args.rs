//! What an instant says of its record: the members of `report --json` that are not in the event itself.

use super::lanes::Lane;
use super::out::Out;
use ftrace_event::syscalls::SyscallTable;
use ftrace_event::{EventTable, FieldReader, Meaning, Printer, Symbols, Value};
use recording::{Job, Recording};
use report::json::{Numbers, Role, Values, string};
use report::text::{signed, unsigned};
use stdx::fast_map::FastMap;
use tracedat::reader::Record;

/// How the records of an event are told.
struct Plan<'r> {
    printer: &'r Printer,
    /// The members that all of its instants have: category, name, scope.
    same: Vec<u8>,
    roles: Box<[Role]>,
    pid: Option<FieldReader>,
    flags: Option<FieldReader>,
    preempt_count: Option<FieldReader>,
}

/// What tells of records, on any thread.
pub(super) struct Args<'r> {
    recording: &'r Recording<'r>,
    plans: FastMap<u16, Plan<'r>>,
    syscalls: Option<SyscallTable>,
}

/// What could not be told of records.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Untold {
    /// Fields without a value.
    pub(super) unknown: u64,
    /// Records with texts that are not UTF-8.
    pub(super) replaced: u64,
}

impl<'r> Args<'r> {
    /// For the events of a recording.
    pub(super) fn of(recording: &'r Recording<'r>) -> Self {
        Self { recording, plans: plans(recording.events()), syscalls: recording.syscalls() }
    }

    /// Writes the instant of a record.
    pub(super) fn write(
        &self,
        record: &Record<'_>,
        lane: Lane,
        symbols: &dyn Symbols,
        out: &mut Out,
    ) -> Untold {
        let plan = record.event_id().and_then(|id| self.plans.get(&id));
        let Some(plan) = plan else { return Untold::default() };
        let Plan { printer, same, roles, pid, flags, preempt_count } = plan;
        let (mut unknown, mut may_be_replaced) = (0, false);
        out.event(b'i', lane, record.timestamp).members(same).args(|args| {
            let number = |field: &Option<FieldReader>| field.and_then(|field| field.number(record.data));
            args.extend_from_slice(b"\"cpu\":");
            unsigned(args, record.cpu.into());
            if let Some(pid) = number(pid) {
                args.extend_from_slice(b",\"pid\":");
                signed(args, i64::from((pid as u32).cast_signed()));
            }
            for (key, field) in [(&b",\"flags\":"[..], flags), (b",\"preempt_count\":", preempt_count)] {
                if let Some(value) = number(field) {
                    args.extend_from_slice(key);
                    unsigned(args, value);
                }
            }
            let buffer = self.recording.file().buffers().get(record.buffer);
            if let Some(buffer) = buffer.filter(|buffer| !buffer.name.is_empty()) {
                args.extend_from_slice(b",\"buffer\":");
                string(args, buffer.name.as_bytes());
            }
            args.push(b',');
            let (syscalls, numbers) = (self.syscalls, Numbers::Texts);
            let start = args.len();
            unknown = Values { printer, roles, symbols, syscalls, numbers }.write(args, record.data);
            // Most records have no such byte, with which U+FFFD begins.
            may_be_replaced = args.get(start..).is_some_and(|told| told.contains(&0xef));
        });
        let replaced = u64::from(may_be_replaced && has_wrong_bytes(printer, record.data));
        Untold { unknown, replaced }
    }
}

impl Untold {
    pub(super) fn add(&mut self, other: Self) {
        self.unknown += other.unknown;
        self.replaced += other.replaced;
    }

    /// Counts it.
    pub(super) fn tell(self, job: &Job<'_>) {
        job.not_carried("values of fields that are not in their records, or too long", self.unknown);
        job.not_carried(
            "records with texts that are not UTF-8, whose wrong bytes are replaced",
            self.replaced,
        );
    }
}

fn has_wrong_bytes(printer: &Printer, record: &[u8]) -> bool {
    let is_wrong = |text: &[u8]| std::str::from_utf8(text).is_err();
    printer.fields(record).any(|(_, value)| match value {
        Ok(Value::Text(text)) => is_wrong(text),
        Ok(Value::Texts(texts)) => texts.iter().any(|text| text.is_ok_and(is_wrong)),
        _ => false,
    })
}

fn plans(events: &EventTable) -> FastMap<u16, Plan<'_>> {
    let plan = |printer| {
        let reader = |name: &str| Printer::typed(printer, name, Meaning::Number);
        let mut same = b",\"cat\":".to_vec();
        string(&mut same, Printer::system(printer).as_bytes());
        same.extend_from_slice(b",\"name\":");
        string(&mut same, printer.name().as_bytes());
        same.extend_from_slice(b",\"s\":\"t\"");
        Plan {
            printer,
            same,
            roles: Role::of_fields(printer),
            pid: reader("common_pid"),
            flags: reader("common_flags"),
            preempt_count: reader("common_preempt_count"),
        }
    };
    events.iter().map(|printer| (printer.format().id, plan(printer))).collect()
}
