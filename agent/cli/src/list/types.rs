//! What the kernel's own type information offers to probes: functions with their arguments, structures with
//! their members.

use std::io::Write;

use serde::Serialize;

use super::{Args, Lines, ListError, array};
use elf::symbols::nearest_names;
use kernel::btf::describe::{Declared, Named};
use kernel::btf::{Btf, BtfError, TypeId};
use stdx::input::glob;

/// How deep anonymous structures are shown.
const DEPTH_MAX: usize = 8;

/// Whether a pattern means one thing only, which is then shown in full.
fn is_plain(pattern: &str) -> bool {
    !pattern.contains(['*', '?', '['])
}

/// `--types [PATTERN]`
pub(super) fn list_types(pattern: &str, args: &Args, out: &mut impl Write) -> Result<(), ListError> {
    let btf = Btf::of_kernel()?;
    let wanted = |name: &str| glob::matches(pattern, name);
    let mut structures: Vec<(&str, TypeId)> =
        btf.structures().filter(|(_, name)| wanted(name)).map(|(id, name)| (name, id)).collect();
    let mut functions: Vec<(&str, TypeId)> = (btf.functions())
        .filter(|function| wanted(function.name))
        .map(|function| (function.name, function.id))
        .collect();
    if structures.is_empty() && functions.is_empty() {
        let names =
            btf.structures().map(|(_, name)| name).chain(btf.functions().map(|function| function.name));
        return Err(ListError::Usage(no_type(pattern, &nearest_names(pattern, names))));
    }
    structures.sort_unstable();
    functions.sort_unstable();
    if args.json {
        let structures = structures.into_iter().map(|(name, id)| ListedType::structure(&btf, name, id));
        let functions = functions.into_iter().map(|(name, id)| ListedType::function(&btf, name, id));
        return array(out, Lines::Rows, structures.chain(functions));
    }
    for &(_, id) in &structures {
        let declaration = btf.declaration(id, "")?;
        if is_plain(pattern) {
            writeln!(out, "{declaration} {{  // {} bytes", btf.size_of(id)?)?;
            list_members(&btf, id, 1, 0, out)?;
            writeln!(out, "}};")?;
        } else {
            writeln!(out, "{declaration};")?;
        }
    }
    for &(name, id) in &functions {
        writeln!(out, "{};", prototype(&btf, name, id)?)?;
    }
    Ok(())
}

/// The members with their offsets; those of anonymous structures indented below them. The values of an
/// enumeration.
fn list_members(
    btf: &Btf,
    id: TypeId,
    depth: usize,
    offset: u32,
    out: &mut impl Write,
) -> Result<(), ListError> {
    let indent = "\t".repeat(depth);
    for (name, value) in btf.enumerators(id)? {
        writeln!(out, "{indent}{name} = {value},")?;
    }
    for Declared { member: Named { name, type_id }, bit_offset, bit_size } in btf.members(id)? {
        let at = offset + bit_offset / 8;
        let declaration = btf.declaration(type_id, name)?;
        if name.is_empty() && depth < DEPTH_MAX {
            writeln!(out, "{indent}{declaration} {{")?;
            list_members(btf, type_id, depth + 1, at, out)?;
            writeln!(out, "{indent}}};")?;
        } else if bit_size != 0 {
            writeln!(out, "{indent}{declaration}:{bit_size};  // {at}, bit {}", bit_offset % 8)?;
        } else {
            writeln!(out, "{indent}{declaration};  // {at}")?;
        }
    }
    Ok(())
}

/// A function's declaration with the names of its arguments.
fn prototype(btf: &Btf, name: &str, id: TypeId) -> Result<String, BtfError> {
    let prototype = btf.prototype(id)?;
    let mut arguments = Vec::new();
    for Named { name, type_id } in &prototype.arguments {
        arguments.push(btf.declaration(*type_id, name)?);
    }
    if prototype.is_variadic {
        arguments.push("...".to_owned());
    }
    if arguments.is_empty() {
        arguments.push("void".to_owned());
    }
    btf.declaration(prototype.returns, &format!("{name}({})", arguments.join(", ")))
}

/// A type or function as JSON has it.
#[derive(Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
enum ListedType<'a> {
    Struct(Compound<'a>),
    Union(Compound<'a>),
    Enum { name: &'a str, size: u32, values: Vec<Enumerator<'a>> },
    Function { name: &'a str, returns: String, arguments: Vec<Argument<'a>>, variadic: bool },
}

#[derive(Serialize)]
struct Compound<'a> {
    name: &'a str,
    size: u32,
    members: Vec<Member<'a>>,
}

#[derive(Serialize)]
struct Member<'a> {
    name: &'a str,
    r#type: String,
    bit_offset: u32,
    bit_size: u32,
}

#[derive(Serialize)]
struct Enumerator<'a> {
    name: &'a str,
    value: i64,
}

#[derive(Serialize)]
struct Argument<'a> {
    name: &'a str,
    r#type: String,
}

impl<'a> ListedType<'a> {
    fn structure(btf: &'a Btf, name: &'a str, id: TypeId) -> Result<Self, ListError> {
        let (declaration, size) = (btf.declaration(id, "")?, btf.size_of(id)?);
        let kind = declaration.split(' ').next().unwrap_or_default();
        if kind == "enum" {
            let values = btf.enumerators(id)?;
            let values = values.into_iter().map(|(name, value)| Enumerator { name, value }).collect();
            return Ok(Self::Enum { name, size, values });
        }
        let member = |Declared { member, bit_offset, bit_size }| -> Result<Member<'a>, ListError> {
            let r#type = btf.declaration(member.type_id, "")?;
            Ok(Member { name: member.name, r#type, bit_offset, bit_size })
        };
        let members = btf.members(id)?.into_iter().map(member).collect::<Result<_, _>>()?;
        let compound = Compound { name, size, members };
        Ok(if kind == "union" { Self::Union(compound) } else { Self::Struct(compound) })
    }

    fn function(btf: &'a Btf, name: &'a str, id: TypeId) -> Result<Self, ListError> {
        let prototype = btf.prototype(id)?;
        let argument = |Named { name, type_id }| -> Result<Argument<'a>, ListError> {
            Ok(Argument { name, r#type: btf.declaration(type_id, "")? })
        };
        Ok(Self::Function {
            name,
            returns: btf.declaration(prototype.returns, "")?,
            variadic: prototype.is_variadic,
            arguments: prototype.arguments.into_iter().map(argument).collect::<Result<_, _>>()?,
        })
    }
}

fn no_type(pattern: &str, nearest: &[String]) -> String {
    let guess = match nearest.split_last() {
        None => "; patterns such as 'vfs_*' find more".to_owned(),
        Some((only, [])) => format!("; did you mean {only}?"),
        Some((last, others)) => format!("; did you mean {} or {last}?", others.join(", ")),
    };
    format!("this kernel's type information has no function or structure {pattern}{guess}")
}
