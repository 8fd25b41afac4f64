//! The types of events, their XML, and the checksum by which a facility's description is known.
//!
//! The XML is the document's dialect, as its reader's tokenizer takes it: sizes without quotes, names in
//! quotes.

use std::fmt::Write as _;

/// A type (new-ltt-trace-format, "Event type descriptions").
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Type {
    /// A signed number of 1, 2, 4 or 8 bytes.
    Int(u8),
    /// An unsigned number of 1, 2, 4 or 8 bytes.
    Uint(u8),
    /// An address: an unsigned number that is shown in hex.
    Address(u8),
    /// A floating point number of 4 or 8 bytes.
    Float(u8),
    /// Bytes up to a NUL.
    String,
    /// A number of 1, 2, 4 or 8 bytes with names for some values.
    Enum {
        /// Bytes.
        size: u8,
        /// Names and their values.
        labels: Vec<(String, u64)>,
    },
    /// So many of a type.
    Array {
        /// How many.
        count: usize,
        /// Of what.
        of: Box<Type>,
    },
    /// A number of so many bytes, and that many of a type.
    Sequence {
        /// Bytes of the number.
        length_size: u8,
        /// Of what.
        of: Box<Type>,
    },
    /// One field after the other.
    Struct(Vec<Field>),
    /// A number of so many bytes that selects which of the fields follows.
    Union {
        /// Bytes of the number.
        code_size: u8,
        /// What can follow.
        fields: Vec<Field>,
    },
    /// A type of the facility that has a name.
    Named(String),
}

/// A field of a struct or union.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Its name.
    pub name: String,
    /// Its type.
    pub of: Type,
}

impl Field {
    /// A field.
    pub fn new(name: impl Into<String>, of: Type) -> Self {
        Self { name: name.into(), of }
    }
}

/// An event type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Its name.
    pub name: String,
    /// What it is, in words.
    pub description: String,
    /// A struct, or a name of one; `None` for an event without data.
    pub of: Option<Type>,
}

/// A facility: event types that are numbered together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facility {
    /// Its name.
    pub name: String,
    /// What it is, in words.
    pub description: String,
    /// Its event types; the index of each is its number in the facility.
    pub events: Vec<Event>,
    /// Types with names, all of them structs.
    pub types: Vec<(String, Type)>,
}

impl Facility {
    /// Its description. Literally, as the document has it, labels of enums stand alone and count from 0.
    pub fn xml(&self, literal: bool) -> String {
        let mut xml = Xml { text: String::new(), literal };
        let _ = writeln!(xml.text, "<facility name=\"{}\">", plain(&self.name));
        xml.description(1, &self.description);
        for Event { name, description, of } in &self.events {
            let _ = writeln!(xml.text, "  <event name=\"{}\">", plain(name));
            xml.description(2, description);
            if let Some(of) = of {
                xml.indented(2, of);
            }
            xml.text += "  </event>\n";
        }
        for (name, of) in &self.types {
            let _ = writeln!(xml.text, "  <type name=\"{}\">", plain(name));
            xml.indented(2, of);
            xml.text += "  </type>\n";
        }
        xml.text += "</facility>\n";
        xml.text
    }

    /// CRC-32 over the facility's name, without the final inversion continued over the names of events and
    /// over types and names of fields (generateChecksum and getTypeChecksum of ltt/parser.c).
    pub fn checksum(&self) -> u32 {
        let mut crc = !crc32(u32::MAX, self.name.as_bytes());
        for event in &self.events {
            crc = crc32(crc, event.name.as_bytes());
            if let Some(of) = &event.of {
                crc = self.type_checksum(crc, of);
            }
        }
        crc
    }

    fn type_checksum(&self, crc: u32, of: &Type) -> u32 {
        let number = |unsigned: &str, size: u8| format!("{unsigned}int{}_t", u32::from(size) * 8);
        // Sizes are indices into the reader's table.
        let index = |size: u8| size.trailing_zeros();
        match of {
            Type::Int(size) => crc32(crc, number("", *size).as_bytes()),
            Type::Uint(size) => crc32(crc, number("u", *size).as_bytes()),
            Type::Address(size) => {
                crc32(crc32(crc, number("u", *size).as_bytes()), address_format(*size).as_bytes())
            }
            Type::Float(4) => crc32(crc, b"float"),
            Type::Float(_) => crc32(crc, b"double"),
            Type::String => crc32(crc, b"string"),
            Type::Enum { size, labels } => {
                let crc = crc32(crc, format!("enum {}", number("u", *size)).as_bytes());
                let labels = labels.iter().map(|(name, value)| format!("{}={value}", plain(name)));
                labels.fold(crc, |crc, label| crc32(crc, label.as_bytes()))
            }
            Type::Array { count, of } => {
                self.type_checksum(crc32(crc, format!("array {count}").as_bytes()), of)
            }
            Type::Sequence { length_size, of } => {
                let text = format!("sequence {}", index(*length_size));
                self.type_checksum(crc32(crc, text.as_bytes()), of)
            }
            Type::Struct(fields) => self.fields_checksum(crc32(crc, b"struct"), fields),
            Type::Union { fields, .. } => self.fields_checksum(crc32(crc, b"union"), fields),
            Type::Named(name) => {
                let named = self.types.iter().find(|(other, _)| other == name);
                // A type that contains itself has no values, and is not made here.
                named.map_or(crc, |(_, of)| self.type_checksum(crc, of))
            }
        }
    }

    fn fields_checksum(&self, crc: u32, fields: &[Field]) -> u32 {
        fields.iter().fold(crc, |crc, field| self.type_checksum(crc32(crc, field.name.as_bytes()), &field.of))
    }
}

struct Xml {
    text: String,
    literal: bool,
}

impl Xml {
    fn description(&mut self, depth: usize, text: &str) {
        // The reader has 1024 bytes for it.
        let text: String = plain(text).chars().take(500).collect();
        let _ = writeln!(self.text, "{:1$}<description>{text}</description>", "", depth * 2);
    }

    fn indented(&mut self, depth: usize, of: &Type) {
        let _ = write!(self.text, "{:1$}", "", depth * 2);
        self.add(depth, of);
        self.text.push('\n');
    }

    fn add(&mut self, depth: usize, of: &Type) {
        let text = &mut self.text;
        let _ = match of {
            Type::Int(size) => write!(text, "<int size={size}/>"),
            Type::Uint(size) => write!(text, "<uint size={size}/>"),
            Type::Address(size) => write!(text, "<uint size={size} format=\"{}\"/>", address_format(*size)),
            Type::Float(size) => write!(text, "<float size={size}/>"),
            Type::String => write!(text, "<string/>"),
            Type::Named(name) => write!(text, "<typeref name=\"{}\"/>", plain(name)),
            Type::Enum { size, labels } => {
                let _ = write!(text, "<enum size={size}>");
                for (name, value) in labels {
                    let _ = if self.literal {
                        write!(text, " {}", plain(name))
                    } else {
                        write!(text, "<label name=\"{}\" value={value}/>", plain(name))
                    };
                }
                write!(text, "{}</enum>", if self.literal { " " } else { "" })
            }
            Type::Array { count, of } => {
                let _ = write!(text, "<array size={count}>");
                self.add(depth, of);
                write!(self.text, "</array>")
            }
            Type::Sequence { length_size, of } => {
                let _ = write!(text, "<sequence lengthsize={length_size}>");
                self.add(depth, of);
                write!(self.text, "</sequence>")
            }
            Type::Struct(fields) => {
                text.push_str("<struct>\n");
                self.fields(depth + 1, fields);
                write!(self.text, "{:1$}</struct>", "", depth * 2)
            }
            Type::Union { code_size, fields } => {
                let _ = writeln!(text, "<union typecodesize={code_size}>");
                self.fields(depth + 1, fields);
                write!(self.text, "{:1$}</union>", "", depth * 2)
            }
        };
    }

    fn fields(&mut self, depth: usize, fields: &[Field]) {
        for Field { name, of } in fields {
            let _ = write!(self.text, "{:1$}<field name=\"{2}\">", "", depth * 2, plain(name));
            self.add(depth, of);
            self.text += "</field>\n";
        }
    }
}

fn address_format(size: u8) -> &'static str {
    if size == 8 { "0x%llx" } else { "0x%x" }
}

/// Text without what ends texts or names in the dialect, which knows no escapes.
fn plain(text: &str) -> String {
    text.chars()
        .map(|c| if matches!(c, '<' | '>' | '"' | '\\') || c.is_control() { '_' } else { c })
        .collect()
}

/// CRC-32 (IEEE 802.3, reflected) of more bytes, without the inversions.
fn crc32(crc: u32, bytes: &[u8]) -> u32 {
    bytes.iter().fold(crc, |crc, byte| {
        (0..8).fold(
            crc ^ u32::from(*byte),
            |crc, _| if crc & 1 == 0 { crc >> 1 } else { crc >> 1 ^ 0xedb8_8320 },
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facility() -> Facility {
        let labels = vec![("A".to_owned(), 0), ("B C".to_owned(), 7)];
        let array = |of| Type::Array { count: 3, of: Box::new(of) };
        let fields = vec![
            Field::new("common", Type::Named("header".into())),
            Field::new("i", Type::Int(2)),
            Field::new("f", Type::Float(8)),
            Field::new("e", Type::Enum { size: 1, labels }),
            Field::new("a", array(Type::Address(8))),
            Field::new("s", Type::Sequence { length_size: 4, of: Box::new(array(Type::String)) }),
            Field::new("u", Type::Union { code_size: 1, fields: vec![Field::new("x", Type::Uint(4))] }),
        ];
        let event = |name: &str, of| Event { name: name.into(), description: "<what>".into(), of };
        Facility {
            name: "demo".into(),
            description: String::new(),
            events: vec![event("empty", None), event("full", Some(Type::Struct(fields)))],
            types: vec![("header".into(), Type::Struct(vec![Field::new("pid", Type::Int(4))]))],
        }
    }

    #[test]
    fn every_type_has_its_element() {
        let expected = r#"<facility name="demo">
  <description></description>
  <event name="empty">
    <description>_what_</description>
  </event>
  <event name="full">
    <description>_what_</description>
    <struct>
      <field name="common"><typeref name="header"/></field>
      <field name="i"><int size=2/></field>
      <field name="f"><float size=8/></field>
      <field name="e"><enum size=1><label name="A" value=0/><label name="B C" value=7/></enum></field>
      <field name="a"><array size=3><uint size=8 format="0x%llx"/></array></field>
      <field name="s"><sequence lengthsize=4><array size=3><string/></array></sequence></field>
      <field name="u"><union typecodesize=1>
        <field name="x"><uint size=4/></field>
      </union></field>
    </struct>
  </event>
  <type name="header">
    <struct>
      <field name="pid"><int size=4/></field>
    </struct>
  </type>
</facility>
"#;
        assert_eq!(facility().xml(false), expected);
        assert!(facility().xml(true).contains("<enum size=1> A B C </enum>"));
    }

    #[test]
    fn checksums_are_those_of_the_reader() {
        // The check value of CRC-32.
        let name_only = Facility { name: "123456789".into(), ..Facility::default() };
        assert_eq!(name_only.checksum(), 0xcbf4_3926);
        // Without what has no part in it.
        let mut other = facility();
        other.description = "another".into();
        assert_eq!(other.checksum(), facility().checksum());
        other.events[1].name = "fuller".into();
        assert_ne!(other.checksum(), facility().checksum());
    }
}
