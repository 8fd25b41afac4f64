//! Events of our own, described as tracefs describes the kernel's.

use std::collections::HashSet;
use std::fmt::Write as _;

use super::context::Contexts;
use ftrace_event::context::Context as Known;

/// Bytes of the common fields at the start of every record.
pub const COMMON_LEN: u32 = 8;

/// The common fields as every format has them.
const COMMON: &str = "\
\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;
\tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;
\tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;
\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;
";

/// Names that no argument of a probe has: readers find a record's thread by them, and the probe's places.
/// The kernel refuses the same (`reserved_field_names`, kernel/trace/trace_probe.c).
const RESERVED: [&str; 8] = [
    "common_type",
    "common_flags",
    "common_preempt_count",
    "common_pid",
    "common_tgid",
    "__probe_ip",
    "__probe_func",
    "__probe_ret_ip",
];

/// An argument of a probe has the name of another field of its record.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FieldClash {
    /// A field that records have anyway.
    #[error("records have a field {0} already; give the argument another name")]
    Record(String),
    /// A context, whether it is recorded or not: readers take a field of this name for it.
    #[error("{0} is the field of a context; give the argument another name")]
    Context(String),
    /// Another argument.
    #[error("there is another argument with this name: {0}")]
    Argument(String),
}

/// The names of the fields of a probe's record, as they are given to its arguments.
#[derive(Debug)]
pub(crate) struct FieldNames<'a> {
    contexts: &'a Contexts,
    given: HashSet<String>,
}

impl<'a> FieldNames<'a> {
    /// Those of a record that has these contexts, before its first argument.
    pub(crate) fn new(contexts: &'a Contexts) -> Self {
        Self { contexts, given: HashSet::new() }
    }

    /// Gives a name to an argument.
    ///
    /// # Errors
    /// Another field has it.
    pub(crate) fn give(&mut self, name: &str) -> Result<(), FieldClash> {
        if RESERVED.contains(&name) {
            return Err(FieldClash::Record(name.to_owned()));
        }
        if Known::of_field(name).is_some() || self.contexts.has_field(name) {
            return Err(FieldClash::Context(name.to_owned()));
        }
        if !self.given.insert(name.to_owned()) {
            return Err(FieldClash::Argument(name.to_owned()));
        }
        Ok(())
    }
}

/// A field of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShapeField {
    /// Type and name as a format has them: `u32 flags`, `u8 bytes[4]`, `__data_loc char[] path`.
    pub declaration: String,
    /// Bytes from the beginning of the record.
    pub offset: u32,
    /// Bytes that it takes, an array's all together.
    pub size: u32,
    /// Whether it is signed.
    pub signed: bool,
}

impl ShapeField {
    /// The field's line in a format.
    pub(crate) fn line(&self) -> String {
        let Self { declaration, offset, size, signed } = self;
        format!("\tfield:{declaration};\toffset:{offset};\tsize:{size};\tsigned:{};\n", u8::from(*signed))
    }
}

/// What readers have to know of an event, but for its id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventShape {
    /// The system that it belongs to.
    pub system: String,
    /// Its name.
    pub name: String,
    /// The fields after the common ones.
    pub fields: Vec<ShapeField>,
    /// The format of its text and its arguments: `"pid=%d", REC->pid`.
    pub print_fmt: String,
}

impl EventShape {
    /// The event's format, as tracefs would show it.
    pub fn text(&self, id: u16) -> String {
        let mut text = format!("name: {}\nID: {id}\nformat:\n{COMMON}\n", self.name);
        text.extend(self.fields.iter().map(ShapeField::line));
        let _ = write!(text, "\nprint fmt: {}\n", self.print_fmt);
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ftrace_event::Format;

    #[test]
    fn the_text_is_a_format() {
        let field = |declaration: &str, offset, size, signed| ShapeField {
            declaration: declaration.to_owned(),
            offset,
            size,
            signed,
        };
        let shape = EventShape {
            system: "kprobes".to_owned(),
            name: "open".to_owned(),
            fields: vec![
                field("unsigned long __probe_ip", 8, 8, false),
                field("s32 dfd", 16, 4, true),
                field("__data_loc char[] path", 20, 4, true),
            ],
            print_fmt: r#""(%lx) dfd=%d path=\"%s\"", REC->__probe_ip, REC->dfd, __get_str(path)"#.to_owned(),
        };
        let format = Format::parse(&shape.text(20_000)).unwrap();
        assert_eq!((format.name.as_str(), format.id), ("open", 20_000));
        assert_eq!(format.fields.len(), 3);
        assert_eq!(format.field("dfd").map(|dfd| (dfd.offset, dfd.size, dfd.signed)), Some((16, 4, true)));
    }
}
