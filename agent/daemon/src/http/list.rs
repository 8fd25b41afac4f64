//! What there is to record.

use api::{Code, ControlError, Domain, FieldInfo, Instrumentation, InstrumentationPoint, SyscallPart};
use ftrace_event::format::Format;
use kernel::events::Catalogue;
use kernel::tracefs::Tracefs;
use spec::EventName;

/// The tracepoints or system calls of the kernel; of the user domain, nothing is known before a program is
/// named.
pub(super) fn points(
    domain: Domain,
    syscalls: bool,
    fields: bool,
) -> Result<Vec<InstrumentationPoint>, ControlError> {
    if domain == Domain::User {
        return Ok(Vec::new());
    }
    let unreadable = |error: String| ControlError::new(Code::Daemon, error);
    let tracefs = Tracefs::open().map_err(|error| unreadable(error.to_string()))?;
    let catalogue = Catalogue::read(&tracefs).map_err(|error| unreadable(error.to_string()))?;
    let recordable = catalogue.entries().iter().filter(|entry| entry.refusal.is_none());
    let points = recordable.filter_map(|entry| {
        let name = &entry.name;
        let (shown, instrumentation) = match (name.system(), syscalls) {
            ("syscalls", true) => {
                let call = name.name().strip_prefix("sys_enter_")?;
                (call, Instrumentation::Syscall(SyscallPart::Both))
            }
            ("syscalls", false) | (_, true) => return None,
            (_, false) => (name.name(), Instrumentation::Tracepoint),
        };
        let fields = if fields { fields_of(&tracefs, name) } else { Vec::new() };
        let group = (!syscalls).then(|| name.system().to_owned());
        Some(InstrumentationPoint { name: shown.to_owned(), instrumentation, group, fields })
    });
    Ok(points.collect())
}

/// The fields of an event's records, without those that all events have; none if its format cannot be read.
fn fields_of(tracefs: &Tracefs, name: &EventName) -> Vec<FieldInfo> {
    let format = tracefs.event_format(name).ok().and_then(|format| Format::parse(&format.text).ok());
    let fields = format.map(|format| format.fields).unwrap_or_default();
    fields.into_iter().map(|field| FieldInfo { name: field.name, kind: field.type_text }).collect()
}
