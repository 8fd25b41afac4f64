//! Tests of [`super`], with sessions for tests of other commands.

use super::super::super::at::tests::Desk;
use super::*;
use api::{Format, SessionMode, Summary};

/// A session `a` without anything.
pub(in super::super) const EMPTY: &str = r#"{"name":"a","active":false,"mode":{"local":{"output":"/t/a"}},
    "format":"lttng","created_at":0,"uid":0,"domains":[],"schedules":[],"snapshot_outputs":[],
    "last_rotation":null}"#;

/// A session `a` with a channel `ch1` in the user domain.
pub(in super::super) const WITH_CHANNEL: &str = r#"{"name":"a","active":true,
    "mode":{"local":{"output":"/t/a"}},"format":"lttng","created_at":0,"uid":0,"schedules":[],
    "snapshot_outputs":[],"last_rotation":null,"domains":[{"domain":"user",
    "trackers":[{"attribute":"vpid","tracked":{"only":["2","3"]}},
        {"attribute":"vuid","tracked":{"only":["root"]}},{"attribute":"vgid","tracked":{"only":[]}}],
    "channels":[{"name":"ch1","enabled":true,"discarded":0,"lost_packets":0,"contexts":["vpid"],
        "attributes":{"event_loss":"discard","subbuf_size":524288,"num_subbuf":4,"switch_timer_us":0,
            "read_timer_us":0,"monitor_timer_us":1000000,"blocking_timeout_us":0,"output":"mmap",
            "tracefile_size":0,"tracefile_count":0,"buffers":"uid"},
        "rules":[{"name":"app:one","instrumentation":"tracepoint","enabled":false,"log_level":{"at_least":4}},
            {"name":"app:*","instrumentation":"tracepoint","filter":"a>3"}]}]}]}"#;

fn summary(name: &str, mode: SessionMode) -> Summary {
    Summary { name: name.to_owned(), active: false, mode, format: Format::Lttng, created_at: 0, uid: 0 }
}

#[test]
fn sessions_are_listed() {
    let mut desk = Desk::new();
    desk.story.answers("GET /v1/sessions", &[(); 0]);
    desk.says("list", 0, "Currently no available recording session\n", "");
    let local = SessionMode::Local { output: Some("/t/a".into()) };
    let live = SessionMode::Live { url: "net://127.0.0.1".into(), timer_us: 2_000_000 };
    let sessions = [summary("a", local), summary("snap", SessionMode::Snapshot), summary("lv", live)];
    desk.story.answers("GET /v1/sessions", &sessions);
    let out = "Available recording sessions:
  1) a [inactive]
    Trace output: /t/a

  2) snap [inactive snapshot]

  3) lv [inactive]
    Trace output: tcp4://127.0.0.1:5342/ [data: 5343]
    Live timer interval: 2000000 us


Use lttng list <session_name> for more details
";
    desk.says("list", 0, out, "");
}

/// As LTTng 2.13.9 printed a session like this.
const STATUS: &str = "Recording session a: [active]
    Trace output: /t/a

=== Domain: User space ===

Buffering scheme: per-user

Tracked process attributes
  Virtual process IDs:  2, 3
  Virtual user IDs:     `root`
  Virtual group IDs:    none

Channels:
-------------
- ch1: [enabled]

    Attributes:
      Event-loss mode:  discard
      Sub-buffer size:  524288 bytes
      Sub-buffer count: 4
      Switch timer:     inactive
      Read timer:       inactive
      Monitor timer:    1000000 us
      Blocking timeout: 0 us
      Trace file count: 1 per stream
      Trace file size:  unlimited
      Output mode:      mmap

    Statistics:
      Discarded events: 0

    Recording event rules:
      app:one (loglevel <= TRACE_WARNING (4)) (type: tracepoint) [disabled]
      app:* (type: tracepoint) [enabled] [filter: 'a>3']

";

#[test]
fn a_session_is_shown() {
    let mut desk = Desk::with_session("a");
    for line in ["status", "list a", "list a -c ch1"] {
        desk.story.answers_with("GET /v1/sessions/a", 200, WITH_CHANNEL);
        desk.says(line, 0, STATUS, "");
    }
    desk.story.answers_with("GET /v1/sessions/a", 200, EMPTY);
    desk.says("list a", 0, "Recording session a: [inactive]\n    Trace output: /t/a\n\n", "");
    desk.story.answers_with("GET /v1/sessions/a", 200, WITH_CHANNEL);
    let domains = "Recording session a: [active]\n    Trace output: /t/a\n\nDomains:\n-------------\n  - UST \
                   global\n";
    desk.says("list a -d", 0, domains, "");
    desk.story.refuses("GET /v1/sessions/nope", Code::NoSession);
    desk.says("list nope", 1, "", "Error: Session 'nope' not found\n");
    desk.story.answers_with("GET /v1/sessions/a", 200, WITH_CHANNEL);
    let said = desk.lttng("list a -c nope");
    assert_eq!((said.code, said.err.as_str()), (1, "Error: Channel nope not found\n"));
}

#[test]
fn probes_are_shown_as_lttng_shows_them() {
    let mut desk = Desk::with_session("a");
    let shell = std::fs::canonicalize("/bin/sh").unwrap().display().to_string();
    let rule =
        |name: &str, place: serde_json::Value| serde_json::json!({"name": name, "instrumentation": place});
    let of = |location: &str| serde_json::json!({"location": location});
    let rules = [
        rule("openat", serde_json::json!({"syscall": "both"})),
        rule("k", serde_json::json!({"kprobe": of("do_exit+16")})),
        rule("s", serde_json::json!({"kprobe": of("do_exit")})),
        rule("f", serde_json::json!({"function": of("0xFF")})),
        rule("u", serde_json::json!({"user_probe": {"elf": {"path": "/bin/sh", "symbol": "main"}}})),
        rule(
            "g",
            serde_json::json!({"user_probe": {"sdt": {"path": "/no/such", "provider": "p", "name": "m"}}}),
        ),
    ];
    let mut session: serde_json::Value = serde_json::from_str(WITH_CHANNEL).unwrap();
    session["domains"][0]["domain"] = "kernel".into();
    session["domains"][0]["channels"][0]["rules"] = rules.to_vec().into();
    desk.story.answers_with("GET /v1/sessions/a", 200, &session.to_string());
    let shown = desk.lttng("list a").out;
    let expected = format!(
        "    Recording event rules:
      openat (type:syscall) [enabled]
      k (type: probe) [enabled]
        offset: 0x10
        symbol: do_exit
      s (type: probe) [enabled]
        offset: 0x0
        symbol: do_exit
      f (type: function) [enabled]
        addr: 0xff
      u (type: userspace-probe) [enabled]
        Type: Function
        Binary path:   {shell}
        Function:      main()
        Lookup method: ELF
      g (type: userspace-probe) [enabled]
        Type: Tracepoint
        Binary path:   NULL
        Tracepoint:    p:m
        Lookup method: SDT

"
    );
    assert!(shown.ends_with(&expected), "{shown}");
}

#[test]
fn programs_get_documents() {
    let mut desk = Desk::with_session("a");
    desk.story.answers_with("GET /v1/sessions/a", 200, WITH_CHANNEL);
    let xml = desk.lttng("--mi xml list a").out;
    let expected = "<name>list</name><output><sessions><session><name>a</name><path>/t/a</path>\
        <enabled>true</enabled><snapshot_mode>0</snapshot_mode><live_timer_interval>0</live_timer_interval>\
        <domains><domain><type>UST</type><buffer_type>PER_UID</buffer_type><process_attr_trackers>\
        <vpid_process_attr_tracker><process_attr_values><vpid><type><id>2</id></type></vpid><vpid><type>\
        <id>3</id></type></vpid></process_attr_values></vpid_process_attr_tracker>\
        <vuid_process_attr_tracker><process_attr_values><vuid><type><name>root</name></type></vuid>\
        </process_attr_values></vuid_process_attr_tracker><vgid_process_attr_tracker>\
        <process_attr_values/></vgid_process_attr_tracker></process_attr_trackers><channels><channel>\
        <name>ch1</name><enabled>true</enabled><attributes><overwrite_mode>DISCARD</overwrite_mode>\
        <subbuffer_size>524288</subbuffer_size><subbuffer_count>4</subbuffer_count>\
        <switch_timer_interval>0</switch_timer_interval><read_timer_interval>0</read_timer_interval>\
        <monitor_timer_interval>1000000</monitor_timer_interval><blocking_timeout>0</blocking_timeout>\
        <output_type>MMAP</output_type><tracefile_size>0</tracefile_size>\
        <tracefile_count>0</tracefile_count><live_timer_interval>0</live_timer_interval>\
        <discarded_events>0</discarded_events><lost_packets>0</lost_packets></attributes><events><event>\
        <name>app:one</name><type>TRACEPOINT</type><enabled>false</enabled>\
        <loglevel>TRACE_WARNING</loglevel><loglevel_type>RANGE</loglevel_type><exclusions/></event><event>\
        <name>app:*</name><type>TRACEPOINT</type><enabled>true</enabled>\
        <filter_expression>a&gt;3</filter_expression><exclusions/></event></events></channel></channels>\
        </domain></domains></session></sessions></output></command>\n";
    assert!(xml.ends_with(expected), "{xml}");
    desk.story.answers_with("GET /v1/sessions/a", 200, WITH_CHANNEL);
    let json: serde_json::Value = serde_json::from_str(&desk.lttng("--json status").out).unwrap();
    let session = &json["output"]["sessions"][0];
    assert_eq!(session["domains"][0]["channels"][0]["events"][1]["filter_expression"], "a>3");
    assert_eq!(
        session["domains"][0]["process_attr_trackers"][1]["vuid_process_attr_tracker"]["process_attr_values"]
            [0]["type"]["name"],
        "root"
    );
}

#[test]
fn what_there_is_to_record() {
    let mut desk = Desk::new();
    desk.story.answers_with(
        "GET /v1/instrumentation/kernel?syscalls=false&fields=true",
        200,
        r#"[{"name":"sched_switch","instrumentation":"tracepoint","group":"sched",
            "fields":[{"name":"prev_pid","kind":"pid_t"}]}]"#,
    );
    let out = "Kernel events:\n-------------\n      sched_switch (type: tracepoint)\n        field: prev_pid \
               (pid_t)\n\n";
    desk.says("list -k -f", 0, out, "");
    desk.story.answers("GET /v1/instrumentation/user?syscalls=false&fields=false", &[(); 0]);
    desk.says("list -u", 0, "UST events:\n-------------\nNone\n\n", "");
    let warning = "Warning: --syscall will only work with the Kernel domain (-k)\n";
    desk.says("list --syscall", 1, "", warning);
}
