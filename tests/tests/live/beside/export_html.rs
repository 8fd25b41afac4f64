//! Timelines in Chromium: what they show against `report --json` and `analyze`, and how they are used.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use integration_tests::chromium::Chromium;
use integration_tests::harness::{Ended, agent, reported, run};
use integration_tests::made_up::{Is, MadeUp};
use integration_tests::soak;
use integration_tests::trace_cmd::stored;
use integration_tests::tracefs;
use serde_json::{Value, json};
use tempfile::TempDir;

fn export(file: &Path, to: &Path, options: &[&str]) -> Ended {
    run(agent("/".as_ref(), ["export", "--format", "html"]).args(options).arg(file).arg(to)).expect(0)
}

fn address(page: &Path) -> String {
    format!("file://{}", page.display())
}

/// A recording of stock trace-cmd, exported.
fn exported(dir: &Path, name: &str) -> (PathBuf, PathBuf) {
    let file = stored(dir).into_iter().find(|path| path.file_name().unwrap() == name).unwrap();
    let page = dir.join("page.html");
    export(&file, &page, &[]);
    (file, page)
}

fn counts(records: &[Value]) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    for record in records {
        let name = format!("{}:{}", record["system"].as_str().unwrap(), record["event"].as_str().unwrap());
        *counts.entry(name).or_default() += 1;
    }
    counts
}

/// Two columns of the first table that has an attribute or caption, as the page shows them.
fn table(browser: &mut Chromium, selector: &str) -> BTreeMap<String, String> {
    let script = format!(
        "Object.fromEntries([...document.querySelectorAll('{selector} tbody tr')].map((row) => \
         [row.children[0].textContent, row.children[1].textContent]))"
    );
    serde_json::from_value(browser.eval(&script)).unwrap()
}

#[test]
fn pages_have_all_events_of_stock_recordings() {
    let dir = TempDir::new().unwrap();
    let mut browser = Chromium::start(&dir.path().join("profile"));
    for file in stored(dir.path()) {
        let page = dir.path().join("page.html");
        export(&file, &page, &["--force"]);
        browser.open(&address(&page));
        let records = reported(&file);
        let shown = browser.eval(
            "Object.fromEntries(index.events.filter((event) => event.count).map((event) => [event.name, event.count]))",
        );
        let shown: BTreeMap<String, u64> = serde_json::from_value(shown).unwrap();
        assert_eq!(shown, counts(&records), "{}", file.display());
        let first = records.iter().map(|record| record["timestamp"].as_u64().unwrap()).min().unwrap();
        // Every field of the first thousand events.
        let found = browser.eval(
            "(async () => { const all = []; for (let n = 1; n <= Math.min(1000, index.total); n++) { \
             const event = await loadEvent(n); all.push([event.name, event.time, event.cpu, \
             event.thread === null ? null : index.threads[event.thread][0], Object.fromEntries(event.fields)]); } return all; })()",
        );
        for (found, record) in found.as_array().unwrap().iter().zip(&records) {
            let name =
                format!("{}:{}", record["system"].as_str().unwrap(), record["event"].as_str().unwrap());
            let time = record["timestamp"].as_u64().unwrap() - first;
            let expected = json!([name, time, record["cpu"], record["pid"]]);
            assert_eq!(json!(found.as_array().unwrap()[..4]), expected, "{found}\n{record}");
            for (field, value) in record["fields"].as_object().unwrap() {
                let shown = found[4][field].as_str().unwrap_or_else(|| panic!("{field}: {found}\n{record}"));
                match value {
                    Value::String(text) => assert_eq!(shown, text, "{field}: {record}"),
                    Value::Number(number) => assert_eq!(shown, number.to_string(), "{field}: {record}"),
                    _ => assert!(!shown.is_empty(), "{field}: {record}"),
                }
            }
        }
        browser.expect_quiet();
    }
}

#[test]
fn threads_run_as_long_as_the_analysis_says() {
    let dir = TempDir::new().unwrap();
    let (file, page) = exported(dir.path(), "k6.12-sched-irq-timer-zstd.dat");
    let mut browser = Chromium::start(&dir.path().join("profile"));
    browser.open(&address(&page));
    let answer = run(agent("/".as_ref(), ["analyze", "sched", "--json"]).arg(&file)).expect(0).out;
    let answer: Value = serde_json::from_str(&answer).unwrap();
    let threads = answer["threads"].as_array().or_else(|| answer["answer"]["threads"].as_array()).unwrap();
    let expected: BTreeMap<String, [u64; 3]> = threads
        .iter()
        .map(|thread| {
            let times = ["run_ns", "wait_ns", "blocked_ns"].map(|name| thread[name].as_u64().unwrap());
            (thread["tid"].to_string(), times)
        })
        .filter(|(_, times)| *times != [0; 3])
        .collect();
    assert!(expected.len() > 3);
    let added = "(async () => { const { times } = await addUpThreads(0, index.span); return Object.fromEntries([...times] \
         .map(([thread, states]) => [index.threads[thread][0], [states[1], states[2] + states[3], states[5]]]) \
         .filter(([, states]) => states.some((time) => time > 0))); })()";
    let found: BTreeMap<String, [f64; 3]> = serde_json::from_value(browser.eval(added)).unwrap();
    let found: BTreeMap<String, [u64; 3]> =
        found.into_iter().map(|(tid, times)| (tid, times.map(|time| time.round() as u64))).collect();
    assert_eq!(found, expected);
    browser.expect_quiet();
}

#[test]
fn calls_and_interrupts_take_as_long_as_the_analyses_say() {
    let dir = TempDir::new().unwrap();
    let mut browser = Chromium::start(&dir.path().join("profile"));
    // Those that have a begin and an end.
    let added = |kind: &str| {
        format!(
            "(async () => {{ const sums = {{}}; for (const told of index.slices) {{ const block = await stores.slices.get(told); \
             for (const [row, [begin, end]] of block.rows) {{ if (index.rows[row][0] !== {kind}) continue; \
             for (let at = begin; at < end; at++) {{ if (!block.first[at] || !block.last[at]) continue; \
             const sum = sums[index.labels[block.key[at]]] ??= [0, 0]; sum[0]++; sum[1] += block.end[at] - block.start[at]; }} }} }} return sums; }})()"
        )
    };
    let mut compare = |name: &str, analysis: &str, list: &str, kind: &str, prefix: &str| {
        let page = dir.path().join(format!("{analysis}.html"));
        let file = stored(dir.path()).into_iter().find(|path| path.file_name().unwrap() == name).unwrap();
        export(&file, &page, &[]);
        browser.open(&address(&page));
        let answer = run(agent("/".as_ref(), ["analyze", analysis, "--json"]).arg(&file)).expect(0).out;
        let answer: Value = serde_json::from_str(&answer).unwrap();
        let expected: BTreeMap<String, [u64; 2]> = answer[list]
            .as_array()
            .unwrap()
            .iter()
            // One half of others is not in the file.
            .filter(|row| !row["times"].is_null())
            .map(|row| {
                let name = format!("{prefix}{}", row["name"].as_str().unwrap());
                (name, ["count", "total_ns"].map(|field| row["times"][field].as_u64().unwrap()))
            })
            .filter(|(_, times)| times[0] != 0)
            .collect();
        assert!(expected.len() > 2, "{answer}");
        let found: BTreeMap<String, [u64; 2]> = serde_json::from_value(browser.eval(&added(kind))).unwrap();
        assert_eq!(found, expected, "{name}");
        browser.expect_quiet();
    };
    compare("k6.12-syscalls-none.dat", "syscalls", "calls", "KIND.calls", "");
    compare("k6.12-sched-irq-timer-zstd.dat", "irq", "softirqs", "KIND.irq", "softirq ");
}

#[test]
fn a_page_is_used_with_keys_mouse_and_links() {
    let dir = TempDir::new().unwrap();
    let (file, page) = exported(dir.path(), "k6.12-sched-irq-timer-zstd.dat");
    let records = reported(&file);
    let mut browser = Chromium::start(&dir.path().join("profile"));
    browser.open(&address(&page));
    let about = browser.eval("document.getElementById('about').textContent.replaceAll('\\u202f', '')");
    assert!(about.as_str().unwrap().starts_with(&format!("{} events", records.len())), "{about}");

    // Keys.
    let length =
        |browser: &mut Chromium| browser.eval("timeline.view.to - timeline.view.from").as_f64().unwrap();
    let whole = length(&mut browser);
    for _ in 0..6 {
        browser.key("w");
    }
    let near = length(&mut browser);
    assert!(near < whole / 5.0, "{near} of {whole}");
    let from = browser.eval("timeline.view.from").as_f64().unwrap();
    browser.key("d");
    assert!(browser.eval("timeline.view.from").as_f64().unwrap() > from);
    browser.key("0");
    assert!((length(&mut browser) - whole).abs() < 2.0);
    browser.key("?");
    assert_eq!(browser.eval("document.getElementById('help').hidden"), false);
    browser.key("?");

    // The wheel and dragging.
    browser.wheel((800.0, 200.0), -600.0);
    browser.until("timeline.view.to - timeline.view.from < index.span / 2");
    let from = browser.eval("timeline.view.from").as_f64().unwrap();
    browser.drag(&[(800.0, 200.0), (780.0, 200.0), (600.0, 200.0)], 0);
    assert!(browser.eval("timeline.view.from").as_f64().unwrap() > from);

    // Two fingers.
    browser.key("0");
    browser.pinch(&[
        [(700.0, 200.0), (800.0, 200.0)],
        [(650.0, 200.0), (850.0, 200.0)],
        [(500.0, 200.0), (1000.0, 200.0)],
    ]);
    assert!(length(&mut browser) < whole / 3.0);

    // A range, its statistics and its table.
    browser.key("0");
    browser.settle();
    browser.drag(&[(500.0, 200.0), (520.0, 200.0), (900.0, 200.0)], 8);
    browser.eval("document.getElementById('tab-statistics').click()");
    browser.until("document.querySelectorAll('#statistics table').length === 3");
    browser.settle();
    let selection = browser.eval("timeline.selection");
    let (from, to) = (selection["from"].as_f64().unwrap(), selection["to"].as_f64().unwrap());
    let first = records[0]["timestamp"].as_u64().unwrap();
    let inside: Vec<Value> = records
        .iter()
        .filter(|record| (from..=to).contains(&((record["timestamp"].as_u64().unwrap() - first) as f64)))
        .cloned()
        .collect();
    let expected: BTreeMap<String, String> =
        counts(&inside).into_iter().map(|(name, number)| (name, number.to_string())).collect();
    let shown = table(&mut browser, "#statistics table:nth-of-type(2)");
    let shown: BTreeMap<String, String> =
        shown.into_iter().map(|(name, number)| (name, number.replace('\u{202f}', ""))).collect();
    assert_eq!(shown, expected);
    browser.eval("document.getElementById('tab-table').click()");
    browser.until("document.querySelector('#table caption') !== null");
    let caption =
        browser.eval("document.querySelector('#table caption').textContent.replaceAll('\\u202f', '')");
    assert!(
        caption.as_str().unwrap().contains(&format!("of {} in the selection", inside.len())),
        "{caption}"
    );
    browser.eval("document.getElementById('canvas').focus()");
    browser.key("Escape");
    assert_eq!(browser.eval("timeline.selection"), Value::Null);

    // Search, and the fields of what is found.
    browser.key("0");
    browser.key("/");
    browser.write("sched_switch");
    browser.key("Enter");
    browser.until("document.querySelector('#details table[data-event]') !== null");
    let number = records.iter().position(|record| record["event"] == "sched_switch").unwrap();
    let shown = table(&mut browser, "#details table");
    assert_eq!(browser.eval("Number(document.querySelector('#details table').dataset.event)"), number + 1);
    let record = &records[number];
    assert_eq!(shown["event"], "sched:sched_switch");
    assert_eq!(shown["CPU"], record["cpu"].to_string());
    for field in ["prev_comm", "next_comm"] {
        assert_eq!(shown[field], record["fields"][field].as_str().unwrap());
    }
    for field in ["prev_pid", "prev_state", "next_pid"] {
        assert_eq!(shown[field], record["fields"][field].to_string());
    }
    browser.key("Enter");
    let second = records.iter().enumerate().filter(|(_, record)| record["event"] == "sched_switch").nth(1);
    let second = second.unwrap().0 + 1;
    browser.until(&format!("document.querySelector('#details table')?.dataset.event === '{second}'"));
    // A field's value, and what is nowhere.
    let pid = &record["fields"]["next_pid"];
    browser.eval("document.getElementById('query').value = ''");
    browser.write(&format!("next_pid={pid}"));
    browser.key("Enter");
    let nth = records.iter().enumerate().skip(second).find(|(_, other)| other["fields"]["next_pid"] == *pid);
    let nth = nth.map_or(number, |(nth, _)| nth) + 1;
    browser.until(&format!("document.querySelector('#details table')?.dataset.event === '{nth}'"));
    browser.eval("document.getElementById('query').value = 'certainly nowhere'");
    browser.key("Enter");
    browser.until("document.getElementById('status').textContent.startsWith('Nothing has')");

    // A slice: by keys and by the mouse.
    browser.eval("document.getElementById('canvas').focus()");
    browser.key("Escape");
    browser.key("0");
    browser.settle();
    browser.key("]");
    browser.until("timeline.chosen?.row !== undefined");
    browser.eval("showSlice(timeline.chosen)");
    browser.settle();
    let place = browser.eval(
        "(() => { const { row, start, end } = timeline.chosen; const lane = timeline.laneOf(row); \
         const box = document.getElementById('canvas').getBoundingClientRect(); \
         return [box.left + timeline.xOf((start + end) / 2), box.top + timeline.HEADER + lane.line.y + lane.y + 5]; })()",
    );
    let start = browser.eval("timeline.chosen.start");
    browser.eval("choose(null)");
    browser.drag(&[(place[0].as_f64().unwrap(), place[1].as_f64().unwrap())], 0);
    browser.until("timeline.chosen?.row !== undefined");
    assert_eq!(browser.eval("timeline.chosen.start"), start);
    browser.until("document.querySelectorAll('#details table').length >= 2");

    // The address shows the same again.
    browser.settle();
    let link = browser.eval("location.href");
    let state = "JSON.stringify([Math.round(timeline.view.from), Math.round(timeline.view.to), timeline.chosen, \
                 document.querySelector('#details table').textContent])";
    let before = browser.eval(state);
    browser.open(link.as_str().unwrap());
    browser.until("document.querySelectorAll('#details table').length >= 2");
    assert_eq!(browser.eval(state), before);

    // Both themes.
    let dark = "getComputedStyle(document.body).backgroundColor";
    let light = browser.eval(dark);
    browser.key("t");
    assert_ne!(browser.eval(dark), light);
    browser.expect_quiet();
}

#[test]
fn a_thread_that_ends_is_there_once() {
    let dir = TempDir::new().unwrap();
    let mut made = MadeUp::new(&["sched"]);
    made.switch((1000, 0), (0, 0), 7);
    // Dead, which no thread is twice.
    made.switch((2000, 0), (7, 16), 0);
    made.switch((3000, 0), (0, 0), 8);
    let (file, page) = (dir.path().join("end.dat"), dir.path().join("page.html"));
    made.write(&file);
    export(&file, &page, &[]);
    let mut browser = Chromium::start(&dir.path().join("profile"));
    browser.open(&address(&page));
    assert_eq!(browser.eval("index.threads.map(([tid]) => tid).sort()"), json!([0, 7, 8]));
    let told = browser.eval("loadEvent(2).then((event) => threadName(event.thread))");
    assert_eq!(told, "t7 7");
    browser.expect_quiet();
}

/// Times up to where a browser's numbers end: the latest view is closer than they tell apart.
#[test]
fn the_latest_times_are_drawn() {
    let dir = TempDir::new().unwrap();
    let mut made = MadeUp::new(&["sched"]);
    made.switch((0, 0), (0, 0), 7);
    made.switch(((1 << 53) - 1, 0), (7, 1), 0);
    let (file, page) = (dir.path().join("long.dat"), dir.path().join("page.html"));
    made.write(&file);
    export(&file, &page, &[]);
    let mut browser = Chromium::start(&dir.path().join("profile"));
    browser.open(&address(&page));
    assert_eq!(browser.eval("index.span"), (1_u64 << 53) - 1);
    // A window that is so wide that the lines of the grid are a nanosecond apart.
    browser.eval("view.width = 6000; show(2 ** 53 * 1.01, 2 ** 53 * 1.01 + 20); draw()");
    let lines = browser.eval("gridTimes().length").as_u64().unwrap();
    assert!((1..100).contains(&lines), "{lines}");
    browser.expect_quiet();
}

#[test]
fn a_recording_without_events_has_a_page() {
    let dir = TempDir::new().unwrap();
    let (file, page) = (dir.path().join("empty.dat"), dir.path().join("page.html"));
    MadeUp::new(&["sched"]).write(&file);
    export(&file, &page, &[]);
    let mut browser = Chromium::start(&dir.path().join("profile"));
    browser.open(&address(&page));
    for key in ["w", "s", "]", "[", "m", "z", "Enter", "0", "End"] {
        browser.key(key);
    }
    for tab in ["table", "statistics", "details"] {
        browser.eval(&format!("document.getElementById('tab-{tab}').click()"));
        browser.settle();
    }
    assert_eq!(browser.eval("index.total"), 0);
    browser.expect_quiet();
}

#[test]
fn losses_are_told() {
    let dir = TempDir::new().unwrap();
    let (file, page) = exported(dir.path(), "k6.12-lost.dat");
    let mut browser = Chromium::start(&dir.path().join("profile"));
    browser.open(&address(&page));
    let missed: u64 = reported(&file).iter().filter_map(|record| record["missed"].as_u64()).sum();
    let notes = browser.eval("document.getElementById('notes').textContent.replaceAll('\\u202f', '')");
    let lost = browser.eval("index.cpus.reduce((sum, cpu) => sum + cpu.lost, 0)").as_u64().unwrap();
    assert!(lost > 0 && lost >= missed, "{lost} {missed}");
    assert!(notes.as_str().unwrap().contains(&format!("{lost} events were lost")), "{notes}");
    let row = "[...Array(index.rows.length).keys()].find((row) => index.rows[row][0] === KIND.gap)";
    let gaps = browser.eval(&format!("index.rows[{row}][3]")).as_u64().unwrap();
    assert!(gaps > 0);
    browser.expect_quiet();
}

#[test]
fn functions_are_inside_one_another() {
    let dir = TempDir::new().unwrap();
    let (_, page) = exported(dir.path(), "k6.12-graph.dat");
    let mut browser = Chromium::start(&dir.path().join("profile"));
    browser.open(&address(&page));
    let nested = "(async () => { const all = new Map(); for (const told of index.slices) { const block = await stores.slices.get(told); \
         for (const [row, [begin, end]] of block.rows) { const [kind, owner, depth] = index.rows[row]; if (kind !== KIND.graph) continue; \
         for (let at = begin; at < end; at++) { const list = all.get(owner) ?? []; list.push([depth, block.start[at], block.end[at]]); all.set(owner, list); } } } \
         let inside = 0; let outside = 0; for (const list of all.values()) for (const [depth, start, end] of list) { if (!depth) continue; \
         if (list.some(([other, from, to]) => other === depth - 1 && from <= start && end <= to)) inside++; else outside++; } return [inside, outside]; })()";
    let found = browser.eval(nested);
    let (inside, outside) = (found[0].as_u64().unwrap(), found[1].as_u64().unwrap());
    // At the ends of the recording some have no caller.
    assert!(inside > 100 && outside * 20 < inside, "{found}");
    browser.expect_quiet();
}

#[test]
fn nothing_of_a_hostile_recording_is_run() {
    let dir = TempDir::new().unwrap();
    let mut made = MadeUp::new(&["sched"]);
    let names: [&[u8]; 6] = [
        b"</script><img>",
        b"\"><b>bold</b>",
        b"' onload=x '",
        b"\x01\x02\x1b[31m\xff",
        b"<!--<script>",
        b"&lt;${1}`{{",
    ];
    for (nth, name) in names.iter().enumerate() {
        let time = 1000 + nth as u64 * 1000;
        let tid = 10 + nth as u32;
        made.switch_names((time, 0), (0, 0, b"swapper/0"), (tid, name));
        made.at((time + 200, 0), tid, "sched_waking", &[("pid", Is::Number(11)), ("comm", Is::Text(name))]);
        made.switch_names((time + 500, 0), (tid, 1, name), (0, b"swapper/0"));
    }
    let file = dir.path().join("hostile.dat");
    made.write(&file);
    // An event whose name is markup, of the same length.
    let mut bytes = fs::read(&file).unwrap();
    let (old, new) = (b"sched_waking", b"<b>alert</b>");
    let places: Vec<usize> =
        (0..bytes.len() - old.len()).filter(|at| bytes[*at..].starts_with(old)).collect();
    assert!(!places.is_empty());
    for at in places {
        bytes[at..at + new.len()].copy_from_slice(new);
    }
    fs::write(&file, bytes).unwrap();
    let page = dir.path().join("page.html");
    run(agent("/".as_ref(), ["export", "--format", "html", "--keep-going"]).arg(&file).arg(&page)).expect(0);

    let text = fs::read_to_string(&page).unwrap();
    assert!(!text.contains("onload=x") && !text.contains("<b>alert") && !text.contains("<img>"));
    let mut browser = Chromium::start(&dir.path().join("profile"));
    browser.open(&address(&page));
    let elements = "document.querySelectorAll('img, b, iframe, object, embed, link, script:not([type]), [onload]').length";
    assert_eq!(browser.eval(elements), 1, "the page's own script");
    for (tab, wanted) in [("table", "onload=x"), ("statistics", "<b>")] {
        browser.eval(&format!("document.getElementById('tab-{tab}').click()"));
        browser.until(&format!("document.getElementById('{tab}').textContent.includes({})", json!(wanted)));
    }
    for number in 1..=18 {
        browser.eval(&format!("chooseEvent({number}, true)"));
    }
    browser.until("document.querySelector('#details table') !== null");
    assert_eq!(browser.eval(elements), 1);
    let shown = browser.eval("timeline.lines.map((line) => line.label).join('\\n')");
    assert!(shown.as_str().unwrap().contains("</script><img>"), "{shown}");
    browser.expect_quiet();
    // The policy holds, whatever gets in.
    browser.eval(
        "(() => { globalThis.hacked = false; globalThis.refused = []; \
         document.addEventListener('securitypolicyviolation', (event) => refused.push(event.effectiveDirective)); const script = document.createElement('script'); \
         script.textContent = 'globalThis.hacked = true'; document.body.append(script); \
         const image = document.createElement('img'); image.src = 'https://example.org/x.png'; document.body.append(image); })()",
    );
    browser.eval("new Promise((go) => setTimeout(go, 300))");
    assert_eq!(browser.eval("globalThis.hacked"), false);
    assert!(browser.said.iter().all(|said| said.contains("Content Security Policy")), "{:?}", browser.said);
    browser.until("refused.length === 2");
    assert_eq!(browser.eval("refused.sort()"), json!(["img-src", "script-src-elem"]));
}

#[test]
fn markers_are_told_and_found() {
    let dir = TempDir::new().unwrap();
    let mut made = MadeUp::new(&["sched", "ftrace"]);
    let print =
        tracefs::events(&["ftrace"]).into_values().find(|event| event.format.name == "print").unwrap();
    let mut marker = |time: u64, text: &str| {
        let start = print.format.field("buf").unwrap().offset as usize;
        let mut record = vec![0; start];
        record[..2].copy_from_slice(&print.format.id.to_le_bytes());
        record[4..8].copy_from_slice(&7_u32.to_le_bytes());
        record.extend_from_slice(text.as_bytes());
        record.resize((record.len() + 1).next_multiple_of(4), 0);
        made.push((time, 0), &record);
    };
    marker(1000, "level begins\n");
    marker(5000, "<i>boss</i>\n");
    made.switch((9000, 0), (7, 1), 0);
    let (file, page) = (dir.path().join("marked.dat"), dir.path().join("page.html"));
    made.write(&file);
    export(&file, &page, &[]);
    let mut browser = Chromium::start(&dir.path().join("profile"));
    browser.open(&address(&page));
    let first = browser.eval("timeline.lines.slice(0, 2).map((line) => [line.label, line.side])");
    assert_eq!(first, json!([["Markers", "1"], ["ftrace:print", "2"]]));
    browser.key("/");
    browser.write("BOSS");
    browser.key("Enter");
    browser.until("document.querySelector('#details table[data-event]') !== null");
    let shown = table(&mut browser, "#details table");
    assert_eq!((shown["since start"].as_str(), shown["buf"].trim()), ("0.000004000 s", "<i>boss</i>"));
    browser.expect_quiet();
}

/// A recording of so many events: threads that run in turn on each CPU, and wake each other.
fn make(path: &Path, events: u64) {
    let mut made = MadeUp::new(&["sched"]);
    let cpus = 8;
    for round in 0..events / 2 / u64::from(cpus) {
        for cpu in 0..cpus {
            let tid = |round: u64| 100 + cpu * 20 + (round % 20 * 7 % 20) as u32;
            let time = 1_000_000 + round * 10_000 + u64::from(cpu) * 100 + round * round % 977;
            made.wake((time, cpu), tid(round), tid(round + 1));
            let state = [0, 1, 2][(round % 3) as usize];
            made.switch((time + 2000 + round % 31 * 200, cpu), (tid(round), state), tid(round + 1));
        }
    }
    made.write(path);
}

#[test]
fn what_is_left_out_is_said() {
    let dir = TempDir::new().unwrap();
    let (file, page) = (dir.path().join("some.dat"), dir.path().join("page.html"));
    make(&file, 40_000);
    let said = export(&file, &page, &["--max-events", "10000"]);
    assert!(said.err.contains("30 000  events of which the page has densities"), "{said:?}");
    let mut browser = Chromium::start(&dir.path().join("profile"));
    browser.open(&address(&page));
    let notes = browser.eval("document.getElementById('notes').textContent.replaceAll('\\u202f', '')");
    assert!(notes.as_str().unwrap().starts_with("Details of the first 10000 of 40000 events"), "{notes}");
    let counts = browser.eval("index.events.map((event) => event.count).filter((number) => number)");
    assert_eq!(counts, json!([20_000, 20_000]));
    // Whoever looks closely at what has no details still sees densities.
    browser.eval("show(index.span * 0.9, index.span * 0.9 + 200000)");
    browser.settle();
    let shown = browser.eval("[drawn.level, drawn.densities.length > 0, drawn.events.length]");
    assert_eq!(shown, json!([-1, true, 0]));
    // However few have details, the overview is fine enough to be drawn.
    export(&file, &page, &["--force", "--max-events", "0"]);
    browser.open(&address(&page));
    let buckets =
        browser.eval("[index.detailed, index.span / index.base > 1000, drawn.densities.length > 0]");
    assert_eq!(buckets, json!([0, true, true]));
    // Nothing else has the option.
    let other =
        run(agent("/".as_ref(), ["export", "--format", "ctf", "--max-events", "1"]).arg(&file).arg("/tmp/x"));
    other.expect(2).says(&["the format ctf has no --max-events"]);
    browser.expect_quiet();
}

/// How fast a page is: printed, as it depends on the machine. `cargo xtask soak` makes larger ones.
#[test]
fn large_recordings_are_quick() {
    let dir = TempDir::new().unwrap();
    let (file, page) = (dir.path().join("large.dat"), dir.path().join("page.html"));
    let events = 500_000 * soak() as u64;
    make(&file, events);
    let began = std::time::Instant::now();
    export(&file, &page, &["--quiet"]);
    let took = began.elapsed();
    let mut browser = Chromium::start(&dir.path().join("profile"));
    let ready = browser.open(&address(&page));
    let frames = |browser: &mut Chromium, what: &str| {
        let script = format!(
            "(async () => {{ timeline.frameTimes.length = 0; for (let n = 0; n < 60; n++) {{ {what}; \
             await new Promise(requestAnimationFrame); }} \
             const times = [...timeline.frameTimes].sort((one, other) => one - other); \
             return [times.length, times[times.length >> 1], times[times.length - 1]]; }})()"
        );
        browser.eval(&script)
    };
    let zooms = frames(&mut browser, "zoom(0.85)");
    browser.settle();
    let pans = frames(&mut browser, "pan(0.05)");
    let outs = frames(&mut browser, "zoom(1.15)");
    let size = fs::metadata(&page).unwrap().len();
    println!("{events} events: exported in {took:?}, {size} bytes, ready after {ready} ms");
    println!(
        "frames: number, median and longest drawing in ms: zoom in {zooms}, pan {pans}, zoom out {outs}"
    );
    // The number of frames depends on the machine; that there are some does not.
    assert!([zooms, pans, outs].iter().all(|frames| frames[0].as_u64().unwrap() > 0));
    let total = browser.eval("index.total").as_u64().unwrap();
    assert_eq!(total, events / 16 * 16);
    browser.expect_quiet();
}

/// Marsaglia's xorshift: the same numbers each time.
fn random(state: &mut u64, limit: usize) -> usize {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    (*state % limit as u64) as usize
}

/// A small recording with something for each kind of row.
fn some_of_everything(path: &Path) {
    let mut made = MadeUp::new(&["sched", "irq", "block", "raw_syscalls"]);
    for round in 0..60_u64 {
        let (time, tid) = (1000 + round * 1000, 10 + (round % 7) as u32);
        let at = |after: u64| (time + after, (round % 2) as u32);
        let sector =
            [("dev", Is::Number(8)), ("sector", Is::Number(round as i64 * 8)), ("nr_sector", Is::Number(8))];
        made.switch(at(0), (0, 0), tid);
        made.at(at(100), tid, "sys_enter", &[("id", Is::Number(round as i64 % 9))]);
        made.at(at(150), tid, "block_rq_issue", &[&sector[..], &[("bytes", Is::Number(4096))]].concat());
        made.at(at(200), tid, "irq_handler_entry", &[("irq", Is::Number(5))]);
        made.at(at(250), tid, "softirq_entry", &[("vec", Is::Number(1))]);
        made.at(at(300), tid, "softirq_exit", &[("vec", Is::Number(1))]);
        made.at(at(350), tid, "irq_handler_exit", &[("irq", Is::Number(5))]);
        made.at(at(400), tid, "block_rq_complete", &sector);
        made.at(at(500), tid, "sys_exit", &[("id", Is::Number(round as i64 % 9)), ("ret", Is::Number(-1))]);
        made.wake(at(600), tid, 10 + (round % 5) as u32);
        made.switch(at(700), (tid, [0, 1, 2, 16, 32][(round % 5) as usize]), 0);
        if round % 20 == 19 {
            made.lost((round % 2) as u32, round % 3);
        }
    }
    made.write(path);
}

#[test]
fn damaged_recordings_give_whole_pages_or_errors() {
    let dir = TempDir::new().unwrap();
    let (whole, file, page) =
        (dir.path().join("whole.dat"), dir.path().join("damaged.dat"), dir.path().join("page.html"));
    some_of_everything(&whole);
    let bytes = fs::read(&whole).unwrap();
    let mut browser = Chromium::start(&dir.path().join("profile"));
    let (mut state, mut opened) = (0x9e37_79b9_7f4a_7c15, 0);
    for nth in 0..120 * soak() {
        let mut damaged = bytes.clone();
        // The records are at the end; before them are formats and names.
        let from = if nth % 4 == 0 { 0 } else { damaged.len() - 3 * 4096 };
        for _ in 0..=random(&mut state, 12) {
            let at = from + random(&mut state, damaged.len() - from);
            damaged[at] = [0, 1, 0x7f, 0x80, 0xff, random(&mut state, 256) as u8][random(&mut state, 6)];
        }
        fs::write(&file, damaged).unwrap();
        let arguments = ["export", "--format", "html", "--keep-going", "--force", "--quiet"];
        let ended = run(agent("/".as_ref(), arguments).arg(&file).arg(&page));
        assert!(!ended.err.contains("panicked"), "{nth}: {ended:?}");
        // Damage of the header or the structure is an error, and leaves no page.
        if ended.code() != 0 {
            continue;
        }
        if nth % 8 != 1 {
            continue;
        }
        opened += 1;
        browser.open(&address(&page));
        // Whatever is in the page can be unpacked, and slices do not end before they begin.
        let odd = browser.eval(
            "(async () => { let odd = 0; for (const told of index.slices) { const block = await stores.slices.get(told); \
             for (let at = 0; at < block.count; at++) odd += !(block.start[at] >= 0 && block.end[at] >= block.start[at]); } \
             for (const told of index.densities) await stores.densities.get(told); \
             for (let number = 1; number <= index.detailed; number++) odd += (await loadEvent(number)) === null; return odd; })()",
        );
        assert_eq!(odd, 0, "{nth}");
        browser.expect_quiet();
    }
    assert!(opened >= 10, "{opened}");
    // A page that was damaged later: a column that is cut short is an error, not numbers without end.
    for read in ["next()", "signed()", "big()", "column()"] {
        let said = browser.eval(&format!(
            "(() => {{ try {{ new Numbers(new Uint8Array([255])).{read}; return ''; }} catch (error) {{ return error.message; }} }})()"
        ));
        assert_eq!(said, "a column of a block is cut short", "{read}");
    }
    // A link to what cannot be.
    browser.eval("location.hash = `view=-${'9'.repeat(400)}-${'9'.repeat(400)}&select=0-${'9'.repeat(400)}&event=-1&slice=9-9&scroll=-Infinity`");
    browser.settle();
    let view =
        browser.eval("[timeline.view.from, timeline.view.to, timeline.view.scroll].every(Number.isFinite)");
    assert_eq!((view, browser.eval("timeline.selection")), (json!(true), Value::Null));
    browser.expect_quiet();
}
