//! A layered layout of an acyclic graph: rows by the longest path, few crossings, short arrows.
//!
//! It is the method of Sugiyama, Tagawa and Toda (1981): an arrow that passes a row gets a place in it, the
//! rows are sorted by the medians of their neighbours, and then each place moves as near to its neighbours as
//! the others in its row allow.

use std::collections::BTreeMap;

/// A place in a row: of a node, or of the arrows to a node that pass the row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Place {
    /// The node.
    Node(usize),
    /// Arrows to this node.
    Passing(usize),
}

/// The layout.
pub(super) struct Layout {
    /// The row of each node; row 0 has the nodes without arrows to others.
    pub(super) row: Vec<usize>,
    /// The places of each row from left to right, with the middle of each.
    pub(super) rows: Vec<Vec<(Place, f64)>>,
}

impl Layout {
    /// Lays out nodes of these widths, with `gap` between two places. `arrows` go from the first to the
    /// second, and there is no way back to the first.
    pub(super) fn new(widths: &[f64], arrows: &[(usize, usize)], gap: f64) -> Self {
        let row = rows_of(widths.len(), arrows);
        let mut rows = vec![Vec::new(); row.iter().max().map_or(0, |highest| highest + 1)];
        for (node, &at) in row.iter().enumerate() {
            rows[at].push(Place::Node(node));
            let users = arrows.iter().filter(|(_, to)| *to == node).map(|(from, _)| row[*from]);
            let highest = users.max().unwrap_or(at);
            for passed in rows.iter_mut().take(highest).skip(at + 1) {
                passed.push(Place::Passing(node));
            }
        }
        let links = Links::new(&row, arrows);
        let rows = sorted(rows, &links);
        let width = |place: Place| match place {
            Place::Node(node) => widths[node],
            Place::Passing(_) => 0.0,
        };
        let rows = positioned(&rows, &links, gap, width);
        Self { row, rows }
    }

    /// The middle of a place.
    pub(super) fn middle(&self, row: usize, place: Place) -> Option<f64> {
        self.rows.get(row)?.iter().find(|(other, _)| *other == place).map(|(_, middle)| *middle)
    }
}

/// The length of the longest path from each node.
fn rows_of(count: usize, arrows: &[(usize, usize)]) -> Vec<usize> {
    let mut rows = vec![0; count];
    // A path visits each node once at most.
    for _ in 0..count {
        for &(from, to) in arrows {
            rows[from] = rows[from].max(rows[to] + 1);
        }
    }
    rows
}

/// Which places of neighbouring rows are connected.
struct Links {
    /// By row and place: the places in the row below.
    down: BTreeMap<(usize, Place), Vec<Place>>,
    /// And in the row above.
    up: BTreeMap<(usize, Place), Vec<Place>>,
}

impl Links {
    fn new(row: &[usize], arrows: &[(usize, usize)]) -> Self {
        let mut links = Self { down: BTreeMap::new(), up: BTreeMap::new() };
        for &(from, to) in arrows {
            let mut above = Place::Node(from);
            for at in (row[to] + 1..=row[from]).rev() {
                let below = if at - 1 == row[to] { Place::Node(to) } else { Place::Passing(to) };
                let down = links.down.entry((at, above)).or_default();
                if !down.contains(&below) {
                    down.push(below);
                    links.up.entry((at - 1, below)).or_default().push(above);
                }
                above = below;
            }
        }
        links
    }

    fn below(&self, row: usize, place: Place) -> &[Place] {
        self.down.get(&(row, place)).map_or(&[], Vec::as_slice)
    }

    fn above(&self, row: usize, place: Place) -> &[Place] {
        self.up.get(&(row, place)).map_or(&[], Vec::as_slice)
    }
}

/// Puts the places of each row in an order with few crossings.
fn sorted(mut rows: Vec<Vec<Place>>, links: &Links) -> Vec<Vec<Place>> {
    const SWEEPS: usize = 48;
    let mut best = (crossings(&rows, links), rows.clone());
    for sweep in 0..SWEEPS {
        let count = rows.len();
        for step in 1..count {
            let (at, from) = if sweep % 2 == 0 { (step, step - 1) } else { (count - 1 - step, count - step) };
            let index = index_of(&rows[from]);
            let old = index_of(&rows[at]);
            let key = |place: &Place| {
                let others = if sweep % 2 == 0 { links.below(at, *place) } else { links.above(at, *place) };
                let sum: usize = others.iter().map(|other| index[other]).sum();
                let scale = rows[from].len() as f64 / rows[at].len() as f64;
                if others.is_empty() { old[place] as f64 * scale } else { sum as f64 / others.len() as f64 }
            };
            let mut keyed: Vec<_> = rows[at].iter().map(|place| (key(place), *place)).collect();
            keyed.sort_by(|one, other| one.0.total_cmp(&other.0));
            rows[at] = keyed.into_iter().map(|(_, place)| place).collect();
        }
        swap_neighbours(&mut rows, links);
        let now = crossings(&rows, links);
        if now < best.0 {
            best = (now, rows.clone());
        }
    }
    best.1
}

/// Swaps neighbours as long as that saves crossings.
fn swap_neighbours(rows: &mut [Vec<Place>], links: &Links) {
    const ROUNDS: usize = 8;
    for _ in 0..ROUNDS {
        let mut improved = false;
        for at in 0..rows.len() {
            for left in 1..rows[at].len() {
                let before = around(rows, links, at);
                rows[at].swap(left - 1, left);
                if around(rows, links, at) < before {
                    improved = true;
                } else {
                    rows[at].swap(left - 1, left);
                }
            }
        }
        if !improved {
            break;
        }
    }
}

fn index_of(row: &[Place]) -> BTreeMap<Place, usize> {
    row.iter().enumerate().map(|(index, place)| (*place, index)).collect()
}

fn crossings(rows: &[Vec<Place>], links: &Links) -> usize {
    (1..rows.len()).map(|at| crossings_below(rows, links, at)).sum()
}

/// The crossings on both sides of a row.
fn around(rows: &[Vec<Place>], links: &Links, at: usize) -> usize {
    let above = if at + 1 < rows.len() { crossings_below(rows, links, at + 1) } else { 0 };
    above + if at > 0 { crossings_below(rows, links, at) } else { 0 }
}

/// The crossings between a row and the one below it.
fn crossings_below(rows: &[Vec<Place>], links: &Links, at: usize) -> usize {
    let below = index_of(&rows[at - 1]);
    let ends: Vec<(usize, usize)> = rows[at]
        .iter()
        .enumerate()
        .flat_map(|(index, place)| links.below(at, *place).iter().map(move |to| (index, *to)))
        .map(|(index, to)| (index, below[&to]))
        .collect();
    let crosses = |one: &(usize, usize), other: &(usize, usize)| one.0 < other.0 && one.1 > other.1;
    ends.iter().map(|one| ends.iter().filter(|other| crosses(one, other)).count()).sum()
}

/// Moves each place towards its neighbours in the rows above and below, in the order of its row.
fn positioned(
    rows: &[Vec<Place>],
    links: &Links,
    gap: f64,
    width: impl Fn(Place) -> f64,
) -> Vec<Vec<(Place, f64)>> {
    const ROUNDS: usize = 60;
    let distance = |left: Place, right: Place| width(left).midpoint(width(right)) + gap;
    let mut middles: Vec<BTreeMap<Place, f64>> = rows
        .iter()
        .map(|row| {
            let offsets = offsets(row, distance);
            let middle = offsets.last().copied().unwrap_or_default() / 2.0;
            row.iter().copied().zip(offsets.into_iter().map(|offset| offset - middle)).collect()
        })
        .collect();
    for round in 0..ROUNDS {
        for step in 0..rows.len() {
            let at = if round % 2 == 0 { step } else { rows.len() - 1 - step };
            let wanted: Vec<f64> = rows[at]
                .iter()
                .map(|place| {
                    let below = links.below(at, *place).iter().map(|other| middles[at - 1][other]);
                    let above = links.above(at, *place).iter().map(|other| middles[at + 1][other]);
                    let others: Vec<f64> = below.chain(above).collect();
                    let own = middles[at][place];
                    if others.is_empty() { own } else { others.iter().sum::<f64>() / others.len() as f64 }
                })
                .collect();
            let placed = apart(&wanted, &offsets(&rows[at], distance));
            middles[at] = rows[at].iter().copied().zip(placed).collect();
        }
    }
    let leftmost = |row: &Vec<Place>, middles: &BTreeMap<Place, f64>| {
        row.iter().map(|place| middles[place] - width(*place) / 2.0).fold(f64::INFINITY, f64::min)
    };
    let left = rows.iter().zip(&middles).map(|(row, middles)| leftmost(row, middles));
    let left = left.fold(f64::INFINITY, f64::min);
    let moved = |row: &Vec<Place>, middles: &BTreeMap<Place, f64>| {
        row.iter().map(|place| (*place, middles[place] - left)).collect()
    };
    rows.iter().zip(&middles).map(|(row, middles)| moved(row, middles)).collect()
}

/// The middles of a row whose places stand as near to each other as they may.
fn offsets(row: &[Place], distance: impl Fn(Place, Place) -> f64) -> Vec<f64> {
    let mut offset = 0.0;
    let mut offsets = vec![offset; row.len().min(1)];
    for pair in row.windows(2) {
        offset += distance(pair[0], pair[1]);
        offsets.push(offset);
    }
    offsets
}

/// The positions nearest to the wanted ones, by the sum of squares, that are as far apart as the offsets.
fn apart(wanted: &[f64], offsets: &[f64]) -> Vec<f64> {
    // Without their offsets, the positions only must not decrease: blocks that would are joined.
    let mut blocks: Vec<(f64, usize)> = Vec::new();
    for (wanted, offset) in wanted.iter().zip(offsets) {
        let mut block = (wanted - offset, 1);
        while let Some(&(mean, count)) = blocks.last()
            && mean > block.0
        {
            let total = mean * count as f64 + block.0 * block.1 as f64;
            block = (total / (count + block.1) as f64, count + block.1);
            blocks.pop();
        }
        blocks.push(block);
    }
    let means = blocks.iter().flat_map(|(mean, count)| std::iter::repeat_n(*mean, *count));
    means.zip(offsets).map(|(mean, offset)| mean + offset).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_longest_paths_and_places_keep_their_distance() {
        // 3 -> 2 -> 1 -> 0, 3 -> 0, 4 -> 0
        let arrows = [(3, 2), (2, 1), (1, 0), (3, 0), (4, 0)];
        let layout = Layout::new(&[10.0; 5], &arrows, 4.0);
        assert_eq!(layout.row, [0, 1, 2, 3, 1]);
        assert_eq!(layout.rows[1].len(), 3);
        assert_eq!(layout.rows[2].len(), 2);
        for row in &layout.rows {
            for pair in row.windows(2) {
                let half = |place: Place| if matches!(place, Place::Node(_)) { 5.0 } else { 0.0 };
                let distance = half(pair[0].0) + half(pair[1].0) + 4.0;
                assert!(pair[1].1 - pair[0].1 >= distance - 1e-6, "{row:?}");
            }
        }
    }

    #[test]
    fn crossings_are_avoided() {
        // Drawn by their numbers, both arrows would cross.
        let layout = Layout::new(&[10.0; 4], &[(2, 1), (3, 0)], 4.0);
        let at =
            |row: usize, node| layout.rows[row].iter().position(|(place, _)| *place == Place::Node(node));
        assert_eq!(at(0, 1), at(1, 2));
        assert_eq!(at(0, 0), at(1, 3));
    }

    #[test]
    fn positions_are_the_nearest_that_are_apart() {
        assert_eq!(apart(&[0.0, 0.0], &[0.0, 2.0]), [-1.0, 1.0]);
        assert_eq!(apart(&[0.0, 10.0], &[0.0, 2.0]), [0.0, 10.0]);
    }
}
