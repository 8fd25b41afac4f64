//! Data that is looked up once per file, event and buffer instead of for every record.

use super::json::Role;
use super::plugin::{Num, Plugin, Signatures, States};
use super::tasks::Tasks;
use super::trace_file::TraceFile;
use ftrace_event::output::Snippet;
use ftrace_event::syscalls::SyscallTable;
use ftrace_event::{EventTable, Machine, Printer, Symbols};
use tracedat::ledger::Ledger;
use tracedat::reader::Source;
use tracedat::{FileOption, OptionId, Uname};

/// A file.
pub(super) struct FileView<'a> {
    pub(super) name: &'a str,
    pub(super) symbols: &'a (dyn Symbols + Sync),
    /// The functions of the kernel, if an event has their arguments.
    pub(super) signatures: Option<&'a Signatures>,
    pub(super) machine: Machine,
    pub(super) tasks: Tasks,
    pub(super) in_nanoseconds: bool,
    /// Whether the file names its clock.
    pub(super) has_clock: bool,
    pub(super) common: Common,
    pub(super) second_flag: SecondFlag,
    pub(super) syscalls: Option<SyscallTable>,
    events: Vec<EventView<'a>>,
    /// Index of each number's event, plus one.
    by_id: Vec<u32>,
}

/// An event.
pub(super) struct EventView<'a> {
    pub(super) printer: &'a Printer,
    /// ` name: ` and blanks up to the text.
    pub(super) label: Snippet,
    pub(super) plugin: Option<Plugin>,
    /// Whether its text has line feeds and tabs of its own, rather than of a name in it.
    pub(super) has_lines: bool,
    /// What JSON has of each of the event's own fields beside its value; nothing for text.
    pub(super) roles: Box<[Role]>,
    /// The fields that options for tasks ask for.
    pub(super) pid: Option<Num>,
    pub(super) next_pid: Option<Num>,
}

/// The fields that all events have.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Common {
    pub(super) pid: Option<Num>,
    pub(super) flags: Option<Num>,
    pub(super) preempt_count: Option<Num>,
    pub(super) migrate_disable: Option<Num>,
    pub(super) lock_depth: Option<Num>,
}

/// What bit 0x02 of `common_flags` means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SecondFlag {
    /// Whether interrupts are off is not known (`TRACE_FLAG_IRQS_NOSUPPORT`).
    IrqsUnknown,
    /// The thread shall be rescheduled lazily (`TRACE_FLAG_NEED_RESCHED_LAZY`).
    NeedReschedLazy,
}

impl SecondFlag {
    /// Where the bit has its second meaning: in Linux 6.13, and in 6.12 with the `PREEMPT_RT` patches.
    const LAZY_SINCE: (u32, u32) = (6, 13);
    const LAZY_SINCE_RT: (u32, u32) = (6, 12);

    /// By the kernel that a file names, and by who recorded it: early versions of our own recorder, which
    /// leave a ledger, wrote the first on every kernel, and later ones do not write the bit. Files that were
    /// imported have a ledger, and the bits of the kernel.
    fn of<'f>(facts: impl Iterator<Item = &'f FileOption>) -> Self {
        let mut is_lazy = false;
        for fact in facts {
            match fact {
                FileOption::Unknown { id, bytes } if *id == OptionId::LEDGER && !is_imported(bytes) => {
                    return Self::IrqsUnknown;
                }
                FileOption::Uname(text) => {
                    let release = Uname::parse(text).release;
                    let since = if release.contains("-rt") { Self::LAZY_SINCE_RT } else { Self::LAZY_SINCE };
                    is_lazy = version(&release).is_some_and(|version| version >= since);
                }
                _ => {}
            }
        }
        if is_lazy { Self::NeedReschedLazy } else { Self::IrqsUnknown }
    }
}

fn is_imported(ledger: &[u8]) -> bool {
    Ledger::parse(ledger).is_some_and(|ledger| ledger.imported.is_some())
}

/// The first two numbers of a kernel's release.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

/// A buffer of a file, as lines name it.
pub(super) struct BufferView<'a> {
    pub(super) file: usize,
    pub(super) name: &'a str,
    /// What lines begin with.
    pub(super) prefix: Box<[u8]>,
}

impl<'a> FileView<'a> {
    /// `plugins` is how those tell states, or nothing for texts without plugins; `json` whether objects are
    /// made instead.
    pub(super) fn new<S: Source>(file: &'a TraceFile<S>, plugins: Option<States>, json: bool) -> Self {
        let table: &EventTable = file.events();
        let mut view = Self {
            name: file.name(),
            symbols: file,
            signatures: None,
            machine: table.machine(),
            tasks: Tasks::new(&file.reader().metadata().cmdlines),
            in_nanoseconds: file.is_in_nanoseconds(),
            has_clock: file.has_clock_option(),
            common: table.iter().next().map_or_else(Common::default, Common::of),
            second_flag: SecondFlag::of(file.reader().facts()),
            syscalls: file.syscalls(),
            events: Vec::with_capacity(table.len()),
            by_id: Vec::new(),
        };
        for printer in table.iter() {
            let id = usize::from(printer.format().id);
            if view.by_id.len() <= id {
                view.by_id.resize(id + 1, 0);
            }
            let roles = if json { Role::of_fields(printer) } else { Box::default() };
            view.events.push(EventView::new(printer, plugins, roles));
            view.by_id[id] = view.events.len() as u32;
        }
        if view.events.iter().filter_map(|event| event.plugin.as_ref()).any(Plugin::has_arguments) {
            view.signatures = file.signatures();
        }
        view
    }

    /// The event of a record.
    #[inline]
    pub(super) fn event(&self, record: &[u8]) -> Option<&EventView<'a>> {
        let id = self.machine.number(record.get(..2)?) as usize;
        let index_plus_one = *self.by_id.get(id)? as usize;
        self.events.get(index_plus_one.checked_sub(1)?)
    }

    /// The task that a record is of.
    #[inline]
    pub(super) fn pid(&self, record: &[u8]) -> u32 {
        self.common.pid.map_or(0, |pid| pid.read(record, self.machine) as u32)
    }
}

impl<'a> EventView<'a> {
    fn new(printer: &'a Printer, plugins: Option<States>, roles: Box<[Role]>) -> Self {
        let num = |name| Num::of(printer.format(), name);
        let label = format!(" {}: {:2$}", printer.name(), "", 20_usize.saturating_sub(printer.name().len()));
        let plugin = plugins.and_then(|states| Plugin::of(printer, states));
        let print_fmt = &printer.format().print_fmt;
        let has_lines = printer.is_kernel_stack()
            || plugin.as_ref().is_some_and(Plugin::has_lines)
            || print_fmt.contains("\\n")
            || print_fmt.contains("\\t");
        Self {
            printer,
            label: Snippet::new(label.as_bytes()),
            plugin,
            has_lines,
            roles,
            pid: num("pid"),
            next_pid: num("next_pid"),
        }
    }
}

impl Common {
    fn of(printer: &Printer) -> Self {
        let num = |name| Num::of(printer.format(), name);
        Self {
            pid: num("common_pid"),
            flags: num("common_flags"),
            preempt_count: num("common_preempt_count"),
            migrate_disable: num("common_migrate_disable"),
            lock_depth: num("common_lock_depth"),
        }
    }
}

/// The buffers of several files in the order in which stock trace-cmd merges them: the top ones, then the
/// named ones. Of several parts of the top buffer in one file all come first.
pub(super) fn buffers<'a, S: Source>(files: &'a [TraceFile<S>]) -> Vec<(usize, BufferView<'a>)> {
    let mut found: Vec<(usize, BufferView<'a>)> = Vec::new();
    for named in [false, true] {
        for (number, file) in files.iter().enumerate() {
            for (index, buffer) in file.reader().buffers().iter().enumerate() {
                if buffer.name.is_empty() != named {
                    let view = BufferView { file: number, name: &buffer.name, prefix: Box::default() };
                    found.push((index, view));
                }
            }
        }
    }
    let several = files.len() > 1;
    let label = |view: &BufferView<'a>| {
        if !view.name.is_empty() {
            view.name
        } else if several {
            base_name(files.get(view.file).map_or("", TraceFile::name))
        } else {
            ""
        }
    };
    let width = found.iter().map(|(_, view)| label(view).len()).max().unwrap_or(0);
    if several || found.iter().any(|(_, view)| !view.name.is_empty()) {
        for (_, view) in &mut found {
            let label = label(view);
            let colon = if label.is_empty() { "  " } else { ": " };
            view.prefix = format!("{label:>width$}{colon}").into_bytes().into();
        }
    }
    found
}

/// What is behind the last slash.
pub(super) fn base_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_flag_is_as_the_kernel_has_it() {
        let uname = |release: &str| FileOption::Uname(format!("Linux vm {release} x86_64"));
        let ledger = FileOption::Unknown { id: OptionId::LEDGER, bytes: b"{}\0".to_vec() };
        let cases = [
            (vec![], SecondFlag::IrqsUnknown),
            (vec![uname("6.1.0-56-cloud-amd64")], SecondFlag::IrqsUnknown),
            (vec![uname("6.12.117+deb12-cloud-amd64")], SecondFlag::IrqsUnknown),
            (vec![uname("6.1.0-56-rt-amd64")], SecondFlag::IrqsUnknown),
            (vec![uname("6.12.117+deb12-rt-amd64")], SecondFlag::NeedReschedLazy),
            (vec![uname("6.13.0")], SecondFlag::NeedReschedLazy),
            (vec![uname("7.2.1-amd64")], SecondFlag::NeedReschedLazy),
            (vec![FileOption::Uname("Linux".into())], SecondFlag::IrqsUnknown),
            (vec![uname("6.18.1"), ledger.clone()], SecondFlag::IrqsUnknown),
            (vec![ledger, uname("6.18.1")], SecondFlag::IrqsUnknown),
        ];
        for (facts, meaning) in cases {
            assert_eq!(SecondFlag::of(facts.iter()), meaning, "{facts:?}");
        }
    }
}
