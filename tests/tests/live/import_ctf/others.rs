//! What LTTng itself has recorded, and traces made by hand of what it does not write.

use std::os::unix::fs::chown;
use std::process::{Child, Command, Stdio};

use integration_tests::harness::{reported, wait_for};

use super::*;

const NOBODY: u32 = 65534;
/// Records the calls of the C library's allocator.
const WRAPPER: &str = "/usr/lib/x86_64-linux-gnu/liblttng-ust-libc-wrapper.so.1";

/// LTTng's session daemon, of a user who is not root.
struct Daemon {
    home: tempfile::TempDir,
    child: Child,
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = rustix::process::kill_process(
            rustix::process::Pid::from_child(&self.child),
            rustix::process::Signal::TERM,
        );
        let _ = self.child.wait();
    }
}

fn as_nobody(home: &Path, program: &str) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups", program]);
    command.current_dir("/").env("HOME", home).env("LTTNG_HOME", home).stdin(Stdio::null());
    command
}

impl Daemon {
    fn start() -> Self {
        let home = tempfile::tempdir().unwrap();
        chown(home.path(), Some(NOBODY), Some(NOBODY)).unwrap();
        let mut daemon = as_nobody(home.path(), "lttng-sessiond");
        let daemon = daemon.arg("--no-kernel").stdout(Stdio::null()).stderr(Stdio::null());
        let daemon = Self { child: daemon.spawn().unwrap(), home };
        wait_for("LTTng's session daemon", || {
            let listed = as_nobody(daemon.home.path(), "lttng").arg("list").output().unwrap();
            listed.status.success().then_some(())
        });
        daemon
    }

    fn lttng(&self, line: &str) {
        run(as_nobody(self.home.path(), "lttng").args(line.split(' '))).expect(0);
    }
}

#[test]
fn what_lttng_has_recorded_is_what_babeltrace_prints() {
    let daemon = Daemon::start();
    let trace = daemon.home.path().join("out");
    daemon.lttng(&format!("create s --output={}", trace.display()));
    // Too small for all of it, so that events are lost.
    daemon.lttng("enable-channel --userspace --subbuf-size=4096 --num-subbuf=2 c");
    daemon.lttng("enable-event --userspace --channel=c --all");
    daemon.lttng("add-context --userspace --type=vtid --type=procname --type=vpid --type=ip");
    daemon.lttng("start");
    // The library is for `ls` alone.
    let preload = format!("LD_PRELOAD={WRAPPER}");
    run(as_nobody(daemon.home.path(), "env").args([&preload, "ls", "-lR", "/usr/share/doc"])).expect(0);
    daemon.lttng("stop");
    daemon.lttng("destroy s");
    let back = daemon.home.path().join("back.dat");
    let said = import(&trace, &back).expect(0);
    let events = same_as_babeltrace(&trace, &back);
    assert!(events > 100);
    let lost = babeltrace(&trace).1;
    assert!(lost > 0);
    let digits: String = said
        .err
        .lines()
        .find(|line| line.starts_with("lost when it was recorded"))
        .unwrap()
        .chars()
        .filter(char::is_ascii_digit)
        .collect();
    assert_eq!(digits.parse(), Ok(lost));
    let reported = reported(&back);
    assert!(reported.iter().any(|event| event["system"] == "lttng_ust_libc" && event["event"] == "malloc"));
    assert!(reported.iter().all(|event| event["comm"] == "ls" || event["comm"] == "ls-ust"));
    is_whole(&back, events);
}

/// Numbers of IEEE 754, bits, enumerations, variants, lists of structures, another byte order, a clock of
/// another frequency.
#[test]
fn what_lttng_does_not_write_is_what_babeltrace_prints() {
    let dir = tempfile::tempdir().unwrap();
    let (trace, back) = (dir.path().join("trace"), dir.path().join("back.dat"));
    for (order, little) in [("le", true), ("be", false)] {
        let _ = fs::remove_dir_all(&trace);
        fs::create_dir(&trace).unwrap();
        let text = format!(
            "/* CTF 1.8 */
typealias integer {{ size = 8; }} := u8; typealias integer {{ size = 16; }} := u16; typealias integer {{ size = 32; }} := u32;
trace {{ major = 1; minor = 8; byte_order = {order}; packet.header := struct {{ u32 magic; }}; }};
clock {{ name = cycles; freq = 4000000000; offset_s = 100; }};
typealias integer {{ size = 32; map = clock.cycles.value; }} := time;
stream {{ packet.context := struct {{ u32 packet_size; u32 content_size; u32 cpu_id; time timestamp_begin; time timestamp_end; }};
event.header := struct {{ u8 id; time timestamp; }}; }};
event {{ name = numbers; id = 1; fields := struct {{ floating_point {{ exp_dig = 8; mant_dig = 24; }} f;
floating_point {{ exp_dig = 11; mant_dig = 53; }} d; integer {{ size = 3; }} three; integer {{ size = 5; signed = true; }} five;
enum : u8 {{ no, yes, more = 3 ... 9 }} e; integer {{ size = 16; byte_order = be; base = 16; }} x[2]; }}; }};
event {{ name = \"my:parts\"; id = 2; fields := struct {{ u8 n; string texts[n]; struct {{ u8 a; u16 b; }} s;
enum : u8 {{ one = 1, two = 2 }} tag; variant <tag> {{ u16 one; struct {{ u8 y; }} two; }} v; }}; }};
"
        );
        fs::write(trace.join("metadata"), text).unwrap();
        let u16 = |value: u16| if little { value.to_le_bytes() } else { value.to_be_bytes() }.to_vec();
        let u32 = |value: u32| if little { value.to_le_bytes() } else { value.to_be_bytes() }.to_vec();
        let f64 = if little { 0.25_f64.to_le_bytes() } else { 0.25_f64.to_be_bytes() };
        let bits = if little { 0b10101 << 3 | 0b011 } else { 0b011 << 5 | 0b10101 };
        let numbers =
            [&[1][..], &u32(4000), &u32((-1.5_f32).to_bits()), &f64, &[bits, 4, 1, 2, 3, 4]].concat();
        let parts = [&[2][..], &u32(8000), b"\x02ab\0\0", &[7], &u16(600), &[2, 9]].concat();
        let other = [&[2][..], &u32(8002), b"\x00", &[8], &u16(601), &[1], &u16(5)].concat();
        let events = [numbers, parts, other].concat();
        let size = (24 + events.len() as u32) * 8;
        let head = [u32(0xc1fc_1fc1), u32(size + 64), u32(size), u32(3), u32(4000), u32(9000)].concat();
        fs::write(trace.join("stream"), [head, events, vec![0; 8]].concat()).unwrap();

        let said = import(&trace, &back).expect(0);
        assert!(said.err.contains("2  numbers of IEEE 754"), "{}", said.err);
        let (lines, _) = babeltrace(&trace);
        let events = reported(&back);
        assert_eq!((lines.len(), events.len()), (3, 3));
        let [numbers, parts, other] = &events[..] else { panic!("{events:?}") };
        // Four ticks a nanosecond.
        assert_eq!(
            [numbers, parts, other].map(|event| event["timestamp"].as_u64().unwrap()),
            [1000, 2000, 2000]
        );
        assert_eq!(
            (&numbers["system"], &numbers["event"], &numbers["cpu"]),
            (&"ctf".into(), &"numbers".into(), &3.into())
        );
        assert_eq!((&parts["system"], &parts["event"]), (&"my".into(), &"parts".into()));
        let expected = serde_json::json!({"f": "-1.5", "d": "0.25", "three": 3, "five": -11, "e": 4, "x": [0x102, 0x304]});
        assert_eq!(numbers["fields"], expected);
        assert_eq!(numbers["names"], serde_json::json!({"e": "more"}));
        let expected = serde_json::json!({"n": 2, "texts": "[ \"ab\", \"\" ]", "s_a": 7, "s_b": 600, "tag": 2, "v_one": 0, "v_two_y": 9});
        assert_eq!(parts["fields"], expected);
        assert_eq!(parts["names"], serde_json::json!({"tag": "two"}));
        assert_eq!((&other["fields"]["v_one"], &other["fields"]["v_two_y"]), (&5.into(), &0.into()));
        // The same values, as babeltrace2 has them.
        let value = |line: &Line, name: &str| {
            line.fields.iter().find(|(field, _)| field == name).map(|(_, value)| value.clone()).unwrap()
        };
        assert_eq!([4000, 8000, 8002], [0, 1, 2].map(|line| lines[line].time));
        assert_eq!(value(&lines[0], "f"), Printed::Float(-1.5));
        assert_eq!(
            (value(&lines[0], "three"), value(&lines[0], "five")),
            (Printed::Number(3), Printed::Number(-11))
        );
        assert_eq!(
            value(&lines[0], "x"),
            Printed::List(vec![Printed::Number(0x102), Printed::Number(0x304)])
        );
        let inner = Printed::Fields(vec![("y".to_owned(), Printed::Number(9))]);
        assert_eq!((value(&lines[1], "v"), value(&lines[2], "v")), (inner, Printed::Number(5)));
        is_whole(&back, 3);
    }
}
