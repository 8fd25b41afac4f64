//! The functions of the kernel, as text and as JSON.

use std::io::Write;

use super::{Lines, ListError, array};
use compile::dynamic::DynamicError;
use compile::dynamic::kernel::{FunctionError, KernelFunctions};
use kernel::tracefs::Tracefs;
use stdx::input::glob;

/// `--functions [PATTERN]`
pub(super) fn list_functions(pattern: &str, json: bool, out: &mut impl Write) -> Result<(), ListError> {
    let mut names = KernelFunctions::read()?.names(&Tracefs::open()?);
    names.retain(|name| glob::matches(pattern, name));
    names.sort_unstable();
    names.dedup();
    if names.is_empty() {
        return Err(DynamicError::from(FunctionError::NoMatch(pattern.to_owned())).into());
    }
    if json {
        return array(out, Lines::Elements, names.into_iter().map(Ok));
    }
    for name in names {
        writeln!(out, "{name}")?;
    }
    Ok(())
}
