//! Kprobes: functions of the kernel by name.

use std::{
    collections::{HashMap, HashSet},
    ffi::CString,
    path::Path,
    sync::OnceLock,
};

use super::{
    DynamicError, Environment, KPROBE_MULTI_SINCE, ProbePlan,
    fetch::{Argument, Fetch},
    layout::Layout,
    plan,
    registers::{self, Register},
    spec::{self, At, Side, Spec, SpecErrorKind, name_from, split_offset},
};
use crate::hook;
use crate::hook::Hook;
use crate::probe_filter::ProbeRule;
use elf::symbols::nearest_names;
use kernel::kallsyms::Kallsyms;
use kernel::tracefs::Tracefs;
use stdx::input::glob;

/// The system of events without one.
const GROUP: &str = "kprobes";
/// tracefs' list of what ftrace can trace, with addresses since 6.5.
const AVAILABLE: &str = "available_filter_functions";
const AVAILABLE_ADDRESSES: &str = "available_filter_functions_addrs";
/// What must not be probed, in debugfs.
const BLACKLIST: &str = "/sys/kernel/debug/kprobes/blacklist";

/// Why a name is no function that can be probed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FunctionError {
    /// There is none.
    #[error("the kernel has no function {name}{}", guess(.nearest))]
    NotFound {
        /// What was asked for.
        name: String,
        /// The names most like it.
        nearest: Vec<String>,
    },
    /// No function matches.
    #[error(
        "no traceable function of the kernel matches {0}; `tracer-agent list --functions` shows all of them"
    )]
    NoMatch(String),
    /// The kernel refuses probes on it.
    #[error("{0} must not be probed: it is on the kernel's kprobe blacklist (NOKPROBE_SYMBOL)")]
    Blacklisted(String),
    /// A symbol of data.
    #[error("{0} is data of the kernel, not a function")]
    Data(String),
}

fn guess(nearest: &[String]) -> String {
    if nearest.is_empty() { String::new() } else { format!("; did you mean {}?", nearest.join(", ")) }
}

/// The kernel's functions.
#[derive(Debug)]
pub struct KernelFunctions {
    symbols: Kallsyms,
    /// What ftrace tells of the functions that it can trace, once somebody asked.
    traced: OnceLock<Traced>,
}

/// The functions that ftrace can trace.
#[derive(Debug)]
enum Traced {
    Addresses(Vec<(String, u64)>),
    Names(HashSet<String>),
    Untold,
}

impl KernelFunctions {
    /// Reads the kernel's symbols.
    pub fn read() -> Result<Self, DynamicError> {
        Ok(Self { symbols: Kallsyms::read()?, traced: OnceLock::new() })
    }

    /// The names of all functions: those that ftrace can trace where it tells, or all.
    pub fn names(&self, tracefs: &Tracefs) -> Vec<String> {
        match traceable(tracefs) {
            Some(names) => names,
            None => self.functions().map(|(name, _)| name.to_owned()).collect(),
        }
    }

    fn traced(&self, tracefs: &Tracefs) -> &Traced {
        // Each is a list of all functions, of megabytes: the second one is read only where there is no first.
        self.traced.get_or_init(|| match addresses(tracefs) {
            Some(functions) => Traced::Addresses(functions),
            None => {
                traceable(tracefs).map_or(Traced::Untold, |names| Traced::Names(names.into_iter().collect()))
            }
        })
    }

    /// The address of a function, unless another one has its name.
    fn only_address(&self, name: &str) -> Option<u64> {
        let mut named = self.functions().filter(|(known, _)| *known == name);
        let (Some((_, address)), None) = (named.next(), named.next()) else { return None };
        Some(address)
    }

    /// The same, if ftrace can trace it.
    fn traced_address(&self, name: &str, tracefs: &Tracefs) -> Option<u64> {
        let address = self.only_address(name)?;
        match self.traced(tracefs) {
            // Where a function begins with an `endbr`, ftrace's address is the one after that.
            Traced::Addresses(functions) => {
                functions.iter().find(|(known, _)| known == name).map(|(_, address)| *address)
            }
            Traced::Names(names) => names.contains(name).then_some(address),
            Traced::Untold => None,
        }
    }

    fn functions(&self) -> impl Iterator<Item = (&str, u64)> {
        self.symbols
            .symbols()
            .filter(|symbol| is_code(symbol.kind))
            .filter_map(|symbol| Some((std::str::from_utf8(symbol.name).ok()?, symbol.address)))
    }

    fn check(&self, name: &str) -> Result<(), FunctionError> {
        // A module's name may stand in front.
        let name = name.split_once(':').map_or(name, |(_, name)| name);
        let mut data = false;
        for symbol in self.symbols.symbols().filter(|symbol| symbol.name == name.as_bytes()) {
            if is_code(symbol.kind) {
                return if blacklist().is_some_and(|blacklist| blacklist.contains(name)) {
                    Err(FunctionError::Blacklisted(name.to_owned()))
                } else {
                    Ok(())
                };
            }
            data = true;
        }
        if data {
            return Err(FunctionError::Data(name.to_owned()));
        }
        let nearest = nearest_names(name, self.functions().map(|(name, _)| name));
        Err(FunctionError::NotFound { name: name.to_owned(), nearest })
    }

    /// The functions that a pattern means, with their addresses, which they are sorted by: for each probe
    /// that perf makes, the kernel goes through all functions up to the last one that has a probe
    /// (`__ftrace_hash_rec_update`, kernel/trace/ftrace.c).
    pub(super) fn matching(
        &self,
        pattern: &str,
        tracefs: &Tracefs,
    ) -> Result<Vec<(String, u64)>, FunctionError> {
        let mut found: Vec<_> = match self.traced(tracefs) {
            Traced::Addresses(functions) => {
                functions.iter().filter(|(name, _)| glob::matches(pattern, name)).cloned().collect()
            }
            Traced::Names(names) => self.unambiguous(pattern, Some(names)),
            Traced::Untold => self.unambiguous(pattern, None),
        };
        found.sort_by_key(|(_, address)| *address);
        if found.is_empty() { Err(self.unmatched(pattern)) } else { Ok(found) }
    }

    /// Why there is no function that a pattern means.
    pub(super) fn unmatched(&self, pattern: &str) -> FunctionError {
        if pattern.contains(['*', '?', '[']) {
            return FunctionError::NoMatch(pattern.to_owned());
        }
        match self.check(pattern) {
            Ok(()) => FunctionError::NoMatch(pattern.to_owned()),
            Err(error) => error,
        }
    }

    /// The address of a symbol.
    pub(super) fn address_of(&self, name: &str) -> Option<u64> {
        self.symbols.address_of(name)
    }

    /// The same where the kernel tells names only: of functions that share one, some may not be traceable.
    fn unambiguous(&self, pattern: &str, known: Option<&HashSet<String>>) -> Vec<(String, u64)> {
        let forbidden = blacklist().unwrap_or_default();
        let mut found: HashMap<&str, Option<u64>> = HashMap::new();
        for (name, address) in self.functions().filter(|(name, _)| glob::matches(pattern, name)) {
            if known.map_or_else(|| !forbidden.contains(name), |known| known.contains(name)) {
                found.entry(name).and_modify(|other| *other = None).or_insert(Some(address));
            }
        }
        found.into_iter().filter_map(|(name, address)| Some((name.to_owned(), address?))).collect()
    }
}

fn is_code(kind: u8) -> bool {
    matches!(kind, b't' | b'T' | b'w' | b'W')
}

fn traceable(tracefs: &Tracefs) -> Option<Vec<String>> {
    let text = tracefs.text(AVAILABLE).ok()?;
    let names: Vec<String> =
        text.lines().filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect();
    (!names.is_empty()).then_some(names)
}

fn addresses(tracefs: &Tracefs) -> Option<Vec<(String, u64)>> {
    let text = tracefs.text(AVAILABLE_ADDRESSES).ok()?;
    let function = |line: &str| {
        let mut words = line.split_whitespace();
        let address = u64::from_str_radix(words.next()?, 16).ok()?;
        Some((words.next()?.to_owned(), address))
    };
    let functions: Vec<_> = text.lines().filter_map(function).collect();
    (!functions.is_empty()).then_some(functions)
}

/// `None` where debugfs is not mounted; the kernel's refusal then tells.
fn blacklist() -> Option<HashSet<String>> {
    let text = std::fs::read_to_string(BLACKLIST).ok()?;
    Some(text.lines().filter_map(|line| line.split_whitespace().nth(1)).map(str::to_owned).collect())
}

/// The probe that `text` describes: `[[GROUP/]NAME=]FUNCTION[+OFFSET] [ARGUMENT...]`.
pub fn probe(
    text: &str,
    returns: bool,
    environment: &Environment,
    functions: &KernelFunctions,
    tracefs: &Tracefs,
    rule: &ProbeRule<'_>,
) -> Result<ProbePlan, DynamicError> {
    let mut spec = spec::parse(text, At { side: Side::Kernel, returns }, rule.contexts)?;
    hook::check_kprobes()?;
    for argument in &mut spec.arguments {
        resolve(&mut argument.fetch, functions)?;
    }
    let is_pattern = spec.point.contains(['*', '?', '[']);
    let target = Target { spec: &spec, returns, environment, functions, tracefs };
    let (hooks, default_name) = if is_pattern { target.many()? } else { target.one()? };
    let group = spec.group.as_deref().unwrap_or(GROUP);
    let name = spec.name.clone().unwrap_or(default_name);
    let layout = layout(&spec, group, &name, (returns, is_pattern), rule)?;
    let program = environment.program(&layout, rule, &spec.arguments, hooks)?;
    Ok(plan(&layout, vec![program]))
}

/// The layout of a probe's event.
pub(super) fn layout(
    spec: &Spec,
    group: &str,
    name: &str,
    (returns, many): (bool, bool),
    rule: &ProbeRule<'_>,
) -> Result<Layout, DynamicError> {
    Layout::new(group, name, (returns, many), &spec.arguments, rule)
        .ok_or_else(|| too_long(group, name, &spec.arguments))
}

pub(super) fn too_long(group: &str, name: &str, arguments: &[Argument]) -> DynamicError {
    DynamicError::TooMuch(super::CompileErrorText {
        probe: format!("{group}:{name}"),
        reason: format!(
            "its {} arguments do not fit a record of {} bytes; make two probes of it, or record shorter arrays",
            arguments.len(),
            agent_ebpf::SIDE_RECORD_MAX
        ),
    })
}

/// What a probe is to be attached to, and what has to be known for that.
pub struct Target<'a> {
    spec: &'a Spec,
    returns: bool,
    environment: &'a Environment,
    functions: &'a KernelFunctions,
    tracefs: &'a Tracefs,
}

impl Target<'_> {
    /// Hooks and name of a probe at one function.
    fn one(&self) -> Result<(Vec<Hook>, String), DynamicError> {
        let Self { spec, returns, functions, .. } = *self;
        let number = || spec.point_error(SpecErrorKind::Number);
        let (symbol, offset) = split_offset(&spec.point).ok_or_else(number)?;
        if returns && offset != 0 {
            return Err(spec.point_error(SpecErrorKind::ReturnOffset).into());
        }
        functions.check(symbol)?;
        let name = self.name(&format!("{symbol}_{offset}"));
        // The link for many functions costs an event less than perf's kprobe does, also for one. But it takes
        // functions that must not have a kprobe, and where the list of those cannot be read, it is perf that
        // refuses them.
        let cheaper = offset == 0 && self.suits_many() && Path::new(BLACKLIST).exists();
        if cheaper && let Some(address) = functions.traced_address(symbol, self.tracefs) {
            return Ok((vec![Hook::KernelFunctions { addresses: vec![address], returns }], name));
        }
        let address = functions.only_address(symbol);
        let symbol = CString::new(symbol).map_err(|_| spec.point_error(SpecErrorKind::NoAttachPoint))?;
        Ok((vec![Hook::Kernel { symbol, address, offset, returns }], name))
    }

    /// The same at all functions that a pattern means.
    fn many(&self) -> Result<(Vec<Hook>, String), DynamicError> {
        let Self { spec, returns, .. } = *self;
        if spec.point.contains('+') {
            return Err(spec.point_error(SpecErrorKind::PatternOffset).into());
        }
        let found = self.functions.matching(&spec.point, self.tracefs)?;
        let hooks = if self.suits_many() {
            vec![Hook::KernelFunctions {
                addresses: found.into_iter().map(|(_, address)| address).collect(),
                returns,
            }]
        } else {
            found.iter().filter_map(|function| one_of_many(function, returns)).collect()
        };
        Ok((hooks, self.name(&spec.point.replace(['*', '?'], ""))))
    }

    /// The event's name unless it is given.
    fn name(&self, point: &str) -> String {
        name_from(&format!("{}_{point}", if self.returns { 'r' } else { 'p' }))
    }

    /// Whether a program at many functions can make the event. Since 6.14 it gets only the registers that
    /// ftrace saves at every function (`ftrace_partial_regs`; `ftrace_caller` in
    /// arch/x86/kernel/ftrace_64.S), and at returns those of the value.
    fn suits_many(&self) -> bool {
        let usual: &[&str] = if self.returns {
            &["ax"]
        } else {
            &["di", "si", "dx", "cx", "r8", "r9", "ax", "bp", "sp", "ip"]
        };
        let is_usual =
            |register: &Register| usual.iter().any(|name| registers::named(name) == Some(*register));
        self.environment.has_kprobe_multi()
            && self.spec.arguments.iter().all(|argument| argument.fetch.registers().iter().all(is_usual))
    }
}

/// The hook at one function of those that a pattern means.
pub(super) fn one_of_many((name, address): &(String, u64), returns: bool) -> Option<Hook> {
    let symbol = CString::new(name.as_str()).ok()?;
    Some(Hook::Kernel { symbol, address: Some(*address), offset: 0, returns })
}

/// Puts addresses in the place of symbols.
fn resolve(fetch: &mut Fetch, functions: &KernelFunctions) -> Result<(), DynamicError> {
    match fetch {
        Fetch::Memory { of, .. } => resolve(of, functions),
        Fetch::KernelSymbol(name) => {
            let address = functions.symbols.address_of(name).ok_or_else(|| {
                let names =
                    functions.symbols.symbols().filter_map(|symbol| std::str::from_utf8(symbol.name).ok());
                FunctionError::NotFound { name: name.clone(), nearest: nearest_names(name, names) }
            })?;
            *fetch = Fetch::Constant(address);
            Ok(())
        }
        _ => Ok(()),
    }
}

impl Environment {
    pub(super) fn has_kprobe_multi(&self) -> bool {
        self.version >= KPROBE_MULTI_SINCE && self.has_fprobes
    }
}
