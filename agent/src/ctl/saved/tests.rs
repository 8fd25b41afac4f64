//! Tests of reading and writing.

use super::super::write;
use super::*;
use crate::control::session::SessionDomain;
use crate::control::{Channel, Session, Summary, Tracker};

/// What LTTng 2.13.9 saved of a session, with less of the same.
const OF_LTTNG: &str = r#"<?xml version="1.0" encoding="UTF-8"?>
<sessions>
	<session>
		<name>a</name>
		<domains>
			<domain>
				<type>UST</type>
				<buffer_type>PER_UID</buffer_type>
				<channels>
					<channel>
						<name>ch1</name>
						<enabled>true</enabled>
						<overwrite_mode>DISCARD</overwrite_mode>
						<subbuffer_size>524288</subbuffer_size>
						<subbuffer_count>4</subbuffer_count>
						<switch_timer_interval>0</switch_timer_interval>
						<read_timer_interval>0</read_timer_interval>
						<output_type>MMAP</output_type>
						<blocking_timeout>0</blocking_timeout>
						<monitor_timer_interval>1000000</monitor_timer_interval>
						<tracefile_size>0</tracefile_size>
						<tracefile_count>0</tracefile_count>
						<live_timer_interval>0</live_timer_interval>
						<events>
							<event>
								<name>app:one</name>
								<enabled>false</enabled>
								<type>TRACEPOINT</type>
								<loglevel_type>RANGE</loglevel_type>
								<loglevel>4</loglevel>
							</event>
						</events>
						<contexts>
							<context>
								<type>VPID</type>
							</context>
						</contexts>
					</channel>
				</channels>
				<process_attr_trackers>
					<vpid_process_attr_tracker>
						<process_attr_values>
							<vpid>
								<id>7</id>
							</vpid>
						</process_attr_values>
					</vpid_process_attr_tracker>
					<vuid_process_attr_tracker>
						<process_attr_values/>
					</vuid_process_attr_tracker>
				</process_attr_trackers>
			</domain>
			<domain>
				<type>JUL</type>
				<buffer_type>PER_UID</buffer_type>
				<channels/>
			</domain>
		</domains>
		<started>true</started>
		<attributes>
			<rotation_schedules>
				<periodic>
					<time_us>3600000000</time_us>
				</periodic>
			</rotation_schedules>
		</attributes>
		<output>
			<consumer_output>
				<enabled>true</enabled>
				<destination>
					<path>/t/a</path>
				</destination>
			</consumer_output>
		</output>
	</session>
</sessions>
"#;

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
    assert_eq!(channel.new.attributes.buffers, Some(crate::control::Buffers::Uid));
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
        buffers: Some(crate::control::Buffers::Global),
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
    Session { summary, domains, schedules, snapshot_outputs: Vec::new(), last_rotation: None }
}

#[test]
fn what_is_saved_is_read() {
    let there = session(Format::Lttng);
    let text = write::file(&there);
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
    let [saved] = sessions(&write::file(&there)).unwrap().try_into().unwrap();
    assert_eq!(saved.session.format, Format::TraceDat);
    assert_eq!(saved.channels[0].rules, there.domains[0].channels[0].rules);
    let last = saved.trackers.last().map(|(_, track)| (track.attribute, track.values.clone()));
    assert_eq!(last, Some((Attribute::Comm, Tracked::Only(vec!["bash*".into()]))));
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
    let [saved] = sessions(&write::file(&there)).unwrap().try_into().unwrap();
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
