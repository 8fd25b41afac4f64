//! The symbols in a file: `/proc/kallsyms` and the texts of `printk_formats`.

use std::collections::BTreeMap;

use super::symbols::{Symbol, Symbols};

/// Longest name of a symbol, in bytes; the rest of it is left out. The kernel's own have fewer than 512
/// (KSYM_NAME_LEN of include/linux/kallsyms.h), functions of processes, which recordings have among them, can
/// have the long names of C++ templates.
const MAX_NAME: usize = 4096;

/// The kernel's symbols by address, and the texts that events point to.
///
/// Looking an address up has the result that libtraceevent has (`find_func` of src/event-parse.c): the symbol
/// that starts at or before it, except that the last one of all holds only its own address. Modules are left
/// out, because trace-cmd prints none.
#[derive(Clone, Debug, Default)]
pub struct SymbolTable {
    /// The text that names are part of.
    text: Box<[u8]>,
    /// Ascending. Symbols of one address are in the reverse order of the text.
    addresses: Vec<u64>,
    /// Where the name of each address is in the text.
    names: Vec<(u32, u16)>,
    texts: BTreeMap<u64, String>,
    /// Those that were laid over these.
    over: Option<Box<SymbolTable>>,
}

impl SymbolTable {
    /// Takes lines of `/proc/kallsyms`: address, kind, name. Absolute symbols, which on x86 are offsets of
    /// per-CPU variables, and the mapping symbols of arm (`$a`) are left out, and so are lines that are none.
    pub fn parse(kallsyms: Vec<u8>) -> Self {
        let mut found: Vec<(u64, u32, u16)> = Vec::new();
        let mut start = 0;
        // Names are found by 32-bit offsets; no kernel has 4 GB of them.
        for line in kallsyms.split_inclusive(|byte| *byte == b'\n') {
            let at = start;
            start += line.len();
            if start > u32::MAX as usize {
                break;
            }
            if let Some((address, name, len)) = symbol(line) {
                found.push((address, (at + name) as u32, len));
            }
        }
        found.reverse();
        found.sort_by_key(|(address, ..)| *address);
        let addresses = found.iter().map(|(address, ..)| *address).collect();
        let names = found.iter().map(|(_, at, len)| (*at, *len)).collect();
        Self { text: kallsyms.into(), addresses, names, texts: BTreeMap::new(), over: None }
    }

    /// Adds other symbols, in place of those that were added like this before: what is found is what would be
    /// found in a table of all. Of two at one address it is the added one. Nothing else is read again.
    pub fn lay_over(&mut self, other: Self) {
        self.over = (!other.is_empty()).then(|| Box::new(other));
    }

    /// Adds the texts of `printk_formats`, as a file has them: with their C escapes.
    #[must_use]
    pub fn with_texts<'t>(mut self, texts: impl IntoIterator<Item = (u64, &'t str)>) -> Self {
        self.texts.extend(texts.into_iter().map(|(address, text)| (address, unescaped(text))));
        self
    }

    /// How many symbols there are, without those that were laid over them.
    pub fn len(&self) -> usize {
        self.addresses.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.addresses.is_empty()
    }

    /// All symbols by address, without those that were laid over them.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &str)> {
        self.addresses.iter().copied().zip((0..self.names.len()).map(|index| self.name(index)))
    }

    fn name(&self, index: usize) -> &str {
        let range = self.names.get(index).map(|&(at, len)| at as usize..at as usize + usize::from(len));
        let bytes = range.and_then(|range| self.text.get(range)).unwrap_or_default();
        std::str::from_utf8(bytes).unwrap_or("?")
    }

    /// A binary search that meets the elements in the order of C's `bsearch`: of several symbols at one
    /// address it decides which one is found.
    fn index_of(&self, address: u64) -> Option<usize> {
        let (mut low, mut high) = (0, self.addresses.len());
        while low < high {
            let middle = usize::midpoint(low, high);
            let start = self.addresses[middle];
            if address < start {
                high = middle;
            } else if address == start || self.addresses.get(middle + 1).is_some_and(|next| address < *next) {
                return Some(middle);
            } else {
                low = middle + 1;
            }
        }
        None
    }
}

impl SymbolTable {
    /// The symbol that holds an address as [`SymbolTable::index_of`] says, or the last one, which holds all
    /// behind it if another table goes on there.
    fn at_or_before(&self, address: u64) -> Option<usize> {
        let last = self.addresses.len().checked_sub(1)?;
        self.index_of(address).or_else(|| (address > self.addresses[last]).then_some(last))
    }

    /// The table in which an address is found, and where.
    fn find(&self, address: u64) -> Option<(&Self, usize)> {
        let Some(over) = &self.over else { return Some((self, self.index_of(address)?)) };
        let own = self.at_or_before(address).map(|index| (self.addresses[index], self, index));
        let other = over.at_or_before(address).map(|index| (over.addresses[index], &**over, index));
        let (start, table, index) = match (own, other) {
            (Some(own), Some(other)) if own.0 > other.0 => own,
            (own, other) => other.or(own)?,
        };
        let is_last = [self, over].iter().all(|of| of.addresses.last().is_none_or(|last| *last <= start));
        (!is_last || start == address).then_some((table, index))
    }
}

impl Symbols for SymbolTable {
    fn lookup(&self, address: u64) -> Option<Symbol<'_>> {
        let (table, index) = self.find(address)?;
        let offset = address - table.addresses[index];
        Some(Symbol { name: table.name(index), offset, size: None, module: None })
    }

    fn text_at(&self, address: u64) -> Option<&str> {
        self.texts.get(&address).map(String::as_str)
    }
}

/// Address, start of the name in the line, and its length.
fn symbol(line: &[u8]) -> Option<(u64, usize, u16)> {
    let digits = line.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
    if digits == 0 || digits > 16 || line.get(digits) != Some(&b' ') {
        return None;
    }
    let address = line[..digits]
        .iter()
        .fold(0_u64, |sum, digit| sum << 4 | u64::from(char::from(*digit).to_digit(16).unwrap_or(0)));
    let kind = *line.get(digits + 1)?;
    let name = digits + 3;
    let rest = line.get(name..)?;
    let len = rest.iter().take_while(|byte| !byte.is_ascii_whitespace()).count();
    if matches!(kind, b'a' | b'A') || rest.first() == Some(&b'$') || len == 0 {
        return None;
    }
    // A character that is cut in two is none.
    let len = std::str::from_utf8(&rest[..len])
        .map_or(len.min(MAX_NAME), |name| name.floor_char_boundary(MAX_NAME));
    Some((address, name, u16::try_from(len).ok()?))
}

/// The text that a C string constant stands for, as far as the kernel escapes (`t_show` of
/// kernel/trace/trace_printk.c), without the newline at its end.
fn unescaped(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            plain.push(c);
            continue;
        }
        match chars.next() {
            Some('n') => plain.push('\n'),
            Some('t') => plain.push('\t'),
            Some(other) => plain.push(other),
            None => plain.push('\\'),
        }
    }
    if plain.ends_with('\n') {
        plain.pop();
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_found_as_libtraceevent_finds_them() {
        let text = b"0000000000000010 A per_cpu\nffff000000000300 t last\nffff000000000100 T first\n\
                     ffff000000000200 t twin_a\t[module]\nffff000000000200 T twin_b\nnonsense\n\
                     ffff000000000280 t $x\nffff000000000250 d no_newline";
        let table = SymbolTable::parse(text.to_vec());
        assert_eq!(table.len(), 5);
        let at = |address: u64| table.lookup(address).map(|symbol| (symbol.name, symbol.offset));
        assert_eq!(at(0xffff_0000_0000_0100), Some(("first", 0)));
        assert_eq!(at(0xffff_0000_0000_01ff), Some(("first", 0xff)));
        // Behind both, the later one in the sorted order holds the address.
        assert_eq!(at(0xffff_0000_0000_0201), Some(("twin_a", 1)));
        assert_eq!(at(0xffff_0000_0000_02ff), Some(("no_newline", 0xaf)));
        assert_eq!(at(0xffff_0000_0000_0300), Some(("last", 0)));
        assert_eq!((at(0xffff_0000_0000_0301), at(0x10)), (None, None));
        assert_eq!(SymbolTable::default().lookup(0).map(|symbol| symbol.offset), None);
    }

    #[test]
    fn symbols_that_are_laid_over_others_are_found_as_in_a_table_of_all() {
        const BASE: &str = "300 t c\n100 t a\n200 t b\n200 t b2\n";
        for over in
            ["150 t x\n151 t y\n", "10 t x\n", "400 t x\n", "ffffffffffffffff t -\n120 t x\n", "", "250 t x"]
        {
            let mut table = SymbolTable::parse(BASE.into());
            table.lay_over(SymbolTable::parse(b"180 t gone\n".to_vec()));
            table.lay_over(SymbolTable::parse(over.into()));
            let all = SymbolTable::parse([over, "\n", BASE].concat().into_bytes());
            for address in (0..0x500).chain([u64::MAX - 1, u64::MAX]) {
                // Of twins, which one holds what is behind them is up to the search.
                if (0x200..0x300).contains(&address) && all.lookup(address).is_some_and(|of| of.name != "x") {
                    let offset = table.lookup(address).map(|of| of.offset);
                    assert_eq!(offset, all.lookup(address).map(|of| of.offset), "{over} {address:x}");
                    continue;
                }
                let found = |table: &SymbolTable| {
                    table.lookup(address).map(|symbol| (symbol.name.to_owned(), symbol.offset))
                };
                assert_eq!(found(&table), found(&all), "{over} {address:x}");
            }
        }
        let mut table = SymbolTable::parse(BASE.into());
        table.lay_over(SymbolTable::parse(b"100 t x\n".to_vec()));
        assert_eq!(table.lookup(0x101).map(|symbol| symbol.name), Some("x"));
        assert_eq!(table.len(), 4);
    }

    #[test]
    fn long_names_are_cut_between_characters() {
        let long = format!("100 t {}\u{e4}tail\n200 t next\n", "a".repeat(MAX_NAME - 1));
        let table = SymbolTable::parse(long.into_bytes());
        assert_eq!(table.lookup(0x110).map(|symbol| symbol.name), Some(&*"a".repeat(MAX_NAME - 1)));
        assert_eq!(table.len(), 2);
    }

    #[test]
    fn texts_are_unescaped() {
        let table = SymbolTable::default().with_texts([(8, "a\\tb \\\"q\\\" \\\\\\n"), (9, "plain\\")]);
        assert_eq!(table.text_at(8), Some("a\tb \"q\" \\"));
        assert_eq!((table.text_at(9), table.text_at(10)), (Some("plain\\"), None));
    }
}
