//! Stacks as a tree, in the form of `perf report --stdio -g caller`.

use std::io::{self, Write};

use super::super::units::count;
use super::notes;
use analysis::stack_tree::{Branch, Question, StackCounts};
use stdx::terminal;

/// Depth of branches from which on they have the indent of the one above them: each would make all lines
/// below it longer, and stacks have as many as they have functions.
const MAX_DEPTH: usize = 128;

/// Prints the tree as it goes: its text can be much larger than the tree itself.
pub(super) fn write(
    out: &mut dyn Write,
    question: &Question,
    answer: &StackCounts,
    limit: usize,
) -> io::Result<()> {
    let root = answer.tree(limit);
    branches(out, &Indent::default(), &root.calls, root.total)?;
    if !root.calls.is_empty() {
        writeln!(out)?;
    }
    let mut text = String::new();
    let what =
        question.value.as_ref().map_or_else(|| "events".to_owned(), |key| format!("of {}", key.text()));
    let stacks = answer.stacks.len() as u64;
    let total = u64::try_from(root.total).map_or_else(|_| root.total.to_string(), count);
    writeln!(out, "{total} {what}, {} different stacks", count(stacks))?;
    notes(
        &mut text,
        &[
            (answer.without_stack, "events without a stack are not counted"),
            (answer.without_value, "events without a positive value are not counted"),
        ],
    );
    out.write_all(text.as_bytes())
}

/// What the lines of a branch begin with.
#[derive(Clone, Debug, Default)]
struct Indent {
    text: String,
    depth: usize,
}

/// What a function calls, one branch each, with its share of all.
fn branches(out: &mut dyn Write, indent: &Indent, calls: &[Branch], total: u128) -> io::Result<()> {
    for (index, branch) in calls.iter().enumerate() {
        let is_last = index + 1 == calls.len();
        writeln!(out, "{}|", indent.text)?;
        let share = branch.total as f64 * 100.0 / total.max(1) as f64;
        let head = format!("--{share:.2}%--");
        let edge = if is_last { ' ' } else { '|' };
        writeln!(out, "{}{edge}{head}{} ({})", indent.text, terminal::name(&branch.name), branch.total)?;
        let mut indent = indent.clone();
        if indent.depth < MAX_DEPTH {
            indent.depth += 1;
            indent.text.push(edge);
            indent.text.extend(std::iter::repeat_n(' ', head.len()));
        }
        // A function whose only caller calls nothing else needs no branch of its own.
        let mut at = branch;
        while let [only] = at.calls.as_slice()
            && only.total == at.total
        {
            writeln!(out, "{}{}", indent.text, terminal::name(&only.name))?;
            at = only;
        }
        branches(out, &indent, &at.calls, total)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chains_are_straight_and_branches_have_shares() {
        let leaf = |name: &str, total| Branch { name: name.to_owned(), total, calls: Vec::new() };
        let read = Branch { calls: vec![leaf("copy", 2)], ..leaf("read", 3) };
        let main = Branch { calls: vec![read, leaf("write\n", 1)], ..leaf("main", 4) };
        let start = Branch { calls: vec![main], ..leaf("start", 4) };
        let mut text = Vec::new();
        branches(&mut text, &Indent::default(), &[start, leaf("idle", 4)], 8).unwrap();
        let expected = "|
|--50.00%--start (4)
|          main
|          |
|          |--37.50%--read (3)
|          |          |
|          |           --25.00%--copy (2)
|          |
|           --12.50%--write\\x0a (1)
|
 --50.00%--idle (4)
";
        assert_eq!(String::from_utf8(text).unwrap(), expected);
    }

    #[test]
    fn indents_end_at_a_depth() {
        let mut at = Branch { name: "f".to_owned(), total: 1, calls: Vec::new() };
        for depth in 2..1000 {
            // Two calls each: no chain is straight.
            let other = Branch { name: "g".to_owned(), total: 1, calls: Vec::new() };
            at = Branch { name: "f".to_owned(), total: depth, calls: vec![at, other] };
        }
        let mut text = Vec::new();
        branches(&mut text, &Indent::default(), &[at], 1000).unwrap();
        let longest = text.split(|byte| *byte == b'\n').map(<[u8]>::len).max().unwrap();
        assert!(longest < (MAX_DEPTH + 2) * 12, "{longest}");
    }
}
