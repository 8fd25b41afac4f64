//! Layout of an event's record: how long it is, how it is aligned, and where its dynamic fields are.

use super::format::{Array, Field, Format, Location};

/// Largest alignment of a member of a record, bytes.
const MAX_ALIGN: u32 = 8;

/// What a recorder must know of an event's record, without looking at the fields again.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RecordLayout {
    /// Offset of the first byte after the last field: where the kernel puts dynamic data.
    pub fields_end: u32,
    /// Alignment of the C struct, bytes: 1, 2, 4 or 8.
    pub align: u32,
    /// `sizeof` of the C struct: `fields_end` rounded up to `align`. A record of an event without dynamic
    /// data is this long.
    pub size: u32,
    /// The fields whose values follow the fixed part, in the order of the format.
    pub dynamic: Vec<DynamicField>,
}

/// A field whose value follows the fixed part of the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DynamicField {
    /// Where the u32 is that holds offset and length, bytes from the start of the record.
    pub offset: u32,
    /// How its offset counts: [`Location::DataLoc`] or [`Location::RelLoc`].
    pub location: Location,
}

impl Format {
    /// Layout of the event's record.
    ///
    /// The text has sizes but not alignments. For scalars the alignment is the size, for arrays the size of
    /// an element; for a struct that is a member by value it is taken as the largest power of two that
    /// divides its size and offset, which can be more than it is, and then [`size`](RecordLayout::size) is up
    /// to 7 bytes more than `sizeof`.
    pub fn record_layout(&self) -> RecordLayout {
        let fields = || self.common.iter().chain(&self.fields);
        let fields_end = fields().map(Field::end).max().unwrap_or(0);
        let align = fields().map(Field::align).max().unwrap_or(1);
        let dynamic = fields()
            .filter(|field| field.location != Location::Inline)
            .flat_map(|field| {
                let words = field.strings().unwrap_or(1);
                (0..words)
                    .map(|word| DynamicField { offset: field.offset + word * 4, location: field.location })
            })
            .collect();
        RecordLayout { fields_end, align, size: fields_end.next_multiple_of(align), dynamic }
    }
}

impl Field {
    /// Bytes of one element: of the array, of the dynamic data, or the field itself. `None` where the text
    /// does not say.
    pub fn element_size(&self) -> Option<u32> {
        if let Some(size) = scalar_size(&self.type_text) {
            return Some(size);
        }
        match (&self.array, self.location) {
            (Array::Single, Location::Inline) => Some(self.size),
            (Array::Fixed(length), Location::Inline) if *length != 0 && self.size.is_multiple_of(*length) => {
                Some(self.size / length)
            }
            _ => None,
        }
    }

    /// Alignment of the field's fixed part, bytes: 1, 2, 4 or 8.
    pub fn align(&self) -> u32 {
        if self.location != Location::Inline {
            return 4;
        }
        // System call arguments are declared with their own types but stored in 8 bytes each: the size
        // decides for scalars, the type only for elements of arrays.
        let size = match self.array {
            Array::Single => self.size,
            _ => self.element_size().unwrap_or(self.size),
        };
        // A member never stands at an offset that its alignment does not divide.
        [size, self.offset, MAX_ALIGN]
            .into_iter()
            .filter(|n| *n != 0)
            .map(|n| n & n.wrapping_neg())
            .min()
            .unwrap_or(1)
    }
}

/// `sizeof` of the C types that elements of arrays have in the kernel's formats, on a 64-bit machine.
fn scalar_size(type_text: &str) -> Option<u32> {
    if type_text.contains('*') {
        return Some(8);
    }
    let mut words =
        type_text.split_whitespace().filter(|word| !matches!(*word, "const" | "volatile")).peekable();
    let named = match words.peek().copied()? {
        "u8" | "s8" | "__u8" | "__s8" | "uint8_t" | "int8_t" | "bool" => Some(1),
        "u16" | "s16" | "__u16" | "__s16" | "uint16_t" | "int16_t" | "__be16" | "__le16" => Some(2),
        "u32" | "s32" | "__u32" | "__s32" | "uint32_t" | "int32_t" | "__be32" | "__le32" | "uint"
        | "pid_t" | "dev_t" => Some(4),
        "u64" | "s64" | "__u64" | "__s64" | "uint64_t" | "int64_t" | "__be64" | "__le64" | "size_t"
        | "dma_addr_t" | "loff_t" | "phys_addr_t" => Some(8),
        _ => None,
    };
    if named.is_some() {
        return named;
    }
    let mut size = None;
    for word in words {
        match word {
            "char" => size = Some(1),
            "short" => size = Some(2),
            "long" => size = Some(8),
            // Of `long int`, `short int` and `unsigned int` the first word decides; `unsigned` alone is an
            // int.
            "int" | "unsigned" | "signed" => size = size.or(Some(4)),
            _ => return None,
        }
    }
    size
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(text: &str) -> Field {
        Field::parse(text).unwrap()
    }

    fn format(fields: &[&str]) -> Format {
        let common = [
            "unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;",
            "unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;",
            "unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;",
            "int common_pid;\toffset:4;\tsize:4;\tsigned:1;",
        ];
        Format {
            name: "test".to_owned(),
            id: 1,
            common: common.map(field).to_vec(),
            fields: fields.iter().copied().map(field).collect(),
            print_fmt: String::new(),
        }
    }

    #[test]
    fn alignment_of_members() {
        for (text, align) in [
            ("char comm[16];\toffset:8;\tsize:16;\tsigned:0;", 1),
            ("char comm[TASK_COMM_LEN];\toffset:8;\tsize:16;\tsigned:0;", 1),
            ("u8 addr[6];\toffset:8;\tsize:6;\tsigned:0;", 1),
            ("unsigned char addr[6];\toffset:8;\tsize:6;\tsigned:0;", 1),
            ("unsigned long args[6];\toffset:16;\tsize:48;\tsigned:0;", 8),
            ("unsigned int xs[10];\toffset:8;\tsize:40;\tsigned:0;", 4),
            ("unsigned short sport;\toffset:10;\tsize:2;\tsigned:0;", 2),
            ("const char * name;\toffset:8;\tsize:8;\tsigned:0;", 8),
            ("void *ptrs[2];\toffset:8;\tsize:16;\tsigned:0;", 8),
            ("umode_t mode;\toffset:40;\tsize:8;\tsigned:0;", 8),
            ("__data_loc char[] name;\toffset:12;\tsize:4;\tsigned:0;", 4),
            ("__rel_loc u8[] name;\toffset:12;\tsize:4;\tsigned:0;", 4),
            ("u32 buf[];\toffset:24;\tsize:0;\tsigned:0;", 4),
            ("unsigned long args[];\toffset:24;\tsize:0;\tsigned:0;", 8),
            ("struct in6_addr a;\toffset:20;\tsize:16;\tsigned:0;", 4),
            ("struct pair ps[3];\toffset:24;\tsize:36;\tsigned:0;", 4),
            ("char c;\toffset:7;\tsize:1;\tsigned:0;", 1),
        ] {
            assert_eq!(field(text).align(), align, "{text}");
        }
    }

    #[test]
    fn element_sizes() {
        for (text, size) in [
            ("__data_loc char[] name;\toffset:12;\tsize:4;\tsigned:0;", Some(1)),
            ("__data_loc unsigned long[] xs;\toffset:12;\tsize:4;\tsigned:0;", Some(8)),
            ("__data_loc unsigned[] xs;\toffset:12;\tsize:4;\tsigned:0;", Some(4)),
            ("__data_loc cpumask_t cpus;\toffset:12;\tsize:4;\tsigned:0;", None),
            ("const __u8 *const xs[2];\toffset:16;\tsize:16;\tsigned:0;", Some(8)),
            ("gfp_t flags;\toffset:16;\tsize:4;\tsigned:0;", Some(4)),
            ("short int xs[2];\toffset:16;\tsize:4;\tsigned:0;", Some(2)),
            ("unsigned long long int xs[2];\toffset:16;\tsize:16;\tsigned:0;", Some(8)),
        ] {
            assert_eq!(field(text).element_size(), size, "{text}");
        }
    }

    #[test]
    fn size_is_that_of_the_struct() {
        let layout = format(&[
            "unsigned long ptr;\toffset:8;\tsize:8;\tsigned:0;",
            "__data_loc char[] name;\toffset:16;\tsize:4;\tsigned:0;",
            "bool on;\toffset:20;\tsize:1;\tsigned:0;",
        ])
        .record_layout();
        let dynamic = vec![DynamicField { offset: 16, location: Location::DataLoc }];
        assert_eq!(layout, RecordLayout { fields_end: 21, align: 8, size: 24, dynamic });
        // Only ints and chars: the struct ends at a multiple of 4.
        let layout = format(&[
            "char comm[16];\toffset:8;\tsize:16;\tsigned:0;",
            "int pid;\toffset:24;\tsize:4;\tsigned:1;",
        ]);
        let expected = RecordLayout { fields_end: 28, align: 4, size: 28, dynamic: Vec::new() };
        assert_eq!(layout.record_layout(), expected);
        // An array of strings has a word for each.
        let layout = format(&["__data_loc char[][2] g;\toffset:8;\tsize:8;\tsigned:1;"]).record_layout();
        let offsets: Vec<u32> = layout.dynamic.iter().map(|field| field.offset).collect();
        assert_eq!((layout.size, offsets), (16, vec![8, 12]));
        // An array of open length adds alignment but no size.
        let layout = format(&[
            "unsigned int n;\toffset:8;\tsize:4;\tsigned:0;",
            "unsigned long xs[];\toffset:16;\tsize:0;\tsigned:0;",
        ]);
        assert_eq!(layout.record_layout().size, 16);
    }
}
