//! Types as people read and write them: declarations in C, members, functions with their arguments.

use std::fmt::Write as _;

use super::{Btf, BtfError, Head, MAX_DEPTH, TypeId, kind};

/// How many structures inside one are looked into for names of members.
const STRUCTURES_MAX: usize = 256;

/// A function of the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Function<'a> {
    /// Its number, which programs at its entry or exit are loaded for.
    pub id: TypeId,
    /// Its name. Static functions of different files may share one.
    pub name: &'a str,
}

/// An argument of a function, or a member of a structure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Named<'a> {
    /// Its name; empty for the members of anonymous structures.
    pub name: &'a str,
    /// Its type.
    pub type_id: TypeId,
}

/// A member as it is declared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Declared<'a> {
    /// Its name and type.
    pub member: Named<'a>,
    /// Where it is, in bits from the structure's start.
    pub bit_offset: u32,
    /// Bits that it has, if it is a bit field; otherwise 0.
    pub bit_size: u32,
}

/// What a function takes and gives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prototype<'a> {
    /// Its arguments.
    pub arguments: Vec<Named<'a>>,
    /// Whether more may follow, of any type.
    pub is_variadic: bool,
    /// What it gives; number 0 is nothing.
    pub returns: TypeId,
}

/// What an integer is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    /// A number.
    Number,
    /// A character.
    Char,
    /// `bool`.
    Bool,
}

impl Btf {
    /// All functions that programs can be attached to by type.
    pub fn functions(&self) -> impl Iterator<Item = Function<'_>> {
        self.of_kind(|kind| kind == kind::FUNC).map(|(id, name)| Function { id, name })
    }

    /// All structures, unions and enumerations that have a name.
    pub fn structures(&self) -> impl Iterator<Item = (TypeId, &str)> {
        self.of_kind(|kind| matches!(kind, kind::STRUCT | kind::UNION | kind::ENUM | kind::ENUM64))
            .filter(|(_, name)| !name.is_empty())
    }

    fn of_kind(&self, wanted: impl Fn(u32) -> bool) -> impl Iterator<Item = (TypeId, &str)> {
        (1..=self.type_count() as u32).map(TypeId).filter_map(move |id| {
            let head = self.head(id).ok().filter(|head| wanted(head.kind))?;
            Some((id, std::str::from_utf8(self.string(head.name)).ok()?))
        })
    }

    /// What a function takes and gives.
    pub fn prototype(&self, function: TypeId) -> Result<Prototype<'_>, BtfError> {
        let head = self.head(function)?;
        if head.kind != kind::FUNC {
            return Err(self.malformed(head, "something that is no function is asked for its arguments"));
        }
        let proto = self.head(TypeId(head.size_or_type))?;
        if proto.kind != kind::FUNC_PROTO {
            return Err(self.malformed(head, "a function has no prototype"));
        }
        let mut arguments = Vec::new();
        for index in 0..proto.vlen {
            let at = proto.body + index * 8;
            arguments.push(Named { name: self.text(self.word(at)?)?, type_id: TypeId(self.word(at + 4)?) });
        }
        // The last argument of a variadic function has neither name nor type.
        let is_variadic = arguments.last().is_some_and(|last| last.type_id.0 == 0);
        if is_variadic {
            arguments.pop();
        }
        Ok(Prototype { arguments, is_variadic, returns: TypeId(proto.size_or_type) })
    }

    /// The members of a structure or union, those of anonymous ones inside it not among them; nothing for
    /// other types.
    pub fn members(&self, type_id: TypeId) -> Result<Vec<Declared<'_>>, BtfError> {
        let (_, Some(head)) = self.resolve(type_id)? else { return Ok(Vec::new()) };
        if !matches!(head.kind, kind::STRUCT | kind::UNION) {
            return Ok(Vec::new());
        }
        let mut members = Vec::with_capacity(head.vlen);
        for index in 0..head.vlen {
            let at = head.body + index * 12;
            let offset = self.word(at + 8)?;
            let (bit_offset, bit_size) =
                if head.kind_flag { (offset & 0x00ff_ffff, offset >> 24) } else { (offset, 0) };
            let member = Named { name: self.text(self.word(at)?)?, type_id: TypeId(self.word(at + 4)?) };
            members.push(Declared { member, bit_offset, bit_size });
        }
        Ok(members)
    }

    /// The names that can follow `.` or `->`: members, and those of anonymous structures and unions inside.
    pub fn member_names(&self, type_id: TypeId) -> Result<Vec<&str>, BtfError> {
        let mut names = Vec::new();
        let mut rest = vec![type_id];
        // In a damaged blob, structures may be inside one another.
        for _ in 0..STRUCTURES_MAX {
            let Some(type_id) = rest.pop() else { break };
            for Declared { member, .. } in self.members(type_id)? {
                if member.name.is_empty() {
                    rest.push(member.type_id);
                } else {
                    names.push(member.name);
                }
            }
        }
        Ok(names)
    }

    /// The names of an enumeration's values; nothing for other types.
    pub fn enumerators(&self, type_id: TypeId) -> Result<Vec<(&str, i64)>, BtfError> {
        let (_, Some(head)) = self.resolve(type_id)? else { return Ok(Vec::new()) };
        // The kind flag says that the values are signed; older compilers never set it, and use it as if.
        self.values(&head, true)
    }

    /// The names of the values of all enumerations. One that stands for different values in different ones is
    /// there more than once.
    pub fn constants(&self) -> Vec<(&str, i64)> {
        let is_enum = |head: &Head| matches!(head.kind, kind::ENUM | kind::ENUM64);
        let heads =
            || (1..=self.type_count() as u32).filter_map(|id| self.head(TypeId(id)).ok()).filter(is_enum);
        // pahole stores signs from 1.24 on; without them, small negative numbers are likelier than the
        // highest bit.
        let tells_signs = heads().any(|head| head.kind_flag);
        let values = |head: Head| self.values(&head, head.kind_flag || !tells_signs).unwrap_or_default();
        heads().flat_map(values).collect()
    }

    /// The values of the enumeration whose description begins with `head`, those of 4 bytes with a sign or
    /// without; nothing for other types.
    fn values(&self, head: &Head, signed: bool) -> Result<Vec<(&str, i64)>, BtfError> {
        let mut found = Vec::new();
        for index in 0..head.vlen {
            let (name, value) = match head.kind {
                kind::ENUM => {
                    let at = head.body + index * 8;
                    let value = self.word(at + 4)?;
                    (self.word(at)?, if signed { value.cast_signed().into() } else { value.into() })
                }
                kind::ENUM64 => {
                    let at = head.body + index * 12;
                    let value = u64::from(self.word(at + 8)?) << 32 | u64::from(self.word(at + 4)?);
                    (self.word(at)?, value.cast_signed())
                }
                _ => return Ok(found),
            };
            found.push((self.text(name)?, value));
        }
        Ok(found)
    }

    /// What an integer is for; a number if it is no integer.
    pub fn encoding(&self, type_id: TypeId) -> Result<Encoding, BtfError> {
        let (_, Some(head)) = self.resolve(type_id)? else { return Ok(Encoding::Number) };
        if head.kind != kind::INT {
            return Ok(Encoding::Number);
        }
        // BTF_INT_CHAR and BTF_INT_BOOL. Compilers mark `char` only with its name.
        let encoding = self.word(head.body)?;
        Ok(match () {
            () if encoding & 1 << 26 != 0 => Encoding::Bool,
            () if encoding & 1 << 25 != 0 || self.string(head.name) == b"char" => Encoding::Char,
            () => Encoding::Number,
        })
    }

    /// The declaration of a thing of this type in C: `const char *name`, `void (*done)(struct bio *)`.
    /// Without a name, the type alone.
    pub fn declaration(&self, type_id: TypeId, name: &str) -> Result<String, BtfError> {
        self.declare(type_id, name.to_owned(), 0)
    }

    /// `inner` is what stands where the name goes.
    fn declare(&self, type_id: TypeId, inner: String, depth: usize) -> Result<String, BtfError> {
        if depth > MAX_DEPTH {
            return Err(BtfError::Malformed { at: 0, what: "types are nested too deep" });
        }
        let with = |base: String| {
            let blank = if inner.is_empty() || inner.starts_with('[') { "" } else { " " };
            format!("{base}{blank}{inner}")
        };
        if type_id.0 == 0 {
            return Ok(with("void".to_owned()));
        }
        let head = self.head(type_id)?;
        let next = TypeId(head.size_or_type);
        let tagged = |word: &str| -> Result<String, BtfError> {
            let name = self.text(head.name)?;
            Ok(with(if name.is_empty() { format!("{word} {{...}}") } else { format!("{word} {name}") }))
        };
        match head.kind {
            kind::PTR => {
                let outer = self.skip_tags(next)?;
                let binds = outer.is_some_and(|head| matches!(head.kind, kind::ARRAY | kind::FUNC_PROTO));
                self.declare(next, if binds { format!("(*{inner})") } else { format!("*{inner}") }, depth + 1)
            }
            kind::ARRAY => {
                let (element, len) = (TypeId(self.word(head.body)?), self.word(head.body + 8)?);
                self.declare(element, format!("{inner}[{len}]"), depth + 1)
            }
            kind::FUNC_PROTO => {
                let mut arguments = String::new();
                for index in 0..head.vlen {
                    let argument = TypeId(self.word(head.body + index * 8 + 4)?);
                    let comma = if index == 0 { "" } else { ", " };
                    let text = match argument.0 {
                        0 => "...".to_owned(),
                        _ => self.declare(argument, String::new(), depth + 1)?,
                    };
                    let _ = write!(arguments, "{comma}{text}");
                }
                if arguments.is_empty() {
                    arguments.push_str("void");
                }
                self.declare(next, format!("{inner}({arguments})"), depth + 1)
            }
            kind::CONST | kind::VOLATILE | kind::RESTRICT => {
                let word = match head.kind {
                    kind::CONST => "const",
                    kind::VOLATILE => "volatile",
                    _ => "restrict",
                };
                // Behind the star of a pointer, before anything else.
                if self.skip_tags(next)?.is_some_and(|head| head.kind == kind::PTR) {
                    let blank = if inner.is_empty() { "" } else { " " };
                    return self.declare(next, format!("{word}{blank}{inner}"), depth + 1);
                }
                Ok(format!("{word} {}", self.declare(next, inner, depth + 1)?))
            }
            kind::TYPE_TAG => self.declare(next, inner, depth + 1),
            kind::STRUCT => tagged("struct"),
            kind::UNION => tagged("union"),
            kind::FWD => tagged(if head.kind_flag { "union" } else { "struct" }),
            kind::ENUM | kind::ENUM64 => tagged("enum"),
            _ => Ok(with(self.text(head.name)?.to_owned())),
        }
    }

    fn skip_tags(&self, type_id: TypeId) -> Result<Option<Head>, BtfError> {
        let mut type_id = type_id;
        for _ in 0..MAX_DEPTH {
            if type_id.0 == 0 {
                return Ok(None);
            }
            let head = self.head(type_id)?;
            if head.kind != kind::TYPE_TAG {
                return Ok(Some(head));
            }
            type_id = TypeId(head.size_or_type);
        }
        Err(BtfError::Malformed { at: 0, what: "tags are nested too deep" })
    }

    fn text(&self, offset: u32) -> Result<&str, BtfError> {
        std::str::from_utf8(self.string(offset))
            .map_err(|_| BtfError::Malformed { at: self.own.strings.start, what: "a name is not text" })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::super::tests::Builder;
    use super::*;

    fn builder() -> (Builder, u32) {
        let mut builder = Builder::new();
        let int = builder.int("int", 4);
        (builder, int)
    }

    #[test]
    fn declarations_are_those_of_c() {
        let (mut builder, int) = builder();
        let constant = builder.add("", kind::CONST, 0, false, int, &[]);
        let pointer = builder.add("", kind::PTR, 0, false, constant, &[]);
        let constant_pointer = builder.add("", kind::CONST, 0, false, pointer, &[]);
        let array = builder.add("", kind::ARRAY, 0, false, 0, &[pointer, int, 4]);
        let to_array = builder.add("", kind::PTR, 0, false, array, &[]);
        let proto = builder.add("", kind::FUNC_PROTO, 3, false, pointer, &[0, int, 0, to_array, 0, 0]);
        let callback = builder.add("", kind::PTR, 0, false, proto, &[]);
        let nothing = builder.add("", kind::FUNC_PROTO, 0, false, 0, &[]);
        let anonymous = builder.fields(kind::UNION, "", 4, false, &[("x", int, 0)]);
        let blob = Btf::parse(builder.blob()).unwrap();
        let text = |id, name| blob.declaration(TypeId(id), name).unwrap();
        assert_eq!(text(int, "x"), "int x");
        assert_eq!(text(int, ""), "int");
        assert_eq!(text(pointer, "x"), "const int *x");
        assert_eq!(text(constant_pointer, "x"), "const int *const x");
        assert_eq!(text(constant_pointer, ""), "const int *const");
        assert_eq!(text(array, "x"), "const int *x[4]");
        assert_eq!(text(to_array, "x"), "const int *(*x)[4]");
        assert_eq!(text(callback, "x"), "const int *(*x)(int, const int *(*)[4], ...)");
        assert_eq!(text(nothing, "x"), "void x(void)");
        assert_eq!(text(anonymous, "x"), "union {...} x");
        assert_eq!(text(0, ""), "void");
    }

    #[test]
    fn functions_have_their_arguments() {
        let (mut builder, int) = builder();
        let (a, b) = (builder.name("first"), builder.name("second"));
        let proto = builder.add("", kind::FUNC_PROTO, 3, false, int, &[a, int, b, int, 0, 0]);
        let function = builder.add("work", kind::FUNC, 0, false, proto, &[]);
        let blob = Btf::parse(builder.blob()).unwrap();
        assert_eq!(blob.functions().collect::<Vec<_>>(), [Function { id: TypeId(function), name: "work" }]);
        let prototype = blob.prototype(TypeId(function)).unwrap();
        let names: Vec<&str> = prototype.arguments.iter().map(|argument| argument.name).collect();
        assert_eq!((names.as_slice(), prototype.is_variadic), (["first", "second"].as_slice(), true));
        assert_eq!(prototype.returns, TypeId(int));
        assert!(blob.prototype(TypeId(int)).is_err());
    }

    #[test]
    fn members_and_values_have_names() {
        let (mut builder, int) = builder();
        let inner = builder.fields(kind::UNION, "", 4, false, &[("deep", int, 0)]);
        let outer =
            builder.fields(kind::STRUCT, "outer", 8, true, &[("bits", int, 3 << 24 | 5), ("", inner, 32)]);
        let (one, two) = (builder.name("ONE"), builder.name("TWO"));
        let values = builder.add("number", kind::ENUM, 2, false, 4, &[one, 1, two, u32::MAX]);
        let wide = builder.add("wide", kind::ENUM64, 1, false, 8, &[one, 2, 3]);
        let blob = Btf::parse(builder.blob()).unwrap();
        let members = blob.members(TypeId(outer)).unwrap();
        assert_eq!((members[0].member.name, members[0].bit_offset, members[0].bit_size), ("bits", 5, 3));
        assert_eq!(blob.member_names(TypeId(outer)).unwrap(), ["bits", "deep"]);
        assert_eq!(blob.enumerators(TypeId(values)).unwrap(), [("ONE", 1), ("TWO", -1)]);
        assert_eq!(blob.enumerators(TypeId(wide)).unwrap(), [("ONE", 3 << 32 | 2)]);
        assert_eq!(blob.enumerators(TypeId(int)).unwrap(), []);
        assert_eq!(blob.constants(), [("ONE", 1), ("TWO", -1), ("ONE", 3 << 32 | 2)]);
        let names: Vec<&str> = blob.structures().map(|(_, name)| name).collect();
        assert_eq!(names, ["outer", "number", "wide"]);
        let three = builder.name("THREE");
        builder.add("signed", kind::ENUM, 1, true, 4, &[three, u32::MAX]);
        let blob = Btf::parse(builder.blob()).unwrap();
        assert_eq!(
            blob.constants(),
            [("ONE", 1), ("TWO", i64::from(u32::MAX)), ("ONE", 3 << 32 | 2), ("THREE", -1)]
        );
    }

    #[test]
    fn circles_end() {
        let mut builder = Builder::new();
        builder.add("", kind::PTR, 0, false, 1, &[]);
        builder.fields(kind::STRUCT, "s", 0, false, &[("", 2, 0), ("", 2, 0)]);
        builder.add("", kind::TYPE_TAG, 0, false, 3, &[]);
        let blob = Btf::parse(builder.blob()).unwrap();
        assert!(blob.declaration(TypeId(1), "x").is_err());
        assert!(blob.declaration(TypeId(3), "x").is_err());
        assert!(blob.member_names(TypeId(2)).is_ok());
    }
}
