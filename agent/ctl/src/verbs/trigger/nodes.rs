//! Triggers as parts of documents, as LTTng's machine interface has them.

use super::super::super::document::Node;
use super::super::super::nodes::{attributes_of, domain_type};
use super::text::{FAILED, INTERRUPTIONS, MISSED, emission_site};
use api::trigger::{
    Action, ActionKind, BufferUsage, Capture, Condition, RatePolicy, SnapshotTarget, Threshold,
};
use api::{Domain, EventRule, Instrumentation, LogLevel, Trigger};

/// A trigger. `with_errors`: what has gone wrong is told, as lists do.
pub(crate) fn trigger(of: &Trigger, with_errors: bool) -> Node {
    let mut parts_of = vec![condition(&of.condition)];
    if with_errors {
        let is_rule =
            matches!(of.condition, Condition::EventRuleMatches { .. } | Condition::EventRate { .. });
        let why = "Count of messages discarded by the tracer due to a communication error with the session \
                   daemon";
        let missed = is_rule.then_some((MISSED, why, of.missed));
        let why = "Count of times in which nobody has watched; what happened then is not known";
        let interruptions = (of.interruptions != 0).then_some((INTERRUPTIONS, why, of.interruptions));
        parts_of.push(errors(missed.into_iter().chain(interruptions)));
    }
    let actions = of.actions.iter().map(|state| {
        let mut parts = vec![action(&state.action)];
        if with_errors {
            let why = "Aggregated count of errors encountered when executing the action";
            parts.push(errors([(FAILED, why, state.failed)]));
        }
        Node::Parts("action", parts)
    });
    let mut parts = vec![
        Node::text("name", &of.name),
        Node::number("owner_uid", of.uid),
        Node::Parts("condition", parts_of),
        Node::Parts("action", vec![Node::Items("action_list", actions.collect())]),
    ];
    if with_errors {
        parts.push(errors([]));
    }
    Node::Parts("trigger", parts)
}

fn errors<'a>(all: impl IntoIterator<Item = (&'a str, &'a str, u64)>) -> Node {
    let result = all.into_iter().map(|(name, description, value)| {
        let counter = Node::Parts("error_query_result_counter", vec![Node::number("value", value)]);
        let parts = vec![Node::text("name", name), Node::text("description", description), counter];
        Node::Parts("error_query_result", parts)
    });
    Node::Items("error_query_results", result.collect())
}

fn condition(of: &Condition) -> Node {
    match of {
        Condition::EventRuleMatches { domain, rule, captures } => {
            let captures = captures.iter().filter_map(|text| text.parse::<Capture>().ok());
            let captures = captures.map(|of| capture(&of)).collect();
            let parts = vec![self::rule(*domain, rule), Node::Items("capture_descriptors", captures)];
            Node::Parts("condition_event_rule_matches", parts)
        }
        Condition::EventRate { domain, rule, above } => Node::Parts(
            "condition_event_rate",
            vec![self::rule(*domain, rule), Node::number("above", *above)],
        ),
        Condition::BufferUsageHigh(usage) => Node::Parts("condition_buffer_usage_high", buffer_usage(usage)),
        Condition::BufferUsageLow(usage) => Node::Parts("condition_buffer_usage_low", buffer_usage(usage)),
        Condition::ConsumedSize { session, bytes } => Node::Parts(
            "condition_session_consumed_size",
            vec![Node::text("session_name", session), Node::number("threshold_bytes", *bytes)],
        ),
        Condition::RotationOngoing { session } => {
            Node::Parts("condition_session_rotation_ongoing", vec![Node::text("session_name", session)])
        }
        Condition::RotationCompleted { session } => {
            Node::Parts("condition_session_rotation_completed", vec![Node::text("session_name", session)])
        }
        Condition::Pressure { resource, share, above } => Node::Parts(
            "condition_pressure",
            vec![
                Node::text("resource", resource.name()),
                Node::text("share", share.name()),
                Node::text("above", format!("{}.{:02}", above / 100, above % 100)),
            ],
        ),
        Condition::UnitFailed { unit } => {
            Node::Parts("condition_unit_failed", vec![Node::text("unit", unit)])
        }
        Condition::Signal => Node::Parts("condition_signal", Vec::new()),
    }
}

fn buffer_usage(of: &BufferUsage) -> Vec<Node> {
    let BufferUsage { session, domain, channel, threshold } = of;
    vec![
        Node::text("session_name", session),
        Node::text("channel_name", channel),
        Node::text("domain", domain_type(*domain)),
        match threshold {
            Threshold::Bytes(bytes) => Node::number("threshold_bytes", *bytes),
            Threshold::Percent(percent) => {
                Node::text("threshold_ratio", format!("{}.{:02}", percent / 100, percent % 100))
            }
        },
    ]
}

fn rule(domain: Domain, rule: &EventRule) -> Node {
    let EventRule { name, instrumentation, filter, exclusions, log_level, enabled: _ } = rule;
    let pattern = || Node::text("name_pattern", name);
    let (kind, mut parts) = match instrumentation {
        Instrumentation::Tracepoint if domain == Domain::User => {
            ("event_rule_user_tracepoint", vec![pattern()])
        }
        Instrumentation::Tracepoint => ("event_rule_kernel_tracepoint", vec![pattern()]),
        Instrumentation::Syscall(part) => {
            let site = Node::text("emission_site", emission_site(*part));
            ("event_rule_kernel_syscall", vec![site, pattern()])
        }
        place => {
            let kind = match place {
                Instrumentation::UserProbe(_) => "event_rule_kernel_uprobe",
                Instrumentation::Function { .. } => "event_rule_kernel_function",
                _ => "event_rule_kernel_kprobe",
            };
            (kind, [Node::text("event_name", name)].into_iter().chain(attributes_of(place)).collect())
        }
    };
    parts.extend(filter.as_ref().map(|filter| Node::text("filter_expression", filter)));
    parts.extend(log_level.map(|level| {
        let (how, level) = match level {
            LogLevel::AtLeast(level) => ("log_level_rule_at_least_as_severe_as", level),
            LogLevel::Only(level) => ("log_level_rule_exactly", level),
        };
        Node::Parts("log_level_rule", vec![Node::Parts(how, vec![Node::number("level", level)])])
    }));
    if !exclusions.is_empty() {
        let all = exclusions.iter().map(|of| Node::text("name_pattern_exclusion", of)).collect();
        parts.push(Node::Items("name_pattern_exclusions", all));
    }
    Node::Parts("event_rule", vec![Node::Parts(kind, parts)])
}

fn capture(of: &Capture) -> Node {
    let named = |kind, name: &String| Node::Parts(kind, vec![Node::text("name", name)]);
    let kind = match of {
        Capture::Field(name) => named("event_expr_payload_field", name),
        Capture::Context(name) => named("event_expr_channel_context_field", name),
        Capture::AppContext { provider, name } => Node::Parts(
            "event_expr_app_specific_context_field",
            vec![Node::text("provider_name", provider), Node::text("type_name", name)],
        ),
        Capture::Element(of, index) => {
            Node::Parts("event_expr_array_field_element", vec![Node::number("index", *index), capture(of)])
        }
    };
    Node::Parts("event_expr", vec![kind])
}

fn action(of: &Action) -> Node {
    let policy = match of.rate_policy {
        RatePolicy::Every(interval) => {
            Node::Parts("rate_policy_every_n", vec![Node::number("interval", interval)])
        }
        RatePolicy::OnceAfter(threshold) => {
            Node::Parts("rate_policy_once_after_n", vec![Node::number("threshold", threshold)])
        }
    };
    let policy = Node::Parts("rate_policy", vec![policy]);
    let named = |session: &String| Node::text("session_name", session);
    match &of.kind {
        ActionKind::Notify => Node::Parts("action_notify", vec![policy]),
        ActionKind::StartSession { session } => {
            Node::Parts("action_start_session", vec![named(session), policy])
        }
        ActionKind::StopSession { session } => {
            Node::Parts("action_stop_session", vec![named(session), policy])
        }
        ActionKind::RotateSession { session } => {
            Node::Parts("action_rotate_session", vec![named(session), policy])
        }
        ActionKind::SnapshotSession { session, output, window } => {
            let mut parts = vec![named(session)];
            if let Some(SnapshotTarget { path, data_url, name, max_size }) = output {
                let mut of = Vec::new();
                of.extend(name.as_ref().map(|name| Node::text("name", name)));
                of.push(Node::text("ctrl_url", path.display().to_string()));
                of.extend(data_url.as_ref().map(|url| Node::text("data_url", url)));
                of.extend(max_size.map(|size| Node::number("max_size", size)));
                parts.push(Node::Parts("output", of));
            }
            parts.extend(window.before_ms.map(|ms| Node::number("before_ms", ms)));
            parts.extend(window.after_ms.map(|ms| Node::number("after_ms", ms)));
            parts.push(policy);
            Node::Parts("action_snapshot_session", parts)
        }
        ActionKind::Count { by, function, max_keys } => {
            let mut parts: Vec<Node> = function.iter().map(|of| Node::text("function", of)).collect();
            if !by.is_empty() {
                parts.push(Node::Items("keys", by.iter().map(|by| Node::text("key", by)).collect()));
            }
            parts.extend(max_keys.map(|keys| Node::number("max_keys", keys)));
            parts.push(policy);
            Node::Parts("action_count", parts)
        }
        ActionKind::Post { socket } => {
            Node::Parts("action_post", vec![Node::text("socket", socket.display().to_string()), policy])
        }
    }
}
