//! The directory `info`: what system was traced, and annotations.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::block::Layout;
use ftrace_event::Endian;
use recording::survey::Recording;
use tracedat::{FileOption, Uname};

/// An annotation of a moment or of an interval, in cycles.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Bookmark {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) cpu: Option<u32>,
    pub(super) name: &'static str,
    pub(super) text: String,
}

/// `info/system.xml`. The document's example writes the byte order as `little`, its reader takes
/// `LITTLE_ENDIAN`.
pub(super) fn system_xml(recording: &Recording<'_>, layout: &Layout) -> String {
    let facts = || recording.file().facts();
    let Uname { system, node, release, version, machine } = Uname::of(facts()).unwrap_or_default();
    let counted = facts().find_map(|fact| match fact {
        FileOption::CpuCount(count) => Some(*count),
        _ => None,
    });
    let highest =
        recording.cpu_streams().iter().map(|cpu_stream| cpu_stream.cpu.saturating_add(1)).max().unwrap_or(1);
    let endian = match (layout.endian, layout.literal) {
        (Endian::Little, true) => "little",
        (Endian::Big, true) => "big",
        (Endian::Little, false) => "LITTLE_ENDIAN",
        (Endian::Big, false) => "BIG_ENDIAN",
    };
    let domain = node.split_once('.').map_or("(none)", |(_, domain)| domain).to_owned();
    let mut xml = String::from("<system\n");
    for (name, value) in [
        ("node_name", node),
        ("domainname", domain),
        ("cpu", counted.unwrap_or(0).max(highest).to_string()),
        ("arch_size", if recording.machine().long_size == 8 { "LP64" } else { "ILP32" }.to_owned()),
        ("endian", endian.to_owned()),
        ("kernel_name", system.clone()),
        ("kernel_release", release),
        ("kernel_version", version),
        ("machine", machine),
        ("processor", "unknown".to_owned()),
        ("hardware_platform", "unknown".to_owned()),
        ("operating_system", system),
        ("ltt_major_version", "2".to_owned()),
        ("ltt_minor_version", "0".to_owned()),
        ("ltt_block_size", layout.block_size.to_string()),
    ] {
        let _ = writeln!(xml, " {name}=\"{}\"", escaped(&value));
    }
    let recorder = facts().find_map(|fact| match fact {
        FileOption::Version(text) => Some(text.as_str()),
        _ => None,
    });
    let recorder = recorder.map(|text| format!(", recorded by {text}")).unwrap_or_default();
    let version = env!("CARGO_PKG_VERSION");
    let _ = writeln!(xml, ">\nExported by tracer-agent {version}{}\n</system>", escaped(&recorder));
    xml
}

/// `info/bookmarks.xml`.
pub(super) fn bookmarks_xml(bookmarks: &[Bookmark], layout: &Layout) -> String {
    let mut xml = String::from("<bookmarks>\n");
    for Bookmark { start, end, cpu, name, text } in bookmarks {
        let time = |cycles: u64| {
            let (seconds, nanos) = layout.wall(cycles);
            format!("\"{seconds}.{nanos:09}\"")
        };
        let _ = write!(xml, "  <location name=\"{name}\"");
        if let Some(cpu) = cpu {
            let _ = write!(xml, " cpu=\"{cpu}\"");
        }
        let _ = if start == end {
            write!(xml, " time={}", time(*start))
        } else {
            write!(xml, " start_time={} end_time={}", time(*start), time(*end))
        };
        let _ = writeln!(xml, ">{}</location>", escaped(text));
    }
    xml += "</bookmarks>\n";
    xml
}

/// Text as XML has it.
fn escaped(text: &str) -> String {
    let names = BTreeMap::from([('<', "&lt;"), ('>', "&gt;"), ('&', "&amp;"), ('"', "&quot;")]);
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match names.get(&c) {
            Some(name) => escaped += name,
            // XML has no way to write these.
            None if c.is_control() && !matches!(c, '\n' | '\t') => escaped.push('\u{fffd}'),
            None => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_escaped() {
        assert_eq!(escaped("a<b>&\"\u{1}"), "a&lt;b&gt;&amp;&quot;\u{fffd}");
    }
}
