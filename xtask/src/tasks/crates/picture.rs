//! The crates as boxes in layers with arrows, as SVG. Readable on light and dark pages.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use super::layout::{Layout, Place};

/// A crate.
pub(super) struct Box<'a> {
    pub(super) name: &'a str,
    pub(super) needs_kernel: bool,
    pub(super) is_optional: bool,
    pub(super) is_library: bool,
}

impl Box<'_> {
    fn width(&self) -> f64 {
        self.name.len() as f64 * LETTER + 18.0
    }
}

const LETTER: f64 = 7.6;
const HEIGHT: f64 = 26.0;
const ROW: f64 = 62.0;
const GAP: f64 = 18.0;
const MARGIN: f64 = 16.0;
/// Lines below the picture that explain it.
const LEGEND: [&str; 3] = [
    "An arrow leads from a crate to one that it uses; arrows that others imply are left out, and so is stdx.",
    "Orange: works with the running kernel. Blue: plain data and files, on any machine.",
    "Bold: also a library for other programs. Dashed: only with a feature of the binary.",
];
const LEGEND_LINE: f64 = 18.0;

/// Draws crates, and arrows from one to another, both by their indexes.
pub(super) fn draw(boxes: &[Box<'_>], arrows: &[(usize, usize)]) -> String {
    let widths: Vec<f64> = boxes.iter().map(Box::width).collect();
    let layout = Layout::new(&widths, arrows, GAP);
    let top = |row: usize| MARGIN + (layout.rows.len() - 1 - row) as f64 * ROW;
    let right = |(place, middle): &(Place, f64)| match place {
        Place::Node(node) => middle + widths[*node] / 2.0,
        Place::Passing(_) => *middle,
    };
    let width = layout.rows.iter().flatten().map(right).fold(0.0, f64::max) + 2.0 * MARGIN;
    let bottom = top(0) + HEIGHT + MARGIN;
    let height = bottom + LEGEND.len() as f64 * LEGEND_LINE + MARGIN;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" \
         font-family=\"sans-serif\" font-size=\"13\">\n\
         <title>The crates of tracer-agent, each above those that it uses</title>\n\
         <style>.crate {{ stroke: #888 }} .any {{ fill: #d6e6f5 }} .kernel {{ fill: #fbe3c0 }} \
         .optional {{ stroke-dasharray: 4 3 }} .published {{ font-weight: bold }}</style>\n\
         <defs><marker id=\"tip\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"7\" markerHeight=\"7\" \
         orient=\"auto\"><path d=\"M0 0L8 4L0 8z\" fill=\"#888\"/></marker></defs>\n\
         <g fill=\"none\" stroke=\"#888\">\n"
    );
    let mut drawn = BTreeSet::new();
    for &(from, to) in arrows {
        let mut above = Place::Node(from);
        for row in (layout.row[to] + 1..=layout.row[from]).rev() {
            let is_last = row - 1 == layout.row[to];
            let below = if is_last { Place::Node(to) } else { Place::Passing(to) };
            // Arrows to the same crate share a way.
            if drawn.insert((row, above, below))
                && let (Some(x), Some(end)) = (layout.middle(row, above), layout.middle(row - 1, below))
            {
                piece(&mut svg, (x + MARGIN, top(row)), (end + MARGIN, top(row - 1)), is_last, above);
            }
            above = below;
        }
    }
    svg.push_str("</g>\n");
    for (row, places) in layout.rows.iter().enumerate() {
        for (place, middle) in places {
            if let Place::Node(node) = place {
                crate_box(&mut svg, &boxes[*node], middle + MARGIN, top(row));
            }
        }
    }
    svg.push_str("<g fill=\"#888\" font-size=\"12\">\n");
    for (line, text) in LEGEND.iter().enumerate() {
        let y = bottom + (line as f64 + 1.0) * LEGEND_LINE;
        let _ = writeln!(svg, "<text x=\"{MARGIN:.0}\" y=\"{y:.0}\">{text}</text>");
    }
    svg + "</g>\n</svg>\n"
}

/// The piece of an arrow between the tops of two rows.
fn piece(svg: &mut String, from: (f64, f64), to: (f64, f64), is_last: bool, above: Place) {
    let (x, top) = from;
    let (end, bottom) = to;
    let start = top + HEIGHT;
    let half = start.midpoint(bottom);
    // An arrow passes the height of a row as a straight line.
    let pass = if matches!(above, Place::Passing(_)) {
        format!("M{x:.1} {top:.0}V{start:.0}")
    } else {
        format!("M{x:.1} {start:.0}")
    };
    let tip = if is_last { " marker-end=\"url(#tip)\"" } else { "" };
    let _ =
        writeln!(svg, "<path d=\"{pass}C{x:.1} {half:.0} {end:.1} {half:.0} {end:.1} {bottom:.0}\"{tip}/>");
}

fn crate_box(svg: &mut String, of: &Box<'_>, middle: f64, top: f64) {
    let width = of.width();
    let kind = if of.needs_kernel { "kernel" } else { "any" };
    let optional = if of.is_optional { " optional" } else { "" };
    let library = if of.is_library { " class=\"published\"" } else { "" };
    let _ = writeln!(
        svg,
        "<rect class=\"crate {kind}{optional}\" x=\"{:.1}\" y=\"{top:.0}\" width=\"{width:.1}\" height=\"{HEIGHT:.0}\" \
         rx=\"5\"/><text{library} x=\"{middle:.1}\" y=\"{:.0}\" text-anchor=\"middle\" fill=\"#222\">{}</text>",
        middle - width / 2.0,
        top + 17.5,
        of.name
    );
}
