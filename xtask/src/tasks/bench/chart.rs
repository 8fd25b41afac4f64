//! The bar chart of `docs/performance-results.md`, as SVG.

use std::fmt::Write as _;

/// One group of bars: a workload.
pub(super) struct Group {
    pub(super) name: String,
    pub(super) bars: Vec<Bar>,
}

/// A recorder's bar in a group.
pub(super) struct Bar {
    pub(super) name: String,
    /// Its length, with what is written behind it; `None` where there is nothing to show.
    pub(super) value: Option<f64>,
}

const WIDTH: f64 = 720.0;
const NAMES: f64 = 200.0;
const VALUES: f64 = 70.0;
const BAR: f64 = 16.0;
const GAP: f64 = 14.0;
const TOP: f64 = 40.0;
/// Distinguishable also for people who see few colours (Okabe and Ito).
const COLOURS: [&str; 5] = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#999999"];

/// Groups of horizontal bars on a common scale. Readable on light and dark pages.
pub(super) fn svg(title: &str, groups: &[Group]) -> String {
    let values = || groups.iter().flat_map(|group| &group.bars).filter_map(|bar| bar.value);
    let longest = values().fold(0.0, f64::max);
    let scale = if longest > 0.0 { (WIDTH - NAMES - VALUES) / longest } else { 0.0 };
    let rows: usize = groups.iter().map(|group| group.bars.len() + 1).sum();
    let height = TOP + rows as f64 * BAR + groups.len() as f64 * GAP;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" \
         font-size=\"12\" fill=\"#777\">\n<text x=\"8\" y=\"20\" font-size=\"14\" font-weight=\"bold\">{}</text>\n",
        escaped(title)
    );
    let mut y = TOP;
    for group in groups {
        let _ = writeln!(
            svg,
            "<text x=\"8\" y=\"{:.0}\" font-weight=\"bold\">{}</text>",
            y + 12.0,
            escaped(&group.name)
        );
        y += BAR;
        for (index, bar) in group.bars.iter().enumerate() {
            let text = y + 12.0;
            let name = escaped(&bar.name);
            let _ = writeln!(
                svg,
                "<text x=\"{:.0}\" y=\"{text:.0}\" text-anchor=\"end\">{name}</text>",
                NAMES - 8.0
            );
            let (length, label) = match bar.value {
                // A recorder that costs less than the noise has no bar, but a number.
                Some(value) => ((value * scale).max(0.0), number(value)),
                None => (0.0, "-".to_owned()),
            };
            let colour = COLOURS[index % COLOURS.len()];
            let _ = writeln!(
                svg,
                "<rect x=\"{NAMES}\" y=\"{:.0}\" width=\"{length:.1}\" height=\"{:.0}\" fill=\"{colour}\"/>\
                 <text x=\"{:.1}\" y=\"{text:.0}\">{label}</text>",
                y + 2.0,
                BAR - 3.0,
                NAMES + length + 6.0
            );
            y += BAR;
        }
        y += GAP;
    }
    svg + "</svg>\n"
}

fn number(value: f64) -> String {
    if value.abs() < 10.0 { format!("{value:.1}") } else { format!("{value:.0}") }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_bar_fills_the_space_and_text_is_escaped() {
        let bar = |name: &str, value| Bar { name: name.into(), value };
        let group = Group {
            name: "a<b".into(),
            bars: vec![bar("x", Some(50.0)), bar("y", Some(200.0)), bar("z", None)],
        };
        let svg = svg("t & u", &[group]);
        assert!(svg.contains("t &amp; u") && svg.contains("a&lt;b"), "{svg}");
        assert!(svg.contains("width=\"450.0\"") && svg.contains("width=\"112.5\""), "{svg}");
        assert_eq!(svg.matches("<rect").count(), 3);
        assert!(svg.ends_with("</svg>\n"));
    }
}
