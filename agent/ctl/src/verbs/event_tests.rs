//! Tests of [`super`].

use super::super::super::at::tests::Desk;
use super::super::list::tests::{EMPTY, WITH_CHANNEL};
use super::*;
use api::requests::RulesChanged;

const RULES: &str = "POST /v1/sessions/a/domains/user/channels/ch1/rules";

#[test]
fn events_are_enabled() {
    let mut desk = Desk::with_session("a");
    for (line, out) in [
        ("app:*", "ust event app:* created in channel ch1\n"),
        ("x --filter a>3", "Event x: Filter 'a>3' successfully set\n"),
        ("x* -x xa,xb", "ust event x* excluding \"xa\", \"xb\" created in channel ch1\n"),
        ("-a", "All ust events are enabled in channel ch1\n"),
        ("-a --tracepoint", "All ust tracepoints are enabled in channel ch1\n"),
        ("-a --loglevel TRACE_INFO", "All ust events are enabled in channel ch1 for loglevel TRACE_INFO\n"),
        ("-a -f b<3", "Filter 'b<3' successfully set\n"),
    ] {
        desk.story.obeys(RULES);
        desk.says(&format!("enable-event -u -c ch1 {line}"), 0, out, "");
    }
    assert!(desk.story.asked()[5].contains("\"log_level\":{\"at_least\":6}"), "{:?}", desk.story.asked());
}

#[test]
fn a_channel_that_is_not_there_is_made() {
    let mut desk = Desk::with_session("a");
    desk.story.answers_with("GET /v1/sessions/a", 200, EMPTY);
    let rules = "POST /v1/sessions/a/domains/kernel/channels/channel0/rules";
    desk.story.refuses(rules, Code::NoKernelChannel);
    desk.story.answers_with(
        "POST /v1/sessions/a/domains/kernel/channels",
        200,
        "{\"name\":\"channel0\",\"enabled\":true,\"attributes\":{},\"discarded\":0,\"lost_packets\":0,\
         \"contexts\":[],\"rules\":[]}",
    );
    let out = "kernel event sched_switch created in channel channel0\n";
    desk.says("enable-event -k sched_switch", 0, out, "");
    let made = desk.story.asked().pop().unwrap();
    assert!(made.contains("\"name\":\"channel0\"") && made.contains("\"name\":\"sched_switch\""), "{made}");
    // A rule that is refused leaves no channel.
    desk.story.answers_with("GET /v1/sessions/a", 200, EMPTY);
    desk.story.refuses(rules, Code::NoKernelChannel);
    desk.story.refuses("POST /v1/sessions/a/domains/kernel/channels", Code::Filter);
    let error = "Error: Event x: Invalid filter bytecode (channel channel0, session a, filter 'a>')\n";
    desk.says("enable-event -k x --filter a>", 106, "", error);
    desk.story.answers_with("GET /v1/sessions/a", 200, WITH_CHANNEL);
    let error = "Error: Events: Non-default channel exists within session: channel name needs to be specified \
                 with '-c name' (channel <default>, session a)\n";
    desk.says("enable-event -u -a", 1, "", error);
}

#[test]
fn all_of_the_kernel_is_tracepoints_and_system_calls() {
    let mut desk = Desk::with_session("a");
    let rules = "POST /v1/sessions/a/domains/kernel/channels/c/rules";
    desk.story.obeys(rules);
    desk.says("enable-event -k -c c --all", 0, "All kernel events are enabled in channel c\n", "");
    let asked = desk.story.asked();
    assert!(asked[0].contains("\"tracepoint\"") && asked[0].contains("\"syscall\":\"both\""), "{asked:?}");
}

#[test]
fn refusals_are_told() {
    let mut desk = Desk::with_session("a");
    desk.story.refuses(RULES, Code::UserEventEnabled);
    let error = "Error: Event app:*: UST event already enabled (channel ch1, session a)\n";
    desk.says("enable-event -u -c ch1 app:*", 55, "", error);
    desk.story.refuses(RULES, Code::Filter);
    let error = "Error: Event z: Invalid filter bytecode (channel ch1, session a, filter 'a>')\n";
    desk.says("enable-event -u -c ch1 z --filter a>", 106, "", error);
    for (line, code, error) in [
        ("enable-event -u", 1, "Missing event name(s)."),
        ("enable-event foo", 1, "Please specify a domain (--kernel/--userspace/--jul/--log4j/--python)."),
        ("enable-event -k -u foo", 1, "Only one domain must be specified."),
        ("enable-event -u -c ch1 a --loglevel 3", 97, "Unknown loglevel 3"),
        ("enable-event -u a --syscall", 5, "Event type not available for user-space tracing"),
        ("enable-event -u foo -x a", 1, "Event foo: Exclusions can only be used with a globbing pattern"),
        ("disable-event -u", 1, "Missing event name(s).\n"),
    ] {
        desk.says(line, code, "", &format!("Error: {error}\n"));
    }
}

#[test]
fn events_are_disabled() {
    let mut desk = Desk::with_session("a");
    let rules = "PATCH /v1/sessions/a/domains/user/channels/ch1/rules";
    desk.story.answers(rules, &RulesChanged { rules: 1 });
    let out = "ust x of type any disabled in channel ch1 for session a\n";
    desk.says("disable-event -u -c ch1 x", 0, out, "");
    desk.story.answers(rules, &RulesChanged { rules: 3 });
    desk.says(
        "disable-event -u -c ch1 -a",
        0,
        "All ust events of type any are disabled in channel ch1\n",
        "",
    );
    desk.story.refuses(rules, Code::NoUserEvent);
    let error = "Error: nope of type any : UST event not found (channel ch1, session a)\n";
    desk.says("disable-event -u -c ch1 nope", 76, "", error);
}

#[test]
fn places_in_programs() {
    let shell = std::fs::canonicalize("/bin/sh").unwrap();
    let path = |probe: Result<UserProbe, Failure>| match probe.unwrap() {
        UserProbe::Elf { path, symbol } => (path, symbol),
        other @ UserProbe::Sdt { .. } => panic!("{other:?}"),
    };
    for location in ["elf:/bin/sh:main", "/bin/sh:main"] {
        let (found, symbol) = path(user_probe(location));
        assert_eq!((std::fs::canonicalize(found).unwrap(), symbol.as_str()), (shell.clone(), "main"));
    }
    let dir = tempfile::tempdir().unwrap();
    for (file, written) in [("a:b", r"a\:b"), (r"a\b", r"a\\b"), ("a b=c", r"a b=c")] {
        std::fs::write(dir.path().join(file), "").unwrap();
        let (found, symbol) = path(user_probe(&format!(r"{}/{written}:f\:g", dir.path().display())));
        assert_eq!((found, symbol.as_str()), (dir.path().join(file).display().to_string(), "f:g"));
    }
    assert!(matches!(user_probe("sdt:/bin/sh:p:n"), Ok(UserProbe::Sdt { .. })));
    for wrong in ["", "main", "elf:/bin/sh", "sdt:/bin/sh:p", "/no/such/file:main"] {
        assert!(user_probe(wrong).is_err(), "{wrong}");
    }
}
