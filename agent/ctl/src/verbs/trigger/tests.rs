use serde_json::json;

use super::super::super::at::tests::Desk;
use api::trigger::{ActionState, Condition};
use api::{Code, NewTrigger, Trigger};

/// What a daemon makes of a request.
fn made(new: &NewTrigger) -> Trigger {
    let state = |action: &api::trigger::Action| ActionState {
        action: action.clone(),
        executed: 0,
        failed: 0,
        last_failure: None,
    };
    Trigger {
        name: new.name.clone().unwrap_or_else(|| "trigger0".into()),
        uid: 7,
        condition: new.condition.clone(),
        fired: 0,
        missed: 0,
        interruptions: 0,
        problem: None,
        actions: new.actions.iter().map(state).collect(),
        pace: api::trigger::Pace::default(),
        held_back: 0,
        configured: false,
    }
}

/// What `add-trigger` asks for.
#[track_caller]
fn asked(line: &str) -> NewTrigger {
    let mut desk = Desk::new();
    let some = json!({"name": "t", "condition": {"rotation_ongoing": {"session": "s"}}, "actions": []});
    let some: NewTrigger = serde_json::from_value(some).unwrap();
    desk.story.answers("POST /v1/triggers", &made(&some));
    desk.says(&format!("add-trigger {line}"), 0, "Added trigger `t`.\n", "");
    let asked = desk.story.asked();
    serde_json::from_str(asked[0].split_once(' ').unwrap().1.split_once(' ').unwrap().1).unwrap()
}

#[test]
fn conditions_and_actions_are_read() {
    let new = asked(
        "--name=mine --condition=event-rule-matches --type=kernel:syscall:entry --name open* --filter flags>1 \
         --capture a[0x10] --capture $ctx.comm --action notify --rate-policy=every:10 --action \
         snapshot-session s -n snap --path /d -m 5M --action post /run/x.sock --rate-policy once-after:3 \
         --action=count --by=a,$comm --by=b --function=max(c) --max-keys=7 --action count",
    );
    let expected = json!({
        "name": "mine",
        "condition": {"event_rule_matches": {
            "domain": "kernel",
            "rule": {"name": "open*", "instrumentation": {"syscall": "entry"}, "filter": "flags>1"},
            "captures": ["a[16]", "$ctx.comm"],
        }},
        "actions": [
            {"do": "notify", "rate_policy": {"every": 10}},
            {"do": {"snapshot_session": {"session": "s", "output":
                {"path": "/d", "name": "snap", "max_size": 5 << 20}}}},
            {"do": {"post": {"socket": "/run/x.sock"}}, "rate_policy": {"once_after": 3}},
            {"do": {"count": {"by": ["a", "$comm", "b"], "function": "max(c)", "max_keys": 7}}},
            {"do": {"count": {}}},
        ],
    });
    assert_eq!(new, serde_json::from_value(expected).unwrap());
    for (line, condition) in [
        (
            "--condition=buffer-usage-high --session=s --channel=c --threshold=75%",
            json!({"buffer_usage_high":
                {"session": "s", "domain": "kernel", "channel": "c", "threshold": {"percent": 75}}}),
        ),
        (
            "--condition=buffer-usage-low -s s -c c --domain user --threshold 64K",
            json!({"buffer_usage_low":
                {"session": "s", "domain": "user", "channel": "c", "threshold": {"bytes": 65536}}}),
        ),
        (
            "--condition=session-consumed-size --session=s --threshold=1M",
            json!({"consumed_size": {"session": "s", "bytes": 1 << 20}}),
        ),
        ("--condition session-rotation-ongoing --session s", json!({"rotation_ongoing": {"session": "s"}})),
        (
            "--condition session-rotation-completed --session s",
            json!({"rotation_completed": {"session": "s"}}),
        ),
        (
            "--condition=pressure --resource=io --share=full --above=12.5%",
            json!({"pressure": {"resource": "io", "share": "full", "above": 1250}}),
        ),
        ("--condition=unit-failed --unit=nginx", json!({"unit_failed": {"unit": "nginx.service"}})),
        ("--condition=unit-failed --unit tmp.mount", json!({"unit_failed": {"unit": "tmp.mount"}})),
        ("--condition=unit-failed --unit=a.b*", json!({"unit_failed": {"unit": "a.b*"}})),
        (
            "--condition=event-rate --type=kernel --name=sched_switch --above=1000",
            json!({"event_rate": {"domain": "kernel", "above": 1000,
                "rule": {"name": "sched_switch", "instrumentation": "tracepoint"}}}),
        ),
    ] {
        let expected: Condition = serde_json::from_value(condition).unwrap();
        assert_eq!(asked(&format!("{line} --action=notify")).condition, expected, "{line}");
    }
}

#[test]
fn what_is_missing_or_wrong_is_said() {
    let desk = Desk::new();
    for (line, error) in [
        ("--condition=pressure --action=notify", "Condition pressure requires a --resource."),
        ("--condition=unit-failed --action=notify", "Condition unit-failed requires a --unit."),
        (
            "--condition=pressure --resource=disk --above=1 --action=notify",
            "Invalid value for --resource: disk",
        ),
        (
            "--condition=session-consumed-size --session=s --threshold=x --action=notify",
            "Invalid value for --threshold: x",
        ),
        (
            "--condition=session-rotation-ongoing --action=notify",
            "Condition session-rotation-ongoing requires a --session.",
        ),
        (
            "--condition=session-rotation-ongoing --session=s --action=count --max-keys=x",
            "Failed to parse `x` as an integer.",
        ),
        ("--condition=session-rotation-ongoing --session=s --action=post", "Missing socket."),
    ] {
        desk.says(&format!("add-trigger {line}"), 1, "", &format!("Error: {error}\n"));
    }
}

#[test]
fn triggers_are_listed_with_what_went_wrong() {
    let mut desk = Desk::new();
    let new: NewTrigger = serde_json::from_value(json!({
        "condition": {"event_rule_matches": {"domain": "kernel",
            "rule": {"name": "k", "instrumentation": {"kprobe": {"location": "do_exit"}}}}},
        "actions": [{"do": {"start_session": {"session": "s"}}, "rate_policy": {"every": 2}}],
    }))
    .unwrap();
    let mut trigger = made(&new);
    trigger.missed = 3;
    trigger.interruptions = 2;
    trigger.problem = Some("no".into());
    trigger.actions[0].failed = 2;
    trigger.actions[0].last_failure = Some("why".into());
    desk.story.answers("GET /v1/triggers", &vec![trigger]);
    let out = "- name: trigger0\n  owner uid: 7\n  condition: event rule matches\n    rule: k (type: \
               kernel:kprobe, location: do_exit)\n    errors:\n      discarded tracer messages: 3\n      \
               interruptions of the watch: 2\n      not looked at: no\n  actions:\n    \
               start session `s`, rate policy: every 2 occurrences\n      errors:\n        \
               total execution failures: 2\n        the last one: why\n  errors: none\n";
    desk.says("list-triggers", 0, out, "");
}

#[test]
fn addresses_of_snapshots_stay_as_they_were_given() {
    let mut desk = Desk::new();
    let mut triggers = Vec::new();
    for (options, text, xml) in [
        ("--url net://1.2.3.4", "url: net://1.2.3.4", "<ctrl_url>net://1.2.3.4</ctrl_url>"),
        ("--url=net6://[::1]:1:2", "url: net6://[::1]:1:2", "<ctrl_url>net6://[::1]:1:2</ctrl_url>"),
        ("--url file:///a/b", "path: /a/b", "<ctrl_url>/a/b</ctrl_url>"),
        ("--path /a", "path: /a", "<ctrl_url>/a</ctrl_url>"),
        (
            "--ctrl-url tcp://1.2.3.4:1111 --data-url tcp://1.2.3.4:1112",
            "control url: tcp://1.2.3.4:1111, data url: tcp://1.2.3.4:1112",
            "<ctrl_url>tcp://1.2.3.4:1111</ctrl_url><data_url>tcp://1.2.3.4:1112</data_url>",
        ),
    ] {
        let line =
            format!("--condition=session-rotation-ongoing --session=s --action=snapshot-session s {options}");
        triggers.push((made(&asked(&line)), text, xml));
    }
    for (trigger, text, xml) in triggers {
        desk.story.answers("GET /v1/triggers", &vec![trigger.clone()]);
        let shown = desk.lttng("list-triggers").out;
        assert!(shown.contains(&format!("snapshot session `s`, {text}\n")), "{shown}");
        desk.story.answers("GET /v1/triggers", &vec![trigger]);
        let shown = desk.lttng("--mi xml list-triggers").out;
        assert!(shown.contains(&format!("<output>{xml}</output>")), "{shown}");
    }
}

#[test]
fn triggers_are_removed_also_those_of_others() {
    let mut desk = Desk::new();
    let some = json!({"condition": {"rotation_ongoing": {"session": "s"}}, "actions": []});
    let new: NewTrigger = serde_json::from_value(some).unwrap();
    desk.story.answers("DELETE /v1/triggers/a%2Fb?uid=8", &made(&new));
    desk.says("remove-trigger --owner-uid=8 a/b", 0, "Removed trigger `a/b`.\n", "");
    desk.story.refuses("DELETE /v1/triggers/x", Code::NoTrigger);
    desk.says("remove-trigger x", 1, "", "Error: Couldn't find trigger with name `x`.\n");
}

#[test]
fn what_the_daemon_tells_is_shown() {
    let mut desk = Desk::new();
    let lines = ["{\"what\":\"note\"}", "{\"what\":\"trigger\",\"trigger\":\"t\"}", "{\"trigger\":\"u\"}"];
    desk.story.tells("/v1/notifications", &lines);
    desk.says("listen --count 2", 0, &format!("{}\n{}\n", lines[0], lines[1]), "");
    desk.story.tells("/v1/notifications", &lines);
    desk.says("listen --trigger u", 0, &format!("{}\n", lines[2]), "");
}
