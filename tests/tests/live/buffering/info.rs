//! What `info` tells of the directories of sessions whose users or processes have rings of their own.

use super::*;

/// What `info` tells of a directory: how many events each trace has, by its path, and the text.
fn told(dir: &Path) -> (BTreeMap<String, u64>, String) {
    let told = run(agent("/".as_ref(), ["info", "--json"]).arg(dir)).expect(0).out;
    let told: Value = serde_json::from_str(&told).unwrap();
    assert_eq!(told["left_out"], 0);
    let row = |trace: &Value| {
        let counted: u64 =
            trace["streams"].as_array().unwrap().iter().map(|of| of["events"].as_u64().unwrap()).sum();
        assert_eq!(trace["recorded"], counted);
        (trace["path"].as_str().unwrap().to_owned(), counted)
    };
    let text = run(agent("/".as_ref(), ["info"]).arg(dir)).expect(0).out;
    (told["traces"].as_array().unwrap().iter().map(row).collect(), text)
}

#[test]
fn info_knows_the_traces_of_users_in_all_chunks() {
    let recorded = Recorded::start("lttng", &json!({}));
    let fire = |uid: u32, count: u32| {
        let mut program = Program::start(recorded.daemon.path(), uid);
        program.fire(count);
        program.end();
    };
    fire(1000, 210);
    fire(1001, 30);
    let rotation = recorded.daemon.tell("POST", "/v1/sessions/one/rotations", None);
    let path = format!("/v1/sessions/one/rotations/{}", rotation["id"]);
    let closed = wait_for("the chunk", || {
        let rotation = recorded.daemon.tell("GET", &path, None);
        (rotation["state"] == "completed").then(|| PathBuf::from(rotation["path"].as_str().unwrap()))
    });
    fire(1000, 7);
    recorded.daemon.tell("POST", "/v1/sessions/one/stop", None);
    let of = |chunk: &str, uid: u32| format!("{chunk}ust/uid/{uid}/64-bit");
    let counts = |chunk: &str, counts: [u64; 2]| [(of(chunk, 1000), counts[0]), (of(chunk, 1001), counts[1])];
    assert_eq!(told(&closed).0, counts("", [210, 30]).into());
    assert_eq!(told(&closed.join("ust/uid/1001/64-bit")).0, [(String::new(), 30)].into());
    // The chunk after the rotation is still open.
    let name = format!("archives/{}/", closed.file_name().unwrap().to_str().unwrap());
    let (traces, text) = told(&recorded.out);
    let (of_closed, of_open): (BTreeMap<_, _>, BTreeMap<_, _>) =
        traces.into_iter().partition(|(path, _)| path.starts_with("archives/"));
    assert_eq!(of_closed, counts(&name, [210, 30]).into());
    let is_of = |uid: u32, count: u64| {
        of_open.iter().filter(|(path, found)| path.ends_with(&of("-1/", uid)) && **found == count).count()
    };
    assert_eq!((of_open.len(), is_of(1000, 7), is_of(1001, 0)), (2, 1, 1), "{of_open:?}");
    for path in of_closed.keys().chain(of_open.keys()) {
        assert!(text.contains(&format!("{}: Common", recorded.out.join(path).display())), "{text}");
    }
    // A session is no export that another one may replace.
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("traces/k6.12-kprobes.dat");
    let export = ["export", "--format", "ctf", "--force"];
    run(agent("/".as_ref(), export).arg(file).arg(&recorded.out)).expect(114);
    assert_eq!(told(&recorded.out).1, text);
}

#[test]
fn info_knows_the_traces_of_processes() {
    let recorded = Recorded::start("lttng", &json!({"buffers": "pid"}));
    let mut expected = BTreeMap::new();
    for count in [3, 11] {
        let mut program = Program::start(recorded.daemon.path(), 1000);
        expected.insert(format!("ust/pid/demo-{}", program.fire(count)), u64::from(count));
        program.end();
    }
    recorded.daemon.tell("POST", "/v1/sessions/one/stop", None);
    let traces = told(&recorded.out).0;
    let without_time = |path: &str| path.split('-').take(2).collect::<Vec<_>>().join("-");
    let found: BTreeMap<_, _> = traces.iter().map(|(path, count)| (without_time(path), *count)).collect();
    assert_eq!(found, expected);
}
