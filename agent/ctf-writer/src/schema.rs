//! What a trace declares: channels, their events and fields, and where the values of these come from.

use std::collections::{BTreeMap, BTreeSet};

use super::callstack::{CallStack, CallStacks};
use super::metadata::Language;
use super::stream::EventHeader;
use super::types::Type;
use ftrace_event::stacks::StackReader;
use ftrace_event::syscalls::split;
use ftrace_event::{FieldReader, RecordReader};

/// A trace.
#[derive(Debug)]
pub(super) struct Trace {
    pub(super) uuid: [u8; 16],
    /// The language of its metadata.
    pub(super) language: Language,
    /// Names and values, in the order in which the metadata have them.
    pub(super) env: Vec<(&'static str, EnvValue)>,
    /// Names and texts of the recording's provenance, which stand behind them.
    pub(super) provenance: Vec<(String, String)>,
    pub(super) clock: Clock,
    /// First and last time; of a recording that goes on, the last one that can be.
    pub(super) span: (u64, u64),
    /// When pauses of the recording began, in the order of time.
    pub(super) pauses: Vec<u64>,
    /// By stream id.
    pub(super) channels: Vec<Channel>,
}

/// A value of the environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum EnvValue {
    Text(String),
    Number(u32),
}

impl<T: Into<String>> From<T> for EnvValue {
    fn from(text: T) -> Self {
        Self::Text(text.into())
    }
}

/// The clock of all times.
#[derive(Clone, Debug)]
pub(super) struct Clock {
    pub(super) uuid: Option<String>,
    pub(super) description: String,
    /// Nanoseconds from 1970 to the clock's zero.
    pub(super) offset: u64,
    /// Whether the metadata say that the offset counts from 1970; LTTng's do not.
    pub(super) absolute: bool,
    /// Nanoseconds that are added to the times of records, for clocks that are ahead of wall time.
    pub(super) shift: i64,
}

/// A channel: a stream class, with a file for each CPU.
#[derive(Debug)]
pub(super) struct Channel {
    /// The buffer that it is; empty for the top one.
    pub(super) buffer: String,
    /// Name of its files, without the CPU.
    pub(super) name: String,
    pub(super) header: EventHeader,
    /// Whether its events are of programs, whose names begin with the provider.
    pub(super) of_programs: bool,
    /// Fields that stand before those of every event.
    pub(super) context: Vec<(String, Type)>,
    /// The names that these have in records.
    pub(super) common: Vec<String>,
    /// Contexts that all events have, which the stream declares for them, as LTTng does: the first fields of
    /// each.
    pub(super) shared: Vec<(String, Type)>,
    /// Stacks that are among them, the last ones.
    pub(super) stacks: CallStacks,
    /// Whether events of `raw_syscalls` are named by their calls.
    pub(super) name_raw_calls: bool,
    /// The names of its other events.
    pub(super) names: EventNames,
    /// By id.
    pub(super) events: Vec<Event>,
    /// How the records of the kernel's events become these.
    pub(super) rules: Rules,
}

/// The names of a channel's events in LTTng's layout: an event keeps the name that it was given first.
#[derive(Debug, Default)]
pub(super) struct EventNames {
    /// By the kernel's event number.
    by_id: BTreeMap<u16, String>,
    taken: BTreeSet<String>,
}

impl EventNames {
    /// The name of an event: the preferred one, or, where another event has that, the unique one.
    pub(super) fn choose(&mut self, id: u16, preferred: String, unique: impl FnOnce() -> String) -> &str {
        self.by_id.entry(id).or_insert_with(|| {
            let name = if self.taken.contains(&preferred) { unique() } else { preferred };
            self.taken.insert(name.clone());
            name
        })
    }

    /// The name of an event, if it has one.
    pub(super) fn get(&self, id: u16) -> Option<&str> {
        self.by_id.get(&id).map(String::as_str)
    }
}

/// An event.
#[derive(Clone, Debug)]
pub(super) struct Event {
    pub(super) name: String,
    /// How many of the fields, the first ones after those that the channel declares, are its own context.
    pub(super) contexts: usize,
    pub(super) fields: Vec<Field>,
}

/// A field of an event.
#[derive(Clone, Debug)]
pub(super) struct Field {
    pub(super) name: String,
    pub(super) ty: Type,
    pub(super) source: Source,
}

/// Where the value of a field comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// The field with this index in the record.
    Record(usize),
    /// The same, less a number.
    Less(usize, i64),
    /// A task's state: the letters of a text as the kernel's bits.
    State,
    /// The field with this index, a text of block operation letters, as LTTng's bits.
    OperationBits(usize),
    /// The element of an array, by the index of its field.
    Element(usize, usize),
    /// What is known of a text by its address, which is the field with this index in the record.
    TextBehind(usize),
    /// The copy of a text in the first field, or what is known of it by its address in the second, if the
    /// recorder had none.
    Copy(usize, usize),
    /// What is known of a text by its address, which is an element of an array, by the index of its field.
    TextBehindElement(usize, usize),
    /// The frames of a stack.
    Stack,
    /// Those of a stack that came in a record of its own.
    CallStack(CallStack),
    /// The process of the thread in this field.
    ProcessOf(usize),
    /// The process of the new thread in this field.
    ProcessOfNew(usize),
}

/// How the records of one channel become events: by the kernel's event number.
#[derive(Debug, Default)]
pub(super) struct Rules {
    by_id: Vec<Option<Box<Rule>>>,
}

/// What becomes of the records of one of the kernel's events.
#[derive(Debug)]
pub(super) struct Rule {
    pub(super) reader: RecordReader,
    /// What reads the addresses of an event that is a stack.
    pub(super) stack: Option<StackReader>,
    /// Indices of the context's fields.
    pub(super) context: Vec<Option<usize>>,
    pub(super) choice: Choice,
    /// What the record says of new threads.
    pub(super) births: Option<Birth>,
    /// Where a task's state is.
    pub(super) state: Option<FieldReader>,
}

/// Which event a record becomes.
#[derive(Clone, Debug)]
pub(super) enum Choice {
    /// Always this one.
    One(u32),
    /// The one for a system call, by the number in a field.
    SystemCall {
        /// Index of the number.
        number: usize,
        /// The events of calls of 64 bits, and of those of 32 bits.
        tables: [CallEvents; 2],
    },
}

/// The events of a table of system calls.
#[derive(Clone, Debug, Default)]
pub(super) struct CallEvents {
    /// Event by number.
    pub(super) by_number: Vec<Option<u32>>,
    /// Event of numbers that have none.
    pub(super) unknown: u32,
}

impl CallEvents {
    /// Says which event a number has.
    pub(super) fn set(&mut self, number: usize, event: u32) {
        if self.by_number.len() <= number {
            self.by_number.resize(number + 1, None);
        }
        self.by_number[number] = Some(event);
    }
}

impl Choice {
    /// The event of a call with this number, as records have it.
    pub(super) fn of_call(tables: &[CallEvents; 2], number: Option<i64>) -> u32 {
        let [native, compat] = tables;
        let (is_compat, number) = number.map(split).unzip();
        let table = if is_compat == Some(true) { compat } else { native };
        let number = number.and_then(|number| usize::try_from(number).ok());
        number.and_then(|number| *table.by_number.get(number)?).unwrap_or(table.unknown)
    }
}

/// Indices of the fields of `task:task_newtask`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Birth {
    /// The new thread.
    pub(super) pid: usize,
    /// How it shares with its parent.
    pub(super) clone_flags: usize,
    /// The thread that makes it: `common_pid`.
    pub(super) parent: usize,
}

impl Rules {
    pub(super) fn insert(&mut self, id: u16, rule: Rule) {
        let id = usize::from(id);
        if self.by_id.len() <= id {
            self.by_id.resize_with(id + 1, || None);
        }
        self.by_id[id] = Some(Box::new(rule));
    }

    pub(super) fn get(&self, id: u16) -> Option<&Rule> {
        self.by_id.get(usize::from(id))?.as_deref()
    }
}
