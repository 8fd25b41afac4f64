//! What babeltrace2 prints, and what is reported of an import, event by event.

use std::collections::BTreeMap;
use std::path::Path;

use integration_tests::babeltrace;
use integration_tests::harness::reported;
use serde_json::Value as Json;

/// A value that babeltrace2 prints.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Printed {
    Number(i128),
    Float(f64),
    Text(String),
    List(Vec<Printed>),
    Fields(Vec<(String, Printed)>),
}

/// An event that babeltrace2 prints.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub(crate) time: u64,
    pub(crate) name: String,
    pub(crate) cpu: u64,
    /// Contexts of the stream and of the event.
    pub(crate) context: Vec<(String, Printed)>,
    pub(crate) fields: Vec<(String, Printed)>,
}

/// A place in a line.
struct Rest<'l>(&'l str);

impl Rest<'_> {
    fn take(&mut self, sign: &str) -> bool {
        let rest = self.0.strip_prefix(sign);
        self.0 = rest.unwrap_or(self.0);
        rest.is_some()
    }

    fn expect(&mut self, sign: &str) {
        assert!(self.take(sign), "{sign:?} is expected before {:?}", self.0);
    }

    fn until(&mut self, sign: &str) -> String {
        let (found, rest) = self.0.split_once(sign).unwrap_or_else(|| panic!("no {sign:?} in {:?}", self.0));
        self.0 = rest;
        found.to_owned()
    }

    /// `{ a = 1, b = "x" }`
    fn fields(&mut self) -> Vec<(String, Printed)> {
        let mut fields = Vec::new();
        self.expect("{ ");
        if self.take("}") {
            return fields;
        }
        loop {
            let name = self.until(" = ");
            fields.push((name, self.value()));
            if !self.take(", ") {
                self.expect(" }");
                return fields;
            }
        }
    }

    fn is_number_in_braces(&self) -> bool {
        self.0
            .strip_prefix("{ ")
            .is_some_and(|rest| rest.starts_with(|c: char| c == '-' || c.is_ascii_digit()))
    }

    fn value(&mut self) -> Printed {
        if self.0.starts_with("{ {") || self.0.starts_with("{ \"") || self.is_number_in_braces() {
            // Of a variant, the value alone is printed.
            self.expect("{ ");
            let value = self.value();
            self.expect(" }");
            return value;
        }
        if self.0.starts_with('{') {
            return Printed::Fields(self.fields());
        }
        if self.take("\"") {
            return Printed::Text(self.text());
        }
        if self.take("[ ") {
            let mut list = Vec::new();
            while !self.take("]") {
                self.expect(&format!("[{}] = ", list.len()));
                list.push(self.value());
                self.expect(if self.0.starts_with(',') { ", " } else { " " });
            }
            return Printed::List(list);
        }
        if self.take("( ") {
            // `( "label" : container = 5 )`
            let _ = self.until(" : container = ");
            let value = self.value();
            self.expect(" )");
            return value;
        }
        let end = self.0.find([',', ' ', ')']).unwrap_or(self.0.len());
        let (number, rest) = self.0.split_at(end);
        self.0 = rest;
        if let Some(hex) = number.strip_prefix("0x") {
            return Printed::Number(u64::from_str_radix(hex, 16).unwrap().into());
        }
        number.parse().map_or_else(|_| Printed::Float(number.parse().unwrap()), Printed::Number)
    }

    fn text(&mut self) -> String {
        let (mut text, mut chars) = (String::new(), self.0.char_indices());
        loop {
            match chars.next().unwrap() {
                (at, '"') => {
                    self.0 = &self.0[at + 1..];
                    return text;
                }
                (_, '\\') => match chars.next().unwrap().1 {
                    'n' => text.push('\n'),
                    't' => text.push('\t'),
                    'r' => text.push('\r'),
                    'a' => text.push('\u{7}'),
                    'b' => text.push('\u{8}'),
                    'v' => text.push('\u{b}'),
                    'f' => text.push('\u{c}'),
                    'e' => text.push('\u{1b}'),
                    'x' => {
                        let code = chars.by_ref().take(2).map(|(_, c)| c).collect::<String>();
                        text.push(u32::from_str_radix(&code, 16).ok().and_then(char::from_u32).unwrap());
                    }
                    c => text.push(c),
                },
                (_, c) => text.push(c),
            }
        }
    }
}

/// What babeltrace2 prints of a trace, and how many lost events it tells of. Other warnings fail.
pub(super) fn babeltrace(trace: &Path) -> (Vec<Line>, u64) {
    let (text, lost) = babeltrace::printed(trace, &ARGS);
    (parsed(&text), lost)
}

/// How babeltrace2 prints all that there is. Something must be asked for; kernels have none of this.
pub(crate) const ARGS: [&str; 3] = ["--clock-cycles", "--no-delta", "--fields=trace:vpid"];

/// The events in what it printed so.
pub(crate) fn parsed(text: &str) -> Vec<Line> {
    let line = |line: &str| {
        let mut rest = Rest(line);
        rest.expect("[");
        let time = rest.until("] ").parse().unwrap();
        let name = rest.until(": {");
        let mut rest = Rest(&line[line.len() - rest.0.len() - 1..]);
        let packet = rest.fields();
        let cpu = packet.iter().find(|(name, _)| name == "cpu_id").map(|(_, cpu)| cpu.clone());
        let Some(Printed::Number(cpu)) = cpu else { panic!("{line}") };
        let mut parts = Vec::new();
        while rest.take(", ") {
            parts.push(rest.fields());
        }
        assert!(rest.0.is_empty(), "{line}");
        let fields = parts.pop().unwrap_or_default();
        Line { time, name, cpu: cpu as u64, context: parts.concat(), fields }
    };
    text.lines().map(line).collect()
}

/// Whether a value is that which babeltrace2 prints.
fn is_same(printed: &Printed, json: &Json) -> bool {
    match (printed, json) {
        (Printed::Number(number), Json::Number(json)) => {
            json.as_i64().map(i128::from).or(json.as_u64().map(i128::from)) == Some(*number)
        }
        // Addresses are texts in JSON.
        (Printed::Number(number), Json::String(text)) => {
            text.strip_prefix("0x").and_then(|hex| u64::from_str_radix(hex, 16).ok()).map(i128::from)
                == Some(*number)
        }
        // For an empty text, babeltrace2 2.0 prints that of an event before.
        (Printed::Text(text), Json::String(json)) => text == json || json.is_empty(),
        (Printed::Float(number), Json::String(json)) => {
            // babeltrace2 prints six digits.
            json.parse::<f64>().is_ok_and(|json| (json - number).abs() <= number.abs() * 1e-5)
        }
        (Printed::List(list), Json::Array(json)) => {
            list.len() == json.len() && list.iter().zip(json).all(|(printed, json)| is_same(printed, json))
        }
        _ => false,
    }
}

/// What the kernel calls a field of an event of lttng-modules, and what it has more.
fn kernel_field<'n>(event: &str, name: &'n str) -> (&'n str, i128) {
    let is_sched = event.starts_with("sched_");
    let name = match (event, name) {
        ("sched_process_fork", "parent_pid") => "parent_tgid",
        ("sched_process_fork", "child_pid") => "child_tgid",
        ("syscall_entry_clone", "flags") => "clone_flags",
        ("syscall_entry_clone", "parent_tid") => "parent_tidptr",
        ("syscall_entry_clone", "child_tid") => "child_tidptr",
        ("syscall_entry_mmap", "offset") => "off",
        ("syscall_entry_pselect6", "tvp") => "tsp",
        (_, "tid") if is_sched => "pid",
        (_, "prev_tid") if is_sched => "prev_pid",
        (_, "next_tid") if is_sched => "next_pid",
        (_, "parent_tid") if is_sched => "parent_pid",
        (_, "child_tid") if is_sched => "child_pid",
        (_, "old_tid") if is_sched => "old_pid",
        _ => name,
    };
    let is_priority = matches!(name, "prio" | "prev_prio" | "next_prio" | "oldprio" | "newprio");
    (name, if is_sched && is_priority { 100 } else { 0 })
}

/// Fails unless a file has the events that babeltrace2 prints of a trace, each with its time, CPU, name and
/// all fields. Gives how many there are.
#[track_caller]
pub(super) fn same_as_babeltrace(trace: &Path, file: &Path) -> usize {
    let (lines, _) = babeltrace(trace);
    are_same(&lines, file);
    lines.len()
}

/// The same of lines that were printed. Gives how many frames of stacks there are.
#[track_caller]
pub(crate) fn are_same(lines: &[Line], file: &Path) -> usize {
    // In the order of each stream: those of one moment may stand in any order otherwise.
    let is_state = |name: &str| name.starts_with("lttng_statedump_");
    let mut expected: BTreeMap<(u64, bool, bool), Vec<&Line>> = BTreeMap::new();
    for line in lines {
        let is_call = line.name.starts_with("syscall_");
        expected.entry((line.cpu, is_state(&line.name), is_call)).or_default().push(line);
    }
    let reported = with_stacks(reported(file));
    let mut found: BTreeMap<(u64, bool, bool), Vec<&Json>> = BTreeMap::new();
    for event in &reported {
        let name = event["event"].as_str().unwrap();
        let is_call = event["system"] == "syscalls" || name.starts_with("syscall_");
        found.entry((event["cpu"].as_u64().unwrap(), is_state(name), is_call)).or_default().push(event);
    }
    assert_eq!(lines.len(), reported.len());
    for (stream, expected) in &expected {
        let found = &found[stream];
        assert_eq!(expected.len(), found.len(), "{stream:?}");
        for (line, event) in expected.iter().zip(found) {
            is_event(line, event);
        }
    }
    reported
        .iter()
        .flat_map(|event| STACKS.iter().filter_map(move |(stack, _)| event[stack].as_array()))
        .map(Vec::len)
        .sum()
}

/// Stacks in separate records, and the contexts that events get from them.
const STACKS: [(&str, &str); 2] = [("kernel_stack", "callstack_kernel"), ("user_stack", "callstack_user")];

const NO_FRAMES: &Json = &Json::Array(Vec::new());

/// Events with their stacks as members of them: those of the last event of their buffer and CPU.
fn with_stacks(reported: Vec<Json>) -> Vec<Json> {
    let mut events: Vec<Json> = Vec::new();
    for record in reported {
        let name = record["event"].as_str().filter(|_| record["system"] == "ftrace");
        let Some((stack, _)) = STACKS.iter().find(|(stack, _)| name == Some(*stack)) else {
            events.push(record);
            continue;
        };
        let is_of = |event: &&mut Json| ["buffer", "cpu", "pid"].iter().all(|of| event[*of] == record[*of]);
        let event = events.iter_mut().rfind(is_of).expect("a stack has an event");
        event[*stack] = record["fields"]["caller"].clone();
    }
    events
}

#[track_caller]
fn is_event(line: &Line, event: &Json) {
    let context = || format!("{line:?}\n{event}");
    assert_eq!(event["timestamp"].as_u64(), Some(line.time), "{}", context());
    let (system, name) = (event["system"].as_str().unwrap(), event["event"].as_str().unwrap());
    match (line.name.strip_prefix("syscall_entry_"), line.name.strip_prefix("syscall_exit_")) {
        (Some(call), _) if system == "syscalls" => {
            assert_eq!(name, format!("sys_enter_{call}"), "{}", context());
        }
        (_, Some(call)) if system == "syscalls" => {
            // One without a name is the end of whichever call its thread is in.
            let call = if call == "unknown" { "any" } else { call };
            assert_eq!(name, format!("sys_exit_{call}"), "{}", context());
        }
        _ => match line.name.split_once(':') {
            Some(expected) => assert_eq!((system, name), expected, "{}", context()),
            None => assert!(line.name.ends_with(name), "{}", context()),
        },
    }
    let fields = event["fields"].as_object().cloned().unwrap_or_default();
    let mut left = fields.len();
    // Lists have their lengths.
    let is_length = |field: &str, among: &[(String, Printed)]| {
        let list = field.strip_prefix('_').and_then(|name| name.strip_suffix("_length"));
        list.is_some_and(|list| among.iter().any(|(other, _)| other == list))
    };
    for (field, printed) in line.context.iter().filter(|(field, _)| !is_length(field, &line.context)) {
        let found = match field.as_str() {
            "callstack_kernel" | "callstack_user" => {
                let (stack, _) = STACKS.iter().find(|(_, context)| context == field).unwrap();
                // One without frames is none.
                if *printed == Printed::List(Vec::new()) { NO_FRAMES } else { &event[*stack] }
            }
            "tid" | "common_pid" => &event["pid"],
            "common_flags" => &event["flags"],
            "common_preempt_count" => &event["preempt_count"],
            "procname" => {
                left -= 1;
                &fields["ctx_comm"]
            }
            other => {
                left -= 1;
                fields.get(&format!("ctx_{other}")).unwrap_or_else(|| panic!("ctx_{other}: {}", context()))
            }
        };
        assert!(is_same(printed, found), "{field}: {}", context());
    }
    if system == "syscalls" && fields.contains_key("__syscall_nr") {
        left -= 1;
    }
    for (field, printed) in line.fields.iter().filter(|(field, _)| !is_length(field, &line.fields)) {
        // What is certainly no event of the kernel keeps its fields.
        let (name, more) =
            if system == "lttng" { (field.as_str(), 0) } else { kernel_field(&line.name, field) };
        let printed = match printed {
            Printed::Number(number) => Printed::Number(number + more),
            other => other.clone(),
        };
        let found = fields.get(name).unwrap_or_else(|| panic!("{name}: {}", context()));
        assert!(is_same(&printed, found), "{name}: {}", context());
        left -= 1;
    }
    assert_eq!(left, 0, "there are other fields: {}", context());
}
