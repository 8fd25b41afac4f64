#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use super::decode::Window;
use super::packet::{Decoder, PacketError, PacketStop};
use super::schema::Trace;
use super::value::Value;
use super::{decode::DecodeError, tsdl};
use ftrace_event::Endian;

/// A trace without headers, with one event of these fields.
fn trace(order: &str, fields: &str) -> Trace {
    let text = format!(
        "trace {{ major = 1; minor = 8; byte_order = {order}; }};
        typealias integer {{ size = 8; }} := u8;
        typealias integer {{ size = 16; }} := u16;
        typealias integer {{ size = 32; }} := u32;
        typealias integer {{ size = 64; }} := u64;
        event {{ name = e; fields := struct {{ {fields} }}; }};"
    );
    tsdl::parse(&text).unwrap()
}

/// The fields of the first event.
fn fields(trace: &Trace, bytes: &[u8]) -> Result<Vec<Value<'static>>, PacketError> {
    let mut decoder = Decoder::new(trace, false);
    let mut packet = decoder.packet(bytes, bytes.len() as u64).unwrap();
    match decoder.event(&mut packet, Window { bytes, start: 0 }) {
        Ok(event) => Ok(event.fields.unwrap().into_iter().map(Value::into_owned).collect()),
        Err(PacketStop::Error(error, _)) => Err(error),
        Err(PacketStop::Short) => panic!("all of the packet is there"),
    }
}

fn text(text: &str) -> Value<'static> {
    Value::Text(text.as_bytes().to_vec().into())
}

#[test]
fn numbers_of_both_orders_and_any_size() {
    let of = "u16 a; integer { size = 3; } b; integer { size = 13; signed = true; } c; u8 d;";
    let bytes = [0x12, 0x34, 0b1010_0101, 0b1100_0011, 7];
    let little =
        [Value::Unsigned(0x3412), Value::Unsigned(0b101), Value::Signed(0b1_1000_0111_0100 - (1 << 13))];
    let big = [Value::Unsigned(0x1234), Value::Unsigned(0b101), Value::Signed(0b0_0101_1100_0011)];
    for (order, expected) in [("le", little), ("be", big)] {
        let values = fields(&trace(order, of), &bytes).unwrap();
        assert_eq!(values[..3], expected, "{order}");
        assert_eq!(values[3], Value::Unsigned(7));
    }
    // A byte order of its own, alignment, and numbers of IEEE 754.
    let of = "u8 a; integer { size = 32; align = 32; byte_order = be; } b; floating_point { exp_dig = 8; mant_dig = 24; } c;";
    let bytes = [&[1, 9, 9, 9, 0, 0, 1, 0][..], &(-1.5_f32).to_le_bytes()].concat();
    let expected = [Value::Unsigned(1), Value::Unsigned(256), Value::Float(-1.5)];
    assert_eq!(fields(&trace("le", of), &bytes).unwrap(), expected);
}

#[test]
fn texts_arrays_and_sequences() {
    let of = "string a; integer { size = 8; encoding = UTF8; } b[4]; u8 n; u16 c[n]; \
              struct { string x; u8 y; } d[2]; u8 e[0]; integer { size = 8; encoding = ASCII; } f[n];";
    let bytes = b"ab\0cd\0x\x02\x01\x00\x02\x00p\0\x05q\0\x06fg";
    let values = fields(&trace("le", of), bytes).unwrap();
    let element = |x, y| Value::Fields(vec![text(x), Value::Unsigned(y)]);
    assert_eq!(
        values,
        [
            text("ab"),
            text("cd"),
            Value::Unsigned(2),
            Value::Numbers(vec![1, 2]),
            Value::List(vec![element("p", 5), element("q", 6)]),
            Value::Numbers(vec![]),
            text("fg"),
        ]
    );
    let of = "integer { size = 4; signed = true; } x[4];";
    let expected = Value::Numbers(vec![u64::MAX, 2, 3, u64::MAX - 7]);
    assert_eq!(fields(&trace("le", of), &[0x2f, 0x83]).unwrap(), [expected]);
}

#[test]
fn tags_and_lengths_are_looked_for_outwards() {
    let of = "enum : u8 { one = 1, two = 2 ... 9 } t; u8 n; struct { u8 n; struct { variant <t> { u8 one; \
              struct { u8 z[n]; } two; } v; u8 rest[event.fields.n]; } in; } out;";
    let trace = trace("le", of);
    let values = fields(&trace, &[7, 1, 2, 0xa, 0xb, 0xc]).unwrap();
    let inner = Value::Fields(vec![Value::Numbers(vec![0xa, 0xb])]);
    let inner = Value::Fields(vec![Value::Chosen(1, Box::new(inner)), Value::Numbers(vec![0xc])]);
    assert_eq!(values[2], Value::Fields(vec![Value::Unsigned(2), inner]));
    let error = fields(&trace, &[0, 1, 2, 0xa]).unwrap_err().to_string();
    assert_eq!(error, "event.fields.out.in.v is chosen by t, whose value 0 names none of its fields");
}

#[test]
fn what_goes_beyond_the_packet_is_refused() {
    let overrun = |of: &str, bytes: &[u8], field: &str| {
        let error = fields(&trace("le", of), bytes).unwrap_err();
        let content = bytes.len() as u64 * 8;
        let expected = DecodeError::Overrun { field: format!("event.fields.{field}"), content };
        assert_eq!(error, PacketError::Value(expected), "{of}");
    };
    overrun("u8 a; u32 b;", &[1, 2, 3, 4], "b");
    overrun("string a;", b"no end", "a");
    overrun("u32 n; u64 a[n];", &[0xff; 8], "a");
    overrun("u64 n; integer { size = 8; encoding = UTF8; } a[n];", &[0xff; 9], "a");
    overrun("u8 a[18446744073709551615];", &[0; 9], "a");
    let many = |of: &str| fields(&trace("le", of), &[0xff; 16]).unwrap_err();
    let is_many = |error| matches!(error, PacketError::Value(DecodeError::Many { .. }));
    assert!(is_many(many("u32 n; struct { } a[n];")));
    assert!(is_many(many("struct { u8 x[0]; } a[1000000][1000000];")));
    assert!(matches!(many("u8 a; u8 b[c];"), PacketError::Value(DecodeError::Length { .. })));
    assert_eq!(many(""), PacketError::Nothing("e".to_owned()));
}

/// A packet of LTTng's layout, in pieces.
struct Packet {
    order: Endian,
    bytes: Vec<u8>,
}

impl Packet {
    fn u64(&mut self, value: u64) {
        self.bytes.extend_from_slice(&self.order.u64(value));
    }

    fn u32(&mut self, value: u32) {
        self.bytes.extend_from_slice(&self.order.u32(value));
    }

    /// Five bits and 27 bits in one word, the first ones where the byte order has them.
    fn compact(&mut self, id: u32, timestamp: u32) {
        let word = match self.order {
            Endian::Little => id | timestamp << 5,
            Endian::Big => id << 27 | timestamp,
        };
        self.u32(word);
    }
}

const LTTNG: &str = "
typealias integer { size = 5; } := uint5_t;
typealias integer { size = 32; align = 8; } := uint32_t;
typealias integer { size = 64; align = 8; } := uint64_t;
clock { name = mono; freq = 1000000000; };
typealias integer { size = 27; map = clock.mono.value; } := uint27_clock;
typealias integer { size = 64; align = 8; map = clock.mono.value; } := uint64_clock;
stream {
    packet.context := struct {
        uint64_clock timestamp_begin; uint64_clock timestamp_end; uint64_t content_size; uint64_t packet_size;
        uint64_t packet_seq_num; uint64_t events_discarded; uint32_t cpu_id;
    };
    event.header := struct {
        enum : uint5_t { compact = 0 ... 30, extended = 31 } id;
        variant <id> {
            struct { uint27_clock timestamp; } compact;
            struct { uint32_t id; uint64_clock timestamp; } extended;
        } v;
    } align(8);
    event.context := struct { uint32_t _tid; };
};
event { name = first; id = 0; fields := struct { uint32_t _x; }; };
event { name = second; id = 40; };
";

fn lttng(order: Endian) -> (Trace, Vec<u8>) {
    let name = if order == Endian::Little { "le" } else { "be" };
    let head = format!(
        "typealias integer {{ size = 32; align = 8; }} := word;
        trace {{ major = 1; minor = 8; byte_order = {name}; packet.header := struct {{ word magic; }}; }};"
    );
    let mut packet = Packet { order, bytes: Vec::new() };
    packet.u32(0xc1fc_1fc1);
    let start = (1 << 40) + (1 << 27) - 10;
    packet.u64(start);
    packet.u64(start + 1000);
    let len = 56 + 12 + (1 + 4 + 8 + 4) + 12;
    packet.u64(len * 8);
    packet.u64((len + 3) * 8);
    packet.u64(5);
    packet.u64(77);
    packet.u32(3);
    // Its low bits turn over.
    packet.compact(0, 4);
    packet.u32(10);
    packet.u32(11);
    packet.bytes.push(if order == Endian::Little { 31 } else { 31 << 3 });
    packet.u32(40);
    packet.u64(start + 500);
    packet.u32(20);
    packet.compact(0, 600);
    packet.u32(30);
    packet.u32(31);
    assert_eq!(packet.bytes.len() as u64, len);
    packet.bytes.extend_from_slice(&[0; 3]);
    (tsdl::parse(&(head + LTTNG)).unwrap(), packet.bytes)
}

#[test]
fn packets_of_lttng_in_windows_of_any_size() {
    for order in [Endian::Little, Endian::Big] {
        let (trace, bytes) = lttng(order);
        for window in [1, 7, 13, 20, 97] {
            let mut decoder = Decoder::new(&trace, false);
            let mut packet = decoder.packet(&bytes, bytes.len() as u64).unwrap();
            let facts = (packet.cpu, packet.sequence, packet.discarded, packet.len);
            assert_eq!(facts, (Some(3), Some(5), Some((77, 64)), bytes.len() as u64));
            let mut found = Vec::new();
            let (mut start, mut len) = (packet.position() as usize, window);
            while packet.has_more() {
                let end = (start + len).min(packet.content_len() as usize);
                let window = Window { bytes: &bytes[start..end], start: start as u64 };
                match decoder.event(&mut packet, window) {
                    Ok(event) => {
                        let Some(Value::Unsigned(tid)) =
                            event.stream_context.as_ref().map(|of| of[0].clone())
                        else {
                            panic!("{event:?}")
                        };
                        found.push((event.class.name.clone(), event.ticks, tid));
                    }
                    Err(PacketStop::Short) if packet.position() as usize > start => {
                        start = packet.position() as usize;
                    }
                    Err(PacketStop::Short) => len += 1,
                    Err(error) => panic!("{error:?}"),
                }
            }
            let base = (1 << 40) + (1 << 27);
            let expected = [("first", base + 4, 10), ("second", base + 490, 20), ("first", base + 600, 30)];
            assert_eq!(found, expected.map(|(name, time, tid)| (name.to_owned(), time, tid)));
        }
    }
}

#[test]
fn packets_that_cannot_be_are_refused() {
    let (trace, bytes) = lttng(Endian::Little);
    let refused = |at: usize, new: &[u8], left: u64| {
        let mut bytes = bytes.clone();
        bytes[at..at + new.len()].copy_from_slice(new);
        match Decoder::new(&trace, false).packet(&bytes, left) {
            Err(PacketStop::Error(error, _)) => error,
            other => panic!("{other:?}"),
        }
    };
    let len = bytes.len() as u64;
    assert_eq!(refused(0, &[1], len), PacketError::Magic(0xc1fc_1f01));
    assert_eq!(refused(0, &[], len - 1), PacketError::Cut { size: len, left: len - 1 });
    let content = (len - 3) * 8;
    for (size, content) in [(0, content), (len * 8 + 1, content), (8, content), (len * 8, 55 * 8)] {
        let sizes = [u64::to_le_bytes(content), u64::to_le_bytes(size)].concat();
        assert_eq!(refused(20, &sizes, len), PacketError::Size { size, content, header: 56 * 8 });
    }
    let huge = u64::MAX - 7;
    let sizes = [u64::to_le_bytes(content), u64::to_le_bytes(huge)].concat();
    assert_eq!(refused(20, &sizes, len), PacketError::Cut { size: huge / 8, left: len });
    // An event that nobody has declared.
    let mut damaged = bytes.clone();
    damaged[56] = damaged[56] & !31 | 9;
    let mut decoder = Decoder::new(&trace, false);
    let mut packet = decoder.packet(&damaged, len).unwrap();
    let error = decoder.event(&mut packet, Window { bytes: &damaged, start: 0 }).unwrap_err();
    assert_eq!(error, PacketStop::Error(PacketError::UnknownEvent { id: 9, stream: 0 }, 56));
}
