//! The formats of the events of several channels, which one file describes.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use super::{EventPlan, NameTaken, PlanError, error::InChannel, events::FIRST_ID};
use ftrace_event::name_and_id;
use spec::ChannelSpec;
use tracedat::ledger::buffer_title;

/// The formats of the channels that are planned, each event's once.
#[derive(Debug, Default)]
pub(super) struct Formats {
    systems: Vec<(String, Vec<Described>)>,
    /// Where an event is among them, by its system and name.
    indices: HashMap<(String, String), (usize, usize)>,
}

/// An event as the file describes it.
#[derive(Debug)]
struct Described {
    id: u32,
    text: String,
    /// The channel that records it, if one does; its name.
    recorded_into: Option<String>,
}

/// What the channels before one have.
#[derive(Clone, Debug, Default)]
pub(super) struct Earlier {
    /// Ids of their events.
    pub(super) ids: BTreeSet<u32>,
    /// The id and the format of our own, which are those of probes, by system and name.
    pub(super) own: BTreeMap<(String, String), (u16, String)>,
}

impl Formats {
    /// Those of a file, with the events that have records in it, each with the channel that it is in.
    pub(super) fn of(systems: &[(String, Vec<String>)], recorded: &HashMap<&str, &str>) -> Self {
        let mut formats = Self::default();
        for (system, texts) in systems {
            let of = formats.system(system);
            for text in texts {
                let (name, id) = identity(text);
                let into = recorded.get(format!("{system}:{name}").as_str()).map(|&into| into.to_owned());
                // There is one of each name.
                let _ = formats.add_one(of, name, Described { id, text: text.clone(), recorded_into: into });
            }
        }
        formats
    }

    /// What there is so far.
    pub(super) fn earlier(&self) -> Earlier {
        let mut earlier = Earlier::default();
        for ((system, name), &(of, at)) in &self.indices {
            let Some(known) = self.systems.get(of).and_then(|(_, formats)| formats.get(at)) else { continue };
            earlier.ids.insert(known.id);
            if let Ok(id) = u16::try_from(known.id)
                && id >= FIRST_ID
            {
                earlier.own.insert((system.clone(), name.clone()), (id, known.text.clone()));
            }
        }
        earlier
    }

    /// Adds the formats of a channel's plan.
    ///
    /// # Errors
    /// An event of it is recorded into another channel with other fields: a file has one description of each.
    pub(super) fn add(
        &mut self,
        at: InChannel,
        channel: &ChannelSpec,
        plan: &mut EventPlan,
    ) -> Result<(), PlanError> {
        let recorded: HashSet<&str> = plan.events.iter().map(|event| event.name.as_str()).collect();
        for (system, formats) in std::mem::take(&mut plan.systems) {
            let of = self.system(&system);
            for text in formats {
                let (name, id) = identity(&text);
                let full = format!("{system}:{name}");
                let into = recorded.contains(full.as_str()).then(|| channel.name.clone());
                self.add_one(of, name, Described { id, text, recorded_into: into })
                    .map_err(|conflict| conflict.error(at, &full))?;
            }
        }
        Ok(())
    }

    fn system(&mut self, name: &str) -> usize {
        self.systems.iter().position(|(known, _)| known == name).unwrap_or_else(|| {
            self.systems.push((name.to_owned(), Vec::new()));
            self.systems.len() - 1
        })
    }

    fn add_one(&mut self, of: usize, name: String, event: Described) -> Result<(), Conflict> {
        let (system, formats) = &mut self.systems[of];
        let key = (system.clone(), name);
        let Some(&(_, at)) = self.indices.get(&key) else {
            self.indices.insert(key, (of, formats.len()));
            formats.push(event);
            return Ok(());
        };
        let known = &mut formats[at];
        match (&known.recorded_into, &event.recorded_into) {
            _ if known.text == event.text => {
                known.recorded_into = known.recorded_into.take().or(event.recorded_into);
            }
            _ if known.id != event.id => return Err(Conflict::Name),
            (_, None) => {}
            (None, Some(_)) => *known = event,
            (Some(other), Some(_)) => return Err(Conflict::Fields { other: other.clone() }),
        }
        Ok(())
    }

    /// All of them, by system.
    pub(super) fn into_systems(self) -> Vec<(String, Vec<String>)> {
        let texts = |formats: Vec<Described>| formats.into_iter().map(|event| event.text).collect();
        self.systems.into_iter().map(|(name, formats)| (name, texts(formats))).collect()
    }
}

/// The name and the id of an event.
fn identity(text: &str) -> (String, u32) {
    match name_and_id(text) {
        Some((name, id)) => (name.to_owned(), id),
        // What cannot be understood is stored as it is, once.
        None => (text.to_owned(), u32::MAX),
    }
}

/// Why an event cannot be described.
enum Conflict {
    /// Another event has its name.
    Name,
    /// It has other fields in this channel.
    Fields { other: String },
}

impl Conflict {
    fn error(self, at: InChannel, event: &str) -> PlanError {
        match self {
            Self::Name => at.field("rules", NameTaken::Here(event.to_owned())),
            Self::Fields { other } => {
                let other = buffer_title(&other);
                let why = format!(
                    "{event} is recorded into {other} as well, with other fields, and a file describes an event once: \
                     give it the same contexts in both"
                );
                at.field("rules", &why[..])
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use agent_ebpf::EventSlot;

    use super::*;
    use capture::{Active, CaptureEvent};
    use compile::fast::Lane;

    fn text(name: &str, id: u32, more: &str) -> String {
        format!(
            "name: {name}\nID: {id}\nformat:\n\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\n\
             \tfield:int a;\toffset:8;\tsize:4;\tsigned:1;\n{more}\nprint fmt: \"%d\", REC->a\n"
        )
    }

    /// A plan that records `name` of two events.
    fn plan(recorded: &str, more: &str) -> EventPlan {
        let texts = ["x", "y"].map(|name| {
            let more = if name == recorded { more } else { "" };
            text(name, if name == "x" { 5 } else { 6 }, more)
        });
        let event = CaptureEvent {
            name: format!("s:{recorded}"),
            rule: None,
            slot: EventSlot::default(),
            prints_symbols: false,
            required: true,
            lane: Lane::Generic,
            lane_note: None,
            string_note: None,
            only_fast: false,
            filter: None,
            own: None,
            active: Active::default(),
        };
        EventPlan {
            events: vec![event],
            systems: vec![("s".to_owned(), texts.into())],
            ..EventPlan::default()
        }
    }

    fn channel(name: &str) -> ChannelSpec {
        ChannelSpec { name: name.to_owned(), ..ChannelSpec::default() }
    }

    const MORE: &str = "\tfield:int b;\toffset:12;\tsize:4;\tsigned:1;\n";

    #[test]
    fn an_event_of_several_channels_is_described_once() {
        let mut formats = Formats::default();
        formats.add(InChannel(0), &channel(""), &mut plan("x", "")).unwrap();
        formats.add(InChannel(1), &channel("b"), &mut plan("x", "")).unwrap();
        // Only this one records it, so its fields count.
        formats.add(InChannel(2), &channel("c"), &mut plan("y", MORE)).unwrap();
        formats.add(InChannel(3), &channel("d"), &mut plan("x", "")).unwrap();
        let expected = vec![text("x", 5, ""), text("y", 6, MORE)];
        assert_eq!(formats.earlier().ids, BTreeSet::from([5, 6]));
        assert_eq!(formats.into_systems(), [("s".to_owned(), expected)]);
    }

    #[test]
    fn other_fields_of_one_event_are_refused() {
        let mut formats = Formats::default();
        formats.add(InChannel(0), &channel(""), &mut plan("x", MORE)).unwrap();
        let refused = formats.add(InChannel(1), &channel("b"), &mut plan("x", "")).unwrap_err().to_string();
        assert!(
            refused.contains("channels[1].rules: s:x is recorded into the buffer without a name"),
            "{refused}"
        );
    }
}
