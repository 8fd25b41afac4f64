//! Records as matches.

use std::sync::Arc;

use super::{Captured, Match, RuleId};
use ftrace_event::context::Context;
use ftrace_event::record::Machine;
use ftrace_event::{FieldKind, FieldReader, Format, RecordReader};
use spec::Capture;

/// Reads the records of an event of a rule.
#[derive(Clone, Debug)]
pub struct Decoder {
    /// `system:name`.
    event: Arc<str>,
    tid: Option<FieldReader>,
    pid: Option<FieldReader>,
    comm: Option<FieldReader>,
    captures: Vec<(Arc<str>, Option<Source>)>,
}

/// Where a captured value is.
#[derive(Clone, Copy, Debug)]
struct Source {
    field: FieldReader,
    index: Option<u32>,
}

/// Why an event does not have what a rule captures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lacking {
    /// There is no such field.
    Field,
    /// The field is no array.
    Elements,
}

impl Decoder {
    /// The contexts that every watched event has, for what is told of each match.
    pub const CONTEXTS: [Context; 2] = [Context::Pid, Context::Comm];

    /// For an event with this format. Gives what it lacks for each of the captures, too.
    pub fn new(event: &str, format: &Format, captures: &[Capture]) -> (Self, Vec<Option<Lacking>>) {
        let reader = RecordReader::new(format, Machine::default());
        let mut fields = format.common.iter().chain(&format.fields);
        let names: Vec<&str> = fields.by_ref().map(|field| field.name.as_str()).collect();
        let index = |name: &str| names.iter().position(|known| *known == name);
        let field = |name: &str| reader.field(index(name)?);
        let find = |capture: &Capture| -> Result<Source, Lacking> {
            let index = index(&capture.field()).ok_or(Lacking::Field)?;
            let is_array =
                matches!(reader.kind(index), Some(FieldKind::Array { .. } | FieldKind::Texts { .. }));
            if capture.index.is_some() && !is_array {
                return Err(Lacking::Elements);
            }
            let field = reader.field(index).ok_or(Lacking::Field)?;
            Ok(Source { field, index: capture.index })
        };
        let found: Vec<_> = captures.iter().map(find).collect();
        let text = |capture: &Capture| Arc::from(capture.to_string());
        let sources = captures.iter().map(text).zip(found.iter().map(|found| found.ok())).collect();
        let decoder = Self {
            event: event.into(),
            tid: field("common_pid"),
            pid: field(&Context::Pid.field()),
            comm: field(&Context::Comm.field()),
            captures: sources,
        };
        (decoder, found.into_iter().map(Result::err).collect())
    }

    /// A record as a match of a rule.
    pub(super) fn read(&self, rule: RuleId, (time, cpu): (u64, u32), record: &[u8]) -> Match {
        let number = |field: &Option<FieldReader>| field.and_then(|field| field.number(record));
        let captured = |(text, source): &(Arc<str>, Option<Source>)| {
            let value = source.map(|Source { field, index }| Captured::read(&field, index, record));
            (Arc::clone(text), value.unwrap_or(Captured::Unavailable))
        };
        Match {
            rule,
            event: Arc::clone(&self.event),
            time,
            cpu,
            pid: number(&self.pid).unwrap_or_default() as u32,
            tid: number(&self.tid).unwrap_or_default() as u32,
            comm: self.comm.and_then(|field| field.text(record)).unwrap_or_default().to_vec(),
            captured: self.captures.iter().map(captured).collect(),
        }
    }
}
