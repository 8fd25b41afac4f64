//! Files of speedscope.

use std::collections::HashMap;
use std::io::{self, Write};

use serde::Serialize;

use super::name::line;
use super::{Difference, FlameStacks, Frame, Kind, Unit};

/// What names the format (file-format-schema.json, `$schema` and `exporter`).
const SCHEMA: &str = "https://www.speedscope.app/file-format-schema.json";
const EXPORTER: &str = concat!("tracer-agent@", env!("CARGO_PKG_VERSION"));

#[derive(Serialize)]
struct File<'s> {
    #[serde(rename = "$schema")]
    schema: &'static str,
    exporter: &'static str,
    name: String,
    #[serde(rename = "activeProfileIndex")]
    active_profile_index: usize,
    shared: Shared<'s>,
    profiles: Vec<Profile>,
}

#[derive(Serialize)]
struct Shared<'s> {
    frames: Vec<Named<'s>>,
}

#[derive(Serialize)]
struct Named<'s> {
    name: &'s str,
    /// Viewers colour frames by their files.
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<&'static str>,
}

/// A profile of the kind `sampled`.
#[derive(Serialize)]
struct Profile {
    r#type: &'static str,
    name: String,
    unit: &'static str,
    #[serde(rename = "startValue")]
    start_value: u64,
    #[serde(rename = "endValue")]
    end_value: u64,
    samples: Vec<Vec<usize>>,
    weights: Vec<u64>,
}

/// One profile.
pub(super) fn write(stacks: &FlameStacks, out: &mut dyn Write) -> io::Result<()> {
    let mut frames = Frames::default();
    let profiles = vec![frames.profile(stacks, |weight| weight)];
    file(stacks, frames, profiles, out)
}

/// Two profiles, of before and of now.
pub(super) fn write_difference(of: &Difference<'_>, out: &mut dyn Write) -> io::Result<()> {
    let mut frames = Frames::default();
    let mut profiles = Vec::new();
    for (stacks, is_before) in [(of.before, true), (of.now, false)] {
        let mut profile = frames.profile(stacks, |weight| if is_before { of.scaled(weight) } else { weight });
        profile.name = format!("{}: {}", if is_before { "before" } else { "now" }, profile.name);
        profiles.push(profile);
    }
    file(of.now, frames, profiles, out)
}

fn file(
    stacks: &FlameStacks,
    frames: Frames<'_>,
    profiles: Vec<Profile>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let file = File {
        schema: SCHEMA,
        exporter: EXPORTER,
        name: line(stacks.title()),
        active_profile_index: profiles.len().saturating_sub(1),
        shared: Shared { frames: frames.all },
        profiles,
    };
    serde_json::to_writer(&mut *out, &file)?;
    writeln!(out)
}

/// Frames that profiles share.
#[derive(Default)]
struct Frames<'s> {
    all: Vec<Named<'s>>,
    numbers: HashMap<Frame<'s>, usize>,
}

impl<'s> Frames<'s> {
    fn number(&mut self, frame: Frame<'s>) -> usize {
        *self.numbers.entry(frame).or_insert_with(|| {
            let file = match frame.kind {
                Kind::Kernel => Some("kernel"),
                Kind::Thread => Some("thread"),
                Kind::User | Kind::Mark => None,
            };
            self.all.push(Named { name: frame.name, file });
            self.all.len() - 1
        })
    }

    fn profile(&mut self, stacks: &'s FlameStacks, weight_of: impl Fn(u128) -> u128) -> Profile {
        let (mut samples, mut weights) = (Vec::new(), Vec::new());
        for (frames, weight) in stacks.sorted() {
            samples.push(frames.into_iter().map(|frame| self.number(frame)).collect());
            weights.push(u64::try_from(weight_of(weight)).unwrap_or(u64::MAX));
        }
        Profile {
            r#type: "sampled",
            name: line(stacks.title()),
            // What there are (`ValueUnit`).
            unit: match stacks.unit() {
                Unit::Nanoseconds => "nanoseconds",
                unit if unit.is_bytes() => "bytes",
                _ => "none",
            },
            start_value: 0,
            end_value: weights.iter().fold(0, |sum: u64, weight| sum.saturating_add(*weight)),
            samples,
            weights,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::Format;
    use super::*;

    #[test]
    fn stacks_are_lists_of_frames() {
        let frame = |kind, name| Frame { kind, name };
        let mut stacks = FlameStacks::new("t\n", Unit::Nanoseconds);
        stacks.add([frame(Kind::Thread, "p"), frame(Kind::User, "main"), frame(Kind::Kernel, "read")], 30);
        stacks.add([frame(Kind::Thread, "p"), frame(Kind::User, "main")], u64::MAX);
        let mut out = Vec::new();
        Format::Speedscope.write(&stacks, &mut out).unwrap();
        let file: Value = serde_json::from_slice(&out).unwrap();
        assert_eq!(
            file["shared"]["frames"],
            json!([{ "name": "p", "file": "thread" }, { "name": "main" }, { "name": "read", "file": "kernel" }])
        );
        let profile = &file["profiles"][0];
        assert_eq!(profile["samples"], json!([[0, 1], [0, 1, 2]]));
        assert_eq!(profile["weights"], json!([u64::MAX, 30]));
        assert_eq!((&profile["unit"], &profile["name"]), (&json!("nanoseconds"), &json!("t?")));
        assert_eq!(profile["endValue"], json!(u64::MAX));
    }

    #[test]
    fn a_difference_is_two_profiles() {
        let mut before = FlameStacks::new("old", Unit::Field("bytes_alloc".to_owned()));
        before.add([Frame { kind: Kind::User, name: "\"</script>\u{1}" }], 5);
        let mut now = FlameStacks::new("new", Unit::Field("bytes_alloc".to_owned()));
        now.add([Frame { kind: Kind::User, name: "\"</script>\u{1}" }], 15);
        let mut out = Vec::new();
        let of = Difference { before: &before, now: &now, is_normalized: true };
        Format::Speedscope.write_difference(&of, &mut out).unwrap();
        let file: Value = serde_json::from_slice(&out).unwrap();
        assert_eq!(file["shared"]["frames"], json!([{ "name": "\"</script>?" }]));
        assert_eq!(file["profiles"][0]["name"], "before: old");
        assert_eq!(file["profiles"][1]["name"], "now: new");
        assert_eq!(
            (&file["profiles"][0]["weights"], &file["profiles"][0]["unit"]),
            (&json!([15]), &json!("bytes"))
        );
        assert_eq!(file["activeProfileIndex"], 1);
    }
}
