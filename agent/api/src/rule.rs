//! Recording event rules.

use serde::{Deserialize, Serialize};

/// Which part of a system call is an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum SyscallPart {
    /// Both.
    #[default]
    Both,
    /// The call.
    Entry,
    /// The return.
    Exit,
}

/// A place in a program or library.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum UserProbe {
    /// The entry of a function: `elf:PATH:SYMBOL`.
    Elf {
        /// The file, absolute.
        path: String,
        /// The function.
        symbol: String,
    },
    /// A marker: `sdt:PATH:PROVIDER:NAME`.
    Sdt {
        /// The file, absolute.
        path: String,
        /// Its provider.
        provider: String,
        /// Its name.
        name: String,
    },
}

/// Kinds of places that events come from (lttng-concepts(7), "Instrumentation point types").
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Instrumentation {
    /// Tracepoints whose names match. In the user domain, markers.
    Tracepoint,
    /// System calls whose names match.
    Syscall(SyscallPart),
    /// A place in the kernel: `SYMBOL`, `SYMBOL+OFFSET` or an address.
    Kprobe {
        /// The place.
        location: String,
    },
    /// Entry and return of a function of the kernel.
    Function {
        /// The function.
        location: String,
    },
    /// A place in a program or library that the kernel instruments.
    UserProbe(UserProbe),
}

/// Which log levels match.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum LogLevel {
    /// This one (0 for `EMERG` to 14 for `DEBUG`) and all that are more severe.
    AtLeast(u8),
    /// This one.
    Only(u8),
}

/// An event rule of a channel. What it selects is all of it but whether it is enabled.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct EventRule {
    /// A pattern for names (`*` for anything, `\*` for an asterisk), or the name of a probe's event.
    pub name: String,
    /// Where its events come from.
    pub instrumentation: Instrumentation,
    /// Whether it records.
    #[serde(default = "yes")]
    pub enabled: bool,
    /// An expression in LTTng's language (lttng-event-rule(7)) that its records satisfy.
    #[serde(default)]
    pub filter: Option<String>,
    /// Patterns for names that it does not match.
    #[serde(default)]
    pub exclusions: Vec<String>,
    /// Which log levels match; all where nothing is said.
    #[serde(default)]
    pub log_level: Option<LogLevel>,
}

fn yes() -> bool {
    true
}
