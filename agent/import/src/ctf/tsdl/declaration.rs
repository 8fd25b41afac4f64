//! Types and fields (CTF 1.8.2, appendix C.2).

use std::collections::HashSet;
use std::sync::Arc;

use super::attributes;
use super::error::Problem;
use super::lexer::{Token, shortened};
use super::scopes::Scopes;
use super::words::{Word, Words, Wrong};
use crate::ctf::roles::Roles;
use crate::ctf::types::{
    Array, DEPTH_MAX, Enumeration, Field, FieldPath, Integer, Label, Options, Scope, Sequence, Start, Struct,
    Type, Variant,
};

/// Words that types of C are made of.
const C_WORDS: &[&str] = &[
    "_Bool",
    "_Complex",
    "_Imaginary",
    "char",
    "const",
    "double",
    "float",
    "int",
    "long",
    "short",
    "signed",
    "unsigned",
    "void",
    "volatile",
];

/// Words that descriptions of types begin with.
const DESCRIBED: &[&str] = &["enum", "floating_point", "integer", "string", "struct", "variant"];

/// A text and the names that it has declared.
#[derive(Debug)]
pub(super) struct Parser<'t> {
    pub(super) words: Words<'t>,
    scopes: Scopes,
    /// How many types the text is within.
    depth: u32,
}

/// The name of a field and what is in brackets after it, or of a type.
struct Declarator {
    /// Stars before the name, as names of types have them.
    stars: String,
    name: String,
    at: usize,
    brackets: Vec<Length>,
}

enum Length {
    Fixed(u64),
    Field(FieldPath),
}

impl<'t> Parser<'t> {
    pub(super) fn new(text: &'t str) -> Result<Self, Wrong> {
        Ok(Self { words: Words::new(text)?, scopes: Scopes::default(), depth: 0 })
    }

    /// Reads what has names of its own.
    pub(super) fn scoped<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T, Wrong>) -> Result<T, Wrong> {
        if self.depth == DEPTH_MAX {
            return Err(self.words.wrong(Problem::Deep(DEPTH_MAX)));
        }
        self.depth += 1;
        self.scopes.enter();
        let read = read(self);
        self.scopes.leave();
        self.depth -= 1;
        read
    }

    /// Reads a declaration that declares no field, if there is one: `typealias`, `typedef`, or a named type
    /// without anything after it. Gives whether there was one.
    pub(super) fn declares(&mut self) -> Result<bool, Wrong> {
        if self.words.take_word("typealias")? {
            self.typealias()?;
        } else if self.words.take_word("typedef")? {
            self.typedef()?;
        } else if self.is_named_type() {
            self.specifiers()?;
            self.words.sign(";")?;
        } else {
            return Ok(false);
        }
        Ok(true)
    }

    /// Whether a structure, variant or enumeration with a name is next, as is declared at the top of a text.
    fn is_named_type(&self) -> bool {
        ["struct", "variant", "enum"].into_iter().any(|word| self.words.is_word(word))
    }

    fn typealias(&mut self) -> Result<(), Wrong> {
        let (ty, of) = self.aliased_type()?;
        self.words.sign(":=")?;
        let at = self.words.at();
        let name = self.type_name()?;
        self.words.sign(";")?;
        let ty = ty.ok_or((Problem::UnknownType(shortened(&of)), at))?;
        self.scopes.declare_alias(name, ty).map_err(|problem| (problem, at))
    }

    /// The type that gets another name: described, or known by a name, which may have stars.
    fn aliased_type(&mut self) -> Result<(Option<Type>, String), Wrong> {
        if self.is_described() {
            let ty = self.specifiers()?;
            return Ok((Some(ty), String::new()));
        }
        let name = self.type_name()?;
        Ok((self.scopes.alias(&name), name))
    }

    fn typedef(&mut self) -> Result<(), Wrong> {
        let base = self.base()?;
        loop {
            let declarator = self.declarator(true)?;
            let at = declarator.at;
            let name = declarator.name.clone();
            let ty = self.declared(&base, declarator)?;
            self.scopes.declare_alias(name, ty).map_err(|problem| (problem, at))?;
            if !self.words.take_sign(",")? {
                return self.words.sign(";");
            }
        }
    }

    fn is_described(&self) -> bool {
        match self.words.peek() {
            Token::Word(word) => DESCRIBED.contains(&word.as_str()),
            _ => false,
        }
    }

    /// The name of a type of C: words, then stars.
    fn type_name(&mut self) -> Result<String, Wrong> {
        let mut name = self.words_of_type()?;
        while self.words.take_sign("*")? {
            name += " *";
            while self.words.take_word("const")? {}
        }
        Ok(name)
    }

    fn words_of_type(&mut self) -> Result<String, Wrong> {
        let mut names: Vec<String> = Vec::new();
        loop {
            let is_c = matches!(self.words.peek(), Token::Word(word) if C_WORDS.contains(&word.as_str()));
            if !is_c && !names.iter().all(|name| is_qualifier(name)) {
                break;
            }
            names.push(self.words.name("a type")?);
            if !is_c {
                break;
            }
        }
        names.retain(|name| !is_qualifier(name));
        Ok(names.join(" "))
    }

    /// What fields are declared with: a type, or the name of one that stars may change.
    fn base(&mut self) -> Result<Base, Wrong> {
        if self.is_described() {
            return Ok(Base::Type(self.specifiers()?));
        }
        let at = self.words.at();
        Ok(Base::Named(self.words_of_type()?, at))
    }

    fn declarator(&mut self, of_type: bool) -> Result<Declarator, Wrong> {
        let mut stars = String::new();
        while self.words.take_sign("*")? {
            stars += " *";
        }
        let at = self.words.at();
        let name = self.words.name(if of_type { "the name of a type" } else { "the name of a field" })?;
        let mut brackets = Vec::new();
        while self.words.take_sign("[")? {
            if brackets.len() as u32 >= DEPTH_MAX {
                return Err(self.words.wrong(Problem::Deep(DEPTH_MAX)));
            }
            brackets.push(match self.words.peek() {
                Token::Number(count) => {
                    let count = *count;
                    self.words.take()?;
                    Length::Fixed(count)
                }
                _ => Length::Field(path(&self.words.dotted("a length")?)),
            });
            self.words.sign("]")?;
        }
        Ok(Declarator { stars, name, at, brackets })
    }

    /// The type of what is declared.
    fn declared(&self, base: &Base, declarator: Declarator) -> Result<Type, Wrong> {
        let Declarator { stars, brackets, at, .. } = declarator;
        let mut ty = match base {
            Base::Type(ty) if stars.is_empty() => ty.clone(),
            Base::Type(_) => return Err((Problem::UnknownType("of a pointer".to_owned()), at)),
            Base::Named(name, at) => {
                let name = format!("{name}{stars}");
                self.scopes.alias(&name).ok_or_else(|| (Problem::UnknownType(shortened(&name)), *at))?
            }
        };
        // As in C, what stands last is innermost.
        for length in brackets.into_iter().rev() {
            ty = match length {
                Length::Fixed(count) => Type::Array(Arc::new(Array { element: ty, count, align: 1 })),
                Length::Field(length) => Type::Sequence(Arc::new(Sequence { element: ty, length, align: 1 })),
            };
        }
        if ty.depth() > DEPTH_MAX {
            return Err((Problem::Deep(DEPTH_MAX), at));
        }
        Ok(ty)
    }

    /// A type without a name of its own after it.
    pub(super) fn specifiers(&mut self) -> Result<Type, Wrong> {
        let at = self.words.at();
        let ty = if self.words.take_word("integer")? {
            Type::Integer(Arc::new(attributes::integer(&mut self.words)?))
        } else if self.words.take_word("floating_point")? {
            Type::Float(attributes::float(&mut self.words)?)
        } else if self.words.take_word("string")? {
            if matches!(self.words.peek(), Token::Sign("{")) {
                attributes::string(&mut self.words)?;
            }
            Type::String
        } else if self.words.take_word("struct")? {
            Type::Struct(self.structure()?)
        } else if self.words.take_word("variant")? {
            self.variant()?
        } else if self.words.take_word("enum")? {
            Type::Enum(self.enumeration()?)
        } else {
            let name = self.type_name()?;
            self.scopes.alias(&name).ok_or_else(|| (Problem::UnknownType(shortened(&name)), at))?
        };
        if ty.depth() > DEPTH_MAX {
            return Err((Problem::Deep(DEPTH_MAX), at));
        }
        Ok(ty)
    }

    /// The name that is next, of a type that is described after it, or was before.
    fn tag(&mut self) -> Result<Option<String>, Wrong> {
        match self.words.peek() {
            Token::Word(_) => Ok(Some(self.words.name("a name")?)),
            _ => Ok(None),
        }
    }

    fn is_body(&self) -> bool {
        matches!(self.words.peek(), Token::Sign("{"))
    }

    /// A structure, after its word.
    fn structure(&mut self) -> Result<Arc<Struct>, Wrong> {
        let at = self.words.at();
        let name = self.tag()?;
        if let Some(name) = name.as_ref().filter(|_| !self.is_body()) {
            let known = self.scopes.structure(name);
            let known =
                known.ok_or_else(|| (Problem::UnknownType(format!("struct {}", shortened(name))), at))?;
            return self.aligned(known);
        }
        let fields = self.scoped(Self::fields)?;
        let align = self.align()?;
        let structure = Arc::new(Struct::new(fields, align.unwrap_or(1)));
        if let Some(name) = name {
            self.scopes.declare_structure(name, structure.clone()).map_err(|problem| (problem, at))?;
        }
        Ok(structure)
    }

    /// A known structure, which may ask for another alignment.
    fn aligned(&mut self, known: Arc<Struct>) -> Result<Arc<Struct>, Wrong> {
        let align = self.align()?.unwrap_or(1);
        if align <= known.align {
            return Ok(known);
        }
        Ok(Arc::new(Struct::new(known.fields.clone(), align)))
    }

    /// `align(BITS)`
    fn align(&mut self) -> Result<Option<u64>, Wrong> {
        if !self.words.take_word("align")? {
            return Ok(None);
        }
        self.words.sign("(")?;
        let at = self.words.at();
        let number = self.words.number("an alignment")?;
        self.words.sign(")")?;
        attributes::alignment(&Word::Number(number)).map(Some).map_err(|problem| (problem, at))
    }

    /// `{ ... }` of a structure or a variant.
    fn fields(&mut self) -> Result<Vec<Field>, Wrong> {
        let mut fields = Vec::new();
        let mut names = HashSet::new();
        self.words.sign("{")?;
        while !self.words.take_sign("}")? {
            if self.words.take_word("typealias")? {
                self.typealias()?;
                continue;
            }
            if self.words.take_word("typedef")? {
                self.typedef()?;
                continue;
            }
            let may_be_nameless = self.is_named_type();
            let base = self.base()?;
            if may_be_nameless && self.words.take_sign(";")? {
                // A type that is only declared.
                continue;
            }
            loop {
                let declarator = self.declarator(false)?;
                let (name, at) = (Arc::<str>::from(declarator.name.as_str()), declarator.at);
                if !names.insert(name.clone()) {
                    return Err((Problem::Twice(format!("field {}", shortened(&name))), at));
                }
                let ty = self.declared(&base, declarator)?;
                if matches!(&ty, Type::Variant(variant) if variant.tag.names.is_empty()) {
                    return Err((Problem::Missing { of: "variant", name: "tag" }, at));
                }
                fields.push(Field { name, is_escaped: true, ty, roles: Roles::default() });
                if !self.words.take_sign(",")? {
                    break;
                }
            }
            self.words.sign(";")?;
        }
        Ok(fields)
    }

    /// A variant, after its word.
    fn variant(&mut self) -> Result<Type, Wrong> {
        let at = self.words.at();
        let name = self.tag()?;
        let mut tag = None;
        if self.words.take_sign("<")? {
            tag = Some(path(&self.words.dotted("the name of a tag")?));
            self.words.sign(">")?;
        }
        let options = if self.is_body() {
            let options = Arc::new(Options::new(self.scoped(Self::fields)?));
            if let Some(name) = name {
                self.scopes.declare_options(name, options.clone()).map_err(|problem| (problem, at))?;
            }
            options
        } else {
            let name = name.unwrap_or_default();
            self.scopes
                .options(&name)
                .ok_or_else(|| (Problem::UnknownType(format!("variant {}", shortened(&name))), at))?
        };
        // One without a tag is only declared: it gets one where it is used.
        let tag = tag.unwrap_or(FieldPath { start: Start::Outwards, names: Vec::new() });
        Ok(Type::Variant(Variant { tag, options }))
    }

    /// An enumeration, after its word.
    fn enumeration(&mut self) -> Result<Arc<Enumeration>, Wrong> {
        let at = self.words.at();
        let name = self.tag()?;
        let mut of = None;
        if self.words.take_sign(":")? {
            let at = self.words.at();
            let ty = self.scoped(Self::specifiers)?;
            of = Some(container(&ty).ok_or((not_an_integer(), at))?);
        }
        if !self.is_body() {
            let name = name.unwrap_or_default();
            let known = self.scopes.enumeration(&name);
            return known.ok_or_else(|| (Problem::UnknownType(format!("enum {}", shortened(&name))), at));
        }
        let of = if let Some(of) = of {
            of
        } else {
            // Section 4.1.8: an enumeration is an `int` unless it says what it is.
            let int = self.scopes.alias("int").ok_or_else(|| (Problem::UnknownType("int".to_owned()), at))?;
            container(&int).ok_or((not_an_integer(), at))?
        };
        let enumeration = Arc::new(Enumeration { of, labels: self.labels()? });
        if let Some(name) = name {
            self.scopes.declare_enumeration(name, enumeration.clone()).map_err(|problem| (problem, at))?;
        }
        Ok(enumeration)
    }

    /// `{ A, B = 1, C = 2 ... 4, }`
    fn labels(&mut self) -> Result<Vec<Label>, Wrong> {
        let (mut labels, mut next) = (Vec::new(), 0);
        self.words.sign("{")?;
        while !self.words.take_sign("}")? {
            let name: Arc<str> = match self.words.peek() {
                Token::Text(_) => self.words.text("a label")?.into(),
                _ => self.words.name("a label")?.into(),
            };
            let (mut first, mut last) = (next, next);
            if self.words.take_sign("=")? {
                let at = self.words.at();
                first = self.words.number("a value")?;
                last = if self.words.take_sign("...")? { self.words.number("a value")? } else { first };
                if last < first {
                    let value = format!("{first} ... {last}");
                    return Err((Problem::Value { name: "range", value, rule: "the larger one last" }, at));
                }
            }
            next = last + 1;
            labels.push(Label { name, first, last });
            if !self.words.take_sign(",")? {
                self.words.sign("}")?;
                break;
            }
        }
        Ok(labels)
    }
}

/// What fields are declared with.
enum Base {
    Type(Type),
    /// A name, and where it is.
    Named(String, usize),
}

fn is_qualifier(word: &str) -> bool {
    matches!(word, "const" | "volatile")
}

/// The integer that an enumeration is.
fn container(ty: &Type) -> Option<Arc<Integer>> {
    match ty {
        Type::Integer(integer) => Some(integer.clone()),
        _ => None,
    }
}

fn not_an_integer() -> Problem {
    Problem::Value { name: "type of an enumeration", value: "this".to_owned(), rule: "an integer" }
}

/// A path of names with dots between them.
fn path(text: &str) -> FieldPath {
    let in_scope = |scope: Scope| Some((scope, text.strip_prefix(scope.name())?.strip_prefix('.')?));
    let (start, rest) = match Scope::ALL.into_iter().find_map(in_scope) {
        Some((scope, rest)) => (Start::Scope(scope), rest),
        None => (Start::Outwards, text),
    };
    FieldPath { start, names: rest.split('.').map(Arc::from).collect() }
}
