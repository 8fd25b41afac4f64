//! Folded stacks: a line for each, as `stackcollapse-perf.pl` of FlameGraph makes them, and with two weights
//! as `difffolded.pl` does.

use std::io::{self, Write};

use super::{Difference, FlameStacks, Frame};

/// The lines, in the order of their texts.
pub(super) fn write(stacks: &FlameStacks, out: &mut dyn Write) -> io::Result<()> {
    lines(stacks.sorted().into_iter().map(|(frames, weight)| (text(&frames), weight.to_string())), out)
}

/// The same with the weights before and now.
pub(super) fn write_difference(of: &Difference<'_>, out: &mut dyn Write) -> io::Result<()> {
    let stacks = of.sorted().into_iter();
    lines(stacks.map(|(frames, before, now)| (text(&frames), format!("{before} {now}"))), out)
}

fn lines(stacks: impl Iterator<Item = (String, String)>, out: &mut dyn Write) -> io::Result<()> {
    let mut lines: Vec<(String, String)> = stacks.collect();
    lines.sort_unstable();
    for (stack, weights) in lines {
        writeln!(out, "{stack} {weights}")?;
    }
    Ok(())
}

/// Frames as one text.
pub(super) fn text(frames: &[Frame<'_>]) -> String {
    let mut text = String::with_capacity(frames.iter().map(|frame| frame.name.len() + 1).sum());
    for (index, frame) in frames.iter().enumerate() {
        if index != 0 {
            text.push(';');
        }
        text.push_str(frame.name);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::{Format, Kind, Unit};
    use super::*;

    #[test]
    fn lines_have_a_stack_and_its_weights() {
        let frame = |kind, name| Frame { kind, name };
        let mut stacks = FlameStacks::new("", Unit::Events);
        stacks.add(
            [frame(Kind::Thread, "Web Content"), frame(Kind::User, "main"), frame(Kind::Kernel, "read")],
            3,
        );
        stacks.add([frame(Kind::Thread, "a\nb;c 5"), frame(Kind::User, "f(int, long)")], 4);
        stacks.add_others(2);
        let mut text = Vec::new();
        Format::Folded.write(&stacks, &mut text).unwrap();
        assert_eq!(
            String::from_utf8(text).unwrap(),
            "Web_Content;main;read 3\n[other stacks] 2\na?b:c_5;f(int, long) 4\n"
        );
        let mut now = FlameStacks::new("", Unit::Events);
        now.add(
            [frame(Kind::Thread, "Web Content"), frame(Kind::User, "main"), frame(Kind::Kernel, "read")],
            7,
        );
        let of = Difference { before: &stacks, now: &now, is_normalized: false };
        let mut text = Vec::new();
        Format::Folded.write_difference(&of, &mut text).unwrap();
        assert_eq!(
            String::from_utf8(text).unwrap(),
            "Web_Content;main;read 3 7\n[other stacks] 2 0\na?b:c_5;f(int, long) 4 0\n"
        );
    }
}
