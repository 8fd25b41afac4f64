//! Exports of stock and of made-up recordings in the JSON of Chrome's trace viewer, against `report --json`
//! and as Perfetto's trace_processor imports them.

use integration_tests::made_up::{Is, MadeUp};
use integration_tests::trace_cmd::stored;
use integration_tests::trace_processor::ask;
use serde_json::Value;

use crate::export_chrome::{WRONG, check, times};

#[test]
fn every_record_and_field_of_stock_recordings_comes_back() {
    let dir = tempfile::tempdir().unwrap();
    for file in stored(dir.path()) {
        let (out, events, _) = check(&file, dir.path());
        let count = events.iter().filter(|event| ["X", "i"].iter().any(|kind| event["ph"] == *kind)).count();
        let answers = ask(&out, &[WRONG, "select count(*) from slice"]);
        assert_eq!(answers[0], Vec::<Vec<Value>>::new(), "{}", file.display());
        assert_eq!(answers[1][0][0], count, "{}", file.display());
    }
}

#[test]
fn values_are_counters() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("trace.dat");
    let mut made = MadeUp::new(&["power"]);
    for (time, cpu, event, state) in [
        (1000, 0, "cpu_frequency", 1_200_000),
        (2000, 1, "cpu_frequency", 3_400_000),
        (3000, 0, "cpu_idle", 2),
        (4000, 0, "cpu_idle", 0xffff_ffff),
        (5000, 0, "cpu_frequency", 800_000),
    ] {
        let fields = [("state", Is::Number(state)), ("cpu_id", Is::Number(cpu.into()))];
        made.at((time, cpu), 0, event, &fields);
    }
    made.write(&file);
    let (out, ..) = check(&file, dir.path());
    let answers = ask(
        &out,
        &[
            "select t.name, c.ts, c.value from counter c join counter_track t on c.track_id = t.id order by c.ts",
        ],
    );
    let told: Vec<_> = answers[0]
        .iter()
        .map(|row| (row[0].as_str().unwrap(), row[1].as_u64().unwrap(), row[2].as_f64().unwrap()))
        .collect();
    let expected = [
        ("cpu_frequency CPU 0 kHz", 1000, 1_200_000.0),
        ("cpu_frequency CPU 1 kHz", 2000, 3_400_000.0),
        ("cpu_idle CPU 0 state", 3000, 2.0),
        ("cpu_idle CPU 0 state", 4000, -1.0),
        ("cpu_frequency CPU 0 kHz", 5000, 800_000.0),
    ];
    assert_eq!(told, expected);
}

#[test]
fn times_that_a_double_cannot_hold_count_from_the_first_event() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("trace.dat");
    let first = 1_795_688_174_292_265_561;
    let mut made = MadeUp::new(&["sched"]);
    made.switch((first, 0), (0, 0), 7);
    made.switch((first + 1001, 0), (7, 1), 0);
    made.write(&file);
    let (out, events, _) = check(&file, dir.path());
    assert_eq!(times(&out), [0, 1001]);
    let ran = events.iter().find(|event| event["cat"] == "cpu" && event["name"] == "t7").unwrap();
    assert_eq!(ran["dur"], 1.001);
}
