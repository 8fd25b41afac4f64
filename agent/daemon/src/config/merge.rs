//! Several texts as one tree, whose parts know their places.

use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use super::source::{Found, Sources};

/// The tree of a text's values, with the offsets of each among all texts.
pub(super) type Tree<'t> = DeTable<'t>;

/// Joins all texts: tables key by key, and of anything else the later one counts. Gives what is no TOML, too.
pub(super) fn merged(sources: &Sources) -> (Tree<'_>, Vec<Found>) {
    let (mut tree, mut mistakes) = (Tree::default(), Vec::new());
    for source in sources.iter() {
        let (parsed, errors) = DeTable::parse_recoverable(&source.text);
        mistakes.extend(errors.into_iter().map(|error| {
            let span = error.span().unwrap_or(0..0);
            Found { span: span.start + source.base..span.end + source.base, what: error.message().to_owned() }
        }));
        join(&mut tree, moved_table(parsed.into_inner(), source.base));
    }
    (tree, mistakes)
}

fn join<'t>(tree: &mut Tree<'t>, new: Tree<'t>) {
    for (key, value) in new {
        match (tree.get_mut(key.get_ref().as_ref()).map(Spanned::get_mut), value.get_ref()) {
            (Some(DeValue::Table(there)), DeValue::Table(_)) => {
                if let DeValue::Table(table) = value.into_inner() {
                    join(there, table);
                }
            }
            (Some(_), _) => {
                // The key's place is that of the value that counts.
                tree.remove(key.get_ref().as_ref());
                tree.insert(key, value);
            }
            (None, _) => {
                tree.insert(key, value);
            }
        }
    }
}

fn moved_table(table: DeTable<'_>, by: usize) -> DeTable<'_> {
    table
        .into_iter()
        .map(|(key, value)| (moved(key, by, |key, _| key), moved(value, by, moved_value)))
        .collect()
}

fn moved_value(value: DeValue<'_>, by: usize) -> DeValue<'_> {
    match value {
        DeValue::Table(table) => DeValue::Table(moved_table(table, by)),
        DeValue::Array(array) => {
            DeValue::Array(array.into_iter().map(|value| moved(value, by, moved_value)).collect())
        }
        other => other,
    }
}

fn moved<T>(value: Spanned<T>, by: usize, inner: fn(T, usize) -> T) -> Spanned<T> {
    let span = value.span();
    Spanned::new(span.start + by..span.end + by, inner(value.into_inner(), by))
}
