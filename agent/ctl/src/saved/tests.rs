//! Tests of reading and writing.

use super::super::write;
use super::*;
use api::session::SessionDomain;
use api::{Channel, Session, Summary, Tracker};

/// What LTTng 2.13.9 saved of a session, with less of the same.
const OF_LTTNG: &str = include_str!("lttng-2.13.9.xml");

#[test]
fn a_file_of_lttng_is_read() {
    let [saved] = sessions(OF_LTTNG).unwrap().try_into().unwrap();
    assert_eq!(saved.session.name.as_deref(), Some("a"));
    assert_eq!(saved.session.mode, SessionMode::Local { output: Some("/t/a".into()) });
    assert_eq!((saved.session.format, saved.started), (Format::Lttng, true));
    assert_eq!(saved.schedules, [Schedule::PeriodUs(3_600_000_000)]);
    let [channel] = &saved.channels[..] else { panic!("{saved:?}") };
    assert_eq!((channel.domain, channel.new.name.as_str()), (Domain::User, "ch1"));
    assert_eq!(channel.new.attributes.subbuf_size, Some(524_288));
    assert_eq!(channel.new.attributes.buffers, Some(Buffers::Uid));
    assert_eq!(channel.contexts, ["vpid"]);
    assert_eq!(channel.rules[0].log_level, Some(LogLevel::AtLeast(4)));
    assert!(!channel.rules[0].enabled);
    let of = |attribute, values, add| (Domain::User, Track { attribute, values, add });
    assert_eq!(
        saved.trackers,
        [
            of(Attribute::Vpid, Tracked::All, false),
            of(Attribute::Vpid, Tracked::Only(vec!["7".into()]), true),
            of(Attribute::Vuid, Tracked::All, false),
        ]
    );
}

fn rule(name: &str, instrumentation: Instrumentation) -> EventRule {
    EventRule {
        name: name.to_owned(),
        instrumentation,
        enabled: true,
        filter: None,
        exclusions: Vec::new(),
        log_level: None,
    }
}

/// A session with something of everything.
fn session(format: Format) -> Session {
    let place = |path: &str| path.to_owned();
    let rules = vec![
        EventRule {
            filter: Some("a < 3 && b == \"x\"".into()),
            ..rule("sched_*", Instrumentation::Tracepoint)
        },
        rule("open*", Instrumentation::Syscall(SyscallPart::Both)),
        rule("k", Instrumentation::Kprobe { location: "do_exit+0x10".into() }),
        rule("at", Instrumentation::Kprobe { location: "0xff00".into() }),
        rule("f", Instrumentation::Function { location: "vfs_read".into() }),
        rule(
            "u",
            Instrumentation::UserProbe(UserProbe::Elf { path: place("/bin/a"), symbol: place("main") }),
        ),
        rule(
            "s",
            Instrumentation::UserProbe(UserProbe::Sdt {
                path: place("/bin/a"),
                provider: place("p"),
                name: place("n"),
            }),
        ),
    ];
    let attributes = ChannelAttributes {
        event_loss: Some(EventLoss::Overwrite),
        subbuf_size: Some(65_536),
        num_subbuf: Some(8),
        switch_timer_us: Some(1000),
        read_timer_us: Some(0),
        monitor_timer_us: Some(1_000_000),
        blocking_timeout_us: None,
        output: Some(OutputMethod::Mmap),
        tracefile_size: Some(0),
        tracefile_count: Some(0),
        buffers: Some(Buffers::Global),
    };
    let channel = Channel {
        name: "c".into(),
        enabled: false,
        attributes,
        discarded: 9,
        lost_packets: 0,
        contexts: vec!["callstack-kernel".into(), "perf:cpu:cpu-cycles".into(), "pid".into()],
        rules,
    };
    let only = |attribute, value: &str| Tracker { attribute, tracked: Tracked::Only(vec![value.into()]) };
    let trackers = vec![only(Attribute::Pid, "7"), only(Attribute::Uid, "root")];
    let summary = Summary {
        name: "<s>".into(),
        active: false,
        mode: SessionMode::Local { output: Some("/t/a&b".into()) },
        format,
        created_at: 0,
        uid: 0,
    };
    let domains = vec![SessionDomain { domain: Domain::Kernel, trackers, channels: vec![channel] }];
    let schedules = vec![Schedule::PeriodUs(5), Schedule::SizeBytes(6)];
    Session {
        summary,
        domains,
        schedules,
        snapshot_outputs: Vec::new(),
        last_rotation: None,
        maps: Vec::new(),
        notes: Vec::new(),
    }
}

#[test]
fn what_is_saved_is_read() {
    let there = session(Format::Lttng);
    let text = write::file(&there).unwrap();
    // LTTng's schema has no namespaces.
    assert!(!text.contains("tracer-agent"), "{text}");
    let [saved] = sessions(&text).unwrap().try_into().unwrap();
    let channel = &there.domains[0].channels[0];
    assert_eq!(saved.session.name.as_ref(), Some(&there.summary.name));
    assert_eq!(saved.session.mode, there.summary.mode);
    assert_eq!(saved.schedules, there.schedules);
    assert_eq!(saved.channels[0].rules, channel.rules);
    assert_eq!(saved.channels[0].contexts, channel.contexts);
    assert_eq!(saved.channels[0].new.attributes, channel.attributes);
    assert!(!saved.channels[0].enabled);
    assert_eq!(saved.trackers.len(), 4);
}

#[test]
fn what_lttng_does_not_have_is_saved() {
    let mut there = session(Format::TraceDat);
    let own = Tracker { attribute: Attribute::Comm, tracked: Tracked::Only(vec!["bash*".into()]) };
    there.domains[0].trackers.push(own);
    there.domains[0].channels[0].rules.push(rule("read", Instrumentation::Syscall(SyscallPart::Exit)));
    let [saved] = sessions(&write::file(&there).unwrap()).unwrap().try_into().unwrap();
    assert_eq!(saved.session.format, Format::TraceDat);
    assert_eq!(saved.channels[0].rules, there.domains[0].channels[0].rules);
    let last = saved.trackers.last().map(|(_, track)| (track.attribute, track.values.clone()));
    assert_eq!(last, Some((Attribute::Comm, Tracked::Only(vec!["bash*".into()]))));
}

#[test]
fn texts_and_contexts_are_what_they_were() {
    let mut there = session(Format::Lttng);
    there.summary.name = " a\r\n\tb ".into();
    let channel = &mut there.domains[0].channels[0];
    channel.rules[0].filter = Some(" a == \" \" ".into());
    channel.rules[0].exclusions = vec![" ".into()];
    // LTTng has no name for some, and that of a raw counter leaves some of its characters out.
    channel.contexts = [
        "cgroup",
        "perf:cpu:raw:r3c:cycles",
        "perf:cpu:raw:r03C:a-b",
        "perf:cpu:raw:r3c:a ",
        "$app.a:b:c",
        "$app. a: b ",
    ]
    .map(str::to_owned)
    .to_vec();
    super::super::fuzz::fuzz_session(&there);
    let [saved] = sessions(&write::file(&there).unwrap()).unwrap().try_into().unwrap();
    assert_eq!(saved.session.name.as_deref(), Some(" a\r\n\tb "));
    assert_eq!(saved.channels[0].rules, there.domains[0].channels[0].rules);
    assert_eq!(saved.channels[0].contexts, there.domains[0].channels[0].contexts);
}

#[test]
fn what_no_file_can_say_is_not_saved() {
    let mut there = session(Format::Lttng);
    there.domains[0].channels[0].rules[0].filter = Some("a == \"\u{1}\"".into());
    let error = write::file(&there).unwrap_err();
    assert!(error.contains("XML has no such character"), "{error}");
}

#[test]
fn places_that_are_none_are_refused() {
    let place = |attributes: &str| {
        let event = format!("<event><type>PROBE</type><attributes>{attributes}</attributes></event>");
        let channel = format!("<channel><name>c</name><events>{event}</events></channel>");
        let domain = format!("<domain><type>KERNEL</type><channels>{channel}</channels></domain>");
        sessions(&format!(
            "<sessions><session><name>s</name><domains>{domain}</domains></session></sessions>"
        ))
    };
    let probe = |text: &str| place(&format!("<probe_attributes>{text}</probe_attributes>"));
    assert!(probe("<symbol_name> do_exit </symbol_name><offset> 3 </offset>").is_ok());
    for wrong in ["<symbol_name>a+b</symbol_name>", "<symbol_name>0x1z</symbol_name>", "<symbol_name/>", ""] {
        assert!(probe(wrong).is_err(), "{wrong}");
    }
    assert!(place("<function_attributes><symbol_name/></function_attributes>").is_err());
    super::super::fuzz::fuzz_saved(OF_LTTNG);
}

#[test]
fn snapshots_go_where_they_went() {
    let mut there = session(Format::Lttng);
    there.summary.mode = SessionMode::Snapshot;
    let output = |name: &str, max_size| SnapshotOutput {
        id: 0,
        name: Some(name.to_owned()),
        path: "/s".into(),
        max_size,
    };
    there.snapshot_outputs = vec![output("snapshot-1", None), output("more", Some(5))];
    let [saved] = sessions(&write::file(&there).unwrap()).unwrap().try_into().unwrap();
    assert_eq!(saved.session.mode, SessionMode::Snapshot);
    assert_eq!(saved.session.snapshot_output, Some("/s".into()));
    assert_eq!(saved.snapshot_outputs, [output("more", Some(5))]);
}

#[test]
fn what_is_no_such_file_is_refused() {
    let entity = "<!DOCTYPE a [<!ENTITY b \"c\">]><sessions><session><name>&b;</name></session></sessions>";
    let within = |inside: &str| format!("<sessions><session><name>a</name>{inside}</session></sessions>");
    let domain = |inside: &str| within(&format!("<domains><domain>{inside}</domain></domains>"));
    for wrong in [
        String::new(),
        "<sessions><bad></sessions>".to_owned(),
        "<other/>".to_owned(),
        "<sessions><session/></sessions>".to_owned(),
        entity.to_owned(),
        within("<started>maybe</started>"),
        within("<attributes><live_timer_interval>5</live_timer_interval></attributes>"),
        domain("<type>KERNEL</type><channels><channel/></channels>"),
        domain("<type>NOPE</type>"),
        domain(
            "<type>KERNEL</type><channels><channel><name>c</name><subbuffer_size>-1</subbuffer_size>\
             </channel></channels>",
        ),
        domain(
            "<type>KERNEL</type><channels><channel><name>c</name><events><event><type>PROBE</type></event>\
             </events></channel></channels>",
        ),
    ] {
        assert!(sessions(&wrong).is_err(), "{wrong}");
    }
}

/// Numbers that look random, the same each time (xorshift).
fn dice(state: &mut u64, sides: usize) -> usize {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    usize::try_from(*state % sides as u64).unwrap()
}

#[test]
fn whatever_becomes_of_a_file_is_read_or_refused() {
    const PIECES: [&str; 10] = [
        "<",
        "&#0;",
        "&lt;",
        "]]>",
        "<!DOCTYPE a>",
        "<session>",
        "</session>",
        "-1",
        "18446744073709551616",
        "\u{1f600}",
    ];
    let mut state = 0x9e37_79b9_7f4a_7c15;
    let (mut read, mut refused) = (0, 0);
    for _ in 0..3000 {
        let mut text = OF_LTTNG.to_owned();
        for _ in 0..=dice(&mut state, 3) {
            let mut at = [dice(&mut state, text.len() + 1), dice(&mut state, text.len() + 1)];
            at.sort_unstable();
            let [from, mut to] = at.map(|at| text.floor_char_boundary(at));
            to = text.floor_char_boundary(to.min(from + 40));
            match dice(&mut state, 3) {
                0 => text.replace_range(from..to, ""),
                1 => {
                    let again = text[from..to].to_owned();
                    text.insert_str(from, &again);
                }
                _ => text.replace_range(from..to, PIECES[dice(&mut state, PIECES.len())]),
            }
        }
        match sessions(&text) {
            Ok(_) => read += 1,
            Err(_) => refused += 1,
        }
    }
    assert!(read > 10 && refused > 1000, "{read} {refused}");
}
