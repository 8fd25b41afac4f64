use super::selection::SUGGESTIONS;
use super::*;

const DYNAMIC: &str = "p:kprobes/myopen do_sys_openat2 dfd=%ax\n\
    r16:sched/myret do_sys_openat2 ret=$retval\n\
    p:uprobes/bash /bin/bash:0x00000000000bbde0 arg=%ax\n\
    e:eprobes/ep sched.sched_switch pid=$prev_pid\n\
    f:fprobes/fp vfs_read\n\
    t:tracepoints/tp sched_switch\n\
    s:synthetic/wakeup_lat\tu64 lat; pid_t pid;\n\
    u:app_event u32 count\n\
    \n\
    ?:what/ever\n";

fn catalogue() -> Catalogue {
    let names = [
        "sched:sched_switch",
        "sched:sched_wakeup",
        "sched:sched_waking",
        "sched:sched_process_exec",
        "sched:myret",
        "irq:irq_handler_entry",
        "irq:softirq_entry",
        "irq_vectors:call_function_entry",
        "syscalls:sys_enter_open",
        "syscalls:sys_enter_openat",
        "syscalls:sys_exit_openat",
        "raw_syscalls:sys_enter",
        "kmem:kmalloc",
        "kmem:kfree",
        "kprobes:myopen",
        "uprobes:bash",
        "eprobes:ep",
        "fprobes:fp",
        "tracepoints:tp",
        "synthetic:wakeup_lat",
        "synthetic:other",
        "user_events:app_event",
        "user_events:app_two",
        "ftrace:function",
        "ftrace:print",
    ];
    let names = names.iter().map(|name| EventName::parse(name).unwrap()).collect();
    Catalogue::new(names, DYNAMIC, "other\tu64 x\n", "app_two # Used by ftrace\n\nActive: 2\nBusy: 0\n")
}

fn rule(text: &str) -> Rule {
    Rule::include(text.parse().unwrap())
}

fn not(text: &str) -> Rule {
    Rule::exclude(text.parse().unwrap())
}

fn select(rules: &[Rule]) -> Vec<String> {
    catalogue().select(rules, false).unwrap().events.iter().map(|event| event.name.to_string()).collect()
}

fn message(text: &str) -> String {
    catalogue().select(&[rule(text)], false).unwrap_err().to_string()
}

#[test]
fn selectors_mean_what_trace_cmd_means_by_them() {
    assert_eq!(select(&[rule("sched:sched_switch")]), ["sched:sched_switch"]);
    assert_eq!(select(&[rule("sched/sched_switch")]), ["sched:sched_switch"]);
    let sched =
        ["sched:sched_process_exec", "sched:sched_switch", "sched:sched_wakeup", "sched:sched_waking"];
    assert_eq!(select(&[rule("sched")]), sched);
    assert_eq!(select(&[rule("sched:*")]), sched);
    assert_eq!(select(&[rule("sched:")]), sched);
    assert_eq!(select(&[rule("sched_wak*")]), ["sched:sched_wakeup", "sched:sched_waking"]);
    assert_eq!(select(&[rule("kmalloc")]), ["kmem:kmalloc"]);
    assert_eq!(select(&[rule(":kmalloc")]), ["kmem:kmalloc"]);
    assert_eq!(
        select(&[rule("syscalls:sys_enter_open*")]),
        ["syscalls:sys_enter_open", "syscalls:sys_enter_openat"]
    );
    assert_eq!(
        select(&[rule("irq*:*_entry")]),
        ["irq:irq_handler_entry", "irq:softirq_entry", "irq_vectors:call_function_entry"]
    );
    assert_eq!(select(&[rule("all")]).len(), 13);
    assert_eq!(select(&[rule("all")]), select(&[rule("*:*")]));
    assert_eq!(select(&[rule("all")]), select(&[rule("*")]));
    assert!(select(&[]).is_empty());
}

#[test]
fn exclusions_win_wherever_they_stand() {
    let expected = ["sched:sched_process_exec", "sched:sched_switch"];
    assert_eq!(select(&[rule("sched"), not("*wak*")]), expected);
    assert_eq!(select(&[not("*wak*"), rule("sched")]), expected);
    let error = catalogue().select(&[rule("kmem"), not("kmem:*")], false).unwrap_err();
    assert_eq!(error, SelectError::NothingLeft { excluded: 2, skipped: vec![] });
}

#[test]
fn an_event_remembers_every_rule_that_asked_for_it() {
    let selection =
        catalogue().select(&[rule("sched"), not("sched_wak*"), rule("sched_switch")], false).unwrap();
    assert_eq!(selection.events[1].name.to_string(), "sched:sched_switch");
    assert_eq!(selection.events[1].rules, [0, 2]);
}

#[test]
fn every_kind_of_unrecordable_event_is_recognised() {
    let catalogue = catalogue();
    let refusal = |name: &str| catalogue.get(&EventName::parse(name).unwrap()).unwrap().refusal;
    assert_eq!(refusal("sched:sched_switch"), None);
    assert_eq!(refusal("sched:myret"), Some(Refusal::KprobeEvent));
    assert_eq!(refusal("kprobes:myopen"), Some(Refusal::KprobeEvent));
    assert_eq!(refusal("uprobes:bash"), Some(Refusal::UprobeEvent));
    assert_eq!(refusal("eprobes:ep"), Some(Refusal::EventProbe));
    assert_eq!(refusal("fprobes:fp"), Some(Refusal::FprobeEvent));
    assert_eq!(refusal("tracepoints:tp"), Some(Refusal::FprobeEvent));
    assert_eq!(refusal("synthetic:wakeup_lat"), Some(Refusal::Synthetic));
    assert_eq!(refusal("synthetic:other"), Some(Refusal::Synthetic));
    assert_eq!(refusal("user_events:app_event"), Some(Refusal::UserEvent));
    assert_eq!(refusal("user_events:app_two"), Some(Refusal::UserEvent));
    assert_eq!(refusal("ftrace:function"), Some(Refusal::FtraceInternal));
}

#[test]
fn the_systems_tell_the_kind_when_dynamic_events_cannot_be_read() {
    let names = ["user_events:x", "synthetic:y", "eprobes:z", "ftrace:print", "sched:sched_switch"];
    let names = names.iter().map(|name| EventName::parse(name).unwrap()).collect();
    let selection = Catalogue::new(names, "", "", "").select(&[rule("all")], false).unwrap();
    assert_eq!(selection.events.len(), 1);
    assert_eq!(selection.skipped.len(), 4);
}

#[test]
fn an_unrecordable_event_is_an_error_by_name_and_skipped_by_wildcard() {
    assert_eq!(
        message("ftrace:function"),
        "cannot record ftrace:function: ftrace writes it itself and no program can see it"
    );
    assert!(message("synthetic:wakeup_lat").contains("synthetic"));
    assert!(message("app_event").starts_with("cannot record user_events:app_event: "));
    let selection = catalogue().select(&[rule("all")], false).unwrap();
    assert_eq!(selection.skipped.len(), 12);
    assert!(
        selection.skipped.contains(&Skipped { name: EventName::trace_marker(), reason: Refusal::OnlyNamed })
    );
    assert!(message("ftrace:func*").starts_with("no event is left to record: 0 excluded, 1 cannot"));
}

#[test]
fn trace_marker_is_recorded_where_it_or_its_system_is_named() {
    for selector in ["ftrace:print", "print", "ftrace", "ftrace:*", "ftrace:pr*"] {
        assert_eq!(select(&[rule(selector)]), ["ftrace:print"], "{selector}");
    }
    for selector in ["all", "*:*", "*:print", "f*", "ftr*:print", "prin?"] {
        let selected = catalogue().select(&[rule(selector)], false);
        let recorded = selected.map(|selection| selection.events).unwrap_or_default();
        assert!(recorded.iter().all(|event| !event.name.is_trace_marker()), "{selector}");
    }
    assert!(select(&[rule("all"), rule("ftrace")]).contains(&"ftrace:print".to_owned()));
}

#[test]
fn unknown_events_come_with_the_names_that_may_have_been_meant() {
    assert_eq!(
        message("sched:sched_swich"),
        "no such event sched:sched_swich; did you mean sched:sched_switch?"
    );
    assert_eq!(message("sched_swtich"), "no such event sched_swtich; did you mean sched:sched_switch?");
    assert_eq!(
        message("irq:sched_switch"),
        "no such event irq:sched_switch; did you mean sched:sched_switch?"
    );
    assert_eq!(message("sched:switch"), "no such event sched:switch; did you mean sched:sched_switch?");
    assert_eq!(message("shced:*"), "no such event shced:*; did you mean sched:*?");
    assert_eq!(message("shced"), "no such event shced; did you mean sched:*?");
    assert_eq!(
        message("sched:foo"),
        "no such event sched:foo; sched has 5 events, see: tracer-agent list -e 'sched:*'"
    );
    assert_eq!(message("zzzzzz:qqq"), "no such event zzzzzz:qqq; see: tracer-agent list -e");
    let SelectError::Unknown(unknown) = catalogue().select(&[rule("x:y"), not("nope")], false).unwrap_err()
    else {
        panic!("both are unknown");
    };
    assert_eq!(unknown.len(), 2);
}

#[test]
fn at_most_five_names_are_offered() {
    let names = (0..50).map(|n| EventName::new("sys", &format!("event_{n}"))).collect();
    let catalogue = Catalogue::new(names, "", "", "");
    let SelectError::Unknown(unknown) = catalogue.select(&[rule("sys:event_x")], false).unwrap_err() else {
        panic!("there is no event_x");
    };
    assert_eq!(unknown[0].nearest.len(), SUGGESTIONS);
}

#[test]
fn unknown_events_can_be_ignored() {
    let selection = catalogue().select(&[rule("kmalloc"), rule("sched:foo")], true).unwrap();
    assert_eq!(selection.events.len(), 1);
    assert_eq!(selection.unknown[0].selector, "sched:foo");
    let nothing = catalogue().select(&[rule("sched:foo")], true).unwrap();
    assert!(nothing.events.is_empty());
}

#[test]
fn texts_that_are_no_selectors_are_refused() {
    for text in ["", "  ", "a b", ":", "a:b:c", "a/b/c", "a\0b"] {
        assert!(matches!(text.parse::<EventSelector>(), Err(spec::SelectorError { .. })), "{text:?}");
    }
}
