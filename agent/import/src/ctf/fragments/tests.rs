#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use serde_json::{Value as Json, json};

use super::*;
use crate::ctf::decode::{DecodeError, Window};
use crate::ctf::packet::{Decoder, Packet, PacketError, PacketStop};
use crate::ctf::types::NAME_MAX;
use crate::ctf::value::Value;

fn text(fragments: &[Json]) -> String {
    fragments.iter().map(|fragment| ["\x1e", &fragment.to_string(), "\n"].concat()).collect()
}

fn preamble() -> Json {
    json!({ "type": "preamble", "version": 2 })
}

fn field(name: &str, class: &Json) -> Json {
    json!({ "name": name, "field-class": class })
}

fn number(bits: u64) -> Json {
    json!({ "type": "fixed-length-unsigned-integer", "length": bits, "byte-order": "little-endian", "alignment": 8 })
}

fn structure(members: &[Json]) -> Json {
    json!({ "type": "structure", "member-classes": members })
}

/// A trace without headers, with one event of these fields.
fn trace(members: &[Json]) -> Result<Trace, FragmentProblem> {
    let event =
        json!({ "type": "event-record-class", "name": "e", "payload-field-class": structure(members) });
    parse(&text(&[preamble(), json!({ "type": "data-stream-class" }), event])).map_err(|error| error.problem)
}

/// The fields of the first event.
fn fields(members: &[Json], bytes: &[u8]) -> Result<Vec<Value<'static>>, PacketError> {
    let trace = trace(members).unwrap();
    let mut decoder = Decoder::new(&trace, false);
    let mut packet = decoder.packet(bytes, bytes.len() as u64).unwrap();
    match decoder.event(&mut packet, Window { bytes, start: 0 }) {
        Ok(event) => Ok(event.fields.unwrap().into_iter().map(Value::into_owned).collect()),
        Err(PacketStop::Error(error, _)) => Err(error),
        Err(PacketStop::Short) => panic!("all of the packet is there"),
    }
}

fn of_text(text: &str) -> Value<'static> {
    Value::Text(text.as_bytes().to_vec().into())
}

fn at(origin: &str, path: &[&str]) -> Json {
    json!({ "origin": origin, "path": path })
}

#[test]
fn numbers_of_any_length() {
    let unsigned = json!({ "type": "variable-length-unsigned-integer" });
    let signed = json!({ "type": "variable-length-signed-integer" });
    let of = [
        field("a", &unsigned),
        field("b", &signed),
        field("c", &signed),
        field("d", &unsigned),
        field("e", &signed),
    ];
    let largest = [&[0xff; 9][..], &[1]].concat();
    let least = [&[0x80; 9][..], &[0x7f]].concat();
    let bytes = [&[0xe5, 0x8e, 0x26][..], &[0x7f], &[0x80, 0x7f], &largest, &least].concat();
    let values = fields(&of, &bytes).unwrap();
    let expected = [
        Value::Unsigned(624_485),
        Value::Signed(-1),
        Value::Signed(-128),
        Value::Unsigned(u64::MAX),
        Value::Signed(i64::MIN),
    ];
    assert_eq!(values, expected);
    let list = json!({ "type": "static-length-array", "length": 3, "element-field-class": signed });
    assert_eq!(
        fields(&[field("x", &list)], &[1, 0x80, 1, 0x7e]),
        Ok(vec![Value::Numbers(vec![1, 128, u64::MAX - 1])])
    );
    for (class, bytes) in [
        (&unsigned, [&[0xff; 9][..], &[2]].concat()),
        (&signed, [&[0xff; 9][..], &[1]].concat()),
        (&unsigned, vec![0x80; 11]),
    ] {
        let wide = DecodeError::Wide { field: "event.fields.x".to_owned() };
        assert_eq!(fields(&[field("x", class)], &bytes), Err(PacketError::Value(wide)), "{bytes:?}");
    }
}

#[test]
fn numbers_bits_and_names() {
    let order = |order: &str, bits: u64| json!({ "type": "fixed-length-signed-integer", "length": bits, "byte-order": order });
    let double = json!({ "type": "fixed-length-floating-point-number", "length": 64, "byte-order": "big-endian", "alignment": 8 });
    let named = json!({ "type": "fixed-length-unsigned-integer", "length": 8, "byte-order": "little-endian",
        "mappings": { "many": [[2, 9], [20, 20]], "one": [[1, 1]] } });
    let flag = json!({ "type": "fixed-length-boolean", "length": 8, "byte-order": "little-endian" });
    let of = [
        field("a", &order("big-endian", 16)),
        field("_b", &order("little-endian", 4)),
        field("c", &order("little-endian", 4)),
        field("d", &named),
        field("e", &flag),
        field("f", &double),
    ];
    let bytes = [&[0xff, 0xfe, 0x2f, 20, 1][..], &1.5_f64.to_be_bytes()].concat();
    let values = fields(&of, &bytes).unwrap();
    let expected = [
        Value::Signed(-2),
        Value::Signed(-1),
        Value::Signed(2),
        Value::Unsigned(20),
        Value::Unsigned(1),
        Value::Float(1.5),
    ];
    assert_eq!(values, expected);
    let trace = trace(&of).unwrap();
    let structure = trace.streams[&0].events[0].fields.clone().unwrap();
    let Type::Enum(of) = &structure.fields[3].ty else { panic!("it has names") };
    assert_eq!(
        (of.label(20).map(|name| &**name), of.label(1).map(|name| &**name), of.label(0)),
        (Some("many"), Some("one"), None)
    );
    // An underscore is part of the name.
    assert_eq!(structure.fields[1].shown(), "_b");
}

#[test]
fn texts_and_lists() {
    let payload = "event-record-payload";
    let of = [
        field("n", &number(8)),
        field("a", &json!({ "type": "null-terminated-string" })),
        field("b", &json!({ "type": "static-length-string", "length": 4 })),
        field("c", &json!({ "type": "dynamic-length-string", "length-field-location": at(payload, &["n"]) })),
        field("d", &json!({ "type": "static-length-blob", "length": 2 })),
        field("e", &json!({ "type": "dynamic-length-blob", "length-field-location": { "path": ["n"] } })),
        field(
            "f",
            &json!({ "type": "dynamic-length-array", "length-field-location": at(payload, &["n"]),
            "element-field-class": number(16), "minimum-alignment": 32 }),
        ),
    ];
    let bytes = b"\x02ab\0cd\0xyzAB\x01\x02\0\0\x03\0\x04\0";
    let values = fields(&of, bytes).unwrap();
    let expected = [
        Value::Unsigned(2),
        of_text("ab"),
        of_text("cd"),
        of_text("yz"),
        Value::Numbers(vec![u64::from(b'A'), u64::from(b'B')]),
        Value::Numbers(vec![1, 2]),
        Value::Numbers(vec![3, 4]),
    ];
    assert_eq!(values, expected);
}

#[test]
fn fields_that_others_choose() {
    let option = |name: &str, class: &Json, ranges: Json| {
        let mut option = json!({ "field-class": class, "selector-field-ranges": ranges });
        if !name.is_empty() {
            option["name"] = name.into();
        }
        option
    };
    let variant = json!({ "type": "variant", "selector-field-location": at("event-record-payload", &["s", "tag"]),
        "options": [option("", &number(8), json!([[0, 1]])), option("wide", &number(16), json!([[2, 2], [5, 9]]))] });
    let of_boolean = json!({ "type": "optional", "selector-field-location": { "path": [null, "yes"] }, "field-class": number(8) });
    let of_range = json!({ "type": "optional", "selector-field-location": { "path": ["tag"] },
        "selector-field-ranges": [[5, 5]], "field-class": number(8) });
    let list = json!({ "type": "dynamic-length-blob",
        "length-field-location": at("event-record-payload", &["s", "here"]) });
    let inner = structure(&[
        field("tag", &number(8)),
        field("v", &variant),
        field("here", &of_boolean),
        field("there", &of_range),
        field("list", &list),
    ]);
    let of = [
        field("yes", &json!({ "type": "fixed-length-boolean", "length": 8, "byte-order": "little-endian" })),
        field("s", &inner),
    ];
    let chosen = |place, number| Value::Chosen(place, Box::new(Value::Unsigned(number)));
    let expected = Value::Fields(vec![
        Value::Unsigned(5),
        chosen(1, 0x201),
        chosen(0, 1),
        chosen(0, 9),
        Value::Numbers(vec![7]),
    ]);
    assert_eq!(fields(&of, &[1, 5, 1, 2, 1, 9, 7]).unwrap()[1], expected);
    // Nothing is there of what is not chosen, and a list has no length then.
    let error = fields(&of, &[0, 0, 3]).unwrap_err();
    assert!(matches!(error, PacketError::Value(DecodeError::Length { .. })), "{error}");
    let error = fields(&of, &[0, 3, 3]).unwrap_err();
    assert!(matches!(error, PacketError::Value(DecodeError::Tag { .. })), "{error}");
}

fn of_role(bits: u64, role: &str) -> Json {
    let mut class = number(bits);
    class["roles"] = json!([role]);
    class
}

/// A trace with all that packets can say of themselves, under names that say nothing.
fn described() -> Vec<Json> {
    let header = structure(&[
        field("a", &of_role(32, "packet-magic-number")),
        field("b", &json!({ "type": "static-length-blob", "length": 16, "roles": ["metadata-stream-uuid"] })),
        field("c", &of_role(8, "data-stream-class-id")),
    ]);
    let context = structure(&[
        field("a", &of_role(16, "packet-total-length")),
        field("b", &of_role(16, "packet-content-length")),
        field("c", &of_role(64, "default-clock-timestamp")),
        field("d", &of_role(64, "packet-end-default-clock-timestamp")),
        field("e", &of_role(16, "discarded-event-record-counter-snapshot")),
        field("f", &of_role(32, "packet-sequence-number")),
        field("cpu_id", &number(8)),
        // What is only called so is no time.
        field("timestamp_begin", &number(8)),
    ]);
    let event = structure(&[
        field("x", &of_role(8, "event-record-class-id")),
        field("timestamp", &number(8)),
        field(
            "y",
            &json!({ "type": "variable-length-unsigned-integer", "roles": ["default-clock-timestamp"] }),
        ),
    ]);
    vec![
        json!({ "type": "preamble", "version": 2, "uuid": [7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7] }),
        json!({ "type": "field-class-alias", "name": "byte", "field-class": number(8) }),
        json!({ "type": "trace-class", "namespace": "n", "name": "t", "uid": "u", "packet-header-field-class": header,
            "environment": { "hostname": "h", "tracer_major": 2 } }),
        json!({ "type": "clock-class", "id": "c", "name": "monotonic", "uid": "boot", "frequency": 1000,
            "origin": "unix-epoch", "offset-from-origin": { "seconds": 5, "cycles": 7 } }),
        json!({ "type": "data-stream-class", "id": 3, "default-clock-class-id": "c",
            "packet-context-field-class": context, "event-record-header-field-class": event }),
        json!({ "type": "event-record-class", "id": 9, "data-stream-class-id": 3, "name": "e",
            "payload-field-class": structure(&[field("z", &json!("byte"))]) }),
    ]
}

fn packet_bytes() -> Vec<u8> {
    let mut bytes = 0xc1fc_1fc1_u32.to_le_bytes().to_vec();
    bytes.extend([7; 16]);
    bytes.push(3);
    let bits = 53_u16 * 8;
    bytes.extend([bits.to_le_bytes(), bits.to_le_bytes()].concat());
    bytes.extend([1000_u64.to_le_bytes(), 2000_u64.to_le_bytes()].concat());
    bytes.extend(77_u16.to_le_bytes());
    bytes.extend(5_u32.to_le_bytes());
    // The CPU, and what is no time; an event with the low seven bits of its time.
    bytes.extend([1, 99, 9, 200, 126, 42]);
    assert_eq!(bytes.len(), 53);
    bytes
}

#[test]
fn packets_say_by_roles_what_they_are() {
    let trace = parse(&text(&described())).unwrap();
    assert_eq!(trace.identity.as_deref(), Some("n\0t\0u"));
    assert_eq!((trace.env("hostname"), trace.env("tracer_major")), (Some("h"), Some("2")));
    let clock = &trace.clocks[0];
    let facts = (clock.frequency, clock.wall_offset(), clock.absolute, clock.uuid.as_deref());
    assert_eq!(facts, (1000, 5_007_000_000, true, Some("boot")));
    let bytes = packet_bytes();
    let mut decoder = Decoder::new(&trace, false);
    let mut packet = decoder.packet(&bytes, bytes.len() as u64).unwrap();
    let Packet { stream, begin, end, discarded, cpu, sequence, .. } = packet;
    let facts = (stream, begin, end, discarded, cpu, sequence);
    assert_eq!(facts, (3, Some(1000), Some(2000), Some((77, 16)), Some(1), Some(5)));
    let event = decoder.event(&mut packet, Window { bytes: &bytes, start: 0 }).unwrap();
    assert_eq!((event.class.name.as_str(), event.ticks), ("e", 1022));
    assert_eq!(event.fields, Some(vec![Value::Unsigned(42)]));
    assert!(!packet.has_more());
    for (at, expected) in
        [(0, PacketError::Magic(0xc1fc_1f00)), (4, PacketError::Uuid), (20, PacketError::UnknownStream(0))]
    {
        let mut damaged = bytes.clone();
        damaged[at] = 0;
        let error = Decoder::new(&trace, false).packet(&damaged, bytes.len() as u64).unwrap_err();
        assert_eq!(error, PacketStop::Error(expected, 0));
    }
}

#[test]
fn times_of_any_length_turn_over_by_their_bytes() {
    let mut fragments = described();
    fragments[4]["event-record-header-field-class"]["member-classes"][2]["field-class"]["mappings"] =
        json!({ "begin": [[0, 0]] });
    let trace = parse(&text(&fragments)).unwrap();
    let header = trace.streams[&3].event_header.as_ref().unwrap();
    assert_eq!(header.fields[2].ty.as_integer().unwrap().clock.as_deref(), Some("c"));
    let mut bytes = packet_bytes();
    // The same seven bits in three bytes, which have 21 bits.
    bytes.extend([9, 200, 0xfe, 0x80, 0, 42]);
    let bits = (bytes.len() as u16 * 8).to_le_bytes();
    bytes[21..25].copy_from_slice(&[bits, bits].concat());
    let mut decoder = Decoder::new(&trace, false);
    let mut packet = decoder.packet(&bytes, bytes.len() as u64).unwrap();
    let mut ticks = || decoder.event(&mut packet, Window { bytes: &bytes, start: 0 }).unwrap().ticks;
    assert_eq!([ticks(), ticks()], [1022, (1 << 21) + 126]);
}

#[test]
fn only_offsets_from_the_epoch_are_wall_time() {
    let mut fragments = described();
    for origin in [json!(null), json!({ "name": "n", "uid": "u" }), json!("other")] {
        fragments[3]["origin"] = origin;
        let clock = &parse(&text(&fragments)).unwrap().clocks[0];
        assert_eq!((clock.wall_offset(), clock.absolute), (0, false));
    }
}

#[test]
fn all_ones_are_no_cpu_where_no_machine_has_so_many() {
    let cpu = |bits: u64, value: u64| {
        let context = structure(&[field("cpu_id", &number(bits))]);
        let stream = json!({ "type": "data-stream-class", "packet-context-field-class": context });
        let trace = parse(&text(&[preamble(), stream])).unwrap();
        let bytes = &value.to_le_bytes()[..bits as usize / 8];
        Decoder::new(&trace, false).packet(bytes, bits / 8).map(|packet| packet.cpu)
    };
    let all = |bits: u64| u64::MAX >> (64 - bits);
    for bits in [16, 24, 32, 64] {
        assert_eq!(cpu(bits, all(bits)), Ok(None), "{bits}");
    }
    assert_eq!(cpu(64, all(32)), Ok(None));
    for (bits, number) in [(8, all(8)), (16, all(16) - 1), (24, all(16)), (64, all(16))] {
        assert_eq!(cpu(bits, number), Ok(Some(number as u32)), "{bits}");
    }
    for (bits, number) in [(24, all(24) - 1), (64, 1 << 16)] {
        assert_eq!(cpu(bits, number), Err(PacketStop::Error(PacketError::Cpu(number), 0)), "{bits}");
    }
}

#[test]
fn what_is_not_understood_is_refused_with_its_fragment() {
    let good = described();
    let with = |index: usize, change: &dyn Fn(&mut Json)| {
        let mut fragments = good.clone();
        change(&mut fragments[index]);
        parse(&text(&fragments)).unwrap_err()
    };
    let set = |index: usize, name: &'static str, value: Json| {
        let error = with(index, &|fragment| fragment[name] = value.clone());
        assert_eq!(error.number, index + 1, "{error}");
        error.problem
    };
    assert_eq!(set(0, "version", json!(3)), FragmentProblem::Version(3));
    assert!(matches!(set(0, "uuid", json!([1, 2])), FragmentProblem::Value { name: "uuid", .. }));
    assert!(matches!(set(1, "extensions", json!({ "x": {} })), FragmentProblem::Unsupported(_)));
    assert!(matches!(set(3, "frequency", json!(0)), FragmentProblem::Value { name: "frequency", .. }));
    assert!(matches!(set(4, "default-clock-class-id", json!("d")), FragmentProblem::UnknownClock(_)));
    assert_eq!(set(5, "data-stream-class-id", json!(4)), FragmentProblem::UnknownStream(4));
    assert!(matches!(set(5, "payload-field-class", json!("word")), FragmentProblem::UnknownAlias(_)));
    assert!(matches!(set(5, "payload-field-class", json!("byte")), FragmentProblem::Value { .. }));
    assert!(matches!(set(2, "type", json!("other")), FragmentProblem::Unsupported(_)));
    for index in 0..good.len() {
        let mut fragments = good.clone();
        fragments.insert(index + 1, fragments[index].clone());
        let error = parse(&text(&fragments)).unwrap_err();
        assert!(matches!(error.problem, FragmentProblem::Twice(_)), "{error}");
        assert_eq!(error.number, index + 2);
    }
    assert_eq!(parse(&text(&good[1..])).unwrap_err().problem, FragmentProblem::NoPreamble);
    assert_eq!(parse("\x1e").unwrap_err().number, 1);
    let cut = &text(&good)[..text(&good).len() - 9];
    let error = parse(cut).unwrap_err();
    assert!(matches!(error.problem, FragmentProblem::Json(_)) && error.number == good.len(), "{error}");
    let with = |environment: &str| {
        let class = format!("{{\"type\":\"trace-class\",\"environment\":{{\"a\":{environment}}}}}");
        parse(&format!("\x1e{}\n\x1e{class}", preamble())).map_err(|error| error.problem)
    };
    let many = ",".repeat(FRAGMENT_VALUES_MAX);
    assert_eq!(with(&format!("[0{}]", many.replace(',', ",0"))).unwrap_err(), FragmentProblem::Many);
    let text = format!("\\\"[{many}");
    assert_eq!(with(&format!("\"{text}\"")).unwrap().env("a"), Some(&*format!("\"[{many}")));
}

#[test]
fn what_streams_copy_of_one_structure_is_bounded() {
    let members: Vec<Json> = (0..20_000).map(|index| field(&format!("f{index}"), &number(8))).collect();
    let clock = json!({ "type": "clock-class", "id": "c", "frequency": 1 });
    let alias = json!({ "type": "field-class-alias", "name": "header", "field-class": structure(&members) });
    let stream = |id: u64| {
        json!({
            "type": "data-stream-class", "id": id, "default-clock-class-id": "c",
            "event-record-header-field-class": "header",
        })
    };
    let with = |streams: u64| {
        let streams = (0..streams).map(stream);
        let fragments: Vec<_> =
            [preamble(), clock.clone(), alias.clone()].into_iter().chain(streams).collect();
        parse(&text(&fragments)).map(|_| ()).map_err(|error| error.problem)
    };
    assert_eq!((with(2), with(60)), (Ok(()), Err(FragmentProblem::Many)));
}

#[test]
fn names_are_bounded() {
    let with = |name: &str| trace(&[field(name, &number(8))]).map(|_| ());
    assert_eq!(with(&"x".repeat(NAME_MAX)), Ok(()));
    let is_too_long = |error| matches!(error, FragmentProblem::Value { name: "name", .. });
    assert!(with(&"x".repeat(NAME_MAX + 1)).is_err_and(is_too_long));
    let mut class = number(8);
    class["mappings"] = json!({ "x".repeat(NAME_MAX + 1): [[0, 0]] });
    assert!(trace(&[field("x", &class)]).is_err_and(is_too_long));
    // Variants are searched for each value.
    let options = |count: u64| {
        let option = json!({ "field-class": structure(&[]), "selector-field-ranges": vec![[0, 0]; 64] });
        let options = vec![option; count as usize];
        let class =
            json!({ "type": "variant", "selector-field-location": { "path": ["tag"] }, "options": options });
        trace(&[field("tag", &number(8)), field("v", &class)]).map(|_| ())
    };
    assert_eq!((options(64), options(65)), (Ok(()), Err(FragmentProblem::Many)));
}

#[test]
fn field_classes_that_cannot_be_are_refused() {
    let refused = |class: Json| trace(&[field("x", &class)]).unwrap_err();
    let changed = |name: &str, value: Json| {
        let mut class = number(8);
        class[name] = value;
        refused(class)
    };
    assert!(matches!(changed("length", json!(65)), FragmentProblem::Value { name: "length", .. }));
    assert!(matches!(changed("length", json!(0)), FragmentProblem::Value { name: "length", .. }));
    assert!(matches!(changed("alignment", json!(3)), FragmentProblem::Value { name: "alignment", .. }));
    assert!(matches!(changed("byte-order", json!("x")), FragmentProblem::Value { name: "byte-order", .. }));
    assert!(matches!(changed("bit-order", json!("last-to-first")), FragmentProblem::Unsupported(_)));
    assert!(matches!(changed("mappings", json!({ "a": [[2, 1]] })), FragmentProblem::Value { .. }));
    assert!(matches!(changed("type", json!("x")), FragmentProblem::Unsupported(_)));
    assert!(matches!(
        refused(json!({ "type": "null-terminated-string", "encoding": "utf-16le" })),
        FragmentProblem::Unsupported(_)
    ));
    assert!(matches!(refused(json!({ "type": "static-length-blob" })), FragmentProblem::Missing { .. }));
    for path in [json!([]), json!(["a", null]), json!([null]), json!([1])] {
        let class = json!({ "type": "dynamic-length-blob", "length-field-location": { "path": path } });
        assert!(matches!(refused(class), FragmentProblem::Value { .. }));
    }
    let nested = |depth: usize| {
        (0..depth).fold(
            number(8),
            |inner, _| json!({ "type": "static-length-array", "length": 1, "element-field-class": inner }),
        )
    };
    assert!(trace(&[field("x", &nested(31))]).is_ok());
    assert_eq!(refused(nested(32)), FragmentProblem::Deep);
    // Each name doubles what is in it, and costs a name.
    let mut fragments =
        vec![preamble(), json!({ "type": "field-class-alias", "name": "0", "field-class": structure(&[]) })];
    for depth in 1..30 {
        let class = json!((depth - 1).to_string());
        let class = structure(&[field("a", &class), field("b", &class)]);
        fragments
            .push(json!({ "type": "field-class-alias", "name": depth.to_string(), "field-class": class }));
    }
    fragments.push(json!({ "type": "clock-class", "id": "c", "frequency": 1 }));
    fragments.push(json!({ "type": "data-stream-class", "default-clock-class-id": "c",
        "event-record-header-field-class": "29", "packet-context-field-class": "29" }));
    let trace = parse(&text(&fragments)).unwrap();
    let error = Decoder::new(&trace, false).packet(&[0; 9], 9).unwrap_err();
    assert!(matches!(error, PacketStop::Error(PacketError::Value(DecodeError::Many { .. }), _)), "{error:?}");
}
