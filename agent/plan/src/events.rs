//! From a selection of events to what a capture needs of them.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
};

use agent_ebpf::{EventSlot, SIDE_RECORD_MAX, slot_flags, with_strings_max};

use super::{
    PlanError, Why,
    formats::Earlier,
    rules::{EventRule, Rules},
    stacks::stack_flags,
};
use capture::{Active, CaptureEvent, CaptureProbe, EventFilter, OwnProgram, OwnStrings};
use compile::context;
use compile::context::{ContextLayout, TooLong};
use compile::dynamic::behind_path;
use compile::fast::{Call, FastLane, Hooks, Lane, Mismatch, strings};
use compile::filter::{Facts, Program, Uncompiled, constant};
use compile::plan::{ProbeEvent, ProbePlan};
use compile::shape::EventShape;
use compile::slot::{SlotError, plan_slot};
use ftrace_event::filter::program::Test;
use ftrace_event::filter::{Filter, ResolveOptions};
use ftrace_event::record::Machine;
use ftrace_event::symbols::NoNames;
use ftrace_event::table::EventTable;
use ftrace_event::{Format, FormatError, Names, name_and_id, resolve_names};
use kernel::events::Selection;
use kernel::tracefs::{EventFormat, Tracefs};
use spec::EventName;
use spec::What;
use spec::{LaneChoice, StringLimit};
use stdx::parallel;

/// The events to record and the formats to store.
#[derive(Debug, Default)]
pub struct EventPlan {
    /// The events.
    pub events: Vec<CaptureEvent>,
    /// The formats of all events of the recorded systems, by system.
    pub systems: Vec<(String, Vec<String>)>,
    /// Events that cannot be recorded because of their format.
    pub unusable: Vec<(EventName, UnusableFormat)>,
    /// Where the fast lane's system call programs are attached, if an event needs them.
    pub hooks: Option<Hooks>,
    /// The probes after the last of the events.
    pub probes: Vec<CaptureProbe>,
    /// The contexts that all events of the channel have, as the format of an event that has nothing else.
    pub shared_contexts: String,
    /// The rules that select the writes to trace_marker, by their indices in the selection; the last one says
    /// what is wanted of them.
    pub(super) trace_marker: Vec<usize>,
    /// What the channels before this one have.
    pub(super) earlier: Earlier,
    /// Events that the channel records already.
    pub(super) recorded: Recorded,
}

/// What a channel records already: the rules of each event, by `system:name`.
pub(super) type Recorded = BTreeMap<String, Vec<Option<What>>>;

/// Ids of our own events begin here: the kernel counts its events from below, and has some thousands.
pub(super) const FIRST_ID: u16 = 20_000;

/// There is another event of a name, or the same.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum NameTaken {
    /// One of this channel, or of the kernel.
    #[error("there is another event {0}; give the probe a name: NAME=...")]
    Here(String),
    /// The channel records this event.
    #[error("{0} is recorded already; remove it first, to record it in another way")]
    Recorded(String),
    /// A probe of another channel, or one that was recorded before, with other fields.
    #[error(
        "there is a probe {0} with other fields in another buffer, or there was, and a file describes an event once: give it \
         the same fields, or another name: NAME=..."
    )]
    OtherFields(String),
}

/// Why an event's format keeps it from being recorded.
#[derive(Debug, thiserror::Error)]
pub enum UnusableFormat {
    /// The text is not a format.
    #[error("its format cannot be read: {0}")]
    Format(#[from] FormatError),
    /// The record is of a shape that the generic lane does not copy.
    #[error(transparent)]
    Slot(#[from] SlotError),
    /// The kernel cannot evaluate its filter.
    #[error("its filter cannot be evaluated in the kernel: {0}")]
    Filter(#[from] Uncompiled),
    /// Its filter can never match, for example because it has none of the fields.
    #[error("the filter `{0}` can never match")]
    NeverHolds(String),
    /// With its contexts it is too long.
    #[error(transparent)]
    Contexts(#[from] TooLong),
    /// Only the fast lane is wanted, and it does not have the event.
    #[error("the fast lane does not have it: {0}")]
    NotFast(String),
}

impl EventPlan {
    /// Reads the formats of the selected events and of everything else in their systems, or in every system
    /// if `all_formats`. The selection is that of the rules of `wanted`; of several that add an event, the
    /// last one says what is wanted of it.
    pub(super) fn make(
        tracefs: &Tracefs,
        selection: &Selection,
        all_formats: bool,
        mut lanes: Lanes<'_>,
        wanted: Wanted<'_>,
    ) -> Result<Self, PlanError> {
        let mut systems: BTreeMap<&str, Vec<EventName>> = BTreeMap::new();
        // The formats of ftrace's own events are in every file.
        for event in selection.events.iter().filter(|event| !event.name.is_ftrace_internal()) {
            systems.entry(event.name.system()).or_default();
        }
        let all = if all_formats { tracefs.event_names().map_err(PlanError::whole)? } else { Vec::new() };
        for name in all.iter().filter(|name| !name.is_ftrace_internal()) {
            systems.entry(name.system()).or_default().push(name.clone());
        }
        let systems: Vec<(&str, Vec<EventName>)> = systems.into_iter().collect();
        let formats_of = |(system, names): &(&str, Vec<EventName>)| {
            if names.is_empty() {
                tracefs.event_formats(&tracefs.events_of_system(system)?)
            } else {
                tracefs.event_formats(names)
            }
        };
        let mut read = Vec::new();
        for ((system, _), formats) in
            systems.iter().zip(parallel::map(&systems, parallel::available(), formats_of))
        {
            read.push((*system, formats.map_err(PlanError::whole)?));
        }
        let formats = read.iter().flat_map(|(_, formats)| formats);
        let chosen: Vec<Chosen<'_>> =
            formats.filter_map(|format| Chosen::find(format, selection, wanted.rules)).collect();
        let tests = resolve(&chosen, wanted.rules)?;
        let mut plan = Self::default();
        let mut extended = BTreeMap::new();
        for Chosen { format, rule, named_by, of_every_thread } in chosen {
            let (_, spec, asked) = wanted.rules.selecting(rule);
            let asked =
                Asked { what: &spec.what, rule: asked, of_every_thread, test: tests.get(&format.name) };
            match plan.add(format, asked, wanted, named_by.is_some(), &mut lanes) {
                Ok(text) => extended.extend(text.map(|text| (format.name.clone(), text))),
                Err(reason) => match named_by {
                    Some(index) => return Err(unusable(wanted.rules, index, &format.name, reason)),
                    None => plan.unusable.push((format.name.clone(), reason)),
                },
            }
        }
        for (system, formats) in read {
            let stored = |format: EventFormat| {
                let text = extended.remove(&format.name).unwrap_or(format.text);
                match resolve_names(&text, wanted.names) {
                    Cow::Owned(resolved) => resolved,
                    Cow::Borrowed(_) => text,
                }
            };
            plan.systems.push((system.to_owned(), formats.into_iter().map(stored).collect()));
        }
        plan.hooks = lanes.fast.ok().and_then(FastLane::into_hooks);
        let marker = selection.events.iter().find(|event| event.name.is_trace_marker());
        plan.trace_marker = marker.map_or_else(Vec::new, |event| event.rules.clone());
        Ok(plan)
    }

    /// Adds a probe: its events get ids, and their formats go where those of their systems are. `what` is
    /// what asks for it, and `rule` what is wanted of it; its filter is part of its programs.
    pub(super) fn add_probe(
        &mut self,
        probe: ProbePlan,
        what: &What,
        rule: &EventRule,
    ) -> Result<(), NameTaken> {
        let first_slot = self.events.len() as u32;
        let mut first_name = None;
        let slot_flags = probe.slot_flags;
        for event in probe.events {
            let (name, id, prints_symbols) = match event {
                ProbeEvent::Own(shape) => {
                    let name = format!("{}:{}", shape.system, shape.name);
                    let (id, text) = self.id_and_text(&name, &shape, what)?;
                    // A text that is no format prints no symbols either.
                    let prints_symbols = Format::parse(&text).is_ok_and(|format| format.prints_symbols());
                    self.add_format(&shape.system, text);
                    (name, id, prints_symbols)
                }
                ProbeEvent::Ftrace { name, id, prints_symbols } => {
                    (format!("ftrace:{name}"), id, prints_symbols)
                }
            };
            first_name.get_or_insert_with(|| name.clone());
            self.events.push(CaptureEvent {
                name,
                rule: Some(what.clone()),
                slot: EventSlot {
                    id,
                    sample: rule.sample.unwrap_or(0),
                    rate: rule.rate.unwrap_or(0),
                    flags: slot_flags | rule.flags | stack_flags(rule),
                    ..EventSlot::default()
                },
                prints_symbols,
                required: true,
                lane: Lane::Probe,
                lane_note: None,
                string_note: None,
                only_fast: false,
                filter: rule.filter.as_ref().map(|filter| EventFilter {
                    text: filter.text().to_owned(),
                    program: Program::default(),
                }),
                own: None,
                active: Active::default(),
            });
        }
        self.probes.push(CaptureProbe {
            name: first_name.unwrap_or_default(),
            first_slot,
            programs: probe.programs,
        });
        Ok(())
    }

    /// The id and the format of a probe's event, `system:name`. Several programs and libraries may have a
    /// marker of one name: it is one event.
    fn id_and_text(&self, name: &str, shape: &EventShape, what: &What) -> Result<(u16, String), NameTaken> {
        let recorded = self.recorded.get(name).into_iter().flatten();
        if !recorded.clone().all(|other| is_same_marker(what, other.as_ref())) {
            return Err(NameTaken::Recorded(name.to_owned()));
        }
        let mut here = self.events.iter().filter(|event| event.name == name).peekable();
        let described = match here.peek() {
            None if self.has_event(&shape.system, &shape.name) => {
                return Err(NameTaken::Here(name.to_owned()));
            }
            None => self
                .earlier
                .own
                .get(&(shape.system.clone(), shape.name.clone()))
                .map(|(id, text)| (*id, text.as_str())),
            Some(event) => {
                let id = event.slot.id;
                if !here.all(|event| is_same_marker(what, event.rule.as_ref())) {
                    return Err(NameTaken::Here(name.to_owned()));
                }
                self.format_of(&shape.system, id).map(|text| (id, text))
            }
        };
        match described {
            None => {
                let id = self.free_id();
                Ok((id, shape.text(id)))
            }
            // The same probe, of which there is one description.
            Some((id, text)) if shape.text(id) == *text => Ok((id, text.to_owned())),
            Some(_) => Err(NameTaken::OtherFields(name.to_owned())),
        }
    }

    fn format_of(&self, system: &str, id: u16) -> Option<&str> {
        let formats =
            self.systems.iter().filter(|(known, _)| known == system).flat_map(|(_, formats)| formats);
        let of = formats.map(String::as_str);
        of.into_iter().find(|text| name_and_id(text).is_some_and(|(_, known)| known == u32::from(id)))
    }

    /// Leaves out events that are recorded already.
    ///
    /// # Errors
    /// A rule names one of them.
    pub(super) fn leave_out(&mut self, recorded: Recorded, rules: &Rules<'_>) -> Result<(), PlanError> {
        if let Some(named) =
            self.events.iter().find(|event| event.required && recorded.contains_key(&event.name))
        {
            return Err(rules.at.field("rules", NameTaken::Recorded(named.name.clone())));
        }
        let marker = EventName::trace_marker();
        if recorded.contains_key(&marker.to_string()) {
            if rules.naming(&self.trace_marker, &marker).is_some() {
                return Err(rules.at.field("rules", NameTaken::Recorded(marker.to_string())));
            }
            self.trace_marker.clear();
        }
        self.events.retain(|event| !recorded.contains_key(&event.name));
        self.recorded = recorded;
        Ok(())
    }

    /// Whether there is an event of this name, or only its format.
    pub(super) fn has_event(&self, system: &str, name: &str) -> bool {
        let formats =
            self.systems.iter().filter(|(known, _)| known == system).flat_map(|(_, formats)| formats);
        formats.filter_map(|text| name_and_id(text)).any(|(known, _)| known == name)
    }

    fn add_format(&mut self, system: &str, text: String) {
        match self.systems.iter_mut().find(|(known, _)| known == system) {
            Some((_, formats)) if formats.contains(&text) => {}
            Some((_, formats)) => formats.push(text),
            None => self.systems.push((system.to_owned(), vec![text])),
        }
    }

    /// An id that no event of the file has: the next own event's.
    pub(super) fn free_id(&self) -> u16 {
        let formats = self.systems.iter().flat_map(|(_, formats)| formats);
        let taken: BTreeSet<u32> = formats.filter_map(|text| name_and_id(text)).map(|(_, id)| id).collect();
        let is_free = |id: u32| !taken.contains(&id) && !self.earlier.ids.contains(&id);
        (FIRST_ID..u16::MAX).find(|&id| is_free(id.into())).unwrap_or(u16::MAX)
    }

    /// Adds an event. Gives the text of its format if that is not the kernel's, but has contexts or copies of
    /// strings.
    fn add(
        &mut self,
        format: &EventFormat,
        Asked { what, rule, of_every_thread, test }: Asked<'_>,
        Wanted { facts, strings, .. }: Wanted<'_>,
        required: bool,
        lanes: &mut Lanes<'_>,
    ) -> Result<Option<String>, UnusableFormat> {
        let name = &format.name;
        let parsed = Format::parse(&format.text)?;
        let text = || rule.filter.as_ref().map_or("", Filter::text).to_owned();
        // A filter that always holds is none.
        let test = test.filter(|test| constant(test) != Some(true));
        if let Some(test) = test
            && constant(test) == Some(false)
        {
            return Err(UnusableFormat::NeverHolds(text()));
        }
        let facts = &facts.of_event(&plan_slot(name.system(), name.name(), &parsed)?);
        let filter = test
            .map(|test| Program::compile(test, parsed.id, facts))
            .transpose()?
            .map(|program| EventFilter { text: text(), program });
        let Described { text: extended, format: recorded, mut slot, contexts, call, string_note } =
            Described::of(format, &parsed, rule, strings, facts)?;
        slot.sample = rule.sample.unwrap_or(0);
        slot.rate = rule.rate.unwrap_or(0);
        let (lane, lane_note) = lanes.choose(name, &recorded, test.map(|test| (test, facts)), &contexts)?;
        let filter_program = filter.as_ref().map(|filter| &filter.program);
        let program = |strings| context::program(name.name(), &slot, &contexts, filter_program, strings);
        let copied = call.filter(|_| matches!(lane, Lane::Generic));
        let own = if let Some(call) = copied {
            // Without the programs of all calls, what is not resident at the entry stays unavailable.
            let _ = lanes.fast.as_mut().map(FastLane::find_hooks);
            let without = program(None)?;
            Some(OwnProgram {
                program: program(context::Strings::of(call, strings))?,
                strings: Some(OwnStrings { call, without }),
            })
        } else if rule.contexts.is_empty() {
            None
        } else {
            Some(OwnProgram { program: program(None)?, strings: None })
        };
        slot.flags |= rule.flags | stack_flags(rule);
        if of_every_thread {
            slot.flags |= slot_flags::EVERY_THREAD;
        }
        self.events.push(CaptureEvent {
            name: name.to_string(),
            rule: Some(what.clone()),
            slot,
            prints_symbols: parsed.prints_symbols(),
            required,
            lane,
            lane_note,
            string_note,
            only_fast: lanes.choice == LaneChoice::Fast,
            filter,
            own,
            active: Active::default(),
        });
        Ok(extended)
    }
}

/// Whether two rules are about a marker of the same provider and name, of two programs or libraries.
fn is_same_marker(what: &What, other: Option<&What>) -> bool {
    let (What::Usdt(one), Some(What::Usdt(other))) = (what, other) else { return false };
    // A name or arguments make it another event.
    let marker = |text| {
        let marker: Option<&str> = behind_path(text);
        marker.filter(|marker| !marker.contains(|one: char| one == '=' || one.is_whitespace()))
    };
    one != other && marker(one).is_some_and(|one| Some(one) == marker(other))
}

/// How an event is described, and its record laid out.
struct Described {
    /// The text of its format, if that is not the kernel's.
    text: Option<String>,
    /// The same, parsed.
    format: Format,
    slot: EventSlot,
    contexts: ContextLayout,
    /// The system call whose strings the record has.
    call: Option<Call>,
    /// Why it has none, although they are wanted.
    string_note: Option<String>,
}

impl Described {
    /// With the strings that a system call is given, if they are wanted and the record has room for them.
    fn of(
        event: &EventFormat,
        parsed: &Format,
        rule: &EventRule,
        strings: StringLimit,
        facts: &Facts,
    ) -> Result<Self, UnusableFormat> {
        let name = &event.name;
        let mut string_note = None;
        if name.system() == "syscalls" && !strings.is_off() {
            let text = strings::extend_text(name.name(), &event.text, parsed);
            let format = text.as_ref().map_or_else(|| Ok(parsed.clone()), |text| Format::parse(text))?;
            match strings::call_with_strings(name.name(), &format) {
                Ok(None) => {}
                Ok(call) => {
                    let described = Self::laid_out(event, (text, format), rule, call, facts)?;
                    let len = with_strings_max(described.contexts.end(), strings.bytes());
                    if len as usize <= SIDE_RECORD_MAX {
                        return Ok(described);
                    }
                    let why = format!(
                        "with its contexts it takes {len} bytes, and a program writes at most {SIDE_RECORD_MAX}"
                    );
                    string_note = Some(why);
                }
                Err(mismatch) => string_note = Some(mismatch.to_string()),
            }
        }
        let described = Self::laid_out(event, (None, parsed.clone()), rule, None, facts)?;
        Ok(Self { string_note, ..described })
    }

    /// With contexts after what it has in this format.
    fn laid_out(
        event: &EventFormat,
        (mut text, mut format): (Option<String>, Format),
        rule: &EventRule,
        call: Option<Call>,
        facts: &Facts,
    ) -> Result<Self, UnusableFormat> {
        let slot = plan_slot(event.name.system(), event.name.name(), &format)?;
        // Strings follow the contexts, and the kernel has nothing before them.
        let from = if call.is_some() { slot.fields_end.into() } else { contexts_at(&slot) };
        let contexts = rule.contexts.lay_out(from, true, facts);
        if !rule.contexts.is_empty() {
            let with = contexts.extend_text(text.as_ref().unwrap_or(&event.text));
            format = Format::parse(&with)?;
            text = Some(with);
        }
        Ok(Self { text, format, slot, contexts, call, string_note: None })
    }
}

/// Where an event's contexts begin: after its last field, or what the kernel has as the record of a system
/// call.
fn contexts_at(slot: &EventSlot) -> u32 {
    let is_call = slot.flags & slot_flags::SYSCALL != 0;
    if is_call { slot.fixed_len.max(slot.fields_end).into() } else { slot.fields_end.into() }
}

/// What is wanted of the events of a selection.
#[derive(Clone, Copy)]
pub(super) struct Wanted<'a> {
    /// By rule.
    pub rules: &'a Rules<'a>,
    /// What filters need to know.
    pub facts: &'a Facts,
    /// The values of names in formats, which are stored with these.
    pub names: &'a dyn Names,
    /// What is recorded of strings that system calls are given.
    pub strings: StringLimit,
}

/// What asks for an event, and what is wanted of it.
#[derive(Clone, Copy)]
struct Asked<'a> {
    what: &'a What,
    rule: &'a EventRule,
    /// Whether any rule wants it of every thread.
    of_every_thread: bool,
    /// The rule's filter, made for the event.
    test: Option<&'a Test>,
}

/// An event of the selection.
struct Chosen<'a> {
    format: &'a EventFormat,
    /// The rule that says what is wanted of it, by its index in the selection.
    rule: usize,
    /// A rule that names it.
    named_by: Option<usize>,
    /// Whether any rule wants it of every thread.
    of_every_thread: bool,
}

impl<'a> Chosen<'a> {
    fn find(format: &'a EventFormat, selection: &Selection, rules: &Rules<'_>) -> Option<Self> {
        let found = selection.events.binary_search_by(|event| event.name.cmp(&format.name)).ok()?;
        let chosen_by = &selection.events[found].rules;
        let named_by = rules.naming(chosen_by, &format.name);
        let of_every_thread = chosen_by.iter().any(|index| rules.selecting(*index).1.every_thread);
        Some(Self { format, rule: *chosen_by.last()?, named_by, of_every_thread })
    }
}

fn unusable(rules: &Rules<'_>, index: usize, name: &EventName, reason: UnusableFormat) -> PlanError {
    let (number, spec, _) = rules.selecting(index);
    rules.at.rule(number, spec, Why::Unusable { name: name.clone(), reason })
}

/// Makes each filter for its events, together: a field has to be in one of them. Optional rules do without
/// events that it does not fit.
fn resolve(chosen: &[Chosen<'_>], rules: &Rules<'_>) -> Result<BTreeMap<EventName, Test>, PlanError> {
    let mut of_rules: BTreeMap<usize, Vec<&Chosen<'_>>> = BTreeMap::new();
    for one in chosen {
        of_rules.entry(one.rule).or_default().push(one);
    }
    let mut tests = BTreeMap::new();
    for (index, chosen) in of_rules {
        let (number, spec, rule) = rules.selecting(index);
        let Some(filter) = &rule.filter else { continue };
        let mut table = EventTable::new(Machine::default());
        let mut names = BTreeMap::new();
        for Chosen { format, .. } in chosen {
            // What cannot be read is reported with the event.
            if let Ok(printer) = table.add(format.name.system(), &format.text, &NoNames) {
                names.insert(printer.format().id, &format.name);
            }
        }
        if table.is_empty() {
            continue;
        }
        let options = ResolveOptions { unknown_fields: spec.optional, mismatches: spec.optional, live: true };
        let resolved =
            filter.resolve(&table, options).map_err(|error| rules.at.of_rule(number, "filter", error))?;
        for (id, name) in names {
            if let Some(test) = resolved.test(id) {
                tests.insert(name.clone(), test.clone());
            }
        }
    }
    Ok(tests)
}

/// Which lane events may take.
#[derive(Debug)]
pub(super) struct Lanes<'a> {
    /// What is wanted.
    pub choice: LaneChoice,
    /// The fast lane, or why there is none.
    pub fast: Result<FastLane<'a>, String>,
}

impl Lanes<'_> {
    /// An event's lane, and why it is not the fast one where that is worth knowing.
    fn choose(
        &mut self,
        name: &EventName,
        format: &Format,
        filter: Option<(&Test, &Facts)>,
        contexts: &ContextLayout,
    ) -> Result<(Lane, Option<String>), UnusableFormat> {
        if self.choice == LaneChoice::Generic {
            return Ok((Lane::Generic, None));
        }
        let refused = match &mut self.fast {
            Ok(fast) => match fast.plan(name.system(), name.name(), format, filter, contexts) {
                Ok(event) => return Ok((Lane::Fast(event), None)),
                Err(mismatch) => mismatch,
            },
            Err(reason) if self.choice == LaneChoice::Fast => {
                return Err(UnusableFormat::NotFast(reason.clone()));
            }
            Err(_) => return Ok((Lane::Generic, None)),
        };
        if self.choice == LaneChoice::Fast {
            return Err(UnusableFormat::NotFast(refused.to_string()));
        }
        let note = !matches!(refused, Mismatch::NotDescribed);
        Ok((Lane::Generic, note.then(|| refused.to_string())))
    }
}
