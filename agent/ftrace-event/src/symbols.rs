//! What a record does not hold and its text needs: names of addresses, texts behind pointers, values of
//! constants.

/// A function or an object of the kernel that holds an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Symbol<'a> {
    /// Its name.
    pub name: &'a str,
    /// How far after its start the address is.
    pub offset: u64,
    /// Its length in bytes, where that is known. The kernel prints it after the offset, trace-cmd does not.
    pub size: Option<u64>,
    /// The module that it is in.
    pub module: Option<&'a str>,
}

/// Names of the addresses of one kernel.
pub trait Symbols {
    /// The symbol that holds `address`.
    fn lookup(&self, address: u64) -> Option<Symbol<'_>>;

    /// The text that stands at `address` in the kernel's read-only data; tracefs' `printk_formats` lists
    /// those that events point to.
    fn text_at(&self, address: u64) -> Option<&str> {
        let _ = address;
        None
    }
}

/// No symbols: addresses are printed as numbers.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoSymbols;

impl Symbols for NoSymbols {
    fn lookup(&self, _: u64) -> Option<Symbol<'_>> {
        None
    }
}

impl<S: Symbols + ?Sized> Symbols for &S {
    fn lookup(&self, address: u64) -> Option<Symbol<'_>> {
        (**self).lookup(address)
    }

    fn text_at(&self, address: u64) -> Option<&str> {
        (**self).text_at(address)
    }
}

/// Values of the names that a format mentions and does not explain: enumerators that the kernel's source
/// forgot to export with TRACE_DEFINE_ENUM, and a few variables.
///
/// Besides enumerators a format can ask for `HZ` (to turn jiffies into time), for `vmemmap_base` and
/// `sizeof(struct page)` (for the address of a page).
pub trait Names {
    /// The value of `name`.
    fn value(&self, name: &str) -> Option<i64>;
}

/// No names: what needs one is printed as it is stored.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoNames;

impl Names for NoNames {
    fn value(&self, _: &str) -> Option<i64> {
        None
    }
}

impl<F: Fn(&str) -> Option<i64>> Names for F {
    fn value(&self, name: &str) -> Option<i64> {
        self(name)
    }
}
