//! From expressions to the fields of an event: of which type each is, and how it is printed.

use super::TypedError;
use crate::fast::language::Expr;
use crate::shape::ShapeField;
use elf::symbols::nearest_names;
use kernel::btf::describe::{Encoding, Named};
use kernel::btf::{Btf, Shape, TypeId};

/// Enumerations with more values than this are printed as numbers: the text of a format is looked at for
/// every record.
const VALUES_MAX: usize = 64;

/// What an expression is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Something that the kernel's types describe.
    Typed(TypeId),
    /// A number that was computed.
    Number,
    /// A text after the record's fixed part.
    Text,
}

/// The names that expressions of a probe may use.
#[derive(Debug)]
pub(super) struct Scope<'a> {
    pub(super) btf: &'a Btf,
    /// The function's arguments, and `$retval`.
    pub(super) names: Vec<Named<'a>>,
    /// The text that expressions are parts of, for the locations of errors.
    pub(super) text: &'a str,
}

impl Scope<'_> {
    /// What an expression is; an error at the first name that is wrong.
    pub(super) fn kind_of(&self, expr: &Expr<'_>) -> Result<Kind, TypedError> {
        match expr {
            Expr::Number(_) => Ok(Kind::Number),
            Expr::Text(text) => Err(self.error_at(text, "a text cannot be recorded".to_owned())),
            Expr::Name(name) => self.named(name).map(Kind::Typed),
            Expr::Member(outer, name, arrow) => self.member(outer, name, *arrow).map(Kind::Typed),
            Expr::Index(outer, index) => self.element(outer, *index).map(Kind::Typed),
            Expr::Not(inner) | Expr::Negate(inner) | Expr::Complement(inner) => {
                self.number(inner)?;
                Ok(Kind::Number)
            }
            Expr::Binary(_, left, right) => {
                self.number(left)?;
                self.number(right)?;
                Ok(Kind::Number)
            }
            Expr::Choice(condition, yes, no) => {
                self.number(condition)?;
                self.number(yes)?;
                self.number(no)?;
                Ok(Kind::Number)
            }
            Expr::Call("string" | "ustring", arguments) => {
                let [pointer] = arguments.as_slice() else {
                    return Err(self.error_at(self.text, "string and ustring take one pointer".to_owned()));
                };
                self.kind_of(pointer)?;
                Ok(Kind::Text)
            }
            Expr::Call(name, _) => {
                Err(self.error_at(name, format!("there is no function {name}; there are string and ustring")))
            }
        }
    }

    fn named(&self, name: &str) -> Result<TypeId, TypedError> {
        if name == "current" {
            return Ok(self.btf.type_named("task_struct")?);
        }
        let found = self.names.iter().find(|known| known.name == name);
        found.map(|known| known.type_id).ok_or_else(|| {
            let known = self.names.iter().map(|known| known.name);
            let nearest = nearest_names(name, known.clone());
            let all = known.collect::<Vec<_>>().join(", ");
            self.error_at(
                name,
                match nearest.first() {
                    Some(nearest) => format!("the function has no argument {name}; did you mean {nearest}?"),
                    None if all.is_empty() => format!("the function has no argument {name}, and no other"),
                    None => format!("the function has no argument {name}; it has {all}"),
                },
            )
        })
    }

    fn member(&self, outer: &Expr<'_>, name: &str, arrow: bool) -> Result<TypeId, TypedError> {
        let owner = match self.kind_of(outer)? {
            // `current` is a pointer to what its name stands for.
            Kind::Typed(type_id) if matches!(outer, Expr::Name("current")) && arrow => type_id,
            Kind::Typed(type_id) => match (self.btf.pointer_target(type_id)?, arrow) {
                (Some(target), true) => target,
                (None, false) => type_id,
                (Some(_), false) => {
                    return Err(self.error_at(name, format!("{name} is behind a pointer: write ->{name}")));
                }
                (None, true) => {
                    return Err(self.error_at(name, format!("{name} is not behind a pointer: write .{name}")));
                }
            },
            _ => return Err(self.error_at(name, format!("{name} is asked of something that has no members"))),
        };
        self.btf.member_of(owner, name).map(|member| member.type_id).map_err(|error| {
            let names = self.btf.member_names(owner).unwrap_or_default();
            let nearest = nearest_names(name, names.iter().copied());
            let of = self.btf.declaration(owner, "").unwrap_or_default();
            let text = match (names.is_empty(), nearest.first()) {
                (true, _) => format!("{of} has no members"),
                (false, Some(nearest)) if !names.contains(&name) => {
                    format!("{of} has no member {name}; did you mean {nearest}?")
                }
                (false, None) if !names.contains(&name) => {
                    format!("{of} has no member {name}; see: tracer-agent list --types '{of}'")
                }
                _ => error.to_string(),
            };
            self.error_at(name, text)
        })
    }

    fn element(&self, outer: &Expr<'_>, index: u32) -> Result<TypeId, TypedError> {
        let Kind::Typed(type_id) = self.kind_of(outer)? else {
            return Err(
                self.error_at(self.text, "an index is asked of something that is no array".to_owned())
            );
        };
        match self.btf.shape(type_id)? {
            Shape::Array { element, len } if index < len => Ok(element),
            Shape::Array { len, .. } => {
                Err(self.error_at(self.text, format!("the index {index} is outside of an array of {len}")))
            }
            _ => Err(self.error_at(self.text, "an index is asked of something that is no array".to_owned())),
        }
    }

    fn number(&self, expr: &Expr<'_>) -> Result<(), TypedError> {
        let text = match self.kind_of(expr)? {
            Kind::Number => return Ok(()),
            Kind::Typed(type_id) => match self.btf.shape(type_id)? {
                Shape::Int { .. } | Shape::Enum | Shape::Pointer => return Ok(()),
                _ => format!("{} is no number", self.btf.declaration(type_id, "")?),
            },
            Kind::Text => "a text is no number".to_owned(),
        };
        Err(self.error_at(self.text, text))
    }

    fn error_at(&self, token: &str, what: String) -> TypedError {
        // Tokens are parts of the text.
        let at = (token.as_ptr() as usize).saturating_sub(self.text.as_ptr() as usize);
        TypedError::Expression { text: self.text.to_owned(), at, what }
    }

    /// The field of an expression, and its part of the `print fmt`: what stands in the text, and the
    /// argument.
    pub(super) fn field(&self, name: &str, kind: Kind, at: u32) -> Result<(ShapeField, Printed), TypedError> {
        let rec = format!("REC->{name}");
        let plain = |declaration: &str, size: u32, signed, format: &str| {
            let offset = at.next_multiple_of(size);
            (
                ShapeField { declaration: format!("{declaration} {name}"), offset, size, signed },
                Printed { format: format.to_owned(), argument: rec.clone() },
            )
        };
        let type_id = match kind {
            Kind::Number => return Ok(plain("s64", 8, true, "%lld")),
            Kind::Text => {
                let (mut field, mut printed) = plain("__data_loc char[]", 4, true, "\\\"%s\\\"");
                field.declaration = format!("__data_loc char[] {name}");
                printed.argument = format!("__get_str({name})");
                return Ok((field, printed));
            }
            Kind::Typed(type_id) => type_id,
        };
        Ok(match self.btf.shape(type_id)? {
            Shape::Int { size, signed } => match (self.btf.encoding(type_id)?, size, signed) {
                (Encoding::Bool, 1, _) => plain("bool", 1, false, "%d"),
                (_, 1, true) => plain("s8", 1, true, "%d"),
                (_, 2, true) => plain("s16", 2, true, "%d"),
                (_, 4, true) => plain("s32", 4, true, "%d"),
                (_, 8, true) => plain("s64", 8, true, "%lld"),
                (_, 1, false) => plain("u8", 1, false, "%u"),
                (_, 2, false) => plain("u16", 2, false, "%u"),
                (_, 4, false) => plain("u32", 4, false, "%u"),
                (_, 8, false) => plain("u64", 8, false, "%llu"),
                _ => return Err(self.not_printable(type_id)?),
            },
            Shape::Pointer => plain("u64", 8, false, "0x%llx"),
            Shape::Enum => {
                let (field, mut printed) = match self.btf.size_of(type_id)? {
                    4 => plain("s32", 4, true, "%d"),
                    8 => plain("s64", 8, true, "%lld"),
                    1 => plain("u8", 1, false, "%u"),
                    2 => plain("u16", 2, false, "%u"),
                    _ => return Err(self.not_printable(type_id)?),
                };
                let values = self.btf.enumerators(type_id)?;
                if !values.is_empty() && values.len() <= VALUES_MAX {
                    let names: Vec<String> =
                        values.iter().map(|(name, value)| format!("{{ {value}, \"{name}\" }}")).collect();
                    "%s".clone_into(&mut printed.format);
                    printed.argument = format!("__print_symbolic({rec}, {})", names.join(", "));
                }
                (field, printed)
            }
            Shape::Array { element, len } if self.is_char(element)? => {
                let field = ShapeField {
                    declaration: format!("char {name}[{len}]"),
                    offset: at,
                    size: len,
                    signed: true,
                };
                (field, Printed { format: "\\\"%s\\\"".to_owned(), argument: rec })
            }
            _ => return Err(self.not_printable(type_id)?),
        })
    }

    fn is_char(&self, type_id: TypeId) -> Result<bool, TypedError> {
        let is_byte = matches!(self.btf.shape(type_id)?, Shape::Int { size: 1, .. });
        Ok(is_byte && self.btf.encoding(type_id)? == Encoding::Char)
    }

    fn not_printable(&self, type_id: TypeId) -> Result<TypedError, TypedError> {
        let of = self.btf.declaration(type_id, "")?;
        let names = self.btf.member_names(type_id)?;
        let some = names.iter().take(5).copied().collect::<Vec<_>>().join(", ");
        let advice = match (names.is_empty(), self.btf.shape(type_id)?) {
            (false, _) => format!("choose a member, such as {some}"),
            (true, Shape::Array { .. }) => "choose an element, such as [0]".to_owned(),
            _ => "it cannot be a field".to_owned(),
        };
        Ok(self.error_at(self.text, format!("this is a {of}: {advice}")))
    }
}

/// How a field is printed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Printed {
    /// In the text of the format.
    pub(super) format: String,
    /// Behind it.
    pub(super) argument: String,
}

/// What a field is called that has no name: as the last name of its expression.
pub(super) fn default_name(expr: &Expr<'_>) -> Option<String> {
    match expr {
        Expr::Name(name) | Expr::Member(_, name, _) => Some(name.trim_start_matches('$').to_owned()),
        Expr::Index(inner, index) => Some(format!("{}_{index}", default_name(inner)?)),
        Expr::Call(_, arguments) => arguments.first().and_then(default_name),
        Expr::Not(inner) | Expr::Negate(inner) | Expr::Complement(inner) => default_name(inner),
        Expr::Number(_) | Expr::Text(_) | Expr::Binary(..) | Expr::Choice(..) => None,
    }
}
