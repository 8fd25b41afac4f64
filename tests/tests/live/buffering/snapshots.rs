//! Snapshots of channels whose users or processes have rings of their own.

use super::*;

/// What is in each set of rings, by its name.
type Sets = BTreeMap<String, BTreeMap<u64, u64>>;

/// The markers that a text has: how many of each argument.
fn arguments(lines: &str) -> BTreeMap<u64, u64> {
    let mut found = BTreeMap::new();
    for line in lines.lines() {
        let (_, value) = line.rsplit_once("arg1").unwrap_or_else(|| panic!("{line}"));
        let value = value.trim_matches([' ', '=', '}']);
        let value =
            value.strip_prefix("0x").map_or_else(|| value.parse(), |hex| u64::from_str_radix(hex, 16));
        *found.entry(value.unwrap()).or_default() += 1;
    }
    found
}

/// What programs fire that are told these counts, one after the other.
fn fired(counts: &[u64]) -> BTreeMap<u64, u64> {
    let mut all = BTreeMap::new();
    counts.iter().flat_map(|count| 0..*count).for_each(|value| *all.entry(value).or_default() += 1);
    all
}

/// The markers in each buffer of a file, by the buffer's name.
fn in_file(file: &Path) -> Sets {
    run(agent("/".as_ref(), ["check"]).arg(file)).expect(0);
    let stock = trace_cmd::report(file, &[]);
    let rows = buffers(file);
    let mut found = Sets::new();
    for name in rows.iter().filter(|row| row.1 != 0).map(|row| row.0.clone()) {
        let prefix = format!("{name}:");
        let of: Vec<&str> = stock.lines().filter(|line| line.trim_start().starts_with(&prefix)).collect();
        let stored: u64 = rows.iter().filter(|row| row.0 == name).map(|row| row.1).sum();
        assert_eq!(of.len() as u64, stored, "{name}");
        found.insert(name, arguments(&of.join("\n")));
    }
    assert!(rows.iter().all(|row| row.2 == 0), "{rows:?}");
    found
}

/// The markers in each trace of a directory, by its path without times, and what babeltrace2 complains of.
fn in_traces(dir: &Path, below: &str) -> (Sets, String) {
    let (mut found, mut said) = (Sets::new(), String::new());
    for entry in fs::read_dir(dir).unwrap().map(Result::unwrap).filter(|entry| entry.path().is_dir()) {
        let name = entry.file_name().into_string().unwrap();
        if entry.path().join("metadata").is_file() {
            let read = run(program("/".as_ref(), "babeltrace2", ["--no-delta"]).arg(entry.path())).expect(0);
            let name = name.split('-').take(2).collect::<Vec<_>>().join("-");
            found.insert(format!("{below}{name}"), arguments(&read.out));
            said.push_str(&read.err);
        } else {
            let (more, also_said) = in_traces(&entry.path(), &format!("{below}{name}/"));
            found.extend(more);
            said.push_str(&also_said);
        }
    }
    (found, said)
}

/// The same of a directory that babeltrace2 has nothing to complain of.
fn in_whole_traces(dir: &Path) -> Sets {
    let (found, said) = in_traces(dir, "");
    assert_eq!(said, "");
    found
}

/// Takes three snapshots: of one owner of rings, of two, and of what two wrote before a pause.
fn check(format: &str, scheme: &str, name: impl Fn(u32, u32) -> String, read: impl Fn(&Path) -> Sets) {
    let recorded = Recorded::start_in("snapshot", format, &json!({"buffers": scheme}));
    let dir = recorded.daemon.path();
    let mut first = Program::start(dir, 1000);
    let first_name = name(1000, first.fire(300));
    let early = recorded.take();
    assert_eq!(read(&early), Sets::from([(first_name.clone(), fired(&[300]))]));
    let mut second = Program::start(dir, 1001);
    let second_name = name(1001, second.fire(500));
    first.fire(20);
    let both = recorded.take();
    let of_both = Sets::from([(first_name.clone(), fired(&[300, 20])), (second_name.clone(), fired(&[500]))]);
    assert_eq!(read(&both), of_both);
    second.fire(40);
    first.end();
    second.end();
    recorded.daemon.tell("POST", "/v1/sessions/one/stop", None);
    let late = recorded.take();
    assert_eq!(read(&late), Sets::from([(first_name, fired(&[300, 20])), (second_name, fired(&[500, 40]))]));
    assert_eq!(read(&both), of_both, "later ones change nothing");
    recorded.daemon.tell("DELETE", "/v1/sessions/one", None);
    assert_eq!(fs::read_dir(&recorded.out).unwrap().count(), 3, "nothing else is stored");
}

fn path_of_user(uid: u32, _: u32) -> String {
    format!("ust/uid/{uid}/64-bit")
}

#[test]
fn a_file_has_a_buffer_of_each_user() {
    check("trace_dat", "uid", |uid, _| format!("ch-user:uid-{uid}"), in_file);
}

#[test]
fn a_file_has_a_buffer_of_each_process() {
    check("trace_dat", "pid", |_, pid| format!("ch-user:pid-{pid}"), in_file);
}

#[test]
fn lttngs_layout_has_a_trace_of_each_user_in_a_snapshot() {
    check("lttng", "uid", path_of_user, in_whole_traces);
}

#[test]
fn lttngs_layout_has_a_trace_of_each_process_in_a_snapshot() {
    check("lttng", "pid", |_, pid| format!("ust/pid/demo-{pid}"), in_whole_traces);
}

#[test]
fn a_flood_overwrites_its_own_rings_only() {
    let small = json!({"subbuf_size": 4096, "num_subbuf": 4});
    let recorded = Recorded::start_in("snapshot", "lttng", &small);
    let dir = recorded.daemon.path();
    let mut quiet = Program::start(dir, 1001);
    quiet.fire(50);
    let mut flood = Program::start(dir, 1000);
    flood.fire(200_000);
    let (mut found, said) = in_traces(&recorded.take(), "");
    assert_eq!(found.remove(&path_of_user(1001, 0)), Some(fired(&[50])));
    let newest = found.remove(&path_of_user(1000, 0)).unwrap();
    assert!(found.is_empty(), "{found:?}");
    // A program may have changed the CPU, and the rings of each have the newest events there.
    assert!(newest.contains_key(&199_999) && newest.values().all(|count| *count == 1), "{newest:?}");
    // What is overwritten is told, of the one who did it.
    assert!(said.lines().all(|line| line.contains("/ust/uid/1000/")), "{said}");
    let overwritten = said.lines().map(|line| {
        let count = line.strip_prefix("WARNING: Tracer discarded ").unwrap().split(' ').next().unwrap();
        count.parse::<usize>().unwrap()
    });
    assert_eq!(newest.len() + overwritten.sum::<usize>(), 200_000);
    quiet.end();
    flood.end();
}
