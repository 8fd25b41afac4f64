#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use super::*;
use crate::ctf::roles::MOST_COPIED;
use crate::ctf::types::{DEPTH_MAX, NAME_MAX, Scope, Start, Type};
use ftrace_event::Endian;

const TRACE: &str = "/* CTF 1.8 */ trace { major = 1; minor = 8; byte_order = be; };";

/// The type of the only field of the only event.
fn field(declarations: &str, field: &str) -> Result<Type, Problem> {
    let event = "event { name = \"e\"; fields := struct {";
    let text = format!("{TRACE}\n{declarations}\n{event} {field} }}; }};");
    let trace = parse(&text).map_err(|error| error.problem)?;
    let fields = trace.streams[&0].events[0].fields.clone().unwrap();
    Ok(fields.fields.last().unwrap().ty.clone())
}

fn problem(text: &str) -> (usize, Problem) {
    let error = parse(text).unwrap_err();
    (error.line, error.problem)
}

#[test]
fn everything_that_lttng_writes() {
    let text = "/* CTF 1.8 */
typealias integer { size = 8; align = 8; signed = false; } := uint8_t;
typealias integer { size = 32; align = 8; signed = false; } := uint32_t;
typealias integer { size = 64; align = 8; signed = false; } := unsigned long;
typealias integer { size = 5; align = 1; signed = false; } := uint5_t;
trace {
	major = 1; minor = 8;
	uuid = \"0a1b2c3d-0000-4000-8000-0123456789ab\";
	byte_order = le;
	packet.header := struct { uint32_t magic; uint8_t uuid[16]; uint32_t stream_id; };
};
env { hostname = \"h\\\"1\"; domain = \"kernel\"; tracer_major = 2; };
clock {
	name = \"monotonic\"; uuid = \"u\"; description = \"Monotonic Clock\";
	freq = 1000000000; /* Frequency, in Hz */
	offset = 1351530929945824323;
};
typealias integer { size = 27; align = 1; signed = false; map = clock.monotonic.value; } := uint27_clock_monotonic_t;
typealias integer { size = 64; align = 8; signed = false; map = clock.monotonic.value; } := uint64_clock_monotonic_t;
struct packet_context { uint64_clock_monotonic_t timestamp_begin; unsigned long events_discarded; uint32_t cpu_id; };
struct event_header_compact {
	enum : uint5_t { compact = 0 ... 30, extended = 31 } id;
	variant <id> {
		struct { uint27_clock_monotonic_t timestamp; } compact;
		struct { uint32_t id; uint64_clock_monotonic_t timestamp; } extended;
	} v;
} align(8);
stream {
	id = 3;
	event.header := struct event_header_compact;
	packet.context := struct packet_context;
	event.context := struct { integer { size = 32; align = 8; signed = 1; encoding = none; base = 10; } _tid; };
};
event {
	name = \"sched_switch\"; id = 7; stream_id = 3;
	fields := struct {
		integer { size = 8; align = 8; signed = 1; encoding = UTF8; base = 10; } _prev_comm[16];
		integer { size = 32; align = 8; signed = 0; encoding = none; base = 10; } __argv_length;
		integer { size = 64; align = 8; signed = 0; encoding = none; base = 16; } _argv[ __argv_length ];
		string _filename;
	};
};
";
    let trace = parse(text).unwrap();
    assert_eq!(
        (trace.uuid.unwrap()[..4].to_vec(), trace.order),
        (vec![0x0a, 0x1b, 0x2c, 0x3d], Endian::Little)
    );
    assert_eq!((trace.env("hostname"), trace.env("tracer_major")), (Some("h\"1"), Some("2")));
    let clock = trace.clock("monotonic").unwrap();
    assert_eq!((clock.frequency, clock.wall_offset()), (1_000_000_000, 1_351_530_929_945_824_323));
    let stream = &trace.streams[&3];
    let header = stream.event_header.as_ref().unwrap();
    assert_eq!(header.align, 8);
    let Type::Variant(variant) = &header.fields[1].ty else { panic!("{header:?}") };
    assert_eq!((variant.tag.text(), variant.options.position("extended")), ("id".to_owned(), Some(1)));
    let event = &stream.events[stream.by_id[&7]];
    assert_eq!(event.name, "sched_switch");
    let fields = &event.fields.as_ref().unwrap().fields;
    assert_eq!(
        fields.iter().map(super::super::types::Field::shown).collect::<Vec<_>>(),
        ["prev_comm", "_argv_length", "argv", "filename"]
    );
    let Type::Array(comm) = &fields[0].ty else { panic!("{fields:?}") };
    assert!(comm.element.is_character() && comm.count == 16);
    let Type::Sequence(argv) = &fields[2].ty else { panic!("{fields:?}") };
    assert_eq!(
        (argv.length.text(), argv.element.as_integer().unwrap().base),
        ("__argv_length".to_owned(), 16)
    );
}

#[test]
fn types_are_found_where_they_are_known() {
    let int = "typealias integer { size = 32; signed = true; } := int;";
    let bits = |ty: Type| ty.as_integer().map(|integer| (integer.bits, integer.align, integer.signed));
    assert_eq!(field(int, "int x;").map(bits), Ok(Some((32, 8, true))));
    assert_eq!(field("", "integer { size = 13; } x;").map(bits), Ok(Some((13, 1, false))));
    // Names of C types have several words and stars.
    let long = "typealias integer { size = 64; } := const unsigned long *;";
    assert_eq!(field(long, "unsigned long *x;").map(bits), Ok(Some((64, 8, false))));
    assert_eq!(field(long, "unsigned long x;"), Err(Problem::UnknownType("unsigned long".to_owned())));
    // The innermost declaration counts, up to the end of its block.
    let inner = "struct { typealias integer { size = 8; } := int; int y; } z; int x;";
    assert_eq!(field(int, inner).map(bits), Ok(Some((32, 8, true))));
    assert_eq!(field(int, "typedef int other, list[2]; other x;").map(bits), Ok(Some((32, 8, true))));
    assert!(matches!(field(int, "typedef int list[2]; list x;"), Ok(Type::Array(array)) if array.count == 2));
    assert_eq!(field("", "struct a x;"), Err(Problem::UnknownType("struct a".to_owned())));
    assert_eq!(field("", "struct a { struct a x; } y;"), Err(Problem::UnknownType("struct a".to_owned())));
    assert_eq!(field(&format!("{int}{int}"), "int x;"), Err(Problem::Twice("type int".to_owned())));
    assert_eq!(field(int, "int x; int x;"), Err(Problem::Twice("field x".to_owned())));
    assert_eq!(field(int, "int x, y;").map(bits), Ok(Some((32, 8, true))));
}

#[test]
fn enumerations_have_ranges_and_go_on_counting() {
    let int = "typealias integer { size = 8; signed = true; } := int;";
    let Type::Enum(of) = field(int, "enum { A, B = 5, \"C c\", D = -3 ... -1, E, } x;").unwrap() else {
        panic!()
    };
    let labels: Vec<_> = of.labels.iter().map(|label| (&*label.name, label.first, label.last)).collect();
    assert_eq!(labels, [("A", 0, 0), ("B", 5, 5), ("C c", 6, 6), ("D", -3, -1), ("E", 0, 0)]);
    assert_eq!(of.label(-2).map(|name| &**name), Some("D"));
    assert_eq!(of.label(9), None);
    let named = "enum e : integer { size = 3; } { A, B };";
    assert!(matches!(field(named, "enum e x;"), Ok(Type::Enum(of)) if of.of.bits == 3));
    assert_eq!(field("", "enum { A } x;"), Err(Problem::UnknownType("int".to_owned())));
    assert!(matches!(field(int, "enum { A = 3 ... 2 } x;"), Err(Problem::Value { name: "range", .. })));
    assert!(matches!(
        field("", "enum : floating_point { exp_dig = 8; mant_dig = 24; } { A } x;"),
        Err(Problem::Value { .. })
    ));
}

#[test]
fn arrays_variants_and_alignments() {
    let int = "typealias integer { size = 32; align = 32; } := int;";
    let Type::Array(outer) = field(int, "int x[2][3];").unwrap() else { panic!() };
    assert!(matches!(&outer.element, Type::Array(inner) if inner.count == 3) && outer.count == 2);
    let Type::Sequence(sequence) = field(int, "int x[stream.event.context.n];").unwrap() else { panic!() };
    assert_eq!((sequence.length.start, sequence.length.names.len()), (Start::Scope(Scope::StreamContext), 1));
    let aligned = |text: &str| field(int, text).unwrap().align();
    assert_eq!(aligned("struct { int x; } x;"), 32);
    assert_eq!(aligned("struct { string x; } align(64) x;"), 64);
    assert_eq!(aligned("struct { integer { size = 3; } x; } x;"), 1);
    let variant = "variant v { int a; string b; };";
    assert!(field(&format!("{int}{variant}"), "int t; variant v <event.fields.t> x;").is_ok());
    let without_tag = Problem::Missing { of: "variant", name: "tag" };
    assert_eq!(field(&format!("{int}{variant}"), "variant v x;"), Err(without_tag));
    let float = |text: &str| field("", &format!("floating_point {{ {text} }} x;"));
    assert!(
        matches!(float("exp_dig = 11; mant_dig = 53; align = 64;"), Ok(Type::Float(float)) if float.bits == 64)
    );
    assert!(matches!(float("exp_dig = 5; mant_dig = 11;"), Err(Problem::Value { .. })));
}

#[test]
fn values_that_cannot_be_are_refused() {
    for (attributes, name) in [
        ("size = 0;", "size"),
        ("size = 65;", "size"),
        ("size = 8; align = 3;", "align"),
        ("size = 8; align = 0;", "align"),
        ("size = 8; align = 1048576;", "align"),
        ("size = 8; signed = 2;", "signed"),
        ("size = 8; byte_order = middle;", "byte_order"),
        ("size = 8; base = 7;", "base"),
        ("size = 8; encoding = EBCDIC;", "encoding"),
        ("size = 8; map = clock.x;", "map"),
    ] {
        let found = field("", &format!("integer {{ {attributes} }} x;"));
        assert!(
            matches!(&found, Err(Problem::Value { name: of, .. }) if *of == name),
            "{attributes}: {found:?}"
        );
    }
    assert_eq!(field("", "integer { } x;"), Err(Problem::Missing { of: "integer", name: "size" }));
}

#[test]
fn names_and_what_streams_copy_are_bounded() {
    let long = "x".repeat(NAME_MAX + 1);
    assert_eq!(field("", &format!("string {long};")), Err(Problem::Long(NAME_MAX)));
    assert!(field("", &format!("string {};", &long[1..])).is_ok());
    let members: Vec<String> = (0..20_000).map(|index| format!("string f{index};")).collect();
    let members = members.concat();
    let with = |streams: u64| {
        let stream = |id| format!("stream {{ id = {id}; event.header := struct header; }};");
        let streams: Vec<String> = (0..streams).map(stream).collect();
        parse(&format!("{TRACE}struct header {{ {members} }};{}", streams.concat()))
            .map(drop)
            .map_err(|it| it.problem)
    };
    assert_eq!((with(2), with(60)), (Ok(()), Err(Problem::Many(MOST_COPIED))));
}

#[test]
fn what_is_wrong_is_told_with_its_line() {
    assert_eq!(problem(""), (1, Problem::Missing { of: "text", name: "trace block" }));
    let version = "trace { major = 2; minor = 0; byte_order = le; };";
    assert_eq!(problem(version), (1, Problem::Version(2, 0)));
    assert_eq!(problem("\n\ntrace { major = 1; minor = 8; };").0, 3);
    assert_eq!(problem(&format!("{TRACE}\n{TRACE}")), (2, Problem::Twice("the trace".to_owned())));
    assert_eq!(
        problem(&format!("{TRACE}\nevent {{ name = x; stream_id = 4; }};")),
        (2, Problem::UnknownStream(4))
    );
    let event = "event { name = x; id = 1; };";
    let twice = Problem::Twice("event 1 (x) of stream 0".to_owned());
    assert_eq!(problem(&format!("{TRACE}{event}\n{event}")), (2, twice));
    let stream = "stream { event.header := string; };";
    assert_eq!(problem(&format!("{TRACE}{stream}")), (1, Problem::NotAStructure("event.header")));
    assert!(matches!(problem(&format!("{TRACE}\nevents {{ }};")), (2, Problem::Expected { .. })));
    assert!(matches!(problem(&format!("{TRACE}\nenv {{ a = 1 }};")), (2, Problem::Expected { .. })));
    assert!(matches!(
        problem(&format!("{TRACE} clock {{ name = c; freq = 0; }};")),
        (1, Problem::Value { .. })
    ));
}

#[test]
fn nesting_has_an_end() {
    let deep = |levels: usize| format!("{}string x; {}", "struct { ".repeat(levels), "} y; ".repeat(levels));
    assert!(field("", &deep(20)).is_ok());
    assert_eq!(field("", &deep(1 << 16)), Err(Problem::Deep(DEPTH_MAX)));
    assert_eq!(field("", &format!("string x{};", "[2]".repeat(1 << 16))), Err(Problem::Deep(DEPTH_MAX)));
    // Levels that are hidden behind names.
    let mut names = "struct s0 { string x; };".to_owned();
    for level in 1..60 {
        names += &format!("struct s{level} {{ struct s{} a; struct s{} b; }};", level - 1, level - 1);
    }
    assert_eq!(field(&names, "struct s59 x;"), Err(Problem::Deep(DEPTH_MAX)));
}
