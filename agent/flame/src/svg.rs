//! Flame graphs.

use std::io::{self, Write};

use inferno::flamegraph::color::{BasicPalette, MultiPalette};
use inferno::flamegraph::{Options, Palette, TextTruncateDirection, from_lines};

use super::name::line;
use super::{Difference, FlameStacks, Frame, Kind, Unit, folded};

/// The largest sum that the picture is made of: the widths are computed with 53 bits.
const MOST: u128 = 1 << 53;

/// A flame graph.
pub(super) fn write(stacks: &FlameStacks, out: &mut dyn Write) -> io::Result<()> {
    let scale = Scale::of(stacks.total());
    let lines = stacks.sorted().into_iter().filter_map(|(frames, weight)| {
        let weight = scale.number(weight);
        (weight != 0).then(|| format!("{} {weight}", text(&frames)))
    });
    let mut options = options(stacks, scale);
    options.subtitle = Some(format!("{} in all", amount(stacks.unit(), stacks.total())));
    draw(options, &lines.collect::<Vec<_>>(), out)
}

/// One whose colours tell what grew.
pub(super) fn write_difference(of: &Difference<'_>, out: &mut dyn Write) -> io::Result<()> {
    let scale = Scale::of(of.now.total().max(of.scaled(of.before.total())));
    let lines = of.sorted().into_iter().filter_map(|(frames, before, now)| {
        let (before, now) = (scale.number(before), scale.number(now));
        (now != 0).then(|| format!("{} {before} {now}", text(&frames)))
    });
    let mut options = options(of.now, scale);
    let unit = of.now.unit();
    let (before, now) = (amount(unit, of.before.total()), amount(unit, of.now.total()));
    let how = if of.is_normalized { ", shares compared" } else { "" };
    options.subtitle = Some(line(&format!(
        "red grew, blue shrank since {}: from {before} to {now} in all{how}",
        of.before.title()
    )));
    draw(options, &lines.collect::<Vec<_>>(), out)
}

/// Weights in the numbers that pictures are made of.
#[derive(Clone, Copy, Debug)]
struct Scale {
    shift: u32,
}

impl Scale {
    fn of(total: u128) -> Self {
        Self {
            shift: (0..=u128::BITS).find(|shift| total.checked_shr(*shift).unwrap_or(0) <= MOST).unwrap_or(0),
        }
    }

    fn number(self, weight: u128) -> u64 {
        u64::try_from(weight.checked_shr(self.shift).unwrap_or(0)).unwrap_or(u64::MAX)
    }

    /// What one of the picture's numbers stands for.
    fn factor(self) -> f64 {
        2_f64.powi(self.shift.cast_signed())
    }
}

/// Frames as the library takes them, which gives those of the kernel a colour of their own by the end of
/// their names.
fn text(frames: &[Frame<'_>]) -> String {
    if frames.iter().all(|frame| frame.kind != Kind::Kernel) {
        return folded::text(frames);
    }
    let names = frames.iter().map(|frame| match frame.kind {
        Kind::Kernel => format!("{}_[k]", frame.name),
        _ => frame.name.to_owned(),
    });
    names.collect::<Vec<_>>().join(";")
}

/// How much, for people.
fn amount(unit: &Unit, weight: u128) -> String {
    match unit {
        Unit::Nanoseconds => {
            let (of, name) = time(weight);
            format!("{:.3} {name}", weight as f64 / of)
        }
        unit => format!("{weight} {}", line(unit.name())),
    }
}

/// The unit in which a time of nanoseconds has few digits, and how many of them it is.
fn time(total: u128) -> (f64, &'static str) {
    match total {
        0..10_000_000 => (1.0, "ns"),
        10_000_000..10_000_000_000_000 => (1e3, "us"),
        _ => (1e6, "ms"),
    }
}

fn options(stacks: &FlameStacks, scale: Scale) -> Options<'static> {
    let mut options = Options::default();
    options.title = line(stacks.title());
    options.text_truncate_direction = TextTruncateDirection::Right;
    // The same function has the same colour in every picture.
    options.deterministic = true;
    // Kernel functions orange, others yellow or red.
    options.colors = Palette::Multi(MultiPalette::Perl);
    match stacks.unit() {
        Unit::Nanoseconds => {
            let (of, name) = time(stacks.total());
            options.factor = 1.0 / of;
            name.clone_into(&mut options.count_name);
            options.colors = Palette::Basic(BasicPalette::Io);
        }
        unit => options.count_name = line(unit.name()),
    }
    if scale.shift != 0 {
        // The library prints numbers of 64 bits.
        options.count_name = format!("times {} {}", scale.factor(), options.count_name);
    }
    options
}

/// Draws sorted lines.
fn draw(mut options: Options<'_>, lines: &[String], out: &mut dyn Write) -> io::Result<()> {
    // The library sorts lines as texts, in which `f.cold` stands between `f` and what that calls, and draws
    // `f` twice then. Lines of a chart are taken as they come, the last one first, and are the same picture
    // otherwise.
    options.flame_chart = true;
    from_lines(&mut options, lines.iter().rev().map(String::as_str), out)
}

#[cfg(test)]
mod tests {
    use super::super::Format;
    use super::*;

    fn stacks(all: &[(&[&str], u64)], unit: Unit) -> FlameStacks {
        let mut stacks = FlameStacks::new("a <title> & more\n", unit);
        for (names, weight) in all {
            stacks.add(names.iter().map(|name| Frame { kind: Kind::User, name }), *weight);
        }
        stacks
    }

    fn svg(stacks: &FlameStacks) -> String {
        let mut out = Vec::new();
        Format::Svg.write(stacks, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    /// The texts of the frames.
    fn titles(svg: &str) -> Vec<&str> {
        svg.split("<title>").skip(1).filter_map(|rest| rest.split("</title>").next()).collect()
    }

    #[test]
    fn frames_have_their_shares() {
        let stacks = stacks(&[(&["f"], 5), (&["f.cold"], 3), (&["f", "g"], 2)], Unit::Samples);
        let picture = svg(&stacks);
        let mut titles = titles(&picture);
        titles.sort_unstable();
        // `f` is one frame, though `f.cold` is before `f;g` in the order of texts.
        let expected = [
            "all (10 samples, 100%)",
            "f (7 samples, 70.00%)",
            "f.cold (3 samples, 30.00%)",
            "g (2 samples, 20.00%)",
        ];
        assert_eq!(titles, expected);
        assert!(picture.contains("a &lt;title&gt; &amp; more?"), "{picture}");
        assert_eq!(picture, svg(&stacks), "the same picture again");
    }

    #[test]
    fn names_are_text_and_nothing_else() {
        let evil = ["</title><script>alert(1)</script>", "\"' onload=x ]]>", "\0\x1b\u{ffff}\n", "&lt;!--"];
        let picture = svg(&stacks(&[(&evil, 5)], Unit::Events));
        assert_eq!(picture.matches("<script").count(), 1, "{picture}");
        assert!(picture.contains("&quot;&apos; onload=x ]]&gt;"), "{picture}");
        assert!(!picture.contains(|c: char| c.is_control() && !matches!(c, '\n' | '\t')), "{picture:?}");
        assert!(picture.contains("&amp;lt:!--"), "{picture}");
    }

    #[test]
    fn kernel_frames_have_their_colour_and_no_mark() {
        let mut stacks = FlameStacks::new("", Unit::Events);
        stacks.add(
            [Frame { kind: Kind::User, name: "main" }, Frame { kind: Kind::Kernel, name: "vfs_read" }],
            1,
        );
        let picture = svg(&stacks);
        assert!(picture.contains("<title>vfs_read (1 events, 100.00%)"), "{picture}");
        assert!(!picture.contains("_[k]"), "{picture}");
    }

    #[test]
    fn large_weights_fit() {
        let mut all = stacks(&[(&["a"], u64::MAX), (&["b"], u64::MAX)], Unit::Field("bytes".to_owned()));
        for _ in 0..6 {
            all.add([Frame { kind: Kind::User, name: "a" }], u64::MAX);
        }
        let picture = svg(&all);
        assert!(
            titles(&picture)
                .iter()
                .any(|title| title.starts_with("a (") && title.ends_with(" times 16384 bytes, 87.50%)")),
            "{picture}"
        );
        let times = svg(&stacks(&[(&["a"], 3_000_000_000)], Unit::Nanoseconds));
        assert!(titles(&times).contains(&"a (3,000,000 us, 100.00%)"), "{times}");
    }

    #[test]
    fn colours_tell_what_grew() {
        let before =
            stacks(&[(&["grew"], 1), (&["shrank"], 9), (&["gone"], 5), (&["same"], 5)], Unit::Events);
        let now = stacks(&[(&["grew"], 9), (&["shrank"], 1), (&["same"], 5)], Unit::Events);
        let mut out = Vec::new();
        let of = Difference { before: &before.titled("old.dat"), now: &now, is_normalized: false };
        Format::Svg.write_difference(&of, &mut out).unwrap();
        let picture = String::from_utf8(out).unwrap();
        let colour = |name: &str| {
            let of = picture.split(&format!("<title>{name} (")).nth(1).unwrap();
            of.split("fill=\"").nth(1).unwrap().split('"').next().unwrap().to_owned()
        };
        assert_eq!(colour("grew"), "rgb(255,100,100)");
        assert_eq!(colour("shrank"), "rgb(100,100,255)");
        assert_eq!(colour("same"), "rgb(250,250,250)");
        assert!(!picture.contains("gone"), "{picture}");
        assert!(picture.contains("since old.dat: from 20 events to 15 events in all"), "{picture}");
    }
}
