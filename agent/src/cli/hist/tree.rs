//! Stacks as a tree, in the form of `perf report --stdio -g caller`.

use std::fmt::Write as _;

use super::super::units::count;
use super::notes;
use crate::analysis::stack_tree::{Branch, Question, StackCounts};
use crate::terminal;

pub(super) fn text(question: &Question, answer: &StackCounts, limit: usize) -> String {
    let mut text = String::new();
    let root = answer.tree(limit);
    branches(&mut text, "", &root.calls, root.total);
    if !root.calls.is_empty() {
        text.push('\n');
    }
    let what =
        question.value.as_ref().map_or_else(|| "events".to_owned(), |key| format!("of {}", key.text()));
    let stacks = answer.stacks.len() as u64;
    let _ = writeln!(text, "{} {what}, {} different stacks", count(root.total), count(stacks));
    notes(
        &mut text,
        &[
            (answer.without_stack, "events without a stack are not counted"),
            (answer.without_value, "events without a positive value are not counted"),
        ],
    );
    text
}

/// What a function calls, one branch each, with its share of all.
fn branches(text: &mut String, indent: &str, calls: &[Branch], total: u64) {
    for (place, branch) in calls.iter().enumerate() {
        let is_last = place + 1 == calls.len();
        let _ = writeln!(text, "{indent}|");
        let share = branch.total as f64 * 100.0 / total.max(1) as f64;
        let head = format!("--{share:.2}%--");
        let edge = if is_last { ' ' } else { '|' };
        let _ = writeln!(text, "{indent}{edge}{head}{} ({})", terminal::name(&branch.name), branch.total);
        let indent = format!("{indent}{edge}{}", " ".repeat(head.len()));
        // A function whose only caller calls nothing else needs no branch of its own.
        let mut at = branch;
        while let [only] = at.calls.as_slice()
            && only.total == at.total
        {
            let _ = writeln!(text, "{indent}{}", terminal::name(&only.name));
            at = only;
        }
        branches(text, &indent, &at.calls, total);
    }
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
        let mut text = String::new();
        branches(&mut text, "", &[start, leaf("idle", 4)], 8);
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
        assert_eq!(text, expected);
    }
}
