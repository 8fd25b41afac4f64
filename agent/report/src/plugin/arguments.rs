//! Arguments of functions, as `tep_btf_print_args` of libtraceevent 1.9 prints them (src/trace-btf.c): with
//! the names and types of the recorded kernel's BTF (Documentation/bpf/btf.rst), which files of trace-cmd 3.4
//! have.
//!
//! The section is outside data: no offset, number or reference in it is trusted.

use std::collections::hash_map::Entry;

use super::super::text::signed;
use super::labelled_hex;
use ftrace_event::{Endian, Format, Location, Machine};
use stdx::fast_map::FastMap;

/// `BTF_KIND_*` of include/uapi/linux/btf.h.
mod kind {
    pub(super) const INT: u32 = 1;
    pub(super) const PTR: u32 = 2;
    pub(super) const ENUM: u32 = 6;
    pub(super) const TYPEDEF: u32 = 8;
    pub(super) const VOLATILE: u32 = 9;
    pub(super) const CONST: u32 = 10;
    pub(super) const RESTRICT: u32 = 11;
    pub(super) const FUNC: u32 = 12;
    pub(super) const FUNC_PROTO: u32 = 13;
    pub(super) const TYPE_TAG: u32 = 18;
}

/// What libtraceevent calls the kinds.
const KINDS: [&str; 20] = [
    "UNKNOWN",
    "INT",
    "PTR",
    "ARRAY",
    "STRUCT",
    "UNION",
    "ENUM",
    "FWD",
    "TYPEDEF",
    "VOLATILE",
    "CONST",
    "RESTRICT",
    "FUNC",
    "FUNC_PROTO",
    "VAR",
    "DATASEC",
    "FLOAT",
    "DECL_TAG",
    "TYPE_TAG",
    "ENUM64",
];

/// How many qualifiers and typedefs are followed before a type is taken for a circle.
const MAX_DEPTH: usize = 32;
/// Bytes of what every type begins with.
const HEAD: usize = 12;

/// The field with the values that a function was called with, in registers' order, up to the record's end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arguments {
    offset: usize,
}

impl Arguments {
    pub(super) fn of(format: &Format) -> Option<Self> {
        let field =
            format.field("args").filter(|field| field.location == Location::Inline && field.is_open());
        field.map(|field| Self { offset: field.offset as usize })
    }

    /// Prints those of a function.
    pub(super) fn print(
        self,
        out: &mut Vec<u8>,
        (function, signatures): (&str, Option<&Signatures>),
        record: &[u8],
        machine: Machine,
    ) {
        let long = usize::from(machine.long_size).max(1);
        let values = record.get(self.offset..).unwrap_or_default().chunks_exact(long);
        let values: Vec<u64> = values.map(|bytes| machine.number(bytes)).collect();
        match signatures.and_then(|known| Some((known, known.function(function)?))) {
            Some((known, function)) => {
                // What cannot be read prints nothing more.
                let _ = known.print(out, function, &values, long);
            }
            None => {
                for (index, value) in values.into_iter().enumerate() {
                    labelled_hex(out, if index == 0 { b"" } else { b", " }, value);
                }
            }
        }
    }
}

/// The longest name that is read: `KSYM_NAME_LEN` of the kernel.
const MAX_NAME: usize = 512;
/// Bytes of text from which on no more arguments are printed. The kernel records six of them.
const MAX_ARGUMENTS: usize = 64 << 10;

/// The functions of a kernel, by its BTF.
#[derive(Debug)]
pub(crate) struct Signatures {
    data: Vec<u8>,
    endian: Endian,
    /// Where each type begins.
    types: Vec<u32>,
    strings: (usize, usize),
    /// Where the types of functions begin, by their names.
    functions: FastMap<Box<[u8]>, u32>,
}

/// What every type begins with.
struct Head {
    name: usize,
    kind: u32,
    count: usize,
    size_or_type: u32,
    /// Where the rest of it is.
    body: usize,
}

impl Signatures {
    /// Of the content of a section; `None` if it is no BTF, or damaged.
    pub(crate) fn parse(data: Vec<u8>, endian: Endian) -> Option<Self> {
        let word =
            |at: usize| -> Option<usize> { Some(endian.read_u32(*data.get(at..)?.first_chunk()?) as usize) };
        let magic = endian.read_u16(*data.first_chunk()?);
        let part = |offset: usize, len: usize| -> Option<(usize, usize)> {
            let start = word(4)?.checked_add(offset)?;
            let end = start.checked_add(len)?;
            (end <= data.len()).then_some((start, end))
        };
        let (types, strings) = (part(word(8)?, word(12)?)?, part(word(16)?, word(20)?)?);
        if magic != 0xeb9f || u32::try_from(data.len()).is_err() {
            return None;
        }
        let mut found = Self { data, endian, types: Vec::new(), strings, functions: FastMap::default() };
        let mut at = types.0;
        // Names of one file do not overlap: together they are no longer than its strings.
        let mut room = strings.1 - strings.0;
        while at < types.1 {
            let head = found.head(at)?;
            found.types.push(at as u32);
            if head.kind == kind::FUNC {
                let name: Box<[u8]> = found.string(head.name).into();
                let len = name.len();
                if let Entry::Vacant(new) = found.functions.entry(name) {
                    room = room.checked_sub(len)?;
                    new.insert(at as u32);
                }
            }
            at = head.body + head.rest()?;
        }
        Some(found)
    }

    /// The function of this name, or of what stands before the first dot of it: the compiler's copies have
    /// names such as `name.isra.0`.
    fn function(&self, name: &str) -> Option<u32> {
        let find = |name: &str| self.functions.get(name.as_bytes()).copied();
        find(name).or_else(|| find(name.split_once('.')?.0))
    }

    fn print(&self, out: &mut Vec<u8>, function: u32, values: &[u64], long: usize) -> Option<()> {
        let proto = self.head(self.at(self.head(function as usize)?.size_or_type)?)?;
        if proto.kind != kind::FUNC_PROTO {
            return None;
        }
        let mut values = values.iter().copied();
        let end = out.len() + MAX_ARGUMENTS;
        for index in 0..proto.count {
            if out.len() > end {
                return None;
            }
            if index > 0 {
                out.extend_from_slice(b", ");
            }
            let Some(value) = values.next() else {
                out.extend_from_slice(b"...");
                return None;
            };
            let at = proto.body + index * 8;
            out.extend_from_slice(self.string(self.word(at)? as usize));
            out.push(b'=');
            let id = self.word(at + 4)?;
            if id != 0 {
                self.print_value(out, id, value, (&mut values, long))?;
            }
        }
        Some(())
    }

    /// Prints an argument. `None` if the values end within it.
    fn print_value(
        &self,
        out: &mut Vec<u8>,
        id: u32,
        value: u64,
        (values, long): (&mut dyn Iterator<Item = u64>, usize),
    ) -> Option<()> {
        match self.behind_qualifiers(id) {
            None => labelled_hex(out, b"?0x", value),
            Some(Head { kind: kind::PTR, .. }) => labelled_hex(out, b"0x", value),
            Some(Head { kind: kind::INT, body, .. }) => {
                let encoding = self.word(body)?;
                let (bits, offset) = (encoding & 0xff, encoding >> 16 & 0xff);
                let value = value.checked_shr(offset).unwrap_or(0);
                let value = if bits < 64 { value & ((1 << bits) - 1) } else { value };
                // As libtraceevent does it: without the sign of what is shorter than 64 bits.
                if encoding >> 24 & 1 != 0 {
                    signed(out, value.cast_signed());
                } else {
                    labelled_hex(out, b"0x", value);
                }
            }
            Some(Head { kind: kind::ENUM, .. }) => signed(out, value.cast_signed()),
            Some(Head { kind, size_or_type, .. }) => {
                out.push(b'(');
                out.extend_from_slice(KINDS.get(kind as usize).copied().unwrap_or_default().as_bytes());
                labelled_hex(out, b")[0x", value);
                for _ in 1..(size_or_type as usize).div_ceil(long) {
                    let Some(value) = values.next() else {
                        out.extend_from_slice(b":...]");
                        return None;
                    };
                    labelled_hex(out, b":0x", value);
                }
                out.push(b']');
            }
        }
        Some(())
    }

    /// What a type is without its typedefs and qualifiers.
    fn behind_qualifiers(&self, id: u32) -> Option<Head> {
        let mut head = self.head(self.at(id)?)?;
        for _ in 0..MAX_DEPTH {
            match head.kind {
                kind::TYPEDEF | kind::VOLATILE | kind::CONST | kind::RESTRICT | kind::TYPE_TAG => {
                    head = self.head(self.at(head.size_or_type)?)?;
                }
                _ => return Some(head),
            }
        }
        None
    }

    fn at(&self, id: u32) -> Option<usize> {
        Some(*self.types.get((id as usize).checked_sub(1)?)? as usize)
    }

    fn word(&self, at: usize) -> Option<u32> {
        Some(self.endian.read_u32(*self.data.get(at..)?.first_chunk()?))
    }

    fn head(&self, at: usize) -> Option<Head> {
        let info = self.word(at + 4)?;
        Some(Head {
            name: self.word(at)? as usize,
            kind: info >> 24 & 0x1f,
            count: (info & 0xffff) as usize,
            size_or_type: self.word(at + 8)?,
            body: at + HEAD,
        })
    }

    fn string(&self, offset: usize) -> &[u8] {
        let strings = self.data.get(self.strings.0..self.strings.1).unwrap_or_default();
        let rest = strings.get(offset..).unwrap_or_default();
        rest.split_at(rest.len().min(MAX_NAME)).0.split(|byte| *byte == 0).next().unwrap_or_default()
    }
}

impl Head {
    /// Bytes behind the head; `None` for a kind that nobody knows.
    fn rest(&self) -> Option<usize> {
        Some(match self.kind {
            // INT, VAR, DECL_TAG
            kind::INT | 14 | 17 => 4,
            // ARRAY
            3 => 12,
            // STRUCT, UNION, DATASEC, ENUM64
            4 | 5 | 15 | 19 => 12 * self.count,
            kind::ENUM | kind::FUNC_PROTO => 8 * self.count,
            // FWD, FLOAT
            kind::PTR | 7..=12 | 16 | kind::TYPE_TAG => 0,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A type: its head's name, kind, count and size or type, and the words behind it.
    type Head<'a> = (&'a str, u32, u32, u32, &'a [(&'a str, u32)]);

    /// BTF of types.
    fn btf(endian: Endian, types: &[Head<'_>]) -> Vec<u8> {
        let mut strings = vec![0_u8];
        let mut name = |text: &str| {
            if text.is_empty() {
                return 0;
            }
            let at = strings.len() as u32;
            strings.extend_from_slice(text.as_bytes());
            strings.push(0);
            at
        };
        let mut words = Vec::new();
        for (of, kind, count, size_or_type, rest) in types {
            words.extend([name(of), kind << 24 | count, *size_or_type]);
            for (text, word) in *rest {
                if *kind != kind::INT {
                    words.push(name(text));
                }
                words.push(*word);
            }
        }
        let types: Vec<u8> = words.into_iter().flat_map(|word| endian.u32(word)).collect();
        let head = [24, 0, types.len() as u32, types.len() as u32, strings.len() as u32];
        let mut data = endian.u16(0xeb9f).to_vec();
        data.extend([1, 0]);
        data.extend(head.into_iter().flat_map(|word| endian.u32(word)));
        [data, types, strings].concat()
    }

    fn kernel(endian: Endian) -> Vec<u8> {
        let int = |bits: u32, signed: u32| ("", signed << 24 | bits);
        btf(
            endian,
            &[
                ("int", kind::INT, 0, 4, &[int(32, 1)]),
                ("unsigned char", kind::INT, 0, 1, &[int(8, 0)]),
                ("raw_spinlock", 4, 0, 24, &[]),
                ("raw_spinlock_t", kind::TYPEDEF, 0, 3, &[]),
                ("", kind::PTR, 0, 4, &[]),
                ("", kind::FUNC_PROTO, 1, 0, &[("lock", 5)]),
                ("_raw_spin_lock", kind::FUNC, 1, 6, &[]),
                ("", kind::CONST, 0, 1, &[]),
                ("color", kind::ENUM, 1, 4, &[("RED", 0)]),
                ("", kind::FUNC_PROTO, 5, 1, &[("a", 8), ("b", 2), ("c", 9), ("s", 3), ("", 0)]),
                ("mix", kind::FUNC, 1, 10, &[]),
                ("", kind::TYPEDEF, 0, 12, &[]),
                ("", kind::FUNC_PROTO, 2, 1, &[("x", 12), ("y", 99)]),
                ("odd", kind::FUNC, 1, 13, &[]),
                ("", kind::FUNC_PROTO, 0, 0, &[]),
                ("none", kind::FUNC, 1, 15, &[]),
            ],
        )
    }

    fn printed(endian: Endian, btf: Option<Vec<u8>>, function: &str, values: &[u64]) -> String {
        let machine = Machine { endian, long_size: 8 };
        let signatures = btf.map(|data| Signatures::parse(data, endian).unwrap());
        let words = std::iter::once(7).chain(values.iter().copied());
        let record: Vec<u8> = words.flat_map(|value| endian.u64(value)).collect();
        let mut out = Vec::new();
        Arguments { offset: 8 }.print(&mut out, (function, signatures.as_ref()), &record, machine);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn arguments_are_those_of_libtraceevent() {
        for endian in [Endian::Little, Endian::Big] {
            let printed = |function, values: &[u64]| printed(endian, Some(kernel(endian)), function, values);
            assert_eq!(printed("_raw_spin_lock", &[0xffff_8881, 2, 3]), "lock=0xffff8881");
            assert_eq!(printed("_raw_spin_lock.isra.0", &[1]), "lock=0x1");
            let values = [u64::MAX, 0x1ff, 2, 4, 5, 6, 7];
            assert_eq!(printed("mix", &values), "a=4294967295, b=0xff, c=2, s=(STRUCT)[0x4:0x5:0x6], =");
            assert_eq!(printed("mix", &values[..5]), "a=4294967295, b=0xff, c=2, s=(STRUCT)[0x4:0x5:...]");
            assert_eq!(printed("mix", &values[..1]), "a=4294967295, ...");
            assert_eq!(printed("mix", &[]), "...");
            // A circle, and a type that does not exist.
            assert_eq!(printed("odd", &[1, 2]), "x=?0x1, y=?0x2");
            assert_eq!(printed("none", &[1, 2]), "");
            assert_eq!(printed("unknown", &[0x10, 0x20]), "10, 20");
        }
        assert_eq!(printed(Endian::Little, None, "mix", &[0x10, 0x20]), "10, 20");
    }

    #[test]
    fn names_that_share_a_text_are_bounded() {
        // Functions whose names are all ends of one text, which is far longer than any.
        let mut text = String::new();
        for number in 0..20_000 {
            text += &format!("{number:05}");
        }
        let mut data = btf(Endian::Little, &[(&text, kind::FUNC, 1, 6, &[])]);
        let strings = data.split_off(24 + 12);
        let types: Vec<u8> =
            (1..1000_u32).flat_map(|name| [name, kind::FUNC << 24, 6]).flat_map(u32::to_le_bytes).collect();
        let len = types.len() as u32;
        data.truncate(24);
        data[12..16].copy_from_slice(&len.to_le_bytes());
        data[16..20].copy_from_slice(&len.to_le_bytes());
        data.extend(types);
        data.extend(strings);
        assert!(Signatures::parse(data, Endian::Little).is_none());
        // Parameters that share a long name print no more than a record can be about.
        let name = "x".repeat(100_000);
        let rest = vec![(name.as_str(), 0); 500];
        let data =
            btf(Endian::Little, &[("", kind::FUNC_PROTO, 500, 0, &rest), ("f", kind::FUNC, 1, 1, &[])]);
        let text = printed(Endian::Little, Some(data), "f", &[1; 500]);
        assert!(text.len() < MAX_ARGUMENTS + 2 * MAX_NAME, "{}", text.len());
    }

    /// A recording of calls, as kernels since 6.15 have them, with the kernel's types or without.
    fn lines(has_types: bool) -> Vec<String> {
        use std::io::Cursor;

        use crate::{Report, TraceFile};
        use tracedat::layout::{self, SectionId};
        use tracedat::page::{PageBuilder, Push};
        use tracedat::{Buffer, Compression, Section, Setup, Writer};

        let common = "\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;
\tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;
\tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;
\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n";
        let format = |name: &str, id: u32, fields: &[&str]| {
            let line = |(at, field): (usize, &&str)| {
                let size = if field.ends_with("[]") { 0 } else { 8 };
                format!("\tfield:unsigned long {field};\toffset:{at};\tsize:{size};\tsigned:0;\n")
            };
            let own: String = (8..).step_by(8).zip(fields).map(line).collect();
            format!("name: {name}\nID: {id}\nformat:\n{common}\n{own}\nprint fmt: \"\"\n")
        };
        let formats = [
            format("function", 1, &["ip", "parent_ip", "args[]"]),
            format("funcgraph_entry", 11, &["func", "depth", "args[]"]),
            format("funcgraph_exit", 10, &["func", "depth", "calltime", "rettime"]),
        ];
        let endian = Endian::Little;
        let setup = Setup { endian, page_size: 4096, compression: Compression::None };
        let mut writer = Writer::create(Cursor::new(Vec::new()), setup).unwrap();
        let header = layout::header_page_text(4096);
        writer.section(Section::header_info(endian, &header, "").unwrap()).unwrap();
        let formats: Vec<&str> = formats.iter().map(String::as_str).collect();
        writer.section(Section::ftrace_events(endian, &formats).unwrap()).unwrap();
        let symbols = b"1000 T _raw_spin_lock\n2000 T mix\n3000 T caller\n4000 T end\n";
        writer.section(Section::kallsyms(endian, symbols).unwrap()).unwrap();
        if has_types {
            writer.raw_section(SectionId::BTF, "types", &kernel(endian)).unwrap();
        }
        let (lock, mix, caller) = (0x1000, 0x2000, 0x3000);
        let mut pages = PageBuilder::new(4096, endian).unwrap();
        for (id, words) in [
            (1_u16, &[lock, caller, 7][..]),
            (1, &[0x10, caller, 7]),
            (11, &[lock, 0, 8]),
            (11, &[mix, 1, 1, 2, 3, 4, 5, 6, 7]),
            (10, &[mix, 1, 1000, 3000]),
            (11, &[lock, 1]),
        ] {
            let head = [&id.to_le_bytes()[..], &[0, 0, 42, 0, 0, 0]].concat();
            let own = words.iter().flat_map(|word: &u64| word.to_le_bytes());
            let record: Vec<u8> = head.into_iter().chain(own).collect();
            assert_eq!(pages.push(1000, &record).unwrap(), Push::Stored);
        }
        let mut top = writer.begin_buffer(Buffer { name: "", clock: "mono", page_size: 4096 }).unwrap();
        top.write_cpu(0, pages.finish().unwrap()).unwrap();
        top.finish().unwrap();
        let files = [TraceFile::open("made", writer.finish().unwrap().into_inner()).unwrap()];
        let mut out = Vec::new();
        Report::new(&files).run(&mut out, |_| {}).unwrap();
        let text = String::from_utf8(out).unwrap();
        let of_line = |line: &str| {
            let (_, text) = line.split_once(": ").unwrap().1.split_once(": ").unwrap();
            text.rsplit_once("|  ").map_or(text, |(_, call)| call).trim().to_owned()
        };
        text.lines().filter(|line| line.contains(" func")).map(of_line).collect()
    }

    #[test]
    fn calls_are_printed_with_their_arguments() {
        let expected = [
            "_raw_spin_lock(lock=0x7)",
            "0x10",
            "_raw_spin_lock(lock=0x8) {",
            "mix(a=1, b=0x2, c=3, s=(STRUCT)[0x4:0x5:0x6], =);",
            "_raw_spin_lock(...) {",
        ];
        assert_eq!(lines(true), expected);
        let expected = [
            "_raw_spin_lock(7)",
            "0x10",
            "_raw_spin_lock(8) {",
            "mix(1, 2, 3, 4, 5, 6, 7);",
            "_raw_spin_lock() {",
        ];
        assert_eq!(lines(false), expected);
    }

    #[test]
    fn damaged_types_are_none() {
        let whole = kernel(Endian::Little);
        assert!(Signatures::parse(whole.clone(), Endian::Big).is_none());
        for len in 0..whole.len() {
            // The strings may be cut where no one looks.
            let _ = Signatures::parse(whole[..len].to_vec(), Endian::Little);
        }
        for at in 0..whole.len() {
            for value in [0, 0x7f, 0xff] {
                let mut damaged = whole.clone();
                damaged[at] = value;
                if let Some(signatures) = Signatures::parse(damaged, Endian::Little) {
                    let machine = Machine { endian: Endian::Little, long_size: 8 };
                    let mut out = Vec::new();
                    Arguments { offset: 0 }.print(&mut out, ("mix", Some(&signatures)), &[1; 48], machine);
                }
            }
        }
        let mut unknown = whole;
        unknown[24 + 7] = 31;
        assert!(Signatures::parse(unknown, Endian::Little).is_none());
    }
}
