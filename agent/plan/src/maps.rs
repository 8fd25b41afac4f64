//! Maps that events are counted in.

use agent_ebpf::EventSlot;

use super::{Kernel, PlanError, Why, error::InMap, events::FIRST_ID, rules::rule_flags};
use ::kernel::features;
use capture::{
    Active, CaptureEvent, CaptureProbe, ChannelOptions, EventFilter, MapOptions, program_function,
};
use compile::aggregate;
use compile::aggregate::{CountError, Counter, Question, Resolved, Role, Sizes, Target};
use compile::context::Contexts;
use compile::dynamic::{Environment, Planned, kernel, usdt, user};
use compile::fast::{FastLane, Lane};
use compile::filter::{FAST_TEXT_MAX, Facts, Program, TEXT_MAX, constant};
use compile::plan::{ProbeEvent, ProbePlan};
use compile::probe_filter::ProbeRule;
use compile::slot::plan_slot;
use ftrace_event::filter::{Dialect, Filter, ResolveOptions};
use ftrace_event::record::Machine;
use ftrace_event::{EventTable, Format, NoNames};
use spec::{EventName, EventSelector};
use spec::{FilterLanguage, MapSpec, RuleSpec, What};

/// The most memory of a map's values.
const BYTES_MAX: u64 = 1 << 30;

/// An event of a map.
struct Side {
    event: CaptureEvent,
    probe: Option<CaptureProbe>,
    resolved: Resolved,
}

/// What is asked of an event of a map.
struct Asked<'a> {
    at: InMap<'a>,
    /// The field of the map that it is.
    field: &'static str,
    spec: &'a RuleSpec,
    filter: Option<Filter>,
    question: Question,
    facts: &'a Facts,
}

impl Asked<'_> {
    fn refuse(&self, why: impl Into<Why>) -> PlanError {
        self.at.field(self.field, why)
    }

    fn wrong(&self, why: String) -> PlanError {
        self.refuse(Why::Wrong(why))
    }
}

impl Kernel<'_> {
    /// The map of this number.
    pub(super) fn map(
        &self,
        at: InMap<'_>,
        spec: &MapSpec,
        facts: &Facts,
        cpus: u32,
        notes: &mut Vec<String>,
    ) -> Result<MapOptions, PlanError> {
        let role = if spec.from.is_some() { Role::Ends } else { Role::Counted };
        let counted = self.side(&asked(at, spec, role, facts)?, notes)?;
        let began = match &spec.from {
            Some(_) => Some(self.side(&asked(at, spec, Role::Begins, facts)?, notes)?),
            None => None,
        };
        if let Some(began) = &began {
            began.resolved.check_pair(&counted.resolved).map_err(|error| at.field("pair", error))?;
        }
        let sizes = Sizes {
            keys: if spec.by.is_empty() { 1 } else { spec.keys() },
            key_words: counted.resolved.key_words() as u32,
            value_words: program_function(spec.function).words() as u32,
            pair_words: counted.resolved.pair_words() as u32,
        };
        let bytes = sizes.bytes(cpus);
        if bytes > BYTES_MAX {
            let why = format!(
                "{} keys of {} bytes of values on each of {cpus} CPUs take {} MB, and a map has {} MB at most; use \
                 fewer keys",
                sizes.keys,
                u64::from(sizes.value_words) * size_of::<u64>() as u64,
                bytes >> 20,
                BYTES_MAX >> 20
            );
            return Err(at.field("max_keys", Why::Wrong(why)));
        }
        let is_signed = counted.resolved.is_signed();
        let kinds = counted.resolved.key_kinds();
        let (mut events, mut probes) = (Vec::new(), Vec::new());
        for side in std::iter::once(counted).chain(began) {
            let first_slot = events.len() as u32;
            probes.extend(side.probe.map(|probe| CaptureProbe { first_slot, ..probe }));
            events.push(side.event);
        }
        let channel = ChannelOptions::of_map(events, probes, sizes);
        Ok(MapOptions { spec: spec.clone(), kinds, is_signed, sizes, channel })
    }

    fn side(&self, asked: &Asked<'_>, notes: &mut Vec<String>) -> Result<Side, PlanError> {
        match &asked.spec.what {
            What::Events(selector) => self.tracepoint(asked, selector),
            _ => self.probe(asked, notes),
        }
    }

    /// The one event that a selector means.
    fn tracepoint(&self, asked: &Asked<'_>, selector: &EventSelector) -> Result<Side, PlanError> {
        let mut found = self.catalogue.matching(selector);
        let name = match (found.next(), found.next()) {
            (Some(entry), None) => entry.name.clone(),
            (None, _) => {
                let rule = ::kernel::events::Rule::include(selector.clone());
                self.catalogue.select(&[rule], false).map_err(|error| asked.refuse(error))?;
                return Err(asked.wrong(format!("this kernel has no event {selector}")));
            }
            (Some(_), Some(_)) => {
                return Err(
                    asked.wrong(format!("{selector} means several events, and a map counts one: name it"))
                );
            }
        };
        self.of_tracepoint(asked, &name)
    }

    fn of_tracepoint(&self, asked: &Asked<'_>, name: &EventName) -> Result<Side, PlanError> {
        if name.is_ftrace_internal() {
            return Err(asked.wrong(format!("a map cannot count {name}, which has no tracepoint")));
        }
        let described = self.tracefs.event_format(name).map_err(|error| asked.refuse(error))?;
        let unusable = |error: &dyn std::fmt::Display| asked.wrong(format!("cannot count {name}: {error}"));
        let format = Format::parse(&described.text).map_err(|error| unusable(&error))?;
        let mut slot = plan_slot(name.system(), name.name(), &format).map_err(|error| unusable(&error))?;
        slot.sample = asked.spec.sample.unwrap_or(0);
        slot.rate = asked.spec.rate.unwrap_or(0);
        slot.flags |= rule_flags(asked.spec);
        let facts = &asked.facts.of_event(&slot);
        let mut table = EventTable::new(Machine::default());
        table.add(name.system(), &described.text, &NoNames).map_err(|error| unusable(&error))?;
        let options = ResolveOptions { live: true, ..ResolveOptions::default() };
        let test = match &asked.filter {
            Some(filter) => {
                let resolved = filter.resolve(&table, options).map_err(|error| asked.refuse(error))?;
                let test = resolved.test(format.id).cloned();
                test.filter(|test| constant(test) != Some(true))
            }
            None => None,
        };
        if test.as_ref().is_some_and(|test| constant(test) == Some(false)) {
            return Err(asked.wrong("its filter can never match".to_owned()));
        }
        let resolved = asked.question.resolve(&table, format.id).map_err(|error| asked.refuse(error))?;
        let counter = |text_max| {
            let preemptible = features::tracepoints_are_preemptible();
            let target = Target { id: format.id, facts, text_max, preemptible };
            Counter::compile(&resolved, target).map_err(CountError::from).map_err(|error| asked.refuse(error))
        };
        let compile = |of: fn(_, _, _) -> _| {
            let compiled = test.as_ref().map(|test| of(test, format.id, facts)).transpose();
            compiled.map_err(|error| unusable(&error))
        };
        let filter = compile(Program::compile)?;
        let own = aggregate::program(name.name(), &slot, filter.as_ref(), counter(TEXT_MAX)?)
            .ok_or_else(|| asked.wrong("its program would be too long".to_owned()))?;
        let lane = match self.btf.ok().and_then(|btf| FastLane::new(btf).ok()) {
            Some(mut fast) => {
                let filter = compile(Program::compile_fast)?;
                let planned = fast.plan_counting(
                    name.system(),
                    name.name(),
                    &format,
                    filter.as_ref(),
                    &counter(FAST_TEXT_MAX)?,
                );
                planned.map_or(Lane::Generic, Lane::Fast)
            }
            None => Lane::Generic,
        };
        let text = asked.filter.as_ref().map(|filter| filter.text().to_owned());
        let event = CaptureEvent {
            name: name.to_string(),
            rule: Some(asked.spec.what.clone()),
            slot,
            prints_symbols: false,
            required: true,
            lane,
            lane_note: None,
            string_note: None,
            only_fast: false,
            filter: text.zip(filter).map(|(text, program)| EventFilter { text, program }),
            own: Some(capture::OwnProgram { program: own, strings: None }),
            active: Active::default(),
        };
        Ok(Side { event, probe: None, resolved })
    }

    fn probe(&self, asked: &Asked<'_>, notes: &mut Vec<String>) -> Result<Side, PlanError> {
        let contexts = Contexts::default();
        let rule = ProbeRule {
            filter: asked.filter.as_ref(),
            question: Some(&asked.question),
            contexts: &contexts,
            facts: asked.facts,
            id: FIRST_ID,
            force: asked.spec.force,
        };
        let environment = Environment::of_kernel(self.btf, self.processes.clone());
        let planned: Planned = match &asked.spec.what {
            What::Uprobe(text) => user::probes(text, false, &environment, &rule, &|_, _| false),
            What::Uretprobe(text) => user::probes(text, true, &environment, &rule, &|_, _| false),
            What::Usdt(text) => {
                usdt::probes(text, asked.spec.known.get(), &environment, &rule, &|_, _| false)
            }
            What::Kprobe(text) | What::Kretprobe(text) => {
                let returns = matches!(asked.spec.what, What::Kretprobe(_));
                let functions = kernel::KernelFunctions::read().map_err(|error| asked.refuse(error))?;
                kernel::probe(text, returns, &environment, &functions, self.tracefs, &rule).map(Planned::from)
            }
            other => return Err(asked.wrong(format!("a map cannot count {}", other.kind()))),
        }
        .map_err(|error| asked.refuse(error))?;
        notes.extend(planned.told());
        let mut probes = planned.probes;
        let (Some(ProbePlan { events, programs, slot_flags }), None) = (probes.pop(), probes.pop()) else {
            return Err(asked.wrong(
                "it means several functions or markers, and a map counts one event: \
                 give it a name, NAME=..., to count all of them as one"
                    .to_owned(),
            ));
        };
        let [ProbeEvent::Own(shape)] = events.as_slice() else {
            return Err(asked.wrong("it is no probe of one event".to_owned()));
        };
        let mut table = EventTable::new(Machine::default());
        table
            .add(&shape.system, &shape.text(rule.id), &NoNames)
            .map_err(|error| asked.wrong(error.to_string()))?;
        let resolved = asked.question.resolve(&table, rule.id).map_err(|error| asked.refuse(error))?;
        let name = format!("{}:{}", shape.system, shape.name);
        let event = CaptureEvent {
            name: name.clone(),
            rule: Some(asked.spec.what.clone()),
            slot: EventSlot {
                id: rule.id,
                sample: asked.spec.sample.unwrap_or(0),
                rate: asked.spec.rate.unwrap_or(0),
                flags: slot_flags | rule_flags(asked.spec),
                ..EventSlot::default()
            },
            prints_symbols: false,
            required: true,
            lane: Lane::Probe,
            lane_note: None,
            string_note: None,
            only_fast: false,
            filter: None,
            own: None,
            active: Active::default(),
        };
        Ok(Side { event, probe: Some(CaptureProbe { name, first_slot: 0, programs }), resolved })
    }
}

/// What a map asks of one of its events.
fn asked<'a>(at: InMap<'a>, map: &'a MapSpec, role: Role, facts: &'a Facts) -> Result<Asked<'a>, PlanError> {
    let (field, spec) = match (role, &map.from) {
        (Role::Begins, Some(from)) => ("from", from),
        _ => ("event", &map.event),
    };
    let dialect = match spec.language {
        FilterLanguage::Ftrace => Dialect::Ftrace,
        FilterLanguage::Lttng => Dialect::Lttng,
    };
    let parse = |field, text: &str, dialect| {
        Filter::parse_expression(text, dialect).map_err(|error| at.field(field, error))
    };
    let filter = spec.filter.as_ref().map(|text| parse(field, text, dialect)).transpose()?;
    let all = |field, texts: Vec<&String>| {
        texts.into_iter().map(|text| parse(field, text, Dialect::Ftrace)).collect::<Result<Vec<_>, _>>()
    };
    let begins = role == Role::Begins;
    let pair = map.pair.iter().map(|pair| if begins { &pair.from } else { &pair.to }).collect();
    let question = Question {
        role,
        pair: all("pair", pair)?,
        keys: if begins { Vec::new() } else { all("by", map.by.iter().collect())? },
        value: match &map.field {
            Some(text) if !begins => Some(parse("field", text, Dialect::Ftrace)?),
            _ => None,
        },
        function: program_function(map.function),
    };
    Ok(Asked { at, field, spec, filter, question, facts })
}

#[cfg(test)]
mod tests {
    use super::*;
    use compile::aggregate::Function;
    use spec::Field;
    use spec::TraceClock;

    fn texts(filters: &[Filter]) -> Vec<&str> {
        filters.iter().map(Filter::text).collect()
    }

    #[test]
    fn each_event_of_a_time_is_asked_for_its_own() {
        let facts = Facts::new(TraceClock::Mono, None);
        let map = MapSpec::of_times(
            "max of sched_waking: prio < 100 -> sched_switch: next_pid != 7 key pid=next_pid,$cpu by next_comm",
        )
        .unwrap();
        let at = InMap(3, "waits");
        let ends = asked(at, &map, Role::Ends, &facts).unwrap();
        assert_eq!((ends.field, ends.filter.as_ref().map(Filter::text)), ("event", Some("next_pid != 7")));
        assert_eq!(texts(&ends.question.pair), ["next_pid", "$cpu"]);
        assert_eq!(texts(&ends.question.keys), ["next_comm"]);
        assert!(ends.question.value.is_none(), "the time is the value");
        assert_eq!(ends.question.function, Function::Numbers { sum: false, least: false, most: true });
        let begins = asked(at, &map, Role::Begins, &facts).unwrap();
        assert_eq!((begins.field, begins.filter.as_ref().map(Filter::text)), ("from", Some("prio < 100")));
        assert_eq!(texts(&begins.question.pair), ["pid", "$cpu"]);
        assert!(begins.question.keys.is_empty());
    }

    /// What makes a map one that cannot be read.
    type Spoil = fn(&mut MapSpec);

    #[test]
    fn what_cannot_be_read_is_told_with_its_place() {
        let facts = Facts::new(TraceClock::Mono, None);
        let good = || MapSpec::of_events("sum(ret) of raw_syscalls:sys_exit: id == 1 by $comm").unwrap();
        let question = asked(InMap(0, ""), &good(), Role::Counted, &facts).unwrap().question;
        assert_eq!(question.value.as_ref().map(Filter::text), Some("ret"));
        let spoil: [(&str, Spoil); 3] = [
            ("event", |map| map.event.filter = Some("id ==".to_owned())),
            ("by", |map| map.by.push("$comm +".to_owned())),
            ("field", |map| map.field = Some("(ret".to_owned())),
        ];
        for (place, spoil) in spoil {
            let mut map = good();
            spoil(&mut map);
            let error = asked(InMap(5, "calls"), &map, Role::Counted, &facts).map(drop).unwrap_err();
            let Field::OfMap { map: 5, text, name } = error.at else { panic!("{:?}", error.at) };
            assert_eq!((text.as_str(), name), ("calls", place));
        }
    }
}
