//! Probes on functions of the kernel by name and type: `--fentry` and `--fexit`.
//!
//! ```text
//! [NAME=]FUNCTION [[FIELD=]EXPRESSION]...
//! ```
//!
//! Expressions are those of C over the function's arguments, whose names and types the kernel's BTF tells:
//! member chains (`file->f_inode->i_ino`), constant indices, arithmetic, comparisons, `?:`. `$retval` is what
//! the function gave, at its exit; `current` the running task. `string(p)` is the text that a pointer points
//! to, `ustring(p)` one of the process. Blanks separate expressions, so there are none inside. They are
//! compiled as the descriptions of the fast lane are (`fast`).
//!
//! The event has a field for each expression, of its type: integers with their size and sign, pointers in
//! hexadecimal, enumerations by name, arrays of characters as text. It looks as the kernel's own fprobe
//! events do (Documentation/trace/fprobetrace.rst), but for the address, which has its function's name.

mod fields;

use super::{
    dynamic::of_tracefs,
    fast::{
        compile::{Access, Asked, Extras, Mismatch, Rules, TypeNames, compile},
        language::{self, Definition, Expr},
    },
    filter::Program,
    hook::{Hook, HookProgram, OnRefusal},
    plan::{ProbeEvent, ProbePlan},
    probe_filter::{ProbeFilterError, ProbeRule},
    shape::{COMMON_LEN, EventShape, FieldClash, FieldNames, ShapeField},
};
use bpf::preemption::{Preemption, PreemptionGuard};
use elf::symbols::nearest_names;
use fields::{Kind, Scope, default_name};
use ftrace_event::{Format, FormatError};
use kernel::btf::describe::{Function, Named};
use kernel::btf::{Btf, BtfError, Shape, TypeId};
use stdx::input::glob;

/// The system of events without one, as the kernel's are.
const SYSTEM: &str = "fprobes";
/// Functions that one pattern may mean: each takes a program and a trampoline of its own.
const FUNCTIONS_MAX: usize = 256;
/// What attaches a program to a function's entry (kernel/bpf/trampoline.c, `register_fentry`).
pub const DIRECT_CALLS: &str = "register_ftrace_direct";
/// The field with the function's address.
const ADDRESS: &str = "__probe_ip";
/// What stands for the returned value.
const RETVAL: &str = "$retval";

/// At which end of the function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// When it is called.
    Entry,
    /// When it returns.
    Exit,
}

/// Why a typed probe cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum TypedError {
    /// The text has no function.
    #[error("the probe {0:?} names no function: write [NAME=]FUNCTION [[FIELD=]EXPRESSION]...")]
    Empty(String),
    /// A name that cannot be one.
    #[error(
        "{0:?} cannot be a name: names consist of letters, digits and underscores, and do not begin with a digit"
    )]
    Name(String),
    /// A line of tracefs' `dynamic_events`.
    #[error("{text:?} is how tracefs has it; here it is {option} '{ours}'")]
    Tracefs {
        /// The whole text.
        text: String,
        /// The option for it.
        option: &'static str,
        /// What to give that.
        ours: String,
    },
    /// An expression.
    #[error("{what}\n  {text}\n  {:at$}^", "")]
    Expression {
        /// The expression.
        text: String,
        /// Where in it, in bytes.
        at: usize,
        /// What is wrong there.
        what: String,
    },
    /// An expression without a name for its field.
    #[error("{0:?} needs a name for its field: NAME={0}")]
    NoName(String),
    /// A field has the name of another one.
    #[error("{0}: NAME=EXPRESSION")]
    Field(#[from] FieldClash),
    /// No such function.
    #[error("the kernel's type information has no function {name}{}", guess(.nearest))]
    NoFunction {
        /// The name or pattern.
        name: String,
        /// The names most like it.
        nearest: Vec<String>,
    },
    /// A pattern for too many functions.
    #[error(
        "{pattern} matches {found} functions, and --fentry and --fexit take at most {FUNCTIONS_MAX}; --kprobe and --function take any number"
    )]
    TooMany {
        /// The pattern.
        pattern: String,
        /// How many it means.
        found: usize,
    },
    /// A function that programs cannot look into.
    #[error("{0} takes or returns a structure by value, which typed probes cannot read; use --kprobe")]
    ByValue(String),
    /// `$retval` where there is none.
    #[error("{0} returns nothing, so it has no $retval")]
    NoReturn(String),
    /// The kernel has no such probes.
    #[error(
        "this kernel cannot attach programs to its functions by type: it needs CONFIG_FUNCTION_TRACER and \
         CONFIG_DYNAMIC_FTRACE_WITH_DIRECT_CALLS; tracepoints (-e) and uprobes may do instead"
    )]
    NoTrampolines,
    /// The kernel's types.
    #[error(transparent)]
    Btf(#[from] BtfError),
    /// Its filter.
    #[error(transparent)]
    Filter(#[from] ProbeFilterError),
    /// The program.
    #[error("{name}: {reason}")]
    Compile {
        /// The probe.
        name: String,
        /// Why there is none.
        #[source]
        reason: Mismatch,
    },
    /// The format that was made for the event: a defect.
    #[error("{name}: {reason}")]
    Format {
        /// The probe.
        name: String,
        /// What is wrong.
        #[source]
        reason: FormatError,
    },
}

fn guess(nearest: &[String]) -> String {
    if nearest.is_empty() { String::new() } else { format!("; did you mean {}?", nearest.join(", ")) }
}

/// What typed probes need to know of the running kernel.
#[derive(Debug)]
pub struct Types<'a> {
    btf: &'a Btf,
    names: TypeNames,
    access: Access,
    guard: Option<PreemptionGuard>,
}

/// A probe's text, taken apart.
pub struct Spec<'t> {
    system: &'t str,
    name: Option<&'t str>,
    function: &'t str,
    fields: Vec<(Option<&'t str>, &'t str)>,
}

impl<'a> Types<'a> {
    /// The running kernel's, whose type information is `btf`.
    pub fn of_kernel(btf: &'a Btf) -> Self {
        Self {
            btf,
            names: TypeNames::new(btf),
            access: Access::of_kernel(btf),
            guard: PreemptionGuard::find(btf),
        }
    }

    /// Makes a probe of its text.
    pub fn plan(&self, text: &str, end: End, rule: &ProbeRule<'_>) -> Result<ProbePlan, TypedError> {
        let (shape, programs) = self.programs(&parse(text)?, end, rule)?;
        // Last, as what is wrong with the text is wrong on every kernel.
        if !self.btf.has_function(DIRECT_CALLS) {
            return Err(TypedError::NoTrampolines);
        }
        Ok(ProbePlan { events: vec![ProbeEvent::Own(shape)], programs, slot_flags: 0 })
    }

    /// The event, and the program of each function.
    fn programs(
        &self,
        spec: &Spec<'_>,
        end: End,
        rule: &ProbeRule<'_>,
    ) -> Result<(EventShape, Vec<HookProgram>), TypedError> {
        let functions = self.functions(spec.function)?;
        let suffix = match end {
            End::Entry => "entry",
            End::Exit => "exit",
        };
        let default = functions.first().filter(|_| functions.len() == 1).map_or("functions", |one| one.name);
        let name = spec.name.map_or_else(|| format!("{default}__{suffix}"), str::to_owned);
        let mut shape: Option<EventShape> = None;
        let mut programs = Vec::new();
        for function in functions {
            let (made, program) = self.program(spec, &name, function, end, rule)?;
            match &shape {
                // One event for all: what differs in type cannot share a field.
                Some(first) if *first != made => {
                    return Err(TypedError::Expression {
                        text: spec.function.to_owned(),
                        at: 0,
                        what: format!(
                            "the expressions have other types in {} than in the functions before it; use a separate probe for it",
                            function.name
                        ),
                    });
                }
                _ => shape = Some(made),
            }
            programs.push(program);
        }
        let shape = shape.ok_or_else(|| TypedError::Empty(spec.function.to_owned()))?;
        Ok((shape, programs))
    }

    fn functions(&self, pattern: &str) -> Result<Vec<Function<'a>>, TypedError> {
        let mut found: Vec<Function<'a>> =
            self.btf.functions().filter(|function| glob::matches(pattern, function.name)).collect();
        found.sort_by_key(|function| function.name);
        // Functions of the same name cannot be told apart; the kernel takes the first.
        found.dedup_by_key(|function| function.name);
        match found.len() {
            0 => {
                let nearest = nearest_names(pattern, self.btf.functions().map(|function| function.name));
                Err(TypedError::NoFunction { name: pattern.to_owned(), nearest })
            }
            1..=FUNCTIONS_MAX => Ok(found),
            count => Err(TypedError::TooMany { pattern: pattern.to_owned(), found: count }),
        }
    }

    /// Compiles the program of a probe.
    pub fn program(
        &self,
        spec: &Spec<'_>,
        name: &str,
        function: Function<'a>,
        end: End,
        rule: &ProbeRule<'_>,
    ) -> Result<(EventShape, HookProgram), TypedError> {
        let prototype = self.btf.prototype(function.id)?;
        let mut names = prototype.arguments;
        if end == End::Exit && prototype.returns.0 != 0 {
            names.push(Named { name: RETVAL, type_id: prototype.returns });
        }
        for known in &names {
            if matches!(self.btf.shape(known.type_id)?, Shape::Struct | Shape::Union) {
                return Err(TypedError::ByValue(function.name.to_owned()));
            }
        }
        let mut fields = vec![(ADDRESS, Expr::Call("function_address", Vec::new()))];
        let mut shape = Shaping::new(spec.system, name);
        let mut given: Vec<(String, Expr<'_>)> = Vec::new();
        let mut given_names = FieldNames::new(rule.contexts);
        for &(field, text) in &spec.fields {
            let expr = language::expression(text).map_err(|error| TypedError::Expression {
                text: text.to_owned(),
                at: error.at,
                what: error.what,
            })?;
            if end == End::Entry && text.contains(RETVAL) {
                return Err(TypedError::Expression {
                    text: text.to_owned(),
                    at: text.find(RETVAL).unwrap_or(0),
                    what: "there is no $retval before the function returns; use --fexit".to_owned(),
                });
            }
            if prototype.returns.0 == 0 && text.contains(RETVAL) {
                return Err(TypedError::NoReturn(function.name.to_owned()));
            }
            let scope = Scope { btf: self.btf, names: names.clone(), text };
            let kind = scope.kind_of(&expr)?;
            let field = match field {
                Some(field) => field.to_owned(),
                None => default_name(&expr).ok_or_else(|| TypedError::NoName(text.to_owned()))?,
            };
            given_names.give(&field)?;
            shape.add(&scope, &field, kind)?;
            given.push((field, expr));
        }
        fields.extend(given.iter().map(|(name, expr)| (name.as_str(), expr.clone())));
        let contexts = rule.contexts.lay_out(shape.at, true, rule.facts);
        let mut shape = shape.finish();
        let filter = staged(&shape, rule)?;
        contexts.extend(&mut shape);
        let format = Format::parse(&shape.text(0))
            .map_err(|reason| TypedError::Format { name: name.to_owned(), reason })?;
        let definition = Definition {
            names: vec![name],
            args: names.iter().map(|known| known.name).collect(),
            about: None,
            is_switch: false,
            needs: Vec::new(),
            only: Vec::new(),
            lets: Vec::new(),
            fields,
        };
        let types: Vec<TypeId> = names.iter().map(|known| known.type_id).collect();
        let preemption = Preemption::at(true, self.guard);
        let filter = filter.as_ref().map(|(program, fields)| Asked { program, apart: Some(fields) });
        let extras = Extras { filter, counter: None, contexts: &contexts };
        let body =
            compile(&definition, &types, &format, &self.names, self.access, Rules::typed(preemption), extras)
                .map_err(|reason| TypedError::Compile { name: name.to_owned(), reason })?;
        let hook = match end {
            End::Entry => Hook::Entry { function: function.id },
            End::Exit => Hook::Exit { function: function.id },
        };
        let program = HookProgram {
            name: name.to_owned(),
            body,
            hooks: vec![hook],
            preemption,
            sleepable: false,
            on_refusal: OnRefusal::Fail,
        };
        Ok((shape, program))
    }
}

/// A filter, and the fields that it looks at as it finds them; `None` if it always holds.
fn staged(shape: &EventShape, rule: &ProbeRule<'_>) -> Result<Option<(Program, Format)>, ProbeFilterError> {
    let Some(staged) = rule.stage(shape, false)? else { return Ok(None) };
    let with_offset =
        |(field, offset): (&ShapeField, Option<u32>)| Some(ShapeField { offset: offset?, ..field.clone() });
    let fields = shape.fields.iter().zip(staged.offsets).filter_map(with_offset).collect();
    let format = Format::parse(&EventShape { fields, ..shape.clone() }.text(rule.id))?;
    Ok(staged.program.map(|program| (program, format)))
}

/// An event's shape while fields are added.
struct Shaping {
    shape: EventShape,
    arguments: String,
    at: u32,
}

impl Shaping {
    fn new(system: &str, name: &str) -> Self {
        let address = ShapeField {
            declaration: format!("unsigned long {ADDRESS}"),
            offset: COMMON_LEN,
            size: 8,
            signed: false,
        };
        let shape = EventShape {
            system: system.to_owned(),
            name: name.to_owned(),
            fields: vec![address],
            print_fmt: "(%ps)".to_owned(),
        };
        Self { shape, arguments: format!("(void *)REC->{ADDRESS}"), at: COMMON_LEN + 8 }
    }

    fn add(&mut self, scope: &Scope<'_>, name: &str, kind: Kind) -> Result<(), TypedError> {
        let (field, printed) = scope.field(name, kind, self.at)?;
        self.at = field.offset + field.size;
        self.shape.fields.push(field);
        self.shape.print_fmt.push_str(&format!(" {name}={}", printed.format));
        self.arguments.push_str(&format!(", {}", printed.argument));
        Ok(())
    }

    fn finish(mut self) -> EventShape {
        self.shape.print_fmt = format!("\"{}\", {}", self.shape.print_fmt, self.arguments);
        self.shape
    }
}

/// `[[SYSTEM/]NAME=]FUNCTION [[FIELD=]EXPRESSION]...`
fn parse(text: &str) -> Result<Spec<'_>, TypedError> {
    // A function has no colon.
    if text.split_whitespace().next().is_some_and(|first| first.contains(':') && !first.contains('='))
        && let Some((option, ours)) = of_tracefs(text, false)
    {
        return Err(TypedError::Tracefs { text: text.to_owned(), option, ours });
    }
    let mut words = text.split_whitespace();
    let first = words.next().ok_or_else(|| TypedError::Empty(text.to_owned()))?;
    let (full, function) = match first.split_once('=') {
        Some((name, function)) => (Some(name), function),
        None => (None, first),
    };
    let (system, name) = match full.map(|full| full.split_once(['/', ':']).unwrap_or((SYSTEM, full))) {
        Some((system, name)) => (system, Some(name)),
        None => (SYSTEM, None),
    };
    for name in name.into_iter().chain([system]) {
        check_name(name)?;
    }
    if function.is_empty() {
        return Err(TypedError::Empty(text.to_owned()));
    }
    let mut fields = Vec::new();
    for word in words {
        // `a==b` is an expression.
        let named = word.split_once('=').filter(|(name, value)| is_name(name) && !value.starts_with('='));
        fields.push(named.map_or((None, word), |(name, value)| (Some(name), value)));
    }
    Ok(Spec { system, name, function, fields })
}

fn is_name(name: &str) -> bool {
    let mut letters = name.bytes();
    letters.next().is_some_and(|first| first.is_ascii_alphabetic() || first == b'_')
        && letters.all(|letter| letter.is_ascii_alphanumeric() || letter == b'_')
}

fn check_name(name: &str) -> Result<(), TypedError> {
    if is_name(name) { Ok(()) } else { Err(TypedError::Name(name.to_owned())) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;
    use crate::context::Contexts;
    use crate::filter::Facts;
    use spec::TraceClock;

    fn shape(text: &str, end: End) -> Result<EventShape, String> {
        let btf = Btf::of_kernel().unwrap();
        let spec = parse(text).map_err(|error| error.to_string())?;
        let (facts, contexts) = (Facts::new(TraceClock::Mono, None), Contexts::default());
        let rule = ProbeRule {
            filter: None,
            question: None,
            contexts: &contexts,
            facts: &facts,
            id: 0,
            force: false,
        };
        let planned = Types::of_kernel(&btf).programs(&spec, end, &rule);
        planned.map(|(shape, _)| shape).map_err(|error| error.to_string())
    }

    #[test]
    fn fields_have_the_types_of_their_expressions() {
        let shape = shape(
            "mine/read=vfs_read file->f_inode->i_ino count buf n=count+1 current->comm \
             name=string(file->f_path.dentry->d_name.name) current->pid",
            End::Entry,
        )
        .unwrap();
        assert_eq!((shape.system.as_str(), shape.name.as_str()), ("mine", "read"));
        let fields: Vec<(&str, u32)> =
            shape.fields.iter().map(|field| (field.declaration.as_str(), field.offset)).collect();
        assert_eq!(
            fields,
            [
                ("unsigned long __probe_ip", 8),
                ("u64 i_ino", 16),
                ("u64 count", 24),
                ("u64 buf", 32),
                ("s64 n", 40),
                ("char comm[16]", 48),
                ("__data_loc char[] name", 64),
                ("s32 pid", 68),
            ]
        );
        assert_eq!(
            shape.print_fmt,
            r#""(%ps) i_ino=%llu count=%llu buf=0x%llx n=%lld comm=\"%s\" name=\"%s\" pid=%d", (void *)REC->__probe_ip, REC->i_ino, REC->count, REC->buf, REC->n, REC->comm, __get_str(name), REC->pid"#
        );
    }

    #[test]
    fn returned_values_are_fields() {
        let shape = shape("vfs_read $retval", End::Exit).unwrap();
        assert_eq!((shape.system.as_str(), shape.name.as_str()), ("fprobes", "vfs_read__exit"));
        assert_eq!(shape.fields[1].declaration, "s64 retval");
    }

    #[test]
    fn errors_say_which_name_and_what_was_meant() {
        for (text, end, expected) in [
            ("", End::Entry, "names no function"),
            ("vfs_raed", End::Entry, "no function vfs_raed; did you mean vfs_read"),
            ("1x=vfs_read", End::Entry, "\"1x\" cannot be a name"),
            ("vfs_read cuont", End::Entry, "no argument cuont; did you mean count?\n  cuont\n  ^"),
            (
                "vfs_read file->f_inod",
                End::Entry,
                "has no member f_inod; did you mean f_inode?\n  file->f_inod\n        ^",
            ),
            ("vfs_read file.f_inode", End::Entry, "write ->f_inode"),
            ("vfs_read file->f_inode.i_ino", End::Entry, "write ->i_ino"),
            ("vfs_read file->f_path", End::Entry, "choose a member, such as"),
            ("vfs_read $retval", End::Entry, "use --fexit"),
            ("vfs_read count+", End::Entry, "ends too early"),
            ("vfs_read count+1", End::Entry, "needs a name"),
            ("vfs_read count count", End::Entry, "another argument with this name: count"),
            ("vfs_read common_pid=count", End::Entry, "a field common_pid already"),
            ("vfs_read __probe_func=count", End::Entry, "a field __probe_func already"),
            ("vfs_read ctx_uid=count", End::Entry, "ctx_uid is the field of a context"),
            ("f:mine vfs_read count", End::Entry, "--fentry 'mine=vfs_read count'"),
            ("vfs_read foo(count)", End::Entry, "no function foo"),
            ("vfs_*", End::Entry, ""),
        ] {
            match shape(text, end) {
                Ok(_) => assert!(expected.is_empty(), "{text}"),
                Err(error) => assert!(!expected.is_empty() && error.contains(expected), "{text}: {error}"),
            }
        }
    }
}
