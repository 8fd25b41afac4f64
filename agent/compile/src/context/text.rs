//! Formats of events, with contexts.

use std::fmt::Write as _;

use super::ContextLayout;

impl ContextLayout {
    /// The format `text`, as tracefs shows it, with the fields of the contexts.
    pub fn extend_text(&self, text: &str) -> String {
        const PRINT: &str = "\nprint fmt: ";
        let (fields, print_fmt) = text.split_once(PRINT).unwrap_or((text, ""));
        let mut extended = fields.to_owned();
        extended.extend(self.shape_fields().map(|field| field.line()));
        let _ = writeln!(extended, "{PRINT}{}", self.print_fmt(print_fmt.trim_end_matches('\n')));
        extended
    }

    /// A print format with the contexts after what it has. One that does not begin with its text is left
    /// alone.
    pub(super) fn print_fmt(&self, original: &str) -> String {
        let Some(end) = text_end(original) else { return original.to_owned() };
        let (mut format, mut arguments) = (String::new(), String::new());
        for (context, _) in &self.fields {
            let (.., conversion) = context.shape();
            let name = context.field();
            let space = if end == 1 && format.is_empty() { "" } else { " " };
            let _ = write!(format, "{space}{name}={conversion}");
            let _ = write!(arguments, ", REC->{name}");
        }
        format!("{}{format}{}{arguments}", &original[..end], &original[end..])
    }
}

/// Where the quotation mark is that ends the text of a print format: of string literals one after the other,
/// the last one's.
fn text_end(print_fmt: &str) -> Option<usize> {
    let bytes = print_fmt.as_bytes();
    let mut at = 0;
    let mut found = None;
    while bytes.get(at) == Some(&b'"') {
        at += 1;
        while *bytes.get(at)? != b'"' {
            at += if bytes[at] == b'\\' { 2 } else { 1 };
        }
        found = Some(at);
        at += 1;
        while bytes.get(at).is_some_and(u8::is_ascii_whitespace) {
            at += 1;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::Contexts;
    use crate::filter::Facts;
    use ftrace_event::Format;
    use ftrace_event::context::Context as Known;
    use spec::Context;
    use spec::TraceClock;

    fn laid_out(from: u32, aligned: bool) -> ContextLayout {
        let mut contexts = Contexts::default();
        contexts.add(&[Known::Tid, Known::Comm, Known::Cgroup, Known::Tid].map(Context::Known));
        contexts.lay_out(from, aligned, &Facts::new(TraceClock::Mono, None))
    }

    #[test]
    fn the_fields_stand_behind_those_of_the_event() {
        let text = "name: x\nID: 9\nformat:\n\
            \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
            \tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;\n\
            \tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;\n\
            \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\
            \tfield:u8 state;\toffset:8;\tsize:1;\tsigned:0;\n\nprint fmt: \"s=%d\", REC->state\n";
        let layout = laid_out(9, true);
        let format = Format::parse(&layout.extend_text(text)).unwrap();
        let field = |name| format.field(name).map(|field| (field.offset, field.size, field.signed));
        assert_eq!(field("state"), Some((8, 1, false)));
        assert_eq!(field("ctx_tid"), Some((12, 4, true)));
        assert_eq!(field("ctx_comm"), Some((16, 16, false)));
        assert_eq!(field("ctx_cgroup"), Some((32, 8, false)));
        assert_eq!((layout.end, format.fields.len()), (40, 4));
        assert!(layout.has("ctx_tid") && !layout.has("state"));
    }

    #[test]
    fn contexts_alone_have_a_format() {
        let facts = Facts::new(TraceClock::Mono, None);
        assert_eq!(Contexts::default().format(&facts), "");
        let mut contexts = Contexts::default();
        contexts.add(&[Known::Uid, Known::Comm, Known::Vtid].map(Context::Known));
        let mut others = Contexts::default();
        others.add(&[Known::Vtid, Known::Pid, Known::Uid].map(Context::Known));
        contexts.keep_common(&others);
        let format = Format::parse(&contexts.format(&facts)).unwrap();
        let names: Vec<_> = format.fields.iter().map(|field| (field.name.as_str(), field.size)).collect();
        assert_eq!(names, [("ctx_uid", 4), ("ctx_vtid", 4)]);
    }

    #[test]
    fn the_text_goes_on_with_the_contexts() {
        let layout = laid_out(9, false);
        let added = " ctx_tid=%d ctx_comm=%s ctx_cgroup=%llu";
        let arguments = ", REC->ctx_tid, REC->ctx_comm, REC->ctx_cgroup";
        for (before, behind) in [
            ("\"s=%d", "\", REC->state"),
            ("\"a \\\"%s\\\" b\" \"c", "\", __get_str(name)"),
            ("\"nothing", "\""),
        ] {
            let expected = format!("{before}{added}{behind}{arguments}");
            assert_eq!(layout.print_fmt(&format!("{before}{behind}")), expected);
        }
        assert_eq!(layout.print_fmt("\"\""), format!("\"{}\"{arguments}", added.trim_start()));
        for other in ["", "REC->x", "\"open", "\"open\\"] {
            assert_eq!(layout.print_fmt(other), other);
        }
    }
}
