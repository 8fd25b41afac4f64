//! Contexts of channels: in a trace that is written while the recording goes on, the stream declares them, as
//! it does in an export of the same records.

use std::path::Path;

use capture::{Finisher, Session};
use integration_tests::{
    ctf,
    daemon::Daemon,
    harness::{Caller, Report, agent, program, run},
    session::{events, leave_spool, spec, start},
};
use serde_json::json;
use spec::Context;
use spec::{ChannelSpec, RecordingSpec, RuleSpec, TraceFormat};

const ENTRY: &str = "syscalls:sys_enter_getppid";
const EXIT: &str = "syscalls:sys_exit_getppid";

fn contexts(names: &[&str]) -> Vec<Context> {
    names.iter().map(|name| name.parse().unwrap()).collect()
}

/// What babeltrace2 prints of the recorded events of a trace. It warns of nothing but lost events of a
/// recording that was `killed`, of which each CPU may have one.
fn babeltrace(trace: &Path, options: &[&str], killed: bool) -> Vec<String> {
    let mut command = program("/".as_ref(), "babeltrace2", ["--clock-cycles", "--no-delta"]);
    let ended = run(command.args(options).arg(trace)).expect(0);
    let is_known = |warning: &str| killed && warning.starts_with("WARNING: Tracer discarded 1 event ");
    assert!(ended.err.lines().all(is_known), "{}: {}", trace.display(), ended.err);
    let lines = ended.out.lines().filter(|line| !line.contains(" lttng_statedump_"));
    lines.map(str::to_owned).collect()
}

/// The fields that are declared in this scope of the metadata's blocks of a kind (`stream` or `event`), by
/// block. Common fields are left out.
fn declared(trace: &Path, kind: &str, scope: &str) -> Vec<Vec<String>> {
    let text = ctf::read(trace).text;
    let blocks = text.split("\n\n").filter_map(|block| block.strip_prefix(kind)?.strip_prefix(" {"));
    let of_block = |block: &str| {
        let Some((_, fields)) = block.split_once(&format!("\t{scope} := struct {{\n")) else {
            return Vec::new();
        };
        let fields = fields.split("\t};\n").next().unwrap().lines();
        let names = fields.filter_map(|line| line.rsplit_once(" _")?.1.split([';', '[']).next());
        names.filter(|name| *name != "tid" && !name.starts_with("common_")).map(str::to_owned).collect()
    };
    blocks.map(of_block).collect()
}

/// Channels that differ in how their events have contexts.
fn channels(path: &Path, caller: &Caller) -> RecordingSpec {
    let mut spec = spec(path, caller, vec![events(ENTRY)], 4);
    spec.file.format = TraceFormat::Lttng;
    let shared = &mut spec.channels[0];
    shared.contexts = contexts(&["vpid", "procname", "prio"]);
    shared.switch_ns = 0;
    let channel = |name: &str, rules: Vec<RuleSpec>| ChannelSpec {
        name: name.to_owned(),
        rules,
        switch_ns: 0,
        ..ChannelSpec::default()
    };
    let with = |event: &str, names: &[&str]| RuleSpec { contexts: contexts(names), ..events(event) };
    let raw = |end: &str, names: &[&str]| RuleSpec {
        filter: Some("id == 110".to_owned()),
        ..with(&format!("raw_syscalls:sys_{end}"), names)
    };
    spec.channels.extend([
        // Nothing comes to it later: what its rules have in common is the channel's.
        channel("rules", vec![raw("exit", &["vtid", "tid", "uid"]), with(EXIT, &["nice", "vtid", "uid"])]),
        channel("mixed", vec![with(ENTRY, &["vpid", "procname", "prio"]), raw("enter", &[])]),
        // It begins without events.
        ChannelSpec {
            spare_events: 4,
            contexts: contexts(&["nice", "vtid", "uid"]),
            ..channel("late", Vec::new())
        },
    ]);
    spec
}

fn add(session: &mut Session, channel: &str, rule: RuleSpec) {
    let (addition, _) = plan::addition(session, channel, &[rule]).unwrap();
    assert!(session.add(addition).unwrap().is_empty());
}

#[test]
fn contexts_of_a_channel_are_in_the_context_of_its_stream() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let mut caller = Caller::start();
    let finisher = Finisher::start(None).unwrap();
    let mut session = start(&channels(&out, &caller));
    finisher.follow(&session).unwrap();
    caller.call(10);
    caller.settle();
    add(&mut session, "late", RuleSpec { contexts: contexts(&["uid"]), ..events(EXIT) });
    caller.call(5);
    caller.settle();
    session.pause().unwrap();
    finisher.flush();
    leave_spool(&session, &dir.path().join("left.dat.spool"));

    let vpid = ["vpid", "procname", "prio"];
    let of_streams = declared(&out, "stream", "event.context");
    assert_eq!(of_streams[..4], [&vpid[..], &["vtid", "uid"], &[], &["nice", "vtid", "uid"]]);
    let mut own = declared(&out, "event", "context").concat();
    own.sort();
    assert_eq!(own, ["nice", "prio", "procname", "vpid"], "what only some events have stays in them");
    let scopes = ["--names", "context,payload,scope"];
    let live = babeltrace(&out, &scopes, false);
    let pid = caller.pid();
    let values = format!("vpid = {pid}, procname = ");
    let in_scope = |of: &str, scope: &str| {
        let (_, context) = of.split_once(&format!(" {scope} = {{ ")).unwrap_or_default();
        context.split_once(" }").is_some_and(|(context, _)| context.contains(&values))
    };
    let of_scope = |scope: &str| live.iter().filter(|line| in_scope(line, scope)).count();
    assert_eq!((of_scope("stream.event.context"), of_scope("event.context")), (15, 15), "{live:#?}");

    // An export of the same records has the same events in the same streams.
    run(&mut agent(dir.path(), ["recover", "left.dat.spool"])).expect(0);
    run(&mut agent(dir.path(), ["export", "--format", "lttng", "left.dat", "exported"])).expect(0);
    let exported = dir.path().join("exported");
    assert_eq!(declared(&exported, "stream", "event.context")[..4], of_streams[..4]);
    assert_eq!(babeltrace(&exported, &scopes, true), live);
    // As the records themselves say.
    let report = Report::of(&dir.path().join("left.dat"));
    let line = format!(" ctx_vpid={pid} ctx_comm=");
    assert_eq!(report.count(|of| of.contains(&line)), 30);
    session.stop().into_iter().for_each(|recorded| finisher.add(recorded));
    finisher.finish();
}

#[test]
fn channels_of_the_daemon_declare_their_contexts_before_their_events() {
    const CHANNEL: &str = "/v1/sessions/one/domains/kernel/channels/channel0";
    let daemon = Daemon::start();
    let out = daemon.path().join("out");
    let mut caller = Caller::start();
    let new = json!({"name": "one", "format": "lttng", "mode": {"local": {"output": out}}});
    daemon.tell("POST", "/v1/sessions", Some(&new));
    let channel = json!({"name": "channel0"});
    daemon.tell("POST", "/v1/sessions/one/domains/kernel/channels", Some(&channel));
    let names = json!({"contexts": ["vpid", "procname"]});
    daemon.tell("POST", &format!("{CHANNEL}/contexts"), Some(&names));
    daemon.tell("POST", "/v1/sessions/one/start", None);
    let rule = |name: &str| json!({"name": name, "instrumentation": "tracepoint", "filter": "id == 110"});
    for name in ["raw_syscalls:sys_enter", "raw_syscalls:sys_exit"] {
        daemon.tell("POST", &format!("{CHANNEL}/rules"), Some(&rule(name)));
    }
    // Declarations of a trace that has begun stay.
    for stops in [false, true] {
        if stops {
            caller.call(100);
            caller.settle();
            daemon.tell("POST", "/v1/sessions/one/stop", None);
        }
        let late = daemon.ask("POST", &format!("{CHANNEL}/contexts"), Some(&json!({"contexts": ["uid"]})));
        assert_eq!((late.0, &late.1["code"]), (409, &json!("already_started")));
        let late =
            daemon.ask("POST", "/v1/sessions/one/domains/kernel/channels", Some(&json!({"name": "late"})));
        assert_eq!((late.0, &late.1["code"]), (409, &json!("already_started")));
    }
    daemon.tell("DELETE", "/v1/sessions/one", None);
    assert!(out.join("kernel/channel0_0").exists(), "it keeps its name");
    // Beside it there is the stream of the state dump.
    assert_eq!(declared(&out, "stream", "event.context"), [&["vpid", "procname"][..], &[]]);
    assert_eq!(declared(&out, "event", "context").concat(), Vec::<String>::new());
    let found = babeltrace(&out, &[], false);
    let of_caller = format!(" vpid = {}, procname = ", caller.pid());
    let of_caller = found.iter().filter(|line| line.contains(&of_caller)).count();
    assert_eq!(of_caller, 200, "{found:#?}");
}
