//! Names of types, and where they are known: in the block or structure where they are declared, after it.

use std::collections::HashMap;
use std::sync::Arc;

use super::error::Problem;
use crate::ctf::types::{Enumeration, Options, Struct, Type};

#[derive(Debug, Default)]
struct Names {
    aliases: HashMap<String, Type>,
    structs: HashMap<String, Arc<Struct>>,
    enums: HashMap<String, Arc<Enumeration>>,
    variants: HashMap<String, Arc<Options>>,
}

/// The names that are known at a place of the text, the innermost last.
#[derive(Debug)]
pub(super) struct Scopes(Vec<Names>);

impl Default for Scopes {
    fn default() -> Self {
        Self(vec![Names::default()])
    }
}

macro_rules! names {
    ($find:ident, $declare:ident, $map:ident, $ty:ty, $what:literal) => {
        /// The one of this name.
        pub(super) fn $find(&self, name: &str) -> Option<$ty> {
            self.0.iter().rev().find_map(|names| names.$map.get(name)).cloned()
        }

        /// Makes one known.
        pub(super) fn $declare(&mut self, name: String, it: $ty) -> Result<(), Problem> {
            let Some(innermost) = self.0.last_mut() else { return Ok(()) };
            match innermost.$map.insert(name.clone(), it) {
                None => Ok(()),
                Some(_) => Err(Problem::Twice(format!(concat!($what, " {}"), name))),
            }
        }
    };
}

impl Scopes {
    /// Begins a block or a structure.
    pub(super) fn enter(&mut self) {
        self.0.push(Names::default());
    }

    /// Ends it.
    pub(super) fn leave(&mut self) {
        self.0.pop();
    }

    names!(alias, declare_alias, aliases, Type, "type");
    names!(structure, declare_structure, structs, Arc<Struct>, "struct");
    names!(enumeration, declare_enumeration, enums, Arc<Enumeration>, "enum");
    names!(options, declare_options, variants, Arc<Options>, "variant");
}
