//! The values of names in formats.
//!
//! The kernel puts numbers in place of the enumerators that its source names in TRACE_DEFINE_ENUM
//! (kernel/trace/trace_events.c, `trace_event_update_all`). Others are left, and no reader of a file can know
//! their values: it would print numbers where the kernel prints names, or nothing at all.

use std::{cell::OnceCell, collections::HashMap};

use ftrace_event::Names;
use kernel::btf::Btf;

/// The enumerators of a kernel's BTF; those of modules are not in it.
#[derive(Debug)]
pub(super) struct KernelConstants<'b> {
    btf: &'b Btf,
    /// Read when the first one is asked for: most systems' formats have none. `None` for a name of several
    /// values.
    values: OnceCell<HashMap<&'b str, Option<i64>>>,
}

impl<'b> KernelConstants<'b> {
    /// Those of `btf`.
    pub(super) fn new(btf: &'b Btf) -> Self {
        Self { btf, values: OnceCell::new() }
    }

    fn read(&self) -> HashMap<&'b str, Option<i64>> {
        let mut values = HashMap::new();
        for (name, value) in self.btf.constants() {
            let known = values.entry(name).or_insert(Some(value));
            *known = known.filter(|known| *known == value);
        }
        values
    }
}

impl Names for KernelConstants<'_> {
    fn value(&self, name: &str) -> Option<i64> {
        self.values.get_or_init(|| self.read()).get(name).copied().flatten()
    }
}
